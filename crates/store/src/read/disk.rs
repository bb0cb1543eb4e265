//! Reads one object from disk: chooses the candidate, verifies it, and makes it resident.
//!
//! Invariants: no object is returned before its key, checksum and segment life were verified. Of
//! several candidates the newest that belongs to the key decides, even if it is damaged, so that an
//! older version is never served. Threads: any.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::flight::Joined;
use super::large::LargeObject;
use super::memory::InMemory;
use super::under_way::Room;
use crate::deferred::OneShot;
use crate::engine::Engine;
use crate::error::ReadError;
use crate::format::{RecordHeader, RecordKind, UNIT_BYTES, verify_record};
use crate::index::{Candidate, LengthClass, Location};
use crate::memory::pool::Run;
use crate::memory::resident::{Entry, Record};
use crate::object::Object;
use crate::policy::residency::Arrival;
use crate::stats::add;
use crate::types::{KeyHash, SegmentLife, Sequence};

type Outcome = Result<Option<Object>, ReadError>;
/// Receives the outcome of an asynchronous read.
pub(crate) type Promise = OneShot<Outcome>;

/// What an awaited read asks for, and who is told.
pub(crate) struct AwaitedRead {
    pub(crate) hash: KeyHash,
    pub(crate) key: Arc<[u8]>,
    pub(crate) promise: Arc<Promise>,
}

/// The source of an object's bytes.
pub(crate) enum Source {
    Memory(Object),
    /// It is longer than what is put together from several places for this caller, or only its head
    /// was to be read.
    Disk(Arc<LargeObject>),
}

/// What one candidate is to a key, or all of them.
pub(crate) enum Found {
    Source(Source),
    /// Another key with the same tag: the search goes on. Of all candidates: none is the key's.
    OtherKey,
    /// The key's object, but expired, purged, damaged, incomplete or unreadable: a miss that ends
    /// the search, and is counted.
    Gone,
    /// Another thread was reading it, or it moved meanwhile: the lookup must be repeated.
    LookAgain,
}

impl Found {
    pub(crate) fn in_memory(object: Object) -> Found {
        Found::Source(Source::Memory(object))
    }
}

/// An object whose manifest or patch is in memory, without its bytes.
pub(crate) enum Indirect {
    Found(RawRecord, RecordHeader),
    /// Expired or purged: a miss that ends the search, and is counted.
    Dead,
    Nothing,
}

/// A record's bytes as read: the run, where the record starts in it, its length, and the life of
/// its segment before the read. In a later life another version may lie at the same place.
pub(crate) struct RawRecord {
    pub(crate) run: Run,
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) life: SegmentLife,
}

/// A candidate's record that was read, but not looked at yet.
pub(crate) struct InHand {
    pub(crate) candidate: Candidate,
    pub(crate) raw: RawRecord,
    /// As in `Look`, when the candidate was chosen.
    pub(crate) was_loading: bool,
    /// Of the read, until a worker has its bytes: many may wait for one, and few have one.
    pub(crate) room: Room,
}

/// How the candidates for a key are looked at.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    /// Reads are shared with other callers that want the same bytes.
    pub(crate) shared: bool,
    /// Longest object that is put together from several places; a longer one is too large.
    pub(crate) whole_max: u64,
    /// Recovery was under way before the candidates were asked for: one that is dead may have been
    /// among them, and left the index when recovery ended, while it was read.
    pub(crate) was_loading: bool,
}

/// Lookups that end in `LookAgain` before the caller stops sharing reads, and before it gives up.
const LOOKS_SHARED_MAX: usize = 3;
pub(super) const LOOKS_MAX: usize = 12;

impl Engine {
    /// The candidates in live segments, newest first.
    pub(crate) fn ordered_candidates(&self, hash: KeyHash) -> Vec<Candidate> {
        self.stir();
        // Of what is not on disk, every miss asks more than once.
        if !self.index.has_any(hash.get()) {
            return Vec::new();
        }
        let mut all: Vec<Candidate> = self.index.candidates(hash.get()).iter().collect();
        all.retain(|c| {
            let (segment, _) = self.space.split(c.location);
            self.space.holds(segment) && !self.ring.life(segment).is_none()
        });
        if all.len() > 1 {
            all.sort_by_key(|c| std::cmp::Reverse(self.ring.position(&self.space, c.location)));
        }
        all
    }

