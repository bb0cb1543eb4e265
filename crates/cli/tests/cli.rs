//! Runs the built `damelo` as a person or a script would: every command's output, its exit code,
//! and what it says when something is wrong. Each test has a directory and store of its own, so
//! that they may run at once.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A directory with a store in it.
struct Bed {
    dir: TempDir,
}

impl Bed {
    /// A directory without a store.
    fn empty() -> Bed {
        Bed { dir: TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    /// A directory with an empty store of 64 MiB.
    fn new() -> Bed {
        let bed = Bed::empty();
        bed.ok(&["format", &bed.store(), "--size", "64MiB"]);
        bed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn store(&self) -> String {
        self.path("s.damelo").to_str().unwrap().to_owned()
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_damelo"));
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// Runs, expects success, returns standard output.
    fn ok(&self, args: &[&str]) -> Vec<u8> {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        output.stdout
    }

    fn ok_text(&self, args: &[&str]) -> String {
        String::from_utf8(self.ok(args)).unwrap()
    }

    /// Runs, expects one line of JSON.
    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_slice(&self.ok(args)).unwrap()
    }

    /// Runs, expects this exit code and nothing on standard output, returns standard error.
    fn fails(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Runs while nobody reads its standard output.
    fn unread(&self, args: &[&str]) -> Output {
        let mut command = self.command(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        child.wait_with_output().unwrap()
    }

    fn put(&self, key: &str, value: &[u8], more: &[&str]) {
        let store = self.store();
        let mut args = vec!["put", &store, key, "-"];
        args.extend(more);
        let mut child =
            self.command(&args).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(value).unwrap();
        assert!(child.wait().unwrap().success(), "{args:?}");
    }

    fn keys(&self, more: &[&str]) -> Vec<String> {
        let store = self.store();
        let mut args = vec!["ls", &store, "--json"];
        args.extend(more);
        let text = self.ok_text(&args);
        let key = |line: &str| {
            let entry: Value = serde_json::from_str(line).unwrap();
            entry["key"].as_str().unwrap().to_owned()
        };
        let mut keys: Vec<String> = text.lines().map(key).collect();
        keys.sort();
        keys
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i % 251) as u8).collect()
}

#[test]
fn every_command_has_help_with_an_example() {
    let bed = Bed::empty();
    let commands = [
        "format",
        "stat",
        "check",
        "ls",
        "get",
        "put",
        "rm",
        "purge",
        "bench",
        "proxy",
        "forward",
        "check-config",
        "explain",
        "top",
    ];
    let help = bed.ok_text(&["--help"]);
    for command in commands {
        assert!(help.contains(&format!("\n  {command} ")), "{command} is not in {help}");
        let help = bed.ok_text(&[command, "--help"]);
        assert!(help.contains("Example") && help.contains(&format!("damelo {command}")), "{help}");
        let (_, after) = help.split_once("Example").unwrap();
        assert!(after.lines().all(|line| line.chars().count() <= 100), "too wide: {after}");
    }
    for bench in ["micro", "hits", "randread", "index", "open", "wrap", "http"] {
        let help = bed.ok_text(&["bench", bench, "--help"]);
        assert!(help.contains(&format!("damelo bench {bench}")), "{help}");
    }
    assert!(bed.ok_text(&["--help"]).contains("Exit codes"));
}

#[test]
fn help_that_could_not_be_written_is_a_failure() {
    let Ok(full) = File::options().write(true).open("/dev/full") else { return };
    let bed = Bed::empty();
    for (args, code) in [(["top", "--help"], 4), (["--version", "--"], 4), (["no-such", "x"], 2)] {
        let mut command = bed.command(&args);
        let output = command.stdout(full.try_clone().unwrap()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
    assert_eq!(bed.unread(&["--help"]).status.code(), Some(0), "as with `| head`");
}

#[test]
fn typos_are_usage_errors_and_get_a_suggestion() {
    let bed = Bed::empty();
    assert!(bed.fails(2, &["chekc", "x"]).contains("check"));
    assert!(bed.fails(2, &["format", "x", "--size", "12 parsecs"]).contains("not a size"));
    assert!(bed.fails(2, &["get", "x", "k", "--range", "9-3"]).contains("FIRST-LAST"));
    assert!(bed.fails(2, &["ls", "x", "--group", "id:seven"]).contains("--group"));
    bed.fails(2, &[]);
    bed.fails(2, &["format", "x"]);
    bed.fails(2, &["purge", "x"]);
    bed.fails(2, &["purge", "x", "--all", "--group", "g"]);
}

#[test]
fn a_store_that_is_not_there_is_named_with_what_to_do() {
    let bed = Bed::empty();
    for args in [
        &["stat", "none.damelo"][..],
        &["ls", "none.damelo"],
        &["get", "none.damelo", "k"],
        &["rm", "none.damelo", "k"],
        &["purge", "none.damelo", "--all"],
        &["check", "none.damelo"],
        &["put", "none.damelo", "k", "/dev/null"],
    ] {
        let error = bed.fails(3, args);
        assert!(error.contains("none.damelo") && error.contains("damelo format"), "{error}");
    }
    assert!(!bed.path("none.damelo").exists(), "nothing is made by looking");
    bed.ok(&["format", "a,b", "--size", "64MiB"]);
    assert!(bed.fails(3, &["check", "a", "a"]).contains("named twice"));
    assert!(bed.fails(3, &["stat", "a"]).contains("made of 2 volume(s)"));
    std::fs::remove_file(bed.path("b")).unwrap();
    let error = bed.fails(3, &["stat", "a,b"]);
    assert!(error.contains("b is missing") && !error.contains("try: `damelo format"), "{error}");
}

#[test]
fn a_file_that_is_not_a_store_is_not_touched() {
    let bed = Bed::empty();
    let path = bed.path("letter.txt");
    std::fs::write(&path, pattern(100_000)).unwrap();
    let name = path.to_str().unwrap();
    bed.fails(3, &["stat", name]);
    bed.fails(3, &["format", name, "--size", "64MiB"]);
    assert_eq!(std::fs::read(&path).unwrap(), pattern(100_000));
}

#[test]
fn format_refuses_what_exists_and_force_overrules() {
    let bed = Bed::new();
    bed.put("k", b"v", &[]);
    let error = bed.fails(3, &["format", &bed.store(), "--size", "64MiB"]);
    assert!(error.contains("exists") && error.contains("--force"), "{error}");
    assert_eq!(bed.keys(&[]), ["k"]);
    let made = bed.json(&["format", &bed.store(), "--size", "64MiB", "--force", "--json"]);
    assert!(made["objects_max"].as_u64().unwrap() > 0 && made["size_bytes"].as_u64().unwrap() > 0);
    assert!(bed.keys(&[]).is_empty());
}

#[test]
fn a_forced_format_has_the_size_that_was_asked_for() {
    let bed = Bed::empty();
    for junk in [6, 5000, 20 << 20] {
        std::fs::write(bed.path("s.damelo"), pattern(junk)).unwrap();
        bed.fails(3, &["format", &bed.store(), "--size", "16MiB"]);
        assert_eq!(std::fs::metadata(bed.path("s.damelo")).unwrap().len(), junk as u64);
        let made = bed.json(&["format", &bed.store(), "--size", "16MiB", "--force", "--json"]);
        assert_eq!(made["size_bytes"], 16 << 20, "after {junk} bytes of something else");
    }
}

/// A format that cannot be must not cost what was there.
#[test]
fn a_forced_format_that_cannot_be_leaves_what_was_there() {
    let bed = Bed::new();
    bed.put("k", b"v", &[]);
    let format = |size: &str| bed.fails(3, &["format", &bed.store(), "--size", size, "--force"]);
    assert!(format("100KiB").contains("100KiB is too small: 6MiB will do"));
    assert!(format("1000000TiB").contains("s.damelo"));
    assert_eq!(bed.keys(&[]), ["k"]);
}

#[test]
fn a_size_that_is_too_small_leaves_no_file_and_says_what_will_do() {
    let bed = Bed::empty();
    let error = bed.fails(3, &["format", &bed.store(), "--size", "100KiB"]);
    assert!(error.contains("100KiB is too small: 6MiB will do"), "{error}");
    assert!(!bed.path("s.damelo").exists());
    bed.ok(&["format", &bed.store(), "--size", "6MiB"]);
}

#[test]
fn an_index_of_impossible_size_is_refused_and_leaves_no_file() {
    let bed = Bed::empty();
    for objects in ["0", "999999999999", "18446744073709551615"] {
        let args = ["format", &bed.store(), "--size", "64MiB", "--objects", objects];
        let output = bed.run(&args);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{objects}: {text}");
        assert!(text.contains(&format!("objects_max is {objects}")), "{text}");
        assert!(!bed.path("s.damelo").exists(), "{objects}");
    }
}

#[test]
fn what_was_put_comes_out_whole_and_in_ranges() {
    let bed = Bed::new();
    let value = pattern(3_000_000);
    std::fs::write(bed.path("in"), &value).unwrap();
    let store = bed.store();
    let put = bed.json(&["put", &store, "big", "in", "--group", "g", "--json"]);
    assert_eq!(put["length_bytes"], 3_000_000);
    assert!(bed.ok(&["get", &store, "big"]) == value);
    bed.ok(&["get", &store, "big", "-o", "out"]);
    assert!(std::fs::read(bed.path("out")).unwrap() == value);
    for (range, expected) in [
        ("0-0", 0..1),
        ("100-199", 100..200),
        ("2999990-", 2_999_990..3_000_000),
        ("-5", 2_999_995..3_000_000),
        ("70000-2000000", 70_000..2_000_001),
        ("4000000-5000000", 0..0),
    ] {
        assert!(bed.ok(&["get", &store, "big", "--range", range]) == value[expected], "{range}");
    }
    let known = bed.json(&["get", &store, "big", "--json"]);
    assert_eq!(known["length_bytes"], 3_000_000);
    assert_eq!(known["group"], put["group"]);
}

#[test]
fn get_does_not_write_over_the_store() {
    let bed = Bed::new();
    bed.put("k", b"value", &[]);
    let store = bed.store();
    std::os::unix::fs::symlink(&store, bed.path("link")).unwrap();
    for more in [["-o", &store], ["-o", "link"], ["--meta", "./s.damelo"]] {
        let said = bed.fails(2, &[&["get", &store, "k"][..], &more].concat());
        assert!(said.contains("is the store itself"), "{said}");
    }
    assert_eq!(bed.ok(&["get", &store, "k"]), b"value");
}

#[test]
fn metadata_and_empty_objects_survive() {
    let bed = Bed::new();
    std::fs::write(bed.path("meta"), "Content-Type: text/html").unwrap();
    bed.put("page", b"", &["--meta", "meta"]);
    let store = bed.store();
    assert!(bed.ok(&["get", &store, "page", "--meta", "meta.out"]).is_empty());
    assert_eq!(std::fs::read(bed.path("meta.out")).unwrap(), b"Content-Type: text/html");
}

/// A device never ends; what it sends must not fill the machine's memory.
#[test]
fn metadata_is_not_read_beyond_what_any_store_keeps() {
    let bed = Bed::new();
    let store = bed.store();
    std::fs::write(bed.path("long"), vec![0; (1 << 20) + 1]).unwrap();
    std::fs::write(bed.path("v"), "value").unwrap();
    for meta in ["long", "/dev/zero"] {
        let said = bed.fails(4, &["put", &store, "k", "v", "--meta", meta]);
        assert!(said.contains(meta) && said.contains("more than 1MiB"), "{said}");
    }
    assert!(bed.keys(&[]).is_empty());
}

#[test]
fn put_replaces_and_an_unreadable_input_changes_nothing() {
    let bed = Bed::new();
    bed.put("k", b"old", &[]);
    assert_eq!(bed.fails(4, &["put", &bed.store(), "k", "no such file"]).lines().count(), 2);
    assert_eq!(bed.fails(4, &["put", &bed.store(), "k", "."]).lines().count(), 2);
    assert_eq!(bed.ok(&["get", &bed.store(), "k"]), b"old");
    bed.put("k", b"new", &[]);
    assert_eq!(bed.ok(&["get", &bed.store(), "k"]), b"new");
    assert_eq!(bed.keys(&[]), ["k"]);
    bed.fails(4, &["put", &bed.store(), "", "/dev/null"]);
}

#[test]
fn ls_shows_what_is_asked_for() {
    let bed = Bed::new();
    for (key, group) in [("a/1", "g"), ("a/2", "h"), ("b/1", "g")] {
        bed.put(key, b"value", &["--group", group]);
    }
    assert_eq!(bed.keys(&[]), ["a/1", "a/2", "b/1"]);
    assert_eq!(bed.keys(&["--prefix", "a/"]), ["a/1", "a/2"]);
    assert_eq!(bed.keys(&["--group", "g"]), ["a/1", "b/1"]);
    assert_eq!(bed.keys(&["--group", "g", "--prefix", "b"]), ["b/1"]);
    let line = bed.ok_text(&["ls", &bed.store(), "--group", "h"]);
    let fields: Vec<&str> = line.split_whitespace().collect();
    assert_eq!((fields[0], fields[2]), ("5", "a/2"));
    assert_eq!(bed.keys(&["--group", fields[1]]), ["a/2"], "the printed group is taken back");
}

#[test]
fn rm_and_a_missing_key_end_with_one() {
    let bed = Bed::new();
    bed.put("a", b"1", &[]);
    bed.put("b", b"2", &[]);
    let store = bed.store();
    bed.ok(&["rm", &store, "a"]);
    assert_eq!(bed.keys(&[]), ["b"]);
    assert!(bed.fails(1, &["get", &store, "a"]).contains("`a` is not in the store"));
    let missing = bed.run(&["get", &store, "a", "--json"]);
    let said: Value = serde_json::from_slice(&missing.stdout).unwrap();
    assert_eq!((missing.status.code(), &said["found"]), (Some(1), &Value::Bool(false)));
    assert!(bed.fails(1, &["rm", &store, "a", "b"]).contains("1 of 2"));
    assert!(bed.keys(&[]).is_empty(), "the one that was there is gone nevertheless");
    bed.ok(&["rm", &store, "--force", "a"]);
}

#[test]
fn purge_drops_a_group_a_prefix_or_everything() {
    let bed = Bed::new();
    for (key, group) in [("a/1", "g"), ("a/2", "h"), ("b/1", "h"), ("c/1", "h")] {
        bed.put(key, b"value", &["--group", group]);
    }
    let store = bed.store();
    bed.ok(&["purge", &store, "--group", "g"]);
    assert_eq!(bed.keys(&[]), ["a/2", "b/1", "c/1"]);
    assert!(bed.fails(2, &["purge", &store, "--prefix", ""]).contains("--all"));
    bed.ok(&["purge", &store, "--prefix", "a/"]);
    assert_eq!(bed.keys(&[]), ["b/1", "c/1"]);
    let purged = bed.json(&["purge", &store, "--all", "--json"]);
    assert_eq!(purged["purged"], "everything");
    assert!(bed.keys(&[]).is_empty());
    bed.put("a/3", b"after", &["--group", "g"]);
    assert_eq!(bed.keys(&[]), ["a/3"], "what comes after a purge stays");
}

/// A URL is text: another one than was asked for would be purged, and reported as done.
#[test]
fn a_prefix_that_is_no_text_is_not_sent_to_a_proxy() {
    let bed = Bed::empty();
    let mut command = bed.command(&["purge", "--admin", "127.0.0.1:1", "--prefix"]);
    let output = command.arg(std::ffi::OsStr::from_bytes(b"http://a/\xff")).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("--prefix") && said.contains("\\xff"), "{said}");
}

/// From a file with a line's end, say, by way of the environment.
#[test]
fn a_token_that_no_header_can_have_is_named() {
    let bed = Bed::empty();
    let mut command = bed.command(&["top", "--once", "--admin", "127.0.0.1:1"]);
    let output = command.env("DAMELO_ADMIN_TOKEN", "secret\n").output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("token") && !said.contains("secret"), "{said}");
}

/// The port of the proxy itself, say, in place of its admin listener's.
#[test]
fn an_answer_that_is_no_proxy_s_names_the_address_and_what_to_do() {
    use std::io::Read;
    let bed = Bed::empty();
    let web = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = web.local_addr().unwrap().to_string();
    let asked: [&[&str]; 3] = [&["top", "--once"], &["explain", "http://a/"], &["purge", "--all"]];
    let serving = std::thread::spawn(move || {
        for _ in asked {
            let (mut client, _) = web.accept().unwrap();
            let mut request = [0; 2000];
            assert!(client.read(&mut request).unwrap() > 0);
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>";
            client.write_all(answer).unwrap();
        }
    });
    for args in asked {
        let said = bed.fails(4, &[args, &["--admin", &address]].concat());
        assert!(said.contains(&address) && said.contains("--admin"), "{args:?}: {said}");
        assert!(!said.contains("benchmark"), "{args:?}: {said}");
    }
    serving.join().unwrap();
}

#[test]
fn stat_tells_what_the_store_is() {
    let bed = Bed::new();
    bed.put("a", b"1", &[]);
    let text = bed.ok_text(&["stat", &bed.store()]);
    assert!(text.contains("volume") && text.contains("damelo_"), "{text}");
    let stat = bed.json(&["stat", &bed.store(), "--json"]);
    assert!(stat["info"]["page_bytes"].as_u64().unwrap() >= 16 << 10);
    assert!(!stat["metrics"].as_array().unwrap().is_empty());
    let stat = bed.json(&["stat", &bed.store(), "--json"]);
    assert_eq!(stat["latencies"][1]["name"], "damelo_disk_write_seconds");
    assert!(bed.ok_text(&["stat", &bed.store()]).contains("damelo_disk_read_seconds_sum"));
}

/// JSON is text, and the name of a file need not be.
#[test]
fn a_store_whose_name_is_no_text_is_told_as_json() {
    let bed = Bed::empty();
    let name = std::ffi::OsStr::from_bytes(b"s\xff.damelo");
    let told = |args: &[&str]| -> Value {
        let output = bed.command(args).arg(name).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let made = told(&["format", "--size", "64MiB", "--json"]);
    assert_eq!(made["volumes"][0], "s\u{fffd}.damelo");
    let stat = told(&["stat", "--json"]);
    assert_eq!(stat["info"]["volumes"][0]["path"], "s\u{fffd}.damelo");
}

#[test]
fn check_passes_a_good_store_and_finds_a_flipped_bit() {
    let bed = Bed::new();
    let needle = b"there is exactly one of these in the store";
    bed.put("k", needle, &[]);
    let report = bed.json(&["check", &bed.store(), "--json"]);
    assert_eq!(report["damaged_total"], 0);
    assert!(!report["segments"].as_array().unwrap().is_empty());
    flip_a_bit(Path::new(&bed.store()), needle);
    let output = bed.run(&["check", &bed.store()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("damaged"));
    let read = bed.run(&["get", &bed.store(), "k"]);
    assert!(read.stdout.is_empty(), "damaged bytes are never served: {read:?}");
}

fn flip_a_bit(path: &Path, needle: &[u8]) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.windows(needle.len()).position(|window| window == needle).unwrap();
    bytes[at + 3] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_reader_that_goes_away_is_not_an_error() {
    let bed = Bed::new();
    bed.put("k", &pattern(2_000_000), &[]);
    let output = bed.unread(&["get", &bed.store(), "k"]);
    assert!(output.status.success(), "{output:?}");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("cannot"), "{output:?}");
}

/// `damelo check ... | head -1`: 0 would say that the store is whole.
#[test]
fn a_reader_that_goes_away_does_not_change_what_was_found() {
    let bed = Bed::new();
    let needle = b"there is exactly one of these in the store";
    bed.put("k", needle, &[]);
    let store = bed.store();
    flip_a_bit(Path::new(&store), needle);
    std::fs::write(bed.path("bad.toml"), "memory = 0\n").unwrap();
    for (code, args) in [
        (1, &["check", &store][..]),
        (1, &["check", &store, "--json"]),
        (1, &["get", &store, "missing", "--json"]),
        (1, &["rm", &store, "missing", "--json"]),
        (2, &["check-config", "bad.toml", "--json"]),
        (2, &["check-config", "bad.toml", "--keys"]),
    ] {
        let output = bed.unread(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn bench_micro_prints_fifteen_objects() {
    let bed = Bed::empty();
    let text = bed.ok_text(&[
        "bench",
        "micro",
        "--objects",
        "800",
        "--size",
        "4KiB",
        "--groups",
        "8",
        "--threads",
        "2",
        "--memory",
        "4MiB",
        "--disk",
        "64MiB",
        "--verify",
        "--against",
        ".",
        "--json",
    ]);
    let benchmarks: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(benchmarks.len(), 15);
    for benchmark in &benchmarks {
        for side in ["store", "files"] {
            let side = &benchmark[side];
            assert_eq!(side["operations"], 800, "{benchmark}");
            assert!(side["operations_per_second"].as_f64().unwrap() > 0.0);
            for none in ["wrong", "missing", "failed"] {
                assert_eq!(side[none], 0, "{benchmark}");
            }
        }
        // Of every stage, creates too; and what only reads have.
        let store = &benchmark["store"];
        let number = |name: &str| store[name].as_f64().unwrap_or_else(|| panic!("{name} {store}"));
        assert!(number("p50_us") > 0.0 && number("p50_us") <= number("p99_us"), "{store}");
        assert!(number("mean_us") > 0.0 && number("p99_us") <= number("max_us"), "{store}");
        for counted in ["reads", "read_bytes", "writes", "write_bytes"] {
            number(counted);
        }
        match benchmark["stage"].as_str() {
            Some("create") => assert_eq!(store["lost"], 0, "{benchmark}"),
            Some("read") => {
                assert!(number("hit_rate") > 0.0 && number("disk_reads_per_object") > 0.0);
            }
            _ => assert!(store["hit_rate"].is_null(), "{store}"),
        }
        assert!(benchmark["ratio"]["operations_per_second"].as_f64().unwrap() > 0.0);
    }
    assert_eq!(std::fs::read_dir(bed.dir.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn bench_micro_refuses_to_overwrite() {
    let bed = Bed::new();
    bed.put("k", b"v", &[]);
    bed.fails(3, &["bench", "micro", "--path", &bed.store()]);
    assert_eq!(bed.keys(&[]), ["k"]);
}

#[test]
fn the_other_benchmarks_end() {
    let bed = Bed::empty();
    let hits = bed.ok_text(&[
        "bench",
        "hits",
        "--objects",
        "64",
        "--seconds",
        "1",
        "--threads",
        "1",
        "--json",
    ]);
    let hits: Value = serde_json::from_str(hits.trim()).unwrap();
    assert!(hits["hits_per_second"].as_f64().unwrap() > 0.0 && hits["not_from_memory"] == 0);
    let random = bed.json(&[
        "bench",
        "randread",
        "--objects",
        "4096",
        "--seconds",
        "1",
        "--memory",
        "4MiB",
        "--json",
    ]);
    assert!(random["ratio"].as_f64().unwrap() > 0.0 && random["missing"] == 0, "{random}");
    let index = bed.json(&["bench", "index", "--objects", "5000", "--memory", "4MiB", "--json"]);
    assert_eq!(index["lost"], 0);
    let opened = bed.ok_text(&["bench", "open", "--objects", "5000", "--json"]);
    for line in opened.lines() {
        let opened: Value = serde_json::from_str(line).unwrap();
        assert!(opened["first_hit_seconds"].is_number() && opened["missing"] == 0, "{opened}");
    }
    assert_eq!(opened.lines().count(), 2);
    let wrap = bed.json(&["bench", "wrap", "--disk", "64MiB", "--memory", "4MiB", "--json"]);
    assert!(wrap["write_amplification"].as_f64().unwrap() > 0.0 && wrap["wrong"] == 0, "{wrap}");
}

/// A running proxy. Killed with SIGKILL on drop.
struct RunningProxy {
    child: std::process::Child,
    stdout: std::io::BufReader<std::process::ChildStdout>,
    address: String,
}

impl RunningProxy {
    fn start(bed: &Bed) -> RunningProxy {
        let args = ["proxy", "--from", "127.0.0.1:0", "--to", "demo", "--cache", "p.damelo:64MiB"];
        let mut child = bed
            .command(&[&args[..], &["--memory", "16MiB", "--json"]].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
        let started: Value = serde_json::from_str(&line).unwrap();
        let address = started["url"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
        RunningProxy { child, stdout, address }
    }

    /// The whole response, headers and body, as text.
    fn get(&self, path: &str) -> String {
        let mut stream = std::net::TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n\r\n").unwrap();
        let mut response = Vec::new();
        std::io::Read::read_to_end(&mut stream, &mut response).unwrap();
        String::from_utf8(response).unwrap()
    }

    fn is_hit(&self, path: &str) -> bool {
        let response = self.get(path);
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        let line = response.lines().find(|line| line.to_lowercase().starts_with("cache-status:"));
        line.unwrap().contains("; hit")
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }
}

impl Drop for RunningProxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_demo_proxy_hits_ends_cleanly_and_hits_again() {
    let bed = Bed::empty();
    let mut proxy = RunningProxy::start(&bed);
    assert!(!proxy.is_hit("/img/0.svg"));
    assert!(proxy.is_hit("/img/0.svg"));
    proxy.signal("-TERM");
    assert!(proxy.child.wait().unwrap().success());
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut proxy.stdout, &mut rest).unwrap();
    assert_eq!(rest, "", "one JSON object and nothing else");
    let again = RunningProxy::start(&bed);
    assert!(again.is_hit("/img/0.svg"), "the hit is still there");
}

#[test]
fn the_proxy_s_store_is_locked_and_its_address_taken() {
    let bed = Bed::empty();
    let proxy = RunningProxy::start(&bed);
    let error = bed.fails(3, &["stat", "p.damelo"]);
    assert!(error.contains("p.damelo"), "{error}");
    let busy = ["proxy", "--from", &proxy.address, "--to", "demo", "--cache", "q.damelo:64MiB"];
    let error = bed.fails(4, &busy);
    assert!(error.contains(&proxy.address) && error.contains("--from"), "{error}");
    bed.fails(2, &["proxy", "--to", "ftp://x", "--cache", "r.damelo:64MiB"]);
}
