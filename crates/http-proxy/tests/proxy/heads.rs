//! Many HEADs at once for what is not stored.

use std::io::{BufReader, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::Full;

use crate::support::wire::{Answer, ask_http2, block_on, http2_to};
use crate::support::{
    Gate, Message, Origin, Proxy, Reply, date, eventually, read_message, read_some, reply, send_to,
};

type Asked = BufReader<TcpStream>;

/// An origin whose answers are numbered in `X-Number` and wait for the gate.
fn gated(headers: &'static str, chunked: bool) -> (Origin, Gate) {
    let gate = Gate::default();
    (gated_by(headers, chunked, vec![gate.clone()]), gate)
}

/// The same with a gate for each answer; the last is for all that follow, too.
fn gated_by(headers: &'static str, chunked: bool, gates: Vec<Gate>) -> Origin {
    let count = Arc::new(AtomicUsize::new(0));
    Origin::start(move |request| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        gates[number.min(gates.len() - 1)].wait();
        let language = request.header("accept-language");
        let headers = format!("{headers}\nX-Number: {number}\nX-Language: {language}");
        Reply { chunked, ..reply(200, &headers, "four") }
    })
}

fn head(proxy: &Proxy, headers: &str) -> Asked {
    send_to(proxy.info.address, "HEAD", "/", headers, b"")
}

/// A HEAD over HTTP/2, with `Host` if it is not empty.
fn head_over_http2(address: SocketAddr, path: &str, host: &str) -> Answer {
    let mut request = http::Request::head(format!("http://a{path}"));
    if !host.is_empty() {
        request = request.header("host", host);
    }
    let request = request.body(Full::default()).expect("a request");
    block_on(async { ask_http2(&mut http2_to(address).await, request).await })
}

fn answers(asked: Vec<Asked>) -> Vec<Message> {
    asked
        .into_iter()
        .map(|mut stream| read_message(&mut stream, true).expect("an answer"))
        .collect()
}

/// Opens the gate once so many requests wait in the proxy or at the origin.
fn open_when(gate: &Gate, proxy: &Proxy, origin: &Origin, count: u64) {
    eventually("all are there", || {
        let waiting = proxy.metric("damelo_proxy_collapsed_waiting");
        waiting + origin.count() as u64 == count
    });
    gate.open();
}

#[test]
fn many_heads_of_a_cold_object_are_one_request() {
    let (origin, gate) = gated("Cache-Control: max-age=60\nETag: \"h\"\nX-Kept: yes", false);
    let proxy = Proxy::start(&origin);
    let mut asked: Vec<Asked> = (0..200).map(|_| head(&proxy, "")).collect();
    asked.push(head(&proxy, "If-None-Match: \"h\""));
    open_when(&gate, &proxy, &origin, 201);
    let mut answers = answers(asked);
    assert_eq!(answers.pop().unwrap().status(), 304, "its client has it");
    for answer in &answers {
        assert_eq!((answer.status(), answer.header("x-kept").as_str()), (200, "yes"));
        assert_eq!(answer.header("content-length"), "4", "{:?}", answer.headers);
        assert_eq!(answer.header("etag"), "\"h\"");
    }
    let collapsed = answers.iter().filter(|answer| answer.cache().contains("collapsed")).count();
    assert_eq!((collapsed, origin.count()), (199, 1));
    assert_eq!(proxy.ask("HEAD", "/", "").header("x-number"), "1", "nothing is kept");
    assert_eq!(proxy.ask("HEAD", "/", "If-None-Match: \"h\"").status(), 304);
}

#[test]
fn heads_that_are_for_one_client_are_not_shared() {
    for (index, headers) in [
        "Cache-Control: private, max-age=60",
        "Cache-Control: no-store",
        "Cache-Control: max-age=0",
        "Cache-Control: no-cache",
        "Cache-Control: max-age=60\nVary: *",
        "X-Says: nothing",
    ]
    .into_iter()
    .enumerate()
    {
        let (origin, gate) = gated(headers, false);
        let proxy = Proxy::start(&origin);
        let asked = (0..8).map(|_| head(&proxy, "")).collect();
        open_when(&gate, &proxy, &origin, 8);
        let mut numbers: Vec<_> =
            answers(asked).iter().map(|answer| answer.header("x-number")).collect();
        numbers.sort();
        numbers.dedup();
        assert_eq!((numbers.len(), origin.count()), (8, 8), "{index}: {headers}");
    }
    let (origin, gate) = gated("Cache-Control: max-age=60", false);
    let proxy = Proxy::start(&origin);
    let asked = (0..8).map(|_| head(&proxy, "Authorization: Basic YTpi")).collect();
    open_when(&gate, &proxy, &origin, 8);
    assert!(answers(asked).iter().all(|answer| !answer.cache().contains("collapsed")));
    assert_eq!(origin.count(), 8);
}