    /// Reads on the calling thread.
    pub(crate) fn read_blocking(self: &Arc<Engine>, hash: KeyHash, key: &[u8]) -> Outcome {
        self.read_blocking_in_hand(hash, key, None)
    }

    /// As `read_blocking`, beginning with a record that was read already.
    pub(crate) fn read_blocking_in_hand(
        self: &Arc<Engine>,
        hash: KeyHash,
        key: &[u8],
        in_hand: Option<InHand>,
    ) -> Outcome {
        let max = self.piece_max();
        match self.read_whole(hash, key, in_hand, max)? {
            Some(Source::Memory(object)) => Ok(Some(object)),
            Some(Source::Disk(large)) => {
                Err(ReadError::TooLargeForMemory { length: large.info.length_bytes, max })
            }
            None => Ok(None),
        }
    }

    /// As `read_blocking_in_hand`, with a limit of the caller's to what is put together. What is
    /// longer is not counted as a hit: it is not read yet.
    pub(crate) fn read_whole(
        self: &Arc<Engine>,
        hash: KeyHash,
        key: &[u8],
        mut in_hand: Option<InHand>,
        whole_max: u64,
    ) -> Result<Option<Source>, ReadError> {
        for count in 0..LOOKS_MAX {
            let was_loading = !self.recovery.is_done();
            let look = Look { shared: count < LOOKS_SHARED_MAX, whole_max, was_loading };
            let indirect = self.indirect_in_memory(hash, key);
            if let Some(object) = self.lookup_assembled(hash, &indirect) {
                return Ok(Some(Source::Memory(object)));
            }
            // Last: what was put together moves here when its record is written.
            if count > 0 {
                match self.lookup_memory(hash, key) {
                    InMemory::Found(object) => return Ok(Some(Source::Memory(object))),
                    InMemory::Dead => return Ok(None),
                    InMemory::Nothing => {}
                }
            }
            let found = match (indirect, in_hand.take()) {
                (Indirect::Found(raw, header), _) => {
                    self.read_indirect(hash, key, raw, &header, look)?
                }
                (Indirect::Dead, _) => Found::Gone,
                (_, Some(InHand { candidate, raw, was_loading, room })) => {
                    drop(room);
                    let look = Look { was_loading, ..look };
                    self.accept_one(hash, key, &candidate, raw, look)?
                }
                (_, None) => self.look(hash, key, look)?,
            };
            match found {
                Found::Source(source) => {
                    let is_read = matches!(source, Source::Memory(_));
                    add(&self.counters.hits_disk, u64::from(is_read));
                    return Ok(Some(source));
                }
                Found::OtherKey if self.came_meanwhile(hash, key) => {}
                Found::OtherKey => {
                    let is_known = !self.index.candidates(hash.get()).is_empty();
                    let (known, not) =
                        (&self.counters.misses_collision, &self.counters.misses_not_found);
                    add(if is_known { known } else { not }, 1);
                    return Ok(None);
                }
                Found::Gone => return Ok(None),
                Found::LookAgain => {}
            }
        }
        add(&self.counters.misses_overwritten, 1);
        Ok(None)
    }

    /// As `lookup_memory`, for an object that an earlier read has put together.
    pub(crate) fn lookup_assembled(&self, hash: KeyHash, indirect: &Indirect) -> Option<Object> {
        let Indirect::Found(_, header) = indirect else { return None };
        let object = self.assembled_of(hash, header.sequence())?;
        let mut shard = self.cache.resident.shard(hash);
        shard.hits += 1;
        shard.hit_bytes += object.len() as u64;
        Some(object)
    }

    /// What an earlier read has put together of this version.
    pub(crate) fn assembled_of(&self, hash: KeyHash, seq: Sequence) -> Option<Object> {
        let run = self.reads.assembled.get(hash, seq)?;
        Some(Object::of(&Record::at(&run, 0), true))
    }

    /// A manifest or patch that is not on disk yet. If it is dead, the index entries of its key are
    /// dropped too, since they are older versions.
    pub(crate) fn indirect_in_memory(&self, hash: KeyHash, key: &[u8]) -> Indirect {
        let Some((raw, header)) = self.find_indirect(hash, key) else { return Indirect::Nothing };
        let death = self.death(header.group(), key, header.sequence(), header.expires_s);
        let Some(death) = death else { return Indirect::Found(raw, header) };
        let mut shard = self.cache.resident.shard(hash);
        let entry = shard.get(hash);
        if let Some(e) = entry.filter(|e| e.record().head.sequence() == header.sequence()) {
            self.note_unwritten(hash, &e.state);
            shard.remove(hash);
            self.forget(hash);
        }
        self.died(death);
        Indirect::Dead
    }

