//! LIRS (Jiang and Zhang, SIGMETRICS 2002): an object is worth keeping by how many others were
//! asked for between its last two requests, not since the last. Those for which that is few (LIR)
//! have nearly all of the cache; what else is there (HIR) waits in a short queue, the paper's Q,
//! and becomes LIR if it is asked for again before the LIR object that was asked for longest ago.
//!
//! The paper's stack S has LIR objects, and HIR ones, also such as have left (ghosts), that were
//! asked for since its bottom, the oldest LIR object, was. Here nothing but LIR objects lies in it:
//! who else is in S follows from the numbers of last requests, and pruning S takes nothing. Ghosts
//! wait in a queue of their own, to be counted: those of them that are in S become ghosts in the
//! order of their last requests, so the next to be pruned is the oldest.
//!
//! The paper has pages of one size, for which this is what it says. With sizes in bytes:
//! - LIR objects have all but `hir` (a hundredth) of the capacity, HIR ones what those leave.
//! - What is too much for LIR objects makes the oldest of them HIR, until it is not. An object
//!   larger than all of them may be stays HIR.
//! - Where an object needs more room than HIR objects have, the oldest LIR ones are let go.
//! - What is new is LIR, as in the paper, until the first that finds no room as that; again, which
//!   the paper does not need, once none is LIR any more.
//! - Ghosts stand for `history` times the capacity at most; the paper only says that S can be
//!   bounded.
//!
//! libCacheSim's decides otherwise, see docs/lab/README.md.

use super::lists::{NONE, Nodes, Queue};
use super::{Policy, Step};

const LIR: u8 = 1;
const HIR: u8 = 2;
const GHOST: u8 = 3;
/// Bytes that ghosts stand for at most, so that no sum of two overflows.
const GHOST_BYTES_MAX: u64 = u64::MAX / 2;

pub(crate) struct Lirs {
    /// Their counts are the higher bits of the number of the last request.
    nodes: Nodes,
    /// The lower ones.
    last_requests: Vec<u32>,
    /// In the order of last requests, and so are ghosts.
    lir: Queue,
    hir: Queue,
    ghosts: Queue,
    capacity_bytes: u64,
    lir_bytes_max: u64,
    ghost_bytes_max: u64,
    /// What is new is LIR.
    is_filling: bool,
    requests: u64,
}

impl Lirs {
    /// Room for HIR objects, as a share of the capacity, and what ghosts may stand for, in
    /// capacities.
    pub(crate) fn new(capacity_bytes: u64, hir: f64, history: f64) -> Lirs {
        let hir_bytes = ((capacity_bytes as f64 * hir) as u64).clamp(1, capacity_bytes.max(1));
        Lirs {
            nodes: Nodes::default(),
            last_requests: Vec::new(),
            lir: Queue::new(LIR),
            hir: Queue::new(HIR),
            ghosts: Queue::new(GHOST),
            capacity_bytes,
            lir_bytes_max: capacity_bytes.saturating_sub(hir_bytes),
            ghost_bytes_max: ((capacity_bytes as f64 * history) as u64).min(GHOST_BYTES_MAX),
            is_filling: true,
            requests: 0,
        }
    }

    /// Notes that an object is asked for now.
    fn stamp(&mut self, key: u32) {
        self.nodes.set_count(key, (self.requests >> u32::BITS) as u32);
        self.last_requests[key as usize] = self.requests as u32;
    }

    fn last_request(&self, key: u32) -> u64 {
        let low = self.last_requests[key as usize];
        u64::from(self.nodes.count(key)) << u32::BITS | u64::from(low)
    }

    /// Whether an HIR object is in S.
    fn is_recent(&self, key: u32) -> bool {
        let bottom = self.lir.tail();
        bottom != NONE && self.last_request(key) > self.last_request(bottom)
    }

    /// Forgets the ghosts that are in S no more.
    fn prune(&mut self) {
        while self.ghosts.len() > 0 && !self.is_recent(self.ghosts.tail()) {
            self.ghosts.pop(&mut self.nodes);
        }
    }

    /// An object of no queue becomes LIR, being asked for.
    fn promote(&mut self, key: u32) {
        self.lir.push(&mut self.nodes, key);
        while self.lir.bytes() > self.lir_bytes_max {
            self.demote();
        }
    }

    /// The oldest LIR object becomes HIR.
    fn demote(&mut self) {
        if let Some(key) = self.lir.pop(&mut self.nodes) {
            self.hir.push(&mut self.nodes, key);
            self.prune();
        }
    }

    fn hit_hir(&mut self, key: u32) {
        let becomes_lir = self.is_recent(key) && self.nodes.size(key) <= self.lir_bytes_max;
        self.stamp(key);
        if becomes_lir {
            self.hir.remove(&mut self.nodes, key);
            self.promote(key);
        } else {
            self.hir.renew(&mut self.nodes, key);
        }
    }

    fn evict(&mut self) {
        if self.hir.len() == 0 {
            self.demote();
        }
        let Some(key) = self.hir.pop(&mut self.nodes) else { return };
        let bytes = self.nodes.size(key);
        if !self.is_recent(key) || bytes > self.ghost_bytes_max {
            return;
        }
        while self.ghosts.bytes() > self.ghost_bytes_max - bytes {
            self.ghosts.pop(&mut self.nodes);
        }
        self.ghosts.push(&mut self.nodes, key);
    }

