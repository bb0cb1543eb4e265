//! What a proxy owes each message that it passes on, by the protocols on both sides of it: `Via`,
//! and what follows its body.

mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use damelo_http_proxy::OriginTarget;
use http::{Method, Request};
use http_body_util::Full;
use support::frames::{
    ACK, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SETTINGS, frame, next_frame,
};
use support::wire::{Http2Origin, ask_http2, block_on, http2_to, raw, raw_answer};
use support::{Home, Origin, Proxy, Reply, ask_at, read_message, reply, send_to};

fn http2_request(method: Method, path: &str) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(format!("http://a{path}"));
    request.body(Full::default()).expect("request")
}

#[test]
fn via_names_the_protocol_that_each_message_came_in() {
    let origin = Origin::start(|_| reply(200, "Cache-Control: max-age=60", "x"));
    let proxy = Proxy::start(&origin);
    // The same for what is passed and what is looked up; a hit has the version of its origin, too.
    for (method, path) in [(Method::POST, "/"), (Method::GET, "/a"), (Method::GET, "/a")] {
        let answer = block_on(async {
            let mut sender = http2_to(proxy.info.address).await;
            ask_http2(&mut sender, http2_request(method, path)).await
        });
        assert_eq!(answer.headers["via"], "1.1 damelo", "{answer:?}");
        assert_eq!(origin.last().header("via"), "2.0 damelo");
    }
    assert_eq!(origin.count(), 2, "the last came from the store");

    let asked = b"GET /old HTTP/1.0\r\nVia: 1.1 before\r\n\r\n";
    let answer = raw(proxy.info.address, asked);
    assert!(answer.contains("via: 1.1 damelo\r\n"), "{answer}");
    assert_eq!(origin.last().header("via"), "1.1 before, 1.0 damelo");
}

#[test]
fn via_of_an_origin_that_speaks_http2_is_kept_with_what_is_stored() {
    let (origin, home) = (Http2Origin::start(None), Home::new());
    let url = format!("http://{}", origin.address);
    let proxy = || {
        Proxy::start_in(&home, OriginTarget::Url(url.clone()), |config| {
            config.upstream.http2_clear_text = true;
        })
    };
    let first = proxy();
    for (path, result, headers) in [
        ("/passed", "fwd=uri-miss", ""),
        ("/kept", "stored", ""),
        ("/kept", "; hit", ""),
        ("/kept", "; hit", "Range: bytes=1-2"),
        ("/kept", "; hit", "If-None-Match: *"),
    ] {
        let answer = first.get_with(path, headers);
        assert!(answer.cache().contains(result), "{}", answer.cache());
        assert_eq!(answer.header("via"), "2.0 damelo", "{path} {headers}");
        assert!(path != "/passed" || answer.header("seen-via") == "1.1 damelo", "{answer:?}");
    }
    first.stop();
    let second = proxy();
    let answer = second.get("/kept");
    assert!(answer.cache().contains("; hit"), "{}", answer.cache());
    assert_eq!(answer.header("via"), "2.0 damelo", "a restart later");
    // Answers of our own were received by nobody.
    assert_eq!(second.get_with("/", "Host: a\nHost: b").header("via"), "1.1 damelo");
}

