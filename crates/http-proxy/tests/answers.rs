//! Rules that answer by themselves or edit answers, and rules that ask the origin for another path,
//! on the wire.

mod support;

use std::sync::Arc;

use damelo_http_proxy::{LogFormat, LogTarget, ProxyConfig, Settings, ask_admin};
use support::wire::raw_answer;
use support::{Home, Nobody, Origin, Proxy, TestClock, eventually, reply};

/// An origin that says what it was asked for.
fn telling() -> Origin {
    Origin::start(|request| {
        let body = format!("{} {}", request.header("host"), request.path());
        reply(200, "Cache-Control: max-age=60", body)
    })
}

fn start(origin: &Origin, text: &str, tweak: impl FnOnce(&mut ProxyConfig)) -> Proxy {
    let ruleset = Settings::parse(text).expect("good rules").proxy.ruleset;
    Proxy::start_with(origin, |config| {
        config.ruleset = ruleset;
        tweak(config);
    })
}

const REDIRECTS: &str = r#"
[[rule]]
name = "by TLS only"
scheme = "http"
host = "*.test"
respond = 301
location = "https://{host}{target}"
response_set = ["Cache-Control: max-age=300"]

[[rule]]
name = "one name"
host = "old.example"
respond = 308
location = "https://www.new.example{target}"
"#;

#[test]
fn redirects_lead_to_the_same_path_elsewhere() {
    let origin = telling();
    let proxy = start(&origin, REDIRECTS, |_| {});
    let answer = proxy.get_with("/a?b=c", "Host: www.test:8080");
    assert_eq!(answer.status(), 301);
    assert_eq!(answer.header("location"), "https://www.test/a?b=c");
    assert_eq!(answer.header("cache-control"), "max-age=300");
    assert_eq!(answer.cache(), "damelo; detail=respond");
    assert_eq!(answer.text(), "301 Moved Permanently\n");
    let answer = proxy.get_with("//evil.example/", "Host: old.example");
    assert_eq!(answer.status(), 308);
    assert_eq!(answer.header("location"), "https://www.new.example//evil.example/");
    assert!(!answer.has("cache-control"));
    // Whatever the method; a HEAD has the headers alone.
    let answer = proxy.ask("POST", "/a", "Host: old.example\r\nContent-Length: 0");
    assert_eq!(answer.status(), 308);
    assert_eq!(answer.header("location"), "https://www.new.example/a");
    let answer = proxy.ask("HEAD", "/a", "Host: old.example");
    assert_eq!((answer.status(), answer.text().as_str()), (308, ""));
    assert_eq!(answer.header("content-length"), "23");
    assert_eq!(origin.count(), 0);
    assert_eq!(proxy.get_with("/a", "Host: other.example").status(), 200);
    assert_eq!(proxy.metric("damelo_proxy_responded_total"), 4);
    assert_eq!(proxy.metric("damelo_proxy_own_errors_total"), 0);
}

/// Also once the system's clock was set back, to which the HTTP library would not follow.
#[test]
fn a_date_that_the_origin_left_out_is_of_the_proxy_s_clock() {
    let origin = telling();
    let proxy = start(&origin, REDIRECTS, |config| {
        config.clock = Arc::new(TestClock::at(784_111_777));
    });
    for (path, host) in [("/a", "a.example"), ("/a", "a.example"), ("/", "old.example")] {
        let answer = proxy.get_with(path, &format!("Host: {host}"));
        assert_eq!(answer.header("date"), "Sun, 06 Nov 1994 08:49:37 GMT", "{host}");
    }
    assert_eq!(origin.count(), 1);
}

