//! What changes take with them, and what selects among variants.

use damelo_http_proxy::{CachingConfig, OriginTarget};

use crate::support::{Gate, Home, Origin, PATIENCE, Proxy, ask_at, eventually, reply};

fn caching(tweak: impl FnOnce(&mut CachingConfig)) -> CachingConfig {
    let mut caching = CachingConfig::default();
    tweak(&mut caching);
    caching
}

/// RFC 9875 §3: every response in a group goes, whether or not it lies there.
#[test]
fn a_group_invalidation_reaches_every_member() {
    let origin = Origin::start(|request| {
        let groups = match request.path() {
            "/one" => "\"news\"",
            "/two" => "\"sport\", \"news\"",
            "/three" => "\"sport\"",
            _ => return reply(200, "Cache-Group-Invalidation: \"news\", \"unknown\"", ""),
        };
        reply(200, &format!("Cache-Control: max-age=60\nCache-Groups: {groups}"), "x")
    });
    let proxy = Proxy::start(&origin);
    let paths = ["/one", "/two", "/three"];
    let hits = || paths.map(|path| proxy.get(path).cache().contains("; hit"));
    assert_eq!(hits(), [false; 3]);
    assert_eq!(hits(), [true; 3]);
    proxy.get("/change");
    assert_eq!(hits(), [true; 3], "a safe method invalidates nothing");
    proxy.ask_with_body("POST", "/change", "", b"x");
    assert_eq!(hits(), [false, false, true]);
    assert_eq!(hits(), [true; 3], "and can be stored again");
}

/// Tags are found by purges in what was read anyway; groups are looked up one by one.
#[test]
fn surrogate_keys_cost_a_hit_no_reads() {
    let origin = Origin::start(|request| match request.method() {
        "POST" => reply(200, "Cache-Group-Invalidation: \"k0\", \"k1\"", ""),
        _ => {
            let keys = (0..10).map(|n| format!("k{n}")).collect::<Vec<_>>().join(" ");
            reply(200, &format!("Cache-Control: max-age=60\nSurrogate-Key: {keys}"), "x")
        }
    });
    let proxy = Proxy::start(&origin);
    let is_hit = || proxy.get("/").cache().contains("; hit");
    assert!(!is_hit());
    let reads = || {
        let stats = proxy.store.stats();
        stats.hits_memory + stats.hits_disk
    };
    let before = reads();
    assert!((0..5).all(|_| is_hit()));
    assert_eq!(reads() - before, 5);
    proxy.ask_with_body("POST", "/change", "", b"x");
    assert!(is_hit(), "a tag is no group of RFC 9875");
}

/// What is fetched while groups are invalidated is kept if it is in none of them.
#[test]
fn a_group_invalidation_reaches_members_on_their_way_and_nothing_else() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |request| {
        let groups = match request.path() {
            "/home" => "\nCache-Groups: \"news\"",
            "/member" => "\nCache-Groups: \"sport\", \"news\"",
            "/other" => "\nCache-Groups: \"sport\"",
            "/none" => "",
            _ => return reply(200, "Cache-Group-Invalidation: \"news\"", ""),
        };
        held.wait();
        reply(200, &format!("Cache-Control: max-age=60{groups}"), "x")
    });
    let proxy = Proxy::start(&origin);
    let (paths, address) = (["/home", "/member", "/other", "/none"], proxy.info.address);
    let getting = paths.map(|path| {
        std::thread::spawn(move || ask_at(address, "GET", path, "", b"").cache().to_owned())
    });
    eventually("all are at the origin", || origin.count() == paths.len());
    proxy.ask_with_body("POST", "/change", "", b"x");
    gate.open();
    for answer in getting {
        assert!(answer.join().unwrap().contains("uri-miss"), "each is another");
    }
    let hits = paths.map(|path| proxy.get(path).cache().contains("; hit"));
    assert_eq!(hits, [false, false, true, true]);
}

