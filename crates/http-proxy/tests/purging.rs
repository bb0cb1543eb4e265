//! Purging over real sockets: by method, by admin API, hard and soft, racing with fills, and after
//! a restart.

#[path = "purging/groups.rs"]
mod groups;
mod support;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use damelo::{ByteSize, Config, Store};
use damelo_http_proxy::{OriginTarget, ProxyConfig, Settings, ask_admin};
use damelo_store_sim::{CrashKind, SimClock, SimDisk, SimOptions, SimWorld};
use serde_json::{Value, json};
use support::{
    Gate, Home, Message, Origin, Proxy, Reply, ask_at, eventually, read_message, read_some, reply,
    send_to,
};

/// Fresh for an hour, tagged by its path, varying where the path says so.
fn answer(request: &Message) -> Reply {
    if request.has("if-none-match") {
        return reply(304, "cache-control: max-age=3600\netag: \"1\"", "");
    }
    let tag = request.path().trim_start_matches('/').split('/').next().unwrap_or_default();
    let mut headers = format!("cache-control: max-age=3600\netag: \"1\"\nsurrogate-key: all {tag}");
    if request.path().contains("vary") {
        headers.push_str("\nvary: x-v");
    }
    reply(200, &headers, "body")
}

fn allow(config: &mut ProxyConfig) {
    config.admin.from = Some(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
    config.purge.method = true;
}

fn start(origin: &Origin) -> Proxy {
    Proxy::start_with(origin, allow)
}

fn is_hit(proxy: &Proxy, path: &str) -> bool {
    proxy.get(path).cache().contains("; hit")
}

fn fill(proxy: &Proxy, paths: &[&str]) {
    for path in paths {
        proxy.get(path);
        assert!(is_hit(proxy, path), "{path}");
    }
}

/// By the admin API; the answer.
fn purge(proxy: &Proxy, order: &Value) -> Value {
    let admin = proxy.info.admin.expect("an admin address");
    let answer = ask_admin(admin, "/purge", None, Some(&order.to_string())).expect("purged");
    serde_json::from_str(&answer).expect("json")
}

#[test]
fn one_url_with_all_its_variants_goes_and_is_counted() {
    let origin = Origin::start(answer);
    let proxy = start(&origin);
    fill(&proxy, &["/a", "/b"]);
    for v in ["1", "2", "3"] {
        proxy.get_with("/vary", &format!("X-V: {v}"));
    }
    let done = proxy.ask("PURGE", "/a", "");
    assert_eq!((done.status(), done.header("content-type").as_str()), (200, "application/json"));
    let done: Value = serde_json::from_slice(&done.body).expect("json");
    assert_eq!(done, json!({ "soft": false, "urls": 2, "removed": 1 }), "by http and https");
    assert_eq!(purge(&proxy, &json!({ "url": "http://a/vary" }))["removed"], 3);
    assert_eq!(purge(&proxy, &json!({ "url": "http://a/nothing" }))["removed"], 0);
    assert!(!is_hit(&proxy, "/a"));
    assert!(is_hit(&proxy, "/b"));
    for v in ["1", "2", "3"] {
        let answer = proxy.get_with("/vary", &format!("X-V: {v}"));
        assert!(!answer.cache().contains("; hit"), "variant {v}");
    }
    assert!(origin.asked().iter().all(|request| request.method() != "PURGE"));
}

/// The marker that lists the variants is covered, too: those stored afterwards get a new one.
#[test]
fn variants_are_hit_again_after_any_purge() {
    let origin = Origin::start(answer);
    let proxy = start(&origin);
    let is_hit = |v: &str| {
        let answer = proxy.get_with("/vary/1", &format!("X-V: {v}"));
        assert_eq!(answer.text(), "body");
        answer.cache().contains("; hit")
    };
    is_hit("1");
    for order in [
        json!({ "url": "http://a/vary/1" }),
        json!({ "tag": "vary" }),
        json!({ "group": "all" }),
        json!({ "prefix": "http://a/vary/" }),
        json!({ "host": "a" }),
        json!({ "all": true }),
    ] {
        purge(&proxy, &order);
        let hits = ["1", "1", "2", "1", "2"].map(is_hit);
        assert_eq!(hits, [false, true, false, true, true], "after {order}");
    }
}

/// That a purge of something else left a response alone is noted, for hits that follow.
#[test]
fn what_one_purge_left_alone_the_next_one_takes() {
    let origin = Origin::start(answer);
    let proxy = Proxy::start_with(&origin, |config| {
        allow(config);
        config.workers = 1;
    });
    for order in [
        json!({ "url": "http://a/news/1" }),
        json!({ "tag": "news" }),
        json!({ "group": "news" }),
        json!({ "prefix": "http://a/ne" }),
        json!({ "all": true }),
        json!({ "tag": "news", "soft": true }),
    ] {
        proxy.get("/news/1");
        for _ in 0..3 {
            assert!(is_hit(&proxy, "/news/1"));
            purge(&proxy, &json!({ "tag": "shop" }));
            assert!([(); 3].iter().all(|()| is_hit(&proxy, "/news/1")));
        }
        purge(&proxy, &order);
        assert!(!is_hit(&proxy, "/news/1"), "after {order}");
    }
}

#[test]
fn tags_prefixes_hosts_and_everything_are_marks() {
    let origin = Origin::start(answer);
    let proxy = start(&origin);
    let paths = ["/news/1", "/news/2", "/shop/1", "/shop/deep/1"];
    for (order, gone) in [
        (json!({ "tag": "news" }), [true, true, false, false]),
        (json!({ "tag": ["nothing", "shop"] }), [false, false, true, true]),
        (json!({ "prefix": "http://a/shop/d" }), [false, false, false, true]),
        (json!({ "prefix": "http://a/shop/" }), [false, false, true, true]),
        (json!({ "host": "a" }), [true; 4]),
        (json!({ "host": "other.example" }), [false; 4]),
        (json!({ "group": "news" }), [true, true, false, false]),
        (json!({ "all": true }), [true; 4]),
    ] {
        fill(&proxy, &paths);
        let done = purge(&proxy, &order);
        assert!(done["marks"].as_u64() >= Some(1) && done["generation"].is_u64(), "{done}");
        for (path, gone) in paths.iter().zip(gone) {
            assert_eq!(is_hit(&proxy, path), !gone, "{path} after {order}");
        }
    }
}

/// Keys do not begin as the URLs do that clients ask for: all of the path is covered.
#[test]
fn a_prefix_reaches_queries_that_the_key_changes() {
    let origin = Origin::start(answer);
    let proxy = Proxy::start_with(&origin, |config| {
        allow(config);
        config.caching.key.sort_query = true;
    });
    let paths = ["/q?b=1&a=2", "/q", "/other?b=1"];
    fill(&proxy, &paths);
    purge(&proxy, &json!({ "prefix": "http://a/q?b=1" }));
    assert_eq!(paths.map(|path| is_hit(&proxy, path)), [false, false, true]);
}

#[test]
fn a_host_without_a_port_is_purged_on_every_port() {
    let origin = Origin::start(answer);
    let proxy = start(&origin);
    let hosts = ["a.test", "a.test:8443", "a.test:80", "a.test.org", "[::1]:8081"];
    let hit = |host: &str| {
        let line = format!("Host: {host}");
        proxy.get_with("/x", &line).cache().contains("; hit")
    };
    for (order, marks, gone) in [
        ("a.test", 4, [true, true, true, false, false]),
        ("A.test:8443", 2, [false, true, false, false, false]),
        ("a.test:80", 2, [true, false, true, false, false]),
        ("[::1]", 4, [false, false, false, false, true]),
    ] {
        for host in hosts {
            hit(host);
            assert!(hit(host), "{host}");
        }
        let done = purge(&proxy, &json!({ "host": order }));
        assert_eq!(done["marks"], marks, "{order}");
        // `a.test` and `a.test:80` are one: whichever is asked for first fills it.
        let misses = hosts.map(|host| (host != "a.test:80" || !gone[0]) && !hit(host));
        let expected = [gone[0], gone[1], gone[2] && !gone[0], gone[3], gone[4]];
        assert_eq!(misses, expected, "{order}");
    }
}

#[test]
fn what_is_no_host_is_refused() {
    let origin = Origin::start(answer);
    let proxy = start(&origin);
    let admin = proxy.info.admin.expect("an admin address");
    for wrong in ["http://a.test", "a.test/news", "a@b", "a b", "::1"] {
        let order = json!({ "host": wrong }).to_string();
        let answer = ask_admin(admin, "/purge", None, Some(&order));
        assert!(answer.is_err_and(|error| error.to_string().contains("not a host")), "{wrong}");
    }
}

#[test]
fn the_method_takes_tags_and_scopes_from_headers() {
    let origin = Origin::start(answer);
    let proxy = start(&origin);
    fill(&proxy, &["/news/1", "/shop/1"]);
    assert_eq!(proxy.ask("PURGE", "/", "Surrogate-Key: news").status(), 200);
    assert!(!is_hit(&proxy, "/news/1") && is_hit(&proxy, "/shop/1"));
    fill(&proxy, &["/news/1"]);
    assert_eq!(proxy.ask("PURGE", "/sh", "Purge-Scope: prefix").status(), 200);
    assert!(is_hit(&proxy, "/news/1") && !is_hit(&proxy, "/shop/1"));
    assert_eq!(proxy.ask("PURGE", "/", "Purge-Scope: planet").status(), 400);
}

/// What WordPress, Magento and Drupal send to other caches does here what they mean by it.
#[test]
fn orders_of_common_plugins_are_understood_or_refused() {
    let origin = Origin::start(|request| {
        let tags = match request.path() {
            "/p/1" => "x-magento-tags: cat_p_1,store",
            "/p/2" => "x-magento-tags: cat_p_2,store",
            "/n/1" => "cache-tags: node:1 node_list",
            _ => "x-site-tags: one two",
        };
        reply(200, &format!("cache-control: max-age=3600\n{tags}"), "body")
    });
    let proxy = Proxy::start_with(&origin, |config| {
        allow(config);
        config.purge.methods = ["PURGE", "BAN"].map(|name| name.parse().expect("a method")).into();
        config.purge.tag_headers = vec!["x-site-tags".parse().expect("a name")];
    });
    let paths = ["/p/1", "/p/2", "/n/1", "/s/1"];
    for (method, target, headers, gone) in [
        ("PURGE", "/p/.*", "X-Purge-Method: regex", [true, true, false, false]),
        ("PURGE", "/.*", "X-Purge-Method: regex", [true; 4]),
        ("PURGE", "/p/1", "X-Purge-Method: default", [true, false, false, false]),
        ("PURGE", "/", "X-Magento-Tags-Pattern: ((^|,)cat_p_1(,|$))", [true, false, false, false]),
        ("PURGE", "/", "X-Magento-Tags-Pattern: .*", [true; 4]),
        ("BAN", "/", "Cache-Tags: node:1|node:2", [false, false, true, false]),
        ("BAN", "/s/1", "", [false, false, false, true]),
        ("PURGE", "/", "X-Site-Tags: two", [false, false, false, true]),
    ] {
        fill(&proxy, &paths);
        let done = proxy.ask(method, target, headers);
        assert_eq!(done.status(), 200, "{headers}: {}", done.text());
        let misses = paths.map(|path| !is_hit(&proxy, path));
        assert_eq!(misses, gone, "{method} {target} {headers}");
    }
    let asked = origin.count();
    for (target, headers, words) in [
        ("/(a|b)", "X-Purge-Method: regex", "is an expression"),
        ("/.*", "", "the target is a pattern"),
        ("/", "X-Purge-Method: wild", "say regex or default"),
        ("/", "X-Magento-Tags-Pattern: cat_.*", "is not understood"),
        ("/", "X-Url: /p/.*\nX-Content-Type: .*", "is not understood"),
    ] {
        let refused = proxy.ask("PURGE", target, headers);
        assert_eq!(refused.status(), 400, "{target} {headers}");
        assert!(refused.text().contains(words), "{}", refused.text());
    }
    assert_eq!(paths.map(|path| is_hit(&proxy, path))[..3], [true; 3]);
    assert_eq!(origin.count(), asked, "none is passed on, or purges");
}

/// Fields that are said to have tags by a reload count for what comes from then on.
#[test]
fn fields_with_tags_are_named_while_it_runs() {
    let origin = Origin::start(|_| reply(200, "cache-control: max-age=60\nx-t: one", "body"));
    let proxy = start(&origin);
    fill(&proxy, &["/a"]);
    purge(&proxy, &json!({ "tag": "one" }));
    assert!(is_hit(&proxy, "/a"));
    let text = "[purge]\nmethod = true\ntag_headers = [\"X-T\"]\nmethods = [\"BAN\"]\n";
    let settings = Settings::parse(text).expect("good");
    proxy.info.control.reload(settings.proxy).expect("reloaded");
    eventually("it counts", || proxy.ask("BAN", "/", "X-T: other").text().contains("marks"));
    purge(&proxy, &json!({ "all": true }));
    fill(&proxy, &["/a"]);
    purge(&proxy, &json!({ "tag": "one" }));
    assert!(!is_hit(&proxy, "/a"));
    for bad in ["GET", "get", "a b"] {
        let text = format!("[purge]\nmethods = [\"{bad}\"]\n");
        assert!(Settings::parse(&text).is_err(), "{bad}");
    }
}

/// An open store on simulated disks.
fn on_disks(disks: &[SimDisk]) -> (SimWorld, Store) {
    let world = SimWorld::start(disks, &SimOptions::new(1), Arc::new(SimClock::new()));
    let mut config = Config::new("sim", ByteSize::new(64 << 20));
    config.memory = ByteSize::new(8 << 20);
    let store = Store::open_on(config, world.devices(), world.clock()).expect("a store");
    store.wait_recovered();
    (world, store)
}

#[test]
fn a_purge_of_a_url_holds_after_a_loss_of_power() {
    let origin = Origin::start(answer);
    let to = || OriginTarget::Url(format!("http://{}", origin.address));
    let (world, store) = on_disks(&[SimDisk::blank(64 << 20)]);
    let proxy = Proxy::start_on(store.clone(), to(), allow);
    fill(&proxy, &["/a", "/b"]);
    store.sync().expect("synced");
    assert_eq!(proxy.ask("PURGE", "/a", "").status(), 200);
    let images: Vec<_> = (0..4).map(|seed| world.crash(CrashKind::Power, seed)).collect();
    proxy.stop();
    for disks in images {
        let (_world, store) = on_disks(&disks);
        let proxy = Proxy::start_on(store, to(), allow);
        let admin = proxy.info.admin.expect("an admin address");
        eventually("it is ready", || ask_at(admin, "GET", "/readyz", "", b"").status() == 200);
        assert!(is_hit(&proxy, "/b"), "what was stored is there");
        assert!(!is_hit(&proxy, "/a"));
    }
}

#[test]
fn a_soft_purge_makes_stale_and_a_validation_makes_fresh_again() {
    let origin = Origin::start(answer);
    let proxy = start(&origin);
    fill(&proxy, &["/news/1", "/shop/1"]);
    purge(&proxy, &json!({ "tag": "news", "soft": true }));
    let asked = origin.count();
    let answer = proxy.get("/news/1");
    assert!(answer.cache().contains("fwd=stale; fwd-status=304; stored"), "{}", answer.cache());
    assert_eq!(answer.text(), "body");
    assert!(origin.last().has("if-none-match"));
    assert!(is_hit(&proxy, "/news/1") && is_hit(&proxy, "/shop/1"));
    assert_eq!(origin.count(), asked + 1);
    assert_eq!(proxy.ask("PURGE", "/shop/1", "Soft-Purge: perhaps").status(), 400);
    assert!(is_hit(&proxy, "/shop/1"), "what was not understood purges nothing");
    let done = proxy.ask("PURGE", "/shop/1", "Soft-Purge: 1");
    assert!(done.text().contains("marks"), "{done:?}");
    assert!(proxy.get("/shop/1").cache().contains("fwd=stale"));
}

#[test]
fn a_fill_that_began_before_a_purge_is_covered_by_it() {
    let origin = Origin::start(|request| {
        let mut slow = answer(request);
        slow.body = vec![1; 200_000];
        slow.pace = Duration::from_millis(60);
        slow
    });
    let proxy = start(&origin);
    for order in
        [json!({ "tag": "all" }), json!({ "url": "http://a/news/1" }), json!({ "all": true })]
    {
        let asked = origin.count();
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(proxy.get("/news/1").complete));
            eventually("the fill is under way", || origin.count() > asked);
            purge(&proxy, &order);
        });
        assert!(!is_hit(&proxy, "/news/1"), "{order}");
        assert!(is_hit(&proxy, "/news/1"), "what was fetched after it stays: {order}");
        purge(&proxy, &json!({ "all": true }));
    }
}

