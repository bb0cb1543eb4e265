//! Client connections: sockets, TLS, PROXY protocol, limits, HTTP/1.1 and HTTP/2.
//!
//! `open` opens every listener before a worker starts, so that a wrong address fails the start
//! rather than a thread. Each worker accepts from its own TCP sockets (see `server`), and from a
//! duplicate of each Unix socket and of each inherited socket; `balance` says which one serves.

// Which worker serves a connection.
mod balance;
// Bodies of answers as connections send them.
mod body;
// A listening socket.
mod bound;
// A connection up to its first request.
mod connection;
// A client's stream with its deadlines.
mod deadlines;
// When certificates end.
mod expiry;
// Requests of a connection of HTTP/1.1.
mod http1;
// Requests of a connection of HTTP/2.
mod http2;
mod http2_cancels;
// Ends single streams.
mod http2_streams;
// Which listener a socket that a supervisor handed down is for.
mod inherited;
// Has the sockets made.
mod open;
// What a proxy before this one says of the client.
pub(crate) mod proxy_protocol;
// Which certificate a client gets.
mod sni;
// A client's byte stream.
mod stream;
// TLS, and its files.
mod tls;
// Whether a client takes its answer.
mod write_progress;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use ipnet::IpNet;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::client::limits::ClientTable;
use crate::client::seats::{LOOK_INTERVAL, Seats};
use crate::config::ProxyConfig;
use crate::error::ProxyError;
use crate::io::blocking;
pub(crate) use crate::listen::balance::{Balance, Desk};
use crate::listen::bound::{Bound, Connection};
use crate::listen::connection::Accepted;
pub(crate) use crate::listen::inherited::assign;
use crate::listen::open::{Kind, OpenedSocket};
pub(crate) use crate::listen::open::{Opened, UnixFile, key_of, open, probe, probe_unix, tcp};
use crate::listen::tls::Certificates;
use crate::metrics::Counters;
use crate::say::say;
use crate::worker::Worker;
use crate::worker::control::Doors;

/// Pause after a failed accept, whose most likely cause is a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Refused clients whose connection is open without a place; further ones may lose what they are
/// told.
const FAREWELLS_MAX: usize = 64;

/// State shared by all client connections: limits, counts, certificates.
pub(crate) struct Gate {
    pub(crate) clients: Arc<ClientTable>,
    /// `None` without certificates.
    certificates: ArcSwapOption<Certificates>,
    connections: Arc<Semaphore>,
    connections_max: usize,
    balance: Balance,
    /// Held by each that was refused while what it still sends is read.
    farewells: Semaphore,
    /// Those who wait for a place.
    waiting: AtomicUsize,
    seats: Arc<Seats>,
    /// Whether it was said that the limit is reached.
    said_full: AtomicBool,
}

impl Gate {
    pub(crate) fn new(config: &ProxyConfig, balance: Balance) -> Result<Gate, ProxyError> {
        let connections_max = config.limits.connections_max.min(Semaphore::MAX_PERMITS);
        Ok(Gate {
            clients: ClientTable::new(config.limits.connections_per_client_max),
            certificates: ArcSwapOption::from(certificates(config, None)?),
            connections: Arc::new(Semaphore::new(connections_max)),
            connections_max,
            balance,
            farewells: Semaphore::new(FAREWELLS_MAX),
            waiting: AtomicUsize::new(0),
            seats: Arc::default(),
            said_full: AtomicBool::new(false),
        })
    }

    /// The certificates in use, each name once, with the earliest end of what is served for it, in
    /// seconds since 1970.
    pub(crate) fn certificate_ends(&self) -> Vec<(String, u64)> {
        let certificates = self.certificates.load_full();
        certificates.map_or_else(Vec::new, |certificates| certificates.ends())
    }

    /// Has the certificates follow their files, for as long as it is polled.
    pub(crate) async fn follow_certificates(&self, counters: Arc<Counters>) {
        loop {
            sleep(tls::FOLLOW_INTERVAL).await;
            let Some(certificates) = self.certificates.load_full() else { continue };
            let (tell, told) = oneshot::channel();
            // Nobody waits for it if the proxy has stopped meanwhile.
            blocking::run(move || drop(tell.send(certificates.look())));
            for error in told.await.unwrap_or_default() {
                // Reported, because the operator who replaced the files would otherwise notice only
                // when the former certificates expire.
                say(format_args!(
                    "damelo: a certificate cannot be used, the former stays: {error}"
                ));
                counters.certificate_errors.one();
            }
        }
    }

