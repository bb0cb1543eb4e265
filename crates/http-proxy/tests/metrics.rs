//! Every event that has a counter moves that counter, and by as much as happened.

mod support;

use std::io::Write as _;
use std::net::TcpStream;

use damelo_http_proxy::{LogTarget, OriginTarget, ProxyConfig, Settings};
use serde_json::json;
use support::wire::raw;
use support::{Message, Nobody, Origin, Proxy, Reply, date, eventually, reply};

/// Runs a step and says how far the counters moved meanwhile.
fn moved<const N: usize>(proxy: &Proxy, names: [&str; N], step: impl FnOnce()) -> [u64; N] {
    let read = || names.map(|name| proxy.metric(&format!("damelo_proxy_{name}_total")));
    let before = read();
    step();
    let mut after = read();
    for (after, before) in after.iter_mut().zip(before) {
        *after -= before;
    }
    after
}

fn answer(request: &Message) -> Reply {
    let tag =
        "ETag: \"a\"\nCache-Control: max-age=60, stale-while-revalidate=60, stale-if-error=600";
    match (request.method(), request.path()) {
        ("POST", _) => reply(204, "Cache-Group-Invalidation: \"g\"", ""),
        (_, "/private") => reply(200, "Cache-Control: private", "x"),
        (_, "/failing") if request.has("if-none-match") => reply(503, "", ""),
        _ if request.has("if-none-match") => reply(304, tag, ""),
        _ => reply(200, &format!("{tag}\nCache-Groups: \"g\""), "x"),
    }
}

fn start(tweak: impl FnOnce(&mut ProxyConfig)) -> (Origin, Proxy) {
    let origin = Origin::start(answer);
    let proxy = Proxy::start_with(&origin, |config| {
        config.workers = 1;
        config.purge.method = true;
        tweak(config);
    });
    (origin, proxy)
}