#[test]
fn who_came_by_tls_is_told_by_a_proxy_that_is_believed() {
    let origin = telling();
    let proxy = start(&origin, REDIRECTS, |config| {
        config.forwarded.trust_client = true;
    });
    let by = |scheme: &str| {
        let headers = format!("Host: www.test\r\nX-Forwarded-Proto: {scheme}");
        proxy.get_with("/a", &headers).status()
    };
    assert_eq!((by("http"), by("https")), (301, 200));
    // Of anybody else it means nothing.
    let proxy = start(&origin, REDIRECTS, |_| {});
    let headers = "Host: www.test\r\nX-Forwarded-Proto: https";
    assert_eq!(proxy.get_with("/a", headers).status(), 301);
}

/// The operator's page stands where an origin failed, and nowhere else; a reload reads it again.
#[test]
fn the_operators_page_is_for_origins_that_fail() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("error.html");
    std::fs::write(&path, "<p>{status} {reason}</p>").expect("written");
    let nobody = Nobody::new();
    let (home, file) = (Home::new(), path.clone());
    let proxy = Proxy::start_to(&home, nobody.url(), move |config| {
        config.errors.page = Some(file);
        config.purge.method = true;
    });
    let answer = proxy.get("/");
    assert_eq!((answer.status(), &*answer.text()), (502, "<p>502 Bad Gateway</p>"));
    assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
    assert!(answer.cache().contains("detail=connect-failed"), "{answer:?}");
    let head = proxy.ask("HEAD", "/", "");
    assert_eq!((head.status(), head.text().as_str()), (502, ""));
    assert_eq!(head.header("content-length"), "22");
    let cached = proxy.get_with("/", "Cache-Control: only-if-cached");
    assert_eq!((cached.status(), &*cached.text()), (504, "<p>504 Gateway Timeout</p>"));
    let refused = proxy.ask("PURGE", "/", "Purge-Scope: planet");
    assert!(refused.text().starts_with("400 "), "{}", refused.text());

    let reload = || {
        let mut settings = Settings::default();
        settings.proxy.errors.page = Some(path.clone());
        proxy.info.control.reload(settings.proxy)
    };
    std::fs::write(&path, "new").expect("written");
    reload().expect("reloaded");
    eventually("the new page is sent", || proxy.get("/").text() == "new");
    std::fs::write(&path, "").expect("written");
    let error = reload().expect_err("an empty page");
    assert_eq!(error.key(), Some("errors.page"));
    assert_eq!(proxy.get("/").text(), "new", "the former stays");
}

const CLOSED: &str = r#"
[[rule]]
name = "closed"
prefix = "/shop"
respond = 503
body = "<h1>Back at noon</h1>"
body_type = "text/html; charset=utf-8"
response_set = ["Retry-After: 120"]

[[rule]]
name = "but not for us"
prefix = "/shop"
header = "X-Ours: 1"
respond = 204

[[rule]]
name = "all is well"
method = ["CONNECT", "TRACE"]
respond = 200

[[rule]]
name = "every 503"
status = 503
response_set = ["X-Seen: yes"]
"#;

#[test]
fn a_page_for_maintenance_stands_before_what_is_stored() {
    let origin = telling();
    let home = tempfile::tempdir().expect("a directory");
    let path = home.path().join("access.log");
    let proxy = start(&origin, CLOSED, |config| {
        config.log.to = LogTarget::File(path.clone());
        config.log.format = LogFormat::Json;
        config.purge.method = true;
    });
    for (method, headers) in [("GET", ""), ("GET", "Upgrade: websocket\r\nConnection: upgrade")] {
        let answer = proxy.ask(method, "/shop/a", headers);
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.text(), "<h1>Back at noon</h1>");
        assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
        assert_eq!(answer.header("retry-after"), "120");
        assert_eq!(answer.header("x-seen"), "yes", "rules for answers hold for it, too");
    }
    // Of two rules that answer, the later one counts.
    let answer = proxy.get_with("/shop/a", "X-Ours: 1");
    assert_eq!((answer.status(), answer.text().as_str()), (204, ""));
    // No tunnel begins with the answer of a rule.
    assert_eq!(proxy.ask("CONNECT", "a.test:443", "").status(), 501);
    // Orders to purge are none of the site's requests.
    assert_eq!(proxy.ask("PURGE", "/shop/a", "").status(), 200);
    assert_eq!(origin.count(), 0);
    assert!(proxy.get("/other").cache().contains("stored"));
    proxy.stop();
    let log = std::fs::read_to_string(&path).expect("a log");
    let line = log.lines().next().unwrap_or_default();
    assert!(line.contains("\"result\":\"respond\"") && line.contains("\"status\":503"), "{log}");
}

