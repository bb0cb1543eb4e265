//! Creating objects: checks, admission, copying into memory, replacement of the older version.
//!
//! Invariants: an object is visible to readers from the moment its entry is in the resident table;
//! before the create is acknowledged, the journal records the death of all versions on disk, or on
//! their way there, that it replaces. Threads: any.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::in_place::InPlaceValue;
use super::nursery::{Due, Place, Staged, StagedExtent};
use super::value::Value;
use super::version::Version;
use crate::config::{Durability, WhenMemoryFull};
use crate::deferred::Caller;
use crate::durable::journal::TURN_WAIT;
use crate::engine::Engine;
use crate::error::CreateError;
use crate::format::{
    BLOCK_BYTES, JournalOp, KEY_MAX_BYTES, RECORD_HEADER_BYTES, RecordFields, RecordHeader,
    RecordKind, encode_around_value, number_record,
};
use crate::index::Location;
use crate::memory::pool::Run;
use crate::memory::resident::{Entry, Found};
use crate::policy::admission::Newcomer;
use crate::policy::residency::Hint;
use crate::stats::add;
use crate::sync::{RwLockReadGuard, shared};
use crate::types::{GroupId, KeyHash, Sequence};
use crate::waiting::Waiting;

/// Longest wait for room before a create tries again: readers that release memory do not wake it.
pub(super) const ROOM_NAP: Duration = Duration::from_millis(5);

/// Flush periods in which new states of small objects, of which an older one is on disk, are
/// written once.
const PERIODS_OF_STATES: u32 = 12;

/// An object to be stored.
#[derive(Clone, Copy)]
pub(crate) struct NewObject<'a> {
    pub(crate) kind: RecordKind,
    pub(crate) key: &'a [u8],
    pub(crate) group: GroupId,
    pub(crate) metadata: &'a [u8],
    pub(crate) value: Value<'a>,
    /// Bytes of the whole value, for the counters: of an object in parts, `value` only lists them.
    pub(crate) value_bytes: u64,
    pub(crate) expires_s: u32,
    /// Kept from a reused segment, or rewritten by the store itself: skips admission and the
    /// counters.
    pub(crate) internal: bool,
    pub(crate) replaces: Replaces<'a>,
    /// Initial frequency in the index.
    pub(crate) freq: u8,
    /// For a record that stands for an object elsewhere: the object in one piece, which lacks only
    /// its number. Readers get it until the record is written.
    pub(crate) whole: Option<&'a Whole>,
    /// The value, if it already lies in the pool.
    pub(crate) in_place: Option<&'a InPlaceValue>,
    /// The caller that waits for the create, if the caller can abandon it.
    pub(crate) caller: Option<&'a Caller>,
}

/// An object in one piece, in a run that is not published: a header that only memory has, the key,
/// the metadata and the value.
pub(crate) struct Whole {
    pub(crate) run: Run,
    pub(crate) header: RecordHeader,
}

/// The version that a create replaces.
#[derive(Clone, Copy)]
pub(crate) enum Replaces<'a> {
    /// Any version.
    Anything,
    /// The object itself, at this location in the index: its record, or that of its metadata, moves
    /// from a segment about to be reused. The object does not change, so no older version becomes
    /// stale.
    Itself(Location),
    /// This version, if it is still the one that readers get.
    Version(&'a Version),
    /// As `Version`, for a version that may come back after a crash, since it is an older state of
    /// the same object: it stays on disk and in the index until the new one is written, and nothing
    /// is journalled.
    OlderState(&'a Version),
}

impl<'a> NewObject<'a> {
    /// A whole object without metadata or expiry, in place of any version.
    pub(crate) fn of(key: &'a [u8], group: GroupId, value: Value<'a>) -> NewObject<'a> {
        NewObject {
            kind: RecordKind::Object,
            key,
            group,
            metadata: &[],
            value_bytes: value.len() as u64,
            value,
            expires_s: 0,
            internal: false,
            replaces: Replaces::Anything,
            freq: 0,
            whole: None,
            in_place: None,
            caller: None,
        }
    }
}

