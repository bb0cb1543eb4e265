//! Connections to origins between requests: which are used again, which are kept, when they are
//! closed.

mod support;

use std::io::{BufReader, ErrorKind, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use damelo::{Clock, SystemClock};
use support::{Home, Origin, PATIENCE, Proxy, eventually, read_message, reply, send_to};

fn no_store() -> Origin {
    Origin::start(|_| reply(200, "Cache-Control: no-store", "x"))
}

#[test]
fn connections_are_used_again_until_they_are_too_old() {
    let origin = no_store();
    let with_idle_time = |idle| {
        Proxy::start_with(&origin, move |config| {
            config.workers = 1;
            config.timeouts.pool_idle = idle;
        })
    };
    let proxy = with_idle_time(Duration::from_secs(3600));
    for _ in 0..5 {
        assert_eq!(proxy.get("/").text(), "x");
    }
    assert_eq!(origin.connections(), 1);
    let idle = Duration::from_millis(20);
    let proxy = with_idle_time(idle);
    for connections in 2..5 {
        assert_eq!(proxy.get("/").text(), "x");
        assert_eq!(origin.connections(), connections);
        std::thread::sleep(idle * 2);
    }
}

#[test]
fn a_connection_that_is_old_enough_gets_no_further_requests() {
    let origin = no_store();
    let proxy = Proxy::start_with(&origin, |config| {
        config.workers = 1;
        config.timeouts.pool_age = Duration::from_millis(20);
    });
    for connections in 1..4 {
        assert_eq!(proxy.get("/").text(), "x");
        assert_eq!(origin.connections(), connections);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn of_too_many_idle_connections_the_oldest_goes() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let (home, url) = (Home::new(), format!("http://{}", listener.local_addr().expect("address")));
    let proxy = Proxy::start_to(&home, url, |config| {
        config.workers = 1;
        config.limits.pool_idle_max = 1;
    });
    let asked = |path: &str| {
        let client = send_to(proxy.info.address, "GET", path, "", b"");
        let (origin, _) = listener.accept().expect("accept");
        origin.set_read_timeout(Some(PATIENCE)).expect("timeout");
        let mut origin = BufReader::new(origin);
        assert_eq!(read_message(&mut origin, true).expect("a request").path(), path);
        (client, origin)
    };
    let answer = b"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 1\r\n\r\nx";
    let ((mut first, mut older), (mut second, mut newer)) = (asked("/1"), asked("/2"));
    for (client, origin) in [(&mut first, &mut older), (&mut second, &mut newer)] {
        origin.get_mut().write_all(answer).expect("write");
        assert_eq!(read_message(client, false).expect("an answer").text(), "x");
    }
    assert_eq!(older.read(&mut [0]).expect("the end"), 0);
    let _third = send_to(proxy.info.address, "POST", "/3", "Content-Length: 0", b"");
    assert_eq!(read_message(&mut newer, true).expect("a request").path(), "/3");
}

/// An origin that says how long it keeps a connection is believed: a request that must not be sent
/// twice goes on one that others would be thought to be closing.
#[test]
fn what_must_not_be_sent_twice_uses_a_connection_for_as_long_as_its_origin_announced() {
    for (announced, connections) in [("", 2), ("Keep-Alive: timeout=3600\r\n", 1)] {
        let headers = format!("{announced}Cache-Control: no-store");
        let origin = Origin::start(move |_| reply(200, &headers, "x"));
        let proxy = Proxy::start_with(&origin, |config| config.workers = 1);
        assert_eq!(proxy.get("/").text(), "x");
        std::thread::sleep(Duration::from_millis(1_100));
        let mut client = send_to(proxy.info.address, "POST", "/", "Content-Length: 0", b"");
        assert_eq!(read_message(&mut client, false).expect("an answer").text(), "x");
        assert_eq!(origin.connections(), connections, "{announced:?}");
    }
}

/// The time of day is the system's; what else is measured by it stands still until a test moves it.
#[derive(Debug, Default)]
struct Still {
    system: SystemClock,
    passed_ms: AtomicU64,
}

impl Clock for Still {
    fn unix_seconds(&self) -> u64 {
        self.system.unix_seconds()
    }

    fn unix_millis(&self) -> u64 {
        self.system.unix_millis()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.passed_ms.load(Ordering::SeqCst))
    }
}

#[test]
fn a_connection_rests_after_a_head() {
    let origin = no_store();
    let clock = Arc::new(Still::default());
    let proxy = Proxy::start_with(&origin, |config| {
        config.workers = 1;
        config.clock = clock.clone();
    });
    let pass = |ms| clock.passed_ms.fetch_add(ms, Ordering::SeqCst);
    for (method, connections) in [("HEAD", 1), ("HEAD", 2), ("GET", 3), ("GET", 3)] {
        assert_eq!(proxy.ask(method, "/", "").status(), 200);
        assert_eq!(origin.connections(), connections, "{method}");
    }
    for (ms, connections) in [(249, 4), (1, 4), (1000, 4)] {
        pass(ms);
        // What has rested is the longest in the pool.
        let asked: Vec<_> = (0..2).map(|_| proxy.ask("HEAD", "/", "").status()).collect();
        assert_eq!((asked, origin.connections()), (vec![200; 2], connections), "{ms} ms");
    }
}

/// The body that comes behind the answer to a HEAD is nobody's answer.
#[test]
fn what_comes_behind_the_answer_to_a_head_closes_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let (home, url) = (Home::new(), format!("http://{}", listener.local_addr().expect("address")));
    let clock = Arc::new(Still::default());
    let proxy = Proxy::start_to(&home, url, |config| {
        config.workers = 1;
        config.clock = clock.clone();
    });
    listener.set_nonblocking(true).expect("no waiting");
    let accepted = || {
        let mut accepted = None;
        eventually("a connection comes", || {
            accepted = listener.accept().ok();
            accepted.is_some()
        });
        let stream = accepted.expect("one").0;
        stream.set_nonblocking(false).expect("waiting");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        BufReader::new(stream)
    };
    let head = b"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 40\r\n\r\n";
    let body = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    let mut client = send_to(proxy.info.address, "HEAD", "/", "", b"");
    let mut first = accepted();
    read_message(&mut first, true).expect("a request");
    first.get_mut().write_all(head).expect("write");
    assert_eq!(read_message(&mut client, true).expect("an answer").status(), 200);
    // It rests when this comes.
    let mut client = send_to(proxy.info.address, "GET", "/", "", b"");
    let mut second = accepted();
    first.get_mut().write_all(body).expect("write");
    match first.read(&mut [0]) {
        Ok(length) => assert_eq!(length, 0, "the end"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    clock.passed_ms.fetch_add(250, Ordering::SeqCst);
    read_message(&mut second, true).expect("a request");
    second.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").expect("write");
    assert_eq!(read_message(&mut client, false).expect("an answer").text(), "ok");
}

/// Not only when the next request comes: behind a balancer that has the last word on how long a
/// connection lives, or at an origin with a place for each.
#[test]
fn idle_connections_to_origins_are_closed_though_nothing_is_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    let (home, (ended, end)) = (Home::new(), std::sync::mpsc::channel());
    std::thread::spawn(move || {
        let mut stream = listener.accept().expect("accept").0;
        let mut reader = BufReader::new(stream.try_clone().expect("clone"));
        read_message(&mut reader, false).expect("a request");
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").expect("write");
        let _ = ended.send(read_message(&mut reader, false).is_none());
    });
    let idle = Duration::from_millis(100);
    let proxy = Proxy::start_to(&home, url, |config| config.timeouts.pool_idle = idle);
    assert_eq!(proxy.get("/").text(), "ok");
    assert_eq!(end.recv_timeout(PATIENCE), Ok(true), "the origin sees the end");
}
