//! The workloads: which objects are requested in which order. Seeded; each connection draws from a
//! generator of its own, so a run does not depend on thread scheduling, except for `fill` and
//! `trace`, whose connections share one counter so that each object is requested once.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::ValueEnum;
use fastrand::Rng;

use super::catalogue::ObjectRef;
use super::replay::Replay;
use crate::bench::zipf::Zipf;
use crate::failure::Failure;

/// A workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A few objects (--hot) again and again, from memory
    Hit,
    /// Objects of the catalogue, zipf-distributed
    Zipf,
    /// Page views: a zipf-distributed document, then all that it embeds
    Pages,
    /// Every request another object: all misses, all stored
    Fill,
    /// Parts (--range) of objects of the catalogue, which are zipf-distributed, anywhere in them
    Ranges,
    /// What a recorded trace (--trace) asks for, in its order and with its lengths, from an empty
    /// cache
    Trace,
}

impl Kind {
    /// Its name on the command line and in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Hit => "hit",
            Kind::Zipf => "zipf",
            Kind::Pages => "pages",
            Kind::Fill => "fill",
            Kind::Ranges => "ranges",
            Kind::Trace => "trace",
        }
    }

    /// Whether each measurement uses new objects that no proxy has seen.
    pub(crate) fn is_cold(self) -> bool {
        matches!(self, Kind::Fill | Kind::Trace)
    }
}

/// A workload over a catalogue; shared by all connections.
pub(crate) struct Demand {
    kind: Kind,
    run: u64,
    page_objects: u64,
    /// Distribution over objects for `zipf` and `ranges`, pages for `pages`, hot objects for `hit`.
    zipf: Zipf,
    by_rank: Vec<u32>,
    replay: Option<Arc<Replay>>,
    next: AtomicU64,
}

impl Demand {
    /// `count` is the number of objects (or pages, for `pages`). Popularity falls with
    /// `1 / rank^alpha` and is independent of their numbers.
    pub(crate) fn new(
        kind: Kind,
        run: u64,
        page_objects: u64,
        count: u32,
        (alpha, seed): (f64, u64),
    ) -> Result<Demand, Failure> {
        let zipf = Zipf::new(count, alpha)?;
        let mut by_rank: Vec<u32> = (0..count).collect();
        Rng::with_seed(seed).shuffle(&mut by_rank);
        let next = AtomicU64::new(0);
        Ok(Demand { kind, run, page_objects, zipf, by_rank, replay: None, next })
    }

    /// The requests of a recorded trace.
    pub(crate) fn of_trace(run: u64, replay: Arc<Replay>) -> Result<Demand, Failure> {
        Ok(Demand { replay: Some(replay), ..Demand::new(Kind::Trace, run, 1, 1, (0.0, 0))? })
    }

    /// The run whose objects are requested.
    pub(crate) fn run(&self) -> u64 {
        self.run
    }

    /// The objects in the order in which a warm-up requests each once: popular ones last, so that a
    /// full memory keeps them. Empty for `fill` and `trace`.
    pub(crate) fn each_once(self: &Arc<Demand>) -> Vec<ObjectRef> {
        let object = |number| ObjectRef { run: self.run, number };
        let ranks = self.by_rank.iter().rev().map(|&at| u64::from(at));
        match self.kind {
            Kind::Fill | Kind::Trace => Vec::new(),
            Kind::Pages => ranks
                .flat_map(|page| (0..self.page_objects).map(move |item| (page, item)))
                .map(|(page, item)| object(page * self.page_objects + item))
                .collect(),
            Kind::Hit | Kind::Zipf | Kind::Ranges => ranks.map(object).collect(),
        }
    }

    /// The request sequence of one connection, from its own seed.
    pub(crate) fn draws(self: &Arc<Demand>, seed: u64) -> Draws {
        Draws { demand: Arc::clone(self), rng: Rng::with_seed(seed), page: 0, item: u64::MAX }
    }
}