/// RFC 9875 §3 says nothing of a limit, and what would outlive its groups is not stored.
#[test]
fn no_group_of_many_is_left_out() {
    let names = |count| (0..count).map(|n| format!("\"g{n}\"")).collect::<Vec<_>>().join(",");
    let origin = Origin::start(move |request| match request.path() {
        "/last" => reply(200, "Cache-Control: max-age=60\nCache-Groups: \"g299\"", "x"),
        "/most" => {
            reply(200, &format!("Cache-Control: max-age=60\nCache-Groups: {}", names(64)), "x")
        }
        "/more" => {
            reply(200, &format!("Cache-Control: max-age=60\nCache-Groups: {}", names(65)), "x")
        }
        _ => reply(200, &format!("Cache-Group-Invalidation: {}", names(300)), ""),
    });
    let proxy = Proxy::start(&origin);
    let paths = ["/last", "/most", "/more"];
    let hits = || paths.map(|path| proxy.get(path).cache().contains("; hit"));
    assert_eq!(hits(), [false; 3]);
    assert_eq!(hits(), [true, true, false]);
    assert!(proxy.get("/more").cache().contains("detail=headers-too-large"));
    proxy.ask_with_body("POST", "/change", "", b"x");
    assert_eq!(hits(), [false; 3]);
    assert_eq!(proxy.metric("damelo_proxy_group_invalidations_total"), 300);
}

/// More groups than are purged one by one go with all else of their host, and of no other.
#[test]
fn very_many_groups_go_with_their_host_and_no_other() {
    let names = (0..3000).map(|n| format!("\"{n}\"")).collect::<Vec<_>>().join(",");
    let origin = Origin::start(move |request| match request.method() {
        "POST" => reply(200, &format!("Cache-Group-Invalidation: {names}"), ""),
        _ => reply(200, "Cache-Control: max-age=60\nCache-Groups: \"2999\"", "x"),
    });
    let proxy = Proxy::start(&origin);
    let get = |host: &str| proxy.ask("GET", "/x", &format!("Host: {host}"));
    let hits = || ["a.test", "a.test:81", "b.test"].map(|host| get(host).cache().contains("; hit"));
    assert_eq!(hits(), [false; 3]);
    assert_eq!(hits(), [true; 3]);
    assert_eq!(proxy.ask_with_body("POST", "/change", "Host: a.test", b"x").status(), 200);
    assert_eq!(hits(), [false, true, true]);
    assert_eq!(hits(), [true; 3], "and can be stored again");
}

/// RFC 9875 §2, RFC 9111 §4.3.4: a response has the groups that its last validation named.
#[test]
fn a_304_makes_a_member_of_the_groups_that_it_names() {
    let origin = Origin::start(|request| {
        if request.method() == "POST" {
            let group = request.path().trim_start_matches('/').to_owned();
            return reply(200, &format!("Cache-Group-Invalidation: \"{group}\""), "");
        }
        if request.has("if-none-match") {
            let headers = "ETag: \"x\"\nCache-Control: max-age=60\nCache-Groups: \"b\", \"c\"";
            return reply(304, headers, "");
        }
        reply(200, "ETag: \"x\"\nCache-Control: max-age=10\nCache-Groups: \"a\"", "x")
    });
    let proxy = Proxy::start(&origin);
    for group in ["b", "c"] {
        let path = format!("/in-{group}");
        proxy.get(&path);
        proxy.pass_seconds(20);
        assert!(proxy.get(&path).cache().contains("fwd-status=304; stored"), "{group}");
        proxy.ask_with_body("POST", "/other", "", b"x");
        assert!(proxy.get(&path).cache().contains("; hit"), "{group}: another group");
        proxy.ask_with_body("POST", &format!("/{group}"), "", b"x");
        assert!(!proxy.get(&path).cache().contains("; hit"), "{group}");
    }
}

/// Nobody knows what an origin did that answers nonsense, or nothing in time. A 304 is no error to
/// RFC 9111 §4.4.
#[test]
fn what_an_origin_may_have_changed_without_saying_so_is_not_served_from_the_cache() {
    let origin = Origin::start(|request| match (request.method(), request.path()) {
        ("GET", _) => reply(200, "Cache-Control: max-age=60", "x"),
        (_, "/nonsense") => reply(304, "", ""),
        _ => {
            let mut late = reply(200, "", "x");
            late.delay = PATIENCE;
            late
        }
    });
    let proxy = Proxy::start_with(&origin, |config| {
        config.timeouts.origin_header = std::time::Duration::from_secs(2);
    });
    for (path, status) in [("/nonsense", 502), ("/late", 504)] {
        proxy.get(path);
        assert!(proxy.get(path).cache().contains("; hit"));
        assert_eq!(proxy.ask_with_body("POST", path, "", b"x").status(), status);
        assert!(!proxy.get(path).cache().contains("; hit"), "{path}");
    }
}

