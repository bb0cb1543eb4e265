//! Reaching origins over HTTP/2: TLS, clear text, shared connections, requests sent again, PING,
//! origins that stay silent.

mod support;

use std::io::{BufReader, Read as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use damelo_http_proxy::{OriginTarget, ProxyConfig};
use support::wire::{Authority, Http2Origin, LARGE_BYTES, acceptor, block_on, http2_frame};
use support::{Gate, Home, PATIENCE, Proxy, eventually, read_message, read_some, send_to};

/// A proxy with one worker, so that all requests share its connections, before an origin that
/// speaks HTTP/2 in clear text.
fn proxy_before(home: &Home, origin: &Http2Origin, tweak: impl FnOnce(&mut ProxyConfig)) -> Proxy {
    Proxy::start_to(home, url(origin), |config| {
        config.upstream.http2_clear_text = true;
        config.workers = 1;
        tweak(config);
    })
}

fn url(origin: &Http2Origin) -> String {
    format!("http://{}", origin.address)
}

#[test]
fn http2_over_verified_tls_on_one_connection() {
    let (authority, home) = (Authority::new(), Home::new());
    let origin = Http2Origin::start(Some((&authority, "localhost")));
    let files = tempfile::tempdir().expect("tempdir");
    let roots = files.path().join("roots.pem");
    std::fs::write(&roots, &authority.pem).expect("write");
    let url = format!("https://localhost:{}", origin.address.port());
    let proxy = Proxy::start_to(&home, url.clone(), |config| {
        config.workers = 1;
        config.upstream.authorities = Some(roots.clone());
    });
    let body = "y".repeat(100_000);
    let answer = proxy.ask_with_body("POST", "/p?q", "", body.as_bytes());
    assert_eq!(answer.text(), format!("{url}/p?q false{body}"));
    // Twenty requests at once share one connection.
    std::thread::scope(|scope| {
        let ask = || proxy.get("/x").text();
        let asking: Vec<_> = (0..20).map(|_| scope.spawn(ask)).collect();
        for answer in asking {
            assert_eq!(answer.join().expect("an answer"), format!("{url}/x false"));
        }
    });
    assert_eq!(origin.connections.load(Ordering::SeqCst), 1);
}

/// An origin that is reached by its address, or by a name inside, has a certificate for its own.
#[test]
fn an_origin_may_have_a_certificate_for_another_name_that_is_said() {
    let (authority, home) = (Authority::new(), Home::new());
    let origin = Http2Origin::start(Some((&authority, "app.test")));
    let files = tempfile::tempdir().expect("tempdir");
    let roots = files.path().join("roots.pem");
    std::fs::write(&roots, &authority.pem).expect("write");
    let url = format!("https://{}", origin.address);
    for (name, status) in [(None, 502), (Some("app.test"), 200), (Some("other.test"), 502)] {
        let proxy = Proxy::start_to(&home, url.clone(), |config| {
            config.upstream.authorities = Some(roots.clone());
            config.upstream.tls_name = name.map(str::to_owned);
        });
        let answer = proxy.get("/x");
        assert_eq!(answer.status(), status, "{name:?} {answer:?}");
        assert!(status != 200 || answer.text() == format!("{url}/x false"), "{}", answer.text());
    }
}

#[test]
fn an_origin_with_the_wrong_certificate_is_not_asked() {
    let (authority, other, home) = (Authority::new(), Authority::new(), Home::new());
    let files = tempfile::tempdir().expect("tempdir");
    let roots = files.path().join("roots.pem");
    let cases = [
        (&authority, "elsewhere.test", "not valid for name \"localhost\""),
        (&other, "localhost", "invalid peer certificate"),
    ];
    for (issuer, name, why) in cases {
        std::fs::write(&roots, &authority.pem).expect("write");
        let origin = Http2Origin::start(Some((issuer, name)));
        let url = format!("https://localhost:{}", origin.address.port());
        let proxy = Proxy::start_to(&home, url, |config| {
            config.upstream.authorities = Some(roots.clone());
        });
        let answer = proxy.get("/");
        assert_eq!(answer.status(), 502);
        assert!(answer.cache().contains("detail=tls-failed"), "{answer:?}");
        assert!(answer.text().contains(why), "{}", answer.text());
        proxy.stop();
    }
}

#[test]
fn http2_in_clear_text_when_configured() {
    let (origin, home) = (Http2Origin::start(None), Home::new());
    let (proxy, url) = (proxy_before(&home, &origin, |_| ()), url(&origin));
    assert_eq!(proxy.get("/a").text(), format!("{url}/a false"));
    assert_eq!(proxy.get("/b").text(), format!("{url}/b false"));
}

/// A proxy and `count` clients that read only the beginning of a large answer. The clients stay as
/// long as their streams are kept.
fn slow_readers(
    home: &Home,
    origin: &Http2Origin,
    count: usize,
    tweak: impl FnOnce(&mut ProxyConfig),
) -> (Proxy, Vec<BufReader<TcpStream>>) {
    let proxy = proxy_before(home, origin, |config| {
        config.timeouts.client_write = PATIENCE * 2;
        tweak(config);
    });
    let ask = |_| send_to(proxy.info.address, "GET", "/large", "", b"");
    let mut slow: Vec<_> = (0..count).map(ask).collect();
    for stream in &mut slow {
        read_some(stream, 1000);
    }
    (proxy, slow)
}

fn expect_another_answer(proxy: &Proxy, origin: &Http2Origin) {
    let answer = proxy.get("/other");
    let wanted = format!("{}/other false", url(origin));
    assert!(answer.complete && answer.text() == wanted, "{answer:?}");
}

#[test]
fn slow_clients_leave_room_on_a_connection_of_http2() {
    let (origin, home) = (Http2Origin::start(None), Home::new());
    let (proxy, _slow) = slow_readers(&home, &origin, 8, |_| ());
    // Wait until the proxy receives nothing more for the clients that do not read.
    let received = || proxy.metric("damelo_proxy_origin_body_bytes_total");
    let mut before = 0;
    eventually("what is not read fills its windows", || {
        std::thread::sleep(Duration::from_millis(300));
        let now = received();
        std::mem::replace(&mut before, now) == now
    });
    expect_another_answer(&proxy, &origin);
    assert_eq!(origin.connections.load(Ordering::SeqCst), 1);
}

#[test]
fn beside_a_connection_of_http2_that_is_old_enough_another_is_opened() {
    let (origin, home) = (Http2Origin::start(None), Home::new());
    let (proxy, slow) = slow_readers(&home, &origin, 1, |config| {
        config.workers = 1;
        config.timeouts.pool_age = Duration::from_millis(20);
    });
    std::thread::sleep(Duration::from_millis(20));
    expect_another_answer(&proxy, &origin);
    assert_eq!(origin.connections.load(Ordering::SeqCst), 2);
    for mut stream in slow {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("it goes on");
        assert!(rest.len() + 1000 >= LARGE_BYTES, "{}", rest.len());
    }
}

#[test]
fn more_requests_at_once_than_a_connection_of_http2_takes_get_further_connections() {
    let (origin, home) = (Http2Origin::start(None), Home::new());
    let (proxy, slow) = slow_readers(&home, &origin, 5, |config| {
        config.upstream.http2_streams_max = 2;
    });
    assert_eq!(origin.connections.load(Ordering::SeqCst), 3);
    expect_another_answer(&proxy, &origin);
    drop(slow);
    // Later requests take the places of requests that have ended.
    for _ in 0..10 {
        proxy.get("/other");
    }
    assert_eq!(origin.connections.load(Ordering::SeqCst), 3);
}

#[test]
fn an_origin_that_lets_few_requests_run_on_a_connection_gets_further_ones() {
    let (origin, home) = (Http2Origin::allowing(None, 2), Home::new());
    // All requests begin before the limit of the origin is known.
    let (proxy, _slow) = slow_readers(&home, &origin, 5, |_| ());
    assert_eq!(origin.connections.load(Ordering::SeqCst), 3);
    expect_another_answer(&proxy, &origin);
    assert_eq!(origin.connections.load(Ordering::SeqCst), 3);
}

#[test]
fn what_an_http2_origin_did_not_process_is_sent_again() {
    const RST_STREAM: u8 = 3;
    const GOAWAY: u8 = 7;
    const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];
    let reset = |stream| http2_frame(RST_STREAM, stream, &REFUSED_STREAM);
    // GOAWAY with last stream 0 and NO_ERROR: no request was processed.
    let goodbye = |_| http2_frame(GOAWAY, 0, &[0; 8]);
    let refusals: [fn(u32) -> Vec<u8>; 2] = [reset, goodbye];
    let requests = [("GET", ""), ("DELETE", ""), ("POST", "to be sent again")];
    for (refusal, (method, body)) in refusals.into_iter().flat_map(|r| requests.map(|q| (r, q))) {
        let origin = Http2Origin::by_hand(move |frame| {
            if frame.ends_request() { refusal(frame.stream) } else { Vec::new() }
        });
        let home = Home::new();
        let proxy = proxy_before(&home, &origin, |_| ());
        let answer = proxy.ask_with_body(method, "/p", "", body.as_bytes());
        assert_eq!(answer.status(), 200, "{method}: {answer:?}");
        assert_eq!(answer.text(), format!("{}/p false{body}", url(&origin)));
        assert_eq!(origin.connections.load(Ordering::SeqCst), 2);
        assert_eq!(proxy.metric("damelo_proxy_retries_total"), 1);
    }
}

