//! What the access log and the counters say of how answers ended.

mod support;

use std::path::Path;
use std::time::Duration;

use damelo_http_proxy::{LogFormat, LogTarget, ProxyConfig, Settings};
use http::Request;
use http_body_util::Full;
use support::wire::{block_on, http2_to, raw};
use support::{Gate, Home, Nobody, Origin, Proxy, Reply, eventually, read_some, reply, send_to};

/// A log in this form, in a directory that lives as long.
fn logged(format: LogFormat) -> (tempfile::TempDir, impl FnOnce(&mut ProxyConfig)) {
    let directory = tempfile::tempdir().expect("tempdir");
    let path = directory.path().join("access.log");
    let tweak = move |config: &mut ProxyConfig| {
        config.log.to = LogTarget::File(path);
        config.log.format = format;
    };
    (directory, tweak)
}

/// The line about this path, as soon as it is written.
fn line_about(directory: &Path, path: &str) -> String {
    let mut found = None;
    eventually(path, || {
        let log = std::fs::read_to_string(directory.join("access.log")).unwrap_or_default();
        found = log.lines().find(|line| line.contains(path)).map(str::to_owned);
        found.is_some()
    });
    found.expect("a line")
}

fn origin(gate: &Gate) -> Origin {
    let gate = gate.clone();
    Origin::start(move |request| {
        let no_store = |bytes: usize| reply(200, "Cache-Control: no-store", vec![b'x'; bytes]);
        match request.path() {
            "/late" | "/later" => {
                gate.wait();
                no_store(1)
            }
            "/broken" => Reply { break_after: Some(65_536), ..no_store(200_000) },
            "/silent" => Reply { hold: Some((65_536, gate.clone())), ..no_store(200_000) },
            "/large" => no_store(50 << 20),
            "/unchanged" => reply(304, "", ""),
            path if path.starts_with("/trailed") => Reply {
                chunked: true,
                trailer: Some("X-Sum: 1"),
                ..reply(200, "Cache-Control: max-age=60\nTrailer: X-Sum", "body")
            },
            _ => reply(200, "Cache-Control: max-age=60", vec![b'x'; 300_000]),
        }
    })
}

#[test]
fn an_answer_that_broke_off_says_by_whom() {
    let gate = Gate::default();
    let origin = origin(&gate);
    let (log, tweak) = logged(LogFormat::Json);
    let proxy = Proxy::start_with(&origin, |config| {
        tweak(config);
        config.timeouts.body_idle = Duration::from_secs(1);
    });
    let broken_by =
        |by: &str| proxy.metric(&format!("damelo_proxy_answers_broken_total{{by=\"{by}\"}}"));
    for path in ["/whole", "/whole?again"] {
        assert!(proxy.get(path).complete);
        assert!(line_about(log.path(), path).contains("\"ended\":\"complete\""));
    }
    // Stored as it passes, passed on, and with nobody who wants what follows the body.
    for (method, path) in [("GET", "/trailed"), ("POST", "/trailed?2"), ("GET", "/trailed?3")] {
        let wanted = if path.ends_with('3') { "" } else { "TE: trailers\nConnection: TE" };
        assert!(proxy.ask(method, path, wanted).complete);
        assert!(line_about(log.path(), path).contains("\"ended\":\"complete\""), "{path}");
    }
    proxy.ask("HEAD", "/head", "");
    assert!(line_about(log.path(), "/head").contains("\"ended\":\"complete\""));
    for by in ["client", "origin", "timeout", "store"] {
        assert_eq!(broken_by(by), 0, "{by}");
    }
    for (path, by) in [("/broken", "origin"), ("/silent", "timeout")] {
        assert!(!proxy.get(path).complete);
        let line = line_about(log.path(), path);
        assert!(line.contains(&format!("\"ended\":\"{by}\"")), "{line}");
        eventually(by, || broken_by(by) == 1);
    }
    let mut leaving = send_to(proxy.info.address, "GET", "/large", "", b"");
    read_some(&mut leaving, 1000);
    drop(leaving);
    let line = line_about(log.path(), "/large");
    assert!(line.contains("\"ended\":\"client\"") && line.contains("\"status\":200"), "{line}");
    eventually("it is counted", || broken_by("client") == 1);
    gate.open();
}

#[test]
fn a_client_that_goes_before_its_answer_is_no_success() {
    let gate = Gate::default();
    let origin = origin(&gate);
    let (log, tweak) = logged(LogFormat::Squid);
    let proxy = Proxy::start_with(&origin, tweak);
    let address = proxy.info.address;
    drop({
        let gone = send_to(address, "GET", "/late", "", b"");
        eventually("it is asked for", || origin.count() == 1);
        gone
    });
    let line = line_about(log.path(), "/late");
    assert!(line.contains(" NONE_NONE_ABORTED/000 0 GET "), "{line}");
    block_on(async {
        let mut sender = http2_to(address).await;
        let request = Request::get("http://a/later").body(Full::default()).expect("a request");
        let mut answer = Box::pin(sender.send_request(request));
        // Until it was asked for, and no longer.
        while origin.count() < 2 {
            let early = tokio::time::timeout(Duration::from_millis(20), &mut answer).await;
            assert!(early.is_err());
        }
        drop(answer);
    });
    let line = line_about(log.path(), "/later");
    assert!(line.contains(" NONE_NONE_ABORTED/000 0 GET "), "{line}");
    let by_client = || proxy.metric("damelo_proxy_answers_broken_total{by=\"client\"}");
    eventually("both are counted", || by_client() == 2);
    gate.open();
}

