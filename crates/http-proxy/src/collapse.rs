//! Concurrent requests for one missing resource become one request to the origin.
//!
//! The first to [`Collapse::join`] a key leads; the others wait for what became of it. Invariants:
//! a leader that goes away in any manner, panics included, tells its followers by dropping its
//! [`Lead`]; nobody waits without a deadline; a key is in the table exactly while its `Lead` lives.
//! Resources that proved uncacheable are remembered, so that requests for them do not queue.
//!
//! Threads: shared by all workers; the lock is held for a table operation, never across a wait.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::error::FetchError;

/// Places to remember uncacheable resources in; a collision only forgets one of them.
const UNCACHEABLE_SLOTS: usize = 4096;

/// What became of a leader's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Not known yet.
    Pending,
    /// In the store: look again.
    Stored,
    /// Answered, but not for sharing: everyone goes alone.
    NotStored,
    /// The origin gave no response; it need not be asked by everyone.
    Failed(FetchError),
    /// The leader left before anything was known: somebody else should lead.
    Abandoned,
}

type Key = Arc<[u8]>;

/// The table of requests under way.
#[derive(Debug)]
pub(crate) struct Collapse {
    leads: Mutex<HashMap<Key, watch::Receiver<Outcome>>>,
    uncacheable: Box<[AtomicU64]>,
    hasher: std::hash::RandomState,
}

/// A request's part.
#[derive(Debug)]
pub(crate) enum Role {
    Leader(Lead),
    Follower(watch::Receiver<Outcome>),
    /// Known to be uncacheable: no collapsing.
    Alone,
}

impl Collapse {
    pub(crate) fn new() -> Arc<Collapse> {
        Arc::new(Collapse {
            leads: Mutex::default(),
            uncacheable: (0..UNCACHEABLE_SLOTS).map(|_| AtomicU64::new(0)).collect(),
            hasher: std::hash::RandomState::new(),
        })
    }

    /// Leads or follows for `key`.
    pub(crate) fn join(self: &Arc<Collapse>, key: &[u8]) -> Role {
        if self.is_uncacheable(key) {
            return Role::Alone;
        }
        let mut leads = self.leads.lock().unwrap_or_else(PoisonError::into_inner);
        match leads.entry(Key::from(key)) {
            Entry::Occupied(lead) => Role::Follower(lead.get().clone()),
            Entry::Vacant(place) => {
                let key = place.key().clone();
                let (outcome, receiver) = watch::channel(Outcome::Pending);
                place.insert(receiver);
                Role::Leader(Lead { collapse: self.clone(), key, outcome })
            }
        }
    }

    /// True if responses under `key` are remembered as uncacheable.
    pub(crate) fn is_uncacheable(&self, key: &[u8]) -> bool {
        let (slot, hash) = self.slot(key);
        slot.load(Ordering::Relaxed) == hash
    }

    /// Remembers whether responses under `key` can be shared.
    pub(crate) fn remember(&self, key: &[u8], cacheable: bool) {
        let (slot, hash) = self.slot(key);
        if !cacheable {
            slot.store(hash, Ordering::Relaxed);
        } else if slot.load(Ordering::Relaxed) == hash {
            slot.store(0, Ordering::Relaxed);
        }
    }

    fn slot(&self, key: &[u8]) -> (&AtomicU64, u64) {
        let hash = self.hasher.hash_one(key) | 1;
        (&self.uncacheable[(hash >> 32) as usize % UNCACHEABLE_SLOTS], hash)
    }
}

/// The right to fetch for all who wait. Dropping it lets them go.
#[derive(Debug)]
pub(crate) struct Lead {
    collapse: Arc<Collapse>,
    key: Key,
    outcome: watch::Sender<Outcome>,
}

impl Lead {
    /// Tells the followers and gives up the lead.
    pub(crate) fn end(self, outcome: Outcome) {
        match outcome {
            Outcome::NotStored => self.collapse.remember(&self.key, false),
            Outcome::Stored => self.collapse.remember(&self.key, true),
            _ => {}
        }
        self.outcome.send_replace(outcome);
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        let mut leads = self.collapse.leads.lock().unwrap_or_else(PoisonError::into_inner);
        leads.remove(&self.key);
        drop(leads);
        self.outcome.send_if_modified(|outcome| {
            let pending = *outcome == Outcome::Pending;
            if pending {
                *outcome = Outcome::Abandoned;
            }
            pending
        });
    }
}

/// Waits for the leader's outcome, however long it takes: the caller sets the deadline.
pub(crate) async fn outcome(mut lead: watch::Receiver<Outcome>) -> Outcome {
    match lead.wait_for(|outcome| *outcome != Outcome::Pending).await {
        Ok(outcome) => *outcome,
        Err(_) => Outcome::Abandoned,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_leads_until_it_ends() {
        let collapse = Collapse::new();
        let Role::Leader(lead) = collapse.join(b"k") else { panic!("first must lead") };
        let Role::Follower(follower) = collapse.join(b"k") else { panic!("second must follow") };
        assert!(matches!(collapse.join(b"other"), Role::Leader(_)));
        lead.end(Outcome::Stored);
        assert_eq!(*follower.borrow(), Outcome::Stored);
        let Role::Leader(lead) = collapse.join(b"k") else { panic!("the key is free again") };
        let Role::Follower(follower) = collapse.join(b"k") else { panic!("second must follow") };
        drop(lead);
        assert_eq!(*follower.borrow(), Outcome::Abandoned);
    }

    #[test]
    fn uncacheable_is_remembered_until_it_is_stored() {
        let collapse = Collapse::new();
        let Role::Leader(lead) = collapse.join(b"k") else { panic!("first must lead") };
        lead.end(Outcome::NotStored);
        assert!(matches!(collapse.join(b"k"), Role::Alone));
        collapse.remember(b"k", true);
        assert!(matches!(collapse.join(b"k"), Role::Leader(_)));
    }
}
