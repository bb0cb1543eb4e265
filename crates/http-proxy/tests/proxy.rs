//! Scripts over real sockets: an origin, the proxy, a client, and what must come out.

#[path = "proxy/along.rs"]
mod along;
#[path = "proxy/changes.rs"]
mod changes;
#[path = "proxy/conditions.rs"]
mod conditions;
#[path = "proxy/conformance.rs"]
mod conformance;
#[path = "proxy/fills.rs"]
mod fills;
#[path = "proxy/heads.rs"]
mod heads;
#[path = "proxy/late_ranges.rs"]
mod late_ranges;
#[path = "proxy/outdated.rs"]
mod outdated;
#[path = "proxy/part_fields.rs"]
mod part_fields;
#[path = "proxy/ranges.rs"]
mod ranges;
#[path = "proxy/repeats.rs"]
mod repeats;
#[path = "proxy/resumed.rs"]
mod resumed;
#[path = "proxy/slice_parts.rs"]
mod slice_parts;
#[path = "proxy/slices_for_whom.rs"]
mod slices_for_whom;
#[path = "proxy/stale.rs"]
mod stale;
#[path = "proxy/stale_slices.rs"]
mod stale_slices;
mod support;
#[path = "proxy/unstored.rs"]
mod unstored;
#[path = "proxy/webdav.rs"]
mod webdav;
#[path = "proxy/wholes_for_slices.rs"]
mod wholes_for_slices;

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use damelo_http_proxy::OriginTarget;
use support::{Gate, Home, Nobody, Origin, Proxy, Reply, ask_at, date, eventually, noise, reply};

/// An origin that gives every request the same answer.
fn same(status: u16, headers: &'static str, body: &'static str) -> Origin {
    Origin::start(move |_| reply(status, headers, body))
}

#[test]
fn miss_then_hit_with_age_and_date() {
    let origin = Origin::start(|_| {
        reply(
            200,
            &format!("Cache-Control: max-age=60\nDate: {}\nX-A: 1\nX-A: 2", date(0)),
            "hello",
        )
    });
    let proxy = Proxy::start(&origin);
    let miss = proxy.get("/a");
    assert_eq!((miss.status(), miss.text().as_str()), (200, "hello"));
    assert!(miss.cache().contains("fwd=uri-miss; fwd-status=200; stored"), "{}", miss.cache());
    assert!(!miss.has("age"));
    proxy.pass_seconds(10);
    let hit = proxy.get("/a");
    assert_eq!((hit.status(), hit.text().as_str()), (200, "hello"));
    assert!(hit.cache().contains("damelo; hit; ttl="), "{}", hit.cache());
    assert!((10..15).contains(&hit.age().unwrap()), "{:?}", hit.age());
    assert_eq!(hit.header("date"), miss.header("date"), "the origin's Date is kept");
    assert_eq!(hit.header("x-a"), "1, 2");
    assert_eq!(hit.header("content-length"), "5");
    assert_eq!(origin.count(), 1);
    assert_ne!(proxy.get("/a?q").cache(), hit.cache(), "the query is part of the key");
}

#[test]
fn age_of_caches_nearer_the_origin_counts() {
    let origin = same(200, "Cache-Control: max-age=60\nAge: 50\nCache-Status: inner; hit", "x");
    let proxy = Proxy::start(&origin);
    let miss = proxy.get("/");
    assert!(miss.cache().starts_with("inner; hit, damelo; fwd=uri-miss"), "{}", miss.cache());
    let hit = proxy.get("/");
    assert!(hit.age().unwrap() >= 50);
    assert!(hit.cache().starts_with("inner; hit, damelo; hit"), "{}", hit.cache());
    proxy.pass_seconds(11);
    assert!(proxy.get("/").cache().contains("fwd=stale"));
}

