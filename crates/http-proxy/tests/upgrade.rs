//! Connections that leave HTTP: WebSocket and what is refused.

mod support;

use std::io::{BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use damelo_http_proxy::{LogFormat, LogTarget, OriginTarget, ProxyConfig, Settings};
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper::ext::Protocol;
use hyper_util::rt::TokioIo;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use support::frames::{
    DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, frame, http2_raw, next_frame,
};
use support::wire::{ask_http2, block_on, http2_to};
use support::{Gate, Home, Message, Nobody, Origin, Proxy, Reply, eventually, read_message, reply};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// An origin that agrees to any upgrade, or to another that `X-Other` names, and then sends back
/// what it gets, capitals for small letters, until its client ends; or breaks off, if `X-End` says
/// so. Its 101 has a length that says nothing.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("accept");
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().expect("clone"));
                let Some(request) = read_message(&mut reader, false) else { return };
                let agreed = if request.has("x-other") { "x-other" } else { "upgrade" };
                let head = format!(
                    "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: {}\r\n\
                     Content-Length: 5\r\nSec-WebSocket-Accept: {}\r\nX-Seen: {} {}\r\n\r\nfirst words ",
                    request.header(agreed),
                    accept(&request),
                    request.header("connection"),
                    request.method(),
                );
                stream.write_all(head.as_bytes()).expect("write");
                if request.header("x-end") == "breaks-off" {
                    // A socket that is closed with bytes unread resets its connection.
                    let _ = stream.peek(&mut [0]);
                    return;
                }
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = reader.read(&mut buffer) {
                    let answer = buffer[..length].to_ascii_uppercase();
                    stream.write_all(&answer).expect("write");
                }
            });
        }
    });
    address
}

/// What an origin proves with that it read a handshake (RFC 6455 §4.2.2); something else if asked
/// to.
fn accept(request: &Message) -> String {
    let key = request.header("sec-websocket-key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, key.as_bytes());
    STANDARD.encode(if request.has("x-spoil") { &b"nothing"[..] } else { hash.as_ref() })
}

fn start(home: &Home, origin: SocketAddr, tweak: impl FnOnce(&mut ProxyConfig)) -> Proxy {
    Proxy::start_in(home, OriginTarget::Url(format!("http://{origin}")), tweak)
}

fn upgrade(address: SocketAddr, protocol: &str) -> (Message, BufReader<TcpStream>, TcpStream) {
    upgrade_with(address, protocol, "")
}

fn upgrade_with(
    address: SocketAddr,
    protocol: &str,
    fields: &str,
) -> (Message, BufReader<TcpStream>, TcpStream) {
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(support::PATIENCE)).expect("timeout");
    let head = format!(
        "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n\
         Upgrade: {protocol}\r\nSec-WebSocket-Key: x\r\n{fields}\r\n"
    );
    stream.write_all(head.as_bytes()).expect("write");
    let mut reader = BufReader::new(stream.try_clone().expect("clone"));
    (read_message(&mut reader, true).expect("an answer"), reader, stream)
}

#[test]
fn an_upgrade_goes_to_an_origin_that_can_be_reached() {
    let (home, missing) = (Home::new(), [(); 5].map(|()| Nobody::new()));
    let proxy = Proxy::start_in(&home, OriginTarget::Url(missing[0].url()), |config| {
        let upstream = &mut config.upstream;
        upstream.more_origins = missing[1..].iter().map(Nobody::url).collect();
        upstream.more_origins.push(format!("http://{}", echo()));
    });
    let (answer, ..) = upgrade(proxy.info.address, "websocket");
    assert_eq!(answer.status(), 101, "{answer:?}");
}

