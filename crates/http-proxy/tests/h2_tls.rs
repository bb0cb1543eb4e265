//! HTTP/2 and TLS towards clients: negotiation, certificates, and what a hostile client may do.

mod support;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use damelo_http_proxy::{
    CertificateFiles, ListenAddress, LogFormat, LogTarget, ProxyConfig, RunningInfo, ask_admin,
};
use http::{Request, StatusCode};
use http_body_util::Full;
use support::frames::{
    CONTINUATION, END_HEADERS, END_STREAM, GET_BLOCK, GOAWAY, HEADERS, RST_STREAM, frame, http2_raw,
};
use support::wire::{
    Authority, HandshakeKind, ask_http2, block_on, get_tls, handshake, http2_over_tls, http2_to,
};
use support::{Gate, Origin, Proxy, eventually, reply};

const BOTH: &[&[u8]] = &[b"h2", b"http/1.1"];

fn hello() -> Origin {
    Origin::start(|_| reply(200, "Cache-Control: max-age=60", "hello"))
}

fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(format!("http://a{path}")).body(Full::default()).expect("request")
}

struct Files {
    home: tempfile::TempDir,
}

impl Files {
    fn new() -> Files {
        Files { home: tempfile::tempdir().expect("tempdir") }
    }

    fn of(&self, name: &str) -> CertificateFiles {
        CertificateFiles {
            chain: self.home.path().join(format!("{name}.pem")),
            key: self.home.path().join(format!("{name}.key")),
        }
    }

    fn issue(&self, authority: &Authority, file: &str, name: &str) -> CertificateFiles {
        let files = self.of(file);
        authority.issue(name, &files.chain, &files.key);
        files
    }
}

fn with_tls(config: &mut ProxyConfig, certificates: Vec<CertificateFiles>) {
    config.listen = vec!["tls+tcp:127.0.0.1:0".parse().expect("a listener")];
    config.tls.certificates = certificates;
}

fn tls_address(info: &RunningInfo) -> SocketAddr {
    match info.listeners[0].address {
        ListenAddress::Tcp(address) => address,
        ListenAddress::Unix(_) => panic!("not TCP"),
    }
}

#[test]
fn http2_in_clear_text_by_prior_knowledge() {
    let origin = hello();
    let proxy = Proxy::start(&origin);
    block_on(async {
        let mut sender = http2_to(proxy.info.address).await;
        let answer = ask_http2(&mut sender, get("/x")).await;
        assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, &b"hello"[..]));
        assert!(answer.cache().contains("fwd=uri-miss"), "{answer:?}");
        let answer = ask_http2(&mut sender, get("/x")).await;
        assert!(answer.cache().contains("hit"), "{answer:?}");
    });
    let asked = origin.last();
    assert_eq!(asked.header("host"), origin.address.to_string());
    assert_eq!(asked.header("x-forwarded-host"), "a");
    // HTTP/1.1 finds the same.
    assert!(proxy.get("/x").cache().contains("hit"));
}

#[test]
fn many_streams_share_one_connection() {
    let origin = Origin::start(|request| {
        let mut answer = reply(200, "Cache-Control: max-age=60", request.path());
        answer.delay = Duration::from_millis(50);
        answer
    });
    let proxy = Proxy::start(&origin);
    block_on(async {
        let sender = http2_to(proxy.info.address).await;
        let asking = (0..50).map(|number| {
            let mut sender = sender.clone();
            tokio::spawn(async move { ask_http2(&mut sender, get(&format!("/{number}"))).await })
        });
        for (number, answer) in asking.collect::<Vec<_>>().into_iter().enumerate() {
            let answer = answer.await.expect("an answer");
            assert_eq!(answer.body, format!("/{number}"));
        }
    });
}

