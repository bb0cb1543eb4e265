//! CLOCK (FIFO with reinsertion, second chance): a hit sets a mark; what is at the tail with a mark
//! loses it and goes to the head, the first without leaves. Corbató 1968.

use super::one_queue::{Objects, Rule};
use super::rings::Ring;

pub(crate) struct Clock {
    /// Greatest count: 2^bits - 1, libCacheSim's `n-bit-counter`.
    count_max: u32,
}

impl Clock {
    pub(crate) fn new(bits: u32) -> Clock {
        Clock { count_max: (1 << bits) - 1 }
    }
}

impl Rule for Clock {
    type Queue = Ring;

    #[inline]
    fn hit(&mut self, objects: &mut Objects<Ring>, key: u32) {
        let count = objects.nodes.count(key) + 1;
        objects.nodes.set_count(key, count.min(self.count_max));
    }

    fn evict(&mut self, objects: &mut Objects<Ring>) {
        while let Some(key) = objects.pop() {
            let count = objects.nodes.count(key);
            if count == 0 {
                return;
            }
            objects.nodes.set_count(key, count - 1);
            objects.push(key);
        }
    }
}
