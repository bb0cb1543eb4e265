//! Limits the memory of submitted reads, for which no thread waits.
//!
//! Each takes its memory before it is submitted, at least a frame, so a thousand of them would
//! evict the whole cache only to wait in the device's queue. Beyond a share of the memory, reads
//! are left to the few worker threads. Threads: any.

use crate::sync::Arc;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// Submitted reads may take one part in this many of the memory.
const MEMORY_SHARE: usize = 8;

pub(crate) struct UnderWay {
    bytes: AtomicUsize,
    bytes_max: usize,
}

/// The reservation of one read, held until it is dropped.
pub(crate) struct Room {
    under_way: Arc<UnderWay>,
    bytes: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.under_way.end(self.bytes);
    }
}

impl UnderWay {
    pub(crate) fn new(memory_bytes: usize) -> UnderWay {
        UnderWay { bytes: AtomicUsize::new(0), bytes_max: memory_bytes / MEMORY_SHARE }
    }

    /// Reserves memory for a read of `bytes`, if it may begin.
    pub(super) fn enter(self: &Arc<UnderWay>, bytes: usize) -> Option<Room> {
        self.begin(bytes).then(|| Room { under_way: Arc::clone(self), bytes })
    }

    /// True if a read of `bytes` may begin. A first read may exceed the limit.
    fn begin(&self, bytes: usize) -> bool {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let may = before == 0 || before + bytes <= self.bytes_max;
        if !may {
            self.end(bytes);
        }
        may
    }

    fn end(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_take_their_share_and_one_always_may() {
        let under_way = UnderWay::new(8 * 100);
        let begun = (0..10).filter(|_| under_way.begin(30)).count();
        assert_eq!(begun, 3);
        under_way.end(30);
        assert!(under_way.begin(40) && !under_way.begin(1));
        [30, 30, 40].into_iter().for_each(|bytes| under_way.end(bytes));
        assert!(under_way.begin(5_000), "longer than all of it");
        assert!(!under_way.begin(1));
    }
}
