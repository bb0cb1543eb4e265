//! The memory of all slots: one allocation of buckets, each aligned to a cache line.
//!
//! Owns the words; `shard.rs` decides when they may be written. The memory is requested zeroed and
//! with a word's alignment, since only then does the allocator return untouched pages (`calloc`):
//! for a larger alignment it would write, and so occupy, every page at once. The buckets are
//! aligned to cache lines by hand, at the cost of seven words.

use super::slot::EMPTY;
use super::sync::AtomicU64;

/// Slots in a bucket: one cache line of them; fewer under loom.
pub(super) const BUCKET_SLOTS: usize = if cfg!(all(loom, test)) { 2 } else { 8 };

/// One bucket.
pub(super) type Bucket = [AtomicU64; BUCKET_SLOTS];

const BUCKET_BYTES: usize = BUCKET_SLOTS * size_of::<u64>();
const _: () = assert!(cfg!(all(loom, test)) || BUCKET_BYTES == 64);

/// All buckets of an index.
pub(super) struct Table {
    words: Box<[AtomicU64]>,
    first: usize,
    buckets: usize,
}

impl Table {
    /// A table of `buckets` empty buckets; `None` if the system has no memory for it.
    pub(super) fn new(buckets: usize) -> Option<Table> {
        let spare = BUCKET_SLOTS - 1;
        let words = buckets.checked_mul(BUCKET_SLOTS).and_then(|n| n.checked_add(spare));
        let words = empty_words(words?)?;
        let first = match words.as_ptr().align_offset(BUCKET_BYTES) {
            offset if offset <= spare && !cfg!(all(loom, test)) => offset,
            _ => 0, // no alignment to be had: slower, still right
        };
        Some(Table { words, first, buckets })
    }

    /// The buckets.
    #[inline]
    pub(super) fn buckets(&self) -> &[Bucket] {
        let words = &self.words[self.first..][..self.buckets * BUCKET_SLOTS];
        words.as_chunks().0
    }

    /// The memory of the table once every page of it is in use.
    pub(super) fn memory_bytes(&self) -> u64 {
        size_of_val::<[AtomicU64]>(&self.words) as u64
    }
}

#[cfg(all(loom, test))]
fn empty_words(count: usize) -> Option<Box<[AtomicU64]>> {
    Some((0..count).map(|_| AtomicU64::new(EMPTY)).collect())
}

#[cfg(not(all(loom, test)))]
fn empty_words(count: usize) -> Option<Box<[AtomicU64]>> {
    use std::alloc::{Layout, alloc_zeroed};

    const { assert!(EMPTY == 0) };
    let layout = Layout::array::<AtomicU64>(count).ok()?;
    assert!(layout.size() > 0, "an index has at least one bucket");
    // SAFETY: the layout is not of size zero.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        return None;
    }
    let words = std::ptr::slice_from_raw_parts_mut(memory.cast::<AtomicU64>(), count);
    // SAFETY: the global allocator returned this memory with the layout of a box of this slice,
    // nothing else refers to it, and zero bytes are valid `AtomicU64`s.
    Some(unsafe { Box::from_raw(words) })
}
