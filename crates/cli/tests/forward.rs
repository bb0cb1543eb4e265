//! `damelo forward` as its users run it: flags, files and signals of the real program. Each test
//! has a directory of its own.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Longest wait for anything: a hang fails the test.
const PATIENCE: Duration = Duration::from_secs(30);

/// An origin that answers every request with `body`, one a connection, and keeps the heads.
struct Origin {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Origin {
    fn start(body: &'static str) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = heads.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut head = String::new();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {}
                seen.lock().unwrap().push(head.to_lowercase());
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nConnection: close\r\n\
                     Content-Length: {}\r\n\r\n{body}",
                    body.len()
                );
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        Origin { address, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn damelo(home: &TempDir, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_damelo"));
    command.arg("forward").args(args).current_dir(home.path()).stdin(Stdio::null());
    command
}

/// A running proxy; killed on drop.
struct Forward {
    child: Child,
    address: String,
    metrics: String,
}

impl Forward {
    fn start(home: &TempDir, args: &[&str]) -> Forward {
        let common = ["--json", "--from", "127.0.0.1:0", "--cache", "c:64MiB", "--memory", "16MiB"];
        let mut command = damelo(home, &[&common, args].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let started: Value = serde_json::from_str(&line).unwrap();
        let part = |name: &str| {
            let url = started[name].as_str().unwrap().strip_prefix("http://").unwrap();
            url.split('/').next().unwrap().to_owned()
        };
        Forward { address: part("proxy"), metrics: part("metrics"), child }
    }

    fn get(&self, origin: &Origin, headers: &str) -> String {
        let head = format!("GET http://{}/x HTTP/1.1\r\nHost: a\r\n{headers}", origin.address);
        exchange(&self.address, &format!("{head}Connection: close\r\n\r\n"))
    }

    fn metric(&self, name: &str) -> u64 {
        let page = exchange(&self.metrics, "GET /metrics HTTP/1.0\r\nHost: a\r\n\r\n");
        let line = page.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    }

    /// Waits until a counter is there.
    fn eventually(&self, metric: &str, count: u64) {
        let start = Instant::now();
        while self.metric(metric) != count {
            assert!(start.elapsed() < PATIENCE, "never happened: {metric} {count}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Has it read its settings again.
    fn hang_up(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a request, reads to the end of the connection.
fn exchange(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn hits_outlive_the_process_and_tunnels_pass() {
    let (home, origin) =
        (TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap(), Origin::start("o"));
    let mut proxy = Forward::start(&home, &["--workers", "1"]);
    assert!(proxy.get(&origin, "").contains("fwd=uri-miss"));
    assert!(proxy.get(&origin, "").contains("; hit"));
    let seen = &origin.heads()[0];
    assert!(seen.starts_with("get /x http/1.1\r\n") && !seen.contains("x-forwarded-for"), "{seen}");
    let head = format!("CONNECT {} HTTP/1.1\r\nHost: a\r\n\r\n", origin.address);
    let through = exchange(&proxy.address, &format!("{head}GET /t HTTP/1.1\r\nHost: b\r\n\r\n"));
    assert!(through.starts_with("HTTP/1.1 200") && through.ends_with("\r\n\r\no"), "{through}");
    assert!(origin.heads()[1].starts_with("get /t http/1.1\r\nhost: b\r\n"));
    assert_eq!(proxy.metric("damelo_proxy_tunnels_total"), 1);
    let pid = proxy.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(proxy.child.wait().unwrap().success());
    let again = Forward::start(&home, &["--x-forwarded"]);
    assert!(again.get(&origin, "").contains("; hit"));
    again.get(&origin, "Cache-Control: no-cache\r\n");
    let heads = origin.heads();
    assert!(heads.len() == 3 && heads[2].contains("x-forwarded-for: 127.0.0.1"), "{heads:?}");
}

#[test]
fn rules_of_flags_and_file_decide() {
    let home = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (open, closed) = (Origin::start("open"), Origin::start("closed"));
    let deny = format!("deny port={}", closed.address.port());
    std::fs::write(home.path().join("f.toml"), format!("[forward]\nrules = [\"{deny}\"]\n"))
        .unwrap();
    for args in [["--rule", deny.as_str()], ["--config", "f.toml"]] {
        let proxy = Forward::start(&home, &args);
        assert!(proxy.get(&open, "").ends_with("open"), "{args:?}");
        assert!(proxy.get(&closed, "").starts_with("HTTP/1.1 403"), "{args:?}");
        assert_eq!(proxy.metric("damelo_proxy_forward_denied_total"), 1);
    }
    assert!(closed.heads().is_empty(), "nothing was dialled");
    for (args, words) in [
        (["--rule", "perhaps port=1"], "perhaps"),
        (["--from", "0.0.0.0:0"], "--remote"),
        (["--users", "missing"], "missing"),
    ] {
        let output = damelo(&home, &args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(words), "{args:?}: {text}");
    }
}

/// A list of its own file, as those of domains that many share: changed and read again.
#[test]
fn a_list_of_destinations_is_read_again_at_a_reload() {
    let home = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let origin = Origin::start("open");
    let list = |text: &str| std::fs::write(home.path().join("denied"), text).unwrap();
    list("# none of these\n.ads.test\n");
    let file = "[forward]\nrules = [\"deny to=@denied\", \"allow\"]\n";
    std::fs::write(home.path().join("f.toml"), file).unwrap();
    let proxy = Forward::start(&home, &["--config", "f.toml"]);
    assert!(proxy.get(&origin, "").ends_with("open"));
    list("127.0.0.0/8\n");
    assert!(proxy.get(&origin, "").ends_with("open"), "it is not read before");
    proxy.hang_up();
    proxy.eventually("damelo_proxy_reloads_total", 1);
    assert!(proxy.get(&origin, "").starts_with("HTTP/1.1 403"));
    list("127.0.0.0/80\n");
    proxy.hang_up();
    proxy.eventually("damelo_proxy_reload_errors_total", 1);
    assert!(proxy.get(&origin, "").starts_with("HTTP/1.1 403"), "the rules stay as they were");
    let output = damelo(&home, &["--config", "f.toml"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("denied`: line 1: `127.0.0.0/80`"), "{text}");
}

/// As when the file changes by itself: its other lines hold, and nothing else waits for it.
#[test]
fn a_bad_line_of_users_keeps_no_reload_from_its_rules() {
    let home = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let origin = Origin::start("open");
    let user = hashed(&home, "ann", "open sesame");
    std::fs::write(home.path().join("users"), &user).unwrap();
    let file = |more: &str| {
        let text = format!("[forward]\nusers = \"users\"\nrules = [{more}\"allow\"]\n");
        std::fs::write(home.path().join("f.toml"), text).unwrap();
    };
    file("");
    let proxy = Forward::start(&home, &["--config", "f.toml"]);
    let reload = |counted: &str, count: u64| {
        proxy.hang_up();
        proxy.eventually(counted, count);
    };
    assert!(proxy.get(&origin, ANN).ends_with("open"));
    std::fs::write(home.path().join("users"), [&user[..], b"no user\n"].concat()).unwrap();
    file("\"deny to=127.0.0.0/8\", ");
    reload("damelo_proxy_reloads_total", 1);
    assert!(
        proxy.get(&origin, ANN).starts_with("HTTP/1.1 403"),
        "allowed in, and held to the rules"
    );
    file("\"deny to=127.0.0.0/80\", ");
    reload("damelo_proxy_reload_errors_total", 1);
    // What a forward proxy cannot do is as wrong later as at the start.
    file("");
    let text = std::fs::read_to_string(home.path().join("f.toml")).unwrap();
    for wrong in ["[forwarded]\ntrust_client = true\n", "[[rule]]\nto = \"http://a.test\"\n"] {
        std::fs::write(home.path().join("f.toml"), format!("{text}{wrong}")).unwrap();
        let before = proxy.metric("damelo_proxy_reload_errors_total");
        reload("damelo_proxy_reload_errors_total", before + 1);
    }
    let output = damelo(&home, &["--config", "f.toml"]).output().unwrap();
    assert!(!output.status.success(), "at the start every line is looked at");
}

/// Ann's credentials, her password being `open sesame`.
const ANN: &str = "Proxy-Authorization: Basic YW5uOm9wZW4gc2VzYW1l\r\n";

/// The line of a user.
fn hashed(home: &TempDir, name: &str, password: &str) -> Vec<u8> {
    let mut hashing = damelo(home, &["--hash-password", name]);
    let mut child = hashing.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(format!("{password}\n").as_bytes()).unwrap();
    child.wait_with_output().unwrap().stdout
}

#[test]
fn a_password_that_was_hashed_opens() {
    let (home, origin) =
        (TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap(), Origin::start("o"));
    let line = hashed(&home, "ann", "open sesame");
    assert!(line.starts_with(b"ann:$argon2id$"));
    std::fs::write(home.path().join("users"), line).unwrap();
    let proxy = Forward::start(&home, &["--users", "users"]);
    assert!(proxy.get(&origin, "").starts_with("HTTP/1.1 407"));
    assert!(proxy.get(&origin, ANN).starts_with("HTTP/1.1 200"));
    assert!(!origin.heads()[0].contains("proxy-authorization"));
    assert_eq!(proxy.metric("damelo_proxy_forward_unauthorized_total"), 1);
}

/// A hash of its first bytes would let nobody in.
#[test]
fn a_password_that_is_too_long_is_not_cut() {
    let home = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (bytes, code) in [(512, 0), (513, 2)] {
        let mut hashing = damelo(&home, &["--hash-password", "ann"]);
        let hashing = hashing.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = hashing.spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(&[vec![b'x'; bytes], b"\r\n".to_vec()].concat())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{bytes}: {output:?}");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(told.contains("longer than 512 bytes"), bytes > 512, "{told}");
    }
}

#[test]
fn an_origin_of_the_command_line_is_not_ignored() {
    let home = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let args = ["--from", "127.0.0.1:0", "--cache", "c:1MiB", "--set", "to = http://127.0.0.1:1"];
    let output = damelo(&home, &args).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("--set to="), "{told}");
}

#[test]
fn times_end_what_hangs() {
    let home = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // Accepts, and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let args = [
        "--origin-header-timeout",
        "0.3",
        "--tunnel-idle-timeout",
        "0.3",
        "--connect-timeout",
        "20",
    ];
    let proxy = Forward::start(&home, &args);
    let get = format!("GET http://{address}/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let answer = exchange(&proxy.address, &get);
    assert!(answer.starts_with("HTTP/1.1 504") && answer.contains("origin-timeout"), "{answer}");
    let mut tunnel = TcpStream::connect(&proxy.address).unwrap();
    tunnel.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(tunnel, "CONNECT {address} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let end = tunnel.read_to_end(&mut answer).map_err(|error| error.kind());
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    // Nobody is to take it for the end of what the origin sends.
    assert_eq!(end, Err(ErrorKind::ConnectionReset));
    assert_eq!(proxy.metric("damelo_proxy_tunnel_timeouts_total"), 1);
}
