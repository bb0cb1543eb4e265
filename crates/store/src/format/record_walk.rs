//! Walking a buffer of adjacent records, those of a page or of an extent.
//!
//! Invariants: a walk yields records of one life of the segment only; it ends, and after an error
//! it yields nothing more. Threads: none.

use super::StoreNonce;
use super::page::{PAGE_HEADER_BYTES, PageHeader};
use super::record::{RecordError, RecordHeader, invalid};
use crate::types::SegmentLife;

/// Walks adjacent records: yields the offset and header of each, or one error and then nothing.
#[derive(Clone, Debug)]
pub struct RecordWalk<'a> {
    bytes: &'a [u8],
    nonce: StoreNonce,
    life: SegmentLife,
    next: u64,
    end: u64,
    found: u32,
    expected: Option<u32>,
    failed: bool,
}

impl<'a> RecordWalk<'a> {
    /// Walks `bytes[start..end]`; records of the segment's life `segment_seq` have to fill it
    /// exactly.
    #[must_use]
    pub fn new(bytes: &'a [u8], start: u32, end: u32, nonce: StoreNonce, segment_seq: u64) -> Self {
        let (next, end) = (u64::from(start), u64::from(end));
        let life = SegmentLife::from_raw(segment_seq);
        Self { bytes, nonce, life, next, end, found: 0, expected: None, failed: false }
    }

    /// Walks the records of a page; another number than the header says is an error.
    #[must_use]
    pub fn of_page(page: &'a [u8], header: &PageHeader) -> Self {
        let (start, end) = (PAGE_HEADER_BYTES as u32, header.used_bytes);
        let walk = Self::new(page, start, end, header.nonce, header.segment_seq);
        Self { expected: Some(header.record_count), ..walk }
    }

    fn step(&mut self) -> Result<(u32, RecordHeader), RecordError> {
        let have = self.end.min(self.bytes.len() as u64).saturating_sub(self.next);
        let offset = u32::try_from(self.next).map_err(|_| invalid("offset"))?;
        let start = usize::try_from(self.next).unwrap_or(usize::MAX);
        let header = RecordHeader::decode(self.bytes.get(start..).unwrap_or(&[]), self.nonce)?;
        if !header.is_of(self.life) {
            return Err(RecordError::OtherLife);
        }
        let need = header.stored_bytes();
        if need > have {
            return Err(RecordError::Short { need, have });
        }
        // No overflow: `need` is at most `have`, which is at most `end - next`.
        self.next += need;
        self.found = self.found.saturating_add(1);
        Ok((offset, header))
    }
}

impl Iterator for RecordWalk<'_> {
    type Item = Result<(u32, RecordHeader), RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let step = if self.next < self.end {
            self.step()
        } else {
            let expected = self.expected.take()?;
            if expected == self.found {
                return None;
            }
            Err(RecordError::Count { expected, found: self.found })
        };
        self.failed = step.is_err();
        Some(step)
    }
}
