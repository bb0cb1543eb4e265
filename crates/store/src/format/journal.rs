//! The journal: deletions and purges, which have to be durable before they are acknowledged.
//!
//! Owns the 32-byte journal record and its payload cells. The journal area is two halves; within a
//! half records follow each other from its start, and each carries the half's epoch. Invariants:
//! the first record that does not decode (torn, rotten, or of an older epoch) ends a half;
//! replaying a record twice changes nothing, since it only says what was created before `seq` is
//! dead.
//!
//! Threads: none; pure functions.

use super::fields::{Field, Slot, table};
use super::mend::mend_bit;
use super::{FormatError, StoreNonce, ensure, first};
use crate::types::Sequence;

/// Bytes of a journal record, and of each cell that its payload is stored in.
pub const JOURNAL_CELL_BYTES: usize = 32;
/// The longest prefix of a purge.
pub const PREFIX_BYTES_MAX: usize = u16::MAX as usize;

const KIND_DELETE_KEY: u8 = 1;
const KIND_PURGE_GROUP: u8 = 2;
const KIND_PURGE_ALL: u8 = 3;
const KIND_PURGE_PREFIX: u8 = 4;
const KIND_EPOCH: u8 = 5;

pub(crate) mod at {
    use super::{Field, JOURNAL_CELL_BYTES, Slot, table};
    table! { JOURNAL_CELL_BYTES;
        CRC: u32, 0, "crc", "crc32c of bytes 4..32";
        NONCE: u32, 4, "nonce", "tells this store from the device's former user";
        KIND: u8, 8, "kind", "1 delete key, 2 purge group, 3 purge all, 4 purge prefix, 5 epoch";
        FLAGS: u8, 9, "flags", "zero";
        LEN: u16, 10, "len",
            "bytes of the prefix in the next ceil(len / 32) cells; 0 for other kinds";
        EPOCH: u32, 12, "epoch",
            "life of the half; an older record left behind the end has another one";
        VALUE: u64, 16, "value",
            "hash, group, crc32c of the prefix, or checkpoint generation, by kind";
        SEQ: u64, 24, "seq", "everything it names that was created with a smaller seq is dead";
    }
}

/// What a journal record says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JournalOp {
    /// The key with this hash was deleted.
    DeleteKey {
        /// Seeded hash of the key.
        hash: u64,
    },
    /// A group was purged.
    PurgeGroup {
        /// The group.
        group: u64,
    },
    /// Everything was purged.
    PurgeAll,
    /// All keys with a prefix were purged.
    PurgePrefix {
        /// The prefix, 1 to [`PREFIX_BYTES_MAX`] bytes.
        prefix: Vec<u8>,
    },
    /// The half starts a new life.
    Epoch {
        /// Generation of the checkpoint that made the former contents superfluous.
        generation: u64,
    },
}

/// One entry of the journal (or one mark of a checkpoint).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalRecord {
    /// What it says.
    pub op: JournalOp,
    /// Life of the half that it is in.
    pub epoch: u32,
    /// Everything it names that was created with a smaller sequence number is dead.
    pub seq: u64,
}

impl JournalRecord {
    /// Everything it names that was created before this is dead.
    pub(crate) const fn sequence(&self) -> Sequence {
        Sequence::from_raw(self.seq)
    }

