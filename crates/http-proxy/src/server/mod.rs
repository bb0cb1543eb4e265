//! Listeners, event loops and the life of a proxy from start to drained stop.
//!
//! One thread with a single-threaded event loop per worker, each with its own listening socket on
//! the same port (`SO_REUSEPORT`), rather than one multi-threaded runtime. A RAM hit is then read,
//! looked up and written by one thread, without task migration or a shared queue, and pools of
//! origin connections need no contended lock. The kernel distributes connections by hash, not by
//! load: a worker with more than another gives what it accepts to that one. A connection stays with
//! the worker that it was given to.
//!
//! Invariants: `run` returns only after every worker has ended; when shutdown is requested, clients
//! are still let in for `timeouts.leave`, and then responses and fills in flight get
//! `timeouts.drain` to finish. Threads: the caller's waits for shutdown.

mod check;
mod demo;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use arc_swap::ArcSwap;
use damelo::Store;
use http::Uri;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, sleep, timeout};

use crate::admin;
use crate::collapse::Collapse;
use crate::config::name::{Via, check_name};
use crate::config::transport::{ListenAddress, Listener};
use crate::config::{OriginTarget, ProxyConfig};
use crate::error::ProxyError;
use crate::error_page::ErrorPage;
use crate::forward::{ForwardConfig, ForwardProxy};
use crate::io::blocking;
use crate::io::transit::Transit;
use crate::io::wake_relay::WakeRelay;
use crate::listen::{self, Balance, Desk, Gate, Opened, UnixFile};
use crate::log::{AccessLog, LogEnd};
use crate::metrics::Counters;
use crate::purge::ledger::Ledger;
use crate::say::say;
use crate::upstream::{Checking, Fetcher, PoolSettings, Sites, check_all};
use crate::vault::Vault;
use crate::worker::control::{Control, Stage};
use crate::worker::followers::{Follower, Followers};
use crate::worker::{Shared, Worker};

pub use check::KeptOpen;

/// Bounds of the time between two looks for idle connections to origins, which is `pool_idle` in
/// between.
const SWEEP_INTERVAL_MIN: Duration = Duration::from_secs(1);
const SWEEP_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// Maximum number of workers.
pub(crate) const WORKERS_MAX: usize = 1024;

/// Where a started proxy can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunningInfo {
    /// Address that clients connect to.
    pub address: SocketAddr,
    /// The other listeners, with their actual ports.
    pub listeners: Vec<Listener>,
    /// Address of `/metrics` and `/healthz`.
    pub admin: Option<SocketAddr>,
    /// URL of the origin, including the demo's.
    pub origin: String,
    /// Threads that serve.
    pub workers: usize,
    /// Handle for changing the running proxy.
    pub control: Control,
}

/// Serves until `shutdown` is done, and for `timeouts.leave` after that, then drains and returns.
/// Calls `ready` once the proxy can be reached. The store is not closed: keep a handle and close it
/// after `run` has returned.
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

/// As [`run`], for a forward proxy: requests with absolute targets and CONNECT, to any origin that
/// the rules allow. Start from [`ProxyConfig::for_forward`]; origins in `proxy` are ignored.
///
/// # Errors
/// As [`run`], when it would listen beyond loopback although `remote` is not set, and when the
/// users or a list that the rules name cannot be read.
pub fn run_forward(
    proxy: ProxyConfig,
    forward: ForwardConfig,
    store: Store,
    ready: impl FnOnce(RunningInfo),
    shutdown: impl Future,
) -> Result<(), ProxyError> {
    let proxy = proxy.without_origin();
    let forward = Arc::new(ForwardProxy::new(&proxy, &forward)?);
    forward.tell_of_lists();
    run_as(proxy, Some(forward), store, ready, shutdown)
}

fn run_as(
    config: ProxyConfig,
    forward: Option<Arc<ForwardProxy>>,
    store: Store,
    ready: impl FnOnce(RunningInfo),
    shutdown: impl Future,
) -> Result<(), ProxyError> {
    let main = event_loop()?;
    let proxy = {
        let _within = main.enter();
        Proxy::start(config, forward, store)?
    };
    ready(proxy.info.clone());
    main.block_on(shutdown);
    main.block_on(proxy.leave());
    proxy.stop()
}

fn event_loop() -> Result<Runtime, ProxyError> {
    let mut loop_of_one_thread = Builder::new_current_thread();
    loop_of_one_thread.enable_all().build().map_err(ProxyError::Worker)
}

/// A started proxy.
struct Proxy {
    info: RunningInfo,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
    /// Stops demo origin and admin listener, which workers and operators need to the end.
    last_stop: watch::Sender<bool>,
    last_threads: Vec<JoinHandle<()>>,
    /// Comes by itself once no worker holds the log.
    log_end: LogEnd,
    _unix_files: Vec<UnixFile>,
}

/// Inputs of each thread.
#[derive(Clone)]
struct Start {
    shared: watch::Receiver<Arc<Shared>>,
    gate: Arc<Gate>,
    stop: watch::Receiver<bool>,
}

