//! Removes and purges: at once in memory and in the journal; the objects' records are not touched.
//!
//! Invariants: a removed or purged object is dead before the call returns, during recovery too; a
//! purge holds `purge_lock` exclusively while it takes its sequence number, so that no object is
//! renumbered at the same time. Threads: any.

use std::time::Instant;

use crate::config::Durability;
use crate::deferred::Caller;
use crate::engine::Engine;
use crate::error::{CreateError, PurgeError};
use crate::format::JournalOp;
use crate::stats::add;
use crate::sync::exclusive;
use crate::types::KeyHash;

impl CreateError {
    /// Whether what was to be replaced is out of date by such a refusal.
    pub(super) fn outdates(&self) -> bool {
        match self {
            CreateError::TooLarge { .. }
            | CreateError::TooLargeForVolumes { .. }
            | CreateError::MetadataTooLarge { .. }
            | CreateError::MemoryFull
            | CreateError::Overwritten { .. }
            | CreateError::Write { .. }
            | CreateError::NotAdmitted { .. }
            | CreateError::Torn
            | CreateError::VolumesGone { .. } => true,
            // No object can have this key, or a newer version stands.
            CreateError::KeyLength { .. } | CreateError::Superseded | CreateError::Closed => false,
        }
    }
}

impl Engine {
    /// Removes an object; false if none was known.
    pub(crate) fn remove(&self, key: &[u8]) -> Result<bool, PurgeError> {
        self.remove_for(key, None)
    }

    /// Handles the outcome of a create. If it was refused, the version that it would have replaced
    /// is out of date and is removed, since the caller meant to replace it and may ignore a cache's
    /// errors. If the caller has abandoned the create, that version stays.
    pub(crate) fn or_removed<T>(
        &self,
        key: &[u8],
        caller: Option<&Caller>,
        created: Result<T, CreateError>,
    ) -> Result<T, CreateError> {
        created.inspect_err(|error| {
            if error.outdates() {
                // The remove is in effect even if the journal could not be written, which is
                // counted.
                let _ = self.remove_for(key, caller);
            }
        })
    }

    /// Whether a remove of the key would block: for room in the journal, or a sync of the disk.
    pub(crate) fn remove_blocks(&self, key: &[u8]) -> bool {
        // Without background threads, only the caller can make room.
        let needs_room = || !self.journal.has_room() && self.may_be_journalled(self.hash(key));
        !self.is_inline() && (needs_room() || self.change_syncs(key))
    }

    /// Whether what changes this key waits for a sync of the disk: if a version of it may be there,
    /// which must not come back. The first change after a clean close waits for one, too.
    pub(super) fn change_syncs(&self, key: &[u8]) -> bool {
        self.journal_syncs() && !self.is_inline() && self.may_be_journalled(self.hash(key))
    }

    /// Whether a change of the key has to be journalled, unless it changes meanwhile: if a version
    /// of it may be there, or an older one on disk.
    pub(super) fn may_be_journalled(&self, hash: KeyHash) -> bool {
        !self.recovery.is_done()
            || self.cache.resident.shard(hash).contains(hash)
            || !self.index.candidates(hash.get()).is_empty()
            || self.index.has_dropped(hash.get())
    }

    /// As `remove`. If the caller is gone, nothing is removed.
    pub(crate) fn remove_for(
        &self,
        key: &[u8],
        caller: Option<&Caller>,
    ) -> Result<bool, PurgeError> {
        if self.is_closed() {
            return Err(PurgeError::Closed);
        }
        self.stir();
        let begun = Instant::now();
        let hash = self.hash(key);
        // What nothing is known of is not journalled. If it is known by then, it waits behind.
        let waits = !self.journal.has_room() && self.may_be_journalled(hash);
        let room = if waits { self.wait_journal_room(begun) } else { Ok(()) };
        let mut shard = self.cache.resident.shard(hash);
        if caller.is_some_and(Caller::is_gone) {
            return Ok(false);
        }
        let resident = shard.remove(hash);
        if let Some(entry) = &resident {
            self.note_unwritten(hash, &entry.state);
        }
        // Versions that recovery has not found yet must not enter the index later.
        let loading = !self.recovery.is_done();
        if loading {
            self.note_delete(hash, self.new_seq());
        }
        // An entry with the same tag may be another key's. That key is then forgotten too, which a
        // cache may do, and which costs less than a disk read for each remove.
        let removed = self.forget(hash);
        let seq = self.new_seq();
        drop(shard);
        let known = resident.is_some() || removed > 0 || loading;
        drop(resident);
        if !known && !self.index.has_dropped(hash.get()) {
            return Ok(false);
        }
        add(&self.counters.removes, u64::from(known));
        // Without room the remove is in effect all the same, as the error says.
        let delete = JournalOp::DeleteKey { hash: hash.get() };
        room.and_then(|()| self.journal_append_in_room(&delete, seq, begun))
            .map_err(PurgeError::Journal)?;
        Ok(known)
    }

    /// Whether what is journalled waits for a sync of the disk.
    fn journal_syncs(&self) -> bool {
        match self.config.durability {
            Durability::None => false,
            Durability::Flushed => self.space.is_untouched(),
            Durability::Synced => true,
        }
    }

    /// Whether a purge would block: for room in the journal, or a sync of the disk.
    pub(crate) fn purge_blocks(&self) -> bool {
        !self.is_inline() && (self.journal_syncs() || !self.journal.has_room())
    }

    /// Sets a purge mark: older objects that it covers are dead when this returns. If the caller is
    /// gone, none is set.
    pub(crate) fn purge(&self, op: JournalOp, caller: Option<&Caller>) -> Result<(), PurgeError> {
        if self.is_closed() {
            return Err(PurgeError::Closed);
        }
        self.stir();
        let begun = Instant::now();
        let room = self.wait_journal_room(begun);
        let purging = exclusive(&self.purge_lock);
        let seq = self.new_seq();
        // After the number: what a caller does that goes later has a greater one.
        if caller.is_some_and(Caller::is_gone) {
            return Ok(());
        }
        self.marks.apply(&op, seq);
        drop(purging);
        add(&self.counters.purges, 1);
        room.and_then(|()| self.journal_append_in_room(&op, seq, begun))
            .map_err(PurgeError::Journal)
    }
}
