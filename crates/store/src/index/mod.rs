//! The in-memory index: maps a key's hash to the records that may hold its object, in 8 bytes per
//! object.
//!
//! Owns all slots. The index is a partial-key bucketed cuckoo hash table. It holds no keys, only a
//! tag of the key's hash (15 bits, plus the location bits that the volumes do not use) next to the
//! record's location, its length class and a use count ([`SlotFields`]). An entry lies in one of
//! two buckets, chosen by hash and tag; a bucket has eight slots and is one cache line. The table
//! is split into shards of at most 65,536 slots, each with a lock for its writers. Everything is
//! derived from a 64-bit hash of the key, which must be good in all its bits.
//!
//! **False candidates.** A lookup returns every entry whose tag and buckets match, so the caller
//! must compare the key (or the whole hash) stored with the record. A lookup meets at most sixteen
//! slots of other keys. On volumes of more than 8 TiB in all, each matches with probability 1 in
//! 32,767: a lookup returns a false candidate with probability `2 * 8 * fill / 32767`, at most 1 in
//! 2,047 for a full index, 1 in 2,275 at 90 %. Each halving of the volumes' size halves this: 1 TiB
//! makes it 1 in 32,752, 64 GiB 1 in 524,032.
//!
//! **Versions.** Entries of one key differ only in their location, and the index does not know
//! which is newer. Where an entry may be dropped, the caller passes `ring_age`: how long ago the
//! record at a location was written; greater is older. Invariants:
//! - No two entries have the same tag, buckets and location.
//! - At most three entries have the same tag and buckets.
//! - When the index drops an entry on its own, or drops several at once, readers never find an
//!   older entry with the same tag and buckets without the newer one. (Entries that the caller
//!   removes by location, with [`Index::remove_at`] or [`Index::drop_at`], are the caller's
//!   responsibility.)
//!
//! **Threads.** All methods take `&self` and may be called from any thread. Lookups and
//! [`Index::bump_freq`] are lock-free. A lookup finds every entry that is in the index throughout
//! the lookup, also while the entry moves to its other bucket, and also when a newer version is
//! inserted and then the older one removed. See `shard.rs` for the argument, and `loom_tests.rs`
//! for model checks of small cases, with the command that runs them.
//! All other methods hold the shard's lock for well under a microsecond (a few when the index is
//! full), maintenance for tens of microseconds. Closures passed to the index run under that lock:
//! they must not call the index, and should be quick.
//!
//! The memory is reserved as zeros; it is occupied as slots are first used.

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
pub use slot::{FREQ_MAX, LengthClass, Location, SlotFields, UNIT_BYTES};

use census::Census;
use geometry::{Geometry, Pair};
use shard::{Locked, Shard, ShardHead};
use slot::KeyBits;
use table::Table;

/// The index of a store. See the [module](self) for its guarantees.
pub struct Index {
    table: Table,
    heads: Box<[ShardHead]>,
    geometry: Geometry,
    census: Census,
}

/// An entry that a lookup found; it may belong to another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// Where the record starts.
    pub location: Location,
    /// The record's length, rounded up.
    pub length_class: LengthClass,
    /// The record's use count, 0 to [`FREQ_MAX`].
    pub freq: u8,
}

/// The result of a lookup: at most sixteen entries in no particular order, rarely more than one.
#[derive(Debug, Clone, Copy)]
pub struct Candidates {
    slots: Few<u64>,
}

/// An entry that the index dropped to insert another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Evicted {
    /// Where the entry's record starts.
    pub location: Location,
    /// Why the entry was dropped.
    pub reason: EvictionReason,
}

/// Why the index dropped an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum EvictionReason {
    /// No empty slot was within reach.
    #[default]
    IndexFull,
    /// Three other entries have the same tag and buckets.
    TagLimit,
}

/// The result of an insertion.
#[derive(Debug, Clone, Copy, Default)]
#[must_use = "evicted entries must be accounted for"]
pub struct Inserted {
    /// Entries dropped by the insertion, usually none. Contains the inserted entry itself if
    /// keeping it would have dropped a newer one with the same tag: it came out of order and is not
    /// in the index.
    pub evicted: Few<Evicted>,
}

/// The locations of removed entries.
pub type Removed = Few<Location>;

/// The result of loading a shard's image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Entries put in the index.
    pub loaded: u64,
    /// Entries dropped to make room for the loaded ones: zero unless the shard had entries before.
    pub evicted: u64,
}

