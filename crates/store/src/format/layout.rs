//! How a volume is cut into areas when it is formatted.
//!
//! Owns the arithmetic from sizes to offsets. Invariants: a planned layout always passes
//! `Superblock::validate`; areas follow each other in the order superblocks, journal, checkpoint
//! slots, table of lives, segments; a volume that holds fewer than four segments is refused,
//! because one is being filled, one is being emptied, and the ring needs room to move.
//!
//! Threads: none; pure functions.

use super::checkpoint::{MARKS_MAX, ShardPlan};
use super::journal::JOURNAL_CELL_BYTES;
use super::lives::{LIVES_PER_BLOCK, lives_area_bytes};
use super::superblock::{INDEX_SLOTS_MAX, page_size_ok, segment_size_ok};
use super::{AREAS_OFFSET, BLOCK_BYTES, round_up};

/// The fewest segments a volume may have.
pub const SEGMENTS_MIN: u32 = 4;

/// The most segments of a store: their tables in a checkpoint have a 32-bit length.
pub const SEGMENTS_MAX: u32 = 1 << 28;

/// The largest alignment of the first segment.
const ALIGN_MAX: u64 = 1 << 20;
/// The largest journal: keeps every sum of areas far from overflow.
const JOURNAL_MAX: u64 = 1 << 50;
/// The journal is there twice, and has two halves.
pub(crate) const JOURNAL_PARTS: u64 = 4;

/// Where the areas of a volume are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeLayout {
    /// Start of the journal area.
    pub journal_offset: u64,
    /// Bytes of the journal area, both halves; 0 on volumes other than 0.
    pub journal_bytes: u64,
    /// Start of checkpoint slot A.
    pub checkpoint_offset: u64,
    /// Bytes of one checkpoint slot; 0 on volumes other than 0.
    pub checkpoint_bytes: u64,
    /// Start of the first segment.
    pub segments_offset: u64,
    /// Bytes of one segment.
    pub segment_bytes: u64,
    /// Segments on the volume.
    pub segment_count: u32,
}

/// What a layout is planned from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanRequest {
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// Which volume of the store it is.
    pub volume_index: u16,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Slots of the index (for the checkpoint slots).
    pub index_slots: u64,
    /// Wanted bytes of the journal area; rounded up to two halves of whole blocks.
    pub journal_bytes: u64,
    /// At least the segments of all volumes together, see [`segments_upper_bound`]; this volume's
    /// own are counted in any case, so a store of one volume may say 0.
    pub total_segments: u32,
}

/// Why a volume cannot be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Not a power of two from 4 KiB to 1 MiB.
    #[error("a page of {page_bytes} bytes: must be a power of two from 4 KiB to 1 MiB")]
    PageSize {
        /// The size that was asked for.
        page_bytes: u32,
    },
    /// Not a multiple of the page, or out of range.
    #[error(
        "a segment of {segment_bytes} bytes: must be a multiple of the page, at least 4 pages \
         and at most 1 GiB"
    )]
    SegmentSize {
        /// The size that was asked for.
        segment_bytes: u64,
    },
    /// The index has no slots, or too many.
    #[error("an index of {index_slots} slots: must be from 1 to 2^40")]
    IndexSlots {
        /// The number that was asked for.
        index_slots: u64,
    },
    /// Volume 0 needs a journal.
    #[error("a journal of {journal_bytes} bytes: must be more than 0 and far less than the volume")]
    JournalSize {
        /// The size that was asked for.
        journal_bytes: u64,
    },
    /// Fewer than [`SEGMENTS_MIN`] segments fit.
    #[error("a volume of {volume_bytes} bytes is too small: at least {minimum_bytes} are needed")]
    TooSmall {
        /// Bytes of the volume.
        volume_bytes: u64,
        /// Bytes at which four segments fit.
        minimum_bytes: u64,
    },
    /// More than [`SEGMENTS_MAX`].
    #[error("{segments} segments: at most 2^28, choose larger segments")]
    TooManySegments {
        /// How many would fit.
        segments: u64,
    },
}

impl VolumeLayout {
    /// Cuts a volume into areas.
    ///
    /// # Errors
    /// A size that is out of range, or a volume that is too small (naming the minimum).
    pub fn plan(request: &PlanRequest) -> Result<Self, LayoutError> {
        let PlanRequest { volume_bytes, page_bytes, segment_bytes, index_slots, .. } = *request;
        if !page_size_ok(page_bytes) {
            return Err(LayoutError::PageSize { page_bytes });
        }
        if !segment_size_ok(segment_bytes, page_bytes) {
            return Err(LayoutError::SegmentSize { segment_bytes });
        }
        if !(1..=INDEX_SLOTS_MAX).contains(&index_slots) {
            return Err(LayoutError::IndexSlots { index_slots });
        }
        let (journal_bytes, checkpoint_bytes) = first_volume_areas(request, volume_bytes)?;
        let lives_bytes = lives_bytes(request, volume_bytes);
        let areas_bytes = journal_bytes + 2 * checkpoint_bytes + lives_bytes;
        let segments_offset = segments_start(segment_bytes, areas_bytes);
        let segments = volume_bytes.saturating_sub(segments_offset) / segment_bytes;
        if segments < u64::from(SEGMENTS_MIN) {
            let minimum_bytes = minimum_bytes(request)?;
            return Err(LayoutError::TooSmall { volume_bytes, minimum_bytes });
        }
        let segment_count = segments_ok(segments)?;
        Ok(Self {
            journal_offset: AREAS_OFFSET,
            journal_bytes,
            checkpoint_offset: AREAS_OFFSET + journal_bytes,
            checkpoint_bytes,
            segments_offset,
            segment_bytes,
            segment_count,
        })
    }

