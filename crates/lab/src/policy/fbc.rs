//! Frequency-based cyclic replacement (Maltzahn 1999 §3.6): a pointer goes round the objects in the
//! order of their places. One that was asked for at least C_max times is skipped, any other gives its
//! place to the new one. When the mean count passes A_max every count c becomes ceil(c / 2).
//!
//! Deviations: the paper has five size classes with a pointer each, and a new object takes the place
//! of exactly one of its class; without layout there is one cycle, and as many go as must. The paper
//! does not say what happens when all objects are to be skipped; here, after one whole round, the one
//! at the pointer goes.

use super::lists::{COUNT_MAX, NONE, Nodes, Queue};
use super::{Policy, Step};

pub(crate) struct Fbc {
    nodes: Nodes,
    /// The cycle, cut open at its end: the tail is its first place.
    cycle: Queue,
    /// Next to be considered; `NONE`: the first place.
    target: u32,
    capacity_bytes: u64,
    count_max: u32,
    mean_max: u64,
    count_sum: u64,
}

impl Fbc {
    /// `count_max` is C_max, `mean_max` is A_max.
    pub(crate) fn new(capacity_bytes: u64, count_max: u32, mean_max: u64) -> Fbc {
        let (nodes, cycle) = (Nodes::default(), Queue::new(1));
        Fbc { nodes, cycle, target: NONE, capacity_bytes, count_max, mean_max, count_sum: 0 }
    }

    fn target(&self) -> u32 {
        if self.target == NONE { self.cycle.tail() } else { self.target }
    }

    fn evict(&mut self) {
        let mut key = self.target();
        for _ in 0..self.cycle.len() {
            if self.nodes.count(key) < self.count_max {
                break;
            }
            let newer = self.nodes.newer(key);
            key = if newer == NONE { self.cycle.tail() } else { newer };
        }
        self.take_out(key);
    }

    fn take_out(&mut self, key: u32) {
        self.target = self.nodes.newer(key);
        self.count_sum -= u64::from(self.nodes.count(key));
        self.cycle.remove(&mut self.nodes, key);
    }

    fn count(&mut self, key: u32) {
        let count = self.nodes.count(key);
        if count == COUNT_MAX {
            return;
        }
        self.nodes.set_count(key, count + 1);
        self.count_sum += 1;
        if self.count_sum > self.mean_max * self.cycle.len() {
            self.age();
        }
    }

    fn age(&mut self) {
        let mut key = self.cycle.tail();
        self.count_sum = 0;
        while key != NONE {
            let count = self.nodes.count(key).div_ceil(2);
            self.nodes.set_count(key, count);
            self.count_sum += u64::from(count);
            key = self.nodes.newer(key);
        }
    }
}

impl Policy for Fbc {
    #[inline]
    fn get(&mut self, step: &Step) -> bool {
        let key = step.key;
        if self.nodes.queue(key) != 0 {
            self.count(key);
            return true;
        }
        if step.size_bytes > self.capacity_bytes {
            return false;
        }
        let evicts = self.cycle.bytes() > self.capacity_bytes - step.size_bytes;
        while self.cycle.bytes() > self.capacity_bytes - step.size_bytes {
            self.evict();
        }
        self.nodes.reach(key);
        self.nodes.set_size(key, step.size_bytes);
        self.nodes.set_count(key, 0);
        // It takes the freed place, just before the target; while there is room, the next free one.
        if evicts && self.target != NONE {
            self.cycle.push_ahead(&mut self.nodes, key, self.target);
        } else {
            self.cycle.push(&mut self.nodes, key);
        }
        self.count(key);
        false
    }

    fn delete(&mut self, key: u32) {
        if self.nodes.queue(key) == 0 {
            return;
        }
        let target = self.target;
        self.take_out(key);
        if target != key {
            self.target = target;
        }
    }

    fn used_bytes(&self) -> u64 {
        self.cycle.bytes()
    }

    fn objects(&self) -> u64 {
        self.cycle.len()
    }

    #[inline]
    fn touch(&self, key: u32) -> u32 {
        self.nodes.touch(key)
    }
}
