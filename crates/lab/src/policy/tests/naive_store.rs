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

/// New objects wait in a short line, a tenth of memory; who was hit there when it is looked at goes
/// on to the long one, and who was hit there has another turn. No more looks are had for one that
/// comes than two for each that is there: then whatever is looked at goes.
struct TwoLines {
    capacity: u64,
    new: Vec<Held>,
    proven: Vec<Held>,
}

impl Naive for TwoLines {
    fn get(&mut self, step: &Step) -> bool {
        if hit(self.new.iter_mut().chain(&mut self.proven), step.key) {
            return true;
        }
        if step.size_bytes > self.capacity {
            return false;
        }
        let mut looks = 2 * (self.new.len() + self.proven.len());
        while self.used() + step.size_bytes > self.capacity {
            let are_many = 10 * bytes(&self.new) > self.used();
            let from_new = self.proven.is_empty() || (!self.new.is_empty() && are_many);
            let line = if from_new { &mut self.new } else { &mut self.proven };
            let mut oldest = line.remove(0);
            if oldest.hits > 0 && looks > 0 {
                oldest.hits = u32::from(oldest.hits >= 3);
                self.proven.push(oldest);
            }
            looks = looks.saturating_sub(1);
        }
        self.new.push(Held { key: step.key, size: step.size_bytes, hits: 0 });
        false
    }

    fn used(&self) -> u64 {
        bytes(&self.new) + bytes(&self.proven)
    }
}

/// Who is kept of the segment that is taken again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeps {
    /// FIFO.
    Nobody,
    /// LRU: who was hit; nothing is left of its hits.
    Used,
    /// FBC: who was hit, most often first. Each turn costs a hit, or half of all hits where they
    /// are more than one on average.
    Counted,
    /// LFU with aging: who was hit as often as the average, most often first. Each turn halves.
    Average,
}

/// Four segments, the last one open. Of the first, when it is taken again, some go to the open one,
/// up to 20% of a segment.
struct Disk {
    segment: u64,
    segments: Vec<Vec<Held>>,
    keeps: Keeps,
}

const SEGMENTS: usize = 4;

impl Disk {
    /// Who may go on, who is to go first in front, with the hits that are left.
    fn kept_of(&self, mut held: Vec<Held>) -> Vec<Held> {
        // No more than three hits are counted; hundredths, without a rest.
        held.iter_mut().for_each(|one| one.hits = one.hits.min(3));
        let all: u32 = held.iter().map(|one| one.hits).sum();
        let average = 100 * all / (held.len() as u32).max(1);
        held.retain(|one| match self.keeps {
            Keeps::Nobody => false,
            Keeps::Used | Keeps::Counted => one.hits > 0,
            Keeps::Average => one.hits > 0 && 100 * one.hits >= average,
        });
        let by_hits = matches!(self.keeps, Keeps::Counted | Keeps::Average);
        let mut kept = Vec::new();
        for hits in [3, 2, 1].into_iter().filter(|_| by_hits) {
            // In the order in which they lay.
            let (these, others) = held.into_iter().partition(|one| one.hits == hits);
            let these: Vec<Held> = these;
            kept.extend(these);
            held = others;
        }
        kept.extend(held);
        for one in &mut kept {
            one.hits = match self.keeps {
                Keeps::Counted if average <= 100 => one.hits - 1,
                Keeps::Counted | Keeps::Average => one.hits / 2,
                Keeps::Nobody | Keeps::Used => 0,
            };
        }
        kept
    }

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
            let first = self.segments.remove(0);
            let mut budget = self.segment * 20 / 100;
            for one in self.kept_of(first) {
                if one.size <= budget {
                    budget -= one.size;
                    self.append(one);
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

pub(super) fn naive_two_lines(capacity: u64) -> Box<dyn Naive> {
    Box::new(TwoLines { capacity, new: Vec::new(), proven: Vec::new() })
}

pub(super) fn naive_disk(capacity: u64, keeps: Keeps) -> Box<dyn Naive> {
    Box::new(Disk { segment: capacity / SEGMENTS as u64, segments: vec![Vec::new()], keeps })
}
