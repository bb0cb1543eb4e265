//! The superblock: what a volume is and where its areas are.
//!
//! Owns the 4096-byte block that is stored twice at the start of each volume. Invariants: it is
//! written when the volume is formatted and never changed afterwards, copy A before copy B, so a
//! torn copy leaves the other one, from which it is written again; a decoded superblock's areas lie
//! inside the volume and do not overlap, so nothing that uses it has to check them again.
//!
//! Threads: none; pure functions.

use super::fields::{Field, Slot, table};
use super::layout::{JOURNAL_PARTS, VolumeLayout, checkpoint_slot_bytes, segment_align};
use super::lives::lives_area_bytes;
use super::{
    AREAS_OFFSET, BLOCK, BLOCK_BYTES, FORMAT_VERSION, FormatError, StoreNonce, VALUE_BYTES_MAX,
    ensure, first,
};

/// Bytes of one copy.
pub const SUPERBLOCK_BYTES: usize = BLOCK;
/// The smallest page (16 KiB is the documented minimum for users; smaller ones serve tests).
pub const PAGE_MIN_BYTES: u32 = 4096;
/// The largest page.
pub const PAGE_BYTES_MAX: u32 = 1 << 20;
/// The largest segment: stored lengths are 24 bits of units in a summary.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// The largest index: keeps every product of it far from overflow.
pub const INDEX_SLOTS_MAX: u64 = 1 << 40;

const MAGIC: [u8; 8] = *b"DAMELO\x00\x01";

pub(crate) mod at {
    use super::{Field, SUPERBLOCK_BYTES, Slot, table};
    table! { SUPERBLOCK_BYTES;
        MAGIC: [u8; 8], 0, "magic", "`DAMELO` 00 01; frozen for every version";
        VERSION: u32, 8, "format_version",
            "`FORMAT_VERSION`; frozen place, so that any version can name any other";
        PAGE_BYTES: u32, 12, "page_bytes", "power of two, 4 KiB to 1 MiB";
        SEGMENT_BYTES: u64, 16, "segment_bytes",
            "multiple of the page, at least 4 pages, at most 1 GiB";
        SEGMENT_COUNT: u32, 24, "segment_count", "segments on this volume";
        VOLUME_INDEX: u16, 28, "volume_index", "which volume of the store this is";
        VOLUME_COUNT: u16, 30, "volume_count",
            "how many volumes the store has; a missing one is noticed";
        FIRST_SEGMENT: u32, 32, "first_segment", "store-wide id of this volume's first segment";
        RESERVED: [u8; 4], 36, "reserved", "zero";
        STORE_ID: [u8; 16], 40, "store_id",
            "random; its first 4 bytes are the nonce in every other structure";
        VOLUME_BYTES: u64, 56, "volume_bytes",
            "size when formatted; a device that shrank is refused";
        INDEX_SLOTS: u64, 64, "index_slots", "size of the index that the checkpoint slots can hold";
        HASH_SEED: u64, 72, "hash_seed",
            "seed of the key hash, so that keys cannot be made to collide";
        JOURNAL_OFFSET: u64, 80, "journal_offset", "start of the journal, 65536";
        JOURNAL_BYTES: u64, 88, "journal_bytes", "both copies of both halves; 0 on volumes other than 0";
        CHECKPOINT_OFFSET: u64, 96, "checkpoint_offset",
            "start of checkpoint slot A; B follows it, and the table of lives B";
        CHECKPOINT_BYTES: u64, 104, "checkpoint_bytes", "one slot; 0 on volumes other than 0";
        SEGMENTS_OFFSET: u64, 112, "segments_offset", "start of the first segment";
        OBJECT_BYTES_MAX: u64, 120, "object_bytes_max", "largest value that may be stored";
        CREATED: u64, 128, "created_unix_s", "when the volume was formatted, for people";
        ZERO: [u8; 3956], 136, "zero", "room for later versions";
        CRC: u32, 4092, "crc", "crc32c of bytes 0..4092; frozen place";
    }
}

/// Everything that is fixed when a volume is formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Segments on this volume.
    pub segment_count: u32,
    /// Which volume of the store this is.
    pub volume_index: u16,
    /// Volumes of the store.
    pub volume_count: u16,
    /// Store-wide id of this volume's first segment.
    pub first_segment: u32,
    /// Random identity of the store, the same on all its volumes.
    pub store_id: [u8; 16],
    /// Bytes of the volume when it was formatted.
    pub volume_bytes: u64,
    /// Slots of the index.
    pub index_slots: u64,
    /// Seed of the key hash.
    pub hash_seed: u64,
    /// Start of the journal area.
    pub journal_offset: u64,
    /// Bytes of the journal area (both halves); 0 on volumes other than 0.
    pub journal_bytes: u64,
    /// Start of checkpoint slot A.
    pub checkpoint_offset: u64,
    /// Bytes of one checkpoint slot; 0 on volumes other than 0.
    pub checkpoint_bytes: u64,
    /// Start of the first segment.
    pub segments_offset: u64,
    /// Largest value that may be stored.
    pub object_bytes_max: u64,
    /// When the volume was formatted, in Unix seconds.
    pub created_unix_s: u64,
}

