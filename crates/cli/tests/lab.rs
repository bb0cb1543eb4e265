//! Runs `damelo lab` as a researcher or a script would: what it prints, its exit codes, and what it
//! says of traces that are not what they should be. Each test has a directory of its own.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

#[path = "lab/designs.rs"]
mod designs;
#[path = "lab/interrupted.rs"]
mod interrupted;
#[path = "lab/papers.rs"]
mod papers;
#[path = "lab/reports.rs"]
mod reports;
#[path = "lab/traces.rs"]
mod traces;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const SQUID: &str = "\
982799997.100 12 10.0.0.1 TCP_MISS/200 1000 GET http://a.example/1 - DIRECT/1.2.3.4 text/html
982799997.200 12 10.0.0.2 TCP_HIT/200 3000 GET http://a.example/2 - NONE/- image/gif
982799998.000 12 10.0.0.1 TCP_MISS/403 500 GET http://b.example/1 - DIRECT/1.2.3.5 text/html
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
        (["sim", "gen:web", "best", "auto"], "there is no policy `best`; there are fifo, lru,"),
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
fn deletes_alone_are_nothing_to_measure() {
    let bed = Bed::new();
    bed.file("t.csv", "1,u,GET,200,5,a\n2,u,DELETE,200,0,a\n3,u,PURGE,200,0,b\n");
    let (code, said) = bed.fails(&["sim", "t.csv", "lru", "1KiB", "--warmup-req", "1"]);
    assert!(code == 2 && said.contains("all 3 requests are warm-up or deletes"), "{code} {said}");
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
        (
            &["sim", "access.log", "txt", "lru", "auto", "-f", "squid"],
            "--format squid and the type txt are two forms",
        ),
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
        (&["sim", "gen:web", "lru", "auto", "--html", "-"], "--html takes a file"),
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
        (&["bench", "--policies", "lrru"], "damelo: there is no policy `lrru`; do you mean `lru`?"),
        (&["bench", "--requests", "0"], "0 is not in 1.."),
        (&["bench", "--objects", "0"], "0 is not in 1..=4294967295"),
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

    let policies = bed.json(&["policies", "--json"]);
    let s3_fifo = policies.as_array().unwrap().iter().find(|one| one["policy"] == "s3-fifo");
    assert!(s3_fifo.unwrap()["aliases"].as_array().unwrap().contains(&"s3fifo".into()));
    let generators = bed.json(&["generators", "--json"]);
    assert!(generators.as_array().unwrap().iter().any(|one| one["generator"] == "gen:web"));
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
