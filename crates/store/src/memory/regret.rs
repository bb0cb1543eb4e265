//! Of the objects that leave memory, how many are asked for again soon? That is what a newcomer costs
//! that pushes others out.
//!
//! "Soon" is within the time in which an eighth of memory is filled anew, the time in which neighbours
//! that come with a page must be used to count as wanted (`read::neighbours`): both sides of the choice
//! are measured alike. Only some objects are followed. Threads: any; relaxed, lost updates blur the share.

use std::sync::atomic::{AtomicU64, Ordering};

/// One object in so many is followed.
const FOLLOWED_SHARE: u64 = 8;
const SLOTS_PER_FRAME: usize = 2;
const SLOTS_MIN: usize = 64;
/// Of memory, the share that is filled in what counts as soon.
const SOON_SHARE: u64 = 8;
/// Counts are halved beyond this, so that the share follows the use.
const COUNT_MAX: u64 = 512;

/// A slot: 31 bits of the key's hash, whether it was loved, and the time when it left.
const LOVED_BIT: u64 = 1 << 32;
const TAG_SHIFT: u32 = 33;

pub(super) struct Regret {
    slots: Box<[AtomicU64]>,
    /// Bytes that came to stay so far: the clock, read in frames.
    filled_bytes: AtomicU64,
    frame_bytes: u64,
    soon: u64,
    /// By class: others, loved.
    left: [AtomicU64; 2],
    missed: [AtomicU64; 2],
}

impl Regret {
    pub(super) fn new(frames: usize, frame_bytes: usize) -> Regret {
        let slots = (frames * SLOTS_PER_FRAME).next_power_of_two().max(SLOTS_MIN);
        Regret {
            slots: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            filled_bytes: AtomicU64::new(0),
            frame_bytes: frame_bytes as u64,
            soon: (frames as u64 / SOON_SHARE).max(1),
            left: Default::default(),
            missed: Default::default(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val::<[AtomicU64]>(&self.slots)
    }

    pub(super) fn filled(&self, bytes: usize) {
        self.filled_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The clock, in frames; wraps.
    pub(super) fn now(&self) -> u32 {
        (self.filled_bytes.load(Ordering::Relaxed) / self.frame_bytes) as u32
    }

    /// True if what happened at `then` is still recent.
    pub(super) fn is_recent(&self, then: u32) -> bool {
        u64::from(self.now().wrapping_sub(then)) <= self.soon
    }

    fn slot(&self, hash: u64) -> Option<&AtomicU64> {
        let followed = hash.is_multiple_of(FOLLOWED_SHARE);
        followed.then(|| &self.slots[(hash / FOLLOWED_SHARE) as usize & (self.slots.len() - 1)])
    }

    pub(super) fn leaves(&self, hash: u64, loved: bool) {
        let Some(slot) = self.slot(hash) else { return };
        let class = usize::from(loved);
        let tag = hash >> TAG_SHIFT << TAG_SHIFT;
        let bit = if loved { LOVED_BIT } else { 0 };
        slot.store(tag | bit | u64::from(self.now()), Ordering::Relaxed);
        if self.left[class].fetch_add(1, Ordering::Relaxed) > COUNT_MAX {
            for count in [&self.left[class], &self.missed[class]] {
                count.store(count.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
            }
        }
    }

    /// It is not in memory, and asked for.
    pub(super) fn asked(&self, hash: u64) {
        let Some(slot) = self.slot(hash) else { return };
        let stored = slot.load(Ordering::Relaxed);
        if stored != 0 && stored >> TAG_SHIFT == hash >> TAG_SHIFT {
            slot.store(0, Ordering::Relaxed);
            if self.is_recent(stored as u32) {
                let class = usize::from(stored & LOVED_BIT != 0);
                self.missed[class].fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Share of the loved or the others that is asked for soon after leaving.
    pub(super) fn percent(&self, loved: bool) -> u64 {
        let class = usize::from(loved);
        let left = self.left[class].load(Ordering::Relaxed).max(1);
        (self.missed[class].load(Ordering::Relaxed) * 100 / left).min(100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Followed ones.
    fn hash(n: u64) -> u64 {
        (n << 40) | (n * FOLLOWED_SHARE)
    }

    #[test]
    fn what_is_asked_for_soon_after_it_left_counts_and_later_does_not() {
        let regret = Regret::new(80, 4096);
        for n in 1..=20 {
            regret.leaves(hash(n), false);
        }
        regret.filled(10 * 4096);
        for n in 1..=5 {
            regret.asked(hash(n));
            regret.asked(hash(n));
        }
        regret.asked(hash(99));
        assert_eq!(regret.percent(false), 25, "each once, and nothing that never left");
        regret.filled(4096);
        (6..=20).for_each(|n| regret.asked(hash(n)));
        assert_eq!(regret.percent(false), 25, "too late");
        assert_eq!(regret.percent(true), 0);
    }
}