#[test]
fn what_an_http2_origin_may_have_processed_is_not_sent_again() {
    const RST_STREAM: u8 = 3;
    const INTERNAL_ERROR: [u8; 4] = [0, 0, 0, 2];
    let origin = Http2Origin::by_hand(|frame| match frame.ends_request() {
        true => http2_frame(RST_STREAM, frame.stream, &INTERNAL_ERROR),
        false => Vec::new(),
    });
    let home = Home::new();
    let proxy = proxy_before(&home, &origin, |_| ());
    let answer = proxy.ask_with_body("POST", "/p", "", b"once");
    assert_eq!(answer.status(), 502);
    assert_eq!(origin.connections.load(Ordering::SeqCst), 1);
}

/// RFC 9110 §8.6.
#[test]
fn an_http2_origin_that_contradicts_itself_about_the_length_is_not_believed() {
    const HEADERS: u8 = 1;
    const DATA: u8 = 0;
    const OK: u8 = 0x88;
    for (lengths, status) in [(["5", "7"], 502), (["7", "5"], 502), (["5", "5"], 200)] {
        let origin = Http2Origin::by_hand(move |frame| {
            if !frame.ends_request() {
                return Vec::new();
            }
            // The field's name is number 28 of the static table; neither line is indexed.
            let line = |length: &str| [&[0x0f, 28 - 15, 1], length.as_bytes()].concat();
            let block = [vec![OK], line(lengths[0]), line(lengths[1])].concat();
            let mut head = http2_frame(HEADERS, frame.stream, &block);
            // END_HEADERS, and END_STREAM.
            head[4] = 0x4;
            let mut body = http2_frame(DATA, frame.stream, b"hello");
            body[4] = 0x1;
            [head, body].concat()
        });
        let home = Home::new();
        let proxy = proxy_before(&home, &origin, |_| ());
        let answer = proxy.get("/");
        assert_eq!(answer.status(), status, "{answer:?}");
        let named = answer.headers.iter().filter(|(name, _)| name == "content-length");
        assert_eq!(named.count(), 1, "{answer:?}");
    }
}

