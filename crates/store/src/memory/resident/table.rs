//! A hash table that grows and shrinks in small steps: open addressing, entries in order of their
//! hashes.
//!
//! A table of powers of two is a third empty on average, and all shards of the resident table,
//! which hold about equally many objects, double together. Here the place of an entry follows from
//! the table's length whatever it is, and since a longer or shorter table has its entries in the
//! same order, resizing is one pass over both. Short tables, which are not mapped, have few lengths
//! all the same: allocators keep what each length leaves.
//!
//! Invariants: entries are in ascending order of `rest`; each is at its home or behind it, and no
//! slot between the two is empty; no two have the same `rest`. Threads: under the shard's lock.

use super::packed::Packed;
use crate::memory::mapped::{MAPPED_BYTES_MIN, Mapped, MappedVec, PAGE_BYTES};

/// A table is at most this full, in percent. The fuller, the longer searches take.
const FULL_PERCENT_MAX: usize = 87;
/// How full a resized table is. The distance to the bounds is the room until the next resizing.
const FULL_PERCENT_NEW: usize = 78;
/// A table that is less full is made shorter.
const FULL_PERCENT_MIN: usize = 62;
/// Slots behind the last home, for entries that are displaced beyond it.
const SPILL: usize = 24;

pub(super) struct Table {
    slots: MappedVec<Packed>,
    /// Slots that are homes: all but the last `SPILL`.
    homes: usize,
    len: usize,
}

impl Default for Table {
    fn default() -> Table {
        Table { slots: MappedVec::new_in(Mapped), homes: 0, len: 0 }
    }
}

/// The shortest table; others that are not mapped have twice as much, or four times, and so on.
const SHORTEST_BYTES: usize = 1024;
/// The shortest that is mapped.
const MAPPED_BYTES: usize = MAPPED_BYTES_MIN.next_multiple_of(PAGE_BYTES);

/// Memory of a table with so many slots.
fn memory_of(slots: usize) -> usize {
    match slots * size_of::<Packed>() {
        0 => 0,
        bytes if bytes < MAPPED_BYTES_MIN => bytes.next_power_of_two().max(SHORTEST_BYTES),
        bytes => bytes.next_multiple_of(PAGE_BYTES),
    }
}

