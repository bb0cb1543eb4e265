//! Fills: bodies that are large, break off, are wanted by many at once, or by nobody any more.

use std::io::{BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use damelo::ByteSize;
use damelo_http_proxy::{OriginTarget, ProxyConfig};

use crate::support::{
    Gate, Home, Message, Origin, PATIENCE, Proxy, Reply, ask_at, eventually, noise, read_message,
    read_some, reply, send_to,
};

#[test]
fn an_origin_that_dies_mid_body_is_never_stored() {
    for chunked in [false, true] {
        let broken = Arc::new(AtomicUsize::new(1));
        let left = broken.clone();
        let origin = Origin::start(move |_| {
            let mut answer = reply(200, "Cache-Control: max-age=60", noise(2, 200_000));
            answer.chunked = chunked;
            if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok() {
                answer.break_after = Some(100_000);
            }
            answer
        });
        let proxy = Proxy::start(&origin);
        let first = proxy.get("/");
        assert!(!first.complete, "the client sees that it is not all");
        let second = proxy.get("/");
        assert!(second.complete && second.cache().contains("uri-miss"), "{}", second.cache());
        let third = proxy.get("/");
        assert!(third.cache().contains("; hit"), "{}", third.cache());
        assert!(third.body == noise(2, 200_000));
    }
}

/// Without chunks or a length the end of the connection is that of the body (RFC 9112 §6.3).
#[test]
fn an_old_client_sees_that_an_answer_broke_off() {
    for (caching, break_after) in
        [("max-age=60", None), ("max-age=60", Some(300)), ("no-store", Some(300))]
    {
        let origin = Origin::start(move |_| Reply {
            chunked: true,
            break_after,
            ..reply(200, &format!("Cache-Control: {caching}"), noise(4, 1000))
        });
        let proxy = Proxy::start(&origin);
        let mut client = TcpStream::connect(proxy.info.address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(b"GET /x HTTP/1.0\r\nHost: a\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let end = client.read_to_end(&mut answer);
        match break_after {
            None => assert!(end.is_ok() && answer.ends_with(&noise(4, 1000)), "{end:?}"),
            Some(_) => assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
}

/// Such as a proxy in front that speaks HTTP/1.0, and would store half an answer as a whole one.
#[test]
fn an_old_client_sees_that_its_answer_was_cut_off() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |_| Reply {
        chunked: true,
        hold: Some((64 << 10, held.clone())),
        ..reply(200, "Cache-Control: max-age=60", noise(4, 128 << 10))
    });
    let proxy = Proxy::start_with(&origin, |config| config.timeouts.drain = Duration::ZERO);
    let mut client = TcpStream::connect(proxy.info.address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"GET /x HTTP/1.0\r\nHost: a\r\n\r\n").unwrap();
    client.read_exact(&mut [0; 1000]).unwrap();
    proxy.stop();
    let end = client.read_to_end(&mut Vec::new());
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    gate.open();
}

#[test]
fn trailers_do_not_become_headers() {
    let origin = Origin::start(|_| Reply {
        chunked: true,
        trailer: Some("X-Trailer: 1"),
        ..reply(200, "Cache-Control: max-age=60\nTrailer: X-Trailer", "body")
    });
    let proxy = Proxy::start(&origin);
    for _ in 0..2 {
        let answer = proxy.get("/");
        assert_eq!(answer.text(), "body");
        assert!(answer.complete && !answer.has("x-trailer") && !answer.has("trailer"));
    }
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_large_body_streams_through_little_memory() {
    const LENGTH: usize = 20 << 20;
    let body: Arc<[u8]> = noise(3, LENGTH).into();
    for chunked in [false, true] {
        let sent = body.clone();
        let origin = Origin::start(move |_| {
            let mut answer = reply(200, "Cache-Control: max-age=60", &*sent);
            answer.chunked = chunked;
            answer
        });
        let proxy = Proxy::start(&origin);
        let miss = proxy.get("/big");
        assert!(miss.complete && miss.body[..] == body[..]);
        for _ in 0..2 {
            let hit = proxy.get("/big");
            assert!(hit.cache().contains("; hit"), "{}", hit.cache());
            assert_eq!(hit.header("content-length"), LENGTH.to_string());
            assert!(hit.complete && hit.body[..] == body[..]);
        }
        assert_eq!(origin.count(), 1);
    }
}

/// The store of these tests has 64 MiB.
#[test]
fn a_body_that_takes_more_than_half_of_the_store_passes_by() {
    let origin = Origin::start(|request| {
        let length = if request.path() == "/small" { 1_000 } else { 40 << 20 };
        let mut answer = reply(200, "Cache-Control: max-age=60", vec![7; length]);
        answer.chunked = request.path() == "/chunked";
        answer
    });
    let proxy = Proxy::start(&origin);
    proxy.get("/small");
    let announced = proxy.get("/announced");
    assert!(announced.cache().contains("detail=too-large"), "{}", announced.cache());
    assert!(announced.complete && announced.body.len() == 40 << 20);
    for _ in 0..2 {
        let chunked = proxy.get("/chunked");
        assert!(chunked.complete && chunked.body.len() == 40 << 20);
        assert!(!chunked.cache().contains("; hit"), "{}", chunked.cache());
    }
    assert!(proxy.get("/small").cache().contains("; hit"), "it was not pushed out");
}

/// Bodies lie in sections: `object_bytes_max` (8 GiB by default) is for one of them.
#[test]
fn a_body_may_be_longer_than_the_longest_object_of_the_store() {
    let body = noise(5, 6 << 20);
    let sent = body.clone();
    let origin = Origin::start(move |_| reply(200, "Cache-Control: max-age=60", sent.clone()));
    let mut home = Home::new();
    home.object_bytes_max = Some(ByteSize::new(2 << 20));
    let url = format!("http://{}", origin.address);
    let proxy = Proxy::start_in(&home, OriginTarget::Url(url), |_| {});
    let miss = proxy.get("/big");
    assert!(miss.cache().contains("; stored"), "{}", miss.cache());
    let hit = proxy.get("/big");
    assert!(hit.cache().contains("; hit") && hit.body == body, "{}", hit.cache());
}

/// With its length announced and without, and one byte less and more.
#[test]
fn a_body_that_ends_with_a_section_abandons_nothing() {
    const SECTION_BYTES: usize = 1 << 20;
    let origin = Origin::start(|request| {
        let (chunked, length) = request.path()[1..].split_once('/').unwrap();
        let body = noise(6, length.parse().unwrap());
        let chunked = chunked == "chunked";
        Reply { chunked, ..reply(200, "Cache-Control: max-age=60", body) }
    });
    let proxy = Proxy::start(&origin);
    for sections in [1, 2, 6] {
        for length in [-1, 0, 1].map(|more| sections * SECTION_BYTES as isize + more) {
            for path in [format!("/announced/{length}"), format!("/chunked/{length}")] {
                proxy.get(&path);
                let hit = proxy.get(&path);
                assert!(hit.cache().contains("; hit"), "{path}: {}", hit.cache());
                assert!(hit.body == noise(6, length as usize), "{path}");
            }
        }
    }
    assert_eq!(proxy.store.stats().drops_abandoned, 0);
}

#[test]
fn a_hundred_clients_make_one_origin_request() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |_| {
        held.wait();
        reply(200, "Cache-Control: max-age=60", "once")
    });
    let proxy = Proxy::start_with(&origin, |config| config.timeouts.collapse = PATIENCE * 2);
    let ask = |_| send_to(proxy.info.address, "GET", "/", "", b"");
    let asking: Vec<_> = (0..100).map(ask).collect();
    eventually("one asks and the others wait", || (origin.count(), waiting(&proxy)) == (1, 99));
    gate.open();
    let read = |mut one| read_message(&mut one, false).expect("an answer");
    let answers: Vec<_> = asking.into_iter().map(read).collect();
    assert!(answers.iter().all(|a| a.status() == 200 && a.text() == "once"));
    assert_eq!(origin.count(), 1);
    let collapsed = answers.iter().filter(|a| a.cache().contains("; collapsed")).count();
    assert_eq!(collapsed, 99);
}

#[test]
fn who_shares_a_failure_counts_as_collapsed() {
    let origin = Origin::start(|_| Reply { delay: Duration::from_secs(20), ..reply(200, "", "") });
    let proxy = Proxy::start_with(&origin, |config| {
        config.timeouts.origin_header = Duration::from_millis(500)
    });
    let address = proxy.info.address;
    let clients: Vec<_> =
        (0..20).map(|_| std::thread::spawn(move || ask_at(address, "GET", "/", "", b""))).collect();
    let answers: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    assert!(answers.iter().all(|answer| answer.status() == 504));
    let collapsed = answers.iter().filter(|answer| answer.cache().contains("; collapsed")).count();
    assert!(collapsed > 0);
    assert_eq!(proxy.metric("damelo_proxy_collapsed_total"), collapsed as u64);
}

#[test]
fn uncacheable_answers_are_not_queued_for() {
    const CLIENTS: usize = 20;
    let (answer, answers) = std::sync::mpsc::channel();
    let answers = std::sync::Mutex::new(answers);
    let origin = Origin::start(move |_| {
        answers.lock().expect("lock").recv().expect("the test goes on");
        reply(200, "Cache-Control: no-store", "mine")
    });
    let proxy = Proxy::start_with(&origin, |config| config.timeouts.collapse = PATIENCE * 2);
    for round in 1..=2 {
        let ask = |_| send_to(proxy.info.address, "GET", "/", "", b"");
        let asking: Vec<_> = (0..CLIENTS).map(ask).collect();
        if round == 1 {
            eventually("one asks", || (origin.count(), waiting(&proxy)) == (1, CLIENTS as u64 - 1));
            answer.send(()).expect("it is asked");
        }
        // Before any other is answered.
        eventually("all ask at once", || origin.count() == round * CLIENTS);
        let left = if round == 1 { CLIENTS - 1 } else { CLIENTS };
        (0..left).for_each(|_| answer.send(()).expect("it is asked"));
        for mut one in asking {
            assert_eq!(read_message(&mut one, false).expect("an answer").text(), "mine");
        }
    }
}

/// Also for longer than those wait who may have what is stale.
#[test]
fn any_number_that_wait_for_a_silent_origin_make_one_request() {
    const CLIENTS: usize = 50;
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |_| {
        held.wait();
        reply(200, "Cache-Control: max-age=60", "x")
    });
    let collapse = Duration::from_millis(100);
    let proxy = Proxy::start_with(&origin, |config| config.timeouts.collapse = collapse);
    let ask = |_| send_to(proxy.info.address, "GET", "/", "", b"");
    let asking: Vec<_> = (0..CLIENTS).map(ask).collect();
    let others = CLIENTS as u64 - 1;
    eventually("one asks and the others wait", || (origin.count(), waiting(&proxy)) == (1, others));
    std::thread::sleep(collapse * 5);
    assert_eq!((origin.count(), waiting(&proxy)), (1, others));
    gate.open();
    for mut one in asking {
        assert_eq!(read_message(&mut one, false).expect("an answer").text(), "x");
    }
    assert_eq!(origin.count(), 1);
}

/// They wait for as long as if each had asked for itself.
#[test]
fn who_waits_for_a_silent_origin_has_its_failure_in_the_end() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |_| {
        held.wait();
        reply(200, "", "")
    });
    let proxy = Proxy::start_with(&origin, |config| {
        config.timeouts.collapse = Duration::from_millis(500);
        config.timeouts.origin_header = Duration::from_millis(1200);
    });
    let ask = |_| send_to(proxy.info.address, "GET", "/", "", b"");
    let asking: Vec<_> = (0..20).map(ask).collect();
    for mut one in asking {
        let said = read_message(&mut one, false).expect("an answer");
        assert_eq!(said.status(), 504);
        assert!(said.cache().contains("detail=origin-timeout"), "{}", said.cache());
    }
    assert!(origin.count() < 10, "{}", origin.count());
    gate.open();
}

