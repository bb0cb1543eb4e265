//! Limits the memory of reads that need several runs at once: a range over several parts of an
//! object, or an object assembled from its parts.
//!
//! Such a read holds one run while it waits for the next. With many of them, all memory could be
//! held by reads that wait for each other, until all are refused. Invariants: a read holds no
//! memory when it enters, and takes at most the bytes it entered with; the bytes of all reads that
//! have entered stay within a share of the memory, or there is only one such read; reads enter in
//! order of arrival. Threads: any that may block.

use crate::sync::{Arc, Mutex, lock};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::signal::Signal;

/// These reads may take one part in this many of the memory: the need of one of the longest.
const MEMORY_SHARE: usize = 4;

#[derive(Default)]
struct State {
    bytes: usize,
    next_ticket: u64,
    /// Tickets of waiting reads, the first at the front.
    waiting: VecDeque<u64>,
}

pub(crate) struct Gathering {
    state: Mutex<State>,
    changed: Signal,
    bytes_max: usize,
}

impl Gathering {
    pub(crate) fn new(memory_bytes: usize) -> Gathering {
        let (state, changed) = Default::default();
        Gathering { state, changed, bytes_max: memory_bytes / MEMORY_SHARE }
    }

    /// Waits until there is room for `bytes` and enters; false if there is none within `wait_max`.
    fn enter(&self, bytes: usize, wait_max: Duration) -> bool {
        let mut state = lock(&self.state);
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back(ticket);
        let begun = Instant::now();
        loop {
            let fits = state.bytes == 0 || state.bytes + bytes <= self.bytes_max;
            let enters = fits && state.waiting.front() == Some(&ticket);
            let left = wait_max.saturating_sub(begun.elapsed());
            if enters || left.is_zero() {
                state.waiting.retain(|other| *other != ticket);
                state.bytes += if enters { bytes } else { 0 };
                drop(state);
                // The next in line may have room, too.
                self.changed.notify_all();
                return enters;
            }
            state = self.changed.wait_for(state, left).0;
        }
    }

    /// Waits for room as `enter` does; `None` if there is none within `wait_max`.
    pub(super) fn room(
        self: &Arc<Gathering>,
        bytes: usize,
        wait_max: Duration,
    ) -> Option<GatheringRoom> {
        let entered = self.enter(bytes, wait_max);
        entered.then(|| GatheringRoom { gathering: Arc::clone(self), bytes })
    }

    fn leave(&self, bytes: usize) {
        lock(&self.state).bytes -= bytes;
        self.changed.notify_all();
    }
}

/// The reservation of a read that gathers pieces, held until it is dropped.
pub(super) struct GatheringRoom {
    gathering: Arc<Gathering>,
    bytes: usize,
}

impl Drop for GatheringRoom {
    fn drop(&mut self) {
        self.gathering.leave(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::thread;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn one_may_always_gather_and_others_within_the_share() {
        let gathering = Gathering::new(400);
        assert!(gathering.enter(500, LONG), "longer than all of it");
        assert!(!gathering.enter(1, Duration::ZERO));
        gathering.leave(500);
        assert!(gathering.enter(50, LONG) && gathering.enter(50, LONG));
        assert!(!gathering.enter(1, Duration::ZERO));
        gathering.leave(50);
        assert!(gathering.enter(50, LONG), "who gave up is not waited for");
    }

    #[test]
    fn who_came_first_enters_first() {
        let gathering = Arc::new(Gathering::new(400));
        assert!(gathering.enter(60, LONG));
        let large = {
            let gathering = Arc::clone(&gathering);
            thread::spawn(move || gathering.enter(100, LONG))
        };
        while lock(&gathering.state).waiting.is_empty() {
            thread::yield_now();
        }
        assert!(!gathering.enter(1, Duration::ZERO), "one that came before has no room yet");
        gathering.leave(60);
        assert!(large.join().expect("it ends"));
        assert_eq!(lock(&gathering.state).bytes, 100);
    }
}
