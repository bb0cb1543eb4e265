//! The in-memory index: which record may hold a key's object, in 8 bytes per object.
//!
//! Owns all slots. A partial-key bucketed cuckoo hash table: no keys in memory, only a tag of the key's
//! hash, of 15 bits and those that the volumes' locations leave free of a slot, next to the record's
//! location, its length class and a use count ([`SlotFields`]). An entry lies in one of two buckets of eight slots (a cache line each) that
//! its hash and tag decide; the table is split in shards of at most 65,536 slots, each with a lock
//! for its writers. Everything is derived from a 64-bit hash of the key, which must be good in
//! all its bits.
//!
//! **False candidates.** The index answers with every entry whose tag and buckets match, so the
//! caller must compare the key (or the whole hash) stored with the record. A lookup meets at most
//! sixteen slots of other keys, each of which matches one time in 32,767 on volumes of more than 8 TiB together:
//! there it is given a false candidate with probability `2 * 8 * fill / 32767`, at most 1 in 2,047 for
//! a full index, 1 in 2,275 at 90 %. Volumes of half that size halve this, and so on: 1 TiB makes it
//! 1 in 32,752, 64 GiB 1 in 524,032.
//!
//! **Versions.** Entries of one key are told apart by location only, and the index does not know
//! which is newer: the caller does, and says so with `ring_age` (how long ago the record at a
//! location was written; greater is older) wherever something may be dropped. Invariants:
//! - No two entries have the same tag, buckets and location.
//! - At most three entries have the same tag and buckets.
//! - When the index drops an entry of its own accord or drops several at once, readers never find
//!   an older entry with the same tag and buckets without the newer one. (What a caller removes by
//!   location, with [`Index::remove_at`] or [`Index::retain`], is its own affair.)
//!
//! **Threads.** Everything takes `&self` and may be called from any thread. Lookups and
//! [`Index::bump_freq`] take no lock and wait for nobody: an entry that is in the index throughout
//! a lookup is found by it, also while it is moved to its other bucket, and also when a newer
//! version is inserted and then the older removed. See `shard.rs` for why, and `loom_tests.rs`
//! for model checks of small cases:
//! `RUSTFLAGS="--cfg loom" cargo test -p damelo --release loom_`. All else takes the shard's lock
//! for well under a microsecond (a few when full), maintenance for tens. Closures given to the
//! index run under that lock: they must not call the index, and should be quick.
//!
//! Memory is zeroed when reserved and only taken as slots are first used.

mod census;
mod dropped;
mod few;
mod geometry;
#[cfg(all(test, loom))]
mod loom_tests;
mod maintain;
mod place;
mod shard;
mod slot;
#[cfg(all(test, not(loom)))]
mod stress_tests;
mod sync;
mod table;
#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;

pub use few::Few;
pub use slot::{LengthClass, Location, MAX_FREQ, SlotFields, UNIT_BYTES};

use census::Census;
use geometry::{Geometry, Pair};
use shard::{Locked, Shard, ShardHead};
use slot::KeyBits;
use table::Table;

/// The index of a store. See the [module](self) for what it promises.
pub struct Index {
    table: Table,
    heads: Box<[ShardHead]>,
    geometry: Geometry,
    census: Census,
}

/// An entry that a lookup found: perhaps the one asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// Where the record lies.
    pub location: Location,
    /// How long it is, about.
    pub length_class: LengthClass,
    /// How often it was used, 0 to [`MAX_FREQ`].
    pub freq: u8,
}

/// What a lookup found: at most sixteen entries in no order, and rarely more than one.
#[derive(Debug, Clone, Copy)]
pub struct Candidates {
    slots: Few<u64>,
}

/// An entry that the index dropped to insert another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Evicted {
    /// Where its record lies.
    pub location: Location,
    /// Why it was dropped.
    pub reason: EvictionReason,
}

/// Why the index dropped an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum EvictionReason {
    /// There was no empty slot within reach.
    #[default]
    IndexFull,
    /// Three others have the same tag and buckets.
    TagLimit,
}

