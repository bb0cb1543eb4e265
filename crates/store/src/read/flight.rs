//! Reads in flight: concurrent callers that want the same bytes share one I/O.
//!
//! The first caller for a place leads. The others wait until its read is done, or leave a closure
//! to run then, and repeat their lookup. They do so, too, when a flight is given up since its read
//! may be lost. Threads: any; the closures run on the thread of the leader, or of who gives up,
//! without any lock held.

use crate::sync::{Arc, Mutex, lock};
use std::collections::HashMap;
use std::time::Duration;

use crate::signal::Signal;

#[derive(Default)]
pub(crate) struct Flight {
    state: Mutex<State>,
    landed: Signal,
}

#[derive(Default)]
struct State {
    done: bool,
    /// Closures that followers left.
    then: Vec<Box<dyn FnOnce() + Send>>,
}

const SHARDS: usize = 16;
/// A follower looks again after this time even if its leader has not finished.
const WAIT_MAX: Duration = Duration::from_secs(30);

type Shards = [Mutex<HashMap<u64, Arc<Flight>>>; SHARDS];

#[derive(Default)]
pub(crate) struct Flights {
    shards: Arc<Shards>,
}

pub(crate) enum Joined {
    Leader(Lead),
    Follower(Arc<Flight>),
}

/// Whoever is first. Dropped, it ends the flight, wakes the followers and runs their closures; also
/// by a panic (a policy or device of the embedder may): else nobody would ever get what lies there.
pub(crate) struct Lead {
    shards: Arc<Shards>,
    place: u64,
    flight: Arc<Flight>,
}

fn shard_of(shards: &Shards, place: u64) -> &Mutex<HashMap<u64, Arc<Flight>>> {
    &shards[(place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize % SHARDS]
}

impl Flights {
    /// Joins or starts the flight of a place (a location in units).
    pub(crate) fn join(&self, place: u64) -> Joined {
        let mut shard = lock(shard_of(&self.shards, place));
        if let Some(flight) = shard.get(&place) {
            return Joined::Follower(Arc::clone(flight));
        }
        let flight = Arc::new(Flight::default());
        shard.insert(place, Arc::clone(&flight));
        Joined::Leader(Lead { shards: Arc::clone(&self.shards), place, flight })
    }

    /// Gives up all flights, whose reads may be lost: their followers look again at once, and
    /// nobody follows them any more.
    pub(super) fn give_up(&self) {
        for shard in self.shards.iter() {
            let flights = std::mem::take(&mut *lock(shard));
            flights.into_values().for_each(|flight| flight.land());
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        // Under shuttle a panic ends the schedule, and the locks are gone.
        if cfg!(all(shuttle, test)) && std::thread::panicking() {
            return;
        }
        let mut shard = lock(shard_of(&self.shards, self.place));
        // Another one goes to the same place if this one was given up.
        if shard.get(&self.place).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight)) {
            shard.remove(&self.place);
        }
        drop(shard);
        self.flight.land();
    }
}

impl Flight {
    /// Sends on those who follow, and whoever still comes.
    fn land(&self) {
        let then = {
            let mut state = lock(&self.state);
            state.done = true;
            std::mem::take(&mut state.then)
        };
        self.landed.notify_all();
        then.into_iter().for_each(|next| next());
    }

    pub(crate) fn wait(&self) {
        let mut state = lock(&self.state);
        while !state.done {
            let (guard, notified) = self.landed.wait_for(state, WAIT_MAX);
            state = guard;
            if !notified {
                return;
            }
        }
    }

    /// Runs `next` once the flight has landed: now, or on the leader's thread, which may be an I/O
    /// thread. So it must neither read nor wait.
    pub(crate) fn then(&self, next: impl FnOnce() + Send + 'static) {
        let mut state = lock(&self.state);
        if !state.done {
            state.then.push(Box::new(next));
            return;
        }
        drop(state);
        next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn what_followers_leave_is_done_once_when_the_flight_lands_or_at_once_after() {
        let (flights, count) = (Flights::default(), Arc::new(AtomicU32::new(0)));
        let Joined::Leader(lead) = flights.join(7) else { panic!("nobody flies there yet") };
        let follow = || match flights.join(7) {
            Joined::Follower(flight) => flight,
            Joined::Leader(_) => panic!("somebody leads"),
        };
        let flight = follow();
        for follower in [follow(), follow()] {
            let count = Arc::clone(&count);
            follower.then(move || {
                count.fetch_add(1, Ordering::Relaxed);
            });
        }
        assert_eq!(count.load(Ordering::Relaxed), 0, "it has not landed");
        drop(lead);
        assert_eq!(count.load(Ordering::Relaxed), 2);
        let late = Arc::clone(&count);
        flight.then(move || {
            late.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.load(Ordering::Relaxed), 3, "who comes late does not wait");
        flight.wait();
        let Joined::Leader(next) = flights.join(7) else { panic!("that flight is over") };
        drop(next);
    }

    #[test]
    fn who_follows_a_flight_that_is_given_up_goes_on_and_the_next_one_is_not_ended_by_it() {
        let (flights, count) = (Flights::default(), Arc::new(AtomicU32::new(0)));
        let Joined::Leader(lost) = flights.join(7) else { panic!("nobody flies there yet") };
        let Joined::Follower(flight) = flights.join(7) else { panic!("somebody leads") };
        let after = Arc::clone(&count);
        flight.then(move || {
            after.fetch_add(1, Ordering::Relaxed);
        });
        flights.give_up();
        assert_eq!(count.load(Ordering::Relaxed), 1);
        flight.wait();
        let Joined::Leader(next) = flights.join(7) else { panic!("nobody follows what is lost") };
        drop(lost);
        assert!(matches!(flights.join(7), Joined::Follower(_)), "the next one is under way");
        assert_eq!(count.load(Ordering::Relaxed), 1, "once");
        drop(next);
        assert!(matches!(flights.join(7), Joined::Leader(_)));
    }
}
