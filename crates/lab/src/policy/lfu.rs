//! LFU: lets go what was asked for least often since it came, of equals what was asked for longest
//! ago. Nothing ages: what was popular once stays. Decides as libCacheSim does, where an object
//! that comes back begins anew, too. Counts of requests end at 16 million.
//!
//! Invariants: every object that is there waits in the queue of its count, and no queue is empty.

use std::collections::BTreeMap;

use super::lists::{COUNT_MAX, Nodes, Queue};
use super::room::Room;
use super::{Policy, Step};

pub(crate) struct Lfu {
    nodes: Nodes,
    /// By count: of counts that differ there are few, of a trace of n requests less than the root
    /// of 2n at once.
    by_count: BTreeMap<u32, Queue>,
    room: Room,
}

impl Lfu {
    pub(crate) fn new(capacity_bytes: u64) -> Lfu {
        let (nodes, by_count) = (Nodes::default(), BTreeMap::new());
        Lfu { nodes, by_count, room: Room::new(capacity_bytes) }
    }

    fn put(&mut self, key: u32, count: u32) {
        self.nodes.set_count(key, count);
        // An object's queue follows from its count, so its id only has to be told from 0.
        let queue = self.by_count.entry(count).or_insert_with(|| Queue::new(1));
        queue.push(&mut self.nodes, key);
    }

    /// Takes an object out of its queue; says what its count was.
    fn take(&mut self, key: u32) -> u32 {
        let count = self.nodes.count(key);
        if let Some(queue) = self.by_count.get_mut(&count) {
            queue.remove(&mut self.nodes, key);
            if queue.len() == 0 {
                self.by_count.remove(&count);
            }
        }
        count
    }

    fn leave(&mut self, key: u32) {
        self.take(key);
        self.room.leave(self.nodes.size(key));
    }
}

impl Policy for Lfu {
    fn get(&mut self, step: &Step) -> bool {
        let key = step.key;
        if self.nodes.queue(key) != 0 {
            let count = self.take(key);
            self.put(key, (count + 1).min(COUNT_MAX));
            return true;
        }
        if !self.room.fits(step.size_bytes) {
            return false;
        }
        while self.room.is_short_of(step.size_bytes) {
            let Some((_, least)) = self.by_count.first_key_value() else { break };
            self.leave(least.tail());
        }
        self.nodes.reach(key);
        self.nodes.set_size(key, step.size_bytes);
        self.room.enter(step.size_bytes);
        self.put(key, 1);
        false
    }

    fn delete(&mut self, key: u32) {
        if self.nodes.queue(key) != 0 {
            self.leave(key);
        }
    }

    fn used_bytes(&self) -> u64 {
        self.room.used_bytes()
    }

    fn objects(&self) -> u64 {
        self.room.objects()
    }

    #[inline]
    fn fetch(&self, key: u32) {
        self.nodes.fetch(key);
    }

    #[inline]
    fn fetch_more(&self, key: u32) {
        self.nodes.fetch_neighbours(key);
    }
}
