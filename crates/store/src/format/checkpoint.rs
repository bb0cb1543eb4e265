//! A checkpoint: the index as it was at a moment, so that a start reads it instead of every
//! segment.
//!
//! Owns the header block of a checkpoint slot, the tables region behind it, and the cut of the
//! index into shards. Invariants: the header is written last, when tables and shards are durable,
//! so a valid header means a complete checkpoint; the two slots take turns, so one stays valid
//! while the other is being written; the higher valid `generation` wins.
//!
//! Slot: header (4096) | segment table | page strides | marks | shard checksums | pad to 4096 |
//! shards.
//!
//! Threads: none; pure functions.

use std::ops::Range;

use super::fields::{Field, Slot, table};
use super::journal::{JOURNAL_CELL_BYTES, JournalRecord, JournalWalk};
use super::superblock::INDEX_SLOTS_MAX;
use super::{BLOCK, BLOCK_BYTES, FormatError, INDEX_SLOT_BYTES, StoreNonce, ensure, first};

/// The most 32-byte cells of marks (a mark with a prefix takes several).
pub const MARKS_MAX: u32 = 65_536;
/// The largest shard.
const SHARD_BYTES_MAX: u64 = 1 << 20;

const MAGIC: u32 = u32::from_le_bytes(*b"CKPT");

pub(crate) mod at {
    use super::{BLOCK, Field, Slot, table};
    table! { BLOCK;
        MAGIC: u32, 0, "magic", "`CKPT`";
        NONCE: u32, 4, "nonce", "tells this store from the device's former user";
        GENERATION: u64, 8, "generation",
            "greater with each checkpoint, not always by one; the higher valid one of the two slots wins";
        SEQ_NEXT: u64, 16, "seq_next",
            "the next object's seq when it started; later records are to be added";
        RING_SEQ: u64, 24, "ring_seq",
            "oldest segment_seq being filled when it started, or to be filled further by the next open; replay begins there";
        INDEX_SLOTS: u64, 32, "index_slots", "slots of the saved index; another size is not loaded";
        SHARD_COUNT: u32, 40, "shard_count", "shards behind the tables";
        SHARD_BYTES: u32, 44, "shard_bytes", "bytes of each shard, a multiple of 4096";
        SEGMENT_COUNT: u32, 48, "segment_count",
            "entries of the segment table: all volumes together";
        MARK_COUNT: u32, 52, "mark_count",
            "32-byte cells of marks, prefix cells included, at most 65536";
        TABLES_CRC: u32, 56, "tables_crc", "crc32c of the tables region";
        TABLES_BYTES: u32, 60, "tables_bytes",
            "bytes of the tables region: the four tables, unpadded";
        CLEAN: u8, 64, "clean",
            "1 if written by an orderly stop: nothing in the segments is newer";
        LOCATION_BITS: u8, 65, "location_bits",
            "how many of the 38 bits of a location in the saved index are its own, at least 1; those above extend the tag";
        ZERO: [u8; 4026], 66, "zero", "room for later versions";
        CRC: u32, 4092, "header_crc", "crc32c of bytes 0..4092";
    }
}

/// How an index is cut into shards, each of which has a checksum of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardPlan {
    /// Number of shards.
    pub shard_count: u32,
    /// Bytes of each, a multiple of 4096; the last one is padded with zeros.
    pub shard_bytes: u32,
}

impl ShardPlan {
    /// The cut of an index with this many slots (at most [`INDEX_SLOTS_MAX`]): shards of 1 MiB, or
    /// a single smaller one.
    #[must_use]
    pub fn of(index_slots: u64) -> Self {
        let bytes = index_slots.min(INDEX_SLOTS_MAX) * INDEX_SLOT_BYTES;
        let shard = bytes.next_multiple_of(BLOCK_BYTES).clamp(BLOCK_BYTES, SHARD_BYTES_MAX);
        let count = bytes.div_ceil(shard).max(1);
        // 2^43 bytes in shards of 2^20 are 2^23 shards: both fit.
        Self { shard_count: count as u32, shard_bytes: shard as u32 }
    }

    /// Bytes of all shards.
    #[must_use]
    pub const fn total_bytes(&self) -> u64 {
        self.shard_count as u64 * self.shard_bytes as u64
    }
}

/// What starts a checkpoint slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointHeader {
    /// The store.
    pub nonce: StoreNonce,
    /// Greater with each checkpoint, not always by one.
    pub generation: u64,
    /// The next object's sequence number when the checkpoint started.
    pub seq_next: u64,
    /// The oldest segment sequence that was being filled when the checkpoint started, or that the
    /// next open goes on with.
    pub ring_seq: u64,
    /// Slots of the saved index.
    pub index_slots: u64,
    /// Shards behind the tables.
    pub shard_count: u32,
    /// Bytes of each shard.
    pub shard_bytes: u32,
    /// Entries of the segment table.
    pub segment_count: u32,
    /// 32-byte cells of marks.
    pub mark_count: u32,
    /// Checksum of the tables region.
    pub tables_crc: u32,
    /// Bytes of the tables region.
    pub tables_bytes: u32,
    /// Whether it was written by an orderly stop.
    pub clean: bool,
    /// Bits of a location in the saved index; see
    /// [`Index::location_bits`](crate::index::Index::location_bits).
    pub location_bits: u8,
}

