//! The engine's slot for the inline worker (`inline`), which runs background work in the calls of
//! others.
//!
//! Invariant: set at most once, before the store is handed out. Threads: any.

use crate::sync::OnceLock;

/// The flusher's work, done by callers.
pub(crate) trait InlineWork: Send + Sync {
    /// Does all writes that are due now.
    fn write(&self);

    /// Ends the flusher, after the nursery was stopped; what is left in it is written first.
    fn end(&self);
}

/// Empty in a store with threads of its own.
#[derive(Default)]
pub(crate) struct InlineSlot(OnceLock<Box<dyn InlineWork>>);

impl InlineSlot {
    pub(super) fn set(&self, work: impl InlineWork + 'static) {
        assert!(self.0.set(Box::new(work)).is_ok(), "an engine is started once");
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    pub(super) fn get(&self) -> Option<&dyn InlineWork> {
        self.0.get().map(|work| &**work)
    }
}