impl NewObject<'_> {
    fn is_moved(&self) -> bool {
        matches!(self.replaces, Replaces::Itself(_))
    }

    /// Whether the journal need not tell what this replaces. While recovery runs it must: the older
    /// version may not be found yet.
    fn is_unjournalled(&self, engine: &Engine) -> bool {
        match self.replaces {
            Replaces::Itself(_) => true,
            Replaces::OlderState(_) => engine.recovery.is_done(),
            Replaces::Anything | Replaces::Version(_) => false,
        }
    }

    /// Bytes in this record that the admission policy knows of: those of the value, which a list of
    /// parts has elsewhere.
    fn admitted_bytes(&self) -> u64 {
        if self.kind == RecordKind::Object { self.value_bytes } else { 0 }
    }

    /// Whether no purge may come between the look at the marks and the new number. A caller that
    /// moves an object sees to that itself.
    fn keeps_purges_out(&self) -> bool {
        matches!(self.replaces, Replaces::Version(_) | Replaces::OlderState(_))
    }

    fn is_given_up(&self) -> bool {
        self.caller.is_some_and(Caller::is_gone)
    }
}

/// Why a create did not finish at once.
pub(crate) enum CreateBlocked {
    MustWait,
    /// The version to be replaced is no longer the current one.
    Outdated,
    Failed(CreateError),
}

impl From<CreateError> for CreateBlocked {
    fn from(error: CreateError) -> CreateBlocked {
        CreateBlocked::Failed(error)
    }
}

/// Memory that was taken for a record.
struct Room {
    run: Run,
    offset: usize,
    /// The record is written as an extent rather than on a page.
    is_extent: bool,
    /// The value has a checksum for each chunk.
    chunked: bool,
}

impl Engine {
    /// Creates without waiting.
    pub(crate) fn create_now(self: &Arc<Engine>, new: &NewObject<'_>) -> Result<(), CreateBlocked> {
        self.create_in_turn(new, None)
    }

    /// As `create_now`; if it is to wait for room in the nursery, it gets a place in line.
    fn create_in_turn(
        self: &Arc<Engine>,
        new: &NewObject<'_>,
        place: Option<&mut Place>,
    ) -> Result<(), CreateBlocked> {
        self.stir();
        self.check_create(new)?;
        let hash = self.hash(new.key);
        let stored = header_of(&fields_of(self, new, hash, false), new).stored_bytes();
        let full = !new.is_moved() && self.is_out_of_turn(stored, place);
        if full || (!self.journal.has_room() && self.is_journalled(new)) {
            return Err(CreateBlocked::MustWait);
        }
        if stored <= self.page_record_max() {
            self.create_small(new, hash, stored as usize)?;
        } else {
            self.create_extent(new, hash)?;
        }
        if new.internal {
            self.written_beside(stored);
        } else {
            self.written_with(stored - new.admitted_bytes().min(stored));
            add(&self.counters.creates, 1);
            add(&self.counters.create_bytes, new.value_bytes);
            let group = self.groups.entry(new.group);
            add(&group.objects_created, 1);
            add(&group.bytes_created, new.value_bytes);
            self.work_inline_if_due();
        }
        Ok(())
    }

    /// True if the nursery is full for a record of this size.
    fn is_out_of_turn(&self, stored: u64, place: Option<&mut Place>) -> bool {
        let Some(place) = place else {
            return self.nursery.is_full(stored, &mut Place::default());
        };
        let is_full = self.nursery.is_full(stored, place);
        if is_full {
            self.nursery.stand_in_line(stored, place);
        }
        is_full
    }

    /// As `create_now`, for callers that must not block: where something is replaced, and the disk
    /// syncs before that is acknowledged, a thread is to wait.
    pub(crate) fn create_unblocked(
        self: &Arc<Engine>,
        new: &NewObject<'_>,
    ) -> Result<(), CreateBlocked> {
        // What is not journalled waits, in the gate, for those who sync.
        let may_sync = !new.is_unjournalled(self) || self.config.durability == Durability::Synced;
        if may_sync && self.change_syncs(new.key) {
            return Err(CreateBlocked::MustWait);
        }
        self.create_now(new)
    }

    /// Creates, waiting for the flusher and for readers as configured. The wait counts from the
    /// moment the caller began to wait, which includes its wait for a thread.
    pub(crate) fn create_waiting(
        self: &Arc<Engine>,
        new: &NewObject<'_>,
    ) -> Result<(), CreateError> {
        self.create_unless(new, || false).map(drop)
    }

