//! One record: a header of 64 bytes, then its body, then zeros up to the next 64-byte boundary.
//!
//! Owns the record header and what it says of the body, which `body` writes and verifies. A plain
//! body is `key | meta | value` and `body_crc` covers all of it. A body with the CHUNKED flag is
//! `table | key | meta | value`; the table holds the checksum of each 64 KiB of the value and
//! `body_crc` covers `table | key | meta`, so a range can be verified without reading the rest.
//!
//! Invariants: a decoded header's lengths are within their limits, so none of its sums overflow;
//! `RecordHeader::decode` never accepts another store's record. A record on disk says in which life
//! of its segment it was written: after a loss of power, a summary or an index may list a record
//! that never reached the disk, and what lies there may be an older one of the same key.
//!
//! Threads: none; pure functions over caller-owned buffers.

use std::ops::Range;

use super::fields::{Field, Slot, table};
use super::manifest::{MANIFEST_HEAD_BYTES, MANIFEST_PART_BYTES};
use super::patch::PATCH_BYTES;
use super::{StoreNonce, UNIT_BYTES, is_like};
use crate::types::{GroupId, KeyHash, SegmentLife, Sequence};

mod body;
mod view;
pub use body::{
    ChunkCrcs, encode_around_value, encode_head_into, encode_record_into, verify_body,
    verify_chunks, verify_head,
};
pub(crate) use body::{number_record, settle_record, verify_record};
pub(crate) use view::RecordView;

/// Bytes of a record header.
pub const RECORD_HEADER_BYTES: usize = 64;
/// The longest key.
pub const KEY_BYTES_MAX: u32 = 65_536;
/// The most metadata.
pub const META_BYTES_MAX: u32 = 1 << 20;
/// The longest value a header may claim.
pub const VALUE_BYTES_MAX: u64 = 1 << 40;
/// The piece of a CHUNKED value that has a checksum of its own.
pub const CHUNK_BYTES: u64 = 65_536;

const MAGIC: u32 = 0x4f4c_4544;
const FLAG_EXPIRES: u8 = 1;
const FLAG_CHUNKED: u8 = 2;
const FLAGS_KNOWN: u8 = FLAG_EXPIRES | FLAG_CHUNKED;
const CRC_BYTES: u64 = 4;

pub(crate) mod at {
    use super::{Field, RECORD_HEADER_BYTES, Slot, table};
    table! { RECORD_HEADER_BYTES;
        MAGIC: u32, 0, "magic", "`DELO`; tells a record from a page header or free space";
        NONCE: u32, 4, "nonce", "tells this store from the device's former user";
        KIND: u8, 8, "kind", "1 object, 2 manifest, 3 part, 4 patch";
        FLAGS: u8, 9, "flags", "bit 0 expires, bit 1 CHUNKED; others zero";
        KEY_LEN_LESS_ONE: u16, 10, "key_len_less_one", "keys have 1 to 65536 bytes";
        SEGMENT_SEQ_LOW: u32, 12, "segment_seq_low",
            "low half of the segment's life; tells a leftover of a former one; 0 until placed";
        META_LEN: u32, 16, "meta_len", "0 to 1 MiB";
        BODY_CRC: u32, 20, "body_crc", "crc32c of key, meta, value; of table, key, meta if CHUNKED";
        VALUE_LEN: u64, 24, "value_len", "0 to 2^40";
        HASH: u64, 32, "hash", "seeded hash of the key; rebuilds the index without reading bodies";
        SEQ: u64, 40, "seq", "write order in the store; newest wins, purges name a bound";
        GROUP: u64, 48, "group", "what the object is kept close to and purged with";
        EXPIRES_S: u32, 56, "expires_s", "Unix seconds, 0 = never; not 0 exactly if bit 0 is set";
        CRC: u32, 60, "header_crc", "crc32c of bytes 0..60";
    }
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// A whole object.
    Object = 1,
    /// The list of the parts of a large object.
    Manifest = 2,
    /// One part of a large object.
    Part = 3,
    /// New metadata for an object stored elsewhere.
    Patch = 4,
}

impl RecordKind {
    /// The kind with this number.
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Object),
            2 => Some(Self::Manifest),
            3 => Some(Self::Part),
            4 => Some(Self::Patch),
            _ => None,
        }
    }

    /// The number that is stored.
    #[must_use]
    pub const fn as_u8(self) -> u8 {
        self as u8
    }
}