/// Slots for at least `wanted` homes, and as many more as fit into the same memory.
fn slots_for(wanted: usize) -> usize {
    memory_of(wanted + SPILL) / size_of::<Packed>()
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Memory that the table takes, in bytes, with what it took before it was mapped: other shards
    /// have left as much at that length and want it no more, and the allocator has no use for it.
    pub(super) fn bytes(&self) -> usize {
        let bytes = memory_of(self.slots.len());
        bytes + bytes.min(MAPPED_BYTES).saturating_sub(SHORTEST_BYTES)
    }

    /// The home of an entry; ascends with `rest`.
    #[inline]
    fn home(&self, rest: u64) -> usize {
        ((Packed::order(rest) * self.homes as u64) >> 32) as usize
    }

    /// The slot of the entry with this `rest`, or else the slot where it belongs.
    #[inline]
    fn search(&self, rest: u64) -> Result<usize, usize> {
        let home = self.home(rest);
        for (distance, slot) in self.slots[home..].iter().enumerate() {
            if slot.rest() >= rest || slot.is_empty() {
                let is_it = slot.rest() == rest && !slot.is_empty();
                return if is_it { Ok(home + distance) } else { Err(home + distance) };
            }
        }
        Err(self.slots.len())
    }

    #[inline]
    pub(super) fn get(&self, rest: u64) -> Option<&Packed> {
        self.search(rest).ok().map(|at| &self.slots[at])
    }

    #[inline]
    pub(super) fn get_mut(&mut self, rest: u64) -> Option<&mut Packed> {
        self.search(rest).ok().map(|at| &mut self.slots[at])
    }

    /// Puts an entry in; returns the one with the same `rest` that it replaces.
    pub(super) fn insert(&mut self, entry: Packed) -> Option<Packed> {
        if let Ok(at) = self.search(entry.rest()) {
            return Some(std::mem::replace(&mut self.slots[at], entry));
        }
        if (self.len + 1) * 100 > self.homes * FULL_PERCENT_MAX {
            self.resize_for(self.len + 1);
        }
        while !self.insert_new(entry) {
            // The spill is full, which is rare. Other homes spread the entries otherwise.
            self.resize(self.homes + SPILL);
        }
        None
    }

    /// False if there is no empty slot behind the entry's place.
    fn insert_new(&mut self, entry: Packed) -> bool {
        let (Ok(at) | Err(at)) = self.search(entry.rest());
        let Some(gap) = self.slots[at..].iter().position(Packed::is_empty) else { return false };
        self.slots.copy_within(at..at + gap, at + 1);
        self.slots[at] = entry;
        self.len += 1;
        true
    }

    pub(super) fn remove(&mut self, rest: u64) -> Option<Packed> {
        let at = self.search(rest).ok()?;
        let removed = self.slots[at];
        // Entries that are not at home move one slot towards it.
        let stays = |slot: usize| {
            let entry = &self.slots[slot];
            entry.is_empty() || self.home(entry.rest()) == slot
        };
        let end = (at + 1..self.slots.len()).find(|&slot| stays(slot));
        let end = end.unwrap_or(self.slots.len());
        self.slots.copy_within(at + 1..end, at);
        self.slots[end - 1] = Packed::EMPTY;
        self.len -= 1;
        Some(removed)
    }

    /// Makes a table shorter that has become much too long.
    pub(super) fn settle(&mut self) {
        if self.len == 0 {
            *self = Table::default();
        } else if self.len * 100 < self.homes * FULL_PERCENT_MIN {
            let wanted = (self.len * 100).div_ceil(FULL_PERCENT_NEW);
            if slots_for(wanted) < self.slots.len() {
                self.resize(wanted);
            }
        }
    }

    fn resize_for(&mut self, len: usize) {
        self.resize((len * 100).div_ceil(FULL_PERCENT_NEW));
    }

    /// Moves all entries to a table with at least this number of homes.
    fn resize(&mut self, homes: usize) {
        let mut slots = slots_for(homes);
        loop {
            let mut table =
                Table { slots: MappedVec::new_in(Mapped), homes: slots - SPILL, len: 0 };
            table.slots.reserve_exact(slots);
            if table.fill(slots, self.entries()) {
                *self = table;
                return;
            }
            slots = slots_for(slots);
        }
    }

    /// Fills an empty table with entries in ascending order; false if the last ones have no room.
    fn fill<'a>(&mut self, slots: usize, entries: impl Iterator<Item = &'a Packed>) -> bool {
        for entry in entries {
            let home = self.home(entry.rest());
            if home > self.slots.len() {
                self.slots.resize(home, Packed::EMPTY);
            }
            if self.slots.len() == slots {
                return false;
            }
            self.slots.push(*entry);
            self.len += 1;
        }
        self.slots.resize(slots, Packed::EMPTY);
        true
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Packed> {
        self.slots.iter().filter(|slot| !slot.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn entry(rest: u64, first: u32) -> Packed {
        Packed::new(rest, first)
    }

    fn check(table: &Table, model: &BTreeMap<u64, u32>) {
        assert_eq!(table.len(), model.len());
        let found: Vec<_> = table.entries().map(|entry| (entry.rest(), entry.first())).collect();
        let wanted: Vec<_> = model.iter().map(|(rest, first)| (*rest, *first)).collect();
        assert_eq!(found, wanted, "in order, each once");
        for (at, slot) in table.slots.iter().enumerate().filter(|(_, slot)| !slot.is_empty()) {
            let home = table.home(slot.rest());
            assert!(home <= at && table.slots[home..at].iter().all(|slot| !slot.is_empty()));
        }
    }

    /// Compared with an ordered map; hashes are spread evenly or crowd together.
    #[test]
    fn a_table_holds_what_a_map_holds() {
        const STEPS: u32 = if cfg!(miri) { 300 } else { 30_000 };
        for (seed, mask) in [(1, Packed::REST_MAX), (2, 0xfff), (3, 0xff << 48 | 0xf)] {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut table, mut model) = (Table::default(), BTreeMap::new());
            for step in 0..STEPS {
                let known = model.range(rng.u64(..) & mask..).next().map(|(rest, _)| *rest);
                let rest = known.filter(|_| rng.bool()).unwrap_or(rng.u64(..) & mask);
                // More and more at first, then fewer and fewer.
                if rng.u32(..STEPS) > step {
                    let before = table.insert(entry(rest, step)).map(|entry| entry.first());
                    assert_eq!(before, model.insert(rest, step));
                } else {
                    let removed = table.remove(rest).map(|entry| entry.first());
                    assert_eq!(removed, model.remove(&rest));
                }
                assert_eq!(table.get(rest).map(|entry| entry.first()), model.get(&rest).copied());
                if step % 100 == 0 {
                    table.settle();
                    check(&table, &model);
                }
            }
        }
    }

    #[test]
    fn a_table_takes_little_more_than_its_entries_whatever_their_number() {
        // Short ones double, and leave their former lengths.
        const SHORT_BYTES: usize = 2 * MAPPED_BYTES;
        let mut rng = fastrand::Rng::with_seed(1);
        let mut table = Table::default();
        let mut held = Vec::new();
        for count in 1..=20_000 {
            let rest = rng.u64(..) & Packed::REST_MAX;
            assert!(table.insert(entry(rest, 1)).is_none());
            held.push(rest);
            let most =
                count * size_of::<Packed>() * 130 / 100 + SPILL * size_of::<Packed>() + SHORT_BYTES;
            assert!(table.bytes() <= most, "{} bytes for {count} entries", table.bytes());
        }
        for count in (0..held.len()).rev() {
            assert!(table.remove(held[count]).is_some());
            table.settle();
            let most =
                count * size_of::<Packed>() * 165 / 100 + SPILL * size_of::<Packed>() + SHORT_BYTES;
            assert!(table.bytes() <= most, "{} bytes for {count} entries", table.bytes());
        }
        assert_eq!(table.bytes(), 0);
    }

    /// With many, 256 shards that grow alike would leave each of them to the allocator.
    #[test]
    fn short_tables_have_few_lengths() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut lengths = std::collections::BTreeSet::new();
        for _ in 0..20 {
            let mut table = Table::default();
            for _ in 0..400 {
                table.insert(entry(rng.u64(..) & Packed::REST_MAX, 1));
                lengths.insert(memory_of(table.slots.len()));
            }
        }
        let short = lengths.iter().filter(|bytes| **bytes < MAPPED_BYTES_MIN);
        assert!(short.eq(&[1024, 2048, 4096]), "{lengths:?}");
    }
}
