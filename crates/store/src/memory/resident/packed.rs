//! An entry of the resident table, packed into 24 bytes. What an object's record says itself (its
//! lengths, sequence number, group and expiry) is read there.
//!
//! Invariant: an entry in the table owns one reference to its run, though it cannot drop it: the
//! shard does. Threads: plain values, under the shard's lock.

use crate::format::UNIT_BYTES;
use crate::index::Location;

const HITS_BITS: u32 = 8;
/// In the bits of the location, of an entry that has none.
const OLDER_DEAD: u64 = 1;
const ON_DISK: u64 = 1 << 38;
const PREFETCHED: u64 = 1 << 39;
const OFFSET_SHIFT: u32 = 40;
const OFFSET_MASK: u64 = 0xffff << OFFSET_SHIFT;
const EPOCH_SHIFT: u32 = 56;
/// No run starts at this place.
const NO_PLACE: u32 = u32::MAX;

const _: () = assert!(Location::MAX.units() == ON_DISK - 1);
const _: () = assert!(size_of::<Packed>() == 24);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Packed {
    /// From the top: what the shard does not imply of the hash (56 bits), hits (8).
    rest_hits: u64,
    /// From the top: the policy's epoch when it last looked (8 bits), where the record starts in
    /// its run in units of 64 bytes (16), whether it came with a page and has not been requested
    /// (1), whether it is on disk (1), and where on disk (38). As long as it is not on disk, the
    /// last bit says whether what is older of its key is known to be dead (`older_is_dead`).
    place: u64,
    /// The run's first place.
    first: u32,
    /// For an object that came with a page and has not been requested: when it came
    /// ([`Cache::now`](crate::memory::cache::Cache::now)). For any other: purge marks up to this
    /// epoch have been checked.
    since: u32,
}

impl Packed {
    pub(super) const EMPTY: Packed = Packed { rest_hits: 0, place: 0, first: NO_PLACE, since: 0 };
    #[cfg(test)]
    pub(super) const REST_MAX: u64 = u64::MAX >> HITS_BITS;

    /// An entry without hits, at the start of the run at `first`, and not on disk.
    pub(super) fn new(rest: u64, first: u32) -> Packed {
        debug_assert!(first != NO_PLACE && rest <= u64::MAX >> HITS_BITS);
        Packed { rest_hits: rest << HITS_BITS, place: 0, first, since: 0 }
    }

    /// The same state as the entry of another hash, in the run at `first`.
    pub(super) fn with(self, rest: u64, first: u32) -> Packed {
        Packed { rest_hits: rest << HITS_BITS | u64::from(self.hits()), first, ..self }
    }

    #[inline]
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    pub(super) fn move_to(&mut self, first: u32, offset: u32) {
        self.first = first;
        self.set_offset(offset);
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first == NO_PLACE
    }

    #[inline]
    pub(super) fn rest(&self) -> u64 {
        self.rest_hits >> HITS_BITS
    }

    /// The 32 bits of `rest` that entries are ordered by first.
    #[inline]
    pub(super) fn order(rest: u64) -> u64 {
        rest >> (u64::BITS - HITS_BITS - 32)
    }

    /// Hits since the residency policy last looked.
    #[inline]
    pub(crate) fn hits(&self) -> u8 {
        self.rest_hits as u8
    }

    #[inline]
    pub(crate) fn set_hits(&mut self, hits: u8) {
        self.rest_hits = self.rest_hits & !u64::from(u8::MAX) | u64::from(hits);
    }

    #[inline]
    pub(crate) fn add_hit(&mut self) {
        if self.hits() != u8::MAX {
            self.rest_hits += 1;
        }
    }

    pub(crate) fn epoch(&self) -> u8 {
        (self.place >> EPOCH_SHIFT) as u8
    }

    pub(crate) fn set_epoch(&mut self, epoch: u8) {
        self.place = self.place & !(u64::MAX << EPOCH_SHIFT) | u64::from(epoch) << EPOCH_SHIFT;
    }

    /// Where the record starts in its run, in bytes.
    #[inline]
    pub(crate) fn offset(&self) -> u32 {
        ((self.place & OFFSET_MASK) >> OFFSET_SHIFT) as u32 * UNIT_BYTES as u32
    }

    pub(super) fn set_offset(&mut self, offset: u32) {
        let units = offset / UNIT_BYTES as u32;
        assert!(offset.is_multiple_of(UNIT_BYTES as u32) && units <= 0xffff, "offset {offset}");
        self.place = self.place & !OFFSET_MASK | u64::from(units) << OFFSET_SHIFT;
    }

