//! Writing and verifying whole records, and the place in a segment that they are given last.
//!
//! Invariants: a record is written from its body to its header, whose checksum vouches for that of
//! the body; what is verified was written so. Threads: none; pure functions over caller-owned
//! buffers.

use crc32c::{crc32c, crc32c_append};

use super::{
    CHUNK_BYTES, RECORD_HEADER_BYTES, RecordError, RecordFields, RecordHeader, RecordKind, at,
    ensure,
};
use crate::format::StoreNonce;
use crate::types::{SegmentLife, Sequence};

/// Writes a whole record (header, body, zero gap) at the start of `buf`; returns its stored bytes.
///
/// # Errors
/// A length out of its limits, or a buffer too short for the record.
pub fn encode_record_into(
    buf: &mut [u8],
    fields: &RecordFields,
    key: &[u8],
    meta: &[u8],
    value: &[u8],
) -> Result<usize, RecordError> {
    let header = fields.header(key.len(), meta.len(), value.len() as u64)?;
    let record = prefix_mut(buf, header.stored_bytes())?;
    put(record, header.value_range().start, value);
    encode_around_value(record, fields, key, meta, value.len() as u64)
}

/// Writes everything of a record but its value, which lies where it belongs already, in `buf`.
/// Returns the stored bytes of the whole record.
///
/// # Errors
/// A length out of its limits, or a buffer too short for the record.
pub fn encode_around_value(
    buf: &mut [u8],
    fields: &RecordFields,
    key: &[u8],
    meta: &[u8],
    value_len: u64,
) -> Result<usize, RecordError> {
    let mut header = fields.header(key.len(), meta.len(), value_len)?;
    let record = prefix_mut(buf, header.stored_bytes())?;
    let stored = record.len();
    let (body, gap) = record.split_at_mut(header.value_range().end);
    gap.fill(0);
    let value = &body[header.value_range().start..];
    if header.chunked {
        let mut crcs = ChunkCrcs::new();
        crcs.update(value);
        encode_head_into(record, fields, key, meta, value_len, &crcs.finish())?;
        return Ok(stored);
    }
    header.body_crc = crc32c_append(crc32c_append(crc32c(key), meta), value);
    put(record, 0, &header.encode());
    put(record, header.key_range().start, key);
    put(record, header.meta_range().start, meta);
    Ok(stored)
}

/// Writes everything before the value of a CHUNKED record: the value itself may be written
/// separately, and the gap behind it must be zeroed by the writer. Returns the bytes written.
///
/// # Errors
/// A length out of its limits, a number of checksums that is not the number of chunks, a record
/// that is not CHUNKED, or a buffer too short.
pub fn encode_head_into(
    buf: &mut [u8],
    fields: &RecordFields,
    key: &[u8],
    meta: &[u8],
    value_len: u64,
    chunk_crcs: &[u32],
) -> Result<usize, RecordError> {
    let mut header = fields.header(key.len(), meta.len(), value_len)?;
    ensure(header.chunked, "a head without a chunk table")?;
    ensure(header.chunk_count() == chunk_crcs.len() as u64, "number of chunk checksums")?;
    let head = prefix_mut(buf, header.head_bytes())?;
    if let Some(table) = head.get_mut(header.table_range()) {
        for (cell, crc) in table.as_chunks_mut::<4>().0.iter_mut().zip(chunk_crcs) {
            *cell = crc.to_le_bytes();
        }
    }
    put(head, header.key_range().start, key);
    put(head, header.meta_range().start, meta);
    header.body_crc = crc32c(head.get(RECORD_HEADER_BYTES..).unwrap_or(&[]));
    put(head, 0, &header.encode());
    Ok(head.len())
}

/// Whether the whole body is as it was written; `record` starts with the header and has to hold at
/// least everything up to the end of the value.
#[must_use]
pub fn verify_body(header: &RecordHeader, record: &[u8]) -> bool {
    let Some(value) = record.get(header.value_range()) else { return false };
    if header.chunked {
        return verify_head(header, record) && verify_chunks(header, record, 0, value);
    }
    record
        .get(RECORD_HEADER_BYTES..header.value_range().end)
        .is_some_and(|body| crc32c(body) == header.body_crc)
}