#[test]
fn purges_hold_after_a_restart() {
    let origin = Origin::start(answer);
    let home = Home::new();
    let to = || OriginTarget::Url(format!("http://{}", origin.address));
    let proxy = Proxy::start_in(&home, to(), allow);
    fill(&proxy, &["/news/1", "/shop/1"]);
    purge(&proxy, &json!({ "tag": "news" }));
    proxy.stop();
    let proxy = Proxy::start_in(&home, to(), allow);
    assert!(!is_hit(&proxy, "/news/1") && is_hit(&proxy, "/shop/1"));
    purge(&proxy, &json!({ "all": true }));
    proxy.stop();
    let proxy = Proxy::start_in(&home, to(), allow);
    assert!(!is_hit(&proxy, "/news/1") && !is_hit(&proxy, "/shop/1"));
    assert!(is_hit(&proxy, "/news/1") && is_hit(&proxy, "/shop/1"));
}

#[test]
fn who_may_not_purge_changes_nothing() {
    let origin = Origin::start(answer);
    let proxy = Proxy::start_with(&origin, |config| {
        allow(config);
        config.purge.token = Some("secret".to_owned());
        config.admin.token = Some("other".to_owned());
    });
    fill(&proxy, &["/a"]);
    let admin = proxy.info.admin.expect("an admin address");
    for shown in ["", "Authorization: Bearer other"] {
        let by_method = proxy.ask("PURGE", "/a", shown);
        let by_admin = ask_at(admin, "GET", "/top", &shown.replace("other", "secret"), b"");
        for refused in [by_method, by_admin] {
            let challenge = refused.header("www-authenticate");
            assert_eq!((refused.status(), challenge.as_str()), (401, "Bearer realm=\"damelo\""));
        }
    }
    for (token, words) in [(None, "token is wanted"), (Some("secret"), "is not the admin token")] {
        let refused = ask_admin(admin, "/purge", token, Some("{\"all\":true}"));
        let refused = refused.expect_err("without the token").to_string();
        assert!(refused.contains(words), "{refused}");
    }
    let forged = ask_at(admin, "POST", "/purge", "Authorization: Bearer other", b"{\"all\":true}");
    assert_eq!(forged.status(), 415, "a form of another site cannot say that it is JSON");
    assert_eq!(ask_at(admin, "GET", "/metrics", "", b"").status(), 200);
    assert!(is_hit(&proxy, "/a"));
    assert!(ask_admin(admin, "/purge", Some("other"), Some("{\"all\":1}")).is_err());
    assert!(ask_admin(admin, "/purge", Some("other"), Some("{\"all\":true}")).is_ok());
    assert_eq!(proxy.ask("PURGE", "/a", "Authorization: Bearer secret").status(), 200);
    let nets =
        Settings::parse("[purge]\nnetworks = [\"10.0.0.0/8\"]\nmethod = true\n").expect("good");
    proxy.info.control.reload(nets.proxy).expect("reloaded");
    eventually("the networks count", || proxy.ask("PURGE", "/a", "").status() == 403);
}

