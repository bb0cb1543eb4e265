//! CLOCK (FIFO with reinsertion, second chance): a hit sets a mark; what is at the tail with a mark
//! loses it and goes to the head, the first without leaves. Corbató 1968.

use super::lists::{Nodes, Queue};
use super::{Policy, Step};

pub(crate) struct Clock {
    nodes: Nodes,
    queue: Queue,
    capacity_bytes: u64,
    /// Greatest count: 2^bits - 1, libCacheSim's `n-bit-counter`.
    count_max: u32,
}

impl Clock {
    pub(crate) fn new(capacity_bytes: u64, bits: u32) -> Clock {
        let count_max = (1 << bits) - 1;
        Clock { nodes: Nodes::default(), queue: Queue::new(1), capacity_bytes, count_max }
    }

    fn evict(&mut self) {
        while let Some(key) = self.queue.pop(&mut self.nodes) {
            let count = self.nodes.count(key);
            if count == 0 {
                return;
            }
            self.nodes.set_count(key, count - 1);
            self.queue.push(&mut self.nodes, key);
        }
    }
}

impl Policy for Clock {
    #[inline]
    fn get(&mut self, step: &Step) -> bool {
        let key = step.key;
        if self.nodes.queue(key) != 0 {
            let count = self.nodes.count(key) + 1;
            self.nodes.set_count(key, count.min(self.count_max));
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
        if self.nodes.queue(key) != 0 {
            self.queue.remove(&mut self.nodes, key);
        }
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
