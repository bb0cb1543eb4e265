//! Objects of which the newer metadata wait to be written, in one piece, until then: the resident
//! table has the waiting record in their place. A read has put them together, or they were in
//! memory when they got their metadata.
//!
//! Invariants: an object stands for one version; what is kept takes at most 1/`MEMORY_SHARE` of the
//! memory, and nothing once nothing waits. What dies while it waits is let go of when the flusher
//! comes to its record, at the latest. Threads: any; the lock is taken last.

use std::collections::{HashMap, VecDeque};

use crate::memory::pool::Run;
use crate::sync::{Mutex, lock};
use crate::types::{KeyHash, Sequence};

/// Of more the oldest are let go of: they can be read again.
const MEMORY_SHARE: u64 = 8;

/// A record at the start of its run.
struct Kept {
    seq: Sequence,
    run: Run,
}

#[derive(Default)]
struct State {
    kept: HashMap<KeyHash, Kept>,
    /// The oldest first; some of them are not kept any more.
    order: VecDeque<(KeyHash, Sequence)>,
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

    /// Whether an object of this length is kept.
    pub(crate) fn takes(&self, bytes: u64) -> bool {
        bytes <= self.bytes_max
    }

    /// Keeps the record at the start of a run, in place of another version of it.
    pub(crate) fn keep(&self, hash: KeyHash, seq: Sequence, run: Run) {
        let bytes = run.len_bytes() as u64;
        if !self.takes(bytes) {
            return;
        }
        let mut state = lock(&self.state);
        state.forget(hash);
        while state.bytes + bytes > self.bytes_max && state.drop_oldest() {}
        state.bytes += bytes;
        state.kept.insert(hash, Kept { seq, run });
        state.order.push_back((hash, seq));
        state.tidy();
    }

    /// The run of this version, which stays.
    pub(super) fn get(&self, hash: KeyHash, seq: Sequence) -> Option<Run> {
        let state = lock(&self.state);
        state.kept.get(&hash).filter(|kept| kept.seq == seq).map(|kept| kept.run.clone())
    }

    /// Takes out the run of this version.
    pub(crate) fn take(&self, hash: KeyHash, seq: Sequence) -> Option<Run> {
        lock(&self.state).take(hash, seq)
    }

    pub(crate) fn clear(&self) {
        *lock(&self.state) = State::default();
    }
}

impl State {
    fn is_kept(&self, hash: KeyHash, seq: Sequence) -> bool {
        self.kept.get(&hash).is_some_and(|kept| kept.seq == seq)
    }

    fn forget(&mut self, hash: KeyHash) -> Option<Run> {
        let kept = self.kept.remove(&hash)?;
        self.bytes -= kept.run.len_bytes() as u64;
        Some(kept.run)
    }

    fn take(&mut self, hash: KeyHash, seq: Sequence) -> Option<Run> {
        if self.is_kept(hash, seq) { self.forget(hash) } else { None }
    }

    /// False if there is none.
    fn drop_oldest(&mut self) -> bool {
        while let Some((hash, seq)) = self.order.pop_front() {
            if self.take(hash, seq).is_some() {
                return true;
            }
        }
        false
    }

    /// Takes those out of the order that are not kept any more, once they are most of it.
    fn tidy(&mut self) {
        if self.order.len() > 2 * self.kept.len() + 16 {
            let mut order = std::mem::take(&mut self.order);
            order.retain(|(hash, seq)| self.is_kept(*hash, *seq));
            self.order = order;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::pool::Pool;

    const FRAME: u64 = 4 << 10;

    #[test]
    fn the_oldest_go_and_a_newer_version_takes_the_place_of_an_older() {
        let pool = Pool::new(16, FRAME as usize).unwrap();
        let run = || pool.try_take_frame().unwrap();
        let (key, seq) = (KeyHash::from_raw, Sequence::from_raw);
        let assembled = Assembled::new(4 * FRAME * MEMORY_SHARE);
        let kept = || -> Vec<u64> {
            (0..9).filter(|n| assembled.get(key(*n), seq(*n)).is_some()).collect()
        };
        (1..=4).for_each(|n| assembled.keep(key(n), seq(n), run()));
        assert_eq!(kept(), [1, 2, 3, 4]);
        // Not the third to go, but the last: it is another version now.
        assembled.keep(key(1), seq(9), run());
        (5..=6).for_each(|n| assembled.keep(key(n), seq(n), run()));
        assert_eq!(kept(), [4, 5, 6]);
        assert!(assembled.take(key(1), seq(1)).is_none(), "it is not the one that is asked for");
        assert!(assembled.take(key(1), seq(9)).is_some());
        (10..1000).for_each(|n| assembled.keep(key(1), seq(n), run()));
        assert_eq!(kept(), [4, 5, 6]);
        assert!(lock(&assembled.state).order.len() < 32);
        assert_eq!(lock(&assembled.state).bytes, 4 * FRAME);
        assembled.clear();
        let free: Vec<Run> = (0..16).map_while(|_| pool.try_take_frame()).collect();
        assert_eq!(free.len(), 16, "all of it is free again");
    }
}
