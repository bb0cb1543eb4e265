//! The default residency policy: keeps the objects with the most hits per byte.
//!
//! An object's density is its number of recent requests, hits and misses alike, times the cost of
//! reading it again, divided by its bytes (GreedyDual-Size-Frequency, Cherkasova 1998). The queues
//! are those of S3-FIFO. Rules:
//!
//! - An object examined in either queue is promoted to, or kept in, protected if its density is at
//!   or above a threshold. An object read from disk at or above it skips probation (as W-TinyLFU
//!   admits, Einziger 2017).
//! - A less dense object is evicted, unless it was hit in probation: then it gets another turn
//!   there.
//! - The threshold adapts so that half of the protected bytes examined stay.
//! - Request counts are halved periodically, and the threshold with them, so that old popularity
//!   fades.
//! - `balance` decides the share of memory that probation gets.
//!
//! Threads: any; atomics, lost updates only blur the counts.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::balance::Balance;
use super::sketch::Sketch;
use super::{Arrival, Fate, Hint, Leaving, Queue, ResidencyPolicy, Usage, probation_or_protected};

/// Size at which transferring an object's bytes costs as much as the read's fixed cost: a read
/// costs `1 + bytes / EVEN_COST_BYTES`. Larger values favour small objects: more objects and fewer
/// bytes stay.
const EVEN_COST_BYTES: f64 = 16384.0;
/// The threshold changes by this factor after each `STEP_BYTES` of protected bytes examined.
const STEP: f64 = 0.02;
const STEP_BYTES: usize = 65536;
/// Below any density: the threshold of an empty cache.
const THRESHOLD_MIN: f64 = 1e-9;

pub(super) struct HitDensity {
    sketch: Sketch,
    /// The bits of an `f64`.
    threshold: AtomicU64,
    /// Protected bytes examined since the threshold last moved, and how many of them stayed.
    looked: AtomicUsize,
    kept: AtomicUsize,
    balance: Balance,
}

/// The weight of `hits` collected over this many halvings: all of them if no halving came between,
/// else as if they had come evenly and been halved with the other counts.
fn faded(hits: u8, halvings: u8) -> u32 {
    let hits = u32::from(hits);
    if halvings == 0 { hits } else { (2 * hits).div_ceil(u32::from(halvings) + 1) }
}

fn density(times: u32, bytes: u32) -> f64 {
    let bytes = f64::from(bytes.max(1));
    f64::from(times) * (1.0 + bytes / EVEN_COST_BYTES) / bytes
}

impl HitDensity {
    pub(super) fn new(memory_bytes: u64) -> HitDensity {
        HitDensity::with(Sketch::new(memory_bytes), Balance::new(memory_bytes))
    }

    /// With tables that grow with the number of keys, up to the size of those of `new`.
    pub(super) fn growing(memory_bytes: u64) -> HitDensity {
        HitDensity::with(Sketch::growing(memory_bytes), Balance::of_few(memory_bytes))
    }

    fn with(sketch: Sketch, balance: Balance) -> HitDensity {
        HitDensity {
            sketch,
            threshold: AtomicU64::new(THRESHOLD_MIN.to_bits()),
            looked: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
            balance,
        }
    }

    fn threshold(&self) -> f64 {
        f64::from_bits(self.threshold.load(Ordering::Relaxed))
    }

    fn scale_threshold(&self, by: f64) {
        let scaled = (self.threshold() * by).max(THRESHOLD_MIN);
        self.threshold.store(scaled.to_bits(), Ordering::Relaxed);
    }

    /// The object's hits since it was last examined, faded to the present.
    fn hits_of(&self, object: &Leaving) -> u32 {
        faded(object.hits, self.epoch().wrapping_sub(object.epoch))
    }
}

impl ResidencyPolicy for HitDensity {
    fn arrive(&self, hint: Hint, arrival: Arrival) -> Queue {
        let worthy = match arrival {
            Arrival::Asked { hash, bytes } => {
                self.sketch.add(hash, 1);
                self.balance.missed(hash);
                density(self.sketch.estimate(hash), bytes) >= self.threshold()
            }
            Arrival::Hinted => true,
            Arrival::Written | Arrival::WithPage => false,
        };
        match hint {
            Hint::Hated => Queue::Hated,
            Hint::Loved => Queue::Loved,
            Hint::Neutral if worthy => Queue::Protected,
            Hint::Neutral => Queue::Probation,
        }
    }

