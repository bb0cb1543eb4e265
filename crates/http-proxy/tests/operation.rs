//! Operation over real sockets: the operator's rules, reload, the access log, a second instance.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use damelo_http_proxy::{
    Inherited, LogFormat, LogTarget, OriginTarget, ProxyConfig, ProxyError, Settings, ask_admin,
};
use support::{Gate, Home, Origin, PATIENCE, Proxy, eventually, reply, send_to};

/// A proxy with the rules of a configuration file.
fn with_rules(origin: &Origin, file: &str) -> Proxy {
    let settings = Settings::parse(file).expect("a good file");
    Proxy::start_with(origin, |config| config.ruleset = settings.proxy.ruleset.clone())
}

#[test]
fn a_rule_s_ttl_counts_whatever_the_origin_says_of_it() {
    let origin = Origin::start(|_| reply(200, "", "x"));
    let proxy = with_rules(
        &origin,
        "[[rule]]\npath = \"/img/*\"\nttl = \"100s\"\nresponse_remove = [\"set-cookie\"]\n",
    );
    assert!(proxy.get("/other").cache().contains("detail=no-validator"));
    assert!(proxy.get("/img/a").cache().contains("stored"));
    let hit = proxy.get("/img/a");
    // A second may have passed meanwhile.
    let ttl_s = |cache: &str| cache.split("; hit; ttl=").nth(1).and_then(|ttl| ttl.parse().ok());
    assert!(ttl_s(&hit.cache()).is_some_and(|s: u64| (95..=100).contains(&s)), "{}", hit.cache());
    proxy.pass_seconds(90);
    assert!(proxy.get("/img/a").cache().contains("; hit; ttl="));
    proxy.pass_seconds(11);
    assert!(!proxy.get("/img/a").cache().contains("; hit"));
}

#[test]
fn rules_pass_refuse_to_store_and_edit_headers() {
    let origin = Origin::start(|request| match request.path() {
        "/private" => reply(200, "cache-control: private, max-age=60", "x"),
        _ => reply(200, "cache-control: max-age=60\nset-cookie: a=b\nx-up: 1", "x"),
    });
    let proxy = with_rules(
        &origin,
        "[[rule]]\nprefix = \"/cart\"\npass = true\n\
         [[rule]]\npath = \"/never\"\nstore = false\n\
         [[rule]]\npath = \"/private\"\nstore = true\nttl = \"1h\"\n\
         [[rule]]\npath = \"/edited\"\nrequest_set = [\"X-Asked: by rule\"]\n\
         request_remove = [\"Cookie\"]\nresponse_set = [\"X-Rule: yes\"]\n\
         response_remove = [\"Set-Cookie\"]\n",
    );
    for _ in 0..2 {
        assert!(proxy.get("/cart/1").cache().contains("fwd=bypass; fwd-status=200; detail=rule"));
        assert!(proxy.get("/never").cache().contains("detail=rule"));
        assert!(proxy.get("/private").cache().contains("detail=private"), "no rule lifts this");
    }
    let before = origin.count();
    for hit in [false, true] {
        let answer = proxy.get_with("/edited", "Cookie: c=1");
        assert_eq!(answer.cache().contains("; hit"), hit);
        assert_eq!(answer.header("x-rule"), "yes");
        assert!(!answer.has("set-cookie"), "{answer:?}");
    }
    assert_eq!(origin.count(), before + 1);
    assert_eq!(origin.last().header("x-asked"), "by rule");
    assert!(!origin.last().has("cookie"));
}

/// What nobody may claim, the operator may say.
#[test]
fn a_rule_tells_the_origin_what_clients_may_not() {
    let origin = Origin::start(|_| reply(200, "cache-control: max-age=60", "x"));
    let rule = "[[rule]]\nprefix = \"/app\"\nstrip_prefix = \"/app\"\n\
                request_set = [\"X-Forwarded-Prefix: /app\"]\n";
    let proxy = with_rules(&origin, rule);
    let claims = "X-Forwarded-Prefix: /evil\nX-Original-URL: /evil";
    for (path, told) in [("/app/a", "/app"), ("/a", "")] {
        proxy.get_with(path, claims);
        assert_eq!(origin.last().path(), "/a");
        assert_eq!(origin.last().header("x-forwarded-prefix"), told, "{path}");
        assert!(!origin.last().has("x-original-url"), "{path}");
    }
}