#[test]
fn a_lost_client_lets_a_small_fill_finish() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |request| {
        let length = if request.path().starts_with("/small") { 1 << 20 } else { 16 << 20 };
        Reply {
            chunked: request.path().ends_with("/unknown"),
            hold: Some((64 << 10, held.clone())),
            pace: Duration::from_millis(5),
            ..reply(200, "Cache-Control: max-age=60", noise(4, length))
        }
    });
    let proxy = Proxy::start(&origin);
    for path in ["/small", "/small/unknown", "/large", "/large/unknown"] {
        let mut stream = send_to(proxy.info.address, "GET", path, "", b"");
        std::io::Read::read_exact(&mut stream, &mut [0; 1000]).unwrap();
    }
    let open = || proxy.metric("damelo_proxy_requests_open");
    eventually("the clients have left", || open() == 0);
    gate.open();
    for path in ["/small", "/small/unknown"] {
        eventually("the small fill is done", || {
            proxy.get_with(path, "Cache-Control: only-if-cached").status() == 200
        });
    }
    let gone = || proxy.metric("damelo_proxy_not_stored_total{reason=\"client-gone\"}");
    eventually("the others are not worth fetching for nobody", || gone() == 2);
    for path in ["/large", "/large/unknown"] {
        assert_eq!(proxy.get_with(path, "Cache-Control: only-if-cached").status(), 504);
    }
}

