//! Checkpoints of the index: two slots, written in turn, header last.
//!
//! A checkpoint is fuzzy: shards are copied one after the other while the store runs. Recovery
//! finds later changes in the segments written and the journal records appended since the
//! checkpoint began. Invariant: the header is written and synced last, so an incomplete checkpoint
//! is never valid. Threads: one writer at a time (a mutex), mostly the keeper, whose loop is here;
//! the rest of the store runs meanwhile.

use crate::sync::atomic::Ordering;
use crate::sync::{Arc, lock};
use std::io;
use std::time::Duration;

use super::progress::Clean;
use crate::config::Durability;
use crate::engine::Engine;
use crate::format::{
    BLOCK_BYTES, CheckpointHeader, CheckpointTables, JOURNAL_CELL_BYTES, ShardPlan, mend_bit,
};
use crate::index::Index;
use crate::memory::mapped::AlignedBuf;
use crate::stats::add;
use crate::types::{SegmentLife, Sequence};

/// How often the keeper checks whether a checkpoint is due. The journal may request one long before
/// the period is over, and creates wait while the journal is full.
const KEEPER_NAP: Duration = Duration::from_millis(20);

/// A checkpoint is written once so many times its own bytes were, so that little traffic on a large
/// volume is not mostly checkpoints: the index of 1 TiB is 2 GiB. A later recovery replays no more
/// for that than at high rates, where the period decides.
const WRITTEN_PER_CHECKPOINT: u64 = 4;
/// With less it is written after so many periods.
const PERIODS_MAX: u32 = 60;

/// When the keeper writes checkpoints.
struct Schedule {
    period: Duration,
    /// Bytes written for which it does not wait longer than the period.
    enough_bytes: u64,
    /// When the last one was tried, and whether it failed.
    last: Duration,
    failed: bool,
    /// Bytes written when the last one that is complete was begun.
    covered_bytes: u64,
    /// When the devices were synced last, and the bytes written by then.
    synced: (Duration, u64),
}

impl Schedule {
    fn is_due(&self, now: Duration, written_bytes: u64) -> bool {
        let (since, bytes) = (now.saturating_sub(self.last), written_bytes - self.covered_bytes);
        let is_worth_it =
            bytes >= self.enough_bytes || since >= self.period.saturating_mul(PERIODS_MAX);
        !self.period.is_zero() && since >= self.period && bytes > 0 && (self.failed || is_worth_it)
    }

    /// Whether what was written is to be synced without a checkpoint, which would do it: a loss of
    /// power costs what was written in a period.
    fn is_sync_due(&self, now: Duration, written_bytes: u64) -> bool {
        let (at, bytes) = self.synced;
        let since = now.saturating_sub(at.max(self.last));
        !self.period.is_zero() && since >= self.period && written_bytes > bytes
    }
}

/// Header and tables of a checkpoint on disk, without its shards.
pub(crate) struct Found {
    pub(crate) header: CheckpointHeader,
    pub(crate) tables: CheckpointTables,
    pub(crate) slot: usize,
}

