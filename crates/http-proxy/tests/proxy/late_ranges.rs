//! Ranges that are asked for as they are, while another client is sent the same or the whole: what
//! would come later than from the origin is not waited for.

use std::io::{BufReader, Read as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::ranges::slice_of;
use crate::support::{
    Gate, Message, Origin, PATIENCE, Proxy, Reply, eventually, noise, read_some, reply, send_to,
};

const LENGTH: usize = 3 << 20;
/// What the origin sends of its first answer before it waits for the gate.
const HELD_AT: usize = 65536;

/// An origin of this body, by parts, too. Its first answer waits for the first gate, the others for
/// the second.
fn held(body: &[u8], headers: &'static str) -> (Origin, [Gate; 2]) {
    let (body, gates, asked) =
        (body.to_vec(), [Gate::default(), Gate::default()], AtomicUsize::new(0));
    let [first, others] = gates.clone();
    let origin = Origin::start(move |request| {
        let answer = slice_of(request, &body, headers);
        let chunked = request.path() == "/chunked" && answer.status == 200;
        if asked.fetch_add(1, Ordering::SeqCst) == 0 {
            return Reply { hold: Some((HELD_AT, first.clone())), chunked, ..answer };
        }
        others.wait();
        Reply { chunked, ..answer }
    });
    (origin, gates)
}

/// Nobody waits so long that a client loses patience.
fn patient(origin: &Origin) -> Proxy {
    Proxy::start_with(origin, |config| config.timeouts.collapse = PATIENCE * 2)
}

/// A client that has the beginning of its answer, which is held.
fn begun(proxy: &Proxy, path: &str, headers: &str) -> (BufReader<TcpStream>, Message, Vec<u8>) {
    let mut stream = send_to(proxy.info.address, "GET", path, headers, b"");
    let (head, start) = read_some(&mut stream, 1000);
    (stream, head, start)
}

fn rest((mut stream, _, mut body): (BufReader<TcpStream>, Message, Vec<u8>)) -> Vec<u8> {
    stream.read_to_end(&mut body).expect("the rest");
    body
}

#[test]
fn a_long_part_is_not_waited_for() {
    let body = noise(61, LENGTH);
    let (origin, [gate, others]) = held(&body, "ETag: \"v1\"");
    others.open();
    let proxy = patient(&origin);
    let range = "Range: bytes=-3000000";
    let first = begun(&proxy, "/", range);
    assert_eq!(first.1.status(), 206);
    let other = proxy.get_with("/", range);
    assert!(other.status() == 206 && other.complete, "{}", other.cache());
    assert!(other.body == body[LENGTH - 3_000_000..]);
    assert_eq!(origin.count(), 2);
    gate.open();
    assert!(rest(first) == body[LENGTH - 3_000_000..]);
}

#[test]
fn the_end_of_what_has_no_length_is_not_waited_for() {
    let body = noise(62, LENGTH);
    let (origin, [gate, others]) = held(&body, "ETag: \"v1\"");
    others.open();
    let proxy = patient(&origin);
    let first = begun(&proxy, "/chunked", "");
    assert!(!first.1.has("content-length"));
    let end = proxy.get_with("/chunked", "Range: bytes=-500");
    assert!(end.status() == 206 && end.body == body[LENGTH - 500..], "{}", end.cache());
    gate.open();
    assert!(rest(first).ends_with(b"\r\n0\r\n\r\n"), "it was still coming");
}

/// Whatever its origin says of ranges, unless it says that it has none.
#[test]
fn what_is_far_ahead_of_a_fill_is_asked_for_once_by_all_who_want_it() {
    let body = noise(63, LENGTH);
    for range in ["bytes=-500", "bytes=0-1,3000000-3000009"] {
        let (origin, [gate, others]) = held(&body, "ETag: \"v1\"");
        let proxy = patient(&origin);
        let first = begun(&proxy, "/", "");
        let headers = format!("Range: {range}");
        std::thread::scope(|scope| {
            let ask = || proxy.get_with("/", &headers);
            let clients: Vec<_> = (0..3).map(|_| scope.spawn(ask)).collect();
            eventually("one asks, and two wait for it", || {
                origin.count() == 2 && proxy.metric("damelo_proxy_collapsed_waiting") == 2
            });
            others.open();
            for client in clients {
                let answer = client.join().expect("an answer");
                assert!(answer.complete, "{range}: {}", answer.cache());
                // This origin does not send several ranges at once.
                match answer.status() {
                    206 if range == "bytes=-500" => assert!(answer.body == body[LENGTH - 500..]),
                    206 => assert!(answer.body.windows(10).any(|w| *w == body[3_000_000..][..10])),
                    status => assert!(status == 200 && answer.body == body, "{range} {status}"),
                }
            }
        });
        assert_eq!(origin.count(), 2, "{range}");
        gate.open();
        assert!(rest(first) == body);
    }
}

#[test]
fn what_comes_soon_or_can_be_had_no_sooner_is_read_along() {
    let short = 900_000;
    for (length, headers) in
        [(short, "ETag: \"v1\""), (LENGTH, "ETag: \"v1\"\nAccept-Ranges: none")]
    {
        let body = noise(64, length);
        let (origin, [gate, _others]) = held(&body, headers);
        let proxy = patient(&origin);
        let first = begun(&proxy, "/", "");
        std::thread::scope(|scope| {
            let end = scope.spawn(|| proxy.get_with("/", "Range: bytes=-500"));
            eventually("it reads along", || proxy.metric("damelo_proxy_read_along_total") == 1);
            gate.open();
            let end = end.join().expect("an answer");
            assert!(end.status() == 206 && end.body == body[length - 500..], "{}", end.cache());
        });
        assert_eq!(origin.count(), 1, "{headers}");
        assert!(rest(first) == body);
    }
}

/// Its end is waited for even where it has no length.
#[test]
fn an_origin_without_ranges_is_asked_for_the_whole_once() {
    let (range, body) = ("Range: bytes=-500", noise(65, LENGTH));
    for first in ["", range] {
        let (gate, sent) = (Gate::default(), body.clone());
        let held = gate.clone();
        let origin = Origin::start(move |_| Reply {
            chunked: true,
            hold: Some((HELD_AT, held.clone())),
            ..reply(200, "Cache-Control: max-age=60\nAccept-Ranges: none", sent.clone())
        });
        let proxy = patient(&origin);
        let first = begun(&proxy, "/", first);
        std::thread::scope(|scope| {
            let ask = || proxy.get_with("/", range);
            let clients: Vec<_> = (0..3).map(|_| scope.spawn(ask)).collect();
            eventually("all wait", || proxy.metric("damelo_proxy_collapsed_waiting") == 3);
            gate.open();
            rest(first);
            for client in clients {
                let end = client.join().expect("an answer");
                assert!(end.status() == 206 && end.body == body[LENGTH - 500..], "{}", end.cache());
            }
        });
        assert_eq!(origin.count(), 1);
    }
}