impl Proxy {
    /// Not async: if a thread cannot be started, its event loop is dropped here, which is not
    /// allowed within another event loop.
    fn start(
        config: ProxyConfig,
        forward: Option<Arc<ForwardProxy>>,
        store: Store,
    ) -> Result<Proxy, ProxyError> {
        check_name(&config.name)?;
        config.limits.check()?;
        blocking::prepare().map_err(ProxyError::Worker)?;
        let (stop, stopping) = watch::channel(false);
        // From here on an early return drops the threads' stop channel, which ends them.
        let (last_stop, last_stopping) = watch::channel(false);
        let mut last_threads = Vec::new();
        let origin_url = match &config.to {
            OriginTarget::Url(url) => url.clone(),
            OriginTarget::Demo => start_demo(&mut last_threads, last_stopping.clone())?,
        };
        let sites = Sites::new(&config, &origin_url, forward.is_some())?;
        let workers = config.workers.clamp(1, WORKERS_MAX);
        check_path(&config)?;
        let (balance, desks) = Balance::new(workers);
        let gate = Arc::new(Gate::new(&config, balance)?);
        let opening = listen::open(&config.all_listeners(), &config.inherited, workers)?;
        let admin_listener =
            config.admin.from.map(|address| listen::tcp(address, "admin.from")).transpose()?;
        let admin = admin_listener.as_ref().map(|(_, address)| *address);
        if let (Some(forward), Some(admin)) = (&forward, admin) {
            forward.keep_from(admin);
        }
        let (shared, log_end) = shared(config, store, sites, forward)?;
        let control = Control::new(Arc::new(shared), gate.clone());
        let mut counters: Vec<Arc<Counters>> = (0..workers).map(|_| Arc::default()).collect();
        let start = Start { shared: control.watch(), gate, stop: stopping.clone() };
        let mut threads = {
            let doors = opening.workers.into_iter().zip(desks);
            spawn_workers(&start, doors, &counters, control.followers())?
        };
        counters.push(Arc::default());
        let checking = check_all(control.watch(), checking, counters[workers].clone());
        let (doors, of_tender) = (start.gate.clone(), counters[workers].clone());
        let following = async move { doors.follow_certificates(of_tender).await };
        let tending = async move { _ = tokio::join!(checking, following) };
        threads.push(serve_until(stopping, "damelo-health", tending)?);
        if let Some((listener, _)) = admin_listener {
            let (control, gate, stop) = (control.clone(), start.gate.clone(), last_stopping);
            let serving = async move { admin::serve(listener, control, gate, counters).await };
            last_threads.push(serve_until(stop, "damelo-admin", serving)?);
        }
        let mut listeners = opening.listeners;
        let address = match listeners.remove(0).address {
            ListenAddress::Tcp(address) => address,
            ListenAddress::Unix(_) => unreachable!("`from` is a TCP address and comes first"),
        };
        let info = RunningInfo { address, listeners, admin, origin: origin_url, workers, control };
        let _unix_files = opening.unix_files;
        Ok(Proxy { info, stop, threads, last_stop, last_threads, log_end, _unix_files })
    }

    /// Serves on while balancers learn that they should send their clients elsewhere.
    async fn leave(&self) {
        let leave = self.info.control.shared().config.timeouts.leave;
        if leave.is_zero() {
            return;
        }
        self.info.control.begin(Stage::Leaving);
        let seconds = leave.as_secs_f64();
        say(format_args!("damelo: leaving: connections are taken for {seconds} s more"));
        sleep(leave).await;
    }

    fn stop(self) -> Result<(), ProxyError> {
        self.info.control.begin(Stage::Draining);
        self.stop.send_replace(true);
        let mut ends: Vec<_> = self.threads.into_iter().map(JoinHandle::join).collect();
        self.last_stop.send_replace(true);
        ends.extend(self.last_threads.into_iter().map(JoinHandle::join));
        if ends.iter().any(Result::is_err) {
            return Err(ProxyError::WorkerDied);
        }
        // The caller may hold handles of the log beyond this.
        self.info.control.end_log();
        self.log_end.wait();
        Ok(())
    }
}

fn spawn_workers(
    start: &Start,
    doors: impl Iterator<Item = (Vec<Opened>, Desk)>,
    counters: &[Arc<Counters>],
    followers: &Arc<Followers>,
) -> Result<Vec<JoinHandle<()>>, ProxyError> {
    let spawn_one = |((opened, desk), counters): ((Vec<Opened>, Desk), &Arc<Counters>)| {
        let (start, counters, follower) = (start.clone(), counters.clone(), followers.join());
        spawn("damelo-loop", move |event_loop| {
            event_loop.block_on(accept(start, opened, desk, counters, follower));
        })
    };
    doors.zip(counters).map(spawn_one).collect()
}

fn check_path(config: &ProxyConfig) -> Result<(), ProxyError> {
    let Some(checks) = &config.upstream.check else { return Ok(()) };
    let is_path = checks.path.starts_with('/') && checks.path.parse::<Uri>().is_ok();
    if is_path { Ok(()) } else { Err(ProxyError::HealthPath(checks.path.clone())) }
}

