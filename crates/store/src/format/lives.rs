//! The table of lives: which life each segment of a volume is in, and how far apart its pages lie.
//!
//! Owns the blocks of the area between the checkpoint slots and the segments. Invariants: a block
//! is overwritten in place, before anything is written to a segment whose life in it changes;
//! one that is torn does not decode, and then the segments themselves tell; entries behind the
//! volume's last segment are zero.
//!
//! Threads: none; pure functions.

use super::fields::{Field, Slot, table};
use super::{BLOCK, BLOCK_BYTES, FormatError, StoreNonce, ensure, first};
use crate::types::SegmentLife;

/// Bytes of an entry of the table.
pub(super) const LIFE_ENTRY_BYTES: usize = 10;
/// Segments in one block of the table.
pub const LIVES_PER_BLOCK: u32 = (LIVES_BYTES / LIFE_ENTRY_BYTES) as u32;

const LIVES_BYTES: usize = BLOCK - 16;

pub(crate) mod at {
    use super::{BLOCK, Field, LIVES_BYTES, Slot, table};
    table! { BLOCK;
        NONCE: u32, 0, "nonce", "tells this store from the device's former user";
        FIRST_SEGMENT: u32, 4, "first_segment",
            "store-wide id of the first segment of the block; a misdirected write is noticed";
        RESERVED: [u8; 4], 8, "reserved", "zero";
        LIVES: [u8; LIVES_BYTES], 12, "lives", "408 entries of 10 bytes, one for each segment";
        CRC: u32, 4092, "crc", "crc32c of bytes 0..4092";
    }
}

pub(crate) mod entry_at {
    use super::{Field, LIFE_ENTRY_BYTES, Slot, table};
    table! { LIFE_ENTRY_BYTES;
        SEGMENT_SEQ: u64, 0, "segment_seq", "life of the segment; 0: it is free";
        PAGE_STRIDE_BLOCKS: u16, 8, "page_stride_blocks", "distance of its pages, in blocks";
    }
}

/// What the table says of one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LifeEntry {
    /// Life of the segment; zero if it is free.
    pub segment_seq: u64,
    /// Distance of its pages, in blocks of [`BLOCK_BYTES`].
    pub page_stride_blocks: u16,
}

impl LifeEntry {
    /// The life of the segment.
    pub(crate) const fn life(&self) -> SegmentLife {
        SegmentLife::from_raw(self.segment_seq)
    }
}

/// A block of the table: [`LIVES_PER_BLOCK`] segments in a row, fewer at the volume's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LifeBlock {
    /// The store.
    pub nonce: StoreNonce,
    /// Store-wide id of the first segment.
    pub first_segment: u32,
    /// One entry for each segment, at most [`LIVES_PER_BLOCK`].
    pub entries: Vec<LifeEntry>,
}

impl LifeBlock {
    /// The block as it is stored. Entries behind the first [`LIVES_PER_BLOCK`] are left out.
    #[must_use]
    pub fn encode(&self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        at::NONCE.put(&mut block, self.nonce.0);
        at::FIRST_SEGMENT.put(&mut block, self.first_segment);
        let (_, lives) = block.split_at_mut(at::LIVES.field.offset);
        let (places, _) = lives.as_chunks_mut::<LIFE_ENTRY_BYTES>();
        let held = self.entries.iter().take(LIVES_PER_BLOCK as usize);
        for (place, entry) in places.iter_mut().zip(held) {
            entry_at::SEGMENT_SEQ.put(place, entry.segment_seq);
            entry_at::PAGE_STRIDE_BLOCKS.put(place, entry.page_stride_blocks);
        }
        at::CRC.seal(&mut block);
        block
    }

    /// Decodes the block that begins with this segment and has `segments` of them.
    ///
    /// # Errors
    /// Torn, rotten, another store's, or of other segments.
    pub fn decode(
        bytes: &[u8],
        nonce: StoreNonce,
        first_segment: u32,
        segments: u32,
    ) -> Result<Self, FormatError> {
        let block = first::<BLOCK>(bytes)?;
        if !at::CRC.sealed(block) {
            return Err(FormatError::Checksum { what: "table of lives" });
        }
        let found = at::NONCE.get(block);
        if found != nonce.0 {
            return Err(FormatError::OtherStore { found });
        }
        ensure(at::FIRST_SEGMENT.get(block) == first_segment, "segments of a table of lives")?;
        ensure(at::RESERVED.is_zero(block), "reserved bytes of a table of lives")?;
        let lives = at::LIVES.get(block);
        let mut entries = lives.as_chunks::<LIFE_ENTRY_BYTES>().0.iter().map(|place| LifeEntry {
            segment_seq: entry_at::SEGMENT_SEQ.get(place),
            page_stride_blocks: entry_at::PAGE_STRIDE_BLOCKS.get(place),
        });
        let held = entries.by_ref().take(segments as usize).collect();
        ensure(entries.all(|entry| entry == LifeEntry::default()), "end of a table of lives")?;
        Ok(Self { nonce, first_segment, entries: held })
    }
}

/// Bytes of the table of a volume with this number of segments.
pub(super) const fn lives_area_bytes(segments: u32) -> u64 {
    segments.div_ceil(LIVES_PER_BLOCK) as u64 * BLOCK_BYTES
}
