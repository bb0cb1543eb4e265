//! Who waits for room in the nursery, in order of arrival: with many small creates beside it, a
//! large one would never find enough of the nursery free.
//!
//! Invariants: who waits keeps as much room from those who came later as it needs, and no more, so
//! that those for whom there is room beside it go on. Only threads stand in line, which look
//! whether it is their turn every few milliseconds, and those who have just been told that it is:
//! who has not looked for `GONE_AFTER` keeps room from nobody until it looks again. Threads: any
//! create.

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, lock};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Whose future is not polled when its turn has come keeps others waiting for so long.
const GONE_AFTER: Duration = Duration::from_secs(1);

struct Waiter {
    number: u64,
    bytes: u64,
    looked: Instant,
}

#[derive(Default)]
struct State {
    waiters: VecDeque<Waiter>,
    given: u64,
}

/// The line itself.
#[derive(Default)]
pub(super) struct Line {
    state: Mutex<State>,
    /// Waiters, so that a create takes no lock while there are none.
    length: AtomicUsize,
}

/// A create's place in the line, if it has one. It leaves the line when this is dropped.
#[derive(Default)]
pub(crate) struct Place(Option<(Arc<Line>, u64)>);

impl Place {
    /// Whether its create waits for its turn.
    pub(crate) fn is_taken(&self) -> bool {
        self.0.is_some()
    }

    fn number(&self) -> u64 {
        // Those who are not in line come behind all that are.
        self.0.as_ref().map_or(u64::MAX, |(_, number)| *number)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Those behind it find out when they look next.
        if let Some((line, number)) = self.0.take() {
            line.leave(number);
        }
    }
}

impl Line {
    /// Bytes that those wait for who came before.
    pub(super) fn ahead(&self, place: &Place) -> u64 {
        match self.length.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.ahead_at(place, Instant::now()),
        }
    }

    fn ahead_at(&self, place: &Place, now: Instant) -> u64 {
        let mut state = lock(&self.state);
        let own = place.number();
        let at = state.waiters.partition_point(|waiter| waiter.number < own);
        if let Some(waiter) = state.waiters.get_mut(at).filter(|waiter| waiter.number == own) {
            waiter.looked = now;
        }
        let waits = |waiter: &&Waiter| now.saturating_duration_since(waiter.looked) < GONE_AFTER;
        state.waiters.iter().take(at).filter(waits).map(|waiter| waiter.bytes).sum()
    }

    /// Puts a create of this size at the end of the line, unless it is in it.
    pub(super) fn join(self: &Arc<Line>, bytes: u64, place: &mut Place) {
        self.join_at(bytes, place, Instant::now());
    }

    fn join_at(self: &Arc<Line>, bytes: u64, place: &mut Place, now: Instant) {
        if place.is_taken() {
            return;
        }
        let mut state = lock(&self.state);
        let number = state.given;
        state.given += 1;
        state.waiters.push_back(Waiter { number, bytes, looked: now });
        self.length.store(state.waiters.len(), Ordering::Relaxed);
        drop(state);
        *place = Place(Some((Arc::clone(self), number)));
    }

    fn leave(&self, number: u64) {
        let mut state = lock(&self.state);
        if let Ok(at) = state.waiters.binary_search_by_key(&number, |waiter| waiter.number) {
            state.waiters.remove(at);
        }
        self.length.store(state.waiters.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_came_first_keeps_room_from_later_ones_until_it_leaves() {
        let (line, now) = (Arc::new(Line::default()), Instant::now());
        let (mut first, mut second, none) = (Place::default(), Place::default(), Place::default());
        assert_eq!(line.ahead(&none), 0);
        line.join_at(8, &mut first, now);
        line.join_at(5, &mut second, now);
        line.join_at(7, &mut second, now);
        assert!(first.is_taken() && second.is_taken() && !none.is_taken());
        let ahead = |place: &Place| line.ahead_at(place, now);
        assert_eq!([ahead(&first), ahead(&second), ahead(&none)], [0, 8, 13]);
        first = Place::default();
        assert_eq!([ahead(&first), ahead(&second), ahead(&none)], [5, 0, 5]);
        second = Place::default();
        assert!(!first.is_taken() && !second.is_taken());
        assert_eq!(line.ahead(&none), 0);
    }

    #[test]
    fn who_no_longer_looks_keeps_room_from_nobody_until_it_looks_again() {
        let (line, now) = (Arc::new(Line::default()), Instant::now());
        let (mut first, mut second) = (Place::default(), Place::default());
        line.join_at(8, &mut first, now);
        line.join_at(5, &mut second, now);
        let later = now + GONE_AFTER;
        assert_eq!(line.ahead_at(&second, later), 0);
        assert_eq!(line.ahead_at(&first, later), 0);
        assert_eq!(line.ahead_at(&second, later), 8, "it has its place again");
    }
}
