//! Dense ids for 64-bit names: the n-th distinct name gets id n.
//!
//! Open addressing in buckets of one cache line: twelve one-byte tags and twelve ids, so a lookup
//! costs one line of the table and one of the names. Names lie once, by id. The number of buckets
//! grows by half, not twofold, and the old ones are freed first (names suffice to place ids again):
//! at most 9.4 bytes a name, with the 8 of the name itself 17.4. A tight table is filled higher and
//! grows by a fifth: at most 15.0 bytes, for twice the time that growing takes. Not for more than
//! 2^32 - 1 names. One thread at a time.

use crate::cpu_prefetch;

/// Ids in a bucket: tags, ids and padding fill 64 bytes.
const BUCKET_SLOTS: usize = 12;
const BUCKETS_MIN: usize = 16;
/// Buckets that are fetched ahead while the table grows.
const AHEAD: usize = 16;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Bucket {
    /// 0 where there is none; the last four are never used.
    tags: [u8; 16],
    ids: [u32; BUCKET_SLOTS],
}

const _: () = assert!(size_of::<Bucket>() == 64);

const EMPTY: Bucket = Bucket { tags: [0; 16], ids: [0; BUCKET_SLOTS] };

/// A name mixed so that every bit of it counts in bucket and tag.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MixedName(u64);

impl MixedName {
    pub(crate) fn bits(self) -> u64 {
        self.0
    }
}

/// Mixes a name. The finalizer of SplitMix64, a bijection: no two names are mixed into one.
#[inline]
pub(crate) fn mix(name: u64) -> MixedName {
    let mut z = name.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    MixedName(z ^ (z >> 31))
}

/// From names to dense ids.
pub(crate) struct IdTable {
    buckets: Vec<Bucket>,
    names: Vec<u64>,
    /// A bucket is left for the next one when full; the table grows when so much of all slots is
    /// taken.
    full_percent: usize,
    /// It grows by one part in so many.
    growth: usize,
}

impl IdTable {
    pub(crate) fn new() -> IdTable {
        let buckets = vec![EMPTY; BUCKETS_MIN];
        IdTable { buckets, names: Vec::new(), full_percent: 85, growth: 2 }
    }

    /// One that takes less memory and a little more time.
    pub(crate) fn tight() -> IdTable {
        IdTable { full_percent: 92, growth: 5, ..IdTable::new() }
    }

    /// Names so far.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// The name behind an id.
    #[cfg(test)]
    pub(crate) fn name(&self, id: u32) -> u64 {
        self.names[id as usize]
    }

    /// Begins to fetch the bucket of a name.
    #[inline]
    pub(crate) fn fetch_bucket(&self, mixed: MixedName) {
        cpu_prefetch::fetch(&self.buckets, self.home(mixed));
    }

    /// Begins to fetch the name that the bucket points at; the bucket should be near already.
    #[inline]
    pub(crate) fn fetch_name(&self, mixed: MixedName) {
        let bucket = &self.buckets[self.home(mixed)];
        let matches = matches(bucket, tag(mixed));
        if matches != 0 {
            cpu_prefetch::fetch(&self.names, bucket.ids[first_slot(matches)] as usize);
        }
    }

    /// Id of a name, new or known; `None` when ids have run out.
    #[inline]
    pub(crate) fn intern(&mut self, name: u64, mixed: MixedName) -> Option<u32> {
        let tag = tag(mixed);
        let mut at = self.home(mixed);
        loop {
            let bucket = &self.buckets[at];
            let mut candidates = matches(bucket, tag);
            while candidates != 0 {
                let id = bucket.ids[first_slot(candidates)];
                if self.names[id as usize] == name {
                    return Some(id);
                }
                candidates &= candidates - 1;
            }
            if matches(bucket, 0) != 0 {
                return self.insert(name, mixed);
            }
            at = self.after(at);
        }
    }

