//! Decides when an object that is read in parts is read whole: once its partial reads have cost as
//! much.
//!
//! A partial read does not put the object into memory, a whole read does. So an object with rare
//! partial reads costs only those parts, one with frequent reads costs one whole read more, and no
//! object costs more than twice the cheaper of both strategies.
//!
//! Invariant: bounded memory; a hash collision only triggers a whole read earlier. Threads: any;
//! one atomic word per sum.

use std::hash::BuildHasher as _;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of sums.
const SLOTS: usize = 16 << 10;
/// The store reads and verifies objects in chunks of this size.
pub(super) const CHUNK_BYTES: u64 = 64 << 10;
/// The store reads this much of an object first, for its head.
const HEAD_BYTES: u64 = 8 << 10;
/// The store reads objects up to this size whole, whatever range is requested.
pub(super) const READ_WHOLE_BYTES_MAX: u64 = 256 << 10;

/// Bytes read in parts, summed per slot.
#[derive(Debug)]
pub(super) struct PartReads {
    slots: Box<[AtomicU32]>,
    hasher: std::hash::RandomState,
}

impl PartReads {
    pub(super) fn new() -> PartReads {
        let slots = (0..SLOTS).map(|_| AtomicU32::new(0)).collect();
        PartReads { slots, hasher: std::hash::RandomState::new() }
    }

    /// Whether a partial read suffices for an object that is not in memory. False once the object's
    /// partial reads have cost as much as one whole read.
    pub(super) fn suffices(&self, key: &[u8], wanted: Range<u64>, whole_bytes: u64) -> bool {
        let cost = cost_of_part(wanted.start, wanted.end, whole_bytes);
        cost.is_some_and(|cost_bytes| self.count(key, cost_bytes, whole_bytes))
    }

    /// Adds the cost of a partial read, and returns true, unless the whole read is due; then resets
    /// the sum.
    fn count(&self, key: &[u8], cost_bytes: u64, whole_bytes: u64) -> bool {
        let slot = &self.slots[self.hasher.hash_one(key) as usize % SLOTS];
        let cost = u32::try_from(cost_bytes).unwrap_or(u32::MAX);
        let sum = slot.load(Ordering::Relaxed).saturating_add(cost);
        let in_part = u64::from(sum) <= whole_bytes;
        // Of two concurrent updates one may be lost, which costs no more than its read.
        slot.store(if in_part { sum } else { 0 }, Ordering::Relaxed);
        in_part
    }
}

/// The cost of reading bytes `start` to `end` of an object of `whole_bytes`; `None` if a whole read
/// is better at once, e.g. where half of the object is requested.
pub(super) fn cost_of_part(start: u64, end: u64, whole_bytes: u64) -> Option<u64> {
    let chunks = end.div_ceil(CHUNK_BYTES).saturating_sub(start / CHUNK_BYTES);
    let cost = chunks.saturating_mul(CHUNK_BYTES).saturating_add(HEAD_BYTES);
    (whole_bytes > READ_WHOLE_BYTES_MAX && cost < whole_bytes / 2).then_some(cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: u64 = 1 << 20;

    #[test]
    fn the_whole_is_due_when_its_parts_have_cost_as_much() {
        let reads = PartReads::new();
        for _ in 0..3 {
            let parts = (0..20).take_while(|_| reads.count(b"a", 200 << 10, WHOLE)).count();
            assert_eq!(parts, 5);
        }
    }

    #[test]
    fn a_part_costs_its_chunks_and_the_head() {
        assert_eq!(cost_of_part(0, 1, WHOLE), Some(CHUNK_BYTES + HEAD_BYTES));
        assert_eq!(cost_of_part(CHUNK_BYTES - 1, CHUNK_BYTES + 1, WHOLE), Some(136 << 10));
        assert_eq!(cost_of_part(0, WHOLE / 2, WHOLE), None, "half of it");
        assert_eq!(cost_of_part(0, 1, READ_WHOLE_BYTES_MAX), None, "the store reads all of it");
        assert_eq!(cost_of_part(0, u64::MAX, WHOLE), None);
    }
}
