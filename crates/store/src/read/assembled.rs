//! Objects of which the newer metadata wait to be written, put together by a read and kept for
//! later ones until then: the resident table has the waiting record in their place.
//!
//! Invariants: an object stands for the one version that it was put together of; what is kept takes
//! at most 1/`MEMORY_SHARE` of the memory, and nothing once nothing waits. Threads: any; the lock
//! is taken last.

use std::collections::HashMap;

use crate::memory::pool::Run;
use crate::sync::{Mutex, lock};
use crate::types::{KeyHash, Sequence};

/// More is let go of, all at once: it can be read again.
const MEMORY_SHARE: u64 = 16;

/// A record at the start of its run.
struct Kept {
    seq: Sequence,
    run: Run,
}

#[derive(Default)]
struct State {
    kept: HashMap<KeyHash, Kept>,
    bytes: u64,
}

pub(crate) struct Assembled {
    state: Mutex<State>,
    bytes_max: u64,
}

impl Assembled {
    pub(crate) fn new(memory_bytes: u64) -> Assembled {
        Assembled { state: Mutex::default(), bytes_max: memory_bytes / MEMORY_SHARE }
    }

    /// Keeps the record at the start of a run.
    pub(super) fn keep(&self, hash: KeyHash, seq: Sequence, run: Run) {
        let bytes = run.len_bytes() as u64;
        if bytes > self.bytes_max {
            return;
        }
        let mut state = lock(&self.state);
        state.forget(hash);
        if state.bytes + bytes > self.bytes_max {
            *state = State::default();
        }
        state.bytes += bytes;
        state.kept.insert(hash, Kept { seq, run });
    }

    /// The run of this version, which stays.
    pub(super) fn get(&self, hash: KeyHash, seq: Sequence) -> Option<Run> {
        let state = lock(&self.state);
        state.kept.get(&hash).filter(|kept| kept.seq == seq).map(|kept| kept.run.clone())
    }

    /// Takes out the run of this version.
    pub(crate) fn take(&self, hash: KeyHash, seq: Sequence) -> Option<Run> {
        let kept = lock(&self.state).forget(hash)?;
        (kept.seq == seq).then_some(kept.run)
    }

    pub(crate) fn clear(&self) {
        *lock(&self.state) = State::default();
    }
}

impl State {
    fn forget(&mut self, hash: KeyHash) -> Option<Kept> {
        let kept = self.kept.remove(&hash)?;
        self.bytes -= kept.run.len_bytes() as u64;
        Some(kept)
    }
}
