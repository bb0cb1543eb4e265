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
