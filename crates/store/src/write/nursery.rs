//! The nursery: new objects wait in memory, by group, until a page's worth of their group has
//! gathered.
//!
//! Invariants: every staged object lies, complete, in a run that its `Staged` holds; the resident
//! table decides whether it is still wanted when its page is built. `bytes` is the sum of the
//! objects that wait or are being written; back-pressure on creates depends on it. Creates that
//! wait get in by order of arrival (`line`). Threads: any create adds; one flusher takes.

mod groups;
mod line;
mod list;
mod staged;
mod taking;
mod waiting;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard, lock};
use std::time::Duration;

use crate::format::UNIT_BYTES;
use crate::memory::pool::Run;
use crate::signal::Signal;
use crate::types::{GroupId, Sequence};

use groups::{GROUP_BYTES, ListId, earlier};
use line::Line;
pub(crate) use line::Place;
pub(crate) use staged::{Due, Finished, Staged, StagedExtent};
pub(crate) use taking::Work;
use waiting::State;

#[derive(Default)]
struct OpenRun {
    run: Option<Run>,
    used: usize,
}

/// Extents wait until this many bytes can go to disk in one write, unless a thread waits for them.
const EXTENTS_BYTES: u64 = 1 << 20;
/// Waiting extents are written at 1/`EXTENTS_PART` of the nursery's flush threshold, if that is
/// less.
const EXTENTS_PART: u64 = 2;

/// A run is held as long as one object in it waits, so a few objects of small groups could hold all
/// memory. Those that came first are moved together when the runs handed in since then may hold
/// this percentage of what waits or is being written, and 1/`HELD_PART` of the limit.
const HELD_PERCENT: u64 = 150;
const HELD_PART: u64 = 8;

/// Memory of a list in percent of its contents: its pieces, the copy in one piece that the flusher
/// works with, and what the allocator keeps of both for each thread that creates.
const LISTED_PERCENT: usize = 200;

/// Most rounds begun by [`Nursery::oldest_seq`]; beyond that, its answer is coarser.
const ROUNDS_MAX: usize = 16;

/// How often a drain repeats its request to the flusher.
const DRAIN_NAP: Duration = Duration::from_millis(50);
/// Waiting creates are woken when 1/`WAKE_PART` of the limit is free.
const WAKE_PART: u64 = 8;

pub(crate) struct Nursery {
    /// The run that creates are filling.
    open: Mutex<OpenRun>,
    state: Mutex<State>,
    /// Bytes waiting or being written; changed with `state` locked.
    bytes: AtomicU64,
    /// Total bytes of runs ever handed in for small objects.
    handed_in: AtomicU64,
    work: Signal,
    done: Signal,
    /// Creates that wait for room.
    line: Arc<Line>,
    /// Creates wait beyond this many bytes.
    pub(crate) limit_bytes: u64,
    flush_at_bytes: u64,
    /// Most objects are due so long after they came.
    flush_period: Duration,
}

impl Nursery {
    pub(crate) fn new(limit_bytes: u64, flush_period: Duration) -> Nursery {
        Nursery {
            open: Mutex::default(),
            state: Mutex::default(),
            bytes: AtomicU64::new(0),
            handed_in: AtomicU64::new(0),
            work: Signal::default(),
            done: Signal::default(),
            line: Arc::default(),
            limit_bytes,
            flush_at_bytes: limit_bytes / 2,
            flush_period,
        }
    }

    /// True if a create of this size should wait for the flusher first, or for creates that came
    /// before it; else it leaves the line, if it was in it.
    pub(crate) fn is_full(&self, stored_bytes: u64, place: &mut Place) -> bool {
        let has_turn = self.has_turn(stored_bytes, place);
        if has_turn {
            *place = Place::default();
        }
        !has_turn
    }

    /// True if there is room for a create of this size beside those that came before.
    pub(crate) fn has_turn(&self, stored_bytes: u64, place: &Place) -> bool {
        let before = self.bytes() + self.line.ahead(place);
        before == 0 || before + stored_bytes <= self.limit_bytes
    }

    /// Gives a create that found the nursery full a place in the line of those who wait, unless it
    /// has one. Its thread asks `is_full` again every few milliseconds.
    pub(crate) fn stand_in_line(&self, stored_bytes: u64, place: &mut Place) {
        self.line.join(stored_bytes, place);
    }

    /// True if nothing waits to be written, nor stands in line for that before this create.
    pub(crate) fn is_empty_for(&self, place: &Place) -> bool {
        self.bytes() == 0 && self.line.ahead(place) == 0
    }

    /// True if the flusher has work without being asked.
    pub(crate) fn wants_flush(&self) -> bool {
        let state = lock(&self.state);
        self.wants_extents(&state)
            || state.waiting_bytes >= self.flush_at_bytes
            || self.is_sparse(&state)
    }

    /// Bytes of runs handed in since the oldest of the objects in groups came: all of them may be
    /// held.
    fn span(&self, state: &State) -> u64 {
        match state.groups.is_empty() {
            true => 0,
            false => self.handed_in().saturating_sub(state.oldest_came_at),
        }
    }

