//! Policies of the store written for being read, as `naive.rs`: memory as one line, the disk as a
//! row of segments.

use super::naive::Naive;
use crate::policy::Step;

struct Held {
    key: u32,
    size: u64,
    hits: u32,
}

fn bytes(held: &[Held]) -> u64 {
    held.iter().map(|one| one.size).sum()
}

fn hit<'a>(mut held: impl Iterator<Item = &'a mut Held>, key: u32) -> bool {
    let found = held.find(|one| one.key == key);
    found.map(|one| one.hits += 1).is_some()
}

/// Whoever is oldest and was hit goes round once more: with no hits (LRU), or with one if there
/// were three or more (CLOCK).
struct Memory {
    capacity: u64,
    line: Vec<Held>,
    remembers_many: bool,
}

impl Naive for Memory {
    fn get(&mut self, step: &Step) -> bool {
        if hit(self.line.iter_mut(), step.key) {
            return true;
        }
        if step.size_bytes > self.capacity {
            return false;
        }
        while bytes(&self.line) + step.size_bytes > self.capacity {
            let mut oldest = self.line.remove(0);
            if oldest.hits > 0 {
                oldest.hits = u32::from(self.remembers_many && oldest.hits >= 3);
                self.line.push(oldest);
            }
        }
        self.line.push(Held { key: step.key, size: step.size_bytes, hits: 0 });
        false
    }

    fn used(&self) -> u64 {
        bytes(&self.line)
    }
}

/// Four segments, the last one open. Of the first, when it is taken again, what was hit goes to the
/// open one (LRU), up to 20% of a segment, or nothing does (FIFO).
struct Disk {
    segment: u64,
    segments: Vec<Vec<Held>>,
    keeps: bool,
}

const SEGMENTS: usize = 4;

impl Disk {
    fn append(&mut self, one: Held) {
        let open = self.segments.last_mut().expect("one is open");
        if bytes(open) + one.size > self.segment {
            self.segments.push(vec![one]);
        } else {
            open.push(one);
        }
    }
}

impl Naive for Disk {
    fn get(&mut self, step: &Step) -> bool {
        if hit(self.segments.iter_mut().flatten(), step.key) {
            return true;
        }
        if step.size_bytes > self.segment {
            return false;
        }
        self.append(Held { key: step.key, size: step.size_bytes, hits: 0 });
        while self.segments.len() > SEGMENTS {
            let mut budget = self.segment * 20 / 100;
            for one in self.segments.remove(0) {
                if self.keeps && one.hits > 0 && one.size <= budget {
                    budget -= one.size;
                    self.append(Held { hits: 0, ..one });
                }
            }
        }
        false
    }

    fn used(&self) -> u64 {
        self.segments.iter().map(|segment| bytes(segment)).sum()
    }
}

pub(super) fn naive_memory(capacity: u64, remembers_many: bool) -> Box<dyn Naive> {
    Box::new(Memory { capacity, line: Vec::new(), remembers_many })
}

pub(super) fn naive_disk(capacity: u64, keeps: bool) -> Box<dyn Naive> {
    Box::new(Disk { segment: capacity / SEGMENTS as u64, segments: vec![Vec::new()], keeps })
}
