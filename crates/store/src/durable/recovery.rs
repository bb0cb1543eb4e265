//! Recovery: journal first, then the newest checkpoint, then the segments written since.
//!
//! Invariants: no deleted or purged object is served at any moment, since the journal is read
//! before the store opens and consulted until it has been applied; versions of a key are ordered by
//! their sequence numbers; a recovery that panics ends, with every volume out of service. Threads:
//! the recovery thread. Readers are served meanwhile.

use crate::sync::atomic::Ordering;
use crate::sync::{Arc, exclusive, shared};

use super::checkpoint::{self, Found};
use super::deletes::{Deletes, Latest, note};
use super::replay::{JournalContents, LostHalf, MARK, Requires};
use super::segment_contents::segment_entries;
use crate::engine::Engine;
use crate::format::{
    BLOCK_BYTES, CheckpointHeader, JournalOp, RecordHeader, RecordKind, SummaryEntry, UNIT_BYTES,
};
use crate::index::Location;
use crate::memory::mapped::AlignedBuf;
use crate::ring::SegmentKind;
use crate::space::SegmentId;
use crate::stats::add;
use crate::types::{KeyHash, SegmentLife, Sequence};

/// Added to the sequence number after a crash: more than the creates that can happen between two
/// records of journal or checkpoint; 2^64 sequence numbers suffice for 16 million crashes. The low
/// half changes as well, because parts are identified by it: a part that a crash lost may leave its
/// place to another one in the same life of a segment.
const SEQ_GAP: u64 = (1 << 40) + 0x9e37_79b9;

/// The same where a lost half of the journal may have held the marks of several opens.
const SEQ_GAP_OF_LOST_HALF: u64 = SEQ_GAP << 10;

/// The input of the recovery thread, found before the store is handed out.
pub(crate) struct Plan {
    found: Option<Found>,
    follows_crash: bool,
    lost_halves: Vec<LostHalf>,
}

impl Plan {
    /// Halves of the journal that are lost: everything older than this open is forgotten.
    pub(crate) fn lost_halves(&self) -> &[LostHalf] {
        &self.lost_halves
    }

    /// True if the store existed before and was not closed cleanly.
    pub(crate) fn follows_crash(&self) -> bool {
        self.follows_crash
    }
}

impl Engine {
    /// Tells recovery that versions of a key older than `seq` are dead. Called before the index is
    /// changed: recovery applies all notes once more when everything is loaded.
    pub(crate) fn note_delete(&self, hash: KeyHash, seq: Sequence) {
        exclusive(&self.deletes).note(hash, seq);
    }

    pub(crate) fn recovery_kills(&self, hash: KeyHash, seq: Sequence) -> bool {
        shared(&self.deletes).kills(hash, seq)
    }

