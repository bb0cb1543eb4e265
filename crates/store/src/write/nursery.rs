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
mod waiting;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::mpsc::Sender;
use crate::sync::{Arc, Mutex, MutexGuard, lock, thread};
use std::time::Duration;

use crate::format::UNIT_BYTES;
use crate::memory::pool::Run;
use crate::memory::resident::{FoundMut, Record};
use crate::signal::Signal;
use crate::types::{GroupId, SegmentLife, Sequence};

use groups::{GROUP_BYTES, ListId, earlier};
use line::Line;
pub(crate) use line::Place;
use waiting::{Choice, State, Then};

/// An object that waits.
pub(crate) struct Staged {
    pub(crate) run: Run,
    pub(crate) offset: u32,
    pub(crate) stored_bytes: u32,
    /// The object was kept from a reused segment.
    pub(crate) reinserted: bool,
    /// Initial frequency in the index.
    pub(crate) freq: u8,
    /// The index has an older state of the object until this one is written.
    pub(crate) beside_older: bool,
    /// It waits longer than others of its group, and is not written with them.
    pub(crate) may_wait: bool,
    pub(crate) due: Due,
    /// The round in which it came, modulo 2^32; a new round begins at each drain. Set by the
    /// nursery.
    pub(crate) round: u32,
    /// Value of `handed_in` when it came, or was moved; set by the nursery when it comes.
    pub(crate) came_at: u64,
}

// With small objects there are many of them.
const _: () = assert!(size_of::<Staged>() <= 48);

impl Staged {
    /// The object's record, which says what is not repeated here.
    pub(crate) fn record(&self) -> Record<'_> {
        Record::at(&self.run, self.offset)
    }

    /// Whether this is what an entry of the resident table shows.
    pub(crate) fn is_entry(&self, entry: &FoundMut<'_>) -> bool {
        entry.is_at(self.run.first(), self.offset)
    }
}

/// Time on the monotonic clock, in nanoseconds, at which an object is written even if it fills no
/// page, or, for an extent, even if it is alone in the write.
#[derive(Clone, Copy)]
pub(crate) struct Due(u64);

impl Due {
    /// The object waits as long as it may.
    pub(crate) const NEVER: Due = Due(u64::MAX);

