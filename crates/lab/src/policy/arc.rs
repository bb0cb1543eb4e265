//! ARC (Megiddo and Modha, FAST 2003): one LRU queue of what was asked for once, one of what was
//! asked for again, each with a queue of ghosts, keys that left it. A request for a ghost says that
//! its queue was too short, and moves the target that the first queue's length is held to.
//!
//! Decides as libCacheSim does. The paper has pages of one size; with sizes in bytes all lengths
//! are bytes, and these are its deviations there:
//! - The target moves by the paper's step, 1 or the ratio of both ghost queues. That is pages in
//!   the paper and bytes here, so that it hardly moves where objects are large: what was asked for
//!   once goes first then. With `by-size=1` a step counts as many bytes as the ghost that was asked
//!   for has, as in ZFS, which is what the paper means where all objects are of one size.
//!   libCacheSim has no such thing.
//! - A ghost that is too much goes for each object that goes, not until the ghosts are few enough:
//!   where small objects are followed by large ones they may stand for more than the paper's two
//!   capacities. Here they end at 2^63 bytes for each queue.
//! - Where the second queue is empty the first gives, whatever the target.
//! - An object larger than the cache passes by. The ghost it was is forgotten all the same.

use super::lists::Nodes;
use super::one_queue::ObjectQueue;
use super::rings::Ring;
use super::{Policy, Step};

/// The paper's T1, T2, B1 and B2.
const ONCE: u8 = 1;
const AGAIN: u8 = 2;
const ONCE_GHOST: u8 = 3;
const AGAIN_GHOST: u8 = 4;
/// Bytes that the ghosts of a queue stand for at most, so that no sum of two overflows.
const GHOST_BYTES_MAX: u64 = u64::MAX / 2;

pub(crate) struct Arc {
    nodes: Nodes<u32>,
    once: Ring,
    again: Ring,
    once_ghosts: Ring,
    again_ghosts: Ring,
    capacity_bytes: u64,
    /// The paper's p, which may have a fraction.
    target_bytes: f64,
    by_size: bool,
}

impl Arc {
    pub(crate) fn new(capacity_bytes: u64, by_size: bool) -> Arc {
        Arc {
            nodes: Nodes::default(),
            once: Ring::new(ONCE),
            again: Ring::new(AGAIN),
            once_ghosts: Ring::new(ONCE_GHOST),
            again_ghosts: Ring::new(AGAIN_GHOST),
            capacity_bytes,
            target_bytes: 0.0,
            by_size,
        }
    }

    /// The step for a ghost: greater than 1 where its own queue is the shorter one.
    fn step(&self, key: u32, own: &Ring, other: &Ring) -> f64 {
        let ratio = other.bytes() as f64 / own.bytes() as f64;
        let unit = if self.by_size { self.nodes.size(key) as f64 } else { 1.0 };
        ratio.max(1.0) * unit
    }

    /// A ghost was asked for: the target moves, and it is a ghost no more.
    fn adapt(&mut self, key: u32, queue: u8) {
        if queue == ONCE_GHOST {
            let step = self.step(key, &self.once_ghosts, &self.again_ghosts);
            self.target_bytes = (self.target_bytes + step).min(self.capacity_bytes as f64);
            self.once_ghosts.remove(&mut self.nodes, key);
        } else {
            let step = self.step(key, &self.again_ghosts, &self.once_ghosts);
            self.target_bytes = (self.target_bytes - step).max(0.0);
            self.again_ghosts.remove(&mut self.nodes, key);
        }
    }

    /// Makes room for what comes, of which `queue` says if it was a ghost.
    fn evict(&mut self, size_bytes: u64, queue: u8) {
        if queue == ONCE_GHOST || queue == AGAIN_GHOST {
            return self.replace(queue == AGAIN_GHOST);
        }
        // What is there is no more than 2^63 - 1 bytes, and so are ghosts and what comes.
        let once = self.once.bytes() + self.once_ghosts.bytes();
        let again = self.again.bytes() + self.again_ghosts.bytes();
        let is_full = u128::from(once) + u128::from(size_bytes) > u128::from(self.capacity_bytes);
        if is_full && self.once_ghosts.len() == 0 {
            self.once.pop(&mut self.nodes);
            return;
        }
        if is_full {
            self.once_ghosts.pop(&mut self.nodes);
        } else if u128::from(once) + u128::from(again) >= 2 * u128::from(self.capacity_bytes) {
            self.again_ghosts.pop(&mut self.nodes);
        }
        self.replace(false);
    }