#[test]
fn etag_revalidation_merges_the_304() {
    let origin = Origin::start(|request| {
        if request.header("if-none-match") == "\"v1\"" {
            reply(
                304,
                "ETag: \"v1\"\nCache-Control: max-age=100\nX-New: yes\nContent-Type: a/b\nContent-Encoding: br",
                "",
            )
        } else {
            reply(
                200,
                "ETag: \"v1\"\nCache-Control: max-age=10\nContent-Type: text/plain\nX-Old: yes",
                "body",
            )
        }
    });
    let proxy = Proxy::start(&origin);
    proxy.get("/");
    proxy.pass_seconds(20);
    let validated = proxy.get("/");
    assert_eq!((validated.status(), validated.text().as_str()), (200, "body"));
    assert!(
        validated.cache().contains("fwd=stale; fwd-status=304; stored"),
        "{}",
        validated.cache()
    );
    assert_eq!(validated.header("x-new"), "yes");
    assert_eq!(validated.header("x-old"), "yes");
    assert_eq!(validated.header("content-type"), "a/b");
    assert!(!validated.has("content-encoding"), "describes the bytes that are stored");
    proxy.pass_seconds(90);
    let hit = proxy.get("/");
    assert!(hit.cache().contains("; hit"), "the new lifetime counts: {}", hit.cache());
    assert_eq!(hit.header("x-new"), "yes");
    assert_eq!(origin.count(), 2);
}

#[test]
fn last_modified_revalidation_and_replacement() {
    let version = Arc::new(AtomicU16::new(1));
    let current = version.clone();
    let modified = date(-1_000_000);
    let expected = modified.clone();
    let origin = Origin::start(move |request| {
        let version = current.load(Ordering::SeqCst);
        if version == 1 && request.header("if-modified-since") == modified {
            return reply(304, "", "");
        }
        reply(
            200,
            &format!("Last-Modified: {modified}\nCache-Control: max-age=10"),
            format!("v{version}"),
        )
    });
    let proxy = Proxy::start(&origin);
    assert_eq!(proxy.get("/").text(), "v1");
    proxy.pass_seconds(20);
    assert_eq!(proxy.get("/").text(), "v1");
    assert_eq!(origin.last().header("if-modified-since"), expected);
    version.store(2, Ordering::SeqCst);
    proxy.pass_seconds(20);
    assert_eq!(proxy.get("/").text(), "v2");
    let hit = proxy.get("/");
    assert!(hit.cache().contains("; hit"));
    assert_eq!(hit.text(), "v2");
}

#[test]
fn a_304_about_other_bytes_is_not_merged() {
    let origin = Origin::start(|request| {
        if request.has("if-none-match") {
            reply(304, "ETag: \"other\"", "")
        } else {
            reply(200, "ETag: \"v1\"\nCache-Control: max-age=10", "fetched")
        }
    });
    let proxy = Proxy::start(&origin);
    proxy.get("/");
    proxy.pass_seconds(20);
    let again = proxy.get("/");
    assert_eq!((again.status(), again.text().as_str()), (200, "fetched"));
    assert!(again.cache().contains("fwd-status=200"), "{}", again.cache());
    assert_eq!(origin.count(), 3);
}

#[test]
fn vary_keeps_variants_apart() {
    let origin = Origin::start(|request| {
        let language = request.header("accept-language");
        reply(200, "Cache-Control: max-age=60\nVary: Accept-Language", language)
    });
    let proxy = Proxy::start(&origin);
    for language in ["de", "en", ""] {
        let headers = if language.is_empty() {
            String::new()
        } else {
            format!("Accept-Language: {language}")
        };
        let miss = proxy.get_with("/", &headers);
        assert!(miss.cache().contains("-miss"), "{}", miss.cache());
        assert_eq!(miss.text(), language);
    }
    assert!(proxy.get_with("/", "Accept-Language: fr").cache().contains("fwd=vary-miss"));
    assert_eq!(origin.count(), 4);
    for language in ["de", "en", "fr"] {
        let hit = proxy.get_with("/", &format!("Accept-Language:   {language} "));
        assert!(hit.cache().contains("; hit"), "{}", hit.cache());
        assert_eq!(hit.text(), language);
    }
    assert_eq!(origin.count(), 4);
    for number in 0..80 {
        proxy.get_with("/", &format!("Accept-Language: x{number}"));
    }
    assert!(proxy.get_with("/", "Accept-Language: x79").cache().contains("; hit"));
    assert!(
        proxy.get_with("/", "Accept-Language: de").cache().contains("fwd=vary-miss"),
        "bounded"
    );
    proxy.ask_with_body("POST", "/", "", b"x");
    assert!(
        proxy.get_with("/", "Accept-Language: x79").cache().contains("-miss"),
        "all invalidated"
    );
}

