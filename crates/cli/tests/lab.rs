//! Runs `damelo lab` as a researcher or a script would: what it prints, its exit codes, and what it
//! says of traces that are not what they should be. Each test has a directory of its own.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

#[path = "lab/designs.rs"]
mod designs;
#[path = "lab/interrupted.rs"]
mod interrupted;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

const SQUID: &str = "\
982799997.100 12 10.0.0.1 TCP_MISS/200 1000 GET http://a.example/1 - DIRECT/1.2.3.4 text/html
982799997.200 12 10.0.0.2 TCP_HIT/200 3000 GET http://a.example/2 - NONE/- image/gif
982799998.000 12 10.0.0.1 TCP_DENIED/403 500 GET http://b.example/1 - NONE/- text/html
982799999.000 12 10.0.0.1 TCP_MEM_HIT/200 1000 GET http://a.example/1 - NONE/- text/html
";

struct Bed {
    dir: TempDir,
}

impl Bed {
    fn new() -> Bed {
        Bed { dir: TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_damelo"));
        command.arg("lab").args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        command.output().unwrap()
    }

    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(args)).unwrap()
    }

    /// Exit code and standard error of a command that must fail.
    fn fails(&self, args: &[&str]) -> (i32, String) {
        let output = self.run(args);
        assert!(!output.status.success(), "{args:?}: {output:?}");
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }
}

/// What a report says of the runs, without the command that made it.
fn results(page: &str) -> &str {
    let body = page.split("<body>").nth(1).expect("a body");
    body.split("<h2>How to").next().expect("what comes before")
}

#[test]
fn stat_counts_a_squid_log() {
    let bed = Bed::new();
    bed.file("access.log", SQUID);
    let all = bed.json(&["trace", "stat", "access.log", "--json"]);
    assert_eq!((&all["format"], &all["synthetic"]), (&"squid".into(), &false.into()));
    let stat = &all["stat"];
    for (name, expected) in
        [("requests", 4), ("objects", 3), ("hosts", 2), ("clients", 2), ("bytes", 5500)]
    {
        assert_eq!(stat[name], expected, "{name}");
    }
    assert_eq!(stat["hit_ratio_max"], 0.25);
    assert!(bed.ok(&["trace", "stat", "access.log"]).contains("requests         4\n"));
}

#[test]
fn traces_are_converted_filtered_and_sampled() {
    let bed = Bed::new();
    bed.file("access.log", SQUID);
    let printed = bed.ok(&["trace", "print", "access.log", "-n", "1"]);
    let expected = "time_s,client,method,status,size_bytes,url\n\
                    982799997.1,10.0.0.1,GET,200,1000,http://a.example/1\n";
    assert_eq!(printed, expected);
    bed.ok(&["trace", "convert", "access.log", "t.oracleGeneral.zst"]);
    let stat = bed.json(&["trace", "stat", "t.oracleGeneral.zst", "--json"]);
    assert_eq!((&stat["stat"]["requests"], &stat["stat"]["objects"]), (&4.into(), &3.into()));
    bed.ok(&["trace", "filter", "access.log", "t.csv.gz", "--rule", "ucfs-2002"]);
    assert_eq!(bed.json(&["trace", "stat", "t.csv.gz", "--json"])["stat"]["requests"], 3);
    bed.ok(&["trace", "sample", "gen:zipf?requests=9000", "s.csv", "--share", "0.2"]);
    let kept =
        bed.json(&["trace", "stat", "s.csv", "--json"])["stat"]["requests"].as_u64().unwrap();
    assert!((500..4500).contains(&kept), "{kept}");
    let (code, words) = bed.fails(&["trace", "convert", "access.log", "t.what"]);
    assert!(code == 2 && words.contains("add --to FORMAT"), "{words}");
    let (code, words) = bed.fails(&["trace", "filter", "access.log", "x.csv", "--rule", "list"]);
    assert!(code == 2 && words.contains("squid-disk-io-1999: HTTP, status 200"), "{words}");
}

