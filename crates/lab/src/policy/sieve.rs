//! SIEVE (Zhang et al., NSDI 2024): objects arrive at the head and stay where they are; a hand
//! moves from tail to head, takes marks away, and lets go the first object without one.

use super::lists::{NONE, Queue};
use super::one_queue::{Objects, Rule};

pub(crate) struct Sieve {
    /// Where the next search starts; `NONE`: at the tail.
    hand: u32,
}

impl Sieve {
    pub(crate) fn new() -> Sieve {
        Sieve { hand: NONE }
    }
}

impl Rule for Sieve {
    type Queue = Queue;

    #[inline]
    fn hit(&mut self, objects: &mut Objects<Queue>, key: u32) {
        objects.nodes.set_count(key, 1);
    }

    fn evict(&mut self, objects: &mut Objects<Queue>) {
        let or_tail = |key: u32, tail: u32| if key == NONE { tail } else { key };
        let mut key = or_tail(self.hand, objects.queue.tail());
        while objects.nodes.count(key) > 0 {
            objects.nodes.set_count(key, 0);
            key = or_tail(objects.nodes.newer(key), objects.queue.tail());
        }
        self.hand = objects.nodes.newer(key);
        objects.remove(key);
    }

    fn delete(&mut self, objects: &mut Objects<Queue>, key: u32) {
        if self.hand == key {
            self.hand = objects.nodes.newer(key);
        }
        objects.remove(key);
    }
}
