//! Loved and hated groups by observed use: loved groups get many hits for the memory they occupy,
//! hated groups get insertions only.
//!
//! Hits and insertions are counted in a fixed table in the manner of HeavyKeeper, as
//! `metrics::heavy_hitters` does, but without randomness: a group that has no slot decrements the
//! weaker of its two candidate slots by one. A group's size is estimated from its hits: the number
//! of distinct objects, counted in a bitmap by linear counting (Whang et al., ACM TODS 1990), times
//! their mean length. That is the memory that love would keep, and it needs no state from before a
//! restart. After every [`WINDOW_USES`] uses the densest groups become loved, within the room for
//! loved groups; loved groups that are no longer dense lose the hint; and all counts are halved. A
//! group with many insertions and no hit is hated until its first hit.
//!
//! Invariants: every hint given is in `given`, which is bounded, until it is taken back or a rule
//! takes it over; a group with too many objects to count is never loved. Pure; no threads: the
//! owner locks it.

use std::collections::HashMap;

use damelo::GroupId;

use crate::ruleset::Hint;

/// Maximum number of groups counted.
const SLOTS: usize = 8192;
/// Uses between two evaluations.
const WINDOW_USES: u32 = 1 << 15;
/// Fewest uses, in this window plus half of the earlier ones, for a group to be loved.
const LOVE_USES_MIN: u32 = 16;
/// A loved group has at least this many times the mean uses per byte.
const LOVE_DENSITY_MIN: f64 = 4.0;
/// Insertions without any use after which a group counts as bulk.
const BULK_STORES: u32 = 64;
/// Maximum number of groups with a hint by use: the store keeps every group that has a hint.
const GIVEN_MAX: usize = 1024;
/// Maximum number of hints changed in one turn: the store scans its memory for each.
const CHANGES_MAX: usize = 64;

/// Which objects of a group had hits, and their lengths.
#[derive(Debug, Clone, Copy, Default)]
struct GroupHits {
    /// Bitmap of hashed objects, this window's and the one before; one bit stands for many objects.
    seen: u64,
    seen_before: u64,
    bytes: u64,
    uses: u32,
}

impl GroupHits {
    fn one(&mut self, object: u64, length_bytes: u64) {
        self.seen |= 1 << (object >> 58);
        self.bytes = self.bytes.saturating_add(length_bytes);
        self.uses = self.uses.saturating_add(1);
    }

    /// Estimated bytes of the distinct objects; `None` if they are too many to count, or none had a
    /// hit lately.
    fn distinct_bytes(&self) -> Option<f64> {
        let unseen = (self.seen | self.seen_before).count_zeros();
        let objects = 64.0 * (64.0 / f64::from(unseen)).ln();
        let mean_bytes = self.bytes as f64 / f64::from(self.uses.max(1));
        (1..64).contains(&unseen).then(|| (objects * mean_bytes).max(1.0))
    }

    fn age(&mut self) {
        (self.seen_before, self.seen) = (self.seen, 0);
        (self.bytes, self.uses) = (self.bytes / 2, self.uses / 2);
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    group: u64,
    asked: GroupHits,
    stores: u32,
}

impl Slot {
    fn weight(&self) -> u32 {
        self.asked.uses.saturating_add(self.stores)
    }

    fn wear(&mut self) {
        let count = if self.asked.uses > 0 { &mut self.asked.uses } else { &mut self.stores };
        *count = count.saturating_sub(1);
    }
}

/// Recent use of groups, and the hints derived from it.
#[derive(Debug)]
pub(crate) struct GroupUsage {
    slots: Box<[Slot]>,
    uses: u32,
    given: HashMap<u64, Hint>,
}

impl Default for GroupUsage {
    fn default() -> GroupUsage {
        let slots = vec![Slot::default(); SLOTS].into();
        GroupUsage { slots, uses: 0, given: HashMap::new() }
    }
}

impl GroupUsage {
    /// Counts a hit in the group. Returns whether the group's hint changed.
    pub(crate) fn used(&mut self, group: GroupId, object: u64, length_bytes: u64) -> bool {
        self.uses += 1;
        if let Some(slot) = self.place(group) {
            slot.asked.one(object, length_bytes);
        }
        let hated = self.given.get(&group.get()) == Some(&Hint::Hate);
        hated && self.given.remove(&group.get()).is_some()
    }

    /// Counts an insertion into the group. Returns whether the group's hint changed.
    pub(crate) fn stored(&mut self, group: GroupId) -> bool {
        let Some(slot) = self.place(group) else { return false };
        slot.stores = slot.stores.saturating_add(1);
        let bulk = slot.asked.uses == 0 && slot.stores >= BULK_STORES;
        bulk && self.give(group, Hint::Hate)
    }

    /// The hint derived from the group's use.
    pub(crate) fn hint(&self, group: GroupId) -> Option<Hint> {
        self.given.get(&group.get()).copied()
    }