    fn find_indirect(&self, hash: KeyHash, key: &[u8]) -> Option<(RawRecord, RecordHeader)> {
        let shard = self.cache.resident.shard(hash);
        let entry = shard.get(hash)?;
        let record = entry.record();
        if record.head.is_object() || record.key() != key {
            return None;
        }
        let header = RecordHeader::decode(record.bytes(), self.space.nonce).ok()?;
        let start = record.offset as usize;
        let len = start + record.head.stored_bytes();
        let life =
            entry.state.location().map_or(SegmentLife::NONE, |location| self.life_of(location));
        Some((RawRecord { run: record.run.clone(), start, len, life }, header))
    }

    fn read_indirect(
        self: &Arc<Engine>,
        hash: KeyHash,
        key: &[u8],
        raw: RawRecord,
        header: &RecordHeader,
        look: Look,
    ) -> Result<Found, ReadError> {
        // The assembled object has no location of its own yet, so the resident table cannot have
        // it.
        let candidate = Candidate {
            location: Location::MAX,
            length_class: LengthClass::from_units(1),
            freq: 0,
        };
        match header.kind {
            RecordKind::Manifest => self.assemble_manifest(hash, &candidate, raw, header, look),
            _ => self.assemble_patch(hash, key, &candidate, raw, header, look),
        }
    }

    /// One pass over the candidates. `OtherKey` means that none belongs to the key.
    fn look(self: &Arc<Engine>, hash: KeyHash, key: &[u8], look: Look) -> Result<Found, ReadError> {
        for candidate in self.ordered_candidates(hash) {
            let found = self.read_candidate(hash, key, candidate, look)?;
            if !matches!(found, Found::OtherKey) {
                return Ok(found);
            }
            add(&self.counters.collision_reads, 1);
        }
        Ok(Found::OtherKey)
    }

    fn read_candidate(
        self: &Arc<Engine>,
        hash: KeyHash,
        key: &[u8],
        candidate: Candidate,
        look: Look,
    ) -> Result<Found, ReadError> {
        let turn = self.ask(self.space.split(candidate.location).0)?;
        if let Some(found) = self.unread(hash, &candidate) {
            return Ok(found);
        }
        self.index.bump_freq(hash.get(), candidate.location, 1);
        if turn.is_some() {
            return self.read_object(hash, key, &candidate, look);
        }
        if self.wants_page(hash, &candidate)
            && let Some(found) = self.read_page_for(hash, key, &candidate, look)?
        {
            return Ok(found);
        }
        if !look.shared {
            return self.read_object(hash, key, &candidate, look);
        }
        match self.reads.flights.join(candidate.location.units()) {
            Joined::Follower(flight) => {
                add(&self.counters.shared_reads, 1);
                flight.wait();
                Ok(Found::LookAgain)
            }
            Joined::Leader(lead) => {
                // Noted by the leader only: callers that share its read want the same object, not a
                // neighbour.
                self.note_alone(hash, &candidate);
                let found = self.read_object(hash, key, &candidate, look);
                drop(lead);
                found
            }
        }
    }

    /// Reads one record alone and makes it resident.
    pub(super) fn read_object(
        self: &Arc<Engine>,
        hash: KeyHash,
        key: &[u8],
        candidate: &Candidate,
        look: Look,
    ) -> Result<Found, ReadError> {
        let started = self.clock.monotonic();
        let (units, life) = (candidate.length_class.units(), self.life_of(candidate.location));
        let of_objects = &self.counters.object_reads;
        let Some(raw) = self.read_raw(candidate.location, units * UNIT_BYTES, of_objects)? else {
            return Ok(self.unreadable(hash, candidate.location, life));
        };
        self.note_object_read(started);
        self.accept(hash, key, candidate, raw, look)
    }

    /// What the read of an object cost, which later choices between object and page go by.
    pub(crate) fn note_object_read(&self, started: Duration) {
        let time = self.clock.monotonic().saturating_sub(started);
        self.reads.costs.note(false, time);
        self.counters.read_latency.record(time);
    }

    /// The life of a location's segment; none if the segment does not exist.
    pub(crate) fn life_of(&self, location: Location) -> SegmentLife {
        let (segment, _) = self.space.split(location);
        if self.space.holds(segment) { self.ring.life(segment) } else { SegmentLife::NONE }
    }

