//! W-TinyLFU (Einziger, Friedman, Manes, ACM ToS 2017): a small LRU window takes what is new; what
//! leaves it enters the main cache, a segmented LRU, only if it was asked for more often than what
//! would have to go there.
//!
//! Decides as libCacheSim does: a count rises when the object comes, when it hits in the main
//! cache, and when it is looked at as a victim of the window; nothing larger than the window or the
//! lower segment is taken; the window may use whatever room the main cache leaves. Deviation:
//! counts are exact up to 16 million, where libCacheSim has a counting Bloom filter of about 14
//! counters for each byte of the main cache. With sizes in bytes that is exact too; where sizes are
//! ignored it is 14 for each object that fits, is shared by all objects of the trace, and its miss
//! ratios come out higher than ours.
//!
//! As in libCacheSim, counts are halved after 32 counted hits for each unit of the main cache's
//! size: for each object where sizes are ignored, as the paper has it, but for each byte where they
//! are not. With sizes in bytes that is so many (34 thousand million at 1 GiB) that counts never
//! age. With `by-objects=1` it is 32 for each object that the main cache holds just then, with
//! either.

use super::lists::{NONE, Nodes, Queue};
use super::{Policy, Step};

const WINDOW: u8 = 1;
/// The main cache's segments: what came in, and what was hit there.
const LOWER: u8 = 2;
const UPPER: u8 = 3;
/// Share of the main cache that the lower segment has.
const LOWER_SHARE: f64 = 1.0 / 5.0;
const UPPER_SHARE: f64 = 4.0 / 5.0;
/// Counts are halved after so many counted hits for each unit of the main cache's size, or each
/// object in it.
const SAMPLE_FACTOR: u64 = 32;

pub(crate) struct WTinyLfu {
    /// Their counts are how often an object was asked for, and live on when it is gone.
    nodes: Nodes,
    window: Queue,
    lower: Queue,
    upper: Queue,
    capacity_bytes: u64,
    window_bytes: u64,
    main_bytes: u64,
    lower_bytes: u64,
    upper_bytes: u64,
    counted: u64,
    ages_by_objects: bool,
}

impl WTinyLfu {
    pub(crate) fn new(capacity_bytes: u64, window_share: f64, ages_by_objects: bool) -> WTinyLfu {
        let window_bytes = (capacity_bytes as f64 * window_share) as u64;
        let main_bytes = capacity_bytes - window_bytes.min(capacity_bytes);
        WTinyLfu {
            nodes: Nodes::default(),
            window: Queue::new(WINDOW),
            lower: Queue::new(LOWER),
            upper: Queue::new(UPPER),
            capacity_bytes,
            window_bytes,
            main_bytes,
            lower_bytes: (LOWER_SHARE * main_bytes as f64) as u64,
            upper_bytes: (UPPER_SHARE * main_bytes as f64) as u64,
            counted: 0,
            ages_by_objects,
        }
    }

    fn count(&mut self, key: u32) {
        self.nodes.set_count(key, self.nodes.count(key) + 1);
    }

    /// A hit in the main cache: promoted, and what is too much goes down.
    fn hit_main(&mut self, key: u32, queue: u8) {
        if queue == UPPER {
            self.upper.renew(&mut self.nodes, key);
        } else {
            self.lower.remove(&mut self.nodes, key);
            self.upper.push(&mut self.nodes, key);
            while self.upper.bytes() > self.upper_bytes {
                self.cool();
            }
        }
        self.count(key);
        self.counted += 1;
        let units = match self.ages_by_objects {
            true => self.lower.len() + self.upper.len(),
            false => self.main_bytes,
        };
        if self.counted >= SAMPLE_FACTOR.saturating_mul(units) {
            self.counted = 0;
            self.nodes.halve_counts();
        }
    }

    /// The upper segment's oldest goes to the lower one, whose oldest go for good.
    fn cool(&mut self) {
        if let Some(key) = self.upper.pop(&mut self.nodes) {
            self.lower.push(&mut self.nodes, key);
        }
        while self.lower.bytes() > self.lower_bytes {
            self.lower.pop(&mut self.nodes);
        }
    }