#[test]
fn http2_bodies_pass_both_ways() {
    let origin =
        Origin::start(|request| reply(200, "Cache-Control: no-store", request.body.clone()));
    let proxy = Proxy::start(&origin);
    let body = Bytes::from(support::noise(1, 3 << 20));
    let request = Request::post("http://a/").body(Full::new(body.clone())).expect("request");
    let answer = block_on(async {
        let mut sender = http2_to(proxy.info.address).await;
        ask_http2(&mut sender, request).await
    });
    assert_eq!(answer.body, body);
}

#[test]
fn tls_negotiates_the_version() {
    let (authority, files, origin) = (Authority::new(), Files::new(), hello());
    let certificate = files.issue(&authority, "a", "a.test");
    let proxy = Proxy::start_with(&origin, |config| with_tls(config, vec![certificate]));
    let address = tls_address(&proxy.info);
    block_on(async {
        for (alpn, agreed) in [(BOTH, "h2"), (&BOTH[1..], "http/1.1"), (&[], "")] {
            let answer = get_tls(&authority, address, "a.test", alpn, "/").await.expect("TLS");
            assert_eq!((answer.protocol.as_str(), &answer.body[..]), (agreed, &b"hello"[..]));
        }
    });
    assert_eq!(origin.last().header("x-forwarded-proto"), "https");
    let ends_s = "damelo_proxy_certificate_expires_seconds{name=\"a.test\"}";
    // The year 4096, if nothing else is said.
    assert_eq!(proxy.metric(ends_s), 67_090_118_400);
}

/// A log that wrote one URL in two ways could be neither counted nor replayed.
#[test]
fn the_access_log_writes_a_url_one_way_in_every_version_of_http() {
    for (format, expected) in [
        (LogFormat::Combined, "\"GET /x?y HTTP/"),
        (LogFormat::Squid, " GET https://a.test/x?y - "),
        (LogFormat::Json, "\"host\":\"a.test\""),
        (LogFormat::Json, "\"tls_version\":\"TLSv1.3\""),
    ] {
        let (authority, files, origin) = (Authority::new(), Files::new(), hello());
        let certificate = files.issue(&authority, "a", "a.test");
        let path = files.home.path().join("access.log");
        let proxy = Proxy::start_with(&origin, |config| {
            with_tls(config, vec![certificate]);
            config.log.to = LogTarget::File(path.clone());
            config.log.format = format;
        });
        let address = tls_address(&proxy.info);
        for alpn in [BOTH, &BOTH[1..]] {
            block_on(get_tls(&authority, address, "a.test", alpn, "/x?y")).expect("TLS");
        }
        proxy.stop();
        let log = std::fs::read_to_string(&path).expect("a log");
        let told = log.lines().filter(|line| line.contains(expected)).count();
        assert_eq!(told, 2, "{expected} in\n{log}");
        if format == LogFormat::Json {
            assert_eq!(log.matches("\"target\":\"/x?y\"").count(), 2, "{log}");
            assert_eq!(log.matches("\"scheme\":\"https\"").count(), 2, "{log}");
        }
    }
}

/// An origin that sends those without TLS to where it is spoken, and is told of a change.
fn insisting() -> Origin {
    Origin::start(|request| match (request.method(), &*request.header("x-forwarded-proto")) {
        ("POST", _) => reply(200, "Location: https://a.test/item", "changed"),
        (_, "https") => reply(200, "Cache-Control: max-age=60", "safe"),
        _ => reply(301, "Cache-Control: max-age=60\nLocation: https://a.test/", ""),
    })
}

