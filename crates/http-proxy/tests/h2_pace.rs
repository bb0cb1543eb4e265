//! HTTP/2 clients that take their time: slow, stalled, idle or asleep, while the proxy runs and
//! while it stops.

mod support;

use std::io::{BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use support::frames::{
    DATA, END_HEADERS, END_STREAM, GET_BLOCK, GET_OTHER_BLOCK, GOAWAY, HEADERS, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, frame, http2_raw, next_frame, request, window,
};
use support::wire::{ask_http2, block_on, http2_to};
use support::{Gate, Home, Nobody, Origin, PATIENCE, Proxy, eventually, read_message, reply};

fn hello() -> Origin {
    Origin::start(|_| reply(200, "Cache-Control: max-age=60", "hello"))
}

/// One stream that stands still is reset, and others on its connection go on.
#[test]
fn an_http2_stream_whose_client_takes_nothing_is_reset() {
    let origin = Origin::start(|request| match request.path() {
        "/" => reply(200, "Cache-Control: max-age=60", vec![7; 4 << 20]),
        _ => reply(200, "Cache-Control: max-age=60", "hello"),
    });
    let proxy = Proxy::start_with(&origin, |config| {
        config.timeouts.client_write = Duration::from_secs(2);
        config.admin.from = Some("127.0.0.1:0".parse().expect("an address"));
    });
    assert_eq!(proxy.get("/").body.len(), 4 << 20);
    let mut stream = http2_raw(proxy.info.address);
    stream.write_all(&request(1, GET_BLOCK)).expect("write");
    // The connection has room, the stream has not.
    stream.write_all(&window(0, 1 << 20)).expect("write");
    let (mut next, mut bytes) = (3, 0);
    let since = Instant::now();
    loop {
        let ask = request(next, GET_OTHER_BLOCK);
        stream.write_all(&ask).expect("the connection goes on");
        let answered = loop {
            let read = next_frame(&mut stream).expect("the connection goes on");
            match (read.kind, read.stream) {
                (RST_STREAM, 1) => break false,
                // The stream never gets more room than its first 64 KiB.
                (DATA, 1) => bytes += read.payload.len(),
                (HEADERS, id) if id == next => break true,
                _ => {}
            }
        };
        if !answered {
            break;
        }
        next += 2;
        assert!(since.elapsed() < support::PATIENCE, "it is never reset");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(bytes < 100_000, "{bytes} bytes");
    // The other one that was asked for meanwhile, as those before.
    let mut read = next_frame(&mut stream).expect("the connection goes on");
    while (read.kind, read.stream) != (HEADERS, next) {
        read = next_frame(&mut stream).expect("the connection goes on");
    }
    eventually("the request ends", || proxy.metric("damelo_proxy_requests_open") == 0);
    assert_eq!(proxy.metric("damelo_proxy_client_timeouts_total"), 1);
}

/// The whole answer was at hand and given away, to a client that had no room for it.
#[test]
fn a_short_answer_that_no_http2_client_takes_is_one_that_broke_off() {
    let origin = hello();
    let proxy = Proxy::start_with(&origin, |config| {
        config.timeouts.client_write = Duration::from_millis(300);
        config.admin.from = Some("127.0.0.1:0".parse().expect("an address"));
    });
    assert_eq!(proxy.get("/").text(), "hello");
    let mut stream = http2_raw(proxy.info.address);
    let no_room = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    stream.write_all(&[no_room, request(1, GET_BLOCK)].concat()).expect("write");
    loop {
        let read = next_frame(&mut stream).expect("the connection goes on");
        match (read.kind, read.stream) {
            (RST_STREAM, 1) => break,
            (DATA, 1) => panic!("there was no room"),
            _ => {}
        }
    }
    let broken = "damelo_proxy_answers_broken_total{by=\"client\"}";
    eventually("it is counted", || proxy.metric(broken) == 1);
    assert_eq!(proxy.metric("damelo_proxy_client_timeouts_total"), 1);
}

/// Takes frames of stream 1 to the end of the stream, or until `until`: bytes of its body, and
/// whether it ended as it should. Makes room for `room_bytes` more after each frame of the body.
fn take(
    stream: &mut TcpStream,
    room_bytes: usize,
    pause: Duration,
    until: Instant,
) -> (usize, bool) {
    let mut bytes = 0;
    while Instant::now() < until {
        let read = next_frame(stream).expect("the connection goes on");
        match (read.kind, read.stream) {
            (RST_STREAM, 1) => return (bytes, false),
            (DATA, 1) => bytes += read.payload.len(),
            _ => continue,
        }
        if read.ends_stream() {
            return (bytes, true);
        }
        std::thread::sleep(pause);
        let room = [window(0, room_bytes), window(1, room_bytes)].concat();
        stream.write_all(&room).expect("the connection goes on");
    }
    (bytes, true)
}

/// It takes something all the time, but less within the limit than the proxy has at hand.
#[test]
fn a_slow_but_steady_http2_client_is_served() {
    let origin = Origin::start(|_| reply(200, "Cache-Control: max-age=60", vec![7; 4 << 20]));
    let limit = Duration::from_secs(3);
    let proxy = Proxy::start_with(&origin, |config| config.timeouts.client_write = limit);
    assert_eq!(proxy.get("/").body.len(), 4 << 20);
    let mut stream = http2_raw(proxy.info.address);
    stream.write_all(&request(1, GET_BLOCK)).expect("write");
    let until = Instant::now() + limit * 2;
    let (bytes, whole) = take(&mut stream, 16 << 10, limit / 20, until);
    assert!(whole && bytes > 100_000, "{bytes} bytes");
    assert_eq!(proxy.metric("damelo_proxy_client_timeouts_total"), 0);
}

/// The one stands still, the other waits for the origin: longer than a client may stand still.
#[test]
fn an_http2_stream_that_stands_still_leaves_others_alone() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |request| {
        if request.path() == "/other" {
            held.wait();
        }
        reply(200, "Cache-Control: max-age=60", vec![7; 4 << 20])
    });
    let limit = Duration::from_secs(1);
    let proxy = Proxy::start_with(&origin, |config| config.timeouts.client_write = limit);
    assert_eq!(proxy.get("/").body.len(), 4 << 20);
    let mut stream = http2_raw(proxy.info.address);
    // A third, which is cancelled, has stood still for a part of the time.
    stream.write_all(&request(1, GET_BLOCK)).expect("write");
    std::thread::sleep(limit / 2);
    let cancel = frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]);
    let ask = [cancel, request(3, GET_BLOCK), request(5, GET_OTHER_BLOCK), window(0, 1 << 20)];
    stream.write_all(&ask.concat()).expect("write");
    let mut reader = stream.try_clone().expect("clone");
    std::thread::scope(|scope| {
        loop {
            let read = next_frame(&mut reader).expect("the connection goes on");
            match (read.kind, read.stream) {
                (RST_STREAM, 3) => drop(scope.spawn(|| {
                    std::thread::sleep(limit);
                    gate.open();
                })),
                (HEADERS, 5) => break,
                _ => {}
            }
        }
    });
}

