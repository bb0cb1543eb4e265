//! Partial reads: an object is served from memory, or found on disk by its head and read in parts.
//!
//! Invariant: the newest candidate that belongs to the key decides, as for whole reads (`disk`).
//! Threads: any.

use crate::sync::{Arc, Mutex};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use super::disk::{Found, Indirect, RawRecord};
use super::large::{LargeObject, info_of};
use crate::engine::Engine;
use crate::error::ReadError;
use crate::format::{RecordHeader, RecordKind, UNIT_BYTES, verify_record};
use crate::index::{Candidate, LengthClass, Location};
use crate::object::{Object, ObjectRange};
use crate::stats::add;
use crate::types::KeyHash;

/// Objects up to this size are read whole even for a partial read.
const WHOLE_BYTES_MAX: u64 = 256 << 10;
/// The source of an object's bytes.
pub(crate) enum Source {
    Memory(Object),
    Disk(Arc<LargeObject>),
}

/// The outcome of reading a candidate's head.
enum ByHead {
    /// Another key with the same tag.
    OtherKey,
    /// The key's object, but expired, purged, damaged or incomplete: a miss that ends the search.
    Gone,
    Large(LargeObject),
}

impl ByHead {
    fn of(large: Option<LargeObject>) -> ByHead {
        large.map_or(ByHead::Gone, ByHead::Large)
    }
}

impl Engine {
    /// Finds an object without reading more than its head.
    pub(crate) fn resolve(self: &Arc<Engine>, key: &[u8]) -> Result<Option<Source>, ReadError> {
        let hash = self.hash(key);
        if let Some(object) = self.lookup_memory(hash, key) {
            return Ok(Some(Source::Memory(object)));
        }
        match self.indirect_in_memory(hash, key) {
            Indirect::Found(raw, header) => {
                let found = self.indirect_of(hash, key, Location::MAX, &header, &raw)?;
                return Ok(found.map(|large| Source::Disk(Arc::new(large))));
            }
            Indirect::Dead => return Ok(None),
            Indirect::Nothing => {}
        }
        for candidate in self.ordered_candidates(hash) {
            if self.is_read_whole(candidate.length_class) {
                break;
            }
            match self.resolve_candidate(hash, key, &candidate)? {
                ByHead::Large(large) => return Ok(Some(Source::Disk(Arc::new(large)))),
                ByHead::Gone => return Ok(None),
                ByHead::OtherKey => add(&self.counters.collision_reads, 1),
            }
        }
        match self.read_blocking(hash, key) {
            Ok(found) => Ok(found.map(Source::Memory)),
            // The record of a large object, itself small: a manifest or a patch.
            Err(ReadError::TooLargeForMemory { .. }) => self.resolve_indirect(hash, key),
            Err(error) => Err(error),
        }
    }

    /// Records that may lie in a page have no checksums for parts, however large the page.
    fn is_read_whole(&self, class: LengthClass) -> bool {
        let in_pages = LengthClass::from_units(self.page_record_max() / UNIT_BYTES + 1);
        let most = in_pages.units().max(WHOLE_BYTES_MAX / UNIT_BYTES);
        class.units() <= most && !class.is_large()
    }

    fn resolve_candidate(
        self: &Arc<Engine>,
        hash: KeyHash,
        key: &[u8],
        candidate: &Candidate,
    ) -> Result<ByHead, ReadError> {
        self.index.bump_freq(hash.get(), candidate.location, 1);
        let life = self.life_of(candidate.location);
        let Some(head) = self.read_head(candidate.location)? else {
            self.damaged(hash, candidate.location, life);
            return Ok(ByHead::Gone);
        };
        let header = head.header;
        if header.key_hash() != hash || head.bytes.get(header.key_range()) != Some(key) {
            return Ok(ByHead::OtherKey);
        }
        if self.is_dead(header.group(), key, header.sequence(), header.expires_s) {
            self.forget(hash);
            return Ok(ByHead::Gone);
        }
        let metadata = Bytes::copy_from_slice(&head.bytes[header.meta_range()]);
        if header.kind == RecordKind::Object && header.chunked {
            let extent = self.extent(candidate.location, &header);
            let head = Some((0, Arc::new(head)));
            let info = info_of(&header, header.value_len, metadata);
            return Ok(ByHead::Large(LargeObject {
                info,
                seq: header.sequence(),
                extents: vec![extent],
                head: Mutex::new(head),
            }));
        }
        self.indirect(hash, key, candidate.location, &header).map(ByHead::of)
    }