impl Index {
    /// An empty index with room for `slots` entries, rounded up a little.
    ///
    /// # Panics
    /// When the system has no memory for that many.
    pub fn new(slots: u64) -> Index {
        Index::try_new(slots).expect("no memory for the index")
    }

    /// As [`Index::new`], or `None` if the system has no memory for that many.
    pub fn try_new(slots: u64) -> Option<Index> {
        let geometry = Geometry::for_slots(slots);
        let buckets = geometry.shards.checked_mul(geometry.buckets as usize)?;
        // The largest allocation first: if it succeeds, the others will too.
        let table = Table::new(buckets)?;
        let mut heads = Vec::new();
        heads.try_reserve_exact(geometry.shards).ok()?;
        heads.extend((0..geometry.shards).map(|_| ShardHead::new()));
        Some(Index { table, heads: heads.into(), geometry, census: Census::default() })
    }

    /// The same empty index, which also counts the units of its entries in each segment: see
    /// [`Index::units_in`].
    #[must_use]
    pub fn counting(mut self, segments: u32, segment_units: u64) -> Index {
        self.census = Census::new(segments, segment_units);
        self
    }

    /// The same empty index for a store whose locations are all below `units`: the free location
    /// bits extend the tags.
    #[must_use]
    pub fn with_locations_below(mut self, units: u64) -> Index {
        self.geometry.key_bits = KeyBits::for_locations_below(units);
        self
    }

    /// Number of location bits in use, at least one: the bits above them in an image hold bits of
    /// the key's hash.
    pub fn location_bits(&self) -> u8 {
        self.geometry.key_bits.location_bits()
    }

    /// The total length of the entries in a segment, in 64-byte units, by their length classes.
    pub fn units_in(&self, segment: u32) -> u64 {
        self.census.units(segment)
    }

    /// The number of slots that an index made for `slots` entries has.
    pub fn slots_for(slots: u64) -> u64 {
        Geometry::for_slots(slots).slots()
    }

    /// The number of slots.
    pub fn slots(&self) -> u64 {
        self.geometry.slots()
    }

    /// The number of entries. Visits every shard: a microsecond per hundred million slots.
    pub fn len(&self) -> u64 {
        self.heads.iter().map(ShardHead::len).sum()
    }

    /// Whether the index has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory that the index takes once every slot has been used.
    pub fn memory_bytes(&self) -> u64 {
        let heads = size_of_val(&*self.heads) as u64;
        self.table.memory_bytes() + heads + self.census.memory_bytes() + size_of::<Index>() as u64
    }

    /// The entries that may be the key's: all with the hash's tag and buckets. Takes no lock.
    #[inline]
    pub fn candidates(&self, hash: u64) -> Candidates {
        let (shard, pair) = self.locate(hash);
        shard.candidates(pair)
    }

    /// Whether [`Index::candidates`] would find any entry. Takes no lock, and less time where there
    /// is none.
    #[inline]
    pub fn has_any(&self, hash: u64) -> bool {
        let (shard, pair) = self.locate(hash);
        shard.has_any(pair)
    }

    /// Inserts an entry; always succeeds, evicting others if need be. An entry with the same tag,
    /// buckets and location is replaced. Up to three entries with the same tag are kept; beyond
    /// that the oldest is dropped.
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

    /// Removes exactly this entry; returns its freq, or `None` if it was not there.
    pub fn remove_at(&self, hash: u64, location: Location) -> Option<u8> {
        let (shard, pair) = self.locked(hash);
        shard.search(pair, location).map(|at| slot::freq(shard.clear(at)))
    }

    /// As [`Index::remove_at`], for an entry whose record stays on disk: see
    /// [`Index::has_dropped`].
    pub fn drop_at(&self, hash: u64, location: Location) -> Option<u8> {
        let (shard, pair) = self.locked(hash);
        let at = shard.search(pair, location)?;
        shard.note_dropped(pair);
        Some(slot::freq(shard.clear(at)))
    }

    /// True if recovery may find a record of this key that the index has dropped: by
    /// [`Index::insert`] for lack of room, or by [`Index::drop_at`], [`Index::drop_where`] or
    /// [`Index::remove_all`]. Ask after looking at the candidates. False positives are rare. Takes
    /// no lock.
    pub fn has_dropped(&self, hash: u64) -> bool {
        let (shard, pair) = self.locate(hash);
        shard.head.dropped.is_set(pair)
    }

