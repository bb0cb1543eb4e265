//! Reaching origins: Unix sockets, limits, and what they are told. Which of several is asked is in
//! `upstream_choice.rs`.

mod support;

use std::io::{BufReader, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use support::{
    Gate, Home, Message, Origin, PATIENCE, Proxy, eventually, read_message, read_some, reply,
    send_to,
};

fn no_store() -> Origin {
    Origin::start(|_| reply(200, "Cache-Control: no-store", "x"))
}

fn url(origin: &Origin) -> String {
    format!("http://{}", origin.address)
}

/// An origin that begins its answer when the headers of a request are there, and ends it when the
/// request has ended. If it `talks`, it sends a chunk ten times a second in between.
fn duplex_origin(talks: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n";
        let mut asked = Vec::new();
        let mut piece = [0; 4096];
        while !asked.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
            let length = stream.read(&mut piece).expect("read");
            asked.extend(&piece[..length]);
        }
        stream.write_all(head).expect("write");
        let mut talking = stream.try_clone().expect("clone");
        if talks {
            std::thread::spawn(move || {
                while talking.write_all(b"1\r\n.\r\n").is_ok() {
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
        }
        while !asked.ends_with(b"0\r\n\r\n") {
            match stream.read(&mut piece) {
                Ok(length) if length > 0 => asked.extend(&piece[..length]),
                // The proxy broke the request off; the answer breaks off, too.
                _ => return,
            }
        }
        let _ = stream.write_all(b"3\r\nend\r\n0\r\n\r\n");
    });
    url
}

#[test]
fn while_one_direction_moves_neither_is_silent() {
    let ask = |talks: bool| {
        let home = Home::new();
        let limit = Duration::from_secs(3);
        let proxy = Proxy::start_to(&home, duplex_origin(talks), |config| {
            config.timeouts.body_idle = limit;
            config.limits.upload_second_bytes_min = 1000;
        });
        let chunked = "Transfer-Encoding: chunked";
        let mut stream = send_to(proxy.info.address, "POST", "/", chunked, b"");
        let begun = Instant::now();
        while begun.elapsed() < limit * 2 {
            std::thread::sleep(Duration::from_millis(100));
            if !talks {
                stream.get_mut().write_all(b"1\r\n.\r\n").expect("write");
            }
        }
        stream.get_mut().write_all(b"0\r\n\r\n").expect("write");
        let answer = read_message(&mut stream, false).expect("an answer");
        assert!(answer.complete && answer.text().contains("end"), "{talks}: {answer:?}");
    };
    std::thread::scope(|scope| {
        scope.spawn(move || ask(true));
        scope.spawn(move || ask(false));
    });
}

#[test]
fn an_origin_that_answers_and_takes_no_more_of_a_body_holds_nobody() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let (home, url) = (Home::new(), format!("http://{}", listener.local_addr().expect("address")));
    let proxy = Proxy::start_to(&home, url, |config| {
        config.timeouts.origin_header = Duration::from_secs(2);
    });
    let origin = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        let mut head = [0; 16];
        stream.read_exact(&mut head).expect("read");
        let answer = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 5\r\n\r\nlarge";
        stream.write_all(answer).expect("write");
        stream
    });
    let mut sending = TcpStream::connect(proxy.info.address).expect("connect");
    sending.set_read_timeout(Some(PATIENCE)).expect("timeout");
    sending.set_write_timeout(Some(PATIENCE)).expect("timeout");
    let mut client = BufReader::new(sending.try_clone().expect("clone"));
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000000\r\n\r\n";
    sending.write_all(head).expect("write");
    let sender = std::thread::spawn(move || {
        loop {
            if let Err(error) = sending.write_all(&[b'x'; 65536]) {
                return error.kind();
            }
        }
    });
    let answer = read_message(&mut client, false).expect("an answer");
    assert_eq!((answer.status(), answer.text()), (413, "large".to_owned()));
    let ended = sender.join().expect("sender");
    assert!([ErrorKind::BrokenPipe, ErrorKind::ConnectionReset].contains(&ended), "{ended}");
    // The connection to the origin ends, too.
    let mut held = origin.join().expect("origin");
    held.set_read_timeout(Some(PATIENCE)).expect("timeout");
    let end = std::io::copy(&mut held, &mut std::io::sink());
    assert!(end.map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |_| true));
}

