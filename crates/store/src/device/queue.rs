//! The order in which waiting I/Os go to the device: reads before writes, with a bound on how long
//! writes may be held back, those reads first that hold up others, and a two-way elevator for disks
//! with seeks.
//!
//! Owns: only the waiting items; a pure data structure without threads, clocks or I/O, which each
//! driver keeps behind its own mutex. Invariants: every pushed item is popped exactly once. While a
//! write waits and may be started, at most [`READS_PER_WRITE`] reads are started before a write is.
//! On a disk with seeks at most [`WRITE_PASS_LIMIT`] writes overtake a write, and a sweep of
//! reads, upward or downward, only moves forward, so that it ends.

use std::collections::{BTreeMap, VecDeque};

use super::IoOp;

/// Reads that may be started while a write waits, before the write gets its turn.
pub(super) const READS_PER_WRITE: u32 = 16;

/// Writes that may overtake the oldest waiting write because they are closer to the head.
pub(super) const WRITE_PASS_LIMIT: u32 = 64;

/// Waiting I/Os of one device, each with a payload `T`.
#[derive(Debug)]
pub(super) struct IoQueue<T> {
    order: Order<T>,
    reads_since_write: u32,
}

#[derive(Debug)]
enum Order<T> {
    Arrival { first: VecDeque<T>, reads: VecDeque<T>, writes: VecDeque<T> },
    Elevator(Elevator<T>),
}

impl<T> IoQueue<T> {
    /// An empty queue; `seeks` turns the elevator on, otherwise I/Os go in order of arrival.
    pub(super) fn new(seeks: bool) -> IoQueue<T> {
        let order = if seeks {
            Order::Elevator(Elevator::new())
        } else {
            let (first, reads, writes) = Default::default();
            Order::Arrival { first, reads, writes }
        };
        IoQueue { order, reads_since_write: 0 }
    }

    /// Adds an I/O of `len` bytes at `offset`.
    pub(super) fn push(&mut self, op: IoOp, offset: u64, len: u64, item: T) {
        match (&mut self.order, op) {
            (Order::Arrival { reads, .. }, IoOp::Read) => reads.push_back(item),
            (Order::Arrival { writes, .. }, IoOp::Write) => writes.push_back(item),
            (Order::Elevator(e), op) => e.push(op, offset, len, item),
        }
    }

    /// Adds a read that goes before those that were not added this way; the elevator takes it like
    /// any other.
    pub(super) fn push_first(&mut self, offset: u64, len: u64, item: T) {
        match &mut self.order {
            Order::Arrival { first, .. } => first.push_back(item),
            Order::Elevator(e) => e.push(IoOp::Read, offset, len, item),
        }
    }

    /// Takes the next I/O for the device. With `may_write` false (all write slots are in use) only
    /// reads are considered.
    pub(super) fn pop(&mut self, may_write: bool) -> Option<T> {
        let (reads, writes) = self.waiting();
        let due = reads == 0 || self.reads_since_write >= READS_PER_WRITE;
        if may_write && writes > 0 && due {
            self.reads_since_write = 0;
            return match &mut self.order {
                Order::Arrival { writes, .. } => writes.pop_front(),
                Order::Elevator(e) => e.pop_write(),
            };
        }
        if writes > 0 {
            self.reads_since_write = self.reads_since_write.saturating_add(u32::from(reads > 0));
        }
        match &mut self.order {
            Order::Arrival { first, reads, .. } => first.pop_front().or_else(|| reads.pop_front()),
            Order::Elevator(e) => e.pop_read(),
        }
    }

    /// True when nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting() == (0, 0)
    }

    fn waiting(&self) -> (usize, usize) {
        match &self.order {
            Order::Arrival { first, reads, writes } => (first.len() + reads.len(), writes.len()),
            Order::Elevator(e) => (e.reads.len(), e.writes.len()),
        }
    }
}

/// Offset, then order of arrival, so that equal offsets stay distinct and in order.
type Key = (u64, u64);