    pub(crate) fn at(time: Duration) -> Due {
        Due(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    fn time(self) -> Option<Duration> {
        (self.0 != u64::MAX).then(|| Duration::from_nanos(self.0))
    }
}

/// A record too large for a page: written from where it lies.
pub(crate) struct StagedExtent {
    pub(crate) staged: Staged,
    /// For a part of a streamed object: sends the writer the part's location.
    pub(crate) part: Option<PartSender>,
    pub(crate) group: GroupId,
}

pub(crate) type PartSender = Sender<Result<(crate::index::Location, SegmentLife), String>>;

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

/// To make room, what may wait is written only if it is 1/`MAY_WAIT_PART` of the flush threshold.
const MAY_WAIT_PART: u64 = 2;

/// Memory of a list in percent of its contents: its pieces, the copy in one piece that the flusher
/// works with, and what the allocator keeps of both for each thread that creates.
const LISTED_PERCENT: usize = 200;

/// Groups that the flusher takes per hold of the lock, about 0.1 ms.
const GROUPS_AT_ONCE: usize = 512;

/// Most rounds begun by [`Nursery::oldest_seq`]; beyond that, its answer is coarser.
const ROUNDS_MAX: usize = 16;

/// As long as what waits would fill at most so many pages, all of it goes with what is due.
const FEW_PAGES: u64 = 8;

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

/// The flusher's next piece of work.
pub(crate) enum Work {
    /// The objects of these groups. `partial`: build pages even if they are not full.
    Pages {
        groups: Vec<(GroupId, Vec<Staged>)>,
        partial: bool,
    },
    Extents(Vec<StagedExtent>),
    /// Of these groups' objects those with a `came_at` below this lie in runs that little else
    /// holds. They are to be moved together, and all objects to be put back.
    Sparse {
        groups: Vec<(GroupId, Vec<Staged>)>,
        came_before: u64,
    },
    Idle,
    Stop,
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

    /// The groups with objects older than half of that span, so that all older runs are freed.
    fn choose_sparse(&self, state: &mut State) -> Option<Choice> {
        if !self.is_sparse(state) {
            return None;
        }
        let came_before = self.handed_in() - self.span_max(state) / 2;
        state.choose_older(came_before)
    }

    /// True if the waiting extents are worth a write, or must not wait for more.
    fn wants_extents(&self, state: &State) -> bool {
        let enough = EXTENTS_BYTES.min(self.flush_at_bytes / EXTENTS_PART);
        let asked = state.drain_extents || state.stop || state.part_waits;
        let full = state.waiting_bytes >= self.flush_at_bytes || state.extent_bytes >= enough;
        !state.extents.is_empty() && (asked || full)
    }

    /// True if pages are to be written now.
    fn wants_pages(&self, state: &State, now: Duration) -> bool {
        let asked = state.drain_pages || state.stop;
        let full = state.group_bytes() >= self.flush_at_bytes || self.is_sparse(state);
        !state.groups.is_empty() && (asked || full || state.is_group_due(now))
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

    /// Notes that so many bytes of them left.
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

    /// Waits for work, at most `nap`, and takes it. If both extents and pages are due they
    /// alternate, since either might keep coming for ever. `nap` is asked under the lock that
    /// [`Nursery::wake`] takes.
    pub(crate) fn take(
        &self,
        page_bytes: u64,
        now: impl Fn() -> Duration,
        nap: impl Fn() -> Duration,
    ) -> Work {
        let mut state = lock(&self.state);
        let asked = state.drain_pages || state.drain_extents || state.stop;
        let urgent = asked || self.wants_extents(&state) || self.is_sparse(&state);
        let nap = nap();
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
        // Whoever asked for pages gets them from what is in flight, or asks again when some are put
        // back. While a request stands this thread does not wait for work.
        state.drain_pages = false;
        let stop = state.stop;
        state.ended = stop;
        drop(state);
        self.done.notify_all();
        if stop { Work::Stop } else { Work::Idle }
    }

    /// Chooses the groups to write now. While creates outpace the device there is always too much:
    /// groups that make room alternate with those that somebody waits for, or that are due.
    fn choose(&self, state: &mut State, page_bytes: u64, now: Duration) -> Option<Choice> {
        let over = state.group_bytes() >= self.flush_at_bytes;
        let full_bytes = 2 * page_bytes;
        let spares = state.may_wait_bytes < self.flush_at_bytes / MAY_WAIT_PART;
        let room_first = over && !std::mem::take(&mut state.asked_next);
        if room_first && let Some(choice) = state.choose_full(full_bytes, spares, now) {
            state.asked_next = true;
            return Some(choice);
        }
        if std::mem::take(&mut state.drain_pages) || state.stop {
            return state.choose_all();
        }
        if let Some(choice) = self.choose_sparse(state) {
            return Some(choice);
        }
        // Full groups that are due get their turn next, and are not broken up for that.
        let due_below = if over { full_bytes } else { u64::MAX };
        let due_by = now.saturating_add(self.due_ahead(state, page_bytes));
        if !room_first && let Some(choice) = state.choose_due(now, due_by, due_below) {
            return Some(choice);
        }
        state.asked_next = over;
        let largest = || state.choose_largest(self.flush_at_bytes / 2, spares);
        if over { state.choose_full(full_bytes, spares, now).or_else(largest) } else { None }
    }

    /// How long before their time groups go along with one that is due. A write ends with a page
    /// that is not full, so that few writes of much fill the disk better than many of little; and a
    /// group gathers for at least half of the period. Of what fills few pages all goes.
    fn due_ahead(&self, state: &State, page_bytes: u64) -> Duration {
        match state.group_bytes() {
            bytes if bytes >= self.flush_at_bytes => Duration::ZERO,
            bytes if bytes <= FEW_PAGES * page_bytes => self.flush_period,
            _ => self.flush_period / 2,
        }
    }

    /// Takes the chosen groups, a few per hold of the lock: there may be hundreds of thousands, and
    /// creates wait for the lock. No other thread takes groups.
    fn take_chosen(&self, state: MutexGuard<'_, State>, choice: Choice) -> Work {
        drop(state);
        let then = choice.then;
        let chosen = choice.in_order();
        let mut groups = Vec::with_capacity(chosen.len());
        for some in chosen.chunks(GROUPS_AT_ONCE) {
            let mut state = lock(&self.state);
            let taken: Vec<_> = some.iter().filter_map(|group| state.take_group(*group)).collect();
            if state.may_wait_bytes == 0 && matches!(then, Then::Write { .. }) {
                // They are due at once, so that no error in the count lasts: it would have the same
                // objects moved again and again.
                state.dead_bytes = 0;
            }
            drop(state);
            groups.extend(taken.into_iter().map(|(id, objects)| (id.group, objects.into_vec())));
            if groups.len() < chosen.len() {
                thread::yield_now();
            }
        }
        match then {
            Then::Write { partial } => Work::Pages { groups, partial },
            Then::Move { came_before } => Work::Sparse { groups, came_before },
        }
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

/// Objects that the flusher is done with.
#[derive(Default)]
pub(crate) struct Finished {
    objects: u64,
    bytes: u64,
    /// Bytes of those that may wait.
    may_wait_bytes: u64,
    /// Objects by round, usually one or two rounds.
    rounds: Vec<(u32, u64)>,
}

impl Finished {
    pub(crate) fn add(&mut self, staged: &Staged) {
        self.objects += 1;
        self.bytes += u64::from(staged.stored_bytes);
        self.may_wait_bytes += if staged.may_wait { u64::from(staged.stored_bytes) } else { 0 };
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