/// Why bytes are not a record, or a record cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Fewer bytes than the record takes.
    #[error("{have} bytes where a record takes {need}")]
    Short {
        /// Bytes needed.
        need: u64,
        /// Bytes present.
        have: u64,
    },
    /// The magic is another one.
    #[error("no record starts here")]
    NotARecord,
    /// A record of another store.
    #[error("a record of another store (nonce {found:#010x})")]
    OtherStore {
        /// The nonce that was found.
        found: u32,
    },
    /// The header's checksum does not match.
    #[error("checksum mismatch in a record header")]
    Checksum,
    /// The checksum matches but a field is out of its limits or contradicts another.
    #[error("inconsistent record: {what}")]
    Invalid {
        /// What is inconsistent.
        what: &'static str,
    },
    /// A record that a former life of the segment left here.
    #[error("a record of another life of the segment")]
    OtherLife,
    /// A page holds another number of records than its header says.
    #[error("a page of {expected} records holds {found}")]
    Count {
        /// What the page header says.
        expected: u32,
        /// What was found.
        found: u32,
    },
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// The store.
    pub nonce: StoreNonce,
    /// What the record is.
    pub kind: RecordKind,
    /// Whether the body starts with a chunk table (always so for parts).
    pub chunked: bool,
    /// Bytes of the key.
    pub key_len: u32,
    /// Bytes of the metadata.
    pub meta_len: u32,
    /// Bytes of the value.
    pub value_len: u64,
    /// Checksum of the body (see the module's description).
    pub body_crc: u32,
    /// Seeded hash of the key.
    pub hash: u64,
    /// Write order.
    pub seq: u64,
    /// Group of the object.
    pub group: u64,
    /// When the object expires, in Unix seconds; 0 = never.
    pub expires_s: u32,
    /// Low half of the life of the segment that the record has its place in; 0 before that.
    pub segment_seq_low: u32,
}

impl RecordHeader {
    /// The first 64 bytes of the record.
    #[must_use]
    pub fn encode(&self) -> [u8; RECORD_HEADER_BYTES] {
        let expires = if self.expires_s == 0 { 0 } else { FLAG_EXPIRES };
        let chunked = if self.chunked { FLAG_CHUNKED } else { 0 };
        let mut bytes = [0; RECORD_HEADER_BYTES];
        at::MAGIC.put(&mut bytes, MAGIC);
        at::NONCE.put(&mut bytes, self.nonce.0);
        at::KIND.put(&mut bytes, self.kind.as_u8());
        at::FLAGS.put(&mut bytes, expires | chunked);
        at::KEY_LEN_LESS_ONE.put(&mut bytes, self.key_len.saturating_sub(1) as u16);
        at::SEGMENT_SEQ_LOW.put(&mut bytes, self.segment_seq_low);
        at::META_LEN.put(&mut bytes, self.meta_len);
        at::BODY_CRC.put(&mut bytes, self.body_crc);
        at::VALUE_LEN.put(&mut bytes, self.value_len);
        at::HASH.put(&mut bytes, self.hash);
        at::SEQ.put(&mut bytes, self.seq);
        at::GROUP.put(&mut bytes, self.group);
        at::EXPIRES_S.put(&mut bytes, self.expires_s);
        at::CRC.seal(&mut bytes);
        bytes
    }

    /// Decodes the start of a record.
    ///
    /// # Errors
    /// Not a record, another store's, or damaged.
    pub fn decode(bytes: &[u8], nonce: StoreNonce) -> Result<Self, RecordError> {
        let short = RecordError::Short { need: 64, have: bytes.len() as u64 };
        let bytes = bytes.first_chunk::<RECORD_HEADER_BYTES>().ok_or(short)?;
        if at::MAGIC.get(bytes) != MAGIC {
            return Err(RecordError::NotARecord);
        }
        if !at::CRC.sealed(bytes) {
            return Err(RecordError::Checksum);
        }
        let found = at::NONCE.get(bytes);
        if found != nonce.0 {
            return Err(RecordError::OtherStore { found });
        }
        let flags = at::FLAGS.get(bytes);
        let header = Self {
            nonce,
            kind: RecordKind::from_u8(at::KIND.get(bytes)).ok_or_else(|| invalid("kind"))?,
            chunked: flags & FLAG_CHUNKED != 0,
            key_len: u32::from(at::KEY_LEN_LESS_ONE.get(bytes)) + 1,
            meta_len: at::META_LEN.get(bytes),
            value_len: at::VALUE_LEN.get(bytes),
            body_crc: at::BODY_CRC.get(bytes),
            hash: at::HASH.get(bytes),
            seq: at::SEQ.get(bytes),
            group: at::GROUP.get(bytes),
            expires_s: at::EXPIRES_S.get(bytes),
            segment_seq_low: at::SEGMENT_SEQ_LOW.get(bytes),
        };
        let expires = flags & FLAG_EXPIRES != 0;
        ensure(flags & !FLAGS_KNOWN == 0, "reserved bits")?;
        ensure(expires == (header.expires_s != 0), "expiry flag")?;
        header.validate()?;
        Ok(header)
    }

    /// Checks lengths and the relation of kind and value.
    ///
    /// # Errors
    /// `Invalid`, naming what is out of its limits.
    pub fn validate(&self) -> Result<(), RecordError> {
        ensure((1..=KEY_BYTES_MAX).contains(&self.key_len), "key length")?;
        ensure(self.meta_len <= META_BYTES_MAX, "metadata length")?;
        ensure(self.value_len <= VALUE_BYTES_MAX, "value length")?;
        match self.kind {
            RecordKind::Object => Ok(()),
            RecordKind::Part => ensure(self.chunked, "a part without a chunk table"),
            RecordKind::Manifest => {
                let parts = self.value_len.checked_sub(MANIFEST_HEAD_BYTES as u64);
                let whole = parts.is_some_and(|b| b.is_multiple_of(MANIFEST_PART_BYTES as u64));
                ensure(whole && !self.chunked, "manifest length")
            }
            RecordKind::Patch => {
                ensure(self.value_len == PATCH_BYTES as u64 && !self.chunked, "patch length")
            }
        }
    }

