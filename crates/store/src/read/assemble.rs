//! Puts objects together that lie in several places: in parts, or with newer metadata elsewhere.
//!
//! Owns nothing. What is put together becomes resident under the location of its record, like what
//! was read in one piece, or waits in `assembled` while its record has none. Threads: any; they may
//! wait for memory.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::disk::{Found, Look, RawRecord, Source};
use super::flight::{Flight, Joined, Lead};
use super::large::LargeObject;
use super::lost::{Lost, or_lost};
use crate::engine::Engine;
use crate::error::ReadError;
use crate::format::{RECORD_HEADER_BYTES, RecordHeader, RecordKind};
use crate::index::{Candidate, Location};
use crate::memory::pool::Run;
use crate::memory::resident::Entry;
use crate::object::Object;
use crate::policy::residency::Arrival;
use crate::stats::add;
use crate::types::{GroupId, KeyHash, SegmentLife, Sequence};

/// Set in the keys of flights of versions, which are distinct from those of objects and of pages.
const VERSION_FLIGHTS: u64 = 1 << 62;

impl Engine {
    /// Reads a manifest's whole object into one run.
    pub(crate) fn assemble_manifest(
        self: &Arc<Engine>,
        hash: KeyHash,
        candidate: &Candidate,
        raw: RawRecord,
        header: &RecordHeader,
        look: Look,
    ) -> Result<Found, ReadError> {
        let bytes = raw.run.bytes(raw.start, raw.len - raw.start);
        let key = bytes[header.key_range()].to_vec();
        let meta = Bytes::copy_from_slice(&bytes[header.meta_range()]);
        let large = self.of_manifest(header, meta.clone(), &bytes[header.value_range()]);
        let life = raw.life;
        self.keep_head_of(&large, look.whole_max, (candidate.location, life), header, bytes);
        drop(raw);
        self.assemble_large(hash, candidate, header, large, &[&key, &meta], (life, look))
    }

    /// A patch: new metadata for an older value, which is read from where it lies.
    pub(super) fn assemble_patch(
        self: &Arc<Engine>,
        hash: KeyHash,
        key: &[u8],
        candidate: &Candidate,
        raw: RawRecord,
        header: &RecordHeader,
        look: Look,
    ) -> Result<Found, ReadError> {
        let bytes = raw.run.bytes(raw.start, raw.len - raw.start);
        let meta = Bytes::copy_from_slice(&bytes[header.meta_range()]);
        let value = &bytes[header.value_range()];
        let large = or_lost(self.of_patch(hash, key, header, meta.clone(), value))?;
        let life = raw.life;
        self.keep_head_of(&large, look.whole_max, (candidate.location, life), header, bytes);
        drop(raw);
        self.assemble_large(hash, candidate, header, large, &[key, &meta], (life, look))
    }

    /// Reads a whole object that lies in extents into one run. The caller must hold no memory,
    /// since this call may wait for memory.
    pub(crate) fn assemble_large(
        self: &Arc<Engine>,
        hash: KeyHash,
        candidate: &Candidate,
        header: &RecordHeader,
        large: Result<LargeObject, Lost>,
        before: &[&[u8]; 2],
        (life, look): (SegmentLife, Look),
    ) -> Result<Found, ReadError> {
        let gone = |lost| Ok(self.value_gone(header, candidate.location, life, lost));
        let large = match large {
            Ok(large) => large,
            Err(lost) => return gone(lost),
        };
        let length = large.info.length_bytes;
        if length > look.whole_max {
            return Ok(Found::Source(Source::Disk(Arc::new(large))));
        }
        let lead = match self.lead_unplaced(header.sequence(), candidate.location, look) {
            Ok(lead) => lead,
            Err(flight) => {
                add(&self.counters.shared_reads, 1);
                flight.wait();
                return Ok(Found::LookAgain);
            }
        };
        let mut waited = Duration::ZERO;
        let _room = self.room_to_gather(length, &mut waited)?;
        let range = match or_lost(large.read(self, 0..length, &mut waited))? {
            Ok(range) => range,
            Err(lost) => return gone(lost),
        };
        let pieces = [before[0], before[1], &range];
        let place = (candidate.location, life);
        let object = self.assemble(hash, place, header, &pieces, &mut waited)?;
        drop(lead);
        Ok(Found::in_memory(object))
    }

    /// Leads all who put this version together at once while its record has no location, by which
    /// they would share it otherwise: the others follow the flight.
    fn lead_unplaced(
        &self,
        seq: Sequence,
        location: Location,
        look: Look,
    ) -> Result<Option<Lead>, Arc<Flight>> {
        if location != Location::MAX || !look.shared {
            return Ok(None);
        }
        match self.reads.flights.join(VERSION_FLIGHTS | seq.get()) {
            Joined::Leader(lead) => Ok(Some(lead)),
            Joined::Follower(flight) => Err(flight),
        }
    }

    /// Copies key, metadata and value into a run of their own, behind a header that memory alone
    /// has, and publishes it under a location in this life of its segment.
    pub(crate) fn assemble(
        self: &Arc<Engine>,
        hash: KeyHash,
        (location, life): (Location, SegmentLife),
        header: &RecordHeader,
        pieces: &[&[u8]; 3],
        waited: &mut Duration,
    ) -> Result<Object, ReadError> {
        let total: usize = pieces.iter().map(|p| p.len()).sum();
        let run = self.take_more_for_read(total + RECORD_HEADER_BYTES, waited)?;
        let whole = RecordHeader {
            kind: RecordKind::Object,
            chunked: false,
            key_len: pieces[0].len() as u32,
            meta_len: pieces[1].len() as u32,
            value_len: pieces[2].len() as u64,
            ..*header
        };
        let mut at = 0;
        for piece in [&whole.encode()[..], pieces[0], pieces[1], pieces[2]] {
            // SAFETY: the run is fresh and known to this thread only.
            unsafe { run.bytes_mut(at, piece.len()) }.copy_from_slice(piece);
            at += piece.len();
        }
        let mut entry = Entry::of(run.clone(), 0);
        // As in `admit_read`; here the value has been read since.
        entry.state.set_location(location);
        let object = Object::of(&entry.record(), false);
        let records = 0..entry.record().head.stored_bytes() as u32;
        if location == Location::MAX {
            self.reads.assembled.keep(hash, header.sequence(), run);
        } else if self.publish_read(hash, entry, life) {
            self.track_assembled(hash, header.group(), run, records);
        }
        Ok(object)
    }

    /// Gives the run of an assembled object, which is in the resident table, to the cache.
    pub(crate) fn track_assembled(
        &self,
        hash: KeyHash,
        group: GroupId,
        run: Run,
        records: Range<u32>,
    ) {
        let hint = self.groups.hint(group);
        let bytes = run.len_bytes() as u32;
        let asked = Arrival::Asked { hash: hash.get(), bytes };
        self.cache.track(run, self.cache.arrive(hint, asked), records);
    }
}
