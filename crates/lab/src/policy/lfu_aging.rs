//! LFU with aging (Arlitt et al. 2000; what UCFS 2002 §2.4.9 takes for its disk): lets go what was
//! asked for least often, of equals what was asked for longest ago. When the mean count passes
//! A_max every count c becomes ceil(c / 2), so that what was popular once does not stay for ever.
//!
//! Deviations: of those that a halving makes equal, what had the smaller count goes first, whenever
//! it was asked for, as it would have gone without the halving; neither paper gives values. A_max
//! is 10 here, and counts stop at 255 (M_refs), so that the queues, one for each count, are few.

use super::lists::{NONE, Nodes, Queue};
use super::room::Room;
use super::{Policy, Step};

/// M_refs.
pub(crate) const COUNT_MAX: u32 = 255;

pub(crate) struct LfuAging {
    nodes: Nodes,
    /// By count less one.
    by_count: Vec<Queue>,
    room: Room,
    count_sum: u64,
    mean_max: u64,
}

impl LfuAging {
    /// `mean_max` is A_max.
    pub(crate) fn new(capacity_bytes: u64, mean_max: u64) -> LfuAging {
        LfuAging {
            nodes: Nodes::default(),
            by_count: empty_queues(),
            room: Room::new(capacity_bytes),
            count_sum: 0,
            mean_max,
        }
    }

    fn put(&mut self, key: u32, count: u32) {
        self.nodes.set_count(key, count);
        self.by_count[count as usize - 1].push(&mut self.nodes, key);
        self.count_sum += u64::from(count);
    }

    fn take(&mut self, key: u32) -> u32 {
        let count = self.nodes.count(key);
        self.by_count[count as usize - 1].remove(&mut self.nodes, key);
        self.count_sum -= u64::from(count);
        count
    }

    fn age_if_due(&mut self) {
        if self.count_sum <= self.mean_max * self.room.objects() {
            return;
        }
        // From the least on and the oldest on, so that each queue keeps the order of leaving.
        let old = std::mem::replace(&mut self.by_count, empty_queues());
        self.count_sum = 0;
        for (mut queue, count) in old.into_iter().zip(1u32..) {
            while let Some(key) = queue.pop(&mut self.nodes) {
                self.put(key, count.div_ceil(2));
            }
        }
    }

    fn leave(&mut self, key: u32) {
        self.take(key);
        self.room.leave(self.nodes.size(key));
    }
}

/// Queue ids only have to be told from 0: an object's queue follows from its count.
fn empty_queues() -> Vec<Queue> {
    (0..COUNT_MAX).map(|_| Queue::new(1)).collect()
}

impl Policy for LfuAging {
    fn get(&mut self, step: &Step) -> bool {
        let key = step.key;
        if self.nodes.queue(key) != 0 {
            let count = self.take(key);
            self.put(key, (count + 1).min(COUNT_MAX));
            self.age_if_due();
            return true;
        }
        if !self.room.fits(step.size_bytes) {
            return false;
        }
        while self.room.is_short_of(step.size_bytes) {
            let least = self.by_count.iter().map(Queue::tail).find(|tail| *tail != NONE);
            let Some(victim) = least else { break };
            self.leave(victim);
        }
        self.nodes.reach(key);
        self.nodes.set_size(key, step.size_bytes);
        self.room.enter(step.size_bytes);
        self.put(key, 1);
        self.age_if_due();
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
