//! The on-disk format: every byte the store writes to a volume is laid out here and nowhere else.
//!
//! Table of contents (read in this order):
//! - `fields`     the byte tables that the codecs read by and `docs/format.md` renders
//! - `superblock` what a volume is: sizes, areas, identity
//! - `layout`     how a volume is cut into areas when it is formatted
//! - `record`     one object, manifest, part or patch: header, body checksums; `record_walk`: a
//!   buffer of adjacent ones
//! - `page`       a group of adjacent small records
//! - `manifest`   the value of a manifest record: where the parts of a large object are
//! - `patch`      the value of a patch record: which record the new metadata belongs to
//! - `segment`    the footer and the summary that close a segment
//! - `lives`      which life each segment is in
//! - `journal`    deletions and purges
//! - `checkpoint` a saved index
//! - `mend`       a single bit that has turned over under a checksum, put right
//!
//! Invariants: everything is little-endian; every decoder accepts any bytes at all, of any length,
//! without a panic or an overflow; nothing is accepted before its checksum has been verified; bytes
//! that are reserved are written zero and refused otherwise.
//!
//! Threads: pure functions over caller-owned buffers; no shared state.

mod checkpoint;
mod fields;
mod journal;
mod layout;
mod lives;
mod manifest;
mod mend;
mod page;
mod patch;
mod record;
mod record_walk;
mod segment;
mod superblock;

#[cfg(test)]
mod tests;

pub use checkpoint::{CheckpointHeader, CheckpointTables, MARKS_MAX, ShardPlan};
pub use journal::{JOURNAL_CELL_BYTES, JournalOp, JournalRecord, JournalWalk, PREFIX_BYTES_MAX};
pub(crate) use layout::JOURNAL_PARTS;
pub use layout::{
    LayoutError, PlanRequest, SEGMENTS_MAX, SEGMENTS_MIN, VolumeLayout, checkpoint_slot_bytes,
    segments_upper_bound,
};
pub use lives::{LIVES_PER_BLOCK, LifeBlock, LifeEntry};
pub use manifest::{
    MANIFEST_HEAD_BYTES, MANIFEST_PART_BYTES, MANIFEST_PARTS_MAX, Manifest, ManifestPart,
};
pub use mend::mend_bit;
pub use page::{PAGE_HEADER_BYTES, PageHeader, is_page_stride, page_stride_min};
pub use patch::{PATCH_BYTES, Patch};
pub use record::{
    CHUNK_BYTES, ChunkCrcs, KEY_BYTES_MAX, META_BYTES_MAX, RECORD_HEADER_BYTES, RecordError,
    RecordFields, RecordHeader, RecordKind, VALUE_BYTES_MAX, encode_around_value, encode_head_into,
    encode_record_into, verify_body, verify_chunks, verify_head,
};
pub(crate) use record::{RecordView, number_record, settle_record, verify_record};
pub use record_walk::RecordWalk;
pub use segment::{
    FOOTER_BLOCK_BYTES, SUMMARY_ENTRY_BYTES, SegmentFooter, SummaryEntry, decode_summary,
    encode_summary, encode_summary_to,
};
pub use superblock::{
    INDEX_SLOTS_MAX, PAGE_BYTES_MAX, PAGE_MIN_BYTES, SEGMENT_BYTES_MAX, SUPERBLOCK_BYTES,
    Superblock,
};

/// The granularity of record addresses: records begin at multiples of it.
pub const UNIT_BYTES: u64 = 64;

/// The granularity of device input and output: pages, extents and areas begin at multiples of it.
pub const BLOCK_BYTES: u64 = 4096;

/// `BLOCK_BYTES` for array lengths.
pub const BLOCK: usize = 4096;

/// The one version of the format that this code reads and writes.
pub const FORMAT_VERSION: u32 = 5;

/// Offset of the journal area (and of everything that follows the two superblocks).
pub const AREAS_OFFSET: u64 = 65_536;

/// Bytes of one index slot as saved by a checkpoint.
pub const INDEX_SLOT_BYTES: u64 = 8;

const _: () = assert!(BLOCK as u64 == BLOCK_BYTES && BLOCK_BYTES.is_multiple_of(UNIT_BYTES));
const _: () = assert!(AREAS_OFFSET.is_multiple_of(BLOCK_BYTES) && AREAS_OFFSET >= 2 * BLOCK_BYTES);

/// Tells this store's records from those another store left on the same device.
///
/// The first four bytes of the store's random id; it is part of every structure but the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreNonce(pub u32);

impl StoreNonce {
    /// The nonce of the store with this id.
    #[must_use]
    pub const fn of(store_id: &[u8; 16]) -> Self {
        Self(u32::from_le_bytes([store_id[0], store_id[1], store_id[2], store_id[3]]))
    }
}

/// Why bytes are not a structure of this format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Fewer bytes than the structure takes.
    #[error("{have} bytes where at least {need} are needed")]
    Short {
        /// Bytes needed.
        need: u64,
        /// Bytes present.
        have: u64,
    },
    /// The magic is another one: nothing of this kind was ever written here (or it was erased).
    #[error("not this store format (the magic differs)")]
    NotOurs,
    /// Well-formed, but of another store that used the device before.
    #[error("written by another store (nonce {found:#010x})")]
    OtherStore {
        /// The nonce that was found.
        found: u32,
    },
    /// A superblock of a version this code does not read.
    #[error("format version {found}, this program reads version {FORMAT_VERSION} only")]
    OtherVersion {
        /// The version that was found.
        found: u32,
    },
    /// The checksum does not match: torn or rotten.
    #[error("checksum mismatch in the {what}")]
    Checksum {
        /// The structure.
        what: &'static str,
    },
    /// The checksum matches, but what it says contradicts itself or the geometry.
    #[error("inconsistent: {what}")]
    Damaged {
        /// What is inconsistent.
        what: &'static str,
    },
}

/// `Damaged` unless the relation holds.
pub(crate) const fn ensure(holds: bool, what: &'static str) -> Result<(), FormatError> {
    if holds { Ok(()) } else { Err(FormatError::Damaged { what }) }
}

/// The first `N` bytes, or `Short`.
pub(crate) fn first<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], FormatError> {
    bytes.first_chunk::<N>().ok_or(FormatError::Short { need: N as u64, have: bytes.len() as u64 })
}

/// Bits by which what a structure begins with, magic and nonce, may differ where a damaged one is
/// still recognised. Another store's nonce, and whatever else may lie there, differs by more.
const LIKENESS_BITS: u32 = 3;

/// Whether bytes that do not decode were once a structure of this store: they begin as one does,
/// but for a few bits.
pub(crate) fn is_like(bytes: &[u8], magic: u32, nonce: StoreNonce) -> bool {
    let begin = u64::from(magic) | u64::from(nonce.0) << 32;
    let found = bytes.first_chunk::<8>().map(|found| u64::from_le_bytes(*found));
    found.is_some_and(|found| (found ^ begin).count_ones() <= LIKENESS_BITS)
}

/// Rounds up to a multiple of `step`; `None` on overflow (or when `step` is 0).
pub(crate) const fn round_up(value: u64, step: u64) -> Option<u64> {
    if step == 0 { None } else { value.checked_next_multiple_of(step) }
}
