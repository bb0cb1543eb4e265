//! Resources whose validation has just failed, and is not tried again at once.
//!
//! Invariant: bounded memory; a collision only ends a pause early. Threads: any; one atomic word per
//! pause.

use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

const SLOTS: usize = 4096;
const PAUSE_MS: u32 = 1000;

/// The pauses.
#[derive(Debug)]
pub(crate) struct Pauses {
    /// 32 bits of the key's hash, and 32 of the millisecond in which its pause ends.
    slots: Box<[AtomicU64]>,
    hasher: std::hash::RandomState,
    begun: Instant,
}

impl Pauses {
    pub(crate) fn new() -> Pauses {
        let slots = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        Pauses { slots, hasher: std::hash::RandomState::new(), begun: Instant::now() }
    }

    pub(crate) fn of(&self, key: &[u8]) -> Pause<'_> {
        let hash = self.hasher.hash_one(key);
        Pause { all: self, slot: &self.slots[hash as u32 as usize % SLOTS], tag: hash >> 32 }
    }

    fn now_ms(&self) -> u32 {
        self.begun.elapsed().as_millis() as u32
    }
}

/// The pause of one resource, which may be on.
#[derive(Clone, Copy)]
pub(crate) struct Pause<'p> {
    all: &'p Pauses,
    slot: &'p AtomicU64,
    tag: u64,
}

impl Pause<'_> {
    pub(crate) fn begin(self) {
        let end_ms = self.all.now_ms().wrapping_add(PAUSE_MS);
        self.slot.store(self.tag << 32 | u64::from(end_ms), Ordering::Relaxed);
    }

    pub(crate) fn is_on(self) -> bool {
        let word = self.slot.load(Ordering::Relaxed);
        // Of one that ended more is left, as what is below zero is a large number.
        let left_ms = (word as u32).wrapping_sub(self.all.now_ms());
        word >> 32 == self.tag && (1..=PAUSE_MS).contains(&left_ms)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_a_second_long_and_for_one_key() {
        let pauses = Pauses::new();
        assert!(!pauses.of(b"a").is_on());
        pauses.of(b"a").begin();
        tokio::time::advance(Duration::from_millis(999)).await;
        assert!(pauses.of(b"a").is_on() && !pauses.of(b"b").is_on());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!pauses.of(b"a").is_on());
    }
}
