//! Messages that two readers could understand differently, and requests that try to make the cache
//! store one thing under the name of another. Each has its status, and what must not reach the
//! origin does not.
//!
//! What hyper refuses is marked so; the rest is `handler/screen.rs` or the rules of the cache. Two
//! deviations that RFC 9112 permits are hyper's and are pinned here: a bare LF ends a line (§2.2),
//! and a message with both `Transfer-Encoding` and `Content-Length` is read by the first, loses
//! the second, and is the last on its connection (§6.3).

mod support;

use std::io::{Read as _, Write as _};

use damelo_http_proxy::ProxyConfig;
use support::frames::{
    DATA, END_HEADERS, END_STREAM, GET_BLOCK, HEADERS, frame, http2_raw, next_frame,
};
use support::wire::{raw, raw_answer};
use support::{Message, Origin, Proxy, eventually, reply};

/// Answers with what it was asked, so that a smuggled request shows.
fn telling() -> Origin {
    Origin::start(|request| {
        let seen = format!("{} {}", request.line, String::from_utf8_lossy(&request.body));
        reply(200, "Cache-Control: max-age=60", seen)
    })
}

fn lines(request: &Message, name: &str) -> usize {
    request.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).count()
}

#[test]
fn messages_with_doubtful_framing_are_refused_by_hyper() {
    let origin = telling();
    let proxy = Proxy::start(&origin);
    for (what, headers) in [
        ("two lengths", "Content-Length: 5\r\nContent-Length: 6"),
        ("a list of lengths", "Content-Length: 5, 6"),
        ("a list of equal lengths", "Content-Length: 5, 5"),
        ("a signed length", "Content-Length: +5"),
        ("a negative length", "Content-Length: -5"),
        ("a hexadecimal length", "Content-Length: 0x5"),
        ("a length with a space", "Content-Length: 5 5"),
        ("an empty length", "Content-Length:"),
        ("a length beyond 64 bits", "Content-Length: 99999999999999999999999"),
        ("a space before the colon", "Content-Length : 5"),
        ("chunked, then another coding", "Transfer-Encoding: chunked, gzip"),
        ("an unknown coding", "Transfer-Encoding: x"),
        ("a disguised coding", "Transfer-Encoding: xchunked"),
        ("a quoted coding", "Transfer-Encoding: \"chunked\""),
        ("a folded line", "X: a\r\n b"),
        ("a folded coding", "Transfer-Encoding:\r\n chunked"),
        ("a line that begins with a space", " Transfer-Encoding: chunked"),
        ("a bare CR in a value", "X: a\rTransfer-Encoding: chunked"),
        ("NUL in a value", "X: a\0b"),
        ("NUL in a name", "X\0: a"),
        ("a line without a colon", "nonsense"),
        ("a name with a space", "X Y: a"),
        ("an empty name", ": a"),
    ] {
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\nhello");
        let answer = raw(proxy.info.address, request.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 400 "), "{what}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{what}: {answer}");
    }
    for line in [
        "GET  / HTTP/1.1",
        "GET /a b HTTP/1.1",
        "GET / HTTP/1.1 x",
        "GET / HTTP/2.0",
        "GET / HTTP/1.2",
        "GET / http/1.1",
        "G\0T / HTTP/1.1",
        "GET /\0 HTTP/1.1",
        " GET / HTTP/1.1",
    ] {
        let answer = raw(proxy.info.address, format!("{line}\r\nHost: a\r\n\r\n").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 400 "), "{line:?}: {answer}");
    }
    assert_eq!(origin.connections(), 0);
}

#[test]
fn codings_other_than_one_chunked_are_refused() {
    let origin = telling();
    let proxy = Proxy::start(&origin);
    for (codings, status) in [
        ("Transfer-Encoding: gzip, chunked", 501),
        ("Transfer-Encoding: identity, chunked", 501),
        ("Transfer-Encoding: xchunked\r\nTransfer-Encoding: chunked", 501),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: chunked, chunked", 400),
    ] {
        for method in ["POST", "GET"] {
            let request = format!(
                "{method} / HTTP/1.1\r\nHost: a\r\n{codings}\r\n\r\n5\r\nhello\r\n0\r\n\r\n\
                 GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
            );
            let answer = raw(proxy.info.address, request.as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{codings}: {answer}");
            assert!(answer.contains("connection: close"), "{codings}: {answer}");
            assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{codings}: {answer}");
        }
    }
    assert_eq!(origin.connections(), 0);
}

#[test]
fn chunks_are_read_strictly() {
    let origin = telling();
    let proxy = Proxy::start_with(&origin, |config| {
        config.timeouts.body_idle = std::time::Duration::from_millis(500);
    });
    for chunks in [
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhelloworld\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
    ] {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let next = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
        let answer = raw(proxy.info.address, format!("{head}{chunks}{next}").as_bytes());
        // The origin may have been asked already when the damage shows.
        let refused = ["400", "408", "502"]
            .iter()
            .any(|status| answer.starts_with(&format!("HTTP/1.1 {status} ")));
        assert!(refused || answer.is_empty(), "{chunks:?}: {answer}");
        assert!(!answer.contains("smuggled"), "{chunks:?}: {answer}");
    }
    assert!(origin.asked().iter().all(|request| request.path() == "/"));
}

#[test]
fn both_framings_are_read_by_the_first_and_end_the_connection() {
    let origin = telling();
    let proxy = Proxy::start(&origin);
    for framing in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
    ] {
        let before = origin.count();
        let request = format!(
            "POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n5\r\nhello\r\n0\r\n\r\n\
             GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
        );
        let answer = raw(proxy.info.address, request.as_bytes());
        assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer}");
        assert!(answer.contains("hello") && !answer.contains("smuggled"), "{answer}");
        assert_eq!(origin.count(), before + 1);
        let asked = origin.last();
        assert_eq!((lines(&asked, "content-length"), asked.text().as_str()), (0, "hello"));
    }
    // HTTP/1.0 has no transfer codings (RFC 9112 §6.1).
    let request = b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert!(raw(proxy.info.address, request).starts_with("HTTP/1.1 400 "));
}

#[test]
fn equal_lengths_become_one_and_a_bare_lf_ends_a_line() {
    let origin = telling();
    let proxy = Proxy::start(&origin);
    let request =
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(raw_answer(proxy.info.address, request).status(), 200);
    assert_eq!(lines(&origin.last(), "content-length"), 1);
    let request = b"GET /b HTTP/1.1\nHost: a\nX: y\n\n";
    assert_eq!(raw_answer(proxy.info.address, request).status(), 200);
    assert_eq!(origin.last().header("x"), "y");
}

#[test]
fn bytes_after_a_request_are_the_next_request_or_an_error() {
    let origin = telling();
    let proxy = Proxy::start(&origin);
    let request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhellogarbage\r\n\r\n";
    let answer = raw(proxy.info.address, request);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 400 ").count(), 1, "{answer}");
    assert_eq!(origin.count(), 1);
    assert_eq!(origin.last().text(), "hello");
}

#[test]
fn hosts_are_one_and_plain_and_agree() {
    let origin = telling();
    let proxy = Proxy::start_with(&origin, |config| config.preserve_host = true);
    for (headers, status) in [
        ("", 400),
        ("Host: a\r\nHost: a\r\n", 400),
        ("Host: a\r\nHost: b\r\n", 400),
        ("Host: a/b\r\n", 400),
        ("Host: a@b\r\n", 400),
        ("Host: a b\r\n", 400),
        ("Host: a\"b\r\n", 400),
        ("Host: a#b\r\n", 400),
        ("Host: a?b\r\n", 400),
        ("Host: \u{e9}\r\n", 400),
        ("Host: a.test,x\r\n", 400),
        ("Host: a.test;x\r\n", 400),
        ("Host: a.test=x\r\n", 400),
        ("Host: a:80:80\r\n", 400),
        ("Host: a:80\r\n", 200),
    ] {
        let request = format!("GET / HTTP/1.1\r\n{headers}\r\n");
        let answer = raw_answer(proxy.info.address, request.as_bytes());
        assert_eq!(answer.status(), status, "{headers:?}");
        assert!(answer.cache().contains("damelo"), "{headers:?}: {answer:?}");
    }
    // The target counts, everywhere (RFC 9112 §3.2.2): for the key, the origin and what it is told.
    let mixed = b"GET http://good.test/x HTTP/1.1\r\nHost: evil.test\r\n\r\n";
    assert_eq!(raw_answer(proxy.info.address, mixed).status(), 200);
    let asked = origin.last();
    assert_eq!(asked.header("host"), "good.test");
    assert!(!format!("{asked:?}").contains("evil"), "{asked:?}");
    assert!(proxy.get_with("/x", "Host: good.test").cache().contains("hit"));
    assert!(!proxy.get_with("/x", "Host: evil.test").cache().contains("hit"));
    // Also where the target names one (§3.2).
    let without = raw_answer(proxy.info.address, b"GET http://good.test/x HTTP/1.1\r\n\r\n");
    assert_eq!(without.status(), 400, "{without:?}");
    let named = b"GET http://ann:secret@a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n";
    assert!(raw_answer(proxy.info.address, named).text().contains("User names"));
    for target in ["http://user@a.test/", "http://a.test:x/"] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n");
        assert_eq!(raw_answer(proxy.info.address, request.as_bytes()).status(), 400, "{target}");
    }
}

