//! Forgetting what turned out to be gone: a record that a reader finds damaged, unreadable or
//! without its value, and an object that could not be written.
//!
//! Invariants: only the version that was found is forgotten, with those older than it. A delete
//! gets its number with the shard locked, as a create does: every version with a smaller one was
//! published before, and seen. Never waits for a create: callers are readers, and threads that
//! complete I/O. Threads: any.

use crate::engine::Engine;
use crate::format::JournalOp;
use crate::memory::resident::{Found, Packed};
use crate::types::KeyHash;

impl Engine {
    /// Notes that an entry leaves memory whose record may be on its way to disk, where recovery
    /// would find it, and nobody else: what else happens to its key is journalled, even if the
    /// record of this cannot be, or waits. Called with the shard of the resident table locked.
    pub(crate) fn note_unwritten(&self, hash: KeyHash, state: &Packed) {
        if state.location().is_none() && !state.older_is_dead() {
            self.index.note_dropped(hash.get());
        }
    }

    /// Forgets a key, in memory, index and journal, unless `is_current` finds that readers get
    /// another version by now; false then. `is_current` gets what is in memory, whose shard is
    /// locked meanwhile.
    pub(crate) fn forget_if(
        &self,
        hash: KeyHash,
        is_current: impl FnOnce(Option<&Found<'_>>) -> bool,
    ) -> bool {
        let mut shard = self.cache.resident.shard(hash);
        if !is_current(shard.get(hash).as_ref()) {
            return false;
        }
        let resident = shard.remove(hash);
        if !self.recovery.is_done() {
            self.note_delete(hash, self.new_seq());
        }
        self.forget(hash);
        // A write that failed has no entry in the index, and may have reached the disk.
        self.index.note_dropped(hash.get());
        // After the index: a checkpoint that believes this delete to be covered has not the entry.
        let seq = self.new_seq();
        drop(shard);
        drop(resident);
        if self.space.is_untouched() || self.spares_missing() {
            // The first record would be a sync, and this may be the I/O thread; or it would be a
            // change, which gives up what missing volumes hold. What is forgotten is on disk as it
            // was, and would be found and forgotten again.
            self.checkpoints.note_changed();
            return true;
        }
        self.note_journalled();
        let delete = JournalOp::DeleteKey { hash: hash.get() };
        // The failure is counted; on a failing device nothing more can be done.
        let _ = self.counted(self.journal.append_soon(delete, seq));
        true
    }
}
