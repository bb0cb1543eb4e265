//! Large objects on disk: where their parts lie, and reads of ranges, verified chunk by chunk.
//!
//! Invariant: every byte returned is covered by a chunk checksum, whose table is covered by the
//! record's own checksum, and the segment was in the same life before and after the read. Threads:
//! any.

use crate::sync::{Arc, Mutex, lock};
use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::chunks::{Chunks, Extent, Piece};
use super::gathering::GatheringRoom;
use super::heads::Head;
use super::lost::{Lost, NotRead, or_lost};
use crate::engine::Engine;
use crate::error::ReadError;
use crate::format::{
    CHUNK_BYTES, Manifest, ManifestPart, Patch, RecordHeader, RecordKind, UNIT_BYTES, verify_body,
    verify_head,
};
use crate::index::Location;
use crate::memory::pool::Run;
use crate::object::{ObjectInfo, ObjectRange};
use crate::policy::residency::Hint;
use crate::space::SegmentId;
use crate::stats::add;
use crate::types::{KeyHash, SegmentLife, Sequence};

/// Length of the first read of a record's head.
const HEAD_READ_BYTES: u64 = 8192;

/// An object on disk that is read in parts.
pub(crate) struct LargeObject {
    pub(crate) info: ObjectInfo,
    /// Sequence number of the object's record: the patch's, if there is one.
    pub(crate) seq: Sequence,
    pub(super) extents: Vec<Extent>,
    /// Head of the extent that was read last.
    pub(super) head: Mutex<Option<(usize, Arc<Head>)>>,
}

impl Engine {
    pub(super) fn extent(&self, location: Location, head: &Head) -> Extent {
        let (segment, _) = self.space.split(location);
        let (len, record_seq) = (head.header.value_len, head.header.sequence().low_half());
        Extent { segment, life: head.life, location, start: 0, len, record_seq }
    }

    /// An object in parts, unless the segment of one was reused, or its volume is out of service.
    pub(crate) fn of_manifest(
        &self,
        header: &RecordHeader,
        metadata: Bytes,
        value: &[u8],
    ) -> Result<LargeObject, Lost> {
        let manifest = Manifest::decode(value, self.space.segment_bytes);
        let manifest = manifest.map_err(|_| Lost::Damaged)?;
        let mut start = 0;
        let mut extents = Vec::with_capacity(manifest.parts.len());
        for part in &manifest.parts {
            extents.push(self.part_extent(part, start)?);
            start += u64::from(part.value_len);
        }
        let info = info_of(header, manifest.total_len, metadata);
        Ok(LargeObject { info, seq: header.sequence(), extents, head: Mutex::new(None) })
    }

    fn part_extent(&self, part: &ManifestPart, start: u64) -> Result<Extent, Lost> {
        let segment = SegmentId(part.segment_id);
        if self.space.holds(segment) && self.space.is_missing(segment) {
            // It is there when its volume is.
            return Err(Lost::OutOfService);
        }
        if !self.space.holds(segment) || self.ring.life(segment) != part.life() {
            return Err(Lost::Overwritten);
        }
        // Here, and not by whoever reads on to it: an object that breaks off each time is no hit.
        if !self.space.is_in_service(segment) {
            return Err(Lost::OutOfService);
        }
        Ok(Extent {
            segment,
            life: part.life(),
            location: self.space.location(segment, u64::from(part.offset_units) * UNIT_BYTES),
            start,
            len: u64::from(part.value_len),
            record_seq: part.part_seq,
        })
    }

