//! Streamed creation: the bytes of an object, often of unknown length, come in pieces.
//!
//! A value that fits in one buffer becomes an ordinary object at commit. A longer one is written in
//! parts, one per full buffer, or a shorter one where the writer waits for memory and others may
//! wait for its own; the object is a manifest that lists them. Invariant: nothing refers to a part
//! before the commit, so an abandoned writer leaves only bytes that the ring will overwrite.
//! Threads: one writer is used by one thread at a time.

mod writing;

use crate::sync::mpsc::{Receiver, channel};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::writing::Write;
use super::create::{CreateBlocked, NewObject, ROOM_NAP, Replaces};
use super::in_place::InPlaceValue;
use super::nursery::{Due, Place, Staged, StagedExtent};
use super::value::Value;
use super::version::Version;
use crate::deferred::{Caller, Deferred};
use crate::device::submit_deferred;
use crate::engine::Engine;
use crate::error::CreateError;
use crate::format::{Manifest, ManifestPart, RecordFields, RecordKind, UNIT_BYTES};
use crate::index::Location;
use crate::ops::Commit;
use crate::policy::residency::Hint;
use crate::space::SegmentId;
use crate::stats::add;
use crate::sync::atomic::Ordering;
use crate::types::{GroupId, KeyHash, SegmentLife, Sequence};
use crate::waiting::Waiting;

/// Attributes of a streamed object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriterOptions {
    /// Metadata; can be changed until the commit.
    pub metadata: Vec<u8>,
    /// Expiry in seconds since 1970; in February 2106 at the latest.
    pub expires_unix_s: Option<u64>,
    /// Length in bytes, if known. An object that cannot be stored is then refused at the start,
    /// before it evicts others, and the writer takes no more memory than it needs. A hint: a commit
    /// stores the bytes written, be they fewer or more (a chunked response has no length at first).
    /// A caller that must not store a truncated object compares [`Writer::written_bytes`] before
    /// the commit.
    pub length: Option<u64>,
}

/// A part on its way to disk.
struct SentPart {
    location: Receiver<Result<(Location, SegmentLife), String>>,
    value_len: u32,
    seq: Sequence,
}

/// Takes an object in pieces. A writer dropped without `commit` leaves no object behind.
pub struct Writer {
    engine: Arc<Engine>,
    key: Vec<u8>,
    group: GroupId,
    metadata: Vec<u8>,
    expires_s: u32,
    /// The length declared in the options.
    expected: Option<u64>,
    /// Bytes that the admission policy knows of.
    told: u64,
    buffer: Option<InPlaceValue>,
    part_bytes: usize,
    /// Longest value that fits on the volumes.
    volumes_max: u64,
    parts: Vec<SentPart>,
    total: u64,
    /// The admission policy was asked about this writer itself, not about a create that uses it.
    asked: bool,
    /// When the commit began, if `asked`.
    committed: Option<Duration>,
    /// If set, the only version that the object may replace.
    pub(super) replaces_version: Option<Version>,
    /// The caller that waits for the operation using this writer.
    pub(super) caller: Option<Caller>,
    /// A write failed, was dropped before its end, or is not done: the number of its bytes taken is
    /// unknown.
    torn: bool,
    /// The writer's end has been counted: it was committed, or refused for a reason that has a
    /// counter.
    counted: bool,
    /// A refusal has removed the version to be replaced: what stands now is another's.
    removed: bool,
}

/// First buffer of a value that takes memory as it comes, in bytes.
const FIRST_ROOM_BYTES: u64 = 64 << 10;
/// Beyond one part in this many of the memory, writers take memory as their values come, also where
/// they know how long these will be: many slow ones would hold all of it for what is yet to come.
const AHEAD_SHARE: u64 = 4;

pub(crate) fn expires_s(unix_s: Option<u64>) -> u32 {
    // Zero on disk means never. Times beyond 32 bits become the greatest that 32 bits hold.
    unix_s.map_or(0, |s| u32::try_from(s.max(1)).unwrap_or(u32::MAX))
}

