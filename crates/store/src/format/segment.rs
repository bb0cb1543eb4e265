//! The end of a full segment: a footer that says the segment is complete, and a summary of it.
//!
//! Owns the footer (first 64 bytes of the segment's last block) and the 32-byte summary entries
//! that end where the footer's block begins. Invariants: both are written after the writes of
//! everything they describe are complete, so a segment without a valid footer of the expected
//! `segment_seq` was being filled and has to be walked; a loss of power may keep them and lose some
//! of what they describe; a summary entry never reaches beyond the start of the summary.
//!
//! Threads: none; pure functions.

use super::fields::{Field, Slot, table};
use super::record::RecordKind;
use super::superblock::PAGE_BYTES_MAX;
use super::{BLOCK, BLOCK_BYTES, FormatError, StoreNonce, UNIT_BYTES, ensure, first, is_like};
use crate::types::{GroupId, KeyHash, SegmentLife, Sequence};

/// Bytes of the block that holds the footer.
pub const FOOTER_BLOCK_BYTES: usize = BLOCK;
/// Bytes of the footer itself.
pub(crate) const FOOTER_BYTES: usize = 64;
/// Bytes of a summary entry.
pub const SUMMARY_ENTRY_BYTES: usize = 32;

const MAGIC: u32 = 0x544f_4f46;
const KIND_NONE: u8 = 0xff;
const STORED_UNITS_MAX: u32 = (1 << 24) - 1;

pub(crate) mod footer_at {
    use super::{FOOTER_BYTES, Field, Slot, table};
    table! { FOOTER_BYTES;
        MAGIC: u32, 0, "magic", "`FOOT`";
        NONCE: u32, 4, "nonce", "tells this store from the device's former user";
        SEGMENT_ID: u32, 8, "segment_id", "store-wide id; a misdirected write is noticed";
        ENTRY_COUNT: u32, 12, "entry_count", "entries of the summary";
        SEGMENT_SEQ: u64, 16, "segment_seq",
            "life of the segment; pages of this life carry the same one";
        SUMMARY_OFFSET: u32, 24, "summary_offset", "exact start of the entries within the segment";
        SUMMARY_BYTES: u32, 28, "summary_bytes",
            "32 x entry_count; the entries end at the footer's block";
        SUMMARY_CRC: u32, 32, "summary_crc", "crc32c of the entries";
        GROUP_RUN_COUNT: u32, 36, "group_run_count",
            "runs of adjacent entries of one group; how well it is co-located";
        OBJECT_BYTES: u64, 40, "object_bytes",
            "bytes of records, without page headers and free space";
        PAGE_STRIDE_BYTES: u32, 48, "page_stride_bytes", "as in the headers of its pages";
        ZERO: [u8; 8], 52, "zero", "room";
        CRC: u32, 60, "header_crc", "crc32c of bytes 0..60; the rest of the block is zero";
    }
}

pub(crate) mod entry_at {
    use super::{Field, SUMMARY_ENTRY_BYTES, Slot, table};
    table! { SUMMARY_ENTRY_BYTES;
        HASH: u64, 0, "hash", "seeded hash of the key: rebuilds the index without reading records";
        GROUP: u64, 8, "group", "group of the object: purges are decided without reading records";
        SEQ: u64, 16, "seq", "write order: newest wins";
        OFFSET_UNITS: u32, 24, "offset_units", "place of the record in the segment / 64";
        STORED_UNITS: [u8; 3], 28, "stored_units", "stored length of the record / 64, 24 bits";
        KIND: u8, 31, "kind", "as in the record header; 0xff for an entry to be skipped";
    }
}

/// What closes a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFooter {
    /// The store.
    pub nonce: StoreNonce,
    /// Store-wide id of the segment.
    pub segment_id: u32,
    /// Entries of the summary.
    pub entry_count: u32,
    /// Life of the segment.
    pub segment_seq: u64,
    /// Start of the entries within the segment.
    pub summary_offset: u32,
    /// Bytes of the entries.
    pub summary_bytes: u32,
    /// Checksum of the entries.
    pub summary_crc: u32,
    /// Runs of adjacent entries of one group.
    pub group_run_count: u32,
    /// Bytes of records in the segment.
    pub object_bytes: u64,
    /// Distance of its pages, in bytes.
    pub page_stride_bytes: u32,
}

impl SegmentFooter {
    /// The life of the segment.
    pub(crate) const fn life(&self) -> SegmentLife {
        SegmentLife::from_raw(self.segment_seq)
    }

