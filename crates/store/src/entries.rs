//! Lists the live objects of a store by walking its segments. Threads: one per walk.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::durable::segment_contents::entries_in;
use crate::engine::Engine;
use crate::error::ReadError;
use crate::format::{RecordHeader, RecordKind, UNIT_BYTES};
use crate::memory::mapped::AlignedBuf;
use crate::read::lost::or_lost;
use crate::space::SegmentId;
use crate::types::{GroupId, KeyHash};

/// An object on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The object's key.
    pub key: Vec<u8>,
    /// The group the object was created in.
    pub group: GroupId,
    /// Length of the value in bytes.
    pub length_bytes: u64,
    /// Length of the metadata in bytes.
    pub metadata_bytes: u64,
    /// When the object expires, in seconds since 1970.
    pub expires_unix_s: Option<u64>,
    /// The segment that holds the object.
    pub segment: u32,
}

/// All live objects on disk, segment by segment.
pub struct Entries {
    engine: Arc<Engine>,
    next_segment: u32,
    ready: VecDeque<Result<Entry, ReadError>>,
}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries").field("next_segment", &self.next_segment).finish_non_exhaustive()
    }
}

impl Entries {
    pub(crate) fn new(engine: &Arc<Engine>) -> Entries {
        Entries { engine: Arc::clone(engine), next_segment: 0, ready: VecDeque::new() }
    }

    /// Lists nothing more; true if there was more to come.
    fn break_off(&mut self) -> bool {
        let all = self.engine.ring.segments();
        let was_at = std::mem::replace(&mut self.next_segment, all);
        let ready = std::mem::take(&mut self.ready);
        was_at < all || !ready.is_empty()
    }

    fn load(&mut self, segment: SegmentId) {
        let engine = &self.engine;
        let life = engine.ring.life(segment);
        if life.is_none() {
            return;
        }
        let mut image = AlignedBuf::zeroed(engine.space.segment_bytes as usize);
        if engine.read_for_itself(segment, 0, &mut image).is_err() {
            self.ready.push_back(Err(ReadError::Gone));
            return;
        }
        // From the image: what was read once need not be readable again.
        for summary in entries_in(engine, segment, &image) {
            let offset = u64::from(summary.offset_units) * UNIT_BYTES;
            let location = engine.space.location(segment, offset);
            if !engine.index.contains_at(summary.hash, location)
                || engine.is_superseded(summary.key_hash(), location)
            {
                continue;
            }
            // The segment may have been written to, or reused, since its image was read: the index
            // then knows another record at this place.
            let record = &image[offset as usize..];
            let is_listed = RecordHeader::decode(record, engine.space.nonce).is_ok_and(|header| {
                (header.key_hash(), header.sequence()) == (summary.key_hash(), summary.sequence())
            });
            if is_listed && engine.ring.life(segment) == life {
                self.ready.extend(entry_at(engine, segment, record).transpose());
            }
        }
    }
}

impl Engine {
    /// True if a newer record of the same key is in the index.
    fn is_superseded(&self, hash: KeyHash, location: crate::index::Location) -> bool {
        let candidates = self.ordered_candidates(hash);
        candidates.iter().take_while(|newer| newer.location != location).any(|newer| {
            self.header_at(newer.location).is_some_and(|header| header.key_hash() == hash)
        })
    }
}

/// The entry of a record; `None` if the record is dead or damaged, or a part of it is gone.
fn entry_at(
    engine: &Arc<Engine>,
    segment: SegmentId,
    record: &[u8],
) -> Result<Option<Entry>, ReadError> {
    let Ok(header) = RecordHeader::decode(record, engine.space.nonce) else { return Ok(None) };
    let Some(key) = record.get(header.key_range()) else { return Ok(None) };
    let dead = header.expired(engine.clock.unix_seconds())
        || engine.marks.kills(header.group(), key, header.sequence());
    let Some(length_bytes) = length_of(engine, &header, key, record)?.filter(|_| !dead) else {
        return Ok(None);
    };
    Ok(Some(Entry {
        key: key.to_vec(),
        group: header.group(),
        length_bytes,
        metadata_bytes: u64::from(header.meta_len),
        expires_unix_s: (header.expires_s != 0).then_some(u64::from(header.expires_s)),
        segment: segment.0,
    }))
}

/// Length of the object's value, wherever it lies; `None` if a part of it is gone, or if the record
/// is itself a part.
fn length_of(
    engine: &Arc<Engine>,
    header: &RecordHeader,
    key: &[u8],
    record: &[u8],
) -> Result<Option<u64>, ReadError> {
    let Some(value) = record.get(header.value_range()) else { return Ok(None) };
    let large = match header.kind {
        RecordKind::Object => return Ok(Some(header.value_len)),
        RecordKind::Part => return Ok(None),
        RecordKind::Manifest => engine.of_manifest(header, Bytes::new(), value),
        RecordKind::Patch => {
            or_lost(engine.of_patch(header.key_hash(), key, header, Bytes::new(), value))?
        }
    };
    Ok(large.ok().map(|large| large.info.length_bytes))
}

impl Iterator for Entries {
    type Item = Result<Entry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.engine.is_closed() || self.engine.process.is_another() {
            return self.break_off().then_some(Err(ReadError::Closed));
        }
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Some(entry);
            }
            if self.next_segment >= self.engine.ring.segments() {
                return None;
            }
            let segment = SegmentId(self.next_segment);
            self.next_segment += 1;
            self.load(segment);
        }
    }
}