#[test]
fn an_origin_that_answers_early_and_closes_is_heard() {
    const TIMES: usize = 40;
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let (home, url) = (Home::new(), format!("http://{}", listener.local_addr().expect("address")));
    let proxy = Proxy::start_to(&home, url, |_| {});
    let origin = std::thread::spawn(move || {
        for _ in 0..TIMES {
            let (mut stream, _) = listener.accept().expect("accept");
            stream.read_exact(&mut [0; 16]).expect("read");
            let answer = b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\n\
                Transfer-Encoding: chunked\r\n\r\n5\r\nlarge\r\n0\r\n\r\n";
            stream.write_all(answer).expect("write");
        }
    });
    let body = vec![b'x'; 2 << 20];
    for _ in 0..TIMES {
        let mut client = TcpStream::connect(proxy.info.address).expect("connect");
        client.set_read_timeout(Some(PATIENCE)).expect("timeout");
        client.set_write_timeout(Some(PATIENCE)).expect("timeout");
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
        client.write_all(head.as_bytes()).expect("head");
        client.write_all(&body).expect("body");
        let answer = read_message(&mut BufReader::new(client), false).expect("an answer");
        assert_eq!((answer.status(), answer.text()), (413, "large".to_owned()));
    }
    origin.join().expect("origin");
}

#[test]
fn origins_on_unix_sockets() {
    let (files, home) = (tempfile::tempdir().expect("tempdir"), Home::new());
    let path = files.path().join("app.sock");
    let listener = UnixListener::bind(&path).expect("bind");
    let app = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        let mut head = [0; 4096];
        let length = stream.read(&mut head).expect("read");
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").expect("write");
        String::from_utf8_lossy(&head[..length]).into_owned()
    });
    let proxy = Proxy::start_to(&home, format!("unix:{}", path.display()), |_| {});
    assert_eq!(proxy.get("/x").text(), "hi");
    let head = app.join().expect("the application").to_ascii_lowercase();
    assert!(head.starts_with("get /x http/1.1\r\n") && head.contains("host: localhost\r\n"));
    std::fs::remove_file(&path).expect("remove");
    let answer = proxy.get("/y");
    assert!(answer.text().contains("could not be reached: entity not found"), "{answer:?}");
}

#[test]
fn headers_of_an_origin_have_a_limit() {
    let origin = Origin::start(|request| {
        let length: usize = request.path().trim_start_matches('/').parse().expect("a length");
        let field = format!("Cache-Control: no-store\r\nX-Long: {}", "x".repeat(length));
        reply(200, &field, "body")
    });
    let home = Home::new();
    let proxy = Proxy::start_to(&home, url(&origin), |config| {
        (config.limits.header_bytes_max, config.limits.uri_bytes_max) = (20_000, 20_000);
    });
    assert_eq!(proxy.get("/19000").text(), "body");
    for length in [20_001, 100_000, 300_000] {
        let answer = proxy.get(&format!("/{length}"));
        assert_eq!(answer.status(), 502, "{length}");
        let told = answer.cache();
        assert!(told.contains("origin-headers-too-large"), "{length}: {told}");
    }
    assert_eq!(proxy.get("/1").text(), "body", "a new connection");
}

#[test]
fn header_lines_of_an_origin_have_a_limit() {
    let origin = Origin::start(|request| {
        let lines: usize = request.path().trim_start_matches('/').parse().expect("a number");
        let fields: Vec<String> = (0..lines).map(|line| format!("X-{line}: {line}")).collect();
        reply(200, &format!("Cache-Control: max-age=60\r\n{}", fields.join("\r\n")), "body")
    });
    let home = Home::new();
    let proxy = Proxy::start_to(&home, url(&origin), |_| {});
    for path in ["/100", "/450", "/450"] {
        let answer = proxy.get(path);
        assert_eq!((answer.status(), answer.text().as_str()), (200, "body"), "{path}");
        let last = path.trim_start_matches('/').parse::<usize>().expect("a number") - 1;
        assert_eq!(answer.header(&format!("x-{last}")), last.to_string());
    }
    assert!(proxy.get("/450").cache().contains("hit"));
    let answer = proxy.get("/500");
    assert_eq!(answer.status(), 502);
    assert!(answer.cache().contains("origin-headers-too-large"), "{}", answer.cache());
    assert!(answer.text().contains("limits.origin_header_lines_max"), "{}", answer.text());
    drop(proxy);
    let proxy =
        Proxy::start_to(&home, url(&origin), |config| config.limits.origin_header_lines_max = 50);
    assert_eq!(proxy.get("/60").status(), 502);
    assert_eq!(proxy.get("/40").status(), 200, "a new connection");
}

