//! What the store lets go of while it is sent: a slow client's bytes may make room for newer ones.

use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use damelo::Store;

use crate::ranges::{noise_in_parts, slice_of};
use crate::support::{Message, Origin, Proxy, noise, read_some, reply, send_to};

/// More than sockets hold, so that the rest is still to be read when a client stops.
const LENGTH: usize = 24 << 20;

/// A client that has got the beginning of a hit and nothing more, and what it gets once the store
/// has let go of everything.
fn what_a_slow_client_gets(proxy: &Proxy, asks: &str, then: impl FnOnce()) -> (Message, Vec<u8>) {
    let mut slow = send_to(proxy.info.address, "GET", "/", asks, b"");
    let (head, mut body) = read_some(&mut slow, 1000);
    assert!(head.cache().contains("; hit"), "{head:?}");
    proxy.store.purge_all().expect("it is forgotten");
    then();
    // A body that breaks off may end in a reset.
    let _ = slow.read_to_end(&mut body);
    (head, body)
}

#[test]
fn what_the_store_lets_go_of_while_it_is_sent_comes_from_the_origin() {
    let (all, origin) = noise_in_parts(41, LENGTH);
    let proxy = Proxy::start(&origin);
    for (asks, first, count) in [("", 0, 1), ("Range: bytes=3000000-25000000", 3_000_000, 2)] {
        let before = origin.count();
        assert!(proxy.get("/").complete);
        let (_, body) = what_a_slow_client_gets(&proxy, asks, || ());
        let end = if asks.is_empty() { LENGTH } else { 25_000_001 };
        assert!(body[..] == all[first..end], "{} bytes", body.len());
        assert_eq!(proxy.metric("damelo_proxy_resumed_total"), count);
        let asked = origin.asked().split_off(before + 1);
        let lost = asked.iter().map(|request| request.header("range"));
        assert!(lost.clone().all(|range| range.starts_with("bytes=")), "{asked:?}");
        assert!((1..24).contains(&lost.count()), "only what was lost: {asked:?}");
        proxy.store.purge_all().expect("it is forgotten");
    }
}

#[test]
fn what_has_changed_since_is_not_sent_behind_the_beginning() {
    let (old, new) = (noise(42, LENGTH), noise(43, LENGTH));
    let changed = Arc::new(AtomicBool::new(false));
    let is_new = changed.clone();
    let beginning = old.clone();
    let origin = Origin::start(move |request| match is_new.load(Ordering::SeqCst) {
        false => slice_of(request, &old, "ETag: \"v1\""),
        true => slice_of(request, &new, "ETag: \"v2\""),
    });
    let proxy = Proxy::start(&origin);
    assert!(proxy.get("/").complete);
    let then = || changed.store(true, Ordering::SeqCst);
    let (head, body) = what_a_slow_client_gets(&proxy, "", then);
    assert_eq!(head.header("content-length"), LENGTH.to_string());
    assert!(body.len() < LENGTH && beginning.starts_with(&body), "{} bytes", body.len());
    let now = proxy.get("/");
    assert!(now.complete && now.header("etag") == "\"v2\"");
}

/// Has the store lose the second section of all it has.
fn evict_second(store: &Store) {
    store.sync().expect("synced");
    let keys = store.entries().filter_map(|entry| Some(entry.ok()?.key));
    for second in keys.filter(|key| key.ends_with(&1_u64.to_be_bytes())) {
        store.remove(&second).expect("removed");
    }
}

#[test]
fn what_is_left_of_a_body_is_served_and_what_is_lost_is_a_miss() {
    const MIB: usize = 1 << 20;
    let (all, origin) = noise_in_parts(45, 3 * MIB);
    let proxy = Proxy::start(&origin);
    let parts = |ranges: &[(usize, usize)]| {
        let specs = ranges.iter().map(|(first, last)| format!("{first}-{last}"));
        format!("Range: bytes={}", specs.collect::<Vec<_>>().join(","))
    };
    for (ranges, is_left) in [
        (&[(5, 9)][..], true),
        (&[(2 * MIB, 2 * MIB + 9)], true),
        (&[(MIB + 5, MIB + 9)], false),
        (&[(MIB - 5, MIB + 9)], false),
        // Also where the first of them is there.
        (&[(5, 9), (MIB + 5, MIB + 9)], false),
    ] {
        assert!(proxy.get("/").complete);
        evict_second(&proxy.store);
        let part = proxy.get_with("/", &parts(ranges));
        assert_eq!(part.cache().contains("; hit"), is_left, "{ranges:?}: {}", part.cache());
        // This origin sends the whole where several parts of it are wanted.
        if let [(first, last)] = ranges {
            assert!(part.complete && part.body == all[*first..=*last], "{ranges:?}");
            let whole = proxy.get("/");
            assert!(whole.body == all && !whole.cache().contains("; hit"), "{}", whole.cache());
        }
        proxy.store.purge_all().expect("it is forgotten");
    }
}

/// To validate what could not be sent then would take two requests.
#[test]
fn a_stale_body_of_which_something_is_lost_is_not_validated() {
    let all = noise(46, 3 << 20);
    let body = all.clone();
    let origin =
        Origin::start(move |_| reply(200, "ETag: \"1\"\nCache-Control: max-age=0", body.clone()));
    let proxy = Proxy::start(&origin);
    assert!(proxy.get("/").complete);
    evict_second(&proxy.store);
    let again = proxy.get("/");
    assert!(again.complete && again.body == all, "{}", again.cache());
    let asked = origin.asked();
    let validated = asked.iter().any(|request| request.has("if-none-match"));
    assert_eq!((asked.len(), validated), (2, false));
}

/// A weak validator, so that the rest could not be fetched behind what was sent.
#[test]
fn what_the_store_lets_go_of_while_it_is_validated_is_fetched_again() {
    let all = noise(44, 3 << 20);
    let body = all.clone();
    let store: Arc<OnceLock<Store>> = Arc::default();
    let evicting = Arc::clone(&store);
    let origin = Origin::start(move |request| {
        if !request.has("if-none-match") {
            return reply(200, "ETag: W/\"1\"\nCache-Control: max-age=0", body.clone());
        }
        evict_second(evicting.get().expect("set before the first request"));
        reply(304, "ETag: W/\"1\"\nCache-Control: max-age=0", "")
    });
    let proxy = Proxy::start(&origin);
    store.set(proxy.store.clone()).expect("once");
    assert!(proxy.get("/").complete);
    let again = proxy.get("/");
    assert!(again.complete && again.body == all, "{} bytes, {}", again.body.len(), again.cache());
    assert_eq!(origin.count(), 3, "validated, and fetched");
}

#[test]
fn a_client_that_may_be_alone_with_its_answer_gets_no_slices() {
    let all = noise(44, LENGTH);
    let public = "ETag: \"v1\"\nCache-Control: public";
    let origin = Origin::start(move |request| slice_of(request, &all, public));
    let proxy = Proxy::start(&origin);
    assert!(proxy.get("/").complete);
    let (_, body) = what_a_slow_client_gets(&proxy, "Authorization: Basic eDp5", || ());
    assert!(body.len() < LENGTH, "it breaks off");
    assert_eq!(origin.count(), 1);
}