    /// Bytes of runs handed in so far: the time of `came_at`.
    pub(crate) fn handed_in(&self) -> u64 {
        self.handed_in.load(Ordering::Relaxed)
    }

    /// Most bytes of runs that waiting objects may hold.
    fn span_max(&self, state: &State) -> u64 {
        let wanted = self.bytes().saturating_sub(state.dead_bytes);
        wanted * HELD_PERCENT / 100 + self.limit_bytes / HELD_PART
    }

    /// True if waiting objects may hold much more memory than they fill.
    fn is_sparse(&self, state: &State) -> bool {
        self.span(state) > self.span_max(state)
    }

    /// True if the waiting extents are worth a write, or must not wait for more.
    fn wants_extents(&self, state: &State) -> bool {
        let enough = EXTENTS_BYTES.min(self.flush_at_bytes / EXTENTS_PART);
        let asked = state.drain_extents || state.stop || state.part_waits;
        let full = state.waiting_bytes >= self.flush_at_bytes || state.extent_bytes >= enough;
        !state.extents.is_empty() && (asked || full)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Reserves room in the open run. `None`: the caller hands in a fresh run with `refill` and
    /// tries again.
    pub(crate) fn reserve(&self, stored_bytes: usize) -> Option<(Run, usize)> {
        debug_assert!(stored_bytes.is_multiple_of(UNIT_BYTES as usize));
        let mut open = lock(&self.open);
        let run = open.run.as_ref()?;
        if run.len_bytes() - open.used < stored_bytes {
            return None;
        }
        let place = (run.clone(), open.used);
        open.used += stored_bytes;
        Some(place)
    }

    pub(crate) fn refill(&self, run: Run) {
        self.handed_in.fetch_add(run.len_bytes() as u64, Ordering::Relaxed);
        let old = std::mem::replace(&mut *lock(&self.open), OpenRun { run: Some(run), used: 0 });
        drop(old);
    }

    /// Queues an object that was created with this sequence number, and whose entry has been
    /// published. False if the store was closed in the meantime: the object would never be written.
    #[must_use]
    pub(crate) fn push(&self, group: GroupId, mut staged: Staged, seq: Sequence) -> bool {
        let mut state = lock(&self.state);
        if state.ended {
            return false;
        }
        staged.round = state.enter_round(seq);
        staged.came_at = self.handed_in();
        let bytes = u64::from(staged.stored_bytes);
        let id = ListId { group, may_wait: staged.may_wait };
        state.list_for(id, bytes, staged.came_at, staged.due.time()).push(staged);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        state.objects += 1;
        state.most = state.most.max(state.objects + state.in_flight);
        state.most_groups = state.most_groups.max(state.groups.len());
        let wake = state.waiting_bytes >= self.flush_at_bytes || self.is_sparse(&state);
        drop(state);
        if wake {
            self.work.notify_one();
        }
        true
    }

    /// Notes that an object of those that may wait was replaced by another of them. They are of
    /// those that are replaced again and again; the flusher comes to others soon.
    pub(crate) fn died(&self, bytes: u64) {
        lock(&self.state).dead_bytes += bytes;
    }

    /// Notes that `bytes` of them left.
    pub(crate) fn dead_left(&self, bytes: u64) {
        let mut state = lock(&self.state);
        state.dead_bytes = state.dead_bytes.saturating_sub(bytes);
    }

    /// Memory of the tables besides the objects' bytes, at its peak: the allocator does not return
    /// the memory of many small lists.
    pub(crate) fn table_bytes(&self) -> usize {
        let state = lock(&self.state);
        let listed = state.most as usize * size_of::<Staged>() * LISTED_PERCENT / 100;
        listed + state.most_groups * GROUP_BYTES
    }

    /// As `push`, for an extent. If a part is not queued, its sender is dropped, which tells the
    /// waiting writer.
    #[must_use]
    pub(crate) fn push_extent(&self, mut extent: StagedExtent, seq: Sequence) -> bool {
        let mut state = lock(&self.state);
        if state.ended {
            return false;
        }
        extent.staged.round = state.enter_round(seq);
        let bytes = u64::from(extent.staged.stored_bytes);
        state.waiting_bytes += bytes;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        state.objects += 1;
        state.extent_bytes += bytes;
        state.part_waits |= extent.part.is_some();
        state.extents_due = earlier(state.extents_due, extent.staged.due.time());
        state.extents.push(extent);
        let wake = self.wants_extents(&state);
        drop(state);
        if wake {
            self.work.notify_one();
        }
        true
    }

    /// Reports that the flusher is done with objects it had taken: written or dead.
    pub(crate) fn finished(&self, done: &Finished) {
        self.finish(lock(&self.state), done);
    }

    /// The same of objects that were found dead.
    pub(crate) fn finished_dead(&self, dead: &Finished) {
        let mut state = lock(&self.state);
        state.dead_bytes = state.dead_bytes.saturating_sub(dead.may_wait_bytes);
        self.finish(state, dead);
    }

    /// The same of objects that could not be written, for this reason.
    pub(crate) fn dropped_for(&self, reason: &str, done: &Finished) {
        let mut state = lock(&self.state);
        state.dropped += done.objects;
        reason.clone_into(&mut state.why_dropped);
        self.finish(state, done);
    }

    fn finish(&self, mut state: MutexGuard<'_, State>, done: &Finished) {
        state.in_flight -= done.objects;
        for (round, count) in &done.rounds {
            state.leave_round(*round, *count);
        }
        let bytes = done.bytes;
        let left = self.bytes.fetch_sub(bytes, Ordering::Relaxed) - bytes;
        let idle = state.in_flight == 0;
        if left == 0 {
            state.dead_bytes = 0;
        }
        drop(state);
        // Waiting creates are woken once for many objects, not for each.
        if idle || left <= self.limit_bytes - self.limit_bytes / WAKE_PART {
            self.done.notify_all();
        }
    }

    /// Puts back objects of one list that did not fill a page, or that were moved.
    pub(crate) fn put_back(&self, group: GroupId, objects: Vec<Staged>) {
        let Some(first) = objects.first() else { return };
        let id = ListId { group, may_wait: first.may_wait };
        let mut state = lock(&self.state);
        let bytes: u64 = objects.iter().map(|s| u64::from(s.stored_bytes)).sum();
        let count = objects.len() as u64;
        let came_at = objects.iter().map(|s| s.came_at).min().unwrap_or(u64::MAX);
        state.drain_pages |= objects.iter().any(|object| state.is_drained(object.round));
        let due = objects.iter().fold(None, |due, object| earlier(due, object.due.time()));
        state.list_for(id, bytes, came_at, due).put_before(objects);
        state.in_flight -= count;
        state.objects += count;
    }

    /// Requests that everything now in the nursery be written, and waits until it is. Later objects
    /// are not waited for, so a drain ends however fast others create. `work` is called when the
    /// flusher has work, for stores in which callers do it.
    pub(crate) fn drain(&self, work: impl Fn()) {
        let mut state = lock(&self.state);
        let last = state.end_round();
        state.drained_through = Some(last);
        let mut ask = true;
        while state.has_unfinished(last) {
            if ask {
                state.ask_for_all();
                self.work.notify_one();
                drop(state);
                work();
                state = lock(&self.state);
                if !state.has_unfinished(last) {
                    return;
                }
            }
            let notified;
            (state, notified) = self.done.wait_for(state, DRAIN_NAP);
            // A wake-up may have been missed.
            ask = !notified;
        }
    }

    /// Lower bound of the sequence numbers of all objects that wait or are being written; `None` if
    /// there are none. Each call ends a round, so that the bound follows the objects.
    pub(crate) fn oldest_seq(&self) -> Option<Sequence> {
        let mut state = lock(&self.state);
        let oldest = state.oldest_seq();
        if state.rounds() < ROUNDS_MAX {
            state.end_round();
        }
        oldest
    }

    /// Number of objects dropped since the store was opened, and why the last of them was.
    pub(crate) fn dropped(&self) -> (u64, String) {
        let state = lock(&self.state);
        (state.dropped, state.why_dropped.clone())
    }

    /// Of how many of these callers have been told.
    pub(crate) fn dropped_told(&self) -> u64 {
        lock(&self.state).dropped_told
    }

    /// Notes that a caller is told of the first `dropped`.
    pub(crate) fn tell_dropped(&self, dropped: u64) {
        let mut state = lock(&self.state);
        state.dropped_told = state.dropped_told.max(dropped);
    }

    /// Waits, at most `nap`, until something was written.
    pub(crate) fn wait_progress(&self, nap: Duration) {
        let state = lock(&self.state);
        self.work.notify_one();
        drop(self.done.wait_for(state, nap));
    }

    /// Wakes the flusher, which may have fallen asleep for long.
    pub(crate) fn wake(&self) {
        drop(lock(&self.state));
        self.work.notify_all();
    }

    pub(crate) fn stop(&self) {
        lock(&self.state).stop = true;
        self.work.notify_all();
    }

    /// Requests a flush of everything that waits now, however little it is.
    pub(crate) fn request_flush(&self) {
        let mut state = lock(&self.state);
        state.ask_for_all();
        drop(state);
        self.work.notify_one();
    }

    /// As `request_flush`, but only if the flusher is idle until a timer. While writes are in
    /// flight there will be room anyway, and pages that are not full would be written needlessly.
    pub(crate) fn request_flush_if_idle(&self) {
        let mut state = lock(&self.state);
        let begins = self.wants_extents(&state) || state.waiting_bytes >= self.flush_at_bytes;
        if state.in_flight == 0 && state.objects > 0 && !begins {
            state.ask_for_all();
            drop(state);
            self.work.notify_one();
        }
    }

    /// Releases the run being filled, if no object waits in it.
    pub(crate) fn release_open(&self) {
        let state = lock(&self.state);
        if state.objects == 0 && state.in_flight == 0 {
            let old = std::mem::take(&mut *lock(&self.open));
            drop(state);
            drop(old);
        }
    }
}

#[cfg(test)]
mod tests;
