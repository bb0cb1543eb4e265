//! Slices that are not for everybody, or not of what there is now.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use damelo_http_proxy::Settings;

use crate::ranges::{noise_in_parts, slice_of, sliced_by};
use crate::support::{Gate, Origin, Proxy, eventually, noise, read_message, reply, send_to};

const SLICE: usize = 65536;
const LENGTH: usize = 300_000;

/// Has the first three of five slices stored.
fn bring_three(proxy: &Proxy) {
    let range = "Range: bytes=0-140000";
    eventually("the slices are stored", || proxy.get_with("/", range).cache().contains("; hit"));
}

#[test]
fn what_may_be_for_one_is_asked_for_once() {
    let (body, origin) = noise_in_parts(31, LENGTH);
    let proxy = sliced_by(&origin, SLICE as u64);
    for (asked, headers) in [
        (1, "Authorization: Basic x"),
        (2, "Authorization: Basic x"),
        (3, "Cache-Control: no-store"),
    ] {
        let answer = proxy.get_with("/", &format!("{headers}\nRange: bytes=5-6"));
        assert_eq!((answer.status(), &answer.body[..]), (206, &body[5..=6]), "{headers}");
        assert_eq!(
            (origin.count(), origin.last().header("range")),
            (asked, "bytes=5-6".to_owned())
        );
    }
    bring_three(&proxy);
    // Slices that it would bring could not be kept: nothing is promised of them.
    for (headers, from) in [("Authorization: Basic x", ""), ("Authorization: Basic x", "bytes=0-")]
    {
        let asked = origin.count();
        let range = if from.is_empty() { String::new() } else { format!("\nRange: {from}") };
        let answer = proxy.get_with("/", &format!("{headers}{range}"));
        assert!(answer.complete && answer.body == body, "{from:?} {}", answer.cache());
        assert_eq!((origin.count(), origin.last().header("range")), (asked + 1, from.to_owned()));
    }
    let hit = proxy.get_with("/", "Authorization: Basic x\nRange: bytes=5-6");
    assert!(hit.cache().contains("; hit"), "{}", hit.cache());
}

/// The first request counts once, and the origin is asked once where the response makes no
/// difference to that.
#[test]
fn slices_are_stored_at_the_second_request() {
    for (condition, asked) in [("", [1, 2]), ("type = \"a/*\"\n", [2, 3])] {
        let (body, origin) = noise_in_parts(35, LENGTH);
        let rule = format!("[[rule]]\npath = \"/**\"\n{condition}admission = \"second-hit\"\n");
        let ruleset = Settings::parse(&rule).expect("good rules").proxy.ruleset;
        let proxy = Proxy::start_with(&origin, |config| {
            config.caching.slice_bytes = SLICE as u64;
            config.ruleset = ruleset;
        });
        let ask = || {
            let answer = proxy.get_with("/", "Range: bytes=5-6");
            assert_eq!((answer.status(), &answer.body[..]), (206, &body[5..=6]), "{condition}");
            answer.cache()
        };
        let first = ask();
        assert!(first.contains("detail=first-request") && !first.contains("; stored"), "{first}");
        assert_eq!((origin.count(), origin.last().header("range")), (asked[0], "bytes=5-6".into()));
        let second = ask();
        assert!(second.contains("; stored"), "{second}");
        let slice = "bytes=0-65535".to_owned();
        assert_eq!((origin.count(), origin.last().header("range")), (asked[1], slice));
        eventually("it is stored", || ask().contains("; hit"));
        assert_eq!(origin.count(), asked[1], "{condition}");
        // The rest of it, from then on.
        let more = proxy.get_with("/", "Range: bytes=70000-70001");
        assert!(more.cache().contains("; stored") && more.body == body[70_000..=70_001]);
        assert_eq!(origin.count(), asked[1] + 1, "{condition}");
    }
}