/// RFC 9111 §4.4.
#[test]
fn unknown_methods_and_relative_references_invalidate() {
    let origin = Origin::start(|request| {
        if request.method() == "GET" {
            return reply(200, "Cache-Control: max-age=60", "x");
        }
        reply(200, "Location: ../b/./item?x=1#top\nContent-Location: https://h/other", "")
    });
    let proxy = Proxy::start(&origin);
    let paths = ["/a/list", "/b/item?x=1", "/other"];
    let hits = || paths.map(|path| proxy.get(path).cache().contains("; hit"));
    hits();
    assert_eq!(hits(), [true; 3]);
    proxy.ask("MADE-UP", "/a/list", "");
    assert_eq!(hits(), [false, false, true]);
}

/// RFC 9111 §4.1.
#[test]
fn values_that_mean_the_same_share_a_variant() {
    let origin = Origin::start(|_| {
        reply(200, "Cache-Control: max-age=60\nVary: Accept-Encoding, Accept-Language", "x")
    });
    let proxy = Proxy::start(&origin);
    proxy.get_with("/", "Accept-Encoding: gzip, br;q=0.5\nAccept-Language: en-GB, de");
    for same in [
        "Accept-Encoding: br;q=0.500,GZIP\nAccept-Language: de,EN-gb",
        "Accept-Encoding: gzip\nAccept-Encoding: br; q=0.5\nAccept-Language: de;q=1, en-gb",
    ] {
        assert!(proxy.get_with("/", same).cache().contains("; hit"), "{same}");
    }
    let other = proxy.get_with("/", "Accept-Encoding: gzip, br\nAccept-Language: de, en-GB");
    assert!(other.cache().contains("fwd=vary-miss"), "{}", other.cache());
}

/// RFC 9111 §4.1: an answer that leaves `Vary` out does not stand for all the others.
#[test]
fn an_answer_without_vary_displaces_no_variants() {
    let origin = Origin::start(|request| {
        let language = request.header("accept-language");
        let vary = if language.is_empty() { "" } else { "\nVary: Accept-Language" };
        reply(200, &format!("Cache-Control: max-age=60{vary}"), language)
    });
    let proxy = Proxy::start(&origin);
    proxy.get_with("/", "Accept-Language: de");
    proxy.get("/");
    let german = proxy.get_with("/", "Accept-Language: de");
    assert!(german.cache().contains("; hit") && german.text() == "de", "{}", german.cache());
    let default = proxy.get("/");
    assert!(default.cache().contains("; hit") && default.text().is_empty());
    let english = proxy.get_with("/", "Accept-Language: en");
    assert!(english.cache().contains("fwd=vary-miss") && english.text() == "en");
}

/// RFC 9111 §4.3.1, §4.3.4.
#[test]
fn a_304_names_the_variant_that_serves_a_new_request() {
    let origin = Origin::start(|request| {
        // Two languages of texts, however they are asked for.
        let german = request.header("accept-language").starts_with("de");
        let (tag, text) = if german { ("\"de\"", "guten tag") } else { ("\"en\"", "good day") };
        let headers = format!(
            "Cache-Control: max-age=60\nVary: Accept-Language\nETag: {tag}\nX-Asked: {}",
            request.header("accept-language")
        );
        let known = request.header("if-none-match").split(", ").any(|known| known == tag);
        reply(if known { 304 } else { 200 }, &headers, text)
    });
    let proxy = Proxy::start(&origin);
    let ask = |language: &str, more: &str| {
        proxy.get_with("/", &format!("Accept-Language: {language}\n{more}"))
    };
    ask("de", "");
    ask("en", "");
    let austrian = ask("de-AT", "");
    assert_eq!((austrian.status(), austrian.text().as_str()), (200, "guten tag"));
    assert!(
        austrian.cache().contains("fwd=vary-miss; fwd-status=304; stored"),
        "{}",
        austrian.cache()
    );
    assert_eq!(austrian.header("x-asked"), "de-AT");
    let sent = origin.last().header("if-none-match");
    assert!(sent.contains("\"de\"") && sent.contains("\"en\""), "{sent}");
    for (language, more, status) in
        [("de-AT", "", 200), ("de-AT", "If-None-Match: \"de\"", 304), ("de", "", 200)]
    {
        let hit = ask(language, more);
        assert!(hit.cache().contains("; hit"), "{language}: {}", hit.cache());
        assert_eq!((hit.status(), hit.header("x-asked").as_str()), (status, "de-AT"));
    }
    let swiss = ask("de-CH", "If-None-Match: \"de\"");
    assert_eq!(swiss.status(), 304, "the client has it");
    let british = ask("en-GB", "If-None-Match: \"de\"");
    assert_eq!(british.text(), "good day", "the client has another");
}

