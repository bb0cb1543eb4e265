//! Purge marks: "everything of this group (or with this prefix, or at all) older than this is
//! dead".
//!
//! Setting a mark is O(1); marks are applied when an object is read or rewritten. The epoch counts
//! marks: an object that was checked is checked again only after a new mark. Invariant: marks may
//! be merged so that they kill more than was asked, never less. Threads: any.

use crate::sync::{RwLock, exclusive, shared};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::format::{JOURNAL_CELL_BYTES, JournalOp, JournalRecord, MARKS_MAX, PREFIX_BYTES_MAX};
use crate::types::{GroupId, Sequence};

/// Longest prefix of a prefix purge, in bytes; a journal record would hold more.
pub(crate) const PURGE_PREFIX_BYTES_MAX: usize = 8192;
const _: () = assert!(PURGE_PREFIX_BYTES_MAX <= PREFIX_BYTES_MAX);
/// Most prefix marks; each is compared on the first read of an object after a purge.
const PREFIX_MARKS_MAX: usize = 1024;
/// A checkpoint's room for marks, in cells, less one for the mark on everything: groups get three
/// quarters.
const GROUP_MARKS_MAX: usize = MARKS_MAX as usize / 4 * 3;
const PREFIX_CELLS_MAX: usize = MARKS_MAX as usize - GROUP_MARKS_MAX - 1;
/// When there are too many marks, the oldest 1/`FOLDED_PART` of them become one mark on everything
/// that old.
const FOLDED_PART: usize = 16;

#[derive(Debug, Default, Clone)]
struct State {
    all_before: Sequence,
    groups: HashMap<GroupId, Sequence>,
    prefixes: Vec<(Vec<u8>, Sequence)>,
}

impl State {
    fn kills_in(&self, group: GroupId, seq: Sequence) -> bool {
        seq < self.all_before || self.groups.get(&group).is_some_and(|before| seq < *before)
    }
}

#[derive(Default)]
pub(crate) struct Marks {
    epoch: AtomicU32,
    /// No mark kills what has this number or a greater one.
    newest: AtomicU64,
    state: RwLock<State>,
}

impl Marks {
    /// Number of marks ever set, wrapping; zero means none.
    #[inline]
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// True if a mark kills the object.
    pub(crate) fn kills(&self, group: GroupId, key: &[u8], seq: Sequence) -> bool {
        if !self.may_kill(seq) {
            return false;
        }
        let state = shared(&self.state);
        state.kills_in(group, seq)
            || state
                .prefixes
                .iter()
                .any(|(prefix, before)| seq < *before && key.starts_with(prefix))
    }

    /// True if a mark kills the object whatever its key is.
    pub(crate) fn kills_in(&self, group: GroupId, seq: Sequence) -> bool {
        self.may_kill(seq) && shared(&self.state).kills_in(group, seq)
    }

    /// False of most of what comes from disk: it was written since the last purge. Takes no lock.
    #[inline]
    fn may_kill(&self, seq: Sequence) -> bool {
        seq.get() < self.newest.load(Ordering::Acquire)
    }

    /// Sets the mark of a purge; a delete of one key sets no mark and is ignored.
    pub(crate) fn apply(&self, op: &JournalOp, seq: Sequence) {
        let mut state = exclusive(&self.state);
        match op {
            JournalOp::PurgeAll => {
                state.all_before = state.all_before.max(seq);
                let floor = state.all_before;
                state.groups.retain(|_, before| *before > floor);
                state.prefixes.retain(|(_, before)| *before > floor);
            }
            JournalOp::PurgeGroup { group } => {
                let before = state.groups.entry(GroupId::new(*group)).or_default();
                *before = seq.max(*before);
                fold_groups(&mut state);
            }
            JournalOp::PurgePrefix { prefix } => add_prefix(&mut state, prefix, seq),
            JournalOp::DeleteKey { .. } | JournalOp::Epoch { .. } => return,
        }
        // Marks that are merged are no newer.
        self.newest.fetch_max(seq.get(), Ordering::Release);
        drop(state);
        // Zero means "no mark", so a counter that wraps skips it.
        if self.epoch.fetch_add(1, Ordering::Release) == u32::MAX {
            self.epoch.fetch_add(1, Ordering::Release);
        }
    }

    /// Removes marks that no object on disk or on its way there is old enough for, and replaces
    /// them by one mark on everything as old as the newest of them. That mark also kills older
    /// objects that are only in memory because the ring reused their place, whether they were
    /// purged or not: purged ones must not come back.
    pub(crate) fn prune(&self, oldest: Sequence) {
        let mut state = exclusive(&self.state);
        let mut newest = Sequence::ZERO;
        let mut keeps = |before: Sequence| {
            let keeps = before > oldest;
            newest = if keeps { newest } else { before.max(newest) };
            keeps
        };
        state.groups.retain(|_, before| keeps(*before));
        state.prefixes.retain(|(_, before)| keeps(*before));
        state.all_before = state.all_before.max(newest);
    }