#[test]
fn a_rule_stores_at_the_second_request() {
    let origin = Origin::start(|_| reply(200, "cache-control: max-age=60\netag: \"1\"", "x"));
    let proxy = with_rules(
        &origin,
        "[[rule]]\nprefix = \"/once\"\nadmission = \"second-hit\"\n\
         [[rule]]\npath = \"/once/but-not-this\"\nadmission = \"always\"\n",
    );
    for (path, answers) in [
        ("/once/a", ["detail=first-request", "stored", "; hit"]),
        ("/once/b", ["detail=first-request", "stored", "; hit"]),
        ("/once/but-not-this", ["stored", "; hit", "; hit"]),
        ("/other", ["stored", "; hit", "; hit"]),
    ] {
        for expected in answers {
            let answer = proxy.get(path);
            assert!(answer.cache().contains(expected), "{path}: {}", answer.cache());
            assert_eq!(answer.text(), "x");
        }
    }
    // What lies there is renewed, although this is the first request that says so.
    proxy.pass_seconds(61);
    assert!(proxy.get("/once/a").cache().contains("fwd=stale"));
    assert!(proxy.get("/once/a").cache().contains("; hit"));
    let name = "damelo_proxy_not_stored_total{reason=\"first-request\"}";
    assert_eq!(proxy.metric(name), 2);
}

#[test]
fn key_parts_keep_variants_apart() {
    let origin = Origin::start(|request| {
        reply(200, "cache-control: max-age=60", request.header("cookie") + &request.header("x-v"))
    });
    let proxy = with_rules(
        &origin,
        "[[rule]]\npath = \"/k\"\nkey_cookies = [\"lang\", \"user[lang]\"]\n\
         key_headers = [\"X-V\"]\n",
    );
    for (headers, body) in [
        ("Cookie: lang=de", "lang=de"),
        ("Cookie: lang=en", "lang=en"),
        ("Cookie: lang=en; seen=1", "lang=en"),
        ("Cookie: user[lang]=fr", "user[lang]=fr"),
        ("X-V: 2", "2"),
    ] {
        assert_eq!(proxy.get_with("/k", headers).text(), body, "{headers}");
    }
    assert_eq!(origin.count(), 4, "a cookie that is not in the key makes no variant");
}

#[test]
fn rules_count_after_a_revalidation_too() {
    let origin = Origin::start(|request| {
        if request.has("if-none-match") {
            return reply(304, "etag: \"1\"", "");
        }
        reply(200, "etag: \"1\"\ncontent-type: image/png", "x")
    });
    let proxy = with_rules(&origin, "[[rule]]\ntype = \"image/*\"\nttl = \"10s\"\n");
    proxy.get("/i");
    proxy.pass_seconds(11);
    assert!(proxy.get("/i").cache().contains("fwd=stale; fwd-status=304; stored; ttl=10"));
    proxy.pass_seconds(9);
    assert!(proxy.get("/i").cache().contains("; hit; ttl=1"));
}

