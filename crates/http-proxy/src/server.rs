//! Listeners, event loops and the life of a proxy from start to drained stop.
//!
//! One thread with a single-threaded event loop per worker, each with its own listening socket on
//! the same port (`SO_REUSEPORT`), rather than one multi-threaded runtime: a RAM hit is then read,
//! looked up and written by one thread, without a task migrating between cores or a shared queue,
//! and origin connections need no lock that others contend for. The price: the kernel spreads
//! connections by hash, not by load, so that with few connections some workers idle.
//!
//! Invariants: `run` returns only after every worker has ended; answers and fills under way have
//! `drain_timeout` to finish once shutdown was asked. Threads: the caller's waits for shutdown.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use damelo::Store;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::collapse::Collapse;
use crate::config::{ProxyConfig, Target};
use crate::control::Control;
use crate::error::ProxyError;
use crate::fetch::Fetcher;
use crate::log::AccessLog;
use crate::metrics::Counters;
use crate::origin::Origin;
use crate::purge::ledger::Ledger;
use crate::serve;
use crate::vault::Vault;
use crate::worker::{Shared, Worker};
use crate::{admin, control, demo};

/// Connections the kernel holds for us to accept.
const BACKLOG: i32 = 1024;
/// Pause after a failed accept: out of descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Header lines of a request.
const HEADER_LINES_MAX: usize = 256;
/// Fewest bytes hyper accepts as a buffer limit.
const BUFFER_BYTES_MIN: usize = 8192;
/// Workers at most.
const WORKERS_MAX: usize = 1024;

/// Where a started proxy can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunningInfo {
    /// Address that clients connect to.
    pub address: SocketAddr,
    /// Address of `/metrics` and `/healthz`.
    pub admin: Option<SocketAddr>,
    /// URL of the origin, that of the demo included.
    pub origin: String,
    /// Threads that serve.
    pub workers: usize,
    /// Changes the running proxy.
    pub control: Control,
}

/// Serves until `shutdown` is done, then drains and returns. Calls `ready` once the proxy can be
/// reached. The store is not closed: keep a handle and close it after `run` has returned.
///
/// `shutdown` is polled on this thread within a tokio runtime, so that it may wait for a signal.
///
/// # Errors
/// When the configuration cannot be used, or an address not be listened on.
pub fn run(
    config: ProxyConfig,
    store: Store,
    ready: impl FnOnce(RunningInfo),
    shutdown: impl Future,
) -> Result<(), ProxyError> {
    let main = event_loop()?;
    let proxy = main.block_on(Proxy::start(config, store))?;
    ready(proxy.info.clone());
    main.block_on(shutdown);
    proxy.stop()
}

fn event_loop() -> Result<Runtime, ProxyError> {
    Builder::new_current_thread().enable_all().build().map_err(ProxyError::Worker)
}

/// A started proxy.
struct Proxy {
    info: RunningInfo,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
    /// Demo origin and admin listener, which workers and whoever watches them need to the end.
    last_stop: watch::Sender<bool>,
    last_threads: Vec<JoinHandle<()>>,
    /// Ends by itself once no worker holds the log any more.
    log_thread: Option<JoinHandle<()>>,
}

/// What each thread is started with.
struct Start {
    shared: watch::Receiver<Arc<Shared>>,
    connections: Arc<Semaphore>,
    stop: watch::Receiver<bool>,
}