/// The connection is not stale: the origin saw the request, and goes on.
#[test]
fn what_an_http2_origin_breaks_off_on_a_connection_that_goes_on_is_not_sent_again() {
    const RST_STREAM: u8 = 3;
    const INTERNAL_ERROR: [u8; 4] = [0, 0, 0, 2];
    let requests = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&requests);
    let origin = Http2Origin::by_hand(move |frame| {
        if !frame.ends_request() {
            return Vec::new();
        }
        match seen.fetch_add(1, Ordering::SeqCst) {
            0 => no_content(frame.stream),
            _ => http2_frame(RST_STREAM, frame.stream, &INTERNAL_ERROR),
        }
    });
    let home = Home::new();
    let proxy = proxy_before(&home, &origin, |_| ());
    assert_eq!(proxy.get("/a").status(), 204);
    let answer = proxy.get("/b");
    assert_eq!(answer.status(), 502);
    assert!(answer.cache().contains("origin-broken"), "{answer:?}");
    assert_eq!(requests.load(Ordering::SeqCst), 2);
    assert_eq!(origin.connections.load(Ordering::SeqCst), 1);
    assert_eq!(proxy.metric("damelo_proxy_retries_total"), 0);
}

/// A frame of HEADERS with `:status` 204 that ends both them and the stream.
fn no_content(stream: u32) -> Vec<u8> {
    const HEADERS: u8 = 1;
    const END_HEADERS_AND_STREAM: u8 = 5;
    const STATUS_204: u8 = 0x89;
    let mut frame = http2_frame(HEADERS, stream, &[STATUS_204]);
    frame[4] = END_HEADERS_AND_STREAM;
    frame
}