#[test]
fn a_reload_counts_from_the_next_request_of_a_connection_that_lives() {
    let origin = Origin::start(|_| reply(200, "cache-control: max-age=60", "x"));
    let proxy = Proxy::start(&origin);
    let mut stream = std::net::TcpStream::connect(proxy.info.address).unwrap();
    let ask = |stream: &mut std::net::TcpStream| {
        use std::io::{Read as _, Write as _};
        stream.write_all(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\nx") {
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        String::from_utf8(head).unwrap().to_lowercase()
    };
    assert!(ask(&mut stream).contains("cache-status: damelo; fwd=uri-miss"));
    assert!(ask(&mut stream).contains("cache-status: damelo; hit"));
    let mut new = Settings::parse("[[rule]]\npath = \"/a\"\npass = true\n").unwrap().proxy;
    new.name = "other".to_owned();
    new.workers = 99;
    proxy.info.control.reload(new).unwrap();
    eventually("the worker sees the new settings", || {
        ask(&mut stream).contains("cache-status: other; fwd=bypass")
    });
    let mut wrong = ProxyConfig::new(proxy.info.address, OriginTarget::Demo);
    wrong.name = "not a token".to_owned();
    assert!(matches!(proxy.info.control.reload(wrong), Err(ProxyError::Name(_))));
    assert!(ask(&mut stream).contains("cache-status: other; fwd=bypass"));
}

#[test]
fn a_reload_keeps_the_connections_to_origins_that_it_does_not_concern() {
    let origin = Origin::start(|_| reply(200, "cache-control: no-store", "x"));
    let proxy = Proxy::start_with(&origin, |config| config.workers = 1);
    assert_eq!(proxy.get("/").status(), 200);
    let reload = |name: &str, settings: &str| {
        let mut new = Settings::parse(settings).unwrap().proxy;
        new.name = name.to_owned();
        proxy.info.control.reload(new).unwrap();
        eventually("the worker sees the new settings", || {
            let answer = support::ask_at(proxy.info.address, "GET", "/", "", b"");
            answer.cache().contains(name)
        });
        origin.connections()
    };
    assert_eq!(reload("second", ""), 1);
    assert_eq!(reload("third", "[timeouts]\nconnect = \"4s\"\n"), 2, "what it does concern");
}

#[test]
fn reloads_under_load_disturb_nobody() {
    let origin = Origin::start(|request| reply(200, "cache-control: max-age=60", request.path()));
    let proxy = Proxy::start(&origin);
    let address = proxy.info.address;
    let client = move |number: usize| {
        use std::io::Write as _;
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let mut answers = std::io::BufReader::new(stream.try_clone().unwrap());
        for round in 0..100 {
            // Hits and misses by turns, all on one connection.
            let path = if round % 2 == 0 { "/hit".into() } else { format!("/{number}-{round}") };
            let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            let answer = support::read_message(&mut answers, false).expect("an answer");
            assert_eq!((answer.status(), answer.text()), (200, path));
        }
    };
    let clients: Vec<_> = (0..4).map(|n| std::thread::spawn(move || client(n))).collect();
    let mut reloads = 0;
    while clients.iter().any(|client| !client.is_finished()) {
        let pass = if reloads % 2 == 0 { "pass = true" } else { "ttl = \"9s\"" };
        let file = format!("[[rule]]\npath = \"/*\"\n{pass}\n");
        proxy.info.control.reload(Settings::parse(&file).unwrap().proxy).unwrap();
        reloads += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert!(reloads > 0);
}

/// Requests of clients that never pause, on connections that live, while the origin changes.
#[test]
fn the_origin_changes_under_load_and_no_request_is_lost_or_goes_to_the_former_one() {
    let named =
        |name: &'static str| Origin::start(move |_| reply(200, "cache-control: no-store", name));
    let (first, second) = (named("first"), named("second"));
    let proxy = Proxy::start_with(&first, |config| config.workers = 2);
    let (address, is_over) = (proxy.info.address, AtomicBool::new(false));
    let (is_over, asked) = (&is_over, &AtomicUsize::new(0));
    let client = move |number: usize| {
        use std::io::Write as _;
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let mut answers = std::io::BufReader::new(stream.try_clone().unwrap());
        for round in 0.. {
            if is_over.load(Ordering::SeqCst) {
                break;
            }
            write!(stream, "GET /{number}-{round} HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
            let answer = support::read_message(&mut answers, false).expect("an answer");
            assert_eq!(answer.status(), 200);
            asked.fetch_add(1, Ordering::SeqCst);
        }
    };
    std::thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || client(number));
        }
        for round in 0..10 {
            let to = if round % 2 == 0 { &second } else { &first };
            let former = if round % 2 == 0 { &first } else { &second };
            let mut new =
                ProxyConfig::new(address, OriginTarget::Url(format!("http://{}", to.address)));
            new.workers = 2;
            proxy.info.control.reload(new).unwrap();
            for number in 0..8 {
                let path = format!("/after-{round}-{number}");
                assert_eq!(
                    proxy.get(&path).text(),
                    if round % 2 == 0 { "second" } else { "first" }
                );
                let strays = former.asked();
                assert!(strays.iter().all(|request| request.path() != path), "{path}");
            }
            let before = asked.load(Ordering::SeqCst);
            eventually("others go on", || asked.load(Ordering::SeqCst) > before + 20);
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert!(first.count() > 0 && second.count() > 0);
}

#[test]
fn a_request_under_way_ends_at_the_origin_that_it_began_with() {
    let (second, gate) = (Origin::start(|_| reply(200, "", "second")), Gate::default());
    let first = Origin::start({
        let gate = gate.clone();
        move |_| {
            gate.wait();
            reply(200, "cache-control: no-store", "first")
        }
    });
    let proxy = Proxy::start(&first);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| proxy.get("/slow").text());
        eventually("it is asked", || first.count() == 1);
        let to = OriginTarget::Url(format!("http://{}", second.address));
        proxy.info.control.reload(ProxyConfig::new(proxy.info.address, to)).unwrap();
        assert_eq!(proxy.get("/slow").text(), "second");
        gate.open();
        assert_eq!(asking.join().unwrap(), "first");
    });
}

