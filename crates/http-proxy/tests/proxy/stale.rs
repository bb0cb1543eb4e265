//! Stale answers: while validating, in place of errors, and where they are forbidden.

use std::io::{BufReader, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use damelo_http_proxy::HealthChecks;

use crate::support::{
    Gate, Home, Origin, PATIENCE, Proxy, Reply, ask_at, eventually, read_message, reply,
};

/// An origin whose answer says how often it was asked; all but the first wait at the gate.
fn counting(cache_control: &'static str, gate: Gate) -> Origin {
    let count = AtomicUsize::new(0);
    Origin::start(move |_| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        if number > 0 {
            gate.wait();
        }
        reply(200, &format!("Cache-Control: {cache_control}"), number.to_string())
    })
}

/// RFC 5861 §3.
#[test]
fn one_validation_behind_many_stale_answers() {
    let gate = Gate::default();
    let origin = counting("max-age=10, stale-while-revalidate=100", gate.clone());
    let proxy = Proxy::start(&origin);
    assert_eq!(proxy.get("/").text(), "0");
    proxy.pass_seconds(20);
    for _ in 0..10 {
        // The validation is held up; nobody waits for it.
        let stale = proxy.get("/");
        assert!(stale.cache().contains("hit; ttl=-"), "{}", stale.cache());
        assert_eq!(stale.text(), "0");
        assert!(stale.age().unwrap() >= 20);
    }
    gate.open();
    eventually("the validation is done", || proxy.get("/").text() == "1");
    assert_eq!(origin.count(), 2);
    let fresh = proxy.get("/").cache();
    assert!(fresh.contains("; hit") && !fresh.contains("ttl=-"), "{fresh}");
}

#[test]
fn a_validation_behind_that_fails_counts_no_answers() {
    let failing = Arc::new(AtomicU16::new(200));
    let current = failing.clone();
    let origin = Origin::start(move |_| {
        let headers = "Cache-Control: max-age=10, stale-while-revalidate=100\nETag: \"a\"";
        match current.load(Ordering::SeqCst) {
            // Another tag than the one asked about, and then one that nobody asked about.
            304 => reply(304, "ETag: \"b\"", ""),
            0 => Reply { break_after: Some(0), ..reply(200, headers, "x") },
            status => reply(status, headers, "x"),
        }
    });
    let proxy = Proxy::start(&origin);
    let asked = |path: &str| origin.asked().iter().filter(|asked| asked.path() == path).count();
    let is_hit = |path: &str| proxy.get(path).cache().contains("; hit");
    proxy.get("/broken");
    proxy.get("/odd");
    proxy.pass_seconds(20);
    failing.store(0, Ordering::SeqCst);
    // There is one at a time: another begins once the one before has failed.
    eventually("a validation has failed", || is_hit("/broken") && asked("/broken") >= 3);
    failing.store(304, Ordering::SeqCst);
    assert!(is_hit("/odd"));
    eventually("it is asked for without a condition, too", || asked("/odd") == 3);
    failing.store(404, Ordering::SeqCst);
    eventually("it is forgotten", || proxy.get("/odd").status() == 404);
    for counter in ["damelo_proxy_stale_on_error_total", "damelo_proxy_own_errors_total"] {
        assert_eq!(proxy.metric(counter), 0, "{counter}");
    }
}

#[test]
fn the_window_of_stale_while_revalidate_ends() {
    let gate = Gate::default();
    gate.open();
    let origin = counting("max-age=10, stale-while-revalidate=30", gate);
    let proxy = Proxy::start(&origin);
    proxy.get("/");
    proxy.pass_seconds(60);
    let late = proxy.get("/");
    assert!(late.cache().contains("fwd=stale"), "{}", late.cache());
    assert_eq!(late.text(), "1");
}