#[test]
fn a_sample_by_what_a_trace_does_not_name_is_refused() {
    let bed = Bed::new();
    bed.file("t.csv", "1,-,GET,200,5,a\n2,-,GET,200,5,b\n");
    for (by, what) in [("client", "names a client"), ("host", "names a host")] {
        let args = ["trace", "sample", "t.csv", "s.csv", "--share", "0.5", "--by", by];
        let (code, words) = bed.fails(&args);
        assert!(code == 2 && words.contains(what) && words.contains("--by object"), "{words}");
        assert!(!bed.path("s.csv").exists());
    }
    bed.file("t.csv", "1,-,GET,200,5,a\n2,u,GET,200,5,b\n");
    let args = ["trace", "sample", "t.csv", "s.csv", "--share", "0.5", "--by", "client"];
    let words = String::from_utf8(bed.run(&args).stderr).unwrap();
    assert!(words.contains("t.csv: 1 of 2 requests name no client"), "{words}");
}

#[test]
fn malformed_lines_are_named_or_counted() {
    let bed = Bed::new();
    bed.file("access.log", &format!("{SQUID}982799999.1 broken\n"));
    let (code, words) = bed.fails(&["trace", "stat", "access.log"]);
    assert_eq!(code, 4);
    assert!(
        words.contains("access.log: line 5: 2 fields where 10 (9 in old logs) are expected"),
        "{words}"
    );
    assert!(words.contains("try: add --skip-bad"), "{words}");
    let output = bed.run(&["trace", "stat", "access.log", "--skip-bad", "--json"]);
    let stat: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&stat["stat"]["requests"], &stat["stat"]["skipped"]), (&4.into(), &1.into()));
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.contains("1 malformed lines skipped") && words.contains("line 5: "), "{words}");

    std::fs::write(bed.path("t.oracleGeneral"), [7; 30]).unwrap();
    let (_, words) = bed.fails(&["trace", "stat", "t.oracleGeneral"]);
    assert!(words.contains("record 2: the trace ends after 6 of the record's 24 bytes"), "{words}");
    bed.file("t.bin", "\0\0\0");
    let (_, words) = bed.fails(&["trace", "stat", "t.bin"]);
    assert!(
        words.contains("it is binary, but not oracleGeneral; name it with --format"),
        "{words}"
    );
}