    /// The last block of the segment.
    #[must_use]
    pub fn encode(&self) -> [u8; FOOTER_BLOCK_BYTES] {
        let mut bytes = [0; FOOTER_BYTES];
        footer_at::MAGIC.put(&mut bytes, MAGIC);
        footer_at::NONCE.put(&mut bytes, self.nonce.0);
        footer_at::SEGMENT_ID.put(&mut bytes, self.segment_id);
        footer_at::ENTRY_COUNT.put(&mut bytes, self.entry_count);
        footer_at::SEGMENT_SEQ.put(&mut bytes, self.segment_seq);
        footer_at::SUMMARY_OFFSET.put(&mut bytes, self.summary_offset);
        footer_at::SUMMARY_BYTES.put(&mut bytes, self.summary_bytes);
        footer_at::SUMMARY_CRC.put(&mut bytes, self.summary_crc);
        footer_at::GROUP_RUN_COUNT.put(&mut bytes, self.group_run_count);
        footer_at::OBJECT_BYTES.put(&mut bytes, self.object_bytes);
        footer_at::PAGE_STRIDE_BYTES.put(&mut bytes, self.page_stride_bytes);
        footer_at::CRC.seal(&mut bytes);
        let mut block = [0; FOOTER_BLOCK_BYTES];
        block[..FOOTER_BYTES].copy_from_slice(&bytes);
        block
    }

    /// Decodes the start of the last block of a segment.
    ///
    /// # Errors
    /// Not a footer, another store's, or damaged.
    pub fn decode(
        bytes: &[u8],
        nonce: StoreNonce,
        segment_bytes: u64,
    ) -> Result<Self, FormatError> {
        let bytes = first::<FOOTER_BYTES>(bytes)?;
        if footer_at::MAGIC.get(bytes) != MAGIC {
            return Err(FormatError::NotOurs);
        }
        if !footer_at::CRC.sealed(bytes) {
            return Err(FormatError::Checksum { what: "segment footer" });
        }
        let found = footer_at::NONCE.get(bytes);
        if found != nonce.0 {
            return Err(FormatError::OtherStore { found });
        }
        ensure(footer_at::ZERO.is_zero(bytes), "reserved bytes of a footer")?;
        let footer = Self {
            nonce,
            segment_id: footer_at::SEGMENT_ID.get(bytes),
            entry_count: footer_at::ENTRY_COUNT.get(bytes),
            segment_seq: footer_at::SEGMENT_SEQ.get(bytes),
            summary_offset: footer_at::SUMMARY_OFFSET.get(bytes),
            summary_bytes: footer_at::SUMMARY_BYTES.get(bytes),
            summary_crc: footer_at::SUMMARY_CRC.get(bytes),
            group_run_count: footer_at::GROUP_RUN_COUNT.get(bytes),
            object_bytes: footer_at::OBJECT_BYTES.get(bytes),
            page_stride_bytes: footer_at::PAGE_STRIDE_BYTES.get(bytes),
        };
        footer.validate(segment_bytes)?;
        Ok(footer)
    }

    /// Whether bytes that do not decode were once one of this store.
    #[must_use]
    pub fn is_like(bytes: &[u8], nonce: StoreNonce) -> bool {
        is_like(bytes, MAGIC, nonce)
    }

    /// Start of the first block that holds entries: what to read from.
    #[must_use]
    pub const fn summary_block(&self) -> u64 {
        let offset = self.summary_offset as u64;
        offset - offset % BLOCK_BYTES
    }

    fn validate(&self, segment_bytes: u64) -> Result<(), FormatError> {
        let bytes = u64::from(self.entry_count) * SUMMARY_ENTRY_BYTES as u64;
        ensure(bytes == u64::from(self.summary_bytes), "summary size")?;
        let end = u64::from(self.summary_offset) + bytes;
        ensure(segment_bytes.checked_sub(BLOCK_BYTES) == Some(end), "summary offset")?;
        ensure(self.group_run_count <= self.entry_count, "group runs of a footer")?;
        ensure(self.object_bytes <= u64::from(self.summary_offset), "object bytes of a footer")?;
        let stride = u64::from(self.page_stride_bytes);
        let possible = (BLOCK_BYTES..=u64::from(PAGE_BYTES_MAX)).contains(&stride);
        ensure(possible && stride.is_multiple_of(BLOCK_BYTES), "page stride of a footer")?;
        ensure(self.segment_seq != 0, "segment sequence of a footer")
    }
}

/// One record of a closed segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummaryEntry {
    /// Seeded hash of the key.
    pub hash: u64,
    /// Group of the object.
    pub group: u64,
    /// Write order.
    pub seq: u64,
    /// Place of the record within the segment, in units.
    pub offset_units: u32,
    /// Stored length of the record in units; less than 2^24.
    pub stored_units: u32,
    /// What the record is; `None` for an entry that is to be skipped.
    pub kind: Option<RecordKind>,
}

