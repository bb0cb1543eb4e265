//! Love and hate on a trace: a design whose groups are ranked by the requests of the warm-up, at
//! the end of which those in front are loved and the others hated.
//!
//! Owns the counts of groups. Invariants: what is loved follows from the warm-up alone; a group is
//! counted as the design has it, so that of a design with sixteen groups sixteen are ranked. A
//! group that the warm-up has not seen has no hint. Threads: one user.

use super::around::Around;
use super::grouping::Grouper;
use super::{Design, Outcome};
use crate::lru::NumberMap;
use crate::machine::Action;
use crate::request::{Catalogue, Request};

/// A design that is told what is popular; see the head of this file.
pub struct Hinted {
    design: Box<dyn Design>,
    grouper: Grouper,
    top_share: f64,
    /// Requests of each group, until counting begins.
    counts: NumberMap<u64, u64>,
    is_warm: bool,
    loved: u64,
    hated: u64,
}

impl Hinted {
    /// `grouper` has the design's own rule; of the groups the share `top_share`, of 0 to 1, is
    /// loved, and one at least.
    pub fn new(design: Box<dyn Design>, grouper: Grouper, top_share: f64) -> Hinted {
        let counts = NumberMap::default();
        Hinted { design, grouper, top_share, counts, is_warm: false, loved: 0, hated: 0 }
    }
}

impl Around for Hinted {
    fn inside(&self) -> &dyn Design {
        &*self.design
    }

    fn inside_mut(&mut self) -> &mut dyn Design {
        &mut *self.design
    }

    fn request(&mut self, request: &Request, names: &Catalogue, out: &mut Vec<Action>) -> Outcome {
        if !self.is_warm {
            let group = self.grouper.group(request, names);
            *self.counts.entry(self.design.own_group(group)).or_insert(0) += 1;
        }
        self.design.request(request, names, out)
    }

    /// Hints of the most popular come last: of too many a store forgets the first.
    fn counting_begins(&mut self) {
        self.is_warm = true;
        let mut ranked: Vec<(u64, u64)> =
            std::mem::take(&mut self.counts).into_iter().map(|(group, n)| (n, group)).collect();
        ranked.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        let top = (ranked.len() as f64 * self.top_share).ceil() as usize;
        let (loved, hated) = ranked.split_at(top.min(ranked.len()));
        hated.iter().rev().for_each(|(_, group)| self.design.hate(*group));
        loved.iter().rev().for_each(|(_, group)| self.design.love(*group));
        (self.loved, self.hated) = (loved.len() as u64, hated.len() as u64);
        self.design.counting_begins();
    }

    fn facts(&self) -> Vec<(&'static str, u64)> {
        let mut facts = self.design.facts();
        facts.extend([("loved_groups", self.loved), ("hated_groups", self.hated)]);
        facts
    }
}