    /// Offset and bytes of a journal half in one of its two copies (0 or 1 each; any other number
    /// means 1).
    #[must_use]
    pub const fn journal_half(&self, copy: usize, half: usize) -> (u64, u64) {
        let bytes = self.journal_bytes / JOURNAL_PARTS;
        let before = if copy == 0 { 0 } else { 2 } + if half == 0 { 0 } else { 1 };
        (self.journal_offset.saturating_add(before * bytes), bytes)
    }

    /// Offset of a checkpoint slot (0 or 1; any other number means slot 1).
    #[must_use]
    pub const fn checkpoint_slot(&self, slot: usize) -> u64 {
        self.checkpoint_offset.saturating_add(if slot == 0 { 0 } else { self.checkpoint_bytes })
    }

    /// Offset of the table of lives.
    #[must_use]
    pub const fn lives_offset(&self) -> u64 {
        self.checkpoint_slot(1).saturating_add(self.checkpoint_bytes)
    }

    /// Where a block of the table of lives is, which of the volume's segments is its first, and how
    /// many it has.
    #[must_use]
    pub fn lives_block(&self, number: u32) -> (u64, u32, u32) {
        let before = number.saturating_mul(LIVES_PER_BLOCK);
        let segments = self.segment_count.saturating_sub(before).min(LIVES_PER_BLOCK);
        let at = u64::from(number).saturating_mul(BLOCK_BYTES);
        (self.lives_offset().saturating_add(at), before, segments)
    }

    /// Offset on the volume of its `index`-th segment, or `None` if it has no such segment.
    #[must_use]
    pub fn segment_offset(&self, index: u32) -> Option<u64> {
        if index >= self.segment_count {
            return None;
        }
        u64::from(index).checked_mul(self.segment_bytes)?.checked_add(self.segments_offset)
    }
}

/// How the first segment is aligned: to 1 MiB, or to the segment size if that is smaller.
pub(super) const fn segment_align(segment_bytes: u64) -> u64 {
    if segment_bytes < ALIGN_MAX { segment_bytes } else { ALIGN_MAX }
}

/// At most how many segments a volume holds; the sum over all volumes is a valid
/// [`PlanRequest::total_segments`].
#[must_use]
pub fn segments_upper_bound(volume_bytes: u64, segment_bytes: u64) -> u32 {
    let segments = volume_bytes.checked_div(segment_bytes).unwrap_or(0);
    u32::try_from(segments).unwrap_or(u32::MAX)
}

/// Bytes of one checkpoint slot: header, tables (segments, page strides, marks, shard checksums)
/// and shards.
///
/// `index_slots` above [`INDEX_SLOTS_MAX`] counts as that.
#[must_use]
pub fn checkpoint_slot_bytes(index_slots: u64, total_segments: u32) -> u64 {
    let shards = ShardPlan::of(index_slots.min(INDEX_SLOTS_MAX));
    let tables = u64::from(total_segments) * (8 + 2)
        + u64::from(MARKS_MAX) * JOURNAL_CELL_BYTES as u64
        + u64::from(shards.shard_count) * 4;
    BLOCK_BYTES + tables.next_multiple_of(BLOCK_BYTES) + shards.total_bytes()
}

/// Journal and checkpoint sizes of a volume of `volume_bytes`: only volume 0 has them.
fn first_volume_areas(request: &PlanRequest, volume_bytes: u64) -> Result<(u64, u64), LayoutError> {
    if request.volume_index != 0 {
        return Ok((0, 0));
    }
    let journal_bytes = round_up(request.journal_bytes, JOURNAL_PARTS * BLOCK_BYTES)
        .filter(|bytes| (1..=JOURNAL_MAX).contains(bytes))
        .ok_or(LayoutError::JournalSize { journal_bytes: request.journal_bytes })?;
    let here = segments_upper_bound(volume_bytes, request.segment_bytes);
    let total_segments = segments_ok(u64::from(request.total_segments.max(here)))?;
    Ok((journal_bytes, checkpoint_slot_bytes(request.index_slots, total_segments)))
}

/// Bytes of the table of lives: for as many segments as fit on the volume without any areas.
fn lives_bytes(request: &PlanRequest, volume_bytes: u64) -> u64 {
    lives_area_bytes(segments_upper_bound(volume_bytes, request.segment_bytes))
}

/// The count as stored, unless there are too many.
fn segments_ok(segments: u64) -> Result<u32, LayoutError> {
    u32::try_from(segments)
        .ok()
        .filter(|count| *count <= SEGMENTS_MAX)
        .ok_or(LayoutError::TooManySegments { segments })
}

/// Where the first segment starts. No overflow: a journal is at most 2^50 bytes, a slot 2^44.
const fn segments_start(segment_bytes: u64, areas_bytes: u64) -> u64 {
    (AREAS_OFFSET + areas_bytes).next_multiple_of(segment_align(segment_bytes))
}

/// The size at which [`SEGMENTS_MIN`] segments fit. A larger volume has a larger segment table, so
/// the size is approached from below; it settles at once unless the table just fills a block.
fn minimum_bytes(request: &PlanRequest) -> Result<u64, LayoutError> {
    let mut minimum = 0;
    loop {
        let (journal, checkpoint) = first_volume_areas(request, minimum)?;
        let areas = journal + 2 * checkpoint + lives_bytes(request, minimum);
        let start = segments_start(request.segment_bytes, areas);
        let needed = start + u64::from(SEGMENTS_MIN) * request.segment_bytes;
        if needed <= minimum {
            return Ok(minimum);
        }
        minimum = needed;
    }
}