#[test]
fn what_must_not_be_stored_is_not() {
    for (headers, request, detail) in [
        ("Cache-Control: no-store", "", "no-store"),
        ("Cache-Control: private, max-age=60", "", "private"),
        ("Cache-Control: max-age=60\nVary: *", "", "vary-star"),
        ("Cache-Control: max-age=60", "Authorization: Basic eDp5", "authorization"),
        ("Cache-Control: max-age=60", "Cache-Control: no-store", "request-no-store"),
        ("X-Nothing: 1", "", "no-validator"),
    ] {
        let origin = Origin::start(move |_| reply(200, headers, "x"));
        let proxy = Proxy::start(&origin);
        for _ in 0..2 {
            let answer = proxy.get_with("/", request);
            assert!(answer.cache().ends_with(&format!("detail={detail}")), "{}", answer.cache());
            assert_eq!(answer.text(), "x");
        }
        assert_eq!(origin.count(), 2, "{headers}");
    }
}

#[test]
fn authorization_with_public_is_shared() {
    let origin = same(
        200,
        "Cache-Control: public, max-age=60\nSet-Cookie: a=b\nConnection: X-Hop\nX-Hop: 1",
        "x",
    );
    let proxy = Proxy::start(&origin);
    let miss =
        proxy.get_with("/", "Authorization: Basic eDp5\nConnection: X-Client-Hop\nX-Client-Hop: 1");
    assert!(!miss.has("x-hop"));
    assert!(!origin.last().has("x-client-hop"));
    let hit = proxy.get("/");
    assert!(hit.cache().contains("; hit"));
    assert!(!hit.has("x-hop"));
    assert_eq!(hit.header("set-cookie"), "a=b");
}

#[test]
fn a_stored_401_answers_only_who_has_no_credentials() {
    let origin = Origin::start(|request| match request.has("authorization") {
        true => reply(200, "Cache-Control: private", "secret"),
        false => reply(401, "Cache-Control: max-age=60\nWWW-Authenticate: Basic", "who?"),
    });
    let proxy = Proxy::start(&origin);
    assert_eq!(proxy.get("/").status(), 401);
    assert!(proxy.get("/").cache().contains("; hit"));
    for _ in 0..2 {
        let known = proxy.get_with("/", "Authorization: Basic eDp5");
        assert_eq!((known.status(), known.body.as_slice()), (200, b"secret".as_slice()));
        assert!(known.cache().contains("fwd=request"), "{}", known.cache());
    }
    let hit = proxy.get("/");
    assert!(hit.status() == 401 && hit.cache().contains("; hit"), "{}", hit.cache());
}

#[test]
fn qualified_private_fields_are_left_out() {
    let origin =
        same(200, "Cache-Control: max-age=60, private=\"X-User\"\nX-User: me\nX-All: us", "x");
    let proxy = Proxy::start(&origin);
    assert_eq!(proxy.get("/").header("x-user"), "me");
    let hit = proxy.get("/");
    assert!(hit.cache().contains("; hit") && !hit.has("x-user"));
    assert_eq!(hit.header("x-all"), "us");
}

#[test]
fn s_maxage_goes_before_max_age_and_forbids_stale() {
    let origin = same(200, "Cache-Control: max-age=1000, s-maxage=10", "x");
    let proxy = Proxy::start(&origin);
    proxy.get("/");
    assert!(proxy.get("/").cache().contains("; hit"));
    proxy.pass_seconds(11);
    assert!(proxy.get_with("/", "Cache-Control: max-stale").cache().contains("fwd=stale"));
}

