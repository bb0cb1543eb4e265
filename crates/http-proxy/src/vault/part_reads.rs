//! When an object that is read in parts is read whole: once its parts have cost as much.
//!
//! What is read in part does not stay in memory, what is read whole does. So what is wanted now and then
//! costs what is wanted of it, what is wanted often costs one whole read more, and nothing costs more than
//! twice what the better of both would have.
//!
//! Invariant: bounded memory; a collision only makes a whole be read sooner. Threads: any; one atomic
//! word a sum.

use std::hash::BuildHasher as _;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Places for sums.
const SLOTS: usize = 16 << 10;
/// The store reads and verifies objects by chunks of so many bytes.
const CHUNK_BYTES: u64 = 64 << 10;
/// It reads the head of an object first.
const HEAD_BYTES: u64 = 8 << 10;
/// Whatever is wanted of an object of no more than so much, it reads all of it.
const READ_WHOLE_BYTES_MAX: u64 = 256 << 10;

/// The sums of what was read in parts.
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

    /// Whether an object that is not in memory is read only as far as it is wanted: unless it was wanted so
    /// often that it should be there.
    pub(super) fn suffices(&self, key: &[u8], wanted: Range<u64>, whole_bytes: u64) -> bool {
        let cost = cost_of_part(wanted.start, wanted.end, whole_bytes);
        cost.is_some_and(|cost_bytes| self.count(key, cost_bytes, whole_bytes))
    }

    /// Counts a read of a part that costs so much, if the whole is not due yet; if it is, the sum starts
    /// anew.
    fn count(&self, key: &[u8], cost_bytes: u64, whole_bytes: u64) -> bool {
        let slot = &self.slots[self.hasher.hash_one(key) as usize % SLOTS];
        let cost = u32::try_from(cost_bytes).unwrap_or(u32::MAX);
        let sum = slot.load(Ordering::Relaxed).saturating_add(cost);
        let in_part = u64::from(sum) <= whole_bytes;
        // Of two at once one may not be counted, which costs no more than its read.
        slot.store(if in_part { sum } else { 0 }, Ordering::Relaxed);
        in_part
    }
}

/// What it costs to read bytes `start` to `end` of an object of so many; `None` if it had better be read
/// whole at once, as where half of it is wanted.
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
