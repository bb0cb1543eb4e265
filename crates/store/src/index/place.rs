//! Insertion: finds room in a pair of buckets, makes room by moving entries, or evicts.
//!
//! Owns no state. Threads: all functions run under the shard's lock. Entries are moved from the end
//! of the path back, each written to its new slot before its old slot is emptied, so that readers
//! always find them (`shard.rs`).
//!
//! Invariant: when an entry is dropped, no older entry with the same tag in its pair stays. It
//! could be an older version of the same key, and would be served instead.

use super::geometry::{Pair, alternate};
use super::shard::{At, Locked};
use super::slot::{self, EMPTY, Location};
use super::sync::Ordering;
use super::table::BUCKET_SLOTS;
use super::{EvictionReason, Few, Inserted};

/// Most entries with the same tag in a pair of buckets.
pub(super) const TAG_LIMIT: usize = 3;

/// Buckets searched for an empty slot before evicting.
const SEARCH: usize = 256;

/// The same in nearly full shards, where most searches fail.
const SHORT_SEARCH: usize = 32;

impl Locked<'_> {
    /// Inserts an entry. `ring_age` gives the age of the record at a location: greater is older.
    pub(super) fn insert(
        &self,
        pair: Pair,
        entry: u64,
        ring_age: &impl Fn(Location) -> u64,
    ) -> Inserted {
        let scan = self.scan(pair);
        if scan.same != 0 {
            let same = self.family(pair);
            let location = self.location(entry);
            let again = same.iter().find(|&&at| self.location(self.load(at)) == location);
            if let Some(&at) = again {
                self.overwrite(at, entry);
                return Inserted::default();
            }
            if same.len() >= TAG_LIMIT {
                self.note_lost(pair);
                return self.replace_oldest(&same, entry, ring_age);
            }
        }
        match scan.room(pair).or_else(|| self.make_room(pair)) {
            Some(at) => {
                self.fill(at, entry);
                Inserted::default()
            }
            None => self.evict_for(pair, entry, ring_age),
        }
    }

    /// Compares all slots of a pair in one pass.
    #[inline]
    fn scan(&self, pair: Pair) -> Scan {
        let mut scan = Scan { same: 0, empty: 0 };
        let mut shift = 0;
        for bucket in pair.buckets() {
            for slot in &self.shard.buckets[bucket as usize] {
                let slot = slot.load(Ordering::Acquire);
                scan.same |= u32::from(self.shard.key_bits.match_slot(slot, pair.key)) << shift;
                scan.empty |= u32::from(slot == EMPTY) << shift;
                shift += 1;
            }
        }
        scan
    }

    /// Frees a slot of the pair by moving as few entries as possible to their other buckets.
    fn make_room(&self, pair: Pair) -> Option<At> {
        let (len, slots) = (self.len(), (self.shard.buckets.len() * BUCKET_SLOTS) as u64);
        if len == slots {
            return None;
        }
        let nearly_full = len * 100 >= slots * 99;
        let mut search = Search::new(pair);
        let end = search.run(self, if nearly_full { SHORT_SEARCH } else { SEARCH })?;
        Some(search.walk_back(self, end))
    }

    /// Replaces the oldest entry with the same tag; if the new entry is older than all of them, the
    /// new entry is dropped.
    fn replace_oldest(
        &self,
        same: &[At],
        entry: u64,
        ring_age: &impl Fn(Location) -> u64,
    ) -> Inserted {
        let mut inserted = Inserted::default();
        let location = self.location(entry);
        let oldest = self.oldest(same.iter().copied(), ring_age);
        match oldest {
            Some((at, age)) if age >= ring_age(location) => {
                inserted.evict(self.location(self.load(at)), EvictionReason::TagLimit);
                self.overwrite(at, entry);
            }
            _ => inserted.evict(location, EvictionReason::TagLimit),
        }
        inserted
    }

    /// Replaces the oldest entry in the two buckets, and drops entries that are even older and
    /// share the victim's tag and buckets.
    fn evict_for(&self, pair: Pair, entry: u64, ring_age: &impl Fn(Location) -> u64) -> Inserted {
        let mut inserted = Inserted::default();
        let location = self.location(entry);
        let Some((at, age)) = self.oldest(self.places(pair), ring_age) else {
            self.note_lost(pair);
            inserted.evict(location, EvictionReason::IndexFull);
            return inserted;
        };
        let victim = self.load(at);
        let key_bits = self.shard.key_bits;
        if key_bits.match_slot(victim, pair.key) && ring_age(location) > age {
            self.note_lost(pair);
            inserted.evict(location, EvictionReason::IndexFull);
            return inserted;
        }
        let buckets = self.shard.buckets.len() as u32;
        let family = Pair::of_entry(buckets, at.bucket, key_bits.of_slot(victim));
        for removed in &self.drop_older(family, age, ring_age) {
            inserted.evict(*removed, EvictionReason::IndexFull);
        }
        inserted.evict(self.location(victim), EvictionReason::IndexFull);
        self.note_lost(family);
        self.overwrite(at, entry);
        inserted
    }

    /// Drops entries with the pair's tag that are older than `age`, the oldest first, so that
    /// readers never find an older one without the newer.
    pub(super) fn drop_older(
        &self,
        pair: Pair,
        age: u64,
        ring_age: &impl Fn(Location) -> u64,
    ) -> Few<Location> {
        self.drop_oldest_first(pair, ring_age, |found| found > age)
    }

    /// Drops entries with the pair's tag whose age is `doomed`, the oldest first.
    pub(super) fn drop_oldest_first(
        &self,
        pair: Pair,
        ring_age: &impl Fn(Location) -> u64,
        doomed: impl Fn(u64) -> bool,
    ) -> Few<Location> {
        let mut found: Few<(u64, At)> = Few::new();
        for &at in &self.family(pair) {
            let age = ring_age(self.location(self.load(at)));
            if doomed(age) {
                found.push((age, at));
            }
        }
        if !found.is_empty() {
            self.note_dropped(pair);
        }
        found.as_mut_slice().sort_unstable_by_key(|&(age, _)| std::cmp::Reverse(age));
        let mut dropped = Few::new();
        for &(_, at) in &found {
            dropped.push(self.location(self.clear(at)));
        }
        dropped
    }

    /// The oldest entry among these places, and its age.
    fn oldest(
        &self,
        places: impl Iterator<Item = At>,
        ring_age: &impl Fn(Location) -> u64,
    ) -> Option<(At, u64)> {
        places
            .filter(|&at| self.load(at) != EMPTY)
            .map(|at| (at, ring_age(self.location(self.load(at)))))
            .max_by_key(|&(_, age)| age)
    }
}