/// RFC 9111 §4.2.2: that others have had slices without a cookie does not make what one brings with
/// it everybody's, as it may be of a page of its own.
#[test]
fn what_a_cookie_brings_is_no_slice_for_others() {
    let (all, own) = (noise(36, LENGTH), noise(37, LENGTH));
    let (sent, mine) = (all.clone(), own.clone());
    let origin = Origin::start(move |request| {
        let body = if request.has("cookie") { &mine } else { &sent };
        let modified = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT";
        let fields = format!("Content-Type: text/html\nETag: \"v\"\n{modified}");
        let range = request.header("range");
        let Some((first, last)) =
            range.strip_prefix("bytes=").and_then(|spec| spec.split_once('-'))
        else {
            return reply(200, &fields, &body[..]);
        };
        let first: usize = first.parse().expect("a number");
        let last = last.parse().unwrap_or(usize::MAX).min(LENGTH - 1);
        let range = format!("{fields}\nContent-Range: bytes {first}-{last}/{LENGTH}");
        reply(206, &range, &body[first..=last])
    });
    let proxy = sliced_by(&origin, SLICE as u64);
    bring_three(&proxy);
    let asked = origin.count();
    for range in ["bytes=0-", "bytes=210000-210009", "bytes=290000-290009"] {
        let answer = proxy.get_with("/", &format!("Cookie: user=b\nRange: {range}"));
        assert_eq!(answer.status(), 206, "{range}");
        assert!(answer.complete, "{range}");
        assert!(!answer.cache().contains("; stored"), "{range} {}", answer.cache());
    }
    assert!(origin.count() > asked);
    // What is everybody's is theirs, too, though they cannot bring more of it.
    for range in ["bytes=5-6", "bytes=65000-140000"] {
        let stored = proxy.get_with("/", &format!("Cookie: user=b\nRange: {range}"));
        assert!(stored.cache().contains("; hit") && stored.complete, "{range} {}", stored.cache());
    }
    let answer = proxy.get_with("/", "Range: bytes=200000-299999");
    assert!(answer.body == all[200_000..], "it is everybody's");
}

/// The whole page of who sent a cookie, stored for validation, would be in their place.
#[test]
fn what_a_cookie_brings_whole_leaves_slices_to_others() {
    let all = noise(38, LENGTH);
    let sent = all.clone();
    let origin = Origin::start(move |request| match request.has("cookie") {
        true => reply(200, "Content-Type: text/html\nETag: \"own\"", noise(39, 100)),
        false => slice_of(request, &sent, "ETag: \"v\""),
    });
    let proxy = sliced_by(&origin, SLICE as u64);
    bring_three(&proxy);
    let own = proxy.get_with("/", "Cookie: user=b\nCache-Control: no-cache");
    assert!(own.complete && own.body == noise(39, 100), "{}", own.cache());
    assert!(own.cache().contains("detail=cookie"), "{}", own.cache());
    let asked = origin.count();
    let answer = proxy.get_with("/", "Range: bytes=0-140000");
    assert!(
        answer.cache().contains("; hit") && answer.body == all[..=140_000],
        "{}",
        answer.cache()
    );
    assert_eq!(origin.count(), asked);
}

/// A resource of which slices are stored that the origin would not send any more, and its bytes
/// now.
fn changed_resource(bring: impl Fn(&Proxy)) -> (Proxy, Vec<u8>) {
    let versions = [noise(32, LENGTH), noise(33, LENGTH)];
    let (sent, changed) = (versions.clone(), Arc::new(AtomicBool::new(false)));
    let change = changed.clone();
    let origin = Origin::start(move |request| {
        let version = usize::from(change.load(Ordering::SeqCst));
        slice_of(request, &sent[version], &format!("ETag: \"v{version}\""))
    });
    let proxy = sliced_by(&origin, SLICE as u64);
    bring(&proxy);
    changed.store(true, Ordering::SeqCst);
    let [_, now] = versions;
    (proxy, now)
}

