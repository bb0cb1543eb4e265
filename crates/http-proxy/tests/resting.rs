//! HTTP/1 connections that are silent for a while: they let go of their buffers, and nobody
//! notices.

mod support;

use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use damelo_http_proxy::{CertificateFiles, ListenAddress, ProxyConfig};
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
    assert!(start.elapsed() >= idle && start.elapsed() < support::PATIENCE / 2);
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
    let files =
        CertificateFiles { chain: home.path().join("a.pem"), key: home.path().join("a.key") };
    authority.issue("a.test", &files.chain, &files.key);
    let proxy = Proxy::start_with(&origin, |config| {
        soon(config);
        config.listen = vec!["tls+tcp:127.0.0.1:0".parse().expect("a listener")];
        config.tls.certificates = vec![files];
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
