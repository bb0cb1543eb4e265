//! The policies written for being read: vectors in order, searched from one end.

use super::naive_lirs::naive_lirs;
use super::naive_queues::{naive_2q, naive_arc, naive_slru};
use super::naive_store::{Keeps, naive_disk, naive_memory, naive_two_lines};
use crate::policy::{NEVER, Step};

/// Key and size, oldest first.
pub(super) type Line = Vec<(u32, u64)>;

pub(super) fn bytes(line: &Line) -> u64 {
    line.iter().map(|(_, size)| size).sum()
}

pub(super) fn find(line: &Line, key: u32) -> Option<usize> {
    line.iter().position(|(other, _)| *other == key)
}

pub(super) trait Naive {
    /// True for a hit.
    fn get(&mut self, step: &Step) -> bool;
    fn used(&self) -> u64;
}

/// FIFO, LRU, CLOCK with one bit and SIEVE: one line, oldest first, with marks.
struct OneLine {
    capacity: u64,
    line: Vec<(u32, u64, bool)>,
    kind: &'static str,
    hand: usize,
}

impl OneLine {
    fn evict(&mut self) {
        match self.kind {
            "clock" => {
                while self.line[0].2 {
                    let (key, size, _) = self.line.remove(0);
                    self.line.push((key, size, false));
                }
                self.line.remove(0);
            }
            "sieve" => {
                self.hand %= self.line.len();
                while self.line[self.hand].2 {
                    self.line[self.hand].2 = false;
                    self.hand = (self.hand + 1) % self.line.len();
                }
                self.line.remove(self.hand);
                // At the end the hand must not take the next arrival for where it was.
                if self.hand == self.line.len() {
                    self.hand = 0;
                }
            }
            _ => {
                self.line.remove(0);
            }
        }
    }
}

impl Naive for OneLine {
    fn get(&mut self, step: &Step) -> bool {
        if let Some(at) = self.line.iter().position(|held| held.0 == step.key) {
            self.line[at].2 = true;
            if self.kind == "lru" {
                let held = self.line.remove(at);
                self.line.push(held);
            }
            return true;
        }
        if step.size_bytes <= self.capacity {
            while self.used() + step.size_bytes > self.capacity {
                self.evict();
            }
            self.line.push((step.key, step.size_bytes, false));
        }
        false
    }

    fn used(&self) -> u64 {
        self.line.iter().map(|held| held.1).sum()
    }
}

/// Objects with a count, in an order that the kind of policy defines.
struct Counted {
    capacity: u64,
    held: Vec<(u32, u64, u64)>,
    kind: &'static str,
    /// FBC: index of the next to be considered.
    target: usize,
    amax: u64,
}

impl Counted {
    fn age(&mut self) {
        let sum: u64 = self.held.iter().map(|held| held.2).sum();
        if sum > self.amax * self.held.len() as u64 {
            self.held.iter_mut().for_each(|held| held.2 = held.2.div_ceil(2));
        }
    }

    /// LFU: in order of leaving.
    fn insert_sorted(&mut self, key: u32, size: u64, count: u64) {
        let at = self.held.iter().position(|held| held.2 > count).unwrap_or(self.held.len());
        self.held.insert(at, (key, size, count));
    }

    fn evict_fbc(&mut self) {
        let n = self.held.len();
        let skipped = (0..n).take_while(|step| self.held[(self.target + step) % n].2 >= 3).count();
        self.target = (self.target + skipped) % n;
        self.held.remove(self.target);
    }
}

