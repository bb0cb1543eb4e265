//! `Expect: 100-continue` (RFC 9110 §10.1.1): who waits for whom before a body is sent.

mod support;

use std::io::{BufReader, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use damelo_http_proxy::ProxyConfig;
use support::{Home, Message, PATIENCE, Proxy, read_message, send_to};

const EXPECT: &str = "Expect: 100-continue\nContent-Length: 4";
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// Long enough for what must not come to come.
const MOMENT: Duration = Duration::from_millis(300);

/// A proxy whose client has sent a head, and the origin that has it.
struct Asked {
    _proxy: Proxy,
    _home: Home,
    client: BufReader<TcpStream>,
    origin: BufReader<TcpStream>,
    head: Message,
}

fn ask(tweak: impl FnOnce(&mut ProxyConfig)) -> Asked {
    let (listener, home) = (TcpListener::bind("127.0.0.1:0").expect("bind"), Home::new());
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let proxy = Proxy::start_to(&home, url, tweak);
    let client = send_to(proxy.info.address, "POST", "/", EXPECT, b"");
    let (stream, _) = listener.accept().expect("accept");
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    let mut origin = BufReader::new(stream);
    // Of a head alone.
    let head = read_message(&mut origin, true).expect("a head");
    Asked { _proxy: proxy, _home: home, client, origin, head }
}

fn patient(config: &mut ProxyConfig) {
    config.timeouts.origin_continue = PATIENCE * 2;
}

/// That nothing comes.
fn is_silent(stream: &mut BufReader<TcpStream>) -> bool {
    stream.get_ref().set_read_timeout(Some(MOMENT)).expect("timeout");
    let came = stream.read(&mut [0; 1]).map_err(|error| error.kind());
    stream.get_ref().set_read_timeout(Some(PATIENCE)).expect("timeout");
    matches!(came, Err(ErrorKind::WouldBlock))
}

fn say(stream: &BufReader<TcpStream>, bytes: &[u8]) {
    (&mut stream.get_ref()).write_all(bytes).expect("write");
}

/// The body goes on, and the answer comes back.
fn finishes(mut asked: Asked) {
    assert_eq!(read_message(&mut asked.client, true).expect("an answer").status(), 100);
    say(&asked.client, b"body");
    let mut body = [0; 4];
    asked.origin.read_exact(&mut body).expect("the body");
    assert_eq!(&body, b"body");
    say(&asked.origin, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    assert_eq!(read_message(&mut asked.client, false).expect("an answer").text(), "ok");
}

#[test]
fn the_client_is_told_to_go_on_when_the_origin_says_so() {
    let mut asked = ask(patient);
    assert_eq!(asked.head.header("expect"), "100-continue");
    assert!(is_silent(&mut asked.client), "nobody wants the body yet");
    say(&asked.origin, CONTINUE);
    finishes(asked);
}

#[test]
fn what_the_origin_refuses_is_not_sent() {
    for length in [0, 3] {
        let mut asked = ask(patient);
        let head = format!("HTTP/1.1 401 X\r\nContent-Length: {length}\r\n\r\n");
        say(&asked.origin, &[head.as_bytes(), &b"no!"[..length]].concat());
        let refused = read_message(&mut asked.client, false).expect("an answer");
        assert_eq!((refused.status(), refused.body.len()), (401, length), "{refused:?}");
        assert!(refused.complete && refused.header("connection") == "close", "{refused:?}");
        // One that sends it all the same.
        let _ = (&mut asked.client.get_ref()).write_all(b"body");
        let mut came = Vec::new();
        let end = asked.origin.read_to_end(&mut came).map_err(|error| error.kind());
        assert!(came.is_empty() && end != Err(ErrorKind::WouldBlock), "{end:?} {came:?}");
    }
}

#[test]
fn an_origin_that_says_nothing_gets_the_body_all_the_same() {
    let asked = ask(|config| config.timeouts.origin_continue = MOMENT);
    assert_eq!(asked.head.header("expect"), "100-continue");
    finishes(asked);
    let asked = ask(|config| config.timeouts.origin_continue = Duration::ZERO);
    assert!(!asked.head.has("expect"), "it is not asked");
    finishes(asked);
}