/// Keys have the host that a trusted proxy received; so do rules and their redirects.
#[test]
fn rules_see_the_host_that_a_trusted_proxy_was_asked_for() {
    let origin = telling();
    let text = "[[rule]]\nhost = \"www.test\"\nrespond = 302\nlocation = \"https://{host}/new\"\n";
    for trusts in [true, false] {
        let proxy = start(&origin, text, |config| config.forwarded.trust_client = trusts);
        let told = proxy.get_with("/", "Host: inner\nX-Forwarded-Host: WWW.test:8443");
        let own = proxy.get_with("/", "Host: www.test\nX-Forwarded-Host: other.test");
        let [redirected, passed] = if trusts { [told, own] } else { [own, told] };
        assert_eq!((redirected.status(), passed.status()), (302, 200), "{trusts}");
        assert_eq!(redirected.header("location"), "https://www.test/new");
    }
}

/// Keys have hosts without the root's dot, so that conditions that looked at it would keep nothing
/// out: what came in by one name would be served by the other.
#[test]
fn a_trailing_dot_makes_no_other_host() {
    let origin = telling();
    let text =
        "[[rule]]\nhost = \"a.test\"\nstore = false\n[[rule]]\nhost = \"b.test.\"\npass = true\n";
    let proxy = start(&origin, text, |_| {});
    for host in ["a.test.", "a.test", "b.test.:80", "b.test"] {
        let answer = proxy.get_with("/", &format!("Host: {host}"));
        assert!(!answer.cache().contains("stored"), "{host}: {}", answer.cache());
        assert!(!answer.cache().contains("; hit"), "{host}: {}", answer.cache());
    }
}

#[test]
fn explain_tells_what_a_rule_does() {
    let origin = telling();
    let text = format!("{REDIRECTS}[[rule]]\nprefix = \"/app\"\nstrip_prefix = \"/app\"\n");
    let proxy = start(&origin, &text, |config| {
        config.admin.from = Some("127.0.0.1:0".parse().expect("an address"));
    });
    let admin = proxy.info.admin.expect("an admin address");
    let explain = |url: &str| {
        let order = format!("{{\"url\": \"{url}\"}}");
        ask_admin(admin, "/explain", None, Some(&order)).expect("an answer")
    };
    let known = explain("http://www.test/a?b");
    assert!(known.contains("\"location\":\"https://www.test/a?b\""), "{known}");
    assert!(known.contains("\"status\":301") && known.contains("by TLS only"), "{known}");
    let known = explain("https://www.test/app/a?b");
    assert!(known.contains("\"origin_path\":\"/a?b\""), "{known}");
    assert!(known.contains("\"responds\":null"), "{known}");
}

const PREFIXES: &str = r#"
[[rule]]
prefix = "/app"
strip_prefix = "/app/"

[[rule]]
prefix = "/api"
strip_prefix = "/api"
add_prefix = "/v2"

[[rule]]
host = "docs.test"
add_prefix = "/docs"
"#;

