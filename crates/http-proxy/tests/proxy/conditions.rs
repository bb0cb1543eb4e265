//! Conditional requests and HEAD: answered from what is stored, or used to bring it up to date.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use crate::ranges::slice_of;
use crate::support::{Origin, Proxy, Reply, date, eventually, reply};

/// RFC 9110 §13.1.1, §13.1.4, §13.2.2.
#[test]
fn preconditions_fail_from_the_cache() {
    let modified = date(-1000);
    let stored = format!("Cache-Control: max-age=60\nETag: \"v1\"\nLast-Modified: {modified}");
    let origin = Origin::start(move |_| reply(200, &stored, "body"));
    let proxy = Proxy::start(&origin);
    let on_miss = proxy.get_with("/", "If-Match: \"v2\"");
    assert_eq!(on_miss.status(), 412, "by comparing with the full answer");
    assert!(!origin.last().has("if-match"), "so that it can be stored");
    eventually("the fill is done", || proxy.get("/").cache().contains("; hit"));
    for (headers, status) in [
        ("If-Match: \"v1\"", 200),
        ("If-Match: *", 200),
        ("If-Match: \"v2\", \"v1\"", 200),
        ("If-Match: \"v2\"", 412),
        ("If-Match: W/\"v1\"", 412),
        (&format!("If-Unmodified-Since: {}", date(0)), 200),
        (&format!("If-Unmodified-Since: {}", date(-2000)), 412),
        ("If-Match: \"v2\"\nIf-None-Match: \"v1\"", 412),
        ("If-Match: \"v1\"\nIf-None-Match: \"v1\"", 304),
    ] {
        let answer = proxy.get_with("/", headers);
        assert_eq!(answer.status(), status, "{headers}");
        assert!(answer.cache().contains("; hit"), "{}", answer.cache());
        assert_eq!(answer.header("etag"), "\"v1\"");
    }
    assert_eq!(origin.count(), 1);
}

/// RFC 9110 §13.1.1: what was kept from the origin is compared here, stored or not.
#[test]
fn preconditions_count_where_nothing_is_stored() {
    let modified = date(-1000);
    for cache_control in ["private", "no-store", "max-age=60"] {
        let headers =
            format!("Cache-Control: {cache_control}\nETag: \"v1\"\nLast-Modified: {modified}");
        let origin = Origin::start(move |_| reply(200, &headers, "body"));
        for (condition, status) in [
            ("If-Match: \"v2\"", 412),
            ("If-Match: \"v1\"", 200),
            (&format!("If-Unmodified-Since: {}", date(-2000)), 412),
            ("If-None-Match: \"v1\"", 304),
        ] {
            // Nothing is known of it yet, so that the origin is asked for what could be stored.
            let proxy = Proxy::start(&origin);
            let answer = proxy.get_with("/", condition);
            assert_eq!(answer.status(), status, "{cache_control} {condition}");
            let header = condition.split(':').next().unwrap();
            assert!(!origin.last().has(header), "{cache_control} {condition}");
        }
    }
}

/// RFC 9110 §13.2.2, §14.2: of what varies no slices are kept, also where the one that was asked
/// for without the conditions turns out to be the very range.
#[test]
fn preconditions_come_before_a_range_that_is_no_slice() {
    let modified = date(-1000);
    let headers = format!("Vary: Accept\nETag: \"v1\"\nLast-Modified: {modified}");
    let origin = Origin::start(move |request| {
        let same = |name: &str| !request.has(name) || request.header(name) == "\"v1\"";
        let old = request.has("if-unmodified-since");
        match (same("if-match") && !old, request.header("if-none-match").as_str()) {
            (false, _) => reply(412, "", ""),
            (true, "\"v1\"") => reply(304, &headers, ""),
            _ => slice_of(request, b"0123456789", &headers),
        }
    });
    for (conditions, status) in [
        ("If-Match: \"v2\"", 412),
        ("If-Match: \"v1\"", 206),
        (&format!("If-Unmodified-Since: {}", date(-2000)), 412),
        ("If-None-Match: \"v1\"", 304),
        ("If-None-Match: \"v2\"", 206),
    ] {
        // Nothing is known of it yet.
        let proxy = Proxy::start(&origin);
        for range in ["bytes=0-9", "bytes=0-1048575"] {
            let path = format!("/{range}");
            let answer = proxy.get_with(&path, &format!("Range: {range}\n{conditions}"));
            assert_eq!(answer.status(), status, "{range} {conditions}");
        }
    }
}

