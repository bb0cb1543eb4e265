//! What the access log and the counters say of how answers ended.

mod support;

use std::path::Path;
use std::time::Duration;

use damelo_http_proxy::{LogFormat, LogTarget, ProxyConfig};
use http::Request;
use http_body_util::Full;
use support::wire::{block_on, http2_to, raw};
use support::{Gate, Origin, Proxy, Reply, eventually, read_some, reply, send_to};

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
