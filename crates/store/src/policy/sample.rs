//! Follows a sample of the objects that left, until they are requested again.
//!
//! An object is in the sample if its hash is a multiple of `one_in`, a power of two. `one_in` grows
//! when more objects would leave than the table has notes for. Threads: any; relaxed atomics. A
//! change of `one_in` loses some of the objects followed so far.

use std::sync::atomic::{AtomicU64, Ordering};

use super::notes::{Note, Notes};

pub(crate) struct Sample {
    left: Notes,
    /// One object in `one_in` is followed; `one_in_min` is its lower bound.
    one_in: AtomicU64,
    one_in_min: u64,
}

impl Sample {
    /// Room for at least `notes` notes; follows at most one object in `one_in_min`, a power of two.
    pub(crate) fn new(notes: usize, one_in_min: u64) -> Sample {
        assert!(one_in_min.is_power_of_two(), "one in {one_in_min}");
        Sample { left: Notes::new(notes), one_in: AtomicU64::new(one_in_min), one_in_min }
    }

    /// Memory that the sample takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.left.bytes()
    }

    /// Adapts `one_in` to the number of notes that following every object would take.
    pub(crate) fn set_wanted(&self, notes: u64) {
        let one_in = notes.div_ceil(self.left.slots() as u64).next_power_of_two();
        self.one_in.store(one_in.max(self.one_in_min), Ordering::Relaxed);
    }

    /// One object in this many is followed, so each followed object stands for this many.
    pub(crate) fn one_in(&self) -> u64 {
        self.one_in.load(Ordering::Relaxed)
    }

    /// An object leaves. Stores a note and returns true if the object is in the sample.
    pub(crate) fn leaves(&self, hash: u64, note: impl FnOnce() -> Note) -> bool {
        let is_followed = self.is_followed(hash);
        if is_followed {
            self.left.put(hash, note());
        }
        is_followed
    }

    /// An object is requested. Returns the note made when the object left, once, if it was
    /// followed.
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
