//! The gate: tracks creates that are about to get a sequence number, until they are in the nursery.
//!
//! A checkpoint records the next sequence number: any older object must be in its copy of the index
//! or dead. A create that has its number but has not reached the nursery would be neither, so the
//! checkpoint waits for creates inside the gate.
//! Invariant: a thread inside the gate never waits for a checkpoint or for the flusher. Threads:
//! any create enters; the writer of a checkpoint waits.

use crate::sync::{Padded, RwLock, RwLockReadGuard, exclusive, shared};
use crate::types::KeyHash;

const STRIPES: usize = 16;

/// Every create touches one.
type Stripe = Padded<RwLock<()>>;

#[derive(Default)]
pub(crate) struct Gate([Stripe; STRIPES]);

impl Gate {
    /// Keeps a create of this key inside until dropped: from before the sequence number is taken
    /// until the object is in the nursery.
    pub(crate) fn enter(&self, hash: KeyHash) -> RwLockReadGuard<'_, ()> {
        shared(&self.0[(hash.get() >> 32) as usize % STRIPES].0)
    }

    /// Waits until every create that is inside now has left.
    pub(crate) fn wait_empty(&self) {
        for stripe in &self.0 {
            drop(exclusive(&stripe.0));
        }
    }
}