    /// Number of connections, and its limit.
    pub(crate) fn connections(&self) -> (usize, usize) {
        let free = self.connections.available_permits();
        (self.connections_max.saturating_sub(free), self.connections_max)
    }

    /// A place for one more connection, once there is one. Connections that nobody uses make room
    /// where few places are left.
    async fn place(&self) -> io::Result<OwnedSemaphorePermit> {
        let permit = match Arc::clone(&self.connections).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.freed_place().await?,
        };
        self.make_room();
        Ok(permit)
    }

    /// The place of one that ends.
    async fn freed_place(&self) -> io::Result<OwnedSemaphorePermit> {
        self.say_full();
        let _waiting = Waiting::among(&self.waiting);
        loop {
            self.make_room();
            let freed = Arc::clone(&self.connections).acquire_owned();
            // Those in use now may not be a moment later.
            if let Ok(permit) = timeout(LOOK_INTERVAL, freed).await {
                return permit.map_err(io::Error::other);
            }
        }
    }

    /// Has connections that nobody uses leave, if few places are free or somebody waits for one.
    fn make_room(&self) {
        let free = self.connections.available_permits();
        let waiting = self.waiting.load(Ordering::Relaxed);
        self.seats.keep_free(self.connections_max, free, waiting, Instant::now());
    }

    fn say_full(&self) {
        if !self.said_full.swap(true, Ordering::Relaxed) {
            let max = self.connections_max;
            say(format_args!(
                "damelo: there are limits.connections_max ({max}) connections: those that nobody uses \
                 make room, and others wait"
            ));
        }
    }
}

impl Doors for Gate {
    fn prepare(&self, new: &ProxyConfig) -> Result<Box<dyn FnOnce() + '_>, ProxyError> {
        // Also where the files are the same: who has renewed one may ask for a reload and count on
        // it from then on.
        let certificates = certificates(new, self.certificates.load().as_deref())?;
        let per_client_max = new.limits.connections_per_client_max;
        Ok(Box::new(move || {
            self.certificates.store(certificates);
            self.clients.set_per_client_max(per_client_max);
        }))
    }
}

/// Those that the configuration names, in place of the former ones.
fn certificates(
    config: &ProxyConfig,
    former: Option<&Certificates>,
) -> Result<Option<Arc<Certificates>>, ProxyError> {
    let files = config.tls.certificates.clone();
    if files.is_empty() && config.listen.iter().any(|listener| listener.tls) {
        return Err(ProxyError::NoCertificate);
    }
    let load = || Certificates::load(files.clone(), former).map(Arc::new);
    (!files.is_empty()).then(load).transpose()
}

/// Whether a PROXY header from this address is trusted.
fn trusts(networks: &[IpNet], from: IpAddr) -> bool {
    let from = from.to_canonical();
    networks.iter().any(|network| network.contains(&from))
}

/// One who waits for a place, counted until dropped.
struct Waiting<'a> {
    count: &'a AtomicUsize,
}

impl Waiting<'_> {
    fn among(count: &AtomicUsize) -> Waiting<'_> {
        count.fetch_add(1, Ordering::Relaxed);
        Waiting { count }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a worker needs to serve the connections that it accepts.
#[derive(Clone)]
struct Acceptor {
    worker: Arc<ArcSwap<Worker>>,
    gate: Arc<Gate>,
    /// The number of this worker.
    own: usize,
    stop: watch::Receiver<bool>,
}

/// Accepts connections from all sockets of a worker until the proxy stops.
pub(crate) async fn accept_all(
    worker: Arc<ArcSwap<Worker>>,
    gate: Arc<Gate>,
    opened: Vec<Opened>,
    desk: Desk,
    stop: watch::Receiver<bool>,
) {
    let acceptor = Acceptor { worker, gate, own: desk.worker, stop };
    let mut accepting = vec![tokio::spawn(acceptor.clone().take_given(desk))];
    for Opened { kind, socket } in opened {
        let bound = match socket {
            OpenedSocket::Tcp(socket) => TcpListener::from_std(socket).map(Bound::Tcp),
            OpenedSocket::Unix(socket) => UnixListener::from_std(socket).map(Bound::Unix),
        };
        let bound = bound.expect("a listener on an event loop");
        accepting.push(tokio::spawn(acceptor.clone().accept(kind, bound)));
    }
    for task in accepting {
        // A task that panicked counts as ended; the others continue.
        let _ = task.await;
    }
}

