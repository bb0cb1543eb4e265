//! How long an operation has waited, and that it did.
//!
//! Owns: the moment at which one operation began to wait. Invariant: a wait is counted once, as it
//! begins, however often it is looked at. Threads: the one that runs the operation.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use crate::stats::add;

/// The wait of one operation, counted when it begins.
#[derive(Default)]
pub(crate) struct Waiting(Option<Instant>);

impl Waiting {
    /// How long the operation has waited; zero if it has not.
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.map_or(Duration::ZERO, |begun| begun.elapsed())
    }

    /// True if it waits, or has.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.is_some()
    }

    /// The wait begins, unless it has begun before.
    pub(crate) fn begin(&mut self, counter: &AtomicU64) {
        self.0.get_or_insert_with(|| {
            add(counter, 1);
            Instant::now()
        });
    }
}
