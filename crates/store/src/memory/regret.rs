//! Of the objects that leave memory, how many are asked for again soon? That is what a newcomer costs
//! that pushes others out.
//!
//! "Soon" is within the time in which an eighth of memory is filled anew, the time in which neighbours
//! that come with a page must be used to count as wanted (`read::neighbours`): both sides of the choice
//! are measured alike. Only some objects are followed. Threads: any; relaxed, lost updates blur the share.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::policy::notes::Note;
use crate::policy::residency::Hint;
use crate::policy::sample::Sample;

/// One object in so many is followed at most.
const FOLLOWED_ONE_IN_MIN: u64 = 8;
const NOTES_PER_FRAME: usize = 2;
/// Notes for each object that is followed and leaves within what counts as soon, so that few are lost.
const NOTES_PER_LEAVING: u64 = 4;
/// Of memory, the share that is filled in what counts as soon.
const SOON_SHARE: u64 = 8;
/// Counts are halved beyond this, so that the share follows the use.
const COUNT_MAX: u64 = 512;

pub(super) struct Regret {
    /// When followed objects left, and of which class they were.
    gone: Sample,
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
        Regret {
            gone: Sample::new(frames * NOTES_PER_FRAME, FOLLOWED_ONE_IN_MIN),
            filled_bytes: AtomicU64::new(0),
            frame_bytes: frame_bytes as u64,
            soon: (frames as u64 / SOON_SHARE).max(1),
            left: Default::default(),
            missed: Default::default(),
        }
    }

    /// So many objects are in memory: with many small ones fewer are followed.
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

    /// True if what happened at `then` is still recent.
    pub(super) fn is_recent(&self, then: u32) -> bool {
        u64::from(self.now().wrapping_sub(then)) <= self.soon
    }

    /// An object of a group with that hint leaves memory.
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

    /// It is not in memory, and asked for.
    pub(super) fn asked(&self, hash: u64) {
        if let Some(note) = self.gone.asked(hash)
            && self.is_recent(note.when)
        {
            self.missed[usize::from(note.said == 1)].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Share of the loved, or of all others, that is asked for soon after leaving.
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
