//! Where new objects wait in memory, by group, until a page's worth of their group has gathered.
//!
//! Invariants: every staged object lies, complete, in a run that its `Staged` holds; whether it is
//! still wanted is decided by the resident table when its page is built. `bytes` is the sum of all
//! that waits or is being written, and is what back-pressure is measured by. Threads: any create;
//! one flusher takes.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::format::UNIT_BYTES;
use crate::memory::pool::{Run, lock};

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
}

/// A record too large for a page: written from where it lies.
pub(crate) struct StagedExtent {
    pub(crate) staged: Staged,
    /// A part of a streamed object; told where it came to lie.
    pub(crate) part: Option<PartSender>,
    pub(crate) group: u64,
}

pub(crate) type PartSender = std::sync::mpsc::Sender<Result<(crate::index::Location, u64), String>>;

#[derive(Default)]
struct Pending {
    objects: Vec<Staged>,
    bytes: u64,
    /// When the oldest must be on its way, by the monotonic clock.
    due: Option<Duration>,
}

#[derive(Default)]
struct OpenRun {
    run: Option<Run>,
    used: usize,
}

#[derive(Default)]
struct State {
    groups: HashMap<u64, Pending>,
    extents: Vec<StagedExtent>,
    open: OpenRun,
    /// Bytes in `groups` and `extents`.
    waiting_bytes: u64,
    /// Bytes waiting or being written.
    bytes: u64,
    objects: u64,
    /// Objects taken so far and finished so far, for `sync`.
    in_flight: u64,
    stop: bool,
    drain: bool,
    dropped: u64,
}

