//! Remembers families of entries (same tag, same buckets) that lost an entry whose record is still
//! on disk.
//!
//! Recovery finds such a record again, until two checkpoints begun after the drop are complete:
//! with one, the checkpoint before may still have it, and is what recovery goes by if the newest is
//! damaged. A writer that stores the key anew must therefore write to the journal that earlier
//! versions are dead, although the index no longer knows of them; this set tells the writer so. So
//! must who removes it: the journal may say of another key of the family that it is dead, and
//! nothing of this one. It is a fixed number of bits, so another family may share a bit: that costs
//! a needless journal record.
//!
//! Most records that are dropped are dead by the journal. Of others, *lost* ones, only such a
//! checkpoint does not tell: an older one still has them.
//!
//! Invariants: a bit is set before its entry vanishes from its slot; it stays set until two
//! checkpoints begun afterwards are complete. Threads: set and rotated under the shard's lock, read
//! without; one thread at a time writes checkpoints.

use super::geometry::Pair;
use super::sync::{AtomicU64, Ordering};

/// Words of 64 bits; few under loom, which has to track each one.
const WORDS: usize = if cfg!(all(loom, test)) { 1 } else { 64 };

pub(super) struct Dropped {
    /// Drops since the last checkpoint began.
    current: [AtomicU64; WORDS],
    /// Earlier drops that no complete checkpoint covers yet.
    previous: [AtomicU64; WORDS],
    /// Drops that the newest complete checkpoint covers, and the one before does not.
    covered_once: [AtomicU64; WORDS],
    /// One if any of the former, and of the latter, were of records that the journal does not say
    /// to be dead.
    current_lost: AtomicU64,
    previous_lost: AtomicU64,
}

/// The word and the bit of a family.
fn place(pair: Pair) -> (usize, u64) {
    let bucket = u64::from(pair.first.min(pair.second));
    let mixed = ((bucket << 16) | u64::from(pair.tag())).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed >> 40) as usize % WORDS, 1 << (mixed >> 58))
}

impl Dropped {
    pub(super) fn new() -> Dropped {
        let none = || std::array::from_fn(|_| AtomicU64::new(0));
        let (current_lost, previous_lost) = (AtomicU64::new(0), AtomicU64::new(0));
        let (current, previous, covered_once) = (none(), none(), none());
        Dropped { current, previous, covered_once, current_lost, previous_lost }
    }

    /// Marks a family. Call with the shard's lock held, before the entry is removed.
    pub(super) fn set(&self, pair: Pair) {
        let (word, bit) = place(pair);
        let word = &self.current[word];
        word.store(word.load(Ordering::Relaxed) | bit, Ordering::Release);
    }

    /// The same of an entry whose record the journal does not say to be dead.
    pub(super) fn set_lost(&self, pair: Pair) {
        self.current_lost.store(1, Ordering::Relaxed);
        self.set(pair);
    }

    /// Marks every family as having lost entries. Call with the shard's lock held.
    pub(super) fn set_all(&self) {
        self.current_lost.store(1, Ordering::Relaxed);
        self.current.iter().for_each(|word| word.store(u64::MAX, Ordering::Release));
    }

    /// Whether the family is marked. A slot seen empty was emptied after its bit was set, so the
    /// bit is seen too.
    pub(super) fn is_set(&self, pair: Pair) -> bool {
        let (word, bit) = place(pair);
        // Read in this order, in which bits move on: they are written there first.
        let seen = self.current[word].load(Ordering::Acquire);
        let seen = seen | self.previous[word].load(Ordering::Acquire);
        (seen | self.covered_once[word].load(Ordering::Acquire)) & bit != 0
    }

    /// A checkpoint begins. Call with the shard's lock held.
    pub(super) fn rotate(&self) {
        for (current, previous) in self.current.iter().zip(&self.previous) {
            let all = previous.load(Ordering::Relaxed) | current.load(Ordering::Relaxed);
            previous.store(all, Ordering::Release);
            current.store(0, Ordering::Release);
        }
        let all =
            self.previous_lost.load(Ordering::Relaxed) | self.current_lost.load(Ordering::Relaxed);
        self.previous_lost.store(all, Ordering::Relaxed);
        self.current_lost.store(0, Ordering::Relaxed);
    }

    /// Whether entries were lost before the last `rotate` that no complete checkpoint covers yet.
    pub(super) fn has_lost(&self) -> bool {
        self.previous_lost.load(Ordering::Relaxed) != 0
    }

    /// The checkpoint that began with the last `rotate` is complete; the one before may still be
    /// believed, or not.
    pub(super) fn clear_previous(&self, is_older_believed: bool) {
        for (previous, covered) in self.previous.iter().zip(&self.covered_once) {
            let seen = if is_older_believed { previous.load(Ordering::Relaxed) } else { 0 };
            covered.store(seen, Ordering::Release);
            previous.store(0, Ordering::Release);
        }
        self.previous_lost.store(0, Ordering::Relaxed);
    }
}
