//! Which families of entries (same tag, same buckets) lost one whose record is still on disk.
//!
//! What the index drops of its own accord is found again by a recovery, until a checkpoint that was
//! begun later is complete. Whoever stores such a key anew must therefore say in the journal that
//! what was before is dead, although the index knows nothing of it; this is how he can tell.
//! A fixed number of bits, so another family may look as if it had lost one: that costs a record of
//! journal. Invariants: a bit is set before its entry vanishes from its slot; it stays set until a
//! checkpoint that was begun afterwards is complete.
//! Threads: set and rotated under the shard's lock, asked without.

use super::geometry::Pair;
use super::sync::{AtomicU64, Ordering};

/// 64 bits each; loom has to keep track of every word.
const WORDS: usize = if cfg!(all(loom, test)) { 1 } else { 64 };

pub(super) struct Dropped {
    /// Since the last checkpoint was begun.
    current: [AtomicU64; WORDS],
    /// Before that, and not covered by a complete one yet.
    previous: [AtomicU64; WORDS],
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
        Dropped { current: none(), previous: none() }
    }

    /// To be called with the shard's lock, before the entry goes.
    pub(super) fn set(&self, pair: Pair) {
        let (word, bit) = place(pair);
        let word = &self.current[word];
        word.store(word.load(Ordering::Relaxed) | bit, Ordering::Release);
    }

    /// Of every family. To be called with the shard's lock.
    pub(super) fn set_all(&self) {
        self.current.iter().for_each(|word| word.store(u64::MAX, Ordering::Release));
    }

    /// A slot that was seen empty was emptied after its bit was set, so the bit is seen as well.
    pub(super) fn is_set(&self, pair: Pair) -> bool {
        let (word, bit) = place(pair);
        // In this order: `rotate` writes the older generation first.
        let seen = self.current[word].load(Ordering::Acquire);
        (seen | self.previous[word].load(Ordering::Acquire)) & bit != 0
    }

    /// A checkpoint begins. To be called with the shard's lock.
    pub(super) fn rotate(&self) {
        for (current, previous) in self.current.iter().zip(&self.previous) {
            let all = previous.load(Ordering::Relaxed) | current.load(Ordering::Relaxed);
            previous.store(all, Ordering::Release);
            current.store(0, Ordering::Release);
        }
    }

    /// The checkpoint that began with the last `rotate` is complete.
    pub(super) fn clear_previous(&self) {
        self.previous.iter().for_each(|word| word.store(0, Ordering::Release));
    }
}
