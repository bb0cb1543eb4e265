//! 2Q (Johnson and Shasha, VLDB 1994), the full version: what is new waits in a FIFO queue (the
//! paper's A1in), what leaves it is remembered by its key (A1out), and only what is asked for while
//! it is remembered comes into the LRU queue (Am). A hit in the FIFO queue changes nothing.
//!
//! Decides as libCacheSim does. The paper has pages of one size; with sizes in bytes, Kin and Kout
//! are shares of the capacity in bytes, and these are its deviations there: nothing larger than Kin
//! is taken; nothing larger than Kout is remembered; and the LRU queue has no more than what Kin
//! leaves, where the paper lets it have what the FIFO queue, less its last object, happens to
//! leave. Beyond libCacheSim: the FIFO queue gives what the LRU queue has not, and not only while
//! it is longer than Kin, so that shares of more than a half run.

use super::lists::Nodes;
use super::one_queue::ObjectQueue;
use super::rings::Ring;
use super::{Policy, Step};

/// A1in, Am and A1out.
const NEW: u8 = 1;
const MAIN: u8 = 2;
const GHOST: u8 = 3;

pub(crate) struct TwoQ {
    nodes: Nodes<u32>,
    new: Ring,
    main: Ring,
    ghosts: Ring,
    capacity_bytes: u64,
    new_bytes: u64,
    main_bytes: u64,
    ghost_bytes: u64,
}

impl TwoQ {
    /// Kin and Kout as shares of the capacity.
    pub(crate) fn new(capacity_bytes: u64, kin: f64, kout: f64) -> TwoQ {
        let share = |share: f64| ((capacity_bytes as f64 * share) as u64).min(capacity_bytes);
        let new_bytes = share(kin);
        TwoQ {
            nodes: Nodes::default(),
            new: Ring::new(NEW),
            main: Ring::new(MAIN),
            ghosts: Ring::new(GHOST),
            capacity_bytes,
            new_bytes,
            main_bytes: capacity_bytes - new_bytes,
            ghost_bytes: share(kout),
        }
    }

    fn evict(&mut self) {
        if self.new.bytes() <= self.new_bytes && self.main.len() > 0 {
            self.main.pop(&mut self.nodes);
        } else if let Some(key) = self.new.pop(&mut self.nodes) {
            self.remember(key);
        }
    }

    fn remember(&mut self, key: u32) {
        let bytes = self.nodes.size(key);
        if bytes > self.ghost_bytes {
            return;
        }
        while self.ghosts.bytes() > self.ghost_bytes - bytes {
            self.ghosts.pop(&mut self.nodes);
        }
        self.ghosts.push(&mut self.nodes, key);
    }

    /// An object that was remembered comes in, room having been made.
    fn insert_main(&mut self, key: u32, size_bytes: u64) {
        if size_bytes > self.main_bytes {
            return;
        }
        while self.main.bytes() > self.main_bytes - size_bytes {
            self.main.pop(&mut self.nodes);
        }
        self.nodes.set_size(key, size_bytes);
        self.main.push(&mut self.nodes, key);
    }
}

impl Policy for TwoQ {
    #[inline]
    fn get(&mut self, step: &Step) -> bool {
        let key = step.key;
        let queue = self.nodes.queue(key);
        match queue {
            NEW => return true,
            MAIN => {
                self.main.renew(&mut self.nodes, key);
                return true;
            }
            GHOST => self.ghosts.remove(&mut self.nodes, key),
            _ => {}
        }
        if step.size_bytes > self.new_bytes {
            return false;
        }
        while self.used_bytes() > self.capacity_bytes - step.size_bytes {
            self.evict();
        }
        if queue == GHOST {
            self.insert_main(key, step.size_bytes);
        } else {
            self.nodes.reach(key);
            self.nodes.set_size(key, step.size_bytes);
            self.new.push(&mut self.nodes, key);
        }
        false
    }

    fn delete(&mut self, key: u32) {
        match self.nodes.queue(key) {
            NEW => self.new.remove(&mut self.nodes, key),
            MAIN => self.main.remove(&mut self.nodes, key),
            GHOST => self.ghosts.remove(&mut self.nodes, key),
            _ => {}
        }
    }

    fn used_bytes(&self) -> u64 {
        self.new.bytes() + self.main.bytes()
    }

    fn objects(&self) -> u64 {
        self.new.len() + self.main.len()
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

    /// Worked out on paper, four pages, so that Kin is 1 and Kout 2. 0 to 3 fill the cache; 0 hits
    /// where it is, which spares it nothing: 4 makes a ghost of it. 0 comes back into the main
    /// queue and puts out 1, 1 likewise and puts out 2, 0 hits.
    #[test]
    fn what_is_remembered_comes_into_the_main_queue() {
        let mut two_q = TwoQ::new(4, 0.25, 0.5);
        let requests = [0, 1, 2, 3, 0, 4, 0, 1, 0];
        let hits = requests.map(|key| two_q.get(&Step::get(key, 1, NEVER)));
        let expected = [false, false, false, false, true, false, false, false, true];
        assert_eq!(hits, expected);
        assert_eq!((two_q.main.len(), two_q.new.len(), two_q.ghosts.len()), (2, 2, 1));
    }

    /// All of the capacity for what is new, which the main queue then has none of.
    #[test]
    fn any_share_runs() {
        for (kin, kout) in [(1.0, 1.0), (0.0, 0.0), (0.9, 0.1), (1.0, 0.0)] {
            let mut two_q = TwoQ::new(10, kin, kout);
            for n in 0..200 {
                two_q.get(&Step::get(n * n % 17, u64::from(n % 11) + 1, NEVER));
                assert!(two_q.used_bytes() <= 10);
            }
        }
    }
}