#[test]
fn a_validation_behind_merges_its_304() {
    let origin = Origin::start(|request| {
        if request.has("if-none-match") {
            return reply(304, "ETag: \"a\"\nCache-Control: max-age=50\nX-New: 1", "");
        }
        reply(200, "ETag: \"a\"\nCache-Control: max-age=10, stale-while-revalidate=100", "x")
    });
    let proxy = Proxy::start(&origin);
    proxy.get("/");
    proxy.pass_seconds(20);
    let stale = proxy.get_with("/", "If-None-Match: \"a\"");
    assert_eq!(stale.status(), 304, "the client's condition is answered from what is stored");
    eventually("the validation is done", || proxy.get("/").header("x-new") == "1");
    assert_eq!(origin.count(), 2);
}

/// RFC 5861 §4, RFC 9111 §4.2.4.
#[test]
fn stale_in_place_of_an_error() {
    for (cache_control, status, served) in [
        ("max-age=10, stale-if-error=100", 503, true),
        ("max-age=10, stale-if-error=100", 500, true),
        // No status at all (RFC 9110 §15).
        ("max-age=10, stale-if-error=100", 600, true),
        ("max-age=10", 600, false),
        ("max-age=10, stale-if-error=5", 503, false),
        ("max-age=10, stale-if-error=100", 404, false),
        ("max-age=10", 503, false),
        ("max-age=10, stale-if-error=100, must-revalidate", 503, false),
        ("max-age=10, stale-if-error=100, proxy-revalidate", 503, false),
        ("s-maxage=10, stale-if-error=100", 503, false),
    ] {
        let now = Arc::new(AtomicU16::new(200));
        let current = now.clone();
        let origin = Origin::start(move |_| {
            let status = current.load(Ordering::SeqCst);
            let headers = if status == 200 {
                format!("Cache-Control: {cache_control}")
            } else {
                String::new()
            };
            reply(status, &headers, format!("{status}"))
        });
        let proxy = Proxy::start(&origin);
        proxy.get("/");
        proxy.pass_seconds(20);
        now.store(status, Ordering::SeqCst);
        let answer = proxy.get("/");
        let expected = if served { 200 } else { status };
        assert_eq!(answer.status(), expected, "{cache_control} {status}");
        let wanted = format!("fwd=stale; fwd-status={status}");
        assert!(answer.cache().contains(&wanted), "{}", answer.cache());
        if served {
            assert_eq!(answer.text(), "200");
            assert!(answer.cache().contains("detail=stale-if-error"), "{}", answer.cache());
        }
    }
}

#[test]
fn a_client_may_ask_for_stale_in_place_of_an_error() {
    let failing = Arc::new(AtomicU16::new(200));
    let current = failing.clone();
    let origin = Origin::start(move |_| {
        reply(current.load(Ordering::SeqCst), "Cache-Control: max-age=10", "x")
    });
    let proxy = Proxy::start(&origin);
    proxy.get("/");
    proxy.pass_seconds(20);
    failing.store(503, Ordering::SeqCst);
    assert_eq!(proxy.get_with("/", "Cache-Control: stale-if-error=100").status(), 200);
    assert_eq!(proxy.get("/").status(), 503);
}

/// RFC 9111 §4.2.4, §5.2.2.2: disconnected, stale is served unless that is forbidden.
#[test]
fn disconnected_operation() {
    for (cache_control, served) in [
        ("max-age=10", true),
        ("max-age=10, must-revalidate", false),
        ("max-age=0, no-cache", false),
    ] {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let origin = Origin::start(move |_| {
            let headers = format!("Cache-Control: {cache_control}\nETag: \"a\"");
            let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
            let delay = if is_first { Duration::ZERO } else { PATIENCE };
            Reply { delay, ..reply(200, &headers, "kept") }
        });
        let proxy = Proxy::start_with(&origin, |config| {
            config.timeouts.origin_header = Duration::from_secs(2)
        });
        proxy.get("/");
        proxy.pass_seconds(20);
        let answer = proxy.get("/");
        assert!(answer.cache().contains("detail=origin-timeout"), "{}", answer.cache());
        if served {
            assert_eq!((answer.status(), answer.text().as_str()), (200, "kept"));
            assert!(answer.cache().contains("fwd=stale; ttl=-"), "{}", answer.cache());
            assert!(answer.age().unwrap() >= 20);
        } else {
            assert_eq!(answer.status(), 504, "{cache_control}");
        }
    }
}

