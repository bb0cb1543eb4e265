//! How much of bodies from origins is in memory, on its way to clients and into the store.
//!
//! Invariant: a piece, unless it is very short, counts with its length from when it was read until
//! the last who holds any part of it lets go. Threads: any; two atomics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

/// Shorter pieces do not count: who keeps many of them joins them.
const COUNTED_BYTES_MIN: usize = 512;

/// Counts the bytes that were read from origins and are still held. They may be over the limit: it
/// says from when on all should hold as little as they can, and refuses nothing.
#[derive(Debug)]
pub(crate) struct Transit {
    held_bytes: AtomicU64,
    bytes_max: AtomicU64,
}

impl Transit {
    pub(crate) fn new(bytes_max: u64) -> Transit {
        Transit { held_bytes: AtomicU64::new(0), bytes_max: AtomicU64::new(bytes_max) }
    }

    /// Changes the limit.
    pub(crate) fn set_bytes_max(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Bytes that are held now.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Whether each should hold as little as it can.
    pub(crate) fn is_full(&self) -> bool {
        self.held_bytes() >= self.bytes_max.load(Ordering::Relaxed)
    }

    /// The same bytes, which count until they are dropped. Costs an allocation.
    pub(crate) fn counted(self: &Arc<Transit>, bytes: Bytes) -> Bytes {
        if bytes.len() < COUNTED_BYTES_MIN {
            return bytes;
        }
        self.held_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Bytes::from_owner(Counted { bytes, transit: Arc::clone(self) })
    }
}

/// Each is equal to itself alone.
impl PartialEq for Transit {
    fn eq(&self, other: &Transit) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Transit {}

struct Counted {
    bytes: Bytes,
    transit: Arc<Transit>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.transit.held_bytes.fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_counts_until_the_last_part_of_it_is_dropped() {
        let transit = Arc::new(Transit::new(1000));
        let mut piece = transit.counted(vec![1; 1000].into());
        assert!(transit.is_full());
        let part = piece.split_to(10);
        drop(piece);
        assert_eq!((transit.held_bytes(), &part[..]), (1000, &[1; 10][..]));
        drop(part);
        assert_eq!(transit.held_bytes(), 0);
        transit.set_bytes_max(0);
        assert!(transit.is_full(), "without room for anything it is always full");
    }
}
