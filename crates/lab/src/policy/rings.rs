//! Queues that objects enter at the head only, as a log of keys: an object that leaves from
//! anywhere, or goes back to the head, leaves an entry behind that is passed over when the tail
//! comes to it. Where linked queues read the next key from the node of the one before, a log shows
//! many of the next keys at once, and their nodes are fetched from memory long before they leave.
//!
//! Invariants: an object of a queue has exactly one entry that counts, the one at the place that
//! its node has; of those that do not count there are at most as many as of those that do, and
//! [`SPARE`]. So an object costs at most 12 bytes for its node and 8 here. One thread at a time.

use super::lists::Nodes;
use super::log::{CHUNK, Log};
use super::one_queue::ObjectQueue;

/// Entries that do not count and are kept all the same, so that short queues are not swept all the
/// time.
const SPARE: u64 = CHUNK as u64;

/// A queue; its nodes have places in the log.
#[derive(Debug)]
pub(crate) struct Ring {
    id: u8,
    /// Those that do not count among them; fewer than 2^32.
    entries: Log,
    /// Place of the tail. Places are numbered in a circle of 2^32.
    tail: u32,
    bytes: u64,
    len: u64,
}

impl ObjectQueue for Ring {
    type Place = u32;

    /// An empty queue; ids are 1 and up, and differ within one `Nodes`.
    fn new(id: u8) -> Ring {
        assert!(id > 0, "0 means no queue");
        Ring { id, entries: Log::default(), tail: 0, bytes: 0, len: 0 }
    }

    /// Sum of the sizes of its objects.
    #[inline]
    fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline]
    fn len(&self) -> u64 {
        self.len
    }

    /// An object of no queue arrives.
    #[inline]
    fn push(&mut self, nodes: &mut Nodes<u32>, key: u32) {
        debug_assert_eq!(nodes.queue(key), 0);
        self.bytes += nodes.size(key);
        self.len += 1;
        nodes.set_queue(key, self.id);
        self.write(nodes, key);
    }

    /// An object of this queue leaves it.
    #[inline]
    fn remove(&mut self, nodes: &mut Nodes<u32>, key: u32) {
        debug_assert_eq!(nodes.queue(key), self.id);
        self.bytes -= nodes.size(key);
        self.len -= 1;
        nodes.set_queue(key, 0);
    }

    /// An object of this queue moves to the head.
    #[inline]
    fn renew(&mut self, nodes: &mut Nodes<u32>, key: u32) {
        debug_assert_eq!(nodes.queue(key), self.id);
        self.write(nodes, key);
    }

    /// The tail leaves; `None` if there is none.
    #[inline]
    fn pop(&mut self, nodes: &mut Nodes<u32>) -> Option<u32> {
        while self.len > 0 {
            let (key, counts) = self.pass(nodes);
            if counts {
                self.remove(nodes, key);
                return Some(key);
            }
        }
        None
    }
}

impl Ring {
    /// Writes an entry that counts.
    #[inline]
    fn write(&mut self, nodes: &mut Nodes<u32>, key: u32) {
        if self.entries.len() >= (2 * self.len + SPARE).min(u64::from(u32::MAX) - 1) {
            self.sweep(nodes);
        }
        self.append(nodes, key);
    }

    #[inline]
    fn append(&mut self, nodes: &mut Nodes<u32>, key: u32) {
        nodes.set_place(key, self.tail.wrapping_add(self.entries.len() as u32));
        self.entries.append(key);
    }

    /// Takes the entry at the tail off the log; true if it counts. There must be one.
    #[inline]
    fn pass(&mut self, nodes: &Nodes<u32>) -> (u32, bool) {
        if let Some(ahead) = self.entries.ahead() {
            nodes.fetch(ahead);
        }
        let key = self.entries.pass();
        let counts = nodes.queue(key) == self.id && nodes.place(key) == self.tail;
        self.tail = self.tail.wrapping_add(1);
        (key, counts)
    }

    /// Leaves out what does not count: every entry is taken at the tail and, if it counts, written
    /// at the head.
    #[cold]
    fn sweep(&mut self, nodes: &mut Nodes<u32>) {
        for _ in 0..self.entries.len() {
            if let (key, true) = self.pass(nodes) {
                self.append(nodes, key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vector in the same order is the model. Long enough for many sweeps, and for places to go
    /// round.
    #[test]
    fn behaves_like_a_vector() {
        const KEYS: u32 = 40;
        let mut rng = fastrand::Rng::with_seed(11);
        let mut nodes = Nodes::of_rising_sizes(KEYS);
        let mut rings = [Ring::new(1), Ring::new(2)];
        for ring in &mut rings {
            ring.tail = u32::MAX - 1000;
        }
        let mut models: [Vec<u32>; 2] = [Vec::new(), Vec::new()];
        for step in 0..100_000 {
            let (which, key) = (rng.usize(0..2), rng.u32(0..KEYS));
            let (ring, model) = (&mut rings[which], &mut models[which]);
            match nodes.queue(key) {
                0 => {
                    ring.push(&mut nodes, key);
                    model.push(key);
                }
                id if usize::from(id) != which + 1 => continue,
                _ if rng.u8(0..8) == 0 => {
                    assert_eq!(ring.pop(&mut nodes), Some(model.remove(0)), "step {step}");
                }
                _ => {
                    model.retain(|other| *other != key);
                    if rng.bool() {
                        ring.remove(&mut nodes, key);
                    } else {
                        ring.renew(&mut nodes, key);
                        model.push(key);
                    }
                }
            }
            assert_eq!(ring.len(), model.len() as u64);
            assert_eq!(ring.bytes(), model.iter().map(|key| u64::from(*key) + 1).sum::<u64>());
        }
        for (ring, model) in rings.iter_mut().zip(models) {
            let left: Vec<u32> = std::iter::from_fn(|| ring.pop(&mut nodes)).collect();
            assert_eq!(left, model);
        }
    }

    /// However often objects go back to the head, a log has no more than the entries it may have.
    #[test]
    fn a_log_stays_as_short_as_promised() {
        const KEYS: u32 = 3 * CHUNK as u32;
        let mut nodes = Nodes::of_rising_sizes(KEYS);
        let mut ring = Ring::new(1);
        (0..KEYS).for_each(|key| ring.push(&mut nodes, key));
        for round in 0..10 {
            (0..KEYS).for_each(|key| ring.renew(&mut nodes, (key * 7 + round) % KEYS));
            assert!(ring.entries.len() <= 2 * ring.len() + SPARE);
            assert!(ring.entries.room() <= 2 * ring.len() + SPARE + 2 * CHUNK as u64);
        }
        assert_eq!(ring.len(), u64::from(KEYS));
    }
}
