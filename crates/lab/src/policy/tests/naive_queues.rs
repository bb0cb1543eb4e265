//! Policies of several queues written for being read: vectors, oldest first.

use super::naive::{Line, Naive, bytes, find};
use crate::policy::Step;

/// Takes an object out of a line.
fn take(line: &mut Line, key: u32) -> Option<(u32, u64)> {
    find(line, key).map(|at| line.remove(at))
}

/// The cases of the paper's figure 4, lengths in bytes.
struct NaiveArc {
    c: u64,
    p: f64,
    t1: Line,
    t2: Line,
    b1: Line,
    b2: Line,
    by_size: bool,
}

impl NaiveArc {
    fn replace(&mut self, in_b2: bool) {
        let t1 = bytes(&self.t1) as f64;
        let from_t1 = t1 >= 1.0 && (t1 > self.p || (in_b2 && t1 == self.p));
        if from_t1 || self.t2.is_empty() {
            self.b1.push(self.t1.remove(0));
        } else {
            self.b2.push(self.t2.remove(0));
        }
    }

    fn is_full(&self, size: u64) -> bool {
        bytes(&self.t1) + bytes(&self.t2) + size > self.c
    }

    fn delta(&self, own: u64, other: u64, size: u64) -> f64 {
        let ratio = if own >= other { 1.0 } else { other as f64 / own as f64 };
        if self.by_size { ratio * size as f64 } else { ratio }
    }

    /// Case IV.
    fn make_room_for_a_stranger(&mut self, size: u64) {
        let l1 = bytes(&self.t1) + bytes(&self.b1);
        let l2 = bytes(&self.t2) + bytes(&self.b2);
        if l1 + size > self.c {
            if self.b1.is_empty() {
                self.t1.remove(0);
                return;
            }
            self.b1.remove(0);
        } else if l1 + l2 >= 2 * self.c && !self.b2.is_empty() {
            self.b2.remove(0);
        }
        self.replace(false);
    }
}

impl Naive for NaiveArc {
    fn get(&mut self, step: &Step) -> bool {
        let (key, size) = (step.key, step.size_bytes);
        if let Some(page) = take(&mut self.t1, key).or_else(|| take(&mut self.t2, key)) {
            self.t2.push(page);
            return true;
        }
        let (b1, b2) = (bytes(&self.b1), bytes(&self.b2));
        let (in_b1, in_b2) = (take(&mut self.b1, key), take(&mut self.b2, key));
        if let Some((_, size)) = in_b1 {
            self.p = (self.p + self.delta(b1, b2, size)).min(self.c as f64);
        }
        if let Some((_, size)) = in_b2 {
            self.p = (self.p - self.delta(b2, b1, size)).max(0.0);
        }
        if size > self.c {
            return false;
        }
        let was_ghost = in_b1.is_some() || in_b2.is_some();
        while self.is_full(size) {
            if was_ghost {
                self.replace(in_b2.is_some());
            } else {
                self.make_room_for_a_stranger(size);
            }
        }
        if was_ghost { &mut self.t2 } else { &mut self.t1 }.push((key, size));
        false
    }

    fn used(&self) -> u64 {
        bytes(&self.t1) + bytes(&self.t2)
    }
}

pub(super) fn naive_arc(c: u64, by_size: bool) -> Box<dyn Naive> {
    let line = Vec::new;
    Box::new(NaiveArc { c, p: 0.0, t1: line(), t2: line(), b1: line(), b2: line(), by_size })
}

/// The paper's procedure for the full version.
struct Naive2q {
    capacity: u64,
    a1in: Line,
    a1out: Line,
    am: Line,
}

impl Naive2q {
    fn kin(&self) -> u64 {
        (self.capacity as f64 * 0.25) as u64
    }

    fn kout(&self) -> u64 {
        (self.capacity as f64 * 0.5) as u64
    }

    fn reclaim_for(&mut self, size: u64) {
        while self.used() + size > self.capacity {
            if bytes(&self.a1in) <= self.kin() {
                self.am.remove(0);
                continue;
            }
            let page = self.a1in.remove(0);
            self.a1out.push(page);
            if page.1 > self.kout() {
                self.a1out.pop();
            }
            while bytes(&self.a1out) > self.kout() {
                self.a1out.remove(0);
            }
        }
    }
}

impl Naive for Naive2q {
    fn get(&mut self, step: &Step) -> bool {
        let (key, size) = (step.key, step.size_bytes);
        if let Some(page) = take(&mut self.am, key) {
            self.am.push(page);
            return true;
        }
        let was_out = take(&mut self.a1out, key).is_some();
        if find(&self.a1in, key).is_some() {
            return true;
        }
        if size > self.kin() {
            return false;
        }
        self.reclaim_for(size);
        if was_out {
            while bytes(&self.am) + size > self.capacity - self.kin() {
                self.am.remove(0);
            }
            self.am.push((key, size));
        } else {
            self.a1in.push((key, size));
        }
        false
    }

    fn used(&self) -> u64 {
        bytes(&self.a1in) + bytes(&self.am)
    }
}

pub(super) fn naive_2q(capacity: u64) -> Box<dyn Naive> {
    Box::new(Naive2q { capacity, a1in: Vec::new(), a1out: Vec::new(), am: Vec::new() })
}

/// Segments, the lowest first.
struct NaiveSlru {
    capacity: u64,
    segments: Vec<Line>,
}

impl NaiveSlru {
    fn share(&self) -> u64 {
        self.capacity / self.segments.len() as u64
    }

    /// Of the segments that something came into, the lowest with too much lets its oldest sink,
    /// until none has. (The lowest of all may have too much before, and keeps it while nothing
    /// sinks there.)
    fn settle(&mut self, top: usize) {
        let mut entered = vec![false; self.segments.len()];
        entered[top] = true;
        let next = |segments: &[Line], entered: &[bool], share| {
            (0..=top).find(|at| entered[*at] && bytes(&segments[*at]) > share)
        };
        while let Some(at) = next(&self.segments, &entered, self.share()) {
            let page = self.segments[at].remove(0);
            if at > 0 {
                self.segments[at - 1].push(page);
                entered[at - 1] = true;
            }
        }
    }
}

impl Naive for NaiveSlru {
    fn get(&mut self, step: &Step) -> bool {
        let (key, size) = (step.key, step.size_bytes);
        for at in 0..self.segments.len() {
            let Some(page) = take(&mut self.segments[at], key) else { continue };
            let up = (at + 1).min(self.segments.len() - 1);
            self.segments[up].push(page);
            if up > at {
                self.settle(up);
            }
            return true;
        }
        if size > self.share() {
            return false;
        }
        while self.used() + size > self.capacity {
            let lowest = self.segments.iter_mut().find(|line| !line.is_empty());
            lowest.expect("it is full").remove(0);
        }
        let share = self.share();
        let at = self.segments.iter().position(|line| bytes(line) + size <= share);
        self.segments[at.unwrap_or(0)].push((key, size));
        false
    }

    fn used(&self) -> u64 {
        self.segments.iter().map(bytes).sum()
    }
}

pub(super) fn naive_slru(capacity: u64, segments: usize) -> Box<dyn Naive> {
    Box::new(NaiveSlru { capacity, segments: vec![Vec::new(); segments] })
}
