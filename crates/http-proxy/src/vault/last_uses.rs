//! When variants were last used, so that the one that nobody asked for longest makes room.
//!
//! Invariants: bounded memory, whatever is stored; of two variants that share a slot both pass for
//! the one used later, and what was not used since the start for one that never was. A variant is
//! used when it is found, and when a response begins to be stored as it: one on its way, which
//! nobody can find yet, has been used a moment ago. Threads: any; one atomic word per use.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Number of times that are remembered, in 128 KiB.
const SLOTS: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct LastUses {
    /// Nanoseconds since `begun`; 0 is never.
    slots: Box<[AtomicU64]>,
    hasher: RandomState,
    begun: Instant,
}

impl LastUses {
    pub(super) fn new() -> LastUses {
        let slots = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        LastUses { slots, hasher: RandomState::new(), begun: Instant::now() }
    }

    /// Notes that a variant of this resource is used now.
    pub(super) fn note(&self, primary: &[u8], variant: &[u8]) {
        let now_ns = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.slot(primary, variant).store(now_ns.max(1), Ordering::Relaxed);
    }

    /// The place of the one that was not used for longest, the first of equals. `None` if there are
    /// none.
    pub(super) fn longest_unused(&self, primary: &[u8], variants: &[Vec<u8>]) -> Option<usize> {
        let last_ns = |place: &usize| self.slot(primary, &variants[*place]).load(Ordering::Relaxed);
        (0..variants.len()).min_by_key(last_ns)
    }

    fn slot(&self, primary: &[u8], variant: &[u8]) -> &AtomicU64 {
        // What follows the primary key begins with a number that no other resource has, and is
        // mostly shorter.
        let own = variant.strip_prefix(primary).unwrap_or(variant);
        &self.slots[self.hasher.hash_one(own) as usize % SLOTS]
    }
}