/// Has all slices stored, of which only the first is still fresh.
fn bring_stale_ones(proxy: &Proxy) {
    for range in ["Range: bytes=65536-", "Range: bytes=0-9"] {
        let is_hit = || proxy.get_with("/", range).cache().contains("; hit");
        eventually("the slices are stored", is_hit);
        proxy.pass_seconds(40);
    }
}

#[test]
fn a_whole_does_not_begin_with_slices_of_an_older_version() {
    for bring in [bring_three, bring_stale_ones] {
        let (proxy, body) = changed_resource(bring);
        let whole = proxy.get("/");
        assert_eq!((whole.status(), whole.header("etag")), (200, "\"v1\"".to_owned()));
        assert!(whole.complete && whole.body == body, "{}", whole.cache());
        assert!(proxy.get("/").cache().contains("; hit"));
    }
}

/// All of them are fresh, and the one that came last is of another version.
#[test]
fn nothing_begins_where_a_fresh_slice_is_of_another_version() {
    for (ask, all) in [("", 0..LENGTH), ("Range: bytes=5-289999", 5..290_000)] {
        let is_hit = |proxy: &Proxy, range: &str| {
            let range = format!("Range: bytes={range}");
            proxy.get_with("/", &range).cache().contains("; hit")
        };
        let (proxy, body) = changed_resource(|proxy| {
            for range in ["0-9", "131072-"] {
                eventually("the others are stored", || is_hit(proxy, range));
            }
        });
        eventually("the newer one is stored", || is_hit(&proxy, "70000-70009"));
        let answer = proxy.get_with("/", ask);
        assert_eq!(answer.header("etag"), "\"v1\"", "{ask}: {}", answer.cache());
        assert!(answer.complete && answer.body == body[all], "{ask}: {}", answer.cache());
    }
}

/// What the origin will be asked for in the midst of it is known before.
#[test]
fn a_range_does_not_begin_with_slices_of_an_older_version() {
    for bring in [bring_three, bring_stale_ones] {
        let (proxy, body) = changed_resource(bring);
        let part = proxy.get_with("/", "Range: bytes=5-289999");
        assert_eq!((part.status(), part.header("etag")), (206, "\"v1\"".to_owned()));
        assert!(part.complete && part.body == body[5..=289_999], "{}", part.cache());
    }
}

/// RFC 9111 §5.2.2.7: such fields are for who asked, and for nobody else.
#[test]
fn who_fetches_a_range_gets_the_fields_that_are_private() {
    let body = noise(34, LENGTH);
    let sent = body.clone();
    let origin = Origin::start(move |request| {
        let fields = "ETag: \"v1\"\nCache-Control: private=\"X-User\"\nX-User: bob";
        match request.path() {
            "/slices" => slice_of(request, &sent, fields),
            "/short" => reply(200, &format!("{fields}\nCache-Control: max-age=60"), &sent[..100]),
            _ => reply(200, &format!("{fields}\nCache-Control: max-age=60"), &*sent),
        }
    });
    let proxy = sliced_by(&origin, SLICE as u64);
    for path in ["/slices", "/short", "/long"] {
        let own = proxy.get_with(path, "Range: bytes=5-6");
        assert_eq!((own.status(), &own.body[..]), (206, &body[5..=6]), "{path}");
        assert_eq!(
            (own.header("x-user"), own.header("content-length").as_str()),
            ("bob".to_owned(), "2")
        );
        eventually("it is stored", || {
            let other = proxy.get_with(path, "Range: bytes=5-6");
            assert!(!other.has("x-user"), "{path}");
            other.cache().contains("; hit")
        });
    }
}

