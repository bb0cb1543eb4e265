//! Belady's MIN (1966): lets go what will be asked for last. Every request comes in, as with the
//! other policies here, so with objects of one size no policy can do better; with different sizes it
//! is a strong rival, not a bound. Next uses are in the steps, computed by the lab. Of objects that are
//! never asked for again the one with the greatest key, the newest name, goes first.

use super::heap::{ABSENT, Heap, Rank, THERE};
use super::lists::Nodes;
use super::{Policy, Step};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct NextUse {
    at: u32,
    key: u32,
}

impl Rank for NextUse {
    fn key(self) -> u32 {
        self.key
    }

    #[inline]
    fn is_before(self, other: NextUse) -> bool {
        self > other
    }
}

pub(crate) struct Belady {
    nodes: Nodes<u32>,
    by_next_use: Heap<NextUse>,
    used_bytes: u64,
    capacity_bytes: u64,
}

impl Belady {
    pub(crate) fn new(capacity_bytes: u64) -> Belady {
        let (nodes, by_next_use) = (Nodes::default(), Heap::new());
        Belady { nodes, by_next_use, used_bytes: 0, capacity_bytes }
    }

    fn forget(&mut self, key: u32) {
        self.used_bytes -= self.nodes.size(key);
        self.nodes.set_queue(key, ABSENT);
    }
}

impl Policy for Belady {
    fn get(&mut self, step: &Step) -> bool {
        let key = step.key;
        let next = NextUse { at: step.next_use, key };
        if self.nodes.queue(key) == THERE {
            self.by_next_use.change(&mut self.nodes, next);
            return true;
        }
        if step.size_bytes > self.capacity_bytes {
            return false;
        }
        while self.used_bytes > self.capacity_bytes - step.size_bytes {
            let Some(last) = self.by_next_use.pop(&mut self.nodes) else { break };
            self.forget(last.key);
        }
        self.nodes.reach(key);
        self.nodes.set_size(key, step.size_bytes);
        self.nodes.set_queue(key, THERE);
        self.used_bytes += step.size_bytes;
        self.by_next_use.push(&mut self.nodes, next);
        false
    }

    fn delete(&mut self, key: u32) {
        if self.nodes.queue(key) == THERE {
            self.by_next_use.remove(&mut self.nodes, key);
            self.forget(key);
        }
    }

    fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn objects(&self) -> u64 {
        self.by_next_use.len() as u64
    }

    #[inline]
    fn fetch(&self, key: u32) {
        self.nodes.fetch(key);
    }
}