/// The first of the list is out of reach, and the second one answers.
#[test]
fn the_origin_that_answered_is_named() {
    let (home, gate) = (Home::new(), Gate::default());
    let (first, second) = (Nobody::new(), origin(&gate));
    let (log, tweak) = logged(LogFormat::Squid);
    let proxy = Proxy::start_to(&home, first.url(), |config| {
        tweak(config);
        config.upstream.more_origins = vec![format!("http://{}", second.address)];
    });
    // Stored as it passes, by a task of its own; passed on.
    for (method, path) in [("GET", "/filled"), ("POST", "/passed")] {
        assert!(proxy.ask(method, path, "Content-Length: 0").complete);
        let line = line_about(log.path(), path);
        assert!(line.contains(&format!(" FIRSTUP_PARENT/{} ", second.address)), "{line}");
    }
    gate.open();
}

#[test]
fn a_line_says_what_an_origin_answered_to_it_and_nothing_of_others() {
    let origin = Origin::start(|request| match request.path() {
        "/stale" => {
            reply(200, "Cache-Control: max-age=0, stale-while-revalidate=60", vec![b'x'; 5 << 20])
        }
        "/checked" if request.has("if-none-match") => reply(304, "ETag: \"1\"", ""),
        "/checked" => reply(200, "ETag: \"1\"\nCache-Control: no-cache", "x"),
        "/fresh" => reply(200, "Cache-Control: max-age=60", "x"),
        _ => reply(404, "Cache-Control: no-store", "x"),
    });
    let (log, tweak) = logged(LogFormat::Json);
    let proxy = Proxy::start_with(&origin, tweak);
    for path in ["/unstored", "/checked", "/checked", "/fresh", "/fresh", "/stale"] {
        assert!(proxy.get(path).complete, "{path}");
    }
    // The validation behind it begins before its body ends.
    let mut stale = send_to(proxy.info.address, "GET", "/stale", "Connection: close", b"");
    eventually("it is validated", || origin.count() == 6);
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut stale, &mut rest).expect("all of it");
    proxy.stop();
    let lines = std::fs::read_to_string(log.path().join("access.log")).expect("a log");
    let read = |line: &str| -> serde_json::Value { serde_json::from_str(line).expect("JSON") };
    let lines: Vec<_> = lines.lines().map(read).collect();
    let own = format!("\"{}\"", origin.address);
    for (line, (target, asked, status, detail)) in lines.iter().zip([
        ("/unstored", &*own, "404", "\"no-store\""),
        ("/checked", &own, "200", "null"),
        ("/checked", &own, "304", "null"),
        ("/fresh", &own, "200", "null"),
        ("/fresh", "null", "null", "null"),
        ("/stale", &own, "200", "null"),
        ("/stale", "null", "null", "null"),
    ]) {
        assert_eq!(line["target"], target);
        for (name, expected) in [("origin", asked), ("origin_status", status), ("detail", detail)] {
            assert_eq!(line[name].to_string(), expected, "{name} of {line}");
        }
        assert!(line["first_byte_ms"].is_f64() && line["tls_version"].is_null(), "{line}");
    }
    assert_eq!(lines.len(), 7);
}

/// Whoever asks and however it ends, a rule leaves it out of the log; it is counted.
#[test]
fn a_rule_leaves_requests_out_of_the_log() {
    let gate = Gate::default();
    let origin = origin(&gate);
    let (log, tweak) = logged(LogFormat::Combined);
    let rules = "[[rule]]\npath = \"/alive\"\nrespond = 200\nlog = false\n\
                 [[rule]]\nclient = \"127.0.0.1\"\npath = \"/late\"\nlog = false\n\
                 [[rule]]\npath = \"/back*\"\nlog = false\n\
                 [[rule]]\npath = \"/back2\"\nlog = true\n";
    let ruleset = Settings::parse(rules).expect("good rules").proxy.ruleset;
    let proxy = Proxy::start_with(&origin, |config| {
        tweak(config);
        config.ruleset = ruleset;
    });
    assert_eq!(proxy.get("/alive").status(), 200);
    assert!(proxy.get("/back1").complete && proxy.get("/back2").complete);
    let gone = send_to(proxy.info.address, "GET", "/late", "", b"");
    eventually("it is asked for", || origin.count() == 3);
    drop(gone);
    eventually("it has gone", || {
        proxy.metric("damelo_proxy_answers_broken_total{by=\"client\"}") == 1
    });
    gate.open();
    assert!(proxy.get("/logged").complete);
    proxy.stop();
    let lines = std::fs::read_to_string(log.path().join("access.log")).expect("a log");
    let paths: Vec<_> = lines.lines().filter_map(|line| line.split(' ').nth(6)).collect();
    assert_eq!(paths, ["/back2", "/logged"], "{lines}");
}

