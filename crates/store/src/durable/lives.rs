//! The table of lives on each volume: written as segments change hands, read after a crash in place
//! of every segment.
//!
//! Invariants: a segment is in the table as free before its contents are erased, and in its new
//! life before anything of that is written; so unless power was lost, the table is right about each
//! segment that a checkpoint found sealed. Threads: recovery, later the flusher, which alone
//! changes lives.

use std::io;

use crate::engine::Engine;
use crate::format::{BLOCK_BYTES, LIVES_PER_BLOCK, LifeBlock, LifeEntry, Superblock};
use crate::memory::mapped::AlignedBuf;
use crate::space::{SegmentId, Volume};
use crate::stats::add;
use crate::types::SegmentLife;

/// Blocks of the table that are read at once.
const READ_BLOCKS: u32 = 256;

/// What the tables of all volumes say.
pub(crate) struct NotedLives {
    /// By segment; `None` where the table is damaged.
    pub(crate) lives: Vec<Option<SegmentLife>>,
    /// Segments whose block is to be written again: the first of each that is damaged, and those
    /// of which the table turned out to be wrong.
    pub(crate) to_mend: Vec<SegmentId>,
}

/// Segments of a volume that one block of its table is about.
#[derive(Clone, Copy)]
struct BlockAt {
    first: SegmentId,
    segments: u32,
    /// Its place on the volume, in bytes.
    at: u64,
}

impl BlockAt {
    /// The block with the number `number` in the table of this volume.
    fn of(volume: &Volume, number: u32) -> BlockAt {
        let (at, before, segments) = volume.superblock.layout().lives_block(number);
        BlockAt { first: SegmentId(volume.superblock.first_segment + before), segments, at }
    }

    /// The block that is about this segment, which is on this volume.
    fn with(volume: &Volume, segment: SegmentId) -> BlockAt {
        let local = segment.0 - volume.superblock.first_segment;
        BlockAt::of(volume, local / LIVES_PER_BLOCK)
    }

    fn ids(self) -> impl Iterator<Item = SegmentId> {
        (self.first.0..self.first.0 + self.segments).map(SegmentId)
    }
}

impl Engine {
    /// Notes on disk that a segment is in this life, or free.
    pub(crate) fn note_life(&self, segment: SegmentId, life: SegmentLife) -> io::Result<()> {
        let volume = self.space.spot(segment, 0).volume;
        let place = BlockAt::with(volume, segment);
        let entry = |id| {
            let life = if id == segment { life } else { self.ring.life(id) };
            let stride = if life.is_none() { 0 } else { self.ring.page_stride(id) };
            let page_stride_blocks = (stride / BLOCK_BYTES) as u16;
            LifeEntry { segment_seq: life.get(), page_stride_blocks }
        };
        let entries = place.ids().map(entry).collect();
        let block =
            LifeBlock { nonce: self.space.nonce, first_segment: place.first.0, entries }.encode();
        let mut aligned = AlignedBuf::zeroed(block.len());
        aligned.copy_from_slice(&block);
        self.space.write_beside(volume, place.at, &aligned)?;
        add(&self.counters.written_bytes, BLOCK_BYTES);
        Ok(())
    }

    /// Reads the tables of all volumes, and notes the strides of pages that they have.
    pub(crate) fn noted_lives(&self) -> NotedLives {
        let mut noted =
            NotedLives { lives: vec![None; self.space.segments as usize], to_mend: Vec::new() };
        for volume in self.space.volumes.iter().filter(|volume| !volume.is_missing) {
            let blocks = volume.superblock.segment_count.div_ceil(LIVES_PER_BLOCK);
            for first in (0..blocks).step_by(READ_BLOCKS as usize) {
                let count = READ_BLOCKS.min(blocks - first);
                let mut bytes = AlignedBuf::zeroed(count as usize * BLOCK_BYTES as usize);
                add(&self.counters.maintenance_reads, 1);
                let read = volume.device.read_at(BlockAt::of(volume, first).at, &mut bytes);
                let blocks = bytes.chunks_exact_mut(BLOCK_BYTES as usize);
                for (number, block) in (first..).zip(blocks) {
                    let place = BlockAt::of(volume, number);
                    // Of several that cannot be read together one may be to blame.
                    let is_read = read.is_ok() || volume.device.read_at(place.at, block).is_ok();
                    self.take_block(place, is_read.then_some(block), &mut noted);
                }
            }
        }
        noted
    }

    /// Adds what a block says, if it could be read.
    fn take_block(&self, place: BlockAt, block: Option<&mut [u8]>, noted: &mut NotedLives) {
        let BlockAt { first, segments, .. } = place;
        let decode =
            |block: &mut [u8]| LifeBlock::decode(block, self.space.nonce, first.0, segments).ok();
        let Some(block) = block.and_then(decode) else {
            // No damage: a crash tears what it interrupts.
            noted.to_mend.push(first);
            return;
        };
        for (id, entry) in place.ids().zip(&block.entries) {
            if !entry.life().is_none() {
                self.ring.set_page_stride(id, u64::from(entry.page_stride_blocks) * BLOCK_BYTES);
            }
            noted.lives[id.0 as usize] = Some(entry.life());
        }
    }

    /// Writes blocks of the tables again, once the lives are known. Where that fails, the next
    /// change of a life in the block will do it.
    pub(crate) fn mend_lives(&self, noted: &NotedLives) {
        let mut ids = noted.to_mend.clone();
        ids.sort_unstable();
        ids.dedup_by_key(|id| BlockAt::with(self.space.spot(*id, 0).volume, *id).first);
        for id in ids {
            let _ = self.note_life(id, self.ring.life(id));
        }
    }
}

/// The table of lives of a volume that is being made: all segments are free.
pub(crate) fn empty_table(superblock: &Superblock) -> AlignedBuf {
    let blocks = superblock.segment_count.div_ceil(LIVES_PER_BLOCK);
    let mut table = AlignedBuf::zeroed(blocks as usize * BLOCK_BYTES as usize);
    for (number, place) in (0..).zip(table.chunks_exact_mut(BLOCK_BYTES as usize)) {
        let first_segment = superblock.first_segment + number * LIVES_PER_BLOCK;
        let block = LifeBlock { nonce: superblock.nonce(), first_segment, entries: Vec::new() };
        place.copy_from_slice(&block.encode());
    }
    table
}