#[derive(Debug)]
struct Elevator<T> {
    reads: BTreeMap<Key, (u64, T)>,
    writes: BTreeMap<Key, (u64, T)>,
    /// Writes in order of arrival; those already taken are dropped when they reach the front.
    write_age: VecDeque<Key>,
    /// Writes taken while the oldest one waited.
    passed: u32,
    seq: u64,
    head: u64,
    up: bool,
}

impl<T> Elevator<T> {
    fn new() -> Elevator<T> {
        Elevator {
            reads: BTreeMap::new(),
            writes: BTreeMap::new(),
            write_age: VecDeque::new(),
            passed: 0,
            seq: 0,
            head: 0,
            up: true,
        }
    }

    fn push(&mut self, op: IoOp, offset: u64, len: u64, item: T) {
        let key = (offset, self.seq);
        self.seq += 1;
        match op {
            IoOp::Read => {
                self.reads.insert(key, (len, item));
            }
            IoOp::Write => {
                self.writes.insert(key, (len, item));
                self.write_age.push_back(key);
            }
        }
    }

    /// The next read of the sweep; at the end of a sweep the direction turns. Going up, reads at or
    /// above the head are eligible; going down, those strictly below. So repeated reads of one
    /// offset cannot hold the head in place.
    fn pop_read(&mut self) -> Option<T> {
        let pivot = (self.head, 0);
        let above = self.reads.range(pivot..).next().map(|(k, _)| *k);
        let below = || self.reads.range(..pivot).next_back().map(|(k, _)| *k);
        let key = if self.up { above.or_else(below)? } else { below().or(above)? };
        self.up = key.0 >= self.head;
        let (len, item) = self.reads.remove(&key)?;
        self.head = if self.up { key.0.saturating_add(len) } else { key.0 };
        Some(item)
    }

    /// The write nearest to the head, unless the oldest one has been overtaken too often. The sweep
    /// of the reads, if any, continues where it was.
    fn pop_write(&mut self) -> Option<T> {
        while self.write_age.front().is_some_and(|k| !self.writes.contains_key(k)) {
            self.write_age.pop_front();
            self.passed = 0;
        }
        let oldest = *self.write_age.front()?;
        let key = if self.passed >= WRITE_PASS_LIMIT { oldest } else { self.nearest_write()? };
        self.passed += 1;
        let (len, item) = self.writes.remove(&key)?;
        if self.reads.is_empty() {
            self.head = key.0.saturating_add(len);
        }
        Some(item)
    }