/// An object, and the document that embeds it if only the workload knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Drawn {
    pub(crate) object: ObjectRef,
    pub(crate) document: Option<ObjectRef>,
}

/// The request sequence of one connection; only that of a trace ends.
pub(crate) struct Draws {
    demand: Arc<Demand>,
    rng: Rng,
    page: u64,
    item: u64,
}

impl Draws {
    /// The next object; `None` at the end of a trace.
    pub(crate) fn draw(&mut self) -> Option<Drawn> {
        let run = self.demand.run;
        let object = |number| ObjectRef { run, number };
        if let Some(replay) = &self.demand.replay {
            let (number, document) =
                replay.request(self.demand.next.fetch_add(1, Ordering::Relaxed))?;
            return Some(Drawn { object: object(number), document: document.map(object) });
        }
        Some(Drawn { object: object(self.drawn_number()), document: None })
    }

    fn drawn_number(&mut self) -> u64 {
        let demand = &self.demand;
        match demand.kind {
            Kind::Fill => demand.next.fetch_add(1, Ordering::Relaxed),
            Kind::Hit | Kind::Zipf | Kind::Ranges | Kind::Trace => self.ranked(),
            Kind::Pages => {
                let page_objects = demand.page_objects;
                if self.item >= page_objects {
                    self.page = self.ranked();
                    self.item = 0;
                }
                self.item += 1;
                self.page * page_objects + self.item - 1
            }
        }
    }

    /// A range of this length at a random position in a body; the whole of a shorter body.
    pub(crate) fn range(&mut self, range_bytes: u64, length_bytes: u64) -> Range<u64> {
        let range_bytes = range_bytes.min(length_bytes);
        let start = self.rng.u64(0..=length_bytes - range_bytes);
        start..start + range_bytes
    }

    fn ranked(&mut self) -> u64 {
        let rank = self.demand.zipf.draw(&mut self.rng);
        u64::from(self.demand.by_rank[rank as usize])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn demand(kind: Kind, count: u32) -> Arc<Demand> {
        Arc::new(Demand::new(kind, 1, 4, count, (0.8, 7)).expect("a small table"))
    }

    #[test]
    fn fill_never_repeats_across_connections() {
        let demand = demand(Kind::Fill, 1);
        let mut both = [demand.draws(1), demand.draws(2)];
        let numbers: HashSet<u64> =
            (0..100).map(|i| both[i % 2].draw().unwrap().object.number).collect();
        assert_eq!(numbers.len(), 100);
    }

    #[test]
    fn ranges_lie_within_the_body_and_reach_both_ends() {
        let mut draws = demand(Kind::Ranges, 3).draws(1);
        let all: Vec<_> = (0..300).map(|_| draws.range(10, 20)).collect();
        assert!(all.iter().all(|range| range.end - range.start == 10 && range.end <= 20));
        assert!(all.iter().any(|range| range.start == 0) && all.iter().any(|r| r.end == 20));
        assert_eq!(draws.range(10, 4), 0..4);
    }

    #[test]
    fn a_page_view_is_a_document_and_all_it_embeds() {
        let mut draws = demand(Kind::Pages, 50).draws(3);
        for _ in 0..20 {
            let first = draws.draw().unwrap().object.number;
            assert_eq!(first % 4, 0);
            assert_eq!(
                [(); 3].map(|()| draws.draw().unwrap().object.number),
                [first + 1, first + 2, first + 3]
            );
        }
    }

    #[test]
    fn draws_replay_and_popularity_ends_the_warm_up() {
        let demand = demand(Kind::Zipf, 1000);
        let draw = |seed| {
            let mut draws = demand.draws(seed);
            (0..5000).map(|_| draws.draw().unwrap().object.number).collect::<Vec<_>>()
        };
        assert_eq!(draw(5), draw(5));
        let all = demand.each_once();
        assert_eq!(all.iter().map(|object| object.number).collect::<HashSet<_>>().len(), 1000);
        let top = all[999].number;
        assert!(draw(5).iter().filter(|&&number| number == top).count() > 100);
    }
}
