//! How much of each segment the index still knows: the sum of what its entries take there.
//!
//! Owns a counter for each segment. Whoever fills, empties or overwrites a slot (`shard.rs`) keeps it; lengths
//! count as the slot's class says, up to 2 % over. An index that was not told of segments counts nothing.
//! Threads: any; each counter is one word, and right whenever no slot is being written.

use std::sync::atomic::{AtomicU32, Ordering};

use super::slot::{self, EMPTY, LengthClass};

#[derive(Default)]
pub(super) struct Census {
    segment_units: u64,
    units: Box<[AtomicU32]>,
}

impl Census {
    pub(super) fn new(segments: u32, segment_units: u64) -> Census {
        Census { segment_units, units: (0..segments).map(|_| AtomicU32::new(0)).collect() }
    }

    fn of(&self, slot: u64) -> Option<(&AtomicU32, u32)> {
        if slot == EMPTY || self.units.is_empty() {
            return None;
        }
        let fields = slot::fields(slot);
        let counter = self.units.get((fields.location.units() / self.segment_units) as usize)?;
        Some((counter, fields.length_class.units().min(LengthClass::LONGEST_UNITS) as u32))
    }

    #[inline]
    pub(super) fn came(&self, slot: u64) {
        if let Some((counter, units)) = self.of(slot) {
            counter.fetch_add(units, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn went(&self, slot: u64) {
        if let Some((counter, units)) = self.of(slot) {
            counter.fetch_sub(units, Ordering::Relaxed);
        }
    }

    /// What the index knows of a segment, in units.
    pub(super) fn units(&self, segment: u32) -> u64 {
        self.units.get(segment as usize).map_or(0, |units| units.load(Ordering::Relaxed).into())
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        size_of_val::<[AtomicU32]>(&self.units) as u64
    }
}
