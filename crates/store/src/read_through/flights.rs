//! Fetches under way: who leads, who follows, and what overtakes them.
//!
//! Invariants: the table has at most one flight for each key, and none that has landed or was
//! overtaken; an overtaken flight never stores anything from then on; a flight lands when its lead
//! is dropped, whatever became of the fetch. Locks: the table's or that of one flight, never both,
//! and neither during a fetch or while somebody is woken. Threads: any.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::fetched::Served;
use crate::deferred::wake;
use crate::ops::Create;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sync::{Arc, Mutex, lock};
use crate::types::GroupId;

type Outcome<E> = Result<Served, Arc<E>>;

/// What became of the reads of a [`ReadThrough`](super::ReadThrough) that missed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadThroughStats {
    /// Fetches that were begun.
    pub fetches: u64,
    /// Reads that waited for the fetch of another one.
    pub joined: u64,
    /// Fetches that ended with an error.
    pub failures: u64,
    /// Fetches whose outcome was not stored: overtaken by a change, refused by the store, or too
    /// long to be read in one piece.
    pub not_stored: u64,
    /// Fetches that a change overtook.
    pub overtaken: u64,
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) fetches: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) not_stored: AtomicU64,
    pub(super) joined: AtomicU64,
    overtaken: AtomicU64,
}

pub(super) struct Flights<E> {
    by_key: Mutex<HashMap<Bytes, Arc<Flight<E>>>>,
    pub(super) counts: Counts,
}

impl<E> Default for Flights<E> {
    fn default() -> Flights<E> {
        Flights { by_key: Mutex::default(), counts: Counts::default() }
    }
}

/// The fetch of one key.
pub(super) struct Flight<E> {
    pub(super) key: Bytes,
    pub(super) group: GroupId,
    state: Mutex<State<E>>,
}

struct State<E> {
    /// Set at the landing; without an outcome if the leader has gone.
    landed: Option<Option<Outcome<E>>>,
    overtaken: bool,
    /// The create that is not done yet. A change drops it: it then takes effect before the change,
    /// or never.
    create: Option<Create>,
    /// The leader, while it waits for `create`.
    leader: Option<Waker>,
    /// Followers that wait, by number.
    followers: HashMap<u64, Waker>,
    followers_ever: u64,
}

pub(super) enum Joined<'a, E> {
    Leader(Lead<'a, E>),
    Follower(Landing<E>),
}

impl<E> Flights<E> {
    /// Joins the flight of this key, or starts it.
    pub(super) fn join(&self, key: &[u8], group: GroupId) -> Joined<'_, E> {
        let mut by_key = lock(&self.by_key);
        if let Some(flight) = by_key.get(key) {
            return Joined::Follower(Landing { flight: Arc::clone(flight), number: None });
        }
        let key = Bytes::copy_from_slice(key);
        let flight = Arc::new(Flight { key: key.clone(), group, state: Mutex::default() });
        by_key.insert(key, Arc::clone(&flight));
        Joined::Leader(Lead { flights: self, flight, outcome: None })
    }

    /// Overtakes the flight of a key.
    pub(super) fn overtake_key(&self, key: &[u8]) {
        let found = lock(&self.by_key).remove(key);
        found.into_iter().for_each(|flight| self.overtake(&flight));
    }

    /// Overtakes the flights that are affected. Looks at every fetch under way.
    pub(super) fn overtake_all(&self, affected: impl Fn(&Flight<E>) -> bool) {
        let found: Vec<_> = lock(&self.by_key).extract_if(|_, flight| affected(flight)).collect();
        found.iter().for_each(|(_, flight)| self.overtake(flight));
    }

    fn overtake(&self, flight: &Flight<E>) {
        self.counts.overtaken.fetch_add(1, Relaxed);
        let mut state = lock(&flight.state);
        state.overtaken = true;
        state.create = None;
        let leader = state.leader.take();
        drop(state);
        leader.into_iter().for_each(wake);
    }

    pub(super) fn stats(&self) -> ReadThroughStats {
        let Counts { fetches, joined, failures, not_stored, overtaken } = &self.counts;
        ReadThroughStats {
            fetches: fetches.load(Relaxed),
            joined: joined.load(Relaxed),
            failures: failures.load(Relaxed),
            not_stored: not_stored.load(Relaxed),
            overtaken: overtaken.load(Relaxed),
        }
    }
}

impl<E> Default for State<E> {
    fn default() -> State<E> {
        State {
            landed: None,
            overtaken: false,
            create: None,
            leader: None,
            followers: HashMap::new(),
            followers_ever: 0,
        }
    }
}

impl<E> Flight<E> {
    /// Stores what was fetched, by the operation that `begin` begins, unless the flight was
    /// overtaken; whether it was stored. All of it under the flight's lock: a change comes before
    /// the create takes effect, and it never does, or after that, and removes it.
    pub(super) fn poll_create(
        &self,
        cx: &mut Context<'_>,
        begin: impl FnOnce() -> Create,
    ) -> Poll<bool> {
        let mut state = lock(&self.state);
        if state.overtaken {
            return Poll::Ready(false);
        }
        let create = state.create.get_or_insert_with(begin);
        match Pin::new(create).poll(cx) {
            Poll::Ready(created) => {
                state.create = None;
                Poll::Ready(created.is_ok())
            }
            Poll::Pending => {
                state.leader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The leader's side of a flight, which lands when this is dropped.
pub(super) struct Lead<'a, E> {
    flights: &'a Flights<E>,
    flight: Arc<Flight<E>>,
    outcome: Option<Outcome<E>>,
}

impl<E> Lead<'_, E> {
    pub(super) fn flight(&self) -> &Flight<E> {
        &self.flight
    }

    /// Lands with this outcome, and returns it.
    pub(super) fn land(mut self, outcome: Outcome<E>) -> Outcome<E> {
        self.outcome = Some(outcome.clone());
        outcome
    }
}

impl<E> Drop for Lead<'_, E> {
    fn drop(&mut self) {
        let mut by_key = lock(&self.flights.by_key);
        if by_key.get(&self.flight.key).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight)) {
            by_key.remove(&self.flight.key);
        }
        drop(by_key);
        let mut state = lock(&self.flight.state);
        state.landed = Some(self.outcome.take());
        // Of a leader that has gone: it must not take effect after who gets the outcome goes on.
        state.create = None;
        let followers = std::mem::take(&mut state.followers);
        drop(state);
        followers.into_values().for_each(wake);
    }
}

/// The follower's side of a flight: the outcome, or `None` if the leader has gone.
pub(super) struct Landing<E> {
    flight: Arc<Flight<E>>,
    /// Its place among the followers, once it waits.
    number: Option<u64>,
}

impl<E> Future for Landing<E> {
    type Output = Option<Outcome<E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Outcome<E>>> {
        let Landing { flight, number } = &mut *self;
        let mut state = lock(&flight.state);
        if let Some(outcome) = &state.landed {
            return Poll::Ready(outcome.clone());
        }
        let number = *number.get_or_insert_with(|| {
            state.followers_ever += 1;
            state.followers_ever
        });
        state.followers.insert(number, cx.waker().clone());
        Poll::Pending
    }
}

impl<E> Drop for Landing<E> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            lock(&self.flight.state).followers.remove(&number);
        }
    }
}