/// Passes the image of an index to `take` in pieces of equal size, aligned for direct I/O.
fn image_pieces(
    index: &Index,
    plan: &ShardPlan,
    mut take: impl FnMut(u32, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let piece = plan.shard_bytes as usize;
    let shard_bytes = index.shard_slots() as usize * 8;
    // Mapped rather than allocated: the megabytes go back to the system after each checkpoint.
    let mut image = AlignedBuf::zeroed(piece + shard_bytes);
    let (mut filled, mut number) = (0, 0);
    for shard in 0..index.shard_count() {
        index.copy_shard(shard, &mut image[filled..filled + shard_bytes]);
        filled += shard_bytes;
        let mut taken = 0;
        while filled - taken >= piece {
            take(number, &image[taken..taken + piece])?;
            taken += piece;
            number += 1;
        }
        image.copy_within(taken..filled, 0);
        filled -= taken;
    }
    if filled > 0 {
        image[filled..piece].fill(0);
        take(number, &image[..piece])?;
    }
    Ok(())
}

impl Engine {
    /// The keeper thread: writes a checkpoint when the schedule says so, or when the journal
    /// requests one. Flush periods of groups are the flusher's business.
    pub(crate) fn keep(self: &Arc<Engine>) {
        self.recovery.wait_done();
        let plan = ShardPlan::of(self.space.volumes[0].superblock.index_slots);
        let checkpoint_bytes = u64::from(plan.shard_count) * u64::from(plan.shard_bytes);
        let mut schedule = Schedule {
            period: self.config.checkpoint_period,
            enough_bytes: WRITTEN_PER_CHECKPOINT * checkpoint_bytes,
            last: self.clock.monotonic(),
            failed: false,
            covered_bytes: 0,
            synced: (Duration::ZERO, 0),
        };
        while !self.rest.sleep(KEEPER_NAP) {
            self.prepare_journal();
            let now = self.clock.monotonic();
            let journalled = self.counters.journal_records.load(Ordering::Relaxed);
            let written_bytes = self.counters.written_bytes.load(Ordering::Relaxed)
                + journalled * JOURNAL_CELL_BYTES as u64;
            if self.spares_missing() {
                // Until something is changed: then what was asked for is still to be had.
                continue;
            }
            if schedule.is_due(now, written_bytes) || self.journal.take_wants_checkpoint() {
                schedule.last = now;
                // Failures are counted; after another period it is tried again, also where nothing
                // more was written.
                schedule.failed = self.write_checkpoint(false).is_err();
                if !schedule.failed {
                    schedule.covered_bytes = written_bytes;
                    schedule.synced = (now, written_bytes);
                }
            } else if schedule.is_sync_due(now, written_bytes) {
                schedule.synced = (now, written_bytes);
                for volume in self.space.volumes.iter().filter(|volume| !volume.is_out()) {
                    // A failure is counted, and takes the volume out of service if they go on.
                    let _ = self.space.sync(volume);
                }
            }
        }
    }

    /// A store that is only read is left as it is: what is made ready is written.
    pub(crate) fn prepare_journal(&self) {
        if self.counters.journal_records.load(Ordering::Relaxed) > 0 {
            self.journal.prepare();
        }
    }

    /// Writes a checkpoint now. `clean` marks the last one before close.
    pub(crate) fn write_checkpoint(&self, clean: bool) -> io::Result<()> {
        let mut newest = lock(&self.checkpoints.newest);
        if self.is_closed() && !clean {
            // The checkpoint written by `close` must stay the newest: it records a clean end.
            return Err(io::Error::other("the store is closed"));
        }
        let outcome = self.write_after(*newest, clean);
        match &outcome {
            Ok(generation) => {
                *newest = *generation;
                self.checkpoints.failures.store(0, Ordering::Relaxed);
                add(&self.counters.checkpoints, 1);
                let _ = self.counted(self.journal.append_left());
            }
            Err(_) => {
                add(&self.counters.checkpoint_errors, 1);
                let failures = self.checkpoints.failures.fetch_add(1, Ordering::Relaxed) + 1;
                if failures >= self.config.volume_errors_max {
                    let _ = self.counted(self.journal.go_uncovered());
                }
            }
        }
        outcome.map(drop)
    }

    /// Whether a checkpoint would give up what volumes hold that the store was opened without,
    /// though nothing was changed since: the last one still tells all, and when they are back, the
    /// next open finds by it what they hold. Who only looked has lost nothing.
    pub(crate) fn spares_missing(&self) -> bool {
        let counters = &self.counters;
        let changes = [
            &counters.journal_records,
            &counters.pages_written,
            &counters.extents_written,
            &counters.checkpoints,
            &counters.checkpoint_errors,
        ];
        self.space.volumes.iter().any(|volume| volume.is_missing)
            && changes.iter().all(|count| count.load(Ordering::Relaxed) == 0)
    }

    /// The checkpoint at a close: none where that of the close before still tells all. What only
    /// memory knows beside, how often objects were hit since, is not worth a checkpoint.
    pub(crate) fn checkpoint_at_close(&self) -> io::Result<()> {
        let clean = *lock(&self.checkpoints.clean);
        let is_as_found = clean.is_some_and(|clean| clean.covers)
            && self.counters.journal_records.load(Ordering::Relaxed) == 0
            && !self.recovery.is_incomplete();
        if is_as_found || self.spares_missing() { Ok(()) } else { self.write_checkpoint(true) }
    }

    /// Before a record is written to the journal.
    pub(crate) fn note_journalled(&self) {
        add(&self.counters.journal_records, 1);
        if self.config.durability != Durability::None {
            self.leave_clean();
        }
    }

    /// Before the first write to the journal, a segment, its life or a checkpoint: what a clean
    /// close left does not speak for the store any more, and says so on disk when this returns.
    pub(crate) fn leave_clean(&self) {
        if !self.space.is_untouched() {
            return;
        }
        // Others that are about to write wait here.
        let mut clean = lock(&self.checkpoints.clean);
        if let Some(found) = clean.take()
            && let Err(error) = clear_clean(self, &found)
        {
            // After a crash, the clean tables would be trusted for segments written from now on,
            // and numbers given from now on be given again. So nothing may be written, on any
            // volume.
            self.space.take_out(&format!("that the store is in use could not be noted: {error}"));
            add(&self.counters.checkpoint_errors, 1);
        }
        self.space.set_untouched(false);
        drop(clean);
        self.damaged_superblocks.mend(&self.space);
    }

    /// Writes the checkpoint after that of the generation `newest`; returns its own.
    fn write_after(&self, newest: u64, clean: bool) -> io::Result<u64> {
        self.leave_clean();
        let volume = &self.space.volumes[0];
        if volume.is_out() {
            let _ = self.counted(self.journal.go_uncovered());
            return Err(volume.named(io::Error::other("out of service: it has the checkpoints")));
        }
        let superblock = &volume.superblock;
        let layout = superblock.layout();
        let epoch = self.journal.checkpoint_begins();
        let generation = self.journal.generation_after(newest, epoch);
        let slot = layout.checkpoint_slot((generation % 2) as usize);
        self.index.checkpoint_begins();
        let seq_next = self.next_seq.load(Ordering::SeqCst);
        // After this, every create with a smaller sequence number is in the nursery.
        self.gate.wait_empty();
        let ring_seq = self.oldest_open_life().get();
        // While a new version waits in memory, the index may still have an older one. The journal's
        // delete record may be dropped once this checkpoint is complete, so the new version must be
        // on disk before the index is copied.
        self.drain();
        let plan = ShardPlan::of(superblock.index_slots);
        let header = CheckpointHeader {
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
            // Else it is said to be clean once the journal asks for it.
            clean: clean && !self.index.checkpoint_lacks(),
            location_bits: self.index.location_bits(),
        };
        let tables = CheckpointTables {
            segment_seqs: self.ring.lives().into_iter().map(SegmentLife::get).collect(),
            page_stride_blocks: self.ring.page_stride_blocks(),
            marks: self.marks.records(),
            shard_crcs: vec![0; plan.shard_count as usize],
        };
        let header = self.write_slot(slot, &plan, header, tables)?;
        self.journal.checkpoint_done(epoch, generation);
        self.checkpoints.note_complete(Sequence::from_raw(seq_next));
        let required = self.require_if_it_lacks(header);
        if required.is_ok() {
            self.index.checkpoint_done();
        }
        if clean && !header.clean {
            required?;
            write_header(self, slot, CheckpointHeader { clean, ..header })?;
        }
        Ok(generation)
    }

    /// Has the journal ask for a checkpoint that lacks what an older one may have, and that nobody
    /// is going to journal any more once it is complete. Where that fails, all of it is journalled
    /// until the next is complete, and a close leaves the store as a crash does.
    fn require_if_it_lacks(&self, header: CheckpointHeader) -> io::Result<()> {
        if !self.index.checkpoint_lacks() {
            return Ok(());
        }
        let seq = Sequence::from_raw(header.seq_next);
        self.counted(self.journal.require(header.generation, seq))
    }

    /// Writes a checkpoint of the current index into the slot at byte `slot`; returns its header.
    fn write_slot(
        &self,
        slot: u64,
        plan: &ShardPlan,
        mut header: CheckpointHeader,
        mut tables: CheckpointTables,
    ) -> io::Result<CheckpointHeader> {
        let superblock = &self.space.volumes[0].superblock;
        let (_, placed) = tables.encode(header).map_err(io::Error::other)?;
        if placed.total_bytes() > superblock.checkpoint_bytes {
            return Err(io::Error::other("a checkpoint larger than its slot"));
        }
        // The old header must not vouch for new shards.
        self.put_checkpoint(slot, &AlignedBuf::zeroed(BLOCK_BYTES as usize))?;
        let crcs = &mut tables.shard_crcs;
        image_pieces(&self.index, plan, |number, piece| {
            let at = placed.shard_offset(number).ok_or_else(|| io::Error::other("shard number"))?;
            crcs[number as usize] = crc32c::crc32c(piece);
            self.put_checkpoint(slot + at, piece)
        })?;
        let (bytes, sealed) = tables.encode(header).map_err(io::Error::other)?;
        header = sealed;
        let mut region = AlignedBuf::zeroed(bytes.len().next_multiple_of(BLOCK_BYTES as usize));
        region[..bytes.len()].copy_from_slice(&bytes);
        self.put_checkpoint(slot + header.tables_offset(), &region)?;
        for volume in self.space.volumes.iter().filter(|volume| !volume.is_out()) {
            self.space.sync(volume)?;
        }
        write_header(self, slot, header)?;
        Ok(header)
    }

    /// Writes a part of a checkpoint, and counts it.
    fn put_checkpoint(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.space.volumes[0].write_at(at, bytes)?;
        add(&self.counters.checkpoint_bytes, bytes.len() as u64);
        Ok(())
    }

    /// First life whose segment may hold objects that the checkpoint misses.
    fn oldest_open_life(&self) -> SegmentLife {
        // Loaded first: a life with a smaller number is seen below, and later ones have greater
        // ones.
        let next = SegmentLife::from_raw(self.next_seq.load(Ordering::SeqCst));
        self.ring.oldest_unsealed().unwrap_or(next)
    }
}

/// Finds the newest valid checkpoint of the first volume; a damaged slot is ignored.
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
    let decode = |block: &[u8]| CheckpointHeader::decode(block, engine.space.nonce, bytes).ok();
    let header = match decode(&block) {
        Some(header) => header,
        None => mended_header(&mut block, decode)?,
    };
    if header.index_slots != engine.space.volumes[0].superblock.index_slots
        || header.segment_count != engine.space.segments
        || header.location_bits != engine.index.location_bits()
    {
        return None;
    }
    let len = (header.tables_bytes as usize).next_multiple_of(BLOCK_BYTES as usize);
    let mut region = AlignedBuf::zeroed(len);
    device.read_at(at + header.tables_offset(), &mut region).ok()?;
    let tables = CheckpointTables::decode(&region, &header).ok()?;
    Some(Found { header, tables, slot })
}

