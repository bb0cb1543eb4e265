//! Where new objects wait in memory, by group, until a page's worth of their group has gathered.
//!
//! Invariants: every staged object lies, complete, in a run that its `Staged` holds; whether it is
//! still wanted is decided by the resident table when its page is built. `bytes` is the sum of all
//! that waits or is being written, and is what back-pressure is measured by. Threads: any create;
//! one flusher takes.

mod waiting;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::mpsc::Sender;
use crate::sync::{Mutex, MutexGuard, lock, thread};
use std::time::Duration;

use crate::format::UNIT_BYTES;
use crate::memory::pool::Run;
use crate::signal::Signal;

use waiting::{Choice, Pending, State, earlier};

/// An object that waits.
pub(crate) struct Staged {
    pub(crate) run: Run,
    pub(crate) offset: u32,
    pub(crate) stored_bytes: u32,
    pub(crate) hash: u64,
    /// Sequence number it was created with.
    pub(crate) seq: u64,
    /// Kept from a reused segment rather than new.
    pub(crate) reinserted: bool,
    /// Frequency that it starts with in the index.
    pub(crate) freq: u8,
    /// When it is to be written even if that fills no page; an extent: even if it is alone in the write.
    pub(crate) due: Option<Duration>,
    /// Between which two drains it came; set by the nursery.
    pub(crate) round: u64,
    /// How many bytes of runs had been handed in when it came; set by the nursery.
    pub(crate) came_at: u64,
}

/// A record too large for a page: written from where it lies.
pub(crate) struct StagedExtent {
    pub(crate) staged: Staged,
    /// A part of a streamed object; told where it came to lie.
    pub(crate) part: Option<PartSender>,
    pub(crate) group: u64,
}

pub(crate) type PartSender = Sender<Result<(crate::index::Location, u64), String>>;

#[derive(Default)]
struct OpenRun {
    run: Option<Run>,
    used: usize,
}

/// Extents wait until so much can go to disk in one write, unless somebody waits for them.
const EXTENTS_BYTES: u64 = 1 << 20;
/// They hold at most this part of what makes the flusher begin.
const EXTENTS_PART: u64 = 2;

/// A run stays as long as one object in it waits, so that a few objects of small groups could hold all memory.
/// They are written when so many times the limit has been handed in since they came.
const SPAN_LIMITS: u64 = 2;

/// What a list takes of what is in it, on the average: it grows by doubling.
const LISTED_PERCENT: usize = 150;

/// What a group takes besides its list: its place in a table that is half full on the average, and what
/// the allocator puts before a list.
const GROUP_BYTES: usize = 2 * size_of::<(u64, Pending)>() + 16;

/// Groups that the flusher takes while others wait for the lock: a tenth of a millisecond's worth.
const GROUPS_AT_ONCE: usize = 512;

/// So many rounds are told apart for [`Nursery::oldest_seq`].
const ROUNDS_MAX: usize = 16;

/// How often who waits for all of it to be written asks the flusher again.
const DRAIN_NAP: Duration = Duration::from_millis(50);
/// Creates that wait are woken when this part of the limit is free.
const WAKE_PART: u64 = 8;

pub(crate) struct Nursery {
    /// The run that creates are filling.
    open: Mutex<OpenRun>,
    state: Mutex<State>,
    /// Bytes waiting or being written; changed under the lock of `state`.
    bytes: AtomicU64,
    /// Bytes of runs that were handed in for small objects, ever.
    handed_in: AtomicU64,
    work: Signal,
    done: Signal,
    /// Bytes beyond which creates wait.
    pub(crate) limit_bytes: u64,
    flush_at_bytes: u64,
}

/// What the flusher is to do next.
pub(crate) enum Work {
    /// These groups' objects, each adjacent; `partial` = build pages even if not full.
    Pages {
        groups: Vec<(u64, Vec<Staged>)>,
        partial: bool,
    },
    Extents(Vec<StagedExtent>),
    Idle,
    Stop,
}

impl Nursery {
    pub(crate) fn new(limit_bytes: u64) -> Nursery {
        Nursery {
            open: Mutex::default(),
            state: Mutex::default(),
            bytes: AtomicU64::new(0),
            handed_in: AtomicU64::new(0),
            work: Signal::default(),
            done: Signal::default(),
            limit_bytes,
            flush_at_bytes: limit_bytes / 2,
        }
    }