#[test]
fn what_is_stored_in_clear_text_is_not_served_over_tls() {
    let (authority, files, origin) = (Authority::new(), Files::new(), insisting());
    let certificate = files.issue(&authority, "a", "a.test");
    let proxy = Proxy::start_with(&origin, |config| with_tls(config, vec![certificate]));
    let address = tls_address(&proxy.info);
    let secure = |path: &str| block_on(get_tls(&authority, address, "a.test", BOTH, path));
    let text = |path: &str| secure(path).expect("TLS").body;
    for _ in 0..2 {
        assert_eq!(proxy.get_with("/", "Host: a.test").status(), 301);
        assert_eq!(&text("/")[..], b"safe", "no way round in circles");
    }
    let admin = proxy.info.admin.expect("an admin address");
    let purge = |url: &str| {
        let order = format!("{{\"url\": \"{url}\"}}");
        ask_admin(admin, "/purge", None, Some(&order)).expect("purged")
    };
    assert!(purge("https://a.test/").contains("\"removed\":1"), "by the URL that clients ask");
    assert!(purge("https://a.test/").contains("\"removed\":0"));
    // Same origin, as the client knows it (RFC 9111 §4.4).
    text("/item");
    let asked = origin.count();
    text("/item");
    assert_eq!(origin.count(), asked, "a hit");
    block_on(async {
        let post = Request::post("https://a.test/items").body(Full::default()).expect("request");
        let mut sender = http2_over_tls(&authority, address, "a.test").await;
        assert_eq!(ask_http2(&mut sender, post).await.status, StatusCode::OK);
    });
    text("/item");
    assert_eq!(origin.count(), asked + 2, "invalidated");
}

/// Orders come in clear text, from beside the proxy, whatever clients use.
#[test]
fn a_purge_by_either_scheme_reaches_what_came_by_the_other() {
    let headers = "cache-control: max-age=60";
    let (authority, files) = (Authority::new(), Files::new());
    let origin = Origin::start(move |_| reply(200, headers, "body"));
    let certificate = files.issue(&authority, "a", "a.test");
    let proxy = Proxy::start_with(&origin, |config| {
        with_tls(config, vec![certificate]);
        config.purge.method = true;
    });
    let address = tls_address(&proxy.info);
    let secure = || {
        let answer = block_on(get_tls(&authority, address, "a.test", BOTH, "/x/y"));
        answer.expect("TLS").cache().contains("; hit")
    };
    let plain = || proxy.get_with("/x/y", "Host: a.test").cache().contains("; hit");
    for (target, scope, gone) in [
        ("/x/y", "url", [true, true]),
        ("/x/", "prefix", [true, true]),
        ("/", "host", [true, true]),
        ("http://a.test/x/y", "url", [true, false]),
        ("https://a.test/x/y", "url", [false, true]),
        ("https://a.test/x", "prefix", [false, true]),
    ] {
        let fill = [plain(), secure(), plain(), secure()];
        assert_eq!(fill[2..], [true, true], "{target}");
        let order = format!("Host: a.test\nPurge-Scope: {scope}");
        let done = proxy.ask("PURGE", target, &order);
        assert_eq!(done.status(), 200, "{}", done.text());
        assert_eq!([!plain(), !secure()], gone, "{target} {scope}: {}", done.text());
    }
}

#[test]
fn a_client_resumes_its_session_however_many_others_came_since() {
    let (authority, files, origin) = (Authority::new(), Files::new(), hello());
    let certificate = files.issue(&authority, "a", "a.test");
    let proxy = Proxy::start_with(&origin, |config| with_tls(config, vec![certificate]));
    let address = tls_address(&proxy.info);
    let connector = authority.connector(&[]);
    let kind = |connector: &_| block_on(handshake(connector, address, "a.test"));
    assert_eq!(kind(&connector), HandshakeKind::Full);
    for _ in 0..300 {
        assert_eq!(kind(&authority.connector(&[])), HandshakeKind::Full);
    }
    assert_eq!(kind(&connector), HandshakeKind::Resumed);
}

/// Whether the metrics have a certificate for the name.
fn is_told_of(proxy: &Proxy, name: &str) -> bool {
    let admin = proxy.info.admin.expect("an admin listener");
    let told = support::ask_at(admin, "GET", "/metrics", "", b"").text();
    told.contains(&format!("damelo_proxy_certificate_expires_seconds{{name=\"{name}\"}}"))
}

