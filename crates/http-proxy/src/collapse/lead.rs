//! A request that leads, and what those that follow it are told.
//!
//! Invariants: a leader that ends in any manner, panics included, tells its followers by dropping
//! its [`Lead`]; it is out of the table before. Threads: the lead belongs to one request; followers
//! wait on every worker.

use std::collections::hash_map::Entry;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::StatusCode;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::collapse::outcome::Outcome;
use crate::collapse::sharing::SharedFill;
use crate::collapse::{Collapse, Key, long_key, take_out};
use crate::io::locks::lock;

/// What followers are told.
#[derive(Debug, Clone)]
pub(crate) enum News {
    /// The response is being filled into the store: they may read along.
    Filling(Arc<SharedFill>),
    Ended(Outcome),
}

/// A leader as its followers see it. Most have none, so this is one allocation, and wakes nobody
/// then.
#[derive(Debug)]
pub(crate) struct Leader {
    news: Mutex<Option<News>>,
    changed: Notify,
    began: Instant,
    /// Times that its request had been here before.
    via_repeats: AtomicUsize,
}

impl Leader {
    /// When its request began to lead.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// Waits for the first news, without a deadline: the caller sets one.
    pub(crate) async fn news(&self) -> News {
        self.wait_for(Clone::clone).await
    }

    /// As [`Leader::news`], but waits for the outcome.
    pub(crate) async fn outcome(&self) -> Outcome {
        let ended = |news: &Option<News>| match news {
            Some(News::Ended(outcome)) => Some(outcome.clone()),
            Some(News::Filling(_)) | None => None,
        };
        self.wait_for(ended).await
    }

    async fn wait_for<T>(&self, wanted: impl Fn(&Option<News>) -> Option<T>) -> T {
        loop {
            // Registers before checking, so that no change is missed.
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let known = wanted(&lock(&self.news));
            if let Some(known) = known {
                return known;
            }
            changed.await;
        }
    }

    /// Whether its followers have been told anything.
    pub(super) fn has_news(&self) -> bool {
        lock(&self.news).is_some()
    }

    fn tell(&self, change: impl FnOnce(&mut Option<News>)) {
        change(&mut lock(&self.news));
        self.changed.notify_waiters();
    }

    pub(super) fn via_repeats(&self) -> usize {
        self.via_repeats.load(Ordering::Relaxed)
    }
}

/// The right to fetch on behalf of all followers. Dropping it releases them.
#[derive(Debug)]
pub(crate) struct Lead {
    collapse: Arc<Collapse>,
    key: Key,
    /// Key of the variant, once known, if not `key`.
    variant: Option<Key>,
    leader: Arc<Leader>,
    /// The outcome, once known.
    outcome: Option<Outcome>,
}

impl Lead {
    /// Of a request that is in the table under `key` from now on, as the returned leader.
    pub(super) fn begin(collapse: &Arc<Collapse>, key: Key) -> (Lead, Arc<Leader>) {
        let (news, changed, via_repeats) = (Mutex::default(), Notify::new(), AtomicUsize::new(0));
        let leader = Arc::new(Leader { news, changed, began: Instant::now(), via_repeats });
        let (collapse, known) = (collapse.clone(), leader.clone());
        (Lead { collapse, key, variant: None, leader, outcome: None }, known)
    }

    pub(super) fn set_via_repeats(&self, via_repeats: usize) {
        self.leader.via_repeats.store(via_repeats, Ordering::Relaxed);
    }

    /// Also leads for this key, unless another request does.
    pub(crate) fn leads_also(&mut self, key: &[u8]) {
        if key == &*self.key {
            return;
        }
        let mut leads = lock(&self.collapse.leads);
        if let Entry::Vacant(place) = leads.entry(Key::from(key)) {
            self.variant = Some(place.key().clone());
            place.insert(self.leader.clone());
        }
    }

    /// Whether it is in the table under this key, first of all.
    pub(crate) fn is_for(&self, key: &[u8]) -> bool {
        *self.key == *key
    }

    /// A handle to tell the followers about the fill while the lead is held elsewhere.
    pub(crate) fn herald(&self) -> Herald {
        Herald(self.leader.clone())
    }

    /// There was no sound answer: what is stored is not validated behind answers again at once.
    pub(crate) fn pause_validations(&self) {
        self.collapse.unvalidated.of(&self.key).begin();
    }

    /// Its client has the response already, which is too long to be fetched for nobody.
    pub(crate) fn remember_long(&self) {
        self.collapse.uncacheable.note(&long_key(&self.key), StatusCode::OK);
    }

    /// Publishes the outcome and gives up the lead.
    pub(crate) fn end(mut self, outcome: Outcome) {
        match outcome {
            Outcome::NotStored(status) => self.collapse.uncacheable.note(&self.key, status),
            Outcome::Stored => self.collapse.uncacheable.forget(&self.key),
            _ => {}
        }
        self.outcome = Some(outcome);
    }
}

/// The lead is given up before the followers are told: a follower that joins again must not find
/// the ended lead.
impl Drop for Lead {
    fn drop(&mut self) {
        let mut leads = lock(&self.collapse.leads);
        for key in [Some(&self.key), self.variant.as_ref()].into_iter().flatten() {
            take_out(&mut leads, key, &self.leader);
        }
        drop(leads);
        let outcome = self.outcome.take().unwrap_or(Outcome::Abandoned);
        self.leader.tell(|news| *news = Some(News::Ended(outcome)));
    }
}

/// Sends news to the followers of a lead.
pub(crate) struct Herald(Arc<Leader>);

impl Herald {
    pub(crate) fn filling(&self, fill: SharedFill) {
        self.0.tell(|news| {
            news.get_or_insert(News::Filling(Arc::new(fill)));
        });
    }
}
