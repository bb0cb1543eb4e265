//! Changes a running proxy without disturbing connections: new settings, reopened logs.
//!
//! Requests share one immutable [`Shared`]. A reload makes a new one and passes it to every worker,
//! which uses it from the next request on; requests in flight keep the old one. Invariants: store,
//! locks, counters and log writer stay the same for the proxy's whole life; a reload that fails
//! changes nothing. Threads: any.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::config::name::Via;
use crate::config::{OriginTarget, ProxyConfig};
use crate::error::ProxyError;
use crate::error_page::ErrorPage;
use crate::forward::{ForwardConfig, ForwardProxy, check_shared};
use crate::io::locks::lock;
use crate::log::Sink;
use crate::metrics::Counter;
use crate::say::say;
use crate::upstream::Sites;
use crate::worker::Shared;
use crate::worker::followers::Followers;

/// A handle on a running proxy. Cheap to clone; using it after the proxy ended does nothing.
#[derive(Clone)]
pub struct Control {
    current: Arc<watch::Sender<Arc<Shared>>>,
    /// A [`Stage`], as a number.
    stage: Arc<AtomicU8>,
    reloads: Arc<Reloads>,
    /// Held by one reload at a time.
    reloading: Arc<Mutex<()>>,
    followers: Arc<Followers>,
    doors: Arc<dyn Doors>,
}

/// What clients come in by, in the eyes of a reload.
pub(crate) trait Doors: Send + Sync {
    /// Does all of a reload that can fail, without a change. What it returns makes the change.
    ///
    /// # Errors
    /// Certificates cannot be used, or there are none for a listener that wants some.
    fn prepare(&self, new: &ProxyConfig) -> Result<Box<dyn FnOnce() + '_>, ProxyError>;
}

/// How far a proxy is that was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It was not.
    Serving,
    /// It takes connections for a while, so that a balancer can send its clients elsewhere.
    Leaving,
    /// It takes no more.
    Draining,
}

/// Counts of reload attempts.
#[derive(Debug, Default)]
pub(crate) struct Reloads {
    pub(crate) done: Counter,
    pub(crate) failed: Counter,
    /// Whether the last attempt failed.
    pub(crate) last_failed: AtomicBool,
    /// Settings that were read and wait for a restart.
    pub(crate) restart_pending: AtomicUsize,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

impl PartialEq for Control {
    fn eq(&self, other: &Control) -> bool {
        Arc::ptr_eq(&self.current, &other.current)
    }
}

impl Eq for Control {}

impl Control {
    pub(crate) fn new(shared: Arc<Shared>, doors: Arc<dyn Doors>) -> Control {
        let current = Arc::new(watch::Sender::new(shared));
        Control {
            current,
            stage: Arc::new(AtomicU8::new(Stage::Serving as u8)),
            reloads: Arc::default(),
            reloading: Arc::default(),
            followers: Arc::default(),
            doors,
        }
    }

    /// The workers whose requests use what this changes.
    pub(crate) fn followers(&self) -> &Arc<Followers> {
        &self.followers
    }

    /// Tells who asks whether the proxy is ready.
    pub(crate) fn begin(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    pub(crate) fn stage(&self) -> Stage {
        let stage = self.stage.load(Ordering::Relaxed);
        let stages = [Stage::Serving, Stage::Leaving];
        stages.into_iter().find(|one| *one as u8 == stage).unwrap_or(Stage::Draining)
    }

    /// The current shared state.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        self.current.borrow().clone()
    }

    /// A channel that announces every change.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Shared>> {
        self.current.subscribe()
    }

    pub(crate) fn reloads(&self) -> &Reloads {
        &self.reloads
    }

    /// Counts a failed reload that did not reach [`Control::reload`], for example because the
    /// settings file could not be read.
    pub fn reload_failed(&self) {
        self.reloads.failed.one();
        self.reloads.last_failed.store(true, Ordering::Relaxed);
    }

    /// Says how many settings of the last reload take effect at the next start only, for the gauge
    /// `damelo_proxy_restart_pending`.
    pub fn set_restart_pending(&self, keys: usize) {
        self.reloads.restart_pending.store(keys, Ordering::Relaxed);
    }

    /// Uses new settings from the next request on: once this returns, no request begins with the
    /// former ones. Addresses, threads, the number of connections, the demo and the clock
    /// stay as they are. It waits for every worker, and so must not be called on
    /// one.
    ///
    /// # Errors
    /// The new settings cannot be used; the old ones stay. This is counted.
    pub fn reload(&self, config: ProxyConfig) -> Result<(), ProxyError> {
        self.reload_with(config, None)
    }

    /// As [`Control::reload`], with new rules for a forward proxy (for any other they make no
    /// difference): who may go where, from the next request on; tunnels that are open stay. Files
    /// that the rules name are read again. Its other settings stay as they are.
    ///
    /// # Errors
    /// As [`Control::reload`], and when one of these files cannot be used.
    pub fn reload_forward(
        &self,
        config: ProxyConfig,
        forward: &ForwardConfig,
    ) -> Result<(), ProxyError> {
        self.reload_with(config, Some(forward))
    }

