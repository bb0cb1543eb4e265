//! Clients that are slow, many, behind another proxy, or on a Unix socket.

mod support;

use std::convert::Infallible;
use std::io::{BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use damelo_http_proxy::{ListenAddress, Listener, ProxyConfig, RunningInfo};
use http::Request;
use hyper::body::{Body, Frame};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use support::wire::{block_on, raw, raw_answer};
use support::{Gate, Home, Nobody, Origin, Proxy, eventually, read_message, reply, send_to};

const SHORT: Duration = Duration::from_millis(500);
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn hello() -> Origin {
    Origin::start(|_| reply(200, "Cache-Control: max-age=60", "hello"))
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(support::PATIENCE)).expect("timeout");
    stream
}

fn listen(config: &mut ProxyConfig, text: &str) {
    config.listen.push(text.parse().expect("a listener"));
}

fn tcp_address(info: &RunningInfo, index: usize) -> SocketAddr {
    match info.listeners[index] {
        Listener { address: ListenAddress::Tcp(address), .. } => address,
        ref other => panic!("{other} is not TCP"),
    }
}

/// By its length at once, and otherwise once it has come so far; the origin gets no more of it.
#[test]
fn an_upload_that_is_too_long_is_refused() {
    let origin = Origin::start(|request| reply(200, "", format!("{}", request.body.len())));
    let proxy = Proxy::start_with(&origin, |config| config.limits.upload_bytes_max = Some(5));
    let chunked = |chunks: &str| {
        let head = "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        raw_answer(proxy.info.address, format!("{head}{chunks}0\r\n\r\n").as_bytes())
    };
    assert_eq!(proxy.ask_with_body("POST", "/l", "", b"hello").text(), "5");
    assert_eq!(chunked("3\r\nhel\r\n2\r\nlo\r\n").text(), "5");
    let asked = origin.count();
    let refused = proxy.ask_with_body("POST", "/l", "", b"hello!");
    assert_eq!(refused.status(), 413, "{refused:?}");
    assert!(refused.cache().contains("detail=upload-too-large"), "{refused:?}");
    assert_eq!(origin.count(), asked, "the origin is not asked");
    let refused = chunked("3\r\nhel\r\n3\r\nlo!\r\n");
    assert_eq!(refused.status(), 413, "{refused:?}");
    assert!(refused.cache().contains("detail=upload-too-large"), "{refused:?}");
}

