//! Are a page's objects asked for together? Counts for the choice between object and page reads, of one
//! group or of all.
//!
//! Two things tell: objects that came with a page and were asked for or not, and, where objects are
//! read alone, whether another of the same page follows soon (a page read would have brought it). The
//! second costs no I/O, so that a choice for single objects can turn out to have been wrong.
//!
//! Threads: any; relaxed counters, of which a lost update only blurs the share.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Weight of what is assumed, in objects.
const ASSUMED_WEIGHT: u64 = 32;

/// How many neighbours came lately, or would have, and how many of them were asked for.
#[derive(Default)]
pub(crate) struct Neighbours {
    came: AtomicU32,
    used: AtomicU32,
}

impl Neighbours {
    /// Counts are halved beyond `most`, so that the share follows the use.
    pub(crate) fn came(&self, count: u32, most: u32) {
        let came = self.came.fetch_add(count, Ordering::Relaxed) + count;
        if came > most {
            self.came.store(came / 2, Ordering::Relaxed);
            let used = self.used.load(Ordering::Relaxed);
            self.used.store(used / 2, Ordering::Relaxed);
        }
    }

    /// One of those that came was asked for itself: it was no neighbour.
    pub(crate) fn one_less(&self) {
        let less = self.came.load(Ordering::Relaxed).saturating_sub(1);
        self.came.store(less, Ordering::Relaxed);
    }

    pub(crate) fn used(&self) {
        self.used.fetch_add(1, Ordering::Relaxed);
    }

    /// Share that is asked for in percent; with little history near `assumed_percent`.
    pub(crate) fn wanted_percent(&self, assumed_percent: u64) -> u64 {
        let came = u64::from(self.came.load(Ordering::Relaxed));
        let used = u64::from(self.used.load(Ordering::Relaxed)).min(came);
        (used * 100 + ASSUMED_WEIGHT * assumed_percent) / (came + ASSUMED_WEIGHT)
    }
}

/// Pages from which an object was read alone lately, and when: 32 bits of each.
pub(crate) struct Touched {
    slots: Box<[AtomicU64]>,
}

const SLOTS_PER_FRAME: usize = 2;
const SLOTS_MIN: usize = 64;

impl Touched {
    pub(crate) fn new(frames: usize) -> Touched {
        let slots = (frames * SLOTS_PER_FRAME).next_power_of_two().max(SLOTS_MIN);
        Touched { slots: (0..slots).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Notes a read from the page at `place`; when there was another before, as far as is remembered.
    pub(crate) fn before(&self, place: u64, now: u32) -> Option<u32> {
        let mixed = place.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let slot = &self.slots[(mixed >> 32) as usize & (self.slots.len() - 1)];
        let tag = mixed << 32;
        let stored = slot.swap(tag | u64::from(now), Ordering::Relaxed);
        (stored >> 32 == tag >> 32).then_some(stored as u32)
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
    fn a_page_is_remembered_until_others_take_its_place() {
        let touched = Touched::new(32);
        assert_eq!(touched.before(5, 10), None);
        assert_eq!(touched.before(5, 11), Some(10));
        assert_eq!(touched.before(6, 12), None);
        for place in 100..600 {
            touched.before(place, 13);
        }
        assert_eq!(touched.before(5, 14), None);
    }
}