    /// Applies journal and checkpoint tables; after this the store may be used.
    pub(crate) fn prepare_recovery(&self, contents: &JournalContents) -> Plan {
        let found = checkpoint::find(self);
        let mut next_seq = Sequence::from_raw(1);
        if let Some(found) = &found {
            next_seq = Sequence::from_raw(found.header.seq_next);
            self.checkpoints.raise(found.header.generation);
            self.checkpoints.note_complete(next_seq);
            self.journal.found_checkpoint(found.header.generation);
            let covers = covers(&found.header, contents);
            if covers {
                // What is written first need not wait for another checkpoint.
                self.journal.found_covered(contents.epoch, found.header.generation);
            }
            if found.header.clean {
                self.checkpoints.found_clean(found.header, found.slot, covers);
                self.space.set_untouched(true);
            }
            found.tables.marks.iter().for_each(|mark| self.marks.apply(&mark.op, mark.sequence()));
        }
        let since = next_seq;
        let mut deletes = Latest::new();
        for record in &contents.records {
            next_seq = next_seq.max(record.sequence().next());
            if record.op == MARK {
                continue;
            }
            if let JournalOp::DeleteKey { hash } = record.op {
                if record.sequence() >= since {
                    note(&mut deletes, KeyHash::from_raw(hash), record.sequence());
                }
            } else {
                self.marks.apply(&record.op, record.sequence());
            }
        }
        self.distrust_if_needed(contents.requires, found.as_ref());
        let lost = contents.lost_before.filter(|lost| *lost >= since);
        add(&self.counters.damaged_records, contents.mended + u64::from(lost.is_some()));
        if let Some(seq) = lost {
            // The unreadable records may have deleted any older object.
            self.marks.apply(&JournalOp::PurgeAll, seq);
        }
        *exclusive(&self.deletes) = Deletes::of_journal(deletes);
        let follows_crash = !self.created && !found.as_ref().is_some_and(|f| f.header.clean);
        if follows_crash {
            // Records written since the last one in journal or checkpoint have greater numbers,
            // which are known only once everything is loaded. Operations until then must get
            // numbers that are greater still.
            next_seq = Sequence::from_raw(next_seq.get() + SEQ_GAP);
        }
        let mut lost_halves = Vec::new();
        if follows_crash && !contents.lost_halves.is_empty() {
            // Unlike before damage, nothing says how far the lost records reach.
            next_seq = Sequence::from_raw(next_seq.get() + SEQ_GAP_OF_LOST_HALF);
            add(&self.counters.damaged_records, contents.lost_halves.len() as u64);
            self.marks.apply(&JournalOp::PurgeAll, next_seq);
            lost_halves.clone_from(&contents.lost_halves);
        }
        self.next_seq.fetch_max(next_seq.get(), Ordering::AcqRel);
        Plan { found, follows_crash, lost_halves }
    }

    /// Deletes that a checkpoint covered were dropped from the journal, or never written as their
    /// keys were not known. Without that checkpoint, any older object may have been deleted, so all
    /// of them are forgotten.
    fn distrust_if_needed(&self, requires: Option<Requires>, found: Option<&Found>) {
        let Some(requires) = requires else { return };
        let generation = found.map_or(0, |f| f.header.generation);
        if generation < requires.generation {
            self.marks.apply(&JournalOp::PurgeAll, requires.seq);
        }
    }

    /// The recovery thread.
    pub(crate) fn recover(self: &Arc<Engine>, plan: Plan) {
        let _ends = EndOnPanic(self);
        let lives = self.restore_lives(plan.found.as_ref());
        if let Some(found) = &plan.found {
            let same = |segment: SegmentId| {
                let then = SegmentLife::from_raw(found.tables.segment_seqs[segment.0 as usize]);
                let is_same = !then.is_none() && then == lives[segment.0 as usize];
                is_same && !self.space.is_missing(segment)
            };
            let loaded = checkpoint::load_shards(self, found, same);
            self.recovery.objects.fetch_add(loaded, Ordering::Relaxed);
        }
        self.apply_deletes();
        // An object that is older than the checkpoint and missing from it was forgotten before it:
        // the journal need not reach back that far. Objects of a damaged piece of the checkpoint
        // are lost.
        let (from, since) =
            plan.found.as_ref().map_or((0, 0), |f| (f.header.ring_seq, f.header.seq_next));
        let (from, since) = (SegmentLife::from_raw(from), Sequence::from_raw(since));
        let mut order = by_age(&lives);
        order.retain(|(_, id)| !self.space.is_missing(*id));
        let (older, replay) = order.split_at(order.partition_point(|(life, _)| *life < from));
        self.recovery.total.store(replay.len() as u64, Ordering::Relaxed);
        let newest = self.replay_all(replay, since);
        for (kind, id) in newest.into_iter().flatten() {
            // The newest segment of its kind may still be too old to rest.
            if self.ring.may_rest(id) {
                self.ring.rest(kind, id);
            }
        }
        // Second pass: a delete may have come between the check of an entry and its insertion. The
        // flusher is still waiting, so the index holds nothing newer than those deletes.
        self.apply_meanwhile();
        if self.recovery.is_incomplete() {
            // Until a checkpoint is complete, the next recovery may succeed in reading what this
            // one could not. Removes and replacements must therefore be journalled, even for keys
            // of which nothing is known. After that, the journal asks for the checkpoint.
            self.index.drop_unknown();
            self.journal.want_checkpoint();
        }
        self.recovery.set_ring_known();
        self.counters.recovered_objects.store(self.index.len(), Ordering::Relaxed);
        self.recovery.finish();
        // Reads that began before go by the index from now on.
        exclusive(&self.deletes).end();
        for (life, id) in older {
            if self.is_closed() {
                break;
            }
            self.learn_groups(*id, *life);
        }
    }

