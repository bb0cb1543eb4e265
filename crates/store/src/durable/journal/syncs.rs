//! Syncs of the journal: one at a time, each for all who wait when it begins.
//!
//! Linux tells once for each open file that something could not be written, and takes it for
//! written from then on. Of two syncs at once, one would fail and the other succeed, whoever had
//! written what was lost.
//!
//! Invariant: a caller is told the outcome of a sync that began after it had come, so one that
//! covers all that it had written, and no other sync was under way meanwhile. Threads: any; one
//! syncs, the others wait.

use std::io;

use crate::signal::Signal;
use crate::sync::{Mutex, lock};

#[derive(Default)]
pub(super) struct Syncs {
    state: Mutex<State>,
    ended: Signal,
}

#[derive(Default)]
struct State {
    begun: u64,
    /// As many as begun, or one less while one is under way.
    ended: u64,
    /// Why the last one failed, if it did.
    failure: Option<(io::ErrorKind, String)>,
}

impl Syncs {
    /// Waits for a sync that begins from now on: another caller's, or this one.
    pub(super) fn sync(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = lock(&self.state);
        let enough = state.begun + 1;
        while state.begun > state.ended {
            state = self.ended.wait(state);
            if state.ended >= enough {
                let failure = state.failure.clone();
                return failure.map_or(Ok(()), |(kind, text)| Err(io::Error::new(kind, text)));
            }
        }
        state.begun += 1;
        drop(state);
        let outcome = sync();
        let mut state = lock(&self.state);
        state.ended += 1;
        state.failure = outcome.as_ref().err().map(|error| (error.kind(), error.to_string()));
        drop(state);
        self.ended.notify_all();
        outcome
    }
}
