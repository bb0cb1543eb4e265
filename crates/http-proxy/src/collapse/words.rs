//! A word of 32 bits about each of many keys.
//!
//! Invariant: bounded memory; after a collision only the newer word is known. Threads: any; one
//! atomic word per key.

use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// The words.
#[derive(Debug)]
pub(super) struct Words {
    /// 32 bits of the key's hash, and its word.
    slots: Box<[AtomicU64]>,
    hasher: std::hash::RandomState,
}

impl Words {
    pub(super) fn new(slots: usize) -> Words {
        let slots = (0..slots).map(|_| AtomicU64::new(0)).collect();
        Words { slots, hasher: std::hash::RandomState::new() }
    }

    pub(super) fn of(&self, key: &[u8]) -> Word<'_> {
        let hash = self.hasher.hash_one(key);
        Word { slot: &self.slots[hash as u32 as usize % self.slots.len()], tag: hash >> 32 }
    }
}

/// The place of one key's word.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word<'w> {
    slot: &'w AtomicU64,
    tag: u64,
}

impl Word<'_> {
    /// The word; 0 if there is none.
    pub(super) fn get(self) -> u32 {
        let found = self.slot.load(Ordering::Relaxed);
        if found >> 32 == self.tag { found as u32 } else { 0 }
    }

    pub(super) fn set(self, word: u32) {
        self.slot.store(self.tag << 32 | u64::from(word), Ordering::Relaxed);
    }
}