#[test]
fn a_cookie_of_one_variant_is_not_set_for_another() {
    let origin = Origin::start(|request| {
        let asks = request.header("cookie");
        let sets = match asks.as_str() {
            "" => "Set-Cookie: id=alice",
            "new" => "Set-Cookie: id=new",
            _ => "",
        };
        let status = if request.has("if-none-match") { 304 } else { 200 };
        let headers = format!("ETag: \"a\"\nVary: Cookie\nCache-Control: max-age=60\n{sets}");
        reply(status, &headers, if status == 200 { "x" } else { "" })
    });
    let proxy = Proxy::start(&origin);
    assert_eq!(proxy.get("/").header("set-cookie"), "id=alice");
    for asked in [2, 2] {
        let bob = proxy.get_with("/", "Cookie: id=bob");
        assert_eq!((bob.text().as_str(), bob.has("set-cookie")), ("x", false));
        assert_eq!(origin.count(), asked);
    }
    assert_eq!(proxy.get_with("/", "Cookie: new").header("set-cookie"), "id=new");
    let bob = proxy.get_with("/", "Cookie: id=bob");
    assert!(bob.cache().contains("; hit") && !bob.has("set-cookie"), "{bob:?}");
    assert_eq!(origin.count(), 3);
}

/// RFC 9111 §4.1: a 304 that newly varies leaves nothing behind that would match every request.
#[test]
fn a_304_that_changes_vary_is_not_kept() {
    let origin = Origin::start(|request| {
        let accept = request.header("accept");
        if request.has("if-none-match") {
            return reply(304, "ETag: \"a\"\nVary: Accept\nCache-Control: max-age=60", "");
        }
        reply(200, "ETag: \"a\"\nCache-Control: max-age=10", accept)
    });
    let proxy = Proxy::start(&origin);
    proxy.get_with("/", "Accept: a");
    proxy.pass_seconds(20);
    assert_eq!(proxy.get_with("/", "Accept: a").text(), "a");
    assert_eq!(proxy.get_with("/", "Accept: b").text(), "b");
}

/// RFC 9111 §3, §4.1: a 304 to a request of another variant changes what it is about. A variant
/// that it makes private, or that varies more now, is not served as it was before.
#[test]
fn a_304_about_variants_can_end_them() {
    let origin = Origin::start(|request| {
        let known = request.has("if-none-match");
        let said = match request.path() {
            "/private" if known => "Cache-Control: private, max-age=60\nVary: X-A",
            "/varies" if known => "Cache-Control: max-age=60\nVary: X-A, X-B",
            _ => "Cache-Control: max-age=60\nVary: X-A",
        };
        // Too large to be stored again for the request that brings the 304.
        let body = if known { String::new() } else { "x".repeat(300_000) };
        reply(if known { 304 } else { 200 }, &format!("ETag: \"a\"\n{said}"), body)
    });
    let proxy = Proxy::start(&origin);
    for path in ["/private", "/varies"] {
        let ask = |a: &str, b: &str| {
            let answer = proxy.get_with(path, &format!("X-A: {a}\nX-B: {b}"));
            assert_eq!(answer.body.len(), 300_000);
            answer.cache()
        };
        ask("1", "1");
        assert!(ask("1", "1").contains("; hit"), "{path}");
        let other = ask("2", "1");
        assert!(other.contains("fwd=vary-miss; fwd-status=304"), "{path}: {other}");
        let again = ask("1", "2");
        assert!(!again.contains("; hit"), "{path}: {again}");
    }
}

