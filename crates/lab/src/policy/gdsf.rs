//! Greedy-Dual-Size-Frequency (Cherkasova 1998): lets go the object with the smallest
//! `L + requests / size`, where L is that of the object let go last; of equals the one asked for
//! longest ago. The new object competes with those that are there, and may be the first to go.
//! Priorities are scaled by 10^6, as in libCacheSim, which keeps their rounding alike.

use std::collections::BTreeSet;

use super::{Policy, Step};

const SCALE: f64 = 1.0e6;

/// Where an object stands: priority (its bits order like itself, being positive), last request, key.
type Rank = (u64, u64, u32);

#[derive(Debug, Clone, Copy)]
struct Held {
    size_bytes: u64,
    priority: f64,
    last_request: u64,
    requests: u32,
}

const ABSENT: Held = Held { size_bytes: 0, priority: 0.0, last_request: 0, requests: 0 };

pub(crate) struct Gdsf {
    /// By key; no requests: not there.
    held: Vec<Held>,
    ranks: BTreeSet<Rank>,
    used_bytes: u64,
    capacity_bytes: u64,
    /// L.
    inflation: f64,
    requests: u64,
}

impl Gdsf {
    pub(crate) fn new(capacity_bytes: u64) -> Gdsf {
        Gdsf {
            held: Vec::new(),
            ranks: BTreeSet::new(),
            used_bytes: 0,
            capacity_bytes,
            inflation: 0.0,
            requests: 0,
        }
    }

    fn rank(held: &Held, key: u32) -> Rank {
        (held.priority.to_bits(), held.last_request, key)
    }

    fn rise(&mut self, key: u32) {
        let held = &mut self.held[key as usize];
        held.requests = held.requests.saturating_add(1);
        // An object of no bytes costs nothing to keep: it ranks above all others.
        held.priority = self.inflation + f64::from(held.requests) * SCALE / held.size_bytes as f64;
        held.last_request = self.requests;
        self.ranks.insert(Gdsf::rank(held, key));
    }

    fn evict(&mut self) {
        let Some((priority, _, key)) = self.ranks.pop_first() else { return };
        self.inflation = f64::from_bits(priority);
        self.used_bytes -= self.held[key as usize].size_bytes;
        self.held[key as usize] = ABSENT;
    }
}

impl Policy for Gdsf {
    fn get(&mut self, step: &Step) -> bool {
        self.requests += 1;
        let at = step.key as usize;
        if at >= self.held.len() {
            self.held.resize(at + 1, ABSENT);
        }
        if self.held[at].requests > 0 {
            self.ranks.remove(&Gdsf::rank(&self.held[at], step.key));
            self.rise(step.key);
            return true;
        }
        if step.size_bytes > self.capacity_bytes {
            return false;
        }
        self.held[at].size_bytes = step.size_bytes;
        self.used_bytes += step.size_bytes;
        self.rise(step.key);
        while self.used_bytes > self.capacity_bytes {
            self.evict();
        }
        false
    }

    fn delete(&mut self, key: u32) {
        let Some(held) = self.held.get_mut(key as usize).filter(|held| held.requests > 0) else {
            return;
        };
        self.ranks.remove(&Gdsf::rank(held, key));
        self.used_bytes -= held.size_bytes;
        *held = ABSENT;
    }

    fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn objects(&self) -> u64 {
        self.ranks.len() as u64
    }
}
