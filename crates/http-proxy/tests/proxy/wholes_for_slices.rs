//! Origins that send the whole in place of a slice, once an answer has begun with slices.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::ranges::{slice_of, sliced_by};
use crate::support::{
    Gate, Message, Origin, Proxy, Reply, eventually, noise, read_some, reply, send_to,
};

const SLICE: u64 = 65536;
const LENGTH: usize = 300_000;

/// An origin that sends so many slices of its first version, and then the whole whatever range is
/// asked for, with this tag.
fn tiring(body: Vec<u8>, slices: usize, tag: &'static str) -> Origin {
    let asked = AtomicUsize::new(0);
    Origin::start(move |request: &Message| -> Reply {
        if asked.fetch_add(1, Ordering::SeqCst) < slices {
            return slice_of(request, &body, "ETag: \"v1\"");
        }
        reply(200, &format!("Cache-Control: max-age=60\nETag: {tag}"), body.clone())
    })
}

fn from(proxy: &Proxy, first: usize) -> Message {
    proxy.get_with("/", &format!("Range: bytes={first}-"))
}

#[test]
fn a_whole_of_the_same_version_is_cut_to_what_is_left() {
    let body = noise(71, LENGTH);
    for (slices, first) in [(1, 10), (2, 10), (3, 70_000), (1, 200_000)] {
        let origin = tiring(body.clone(), slices, "\"v1\"");
        let proxy = sliced_by(&origin, SLICE);
        let answer = from(&proxy, first);
        assert!(answer.complete && answer.body == body[first..], "{slices} {first}");
        assert_eq!(answer.status(), 206, "{slices} {first}");
        assert_eq!(origin.count(), slices + 1, "the whole is asked for once");
        // It is stored, and answers everybody.
        eventually("it is a hit", || from(&proxy, 0).cache().contains("; hit"));
        let asked = origin.count();
        let whole = proxy.get("/");
        assert!(whole.cache().contains("; hit") && whole.body == body, "{}", whole.cache());
        assert_eq!(origin.count(), asked, "{slices} {first}");
    }
}

#[test]
fn a_whole_of_another_version_breaks_the_answer_off() {
    for tag in ["\"v2\"", "W/\"v1\""] {
        let origin = tiring(noise(72, LENGTH), 1, tag);
        let proxy = sliced_by(&origin, SLICE);
        assert!(!from(&proxy, 10).complete, "{tag}");
    }
}

/// An origin that sends slices of its first version until it changes: then it sends the whole of
/// another one as soon as the gate is open.
fn changing(body: Vec<u8>) -> (Origin, Arc<AtomicBool>, Gate) {
    let (changes, gate) = (Arc::<AtomicBool>::default(), Gate::default());
    let (changed, held) = (changes.clone(), gate.clone());
    let origin = Origin::start(move |request| {
        if !changed.load(Ordering::SeqCst) {
            return slice_of(request, &body, "ETag: \"v1\"");
        }
        held.wait();
        reply(200, "ETag: \"v2\"\nCache-Control: max-age=60", vec![7; LENGTH])
    });
    (origin, changes, gate)
}

#[test]
fn a_whole_of_another_version_is_asked_for_no_more_by_those_who_wait() {
    let (origin, changes, gate) = changing(noise(73, LENGTH));
    let proxy = sliced_by(&origin, SLICE);
    let first = || proxy.get_with("/", "Range: bytes=0-9").cache();
    eventually("the first slice is stored", || first().contains("; hit"));
    let asked = origin.count();
    changes.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(|| from(&proxy, 10))).collect();
        eventually("all but one wait", || proxy.metric("damelo_proxy_collapsed_waiting") == 3);
        gate.open();
        for client in clients {
            let answer = client.join().expect("an answer");
            assert!(answer.complete && answer.body == [7; LENGTH - 10], "{}", answer.cache());
        }
    });
    assert_eq!(origin.count(), asked + 2, "for a slice, and for the whole");
}