#[test]
fn what_never_became_a_request_is_counted_as_an_answer() {
    let short = std::time::Duration::from_secs(2);
    let (_origin, proxy) = start(|config| config.timeouts.client_header = short);
    let own = || proxy.metric("damelo_proxy_own_errors_total");
    let refused = || proxy.metric("damelo_proxy_responses_total{class=\"4xx\"}");
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let sent = [
        ("400", "G@T / HTTP/1.1\r\n\r\n"),
        ("431", &long),
        ("408", "GET / HTTP/1.1\r\nX"),
        ("408", "G"),
        ("408", "PRI * HT"),
    ];
    for (number, (status, bytes)) in (1..).zip(sent) {
        let answer = raw(proxy.info.address, bytes.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
        eventually("it is counted", || (own(), refused()) == (number, number));
    }
    assert_eq!(proxy.metric("damelo_proxy_client_timeouts_total"), 3);
    assert_eq!(proxy.metric("damelo_proxy_connections_refused_total"), 0);
}

#[test]
fn lookups_and_answers_are_counted() {
    let (_origin, proxy) = start(|_| {});
    let names = ["requests", "forwarded", "stored", "hits", "connections"];
    assert_eq!(moved(&proxy, names, || drop(proxy.get("/a"))), [1, 1, 1, 0, 1]);
    assert_eq!(moved(&proxy, names, || drop(proxy.get("/a"))), [1, 0, 0, 1, 1]);
    let names = ["client_not_modified", "client_preconditions_failed"];
    let if_none = || drop(proxy.get_with("/a", "If-None-Match: \"a\""));
    assert_eq!(moved(&proxy, names, if_none), [1, 0]);
    assert_eq!(moved(&proxy, names, || drop(proxy.get_with("/a", "If-Match: \"b\""))), [0, 1]);
    let names = ["not_stored_total{reason=\"private\"}", "responses_total{class=\"2xx\"}"];
    let read = || names.map(|name| proxy.metric(&format!("damelo_proxy_{name}")));
    let before = read();
    proxy.get("/private");
    assert_eq!(read(), [before[0] + 1, before[1] + 1]);
    let names = ["own_errors", "requests"];
    assert_eq!(moved(&proxy, names, || drop(proxy.get_with("/", "Host: a\nHost: b"))), [1, 1]);
}

#[test]
fn validation_and_stale_answers_are_counted() {
    let (origin, proxy) = start(|_| {});
    for path in ["/a", "/b", "/failing"] {
        proxy.get(path);
    }
    proxy.pass_seconds(70);
    let behind = moved(&proxy, ["validated_behind", "hits"], || {
        proxy.get("/a");
        eventually("the origin was asked", || origin.count() == 4);
    });
    assert_eq!(behind, [1, 1]);
    proxy.pass_seconds(70);
    assert_eq!(moved(&proxy, ["revalidated", "hits"], || drop(proxy.get("/b"))), [1, 0]);
    assert_eq!(moved(&proxy, ["stale_on_error"], || drop(proxy.get("/failing"))), [1]);
}

/// The origin's clock is slow by more than its lifetimes.
#[test]
fn what_is_stale_on_arrival_is_counted() {
    let origin = Origin::start(|request| match request.path() {
        "/cached" => {
            reply(200, &format!("cache-control: max-age=60\ndate: {}\nage: 300", date(-3000)), "x")
        }
        "/slices" => {
            let fields = "etag: \"v1\"\ncontent-range: bytes 0-3/10\ncache-control: max-age=60";
            reply(206, &format!("{fields}\ndate: {}", date(-3000)), "0123")
        }
        _ => reply(200, &format!("cache-control: max-age=60\ndate: {}", date(-3000)), "x"),
    });
    let proxy = Proxy::start_with(&origin, |config| config.caching.slice_bytes = 4);
    let get = |path: &str| drop(proxy.get(path));
    assert_eq!(moved(&proxy, ["stale_on_arrival", "hits"], || get("/")), [1, 0]);
    assert_eq!(moved(&proxy, ["stale_on_arrival", "hits"], || get("/")), [1, 0]);
    assert_eq!(moved(&proxy, ["stale_on_arrival"], || get("/cached")), [0]);
    let range = || drop(proxy.get_with("/slices", "Range: bytes=0-1"));
    assert_eq!(moved(&proxy, ["stale_on_arrival"], range), [1]);
}

/// A rule's lifetime of nothing says nothing of the origin's clock.
#[test]
fn what_a_rule_has_validated_is_not_stale_on_arrival() {
    let origin = Origin::start(|request| {
        let fields = format!("cache-control: max-age=60\netag: \"e\"\ndate: {}", date(-30));
        match request.has("if-none-match") {
            true => reply(304, &fields, ""),
            false => reply(200, &fields, "x"),
        }
    });
    let rules = "[[rule]]\npath = \"/**\"\nttl = \"0s\"\n";
    let proxy = Proxy::start_with(&origin, |config| {
        config.ruleset = Settings::parse(rules).expect("good settings").proxy.ruleset;
    });
    eventually("it is validated", || {
        proxy.get("/");
        proxy.metric("damelo_proxy_revalidated_total") > 0
    });
    assert_eq!(proxy.metric("damelo_proxy_stale_on_arrival_total"), 0);
}

#[test]
fn purges_and_invalidations_are_counted() {
    let (_origin, proxy) = start(|_| {});
    let names = ["purges", "purged_misses", "invalidations", "group_invalidations"];
    proxy.get("/a");
    assert_eq!(moved(&proxy, names, || drop(proxy.ask("PURGE", "/a", ""))), [1, 0, 0, 0]);
    proxy.get("/a");
    let admin = proxy.info.admin.expect("an admin address");
    let order = json!({ "prefix": "http://a/" }).to_string();
    let marks = || proxy.metric("damelo_proxy_purge_marks");
    let before = marks();
    let purge = || drop(damelo_http_proxy::ask_admin(admin, "/purge", None, Some(&order)));
    assert_eq!(moved(&proxy, names, purge), [1, 0, 0, 0]);
    assert_eq!(marks(), before + 1);
    // Looked up twice: again when it is its turn to ask the origin.
    assert_eq!(moved(&proxy, names, || drop(proxy.get("/a"))), [0, 2, 0, 0]);
    let post = || drop(proxy.ask_with_body("POST", "/a", "", b"x"));
    assert_eq!(moved(&proxy, names, post), [0, 0, 1, 1]);
}

#[test]
fn trouble_with_origins_is_counted() {
    let (missing, home) = (Nobody::new(), support::Home::new());
    let to = OriginTarget::Url(missing.url());
    let proxy = Proxy::start_in(&home, to, |_| {});
    assert_eq!(moved(&proxy, ["own_errors"], || drop(proxy.get("/"))), [1]);
    let failed = |why: &str| format!("damelo_proxy_origin_errors_total{{reason=\"{why}\"}}");
    for (why, count) in [("connect-failed", 1), ("origin-broken", 0)] {
        assert_eq!(proxy.metric(&failed(why)), count, "{why}");
    }
    let by_version =
        |version: &str| format!("damelo_proxy_requests_by_version_total{{version=\"{version}\"}}");
    for (version, count) in [("1.0", 0), ("1.1", 1), ("2", 0)] {
        assert_eq!(proxy.metric(&by_version(version)), count, "{version}");
    }
    // A connection that the origin closed after its answer, without having said so.
    let closing = Origin::start(|_| Reply { break_after: Some(1), ..reply(200, "", "x") });
    let proxy = Proxy::start_with(&closing, |config| config.workers = 1);
    let retried = moved(&proxy, ["retries", "forwarded"], || {
        for _ in 0..50 {
            assert_eq!(proxy.get("/").status(), 200);
        }
    });
    assert_eq!(retried[1], 50);
    assert_eq!(closing.count(), 50, "sent again only what was never read");
}

#[test]
fn trouble_with_clients_is_counted() {
    let files = tempfile::tempdir().expect("tempdir");
    let authority = support::wire::Authority::new();
    let (chain, key) = (files.path().join("c.pem"), files.path().join("k.pem"));
    authority.issue("a.test", &chain, &key);
    let (_origin, proxy) = start(|config| {
        for listener in ["tls+tcp:127.0.0.1:0", "proxy+tcp:127.0.0.1:0"] {
            config.listen.push(listener.parse().expect("a listener"));
        }
        config.tls.certificates =
            vec![damelo_http_proxy::CertificateFiles { chain: chain.clone(), key: key.clone() }];
    });
    let address = |index: usize| match proxy.info.listeners[index].address {
        damelo_http_proxy::ListenAddress::Tcp(address) => address,
        ref other => panic!("{other:?} is not TCP"),
    };
    let names = ["tls_failures", "connections_refused"];
    let garbage = moved(&proxy, names, || {
        let mut stream = TcpStream::connect(address(0)).expect("connect");
        stream.write_all(b"this is no TLS at all, not even nearly").expect("write");
        eventually("it is refused", || proxy.metric("damelo_proxy_tls_failures_total") == 1);
    });
    assert_eq!(garbage, [1, 0]);
    // Nobody's PROXY header is believed there.
    let get = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(moved(&proxy, names, || drop(raw(address(1), get))), [0, 1]);
    std::fs::write(&chain, "nonsense").expect("write");
    eventually("the certificate is looked at again", || {
        let _ = TcpStream::connect(address(0)).and_then(|mut s| s.write_all(b"\x16\x03\x01"));
        proxy.metric("damelo_proxy_certificate_errors_total") >= 1
    });
}

#[test]
fn lines_that_cannot_be_written_are_counted() {
    let (_origin, proxy) = start(|config| config.log.to = LogTarget::File("/dev/full".into()));
    proxy.get("/a");
    let errors = || proxy.metric("damelo_proxy_log_write_errors_total");
    eventually("the write fails", || errors() >= 1);
}

/// The document and the running proxy name the same metrics.
#[test]
fn the_admin_page_has_every_metric_of_the_document() {
    let (_origin, proxy) = start(|_| {});
    let admin = proxy.info.admin.expect("an admin address");
    let page = support::ask_at(admin, "GET", "/metrics", "", b"").text();
    let document = include_str!("../../../docs/metrics.md");
    let names = document.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let mut count = 0;
    for name in names {
        assert!(page.contains(&format!("# TYPE {name} ")), "{name}");
        count += 1;
    }
    assert!(count > 50, "{count} in the document");
}

#[test]
fn bytes_are_counted_by_where_they_come_from() {
    let body = "x".repeat(5000);
    let origin = Origin::start(move |request| match request.path() {
        "/private" => reply(200, "Cache-Control: private", body.as_str()),
        _ => reply(200, "Cache-Control: max-age=60", body.as_str()),
    });
    let proxy = Proxy::start(&origin);
    let names = [
        "client_body_bytes_total{from=\"store\"}",
        "client_body_bytes_total{from=\"origin\"}",
        "client_body_bytes_total{from=\"own\"}",
        "origin_body_bytes_total",
    ];
    let read = || names.map(|name| proxy.metric(&format!("damelo_proxy_{name}")));
    assert_eq!(read(), [0, 0, 0, 0]);
    proxy.get("/a");
    assert_eq!(read(), [0, 5000, 0, 5000]);
    proxy.get("/a");
    assert_eq!(read(), [5000, 5000, 0, 5000]);
    proxy.get("/private");
    assert_eq!(read(), [5000, 10_000, 0, 10_000]);
    proxy.ask("HEAD", "/a", "");
    assert_eq!(read(), [5000, 10_000, 0, 10_000]);
    let own = proxy.get_with("/", "Host: a\nHost: b").body.len() as u64;
    assert_eq!(read(), [5000, 10_000, own, 10_000]);
}

#[test]
fn what_is_open_now_is_shown() {
    let (origin, proxy) = start(|_| {});
    let names = ["connections_open", "requests_open"];
    let read = || names.map(|name| proxy.metric(&format!("damelo_proxy_{name}")));
    eventually("nothing is open", || read() == [0, 0]);
    let mut stream = TcpStream::connect(proxy.info.address).expect("connect");
    eventually("the connection is", || read() == [1, 0]);
    // Its body does not come.
    stream.write_all(b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n").expect("write");
    eventually("a request is", || read() == [1, 1]);
    drop(stream);
    eventually("nothing is open any more", || read() == [0, 0]);
    assert!(proxy.metric("damelo_proxy_connections_max") > 100);
    let healthy = format!("damelo_proxy_origin_healthy{{origin=\"http://{}\"}}", origin.address);
    assert_eq!(proxy.metric(&healthy), 1);
}

#[test]
fn reloads_are_counted_and_the_last_failure_shows() {
    let (_origin, proxy) = start(|_| {});
    let names = ["reloads_total", "reload_errors_total", "reload_failed"];
    let read = || names.map(|name| proxy.metric(&format!("damelo_proxy_{name}")));
    assert_eq!(read(), [0, 0, 0]);
    let settings = || ProxyConfig::new(proxy.info.address, OriginTarget::Demo);
    let mut bad = settings();
    bad.name = "not a name".to_owned();
    proxy.info.control.reload(bad).expect_err("a name with spaces");
    let mut bad = settings();
    bad.limits.uri_bytes_max = bad.limits.header_bytes_max + 1;
    proxy.info.control.reload(bad).expect_err("targets longer than headers");
    assert_eq!(read(), [0, 2, 1]);
    proxy.info.control.reload(settings()).expect("settings that can be used");
    assert_eq!(read(), [1, 2, 0]);
    proxy.info.control.reload_failed();
    assert_eq!(read(), [1, 3, 1]);
}