    /// As `create_waiting`, for a caller that can do with less memory: asks it whether it does when
    /// a wait has shown that what holds the memory is not about to be written. False if so.
    pub(crate) fn create_unless(
        self: &Arc<Engine>,
        new: &NewObject<'_>,
        gives_way: impl Fn() -> bool,
    ) -> Result<bool, CreateError> {
        let since = new.caller.map_or_else(Instant::now, Caller::since);
        let refuses = self.config.when_memory_full == WhenMemoryFull::Refuse;
        let (mut waiting, mut place) = (Waiting::default(), Place::default());
        loop {
            // If nothing was waiting to be written before the attempt, and no checkpoint is waited
            // for, only readers hold the memory.
            let idle = self.nursery.is_empty_for(&place) && self.journal.has_room();
            match self.create_in_turn(new, Some(&mut place)) {
                Ok(()) => return Ok(true),
                Err(CreateBlocked::Failed(error)) => return Err(error),
                Err(CreateBlocked::Outdated) => return Err(CreateError::Superseded),
                Err(CreateBlocked::MustWait) => {
                    let is_stuck = idle && (refuses || waiting.has_begun());
                    if is_stuck && gives_way() {
                        return Ok(false);
                    }
                    let by_readers = idle && self.journal.has_room();
                    if (refuses && by_readers) || since.elapsed() >= self.longest_wait(new) {
                        add(&self.counters.drops_memory_full, 1);
                        return Err(CreateError::MemoryFull);
                    }
                    waiting.begin(&self.counters.create_waits);
                    self.wait_room(ROOM_NAP);
                }
            }
        }
    }

    /// Where the journal waits for a checkpoint, a create does as long as a remove: refused before,
    /// it would wait for the journal all the same, to remove what it was to replace.
    fn longest_wait(&self, new: &NewObject<'_>) -> Duration {
        let wait = self.config.creates_wait();
        match !self.journal.has_room() && self.is_journalled(new) {
            true => wait.max(TURN_WAIT),
            false => wait,
        }
    }

    /// Whether what this replaces has to be journalled, unless that changes meanwhile. What nothing
    /// is known of is not, and needs no room there.
    fn is_journalled(&self, new: &NewObject<'_>) -> bool {
        !new.is_unjournalled(self) && self.may_be_journalled(self.hash(new.key))
    }

    fn check_create(&self, new: &NewObject<'_>) -> Result<(), CreateError> {
        self.check_key(new.key)?;
        self.check_metadata(new.metadata)?;
        // The caller of an abandoned create does not see this error.
        if self.is_closed() || new.is_given_up() {
            return Err(CreateError::Closed);
        }
        self.check_in_service()
    }

    /// Refuses, and counts, what no volume could take.
    pub(crate) fn check_in_service(&self) -> Result<(), CreateError> {
        if self.space.all_gone() {
            add(&self.counters.drops_write_error, 1);
            return Err(CreateError::VolumesGone { reason: self.space.why_gone() });
        }
        Ok(())
    }

    /// Counts a refused object of `length` bytes and returns the error; `max` is the limit.
    pub(crate) fn too_large(&self, length: u64, max: u64) -> CreateError {
        add(&self.counters.drops_too_large, 1);
        CreateError::TooLarge { length, max }
    }

    /// Longest value that fits in one record with a key and metadata of these lengths.
    pub(crate) fn one_record_max(&self, key: usize, metadata: usize) -> u64 {
        // Room for the header, checksums of chunks and alignment.
        let beside = (key + metadata) as u64 + BLOCK_BYTES;
        self.extent_max().saturating_sub(beside)
    }

    /// Refuses, and counts, a key that is empty or too long.
    pub(crate) fn check_key(&self, key: &[u8]) -> Result<(), CreateError> {
        let (length, max) = (key.len(), KEY_MAX_BYTES as usize);
        if (1..=max).contains(&length) {
            return Ok(());
        }
        add(&self.counters.drops_too_large, 1);
        Err(CreateError::KeyLength { length, max })
    }

