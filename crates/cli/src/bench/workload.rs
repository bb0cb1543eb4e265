//! The workload of the microbenchmarks of thesis §5.1: which objects exist, in which order they are
//! created, read and deleted, and their contents. Pure and seeded: the same settings give the same
//! workload on every machine, for the store and for the files.
//!
//! Objects are numbered; object `i` of `n` is in group `i * groups / n`, so the popular fraction of
//! a zipf order (the lowest numbers) fills whole groups, or directories, and the sequential order
//! goes through the groups one by one.

use clap::ValueEnum;
use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// Bytes in the pool from which contents are cut.
const POOL_BYTES: usize = 1 << 20;
/// Bytes at each end of an object that identify it.
const STAMP_BYTES: usize = 8;
/// Number of directories, in two tiers `[a-z]/[a-z]` as in Squid and the thesis.
pub(crate) const DIRECTORIES: u64 = 26 * 26;

/// Order of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Order {
    /// All three stages in group (or directory) order
    #[value(name = "sequential")]
    #[serde(rename = "sequential")]
    Sequential,
    /// Create and delete in two random orders; reads hit any object
    #[value(name = "random")]
    #[serde(rename = "random")]
    Random,
    /// As random, but 1/8 of the objects get 7/8 of the reads
    #[value(name = "zipf1:8")]
    #[serde(rename = "zipf1:8")]
    Zipf18,
    /// As random, but 1/4 of the objects get 3/4 of the reads
    #[value(name = "zipf1:4")]
    #[serde(rename = "zipf1:4")]
    Zipf14,
    /// As random, but 3/8 of the objects get 5/8 of the reads
    #[value(name = "zipf3:8")]
    #[serde(rename = "zipf3:8")]
    Zipf38,
}

impl Order {
    /// The popular fraction of the objects in eighths; the remaining eighths are their share of the
    /// reads.
    fn popular_eighths(self) -> Option<u64> {
        match self {
            Order::Sequential | Order::Random => None,
            Order::Zipf18 => Some(1),
            Order::Zipf14 => Some(2),
            Order::Zipf38 => Some(3),
        }
    }

    /// Its name on the command line and in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Order::Sequential => "sequential",
            Order::Random => "random",
            Order::Zipf18 => "zipf1:8",
            Order::Zipf14 => "zipf1:4",
            Order::Zipf38 => "zipf3:8",
        }
    }
}

/// One of the three stages of a microbenchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stage {
    /// Every object is created
    Create,
    /// As many reads as there are objects
    Read,
    /// Every object is deleted
    Delete,
}

impl Stage {
    /// Its name on the command line and in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Stage::Create => "create",
            Stage::Read => "read",
            Stage::Delete => "delete",
        }
    }
}

/// Amount of work, the same for both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// Objects created, reads, and objects deleted.
    pub(crate) objects: u32,
    /// Largest object; sizes are uniform in `1..=size_bytes_max`.
    pub(crate) size_bytes_max: u32,
    /// Every object has the largest size instead.
    pub(crate) size_fixed: bool,
    /// Groups of the store.
    pub(crate) groups: u32,
    /// Threads that share each stage's operations.
    pub(crate) threads: u32,
    /// Data memory of the store, and page cache of the files.
    pub(crate) memory_bytes: u64,
    /// Seed of everything random.
    pub(crate) seed: u64,
    /// Every byte of every read is compared, not only length and ends.
    pub(crate) verify: bool,
}

/// A workload: settings, an order, and the pool of bytes that contents are cut from.
pub(crate) struct Workload {
    settings: Settings,
    order: Order,
    pool: Vec<u8>,
}

impl Workload {
    /// Prepares the workload; `settings.objects`, `groups` and `size_bytes_max` are at least 1.
    pub(crate) fn new(settings: &Settings, order: Order) -> Workload {
        assert!(settings.objects > 0 && settings.groups > 0 && settings.size_bytes_max > 0);
        let mut pool = vec![0; POOL_BYTES + settings.size_bytes_max as usize];
        Rng::with_seed(settings.seed).fill(&mut pool);
        Workload { settings: settings.clone(), order, pool }
    }

    /// The settings it was made from.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The order of operations.
    pub(crate) fn order(&self) -> Order {
        self.order
    }

    /// Length of an object.
    pub(crate) fn size_of(&self, object: u32) -> usize {
        let max = self.settings.size_bytes_max;
        if self.settings.size_fixed {
            return max as usize;
        }
        (mix(self.settings.seed ^ 0x51ce, object) % u64::from(max)) as usize + 1
    }

    /// Mean length of all objects.
    pub(crate) fn size_mean(&self) -> f64 {
        let total: u64 = (0..self.settings.objects).map(|object| self.size_of(object) as u64).sum();
        total as f64 / f64::from(self.settings.objects)
    }

