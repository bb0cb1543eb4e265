//! The side towards clients: sockets, TLS, PROXY protocol, limits, HTTP/1.1 and HTTP/2.
//!
//! `bind` opens every listener before a worker starts, so that a wrong address ends the start and
//! not a thread. Each worker accepts from its own TCP sockets (see `server`), and from a duplicate
//! of each Unix socket. Invariant: a Unix socket's file is removed by whoever made it.

mod body;
mod connection;
mod deadlines;
pub(crate) mod proxy_protocol;
mod stream;
mod tls;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdTcpListener};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use ipnet::IpNet;
use socket2::{Domain, Protocol, Socket as RawSocket, Type};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;

use crate::client::limits::ClientTable;
use crate::config::transport::{ListenAddress, Listener, Transport};
use crate::error::ProxyError;
use crate::listen::connection::Accepted;
use crate::listen::tls::Certificates;
use crate::worker::Worker;

/// Connections the kernel holds for us to accept.
const BACKLOG: i32 = 1024;
/// Pause after a failed accept: out of descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// What all connections are measured by.
pub(crate) struct Gate {
    pub(crate) clients: Arc<ClientTable>,
    pub(crate) certificates: Option<Certificates>,
    proxies: Vec<IpNet>,
    connections: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new(transport: &Transport, connections_max: usize) -> Result<Gate, ProxyError> {
        let wants_tls = transport.listeners.iter().any(|listener| listener.tls);
        let files = transport.certificates.clone();
        if wants_tls && files.is_empty() {
            return Err(ProxyError::NoCertificate);
        }
        let certificates = (!files.is_empty()).then(|| Certificates::load(files)).transpose()?;
        Ok(Gate {
            clients: ClientTable::new(transport.clients.connections_per_client_max),
            certificates,
            proxies: transport.proxy_protocol_from.clone(),
            connections: Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS))),
        })
    }

    /// Whether a PROXY header from that address is believed.
    fn trusts(&self, from: IpAddr) -> bool {
        let from = from.to_canonical();
        self.proxies.iter().any(|network| network.contains(&from))
    }
}

/// What clients of a listener speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) tls: bool,
    pub(crate) proxy_protocol: bool,
}

/// An open socket of one worker, not yet on an event loop.
pub(crate) struct Opened {
    kind: Kind,
    socket: OpenedSocket,
}

enum OpenedSocket {
    Tcp(StdTcpListener),
    Unix(StdUnixListener),
}