    fn nearest_write(&self) -> Option<Key> {
        let pivot = (self.head, 0);
        let above = self.writes.range(pivot..).next().map(|(k, _)| *k);
        let below = self.writes.range(..pivot).next_back().map(|(k, _)| *k);
        match (above, below) {
            (Some(a), Some(b)) if self.head - b.0 < a.0 - self.head => Some(b),
            (Some(a), _) => Some(a),
            (None, b) => b,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(q: &mut IoQueue<u64>) -> Vec<u64> {
        std::iter::from_fn(|| q.pop(true)).collect()
    }

    #[test]
    fn reads_go_before_writes_in_order_of_arrival() {
        let mut q = IoQueue::new(false);
        for (op, id) in [(IoOp::Write, 1), (IoOp::Read, 2), (IoOp::Write, 3), (IoOp::Read, 4)] {
            q.push(op, 100 - id, 1, id);
        }
        assert_eq!(drain(&mut q), [2, 4, 1, 3]);
        assert!(q.is_empty());
    }

    #[test]
    fn some_reads_go_first_but_hold_up_no_write() {
        let mut q = IoQueue::new(false);
        for id in 0..20 {
            q.push(IoOp::Read, id, 1, id);
        }
        q.push(IoOp::Write, 1 << 30, 1, 999);
        for id in 100..140 {
            q.push_first(id, 1, id);
        }
        let order = drain(&mut q);
        let per_write = READS_PER_WRITE as usize;
        assert_eq!(order[..per_write], (100..140).collect::<Vec<_>>()[..per_write]);
        assert_eq!(order[per_write], 999);
        assert_eq!(order[41..], (0..20).collect::<Vec<_>>());
        assert!(q.is_empty());
    }

    #[test]
    fn a_write_waits_for_a_bounded_number_of_reads() {
        for seeks in [false, true] {
            let mut q = IoQueue::new(seeks);
            q.push(IoOp::Write, 1 << 30, 1, 999);
            for id in 0..100 {
                q.push(IoOp::Read, id, 1, id);
            }
            let at = drain(&mut q).iter().position(|id| *id == 999);
            assert_eq!(at, Some(READS_PER_WRITE as usize), "seeks {seeks}");
        }
    }

    #[test]
    fn without_write_slots_only_reads_come_and_the_write_is_due_at_once_after() {
        let mut q = IoQueue::new(false);
        q.push(IoOp::Write, 0, 1, 999);
        assert_eq!(q.pop(false), None);
        for id in 0..40 {
            q.push(IoOp::Read, 0, 1, id);
        }
        for id in 0..30 {
            assert_eq!(q.pop(false), Some(id));
        }
        assert_eq!(q.pop(true), Some(999));
        assert_eq!(q.pop(true), Some(30));
    }

    #[test]
    fn elevator_sweeps_up_then_down_then_up() {
        let mut q = IoQueue::new(true);
        q.push(IoOp::Read, 500, 10, 500);
        assert_eq!(q.pop(true), Some(500));
        for at in [100, 700, 300, 900, 505, 510] {
            q.push(IoOp::Read, at, 10, at);
        }
        let first: Vec<_> = (0..4).filter_map(|_| q.pop(true)).collect();
        assert_eq!(first, [510, 700, 900, 505], "up to the end, then down");
        q.push(IoOp::Read, 800, 10, 800);
        assert_eq!(drain(&mut q), [300, 100, 800], "down to the end, then up");
    }

    #[test]
    fn reads_repeated_at_one_offset_do_not_hold_the_head() {
        for start_up in [true, false] {
            let mut q = IoQueue::new(true);
            q.push(IoOp::Read, 5000, 1, 0);
            assert_eq!(q.pop(true), Some(0));
            if !start_up {
                q.push(IoOp::Read, 4000, 1, 0);
                assert_eq!(q.pop(true), Some(0));
            }
            q.push(IoOp::Read, 100, 1, 1);
            q.push(IoOp::Read, 9000, 1, 2);
            let mut seen = Vec::new();
            for _ in 0..6 {
                q.push(IoOp::Read, 3000, 1, 3);
                seen.extend(q.pop(true));
            }
            assert!(seen.contains(&1) && seen.contains(&2), "{seen:?}");
        }
    }

    #[test]
    fn elevator_takes_the_write_nearest_to_the_head() {
        let mut q = IoQueue::new(true);
        q.push(IoOp::Read, 500, 0, 500);
        assert_eq!(q.pop(true), Some(500));
        for at in [0, 490, 520, 1000] {
            q.push(IoOp::Write, at, 0, at);
        }
        assert_eq!(drain(&mut q), [490, 520, 1000, 0]);
    }

    #[test]
    fn a_far_write_is_passed_over_a_bounded_number_of_times() {
        let mut q = IoQueue::new(true);
        q.push(IoOp::Write, 1 << 40, 1, 999);
        let mut before = 0;
        loop {
            q.push(IoOp::Write, 0, 1, 0);
            match q.pop(true) {
                Some(999) => break,
                _ => before += 1,
            }
        }
        assert!(before <= WRITE_PASS_LIMIT, "{before}");
    }

    #[test]
    fn everything_comes_out_once() {
        for seeks in [false, true] {
            let mut rng = fastrand::Rng::with_seed(7);
            let mut q = IoQueue::new(seeks);
            let mut seen = vec![0u8; 5000];
            for id in 0..5000u64 {
                let op = if rng.bool() { IoOp::Read } else { IoOp::Write };
                q.push(op, rng.u64(0..1000), 8, id);
                if rng.u8(0..3) == 0 {
                    q.pop(rng.bool()).into_iter().for_each(|id| seen[id as usize] += 1);
                }
            }
            drain(&mut q).into_iter().for_each(|id| seen[id as usize] += 1);
            assert!(seen.iter().all(|n| *n == 1));
        }
    }
}
