//! Reports: run again and compared, and written over nothing that they are made of.

use super::*;

/// A device never ends, and a trace may be larger than memory.
#[test]
fn what_is_too_long_for_a_report_is_not_read_to_its_end() {
    let bed = Bed::new();
    let (code, said) = bed.fails(&["rerun", "/dev/zero"]);
    assert!(code == 4 && said.contains("too long for a report: more than 512MiB"), "{said}");
}

#[test]
fn a_report_is_run_again_and_compared() {
    let bed = Bed::new();
    bed.file("access.log", SQUID);
    let sim = ["sim", "access.log", "lru", "2000"];
    let json = bed.ok(&[&sim[..], &["--json"]].concat());
    bed.file("r.json", &json);
    bed.ok(&[&sim[..], &["--html", "r.html"]].concat());
    let web = "gen:web?requests=2000&seed=7";
    let designs = ["designs", web, "squid,store", "--cache", "8MiB"];
    bed.ok(&[&designs[..], &["--html=d.html"]].concat());
    bed.file("d.json", &bed.ok(&[&designs[..], &["--json"]].concat()));
    bed.file("p.csv", &bed.ok(&["paper", "ucfs", "--scale-down", "50", "--csv"]));
    bed.file("p.json", &bed.ok(&["paper", "cfs", "--scale-down", "50", "--seed", "3", "--json"]));
    bed.file("s.csv", &bed.ok(&["trace", "stat", "access.log", "--csv"]));
    bed.ok(&["trace", "stat", "access.log", "--html", "s.html"]);
    // Behind `--` everything is a name, and an option must come before it.
    bed.ok(&["sim", "--html", "e.html", "--", "access.log", "lru", "2000"]);
    for (report, how) in [
        ("r.json", "value for value"),
        ("d.json", "value for value"),
        ("p.json", "value for value"),
        ("p.csv", "byte for byte"),
        ("r.html", "byte for byte"),
        ("d.html", "byte for byte"),
        ("e.html", "byte for byte"),
        ("s.csv", "byte for byte"),
        ("s.html", "byte for byte"),
    ] {
        let before = std::fs::read(bed.path(report)).unwrap();
        let said = bed.ok(&["rerun", report]);
        assert!(said.starts_with(&format!("{report}: the same results, {how}")), "{said}");
        assert_eq!(before, std::fs::read(bed.path(report)).unwrap(), "a report is not touched");
    }
    let page = std::fs::read_to_string(bed.path("r.html")).unwrap();
    bed.file("r.html", &page.replace("<td class=\"n\">4</td>", "<td class=\"n\">5</td>"));
    let (code, said) = bed.fails(&["rerun", "r.html"]);
    assert!(code == 1 && said.contains("differs: line "), "{said}");
    assert!(json.contains("\"misses\":"), "{json}");
    bed.file("other.json", &json.replace("\"misses\":", "\"misses\":1"));
    let (code, said) = bed.fails(&["rerun", "other.json"]);
    assert!(code == 1 && said.contains("differs: .caches[0].misses was `1"), "{said}");

    let (old, this) = ("\"version\":\"0.0.1\"", env!("CARGO_PKG_VERSION"));
    bed.file("old.json", &json.replace(&format!("\"version\":\"{this}\""), old));
    let output = bed.run(&["rerun", "old.json"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("warning: old.json was made by damelo 0.0.1"));

    bed.file("access.log", &SQUID.replace("1000 GET", "1001 GET"));
    let (code, said) = bed.fails(&["rerun", "r.json"]);
    assert!(code == 4 && said.contains("`access.log` is not the report's: its digest was xxh3:"));
    std::fs::remove_file(bed.path("access.log")).unwrap();
    let (code, said) = bed.fails(&["rerun", "r.json"]);
    assert!(code == 4 && said.contains("as the report's command names it"), "{said}");
    // A report of somebody else names no file that is read but the trace of its command, and that
    // only if it is a file; what it holds does not reach the terminal as it is.
    let foreign = json.replace("access.log", "/dev/zero");
    bed.file("foreign.json", &foreign);
    let (code, said) = bed.fails(&["rerun", "foreign.json"]);
    assert!(code == 4 && said.contains("`/dev/zero`") && said.contains("not a regular file"));
    let claims = json.replace("\"synthetic\":false", "\"synthetic\":true");
    bed.file("claims.json", &claims.replace("xxh3:", "xxh3:\\u001b[2J"));
    bed.file("access.log", SQUID);
    let (code, said) = bed.fails(&["rerun", "claims.json"]);
    assert!(code == 4 && said.contains("its digest was xxh3:\\u{1b}[2J"), "{said}");
    let (code, said) = bed.fails(&["rerun", "no.html"]);
    assert!(code == 4 && said.contains("no.html"), "{said}");
}

/// A file's name need not be text, and a run is not lost for it.
#[test]
fn a_report_goes_to_a_file_of_any_name() {
    use std::os::unix::ffi::OsStrExt;

    let bed = Bed::new();
    bed.file("access.log", SQUID);
    let page = std::ffi::OsStr::from_bytes(b"r\xff.html");
    let mut command = Command::new(env!("CARGO_BIN_EXE_damelo"));
    command.args(["lab", "sim", "access.log", "lru", "2000", "--html"]).arg(page);
    let output = command.current_dir(bed.dir.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    command = Command::new(env!("CARGO_BIN_EXE_damelo"));
    command.args(["lab", "rerun"]).arg(page);
    let output = command.current_dir(bed.dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("the same results, byte for byte"), "{output:?}");
}

/// A drive of a file belongs to what must be the same.
#[test]
fn a_drive_that_has_changed_is_told_before_anything_runs() {
    let bed = Bed::new();
    let drive = include_str!("../../../lab/drives/nvme-1tb.json");
    bed.file("mine.json", drive);
    let args = ["designs", "gen:web?requests=300", "squid", "--drive"];
    bed.file("d.json", &bed.ok(&[&args[..], &["mine.json", "--json"]].concat()));
    assert!(bed.ok(&["rerun", "d.json"]).contains("the same results"));
    bed.ok(&[&args[..], &["mine.json", "--html", "d.html"]].concat());
    let page = std::fs::read_to_string(bed.path("d.html")).unwrap();
    assert!(page.contains("drive    mine.json (xxh3:"), "{page}");
    bed.file("mine.json", &format!("{drive} "));
    let (code, said) = bed.fails(&["rerun", "d.json"]);
    assert!(
        code == 4 && said.contains("the drive `mine.json` is not the report's: its digest was")
    );
    std::fs::remove_file(bed.path("mine.json")).unwrap();
    let (code, said) = bed.fails(&["rerun", "d.json"]);
    assert!(code == 4 && said.contains("cannot read the drive `mine.json`"), "{said}");
    // One that the lab brings has none.
    assert!(!bed.ok(&[&args[..], &["nvme-1tb", "--json"]].concat()).contains("\"drive\":{"));
}

/// Nor by a report, or blocks on a device: it is refused by whatever name, before anything runs.
#[test]
fn a_report_does_not_replace_what_it_is_made_of() {
    let bed = Bed::new();
    bed.ok(&["trace", "convert", "gen:web?requests=1200", "t.csv"]);
    bed.file("mine.json", include_str!("../../../lab/drives/nvme-1tb.json"));
    std::os::unix::fs::symlink("t.csv", bed.path("link")).unwrap();
    std::fs::hard_link(bed.path("t.csv"), bed.path("hard")).unwrap();
    let read = |name: &str| std::fs::read(bed.path(name)).unwrap();
    let files = ["t.csv", "t.csv.manifest.json", "mine.json"];
    let before = files.map(read);
    let sim = ["sim", "t.csv", "lru", "1MiB", "--html"];
    let designs = ["designs", "t.csv", "squid", "--drive", "mine.json", "--html"];
    let paper = ["paper", "squid", "--trace", "t.csv", "--html"];
    let real_designs = ["designs", "t.csv", "cfs", "--cache", "64MiB", "--real"];
    let real_paper = ["paper", "squid", "--trace", "t.csv", "--real"];
    for (args, html, what) in [
        (&sim[..], "t.csv", "is the trace that is read"),
        (&sim, "./t.csv", "is the trace"),
        (&sim, "link", "is the trace"),
        (&sim, "hard", "is the trace"),
        (&sim, "t.csv.manifest.json", "is the manifest of the trace"),
        (&designs, "hard", "is the trace"),
        (&designs, "mine.json", "is the drive"),
        (&paper, "link", "is the trace"),
        (&real_designs, "link", "is the trace"),
        (&real_designs, "t.csv.manifest.json", "is the manifest of the trace"),
        (&real_paper, "hard", "is the trace"),
    ] {
        let (code, said) = bed.fails(&[args, &[html]].concat());
        assert!(code == 2 && said.contains(what), "{html}: {said}");
    }
    assert!(files.map(read) == before, "nothing was touched");
    bed.ok(&[&sim[..], &["r.html"]].concat());
    bed.ok(&[&sim[..], &["r.html"]].concat());
}

/// `... | head`, or a full disk behind standard output: what else was asked for is made, and may
/// have taken hours.
#[test]
fn a_report_does_not_depend_on_who_reads_the_table() {
    let bed = Bed::new();
    bed.file("access.log", SQUID);
    for args in [
        &["sim", "access.log", "lru", "1KiB"][..],
        &["designs", "access.log", "squid,cfs", "--json"],
        &["designs", "access.log", "squid,cfs"],
        &["paper", "squid", "--scale-down", "400"],
    ] {
        let run = |stdout: Stdio, name: &str| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_damelo"));
            command.arg("lab").args(args).args(["--html", name]).current_dir(bed.dir.path());
            command.stdin(Stdio::null()).stdout(stdout).output().unwrap()
        };
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = run(writer.into(), "unread.html");
        assert!(output.status.success(), "{args:?}: {output:?}");
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = run(full.into(), "full.html");
        assert_eq!(output.status.code(), Some(4), "{args:?}: {output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("cannot write to standard output"), "{args:?}: {said}");
        bed.ok(&[args, &["--html", "read.html"]].concat());
        let page = |name: &str| std::fs::read_to_string(bed.path(name)).unwrap();
        for name in ["unread.html", "full.html"] {
            assert_eq!(results(&page(name)), results(&page("read.html")), "{args:?}");
            std::fs::remove_file(bed.path(name)).unwrap();
        }
    }
}