/// Answers by all that it is told of the URL, as frameworks do that build links.
fn believing() -> Origin {
    Origin::start(|request| {
        let told = ["host", "x-forwarded-host", "x-forwarded-proto", "forwarded"]
            .map(|name| request.header(name));
        let is_odd = |name: &str| {
            ["x-", "x_", "script", "path", "proxy"].iter().any(|start| name.starts_with(start))
        };
        let odd: Vec<_> = request.headers.iter().filter(|(name, _)| is_odd(name)).collect();
        reply(200, "Cache-Control: max-age=60", format!("{told:?} {odd:?}"))
    })
}

#[test]
fn what_the_origin_is_told_of_the_url_is_in_the_key() {
    let origin = believing();
    let proxy = Proxy::start(&origin);
    assert!(proxy.get_with("/x", "Host: evil.test").text().contains("evil.test"));
    let good = proxy.get_with("/x", "Host: good.test");
    assert!(good.cache().contains("fwd=uri-miss") && !good.text().contains("evil"), "{good:?}");
    assert!(proxy.get_with("/x", "Host: GOOD.test:80").cache().contains("hit"), "one host");
    // What nobody is trusted to write does not come through, so that it cannot be stored for all.
    let lies = "Host: good.test\nX-Forwarded-Host: evil.test\nX-Forwarded-Proto: gopher\n\
        Forwarded: host=evil.test\nX-Original-URL: /evil\nX-Rewrite-URL: /evil\n\
        X-Forwarded-Port: 666\nX-Host: evil.test\nX-Scheme: gopher\nX-Real-IP: 6.6.6.6\n\
        X_Forwarded_Host: evil.test\nX_Forwarded-Proto: gopher\nX_Original_URL: /evil\n\
        X-HTTP-Host-Override: evil.test\nX-Original-Host: evil.test\nX-Forwarded-Uri: /evil\n\
        X-Original-URI: /evil\nX-Forwarded-Path: /evil\nX-Override-URL: /evil\n\
        X-Script-Name: /evil\nSCRIPT_NAME: /evil\nPATH_INFO: /evil\nX-Request-URI: /evil\n\
        Proxy: http://evil.test";
    let told = proxy.get_with("/y", lies);
    assert!(told.cache().contains("stored"), "{told:?}");
    // Quoted: the port of the origin itself may contain it.
    for lie in ["evil", "gopher", "\"666\"", "6.6.6.6"] {
        assert!(!told.text().contains(lie), "{lie}: {}", told.text());
    }
}

