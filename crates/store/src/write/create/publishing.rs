//! Publishing a new object, and taking out what it replaces.
//!
//! Invariant: versions of a key get their numbers in the order in which readers see them, under the
//! lock of the key's shard of the resident table. Threads: any.

use super::{CreateBlocked, NewObject, Replaces, Whole};
use crate::engine::Engine;
use crate::error::CreateError;
use crate::format::{JournalOp, RECORD_HEADER_BYTES, RecordHeader, number_record};
use crate::memory::resident::{Entry, Found};
use crate::stats::add;
use crate::sync::RwLockReadGuard;
use crate::types::{KeyHash, Sequence};

impl Engine {
    /// Gives a record that is about to be published its number, and so the object that it stands
    /// for, which its readers get. Called with the shard of the resident table locked.
    fn number(&self, entry: &Entry, whole: Option<&Whole>, hash: KeyHash, seq: Sequence) {
        // SAFETY: the range was reserved for this create, which has not published it yet.
        let header =
            unsafe { entry.run.bytes_mut(entry.state.offset() as usize, RECORD_HEADER_BYTES) };
        number_record(header, seq);
        if let Some(whole) = whole {
            let header = RecordHeader { seq: seq.get(), ..whole.header }.encode();
            // SAFETY: the run is fresh, and known to this thread until it is kept.
            unsafe { whole.run.bytes_mut(0, header.len()) }.copy_from_slice(&header);
            self.reads.assembled.keep(hash, seq, whole.run.clone());
        }
    }

    /// True if the version to be replaced is the one that readers get of this key. Called with the
    /// shard of the resident table locked.
    fn is_there(&self, hash: KeyHash, new: &NewObject<'_>, resident: Option<&Found<'_>>) -> bool {
        match new.replaces {
            Replaces::Anything => true,
            Replaces::Itself(place) => {
                self.is_only_version(hash, place)
                    && resident.is_none_or(|entry| entry.state.location() == Some(place))
            }
            Replaces::Version(version) | Replaces::OlderState(version) => {
                // In this order: when recovery ends, it is the index that tells.
                !self.was_deleted(new.group, new.key, version.seq)
                    && self.is_newest_version(hash, version, resident)
            }
        }
    }

    /// Publishes an entry, replacing any older version. Returns its number, and whether an older
    /// state of the object stays in the index until this one is written.
    pub(super) fn publish_new(
        &self,
        hash: KeyHash,
        mut entry: Entry,
        new: &NewObject<'_>,
        unpurged: Option<RwLockReadGuard<'_, ()>>,
    ) -> Result<(Sequence, bool), CreateBlocked> {
        // Of before the number is taken: later marks are checked when the object is read.
        entry.state.set_marks_epoch(self.marks.epoch());
        let at = (entry.run.first(), entry.state.offset());
        // While recovery runs, it is unknown whether an older version exists.
        let loading = !new.is_moved() && !self.recovery.is_done();
        // What was in memory is let go of with the shard unlocked.
        let (seq, old, known) = {
            let mut shard = self.cache.resident.shard(hash);
            let resident = shard.get(hash);
            // Here, so that versions of a key get their numbers in the order in which readers see
            // them.
            let seq = self.new_seq();
            // If the create is abandoned later than this check, its caller's next operation gets a
            // greater number and takes this lock afterwards.
            if new.is_given_up() {
                return Err(CreateError::Closed.into());
            }
            // After a crash a new number would win over what has taken that version's place.
            if !self.is_there(hash, new, resident.as_ref()) {
                return Err(CreateBlocked::Outdated);
            }
            self.number(&entry, new.whole, hash, seq);
            if loading {
                self.note_delete(hash, seq);
            }
            entry.state.set_epoch(self.cache.epoch());
            if !new.is_moved() && resident.is_some_and(|e| e.state.older_is_dead()) {
                entry.state.set_older_dead();
            }
            let old = shard.insert(hash, entry);
            if !loading && matches!(new.replaces, Replaces::OlderState(_)) {
                return Ok((seq, self.leave_older(hash, old.as_ref())));
            }
            let known = self.take_older_out(hash, old.as_ref(), new);
            (seq, old, known)
        };
        // Released first: the journal may have to wait, and purges should not wait for it.
        drop(unpurged);
        if new.is_moved() {
            return Ok((seq, false));
        }
        let replaces = loading || known || old.is_some();
        if replaces {
            add(&self.counters.replaced, 1);
        }
        let older_is_dead = old.is_some_and(|old| old.state.older_is_dead());
        if !older_is_dead && (replaces || self.index.has_dropped(hash.get())) {
            // Without this record, a crash before the new object is written would bring back the
            // old version. An error is counted; the create itself stands.
            let delete = JournalOp::DeleteKey { hash: hash.get() };
            if self.journal_append(delete, seq).is_ok() && !loading {
                self.note_older_dead(hash, at);
            }
        }
        Ok((seq, false))
    }

    /// Takes older versions out of the index, beside the one in memory; false if there is none.
    /// Called with the shard of the resident table locked; `old` was in it.
    fn take_older_out(&self, hash: KeyHash, old: Option<&Entry>, new: &NewObject<'_>) -> bool {
        if let Some(location) = old.and_then(|old| old.state.location()) {
            // A moved object writes no delete record, and the record of metadata that it takes
            // over stays on disk.
            let _ = match new.is_moved() {
                true => self.index.drop_at(hash.get(), location),
                false => self.index.remove_at(hash.get(), location),
            };
        }
        // Other index entries of the hash are older versions too or, rarely, another key, as for
        // removes.
        let known = !new.is_moved() && !self.index.candidates(hash.get()).is_empty();
        if known {
            self.forget(hash);
        }
        known
    }

    /// Notes that what is older than the entry at this place of memory is dead, and that the
    /// journal says so: as long as nothing of the entry is on its way to disk, what replaces it
    /// need not be journalled. It is not in the nursery yet, so that the flusher has not got it.
    fn note_older_dead(&self, hash: KeyHash, (first, offset): (u32, u32)) {
        let mut shard = self.cache.resident.shard(hash);
        if let Some(entry) = shard.get_mut(hash).filter(|entry| entry.is_at(first, offset)) {
            entry.state.set_older_dead();
        }
    }

    /// Leaves an older state of an object that was published in the index; false if there is none.
    /// Called with the shard of the resident table locked; `older` was in it.
    fn leave_older(&self, hash: KeyHash, older: Option<&Entry>) -> bool {
        add(&self.counters.replaced, 1);
        let is_beside = !self.index.candidates(hash.get()).is_empty();
        if let Some(waiting) = older.filter(|older| older.state.location().is_none()) {
            if !waiting.state.older_is_dead() {
                // It may be on its way to disk, where recovery would find it, and nobody else.
                self.index.note_dropped(hash.get());
            }
            let head = waiting.record().head;
            let stored_bytes = head.stored_bytes() as u64;
            // Longer ones are extents, which do not wait longer than others.
            if is_beside && head.is_object() && stored_bytes <= self.page_record_max() {
                self.nursery.died(stored_bytes);
            }
        }
        is_beside
    }
}
