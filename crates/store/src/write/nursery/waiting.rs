//! The nursery's state under its lock: objects by group, records too large for a page, and the
//! number of unfinished objects of each round.
//!
//! Invariants: `waiting_bytes` and `objects` are the sums over `groups` and `extents`; objects that
//! the flusher has taken count as `in_flight` until they are finished or put back. Threads: the
//! holder of the lock.

use std::collections::VecDeque;
use std::time::Duration;

use super::StagedExtent;
use super::groups::{Groups, ListId};
use super::list::List;
use crate::types::Sequence;

/// Objects that came between the ends of two rounds and are not finished.
struct Round {
    unfinished: u64,
    /// Lower bound of their sequence numbers.
    oldest_seq: Sequence,
}

impl Round {
    const NEW: Round = Round { unfinished: 0, oldest_seq: Sequence::MAX };
}

/// What is to be done with chosen groups.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// They are written; `partial`: even as pages that are not full.
    Write { partial: bool },
    /// Their objects that came before are moved together.
    Move { came_before: u64 },
}

/// Groups chosen for the flusher.
pub(super) struct Choice {
    groups: Vec<ListId>,
    is_by_size: bool,
    pub(super) then: Then,
}

impl Choice {
    fn of(groups: Vec<ListId>, then: Then) -> Option<Choice> {
        (!groups.is_empty()).then_some(Choice { groups, is_by_size: false, then })
    }

    fn by_size(groups: Vec<ListId>) -> Option<Choice> {
        let choice = Choice::of(groups, Then::Write { partial: true });
        choice.map(|choice| Choice { is_by_size: true, ..choice })
    }

    /// By their numbers, unless they were chosen by size. Asked without the lock.
    pub(super) fn in_order(mut self) -> Vec<ListId> {
        if !self.is_by_size {
            self.groups.sort_unstable();
        }
        self.groups
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) groups: Groups,
    pub(super) extents: Vec<StagedExtent>,
    pub(super) extent_bytes: u64,
    /// A writer waits for one of the extents to be written.
    pub(super) part_waits: bool,
    /// Earliest time at which an extent is due.
    pub(super) extents_due: Option<Duration>,
    /// Smallest `came_at` of the objects in `groups`; a lower bound.
    pub(super) oldest_came_at: u64,
    /// Bytes in `groups` and `extents`.
    pub(super) waiting_bytes: u64,
    /// Bytes in those of `groups` that may wait.
    pub(super) may_wait_bytes: u64,
    /// Bytes of what may wait that were replaced and have not left, about.
    pub(super) dead_bytes: u64,
    pub(super) objects: u64,
    /// Objects that the flusher has taken and not finished.
    pub(super) in_flight: u64,
    /// Peak number of objects, waiting or in flight, and of waiting groups.
    pub(super) most: u64,
    pub(super) most_groups: usize,
    /// Rounds from `first_round` on, the current one last.
    rounds: VecDeque<Round>,
    first_round: u64,
    pub(super) stop: bool,
    /// The flusher has ended: an object queued now would never be written.
    pub(super) ended: bool,
    /// A flush of all groups, or of all extents, was requested. The request ends once they are
    /// taken, so that later objects wait for more of their kind again.
    pub(super) drain_pages: bool,
    pub(super) drain_extents: bool,
    /// What came in this round and before it is waited for: what is put back of it is asked for
    /// again.
    pub(super) drained_through: Option<u64>,
    /// Extents were taken last: pages that are due come before more extents.
    pub(super) pages_next: bool,
    /// Groups were taken last to make room: those that somebody waits for or that are due come
    /// before more of that.
    pub(super) asked_next: bool,
    pub(super) dropped: u64,
    /// Why the last of them was.
    pub(super) why_dropped: String,
    /// Of how many of these callers have been told.
    pub(super) dropped_told: u64,
}

impl State {
    pub(super) fn enter_round(&mut self, seq: Sequence) -> u32 {
        if self.rounds.is_empty() {
            self.rounds.push_back(Round::NEW);
        }
        let last = self.rounds.len() - 1;
        let round = &mut self.rounds[last];
        round.unfinished += 1;
        round.oldest_seq = round.oldest_seq.min(seq);
        (self.first_round as u32).wrapping_add(last as u32)
    }

    /// Lower bound of the sequence numbers of unfinished objects; `None` if all are finished.
    pub(super) fn oldest_seq(&self) -> Option<Sequence> {
        let unfinished = self.rounds.iter().filter(|round| round.unfinished > 0);
        unfinished.map(|round| round.oldest_seq).min()
    }

    pub(super) fn rounds(&self) -> usize {
        self.rounds.len()
    }

    pub(super) fn leave_round(&mut self, round: u32, count: u64) {
        let index = round.wrapping_sub(self.first_round as u32) as usize;
        self.rounds[index].unfinished -= count;
        while self.rounds.len() > 1 && self.rounds[0].unfinished == 0 {
            self.rounds.pop_front();
            self.first_round += 1;
        }
    }

