//! The state of groups: hints, flush periods, the pages that hold their objects, and how well page
//! reads served them.
//!
//! Bounded by `groups_tracked_max` and by a share of the memory. Beyond that, the oldest group
//! without a hint is forgotten; its objects stay, only prefetch and statistics lose it. Threads:
//! any; the map is sharded, each group has atomics.

pub(crate) mod hints;
pub(crate) mod neighbours;
mod page_runs;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use self::neighbours::Neighbours;
use self::page_runs::{Budget, PageRun, PageRuns};
use crate::policy::residency::Hint;
use crate::space::SegmentId;
use crate::sync::{Arc, Mutex, lock};
use crate::types::{GroupId, SegmentLife};

const SHARDS: usize = 16;
/// Memory of one remembered group with a few pages, counted against the budget.
const GROUP_BYTES: usize = 400;
/// Groups take at most one part in this many of the memory for data.
const MEMORY_SHARE: u64 = 12;
/// Lists of pages beyond a few runs for each group take at most one part in this many.
const RUNS_SHARE: u64 = 64;

/// Lists of pages are looked through once one in this many segments has been reused.
const LOOK_PART: u64 = 16;

/// Statistics of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupStats {
    /// Objects created.
    pub objects_created: u64,
    /// Bytes of values created.
    pub bytes_created: u64,
    /// Reads that went to disk.
    pub disk_reads: u64,
    /// Reads of whole pages among these.
    pub page_reads: u64,
    /// Objects that came in with a page.
    pub prefetched: u64,
    /// Prefetched objects that were requested.
    pub prefetch_hits: u64,
    /// Pages known to hold the group's objects.
    pub pages_known: u64,
    /// Loved, hated or neutral.
    pub hint: Hint,
}

pub(crate) struct GroupState {
    hint: AtomicU8,
    pub(crate) objects_created: AtomicU64,
    pub(crate) bytes_created: AtomicU64,
    pub(crate) disk_reads: AtomicU64,
    pub(crate) page_reads: AtomicU64,
    pub(crate) prefetched: AtomicU64,
    pub(crate) prefetch_hits: AtomicU64,
    /// Evidence for the choice between object and page reads.
    pub(crate) neighbours: Neighbours,
    /// The page after the one read last, to detect sequential reading.
    pub(crate) next_page: AtomicU64,
    /// Flush period in milliseconds plus one; 0 = the store's.
    flush_ms: AtomicU64,
    pages: Mutex<PageRuns>,
}

impl GroupState {
    fn new(budget: Arc<Budget>) -> GroupState {
        GroupState {
            hint: AtomicU8::default(),
            objects_created: AtomicU64::default(),
            bytes_created: AtomicU64::default(),
            disk_reads: AtomicU64::default(),
            page_reads: AtomicU64::default(),
            prefetched: AtomicU64::default(),
            prefetch_hits: AtomicU64::default(),
            neighbours: Neighbours::default(),
            next_page: AtomicU64::default(),
            flush_ms: AtomicU64::default(),
            pages: Mutex::new(PageRuns::new(budget)),
        }
    }

    pub(crate) fn hint(&self) -> Hint {
        match self.hint.load(Ordering::Relaxed) {
            1 => Hint::Loved,
            2 => Hint::Hated,
            _ => Hint::Neutral,
        }
    }

    fn set_hint(&self, hint: Hint) {
        let code = match hint {
            Hint::Neutral => 0,
            Hint::Loved => 1,
            Hint::Hated => 2,
        };
        self.hint.store(code, Ordering::Relaxed);
    }

    pub(crate) fn flush_period(&self) -> Option<Duration> {
        self.flush_ms.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_millis)
    }

    pub(crate) fn set_flush_period(&self, period: Duration) {
        // Zero is for a page's worth: what is shorter than a millisecond is no zero.
        let ms = u64::try_from(period.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX - 1);
        self.flush_ms.store(ms.saturating_add(1), Ordering::Relaxed);
    }

    /// An object that came with a page was what the page was read for. It may have come before
    /// the group was known.
    pub(crate) fn not_prefetched(&self) {
        let less = |count: u64| count.checked_sub(1);
        let _ = self.prefetched.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Remembers that a page holds objects of this group.
    pub(crate) fn note_page(
        &self,
        segment: SegmentId,
        life: SegmentLife,
        page: u32,
        is_current: impl Fn(SegmentId, SegmentLife) -> bool,
    ) {
        let is_current = |run: &PageRun| is_current(run.segment, run.life);
        lock(&self.pages).note(segment, life, page, is_current);
    }

    /// The known pages whose segment has not been reused.
    pub(crate) fn pages(
        &self,
        is_current: impl Fn(SegmentId, SegmentLife) -> bool,
    ) -> Vec<PageRun> {
        let mut pages = lock(&self.pages);
        pages.forget(|run| is_current(run.segment, run.life));
        pages.list().to_vec()
    }

    fn is_worth_keeping(&self) -> bool {
        self.hint() != Hint::Neutral || self.flush_period().is_some()
    }
}