/// The URL of an origin that takes nothing of what is sent to `/`, and answers all else.
fn deaf_at_one_path() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("an address");
    let serve = |stream: TcpStream| {
        let mut seen = [0; 7];
        while stream.peek(&mut seen).expect("a request") < seen.len() {
            std::thread::yield_now();
        }
        if &seen == b"POST / " {
            return std::thread::sleep(support::PATIENCE);
        }
        let mut stream = BufReader::new(stream);
        while read_message(&mut stream, false).is_some() {
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            stream.get_mut().write_all(answer).expect("answer");
        }
    };
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || serve(stream.expect("a connection")));
        }
    });
    format!("http://{address}")
}

/// What an origin does not take of one upload must not fill the room of the others.
#[test]
fn an_http2_upload_that_stands_still_leaves_others_alone() {
    let home = Home::new();
    let proxy = Proxy::start_to(&home, deaf_at_one_path(), |_| {});
    block_on(async {
        let mut sender = http2_to(proxy.info.address).await;
        let upload = |path: &str, bytes: usize| {
            let body = Full::new(Bytes::from(vec![7; bytes]));
            Request::post(format!("http://a{path}")).body(body).expect("a request")
        };
        // More than all sockets on its way hold.
        let deaf = sender.send_request(upload("/", 64 << 20));
        let others = async {
            for _ in 0..50 {
                let answer = ask_http2(&mut sender.clone(), upload("/other", 100 << 10)).await;
                assert_eq!(answer.status, StatusCode::OK);
            }
        };
        tokio::select! {
            _ = deaf => panic!("it is never answered"),
            () = others => {}
        }
    });
}

/// RFC 9113 §6.8: it is told before it is closed, so that its client knows what may be sent again.
#[test]
fn an_idle_http2_connection_is_told_and_closed() {
    let origin = hello();
    let proxy = Proxy::start_with(&origin, |config| {
        config.timeouts.client_idle = Duration::from_millis(300);
    });
    for asks in [false, true] {
        let mut stream = http2_raw(proxy.info.address);
        if asks {
            stream.write_all(&request(1, GET_BLOCK)).expect("write");
        }
        let mut kinds = Vec::new();
        while let Some(read) = next_frame(&mut stream) {
            kinds.push(read.kind);
        }
        assert_eq!((kinds.contains(&GOAWAY), kinds.contains(&HEADERS)), (true, asks), "{kinds:?}");
    }
}

