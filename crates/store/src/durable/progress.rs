//! The progress of recovery and checkpoints, as state of the engine.
//!
//! Invariant: recovery ends once and does not begin again. Threads: any thread queries and waits;
//! the recovery thread updates the progress; a checkpoint's writer holds the lock on its
//! generation.

use crate::device::submit_deferred;
use crate::format::CheckpointHeader;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex, PoisonError, lock};
use crate::types::Sequence;

/// The progress of recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RecoveryProgress {
    /// Recovery is complete: every object that survived is served.
    pub done: bool,
    /// Segments that recovery must read.
    pub segments_wanted: u64,
    /// Segments read so far.
    pub segments_loaded: u64,
    /// Objects found so far.
    pub objects_loaded: u64,
}

#[derive(Default)]
pub(crate) struct RecoveryState {
    /// The next recovery may find objects that this one did not: a read failed, or not all was read
    /// after a crash.
    pub(super) incomplete: AtomicBool,
    pub(super) total: AtomicU64,
    pub(super) loaded: AtomicU64,
    pub(super) objects: AtomicU64,
    done: AtomicBool,
    ring_known: Mutex<bool>,
    changed: Condvar,
}

impl RecoveryState {
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    pub(crate) fn progress(&self) -> RecoveryProgress {
        RecoveryProgress {
            done: self.is_done(),
            segments_wanted: self.total.load(Ordering::Relaxed),
            segments_loaded: self.loaded.load(Ordering::Relaxed),
            objects_loaded: self.objects.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn note_unread(&self) {
        self.incomplete.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_incomplete(&self) -> bool {
        self.incomplete.load(Ordering::Relaxed)
    }

    pub(super) fn set_ring_known(&self) {
        *lock(&self.ring_known) = true;
        self.changed.notify_all();
    }

    /// Waits until the state of every segment is known. The flusher waits here, since it needs to
    /// know which segments are free.
    pub(crate) fn wait_ring_known(&self) {
        let mut known = lock(&self.ring_known);
        while !*known {
            known = self.changed.wait(known).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn finish(&self) {
        self.done.store(true, Ordering::Release);
        drop(lock(&self.ring_known));
        self.changed.notify_all();
    }

    /// As `wait_done`, for at most `most`.
    pub(crate) fn wait_done_for(&self, most: std::time::Duration) {
        submit_deferred();
        let known = lock(&self.ring_known);
        let pending = |_: &mut bool| !self.is_done();
        drop(self.changed.wait_timeout_while(known, most, pending));
    }

    pub(crate) fn wait_done(&self) {
        submit_deferred();
        let mut known = lock(&self.ring_known);
        while !self.is_done() {
            known = self.changed.wait(known).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

pub(crate) struct CheckpointState {
    /// Generation of the newest complete checkpoint.
    pub(super) newest: Mutex<u64>,
    /// First sequence number that it does not speak for.
    seq_next: AtomicU64,
    /// Attempts in a row that failed.
    pub(super) failures: AtomicU32,
    /// The checkpoint of a clean close, as long as it says on disk that it is one. Held while that
    /// changes.
    pub(super) clean: Mutex<Option<Clean>>,
}

/// What a clean close left.
#[derive(Clone, Copy)]
pub(crate) struct Clean {
    pub(super) header: CheckpointHeader,
    pub(super) slot: usize,
    /// It covers all of the journal that the open found, and all that was forgotten since.
    pub(super) covers: bool,
}

impl CheckpointState {
    pub(crate) fn new(generation: u64) -> CheckpointState {
        CheckpointState {
            newest: Mutex::new(generation),
            seq_next: AtomicU64::new(0),
            failures: AtomicU32::new(0),
            clean: Mutex::new(None),
        }
    }

    /// Notes the checkpoint of a clean close, which nothing has been written after.
    pub(super) fn found_clean(&self, header: CheckpointHeader, slot: usize, covers: bool) {
        *lock(&self.clean) = Some(Clean { header, slot, covers });
    }

    /// Notes that the index is not what the checkpoint of a clean close says, though nothing was
    /// written.
    pub(crate) fn note_changed(&self) {
        if let Some(clean) = lock(&self.clean).as_mut() {
            clean.covers = false;
        }
    }

    /// Notes that a checkpoint is complete, which speaks for all older than `seq_next`.
    pub(super) fn note_complete(&self, seq_next: Sequence) {
        self.seq_next.fetch_max(seq_next.get(), Ordering::AcqRel);
    }

    /// Whether the newest complete checkpoint speaks for what has this number.
    pub(crate) fn covers(&self, seq: Sequence) -> bool {
        seq.get() < self.seq_next.load(Ordering::Acquire)
    }

    /// Notes that generations up to this one are taken.
    pub(crate) fn raise(&self, generation: u64) {
        let mut newest = lock(&self.newest);
        *newest = generation.max(*newest);
    }
}