/// Slots of a pair that have its tag, and those that are empty: one bit per slot, the first
/// bucket's before the second's.
struct Scan {
    same: u32,
    empty: u32,
}

impl Scan {
    /// An empty slot in the emptier of both buckets.
    #[inline]
    fn room(&self, pair: Pair) -> Option<At> {
        let (first, second) = (self.empty & ((1 << BUCKET_SLOTS) - 1), self.empty >> BUCKET_SLOTS);
        let (bucket, empty) = if second.count_ones() > first.count_ones() {
            (pair.second, second)
        } else {
            (pair.first, first)
        };
        (empty != 0).then(|| At { bucket, slot: empty.trailing_zeros() as u8 })
    }
}

/// A breadth-first search from two full buckets for one with an empty slot. Each bucket is visited
/// once, so the path found moves no entry twice.
struct Search {
    buckets: [u32; SEARCH],
    /// For each bucket, the index of the bucket it was reached from, and the slot whose entry can
    /// move.
    reached_from: [(u16, u8); SEARCH],
    len: usize,
}

/// Marks the two buckets that searches start from.
const START: u16 = u16::MAX;

impl Search {
    fn new(pair: Pair) -> Search {
        let mut search = Search { buckets: [0; SEARCH], reached_from: [(0, 0); SEARCH], len: 0 };
        for bucket in pair.buckets() {
            search.visit(bucket, START, 0);
        }
        search
    }

    fn visit(&mut self, bucket: u32, from: u16, slot: u8) {
        self.buckets[self.len] = bucket;
        self.reached_from[self.len] = (from, slot);
        self.len += 1;
    }

    /// Visits up to `limit` buckets; returns an empty slot of the last one visited.
    fn run(&mut self, shard: &Locked<'_>, limit: usize) -> Option<At> {
        let buckets = shard.shard.buckets.len() as u32;
        let mut next = 0;
        while next < self.len {
            let bucket = self.buckets[next];
            for slot in 0..BUCKET_SLOTS as u8 {
                let entry = shard.load(At { bucket, slot });
                let other = alternate(buckets, bucket, slot::tag(entry));
                if self.buckets[..self.len].contains(&other) {
                    continue;
                }
                if self.len == limit {
                    return None;
                }
                self.visit(other, next as u16, slot);
                if let Some(empty) = shard.empty_in(other) {
                    return Some(empty);
                }
            }
            next += 1;
        }
        None
    }

    /// Moves entries along the path to `empty`, in the last bucket visited; returns the slot that
    /// becomes free in a start bucket.
    fn walk_back(&self, shard: &Locked<'_>, mut empty: At) -> At {
        let (mut from, mut slot) = self.reached_from[self.len - 1];
        while from != START {
            let source = At { bucket: self.buckets[usize::from(from)], slot };
            shard.relocate(source, empty);
            empty = source;
            (from, slot) = self.reached_from[usize::from(from)];
        }
        empty
    }
}
