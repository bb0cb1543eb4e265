//! The store's default policy for memory written for being read: exact counts where it has a
//! sketch, one note for each key where it has a table that forgets. Objects are so few and so large
//! here that neither loses anything.

use std::collections::HashMap;

use super::naive::Naive;
use crate::policy::Step;

/// Bytes of a unit of size: as many notes as there can be, however small the cache.
pub(super) const UNIT_BYTES: u64 = 64 << 20;
pub(super) const UNITS_MIN: u64 = 16;

struct Held {
    key: u32,
    bytes: u64,
    hits: u8,
    /// Halvings when it came, or was looked at.
    since: u32,
}

/// New objects and proven ones.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    New,
    Proven,
}

/// Who has more hits for its bytes than the threshold is proven. `share` of memory is for the new:
/// more if what left them is asked for again soon, less if there are hits near the threshold.
struct Density {
    capacity: u64,
    new: Vec<Held>,
    proven: Vec<Held>,
    /// Requests of each key that missed, and hits that were counted.
    asked: HashMap<u32, u32>,
    asked_in_all: u64,
    halvings: u32,
    threshold: f64,
    /// Of the proven, since the threshold moved.
    looked: u64,
    kept: u64,
    share: f64,
    /// The bytes that had left when this one did.
    gone: HashMap<u32, u64>,
    gone_bytes: u64,
    objects: u64,
    looked_new: u64,
    looked_proven: u64,
    looked_near: u64,
    /// Bytes of both lines when room was needed last.
    lines: (u64, u64),
}

fn bytes(line: &[Held]) -> u64 {
    line.iter().map(|one| one.bytes).sum()
}

fn density(times: u32, bytes: u64) -> f64 {
    let bytes = bytes as f64;
    f64::from(times) * (1.0 + bytes / 16_384.0) / bytes
}

impl Density {
    fn times(&self, key: u32) -> u32 {
        self.asked.get(&key).copied().unwrap_or(0)
    }

    fn count(&mut self, key: u32, times: u32) {
        if times > 0 {
            let all = (self.times(key) + times).min(255);
            self.asked.insert(key, all);
            self.asked_in_all += u64::from(times);
        }
    }

    fn scale_threshold(&mut self, by: f64) {
        self.threshold = (self.threshold * by).max(1e-9);
    }

    fn move_share(&mut self, saved_reads: f64) {
        let step = 2.0 * saved_reads / self.objects as f64;
        self.share = (self.share + step.clamp(-0.05, 0.05)).clamp(0.1, 0.9);
    }

    /// The bytes that were looked at lately, or half of all once they are more than memory has.
    fn note_look(&mut self, line: Line, bytes: u64) {
        let looked = match line {
            Line::New => &mut self.looked_new,
            Line::Proven => &mut self.looked_proven,
        };
        *looked += bytes;
        if *looked > self.capacity {
            self.looked_new /= 2;
            self.looked_proven /= 2;
            self.looked_near /= 2;
        }
    }

    /// Reads that an eighth of memory more would save the proven, by the hits of one that is near
    /// the threshold.
    fn saved(&self, hits: u8) -> f64 {
        let at_least_one = |bytes: u64| bytes.max(1) as f64;
        let (new, proven) = (at_least_one(self.lines.0), at_least_one(self.lines.1));
        let stay_new = new / at_least_one(self.looked_new);
        let stay_proven = proven / at_least_one(self.looked_proven);
        let hits = f64::from(hits);
        let saved = hits / (1.0 + hits * (stay_new / stay_proven));
        let near = at_least_one(self.looked_near) / at_least_one(self.looked_proven);
        saved * 0.125 * (new + proven) / (proven * near.clamp(0.02, 1.0))
    }

