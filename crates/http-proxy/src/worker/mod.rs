//! State that the requests of one worker share, and state that all workers share.
//!
//! Threads: `Shared` belongs to all; a `Worker` to one event loop, where all its tasks run.

pub(crate) mod control;
pub(crate) mod followers;

use std::sync::Arc;

use damelo::policy::Seen;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::collapse::Collapse;
use crate::config::ProxyConfig;
use crate::config::name::Via;
use crate::error_page::ErrorPage;
use crate::forward::ForwardProxy;
use crate::io::transit::Transit;
use crate::io::wake_relay::WakeRelay;
use crate::log::AccessLog;
use crate::metrics::Counters;
use crate::upstream::{Fetcher, Sites};
use crate::vault::Vault;
use crate::vault::inflight::InflightBody;

/// Shared by all workers.
pub(crate) struct Shared {
    /// Counts the settings since the start, from 1.
    pub(crate) number: u64,
    pub(crate) config: ProxyConfig,
    pub(crate) sites: Arc<Sites>,
    /// Set if this is a forward proxy.
    pub(crate) forward: Option<Arc<ForwardProxy>>,
    pub(crate) vault: Arc<Vault>,
    pub(crate) transit: Arc<Transit>,
    pub(crate) collapse: Arc<Collapse>,
    pub(crate) seen: Arc<Seen>,
    pub(crate) log: AccessLog,
    /// Values of `Via`.
    pub(crate) via: Via,
    /// The body of the proxy's own 502, 503 and 504.
    pub(crate) error_page: Option<ErrorPage>,
}

/// One worker.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) fetcher: Fetcher,
    /// Delivers wakes to requests waiting for the disk.
    pub(crate) relay: Arc<WakeRelay>,
    /// Held by every task that must end before the worker may.
    pub(crate) alive: mpsc::Sender<()>,
}

impl Worker {
    /// Milliseconds since 1970: the unit of freshness and age.
    pub(crate) fn now_ms(&self) -> u64 {
        self.shared.config.clock.unix_millis()
    }

    /// The body of a fill of the response under `key`; `length_bytes` if the origin announced it.
    pub(crate) fn inflight(&self, key: Vec<u8>, length_bytes: Option<u64>) -> Arc<InflightBody> {
        let Shared { vault, transit, .. } = &*self.shared;
        InflightBody::new(vault.store(), transit, key, length_bytes)
    }

    /// Runs this as a task of its own, which the worker does not end before.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let alive = self.alive.clone();
        tokio::spawn(async move {
            let done = work.await;
            drop(alive);
            done
        })
    }

    pub(crate) fn now_s(&self) -> u64 {
        self.shared.config.clock.unix_seconds()
    }
}