    /// Makes [`Index::has_dropped`] true for this key, for when recovery may find a record of it
    /// that never had an entry.
    pub fn note_dropped(&self, hash: u64) {
        let (shard, pair) = self.locked(hash);
        shard.note_dropped(pair);
    }

    /// Makes [`Index::has_dropped`] true for every key, for when recovery could not read
    /// everything.
    pub fn drop_unknown(&self) {
        (0..self.shard_count()).for_each(|n| self.shard(n).lock().shard.head.dropped.set_all());
    }

    /// A checkpoint begins: entries dropped before will not be in it. Call before its first
    /// sequence number is decided.
    pub fn checkpoint_begins(&self) {
        (0..self.shard_count()).for_each(|n| self.shard(n).lock().shard.head.dropped.rotate());
    }

    /// True if the checkpoint last begun lacks entries that an older one may have, and that nothing
    /// else says to be dead: what was evicted for want of room, and after [`Index::drop_unknown`].
    pub fn checkpoint_lacks(&self) -> bool {
        self.heads.iter().any(|head| head.dropped.has_lost())
    }

    /// The checkpoint last begun is complete: recovery will not find entries dropped before it
    /// began, unless it has to go by the one before. With the next it will not find them at all.
    /// Neither will it if this one lacked something ([`Index::checkpoint_lacks`]): then the caller
    /// has seen to it that the one before is not believed any more.
    pub fn checkpoint_done(&self) {
        let is_older_believed = !self.checkpoint_lacks();
        self.heads.iter().for_each(|head| head.dropped.clear_previous(is_older_believed));
    }

    /// Removes all entries that [`Index::candidates`] would find: the key's, and rarely another's.
    pub fn remove_all(&self, hash: u64, ring_age: impl Fn(Location) -> u64) -> Removed {
        let (shard, pair) = self.locked(hash);
        shard.drop_oldest_first(pair, &ring_age, |_| true)
    }

    /// Removes the entries that [`Index::candidates`] would find and that are older than the record
    /// at `keep`.
    pub fn remove_older(
        &self,
        hash: u64,
        keep: Location,
        ring_age: impl Fn(Location) -> u64,
    ) -> Removed {
        let (shard, pair) = self.locked(hash);
        shard.drop_older(pair, ring_age(keep), &ring_age)
    }

    /// Raises an entry's freq by `by`, to [`FREQ_MAX`] at most; returns the new value. Takes no
    /// lock, and does not write if the freq is at its maximum.
    pub fn bump_freq(&self, hash: u64, location: Location, by: u8) -> Option<u8> {
        let (shard, pair) = self.locate(hash);
        shard.bump_freq(pair, location, by)
    }

    /// An entry's freq. Takes no lock.
    pub fn freq(&self, hash: u64, location: Location) -> Option<u8> {
        let (shard, pair) = self.locate(hash);
        shard.entry(pair, location).map(slot::freq)
    }

    /// Whether there is an entry of this hash and location. Takes no lock.
    pub fn contains_at(&self, hash: u64, location: Location) -> bool {
        let (shard, pair) = self.locate(hash);
        shard.entry(pair, location).is_some()
    }

    /// The number of shards.
    pub fn shard_count(&self) -> usize {
        self.geometry.shards
    }

    /// Slots in each shard; a shard's image has eight bytes for each.
    pub fn shard_slots(&self) -> u64 {
        self.geometry.shard_slots()
    }

    /// Writes an image of a shard to `image`: its slots as little-endian words.
    ///
    /// # Panics
    /// When there is no such shard, or `image` has the wrong length.
    pub fn copy_shard(&self, shard: usize, image: &mut [u8]) {
        self.shard(shard).lock().copy_to(image);
    }

    /// Adds the entries of a shard's image that `keep` accepts. The shard may have entries already.
    /// The image must come from [`Index::copy_shard`] of an index with as many slots: an image of
    /// another length is ignored, and the caller must detect damage.
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

    /// As [`Index::drop_at`] for all entries of a shard whose locations are `gone`, whatever their
    /// hashes; drops what [`Index::candidates`] would find older beside them, too. Returns how many
    /// there were, but for those that went as older ones. A pass over the whole shard.
    ///
    /// # Panics
    /// When there is no such shard.
    pub fn drop_where(
        &self,
        shard: usize,
        gone: impl Fn(Location) -> bool,
        ring_age: impl Fn(Location) -> u64,
    ) -> u64 {
        self.shard(shard).lock().drop_where(gone, &ring_age)
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

    /// The number of candidates.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are no candidates.
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
