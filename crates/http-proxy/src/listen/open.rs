//! Opens the listening sockets: one per worker for each TCP listener, one for all workers for each
//! Unix listener and each inherited socket.
//!
//! Invariant: the process that created a Unix socket's file removes it, so the file of an inherited
//! socket stays. Threads: the one that starts the proxy.

use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket as RawSocket, Type};

use super::inherited::assign;
use crate::config::transport::{Inherited, ListenAddress, Listener};
use crate::error::ProxyError;

/// Connections that the kernel queues for accepting.
const BACKLOG: i32 = 4096;

/// The protocols of a listener's clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) tls: bool,
    pub(crate) proxy_protocol: bool,
}

/// An open socket of one worker, not yet on an event loop.
pub(crate) struct Opened {
    pub(super) kind: Kind,
    pub(super) socket: OpenedSocket,
}

pub(super) enum OpenedSocket {
    Tcp(StdTcpListener),
    Unix(StdUnixListener),
}

/// The sockets of all workers, and their listeners.
pub(crate) struct Opening {
    /// One list per worker.
    pub(crate) workers: Vec<Vec<Opened>>,
    /// The listeners with their actual ports.
    pub(crate) listeners: Vec<Listener>,
    pub(crate) unix_files: Vec<UnixFile>,
}

/// The file of a Unix socket; removed when dropped.
#[derive(Debug)]
pub(crate) struct UnixFile(PathBuf);