    /// Number of marks.
    pub(crate) fn count(&self) -> usize {
        let state = shared(&self.state);
        state.groups.len() + state.prefixes.len() + usize::from(state.all_before > Sequence::ZERO)
    }

    /// All marks as journal records, for a checkpoint.
    pub(crate) fn records(&self) -> Vec<JournalRecord> {
        let state = shared(&self.state);
        let record = |op, seq: Sequence| JournalRecord { op, epoch: 0, seq: seq.get() };
        let mut records = Vec::new();
        if state.all_before > Sequence::ZERO {
            records.push(record(JournalOp::PurgeAll, state.all_before));
        }
        // Sorted, so that equal stores write equal bytes.
        let mut groups: Vec<(Sequence, GroupId)> =
            state.groups.iter().map(|(id, seq)| (*seq, *id)).collect();
        groups.sort_unstable();
        let group =
            |(seq, id): (Sequence, GroupId)| record(JournalOp::PurgeGroup { group: id.get() }, seq);
        records.extend(groups.into_iter().map(group));
        records.extend(
            state.prefixes.iter().map(|(prefix, seq)| {
                record(JournalOp::PurgePrefix { prefix: prefix.clone() }, *seq)
            }),
        );
        records
    }
}

fn add_prefix(state: &mut State, prefix: &[u8], seq: Sequence) {
    // A longer prefix is implied by a shorter, newer one.
    state.prefixes.retain(|(old, before)| !(old.starts_with(prefix) && *before <= seq));
    state.prefixes.push((prefix.to_vec(), seq));
    // Killing more than was asked is allowed, forgetting a purge is not.
    while state.prefixes.len() > PREFIX_MARKS_MAX || prefix_cells(state) > PREFIX_CELLS_MAX {
        state.prefixes.sort_by_key(|(_, before)| *before);
        let many = state.prefixes.len().div_ceil(FOLDED_PART);
        let folded = state.prefixes.drain(..many).map(|(_, before)| before).max();
        state.all_before = state.all_before.max(folded.unwrap_or_default());
    }
}

/// Cells that the prefixes take in a checkpoint: one each, plus those that hold their bytes.
fn prefix_cells(state: &State) -> usize {
    let cells = |prefix: &[u8]| 1 + prefix.len().div_ceil(JOURNAL_CELL_BYTES);
    state.prefixes.iter().map(|(prefix, _)| cells(prefix)).sum()
}