    /// One object becomes a ghost: of the first queue if that is longer than its target.
    fn replace(&mut self, for_again_ghost: bool) {
        let once = self.once.bytes() as f64;
        let is_longer = once > self.target_bytes || (once == self.target_bytes && for_again_ghost);
        let (queue, ghosts) = if (self.once.bytes() > 0 && is_longer) || self.again.bytes() == 0 {
            (&mut self.once, &mut self.once_ghosts)
        } else {
            (&mut self.again, &mut self.again_ghosts)
        };
        let Some(key) = queue.pop(&mut self.nodes) else { return };
        let bytes = self.nodes.size(key);
        while ghosts.bytes() > GHOST_BYTES_MAX - bytes {
            ghosts.pop(&mut self.nodes);
        }
        ghosts.push(&mut self.nodes, key);
    }
}

impl Policy for Arc {
    #[inline]
    fn get(&mut self, step: &Step) -> bool {
        let key = step.key;
        let queue = self.nodes.queue(key);
        match queue {
            ONCE => {
                self.once.remove(&mut self.nodes, key);
                self.again.push(&mut self.nodes, key);
                return true;
            }
            AGAIN => {
                self.again.renew(&mut self.nodes, key);
                return true;
            }
            ONCE_GHOST | AGAIN_GHOST => self.adapt(key, queue),
            _ => {}
        }
        if step.size_bytes > self.capacity_bytes {
            return false;
        }
        while self.used_bytes() > self.capacity_bytes - step.size_bytes {
            self.evict(step.size_bytes, queue);
        }
        self.nodes.reach(key);
        self.nodes.set_size(key, step.size_bytes);
        let comes_back = queue == ONCE_GHOST || queue == AGAIN_GHOST;
        let queue = if comes_back { &mut self.again } else { &mut self.once };
        queue.push(&mut self.nodes, key);
        false
    }

    fn delete(&mut self, key: u32) {
        match self.nodes.queue(key) {
            ONCE => self.once.remove(&mut self.nodes, key),
            AGAIN => self.again.remove(&mut self.nodes, key),
            ONCE_GHOST => self.once_ghosts.remove(&mut self.nodes, key),
            AGAIN_GHOST => self.again_ghosts.remove(&mut self.nodes, key),
            _ => {}
        }
    }

    fn used_bytes(&self) -> u64 {
        self.once.bytes() + self.again.bytes()
    }

    fn objects(&self) -> u64 {
        self.once.len() + self.again.len()
    }

    #[inline]
    fn fetch(&self, key: u32) {
        self.nodes.fetch(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::NEVER;

    /// Worked out on paper, two pages: a comes and is hit, b comes; c makes a ghost of b (T1 is
    /// longer than p = 0). b is a ghost of T1: p = 1, and as T1, which has c, is no longer than
    /// that, a gives its place. c hits, since p spared it; a is a ghost of T2.
    #[test]
    fn a_ghost_of_what_was_asked_for_once_spares_the_next_of_them() {
        let mut arc = Arc::new(2, false);
        let hits = [0, 0, 1, 2, 1, 2, 0].map(|key| arc.get(&Step::get(key, 1, NEVER)));
        assert_eq!(hits, [false, true, false, false, false, true, false]);
        assert!(arc.target_bytes < 1.0, "{}", arc.target_bytes);
    }

    /// Ten bytes a page: by bytes the target moves by one, by size by ten, as the pages do.
    #[test]
    fn by_size_all_objects_of_one_size_are_pages() {
        let mut rng = fastrand::Rng::with_seed(4);
        let keys: Vec<u32> = (0..5_000).map(|n| n / 4 + rng.u32(0..12)).collect();
        let misses = |capacity, size, by_size| {
            let mut arc = Arc::new(capacity, by_size);
            let miss = |key: &&u32| !arc.get(&Step::get(**key, size, NEVER));
            keys.iter().filter(miss).count()
        };
        assert_eq!(misses(60, 10, true), misses(6, 1, false));
        assert_ne!(misses(60, 10, false), misses(6, 1, false));
    }

    /// Small ghosts are followed by objects near the greatest capacity there is.
    #[test]
    fn ghosts_of_the_greatest_sizes_have_a_sum() {
        let capacity = crate::policy::registry::CAPACITY_BYTES_MAX;
        let mut arc = Arc::new(capacity, true);
        let mut get = |key, size| arc.get(&Step::get(key, size, NEVER));
        for key in 0..50 {
            get(key, 1);
            get(key, 1);
        }
        for key in 50..150 {
            get(key, capacity / 2);
            get(key, capacity / 2);
            get(key + 150, capacity / 3 * 2);
            get(key.saturating_sub(3), capacity / 2);
        }
        assert!(arc.used_bytes() <= capacity);
    }
}
