//! Love and hate by observed use: which groups are asked for often for their size, and which only
//! ever come in.
//!
//! Uses are counted in a fixed table by the way of HeavyKeeper, as `hot` does, but without chance: a
//! group that is not there wears the weaker of its two places down by one. After every
//! [`WINDOW_USES`] uses the densest groups are loved, within the room that there is for them, those
//! that are loved and no longer dense are let go, and all counts are halved. A group of which much
//! was stored and nothing was asked for is hated until something is.
//!
//! Invariants: what a rule says of a group goes before; at most [`CHANGES_MAX`] groups change at once,
//! because the store looks through its memory for each. Pure; no threads: whoever shares it locks it.

use damelo::GroupId;

use crate::ruleset::Hint;

/// Groups that are counted, at most.
const SLOTS: usize = 8192;
/// Uses after which love is thought over.
const WINDOW_USES: u32 = 1 << 15;
/// Uses in a window, counted with half of those before, below which no group is loved.
const LOVE_USES_MIN: u32 = 16;
/// A loved group has so many times the mean uses for its bytes.
const LOVE_DENSITY_MIN: u64 = 4;
/// Objects stored of a group without any use that make it bulk.
const BULK_STORES: u32 = 64;
/// Groups whose hint changes in one turn.
const CHANGES_MAX: usize = 64;

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    group: u64,
    uses: u32,
    stores: u32,
    hint: Option<Hint>,
    /// A rule says what becomes of it.
    ruled: bool,
}

impl Slot {
    fn weight(&self) -> u32 {
        self.uses.saturating_add(self.stores)
    }
}

/// What was seen of groups lately.
#[derive(Debug)]
pub(crate) struct Affection {
    slots: Box<[Slot]>,
    uses: u32,
    /// Groups that lost their place with a hint.
    orphans: Vec<u64>,
}

impl Default for Affection {
    fn default() -> Affection {
        Affection { slots: vec![Slot::default(); SLOTS].into(), uses: 0, orphans: Vec::new() }
    }
}

impl Affection {
    /// Something of the group was asked for and was there. The hint it has from now on, if that is
    /// another.
    pub(crate) fn used(&mut self, group: GroupId) -> Option<Hint> {
        self.uses += 1;
        let slot = self.place(group)?;
        slot.uses = slot.uses.saturating_add(1);
        if slot.hint != Some(Hint::Hate) || slot.ruled {
            return None;
        }
        slot.hint = None;
        Some(Hint::Neutral)
    }

    /// Something of the group was stored.
    pub(crate) fn stored(&mut self, group: GroupId) -> Option<Hint> {
        let slot = self.place(group)?;
        slot.stores = slot.stores.saturating_add(1);
        let bulk = slot.uses == 0 && slot.stores >= BULK_STORES;
        if !bulk || slot.hint.is_some() || slot.ruled {
            return None;
        }
        slot.hint = Some(Hint::Hate);
        slot.hint
    }

    /// A rule has decided on the group.
    pub(crate) fn ruled(&mut self, group: GroupId) {
        if let Some(slot) = self.place(group) {
            (slot.ruled, slot.hint) = (true, None);
        }
    }

    /// The place of a group; `None` while another is stronger.
    fn place(&mut self, group: GroupId) -> Option<&mut Slot> {
        let group = group.get();
        let mixed = group.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let places = [mixed as usize % SLOTS, (mixed >> 32) as usize % SLOTS];
        let holds = |at: &&usize| self.slots[**at].group == group;
        let at = match places.iter().find(holds) {
            Some(at) => *at,
            None => {
                let weight = |at: &&usize| self.slots[**at].weight();
                let at = places.iter().min_by_key(weight).copied()?;
                let slot = &mut self.slots[at];
                if slot.weight() > 1 {
                    if slot.uses > 0 {
                        slot.uses -= 1
                    } else {
                        slot.stores -= 1
                    }
                    return None;
                }
                if slot.hint.is_some() && !slot.ruled {
                    self.orphans.push(slot.group);
                }
                *slot = Slot { group, ..Slot::default() };
                at
            }
        };
        self.slots.get_mut(at)
    }

    /// Whether it is time for [`Affection::turn`].
    pub(crate) fn is_due(&self) -> bool {
        self.uses >= WINDOW_USES
    }

