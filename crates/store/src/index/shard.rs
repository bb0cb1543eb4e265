//! One shard: its slots, its lock, and the counter that makes lock-free reads possible.
//!
//! Threads: any number of readers and writers. A writer holds the shard's lock (a [`Locked`]);
//! readers take none. The argument for correctness:
//!
//! - A slot is one atomic word, so an entry is seen whole or not at all. Slots are written with
//!   release and read with acquire ordering.
//! - Only a holder of the lock fills, moves or empties slots. Without the lock, a slot's freq may
//!   be raised by compare-and-swap, nothing else.
//! - Before a writer makes an entry vanish from a slot (moved, removed or overwritten) it
//!   increments `moves`, and before that it has written the entry's new slot, if any.
//! - A reader reads `moves`, the slots, and `moves` again, and trusts the slots only if the two
//!   values agree. Suppose it missed an entry by reading the new slot too early and the old one too
//!   late. It read the old slot after the writer emptied it, hence after the increment of `moves`,
//!   so its second read of `moves` sees the increment. It read the new slot before the writer
//!   filled it, hence before the increment, so its first read does not. The two values differ.
//!
//! A reader therefore never waits for a suspended writer: it retries only when a writer has made
//! progress. Between the two writes of a move an entry is in two slots; readers drop the copy.

use std::array;
use std::sync::PoisonError;

use super::census::Census;
use super::dropped::Dropped;
use super::geometry::Pair;
use super::slot::{self, EMPTY, KeyBits, Location};
use super::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use super::table::{BUCKET_SLOTS, Bucket};
use super::{Candidates, Few};

/// A shard's state besides its slots. `moves`, which readers poll, has a cache line of its own.
#[repr(align(64))]
pub(super) struct ShardHead {
    moves: Moves,
    lock: Mutex<()>,
    len: AtomicU64,
    pub(super) dropped: Dropped,
}

#[repr(align(64))]
struct Moves(AtomicU64);

impl ShardHead {
    pub(super) fn new() -> ShardHead {
        ShardHead {
            moves: Moves(AtomicU64::new(0)),
            lock: Mutex::new(()),
            len: AtomicU64::new(0),
            dropped: Dropped::new(),
        }
    }

    /// Entries in the shard.
    pub(super) fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }
}

/// The position of a slot in a shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct At {
    pub(super) bucket: u32,
    pub(super) slot: u8,
}

/// A shard, as used without its lock.
#[derive(Clone, Copy)]
pub(super) struct Shard<'a> {
    pub(super) head: &'a ShardHead,
    pub(super) buckets: &'a [Bucket],
    pub(super) census: &'a Census,
    pub(super) key_bits: KeyBits,
}

/// A shard, as used by the holder of its lock.
pub(super) struct Locked<'a> {
    pub(super) shard: Shard<'a>,
    _guard: MutexGuard<'a, ()>,
}