impl CheckpointHeader {
    /// The first block of the slot; written last.
    #[must_use]
    pub fn encode(&self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        at::MAGIC.put(&mut block, MAGIC);
        at::NONCE.put(&mut block, self.nonce.0);
        at::GENERATION.put(&mut block, self.generation);
        at::SEQ_NEXT.put(&mut block, self.seq_next);
        at::RING_SEQ.put(&mut block, self.ring_seq);
        at::INDEX_SLOTS.put(&mut block, self.index_slots);
        at::SHARD_COUNT.put(&mut block, self.shard_count);
        at::SHARD_BYTES.put(&mut block, self.shard_bytes);
        at::SEGMENT_COUNT.put(&mut block, self.segment_count);
        at::MARK_COUNT.put(&mut block, self.mark_count);
        at::TABLES_CRC.put(&mut block, self.tables_crc);
        at::TABLES_BYTES.put(&mut block, self.tables_bytes);
        at::CLEAN.put(&mut block, u8::from(self.clean));
        at::LOCATION_BITS.put(&mut block, self.location_bits);
        at::CRC.seal(&mut block);
        block
    }

    /// Decodes the first block of a slot of `checkpoint_bytes`.
    ///
    /// # Errors
    /// Not a checkpoint, another store's, damaged, or larger than its slot.
    pub fn decode(
        bytes: &[u8],
        nonce: StoreNonce,
        checkpoint_bytes: u64,
    ) -> Result<Self, FormatError> {
        let block = first::<BLOCK>(bytes)?;
        if at::MAGIC.get(block) != MAGIC {
            return Err(FormatError::NotOurs);
        }
        if !at::CRC.sealed(block) {
            return Err(FormatError::Checksum { what: "checkpoint header" });
        }
        let found = at::NONCE.get(block);
        if found != nonce.0 {
            return Err(FormatError::OtherStore { found });
        }
        ensure(at::ZERO.is_zero(block), "reserved bytes of a checkpoint")?;
        ensure(at::CLEAN.get(block) <= 1, "clean mark of a checkpoint")?;
        let header = Self {
            nonce,
            generation: at::GENERATION.get(block),
            seq_next: at::SEQ_NEXT.get(block),
            ring_seq: at::RING_SEQ.get(block),
            index_slots: at::INDEX_SLOTS.get(block),
            shard_count: at::SHARD_COUNT.get(block),
            shard_bytes: at::SHARD_BYTES.get(block),
            segment_count: at::SEGMENT_COUNT.get(block),
            mark_count: at::MARK_COUNT.get(block),
            tables_crc: at::TABLES_CRC.get(block),
            tables_bytes: at::TABLES_BYTES.get(block),
            clean: at::CLEAN.get(block) == 1,
            location_bits: at::LOCATION_BITS.get(block),
        };
        header.validate(checkpoint_bytes)?;
        Ok(header)
    }

    /// Offset within the slot of the tables region.
    #[must_use]
    pub const fn tables_offset(&self) -> u64 {
        BLOCK_BYTES
    }

    /// Offset within the slot of shard `index`, or `None` if there is no such shard.
    #[must_use]
    pub fn shard_offset(&self, index: u32) -> Option<u64> {
        (index < self.shard_count)
            .then(|| self.shards_offset() + u64::from(index) * u64::from(self.shard_bytes))
    }

    /// Bytes of the slot that the checkpoint takes.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        // The product of two u32 leaves room for the sum of two more.
        let shards = u64::from(self.shard_count) * u64::from(self.shard_bytes);
        shards.saturating_add(self.shards_offset())
    }

    fn shards_offset(&self) -> u64 {
        BLOCK_BYTES + u64::from(self.tables_bytes).next_multiple_of(BLOCK_BYTES)
    }

    fn table_ranges(&self) -> [Range<u64>; 4] {
        let segments = u64::from(self.segment_count) * 8;
        let strides = segments + u64::from(self.segment_count) * 2;
        let marks = strides + u64::from(self.mark_count) * JOURNAL_CELL_BYTES as u64;
        let crcs = marks + u64::from(self.shard_count) * 4;
        [0..segments, segments..strides, strides..marks, marks..crcs]
    }

    fn validate(&self, checkpoint_bytes: u64) -> Result<(), FormatError> {
        let [.., crcs] = self.table_ranges();
        ensure(crcs.end == u64::from(self.tables_bytes), "tables of a checkpoint")?;
        ensure(self.mark_count <= MARKS_MAX, "marks of a checkpoint")?;
        let shard = u64::from(self.shard_bytes);
        ensure(shard > 0 && shard.is_multiple_of(BLOCK_BYTES), "shard size of a checkpoint")?;
        ensure((1..=INDEX_SLOTS_MAX).contains(&self.index_slots), "index size of a checkpoint")?;
        ensure((1..=38).contains(&self.location_bits), "location bits of a checkpoint")?;
        let index = self.index_slots * INDEX_SLOT_BYTES;
        let fits = u64::from(self.shard_count) * shard >= index;
        ensure(fits, "shards of a checkpoint")?;
        ensure(self.total_bytes() <= checkpoint_bytes, "a checkpoint larger than its slot")
    }
}

