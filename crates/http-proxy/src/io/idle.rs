//! A timer for silence: the time since bytes last moved, for limits on silence alone.
//!
//! Threads: any; two atomic words.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Time of the last movement.
#[derive(Debug)]
pub(crate) struct IdleTimer {
    begun: Instant,
    last_ms: AtomicU64,
    /// The silence is another party's, which has its own limit.
    paused: AtomicBool,
    /// The response has begun and not ended: its bytes also count as movement.
    answering: AtomicBool,
}

impl IdleTimer {
    pub(crate) fn new() -> IdleTimer {
        let (last_ms, paused) = (AtomicU64::new(0), AtomicBool::new(false));
        let answering = AtomicBool::new(false);
        IdleTimer { begun: Instant::now(), last_ms, paused, answering }
    }

    pub(crate) fn touch(&self) {
        let ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(ms, Relaxed);
        self.paused.store(false, Relaxed);
    }

    /// Suspends the timer until the next movement.
    pub(crate) fn pause(&self) {
        self.paused.store(true, Relaxed);
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Relaxed)
    }

    /// Time of the last movement.
    pub(crate) fn last(&self) -> Instant {
        self.begun + Duration::from_millis(self.last_ms.load(Relaxed))
    }

    pub(crate) fn set_answering(&self, answering: bool) {
        self.answering.store(answering, Relaxed);
    }

    pub(crate) fn is_answering(&self) -> bool {
        self.answering.load(Relaxed)
    }

    /// Waits until nothing has moved for `limit`.
    pub(crate) async fn expired(&self, limit: Duration) {
        loop {
            let mut last = self.last();
            if self.paused.load(Relaxed) {
                last = Instant::now();
            }
            let deadline = last + limit;
            if deadline <= Instant::now() {
                return;
            }
            sleep_until(deadline).await;
        }
    }
}
