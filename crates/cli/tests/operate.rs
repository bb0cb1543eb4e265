//! The proxy command as an operator runs it: configuration file, signals, supervisors. Each test
//! has a directory of its own.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

#[path = "operate/check_config.rs"]
mod check_config;
#[path = "operate/origins.rs"]
mod origins;
#[path = "operate/supervisor.rs"]
mod supervisor;
#[path = "operate/top.rs"]
mod top;

use std::io::{BufRead, BufReader, PipeWriter, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Longest wait for anything: a hang fails the test.
const PATIENCE: Duration = Duration::from_secs(30);

struct Bed(TempDir);

impl Bed {
    fn new() -> Bed {
        Bed(TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_damelo"));
        command.args(args).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.path().join(name)).unwrap_or_default()
    }

    /// Runs, expects this exit code, returns standard output and error together.
    fn says(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        text
    }
}

/// A running proxy; killed on drop. Its standard error goes to `stderr` in the bed.
struct Running {
    child: Child,
    url: String,
    admin: String,
}

impl Running {
    fn start(bed: &Bed, args: &[&str]) -> Running {
        let command = bed.command(&[&["proxy", "--json"], args].concat());
        Running::of(bed, command)
    }

    fn of(bed: &Bed, mut command: Command) -> Running {
        let stderr = std::fs::File::create(bed.0.path().join("stderr")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let started: Value = serde_json::from_str(&line)
            .unwrap_or_else(|_| panic!("{line}: {}", bed.read("stderr")));
        let part = |name: &str| {
            let url = started[name].as_str().unwrap().strip_prefix("http://").unwrap();
            url.split('/').next().unwrap().to_owned()
        };
        Running { url: part("url"), admin: part("metrics"), child }
    }

    fn get(&self, path: &str) -> String {
        ask(&self.url, path)
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ask(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let start = Instant::now();
    while !check() {
        assert!(start.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

const FILE: &str = "from = \"127.0.0.1:0\"\nto = \"demo\"\ncache = \"c.damelo:64MiB\"\n\
                    memory = \"16MiB\"\nworkers = 1\n";

#[test]
fn flags_override_the_file() {
    let bed = Bed::new();
    bed.write("p.toml", &format!("{FILE}name = \"filed\"\n"));
    let proxy = Running::start(&bed, &["--config", "p.toml", "--set", "name=flagged"]);
    assert!(proxy.get("/hello").to_lowercase().contains("cache-status: flagged"));
    assert!(bed.says(2, &["proxy", "--to", "demo", "--set", "nmae=x"]).contains("`name`"));
}

/// The directory of the volume as well, as where nothing is mounted.
#[test]
fn a_proxy_starts_without_a_disk_of_its_cache_and_says_so() {
    let bed = Bed::new();
    let cache = "cache = \"c.damelo:64MiB,second/c.damelo:64MiB\"";
    bed.write("p.toml", &FILE.replace("cache = \"c.damelo:64MiB\"", cache));
    let second = bed.0.path().join("second");
    std::fs::create_dir(&second).unwrap();
    let is_stored = |proxy: &Running| {
        eventually("it is stored", || proxy.get("/hello").to_lowercase().contains("damelo; hit"));
    };
    let proxy = Running::start(&bed, &["--config", "p.toml"]);
    is_stored(&proxy);
    drop(proxy);
    std::fs::rename(&second, bed.0.path().join("away")).unwrap();
    bed.says(0, &["check-config", "p.toml"]);
    let proxy = Running::start(&bed, &["--config", "p.toml"]);
    is_stored(&proxy);
    eventually("it is said", || bed.read("stderr").contains("second/c.damelo: out of service"));
    assert!(ask(&proxy.admin, "/metrics").contains("damelo_volumes_out 1\n"));
    assert!(!second.exists());
    drop(proxy);
    let needs_all = "without_missing=false";
    let error = bed.says(3, &["proxy", "--config", "p.toml", "--set", needs_all]);
    assert!(error.contains("second/c.damelo is missing"), "{error}");
    std::fs::rename(bed.0.path().join("away"), &second).unwrap();
    let proxy = Running::start(&bed, &["--config", "p.toml", "--set", needs_all]);
    is_stored(&proxy);
    assert!(ask(&proxy.admin, "/metrics").contains("damelo_volumes_out 0\n"));
}

#[test]
fn sighup_reloads_and_names_what_it_cannot_change() {
    let bed = Bed::new();
    bed.write("p.toml", FILE);
    let proxy = Running::start(&bed, &["--config", "p.toml"]);
    assert!(proxy.get("/style.css").contains("fwd=uri-miss"));
    let rule = "[[rule]]\npath = \"/style.css\"\npass = true\n";
    bed.write("p.toml", &format!("{}{rule}", FILE.replace("workers = 1", "workers = 2")));
    proxy.signal("-HUP");
    eventually("the rule counts", || proxy.get("/style.css").contains("detail=rule"));
    eventually("the restart is asked for", || bed.read("stderr").contains("`workers`"));
    bed.write("p.toml", "memry = 1\n");
    proxy.signal("-HUP");
    eventually("the mistake is named", || bed.read("stderr").contains("line 1"));
    assert!(proxy.get("/style.css").contains("detail=rule"), "nothing changed");
}

#[test]
fn what_would_fail_the_next_start_fails_the_reload() {
    let bed = Bed::new();
    bed.write("p.toml", FILE);
    let proxy = Running::start(&bed, &["--config", "p.toml"]);
    let pending = |count: u8| format!("damelo_proxy_restart_pending {count}\n");
    let metrics = || ask(&proxy.admin, "/metrics");
    assert!(metrics().contains(&pending(0)));
    let rule = "[[rule]]\npath = \"/style.css\"\npass = true\n";
    for (count, wrong) in [
        "[tls]\ncertificates = [\"none.pem,none.key\"]\n",
        "[upstream]\nauthorities = \"none.pem\"\n",
        "[log]\nto = \"no/directory/access.log\"\n",
    ]
    .iter()
    .enumerate()
    {
        bed.write("p.toml", &format!("{FILE}{wrong}{rule}"));
        proxy.signal("-HUP");
        let failed = format!("damelo_proxy_reload_errors_total {}\n", count + 1);
        eventually(wrong, || metrics().contains(&failed));
        assert!(bed.read("stderr").contains("no"), "{}", bed.read("stderr"));
        assert!(!proxy.get("/style.css").contains("detail=rule"), "nothing changed");
    }
    bed.write("p.toml", &FILE.replace("workers = 1", "workers = 2").replace("16MiB", "17MiB"));
    proxy.signal("-HUP");
    eventually("both wait", || metrics().contains(&pending(2)));
    bed.write("p.toml", FILE);
    proxy.signal("-HUP");
    eventually("none does", || metrics().contains(&pending(0)));
}

/// The first line of standard output is all that tells when it serves, so a SIGHUP may come while
/// it is being written. A pipe that is full holds it there.
#[test]
fn a_reload_that_is_asked_for_while_it_starts_is_done() {
    let bed = Bed::new();
    let socket = bed.0.path().join("s");
    bed.write("p.toml", &format!("listen = [\"unix:s\"]\n{FILE}"));
    let (mut reader, writer) = std::io::pipe().unwrap();
    fill(&writer);
    let stderr = std::fs::File::create(bed.0.path().join("stderr")).unwrap();
    let mut command = bed.command(&["proxy", "--json", "--config", "p.toml"]);
    let mut proxy = command.stdout(writer).stderr(stderr).spawn().unwrap();
    drop(command);
    eventually("it serves", || UnixStream::connect(&socket).is_ok());
    let signal = |signal| {
        // SAFETY: a signal to a child that was not waited for.
        unsafe { libc::kill(proxy.id().cast_signed(), signal) }
    };
    signal(libc::SIGHUP);
    // By now the signal was taken: of two that are pending the one with the lower number comes
    // first.
    signal(libc::SIGUSR1);
    eventually("it was taken", || !is_pending(proxy.id(), libc::SIGUSR1));
    assert!(!bed.read("stderr").contains("settings reloaded"), "it does not serve yet");
    std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    eventually("it is reloaded", || bed.read("stderr").contains("settings reloaded"));
    signal(libc::SIGTERM);
    assert!(proxy.wait().unwrap().success());
}

/// As with a file on a mount that hangs.
#[test]
fn a_reload_that_hangs_does_not_keep_the_process_from_its_end() {
    let bed = Bed::new();
    bed.write("p.toml", FILE);
    let mut proxy = Running::start(&bed, &["--config", "p.toml"]);
    let file = bed.0.path().join("p.toml");
    std::fs::remove_file(&file).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    proxy.signal("-HUP");
    let mut writer = None;
    eventually("the file is being read", || {
        // Succeeds once there is a reader, who then waits for what is written.
        let mut options = std::fs::OpenOptions::new();
        writer = options.write(true).custom_flags(libc::O_NONBLOCK).open(&file).ok();
        writer.is_some()
    });
    proxy.signal("-HUP");
    proxy.signal("-USR1");
    proxy.signal("-TERM");
    let mut ended = None;
    eventually("it ends", || {
        ended = proxy.child.try_wait().unwrap();
        ended.is_some()
    });
    assert!(ended.unwrap().success(), "{}", bed.read("stderr"));
}

fn fill(pipe: &PipeWriter) {
    let set = |flags: libc::c_int| {
        // SAFETY: fcntl sets a flag of a descriptor that is open.
        assert!(unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, flags) } >= 0);
    };
    set(libc::O_NONBLOCK);
    let mut pipe = pipe;
    while pipe.write(&[0]).is_ok() {}
    set(0);
}

/// Whether the signal was sent to the process and nobody has taken it yet.
fn is_pending(process: u32, signal: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let set = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
    u64::from_str_radix(set.trim(), 16).unwrap() >> (signal - 1) & 1 == 1
}

#[test]
fn sigusr1_opens_the_log_again() {
    let bed = Bed::new();
    bed.write("p.toml", &format!("{FILE}[log]\nto = \"access.log\"\nformat = \"json\"\n"));
    let mut proxy = Running::start(&bed, &["--config", "p.toml"]);
    proxy.get("/hello");
    eventually("a line is written", || bed.read("access.log").contains("\"/hello\""));
    std::fs::rename(bed.0.path().join("access.log"), bed.0.path().join("old.log")).unwrap();
    proxy.signal("-USR1");
    eventually("the file is there again", || bed.0.path().join("access.log").exists());
    proxy.get("/style.css");
    proxy.signal("-TERM");
    assert!(proxy.child.wait().unwrap().success());
    assert!(bed.read("access.log").contains("/style.css"));
    assert_eq!(bed.read("old.log").lines().count(), 1);
    assert!(!proxy.admin.is_empty());
}

#[test]
fn a_bad_origin_is_refused_before_a_cache_file_is_made() {
    let bed = Bed::new();
    for origin in ["ftp://x", "http://a/b", "nonsense"] {
        bed.says(2, &["proxy", "--to", origin, "--cache", "made.damelo:64MiB"]);
        assert!(!bed.0.path().join("made.damelo").exists(), "{origin}");
    }
}

#[test]
fn purge_asks_a_running_proxy_and_holds_after_kill_9() {
    let bed = Bed::new();
    bed.write("p.toml", FILE);
    let hit = |proxy: &Running, path: &str| proxy.get(path).contains("; hit");
    let mut proxy = Running::start(&bed, &["--config", "p.toml"]);
    for path in ["/style.css", "/img/0.svg", "/hello"] {
        proxy.get(path);
        assert!(hit(&proxy, path), "{path}");
    }
    let said = bed.says(0, &["purge", "--admin", &proxy.admin, "--url", "http://demo/style.css"]);
    assert!(said.contains("1 response of 1 URL removed"), "{said}");
    let said =
        bed.says(0, &["purge", "--admin", &proxy.admin, "--prefix", "http://demo/img/", "--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["marks"], 1);
    for args in [&["purge", "--url", "nonsense"][..], &["explain", "nonsense"]] {
        let said = bed.says(2, &[args, &["--admin", &proxy.admin]].concat());
        assert!(said.contains("`nonsense` is not a URL"), "{said}");
    }
    let url = "http://ann:secret@demo/hello";
    for args in [["purge", "--url", url].as_slice(), &["explain", url]] {
        let said = bed.says(2, &[args, &["--admin", &proxy.admin]].concat());
        assert!(said.contains("`ann:secret@demo` in"), "{said}");
    }
    proxy.child.kill().unwrap();
    proxy.child.wait().unwrap();
    proxy = Running::start(&bed, &["--config", "p.toml"]);
    eventually("it is ready", || ask(&proxy.admin, "/readyz").contains("ready\n"));
    assert!(hit(&proxy, "/hello"), "the flush for the purge brought this to disk, too");
    assert!(!hit(&proxy, "/img/0.svg") && !hit(&proxy, "/style.css"));
    let admin = proxy.admin.clone();
    drop(proxy);
    assert!(bed.says(4, &["purge", "--admin", &admin, "--all"]).contains("--admin"));
    bed.says(2, &["purge", "--all"]);
    let said = bed.says(2, &["purge", "http://demo/a", "--admin", &admin]);
    assert!(said.contains("--url http://demo/a"), "{said}");
    bed.says(2, &["purge", "c.damelo", "--all", "--soft"]);
    bed.says(2, &["purge", "c.damelo", "--tag", "x"]);
}

#[test]
fn explain_says_what_is_wrong_with_a_header() {
    let said = Bed::new().says(2, &["explain", "http://a.test/", "--header", "Cookie"]);
    assert!(said.contains("--header") && said.contains("write NAME: VALUE"), "{said}");
}

#[test]
fn explain_tells_what_the_proxy_knows() {
    let bed = Bed::new();
    let rule = "[[rule]]\nname = \"pictures\"\nprefix = \"/img/\"\nttl = \"1h\"\n";
    bed.write("p.toml", &format!("{FILE}{rule}"));
    let proxy = Running::start(&bed, &["--config", "p.toml"]);
    for path in ["/img/0.svg", "/hello", "/api/time"] {
        proxy.get(path);
        proxy.get(path);
    }
    let explain = |url: &str| {
        let said = bed.says(0, &["explain", url, "--admin", &proxy.admin, "--json"]);
        serde_json::from_str::<Value>(&said).unwrap()
    };
    let image = explain("http://demo/img/0.svg");
    let stored = &image["stored"][0];
    assert_eq!((&stored["status"], &stored["lies"]), (&Value::from(200), &Value::from("memory")));
    // An hour from its arrival, by the rule, so with the time that it took to come.
    let freshness = |name: &str| stored["freshness"][name].as_f64().expect("a number");
    let ttl_s = freshness("lifetime_s") - freshness("age_when_it_came_s");
    assert!((ttl_s - 3600.0).abs() < 0.0005, "{ttl_s}");
    assert_eq!(stored["purged"], "untouched");
    assert_eq!(explain("http://demo/api/time")["not_stored"][0]["reason"], "no-store");
    assert_eq!(explain("http://demo/api/time")["stored"], Value::Array(Vec::new()));
    assert!(
        explain("http://demo/hello")["vary"]["variants"].as_u64() >= Some(1),
        "{}",
        explain("http://demo/hello")
    );
    bed.says(0, &["purge", "--admin", &proxy.admin, "--prefix", "http://demo/img/", "--soft"]);
    let text = bed.says(0, &["explain", "http://demo/img/0.svg", "--admin", &proxy.admin]);
    assert!(text.contains("stale by a soft purge"), "{text}");
    assert!(text.contains("a purge of the prefix http://demo/img/ covers it"), "{text}");
}

#[test]
fn the_process_ends_by_its_deadline_and_drains_before() {
    let bed = Bed::new();
    // An origin that answers when the script says so.
    let origin = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("http://{}", origin.local_addr().unwrap());
    bed.write("p.toml", &FILE.replace("demo", &to));
    let start = |stop: &str| {
        let proxy = Running::start(&bed, &["--config", "p.toml", "--set", stop]);
        let mut client = TcpStream::connect(&proxy.url).unwrap();
        write!(client, "GET /{stop} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        // From here on the request is under way. An answer before it would end the connection.
        let (mut asked, _) = origin.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            asked.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        (proxy, client, asked)
    };
    let (mut proxy, mut client, mut asked) = start("timeouts.drain=30s");
    proxy.signal("-TERM");
    eventually("it is not ready while it drains", || {
        ask(&proxy.admin, "/readyz").contains("HTTP/1.1 503")
    });
    asked.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("done"), "{answer}");
    assert!(proxy.child.wait().unwrap().success());

    let file = bed.read("p.toml");
    bed.write("p.toml", &format!("{file}[timeouts]\ndrain = \"30s\"\n"));
    let (mut proxy, _client, _asked) = start("name=slow");
    bed.write("p.toml", &format!("{file}[timeouts]\ndrain = \"200ms\"\nstop = \"200ms\"\n"));
    proxy.signal("-HUP");
    eventually("it is reloaded", || bed.read("stderr").contains("settings reloaded"));
    proxy.signal("-TERM");
    // It would wait for the answer for 30 s. Whether the deadline comes before the store is closed
    // is a matter of chance.
    let told = Instant::now();
    let code = proxy.child.wait().unwrap().code();
    assert!(told.elapsed() < Duration::from_secs(15), "{:?}", told.elapsed());
    let is_late = bed.read("stderr").contains("ending as after a crash");
    assert_eq!(code, Some(if is_late { 4 } else { 0 }));
}

/// A balancer that asks `/readyz` has time to notice before a connection is refused.
#[test]
fn a_proxy_that_leaves_takes_connections_while_it_says_that_it_is_not_ready() {
    let bed = Bed::new();
    bed.write("p.toml", FILE);
    let start = |leave| Running::start(&bed, &["--config", "p.toml", "--set", leave]);
    let mut proxy = start("timeouts.leave=50s");
    eventually("it is ready", || ask(&proxy.admin, "/readyz").contains("HTTP/1.1 200"));
    proxy.signal("-TERM");
    eventually("it is not ready", || {
        let told = ask(&proxy.admin, "/readyz");
        told.contains("HTTP/1.1 503") && told.contains("leaving")
    });
    assert!(proxy.get("/hello").starts_with("HTTP/1.1 200"), "it still takes connections");
    let mut ended = None;
    eventually("a second signal ends it", || {
        proxy.signal("-TERM");
        ended = proxy.child.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().code(), Some(128 + libc::SIGTERM));

    let mut proxy = start("timeouts.leave=50ms");
    proxy.signal("-TERM");
    assert!(proxy.child.wait().unwrap().success(), "{}", bed.read("stderr"));
    assert!(bed.read("stderr").contains("leaving: connections are taken for 0.05 s more"));
}

#[test]
fn settings_that_contradict_each_other_are_refused_at_start_and_at_a_reload() {
    let bed = Bed::new();
    let words = "`timeouts.drain`: it is longer than `timeouts.stop`, which cuts it off";
    bed.write("p.toml", &format!("{FILE}[timeouts]\ndrain = \"61s\"\n"));
    for command in [&["check-config", "p.toml"][..], &["proxy", "--config", "p.toml"]] {
        let said = bed.says(2, command);
        assert!(said.contains(words), "{said}");
    }
    let twice = "`listen`: `from` listens on that address, too";
    let listen = ["from=127.0.0.1:1", "listen=tcp:127.0.0.1:1"];
    let said = bed.says(2, &["proxy", "--to", "demo", "--set", listen[0], "--set", listen[1]]);
    assert!(said.contains(twice), "{said}");
    assert!(!bed.0.path().join("c.damelo").exists(), "no cache file is made");

    bed.write("p.toml", FILE);
    let proxy = Running::start(&bed, &["--config", "p.toml"]);
    bed.write("p.toml", &format!("{FILE}[timeouts]\nstop = \"1s\"\n"));
    proxy.signal("-HUP");
    eventually("it is refused", || bed.read("stderr").contains("the settings stay as they were"));
    assert!(bed.read("stderr").contains(words), "{}", bed.read("stderr"));
    assert!(ask(&proxy.admin, "/metrics").contains("damelo_proxy_reload_failed 1"));
    bed.write("p.toml", &format!("{FILE}[limits]\nheader_bytes_max = \"16KiB\"\n"));
    proxy.signal("-HUP");
    eventually("it is named", || bed.read("stderr").contains("`limits.uri_bytes_max`, 32KiB, is"));
    assert!(!bed.read("stderr").contains("cannot run"), "it runs: {}", bed.read("stderr"));
}

/// Whoever reads a log from standard output parses each line.
#[test]
fn a_log_on_standard_output_is_all_that_is_there() {
    let bed = Bed::new();
    bed.write("p.toml", &format!("{FILE}[log]\nto = \"stdout\"\nformat = \"json\"\n"));
    let (stdout, stderr) = ("stdout", "stderr");
    let file = |name: &str| std::fs::File::create(bed.0.path().join(name)).unwrap();
    let mut command = bed.command(&["proxy", "--config", "p.toml"]);
    let mut proxy = command.stdout(file(stdout)).stderr(file(stderr)).spawn().unwrap();
    let asked = |name: &str| {
        let said = bed.read(name);
        let url = said.lines().find_map(|line| line.strip_prefix("look at  http://"));
        url.map(|url| ask(url.trim_end_matches('/'), "/hello"))
    };
    eventually("it starts", || asked(stderr).or_else(|| asked(stdout)).is_some());
    // SAFETY: a signal to a child that was not waited for.
    unsafe { libc::kill(proxy.id().cast_signed(), libc::SIGTERM) };
    assert!(proxy.wait().unwrap().success());
    let log = bed.read(stdout);
    assert!(log.contains("/hello"), "{log}");
    for line in log.lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
    }
}

#[test]
fn a_log_that_nobody_reads_is_refused_before_a_cache_file_is_made() {
    let bed = Bed::new();
    let log = bed.0.path().join("log");
    assert!(Command::new("mkfifo").arg(&log).status().unwrap().success());
    bed.write("p.toml", &format!("{FILE}[log]\nto = \"log\"\nformat = \"json\"\n"));
    let said = bed.says(4, &["proxy", "--config", "p.toml"]);
    assert!(said.contains("nobody reads this FIFO"), "{said}");
    assert!(!bed.0.path().join("c.damelo").exists());

    let mut options = std::fs::OpenOptions::new();
    let mut reader = options.read(true).custom_flags(libc::O_NONBLOCK).open(log).unwrap();
    let seen = std::thread::spawn(move || {
        let patience = i32::try_from(PATIENCE.as_millis()).unwrap();
        let mut waits = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor, which is open, in a value that lives through the call.
        assert_eq!(unsafe { libc::poll(&raw mut waits, 1, patience) }, 1);
        let mut bytes = [0; 4096];
        let length = reader.read(&mut bytes).unwrap();
        (waits.revents, String::from_utf8(bytes[..length].to_vec()).unwrap())
    });
    let proxy = Running::start(&bed, &["--config", "p.toml"]);
    proxy.get("/hello");
    let (first, line) = seen.join().unwrap();
    assert_eq!(first, libc::POLLIN, "it sees no end before");
    assert!(line.contains("/hello"), "{line}");
}

/// Its lines would be appended behind the store, within the size that the system sees.
#[test]
fn a_log_that_is_the_cache_is_refused() {
    let bed = Bed::new();
    bed.write("p.toml", &format!("{FILE}[log]\nto = \"c.damelo\"\n"));
    for command in [&["check-config", "p.toml"][..], &["proxy", "--config", "p.toml"]] {
        let said = bed.says(2, command);
        assert!(said.contains("`log.to`: `c.damelo` is the cache"), "{said}");
    }
    assert!(!bed.0.path().join("c.damelo").exists(), "no file is made");
    bed.write("store", "");
    std::os::unix::fs::symlink("store", bed.0.path().join("log")).unwrap();
    let args = ["proxy", "--to", "demo", "--cache", "store", "--log", "log"];
    assert!(bed.says(2, &args).contains("`store` is the cache"));
}

#[test]
fn an_address_that_is_taken_is_refused_before_a_cache_file_is_made() {
    let bed = Bed::new();
    bed.write("p.toml", FILE);
    let proxy = Running::start(&bed, &["--config", "p.toml"]);
    let args = ["proxy", "--from", &proxy.url, "--to", "demo", "--cache", "other.damelo:64MiB"];
    assert!(bed.says(4, &args).contains(&proxy.url));
    assert!(!bed.0.path().join("other.damelo").exists());
    for (key, code) in [("listen=unix:none/socket", 4), ("log.to=none/log", 4)] {
        let args = ["proxy", "--from", "127.0.0.1:0", "--to", "demo", "--set", key];
        let said = bed.says(code, &[&args[..], &["--cache", "other.damelo:64MiB"]].concat());
        assert!(said.contains("none/"), "{key}: {said}");
        assert!(!bed.0.path().join("other.damelo").exists(), "{key}");
    }
}

#[test]
fn a_cache_that_is_something_else_is_left_alone() {
    let bed = Bed::new();
    bed.write("notes", "mine\n");
    let notes = std::fs::File::options().write(true).open(bed.0.path().join("notes")).unwrap();
    notes.set_len(64 << 20).unwrap();
    let args = ["proxy", "--from", "127.0.0.1:0", "--to", "demo", "--cache", "notes"];
    let said = bed.says(3, &args);
    assert!(said.contains("damelo format notes --size") && said.contains("remove"), "{said}");
    assert!(bed.read("notes").starts_with("mine"));
}

fn in_repository(path: &str) -> String {
    format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_packaged_settings_are_good() {
    let bed = Bed::new();
    for name in ["damelo.toml", "container.toml"] {
        let path = in_repository(&format!("packaging/{name}"));
        // The directories are those of the package.
        let text = std::fs::read_to_string(path).unwrap().replace("/var/cache/damelo/", "");
        bed.write(name, &text.replace("/var/log/damelo/", ""));
        bed.says(0, &["check-config", name]);
    }
}

/// A small system has a shell, but no `/bin/kill` (procps).
#[test]
fn the_packaged_unit_runs_damelo_and_the_shell_alone() {
    let unit = std::fs::read_to_string(in_repository("packaging/damelo.service")).unwrap();
    let commands: Vec<&str> = unit.lines().filter(|line| line.starts_with("Exec")).collect();
    assert_eq!(commands.len(), 4, "{commands:?}");
    let operations = std::fs::read_to_string(in_repository("docs/operations.md")).unwrap();
    let alone = format!("ExecReload=\n{}\n", commands[3]);
    assert!(operations.contains(&alone), "credentials of systemd: the same, without the check");
    for command in commands {
        let program = command.split_once('=').unwrap().1.split(' ').next().unwrap();
        assert!(["/usr/local/bin/damelo", "/bin/sh"].contains(&program), "{command}");
    }
}

/// systemd before 252, of Debian 11 and RHEL 8, knows no `--kill-whom`; later ones take both.
#[test]
fn the_packaged_rotation_speaks_to_any_systemd() {
    let rotation = std::fs::read_to_string(in_repository("packaging/damelo.logrotate")).unwrap();
    let told = "systemctl kill --signal=USR1 --kill-who=main damelo.service";
    assert!(rotation.lines().any(|line| line.trim() == told), "{rotation}");
}

#[test]
fn purges_that_were_acknowledged_hold_whenever_the_process_is_killed() {
    let bed = Bed::new();
    bed.write("p.toml", FILE);
    let ready = |proxy: &Running| {
        eventually("it is ready", || ask(&proxy.admin, "/readyz").contains("ready\n"));
    };
    let mut random = fastrand::Rng::with_seed(7);
    let mut proxy = Running::start(&bed, &["--config", "p.toml"]);
    let mut acknowledged_in_all = 0;
    for round in 0..8 {
        ready(&proxy);
        let url = |n: usize| format!("/img/{round}.svg?{n}x");
        let urls: Vec<String> = (0..30).map(url).collect();
        for path in urls.iter().map(String::as_str).chain(["/style.css"]) {
            proxy.get(path);
            assert!(proxy.get(path).contains("; hit"), "{path}");
        }
        let (admin, asked) = (proxy.admin.clone(), urls.clone());
        let (told, acknowledgements) = std::sync::mpsc::channel();
        let purging = std::thread::spawn(move || {
            let acknowledged = |url: &&String| {
                let body = format!("{{\"prefix\":\"http://demo{url}\"}}");
                let Ok(mut stream) = TcpStream::connect(&admin) else { return false };
                let sent = write!(
                    stream,
                    "POST /purge HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                     Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                let mut answer = String::new();
                let read = sent.and_then(|()| stream.read_to_string(&mut answer).map(drop));
                read.is_ok() && answer.contains("\"marks\":1")
            };
            let tell = |_: &&String| told.send(()).unwrap();
            asked.iter().take_while(acknowledged).inspect(tell).count()
        });
        // At any moment of a purge, after some that were acknowledged.
        for _ in 0..random.usize(0..6) {
            acknowledgements.recv_timeout(PATIENCE).unwrap();
        }
        std::thread::sleep(Duration::from_millis(random.u64(0..20)));
        proxy.child.kill().unwrap();
        proxy.child.wait().unwrap();
        let acknowledged = purging.join().unwrap();
        acknowledged_in_all += acknowledged;
        proxy = Running::start(&bed, &["--config", "p.toml"]);
        ready(&proxy);
        for (n, url) in urls.iter().enumerate() {
            let hit = proxy.get(url).contains("; hit");
            assert!(!hit || n >= acknowledged, "round {round}: {url} is back");
        }
        if acknowledged > 0 {
            // Each purge flushes the store, and a crash in one must not cost all the rest.
            assert!(proxy.get("/style.css").contains("; hit"), "round {round}");
        }
    }
    assert!(acknowledged_in_all > 0, "the test tests nothing");
}