/// Most groups spared for a hint that are examined for one that has lost it since.
const LOOKS_MAX: usize = 16;

/// Groups of a shard. Invariant: each group is either in `order` or in `spared`, once.
#[derive(Default)]
struct Shard {
    states: HashMap<GroupId, Arc<GroupState>>,
    /// Groups in the order in which they are forgotten. The map's own order differs from run to
    /// run.
    order: VecDeque<GroupId>,
    /// Groups spared for a hint, the oldest first. They are examined again only when `order` is
    /// empty; otherwise a store of many hinted groups would examine all of them for each new one.
    spared: VecDeque<GroupId>,
}

impl Shard {
    /// Forgets the oldest group without a hint; if all have one, the oldest group is forgotten, to
    /// keep the bound.
    fn forget_one(&mut self) {
        while let Some(id) = self.order.pop_front() {
            if !self.is_worth_keeping(id) {
                self.states.remove(&id);
                return;
            }
            self.spared.push_back(id);
        }
        let hint_is_gone = |id: &GroupId| !self.is_worth_keeping(*id);
        let at = self.spared.iter().take(LOOKS_MAX).position(hint_is_gone).unwrap_or(0);
        if let Some(id) = self.spared.remove(at) {
            self.states.remove(&id);
        }
    }

    fn is_worth_keeping(&self, id: GroupId) -> bool {
        self.states.get(&id).is_some_and(|state| state.is_worth_keeping())
    }
}

pub(crate) struct Groups {
    shards: [Mutex<Shard>; SHARDS],
    tracked: AtomicUsize,
    tracked_max: usize,
    /// Whether any group ever had a hint; until then hints need not be looked up. Never reset.
    any_hinted: AtomicBool,
    runs: Arc<Budget>,
    /// Segments that had been reused when all lists of pages were last looked through.
    looked_at: AtomicU64,
}

impl Groups {
    /// Remembers `tracked_max` groups, or fewer if those would take too much of the memory.
    pub(crate) fn new(tracked_max: usize, memory_bytes: u64) -> Groups {
        let affordable = (memory_bytes / MEMORY_SHARE) as usize / GROUP_BYTES;
        Groups {
            shards: Default::default(),
            tracked: AtomicUsize::new(0),
            tracked_max: tracked_max.min(affordable).max(SHARDS),
            any_hinted: AtomicBool::new(false),
            runs: Arc::new(Budget::new(memory_bytes / RUNS_SHARE)),
            looked_at: AtomicU64::new(0),
        }
    }

    /// Memory of all that is remembered.
    pub(crate) fn bytes(&self) -> usize {
        self.tracked() * GROUP_BYTES + self.runs.taken_bytes()
    }

    /// If some list of pages got no more room: frees that of reused segments, once a part of all
    /// segments has been reused since it was last done. `reused`: how many ever were.
    pub(crate) fn forget_reused(
        &self,
        reused: u64,
        segments: u64,
        is_current: impl Fn(SegmentId, SegmentLife) -> bool,
    ) {
        let since = reused - self.looked_at.load(Ordering::Relaxed);
        if since <= segments / LOOK_PART || !self.runs.was_short() {
            return;
        }
        self.looked_at.store(reused, Ordering::Relaxed);
        for shard in &self.shards {
            for state in lock(shard).states.values() {
                lock(&state.pages).forget(|run| is_current(run.segment, run.life));
            }
        }
    }

