//! Derives shard, bucket pair and key bits from a hash. Plain values, no threads.
//!
//! Invariants: the shard depends on the high 32 bits of the hash, the bucket on bits 16 to 31, the
//! tag on the low 16, so that they are independent. The two buckets of a tag are each other's
//! alternate ([`alternate`] is an involution), so an entry can be moved knowing only its bucket and
//! tag. A shard has an even number of buckets, where no bucket is its own alternate, or a single
//! one.
//!
//! Index checkpoints store entries by bucket and tag: changing their derivation is a format change.

use super::slot::{self, KeyBits, TAGS};
use super::table::BUCKET_SLOTS;

/// The most slots in a shard.
pub(super) const SHARD_SLOTS: u64 = 1 << 16;

/// The buckets in which an entry may be, and its [`KeyBits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Pair {
    pub(super) first: u32,
    pub(super) second: u32,
    pub(super) key: u64,
}

impl Pair {
    /// The pair of an entry with these key bits, found in this bucket.
    pub(super) fn of_entry(buckets: u32, bucket: u32, key: u64) -> Pair {
        Pair { first: bucket, second: alternate(buckets, bucket, slot::tag(key)), key }
    }

    pub(super) fn tag(self) -> u16 {
        slot::tag(self.key)
    }

    /// The buckets to search: one or two.
    #[inline]
    pub(super) fn buckets(self) -> impl Iterator<Item = u32> {
        let second = (self.second != self.first).then_some(self.second);
        std::iter::once(self.first).chain(second)
    }
}

/// The shape of an index.
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    /// Shards, all of the same size.
    pub(super) shards: usize,
    /// Buckets in each shard.
    pub(super) buckets: u32,
    /// The bits that tell keys apart in a slot.
    pub(super) key_bits: KeyBits,
}

impl Geometry {
    /// The shape with room for at least `slots` entries.
    pub(super) fn for_slots(slots: u64) -> Geometry {
        let slots = slots.max(1);
        let shards = slots.div_ceil(SHARD_SLOTS);
        let buckets = slots.div_ceil(shards).div_ceil(BUCKET_SLOTS as u64);
        let buckets = if buckets == 1 { 1 } else { buckets.next_multiple_of(2) };
        // At most 2^48 shards; where `usize` is too small for that, there is no memory for them
        // either.
        let shards = usize::try_from(shards).unwrap_or(usize::MAX);
        let key_bits = KeyBits::for_locations_below(u64::MAX);
        Geometry { shards, buckets: buckets as u32, key_bits }
    }

    /// Slots in all shards.
    pub(super) fn slots(self) -> u64 {
        (self.shards as u64).saturating_mul(self.shard_slots())
    }

    /// Slots in one shard.
    pub(super) fn shard_slots(self) -> u64 {
        u64::from(self.buckets) * BUCKET_SLOTS as u64
    }

    /// The shard and the bucket pair of a hash.
    #[inline]
    pub(super) fn locate(self, hash: u64) -> (usize, Pair) {
        let shard = (u128::from(hash) * self.shards as u128) >> 64;
        let bucket = ((hash & 0xffff_ffff) * u64::from(self.buckets)) >> 32;
        let tag = 1 + (((hash & 0xffff) * TAGS) >> 16) as u16;
        let key = self.key_bits.of_hash(tag, hash);
        (shard as usize, Pair::of_entry(self.buckets, bucket as u32, key))
    }
}

/// The other bucket in which an entry with this tag may be: `h(tag) - bucket` modulo the number of
/// buckets.
#[inline]
pub(super) fn alternate(buckets: u32, bucket: u32, tag: u16) -> u32 {
    let sum = tag_hash(buckets, tag);
    if sum >= bucket { sum - bucket } else { sum + buckets - bucket }
}

/// A number below `buckets`; odd when `buckets` is even, so that it is never twice a bucket number.
#[inline]
fn tag_hash(buckets: u32, tag: u16) -> u32 {
    let mut mixed = u32::from(tag).wrapping_mul(0x9e37_79b1);
    mixed = (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca77);
    mixed ^= mixed >> 13;
    let below = ((u64::from(mixed) * u64::from(buckets)) >> 32) as u32;
    below | u32::from(buckets.is_multiple_of(2))
}
