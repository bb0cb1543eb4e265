//! Which pages hold the objects of a group, as far as it is known.
//!
//! Invariant: what the lists of all groups may hold beyond a few runs each is taken from one
//! budget, and goes back to it when a list shrinks or goes. A list that gets no more gives up first
//! runs whose segment has been reused, then its oldest. Threads: the holder of the group's lock;
//! the budget is shared by all.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::space::SegmentId;
use crate::sync::Arc;
use crate::types::SegmentLife;

/// Runs that each group may have without asking.
const FEW: usize = 4;
/// Most runs of one group.
const RUNS_MAX: usize = 4096;

/// Consecutive pages that hold a group's objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageRun {
    pub(crate) segment: SegmentId,
    pub(crate) life: SegmentLife,
    pub(crate) first_page: u32,
    pub(crate) pages: u32,
}

/// Room for runs beyond a few of each group.
pub(super) struct Budget {
    taken: AtomicUsize,
    max: usize,
    /// Some list got no more since this was last asked.
    was_short: AtomicBool,
}

impl Budget {
    pub(super) fn new(bytes: u64) -> Budget {
        let max = usize::try_from(bytes).unwrap_or(usize::MAX) / size_of::<PageRun>();
        Budget { taken: AtomicUsize::new(0), max, was_short: AtomicBool::new(false) }
    }

    pub(super) fn taken_bytes(&self) -> usize {
        self.taken.load(Ordering::Relaxed) * size_of::<PageRun>()
    }

    pub(super) fn was_short(&self) -> bool {
        self.was_short.swap(false, Ordering::Relaxed)
    }

    fn take(&self, runs: usize) -> bool {
        let more = |taken: usize| taken.checked_add(runs).filter(|sum| *sum <= self.max);
        let took = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if !took {
            self.was_short.store(true, Ordering::Relaxed);
        }
        took
    }

    fn give_back(&self, runs: usize) {
        self.taken.fetch_sub(runs, Ordering::Relaxed);
    }
}

pub(super) struct PageRuns {
    list: Vec<PageRun>,
    /// Runs that the list may have: `FEW`, and what it took from the budget.
    room: usize,
    budget: Arc<Budget>,
}

impl PageRuns {
    pub(super) fn new(budget: Arc<Budget>) -> PageRuns {
        PageRuns { list: Vec::new(), room: FEW, budget }
    }

    pub(super) fn list(&self) -> &[PageRun] {
        &self.list
    }

    pub(super) fn note(
        &mut self,
        segment: SegmentId,
        life: SegmentLife,
        page: u32,
        is_current: impl Fn(&PageRun) -> bool,
    ) {
        if let Some(last) = self.list.last_mut()
            && last.segment == segment
            && last.life == life
        {
            if (last.first_page..last.first_page + last.pages).contains(&page) {
                return;
            }
            if last.first_page + last.pages == page {
                last.pages += 1;
                return;
            }
        }
        if self.list.len() == self.room {
            self.make_room(is_current);
        }
        self.list.push(PageRun { segment, life, first_page: page, pages: 1 });
    }

    /// Makes room for a run, at best for as many as there are.
    fn make_room(&mut self, is_current: impl Fn(&PageRun) -> bool) {
        self.list.retain(is_current);
        // Half of it: else a list of which one run has gone would be searched for each new one.
        if self.list.len() <= self.room / 2 {
            return;
        }
        let more = self.room.min(RUNS_MAX - self.room);
        if more > 0 && self.budget.take(more) {
            self.room += more;
            self.list.reserve_exact(self.room - self.list.len());
        } else {
            self.give_up_oldest(self.room / 4);
        }
    }

    /// Forgets the `count` runs of the oldest lives: an open notes the newest segments first.
    fn give_up_oldest(&mut self, count: usize) {
        let mut lives: Vec<SegmentLife> = self.list.iter().map(|run| run.life).collect();
        let Some(last) = count.checked_sub(1).filter(|last| *last < lives.len()) else { return };
        let oldest = *lives.select_nth_unstable(last).1;
        let mut left = count;
        self.list.retain(|run| {
            let goes = left > 0 && run.life <= oldest;
            left -= usize::from(goes);
            !goes
        });
    }

