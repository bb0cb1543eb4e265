//! The life of each segment at an open: from a clean checkpoint, else from the tables of lives, and
//! from the segments themselves where neither tells.
//!
//! Invariant: a segment is free here only if nothing on disk that may be believed says otherwise.
//! Threads: the recovery thread, and as many helpers as the system grants (`FINDERS_MAX` threads
//! altogether), which read segments.

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, lock, spawn_scoped, thread};

use super::checkpoint::Found;
use super::lives::NotedLives;
use super::segment_contents::read_footer_into;
use crate::engine::Engine;
use crate::format::{BLOCK_BYTES, FOOTER_BLOCK_BYTES, PageHeader};
use crate::memory::mapped::AlignedBuf;
use crate::space::SegmentId;
use crate::types::SegmentLife;

/// Threads that determine the lives of segments; each waits for one small read after the other.
/// Flash needs dozens of reads at once to be fast, and a disk with an arm sorts as many.
const FINDERS_MAX: usize = 32;

impl Engine {
    /// Restores the life of each segment: from a clean checkpoint, else from the tables of lives
    /// and the segments themselves. After this, segments may be written.
    pub(super) fn restore_lives(&self, found: Option<&Found>) -> Vec<SegmentLife> {
        let clean = found.filter(|found| found.header.clean);
        let mut noted = None;
        let mut lives: Vec<_> = match clean {
            Some(found) => {
                self.restore_page_strides(&found.tables.page_stride_blocks);
                lives_of(found).collect()
            }
            // A store created just now has no records.
            None if self.created => vec![SegmentLife::NONE; self.space.segments as usize],
            None => self.find_lives(found, noted.insert(self.noted_lives())),
        };
        self.give_up_missing(&mut lives);
        if self.space.volumes.len() > 1 {
            // The first may fail while the store is only read, and the others are to go on.
            self.leave_clean();
        }
        let newest = lives.iter().max().copied().unwrap_or_default();
        self.next_seq.fetch_max(newest.get() + 1, Ordering::AcqRel);
        self.ring.restore(&lives, &self.space);
        if let Some(noted) = noted {
            self.mend_lives(&noted);
        }
        lives
    }

    /// Nothing is known of volumes that are missing, and they may come back as they were. So their
    /// segments are neither free nor in a life that anything on them has: what this open, and one
    /// after its close, goes by. What they hold is as if it could not be read.
    fn give_up_missing(&self, lives: &mut [SegmentLife]) {
        for volume in self.space.volumes.iter().filter(|volume| volume.is_missing) {
            let first = volume.superblock.first_segment as usize;
            lives[first..][..volume.superblock.segment_count as usize].fill(SegmentLife::MISSING);
            self.recovery.note_unread();
        }
    }

    /// The lives after a crash. The table is right about what is free, and about each segment that
    /// the checkpoint found sealed. A segment that was open then or later is in its table's life if
    /// its contents are, else free. Where there is no whole table, contents alone tell.
    ///
    /// After a loss of power a table may be behind. What lies where it has another life is given
    /// up, but a later recovery without that table might believe it. So until a checkpoint is
    /// complete, removes and creates are journalled as after a segment that could not be read.
    fn find_lives(&self, found: Option<&Found>, noted: &mut NotedLives) -> Vec<SegmentLife> {
        let from = found.map_or(SegmentLife::NONE, |f| SegmentLife::from_raw(f.header.ring_seq));
        let is_sure = |life: &Option<SegmentLife>| life.is_some_and(|life| life < from);
        let unsure = (0..).map(SegmentId).zip(&noted.lives).filter(|(_, life)| !is_sure(life));
        let unsure = unsure.map(|(id, _)| id).filter(|id| !self.space.is_missing(*id));
        let unsure: Vec<_> = unsure.collect();
        let mut lives: Vec<_> = noted.lives.iter().map(|life| life.unwrap_or_default()).collect();
        for (id, found) in unsure.iter().zip(self.find_segments(&unsure)) {
            let by_table = noted.lives[id.0 as usize];
            let life = found.filter(|found| by_table.is_none_or(|life| life == *found));
            lives[id.0 as usize] = life.unwrap_or_default();
            if found.is_some() && by_table.is_some() && by_table != life {
                noted.to_mend.push(*id);
            }
        }
        self.recovery.note_unread();
        lives
    }

    /// The life of each of these segments, from its footer; without one, from its first page.
    /// `None` if it cannot be read.
    fn find_segments(&self, ids: &[SegmentId]) -> Vec<Option<SegmentLife>> {
        let next = AtomicU64::new(0);
        let slots: Vec<Mutex<Option<SegmentLife>>> = ids.iter().map(|_| Mutex::default()).collect();
        with_helpers(FINDERS_MAX.min(ids.len()), thread::Builder::new, || {
            // One for all reads of the thread: buffers are mapped, and mapping stops the others.
            let mut block = AlignedBuf::zeroed(FOOTER_BLOCK_BYTES);
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed) as usize;
                let (Some(&segment), Some(slot)) = (ids.get(at), slots.get(at)) else { break };
                *lock(slot) = match read_footer_into(self, segment, &mut block) {
                    Ok(Some(footer)) => {
                        self.ring.set_page_stride(segment, footer.page_stride_bytes.into());
                        Some(footer.life())
                    }
                    Ok(None) => Some(self.life_of_open(segment, &mut block).unwrap_or_default()),
                    Err(_) => None,
                };
            }
        });
        slots.iter().map(|slot| *lock(slot)).collect()
    }

    /// The strides that a clean checkpoint names.
    fn restore_page_strides(&self, blocks: &[u16]) {
        for (segment, blocks) in (0..self.ring.segments()).map(SegmentId).zip(blocks) {
            self.ring.set_page_stride(segment, u64::from(*blocks) * BLOCK_BYTES);
        }
    }

    /// The life of a segment without a footer, from the header of its first page, which also has
    /// the stride of all. `block` is overwritten.
    fn life_of_open(&self, segment: SegmentId, block: &mut [u8]) -> Option<SegmentLife> {
        self.read_for_itself(segment, 0, block).ok()?;
        let page =
            PageHeader::decode(block, self.space.nonce, self.space.page_bytes as u32).ok()?;
        self.ring.set_page_stride(segment, page.stride_bytes.into());
        Some(page.life())
    }
}

/// Runs `work` on `threads` threads including this one; on fewer if the system does not grant them,
/// since a store must come back even so.
fn with_helpers(threads: usize, new: impl Fn() -> thread::Builder, work: impl Fn() + Sync) {
    thread::scope(|scope| {
        for _ in 1..threads {
            if spawn_scoped(new(), scope, &work).is_err() {
                break;
            }
        }
        work();
    });
}

/// The lives of the segments when the checkpoint was written.
fn lives_of(found: &Found) -> impl Iterator<Item = SegmentLife> {
    found.tables.segment_seqs.iter().map(|life| SegmentLife::from_raw(*life))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_without_helpers_too() {
        // No system grants a stack of this size.
        let refused: fn() -> thread::Builder = || thread::Builder::new().stack_size(1 << 60);
        for new in [refused, thread::Builder::new] {
            let done = AtomicU64::new(0);
            with_helpers(3, new, || {
                done.fetch_add(1, Ordering::Relaxed);
            });
            let threads = if new().spawn(|| ()).is_ok() { 3 } else { 1 };
            assert_eq!(done.load(Ordering::Relaxed), threads);
        }
    }
}