    /// Follows the manifest or patch of an object too large for a single run.
    fn resolve_indirect(
        self: &Arc<Engine>,
        hash: KeyHash,
        key: &[u8],
    ) -> Result<Option<Source>, ReadError> {
        for candidate in self.ordered_candidates(hash) {
            match self.resolve_candidate(hash, key, &candidate)? {
                ByHead::Large(large) => return Ok(Some(Source::Disk(Arc::new(large)))),
                ByHead::Gone => return Ok(None),
                ByHead::OtherKey => {}
            }
        }
        Ok(None)
    }

    fn indirect(
        self: &Arc<Engine>,
        hash: KeyHash,
        key: &[u8],
        location: Location,
        header: &RecordHeader,
    ) -> Result<Option<LargeObject>, ReadError> {
        let life = self.life_of(location);
        let Some(raw) = self.read_raw(location, header.stored_bytes())? else {
            self.unreadable(hash, location, life);
            return Ok(None);
        };
        self.indirect_of(hash, key, location, header, &raw)
    }

    fn indirect_of(
        self: &Arc<Engine>,
        hash: KeyHash,
        key: &[u8],
        location: Location,
        header: &RecordHeader,
        raw: &RawRecord,
    ) -> Result<Option<LargeObject>, ReadError> {
        let bytes = raw.run.bytes(raw.start, raw.len - raw.start);
        if !verify_record(header, bytes) {
            self.damaged(hash, location, raw.life);
            return Ok(None);
        }
        let metadata = Bytes::copy_from_slice(&bytes[header.meta_range()]);
        let value = &bytes[header.value_range()];
        let large = match header.kind {
            RecordKind::Manifest => self.of_manifest(header, metadata, value),
            RecordKind::Patch => self.of_patch(hash, key, header, metadata, value)?,
            RecordKind::Object | RecordKind::Part => None,
        };
        if large.is_none() {
            self.forget_durably(hash);
            add(&self.counters.misses_overwritten, 1);
        }
        Ok(large)
    }

    /// Reads a manifest's whole object into one run.
    pub(crate) fn assemble_manifest(
        self: &Arc<Engine>,
        hash: KeyHash,
        candidate: &Candidate,
        raw: RawRecord,
        header: &RecordHeader,
    ) -> Result<Found, ReadError> {
        let bytes = raw.run.bytes(raw.start, raw.len - raw.start);
        let key = bytes[header.key_range()].to_vec();
        let meta = Bytes::copy_from_slice(&bytes[header.meta_range()]);
        let large = self.of_manifest(header, meta.clone(), &bytes[header.value_range()]);
        let life = raw.life;
        drop(raw);
        self.assemble_large(hash, candidate, header, large, &[&key, &meta], life)
    }

    /// Reads a part of an object; the range is clamped to the object's length.
    pub(crate) fn read_range_blocking(
        self: &Arc<Engine>,
        key: &[u8],
        range: Range<u64>,
    ) -> Result<Option<ObjectRange>, ReadError> {
        match self.resolve(key)? {
            None => Ok(None),
            Some(Source::Memory(object)) => Ok(Some(ObjectRange::of_object(object, &range))),
            Some(Source::Disk(large)) => {
                let length = large.info.length_bytes;
                let clamped =
                    range.start.min(length)..range.end.min(length).max(range.start.min(length));
                let size = clamped.end - clamped.start;
                if size > self.piece_max() {
                    return Err(ReadError::TooLargeForMemory {
                        length: size,
                        max: self.piece_max(),
                    });
                }
                let mut waited = Duration::ZERO;
                let gathers = size > 0 && !large.is_one_piece(&clamped);
                let _room = gathers.then(|| self.room_to_gather(size, &mut waited)).transpose()?;
                let found = large.read(self, clamped, &mut waited)?;
                let counter = match &found {
                    Some(_) => &self.counters.hits_disk,
                    None if large.is_overwritten(self) => &self.counters.misses_overwritten,
                    None => &self.counters.misses_damaged,
                };
                add(counter, 1);
                Ok(found)
            }
        }
    }
}
