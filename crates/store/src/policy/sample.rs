//! Objects that left, followed until they are asked for again: not all of them, but a share that stands for all.
//!
//! The share is one in a power of two, of those whose hash is a multiple of it, and shrinks where more would leave than
//! there are notes for. Threads: any; relaxed, a change of the share loses some of those that are followed.

use std::sync::atomic::{AtomicU64, Ordering};

use super::notes::{Note, Notes};

pub(crate) struct Sample {
    left: Notes,
    /// One object in so many is followed, and at least in `one_in_min`.
    one_in: AtomicU64,
    one_in_min: u64,
}

impl Sample {
    /// With room for so many notes, rounded up; of the objects at most one in `one_in_min`, a power of two.
    pub(crate) fn new(notes: usize, one_in_min: u64) -> Sample {
        assert!(one_in_min.is_power_of_two(), "one in {one_in_min}");
        Sample { left: Notes::new(notes), one_in: AtomicU64::new(one_in_min), one_in_min }
    }

    /// What it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.left.bytes()
    }

    /// So many notes would be wanted, were every object followed.
    pub(crate) fn set_wanted(&self, notes: u64) {
        let one_in = notes.div_ceil(self.left.slots() as u64).next_power_of_two();
        self.one_in.store(one_in.max(self.one_in_min), Ordering::Relaxed);
    }

    /// One object in so many is followed: for so many stands each of them.
    pub(crate) fn one_in(&self) -> u64 {
        self.one_in.load(Ordering::Relaxed)
    }

    /// An object leaves: true if it is followed from now on, and then something is noted of it.
    pub(crate) fn leaves(&self, hash: u64, note: impl FnOnce() -> Note) -> bool {
        let is_followed = self.is_followed(hash);
        if is_followed {
            self.left.put(hash, note());
        }
        is_followed
    }

    /// An object is asked for: what was noted when it left, once, if it was followed.
    pub(crate) fn asked(&self, hash: u64) -> Option<Note> {
        if self.is_followed(hash) { self.left.take(hash) } else { None }
    }

    fn is_followed(&self, hash: u64) -> bool {
        hash.is_multiple_of(self.one_in())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_followed_as_there_are_notes_for() {
        let sample = Sample::new(64, 8);
        let note = Note { said: 1, when: 2 };
        assert!(sample.leaves(16, || note) && !sample.leaves(17, || note));
        assert_eq!(
            (sample.asked(16), sample.asked(16), sample.asked(17)),
            (Some(note), None, None)
        );
        for (wanted, one_in) in [(0, 8), (512, 8), (513, 16), (64 << 10, 1024)] {
            sample.set_wanted(wanted);
            assert_eq!(sample.one_in(), one_in, "{wanted}");
        }
        assert!(!sample.leaves(16, || note), "one in 1,024 now");
    }
}
