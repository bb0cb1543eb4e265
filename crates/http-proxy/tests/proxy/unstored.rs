//! Bodies that the store gives up while clients get them: the clients get the rest all the same.

use std::io::{BufReader, Read as _};
use std::net::TcpStream;

use crate::ranges::noise_in_parts;
use crate::support::{
    Gate, Origin, Proxy, Reply, eventually, noise, read_message, read_some, reply, send_to,
};

/// Behind two sections of the store and some of a third.
const HELD_AT: usize = (2 << 20) + 5 * 65536;
/// All behind that is in memory for those who read along.
const LENGTH: usize = (3 << 20) + 1234;

/// An origin that waits for the gate at `HELD_AT`.
fn held_origin(body: &[u8], chunked: bool) -> (Origin, Gate) {
    let (gate, body) = (Gate::default(), body.to_vec());
    let held = gate.clone();
    let origin = Origin::start(move |_| Reply {
        hold: Some((HELD_AT, held.clone())),
        chunked,
        ..reply(200, "Cache-Control: max-age=60", body.clone())
    });
    (origin, gate)
}

/// Clients that have got all that the origin has sent.
fn at_the_head(proxy: &Proxy, ranges: [&str; 4]) -> Vec<(BufReader<TcpStream>, Vec<u8>)> {
    let ask = |headers| {
        let mut stream = send_to(proxy.info.address, "GET", "/", headers, b"");
        let (_, start) = read_some(&mut stream, HELD_AT - 100);
        (stream, start)
    };
    ranges.into_iter().map(ask).collect()
}

#[test]
fn a_body_that_the_store_cannot_take_goes_on_to_those_who_read_it() {
    let body = noise(51, LENGTH);
    for first in ["", "Range: bytes=100-"] {
        let (origin, gate) = held_origin(&body, false);
        let proxy = Proxy::start(&origin);
        let clients = at_the_head(&proxy, [first, "", "Range: bytes=50-", ""]);
        // From now on nothing can be written, and nothing of what was can be read.
        proxy.store.clone().close().expect("it closes");
        gate.open();
        let lengths = [if first.is_empty() { 0 } else { 100 }, 0, 50, 0];
        std::thread::scope(|scope| {
            for ((mut stream, mut got), start) in clients.into_iter().zip(lengths) {
                let body = &body;
                scope.spawn(move || {
                    let ended = stream.read_to_end(&mut got);
                    assert!(ended.is_ok() && got[..] == body[start..], "{} bytes", got.len());
                });
            }
        });
        assert_eq!(origin.count(), 1);
    }
}

#[test]
fn a_body_that_turns_out_too_long_to_be_stored_goes_on_to_those_who_read_it() {
    let body = noise(52, LENGTH);
    let (origin, gate) = held_origin(&body, true);
    let limit = Some(HELD_AT as u64 + 1000);
    let proxy = Proxy::start_with(&origin, |config| config.limits.body_bytes_max = limit);
    let address = proxy.info.address;
    let ask = move || {
        let mut stream = send_to(address, "GET", "/", "", b"");
        read_message(&mut stream, false).expect("an answer")
    };
    let clients: Vec<_> = (0..4).map(|_| std::thread::spawn(ask)).collect();
    eventually("all read along", || proxy.metric("damelo_proxy_read_along_total") == 3);
    gate.open();
    for client in clients {
        let answer = client.join().expect("an answer");
        assert!(answer.complete && answer.body == body, "{} bytes", answer.body.len());
    }
    assert_eq!(origin.count(), 1);
    assert!(!proxy.get("/").cache().contains("; hit"), "it is not stored");
}

/// More than sockets, the waiting chunks and the head of a fill hold.
const LONG: usize = 24 << 20;

#[test]
fn who_was_left_behind_gets_in_slices_what_the_store_has_lost() {
    let (all, origin) = noise_in_parts(53, LONG);
    let proxy = Proxy::start(&origin);
    let slow: Vec<_> = (0..2)
        .map(|_| {
            let mut slow = send_to(proxy.info.address, "GET", "/", "", b"");
            let (_, start) = read_some(&mut slow, 1000);
            (slow, start)
        })
        .collect();
    let other = proxy.get("/");
    assert!(other.complete && other.body[..] == all[..]);
    assert_eq!(origin.count(), 1);
    proxy.store.purge_all().expect("it is forgotten");
    for (mut slow, mut body) in slow {
        slow.read_to_end(&mut body).expect("the rest");
        assert!(body[..] == all[..], "{} bytes", body.len());
    }
    assert_eq!(proxy.metric("damelo_proxy_resumed_total"), 2);
}

#[test]
fn who_comes_when_the_beginning_is_lost_asks_for_itself() {
    let body = noise(54, LENGTH);
    let (origin, gate) = held_origin(&body, false);
    let proxy = Proxy::start(&origin);
    let mut first = send_to(proxy.info.address, "GET", "/", "", b"");
    let (_, start) = read_some(&mut first, HELD_AT);
    proxy.store.purge_all().expect("it is forgotten");
    let address = proxy.info.address;
    let late = std::thread::spawn(move || {
        let mut stream = send_to(address, "GET", "/", "", b"");
        read_message(&mut stream, false).expect("an answer")
    });
    eventually("it asks the origin", || origin.count() == 2);
    gate.open();
    let late = late.join().expect("an answer");
    assert!(late.complete && late.body == body, "{} bytes", late.body.len());
    let mut got = start;
    first.read_to_end(&mut got).expect("the rest");
    assert!(got == body);
}
