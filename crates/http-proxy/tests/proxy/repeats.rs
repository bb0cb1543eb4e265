//! What is sent on connections that were used before, and what is sent twice.

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use damelo_http_proxy::Target;

use crate::support::{Origin, Proxy, read_message, reply};

/// Answers the first request of each connection, and closes it when the second one comes: as if its
/// keep-alive had ended that moment.
fn closing_at_the_second(header: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().expect("clone"));
                read_message(&mut reader, false)?;
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{header}\r\nok");
                stream.write_all(answer.as_bytes()).ok()?;
                read_message(&mut reader, false).map(drop)
            });
        }
    });
    address
}

#[test]
fn what_cannot_be_sent_twice_goes_on_a_connection_that_lives() {
    let origin = Origin::start(|_| reply(200, "", ""));
    let start = |header| {
        let to = format!("http://{}", closing_at_the_second(header));
        Proxy::start_with(&origin, move |config| {
            (config.to, config.workers) = (Target::Url(to), 1);
        })
    };
    let proxy = start("");
    let post = || proxy.ask_with_body("POST", "/", "", b"content").status();
    for round in 0..3 {
        assert_eq!(post(), 200, "round {round}");
        // Longer than a connection counts as used this moment.
        std::thread::sleep(Duration::from_millis(1200));
    }
    // Where the origin says how long it keeps connections, nothing else is tried first either.
    let proxy = start("Keep-Alive: timeout=2, max=9\r\n");
    for _ in 0..2 {
        assert_eq!(proxy.get("/").status(), 200);
        std::thread::sleep(Duration::from_millis(1200));
    }
    assert_eq!(proxy.metric("damelo_proxy_retries_total"), 0);
}