impl Writer {
    /// A writer for a program: asks the admission policy.
    pub(crate) fn new(
        engine: &Arc<Engine>,
        key: &[u8],
        group: GroupId,
        options: WriterOptions,
    ) -> Result<Writer, CreateError> {
        let writer = Writer::admitted(engine, key, group, options);
        let mut writer = engine.or_removed(key, None, writer)?;
        let admitted = engine.admit(key, group, &writer.metadata, writer.expected);
        if let Err(refused) = engine.or_removed(key, None, admitted) {
            writer.counted = true;
            return Err(refused);
        }
        writer.asked = true;
        Ok(writer)
    }

    /// A writer for an object about which the admission policy has been asked already.
    pub(crate) fn admitted(
        engine: &Arc<Engine>,
        key: &[u8],
        group: GroupId,
        options: WriterOptions,
    ) -> Result<Writer, CreateError> {
        engine.check_key(key)?;
        // It may change before the commit, which checks again; but nothing is written in vain.
        engine.check_metadata(&options.metadata)?;
        if engine.is_closed() {
            return Err(CreateError::Closed);
        }
        // Before lengths are compared: without volumes there is room for none.
        engine.check_in_service()?;
        let (length, part_bytes) = (options.length.unwrap_or(0), engine.part_bytes(key.len()));
        let listed_max = engine.listed_max(key.len(), options.metadata.len());
        let volumes_max = engine.volumes_max(key.len());
        // `part_bytes` is 0 only for a key of tens of kilobytes on the smallest segments.
        if length > listed_max.min(volumes_max) || part_bytes == 0 {
            return Err(engine.too_long(length, listed_max, volumes_max));
        }
        Ok(Writer {
            engine: Arc::clone(engine),
            key: key.to_vec(),
            group,
            metadata: options.metadata,
            expires_s: expires_s(options.expires_unix_s),
            expected: options.length,
            told: options.length.unwrap_or(0),
            buffer: None,
            part_bytes: part_bytes as usize,
            volumes_max,
            parts: Vec::new(),
            total: 0,
            asked: false,
            committed: None,
            replaces_version: None,
            caller: None,
            torn: false,
            counted: false,
            removed: false,
        })
    }

    /// Writes the whole value and commits.
    pub(super) fn write_all(mut self, value: Value<'_>) -> Result<(), CreateError> {
        for piece in value.pieces() {
            self.write(piece).wait()?;
            self.caller = self.caller.take().map(Caller::waiting_anew);
        }
        self.commit().wait()
    }

    /// Refuses a length that cannot be stored, and any once no volume is in service.
    fn check_length(&mut self, length: u64) -> Result<(), CreateError> {
        if let Err(gone) = self.engine.check_in_service() {
            self.counted = true;
            return Err(gone);
        }
        let listed_max = self.engine.listed_max(self.key.len(), self.metadata.len());
        if length <= listed_max.min(self.volumes_max) {
            return Ok(());
        }
        self.counted = true;
        Err(self.engine.too_long(length, listed_max, self.volumes_max))
    }

    /// Bytes taken so far.
    pub fn written_bytes(&self) -> u64 {
        self.total
    }

    /// Replaces the metadata that will be stored.
    pub fn set_metadata(&mut self, metadata: Vec<u8>) {
        self.metadata = metadata;
    }

    /// Replaces the expiry that will be stored, in seconds since 1970, at most 2^32 - 1.
    pub fn set_expires(&mut self, unix_s: Option<u64>) {
        self.expires_s = expires_s(unix_s);
    }

