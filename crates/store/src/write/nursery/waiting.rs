//! What waits in the nursery, under its lock: objects by group, records too large for a page, and how many
//! of each round are not done yet.
//!
//! Invariants: `waiting_bytes` and `objects` are the sums of what lies in `groups` and `extents`; what the
//! flusher takes counts as `in_flight` until it is finished or put back. Threads: whoever holds the lock.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::{Staged, StagedExtent};

#[derive(Default)]
pub(super) struct Pending {
    pub(super) objects: Vec<Staged>,
    pub(super) bytes: u64,
    /// When the oldest must be on its way, by the monotonic clock.
    pub(super) due: Option<Duration>,
}

/// What came between the ends of two rounds and is not done yet.
struct Round {
    unfinished: u64,
    /// None of these has a smaller sequence number.
    oldest_seq: u64,
}

impl Round {
    const NEW: Round = Round { unfinished: 0, oldest_seq: u64::MAX };
}

/// Groups that the flusher is to take: their bytes when they were chosen, and which.
pub(super) struct Choice {
    groups: Vec<(u64, u64)>,
    /// The largest first, and no more than make up so many bytes; else all.
    largest_bytes: Option<u64>,
    /// Pages are built of them even if they are not full.
    pub(super) partial: bool,
}

impl Choice {
    fn of_all(groups: Vec<(u64, u64)>, partial: bool) -> Option<Choice> {
        (!groups.is_empty()).then_some(Choice { groups, largest_bytes: None, partial })
    }

    /// In an order that says nothing of how they lay in memory: what a simulator does is done again.
    pub(super) fn in_order(mut self) -> Vec<u64> {
        let Some(target) = self.largest_bytes else {
            self.groups.sort_unstable_by_key(|(_, group)| *group);
            return self.groups.into_iter().map(|(_, group)| group).collect();
        };
        self.groups.sort_unstable_by(|a, b| b.cmp(a));
        let mut sum = 0;
        let chosen = self.groups.into_iter().take_while(|(bytes, _)| {
            let wanted = sum < target;
            sum += bytes;
            wanted
        });
        chosen.map(|(_, group)| group).collect()
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) groups: HashMap<u64, Pending>,
    pub(super) extents: Vec<StagedExtent>,
    pub(super) extent_bytes: u64,
    /// A writer waits for one of the extents to be on disk.
    pub(super) part_waits: bool,
    /// The first time at which an extent is due.
    pub(super) extents_due: Option<Duration>,
    /// The first time at which a group is due; it may be sooner than is true.
    pub(super) groups_due: Option<Duration>,
    /// No group has more; it may be more than is true.
    pub(super) largest_bytes: u64,
    /// Nothing in `groups` came before so many bytes of runs had been handed in; it may be less than is true.
    pub(super) oldest_came_at: u64,
    /// Bytes in `groups` and `extents`.
    pub(super) waiting_bytes: u64,
    pub(super) objects: u64,
    /// Objects that the flusher has taken and not finished.
    pub(super) in_flight: u64,
    /// The most objects, and the most groups of those that wait, that there were at once.
    pub(super) most: u64,
    pub(super) most_groups: usize,
    /// Each round since `first_round`, the current one last.
    rounds: VecDeque<Round>,
    first_round: u64,
    pub(super) stop: bool,
    /// The flusher has ended: what came now would wait for ever.
    pub(super) ended: bool,
    /// All that waited for pages, or all extents, are to be written: a wish that ends once they are taken,
    /// so that what comes behind it waits for more of its kind again.
    pub(super) drain_pages: bool,
    pub(super) drain_extents: bool,
    /// Extents were taken last: what is to go on pages comes before more of them.
    pub(super) pages_next: bool,
    pub(super) dropped: u64,
}

impl State {
    pub(super) fn enter_round(&mut self, seq: u64) -> u64 {
        if self.rounds.is_empty() {
            self.rounds.push_back(Round::NEW);
        }
        let last = self.rounds.len() - 1;
        let round = &mut self.rounds[last];
        round.unfinished += 1;
        round.oldest_seq = round.oldest_seq.min(seq);
        self.first_round + last as u64
    }

