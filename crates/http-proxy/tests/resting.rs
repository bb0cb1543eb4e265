//! Connections that are silent for a while: they let go of their buffers, and nobody notices; and
//! end where others need their places.

mod support;

use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use damelo_http_proxy::{CertificateFiles, ListenAddress, ProxyConfig};
use support::frames::{SETTINGS, http2_raw, next_frame};
use support::wire::{Authority, block_on};
use support::{Origin, Proxy, eventually, read_message, reply};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::rustls::pki_types::ServerName;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const REST: Duration = Duration::from_millis(50);

fn hello() -> Origin {
    Origin::start(|_| reply(200, "Cache-Control: max-age=60", "hello"))
}

fn soon(config: &mut ProxyConfig) {
    config.timeouts.client_rest = REST;
}

/// Listens for TLS, as `a.test`.
fn tls(config: &mut ProxyConfig, authority: &Authority, home: &Path) {
    let files = CertificateFiles { chain: home.join("a.pem"), key: home.join("a.key") };
    authority.issue("a.test", &files.chain, &files.key);
    config.listen = vec!["tls+tcp:127.0.0.1:0".parse().expect("a listener")];
    config.tls.certificates = vec![files];
}

fn rested(proxy: &Proxy) -> u64 {
    proxy.metric("damelo_proxy_connections_rested_total")
}

/// A connection to the proxy, which also asks for metrics on connections of their own.
struct Client {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    fn of(proxy: &Proxy) -> Client {
        let stream = TcpStream::connect(proxy.info.address).expect("connect");
        stream.set_read_timeout(Some(support::PATIENCE)).expect("timeout");
        let reader = BufReader::new(stream.try_clone().expect("clone"));
        Client { stream, reader }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("write");
    }

    fn expect_hello(&mut self) {
        assert_eq!(read_message(&mut self.reader, false).expect("an answer").text(), "hello");
    }

    fn rest_of_it(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.reader.read_to_end(&mut rest).expect("a clean end");
        rest
    }
}

#[test]
fn a_connection_that_rested_answers_as_before() {
    let origin = hello();
    let proxy = Proxy::start_with(&origin, soon);
    let mut client = Client::of(&proxy);
    for round in 0..3 {
        client.send(GET);
        client.expect_hello();
        eventually("it rests", || rested(&proxy) == round + 1);
    }
    // The second request of two may come in with the first.
    client.send(&[GET, GET].concat());
    client.expect_hello();
    client.expect_hello();
    assert_eq!(proxy.metric("damelo_proxy_connections_total"), 1);
}

#[test]
fn half_a_request_that_came_before_the_rest_is_not_lost() {
    let origin = hello();
    let proxy = Proxy::start_with(&origin, soon);
    let mut client = Client::of(&proxy);
    // Together with the first, and so not told from it by when it came.
    client.send(&[GET, &GET[..9]].concat());
    client.expect_hello();
    eventually("it rests", || rested(&proxy) == 1);
    client.send(&GET[9..]);
    client.expect_hello();
    // By itself: headers are on their way, and have the time for headers.
    client.send(&GET[..9]);
    std::thread::sleep(REST * 4);
    client.send(&GET[9..]);
    client.expect_hello();
}

