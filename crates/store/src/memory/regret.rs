//! Estimates how many of the evicted objects are requested again soon: the cost of admitting a
//! newcomer that evicts others.
//!
//! "Soon" is the time in which an eighth of memory is filled anew. Neighbours that come with a page
//! must be used within the same time to count as wanted (`group::neighbours`), so that both sides
//! of the choice are measured alike. Only a sample of the objects is followed. Threads: any;
//! relaxed atomics, lost updates only blur the estimate.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::policy::notes::Note;
use crate::policy::residency::Hint;
use crate::policy::sample::Sample;

/// At most one object in this many is followed.
const FOLLOWED_ONE_IN_MIN: u64 = 8;
const NOTES_PER_FRAME: usize = 2;
/// Notes for each followed object that leaves within "soon", so that few notes are overwritten.
const NOTES_PER_LEAVING: u64 = 4;
/// "Soon" ends when one part in this many of memory has been filled.
const SOON_SHARE: u64 = 8;
/// Counts are halved beyond this, so that the estimate follows the workload.
const COUNT_MAX: u64 = 512;

pub(super) struct Regret {
    /// For each followed object: when it left, and its class.
    gone: Sample,
    /// Bytes brought into memory so far: the clock, read in frames.
    filled_bytes: AtomicU64,
    frame_bytes: u64,
    soon: u64,
    /// Objects that left, and those requested again soon, by class: others, loved.
    left: [AtomicU64; 2],
    missed: [AtomicU64; 2],
}

impl Regret {
    pub(super) fn new(frames: usize, frame_bytes: usize) -> Regret {
        Regret {
            gone: Sample::new(frames * NOTES_PER_FRAME, FOLLOWED_ONE_IN_MIN),
            filled_bytes: AtomicU64::new(0),
            frame_bytes: frame_bytes as u64,
            soon: (frames as u64 / SOON_SHARE).max(1),
            left: Default::default(),
            missed: Default::default(),
        }
    }

    /// Sets the number of objects in memory: with many small ones, a smaller sample is followed.
    pub(super) fn set_objects(&self, objects: usize) {
        let leave_soon = objects as u64 / SOON_SHARE;
        self.gone.set_wanted(leave_soon * NOTES_PER_LEAVING);
    }

    pub(super) fn bytes(&self) -> usize {
        self.gone.bytes()
    }

    pub(super) fn filled(&self, bytes: usize) {
        self.filled_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The clock, in frames; wraps.
    pub(super) fn now(&self) -> u32 {
        (self.filled_bytes.load(Ordering::Relaxed) / self.frame_bytes) as u32
    }

    /// True if "soon" has not passed since `then`.
    pub(super) fn is_recent(&self, then: u32) -> bool {
        u64::from(self.now().wrapping_sub(then)) <= self.soon
    }

    /// An object of a group with this hint leaves memory.
    pub(super) fn leaves(&self, hash: u64, hint: Hint) {
        let loved = hint == Hint::Loved;
        if !self.gone.leaves(hash, || Note { said: u8::from(loved), when: self.now() }) {
            return;
        }
        let class = usize::from(loved);
        if self.left[class].fetch_add(1, Ordering::Relaxed) > COUNT_MAX {
            for count in [&self.left[class], &self.missed[class]] {
                count.store(count.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
            }
        }
    }

    /// An object that is not in memory is requested.
    pub(super) fn asked(&self, hash: u64) {
        if let Some(note) = self.gone.asked(hash)
            && self.is_recent(note.when)
        {
            self.missed[usize::from(note.said == 1)].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Percentage of the evicted objects, loved or others, that are requested again soon.
    pub(super) fn percent(&self, hint: Hint) -> u64 {
        let class = usize::from(hint == Hint::Loved);
        let left = self.left[class].load(Ordering::Relaxed).max(1);
        (self.missed[class].load(Ordering::Relaxed) * 100 / left).min(100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Followed ones, however few are.
    fn hash(n: u64) -> u64 {
        n << 40
    }

    #[test]
    fn many_small_objects_are_not_lost_for_want_of_notes() {
        const OBJECTS: u64 = 1 << 18;
        let regret = Regret::new(64, 65536);
        regret.set_objects(OBJECTS as usize);
        let mut rng = fastrand::Rng::with_seed(1);
        let hashes: Vec<u64> = (0..OBJECTS / SOON_SHARE).map(|_| rng.u64(..)).collect();
        hashes.iter().for_each(|hash| regret.leaves(*hash, Hint::Neutral));
        hashes.iter().for_each(|hash| regret.asked(*hash));
        assert!(
            regret.percent(Hint::Neutral) > 80,
            "{}: all of them came back",
            regret.percent(Hint::Neutral)
        );
    }

    #[test]
    fn what_is_asked_for_soon_after_it_left_counts_and_later_does_not() {
        let regret = Regret::new(8000, 4096);
        for n in 1..=20 {
            regret.leaves(hash(n), Hint::Neutral);
        }
        regret.filled(1000 * 4096);
        for n in 1..=5 {
            regret.asked(hash(n));
            regret.asked(hash(n));
        }
        regret.asked(hash(99));
        assert_eq!(regret.percent(Hint::Neutral), 25, "each once, and nothing that never left");
        regret.filled(4096);
        (6..=20).for_each(|n| regret.asked(hash(n)));
        assert_eq!(regret.percent(Hint::Neutral), 25, "too late");
        assert_eq!(regret.percent(Hint::Loved), 0);
    }
}