#[test]
fn a_renewed_certificate_is_known_without_a_client_and_voids_no_tickets() {
    let (authority, files, origin) = (Authority::new(), Files::new(), hello());
    let names = [("a", "a.test"), ("b", "b.test"), ("c", "b.test")];
    let list = names.map(|(file, name)| files.issue(&authority, file, name)).to_vec();
    let proxy = Proxy::start_with(&origin, |config| with_tls(config, list));
    let address = tls_address(&proxy.info);
    let client = authority.connector(&[]);
    let kind = || block_on(handshake(&client, address, "a.test"));
    assert_eq!(kind(), HandshakeKind::Full);

    files.issue(&authority, "a", "a.test");
    files.issue(&authority, "c", "c.test");
    eventually("the gauge tells of it", || is_told_of(&proxy, "c.test"));
    assert_eq!(kind(), HandshakeKind::Resumed);
    files.issue(&authority, "c", "d.test");
    eventually("the gauge tells of it", || is_told_of(&proxy, "d.test"));
    assert_eq!(kind(), HandshakeKind::Full, "a name has gone");
}

#[test]
fn the_certificate_fits_the_name_and_is_read_again() {
    let (authority, files, origin) = (Authority::new(), Files::new(), hello());
    let list = vec![files.issue(&authority, "a", "a.test"), files.issue(&authority, "b", "b.test")];
    let proxy = Proxy::start_with(&origin, |config| with_tls(config, list));
    let address = tls_address(&proxy.info);
    let ask = |name: &str| block_on(get_tls(&authority, address, name, BOTH, "/"));
    for name in ["a.test", "b.test"] {
        assert_eq!(ask(name).expect("a good certificate").status, StatusCode::OK);
    }
    assert!(ask("c.test").is_err(), "no certificate for that name");
    // Not a certificate: the former stays.
    std::fs::write(files.of("b").chain, "nonsense").expect("write");
    eventually("the files are found wanting", || {
        proxy.metric("damelo_proxy_certificate_errors_total") >= 1
    });
    assert_eq!(ask("b.test").expect("the former certificate").status, StatusCode::OK);
    files.issue(&authority, "b", "c.test");
    eventually("the new certificate is served", || ask("c.test").is_ok());
    assert!(ask("b.test").is_err(), "the old one is gone");
}

/// Such as files that belong to nobody the proxy may read from, until a `chown` that leaves length
/// and time as they are.
#[test]
fn certificates_that_could_not_be_used_are_read_again_though_they_look_the_same() {
    let (authority, files, origin) = (Authority::new(), Files::new(), hello());
    let list = vec![files.issue(&authority, "a", "a.test")];
    let proxy = Proxy::start_with(&origin, |config| with_tls(config, list));
    let address = tls_address(&proxy.info);
    let ask = |name: &str| block_on(get_tls(&authority, address, name, BOTH, "/"));
    // The chain of another key, at once.
    let (used, new) = (files.of("a"), files.issue(&authority, "new", "b.test"));
    std::fs::rename(new.chain, used.chain).expect("rename");
    eventually("the files are found wanting", || {
        assert!(ask("a.test").is_ok(), "the former certificate");
        proxy.metric("damelo_proxy_certificate_errors_total") == 1
    });
    let good = std::fs::read(new.key).expect("read");
    let former = std::fs::metadata(&used.key).expect("a file");
    assert_eq!(good.len() as u64, former.len());
    let mut file = std::fs::File::options().write(true).open(&used.key).expect("open");
    file.write_all(&good).expect("write");
    file.set_modified(former.modified().expect("a time")).expect("set the time");
    eventually("the new certificate is served", || ask("b.test").is_ok());
    assert_eq!(proxy.metric("damelo_proxy_certificate_errors_total"), 1, "told once");
}

