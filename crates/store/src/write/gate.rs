//! Which creates have a sequence number and are not in the nursery yet.
//!
//! A checkpoint names the next sequence number: whatever is older is in its copy of the index or dead.
//! A create that has its number but has not reached the nursery would be neither, so the checkpoint
//! waits for those. Invariant: nothing inside the gate waits for a checkpoint or for the flusher.
//! Threads: any create enters; the writer of a checkpoint waits.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

const STRIPES: usize = 16;

/// On a cache line of its own, since every create touches one.
#[derive(Default)]
#[repr(align(128))]
struct Stripe(RwLock<()>);

#[derive(Default)]
pub(crate) struct Gate([Stripe; STRIPES]);

impl Gate {
    /// Held from before the sequence number is taken until the object is in the nursery.
    pub(crate) fn enter(&self, hash: u64) -> RwLockReadGuard<'_, ()> {
        let stripe = &self.0[(hash >> 32) as usize % STRIPES];
        stripe.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until everyone who is inside now has left.
    pub(crate) fn wait_empty(&self) {
        for stripe in &self.0 {
            drop(stripe.0.write().unwrap_or_else(PoisonError::into_inner));
        }
    }
}