    /// Ends a window: what changes, with `bytes_of` saying how large a group is, if that is
    /// known, and `room_bytes` how much may be loved.
    pub(crate) fn turn(
        &mut self,
        room_bytes: u64,
        bytes_of: impl Fn(GroupId) -> Option<u64>,
    ) -> Vec<(GroupId, Hint)> {
        self.uses = 0;
        let mut dense = Vec::new();
        let (mut all_uses, mut all_bytes) = (0, 0);
        for (at, slot) in self.slots.iter().enumerate() {
            if slot.uses >= LOVE_USES_MIN && !slot.ruled && slot.hint != Some(Hint::Hate) {
                let Some(bytes) = bytes_of(GroupId::new(slot.group)) else { continue };
                let bytes = bytes.max(1);
                all_uses += u64::from(slot.uses);
                all_bytes += bytes;
                dense.push((u64::from(slot.uses) * 1_000_000 / bytes, bytes, at));
            }
        }
        let density_min = all_uses * 1_000_000 / all_bytes.max(1) * LOVE_DENSITY_MIN;
        dense.sort_unstable_by_key(|(density, _, at)| (std::cmp::Reverse(*density), *at));
        let mut loved = vec![false; self.slots.len()];
        let mut left = room_bytes;
        for (density, bytes, at) in dense {
            if density < density_min || bytes > left {
                break;
            }
            left -= bytes;
            loved[at] = true;
        }
        let neutral = |group| (GroupId::new(group), Hint::Neutral);
        let mut changes: Vec<_> = self.orphans.drain(..).map(neutral).collect();
        for (slot, loved) in self.slots.iter_mut().zip(loved) {
            let wanted = if loved { Some(Hint::Love) } else { None };
            let settled = slot.ruled || slot.hint == wanted || slot.hint == Some(Hint::Hate);
            if !settled && changes.len() < CHANGES_MAX {
                slot.hint = wanted;
                changes.push((GroupId::new(slot.group), wanted.unwrap_or(Hint::Neutral)));
            }
            (slot.uses, slot.stores) = (slot.uses / 2, slot.stores / 2);
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(affection: &mut Affection, popular: u64) {
        let mut random = fastrand::Rng::with_seed(popular);
        while !affection.is_due() {
            // Half of all uses are of three groups.
            let group =
                if random.bool() { popular + random.u64(..3) } else { random.u64(1000..2000) };
            affection.used(GroupId::new(group));
        }
    }

    #[test]
    fn what_is_dense_is_loved_within_the_room_and_let_go_later() {
        let mut affection = Affection::default();
        window(&mut affection, 10);
        let changes = affection.turn(250, |_| Some(100));
        let loved: Vec<u64> = changes.iter().map(|(group, _)| group.get()).collect();
        assert_eq!(loved.len(), 2, "{changes:?}: the third has no room");
        assert!(loved.iter().all(|group| (10..13).contains(group)), "{changes:?}");
        assert!(changes.iter().all(|(_, hint)| *hint == Hint::Love));
        let mut let_go = Vec::new();
        for _ in 0..6 {
            window(&mut affection, 20);
            let_go.extend(affection.turn(250, |_| Some(100)));
        }
        for group in loved {
            assert!(let_go.contains(&(GroupId::new(group), Hint::Neutral)), "{group}: {let_go:?}");
        }
        assert!(let_go.iter().any(|(group, hint)| group.get() >= 20 && *hint == Hint::Love));
    }

    #[test]
    fn equal_groups_are_not_loved() {
        let mut affection = Affection::default();
        while !affection.is_due() {
            affection.used(GroupId::new(u64::from(affection.uses % 500) + 1));
        }
        assert_eq!(affection.turn(1 << 30, |_| Some(100)), []);
    }

    #[test]
    fn bulk_is_hated_until_it_is_used() {
        let mut affection = Affection::default();
        let (bulk, page) = (GroupId::new(7), GroupId::new(9));
        let hints: Vec<_> = (0..100).filter_map(|_| affection.stored(bulk)).collect();
        assert_eq!(hints, [Hint::Hate]);
        affection.used(page);
        assert!((0..100).all(|_| affection.stored(page).is_none()));
        assert_eq!(affection.used(bulk), Some(Hint::Neutral));
        assert_eq!(affection.used(bulk), None);
    }

    #[test]
    fn a_rule_goes_before() {
        let mut affection = Affection::default();
        let group = GroupId::new(10);
        affection.ruled(group);
        assert!((0..100).all(|_| affection.stored(group).is_none()));
        window(&mut affection, 10);
        let changes = affection.turn(1 << 30, |_| Some(100));
        assert!(!changes.is_empty() && changes.iter().all(|(loved, _)| *loved != group));
    }

    #[test]
    fn who_loses_a_place_loses_the_hint() {
        let mut affection = Affection::default();
        let bulk = GroupId::new(7);
        while affection.stored(bulk).is_none() {}
        for _ in 0..BULK_STORES.ilog2() + 1 {
            assert_eq!(affection.turn(0, |_| Some(1)), [], "it is only forgotten for another");
        }
        for number in 0..200_000 {
            affection.stored(GroupId::new(100 + number));
        }
        assert!(affection.turn(0, |_| Some(1)).contains(&(bulk, Hint::Neutral)));
    }
}