    /// Refuses, and counts, metadata that is too long.
    pub(crate) fn check_metadata(&self, metadata: &[u8]) -> Result<(), CreateError> {
        let (length, max) = (metadata.len(), self.metadata_max());
        if length <= max {
            return Ok(());
        }
        add(&self.counters.drops_too_large, 1);
        Err(CreateError::MetadataTooLarge { length, max })
    }

    /// Asks the admission policy; a refusal is counted. `bytes` is `None` if the length is unknown.
    pub(crate) fn admit(
        &self,
        key: &[u8],
        group: GroupId,
        metadata: &[u8],
        bytes: Option<u64>,
    ) -> Result<(), CreateError> {
        let Some(policy) = &self.policies.admission else { return Ok(()) };
        let new = Newcomer {
            key,
            hash: self.hash(key).get(),
            group,
            hint: self.groups.hint(group),
            bytes,
            metadata,
            now: self.clock.monotonic(),
        };
        policy.admit(&new).map_err(|rule| {
            add(&self.counters.drops_not_admitted, 1);
            CreateError::NotAdmitted { rule }
        })
    }

    /// Records the latency of a create that began at `started`, if it succeeded.
    pub(crate) fn timed(
        &self,
        started: Duration,
        created: Result<(), CreateError>,
    ) -> Result<(), CreateError> {
        if created.is_ok() {
            let took = self.clock.monotonic().saturating_sub(started);
            self.counters.create_latency.record(took);
        }
        created
    }

    /// Tells the admission policy what a record has beside the value that it was asked about.
    pub(crate) fn written_with(&self, bytes: u64) {
        if let Some(policy) = &self.policies.admission {
            policy.written_with(bytes, self.clock.monotonic());
        }
    }

    /// Tells the admission policy of written bytes that it was not asked about.
    pub(crate) fn written_beside(&self, bytes: u64) {
        if let Some(policy) = self.policies.admission.as_ref().filter(|_| bytes > 0) {
            policy.written_beside(bytes, self.clock.monotonic());
        }
    }

    fn create_small(
        self: &Arc<Engine>,
        new: &NewObject<'_>,
        hash: KeyHash,
        stored: usize,
    ) -> Result<(), CreateBlocked> {
        let (run, offset) = self.room_for_small(stored).ok_or(CreateBlocked::MustWait)?;
        let room = Room { run, offset, is_extent: false, chunked: false };
        self.stage(new, hash, room, |run, fields, header| {
            // SAFETY: the range was reserved for this create and is published only after this.
            let record = unsafe { run.bytes_mut(offset, stored) };
            encode(record, fields, new, header);
        })
    }

    /// Room for a record in the run that creates are filling; `None` if readers hold all memory.
    pub(super) fn room_for_small(&self, stored: usize) -> Option<(Run, usize)> {
        loop {
            if let Some(place) = self.nursery.reserve(stored) {
                return Some(place);
            }
            self.nursery.refill(self.cache.take_frame(Hint::Loved)?);
        }
    }

    fn create_extent(
        self: &Arc<Engine>,
        new: &NewObject<'_>,
        hash: KeyHash,
    ) -> Result<(), CreateBlocked> {
        // Ranges of objects are read by chunks; manifests and patches are always read whole.
        let chunked = new.kind == RecordKind::Object;
        let layout = header_of(&fields_of(self, new, hash, chunked), new);
        let stored = layout.stored_bytes();
        if stored > self.extent_max() {
            // Larger values go through a writer, which splits them into parts; this record is too
            // large because of its key and metadata.
            return Err(self.too_large(stored, self.extent_max()).into());
        }
        let in_place_run = new.in_place.and_then(|value| value.run_for(&layout, &self.cache.pool));
        let hint = self.groups.hint(new.group);
        let run = in_place_run
            .clone()
            .or_else(|| self.cache.take(stored as usize, hint))
            .ok_or(CreateBlocked::MustWait)?;
        let in_place = new.in_place.filter(|_| in_place_run.is_some());
        let room = Room { run, offset: 0, is_extent: true, chunked };
        self.stage(new, hash, room, |run, fields, header| match in_place {
            Some(value) => value.finish(fields, new.key, new.metadata),
            None => encode_extent(run, fields, new, header),
        })
    }