#[test]
fn the_origin_is_asked_for_another_path() {
    let origin = telling();
    let proxy = start(&origin, PREFIXES, |_| {});
    for (path, host, expected) in [
        ("/app/a?b=/app", "a.test", "/a?b=/app"),
        ("/app", "a.test", "/"),
        ("/application", "a.test", "/application"),
        ("/api/a", "a.test", "/v2/a"),
        ("/a", "docs.test", "/docs/a"),
        // The later rule counts, as a whole.
        ("/app/a", "docs.test", "/docs/app/a"),
        ("/other", "a.test", "/other"),
    ] {
        for round in ["stored", "hit"] {
            let answer = proxy.get_with(path, &format!("Host: {host}"));
            assert!(answer.text().ends_with(&format!(" {expected}")), "{path}: {}", answer.text());
            assert!(answer.cache().contains(round), "{path}: {}", answer.cache());
        }
    }
    assert_eq!(proxy.ask("POST", "/api/a", "Content-Length: 0").status(), 200);
    assert_eq!(origin.last().path(), "/v2/a");
    assert_eq!(proxy.ask("OPTIONS", "*", "").status(), 200);
    assert_eq!(origin.last().path(), "*");
}

#[test]
fn one_url_by_two_paths_is_two_objects() {
    let origin = telling();
    let text = "[[rule]]\nheader = \"X-Beta\"\nadd_prefix = \"/beta\"\n";
    let proxy = start(&origin, text, |config| {
        config.admin.from = Some("127.0.0.1:0".parse().expect("an address"));
    });
    for round in ["stored", "hit"] {
        for (headers, path) in [("X-Other: 1", "/a"), ("X-Beta: 1", "/beta/a")] {
            let answer = proxy.get_with("/a", headers);
            assert!(answer.text().ends_with(&format!(" {path}")), "{}", answer.text());
            assert!(answer.cache().contains(round), "{}", answer.cache());
        }
    }
    // A change through the proxy, and a purge by URL, mean both.
    proxy.ask("POST", "/a", "Content-Length: 0");
    assert!(proxy.get("/a").cache().contains("fwd="));
    assert!(proxy.get_with("/a", "X-Beta: 1").cache().contains("fwd="));
    let admin = proxy.info.admin.expect("an admin address");
    ask_admin(admin, "/purge", None, Some("{\"url\": \"http://a/a\"}")).expect("purged");
    assert!(proxy.get("/a").cache().contains("fwd="));
    assert!(proxy.get_with("/a", "X-Beta: 1").cache().contains("fwd="));
}

#[test]
fn what_an_answer_names_is_what_clients_call_it() {
    let origin = Origin::start(|request| {
        let host = request.header("host").to_owned();
        let location = match request.path() {
            "/v2/own" => format!("http://{host}/v2/x"),
            "/v2/told" => format!("https://{}/v2/x", request.header("x-forwarded-host")),
            "/v2/path" => "/v2/x?y#z".to_owned(),
            "/v2/other" => "/elsewhere".to_owned(),
            "/v2/public" => "/api/x".to_owned(),
            _ => "http://foreign.test/v2/x".to_owned(),
        };
        reply(302, &format!("Cache-Control: max-age=60\r\nLocation: {location}"), "")
    });
    let proxy = start(&origin, PREFIXES, |_| {});
    for (path, expected) in [
        ("/api/own", "/api/x"),
        ("/api/told", "https://a.test/api/x"),
        ("/api/path", "/api/x?y#z"),
        ("/api/other", "/elsewhere"),
        ("/api/public", "/api/x"),
        ("/api/foreign", "http://foreign.test/v2/x"),
    ] {
        for _ in 0..2 {
            let answer = proxy.get_with(path, "Host: a.test");
            assert_eq!(answer.header("location"), expected, "{path}");
        }
        let upgrade = "Host: a.test\nConnection: upgrade\nUpgrade: websocket";
        let declined = proxy.get_with(path, upgrade);
        assert_eq!(declined.header("location"), expected, "{path}, asked for an upgrade");
    }
    let proxy = start(&origin, PREFIXES, |config| config.preserve_host = true);
    let answer = proxy.get_with("/api/own", "Host: a.test");
    assert_eq!(answer.header("location"), "http://a.test/api/x");
}