    /// Bytes of the record with its payload cells: a multiple of 32.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let payload = self.payload().len().div_ceil(JOURNAL_CELL_BYTES);
        payload.saturating_add(1).saturating_mul(JOURNAL_CELL_BYTES)
    }

    /// Appends the record and its payload cells.
    ///
    /// # Errors
    /// An empty prefix, or one longer than [`PREFIX_BYTES_MAX`].
    pub fn encode_into(&self, nonce: StoreNonce, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let payload = self.payload();
        let (kind, value) = match &self.op {
            JournalOp::DeleteKey { hash } => (KIND_DELETE_KEY, *hash),
            JournalOp::PurgeGroup { group } => (KIND_PURGE_GROUP, *group),
            JournalOp::PurgeAll => (KIND_PURGE_ALL, 0),
            JournalOp::PurgePrefix { .. } => {
                ensure(!payload.is_empty(), "prefix length")?;
                (KIND_PURGE_PREFIX, u64::from(crc32c::crc32c(payload)))
            }
            JournalOp::Epoch { generation } => (KIND_EPOCH, *generation),
        };
        let len = u16::try_from(payload.len())
            .map_err(|_| FormatError::Damaged { what: "prefix length" })?;
        let mut cell = [0; JOURNAL_CELL_BYTES];
        at::NONCE.put(&mut cell, nonce.0);
        at::KIND.put(&mut cell, kind);
        at::LEN.put(&mut cell, len);
        at::EPOCH.put(&mut cell, self.epoch);
        at::VALUE.put(&mut cell, value);
        at::SEQ.put(&mut cell, self.seq);
        let crc = cell_crc(&cell);
        at::CRC.put(&mut cell, crc);
        let end = out.len().saturating_add(self.encoded_len());
        out.extend_from_slice(&cell);
        out.extend_from_slice(payload);
        out.resize(end, 0);
        Ok(())
    }

    /// Decodes the record at the start of `bytes`; returns it and the bytes it takes.
    ///
    /// # Errors
    /// Not a record of this store, torn, or inconsistent: the end of the journal.
    pub fn decode(bytes: &[u8], nonce: StoreNonce) -> Result<(Self, usize), FormatError> {
        let cell = first::<JOURNAL_CELL_BYTES>(bytes)?;
        if at::CRC.get(cell) != cell_crc(cell) {
            return Err(FormatError::Checksum { what: "journal record" });
        }
        let found = at::NONCE.get(cell);
        if found != nonce.0 {
            return Err(FormatError::OtherStore { found });
        }
        ensure(at::FLAGS.get(cell) == 0, "flags of a journal record")?;
        let (kind, value) = (at::KIND.get(cell), at::VALUE.get(cell));
        let len = usize::from(at::LEN.get(cell));
        let prefix = kind == KIND_PURGE_PREFIX;
        ensure((len > 0) == prefix, "payload of a journal record")?;
        let op = match kind {
            KIND_DELETE_KEY => JournalOp::DeleteKey { hash: value },
            KIND_PURGE_GROUP => JournalOp::PurgeGroup { group: value },
            KIND_PURGE_ALL if value == 0 => JournalOp::PurgeAll,
            KIND_PURGE_PREFIX => {
                JournalOp::PurgePrefix { prefix: decode_prefix(bytes, len, value)? }
            }
            KIND_EPOCH => JournalOp::Epoch { generation: value },
            _ => return Err(FormatError::Damaged { what: "kind of a journal record" }),
        };
        let record = Self { op, epoch: at::EPOCH.get(cell), seq: at::SEQ.get(cell) };
        let length = record.encoded_len();
        Ok((record, length))
    }

    /// Decodes a record of which one bit has turned over since it was written.
    #[must_use]
    pub fn mend(bytes: &[u8], nonce: StoreNonce) -> Option<(Self, usize)> {
        let mut mended = *first::<JOURNAL_CELL_BYTES>(bytes).ok()?;
        let said = at::CRC.get(&mended);
        if (said ^ cell_crc(&mended)).count_ones() == 1 {
            // The checksum's own.
            let crc = cell_crc(&mended);
            at::CRC.put(&mut mended, crc);
        } else if !mend_bit(mended.get_mut(at::NONCE.field.offset..)?, said) {
            return None;
        }
        let behind = bytes.get(JOURNAL_CELL_BYTES..)?;
        let payload = usize::from(at::LEN.get(&mended)).next_multiple_of(JOURNAL_CELL_BYTES);
        let whole = [&mended, behind.get(..payload)?].concat();
        Self::decode(&whole, nonce).ok()
    }

    /// Whether a cell that does not decode was once a record of this store. There is no magic: the
    /// nonce alone tells it from what else lies there, so only one bit of that may differ.
    #[must_use]
    pub fn is_like(bytes: &[u8], nonce: StoreNonce) -> bool {
        let cell = first::<JOURNAL_CELL_BYTES>(bytes);
        cell.is_ok_and(|cell| (at::NONCE.get(cell) ^ nonce.0).count_ones() <= 1)
    }

    fn payload(&self) -> &[u8] {
        match &self.op {
            JournalOp::PurgePrefix { prefix } => prefix,
            _ => &[],
        }
    }
}