#[test]
fn a_body_without_a_length_does_not_follow_an_answer_of_http_1_0() {
    // The origin keeps its connections, as HTTP/1.0 may, and answers a POST with its body.
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("accept");
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().expect("clone"));
                while let Some(request) = read_message(&mut reader, false) {
                    let body =
                        if request.method() == "POST" { request.text() } else { "hi".into() };
                    let head = format!(
                        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: {}\r\n\r\n",
                        body.len()
                    );
                    stream.write_all((head + &body).as_bytes()).expect("write");
                }
            });
        }
    });
    let home = Home::new();
    let proxy = Proxy::start_to(&home, url, |config| config.workers = 1);
    for _ in 0..3 {
        assert_eq!(proxy.ask("GET", "/", "Cache-Control: no-cache").text(), "hi");
        let chunked = "Transfer-Encoding: chunked";
        let mut stream = send_to(proxy.info.address, "POST", "/", chunked, b"");
        stream.get_mut().write_all(b"5\r\nhello\r\n0\r\n\r\n").expect("write");
        let answer = read_message(&mut stream, false).expect("an answer");
        assert_eq!((answer.status(), answer.text().as_str()), (200, "hello"), "{answer:?}");
    }
    let sized = proxy.ask_with_body("POST", "/", "", b"sized");
    assert_eq!(sized.text(), "sized");
}

#[test]
fn an_unsafe_request_is_never_sent_twice() {
    // The origin answers requests until a POST comes, then closes without an answer.
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    let (seen, posts) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("accept");
            let mut head = [0; 4096];
            while let Ok(length) = stream.read(&mut head) {
                if length == 0 {
                    break;
                }
                if head.starts_with(b"POST") {
                    seen.send(()).expect("test lives");
                    break;
                }
                let answer =
                    b"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 0\r\n\r\n";
                stream.write_all(answer).expect("write");
            }
        }
    });
    let home = Home::new();
    let proxy = Proxy::start_to(&home, url, |config| config.workers = 1);
    assert_eq!(proxy.get("/").status(), 200);
    let answer = proxy.ask("POST", "/", "Content-Length: 0");
    assert_eq!(answer.status(), 502);
    assert_eq!(posts.try_iter().count(), 1);
}

#[test]
fn the_whole_exchange_has_a_limit() {
    let origin = Origin::start(|request| {
        let mut answer = reply(200, "Cache-Control: max-age=60", vec![1; 2 << 20]);
        answer.chunked = request.path() == "/chunked";
        answer.pace = Duration::from_millis(100);
        if request.path() == "/headers" {
            answer.delay = support::PATIENCE;
        }
        answer
    });
    let proxy = Proxy::start_with(&origin, |config| {
        config.timeouts.total = Some(Duration::from_secs(2));
    });
    for path in ["/sized", "/chunked"] {
        let answer = proxy.get(path);
        assert!(!answer.complete, "{path} looks whole");
    }
    let answer = proxy.get("/headers");
    assert_eq!(answer.status(), 504);
    assert_eq!(proxy.metric("damelo_proxy_stored_total"), 0);
}

#[test]
fn an_origin_gets_so_many_requests_at_once() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |_| {
        held.wait();
        reply(200, "Cache-Control: no-store", "x")
    });
    let proxy = Proxy::start_with(&origin, |config| {
        config.upstream.requests_per_origin_max = 2;
        config.timeouts.connect = Duration::from_secs(2);
    });
    let ask = |number: usize| proxy.get(&format!("/{number}"));
    std::thread::scope(|scope| {
        let served: Vec<_> = (0..2).map(|number| scope.spawn(move || ask(number))).collect();
        eventually("both places are taken", || origin.count() == 2);
        let refused: Vec<Message> = (2..4).map(ask).collect();
        gate.open();
        for answer in refused {
            assert_eq!(answer.status(), 503);
            assert!(answer.cache().contains("detail=origin-busy"), "{answer:?}");
        }
        for answer in served {
            assert_eq!(answer.join().expect("an answer").status(), 200);
        }
    });
    assert_eq!(origin.count(), 2);
    assert_eq!(proxy.get("/later").status(), 200, "places come free");
}