/// It brings so little that its length alone would let it go on for ever.
#[test]
fn what_has_neither_length_nor_end_is_not_fetched_for_nobody() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("http://{}", listener.local_addr().unwrap());
    let sending = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n\
            Transfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let since = std::time::Instant::now();
        while stream.write_all(b"1\r\nx\r\n").is_ok() {
            assert!(since.elapsed() < PATIENCE, "it is fetched for ever");
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let home = Home::new();
    let proxy = Proxy::start_to(&home, to, |config| {
        config.timeouts.body_idle = Duration::from_millis(500);
    });
    let mut stream = send_to(proxy.info.address, "GET", "/", "", b"");
    std::io::Read::read_exact(&mut stream, &mut [0; 100]).unwrap();
    drop(stream);
    sending.join().expect("it is given up");
}

/// RFC 8297; RFC 9110 §15.2.
#[test]
fn early_hints_go_on_before_the_answer_and_are_not_stored() {
    const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: x\r\n\r\n";
    let gates = [Gate::default(), Gate::default()];
    let held = gates.clone();
    gates[1].open();
    let origin = Origin::start(move |request| Reply {
        interim: Some((HINTS, held[usize::from(request.path() != "/held")].clone())),
        ..reply(200, "Cache-Control: max-age=60", "body")
    });
    let proxy = Proxy::start(&origin);
    let address = proxy.info.address;
    let mut stream = send_to(address, "GET", "/held", "", b"");
    // The origin has not answered yet.
    let (hint, _) = read_some(&mut stream, 0);
    assert_eq!((hint.status(), hint.header("link")), (103, "</a.css>".to_owned()));
    assert!(!hint.has("connection") && hint.header("via").contains("damelo"));
    gates[0].open();
    let (answer, body) = read_some(&mut stream, 4);
    assert_eq!((answer.status(), &*body, answer.has("link")), (200, &b"body"[..], false));
    assert_eq!(proxy.get("/held").status(), 200, "a hit has none");

    // Many on one connection, hint and answer together: each in its place.
    let mut all = TcpStream::connect(address).unwrap();
    let request = |number| format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", number / 2);
    all.write_all((0..20).map(request).collect::<String>().as_bytes()).unwrap();
    let mut all = BufReader::new(all);
    for number in 0..20 {
        if number % 2 == 0 {
            assert_eq!(read_some(&mut all, 0).0.status(), 103, "{number}");
        }
        let (answer, body) = read_some(&mut all, 4);
        assert_eq!((answer.status(), &*body), (200, &b"body"[..]), "{number}");
    }

    let mut old = TcpStream::connect(address).unwrap();
    old.write_all(b"GET /old HTTP/1.0\r\n\r\n").unwrap();
    let (answer, _) = read_some(&mut BufReader::new(old), 4);
    assert_eq!(answer.status(), 200, "HTTP/1.0 knows of no interim answers");
}