/// The header of a checkpoint of which a single bit is wrong: a loss of power while its flag was
/// being changed leaves one so. It is not taken for that of a clean close then, which it may be.
fn mended_header(
    block: &mut [u8],
    decode: impl Fn(&[u8]) -> Option<CheckpointHeader>,
) -> Option<CheckpointHeader> {
    let (body, crc) = block.split_last_chunk_mut()?;
    let is_right = mend_bit(body, u32::from_le_bytes(*crc));
    is_right
        .then(|| decode(block))
        .flatten()
        .map(|header| CheckpointHeader { clean: false, ..header })
}

/// Clears the `clean` flag of a checkpoint, before anything is written after it.
fn clear_clean(engine: &Engine, found: &Clean) -> io::Result<()> {
    let slot = engine.space.volumes[0].superblock.layout().checkpoint_slot(found.slot);
    write_header(engine, slot, CheckpointHeader { clean: false, ..found.header })
}

/// Writes the header of the checkpoint in the slot at byte `slot`, durably.
fn write_header(engine: &Engine, slot: u64, header: CheckpointHeader) -> io::Result<()> {
    let volume = &engine.space.volumes[0];
    let mut block = AlignedBuf::zeroed(BLOCK_BYTES as usize);
    block.copy_from_slice(&header.encode());
    engine.put_checkpoint(slot, &block)?;
    engine.space.sync(volume)
}

