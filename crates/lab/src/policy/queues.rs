//! FIFO and LRU: one queue; a hit does nothing, or moves the object to its head.

use super::lists::{Nodes, Queue};
use super::{Policy, Step};

/// One queue. `RENEWS`: a hit moves the object to the head (LRU), or not (FIFO).
pub(crate) struct OneQueue<const RENEWS: bool> {
    nodes: Nodes,
    queue: Queue,
    capacity_bytes: u64,
}

impl<const RENEWS: bool> OneQueue<RENEWS> {
    pub(crate) fn new(capacity_bytes: u64) -> OneQueue<RENEWS> {
        OneQueue { nodes: Nodes::default(), queue: Queue::new(1), capacity_bytes }
    }
}

impl<const RENEWS: bool> Policy for OneQueue<RENEWS> {
    #[inline]
    fn get(&mut self, step: &Step) -> bool {
        let key = step.key;
        if self.nodes.queue(key) != 0 {
            if RENEWS {
                self.queue.renew(&mut self.nodes, key);
            }
            return true;
        }
        if step.size_bytes > self.capacity_bytes {
            return false;
        }
        while self.queue.bytes() > self.capacity_bytes - step.size_bytes {
            self.queue.pop(&mut self.nodes);
        }
        self.nodes.reach(key);
        self.nodes.set_size(key, step.size_bytes);
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

    #[inline]
    fn touch_more(&self, key: u32) -> u32 {
        if RENEWS { self.nodes.touch_neighbours(key) } else { 0 }
    }
}
