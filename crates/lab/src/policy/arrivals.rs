//! Queues in which nobody moves: objects come in at the head and leave at the tail, but for those
//! that are deleted. A log of keys as in `rings.rs`, whose nodes need not know where in it they
//! are: 8 bytes for an object's node, and 4 here while it waits.
//!
//! Invariants: of an object's keys in the log the last counts, if the object waits here, and none
//! otherwise; how many do not count, `stale` says. Those are as many as objects that wait, and
//! [`SPARE`], at most. One thread at a time.

use std::collections::HashMap;

use super::lists::Nodes;
use super::log::{CHUNK, Log};

/// Keys that do not count and are kept all the same, so that short queues are not swept all the
/// time.
const SPARE: u64 = CHUNK as u64;

/// A queue.
#[derive(Debug)]
pub(super) struct Arrivals {
    id: u8,
    log: Log,
    /// By key, how many of them do not count.
    stale: HashMap<u32, u32>,
    bytes: u64,
    len: u64,
}

impl Arrivals {
    /// An empty queue; ids are 1 and up, and differ within one `Nodes`.
    pub(super) fn new(id: u8) -> Arrivals {
        assert!(id > 0, "0 means no queue");
        Arrivals { id, log: Log::default(), stale: HashMap::new(), bytes: 0, len: 0 }
    }

    /// Sum of the sizes of its objects.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline]
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// An object of no queue arrives.
    #[inline]
    pub(super) fn push(&mut self, nodes: &mut Nodes<()>, key: u32) {
        debug_assert_eq!(nodes.queue(key), 0);
        self.bytes += nodes.size(key);
        self.len += 1;
        nodes.set_queue(key, self.id);
        self.log.append(key);
    }

    /// The one that waits longest leaves; `None` if nobody waits.
    #[inline]
    pub(super) fn pop(&mut self, nodes: &mut Nodes<()>) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        loop {
            if let Some(ahead) = self.log.ahead() {
                nodes.fetch(ahead);
            }
            let key = self.log.pass();
            if self.stale.is_empty() || !self.was_stale(key) {
                self.leave(nodes, key);
                return Some(key);
            }
        }
    }

    /// An object of this queue is deleted.
    pub(super) fn remove(&mut self, nodes: &mut Nodes<()>, key: u32) {
        debug_assert_eq!(nodes.queue(key), self.id);
        self.leave(nodes, key);
        *self.stale.entry(key).or_default() += 1;
        if self.log.len() > 2 * self.len + SPARE {
            self.sweep();
        }
    }

    fn leave(&mut self, nodes: &mut Nodes<()>, key: u32) {
        self.bytes -= nodes.size(key);
        self.len -= 1;
        nodes.set_queue(key, 0);
    }

    fn was_stale(&mut self, key: u32) -> bool {
        let Some(times) = self.stale.get_mut(&key) else { return false };
        *times -= 1;
        if *times == 0 {
            self.stale.remove(&key);
        }
        true
    }

    /// Leaves out what does not count: every key is taken off and, if it counts, written at the
    /// end.
    #[cold]
    fn sweep(&mut self) {
        for _ in 0..self.log.len() {
            let key = self.log.pass();
            if !self.was_stale(key) {
                self.log.append(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vector in the same order is the model. Objects come again while their old keys are still
    /// listed, here and in the other queue.
    #[test]
    fn behaves_like_a_vector() {
        const KEYS: u32 = 40;
        let mut rng = fastrand::Rng::with_seed(11);
        let mut nodes = Nodes::of_rising_sizes(KEYS);
        let mut queues = [Arrivals::new(1), Arrivals::new(2)];
        let mut models: [Vec<u32>; 2] = [Vec::new(), Vec::new()];
        let mut stale_max = 0;
        for step in 0..100_000 {
            let (which, key) = (rng.usize(0..2), rng.u32(0..KEYS));
            let (queue, model) = (&mut queues[which], &mut models[which]);
            match nodes.queue(key) {
                0 => {
                    queue.push(&mut nodes, key);
                    model.push(key);
                }
                id if usize::from(id) != which + 1 => continue,
                _ if rng.u8(0..4) == 0 => {
                    assert_eq!(queue.pop(&mut nodes), Some(model.remove(0)), "step {step}");
                }
                _ => {
                    queue.remove(&mut nodes, key);
                    model.retain(|other| *other != key);
                }
            }
            assert_eq!(queue.len(), model.len() as u64);
            assert_eq!(queue.bytes(), model.iter().map(|key| u64::from(*key) + 1).sum::<u64>());
            assert!(queue.log.len() <= 2 * queue.len() + SPARE);
            stale_max = stale_max.max(queue.stale.len());
        }
        assert!(stale_max > 1, "some were listed that did not count");
        for (queue, model) in queues.iter_mut().zip(models) {
            let left: Vec<u32> = std::iter::from_fn(|| queue.pop(&mut nodes)).collect();
            assert_eq!(left, model);
        }
    }

    /// However many are deleted, the log stays as short as promised, and what waits keeps its
    /// order.
    #[test]
    fn deletes_take_no_memory_for_ever() {
        let (mut nodes, mut queue) = (Nodes::of_rising_sizes(10), Arrivals::new(1));
        queue.push(&mut nodes, 0);
        queue.push(&mut nodes, 1);
        for _ in 0..10 * SPARE {
            queue.push(&mut nodes, 2);
            queue.remove(&mut nodes, 2);
        }
        assert!(queue.log.room() <= 4 * SPARE, "{}", queue.log.room());
        queue.push(&mut nodes, 2);
        let left: Vec<u32> = std::iter::from_fn(|| queue.pop(&mut nodes)).collect();
        assert_eq!(left, [0, 1, 2]);
    }
}