impl<'a> Shard<'a> {
    /// Takes the lock, also after a panic of an earlier holder: each slot is a word that is valid
    /// on its own.
    pub(super) fn lock(self) -> Locked<'a> {
        let guard = self.head.lock.lock().unwrap_or_else(PoisonError::into_inner);
        Locked { shard: self, _guard: guard }
    }

    /// Repeats `read` until no entry vanished from a slot meanwhile.
    #[inline]
    pub(super) fn read_steadily<T>(self, read: impl Fn() -> T) -> T {
        loop {
            let before = self.head.moves.0.load(Ordering::Acquire);
            let seen = read();
            // Relaxed suffices: the slots were read with acquire, so this load cannot move before
            // them.
            if self.head.moves.0.load(Ordering::Relaxed) == before {
                return seen;
            }
            super::sync::spin_loop();
        }
    }

    /// All entries with the pair's key bits.
    #[inline]
    pub(super) fn candidates(self, pair: Pair) -> Candidates {
        let mut found = self.read_steadily(|| self.matches(pair));
        found.drop_copies();
        found
    }

    /// Whether there is any entry with the pair's key bits.
    #[inline]
    pub(super) fn has_any(self, pair: Pair) -> bool {
        // An entry in the middle of a move is seen once or twice, never not at all.
        self.read_steadily(|| {
            self.has_any_in(pair.first, pair.key)
                || (pair.second != pair.first && self.has_any_in(pair.second, pair.key))
        })
    }

    /// As [`Shard::matches_in`], without a branch for each slot.
    #[inline]
    fn has_any_in(self, bucket: u32, key: u64) -> bool {
        let slots = &self.buckets[bucket as usize];
        let matches =
            |slot: &AtomicU64| self.key_bits.match_slot(slot.load(Ordering::Acquire), key);
        slots.iter().fold(false, |any, slot| any | matches(slot))
    }

    #[inline]
    fn matches(self, pair: Pair) -> Candidates {
        let mut found = Candidates::new();
        self.matches_in(pair.first, pair.key, &mut found);
        if pair.second != pair.first {
            self.matches_in(pair.second, pair.key, &mut found);
        }
        found
    }

    /// Compares all slots of a bucket before it branches on any, since the processor cannot predict
    /// which one matches.
    #[inline]
    fn matches_in(self, bucket: u32, key: u64, found: &mut Candidates) {
        let slots = &self.buckets[bucket as usize];
        let seen: [u64; BUCKET_SLOTS] = array::from_fn(|n| slots[n].load(Ordering::Acquire));
        let matching = |n| u32::from(self.key_bits.match_slot(seen[n], key)) << n;
        let mut mask = (0..BUCKET_SLOTS).fold(0, |mask, n| mask | matching(n));
        while mask != 0 {
            found.push(self.key_bits.entry(seen[mask.trailing_zeros() as usize % BUCKET_SLOTS]));
            mask &= mask - 1;
        }
    }

    /// An entry's position and its slot's value. Without the lock the entry may be gone by now.
    fn search(self, pair: Pair, location: Location) -> Option<(At, u64)> {
        for bucket in pair.buckets() {
            for (index, slot) in self.buckets[bucket as usize].iter().enumerate() {
                let slot = slot.load(Ordering::Acquire);
                if self.key_bits.match_slot(slot, pair.key)
                    && self.key_bits.location(slot) == location
                {
                    return Some((At { bucket, slot: index as u8 }, slot));
                }
            }
        }
        None
    }

    /// The value of an entry's slot.
    pub(super) fn entry(self, pair: Pair, location: Location) -> Option<u64> {
        self.read_steadily(|| self.search(pair, location)).map(|(_, slot)| slot)
    }

    /// Raises an entry's freq; returns the new value.
    pub(super) fn bump_freq(self, pair: Pair, location: Location, by: u8) -> Option<u8> {
        loop {
            let (at, slot) = self.read_steadily(|| self.search(pair, location))?;
            if let Some(freq) = raise(self.at(at), slot, by) {
                return Some(freq);
            }
        }
    }

    fn came(self, slot: u64) {
        self.census.came(self.key_bits.entry(slot));
    }

    fn went(self, slot: u64) {
        self.census.went(self.key_bits.entry(slot));
    }

    #[inline]
    pub(super) fn at(self, at: At) -> &'a AtomicU64 {
        &self.buckets[at.bucket as usize][usize::from(at.slot)]
    }
}

/// Raises the freq of the entry that `slot` held as `seen`; `None` if the slot holds another entry
/// by now.
fn raise(slot: &AtomicU64, mut seen: u64, by: u8) -> Option<u8> {
    loop {
        let raised = slot::with_freq(seen, slot::freq(seen).saturating_add(by));
        if raised == seen {
            return Some(slot::freq(seen));
        }
        match slot.compare_exchange(seen, raised, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Some(slot::freq(raised)),
            Err(now) if slot::same_entry(now, seen) => seen = now,
            Err(_) => return None,
        }
    }
}