    fn victim(&self, usage: &Usage, requester: Hint) -> Option<Queue> {
        let [_, probation, protected, _] = usage.frames;
        let is_over = self.balance.probation_is_over(probation, protected);
        probation_or_protected(usage, requester, is_over)
    }

    fn fate(&self, queue: Queue, object: &Leaving) -> Fate {
        let times = self.sketch.estimate(object.hash) + self.hits_of(object);
        match queue {
            Queue::Hated => Fate::Drop,
            // A loved hint stands in for density: any hit keeps a loved object.
            Queue::Loved if object.hits > 0 => Fate::CopyTo(Queue::Loved),
            Queue::Loved => Fate::Drop,
            _ if density(times, object.bytes) >= self.threshold() => Fate::CopyTo(Queue::Protected),
            // Where use is recent rather than frequent, a hit in probation is better evidence than
            // a count.
            Queue::Probation if object.hits > 0 => Fate::CopyTo(Queue::Probation),
            _ => Fate::Drop,
        }
    }

    fn take_hits(&self, queue: Queue, object: &Leaving) {
        let before = density(self.sketch.estimate(object.hash), object.bytes);
        self.balance.looked_at(queue, object, before / self.threshold());
        self.sketch.add(object.hash, self.hits_of(object));
    }

    fn left(&self, queue: Queue, object: &Leaving) {
        self.balance.left(queue, object);
    }

    fn hits_after(&self, queue: Queue, hits: u8) -> u8 {
        // Hits in the other queues have been added to the sketch.
        if queue == Queue::Loved { hits.saturating_sub(2).min(1) } else { 0 }
    }

    fn looked_at(&self, queue: Queue, bytes: usize, kept_bytes: usize) {
        if queue != Queue::Protected {
            return;
        }
        self.kept.fetch_add(kept_bytes, Ordering::Relaxed);
        if self.looked.fetch_add(bytes, Ordering::Relaxed) + bytes >= STEP_BYTES {
            let looked = self.looked.swap(0, Ordering::Relaxed);
            let up = 2 * self.kept.swap(0, Ordering::Relaxed) > looked;
            self.scale_threshold(if up { 1.0 + STEP } else { 1.0 - STEP });
        }
    }

    fn first_used(&self, hash: u64) {
        self.sketch.add(hash, 1);
    }

    fn written(&self, hash: u64) {
        // A write counts as a request: a proxy writes an object after a miss.
        self.sketch.add(hash, 1);
    }

    fn read_with_page(&self, hash: u64) {
        self.balance.missed(hash);
    }

    fn settle(&self, objects: usize) {
        self.sketch.set_objects(objects);
        self.balance.set_objects(objects);
        if self.sketch.halve_if_due() {
            self.scale_threshold(0.5);
        }
    }

    fn keys_known(&self, keys: usize) {
        self.sketch.set_keys(keys);
    }

    fn epoch(&self) -> u8 {
        self.sketch.halvings() as u8
    }

