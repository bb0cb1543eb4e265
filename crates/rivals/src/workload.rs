//! The thesis's objects and orders (§5.1): which objects there are, in which group each lies, in
//! which order they are created, read and deleted. The same for every contestant; the same again
//! from the same seed. And the order of a cache in use: popularity by Zipf's law, whatever the
//! groups.

use serde::{Deserialize, Serialize};

/// Largest object, in bytes; sizes are uniform from 1 to this.
pub const OBJECT_BYTES_MAX: usize = 16 << 10;
/// First-level and second-level directories `[a-z]/[a-z]` of the file contestant.
const DIRECTORIES: u64 = 26 * 26;
/// Keeps the orders of the stages apart although they share a seed.
const DELETE_SALT: u64 = 0x9e37_79b9_7f4a_7c15;

/// The thesis's five object orderings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Ordering {
    /// Every object once, in group order.
    Sequential,
    /// Uniformly random reads; creates and deletes in random order.
    Random,
    /// 1/8 of the objects get 7/8 of the reads.
    #[value(name = "zipf1:8")]
    Zipf18,
    /// 1/4 of the objects get 3/4 of the reads.
    #[value(name = "zipf1:4")]
    Zipf14,
    /// 3/8 of the objects get 5/8 of the reads.
    #[value(name = "zipf3:8")]
    Zipf38,
}

impl Ordering {
    /// All five, in the thesis's order.
    pub const ALL: [Ordering; 5] = [
        Ordering::Sequential,
        Ordering::Random,
        Ordering::Zipf18,
        Ordering::Zipf14,
        Ordering::Zipf38,
    ];

    /// The name used in tables.
    pub fn name(self) -> &'static str {
        match self {
            Ordering::Sequential => "sequential",
            Ordering::Random => "random",
            Ordering::Zipf18 => "zipf 1:8",
            Ordering::Zipf14 => "zipf 1:4",
            Ordering::Zipf38 => "zipf 3:8",
        }
    }

    /// Eighths of the objects that are popular; they get the other eighths of the reads.
    fn popular_eighths(self) -> Option<u64> {
        match self {
            Ordering::Sequential | Ordering::Random => None,
            Ordering::Zipf18 => Some(1),
            Ordering::Zipf14 => Some(2),
            Ordering::Zipf38 => Some(3),
        }
    }
}

/// One stage of a microbenchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Every object once.
    Create,
    /// As many reads as there are objects.
    Read,
    /// Every object once.
    Delete,
    /// A cache in use, before it is measured: as [`Stage::Cache`], from another seed.
    Warm,
    /// Reads by Zipf's law; what is not there is created.
    Cache,
}

impl Stage {
    /// The three of a microbenchmark, in the order they run.
    pub const ALL: [Stage; 3] = [Stage::Create, Stage::Read, Stage::Delete];

    /// The name used in tables.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Create => "create",
            Stage::Read => "read",
            Stage::Delete => "delete",
            Stage::Warm => "warm-up",
            Stage::Cache => "cache",
        }
    }
}

/// A cache in use.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CacheUse {
    /// The object of rank r is asked for in proportion to `1 / r^alpha`.
    pub alpha: f64,
    /// Requests of the warm-up, and as many that are measured.
    pub requests: u64,
}

/// What fixes the objects and the orders.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Number of objects; also the number of reads.
    pub objects: u64,
    /// Number of groups; objects are dealt to them in runs.
    pub groups: u64,
    /// In which order they are used.
    pub ordering: Ordering,
    /// Everything random comes from here.
    pub seed: u64,
    /// Every object has this many bytes instead of a random size.
    pub fixed_bytes: Option<usize>,
    /// Of the stages of a cache.
    pub cache: Option<CacheUse>,
}