    /// Group of an object, counted from 0.
    pub(crate) fn group_of(&self, object: u32) -> u32 {
        share_of(object, self.settings.objects, u64::from(self.settings.groups)) as u32
    }

    /// Directory of an object, counted from 0, below [`DIRECTORIES`].
    pub(crate) fn directory_of(&self, object: u32) -> u64 {
        share_of(object, self.settings.objects, DIRECTORIES)
    }

    /// Objects below this number are popular; all objects if the order has no popular fraction.
    pub(crate) fn popular_objects(&self) -> u32 {
        let objects = u64::from(self.settings.objects);
        match self.order.popular_eighths() {
            // Below the number of objects, so it fits.
            Some(eighths) => (objects * eighths).div_ceil(8) as u32,
            None => self.settings.objects,
        }
    }

    /// True for a group that holds popular objects: these are loved.
    pub(crate) fn is_popular_group(&self, group: u32) -> bool {
        group <= self.group_of(self.popular_objects() - 1)
    }

    /// The operations of a stage, in order, as object numbers.
    pub(crate) fn operations(&self, stage: Stage) -> Vec<u32> {
        match (stage, self.order) {
            (_, Order::Sequential) => (0..self.settings.objects).collect(),
            (Stage::Create, _) => self.shuffled(1),
            (Stage::Delete, _) => self.shuffled(2),
            (Stage::Read, _) => self.reads(),
        }
    }

    fn shuffled(&self, salt: u64) -> Vec<u32> {
        let mut objects: Vec<u32> = (0..self.settings.objects).collect();
        self.rng(salt).shuffle(&mut objects);
        objects
    }

    /// The reads: exactly the popular share goes to popular objects, in random order.
    fn reads(&self) -> Vec<u32> {
        let mut rng = self.rng(3);
        let (objects, popular) = (self.settings.objects, self.popular_objects());
        let popular_reads = match self.order.popular_eighths() {
            Some(eighths) => (u64::from(objects) * (8 - eighths) / 8) as u32,
            None => objects,
        };
        let mut reads: Vec<u32> = (0..objects)
            .map(|i| {
                let low = i < popular_reads || popular == objects;
                if low { rng.u32(..popular) } else { rng.u32(popular..objects) }
            })
            .collect();
        rng.shuffle(&mut reads);
        reads
    }

    fn rng(&self, salt: u64) -> Rng {
        Rng::with_seed(mix(self.settings.seed ^ salt, self.order as u32))
    }

    /// Sets `buffer` to the object's content.
    pub(crate) fn fill(&self, object: u32, buffer: &mut Vec<u8>) {
        let (size, stamp) = (self.size_of(object), self.stamp(object));
        let ends = size.min(STAMP_BYTES);
        buffer.clear();
        buffer.extend_from_slice(self.body(object));
        buffer[size - ends..].copy_from_slice(&stamp[STAMP_BYTES - ends..]);
        buffer[..ends].copy_from_slice(&stamp[..ends]);
    }

    /// True if `bytes` is the object: its length and both ends, or all of it with `verify`.
    pub(crate) fn matches(&self, object: u32, bytes: &[u8]) -> bool {
        let size = self.size_of(object);
        if bytes.len() != size {
            return false;
        }
        let stamp = self.stamp(object);
        let ends = size.min(STAMP_BYTES);
        if bytes[..ends] != stamp[..ends] {
            return false;
        }
        // In an object shorter than both stamps, the tail is the bytes after the head.
        let tail = size.saturating_sub(STAMP_BYTES).min(STAMP_BYTES);
        bytes[size - tail..] == stamp[STAMP_BYTES - tail..]
            && (!self.settings.verify || self.middle_matches(object, bytes, ends, tail))
    }

    fn middle_matches(&self, object: u32, bytes: &[u8], head: usize, tail: usize) -> bool {
        let middle = head..bytes.len() - tail;
        bytes[middle.clone()] == self.body(object)[middle]
    }

    fn body(&self, object: u32) -> &[u8] {
        let start = (mix(self.settings.seed ^ 0xb0d1, object) % POOL_BYTES as u64) as usize;
        &self.pool[start..start + self.size_of(object)]
    }

    fn stamp(&self, object: u32) -> [u8; STAMP_BYTES] {
        mix(self.settings.seed ^ 0x57a9, object).to_le_bytes()
    }
}

/// The operations of one thread: a contiguous part of n/t, so that sequential order stays
/// sequential for each thread.
pub(crate) fn part(operations: &[u32], thread: u32, threads: u32) -> &[u32] {
    let at = |k: u32| (operations.len() as u64 * u64::from(k) / u64::from(threads)) as usize;
    &operations[at(thread)..at(thread + 1)]
}