#[test]
fn preconditions_can_be_left_to_the_origin() {
    let origin = Origin::start(|request| {
        let status = if request.has("if-match") { 412 } else { 200 };
        reply(status, "Cache-Control: max-age=60\nETag: \"v1\"", "body")
    });
    let proxy = Proxy::start_with(&origin, |config| {
        config.caching.answer_precondition_failed = false;
    });
    proxy.get("/");
    let answer = proxy.get_with("/", "If-Match: \"v1\"");
    assert_eq!(answer.status(), 412);
    assert!(answer.cache().contains("fwd=bypass"), "{}", answer.cache());
    assert!(proxy.get("/").cache().contains("; hit"), "and nothing has changed");
}

#[test]
fn dates_stand_in_for_a_missing_last_modified() {
    let origin = Origin::start(|_| {
        reply(200, &format!("Cache-Control: max-age=60\nDate: {}", date(0)), "x")
    });
    let proxy = Proxy::start(&origin);
    proxy.get("/");
    let since = |offset| proxy.get_with("/", &format!("If-Modified-Since: {}", date(offset)));
    assert_eq!(since(10).status(), 304);
    assert_eq!(since(-100).status(), 200);
}

/// The conditions of a client save the body where nothing can be stored.
#[test]
fn uncacheable_resources_are_asked_for_under_the_clients_conditions() {
    let origin = Origin::start(|request| {
        let status = if request.header("if-none-match") == "\"v1\"" { 304 } else { 200 };
        reply(status, "Cache-Control: no-store\nETag: \"v1\"", "mine")
    });
    let proxy = Proxy::start(&origin);
    assert_eq!(proxy.get("/").text(), "mine");
    let answer = proxy.get_with("/", "If-None-Match: \"v1\"");
    assert_eq!(answer.status(), 304);
    assert!(answer.cache().contains("fwd-status=304"), "{}", answer.cache());
}

/// RFC 9111 §4.3.5.
#[test]
fn a_head_freshens_or_outdates_what_a_get_stored() {
    for (status, head, body, expected) in [
        (200, "ETag: \"v1\"\nCache-Control: max-age=100\nX-New: yes", "seven77", "hit"),
        (200, "ETag: \"v2\"\nCache-Control: max-age=100", "seven77", "fwd=stale"),
        (200, "ETag: \"v1\"\nCache-Control: max-age=100", "of another length", "fwd=stale"),
        (404, "", "gone for this one", "hit"),
        (401, "WWW-Authenticate: Basic realm=x", "who are you", "hit"),
    ] {
        let origin = Origin::start(move |request| {
            if request.method() == "HEAD" {
                return reply(status, head, body);
            }
            reply(200, "ETag: \"v1\"\nCache-Control: max-age=10", "seven77")
        });
        let proxy = Proxy::start(&origin);
        proxy.get("/");
        let asked = proxy.ask("HEAD", "/", "Cache-Control: no-cache");
        assert_eq!(asked.status(), status);
        let after = proxy.get("/");
        assert!(after.cache().contains(expected), "{head}: {}", after.cache());
        if expected == "hit" {
            assert_eq!(after.has("x-new"), status == 200);
            assert_eq!(after.text(), "seven77");
        }
    }
}

