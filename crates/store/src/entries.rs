//! Listing what a store holds, by walking its segments. One thread at a time uses a walk.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::GroupId;
use crate::engine::Engine;
use crate::error::ReadError;
use crate::format::{RecordHeader, RecordKind, UNIT_BYTES};
use crate::memory::mapped::AlignedBuf;
use crate::space::SegmentId;

/// An object on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: Vec<u8>,
    /// The group it was created in.
    pub group: GroupId,
    /// Length of its value in bytes.
    pub length_bytes: u64,
    /// Length of its metadata in bytes.
    pub metadata_bytes: u64,
    /// When it expires, in seconds since 1970.
    pub expires_unix_s: Option<u64>,
    /// The segment it lies in.
    pub segment: u32,
}

/// All live objects on disk, segment by segment.
pub struct Entries {
    engine: Arc<Engine>,
    next_segment: u32,
    ready: VecDeque<Result<Entry, ReadError>>,
}

impl Entries {
    pub(crate) fn new(engine: &Arc<Engine>) -> Entries {
        Entries { engine: Arc::clone(engine), next_segment: 0, ready: VecDeque::new() }
    }

    fn load(&mut self, segment: SegmentId) {
        let engine = &self.engine;
        if engine.ring.seq(segment) == 0 {
            return;
        }
        let mut image = AlignedBuf::zeroed(engine.space.segment_bytes as usize);
        if engine.space.read(segment, 0, &mut image).is_err() {
            self.ready.push_back(Err(ReadError::Gone));
            return;
        }
        for summary in
            crate::durable::recovery::segment_entries(engine, segment).unwrap_or_default()
        {
            let offset = u64::from(summary.offset_units) * UNIT_BYTES;
            let location = engine.space.location(segment, offset);
            if !engine.index.contains_at(summary.hash, location)
                || engine.is_superseded(summary.hash, location)
            {
                continue;
            }
            if let Some(entry) = entry_at(engine, segment, &image[offset as usize..]) {
                self.ready.push_back(Ok(entry));
            }
        }
    }
}

impl Engine {
    /// True if a newer record of the same key is in the index.
    fn is_superseded(&self, hash: u64, location: crate::index::Location) -> bool {
        let candidates = self.ordered_candidates(hash);
        candidates
            .iter()
            .take_while(|newer| newer.location != location)
            .any(|newer| self.header_at(newer.location).is_some_and(|header| header.hash == hash))
    }
}

/// The entry of a record, unless it is dead or damaged.
fn entry_at(engine: &Engine, segment: SegmentId, record: &[u8]) -> Option<Entry> {
    let header = RecordHeader::decode(record, engine.space.nonce).ok()?;
    let key = record.get(header.key_range())?;
    let dead = header.expired(engine.clock.unix_seconds())
        || engine.marks.kills(header.group, key, header.seq);
    if dead || header.kind == RecordKind::Part {
        return None;
    }
    let length_bytes = match header.kind {
        RecordKind::Manifest => {
            let value = record.get(header.value_range())?;
            crate::format::Manifest::decode(value, engine.space.segment_bytes).ok()?.total_len
        }
        RecordKind::Patch => patched_length(engine, record.get(header.value_range())?)?,
        RecordKind::Object | RecordKind::Part => header.value_len,
    };
    Some(Entry {
        key: key.to_vec(),
        group: GroupId::new(header.group),
        length_bytes,
        metadata_bytes: u64::from(header.meta_len),
        expires_unix_s: (header.expires_s != 0).then_some(u64::from(header.expires_s)),
        segment: segment.0,
    })
}

fn patched_length(engine: &Engine, value: &[u8]) -> Option<u64> {
    let patch = crate::format::Patch::decode(value).ok()?;
    let location = crate::index::Location::try_new(patch.base_units)?;
    engine.space.holds(engine.space.split(location).0).then_some(())?;
    let (segment, start, len) = engine.blocks_of(location, 4096);
    let mut buf = AlignedBuf::zeroed(len as usize);
    engine.space.read(segment, start, &mut buf).ok()?;
    let (_, offset) = engine.space.split(location);
    let header =
        RecordHeader::decode(buf.get((offset - start) as usize..)?, engine.space.nonce).ok()?;
    (header.seq == patch.base_seq).then_some(header.value_len)
}

impl Iterator for Entries {
    type Item = Result<Entry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
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