/// Its client has not heard that the connection ends.
#[test]
fn a_request_on_its_way_to_an_idle_http2_connection_is_answered() {
    let origin = hello();
    let proxy = Proxy::start_with(&origin, |config| {
        config.timeouts.client_idle = Duration::from_millis(100);
    });
    let is_answered = |_| {
        let mut stream = http2_raw(proxy.info.address);
        while next_frame(&mut stream).expect("the connection goes on").kind != GOAWAY {}
        // To a satellite and back.
        std::thread::sleep(Duration::from_millis(600));
        let _ = stream.write_all(&request(1, GET_BLOCK));
        let mut ended = false;
        while let Some(read) = next_frame(&mut stream) {
            ended |= read.stream == 1 && read.ends_stream();
        }
        ended
    };
    // On a busy machine its time may have passed.
    assert!((0..5).any(is_answered), "it is closed over the request");
}

/// A client that was answered long ago, or just now, and is asleep.
#[test]
fn a_proxy_that_stops_does_not_wait_for_a_silent_http2_client() {
    for ago in [Duration::from_millis(1500), Duration::from_millis(300)] {
        let origin = hello();
        let drain = Duration::from_secs(120);
        let proxy = Proxy::start_with(&origin, |config| config.timeouts.drain = drain);
        let mut stream = http2_raw(proxy.info.address);
        stream.write_all(&request(1, GET_BLOCK)).expect("write");
        while next_frame(&mut stream).expect("an answer").kind != HEADERS {}
        std::thread::sleep(ago);
        let start = Instant::now();
        proxy.stop();
        assert!(start.elapsed() < drain / 2, "{:?} after {ago:?}", start.elapsed());
        drop(stream);
    }
}

/// It has taken all but the end of its answer, and takes that after a while.
#[test]
fn a_proxy_that_stops_delivers_the_ends_of_answers() {
    const LENGTH: usize = 200_000;
    const END: usize = 10_000;
    let origin = Origin::start(|_| reply(200, "Cache-Control: max-age=60", vec![7; LENGTH]));
    let proxy = Proxy::start_with(&origin, |config| config.timeouts.drain = PATIENCE);
    assert_eq!(proxy.get("/").body.len(), LENGTH);
    let mut stream = http2_raw(proxy.info.address);
    let room = [window(0, LENGTH), window(1, LENGTH - END - 65_535)].concat();
    stream.write_all(&[request(1, GET_BLOCK), room].concat()).expect("write");
    let mut bytes = 0;
    let mut took = |stream: &mut TcpStream, enough: usize| {
        while bytes < enough {
            let read = next_frame(stream).unwrap_or_else(|| panic!("closed after {bytes}"));
            bytes += if read.kind == DATA { read.payload.len() } else { 0 };
        }
    };
    took(&mut stream, LENGTH - END);
    // Longer than a connection without requests is waited for.
    std::thread::sleep(Duration::from_millis(1200));
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| proxy.stop());
        std::thread::sleep(Duration::from_millis(700));
        stream.write_all(&window(1, END)).expect("write");
        took(&mut stream, LENGTH);
        drop(stream);
        stopping.join().expect("stopped");
    });
}

/// The system has all of its answer, and it takes that with the windows that it opens meanwhile: of
/// a socket that is closed by then, they would have the system throw the rest away. `PING` is the
/// one that tells that it has seen the end coming.
#[test]
fn a_proxy_that_stops_delivers_what_the_system_holds() {
    const PONG: &[u8] = b"\0\0\x08\x06\x01\0\0\0\0\x0b\x7b\xa2\xf0\x8b\x9b\xfe\x54";
    for sees_it_coming in [true, false] {
        let origin = Origin::start(|_| reply(200, "Cache-Control: max-age=60", vec![7; HELD]));
        let proxy = Proxy::start_with(&origin, |config| config.timeouts.drain = PATIENCE);
        let mut stream = asks_and_takes_little(&proxy);
        std::thread::sleep(Duration::from_millis(300));
        std::thread::scope(|scope| {
            let stopping = scope.spawn(|| proxy.stop());
            std::thread::sleep(Duration::from_millis(300));
            if sees_it_coming {
                stream.write_all(PONG).expect("write");
            }
            // Longer than a connection without requests is waited for.
            std::thread::sleep(Duration::from_millis(1500));
            takes_the_rest(&mut stream);
            drop(stream);
            stopping.join().expect("stopped");
        });
    }
}