#[test]
fn an_upgrade_that_an_origin_answers_by_a_status_to_retry_goes_to_another() {
    let (home, busy) = (Home::new(), Origin::start(|_| reply(503, "", "busy")));
    let start = |statuses: &[StatusCode]| {
        start(&home, busy.address, |config| {
            config.upstream.backup_origins = vec![format!("http://{}", echo())];
            config.upstream.retry_statuses = statuses.to_vec();
        })
    };
    let proxy = start(&[]);
    assert_eq!(upgrade(proxy.info.address, "websocket").0.status(), 503);
    drop(proxy);
    let proxy = start(&[StatusCode::SERVICE_UNAVAILABLE]);
    assert_eq!(upgrade(proxy.info.address, "websocket").0.status(), 101);
    assert_eq!(proxy.metric("damelo_proxy_origin_resends_total"), 1);
    assert_eq!(busy.count(), 2);
}

#[test]
fn an_upgrade_takes_a_place_at_its_origin_until_it_ends() {
    let home = Home::new();
    let proxy = start(&home, echo(), |config| {
        config.upstream.requests_per_origin_max = 1;
        config.timeouts.connect = Duration::from_secs(2);
    });
    let (first, reader, stream) = upgrade(proxy.info.address, "websocket");
    assert_eq!(first.status(), 101);
    let (second, ..) = upgrade(proxy.info.address, "websocket");
    assert_eq!(second.status(), 503, "{second:?}");
    drop((reader, stream));
    eventually("the place is free", || upgrade(proxy.info.address, "websocket").0.status() == 101);
}

/// The origin had nothing of the request, and is not to blame.
#[test]
fn a_place_at_an_origin_is_waited_for_until_the_exchange_must_end() {
    let home = Home::new();
    let proxy = start(&home, echo(), |config| {
        config.upstream.requests_per_origin_max = 1;
        config.timeouts.connect = support::PATIENCE;
        config.timeouts.total = Some(Duration::from_secs(2));
    });
    let (tunnel, _reader, _stream) = upgrade(proxy.info.address, "websocket");
    assert_eq!(tunnel.status(), 101);
    let answer = proxy.get("/");
    assert_eq!(answer.status(), 504);
    assert!(answer.cache().contains("detail=origin-timeout"), "{answer:?}");
}

#[test]
fn the_line_of_a_tunnel_is_written_at_its_end() {
    let home = Home::new();
    let directory = tempfile::tempdir().expect("tempdir");
    let path = directory.path().join("access.log");
    let proxy = start(&home, echo(), |config| {
        config.log.to = LogTarget::File(path.clone());
        config.log.format = LogFormat::Squid;
    });
    let (answer, mut reader, mut stream) = upgrade(proxy.info.address, "websocket");
    assert_eq!(answer.status(), 101);
    stream.write_all(b"hello").expect("write");
    let mut echoed = [0; 12 + 5];
    reader.read_exact(&mut echoed).expect("read");
    assert_eq!(std::fs::read_to_string(&path).expect("a log"), "");
    drop((reader, stream));
    let log = || std::fs::read_to_string(&path).expect("a log");
    eventually("a line is written", || log().ends_with('\n'));
    assert!(log().contains(" TCP_TUNNEL/101 17 GET "), "{}", log());
}

#[test]
fn websocket_bytes_pass_both_ways_until_the_end() {
    let home = Home::new();
    let proxy = start(&home, echo(), |config| {
        // Shorter than the script: they are for requests, not for tunnels.
        config.timeouts.client_idle = Duration::from_secs(2);
        config.timeouts.client_header = Duration::from_secs(2);
    });
    let (answer, mut reader, mut stream) = upgrade(proxy.info.address, "websocket");
    assert_eq!(answer.status(), 101, "{answer:?}");
    assert_eq!(answer.header("upgrade"), "websocket");
    assert_eq!(answer.header("connection").to_ascii_lowercase(), "upgrade");
    assert_eq!(answer.header("x-seen"), "upgrade GET", "the origin was asked to");
    for _ in 0..3 {
        std::thread::sleep(Duration::from_secs(1));
        stream.write_all(b"hello ").expect("write");
    }
    let mut echoed = [0; 12 + 18];
    reader.read_exact(&mut echoed).expect("read");
    assert_eq!(&echoed, b"first words HELLO HELLO HELLO ");
    let large = support::noise(1, 1 << 20).to_ascii_uppercase();
    let mut writer = stream.try_clone().expect("clone");
    let sent = large.clone();
    let writing = std::thread::spawn(move || {
        writer.write_all(&sent).expect("write");
        writer.shutdown(std::net::Shutdown::Write).expect("shutdown");
    });
    let mut back = Vec::new();
    reader.read_to_end(&mut back).expect("read");
    writing.join().expect("writer");
    assert!(back == large, "{} bytes", back.len());
    assert_eq!(proxy.metric("damelo_proxy_tunnels_total"), 1);
    assert_eq!(proxy.metric("damelo_proxy_tunnel_client_bytes_total"), (1 << 20) + 18);
}