/// RFC 9111 §4.3.5: validators and length count where they were received. Nothing was asked about
/// what has no validator. A page for who sent a cookie agrees only by what is in it.
#[test]
fn a_head_that_asked_nothing_freshens_by_what_it_says() {
    for (fields, head, expected) in [
        ("", "Cache-Control: max-age=100", "hit"),
        ("Cookie: user=b", "Cache-Control: max-age=100", "hit"),
        ("Cookie: user=b", "Cache-Control: private", "fwd=stale"),
        ("Cookie: user=b", "Content-Type: text/html", "fwd=stale"),
    ] {
        let origin = Origin::start(move |request| match request.method() {
            "HEAD" => Reply { chunked: true, ..reply(200, head, "") },
            _ => reply(200, "Cache-Control: max-age=1", "body"),
        });
        let proxy = Proxy::start(&origin);
        proxy.get("/");
        proxy.pass_seconds(2);
        assert_eq!(proxy.ask("HEAD", "/", fields).status(), 200);
        let after = proxy.get("/");
        assert!(after.cache().contains(expected), "{fields} {head}: {}", after.cache());
    }
}

#[test]
fn a_resource_that_became_cacheable_is_collapsed_again() {
    let storable = Arc::new(AtomicU16::new(0));
    let now = storable.clone();
    let origin = Origin::start(move |_| {
        let cacheable = now.load(Ordering::SeqCst) == 1;
        reply(200, if cacheable { "Cache-Control: max-age=10" } else { "" }, "x")
    });
    let proxy = Proxy::start(&origin);
    proxy.get("/");
    storable.store(1, Ordering::SeqCst);
    assert!(proxy.get("/").cache().contains("; stored"));
    eventually("it is stored", || proxy.get("/").cache().contains("; hit"));
}

/// RFC 9110 §15.4.5: there is nothing that it could say has not changed.
#[test]
fn a_304_that_nobody_asked_for_is_a_broken_answer() {
    let origin = Origin::start(|_| reply(304, "Cache-Control: max-age=60\nETag: \"v1\"", ""));
    let proxy = Proxy::start(&origin);
    for (method, headers) in [
        ("GET", ""),
        ("HEAD", ""),
        ("POST", ""),
        ("GET", "Range: bytes=0-1"),
        ("GET", "Cache-Control: no-store"),
        // Withheld, as what comes may be stored.
        ("GET", "If-None-Match: \"v2\""),
    ] {
        let answer = proxy.ask(method, "/x", headers);
        assert_eq!(answer.status(), 502, "{method} {headers}");
        assert!(answer.cache().contains("detail=origin-unasked"), "{}", answer.cache());
    }
    assert_eq!(proxy.metric("damelo_proxy_stored_total"), 0);
    let asked = proxy.get_with("/x", "If-None-Match: \"v1\"\nRange: bytes=0-1,4-5");
    assert_eq!(asked.status(), 304, "{}", asked.cache());
}

/// A page that is validated each time, and that many want: that a 304 has nothing to update any
/// more, since another has done it, is no invalidation.
#[test]
fn validations_side_by_side_supersede_each_other() {
    let asked = AtomicU64::new(0);
    let origin = Origin::start(move |request| {
        let known = request.has("if-none-match");
        let count = asked.fetch_add(1, Ordering::Relaxed);
        let fields = format!("Cache-Control: no-cache\nETag: \"a\"\nX-Count: {count}");
        let mut answer = reply(if known { 304 } else { 200 }, &fields, "x");
        answer.delay = std::time::Duration::from_millis(30);
        answer
    });
    let proxy = Proxy::start(&origin);
    proxy.get("/");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let answer = proxy.get("/");
                    assert_eq!((answer.status(), answer.text()), (200, "x".to_owned()));
                }
            });
        }
    });
    let not_stored = |reason: &str| {
        proxy.metric(&format!("damelo_proxy_not_stored_total{{reason=\"{reason}\"}}"))
    };
    assert_eq!(not_stored("invalidated"), 0);
    assert!(not_stored("superseded") > 0);
}