#[test]
fn what_goes_wrong_in_a_file_is_told() {
    for (text, part) in [
        ("respond = 301", "add `location`"),
        ("respond = 200\nlocation = \"/x\"", "means nothing beside `respond = 200`"),
        ("respond = 99", "is not a status"),
        ("respond = 304", "only the cache can know"),
        ("respond = 301\nlocation = \"{target}\"", "is neither a URL"),
        ("respond = 301\nlocation = \"https://{target}\"", "is neither a URL"),
        ("respond = 301\nlocation = \"https://a/{path}\"", "all that is filled in"),
        ("respond = 503\nttl = \"1m\"", "`ttl` means nothing beside `respond`"),
        ("respond = 503\nto = \"http://127.0.0.1:1\"", "`to` means nothing beside `respond`"),
        ("respond = 503\nstatus = 503", "cannot depend on its status"),
        ("respond = 503\nbody_type = \"text/html\"", "add it"),
        ("respond = 503\nbody = \"x\"\nbody_type = \"html\"", "is not a media type"),
        ("respond = 204\nbody = \"x\"", "has no body"),
        ("body = \"x\"", "add `respond`"),
        ("location = \"/x\"\nlast = true", "add `respond`"),
        ("strip_prefix = \"app\"", "is not the beginning of a path"),
        ("add_prefix = \"/\"", "is not the beginning of a path"),
        ("add_prefix = \"/a\"\nstatus = 200", "cannot depend on its status"),
        ("scheme = \"ftp\"\npass = true", "is not http or https"),
    ] {
        let errors = Settings::parse(&format!("[[rule]]\n{text}\n")).expect_err(text);
        let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert!(told.iter().any(|told| told.contains(part)), "{text}: {told:?}");
    }
}

#[test]
fn a_forward_proxy_asks_for_what_its_clients_say() {
    let refused = |text: &str| {
        let mut settings = Settings::for_forward();
        settings.proxy.ruleset = Settings::parse(text).expect("good rules").proxy.ruleset;
        settings.check_forward()
    };
    let error = refused("[[rule]]\nstrip_prefix = \"/a\"\n").expect_err("not for forward proxies");
    assert!(error.to_string().contains("strip_prefix"), "{error}");
    refused("[[rule]]\nhost = \"bad.test\"\nrespond = 403\n").expect("may answer");
}

const STAFF: &str = r#"
[[rule]]
name = "staff only"
prefix = "/staff"
client = ["!10.0.0.0/8", "!2001:db8::/32"]
respond = 403

[[rule]]
name = "who asks"
request_set = ["X-Real-IP: {client}", "X-Request-ID: {request_id}"]
answer_set = ["X-Request-ID: {request_id}", "X-Asked: {scheme}://{host}{target}"]
"#;

/// What is stored is as much theirs as what is not.
#[test]
fn a_stored_page_is_guarded_by_who_asks_for_it() {
    let origin = telling();
    let proxy = start(&origin, STAFF, |config| config.forwarded.trust_client = true);
    let asked = |client: &str| {
        let answer = proxy.get_with("/staff/a", &format!("Host: a\nX-Forwarded-For: {client}"));
        (answer.status(), answer.cache())
    };
    assert_eq!(asked("192.0.2.7").0, 403);
    assert_eq!(asked("10.1.2.3").0, 200);
    assert!(asked("::ffff:10.1.2.4").1.contains("; hit"));
    assert!(asked("2001:db8::7").1.contains("; hit"));
    assert_eq!(asked("10.1.2.3, 192.0.2.7").0, 403, "the last is the client");
    // Of anybody else what they say means nothing.
    let proxy = start(&origin, STAFF, |_| {});
    let answer = proxy.get_with("/staff/a", "Host: a\nX-Forwarded-For: 10.1.2.3");
    assert_eq!(answer.status(), 403);
}