/// `ab -k`, for one, believes it, and takes the body for the next answer.
#[test]
fn an_answer_that_ends_with_its_connection_does_not_say_that_this_stays() {
    let origin = Origin::start(|request| Reply {
        chunked: request.path() == "/chunks",
        ..reply(200, "Cache-Control: no-store", "body")
    });
    let proxy = Proxy::start(&origin);
    let ask = |path| format!("GET {path} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    for (asked, answers, stays) in
        [(ask("/chunks"), 1, false), (ask("/length") + "GET /length HTTP/1.0\r\n\r\n", 2, true)]
    {
        let text = raw(proxy.info.address, asked.as_bytes()).to_lowercase();
        assert_eq!(text.contains("connection: keep-alive"), stays, "{text}");
        assert_eq!(text.matches("http/1.0 200").count(), answers, "{text}");
        assert!(text.ends_with("\r\n\r\nbody"), "{text}");
    }
}

/// What a client of HTTP/1.1 gets, to the end of the connection.
fn text_of(proxy: &Proxy, method: &str, path: &str, headers: &str) -> String {
    let mut text = String::new();
    let mut stream = send_to(proxy.info.address, method, path, headers, b"");
    stream.read_to_string(&mut text).expect("an answer");
    text
}

const WANTED: &str = "TE: trailers\nConnection: TE, close";

#[test]
fn trailers_follow_a_live_answer_in_chunks_to_who_wants_them() {
    let origin = Origin::start(|_| Reply {
        chunked: true,
        trailer: Some("X-Sum: 1\r\nCache-Control: no-store\r\nX-Odd: 2"),
        ..reply(200, "Cache-Control: max-age=60\nTrailer: X-Sum, Cache-Control", "body")
    });
    let proxy = Proxy::start(&origin);
    for (number, method) in ["POST", "GET"].into_iter().enumerate() {
        let path = format!("/{number}");
        let text = text_of(&proxy, method, &path, WANTED);
        let head = text.split("\r\n\r\n").next().expect("a head");
        assert!(head.contains("\r\ntrailer: X-Sum, Cache-Control"), "{method}: {text}");
        assert!(!head.contains("x-sum"), "{method}: {text}");
        // What was announced, and steers nothing.
        assert!(text.ends_with("\r\n0\r\nx-sum: 1\r\n\r\n"), "{method}: {text}");
        let asked = origin.last();
        assert_eq!((&*asked.header("te"), &*asked.header("connection")), ("trailers", "te"));

        let text = text_of(&proxy, method, &format!("{path}/unwanted"), "TE: gzip");
        assert!(text.ends_with("\r\n0\r\n\r\n") && !text.contains("railer"), "{method}: {text}");
        assert!(!origin.last().has("te"), "{method}");
    }
    let stored = ask_at(proxy.info.address, "GET", "/1", WANTED, b"");
    assert!(stored.cache().contains("; hit") && stored.complete, "{stored:?}");
    assert!(!stored.has("trailer") && !stored.has("x-sum"), "{stored:?}");
}

/// Go's servers, for one, drop trailers of a request that were not announced.
#[test]
fn trailers_of_a_request_are_announced_to_origins_of_http2_alone() {
    const SENT: &[u8] = b"POST /passed HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
        Trailer: X-Req\r\n\r\n1\r\na\r\n0\r\nX-Req: t\r\n\r\n";
    let (new, home) = (Http2Origin::start(None), Home::new());
    let proxy =
        Proxy::start_in(&home, OriginTarget::Url(format!("http://{}", new.address)), |config| {
            config.upstream.http2_clear_text = true;
        });
    let answer = raw_answer(proxy.info.address, SENT);
    assert_eq!((&*answer.header("seen-trailer"), &*answer.header("seen-x-req")), ("X-Req", "t"));

    let old = Origin::start(|_| reply(200, "", "x"));
    let proxy = Proxy::start(&old);
    assert_eq!(raw_answer(proxy.info.address, SENT).status(), 200);
    assert!(!old.last().has("trailer") && !old.last().has("x-req"), "{:?}", old.last());
}

#[test]
fn trailers_pass_between_http2_and_http2() {
    let (origin, home) = (Http2Origin::start(None), Home::new());
    let url = format!("http://{}", origin.address);
    let proxy = Proxy::start_in(&home, OriginTarget::Url(url), |config| {
        config.upstream.http2_clear_text = true;
    });
    block_on(async {
        let mut sender = http2_to(proxy.info.address).await;
        // With a length and without, stored and passed; a hit has none.
        for (method, path, there) in [
            (Method::GET, "/kept", true),
            (Method::GET, "/kept", false),
            (Method::GET, "/passed", true),
            (Method::POST, "/kept", true),
        ] {
            let answer = ask_http2(&mut sender, http2_request(method, path)).await;
            assert_eq!(answer.trailers.contains_key("x-sum"), there, "{path}: {answer:?}");
            assert!(!answer.headers.contains_key("x-sum"), "{answer:?}");
            assert!(!answer.trailers.contains_key("vary"), "{answer:?}");
        }
    });
}

#[test]
fn reasons_pass_and_are_not_invented() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("accept");
            let mut reader = std::io::BufReader::new(stream.try_clone().expect("clone"));
            let Some(request) = read_message(&mut reader, false) else { continue };
            let path = request.path().trim_start_matches('/').replace('_', " ");
            let (status, kept) = path.split_once('?').unwrap_or((&path, "max-age=60"));
            let fields = "Content-Length: 0\r\nConnection: close";
            let head = format!("HTTP/1.1 {status}\r\nCache-Control: {kept}\r\n{fields}\r\n\r\n");
            stream.write_all(head.as_bytes()).expect("write");
        }
    });
    let home = Home::new();
    let proxy = Proxy::start_in(&home, OriginTarget::Url(format!("http://{address}")), |_| {});
    for (asked, told) in [
        ("/200_Fine", "HTTP/1.1 200 Fine"),
        ("/299_Odd", "HTTP/1.1 299 Odd"),
        ("/299_", "HTTP/1.1 299"),
    ] {
        let answer = proxy.ask("POST", asked, "Content-Length: 0");
        assert_eq!(answer.line, told);
    }
    for (asked, told) in [
        ("/403_Not_you?no-store", "HTTP/1.1 403 Not you"),
        ("/299_?no-store", "HTTP/1.1 299"),
        ("/999_Request_denied", "HTTP/1.1 999 Request denied"),
    ] {
        for method in ["GET", "HEAD"] {
            assert_eq!(proxy.ask(method, asked, "").line, told);
        }
    }
    // What is stored has none.
    for _ in 0..2 {
        let line = proxy.get("/299_Odd").line;
        assert!(!line.contains('<'), "{line}");
    }
}