/// A listening socket on an event loop.
enum Bound {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// The sockets of all workers, and what they are called.
pub(crate) struct Opening {
    /// One list for each worker.
    pub(crate) workers: Vec<Vec<Opened>>,
    /// The listeners as they are: with the ports that were free.
    pub(crate) listeners: Vec<Listener>,
    pub(crate) unix_files: Vec<UnixFile>,
}

/// The file of a Unix socket; removed when dropped.
#[derive(Debug)]
pub(crate) struct UnixFile(PathBuf);

impl Drop for UnixFile {
    fn drop(&mut self) {
        // Gone already, or in a directory that is: nothing to do about either.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Opens `listeners` for so many workers,
/// the first on the socket that a supervisor handed down, if it did.
pub(crate) fn open(
    listeners: &[Listener],
    inherited: Option<&StdTcpListener>,
    workers: usize,
) -> Result<Opening, ProxyError> {
    let mut opening = Opening {
        workers: (0..workers).map(|_| Vec::new()).collect(),
        listeners: Vec::new(),
        unix_files: Vec::new(),
    };
    for (index, listener) in listeners.iter().enumerate() {
        if let Some(socket) = inherited.filter(|_| index == 0) {
            opening.open_inherited(listener, socket)?;
            continue;
        }
        match &listener.address {
            ListenAddress::Tcp(address) => opening.open_tcp(listener, *address)?,
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

    fn open_tcp(&mut self, listener: &Listener, address: SocketAddr) -> Result<(), ProxyError> {
        let mut address = address;
        for worker in 0..self.workers.len() {
            let (socket, bound) = bind(address, worker > 0)?;
            // The first may have been given a free port: the others take the same.
            address = bound;
            self.add(worker, listener, OpenedSocket::Tcp(socket));
        }
        self.listeners.push(Listener { address: ListenAddress::Tcp(address), ..listener.clone() });
        Ok(())
    }

    /// One socket for every worker: the kernel wakes one of them.
    fn open_inherited(
        &mut self,
        listener: &Listener,
        socket: &StdTcpListener,
    ) -> Result<(), ProxyError> {
        let address = socket.local_addr().map_err(ProxyError::Worker)?;
        for worker in 0..self.workers.len() {
            let copy = || {
                let copy = socket.try_clone()?;
                copy.set_nonblocking(true)?;
                Ok(copy)
            };
            let copy = copy().map_err(|source| ProxyError::Listen { address, source })?;
            self.add(worker, listener, OpenedSocket::Tcp(copy));
        }
        self.listeners.push(Listener { address: ListenAddress::Tcp(address), ..listener.clone() });
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

/// Whether an address can be listened on now.
pub(crate) fn probe(address: SocketAddr) -> Result<(), ProxyError> {
    bind(address, false).map(drop)
}

/// The only, or first, socket on an address.
pub(crate) fn tcp(address: SocketAddr) -> Result<(StdTcpListener, SocketAddr), ProxyError> {
    bind(address, false)
}

/// A socket shares its port (`SO_REUSEPORT`) with those of our other workers, and would share it
/// with another proxy's without a word. So the first binds without sharing, which fails if anybody
/// is there, and allows it from then on.
fn bind(address: SocketAddr, share: bool) -> Result<(StdTcpListener, SocketAddr), ProxyError> {
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
    listen().map_err(|source: io::Error| ProxyError::Listen { address, source })
}

fn unix(path: &Path) -> io::Result<StdUnixListener> {
    // A socket that nobody answers on was left behind by a crash.
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    if is_socket && StdUnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    let listener = StdUnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Accepts connections from all sockets of a worker until the proxy stops.
pub(crate) async fn accept_all(
    worker: Arc<ArcSwap<Worker>>,
    gate: Arc<Gate>,
    opened: Vec<Opened>,
    stop: watch::Receiver<bool>,
) {
    let mut accepting = Vec::new();
    for Opened { kind, socket } in opened {
        let bound = match socket {
            OpenedSocket::Tcp(socket) => TcpListener::from_std(socket).map(Bound::Tcp),
            OpenedSocket::Unix(socket) => UnixListener::from_std(socket).map(Bound::Unix),
        };
        let bound = bound.expect("a listener on an event loop");
        let (worker, gate, stop) = (worker.clone(), gate.clone(), stop.clone());
        accepting.push(tokio::spawn(accept(worker, gate, kind, bound, stop)));
    }
    for task in accepting {
        // A task that panicked has ended like any other; the rest go on.
        let _ = task.await;
    }
}

async fn accept(
    worker: Arc<ArcSwap<Worker>>,
    gate: Arc<Gate>,
    kind: Kind,
    bound: Bound,
    mut stop: watch::Receiver<bool>,
) {
    let stopping = stop.clone();
    let next = async || {
        let (socket, from) = connection::accept(&bound).await?;
        // Accepted but not served before another one ends: at most one for each listener.
        let permit = gate.connections.clone().acquire_owned().await.map_err(io::Error::other)?;
        Ok::<_, io::Error>((socket, from, permit))
    };
    loop {
        tokio::select! {
            biased;
            () = stopped(&mut stop) => break,
            accepted = next() => match accepted {
                Ok((socket, from, permit)) => {
                    worker.load().counters.connections.one();
                    let (worker, gate) = (worker.clone(), gate.clone());
                    let stop = stopping.clone();
                    tokio::spawn(async move {
                        let accepted = Accepted { kind, socket, from, permit };
                        connection::serve_connection(worker, gate, accepted, stop).await;
                    });
                }
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
        }
    }
}

/// Waits until the proxy is told to stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error is a proxy that is gone already.
    let _ = stop.wait_for(|stop| *stop).await;
}