/// RFC 9111 §5.2.1.7, RFC 9211 §2.1: a slice that would have to be validated is not there for who
/// may not have the origin asked for it, and the answer is no hit.
#[test]
fn slices_that_are_stale_are_not_promised() {
    let (body, origin) = noise_in_parts(35, LENGTH);
    let proxy = sliced_by(&origin, SLICE as u64);
    for range in ["Range: bytes=65536-140000", "Range: bytes=0-9"] {
        for path in ["/cached", "/alone", "/open"] {
            let is_hit = || proxy.get_with(path, range).cache().contains("; hit");
            eventually("the slices are stored", is_hit);
        }
        proxy.pass_seconds(40);
    }
    let all = "Range: bytes=0-140000";
    let asked = origin.count();
    let cached = proxy.get_with("/cached", &format!("Cache-Control: only-if-cached\n{all}"));
    assert_eq!((cached.status(), origin.count()), (504, asked), "{}", cached.cache());
    let alone = proxy.get_with("/alone", &format!("Authorization: Basic x\n{all}"));
    assert!(alone.complete && alone.body == body[..=140_000], "{}", alone.cache());
    assert_eq!((origin.count(), origin.last().header("range").as_str()), (asked + 1, &all[7..]));
    let open = proxy.get_with("/open", all);
    assert!(open.complete && open.body == body[..=140_000]);
    assert!(open.cache().contains("; fwd=stale"), "{}", open.cache());
}

/// What is asked for ahead is what is sent, also where it may not be reused.
#[test]
fn slices_that_may_not_be_reused_are_asked_for_once_each() {
    let body = noise(36, LENGTH);
    let sent = body.clone();
    let origin = Origin::start(move |request| {
        let lifetime = if request.path() == "/never" { "Cache-Control: max-age=0" } else { "" };
        slice_of(request, &sent, &format!("ETag: \"v1\"\n{lifetime}"))
    });
    let proxy = sliced_by(&origin, SLICE as u64);
    bring_three(&proxy);
    for (path, headers) in [("/", "Cache-Control: no-cache\n"), ("/never", ""), ("/never", "")] {
        for (slices, last) in [(2, 100_000), (3, 140_000), (5, LENGTH - 1)] {
            let asked = origin.count();
            let answer = proxy.get_with(path, &format!("{headers}Range: bytes=0-{last}"));
            assert!(answer.complete && answer.body == body[..=last], "{}", answer.cache());
            assert_eq!(origin.count() - asked, slices, "{path} to {last}: {}", answer.cache());
        }
    }
}

/// Slices are asked for without their client's range, and rules look for it all the same: else the
/// second slice would not be kept, and the answer broken off.
#[test]
fn rules_that_look_for_a_range_hold_for_all_of_its_slices() {
    let body = noise(37, LENGTH);
    let sent = body.clone();
    let origin = Origin::start(move |request| {
        slice_of(request, &sent, "ETag: \"v1\"\nCache-Control: no-store")
    });
    let proxy = Proxy::start_with(&origin, |config| {
        let rule = "[[rule]]\nheader = [\"Range\", \"If-Range\"]\nstore = true\n";
        let settings = Settings::parse(&format!("{rule}[caching]\nslice_bytes = {SLICE}\n"));
        let settings = settings.expect("good settings").proxy;
        (config.ruleset, config.caching) = (settings.ruleset, settings.caching);
    });
    let ask = || proxy.get_with("/", "If-Range: \"v1\"\nRange: bytes=0-");
    let whole = ask();
    assert!(whole.complete && whole.body == body, "{} bytes", whole.body.len());
    eventually("it is stored", || ask().cache().contains("; hit"));
}

/// An origin that has the first slice, and this status in place of any other.
fn that_ends_with(status: u16, gate: &Gate) -> Origin {
    let (body, gate) = (noise(34, LENGTH), gate.clone());
    Origin::start(move |request| {
        if request.header("range").starts_with("bytes=0-") {
            return slice_of(request, &body, "ETag: \"v1\"");
        }
        gate.wait();
        reply(status, "", "")
    })
}

