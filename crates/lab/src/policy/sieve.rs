//! SIEVE (Zhang et al., NSDI 2024): objects arrive at the head and stay where they are; a hand moves
//! from tail to head, takes marks away, and lets go the first object without one.

use super::lists::{NONE, Nodes, Queue};
use super::{Policy, Step};

pub(crate) struct Sieve {
    nodes: Nodes,
    queue: Queue,
    /// Where the next search starts; `NONE`: at the tail.
    hand: u32,
    capacity_bytes: u64,
}

impl Sieve {
    pub(crate) fn new(capacity_bytes: u64) -> Sieve {
        Sieve { nodes: Nodes::default(), queue: Queue::new(1), hand: NONE, capacity_bytes }
    }

    fn evict(&mut self) {
        let or_tail = |key: u32, tail: u32| if key == NONE { tail } else { key };
        let mut key = or_tail(self.hand, self.queue.tail());
        while self.nodes.count(key) > 0 {
            self.nodes.set_count(key, 0);
            key = or_tail(self.nodes.newer(key), self.queue.tail());
        }
        self.hand = self.nodes.newer(key);
        self.queue.remove(&mut self.nodes, key);
    }
}

impl Policy for Sieve {
    #[inline]
    fn get(&mut self, step: &Step) -> bool {
        let key = step.key;
        if self.nodes.queue(key) != 0 {
            self.nodes.set_count(key, 1);
            return true;
        }
        if step.size_bytes > self.capacity_bytes {
            return false;
        }
        while self.queue.bytes() > self.capacity_bytes - step.size_bytes {
            self.evict();
        }
        self.nodes.reach(key);
        self.nodes.set_size(key, step.size_bytes);
        self.nodes.set_count(key, 0);
        self.queue.push(&mut self.nodes, key);
        false
    }

    fn delete(&mut self, key: u32) {
        if self.nodes.queue(key) == 0 {
            return;
        }
        if self.hand == key {
            self.hand = self.nodes.newer(key);
        }
        self.queue.remove(&mut self.nodes, key);
    }

    fn used_bytes(&self) -> u64 {
        self.queue.bytes()
    }

    fn objects(&self) -> u64 {
        self.queue.len()
    }

    #[inline]
    fn touch(&self, key: u32) -> u32 {
        self.nodes.touch(key)
    }
}