impl Proxy {
    async fn start(config: ProxyConfig, store: Store) -> Result<Proxy, ProxyError> {
        check_name(&config.name)?;
        let (stop, stopping) = watch::channel(false);
        // From here on an early return drops the threads' stop channel, which ends them.
        let mut threads = Vec::new();
        let (last_stop, last_stopping) = watch::channel(false);
        let mut last_threads = Vec::new();
        let origin_url = match &config.to {
            Target::Url(url) => url.clone(),
            Target::Demo => start_demo(&mut last_threads, last_stopping.clone()).await?,
        };
        let mut origin = Origin::parse(&origin_url)?;
        if config.to == Target::Demo {
            // Its port is another one each time; its objects are the same.
            "demo".clone_into(&mut origin.authority);
        }
        let origin = Arc::new(origin);
        let workers = config.workers.clamp(1, WORKERS_MAX);
        let (listeners, address) = match config.inherited.first() {
            Some(listener) => inherited(listener, workers)?,
            None => listeners(config.from, workers)?,
        };
        let admin_listener = config.admin.map(listeners_one).transpose()?;
        let admin = admin_listener.as_ref().map(|(_, address)| *address);
        let connections = Arc::new(Semaphore::new(config.connections_max));
        let (shared, log_thread) = shared(config, store, origin)?;
        let control = Control::new(Arc::new(shared));
        let counters: Vec<Arc<Counters>> = (0..workers).map(|_| Arc::default()).collect();
        for (listener, counters) in listeners.into_iter().zip(&counters) {
            let (shared, connections) = (control.watch(), connections.clone());
            let start = Start { shared, connections, stop: stopping.clone() };
            let counters = counters.clone();
            threads.push(spawn("damelo-worker", move || work(start, listener, counters))?);
        }
        if let Some((listener, _)) = admin_listener {
            let (control, stop) = (control.clone(), last_stopping);
            let serving = async move { admin::serve(listener, control, counters).await };
            last_threads.push(spawn("damelo-admin", move || until_stopped(stop, serving))?);
        }
        let info = RunningInfo { address, admin, origin: origin_url, workers, control };
        Ok(Proxy { info, stop, threads, last_stop, last_threads, log_thread })
    }

    fn stop(self) -> Result<(), ProxyError> {
        self.info.control.begin_draining();
        self.stop.send_replace(true);
        let mut ends: Vec<_> = self.threads.into_iter().map(JoinHandle::join).collect();
        self.last_stop.send_replace(true);
        ends.extend(self.last_threads.into_iter().map(JoinHandle::join));
        if ends.iter().any(Result::is_err) {
            return Err(ProxyError::WorkerDied);
        }
        // The control in `info` holds the last handle of the log; the caller may hold another, and
        // then the lines are out when that goes.
        let others = self.info.control.is_shared();
        drop(self.info);
        if let Some(thread) = self.log_thread
            && !others
            && thread.join().is_err()
        {
            return Err(ProxyError::WorkerDied);
        }
        Ok(())
    }
}

fn shared(
    config: ProxyConfig,
    store: Store,
    origin: Arc<Origin>,
) -> Result<(Shared, Option<JoinHandle<()>>), ProxyError> {
    let started = AccessLog::start(&config.log_target)
        .map_err(|source| ProxyError::Log { target: config.log_target.to_string(), source })?;
    let (log, log_thread) = started.unzip();
    let via = control::via_of(&config.name)?;
    let ledger = Ledger::open(store.clone()).map_err(ProxyError::Worker)?;
    let vault = Arc::new(Vault::new(store, ledger, &config));
    let collapse = Collapse::new();
    Ok((Shared { config, origin, vault, collapse, log, via }, log_thread))
}

/// A token of RFC 8941 that is also one of HTTP, without the rarer characters.
pub(crate) fn check_name(name: &str) -> Result<(), ProxyError> {
    let good = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if good { Ok(()) } else { Err(ProxyError::Name(name.to_owned())) }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, ProxyError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map_err(ProxyError::Worker)
}

async fn start_demo(
    threads: &mut Vec<JoinHandle<()>>,
    stop: watch::Receiver<bool>,
) -> Result<String, ProxyError> {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let (listener, address) = listeners_one(address)?;
    threads.push(spawn("damelo-demo", move || until_stopped(stop, demo::serve(listener)))?);
    Ok(format!("http://{address}"))
}

/// Runs `serving` on an event loop of its own until the proxy stops.
fn until_stopped(mut stop: watch::Receiver<bool>, serving: impl Future) {
    // Without an event loop there is nothing to serve with; the workers go on.
    let Ok(event_loop) = event_loop() else { return };
    event_loop.block_on(async {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => {}
            _ = serving => {}
        }
    });
}

fn listeners(from: SocketAddr, count: usize) -> Result<(Vec<StdListener>, SocketAddr), ProxyError> {
    let (first, address) = listeners_one(from)?;
    let mut listeners = vec![first];
    for _ in 1..count {
        // The first may have been given a free port: the others take the same.
        listeners.push(listen(address, true)?.0);
    }
    Ok((listeners, address))
}