#[test]
fn those_who_waited_for_a_failure_get_what_is_stale_too() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let origin = Origin::start(move |_| {
        let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
        let delay = if is_first { Duration::ZERO } else { PATIENCE };
        Reply { delay, ..reply(200, "Cache-Control: max-age=10", "kept") }
    });
    let proxy =
        Proxy::start_with(&origin, |config| config.timeouts.origin_header = Duration::from_secs(2));
    proxy.get("/");
    proxy.pass_seconds(20);
    let address = proxy.info.address;
    let clients: Vec<_> =
        (0..10).map(|_| std::thread::spawn(move || ask_at(address, "GET", "/", "", b""))).collect();
    for client in clients {
        assert_eq!(client.join().unwrap().text(), "kept");
    }
    assert!(origin.count() <= 4, "{}", origin.count());
}

/// What a refusal says of one request says nothing of what is stored.
#[test]
fn a_client_whose_answer_is_not_stored_takes_nothing_from_the_others() {
    let origin = Origin::start(|request| match request.has("authorization") {
        true => reply(401, "", "who?"),
        false => reply(200, "Cache-Control: max-age=10, stale-while-revalidate=100", "x"),
    });
    let proxy = Proxy::start(&origin);
    proxy.get("/");
    proxy.pass_seconds(2);
    for own in ["Cache-Control: no-cache, no-store", "Authorization: x\nCache-Control: no-cache"] {
        assert!(proxy.get_with("/", own).cache().contains("fwd=request"), "{own}");
        assert!(proxy.get("/").cache().contains("; hit"), "{own}");
    }
    proxy.pass_seconds(18);
    assert!(proxy.get_with("/", "Authorization: x").cache().contains("; hit"), "stale");
    eventually("it is validated in vain", || origin.count() == 4);
    assert!(proxy.get("/").cache().contains("; hit"), "stale");
}

/// An answer that cannot be read is none.
#[test]
fn stale_in_place_of_an_answer_with_too_long_headers() {
    let count = AtomicUsize::new(0);
    let origin = Origin::start(move |_| {
        let length = if count.fetch_add(1, Ordering::SeqCst) == 0 { 1 } else { 1 << 20 };
        let padding = "x".repeat(length);
        reply(200, &format!("Cache-Control: max-age=10, stale-if-error=100\nX-A: {padding}"), "x")
    });
    let proxy = Proxy::start(&origin);
    proxy.get("/");
    proxy.pass_seconds(20);
    let stale = proxy.get("/");
    assert_eq!((stale.status(), stale.text().as_str()), (200, "x"));
    assert!(stale.cache().contains("detail=origin-headers-too-large"), "{}", stale.cache());
}