    /// Begins a new round; returns the previous one.
    pub(super) fn end_round(&mut self) -> u64 {
        if self.rounds.is_empty() {
            self.rounds.push_back(Round::NEW);
        }
        let last = self.first_round + self.rounds.len() as u64 - 1;
        self.rounds.push_back(Round::NEW);
        self.leave_round(last as u32, 0);
        last
    }

    pub(super) fn has_unfinished(&self, last: u64) -> bool {
        let count = (last + 1).saturating_sub(self.first_round) as usize;
        self.rounds.iter().take(count).any(|round| round.unfinished > 0)
    }

    /// Whether a drain waits, or has waited, for what came in this round.
    pub(super) fn is_drained(&self, round: u32) -> bool {
        // Rounds are told apart by their lower halves: few are unfinished at a time.
        self.drained_through.is_some_and(|last| (last as u32).wrapping_sub(round) as i32 >= 0)
    }

    fn taken(&mut self, objects: u64, bytes: u64) {
        self.objects -= objects;
        self.in_flight += objects;
        self.waiting_bytes -= bytes;
    }

    /// Bytes in `groups`.
    pub(super) fn group_bytes(&self) -> u64 {
        self.waiting_bytes - self.extent_bytes
    }

    /// True if some group is due.
    pub(super) fn is_group_due(&self, now: Duration) -> bool {
        self.groups.first_due().is_some_and(|due| due <= now)
    }

    /// Requests a flush of everything that waits now.
    pub(super) fn ask_for_all(&mut self) {
        self.drain_pages |= !self.groups.is_empty();
        self.drain_extents |= !self.extents.is_empty();
    }

    pub(super) fn take_extents(&mut self) -> Vec<StagedExtent> {
        let extents = std::mem::take(&mut self.extents);
        let bytes = std::mem::take(&mut self.extent_bytes);
        self.part_waits = false;
        self.drain_extents = false;
        self.extents_due = None;
        self.taken(extents.len() as u64, bytes);
        extents
    }

    /// The list to which objects of `bytes` in all are about to be added; it says by now when the
    /// first of them came and is due.
    pub(super) fn list_for(
        &mut self,
        id: ListId,
        bytes: u64,
        came_at: u64,
        due: Option<Duration>,
    ) -> &mut List {
        self.oldest_came_at = match self.groups.is_empty() {
            true => came_at,
            false => came_at.min(self.oldest_came_at),
        };
        self.waiting_bytes += bytes;
        self.may_wait_bytes += if id.may_wait { bytes } else { 0 };
        self.groups.add(id, bytes, came_at, due)
    }

    pub(super) fn take_group(&mut self, id: ListId) -> Option<(ListId, List)> {
        let pending = self.groups.remove(id)?;
        self.taken(pending.objects.len() as u64, pending.bytes);
        self.may_wait_bytes -= if id.may_wait { pending.bytes } else { 0 };
        Some((id, pending.objects))
    }

    /// Chooses the groups with at least `full_bytes` bytes, but for what may wait, and is not due,
    /// if that is to be spared.
    pub(super) fn choose_full(
        &self,
        full_bytes: u64,
        spares: bool,
        now: Duration,
    ) -> Option<Choice> {
        let full = self.groups.with_at_least(full_bytes).filter(|(id, group)| {
            !(spares && id.may_wait && group.due.is_none_or(|due| due > now))
        });
        Choice::of(full.map(|(id, _)| id).collect(), Then::Write { partial: false })
    }

    /// Chooses the largest groups, until they make up `target` bytes, but for what may wait if that
    /// is to be spared.
    pub(super) fn choose_largest(&self, target: u64, spares: bool) -> Option<Choice> {
        let mut sum = 0;
        let groups = self.groups.by_size().filter(|id| !(spares && id.may_wait));
        let largest = groups.take_while(|id| {
            let wanted = sum < target;
            sum += self.groups.with_bytes(*id).1;
            wanted
        });
        Choice::by_size(largest.collect())
    }

    /// Chooses all groups.
    pub(super) fn choose_all(&self) -> Option<Choice> {
        Choice::by_size(self.groups.by_size().collect())
    }

    /// Chooses the groups with an object whose `came_at` is below `came_before`.
    pub(super) fn choose_older(&mut self, came_before: u64) -> Option<Choice> {
        let (older, rest) = self.groups.older(came_before);
        self.oldest_came_at = rest;
        Choice::of(older, Then::Move { came_before })
    }

    /// If a group with fewer bytes than this is due, chooses those of them that are so until `by`.
    pub(super) fn choose_due(
        &self,
        now: Duration,
        by: Duration,
        below_bytes: u64,
    ) -> Option<Choice> {
        self.groups.due_by(now).find(|(_, bytes)| *bytes < below_bytes)?;
        let soon = self.groups.due_by(by.max(now)).filter(|(_, bytes)| *bytes < below_bytes);
        Choice::of(soon.map(|(id, _)| id).collect(), Then::Write { partial: true })
    }
}
