//! Divides memory between probation and protected by the reads that a slightly larger share of
//! either would save.
//!
//! - Probation: an object leaves it and is read from disk again before another eighth of memory's
//!   worth of objects has left. A probation longer by that eighth would have saved the read.
//! - Protected: the objects whose density is near the threshold are those that a smaller protected
//!   queue would evict. Their hits, less those that probation would have served, scaled to an
//!   eighth of memory, are the reads that this eighth saves.
//!
//! Each saved read moves the border by the room of a few objects, so that it settles where both
//! sides save equally. (ARC, Megiddo and Modha 2003, compares two ghost lists. Here protected
//! admits by density, so the objects that leave it say too little about those that it holds.)
//!
//! Memory: at most 64 bytes for each 64 KiB of data. Threads: any; relaxed atomics, lost updates
//! only blur the estimate.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Leaving, Queue};
use crate::policy::notes::Note;
use crate::policy::sample::Sample;

/// Probation's initial share and its bounds. A larger initial share helps workloads with recency
/// and costs hits where popularity is stable (`docs/decisions/0017`).
const SHARE_START: f64 = 0.2;
const SHARE_MIN: f64 = 0.1;
const SHARE_MAX: f64 = 0.9;
/// The margin, as a share of memory, by which a queue is imagined larger.
const MARGIN: f64 = 0.125;
/// How far one saved read moves the border, in objects, and the largest move, as a share of memory.
const STEP_OBJECTS: f64 = 2.0;
const STEP_MAX: f64 = 0.05;
/// Densities near the threshold, as multiples of it.
const NEAR_MIN: f64 = 0.5;
const NEAR_MAX: f64 = 2.0;
/// Lower bound of the share of protected bytes near the threshold. With fewer, the few objects seen
/// there would be scaled up too much.
const NEAR_SHARE_MIN: f64 = 0.02;
/// Bytes of data memory per note; the table is rounded up to a power of two.
const BYTES_PER_NOTE: u64 = 16384;
/// Most notes in a balance for few keys: as many as 1 GiB of memory gets. With more objects, a
/// sample is followed.
const FEW_NOTES_MAX: u64 = 1 << 16;
/// Notes for each followed object that leaves within the margin, so that few notes are overwritten.
const NOTES_PER_LEAVING: f64 = 2.0;
const OBJECTS_MIN: u64 = 64;
/// Notes keep the clock `left_bytes` in units of 2^10 bytes.
const TICK_SHIFT: u32 = 10;

pub(super) struct Balance {
    memory_bytes: u64,
    /// Probation's share of both queues: the bits of an `f64`.
    share: AtomicU64,
    /// For each followed object that left probation, the value of `left_bytes` at that time.
    left: Sample,
    left_bytes: AtomicU64,
    objects: AtomicU64,
    /// Bytes examined for eviction lately in probation and protected, and protected bytes near the
    /// threshold.
    looked: [AtomicU64; 2],
    near: AtomicU64,
    /// Frames of probation and protected at the last eviction.
    held: [AtomicU64; 2],
}

fn float(count: &AtomicU64) -> f64 {
    count.load(Ordering::Relaxed).max(1) as f64
}

impl Balance {
    pub(super) fn new(memory_bytes: u64) -> Balance {
        Balance::with(memory_bytes, memory_bytes / BYTES_PER_NOTE)
    }

    /// A balance whose tables are bounded however large the memory is.
    pub(super) fn of_few(memory_bytes: u64) -> Balance {
        Balance::with(memory_bytes, (memory_bytes / BYTES_PER_NOTE).min(FEW_NOTES_MAX))
    }

    fn with(memory_bytes: u64, notes: u64) -> Balance {
        Balance {
            memory_bytes,
            share: AtomicU64::new(SHARE_START.to_bits()),
            left: Sample::new(notes as usize, 1),
            left_bytes: AtomicU64::new(0),
            objects: AtomicU64::new(OBJECTS_MIN),
            looked: Default::default(),
            near: AtomicU64::new(0),
            held: Default::default(),
        }
    }

