//! Rules that name the origin: one reverse proxy for several sites.

mod support;

use damelo_http_proxy::{LogFormat, LogTarget, ProxyConfig, Settings, ask_admin};
use support::{Message, Nobody, Origin, Proxy, eventually, reply};

/// An origin that says its name, what host it was asked for, and what for.
fn named(name: &'static str) -> Origin {
    Origin::start(move |request| {
        let body = format!("{name} {} {}", request.header("host"), request.path());
        reply(200, "Cache-Control: max-age=60", body)
    })
}

fn url(origin: &Origin) -> String {
    format!("http://{}", origin.address)
}

fn rules(text: &str) -> ProxyConfig {
    Settings::parse(text).expect("good rules").proxy
}

fn start(origin: &Origin, text: &str, tweak: impl FnOnce(&mut ProxyConfig)) -> Proxy {
    let ruleset = rules(text).ruleset;
    Proxy::start_with(origin, |config| {
        config.ruleset = ruleset;
        tweak(config);
    })
}

fn from(answer: &Message, name: &str) -> bool {
    answer.status() == 200 && answer.text().starts_with(name)
}

#[test]
fn hosts_and_paths_have_their_own_origins() {
    let (main, images, api) = (named("main"), named("images"), named("api"));
    let text = format!(
        "[[rule]]\nhost = \"img.test\"\nto = \"{}\"\n[[rule]]\nprefix = \"/api/\"\nto = [\"{}\"]\n",
        url(&images),
        url(&api)
    );
    let proxy = start(&main, &text, |_| {});
    for round in ["fwd=uri-miss", "hit"] {
        let asked = [
            ("www.test", "/a", "main"),
            ("img.test", "/a", "images"),
            ("www.test", "/api/a", "api"),
            // The later rule counts.
            ("img.test", "/api/a", "api"),
        ];
        for (host, path, name) in asked {
            let answer = proxy.get_with(path, &format!("Host: {host}"));
            assert!(from(&answer, name), "{host}{path}: {}", answer.text());
            assert!(answer.cache().contains(round), "{host}{path}: {}", answer.cache());
        }
    }
    // Asked with a host of their own, as the proxy's own origin is.
    assert_eq!(images.last().header("host"), images.address.to_string());
    assert_eq!(images.last().header("x-forwarded-host"), "img.test");
    assert_eq!((main.count(), images.count(), api.count()), (1, 1, 2));
}

#[test]
fn redirects_to_a_sites_own_name_lead_back_to_the_proxy() {
    let main = named("main");
    let other = Origin::start(|request| {
        let location = format!("Location: http://{}/b", request.header("host"));
        reply(301, &location, "")
    });
    let text = format!("[[rule]]\nprefix = \"/x\"\nto = \"{}\"\n", url(&other));
    let proxy = start(&main, &text, |_| {});
    assert_eq!(proxy.get("/x").header("location"), "/b");
}

#[test]
fn the_log_says_who_was_asked() {
    let (main, other, home) = (named("main"), named("other"), tempfile::tempdir().expect("dir"));
    let path = home.path().join("access.log");
    let text = format!("[[rule]]\nhost = \"o.test\"\nto = \"{}\"\n", url(&other));
    let proxy = start(&main, &text, |config| {
        config.log.to = LogTarget::File(path.clone());
        config.log.format = LogFormat::Squid;
    });
    proxy.get("/a");
    proxy.get_with("/b", "Host: o.test");
    proxy.stop();
    let log = std::fs::read_to_string(&path).expect("a log");
    let line = |path: &str| log.lines().find(|line| line.contains(path)).unwrap_or_default();
    assert!(line("/a ").contains(&format!("FIRSTUP_PARENT/{}", main.address)), "{log}");
    assert!(line("/b ").contains(&format!("FIRSTUP_PARENT/{}", other.address)), "{log}");
}

#[test]
fn the_same_url_of_two_sites_is_two_objects() {
    let (main, beta) = (named("main"), named("beta"));
    let text = format!("[[rule]]\nheader = \"X-Beta\"\nto = \"{}\"\n", url(&beta));
    // Even where the origin is told nothing of the host, so that the key has none.
    for tells in [true, false] {
        let proxy = start(&main, &text, |config| {
            config.forwarded.x_forwarded = tells;
            config.admin.from = Some("127.0.0.1:0".parse().expect("an address"));
        });
        for _ in 0..2 {
            assert!(from(&proxy.get("/a"), "main"));
            assert!(from(&proxy.get_with("/a", "X-Beta: 1"), "beta"));
        }
        assert!(proxy.get_with("/a", "X-Beta: 1").cache().contains("hit"));
        // A purge by URL means both.
        let admin = proxy.info.admin.expect("an admin address");
        ask_admin(admin, "/purge", None, Some("{\"url\": \"http://a/a\"}")).expect("purged");
        assert!(proxy.get("/a").cache().contains("fwd="));
        assert!(proxy.get_with("/a", "X-Beta: 1").cache().contains("fwd="));
    }
}

#[test]
fn what_is_not_stored_goes_there_as_well_and_invalidates_there() {
    let (main, api) = (named("main"), named("api"));
    let text = format!("[[rule]]\nprefix = \"/api/\"\nto = \"{}\"\n", url(&api));
    let proxy = start(&main, &text, |_| {});
    assert!(from(&proxy.get("/api/a"), "api"));
    assert!(proxy.get("/api/a").cache().contains("hit"));
    assert!(from(&proxy.ask_with_body("POST", "/api/a", "", b"x"), "api"));
    assert!(proxy.get("/api/a").cache().contains("fwd="), "the POST changed it");
    assert_eq!(main.count(), 0);
}

