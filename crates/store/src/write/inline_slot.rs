//! Where the engine keeps what does its threads' work in the calls of others (`inline`), if anything does.
//!
//! Invariant: set once, before the store is handed out, or never. Threads: any.

use crate::sync::OnceLock;

/// The flusher's work, done by callers.
pub(crate) trait InlineWork: Send + Sync {
    /// Writes all that is to be written now.
    fn write(&self);

    /// Ends, after the nursery was stopped and what is left in it was written.
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