/// An origin that hangs up at the second request of its first connection without an answer, so that
/// it is sent again.
#[test]
fn early_hints_go_on_when_the_request_is_sent_again() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    std::thread::spawn(move || {
        for (answers, stream) in [1, usize::MAX].into_iter().zip(listener.incoming().flatten()) {
            let mut reader = BufReader::new(stream);
            for number in 0.. {
                let request = read_message(&mut reader, false);
                if request.is_none() || number == answers {
                    break;
                }
                let answer = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
                    HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
                reader.get_mut().write_all(answer).expect("write");
            }
        }
    });
    let home = Home::new();
    let proxy = Proxy::start_to(&home, url, |config| config.workers = 1);
    for path in ["/first", "/second"] {
        let mut stream = send_to(proxy.info.address, "GET", path, "", b"");
        assert_eq!(read_some(&mut stream, 0).0.status(), 103, "{path}");
        assert_eq!(read_some(&mut stream, 2).0.status(), 200, "{path}");
    }
    assert_eq!(proxy.metric("damelo_proxy_retries_total"), 1);
}

/// An origin that sends so many bytes of `answer` as the path says, and hangs up.
fn cut_off(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().expect("clone"));
            let Some(request) = read_message(&mut reader, false) else { continue };
            let sent: usize = request.path()[1..].parse().expect("a number of bytes");
            // The proxy may have hung up already.
            let _ = stream.write_all(&answer[..sent]);
        }
    });
    url
}