#[test]
fn sim_counts_exactly_in_either_order_of_arguments() {
    let bed = Bed::new();
    bed.file("access.log", SQUID);
    // 1 and 2 come in, b/1 as well, 1 hits: with room for all, three of four miss.
    let short = bed.json(&["sim", "access.log", "lru,fifo", "10000", "--json"]);
    let typed = bed.json(&["sim", "access.log", "squid", "lru,fifo", "10000", "--json"]);
    assert_eq!(short["caches"], typed["caches"]);
    let cache = &short["caches"][0];
    assert_eq!((&cache["misses"], &cache["requests"]), (&3.into(), &4.into()));
    assert_eq!((&cache["miss_bytes"], &cache["bytes"]), (&4500.into(), &5500.into()));
    let one = ["sim", "access.log", "auto", "lru", "1", "--ignore-obj-size", "1", "--csv"];
    let csv = bed.ok(&one);
    assert!(csv.lines().nth(2).unwrap().ends_with(",lru,1,,4,4,4,4,1,1"), "{csv}");
    for (policies, caches) in [("lru", "through 1 cache in"), ("lru,fifo", "through 2 caches in")] {
        let output = bed.run(&["sim", "access.log", policies, "10000"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(caches), "{said}");
    }
}

/// Ten requests for one object, one a second, of which the first five warm up.
#[test]
fn an_interval_of_the_warm_up_has_no_miss_ratio() {
    let bed = Bed::new();
    let lines: Vec<String> = (0..10).map(|n| format!("{n},u,GET,200,5,a\n")).collect();
    bed.file("t.csv", &lines.concat());
    let args =
        ["sim", "t.csv", "lru", "100", "--warmup-req", "5", "--report-interval", "5", "--csv"];
    let csv = bed.ok(&args);
    let rows: Vec<&str> = csv.lines().skip(3).collect();
    assert_eq!(rows, ["t.csv,false,lru,100,,0,0,0,0,,,5", "t.csv,false,lru,100,,5,0,25,0,0,0,10"]);
    let text = bed.ok(&args[..8]);
    let parts: Vec<&str> = text.lines().skip_while(|line| !line.contains("up to s")).collect();
    assert!(parts[1].ends_with(" 0") && parts[2].ends_with("0.0000"), "{text}");
    bed.ok(&[&args[..8], &["--html", "r.html"]].concat());
}

#[test]
fn sim_takes_columns_as_libcachesim_does() {
    let bed = Bed::new();
    bed.file("t.csv", "1,77,100\n2,78,100\n3,77,100\n");
    let params = "time-col=1,obj-id-col=2,obj-size-col=3,delimiter=,";
    let report = bed.json(&["sim", "t.csv", "csv", "s3fifo,LRU", "1mb", "-t", params, "--json"]);
    assert_eq!(report["caches"][0]["policy"], "s3-fifo");
    assert_eq!(report["caches"][1]["misses"], 2);
    // Options may stand between, as there.
    for args in [
        ["sim", "t.csv", "csv", "-t", params, "s3fifo,LRU", "1mb", "--json"],
        ["sim", "t.csv", "-t", params, "csv", "s3fifo,LRU", "--json", "1mb"],
        ["sim", "--json", "t.csv", "csv", "s3fifo,LRU", "-t", params, "1mb"],
    ] {
        assert_eq!(bed.json(&args)["caches"], report["caches"], "{args:?}");
    }
    let (code, words) =
        bed.fails(&["sim", "t.csv", "-t", params, "csv", "--ignore-obj-size", "LRU,S3FIFO", "1"]);
    assert!(
        code == 2 && words.contains("before another one write --ignore-obj-size=true"),
        "{words}"
    );
    let (code, words) = bed.fails(&["sim", "t.csv", "csv", "lru", "1mb"]);
    assert!(code == 4 && words.contains("-t time-col=..,obj-id-col=.."), "{words}");
    let (code, words) = bed.fails(&["sim", "t.csv", "lru", "1mb", "-t", "speed=1"]);
    assert!(code == 2 && words.contains("there is no `speed`"), "{words}");
}

#[test]
fn wrong_policies_sizes_and_generators_say_what_would_be_right() {
    let bed = Bed::new();
    for (args, words) in [
        (["sim", "gen:web", "arc", "auto"], "there is no policy `arc`; there are fifo, lru,"),
        (
            ["sim", "gen:web", "lru", "much"],
            "write bytes (64MiB; at most 8000000TiB), a share of the working set",
        ),
        (
            ["sim", "gen:web", "lru", "1,000"],
            "it holds nothing: write at least 1 (1000, not 1,000)",
        ),
        (["sim", "gen:nothing", "lru", "auto"], "there are thesis, web, polygraph, files, build"),
        (["sim", "gen:web?x=1", "lru", "auto"], "there is no `x`; by default seed=1"),
    ] {
        let (code, said) = bed.fails(&args);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(bed.fails(&["sim", "no-such-file", "lru", "auto"]).0, 4);
}

#[test]
fn the_same_command_gives_the_same_bytes_and_synthetic_ones_say_so() {
    let bed = Bed::new();
    let trace = "gen:web?requests=20000&seed=3";
    let args = ["sim", trace, "lru,w-tinylfu,belady", "auto", "--report-interval", "600"];
    let with = |more: &[&str]| bed.ok(&[&args[..], more].concat());
    let text = with(&[]);
    assert!(text.contains("synthetic"), "{text}");
    assert_eq!(text, with(&["--num-thread", "1"]));
    let csv = with(&["--csv"]);
    assert_eq!(csv, with(&["--csv"]));
    // Rows of intervals add up to that of their cache, which comes first.
    let rows: Vec<Vec<&str>> = csv.lines().skip(1).map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0][11], "interval_end_s", "{csv}");
    let first: Vec<&Vec<&str>> = rows.iter().filter(|row| row[2..4] == rows[1][2..4]).collect();
    assert!(first.len() > 2 && first[0][11].is_empty(), "{first:?}");
    let requests = |row: &Vec<&str>| row[5].parse::<u64>().unwrap();
    let parts: u64 = first[1..].iter().map(|row| requests(row)).sum();
    assert_eq!(parts, requests(first[0]), "{first:?}");
    assert!(csv.lines().skip(2).all(|line| line.starts_with(&format!("{trace},true,"))), "{csv}");
    let json: Value = serde_json::from_str(&with(&["--json"])).unwrap();
    assert_eq!(json["manifest"]["trace"]["synthetic"], true);
    with(&["--html", "r.html"]);
    let first = std::fs::read_to_string(bed.path("r.html")).unwrap();
    with(&["--html", "r.html"]);
    assert_eq!(first, std::fs::read_to_string(bed.path("r.html")).unwrap());
    assert!(first.contains("Synthetic requests") && first.contains("<svg "), "no curve");
    assert!(first.contains("seed=3") && first.contains("damelo lab sim"), "no manifest");
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
#[cfg(unix)]
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
    let drive = include_str!("../../lab/drives/nvme-1tb.json");
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

/// A trace that was written has its manifest beside it, can be made again from that, and stays
/// synthetic if it was.
#[test]
fn a_trace_that_was_written_says_how_and_is_made_again() {
    let bed = Bed::new();
    bed.file("access.log", SQUID);
    bed.ok(&["trace", "convert", "access.log", "t.csv"]);
    let manifest = || std::fs::read_to_string(bed.path("t.csv.manifest.json")).unwrap();
    let beside: Value = serde_json::from_str(&manifest()).unwrap();
    let (how, what) = (&beside["manifest"], &beside["written"]);
    let command = ["damelo", "lab", "trace", "convert", "access.log", "t.csv"];
    assert_eq!(how["command"], serde_json::json!(command));
    assert!(how["trace"]["digest"].as_str().unwrap().starts_with("xxh3:"), "{how}");
    assert_eq!((&what["requests"], &what["synthetic"]), (&4.into(), &false.into()), "{what}");
    for report in ["t.csv", "t.csv.manifest.json"] {
        let said = bed.ok(&["rerun", report]);
        assert!(said.starts_with("t.csv.manifest.json: the same results, value"), "{said}");
    }

    let web = "gen:web?requests=900&seed=5";
    bed.ok(&["trace", "sample", web, "s.oracleGeneral.zst", "--share=0.3", "--seed", "9"]);
    bed.ok(&["rerun", "s.oracleGeneral.zst"]);
    bed.ok(&["trace", "convert", "s.oracleGeneral.zst", "--to", "txt", "--", "s2.gz"]);
    bed.ok(&["rerun", "s2.gz"]);
    let output = bed.run(&["sim", "s2.gz", "lru", "10", "--csv"]);
    let (csv, said) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
    assert!(csv.unwrap().contains("\ns2.gz,true,lru"), "it was made");
    assert!(said.unwrap().contains("s2.gz: synthetic, no one made these requests"));
    bed.ok(&["sim", "s2.gz", "lru", "10", "--html", "r.html"]);
    bed.ok(&["rerun", "r.html"]);

    bed.file("t.csv.manifest.json", &manifest().replace("\"requests\": 4", "\"requests\": 5"));
    let (code, said) = bed.fails(&["rerun", "t.csv"]);
    assert!(code == 1 && said.contains(".written.requests was `5`, is `4`"), "{said}");
    bed.ok(&["trace", "convert", "access.log", "t.csv"]);
    bed.file("t.csv", "another");
    let (code, said) = bed.fails(&["rerun", "t.csv"]);
    assert!(code == 1 && said.contains("its digest was xxh3:"), "{said}");
    assert_eq!(std::fs::read_to_string(bed.path("t.csv")).unwrap(), "another");
}

/// What cannot be written does not cost what was there, least of all the trace that is read.
/// What the form cannot say: on standard error, and in the manifest.
#[test]
fn what_a_form_cannot_say_is_told() {
    let bed = Bed::new();
    bed.file("t.csv", "1,u,GET,200,5,a\n2,u,DELETE,200,0,a\n3,u,GET,304,0,a\n4,u,GET,200,5,a\n");
    let said = |args: &[&str]| {
        let output = bed.run(&[&["trace", "convert"], args].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let manifest = |name: &str| -> Value {
        let text = std::fs::read_to_string(bed.path(&format!("{name}.manifest.json"))).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["written"].clone()
    };
    let words = said(&["t.csv", "t.txt"]);
    assert!(words.contains("1 requests with DELETE or PURGE left out"), "{words}");
    assert!(words.contains("1 requests without a body left out"), "{words}");
    assert!(words.contains("2 of 4 requests written to t.txt"), "{words}");
    let written = manifest("t.txt");
    assert_eq!((&written["requests"], &written["requests_read"]), (&2.into(), &4.into()));
    assert_eq!(
        written["lost"],
        serde_json::json!({
            "deletes": 1, "empty": 1, "results": 0, "times": 2, "sizes": 2, "fields": 2
        })
    );
    let words = said(&["t.csv", "all.csv"]);
    assert!(!words.contains("left out") && manifest("all.csv").get("lost").is_none(), "{words}");
    bed.file("one.csv", "1.25,u,GET,200,500,http://a/x\n2,-,GET,0,500,http://a/x\n");
    let none = |what: &str, output: &str, form: &str, count: u64| {
        format!(
            "damelo: one.csv: {what} are not in {output}: {form} has no place for them (requests that had them: {count})\n"
        )
    };
    let who = "clients, methods and statuses";
    let words = said(&["one.csv", "one.txt"]);
    for (what, count) in [("times", 2), ("sizes", 2), (who, 1)] {
        assert!(words.contains(&none(what, "one.txt", "txt", count)), "{words}");
    }
    let words = said(&["one.csv", "--to", "csv", "columns.csv"]);
    assert!(words.starts_with(&none(who, "columns.csv", "csv", 1)), "{words}");
    assert!(words.lines().count() == 2, "{words}");
    let words = said(&["one.csv", "one.oracleGeneral"]);
    for what in ["fractions of a second", who] {
        assert!(words.contains(&none(what, "one.oracleGeneral", "oracleGeneral", 1)), "{words}");
    }
    assert!(words.lines().count() == 3, "{words}");
    assert_eq!(manifest("one.oracleGeneral")["lost"]["times"], 1);
    let words = said(&["one.csv", "ours.csv"]);
    assert!(words.starts_with("damelo: 2 of 2 requests written to ours.csv"), "{words}");
    bed.file("access.log", SQUID);
    let words = said(&["access.log", "s.csv"]);
    assert!(
        words.contains("Squid's results are not in s.csv: there the rule ucfs-2002"),
        "{words}"
    );
    assert_eq!(manifest("s.csv")["lost"]["results"], 4);
    let shown = bed.run(&["trace", "print", "access.log"]);
    assert!(!String::from_utf8(shown.stderr).unwrap().contains("Squid"), "asked for no more");
    bed.ok(&["rerun", "t.txt"]);
}

#[test]
fn a_trace_is_not_lost_by_writing_one() {
    let bed = Bed::new();
    bed.file("access.csv", "time,obj_id,obj_size\n1,a,10\n2,b,x\n");
    bed.file("old.csv", "old");
    std::os::unix::fs::symlink("access.csv", bed.path("link.csv")).unwrap();
    let before = std::fs::read(bed.path("access.csv")).unwrap();
    for output in ["access.csv", "./access.csv", "link.csv"] {
        let args = ["trace", "sample", "access.csv", output, "--share", "0.5", "--skip-bad"];
        let (code, said) = bed.fails(&args);
        assert!(code == 2 && said.contains("is the trace that is read"), "{said}");
    }
    let (_, said) = bed.fails(&["trace", "convert", "access.csv", "old.csv"]);
    assert!(said.contains("line 3: size is `x`"), "{said}");
    assert_eq!(std::fs::read(bed.path("access.csv")).unwrap(), before);
    assert_eq!(std::fs::read_to_string(bed.path("old.csv")).unwrap(), "old");
    assert_eq!(std::fs::read_dir(bed.path("")).unwrap().count(), 3, "nothing half written");
}

/// Nor by a report, or blocks on a device: it is refused by whatever name, before anything runs.
#[test]
fn a_report_does_not_replace_what_it_is_made_of() {
    let bed = Bed::new();
    bed.ok(&["trace", "convert", "gen:web?requests=1200", "t.csv"]);
    bed.file("mine.json", include_str!("../../lab/drives/nvme-1tb.json"));
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

/// An option that would change nothing is refused, with its name.
#[test]
fn what_would_do_nothing_is_refused() {
    let bed = Bed::new();
    bed.file("access.log", SQUID);
    for (args, words) in [
        (&["trace", "stat", "gen:web", "--skip-bad"][..], "--skip-bad does nothing there"),
        (&["trace", "stat", "gen:web", "-f", "csv"], "the format does nothing there"),
        (&["sim", "gen:web", "lru", "auto", "-t", "time-col=1"], "columns (-t) does nothing"),
        (&["trace", "stat", "access.log", "-t", "time-col=1"], "squid, which has no columns"),
        (&["paper", "cfs", "--url-prefix", "http://a"], "--url-prefix is about --trace"),
        (&["paper", "hades", "--trace", "access.log"], "--trace changes nothing for hades: leave"),
        (&["paper", "squid", "--unfiltered"], "--unfiltered is about --trace"),
        (
            &["paper", "cfs", "--trace", "access.log", "--unfiltered"],
            "--unfiltered changes nothing",
        ),
        (&["paper", "ucfs", "--trace", "access.log", "--seed", "2"], "--seed changes nothing"),
        (&["paper", "squid", "--trace", "access.log", "--scale-down", "2"], "--scale-down changes"),
        (&["sim", "gen:web", "lru", "auto", "--report-interval", "0"], "0 is not in 1.."),
        (
            &["sim", "gen:web", "lru", "auto", "--warmup-req", "999999"],
            "nothing is left to measure",
        ),
        (
            &["designs", "gen:web", "store", "--files", "ext2-4k"],
            "--files or --mapped changes nothing",
        ),
        (
            &["designs", "gen:web", "ucfs", "--system-memory", "1MiB"],
            "--system-memory changes nothing",
        ),
        (&["sim", "gen:zipf?objects=20", "lru", "auto"], "the trace has 20 objects, and no share"),
        (&["sim", "gen:web", "lrru", "auto"], "there is no policy `lrru`; do you mean `lru`?"),
        (&["designs", "gen:web", "store", "--drive", "hdd18tb"], "do you mean `hdd-18tb`?"),
    ] {
        let (code, said) = bed.fails(args);
        assert!(code == 2 && said.contains(words), "{args:?}: {said}");
    }
}

#[test]
fn drives_are_named_in_the_help_and_may_be_files() {
    let bed = Bed::new();
    let help = bed.ok(&["designs", "--help"]);
    for name in damelo_lab::disk::drive_names() {
        assert!(help.contains(name), "{name} in {help}");
    }
    let slow = include_str!("../../lab/drives/atlas-10k.json").replace("10025", "100");
    bed.file("slow.json", &slow);
    let seconds = |drive: &str| {
        let args = ["designs", "gen:web?requests=500", "squid", "--drive", drive, "--json"];
        bed.json(&args)["virtual_seconds"].as_f64().unwrap()
    };
    assert!(seconds("slow.json") > 10.0 * seconds("atlas-10k"));
    let (code, said) = bed.fails(&["designs", "gen:web?requests=9", "--drive", "atlas"]);
    assert!(code == 2 && said.contains("atlas-10k-tripled"), "{said}");
    bed.file("bad.json", "{}");
    let (code, said) = bed.fails(&["designs", "gen:web?requests=9", "--drive", "bad.json"]);
    assert!(code == 4 && said.contains("bad.json is not a drive"), "{said}");
}

#[test]
fn policies_and_generators_are_listed() {
    let bed = Bed::new();
    let policies = bed.ok(&["policies"]);
    for name in ["s3-fifo", "w-tinylfu", "belady", "store-disk-fbc", ":cmax=3:amax=100"] {
        assert!(policies.contains(name), "{name} in {policies}");
    }
    assert!(bed.ok(&["generators"]).contains("gen:polygraph?seed=1&requests=100000"));
}

#[test]
fn bench_prints_a_rate_for_each_form_and_policy() {
    let bed = Bed::new();
    let args = ["bench", "--requests", "20000", "--objects", "5000", "--rounds", "1", "--json"];
    let report = bed.json(&[&args[..], &["--dir", "."]].concat());
    let rows = report["rows"].as_array().unwrap();
    let forms: Vec<&str> = rows.iter().map(|row| row["form"].as_str().unwrap()).collect();
    assert_eq!(forms, ["oracleGeneral", "oracleGeneral", "csv", "csv"]);
    assert!(rows.iter().all(|row| row["requests_per_s"].as_f64().unwrap() > 0.0));
    let manifest = &report["manifest"];
    assert_eq!(manifest["command"][2], "bench");
    assert_eq!(manifest["trace"]["name"], "gen:zipf?requests=20000&objects=5000&alpha=0.8");
    assert_eq!(manifest["trace"]["seed"], 1);
}

/// Of 1,500 requests a fifth has a `?`: by the rule of §4 they are no part of it, as if they had
/// been filtered out before.
#[test]
fn a_paper_plays_what_its_own_rule_lets_through() {
    let bed = Bed::new();
    let line = |n: u32| match n % 5 {
        0 => format!("{n},c,GET,200,900,http://h{}/?{}\n", n % 7, n % 90),
        _ => format!("{n},c,GET,200,900,http://h{}/{}\n", n % 7, n % 90),
    };
    bed.file("t.csv", &(0..1500).map(line).collect::<String>());
    let squid = |trace: &str, more: &[&str]| {
        bed.ok(&[&["paper", "squid", "--trace", trace, "--json"], more].concat())
    };
    let tables = |text: &str| -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let (chosen, all) = (tables(&squid("t.csv", &[])), tables(&squid("t.csv", &["--unfiltered"])));
    for (chosen, all) in chosen.iter().zip(&all) {
        assert_eq!(chosen["rule"], "squid-disk-io-1999");
        assert_eq!(
            (&chosen["requests_left_out"], &all["requests_left_out"]),
            (&300.into(), &0.into())
        );
        assert_eq!(all["rule"], Value::Null);
    }
    bed.ok(&["trace", "filter", "t.csv", "f.csv", "--rule", "squid-disk-io-1999"]);
    let before = tables(&squid("f.csv", &["--unfiltered"]));
    let rows = |tables: &[Value]| tables.iter().map(|t| t["rows"].clone()).collect::<Vec<_>>();
    assert_eq!(rows(&chosen), rows(&before));
    assert_ne!(rows(&chosen), rows(&all));
    let words = "squid: 1,200 of 1,500 requests, those that the paper's own rule";
    assert!(bed.ok(&["paper", "squid", "--trace", "t.csv", "--html", "p.html"]).starts_with(words));
    assert!(std::fs::read_to_string(bed.path("p.html")).unwrap().contains(words));
    let csv = bed.ok(&["paper", "squid", "--trace", "t.csv", "--csv"]);
    assert!(csv.lines().nth(2).unwrap().ends_with(",squid-disk-io-1999"), "{csv}");
}

#[test]
fn a_paper_has_the_published_number_beside_ours() {
    let bed = Bed::new();
    let text = bed.ok(&["paper", "cfs", "--scale-down", "20", "--json"]);
    let tables: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(tables.len() >= 5, "CFS has tables 2 to 6");
    let rows = tables.iter().flat_map(|table| table["rows"].as_array().unwrap());
    assert!(rows.clone().any(|row| !row["published"].is_null() && row["ratio"].is_number()));
    let mut bounded = rows.clone().filter(|row| row["published_as"] == "at least");
    assert!(bounded.any(|row| row["published"] == json!([95.0, null])), "over 95%");
    let csv = bed.ok(&["paper", "cfs", "--scale-down", "50", "--csv"]);
    assert!(csv.lines().any(|line| line.contains(",95,,at least,")), "{csv}");
    assert!(tables.iter().all(|table| !table["why"].as_str().unwrap().is_empty()));
    assert!(tables.iter().all(|table| table["manifest"]["trace"]["seed"] == 1));
    let args = ["paper", "cfs", "--scale-down", "25", "--html", "p.html"];
    bed.ok(&args);
    let page = std::fs::read_to_string(bed.path("p.html")).unwrap();
    for part in
        ["cfs, table 2", "<th>published</th>", "cfs, store", "mean milliseconds of a thousand"]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(page.contains("Synthetic requests") && page.contains("damelo lab paper cfs"));
    bed.ok(&["paper", "cfs", "--scale-down", "25", "--html", "q.html"]);
    let of = |name: &str| std::fs::read_to_string(bed.path(name)).unwrap();
    assert_eq!(results(&of("p.html")), results(&of("q.html")));
}

/// All objects have one size, and half of the requests hit.
#[test]
fn a_sum_of_bytes_beyond_64_bits_is_no_ratio_and_is_told() {
    let bed = Bed::new();
    let sizes = |bytes: u64| -> String {
        (0..8).map(|n| format!("{n},c,GET,200,{bytes},http://a/{}\n", n / 2)).collect()
    };
    let said = |args: &[&str]| String::from_utf8(bed.run(args).stderr).unwrap();
    for (bytes, is_told) in [(1 << 60, false), (1 << 62, true)] {
        bed.file("t.csv", &sizes(bytes));
        for args in [&["sim", "t.csv", "lru", "7000000TiB"][..], &["trace", "stat", "t.csv"]] {
            let said = said(args);
            assert_eq!(said.contains("more than 2^64 bytes"), is_told, "{args:?}: {said}");
        }
    }
}