#[test]
fn a_certificate_that_cannot_be_used_does_not_hold_the_others_back() {
    let (authority, files, origin) = (Authority::new(), Files::new(), hello());
    let list = vec![files.issue(&authority, "a", "a.test"), files.issue(&authority, "b", "b.test")];
    let proxy = Proxy::start_with(&origin, |config| with_tls(config, list));
    let address = tls_address(&proxy.info);
    let ask = |name: &str| block_on(get_tls(&authority, address, name, BOTH, "/"));
    std::fs::remove_file(files.of("a").chain).expect("remove");
    files.issue(&authority, "b", "c.test");
    eventually("the other is served", || ask("c.test").is_ok());
    assert_eq!(ask("a.test").expect("the former certificate").status, StatusCode::OK);
    files.issue(&authority, "a", "d.test");
    eventually("the one that came back is served", || ask("d.test").is_ok());
    assert_eq!(ask("c.test").expect("the other still").status, StatusCode::OK);
}

#[test]
fn a_reload_brings_other_certificates_or_changes_nothing() {
    let (authority, files, origin) = (Authority::new(), Files::new(), hello());
    let list = vec![files.issue(&authority, "a", "a.test")];
    let proxy = Proxy::start_with(&origin, |config| with_tls(config, list));
    let address = tls_address(&proxy.info);
    let ask = |name: &str| block_on(get_tls(&authority, address, name, BOTH, "/"));
    let reload = |name: &str, certificates: Vec<CertificateFiles>| {
        let to = damelo_http_proxy::OriginTarget::Demo;
        let mut config = ProxyConfig::new(proxy.info.address, to);
        with_tls(&mut config, certificates);
        config.name = name.to_owned();
        proxy.info.control.reload(config)
    };
    let other = files.issue(&authority, "b", "b.test");
    for (wrong, words) in [
        (vec![], "listener needs a certificate"),
        (vec![other.clone(), files.of("missing")], "missing.pem"),
    ] {
        let error = reload("damelo-wrong", wrong).expect_err("all or nothing");
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(ask("a.test").expect("the former certificate").status, StatusCode::OK);
        assert!(ask("b.test").is_err());
        assert!(proxy.get("/").cache().starts_with("damelo;"), "the name stays, too");
    }
    reload("damelo-other", vec![other.clone()]).expect("reloaded");
    assert_eq!(ask("b.test").expect("the new certificate").status, StatusCode::OK);
    assert!(ask("a.test").is_err(), "the former is gone");
    assert!(proxy.get("/").cache().starts_with("damelo-other;"));
    files.issue(&authority, "b", "c.test");
    reload("damelo-other", vec![other]).expect("reloaded");
    assert_eq!(ask("c.test").expect("the same files").status, StatusCode::OK);
}

#[test]
fn certificates_that_cannot_be_used_keep_the_proxy_from_starting() {
    let (authority, files) = (Authority::new(), Files::new());
    let mut crossed = files.issue(&authority, "a", "a.test");
    crossed.key = files.issue(&authority, "b", "b.test").key;
    for (certificates, words) in [
        (vec![], "listener needs a certificate"),
        (vec![files.of("missing")], "missing.pem"),
        (vec![crossed], "it is not the key of"),
    ] {
        let home = tempfile::tempdir().expect("tempdir");
        let size = damelo::ByteSize::new(64 << 20);
        let mut config = damelo::Config::new(home.path().join("store"), size);
        config.memory = damelo::ByteSize::new(8 << 20);
        let store = damelo::Store::open(config).expect("store");
        let to = damelo_http_proxy::OriginTarget::Demo;
        let mut config = ProxyConfig::new("127.0.0.1:0".parse().expect("address"), to);
        with_tls(&mut config, certificates);
        let never = std::future::pending::<()>();
        let error = damelo_http_proxy::run(config, store, |_| {}, never).expect_err("no start");
        assert!(error.to_string().contains(words), "{error}");
    }
}

