//! The interface to a supervisor such as systemd: sockets handed down (`LISTEN_FDS`) and service
//! state (`NOTIFY_SOCKET`).
//!
//! Without a supervisor every function is a no-op. Threads: any; each message is one datagram.

use std::env;
use std::io;
use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::sync::Arc;
use std::time::Duration;

use damelo_http_proxy::{Inherited, say};

use crate::failure::Failure;

/// The first descriptor that is handed down (sd_listen_fds(3)).
const FIRST_FD: RawFd = 3;

/// Reports the service's state to the supervisor, if there is one: `READY=1`, `STOPPING=1`,
/// `STATUS=...`, one per line (sd_notify(3)). Errors are only printed, since they do not affect the
/// service itself.
pub(crate) fn notify(state: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else { return };
    if let Err(error) = send(path.as_bytes(), state.as_bytes()) {
        say(format_args!("damelo: cannot tell the supervisor `{}`: {error}", state.trim_end()));
    }
}

fn send(path: &[u8], state: &[u8]) -> io::Result<()> {
    let address = match path.strip_prefix(b"@") {
        #[cfg(target_os = "linux")]
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            SocketAddr::from_abstract_name(name)?
        }
        _ => SocketAddr::from_pathname(std::path::Path::new(std::ffi::OsStr::from_bytes(path)))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state, &address).map(drop)
}

/// The message that announces a reload starting now (`Type=notify-reload`).
pub(crate) fn reloading() -> String {
    format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic().as_micros())
}

fn monotonic() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for the call; the clock exists on every Unix.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

/// Most sockets accepted from a supervisor; a larger number is taken for a mistake.
const SOCKETS_MAX: u32 = 1024;

/// The listening sockets handed down by the supervisor, if any. Call it once, at start.
pub(crate) fn inherited_sockets() -> Result<Vec<Arc<Inherited>>, Failure> {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let ours = number("LISTEN_PID") == Some(std::process::id());
    let count = number("LISTEN_FDS").filter(|_| ours).unwrap_or(0);
    if count > SOCKETS_MAX {
        return Err(Failure::Usage(format!(
            "LISTEN_FDS says that {count} sockets were handed down: at most {SOCKETS_MAX} are taken"
        )));
    }
    (FIRST_FD..).take(count as usize).map(|descriptor| listener(descriptor).map(Arc::new)).collect()
}

/// Whether a descriptor is a socket that listens: not one for datagrams, nor a connection.
fn listens(descriptor: RawFd) -> bool {
    let mut set: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: both pointers are valid for the call, and `length` is the size of `set`.
    let asked = unsafe {
        libc::getsockopt(
            descriptor,
            libc::SOL_SOCKET,
            libc::SO_ACCEPTCONN,
            (&raw mut set).cast(),
            &raw mut length,
        )
    };
    asked == 0 && set != 0
}

fn listener(descriptor: RawFd) -> Result<Inherited, Failure> {
    let failed =
        |source| Failure::io(format!("use descriptor {descriptor}, a socket handed down"), source);
    // SAFETY: fcntl only reads and sets a flag, and fails for a descriptor that is not open.
    let set = unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    if set < 0 {
        return Err(failed(io::Error::last_os_error()));
    }
    if !listens(descriptor) {
        let problem = "it does not listen: hand down stream sockets, with Accept=no";
        return Err(failed(io::Error::other(problem)));
    }
    // SAFETY: the descriptor is open, as fcntl has shown. By the protocol this process owns it, and
    // nothing else here uses it; each is taken once.
    let socket = TcpListener::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
    // Fails if the socket is not a TCP socket.
    if socket.local_addr().is_ok() {
        return Ok(Inherited::Tcp(socket));
    }
    let socket = UnixListener::from(OwnedFd::from(socket));
    socket.local_addr().map_err(failed)?;
    Ok(Inherited::Unix(socket))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpStream, UdpSocket};
    use std::os::fd::IntoRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// systemd hands down such sockets for `ListenDatagram=` and `Accept=yes`: they would be taken
    /// for listeners that nobody ever comes to.
    #[test]
    fn a_socket_that_does_not_listen_is_refused() {
        let tcp = || TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(matches!(listener(tcp().into_raw_fd()), Ok(Inherited::Tcp(_))));
        let server = tcp();
        let connected = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (unix, _other) = UnixStream::pair().unwrap();
        let sockets = [connected.into_raw_fd(), datagrams.into_raw_fd(), unix.into_raw_fd()];
        for descriptor in sockets {
            let refused = listener(descriptor).unwrap_err().text();
            assert!(refused.contains(&format!("descriptor {descriptor}")), "{refused}");
            assert!(refused.contains("does not listen"), "{refused}");
        }
    }
}