    /// True if a create of this size should wait for the flusher first.
    pub(crate) fn is_full(&self, stored_bytes: u64) -> bool {
        let bytes = self.bytes();
        bytes > 0 && bytes + stored_bytes > self.limit_bytes
    }

    /// True if the flusher has something to do before anybody asks.
    pub(crate) fn wants_flush(&self) -> bool {
        let state = lock(&self.state);
        self.wants_extents(&state)
            || state.waiting_bytes >= self.flush_at_bytes
            || self.is_stretched(&state)
    }

    /// True if something waits, perhaps, that came long ago: runs since then may all be held.
    fn is_stretched(&self, state: &State) -> bool {
        let handed_in = self.handed_in.load(Ordering::Relaxed);
        let span = handed_in.saturating_sub(state.oldest_came_at);
        !state.groups.is_empty() && span > SPAN_LIMITS * self.limit_bytes
    }

    /// All groups of which something waits since half of that span, so that all older runs come free.
    fn choose_stretched(&self, state: &mut State) -> Option<Choice> {
        if !self.is_stretched(state) {
            return None;
        }
        let handed_in = self.handed_in.load(Ordering::Relaxed);
        state.choose_older(handed_in - SPAN_LIMITS * self.limit_bytes / 2)
    }

    /// True if the extents that wait are worth a write, or must not wait for more.
    fn wants_extents(&self, state: &State) -> bool {
        let enough = EXTENTS_BYTES.min(self.flush_at_bytes / EXTENTS_PART);
        let asked = state.drain_extents || state.stop || state.part_waits;
        let full = state.waiting_bytes >= self.flush_at_bytes || state.extent_bytes >= enough;
        !state.extents.is_empty() && (asked || full)
    }