/// Reads to the end; true if the last frames had a GOAWAY with an error among them.
fn ended_by_goaway(mut stream: TcpStream) -> bool {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let mut rest = &bytes[..];
    while rest.len() >= 9 {
        let length = usize::from(rest[0]) << 16 | usize::from(rest[1]) << 8 | usize::from(rest[2]);
        if rest[3] == GOAWAY && rest.len() >= 17 && rest[13..17] != [0; 4] {
            return true;
        }
        rest = rest.get(9 + length..).unwrap_or_default();
    }
    false
}

#[test]
fn a_rapid_reset_ends_the_connection() {
    let origin = Origin::start(|_| {
        let mut answer = reply(200, "Cache-Control: no-store", "x");
        answer.delay = Duration::from_millis(20);
        answer
    });
    let proxy = Proxy::start(&origin);
    let mut stream = http2_raw(proxy.info.address);
    let mut flood = Vec::new();
    for number in 0..2000 {
        let id = number * 2 + 1;
        flood.extend(frame(HEADERS, END_HEADERS | END_STREAM, id, GET_BLOCK));
        flood.extend(frame(RST_STREAM, 0, id, &[0, 0, 0, 8]));
    }
    let _ = stream.write_all(&flood);
    assert!(ended_by_goaway(stream), "the flood goes on");
    assert!(origin.count() < 200, "{} requests reached the origin", origin.count());
    assert_eq!(proxy.get("/").status(), 200);
}

/// Each stream is looked at, and the origin asked, before its client resets it.
#[test]
fn requests_that_are_cancelled_over_and_over_end_the_connection() {
    let never = Gate::default();
    let held = never.clone();
    let origin = Origin::start(move |request| {
        if request.path() != "/" {
            held.wait();
        }
        reply(200, "Cache-Control: no-store", "x")
    });
    let cancels_max = 40;
    let limited = |config: &mut ProxyConfig| {
        config.limits.http2_cancels_max = cancels_max;
        config.limits.http2_cancels_second_max = 1;
    };
    let trusting = |config: &mut ProxyConfig| {
        limited(config);
        config.forwarded.trust_client = true;
        config.forwarded.trust_networks = vec!["127.0.0.0/8".parse().expect("a network")];
    };
    for (proxy, ends) in
        [(Proxy::start_with(&origin, limited), true), (Proxy::start_with(&origin, trusting), false)]
    {
        let mut stream = http2_raw(proxy.info.address);
        let before = origin.count();
        // Time makes room for one more in each second.
        let most = if ends { cancels_max * 25 } else { cancels_max + 20 };
        for number in 0..most {
            let id = number * 2 + 1;
            let path = format!("/{number:05}");
            let block = [b"\x82\x86\x04\x06", path.as_bytes(), b"\x41\x01a"].concat();
            let ask = frame(HEADERS, END_HEADERS | END_STREAM, id, &block);
            let count = origin.count();
            if stream.write_all(&ask).is_err() {
                break;
            }
            let is_over = || proxy.metric("damelo_proxy_http2_cancels_exceeded_total") > 0;
            eventually("it is asked for", || origin.count() > count || is_over());
            let _ = stream.write_all(&frame(RST_STREAM, 0, id, &[0, 0, 0, 8]));
            // Not before it was seen to be cancelled.
            eventually("it is dropped", || {
                proxy.metric("damelo_proxy_requests_open") == 0 || is_over()
            });
            if is_over() {
                break;
            }
        }
        let asked = u32::try_from(origin.count() - before).expect("few");
        assert_eq!(proxy.metric("damelo_proxy_http2_cancels_exceeded_total"), u64::from(ends));
        if ends {
            assert!((cancels_max..most).contains(&asked), "{asked}");
            let end = stream.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
            assert!(!matches!(end, Err(ErrorKind::WouldBlock)), "the connection goes on");
        } else {
            assert_eq!(asked, most);
            let ask = frame(HEADERS, END_HEADERS | END_STREAM, 999, GET_BLOCK);
            stream.write_all(&ask).expect("the connection goes on");
        }
        assert_eq!(proxy.get("/").status(), 200);
    }
    never.open();
}