    /// Whether bytes that do not decode were once one of this store.
    #[must_use]
    pub fn is_like(bytes: &[u8], nonce: StoreNonce) -> bool {
        is_like(bytes, MAGIC, nonce)
    }

    /// Bytes that the record takes, the zeros behind it included: a multiple of 64.
    #[must_use]
    pub const fn stored_bytes(&self) -> u64 {
        let end = self.head_bytes().saturating_add(self.value_len);
        match end.checked_next_multiple_of(UNIT_BYTES) {
            Some(bytes) => bytes,
            None => u64::MAX - (UNIT_BYTES - 1),
        }
    }

    /// Bytes before the value: header, chunk table, key and metadata.
    #[must_use]
    pub const fn head_bytes(&self) -> u64 {
        (RECORD_HEADER_BYTES as u64)
            .saturating_add(self.table_bytes())
            .saturating_add(self.key_len as u64)
            .saturating_add(self.meta_len as u64)
    }

    /// Chunks of the value; 0 unless CHUNKED.
    #[must_use]
    pub const fn chunk_count(&self) -> u64 {
        if self.chunked { self.value_len.div_ceil(CHUNK_BYTES) } else { 0 }
    }

    /// Where the chunk table is, relative to the record's start; empty unless CHUNKED.
    #[must_use]
    pub fn table_range(&self) -> Range<usize> {
        span(RECORD_HEADER_BYTES as u64, self.table_bytes())
    }

    /// Where the key is, relative to the record's start.
    #[must_use]
    pub fn key_range(&self) -> Range<usize> {
        let start = (RECORD_HEADER_BYTES as u64).saturating_add(self.table_bytes());
        span(start, u64::from(self.key_len))
    }

    /// Where the metadata is, relative to the record's start.
    #[must_use]
    pub fn meta_range(&self) -> Range<usize> {
        let meta = u64::from(self.meta_len);
        span(self.head_bytes().saturating_sub(meta), meta)
    }

    /// Where the value is, relative to the record's start.
    #[must_use]
    pub fn value_range(&self) -> Range<usize> {
        span(self.head_bytes(), self.value_len)
    }

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

    /// Whether the record was written in this life of its segment.
    pub(crate) const fn is_of(&self, life: SegmentLife) -> bool {
        self.segment_seq_low == life.low_half()
    }

    /// Whether the object has expired at `now_s`.
    #[must_use]
    pub const fn expired(&self, now_s: u64) -> bool {
        self.expires_s != 0 && self.expires_s as u64 <= now_s
    }

    const fn table_bytes(&self) -> u64 {
        // At most 2^64 / 65536 chunks, so the product fits.
        self.chunk_count() * CRC_BYTES
    }
}

/// What the writer of a record decides; the rest of the header follows from the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordFields {
    /// The store.
    pub nonce: StoreNonce,
    /// What the record is.
    pub kind: RecordKind,
    /// Whether to write a chunk table (parts always have one).
    pub chunked: bool,
    /// Seeded hash of the key.
    pub hash: u64,
    /// Write order.
    pub seq: u64,
    /// Group of the object.
    pub group: u64,
    /// When the object expires, in Unix seconds; 0 = never.
    pub expires_s: u32,
}

impl RecordFields {
    /// The header of a record with a body of these lengths; its `body_crc` is still 0.
    ///
    /// # Errors
    /// A length out of its limits.
    pub fn header(&self, key: usize, meta: usize, value: u64) -> Result<RecordHeader, RecordError> {
        let header = RecordHeader {
            nonce: self.nonce,
            kind: self.kind,
            chunked: self.chunked || self.kind == RecordKind::Part,
            key_len: u32::try_from(key).map_err(|_| invalid("key length"))?,
            meta_len: u32::try_from(meta).map_err(|_| invalid("metadata length"))?,
            value_len: value,
            body_crc: 0,
            hash: self.hash,
            seq: self.seq,
            group: self.group,
            expires_s: self.expires_s,
            segment_seq_low: 0,
        };
        header.validate()?;
        Ok(header)
    }
}

pub(super) const fn invalid(what: &'static str) -> RecordError {
    RecordError::Invalid { what }
}

const fn ensure(holds: bool, what: &'static str) -> Result<(), RecordError> {
    if holds { Ok(()) } else { Err(invalid(what)) }
}

/// A range of a buffer; one that does not fit an address is a range that no buffer has.
fn span(start: u64, len: u64) -> Range<usize> {
    let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
    at(start)..at(start.saturating_add(len))
}
