//! The groups that wait, and which of them come first: by the time at which they are due, and by
//! size, of equals the oldest.
//!
//! Each object may be a group of its own, so that there are hundreds of thousands, and creates wait
//! for the lock: what is due, full or old is found without a look at the others. Invariants: each
//! group is in `by_size` as it is, and in `by_due` if it has a time. Threads: the holder of the
//! nursery's lock.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::list::List;
use crate::types::GroupId;

/// A list of objects that wait. What may wait longer than others of its group has a list of its
/// own: in one with new objects it would be written whenever one of these is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ListId {
    pub(super) group: GroupId,
    pub(super) may_wait: bool,
}

pub(super) struct Pending {
    pub(super) objects: List,
    pub(super) bytes: u64,
    /// Smallest `came_at` of the objects.
    came_at: u64,
    /// Time on the monotonic clock at which the first of the objects is due.
    pub(super) due: Option<Duration>,
}

/// Where a group stands by size. The fields of a `ListId` are apart: there would be padding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct BySize {
    class: Reverse<u8>,
    came_at: u64,
    group: GroupId,
    may_wait: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ByDue {
    at_ns: u64,
    group: GroupId,
    may_wait: bool,
}

// With small groups there are many of them.
const _: () = assert!(size_of::<BySize>() == 24 && size_of::<ByDue>() == 24);

/// Memory of a group besides its list: its place in a table that is half full on average, the
/// allocator's header of a list, and its places in two ordered sets, whose nodes are half full
/// where groups come in order.
pub(super) const GROUP_BYTES: usize =
    2 * size_of::<(ListId, Pending)>() + 16 + 2 * (size_of::<BySize>() + size_of::<ByDue>()) + 16;

#[derive(Default)]
pub(super) struct Groups {
    all: HashMap<ListId, Pending>,
    by_size: BTreeSet<BySize>,
    by_due: BTreeSet<ByDue>,
}

impl Groups {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The list to which objects of `bytes` in all are about to be added.
    pub(super) fn add(
        &mut self,
        id: ListId,
        bytes: u64,
        came_at: u64,
        due: Option<Duration>,
    ) -> &mut List {
        let new = || Pending { objects: List::default(), bytes: 0, came_at: u64::MAX, due: None };
        let pending = self.all.entry(id).or_insert_with(new);
        let before = (pending.bytes > 0).then(|| BySize::of(id, pending));
        let due_before = pending.due.map(|due| ByDue::of(id, due));
        pending.due = earlier(pending.due, due);
        pending.came_at = pending.came_at.min(came_at);
        pending.bytes += bytes;
        let now = BySize::of(id, pending);
        if before != Some(now) {
            if let Some(before) = before {
                self.by_size.remove(&before);
            }
            self.by_size.insert(now);
        }
        let due_now = pending.due.map(|due| ByDue::of(id, due));
        if due_before != due_now {
            if let Some(before) = due_before {
                self.by_due.remove(&before);
            }
            self.by_due.extend(due_now);
        }
        &mut pending.objects
    }

    pub(super) fn remove(&mut self, id: ListId) -> Option<Pending> {
        let pending = self.all.remove(&id)?;
        self.by_size.remove(&BySize::of(id, &pending));
        if let Some(due) = pending.due {
            self.by_due.remove(&ByDue::of(id, due));
        }
        Some(pending)
    }

    /// Earliest time at which a group is due.
    pub(super) fn first_due(&self) -> Option<Duration> {
        self.by_due.first().map(|first| Duration::from_nanos(first.at_ns))
    }

    /// Groups that are due until then, and their bytes.
    pub(super) fn due_by(&self, by: Duration) -> impl Iterator<Item = (ListId, u64)> {
        let by_ns = nanos(by);
        let due = self.by_due.iter().take_while(move |key| key.at_ns <= by_ns);
        due.map(|key| self.with_bytes(ListId { group: key.group, may_wait: key.may_wait }))
    }

    /// Groups with at least `bytes`, which are not zero.
    pub(super) fn with_at_least(&self, bytes: u64) -> impl Iterator<Item = (ListId, &Pending)> {
        let class = class_of(bytes);
        let large = self.by_size.iter().take_while(move |key| key.class.0 >= class);
        let large = large.filter_map(|key| self.all.get_key_value(&key.id()));
        large.map(|(id, pending)| (*id, pending)).filter(move |(_, group)| group.bytes >= bytes)
    }

    /// All groups, the largest first; of those that are about as large the oldest, which hold runs
    /// of which little is left.
    pub(super) fn by_size(&self) -> impl Iterator<Item = ListId> {
        self.by_size.iter().map(BySize::id)
    }

    pub(super) fn with_bytes(&self, id: ListId) -> (ListId, u64) {
        (id, self.all.get(&id).map_or(0, |pending| pending.bytes))
    }

