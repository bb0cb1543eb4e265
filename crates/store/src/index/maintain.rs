//! Operations on whole shards: checkpoint images, and dropping entries by location.
//!
//! Owns no state. Threads: all functions run under the shard's lock, for the time of a pass over
//! its slots (tens of microseconds); lock-free readers are not blocked.
//!
//! An image is the shard's slots in order as little-endian words, so an entry's position gives its
//! bucket.

use super::Loaded;
use super::geometry::Pair;
use super::shard::{At, Locked};
use super::slot::{EMPTY, Location, SlotFields};
use super::table::BUCKET_SLOTS;

const WORD: usize = size_of::<u64>();

impl Locked<'_> {
    /// Bytes in an image of this shard.
    fn image_bytes(&self) -> usize {
        self.shard.buckets.len() * BUCKET_SLOTS * WORD
    }

    fn all_places(&self) -> impl Iterator<Item = At> + use<> {
        let buckets = self.shard.buckets.len() as u32;
        (0..buckets).flat_map(|bucket| (0..BUCKET_SLOTS as u8).map(move |slot| At { bucket, slot }))
    }

    /// Writes the shard's image.
    pub(super) fn copy_to(&self, image: &mut [u8]) {
        assert_eq!(image.len(), self.image_bytes(), "room for a shard");
        for (at, word) in self.all_places().zip(image.as_chunks_mut::<WORD>().0) {
            *word = self.load(at).to_le_bytes();
        }
    }

    /// Inserts the entries of an image that `keep` accepts.
    pub(super) fn load_image(
        &self,
        image: &[u8],
        keep: impl Fn(Location) -> bool,
        ring_age: &impl Fn(Location) -> u64,
    ) -> Loaded {
        let mut loaded = Loaded::default();
        if image.len() != self.image_bytes() {
            return loaded;
        }
        let was_empty = self.len() == 0;
        for (at, word) in self.all_places().zip(image.as_chunks::<WORD>().0) {
            let entry = u64::from_le_bytes(*word);
            match SlotFields::unpack(self.shard.key_bits.entry(entry)) {
                Some(fields) if keep(fields.location) => {}
                _ => continue,
            }
            if was_empty {
                self.fill(at, entry);
                loaded.loaded += 1;
            } else {
                self.merge(at, entry, ring_age, &mut loaded);
            }
        }
        loaded
    }

    /// Inserts one entry of an image unless it is in the shard already.
    fn merge(&self, at: At, entry: u64, ring_age: &impl Fn(Location) -> u64, loaded: &mut Loaded) {
        let (key, location) = (self.shard.key_bits.of_slot(entry), self.location(entry));
        let pair = Pair::of_entry(self.shard.buckets.len() as u32, at.bucket, key);
        if self.search(pair, location).is_some() {
            return;
        }
        let evicted = self.insert(pair, entry, ring_age).evicted;
        loaded.evicted += evicted.iter().filter(|gone| gone.location != location).count() as u64;
        loaded.loaded += u64::from(evicted.iter().all(|gone| gone.location != location));
    }

    /// Drops the entries at the locations that are `gone`, and what is older of their families;
    /// returns how many of the former, but for those that went as older ones.
    pub(super) fn drop_where(
        &self,
        gone: impl Fn(Location) -> bool,
        ring_age: &impl Fn(Location) -> u64,
    ) -> u64 {
        let mut dropped = 0;
        for at in self.all_places() {
            let slot = self.load(at);
            if slot == EMPTY || !gone(self.location(slot)) {
                continue;
            }
            let key = self.shard.key_bits.of_slot(slot);
            let pair = Pair::of_entry(self.shard.buckets.len() as u32, at.bucket, key);
            self.drop_older(pair, ring_age(self.location(slot)), ring_age);
            self.note_dropped(pair);
            self.clear(at);
            dropped += 1;
        }
        dropped
    }
}