/// By each of these some framework or server takes a request for another one, or leaves its body to
/// the server before it: what it answers then would be everybody's.
#[test]
fn what_only_a_proxy_may_tell_an_origin_does_not_come_from_clients() {
    const TOLD: &[&str] = &[
        // Rack::Sendfile answers with an empty body, and the path of a file for the server before.
        "X-Sendfile-Type",
        "X-Accel-Mapping",
        // The scheme, for IIS, WebLogic, WebSphere, Magento and sites behind some networks.
        "X-ARR-SSL",
        "WL-Proxy-SSL",
        "$WSIS",
        "$WSSC",
        "SSL-Offloaded",
        "Fastly-SSL",
        "CF-Visitor",
        "CloudFront-Forwarded-Proto",
        "X-Original-Proto",
        // Host and path, for WebSphere, Zope, and Next.js.
        "$WSSN",
        "X-VHM-Host",
        "X-VHM-Root",
        "X-Matched-Path",
        "X-Now-Route-Matches",
        "X-Invoke-Path",
        "X-Middleware-Subrequest",
        // The client.
        "Client-IP",
        "True-Client-IP",
        "CF-Connecting-IP",
        "Fastly-Client-IP",
        "WL-Proxy-Client-IP",
        "Proxy-Client-IP",
        "X-Original-For",
    ];
    let origin = Origin::start(|request| {
        let odd = request.headers.iter().any(|(_, value)| value == "evil");
        reply(200, "Cache-Control: max-age=60", if odd { "" } else { "the page" })
    });
    let trusting = |config: &mut ProxyConfig| config.forwarded.trust_client = true;
    let (proxy, behind) = (Proxy::start(&origin), Proxy::start_with(&origin, trusting));
    for (number, name) in TOLD.iter().enumerate() {
        let path = format!("/{number}");
        for (path, name) in
            [(path.clone(), (*name).to_owned()), (path + "_", name.replace('-', "_"))]
        {
            let poisoned = proxy.get_with(&path, &format!("Host: a\n{name}: evil"));
            assert_eq!(poisoned.text(), "the page", "{name}");
            let again = proxy.get(&path);
            assert!(again.cache().contains("; hit") && again.text() == "the page", "{name}");
        }
        behind.get_with("/", &format!("Host: a\nCache-Control: no-cache\n{name}: evil"));
        assert_eq!(origin.last().header(name), "evil", "of who is trusted");
    }
}