fn share_of(object: u32, objects: u32, shares: u64) -> u64 {
    u64::from(object) * shares / u64::from(objects)
}

/// SplitMix64's finisher over a seed and a number. Results do not depend on a library's version.
fn mix(seed: u64, number: u32) -> u64 {
    let mut z =
        seed.wrapping_add(u64::from(number).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDERS: [Order; 5] =
        [Order::Sequential, Order::Random, Order::Zipf18, Order::Zipf14, Order::Zipf38];

    fn workload(order: Order, seed: u64) -> Workload {
        let settings = Settings {
            objects: 8000,
            size_bytes_max: 16 << 10,
            size_fixed: false,
            groups: 16,
            threads: 4,
            memory_bytes: 1 << 20,
            seed,
            verify: true,
        };
        Workload::new(&settings, order)
    }

    fn is_permutation(mut operations: Vec<u32>) -> bool {
        operations.sort_unstable();
        operations.into_iter().eq(0..8000)
    }

    #[test]
    fn creates_and_deletes_touch_each_object_once_in_different_orders() {
        for order in ORDERS {
            let work = workload(order, 7);
            let (creates, deletes) =
                (work.operations(Stage::Create), work.operations(Stage::Delete));
            assert_eq!(creates == deletes, order == Order::Sequential);
            assert!(is_permutation(creates) && is_permutation(deletes), "{order:?}");
        }
        assert!(is_permutation(workload(Order::Sequential, 7).operations(Stage::Read)));
    }

    #[test]
    fn popular_objects_get_exactly_their_share_of_the_reads() {
        for (order, objects, reads) in
            [(Order::Zipf18, 1000, 7000), (Order::Zipf14, 2000, 6000), (Order::Zipf38, 3000, 5000)]
        {
            let work = workload(order, 7);
            assert_eq!(work.popular_objects(), objects);
            let operations = work.operations(Stage::Read);
            assert_eq!(operations.len(), 8000);
            assert_eq!(operations.iter().filter(|&&object| object < objects).count(), reads);
        }
    }

    #[test]
    fn popular_objects_fill_whole_groups() {
        for (order, groups) in [(Order::Zipf18, 2), (Order::Zipf14, 4), (Order::Zipf38, 6)] {
            let work = workload(order, 7);
            assert_eq!((0..16).filter(|&group| work.is_popular_group(group)).count(), groups);
            assert_eq!(work.group_of(work.popular_objects()), groups as u32);
        }
        assert!((0..16).all(|group| workload(Order::Random, 7).is_popular_group(group)));
    }

    #[test]
    fn the_same_seed_gives_the_same_workload_and_another_another() {
        for order in [Order::Random, Order::Zipf18] {
            let reads = |seed| workload(order, seed).operations(Stage::Read);
            assert_eq!(reads(7), reads(7));
            assert_ne!(reads(7), reads(8));
        }
        let mut content = [Vec::new(), Vec::new()];
        workload(Order::Random, 7).fill(5, &mut content[0]);
        workload(Order::Zipf18, 7).fill(5, &mut content[1]);
        assert_eq!(content[0], content[1]);
    }

    #[test]
    fn sizes_are_spread_over_the_whole_range() {
        let work = workload(Order::Random, 7);
        let mean = work.size_mean();
        assert!((8000.0..8400.0).contains(&mean), "{mean}");
        assert!((0..8000).all(|object| (1..=16384).contains(&work.size_of(object))));
    }

    #[test]
    fn a_wrong_byte_anywhere_is_seen() {
        let mut work = workload(Order::Random, 7);
        work.settings.size_bytes_max = 40;
        let mut bytes = Vec::new();
        for object in 0..200 {
            work.fill(object, &mut bytes);
            assert!(work.matches(object, &bytes));
            for at in 0..bytes.len() {
                bytes[at] ^= 1;
                assert!(!work.matches(object, &bytes), "object {object} byte {at}");
                bytes[at] ^= 1;
            }
            bytes.push(0);
            assert!(!work.matches(object, &bytes));
        }
    }

    #[test]
    fn another_object_is_not_taken_for_this_one() {
        let mut work = workload(Order::Random, 7);
        work.settings.size_fixed = true;
        work.settings.verify = false;
        let mut bytes = Vec::new();
        work.fill(1, &mut bytes);
        assert!(work.matches(1, &bytes) && !work.matches(2, &bytes));
    }

    #[test]
    fn threads_share_all_operations() {
        let operations: Vec<u32> = (0..103).collect();
        let parts: Vec<u32> =
            (0..4).flat_map(|thread| part(&operations, thread, 4).to_vec()).collect();
        assert_eq!(parts, operations);
    }
}
