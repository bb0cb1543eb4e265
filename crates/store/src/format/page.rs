//! The header of a page: a run of small records that were written together.
//!
//! Owns the first 64 bytes of a page; the records follow adjacently from offset 64, and what lies
//! behind them means nothing. Invariants: a page is written once per life of its segment;
//! `segment_seq` tells this life from an older one; a decoded header's `used_bytes` lies inside the
//! page, and its stride is one that the store's pages may have.
//!
//! Threads: none; pure functions.

use super::fields::{Field, Slot, table};
use super::record::RECORD_HEADER_BYTES;
use super::record_walk::RecordWalk;
use super::{BLOCK_BYTES, FormatError, StoreNonce, UNIT_BYTES, ensure, first, is_like};
use crate::types::SegmentLife;

/// Bytes of a page header.
pub const PAGE_HEADER_BYTES: usize = 64;

const MAGIC: u32 = 0x4547_4150;
/// A record is at least a header and one more unit, since its key is not empty.
const RECORD_MIN_BYTES: u64 = RECORD_HEADER_BYTES as u64 + UNIT_BYTES;

pub(crate) mod at {
    use super::{Field, PAGE_HEADER_BYTES, Slot, table};
    table! { PAGE_HEADER_BYTES;
        MAGIC: u32, 0, "magic", "`PAGE`; tells a page from an extent";
        NONCE: u32, 4, "nonce", "tells this store from the device's former user";
        SEGMENT_SEQ: u64, 8, "segment_seq",
            "life of the segment; an older page left here has a smaller one";
        PAGE_INDEX: u32, 16, "page_index",
            "place within the segment; a misdirected write is noticed";
        RECORD_COUNT: u32, 20, "record_count",
            "records that follow; a walk that finds another number is damaged";
        USED_BYTES: u32, 24, "used_bytes", "end of the last record, this header included";
        STRIDE_BYTES: u32, 28, "stride_bytes",
            "distance of the segment's pages; whole blocks, from three quarters of a page to a page";
        PRIMARY_GROUP: u64, 32, "primary_group", "group that the page was opened for";
        ZERO: [u8; 20], 40, "zero", "room";
        CRC: u32, 60, "header_crc", "crc32c of bytes 0..60";
    }
}

/// The smallest distance that pages of this size may have: three quarters of it, in whole blocks.
///
/// Objects of any one length up to a third of a page fill at least that much of it.
#[must_use]
pub const fn page_stride_min(page_bytes: u64) -> u64 {
    (page_bytes - page_bytes / 4).next_multiple_of(BLOCK_BYTES)
}

/// Whether pages of a segment may lie this many bytes apart.
#[must_use]
pub const fn is_page_stride(stride_bytes: u64, page_bytes: u64) -> bool {
    stride_bytes.is_multiple_of(BLOCK_BYTES)
        && stride_bytes >= page_stride_min(page_bytes)
        && stride_bytes <= page_bytes
}

/// What starts a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// The store.
    pub nonce: StoreNonce,
    /// The life of the segment.
    pub segment_seq: u64,
    /// Place of the page within the segment.
    pub page_index: u32,
    /// Records in the page.
    pub record_count: u32,
    /// Bytes used, this header included.
    pub used_bytes: u32,
    /// Distance of the pages of this segment, in bytes; see [`is_page_stride`].
    pub stride_bytes: u32,
    /// The group that the page was opened for.
    pub primary_group: u64,
}

impl PageHeader {
    /// The life of the segment.
    pub(crate) const fn life(&self) -> SegmentLife {
        SegmentLife::from_raw(self.segment_seq)
    }

    /// The first 64 bytes of the page.
    #[must_use]
    pub fn encode(&self) -> [u8; PAGE_HEADER_BYTES] {
        let mut bytes = [0; PAGE_HEADER_BYTES];
        at::MAGIC.put(&mut bytes, MAGIC);
        at::NONCE.put(&mut bytes, self.nonce.0);
        at::SEGMENT_SEQ.put(&mut bytes, self.segment_seq);
        at::PAGE_INDEX.put(&mut bytes, self.page_index);
        at::RECORD_COUNT.put(&mut bytes, self.record_count);
        at::USED_BYTES.put(&mut bytes, self.used_bytes);
        at::STRIDE_BYTES.put(&mut bytes, self.stride_bytes);
        at::PRIMARY_GROUP.put(&mut bytes, self.primary_group);
        at::CRC.seal(&mut bytes);
        bytes
    }

    /// Decodes the start of a page.
    ///
    /// # Errors
    /// Not a page, another store's, or damaged.
    pub fn decode(bytes: &[u8], nonce: StoreNonce, page_bytes: u32) -> Result<Self, FormatError> {
        let bytes = first::<PAGE_HEADER_BYTES>(bytes)?;
        if at::MAGIC.get(bytes) != MAGIC {
            return Err(FormatError::NotOurs);
        }
        if !at::CRC.sealed(bytes) {
            return Err(FormatError::Checksum { what: "page header" });
        }
        let found = at::NONCE.get(bytes);
        if found != nonce.0 {
            return Err(FormatError::OtherStore { found });
        }
        ensure(at::ZERO.is_zero(bytes), "reserved bytes of a page header")?;
        let header = Self {
            nonce,
            segment_seq: at::SEGMENT_SEQ.get(bytes),
            page_index: at::PAGE_INDEX.get(bytes),
            record_count: at::RECORD_COUNT.get(bytes),
            used_bytes: at::USED_BYTES.get(bytes),
            stride_bytes: at::STRIDE_BYTES.get(bytes),
            primary_group: at::PRIMARY_GROUP.get(bytes),
        };
        header.validate(page_bytes)?;
        Ok(header)
    }

    /// Whether bytes that do not decode were once one of this store.
    #[must_use]
    pub fn is_like(bytes: &[u8], nonce: StoreNonce) -> bool {
        is_like(bytes, MAGIC, nonce)
    }

    /// Walks the records of the page that this header starts.
    #[must_use]
    pub fn records<'a>(&self, page: &'a [u8]) -> RecordWalk<'a> {
        RecordWalk::of_page(page, self)
    }

    fn validate(&self, page_bytes: u32) -> Result<(), FormatError> {
        let used = u64::from(self.used_bytes);
        let stride = u64::from(self.stride_bytes);
        ensure(is_page_stride(stride, page_bytes.into()), "stride of a page")?;
        ensure(used <= stride, "used bytes of a page")?;
        ensure(used.is_multiple_of(UNIT_BYTES), "used bytes of a page")?;
        let records = used.checked_sub(PAGE_HEADER_BYTES as u64);
        let count = u64::from(self.record_count);
        let fits = records.is_some_and(|bytes| count * RECORD_MIN_BYTES <= bytes);
        ensure(fits, "record count of a page")?;
        ensure((count == 0) == (records == Some(0)), "record count of a page")
    }
}