#[test]
fn a_silent_tunnel_is_cut() {
    let home = Home::new();
    let proxy = start(&home, echo(), |config| {
        config.timeouts.tunnel_idle = Duration::from_millis(300);
    });
    let (answer, mut reader, _stream) = upgrade(proxy.info.address, "WebSocket");
    assert_eq!(answer.status(), 101);
    let mut rest = Vec::new();
    let end = reader.read_to_end(&mut rest).map_err(|error| error.kind());
    assert_eq!((end, &rest[..]), (Err(ErrorKind::ConnectionReset), &b"first words "[..]));
    assert_eq!(proxy.metric("damelo_proxy_tunnel_timeouts_total"), 1);
}

/// A debugger that holds a client for a minute, a laptop asleep: the limit on silence is the only
/// one that tunnels have.
#[test]
fn a_client_may_take_nothing_of_its_tunnel_for_longer_than_of_an_answer() {
    const SENT_BYTES: usize = 32 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let (home, origin) = (Home::new(), listener.local_addr().expect("address"));
    std::thread::spawn(move || {
        let mut stream = listener.accept().expect("accept").0;
        let mut reader = BufReader::new(stream.try_clone().expect("clone"));
        read_message(&mut reader, false).expect("a request");
        let head = b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        stream.write_all(head).expect("write");
        // More than all sockets on the way hold.
        let _ = stream.write_all(&vec![b'x'; SENT_BYTES]);
    });
    let limit = Duration::from_millis(100);
    let proxy = start(&home, origin, |config| config.timeouts.client_write = limit);
    let (answer, mut reader, _stream) = upgrade(proxy.info.address, "websocket");
    assert_eq!(answer.status(), 101, "{answer:?}");
    std::thread::sleep(limit * 5);
    let mut received = Vec::new();
    reader.read_to_end(&mut received).expect("an orderly end");
    assert_eq!(received.len(), SENT_BYTES);
    assert_eq!(proxy.metric("damelo_proxy_client_timeouts_total"), 0);
}

#[test]
fn a_proxy_that_stops_does_not_wait_for_tunnels() {
    let (home, directory) = (Home::new(), tempfile::tempdir().expect("tempdir"));
    let log = directory.path().join("log");
    let proxy = start(&home, echo(), |config| {
        config.timeouts.drain = Duration::from_secs(20);
        config.log.to = LogTarget::File(log.clone());
        config.log.format = LogFormat::Json;
    });
    let (answer, mut reader, _stream) = upgrade(proxy.info.address, "websocket");
    assert_eq!(answer.status(), 101);
    reader.read_exact(&mut [0; 12]).expect("the first words");
    let before = Instant::now();
    proxy.stop();
    assert!(before.elapsed() < Duration::from_secs(10), "{:?}", before.elapsed());
    let _ = reader.read_to_end(&mut Vec::new());
    let mut line = String::new();
    eventually("the line of its tunnel", || {
        line = std::fs::read_to_string(&log).unwrap_or_default();
        line.ends_with('\n')
    });
    assert!(line.contains("\"bytes\":12") && line.contains("\"ended\":\"timeout\""), "{line}");
}

#[test]
fn other_protocols_are_not_passed_on() {
    let origin = Origin::start(|_| reply(200, "Cache-Control: no-store", "plain"));
    let proxy = Proxy::start(&origin);
    for protocol in ["h2c", "websocket, h2c", "TLS/1.0"] {
        let (answer, ..) = upgrade(proxy.info.address, protocol);
        assert_eq!(answer.status(), 200, "{protocol}");
        let asked = origin.last();
        assert!(!asked.has("upgrade") && !asked.has("connection"), "{asked:?}");
    }
}