#[test]
fn a_second_proxy_on_the_same_address_is_refused() {
    let origin = Origin::start(|_| reply(200, "cache-control: max-age=60", "x"));
    let proxy = Proxy::start(&origin);
    let home = Home::new();
    let config = ProxyConfig::new(proxy.info.address, OriginTarget::Demo);
    let error = damelo_http_proxy::run(config, home.open(), |_| {}, std::future::ready(()));
    assert!(
        matches!(error, Err(ProxyError::Listen { address, .. }) if address == proxy.info.address)
    );
    assert_eq!(proxy.get("/a").status(), 200);
}

#[test]
fn an_inherited_socket_is_served_by_every_worker() {
    let origin = Origin::start(|_| reply(200, "cache-control: max-age=60", "x"));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let proxy = Proxy::start_with(&origin, |config| {
        config.inherited = vec![Arc::new(Inherited::Tcp(listener))]
    });
    assert_eq!(proxy.info.address, address);
    for _ in 0..20 {
        assert_eq!(proxy.get("/a").status(), 200);
    }
}

#[test]
fn the_access_log_has_a_line_for_each_request_and_follows_rotation() {
    let origin = Origin::start(|_| reply(200, "cache-control: max-age=60", "12345"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    let proxy = Proxy::start_with(&origin, |config| {
        config.log.to = LogTarget::File(path.clone());
        config.log.format = LogFormat::Squid;
    });
    proxy.get("/a");
    proxy.get("/a");
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap_or_default();
    eventually("two lines are written", || read(&path).lines().count() == 2);
    let old = directory.path().join("old.log");
    std::fs::rename(&path, &old).unwrap();
    proxy.info.control.reopen_log();
    proxy.get("/b");
    proxy.stop();
    let (old, new) = (read(&old), read(&path));
    assert!(old.contains("TCP_MISS/200 5 GET") && old.contains("TCP_HIT/200 5 GET"), "{old}");
    assert!(new.contains("/b") && new.lines().count() == 1, "{new}");
}

/// Behind a load balancer every line would name that.
#[test]
fn the_access_log_names_the_client_that_a_trusted_proxy_names() {
    for (trusted, expected) in [(true, "192.0.2.7 "), (false, "127.0.0.1 ")] {
        let origin = Origin::start(|_| reply(200, "cache-control: max-age=60", "12345"));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        let proxy = Proxy::start_with(&origin, |config| {
            config.log.to = LogTarget::File(path.clone());
            config.forwarded.trust_client = trusted;
        });
        proxy.get_with("/a", "X-Forwarded-For: 198.51.100.1, 192.0.2.7\r\n");
        proxy.stop();
        let log = std::fs::read_to_string(&path).unwrap();
        assert!(log.starts_with(expected), "{log}");
    }
}

#[test]
fn what_keeps_the_proxy_from_starting_is_found_before_a_store_is_made() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let config = |text: &str| Settings::parse(&format!("{text}\n")).unwrap().proxy;
    for (at_fault, text) in [
        ("from", format!("from = \"{address}\"")),
        ("listen", format!("from = \"127.0.0.1:0\"\nlisten = [\"tcp:{address}\"]")),
        ("admin.from", format!("from = \"127.0.0.1:0\"\nadmin.from = \"{address}\"")),
    ] {
        let refused = config(&format!("to = \"http://a\"\n{text}")).check_address();
        let Err(ProxyError::Listen { address: named, key, .. }) = refused else {
            panic!("{text}: {refused:?}");
        };
        assert_eq!((named, key), (address, at_fault), "{text}");
    }
    let certificates = config("to = \"http://a\"\ntls.certificates = [\"/nothing,/nothing\"]");
    assert!(matches!(certificates.check(), Err(ProxyError::CertificateFile { .. })));
}

#[test]
fn a_request_under_way_ends_with_the_settings_it_began_with() {
    let origin = Origin::start(|_| {
        let mut slow = reply(200, "cache-control: max-age=60", vec![7; 300_000]);
        slow.pace = Duration::from_millis(30);
        slow
    });
    let proxy = Proxy::start(&origin);
    let reloads = AtomicUsize::new(0);
    let mut stream = send_to(proxy.info.address, "GET", "/slow", "", b"");
    let mut whole = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            eventually("the origin is asked", || origin.count() == 1);
            for _ in 0..20 {
                let new = Settings::parse("[limits]\nbody_bytes_max = \"1KiB\"\n").unwrap().proxy;
                proxy.info.control.reload(new).unwrap();
                reloads.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        std::io::Read::read_to_end(&mut stream, &mut whole).unwrap();
    });
    assert!(whole.ends_with(&[7; 300_000]), "{} bytes", whole.len());
    assert_eq!(reloads.load(Ordering::SeqCst), 20);
    assert!(proxy.get("/slow").cache().contains("; hit"), "it was stored by the old limit");
    assert!(proxy.get("/other").cache().contains("detail=too-large"), "the new one counts now");
}

