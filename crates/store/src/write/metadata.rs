//! New metadata for an existing object. A small object is stored again as a whole; a large one gets
//! a patch record that refers to its value on disk.
//!
//! Invariants: readers see the old metadata or the new, each with the whole value, since one record
//! replaces another. The new record replaces only the version that was read: concurrent creates,
//! removes and purges take precedence. Threads: any.

use std::sync::Arc;
use std::time::Duration;

use super::create::{CreateBlocked, NewObject, Replaces, Whole, fields_of};
use super::value::Value;
use super::version::Version;
use super::writer::{Writer, WriterOptions, expires_s};
use crate::deferred::Caller;
use crate::engine::Engine;
use crate::error::{CreateError, MetadataError, ReadError};
use crate::format::{Patch, RecordKind};
use crate::index::Location;
use crate::object::{Object, ObjectInfo};
use crate::read::disk::{Indirect, Source};
use crate::read::memory::InMemory;
use crate::stats::add;
use crate::types::{KeyHash, Sequence};
use crate::waiting::Waiting;

/// Longest wait for a write before another attempt.
const WRITTEN_NAP: Duration = Duration::from_millis(20);
/// Retry limit: how often concurrent operations may interrupt one call. Where tags collide,
/// operations on other keys count too.
const ATTEMPTS_MAX: u32 = 64;

/// New metadata and expiry for a key.
pub(crate) struct NewMetadata<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) metadata: &'a [u8],
    /// The new expiry, zero for none; `None` keeps the current one.
    pub(crate) expires_s: Option<u32>,
    /// Whether the older metadata may come back after a crash.
    pub(crate) may_come_back: bool,
    /// The caller that waits for the operation, if the caller can abandon it.
    pub(crate) caller: Option<&'a Caller>,
}

impl NewMetadata<'_> {
    fn expires_s(&self, of: &ObjectInfo) -> u32 {
        self.expires_s.unwrap_or_else(|| expires_s(of.expires_unix_s))
    }
}

/// A version as it was read.
pub(crate) struct Seen {
    version: Version,
    info: ObjectInfo,
    /// The object, if it is in memory in one piece.
    object: Option<Object>,
    /// The record that a patch would refer to, once known.
    base: Option<Patch>,
}

/// The state of the record that a patch would refer to.
enum Base {
    OnDisk(Patch),
    /// The record is no longer on disk, or never was meant to be.
    MemoryOnly(Object),
    /// The record is not written yet.
    NotYet,
    /// The version has been replaced or is gone.
    Changed,
}

enum Attempt {
    Replaced,
    /// A concurrent operation interfered.
    Again,
    NotYet,
}

impl Seen {
    fn in_memory(object: Object) -> Seen {
        let (version, info) = (Version::in_memory(object.seq), ObjectInfo::of(&object));
        Seen { version, info, object: Some(object), base: None }
    }

    /// True if both versions have the same value, so that they differ at most in metadata and
    /// location.
    fn is_same_value(&self, other: &Seen) -> bool {
        let beside = |seen: &Seen| (seen.info.group, seen.info.expires_unix_s);
        let same_bytes = || match (&self.object, &other.object) {
            (Some(one), Some(another)) => one[..] == another[..],
            _ => false,
        };
        self.version.seq == other.version.seq
            || other.is_patch_of(self.version.seq, self.base.as_ref())
            || (beside(self) == beside(other) && same_bytes())
    }

    /// True if this is new metadata of the record with this number, or of what a patch with that
    /// number refers to, `base`. Its value is the same then, whatever expiry it was given.
    fn is_patch_of(&self, seq: Sequence, base: Option<&Patch>) -> bool {
        let own = self.base.as_ref();
        own.is_some_and(|own| own.base_seq == seq.get() || Some(own) == base)
    }

    fn replacement<'a>(
        &'a self,
        kind: RecordKind,
        new: &NewMetadata<'a>,
        value: &'a [u8],
        whole: Option<&'a Whole>,
    ) -> NewObject<'a> {
        NewObject {
            kind,
            metadata: new.metadata,
            value_bytes: self.info.length_bytes,
            expires_s: new.expires_s(&self.info),
            internal: true,
            replaces: match new.may_come_back {
                true => Replaces::OlderState(&self.version),
                false => Replaces::Version(&self.version),
            },
            freq: 1,
            whole,
            caller: new.caller,
            ..NewObject::of(new.key, self.info.group, Value::Whole(value))
        }
    }
}