#[test]
fn what_the_origin_is_told_about_the_client() {
    let origin = no_store();
    let proxy = Proxy::start_with(&origin, |config| {
        config.forwarded.forwarded = true;
    });
    let lies = "Host: a.test\nX-Forwarded-For: 192.0.2.1\nX-Forwarded-Proto: https\n\
        X-Forwarded-Host: evil.test\nForwarded: for=192.0.2.1";
    proxy.get_with("/", lies);
    let asked = origin.last();
    assert_eq!(asked.header("x-forwarded-for"), "127.0.0.1");
    assert_eq!(asked.header("x-forwarded-host"), "a.test");
    assert_eq!(asked.header("x-forwarded-proto"), "http");
    assert_eq!(asked.header("forwarded"), "for=127.0.0.1;proto=http;host=\"a.test\"");
    assert_eq!(asked.header("via"), "1.1 damelo");

    let silent = Proxy::start_with(&origin, |config| {
        config.forwarded.x_forwarded = false;
        config.forwarded.trust_client = true;
        config.forwarded.via = false;
    });
    silent.get_with("/", "Host: a.test\nX-Forwarded-For: 192.0.2.1");
    let asked = origin.last();
    assert_eq!(asked.header("x-forwarded-for"), "192.0.2.1", "kept, nothing added");
    assert!(!asked.has("x-forwarded-proto") && !asked.has("forwarded") && !asked.has("via"));

    let chain = Proxy::start_with(&origin, |config| config.forwarded.trust_client = true);
    chain.get_with("/", "X-Forwarded-For: 192.0.2.1\nX-Forwarded-Proto: https");
    let asked = origin.last();
    assert_eq!(asked.header("x-forwarded-for"), "192.0.2.1, 127.0.0.1");
    assert_eq!(asked.header("x-forwarded-proto"), "https");
}

#[test]
fn early_hints_are_not_taken_for_the_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        let mut head = [0; 4096];
        let _ = stream.read(&mut head).expect("read");
        let answer = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n\
            Cache-Control: max-age=60\r\nContent-Length: 2\r\n\r\nhi";
        stream.write_all(answer).expect("write");
        // The connection stays open, so that a second request would not get an answer from here.
        std::thread::sleep(Duration::from_secs(30));
    });
    let home = Home::new();
    let proxy = Proxy::start_to(&home, url, |_| {});
    for (expected, hinted) in [("fwd=uri-miss", true), ("hit", false)] {
        let mut stream = send_to(proxy.info.address, "GET", "/", "", b"");
        if hinted {
            assert_eq!(read_some(&mut stream, 0).0.status(), 103);
        }
        let (answer, body) = read_some(&mut stream, 2);
        assert_eq!((answer.status(), &*body), (200, &b"hi"[..]));
        assert!(answer.cache().contains(expected) && !answer.has("link"), "{answer:?}");
    }
}

#[test]
fn a_slow_upload_is_not_the_origins_silence() {
    let origin = Origin::start(|request| reply(200, "", request.body.len().to_string()));
    let proxy =
        Proxy::start_with(&origin, |config| config.timeouts.origin_header = Duration::from_secs(2));
    let mut stream = send_to(proxy.info.address, "POST", "/", "Content-Length: 10", b"");
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(300));
        stream.get_mut().write_all(b"x").expect("write");
    }
    let answer = read_message(&mut stream, false).expect("an answer");
    assert_eq!((answer.status(), answer.text().as_str()), (200, "10"), "{}", answer.cache());
    // An origin that reads nothing of the body counts as silent.
    let deaf = TcpListener::bind("127.0.0.1:0").expect("bind");
    let home = Home::new();
    let url = format!("http://{}", deaf.local_addr().expect("address"));
    let proxy = Proxy::start_to(&home, url, |config| {
        config.timeouts.origin_header = Duration::from_millis(500)
    });
    let address = proxy.info.address;
    let mut stuck = send_to(address, "POST", "/", "Content-Length: 100000000", b"");
    let mut writing = stuck.get_ref().try_clone().expect("clone");
    // The write fails once the proxy has answered and closed.
    std::thread::spawn(move || writing.write_all(&vec![b'x'; 100_000_000]));
    let answer = read_message(&mut stuck, false).expect("an answer");
    assert_eq!(answer.status(), 504, "{}", answer.cache());
}