    /// True if something besides extents is to be written now.
    fn wants_pages(&self, state: &State, now: Duration) -> bool {
        let asked = state.drain_pages || state.stop;
        let full = state.group_bytes() >= self.flush_at_bytes || self.is_stretched(state);
        !state.groups.is_empty() && (asked || full || state.is_group_due(now))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Reserves room in the open run. `None`: hand in a fresh run with `refill` and try again.
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

    /// Queues an object whose entry has been published. False: the store was closed meanwhile, and nobody would
    /// write it.
    #[must_use]
    pub(crate) fn push(&self, group: u64, mut staged: Staged) -> bool {
        let mut state = lock(&self.state);
        if state.ended {
            return false;
        }
        staged.round = state.enter_round(staged.seq);
        staged.came_at = self.handed_in.load(Ordering::Relaxed);
        state.note_came_at(staged.came_at);
        let bytes = u64::from(staged.stored_bytes);
        state.groups_due = earlier(state.groups_due, staged.due);
        let pending = state.groups.entry(group).or_default();
        pending.due = earlier(pending.due, staged.due);
        if pending.objects.capacity() == 0 {
            // Many groups have one object: a list that grows by itself begins with room for four.
            pending.objects.reserve_exact(1);
        }
        pending.objects.push(staged);
        pending.bytes += bytes;
        let group_bytes = pending.bytes;
        state.largest_bytes = state.largest_bytes.max(group_bytes);
        state.waiting_bytes += bytes;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        state.objects += 1;
        state.most = state.most.max(state.objects + state.in_flight);
        state.most_groups = state.most_groups.max(state.groups.len());
        let wake = state.waiting_bytes >= self.flush_at_bytes || self.is_stretched(&state);
        drop(state);
        if wake {
            self.work.notify_one();
        }
        true
    }

    /// What is kept of the objects besides their bytes: as much as it ever was, since the allocator does not
    /// give back what it had for so many small lists.
    pub(crate) fn table_bytes(&self) -> usize {
        let state = lock(&self.state);
        let listed = state.most as usize * size_of::<Staged>() * LISTED_PERCENT / 100;
        listed + state.most_groups * GROUP_BYTES
    }

    /// The same for an extent. Who waits to be told where a part lies learns from its sender's end that it
    /// was not queued.
    #[must_use]
    pub(crate) fn push_extent(&self, mut extent: StagedExtent) -> bool {
        let mut state = lock(&self.state);
        if state.ended {
            return false;
        }
        extent.staged.round = state.enter_round(extent.staged.seq);
        let bytes = u64::from(extent.staged.stored_bytes);
        state.waiting_bytes += bytes;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        state.objects += 1;
        state.extent_bytes += bytes;
        state.part_waits |= extent.part.is_some();
        state.extents_due = earlier(state.extents_due, extent.staged.due);
        state.extents.push(extent);
        let wake = self.wants_extents(&state);
        drop(state);
        if wake {
            self.work.notify_one();
        }
        true
    }

    /// The flusher reports objects that it had taken: written, dropped or dead.
    pub(crate) fn finished(&self, done: &Finished, dropped: u64) {
        let mut state = lock(&self.state);
        state.in_flight -= done.objects;
        for (round, count) in &done.rounds {
            state.leave_round(*round, *count);
        }
        let bytes = done.bytes;
        let left = self.bytes.fetch_sub(bytes, Ordering::Relaxed) - bytes;
        state.dropped += dropped;
        let idle = state.in_flight == 0;
        drop(state);
        // Creates that wait for room are woken for a good many objects, not for each.
        if idle || left <= self.limit_bytes - self.limit_bytes / WAKE_PART {
            self.done.notify_all();
        }
    }

    /// Puts back what did not fill a page.
    pub(crate) fn put_back(&self, group: u64, objects: Vec<Staged>) {
        if objects.is_empty() {
            return;
        }
        let mut state = lock(&self.state);
        let bytes: u64 = objects.iter().map(|s| u64::from(s.stored_bytes)).sum();
        let count = objects.len() as u64;
        state.note_came_at(objects[0].came_at);
        let due = objects.iter().fold(None, |due, object| earlier(due, object.due));
        state.groups_due = earlier(state.groups_due, due);
        let pending = state.groups.entry(group).or_default();
        pending.due = earlier(pending.due, due);
        let newer = std::mem::replace(&mut pending.objects, objects);
        pending.objects.extend(newer);
        pending.bytes += bytes;
        let group_bytes = pending.bytes;
        state.largest_bytes = state.largest_bytes.max(group_bytes);
        state.waiting_bytes += bytes;
        state.in_flight -= count;
        state.objects += count;
    }

    /// Waits for work, at most `nap`, and takes it. Where extents and pages are both wanted they take turns:
    /// neither waits for the other to end, which might never be.
    pub(crate) fn take(&self, page_bytes: u64, now: impl Fn() -> Duration, nap: Duration) -> Work {
        let mut state = lock(&self.state);
        let asked = state.drain_pages || state.drain_extents || state.stop;
        let urgent = asked || self.wants_extents(&state) || self.is_stretched(&state);
        if !urgent && state.waiting_bytes < self.flush_at_bytes && !nap.is_zero() {
            state = self.work.wait_for(state, nap).0;
        }
        let now = now();
        let extents = self.wants_extents(&state) || state.extents_due.is_some_and(|due| due <= now);
        let turn_of_pages = std::mem::take(&mut state.pages_next) && self.wants_pages(&state, now);
        if turn_of_pages && let Some(choice) = self.choose(&mut state, page_bytes, now) {
            return self.take_chosen(state, choice);
        }
        if extents {
            state.pages_next = true;
            return Work::Extents(state.take_extents());
        }
        if state.objects > 0 {
            return match self.choose(&mut state, page_bytes, now) {
                Some(choice) => self.take_chosen(state, choice),
                None => Work::Idle,
            };
        }
        let stop = state.stop;
        state.ended = stop;
        drop(state);
        self.done.notify_all();
        if stop { Work::Stop } else { Work::Idle }
    }

    /// The groups that are to be written now.
    fn choose(&self, state: &mut State, page_bytes: u64, now: Duration) -> Option<Choice> {
        if let Some(choice) = self.choose_stretched(state) {
            return Some(choice);
        }
        let over = state.group_bytes() >= self.flush_at_bytes;
        if over && let Some(choice) = state.choose_full(2 * page_bytes) {
            return Some(choice);
        }
        if std::mem::take(&mut state.drain_pages) || state.stop {
            state.choose_largest(u64::MAX)
        } else if over {
            state.choose_largest(self.flush_at_bytes / 2)
        } else {
            state.choose_due(now)
        }
    }

    /// Takes what was chosen, some groups at a time: there may be hundreds of thousands, and creates wait for
    /// the lock. Nobody else takes any meanwhile.
    fn take_chosen(&self, state: MutexGuard<'_, State>, choice: Choice) -> Work {
        drop(state);
        let partial = choice.partial;
        let chosen = choice.in_order();
        let mut groups = Vec::with_capacity(chosen.len());
        for some in chosen.chunks(GROUPS_AT_ONCE) {
            let mut state = lock(&self.state);
            groups.extend(some.iter().filter_map(|group| state.take_group(*group)));
            drop(state);
            if groups.len() < chosen.len() {
                thread::yield_now();
            }
        }
        Work::Pages { groups, partial }
    }

    /// Asks for everything that is here to be written and waits until it is. What comes meanwhile
    /// is not waited for, so that a drain ends however fast others create. `work` is called whenever
    /// there is something for the flusher, for stores in which callers do its work.
    pub(crate) fn drain(&self, work: impl Fn()) {
        let mut state = lock(&self.state);
        let last = state.end_round();
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
            // Something may have been put back since.
            ask = !notified;
        }
    }