    /// Gives up the group's hint: a rule owns it from now on.
    pub(crate) fn leave(&mut self, group: GroupId) {
        self.given.remove(&group.get());
    }

    fn give(&mut self, group: GroupId, hint: Hint) -> bool {
        let known = self.given.contains_key(&group.get());
        if known || self.given.len() >= GIVEN_MAX {
            return false;
        }
        self.given.insert(group.get(), hint);
        true
    }

    /// The group's slot; `None` while a stronger group occupies it.
    fn place(&mut self, group: GroupId) -> Option<&mut Slot> {
        let group = group.get();
        let places = places(group);
        let at = places.iter().find(|at| self.slots[**at].group == group);
        if let Some(at) = at {
            return self.slots.get_mut(*at);
        }
        let at = places.iter().min_by_key(|at| self.slots[**at].weight())?;
        let slot = &mut self.slots[*at];
        if slot.weight() > 1 {
            slot.wear();
            return None;
        }
        *slot = Slot { group, ..Slot::default() };
        Some(slot)
    }

    /// Whether [`GroupUsage::turn`] is due; true once per window, so that only one caller runs it.
    pub(crate) fn take_due(&mut self) -> bool {
        let due = self.uses >= WINDOW_USES;
        if due {
            self.uses = 0;
        }
        due
    }

    /// Ends a window, with `room_bytes` for loved groups. Returns the groups whose hint changed.
    pub(crate) fn turn(&mut self, room_bytes: u64) -> Vec<GroupId> {
        let dense = self.dense(room_bytes);
        let mut changed = self.let_go(&dense);
        for group in dense {
            if changed.len() >= CHANGES_MAX {
                break;
            }
            if self.give(group, Hint::Love) {
                changed.push(group);
            }
        }
        for slot in &mut self.slots {
            slot.asked.age();
            slot.stores /= 2;
        }
        changed
    }

    /// The groups dense enough to be loved, densest first, as many as fit.
    fn dense(&self, room_bytes: u64) -> Vec<GroupId> {
        let sized = |slot: &Slot| Some((slot.group, slot.asked.uses, slot.asked.distinct_bytes()?));
        let used = self.slots.iter().filter(|slot| slot.asked.uses > 0);
        let sized: Vec<_> = used.filter_map(sized).collect();
        let all_uses: f64 = sized.iter().map(|(_, uses, _)| f64::from(*uses)).sum();
        let all_bytes: f64 = sized.iter().map(|(.., bytes)| bytes).sum();
        let density_min = LOVE_DENSITY_MIN * all_uses / all_bytes.max(1.0);
        let dense = |(group, uses, bytes): (u64, u32, f64)| {
            let density = f64::from(uses) / bytes;
            (uses >= LOVE_USES_MIN && density >= density_min).then_some((density, bytes, group))
        };
        let mut dense: Vec<_> = sized.into_iter().filter_map(dense).collect();
        dense.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.2.cmp(&b.2)));
        let mut left_bytes = room_bytes as f64;
        let fits = |(_, bytes, group): (f64, f64, u64)| {
            let fits = bytes <= left_bytes;
            left_bytes -= if fits { bytes } else { 0.0 };
            fits.then(|| GroupId::new(group))
        };
        dense.into_iter().filter_map(fits).take(GIVEN_MAX).collect()
    }

    /// Drops love from groups no longer dense and hate from groups without recent insertions.
    fn let_go(&mut self, dense: &[GroupId]) -> Vec<GroupId> {
        let comes_in = |group: u64| {
            let slot = |at: usize| self.slots[at];
            places(group).into_iter().any(|at| slot(at).group == group && slot(at).stores > 0)
        };
        let is_over = |(group, hint): (&u64, &Hint)| {
            let over = match hint {
                Hint::Love => !dense.contains(&GroupId::new(*group)),
                Hint::Hate | Hint::Neutral => !comes_in(*group),
            };
            over.then_some(*group)
        };
        let mut over: Vec<u64> = self.given.iter().filter_map(is_over).collect();
        over.sort_unstable();
        over.truncate(CHANGES_MAX);
        for group in &over {
            self.given.remove(group);
        }
        over.into_iter().map(GroupId::new).collect()
    }
}