    fn reload_with(
        &self,
        config: ProxyConfig,
        forward: Option<&ForwardConfig>,
    ) -> Result<(), ProxyError> {
        self.replace(config, forward).inspect_err(|_| self.reload_failed())?;
        self.reloads.done.one();
        self.reloads.last_failed.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn replace(
        &self,
        config: ProxyConfig,
        forward: Option<&ForwardConfig>,
    ) -> Result<(), ProxyError> {
        let _reloading = lock(&self.reloading);
        let running = self.shared();
        let prepared = self.prepare(config, forward, &running)?;
        if let (Some(_), Some(forward)) = (forward, &prepared.forward) {
            forward.tell_of_lists();
        }
        self.put_in_force(prepared, &running);
        Ok(())
    }

    /// Makes all of new settings that can fail.
    fn prepare(
        &self,
        mut config: ProxyConfig,
        forward: Option<&ForwardConfig>,
        running: &Shared,
    ) -> Result<Prepared<'_>, ProxyError> {
        let mut running_forward = running.forward.clone();
        if running_forward.is_some() {
            config = config.without_origin();
        }
        // Also what waits for a restart, which would fail by it.
        config.check()?;
        if let Some(running) = &mut running_forward {
            check_shared(&config)?;
            if let Some(new) = forward {
                *running = Arc::new(running.with_rules(&new.rules)?);
            }
        }
        let kept = &running.config;
        keep_from_start(&mut config, kept);
        let open_log = || {
            Sink::open(&config.log.to)
                .map_err(|source| ProxyError::Log { target: config.log.to.to_string(), source })
        };
        Ok(Prepared {
            via: Via::of(&config.name)?,
            error_page: ErrorPage::load(config.errors.page.as_deref())?,
            sites: Arc::new(running.sites.with(&config)?),
            open_doors: self.doors.prepare(&config)?,
            log: (config.log.to != kept.log.to).then(open_log).transpose()?,
            forward: running_forward,
            config,
        })
    }

    /// Puts new settings in the place of the running ones, and waits a moment for the workers to
    /// take them up.
    fn put_in_force(&self, prepared: Prepared<'_>, running: &Shared) {
        let Prepared { config, via, error_page, sites, open_doors, log, forward } = prepared;
        open_doors();
        log.into_iter().for_each(|log| running.log.write_to(log));
        running.vault.follow(&config);
        running.transit.set_bytes_max(config.limits.transit_bytes_max);
        if config.groups.hints_by_use != running.config.groups.hints_by_use {
            running.vault.group_hints.switch(config.groups.hints_by_use, running.vault.store());
        }
        let number = running.number + 1;
        let shared = Shared {
            number,
            config,
            via,
            error_page,
            sites,
            forward,
            vault: running.vault.clone(),
            transit: running.transit.clone(),
            collapse: running.collapse.clone(),
            seen: running.seen.clone(),
            log: running.log.clone(),
        };
        self.current.send_replace(Arc::new(shared));
        if !self.followers.wait_for(number) {
            say(format_args!(
                "damelo: a worker is busy and still uses the settings from before the reload"
            ));
        }
        // They may ask an origin that hangs, and is not the site's any more.
        running.collapse.outdate_silent();
    }

    /// Reopens the file of the access log, for example after it was renamed.
    pub fn reopen_log(&self) {
        self.shared().log.reopen();
    }

    /// Ends the access log, once nothing is left to log.
    pub(crate) fn end_log(&self) {
        self.shared().log.end();
    }
}

/// New settings of which nothing can fail any more.
struct Prepared<'a> {
    config: ProxyConfig,
    via: Via,
    error_page: Option<ErrorPage>,
    sites: Arc<Sites>,
    /// Lets in and keeps out by the new settings.
    open_doors: Box<dyn FnOnce() + 'a>,
    /// Where the access log goes from now on, if that is somewhere else.
    log: Option<Sink>,
    forward: Option<Arc<ForwardProxy>>,
}

/// Keeps what only a start sets: every such key of the configuration file, which a test of these
/// holds this to, and what is no key.
pub(crate) fn keep_from_start(new: &mut ProxyConfig, kept: &ProxyConfig) {
    new.from = kept.from;
    // The demo lives as long as the proxy.
    if [&new.to, &kept.to].contains(&&OriginTarget::Demo) {
        new.to = kept.to.clone();
    }
    new.admin.from = kept.admin.from;
    new.workers = kept.workers;
    new.limits.connections_max = kept.limits.connections_max;
    new.limits.whole_body_bytes_max = kept.limits.whole_body_bytes_max;
    new.inherited = kept.inherited.clone();
    new.clock = kept.clock.clone();
    new.listen.clone_from(&kept.listen);
}