impl Locked<'_> {
    /// A slot's value. While the lock is held only the freq can change.
    #[inline]
    pub(super) fn load(&self, at: At) -> u64 {
        self.shard.at(at).load(Ordering::Acquire)
    }

    pub(super) fn len(&self) -> u64 {
        self.shard.head.len()
    }

    /// The location of the record of a slot's entry.
    pub(super) fn location(&self, slot: u64) -> Location {
        self.shard.key_bits.location(slot)
    }

    fn set_len(&self, len: u64) {
        self.shard.head.len.store(len, Ordering::Relaxed);
    }

    /// Fills an empty slot.
    pub(super) fn fill(&self, at: At, entry: u64) {
        debug_assert_eq!(self.load(at), EMPTY);
        self.shard.at(at).store(entry, Ordering::Release);
        self.shard.came(entry);
        self.set_len(self.len() + 1);
    }

    /// Empties a slot in use; returns its previous value.
    pub(super) fn clear(&self, at: At) -> u64 {
        self.count_move();
        self.set_len(self.len() - 1);
        let held = self.shard.at(at).swap(EMPTY, Ordering::AcqRel);
        self.shard.went(held);
        held
    }

    /// Records that an entry of this family is about to be dropped although its record stays on
    /// disk.
    pub(super) fn note_dropped(&self, pair: Pair) {
        self.shard.head.dropped.set(pair);
    }

    /// The same of an entry that goes for want of room, which the journal does not tell.
    pub(super) fn note_lost(&self, pair: Pair) {
        self.shard.head.dropped.set_lost(pair);
    }

    /// Replaces a slot's entry.
    pub(super) fn overwrite(&self, at: At, entry: u64) {
        self.count_move();
        let held = self.shard.at(at).swap(entry, Ordering::AcqRel);
        self.shard.went(held);
        self.shard.came(entry);
    }

    /// Moves an entry to an empty slot of its other bucket.
    pub(super) fn relocate(&self, from: At, to: At) {
        debug_assert_eq!(self.load(to), EMPTY);
        let entry = self.load(from);
        self.shard.at(to).store(entry, Ordering::Release);
        self.count_move();
        let last = self.shard.at(from).swap(EMPTY, Ordering::AcqRel);
        let gained = slot::freq(last).saturating_sub(slot::freq(entry));
        if gained > 0 {
            // The freq was raised in the old slot after the copy.
            raise(self.shard.at(to), entry, gained);
        }
    }

    /// Tells readers that an entry is about to vanish from a slot. See the head of this file.
    fn count_move(&self) {
        let moves = &self.shard.head.moves.0;
        moves.store(moves.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    pub(super) fn search(&self, pair: Pair, location: Location) -> Option<At> {
        self.shard.search(pair, location).map(|(at, _)| at)
    }

    /// The positions of the entries with the pair's key bits.
    #[inline]
    pub(super) fn family(&self, pair: Pair) -> Few<At> {
        let mut found = Few::new();
        for at in self.places(pair) {
            if self.shard.key_bits.match_slot(self.load(at), pair.key) {
                found.push(at);
            }
        }
        found
    }

    /// All slots of a pair.
    #[inline]
    pub(super) fn places(&self, pair: Pair) -> impl Iterator<Item = At> + use<> {
        pair.buckets()
            .flat_map(|bucket| (0..BUCKET_SLOTS as u8).map(move |slot| At { bucket, slot }))
    }

    /// An empty slot of this bucket.
    #[inline]
    pub(super) fn empty_in(&self, bucket: u32) -> Option<At> {
        let slots = &self.shard.buckets[bucket as usize];
        let slot = slots.iter().position(|slot| slot.load(Ordering::Acquire) == EMPTY)?;
        Some(At { bucket, slot: slot as u8 })
    }
}