impl SummaryEntry {
    /// The hash of the record's key.
    pub(crate) const fn key_hash(&self) -> KeyHash {
        KeyHash::from_raw(self.hash)
    }

    /// The group of the object.
    pub(crate) const fn group(&self) -> GroupId {
        GroupId::new(self.group)
    }

    /// The record's place in the order of writes.
    pub(crate) const fn sequence(&self) -> Sequence {
        Sequence::from_raw(self.seq)
    }

    /// The entry's bytes; a stored length that does not fit is cut to the largest that does.
    #[must_use]
    pub fn encode(&self) -> [u8; SUMMARY_ENTRY_BYTES] {
        let [low, middle, high, _] = self.stored_units.min(STORED_UNITS_MAX).to_le_bytes();
        let mut bytes = [0; SUMMARY_ENTRY_BYTES];
        entry_at::HASH.put(&mut bytes, self.hash);
        entry_at::GROUP.put(&mut bytes, self.group);
        entry_at::SEQ.put(&mut bytes, self.seq);
        entry_at::OFFSET_UNITS.put(&mut bytes, self.offset_units);
        entry_at::STORED_UNITS.put(&mut bytes, [low, middle, high]);
        entry_at::KIND.put(&mut bytes, self.kind.map_or(KIND_NONE, RecordKind::as_u8));
        bytes
    }

    /// Decodes one entry; `limit` is where records of the segment end at the latest (the footer's
    /// `summary_offset`).
    ///
    /// # Errors
    /// An unknown kind, or a record that does not lie before `limit`.
    pub fn decode(bytes: &[u8], limit: u64) -> Result<Self, FormatError> {
        let bytes = first::<SUMMARY_ENTRY_BYTES>(bytes)?;
        let [low, middle, high] = entry_at::STORED_UNITS.get(bytes);
        let number = entry_at::KIND.get(bytes);
        let kind = RecordKind::from_u8(number);
        ensure(kind.is_some() || number == KIND_NONE, "kind of a summary entry")?;
        let entry = Self {
            hash: entry_at::HASH.get(bytes),
            group: entry_at::GROUP.get(bytes),
            seq: entry_at::SEQ.get(bytes),
            offset_units: entry_at::OFFSET_UNITS.get(bytes),
            stored_units: u32::from_le_bytes([low, middle, high, 0]),
            kind,
        };
        let end = u64::from(entry.offset_units) + u64::from(entry.stored_units);
        ensure(end <= limit / UNIT_BYTES, "place of a summary entry")?;
        ensure(kind.is_none() || entry.stored_units >= 2, "length of a summary entry")?;
        Ok(entry)
    }
}

/// The entries' bytes, to be written so that they end where the footer's block begins.
#[must_use]
pub fn encode_summary(entries: &[SummaryEntry]) -> Vec<u8> {
    let mut bytes = vec![0; entries.len() * SUMMARY_ENTRY_BYTES];
    encode_summary_to(entries, &mut bytes);
    bytes
}

/// The same, into `bytes`, which has room for exactly that.
///
/// # Panics
/// If it has not.
pub fn encode_summary_to(entries: &[SummaryEntry], bytes: &mut [u8]) {
    let (places, rest) = bytes.as_chunks_mut::<SUMMARY_ENTRY_BYTES>();
    assert!(places.len() == entries.len() && rest.is_empty(), "room for the summary");
    for (place, entry) in places.iter_mut().zip(entries) {
        *place = entry.encode();
    }
}

/// Decodes the entries that a footer describes; `bytes` starts at the first entry.
///
/// # Errors
/// Too few bytes, a checksum that does not match, or an entry that is inconsistent.
pub fn decode_summary(
    bytes: &[u8],
    footer: &SegmentFooter,
) -> Result<Vec<SummaryEntry>, FormatError> {
    let need = u64::from(footer.summary_bytes);
    let short = FormatError::Short { need, have: bytes.len() as u64 };
    let length = usize::try_from(need).map_err(|_| short)?;
    let bytes = bytes.get(..length).ok_or(short)?;
    let (entries, rest) = bytes.as_chunks::<SUMMARY_ENTRY_BYTES>();
    let whole = rest.is_empty() && entries.len() as u64 == u64::from(footer.entry_count);
    ensure(whole, "summary size")?;
    if crc32c::crc32c(bytes) != footer.summary_crc {
        return Err(FormatError::Checksum { what: "segment summary" });
    }
    let limit = u64::from(footer.summary_offset);
    entries.iter().map(|entry| SummaryEntry::decode(entry, limit)).collect()
}
