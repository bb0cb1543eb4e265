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
const BACKLOG: i32 = 1024;

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
            ListenAddress::Tcp(address) => opening.open_tcp(listener, *address, key_of(index))?,
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
        key: &'static str,
    ) -> Result<(), ProxyError> {
        for worker in 0..self.workers.len() {
            let (socket, bound) = bind(address, key, worker > 0)?;
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

/// The configuration key of a listener, by its index.
pub(crate) fn key_of(index: usize) -> &'static str {
    if index == 0 { "from" } else { "listen" }
}

/// Checks whether an address can be listened on now; `key` names it in errors.
pub(crate) fn probe(address: SocketAddr, key: &'static str) -> Result<(), ProxyError> {
    bind(address, key, false).map(drop)
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
    bind(address, key, false)
}

/// Our workers' sockets share their port (`SO_REUSEPORT`), and would silently share it with another
/// proxy's as well. So the first socket is bound without sharing, which fails if the port is in
/// use, and enables sharing afterwards.
fn bind(
    address: SocketAddr,
    key: &'static str,
    share: bool,
) -> Result<(StdTcpListener, SocketAddr), ProxyError> {
    let listen = || {
        let domain = Domain::for_address(address);
        let socket = RawSocket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        #[cfg(all(unix, not(any(target_os = "solaris", target_os = "illumos"))))]
        socket.set_reuse_port(share)?;
        socket.bind(&address.into())?;
        #[cfg(all(unix, not(any(target_os = "solaris", target_os = "illumos"))))]
        socket.set_reuse_port(true)?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        let listener = StdTcpListener::from(socket);
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    listen().map_err(|source: io::Error| ProxyError::Listen { address, key, source })
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
