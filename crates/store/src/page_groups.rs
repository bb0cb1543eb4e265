//! The main group of each page on disk: 8 bytes per page, so that the choice between object and
//! page read is possible before the read.
//!
//! Invariant: only a hint; a wrong or forgotten group merely costs a worse choice. Threads: any.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::space::SegmentId;
use crate::types::GroupId;

pub(crate) struct PageGroups {
    /// Group plus one; zero = unknown. Zeroed memory is not occupied until a page is written.
    groups: Box<[AtomicU64]>,
    pages_per_segment: u64,
}

impl PageGroups {
    pub(crate) fn new(segments: u32, pages_per_segment: u64) -> PageGroups {
        let count = (u64::from(segments) * pages_per_segment) as usize;
        let zeros: Box<[u64]> = vec![0_u64; count].into_boxed_slice();
        // SAFETY: AtomicU64 has the size, alignment and valid values of u64, and the box is unique.
        let groups = unsafe { Box::from_raw(Box::into_raw(zeros) as *mut [AtomicU64]) };
        PageGroups { groups, pages_per_segment }
    }

    fn slot(&self, segment: SegmentId, page: u64) -> Option<&AtomicU64> {
        let index = u64::from(segment.0) * self.pages_per_segment + page;
        (page < self.pages_per_segment).then(|| self.groups.get(index as usize))?
    }

    pub(crate) fn get(&self, segment: SegmentId, page: u64) -> Option<GroupId> {
        let stored = self.slot(segment, page)?.load(Ordering::Relaxed);
        (stored != 0).then(|| GroupId::new(stored.wrapping_sub(1)))
    }

    pub(crate) fn set(&self, segment: SegmentId, page: u64, group: GroupId) {
        if let Some(slot) = self.slot(segment, page) {
            // A group of all ones is stored as unknown, which is only a lost hint.
            slot.store(group.get().wrapping_add(1), Ordering::Relaxed);
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val::<[AtomicU64]>(&self.groups)
    }
}
