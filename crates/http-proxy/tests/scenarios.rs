//! Scripts of `tests/scenarios`: an origin, the proxy, clients, and what they must get, on a clock
//! that moves only when a script says so. The number of a script is its topic; `scenario/script.rs`
//! has the language.

#[path = "scenario/script.rs"]
mod script;
#[path = "scenario/stage.rs"]
mod stage;
mod support;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use script::Script;

/// Scripts at once: most of the time of one is waiting.
const AT_ONCE: usize = 4;

fn scripts() -> Vec<PathBuf> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenarios");
    let listed = std::fs::read_dir(directory).expect("the scripts");
    let mut paths: Vec<PathBuf> = listed.map(|entry| entry.expect("a script").path()).collect();
    paths.sort();
    paths
}

fn run(path: &PathBuf) -> Result<(), String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let played = Script::parse(&text).and_then(|script| stage::play(&script));
    played.map_err(|(line, why)| format!("{name}:{line}: {why}"))
}

#[test]
fn every_script_comes_out_as_it_says() {
    let paths = scripts();
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(path) = paths.get(next.fetch_add(1, Ordering::SeqCst)) {
                    if let Err(failure) = run(path) {
                        failures.lock().expect("lock").push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("lock");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn scripts_have_numbers_of_their_own() {
    let number = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (number, rest) = name.split_at_checked(3).expect("a name after the number");
        assert!(rest.starts_with('-') && rest.ends_with(".txt"), "{name}: NNN-what-it-is.txt");
        number.parse::<u16>().expect("three digits")
    };
    let (paths, mut seen) = (scripts(), BTreeSet::new());
    for path in &paths {
        assert!(seen.insert(number(path)), "{}: the number is taken", path.display());
    }
    assert!(paths.len() >= 25, "{} scripts: some are gone", paths.len());
}

/// A runner that lets anything pass would let every script pass.
#[test]
fn what_a_script_gets_wrong_is_found() {
    let origin = "origin 200 one\n    Cache-Control: max-age=10\n";
    for (steps, line) in [
        ("GET /\n    -> 404\n", 3),
        ("GET /\n    -> 200, body two\n", 3),
        ("GET /\n    -> 200, hit\n", 3),
        ("GET /\n    -> age 0\n", 3),
        ("GET /\n    -> no field cache-control\n", 3),
        ("GET /\n    -> field cache-control max-age=11\n", 3),
        ("GET /\n    -> not stored\n", 3),
        ("GET /\n    -> asked 2\n", 3),
        ("GET /\n    -> 200\norigin saw accept *\n", 5),
        ("GET /\n", 3),
        ("set caching.no_such_key=1\n", 3),
        ("wait long\n", 3),
        ("GET /\n    -> perhaps\n", 4),
        ("end a\n    -> 200\n", 3),
    ] {
        let script = Script::parse(&format!("{origin}{steps}"));
        let (found, why) = script.and_then(|script| stage::play(&script)).expect_err(steps);
        assert_eq!(found, line, "{steps}: {why}");
    }
}