#[test]
fn a_site_of_several_origins_goes_on_when_one_is_gone() {
    let (main, spare, nobody) = (named("main"), named("spare"), Nobody::new());
    let text =
        format!("[[rule]]\npath = \"/x/**\"\nto = [\"{}\", \"{}\"]\n", nobody.url(), url(&spare));
    let proxy = start(&main, &text, |_| {});
    for number in 0..8 {
        assert!(from(&proxy.get(&format!("/x/{number}")), "spare"));
    }
    assert!(proxy.metric("damelo_proxy_origin_failovers_total") > 0);
}

#[test]
fn who_failed_is_named_to_the_operator_alone() {
    let (main, nobody) = (named("main"), Nobody::new());
    let text = format!("[[rule]]\nprefix = \"/x\"\nto = \"{}\"\n", nobody.url());
    let home = tempfile::tempdir().expect("tempdir");
    let log = home.path().join("access.log");
    let proxy = start(&main, &text, |config| {
        config.log.to = LogTarget::File(log.clone());
        config.log.format = LogFormat::Squid;
    });
    let answer = proxy.get("/x");
    assert_eq!(answer.status(), 502);
    let authority = nobody.url().replace("http://", "");
    assert!(!answer.text().contains(&authority), "{}", answer.text());
    let lines = || std::fs::read_to_string(&log).unwrap_or_default();
    eventually("the log names it", || lines().contains(&authority));
}

#[test]
fn rules_read_again_bring_sites_and_take_them_away() {
    let (main, other) = (named("main"), named("other"));
    let checks = "[upstream]\ncheck = \"/ every 20ms\"\n";
    let proxy = start(&main, "", |_| {});
    assert!(from(&proxy.get("/a"), "main"));
    let text = format!("{checks}[[rule]]\nprefix = \"/a\"\nto = \"{}\"\n", url(&other));
    proxy.info.control.reload(rules(&text)).expect("reloaded");
    assert!(from(&proxy.get("/a"), "other"));
    // What came by a reload is looked after like the rest.
    let checked = || other.asked().iter().any(|one| one.header("user-agent").contains("health"));
    eventually("it is checked", checked);
    proxy.info.control.reload(rules("")).expect("reloaded");
    assert!(from(&proxy.get("/a"), "main"));
}

#[test]
fn what_cannot_be_a_site_is_refused_before_anything_starts() {
    let errors = Settings::parse("[[rule]]\nto = \"ftp://a\"\n").expect_err("no origin");
    assert!(errors[0].to_string().contains("http://"), "{}", errors[0]);
    let text = "[[rule]]\nstatus = 404\nto = \"http://a\"\n";
    let errors = Settings::parse(text).expect_err("too late");
    assert!(errors[0].to_string().contains("before there is a response"), "{}", errors[0]);
    let mut settings = Settings::for_forward();
    settings.proxy.ruleset = rules("[[rule]]\nto = \"http://a\"\n").ruleset;
    let error = settings.check_forward().expect_err("the client says where to go");
    assert!(error.to_string().contains("`to`"), "{error}");
}

/// The host that an origin is told is in the key, whoever says which.
#[test]
fn a_rule_says_what_its_origins_are_asked_with() {
    let (main, other) = (named("main"), named("other"));
    let to = url(&other);
    let text = format!(
        "[[rule]]\nprefix = \"/client\"\nto = \"{to}\"\nhost_header = \"client\"\n\
         [[rule]]\nprefix = \"/origin\"\nto = \"{to}\"\nhost_header = \"origin\"\n\
         [[rule]]\nprefix = \"/name\"\nto = \"{to}\"\nhost_header = \"App.test\"\n\
         [[rule]]\nprefix = \"/usual\"\nto = \"{to}\"\n"
    );
    for preserves in [false, true] {
        let proxy = start(&main, &text, |config| {
            config.preserve_host = preserves;
            // By these alone keys would have no hosts.
            config.forwarded.x_forwarded = false;
        });
        let own = other.address.to_string();
        for (path, told) in [
            ("/client", "a.test"),
            ("/origin", own.as_str()),
            ("/name", "app.test"),
            ("/usual", if preserves { "a.test" } else { own.as_str() }),
        ] {
            let answer = proxy.get_with(path, "Host: A.test:80");
            assert_eq!(answer.text(), format!("other {told} {path}"));
            assert!(proxy.get_with(path, "Host: a.test").cache().contains("; hit"), "{path}");
        }
        let evil = proxy.get_with("/client", "Host: evil.test");
        assert_eq!(evil.text(), "other evil.test /client", "{}", evil.cache());
    }
}

#[test]
fn another_host_for_an_origin_is_another_site() {
    let (main, other) = (named("main"), named("other"));
    let text =
        |host: &str| format!("[[rule]]\nto = \"{}\"\nhost_header = \"{host}\"\n", url(&other));
    let home = support::Home::new();
    for (host, cached) in [("one.test", false), ("two.test", false), ("one.test", true)] {
        let ruleset = rules(&text(host)).ruleset;
        let proxy = Proxy::start_to(&home, url(&main), |config| config.ruleset = ruleset);
        let answer = proxy.get_with("/a", "Host: a.test");
        assert_eq!(answer.text(), format!("other {host} /a"));
        assert_eq!(answer.cache().contains("; hit"), cached, "{host}: {}", answer.cache());
        proxy.stop();
    }
    // Redirects to the name that it was asked by lead back, as those to its own do.
    let moved = Origin::start(|request| {
        reply(301, &format!("Location: http://{}/b", request.header("host")), "")
    });
    let text = format!("[[rule]]\nto = \"{}\"\nhost_header = \"app.test\"\n", url(&moved));
    let proxy = start(&main, &text, |_| {});
    assert_eq!(proxy.get_with("/a", "Host: a.test").header("location"), "/b");
}
