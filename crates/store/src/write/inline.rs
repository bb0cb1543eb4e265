//! The work of the store's own threads, done by its callers instead: for simulators, whose runs must
//! replay (`Config::background`).
//!
//! Invariants: nothing is written but in a call of the store, so that the same calls do the same; the
//! flusher is one, whoever does its work. Timers do nothing: neither `flush_period` nor
//! `checkpoint_period` is looked at while nobody calls. Threads: any caller, one at a time.

use crate::sync::{Arc, Mutex, Weak, lock};
use std::time::Duration;

use super::flusher::{Flusher, Step};
use super::inline_slot::InlineWork;
use crate::engine::Engine;

/// A flusher without a thread. The engine owns it, and it leads back to the engine.
struct Inline {
    engine: Weak<Engine>,
    flusher: Mutex<Option<Flusher>>,
}

impl InlineWork for Inline {
    fn write(&self) {
        let Some(engine) = self.engine.upgrade() else { return };
        if let Some(flusher) = lock(&self.flusher).as_mut() {
            while flusher.step(&engine, Duration::ZERO) == Step::Worked {}
        }
    }

    fn end(&self) {
        let Some(engine) = self.engine.upgrade() else { return };
        if let Some(mut flusher) = lock(&self.flusher).take() {
            while flusher.step(&engine, Duration::ZERO) != Step::Stopped {}
            flusher.end(&engine);
        }
    }
}

impl Engine {
    /// From now on callers do the flusher's work.
    pub(crate) fn start_inline(self: &Arc<Engine>) {
        let flusher = Mutex::new(Some(Flusher::new(self)));
        let inline = Inline { engine: Arc::downgrade(self), flusher };
        self.inline.set(inline);
    }

    /// Callers do the work of the store's threads.
    pub(crate) fn is_inline(&self) -> bool {
        self.inline.is_set()
    }

    /// Does all that waits to be done, if this store has no threads for it. Not to be called by what
    /// the flusher does, nor inside the gate.
    pub(crate) fn work_inline(&self) {
        self.write_inline();
        if self.is_inline() && self.journal.take_wants_checkpoint() {
            // A failure is counted; whoever finds the journal full tries again.
            let _ = self.write_checkpoint(false);
        }
    }

    /// Writes what is to be written, without a checkpoint: for one that is under way.
    fn write_inline(&self) {
        let Some(inline) = self.inline.get() else { return };
        inline.write();
        self.tick();
    }

    /// The same if so much was created that a flusher with a thread would begin.
    pub(crate) fn work_inline_if_due(&self) {
        if self.is_inline() && self.nursery.wants_flush() {
            self.work_inline();
        }
    }

    /// The same if the journal may be full soon, so that an append need not wait for a checkpoint.
    pub(crate) fn work_inline_if_tight(&self) {
        if self.is_inline() && !self.journal.has_room() {
            self.work_inline();
        }
    }

    /// Waits, at most `nap`, until something was written and there may be room again. What waits to be
    /// written may hold the memory in question, and may wait for more of it to come, or for a timer.
    pub(crate) fn wait_room(&self, nap: Duration) {
        // Without room in the journal it is a checkpoint that is waited for.
        if self.journal.has_room() {
            self.nursery.request_flush_if_idle();
        }
        self.work_or_wait(nap);
    }

    /// Asks for all that waits to be written, and waits, at most `nap`, until something was.
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

    /// Writes all that is in the nursery and waits until it is written. Checkpoints do so, too, and must not
    /// come to wait for themselves here.
    pub(crate) fn drain(&self) {
        self.nursery.drain(|| self.write_inline());
    }

    /// The end of the flusher, after the nursery was stopped.
    pub(crate) fn end_inline(&self) {
        if let Some(inline) = self.inline.get() {
            inline.end();
        }
    }
}