/// The tables region of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointTables {
    /// Segment sequence of each segment of the store; 0 = free.
    pub segment_seqs: Vec<u64>,
    /// Distance of the pages of each segment, in blocks of 4096 bytes; as many as segments.
    pub page_stride_blocks: Vec<u16>,
    /// Deletions and purges that still matter.
    pub marks: Vec<JournalRecord>,
    /// Checksum of each shard.
    pub shard_crcs: Vec<u32>,
}

impl CheckpointTables {
    /// The bytes of the region, and `header` with its counts, size and checksum filled in.
    ///
    /// # Errors
    /// More marks than a checkpoint holds, or tables that do not fit 32-bit lengths.
    pub fn encode(
        &self,
        header: CheckpointHeader,
    ) -> Result<(Vec<u8>, CheckpointHeader), FormatError> {
        let mut marks = Vec::new();
        for mark in &self.marks {
            mark.encode_into(header.nonce, &mut marks)?;
        }
        let mut bytes: Vec<u8> =
            self.segment_seqs.iter().flat_map(|seq| seq.to_le_bytes()).collect();
        let strides_known = self.page_stride_blocks.len() == self.segment_seqs.len();
        ensure(strides_known, "page strides of a checkpoint")?;
        bytes.extend(self.page_stride_blocks.iter().flat_map(|blocks| blocks.to_le_bytes()));
        bytes.extend_from_slice(&marks);
        bytes.extend(self.shard_crcs.iter().flat_map(|crc| crc.to_le_bytes()));
        let count = |len: usize| {
            u32::try_from(len).map_err(|_| FormatError::Damaged { what: "tables of a checkpoint" })
        };
        let mark_count = count(marks.len() / JOURNAL_CELL_BYTES)?;
        ensure(mark_count <= MARKS_MAX, "marks of a checkpoint")?;
        let header = CheckpointHeader {
            segment_count: count(self.segment_seqs.len())?,
            mark_count,
            shard_count: count(self.shard_crcs.len())?,
            tables_bytes: count(bytes.len())?,
            tables_crc: crc32c::crc32c(&bytes),
            ..header
        };
        Ok((bytes, header))
    }

    /// Decodes the region that `header` describes; `bytes` starts with it.
    ///
    /// # Errors
    /// Too few bytes, a checksum that does not match, or a mark that does not decode.
    pub fn decode(bytes: &[u8], header: &CheckpointHeader) -> Result<Self, FormatError> {
        let need = u64::from(header.tables_bytes);
        let short = FormatError::Short { need, have: bytes.len() as u64 };
        let region = part(bytes, &(0..need)).ok_or(short)?;
        if crc32c::crc32c(region) != header.tables_crc {
            return Err(FormatError::Checksum { what: "checkpoint tables" });
        }
        let wrong = FormatError::Damaged { what: "tables of a checkpoint" };
        let [segments, strides, marks, crcs] = header.table_ranges();
        ensure(crcs.end == need, "tables of a checkpoint")?;
        let segments = part(region, &segments).ok_or(wrong)?.as_chunks::<8>().0;
        let strides = part(region, &strides).ok_or(wrong)?.as_chunks::<2>().0;
        let crcs = part(region, &crcs).ok_or(wrong)?.as_chunks::<4>().0;
        let cells = part(region, &marks).ok_or(wrong)?;
        let mut walk = JournalWalk::marks(cells, header.nonce);
        let marks: Vec<JournalRecord> = walk.by_ref().collect();
        ensure(walk.offset() == cells.len(), "marks of a checkpoint")?;
        Ok(Self {
            segment_seqs: segments.iter().map(|seq| u64::from_le_bytes(*seq)).collect(),
            page_stride_blocks: strides.iter().map(|blocks| u16::from_le_bytes(*blocks)).collect(),
            marks,
            shard_crcs: crcs.iter().map(|crc| u32::from_le_bytes(*crc)).collect(),
        })
    }
}

fn part<'a>(bytes: &'a [u8], range: &Range<u64>) -> Option<&'a [u8]> {
    bytes.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
}
