//! Where in memory the frame of a page on disk lies, so that a page whose objects are all in memory
//! need not be read to find that out: 16 bytes for each frame.
//!
//! Invariant: only a hint. A page may have left its frame, and pages that share a slot forget each
//! other, so whoever asks compares the page's header. Threads: any.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::space::SegmentId;

/// A group's pages follow each other on disk, so that they share no slot; several such runs may.
const SLOTS_PER_FRAME: usize = 4;

pub(crate) struct PageFrames {
    /// The place at which the frame starts.
    firsts: Box<[AtomicU32]>,
    pages_per_segment: u64,
}

impl PageFrames {
    pub(crate) fn new(frames: usize, pages_per_segment: u64) -> PageFrames {
        let slots = (frames * SLOTS_PER_FRAME).max(1);
        PageFrames { firsts: (0..slots).map(|_| AtomicU32::new(0)).collect(), pages_per_segment }
    }

    fn slot(&self, segment: SegmentId, page: u64) -> &AtomicU32 {
        let number = u64::from(segment.0) * self.pages_per_segment + page;
        &self.firsts[(number % self.firsts.len() as u64) as usize]
    }

    /// The place at which the page's frame starts, if it is in memory.
    pub(crate) fn get(&self, segment: SegmentId, page: u64) -> u32 {
        self.slot(segment, page).load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, segment: SegmentId, page: u64, first: u32) {
        self.slot(segment, page).store(first, Ordering::Relaxed);
    }

    /// Memory that the table takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val::<[AtomicU32]>(&self.firsts)
    }
}
