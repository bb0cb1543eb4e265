//! Ctrl-C while `damelo lab` has gigabytes lying about: nothing stays.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use super::*;

const WAIT_MAX: Duration = Duration::from_secs(60);
const SIGINT: i32 = 2;

/// Waits for what must come.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < WAIT_MAX, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn names_in(dir: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Runs a command that works in the directory `work`, interrupts it as soon as files lie `inside`
/// what it makes there, and looks what it leaves.
fn interrupt(args: &[&str], inside: &str) {
    let bed = Bed::new();
    let work = bed.path("work");
    std::fs::create_dir(&work).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_damelo"));
    command.arg("lab").args(args).current_dir(bed.dir.path()).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // In the run's directory there may be a machine's.
    let is_in = |name: &String| {
        let own = work.join(name);
        own.join(inside).exists() || own.join(name).join(inside).exists()
    };
    until("it makes something", || names_in(&work).first().is_some_and(is_in));
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(SIGINT), "a shell's loop ends, too: {status}, {said}");
    assert!(said.contains("removing what was temporary"), "{said}");
    assert_eq!(names_in(&work), Vec::<String>::new(), "{said}");
}

const LONG: &str = "gen:web?requests=2000000";

#[test]
fn designs_on_real_disks_leave_nothing_when_interrupted() {
    for (design, inside) in [("squid", "d1"), ("cfs", "blocks"), ("store", "store")] {
        interrupt(&["designs", LONG, design, "--real", "work", "--cache", "64MiB"], inside);
    }
}

#[test]
fn a_paper_on_real_disks_leaves_nothing_when_interrupted() {
    interrupt(&["paper", "damelo", "--scale-down", "10", "--real", "work"], "");
}

#[test]
fn the_benchmark_leaves_nothing_when_interrupted() {
    interrupt(&["bench", "--requests", "100000000", "--dir", "work"], "tiny.oracleGeneral");
}
