//! Belady's MIN (1966): lets go what will be asked for last. Every request comes in, as with the
//! other policies here, so with objects of one size no policy can do better; with different sizes it
//! is a strong rival, not a bound. Next uses are in the steps, computed by the lab. Of objects that are
//! never asked for again the one with the greatest key, the newest name, goes first.

use std::collections::BTreeSet;

use super::{Policy, Step};

#[derive(Debug, Clone, Copy)]
struct Held {
    size_bytes: u64,
    next_use: u32,
    is_there: bool,
}

const ABSENT: Held = Held { size_bytes: 0, next_use: 0, is_there: false };

pub(crate) struct Belady {
    held: Vec<Held>,
    /// Next use and key; the last goes first.
    by_next_use: BTreeSet<(u32, u32)>,
    used_bytes: u64,
    capacity_bytes: u64,
}

impl Belady {
    pub(crate) fn new(capacity_bytes: u64) -> Belady {
        Belady { held: Vec::new(), by_next_use: BTreeSet::new(), used_bytes: 0, capacity_bytes }
    }
}

impl Policy for Belady {
    fn get(&mut self, step: &Step) -> bool {
        let at = step.key as usize;
        if at >= self.held.len() {
            self.held.resize(at + 1, ABSENT);
        }
        let held = &mut self.held[at];
        if held.is_there {
            self.by_next_use.remove(&(held.next_use, step.key));
            self.by_next_use.insert((step.next_use, step.key));
            held.next_use = step.next_use;
            return true;
        }
        if step.size_bytes > self.capacity_bytes {
            return false;
        }
        while self.used_bytes > self.capacity_bytes - step.size_bytes {
            let Some((_, key)) = self.by_next_use.pop_last() else { break };
            self.used_bytes -= self.held[key as usize].size_bytes;
            self.held[key as usize] = ABSENT;
        }
        self.held[at] =
            Held { size_bytes: step.size_bytes, next_use: step.next_use, is_there: true };
        self.used_bytes += step.size_bytes;
        self.by_next_use.insert((step.next_use, step.key));
        false
    }

    fn delete(&mut self, key: u32) {
        let Some(held) = self.held.get_mut(key as usize).filter(|held| held.is_there) else {
            return;
        };
        self.by_next_use.remove(&(held.next_use, key));
        self.used_bytes -= held.size_bytes;
        *held = ABSENT;
    }

    fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn objects(&self) -> u64 {
        self.by_next_use.len() as u64
    }
}
