//! LIRS as its paper draws it: a stack S in which all that was asked for since its bottom lies, and
//! a list Q, both vectors, oldest first.

use super::naive::{Line, Naive, bytes, find};
use crate::policy::Step;

#[derive(Clone, Copy, PartialEq)]
enum Status {
    Lir,
    /// In Q, too.
    ResidentHir,
    NonResidentHir,
}

struct NaiveLirs {
    capacity: u64,
    lir_max: u64,
    history: u64,
    s: Vec<(u32, u64, Status)>,
    q: Line,
    has_filled: bool,
}

impl NaiveLirs {
    fn sum(&self, status: Status) -> u64 {
        self.s.iter().filter(|page| page.2 == status).map(|page| page.1).sum()
    }

    fn take_from_s(&mut self, key: u32) -> Option<(u32, u64, Status)> {
        let at = self.s.iter().position(|page| page.0 == key)?;
        Some(self.s.remove(at))
    }

    /// The bottom of S is LIR.
    fn prune(&mut self) {
        while self.s.first().is_some_and(|page| page.2 != Status::Lir) {
            self.s.remove(0);
        }
    }

    /// The LIR page at the bottom goes to the end of Q.
    fn demote_bottom(&mut self) {
        let (key, size, _) = self.s.remove(0);
        self.q.push((key, size));
        self.prune();
    }

    fn put_on_top_as_lir(&mut self, key: u32, size: u64) {
        self.s.push((key, size, Status::Lir));
        self.prune();
        while self.sum(Status::Lir) > self.lir_max {
            self.demote_bottom();
        }
    }

    fn put_on_top_as_hir(&mut self, key: u32, size: u64) {
        self.s.push((key, size, Status::ResidentHir));
        self.q.push((key, size));
        self.prune();
    }

    fn evict(&mut self) {
        if self.q.is_empty() {
            self.demote_bottom();
        }
        let (key, _) = self.q.remove(0);
        if let Some(page) = self.s.iter_mut().find(|page| page.0 == key) {
            page.2 = Status::NonResidentHir;
            if page.1 > self.history {
                self.take_from_s(key);
            }
        }
        while self.sum(Status::NonResidentHir) > self.history {
            let oldest = self.s.iter().position(|page| page.2 == Status::NonResidentHir);
            self.s.remove(oldest.expect("there are some"));
        }
    }

    fn miss(&mut self, key: u32, size: u64, was_in_s: bool) {
        if size > self.capacity {
            return;
        }
        while self.used() + size > self.capacity {
            self.evict();
        }
        let lir = self.sum(Status::Lir);
        if lir == 0 {
            self.has_filled = false;
        }
        if !was_in_s && lir + size > self.lir_max {
            self.has_filled = true;
        }
        if size <= self.lir_max && (was_in_s || !self.has_filled) {
            self.put_on_top_as_lir(key, size);
        } else {
            self.put_on_top_as_hir(key, size);
        }
    }
}

impl Naive for NaiveLirs {
    fn get(&mut self, step: &Step) -> bool {
        let key = step.key;
        let in_s = self.take_from_s(key);
        if let Some((_, size, Status::Lir)) = in_s {
            self.s.push((key, size, Status::Lir));
            self.prune();
            return true;
        }
        let Some(at) = find(&self.q, key) else {
            self.miss(key, step.size_bytes, in_s.is_some());
            return false;
        };
        let (_, size) = self.q.remove(at);
        if in_s.is_some() && size <= self.lir_max {
            self.put_on_top_as_lir(key, size);
        } else {
            self.put_on_top_as_hir(key, size);
        }
        true
    }

    fn used(&self) -> u64 {
        self.sum(Status::Lir) + bytes(&self.q)
    }
}

pub(super) fn naive_lirs(capacity: u64, hir: f64, history: f64) -> Box<dyn Naive> {
    let hir = ((capacity as f64 * hir) as u64).max(1);
    let history = (capacity as f64 * history) as u64;
    let (s, q, lir_max) = (Vec::new(), Vec::new(), capacity - hir);
    Box::new(NaiveLirs { capacity, lir_max, history, s, q, has_filled: false })
}