#[test]
fn an_http2_origin_is_asked_whether_it_is_there_only_where_that_is_set() {
    const HEADERS: u8 = 1;
    const PING: u8 = 6;
    const OK: u8 = 0x88;
    let defaults = ProxyConfig::new(([127, 0, 0, 1], 0).into(), OriginTarget::Url(String::new()));
    assert_eq!(defaults.upstream.http2_ping, None);
    let origin = Http2Origin::by_hand({
        // The origin answers a request only when a PING comes.
        let asked = AtomicU32::new(0);
        move |frame| match frame.kind {
            HEADERS => {
                asked.store(frame.stream, Ordering::SeqCst);
                Vec::new()
            }
            PING => {
                let mut answer = http2_frame(HEADERS, asked.swap(0, Ordering::SeqCst), &[OK]);
                // END_HEADERS and END_STREAM.
                answer[4] = 0x4 | 0x1;
                answer
            }
            _ => Vec::new(),
        }
    });
    let home = Home::new();
    let proxy = proxy_before(&home, &origin, |config| {
        config.upstream.http2_ping = Some(Duration::from_millis(50));
    });
    assert_eq!(proxy.get("/").status(), 200);
}

#[test]
fn an_http2_origin_that_never_begins_to_speak_is_left_for_the_next() {
    let (authority, home) = (Authority::new(), Home::new());
    let files = tempfile::tempdir().expect("tempdir");
    let roots = files.path().join("roots.pem");
    std::fs::write(&roots, &authority.pem).expect("write");
    let silent = Http2Origin::silent(Some((&authority, "localhost")), usize::MAX);
    let speaking = Http2Origin::start(Some((&authority, "localhost")));
    let at = |origin: &Http2Origin| format!("https://localhost:{}", origin.address.port());
    let proxy = Proxy::start_to(&home, at(&silent), |config| {
        config.workers = 1;
        config.timeouts.origin_header = PATIENCE * 10;
        config.upstream.authorities = Some(roots.clone());
        config.upstream.more_origins = vec![at(&speaking)];
        config.upstream.ejection.failures = 3;
    });
    // About half of the requests go to the silent origin first. Some are sent there at once, some
    // must not be sent twice, and most wait for the connection of the first.
    std::thread::scope(|scope| {
        let ask = |number: usize| {
            let method = ["GET", "POST", "DELETE"][number % 3];
            let body = if method == "POST" { "a body" } else { "" };
            proxy.ask_with_body(method, &format!("/{number}"), "", body.as_bytes())
        };
        let asking: Vec<_> = (0..36).map(|number| scope.spawn(move || ask(number))).collect();
        for answer in asking {
            let answer = answer.join().expect("an answer");
            assert_eq!(answer.status(), 200, "{answer:?}");
        }
    });
    assert!(proxy.metric("damelo_proxy_origin_failovers_total") >= 3);
    assert!(proxy.metric("damelo_proxy_origin_ejections_total") >= 1);
}