impl Engine {
    /// Sets new metadata: stores a small object anew, since its value lies in the same page, and
    /// writes a patch record for a large one that is on disk. `first` is the version that the
    /// caller saw when it began, if it looked.
    ///
    /// # Errors
    /// As for creates; `StillWriting` if the object was not written within the wait of creates;
    /// `Superseded` if it has another value by now.
    pub(crate) fn set_metadata(
        self: &Arc<Engine>,
        new: &NewMetadata<'_>,
        mut first: Option<Box<Seen>>,
    ) -> Result<bool, MetadataError> {
        let mut waiting = Waiting::default();
        let mut attempts = 0;
        loop {
            let is_counted = first.is_some();
            let Some(mut seen) = self.see(new.key, is_counted)?.map(Box::new) else {
                return Ok(false);
            };
            let attempt = self.attempt(new, &mut seen, first.as_deref())?;
            // The value is the same, and `seen` may know more of it.
            first = Some(seen);
            match attempt {
                Attempt::Replaced => return Ok(true),
                Attempt::Again if attempts == ATTEMPTS_MAX => {
                    return Err(MetadataError::Superseded);
                }
                Attempt::Again => attempts += 1,
                Attempt::NotYet => {
                    let waited = waiting.elapsed();
                    if waited >= self.config.creates_wait() {
                        let waited_ms = waited.as_millis() as u64;
                        return Err(MetadataError::StillWriting { waited_ms });
                    }
                    if new.caller.is_some_and(Caller::is_gone) {
                        return Err(CreateError::Closed.into());
                    }
                    waiting.begin(&self.counters.metadata_waits);
                    self.wait_written(WRITTEN_NAP);
                }
            }
        }
    }

    /// As `set_metadata`, for a small object in memory if no waiting is needed. Avoids a worker,
    /// whose wake-up would take longer than everything else. On `Err`, the caller continues with
    /// `set_metadata`, passing the version seen.
    pub(crate) fn set_metadata_now(
        self: &Arc<Engine>,
        new: &NewMetadata<'_>,
    ) -> Result<Result<bool, MetadataError>, Option<Box<Seen>>> {
        let object = match self.lookup_memory(self.hash(new.key), new.key) {
            InMemory::Found(object) => object,
            InMemory::Dead => return Ok(Ok(false)),
            InMemory::Nothing => return Err(None),
        };
        let is_small = object.len() as u64 <= self.page_record_max();
        let seen = Seen::in_memory(object);
        let Some(value) = seen.object.as_ref().filter(|_| is_small) else {
            return Err(Some(Box::new(self.unpinned(new.key, seen))));
        };
        match self.create_unblocked(&seen.replacement(RecordKind::Object, new, value, None)) {
            Ok(()) => Ok(Ok(true)),
            Err(CreateBlocked::Failed(error)) => Ok(Err(error.into())),
            Err(CreateBlocked::MustWait | CreateBlocked::Outdated) => Err(Some(Box::new(seen))),
        }
    }

    /// A large object in memory, which must not stay pinned until the caller waits: where its
    /// record lies is what tells it from an object of another value, if it is replaced by then.
    fn unpinned(&self, key: &[u8], mut seen: Seen) -> Seen {
        let (hash, seq) = (self.hash(key), seen.version.seq);
        let shard = self.cache.resident.shard(hash);
        let entry = shard.get(hash).filter(|entry| entry.record().head.sequence() == seq);
        seen.version.place = entry.and_then(|entry| entry.state.location());
        drop(shard);
        Seen { object: None, ..seen }
    }

    /// What the patch at the place of this version refers to, if it is one that lies there still.
    fn base_at(self: &Arc<Engine>, key: &[u8], seen: &Seen) -> Option<Patch> {
        let (header, value) = self.verified_header(key, self.hash(key), seen.version.place?)?;
        let is_it = header.sequence() == seen.version.seq && header.kind == RecordKind::Patch;
        Patch::decode(&value).ok().filter(|_| is_it)
    }