/// What the proxy knows of a path.
fn explained(proxy: &Proxy, path: &str) -> serde_json::Value {
    let admin = proxy.info.admin.expect("an admin address");
    let order = serde_json::json!({ "url": format!("http://a{path}") }).to_string();
    let text = ask_admin(admin, "/explain", None, Some(&order)).expect("an answer");
    serde_json::from_str(&text).expect("json")
}

fn with_admin(config: &mut ProxyConfig) {
    config.admin.from = Some(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
}

#[test]
fn the_grouping_decides_what_lies_together() {
    let origin = Origin::start(|request| {
        let team = if request.path().contains("red") { "red" } else { "blue" };
        let key = if request.path().ends_with("?key") { "\nsurrogate-key: one two" } else { "" };
        reply(200, &format!("cache-control: max-age=60\nx-team: {team}{key}"), "x")
    });
    let paths = ["/a/b/red", "/a/b/blue", "/a/c/red", "/d/b/blue"];
    let with_key = paths.map(|path| format!("{path}?key"));
    let with_key = with_key.each_ref().map(String::as_str);
    for (paths, rule, expected) in [
        (with_key, "named", [0, 0, 0, 0]),
        (with_key, "page", [0, 0, 0, 1]),
        (with_key, "path:1", [0, 0, 0, 1]),
        (with_key, "none", [0, 1, 2, 3]),
        (paths, "named", [0, 0, 0, 1]),
        (paths, "page", [0, 0, 0, 1]),
        (paths, "host", [0, 0, 0, 0]),
        (paths, "path:1", [0, 0, 0, 1]),
        (paths, "path:2", [0, 0, 1, 2]),
        (paths, "header:X-Team", [0, 1, 0, 1]),
        (paths, "none", [0, 1, 2, 3]),
    ] {
        let proxy = Proxy::start_with(&origin, |config| {
            with_admin(config);
            config.groups.by = rule.parse().expect("a grouping");
        });
        let mut seen = Vec::new();
        let groups = paths.map(|path| {
            proxy.get(path);
            let group = explained(&proxy, path)["stored"][0]["group"].clone();
            assert!(group.is_string(), "{path}");
            seen.iter().position(|known| *known == group).unwrap_or_else(|| {
                seen.push(group);
                seen.len() - 1
            })
        });
        assert_eq!(groups, expected, "{rule}");
    }
}

#[test]
fn rules_name_groups_and_love_or_hate_them() {
    let origin = Origin::start(|_| reply(200, "cache-control: max-age=60", "x"));
    let rules = Settings::parse(
        "[[rule]]\nprefix = \"/front\"\ngroup = \"front\"\nhint = \"love\"\n\
         [[rule]]\nprefix = \"/scan\"\ngroup = \"scans\"\nhint = \"hate\"\n",
    );
    let rules = rules.expect("a good file").proxy.ruleset;
    let proxy = Proxy::start_with(&origin, |config| {
        with_admin(config);
        config.ruleset = rules.clone();
    });
    let of = |path: &str| {
        proxy.get(path);
        let stored = explained(&proxy, path)["stored"][0].clone();
        (stored["group"].clone(), stored["group_state"]["hint"].clone())
    };
    assert_eq!(of("/front/1"), of("/front/2"));
    assert_ne!(of("/front/1").0, of("/scan/1").0);
    assert_eq!((of("/front/1").1, of("/scan/1").1), ("loved".into(), "hated".into()));
    let admin = proxy.info.admin.expect("an admin address");
    ask_admin(admin, "/purge", None, Some("{\"group\":\"front\"}")).expect("purged");
    assert!(!proxy.get("/front/1").cache().contains("; hit"));
    assert!(proxy.get("/scan/1").cache().contains("; hit"));
}

/// A proxy that hates and loves by use, if told so, except for what lies under `/kept`.
fn with_hints_by_use(origin: &Origin, by_use: bool) -> (Proxy, Settings) {
    let text = format!(
        "[groups]\nby = \"path:1\"\nhints_by_use = {by_use}\n\
         [[rule]]\nprefix = \"/kept\"\nhint = \"neutral\"\n"
    );
    let settings = Settings::parse(&text).expect("a good file");
    let proxy = Proxy::start_with(origin, |config| {
        with_admin(config);
        config.groups.by.clone_from(&settings.proxy.groups.by);
        config.groups.hints_by_use = by_use;
        config.ruleset.clone_from(&settings.proxy.ruleset);
    });
    (proxy, settings)
}

/// The hint of what lies there; it is told behind, so that it may take a moment to be `wanted`.
fn settled_hint(proxy: &Proxy, path: &str, wanted: &str) -> String {
    let hint = || explained(proxy, path)["stored"][0]["group_state"]["hint"].clone();
    let start = std::time::Instant::now();
    while hint() != wanted && start.elapsed() < support::PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    hint().as_str().expect("a hint").to_owned()
}

/// What only ever comes in is hated until something of it is asked for; not if a rule says
/// otherwise.
#[test]
fn bulk_is_hated_by_use_unless_a_rule_says_otherwise() {
    let origin = Origin::start(|_| reply(200, "cache-control: max-age=60", "x"));
    for by_use in [true, false] {
        let (proxy, _) = with_hints_by_use(&origin, by_use);
        for number in 0..70 {
            proxy.get(&format!("/bulk/{number}"));
            proxy.get(&format!("/kept/{number}"));
        }
        let wanted = if by_use { "hated" } else { "neutral" };
        assert_eq!(settled_hint(&proxy, "/bulk/1", wanted), wanted);
        assert_eq!(settled_hint(&proxy, "/kept/1", "neutral"), "neutral");
        assert!(proxy.get("/bulk/1").cache().contains("; hit"));
        assert_eq!(settled_hint(&proxy, "/bulk/1", "neutral"), "neutral");
        let counted = ["hated", "let_go"]
            .map(|what| proxy.metric(&format!("damelo_proxy_groups_{what}_total")));
        assert_eq!(counted, [u64::from(by_use); 2]);
    }
}

/// What comes in slices comes in as well.
#[test]
fn slices_count_for_hints_as_well() {
    let origin = Origin::start(|request| {
        let first: usize = match request.header("range").strip_prefix("bytes=") {
            Some(range) => range.split('-').next().unwrap().parse().unwrap(),
            None => return reply(200, "cache-control: max-age=60", "x"),
        };
        let range = format!("content-range: bytes {first}-{}/1000000", first + 65_535);
        let headers = format!("cache-control: max-age=60\netag: \"1\"\n{range}");
        reply(206, &headers, vec![b'x'; 65_536])
    });
    for by_rule in [false, true] {
        let text = format!(
            "[groups]\nby = \"path:1\"\nhints_by_use = {}\n\
             [[rule]]\nprefix = \"/loved\"\nhint = \"love\"\n",
            !by_rule
        );
        let settings = Settings::parse(&text).expect("a good file");
        let proxy = Proxy::start_with(&origin, |config| {
            with_admin(config);
            config.caching.slice_bytes = 65_536;
            config.groups.by.clone_from(&settings.proxy.groups.by);
            config.groups.hints_by_use = !by_rule;
            config.ruleset.clone_from(&settings.proxy.ruleset);
        });
        let directory = if by_rule { "loved" } else { "bulk" };
        for number in 0..70 {
            let path = format!("/{directory}/{number}");
            assert_eq!(proxy.get_with(&path, "Range: bytes=5-6").status(), 206);
        }
        let hint = if by_rule { "loved" } else { "hated" };
        assert_eq!(settled_hint(&proxy, &format!("/{directory}/1"), hint), hint);
    }
}

#[test]
fn what_was_validated_was_used() {
    let origin = Origin::start(|request| {
        let status = if request.has("if-none-match") { 304 } else { 200 };
        reply(status, "cache-control: no-cache\r\nETag: \"a\"", "x")
    });
    let (proxy, _) = with_hints_by_use(&origin, true);
    for number in 0..70 {
        proxy.get(&format!("/bulk/{number}"));
    }
    assert_eq!(settled_hint(&proxy, "/bulk/1", "hated"), "hated");
    assert!(proxy.get("/bulk/1").cache().contains("fwd-status=304"));
    assert_eq!(settled_hint(&proxy, "/bulk/1", "neutral"), "neutral");
}

#[test]
fn hints_by_use_end_when_they_are_switched_off() {
    let origin = Origin::start(|_| reply(200, "cache-control: max-age=60", "x"));
    let (proxy, settings) = with_hints_by_use(&origin, true);
    let bulk = |directory: &str| {
        for number in 0..70 {
            proxy.get(&format!("/{directory}/{number}"));
        }
    };
    bulk("a");
    assert_eq!(settled_hint(&proxy, "/a/1", "hated"), "hated");
    let mut off = settings.proxy;
    off.groups.hints_by_use = false;
    proxy.info.control.reload(off.clone()).expect("good settings");
    assert_eq!(settled_hint(&proxy, "/a/1", "neutral"), "neutral");
    bulk("b");
    assert_eq!(settled_hint(&proxy, "/b/1", "neutral"), "neutral");
    off.groups.hints_by_use = true;
    proxy.info.control.reload(off).expect("good settings");
    bulk("c");
    assert_eq!(settled_hint(&proxy, "/c/1", "hated"), "hated");
}

#[test]
fn explain_knows_what_is_stored_in_slices() {
    let origin = Origin::start(|request| {
        let range = request.header("range");
        let first: usize = range["bytes=".len()..].split('-').next().unwrap().parse().unwrap();
        let said = format!("content-range: bytes {first}-{}/10", first + 3);
        reply(206, &format!("cache-control: max-age=60\netag: \"1\"\n{said}"), "abcd")
    });
    let proxy = Proxy::start_with(&origin, |config| {
        config.admin.from = Some("127.0.0.1:0".parse().expect("an address"));
        config.caching.slice_bytes = 4;
    });
    assert_eq!(explained(&proxy, "/x")["slices"], serde_json::Value::Null);
    assert_eq!(proxy.get_with("/x", "Range: bytes=4-7").status(), 206);
    let known = explained(&proxy, "/x");
    assert_eq!(known["slices"], serde_json::json!({ "slice_bytes": 4, "stored": 1 }), "{known}");
    assert_eq!(known["stored"][0]["part"], "4-7/10", "{known}");
    assert!(known["stored"][0]["freshness"]["fresh_for_s"].as_f64() > Some(50.0), "{known}");
}

/// Browsers open connections beforehand, and load balancers only look whether one comes about.
#[test]
fn a_proxy_that_stops_does_not_wait_for_who_has_asked_for_nothing() {
    let origin = Origin::start(|_| reply(200, "", "x"));
    let drain = Duration::from_secs(20);
    let proxy = Proxy::start_with(&origin, |config| config.timeouts.drain = drain);
    let connect = || std::net::TcpStream::connect(proxy.info.address).expect("it listens");
    let silent = connect();
    let mut http2 = connect();
    // The preface and an empty SETTINGS, and nothing after that.
    let hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    std::io::Write::write_all(&mut http2, hello).expect("write");
    assert_eq!(proxy.get("/").status(), 200);
    let start = std::time::Instant::now();
    proxy.stop();
    assert!(start.elapsed() < drain / 2, "{:?}", start.elapsed());
    drop((silent, http2));
}

/// A stop closes only what was not asked for yet, a quarter of a second later. A connection may not
/// have been accepted yet when the stop comes: that of another event loop was.
#[test]
fn a_request_that_comes_while_the_proxy_stops_is_answered() {
    use std::io::{Read as _, Write as _};
    for _ in 0..8 {
        let origin = Origin::start(|_| reply(200, "", "x"));
        let proxy = Proxy::start(&origin);
        let mut early = std::net::TcpStream::connect(proxy.info.address).expect("it listens");
        assert_eq!(proxy.get("/").status(), 200);
        let begun = std::time::Instant::now();
        let stopping = std::thread::spawn(move || proxy.stop());
        std::thread::sleep(Duration::from_millis(50));
        let sent = early.write_all(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
        // On a busy machine it may have come too late.
        if begun.elapsed() < Duration::from_millis(200) {
            sent.expect("write");
            let mut got = String::new();
            early.read_to_string(&mut got).expect("an answer");
            assert!(got.starts_with("HTTP/1.1 200"), "{got}");
        }
        stopping.join().expect("it stops");
    }
}

/// `limits.connections_max` makes connections wait, one of them accepted and the others not yet.
#[test]
fn who_waits_for_a_place_as_the_proxy_stops_is_answered() {
    use std::io::{Read as _, Write as _};
    let held = Gate::default();
    let gate = held.clone();
    let origin = Origin::start(move |request| {
        if request.path() == "/held" {
            gate.wait();
        }
        reply(200, "", "x")
    });
    let proxy = Proxy::start_with(&origin, |config| {
        config.workers = 1;
        config.limits.connections_max = 1;
        config.timeouts.drain = PATIENCE;
    });
    let address = proxy.info.address;
    let ask = |path| {
        let mut stream = std::net::TcpStream::connect(address).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").expect("write");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        stream
    };
    let first = ask("/held");
    eventually("the first has the only place", || origin.count() == 1);
    let others = ["/a", "/b", "/c"].map(ask);
    let stopping = std::thread::spawn(move || proxy.stop());
    eventually("nobody else gets in", || std::net::TcpStream::connect(address).is_err());
    held.open();
    for mut stream in [first].into_iter().chain(others) {
        let mut got = String::new();
        stream.read_to_string(&mut got).expect("an answer");
        assert!(got.starts_with("HTTP/1.1 200"), "{got}");
    }
    stopping.join().expect("it stops");
}