impl Naive for Counted {
    fn get(&mut self, step: &Step) -> bool {
        if let Some(at) = self.held.iter().position(|held| held.0 == step.key) {
            if self.kind == "fbc" {
                self.held[at].2 += 1;
            } else {
                let (key, size, count) = self.held.remove(at);
                let count_max = if self.kind == "lfu" { u64::MAX } else { 255 };
                self.insert_sorted(key, size, (count + 1).min(count_max));
            }
            self.age();
            return true;
        }
        if step.size_bytes > self.capacity {
            return false;
        }
        let mut evicted = false;
        while self.used() + step.size_bytes > self.capacity {
            evicted = true;
            if self.kind == "fbc" {
                self.evict_fbc();
            } else {
                self.held.remove(0);
            }
        }
        if self.kind != "fbc" {
            self.insert_sorted(step.key, step.size_bytes, 1);
        } else if evicted && self.target < self.held.len() {
            self.held.insert(self.target, (step.key, step.size_bytes, 1));
            self.target += 1;
        } else {
            // The freed place was the last, or there is room: at the end; the pointer begins anew.
            self.held.push((step.key, step.size_bytes, 1));
            if evicted {
                self.target = 0;
            }
        }
        if self.target == self.held.len() {
            self.target = 0;
        }
        self.age();
        false
    }

    fn used(&self) -> u64 {
        self.held.iter().map(|held| held.1).sum()
    }
}

/// The paper's figure of S3-FIFO with libCacheSim's rules for filling up.
struct NaiveS3 {
    capacity: u64,
    small: Line,
    main: Line,
    ghost: Line,
    hits: Vec<u64>,
    evicted: bool,
}

impl NaiveS3 {
    fn small_max(&self) -> u64 {
        (self.capacity as f64 * 0.1) as u64
    }

    fn evict(&mut self) {
        self.evicted = true;
        let main_max = self.capacity - self.small_max();
        if bytes(&self.main) > main_max || self.small.is_empty() {
            loop {
                let (key, size) = self.main.remove(0);
                let hits = &mut self.hits[key as usize];
                if *hits == 0 {
                    return;
                }
                *hits = (*hits).min(3) - 1;
                self.main.push((key, size));
            }
        }
        while !self.small.is_empty() {
            let (key, size) = self.small.remove(0);
            if self.hits[key as usize] >= 2 {
                self.hits[key as usize] = 0;
                self.main.push((key, size));
                continue;
            }
            let ghost_max = (self.capacity as f64 * 0.9) as u64;
            if size <= ghost_max {
                while bytes(&self.ghost) + size > ghost_max {
                    self.ghost.remove(0);
                }
                self.ghost.push((key, size));
            }
            return;
        }
    }
}

impl Naive for NaiveS3 {
    fn get(&mut self, step: &Step) -> bool {
        let (key, size) = (step.key, step.size_bytes);
        if find(&self.small, key).or(find(&self.main, key)).is_some() {
            self.hits[key as usize] += 1;
            return true;
        }
        let ghost = find(&self.ghost, key).map(|at| self.ghost.remove(at)).is_some();
        if size > self.small_max() {
            return false;
        }
        while self.used() + size > self.capacity {
            self.evict();
        }
        if !ghost && size >= self.small_max() {
            return false;
        }
        self.hits[key as usize] = 0;
        if ghost || (!self.evicted && bytes(&self.small) >= self.small_max()) {
            self.main.push((key, size));
        } else {
            self.small.push((key, size));
        }
        false
    }

    fn used(&self) -> u64 {
        bytes(&self.small) + bytes(&self.main)
    }
}

struct NaiveTiny {
    capacity: u64,
    window: Line,
    lower: Line,
    upper: Line,
    asked: Vec<u64>,
    counted: u64,
}

impl NaiveTiny {
    fn window_max(&self) -> u64 {
        (self.capacity as f64 * 0.05) as u64
    }

    fn main_max(&self) -> u64 {
        self.capacity - self.window_max()
    }

    fn lower_max(&self) -> u64 {
        (1.0 / 5.0 * self.main_max() as f64) as u64
    }

    fn upper_max(&self) -> u64 {
        (4.0 / 5.0 * self.main_max() as f64) as u64
    }

    fn drop_main(&mut self) {
        if self.lower.is_empty() {
            self.upper.remove(0)
        } else {
            self.lower.remove(0)
        };
    }