#[test]
fn an_origin_that_fails_at_any_byte_never_looks_whole() {
    let announced = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 9\r\n\r\n\
        some text";
    let chunked =
        b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n\
        4\r\nsome\r\n5;x=y\r\n text\r\n0\r\n\r\n";
    for answer in [&announced[..], &chunked[..]] {
        let home = Home::new();
        let proxy = Proxy::start_in(&home, OriginTarget::Url(cut_off(answer)), |_| {});
        for sent in 0..=answer.len() {
            let path = format!("/{sent}");
            let mut stream = send_to(proxy.info.address, "GET", &path, "", b"");
            // The connection may end without a word.
            let got = read_message(&mut stream, false).unwrap_or_default();
            let whole = sent == answer.len();
            assert_eq!(got.complete && got.status() == 200, whole, "after {sent} bytes");
            assert!(whole || got.status() == 502 || !got.complete, "after {sent}: {got:?}");
            let stored = proxy.get_with(&path, "Cache-Control: only-if-cached").status() == 200;
            assert_eq!(stored, whole, "after {sent} bytes");
        }
    }
}

/// Nothing was sent yet, so that the proxy can still say 502. Where the end comes later than the
/// head, the client gets the head at least: an answer without a word is one that clients ask for
/// again by themselves (RFC 9112 §9.3.1).
#[test]
fn an_origin_that_hangs_up_after_its_head_is_told_of() {
    let head = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 9\r\n\r\n";
    let home = Home::new();
    let proxy = Proxy::start_in(&home, OriginTarget::Url(cut_off(head)), |_| {});
    let path = format!("/{}", head.len());
    let mut failures = 0;
    for round in 0..40 {
        let method = if round % 2 == 0 { "GET" } else { "POST" };
        let mut stream = send_to(proxy.info.address, method, &path, "", b"");
        let got = read_message(&mut stream, false).expect("a status line");
        assert!(got.status() == 502 || !got.complete, "{got:?}");
        failures += usize::from(got.status() == 502);
    }
    assert!(failures > 0, "both come at once now and then");
}

#[test]
fn a_store_that_fails_midway_costs_a_slow_client_nothing() {
    let body = noise(5, 24 << 20);
    let (gate, sent) = (Gate::default(), body.clone());
    let held = gate.clone();
    let origin = Origin::start(move |_| Reply {
        hold: Some((2 << 20, held.clone())),
        ..reply(200, "Cache-Control: max-age=60", sent.clone())
    });
    let proxy = Proxy::start(&origin);
    let mut stream = send_to(proxy.info.address, "GET", "/", "", b"");
    let (_, mut read) = read_some(&mut stream, 1 << 20);
    proxy.store.clone().close().expect("closed");
    gate.open();
    // Meanwhile more comes than sockets and the proxy hold for it.
    std::thread::sleep(Duration::from_millis(500));
    stream.read_to_end(&mut read).expect("the rest");
    assert!(read == body, "{} of {} bytes", read.len(), body.len());
}

/// An answer that is none.
fn nonsense() -> Reply {
    let gate = Gate::default();
    gate.open();
    Reply { interim: Some(("this is not HTTP\r\n\r\n", gate)), ..reply(200, "", "") }
}

fn waiting(proxy: &Proxy) -> u64 {
    proxy.metric("damelo_proxy_collapsed_waiting")
}

/// Has those who wait told of one failure before the next one is asked for: one event loop wakes
/// them in turn, and has waited for a new connection to the origin by then. Of several, one could
/// still wait for the first when the second has failed.
fn one_after_the_other(config: &mut ProxyConfig) {
    config.workers = 1;
    config.timeouts.collapse = PATIENCE * 2;
}