#[test]
fn a_coding_can_be_reduced_to_what_the_origin_has() {
    use damelo_http_rules::negotiation::Normaliser;
    let origin = Origin::start(|request| {
        let coding = request.header("accept-encoding");
        reply(200, "Cache-Control: max-age=60\nVary: Accept-Encoding", coding)
    });
    let proxy = Proxy::start_with(&origin, |config| {
        config.caching = caching(|caching| {
            let known = vec!["br".to_owned(), "gzip".to_owned()];
            caching.accept_encoding = Normaliser::BestOf(known);
        });
    });
    assert_eq!(proxy.get_with("/", "Accept-Encoding: gzip, deflate").text(), "gzip");
    let hit = proxy.get_with("/", "Accept-Encoding: deflate;q=1, gzip;q=0.1");
    assert!(hit.cache().contains("; hit") && hit.text() == "gzip", "{}", hit.cache());
    assert_eq!(proxy.get_with("/", "Accept-Encoding: zstd").text(), "");
}

/// RFC 9111 §2: what is in the key, by configuration; and RFC 9211 §2.8: the key can be shown.
#[test]
fn keys_by_configuration() {
    use damelo_http_rules::key::{KeyRules, QueryRule};
    let origin = Origin::start(|request| {
        reply(200, "Cache-Control: max-age=60", request.header("x-device"))
    });
    let proxy = Proxy::start_with(&origin, |config| {
        config.caching = caching(|caching| {
            caching.key = KeyRules {
                query: QueryRule::Except(vec!["utm_*".to_owned()]),
                sort_query: true,
                headers: vec!["x-device".parse().unwrap()],
                cookies: vec!["lang".to_owned()],
            };
            caching.show_key = true;
        });
    });
    let with = |headers: &str| format!("X-Device: phone\n{headers}");
    let miss = proxy.get_with("/p?b=1&a=2&utm_x=9", &with("Cookie: lang=de"));
    assert!(miss.cache().contains("/p?a=2&b=1\""), "{}", miss.cache());
    let same = with("Cookie: other=1; lang=de");
    assert!(proxy.get_with("/p?a=2&b=1", &same).cache().contains("; hit"));
    for (path, headers) in [
        ("/p?a=2&b=1", with("Cookie: lang=en")),
        ("/p?a=2&b=1", "X-Device: desk\nCookie: lang=de".to_owned()),
        ("/p?a=2", same.clone()),
    ] {
        let other = proxy.get_with(path, &headers);
        assert!(other.cache().contains("-miss"), "{path} {headers}: {}", other.cache());
    }
    proxy.ask_with_body("POST", "/p?b=1&a=2", "", b"x");
    let gone = proxy.get_with("/p?a=2&b=1", &same);
    assert!(gone.cache().contains("-miss"), "a change reaches all: {}", gone.cache());
}

/// What was stored for all is for nobody once cookies tell clients apart.
#[test]
fn what_was_stored_before_keys_had_cookies_is_missed() {
    let origin =
        Origin::start(|request| reply(200, "Cache-Control: max-age=600", request.header("cookie")));
    let home = Home::new();
    let to = || OriginTarget::Url(format!("http://{}", origin.address));
    let before = Proxy::start_in(&home, to(), |_| {});
    assert_eq!(before.get_with("/", "Cookie: lang=de").text(), "lang=de");
    before.stop();
    let after = Proxy::start_in(&home, to(), |config| {
        config.caching.key.cookies = vec!["lang".to_owned()];
    });
    for expected in ["stored", "; hit"] {
        let answer = after.get_with("/", "Cookie: lang=en");
        assert_eq!(answer.text(), "lang=en");
        assert!(answer.cache().contains(expected), "{}", answer.cache());
    }
    assert_eq!(after.get_with("/", "Cookie: lang=de").text(), "lang=de");
    assert_eq!(origin.count(), 3);
}