    fn put_main(&mut self, entry: (u32, u64)) {
        if bytes(&self.lower) + entry.1 <= self.lower_max() {
            self.lower.push(entry);
        } else if bytes(&self.upper) + entry.1 <= self.upper_max() {
            self.upper.push(entry);
        } else {
            while bytes(&self.lower) + bytes(&self.upper) + entry.1 > self.main_max() {
                self.drop_main();
            }
            self.lower.push(entry);
        }
    }

    fn evict(&mut self) {
        while !self.window.is_empty() {
            let entry = self.window.remove(0);
            let room = bytes(&self.lower) + bytes(&self.upper) + entry.1 <= self.main_max();
            if room {
                self.put_main(entry);
            } else {
                let rival = self.lower.first().or(self.upper.first()).expect("main is full").0;
                if self.asked[entry.0 as usize] > self.asked[rival as usize] {
                    self.drop_main();
                    self.put_main(entry);
                }
            }
            self.asked[entry.0 as usize] += 1;
            if !room {
                return;
            }
        }
        self.drop_main();
    }
}

impl Naive for NaiveTiny {
    fn get(&mut self, step: &Step) -> bool {
        let (key, size) = (step.key, step.size_bytes);
        if let Some(at) = find(&self.window, key) {
            let entry = self.window.remove(at);
            self.window.push(entry);
            return true;
        }
        let in_upper = find(&self.upper, key).map(|at| self.upper.remove(at));
        if let Some(entry) = in_upper.or(find(&self.lower, key).map(|at| self.lower.remove(at))) {
            self.upper.push(entry);
            while bytes(&self.upper) > self.upper_max() && in_upper.is_none() {
                let cooled = self.upper.remove(0);
                self.lower.push(cooled);
                while bytes(&self.lower) > self.lower_max() {
                    self.lower.remove(0);
                }
            }
            self.asked[key as usize] += 1;
            self.counted += 1;
            if self.counted == 32 * self.main_max() {
                self.counted = 0;
                self.asked.iter_mut().for_each(|asked| *asked /= 2);
            }
            return true;
        }
        if size > self.window_max() || size > self.lower_max() {
            return false;
        }
        while self.used() + size > self.capacity {
            self.evict();
        }
        self.window.push((key, size));
        self.asked[key as usize] += 1;
        false
    }

    fn used(&self) -> u64 {
        bytes(&self.window) + bytes(&self.lower) + bytes(&self.upper)
    }
}

/// GDSF and Belady: the victim is searched among all.
struct Ranked {
    capacity: u64,
    /// Key, size, rank, moment of the last request, requests.
    held: Vec<(u32, u64, f64, u64, f64)>,
    inflation: f64,
    moment: u64,
    kind: &'static str,
}

impl Ranked {
    fn evict(&mut self) {
        let order = |a: &(u32, u64, f64, u64, f64), b: &(u32, u64, f64, u64, f64)| {
            let by_rank = a.2.total_cmp(&b.2);
            match self.kind {
                "belady" => by_rank.then(b.0.cmp(&a.0)),
                _ => by_rank.then(a.3.cmp(&b.3)),
            }
        };
        let victim = (0..self.held.len())
            .min_by(|a, b| order(&self.held[*a], &self.held[*b]))
            .expect("something is there");
        self.inflation = self.held.remove(victim).2;
    }
}

impl Naive for Ranked {
    fn get(&mut self, step: &Step) -> bool {
        self.moment += 1;
        let next = f64::from(step.next_use);
        if let Some(held) = self.held.iter_mut().find(|held| held.0 == step.key) {
            held.3 = self.moment;
            held.4 += 1.0;
            held.2 = match self.kind {
                "belady" => -next,
                _ => self.inflation + held.4 * 1.0e6 / held.1 as f64,
            };
            return true;
        }
        if step.size_bytes > self.capacity {
            return false;
        }
        // Belady makes room first; with GDSF the new object competes.
        let is_belady = self.kind == "belady";
        while is_belady && self.used() + step.size_bytes > self.capacity {
            self.evict();
        }
        let rank = if is_belady { -next } else { self.inflation + 1.0e6 / step.size_bytes as f64 };
        self.held.push((step.key, step.size_bytes, rank, self.moment, 1.0));
        while self.used() > self.capacity {
            self.evict();
        }
        false
    }

