//! A connection's place among all, and among those of the worker that serves it.
//!
//! Invariant: it is counted for its worker until it is dropped. Threads: made by the worker that
//! accepted, dropped by the one that serves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::sync::OwnedSemaphorePermit;

/// One connection, counted among all and for the worker that serves it, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
    open: Arc<AtomicUsize>,
}

impl Place {
    /// A place of a worker that counts its connections in `open`.
    pub(crate) fn new(permit: OwnedSemaphorePermit, open: Arc<AtomicUsize>) -> Place {
        open.fetch_add(1, Relaxed);
        Place { _permit: permit, open }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Relaxed);
    }
}
