//! Making a store: the layout of its volumes, and the superblocks that record it.
//!
//! Invariant: old superblocks and checkpoints are cleared before the new superblock is written, so
//! that none of them can be taken for the new store's. Threads: the one that opens the store.

use std::path::Path;

use super::settings::SEGMENT_CONFIG_MIN;
use super::{RawVolume, SUPERBLOCKS_BYTES};
use crate::config::Config;
use crate::durable::lives::empty_table;
use crate::error::OpenError;
use crate::format::{
    BLOCK_BYTES, JOURNAL_PARTS, LayoutError, PlanRequest, Superblock, UNIT_BYTES, VolumeLayout,
    checkpoint_slot_bytes, segments_upper_bound,
};
use crate::index::Index;
use crate::memory::mapped::AlignedBuf;
use crate::types::ByteSize;
use crate::types::Clock;

const PAGE_DEFAULT: u64 = 64 << 10;
const SEGMENT_DEFAULT: u64 = 16 << 20;
/// Number of segments wanted on the smallest volume; segments are made smaller to reach it.
const SEGMENTS_WANTED: u64 = 32;
/// Disk bytes per index slot, unless configured.
const BYTES_PER_OBJECT: u64 = 4096;
/// Disk bytes per index slot on small volumes: used while the index then has at most `OBJECTS_FEW`
/// slots (8 MiB of memory).
const BYTES_PER_OBJECT_FEW: u64 = 1024;
const OBJECTS_FEW: u64 = 1 << 20;
/// Disk bytes of the smallest object.
const RECORD_BYTES_MIN: u64 = 2 * UNIT_BYTES;
/// Fewest slots of an index.
const OBJECTS_MIN: u64 = 64;
/// A half, a quarter of it, has room for several of the longest prefixes.
const JOURNAL_MIN: u64 = 256 << 10;
/// The longest area for which its slots alone are a reason.
const JOURNAL_BY_SLOTS_MAX: u64 = 7 << 20;
/// A turn of a half costs a checkpoint, so the area is a part of one: this part up to so many
/// bytes, then the smaller part, and in no case more than the last. An open reads all of it.
const JOURNAL_PART: u64 = 4;
const JOURNAL_PART_MAX: u64 = 64 << 20;
const JOURNAL_SMALL_PART: u64 = 32;
const JOURNAL_MAX: u64 = 256 << 20;
/// The journal's parts are whole blocks.
const JOURNAL_STEP: u64 = JOURNAL_PARTS * BLOCK_BYTES;
/// Journal bytes per index slot, for the deletes between two checkpoints.
const JOURNAL_BYTES_PER_SLOT: u64 = 32;

/// How much of a journal is cleared at once.
const CLEARED_BYTES: u64 = 8 << 20;

/// Rounds a volume's size down to whole blocks.
pub(super) fn whole_blocks(bytes: u64) -> u64 {
    bytes - bytes % BLOCK_BYTES
}

/// A volume's path, its actual size in bytes, and its declared size.
pub(super) type Found<'a> = (&'a Path, u64, Option<u64>);

/// The declared size, else the actual one.
fn size_of(&(path, found, declared): &Found<'_>) -> Result<u64, OpenError> {
    let size = declared.unwrap_or(found);
    if size > found {
        return Err(OpenError::SmallerThanDeclared {
            path: path.to_owned(),
            found: ByteSize::new(found),
            declared: ByteSize::new(size),
        });
    }
    Ok(whole_blocks(size))
}

/// Plans the layout of a store on opened volumes; writes nothing.
pub(super) fn plan_on(
    config: &Config,
    volumes: &[RawVolume],
    clock: &dyn Clock,
) -> Result<Vec<Superblock>, OpenError> {
    let found = |v: &RawVolume| v.device.info().size_bytes;
    let found: Vec<Found<'_>> =
        volumes.iter().map(|v| (v.path.as_path(), found(v), v.declared_bytes)).collect();
    plan(config, &found, clock)
}

/// Writes the planned store's superblocks.
pub(super) fn write(volumes: &[RawVolume], planned: &[Superblock]) -> Result<(), OpenError> {
    volumes.iter().zip(planned).try_for_each(|(volume, planned)| write_superblock(volume, planned))
}

