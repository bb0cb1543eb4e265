//! A small, lossy table of recent events by key: a note, and when it was made. Good for sampling
//! only: a key's note is lost when another key takes its slot, and one key in sixteen million is
//! mistaken for another.
//!
//! Threads: any. A slot is one relaxed atomic, so a note is never torn, though a concurrent one may
//! overwrite it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Layout of a slot, from the top bit: 24 bits of the key (never zero), 8 bits of note, 32 bits of
/// time.
const TAG_SHIFT: u32 = 40;
const TAG_BIT: u64 = 1 << TAG_SHIFT;
const SAID_SHIFT: u32 = 32;
const SLOTS_MIN: usize = 64;

/// A note about a key: a value and a time whose meaning the caller defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) said: u8,
    pub(crate) when: u32,
}

pub(crate) struct Notes {
    slots: Box<[AtomicU64]>,
}

/// Mixes every bit of the key into every bit of the result: keys may be hashes or locations on
/// disk.
fn mixed(key: u64) -> u64 {
    let half = (key ^ (key >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (half ^ (half >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn tag(key: u64) -> u64 {
    mixed(key) >> TAG_SHIFT << TAG_SHIFT | TAG_BIT
}

impl Notes {
    /// A table with room for at least this many keys.
    pub(crate) fn new(keys: usize) -> Notes {
        let slots = keys.next_power_of_two().max(SLOTS_MIN);
        Notes { slots: (0..slots).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The number of keys the table has room for.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Memory that the table takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val::<[AtomicU64]>(&self.slots)
    }

    fn slot(&self, key: u64) -> &AtomicU64 {
        // The bits below those of the tag.
        let bits = self.slots.len().trailing_zeros();
        let below_tag = mixed(key) << (u64::BITS - TAG_SHIFT);
        &self.slots[(below_tag >> (u64::BITS - bits)) as usize]
    }

    /// Stores a key's note and returns the previous one.
    pub(crate) fn put(&self, key: u64, note: Note) -> Option<Note> {
        let packed = tag(key) | u64::from(note.said) << SAID_SHIFT | u64::from(note.when);
        known(key, self.slot(key).swap(packed, Ordering::Relaxed))
    }

    /// Removes and returns a key's note.
    pub(crate) fn take(&self, key: u64) -> Option<Note> {
        let slot = self.slot(key);
        let note = known(key, slot.load(Ordering::Relaxed))?;
        slot.store(0, Ordering::Relaxed);
        Some(note)
    }
}

fn known(key: u64, packed: u64) -> Option<Note> {
    let is_its = packed >> TAG_SHIFT == tag(key) >> TAG_SHIFT;
    is_its.then_some(Note { said: (packed >> SAID_SHIFT) as u8, when: packed as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_until_it_is_taken_or_another_takes_its_slot() {
        let notes = Notes::new(64);
        let note = |said, when| Note { said, when };
        assert_eq!(notes.put(5, note(1, 10)), None);
        assert_eq!(notes.put(5, note(255, u32::MAX)), Some(note(1, 10)));
        assert_eq!(notes.take(6), None);
        assert_eq!(notes.take(5), Some(note(255, u32::MAX)));
        assert_eq!(notes.take(5), None);
        notes.put(0, note(0, 0));
        assert_eq!(notes.take(0), Some(note(0, 0)), "nothing said at the beginning is a note, too");
        notes.put(5, note(1, 10));
        for key in 100..600 {
            assert_eq!(notes.put(key, note(2, 11)), None);
        }
        assert_eq!(notes.take(5), None);
    }

    #[test]
    fn keys_in_a_row_and_keys_with_zeros_below_use_most_slots() {
        for step in [1, 8, 1024, 1 << 40] {
            let notes = Notes::new(1024);
            for n in 0..1024 {
                notes.put(n * step, Note { said: 1, when: 1 });
            }
            let known = (0..1024).filter(|n| notes.take(n * step).is_some()).count();
            assert!(known > 500, "{known} of 1,024 at steps of {step}");
        }
    }
}
