//! Creating objects: `checks` and admission, copying into memory, and `publishing`, which replaces
//! the older version.
//!
//! Invariants: an object is visible to readers from the moment its entry is in the resident table;
//! before the create is acknowledged, the journal records the death of all versions on disk, or on
//! their way there, that it replaces. Threads: any.

mod checks;
mod new_object;
mod publishing;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use self::new_object::{NewObject, Replaces, Whole};
use super::nursery::{Due, Place, Staged, StagedExtent};
use crate::config::{Durability, WhenMemoryFull};
use crate::deferred::Caller;
use crate::durable::journal::TURN_WAIT;
use crate::engine::Engine;
use crate::error::CreateError;
use crate::format::{BLOCK_BYTES, RecordFields, RecordHeader, RecordKind, encode_around_value};
use crate::memory::pool::Run;
use crate::memory::resident::Entry;
use crate::policy::residency::Hint;
use crate::stats::add;
use crate::sync::shared;
use crate::types::{GroupId, KeyHash};
use crate::waiting::Waiting;

/// Longest wait for room before a create tries again: readers that release memory do not wake it.
pub(super) const ROOM_NAP: Duration = Duration::from_millis(5);

/// Flush periods in which new states of small objects, of which an older one is on disk, are
/// written once.
const PERIODS_OF_STATES: u32 = 12;

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
struct RecordRoom {
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

    fn create_small(
        self: &Arc<Engine>,
        new: &NewObject<'_>,
        hash: KeyHash,
        stored: usize,
    ) -> Result<(), CreateBlocked> {
        let (run, offset) = self.room_for_small(stored).ok_or(CreateBlocked::MustWait)?;
        let room = RecordRoom { run, offset, is_extent: false, chunked: false };
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
        let room = RecordRoom { run, offset: 0, is_extent: true, chunked };
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
        room: RecordRoom,
        lay_out: impl FnOnce(&Run, &RecordFields, &RecordHeader),
    ) -> Result<(), CreateBlocked> {
        let RecordRoom { run, offset, is_extent, chunked } = room;
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