#[test]
fn purge_is_passed_on_unless_it_is_switched_on() {
    let origin = Origin::start(answer);
    let proxy = Proxy::start(&origin);
    assert_eq!(proxy.ask("PURGE", "/a", "").status(), 200);
    assert_eq!(origin.last().method(), "PURGE");
}

#[test]
fn keys_that_rules_extended_are_reached_by_a_purge_of_their_url() {
    let origin = Origin::start(answer);
    let rules = Settings::parse("[[rule]]\nkey_headers = [\"X-V\"]\n").expect("good").proxy.ruleset;
    let proxy = Proxy::start_with(&origin, |config| {
        allow(config);
        config.ruleset = rules.clone();
    });
    let hit = |v: &str| proxy.get_with("/a", &format!("X-V: {v}")).cache().contains("; hit");
    for order in ["purge", "post"] {
        for v in ["1", "2"] {
            hit(v);
            assert!(hit(v));
        }
        match order {
            "purge" => drop(purge(&proxy, &json!({ "url": "http://a/a" }))),
            _ => assert_eq!(proxy.ask_with_body("POST", "/a", "", b"x").status(), 200),
        }
        assert!(!hit("1") && !hit("2"), "{order}");
    }
}

/// Marks are for what keys do not reach. There is room for few, and posts are many.
#[test]
fn a_post_marks_nothing_where_its_url_alone_decides_on_the_key() {
    let origin = Origin::start(|request| match request.method() {
        "POST" => reply(201, "Location: /app/made", ""),
        _ => answer(request),
    });
    let text = format!(
        "[[rule]]\nprefix = \"/app\"\nadd_prefix = \"/inner\"\nto = [\"{0}\"]\n\
         [[rule]]\nprefix = \"/app\"\nmethod = [\"POST\"]\nto = [\"{0}/\"]\n\
         [[rule]]\nprefix = \"/users\"\nkey_headers = [\"X-V\"]\n",
        format_args!("http://{}", origin.address)
    );
    let rules = Settings::parse(&text).expect("good").proxy.ruleset;
    let proxy = Proxy::start_with(&origin, |config| {
        allow(config);
        config.ruleset = rules.clone();
    });
    let hit = |path: &str| proxy.get(path).cache().contains("; hit");
    for path in ["/app/a", "/app/made", "/app/other", "/users/a"] {
        hit(path);
        assert!(hit(path), "{path}");
    }
    assert_eq!(proxy.ask_with_body("POST", "/app/a", "", b"x").status(), 201);
    assert!(!hit("/app/a") && !hit("/app/made") && hit("/app/other"));
    assert_eq!(proxy.metric("damelo_proxy_purge_marks"), 0);
    proxy.ask_with_body("POST", "/users/a", "", b"x");
    assert!(!hit("/users/a"), "by its mark");
    assert_eq!(proxy.metric("damelo_proxy_purge_marks"), 1);
}

