//! The gate: tracks creates that have a sequence number and are not in the nursery yet.
//!
//! A checkpoint records the next sequence number: any older object must be in its copy of the index
//! or dead. A create that has its number but has not reached the nursery would be neither, so the
//! checkpoint waits for creates inside the gate. A create that continues an older version (a kept
//! object or new metadata) must not take its number between the number of another create of the
//! same key and its publication, since it would then seem the newer one: it enters alone. So does
//! whatever journals that a version is gone which it only found to be so.
//! Invariant: a thread inside the gate never waits for a checkpoint or for the flusher. Threads:
//! any create enters; any reader or I/O thread may enter alone if nobody is inside; the writer of a
//! checkpoint and the flusher wait.

use crate::sync::{
    Padded, RwLock, RwLockReadGuard, RwLockWriteGuard, exclusive, shared, try_exclusive,
};
use crate::types::KeyHash;

const STRIPES: usize = 16;

/// Every create touches one.
type Stripe = Padded<RwLock<()>>;

/// Keeps one create inside the gate until dropped.
pub(crate) enum GateGuard<'a> {
    Shared(#[expect(dead_code, reason = "held, not read")] RwLockReadGuard<'a, ()>),
    Alone(#[expect(dead_code, reason = "held, not read")] RwLockWriteGuard<'a, ()>),
}

#[derive(Default)]
pub(crate) struct Gate([Stripe; STRIPES]);

impl Gate {
    /// Held from before the sequence number is taken until the object is in the nursery.
    pub(crate) fn enter(&self, hash: KeyHash) -> GateGuard<'_> {
        GateGuard::Shared(shared(self.stripe(hash)))
    }

    /// As `enter`, with no other create of the same key inside.
    pub(crate) fn enter_alone(&self, hash: KeyHash) -> GateGuard<'_> {
        GateGuard::Alone(exclusive(self.stripe(hash)))
    }

    /// As `enter_alone`, unless that would have to wait.
    pub(crate) fn try_enter_alone(&self, hash: KeyHash) -> Option<GateGuard<'_>> {
        try_exclusive(self.stripe(hash)).map(GateGuard::Alone)
    }

    fn stripe(&self, hash: KeyHash) -> &RwLock<()> {
        &self.0[(hash.get() >> 32) as usize % STRIPES].0
    }

    /// Waits until every create that is inside now has left.
    pub(crate) fn wait_empty(&self) {
        for stripe in &self.0 {
            drop(exclusive(&stripe.0));
        }
    }
}
