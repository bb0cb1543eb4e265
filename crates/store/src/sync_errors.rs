//! Syncs of a volume that failed, and of how many of them callers of `Store::sync` were told.
//!
//! Linux tells a write-back that failed once for each open file, and takes what it gave up for
//! written from then on. Whoever happens to sync hears of it, the keeper or a checkpoint mostly,
//! and later syncs succeed though what they promise is partly lost.
//!
//! Invariant: each failure is told at least once, and no more to who comes after that. Threads:
//! any.

use std::io;

use crate::sync::{Mutex, lock};

#[derive(Default)]
pub(crate) struct SyncErrors(Mutex<State>);

#[derive(Default)]
struct State {
    count: u64,
    told: u64,
    last: Option<(io::ErrorKind, String)>,
}

impl SyncErrors {
    pub(crate) fn note(&self, error: &io::Error) {
        let mut state = lock(&self.0);
        state.count += 1;
        state.last = Some((error.kind(), error.to_string()));
    }

    pub(crate) fn count(&self) -> u64 {
        lock(&self.0).count
    }

    /// Of how many a caller was told.
    pub(crate) fn told(&self) -> u64 {
        lock(&self.0).told
    }

    /// Tells a caller of those beyond the first `told`: the last one, if there is any.
    pub(crate) fn tell_since(&self, told: u64) -> io::Result<()> {
        let mut state = lock(&self.0);
        if state.count == told {
            return Ok(());
        }
        state.told = state.count;
        let last = state.last.clone();
        last.map_or(Ok(()), |(kind, text)| Err(io::Error::new(kind, text)))
    }
}