#[test]
fn proxies_of_known_networks_say_who_the_client_is() {
    let origin = Origin::start(|request| reply(200, "", request.header("x-real-ip")));
    for (networks, expected) in [
        (&[][..], "10.0.0.2"),
        (&["127.0.0.0/8"], "10.0.0.2"),
        (&["127.0.0.0/8", "10.0.0.0/8"], "192.0.2.7"),
        (&["10.0.0.0/8"], "127.0.0.1"),
    ] {
        let proxy = start(&origin, STAFF, |config| {
            config.forwarded.trust_client = true;
            let networks = networks.iter().map(|text| text.parse().expect("a network"));
            config.forwarded.trust_networks = networks.collect();
        });
        let told = "Host: a\nX-Forwarded-For: 198.51.100.1, 192.0.2.7, 10.0.0.2";
        assert_eq!(proxy.get_with("/", told).text(), expected, "{networks:?}");
        let is_told = origin.last().header("x-forwarded-for").starts_with("198.51.100.1");
        assert_eq!(is_told, expected != "127.0.0.1", "{networks:?}");
    }
}

const WHO: &str = r#"
[[rule]]
name = "ours"
client = ["10.0.0.0/8", "127.0.0.0/8"]
answer_set = ["X-Ours: yes"]

[[rule]]
name = "others"
client = ["!10.0.0.0/8", "!127.0.0.0/8"]
answer_set = ["X-Ours: no"]

[[rule]]
name = "who it is"
request_set = ["X-Real-IP: {client}"]
answer_set = ["X-Client: {client}"]
"#;

const US: &str = "127.0.0.1";
const NOBODY: &str = "";

/// What a proxy passes on, and who the client then is.
const SAID: &[(&[u8], &str)] = &[
    (b"", US),
    (b"X-Forwarded-For: 192.0.2.7", "192.0.2.7"),
    (b"X-Forwarded-For: 10.0.0.1, 192.0.2.7", "192.0.2.7"),
    (b"X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-For: 192.0.2.7", "192.0.2.7"),
    (b"X-Forwarded-For: \xff, 192.0.2.7", "192.0.2.7"),
    (b"X-Forwarded-For: \xc3\xa9\r\nX-Forwarded-For: 10.0.0.1", "10.0.0.1"),
    (b"X-Forwarded-For: 10.0.0.1, 192.0.2.7, 10.9.0.1", "192.0.2.7"),
    (b"X-Forwarded-For: ::ffff:10.0.0.1", "10.0.0.1"),
    (b"X-Forwarded-For: 10.0.0.1, \xff", NOBODY),
    (b"X-Forwarded-For: 10.0.0.1\xa0", NOBODY),
    (b"X-Forwarded-For: 10.0.0.1, unknown", NOBODY),
    (b"X-Forwarded-For: unknown, 10.9.0.1", NOBODY),
    (b"X-Forwarded-For: 10.0.0.1,", NOBODY),
    (b"X-Forwarded-For:", NOBODY),
    (b"X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-For:", NOBODY),
    (b"X-Forwarded-For: fe80::1%lo", NOBODY),
    (b"X-Forwarded-For: \"10.0.0.1\"", NOBODY),
    (b"Forwarded: for=10.0.0.1, for=192.0.2.7", "192.0.2.7"),
    (b"Forwarded: for=\"\xff\", for=192.0.2.7", "192.0.2.7"),
    (b"Forwarded: for=192.0.2.7;host=\"a, for=10.0.0.1\"", "192.0.2.7"),
    (b"Forwarded: for=192.0.2.7;host=\"a;for=10.0.0.1\"", "192.0.2.7"),
    (b"Forwarded: proto=http", US),
    (b"Forwarded: for=10.0.0.1;for=192.0.2.7", NOBODY),
    (b"Forwarded: for=_hidden", NOBODY),
    (b"Forwarded: for=unknown", NOBODY),
    (b"Forwarded: for=10.0.0.1, for=\xff", NOBODY),
    (b"Forwarded: for=10.0.0.1;host=\", for=192.0.2.7;host=\"a\"", NOBODY),
    (b"Forwarded: for=10.0.0.1, proto=http", NOBODY),
    (b"X-Forwarded-For: 192.0.2.7\r\nForwarded: for=192.0.2.7", "192.0.2.7"),
    (b"X-Forwarded-For: 192.0.2.7\r\nForwarded: for=10.0.0.1", NOBODY),
    (b"X-Forwarded-For: \xff\r\nForwarded: for=10.0.0.1", NOBODY),
    (b"X-Forwarded-For: 10.0.0.1\r\nForwarded: for=\"10.0.0.1", NOBODY),
];