fn fold_groups(state: &mut State) {
    if state.groups.len() <= GROUP_MARKS_MAX {
        return;
    }
    let mut seqs: Vec<Sequence> = state.groups.values().copied().collect();
    seqs.sort_unstable();
    let floor = seqs[GROUP_MARKS_MAX / FOLDED_PART];
    state.all_before = state.all_before.max(floor);
    state.groups.retain(|_, before| *before > floor);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kills(marks: &Marks, group: u64, key: &[u8], seq: u64) -> bool {
        marks.kills(GroupId::new(group), key, Sequence::from_raw(seq))
    }

    fn apply(marks: &Marks, op: &JournalOp, seq: u64) {
        marks.apply(op, Sequence::from_raw(seq));
    }

    #[test]
    fn marks_kill_what_is_older_and_survive_a_round_trip() {
        let marks = Marks::default();
        assert!(!kills(&marks, 1, b"a/b", 5));
        apply(&marks, &JournalOp::PurgeGroup { group: 1 }, 10);
        apply(&marks, &JournalOp::PurgePrefix { prefix: b"a/".to_vec() }, 20);
        for m in [&marks, &{
            let copy = Marks::default();
            marks.records().iter().for_each(|r| copy.apply(&r.op, r.sequence()));
            copy
        }] {
            assert!(kills(m, 1, b"x", 9) && !kills(m, 1, b"x", 10) && !kills(m, 2, b"x", 9));
            assert!(kills(m, 2, b"a/b", 19) && !kills(m, 2, b"a/b", 20));
        }
        apply(&marks, &JournalOp::PurgeAll, 30);
        assert!(kills(&marks, 9, b"z", 29) && !kills(&marks, 1, b"a/b", 30));
    }

    #[test]
    fn what_is_newer_than_all_marks_is_not_compared_with_them() {
        let marks = Marks::default();
        apply(&marks, &JournalOp::PurgeGroup { group: 1 }, 10);
        apply(&marks, &JournalOp::PurgePrefix { prefix: b"a/".to_vec() }, 20);
        apply(&marks, &JournalOp::PurgeGroup { group: 2 }, 15);
        // Marks that would kill it, if anyone looked.
        exclusive(&marks.state).all_before = Sequence::MAX;
        assert!(!kills(&marks, 1, b"a/b", 20) && kills(&marks, 1, b"a/b", 19));
        assert!(!marks.kills_in(GroupId::new(1), Sequence::from_raw(20)));
    }

    /// A checkpoint's marks come first at an open, then all records of the journal, older ones,
    /// too.
    #[test]
    fn an_older_purge_that_comes_later_takes_nothing_from_a_newer_one() {
        let group = || JournalOp::PurgeGroup { group: 1 };
        let prefix = |prefix: &[u8]| JournalOp::PurgePrefix { prefix: prefix.to_vec() };
        let purges = [
            (group(), 10),
            (prefix(b"a/"), 11),
            (JournalOp::PurgeAll, 12),
            (JournalOp::PurgeAll, 20),
            (group(), 30),
            (prefix(b"a/b"), 31),
            (prefix(b"a/"), 29),
        ];
        for (first, backwards) in (0..purges.len()).flat_map(|n| [(n, true), (n, false)]) {
            let mut order = purges.clone();
            order.rotate_left(first);
            if backwards {
                order.reverse();
            }
            let marks = Marks::default();
            order.iter().for_each(|(op, seq)| apply(&marks, op, *seq));
            assert!(kills(&marks, 9, b"x", 19) && !kills(&marks, 9, b"x", 20), "{order:?}");
            assert!(kills(&marks, 1, b"x", 29) && !kills(&marks, 1, b"x", 30), "{order:?}");
            assert!(kills(&marks, 9, b"a/b", 30) && !kills(&marks, 9, b"a/b", 31), "{order:?}");
            assert!(kills(&marks, 9, b"a/x", 28) && !kills(&marks, 9, b"a/x", 29), "{order:?}");
        }
    }

    #[test]
    fn marks_that_were_pruned_kill_all_the_same() {
        let marks = Marks::default();
        apply(&marks, &JournalOp::PurgeGroup { group: 1 }, 10);
        apply(&marks, &JournalOp::PurgePrefix { prefix: b"a/".to_vec() }, 20);
        apply(&marks, &JournalOp::PurgeGroup { group: 2 }, 30);
        marks.prune(Sequence::from_raw(9));
        assert_eq!(marks.count(), 3);
        marks.prune(Sequence::from_raw(25));
        assert_eq!(marks.count(), 2, "one mark on everything that old, and the newest");
        assert!(
            kills(&marks, 1, b"x", 9) && kills(&marks, 3, b"a/b", 19) && kills(&marks, 2, b"x", 29)
        );
        assert!(!kills(&marks, 3, b"a/b", 20) && !kills(&marks, 1, b"x", 20));
    }

    #[test]
    fn too_many_marks_forget_more_never_less() {
        let marks = Marks::default();
        for seq in 1..=(PREFIX_MARKS_MAX as u64 + 1) {
            apply(
                &marks,
                &JournalOp::PurgePrefix { prefix: format!("p{seq}/").into_bytes() },
                seq * 10,
            );
        }
        for seq in 1..=(PREFIX_MARKS_MAX as u64 + 1) {
            assert!(kills(&marks, 0, format!("p{seq}/x").as_bytes(), seq * 10 - 1), "{seq}");
        }
        assert!(!kills(&marks, 0, b"other", u64::MAX));
        let marks = Marks::default();
        let last = GROUP_MARKS_MAX as u64 + 1;
        (1..=last).for_each(|n| apply(&marks, &JournalOp::PurgeGroup { group: n }, n * 10));
        assert!((1..=last).all(|n| kills(&marks, n, b"x", n * 10 - 1)), "of groups, too");
        assert!(!kills(&marks, 1, b"x", last * 10 - 1));
    }

    #[test]
    fn a_checkpoint_has_room_for_all_marks_and_most_are_kept() {
        let marks = Marks::default();
        let last = 3 * u64::from(MARKS_MAX);
        for seq in 1..=last {
            apply(&marks, &JournalOp::PurgeGroup { group: seq }, seq);
            if seq % 64 == 0 {
                let prefix = format!("{seq:01000}").into_bytes();
                apply(&marks, &JournalOp::PurgePrefix { prefix }, seq);
            }
        }
        let cells = |record: &JournalRecord| match &record.op {
            JournalOp::PurgePrefix { prefix } => 1 + prefix.len().div_ceil(JOURNAL_CELL_BYTES),
            _ => 1,
        };
        let all: usize = marks.records().iter().map(cells).sum();
        assert!(all <= MARKS_MAX as usize, "{all}");
        assert!(
            kills(&marks, last, b"x", last - 1)
                && kills(&marks, 0, format!("{last:01000}").as_bytes(), 1)
        );
        // None of the last 25,000 purges was folded into the mark that kills other objects, too.
        assert!(!kills(&marks, 0, b"x", last - 25_000));
    }
}
