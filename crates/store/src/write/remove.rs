//! Removes and purges: at once in memory, and in the journal, with nothing written where the objects
//! lie.
//!
//! Invariants: an object that was removed or purged is dead before the call returns, recovery or not;
//! a purge holds `purge_lock` exclusively while it takes its sequence number, so that nothing is
//! renumbered beside it. Threads: any.

use crate::deferred::Caller;
use crate::engine::Engine;
use crate::error::{CreateError, PurgeError};
use crate::format::JournalOp;
use crate::stats::add;
use crate::sync::exclusive;

impl Engine {
    /// Forgets an object; false if none was known.
    pub(crate) fn remove(&self, key: &[u8]) -> Result<bool, PurgeError> {
        self.remove_for(key, None)
    }

    /// What a create would have replaced is out of date if the create was refused: its caller meant to
    /// replace it, and need not look at the error of a cache. Removes that, unless nobody waits for the create
    /// any more.
    pub(crate) fn or_removed<T>(
        &self,
        key: &[u8],
        caller: Option<&Caller>,
        created: Result<T, CreateError>,
    ) -> Result<T, CreateError> {
        let outdates = |error: &CreateError| match error {
            CreateError::TooLarge { .. }
            | CreateError::TooLargeForVolumes { .. }
            | CreateError::MetadataTooLarge { .. }
            | CreateError::MemoryFull
            | CreateError::Overwritten { .. }
            | CreateError::Write { .. }
            | CreateError::NotAdmitted { .. }
            | CreateError::Torn => true,
            // There is nothing of this key, the newer stands, or nothing can be said of it any more.
            CreateError::KeyLength { .. }
            | CreateError::StillWriting { .. }
            | CreateError::Superseded
            | CreateError::Closed
            | CreateError::VolumesGone => false,
        };
        created.inspect_err(|error| {
            if outdates(error) {
                // In effect even if the journal could not be written, which is counted.
                let _ = self.remove_for(key, caller);
            }
        })
    }

    fn remove_for(&self, key: &[u8], caller: Option<&Caller>) -> Result<bool, PurgeError> {
        if self.is_closed() {
            return Err(PurgeError::Closed);
        }
        self.work_inline_if_tight();
        self.journal.wait_room().map_err(PurgeError::Journal)?;
        let hash = self.hash(key);
        let mut shard = self.cache.resident.shard(hash);
        if caller.is_some_and(Caller::is_gone) {
            return Ok(false);
        }
        let resident = shard.map.remove(&hash);
        // What recovery has not found yet must not come into the index later.
        let loading = !self.recovery.is_done();
        if loading {
            self.note_delete(hash, self.new_seq());
        }
        // An entry with the same tag may be another key's; that key is then forgotten too, which a
        // cache may do, and costs less than a disk read for each remove.
        let removed = self.forget(hash);
        let seq = self.new_seq();
        drop(shard);
        let known = resident.is_some() || removed > 0 || loading;
        drop(resident);
        if !known && !self.index.has_dropped(hash) {
            return Ok(false);
        }
        add(&self.counters.removes, u64::from(known));
        self.journal_append(JournalOp::DeleteKey { hash }, seq).map_err(PurgeError::Journal)?;
        Ok(known)
    }

    /// Sets a purge mark: what is older and meant is dead when this returns.
    pub(crate) fn purge(&self, op: JournalOp) -> Result<(), PurgeError> {
        if self.is_closed() {
            return Err(PurgeError::Closed);
        }
        self.work_inline_if_tight();
        self.journal.wait_room().map_err(PurgeError::Journal)?;
        let purging = exclusive(&self.purge_lock);
        let seq = self.new_seq();
        self.marks.apply(&op, seq);
        drop(purging);
        add(&self.counters.purges, 1);
        self.journal_append(op, seq).map_err(PurgeError::Journal)
    }
}