/// RFC 9213 §2.2.
#[test]
fn targeted_cache_control_goes_first_and_passes_on() {
    let origin = Origin::start(|_| {
        reply(200, "CDN-Cache-Control: max-age=60\nCache-Control: no-store", "x")
    });
    let proxy = Proxy::start(&origin);
    proxy.get("/");
    let hit = proxy.get("/");
    assert!(hit.cache().contains("; hit"), "{}", hit.cache());
    assert_eq!(hit.header("cache-control"), "no-store", "for the caches behind us");
    assert_eq!(hit.header("cdn-cache-control"), "max-age=60");
}

/// RFC 9111 §3: a status that nobody knows, with explicit freshness.
#[test]
fn unknown_codes_are_stored_with_explicit_freshness() {
    let origin = Origin::start(|request| {
        let code = request.path()[1..4].parse().unwrap();
        let control = if request.path().ends_with("must") { ", must-understand" } else { "" };
        reply(code, &format!("Cache-Control: max-age=60{control}"), "x")
    });
    let proxy = Proxy::start(&origin);
    for (path, stored) in
        [("/299", true), ("/499", true), ("/599", true), ("/200must", true), ("/599must", false)]
    {
        proxy.get(path);
        assert_eq!(proxy.get(path).cache().contains("; hit"), stored, "{path}");
    }
}

/// RFC 9110 §15: what is no status counts as an error of the server.
#[test]
fn numbers_that_are_no_status_are_passed_on_and_not_stored() {
    let origin = Origin::start(|request| match request.has("if-none-match") {
        true => reply(700, "Cache-Control: max-age=60", "no"),
        false => reply(
            request.path()[1..4].parse().unwrap(),
            "Cache-Control: max-age=60\nETag: \"a\"",
            "x",
        ),
    });
    let proxy = Proxy::start(&origin);
    for code in [600, 999] {
        for _ in 0..2 {
            let answer = proxy.get(&format!("/{code}"));
            assert_eq!((answer.status(), &*answer.text()), (code, "x"));
            assert!(answer.cache().contains("detail=status"), "{}", answer.cache());
        }
    }
    proxy.get("/200");
    assert_eq!(proxy.get_with("/200", "Cache-Control: no-cache").status(), 700);
    assert!(proxy.get("/200").cache().contains("; hit"), "what is stored is not outdated by it");
}

/// Edge Architecture Specification (W3C Note, 2001) §2.2, §2.3.
#[test]
fn surrogate_control_is_obeyed_and_announced() {
    let origin = Origin::start(|_| {
        reply(200, "Surrogate-Control: max-age=60;damelo\nCache-Control: no-store", "x")
    });
    let proxy = Proxy::start(&origin);
    proxy.get_with("/", "Surrogate-Capability: edge=\"Surrogate/1.0\"");
    let announced = origin.last().header("surrogate-capability");
    assert_eq!(announced, "edge=\"Surrogate/1.0\", damelo=\"Surrogate/1.0\"");
    let hit = proxy.get("/");
    assert!(hit.cache().contains("; hit"), "{}", hit.cache());
    proxy.pass_seconds(61);
    assert!(!proxy.get("/").cache().contains("; hit"), "its lifetime is over");
}

/// RFC 9110 §9.3.3: a POST whose answer represents the target, with a lifetime of its own.
#[test]
fn the_answer_to_a_post_may_serve_later_gets() {
    let origin = Origin::start(|request| {
        let headers = match request.path() {
            "/kept" => "Content-Location: /kept\nCache-Control: max-age=60",
            "/other" => "Content-Location: /kept\nCache-Control: max-age=60",
            "/brief" => "Content-Location: /brief\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT",
            "/private" => "Content-Location: /private\nCache-Control: private, max-age=60",
            _ => "Cache-Control: max-age=60",
        };
        reply(200, headers, format!("after {}", request.method()))
    });
    let proxy = Proxy::start(&origin);
    for path in ["/kept", "/other", "/brief", "/private", "/unnamed"] {
        proxy.get(path);
        let posted = proxy.ask_with_body("POST", path, "If-None-Match: *", b"new");
        assert_eq!((posted.status(), posted.text()), (200, "after POST".to_owned()), "{path}");
        assert!(posted.cache().contains("fwd=method"), "{path}: {}", posted.cache());
        let expected = if path == "/kept" { "after POST" } else { "after GET" };
        assert_eq!(proxy.get(path).text(), expected, "{path}");
    }
    proxy.ask_with_body("POST", "/kept", "", b"new");
    proxy.ask_with_body("PUT", "/kept", "", b"newer");
    assert_eq!(proxy.get("/kept").text(), "after GET", "a later change counts");
}