    /// Lays out the record in the room taken for it, publishes it to readers, and hands it to the
    /// nursery.
    fn stage(
        &self,
        new: &NewObject<'_>,
        hash: KeyHash,
        room: Room,
        lay_out: impl FnOnce(&Run, &RecordFields, &RecordHeader),
    ) -> Result<(), CreateBlocked> {
        let Room { run, offset, is_extent, chunked } = room;
        let fields = fields_of(self, new, hash, chunked);
        let header = header_of(&fields, new);
        lay_out(&run, &fields, &header);
        let unpurged = new.keeps_purges_out().then(|| shared(&self.purge_lock));
        // Until the object is in the nursery.
        let _inside = self.gate.enter(hash);
        let entry = Entry::of(run.clone(), offset as u32);
        let (seq, beside_older) = self.publish_new(hash, entry, new, unpurged)?;
        // A patch is short, and while it waits its object takes memory that is set aside for that.
        let may_wait = beside_older && !is_extent && new.kind == RecordKind::Object;
        let staged = Staged {
            run,
            offset: offset as u32,
            stored_bytes: header.stored_bytes() as u32,
            reinserted: new.is_moved(),
            freq: new.freq,
            beside_older,
            may_wait,
            due: self.due(new.group, may_wait),
            round: 0,
            came_at: 0,
        };
        let taken = if is_extent {
            let extent = StagedExtent { staged, part: None, group: new.group };
            self.nursery.push_extent(extent, seq)
        } else {
            self.nursery.push(new.group, staged, seq)
        };
        if taken { Ok(()) } else { Err(CreateBlocked::Failed(CreateError::Closed)) }
    }

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
    fn publish_new(
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

    /// The time at which an object created now must be written. What may wait is due at times that
    /// are the same for all and do not move when it is replaced: it does not wait for ever, and
    /// what waits is written together.
    fn due(&self, group: GroupId, may_wait: bool) -> Due {
        let period = self
            .groups
            .get(group)
            .and_then(|state| state.flush_period())
            .unwrap_or(self.config.flush_period);
        if period.is_zero() {
            return Due::NEVER;
        }
        let now = self.clock.monotonic();
        if !may_wait {
            return Due::at(now.saturating_add(period));
        }
        let period_ns = period.saturating_mul(PERIODS_OF_STATES).as_nanos();
        let next_ns = (now.as_nanos() / period_ns + 1) * period_ns;
        Due::at(Duration::from_nanos(u64::try_from(next_ns).unwrap_or(u64::MAX)))
    }
}

fn header_of(fields: &RecordFields, new: &NewObject<'_>) -> RecordHeader {
    fields
        .header(new.key.len(), new.metadata.len(), new.value.len() as u64)
        .expect("key and metadata were checked, and no value in memory exceeds the format's limit")
}

pub(crate) fn fields_of(
    engine: &Engine,
    new: &NewObject<'_>,
    hash: KeyHash,
    chunked: bool,
) -> RecordFields {
    RecordFields {
        nonce: engine.space.nonce,
        kind: new.kind,
        chunked,
        hash: hash.get(),
        // It gets its number when it is published.
        seq: 0,
        group: new.group.get(),
        expires_s: new.expires_s,
    }
}

/// Lays out a record in an unpublished run, with zeros up to the end of its last block.
fn encode_extent(run: &Run, fields: &RecordFields, new: &NewObject<'_>, header: &RecordHeader) {
    let stored = header.stored_bytes() as usize;
    let end = stored.next_multiple_of(BLOCK_BYTES as usize);
    // SAFETY: the run is fresh and not published yet.
    let bytes = unsafe { run.bytes_mut(0, end.min(run.len_bytes())) };
    encode(bytes, fields, new, header);
    bytes[stored..].fill(0);
}

/// Lays out a record at the start of `room`.
fn encode(room: &mut [u8], fields: &RecordFields, new: &NewObject<'_>, header: &RecordHeader) {
    new.value.copy_to(&mut room[header.value_range()]);
    encode_around_value(room, fields, new.key, new.metadata, header.value_len)
        .expect("key and metadata were checked, and the room was taken for the record");
}

#[cfg(test)]
mod tests;