impl Superblock {
    /// The nonce that all structures of this store carry.
    #[must_use]
    pub const fn nonce(&self) -> StoreNonce {
        StoreNonce::of(&self.store_id)
    }

    /// True for volume `index` of `count` of the store whose first volume has the superblock
    /// `first`.
    #[must_use]
    pub fn is_volume(&self, index: usize, count: usize, first: &Superblock) -> bool {
        usize::from(self.volume_index) == index
            && usize::from(self.volume_count) == count
            && self.store_id == first.store_id
    }

    /// Where the areas are.
    #[must_use]
    pub const fn layout(&self) -> VolumeLayout {
        VolumeLayout {
            journal_offset: self.journal_offset,
            journal_bytes: self.journal_bytes,
            checkpoint_offset: self.checkpoint_offset,
            checkpoint_bytes: self.checkpoint_bytes,
            segments_offset: self.segments_offset,
            segment_bytes: self.segment_bytes,
            segment_count: self.segment_count,
        }
    }

    /// The block to write at offset 0 and at offset 4096.
    #[must_use]
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut block = [0; SUPERBLOCK_BYTES];
        at::MAGIC.put(&mut block, MAGIC);
        at::VERSION.put(&mut block, FORMAT_VERSION);
        at::PAGE_BYTES.put(&mut block, self.page_bytes);
        at::SEGMENT_BYTES.put(&mut block, self.segment_bytes);
        at::SEGMENT_COUNT.put(&mut block, self.segment_count);
        at::VOLUME_INDEX.put(&mut block, self.volume_index);
        at::VOLUME_COUNT.put(&mut block, self.volume_count);
        at::FIRST_SEGMENT.put(&mut block, self.first_segment);
        at::STORE_ID.put(&mut block, self.store_id);
        at::VOLUME_BYTES.put(&mut block, self.volume_bytes);
        at::INDEX_SLOTS.put(&mut block, self.index_slots);
        at::HASH_SEED.put(&mut block, self.hash_seed);
        at::JOURNAL_OFFSET.put(&mut block, self.journal_offset);
        at::JOURNAL_BYTES.put(&mut block, self.journal_bytes);
        at::CHECKPOINT_OFFSET.put(&mut block, self.checkpoint_offset);
        at::CHECKPOINT_BYTES.put(&mut block, self.checkpoint_bytes);
        at::SEGMENTS_OFFSET.put(&mut block, self.segments_offset);
        at::OBJECT_BYTES_MAX.put(&mut block, self.object_bytes_max);
        at::CREATED.put(&mut block, self.created_unix_s);
        at::CRC.seal(&mut block);
        block
    }

    /// Decodes one copy.
    ///
    /// # Errors
    /// `NotOurs`, `OtherVersion`, or what is damaged or inconsistent.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let block = first::<SUPERBLOCK_BYTES>(bytes)?;
        if at::MAGIC.get(block) != MAGIC {
            return Err(FormatError::NotOurs);
        }
        if !at::CRC.sealed(block) {
            return Err(FormatError::Checksum { what: "superblock" });
        }
        let version = at::VERSION.get(block);
        if version != FORMAT_VERSION {
            return Err(FormatError::OtherVersion { found: version });
        }
        let zero = at::RESERVED.is_zero(block) && at::ZERO.is_zero(block);
        ensure(zero, "reserved bytes of the superblock")?;
        let superblock = Self::read(block);
        superblock.validate()?;
        Ok(superblock)
    }

    /// Decodes the first valid copy of the two that start a volume (`bytes`: its first 8192).
    ///
    /// # Errors
    /// Copy A's error when neither is valid, or copy B's if A holds nothing of ours.
    pub fn decode_either(bytes: &[u8]) -> Result<Self, FormatError> {
        let second = bytes.get(SUPERBLOCK_BYTES..).unwrap_or(&[]);
        match (Self::decode(bytes), Self::decode(second)) {
            (Ok(superblock), _) | (Err(_), Ok(superblock)) => Ok(superblock),
            (Err(FormatError::NotOurs), Err(b @ FormatError::OtherVersion { .. }))
            | (Err(FormatError::NotOurs), Err(b @ FormatError::Checksum { .. }))
            | (Err(FormatError::NotOurs), Err(b @ FormatError::Damaged { .. })) => Err(b),
            (Err(a), Err(_)) => Err(a),
        }
    }

    fn read(block: &[u8; SUPERBLOCK_BYTES]) -> Self {
        Self {
            page_bytes: at::PAGE_BYTES.get(block),
            segment_bytes: at::SEGMENT_BYTES.get(block),
            segment_count: at::SEGMENT_COUNT.get(block),
            volume_index: at::VOLUME_INDEX.get(block),
            volume_count: at::VOLUME_COUNT.get(block),
            first_segment: at::FIRST_SEGMENT.get(block),
            store_id: at::STORE_ID.get(block),
            volume_bytes: at::VOLUME_BYTES.get(block),
            index_slots: at::INDEX_SLOTS.get(block),
            hash_seed: at::HASH_SEED.get(block),
            journal_offset: at::JOURNAL_OFFSET.get(block),
            journal_bytes: at::JOURNAL_BYTES.get(block),
            checkpoint_offset: at::CHECKPOINT_OFFSET.get(block),
            checkpoint_bytes: at::CHECKPOINT_BYTES.get(block),
            segments_offset: at::SEGMENTS_OFFSET.get(block),
            object_bytes_max: at::OBJECT_BYTES_MAX.get(block),
            created_unix_s: at::CREATED.get(block),
        }
    }

    /// Checks every relation between the fields (`decode` does it for what it returns).
    ///
    /// # Errors
    /// `Damaged`, naming the relation that does not hold.
    pub fn validate(&self) -> Result<(), FormatError> {
        ensure(page_size_ok(self.page_bytes), "page size")?;
        ensure(segment_size_ok(self.segment_bytes, self.page_bytes), "segment size")?;
        ensure(self.segment_count >= 1, "segment count")?;
        let last = self.first_segment.checked_add(self.segment_count);
        ensure(last.is_some(), "first segment")?;
        ensure(self.volume_index < self.volume_count, "volume index")?;
        ensure((self.volume_index == 0) == (self.first_segment == 0), "first segment")?;
        ensure((1..=INDEX_SLOTS_MAX).contains(&self.index_slots), "index slots")?;
        ensure((1..=VALUE_BYTES_MAX).contains(&self.object_bytes_max), "largest object")?;
        self.validate_areas()
    }

    fn validate_areas(&self) -> Result<(), FormatError> {
        let first_volume = self.volume_index == 0;
        ensure(self.journal_offset == AREAS_OFFSET, "journal offset")?;
        ensure(self.journal_bytes.is_multiple_of(JOURNAL_PARTS * BLOCK_BYTES), "journal size")?;
        ensure((self.journal_bytes > 0) == first_volume, "journal on the wrong volume")?;
        let journal_end = self.journal_offset.checked_add(self.journal_bytes);
        ensure(journal_end == Some(self.checkpoint_offset), "checkpoint offset")?;
        ensure(self.checkpoint_bytes.is_multiple_of(BLOCK_BYTES), "checkpoint size")?;
        ensure((self.checkpoint_bytes > 0) == first_volume, "checkpoint on the wrong volume")?;
        // Else a checkpoint would be written over what lies behind its slot.
        let needed = checkpoint_slot_bytes(self.index_slots, self.segment_count);
        let holds_index = !first_volume || needed <= self.checkpoint_bytes;
        ensure(holds_index, "index larger than a checkpoint slot")?;
        let slots = self.checkpoint_bytes.checked_mul(2);
        let slots_end = slots.and_then(|bytes| self.checkpoint_offset.checked_add(bytes));
        let lives_bytes = lives_area_bytes(self.segment_count);
        let lives_end = slots_end.and_then(|end| end.checked_add(lives_bytes));
        ensure(lives_end.is_some_and(|end| end <= self.segments_offset), "segments offset")?;
        let align = segment_align(self.segment_bytes);
        ensure(self.segments_offset.is_multiple_of(align), "segments offset alignment")?;
        let segments = u64::from(self.segment_count).checked_mul(self.segment_bytes);
        let end = segments.and_then(|bytes| self.segments_offset.checked_add(bytes));
        ensure(end.is_some_and(|end| end <= self.volume_bytes), "segments end behind the volume")
    }
}

/// Whether a page may have this size.
pub(super) const fn page_size_ok(page_bytes: u32) -> bool {
    page_bytes.is_power_of_two() && page_bytes >= PAGE_MIN_BYTES && page_bytes <= PAGE_BYTES_MAX
}

/// Whether a segment may have this size (the page size being valid).
pub(super) const fn segment_size_ok(segment_bytes: u64, page_bytes: u32) -> bool {
    let page = page_bytes as u64;
    segment_bytes <= SEGMENT_BYTES_MAX
        && segment_bytes >= 4 * page
        && segment_bytes.is_multiple_of(page)
}
