//! What is sent on connections that were used before, and what is sent twice.

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use damelo_http_proxy::OriginTarget;

use crate::support::{Message, Origin, Proxy, read_message, reply};

/// Answers the first request of each connection, and closes it when the second one comes: as if its
/// keep-alive had ended that moment.
fn closing_at_the_second(header: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().expect("clone"));
                read_message(&mut reader, false)?;
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{header}\r\nok");
                stream.write_all(answer.as_bytes()).ok()?;
                read_message(&mut reader, false).map(drop)
            });
        }
    });
    address
}

#[test]
fn what_cannot_be_sent_twice_goes_on_a_connection_that_lives() {
    let origin = Origin::start(|_| reply(200, "", ""));
    let start = |header| {
        let to = format!("http://{}", closing_at_the_second(header));
        Proxy::start_with(&origin, move |config| {
            (config.to, config.workers) = (OriginTarget::Url(to), 1);
        })
    };
    let proxy = start("");
    let post = || proxy.ask_with_body("POST", "/", "", b"content").status();
    for round in 0..3 {
        assert_eq!(post(), 200, "round {round}");
        // Longer than a connection counts as used this moment.
        std::thread::sleep(Duration::from_millis(1200));
    }
    // Where the origin says how long it keeps connections, nothing else is tried first either.
    let proxy = start("Keep-Alive: timeout=2, max=9\r\n");
    for _ in 0..2 {
        assert_eq!(proxy.get("/").status(), 200);
        std::thread::sleep(Duration::from_millis(1200));
    }
    assert_eq!(proxy.metric("damelo_proxy_retries_total"), 0);
}

/// An origin of which a connection ends at every second request on it, without an answer: that one
/// is sent again. Tells of these, as they come first and as they come again.
fn ending_before_every_other_answer() -> (SocketAddr, Receiver<Message>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let connect = || BufReader::new(listener.accept().expect("accept").0);
        let read = |stream: &mut _| read_message(stream, false);
        let mut stream = connect();
        while read(&mut stream).is_some() {
            let stored = b"HTTP/1.1 200 OK\r\nCache-Control: no-cache\r\nETag: \"e\"\r\n\
                Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nVary: X-Key\r\n\
                Content-Length: 2\r\n\r\nok";
            stream.get_mut().write_all(stored).expect("write");
            let Some(refused) = read(&mut stream) else { break };
            drop(stream);
            stream = connect();
            let repeated = read(&mut stream).expect("it is sent again");
            let answer = match repeated.has("if-none-match") {
                true => &b"HTTP/1.1 304 Not Modified\r\nETag: \"e\"\r\n\r\n"[..],
                false => b"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 0\r\n\r\n",
            };
            stream.get_mut().write_all(answer).expect("write");
            [refused, repeated].into_iter().for_each(|request| tell.send(request).expect("told"));
        }
    });
    (address, told)
}

#[test]
fn what_is_sent_twice_is_the_same_both_times() {
    let origin = Origin::start(|_| reply(200, "", ""));
    let (address, told) = ending_before_every_other_answer();
    let proxy = Proxy::start_with(&origin, move |config| {
        (config.to, config.workers) = (OriginTarget::Url(format!("http://{address}")), 1);
    });
    let fields = "X-Many: 1\nTE: trailers\nCookie: a=b\nX-Many: 2\nConnection: x-hop\nX-Hop: h";
    let cases = [
        ("a validation", "GET", "/", "", Some("\"e\"")),
        ("one of all variants", "GET", "/", "X-Key: other", Some("\"e\"")),
        ("a miss", "GET", "/other", "", None),
        ("what only passes", "GET", "/", "Cache-Control: no-store", None),
        ("a HEAD", "HEAD", "/other", "", None),
        ("what has conditions of its client", "GET", "/other", "If-Match: \"x\"", Some("")),
    ];
    for (number, (case, method, path, more, tag)) in cases.into_iter().enumerate() {
        // Always another resource, but for those that are asked of what is stored.
        let path = if path == "/" { format!("/{number}") } else { format!("{path}/{number}") };
        let first = if path.starts_with("/other") { "/first" } else { &path };
        assert_eq!(proxy.get_with(first, "Cache-Control: no-cache").status(), 200, "{case}");
        proxy.ask(method, &path, &format!("{fields}\n{more}"));
        let next = || told.recv_timeout(Duration::from_secs(60)).expect("sent, and sent again");
        let (sent, again) = (next(), next());
        assert_eq!((&sent.line, &sent.headers), (&again.line, &again.headers), "{case}");
        assert!(sent.line.starts_with(&format!("{method} {path} ")), "{case}: {sent:?}");
        if let Some(tag) = tag {
            assert_eq!(sent.header("if-none-match"), tag, "{case}");
        }
        let many: Vec<_> = sent.headers.iter().filter(|(name, _)| name == "x-many").collect();
        assert!(many.len() == 2 && many[0].1 == "1" && !sent.has("x-hop"), "{case}: {sent:?}");
    }
    assert_eq!(proxy.metric("damelo_proxy_retries_total"), cases.len() as u64);
}

/// A framework may have taken it for a POST.
#[test]
fn what_names_another_method_is_not_sent_twice() {
    let origin = Origin::start(|_| reply(200, "", ""));
    let to = format!("http://{}", closing_at_the_second("Cache-Control: no-store\r\n"));
    let proxy = Proxy::start_with(&origin, move |config| {
        (config.to, config.workers) = (OriginTarget::Url(to), 1);
    });
    for _ in 0..3 {
        proxy.get_with("/", "X-HTTP-Method-Override: POST");
    }
    assert_eq!(proxy.metric("damelo_proxy_retries_total"), 0);
}
