//! Counts recent requests by key, hits and misses alike: a count-min sketch with conservative
//! update whose counts are halved periodically (Einziger et al., TinyLFU, 2017).
//!
//! Invariants: an estimate is never below the true count since the last halving, apart from
//! saturation and lost updates; both only blur it. Counting takes constant time, since callers hold
//! locks; halving and growing are left to a background thread. Threads: any, without locks.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::nibbles::{Nibbles, zeros};

/// Bytes of data memory per counter, however many objects there are.
const BYTES_PER_COUNTER: u64 = 256;
const COUNTERS_MIN: u64 = 1024;
/// At least this many counters for each object in memory: with fewer, the counters of rarely
/// requested keys collide, and all estimates look alike. With many small objects the extra counters
/// take memory from data, at most a 16th of it.
const COUNTERS_PER_OBJECT: u64 = 8;
const BYTES_PER_COUNTER_MIN: u64 = 16;
/// A growing sketch has 11 to 22 counters for each key, within these bounds in total.
const COUNTERS_PER_KEY: u64 = 22;
const GROWING_MIN: u64 = 1 << 19;
const GROWING_MAX: u64 = 1 << 32;
/// Counters per key.
const ROWS: u32 = 3;
/// Counts are halved after this many requests for each object in memory.
const SIGHTINGS_PER_OBJECT: u64 = 10;
const OBJECTS_MIN: u64 = 256;

/// The counters: one byte each for speed, or half a byte each where memory matters.
enum Counters {
    Bytes(Box<[AtomicU8]>),
    Nibbles(Nibbles),
}

impl Counters {
    fn len(&self) -> usize {
        match self {
            Counters::Bytes(counters) => counters.len(),
            Counters::Nibbles(counters) => counters.len(),
        }
    }

    /// Copies the first `counts` counters to the `counts` after them.
    fn double(&self, counts: usize) {
        match self {
            Counters::Bytes(counters) => {
                let (first, behind) = counters[..2 * counts].split_at(counts);
                for (from, to) in first.iter().zip(behind) {
                    to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
                }
            }
            Counters::Nibbles(counters) => counters.double(counts),
        }
    }
}

/// The fewest and the most counters for this much data memory; powers of two.
fn bounds(memory_bytes: u64) -> (u64, u64) {
    // Rounded down, so that the shares of memory are upper limits.
    let least = 1 << (memory_bytes / BYTES_PER_COUNTER).max(COUNTERS_MIN).ilog2();
    (least, least * (BYTES_PER_COUNTER / BYTES_PER_COUNTER_MIN))
}

pub(super) struct Sketch {
    counters: Counters,
    /// The number of counters in use, a power of two, less one. The others are zero and occupy no
    /// memory.
    mask: AtomicUsize,
    /// Counters wanted for the objects in memory, and for the known keys; the smaller number is in
    /// use.
    for_objects: AtomicU64,
    for_keys: AtomicU64,
    sightings: AtomicU64,
    halve_after: AtomicU64,
    halvings: AtomicU32,
}

impl Sketch {
    pub(super) fn new(memory_bytes: u64) -> Sketch {
        let (least, most) = bounds(memory_bytes);
        Sketch::with(Counters::Bytes(zeros(most as usize)), least, least, u64::MAX)
    }

    /// A sketch for a trace whose number of keys is known: few counters for few keys. Estimates are
    /// the same while the counters suffice; it takes half the memory and more time.
    pub(super) fn growing(memory_bytes: u64) -> Sketch {
        let (least, most) = bounds(memory_bytes);
        let (least, most) = (least.min(GROWING_MAX), most.min(GROWING_MAX));
        let counters = Counters::Nibbles(Nibbles::new(most as usize));
        Sketch::with(counters, GROWING_MIN.min(least), least, GROWING_MIN)
    }

    fn with(counters: Counters, in_use: u64, for_objects: u64, for_keys: u64) -> Sketch {
        Sketch {
            counters,
            mask: AtomicUsize::new(in_use as usize - 1),
            for_objects: AtomicU64::new(for_objects),
            for_keys: AtomicU64::new(for_keys),
            sightings: AtomicU64::new(0),
            halve_after: AtomicU64::new(SIGHTINGS_PER_OBJECT * OBJECTS_MIN),
            halvings: AtomicU32::new(0),
        }
    }

    fn in_use(&self) -> usize {
        self.mask.load(Ordering::Relaxed) + 1
    }

