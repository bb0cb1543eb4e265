//! Bodies arrive as they were sent, or visibly not: origins that break off at any byte of their
//! answer, and contents in codings that nobody here is to undo.

mod support;

use std::collections::HashSet;
use std::io::{BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use damelo_http_proxy::OriginTarget;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use support::wire::{block_on, http2_to};
use support::{Home, Origin, PATIENCE, Proxy, Reply, noise, read_message, reply};

const BODY: &[u8] = b"all of it, or an error";

/// How the body of an answer is told from what follows.
#[derive(Debug, Clone, Copy)]
enum Framing {
    Length,
    Chunks,
    ChunksAndTrailer,
}

fn whole_answer(framing: Framing) -> Vec<u8> {
    let (fields, body) = match framing {
        Framing::Length => (format!("Content-Length: {}", BODY.len()), BODY.to_vec()),
        Framing::Chunks | Framing::ChunksAndTrailer => {
            let (a, b) = BODY.split_at(10);
            let chunk = |part: &[u8]| {
                let size = format!("{:x};x=y\r\n", part.len());
                [size.as_bytes(), part, b"\r\n"].concat()
            };
            let end = match framing {
                Framing::Chunks => &b"0\r\n\r\n"[..],
                _ => b"0\r\nX-Sum: 1\r\n\r\n",
            };
            ("Transfer-Encoding: chunked".to_owned(), [chunk(a), chunk(b), end.to_vec()].concat())
        }
    };
    let head = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n{fields}\r\n\r\n");
    [head.into_bytes(), body].concat()
}

/// Breaks off after as many bytes as the path says, the first time that it is asked for.
fn breaking(framing: Framing) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    let seen: Arc<Mutex<HashSet<String>>> = Arc::default();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, seen) = (stream.expect("accept"), seen.clone());
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().expect("clone"));
                while let Some(request) = read_message(&mut reader, false) {
                    let answer = whole_answer(framing);
                    let first = seen.lock().expect("lock").insert(request.path().to_owned());
                    let number = request.path().rsplit('/').next().and_then(|n| n.parse().ok());
                    let end = number.filter(|_| first).unwrap_or(answer.len());
                    if stream.write_all(&answer[..end]).is_err() || end < answer.len() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// What a client of each version takes for the whole body of an answer, if anything.
fn taken_for_whole(version: &str, address: SocketAddr, path: &str) -> Option<Vec<u8>> {
    if version == "HTTP/2" {
        return block_on(async {
            let request = Request::get(format!("http://a{path}")).body(Full::<Bytes>::default());
            let mut sender = http2_to(address).await;
            let response = sender.send_request(request.expect("request")).await.ok()?;
            let ok = response.status() == 200;
            let body = response.into_body().collect().await.ok()?.to_bytes();
            ok.then(|| body.to_vec())
        });
    }
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    let request = format!("GET {path} {version}\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("write");
    let mut stream = BufReader::new(stream);
    let answer = read_message(&mut stream, false).filter(|answer| answer.status() == 200)?;
    assert!(stream.read(&mut [0]).is_ok_and(|bytes| bytes == 0) || !answer.complete);
    answer.complete.then_some(answer.body)
}

#[test]
fn an_origin_that_breaks_off_at_any_byte_is_seen_to_do_so() {
    for framing in [Framing::Length, Framing::Chunks, Framing::ChunksAndTrailer] {
        let home = Home::new();
        let origin = breaking(framing);
        let proxy = Proxy::start_in(&home, OriginTarget::Url(format!("http://{origin}")), |_| {});
        let address = proxy.info.address;
        for (version, name) in [("HTTP/1.1", "a"), ("HTTP/1.0", "b"), ("HTTP/2", "c")] {
            let length = whole_answer(framing).len();
            for end in 0..length {
                let path = format!("/{name}/{end}");
                let taken = taken_for_whole(version, address, &path);
                assert_eq!(taken, None, "{framing:?} {version}: {end} of {length} bytes");
            }
        }
        assert_eq!(proxy.metric("damelo_proxy_stored_total"), 0, "{framing:?}");
        for end in [0, 20, 70, whole_answer(framing).len() - 1] {
            let again = proxy.get(&format!("/a/{end}"));
            assert!(again.complete && again.body == BODY, "{framing:?} {end}: {again:?}");
            assert!(again.cache().contains("uri-miss"), "{framing:?} {end}: {again:?}");
        }
    }
}

#[test]
fn a_large_body_that_breaks_off_anywhere_is_never_served_again() {
    const LENGTH: usize = 600_000;
    let ends = [0, 1, 65_535, 131_072, 262_144, 262_145, 500_000, LENGTH - 1];
    for chunked in [false, true] {
        let broken: Mutex<HashSet<String>> = Mutex::default();
        let origin = Origin::start(move |request| {
            let first = broken.lock().expect("lock").insert(request.path().to_owned());
            let end = request.path()[1..].parse().expect("a number");
            let answer = reply(200, "Cache-Control: max-age=60", noise(5, LENGTH));
            Reply { chunked, break_after: first.then_some(end), ..answer }
        });
        let proxy = Proxy::start(&origin);
        for end in ends {
            let path = format!("/{end}");
            assert!(taken_for_whole("HTTP/1.1", proxy.info.address, &path).is_none(), "{end}");
            let again = proxy.get(&path);
            assert!(again.complete && again.body == noise(5, LENGTH), "{end}");
            assert!(again.cache().contains("uri-miss"), "{end}: {}", again.cache());
        }
    }
}

/// `hello hello hello hello`, as gzip has it.
const GZIP: &[u8] = &[
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0x57,
    0xc8, 0x40, 0x27, 0x01, 0xe3, 0x51, 0x3d, 0x8d, 0x17, 0x00, 0x00, 0x00,
];

#[test]
fn a_coded_body_goes_through_byte_by_byte() {
    for chunked in [false, true] {
        let origin = Origin::start(move |request| {
            let fields = "Cache-Control: max-age=60\nContent-Encoding: gzip\nVary: Accept-Encoding";
            let body = if request.path() == "/odd" { b"not gzip at all" } else { GZIP };
            Reply { chunked, ..reply(200, fields, body) }
        });
        let proxy = Proxy::start(&origin);
        for accepts in ["", "Accept-Encoding: gzip", "Accept-Encoding: identity"] {
            for (path, body) in [("/x", GZIP), ("/odd", b"not gzip at all")] {
                for cached in [false, true] {
                    let answer = proxy.get_with(path, accepts);
                    assert_eq!(answer.cache().contains("; hit"), cached, "{path} {accepts}");
                    assert_eq!(answer.header("content-encoding"), "gzip", "{path} {accepts}");
                    assert!(answer.complete && answer.body == body, "{path} {accepts}: {answer:?}");
                }
            }
            let part = proxy.get_with("/x", &format!("{accepts}\nRange: bytes=2-5"));
            assert_eq!((part.status(), &part.body[..]), (206, &GZIP[2..6]), "{accepts}");
        }
    }
}
