//! What the flusher takes next: extents or pages, and of these which groups.
//!
//! Invariant: neither kind of work, nor what somebody waits for, is put off for ever by others.
//! Threads: the flusher, or who does its work.

use std::time::Duration;

use super::staged::{Staged, StagedExtent};
use super::waiting::{Choice, State, Then};
use super::{Nursery, lock};
use crate::sync::{MutexGuard, thread};
use crate::types::GroupId;

/// To make room, what may wait is written only if it is 1/`MAY_WAIT_PART` of the flush threshold.
const MAY_WAIT_PART: u64 = 2;

/// Groups that the flusher takes per hold of the lock, about 0.1 ms.
pub(super) const GROUPS_AT_ONCE: usize = 512;

/// If all that waits would fill no more pages than these, it is all written when some of it is due.
const FEW_PAGES: u64 = 8;

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

    /// The groups with objects older than half of that span, so that all older runs are freed.
    fn choose_sparse(&self, state: &mut State) -> Option<Choice> {
        if !self.is_sparse(state) {
            return None;
        }
        let came_before = self.handed_in() - self.span_max(state) / 2;
        state.choose_older(came_before)
    }

    /// True if pages are to be written now.
    fn wants_pages(&self, state: &State, now: Duration) -> bool {
        let asked = state.drain_pages || state.stop;
        let full = state.group_bytes() >= self.flush_at_bytes || self.is_sparse(state);
        !state.groups.is_empty() && (asked || full || state.is_group_due(now))
    }
}
