//! Limits of an object's length: by configuration, by the parts that one record can list, and by
//! the size of the volumes.
//!
//! Invariant: an object refused here has evicted at most half of the store's contents. Threads:
//! any.

use crate::engine::Engine;
use crate::error::CreateError;
use crate::format::{
    BLOCK_BYTES, CHUNK_BYTES, FOOTER_BLOCK_BYTES, MANIFEST_HEAD_BYTES, MANIFEST_PART_BYTES,
    MANIFEST_PARTS_MAX, RecordFields, RecordKind, SUMMARY_ENTRY_BYTES,
};
use crate::stats::add;

/// Longest part of a streamed object, in bytes.
const PART_BYTES_MAX: u64 = 1 << 20;
/// An object takes at most 1/`RING_SHARE` of the segments in service: all of it must still exist
/// when its end is written, while others write as well, and it should not evict the whole cache.
const RING_SHARE: u64 = 2;
/// Segments that cannot hold parts: the one that takes pages, and a free one.
const SEGMENTS_NOT_FOR_PARTS: u64 = 2;

impl Engine {
    /// Longest value of an object with small key and metadata.
    pub(crate) fn length_max(&self) -> u64 {
        self.listed_max(1, 0).min(self.volumes_max(1))
    }

    /// Counts a refused value and returns the error for the limit that it exceeds.
    pub(crate) fn too_long(&self, length: u64, listed_max: u64, volumes_max: u64) -> CreateError {
        if listed_max <= volumes_max {
            return self.too_large(length, listed_max);
        }
        add(&self.counters.drops_too_large, 1);
        CreateError::TooLargeForVolumes { length, max: volumes_max }
    }

    /// Value bytes in each part of an object; 0 if not even a block fits beside the key.
    pub(crate) fn part_bytes(&self, key: usize) -> u64 {
        let head = key as u64 + 256;
        let part = self.extent_max().saturating_sub(head + BLOCK_BYTES).min(PART_BYTES_MAX);
        if part < BLOCK_BYTES { 0 } else { (part - part % CHUNK_BYTES).max(CHUNK_BYTES.min(part)) }
    }

    /// Longest value by `object_bytes_max` and by the room for a list of its parts in one record,
    /// which also holds the key and the metadata.
    pub(crate) fn listed_max(&self, key: usize, metadata: usize) -> u64 {
        let listed = self.parts_max(key, metadata) * self.part_bytes(key);
        self.config.object_bytes_max.bytes().min(listed)
    }

    /// Parts that a list in one record has room for.
    pub(crate) fn parts_max(&self, key: usize, metadata: usize) -> u64 {
        let list = self.one_record_max(key, metadata.min(self.metadata_max()));
        let parts = list.saturating_sub(MANIFEST_HEAD_BYTES as u64) / MANIFEST_PART_BYTES as u64;
        parts.min(MANIFEST_PARTS_MAX.into())
    }

    /// Longest value by the number of segments in service.
    pub(crate) fn volumes_max(&self, key: usize) -> u64 {
        let in_service = self.space.volumes.iter().filter(|volume| !volume.is_out());
        let segments: u64 = in_service.map(|v| u64::from(v.superblock.segment_count)).sum();
        let share = (segments / RING_SHARE).min(segments.saturating_sub(SEGMENTS_NOT_FOR_PARTS));
        // The first part usually goes to a segment that is partly filled.
        let whole_segments = share.saturating_sub(1);
        let by_parts = whole_segments * self.segment_value_bytes(key);
        by_parts.max(self.one_record_max(key, 0))
    }

    /// Value bytes that a segment holds in parts.
    fn segment_value_bytes(&self, key: usize) -> u64 {
        let part = self.part_bytes(key);
        let fields = RecordFields {
            nonce: self.space.nonce,
            kind: RecordKind::Part,
            chunked: true,
            hash: 0,
            seq: 0,
            group: 0,
            expires_s: 0,
        };
        let Ok(header) = fields.header(key, 0, part) else { return 0 };
        let on_disk = header.stored_bytes().next_multiple_of(BLOCK_BYTES);
        let lead_and_footer = BLOCK_BYTES + FOOTER_BLOCK_BYTES as u64;
        let room = self.space.segment_bytes.saturating_sub(lead_and_footer);
        let summary = (room / on_disk * SUMMARY_ENTRY_BYTES as u64).next_multiple_of(BLOCK_BYTES);
        room.saturating_sub(summary) / on_disk * part
    }
}