/// Clients that spell the host in another way get the same stored answer, which may name it.
#[test]
fn the_origin_is_told_the_host_as_it_is_in_the_key() {
    for preserve in [false, true] {
        let origin = believing();
        let proxy = Proxy::start_with(&origin, |config| config.preserve_host = preserve);
        for (path, spelt) in ["Good.test:80", "good.test.", "good.test.:80", "good.test:"]
            .into_iter()
            .enumerate()
            .map(|(n, spelt)| (format!("/{n}"), spelt))
        {
            proxy.get_with(&path, &format!("Host: {spelt}"));
            assert_eq!(origin.last().header("x-forwarded-host"), "good.test", "{spelt}");
            assert_eq!(origin.last().header("host") == "good.test", preserve, "{spelt}");
            let plain = proxy.get_with(&path, "Host: good.test");
            assert!(plain.cache().contains("; hit"), "{spelt}: {}", plain.cache());
        }
        proxy.get_with("/port", "Host: good.test:8080");
        assert_eq!(origin.last().header("x-forwarded-host"), "good.test:8080");
    }
}

#[test]
fn a_proxy_before_this_one_says_what_was_asked() {
    let origin = believing();
    let proxy = Proxy::start_with(&origin, |config| config.forwarded.trust_client = true);
    let asked = |lines: &str| proxy.get_with("/x", &format!("Host: a\n{lines}"));
    let first = asked("X-Forwarded-Host: www.test\nX-Forwarded-Proto: http, HTTPS");
    assert!(first.text().contains("\"www.test\", \"https\""), "{}", first.text());
    assert!(asked("X-Forwarded-Host: www.test\nX-Forwarded-Proto: https").cache().contains("hit"));
    for other in [
        "X-Forwarded-Host: www.test\nX-Forwarded-Proto: http",
        "X-Forwarded-Host: other.test\nX-Forwarded-Proto: https",
    ] {
        assert!(asked(other).cache().contains("fwd=uri-miss"), "{other}");
    }
    // What is neither a scheme nor a host is as if it were not said.
    // Nor is it said which of two hosts its client wrote.
    for odd in [
        "X-Forwarded-Host: e vil",
        "X-Forwarded-Host: evil.test, www.test",
        "X-Forwarded-Host: evil.test\nX-Forwarded-Host: www.test",
        "X-Forwarded-Host: evil.test,",
    ] {
        let answer = asked(&format!("{odd}\nX-Forwarded-Proto: gopher"));
        assert!(answer.text().contains("\"a\", \"http\""), "{odd}: {}", answer.text());
        assert!(!answer.text().contains("evil"), "{odd}: {}", answer.text());
    }
}