/// Whether chunk table, key and metadata of a CHUNKED record are as they were written; `record`
/// need not hold the value. For a record without chunks this is [`verify_body`].
#[must_use]
pub fn verify_head(header: &RecordHeader, record: &[u8]) -> bool {
    if !header.chunked {
        return verify_body(header, record);
    }
    record
        .get(RECORD_HEADER_BYTES..header.value_range().start)
        .is_some_and(|head| crc32c(head) == header.body_crc)
}

/// Whether `bytes` are the value's bytes from chunk `first_chunk` on.
///
/// `head` is the start of the record (at least header and chunk table, verified by
/// [`verify_head`]); `bytes` must end at the end of a chunk or of the value.
#[must_use]
pub fn verify_chunks(header: &RecordHeader, head: &[u8], first_chunk: u64, bytes: &[u8]) -> bool {
    let Some(start) = first_chunk.checked_mul(CHUNK_BYTES) else { return false };
    let Some(end) = start.checked_add(bytes.len() as u64) else { return false };
    let whole = end == header.value_len || end.is_multiple_of(CHUNK_BYTES);
    if !header.chunked || end > header.value_len || !whole {
        return false;
    }
    let table = head.get(header.table_range()).unwrap_or(&[]).as_chunks::<4>().0;
    let first = usize::try_from(first_chunk).unwrap_or(usize::MAX);
    let mut expected =
        table.get(first..).unwrap_or(&[]).iter().map(|cell| u32::from_le_bytes(*cell));
    bytes.chunks(CHUNK_BYTES as usize).all(|chunk| expected.next() == Some(crc32c(chunk)))
}

/// Computes the chunk table of a value that arrives in pieces of any size.
#[derive(Clone, Debug, Default)]
pub struct ChunkCrcs {
    done: Vec<u32>,
    open_crc: u32,
    open_bytes: usize,
}

impl ChunkCrcs {
    /// Starts with an empty value.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next bytes of the value.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = (CHUNK_BYTES as usize).saturating_sub(self.open_bytes);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.open_crc = crc32c_append(self.open_crc, now);
            self.open_bytes += now.len();
            if self.open_bytes == CHUNK_BYTES as usize {
                self.close();
            }
            bytes = later;
        }
    }

    /// The checksum of each chunk.
    #[must_use]
    pub fn finish(mut self) -> Vec<u32> {
        if self.open_bytes > 0 {
            self.close();
        }
        self.done
    }

    fn close(&mut self) {
        self.done.push(self.open_crc);
        self.open_crc = 0;
        self.open_bytes = 0;
    }
}

fn prefix_mut(buf: &mut [u8], need: u64) -> Result<&mut [u8], RecordError> {
    let short = RecordError::Short { need, have: buf.len() as u64 };
    usize::try_from(need).ok().and_then(|bytes| buf.get_mut(..bytes)).ok_or(short)
}

/// Copies `from` to `offset`; the callers have checked that it fits.
fn put(buf: &mut [u8], offset: usize, from: &[u8]) {
    if let Some(to) = buf.get_mut(offset..offset.saturating_add(from.len())) {
        to.copy_from_slice(from);
    }
}

/// Makes a record in memory one of this life of the segment that it is about to be written to.
/// Returns its kind; `None`, and nothing is changed, if the bytes are no record.
pub(crate) fn settle_record(
    record: &mut [u8],
    nonce: StoreNonce,
    life: SegmentLife,
) -> Option<RecordKind> {
    let header = RecordHeader::decode(record, nonce).ok()?;
    at::SEGMENT_SEQ_LOW.put(record, life.low_half());
    at::CRC.seal(record);
    Some(header.kind)
}

/// Gives a record in memory, of which at least the header is there, its number.
pub(crate) fn number_record(record: &mut [u8], seq: Sequence) {
    at::SEQ.put(record, seq.get());
    at::CRC.seal(record);
}

/// True if a whole record is undamaged.
pub(crate) fn verify_record(header: &RecordHeader, record: &[u8]) -> bool {
    if !header.chunked {
        return verify_body(header, record);
    }
    let head = header.head_bytes() as usize;
    let value = header.value_range();
    match (record.get(..head), record.get(value)) {
        (Some(head), Some(value)) => {
            verify_head(header, head) && verify_chunks(header, head, 0, value)
        }
        _ => false,
    }
}
