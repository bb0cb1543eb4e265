//! Asynchronous disk reads: one submitted I/O, with no thread waiting for it.
//!
//! Owns nothing. A read that needs more than one plain I/O is left to `disk`, on a worker thread.
//! Threads: any thread submits; the I/O thread that completes a read verifies it, and never reads
//! or blocks for it.

use std::sync::Arc;

use super::disk::{AwaitedRead, Found, InHand, Look, RawRecord, Source};
use super::flight::{Joined, Lead};
use super::memory::InMemory;
use super::under_way::{Room, UnderWay};
use crate::device::IoOp;
use crate::engine::Engine;
use crate::error::ReadError;
use crate::format::{RecordHeader, RecordKind, UNIT_BYTES};
use crate::index::Candidate;
use crate::object::Object;
use crate::policy::residency::Hint;
use crate::space::{SegmentId, Turn};
use crate::stats::add;
use crate::types::KeyHash;

/// Longer records go to a worker thread: verifying them would occupy the I/O thread for more than
/// some tens of microseconds.
const SUBMITTED_BYTES_MAX: u64 = 256 << 10;

impl Engine {
    /// The reads of a segment's volume that are under way.
    pub(super) fn under_way_with(&self, segment: SegmentId) -> &Arc<UnderWay> {
        let volume = self.space.spot(segment, 0).volume.superblock.volume_index;
        &self.reads.under_way[volume as usize]
    }

    /// Reserves memory for a read of `bytes` of a segment, if available; a reservation that the
    /// read has already becomes as large as it needs.
    pub(super) fn room_to_submit(
        self: &Arc<Engine>,
        segment: SegmentId,
        bytes: usize,
        reserved: Option<Room>,
    ) -> Option<Room> {
        let bytes = self.cache.pool.run_bytes_for(bytes);
        let Some(mut room) = reserved else { return self.under_way_with(segment).enter(bytes) };
        room.resize(bytes);
        Some(room)
    }

    /// Asynchronous read of one plain candidate; other cases go to `fallback`. `reserved`: what a
    /// read has that waited for room.
    pub(crate) fn submit_object_read(
        self: &Arc<Engine>,
        asked: AwaitedRead,
        fallback: impl FnOnce(Option<InHand>) + Send + 'static,
        reserved: Option<Room>,
    ) {
        let hash = asked.hash;
        // What is in memory by now is newer than what lies on disk, if it has no bytes of its own.
        if self.cache.resident.shard(hash).contains(hash) {
            return fallback(None);
        }
        let was_loading = !self.recovery.is_done();
        let candidates = self.ordered_candidates(hash);
        if let Some(first) = candidates.first() {
            if let Err(error) = self.may_ask(self.space.split(first.location).0) {
                return asked.promise.put(Err(error));
            }
            match self.unread(hash, first) {
                None => {}
                Some(Found::Gone) => return asked.promise.put(Ok(None)),
                Some(_) => return fallback(None),
            }
        }
        let Some(&candidate) = candidates.first() else { return fallback(None) };
        // Before it is left to a worker, too: all of them may wait for what is lost.
        match self.ask(self.space.split(candidate.location).0) {
            Ok(None) => {}
            Ok(Some(turn)) => return self.probe(asked, candidate, was_loading, turn),
            Err(error) => return asked.promise.put(Err(error)),
        }
        let bytes = candidate.length_class.units() * UNIT_BYTES;
        if candidates.len() > 1 || bytes > SUBMITTED_BYTES_MAX {
            return fallback(None);
        }
        if self.wants_page(hash, &candidate) {
            return self.submit_page_read(asked, &candidate, was_loading, fallback, reserved);
        }
        let (segment, start, len) = self.blocks_of(candidate.location, bytes);
        let Some(room) = self.room_to_submit(segment, len as usize, reserved) else {
            return self.submit_when_room(segment, len as usize, asked, fallback);
        };
        let lead = match self.reads.flights.join(candidate.location.units()) {
            Joined::Follower(flight) => return self.follow(&flight, asked, fallback),
            Joined::Leader(lead) => lead,
        };
        let Some(run) = self.cache.take(len as usize, Hint::Neutral) else {
            drop(lead);
            return fallback(None);
        };
        self.index.bump_freq(hash.get(), candidate.location, 1);
        self.note_alone(hash, &candidate);
        let started = self.clock.monotonic();
        let life = self.life_of(candidate.location);
        let this = Arc::clone(self);
        let pieces = vec![(run.clone(), len as usize)];
        self.space.submit(IoOp::Read, segment, start, pieces, move |outcome| {
            let (_, offset) = this.space.split(candidate.location);
            let start = (offset - start) as usize;
            let raw = RawRecord { run, start, len: len as usize, life };
            if outcome.is_ok() {
                this.count_read(&this.counters.object_reads, len);
                this.note_object_read(started);
            }
            let in_hand = InHand { candidate, raw, was_loading, room };
            this.object_was_read(asked, in_hand, outcome.is_ok(), lead, fallback);
        });
    }