/// Whatever a client wrote, or made a proxy write, nobody is told of another one than the rules
/// are.
#[test]
fn rules_log_answer_and_origin_know_the_same_client() {
    let origin =
        Origin::start(|request| reply(200, "Cache-Control: no-store", request.header("x-real-ip")));
    let home = tempfile::tempdir().expect("dir");
    let path = home.path().join("access.log");
    let proxy = start(&origin, WHO, |config| {
        config.log.to = LogTarget::File(path.clone());
        config.log.format = LogFormat::Json;
        config.forwarded.trust_client = true;
        config.forwarded.trust_networks =
            ["127.0.0.0/8", "10.9.0.0/16"].map(|text| text.parse().unwrap()).to_vec();
    });
    for (n, (lines, client)) in SAID.iter().enumerate() {
        // Its own word is not what the origin goes by.
        let start = format!("GET /{n} HTTP/1.1\r\nHost: a\r\nX-Real-IP: 10.6.6.6\r\n");
        let end = if lines.is_empty() { &b"\r\n"[..] } else { b"\r\n\r\n" };
        let request = [start.as_bytes(), lines, end].concat();
        let answer = raw_answer(proxy.info.address, &request);
        let shown = lines.escape_ascii();
        let is_ours = client.starts_with("10.") || *client == US;
        assert_eq!(answer.header("x-ours"), if is_ours { "yes" } else { "no" }, "{shown}");
        assert_eq!(answer.header("x-client"), *client, "{shown}");
        assert_eq!(answer.text(), *client, "{shown}");
    }
    let disputed = SAID.iter().filter(|(_, client)| client.is_empty()).count();
    assert_eq!(proxy.metric("damelo_proxy_clients_disputed_total"), disputed as u64);
    proxy.stop();
    let log = std::fs::read_to_string(&path).expect("a log");
    for (n, (lines, client)) in SAID.iter().enumerate() {
        let line = log.lines().find(|line| line.contains(&format!("\"target\":\"/{n}\"")));
        let named = if client.is_empty() { "null".to_owned() } else { format!("\"{client}\"") };
        let named = format!("\"client\":{named},");
        assert!(
            line.is_some_and(|line| line.contains(&named)),
            "{}: {line:?}",
            lines.escape_ascii()
        );
    }
}

#[test]
fn an_id_is_the_same_for_origin_client_and_log() {
    let (origin, home) = (telling(), tempfile::tempdir().expect("dir"));
    let path = home.path().join("access.log");
    let proxy = start(&origin, STAFF, |config| {
        config.log.to = LogTarget::File(path.clone());
        config.log.format = LogFormat::Json;
        config.forwarded.trust_client = true;
    });
    let made = proxy.get_with("/a?b", "Host: a.test:80");
    assert_eq!(made.header("x-asked"), "http://a.test/a?b");
    let id = made.header("x-request-id");
    assert_eq!((origin.last().header("x-request-id"), id.len()), (id.clone(), 32));
    let hit = proxy.get_with("/a?b", "Host: a.test");
    assert!(hit.cache().contains("; hit") && hit.header("x-request-id") != id);
    let given = proxy.get_with("/b", "Host: a.test\nX-Request-ID: given-7");
    assert_eq!(given.header("x-request-id"), "given-7");
    proxy.stop();
    let log = std::fs::read_to_string(&path).expect("log");
    let named = |id: &str| log.contains(&format!("\"request_id\":\"{id}\""));
    assert!(named(&id) && named("given-7"), "{log}");
}