impl Drop for UnixFile {
    fn drop(&mut self) {
        // The file or its directory is gone already, which needs no action.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Opens `listeners` for each worker; inherited sockets replace new ones.
pub(crate) fn open(
    listeners: &[Listener],
    inherited: &[Arc<Inherited>],
    workers: usize,
) -> Result<Opening, ProxyError> {
    let mut opening = Opening {
        workers: (0..workers).map(|_| Vec::new()).collect(),
        listeners: Vec::new(),
        unix_files: Vec::new(),
    };
    for (index, (listener, socket)) in
        listeners.iter().zip(assign(listeners, inherited)?).enumerate()
    {
        if let Some(socket) = socket {
            opening.open_inherited(listener, socket)?;
            continue;
        }
        match &listener.address {
            ListenAddress::Tcp(address) => {
                let apart = is_beside_ipv4(*address, listeners);
                opening.open_tcp(listener, *address, (key_of(index), apart))?;
            }
            ListenAddress::Unix(path) => opening.open_unix(listener, path)?,
        }
    }
    Ok(opening)
}

impl Opening {
    fn add(&mut self, worker: usize, listener: &Listener, socket: OpenedSocket) {
        let kind = Kind { tls: listener.tls, proxy_protocol: listener.proxy_protocol };
        self.workers[worker].push(Opened { kind, socket });
    }

    fn open_tcp(
        &mut self,
        listener: &Listener,
        mut address: SocketAddr,
        (key, only_v6): (&'static str, bool),
    ) -> Result<(), ProxyError> {
        for worker in 0..self.workers.len() {
            let (socket, bound) = bind(address, key, Socket { share: worker > 0, only_v6 })?;
            // The first socket may have got a free port: the others use the same.
            address = bound;
            self.add(worker, listener, OpenedSocket::Tcp(socket));
        }
        self.listeners.push(Listener { address: ListenAddress::Tcp(address), ..listener.clone() });
        Ok(())
    }

    /// One socket shared by all workers: the kernel wakes one of them.
    fn open_inherited(
        &mut self,
        listener: &Listener,
        socket: &Inherited,
    ) -> Result<(), ProxyError> {
        let address = socket.address().map_err(ProxyError::Worker)?;
        for worker in 0..self.workers.len() {
            let copy = duplicate(socket).map_err(ProxyError::Worker)?;
            self.add(worker, listener, copy);
        }
        self.listeners.push(Listener { address, ..listener.clone() });
        Ok(())
    }

    fn open_unix(&mut self, listener: &Listener, path: &Path) -> Result<(), ProxyError> {
        let error = |source| ProxyError::ListenUnix { path: path.to_owned(), source };
        let socket = unix(path).map_err(error)?;
        self.unix_files.push(UnixFile(path.to_owned()));
        for worker in 0..self.workers.len() {
            let socket = socket.try_clone().map_err(error)?;
            self.add(worker, listener, OpenedSocket::Unix(socket));
        }
        self.listeners.push(listener.clone());
        Ok(())
    }
}

fn duplicate(socket: &Inherited) -> io::Result<OpenedSocket> {
    match socket {
        Inherited::Tcp(socket) => {
            socket.set_nonblocking(true)?;
            socket.try_clone().map(OpenedSocket::Tcp)
        }
        Inherited::Unix(socket) => {
            socket.set_nonblocking(true)?;
            socket.try_clone().map(OpenedSocket::Unix)
        }
    }
}

/// Whether an address is all of IPv6 where another listener has that port over IPv4, which it would
/// take as well.
fn is_beside_ipv4(address: SocketAddr, listeners: &[Listener]) -> bool {
    let is_other = |listener: &Listener| match listener.address {
        ListenAddress::Tcp(other) => other.is_ipv4() && other.port() == address.port(),
        ListenAddress::Unix(_) => false,
    };
    // Port 0 is a free port of each.
    let all_of_v6 = address.is_ipv6() && address.ip().is_unspecified() && address.port() != 0;
    all_of_v6 && listeners.iter().any(is_other)
}

/// The configuration key of a listener, by its index.
pub(crate) fn key_of(index: usize) -> &'static str {
    if index == 0 { "from" } else { "listen" }
}

/// Checks whether an address can be listened on now; `key` names it in errors. Nobody can connect
/// meanwhile: a connection would be reset with the socket.
pub(crate) fn probe(address: SocketAddr, key: &'static str) -> Result<(), ProxyError> {
    let error = |source| ProxyError::Listen { address, key, source };
    bound(address, Socket::default()).map(drop).map_err(error)
}

/// Checks whether a Unix socket can be created there now.
pub(crate) fn probe_unix(path: &Path) -> Result<(), ProxyError> {
    let made = unix(path).map(|_| drop(UnixFile(path.to_owned())));
    made.map_err(|source| ProxyError::ListenUnix { path: path.to_owned(), source })
}

/// A single listening socket on an address; `key` names it in errors.
pub(crate) fn tcp(
    address: SocketAddr,
    key: &'static str,
) -> Result<(StdTcpListener, SocketAddr), ProxyError> {
    bind(address, key, Socket::default())
}

/// How a socket is bound.
#[derive(Debug, Clone, Copy, Default)]
struct Socket {
    /// To a port that another of ours has.
    share: bool,
    /// Leaving IPv4 to others, where it is for all addresses.
    only_v6: bool,
}

/// Our workers' sockets share their port (`SO_REUSEPORT`), and would silently share it with another
/// proxy's as well. So the first socket is bound without sharing, which fails if the port is in
/// use, and enables sharing afterwards.
fn bind(
    address: SocketAddr,
    key: &'static str,
    how: Socket,
) -> Result<(StdTcpListener, SocketAddr), ProxyError> {
    let listen = || {
        let socket = bound(address, how)?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        let listener = StdTcpListener::from(socket);
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    listen().map_err(|source: io::Error| ProxyError::Listen { address, key, source })
}

/// A socket that has the address and does not listen yet.
fn bound(address: SocketAddr, Socket { share, only_v6 }: Socket) -> io::Result<RawSocket> {
    let domain = Domain::for_address(address);
    let socket = RawSocket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if only_v6 {
        socket.set_only_v6(true)?;
    }
    #[cfg(all(unix, not(any(target_os = "solaris", target_os = "illumos"))))]
    socket.set_reuse_port(share)?;
    socket.bind(&address.into())?;
    #[cfg(all(unix, not(any(target_os = "solaris", target_os = "illumos"))))]
    socket.set_reuse_port(true)?;
    Ok(socket)
}

fn unix(path: &Path) -> io::Result<StdUnixListener> {
    // A socket file that nobody answers on was left behind by a crash.
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    if is_socket && StdUnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    let listener = StdUnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_check_accepts_nobody_and_finds_who_listens() {
        let address = "127.0.0.1:0".parse().unwrap();
        let checked = bound(address, Socket::default()).unwrap();
        let address = checked.local_addr().unwrap().as_socket().unwrap();
        assert!(TcpStream::connect(address).is_err());
        drop(checked);
        let (_listener, address) = tcp(address, "from").unwrap();
        assert!(probe(address, "from").is_err());
    }

    #[test]
    fn both_protocols_may_have_listeners_of_one_port() {
        if StdTcpListener::bind("[::]:0").is_err() {
            crate::say::say(format_args!("skipped: there is no IPv6 here"));
            return;
        }
        let port = StdTcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
        let listener = |host: &str| format!("tcp:{host}:{port}").parse::<Listener>().unwrap();
        for hosts in [["0.0.0.0", "[::]"], ["[::]", "127.0.0.1"]] {
            let listeners = hosts.map(listener);
            let opening = open(&listeners, &[], 2).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(opening.listeners, listeners);
            for host in ["127.0.0.1", "[::1]"] {
                TcpStream::connect(format!("{host}:{port}")).unwrap();
            }
        }
    }
}
