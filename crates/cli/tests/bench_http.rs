//! Runs `damelo bench http` with our own proxy and real sockets: every workload's figures must be
//! what its name promises, and what cannot be measured must be said.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const SMALL: [&str; 4] = ["--json", "--verify", "--connections", "4"];
/// For workloads that have a catalogue, and for a proxy of our own.
const CATALOGUE: [&str; 2] = ["--objects", "200"];
const OWN: [&str; 4] = ["--memory", "16MiB", "--cache", "64MiB"];

fn bench(args: &[&str]) -> Output {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_damelo"));
    command.args(["bench", "http"]).args(args).args(SMALL).current_dir(dir.path());
    if ["zipf", "pages", "ranges"].contains(&args[0]) && !args.contains(&"--objects") {
        command.args(CATALOGUE);
    }
    if !args.contains(&"--url") {
        command.args(OWN);
    }
    // A soak has no warm-up, and says so.
    if !args.contains(&"--kill-every") {
        command.args(["--warmup", "0"]);
    }
    command.stdin(Stdio::null()).output().unwrap()
}

fn objects(args: &[&str]) -> Vec<Value> {
    let output = bench(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn what_was_warmed_is_hit_and_every_byte_is_right() {
    for args in [
        &["hit", "--requests", "500"][..],
        &["zipf", "--requests", "500", "--tail", "1.5", "--threads", "2"],
        &["pages", "--requests", "500", "--embedded", "4", "--forward"],
        &["ranges", "--requests", "500", "--range", "1KiB"],
        &["ranges", "--requests", "500", "--size", "100KiB", "--range", "9KiB"],
    ] {
        let all = objects(args);
        let m = &all[0];
        assert_eq!(
            (&m["wrong"], &m["failed"], &m["requests"]),
            (&0.into(), &0.into(), &500.into())
        );
        assert_eq!((&m["workload"], &m["target"]), (&args[0].into(), &"damelo".into()));
        assert_eq!((&m["hit_ratio_told"], &m["origin_requests"]), (&1.0.into(), &0.into()), "{m}");
        assert!(m["cpu_us_per_request"].is_number() && m["own_disk_reads_per_request"].is_number());
        assert!(m["p50_us"].as_f64() <= m["p999_us"].as_f64(), "{m}");
    }
}

#[test]
fn fill_misses_always_and_rounds_have_medians() {
    let all = objects(&["fill", "--requests", "300", "--rounds", "2"]);
    assert_eq!(all.len(), 3);
    for m in &all[..2] {
        let counts = (&m["requests"], &m["origin_requests"], &m["hit_ratio_told"]);
        assert_eq!(counts, (&300.into(), &300.into(), &0.0.into()), "{m}");
    }
    assert!(all[2]["summary"] == "damelo" && all[2]["requests_per_second"].is_number());
}

/// A trace of 400 requests for 50 objects, which is what a cache misses, in each round anew.
fn trace(dir: &TempDir) -> String {
    let mut text = "time_s,client,method,status,size_bytes,url\n".to_owned();
    for at in 0..400u32 {
        let (number, length) = (at * 7 % 50, at % 3 * 9000);
        let name = if number % 10 == 0 { "index.html" } else { "a b.gif" };
        text +=
            &format!("{at},{},GET,200,{length},http://h{}/{number}/{name}\n", at % 4, number % 5);
    }
    text += "400,1,PUT,200,10,http://h1/form\n";
    let path = dir.path().join("log.csv");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_trace_is_asked_for_in_whole_from_an_empty_cache_each_round() {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = trace(&dir);
    for forward in [&[][..], &["--forward"]] {
        let all = objects(&[&["trace", "--trace", &path, "--rounds", "2"], forward].concat());
        for m in &all[..2] {
            let counts = (&m["requests"], &m["origin_requests"], &m["wrong"], &m["failed"]);
            assert_eq!(counts, (&400.into(), &50.into(), &0.into(), &0.into()), "{m}");
        }
    }
    let some = objects(&["trace", "--trace", &path, "--num-req", "30"]);
    assert_eq!((&some[0]["requests"], &some[0]["workload"]), (&30.into(), &"trace".into()));
    for (args, said) in [
        (&["trace"][..], "needs --trace"),
        (&["zipf", "--trace", &path], "--trace is for the workload trace"),
        (&["zipf", "--skip-bad"], "--skip-bad is for the workload trace"),
        (&["trace", "--trace", &path, "--tail", "2"], "--tail is for the workloads hit, zipf"),
        (&["trace", "--trace", &path, "--restart"], "--restart is for other workloads"),
    ] {
        let output = bench(args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && text.contains(said), "{args:?}: {text}");
    }
}

#[test]
fn hits_are_there_after_kill_9() {
    let all = objects(&["zipf", "--restart", "--seconds", "1"]);
    assert!(all[0]["first_hit_seconds"].as_f64().unwrap() < 30.0, "{}", all[0]);
    assert!(all[1]["requests"].as_u64() > Some(0) && all[1]["wrong"] == 0, "{}", all[1]);
}

#[test]
fn no_byte_is_wrong_however_often_the_proxy_is_killed() {
    // More than memory and, in time, than the disk hold: what is checked comes from everywhere.
    let load =
        ["zipf", "--kill-every", "0.4", "--seconds", "5", "--tail", "1.3", "--size", "16KiB"];
    let all = objects(&load);
    let soak = &all[0];
    assert!(soak["kills"].as_u64() > Some(2) && soak["requests"].as_u64() > Some(100), "{soak}");
    assert!(soak["hits"].as_u64() > Some(0) && soak["wrong"] == 0, "{soak}");
}

#[test]
fn no_answer_is_older_than_it_may_be_however_often_the_proxy_is_killed() {
    let all = objects(&["zipf", "--changing", "--kill-every", "0.8", "--seconds", "6"]);
    let soak = &all[0];
    assert!(soak["wrong"] == 0 && soak["hung"] == 0, "{soak}");
    assert!(soak["kills"].as_u64() > Some(2) && soak["requests"].as_u64() > Some(100), "{soak}");
    // All that could go wrong was tried.
    for what in ["changes", "hits", "wholes", "parts", "not_modified", "permitted_old"] {
        assert!(soak[what].as_u64() > Some(0), "{what}: {soak}");
    }
    for what in ["by_url", "by_prefix", "by_tag", "by_group"] {
        assert!(soak[format!("purges_{what}")].as_u64() > Some(0), "{what}: {soak}");
    }
    assert_eq!(soak["purges_refused"], 0, "{soak}");
    assert!(soak["hits_inherited"].as_u64() > Some(0), "nothing outlives a kill: {soak}");
}

#[test]
fn an_earlier_run_can_be_asked_for_again() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_damelo"));
    command.args(["proxy", "--json", "--from", "127.0.0.1:0", "--admin", "none"]);
    command.args(["--to", &format!("http://{port}"), "--memory", "16MiB", "--cache"]);
    command.arg(format!("{}:64MiB", dir.path().join("store").display()));
    let mut proxy = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(proxy.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let info: Value = serde_json::from_str(&line).unwrap();
    let (url, origin) = (info["url"].as_str().unwrap(), port.to_string());
    let common = ["zipf", "--url", url, "--origin-listen", &origin, "--requests", "50"];
    let run = objects(&common)[0]["run"].to_string();
    let again = objects(&[&common[..], &["--again", &run, "--first-round", "2"]].concat());
    proxy.kill().unwrap();
    proxy.wait().unwrap();
    assert_eq!((&again[0]["origin_requests"], &again[0]["round"]), (&0.into(), &2.into()));
    assert_eq!((&again[0]["wrong"], &again[0]["hit_ratio_told"]), (&0.into(), &1.0.into()));
}

#[test]
fn what_a_workload_has_no_use_for_is_refused() {
    let drawing = "the workloads hit, zipf, pages, ranges, not for";
    let own = "--url";
    let url = "http://127.0.0.1:9";
    for (args, option, expected) in [
        (&["hit", "--objects", "9"][..], "--objects", "the workloads zipf, pages, ranges, not"),
        (&["fill", "--objects", "9"], "--objects", "not for fill"),
        (&["trace", "--trace", "gen:zipf", "--objects", "9"], "--objects", "not for trace"),
        (&["trace", "--trace", "gen:zipf", "--size", "9"], "--size", "not for trace"),
        (&["trace", "--trace", "gen:zipf", "--embedded", "9"], "--embedded", "not for trace"),
        (&["trace", "--trace", "gen:zipf", "--alpha", "1"], "--alpha", drawing),
        (&["fill", "--alpha", "1"], "--alpha", drawing),
        (&["fill", "--warmup", "1"], "--warmup", drawing),
        (&["zipf", "--hot", "9"], "--hot", "the workload hit, not for zipf"),
        (&["pages", "--range", "9"], "--range", "the workload ranges, not for pages"),
        (
            &["zipf", "--changing", "--kill-every", "1", "--embedded", "9"],
            "--embedded",
            "--changing",
        ),
        (&["zipf", "--restart", "--pid", "0"], "--pid", "--restart"),
        (&["zipf", "--pid", "1"], "--pid", "give 0 there"),
        (&["zipf", "--memory", "1GiB", "--again", "7"], "--again", own),
        (&["zipf", "--memory", "1GiB", "--metrics", url], "--metrics", own),
        (&["hit", "--url", url, "--memory", "1GiB"], "--memory", own),
        (&["hit", "--url", url, "--cache", "1GiB"], "--cache", own),
        (&["hit", "--url", url, "--workers", "1"], "--workers", own),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_damelo"));
        let output = command.args(["bench", "http"]).args(args).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_said = error.contains(option) && error.contains(expected);
        assert!(output.status.code() == Some(2) && is_said, "{args:?}: {error}");
    }
}

#[test]
fn what_cannot_be_measured_is_said() {
    for (args, expected) in [
        (&["hit", "--against", "ftp://x"][..], "http://HOST[:PORT]"),
        (&["zipf", "--tail", "0.5"], "--tail"),
        (&["hit", "--pid", "1,2,3"], "--pid"),
        (&["zipf", "--again", "7"], "--url"),
        (&["zipf", "--changing"], "--kill-every"),
        (&["hit", "--changing", "--kill-every", "1"], "--changing"),
        (&["fill", "--again", "7", "--url", "http://127.0.0.1:9"], "--again"),
        (&["hit", "--url", "http://127.0.0.1:9"], "127.0.0.1:9"),
        (&["hit", "--origin-listen", "203.0.113.1:80"], "--origin-listen"),
    ] {
        let output = bench(args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(expected), "{args:?}: {error}");
    }
}
