//! Counts the live bytes of each segment: the total length of its entries in the index.
//!
//! Owns one counter per segment. The threads that fill, empty or overwrite a slot (`shard.rs`)
//! update it; lengths are those of the slot's length class, up to 2 % too high. An index made
//! without segments counts nothing. Threads: any; each counter is one atomic word, exact whenever
//! no slot is being written.

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

    /// The total length of a segment's entries, in units.
    pub(super) fn units(&self, segment: u32) -> u64 {
        self.units.get(segment as usize).map_or(0, |units| units.load(Ordering::Relaxed).into())
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        size_of_val::<[AtomicU32]>(&self.units) as u64
    }
}