/// The candidate slots of a group.
fn places(group: u64) -> [usize; 2] {
    let mixed = group.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [mixed as usize % SLOTS, (mixed >> 32) as usize % SLOTS]
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH_BYTES: u64 = 100;

    fn object(number: u64) -> u64 {
        GroupId::of(number.to_le_bytes()).get()
    }

    /// Gives three groups, each with one object, half of all uses.
    fn window(usage: &mut GroupUsage, popular: u64) {
        let mut random = fastrand::Rng::with_seed(popular);
        while !usage.take_due() {
            let group =
                if random.bool() { popular + random.u64(..3) } else { random.u64(1000..2000) };
            usage.used(GroupId::new(group), object(group), LENGTH_BYTES);
        }
    }

    fn loved(usage: &GroupUsage) -> Vec<u64> {
        let mut loved: Vec<u64> = usage.given.keys().copied().collect();
        loved.sort_unstable();
        assert!(usage.given.values().all(|hint| *hint == Hint::Love));
        loved
    }

    #[test]
    fn what_is_dense_is_loved_within_the_room_and_let_go_later() {
        let mut usage = GroupUsage::default();
        window(&mut usage, 10);
        assert!(!usage.take_due(), "whoever took it turns, and nobody else");
        let changed = usage.turn(5 * LENGTH_BYTES / 2);
        let first = loved(&usage);
        assert_eq!((first.len(), changed.len()), (2, 2), "the third has no room");
        assert!(first.iter().all(|group| (10..13).contains(group)), "{first:?}");
        let mut changed = Vec::new();
        for _ in 0..6 {
            window(&mut usage, 20);
            changed.extend(usage.turn(5 * LENGTH_BYTES / 2));
        }
        assert!(loved(&usage).iter().all(|group| (20..23).contains(group)));
        assert!(first.iter().all(|group| changed.contains(&GroupId::new(*group))));
    }

    #[test]
    fn one_large_group_does_not_keep_smaller_ones_out() {
        let mut usage = GroupUsage::default();
        while !usage.take_due() {
            usage.used(GroupId::new(1), object(1), 1000);
            usage.used(GroupId::new(1), object(1), 1000);
            usage.used(GroupId::new(1), object(1), 1000);
            usage.used(GroupId::new(2), object(2), 500);
            for rare in 0..10 {
                let rare = 10 + (u64::from(usage.uses) + rare) % 3000;
                usage.used(GroupId::new(rare), object(rare), 10_000);
            }
        }
        usage.turn(600);
        assert_eq!(loved(&usage), [2]);
    }

    #[test]
    fn a_group_is_as_large_as_what_is_asked_for() {
        for objects in [1, 3, 10, 30, 100] {
            let mut asked = GroupHits::default();
            for number in 0..1000 {
                asked.one(object(number % objects), LENGTH_BYTES);
            }
            let bytes = asked.distinct_bytes().expect("few enough");
            let right = (objects * LENGTH_BYTES) as f64;
            assert!((right * 0.7..right * 1.4).contains(&bytes), "{objects}: {bytes}");
        }
        let mut many = GroupHits::default();
        (0..5000).for_each(|number| many.one(object(number), LENGTH_BYTES));
        assert_eq!(many.distinct_bytes(), None);
    }

    #[test]
    fn equal_groups_are_not_loved() {
        let mut usage = GroupUsage::default();
        while !usage.take_due() {
            let group = u64::from(usage.uses % 500) + 1;
            usage.used(GroupId::new(group), object(group), LENGTH_BYTES);
        }
        assert_eq!(usage.turn(1 << 30), []);
    }

    #[test]
    fn bulk_is_hated_until_it_is_used() {
        let mut usage = GroupUsage::default();
        let (bulk, page) = (GroupId::new(7), GroupId::new(9));
        assert_eq!((0..100).filter(|_| usage.stored(bulk)).count(), 1);
        assert_eq!(usage.hint(bulk), Some(Hint::Hate));
        usage.used(page, 1, 1);
        assert!(!(0..100).any(|_| usage.stored(page)));
        assert!(usage.used(bulk, 1, 1) && usage.hint(bulk).is_none());
        assert!(!usage.used(bulk, 1, 1));
    }

    #[test]
    fn what_a_rule_took_over_is_not_taken_back() {
        let mut usage = GroupUsage::default();
        let bulk = GroupId::new(7);
        while !usage.stored(bulk) {}
        usage.leave(bulk);
        assert!(!usage.used(bulk, 1, 1));
        for _ in 0..10 {
            assert_eq!(usage.turn(0), []);
        }
    }

    #[test]
    fn hate_ends_when_nothing_comes_in_any_more_and_never_exceeds_its_bound() {
        let mut usage = GroupUsage::default();
        for group in 0..4 * GIVEN_MAX as u64 {
            for _ in 0..BULK_STORES {
                usage.stored(GroupId::new(100 + group));
            }
        }
        assert_eq!(usage.given.len(), GIVEN_MAX);
        let windows = BULK_STORES.ilog2() as usize + 2 + GIVEN_MAX / CHANGES_MAX;
        let let_go: usize = (0..windows)
            .map(|_| usage.turn(0).len())
            .inspect(|changes| assert!(*changes <= CHANGES_MAX))
            .sum();
        assert_eq!((let_go, usage.given.len()), (GIVEN_MAX, 0));
    }
}
