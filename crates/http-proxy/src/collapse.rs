//! Concurrent requests for one missing resource become one request to the origin.
//!
//! The first to [`Collapse::join`] a key leads; the others wait for what became of it. Invariants:
//! a leader that goes away in any manner, panics included, tells its followers by dropping its
//! [`Lead`]; nobody waits without a deadline; a key is in the table exactly while its `Lead` lives.
//! A lead for a resource that turns out to vary is one for the variant, too.
//! Resources that proved uncacheable are remembered, so that requests for them do not queue.
//!
//! Threads: shared by all workers; the lock is held for a table operation, never across a wait.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::along::Along;
use crate::error::FetchError;

/// Places to remember uncacheable resources in; a collision only forgets one of them.
const UNCACHEABLE_SLOTS: usize = 4096;

/// What became of a leader's request.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// Not known yet.
    Pending,
    /// On its way into the store: others may read along.
    Filling(Arc<Along>),
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
    waiting: AtomicU64,
}

/// A request that waits for another's.
pub(crate) struct Waiting<'c>(&'c AtomicU64);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Outcome {
    fn is_final(&self) -> bool {
        !matches!(self, Outcome::Pending | Outcome::Filling(_))
    }
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
            waiting: AtomicU64::new(0),
        })
    }

    /// Counts a request that waits, until this is dropped.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(&self.waiting)
    }

    /// Requests that wait now.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
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
                let outcome = Arc::new(outcome);
                Role::Leader(Lead { collapse: self.clone(), key, variant: None, outcome })
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
    /// Where the variant that turned out will lie, if not under `key`.
    variant: Option<Key>,
    outcome: Arc<watch::Sender<Outcome>>,
}

impl Lead {
    /// Leads for this key, too, unless somebody else does.
    pub(crate) fn leads_also(&mut self, key: &[u8]) {
        if key == &*self.key {
            return;
        }
        let mut leads = self.collapse.leads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Vacant(place) = leads.entry(Key::from(key)) {
            self.variant = Some(place.key().clone());
            place.insert(self.outcome.subscribe());
        }
    }

    /// Tells the followers what there is to read along, while the lead is held elsewhere.
    pub(crate) fn herald(&self) -> Herald {
        Herald(self.outcome.clone())
    }

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
        if let Some(variant) = &self.variant {
            leads.remove(variant);
        }
        drop(leads);
        self.outcome.send_if_modified(|outcome| {
            let open = !outcome.is_final();
            if open {
                *outcome = Outcome::Abandoned;
            }
            open
        });
    }
}

/// Speaks to the followers of a lead.
pub(crate) struct Herald(Arc<watch::Sender<Outcome>>);

impl Herald {
    pub(crate) fn filling(&self, along: &Arc<Along>) {
        self.0.send_if_modified(|outcome| {
            let pending = matches!(outcome, Outcome::Pending);
            if pending {
                *outcome = Outcome::Filling(along.clone());
            }
            pending
        });
    }
}

/// Waits until something is known of the leader's request, however long it takes: the caller sets
/// the deadline.
pub(crate) async fn news(lead: &mut watch::Receiver<Outcome>) -> Outcome {
    wait_for(lead, |outcome| !matches!(outcome, Outcome::Pending)).await
}

/// The same for what became of it in the end.
pub(crate) async fn outcome(lead: &mut watch::Receiver<Outcome>) -> Outcome {
    wait_for(lead, Outcome::is_final).await
}

async fn wait_for(
    lead: &mut watch::Receiver<Outcome>,
    wanted: impl FnMut(&Outcome) -> bool,
) -> Outcome {
    match lead.wait_for(wanted).await {
        Ok(outcome) => outcome.clone(),
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
        assert!(matches!(*follower.borrow(), Outcome::Stored));
        let Role::Leader(mut lead) = collapse.join(b"k") else { panic!("the key is free again") };
        lead.leads_also(b"k variant");
        assert!(matches!(collapse.join(b"k variant"), Role::Follower(_)));
        let Role::Follower(follower) = collapse.join(b"k") else { panic!("second must follow") };
        drop(lead);
        assert!(matches!(collapse.join(b"k variant"), Role::Leader(_)));
        assert!(matches!(*follower.borrow(), Outcome::Abandoned));
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