/// Two hosts may be one to the key, and not to the rules.
#[test]
fn a_post_reaches_what_another_host_has_under_the_same_url() {
    let origin = Origin::start(answer);
    let rules = "[[rule]]\nhost = \"m.a.test\"\nkey_cookies = [\"c\"]\n";
    let rules = Settings::parse(rules).expect("good").proxy.ruleset;
    let proxy = Proxy::start_with(&origin, |config| {
        config.ruleset = rules.clone();
        config.forwarded.x_forwarded = false;
    });
    let hit = || proxy.get_with("/a", "Host: m.a.test\nCookie: c=1").cache().contains("; hit");
    hit();
    assert!(hit());
    assert_eq!(proxy.ask_with_body("POST", "/a", "Host: a.test", b"x").status(), 200);
    assert!(!hit());
}

/// Rules go and come back, as when a change of them is taken back; what they stored has stayed.
#[test]
fn keys_that_rules_extended_before_are_reached_by_a_purge_of_their_url() {
    let origin = Origin::start(answer);
    let proxy = start(&origin);
    let use_rules = |text: &str| {
        let config = Settings::parse(text).expect("good").proxy;
        proxy.info.control.reload(config).expect("reloaded");
    };
    let hit = || proxy.get_with("/a", "X-V: 1").cache().contains("; hit");
    let rule = "[[rule]]\nkey_headers = [\"X-V\"]\n";
    for order in ["purge", "post"] {
        use_rules(rule);
        eventually("it is stored", hit);
        use_rules("");
        match order {
            "purge" => drop(purge(&proxy, &json!({ "url": "http://a/a" }))),
            _ => assert_eq!(proxy.ask_with_body("POST", "/a", "", b"x").status(), 200),
        }
        use_rules(rule);
        let asked = origin.count();
        assert!(!hit(), "{order}");
        assert_eq!(origin.count(), asked + 1, "{order}");
    }
}

