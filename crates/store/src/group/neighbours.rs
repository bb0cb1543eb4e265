//! Estimates whether objects on a page are requested together, for the choice between object and
//! page reads; one estimate for each group and one for all.
//!
//! There are two sources: objects that came with a page, and whether they were requested; and,
//! where objects are read alone, whether another object of the same page is requested soon, which a
//! page read would have served. The second source costs no I/O, so a wrong choice for object reads
//! is noticed.
//!
//! Threads: any; relaxed counters, a lost update only blurs the estimate.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::policy::notes::{Note, Notes};
use crate::types::KeyHash;

/// Weight of the assumed share, in objects.
const ASSUMED_WEIGHT: u64 = 32;

/// Recent neighbours that came, or would have come, and how many of them were requested.
#[derive(Default)]
pub(crate) struct Neighbours {
    came: AtomicU32,
    used: AtomicU32,
}

impl Neighbours {
    /// Counts are halved beyond `most`, so that the estimate follows the workload.
    pub(crate) fn came(&self, count: u32, most: u32) {
        let came = self.came.fetch_add(count, Ordering::Relaxed) + count;
        if came > most {
            self.came.store(came / 2, Ordering::Relaxed);
            let used = self.used.load(Ordering::Relaxed);
            self.used.store(used / 2, Ordering::Relaxed);
        }
    }

    /// One of the objects counted was the requested one, so it is no neighbour.
    pub(crate) fn one_less(&self) {
        let less = self.came.load(Ordering::Relaxed).saturating_sub(1);
        self.came.store(less, Ordering::Relaxed);
    }

    pub(crate) fn used(&self) {
        self.used.fetch_add(1, Ordering::Relaxed);
    }

    /// Percentage of neighbours that are requested; near `assumed_percent` with little history.
    pub(crate) fn wanted_percent(&self, assumed_percent: u64) -> u64 {
        let came = u64::from(self.came.load(Ordering::Relaxed));
        let used = u64::from(self.used.load(Ordering::Relaxed)).min(came);
        (used * 100 + ASSUMED_WEIGHT * assumed_percent) / (came + ASSUMED_WEIGHT)
    }
}

/// Pages from which an object was recently read alone: which object, and when.
pub(crate) struct Touched(Notes);

/// An earlier read of a single object from the same page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// No earlier read is remembered.
    Nothing,
    /// It was of the same object, by eight bits of its hash: no evidence about neighbours.
    Itself(u32),
    /// It was of another object, at that time.
    Another(u32),
}

const NOTES_PER_FRAME: usize = 2;

impl Touched {
    pub(crate) fn new(frames: usize) -> Touched {
        Touched(Notes::new(frames * NOTES_PER_FRAME))
    }

    /// Memory that the table takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Notes that the object with this hash is read alone from the page at `place`; returns the
    /// read before.
    pub(crate) fn note(&self, place: u64, hash: KeyHash, now: u32) -> Before {
        let object = (hash.get() >> 56) as u8;
        match self.0.put(place, Note { said: object, when: now }) {
            None => Before::Nothing,
            Some(note) if note.said == object => Before::Itself(note.when),
            Some(note) => Before::Another(note.when),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_history_leaves_the_assumption_and_much_replaces_it() {
        let seen = Neighbours::default();
        assert_eq!(seen.wanted_percent(50), 50);
        seen.came(7, 512);
        assert!((40..50).contains(&seen.wanted_percent(50)));
        for _ in 0..60 {
            seen.came(7, 512);
        }
        assert!(seen.wanted_percent(50) < 8);
        for _ in 0..400 {
            seen.came(1, 512);
            seen.used();
        }
        assert!(seen.wanted_percent(50) > 60, "halved, the old counts weigh little");
        assert!(Neighbours::default().wanted_percent(97) == 97);
    }

    #[test]
    fn a_page_is_remembered_with_the_object_that_was_read() {
        let touched = Touched::new(32);
        let (one, other) = (KeyHash::from_raw(1 << 56), KeyHash::from_raw(2 << 56));
        assert_eq!(touched.note(5, one, 10), Before::Nothing);
        assert_eq!(touched.note(5, one, 11), Before::Itself(10));
        assert_eq!(touched.note(5, other, 12), Before::Another(11));
        assert_eq!(touched.note(6, one, 12), Before::Nothing);
    }
}