#[test]
fn a_purge_finds_a_url_by_the_parameters_that_count() {
    let rules = "[[rule]]\npath = \"/search\"\nhost = \"a.test\"\nkey_query = \"only:q\"\n";
    let origin = telling();
    let proxy = start(&origin, rules, |_| {});
    let admin = proxy.info.admin.expect("admin");
    let asked = |path: &str| proxy.get_with(path, "Host: a.test").cache();
    asked("/search?q=a&x=1");
    assert!(asked("/search?q=a").contains("; hit"));
    let order = r#"{"url": "http://A.test:80/search?x=7&q=a"}"#;
    let known = ask_admin(admin, "/explain", None, Some(order)).expect("explained");
    assert!(known.contains("http://a.test/search?q=a"), "{known}");
    ask_admin(admin, "/purge", None, Some(order)).expect("purged");
    assert!(!asked("/search?q=a").contains("; hit"));
    // Of another host all of them count.
    proxy.get_with("/search?q=a&x=1", "Host: b.test");
    let other = proxy.get_with("/search?q=a", "Host: b.test");
    assert!(other.cache().contains("fwd=uri-miss"), "{}", other.cache());
}

/// What an origin is told of host and scheme is in the key, whoever tells it.
#[test]
fn a_host_that_a_rule_tells_is_in_the_key() {
    let rules = "[[rule]]\nrequest_set = [\"X-Site: {scheme}://{host}\"]\n";
    let origin =
        Origin::start(|request| reply(200, "Cache-Control: max-age=60", request.header("x-site")));
    let proxy = start(&origin, rules, |config| config.forwarded.x_forwarded = false);
    assert_eq!(proxy.get_with("/a", "Host: evil.test").text(), "http://evil.test");
    assert_eq!(proxy.get_with("/a", "Host: a.test.").text(), "http://a.test");
    let hit = proxy.get_with("/a", "Host: A.test:80");
    assert_eq!(hit.text(), "http://a.test");
    assert!(hit.cache().contains("; hit"), "{}", hit.cache());
}

/// By the words of the log, of whatever answers.
#[test]
fn an_answer_says_what_the_cache_did() {
    let origin = Origin::start(|request| match request.path() {
        "/own" => reply(200, "Cache-Control: no-store\nX-Cache: theirs", "x"),
        _ => reply(200, "Cache-Control: max-age=60\nETag: \"e\"", "x"),
    });
    let rules = "[[rule]]\nanswer_set = [\"X-Cache: {cache}\"]\n\
                 [[rule]]\npath = \"/past\"\npass = true\n\
                 [[rule]]\npath = \"/here\"\nrespond = 404\n";
    let proxy = start(&origin, rules, |_| {});
    for (path, said) in [
        ("/a", "uri-miss"),
        ("/a", "hit"),
        ("/own", "uri-miss"),
        ("/past", "bypass"),
        ("/here", "respond"),
    ] {
        assert_eq!(proxy.get(path).header("x-cache"), said, "{path}");
    }
    assert_eq!(proxy.get_with("/a", "Cache-Control: only-if-cached").header("x-cache"), "hit");
    let missing = proxy.get_with("/b", "Cache-Control: only-if-cached");
    assert_eq!((missing.status(), missing.header("x-cache").as_str()), (504, "none"));
    // It stands in no request, and in nothing that is stored.
    proxy.pass_seconds(61);
    assert_eq!(proxy.get("/a").header("x-cache"), "stale");
}
