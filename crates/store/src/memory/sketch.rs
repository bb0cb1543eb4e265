//! How often keys were asked for lately, whether they are in memory or not: a count-min sketch with
//! conservative update whose counts are halved from time to time (Einziger et al., TinyLFU, 2017).
//!
//! Invariants: an estimate is never below the true count since the last halving, saturation and lost
//! races aside; both only blur it. Counting costs the same each time, since it is done under locks of
//! others: who has the time halves. Threads: any, without locks.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Memory for data that pays for one counter: a 256th of it goes to the sketch at most.
const BYTES_PER_COUNTER: u64 = 256;
const COUNTERS_MIN: u64 = 1024;
/// Counters of a key.
const ROWS: u32 = 3;
/// Counts are halved after so many sightings for each object in memory.
const SIGHTINGS_PER_OBJECT: u64 = 10;
const OBJECTS_MIN: u64 = 256;

pub(super) struct Sketch {
    counters: Box<[AtomicU8]>,
    sightings: AtomicU64,
    halve_after: AtomicU64,
    halvings: AtomicU32,
}

impl Sketch {
    pub(super) fn new(memory_bytes: u64) -> Sketch {
        // A power of two, rounded down so that the share above is a limit.
        let counters = 1_u64 << (memory_bytes / BYTES_PER_COUNTER).max(COUNTERS_MIN).ilog2();
        Sketch {
            counters: (0..counters).map(|_| AtomicU8::new(0)).collect(),
            sightings: AtomicU64::new(0),
            halve_after: AtomicU64::new(SIGHTINGS_PER_OBJECT * OBJECTS_MIN),
            halvings: AtomicU32::new(0),
        }
    }

    /// What it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.counters.len()
    }

    /// Counts are halved the more seldom, the more objects there are in memory.
    pub(super) fn set_objects(&self, objects: usize) {
        let after = SIGHTINGS_PER_OBJECT * (objects as u64).max(OBJECTS_MIN);
        self.halve_after.store(after, Ordering::Relaxed);
    }

    /// How many times counts have been halved.
    pub(super) fn halvings(&self) -> u32 {
        self.halvings.load(Ordering::Relaxed)
    }

    fn counter(&self, hash: u64, row: u32) -> &AtomicU8 {
        // The hash is mixed well already; rows take different bits of it, spread by an odd factor.
        let spread = hash.rotate_left(21 * row).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.counters[(spread >> 32) as usize & (self.counters.len() - 1)]
    }

    pub(super) fn estimate(&self, hash: u64) -> u32 {
        let counts = (0..ROWS).map(|row| self.counter(hash, row).load(Ordering::Relaxed));
        counts.min().map_or(0, u32::from)
    }

    /// Adds `times`.
    pub(super) fn add(&self, hash: u64, times: u32) {
        if times == 0 {
            return;
        }
        let target = (self.estimate(hash) + times).min(u32::from(u8::MAX)) as u8;
        for row in 0..ROWS {
            self.counter(hash, row).fetch_max(target, Ordering::Relaxed);
        }
        self.sightings.fetch_add(u64::from(times), Ordering::Relaxed);
    }

    /// Halves all counts if there were sightings enough; true if it did. Goes through all counters.
    pub(super) fn halve_if_due(&self) -> bool {
        let sightings = self.sightings.load(Ordering::Relaxed);
        if sightings <= self.halve_after.load(Ordering::Relaxed) {
            return false;
        }
        // Of several that come here at once, one halves.
        let won =
            self.sightings.compare_exchange(sightings, 0, Ordering::Relaxed, Ordering::Relaxed);
        if won.is_err() {
            return false;
        }
        for counter in &self.counters {
            counter.store(counter.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        }
        self.halvings.fetch_add(1, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u32) -> u64 {
        let mixed = (u64::from(n) + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb)
    }

    #[test]
    fn an_estimate_is_not_below_the_count_and_seldom_far_above() {
        let sketch = Sketch::new(4 << 20);
        sketch.set_objects(1 << 20);
        let count = if cfg!(miri) { 100 } else { 4000 };
        for n in 0..count {
            sketch.add(hash(n), n % 7);
        }
        let excess: u32 = (0..count).map(|n| sketch.estimate(hash(n)) - n % 7).sum();
        assert!(excess < 600, "{excess}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "long, and without any unsafe code")]
    fn counts_fade() {
        let sketch = Sketch::new(1 << 20);
        sketch.add(hash(1), 100);
        let mut halved = 0;
        for n in 2..8000 {
            sketch.add(hash(n), 1);
            assert_eq!(sketch.halvings(), halved, "counting halves nothing by itself");
            halved += u32::from(sketch.halve_if_due());
        }
        assert_eq!(halved, 3, "once for each 2,560 sightings");
        assert_eq!(sketch.halvings(), 3);
        assert!((12..20).contains(&sketch.estimate(hash(1))), "{}", sketch.estimate(hash(1)));
    }
}