    /// Replays segments, oldest first. Returns the newest segment of each kind; none if a segment
    /// could not be read.
    fn replay_all(
        &self,
        replay: &[(SegmentLife, SegmentId)],
        since: Sequence,
    ) -> [Option<(SegmentKind, SegmentId)>; 2] {
        let mut newest = [None; 2];
        let mut certain = true;
        for &(life, segment) in replay {
            if self.is_closed() {
                return [None; 2];
            }
            match self.replay(segment, life, since) {
                Some(kind) => newest[kind as usize] = Some((kind, segment)),
                None => {
                    certain = false;
                    self.recovery.note_unread();
                }
            }
            self.recovery.loaded.fetch_add(1, Ordering::Relaxed);
        }
        if certain { newest } else { [None; 2] }
    }

    /// Inserts a segment's objects into the index, unless dead or already known. Returns the
    /// segment's kind, if it can be read.
    fn replay(
        &self,
        segment: SegmentId,
        life: SegmentLife,
        since: Sequence,
    ) -> Option<SegmentKind> {
        let entries = segment_entries(self, segment)?;
        let newest = self.note_age(segment, &entries);
        for entry in &entries {
            let is_object = matches!(
                entry.kind,
                Some(RecordKind::Object | RecordKind::Manifest | RecordKind::Patch)
            );
            let location = self.space.location(segment, u64::from(entry.offset_units) * UNIT_BYTES);
            if !is_object
                || entry.sequence() < since
                || self.recovery_kills(entry.key_hash(), entry.sequence())
                || self.index.contains_at(entry.hash, location)
                || self.is_older_elsewhere(entry)
            {
                continue;
            }
            // One that was purged, too, which reads find out: without it, nothing would tell that
            // older versions, perhaps of another group, are dead.
            self.insert_replayed(entry, location);
        }
        self.next_seq.fetch_max(newest.next().get(), Ordering::AcqRel);
        self.note_groups(segment, life, &entries);
        // In a segment of pages, the first record follows the page header; in a segment of extents,
        // it follows a whole block.
        let first = u64::from(entries.first()?.offset_units) * UNIT_BYTES;
        Some(if first < BLOCK_BYTES { SegmentKind::Pages } else { SegmentKind::Extents })
    }

    /// Puts a record in the place of the older ones of its key. They must not outlast it, whose
    /// segment may be reused first, nor in memory: of what was replaced without a record in the
    /// journal, a read may have found the older meanwhile.
    pub(crate) fn insert_replayed(&self, entry: &SummaryEntry, location: Location) {
        let hash = entry.key_hash();
        let mut shard = self.cache.resident.shard(hash);
        self.index.remove_older(entry.hash, location, |l| self.ring.age(&self.space, l));
        self.index_insert(hash, location, Engine::class_of(entry));
        let is_older = shard.get(hash).is_some_and(|resident| {
            let seq = resident.record().head.sequence();
            seq <= entry.sequence() && resident.state.location() != Some(location)
        });
        let older = is_older.then(|| shard.remove(hash));
        drop(shard);
        drop(older);
        self.recovery.objects.fetch_add(1, Ordering::Relaxed);
    }

    /// A page record and an extent of the same key are ordered by their sequence numbers, which
    /// requires reading the other record; records of one kind are ordered by place.
    fn is_older_elsewhere(&self, entry: &SummaryEntry) -> bool {
        let class = Engine::class_of(entry);
        self.index.candidates(entry.hash).iter().any(|other| {
            self.may_differ_in_kind(class, other.length_class)
                && self
                    .header_at(other.location)
                    .is_some_and(|h| h.hash == entry.hash && h.seq > entry.seq)
        })
    }

