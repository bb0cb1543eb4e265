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

/// The URL of an origin that says its name.
fn named_origin(name: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            let head = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nConnection: close\r\n";
            let _ = write!(stream, "{head}Content-Length: {}\r\n\r\n{name}", name.len());
        }
    });
    format!("http://{address}")
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

#[test]
fn another_origin_wants_a_cache_that_is_not_named_after_the_former_one() {
    let bed = Bed::new();
    let file = |to: &str, cache: &str| {
        format!("from = \"127.0.0.1:0\"\nto = \"{to}\"\n{cache}memory = \"16MiB\"\nworkers = 1\n")
    };
    let urls = [named_origin("first"), named_origin("second")];
    bed.write("p.toml", &file(&urls[0], ""));
    let mut command = bed.command(&["proxy", "--json", "--config", "p.toml"]);
    command.env("XDG_CACHE_HOME", bed.0.path());
    let proxy = Running::of(&bed, command);
    assert!(proxy.get("/a").ends_with("first"));
    bed.write("p.toml", &file(&urls[1], ""));
    proxy.signal("-HUP");
    eventually("it is refused", || bed.read("stderr").contains("set `cache`, or restart"));
    assert!(proxy.get("/b").ends_with("first"), "nothing changed");
    bed.write("p.toml", &file(&urls[1], "cache = \"c:64MiB\"\n"));
    proxy.signal("-HUP");
    eventually("it is taken", || proxy.get("/b").ends_with("second"));
    bed.write("p.toml", &file("demo", "cache = \"c:64MiB\"\n"));
    proxy.signal("-HUP");
    eventually("the demo waits", || bed.read("stderr").contains("`to` has changed, which takes"));
    assert!(proxy.get("/b").ends_with("second"));
}