/// As an origin may break off for the headers that one client sends.
#[test]
fn a_failure_that_may_be_one_clients_own_is_not_told_to_those_who_wait() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |request| {
        if !request.has("x-bad") {
            return reply(200, "Cache-Control: max-age=60", "sound");
        }
        held.wait();
        nonsense()
    });
    let proxy = Proxy::start(&origin);
    let ask = |headers| send_to(proxy.info.address, "GET", "/", headers, b"");
    let mut first = ask("X-Bad: 1");
    eventually("it leads", || origin.count() == 1);
    let others: Vec<_> = (0..4).map(|_| ask("")).collect();
    eventually("all others wait", || waiting(&proxy) == 4);
    gate.open();
    assert_eq!(read_message(&mut first, false).expect("an answer").status(), 502);
    for mut other in others {
        assert_eq!(read_message(&mut other, false).expect("an answer").text(), "sound");
    }
    assert_eq!(origin.count(), 2);
}

/// One after the other finds out, and then all know: what fails for each is not asked for by all.
#[test]
fn an_origin_that_fails_for_each_is_asked_by_three() {
    let (answer, answers) = std::sync::mpsc::channel();
    let answers = std::sync::Mutex::new(answers);
    let origin = Origin::start(move |_| {
        answers.lock().expect("lock").recv().expect("the test goes on");
        nonsense()
    });
    let proxy = Proxy::start_with(&origin, one_after_the_other);
    let asking: Vec<_> = (0..8).map(|_| send_to(proxy.info.address, "GET", "/", "", b"")).collect();
    for round in 1..=3 {
        eventually("one asks and the others wait", || {
            (origin.count(), waiting(&proxy)) == (round, 8 - round as u64)
        });
        answer.send(()).expect("it is asked");
    }
    for mut one in asking {
        let said = read_message(&mut one, false).expect("an answer");
        assert_eq!(said.status(), 502);
        assert!(said.cache().contains("detail=origin-broken"), "{}", said.cache());
    }
    assert_eq!(origin.count(), 3);
}

/// Or it would have all who wait at once when it says that it has too much to do.
#[test]
fn an_origin_with_an_error_for_each_is_asked_by_three() {
    for (method, headers) in [("GET", ""), ("GET", "Range: bytes=0-9"), ("HEAD", "")] {
        let (answer, answers) = std::sync::mpsc::channel();
        let answers = std::sync::Mutex::new(answers);
        let origin = Origin::start(move |_| {
            answers.lock().expect("lock").recv().expect("the test goes on");
            reply(503, "Retry-After: 7", "its own words")
        });
        let proxy = Proxy::start_with(&origin, |config| {
            one_after_the_other(config);
            config.caching.slice_bytes = 256 << 10;
        });
        let ask = |_| send_to(proxy.info.address, method, "/", headers, b"");
        let asking: Vec<_> = (0..8).map(ask).collect();
        for round in 1..=3 {
            eventually("one asks and the others wait", || {
                (origin.count(), waiting(&proxy)) == (round, 8 - round as u64)
            });
            answer.send(()).expect("it is asked");
        }
        let read = |mut one: BufReader<TcpStream>| read_message(&mut one, method == "HEAD");
        let answers: Vec<_> = asking.into_iter().map(|one| read(one).expect("an answer")).collect();
        let is_error =
            |answer: &Message| (answer.status(), &*answer.header("retry-after")) == (503, "7");
        assert!(answers.iter().all(is_error), "{answers:?}");
        let told = answers.iter().filter(|a| a.cache().contains("detail=origin-error")).count();
        assert_eq!((origin.count(), told), (3, 5), "{method} {headers}");
    }
}

/// It says nothing of the others, who find out for themselves.
#[test]
fn that_one_client_asks_too_often_is_not_told_to_those_who_wait() {
    for status in [408, 425, 429] {
        let gate = Gate::default();
        let held = gate.clone();
        let origin = Origin::start(move |_| {
            held.wait();
            reply(status, "", "its own words")
        });
        let proxy = Proxy::start(&origin);
        let ask = |_| send_to(proxy.info.address, "GET", "/", "", b"");
        let asking: Vec<_> = (0..8).map(ask).collect();
        eventually("one asks and the others wait", || (origin.count(), waiting(&proxy)) == (1, 7));
        gate.open();
        for mut one in asking {
            let answer = read_message(&mut one, false).expect("an answer");
            assert_eq!((answer.status(), answer.text().as_str()), (status, "its own words"));
        }
    }
}