impl Acceptor {
    /// Serves the connections that other workers have accepted and given to this one.
    async fn take_given(self, mut desk: Desk) {
        let mut stop = self.stop.clone();
        let mut closed = false;
        loop {
            let given = tokio::select! {
                biased;
                () = stopped(&mut stop), if !closed => {
                    closed = true;
                    desk.close();
                    continue;
                }
                given = desk.next() => given,
            };
            let Some(given) = given else { return };
            // A failure means that there is no room in the kernel for one more.
            let Ok((kind, socket, from, place)) = given.taken() else { continue };
            self.worker.load().counters.connections_given.one();
            self.serve(Accepted { kind, socket, from, place });
        }
    }

    /// Accepts connections of one socket, and deals them out, until the proxy stops.
    async fn accept(self, kind: Kind, bound: Bound) {
        let mut stop = self.stop.clone();
        // A connection may be accepted before a permit is free: at most one per listener waits. It
        // is kept outside of the future, which a stop ends.
        let mut waiting = None;
        let next = async |waiting: &mut Option<Connection>| {
            if waiting.is_none() {
                *waiting = Some(bound.accept().await?);
            }
            self.gate.place().await
        };
        loop {
            tokio::select! {
                biased;
                () = stopped(&mut stop) => break,
                permit = next(&mut waiting) => match (permit, waiting.take()) {
                    (Ok(permit), Some(connection)) => self.deal(kind, connection, permit),
                    _ => sleep(ACCEPT_PAUSE).await,
                },
            }
        }
        // They came before the stop and have their turn as others end; the worker waits for them
        // as for every connection.
        for connection in waiting.into_iter().chain(bound.accept_waiting()) {
            tokio::spawn(self.clone().serve_in_turn(kind, connection));
        }
    }

    /// Serves a connection, or gives it to a worker that has fewer.
    fn deal(&self, kind: Kind, (socket, from): Connection, permit: OwnedSemaphorePermit) {
        self.worker.load().counters.connections.one();
        let balance = &self.gate.balance;
        let chosen = balance.choose(self.own);
        if chosen == self.own {
            let place = balance.place(self.own, permit);
            return self.serve(Accepted { kind, socket, from, place });
        }
        // One that is lost had no room in the kernel.
        let back = balance.give(chosen, kind, (socket, from), permit);
        if let Ok(Some((socket, place))) = back {
            self.serve(Accepted { kind, socket, from, place });
        }
    }

    /// Serves a connection once there is a place for it.
    async fn serve_in_turn(self, kind: Kind, (socket, from): Connection) {
        self.worker.load().counters.connections.one();
        if let Ok(permit) = Arc::clone(&self.gate.connections).acquire_owned().await {
            let place = self.gate.balance.place(self.own, permit);
            self.serve(Accepted { kind, socket, from, place });
        }
    }

    fn serve(&self, accepted: Accepted) {
        let (worker, gate, stop) = (self.worker.clone(), self.gate.clone(), self.stop.clone());
        tokio::spawn(connection::serve_connection(worker, gate, accepted, stop));
    }
}

/// When the proxy stops: time for the first bytes of a connection that has asked for nothing yet.
const STOP_GRACE: Duration = Duration::from_millis(250);

/// Waits until the proxy is told to stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the proxy has already ended.
    let _ = stop.wait_for(|stop| *stop).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::activity::Activity;
    use crate::client::seats::{FEW_SHARE, UNUSED_MIN_FULL};

    const PLACES: usize = 64;

    /// Connections that leave when they are told to.
    fn fill(gate: &Arc<Gate>) {
        for _ in 0..PLACES {
            let permit = Arc::clone(&gate.connections).try_acquire_owned().unwrap();
            let place = gate.balance.place(0, permit);
            let activity = Activity::new(Arc::default(), Some(place));
            activity.awaits_head();
            gate.seats.seat(&activity);
            tokio::spawn(async move { activity.told_to_leave().await });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_gets_a_place_and_others_find_some() {
        let mut config = ProxyConfig::for_forward("127.0.0.1:0".parse().unwrap());
        config.limits.connections_max = PLACES;
        let gate = Arc::new(Gate::new(&config, Balance::new(1).0).unwrap());
        let begun = Instant::now();
        fill(&gate);
        let _first = gate.place().await.unwrap();
        let waited = begun.elapsed();
        assert!(waited >= UNUSED_MIN_FULL, "nobody leaves who is needed");
        assert!(waited < UNUSED_MIN_FULL + 2 * LOOK_INTERVAL, "{waited:?}");
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert_eq!(gate.connections().0, PLACES - 2 * (PLACES / FEW_SHARE) + 1);
        assert_eq!(gate.waiting.load(Ordering::Relaxed), 0);
    }
}
