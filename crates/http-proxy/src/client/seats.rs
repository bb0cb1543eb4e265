//! The connections of clients that are open, so that those that nobody uses make room for others.
//!
//! Invariant: a connection that is in use stays: asked to leave, it checks first whether it is
//! idle. Threads: shared by all workers; a lock where connections open and end, none for requests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use tokio::time::{Duration, Instant};

use crate::client::activity::Activity;
use crate::io::locks::lock;

/// Time between two looks at all connections, each of which takes time in proportion to them.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Where less than one in so many places is free, connections that nobody uses make room, until
/// twice as many are.
pub(crate) const FEW_SHARE: usize = 16;
/// What nobody has used for so long makes room while places are left: longer than clients that are
/// at work pause between two requests.
const UNUSED_MIN: Duration = Duration::from_secs(5);
/// The same once none is left: still longer than a request is on its way.
pub(crate) const UNUSED_MIN_FULL: Duration = Duration::from_secs(1);

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
        activity.sit(self.take(activity));
    }

    /// Adds a connection, until its seat is dropped.
    pub(crate) fn take(self: &Arc<Seats>, activity: &Arc<Activity>) -> Seat {
        let mut taken = lock(&self.taken);
        let number = taken.next;
        taken.next += 1;
        taken.seats.insert(number, Arc::downgrade(activity));
        Seat { seats: Arc::clone(self), number }
    }

    /// Has connections that nobody uses leave, if few of `max` places are free or somebody waits
    /// for one.
    pub(crate) fn keep_free(&self, max: usize, free: usize, waiting: usize, now: Instant) {
        let few = max / FEW_SHARE;
        if free < few || waiting > 0 {
            let wanted = (2 * few).max(waiting).saturating_sub(free);
            let unused_min = if free == 0 { UNUSED_MIN_FULL } else { UNUSED_MIN };
            self.make_room(wanted, unused_min, now);
        }
    }

    /// Has so many connections leave that nobody has used for so long, those first that nobody has
    /// used for longest. Those that are leaving already count. Does nothing shortly after the last
    /// time.
    fn make_room(&self, wanted: usize, unused_min: Duration, now: Instant) {
        let mut taken = lock(&self.taken);
        if taken.looked.is_some_and(|looked| now < looked + LOOK_INTERVAL) {
            return;
        }
        taken.looked = Some(now);
        let open: Vec<Arc<Activity>> = taken.seats.values().filter_map(Weak::upgrade).collect();
        // What ends meanwhile frees its seat when the last of its handles is dropped, here.
        drop(taken);
        let (leaving, others): (Vec<_>, Vec<_>) =
            open.iter().partition(|activity| activity.is_leaving(now));
        let unused_since = |activity: &Arc<Activity>| {
            activity.unused_since().filter(|since| *since + unused_min <= now)
        };
        let mut unused: Vec<_> =
            others.into_iter().filter_map(|one| Some((unused_since(one)?, one))).collect();
        unused.sort_unstable_by_key(|(since, _)| *since);
        let missing = wanted.saturating_sub(leaving.len());
        let may_end = unused.iter().filter(|(_, activity)| !activity.is_delivering());
        may_end.take(missing).for_each(|(_, activity)| activity.tell_to_leave(now));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.seats.taken).seats.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(seats: &Arc<Seats>, count: usize) -> Vec<Arc<Activity>> {
        let activities = (0..count).map(|_| Activity::new(Arc::default(), None));
        activities.inspect(|one| one.awaits_head()).inspect(|one| seats.seat(one)).collect()
    }

    fn leaving(open: &[Arc<Activity>], now: Instant) -> usize {
        open.iter().filter(|activity| activity.is_leaving(now)).count()
    }

    /// Between two requests of a client that is far away, too.
    #[test]
    fn nobody_leaves_who_was_used_a_moment_ago() {
        let (seats, begun) = (Arc::new(Seats::default()), Instant::now());
        let open = open(&seats, 3);
        drop(open[1].begin());
        let _under_way = open[2].begin();
        let soon = begun + Duration::from_secs(4);
        seats.make_room(3, UNUSED_MIN, soon);
        assert_eq!(leaving(&open, soon), 0);
        let late = begun + Duration::from_secs(6);
        seats.make_room(3, UNUSED_MIN, late);
        assert_eq!(leaving(&open[..2], late), 2);
        assert_eq!(leaving(&open, late), 2, "not the one in use");
    }

    #[test]
    fn as_many_leave_at_once_as_are_wanted() {
        let (seats, begun) = (Arc::new(Seats::default()), Instant::now());
        let open = open(&seats, 100);
        let late = begun + Duration::from_secs(6);
        seats.make_room(60, UNUSED_MIN, late);
        assert_eq!(leaving(&open, late), 60);
        seats.make_room(70, UNUSED_MIN, late + LOOK_INTERVAL / 2);
        assert_eq!(leaving(&open, late), 60, "there was a look just now");
        seats.make_room(70, UNUSED_MIN, late + LOOK_INTERVAL);
        assert_eq!(leaving(&open, late), 70, "those that are leaving count");
    }

    #[test]
    fn who_stays_does_not_keep_others_from_leaving() {
        let (seats, begun) = (Arc::new(Seats::default()), Instant::now());
        let open = open(&seats, 2);
        let told = begun + Duration::from_secs(6);
        seats.make_room(1, UNUSED_MIN, told);
        assert_eq!(leaving(&open, told), 1);
        let stays = open.iter().find(|one| one.is_leaving(told)).expect("the one that was told");
        let _under_way = stays.begin();
        let later = told + Duration::from_secs(3);
        seats.make_room(1, UNUSED_MIN, later);
        assert!(!stays.is_leaving(later));
        assert_eq!(leaving(&open, later), 1, "the other");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn who_would_lose_what_it_still_takes_stays() {
        use std::io::{Read as _, Write as _};
        use std::os::unix::net::UnixStream;

        use crate::io::held_bytes::HeldBytes;

        let (seats, begun) = (Arc::new(Seats::default()), Instant::now());
        let open = open(&seats, 1);
        let (mut near, mut far) = UnixStream::pair().unwrap();
        open[0].set_held(HeldBytes::of(&near), true);
        near.write_all(b"an answer").unwrap();
        let late = begun + Duration::from_secs(6);
        seats.make_room(1, UNUSED_MIN, late);
        assert_eq!(leaving(&open, late), 0);
        far.read_exact(&mut [0; 9]).unwrap();
        let later = late + LOOK_INTERVAL;
        seats.make_room(1, UNUSED_MIN, later);
        assert_eq!(leaving(&open, later), 1);
    }

    #[test]
    fn who_is_still_heard_out_stays() {
        let (seats, begun) = (Arc::new(Seats::default()), Instant::now());
        let open = open(&seats, 1);
        open[0].linger();
        let late = begun + Duration::from_secs(6);
        seats.make_room(1, UNUSED_MIN, late);
        assert_eq!(leaving(&open, late), 0);
    }
}