/// RFC 9110 §8.6: clients of HTTP/2 take a length that no content follows for a broken stream.
#[test]
fn what_never_has_content_says_no_length() {
    let origin = Origin::start(|request| {
        let kept = if request.path() == "/kept" { "max-age=60" } else { "no-store" };
        reply(204, &format!("Content-Length: 3\nCache-Control: {kept}"), "")
    });
    let proxy = Proxy::start(&origin);
    let asked = [(Method::GET, "/"), (Method::HEAD, "/"), (Method::POST, "/")];
    for (method, path) in asked.into_iter().chain([(Method::GET, "/kept"), (Method::GET, "/kept")])
    {
        let answer = block_on(async {
            let mut sender = http2_to(proxy.info.address).await;
            ask_http2(&mut sender, http2_request(method, path)).await
        });
        assert_eq!(answer.status, 204, "{answer:?}");
        assert!(!answer.headers.contains_key("content-length"), "{answer:?}");
    }
}

#[test]
fn names_of_fields_are_in_lower_case() {
    let origin = Origin::start(|_| reply(200, "Cache-Control: no-store\nX-Told: 1", "x"));
    let proxy = Proxy::start(&origin);
    let answer = proxy.get_with("/", "X-Asked: 1");
    for (message, name) in [(&answer, "x-told"), (&origin.last(), "x-asked")] {
        let mut names = message.headers.iter().map(|(name, _)| name);
        assert!(message.has(name) && names.all(|name| *name == name.to_lowercase()), "{message:?}");
    }
}

/// RFC 9110 §7.6.2, §9.3.7, §9.3.8.
#[test]
fn max_forwards_is_counted_and_trace_goes_nowhere() {
    let origin = Origin::start(|request| reply(200, "", request.header("max-forwards")));
    let proxy = Proxy::start(&origin);
    for (sent, received) in [("", ""), ("5", "4"), ("1", "0"), ("x", "x"), ("-1", "-1")] {
        let field = if sent.is_empty() { String::new() } else { format!("Max-Forwards: {sent}") };
        assert_eq!(proxy.ask("OPTIONS", "/x", &field).text(), received, "{sent}");
    }
    assert_eq!(proxy.get_with("/x", "Max-Forwards: 0").text(), "0", "of other methods: ignored");
    let asked = origin.count();
    for path in ["/x", "*"] {
        let answer = proxy.ask("OPTIONS", path, "Max-Forwards: 0");
        assert_eq!(answer.status(), 204, "{answer:?}");
        assert!(answer.header("allow").contains("OPTIONS"), "{answer:?}");
        assert!(answer.cache().contains("detail=max-forwards"), "{answer:?}");
    }
    for field in ["Max-Forwards: 0", "Max-Forwards: 5", "Cookie: a=1\nAuthorization: Basic eA=="] {
        let answer = proxy.ask("TRACE", "/x", field);
        assert_eq!(answer.status(), 405, "{answer:?}");
        assert!(answer.has("allow") && !answer.text().contains("a=1"), "{answer:?}");
    }
    assert_eq!(origin.count(), asked);
}

