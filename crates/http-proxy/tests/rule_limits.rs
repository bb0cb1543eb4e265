//! Limits that rules set for requests, in place of the configured ones: times towards origins,
//! lengths of uploads.

mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use damelo_http_proxy::{OriginTarget, ProxyConfig, Settings};
use support::wire::{Http2Origin, raw_answer};
use support::{Gate, Home, Origin, Proxy, eventually, reply};

fn ruled(rules: &str) -> ProxyConfig {
    Settings::parse(rules).expect("good rules").proxy
}

/// The limits of a rule go before the configured ones, shorter or longer; a reload brings others.
#[test]
fn rules_have_limits_of_their_own() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |request| {
        let mut answer = reply(200, "Cache-Control: no-store", vec![1; 1 << 20]);
        match request.path() {
            "/held" => held.wait(),
            "/total" | "/any" => (answer.pace, answer.chunked) = (Duration::from_millis(50), true),
            _ => {}
        }
        answer
    });
    let long = Duration::from_secs(3600);
    let rules = "[[rule]]\npath = \"/total\"\ntimeout_total = \"200ms\"\n\
                 [[rule]]\npath = \"/busy\"\ntimeout_connect = \"100ms\"\n";
    let proxy = Proxy::start_with(&origin, |config| {
        config.ruleset = ruled(rules).ruleset;
        config.timeouts.connect = long;
        config.upstream.requests_per_origin_max = 1;
    });
    assert!(!proxy.get("/total").complete, "it looks whole");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| proxy.get("/held"));
        eventually("the place is taken", || origin.count() == 2);
        let answer = proxy.get("/busy");
        assert!(answer.cache().contains("detail=origin-busy"), "{answer:?}");
        gate.open();
        assert_eq!(waits.join().expect("an answer").status(), 200);
    });
    let to = OriginTarget::Url(format!("http://{}", origin.address));
    let mut config = ProxyConfig::new(proxy.info.address, to);
    config.timeouts.total = Some(Duration::from_millis(200));
    config.ruleset = ruled("[[rule]]\npath = \"/any\"\ntimeout_total = \"none\"\n").ruleset;
    proxy.info.control.reload(config).expect("reloaded");
    assert!(!proxy.get("/total").complete, "it has the configured one now");
    let answer = proxy.get("/any");
    assert!(answer.complete && answer.body.len() == 1 << 20, "{:?}", answer.status());
}

/// An origin that begins an answer and says no more.
#[test]
fn a_rule_says_how_long_a_body_may_be_silent() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let (home, url) = (Home::new(), format!("http://{}", listener.local_addr().expect("address")));
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let asked = stream.read(&mut [0; 4096]).expect("a request");
            assert!(asked > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi").expect("write");
            kept.push(stream);
        }
    });
    let proxy = Proxy::start_to(&home, url, |config| {
        let rules = "[[rule]]\nprefix = \"/p\"\ntimeout_body_idle = \"100ms\"\n\
                     [[rule]]\npath = \"/p/passed\"\npass = true\n";
        config.ruleset = ruled(rules).ruleset;
        config.timeouts.body_idle = Duration::from_secs(3600);
    });
    for path in ["/p/stored", "/p/passed"] {
        assert!(!proxy.get(path).complete, "{path}");
    }
}

/// The length that a rule has goes before the configured one, larger or smaller.
#[test]
fn rules_say_how_long_an_upload_may_be() {
    let origin = Origin::start(|request| reply(200, "", format!("{}", request.body.len())));
    let rules = "[[rule]]\nprefix = \"/files\"\nupload_bytes_max = \"none\"\n\
                 [[rule]]\npath = \"/files/small\"\nupload_bytes_max = \"2B\"\n";
    let ruleset = ruled(rules).ruleset;
    let proxy = Proxy::start_with(&origin, |config| {
        config.limits.upload_bytes_max = Some(5);
        config.ruleset = ruleset;
    });
    let chunked = |path: &str| {
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        let bytes = format!("{head}3\r\nhel\r\n3\r\nlo!\r\n0\r\n\r\n");
        raw_answer(proxy.info.address, bytes.as_bytes()).status()
    };
    for (path, expected) in [("/", 413), ("/files/a", 200), ("/files/small", 413)] {
        let answer = proxy.ask_with_body("POST", path, "", b"hello!");
        assert_eq!((answer.status(), chunked(path)), (expected, expected), "{path}");
    }
    assert_eq!(proxy.ask_with_body("POST", "/files/small", "", b"he").text(), "2");
}

/// Over HTTP/2, where requests share a connection, each has its own.
#[test]
fn an_http2_origin_may_be_silent_for_as_long_as_the_rule_says() {
    let (origin, home) = (Http2Origin::by_hand(|_| Vec::new()), Home::new());
    let proxy = Proxy::start_to(&home, format!("http://{}", origin.address), |config| {
        config.upstream.http2_clear_text = true;
        config.timeouts.origin_header = Duration::from_secs(3600);
        let rules = "[[rule]]\nprefix = \"/p\"\ntimeout_origin_header = \"100ms\"\n";
        config.ruleset = ruled(rules).ruleset;
    });
    let answer = proxy.get("/p/a");
    assert!(answer.status() == 504 && answer.cache().contains("origin-timeout"), "{answer:?}");
}