/// One socket that a supervisor listens on already, for every worker: the kernel wakes one of them.
fn inherited(
    listener: &StdListener,
    count: usize,
) -> Result<(Vec<StdListener>, SocketAddr), ProxyError> {
    let address = listener.local_addr().map_err(ProxyError::Worker)?;
    let copy = |_| {
        let copy = listener.try_clone()?;
        copy.set_nonblocking(true)?;
        Ok(copy)
    };
    let copies = (0..count).map(copy).collect::<io::Result<Vec<_>>>();
    let copies = copies.map_err(|source| ProxyError::Listen { address, source })?;
    Ok((copies, address))
}

/// Whether an address can be listened on now.
pub(crate) fn probe(address: SocketAddr) -> Result<(), ProxyError> {
    listen(address, false).map(drop)
}

/// The first socket on an address.
fn listeners_one(address: SocketAddr) -> Result<(StdListener, SocketAddr), ProxyError> {
    listen(address, false)
}

/// A socket shares its port (`SO_REUSEPORT`) with those of our other workers, and would share it
/// with another proxy's without a word. So the first binds without sharing, which fails if anybody
/// is there, and allows it from then on.
fn listen(address: SocketAddr, share: bool) -> Result<(StdListener, SocketAddr), ProxyError> {
    let listen = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        #[cfg(all(unix, not(any(target_os = "solaris", target_os = "illumos"))))]
        socket.set_reuse_port(share)?;
        socket.bind(&address.into())?;
        #[cfg(all(unix, not(any(target_os = "solaris", target_os = "illumos"))))]
        socket.set_reuse_port(true)?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        let listener = StdListener::from(socket);
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    listen().map_err(|source: io::Error| ProxyError::Listen { address, source })
}

/// Body of a worker thread.
fn work(start: Start, listener: StdListener, counters: Arc<Counters>) {
    // A worker without event loop leaves its share of connections unaccepted; start-up has shown
    // that one can be made, so this is the system running dry, and the thread's end shows it.
    let event_loop = event_loop().expect("an event loop");
    event_loop.block_on(accept(start, listener, counters));
}

async fn accept(start: Start, listener: StdListener, counters: Arc<Counters>) {
    let listener = TcpListener::from_std(listener).expect("a listener on an event loop");
    let (alive, mut ended) = mpsc::channel::<()>(1);
    let (mut stop, mut reloads) = (start.stop.clone(), start.shared.clone());
    let make = |shared: Arc<Shared>| {
        let fetcher = Fetcher::new(shared.origin.clone(), &shared.config, counters.clone());
        Arc::new(Worker { shared, counters: counters.clone(), fetcher, alive: alive.clone() })
    };
    let first = make(reloads.borrow_and_update().clone());
    let worker = Arc::new(ArcSwap::new(first));
    loop {
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            Ok(()) = reloads.changed() => {
                let shared = reloads.borrow_and_update().clone();
                worker.store(make(shared));
            }
            accepted = accept_one(&listener, &start.connections) => match accepted {
                Ok((stream, client, permit)) => {
                    counters.connections.one();
                    let serving = connection(worker.clone(), stream, client, start.stop.clone());
                    tokio::spawn(async move {
                        serving.await;
                        drop(permit);
                    });
                }
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    drop(listener);
    let drain_timeout = worker.load().shared.config.drain_timeout;
    drop(alive);
    // Every connection and fill holds a sender; the channel closes with the last.
    drop(worker);
    let _ = timeout(drain_timeout, ended.recv()).await;
}

async fn accept_one(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let permit = connections.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, client) = listener.accept().await?;
    Ok((stream, client, permit))
}

async fn connection(
    worker: Arc<ArcSwap<Worker>>,
    stream: TcpStream,
    client: SocketAddr,
    mut stop: watch::Receiver<bool>,
) {
    // Without it small answers wait; failing to set it only costs time.
    let _ = stream.set_nodelay(true);
    let first = worker.load_full();
    let config = &first.shared.config;
    let service = service_fn(|request| {
        // Each request sees the settings of its own moment, from beginning to end.
        let worker = worker.load_full();
        async move { Ok::<_, Infallible>(serve::handle(&worker, request, client.ip()).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(config.client_timeout)
        .max_buf_size(config.header_bytes_max.max(BUFFER_BYTES_MIN))
        .max_headers(HEADER_LINES_MAX)
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    drop(first);
    let mut connection = std::pin::pin!(connection);
    // A connection that breaks concerns nobody but its client.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