#[test]
fn an_origin_may_not_agree_to_something_else() {
    let home = Home::new();
    let proxy = start(&home, echo(), |_| {});
    let (answer, ..) = upgrade_with(proxy.info.address, "websocket", "X-Other: h2c\r\n");
    assert_eq!(answer.status(), 502, "{answer:?}");
    assert_eq!(proxy.metric("damelo_proxy_tunnels_total"), 0);
    let (answer, ..) = upgrade_with(proxy.info.address, "websocket", "X-Other: WebSocket\r\n");
    assert_eq!(answer.status(), 101, "{answer:?}");
}

#[test]
fn an_origin_may_decline() {
    let origin = Origin::start(|_| reply(403, "Cache-Control: max-age=60", "no"));
    let proxy = Proxy::start(&origin);
    for _ in 0..2 {
        let answer = declined_by(&proxy, "");
        assert_eq!((answer.status(), answer.text().as_str()), (403, "no"));
    }
    assert_eq!(origin.count(), 2, "never from the cache");
}

fn declined_by(proxy: &Proxy, fields: &str) -> Message {
    let mut stream = TcpStream::connect(proxy.info.address).expect("connect");
    stream.set_read_timeout(Some(support::PATIENCE)).expect("timeout");
    let head = format!(
        "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n{fields}\r\n"
    );
    stream.write_all(head.as_bytes()).expect("write");
    read_message(&mut BufReader::new(stream), false).expect("an answer")
}

/// As those of other requests.
#[test]
fn what_an_origin_says_to_decline_ends_in_time_and_does_not_begin_broken() {
    let held = Gate::default();
    let hold = (65536, held.clone());
    let origin = Origin::start(move |request| match request.has("x-broken") {
        true => Reply { break_after: Some(0), ..reply(403, "", "no") },
        false => Reply { hold: Some(hold.clone()), ..reply(403, "", vec![b'x'; 100_000]) },
    });
    let proxy = Proxy::start_with(&origin, |config| {
        config.timeouts.total = Some(Duration::from_secs(2));
    });
    let answer = declined_by(&proxy, "");
    assert_eq!((answer.status(), answer.complete), (403, false), "it would take for ever");
    let ended = || proxy.metric("damelo_proxy_answers_broken_total{by=\"timeout\"}") >= 1;
    eventually("the limit has ended it", ended);
    held.open();
    // What comes later than the head is sent.
    eventually("it is broken when it comes", || {
        let answer = declined_by(&proxy, "X-Broken: 1\r\n");
        answer.status() == 502 && answer.cache().contains("detail=origin-broken")
    });
}

/// RFC 9111 §4.4. Nobody sees what such a method does in a tunnel, so that counts as a change.
#[test]
fn an_upgrade_by_an_unsafe_method_invalidates_its_target() {
    for (status, again) in [(101, 1), (200, 1), (303, 1), (403, 0)] {
        let origin = Origin::start(move |request| match request.method() {
            "GET" => reply(200, "Cache-Control: max-age=60", "kept"),
            _ => reply(status, "Connection: upgrade\nUpgrade: websocket", ""),
        });
        let proxy = Proxy::start(&origin);
        for _ in 0..2 {
            assert_eq!(proxy.get("/kept").text(), "kept");
        }
        let fields = "Connection: upgrade\nUpgrade: websocket";
        assert_eq!(proxy.ask("DELETE", "/kept", fields).status(), status);
        assert_eq!(origin.last().header("upgrade"), "websocket");
        proxy.get("/kept");
        assert_eq!(origin.count(), 2 + again, "after {status}");
    }
}