    /// The newest version, with its value if that is small. New metadata counts as one read,
    /// however often it looks: `is_counted` from the second look on.
    fn see(
        self: &Arc<Engine>,
        key: &[u8],
        is_counted: bool,
    ) -> Result<Option<Seen>, MetadataError> {
        let hash = self.hash(key);
        let family = self.family(hash);
        let known = is_counted.then(|| self.peek_memory(hash, key)).flatten();
        let mut found = known.map_or_else(|| self.resolve(key), |it| Ok(Some(Source::Memory(it))));
        if let Ok(Some(Source::Disk(large))) = &found {
            if large.info.length_bytes <= self.page_record_max() {
                found = self.read_blocking(hash, key).map(|found| found.map(Source::Memory));
            } else if !is_counted {
                add(&self.counters.hits_disk, 1);
            }
        }
        let (seq, info, object) = match found {
            Ok(Some(Source::Memory(object))) => (object.seq, ObjectInfo::of(&object), Some(object)),
            Ok(Some(Source::Disk(large))) => (large.seq, large.info.clone(), None),
            Ok(None) | Err(ReadError::Gone) => return Ok(None),
            Err(ReadError::Closed) => return Err(CreateError::Closed.into()),
            Err(ReadError::Unanswered { waited_ms }) => {
                return Err(MetadataError::Unanswered { waited_ms });
            }
            Err(_) => return Err(CreateError::MemoryFull.into()),
        };
        let version = self.version(hash, seq, family);
        Ok(Some(Seen { version, info, object, base: None }))
    }