/// What became of an insertion.
#[derive(Debug, Clone, Copy, Default)]
#[must_use = "evicted entries must be accounted for"]
pub struct Inserted {
    /// What was dropped for it, mostly nothing. Contains the inserted entry itself if keeping it
    /// would have meant to drop a newer one with the same tag: it came out of order and is not in
    /// the index.
    pub evicted: Few<Evicted>,
}

/// What was removed.
pub type Removed = Few<Location>;

/// What became of a shard's image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Entries put in the index.
    pub loaded: u64,
    /// Entries dropped to make room for them: none unless the shard had entries before.
    pub evicted: u64,
}

impl Index {
    /// An empty index with room for `slots` entries, rounded up a little.
    ///
    /// # Panics
    /// When there is no memory for that many.
    pub fn new(slots: u64) -> Index {
        Index::try_new(slots).expect("no memory for the index")
    }

    /// The same, or nothing if there is no memory for that many.
    pub fn try_new(slots: u64) -> Option<Index> {
        let geometry = Geometry::for_slots(slots);
        let buckets = geometry.shards.checked_mul(geometry.buckets as usize)?;
        // The larger one first: if it is to be had, so are the others.
        let table = Table::new(buckets)?;
        let mut heads = Vec::new();
        heads.try_reserve_exact(geometry.shards).ok()?;
        heads.extend((0..geometry.shards).map(|_| ShardHead::new()));
        Some(Index { table, heads: heads.into(), geometry, census: Census::default() })
    }

    /// The same empty index, which counts what it knows of each segment of so many units: see
    /// [`Index::units_in`].
    #[must_use]
    pub fn counting(mut self, segments: u32, segment_units: u64) -> Index {
        self.census = Census::new(segments, segment_units);
        self
    }

    /// The same empty index for records below that location: what those leave of a slot tells keys apart.
    #[must_use]
    pub fn with_locations_below(mut self, units: u64) -> Index {
        self.geometry.key_bits = KeyBits::for_locations_below(units);
        self
    }

    /// How many bits of a location are not always zero, at least one: an image holds bits of the key's hash
    /// above them.
    pub fn location_bits(&self) -> u8 {
        self.geometry.key_bits.location_bits()
    }

    /// What the entries in a segment take together, in 64-byte units and as their length classes say.
    pub fn units_in(&self, segment: u32) -> u64 {
        self.census.units(segment)
    }

    /// How many entries an index has room for that was made for that many.
    pub fn slots_for(slots: u64) -> u64 {
        Geometry::for_slots(slots).slots()
    }

    /// How many entries there is room for.
    pub fn slots(&self) -> u64 {
        self.geometry.slots()
    }