    /// Memory that the counters take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self.counters {
            Counters::Bytes(_) => self.in_use(),
            Counters::Nibbles(_) => self.in_use() / 2,
        }
    }

    /// Sets the number of distinct keys: a growing sketch grows to fit them. Estimates stay as they
    /// are.
    pub(super) fn set_keys(&self, keys: usize) {
        let wanted = (keys as u64).saturating_mul(COUNTERS_PER_KEY).max(1);
        self.for_keys.fetch_max(1 << wanted.ilog2(), Ordering::Relaxed);
        self.grow();
    }

    /// Sets the number of objects in memory: more objects mean rarer halvings and more counters.
    pub(super) fn set_objects(&self, objects: usize) {
        let after = SIGHTINGS_PER_OBJECT * (objects as u64).max(OBJECTS_MIN);
        self.halve_after.store(after, Ordering::Relaxed);
        let wanted = (objects as u64 * COUNTERS_PER_OBJECT).next_power_of_two();
        if wanted > self.for_objects.load(Ordering::Relaxed) {
            self.for_objects.fetch_max(wanted, Ordering::Relaxed);
            self.grow();
        }
    }

    fn grow(&self) {
        let wanted = self.for_objects.load(Ordering::Relaxed);
        let wanted = wanted.min(self.for_keys.load(Ordering::Relaxed));
        let wanted = wanted.min(self.counters.len() as u64) as usize;
        loop {
            let in_use = self.in_use();
            if in_use >= wanted {
                return;
            }
            // With the mask doubled, a key's counter index either stays or grows by the old number
            // of counters.
            self.counters.double(in_use);
            self.mask.fetch_max(2 * in_use - 1, Ordering::Relaxed);
        }
    }

    /// How many times the counts have been halved.
    pub(super) fn halvings(&self) -> u32 {
        self.halvings.load(Ordering::Relaxed)
    }

    fn place(&self, hash: u64, row: u32) -> usize {
        // The hash is well mixed; each row takes different bits of it, spread by an odd factor.
        let spread = hash.rotate_left(21 * row).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (spread >> 32) as usize & self.mask.load(Ordering::Relaxed)
    }

    pub(super) fn estimate(&self, hash: u64) -> u32 {
        let places = (0..ROWS).map(|row| self.place(hash, row));
        let count = match &self.counters {
            Counters::Bytes(counters) => {
                places.map(|at| counters[at].load(Ordering::Relaxed)).min()
            }
            Counters::Nibbles(counters) => places.map(|at| counters.get(at)).min(),
        };
        count.map_or(0, u32::from)
    }

    /// Adds `times` requests of a key.
    pub(super) fn add(&self, hash: u64, times: u32) {
        if times == 0 {
            return;
        }
        let target = (self.estimate(hash) + times).min(u32::from(u8::MAX)) as u8;
        for at in (0..ROWS).map(|row| self.place(hash, row)) {
            match &self.counters {
                Counters::Bytes(counters) => {
                    counters[at].fetch_max(target, Ordering::Relaxed);
                }
                Counters::Nibbles(counters) => counters.raise(at, target),
            }
        }
        self.sightings.fetch_add(u64::from(times), Ordering::Relaxed);
    }

    /// Halves all counts if enough requests came since the last halving; true if it did. Visits
    /// every counter.
    pub(super) fn halve_if_due(&self) -> bool {
        let sightings = self.sightings.load(Ordering::Relaxed);
        if sightings <= self.halve_after.load(Ordering::Relaxed) {
            return false;
        }
        // Of several threads that come here at once, one halves.
        let won =
            self.sightings.compare_exchange(sightings, 0, Ordering::Relaxed, Ordering::Relaxed);
        if won.is_err() {
            return false;
        }
        match &self.counters {
            Counters::Bytes(counters) => {
                for counter in &counters[..self.in_use()] {
                    counter.store(counter.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
                }
            }
            Counters::Nibbles(counters) => counters.halve(self.in_use()),
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

    /// Many more keys are asked for than there are objects in memory, each once, beside a few that
    /// are popular.
    #[test]
    #[cfg_attr(miri, ignore = "long, and without any unsafe code")]
    fn small_objects_have_counters_enough_to_be_told_apart() {
        let memory_bytes = 4 << 20;
        for sketch in [Sketch::new(memory_bytes), Sketch::growing(memory_bytes)] {
            // Of 200 bytes.
            let objects = 20_000;
            let before = sketch.bytes();
            sketch.set_keys(4 * objects);
            sketch.set_objects(objects);
            assert!(sketch.bytes() > before && sketch.bytes() <= memory_bytes as usize / 16);
            for n in 0..4 * objects as u32 {
                sketch.add(hash(n), 1);
            }
            let seem_popular = (0..4 * objects as u32).filter(|n| sketch.estimate(hash(*n)) > 1);
            let share = seem_popular.count() * 100 / (4 * objects);
            assert!(share < 25, "{share}% of what was seen once");
        }
    }

    /// With as many counters the two agree in everything; one that has grown forgets nothing.
    #[test]
    #[cfg_attr(miri, ignore = "long")]
    fn one_that_grows_counts_alike_and_takes_what_the_keys_need() {
        for (memory_bytes, is_alike) in [(1 << 20, true), (1 << 27, true), (1 << 30, false)] {
            let (whole, growing) = (Sketch::new(memory_bytes), Sketch::growing(memory_bytes));
            let keys = 60_000;
            for n in 0..2 * keys {
                growing.set_keys((n % keys) as usize + 1);
                // Few of them very often.
                let times = 1 + 40 * u32::from(n % 64 == 0);
                for sketch in [&whole, &growing] {
                    sketch.add(hash(n % keys), times);
                }
                let halved = [&whole, &growing].map(Sketch::halve_if_due);
                assert_eq!(halved[0], halved[1]);
            }
            assert!(growing.bytes() <= 11 * keys as usize, "{}", growing.bytes());
            assert!(growing.bytes() <= whole.bytes() / 2);
            let differ =
                (0..keys).filter(|n| growing.estimate(hash(*n)) != whole.estimate(hash(*n)));
            assert!(differ.count() <= if is_alike { 0 } else { keys as usize / 100 });
        }
        let growing = Sketch::growing(1 << 30);
        growing.set_keys(usize::MAX);
        assert_eq!(
            growing.bytes(),
            1 << 21,
            "no more counters than one that has all from the start"
        );
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
