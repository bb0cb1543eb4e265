//! Clients of an object that is still being fetched: they read along, each at its own pace.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{
    Gate, Origin, PATIENCE, Proxy, Reply, ask_at, eventually, noise, read_message, read_some,
    reply, send_to,
};

/// What the origin sends before it waits for the gate: more than two sections of the store, and a
/// rest that is in memory only.
const HELD_AT: usize = (2 << 20) + 5 * 65536;
const LENGTH: usize = (3 << 20) + 1234;

/// An origin that sends `body` up to `held_at`, and on when the gate opens.
fn held_origin(body: Vec<u8>, held_at: usize, headers: &'static str) -> (Origin, Gate) {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |request| Reply {
        hold: Some((held_at, held.clone())),
        chunked: request.path() == "/chunked",
        break_after: (request.path() == "/broken").then_some(held_at + 65536),
        ..reply(200, headers, body.clone())
    });
    (origin, gate)
}

fn rest(mut stream: impl std::io::Read, mut body: Vec<u8>) -> Vec<u8> {
    stream.read_to_end(&mut body).expect("the rest");
    body
}

#[test]
fn who_comes_late_gets_the_bytes_as_they_come() {
    let body = noise(11, LENGTH);
    let (origin, gate) = held_origin(body.clone(), HELD_AT, "Cache-Control: max-age=60");
    let proxy = Proxy::start(&origin);
    let mut readers = Vec::new();
    for number in 0..4 {
        let mut stream = send_to(proxy.info.address, "GET", "/", "", b"");
        // The first brings it; those after it read from byte 0, while the origin sends nothing.
        let (head, start) = read_some(&mut stream, HELD_AT);
        assert!(start == body[..HELD_AT], "client {number}");
        assert_eq!(head.header("content-length"), LENGTH.to_string());
        assert_eq!(head.cache().contains("collapsed"), number > 0, "{}", head.cache());
        readers.push((stream, start));
    }
    gate.open();
    for (stream, start) in readers {
        assert!(rest(stream, start) == body);
    }
    assert_eq!((origin.count(), proxy.metric("damelo_proxy_read_along_total")), (1, 3));
    assert!(proxy.get("/").cache().contains("; hit"));
}

/// Nothing is kept for whoever joins: it comes from the store, section by section.
#[test]
fn who_joins_a_fill_while_much_is_in_transit_gets_all_of_it() {
    let body = noise(18, LENGTH);
    let (origin, gate) = held_origin(body.clone(), HELD_AT, "Cache-Control: max-age=60");
    let proxy = Proxy::start_with(&origin, |config| config.limits.transit_bytes_max = 0);
    let streams = [0, 1, 2].map(|joined| {
        let mut stream = send_to(proxy.info.address, "GET", "/", "", b"");
        let (_, start) = read_some(&mut stream, if joined == 0 { HELD_AT } else { 2 << 20 });
        eventually("it joined", || proxy.metric("damelo_proxy_read_along_total") == joined);
        (stream, start)
    });
    gate.open();
    for (stream, start) in streams {
        assert!(rest(stream, start) == body);
    }
    assert_eq!(origin.count(), 1);
    assert!(proxy.get("/").cache().contains("; hit"));
    eventually("nothing is held", || proxy.metric("damelo_proxy_transit_bytes") == 0);
}