    fn used(&self) -> u64 {
        self.held.iter().map(|held| held.1).sum()
    }
}

/// Belady by size times distance: all are looked at for each that goes.
struct NaiveBeladySize {
    capacity: u64,
    /// Key, size, next use.
    held: Vec<(u32, u64, u64)>,
    now: u64,
}

impl Naive for NaiveBeladySize {
    fn get(&mut self, step: &Step) -> bool {
        let next = (step.next_use != NEVER).then_some(u64::from(step.next_use));
        let at = self.held.iter().position(|held| held.0 == step.key);
        let size = at.map_or(step.size_bytes, |at| self.held.remove(at).1);
        if let Some(next) = next.filter(|_| size <= self.capacity) {
            self.held.push((step.key, size, next));
        }
        while self.used() > self.capacity {
            let rank =
                |at: &usize| (self.held[*at].1 * (self.held[*at].2 - self.now), self.held[*at].0);
            let victim = (0..self.held.len()).max_by_key(rank).expect("something is there");
            self.held.remove(victim);
        }
        self.now += 1;
        at.is_some()
    }

    fn used(&self) -> u64 {
        self.held.iter().map(|held| held.1).sum()
    }
}

pub(super) const KEYS: usize = 64;

pub(super) fn naive(kind: &'static str, capacity: u64) -> Box<dyn Naive> {
    match kind {
        "fbc" | "lfu" | "lfu-aging" => {
            let amax = match kind {
                "fbc" => 4,
                "lfu" => u64::MAX / KEYS as u64,
                _ => 3,
            };
            Box::new(Counted { capacity, held: Vec::new(), kind, target: 0, amax })
        }
        "s3-fifo" => Box::new(NaiveS3 {
            capacity,
            small: Vec::new(),
            main: Vec::new(),
            ghost: Vec::new(),
            hits: vec![0; KEYS],
            evicted: false,
        }),
        "w-tinylfu" => Box::new(NaiveTiny {
            capacity,
            window: Vec::new(),
            lower: Vec::new(),
            upper: Vec::new(),
            asked: vec![0; KEYS],
            counted: 0,
        }),
        "arc" | "arc-by-size" => naive_arc(capacity, kind == "arc-by-size"),
        "2q" => naive_2q(capacity),
        "slru" | "slru-2" => naive_slru(capacity, if kind == "slru" { 4 } else { 2 }),
        "lirs" => naive_lirs(capacity, 0.2, 0.6),
        "lirs-all" => naive_lirs(capacity, 0.01, 1e6),
        "gdsf" | "belady" => {
            Box::new(Ranked { capacity, held: Vec::new(), inflation: 0.0, moment: 0, kind })
        }
        "belady-size" => Box::new(NaiveBeladySize { capacity, held: Vec::new(), now: 0 }),
        "store-memory-lru" | "store-memory-clock" => {
            naive_memory(capacity, kind == "store-memory-clock")
        }
        "store-memory-s3-fifo" => naive_two_lines(capacity),
        "store-disk-fifo" => naive_disk(capacity, Keeps::Nobody),
        "store-disk-lru" => naive_disk(capacity, Keeps::Used),
        "store-disk-fbc" => naive_disk(capacity, Keeps::Counted),
        "store-disk-lfu-aging" => naive_disk(capacity, Keeps::Average),
        _ => Box::new(OneLine { capacity, line: Vec::new(), kind, hand: 0 }),
    }
}
