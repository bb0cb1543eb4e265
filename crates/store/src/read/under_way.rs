//! Limits the memory of submitted reads, for which no thread waits.
//!
//! Each takes its memory before it is submitted, a whole frame if the record is short, so a
//! thousand of them would evict the whole cache only to wait in the device's queue. Beyond a share
//! of the memory they wait here, as closures, and begin in the order in which they came. The share
//! is divided among the volumes: reads of one whose device hangs hold up no others.
//!
//! Reads that a device has lost end never, and would hold their share for ever: once a volume that
//! was silent answers again, those from before do not count any more. They hold their memory all
//! the same, in which the device may still write: each silence may cost the share once more.
//!
//! Invariants: reads wait only while others are under way, whose end begins them. One thread at a
//! time begins reads, in a loop: one that ends as it begins does not begin the next on top of
//! itself. Threads: any. A read begins on the thread that ends another, which may be an I/O thread,
//! so to begin must neither read nor wait.

use crate::sync::{Arc, Mutex, lock};
use std::collections::VecDeque;

/// Submitted reads may take one part in this many of the memory.
const MEMORY_SHARE: usize = 8;

struct Waiting {
    bytes: usize,
    begin: Box<dyn FnOnce(Room) + Send>,
}

#[derive(Default)]
struct State {
    bytes: usize,
    /// How often what was under way was forgotten.
    forgotten: u64,
    waiting: VecDeque<Waiting>,
    /// A thread begins what waits.
    is_beginning: bool,
}

pub(crate) struct UnderWay {
    state: Mutex<State>,
    bytes_max: usize,
}

/// The reservation of one read, held until it is dropped.
pub(crate) struct Room {
    under_way: Arc<UnderWay>,
    bytes: usize,
    /// `forgotten` when it was reserved: it counts as long as that is the same.
    since: u64,
}

impl Room {
    /// Another amount: the read turned out to need more or less. More may exceed the limit.
    pub(super) fn resize(&mut self, bytes: usize) {
        let mut state = lock(&self.under_way.state);
        if state.forgotten == self.since {
            state.bytes = state.bytes - self.bytes + bytes;
        }
        self.bytes = bytes;
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut state = lock(&self.under_way.state);
        if state.forgotten == self.since {
            state.bytes -= self.bytes;
        }
        drop(state);
        self.under_way.begin_waiting();
    }
}

impl UnderWay {
    fn new(bytes_max: usize) -> UnderWay {
        UnderWay { state: Mutex::default(), bytes_max }
    }

    /// One for each volume.
    pub(crate) fn of_volumes(memory_bytes: usize, volumes: usize) -> Box<[Arc<UnderWay>]> {
        let bytes_max = memory_bytes / MEMORY_SHARE / volumes;
        (0..volumes).map(|_| Arc::new(UnderWay::new(bytes_max))).collect()
    }

    /// Reserves memory for a read of `bytes`, if it may begin now. A first read may exceed the
    /// limit.
    pub(super) fn enter(self: &Arc<UnderWay>, bytes: usize) -> Option<Room> {
        let mut state = lock(&self.state);
        let may = state.waiting.is_empty() && self.fits(&state, bytes);
        may.then(|| self.reserve(&mut state, bytes))
    }

    /// Calls `begin` with the memory that it needs once there is some.
    pub(super) fn wait(
        self: &Arc<UnderWay>,
        bytes: usize,
        begin: impl FnOnce(Room) + Send + 'static,
    ) {
        lock(&self.state).waiting.push_back(Waiting { bytes, begin: Box::new(begin) });
        // There may be room by now.
        self.begin_waiting();
    }

    fn fits(&self, state: &State, bytes: usize) -> bool {
        state.bytes == 0 || state.bytes + bytes <= self.bytes_max
    }

    fn reserve(self: &Arc<UnderWay>, state: &mut State, bytes: usize) -> Room {
        state.bytes += bytes;
        Room { under_way: Arc::clone(self), bytes, since: state.forgotten }
    }

    /// What is under way may be lost, and counts no more; begins what waits for room.
    pub(super) fn forget(self: &Arc<UnderWay>) {
        let mut state = lock(&self.state);
        state.forgotten += 1;
        state.bytes = 0;
        drop(state);
        self.begin_waiting();
    }