    /// No object that waits or is being written has a smaller sequence number; `None` if there is none.
    /// What it says follows the objects, since a round ends each time.
    pub(crate) fn oldest_seq(&self) -> Option<u64> {
        let mut state = lock(&self.state);
        let oldest = state.oldest_seq();
        if state.rounds() < ROUNDS_MAX {
            state.end_round();
        }
        oldest
    }

    /// Objects dropped since this was last asked.
    pub(crate) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut lock(&self.state).dropped)
    }

    /// Waits until something was written, at most `nap`.
    pub(crate) fn wait_progress(&self, nap: Duration) {
        let state = lock(&self.state);
        self.work.notify_one();
        drop(self.done.wait_for(state, nap));
    }

    pub(crate) fn stop(&self) {
        lock(&self.state).stop = true;
        self.work.notify_all();
    }

    /// Asks for a round of the flusher, even if little is waiting.
    pub(crate) fn request_flush(&self) {
        let mut state = lock(&self.state);
        state.ask_for_all();
        drop(state);
        self.work.notify_one();
    }

    /// The same if the flusher would begin only when its time comes. While something is on its way
    /// there will be room without that, and pages that are not full would be written for nothing.
    pub(crate) fn request_flush_if_idle(&self) {
        let mut state = lock(&self.state);
        let begins = self.wants_extents(&state) || state.waiting_bytes >= self.flush_at_bytes;
        if state.in_flight == 0 && state.objects > 0 && !begins {
            state.ask_for_all();
            drop(state);
            self.work.notify_one();
        }
    }

    /// Lets go of the run that is being filled, if nothing waits in it.
    pub(crate) fn release_open(&self) {
        let state = lock(&self.state);
        if state.objects == 0 && state.in_flight == 0 {
            let old = std::mem::take(&mut *lock(&self.open));
            drop(state);
            drop(old);
        }
    }
}

/// Objects that the flusher is done with.
#[derive(Default)]
pub(crate) struct Finished {
    objects: u64,
    bytes: u64,
    /// Mostly one or two rounds.
    rounds: Vec<(u64, u64)>,
}

impl Finished {
    pub(crate) fn add(&mut self, staged: &Staged) {
        self.objects += 1;
        self.bytes += u64::from(staged.stored_bytes);
        match self.rounds.iter_mut().find(|(round, _)| *round == staged.round) {
            Some((_, count)) => *count += 1,
            None => self.rounds.push((staged.round, 1)),
        }
    }

    pub(crate) fn of<'a>(all: impl IntoIterator<Item = &'a Staged>) -> Finished {
        let mut done = Finished::default();
        all.into_iter().for_each(|staged| done.add(staged));
        done
    }

    pub(crate) fn objects(&self) -> u64 {
        self.objects
    }
}

#[cfg(test)]
mod tests;
