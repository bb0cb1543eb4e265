//! A note of 32 bits on each of many keys.
//!
//! Invariant: bounded memory; after a collision only the newer note is known. Threads: any; one
//! atomic word per key.

use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// Notes on keys, in a table of fixed size.
#[derive(Debug)]
pub(super) struct KeyNotes {
    /// 32 bits of the key's hash, and the note on it.
    slots: Box<[AtomicU64]>,
    hasher: std::hash::RandomState,
}

impl KeyNotes {
    pub(super) fn new(slots: usize) -> KeyNotes {
        let slots = (0..slots).map(|_| AtomicU64::new(0)).collect();
        KeyNotes { slots, hasher: std::hash::RandomState::new() }
    }

    pub(super) fn of(&self, key: &[u8]) -> Note<'_> {
        let hash = self.hasher.hash_one(key);
        Note { slot: &self.slots[hash as u32 as usize % self.slots.len()], tag: hash >> 32 }
    }
}

/// Where the note on one key is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Note<'w> {
    slot: &'w AtomicU64,
    tag: u64,
}

impl Note<'_> {
    /// The note; 0 if there is none.
    pub(super) fn get(self) -> u32 {
        let found = self.slot.load(Ordering::Relaxed);
        if found >> 32 == self.tag { found as u32 } else { 0 }
    }

    pub(super) fn set(self, note: u32) {
        self.slot.store(self.tag << 32 | u64::from(note), Ordering::Relaxed);
    }
}
