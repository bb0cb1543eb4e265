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

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use damelo::Store;
use http::{HeaderValue, Uri};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::collapse::Collapse;
use crate::config::{ProxyConfig, Target};
use crate::error::ProxyError;
use crate::forward::{Forward, ForwardConfig};
use crate::listen::{self, Gate, Opened, UnixFile};
use crate::log::AccessLog;
use crate::metrics::Counters;
use crate::transport::{HealthChecks, ListenAddress, Listener};
use crate::upstream::{Fetcher, Origin, PoolSettings, check_all};
use crate::vault::Vault;
use crate::worker::{Shared, Worker};
use crate::{admin, demo};

/// Workers at most.
const WORKERS_MAX: usize = 1024;

/// Where a started proxy can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunningInfo {
    /// Address that clients connect to.
    pub address: SocketAddr,
    /// The other listeners, with the ports they were given.
    pub listeners: Vec<Listener>,
    /// Address of `/metrics` and `/healthz`.
    pub admin: Option<SocketAddr>,
    /// URL of the origin, that of the demo included.
    pub origin: String,
    /// Threads that serve.
    pub workers: usize,
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
    run_as(config, None, store, ready, shutdown)
}

/// The same for a forward proxy: requests with absolute targets and CONNECT, to any origin that
/// the rules allow.
///
/// # Errors
/// As [`run`], and when it would listen elsewhere than on loopback without being told to.
pub fn run_forward(
    config: ForwardConfig,
    store: Store,
    ready: impl FnOnce(RunningInfo),
    shutdown: impl Future,
) -> Result<(), ProxyError> {
    let forward = Arc::new(Forward::new(&config)?);
    run_as(config.proxy, Some(forward), store, ready, shutdown)
}

fn run_as(
    config: ProxyConfig,
    forward: Option<Arc<Forward>>,
    store: Store,
    ready: impl FnOnce(RunningInfo),
    shutdown: impl Future,
) -> Result<(), ProxyError> {
    let main = event_loop()?;
    let proxy = main.block_on(Proxy::start(config, forward, store))?;
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
    _unix_files: Vec<UnixFile>,
}

/// What each thread is started with.
struct Start {
    shared: Arc<Shared>,
    gate: Arc<Gate>,
    stop: watch::Receiver<bool>,
}

impl Proxy {
    async fn start(
        config: ProxyConfig,
        forward: Option<Arc<Forward>>,
        store: Store,
    ) -> Result<Proxy, ProxyError> {
        check_name(&config.name)?;
        let (stop, stopping) = watch::channel(false);
        // From here on an early return drops the threads' stop channel, which ends them.
        let mut threads = Vec::new();
        let origin_url = match &config.to {
            Target::Url(url) => url.clone(),
            Target::Demo => start_demo(&mut threads, stopping.clone()).await?,
        };
        let mut origin = Origin::new(&origin_url, &config.transport.upstream)?;
        if config.to == Target::Demo {
            // Its port is another one each time; its objects are the same.
            "demo".clone_into(&mut origin.authority);
        }
        let origin = Arc::new(origin);
        let workers = config.workers.clamp(1, WORKERS_MAX);
        let checks = health_checks(&config)?;
        let gate = Arc::new(Gate::new(&config.transport, config.connections_max)?);
        let opening = listen::open(&all_listeners(&config), workers)?;
        let admin_listener = config.admin.map(listen::tcp).transpose()?;
        let admin = admin_listener.as_ref().map(|(_, address)| *address);
        let shared = Arc::new(shared(config, store, origin, forward)?);
        let mut counters: Vec<Arc<Counters>> = (0..workers).map(|_| Arc::default()).collect();
        for (opened, counters) in opening.workers.into_iter().zip(&counters) {
            let (shared, gate) = (shared.clone(), gate.clone());
            let start = Start { shared, gate, stop: stopping.clone() };
            let counters = counters.clone();
            threads.push(spawn("damelo-worker", move || work(start, opened, counters))?);
        }
        if let Some(checks) = checks {
            counters.push(Arc::default());
            let settings = PoolSettings::of(&shared.config);
            let (origin, counters) = (shared.origin.clone(), counters[workers].clone());
            let stop = stopping.clone();
            let checking = async move { check_all(origin, checks, settings, counters).await };
            threads.push(spawn("damelo-health", move || until_stopped(stop, checking))?);
        }
        if let Some((listener, _)) = admin_listener {
            let (shared, stop) = (shared.clone(), stopping);
            let serving = async move { admin::serve(listener, shared, counters).await };
            threads.push(spawn("damelo-admin", move || until_stopped(stop, serving))?);
        }
        let mut listeners = opening.listeners;
        let address = match listeners.remove(0).address {
            ListenAddress::Tcp(address) => address,
            ListenAddress::Unix(_) => unreachable!("`from` is a TCP address and comes first"),
        };
        let info = RunningInfo { address, listeners, admin, origin: origin_url, workers };
        Ok(Proxy { info, stop, threads, _unix_files: opening.unix_files })
    }