    /// Whether an object of that size that comes is LIR.
    fn comes_as_lir(&mut self, size_bytes: u64, was_ghost: bool) -> bool {
        self.is_filling |= self.lir.len() == 0;
        if was_ghost {
            return size_bytes <= self.lir_bytes_max;
        }
        self.is_filling &= self.lir.bytes() + size_bytes <= self.lir_bytes_max;
        self.is_filling
    }
}

impl Policy for Lirs {
    fn get(&mut self, step: &Step) -> bool {
        self.requests += 1;
        let (key, size_bytes) = (step.key, step.size_bytes);
        let queue = self.nodes.queue(key);
        match queue {
            LIR => {
                self.lir.renew(&mut self.nodes, key);
                self.stamp(key);
                self.prune();
                return true;
            }
            HIR => {
                self.hit_hir(key);
                return true;
            }
            GHOST => self.ghosts.remove(&mut self.nodes, key),
            _ => {}
        }
        if size_bytes > self.capacity_bytes {
            return false;
        }
        while self.used_bytes() > self.capacity_bytes - size_bytes {
            self.evict();
        }
        self.nodes.reach(key);
        if self.last_requests.len() <= key as usize {
            self.last_requests.resize(key as usize + 1, 0);
        }
        self.nodes.set_size(key, size_bytes);
        self.stamp(key);
        if self.comes_as_lir(size_bytes, queue == GHOST) {
            self.promote(key);
        } else {
            self.hir.push(&mut self.nodes, key);
        }
        false
    }

    fn delete(&mut self, key: u32) {
        match self.nodes.queue(key) {
            LIR => {
                self.lir.remove(&mut self.nodes, key);
                self.prune();
            }
            HIR => self.hir.remove(&mut self.nodes, key),
            GHOST => self.ghosts.remove(&mut self.nodes, key),
            _ => {}
        }
    }

    fn used_bytes(&self) -> u64 {
        self.lir.bytes() + self.hir.bytes()
    }

    fn objects(&self) -> u64 {
        self.lir.len() + self.hir.len()
    }

    #[inline]
    fn fetch(&self, key: u32) {
        self.nodes.fetch(key);
        crate::cpu_prefetch::fetch(&self.last_requests, key as usize);
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

    /// Worked out on paper, three pages, one for HIR. 0 and 1 are LIR, 2 HIR; 3 makes a ghost of 2.
    /// 2 comes back while it is in S: it is LIR, 0 at the bottom becomes HIR, and 3 has left for
    /// it. 0 hits, but is not in S: it stays HIR. 4 makes a ghost of it; 2 and 1 are there still,
    /// and so much is between the last two requests for 0 that 1 has to give its place as it comes
    /// back.
    #[test]
    fn what_comes_back_soon_takes_the_place_of_the_oldest() {
        let mut lirs = Lirs::new(3, 0.3, 1.0);
        let hits = [0, 1, 2, 3, 2, 0, 4, 2, 0].map(|key| lirs.get(&Step::get(key, 1, NEVER)));
        assert_eq!(hits, [false, false, false, false, false, true, false, true, false]);
        let queues = [0, 1, 2, 3, 4].map(|key| lirs.nodes.queue(key));
        assert_eq!(queues, [LIR, HIR, LIR, 0, 0]);
    }

    /// A loop a little longer than the cache, of which LRU keeps nothing: the LIR pages stay.
    #[test]
    fn a_loop_longer_than_the_cache_hits() {
        let mut lirs = Lirs::new(100, 0.01, 1.0);
        let hits = (0..1100).filter(|n| lirs.get(&Step::get(n % 110, 1, NEVER))).count();
        assert_eq!(hits, 9 * 99);
    }

    /// Numbers of requests that need more than 32 bits keep their order.
    #[test]
    fn last_requests_are_told_apart_for_ever() {
        let mut rng = fastrand::Rng::with_seed(2);
        let (mut one, mut other) = (Lirs::new(20, 0.2, 2.0), Lirs::new(20, 0.2, 2.0));
        other.requests = u64::from(u32::MAX) - 1_000;
        for _ in 0..5_000 {
            let step = Step::get(rng.u32(0..8).min(rng.u32(0..60)), 1, NEVER);
            assert_eq!(one.get(&step), other.get(&step));
        }
    }

    /// No LIR objects, or hardly room for others, or no history.
    #[test]
    fn any_share_runs() {
        for (hir, history) in [(1.0, 1.0), (0.0, 0.0), (0.5, 1e6), (0.01, 0.1)] {
            for capacity in [1, 2, 10, crate::policy::registry::CAPACITY_BYTES_MAX] {
                let mut lirs = Lirs::new(capacity, hir, history);
                for n in 0..500_u64 {
                    let size = if capacity > 10 { capacity / (n % 7 + 1) } else { n % 11 + 1 };
                    lirs.get(&Step::get((n * n % 17) as u32, size, NEVER));
                    assert!(lirs.used_bytes() <= capacity);
                    assert!(lirs.lir.bytes() <= lirs.lir_bytes_max);
                    assert!(lirs.ghosts.bytes() <= lirs.ghost_bytes_max);
                }
            }
        }
    }
}
