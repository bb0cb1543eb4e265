//! Greedy-Dual-Size-Frequency (Cherkasova 1998): lets go the object with the smallest
//! `L + requests / size`, where L is that of the object let go last; of equals the one asked for
//! longest ago. The new object competes with those that are there, and may be the first to go.
//! Priorities are scaled by 10^6, as in libCacheSim, which keeps their rounding alike. Counts of
//! requests end at 16 million.

use super::ascending::{Ascending, Standing};
use super::lists::Nodes;
use super::room::Room;
use super::{Policy, Step};

const SCALE: f64 = 1.0e6;

pub(crate) struct Gdsf {
    /// Their counts are requests.
    nodes: Nodes<Standing>,
    /// By priority, whose bits order like itself, being positive. None is below L, and hits raise
    /// it.
    ranks: Ascending,
    room: Room,
    /// L.
    inflation: f64,
    requests: u32,
}

impl Gdsf {
    pub(crate) fn new(capacity_bytes: u64) -> Gdsf {
        Gdsf {
            nodes: Nodes::default(),
            ranks: Ascending::new(),
            room: Room::new(capacity_bytes),
            inflation: 0.0,
            requests: 0,
        }
    }

    /// How an object stands that is asked for now, for so many times.
    fn standing(&self, key: u32, times: u32) -> Standing {
        // An object of no bytes costs nothing to keep: it ranks above all others.
        let priority = self.inflation + f64::from(times) * SCALE / self.nodes.size(key) as f64;
        Standing::new(priority.to_bits(), self.requests)
    }

    fn evict(&mut self) {
        let Some((first, priority)) = self.ranks.pop(&mut self.nodes) else { return };
        self.inflation = f64::from_bits(priority);
        self.room.leave(self.nodes.size(first));
    }
}

impl Policy for Gdsf {
    fn get(&mut self, step: &Step) -> bool {
        self.requests = self.requests.wrapping_add(1);
        let key = step.key;
        if Ascending::holds(&self.nodes, key) {
            let times = self.nodes.count(key) + 1;
            self.nodes.set_count(key, times);
            let standing = self.standing(key, times);
            self.ranks.raise(&mut self.nodes, key, standing);
            return true;
        }
        if !self.room.fits(step.size_bytes) {
            return false;
        }
        self.nodes.reach(key);
        self.nodes.set_size(key, step.size_bytes);
        self.nodes.set_count(key, 1);
        self.room.enter(step.size_bytes);
        let standing = self.standing(key, 1);
        self.ranks.push(&mut self.nodes, key, standing);
        while self.room.is_exceeded() {
            self.evict();
        }
        false
    }

    fn delete(&mut self, key: u32) {
        if Ascending::holds(&self.nodes, key) {
            self.ranks.remove(&mut self.nodes, key);
            self.room.leave(self.nodes.size(key));
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
}
