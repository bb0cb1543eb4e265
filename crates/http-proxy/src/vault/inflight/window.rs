//! How much of all fills together is kept in memory for clients that may join them.
//!
//! Invariant: what is held is counted in the body that holds it, and given back at its end. Threads:
//! any; two atomics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the bytes that fills keep. They may be over the limit by what those keep that are read
/// along, and by a chunk for each of the others.
#[derive(Debug)]
pub(crate) struct Window {
    held_bytes: AtomicU64,
    bytes_max: AtomicU64,
}

impl Window {
    pub(crate) fn new(bytes_max: u64) -> Window {
        Window { held_bytes: AtomicU64::new(0), bytes_max: AtomicU64::new(bytes_max) }
    }

    /// Changes the limit.
    pub(crate) fn set_bytes_max(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Whether a fill that nobody has joined should keep nothing.
    pub(crate) fn is_full(&self) -> bool {
        self.held_bytes.load(Ordering::Relaxed) >= self.bytes_max.load(Ordering::Relaxed)
    }

    /// A body holds `now` bytes where it held `before`.
    pub(super) fn changed(&self, before: u64, now: u64) {
        if now >= before {
            self.held_bytes.fetch_add(now - before, Ordering::Relaxed);
        } else {
            self.held_bytes.fetch_sub(before - now, Ordering::Relaxed);
        }
    }
}