/// Walks a journal half (or a checkpoint's marks) from its start.
#[derive(Clone, Debug)]
pub struct JournalWalk<'a> {
    bytes: &'a [u8],
    nonce: StoreNonce,
    epoch: Option<u32>,
    any_epoch: bool,
    next: usize,
    end: Option<FormatError>,
}

impl<'a> JournalWalk<'a> {
    /// Walks a half; the first record's epoch is the half's, and another one ends it.
    #[must_use]
    pub const fn half(bytes: &'a [u8], nonce: StoreNonce) -> Self {
        Self { bytes, nonce, epoch: None, any_epoch: false, next: 0, end: None }
    }

    /// Walks the marks of a checkpoint, whose records may be of any epoch.
    #[must_use]
    pub const fn marks(bytes: &'a [u8], nonce: StoreNonce) -> Self {
        Self { bytes, nonce, epoch: None, any_epoch: true, next: 0, end: None }
    }

    /// The epoch of the half, once a record has been seen.
    #[must_use]
    pub const fn epoch(&self) -> Option<u32> {
        self.epoch
    }

    /// Where the next record would start: after the walk, the end of the valid records.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.next
    }

    /// Why the walk ended; `None` while it has not, or if it reached the end of the bytes.
    #[must_use]
    pub const fn ended_by(&self) -> Option<FormatError> {
        self.end
    }
}

impl Iterator for JournalWalk<'_> {
    type Item = JournalRecord;

    fn next(&mut self) -> Option<JournalRecord> {
        let rest = self.bytes.get(self.next..).filter(|rest| !rest.is_empty())?;
        if self.end.is_some() {
            return None;
        }
        match JournalRecord::decode(rest, self.nonce) {
            Ok((record, _))
                if !self.any_epoch && self.epoch.unwrap_or(record.epoch) != record.epoch =>
            {
                self.end = Some(FormatError::Damaged { what: "a record of another epoch" });
                None
            }
            Ok((record, length)) => {
                self.epoch = Some(record.epoch);
                self.next = self.next.saturating_add(length);
                Some(record)
            }
            Err(error) => {
                self.end = Some(error);
                None
            }
        }
    }
}

fn cell_crc(cell: &[u8; JOURNAL_CELL_BYTES]) -> u32 {
    crc32c::crc32c(cell.get(at::NONCE.field.offset..).unwrap_or(&[]))
}

fn decode_prefix(bytes: &[u8], len: usize, crc: u64) -> Result<Vec<u8>, FormatError> {
    // No overflow: `len` came from 16 bits.
    let cells = len.next_multiple_of(JOURNAL_CELL_BYTES);
    let end = JOURNAL_CELL_BYTES + cells;
    let short = FormatError::Short { need: end as u64, have: bytes.len() as u64 };
    let cells = bytes.get(JOURNAL_CELL_BYTES..end).ok_or(short)?;
    let (prefix, gap) = cells.split_at(len.min(cells.len()));
    if u64::from(crc32c::crc32c(prefix)) != crc {
        return Err(FormatError::Checksum { what: "journal prefix" });
    }
    ensure(gap.iter().all(|byte| *byte == 0), "gap behind a journal prefix")?;
    Ok(prefix.to_vec())
}