    /// An object whose newer metadata this patch is.
    pub(crate) fn of_patch(
        self: &Arc<Engine>,
        hash: KeyHash,
        key: &[u8],
        header: &RecordHeader,
        metadata: Bytes,
        value: &[u8],
    ) -> Result<LargeObject, NotRead> {
        let patch = Patch::decode(value).map_err(|_| Lost::Damaged)?;
        let location = Location::try_new(patch.base_units).ok_or(Lost::Damaged)?;
        if !self.space.holds(self.space.split(location).0) {
            return Err(Lost::Damaged.into());
        }
        let base = self.read_head(location, 0).map_err(|error| match error {
            // A patch does not say in which life of its segment the record was written.
            NotRead::Lost(Lost::Damaged) => Lost::Overwritten.into(),
            other => other,
        })?;
        let same = base.header.key_hash() == hash
            && base.header.seq == patch.base_seq
            && base.bytes.get(base.header.key_range()) == Some(key);
        if !same {
            return Err(Lost::Overwritten.into());
        }
        if base.header.kind == RecordKind::Manifest {
            let parts = &base.bytes[base.header.value_range()];
            return Ok(self.of_manifest(header, metadata, parts)?);
        }
        let extent = self.extent(location, &base);
        let info = info_of(header, base.header.value_len, metadata);
        let (seq, head) = (header.sequence(), Mutex::new(Some((0, base))));
        Ok(LargeObject { info, seq, extents: vec![extent], head })
    }

    /// The verified head of a record: all of it if it is not chunked. Reads it unless it is kept;
    /// `first_bytes` is how much is known to be wanted.
    pub(super) fn read_head(
        self: &Arc<Engine>,
        location: Location,
        first_bytes: u64,
    ) -> Result<Arc<Head>, NotRead> {
        if let Some(head) = self.kept_head(location) {
            return Ok(head);
        }
        let head = Arc::new(self.read_head_from_disk(location, first_bytes)?);
        if head.header.chunked || head.header.kind != RecordKind::Object {
            self.reads.heads.keep(location, &head);
        }
        Ok(head)
    }

    pub(super) fn kept_head(&self, location: Location) -> Option<Arc<Head>> {
        self.readable_life(location).and_then(|life| self.reads.heads.get(location, life))
    }

    /// Whether the head of this record need not be read.
    pub(super) fn has_head(&self, location: Location) -> bool {
        self.readable_life(location).is_some_and(|life| self.reads.heads.holds(location, life))
    }

    /// The life of a location's segment; `None` on a volume out of service, where a head would tell
    /// of what cannot be read.
    fn readable_life(&self, location: Location) -> Option<SegmentLife> {
        let (segment, _) = self.space.split(location);
        let is_readable = self.space.holds(segment) && self.space.is_in_service(segment);
        is_readable.then(|| self.ring.life(segment))
    }

    /// Keeps a manifest or patch if parts of its object will be read, since the whole is longer
    /// than this.
    pub(super) fn keep_head_of(
        &self,
        large: &Result<LargeObject, Lost>,
        whole_max: u64,
        (location, life): (Location, SegmentLife),
        header: &RecordHeader,
        record: &[u8],
    ) {
        let is_long = large.as_ref().is_ok_and(|large| large.info.length_bytes > whole_max);
        // One that waits to be written has no place yet.
        if is_long && location != Location::MAX && self.life_of(location) == life {
            let bytes = record[..header.stored_bytes() as usize].to_vec();
            self.reads.heads.keep(location, &Arc::new(Head { header: *header, bytes, life }));
        }
    }

    /// Keeps a manifest or patch that was written at a location in this life of its segment.
    pub(crate) fn keep_head_at(&self, location: Location, life: SegmentLife, record: &[u8]) {
        if let Ok(header) = RecordHeader::decode(record, self.space.nonce)
            && header.is_of(life)
            && header.kind != RecordKind::Object
        {
            let bytes = record[..header.stored_bytes() as usize].to_vec();
            self.reads.heads.keep(location, &Arc::new(Head { header, bytes, life }));
        }
    }

    fn read_head_from_disk(
        self: &Arc<Engine>,
        location: Location,
        first_bytes: u64,
    ) -> Result<Head, NotRead> {
        let _turn = self.ask(self.space.split(location).0)?;
        let of_ranges = &self.counters.range_reads;
        let first_bytes = first_bytes.max(HEAD_READ_BYTES);
        let not_read = || self.not_read(self.space.split(location).0);
        let raw = self.read_raw(location, first_bytes, of_ranges)?.ok_or_else(not_read)?;
        let life = raw.life;
        let bytes = raw.run.bytes(raw.start, raw.len - raw.start);
        let header = RecordHeader::decode(bytes, self.space.nonce).ok();
        let header = header.filter(|header| header.is_of(life)).ok_or(Lost::Damaged)?;
        let want = if header.chunked { header.head_bytes() } else { header.stored_bytes() };
        if want <= bytes.len() as u64 {
            return Ok(checked_head(header, bytes, life).ok_or(Lost::Damaged)?);
        }
        drop(raw);
        if want > self.piece_max() {
            return Err(Lost::Damaged.into());
        }
        let raw = self.read_raw(location, want, of_ranges)?.ok_or_else(not_read)?;
        let bytes = raw.run.bytes(raw.start, raw.len - raw.start);
        Ok(checked_head(header, bytes, life).ok_or(Lost::Damaged)?)
    }