/// An origin that has one connection at a time opened to it, since those who wait for it may share
/// that, has many opened once it is known to speak HTTP/1.1 only.
#[test]
fn nobody_waits_for_a_connection_that_cannot_be_shared() {
    const CLIENTS: usize = 5;
    let authority = Authority::new();
    let (files, home) = (tempfile::tempdir().expect("tempdir"), Home::new());
    let roots = files.path().join("roots.pem");
    std::fs::write(&roots, &authority.pem).expect("write");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener.local_addr().expect("address").port();
    let (opened, gate) = (Arc::new(AtomicUsize::new(0)), Gate::default());
    let (count, first) = (opened.clone(), gate.clone());
    std::thread::spawn(move || {
        let streams = listener.incoming().map(|stream| {
            count.fetch_add(1, Ordering::SeqCst);
            stream.expect("a connection")
        });
        let mut streams = streams.peekable();
        streams.peek();
        first.wait();
        let stream = streams.next().expect("the first");
        stream.set_nonblocking(true).expect("non-blocking");
        let serving = std::thread::spawn(move || {
            block_on(async {
                let stream = tokio::net::TcpStream::from_std(stream).expect("a stream");
                let accepted = acceptor(&authority, "localhost", &[]).accept(stream).await;
                let _open = accepted.expect("TLS");
                std::future::pending::<()>().await;
            });
        });
        // Nothing is ever said on the others.
        let _open: Vec<_> = streams.collect();
        drop(serving);
    });
    let proxy = Proxy::start_to(&home, format!("https://localhost:{port}"), |config| {
        config.workers = 1;
        config.timeouts.connect = PATIENCE * 4;
        config.upstream.authorities = Some(roots.clone());
    });
    let ask = |number| send_to(proxy.info.address, "GET", &format!("/{number}"), "", b"");
    let _asking: Vec<_> = (0..CLIENTS).map(ask).collect();
    eventually("all have asked", || proxy.metric("damelo_proxy_requests_open") == CLIENTS as u64);
    gate.open();
    eventually("all connect", || opened.load(Ordering::SeqCst) == CLIENTS);
}

#[test]
fn clients_that_break_off_their_requests_are_not_held_against_an_http2_origin() {
    let (origin, other, home) = (Http2Origin::start(None), Http2Origin::start(None), Home::new());
    let proxy = proxy_before(&home, &origin, |config| {
        config.upstream.more_origins = vec![url(&other)];
        config.upstream.ejection.failures = 2;
        config.timeouts.body_idle = Duration::from_millis(300);
    });
    let begin = || send_to(proxy.info.address, "POST", "/", "Content-Length: 9", b"");
    let slow: Vec<_> = (0..8).map(|_| begin()).collect();
    for mut slow in slow {
        let answer = read_message(&mut slow, false).expect("an answer");
        assert_eq!(answer.status(), 408, "{answer:?}");
        assert!(answer.cache().contains("detail=client-timeout"), "{answer:?}");
    }
    let mut broken: Vec<_> = (0..8).map(|_| begin()).collect();
    for broken in &mut broken {
        broken.get_ref().shutdown(std::net::Shutdown::Write).expect("half closed");
        let _ = read_message(broken, false);
    }
    assert_eq!(proxy.metric("damelo_proxy_origin_ejections_total"), 0);
}