/// Plans the layout of volumes of known sizes; writes nothing.
pub(super) fn plan(
    config: &Config,
    volumes: &[Found<'_>],
    clock: &dyn Clock,
) -> Result<Vec<Superblock>, OpenError> {
    let sizes = volumes.iter().map(size_of).collect::<Result<Vec<u64>, OpenError>>()?;
    let total: u64 = sizes.iter().sum();
    let page = config.page.map_or(PAGE_DEFAULT, ByteSize::bytes);
    let smallest = sizes.iter().copied().min().unwrap_or(0);
    let segment = segment_bytes(config, smallest, page);
    let index_slots = index_slots(config, total)?;
    let total_segments: u32 = sizes.iter().map(|size| segments_upper_bound(*size, segment)).sum();
    let journal = journal_bytes(index_slots, checkpoint_slot_bytes(index_slots, total_segments));
    check_addressable(total, u64::from(total_segments) * segment)?;
    let mut rng = Seeds::new(config, clock);
    let (mut store_id, hash_seed) = ([0; 16], rng.next());
    store_id[..8].copy_from_slice(&rng.next().to_le_bytes());
    store_id[8..].copy_from_slice(&rng.next().to_le_bytes());
    let mut all: Vec<Superblock> = Vec::new();
    for (index, ((path, found, declared), size)) in volumes.iter().zip(&sizes).enumerate() {
        let layout = VolumeLayout::plan(&PlanRequest {
            volume_bytes: *size,
            volume_index: index as u16,
            page_bytes: page as u32,
            segment_bytes: segment,
            index_slots,
            journal_bytes: if index == 0 { journal } else { 0 },
            total_segments,
        })
        // The error names the size as declared, not rounded to whole blocks.
        .map_err(|error| layout_error(path, declared.unwrap_or(*found), &error))?;
        all.push(Superblock {
            page_bytes: page as u32,
            segment_bytes: segment,
            segment_count: layout.segment_count,
            volume_index: index as u16,
            volume_count: volumes.len() as u16,
            first_segment: all.iter().map(|s| s.segment_count).sum(),
            store_id,
            volume_bytes: *size,
            index_slots,
            hash_seed,
            journal_offset: layout.journal_offset,
            journal_bytes: layout.journal_bytes,
            checkpoint_offset: layout.checkpoint_offset,
            checkpoint_bytes: layout.checkpoint_bytes,
            segments_offset: layout.segments_offset,
            object_bytes_max: config.object_bytes_max.bytes(),
            created_unix_s: clock.unix_seconds(),
        });
    }
    Ok(all)
}

/// Bytes of the journal of a store with so large an index and checkpoint.
fn journal_bytes(index_slots: u64, checkpoint_bytes: u64) -> u64 {
    let by_slots = (index_slots * JOURNAL_BYTES_PER_SLOT).clamp(JOURNAL_MIN, JOURNAL_BY_SLOTS_MAX);
    // A small store's checkpoint has more bytes than its index asks for, and costs little.
    if by_slots < JOURNAL_BY_SLOTS_MAX {
        return by_slots - by_slots % JOURNAL_STEP;
    }
    let by_checkpoint = (checkpoint_bytes / JOURNAL_PART).min(JOURNAL_PART_MAX);
    let by_checkpoint = by_checkpoint.max(checkpoint_bytes / JOURNAL_SMALL_PART);
    let journal = by_slots.max(by_checkpoint.min(JOURNAL_MAX));
    journal - journal % JOURNAL_STEP
}

/// Whether the index can name every place of these segments.
fn check_addressable(volumes_bytes: u64, segments_bytes: u64) -> Result<(), OpenError> {
    let most = (crate::index::Location::MAX.units() + 1) * UNIT_BYTES;
    if segments_bytes > most {
        return Err(OpenError::Setting {
            setting: "size",
            value: ByteSize::new(volumes_bytes).to_string(),
            limit: format!("all volumes together hold at most {}", ByteSize::new(most)),
        });
    }
    Ok(())
}

/// The declared size, else one that gives the smallest volume enough segments.
fn segment_bytes(config: &Config, smallest_volume: u64, page: u64) -> u64 {
    let fitting = (smallest_volume / SEGMENTS_WANTED).max(1);
    let fitting = if fitting.is_power_of_two() { fitting } else { fitting.next_power_of_two() / 2 };
    let default = || fitting.clamp(SEGMENT_CONFIG_MIN.max(4 * page), SEGMENT_DEFAULT);
    config.segment.map_or_else(default, ByteSize::bytes)
}

fn layout_error(path: &Path, size: u64, error: &LayoutError) -> OpenError {
    let setting = |setting, value| {
        let limit = error.to_string();
        OpenError::Setting { setting, value, limit }
    };
    let size = ByteSize::new(size);
    match *error {
        LayoutError::PageSize { page_bytes } => {
            setting("page", ByteSize::new(page_bytes.into()).to_string())
        }
        LayoutError::SegmentSize { segment_bytes } => OpenError::Setting {
            setting: "segment",
            value: ByteSize::new(segment_bytes).to_string(),
            limit: "a power of two from 256KiB to 64MiB, and at least four pages".to_owned(),
        },
        LayoutError::IndexSlots { index_slots } => setting("objects_max", index_slots.to_string()),
        LayoutError::TooManySegments { .. } => setting("size", size.to_string()),
        LayoutError::JournalSize { .. } | LayoutError::TooSmall { .. } => {
            let reason = match *error {
                LayoutError::TooSmall { minimum_bytes, .. } => {
                    let enough = ByteSize::new(minimum_bytes.next_multiple_of(1 << 20));
                    format!("{enough} will do with these settings")
                }
                _ => error.to_string(),
            };
            OpenError::TooSmall { path: path.to_owned(), size, reason }
        }
    }
}

/// Slots of the index: the number declared, rounded up a little.
fn index_slots(config: &Config, total_bytes: u64) -> Result<u64, OpenError> {
    let most = (total_bytes / RECORD_BYTES_MIN).max(OBJECTS_MIN);
    match config.objects_max {
        Some(objects) if objects > most => Err(OpenError::Setting {
            setting: "objects_max",
            value: objects.to_string(),
            limit: format!("volumes of {} hold at most {most}", ByteSize::new(total_bytes)),
        }),
        declared => {
            let few = (total_bytes / BYTES_PER_OBJECT_FEW).min(OBJECTS_FEW);
            let objects = declared.unwrap_or(few.max(total_bytes / BYTES_PER_OBJECT));
            Ok(slots_for(objects))
        }
    }
}

pub(super) fn slots_for(objects: u64) -> u64 {
    Index::slots_for(objects.max(OBJECTS_MIN))
}

/// Clears old superblocks, checkpoints and journals, then writes the superblock: nothing old can
/// then be taken for this store's.
fn write_superblock(volume: &RawVolume, superblock: &Superblock) -> Result<(), OpenError> {
    let io = |doing| {
        let path = volume.path.clone();
        move |source| OpenError::Io { path, doing, source }
    };
    let mut both = AlignedBuf::zeroed(SUPERBLOCKS_BYTES);
    volume.device.write_at(0, &both).map_err(io("clearing the superblock"))?;
    if superblock.checkpoint_bytes > 0 {
        let zero = AlignedBuf::zeroed(BLOCK_BYTES as usize);
        for slot in 0..2 {
            let at = superblock.layout().checkpoint_slot(slot);
            volume.device.write_at(at, &zero).map_err(io("clearing the checkpoints"))?;
        }
    }
    if superblock.journal_bytes > 0 {
        let zeros = AlignedBuf::zeroed(superblock.journal_bytes.min(CLEARED_BYTES) as usize);
        for done in (0..superblock.journal_bytes).step_by(zeros.len()) {
            let bytes = (superblock.journal_bytes - done).min(CLEARED_BYTES) as usize;
            let at = superblock.journal_offset + done;
            volume.device.write_at(at, &zeros[..bytes]).map_err(io("clearing the journal"))?;
        }
    }
    let at = superblock.layout().lives_offset();
    let lives = empty_table(superblock);
    volume.device.write_at(at, &lives).map_err(io("writing the table of lives"))?;
    volume.device.sync().map_err(io("syncing the cleared areas"))?;
    let encoded = superblock.encode();
    for copy in both.chunks_exact_mut(encoded.len()) {
        copy.copy_from_slice(&encoded);
    }
    volume.device.write_at(0, &both).map_err(io("writing the superblock"))?;
    volume.device.sync().map_err(io("syncing the superblock"))
}

/// Random numbers for ids: from the configured seed, or from the system's hash keys and time.
struct Seeds(u64);

impl Seeds {
    fn new(config: &Config, clock: &dyn Clock) -> Seeds {
        use std::hash::{BuildHasher, RandomState};
        Seeds(config.seed.unwrap_or_else(|| {
            RandomState::new().hash_one((clock.unix_seconds(), std::process::id()))
        }))
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::JOURNAL_CELL_BYTES;

    /// What a delete costs in checkpoints, where nothing else asks for one.
    #[test]
    fn a_journal_grows_with_the_checkpoints_that_its_turns_cost() {
        let mut before = 0;
        for gib in [1, 8, 32, 128, 1 << 10, 4 << 10, 16 << 10] {
            let volume: u64 = gib << 30;
            let slots = slots_for((volume / BYTES_PER_OBJECT).max(OBJECTS_FEW));
            let segments = segments_upper_bound(volume, SEGMENT_DEFAULT);
            let checkpoint = checkpoint_slot_bytes(slots, segments);
            let journal = journal_bytes(slots, checkpoint);
            assert!(journal >= before && journal <= JOURNAL_MAX, "{gib} GiB: {journal}");
            assert_eq!(journal % JOURNAL_STEP, 0);
            before = journal;
            let records = journal / JOURNAL_PARTS / JOURNAL_CELL_BYTES as u64;
            let most = if gib <= 128 { 640 } else { 5 << 10 };
            let each = checkpoint / records;
            assert!(each <= most || gib > 4 << 10, "{gib} GiB: {each} bytes for each delete");
        }
        assert_eq!(before, JOURNAL_MAX);
    }

    #[test]
    fn a_small_store_s_journal_leaves_its_segments_their_room() {
        let (slots, segments) = (slots_for(4096), segments_upper_bound(6 << 20, 256 << 10));
        let checkpoint = checkpoint_slot_bytes(slots, segments);
        assert!(checkpoint > JOURNAL_PART * JOURNAL_MIN, "{checkpoint}");
        assert_eq!(journal_bytes(slots, checkpoint), JOURNAL_MIN);
    }
}