#[test]
fn a_whole_of_another_version_ends_that_of_the_slices_though_it_is_not_stored() {
    let (body, changes) = (noise(74, LENGTH), Arc::<AtomicBool>::default());
    let changed = changes.clone();
    let origin = Origin::start(move |request| {
        let is_early = ["bytes=0-", "bytes=65536-"];
        let is_early = is_early.iter().any(|range| request.header("range").starts_with(range));
        match is_early && !changed.load(Ordering::SeqCst) {
            true => slice_of(request, &body, "ETag: \"v1\""),
            false => reply(200, "ETag: \"v2\"\nCache-Control: no-store", vec![7; LENGTH]),
        }
    });
    let proxy = Proxy::start_with(&origin, |config| {
        config.caching.slice_bytes = SLICE;
        config.caching.stale_while_revalidate_s = 10_000;
    });
    let first = || proxy.get_with("/", "Range: bytes=0-9");
    eventually("the first slice is stored", || first().cache().contains("; hit"));
    assert!(!from(&proxy, 10).complete, "it began with the earlier version");
    changes.store(true, Ordering::SeqCst);
    // It is tried again by then whether there are slices.
    proxy.pass_seconds(700);
    assert_eq!(first().header("etag"), "\"v2\"");
}

/// As what was asked for as the whole.
#[test]
fn a_whole_that_came_for_a_slice_is_not_fetched_for_nobody() {
    const LONG: usize = 4 << 20;
    let (body, gate, asked) = (noise(75, LONG), Gate::default(), AtomicUsize::new(0));
    let held = gate.clone();
    let origin = Origin::start(move |request| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => slice_of(request, &body, "ETag: \"v1\""),
        _ => Reply {
            hold: Some((1 << 20, held.clone())),
            ..reply(200, "Cache-Control: max-age=60\nETag: \"v1\"", body.clone())
        },
    });
    let proxy = Proxy::start_with(&origin, |config| {
        config.caching.slice_bytes = SLICE;
        config.fill.finish_bytes_max = 1000;
    });
    let mut client = send_to(proxy.info.address, "GET", "/", "Range: bytes=10-", b"");
    let (head, _) = read_some(&mut client, 100_000);
    assert_eq!(head.status(), 206);
    drop(client);
    let gone = "damelo_proxy_not_stored_total{reason=\"client-gone\"}";
    // The fill looks around with each piece that comes.
    eventually("its client is gone", || proxy.metric("damelo_proxy_connections_open") == 0);
    gate.open();
    eventually("it is given up", || proxy.metric(gone) == 1);
}

/// Whether it is stored by then or still coming.
#[test]
fn a_whole_that_another_answer_brought_is_read_by_those_that_began_with_slices() {
    const WIDE: usize = 128 << 10;
    for is_coming in [false, true] {
        let body = noise(76, 5 * WIDE);
        let (gates, changes) = ([Gate::default(), Gate::default()], Arc::<AtomicBool>::default());
        let ([first, whole], changed, sent) = (gates.clone(), changes.clone(), body.clone());
        let origin = Origin::start(move |request| {
            if changed.load(Ordering::SeqCst) {
                let hold = is_coming.then(|| (4 * WIDE, whole.clone()));
                let headers = "Cache-Control: max-age=60\nETag: \"v1\"";
                return Reply { hold, ..reply(200, headers, sent.clone()) };
            }
            let is_first = request.header("range").starts_with("bytes=0-");
            let hold = is_first.then(|| (WIDE / 2, first.clone()));
            Reply { hold, ..slice_of(request, &sent, "ETag: \"v1\"") }
        });
        let proxy = sliced_by(&origin, WIDE as u64);
        let mut early = send_to(proxy.info.address, "GET", "/", "Range: bytes=10-", b"");
        let (head, mut read) = read_some(&mut early, 1000);
        assert_eq!(head.status(), 206);
        let second = format!("Range: bytes={WIDE}-{}", WIDE + 9);
        eventually("the second slice came ahead", || {
            proxy.get_with("/", &second).cache().contains("; hit")
        });
        let asked = origin.count();
        changes.store(true, Ordering::SeqCst);
        let range = format!("Range: bytes={WIDE}-");
        let mut late = send_to(proxy.info.address, "GET", "/", &range, b"");
        let (head, mut others) = read_some(&mut late, WIDE + 1000);
        assert_eq!(head.status(), 206);
        if !is_coming {
            late.read_to_end(&mut others).expect("all of it");
        }
        gates[0].open();
        let mut more = vec![0; 3 * WIDE - read.len()];
        early.read_exact(&mut more).expect("it goes on with the whole");
        read.extend(more);
        gates[1].open();
        early.read_to_end(&mut read).expect("all of it");
        if is_coming {
            late.read_to_end(&mut others).expect("all of it");
        }
        assert!(read == body[10..] && others == body[WIDE..], "{is_coming}");
        assert_eq!(origin.count(), asked + 1, "one whole for both: {is_coming}");
    }
}