    /// How many entries there are. Looks at every shard: a microsecond per hundred million slots.
    pub fn len(&self) -> u64 {
        self.heads.iter().map(ShardHead::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory all of this takes once every slot was used.
    pub fn memory_bytes(&self) -> u64 {
        let heads = size_of_val(&*self.heads) as u64;
        self.table.memory_bytes() + heads + self.census.memory_bytes() + size_of::<Index>() as u64
    }

    /// The entries that may be the key's: all with the hash's tag and buckets. No lock.
    #[inline]
    pub fn candidates(&self, hash: u64) -> Candidates {
        let (shard, pair) = self.locate(hash);
        shard.candidates(pair)
    }

    /// Inserts an entry; always succeeds, evicting others if need be. An entry with the same tag,
    /// buckets and location is replaced. Others with the same tag stay, up to three in all: the
    /// oldest beyond are dropped.
    pub fn insert(
        &self,
        hash: u64,
        location: Location,
        length_class: LengthClass,
        freq: u8,
        ring_age: impl Fn(Location) -> u64,
    ) -> Inserted {
        let (shard, pair) = self.locked(hash);
        let fields = SlotFields { tag: pair.tag(), location, length_class, freq };
        let entry = shard.shard.key_bits.pack(fields, pair.key);
        shard.insert(pair, entry, &ring_age)
    }

    /// Removes exactly that entry; returns its freq, or nothing if it was not there.
    pub fn remove_at(&self, hash: u64, location: Location) -> Option<u8> {
        let (shard, pair) = self.locked(hash);
        shard.search(pair, location).map(|at| slot::freq(shard.clear(at)))
    }

    /// As [`Index::remove_at`], for an entry whose record stays on disk: see [`Index::has_dropped`].
    pub fn drop_at(&self, hash: u64, location: Location) -> Option<u8> {
        let (shard, pair) = self.locked(hash);
        let at = shard.search(pair, location)?;
        shard.note_dropped(pair);
        Some(slot::freq(shard.clear(at)))
    }

    /// True if a recovery may find a record of this key that the index has dropped: by
    /// [`Index::insert`] for want of room, or by [`Index::drop_at`] or [`Index::remove_all`]. To be
    /// asked after a look at the candidates. Rarely true without reason. No lock.
    pub fn has_dropped(&self, hash: u64) -> bool {
        let (shard, pair) = self.locate(hash);
        shard.head.dropped.is_set(pair)
    }

    /// Takes any key for one that the index may have dropped: a recovery could not read all that there is.
    pub fn drop_unknown(&self) {
        (0..self.shard_count()).for_each(|n| self.shard(n).lock().shard.head.dropped.set_all());
    }

    /// A checkpoint begins: what was dropped before will not be in it. To be called before its
    /// first sequence number is decided.
    pub fn checkpoint_begins(&self) {
        (0..self.shard_count()).for_each(|n| self.shard(n).lock().shard.head.dropped.rotate());
    }

    /// The checkpoint last begun is complete: recovery will not find what was dropped before it.
    pub fn checkpoint_done(&self) {
        self.heads.iter().for_each(|head| head.dropped.clear_previous());
    }

    /// Removes all that [`Index::candidates`] would find: the key's entries and, rarely, others.
    pub fn remove_all(&self, hash: u64, ring_age: impl Fn(Location) -> u64) -> Removed {
        let (shard, pair) = self.locked(hash);
        shard.drop_oldest_first(pair, &ring_age, |_| true)
    }

    /// Removes what [`Index::candidates`] would find and is older than the record at `keep`.
    pub fn remove_older(
        &self,
        hash: u64,
        keep: Location,
        ring_age: impl Fn(Location) -> u64,
    ) -> Removed {
        let (shard, pair) = self.locked(hash);
        shard.drop_older(pair, ring_age(keep), &ring_age)
    }

    /// Lets an entry point to another location, keeping its freq. False if it is not there, or if
    /// the new location has an entry already (then the old one is removed).
    pub fn replace_location(
        &self,
        hash: u64,
        old: Location,
        new: Location,
        length_class: LengthClass,
    ) -> bool {
        let (shard, pair) = self.locked(hash);
        let Some(at) = shard.search(pair, old) else { return false };
        if old != new && shard.search(pair, new).is_some() {
            shard.clear(at);
            return false;
        }
        let key_bits = shard.shard.key_bits;
        shard.update(at, |slot| {
            let moved = SlotFields { location: new, length_class, ..slot::fields(slot) };
            key_bits.pack(moved, pair.key)
        });
        true
    }

    /// Raises an entry's freq by that much, to [`MAX_FREQ`] at most; returns what it is then. No
    /// lock, and no write if it is at the most already.
    pub fn bump_freq(&self, hash: u64, location: Location, by: u8) -> Option<u8> {
        let (shard, pair) = self.locate(hash);
        shard.bump_freq(pair, location, by)
    }

    /// Sets an entry's freq; false if it is not there.
    pub fn set_freq(&self, hash: u64, location: Location, freq: u8) -> bool {
        let (shard, pair) = self.locked(hash);
        let Some(at) = shard.search(pair, location) else { return false };
        shard.update(at, |slot| slot::with_freq(slot, freq));
        true
    }

    /// An entry's freq. No lock.
    pub fn freq(&self, hash: u64, location: Location) -> Option<u8> {
        let (shard, pair) = self.locate(hash);
        shard.entry(pair, location).map(slot::freq)
    }

    /// Whether there is an entry of this hash and location. No lock.
    pub fn contains_at(&self, hash: u64, location: Location) -> bool {
        let (shard, pair) = self.locate(hash);
        shard.entry(pair, location).is_some()
    }

    /// How many shards there are.
    pub fn shard_count(&self) -> usize {
        self.geometry.shards
    }

    /// Slots in each shard; its image has eight bytes for each.
    pub fn shard_slots(&self) -> u64 {
        self.geometry.shard_slots()
    }

    /// Writes an image of a shard to `image`: its slots as little-endian words.
    ///
    /// # Panics
    /// When there is no such shard, or `image` has another length.
    pub fn copy_shard(&self, shard: usize, image: &mut [u8]) {
        self.shard(shard).lock().copy_to(image);
    }

    /// Adds to a shard what its image holds and `keep` wants. The shard may have entries already.
    /// The image must be as [`Index::copy_shard`] made it, in an index of as many slots: one of
    /// another length is ignored, damage is for the caller to detect.
    ///
    /// # Panics
    /// When there is no such shard.
    pub fn load_shard(
        &self,
        shard: usize,
        image: &[u8],
        keep: impl Fn(Location) -> bool,
        ring_age: impl Fn(Location) -> u64,
    ) -> Loaded {
        self.shard(shard).lock().load_image(image, keep, &ring_age)
    }

    /// Drops the entries of a shard whose location `keep` does not want; returns how many.
    ///
    /// Where a key has several of them, readers may find an older one after the newer is gone, so
    /// these should be locations whose records readers refuse by then.
    ///
    /// # Panics
    /// When there is no such shard.
    pub fn retain(&self, shard: usize, keep: impl Fn(Location) -> bool) -> u64 {
        self.shard(shard).lock().retain(keep)
    }

    #[inline]
    fn shard(&self, shard: usize) -> Shard<'_> {
        let buckets = self.geometry.buckets as usize;
        Shard {
            head: &self.heads[shard],
            buckets: &self.table.buckets()[shard * buckets..][..buckets],
            census: &self.census,
            key_bits: self.geometry.key_bits,
        }
    }

    #[inline]
    fn locate(&self, hash: u64) -> (Shard<'_>, Pair) {
        let (shard, pair) = self.geometry.locate(hash);
        (self.shard(shard), pair)
    }

    #[inline]
    fn locked(&self, hash: u64) -> (Locked<'_>, Pair) {
        let (shard, pair) = self.locate(hash);
        (shard.lock(), pair)
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index")
            .field("slots", &self.slots())
            .field("len", &self.len())
            .field("shards", &self.shard_count())
            .finish_non_exhaustive()
    }
}

impl Inserted {
    fn evict(&mut self, location: Location, reason: EvictionReason) {
        self.evicted.push(Evicted { location, reason });
    }
}

impl Candidates {
    fn new() -> Candidates {
        Candidates { slots: Few::new() }
    }

    #[inline]
    fn push(&mut self, slot: u64) {
        self.slots.push(slot);
    }

    /// Drops the second of two slots that hold one entry, seen in the middle of a move.
    #[inline]
    fn drop_copies(&mut self) {
        if self.slots.len() < 2 {
            return;
        }
        let mut kept = Few::new();
        for &slot in &self.slots {
            if !kept.iter().any(|&other| slot::location(other) == slot::location(slot)) {
                kept.push(slot);
            }
        }
        self.slots = kept;
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The entries.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Candidate> + '_ {
        self.slots.iter().map(|&slot| {
            let fields = slot::fields(slot);
            Candidate {
                location: fields.location,
                length_class: fields.length_class,
                freq: fields.freq,
            }
        })
    }
}