    /// Header and value of a record whose head is undamaged and whose key is `key`.
    pub(crate) fn verified_header(
        self: &Arc<Engine>,
        key: &[u8],
        hash: KeyHash,
        location: Location,
    ) -> Option<(RecordHeader, Vec<u8>)> {
        let head = self.read_head(location, 0).ok()?;
        let same =
            head.header.key_hash() == hash && head.bytes.get(head.header.key_range()) == Some(key);
        let value =
            if head.header.chunked { &[] } else { head.bytes.get(head.header.value_range())? };
        same.then(|| (head.header, value.to_vec()))
    }
}

pub(super) fn info_of(header: &RecordHeader, length_bytes: u64, metadata: Bytes) -> ObjectInfo {
    ObjectInfo {
        group: header.group(),
        length_bytes,
        metadata,
        expires_unix_s: (header.expires_s != 0).then_some(u64::from(header.expires_s)),
        resident: false,
    }
}

fn checked_head(header: RecordHeader, bytes: &[u8], life: SegmentLife) -> Option<Head> {
    let undamaged = if header.chunked {
        verify_head(&header, bytes.get(..header.head_bytes() as usize)?)
    } else {
        verify_body(&header, bytes)
    };
    let len = if header.chunked { header.head_bytes() } else { header.stored_bytes() };
    undamaged.then(|| Head { header, bytes: bytes[..len as usize].to_vec(), life })
}

impl LargeObject {
    /// True if a range lies in one extent, so that reading it takes memory only once.
    pub(super) fn is_one_piece(&self, range: &Range<u64>) -> bool {
        let extent = self.extent_at(range.start).map(|index| &self.extents[index]);
        extent.is_some_and(|e| range.end <= e.start + e.len)
    }

    fn extent_at(&self, at: u64) -> Option<usize> {
        let index = self.extents.partition_point(|e| e.start + e.len <= at);
        (index < self.extents.len()).then_some(index)
    }

    /// The end of a piece of at most `bytes` bytes, at least a chunk, from `start` on. It is that
    /// of a chunk: chunks are read whole, so the next piece would read the rest of one again.
    pub(super) fn piece_end(&self, start: u64, bytes: u64) -> u64 {
        let of_extent = self.extent_at(start).map_or(0, |index| self.extents[index].start);
        let end = start + bytes;
        end - (end - of_extent) % CHUNK_BYTES
    }

    /// Reads a range into one run. For a range over several extents, the caller holds a
    /// `GatheringRoom`.
    pub(crate) fn read(
        &self,
        engine: &Arc<Engine>,
        range: Range<u64>,
        waited: &mut Duration,
    ) -> Result<ObjectRange, NotRead> {
        let len = (range.end - range.start) as usize;
        if len == 0 {
            return Ok(self.range_of_nothing(range.start));
        }
        if self.is_one_piece(&range) {
            let piece = self.read_piece(engine, range.clone(), waited)?;
            return Ok(self.range_of(range.start, piece));
        }
        let run = engine.take_more_for_read(len, waited)?;
        let mut at = 0;
        while at < len {
            let rest = range.start + at as u64..range.end;
            let Piece { run: from, start, len: got } = self.read_piece(engine, rest, waited)?;
            // SAFETY: the run is fresh and known to this thread only.
            unsafe { run.bytes_mut(at, got) }.copy_from_slice(from.bytes(start, got));
            at += got;
        }
        Ok(self.range_of(range.start, Piece { run, start: 0, len }))
    }

    /// A range, clamped to the object.
    pub(super) fn clamped(&self, range: &Range<u64>) -> Range<u64> {
        let length = self.info.length_bytes;
        let start = range.start.min(length);
        start..range.end.min(length).max(start)
    }

