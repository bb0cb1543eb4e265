//! Greedy-Dual-Size-Frequency (Cherkasova 1998): lets go the object with the smallest
//! `L + requests / size`, where L is that of the object let go last; of equals the one asked for
//! longest ago. The new object competes with those that are there, and may be the first to go.
//! Priorities are scaled by 10^6, as in libCacheSim, which keeps their rounding alike. Counts of requests
//! end at 16 million.

use super::heap::{ABSENT, Heap, Rank, THERE};
use super::lists::Nodes;
use super::{Policy, Step};

const SCALE: f64 = 1.0e6;
/// Where an object stands: by priority (its bits order like itself, being positive), then by last request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Standing {
    priority: u64,
    /// Its number, modulo 2^32: among equals of longer traces the order is lost.
    last_request: u32,
    key: u32,
}

const _: () = assert!(size_of::<Standing>() == 16);

impl Rank for Standing {
    fn key(self) -> u32 {
        self.key
    }

    #[inline]
    fn is_before(self, other: Standing) -> bool {
        self < other
    }
}

pub(crate) struct Gdsf {
    /// Their counts are requests.
    nodes: Nodes<u32>,
    ranks: Heap<Standing>,
    used_bytes: u64,
    capacity_bytes: u64,
    /// L.
    inflation: f64,
    requests: u32,
}

impl Gdsf {
    pub(crate) fn new(capacity_bytes: u64) -> Gdsf {
        Gdsf {
            nodes: Nodes::default(),
            ranks: Heap::new(),
            used_bytes: 0,
            capacity_bytes,
            inflation: 0.0,
            requests: 0,
        }
    }

    /// How an object stands that is asked for now, for so many times.
    fn standing(&self, key: u32, times: u32) -> Standing {
        // An object of no bytes costs nothing to keep: it ranks above all others.
        let priority = self.inflation + f64::from(times) * SCALE / self.nodes.size(key) as f64;
        Standing { priority: priority.to_bits(), last_request: self.requests, key }
    }

    fn evict(&mut self) {
        let Some(first) = self.ranks.pop(&mut self.nodes) else { return };
        self.inflation = f64::from_bits(first.priority);
        self.used_bytes -= self.nodes.size(first.key);
        self.nodes.set_queue(first.key, ABSENT);
    }
}

impl Policy for Gdsf {
    fn get(&mut self, step: &Step) -> bool {
        self.requests = self.requests.wrapping_add(1);
        let key = step.key;
        if self.nodes.queue(key) == THERE {
            let times = self.nodes.count(key) + 1;
            self.nodes.set_count(key, times);
            let standing = self.standing(key, times);
            self.ranks.change(&mut self.nodes, standing);
            return true;
        }
        if step.size_bytes > self.capacity_bytes {
            return false;
        }
        self.nodes.reach(key);
        self.nodes.set_size(key, step.size_bytes);
        self.nodes.set_count(key, 1);
        self.nodes.set_queue(key, THERE);
        self.used_bytes += step.size_bytes;
        let standing = self.standing(key, 1);
        self.ranks.push(&mut self.nodes, standing);
        while self.used_bytes > self.capacity_bytes {
            self.evict();
        }
        false
    }

    fn delete(&mut self, key: u32) {
        if self.nodes.queue(key) == THERE {
            self.ranks.remove(&mut self.nodes, key);
            self.used_bytes -= self.nodes.size(key);
            self.nodes.set_queue(key, ABSENT);
        }
    }

    fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn objects(&self) -> u64 {
        self.ranks.len() as u64
    }

    #[inline]
    fn fetch(&self, key: u32) {
        self.nodes.fetch(key);
    }
}