    /// The device blocks that hold `bytes` at a location: segment, offset, length.
    pub(crate) fn blocks_of(
        &self,
        location: Location,
        bytes: u64,
    ) -> (crate::space::SegmentId, u64, u64) {
        let (segment, offset) = self.space.split(location);
        let block = self.space.block();
        let start = offset - offset % block;
        let end = (offset + bytes).next_multiple_of(block).min(self.space.segment_bytes);
        (segment, start, end - start)
    }

    /// Counts a read for callers: `reads` is the counter of what was read.
    pub(crate) fn count_read(&self, reads: &AtomicU64, bytes: u64) {
        add(reads, 1);
        add(&self.counters.disk_read_bytes, bytes);
    }

    /// Reads the blocks around a record, or around its beginning, and counts it: `reads` is the
    /// counter of what is read. The caller has asked whether its volume answers. `Ok(None)`: the
    /// device failed.
    pub(crate) fn read_raw(
        self: &Arc<Engine>,
        location: Location,
        bytes: u64,
        reads: &AtomicU64,
    ) -> Result<Option<RawRecord>, ReadError> {
        let (segment, start, len) = self.blocks_of(location, bytes);
        // A length by its class is too high by up to a part of it.
        let inexact = self.piece_max() / LengthClass::INEXACT_PART;
        if len > self.piece_max() + inexact + 2 * self.space.page_bytes {
            return Err(ReadError::TooLargeForMemory { length: bytes, max: self.piece_max() });
        }
        // Else memory would be taken for nothing.
        if !self.space.is_in_service(segment) {
            return Ok(None);
        }
        let run = self.take_for_read(len as usize)?;
        let life = self.life_of(location);
        // SAFETY: the run is fresh and known to this thread only.
        let buf = unsafe { run.bytes_mut(0, len as usize) };
        if self.space.read(segment, start, buf).is_err() {
            return Ok(None);
        }
        self.count_read(reads, len);
        let (_, offset) = self.space.split(location);
        Ok(Some(RawRecord { run, start: (offset - start) as usize, len: len as usize, life }))
    }

    pub(crate) fn take_for_read(&self, bytes: usize) -> Result<Run, ReadError> {
        let mut waited = Duration::ZERO;
        self.take_more_for_read(bytes, &mut waited)
    }

    /// As `accept`, which may read more: one of the callers that have the record does, for all.
    pub(crate) fn accept_one(
        self: &Arc<Engine>,
        hash: KeyHash,
        key: &[u8],
        candidate: &Candidate,
        raw: RawRecord,
        look: Look,
    ) -> Result<Found, ReadError> {
        match self.reads.flights.join(candidate.location.units()) {
            Joined::Follower(flight) => {
                drop(raw);
                add(&self.counters.shared_reads, 1);
                flight.wait();
                Ok(Found::LookAgain)
            }
            Joined::Leader(lead) => {
                let found = self.accept(hash, key, candidate, raw, look);
                drop(lead);
                found
            }
        }
    }

    /// Verifies a record that was read and makes it resident.
    pub(crate) fn accept(
        self: &Arc<Engine>,
        hash: KeyHash,
        key: &[u8],
        candidate: &Candidate,
        raw: RawRecord,
        look: Look,
    ) -> Result<Found, ReadError> {
        let bytes = raw.run.bytes(raw.start, raw.len - raw.start);
        let Ok(header) = RecordHeader::decode(bytes, self.space.nonce) else {
            return Ok(self.damaged(hash, candidate.location, raw.life));
        };
        if !header.is_of(raw.life) {
            return Ok(self.damaged(hash, candidate.location, raw.life));
        }
        if header.key_hash() != hash {
            // The segment may have been reused during the read.
            let moved = !self.knows(hash, candidate.location, raw.life);
            return Ok(if moved { Found::LookAgain } else { Found::OtherKey });
        }
        if header.stored_bytes() > bytes.len() as u64 {
            return self.reread_longer(hash, key, candidate, &header, raw.life, look);
        }
        if !verify_record(&header, bytes) {
            return Ok(self.damaged(hash, candidate.location, raw.life));
        }
        if bytes.get(header.key_range()) != Some(key) {
            return Ok(Found::OtherKey);
        }
        if let Some(death) = self.death_of(&header, key, look.was_loading) {
            return Ok(self.dead(hash, candidate.location, raw.life, death));
        }
        if self.is_outlived(hash, candidate.location, raw.life, look.was_loading) {
            return Ok(Found::LookAgain);
        }
        match header.kind {
            RecordKind::Object => Ok(self.admit_read(hash, candidate, &raw, &header)),
            RecordKind::Manifest => self.assemble_manifest(hash, candidate, raw, &header, look),
            RecordKind::Patch => self.assemble_patch(hash, key, candidate, raw, &header, look),
            RecordKind::Part => Ok(self.damaged(hash, candidate.location, raw.life)),
        }
    }

