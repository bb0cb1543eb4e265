//! Partial reads: an object is served from memory, or found on disk by its head and read in parts.
//!
//! Invariant: the newest candidate that belongs to the key decides, as for whole reads (`disk`).
//! Threads: any.

use crate::sync::{Arc, Mutex};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use super::disk::{Found, Indirect, LOOKS_MAX, Source};
use super::heads::Head;
use super::large::{LargeObject, info_of};
use super::lost::{Lost, NotRead, or_lost};
use super::memory::InMemory;
use crate::engine::Engine;
use crate::error::ReadError;
use crate::format::{RecordHeader, RecordKind, UNIT_BYTES, verify_record};
use crate::index::{Candidate, LengthClass, Location};
use crate::object::{ObjectInfo, ObjectRange};
use crate::stats::add;
use crate::types::{KeyHash, SegmentLife};

/// Objects up to this size are read whole even for a partial read.
const WHOLE_BYTES_MAX: u64 = 256 << 10;

/// An object of which the head is kept.
#[derive(Clone)]
pub(crate) struct KeptHead {
    pub(super) large: Arc<LargeObject>,
    hash: KeyHash,
    location: Location,
}

impl KeptHead {
    /// Counts a use of the object.
    pub(super) fn note_use(&self, engine: &Engine) {
        engine.index.bump_freq(self.hash.get(), self.location, 1);
    }
}

impl Engine {
    /// Finds an object without reading more than its head.
    pub(crate) fn resolve(self: &Arc<Engine>, key: &[u8]) -> Result<Option<Source>, ReadError> {
        let hash = self.hash(key);
        for _ in 0..LOOKS_MAX {
            match self.resolve_once(hash, key)? {
                Found::Source(source) => return Ok(Some(source)),
                Found::Gone | Found::OtherKey => return Ok(None),
                Found::LookAgain => {}
            }
        }
        add(&self.counters.misses_overwritten, 1);
        Ok(None)
    }

    /// As `resolve`, for a read that needs no more to be answered, and so is a hit. What is in
    /// memory was counted where it was found; who goes on to read from disk counts by itself.
    pub(crate) fn resolve_and_count(
        self: &Arc<Engine>,
        key: &[u8],
    ) -> Result<Option<Source>, ReadError> {
        let source = self.resolve(key)?;
        if matches!(source, Some(Source::Disk(_))) {
            add(&self.counters.hits_disk, 1);
        }
        Ok(source)
    }

    pub(crate) fn lookup(self: &Arc<Engine>, key: &[u8]) -> Result<Option<ObjectInfo>, ReadError> {
        Ok(self.resolve_and_count(key)?.map(|source| match source {
            Source::Memory(object) => ObjectInfo::of(&object),
            Source::Disk(large) => large.info.clone(),
        }))
    }

