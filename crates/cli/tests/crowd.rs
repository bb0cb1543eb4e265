//! Thousands of clients at once on one object that is not there: one request to the origin, and the
//! right bytes for everybody.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const CLIENTS: usize = 2000;
const BODY_BYTES: usize = 48 << 10;
/// Longest wait for anything: a hang fails the test.
const PATIENCE: Duration = Duration::from_secs(60);

/// As many clients as this process may have sockets for, and the proxy, which has the same limit
/// and keeps a third of it for origins.
fn clients() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the first call fills a struct of ours, the second reads it.
    let raised = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit)
    };
    assert_eq!(raised, 0);
    CLIENTS.min(usize::try_from(limit.rlim_cur / 2).unwrap_or(CLIENTS).saturating_sub(100))
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn requests_seen(metrics: &str) -> usize {
    let mut stream = connect(metrics);
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: a\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix("damelo_proxy_requests_total "));
    line.unwrap().parse().unwrap()
}

#[test]
fn thousands_of_clients_make_one_origin_request() {
    let home = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("http://{}", origin.local_addr().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_damelo"));
    command.args(["proxy", "--json", "--from", "127.0.0.1:0", "--to", &to]);
    command.args(["--cache", "c:64MiB", "--memory", "16MiB", "--set", "timeouts.collapse=5m"]);
    command.current_dir(home.path()).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let started: Value = serde_json::from_str(&line).unwrap();
    let part = |name: &str| started[name].as_str().unwrap()["http://".len()..].to_owned();
    let (address, metrics) = (part("url"), part("metrics").replace("/metrics", ""));

    let ask = |_| {
        let mut stream = connect(&address);
        stream.write_all(b"GET /o HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        stream
    };
    let count = clients();
    let asked: Vec<TcpStream> = (0..count).map(ask).collect();
    let (mut fetching, _) = origin.accept().unwrap();
    let begun = Instant::now();
    while requests_seen(&metrics) < count {
        assert!(begun.elapsed() < PATIENCE, "not all {count} were read");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut random = fastrand::Rng::with_seed(5);
    let body: Vec<u8> = (0..BODY_BYTES).map(|_| random.u8(..)).collect();
    let head = format!(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
    );
    fetching.write_all(&[head.as_bytes(), &body].concat()).unwrap();
    for mut stream in asked {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200 ") && answer.ends_with(&body));
    }
    origin.set_nonblocking(true).unwrap();
    let another = origin.accept().map_err(|error| error.kind());
    assert_eq!(another.err(), Some(ErrorKind::WouldBlock), "the origin was asked again");
    child.kill().unwrap();
    child.wait().unwrap();
}
