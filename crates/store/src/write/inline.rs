//! Background work done by the store's callers in place of its own threads: for simulators, whose
//! runs must be reproducible (`Config::background`).
//!
//! Invariants: writes happen only within calls of the store, so that equal calls have equal
//! effects; there is one flusher, whichever caller runs it. Timers do not run: `flush_period` and
//! `checkpoint_period` have no effect between calls. Threads: any caller, one at a time.

use crate::sync::{Arc, Mutex, Weak, lock};
use std::io;
use std::time::{Duration, Instant};

use super::flusher::{Flusher, Step};
use super::inline_slot::InlineWork;
use crate::engine::Engine;

/// Most attempts of one call to write a checkpoint.
const CHECKPOINT_TRIES_MAX: u32 = 64;

/// A flusher without a thread. The engine owns it, so its reference to the engine is weak.
struct Inline {
    engine: Weak<Engine>,
    flusher: Mutex<Option<Flusher>>,
}

impl InlineWork for Inline {
    fn write(&self) {
        let Some(engine) = self.engine.upgrade() else { return };
        if let Some(flusher) = lock(&self.flusher).as_mut() {
            while flusher.step(&engine, || Duration::ZERO) == Step::Worked {}
        }
    }

    fn end(&self) {
        let Some(engine) = self.engine.upgrade() else { return };
        if let Some(mut flusher) = lock(&self.flusher).take() {
            while flusher.step(&engine, || Duration::ZERO) != Step::Stopped {}
            flusher.end(&engine);
        }
    }
}

impl Engine {
    /// Makes callers do the flusher's work from now on.
    pub(crate) fn start_inline(self: &Arc<Engine>) {
        let flusher = Mutex::new(Some(Flusher::new(self)));
        let inline = Inline { engine: Arc::downgrade(self), flusher };
        self.inline.set(inline);
    }

    /// True if callers do the work of the store's threads.
    pub(crate) fn is_inline(&self) -> bool {
        self.inline.is_set()
    }

    /// Does all pending work, if this store has no threads for it. Must not be called by the
    /// flusher's own work or inside the gate.
    pub(crate) fn work_inline(&self) {
        self.write_inline();
        if self.is_inline() {
            self.prepare_journal();
        }
        if self.is_inline() && self.journal.take_wants_checkpoint() {
            // A failure is counted; the next caller that finds the journal full tries again.
            let _ = self.write_checkpoint(false);
        }
    }

    /// Writes pending data, without a checkpoint: the caller may be writing one.
    fn write_inline(&self) {
        let Some(inline) = self.inline.get() else { return };
        inline.write();
        self.tick();
    }

    /// As `work_inline`, if enough data waits for a flusher thread to begin.
    pub(crate) fn work_inline_if_due(&self) {
        if self.is_inline() && self.nursery.wants_flush() {
            self.work_inline();
        }
    }

    /// Waits until the journal has room, in a wait that began at `begun`; for callers that may wait
    /// for a checkpoint, or write it where the store has no threads. There they try again as often
    /// as it may fail before the journal goes on without.
    pub(crate) fn wait_journal_room(&self, begun: Instant) -> io::Result<()> {
        for _ in 0..self.config.volume_errors_max.min(CHECKPOINT_TRIES_MAX) {
            if !self.is_inline() || self.journal.has_room() {
                break;
            }
            self.work_inline();
        }
        self.counted(self.journal.wait_room(begun))
    }

    /// Waits, at most `nap`, until something was written and there may be room again. Requests a
    /// flush, since the waiting objects may hold the memory in question while they wait for more of
    /// their group, or for a timer.
    pub(crate) fn wait_room(&self, nap: Duration) {
        // If the journal has no room, only a checkpoint helps.
        if self.journal.has_room() {
            self.nursery.request_flush_if_idle();
        }
        self.work_or_wait(nap);
    }

    /// Requests a flush of the whole nursery, and waits, at most `nap`, until something was
    /// written.
    pub(crate) fn wait_written(&self, nap: Duration) {
        self.nursery.request_flush();
        self.work_or_wait(nap);
    }

    fn work_or_wait(&self, nap: Duration) {
        if self.is_inline() {
            let before = self.nursery.bytes();
            self.work_inline();
            if self.nursery.bytes() < before {
                return;
            }
        }
        self.nursery.wait_progress(nap);
    }

    /// Writes everything in the nursery and waits until it is written. Checkpoints call this, so it
    /// must not start one.
    pub(crate) fn drain(&self) {
        self.nursery.drain(|| self.write_inline());
    }

    /// Ends the flusher, after the nursery was stopped.
    pub(crate) fn end_inline(&self) {
        if let Some(inline) = self.inline.get() {
            inline.end();
        }
    }
}