/// The page of one host under the key of another would be everybody's.
#[test]
fn the_host_of_the_key_is_the_only_one_that_the_origin_is_told() {
    let origin = Origin::start(|request| {
        let told = format!("{} {}", request.header("host"), request.header("x-forwarded-host"));
        reply(200, "Cache-Control: max-age=60", told)
    });
    let proxy = Proxy::start_with(&origin, |config| {
        config.forwarded.trust_client = true;
        config.preserve_host = true;
    });
    let first = proxy.get_with("/x", "Host: evil.test\nX-Forwarded-Host: BANK.test:80");
    assert_eq!(first.text(), "bank.test bank.test");
    let second = proxy.get_with("/x", "Host: bank.test");
    assert_eq!(second.text(), "bank.test bank.test");
    assert!(second.cache().contains("hit"), "{}", second.cache());
    assert_eq!(proxy.get_with("/x", "Host: evil.test").text(), "evil.test evil.test");
}

#[test]
fn a_host_that_the_origin_is_not_told_keys_nothing() {
    let origin = believing();
    let proxy = Proxy::start_with(&origin, |config| config.forwarded.x_forwarded = false);
    let first = proxy.get_with("/x", "Host: evil.test");
    assert!(!first.text().contains("evil"), "{}", first.text());
    assert!(proxy.get_with("/x", "Host: a.test").cache().contains("hit"), "one origin, one key");
    assert_eq!(origin.last().header("host"), origin.address.to_string());
}

#[test]
fn what_connection_names_is_gone_before_the_cache_looks() {
    // Says in which language it answers, and that the language matters.
    let origin = Origin::start(|request| {
        let language = request.header("accept-language");
        reply(200, "Cache-Control: max-age=60\nVary: Accept-Language", format!("in {language}"))
    });
    let proxy = Proxy::start(&origin);
    // Were the field left for the key, this would be stored as the answer in French.
    let hiding = "Accept-Language: fr\nConnection: close, accept-language";
    assert_eq!(raw_lines(&proxy, "/x", hiding).text(), "in ");
    assert_eq!(proxy.get_with("/x", "Accept-Language: fr").text(), "in fr");
    let ends = ["Host", "content-length", "Authorization", "cache-control", "Transfer-Encoding"];
    // Of these a client could rid itself through a proxy that passes its `Connection` on.
    let told = ["X-Forwarded-For", "forwarded", "X-Forwarded-Proto", "X-Real-IP", "X-Request-ID"];
    for named in ends.into_iter().chain(told) {
        let answer = raw_lines(&proxy, "/y", &format!("Connection: close, {named}"));
        assert_eq!(answer.status(), 400, "{named}");
        assert!(answer.cache().contains("detail=bad-connection"), "{answer:?}");
    }
}

/// A GET without the `Connection` line that the usual client sends.
fn raw_lines(proxy: &Proxy, path: &str, headers: &str) -> Message {
    let headers = headers.replace('\n', "\r\n");
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\n");
    raw_answer(proxy.info.address, request.as_bytes())
}

