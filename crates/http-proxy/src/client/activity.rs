//! What a connection is doing: which requests are under way, and whether their answers move.
//!
//! Invariant: `active` counts the requests from their headers to the last byte of the answer that
//! hyper took. Threads: one connection's state, shared by the tasks of its worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use http::StatusCode;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Duration, Instant};

use crate::client::limits::Counted;
use crate::metrics::{BodySource, BrokenBy, Counters};

/// State of one connection.
#[derive(Debug)]
pub(crate) struct Activity {
    counters: Arc<Counters>,
    opened: Instant,
    active: AtomicUsize,
    begun: AtomicU64,
    /// Answers with bytes ready that the client does not take.
    stalled: AtomicUsize,
    moved_ms: AtomicU64,
    /// When the last request ended.
    idle_ms: AtomicU64,
    /// The last request is such that nothing of it can still be on its way.
    may_rest: AtomicBool,
    /// The connection has been silent for so long that it should let go of what it does not need.
    rests: AtomicBool,
    /// An answer broke off, and nothing but the way the connection ends can tell its client.
    broken_off: AtomicBool,
    /// What the connection counts for, tunnels that were made of it included.
    _counted: Option<Counted>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Activity {
    pub(crate) fn new(
        counters: Arc<Counters>,
        counted: Option<Counted>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Arc<Activity> {
        Arc::new(Activity {
            counters,
            _counted: counted,
            _permit: permit,
            opened: Instant::now(),
            active: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            stalled: AtomicUsize::new(0),
            moved_ms: AtomicU64::new(0),
            idle_ms: AtomicU64::new(0),
            may_rest: AtomicBool::new(true),
            rests: AtomicBool::new(false),
            broken_off: AtomicBool::new(false),
        })
    }

    /// A request begins; it ends when what is returned is dropped.
    pub(crate) fn begin(self: &Arc<Activity>) -> Active {
        self.active.fetch_add(1, Relaxed);
        self.begun.fetch_add(1, Relaxed);
        self.counters.under_way.up();
        Active { activity: self.clone() }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.active.load(Relaxed) == 0
    }

    /// Since when no request is under way, if none is.
    pub(crate) fn idle_since(&self) -> Instant {
        self.opened + Duration::from_millis(self.idle_ms.load(Relaxed))
    }

    /// Requests so far.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Relaxed)
    }

    /// What came was answered with this status before it could be a request.
    pub(crate) fn refused(&self, status: StatusCode) {
        self.counters.refused(status);
    }

    /// Says of a request that has just begun whether the connection may rest when it is answered.
    pub(crate) fn set_may_rest(&self, may_rest: bool) {
        self.may_rest.store(may_rest, Relaxed);
    }

    /// No request is under way, and nothing of the last one is.
    pub(crate) fn may_rest(&self) -> bool {
        self.is_idle() && self.may_rest.load(Relaxed)
    }

    /// The connection should rest.
    pub(crate) fn rest(&self) {
        self.rests.store(true, Relaxed);
    }

    /// Whether it should; said once.
    pub(crate) fn take_rest(&self) -> bool {
        self.rests.load(Relaxed) && self.rests.swap(false, Relaxed)
    }

    /// When the client last took a part of an answer, if it has one before it and does not.
    pub(crate) fn stalled_since(&self) -> Option<Instant> {
        let moved = Duration::from_millis(self.moved_ms.load(Relaxed));
        (self.stalled.load(Relaxed) > 0).then(|| self.opened + moved)
    }

    /// Whether the connection must not end as if all were well.
    pub(crate) fn has_broken_off(&self) -> bool {
        self.broken_off.load(Relaxed)
    }

    fn moved(&self) {
        self.moved_ms.store(self.age_ms(), Relaxed);
    }

    fn age_ms(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Active {
    activity: Arc<Activity>,
}

impl Active {
    /// Something of the answer went out.
    pub(crate) fn moved(&self) {
        self.activity.moved();
    }

    /// The connection took bytes of the answer's body.
    pub(crate) fn sent(&self, from: BodySource, bytes: u64) {
        self.activity.counters.sent(from, bytes);
    }

    /// The client did not get the answer to its end.
    pub(crate) fn broken(&self, by: BrokenBy) {
        self.activity.counters.broke_off(by);
    }

    /// The answer broke off, and its client would take it for whole.
    pub(crate) fn broke_off(&self) {
        self.activity.broken_off.store(true, Relaxed);
    }

    /// The client takes nothing of what is ready of the answer, or does again; say it once.
    pub(crate) fn set_stalled(&self, stalled: bool) {
        let count = &self.activity.stalled;
        match stalled {
            true => count.fetch_add(1, Relaxed),
            false => count.fetch_sub(1, Relaxed),
        };
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.activity.idle_ms.store(self.activity.age_ms(), Relaxed);
        self.activity.active.fetch_sub(1, Relaxed);
        self.activity.counters.under_way.down();
    }
}
