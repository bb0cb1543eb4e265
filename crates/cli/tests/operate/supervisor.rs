//! The proxy below a supervisor: what it tells it, and sockets that are handed down to it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{Bed, FILE, PATIENCE, Running};

#[test]
fn a_supervisor_is_told_when_it_is_ready_reloads_and_stops() {
    let bed = Bed::new();
    bed.write("p.toml", FILE);
    // A path in the temporary directory: the name of a socket is at most 107 bytes long.
    let short = TempDir::new().unwrap();
    let path = short.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut buffer = [0; 500];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let mut command = bed.command(&["proxy", "--json", "--config", "p.toml"]);
    command.env("NOTIFY_SOCKET", &path);
    let mut proxy = Running::of(&bed, command);
    assert!(told().starts_with("READY=1\nSTATUS=serving at 127.0.0.1:"));
    proxy.signal("-HUP");
    assert!(told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(told(), "READY=1");
    proxy.signal("-TERM");
    assert!(told().starts_with("STOPPING=1"));
    assert!(proxy.child.wait().unwrap().success());
}

/// A proxy to which these descriptors are handed down, as number 3 and on.
fn handed_down(bed: &Bed, descriptors: &[RawFd]) -> Command {
    handed_down_to(bed, "proxy", descriptors)
}

fn handed_down_to(bed: &Bed, which: &str, descriptors: &[RawFd]) -> Command {
    let binary = env!("CARGO_BIN_EXE_damelo");
    // `exec` keeps the process's number, which the protocol wants to be told.
    let run = format!("exec {binary} {which} --json --config p.toml");
    let mut command = Command::new("sh");
    let count = descriptors.len();
    command.args(["-c", &format!("LISTEN_PID=$$ LISTEN_FDS={count} {run}")]);
    command.current_dir(bed.0.path()).stdin(Stdio::null());
    let descriptors = descriptors.to_vec();
    let hand_down = move || {
        // First out of the way of each other: a number may be one that is to be taken.
        let high: [_; 2] = std::array::from_fn(|at| {
            // SAFETY: async-signal-safe, without pointers.
            descriptors.get(at).map(|from| unsafe { libc::fcntl(*from, libc::F_DUPFD, 100) })
        });
        for (to, from) in (3..).zip(high.into_iter().flatten()) {
            // SAFETY: as above.
            if unsafe { libc::dup2(from, to) } < 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: nothing but those calls happens between fork and exec.
    unsafe { command.pre_exec(hand_down) };
    command
}

#[test]
fn a_socket_that_was_handed_down_is_served() {
    let bed = Bed::new();
    bed.write("p.toml", FILE);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let start = || Running::of(&bed, handed_down(&bed, &[listener.as_raw_fd()]));
    let proxy = start();
    assert_eq!(proxy.url, address);
    assert!(proxy.get("/hello").starts_with("HTTP/1.1 200"));
    drop(proxy);
    // The socket outlives the process: who connects between two lives is served by the next.
    let waiting = TcpStream::connect(&address).unwrap();
    let proxy = start();
    drop(waiting);
    assert!(proxy.get("/hello").starts_with("HTTP/1.1 200"));
}

#[test]
fn sockets_that_were_handed_down_serve_the_listeners_with_their_addresses() {
    let bed = Bed::new();
    let path = bed.0.path().join("handed.socket");
    let unix = UnixListener::bind(&path).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    bed.write("p.toml", &format!("listen = [\"unix:{}\"]\n{FILE}", path.display()));
    let descriptors = [unix.as_raw_fd(), tcp.as_raw_fd()];
    let proxy = Running::of(&bed, handed_down(&bed, &descriptors));
    assert_eq!(proxy.url, address.to_string(), "the one that is left serves `from`");
    assert!(proxy.get("/hello").starts_with("HTTP/1.1 200"));
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(proxy);
    assert!(path.exists(), "its file is the supervisor's");
    bed.write("p.toml", FILE);
    // With a socket for `from` beside it, and without.
    for descriptors in [&descriptors[..], &descriptors[..1]] {
        let refused = handed_down(&bed, descriptors).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(told.contains("handed.socket") && told.contains("`listen`"), "{told}");
    }
}

/// systemd listens on all addresses where a socket unit names a port alone.
#[test]
fn a_forward_proxy_takes_no_socket_that_others_reach_unless_told() {
    let bed = Bed::new();
    bed.write("p.toml", FILE);
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let mut command = handed_down_to(&bed, "forward", &[listener.as_raw_fd()]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let refused = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{told}");
    assert!(told.contains("0.0.0.0:") && told.contains("forward.remote"), "{told}");
    assert!(!bed.0.path().join("c.damelo").exists(), "refused before a cache file is made");
}