#[test]
fn stale_is_served_only_when_wanted_and_permitted() {
    let origin = Origin::start(|request| {
        let extra = if request.path() == "/must" { ", must-revalidate" } else { "" };
        reply(200, &format!("Cache-Control: max-age=10{extra}"), "x")
    });
    let proxy = Proxy::start(&origin);
    proxy.get("/may");
    proxy.get("/must");
    proxy.pass_seconds(20);
    let stale = proxy.get_with("/may", "Cache-Control: max-stale=60");
    assert!(stale.cache().contains("hit; ttl=-"), "{}", stale.cache());
    let must = proxy.get_with("/must", "Cache-Control: max-stale=60");
    assert!(must.cache().contains("fwd=stale"), "{}", must.cache());
    assert!(proxy.get("/may").cache().contains("fwd=stale"));
}

#[test]
fn request_directives() {
    let origin = same(200, "Cache-Control: max-age=60", "x");
    let proxy = Proxy::start(&origin);
    let missing = proxy.get_with("/", "Cache-Control: only-if-cached");
    assert_eq!(missing.status(), 504);
    assert!(missing.cache().contains("damelo; detail=only-if-cached"));
    assert_eq!(origin.count(), 0);
    proxy.get("/");
    assert_eq!(proxy.get_with("/", "Cache-Control: only-if-cached").status(), 200);
    for wish in ["no-cache", "max-age=0, no-cache", "min-fresh=100"] {
        let answer = proxy.get_with("/", &format!("Cache-Control: {wish}"));
        assert!(answer.cache().contains("fwd=request"), "{wish}: {}", answer.cache());
    }
    assert!(proxy.get_with("/", "Pragma: no-cache").cache().contains("fwd=request"));
    proxy.pass_seconds(5);
    assert!(proxy.get_with("/", "Cache-Control: max-age=2").cache().contains("fwd=request"));
    assert_eq!(proxy.get_with("/", "Cache-Control: only-if-cached, max-stale").status(), 200);
}

#[test]
fn head_is_served_from_a_stored_get() {
    let origin = same(200, "Cache-Control: max-age=60\nETag: \"x\"", "seven77");
    let proxy = Proxy::start(&origin);
    let forwarded = proxy.ask("HEAD", "/", "");
    assert_eq!(forwarded.header("content-length"), "7");
    assert_eq!(origin.last().method(), "HEAD");
    assert!(forwarded.cache().contains("detail=method"), "a HEAD is not stored");
    proxy.get("/");
    let head = proxy.ask("HEAD", "/", "");
    assert!(head.cache().contains("; hit"), "{}", head.cache());
    assert_eq!((head.header("content-length").as_str(), head.body.len()), ("7", 0));
    assert_eq!(proxy.ask("HEAD", "/", "If-None-Match: \"x\"").status(), 304);
    assert_eq!(origin.count(), 2);
}

#[test]
fn other_methods_pass_and_invalidate() {
    let status = Arc::new(AtomicU16::new(200));
    let answer = status.clone();
    let origin = Origin::start(move |request| {
        if request.method() == "GET" {
            return reply(200, "Cache-Control: max-age=60", "x");
        }
        let headers = "Location: /created\nContent-Location: http://elsewhere/other\nCache-Control: max-age=60";
        reply(answer.load(Ordering::SeqCst), headers, request.body.clone())
    });
    let proxy = Proxy::start(&origin);
    let fill = || ["/form", "/created", "/other"].map(|path| proxy.get(path));
    fill();
    status.store(500, Ordering::SeqCst);
    proxy.ask_with_body("POST", "/form", "", b"data");
    assert!(fill().iter().all(|a| a.cache().contains("; hit")), "an error changes nothing");
    status.store(201, Ordering::SeqCst);
    let body = noise(1, 300_000);
    let posted = proxy.ask_with_body("POST", "/form", "Content-Type: x/y", &body);
    assert_eq!(posted.status(), 201);
    assert!(posted.body == body, "streams both ways unchanged");
    assert!(posted.cache().contains("fwd=method"), "{}", posted.cache());
    assert_eq!(origin.last().header("content-type"), "x/y");
    let [form, created, other] = fill();
    assert!(form.cache().contains("uri-miss") && created.cache().contains("uri-miss"));
    assert!(other.cache().contains("; hit"), "another origin's URI is not ours to forget");
    proxy.ask("OPTIONS", "/form", "");
    assert!(proxy.get("/form").cache().contains("; hit"), "safe methods invalidate nothing");
    assert_eq!(proxy.ask("CONNECT", "host:443", "").status(), 501);
}

