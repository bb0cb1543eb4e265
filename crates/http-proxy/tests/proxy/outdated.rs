//! Fills that a change outdates, or that do not come, while others wait for them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::ranges::{slice_of, sliced_by};
use crate::support::{
    Gate, Message, Origin, Proxy, Reply, ask_at, eventually, noise, read_message, reply, send_to,
};

const LENGTH: usize = 300_000;
const CLIENTS: usize = 50;

fn is_page(request: &Message) -> bool {
    request.method() == "GET"
}

/// Requests for the page so far.
fn asked(origin: &Origin) -> usize {
    origin.asked().iter().filter(|request| is_page(request)).count()
}

/// An origin whose first answer waits for a gate, and its body for another; what a POST says.
fn held_twice(headers: &'static str, of_post: &'static str) -> (Origin, [Gate; 2]) {
    let (gates, first) = ([Gate::default(), Gate::default()], AtomicUsize::new(0));
    let [head, rest] = gates.clone();
    let origin = Origin::start(move |request| {
        if !is_page(request) {
            return reply(200, of_post, "");
        }
        let answer =
            reply(200, &format!("Cache-Control: max-age=60\n{headers}"), noise(41, LENGTH));
        if first.fetch_add(1, Ordering::SeqCst) > 0 {
            return answer;
        }
        head.wait();
        Reply { hold: Some((64 << 10, rest.clone())), ..answer }
    });
    (origin, gates)
}

fn all_wait(proxy: &Proxy) {
    eventually("all wait for the first", || {
        proxy.metric("damelo_proxy_collapsed_waiting") == CLIENTS as u64
    });
}

/// Many wait for the page while its first answer is held, and `meanwhile` something happens.
/// Returns how often the origin was asked for it.
fn asked_by_many(origin: &Origin, gates: &[Gate; 2], meanwhile: impl Fn(&Proxy)) -> usize {
    let proxy = Proxy::start_with(origin, |config| config.purge.method = true);
    let address = proxy.info.address;
    let leader = send_to(address, "GET", "/", "", b"");
    eventually("the leader is at the origin", || asked(origin) == 1);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| std::thread::spawn(move || ask_at(address, "GET", "/", "", b"")))
        .collect();
    all_wait(&proxy);
    meanwhile(&proxy);
    gates[0].open();
    eventually("all read along, or ask again", || {
        proxy.metric("damelo_proxy_read_along_total") == CLIENTS as u64 || asked(origin) > 1
    });
    if asked(origin) == 1 {
        gates[1].open();
    }
    for client in clients {
        let answer = client.join().expect("an answer");
        assert!(answer.complete && answer.body == noise(41, LENGTH), "{}", answer.cache());
    }
    gates[1].open();
    drop(leader);
    asked(origin)
}

#[test]
fn those_who_wait_for_what_a_change_outdates_ask_once() {
    let (origin, gates) = held_twice("", "");
    let change = |proxy: &Proxy| drop(proxy.ask_with_body("POST", "/", "", b"x"));
    assert_eq!(asked_by_many(&origin, &gates, change), 2);
}

/// A purge by a mark covers what comes without ending anything.
#[test]
fn those_who_wait_for_what_is_purged_by_its_tag_ask_once() {
    let (origin, gates) = held_twice("Cache-Tag: page", "");
    let purge = |proxy: &Proxy| {
        assert_eq!(proxy.ask("PURGE", "/other", "Surrogate-Key: page").status(), 200);
    };
    assert_eq!(asked_by_many(&origin, &gates, purge), 2);
    assert!(origin.asked().iter().all(|request| request.method() == "GET"));
}

/// RFC 9875 §3: members of the group go, and nothing else does.
#[test]
fn a_change_of_other_groups_outdates_no_fill() {
    for (groups, asked) in [("", 1), ("Cache-Groups: \"sport\"", 1), ("Cache-Groups: \"news\"", 2)]
    {
        let (origin, gates) = held_twice(groups, "Cache-Group-Invalidation: \"news\"");
        let change = |proxy: &Proxy| drop(proxy.ask_with_body("POST", "/change", "", b"x"));
        assert_eq!(asked_by_many(&origin, &gates, change), asked, "{groups:?}");
    }
}

#[test]
fn those_who_wait_for_a_slice_that_a_change_outdates_ask_once() {
    let (gates, first) = ([Gate::default(), Gate::default()], AtomicUsize::new(0));
    let [head, rest] = gates.clone();
    let origin = Origin::start(move |request| {
        if !is_page(request) {
            return reply(200, "", "");
        }
        let answer = slice_of(request, &noise(42, 1 << 20), "ETag: \"v1\"");
        // The first slice is there when many ask for the second.
        if request.header("range").starts_with("bytes=0-")
            || first.fetch_add(1, Ordering::SeqCst) > 0
        {
            return answer;
        }
        head.wait();
        Reply { hold: Some((64 << 10, rest.clone())), ..answer }
    });
    let proxy = sliced_by(&origin, 256 << 10);
    let address = proxy.info.address;
    let range = |first: usize| format!("Range: bytes={first}-{}", first + 9);
    eventually("the first slice is stored", || {
        proxy.get_with("/", &range(0)).cache().contains("; hit")
    });
    let second = range(256 << 10);
    let leader = send_to(address, "GET", "/", &second, b"");
    eventually("the leader is at the origin", || asked(&origin) == 2);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let second = second.clone();
            std::thread::spawn(move || ask_at(address, "GET", "/", &second, b""))
        })
        .collect();
    all_wait(&proxy);
    proxy.ask_with_body("POST", "/", "", b"x");
    gates[0].open();
    for client in clients {
        let answer = client.join().unwrap();
        let wanted = &noise(42, 1 << 20)[256 << 10..(256 << 10) + 10];
        assert!(answer.status() == 206 && answer.body == wanted, "{}", answer.cache());
    }
    assert_eq!(asked(&origin), 3);
    gates[1].open();
    drop(leader);
}

#[test]
fn those_who_wait_for_a_slice_that_does_not_come_ask_for_it_once() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |request| {
        if !request.header("range").starts_with("bytes=0-") {
            held.wait();
        }
        slice_of(request, &noise(42, 1 << 20), "ETag: \"v1\"")
    });
    let collapse = Duration::from_millis(100);
    let proxy = Proxy::start_with(&origin, |config| {
        config.caching.slice_bytes = 256 << 10;
        config.timeouts.collapse = collapse;
    });
    let range = |first: usize| format!("Range: bytes={first}-{}", first + 9);
    eventually("the first slice is stored", || {
        proxy.get_with("/", &range(0)).cache().contains("; hit")
    });
    let before = asked(&origin);
    let ask = |_| send_to(proxy.info.address, "GET", "/", &range(256 << 10), b"");
    let asking: Vec<_> = (0..CLIENTS).map(ask).collect();
    let waiting = || proxy.metric("damelo_proxy_collapsed_waiting");
    eventually("one asks for it, and the others wait", || {
        (asked(&origin) - before, waiting()) == (1, CLIENTS as u64 - 1)
    });
    std::thread::sleep(collapse * 5);
    assert_eq!(asked(&origin) - before, 1);
    gate.open();
    for mut one in asking {
        assert_eq!(read_message(&mut one, false).expect("an answer").status(), 206);
    }
    assert_eq!(asked(&origin) - before, 1);
}