    /// Forgets the runs that are not current, and gives room back if most was theirs.
    pub(super) fn forget(&mut self, is_current: impl Fn(&PageRun) -> bool) {
        self.list.retain(is_current);
        let room = (2 * self.list.len()).max(FEW);
        if room <= self.room / 2 {
            self.list.shrink_to(room);
            self.budget.give_back(self.room - room);
            self.room = room;
        }
    }
}

impl Drop for PageRuns {
    fn drop(&mut self) {
        self.budget.give_back(self.room - FEW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(raw: u64) -> SegmentLife {
        SegmentLife::from_raw(raw)
    }

    fn run(segment: u32, of: u64, first_page: u32, pages: u32) -> PageRun {
        PageRun { segment: SegmentId(segment), life: life(of), first_page, pages }
    }

    fn runs_of(budget: &Arc<Budget>) -> PageRuns {
        PageRuns::new(Arc::clone(budget))
    }

    /// A run of its own in each segment.
    fn fill(
        runs: &mut PageRuns,
        lives: std::ops::Range<u64>,
        is_current: impl Fn(&PageRun) -> bool,
    ) {
        lives.for_each(|of| runs.note(SegmentId(of as u32), life(of), 1, &is_current));
    }

    #[test]
    fn pages_that_follow_each_other_are_one_run_within_a_life() {
        let mut runs = runs_of(&Arc::new(Budget::new(1 << 20)));
        for page in [3, 4, 4, 3, 5, 7] {
            runs.note(SegmentId(1), life(10), page, |_| true);
        }
        runs.note(SegmentId(2), life(11), 8, |_| true);
        runs.note(SegmentId(2), life(12), 9, |_| true);
        let all = [run(1, 10, 3, 3), run(1, 10, 7, 1), run(2, 11, 8, 1), run(2, 12, 9, 1)];
        assert_eq!(runs.list(), all);
        runs.forget(|run| run.life != life(11));
        assert_eq!(runs.list(), [all[0], all[1], all[3]]);
    }

    #[test]
    fn all_lists_together_stay_within_their_budget() {
        let budget = Arc::new(Budget::new(100 * size_of::<PageRun>() as u64));
        let mut all: Vec<PageRuns> = (0..50).map(|_| runs_of(&budget)).collect();
        for of in 0..1000 {
            for runs in &mut all {
                fill(runs, of..of + 1, |_| true);
                assert_eq!(runs.list().last(), Some(&run(of as u32, of, 1, 1)));
            }
            let room: usize = all.iter().map(|runs| runs.list.capacity()).sum();
            assert!(room <= 50 * FEW + 100, "{room}");
        }
        assert!(budget.was_short() && !budget.was_short());
        assert!(all.iter().all(|runs| runs.list().len() >= FEW - 1), "each keeps the newest");
        drop(all);
        assert_eq!(budget.taken_bytes(), 0);
    }

    /// As after an open.
    #[test]
    fn the_oldest_lives_go_whenever_they_were_noted() {
        let mut runs = runs_of(&Arc::new(Budget::new(0)));
        for of in [50, 51, 52, 10, 11, 12, 13, 14, 53] {
            fill(&mut runs, of..of + 1, |_| true);
        }
        let lives: Vec<u64> = runs.list().iter().map(|run| run.life.get()).collect();
        assert_eq!(lives, [50, 51, 52, 53]);
    }

    #[test]
    fn runs_of_reused_segments_make_room_first() {
        let budget = Arc::new(Budget::new(1 << 20));
        let mut runs = runs_of(&budget);
        for of in 0..10_000 {
            fill(&mut runs, of..of + 1, |run| run.life > life(of.saturating_sub(10)));
        }
        assert!(runs.room <= 32, "ten are current: {}", runs.room);
        fill(&mut runs, 0..1000, |_| true);
        let before = budget.taken_bytes();
        runs.forget(|run| run.life >= life(990) && run.life < life(1000));
        assert!(budget.taken_bytes() < before / 8);
        assert_eq!(runs.list().len(), 10);
        fill(&mut runs, 0..10 * RUNS_MAX as u64, |_| true);
        assert_eq!((runs.room, runs.list.capacity()), (RUNS_MAX, RUNS_MAX), "one group's most");
    }
}
