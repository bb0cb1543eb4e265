//! How much of memory probation gets beside protected: what a little more of either would save decides.
//!
//! Of probation: an object that left it and is read from disk again before an eighth of memory's worth
//! of others has left it would have been found, had probation been longer by that. Of protected: the
//! objects whose density is next to the threshold are those that it could not keep if it were smaller.
//! Their hits, less those that probation would have had, scaled to an eighth of memory, are what that
//! eighth saves. Every read that is saved moves the border by the room of a few objects, so that it
//! rests where both save alike. (ARC, Megiddo and Modha 2003, weighs two ghost lists; what leaves a
//! protected queue that selects says too little of what it holds.)
//!
//! Memory: at most 64 bytes for each 64 KiB of data. Threads: any; relaxed, lost updates blur the picture.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Leaving, Queue};
use crate::policy::notes::Note;
use crate::policy::sample::Sample;

/// Share of probation at first and its bounds. More at first helps where use is recent, and costs where
/// popularity stands still (`docs/decisions/0017`).
const SHARE_START: f64 = 0.2;
const SHARE_MIN: f64 = 0.1;
const SHARE_MAX: f64 = 0.9;
/// "A little more" is this share of memory.
const MARGIN: f64 = 0.125;
/// Objects whose room one saved read moves, and the most that it moves of all memory.
const STEP_OBJECTS: f64 = 2.0;
const STEP_MAX: f64 = 0.05;
/// Densities from a half to twice the threshold are next to it.
const NEAR_MIN: f64 = 0.5;
const NEAR_MAX: f64 = 2.0;
/// With fewer bytes near the threshold than this share, what is known of them counts for more than they are.
const NEAR_SHARE_MIN: f64 = 0.02;
/// Memory for data that pays for one note; the table is rounded up to twice as many at most.
const BYTES_PER_NOTE: u64 = 16384;
/// Notes of one for few keys: as many as a gibibyte pays for. With more objects a share of them is followed.
const FEW_NOTES_MAX: u64 = 1 << 16;
/// Notes for each object that is followed and leaves within the margin, so that few are lost.
const NOTES_PER_LEAVING: f64 = 2.0;
const OBJECTS_MIN: u64 = 64;
/// Clocks of notes count in units of so many bytes, in powers of two.
const TICK_SHIFT: u32 = 10;

pub(super) struct Balance {
    memory_bytes: u64,
    /// Bits of an `f64`: probation's share of both queues.
    share: AtomicU64,
    /// When followed objects left probation, by `left_bytes`.
    left: Sample,
    left_bytes: AtomicU64,
    objects: AtomicU64,
    /// Bytes looked at lately in probation and protected, and those of protected near the threshold.
    looked: [AtomicU64; 2],
    near: AtomicU64,
    /// Frames of probation and protected when memory was last wanted.
    held: [AtomicU64; 2],
}

fn float(count: &AtomicU64) -> f64 {
    count.load(Ordering::Relaxed).max(1) as f64
}

impl Balance {
    pub(super) fn new(memory_bytes: u64) -> Balance {
        Balance::with(memory_bytes, memory_bytes / BYTES_PER_NOTE)
    }

    /// One whose memory ends somewhere, however much there is to be had.
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

    /// What it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.left.bytes()
    }

    /// Probation's share of what both queues hold.
    pub(super) fn share(&self) -> f64 {
        f64::from_bits(self.share.load(Ordering::Relaxed))
    }

    fn move_by(&self, saved_reads: f64) {
        let step = STEP_OBJECTS * saved_reads / float(&self.objects);
        let share = self.share() + step.clamp(-STEP_MAX, STEP_MAX);
        self.share.store(share.clamp(SHARE_MIN, SHARE_MAX).to_bits(), Ordering::Relaxed);
    }

    /// So many objects are in memory: with many small ones fewer are followed.
    pub(super) fn set_objects(&self, objects: usize) {
        self.left.set_wanted((objects as f64 * MARGIN * NOTES_PER_LEAVING).ceil() as u64);
        self.objects.store((objects as u64).max(OBJECTS_MIN), Ordering::Relaxed);
    }

    /// Memory is wanted while the queues hold so many frames: true if probation has more than its share.
    pub(super) fn probation_is_over(&self, probation: usize, protected: usize) -> bool {
        for (held, frames) in self.held.iter().zip([probation, protected]) {
            held.store(frames as u64, Ordering::Relaxed);
        }
        probation as f64 > (probation + protected) as f64 * self.share()
    }

    /// An object's run was looked at. `density` is the object's without the hits that it brings, in
    /// terms of the threshold.
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

    /// Adds to a count of bytes looked at. All are halved now and then, so that they follow the use.
    fn count(&self, looked: &AtomicU64, bytes: u64) {
        if looked.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.memory_bytes {
            return;
        }
        for count in [&self.looked[0], &self.looked[1], &self.near] {
            count.store(count.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        }
    }

    /// Reads that the margin of protected saves, as far as an object with so many hits since it was last
    /// looked at stands for it.
    fn saved_by_margin(&self, hits: f64) -> f64 {
        let [probation, protected] = [float(&self.held[0]), float(&self.held[1])];
        // How long an object waits in probation, in terms of protected. There it would have been read
        // once for each such stay.
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

    /// With half of the memory for either queue, and both looked at alike.
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
        // A fifth of sixteen frames at first.
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