/// However long ago its last request was.
#[test]
fn a_connection_that_nobody_uses_delivers_what_the_system_holds() {
    const IDLE: Duration = Duration::from_secs(3);
    let origin = Origin::start(|_| reply(200, "Cache-Control: max-age=60", vec![7; HELD]));
    let proxy = Proxy::start_with(&origin, |config| {
        config.timeouts.client_idle = IDLE;
        config.timeouts.client_header = IDLE;
    });
    let mut stream = asks_and_takes_little(&proxy);
    // It ends after that time, once the client had a second to see it coming.
    std::thread::sleep(IDLE + Duration::from_millis(1500));
    takes_the_rest(&mut stream);
}

/// Length of an answer of which the client's system takes little, and the proxy's holds the rest.
const HELD: usize = 400_000;

fn asks_and_takes_little(proxy: &Proxy) -> TcpStream {
    assert_eq!(proxy.get("/").body.len(), HELD);
    let mut stream = support::wire::connect_with_little_room(proxy.info.address);
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("write");
    let begin = [frame(SETTINGS, 0, 0, b""), window(0, HELD), request(1, GET_BLOCK)];
    stream.write_all(&[&begin.concat()[..], &window(1, HELD)].concat()).expect("write");
    stream
}

fn takes_the_rest(stream: &mut TcpStream) {
    let (mut bytes, mut ended) = (0, false);
    while !ended {
        // Later than the connection would be closed, and before all was taken.
        let _ = stream.write_all(&window(0, 1000));
        let read = next_frame(stream).unwrap_or_else(|| panic!("closed after {bytes}"));
        bytes += if read.kind == DATA { read.payload.len() } else { 0 };
        ended = read.stream == 1 && read.ends_stream();
    }
    assert_eq!(bytes, HELD);
}

/// A request with a body to come, which nobody wants: its answer is there, and has been read.
fn answered_before_its_body(proxy: &Proxy) -> TcpStream {
    const POST_BLOCK: &[u8] = b"\x83\x86\x84\x41\x01a";
    let mut stream = http2_raw(proxy.info.address);
    stream.write_all(&frame(HEADERS, END_HEADERS, 1, POST_BLOCK)).expect("write");
    stream.write_all(&frame(DATA, 0, 1, b"x")).expect("write");
    loop {
        let next = next_frame(&mut stream).expect("an answer");
        assert_ne!(next.kind, RST_STREAM);
        if next.ends_stream() {
            return stream;
        }
    }
}

/// Clients take a reset right behind an answer for a failure, and some read no answer before all of
/// their body is sent.
#[test]
fn what_still_comes_on_a_stream_that_was_answered_is_read() {
    let (home, nobody) = (Home::new(), Nobody::new());
    let proxy = Proxy::start_to(&home, nobody.url(), |config| {
        config.timeouts.client_header = PATIENCE;
    });
    let mut stream = answered_before_its_body(&proxy);
    // Most of the window of 64 KiB that counts while no settings are acknowledged.
    for _ in 0..3 {
        stream.write_all(&frame(DATA, 0, 1, &[b'x'; 16 << 10])).expect("write");
    }
    let mut next = next_frame(&mut stream).expect("a frame");
    while (next.kind, next.stream) != (WINDOW_UPDATE, 1) {
        assert_ne!(next.kind, RST_STREAM);
        next = next_frame(&mut stream).expect("a frame");
    }
    stream.write_all(&frame(DATA, END_STREAM, 1, b"x")).expect("write");
    stream.write_all(&request(3, GET_BLOCK)).expect("write");
    while !next.ends_stream() {
        assert_ne!(next.kind, RST_STREAM, "of stream {}", next.stream);
        next = next_frame(&mut stream).expect("a frame");
    }
}

#[test]
fn who_goes_on_sending_on_a_stream_that_was_answered_is_told_to_stop() {
    let (home, nobody) = (Home::new(), Nobody::new());
    let proxy = Proxy::start_to(&home, nobody.url(), |config| {
        config.timeouts.client_header = Duration::from_secs(1);
    });
    let mut stream = answered_before_its_body(&proxy);
    let mut next = next_frame(&mut stream).expect("a frame");
    while next.kind != RST_STREAM {
        next = next_frame(&mut stream).expect("a frame");
    }
    assert_eq!((next.stream, &next.payload[..]), (1, &[0; 4][..]), "NO_ERROR");
}