    /// Begins what waits and has room, unless another thread does so.
    fn begin_waiting(self: &Arc<UnderWay>) {
        let mut state = lock(&self.state);
        if state.is_beginning {
            return;
        }
        state.is_beginning = true;
        while let Some(first) = state.waiting.front()
            && self.fits(&state, first.bytes)
            && let Some(Waiting { bytes, begin }) = state.waiting.pop_front()
        {
            let room = self.reserve(&mut state, bytes);
            drop(state);
            begin(room);
            state = lock(&self.state);
        }
        state.is_beginning = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes_max: usize) -> Arc<UnderWay> {
        Arc::new(UnderWay::new(bytes_max))
    }

    #[test]
    fn reads_take_their_share_and_one_always_may() {
        let under_way = of(100);
        let mut begun: Vec<Room> = (0..10).filter_map(|_| under_way.enter(30)).collect();
        assert_eq!(begun.len(), 3);
        begun.pop();
        begun.push(under_way.enter(40).expect("there is room for it"));
        assert!(under_way.enter(1).is_none());
        drop(begun);
        let whole = under_way.enter(5_000);
        assert!(whole.is_some(), "longer than all of it");
        assert!(under_way.enter(1).is_none());
    }

    #[test]
    fn what_waits_begins_in_order_as_room_becomes_free() {
        let under_way = of(100);
        let (begun, held) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let wait = |number: u32, bytes: usize| {
            let (begun, held) = (Arc::clone(&begun), Arc::clone(&held));
            under_way.wait(bytes, move |room| {
                lock(&begun).push(number);
                lock(&held).push(room);
            });
        };
        let first = under_way.enter(60).expect("nobody reads");
        wait(1, 60);
        wait(2, 10);
        assert!(lock(&begun).is_empty(), "the second would have room, but came later");
        assert!(under_way.enter(1).is_none(), "so would this");
        drop(first);
        assert_eq!(*lock(&begun), [1, 2]);
        wait(3, 30);
        assert_eq!(*lock(&begun), [1, 2, 3], "it has room at once");
        let rooms = std::mem::take(&mut *lock(&held));
        wait(4, 500);
        drop(rooms);
        assert_eq!(*lock(&begun), [1, 2, 3, 4], "longer than all, alone");
    }

    #[test]
    fn a_hundred_thousand_that_end_as_they_begin_need_no_stack() {
        let under_way = of(100);
        let first = under_way.enter(100);
        let ended = Arc::new(Mutex::new(0));
        for _ in 0..100_000 {
            let ended = Arc::clone(&ended);
            under_way.wait(100, move |room| {
                drop(room);
                *lock(&ended) += 1;
            });
        }
        drop(first);
        assert_eq!(*lock(&ended), 100_000);
        assert!(under_way.enter(100).is_some(), "and leave nothing behind");
    }

    #[test]
    fn a_read_that_needs_another_amount_than_it_waited_for_has_that() {
        let under_way = of(100);
        let mut room = under_way.enter(100).expect("nobody reads");
        room.resize(30);
        let other = under_way.enter(70);
        assert!(other.is_some() && under_way.enter(1).is_none());
        room.resize(200);
        drop(other);
        assert!(under_way.enter(1).is_none());
        drop(room);
        assert!(under_way.enter(100).is_some());
    }

    #[test]
    fn what_is_forgotten_leaves_room_to_what_waits_and_takes_none_of_it_when_it_ends() {
        let under_way = of(100);
        let (mut lost, other) = (under_way.enter(70).expect("nobody reads"), under_way.enter(30));
        let begun = Arc::new(Mutex::new(None));
        let theirs = Arc::clone(&begun);
        under_way.wait(100, move |room| *lock(&theirs) = Some(room));
        assert!(lock(&begun).is_none());
        under_way.forget();
        assert!(lock(&begun).is_some());
        lost.resize(10);
        drop((lost, other));
        assert!(under_way.enter(1).is_none(), "the one that waited has it all");
        drop(lock(&begun).take());
        let all = under_way.enter(100);
        assert!(all.is_some() && under_way.enter(1).is_none());
    }
}