    fn make_room(&mut self, may_keep: bool) {
        self.lines = (bytes(&self.new), bytes(&self.proven));
        let (new, both) = (self.lines.0 as f64, (self.lines.0 + self.lines.1) as f64);
        let are_many = !self.new.is_empty() && new > both * self.share;
        let line = if self.proven.is_empty() || are_many { Line::New } else { Line::Proven };
        let one = match line {
            Line::New => self.new.remove(0),
            Line::Proven => self.proven.remove(0),
        };
        // Hits that came over several halvings have faded like the others.
        let hits = match self.halvings - one.since {
            0 => u32::from(one.hits),
            halvings => (2 * u32::from(one.hits)).div_ceil(halvings + 1),
        };
        let before = density(self.times(one.key), one.bytes) / self.threshold;
        let is_dense = density(self.times(one.key) + hits, one.bytes) >= self.threshold;
        let goes_to = match line {
            _ if !may_keep => None,
            _ if is_dense => Some(Line::Proven),
            Line::New if one.hits > 0 => Some(Line::New),
            _ => None,
        };
        self.note_look(line, one.bytes);
        if line == Line::Proven && (0.5..2.0).contains(&before) {
            self.looked_near += one.bytes;
            self.move_share(-self.saved(one.hits));
        }
        self.count(one.key, hits);
        if line == Line::Proven && may_keep {
            self.look_at_proven(one.bytes, goes_to.is_some());
        }
        match goes_to {
            Some(Line::New) => self.new.push(Held { hits: 0, since: self.halvings, ..one }),
            Some(Line::Proven) => self.proven.push(Held { hits: 0, since: self.halvings, ..one }),
            None if line == Line::New => {
                self.gone_bytes += one.bytes;
                self.gone.insert(one.key, self.gone_bytes);
            }
            None => {}
        }
    }

    /// The threshold goes where half of what is proven stays.
    fn look_at_proven(&mut self, bytes: u64, stays: bool) {
        self.looked += bytes;
        self.kept += if stays { bytes } else { 0 };
        if self.looked >= 65_536 {
            let most_stay = 2 * self.kept > self.looked;
            self.scale_threshold(if most_stay { 1.02 } else { 0.98 });
            (self.looked, self.kept) = (0, 0);
        }
    }
}

impl Naive for Density {
    fn get(&mut self, step: &Step) -> bool {
        let mut all = self.new.iter_mut().chain(&mut self.proven);
        if let Some(found) = all.find(|one| one.key == step.key) {
            found.hits = found.hits.saturating_add(1);
            return true;
        }
        if step.size_bytes > self.capacity {
            return false;
        }
        let looks = 2 * (self.new.len() + self.proven.len());
        let mut looked = 0;
        while self.used() + step.size_bytes > self.capacity {
            self.make_room(looked < looks);
            looked += 1;
        }
        let since = self.halvings;
        let there = (self.new.len() + self.proven.len()) as u64;
        self.objects = there.max(64);
        if self.asked_in_all > 10 * there.max(256) {
            self.asked_in_all = 0;
            self.asked.values_mut().for_each(|times| *times /= 2);
            self.halvings += 1;
            self.scale_threshold(0.5);
        }
        self.count(step.key, 1);
        if let Some(when) = self.gone.remove(&step.key) {
            let since = self.gone_bytes - when;
            if since <= self.capacity / 8 {
                self.move_share(1.0);
            }
        }
        let is_dense = density(self.times(step.key), step.size_bytes) >= self.threshold;
        let line = if is_dense { &mut self.proven } else { &mut self.new };
        line.push(Held { key: step.key, bytes: step.size_bytes, hits: 0, since });
        false
    }

    fn used(&self) -> u64 {
        bytes(&self.new) + bytes(&self.proven)
    }
}

pub(super) fn naive_density(capacity: u64) -> Box<dyn Naive> {
    Box::new(Density {
        capacity,
        new: Vec::new(),
        proven: Vec::new(),
        asked: HashMap::new(),
        asked_in_all: 0,
        halvings: 0,
        threshold: 1e-9,
        looked: 0,
        kept: 0,
        share: 0.2,
        gone: HashMap::new(),
        gone_bytes: 0,
        objects: 64,
        looked_new: 0,
        looked_proven: 0,
        looked_near: 0,
        lines: (0, 0),
    })
}
