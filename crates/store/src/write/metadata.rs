//! New metadata for an object that is there: the whole object again if it is small, else a patch record
//! that refers to the value where it lies.
//!
//! Invariant: readers see the old metadata or the new with the whole value, never a mixture, since
//! either way one record replaces another. Threads: any.

use std::sync::Arc;
use std::time::Duration;

use super::create::{NewObject, NotNow};
use super::operation::create_operation;
use super::value::Value;
use super::writer::expires_s;
use crate::engine::Engine;
use crate::error::{CreateError, ReadError};
use crate::format::{Patch, RecordKind};
use crate::object::{Object, ObjectInfo};
use crate::read::disk::Indirect;
use crate::stats::Waiting;
use crate::store::lookup;

/// What a patch could refer to.
enum Base {
    OnDisk(Patch),
    /// It is on no disk any more, or was never to be.
    MemoryOnly(Object),
    /// It is still on its way to disk.
    NotYet,
}

fn replacement<'a>(
    kind: RecordKind,
    key: &'a [u8],
    info: &ObjectInfo,
    metadata: &'a [u8],
    value: &'a [u8],
) -> NewObject<'a> {
    NewObject {
        kind,
        key,
        group: info.group.get(),
        metadata,
        value: Value::Whole(value),
        expires_s: expires_s(info.expires_unix_s),
        internal: true,
        kept: None,
        freq: 1,
        laid: None,
    }
}

impl Engine {
    /// Small objects are stored anew, since their value lies in the same page; large ones that are
    /// on disk get a patch record that refers to the value.
    ///
    /// # Errors
    /// As for creates; `StillWriting` if the object did not get to disk within `memory_wait`.
    pub(crate) fn set_metadata(
        self: &Arc<Engine>,
        key: &[u8],
        metadata: &[u8],
    ) -> Result<bool, CreateError> {
        let mut waiting = Waiting::default();
        loop {
            let info = match lookup(self, key) {
                Ok(Some(info)) => info,
                Ok(None) | Err(ReadError::Gone) => return Ok(false),
                Err(ReadError::Closed) => return Err(CreateError::Closed),
                Err(_) => return Err(CreateError::MemoryFull),
            };
            if info.length_bytes <= self.page_record_max() {
                let Ok(found) = self.read_blocking_or_memory(key) else {
                    return Err(CreateError::MemoryFull);
                };
                let Some(object) = found else { return Ok(false) };
                let new = replacement(RecordKind::Object, key, &info, metadata, &object);
                return self.create_waiting(&new).map(|()| true);
            }
            match self.patch_base(key) {
                Base::OnDisk(patch) => {
                    let value = patch.encode();
                    let new = replacement(RecordKind::Patch, key, &info, metadata, &value);
                    return self.create_waiting(&new).map(|()| true);
                }
                Base::MemoryOnly(value) => {
                    let new = replacement(RecordKind::Object, key, &info, metadata, &value);
                    return create_operation(self, &new).wait().map(|()| true);
                }
                Base::NotYet => {}
            }
            let waited = waiting.elapsed();
            if waited >= self.config.memory_wait {
                return Err(CreateError::StillWriting { waited_ms: waited.as_millis() as u64 });
            }
            waiting.begin(&self.counters.metadata_waits);
            self.wait_written(Duration::from_millis(20));
        }
    }

    /// The same for a small object in memory, if nothing is in the way: without another thread, whose
    /// waking takes longer than all else. `None`: that one must see to it.
    pub(crate) fn set_metadata_now(
        self: &Arc<Engine>,
        key: &[u8],
        metadata: &[u8],
    ) -> Option<Result<bool, CreateError>> {
        let object = self.lookup_memory(self.hash(key), key)?;
        let info = ObjectInfo::of(&object);
        if info.length_bytes > self.page_record_max() {
            return None;
        }
        match self.create_now(&replacement(RecordKind::Object, key, &info, metadata, &object)) {
            Ok(()) => Some(Ok(true)),
            Err(NotNow::Failed(error)) => Some(Err(error)),
            Err(NotNow::MustWait) => None,
        }
    }

    fn read_blocking_or_memory(
        self: &Arc<Engine>,
        key: &[u8],
    ) -> Result<Option<Object>, ReadError> {
        let hash = self.hash(key);
        match self.lookup_memory(hash, key) {
            Some(object) => Ok(Some(object)),
            None => self.read_blocking(hash, key),
        }
    }

    /// Where the value of a large object lies: the record itself, or what an earlier patch refers to.
    fn patch_base(self: &Arc<Engine>, key: &[u8]) -> Base {
        let hash = self.hash(key);
        if let Indirect::Found(raw, header) = self.indirect_in_memory(hash, key) {
            let at = raw.start + header.value_range().start;
            let value = raw.run.bytes(at, header.value_len as usize);
            return match header.kind {
                RecordKind::Patch => Patch::decode(value).map_or(Base::NotYet, Base::OnDisk),
                // A manifest on its way to disk has no place yet.
                _ => Base::NotYet,
            };
        }
        let resident = {
            let shard = self.cache.resident.shard(hash);
            shard.map.get(&hash).filter(|entry| entry.key() == key).map(|entry| entry.location)
        };
        let candidates = self.ordered_candidates(hash);
        let candidate = match resident {
            // Still on its way to disk: what the index knows is an older version.
            Some(None) => return Base::NotYet,
            Some(Some(location)) => candidates.into_iter().find(|c| c.location == location),
            None => candidates.into_iter().next(),
        };
        let Some(candidate) = candidate else {
            // The ring came round, or the index was full: what is in memory is all there is.
            return self.lookup_memory(hash, key).map_or(Base::NotYet, Base::MemoryOnly);
        };
        let Some((header, value)) = self.verified_header(key, hash, candidate.location) else {
            return Base::NotYet;
        };
        match header.kind {
            RecordKind::Object | RecordKind::Manifest => {
                Base::OnDisk(Patch { base_units: candidate.location.units(), base_seq: header.seq })
            }
            RecordKind::Patch => Patch::decode(&value).map_or(Base::NotYet, Base::OnDisk),
            RecordKind::Part => Base::NotYet,
        }
    }
}