#[test]
fn a_page_from_disk_brings_its_group_into_memory() {
    let origin = Origin::start(|request| match request.path() {
        "/page" => reply(200, "cache-control: max-age=60\ncontent-type: text/html", "<html>"),
        _ => reply(200, "cache-control: max-age=60\ncontent-type: image/png", vec![9; 1000]),
    });
    let proxy = Proxy::start_with(&origin, |config| config.groups.prefetch = true);
    let referer = "Referer: http://a/page";
    let ask = |path: &str| proxy.get_with(path, referer);
    ask("/page");
    for n in 0..5 {
        ask(&format!("/{n}.png"));
    }
    proxy.store.sync().expect("synced");
    proxy.store.drop_memory();
    assert!(ask("/page").cache().contains("; hit"));
    eventually("the images are in memory", || {
        let stats = proxy.store.stats();
        stats.prefetched >= 5
    });
    let before = proxy.store.stats();
    for n in 0..5 {
        assert!(ask(&format!("/{n}.png")).cache().contains("; hit"));
    }
    let after = proxy.store.stats();
    assert_eq!(after.hits_disk, before.hits_disk, "none of them took a disk read");
}

/// Ten digits of which it sends the range that is asked for, which is one as `bytes=A-B`.
fn digits(request: &Message) -> Reply {
    let headers = "cache-control: max-age=3600\netag: \"1\"\nsurrogate-key: d";
    if request.has("if-none-match") {
        return reply(304, headers, "");
    }
    let range = request.header("range");
    let bounds = range.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
    let Some((first, last)) = bounds else { return reply(200, headers, "0123456789") };
    let number = |text: &str| text.parse::<usize>().expect("a number");
    let (first, last) = (number(first), number(last).min(9));
    let headers = format!("{headers}\ncontent-range: bytes {first}-{last}/10");
    reply(206, &headers, &"0123456789"[first..=last])
}

