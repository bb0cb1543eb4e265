//! `damelo top`: what it prints, and what it does with a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::sync::mpsc::channel;

use serde_json::Value;

use crate::{Bed, FILE, Running, eventually};

#[test]
fn top_shows_what_is_busy() {
    let bed = Bed::new();
    bed.write("p.toml", &format!("{FILE}[admin]\nfrom = \"127.0.0.1:0\"\ntoken = \"t\"\n"));
    let proxy = Running::start(&bed, &["--config", "p.toml"]);
    for _ in 0..20 {
        proxy.get("/style.css");
    }
    proxy.get("/hello");
    let error = bed.says(4, &["top", "--admin", &proxy.admin, "--once"]);
    assert!(error.contains("401"), "{error}");
    let args = ["top", "--admin", &proxy.admin, "--token", "t"];
    let text = bed.says(2, &args);
    assert!(text.contains("--once"), "no terminal here: {text}");
    let text = bed.says(0, &[&args[..], &["--once"]].concat());
    assert!(text.contains("requests 21  hits 90.5%"), "{text}");
    assert!(text.contains("http://demo/style.css") && text.contains("95.0%"), "{text}");
    let seen: Value =
        serde_json::from_str(&bed.says(0, &[&args[..], &["--json"]].concat())).unwrap();
    assert_eq!(seen["urls"][0]["requests"], 20);
    assert_eq!(seen["hosts"][0]["name"], "demo");
    assert_eq!(seen["latency_us"]["hit"]["count"], 19);
    let long = format!("/hello?{}", "long".repeat(40));
    proxy.get(&long);
    let text = bed.says(0, &[&args[..], &["--once"]].concat());
    assert!(text.contains(&long), "what is printed is not cut to the width of a screen: {text}");
}

/// A terminal, from the side of who sits before it.
struct Terminal {
    screen: File,
    inside: OwnedFd,
    text: String,
}

impl Terminal {
    /// By `openpty` the other side would be open in all children, and never be closed.
    fn new() -> Terminal {
        let mut options = File::options();
        let options = options.read(true).write(true).custom_flags(libc::O_NOCTTY);
        let screen = options.open("/dev/ptmx").unwrap();
        let fd = screen.as_raw_fd();
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the descriptor is open, and the size lives through the call that reads it.
        let inside = unsafe {
            assert_eq!(libc::unlockpt(fd), 0);
            assert_eq!(libc::ioctl(fd, libc::TIOCSWINSZ, &raw const size), 0);
            libc::ioctl(fd, libc::TIOCGPTPEER, flags)
        };
        assert!(inside >= 0);
        // SAFETY: it was opened just now, and belongs to nobody else.
        let inside = unsafe { OwnedFd::from_raw_fd(inside) };
        Terminal { screen, inside, text: String::new() }
    }

    fn modes(&self) -> libc::tcflag_t {
        // SAFETY: a struct of zeros, which the call fills.
        let mut modes: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptor is open, and the pointer valid for the call.
        assert_eq!(unsafe { libc::tcgetattr(self.inside.as_raw_fd(), &raw mut modes) }, 0);
        modes.c_lflag & (libc::ECHO | libc::ICANON)
    }

    fn watch(&self, bed: &Bed, more: &[&str]) -> Child {
        let handle = || Stdio::from(self.inside.try_clone().unwrap());
        let mut command = bed.command(&[&["top"], more].concat());
        command.stdin(handle()).stdout(handle()).stderr(handle()).spawn().unwrap()
    }

    fn read_to(&mut self, end: &str) {
        while !self.text.contains(end) {
            let mut some = [0; 4096];
            let length = self.screen.read(&mut some).unwrap();
            self.text.push_str(&String::from_utf8_lossy(&some[..length]));
        }
    }
}

/// Of a frame.
const FRAME_END: &str = "\u{1b}[J";
/// What gives a terminal back.
const LEFT: &str = "\u{1b}[?25h\u{1b}[?1049l";

/// `timeout 60 damelo top`: a shell in raw mode on a screen of its own is of no use.
#[test]
fn a_signal_to_top_leaves_the_terminal_as_it_was() {
    let bed = Bed::new();
    bed.write("p.toml", FILE);
    let proxy = Running::start(&bed, &["--config", "p.toml"]);
    let mut terminal = Terminal::new();
    let before = terminal.modes();
    let mut top = terminal.watch(&bed, &["--admin", &proxy.admin]);
    terminal.read_to(FRAME_END);
    assert_ne!(terminal.modes(), before);
    // SAFETY: a signal to a child that was not waited for.
    unsafe { libc::kill(top.id().cast_signed(), libc::SIGTERM) };
    assert_eq!(top.wait().unwrap().signal(), Some(libc::SIGTERM));
    assert_eq!(terminal.modes(), before);
    terminal.read_to(LEFT);
}

/// A raw terminal makes no signal of Ctrl-C: who watches a proxy that hangs has nothing but keys.
#[test]
fn keys_end_top_while_the_proxy_does_not_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = listener.local_addr().unwrap().to_string();
    let (asked, is_asked) = channel();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.read(&mut [0; 4096]);
            if held.is_empty() {
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
                let _ = stream.write_all(answer);
            } else {
                let _ = asked.send(());
            }
            held.push(stream);
        }
    });
    let bed = Bed::new();
    let mut terminal = Terminal::new();
    let before = terminal.modes();
    let mut top = terminal.watch(&bed, &["--every", "1", "--admin", &admin]);
    is_asked.recv().unwrap();
    terminal.screen.write_all(b"q").unwrap();
    terminal.read_to(LEFT);
    assert!(top.wait().unwrap().success());
    assert_eq!(terminal.modes(), before);
    assert!(!terminal.text.contains("NO ANSWER"), "it waited for the proxy to fail");
}

/// It is not its controlling terminal, so that no SIGHUP ends it.
#[test]
fn top_ends_with_its_terminal() {
    let bed = Bed::new();
    bed.write("p.toml", FILE);
    let proxy = Running::start(&bed, &["--config", "p.toml"]);
    let mut terminal = Terminal::new();
    let mut top = terminal.watch(&bed, &["--admin", &proxy.admin]);
    terminal.read_to(FRAME_END);
    drop(terminal);
    eventually("it ends", || top.try_wait().unwrap().is_some());
}
