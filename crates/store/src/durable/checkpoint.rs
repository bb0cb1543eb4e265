//! Checkpoints of the index: two slots, written in turn, header last.
//!
//! A checkpoint is fuzzy: shards are copied one after the other while the store runs. What happened
//! since its start is found again from the segments written and the journal since then.
//! Threads: one writer at a time (a mutex), beside everything else.

use crate::sync::Mutex;
use std::io;

use crate::engine::Engine;
use crate::format::{BLOCK_BYTES, CheckpointHeader, CheckpointTables, ShardPlan, mend_bit};
use crate::memory::mapped::{AlignedBuf, Mapped, MappedVec};
use crate::memory::pool::lock;
use crate::stats::add;

pub(crate) struct CheckpointState {
    /// Generation of the newest complete checkpoint.
    newest: Mutex<u64>,
}

impl CheckpointState {
    pub(crate) fn new(generation: u64) -> CheckpointState {
        CheckpointState { newest: Mutex::new(generation) }
    }

    /// Generations at least as high as this one are taken.
    pub(crate) fn raise(&self, generation: u64) {
        let mut newest = lock(&self.newest);
        *newest = generation.max(*newest);
    }
}

/// What a checkpoint on disk says, without its shards.
pub(crate) struct Found {
    pub(crate) header: CheckpointHeader,
    pub(crate) tables: CheckpointTables,
    pub(crate) slot: usize,
}