#[test]
fn a_get_with_a_body_is_never_stored_nor_served_from_the_cache() {
    let origin = telling();
    let proxy = Proxy::start(&origin);
    for framing in ["Content-Length: 6", "Transfer-Encoding: chunked"] {
        let body = if framing.starts_with('C') { "poison" } else { "6\r\npoison\r\n0\r\n\r\n" };
        let request = format!("GET /x HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n{body}");
        for _ in 0..2 {
            let answer = raw_answer(proxy.info.address, request.as_bytes());
            assert!(answer.text().ends_with("poison"), "{framing}: {answer:?}");
            assert!(answer.cache().contains("detail=request-body"), "{answer:?}");
        }
    }
    let answer = proxy.get("/x");
    assert!(answer.cache().contains("uri-miss") && !answer.text().contains("poison"), "{answer:?}");
}

/// Frameworks take such a GET for what the field says: its answer must not be a GET's, and what it
/// did changes what is stored.
#[test]
fn a_request_that_names_another_method_is_neither_stored_nor_a_get() {
    let origin = Origin::start(|request| {
        let named = ["x-http-method-override", "x-http-method", "x-method-override"]
            .map(|name| request.header(name))
            .concat();
        let seen = format!("{}{named}", request.line);
        reply(200, "Cache-Control: max-age=60", seen)
    });
    let proxy = Proxy::start(&origin);
    for name in ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"] {
        let path = format!("/{name}");
        for _ in 0..2 {
            let answer = proxy.get_with(&path, &format!("{name}: BREW"));
            assert!(answer.cache().contains("detail=method-override"), "{answer:?}");
            assert!(answer.text().ends_with("BREW"), "{answer:?}");
        }
        assert!(proxy.get(&path).cache().contains("uri-miss"), "{name}");
        assert!(proxy.get(&path).cache().contains("; hit"), "{name}");
        proxy.ask("HEAD", &path, &format!("{name}: GET"));
        assert!(proxy.get(&path).cache().contains("; hit"), "{name}");
        proxy.ask("HEAD", &path, &format!("{name}: delete"));
        let answer = proxy.get(&path);
        assert!(
            answer.cache().contains("uri-miss") && answer.text().ends_with("1.1"),
            "{answer:?}"
        );
    }
}

/// Over HTTP/2 nothing in the headers need say that a body follows.
#[test]
fn a_get_with_a_body_that_no_length_announces_is_no_other() {
    let origin = telling();
    let proxy = Proxy::start(&origin);
    assert!(proxy.get("/").cache().contains("stored"));
    let mut client = http2_raw(proxy.info.address);
    client.write_all(&frame(HEADERS, END_HEADERS, 1, GET_BLOCK)).expect("write");
    client.write_all(&frame(DATA, END_STREAM, 1, b"poison")).expect("write");
    let mut body = Vec::new();
    loop {
        let frame = next_frame(&mut client).expect("an answer");
        let ends = frame.ends_stream();
        if frame.kind == DATA && frame.stream == 1 {
            body.extend(frame.payload);
        }
        if ends {
            break;
        }
    }
    assert_eq!(String::from_utf8_lossy(&body), "GET / HTTP/1.1 poison");
    let answer = proxy.get("/");
    assert!(answer.cache().contains("hit") && !answer.text().contains("poison"), "{answer:?}");
}

#[test]
fn paths_are_neither_cleaned_nor_confused() {
    let origin = telling();
    let proxy = Proxy::start(&origin);
    let paths =
        ["/a", "/a/", "//a", "/./a", "/b/../a", "/%61", "/a%2f", "/a;x", "/a?", "/A", "/a%00"];
    for path in paths {
        let answer = proxy.get(path);
        assert!(answer.cache().contains("uri-miss"), "{path}: {answer:?}");
        assert_eq!(origin.last().path(), path, "as it was sent");
    }
    assert_eq!(origin.count(), paths.len());
}