#[test]
fn heads_of_another_variant_ask_again() {
    let (first, second) = (Gate::default(), Gate::default());
    let gates = vec![first.clone(), second.clone()];
    let origin = gated_by("Cache-Control: max-age=60\nVary: Accept-Language", false, gates);
    // Of several event loops, one could still have to tell those who wait of the first answer when
    // the second comes.
    let proxy = Proxy::start_with(&origin, |config| config.workers = 1);
    let languages = ["en", "de"];
    let ask = |number: usize| head(&proxy, &format!("Accept-Language: {}", languages[number % 2]));
    let asked = (0..40).map(ask).collect();
    open_when(&first, &proxy, &origin, 40);
    // Of the other language one leads. Headers are not kept: who came later than its answer would
    // lead anew.
    eventually("the others wait again", || {
        origin.count() == 2 && proxy.metric("damelo_proxy_collapsed_waiting") == 19
    });
    second.open();
    for (number, answer) in answers(asked).iter().enumerate() {
        assert_eq!(answer.header("x-language"), languages[number % 2]);
    }
    assert_eq!(origin.count(), 2);
}

#[test]
fn heads_fetched_before_a_change_are_not_shared_after_it() {
    let (origin, gate) = gated("Cache-Control: max-age=60", false);
    let proxy = Proxy::start_with(&origin, |config| config.purge.method = true);
    let asked = (0..10).map(|_| head(&proxy, "")).collect();
    eventually("they wait", || proxy.metric("damelo_proxy_collapsed_waiting") == 9);
    assert_eq!(proxy.ask("PURGE", "/", "").status(), 200);
    gate.open();
    let shared = |answer: &&Message| answer.header("x-number") == "0";
    assert_eq!(answers(asked).iter().filter(shared).count(), 1, "the one that began before it");
}