    /// The record's location on disk; `None` while it waits in the nursery.
    pub(crate) fn location(&self) -> Option<Location> {
        let units = self.place & (ON_DISK - 1);
        (self.place & ON_DISK != 0).then(|| Location::new(units))
    }

    pub(crate) fn set_location(&mut self, location: Location) {
        self.place = self.place & !(ON_DISK - 1) | ON_DISK | location.units();
    }

    /// Every record of this key on disk is older than a delete that is in the journal, and this
    /// version is not on its way there. So what replaces it need not be journalled.
    pub(crate) fn older_is_dead(&self) -> bool {
        self.place & (ON_DISK | OLDER_DEAD) == OLDER_DEAD
    }

    /// Only of an entry without a location.
    pub(crate) fn set_older_dead(&mut self) {
        debug_assert!(self.place & ON_DISK == 0, "it would change where the record is");
        self.place |= OLDER_DEAD;
    }

    /// The record is about to be written.
    pub(crate) fn clear_older_dead(&mut self) {
        if self.place & ON_DISK == 0 {
            self.place &= !OLDER_DEAD;
        }
    }

    /// Came along with a page and has not been requested yet.
    #[inline]
    pub(crate) fn is_prefetched(&self) -> bool {
        self.place & PREFETCHED != 0
    }

    /// It came along with a page at `now`.
    pub(crate) fn set_prefetched(&mut self, now: u32) {
        self.place |= PREFETCHED;
        self.since = now;
    }

    /// It is requested for the first time: says when it came.
    pub(crate) fn take_prefetched(&mut self) -> Option<u32> {
        self.is_prefetched().then(|| {
            self.place &= !PREFETCHED;
            std::mem::take(&mut self.since)
        })
    }

    /// The last epoch of the purge marks that were checked; zero: none were.
    #[inline]
    pub(crate) fn marks_epoch(&self) -> u32 {
        if self.is_prefetched() { 0 } else { self.since }
    }

    /// Purge marks up to this epoch have been checked. Not for an object that came with a page and
    /// has not been requested.
    #[inline]
    pub(crate) fn set_marks_epoch(&mut self, epoch: u32) {
        debug_assert!(!self.is_prefetched(), "its arrival would be lost");
        // Not written if nothing changes: other processors may have the cache line.
        if self.since != epoch {
            self.since = epoch;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_touch_each_other() {
        let mut entry = Packed::new(Packed::REST_MAX, 7);
        let all = |entry: &Packed| {
            let (rest, hits, epoch) = (entry.rest(), entry.hits(), entry.epoch());
            (rest, hits, epoch, entry.offset(), entry.location(), entry.marks_epoch())
        };
        assert_eq!(all(&entry), (Packed::REST_MAX, 0, 0, 0, None, 0));
        entry.set_hits(254);
        entry.add_hit();
        entry.add_hit();
        entry.set_epoch(3);
        entry.set_offset(0xffff * 64);
        entry.set_location(Location::MAX);
        entry.set_marks_epoch(9);
        let full = (Packed::REST_MAX, 255, 3, 0xffff * 64, Some(Location::MAX), 9);
        assert_eq!(all(&entry), full);
        entry.set_prefetched(u32::MAX);
        assert!(entry.is_prefetched());
        assert_eq!(entry.marks_epoch(), 0, "they are checked at the first request");
        assert_eq!((entry.take_prefetched(), entry.take_prefetched()), (Some(u32::MAX), None));
        entry.set_offset(64);
        entry.set_location(Location::new(0));
        entry.set_epoch(255);
        entry.set_hits(1);
        assert_eq!(all(&entry), (Packed::REST_MAX, 1, 255, 64, Some(Location::new(0)), 0));
        assert!(!entry.is_empty() && Packed::EMPTY.is_empty());
    }

    #[test]
    fn that_what_is_older_is_dead_is_known_until_the_entry_is_on_disk() {
        let mut entry = Packed::new(Packed::REST_MAX, 7);
        assert!(!entry.older_is_dead());
        entry.set_older_dead();
        entry.move_to(9, 128);
        entry.set_hits(2);
        assert!(entry.with(5, 11).older_is_dead() && entry.location().is_none());
        let mut taken = entry;
        taken.clear_older_dead();
        assert!(!taken.older_is_dead() && taken.location().is_none());
        for location in [Location::new(0), Location::new(1), Location::MAX] {
            entry.set_location(location);
            entry.clear_older_dead();
            assert_eq!((entry.older_is_dead(), entry.location()), (false, Some(location)));
        }
    }
}