/// Without checks, too, and with no other origin to ask.
#[test]
fn an_only_origin_that_cannot_be_reached_is_not_waited_for_where_stale_will_do() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    let origin = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("accept");
        let mut reader = BufReader::new(stream);
        read_message(&mut reader, false).expect("a request");
        let answer = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=10\r\nContent-Length: 1\r\n\r\nx";
        reader.get_mut().write_all(answer).expect("write");
    });
    let home = Home::new();
    let proxy = Proxy::start_to(&home, format!("http://{address}"), |config| {
        config.workers = 1;
        config.upstream.ejection.failures = 2;
        config.upstream.ejection.period = PATIENCE;
    });
    assert_eq!(proxy.get("/").text(), "x");
    origin.join().expect("it has answered, and is gone");
    proxy.pass_seconds(20);
    let healthy = format!("damelo_proxy_origin_healthy{{origin=\"http://{address}\"}}");
    assert_eq!(proxy.metric(&healthy), 1);
    let forwarded = || proxy.metric("damelo_proxy_forwarded_total");
    // The first may find the old connection closed, and try a new one.
    let asked = (0..).take_while(|_| {
        assert_eq!(proxy.get("/").text(), "x");
        proxy.metric(&healthy) == 1
    });
    assert!(asked.take(10).count() < 5, "it is found to be out of reach");
    let before = forwarded();
    for _ in 0..100 {
        let answer = proxy.get("/");
        assert_eq!(answer.text(), "x");
        assert!(answer.cache().contains("detail=connect-failed"), "{}", answer.cache());
    }
    assert!(forwarded() < before + 50, "a trial each second at most");
    let before = forwarded();
    assert_eq!(proxy.get("/missing").status(), 502, "nothing stale will do");
    assert!(forwarded() > before);
}

/// As an origin that has too much to do can say so a thousand times a second.
#[test]
fn what_could_not_be_validated_is_left_alone_for_a_while() {
    const SOUND: &str = "Cache-Control: max-age=10, stale-while-revalidate=100";
    let broken = || Reply { break_after: Some(0), ..reply(200, SOUND, "gone") };
    for failure in [|| reply(503, "", "too much"), broken] {
        let failing = Arc::new(AtomicBool::new(false));
        let fails = failing.clone();
        let origin = Origin::start(move |_| match fails.load(Ordering::SeqCst) {
            false => reply(200, SOUND, "x"),
            true => failure(),
        });
        let proxy = Proxy::start(&origin);
        proxy.get("/");
        proxy.pass_seconds(20);
        failing.store(true, Ordering::SeqCst);
        for _ in 0..200 {
            assert_eq!(proxy.get("/").text(), "x");
        }
        assert!(origin.count() < 20, "{}", origin.count());
        failing.store(false, Ordering::SeqCst);
        eventually("it is validated again", || proxy.get("/").cache().contains("; ttl=10"));
    }
}

/// Where its checks find that, too, no request of a client has to try it.
#[test]
fn an_only_origin_that_fails_checks_and_requests_is_tried_behind_stale_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    let origin = std::thread::spawn(move || {
        // Between the checks comes the request.
        loop {
            let (stream, _) = listener.accept().expect("accept");
            let mut reader = BufReader::new(stream);
            let asked = read_message(&mut reader, false).expect("a request");
            let answer =
                b"HTTP/1.1 200 OK\r\nCache-Control: max-age=10\r\nContent-Length: 1\r\n\r\nx";
            reader.get_mut().write_all(answer).expect("write");
            if asked.path() == "/page" {
                return;
            }
        }
    });
    let home = Home::new();
    let proxy = Proxy::start_to(&home, format!("http://{address}"), |config| {
        config.workers = 1;
        config.upstream.ejection.failures = 2;
        config.upstream.ejection.period = PATIENCE * 2;
        let interval = Duration::from_millis(50);
        config.upstream.check = Some(HealthChecks { fall: 1, interval, ..HealthChecks::default() });
    });
    assert_eq!(proxy.get("/page").text(), "x");
    origin.join().expect("it has answered, and is gone");
    proxy.pass_seconds(20);
    let forwarded = || proxy.metric("damelo_proxy_forwarded_total");
    eventually("checks fail", || proxy.get("/missing").cache().contains("detail=origin-down"));
    let before = forwarded();
    eventually("requests fail, too", || {
        assert!(proxy.get("/missing").status() > 500);
        forwarded() >= before + 3
    });
    let before = forwarded();
    eventually("it is tried", || {
        assert_eq!(proxy.get("/page").text(), "x");
        forwarded() >= before + 2
    });
}