/// What the journal says is forgotten where a crash comes before the new fields are written. It
/// says nothing where the old are right, if older; or else a page that is validated all the time
/// would be gone after each crash.
#[test]
fn a_validation_is_journalled_only_if_what_was_stored_would_be_wrong() {
    let origin = Origin::start(|request| {
        let status = if request.has("if-none-match") { 304 } else { 200 };
        let control = request.header("x-control").replace('+', ", ");
        let fields =
            format!("Cache-Control: {control}\nETag: \"a\"\nX-Id: {}", request.header("x-id"));
        let fields = format!("{fields}\nSurrogate-Key: {}", request.header("x-key"));
        reply(status, &fields, if status == 200 { "body" } else { "" })
    });
    let proxy = Proxy::start(&origin);
    let get = |path: &str, id: u32, control: &str| {
        let (control, key) = control.split_once(' ').unwrap_or((control, "one"));
        let asks = format!("X-Control: {control}\nX-Key: {key}\nX-Id: {id}");
        let answer = proxy.get_with(path, &asks);
        assert_eq!((answer.status(), answer.header("x-id")), (200, id.to_string()));
    };
    let journalled_by = |path: &str, id: u32, control: &str| {
        let before = proxy.metric("damelo_journal_records_total");
        proxy.pass_seconds(10);
        get(path, id, control);
        proxy.metric("damelo_journal_records_total") - before
    };
    // Each in a resource of its own: what waits to be written may be journalled for already.
    for (path, old, new, journalled) in [
        ("/same", "max-age=10", "max-age=10", 0),
        ("/strict", "max-age=10", "max-age=10+must-revalidate", 1),
        ("/asked", "max-age=10", "no-cache", 1),
        ("/freed", "no-cache", "max-age=10", 0),
        ("/named", "max-age=10", "max-age=10 two", 1),
    ] {
        get(path, 0, old);
        for id in 1..5 {
            assert_eq!(journalled_by(path, id, old), 0, "{path} {id}");
        }
        assert_eq!(journalled_by(path, 5, new), journalled, "{path}");
        for id in 6..10 {
            assert_eq!(journalled_by(path, id, new), 0, "{path} {id}");
        }
    }
    assert_eq!(origin.count(), 50);
}

/// What every request asks the origin about may be asked for many times a second.
#[test]
fn a_validation_that_says_the_same_within_a_second_is_not_written() {
    let origin = Origin::start(|request| {
        let status = if request.has("if-none-match") { 304 } else { 200 };
        let count =
            if request.path() == "/counted" { request.header("x-count") } else { "1".into() };
        let fields = format!("Cache-Control: no-cache\nETag: \"a\"\nX-Count: {count}");
        reply(status, &fields, if status == 200 { "body" } else { "" })
    });
    let proxy = Proxy::start(&origin);
    let written_by = |path: &str, count: u32| {
        let before = proxy.metric("damelo_replaced_total");
        let answer = proxy.get_with(path, &format!("X-Count: {count}"));
        assert_eq!((answer.status(), answer.text().as_str()), (200, "body"));
        assert!(answer.cache().contains("fwd-status=304; stored"), "{}", answer.cache());
        proxy.metric("damelo_replaced_total") - before
    };
    proxy.get("/");
    proxy.get_with("/counted", "X-Count: 1");
    assert_eq!([written_by("/", 1), written_by("/", 2)], [0, 0]);
    proxy.pass_seconds(1);
    assert_eq!([written_by("/", 3), written_by("/", 4)], [1, 0]);
    assert_eq!([written_by("/counted", 5), written_by("/counted", 5)], [1, 0], "it says more");
    assert_eq!(written_by("/counted", 6), 1);
    assert_eq!(proxy.get_with("/counted", "X-Count: 7").header("x-count"), "7");
    assert_eq!(origin.count(), 10, "each was asked about");
}