#[test]
fn slow_headers_are_answered_408() {
    let origin = hello();
    let proxy = Proxy::start_with(&origin, |c| c.timeouts.client_header = SHORT);
    for beginning in [&b"GET / HTTP/1.1\r\nHost: a\r\nX: "[..], b"P", b"PRI * HT"] {
        let answer = raw(proxy.info.address, beginning);
        assert!(answer.starts_with("HTTP/1.1 408 "), "{beginning:?}: {answer}");
    }
    // Bytes that trickle in do not prolong the time.
    let mut stream = connect(proxy.info.address);
    let start = Instant::now();
    let mut reader = stream.try_clone().expect("clone");
    let writer = std::thread::spawn(move || {
        while stream.write_all(b"G").is_ok() && start.elapsed() < support::PATIENCE * 2 {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let mut answer = Vec::new();
    // It is refused while bytes still come, which may end it in a reset.
    let end = reader.read_to_end(&mut answer).map_err(|error| error.kind());
    assert_ne!(end, Err(std::io::ErrorKind::WouldBlock), "nobody refuses it");
    drop(reader);
    writer.join().expect("writer");
    assert_eq!(origin.count(), 0);
}

#[test]
fn who_still_sends_a_body_gets_its_answer_without_a_reset() {
    let (home, nobody) = (Home::new(), Nobody::new());
    let proxy = Proxy::start_to(&home, nobody.url(), |_| {});
    let coding = "Transfer-Encoding: gzip, chunked";
    for (framing, status) in [("Content-Length: 100000", 502), (coding, 501)] {
        let mut stream = connect(proxy.info.address);
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("write");
        let mut reader = BufReader::new(stream.try_clone().expect("clone"));
        let answer = read_message(&mut reader, false).expect("an answer");
        assert_eq!(answer.status(), status);
        for _ in 0..16 {
            stream.write_all(&[b'x'; 4096]).expect("nobody resets the connection");
        }
        let end = reader.read(&mut [0; 16]).expect("the end, not a reset");
        assert_eq!(end, 0, "{framing}");
    }
}

#[test]
fn a_stop_waits_for_no_client_that_has_sent_a_body_and_is_asleep() {
    let origin = Origin::start(|_| reply(200, "Cache-Control: no-store", "done"));
    let long = Duration::from_secs(24 * 3600);
    let proxy = Proxy::start_with(&origin, |config| {
        (config.timeouts.client_header, config.timeouts.drain) = (long, long);
    });
    let mut stream = connect(proxy.info.address);
    stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx").expect("write");
    let mut reader = BufReader::new(stream.try_clone().expect("clone"));
    assert_eq!(read_message(&mut reader, false).expect("an answer").text(), "done");
    proxy.stop();
}

#[test]
fn the_second_request_of_a_connection_has_its_own_time() {
    let origin = hello();
    let proxy = Proxy::start_with(&origin, |c| c.timeouts.client_header = SHORT);
    let mut stream = connect(proxy.info.address);
    let mut reader = BufReader::new(stream.try_clone().expect("clone"));
    for _ in 0..3 {
        stream.write_all(GET).expect("write");
        assert_eq!(read_message(&mut reader, false).expect("an answer").text(), "hello");
        // Longer than the time for headers: idle time is another matter.
        std::thread::sleep(SHORT * 2);
    }
    stream.write_all(b"GET /").expect("write");
    assert_eq!(read_message(&mut reader, false).expect("an answer").status(), 408);
}

#[test]
fn idle_connections_are_closed_without_a_word() {
    let origin = hello();
    let proxy = Proxy::start_with(&origin, |c| c.timeouts.client_idle = SHORT);
    let mut stream = connect(proxy.info.address);
    let mut reader = BufReader::new(stream.try_clone().expect("clone"));
    let start = Instant::now();
    stream.write_all(GET).expect("write");
    assert_eq!(read_message(&mut reader, false).expect("an answer").status(), 200);
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).expect("a clean end");
    assert_eq!(rest, b"");
    assert!(start.elapsed() >= SHORT);
}

/// A reset in place of the end would have many clients discard what they were told.
#[test]
fn who_is_refused_early_is_told_why_whatever_it_has_sent() {
    let origin = Origin::start(|_| reply(200, "", "x"));
    let proxy = Proxy::start_with(&origin, |config| listen(config, "proxy+tcp:127.0.0.1:0"));
    let mut stream = connect(tcp_address(&proxy.info, 0));
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    stream.write_all(head.as_bytes()).expect("write");
    stream.shutdown(std::net::Shutdown::Write).expect("shutdown");
    let mut got = String::new();
    stream.read_to_string(&mut got).expect("a clean end");
    assert!(got.starts_with("HTTP/1.1 400 "), "{got}");
}

#[test]
fn who_is_refused_holds_no_place_while_what_it_still_sends_is_read() {
    let origin = hello();
    let proxy = Proxy::start_with(&origin, |config| {
        listen(config, "proxy+tcp:127.0.0.1:0");
        config.limits.connections_max = 1;
    });
    let others_come_meanwhile = |_| {
        let mut refused = connect(tcp_address(&proxy.info, 0));
        refused.write_all(GET).expect("write");
        let mut got = String::new();
        refused.read_to_string(&mut got).expect("a clean end");
        assert!(got.starts_with("HTTP/1.1 400 "), "{got}");
        let mut other = connect(proxy.info.address);
        other.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("write");
        other.read_to_string(&mut got).expect("an answer");
        // A write to what is closed is answered with a reset, which the next one meets.
        let is_read = refused.write_all(b"x").and_then(|()| {
            std::thread::sleep(Duration::from_millis(20));
            refused.write_all(b"x")
        });
        is_read.is_ok()
    };
    // On a busy machine its time may have passed.
    assert!((0..5).any(others_come_meanwhile));
}

#[test]
fn a_client_that_does_not_read_is_let_go() {
    let origin = Origin::start(|_| reply(200, "Cache-Control: max-age=60", vec![7; 24 << 20]));
    // Long enough for the client that reads, however busy the machine.
    let limit = Duration::from_secs(2);
    let proxy = Proxy::start_with(&origin, |c| c.timeouts.client_write = limit);
    assert_eq!(proxy.get("/big").body.len(), 24 << 20);
    let mut stream = connect(proxy.info.address);
    stream.write_all(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n").expect("write");
    let timeouts = || proxy.metric("damelo_proxy_client_timeouts_total");
    eventually("it is let go", || timeouts() == 1);
    let mut got = Vec::new();
    // Cut off: what the kernel held, and no more.
    let _ = stream.read_to_end(&mut got);
    assert!(got.len() < 24 << 20, "{} bytes", got.len());
    assert_eq!(timeouts(), 1);
}

#[test]
fn a_slow_reader_that_reads_is_served() {
    let origin = Origin::start(|_| reply(200, "Cache-Control: max-age=60", vec![7; 24 << 20]));
    let proxy = Proxy::start_with(&origin, |c| {
        c.timeouts.client_write = SHORT * 4;
        c.timeouts.client_header = SHORT;
        c.timeouts.client_idle = SHORT;
    });
    let mut stream = connect(proxy.info.address);
    stream.write_all(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n").expect("write");
    let mut total = 0;
    let mut buffer = vec![0; 2 << 20];
    for _ in 0..6 {
        // Longer in all than the time for a write.
        total += stream.read(&mut buffer).expect("read");
        std::thread::sleep(SHORT);
    }
    while total < 24 << 20 {
        let length = stream.read(&mut buffer).expect("read");
        assert!(length > 0, "ended after {total}");
        total += length;
    }
}

/// So slow that its socket is not writable again before the time for a write is over: the first
/// frames of HTTP/2 open its windows as far as they go, so that nothing but the socket holds the
/// answer back.
#[test]
fn a_reader_slower_than_its_socket_is_served() {
    const HTTP2_GET: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
        \0\0\x06\x04\0\0\0\0\0\0\x04\x7f\xff\xff\xff\
        \0\0\x04\x08\0\0\0\0\0\x7f\x00\xff\xff\
        \0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01a";
    let origin = Origin::start(|_| reply(200, "Cache-Control: max-age=60", vec![7; 24 << 20]));
    // It takes twice as long to free a third of the socket's buffer, and a third as long to be seen
    // to take something.
    let limit = Duration::from_secs(3);
    let proxy = Proxy::start_with(&origin, |c| c.timeouts.client_write = limit);
    assert_eq!(proxy.get("/").body.len(), 24 << 20);
    let slowly = |request: &[u8]| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.expect("a socket");
        // So that it says soon that it has room again.
        socket.set_recv_buffer_size(64 << 10).expect("a buffer");
        socket.connect(&proxy.info.address.into()).expect("connect");
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(support::PATIENCE)).expect("timeout");
        stream.write_all(request).expect("write");
        let (mut total, mut buffer) = (0, vec![0; 1 << 20]);
        for _ in 0..40 {
            total += stream.read(&mut buffer[..48 << 10]).expect("read");
            std::thread::sleep(limit / 15);
        }
        while total < 24 << 20 {
            let length = stream.read(&mut buffer).expect("read");
            assert!(length > 0, "ended after {total}");
            total += length;
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| slowly(GET));
        scope.spawn(|| slowly(HTTP2_GET));
    });
    assert_eq!(proxy.metric("damelo_proxy_client_timeouts_total"), 0);
}

#[test]
fn a_slow_request_body_is_answered_408() {
    let origin = hello();
    let proxy = Proxy::start_with(&origin, |c| c.timeouts.body_idle = SHORT);
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf";
    let answer = raw_answer(proxy.info.address, head);
    assert_eq!(answer.status(), 408, "{answer:?}");
    assert!(answer.cache().contains("detail=client-timeout"), "{answer:?}");
}

/// Sends a byte every 50 ms for ever.
struct Drip(tokio::time::Interval);

impl Body for Drip {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_tick(cx).map(|_| Some(Ok(Frame::data(Bytes::from_static(b"x")))))
    }
}

