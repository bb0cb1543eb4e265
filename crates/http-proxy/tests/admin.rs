//! The admin listener: what it answers, to whom, and to how many at once.

mod support;

use std::io::{BufReader, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use damelo_http_proxy::{Settings, ask_admin};
use socket2::{Domain, Socket, Type};
use support::{Origin, Proxy, read_some, reply};

/// How many connections it holds.
const CONNECTIONS_MAX: usize = 32;

#[test]
fn the_admin_listener_tells_health_readiness_and_latency() {
    let origin = Origin::start(|_| reply(200, "cache-control: max-age=60", "x"));
    let proxy = Proxy::start_with(&origin, |config| {
        config.admin.from = Some(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
    });
    let admin = proxy.info.admin.expect("an admin address");
    let get = |path: &str| support::ask_at(admin, "GET", path, "", b"");
    assert_eq!(get("/healthz").text(), "ok\n");
    assert_eq!((get("/readyz").status(), get("/readyz").text()), (200, "ready\n".to_owned()));
    assert_eq!(get("/nothing").status(), 404);
    proxy.get("/a");
    proxy.get("/a");
    proxy.get("/a");
    let metrics = get("/metrics").text();
    assert!(
        metrics.contains("damelo_proxy_latency_seconds_count{from=\"store\"} 2\n"),
        "{metrics}"
    );
    assert!(metrics.contains("damelo_proxy_latency_seconds_count{from=\"origin\"} 1\n"));
    assert!(metrics.contains("damelo_proxy_responses_total{class=\"2xx\"} 3\n"));
    assert!(metrics.ends_with("# EOF\n"));
}

#[test]
fn the_admin_listener_answers_the_allowed_networks_only() {
    let origin = Origin::start(|_| reply(200, "cache-control: max-age=60", "x"));
    let proxy = Proxy::start(&origin);
    let admin = proxy.info.admin.expect("an admin address");
    let host = format!("Host: {admin}");
    let get = |path: &str| support::ask_at(admin, "GET", path, &host, b"").status();
    assert_eq!(get("/healthz"), 200, "loopback by default");
    for (networks, status) in [("10.0.0.0/8", 403), ("127.0.0.0/8", 200), ("::1/128", 403)] {
        let text = format!("[admin]\nnetworks = [\"{networks}\"]\n");
        proxy.info.control.reload(Settings::parse(&text).unwrap().proxy).unwrap();
        for path in ["/healthz", "/metrics", "/top"] {
            assert_eq!(get(path), status, "{path} {networks}");
        }
    }
}

/// 127.0.0.2 stands for an address that is not allowed.
#[test]
fn who_is_not_answered_keeps_nobody_out() {
    let origin = Origin::start(|_| reply(200, "", "x"));
    let proxy = Proxy::start_with(&origin, |config| {
        config.admin.from = Some(std::net::SocketAddr::from(([0, 0, 0, 0], 0)));
        config.admin.networks = vec!["127.0.0.1/32".parse().unwrap()];
    });
    let admin = proxy.info.admin.expect("an admin address");
    let from = |host: u8| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&std::net::SocketAddr::from(([127, 0, 0, host], 0)).into()).unwrap();
        socket.connect(&std::net::SocketAddr::from(([127, 0, 0, 1], admin.port())).into()).unwrap();
        TcpStream::from(socket)
    };
    let get = |mut stream: TcpStream| {
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        read_some(&mut BufReader::new(stream), 0).0
    };
    let mut refused: Vec<TcpStream> = (0..CONNECTIONS_MAX + 8).map(|_| from(2)).collect();
    assert_eq!(get(from(1)).status(), 200, "none of its places is taken");
    let said = get(refused.swap_remove(0));
    assert_eq!((said.status(), said.header("connection")), (403, "close".to_owned()));
}

