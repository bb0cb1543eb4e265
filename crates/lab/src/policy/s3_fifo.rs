//! S3-FIFO (Yang et al., SOSP 2023): a small queue for what is new, a main queue for what was asked
//! for again while it was there, and a ghost queue of keys that left the small one too early.
//!
//! As in libCacheSim's present version, by which the paper's authors go on: until something was
//! evicted for the first time, objects that find the small queue full go into the main one; an
//! object as large as the whole small queue is not taken, unless its key is in the ghost queue, and
//! a larger one never is; its key leaves the ghost queue all the same.

use super::lists::Nodes;
use super::one_queue::ObjectQueue;
use super::rings::Ring;
use super::{Policy, Step};

const SMALL: u8 = 1;
const MAIN: u8 = 2;
const GHOST: u8 = 3;
/// Counts in the main queue stop here: two bits.
const MAIN_COUNT_MAX: u32 = 3;

/// The paper's parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameters {
    /// Share of the capacity that the small queue has.
    pub(crate) small: f64,
    /// Bytes of objects that the ghost queue remembers, as a share of the capacity.
    pub(crate) ghost: f64,
    /// Hits in the small queue from which on an object moves to the main one.
    pub(crate) threshold: u32,
}

pub(crate) struct S3Fifo {
    nodes: Nodes<u32>,
    small: Ring,
    main: Ring,
    ghost: Ring,
    capacity_bytes: u64,
    small_bytes: u64,
    main_bytes: u64,
    ghost_bytes: u64,
    threshold: u32,
    has_evicted: bool,
}

impl S3Fifo {
    pub(crate) fn new(capacity_bytes: u64, parameters: Parameters) -> S3Fifo {
        let share = |share: f64| (capacity_bytes as f64 * share) as u64;
        let small_bytes = share(parameters.small).min(capacity_bytes);
        S3Fifo {
            nodes: Nodes::default(),
            small: Ring::new(SMALL),
            main: Ring::new(MAIN),
            ghost: Ring::new(GHOST),
            capacity_bytes,
            small_bytes,
            main_bytes: capacity_bytes - small_bytes,
            ghost_bytes: share(parameters.ghost),
            threshold: parameters.threshold,
            has_evicted: false,
        }
    }

    fn evict(&mut self) {
        self.has_evicted = true;
        if self.main.bytes() > self.main_bytes || self.small.len() == 0 {
            self.evict_main();
        } else {
            self.evict_small();
        }
    }

    /// Lets go the first without enough hits; those before it move to the main queue.
    fn evict_small(&mut self) {
        while let Some(key) = self.small.pop(&mut self.nodes) {
            if self.nodes.count(key) < self.threshold {
                return self.remember(key);
            }
            self.nodes.set_count(key, 0);
            self.main.push(&mut self.nodes, key);
        }
    }

    fn remember(&mut self, key: u32) {
        let bytes = self.nodes.size(key);
        if bytes > self.ghost_bytes {
            return;
        }
        while self.ghost.bytes() > self.ghost_bytes - bytes {
            self.ghost.pop(&mut self.nodes);
        }
        self.ghost.push(&mut self.nodes, key);
    }

    fn evict_main(&mut self) {
        while let Some(key) = self.main.pop(&mut self.nodes) {
            let count = self.nodes.count(key).min(MAIN_COUNT_MAX);
            if count == 0 {
                return;
            }
            self.nodes.set_count(key, count - 1);
            self.main.push(&mut self.nodes, key);
        }
    }

    fn insert(&mut self, step: &Step, was_ghost: bool) {
        let full = !self.has_evicted && self.small.bytes() >= self.small_bytes;
        if !was_ghost && step.size_bytes >= self.small_bytes {
            return;
        }
        self.nodes.reach(step.key);
        self.nodes.set_size(step.key, step.size_bytes);
        self.nodes.set_count(step.key, 0);
        let queue = if was_ghost || full { &mut self.main } else { &mut self.small };
        queue.push(&mut self.nodes, step.key);
    }
}

impl Policy for S3Fifo {
    #[inline]
    fn get(&mut self, step: &Step) -> bool {
        let key = step.key;
        let queue = self.nodes.queue(key);
        if queue == SMALL || queue == MAIN {
            let count = self.nodes.count(key);
            self.nodes.set_count(key, count + 1);
            return true;
        }
        if queue == GHOST {
            self.ghost.remove(&mut self.nodes, key);
        }
        if step.size_bytes > self.small_bytes {
            return false;
        }
        while self.used_bytes() > self.capacity_bytes - step.size_bytes {
            self.evict();
        }
        self.insert(step, queue == GHOST);
        false
    }

    fn delete(&mut self, key: u32) {
        match self.nodes.queue(key) {
            SMALL => self.small.remove(&mut self.nodes, key),
            MAIN => self.main.remove(&mut self.nodes, key),
            GHOST => self.ghost.remove(&mut self.nodes, key),
            _ => {}
        }
    }

    fn used_bytes(&self) -> u64 {
        self.small.bytes() + self.main.bytes()
    }

    fn objects(&self) -> u64 {
        self.small.len() + self.main.len()
    }

    #[inline]
    fn fetch(&self, key: u32) {
        self.nodes.fetch(key);
    }
}