#[test]
fn what_is_not_the_origins_to_answer_is_not_passed_on_for_an_upgrade() {
    let origin = Origin::start(|_| reply(200, "Cache-Control: max-age=60", "kept"));
    let proxy = Proxy::start_with(&origin, |config| config.purge.method = true);
    let fields = "Connection: upgrade\nUpgrade: websocket";
    proxy.get("/kept");
    assert_eq!(proxy.ask("PURGE", "/kept", fields).status(), 200);
    let only_if_cached = format!("{fields}\nCache-Control: only-if-cached");
    assert_eq!(proxy.ask("GET", "/kept", &only_if_cached).status(), 504);
    assert_eq!(proxy.ask("CONNECT", "a.test:80", fields).status(), 501);
    assert_eq!(origin.count(), 1);
}

/// What a client of HTTP/2 sends to speak this protocol on a stream (RFC 8441 §4).
fn extended_connect(protocol: &'static str, field: (&str, &str)) -> Request<Full<Bytes>> {
    let request = Request::connect("http://a/chat")
        .header("sec-websocket-version", "13")
        .header(field.0, field.1)
        .extension(Protocol::from_static(protocol));
    request.body(Full::default()).expect("request")
}

/// A connection whose server has said what it offers: that comes before its first answer.
async fn settled(address: SocketAddr) -> support::wire::Sender {
    let mut sender = http2_to(address).await;
    let request = Request::get("http://a/").header("expect", "a-miracle").body(Full::default());
    let answer = ask_http2(&mut sender, request.expect("request")).await;
    assert_eq!(answer.status, StatusCode::EXPECTATION_FAILED);
    sender
}

#[test]
fn websocket_on_a_stream_of_http2() {
    let home = Home::new();
    let proxy = start(&home, echo(), |_| {});
    block_on(async {
        let mut sender = settled(proxy.info.address).await;
        let mut tunnels = Vec::new();
        for _ in 0..2 {
            let request = extended_connect("websocket", ("x-a", "1"));
            let mut response = sender.send_request(request).await.expect("an answer");
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(response.headers()["x-seen"], "upgrade GET");
            for name in ["upgrade", "connection", "sec-websocket-accept", "content-length"] {
                assert!(!response.headers().contains_key(name), "{name}");
            }
            let stream = hyper::upgrade::on(&mut response).await.expect("a tunnel");
            tunnels.push(TokioIo::new(stream));
        }
        for tunnel in &mut tunnels {
            tunnel.write_all(b"hello").await.expect("write");
            let mut echoed = [0; 17];
            tunnel.read_exact(&mut echoed).await.expect("read");
            assert_eq!(&echoed, b"first words HELLO");
            tunnel.shutdown().await.expect("end");
            let mut rest = Vec::new();
            tunnel.read_to_end(&mut rest).await.expect("read");
            assert!(rest.is_empty());
        }
    });
    assert_eq!(proxy.metric("damelo_proxy_tunnels_total"), 2);
}

/// RFC 9113 §8.5: what was broken off must not look whole.
#[test]
fn a_websocket_on_http2_that_the_origin_breaks_off_ends_in_a_reset() {
    let home = Home::new();
    let proxy = start(&home, echo(), |_| {});
    for breaks_off in [true, false] {
        let mut stream = http2_raw(proxy.info.address);
        // `:method`, `:scheme`, `:path`, `:authority` by the static table, and `:protocol`.
        let names: [&[u8]; 3] =
            [b"\x02\x07CONNECT\x86", b"\x04\x05/chat\x01\x01a", b"\x00\x09:protocol\x09websocket"];
        let mut block = names.concat();
        if breaks_off {
            block.extend_from_slice(b"\x00\x05x-end\x0abreaks-off");
        }
        stream.write_all(&frame(HEADERS, END_HEADERS, 1, &block)).expect("write");
        let end = if breaks_off { 0 } else { END_STREAM };
        stream.write_all(&frame(DATA, end, 1, b"x")).expect("write");
        let mut frames =
            std::iter::from_fn(|| next_frame(&mut stream)).filter(|one| one.stream == 1);
        let last = frames.find(|one| one.ends_stream() || one.kind == RST_STREAM);
        let last = last.expect("an end of the stream");
        assert_eq!(last.kind == RST_STREAM, breaks_off, "{}", last.kind);
    }
}

