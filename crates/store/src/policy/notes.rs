//! A small table of what happened lately to keys: what was noted of each, and when. For samples, not
//! for truth: a key forgets when another takes its slot, and one in sixteen million is taken for another.
//!
//! Threads: any; one relaxed atomic a slot, so that a note is whole, if perhaps lost.

use std::sync::atomic::{AtomicU64, Ordering};

/// A slot from the top: 24 bits of the key, never zero, what was noted, and when.
const TAG_SHIFT: u32 = 40;
const TAG_BIT: u64 = 1 << TAG_SHIFT;
const SAID_SHIFT: u32 = 32;
const SLOTS_MIN: usize = 64;

/// What was noted of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) said: u8,
    pub(crate) when: u32,
}

pub(crate) struct Notes {
    slots: Box<[AtomicU64]>,
}

/// Every bit of the key in every bit: keys may be hashes or places on disk.
fn mixed(key: u64) -> u64 {
    let half = (key ^ (key >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (half ^ (half >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn tag(key: u64) -> u64 {
    mixed(key) >> TAG_SHIFT << TAG_SHIFT | TAG_BIT
}

impl Notes {
    /// With room for so many keys, rounded up.
    pub(crate) fn new(keys: usize) -> Notes {
        let slots = keys.next_power_of_two().max(SLOTS_MIN);
        Notes { slots: (0..slots).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Keys that there is room for.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// What it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val::<[AtomicU64]>(&self.slots)
    }

    fn slot(&self, key: u64) -> &AtomicU64 {
        // The bits below the tag's.
        let bits = self.slots.len().trailing_zeros();
        let below_tag = mixed(key) << (u64::BITS - TAG_SHIFT);
        &self.slots[(below_tag >> (u64::BITS - bits)) as usize]
    }

    /// Notes something of a key; what was known of it.
    pub(crate) fn put(&self, key: u64, note: Note) -> Option<Note> {
        let packed = tag(key) | u64::from(note.said) << SAID_SHIFT | u64::from(note.when);
        known(key, self.slot(key).swap(packed, Ordering::Relaxed))
    }

    /// Takes away what is known of a key.
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