    /// Reads one record of a volume that has not answered for long, on a thread of its own: what
    /// was asked before may be lost, and hold the room of submitted reads, the device's queue and
    /// the workers.
    fn probe(
        self: &Arc<Engine>,
        asked: AwaitedRead,
        candidate: Candidate,
        was_loading: bool,
        turn: Turn,
    ) {
        let this = Arc::clone(self);
        let job = move || {
            let AwaitedRead { hash, key, promise } = asked;
            promise
                .begin(|| promise.put(this.probe_now(hash, &key, &candidate, was_loading, turn)));
        };
        self.workers.run_apart(Box::new(job));
    }

    fn probe_now(
        self: &Arc<Engine>,
        hash: KeyHash,
        key: &[u8],
        candidate: &Candidate,
        was_loading: bool,
        turn: Turn,
    ) -> Result<Option<Object>, ReadError> {
        if self.is_closed() {
            return Err(ReadError::Closed);
        }
        self.index.bump_freq(hash.get(), candidate.location, 1);
        let look = Look { shared: false, whole_max: self.piece_max(), was_loading };
        let found = self.read_object(hash, key, candidate, look)?;
        drop(turn);
        match found {
            Found::Source(Source::Memory(object)) => {
                add(&self.counters.hits_disk, 1);
                Ok(Some(object))
            }
            Found::Gone => Ok(None),
            Found::Source(Source::Disk(_)) | Found::OtherKey | Found::LookAgain => {
                match self.lookup_memory(hash, key) {
                    InMemory::Found(object) => Ok(Some(object)),
                    InMemory::Dead => Ok(None),
                    InMemory::Nothing => self.read_blocking(hash, key),
                }
            }
        }
    }

    /// Ends a submitted read of one record, which is in hand if `done`.
    fn object_was_read(
        self: &Arc<Engine>,
        asked: AwaitedRead,
        in_hand: InHand,
        done: bool,
        lead: Lead,
        fallback: impl FnOnce(Option<InHand>),
    ) {
        let AwaitedRead { hash, key, promise } = asked;
        if done && !self.is_plain(hash, &in_hand.raw) {
            drop(lead);
            return fallback(Some(in_hand));
        }
        let InHand { candidate, raw, was_loading, room } = in_hand;
        let found = if done {
            let look = Look { shared: true, whole_max: self.piece_max(), was_loading };
            self.accept(hash, &key, &candidate, raw, look).ok()
        } else {
            Some(self.unreadable(hash, candidate.location, raw.life))
        };
        drop(lead);
        match found {
            Some(Found::Source(Source::Memory(object))) => {
                add(&self.counters.hits_disk, 1);
                promise.put(Ok(Some(object)));
            }
            Some(Found::Gone) => promise.put(Ok(None)),
            Some(Found::OtherKey) if self.came_meanwhile(hash, &key) => fallback(None),
            Some(Found::OtherKey) => {
                add(&self.counters.misses_collision, 1);
                promise.put(Ok(None));
            }
            Some(Found::Source(Source::Disk(_)) | Found::LookAgain) | None => fallback(None),
        }
        drop(room);
    }

    /// As `submit_object_read`, from the beginning, once there is memory for a read of `bytes` of a
    /// segment.
    pub(super) fn submit_when_room(
        self: &Arc<Engine>,
        segment: SegmentId,
        bytes: usize,
        asked: AwaitedRead,
        fallback: impl FnOnce(Option<InHand>) + Send + 'static,
    ) {
        add(&self.counters.reads_queued, 1);
        let this = Arc::clone(self);
        self.under_way_with(segment).wait(self.cache.pool.run_bytes_for(bytes), move |room| {
            let promise = Arc::clone(&asked.promise);
            promise.begin(|| {
                if this.is_closed() {
                    return promise.put(Err(ReadError::Closed));
                }
                // Another read may have brought it, and it may lie elsewhere by now.
                match this.lookup_memory(asked.hash, &asked.key) {
                    InMemory::Found(object) => promise.put(Ok(Some(object))),
                    InMemory::Dead => promise.put(Ok(None)),
                    InMemory::Nothing => this.submit_object_read(asked, fallback, Some(room)),
                }
            });
        });
    }

    /// False if `accept` would have to read more, which an I/O thread must not do.
    fn is_plain(&self, hash: KeyHash, raw: &RawRecord) -> bool {
        let bytes = raw.run.bytes(raw.start, raw.len - raw.start);
        let Ok(header) = RecordHeader::decode(bytes, self.space.nonce) else { return true };
        header.key_hash() != hash
            || (header.kind == RecordKind::Object && header.stored_bytes() <= bytes.len() as u64)
    }
}