#[test]
fn a_continuation_flood_ends_the_connection() {
    let origin = hello();
    let proxy = Proxy::start(&origin);
    let mut stream = http2_raw(proxy.info.address);
    stream.write_all(&frame(HEADERS, END_STREAM, 1, GET_BLOCK)).expect("write");
    // A literal field without indexing: name "x", 16,000 bytes of value.
    let mut field = b"\x00\x01x\x7f\x81\x7c".to_vec();
    field.extend(vec![b'y'; 16_000]);
    for _ in 0..1000 {
        if stream.write_all(&frame(CONTINUATION, 0, 1, &field)).is_err() {
            break;
        }
    }
    assert!(ended_by_goaway(stream), "the flood goes on");
    assert_eq!(origin.count(), 0);
    assert_eq!(proxy.get("/").status(), 200);
}

#[test]
fn large_http2_headers_are_answered_431_and_odd_ones_400() {
    let origin = hello();
    let proxy = Proxy::start(&origin);
    let with = |name: &str, value: String| {
        Request::get("http://a/").header(name, value).body(Full::default()).expect("request")
    };
    let long = Request::get(format!("http://a/{}", "x".repeat(40_000)));
    block_on(async {
        for (request, status) in [
            (with("x", "y".repeat(60_000)), 200),
            (with("x", "y".repeat(70_000)), 431),
            (with("host", "b".to_owned()), 400),
            (with("x", "y ".to_owned()), 400),
            (with("x", "\ty".to_owned()), 400),
            (with("expect", "b".to_owned()), 417),
            (long.body(Full::default()).expect("request"), 414),
        ] {
            let mut sender = http2_to(proxy.info.address).await;
            let answer = ask_http2(&mut sender, request).await;
            assert_eq!(answer.status.as_u16(), status);
        }
    });
}

/// RFC 9113 §8.2.3.
#[test]
fn cookies_in_crumbs_become_one_line() {
    let origin = Origin::start(|_| reply(200, "Cache-Control: max-age=60\nVary: Cookie", "hello"));
    let proxy = Proxy::start(&origin);
    block_on(async {
        let mut sender = http2_to(proxy.info.address).await;
        let mut request = get("/x");
        for crumb in ["a=1", "b=2; c=3", "d=4"] {
            request.headers_mut().append("cookie", crumb.parse().expect("a value"));
        }
        assert_eq!(ask_http2(&mut sender, request).await.status, StatusCode::OK);
    });
    let asked = origin.last();
    let lines = asked.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("cookie"));
    let lines: Vec<_> = lines.map(|(_, value)| value.as_str()).collect();
    assert_eq!(lines, ["a=1; b=2; c=3; d=4"]);
    assert!(proxy.get_with("/x", "Cookie: a=1; b=2; c=3; d=4").cache().contains("; hit"));
    assert!(!proxy.get_with("/x", "Cookie: a=1").cache().contains("; hit"));
}

#[test]
fn equal_lengths_of_http2_become_one_line() {
    let origin = hello();
    let proxy = Proxy::start(&origin);
    block_on(async {
        let mut sender = http2_to(proxy.info.address).await;
        let mut request = Request::post("http://a/").body(Full::from("hello")).expect("request");
        for length in ["5", "05", "5"] {
            request.headers_mut().append("content-length", length.parse().expect("a value"));
        }
        assert_eq!(ask_http2(&mut sender, request).await.status, StatusCode::OK);
    });
    let asked = origin.last();
    let lines =
        asked.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    assert_eq!((lines.count(), asked.text()), (1, "hello".to_owned()));
}