    pub(crate) fn header_at(&self, location: Location) -> Option<RecordHeader> {
        let (segment, start, len) = self.blocks_of(location, 64);
        let life = self.ring.life(segment);
        let mut buf = AlignedBuf::zeroed(len as usize);
        self.read_for_itself(segment, start, &mut buf).ok()?;
        let (_, offset) = self.space.split(location);
        let bytes = buf.get((offset - start) as usize..)?;
        RecordHeader::decode(bytes, self.space.nonce).ok().filter(|header| header.is_of(life))
    }

    /// Notes between which numbers a segment was written, of which the greatest is returned.
    fn note_age(&self, segment: SegmentId, entries: &[SummaryEntry]) -> Sequence {
        let numbers = || entries.iter().map(SummaryEntry::sequence);
        let newest = numbers().max().unwrap_or(Sequence::ZERO);
        self.ring.note_oldest(segment, numbers().min().unwrap_or(Sequence::MAX));
        let last = entries.iter().map(|entry| u64::from(entry.offset_units)).max();
        self.ring.note_written(segment, newest, last.unwrap_or(0) * UNIT_BYTES);
        newest
    }

    fn learn_groups(&self, segment: SegmentId, life: SegmentLife) {
        if self.ring.life(segment) != life {
            return;
        }
        if let Some(entries) = segment_entries(self, segment)
            && self.ring.life(segment) == life
        {
            self.note_age(segment, &entries);
            self.note_groups(segment, life, &entries);
        }
    }

    fn note_groups(&self, segment: SegmentId, life: SegmentLife, entries: &[SummaryEntry]) {
        let mut last = None;
        let stride = self.ring.page_stride(segment);
        let is_current = |segment, life| self.ring.life(segment) == life;
        for entry in entries {
            if u64::from(entry.stored_units) * UNIT_BYTES > self.page_record_max() {
                continue;
            }
            let page = u64::from(entry.offset_units) * UNIT_BYTES / stride;
            if last == Some((page, entry.group())) {
                continue;
            }
            last = Some((page, entry.group()));
            if self.page_groups.get(segment, page).is_none() {
                self.page_groups.set(segment, page, entry.group());
            }
            self.groups.entry(entry.group()).note_page(segment, life, page as u32, is_current);
        }
    }

    /// Applies the journal's deletes to the index, and those that were made since.
    fn apply_deletes(&self) {
        let of_journal = shared(&self.deletes).journal();
        for hash in of_journal.keys() {
            self.forget(*hash);
        }
        self.apply_meanwhile();
    }

    /// Applies the deletes that were made while recovery runs. Their lock is not held meanwhile:
    /// who notes one may have another.
    fn apply_meanwhile(&self) {
        let meanwhile = shared(&self.deletes).meanwhile();
        for hash in meanwhile {
            self.forget(hash);
        }
    }
}

/// Ends a recovery that panics, so that its waiters do not wait for ever. Objects that it has not
/// found are not known to be gone, so all volumes are taken out of service: nothing is read or
/// written any more.
struct EndOnPanic<'a>(&'a Engine);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        let engine = self.0;
        // Under shuttle a panic ends the schedule, and the locks are gone.
        let panics = std::thread::panicking() && !cfg!(all(shuttle, test));
        if panics && !engine.recovery.is_done() {
            engine.space.take_out("recovery panicked");
            engine.recovery.set_ring_known();
            engine.recovery.finish();
        }
    }
}

/// Whether a checkpoint covers all of the journal: a close wrote it, and nothing came after that.
fn covers(header: &CheckpointHeader, contents: &JournalContents) -> bool {
    let since = Sequence::from_raw(header.seq_next);
    header.clean
        && contents.lost_before.is_none()
        && contents.lost_halves.is_empty()
        && contents.requires.is_none_or(|requires| requires.generation <= header.generation)
        && contents
            .records
            .iter()
            .all(|record| matches!(record.op, JournalOp::Epoch { .. }) || record.sequence() < since)
}

/// Segments with a life, the oldest first.
fn by_age(lives: &[SegmentLife]) -> Vec<(SegmentLife, SegmentId)> {
    let mut order: Vec<_> = lives
        .iter()
        .enumerate()
        .filter(|(_, life)| !life.is_none())
        .map(|(id, life)| (*life, SegmentId(id as u32)))
        .collect();
    order.sort_unstable();
    order
}
