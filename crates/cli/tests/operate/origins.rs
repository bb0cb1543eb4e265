//! What an operator is told of origins that fail.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Bed, Running, eventually};

/// An origin that closes every connection without an answer until `answers` is set.
fn failing_origin(answers: &Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, answers) = (listener.local_addr().unwrap(), Arc::clone(answers));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            if answers.load(Ordering::SeqCst) {
                let head = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
                let _ = stream.write_all(head);
            }
        }
    });
    address
}

#[test]
fn an_only_origin_that_fails_is_told_of_once_and_that_it_answers_again() {
    let (bed, answers) = (Bed::new(), Arc::new(AtomicBool::new(false)));
    let origin = format!("http://{}", failing_origin(&answers));
    let cache = ["--cache", "c.damelo:64MiB", "--memory", "16MiB", "--from", "127.0.0.1:0"];
    let proxy = Running::start(&bed, &[&["--to", &origin], &cache[..]].concat());
    for _ in 0..7 {
        assert!(proxy.get("/").contains("detail=origin-broken"));
    }
    let failed = format!("a request to the origin {origin} failed: the origin closed");
    let said = bed.read("stderr");
    assert_eq!(said.matches(&failed).count(), 1, "{said}");
    answers.store(true, Ordering::SeqCst);
    assert!(proxy.get("/").contains("204 No Content"));
    let again = format!("the origin {origin} answers again");
    eventually("it says so", || bed.read("stderr").contains(&again));
}