#[test]
fn a_head_of_unknown_length_says_none() {
    let (origin, gate) = gated("Cache-Control: max-age=60", true);
    let proxy = Proxy::start(&origin);
    let asked = (0..5).map(|_| head(&proxy, "")).collect();
    let address = proxy.info.address;
    let over_http2 = std::thread::spawn(move || head_over_http2(address, "/", ""));
    open_when(&gate, &proxy, &origin, 6);
    for answer in answers(asked) {
        assert!(!answer.has("content-length"), "{:?}", answer.headers);
    }
    let answer = over_http2.join().unwrap();
    assert!(!answer.headers.contains_key("content-length"), "{:?}", answer.headers);
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_head_that_misses_fills_the_cache_where_it_is_told_to() {
    let origin = Origin::start(|request| match request.path() {
        "/own" => reply(200, "Cache-Control: no-store", "four"),
        // With a cookie it may be the page of one user.
        "/page" => reply(200, &format!("Last-Modified: {}", date(-100_000)), "four"),
        "/long" => reply(200, "Cache-Control: max-age=60", vec![7; 64 << 20]),
        path => Reply {
            chunked: path == "/chunked",
            ..reply(200, "Cache-Control: max-age=60\nETag: \"h\"", vec![7; 400_000])
        },
    });
    let proxy = Proxy::start_with(&origin, |config| config.head_as_get = true);
    let ask = |path: &str, headers: &str| {
        let mut stream = send_to(proxy.info.address, "HEAD", path, headers, b"");
        read_message(&mut stream, true).expect("an answer")
    };
    for (path, length) in [("/plain", "400000"), ("/chunked", "")] {
        let head = ask(path, "Range: bytes=0-9");
        assert_eq!((head.status(), head.header("content-length").as_str()), (200, length));
        assert!(head.cache().contains("; stored"), "{path}: {}", head.cache());
        assert!(origin.last().method() == "GET" && !origin.last().has("range"), "{path}");
        let asked = origin.count();
        let get = proxy.get(path);
        assert!(get.complete && get.body.len() == 400_000, "{path}");
        eventually("it is stored", || ask(path, "").cache().contains("; hit"));
        assert_eq!(origin.count(), asked, "{path}");
    }
    // A validation is for the store as well.
    proxy.pass_seconds(61);
    assert_eq!(ask("/plain", "").status(), 200);
    assert_eq!(
        (origin.last().method(), origin.last().header("if-none-match").as_str()),
        ("GET", "\"h\"")
    );
    assert_eq!(ask("/plain", "If-None-Match: \"h\"").status(), 304);
    // What is not stored is not fetched for nothing.
    eventually("it is known to be long", || {
        assert_eq!(ask("/long", "").header("content-length"), (64 << 20).to_string());
        origin.last().method() == "HEAD"
    });
    for (path, headers, method) in [
        ("/own", "", "GET"),
        ("/own", "", "HEAD"),
        ("/page", "Cookie: a=1", "GET"),
        ("/page", "Cookie: a=1", "HEAD"),
        ("/page", "Cookie: b=2", "HEAD"),
        ("/page", "", "GET"),
        ("/a", "Authorization: Basic eDp5", "HEAD"),
        ("/a", "Cache-Control: no-store", "HEAD"),
    ] {
        assert_eq!(ask(path, headers).status(), 200);
        assert_eq!(origin.last().method(), method, "{path} {headers}");
    }
}

#[test]
fn a_head_follows_a_get_under_way() {
    let body = vec![7; 1 << 20];
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |_| Reply {
        hold: Some((65536, held.clone())),
        ..reply(200, "Cache-Control: max-age=60", body.clone())
    });
    let proxy = Proxy::start(&origin);
    let mut get = send_to(proxy.info.address, "GET", "/", "", b"");
    read_some(&mut get, 1000);
    for _ in 0..3 {
        let head = proxy.ask("HEAD", "/", "");
        assert!(head.cache().contains("collapsed"), "{}", head.cache());
        assert_eq!(head.header("content-length"), (1 << 20).to_string());
    }
    let head = head_over_http2(proxy.info.address, "/", "");
    assert_eq!((head.body.len(), head.cache().contains("collapsed")), (0, true));
    gate.open();
    let mut rest = Vec::new();
    get.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), (1 << 20) - 1000);
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_head_over_http2_brings_no_body_whoever_answers() {
    let origin = Origin::start(|_| reply(200, "Cache-Control: max-age=60", vec![7; 1 << 20]));
    let proxy = Proxy::start(&origin);
    let address = proxy.info.address;
    let own = head_over_http2(address, "/", "another");
    assert_eq!((own.status.as_u16(), own.body.len()), (400, 0), "our own text");
    assert!(own.headers.contains_key("content-length"));
    for cache in ["fwd-status=200", "hit"] {
        let answer = head_over_http2(address, "/large", "");
        assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 0));
        assert_eq!(answer.headers["content-length"], (1 << 20).to_string());
        assert!(answer.cache().contains(cache), "{}", answer.cache());
        proxy.get("/large");
    }
}

/// What a response may not be shared for is its request's own.
#[test]
fn what_one_head_says_is_not_held_against_others() {
    for own in ["Authorization: Basic eDp5", "Cache-Control: no-store"] {
        let (open, gate) = (Gate::default(), Gate::default());
        open.open();
        let origin = gated_by("Cache-Control: max-age=60", false, vec![open, gate.clone()]);
        let proxy = Proxy::start(&origin);
        assert_eq!(answers(vec![head(&proxy, own)])[0].status(), 200);
        let asked: Vec<_> = (0..8).map(|_| head(&proxy, "")).collect();
        open_when(&gate, &proxy, &origin, 9);
        assert!(answers(asked).iter().all(|answer| answer.header("x-number") == "1"), "{own}");
        assert_eq!(origin.count(), 2, "{own}");
    }
}

/// Nor do they wait for each other when each has to ask.
#[test]
fn heads_with_credentials_do_not_queue() {
    let (open, gate) = (Gate::default(), Gate::default());
    open.open();
    let origin = gated_by("Cache-Control: max-age=60", false, vec![open, gate.clone()]);
    let proxy = Proxy::start(&origin);
    let own = "Authorization: Basic eDp5";
    assert_eq!(answers(vec![head(&proxy, own)])[0].status(), 200);
    let asked: Vec<_> = (0..4).map(|_| head(&proxy, own)).collect();
    eventually("all are asked", || origin.count() == 5);
    gate.open();
    assert_eq!(answers(asked).len(), 4);
}