    fn attempt(
        self: &Arc<Engine>,
        new: &NewMetadata<'_>,
        seen: &mut Seen,
        first: Option<&Seen>,
    ) -> Result<Attempt, MetadataError> {
        let base = self.base_of(new.key, seen);
        if let Base::OnDisk(patch) = &base {
            seen.base = Some(*patch);
        }
        if let Some(first) = first.filter(|first| !first.is_same_value(seen)) {
            // Looked at only now: it is a read.
            let base = self.base_at(new.key, first);
            if !seen.is_patch_of(first.version.seq, base.as_ref()) {
                return Err(MetadataError::Superseded);
            }
        }
        let stored = match base {
            Base::OnDisk(patch) => {
                // An invalid location is detected when the patch is read.
                let place = Location::try_new(patch.base_units).map(|at| self.space.split(at).0);
                if let Some(segment) = place.filter(|segment| self.space.holds(*segment)) {
                    self.ring.refer(segment);
                }
                self.patch(new, seen, &patch)
            }
            Base::MemoryOnly(value) => self.store_again(new, seen, &value),
            Base::NotYet => return Ok(Attempt::NotYet),
            Base::Changed => return Ok(Attempt::Again),
        };
        match stored {
            Ok(()) => Ok(Attempt::Replaced),
            Err(CreateError::Superseded) => Ok(Attempt::Again),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a patch. An object in memory stays there, with its new metadata.
    fn patch(
        self: &Arc<Engine>,
        new: &NewMetadata<'_>,
        seen: &Seen,
        patch: &Patch,
    ) -> Result<(), CreateError> {
        let whole = seen.object.as_ref().and_then(|object| self.renewed(new, seen, object));
        let value = patch.encode();
        self.create_waiting(&seen.replacement(RecordKind::Patch, new, &value, whole.as_ref()))?;
        if let Some(older) = &seen.object {
            // Nobody gets it any more: its memory should not wait until it is its turn to leave.
            self.cache.let_go(older.first_place());
        }
        Ok(())
    }

    /// A copy of an object in memory, with new metadata; `None` if there is no room for it.
    fn renewed(&self, new: &NewMetadata<'_>, seen: &Seen, object: &Object) -> Option<Whole> {
        self.check_metadata(new.metadata).ok()?;
        let whole = seen.replacement(RecordKind::Object, new, object, None);
        let fields = fields_of(self, &whole, self.hash(new.key), false);
        let lengths = (new.key.len(), new.metadata.len(), object.len() as u64);
        let header = fields.header(lengths.0, lengths.1, lengths.2).ok()?;
        let total = header.stored_bytes();
        if !self.reads.assembled.takes(total) {
            return None;
        }
        let run = self.cache.take(total as usize, self.groups.hint(seen.info.group))?;
        let mut at = header.key_range().start;
        for piece in [new.key, new.metadata, object] {
            // SAFETY: the run is fresh and known to this thread only.
            unsafe { run.bytes_mut(at, piece.len()) }.copy_from_slice(piece);
            at += piece.len();
        }
        Some(Whole { run, header })
    }

    /// Stores the whole object again, from memory.
    fn store_again(
        self: &Arc<Engine>,
        new: &NewMetadata<'_>,
        seen: &Seen,
        value: &Object,
    ) -> Result<(), CreateError> {
        self.check_metadata(new.metadata)?;
        if value.len() as u64 <= self.one_record_max(new.key.len(), new.metadata.len()) {
            return self.create_waiting(&seen.replacement(RecordKind::Object, new, value, None));
        }
        let options = WriterOptions {
            metadata: new.metadata.to_vec(),
            expires_unix_s: Some(u64::from(new.expires_s(&seen.info))).filter(|s| *s != 0),
            length: Some(value.len() as u64),
        };
        let mut writer = Writer::admitted(self, new.key, seen.info.group, options)?;
        writer.replaces_version = Some(seen.version.clone());
        writer.caller = new.caller.cloned();
        writer.write_all(Value::Whole(value))
    }

    /// Locates the value: in memory if it is small, else in the record itself, or in the record
    /// that an earlier patch refers to.
    fn base_of(self: &Arc<Engine>, key: &[u8], seen: &Seen) -> Base {
        let from_memory = || seen.object.clone().map_or(Base::Changed, Base::MemoryOnly);
        if seen.info.length_bytes <= self.page_record_max() {
            return from_memory();
        }
        let hash = self.hash(key);
        let seq = seen.version.seq;
        let Some(place) = seen.version.place else { return self.base_of_unwritten(hash, key, seq) };
        if !self.index.contains_at(hash.get(), place) {
            // The segment was reused, or the index was full: only memory has the object.
            return from_memory();
        }
        if self.is_itself_in_memory(hash, place, seq) {
            return Base::OnDisk(Patch { base_units: place.units(), base_seq: seq.get() });
        }
        let found = self.verified_header(key, hash, place);
        let Some((header, value)) = found.filter(|(header, _)| header.sequence() == seq) else {
            return from_memory();
        };
        match header.kind {
            RecordKind::Object | RecordKind::Manifest => {
                Base::OnDisk(Patch { base_units: place.units(), base_seq: seq.get() })
            }
            RecordKind::Patch => Patch::decode(&value).map_or(Base::Changed, Base::OnDisk),
            RecordKind::Part => Base::Changed,
        }
    }

    /// Whether memory has the very record that lies at a place, and nothing that stands for it:
    /// only what is written as one has checksums of chunks.
    fn is_itself_in_memory(&self, hash: KeyHash, place: Location, seq: Sequence) -> bool {
        let shard = self.cache.resident.shard(hash);
        shard.get(hash).is_some_and(|entry| {
            let head = entry.record().head;
            let is_it = head.sequence() == seq && entry.state.location() == Some(place);
            is_it && head.is_object() && head.is_chunked()
        })
    }

    /// For a version that is not written yet: if it is a patch, the record that it refers to is on
    /// disk; any other record has no location yet.
    fn base_of_unwritten(self: &Arc<Engine>, hash: KeyHash, key: &[u8], seq: Sequence) -> Base {
        let Indirect::Found(raw, header) = self.indirect_in_memory(hash, key) else {
            return Base::NotYet;
        };
        if header.sequence() != seq {
            return Base::Changed;
        }
        let at = raw.start + header.value_range().start;
        match header.kind {
            RecordKind::Patch => {
                let value = raw.run.bytes(at, header.value_len as usize);
                Patch::decode(value).map_or(Base::Changed, Base::OnDisk)
            }
            // A manifest that is not written has no location yet.
            _ => Base::NotYet,
        }
    }
}

#[cfg(test)]
mod tests;
