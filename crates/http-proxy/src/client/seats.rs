//! The connections of clients that are open, so that those that nobody uses make room for others.
//!
//! Invariant: a connection that is in use stays: it looks itself whether nobody uses it when it
//! hears that it should leave. Threads: shared by all workers; a lock where connections open and
//! end, none for requests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use tokio::time::{Duration, Instant};

use crate::client::activity::Activity;
use crate::io::locks::lock;

/// Time between two looks at all connections, each of which takes time in proportion to them.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The open connections.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    seats: BTreeMap<u64, Weak<Activity>>,
    next: u64,
    looked: Option<Instant>,
}

/// The place of one connection, free again when dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    number: u64,
}

impl Seats {
    /// Adds a connection, until it ends.
    pub(crate) fn seat(self: &Arc<Seats>, activity: &Arc<Activity>) {
        let mut taken = lock(&self.taken);
        let number = taken.next;
        taken.next += 1;
        taken.seats.insert(number, Arc::downgrade(activity));
        drop(taken);
        activity.sit(Seat { seats: Arc::clone(self), number });
    }

    /// Has so many connections leave that nobody uses, those first that nobody has used for
    /// longest. Those that are leaving already count. Does nothing shortly after the last time.
    pub(crate) fn make_room(&self, wanted: usize) {
        let now = Instant::now();
        let mut taken = lock(&self.taken);
        if taken.looked.is_some_and(|looked| now < looked + LOOK_INTERVAL) {
            return;
        }
        taken.looked = Some(now);
        let open: Vec<Arc<Activity>> = taken.seats.values().filter_map(Weak::upgrade).collect();
        // What ends meanwhile frees its seat when the last of its handles is dropped, here.
        drop(taken);
        let (leaving, others): (Vec<_>, Vec<_>) =
            open.iter().partition(|activity| activity.is_leaving());
        let unused_since = |activity: &&Arc<Activity>| activity.unused_since();
        let mut unused: Vec<_> =
            others.iter().filter_map(|one| Some((unused_since(one)?, *one))).collect();
        unused.sort_unstable_by_key(|(since, _)| *since);
        let missing = wanted.saturating_sub(leaving.len());
        unused.iter().take(missing).for_each(|(_, activity)| activity.tell_to_leave());
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.seats.taken).seats.remove(&self.number);
    }
}