#[test]
fn targets_that_are_none_are_refused_or_mean_one_thing() {
    let origin = telling();
    let proxy = Proxy::start(&origin);
    let ask = |target: &[u8]| {
        let request = [b"GET ", target, b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"];
        raw_answer(proxy.info.address, &request.concat())
    };
    for target in [&b"ftp://a/x"[..], b"ws://a/x", b"a:b://a/x", b"/\xff", b"/\xc3", b"a:80", b"*"]
    {
        assert_eq!(ask(target).status(), 400, "{}", target.escape_ascii());
    }
    assert_eq!(origin.connections(), 0);
    // UTF-8 that nobody escaped is passed on like any other bytes, and is not what its escapes are.
    assert_eq!(ask("/\u{e9}".as_bytes()).status(), 200);
    assert_eq!(origin.last().path(), "/\u{e9}");
    assert!(ask("/\u{e9}".as_bytes()).cache().contains("; hit"));
    assert!(ask(b"/%C3%A9").cache().contains("uri-miss"));
    // A fragment is cut off by the library before anybody looks: key and origin agree.
    assert_eq!(ask(b"/frag#ment").status(), 200);
    assert_eq!(origin.last().path(), "/frag");
    assert!(ask(b"/frag").cache().contains("; hit"));
}

#[test]
fn what_is_too_large_has_its_status() {
    let origin = telling();
    let proxy = Proxy::start(&origin);
    let many = "X: y\r\n".repeat(101);
    let large = format!("X: {}\r\n", "y".repeat(70_000));
    for (target, headers, status) in [
        (format!("/{}", "x".repeat(40_000)), "", 414),
        (format!("/{}", "x".repeat(70_000)), "", 431),
        ("/".to_owned(), many.as_str(), 431),
        ("/".to_owned(), large.as_str(), 431),
    ] {
        let request =
            format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n");
        let answer = raw(proxy.info.address, request.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
    }
    assert_eq!(origin.connections(), 0);
}

/// The URL of an origin that sends these bytes to whatever it is asked, and closes.
fn sending(answer: &'static str) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("accept");
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

#[test]
fn spaces_before_the_colon_of_an_origins_fields_are_removed() {
    let url = sending(
        "HTTP/1.1 200 OK\r\nCache-Control : max-age=60\r\nX-A \t: b\r\nContent-Length : 5\r\n\r\nhello",
    );
    let home = support::Home::new();
    let proxy = Proxy::start_in(&home, damelo_http_proxy::OriginTarget::Url(url), |_| {});
    for _ in 0..2 {
        let got =
            raw(proxy.info.address, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(got.starts_with("HTTP/1.1 200") && got.ends_with("hello"), "{got}");
        assert!(
            got.contains("\r\nx-a: b\r\n") && got.contains("\r\ncontent-length: 5\r\n"),
            "{got}"
        );
    }
    assert!(proxy.get("/").cache().contains("; hit"));
}

#[test]
fn an_origins_doubtful_framing_is_never_stored() {
    for answer in [
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: +5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nX: a\r\n b\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nX: a\0b\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 50\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: gzip\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5, 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/9.9 200 OK\r\n\r\n",
        "nonsense\r\n\r\n",
        "",
    ] {
        let url = sending(answer);
        let home = support::Home::new();
        let proxy = Proxy::start_in(&home, damelo_http_proxy::OriginTarget::Url(url), |_| {});
        let got = proxy.get("/");
        assert!(got.status() == 502 || !got.complete, "{answer:?}: {got:?}");
        if answer.contains("chunked\r\nTransfer")
            || answer.contains("gzip")
            || answer.contains("5, 5")
        {
            assert!(got.cache().contains("detail=origin-framing"), "{answer:?}: {got:?}");
        }
        eventually("the fill has ended", || {
            let again = proxy.get("/");
            !again.cache().contains("hit")
        });
        assert_eq!(proxy.metric("damelo_proxy_stored_total"), 0, "{answer:?}");
    }
}
