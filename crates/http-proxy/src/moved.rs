//! When bytes moved last, for limits that count silence alone.
//!
//! Threads: any; two atomic words.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// When something moved last.
#[derive(Debug)]
pub(crate) struct Moved {
    begun: Instant,
    last_ms: AtomicU64,
    /// The silence is somebody else's, who has a limit of his own.
    excused: AtomicBool,
}

impl Moved {
    pub(crate) fn new() -> Moved {
        let (last_ms, excused) = (AtomicU64::new(0), AtomicBool::new(false));
        Moved { begun: Instant::now(), last_ms, excused }
    }

    pub(crate) fn now(&self) {
        let ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(ms, Relaxed);
        self.excused.store(false, Relaxed);
    }

    /// Nothing counts as silence until something moves again.
    pub(crate) fn excuse(&self) {
        self.excused.store(true, Relaxed);
    }

    /// Waits until nothing has moved for `limit`.
    pub(crate) async fn ceased(&self, limit: Duration) {
        loop {
            let mut last = self.begun + Duration::from_millis(self.last_ms.load(Relaxed));
            if self.excused.load(Relaxed) {
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