    /// The index's length class was too small, as for the longest records: reads the record again,
    /// whole.
    fn reread_longer(
        self: &Arc<Engine>,
        hash: KeyHash,
        key: &[u8],
        candidate: &Candidate,
        header: &RecordHeader,
        life: SegmentLife,
        look: Look,
    ) -> Result<Found, ReadError> {
        let class_bytes = candidate.length_class.units() * UNIT_BYTES;
        if header.stored_bytes() <= class_bytes && !candidate.length_class.is_large() {
            return Ok(self.damaged(hash, candidate.location, life));
        }
        if header.stored_bytes() > self.piece_max() {
            let length = header.value_len;
            return Err(ReadError::TooLargeForMemory { length, max: self.piece_max() });
        }
        let (bytes, of_objects) = (header.stored_bytes(), &self.counters.object_reads);
        let Some(raw) = self.read_raw(candidate.location, bytes, of_objects)? else {
            return Ok(self.unreadable(hash, candidate.location, life));
        };
        if (raw.len - raw.start) < header.stored_bytes() as usize {
            return Ok(self.damaged(hash, candidate.location, raw.life));
        }
        self.accept(hash, key, candidate, raw, look)
    }

    /// Makes a verified record resident: a small one is copied into a log, a large one stays in its
    /// run.
    fn admit_read(
        &self,
        hash: KeyHash,
        candidate: &Candidate,
        raw: &RawRecord,
        header: &RecordHeader,
    ) -> Found {
        let group = self.groups.entry(header.group());
        add(&group.disk_reads, 1);
        let stored = header.stored_bytes() as usize;
        let asked = Arrival::Asked { hash: hash.get(), bytes: stored as u32 };
        let queue = self.cache.arrive(group.hint(), asked);
        let mut entry = Entry::of(raw.run.clone(), raw.start as u32);
        // A purge may have come since the marks were checked: the entry's epoch stays zero, so that
        // they are checked again.
        entry.state.set_location(candidate.location);
        let object = Object::of(&entry.record(), false);
        if !self.knows(hash, candidate.location, raw.life) {
            // Replaced or removed during the read: valid for this reader, but not for later ones.
            return Found::in_memory(object);
        }
        if stored as u64 > self.page_record_max() {
            if self.publish_read(hash, entry, raw.life) {
                let start = raw.start as u32;
                self.cache.track(raw.run.clone(), queue, start..start + stored as u32);
            }
            return Found::in_memory(object);
        }
        let record = raw.run.bytes(raw.start, stored);
        if let Some((run, offset)) = self.cache.append(queue, record, true) {
            let mut copied = Entry::of(run, offset);
            copied.state.set_location(candidate.location);
            let object = Object::of(&copied.record(), false);
            let may = || self.is_newest(hash, candidate.location, raw.life);
            self.cache.publish_logged(hash, copied, may);
            return Found::in_memory(object);
        }
        Found::in_memory(object)
    }

    /// Publishes a record read in this life of its segment, unless a newer version exists; true if
    /// published.
    pub(crate) fn publish_read(&self, hash: KeyHash, mut entry: Entry, life: SegmentLife) -> bool {
        let mut shard = self.cache.resident.shard(hash);
        let location = entry.state.location();
        let current = location.is_some_and(|location| self.is_newest(hash, location, life));
        if !current || shard.contains(hash) {
            return false;
        }
        entry.state.set_epoch(self.cache.epoch());
        shard.insert(hash, entry);
        true
    }

    /// True if this record is the newest candidate of its hash in the index, and its segment is
    /// still in this life. Checked in this order, as in `knows`.
    pub(crate) fn is_newest(&self, hash: KeyHash, location: Location, life: SegmentLife) -> bool {
        self.ordered_candidates(hash).first().is_some_and(|newest| newest.location == location)
            && self.life_of(location) == life
    }
}