/// Loads the shards of a checkpoint, keeping only entries in segments that are still in the same
/// life. Returns the number of entries loaded. A damaged piece is counted, and skipped unless
/// correcting one bit restores its checksum.
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
            // A wrong correction does no harm: an index entry is verified when its object is read.
            if !read || !crc.is_some_and(|crc| mend_bit(&mut buf, crc)) {
                buf.fill(0);
                engine.recovery.note_unread();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{LengthClass, Location};

    #[test]
    fn a_flag_of_which_the_change_was_torn_is_put_right_and_not_believed() {
        let nonce = crate::format::StoreNonce(7);
        let header = |clean| CheckpointHeader {
            nonce,
            generation: 3,
            seq_next: 9,
            ring_seq: 4,
            index_slots: 512,
            shard_count: 1,
            shard_bytes: 4096,
            segment_count: 8,
            mark_count: 0,
            tables_crc: 1,
            tables_bytes: 84,
            clean,
            location_bits: 38,
        };
        let decode = |block: &[u8]| CheckpointHeader::decode(block, nonce, 1 << 20).ok();
        assert_eq!(decode(&header(true).encode()), Some(header(true)));
        for (first, last) in [(true, false), (false, true)] {
            let mut torn = header(first).encode();
            torn[512..].copy_from_slice(&header(last).encode()[512..]);
            assert_eq!(decode(&torn), None);
            assert_eq!(mended_header(&mut torn, decode), Some(header(false)));
            let mut damaged = header(first).encode();
            (damaged[9], damaged[33]) = (damaged[9] ^ 1, damaged[33] ^ 4);
            assert_eq!(mended_header(&mut damaged, decode), None);
        }
    }

    /// The pieces make up the image of all shards in order, whatever their size: shorter than a
    /// shard, longer, and not a divisor of a shard's size. Each piece is aligned for direct I/O.
    #[test]
    fn pieces_are_the_image_cut_up() {
        let index = Index::new(20_000);
        for n in 1..=9_000_u64 {
            let hash = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let _ = index.insert(hash, Location::new(n), LengthClass::LARGE, 0, |_| 0);
        }
        let mut whole = Vec::new();
        let mut image = vec![0; index.shard_slots() as usize * 8];
        for shard in 0..index.shard_count() {
            index.copy_shard(shard, &mut image);
            whole.extend_from_slice(&image);
        }
        assert!(whole.iter().any(|byte| *byte != 0));
        for piece in [4096, 3 * 4096, image.len().next_multiple_of(4096), 1 << 20] {
            let plan = ShardPlan { shard_count: 0, shard_bytes: piece as u32 };
            let mut joined = Vec::new();
            image_pieces(&index, &plan, |number, bytes| {
                assert_eq!((number as usize * piece, bytes.len()), (joined.len(), piece));
                assert!((bytes.as_ptr() as usize).is_multiple_of(4096));
                joined.extend_from_slice(bytes);
                Ok(())
            })
            .expect("nothing fails");
            assert_eq!(joined.len(), whole.len().next_multiple_of(piece));
            assert!(
                joined[..whole.len()] == whole && joined[whole.len()..].iter().all(|b| *b == 0)
            );
        }
    }

    #[test]
    fn a_checkpoint_waits_until_it_is_a_small_part_of_what_is_written() {
        let secs = Duration::from_secs;
        let (period, last) = (secs(30), secs(100));
        let synced = (secs(100), 1000);
        let covered_bytes = 1000;
        let of =
            |failed| Schedule { period, enough_bytes: 400, last, failed, covered_bytes, synced };
        let due = |failed, now, written| of(failed).is_due(secs(now), written);
        assert!(!due(false, 129, 9000), "the period is the least");
        assert!(due(false, 130, 1400) && !due(false, 130, 1399));
        assert!(due(false, 100 + 30 * 60, 1001) && !due(false, 99 + 30 * 60, 1001));
        assert!(!due(false, 100_000, 1000), "nothing was written");
        assert!(due(true, 130, 1001) && !due(true, 129, 1001), "one that failed is tried again");
        let never = Schedule { period: Duration::ZERO, ..of(true) };
        assert!(!never.is_due(secs(100_000), 9000) && !never.is_sync_due(secs(100_000), 9000));
        let hardly_ever = Schedule { period: Duration::MAX, ..of(true) };
        assert!(!hardly_ever.is_due(secs(100_000), 9000));
        assert!(of(false).is_sync_due(secs(130), 1001), "each period");
        assert!(!of(false).is_sync_due(secs(129), 1001) && !of(false).is_sync_due(secs(130), 1000));
    }
}
