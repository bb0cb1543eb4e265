//! Frequency-based cyclic replacement (Maltzahn 1999 §3.6): a pointer goes round the objects in the
//! order of their places. One that was asked for at least C_max times is skipped, any other gives
//! its place to the new one. When the mean count passes A_max every count c becomes ceil(c / 2).
//!
//! Deviations: the paper has five size classes with a pointer each, and a new object takes the
//! place of exactly one of its class; without layout there is one cycle, and as many go as must.
//! The paper does not say what happens when all objects are to be skipped; here, after one whole
//! round, the one at the pointer goes.

use super::lists::{COUNT_MAX, NONE, Queue};
use super::one_queue::{Objects, Rule};

/// The queue is the cycle, cut open at its end: the tail is its first place.
pub(crate) struct Fbc {
    /// Next to be considered; `NONE`: the first place.
    target: u32,
    count_max: u32,
    mean_max: u64,
    count_sum: u64,
}

impl Fbc {
    /// `count_max` is C_max, `mean_max` is A_max.
    pub(crate) fn new(count_max: u32, mean_max: u64) -> Fbc {
        Fbc { target: NONE, count_max, mean_max, count_sum: 0 }
    }

    fn take_out(&mut self, objects: &mut Objects<Queue>, key: u32) {
        self.target = objects.nodes.newer(key);
        self.count_sum -= u64::from(objects.nodes.count(key));
        objects.remove(key);
    }

    fn age(&mut self, objects: &mut Objects<Queue>) {
        let mut key = objects.queue.tail();
        self.count_sum = 0;
        while key != NONE {
            let count = objects.nodes.count(key).div_ceil(2);
            objects.nodes.set_count(key, count);
            self.count_sum += u64::from(count);
            key = objects.nodes.newer(key);
        }
    }
}

impl Rule for Fbc {
    type Queue = Queue;

    #[inline]
    fn hit(&mut self, objects: &mut Objects<Queue>, key: u32) {
        let count = objects.nodes.count(key);
        if count == COUNT_MAX {
            return;
        }
        objects.nodes.set_count(key, count + 1);
        self.count_sum += 1;
        if self.count_sum > self.mean_max * objects.queue.len() {
            self.age(objects);
        }
    }

    fn evict(&mut self, objects: &mut Objects<Queue>) {
        let first = objects.queue.tail();
        let mut key = if self.target == NONE { first } else { self.target };
        for _ in 0..objects.queue.len() {
            if objects.nodes.count(key) < self.count_max {
                break;
            }
            let newer = objects.nodes.newer(key);
            key = if newer == NONE { first } else { newer };
        }
        self.take_out(objects, key);
    }

    /// It takes the freed place, just before the target; while there is room, the next free one.
    fn arrive(&mut self, objects: &mut Objects<Queue>, key: u32, evicted: bool) {
        if evicted && self.target != NONE {
            objects.queue.push_ahead(&mut objects.nodes, key, self.target);
        } else {
            objects.push(key);
        }
        self.hit(objects, key);
    }

    fn delete(&mut self, objects: &mut Objects<Queue>, key: u32) {
        let target = self.target;
        self.take_out(objects, key);
        if target != key {
            self.target = target;
        }
    }
}