#[test]
fn what_the_origin_has_no_slice_of_is_not_broken_by_the_store() {
    // No such resource; and what cannot be an answer to what it was asked.
    for status in [404, 304] {
        let gate = Gate::default();
        gate.open();
        let origin = that_ends_with(status, &gate);
        let proxy = sliced_by(&origin, SLICE as u64);
        let broken = proxy.get_with("/", &format!("Range: bytes=0-{}", LENGTH - 1));
        assert!(!broken.complete && broken.body.len() == SLICE, "{status}");
        let by =
            |name| proxy.metric(&format!("damelo_proxy_answers_broken_total{{by=\"{name}\"}}"));
        eventually("it is counted", || by("origin") + by("store") > 0);
        assert_eq!((by("origin"), by("store")), (1, 0), "{status}");
    }
}

#[test]
fn a_slice_that_fails_is_asked_for_once_by_all_who_wait() {
    let gate = Gate::default();
    let origin = that_ends_with(304, &gate);
    let proxy = sliced_by(&origin, SLICE as u64);
    proxy.get_with("/", "Range: bytes=0-9");
    let ask = || send_to(proxy.info.address, "GET", "/", "Range: bytes=70000-70009", b"");
    let mut asking: Vec<_> = (0..4).map(|_| ask()).collect();
    eventually("all but one wait", || {
        (proxy.metric("damelo_proxy_collapsed_waiting"), origin.count()) == (3, 2)
    });
    gate.open();
    let answers = asking.iter_mut().map(|stream| read_message(stream, false).expect("an answer"));
    let said: Vec<_> = answers.map(|answer| (answer.status(), answer.cache())).collect();
    assert!(said.iter().all(|(status, _)| *status == 502), "{said:?}");
    let collapsed = said.iter().filter(|(_, cache)| cache.contains("; collapsed")).count();
    assert_eq!((collapsed, origin.count()), (3, 2), "{said:?}");
}

/// A resource that is too long to be stored is not stored slice by slice either.
#[test]
fn what_is_too_long_does_not_come_in_slices() {
    let (body, origin) = noise_in_parts(38, LENGTH);
    for (most, is_sliced) in [(LENGTH, true), (LENGTH - 1, false), (1_000, false)] {
        let proxy = Proxy::start_with(&origin, |config| {
            config.caching.slice_bytes = SLICE as u64;
            config.limits.body_bytes_max = Some(most as u64);
        });
        let before = origin.count();
        for first in [5, 205, 405] {
            let range = format!("bytes={first}-{}", first + 1);
            let answer = proxy.get_with("/", &format!("Range: {range}"));
            assert!(answer.status() == 206 && answer.body == body[first..=first + 1], "{most}");
            let last = if is_sliced { "bytes=0-65535" } else { &range };
            assert_eq!(origin.last().header("range"), last, "{most}");
        }
        // The first range learns from a slice that there are none.
        assert_eq!(origin.count() - before, if is_sliced { 1 } else { 4 }, "{most}");
        let is_hit = || proxy.get_with("/", "Range: bytes=405-406").cache().contains("; hit");
        match is_sliced {
            // What is wanted of a slice is sent before all of it is there.
            true => eventually("the slice is stored", is_hit),
            false => assert!(is_hit(), "a part is stored by its own length"),
        }
    }
}

/// Else each of them would ask for a slice first, which cannot be kept.
#[test]
fn a_slice_that_could_not_be_kept_is_not_asked_for() {
    let (body, origin) = noise_in_parts(37, LENGTH);
    let proxy = sliced_by(&origin, SLICE as u64);
    bring_three(&proxy);
    for headers in ["Authorization: Basic x", "Cache-Control: no-store"] {
        let before = origin.count();
        let answer = proxy.get_with("/", &format!("{headers}\nRange: bytes=200000-200009"));
        assert!(answer.status() == 206 && answer.body == body[200_000..200_010], "{headers}");
        assert_eq!(origin.count(), before + 1, "{headers}");
        assert_eq!(origin.last().header("range"), "bytes=200000-200009", "{headers}");
    }
}