/// The client's own limit, `timeouts.client_write`, is the only one that there is for it: here it
/// reads, but not enough for a new piece to fit into the socket.
#[test]
fn a_slow_client_whose_answer_nobody_else_can_have_gets_all_of_it() {
    let body = noise(61, 12 << 20);
    let new = body.clone();
    let origin = Origin::start(move |request| match request.has("if-none-match") {
        true => reply(200, "Cache-Control: max-age=60\nETag: \"new\"", new.clone()),
        false => reply(200, "Cache-Control: max-age=60\nETag: \"old\"", "old"),
    });
    let limit = Duration::from_millis(200);
    let proxy = Proxy::start_with(&origin, |config| config.timeouts.body_idle = limit);
    proxy.get("/");
    let mut slow = send_to(proxy.info.address, "GET", "/", "Cache-Control: no-cache", b"");
    eventually("the new one comes", || origin.count() == 2);
    std::thread::sleep(limit * 5);
    let got = read_message(&mut slow, false).expect("an answer");
    assert!(got.complete && got.body[..] == body[..], "{} bytes", got.body.len());
}

/// RFC 9110 §13.2.1: who is told that nothing has changed takes none of the body. What is long is
/// not fetched for nobody, and the next one who asks so has the origin answer it.
#[test]
fn what_is_long_is_not_fetched_for_who_has_it() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |request| {
        let caching = "Cache-Control: max-age=60\nETag: \"v1\"";
        if request.has("if-none-match") {
            return reply(304, caching, "");
        }
        let length_bytes = if request.path() == "/short" { 100_000 } else { 4 << 20 };
        let chunked = request.path() == "/unknown";
        let hold = (request.path() != "/short").then(|| (2 << 20, held.clone()));
        Reply { hold, chunked, ..reply(200, caching, noise(9, length_bytes)) }
    });
    let proxy = Proxy::start_with(&origin, |config| config.fill.finish_bytes_max = 1 << 20);
    let gone = || proxy.metric("damelo_proxy_not_stored_total{reason=\"client-gone\"}");
    for (given_up, path) in [(1, "/long"), (2, "/unknown")] {
        let first = proxy.get_with(path, "If-None-Match: \"v1\"");
        assert_eq!(first.status(), 304);
        assert!(!origin.last().has("if-none-match"), "what comes could be stored");
        eventually("the fill is given up", || gone() == given_up);
        assert_eq!(proxy.get_with(path, "If-None-Match: \"v1\"").status(), 304);
        assert!(origin.last().has("if-none-match"), "{path}");
    }
    gate.open();
    let whole = proxy.get("/long");
    assert!(whole.complete && whole.body == noise(9, 4 << 20));
    eventually("it is stored", || proxy.get("/long").cache().contains("; hit"));
    assert!(proxy.get_with("/long", "If-None-Match: \"v1\"").cache().contains("; hit"));
    assert_eq!(proxy.get_with("/short", "If-None-Match: \"v1\"").status(), 304);
    eventually("what is short is stored", || proxy.get("/short").cache().contains("; hit"));
    assert_eq!(gone(), 2);
    // Somebody has fetched it since.
    proxy.ask_with_body("POST", "/long", "", b"x");
    assert_eq!(proxy.get_with("/long", "If-None-Match: \"v1\"").status(), 304);
    assert!(!origin.last().has("if-none-match"), "it is fetched for all again");
}

/// RFC 9111 §5.2.2.4: each has it validated, so that it is of no use before its end, which may be
/// far.
#[test]
fn nobody_waits_for_the_end_of_what_is_long_and_validated_by_each() {
    for (chunked, caching, wishes) in [
        (false, "no-cache", ""),
        (false, "max-age=0", ""),
        (true, "no-cache", ""),
        (false, "max-age=60", "Cache-Control: max-age=0"),
    ] {
        let gate = Gate::default();
        let held = gate.clone();
        let origin = Origin::start(move |_| {
            let headers = format!("Cache-Control: {caching}\nETag: \"v1\"");
            let hold = Some((128 << 10, held.clone()));
            Reply { hold, chunked, ..reply(200, &headers, noise(8, 4 << 20)) }
        });
        let proxy = Proxy::start_with(&origin, |config| {
            config.timeouts.collapse = Duration::from_secs(3600);
        });
        let mut first = send_to(proxy.info.address, "GET", "/", "", b"");
        assert_eq!(read_some(&mut first, 1000).0.status(), 200);
        proxy.pass_seconds(2);
        let mut second = send_to(proxy.info.address, "GET", "/", wishes, b"");
        eventually("it is asked for at once", || origin.count() == 2);
        gate.open();
        let second = read_message(&mut second, false).expect("an answer");
        assert!(second.complete && second.body == noise(8, 4 << 20), "{caching}");
    }
}