    /// The groups with an object whose `came_at` is below this, and the smallest of all others.
    pub(super) fn older(&self, came_before: u64) -> (Vec<ListId>, u64) {
        let (mut older, mut rest) = (Vec::new(), u64::MAX);
        let mut next = self.by_size.first();
        while let Some(BySize { class, .. }) = next.copied() {
            let from = |came_at| BySize { came_at, ..BySize::first_of(class) };
            older.extend(self.by_size.range(from(0)..from(came_before)).map(BySize::id));
            let mut later = self.by_size.range(from(came_before)..);
            if let Some(first) = later.next().filter(|first| first.class == class) {
                rest = rest.min(first.came_at);
            }
            next = match class.0.checked_sub(1) {
                Some(smaller) => self.by_size.range(BySize::first_of(Reverse(smaller))..).next(),
                None => None,
            };
        }
        (older, rest)
    }
}

impl BySize {
    fn of(id: ListId, pending: &Pending) -> BySize {
        let class = Reverse(class_of(pending.bytes));
        BySize { class, came_at: pending.came_at, group: id.group, may_wait: id.may_wait }
    }

    fn first_of(class: Reverse<u8>) -> BySize {
        BySize { class, came_at: 0, group: GroupId::new(0), may_wait: false }
    }

    fn id(&self) -> ListId {
        ListId { group: self.group, may_wait: self.may_wait }
    }
}

impl ByDue {
    fn of(id: ListId, due: Duration) -> ByDue {
        ByDue { at_ns: nanos(due), group: id.group, may_wait: id.may_wait }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Groups of about the same size are of one class.
fn class_of(bytes: u64) -> u8 {
    bytes.max(1).ilog2() as u8
}

/// The earlier of two optional times.
pub(super) fn earlier(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is known of a group: bytes, `came_at`, due.
    type Model = HashMap<ListId, (u64, u64, Option<Duration>)>;

    fn sorted(ids: impl IntoIterator<Item = ListId>) -> Vec<ListId> {
        let mut ids: Vec<_> = ids.into_iter().collect();
        ids.sort_unstable();
        ids
    }

    /// Those of the model that this is true of.
    fn those(model: &Model, is: impl Fn(&(u64, u64, Option<Duration>)) -> bool) -> Vec<ListId> {
        sorted(model.iter().filter(|(_, group)| is(group)).map(|(id, _)| *id))
    }

    fn assert_same(groups: &Groups, model: &Model, rng: &mut fastrand::Rng) {
        assert_eq!((groups.len(), groups.is_empty()), (model.len(), model.is_empty()));
        assert_eq!(groups.first_due(), model.values().filter_map(|group| group.2).min());
        let by = Duration::from_nanos(rng.u64(0..60));
        let due = those(model, |group| group.2.is_some_and(|due| due <= by));
        assert_eq!(sorted(groups.due_by(by).map(|(id, _)| id)), due);
        assert!(groups.due_by(by).all(|(id, bytes)| model[&id].0 == bytes));
        let least = rng.u64(1..40);
        let large = sorted(groups.with_at_least(least).map(|(id, _)| id));
        assert_eq!(large, those(model, |group| group.0 >= least));
        let before = rng.u64(0..60);
        let (older, rest) = groups.older(before);
        assert_eq!(sorted(older), those(model, |group| group.1 < before));
        let others = model.values().map(|group| group.1).filter(|came_at| *came_at >= before);
        assert_eq!(rest, others.min().unwrap_or(u64::MAX));
        let mut all: Vec<_> = model.keys().copied().collect();
        all.sort_unstable_by_key(|id| (Reverse(model[id].0.ilog2()), model[id].1, *id));
        assert_eq!(groups.by_size().collect::<Vec<_>>(), all);
    }

    #[test]
    fn what_is_chosen_is_what_a_look_at_all_groups_would_choose() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..50 {
            let (mut groups, mut model) = (Groups::default(), Model::new());
            for _ in 0..100 {
                let id = ListId { group: GroupId::new(rng.u64(0..30)), may_wait: rng.bool() };
                if rng.u8(0..3) == 0 {
                    assert_eq!(groups.remove(id).is_some(), model.remove(&id).is_some());
                } else {
                    let (bytes, came_at) = (rng.u64(1..9), rng.u64(0..50));
                    let due = rng.bool().then(|| Duration::from_nanos(rng.u64(0..50)));
                    groups.add(id, bytes, came_at, due);
                    let group = model.entry(id).or_insert((0, u64::MAX, None));
                    *group = (group.0 + bytes, group.1.min(came_at), earlier(group.2, due));
                }
                assert_same(&groups, &model, &mut rng);
            }
            let all = those(&model, |_| true);
            assert!(all.into_iter().all(|id| groups.remove(id).is_some()));
            assert_same(&groups, &Model::new(), &mut rng);
        }
    }
}