#[test]
fn an_invalidation_beats_a_fill_under_way() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |request| {
        if request.method() == "GET" {
            held.wait();
        }
        reply(200, "Cache-Control: max-age=60", "old")
    });
    let proxy = Proxy::start(&origin);
    let address = proxy.info.address;
    let getting = std::thread::spawn(move || ask_at(address, "GET", "/", "", b""));
    eventually("the GET is at the origin", || origin.count() == 1);
    proxy.ask_with_body("POST", "/", "", b"new");
    gate.open();
    assert_eq!(getting.join().unwrap().text(), "old");
    assert!(proxy.get("/").cache().contains("uri-miss"), "the old answer was not kept");
}

#[test]
fn hits_survive_a_restart() {
    let origin = same(200, "Cache-Control: max-age=600\nETag: \"x\"", "kept");
    let home = Home::new();
    let to = || OriginTarget::Url(format!("http://{}", origin.address));
    let proxy = Proxy::start_in(&home, to(), |_| {});
    proxy.get("/a");
    proxy.get_with("/b", "Accept: x");
    proxy.stop();
    let proxy = Proxy::start_in(&home, to(), |_| {});
    for path in ["/a", "/b"] {
        let hit = proxy.get(path);
        assert!(hit.cache().contains("; hit"), "{path}: {}", hit.cache());
        assert_eq!(hit.text(), "kept");
    }
    assert_eq!(origin.count(), 2);
}

#[test]
fn client_preconditions_are_answered_from_the_cache() {
    let modified = date(-1000);
    let stored = format!(
        "Cache-Control: max-age=60\nETag: \"v1\"\nLast-Modified: {modified}\nContent-Type: a/b"
    );
    let origin = Origin::start(move |_| reply(200, &stored, "body"));
    let proxy = Proxy::start(&origin);
    let on_miss = proxy.get_with("/", "If-None-Match: \"v1\"");
    assert_eq!(on_miss.status(), 304, "answered by comparing with the full answer");
    assert!(!origin.last().has("if-none-match"), "so that the origin sends what can be stored");
    eventually("the fill is done", || proxy.get("/").cache().contains("; hit"));
    for (headers, status) in [
        ("If-None-Match: W/\"v1\"", 304),
        ("If-None-Match: \"v2\"", 200),
        ("If-None-Match: *", 304),
        (&format!("If-Modified-Since: {}", date(0)), 304),
        (&format!("If-Modified-Since: {}", date(-2000)), 200),
        (&format!("If-None-Match: \"v2\"\nIf-Modified-Since: {}", date(0)), 200),
    ] {
        let answer = proxy.get_with("/", headers);
        assert_eq!(answer.status(), status, "{headers}");
        assert!(answer.cache().contains("; hit"));
        if status == 304 {
            assert_eq!(answer.header("etag"), "\"v1\"");
            assert!(!answer.has("content-type") && !answer.has("content-length"));
        }
    }
}

#[test]
fn origin_failures_have_their_own_answers() {
    let (nobody, home) = (Nobody::new(), Home::new());
    let proxy = Proxy::start_in(&home, OriginTarget::Url(nobody.url()), |_| {});
    let answer = proxy.get("/");
    assert_eq!(answer.status(), 502);
    assert!(answer.cache().contains("fwd=uri-miss; detail=connect-failed"), "{}", answer.cache());
    assert!(
        answer.text().contains("could not be reached: connection refused"),
        "{}",
        answer.text()
    );
    let home = Home::new();
    let nameless = OriginTarget::Url("http://nobody.invalid".to_owned());
    let answer = Proxy::start_in(&home, nameless, |_| {}).get("/");
    assert_eq!(answer.status(), 502);
    assert!(answer.cache().contains("fwd=uri-miss; detail=unresolved"), "{}", answer.cache());
    assert!(answer.text().contains("the name nobody.invalid could not"), "{}", answer.text());
    let origin = Origin::start(|_| Reply { delay: Duration::from_secs(5), ..reply(200, "", "") });
    let proxy = Proxy::start_with(&origin, |config| {
        config.timeouts.origin_header = Duration::from_millis(200)
    });
    for method in ["GET", "POST"] {
        let answer = proxy.ask(method, "/", "");
        assert_eq!(answer.status(), 504);
        assert!(answer.cache().contains("detail=origin-timeout"), "{}", answer.cache());
    }
}