/// What health checks go by now. Clients name the origins of a forward proxy.
fn checking(now: &Arc<Shared>) -> Checking {
    Checking {
        sites: now.sites.clone(),
        checks: now.config.upstream.check.clone().filter(|_| now.forward.is_none()),
        settings: PoolSettings::of(&now.config, &now.transit),
    }
}

/// All listeners, `from` first.
fn shared(
    config: ProxyConfig,
    store: Store,
    sites: Sites,
    forward: Option<Arc<ForwardProxy>>,
) -> Result<(Shared, LogEnd), ProxyError> {
    let (log, log_end) = AccessLog::start(&config.log.to)
        .map_err(|source| ProxyError::Log { target: config.log.to.to_string(), source })?;
    let via = Via::of(&config.name)?;
    let error_page = ErrorPage::load(config.errors.page.as_deref())?;
    let ledger = Ledger::open(store.clone()).map_err(ProxyError::Worker)?;
    let vault = Arc::new(Vault::new(store, ledger, &config));
    let collapse = Collapse::new();
    let transit = Arc::new(Transit::new(config.limits.transit_bytes_max));
    Ok((
        Shared {
            number: 1,
            config,
            sites: Arc::new(sites),
            forward,
            vault,
            transit,
            collapse,
            seen: Arc::default(),
            log,
            via,
            error_page,
        },
        log_end,
    ))
}

/// Starts a thread with an event loop. The loop is created beforehand: it may fail for lack of
/// descriptors, which a thread could not report.
fn spawn(
    name: &str,
    body: impl FnOnce(&Runtime) + Send + 'static,
) -> Result<JoinHandle<()>, ProxyError> {
    let event_loop = event_loop()?;
    let run = move || body(&event_loop);
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(ProxyError::Worker)
}

fn start_demo(
    threads: &mut Vec<JoinHandle<()>>,
    stop: watch::Receiver<bool>,
) -> Result<String, ProxyError> {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let (listener, address) = listen::tcp(address, "to")?;
    threads.push(serve_until(stop, "damelo-demo", demo::serve(listener))?);
    Ok(format!("http://{address}"))
}

/// Runs `serving` on a thread with its own event loop until the proxy stops.
fn serve_until(
    mut stop: watch::Receiver<bool>,
    name: &str,
    serving: impl Future<Output = ()> + Send + 'static,
) -> Result<JoinHandle<()>, ProxyError> {
    let until_stopped = async move {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => {}
            () = serving => {}
        }
    };
    spawn(name, move |event_loop| event_loop.block_on(until_stopped))
}

async fn accept(
    start: Start,
    opened: Vec<Opened>,
    desk: Desk,
    counters: Arc<Counters>,
    follower: Follower,
) {
    // Runs after all tasks that are ready now, so that their disk reads are submitted together.
    let at_the_end = || drop(tokio::spawn(async { damelo::submit_deferred() }));
    let _deferral = damelo::Deferral::begin(at_the_end);
    let relay = Arc::new(WakeRelay::default());
    // Ends with the event loop.
    tokio::spawn(relay.clone().deliver());
    let (alive, mut ended) = mpsc::channel::<()>(1);
    let drain_timeout = {
        let mut reloads = start.shared;
        let make = |shared: Arc<Shared>, former: Option<&Fetcher>| {
            let Shared { sites, config, transit, .. } = &*shared;
            let fetcher = Fetcher::new(sites, config, transit, counters.clone(), former);
            let (counters, relay, alive) = (counters.clone(), relay.clone(), alive.clone());
            Arc::new(Worker { shared, counters, fetcher, relay, alive })
        };
        let first = make(reloads.borrow_and_update().clone(), None);
        let worker = Arc::new(ArcSwap::new(first));
        follower.uses(worker.load().shared.number);
        let accepting = listen::accept_all(worker.clone(), start.gate, opened, desk, start.stop);
        let mut accepting = std::pin::pin!(accepting);
        loop {
            tokio::select! {
                () = accepting.as_mut() => break,
                Ok(()) = reloads.changed() => {
                    let shared = reloads.borrow_and_update().clone();
                    let number = shared.number;
                    worker.store(make(shared, Some(&worker.load().fetcher)));
                    follower.uses(number);
                }
                () = sleep(sweep_interval(&worker.load())) => worker.load().fetcher.sweep(),
            }
        }
        worker.load().shared.config.timeouts.drain
    };
    // Only what came before is still served.
    drop(follower);
    drop(alive);
    // Every connection and fill holds a sender; the channel closes with the last.
    let _ = timeout(drain_timeout, ended.recv()).await;
    // Tunnels are not waited for.
    counters.cut_off();
}

fn sweep_interval(worker: &Worker) -> Duration {
    worker.shared.config.timeouts.pool_idle.clamp(SWEEP_INTERVAL_MIN, SWEEP_INTERVAL_MAX)
}