/// Parts and slices are known to purges like anything else.
#[test]
fn parts_and_slices_are_purged_too() {
    for slice_bytes in [0, 4] {
        let origin = Origin::start(digits);
        let proxy = Proxy::start_with(&origin, |config| {
            allow(config);
            config.caching.slice_bytes = slice_bytes;
        });
        let is_hit = || {
            let answer = proxy.get_with("/d", "Range: bytes=4-5");
            assert_eq!((answer.status(), answer.text().as_str()), (206, "45"));
            answer.cache().contains("; hit")
        };
        assert!(!is_hit());
        assert!(is_hit(), "{slice_bytes}");
        for order in [
            json!({ "url": "http://a/d" }),
            json!({ "tag": "d" }),
            json!({ "prefix": "http://a/" }),
            json!({ "all": true }),
            json!({ "url": "http://a/d", "soft": true }),
        ] {
            let done = purge(&proxy, &order);
            assert!(done["removed"] == 1 || done["marks"] == 1, "{done}");
            assert!(!is_hit(), "{slice_bytes} {order}");
            assert!(is_hit(), "{slice_bytes} {order}");
        }
    }
}

/// A purge reaches what is on its way, too: who asks after it does not read along.
#[test]
fn what_is_purged_while_it_comes_is_not_read_along() {
    let (gate, seen) = (Gate::default(), Mutex::new(HashSet::new()));
    let held = gate.clone();
    let origin = Origin::start(move |request| {
        let headers = "cache-control: max-age=3600\netag: \"1\"\nsurrogate-key: t";
        if seen.lock().expect("not poisoned").insert(request.path().to_owned()) {
            let hold = Some((65536, held.clone()));
            return Reply { hold, ..reply(200, headers, vec![b'o'; 200_000]) };
        }
        reply(200, headers, "new")
    });
    let proxy = Proxy::start_with(&origin, |config| {
        allow(config);
        config.timeouts.collapse = Duration::from_millis(20);
    });
    let mut readers = Vec::new();
    for order in [
        json!({ "url": "http://a/0" }),
        json!({ "url": "http://a/1", "soft": true }),
        json!({ "tag": "t" }),
        json!({ "tag": "t", "soft": true }),
        json!({ "prefix": "http://a/" }),
        json!({ "all": true, "soft": true }),
    ] {
        let path = format!("/{}", readers.len());
        let mut stream = send_to(proxy.info.address, "GET", &path, "", b"");
        assert!(read_some(&mut stream, 1000).1.iter().all(|byte| *byte == b'o'));
        readers.push(stream);
        purge(&proxy, &order);
        assert!(proxy.get(&path).text() == "new", "{order}");
    }
    gate.open();
}