#[test]
fn the_rest_of_a_body_never_becomes_a_request() {
    let origin = hello();
    let proxy = Proxy::start_with(&origin, soon);
    let mut client = Client::of(&proxy);
    // Refused before its body is there.
    client.send(b"TRACE / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc");
    let answer = read_message(&mut client.reader, false).expect("an answer");
    assert_eq!(answer.status(), 405);
    std::thread::sleep(REST * 4);
    // Whether it can still be sent does not matter.
    let _ = client.stream.write_all(b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut rest = Vec::new();
    let _ = client.reader.read_to_end(&mut rest);
    assert_eq!((rest, origin.count(), rested(&proxy)), (vec![], 0, 0));
}

#[test]
fn after_a_request_with_a_body_a_connection_keeps_what_it_has() {
    let origin = hello();
    let proxy = Proxy::start_with(&origin, soon);
    let mut client = Client::of(&proxy);
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    client.expect_hello();
    std::thread::sleep(REST * 4);
    assert_eq!(rested(&proxy), 0);
    client.send(GET);
    client.expect_hello();
    eventually("it rests", || rested(&proxy) == 1);
}

#[test]
fn the_time_between_requests_goes_on_while_a_connection_rests() {
    let origin = hello();
    let idle = REST * 10;
    let proxy = Proxy::start_with(&origin, |config| {
        soon(config);
        config.timeouts.client_idle = idle;
    });
    let mut client = Client::of(&proxy);
    let start = Instant::now();
    client.send(GET);
    client.expect_hello();
    assert_eq!(client.rest_of_it(), b"");
    assert!(start.elapsed() >= idle);
    assert_eq!(rested(&proxy), 1);
}

#[test]
fn a_stop_does_not_wait_for_those_at_rest() {
    let origin = hello();
    let proxy = Proxy::start_with(&origin, soon);
    let mut client = Client::of(&proxy);
    client.send(GET);
    client.expect_hello();
    eventually("it rests", || rested(&proxy) == 1);
    let start = Instant::now();
    proxy.stop();
    assert_eq!(client.rest_of_it(), b"");
    assert!(start.elapsed() < support::PATIENCE / 2, "took {:?}", start.elapsed());
}

#[test]
fn over_tls_as_well() {
    let (authority, origin, home) = (Authority::new(), hello(), tempfile::tempdir().expect("dir"));
    let proxy = Proxy::start_with(&origin, |config| {
        soon(config);
        tls(config, &authority, home.path());
    });
    let ListenAddress::Tcp(address) = proxy.info.listeners[0].address else { panic!("not TCP") };
    block_on(async {
        let tcp = tokio::net::TcpStream::connect(address).await.expect("connect");
        let name = ServerName::try_from("a.test").expect("name");
        let mut stream = authority.connector(&[]).connect(name, tcp).await.expect("TLS");
        for round in 1..=3 {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.expect("write");
            let mut answer = Vec::new();
            while !answer.ends_with(b"hello") {
                answer.push(stream.read_u8().await.expect("an answer"));
            }
            eventually("it rests", || rested(&proxy) >= round);
        }
    });
}

/// Those that nobody has used for longest end, as between any two requests; no other does.
#[test]
fn connections_that_nobody_uses_make_room_for_others() {
    for rest in [REST, Duration::from_secs(60)] {
        let origin = hello();
        let proxy = Proxy::start_with(&origin, |config| {
            config.workers = 1;
            config.limits.connections_max = 4;
            config.timeouts.client_rest = rest;
        });
        let mut http2 = http2_raw(proxy.info.address);
        while next_frame(&mut http2).expect("its settings").kind != SETTINGS {}
        let mut silent = Client::of(&proxy);
        std::thread::sleep(Duration::from_millis(5));
        let mut others = [(); 2].map(|()| {
            let mut client = Client::of(&proxy);
            client.send(GET);
            client.expect_hello();
            std::thread::sleep(2 * REST);
            client
        });
        let mut clients = Vec::new();
        for _ in 0..3 {
            let mut client = Client::of(&proxy);
            client.send(GET);
            client.expect_hello();
            clients.push(client);
        }
        while next_frame(&mut http2).is_some() {}
        assert_eq!(silent.rest_of_it(), b"");
        assert_eq!(others[0].rest_of_it(), b"");
        others[1].send(GET);
        others[1].expect_hello();
        for client in &mut clients {
            client.send(GET);
            client.expect_hello();
        }
        assert_eq!(proxy.metric("damelo_proxy_connections_made_room_total"), 3);
    }
}

#[test]
fn who_has_sent_half_a_request_makes_no_room() {
    let keeps_its_place = |_| {
        let origin = hello();
        let proxy = Proxy::start_with(&origin, |config| {
            config.workers = 1;
            config.limits.connections_max = 1;
        });
        let mut half = Client::of(&proxy);
        half.send(GET);
        half.expect_hello();
        half.send(&GET[..10]);
        std::thread::sleep(REST);
        let mut other = Client::of(&proxy);
        other.send(GET);
        std::thread::sleep(4 * REST);
        if proxy.metric("damelo_proxy_connections_total") > 1 {
            return false;
        }
        half.send(&GET[10..]);
        half.expect_hello();
        other.expect_hello();
        assert_eq!(half.rest_of_it(), b"");
        true
    };
    // On a busy machine the half may not have been read when the other comes.
    assert!((0..5).any(keeps_its_place), "the other does not wait");
}

/// It has had no time to ask for anything, as one in clear text has.
#[test]
fn a_connection_over_tls_that_is_new_as_the_proxy_stops_is_answered() {
    let (authority, origin, home) = (Authority::new(), hello(), tempfile::tempdir().expect("dir"));
    let proxy = Proxy::start_with(&origin, |config| tls(config, &authority, home.path()));
    let ListenAddress::Tcp(address) = proxy.info.listeners[0].address else { panic!("not TCP") };
    block_on(async {
        let tcp = tokio::net::TcpStream::connect(address).await.expect("connect");
        let name = ServerName::try_from("a.test").expect("name");
        let mut stream = authority.connector(&[]).connect(name, tcp).await.expect("TLS");
        // The proxy has finished its side of the handshake.
        tokio::time::sleep(REST).await;
        let begun = Instant::now();
        let stopping = std::thread::spawn(move || proxy.stop());
        tokio::time::sleep(REST).await;
        let sent = stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
        // On a busy machine it may have come too late.
        if begun.elapsed() < 4 * REST {
            sent.expect("write");
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.expect("an answer");
            assert!(answer.ends_with(b"hello"), "{answer:?}");
        }
        stopping.join().expect("it stops");
    });
}