/// As behind a firewall that has forgotten the connection: nobody resets it.
#[test]
fn a_connection_on_which_an_http2_origin_fell_silent_is_not_used_again() {
    const HEADERS: u8 = 1;
    for client_leaves in [false, true] {
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        let origin = Http2Origin::by_hand(move |frame| {
            if frame.kind != HEADERS || count.fetch_add(1, Ordering::SeqCst) > 0 {
                return Vec::new();
            }
            let mut answer = http2_frame(HEADERS, frame.stream, &[0x88]);
            // END_HEADERS and END_STREAM.
            answer[4] = 0x4 | 0x1;
            answer
        });
        let home = Home::new();
        let limit = Duration::from_secs(2);
        let proxy = proxy_before(&home, &origin, |config| {
            config.timeouts.connect = limit;
            config.timeouts.origin_header = if client_leaves { PATIENCE } else { limit };
        });
        assert_eq!(proxy.get("/").status(), 200);
        if client_leaves {
            let leaves = send_to(proxy.info.address, "GET", "/", "", b"");
            eventually("it was asked", || asked.load(Ordering::SeqCst) == 2);
            std::thread::sleep(limit);
            drop(leaves);
            eventually("it has left", || proxy.metric("damelo_proxy_requests_open") == 0);
        } else {
            assert_eq!(proxy.get("/").status(), 504);
        }
        expect_another_answer(&proxy, &origin);
        assert_eq!(origin.connections.load(Ordering::SeqCst), 2);
    }
}

/// It was the client's turn.
#[test]
fn an_http2_origin_that_waits_for_the_rest_of_a_request_has_not_fallen_silent() {
    let (origin, home) = (Http2Origin::start(None), Home::new());
    let limit = Duration::from_secs(1);
    let proxy = proxy_before(&home, &origin, |config| config.timeouts.connect = limit);
    assert_eq!(proxy.get("/").status(), 200);
    let slow = send_to(proxy.info.address, "POST", "/slow", "Content-Length: 9", b"");
    eventually("it is sent", || proxy.metric("damelo_proxy_forwarded_total") == 2);
    std::thread::sleep(limit * 2);
    drop(slow);
    eventually("it has left", || proxy.metric("damelo_proxy_requests_open") == 0);
    expect_another_answer(&proxy, &origin);
    assert_eq!(origin.connections.load(Ordering::SeqCst), 1);
}

/// It is out of reach all the same: the request was not sent.
#[test]
fn an_origin_may_be_found_out_of_reach_by_the_limit_of_the_whole_exchange() {
    for (method, body) in [("GET", ""), ("POST", "a body")] {
        let (origin, home) = (Http2Origin::silent(None, 1), Home::new());
        let proxy = proxy_before(&home, &origin, |config| {
            config.timeouts.total = Some(Duration::from_secs(3));
        });
        let answer = proxy.ask_with_body(method, "/a", "", body.as_bytes());
        assert_eq!(answer.status(), 504, "{method}: {answer:?}");
        assert!(answer.cache().contains("detail=connect-timeout"), "{answer:?}");
        expect_another_answer(&proxy, &origin);
    }
}

/// The time was the other's.
#[test]
fn an_origin_is_not_blamed_for_time_that_it_never_had() {
    let (one, other) = (Http2Origin::silent(None, 2), Http2Origin::silent(None, 2));
    let home = Home::new();
    let proxy = proxy_before(&home, &one, |config| {
        config.upstream.more_origins = vec![url(&other)];
        config.upstream.ejection.failures = 1;
        config.timeouts.connect = Duration::from_millis(600);
        config.timeouts.total = Some(Duration::from_millis(800));
    });
    assert_eq!(proxy.get("/").status(), 504);
    assert_eq!(proxy.metric("damelo_proxy_origin_ejections_total"), 1);
}

#[test]
fn a_connection_on_which_an_http2_origin_stayed_silent_is_not_used_again() {
    let ask = |method: &str, body: &str| {
        let (origin, home) = (Http2Origin::silent(None, 1), Home::new());
        let proxy = proxy_before(&home, &origin, |config| {
            config.timeouts.origin_header = PATIENCE * 10;
        });
        let answer = proxy.ask_with_body(method, "/a", "", body.as_bytes());
        assert_eq!(answer.status(), 504, "{method}: {answer:?}");
        assert!(answer.cache().contains("detail=connect-timeout"), "{answer:?}");
        expect_another_answer(&proxy, &origin);
        assert_eq!(origin.connections.load(Ordering::SeqCst), 2);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| ask("GET", ""));
        scope.spawn(|| ask("POST", "a body"));
    });
}