    fn resolve_once(self: &Arc<Engine>, hash: KeyHash, key: &[u8]) -> Result<Found, ReadError> {
        match self.lookup_memory(hash, key) {
            InMemory::Found(object) => return Ok(Found::in_memory(object)),
            InMemory::Dead => return Ok(Found::Gone),
            InMemory::Nothing => {}
        }
        let indirect = self.indirect_in_memory(hash, key);
        if let Some(object) = self.lookup_assembled(hash, &indirect) {
            return Ok(Found::in_memory(object));
        }
        match indirect {
            Indirect::Found(raw, header) => {
                let bytes = raw.run.bytes(raw.start, raw.len - raw.start);
                let place = (Location::MAX, raw.life);
                return self.indirect_of(hash, key, place, &header, bytes);
            }
            Indirect::Dead => return Ok(Found::Gone),
            Indirect::Nothing => {}
        }
        let is_by_head = |candidate: &Candidate| {
            !self.is_read_whole(candidate.length_class) || self.has_head(candidate.location)
        };
        match self.resolve_by_heads(hash, key, is_by_head)? {
            Found::OtherKey => {}
            found => return Ok(found),
        }
        match self.read_whole(hash, key, None, self.whole_max()) {
            Ok(source) => Ok(source.map_or(Found::Gone, Found::Source)),
            // A record that is longer than it seemed. If it is not there any more, it was replaced
            // meanwhile.
            Err(ReadError::TooLargeForMemory { .. }) => {
                Ok(match self.resolve_by_heads(hash, key, |_| true)? {
                    Found::OtherKey => Found::LookAgain,
                    found => found,
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the heads of the candidates, newest first, up to one of which the head is not to be
    /// read.
    fn resolve_by_heads(
        self: &Arc<Engine>,
        hash: KeyHash,
        key: &[u8],
        is_by_head: impl Fn(&Candidate) -> bool,
    ) -> Result<Found, ReadError> {
        let was_loading = !self.recovery.is_done();
        for candidate in self.ordered_candidates(hash).iter().take_while(|one| is_by_head(one)) {
            match self.resolve_candidate(hash, key, candidate, was_loading)? {
                Found::OtherKey => add(&self.counters.collision_reads, 1),
                found => return Ok(found),
            }
        }
        Ok(Found::OtherKey)
    }

    /// Records that may lie in a page have no checksums for parts, however large the page.
    fn is_read_whole(&self, class: LengthClass) -> bool {
        let in_pages = LengthClass::from_units(self.page_record_max() / UNIT_BYTES + 1);
        let most = in_pages.units().max(WHOLE_BYTES_MAX / UNIT_BYTES);
        class.units() <= most && !class.is_large()
    }

    /// Longest object that is put together although a part of it would do.
    fn whole_max(&self) -> u64 {
        self.page_record_max().max(WHOLE_BYTES_MAX).min(self.piece_max())
    }

    fn resolve_candidate(
        self: &Arc<Engine>,
        hash: KeyHash,
        key: &[u8],
        candidate: &Candidate,
        was_loading: bool,
    ) -> Result<Found, ReadError> {
        self.index.bump_freq(hash.get(), candidate.location, 1);
        let life = self.life_of(candidate.location);
        let class = candidate.length_class;
        // Such a record is a manifest or a patch, which has no head to be read alone.
        let first_bytes = if self.is_read_whole(class) { class.units() * UNIT_BYTES } else { 0 };
        let head = match or_lost(self.read_head(candidate.location, first_bytes))? {
            Ok(head) => head,
            Err(Lost::Unreadable | Lost::OutOfService) => {
                return Ok(self.unreadable(hash, candidate.location, life));
            }
            Err(Lost::Damaged | Lost::Overwritten) => {
                return Ok(self.damaged(hash, candidate.location, life));
            }
        };
        if !head.is_of(hash, key) {
            // Another record lies there if the segment was reused before the read.
            let moved = !self.knows(hash, candidate.location, life);
            return Ok(if moved { Found::LookAgain } else { Found::OtherKey });
        }
        if let Some(death) = self.death_of(&head.header, key, was_loading) {
            return Ok(self.dead(hash, candidate.location, life, death));
        }
        if self.is_outlived(hash, candidate.location, life, was_loading) {
            return Ok(Found::LookAgain);
        }
        self.by_head(hash, key, (candidate.location, life), head)
    }

    /// The key's object, if the head of its newest candidate is kept and tells all: neither what a
    /// patch is about nor what is lost. No I/O, and nothing changes.
    pub(crate) fn by_kept_head(&self, hash: KeyHash, key: &[u8]) -> Option<KeptHead> {
        let was_loading = !self.recovery.is_done();
        let newest = *self.ordered_candidates(hash).first()?;
        let head = self.kept_head(newest.location)?;
        let header = &head.header;
        let is_dead = || self.death_of(header, key, was_loading).is_some();
        let life = || self.life_of(newest.location);
        let is_outlived = || self.is_outlived(hash, newest.location, life(), was_loading);
        if !head.is_of(hash, key) || is_dead() || is_outlived() {
            return None;
        }
        let large = match header.kind {
            RecordKind::Object if header.chunked => self.of_head(newest.location, head),
            RecordKind::Manifest => {
                let metadata = Bytes::copy_from_slice(&head.bytes[header.meta_range()]);
                self.of_manifest(header, metadata, &head.bytes[header.value_range()]).ok()?
            }
            RecordKind::Object | RecordKind::Part | RecordKind::Patch => return None,
        };
        Some(KeptHead { large: Arc::new(large), hash, location: newest.location })
    }

    /// The object of which this is the head, in one record.
    fn of_head(&self, location: Location, head: Arc<Head>) -> LargeObject {
        let header = &head.header;
        let metadata = Bytes::copy_from_slice(&head.bytes[header.meta_range()]);
        let extent = self.extent(location, &head);
        let info = info_of(header, header.value_len, metadata);
        let (seq, head) = (header.sequence(), Mutex::new(Some((0, head))));
        LargeObject { info, seq, extents: vec![extent], head }
    }

    /// What the key's record is by its head, which lies at a location in this life of its segment,
    /// and is not dead.
    fn by_head(
        self: &Arc<Engine>,
        hash: KeyHash,
        key: &[u8],
        (location, life): (Location, SegmentLife),
        head: Arc<Head>,
    ) -> Result<Found, ReadError> {
        let header = head.header;
        match header.kind {
            // It has replaced, meanwhile, the long object whose head was to be read.
            RecordKind::Object if !header.chunked => return Ok(Found::LookAgain),
            RecordKind::Part => return Ok(self.damaged(hash, location, life)),
            RecordKind::Object | RecordKind::Manifest | RecordKind::Patch => {}
        }
        if header.kind == RecordKind::Object {
            return Ok(Found::Source(Source::Disk(Arc::new(self.of_head(location, head)))));
        }
        // The header is of that life, so nothing read since may count for a later one.
        self.indirect_of(hash, key, (location, life), &header, &head.bytes)
    }

    /// What a manifest or a patch refers to.
    fn indirect_of(
        self: &Arc<Engine>,
        hash: KeyHash,
        key: &[u8],
        (location, life): (Location, SegmentLife),
        header: &RecordHeader,
        record: &[u8],
    ) -> Result<Found, ReadError> {
        if !verify_record(header, record) {
            return Ok(self.damaged(hash, location, life));
        }
        let metadata = Bytes::copy_from_slice(&record[header.meta_range()]);
        let value = &record[header.value_range()];
        let large = match header.kind {
            RecordKind::Manifest => self.of_manifest(header, metadata, value),
            RecordKind::Patch => or_lost(self.of_patch(hash, key, header, metadata, value))?,
            RecordKind::Object | RecordKind::Part => Err(Lost::Damaged),
        };
        Ok(match large {
            Ok(large) => Found::Source(Source::Disk(Arc::new(large))),
            Err(lost) => self.value_gone(header, location, life, lost),
        })
    }

    /// Reads a part of an object, where it was `found` or wherever it is; the range is clamped to
    /// the object's length.
    pub(crate) fn read_range_blocking(
        self: &Arc<Engine>,
        key: &[u8],
        range: Range<u64>,
        mut found: Option<Arc<LargeObject>>,
    ) -> Result<Option<ObjectRange>, ReadError> {
        let mut waited = Duration::ZERO;
        for _ in 0..LOOKS_MAX {
            let source = match found.take() {
                Some(large) => Some(Source::Disk(large)),
                None => self.resolve(key)?,
            };
            let large = match source {
                None => return Ok(None),
                Some(Source::Memory(object)) => {
                    return Ok(Some(ObjectRange::of_object(object, &range)));
                }
                Some(Source::Disk(large)) => large,
            };
            match or_lost(self.read_part(&large, &range, &mut waited))? {
                Ok(found) => {
                    add(&self.counters.hits_disk, 1);
                    return Ok(Some(found));
                }
                // Its segment was reused since its head was read: it may have been kept elsewhere.
                Err(Lost::Overwritten) => {}
                Err(lost) => {
                    self.missed(lost);
                    return Ok(None);
                }
            }
        }
        self.missed(Lost::Overwritten);
        Ok(None)
    }

    /// Reads a part of an object on disk; `waited` as for `take_waiting`.
    fn read_part(
        self: &Arc<Engine>,
        large: &LargeObject,
        range: &Range<u64>,
        waited: &mut Duration,
    ) -> Result<ObjectRange, NotRead> {
        let clamped = large.clamped(range);
        let size = clamped.end - clamped.start;
        let max = self.piece_max();
        if size > max {
            return Err(ReadError::TooLargeForMemory { length: size, max }.into());
        }
        let gathers = size > 0 && !large.is_one_piece(&clamped);
        let _room = gathers.then(|| self.room_to_gather(size, waited)).transpose()?;
        large.read(self, clamped, waited)
    }
}

#[cfg(test)]
mod tests;