    fn used_main_bytes(&self) -> u64 {
        self.lower.bytes() + self.upper.bytes()
    }

    /// Oldest of the lowest segment that has something.
    fn main_victim(&self) -> u32 {
        if self.lower.len() > 0 { self.lower.tail() } else { self.upper.tail() }
    }

    fn evict_main(&mut self) {
        let queue = if self.lower.len() > 0 { &mut self.lower } else { &mut self.upper };
        queue.pop(&mut self.nodes);
    }

    /// An object of no queue comes into the lowest segment with room, if need be after others left.
    fn insert_main(&mut self, key: u32) {
        let bytes = self.nodes.size(key);
        if self.lower.bytes() + bytes <= self.lower_bytes {
            self.lower.push(&mut self.nodes, key);
        } else if self.upper.bytes() + bytes <= self.upper_bytes {
            self.upper.push(&mut self.nodes, key);
        } else {
            while self.used_main_bytes() > self.main_bytes - bytes {
                self.evict_main();
            }
            self.lower.push(&mut self.nodes, key);
        }
    }

    /// Moves victims of the window into the main cache while it has room, until one object is gone.
    fn evict(&mut self) {
        loop {
            let victim = self.window.tail();
            if self.window.len() == 0 {
                return self.evict_main();
            }
            self.window.remove(&mut self.nodes, victim);
            let has_room = self.used_main_bytes() + self.nodes.size(victim) <= self.main_bytes;
            let wins = !has_room && {
                // With nothing in it the main cache has nobody to lose.
                let rival = self.main_victim();
                let rival_count = if rival == NONE { 0 } else { self.nodes.count(rival) };
                self.nodes.count(victim) > rival_count
            };
            if wins {
                self.evict_main();
            }
            if has_room || wins {
                self.insert_main(victim);
            }
            self.count(victim);
            if !has_room {
                return;
            }
        }
    }
}

impl Policy for WTinyLfu {
    #[inline]
    fn get(&mut self, step: &Step) -> bool {
        let key = step.key;
        match self.nodes.queue(key) {
            WINDOW => {
                self.window.renew(&mut self.nodes, key);
                return true;
            }
            queue @ (LOWER | UPPER) => {
                self.hit_main(key, queue);
                return true;
            }
            _ => {}
        }
        if step.size_bytes > self.window_bytes || step.size_bytes > self.lower_bytes {
            return false;
        }
        while self.used_bytes() > self.capacity_bytes - step.size_bytes {
            self.evict();
        }
        self.nodes.reach(key);
        self.nodes.set_size(key, step.size_bytes);
        self.window.push(&mut self.nodes, key);
        self.count(key);
        false
    }

    fn delete(&mut self, key: u32) {
        match self.nodes.queue(key) {
            WINDOW => self.window.remove(&mut self.nodes, key),
            LOWER => self.lower.remove(&mut self.nodes, key),
            UPPER => self.upper.remove(&mut self.nodes, key),
            _ => {}
        }
    }

    fn used_bytes(&self) -> u64 {
        self.window.bytes() + self.used_main_bytes()
    }

    fn objects(&self) -> u64 {
        self.window.len() + self.lower.len() + self.upper.len()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::NEVER;

    /// Room for nine objects of 1,000 bytes in the main cache, three of which are there: they age
    /// after 96 hits. By bytes they would after 288,000.
    #[test]
    fn counts_age_by_objects_if_asked() {
        let of = |ages_by_objects| {
            let mut cache = WTinyLfu::new(10_000, 0.1, ages_by_objects);
            for key in 0..3 {
                cache.nodes.reach(key);
                cache.nodes.set_size(key, 1_000);
                cache.insert_main(key);
                cache.count(key);
            }
            for _ in 0..96 {
                cache.get(&Step::get(0, 1_000, NEVER));
            }
            cache.nodes.count(0)
        };
        assert_eq!((of(false), of(true)), (97, 48));
    }
}