#[test]
fn a_password_in_a_target_is_not_logged() {
    let origin = Origin::start(|_| reply(200, "", "x"));
    let (log, tweak) = logged(LogFormat::Json);
    let proxy = Proxy::start_with(&origin, tweak);
    for (path, head) in [
        ("/absolute", "GET http://me:secret@h.example:81/absolute HTTP/1.1\r\nHost: h.example:81"),
        ("/host", "GET /host HTTP/1.1\r\nHost: me:secret@h.example:81"),
        ("CONNECT", "CONNECT me:secret@h.example:81 HTTP/1.1\r\nHost: h.example:81"),
    ] {
        let answer = support::wire::raw_answer(
            proxy.info.address,
            format!("{head}\r\nConnection: close\r\n\r\n").as_bytes(),
        );
        assert_eq!(answer.status(), 400, "{head}");
        let line = line_about(log.path(), path);
        assert!(!line.contains("secret"), "{line}");
        assert!(line.contains("\"host\":\"h.example:81\""), "{line}");
    }
    assert!(line_about(log.path(), "CONNECT").contains("\"target\":\"h.example:81\""));
}

#[test]
fn a_304_that_passes_through_revalidates_nothing() {
    let origin = origin(&Gate::default());
    let (log, tweak) = logged(LogFormat::Squid);
    let proxy = Proxy::start_with(&origin, tweak);
    let answer = proxy.ask("POST", "/unchanged", "If-None-Match: \"1\"\nContent-Length: 0");
    assert_eq!(answer.status(), 304, "{answer:?}");
    let line = line_about(log.path(), "/unchanged");
    assert!(line.contains(" TCP_MISS/304 "), "{line}");
}

#[test]
fn what_is_no_request_has_a_line_as_well() {
    let origin = origin(&Gate::default());
    let (log, tweak) = logged(LogFormat::Squid);
    let proxy = Proxy::start_with(&origin, tweak);
    assert!(raw(proxy.info.address, b"what is this\r\n\r\n").starts_with("HTTP/1.1 400 "));
    let line = line_about(log.path(), "error:invalid-request");
    assert!(line.contains(" NONE_NONE/400 0 NONE error:invalid-request - HIER_NONE/- "), "{line}");
}

/// A target that is too long for the library is told from other heads that are.
#[test]
fn the_status_in_the_log_is_the_one_that_was_sent() {
    let origin = origin(&Gate::default());
    let (log, tweak) = logged(LogFormat::Squid);
    let proxy = Proxy::start_with(&origin, |config| {
        tweak(config);
        config.limits.header_bytes_max = 256 << 10;
    });
    let long = "x".repeat(70_000);
    let head = format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(raw(proxy.info.address, head.as_bytes()).starts_with("HTTP/1.1 414 "));
    let line = line_about(log.path(), "error:invalid-request");
    assert!(line.contains(" NONE_NONE/414 "), "{line}");
}

#[test]
fn what_a_stop_cuts_off_was_not_left_by_its_client() {
    let gate = Gate::default();
    let origin = origin(&gate);
    let (log, tweak) = logged(LogFormat::Json);
    let proxy = Proxy::start_with(&origin, |config| {
        tweak(config);
        config.timeouts.drain = Duration::ZERO;
    });
    let mut reading = send_to(proxy.info.address, "GET", "/large", "", b"");
    read_some(&mut reading, 1000);
    let _waiting = send_to(proxy.info.address, "GET", "/late", "", b"");
    eventually("the origin is asked", || origin.count() == 2);
    proxy.stop();
    for path in ["/large", "/late"] {
        let line = line_about(log.path(), path);
        assert!(line.contains("\"ended\":\"timeout\""), "{line}");
    }
    gate.open();
}

#[test]
fn a_reload_moves_the_log_or_changes_nothing() {
    let (origin, home) =
        (Origin::start(|_| reply(200, "", "x")), tempfile::tempdir().expect("dir"));
    let paths = ["one", "two"].map(|name| home.path().join(name));
    let proxy = Proxy::start(&origin);
    let reload = |target: LogTarget| {
        let to = damelo_http_proxy::OriginTarget::Demo;
        let mut new = damelo_http_proxy::ProxyConfig::new(proxy.info.address, to);
        new.log.to = target;
        proxy.info.control.reload(new)
    };
    proxy.get("/before");
    for path in &paths {
        reload(LogTarget::File(path.clone())).expect("reloaded");
        proxy.get(&format!("/{}", path.file_name().expect("a name").display()));
        reload(LogTarget::File(home.path().join("no/directory"))).expect_err("nowhere");
    }
    proxy.get("/still");
    reload(LogTarget::None).expect("reloaded");
    proxy.get("/after");
    proxy.stop();
    let [one, two] = paths.map(|path| std::fs::read_to_string(path).expect("a log"));
    assert!(one.contains(" /one ") && one.lines().count() == 1, "{one}");
    assert!(two.contains(" /two ") && two.contains(" /still "), "{two}");
    assert_eq!(two.lines().count(), 2, "{two}");
}