/// The answer to a request whose body comes in pieces, twenty a second.
fn trickle(
    proxy: &Proxy,
    head: &'static [u8],
    piece: &'static [u8],
    pieces: usize,
) -> support::Message {
    let mut stream = connect(proxy.info.address);
    stream.write_all(head).expect("write");
    let mut writer = stream.try_clone().expect("clone");
    std::thread::spawn(move || {
        for _ in 0..pieces {
            std::thread::sleep(SHORT / 10);
            if writer.write_all(piece).is_err() {
                return;
            }
        }
    });
    read_message(&mut BufReader::new(stream), false).expect("an answer")
}

/// 1,000 bytes a second, for longer than the grace.
#[test]
fn a_request_body_that_is_slow_and_fast_enough_is_taken() {
    let origin = hello();
    let proxy = Proxy::start_with(&origin, |c| c.timeouts.body_idle = SHORT * 4);
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2500\r\n\r\n";
    assert_eq!(trickle(&proxy, head, &[b'x'; 50], 50).status(), 200);
}

/// Never silent for long, and never done.
#[test]
fn a_trickle_of_a_request_body_is_answered_408() {
    let origin = hello();
    let proxy = Proxy::start_with(&origin, |c| c.timeouts.body_idle = SHORT);
    let trickle = |head, piece, pieces| trickle(&proxy, head, piece, pieces);
    for (head, piece) in [
        (&b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 500\r\n\r\n"[..], &b"x"[..]),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ] {
        let answer = trickle(head, piece, 300);
        assert_eq!(answer.status(), 408, "{answer:?}");
        assert!(answer.cache().contains("detail=client-timeout"), "{answer:?}");
    }
    let status = block_on(async {
        let stream = tokio::net::TcpStream::connect(proxy.info.address).await.expect("connect");
        let io = (TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = http2::handshake(io.0, io.1).await.expect("HTTP/2");
        tokio::spawn(connection);
        let body = Drip(tokio::time::interval(SHORT / 10));
        let request = Request::post("http://a/").body(body).expect("request");
        sender.send_request(request).await.expect("an answer").status()
    });
    assert_eq!(status, 408);
}

#[test]
fn one_client_has_so_many_connections_and_no_more() {
    let origin = hello();
    let proxy = Proxy::start_with(&origin, |config| {
        listen(config, "proxy+tcp:127.0.0.1:0");
        config.proxy_protocol.networks = vec!["127.0.0.0/8".parse().expect("network")];
        config.limits.connections_per_client_max = 2;
    });
    let address = tcp_address(&proxy.info, 0);
    let open = |client: &str| {
        let mut stream = connect(address);
        let header = format!("PROXY TCP4 {client} 192.0.2.1 1000 80\r\n");
        stream.write_all(header.as_bytes()).expect("write");
        stream.write_all(GET).expect("write");
        let answer = read_message(&mut BufReader::new(&stream), false).expect("an answer");
        (stream, answer.status())
    };
    let (mut first, mut second) = (open("198.51.100.1"), open("198.51.100.1"));
    assert_eq!((first.1, second.1), (200, 200));
    for stream in [&mut first.0, &mut second.0] {
        // Half of the next one: it is in use.
        stream.write_all(&GET[..5]).expect("write");
    }
    assert_eq!(open("198.51.100.1").1, 429);
    assert_eq!(open("198.51.100.2").1, 200);
    drop(first);
    eventually("a place comes free", || open("198.51.100.1").1 == 200);
    let unused = ["198.51.100.3"; 2].map(open);
    assert_eq!((unused[0].1, unused[1].1), (200, 200));
    eventually("what it does not use makes room", || open("198.51.100.3").1 == 200);
}

/// To the last byte, and no further: what is longer or shorter than it says breaks clients.
#[test]
fn who_is_turned_away_is_told_why_in_a_sound_message() {
    let origin = hello();
    let proxy = Proxy::start_with(&origin, |config| {
        listen(config, "proxy+tcp:127.0.0.1:0");
        config.proxy_protocol.networks = vec!["127.0.0.0/8".parse().expect("network")];
        config.limits.connections_per_client_max = 1;
    });
    let address = tcp_address(&proxy.info, 0);
    let open = |header: &str| {
        let mut stream = connect(address);
        stream.write_all(&[header.as_bytes(), GET].concat()).expect("write");
        let mut reader = BufReader::new(stream);
        let answer = read_message(&mut reader, false).expect("an answer");
        (answer, reader)
    };
    let header = "PROXY TCP4 198.51.100.1 192.0.2.1 1000 80\r\n";
    let (first, in_use) = open(header);
    assert_eq!(first.status(), 200);
    (&mut in_use.get_ref()).write_all(&GET[..5]).expect("write");
    for (header, status, words) in [
        ("", 400, "400 The connection must begin with a PROXY protocol header.\n"),
        (header, 429, "429 Too many connections from your address.\n"),
    ] {
        let (answer, mut rest) = open(header);
        assert_eq!((answer.status(), answer.text().as_str()), (status, words));
        assert!(answer.complete && answer.header("connection") == "close");
        let mut behind = Vec::new();
        let _ = rest.read_to_end(&mut behind);
        assert_eq!(String::from_utf8_lossy(&behind), "", "behind the answer");
    }
}

#[test]
fn a_balancer_that_is_listed_is_not_one_client() {
    let origin = hello();
    let configure = |config: &mut ProxyConfig, networks: &[&str]| {
        config.proxy_protocol.networks = vec!["127.0.0.0/8".parse().expect("network")];
        config.limits.connections_per_client_max = 1;
        config.forwarded.trust_client = true;
        let network = |text: &&str| text.parse().expect("network");
        config.forwarded.trust_networks = networks.iter().map(network).collect();
    };
    let proxy = Proxy::start_with(&origin, |config| {
        listen(config, "proxy+tcp:127.0.0.1:0");
        configure(config, &["198.51.100.0/24"]);
    });
    // In use, all of them: half of the next request is there.
    let open = |client: &str| {
        let mut stream = connect(tcp_address(&proxy.info, 0));
        let header = format!("PROXY TCP4 {client} 192.0.2.1 1000 80\r\n");
        stream.write_all(&[header.as_bytes(), GET].concat()).expect("write");
        let status = read_message(&mut BufReader::new(&stream), false).expect("an answer").status();
        let _ = stream.write_all(&GET[..5]);
        (stream, status)
    };
    let statuses = |opened: &[(TcpStream, u16)]| opened.iter().map(|one| one.1).collect::<Vec<_>>();
    let listed = ["198.51.100.1"; 3].map(open);
    assert_eq!(statuses(&listed), [200; 3]);
    let other = ["203.0.113.1"; 2].map(open);
    assert_eq!(statuses(&other), [200, 429]);
    drop((listed, other));

    let reload = |networks: &[&str]| {
        let url = format!("http://{}", origin.address);
        let to = damelo_http_proxy::OriginTarget::Url(url);
        let mut config = ProxyConfig::new(proxy.info.address, to);
        configure(&mut config, networks);
        proxy.info.control.reload(config).expect("reloaded");
    };
    reload(&["203.0.113.0/24"]);
    let now = ["203.0.113.2", "203.0.113.2", "198.51.100.2", "198.51.100.2"].map(open);
    assert_eq!(statuses(&now), [200, 200, 200, 429]);
    drop(now);
    reload(&[]);
    let none = ["203.0.113.3"; 2].map(open);
    assert_eq!(statuses(&none), [200, 429], "nobody is listed");
}

#[test]
fn the_proxy_protocol_names_the_client() {
    let origin = Origin::start(|_| reply(200, "Cache-Control: no-store", "hello"));
    let proxy = Proxy::start_with(&origin, |config| {
        listen(config, "proxy+tcp:127.0.0.1:0");
        config.proxy_protocol.networks = vec!["127.0.0.1/32".parse().expect("network")];
    });
    let address = tcp_address(&proxy.info, 0);
    let mut version_2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x24".to_vec();
    version_2.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    version_2.extend([0; 16]);
    version_2.extend([0x13, 0x88, 0, 80]);
    for (header, client) in [
        (&b"PROXY TCP4 198.51.100.7 192.0.2.1 1000 80\r\n"[..], "198.51.100.7"),
        (b"PROXY UNKNOWN\r\n", "127.0.0.1"),
        (&version_2, "2001:db8::9"),
    ] {
        let answer = raw_answer(address, &[header, GET].concat());
        assert_eq!(answer.text(), "hello");
        assert_eq!(origin.last().header("x-forwarded-for"), client);
    }
}

#[test]
fn the_proxy_protocol_is_demanded_where_configured_and_believed_nowhere_else() {
    let origin = hello();
    let proxy = Proxy::start_with(&origin, |config| {
        listen(config, "proxy+tcp:127.0.0.1:0");
        config.timeouts.client_header = SHORT;
        config.proxy_protocol.networks = vec!["127.0.0.1/32".parse().expect("network")];
    });
    let header = b"PROXY TCP4 198.51.100.7 192.0.2.1 1000 80\r\n";
    for (bytes, status) in [
        (GET, "400"),
        (b"PROXY TCP4 bogus\r\n", "400"),
        // The rest never comes.
        (b"PROXY TCP4 198.51.100.7", "408"),
        (b"", "408"),
    ] {
        let answer = raw(tcp_address(&proxy.info, 0), bytes);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{bytes:?}: {answer}");
    }
    let answer = raw(proxy.info.address, &[header, GET].concat());
    assert!(answer.starts_with("HTTP/1.1 400 "), "not configured there: {answer}");
    assert_eq!(origin.count(), 0);

    let untrusted = Proxy::start_with(&origin, |config| {
        listen(config, "proxy+tcp:127.0.0.1:0");
        config.proxy_protocol.networks = vec!["10.0.0.0/8".parse().expect("network")];
    });
    let answer = raw(tcp_address(&untrusted.info, 0), &[header, GET].concat());
    assert!(answer.starts_with("HTTP/1.1 400 "), "not from there: {answer}");
    assert_eq!(origin.count(), 0);
    let to = damelo_http_proxy::OriginTarget::Demo;
    let mut config = damelo_http_proxy::ProxyConfig::new(untrusted.info.address, to);
    config.proxy_protocol.networks = vec!["127.0.0.1/32".parse().expect("network")];
    untrusted.info.control.reload(config).expect("reloaded");
    let answer = raw(tcp_address(&untrusted.info, 0), &[header, GET].concat());
    assert!(answer.starts_with("HTTP/1.1 200 "), "a reload believes it: {answer}");
}

#[test]
fn unix_sockets_are_served_and_cleaned_up() {
    let origin = hello();
    let home = tempfile::tempdir().expect("tempdir");
    let path = home.path().join("proxy.sock");
    // What a crash leaves behind.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("bind"));
    let proxy = Proxy::start_with(&origin, |config| {
        listen(config, &format!("unix:{}", path.display()));
    });
    for _ in 0..8 {
        let mut stream = UnixStream::connect(&path).expect("connect");
        stream.write_all(GET).expect("write");
        let answer = read_message(&mut BufReader::new(stream), false).expect("an answer");
        assert_eq!(answer.text(), "hello");
    }
    assert_eq!(origin.count(), 1);
    proxy.stop();
    assert!(!path.exists(), "the socket is removed");
}

#[test]
fn expectations() {
    let origin = Origin::start(|request| reply(200, "", request.body.clone()));
    let proxy = Proxy::start(&origin);
    let mut stream = connect(proxy.info.address);
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n";
    stream.write_all(head).expect("write");
    let mut reader = BufReader::new(stream.try_clone().expect("clone"));
    assert_eq!(read_message(&mut reader, true).expect("an answer").status(), 100);
    stream.write_all(b"body").expect("write");
    assert_eq!(read_message(&mut reader, false).expect("an answer").text(), "body");
    let odd = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: wonders\r\n\r\n";
    assert_eq!(raw_answer(proxy.info.address, odd).status(), 417);
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_request_refused_by_its_headers_gets_no_100() {
    let origin = hello();
    let proxy = Proxy::start(&origin);
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 4\r\n\
        Expect: 100-continue\r\n\r\n";
    assert_eq!(raw_answer(proxy.info.address, head).status(), 400);
}

/// An origin that holds what is at `/held` and what is posted until the gate opens.
fn holding(gate: &Gate) -> Origin {
    let gate = gate.clone();
    Origin::start(move |request| {
        if request.path() == "/held" || request.method() == "POST" {
            gate.wait();
        }
        let fields = if request.path() == "/held" { "no-store" } else { "max-age=60" };
        reply(200, &format!("Cache-Control: {fields}"), "x")
    })
}

/// Some clients offer HTTP/2 in every request; that changes nothing here.
const OFFERS: [&str; 2] =
    ["", "Connection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAM"];

#[test]
fn a_client_that_goes_before_its_answer_leaves_its_place() {
    OFFERS.into_iter().for_each(goes_before_its_answer);
}

fn goes_before_its_answer(offer: &str) {
    let gate = Gate::default();
    let origin = holding(&gate);
    let proxy = Proxy::start_with(&origin, |config| {
        config.upstream.requests_per_origin_max = 1;
        config.timeouts.connect = SHORT * 2;
    });
    let address = proxy.info.address;
    let gone = send_to(address, "GET", "/held", offer, b"");
    eventually("it is asked for", || origin.count() == 1);
    assert_eq!(proxy.get("/taken").status(), 503);
    drop(gone);
    eventually("its place is free", || proxy.get("/free").status() == 200);
    gate.open();
}

#[test]
fn what_a_client_that_has_gone_may_have_changed_is_not_served_from_the_cache() {
    let gate = Gate::default();
    let origin = holding(&gate);
    let proxy = Proxy::start(&origin);
    assert_eq!(proxy.get("/a").text(), "x");
    assert!(proxy.get("/a").cache().contains("hit"));
    let gone = send_to(proxy.info.address, "POST", "/a", "Content-Length: 0", b"");
    eventually("it is asked for", || origin.count() == 2);
    drop(gone);
    eventually("it is asked for again", || !proxy.get("/a").cache().contains("hit"));
    gate.open();
}

#[test]
fn a_client_that_only_stops_sending_is_answered_where_that_is_set() {
    let gate = Gate::default();
    let origin = holding(&gate);
    let proxy = Proxy::start_with(&origin, |config| config.limits.half_closed_clients = true);
    let mut stream = send_to(proxy.info.address, "GET", "/held", "", b"");
    stream.get_ref().shutdown(std::net::Shutdown::Write).expect("shutdown");
    eventually("it is asked for", || origin.count() == 1);
    gate.open();
    assert_eq!(read_message(&mut stream, false).expect("an answer").text(), "x");
}

/// The kernel deals connections by a hash, by which some worker of four has more than another
/// before they are many.
#[test]
fn connections_are_dealt_out_among_workers_and_are_served_by_whom_they_were_given_to() {
    let origin = hello();
    let proxy = Proxy::start_with(&origin, |config| config.workers = 4);
    let mut clients: Vec<_> = (0..40).map(|_| connect(proxy.info.address)).collect();
    for _ in 0..2 {
        for client in &mut clients {
            client.write_all(GET).expect("sent");
            let answer = read_message(&mut BufReader::new(client), false).expect("an answer");
            assert_eq!(answer.text(), "hello");
        }
    }
    let (accepted, given) =
        ("damelo_proxy_connections_total", "damelo_proxy_connections_given_total");
    assert!(proxy.metric(accepted) >= 40);
    assert!((1..40).contains(&proxy.metric(given)), "{}", proxy.metric(given));
}