#[test]
fn a_length_that_nobody_knows_is_no_hindrance() {
    let body = noise(12, LENGTH);
    let (origin, gate) = held_origin(body.clone(), HELD_AT, "Cache-Control: max-age=60");
    let proxy = Proxy::start(&origin);
    let address = proxy.info.address;
    let mut first = send_to(address, "GET", "/chunked", "", b"");
    read_some(&mut first, 1000);
    let ask = move || ask_at(address, "GET", "/chunked", "", b"");
    let others: Vec<_> = (0..3).map(|_| std::thread::spawn(ask)).collect();
    eventually("all read along", || proxy.metric("damelo_proxy_read_along_total") == 3);
    // Whoever brought it may go: the others want the rest.
    drop(first);
    gate.open();
    for other in others {
        let answer = other.join().unwrap();
        assert!(answer.complete && answer.body == body);
    }
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_slow_client_holds_up_neither_the_fill_nor_the_others() {
    // More than sockets and the waiting chunks hold.
    let body: Arc<[u8]> = noise(13, 24 << 20).into();
    let sent = body.clone();
    let origin = Origin::start(move |_| reply(200, "Cache-Control: max-age=60", &*sent));
    let proxy = Proxy::start(&origin);
    let mut slow = send_to(proxy.info.address, "GET", "/", "", b"");
    let (_, start) = read_some(&mut slow, 1000);
    let other = proxy.get("/");
    assert!(other.complete && other.body[..] == body[..]);
    eventually("all of it is stored", || {
        proxy.get_with("/", "Cache-Control: only-if-cached\nRange: bytes=0-0").status() == 206
    });
    assert!(rest(slow, start)[..] == body[..], "it goes on from the store");
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_slow_client_of_unknown_length_holds_up_no_others() {
    // More than sockets and the waiting chunks hold.
    let body: Arc<[u8]> = noise(19, 24 << 20).into();
    let sent = body.clone();
    let origin = Origin::start(move |_| Reply {
        chunked: true,
        ..reply(200, "Cache-Control: max-age=60", &*sent)
    });
    let proxy = Proxy::start(&origin);
    let mut slow = send_to(proxy.info.address, "GET", "/", "", b"");
    // The fill waits for the one client that there is.
    let received = || proxy.metric("damelo_proxy_origin_body_bytes_total");
    let mut before = 0;
    eventually("sockets and chunks are full", || {
        std::thread::sleep(Duration::from_millis(300));
        let now = received();
        now > 0 && std::mem::replace(&mut before, now) == now
    });
    let other = proxy.get("/");
    assert!(other.complete && other.body[..] == body[..]);
    eventually("all of it is stored", || {
        proxy.get_with("/", "Cache-Control: only-if-cached\nRange: bytes=0-0").status() == 206
    });
    let slow = read_message(&mut slow, false).expect("an answer");
    assert!(slow.complete && slow.body[..] == body[..], "it goes on from the store");
    assert_eq!(origin.count(), 1);
}

#[test]
fn an_origin_that_breaks_off_breaks_all_answers() {
    let body = noise(14, LENGTH);
    let (origin, gate) = held_origin(body.clone(), HELD_AT, "Cache-Control: max-age=60");
    let proxy = Proxy::start(&origin);
    let mut readers = Vec::new();
    for _ in 0..3 {
        let mut stream = send_to(proxy.info.address, "GET", "/broken", "", b"");
        let (_, start) = read_some(&mut stream, HELD_AT);
        readers.push((stream, start));
    }
    gate.open();
    for (mut stream, mut got) in readers {
        // The connection may end, or be reset.
        let _ = stream.read_to_end(&mut got);
        assert!(got.len() < LENGTH && got[..] == body[..got.len()]);
    }
    assert_eq!(origin.count(), 1);
    assert!(!proxy.get("/broken").cache().contains("; hit"), "never stored");
}

#[test]
fn who_wants_parts_of_what_is_being_renewed_gets_their_bytes() {
    let (old, new) = (noise(16, LENGTH), noise(17, LENGTH));
    let (gate, fresh) = (Gate::default(), "Cache-Control: max-age=60\nETag:");
    let (held, renewed) = (gate.clone(), new.clone());
    let origin = Origin::start(move |request| match request.has("if-none-match") {
        false => reply(200, &format!("{fresh} \"old\""), old.clone()),
        true => Reply {
            hold: Some((HELD_AT, held.clone())),
            ..reply(200, &format!("{fresh} \"new\""), renewed.clone())
        },
    });
    let proxy = Proxy::start(&origin);
    proxy.get("/");
    proxy.pass_seconds(61);
    let mut first = send_to(proxy.info.address, "GET", "/", "", b"");
    read_some(&mut first, 1000);
    std::thread::scope(|scope| {
        let one = scope.spawn(|| proxy.get_with("/", "Range: bytes=100-199"));
        let two = scope.spawn(|| proxy.get_with("/", "Range: bytes=5-9,3000000-3000009"));
        eventually("both read along", || proxy.metric("damelo_proxy_collapsed_total") == 2);
        gate.open();
        let (one, two) = (one.join().expect("an answer"), two.join().expect("an answer"));
        assert_eq!((one.status(), one.header("etag")), (206, "\"new\"".to_owned()));
        assert!(one.complete && one.body == new[100..200]);
        let holds = |part: &[u8]| two.body.windows(part.len()).any(|window| window == part);
        assert!(two.status() == 206 && two.complete);
        assert!(holds(&new[5..10]) && holds(&new[3_000_000..3_000_010]));
    });
    assert_eq!(origin.count(), 2);
}

#[test]
fn only_who_may_have_it_reads_along() {
    let headers = "Cache-Control: max-age=60\nVary: Accept-Language\nETag: \"v\"";
    let (origin, gate) = held_origin(noise(15, LENGTH), HELD_AT, headers);
    // Longer than a client has patience.
    let proxy = Proxy::start_with(&origin, |config| config.timeouts.collapse = PATIENCE * 2);
    let mut first = send_to(proxy.info.address, "GET", "/", "Accept-Language: en", b"");
    read_some(&mut first, 1000);
    let has_it = proxy.get_with("/", "Accept-Language: en\nIf-None-Match: \"v\"");
    assert_eq!((has_it.status(), has_it.header("etag")), (304, "\"v\"".to_owned()));
    let head = proxy.ask("HEAD", "/", "Accept-Language: en");
    assert!(head.cache().contains("collapsed"), "{}", head.cache());
    assert_eq!(head.header("content-length"), LENGTH.to_string());
    let demands = "Accept-Language: en\nCache-Control: no-cache";
    let mut forced = send_to(proxy.info.address, "GET", "/", demands, b"");
    let mut german = send_to(proxy.info.address, "GET", "/", "Accept-Language: de", b"");
    eventually("another variant, and what is validated, are asked for at once", || {
        origin.count() == 3
    });
    gate.open();
    for stream in [&mut german, &mut forced] {
        let (head, _) = read_some(stream, LENGTH);
        assert_eq!((head.status(), head.cache().contains("hit")), (200, false));
    }
    assert_eq!(
        proxy.metric("damelo_proxy_read_along_total"),
        2,
        "who had it already, and the HEAD"
    );
    proxy.ask_with_body("POST", "/", "", b"x");
    assert!(!proxy.get_with("/", "Accept-Language: en").cache().contains("; hit"));
}

#[test]
fn nobody_waits_for_what_a_change_has_outdated() {
    let body = noise(18, LENGTH);
    let (gate, sent) = (Gate::default(), body.clone());
    let held = gate.clone();
    let asked = AtomicUsize::new(0);
    let origin = Origin::start(move |request| {
        let first = request.method() == "GET" && asked.fetch_add(1, Ordering::SeqCst) == 0;
        let answer = reply(200, "Cache-Control: max-age=60", sent.clone());
        if first { Reply { hold: Some((HELD_AT, held.clone())), ..answer } } else { answer }
    });
    // Longer than a client has patience.
    let proxy = Proxy::start_with(&origin, |config| config.timeouts.collapse = PATIENCE * 2);
    let mut first = send_to(proxy.info.address, "GET", "/", "", b"");
    read_some(&mut first, 1000);
    proxy.ask_with_body("POST", "/", "", b"x");
    // The gate is not open yet.
    let after = proxy.get("/");
    assert!(after.complete && after.body == body && !after.cache().contains("collapsed"));
    assert_eq!(origin.count(), 3);
    gate.open();
}