/// Its name may have been made to lead here, so that the browser takes both for one site.
#[test]
fn a_page_in_a_browser_gives_no_orders_without_a_token() {
    let origin = Origin::start(|_| reply(200, "", "x"));
    for (token, status) in [(None, 403), (Some("t"), 200)] {
        let proxy = Proxy::start_with(&origin, |config| {
            config.admin.from = Some(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
            config.admin.token = token.map(str::to_owned);
        });
        let admin = proxy.info.admin.expect("an admin address");
        let order = |more: &str| {
            let headers =
                format!("Content-Type: application/json\nAuthorization: Bearer t\n{more}");
            support::ask_at(admin, "POST", "/purge", &headers, b"{\"all\": true}").status()
        };
        assert_eq!(order("Host: evil.example:9100\nOrigin: http://evil.example:9100"), status);
        assert_eq!(order(&format!("Host: {admin}\nOrigin: http://evil.example")), status);
        assert_eq!(order("Host: evil.example:9100"), status, "of a browser that says no Origin");
        assert_eq!(order("Host: localhost:9100"), 200);
        let explain = |host: &str| {
            let headers =
                format!("Content-Type: application/json\nAuthorization: Bearer t\nHost: {host}");
            let order = b"{\"url\": \"http://a.test/\"}";
            support::ask_at(admin, "POST", "/explain", &headers, order).status()
        };
        assert_eq!((explain("evil.example"), explain("127.0.0.1:9100")), (status, 200));
    }
}

/// Such a page sends no `Origin` where it only reads.
#[test]
fn a_page_in_a_browser_does_not_read_what_was_asked_for_without_a_token() {
    let origin = Origin::start(|_| reply(200, "", "x"));
    for (token, by_name) in [(None, 403), (Some("t"), 200)] {
        let proxy = Proxy::start_with(&origin, |config| {
            config.admin.from = Some(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
            config.admin.token = token.map(str::to_owned);
        });
        let admin = proxy.info.admin.expect("an admin address");
        let get = |path: &str, host: &str| {
            let headers = format!("Authorization: Bearer t\nHost: {host}");
            support::ask_at(admin, "GET", path, &headers, b"").status()
        };
        for host in ["evil.example:9100", "127.0.0.1.evil.example", "localhost.evil.example"] {
            assert_eq!(get("/top", host), by_name, "{host}");
            assert_eq!(get("/metrics", host), 200, "what scrapes it may know it by any name");
        }
        for host in ["127.0.0.1:9100", "10.0.0.1", "[::1]:9100", "localhost:9100", "LOCALHOST"] {
            assert_eq!(get("/top", host), 200, "{host}");
        }
    }
}

#[test]
fn explain_names_what_of_the_settings_selects_a_variant() {
    let origin = Origin::start(|_| reply(200, "cache-control: max-age=60\nvary: accept", "x"));
    let proxy = Proxy::start_with(&origin, |config| {
        config.admin.from = Some(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
        config.caching.key.headers = vec!["x-team".parse().expect("a name")];
        config.caching.key.cookies = vec!["lang".to_owned()];
    });
    proxy.get("/a");
    let admin = proxy.info.admin.expect("an admin address");
    let order = serde_json::json!({ "url": "http://a/a" }).to_string();
    let text = ask_admin(admin, "/explain", None, Some(&order)).expect("an answer");
    let known: serde_json::Value = serde_json::from_str(&text).expect("json");
    let expected =
        serde_json::json!({ "headers": ["accept", "x-team"], "cookies": ["lang"], "variants": 1 });
    assert_eq!(known["vary"], expected);
}

/// Of the host and of the query the key has only what may make a difference to the response.
#[test]
fn explain_names_the_rules_for_what_the_client_asks_and_not_for_the_key() {
    let text = "forwarded.x_forwarded = false\nkey.query = \"except:utm\"\n\
                [[rule]]\nname = \"one\"\nquery = \"*utm=*\"\nresponse_set = [\"X-A: b\"]\n\
                [[rule]]\nname = \"two\"\nhost = \"www.example.org\"\nrespond = 301\n\
                location = \"https://{host}{target}\"\n";
    let origin = Origin::start(|_| reply(200, "", "x"));
    let proxy = Proxy::start(&origin);
    proxy.info.control.reload(Settings::parse(text).unwrap().proxy).unwrap();
    let admin = proxy.info.admin.expect("an admin address");
    let explain = |url: &str| {
        let order = serde_json::json!({ "url": url }).to_string();
        let text = ask_admin(admin, "/explain", None, Some(&order)).expect("an answer");
        serde_json::from_str::<serde_json::Value>(&text).expect("json")
    };
    let known = explain("HTTP://WWW.example.org:80/a?utm=1&n=2");
    assert_eq!(known["rules"], serde_json::json!(["one", "two"]), "{known}");
    let answer = proxy.get_with("/a?utm=1&n=2", "Host: www.example.org");
    assert_eq!(known["responds"]["location"], answer.header("location"));
    assert!(known["key"].as_str().is_some_and(|key| key.ends_with("/a?n=2")), "{known}");
    assert_eq!(explain("/a?utm=1")["rules"], serde_json::json!(["one"]));
}

/// Headers that rules set, and those that they take off, count in the key as they go on.
#[test]
fn explain_looks_under_the_key_that_edited_headers_give() {
    let text = "[[rule]]\nrequest_set = [\"X-Device: phone\"]\nrequest_remove = [\"X-Team\"]\n\
                key_headers = [\"X-Device\", \"X-Team\"]\n";
    let origin = Origin::start(|_| reply(200, "cache-control: max-age=60", "x"));
    let proxy = Proxy::start(&origin);
    proxy.info.control.reload(Settings::parse(text).unwrap().proxy).unwrap();
    let asked = proxy.get_with("/a", "X-Team: red\nX-Device: desk");
    assert!(asked.cache().contains("stored"), "{}", asked.cache());
    let admin = proxy.info.admin.expect("an admin address");
    let order = serde_json::json!({ "url": "http://a/a", "headers": ["X-Team: blue"] }).to_string();
    let text = ask_admin(admin, "/explain", None, Some(&order)).expect("an answer");
    let known: serde_json::Value = serde_json::from_str(&text).expect("json");
    assert_eq!(known["stored"][0]["status"], 200, "{known}");
}

/// RFC 9875 §3: what is in several groups goes with each of them, and lies in one.
#[test]
fn explain_tells_of_what_is_gone_with_a_group() {
    let origin = Origin::start(|request| match request.method() {
        "POST" => reply(200, "cache-group-invalidation: \"two\"", ""),
        _ => reply(200, "cache-control: max-age=60\ncache-groups: \"one\", \"two\"", "x"),
    });
    let proxy = Proxy::start(&origin);
    let admin = proxy.info.admin.expect("an admin address");
    let standing = || {
        let order = serde_json::json!({ "url": "http://a/a" }).to_string();
        let text = ask_admin(admin, "/explain", None, Some(&order)).expect("an answer");
        let known: serde_json::Value = serde_json::from_str(&text).expect("json");
        known["stored"][0]["purged"].clone()
    };
    proxy.get("/a");
    assert_eq!(standing(), "untouched");
    proxy.ask_with_body("POST", "/other", "", b"x");
    assert_eq!(standing(), "gone with one of its groups");
    assert!(proxy.get("/a").cache().contains("fwd=uri-miss"), "it is");
}

/// A purge of more than the URL covers the marker that lists the variants, too, and a look-up does
/// not follow it any more.
#[test]
fn explain_tells_of_variants_that_a_purge_covers() {
    let origin =
        Origin::start(|_| reply(200, "cache-control: max-age=60\nvary: accept-language", "x"));
    let proxy = Proxy::start(&origin);
    let admin = proxy.info.admin.expect("an admin address");
    let explain = || -> serde_json::Value {
        let order = serde_json::json!({ "url": "http://a/a" }).to_string();
        let text = ask_admin(admin, "/explain", None, Some(&order)).expect("an answer");
        serde_json::from_str(&text).expect("json")
    };
    for language in ["de", "fr"] {
        proxy.get_with("/a", &format!("Accept-Language: {language}"));
    }
    ask_admin(admin, "/purge", None, Some("{\"prefix\": \"http://a/\"}")).expect("purged");
    let known = explain();
    assert_eq!(known["vary"]["variants"], 2, "{known}");
    for number in 0..2 {
        assert_eq!(known["stored"][number]["purged"], "gone by a purge", "{known}");
    }
    proxy.get_with("/a", "Accept-Language: de");
    let known = explain();
    assert_eq!(known["stored"].as_array().map(Vec::len), Some(1), "{known}");
    assert_eq!(known["stored"][0]["purged"], "untouched", "{known}");
}

/// Why something is not a hit: what rules did to its response, where its lifetime is from, what was
/// purged, and which rule forbids to store it.
#[test]
fn explain_names_the_causes_in_responses_rules_and_purges() {
    let origin = Origin::start(|request| {
        let fields = match request.path() {
            "/s" => "cache-control: max-age=9, s-maxage=60",
            "/m" => "cache-control: max-age=60",
            "/e" => "expires: Fri, 31 Dec 9999 23:59:59 GMT",
            "/l" => "last-modified: Sun, 06 Nov 1994 08:49:37 GMT",
            _ => "content-type: image/png\netag: \"a\"",
        };
        reply(200, fields, "hello")
    });
    let rules = Settings::parse(
        "[[rule]]\nname = \"pictures\"\ntype = \"image/*\"\nttl = \"1h\"\n\
         [[rule]]\nname = \"long ones\"\nsize_min = 6\nttl = \"2h\"\n\
         [[rule]]\nname = \"short ones\"\npath = \"/short\"\nsize_max = 5\nhint = \"hate\"\n\
         [[rule]]\nname = \"none of these\"\npath = \"/none/*\"\nstatus = 200\nstore = false\n",
    );
    let rules = rules.expect("a good file").proxy.ruleset;
    let proxy = Proxy::start_with(&origin, |config| {
        config.admin.from = Some(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
        config.ruleset = rules;
    });
    let admin = proxy.info.admin.expect("an admin address");
    let explain = |path: &str| -> serde_json::Value {
        let order = serde_json::json!({ "url": format!("http://a{path}") }).to_string();
        let text = ask_admin(admin, "/explain", None, Some(&order)).expect("an answer");
        serde_json::from_str(&text).expect("json")
    };
    for (path, from, rules) in [
        ("/s", "s-maxage", &[][..]),
        ("/m", "max-age", &[]),
        ("/e", "Expires", &[]),
        ("/l", "Last-Modified", &[]),
        ("/short", "a rule's ttl", &["pictures", "short ones"]),
    ] {
        proxy.get(path);
        let known = explain(path);
        assert_eq!(known["stored"][0]["freshness"]["lifetime_from"], from, "{known}");
        assert_eq!(known["stored"][0]["rules"], serde_json::json!(rules), "{known}");
        assert_eq!(known["purges"], serde_json::json!([]), "{known}");
    }
    ask_admin(admin, "/purge", None, Some("{\"url\": \"http://a/m\"}")).expect("purged");
    let known = explain("/m");
    assert_eq!(known["stored"], serde_json::json!([]), "{known}");
    assert_eq!(known["purges"][0]["by"], "its URL", "{known}");
    proxy.get("/none/a");
    let known = explain("/none/a");
    assert_eq!(known["not_stored"][0]["reason"], "rule", "{known}");
    assert_eq!(known["not_stored"][0]["rule"], "none of these", "{known}");
}

/// What nobody bounds takes the descriptors of the proxy's clients.
#[test]
fn the_admin_listener_holds_so_many_connections_and_no_more() {
    let origin = Origin::start(|_| reply(200, "", "x"));
    let proxy = Proxy::start(&origin);
    let admin = proxy.info.admin.expect("an admin address");
    let ask = || {
        let mut stream = TcpStream::connect(admin).expect("a connection");
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        BufReader::new(stream)
    };
    let held = || {
        let mut stream = ask();
        assert_eq!(read_some(&mut stream, 3).1, b"ok\n");
        stream
    };
    let mut all: Vec<_> = (0..CONNECTIONS_MAX).map(|_| held()).collect();
    let mut waiting = ask();
    waiting.get_ref().set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let early = waiting.read(&mut [0]).expect_err("an answer beyond the limit");
    assert_eq!(early.kind(), ErrorKind::WouldBlock);
    waiting.get_ref().set_read_timeout(None).expect("no timeout");
    drop(all.pop());
    assert_eq!(read_some(&mut waiting, 3).1, b"ok\n");
}
