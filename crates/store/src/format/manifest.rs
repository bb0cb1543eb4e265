//! The value of a manifest record: where the parts of a large object are.
//!
//! Owns a head of 16 bytes and 24 bytes for each part, in the order of the value. Invariants: the
//! manifest's own record (its `body_crc`) guards these bytes, so there is no checksum here; the
//! lengths of the parts add up to `total_len`; `segment_seq` tells a part's segment from a later
//! life of the same segment, in which the part is gone and the object with it.
//!
//! Threads: none; pure functions.

use super::fields::{Field, Slot, table};
use super::record::{CHUNK_BYTES, VALUE_BYTES_MAX};
use super::superblock::SEGMENT_BYTES_MAX;
use super::{BLOCK_BYTES, FormatError, UNIT_BYTES, ensure, first};
use crate::types::SegmentLife;

/// Bytes before the parts.
pub const MANIFEST_HEAD_BYTES: usize = 16;
/// Bytes of one part's entry.
pub const MANIFEST_PART_BYTES: usize = 24;
/// The most parts of one object: bounds what a reader allocates for one manifest to 24 MiB.
pub const MANIFEST_PARTS_MAX: u32 = 1 << 20;

pub(crate) mod head_at {
    use super::{Field, MANIFEST_HEAD_BYTES, Slot, table};
    table! { MANIFEST_HEAD_BYTES;
        TOTAL_LEN: u64, 0, "total_len", "bytes of the object's value: the parts' lengths added up";
        PART_COUNT: u32, 8, "part_count", "entries that follow, 1 to 2^20";
        CHUNK_BYTES: u32, 12, "chunk_bytes", "65536: the chunk size of the parts' tables";
    }
}

pub(crate) mod part_at {
    use super::{Field, MANIFEST_PART_BYTES, Slot, table};
    table! { MANIFEST_PART_BYTES;
        SEGMENT_SEQ: u64, 0, "segment_seq",
            "life of the segment the part was written in; a later one has lost it";
        SEGMENT_ID: u32, 8, "segment_id", "store-wide id of the segment";
        OFFSET_UNITS: u32, 12, "offset_units",
            "place of the part's record in the segment / 64; whole blocks";
        VALUE_LEN: u32, 16, "value_len", "bytes of the value in this part, less than a segment";
        PART_SEQ: u32, 20, "part_seq",
            "low half of the part's sequence number: tells it from what else may lie there";
    }
}

/// One part of a large object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManifestPart {
    /// Life of the segment.
    pub segment_seq: u64,
    /// Store-wide id of the segment.
    pub segment_id: u32,
    /// Place of the part's record within the segment, in units.
    pub offset_units: u32,
    /// Bytes of the value in this part.
    pub value_len: u32,
    /// Low half of the sequence number in the part's record.
    pub part_seq: u32,
}

impl ManifestPart {
    /// The life of the segment.
    pub(crate) const fn life(&self) -> SegmentLife {
        SegmentLife::from_raw(self.segment_seq)
    }
}

/// The parts of a large object, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Bytes of the object's value.
    pub total_len: u64,
    /// The parts.
    pub parts: Vec<ManifestPart>,
}

impl Manifest {
    /// Bytes of the manifest of `part_count` parts.
    #[must_use]
    pub const fn encoded_len(part_count: usize) -> usize {
        part_count.saturating_mul(MANIFEST_PART_BYTES).saturating_add(MANIFEST_HEAD_BYTES)
    }

    /// The value of the manifest record.
    ///
    /// # Errors
    /// A manifest that `decode` would refuse.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        self.validate(SEGMENT_BYTES_MAX)?;
        let count = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        let mut bytes = vec![0; Self::encoded_len(self.parts.len())];
        head_at::TOTAL_LEN.put(&mut bytes, self.total_len);
        head_at::PART_COUNT.put(&mut bytes, count);
        head_at::CHUNK_BYTES.put(&mut bytes, CHUNK_BYTES as u32);
        let entries = bytes.get_mut(MANIFEST_HEAD_BYTES..).unwrap_or(&mut []);
        for (entry, part) in entries.chunks_exact_mut(MANIFEST_PART_BYTES).zip(&self.parts) {
            part_at::SEGMENT_SEQ.put(entry, part.segment_seq);
            part_at::SEGMENT_ID.put(entry, part.segment_id);
            part_at::OFFSET_UNITS.put(entry, part.offset_units);
            part_at::VALUE_LEN.put(entry, part.value_len);
            part_at::PART_SEQ.put(entry, part.part_seq);
        }
        Ok(bytes)
    }

    /// Decodes the value of a manifest record (whose body checksum has been verified).
    ///
    /// # Errors
    /// What is inconsistent in it, or with segments of `segment_bytes`.
    pub fn decode(value: &[u8], segment_bytes: u64) -> Result<Self, FormatError> {
        let head = first::<MANIFEST_HEAD_BYTES>(value)?;
        let count = head_at::PART_COUNT.get(head);
        ensure((1..=MANIFEST_PARTS_MAX).contains(&count), "part count of a manifest")?;
        let chunk = u64::from(head_at::CHUNK_BYTES.get(head));
        ensure(chunk == CHUNK_BYTES, "chunk size of a manifest")?;
        let length = usize::try_from(count).map(Self::encoded_len);
        ensure(length == Ok(value.len()), "length of a manifest")?;
        let entries = value.get(MANIFEST_HEAD_BYTES..).unwrap_or(&[]);
        let entries = entries.chunks_exact(MANIFEST_PART_BYTES);
        let parts = entries.map(|entry| ManifestPart {
            segment_seq: part_at::SEGMENT_SEQ.get(entry),
            segment_id: part_at::SEGMENT_ID.get(entry),
            offset_units: part_at::OFFSET_UNITS.get(entry),
            value_len: part_at::VALUE_LEN.get(entry),
            part_seq: part_at::PART_SEQ.get(entry),
        });
        let manifest = Self { total_len: head_at::TOTAL_LEN.get(head), parts: parts.collect() };
        manifest.validate(segment_bytes)?;
        Ok(manifest)
    }

    fn validate(&self, segment_bytes: u64) -> Result<(), FormatError> {
        let count = self.parts.len();
        ensure((1..=MANIFEST_PARTS_MAX as usize).contains(&count), "part count of a manifest")?;
        let mut total = 0_u64;
        for part in &self.parts {
            let offset = u64::from(part.offset_units) * UNIT_BYTES;
            let len = u64::from(part.value_len);
            ensure(offset.is_multiple_of(BLOCK_BYTES), "place of a part")?;
            ensure(len >= 1 && offset.saturating_add(len) < segment_bytes, "length of a part")?;
            ensure(part.segment_seq != 0, "segment sequence of a part")?;
            total = total.saturating_add(len);
        }
        ensure(total == self.total_len && total <= VALUE_BYTES_MAX, "total length of a manifest")
    }
}
