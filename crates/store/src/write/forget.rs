//! Forgetting what turned out to be gone: a record that a reader finds damaged, unreadable or
//! without its value, and an object that could not be written.
//!
//! Invariants: only the version that was found is forgotten, with those older than it. A delete
//! gets its number alone in the gate and with the shard locked, so that every create of the key
//! that has a smaller one was published before, and seen. Never waits for a create: callers are
//! readers, and threads that complete I/O. Threads: any.

use crate::engine::Engine;
use crate::format::JournalOp;
use crate::memory::resident::Found;
use crate::types::KeyHash;

impl Engine {
    /// Forgets a key, in memory, index and journal, unless `is_current` finds that readers get
    /// another version by now; false then. `is_current` gets what is in memory, whose shard is
    /// locked meanwhile.
    ///
    /// While a create may have a number and not be published yet, nothing is journalled: after a
    /// crash the delete would hit that create's object. It is not needed either. The index
    /// remembers that it dropped something, so whatever replaces the key writes a delete of its
    /// own; a crash before that brings back at most the version that is forgotten here.
    pub(crate) fn forget_if(
        &self,
        hash: KeyHash,
        is_current: impl FnOnce(Option<&Found<'_>>) -> bool,
    ) -> bool {
        let alone = self.gate.try_enter_alone(hash);
        let mut shard = self.cache.resident.shard(hash);
        if !is_current(shard.get(hash).as_ref()) {
            return false;
        }
        let resident = shard.remove(hash);
        if alone.is_some() && !self.recovery.is_done() {
            self.note_delete(hash, self.new_seq());
        }
        self.forget(hash);
        // A write that failed has no entry in the index, and may have reached the disk.
        self.index.note_dropped(hash.get());
        // After the index: a checkpoint that believes this delete to be covered has not the entry.
        let seq = alone.as_ref().map(|_| self.new_seq());
        drop(shard);
        drop(resident);
        // The journal may wait for a checkpoint, which waits for those inside.
        drop(alone);
        if self.space.is_untouched() {
            // The first record would be a sync, and this may be the I/O thread. What is forgotten is
            // on disk as it was, and would be found and forgotten again.
            self.checkpoints.note_changed();
            return true;
        }
        if let Some(seq) = seq {
            self.note_journalled();
            let delete = JournalOp::DeleteKey { hash: hash.get() };
            // The failure is counted; on a failing device nothing more can be done.
            let _ = self.counted(self.journal.append_soon(delete, seq));
        }
        true
    }
}