/// As with HTTP/1.1, whose tunnels have left their connections.
#[test]
fn a_proxy_that_stops_does_not_wait_for_tunnels_of_http2() {
    let home = Home::new();
    let proxy = start(&home, echo(), |config| {
        config.timeouts.drain = Duration::from_secs(120);
    });
    block_on(async {
        let mut sender = settled(proxy.info.address).await;
        let request = extended_connect("websocket", ("x-a", "1"));
        let mut response = sender.send_request(request).await.expect("an answer");
        let stream = hyper::upgrade::on(&mut response).await.expect("a tunnel");
        let mut tunnel = TokioIo::new(stream);
        tunnel.read_exact(&mut [0; 12]).await.expect("the first words");
        let before = Instant::now();
        proxy.stop();
        assert!(before.elapsed() < Duration::from_secs(100), "{:?}", before.elapsed());
    });
}

/// RFC 8441 §5: any 2xx would be the beginning of a tunnel.
#[test]
fn what_a_rule_answers_is_no_tunnel() {
    let home = Home::new();
    for (respond, seen) in [(200, 501), (503, 503)] {
        let text = format!("[[rule]]\nrespond = {respond}\n");
        let ruleset = Settings::parse(&text).expect("good rules").proxy.ruleset;
        let proxy = start(&home, echo(), |config| config.ruleset = ruleset);
        block_on(async {
            let mut sender = settled(proxy.info.address).await;
            let request = extended_connect("websocket", ("x-a", "1"));
            let response = sender.send_request(request).await.expect("an answer");
            assert_eq!(response.status(), seen);
            assert_eq!(response.headers()["cache-status"], "damelo; detail=respond");
        });
    }
}

#[test]
fn only_a_whole_handshake_makes_a_tunnel_on_http2() {
    let home = Home::new();
    let proxy = start(&home, echo(), |_| {});
    block_on(async {
        let mut sender = settled(proxy.info.address).await;
        let spoilt = extended_connect("websocket", ("x-spoil", "1"));
        assert_eq!(ask_http2(&mut sender, spoilt).await.status, StatusCode::BAD_GATEWAY);
        let foreign = extended_connect("websocket", ("x-other", "h2c"));
        assert_eq!(ask_http2(&mut sender, foreign).await.status, StatusCode::BAD_GATEWAY);
        let other = extended_connect("another", ("x-a", "1"));
        assert_eq!(ask_http2(&mut sender, other).await.status, StatusCode::NOT_IMPLEMENTED);
    });
    for (status, seen) in [(403, StatusCode::FORBIDDEN), (200, StatusCode::BAD_GATEWAY)] {
        let origin = Origin::start(move |_| reply(status, "Cache-Control: max-age=60", "no"));
        let proxy = Proxy::start(&origin);
        block_on(async {
            let mut sender = settled(proxy.info.address).await;
            let request = extended_connect("websocket", ("x-a", "1"));
            assert_eq!(ask_http2(&mut sender, request).await.status, seen);
        });
    }
}

/// RFC 9110 §15.2.2, RFC 9113 §8.6.
#[test]
fn a_101_that_nobody_asked_for_is_a_broken_answer() {
    let home = Home::new();
    let proxy = start(&home, echo(), |_| {});
    let refused = |answer: &Message| {
        assert_eq!(answer.status(), 502, "{answer:?}");
        assert!(answer.cache().contains("detail=origin-unasked"), "{answer:?}");
    };
    refused(&proxy.get("/"));
    refused(&proxy.ask("POST", "/", ""));
    refused(&proxy.get_with("/", "Range: bytes=0-1"));
    let (answer, ..) = upgrade(proxy.info.address, "h2c");
    refused(&answer);
    block_on(async {
        let mut sender = settled(proxy.info.address).await;
        let request = Request::get("http://a.test/").body(Full::<Bytes>::default());
        let answer = ask_http2(&mut sender, request.expect("request")).await;
        assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    });
    assert_eq!(proxy.metric("damelo_proxy_tunnels_total"), 0);
}