    /// None of the objects that are not done has a smaller sequence number; `None` if all are.
    pub(super) fn oldest_seq(&self) -> Option<u64> {
        let unfinished = self.rounds.iter().filter(|round| round.unfinished > 0);
        unfinished.map(|round| round.oldest_seq).min()
    }

    pub(super) fn rounds(&self) -> usize {
        self.rounds.len()
    }

    pub(super) fn leave_round(&mut self, round: u64, count: u64) {
        self.rounds[(round - self.first_round) as usize].unfinished -= count;
        while self.rounds.len() > 1 && self.rounds[0].unfinished == 0 {
            self.rounds.pop_front();
            self.first_round += 1;
        }
    }

    /// Begins a new round; returns the one before.
    pub(super) fn end_round(&mut self) -> u64 {
        if self.rounds.is_empty() {
            self.rounds.push_back(Round::NEW);
        }
        let last = self.first_round + self.rounds.len() as u64 - 1;
        self.rounds.push_back(Round::NEW);
        self.leave_round(last, 0);
        last
    }

    pub(super) fn has_unfinished(&self, last: u64) -> bool {
        let count = (last + 1).saturating_sub(self.first_round) as usize;
        self.rounds.iter().take(count).any(|round| round.unfinished > 0)
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

    /// True if the time of some group has come, perhaps.
    pub(super) fn is_group_due(&self, now: Duration) -> bool {
        self.groups_due.is_some_and(|due| due <= now)
    }

    /// Asks for all that waits now.
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

    /// Something that came when so many bytes had been handed in is put in a group.
    pub(super) fn note_came_at(&mut self, came_at: u64) {
        self.oldest_came_at = match self.groups.is_empty() {
            true => came_at,
            false => came_at.min(self.oldest_came_at),
        };
    }

    pub(super) fn take_group(&mut self, group: u64) -> Option<(u64, Vec<Staged>)> {
        let pending = self.groups.remove(&group)?;
        self.taken(pending.objects.len() as u64, pending.bytes);
        Some((group, pending.objects))
    }

    /// Groups with at least so many bytes.
    pub(super) fn choose_full(&mut self, full_bytes: u64) -> Option<Choice> {
        if self.largest_bytes < full_bytes {
            return None;
        }
        let mut full = Vec::new();
        self.largest_bytes = 0;
        for (id, pending) in &self.groups {
            match pending.bytes {
                bytes if bytes >= full_bytes => full.push((bytes, *id)),
                bytes => self.largest_bytes = self.largest_bytes.max(bytes),
            }
        }
        Choice::of_all(full, false)
    }

    /// The largest groups, until `target` bytes are taken.
    pub(super) fn choose_largest(&mut self, target: u64) -> Option<Choice> {
        let groups = self.groups.iter().map(|(id, pending)| (pending.bytes, *id)).collect();
        let choice = Choice::of_all(groups, true);
        choice.map(|choice| Choice { largest_bytes: Some(target), ..choice })
    }

    /// The groups of which something came before so many bytes of runs had been handed in.
    pub(super) fn choose_older(&mut self, came_before: u64) -> Option<Choice> {
        // A group's objects wait in the order in which they came.
        let came_at = |p: &Pending| p.objects.first().map_or(u64::MAX, |first| first.came_at);
        let mut older = Vec::new();
        self.oldest_came_at = u64::MAX;
        for (id, pending) in &self.groups {
            match came_at(pending) {
                at if at < came_before => older.push((pending.bytes, *id)),
                at => self.oldest_came_at = self.oldest_came_at.min(at),
            }
        }
        Choice::of_all(older, true)
    }

    /// The groups whose time has come.
    pub(super) fn choose_due(&mut self, now: Duration) -> Option<Choice> {
        if !self.is_group_due(now) {
            return None;
        }
        let mut due = Vec::new();
        self.groups_due = None;
        for (id, pending) in &self.groups {
            match pending.due {
                Some(at) if at <= now => due.push((pending.bytes, *id)),
                later => self.groups_due = earlier(self.groups_due, later),
            }
        }
        Choice::of_all(due, true)
    }
}

/// The sooner of two times, where there are any.
pub(super) fn earlier(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