    /// Takes the next bytes of the value.
    ///
    /// # Errors
    /// The object grows too large, no memory is released in time, or the store is closed. If the
    /// object is refused, the version to be replaced is removed, as by a refused
    /// [`Store::create`](crate::Store::create). After any error, and after a write that was
    /// begun (polled) and dropped before it was done, the number of bytes taken is unknown: the
    /// writer is unusable, and every further write and the commit fail with [`CreateError::Torn`].
    /// The first of these removes that version, too, unless a refusal has; a drop of the writer
    /// leaves it in place.
    pub fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Write<'a> {
        Write::of(self, bytes)
    }

    /// Makes the object visible, replacing an older version. Without waiting if possible. If the
    /// operation is dropped before it is done, the object has become visible by then or never does
    /// ([Cancellation](crate::Store#cancellation)).
    ///
    /// # Errors
    /// A part could not be written, or was overwritten by concurrent writes; or no memory was
    /// released in time. [`CreateError::Torn`] if an earlier write failed or was dropped. On an
    /// error the version to be replaced is removed, as by a refused
    /// [`Store::create`](crate::Store::create), unless a write of this writer did so when it was
    /// refused; a writer that is dropped without a commit, and of which no write was refused,
    /// leaves that version in place.
    pub fn commit(mut self) -> Commit {
        if self.engine.process.is_another() {
            // Its memory is the parent's, and to give it back takes a lock.
            std::mem::forget(self);
            return Commit(Deferred::ready(Err(CreateError::Closed)));
        }
        if self.torn {
            // The drop of the writer counts it as abandoned.
            return self.ending(Err(CreateError::Torn), Writer::replaced_or_removed);
        }
        self.committed = self.asked.then(|| self.engine.clock.monotonic());
        match self.store_now() {
            Some(stored) => self.ending(stored, Writer::end),
            None => {
                let engine = Arc::clone(&self.engine);
                Commit(Deferred::writing(&engine, move |caller| {
                    self.caller.get_or_insert_with(|| caller.clone());
                    let stored = self.store();
                    self.end(stored)
                }))
            }
        }
    }

    /// A commit with this outcome: at once, unless the remove of what it was to replace would block
    /// the caller.
    fn ending(
        mut self,
        stored: Result<(), CreateError>,
        end: fn(&mut Writer, Result<(), CreateError>) -> Result<(), CreateError>,
    ) -> Commit {
        let removes =
            self.asked && !self.removed && stored.as_ref().is_err_and(CreateError::outdates);
        if !removes || !self.engine.remove_blocks(&self.key) {
            return Commit(Deferred::ready(end(&mut self, stored)));
        }
        let engine = Arc::clone(&self.engine);
        Commit(Deferred::writing(&engine, move |caller| {
            self.caller.get_or_insert_with(|| caller.clone());
            end(&mut self, stored)
        }))
    }

    /// Copies as much as possible without waiting; true when all of `bytes` was taken. Gives way to
    /// others where that `is_stuck` for want of memory.
    fn push(
        &mut self,
        bytes: &mut &[u8],
        is_stuck: bool,
        place: &mut Place,
    ) -> Result<bool, CreateError> {
        self.check_length(self.total + bytes.len() as u64)?;
        while !bytes.is_empty() {
            if self.filled() == self.part_bytes && !self.send_part(place) {
                return Ok(false);
            }
            let is_full = self.buffer.as_ref().is_none_or(InPlaceValue::is_full);
            if is_full && !self.make_room() {
                if is_stuck && self.gives_way() && self.send_part(place) {
                    continue;
                }
                return Ok(false);
            }
            let Some(buffer) = &mut self.buffer else { return Ok(false) };
            let n = buffer.push(bytes);
            self.total += n as u64;
            *bytes = &bytes[n..];
        }
        Ok(true)
    }

    /// Whether what has come so far may be sent as a part, though it is short: a writer that waits
    /// for more memory should hold none, as others may wait for that. Not where the list of parts
    /// could become too short for the longest value.
    fn gives_way(&self) -> bool {
        let (key, metadata) = (self.key.len(), self.metadata.len());
        let parts_left =
            self.engine.parts_max(key, metadata).saturating_sub(self.parts.len() as u64 + 1);
        let longest = self.volumes_max.min(self.engine.listed_max(key, metadata));
        self.filled() > 0 && self.total + parts_left * self.part_bytes as u64 >= longest
    }

    fn filled(&self) -> usize {
        self.buffer.as_ref().map_or(0, InPlaceValue::len)
    }

    /// Takes the place of the buffer, which is returned. Counts the memory that writers hold.
    fn hold(&mut self, buffer: Option<InPlaceValue>) -> Option<InPlaceValue> {
        let bytes = |held: &Option<InPlaceValue>| held.as_ref().map_or(0, InPlaceValue::held_bytes);
        let before = std::mem::replace(&mut self.buffer, buffer);
        let held_bytes = &self.engine.writers_held_bytes;
        held_bytes.fetch_add(bytes(&self.buffer), Ordering::Relaxed);
        held_bytes.fetch_sub(bytes(&before), Ordering::Relaxed);
        before
    }

    /// Bytes of the next buffer: for the rest of the declared length; for a full part if more than
    /// that has come; for twice the bytes buffered if no length was declared, or writers hold much
    /// memory, so that many of them do not hold a full part each.
    fn next_room(&self) -> u64 {
        let (filled, part) = (self.filled() as u64, self.part_bytes as u64);
        let grown = (2 * filled).max(FIRST_ROOM_BYTES).min(part);
        let Some(all) = self.expected else { return grown };
        let left = (filled + all.saturating_sub(self.total)).min(part);
        let held_bytes = self.engine.writers_held_bytes.load(Ordering::Relaxed);
        let held_max = self.engine.config.memory.bytes() / AHEAD_SHARE;
        match left {
            left if left == filled => part,
            left if held_bytes + left > held_max => left.min(grown),
            left => left,
        }
    }

    /// Takes a buffer, or a longer one. False if the caller must wait for memory.
    fn make_room(&mut self) -> bool {
        self.engine.stir();
        let room = self.next_room();
        // A single record has the metadata before its value, a part has none.
        let one_record_max = self.engine.one_record_max(self.key.len(), self.metadata.len());
        let is_all = self.parts.is_empty() && self.expected == Some(room) && room <= one_record_max;
        let metadata = if is_all { self.metadata.len().min(self.engine.metadata_max()) } else { 0 };
        let header = self.part_fields(KeyHash::from_raw(0), Sequence::ZERO).header(
            self.key.len(),
            metadata,
            room,
        );
        let header = header.expect("key and metadata were checked, a part is far below the limit");
        let Some(run) = self.engine.cache.take(InPlaceValue::run_bytes(&header), Hint::Loved)
        else {
            return false;
        };
        let mut in_place = InPlaceValue::new(run, &header);
        if let Some(before) = &self.buffer {
            in_place.push(before.value());
        }
        drop(self.hold(Some(in_place)));
        true
    }

    fn part_fields(&self, hash: KeyHash, seq: Sequence) -> RecordFields {
        RecordFields {
            nonce: self.engine.space.nonce,
            kind: RecordKind::Part,
            chunked: true,
            hash: hash.get(),
            seq: seq.get(),
            group: self.group.get(),
            expires_s: 0,
        }
    }

    /// Hands the buffer to the flusher as a part; false if that must wait.
    fn send_part(&mut self, place: &mut Place) -> bool {
        if self.engine.nursery.is_full(self.part_bytes as u64, place) {
            return false;
        }
        let Some(mut in_place) = self.hold(None) else { return true };
        let engine = &self.engine;
        let (hash, seq) = (engine.hash(&self.key), engine.new_seq());
        let fields = self.part_fields(hash, seq);
        let header = fields
            .header(self.key.len(), 0, in_place.len() as u64)
            .expect("a part's key and length are within the format's limits");
        in_place.move_to(&header);
        in_place.finish(&fields, &self.key, &[]);
        let value_len = in_place.len() as u32;
        let (sender, location) = channel();
        let staged = Staged {
            run: in_place.into_run(),
            offset: 0,
            stored_bytes: header.stored_bytes() as u32,
            reinserted: false,
            freq: 0,
            beside_older: false,
            may_wait: false,
            due: Due::NEVER,
            round: 0,
            came_at: 0,
        };
        // If the store was closed in the meantime, the part is not queued and the commit fails,
        // since its location never arrives.
        let extent = StagedExtent { staged, part: Some(sender), group: self.group };
        let _ = engine.nursery.push_extent(extent, seq);
        engine.work_inline_if_due();
        self.parts.push(SentPart { location, value_len, seq });
        // Now, since it is written also if nobody ever commits the object.
        self.engine.written_with(header.stored_bytes() - u64::from(value_len));
        self.tell_written();
        true
    }

    /// What waits, as long as a wait that began at `since` may, until this writer can go on: for
    /// its turn to send a full part, whose place in line is given back, or for a moment where it
    /// waits for memory. The place is taken by the thread that waits, since a future may wait for a
    /// thread first.
    fn wait_turn(
        &self,
        since: Instant,
        mut place: Place,
    ) -> impl FnOnce(Option<&Caller>) -> Place + Send + 'static {
        let (engine, part_bytes) = (Arc::clone(&self.engine), self.part_bytes as u64);
        let (of_writer, is_full_part) = (self.caller.clone(), self.filled() == self.part_bytes);
        move |caller| {
            if is_full_part {
                engine.nursery.stand_in_line(part_bytes, &mut place);
            }
            loop {
                engine.wait_room(ROOM_NAP);
                let is_gone = caller.or(of_writer.as_ref()).is_some_and(Caller::is_gone);
                let is_over = since.elapsed() >= engine.config.creates_wait() || engine.is_closed();
                let has_turn = !is_full_part || engine.nursery.has_turn(part_bytes, &place);
                if is_gone || is_over || has_turn {
                    return place;
                }
            }
        }
    }

    /// Tells the admission policy of the bytes that were not declared.
    fn tell_written(&mut self) {
        self.engine.written_beside(self.total.saturating_sub(self.told));
        self.told = self.told.max(self.total);
    }

    fn end(&mut self, stored: Result<(), CreateError>) -> Result<(), CreateError> {
        if stored.is_ok() {
            self.tell_written();
        }
        let stored = match self.committed {
            Some(started) => self.engine.timed(started, stored),
            None => stored,
        };
        let stored = self.replaced_or_removed(stored);
        // Every other outcome has a counter of its own.
        self.counted = stored != Err(CreateError::Closed);
        stored
    }

    /// For a writer of a program, a refusal removes the version to be replaced: by a write already,
    /// since a program that gives up then drops the writer. Once, or a program that goes on with a
    /// refused writer would remove what others have stored since. Other users of writers do that
    /// themselves.
    fn replaced_or_removed(&mut self, stored: Result<(), CreateError>) -> Result<(), CreateError> {
        if !self.asked || self.removed {
            return stored;
        }
        self.removed = stored.as_ref().is_err_and(CreateError::outdates);
        self.engine.or_removed(&self.key, self.caller.as_ref(), stored)
    }

    fn check(&mut self) -> Result<(), CreateError> {
        self.engine.check_metadata(&self.metadata)?;
        // The metadata may have grown since the last write.
        self.check_length(self.total)
    }

    /// True if the object fits in one record.
    fn is_one_record(&self) -> bool {
        let max = self.engine.one_record_max(self.key.len(), self.metadata.len());
        self.parts.is_empty() && self.total <= max
    }

    /// Stores the object if no waiting is needed.
    fn store_now(&mut self) -> Option<Result<(), CreateError>> {
        if let Err(error) = self.check() {
            return Some(Err(error));
        }
        if !self.is_one_record() {
            return None;
        }
        match self.engine.create_unblocked(&self.whole_object()) {
            Ok(()) => Some(Ok(())),
            Err(CreateBlocked::Failed(error)) => Some(Err(error)),
            Err(CreateBlocked::Outdated) => Some(Err(CreateError::Superseded)),
            Err(CreateBlocked::MustWait) => None,
        }
    }

    fn is_given_up(&self) -> bool {
        self.caller.as_ref().is_some_and(Caller::is_gone)
    }

    fn store(&mut self) -> Result<(), CreateError> {
        let engine = Arc::clone(&self.engine);
        if self.is_one_record()
            && engine.create_unless(&self.whole_object(), || self.gives_way())?
        {
            return Ok(());
        }
        let since = self.caller.as_ref().map_or_else(Instant::now, Caller::since);
        let (mut waiting, mut place) = (Waiting::default(), Place::default());
        while self.filled() > 0 && !self.send_part(&mut place) {
            engine.nursery.stand_in_line(self.part_bytes as u64, &mut place);
            if self.is_given_up() {
                return Err(CreateError::Closed);
            }
            // Unlike elsewhere, `when_memory_full` is not consulted: waiting writes are in the way
            // here, not readers.
            if since.elapsed() >= engine.config.creates_wait() {
                add(&engine.counters.drops_memory_full, 1);
                return Err(CreateError::MemoryFull);
            }
            waiting.begin(&engine.counters.writer_waits);
            engine.wait_room(ROOM_NAP);
        }
        let manifest = self.manifest()?;
        // Writing the parts was no wait for memory.
        self.caller = self.caller.take().map(Caller::waiting_anew);
        engine.create_waiting(&self.object(RecordKind::Manifest, &manifest))
    }

    fn whole_object(&self) -> NewObject<'_> {
        let value = self.buffer.as_ref().map_or(&[][..], InPlaceValue::value);
        NewObject { in_place: self.buffer.as_ref(), ..self.object(RecordKind::Object, value) }
    }

    fn object<'a>(&'a self, kind: RecordKind, value: &'a [u8]) -> NewObject<'a> {
        NewObject {
            kind,
            metadata: &self.metadata,
            value_bytes: self.total,
            expires_s: self.expires_s,
            replaces: self.replaces_version.as_ref().map_or(Replaces::Anything, Replaces::Version),
            caller: self.caller.as_ref(),
            ..NewObject::of(&self.key, self.group, Value::Whole(value))
        }
    }

    /// Waits for all parts to be written and lists them. Fails if concurrent writes have made the
    /// ring reuse the first parts in the meantime: the manifest would stand for an object that no
    /// longer exists.
    fn manifest(&mut self) -> Result<Vec<u8>, CreateError> {
        let write_error = |reason: String| CreateError::Write { reason };
        let mut parts = Vec::with_capacity(self.parts.len());
        submit_deferred();
        for sent in self.parts.drain(..) {
            let (location, life) =
                sent.location.recv().map_err(|_| CreateError::Closed)?.map_err(write_error)?;
            let (segment, offset) = self.engine.space.split(location);
            parts.push(ManifestPart {
                segment_seq: life.get(),
                segment_id: segment.0,
                offset_units: (offset / UNIT_BYTES) as u32,
                value_len: sent.value_len,
                part_seq: sent.seq.low_half(),
            });
        }
        let ring = &self.engine.ring;
        if parts.iter().any(|p| ring.life(SegmentId(p.segment_id)) != p.life()) {
            add(&self.engine.counters.drops_overwritten, 1);
            return Err(CreateError::Overwritten { length: self.total });
        }
        Manifest { total_len: self.total, parts }.encode().map_err(|e| write_error(e.to_string()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.hold(None));
        if !self.counted {
            add(&self.engine.counters.drops_abandoned, 1);
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("group", &self.group)
            .field("expected", &self.expected)
            .finish_non_exhaustive()
    }
}
