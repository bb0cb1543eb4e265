//! Runs the built `damelo` as a person or a script would: every command's output, its exit code,
//! and what it says when something is wrong. Each test has a directory and store of its own, so
//! that they may run at once.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

#[path = "cli/benchmarks.rs"]
mod benchmarks;
#[path = "cli/demo.rs"]
mod demo;
#[path = "cli/objects.rs"]
mod objects;
#[path = "cli/volumes.rs"]
mod volumes;

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

fn flip_a_bit(path: &Path, needle: &[u8]) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.windows(needle.len()).position(|window| window == needle).unwrap();
    bytes[at + 3] ^= 1;
    std::fs::write(path, bytes).unwrap();
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
    assert!(error.contains("try: add --without-missing"), "{error}");
    // That command has no such flag.
    assert!(!bed.fails(3, &["check", "a,b"]).contains("try: add"));
}

/// Who only looks loses nothing of a volume that is not mounted; who changes something does.
#[test]
fn a_volume_that_was_away_while_somebody_looked_has_what_it_had() {
    let bed = Bed::empty();
    let both = "a,b";
    bed.ok(&["format", both, "--size", "16MiB"]);
    std::fs::write(bed.path("value"), pattern(1_500_000)).unwrap();
    let keys: Vec<String> = (0..12).map(|n| format!("key {n}")).collect();
    keys.iter().for_each(|key| drop(bed.ok(&["put", both, key, "value"])));
    let listed = |more: &[&str]| {
        let output = bed.run(&[&["ls", both], more].concat());
        output.stdout.split(|byte| *byte == b'\n').count()
    };
    let all = listed(&[]);
    let (b, away) = (bed.path("b"), bed.path("away"));
    std::fs::rename(&b, &away).unwrap();
    let left = listed(&["--without-missing"]);
    assert!(left < all, "{left} of {all}");
    bed.ok(&["stat", both, "--without-missing"]);
    bed.run(&["get", both, "key 0", "--without-missing"]);
    std::fs::rename(&away, &b).unwrap();
    assert_eq!(listed(&[]), all);
    std::fs::rename(&b, &away).unwrap();
    let purge = ["purge", both, "--group", "other"];
    assert!(bed.fails(3, &purge).contains("try: add --without-missing"));
    bed.ok(&[&purge[..], &["--without-missing"]].concat());
    std::fs::rename(&away, &b).unwrap();
    assert_eq!(listed(&[]), left, "it is given up");
}

#[test]
fn a_store_is_opened_without_a_volume_if_that_is_asked_for() {
    let bed = Bed::empty();
    std::fs::write(bed.path("value"), pattern(1000)).unwrap();
    bed.ok(&["format", "a,b", "--size", "64MiB"]);
    std::fs::remove_file(bed.path("b")).unwrap();
    bed.ok(&["put", "a,b", "k", "value", "--without-missing"]);
    assert_eq!(bed.ok(&["get", "a,b", "k", "--without-missing"]), pattern(1000));
    let stat = bed.run(&["stat", "a,b", "--without-missing"]);
    let said = [&stat.stdout[..], &stat.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(said[0].contains("OUT OF SERVICE: the store was opened without it"), "{}", said[0]);
    assert!(said[1].contains("b: out of service"), "{}", said[1]);
    assert!(!bed.path("b").exists());
    std::fs::remove_file(bed.path("a")).unwrap();
    bed.fails(3, &["stat", "a,b", "--without-missing"]);
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