    fn bytes(&self) -> usize {
        self.sketch.bytes() + self.balance.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaving(hash: u64, bytes: u32, hits: u8) -> Leaving {
        Leaving { hash, bytes, hits, epoch: 0 }
    }

    /// Raises the threshold to `typical` by protected runs that stay whole.
    fn settled(policy: &HitDensity, typical: f64) {
        while policy.threshold() < typical {
            policy.looked_at(Queue::Protected, STEP_BYTES, STEP_BYTES);
        }
    }

    #[test]
    fn what_is_denser_than_the_threshold_stays_and_the_rest_goes() {
        let policy = HitDensity::new(1 << 20);
        settled(&policy, density(3, 1000));
        let to_protected = Fate::CopyTo(Queue::Protected);
        assert_eq!(policy.fate(Queue::Probation, &leaving(1 << 40, 1000, 9)), to_protected);
        assert_eq!(policy.fate(Queue::Protected, &leaving(2 << 40, 1000, 1)), Fate::Drop);
        assert_eq!(policy.fate(Queue::Protected, &leaving(3 << 40, 100, 1)), to_protected, "small");
        assert_eq!(policy.fate(Queue::Hated, &leaving(4 << 40, 100, 9)), Fate::Drop);
        assert_eq!(
            policy.fate(Queue::Loved, &leaving(5 << 40, 9000, 1)),
            Fate::CopyTo(Queue::Loved)
        );
    }

    #[test]
    fn asking_for_a_fate_changes_nothing_and_hits_are_taken_once() {
        let policy = HitDensity::new(1 << 20);
        settled(&policy, density(2, 1000));
        let object = leaving(1 << 40, 1000, 1);
        for _ in 0..9 {
            assert_eq!(policy.fate(Queue::Protected, &object), Fate::Drop);
        }
        policy.take_hits(Queue::Protected, &object);
        assert_eq!(policy.fate(Queue::Protected, &object), Fate::Drop, "one and one");
        policy.take_hits(Queue::Protected, &object);
        let stays = policy.fate(Queue::Protected, &object);
        assert_eq!(stays, Fate::CopyTo(Queue::Protected), "two and one");
    }

    #[test]
    fn what_left_is_remembered_when_it_is_read_again() {
        let policy = HitDensity::new(1 << 20);
        settled(&policy, density(3, 1000));
        let asked = Arrival::Asked { hash: 7 << 40, bytes: 1000 };
        let queues = [0; 4].map(|_| policy.arrive(Hint::Neutral, asked));
        assert_eq!(queues[0], Queue::Probation);
        assert_eq!(queues[3], Queue::Protected);
        assert_eq!(policy.arrive(Hint::Hated, asked), Queue::Hated);
    }

    #[test]
    fn what_was_hit_in_probation_has_another_turn_there_and_in_protected_has_not() {
        let policy = HitDensity::new(1 << 20);
        settled(&policy, density(9, 1000));
        let another = Fate::CopyTo(Queue::Probation);
        assert_eq!(policy.fate(Queue::Probation, &leaving(1 << 40, 1000, 1)), another);
        assert_eq!(policy.fate(Queue::Probation, &leaving(2 << 40, 1000, 0)), Fate::Drop);
        assert_eq!(policy.fate(Queue::Protected, &leaving(3 << 40, 1000, 1)), Fate::Drop);
    }

    #[test]
    fn what_is_written_counts_as_asked_for() {
        let policy = HitDensity::new(1 << 20);
        settled(&policy, density(1, 1000));
        policy.written(1 << 40);
        let asked = |hash| policy.arrive(Hint::Neutral, Arrival::Asked { hash, bytes: 1000 });
        assert_eq!(asked(1 << 40), Queue::Protected);
        assert_eq!(asked(2 << 40), Queue::Probation);
    }

    #[test]
    fn probation_is_given_room_while_what_left_it_is_read_again() {
        let policy = HitDensity::new(1 << 20);
        let usage = Usage { frames: [0, 12, 4, 0], total: 16 };
        assert_eq!(policy.victim(&usage, Hint::Neutral), Some(Queue::Probation));
        policy.settle(64);
        for n in 0..64 {
            policy.left(Queue::Probation, &leaving(n << 20, 1000, 0));
            // With its page or by itself.
            match n % 2 {
                0 => policy.read_with_page(n << 20),
                _ => drop(
                    policy.arrive(Hint::Neutral, Arrival::Asked { hash: n << 20, bytes: 1000 }),
                ),
            }
        }
        assert_eq!(policy.victim(&usage, Hint::Neutral), Some(Queue::Protected));
    }

    #[test]
    fn the_threshold_comes_down_when_little_stays_and_when_counts_are_halved() {
        let policy = HitDensity::new(1 << 20);
        settled(&policy, 1.0);
        let before = policy.threshold();
        policy.looked_at(Queue::Protected, STEP_BYTES, STEP_BYTES / 10);
        assert!(policy.threshold() < before);
        policy.looked_at(Queue::Probation, STEP_BYTES, STEP_BYTES);
        assert!(policy.threshold() < before, "probation says nothing of it");
        let before = policy.threshold();
        while policy.epoch() == 0 {
            policy.first_used(1);
            policy.settle(0);
        }
        assert!((policy.threshold() / before - 0.5).abs() < 0.01);
    }

    #[test]
    fn hits_fade_as_if_they_had_come_evenly() {
        assert_eq!([0, 1, 3, 9].map(|halvings| faded(10, halvings)), [10, 10, 5, 2]);
    }
}