    #[cold]
    fn insert(&mut self, name: u64, mixed: MixedName) -> Option<u32> {
        let id = u32::try_from(self.names.len()).ok().filter(|id| *id != u32::MAX)?;
        if (self.names.len() + 1) * 100 > self.buckets.len() * BUCKET_SLOTS * self.full_percent {
            self.grow();
        }
        self.names.push(name);
        self.place(id, mixed);
        Some(id)
    }

    fn place(&mut self, id: u32, mixed: MixedName) {
        let mut at = self.home(mixed);
        loop {
            let free = matches(&self.buckets[at], 0);
            if free != 0 {
                let slot = first_slot(free);
                let bucket = &mut self.buckets[at];
                bucket.tags[slot] = tag(mixed);
                bucket.ids[slot] = id;
                return;
            }
            at = self.after(at);
        }
    }

    fn grow(&mut self) {
        let buckets = self.buckets.len() + self.buckets.len() / self.growth;
        // The old table goes first: ids can be placed again from the names alone.
        self.buckets = Vec::new();
        self.buckets = vec![EMPTY; buckets];
        for id in 0..self.names.len() {
            if let Some(name) = self.names.get(id + AHEAD) {
                cpu_prefetch::fetch(&self.buckets, self.home(mix(*name)));
            }
            self.place(id as u32, mix(self.names[id]));
        }
    }

    /// Scales the hash to the number of buckets, which is no power of two.
    #[inline]
    fn home(&self, mixed: MixedName) -> usize {
        ((u128::from(mixed.0) * self.buckets.len() as u128) >> 64) as usize
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.buckets.len() { 0 } else { at + 1 }
    }
}

/// The tag takes low bits, the bucket high ones. Never 0, which means empty.
#[inline]
fn tag(mixed: MixedName) -> u8 {
    (mixed.0 as u8).max(1)
}

/// The highest bit of each byte, and all others.
const HIGH_BITS: u128 = 0x8080_8080_8080_8080_8080_8080_8080_8080;
const SLOT_BYTES: u128 = (1 << (8 * BUCKET_SLOTS)) - 1;

/// Which slots have the tag: the highest bit of each one's byte. All are compared at once in one
/// number; no carry crosses a byte, so no slot is reported that does not match.
#[inline]
fn matches(bucket: &Bucket, tag: u8) -> u128 {
    let differs = u128::from_le_bytes(bucket.tags) ^ (u128::from(tag) * (u128::MAX / 255));
    !(((differs & !HIGH_BITS) + !HIGH_BITS) | differs) & HIGH_BITS & SLOT_BYTES
}

/// The first slot of a set of matches that is not empty.
#[inline]
fn first_slot(matches: u128) -> usize {
    (matches.trailing_zeros() / 8) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn intern(table: &mut IdTable, name: u64) -> u32 {
        table.intern(name, mix(name)).expect("ids are left")
    }

    proptest! {
        /// A hash map is the oracle. Small names collide often in the model of the trace.
        #[test]
        fn ids_are_dense_and_stable(names in prop::collection::vec(0u64..5000, 0..8000)) {
            let mut table = IdTable::new();
            let mut known: HashMap<u64, u32> = HashMap::new();
            for name in names {
                let next = known.len() as u32;
                let expected = *known.entry(name).or_insert(next);
                prop_assert_eq!(intern(&mut table, name), expected);
                prop_assert_eq!(table.name(expected), name);
            }
            prop_assert_eq!(table.len(), known.len());
        }
    }

    #[test]
    fn many_names_stay_found_through_growth() {
        for (mut table, bytes_max) in [(IdTable::new(), 9.42), (IdTable::tight(), 6.97)] {
            for n in 0..200_000u64 {
                assert_eq!(u64::from(intern(&mut table, n << 40 | 7)), n);
                let bytes = (table.buckets.len() * size_of::<Bucket>()) as f64;
                assert!(n < 20_000 || bytes <= bytes_max * (n + 1) as f64, "{bytes} for {n}");
            }
            for n in (0..200_000u64).rev() {
                assert_eq!(u64::from(intern(&mut table, n << 40 | 7)), n);
            }
            assert!(table.buckets.len() * BUCKET_SLOTS * table.full_percent >= table.len() * 100);
        }
    }
}