    /// Memory that the tables take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.left.bytes()
    }

    /// Probation's share of the bytes in both queues.
    pub(super) fn share(&self) -> f64 {
        f64::from_bits(self.share.load(Ordering::Relaxed))
    }

    fn move_by(&self, saved_reads: f64) {
        let step = STEP_OBJECTS * saved_reads / float(&self.objects);
        let share = self.share() + step.clamp(-STEP_MAX, STEP_MAX);
        self.share.store(share.clamp(SHARE_MIN, SHARE_MAX).to_bits(), Ordering::Relaxed);
    }

    /// Sets the number of objects in memory: with many small ones, a smaller sample is followed.
    pub(super) fn set_objects(&self, objects: usize) {
        self.left.set_wanted((objects as f64 * MARGIN * NOTES_PER_LEAVING).ceil() as u64);
        self.objects.store((objects as u64).max(OBJECTS_MIN), Ordering::Relaxed);
    }

    /// Called at each eviction with the frames of both queues; true if probation exceeds its share.
    pub(super) fn probation_is_over(&self, probation: usize, protected: usize) -> bool {
        for (held, frames) in self.held.iter().zip([probation, protected]) {
            held.store(frames as u64, Ordering::Relaxed);
        }
        probation as f64 > (probation + protected) as f64 * self.share()
    }

    /// A run with this object was examined for eviction. `density` is the object's density without
    /// its new hits, as a multiple of the threshold.
    pub(super) fn looked_at(&self, queue: Queue, object: &Leaving, density: f64) {
        let bytes = u64::from(object.bytes);
        match queue {
            Queue::Probation => self.count(&self.looked[0], bytes),
            Queue::Protected => {
                self.count(&self.looked[1], bytes);
                if (NEAR_MIN..NEAR_MAX).contains(&density) {
                    self.near.fetch_add(bytes, Ordering::Relaxed);
                    self.move_by(-self.saved_by_margin(f64::from(object.hits)));
                }
            }
            Queue::Hated | Queue::Loved => {}
        }
    }

    /// Adds to a count of examined bytes. All counts are halved periodically, so that they follow
    /// changes of the workload.
    fn count(&self, looked: &AtomicU64, bytes: u64) {
        if looked.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.memory_bytes {
            return;
        }
        for count in [&self.looked[0], &self.looked[1], &self.near] {
            count.store(count.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        }
    }

    /// Reads that protected's margin saves, as estimated from one object near the threshold with
    /// this many hits since it was last examined.
    fn saved_by_margin(&self, hits: f64) -> f64 {
        let [probation, protected] = [float(&self.held[0]), float(&self.held[1])];
        // How long an object waits in probation, relative to protected. In probation it would have
        // missed once per such stay.
        let stay = (probation / float(&self.looked[0])) / (protected / float(&self.looked[1]));
        let saved = hits / (1.0 + hits * stay);
        let near_share = (float(&self.near) / float(&self.looked[1])).clamp(NEAR_SHARE_MIN, 1.0);
        saved * MARGIN * (probation + protected) / (protected * near_share)
    }

    /// An object has left memory.
    pub(super) fn left(&self, queue: Queue, object: &Leaving) {
        if queue != Queue::Probation {
            return;
        }
        let bytes = u64::from(object.bytes);
        let now = self.left_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.left.leaves(object.hash, || Note { said: 0, when: (now >> TICK_SHIFT) as u32 });
    }

    /// An object that is not in memory is read.
    pub(super) fn missed(&self, hash: u64) {
        let Some(note) = self.left.asked(hash) else { return };
        let now = (self.left_bytes.load(Ordering::Relaxed) >> TICK_SHIFT) as u32;
        let since_bytes = u64::from(now.wrapping_sub(note.when)) << TICK_SHIFT;
        if since_bytes <= (self.memory_bytes as f64 * MARGIN) as u64 {
            self.move_by(self.left.one_in() as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: u64 = 1 << 20;

    fn leaving(n: u64, hits: u8) -> Leaving {
        Leaving { hash: n << 20, bytes: 4096, hits, epoch: 0 }
    }

    /// A balance with half of the memory in each queue, and equally many bytes examined in both.
    fn balance() -> Balance {
        let balance = Balance::new(MEMORY);
        balance.set_objects(256);
        balance.probation_is_over(8, 8);
        balance
    }

    #[test]
    fn what_a_longer_probation_would_have_had_lengthens_it() {
        let balance = balance();
        for n in 0..32 {
            balance.left(Queue::Probation, &leaving(n, 0));
            balance.left(Queue::Protected, &leaving(n + 100, 0));
        }
        balance.missed(99 << 20);
        balance.missed(100 << 20);
        assert_eq!(balance.share(), SHARE_START, "it never left, or left protected");
        balance.missed(5 << 20);
        let after_one = balance.share();
        assert!((after_one - SHARE_START - STEP_OBJECTS / 256.0).abs() < 1e-9, "{after_one}");
        balance.missed(5 << 20);
        assert_eq!(balance.share(), after_one, "each counts once");
        for n in 32..40 {
            balance.left(Queue::Probation, &leaving(n, 0));
        }
        balance.missed(2 << 20);
        assert_eq!(balance.share(), after_one, "more than an eighth of memory left since");
        balance.missed(20 << 20);
        assert!(balance.share() > after_one);
    }

    #[test]
    fn hits_next_to_the_threshold_lengthen_protected_and_others_do_not() {
        let balance = balance();
        balance.looked_at(Queue::Protected, &leaving(1, 9), 5.0);
        balance.looked_at(Queue::Protected, &leaving(2, 9), 0.1);
        balance.looked_at(Queue::Protected, &leaving(3, 0), 1.0);
        balance.looked_at(Queue::Probation, &leaving(4, 9), 1.0);
        balance.looked_at(Queue::Loved, &leaving(5, 9), 1.0);
        assert_eq!(balance.share(), SHARE_START);
        balance.looked_at(Queue::Protected, &leaving(6, 4), 1.0);
        let one = SHARE_START - balance.share();
        assert!(one > 0.0);
        balance.looked_at(Queue::Protected, &leaving(7, 1), 1.0);
        let fewer_hits = SHARE_START - one - balance.share();
        assert!(fewer_hits > 0.0 && fewer_hits < one, "{fewer_hits} {one}");
    }

    #[test]
    fn the_share_stays_within_its_bounds_and_says_who_is_over() {
        let balance = balance();
        // Sixteen frames; probation's initial share is a fifth.
        assert!(!balance.probation_is_over(3, 13) && balance.probation_is_over(4, 12));
        for n in 0..4_000 {
            balance.left(Queue::Probation, &leaving(n, 0));
            balance.missed(n << 20);
        }
        assert_eq!(balance.share(), SHARE_MAX);
        balance.probation_is_over(8, 8);
        for n in 0..40_000 {
            balance.looked_at(Queue::Probation, &leaving(n, 0), 0.1);
            balance.looked_at(Queue::Protected, &leaving(n, 3), 1.0);
        }
        assert_eq!(balance.share(), SHARE_MIN);
        assert!(balance.probation_is_over(4, 28));
    }

    #[test]
    fn many_small_objects_are_followed_in_samples_that_stand_for_all() {
        let balance = balance();
        balance.set_objects(1 << 16);
        let followed = balance.left.one_in();
        assert!(followed >= 64, "{followed}");
        balance.left(Queue::Probation, &leaving(1, 0));
        balance.missed(1 << 20);
        let moved = (balance.share() - SHARE_START) * 65_536.0;
        assert!((moved - STEP_OBJECTS * followed as f64).abs() < 1e-6, "{moved}");
        assert!(balance.bytes() as u64 <= MEMORY / 1024 + 512, "{}", balance.bytes());
    }
}