/// The promise of a hard purge is for those, too, who found the response before and wait for its
/// origin: neither its failure nor its 304 brings the response back.
#[test]
fn what_is_purged_while_the_origin_is_asked_about_it_is_not_served() {
    for status in [503, 304] {
        for order in [
            json!({ "url": "http://a/" }),
            json!({ "tag": "t" }),
            json!({ "prefix": "http://a/" }),
            json!({ "all": true }),
        ] {
            let gate = Gate::default();
            let held = gate.clone();
            let headers = "cache-control: max-age=1, stale-if-error=9000\netag: \"1\"\n\
                           surrogate-key: t";
            let old = Mutex::new(true);
            let origin = Origin::start(move |request| {
                if request.has("if-none-match") {
                    held.wait();
                    return reply(status, headers, "");
                }
                let is_old = std::mem::replace(&mut *old.lock().expect("not poisoned"), false);
                reply(200, headers, if is_old { "old" } else { "new" })
            });
            let proxy = start(&origin);
            assert_eq!(proxy.get("/").text(), "old");
            proxy.pass_seconds(2);
            let mut asking = send_to(proxy.info.address, "GET", "/", "", b"");
            eventually("the origin is asked", || origin.count() == 2);
            purge(&proxy, &order);
            gate.open();
            let answer = read_message(&mut asking, false).expect("an answer");
            match status {
                503 => assert_eq!(answer.status(), 503, "{order}: {}", answer.text()),
                _ => assert_eq!((answer.status(), &*answer.text()), (200, "new"), "{order}"),
            }
            // After a 304 the new response was asked for after the purge, and is stored.
            assert_eq!(is_hit(&proxy, "/"), status == 304, "{order}");
        }
    }
}

/// What is purged is named as the configured keys name it.
#[test]
fn a_url_is_purged_by_its_key() {
    let origin = Origin::start(answer);
    let proxy = Proxy::start_with(&origin, |config| {
        allow(config);
        config.caching.key.sort_query = true;
    });
    fill(&proxy, &["/a?x=1&y=2"]);
    assert_eq!(purge(&proxy, &json!({ "url": "http://a/a?y=2&x=1" }))["removed"], 1);
    assert!(!is_hit(&proxy, "/a?x=1&y=2"));
    purge(&proxy, &json!({ "url": "http://a/a?y=2&x=1", "soft": true }));
    assert!(!is_hit(&proxy, "/a?x=1&y=2"));
}