/// SplitMix64's finisher: spreads the bits of an object's number.
pub fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Workload {
    /// Group of an object, from 0.
    pub fn group(&self, object: u64) -> u64 {
        object * self.groups / self.objects
    }

    /// Two-tier directory of an object, as two letters.
    pub fn directory(&self, object: u64) -> (char, char) {
        let number = object * DIRECTORIES / self.objects;
        let letter = |n: u64| char::from(b'a' + (n % 26) as u8);
        (letter(number / 26), letter(number))
    }

    /// Bytes in an object.
    pub fn length(&self, object: u64) -> usize {
        match self.fixed_bytes {
            Some(bytes) => bytes,
            None => 1 + (mix(object ^ self.seed) % OBJECT_BYTES_MAX as u64) as usize,
        }
    }

    /// Bytes in all objects.
    pub fn total_bytes(&self) -> u64 {
        (0..self.objects).map(|object| self.length(object) as u64).sum()
    }

    /// The 16 bytes that tell an object from every other: 8 for its start, 8 for its end.
    fn mark(object: u64) -> ([u8; 8], [u8; 8]) {
        (mix(object + 1).to_le_bytes(), mix(!object).to_le_bytes())
    }

    /// Writes an object's value into the front of `buffer` and returns it.
    pub fn fill<'a>(&self, object: u64, buffer: &'a mut [u8]) -> &'a [u8] {
        let value = &mut buffer[..self.length(object)];
        let (head, tail) = Workload::mark(object);
        let n = value.len().min(8);
        let start = value.len() - n;
        value[start..].copy_from_slice(&tail[..n]);
        value[..n].copy_from_slice(&head[..n]);
        value
    }

    /// Whether `value` is this object's: its length and the 16 bytes at its ends.
    pub fn verify(&self, object: u64, value: &[u8]) -> bool {
        let (head, tail) = Workload::mark(object);
        let n = value.len().min(8);
        // In a value below 16 bytes the head was written over the tail.
        let tail_from = value.len() - n;
        let hidden = n.saturating_sub(tail_from);
        value.len() == self.length(object)
            && value[..n] == head[..n]
            && value[tail_from + hidden..] == tail[hidden..n]
    }

    /// Objects `0..popular()` are the popular ones: whole groups, as the thesis has it.
    pub fn popular(&self) -> u64 {
        self.ordering.popular_eighths().map_or(self.objects, |eighths| self.objects * eighths / 8)
    }

    /// Groups `0..loved_groups()` are loved; in sequential and random all are.
    pub fn loved_groups(&self) -> u64 {
        self.ordering.popular_eighths().map_or(self.groups, |eighths| self.groups * eighths / 8)
    }

    /// The objects of a stage, in order.
    pub fn order(&self, stage: Stage) -> Vec<u32> {
        if let (Stage::Warm | Stage::Cache, Some(cache)) = (stage, self.cache) {
            return self.zipf(cache, stage == Stage::Warm);
        }
        let mut order: Vec<u32> = (0..self.objects as u32).collect();
        if self.ordering == Ordering::Sequential {
            return order;
        }
        match stage {
            Stage::Create => fastrand::Rng::with_seed(self.seed).shuffle(&mut order),
            Stage::Delete => fastrand::Rng::with_seed(self.seed ^ DELETE_SALT).shuffle(&mut order),
            Stage::Read | Stage::Warm | Stage::Cache => self.random_reads(&mut order),
        }
        order
    }

    /// Ranks have nothing to do with the objects' numbers, and so with their groups.
    fn zipf(&self, cache: CacheUse, warm_up: bool) -> Vec<u32> {
        let mut by_rank: Vec<u32> = (0..self.objects as u32).collect();
        fastrand::Rng::with_seed(self.seed).shuffle(&mut by_rank);
        let mut sum = 0.0;
        let up_to: Vec<f64> = (1..=self.objects)
            .map(|rank| {
                sum += (rank as f64).powf(-cache.alpha);
                sum
            })
            .collect();
        let mut rng = fastrand::Rng::with_seed(self.seed.wrapping_add(2 + u64::from(warm_up)));
        let mut draw = || {
            let at = rng.f64() * sum;
            let rank = up_to.partition_point(|&up_to| up_to <= at).min(by_rank.len() - 1);
            by_rank[rank]
        };
        (0..cache.requests).map(|_| draw()).collect()
    }

    fn random_reads(&self, order: &mut [u32]) {
        let mut rng = fastrand::Rng::with_seed(self.seed.wrapping_add(1));
        let popular = self.popular();
        let eighths = self.ordering.popular_eighths();
        for object in order {
            *object = match eighths {
                Some(n) if rng.u64(0..8) >= n => rng.u64(0..popular) as u32,
                Some(_) => rng.u64(popular..self.objects) as u32,
                None => rng.u64(0..self.objects) as u32,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(ordering: Ordering) -> Workload {
        Workload { objects: 16_384, groups: 16, ordering, seed: 7, fixed_bytes: None, cache: None }
    }

    #[test]
    fn the_most_popular_of_a_cache_get_what_the_law_says() {
        let cache = Some(CacheUse { alpha: 1.0, requests: 100_000 });
        let w = Workload { objects: 1000, cache, ..workload(Ordering::Random) };
        let mut counts = vec![0_u64; 1000];
        for object in w.order(Stage::Cache) {
            counts[object as usize] += 1;
        }
        counts.sort_unstable();
        let law: f64 = (1..=1000).map(|rank| 1.0 / f64::from(rank)).sum();
        let (most, second) = (counts[999] as f64 / 1e5, counts[998] as f64 / 1e5);
        assert!((most - 1.0 / law).abs() < 0.01 && (second - 0.5 / law).abs() < 0.01);
        assert!(w.order(Stage::Warm) != w.order(Stage::Cache));
    }

    #[test]
    fn values_are_told_apart_at_every_length() {
        for bytes in [1, 2, 7, 8, 9, 15, 16, 17, 4096] {
            let w = Workload { fixed_bytes: Some(bytes), ..workload(Ordering::Random) };
            let mut buffer = vec![0; OBJECT_BYTES_MAX];
            let value = w.fill(5, &mut buffer).to_vec();
            assert!(w.verify(5, &value), "{bytes}");
            assert!(!w.verify(5, &value[1..]), "{bytes}");
            assert!(bytes < 2 || !w.verify(6, &value), "{bytes}");
        }
    }

    #[test]
    fn popular_objects_fill_the_loved_groups_and_get_their_share() {
        for (ordering, eighths) in
            [(Ordering::Zipf18, 1), (Ordering::Zipf14, 2), (Ordering::Zipf38, 3)]
        {
            let w = workload(ordering);
            assert_eq!(w.group(w.popular() - 1) + 1, w.loved_groups());
            assert_eq!(w.group(w.popular()), w.loved_groups());
            let reads = w.order(Stage::Read);
            let popular = reads.iter().filter(|o| u64::from(**o) < w.popular()).count() as f64;
            let share = popular / reads.len() as f64;
            assert!((share - f64::from(8 - eighths) / 8.0).abs() < 0.02, "{ordering:?} {share}");
        }
    }

    #[test]
    fn every_object_is_created_and_deleted_once() {
        for ordering in Ordering::ALL {
            let w = workload(ordering);
            for stage in [Stage::Create, Stage::Delete] {
                let mut order = w.order(stage);
                order.sort_unstable();
                assert!(order.iter().enumerate().all(|(i, o)| i as u32 == *o));
            }
        }
    }
}