/// An origin that is asked by its own name sends clients there, which they may not even reach.
#[test]
fn redirects_to_the_origins_own_name_lead_back_to_the_proxy() {
    for preserves in [false, true] {
        let origin = Origin::start(|request| {
            let host = request.header("host");
            let location = match request.path() {
                "/elsewhere" => "http://www.example/a".to_owned(),
                path => format!("http://{host}{path}/?b"),
            };
            reply(301, &format!("Cache-Control: max-age=60\r\nLocation: {location}"), "x")
        });
        let proxy = Proxy::start_with(&origin, |config| config.preserve_host = preserves);
        let expected = if preserves { "http://a/a/?b" } else { "/a/?b" };
        for result in ["stored", "; hit"] {
            let answer = proxy.get("/a");
            assert_eq!(answer.header("location"), expected, "{answer:?}");
            assert!(answer.cache().contains(result), "{answer:?}");
        }
        assert_eq!(proxy.get("/elsewhere").header("location"), "http://www.example/a");
        assert_eq!(proxy.ask("POST", "/a", "").header("location"), expected);
        let upgrade = "Connection: upgrade\nUpgrade: websocket";
        assert_eq!(proxy.get_with("/a", upgrade).header("location"), expected);
    }
}

/// Answers requests over HTTP/2 with something storable and RST_STREAM(NO_ERROR): the first two of
/// them without the end of the body.
fn answer_and_reset(mut stream: TcpStream, asked: &AtomicUsize) -> std::io::Result<()> {
    stream.read_exact(&mut [0; 24])?;
    stream.write_all(&frame(SETTINGS, 0, 0, b""))?;
    while let Some(read) = next_frame(&mut stream) {
        match read.kind {
            SETTINGS if read.flags & ACK == 0 => stream.write_all(&frame(SETTINGS, ACK, 0, b""))?,
            HEADERS => {
                // `:status 200`, and a field as it stands (RFC 7541 §6.2.2).
                let fields = b"\x88\x00\x0dcache-control\x0amax-age=60";
                let is_cut = asked.fetch_add(1, Ordering::SeqCst) < 2;
                let ending = if is_cut { 0 } else { END_STREAM };
                let answer = [
                    frame(HEADERS, END_HEADERS, read.stream, fields),
                    frame(DATA, ending, read.stream, b"some of it"),
                    frame(RST_STREAM, 0, read.stream, &[0; 4]),
                ];
                stream.write_all(&answer.concat())?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// RFC 9113 §8.1: an origin may want no more of a request, but its answer has an end of its own.
#[test]
fn a_reset_without_error_is_no_end_of_a_body() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address: SocketAddr = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        let asked = Arc::new(AtomicUsize::new(0));
        for stream in listener.incoming().flatten() {
            let asked = asked.clone();
            // Ends with the connection.
            std::thread::spawn(move || answer_and_reset(stream, &asked));
        }
    });
    let home = Home::new();
    let proxy = Proxy::start_in(&home, OriginTarget::Url(format!("http://{address}")), |config| {
        config.upstream.http2_clear_text = true;
    });
    for method in ["GET", "POST"] {
        let cut = read_message(&mut send_to(proxy.info.address, method, "/", "", b""), false);
        // It may break off before its head is sent.
        assert!(cut.as_ref().is_none_or(|cut| !cut.complete), "{method}: {cut:?}");
    }
    let whole = proxy.get("/");
    assert!(whole.cache().contains("; stored") && whole.complete, "{whole:?}");
    assert_eq!(whole.text(), "some of it");
    assert!(proxy.get("/").cache().contains("; hit"));
}

/// An origin that is a balancer with the proxy behind it, say: each round is a miss of the same
/// resource, and must not wait for the one before, which waits for it.
#[test]
fn a_request_that_goes_round_does_not_wait_for_itself() {
    let behind: Arc<OnceLock<SocketAddr>> = Arc::default();
    let proxy_there = behind.clone();
    let origin = Origin::start(move |request| {
        let proxy = *proxy_there.get().expect("the proxy is there");
        let range = request.header("range");
        let range = if range.is_empty() { range } else { format!("\nRange: {range}") };
        let again = format!("Via: {}{range}", request.header("via"));
        let answer = ask_at(proxy, request.method(), request.path(), &again, b"");
        reply(answer.status(), "", answer.body)
    });
    let proxy = Proxy::start_with(&origin, |config| {
        config.timeouts.collapse = Duration::from_secs(3600);
        config.forwarded.x_forwarded = false;
    });
    behind.set(proxy.info.address).expect("set once");
    for (method, path, headers) in
        [("GET", "/page", ""), ("HEAD", "/head", ""), ("GET", "/part", "Range: bytes=0-9")]
    {
        let answer = proxy.ask(method, path, headers);
        assert_eq!(answer.status(), 508, "{method} {path}");
    }
}