#[test]
fn stale_pooled_connections_are_replaced() {
    let origin = Origin::start(|_| reply(200, "Connection: keep-alive", "x"));
    let proxy = Proxy::start_with(&origin, |config| config.workers = 1);
    assert_eq!(proxy.get("/1").status(), 200);
    assert_eq!(proxy.get("/2").status(), 200);
    let closing = Origin::start(|_| Reply { break_after: Some(1), ..reply(200, "", "x") });
    let proxy = Proxy::start_with(&closing, |config| config.workers = 1);
    for _ in 0..20 {
        assert_eq!(proxy.get("/").status(), 200, "the origin closes after every answer");
    }
}

#[test]
fn the_demo_and_the_admin_listener() {
    let home = Home::new();
    let proxy = Proxy::start_in(&home, OriginTarget::Demo, |config| {
        config.admin.from = Some(([127, 0, 0, 1], 0).into());
    });
    for path in ["/", "/style.css", "/img/0.svg", "/slow", "/hello", "/missing"] {
        proxy.get(path);
        assert!(proxy.get(path).cache().contains("; hit"), "{path}");
    }
    assert_eq!(proxy.get("/big").body.len(), 8 << 20);
    proxy.get("/api/time");
    assert!(proxy.get("/api/time").cache().contains("detail=no-store"));
    let admin = proxy.info.admin.unwrap();
    assert_eq!(ask_at(admin, "GET", "/healthz", "", b"").text(), "ok\n");
    let metrics = ask_at(admin, "GET", "/metrics", "", b"").text();
    assert!(metrics.contains("damelo_proxy_hits_total 6\n"), "{metrics}");
    assert!(metrics.contains("damelo_proxy_not_stored_total{reason=\"no-store\"} 2\n"));
    assert_eq!(metrics.matches("# EOF").count(), 1);
    assert!(metrics.ends_with("# EOF\n"));
}

#[test]
fn odd_requests_get_answers() {
    let origin = same(200, "Cache-Control: max-age=60", "x");
    let proxy = Proxy::start(&origin);
    let two_hosts = proxy.get_with("/", "Host: a\nHost: b");
    assert_eq!(two_hosts.status(), 400);
    assert!(two_hosts.cache().contains("detail=bad-host"));
    let via = "1.1 damelo, ".repeat(8);
    assert_eq!(proxy.get_with("/", &format!("Via: {via}")).status(), 508);
    let long = format!("/{}", "x".repeat(20_000));
    assert!(proxy.get(&long).cache().contains("detail=long-target"));
    let body = proxy.ask_with_body("GET", "/", "", b"a GET with a body");
    assert!(body.cache().contains("fwd=bypass"), "{}", body.cache());
    let absolute = proxy.get("http://a/");
    assert_eq!(absolute.status(), 200);
    assert!(proxy.get("/").cache().contains("; hit"), "the same resource");
}

#[test]
fn what_is_too_large_to_store_with_a_response_is_served_whole() {
    let many: String = (0..33).map(|i| format!("X-{i}: {}\n", "x".repeat(1024))).collect();
    let origin = Origin::start(move |request| match request.path() {
        "/headers" => reply(200, &format!("{many}Cache-Control: max-age=60"), "x"),
        _ => reply(200, "Vary: X-Long\nCache-Control: max-age=60", "x"),
    });
    let proxy = Proxy::start(&origin);
    for _ in 0..2 {
        let answer = proxy.get("/headers");
        assert!(answer.cache().contains("detail=headers-too-large"), "{}", answer.cache());
        assert_eq!(answer.header("x-32").len(), 1024);
    }
    for (bytes, told) in [(8 << 10, "detail=headers-too-large"), (8000, "stored")] {
        let answer = proxy.get_with("/vary", &format!("X-Long: {}", "x".repeat(bytes)));
        assert!(answer.cache().contains(told), "{bytes}: {}", answer.cache());
    }
}