    fn shard(&self, id: GroupId) -> &Mutex<Shard> {
        &self.shards[(id.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize % SHARDS]
    }

    pub(crate) fn get(&self, id: GroupId) -> Option<Arc<GroupState>> {
        lock(self.shard(id)).states.get(&id).cloned()
    }

    /// The group's state, created if it is not tracked yet.
    pub(crate) fn entry(&self, id: GroupId) -> Arc<GroupState> {
        let mut shard = lock(self.shard(id));
        if let Some(state) = shard.states.get(&id) {
            return Arc::clone(state);
        }
        if shard.states.len() >= self.tracked_max / SHARDS {
            shard.forget_one();
            self.tracked.fetch_sub(1, Ordering::Relaxed);
        }
        let state = Arc::new(GroupState::new(Arc::clone(&self.runs)));
        shard.states.insert(id, Arc::clone(&state));
        shard.order.push_back(id);
        self.tracked.fetch_add(1, Ordering::Relaxed);
        state
    }

    pub(crate) fn hint(&self, id: GroupId) -> Hint {
        if !self.any_hinted.load(Ordering::Relaxed) {
            return Hint::Neutral;
        }
        self.get(id).map_or(Hint::Neutral, |state| state.hint())
    }

    pub(crate) fn set_hint(&self, id: GroupId, hint: Hint) {
        if hint != Hint::Neutral {
            self.any_hinted.store(true, Ordering::Relaxed);
        }
        self.entry(id).set_hint(hint);
    }

    pub(crate) fn tracked(&self) -> usize {
        self.tracked.load(Ordering::Relaxed)
    }

    pub(crate) fn stats(
        &self,
        id: GroupId,
        is_current: impl Fn(SegmentId, SegmentLife) -> bool,
    ) -> Option<GroupStats> {
        let state = self.get(id)?;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Some(GroupStats {
            objects_created: get(&state.objects_created),
            bytes_created: get(&state.bytes_created),
            disk_reads: get(&state.disk_reads),
            page_reads: get(&state.page_reads),
            prefetched: get(&state.prefetched),
            prefetch_hits: get(&state.prefetch_hits),
            pages_known: state.pages(is_current).iter().map(|run| u64::from(run.pages)).sum(),
            hint: state.hint(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_one_shard(groups: &Groups) -> impl Iterator<Item = GroupId> {
        let shard = |id: &GroupId| std::ptr::from_ref(groups.shard(*id));
        (0..1_000).map(GroupId::new).filter(move |id| shard(id) == shard(&GroupId::new(0)))
    }

    /// Two groups to a shard; of a shard's ids the first is hinted, so that the second goes for the
    /// third, the third for the fourth.
    #[test]
    fn who_came_first_is_forgotten_first_unless_hinted() {
        let groups = Groups::new(2 * SHARDS, u64::MAX);
        let ids: Vec<GroupId> = of_one_shard(&groups).take(5).collect();
        groups.entry(ids[0]);
        groups.set_hint(ids[0], Hint::Loved);
        ids[1..4].iter().for_each(|id| drop(groups.entry(*id)));
        let known = |id: &&GroupId| groups.get(**id).is_some();
        assert_eq!(ids.iter().filter(known).collect::<Vec<_>>(), [&ids[0], &ids[3]]);
        assert_eq!(groups.tracked(), 2);
        groups.set_hint(ids[3], Hint::Hated);
        groups.entry(ids[4]);
        assert_eq!(groups.tracked(), 2, "hints do not raise the bound");
        assert!(groups.get(ids[4]).is_some());
        assert!(groups.get(ids[0]).is_none() && groups.get(ids[3]).is_some(), "the first");
    }

    #[test]
    fn among_hinted_groups_those_that_lost_their_hint_go_first() {
        let groups = Groups::new(8 * SHARDS, u64::MAX);
        let mut ids = of_one_shard(&groups);
        let hinted: Vec<GroupId> = ids.by_ref().take(8).collect();
        hinted.iter().for_each(|id| groups.set_hint(*id, Hint::Loved));
        // All are spared once, and the first goes for the new one.
        groups.set_hint(ids.next().unwrap(), Hint::Loved);
        groups.set_hint(hinted[4], Hint::Neutral);
        groups.set_hint(ids.next().unwrap(), Hint::Loved);
        groups.entry(ids.next().unwrap());
        let left: Vec<bool> = hinted.iter().map(|id| groups.get(*id).is_some()).collect();
        assert_eq!(left, [false, false, true, true, false, true, true, true]);
    }
}