pub(crate) struct Nursery {
    state: Mutex<State>,
    work: Condvar,
    done: Condvar,
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
            state: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
            limit_bytes,
            flush_at_bytes: limit_bytes / 2,
        }
    }

    /// True if a create of this size should wait for the flusher first.
    pub(crate) fn is_full(&self, stored_bytes: u64) -> bool {
        let state = lock(&self.state);
        state.bytes > 0 && state.bytes + stored_bytes > self.limit_bytes
    }

    pub(crate) fn bytes(&self) -> u64 {
        lock(&self.state).bytes
    }

    /// Reserves room in the open run. `None`: hand in a fresh run with `refill` and try again.
    pub(crate) fn reserve(&self, stored_bytes: usize) -> Option<(Run, usize)> {
        debug_assert!(stored_bytes.is_multiple_of(UNIT_BYTES as usize));
        let mut state = lock(&self.state);
        let run = state.open.run.clone()?;
        if run.len_bytes() - state.open.used < stored_bytes {
            return None;
        }
        let offset = state.open.used;
        state.open.used += stored_bytes;
        Some((run, offset))
    }

    pub(crate) fn refill(&self, run: Run) {
        let mut state = lock(&self.state);
        let old = std::mem::take(&mut state.open);
        state.open = OpenRun { run: Some(run), used: 0 };
        drop(state);
        drop(old);
    }

    /// Queues an object whose entry has been published.
    pub(crate) fn push(&self, group: u64, staged: Staged, due: Option<Duration>) {
        let mut state = lock(&self.state);
        let bytes = u64::from(staged.stored_bytes);
        let pending = state.groups.entry(group).or_default();
        pending.objects.push(staged);
        pending.bytes += bytes;
        pending.due = match (pending.due, due) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        state.waiting_bytes += bytes;
        state.bytes += bytes;
        state.objects += 1;
        let wake = state.waiting_bytes >= self.flush_at_bytes;
        drop(state);
        if wake {
            self.work.notify_one();
        }
    }

    pub(crate) fn push_extent(&self, extent: StagedExtent) {
        let mut state = lock(&self.state);
        state.waiting_bytes += u64::from(extent.staged.stored_bytes);
        state.bytes += u64::from(extent.staged.stored_bytes);
        state.objects += 1;
        state.extents.push(extent);
        drop(state);
        self.work.notify_one();
    }

    /// The flusher reports objects written (or dropped) that it had taken.
    pub(crate) fn finished(&self, objects: u64, bytes: u64, dropped: u64) {
        let mut state = lock(&self.state);
        state.in_flight -= objects;
        state.bytes -= bytes;
        state.dropped += dropped;
        drop(state);
        self.done.notify_all();
    }

    /// Puts back what did not fill a page.
    pub(crate) fn put_back(&self, group: u64, objects: Vec<Staged>) {
        if objects.is_empty() {
            return;
        }
        let mut state = lock(&self.state);
        let bytes: u64 = objects.iter().map(|s| u64::from(s.stored_bytes)).sum();
        let count = objects.len() as u64;
        let pending = state.groups.entry(group).or_default();
        let newer = std::mem::replace(&mut pending.objects, objects);
        pending.objects.extend(newer);
        pending.bytes += bytes;
        state.waiting_bytes += bytes;
        state.in_flight -= count;
        state.objects += count;
    }

    /// Waits for work, at most `nap`, and takes it.
    pub(crate) fn take(&self, page_bytes: u64, now: impl Fn() -> Duration, nap: Duration) -> Work {
        let mut state = lock(&self.state);
        if !state.drain && state.extents.is_empty() && state.waiting_bytes < self.flush_at_bytes {
            if state.stop {
                return Work::Stop;
            }
            let (guard, _) =
                self.work.wait_timeout(state, nap).unwrap_or_else(PoisonError::into_inner);
            state = guard;
        }
        if !state.extents.is_empty() {
            let extents = std::mem::take(&mut state.extents);
            let bytes: u64 = extents.iter().map(|e| u64::from(e.staged.stored_bytes)).sum();
            taken(&mut state, extents.len() as u64, bytes);
            return Work::Extents(extents);
        }
        if state.objects == 0 {
            state.drain = false;
            let stop = state.stop;
            drop(state);
            self.done.notify_all();
            return if stop { Work::Stop } else { Work::Idle };
        }
        let over = state.waiting_bytes >= self.flush_at_bytes;
        if over && let Some(groups) = take_full_groups(&mut state, page_bytes) {
            return Work::Pages { groups, partial: false };
        }
        let target = if state.drain || state.stop { u64::MAX } else { self.flush_at_bytes / 2 };
        let groups = if state.drain || state.stop || over {
            take_largest(&mut state, target)
        } else {
            take_due(&mut state, now())
        };
        if groups.is_empty() { Work::Idle } else { Work::Pages { groups, partial: true } }
    }

    /// Asks for everything to be written and waits until it is.
    pub(crate) fn drain(&self) {
        let mut state = lock(&self.state);
        while state.objects > 0 || state.in_flight > 0 {
            state.drain = true;
            self.work.notify_one();
            let nap = Duration::from_millis(50);
            let (guard, _) =
                self.done.wait_timeout(state, nap).unwrap_or_else(PoisonError::into_inner);
            state = guard;
        }
    }

    /// Objects dropped since this was last asked.
    pub(crate) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut lock(&self.state).dropped)
    }

    /// Waits until something was written, at most `nap`.
    pub(crate) fn wait_progress(&self, nap: Duration) {
        let state = lock(&self.state);
        self.work.notify_one();
        drop(self.done.wait_timeout(state, nap).unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn stop(&self) {
        lock(&self.state).stop = true;
        self.work.notify_all();
    }

    /// Asks for a round of the flusher, even if little is waiting.
    pub(crate) fn request_flush(&self) {
        let mut state = lock(&self.state);
        state.drain |= state.objects > 0;
        drop(state);
        self.work.notify_one();
    }

    /// Lets go of the run that is being filled, if nothing waits in it.
    pub(crate) fn release_open(&self) {
        let mut state = lock(&self.state);
        if state.objects == 0 && state.in_flight == 0 {
            let old = std::mem::take(&mut state.open);
            drop(state);
            drop(old);
        }
    }
}

fn taken(state: &mut State, objects: u64, bytes: u64) {
    state.objects -= objects;
    state.in_flight += objects;
    state.waiting_bytes -= bytes;
}

fn take_group(state: &mut State, group: u64) -> Option<(u64, Vec<Staged>)> {
    let pending = state.groups.remove(&group)?;
    taken(state, pending.objects.len() as u64, pending.bytes);
    Some((group, pending.objects))
}

/// Groups with at least two pages' worth.
fn take_full_groups(state: &mut State, page_bytes: u64) -> Option<Vec<(u64, Vec<Staged>)>> {
    let mut full: Vec<u64> =
        state.groups.iter().filter(|(_, p)| p.bytes >= 2 * page_bytes).map(|(id, _)| *id).collect();
    full.sort_unstable();
    let groups: Vec<_> = full.into_iter().filter_map(|id| take_group(state, id)).collect();
    (!groups.is_empty()).then_some(groups)
}

/// The largest groups, until `target` bytes are taken.
fn take_largest(state: &mut State, target: u64) -> Vec<(u64, Vec<Staged>)> {
    let mut order: Vec<(u64, u64)> = state.groups.iter().map(|(id, p)| (p.bytes, *id)).collect();
    order.sort_unstable_by(|a, b| b.cmp(a));
    let mut sum = 0;
    let mut groups = Vec::new();
    for (bytes, id) in order {
        if sum >= target {
            break;
        }
        sum += bytes;
        groups.extend(take_group(state, id));
    }
    groups
}

fn take_due(state: &mut State, now: Duration) -> Vec<(u64, Vec<Staged>)> {
    let mut due: Vec<u64> = state
        .groups
        .iter()
        .filter(|(_, p)| p.due.is_some_and(|due| due <= now))
        .map(|(id, _)| *id)
        .collect();
    due.sort_unstable();
    due.into_iter().filter_map(|id| take_group(state, id)).collect()
}