/// The image of an index, cut into pieces of equal size.
fn image_pieces(
    engine: &Engine,
    plan: &ShardPlan,
    mut take: impl FnMut(u32, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let piece = plan.shard_bytes as usize;
    let mut shard_image = AlignedBuf::zeroed(engine.index.shard_slots() as usize * 8);
    // Megabytes, now and then: nothing is to be left of them.
    let mut pending = MappedVec::with_capacity_in(piece + shard_image.len(), Mapped);
    let mut number = 0;
    for shard in 0..engine.index.shard_count() {
        engine.index.copy_shard(shard, &mut shard_image);
        pending.extend_from_slice(&shard_image);
        while pending.len() >= piece {
            take(number, &pending[..piece])?;
            pending.drain(..piece);
            number += 1;
        }
    }
    if !pending.is_empty() {
        pending.resize(piece, 0);
        take(number, &pending)?;
    }
    Ok(())
}

impl Engine {
    /// Writes a checkpoint now. `clean` is set by the last one before close.
    pub(crate) fn write_checkpoint(&self, clean: bool) -> io::Result<()> {
        let mut newest = lock(&self.checkpoints.newest);
        let outcome = self.write_generation(*newest + 1, clean);
        match &outcome {
            Ok(()) => {
                *newest += 1;
                add(&self.counters.checkpoints, 1);
            }
            Err(_) => add(&self.counters.checkpoint_errors, 1),
        }
        outcome
    }

    fn write_generation(&self, generation: u64, clean: bool) -> io::Result<()> {
        let volume = &self.space.volumes[0];
        let superblock = &volume.superblock;
        let layout = superblock.layout();
        let slot = layout.checkpoint_slot((generation % 2) as usize);
        let epoch = self.journal.checkpoint_begins();
        self.index.checkpoint_begins();
        let seq_next = self.next_seq.load(std::sync::atomic::Ordering::SeqCst);
        // Whoever has an older number is in the nursery after this.
        self.gate.wait_empty();
        let ring_seq = self.oldest_open_seq();
        // A new version that still waits in memory has an older one in the index. Its delete record
        // may be forgotten once this checkpoint is complete, so it must be on disk before the copy.
        self.drain();
        let plan = ShardPlan::of(superblock.index_slots);
        let mut header = CheckpointHeader {
            nonce: self.space.nonce,
            generation,
            seq_next,
            ring_seq,
            index_slots: superblock.index_slots,
            shard_count: plan.shard_count,
            shard_bytes: plan.shard_bytes,
            segment_count: self.space.segments,
            mark_count: 0,
            tables_crc: 0,
            tables_bytes: 0,
            clean,
        };
        let mut tables = CheckpointTables {
            segment_seqs: self.ring.seqs(),
            marks: self.marks.records(),
            shard_crcs: vec![0; plan.shard_count as usize],
        };
        let (_, placed) = tables.encode(header).map_err(io::Error::other)?;
        if placed.total_bytes() > layout.checkpoint_bytes {
            return Err(io::Error::other("a checkpoint larger than its slot"));
        }
        // The old header must not vouch for new shards.
        volume.device.write_at(slot, &AlignedBuf::zeroed(BLOCK_BYTES as usize))?;
        let mut buf = AlignedBuf::zeroed(plan.shard_bytes as usize);
        let crcs = &mut tables.shard_crcs;
        image_pieces(self, &plan, |number, piece| {
            buf.copy_from_slice(piece);
            let at = placed.shard_offset(number).ok_or_else(|| io::Error::other("shard number"))?;
            crcs[number as usize] = crc32c::crc32c(piece);
            volume.device.write_at(slot + at, &buf)
        })?;
        let (bytes, sealed) = tables.encode(header).map_err(io::Error::other)?;
        header = sealed;
        let mut region = AlignedBuf::zeroed(bytes.len().next_multiple_of(BLOCK_BYTES as usize));
        region[..bytes.len()].copy_from_slice(&bytes);
        volume.device.write_at(slot + header.tables_offset(), &region)?;
        for volume in &self.space.volumes {
            volume.device.sync()?;
        }
        let mut block = AlignedBuf::zeroed(BLOCK_BYTES as usize);
        block.copy_from_slice(&header.encode());
        volume.device.write_at(slot, &block)?;
        volume.device.sync()?;
        self.journal.checkpoint_done(epoch, generation);
        self.index.checkpoint_done();
        Ok(())
    }

    /// Segments from this life on may hold objects that the checkpoint misses.
    fn oldest_open_seq(&self) -> u64 {
        let next = self.ring.next_seq();
        // Two segments are open, or rest, at once, and lives are handed out one by one.
        self.ring.oldest_unsealed().unwrap_or(next)
    }
}

/// Finds the newest valid checkpoint of a volume; damage makes it look for the other.
pub(crate) fn find(engine: &Engine) -> Option<Found> {
    let superblock = &engine.space.volumes[0].superblock;
    let layout = superblock.layout();
    let mut found: Vec<Found> = (0..2)
        .filter_map(|slot| {
            read_slot(engine, slot, layout.checkpoint_slot(slot), layout.checkpoint_bytes)
        })
        .collect();
    found.sort_by_key(|f| std::cmp::Reverse(f.header.generation));
    found.into_iter().next()
}

fn read_slot(engine: &Engine, slot: usize, at: u64, bytes: u64) -> Option<Found> {
    let device = &engine.space.volumes[0].device;
    let mut block = AlignedBuf::zeroed(BLOCK_BYTES as usize);
    device.read_at(at, &mut block).ok()?;
    let header = CheckpointHeader::decode(&block, engine.space.nonce, bytes).ok()?;
    if header.index_slots != engine.space.volumes[0].superblock.index_slots
        || header.segment_count != engine.space.segments
    {
        return None;
    }
    let len = (header.tables_bytes as usize).next_multiple_of(BLOCK_BYTES as usize);
    let mut region = AlignedBuf::zeroed(len);
    device.read_at(at + header.tables_offset(), &mut region).ok()?;
    let tables = CheckpointTables::decode(&region, &header).ok()?;
    Some(Found { header, tables, slot })
}

/// Takes back a checkpoint's word that nothing was written after it: before anything is.
pub(crate) fn clear_clean(engine: &Engine, found: &Found) -> io::Result<()> {
    let volume = &engine.space.volumes[0];
    let slot = volume.superblock.layout().checkpoint_slot(found.slot);
    let header = CheckpointHeader { clean: false, ..found.header };
    let mut block = AlignedBuf::zeroed(BLOCK_BYTES as usize);
    block.copy_from_slice(&header.encode());
    volume.device.write_at(slot, &block)?;
    volume.device.sync()
}

/// Loads the shards of a checkpoint, entries in segments that are still in the same life only.
/// Returns how many entries were loaded; a damaged piece is counted, and skipped unless one bit put right makes it whole.
pub(crate) fn load_shards(
    engine: &Engine,
    found: &Found,
    is_current: impl Fn(crate::space::SegmentId) -> bool,
) -> u64 {
    let volume = &engine.space.volumes[0];
    let slot = volume.superblock.layout().checkpoint_slot(found.slot);
    let shard_bytes = engine.index.shard_slots() as usize * 8;
    let mut pending: Vec<u8> = Vec::new();
    let (mut shard, mut loaded) = (0, 0);
    let mut buf = AlignedBuf::zeroed(found.header.shard_bytes as usize);
    for number in 0..found.header.shard_count {
        let read = found
            .header
            .shard_offset(number)
            .is_some_and(|at| volume.device.read_at(slot + at, &mut buf).is_ok());
        let crc = found.tables.shard_crcs.get(number as usize).copied();
        if !read || crc != Some(crc32c::crc32c(&buf)) {
            add(&engine.counters.damaged_records, 1);
            // What a slot says is looked at again when its object is read.
            if !read || !crc.is_some_and(|crc| mend_bit(&mut buf, crc)) {
                buf.fill(0);
            }
        }
        pending.extend_from_slice(&buf);
        while pending.len() >= shard_bytes && shard < engine.index.shard_count() {
            let keep = |location| {
                let (segment, _) = engine.space.split(location);
                engine.space.holds(segment) && is_current(segment)
            };
            let age = |location| engine.ring.age(&engine.space, location);
            loaded += engine.index.load_shard(shard, &pending[..shard_bytes], keep, age).loaded;
            pending.drain(..shard_bytes);
            shard += 1;
        }
    }
    loaded
}