    /// What was read from `offset` on.
    pub(super) fn range_of(&self, offset: u64, piece: Piece) -> ObjectRange {
        let Piece { run, start, len } = piece;
        ObjectRange { run: Some(run), start, len, ..self.range_of_nothing(offset) }
    }

    pub(super) fn range_of_nothing(&self, offset: u64) -> ObjectRange {
        ObjectRange {
            run: None,
            start: 0,
            len: 0,
            offset,
            object_length: self.info.length_bytes,
            group: self.info.group,
            metadata: self.info.metadata.clone(),
        }
    }

    /// Reads from the start of a range to its end or the end of the extent.
    pub(crate) fn read_piece(
        &self,
        engine: &Arc<Engine>,
        range: Range<u64>,
        waited: &mut Duration,
    ) -> Result<Piece, NotRead> {
        // Its parts are as long as the object: nobody asks beyond them.
        let index = self.extent_at(range.start).ok_or(Lost::Damaged)?;
        let head = self.head_of(engine, index)?;
        Chunks::of(engine, self.extents[index], head, &range).read(engine, waited)
    }

    /// What is to be read for a range, if it lies in one extent, of which no head has to be read
    /// before.
    pub(super) fn chunks_at_hand(&self, engine: &Engine, range: &Range<u64>) -> Option<Chunks> {
        let index = self.extent_at(range.start).filter(|_| self.is_one_piece(range))?;
        let head = self.head_at_hand(engine, index)?;
        Some(Chunks::of(engine, self.extents[index], head, range))
    }

    /// Where the part of the value begins that starts there; `None` behind its end.
    pub(super) fn segment_at(&self, offset: u64) -> Option<SegmentId> {
        self.extent_at(offset).map(|index| self.extents[index].segment)
    }

    fn head_at_hand(&self, engine: &Engine, index: usize) -> Option<Arc<Head>> {
        if let Some((at, head)) = &*lock(&self.head)
            && *at == index
        {
            return Some(Arc::clone(head));
        }
        let extent = &self.extents[index];
        let head = engine.kept_head(extent.location)?;
        if head.life != extent.life || !extent.is_headed_by(&head.header) {
            return None;
        }
        *lock(&self.head) = Some((index, Arc::clone(&head)));
        Some(head)
    }

    fn head_of(&self, engine: &Arc<Engine>, index: usize) -> Result<Arc<Head>, NotRead> {
        if let Some(head) = self.head_at_hand(engine, index) {
            return Ok(head);
        }
        let extent = &self.extents[index];
        let head = or_lost(engine.read_head(extent.location, 0))?;
        if extent.is_overwritten(engine) {
            return Err(Lost::Overwritten.into());
        }
        let head = head?;
        if !extent.is_headed_by(&head.header) {
            return Err(Lost::Damaged.into());
        }
        *lock(&self.head) = Some((index, Arc::clone(&head)));
        Ok(head)
    }
}

impl Engine {
    /// Waits for room to gather `len` bytes. `waited` is the time that the read has waited for
    /// memory so far; this call adds to it.
    pub(super) fn room_to_gather(
        &self,
        len: u64,
        waited: &mut Duration,
    ) -> Result<GatheringRoom, ReadError> {
        // Room for the result and for the pieces, which together are no longer.
        let bytes = 2 * self.cache.pool.run_bytes_for(len as usize);
        let begun = Instant::now();
        let room =
            self.reads.gathering.room(bytes, self.config.memory_wait.saturating_sub(*waited));
        *waited += begun.elapsed();
        room.ok_or_else(|| {
            add(&self.counters.reads_refused, 1);
            ReadError::MemoryFull
        })
    }

    /// Memory for a read that may take several runs; `waited` as for `take_waiting`.
    pub(super) fn take_more_for_read(
        &self,
        bytes: usize,
        waited: &mut Duration,
    ) -> Result<Run, ReadError> {
        self.take_waiting(bytes, Hint::Neutral, waited).ok_or_else(|| {
            add(&self.counters.reads_refused, 1);
            ReadError::MemoryFull
        })
    }
}