    fn stop(self) -> Result<(), ProxyError> {
        self.stop.send_replace(true);
        let ends: Vec<_> = self.threads.into_iter().map(JoinHandle::join).collect();
        if ends.iter().any(Result::is_err) {
            return Err(ProxyError::WorkerDied);
        }
        Ok(())
    }
}

fn health_checks(config: &ProxyConfig) -> Result<Option<HealthChecks>, ProxyError> {
    let Some(checks) = config.transport.upstream.checks.clone() else { return Ok(None) };
    let is_path = checks.path.starts_with('/') && checks.path.parse::<Uri>().is_ok();
    if is_path { Ok(Some(checks)) } else { Err(ProxyError::HealthPath(checks.path)) }
}

/// The listener that every proxy has, then the others.
fn all_listeners(config: &ProxyConfig) -> Vec<Listener> {
    let address = ListenAddress::Tcp(config.from);
    let mut listeners = vec![Listener { address, tls: false, proxy_protocol: false }];
    listeners.extend_from_slice(&config.transport.listeners);
    listeners
}

fn shared(
    config: ProxyConfig,
    store: Store,
    origin: Arc<Origin>,
    forward: Option<Arc<Forward>>,
) -> Result<Shared, ProxyError> {
    let log = config.access_log.then(AccessLog::to_stdout).transpose();
    let log = log.map_err(ProxyError::Worker)?;
    let via = HeaderValue::try_from(format!("1.1 {}", config.name))
        .map_err(|_| ProxyError::Name(config.name.clone()))?;
    let vault = Arc::new(Vault::new(store, config.whole_body_bytes_max));
    Ok(Shared { config, origin, forward, vault, collapse: Collapse::new(), log, via })
}

/// A token of RFC 8941 that is also one of HTTP, without the rarer characters.
fn check_name(name: &str) -> Result<(), ProxyError> {
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
    let (listener, address) = listen::tcp(address)?;
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

/// Body of a worker thread.
fn work(start: Start, opened: Vec<Opened>, counters: Arc<Counters>) {
    // A worker without event loop leaves its share of connections unaccepted; start-up has shown
    // that one can be made, so this is the system running dry, and the thread's end shows it.
    let event_loop = event_loop().expect("an event loop");
    event_loop.block_on(accept(start, opened, counters));
}

async fn accept(start: Start, opened: Vec<Opened>, counters: Arc<Counters>) {
    let drain_timeout = start.shared.config.drain_timeout;
    let (alive, mut ended) = mpsc::channel::<()>(1);
    let config = &start.shared.config;
    let fetcher = Fetcher::new(&start.shared.origin, config, counters.clone());
    let worker = Arc::new(Worker { shared: start.shared.clone(), counters, fetcher, alive });
    listen::accept_all(worker, start.gate, opened, start.stop).await;
    // Every connection and fill holds a sender; the channel closes with the last.
    let _ = timeout(drain_timeout, ended.recv()).await;
}
