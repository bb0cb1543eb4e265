//! Requests that wait for a disk, and the order in which they are served.
//!
//! Owns what waits. Those at or above the place of the last request lie in one heap, those below in
//! another: an elevator takes from the one it moves towards. Invariants: every request in `below`
//! begins below `at`, every one in `above` at or above it; of requests for the same place the one
//! that came first is served first on the way up, last on the way down. Threads: one user.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::{DiskIo, Scheduler};

/// Its place in the order of a heap: sector and time of arrival, both turned around on the way
/// down.
type Key = (u64, u64);

/// A request that waits, compared by its key alone, which is its own.
#[derive(Debug)]
struct Waiting {
    key: Key,
    io: DiskIo,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.key == other.key
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

type Heap = BinaryHeap<Reverse<Waiting>>;

#[derive(Debug)]
pub(super) struct Queue {
    scheduler: Scheduler,
    arrivals: VecDeque<DiskIo>,
    above: Heap,
    below: Heap,
    sequence: u64,
    rising: bool,
    /// Where the last request began.
    at: u64,
}

impl Queue {
    pub(super) fn new(scheduler: Scheduler) -> Queue {
        Queue {
            scheduler,
            arrivals: VecDeque::new(),
            above: Heap::new(),
            below: Heap::new(),
            sequence: 0,
            rising: false,
            at: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.arrivals.len() + self.above.len() + self.below.len()
    }

    /// A request is served at once, while nothing waits.
    pub(super) fn pass(&mut self, io: &DiskIo) {
        debug_assert_eq!(self.len(), 0, "nothing waits");
        self.at = io.sector;
    }

    pub(super) fn push(&mut self, io: DiskIo) {
        if self.scheduler == Scheduler::Fcfs {
            self.arrivals.push_back(io);
            return;
        }
        self.sequence += 1;
        let key = (io.sector, self.sequence);
        if io.sector >= self.at {
            self.above.push(Reverse(Waiting { key, io }));
        } else {
            let key = if self.falls() { turned(key) } else { key };
            self.below.push(Reverse(Waiting { key, io }));
        }
    }

    /// What is below is served from its upper end.
    fn falls(&self) -> bool {
        self.scheduler == Scheduler::TwoWayElevator
    }

    /// The next one, if it is one that may be served.
    pub(super) fn pop_if(&mut self, may: impl FnOnce(&DiskIo) -> bool) -> Option<DiskIo> {
        self.peek().is_some_and(may).then(|| self.pop())?
    }

    pub(super) fn pop(&mut self) -> Option<DiskIo> {
        let io = match self.scheduler {
            Scheduler::Fcfs => self.arrivals.pop_front()?,
            Scheduler::OneWayElevator => self.pop_upwards()?,
            Scheduler::TwoWayElevator => self.pop_along()?,
        };
        self.at = io.sector;
        if self.falls() {
            self.raise_level();
        }
        Some(io)
    }

    /// What [`Queue::pop`] would return.
    fn peek(&self) -> Option<&DiskIo> {
        match self.scheduler {
            Scheduler::Fcfs => self.arrivals.front(),
            Scheduler::OneWayElevator => first_of(&self.above, &self.below),
            Scheduler::TwoWayElevator if self.rising => first_of(&self.above, &self.below),
            Scheduler::TwoWayElevator => first_of(&self.below, &self.above),
        }
    }

    fn pop_upwards(&mut self) -> Option<DiskIo> {
        if self.above.is_empty() {
            // From the lowest on everything is above.
            std::mem::swap(&mut self.above, &mut self.below);
        }
        self.above.pop().map(|Reverse(waiting)| waiting.io)
    }

    fn pop_along(&mut self) -> Option<DiskIo> {
        for _ in 0..2 {
            let heap = if self.rising { &mut self.above } else { &mut self.below };
            if let Some(Reverse(waiting)) = heap.pop() {
                return Some(waiting.io);
            }
            self.rising = !self.rising;
        }
        None
    }

    /// What begins where a falling elevator has come to is no longer below it.
    fn raise_level(&mut self) {
        while let Some(Reverse(Waiting { key, io })) = self.below.peek()
            && io.sector == self.at
        {
            let level = Waiting { key: turned(*key), io: *io };
            self.below.pop();
            self.above.push(Reverse(level));
        }
    }
}

fn first_of<'a>(heap: &'a Heap, other: &'a Heap) -> Option<&'a DiskIo> {
    heap.peek().or_else(|| other.peek()).map(|Reverse(waiting)| &waiting.io)
}

fn turned((sector, sequence): Key) -> Key {
    (!sector, !sequence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Direction;

    /// A sorted list is the model: up from `at`, then from the lowest, or down to the lowest and up
    /// again.
    #[derive(Default)]
    struct Model {
        waiting: Vec<(u64, u32)>,
        rising: bool,
        at: u64,
    }

    impl Model {
        fn pop(&mut self, scheduler: Scheduler) -> Option<u32> {
            let above = |w: &[(u64, u32)], at| w.iter().position(|(sector, _)| *sector >= at);
            let index = match scheduler {
                Scheduler::Fcfs => (!self.waiting.is_empty()).then_some(0),
                Scheduler::OneWayElevator => {
                    let first = (!self.waiting.is_empty()).then_some(0);
                    above(&self.waiting, self.at).or(first)
                }
                Scheduler::TwoWayElevator => {
                    let below = self.waiting.iter().rposition(|(sector, _)| *sector < self.at);
                    let next = above(&self.waiting, self.at);
                    let (first, other) = if self.rising { (next, below) } else { (below, next) };
                    self.rising ^= first.is_none() && other.is_some();
                    first.or(other)
                }
            }?;
            let (sector, tag) = self.waiting.remove(index);
            self.at = sector;
            Some(tag)
        }
    }

    #[test]
    fn serves_in_the_order_of_a_sorted_list() {
        use Scheduler::{Fcfs, OneWayElevator, TwoWayElevator};
        for seed in 0..60 {
            let scheduler = [Fcfs, OneWayElevator, TwoWayElevator][seed as usize % 3];
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut queue, mut model) = (Queue::new(scheduler), Model::default());
            for tag in 0..2_000 {
                if queue.len() == 0 && rng.bool() {
                    let sector = rng.u64(0..20);
                    let io = DiskIo { direction: Direction::Read, sector, sectors: 1, tag };
                    queue.pass(&io);
                    model.at = sector;
                } else if rng.u8(0..20) < 11 {
                    let sector = rng.u64(0..20);
                    queue.push(DiskIo { direction: Direction::Read, sector, sectors: 1, tag });
                    model.waiting.push((sector, tag));
                    if scheduler != Fcfs {
                        model.waiting.sort_unstable();
                    }
                } else if queue.len() > 0 {
                    let peeked = queue.peek().map(|io| io.tag);
                    let popped = queue.pop().map(|io| io.tag);
                    assert_eq!((popped, peeked), (model.pop(scheduler), popped), "seed {seed}");
                }
                assert_eq!(queue.len(), model.waiting.len());
            }
        }
    }
}
