//! Reads in flight: many callers that want the same bytes cause one I/O.
//!
//! The first caller of a place leads; the others wait until it is done and look again. Threads: any.

use crate::sync::{Arc, Mutex};
use std::collections::HashMap;
use std::time::Duration;

use crate::memory::pool::lock;
use crate::signal::Signal;

#[derive(Default)]
pub(crate) struct Flight {
    done: Mutex<bool>,
    landed: Signal,
}

const SHARDS: usize = 16;
/// A follower looks again after this long, whatever happened to its leader.
const WAIT_MAX: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(crate) struct Flights {
    shards: [Mutex<HashMap<u64, Arc<Flight>>>; SHARDS],
}

pub(crate) enum Joined {
    Leader(Lead),
    Follower(Arc<Flight>),
}

/// Ends the flight when dropped.
pub(crate) struct Lead {
    place: u64,
    flight: Arc<Flight>,
    landed: bool,
}

impl Flights {
    fn shard(&self, place: u64) -> &Mutex<HashMap<u64, Arc<Flight>>> {
        &self.shards[(place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize % SHARDS]
    }

    /// Joins or starts the flight of a place (a location in units).
    pub(crate) fn join(&self, place: u64) -> Joined {
        let mut shard = lock(self.shard(place));
        if let Some(flight) = shard.get(&place) {
            return Joined::Follower(Arc::clone(flight));
        }
        let flight = Arc::new(Flight::default());
        shard.insert(place, Arc::clone(&flight));
        Joined::Leader(Lead { place, flight, landed: false })
    }

    /// Ends a flight and wakes its followers.
    pub(crate) fn land(&self, mut lead: Lead) {
        lock(self.shard(lead.place)).remove(&lead.place);
        *lock(&lead.flight.done) = true;
        lead.flight.landed.notify_all();
        lead.landed = true;
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        debug_assert!(self.landed || std::thread::panicking(), "a flight is landed by its leader");
    }
}

impl Flight {
    pub(crate) fn wait(&self) {
        let mut done = lock(&self.done);
        while !*done {
            let (guard, notified) = self.landed.wait_for(done, WAIT_MAX);
            done = guard;
            if !notified {
                return;
            }
        }
    }
}
