//! `Store`: the public handle, and the operations that are short enough to live here.
//!
//! Invariants: a handle is cheap to clone; dropping the last one closes the store, on this thread
//! unless it completes I/O; guards and readers may outlive it. Threads: any number, sync or async.

mod awaited;
mod info;
mod shared;

pub use awaited::Awaited;
pub use info::{StoreInfo, VolumeInfo};

use self::awaited::checked_prefix;
use self::shared::Shared;
use crate::sync::Arc;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;

use crate::config::Config;
use crate::deferred::Deferred;
use crate::device::{Device, UndoOnDrop};
use crate::durable::progress::RecoveryProgress;
use crate::engine::Engine;
use crate::entries::Entries;
use crate::error::{CreateError, OpenError, PurgeError, SyncError};
#[cfg(doc)]
use crate::error::{MetadataError, ReadError};
use crate::format::JournalOp;
use crate::group::GroupStats;
use crate::object::{ObjectInfo, ObjectRange};
use crate::open::{
    OpenDevices, RawVolume, check_sizes, open_devices, start, validate, validate_paths,
};
use crate::ops::{Create, Length, Lookup, OpenReader, Prefetch, Read, ReadRange, SetMetadata};
use crate::policy::residency::Hint;
use crate::read::disk::Source;
use crate::read::stream::Reader;
use crate::stats::Stats;
use crate::types::{ByteSize, GroupId};
use crate::types::{Clock, SystemClock};
use crate::write::create::NewObject;
use crate::write::metadata::NewMetadata;
use crate::write::operation::{create_operation, refused};
use crate::write::value::Value;
use crate::write::writer::{Writer, WriterOptions, expires_s};

/// Optional attributes of a new object.
#[derive(Debug, Clone, Copy, Default)]
pub struct CreateOptions<'a> {
    /// Metadata, which can be replaced later. Up to 1 MiB, or less on small segments or with little
    /// memory.
    pub metadata: &'a [u8],
    /// Expiry in seconds since 1970: from then on the object is a miss. At most 2^32 - 1 (February
    /// 2106); later times mean that.
    pub expires_unix_s: Option<u64>,
}

/// An open store.
///
/// # Handles and threads
/// A clone is another handle on the same store, and cheap. Any number of threads and tasks may use
/// the store at once. Dropping the last handle closes the store as [`Store::close`] does, but
/// ignores errors. Objects read ([`Object`](crate::Object)) may outlive the store. A handle in a
/// `static` is never dropped: without [`Store::close`] the program's end is like a crash for what
/// was created last.
///
/// # Blocking
/// An operation that is returned as a future blocks no thread when awaited, on any executor;
/// `.wait()` blocks the calling thread. The following methods block the calling thread:
/// [`Store::open`], [`Store::wait_recovered`], [`Store::sync`], [`Store::sync_removes`],
/// [`Store::checkpoint`], [`Store::close`], the drop of the last handle and each step of
/// [`Store::entries`] for as long as the disk takes; [`Store::remove`] and the purges while the
/// journal is full, and with [`Durability::Synced`](crate::Durability::Synced) for a sync of the
/// disk. So does, for the version that it was to replace, a [`Store::writer`] or a write that is
/// refused. [`Store::awaited`] has removes, purges, syncs and checkpoints as futures; an
/// asynchronous program calls the others on a thread that may block.
///
/// # Wakers
/// The wakers of those who await are called, and dropped, on threads of the store, among them those
/// that complete its I/O. None of the methods above may be called there: such a call would wait for
/// itself, for ever. The last handle may be dropped there (in a task that its waker keeps alive):
/// the store is then closed by a thread of its own, a little after the drop. A waker that panics
/// harms nobody else: the panic ends there, and the panic hook has seen it.
///
/// # Processes
/// In a child of `fork`, the parent's store is closed: operations that can fail report that,
/// nothing is there ([`Store::may_contain`]), hints and [`Store::drop_memory`] do nothing,
/// statistics are empty, and dropping the handle does nothing. Objects that were read before
/// ([`Object`](crate::Object)) can still be read and dropped there. If the parent is killed, the
/// child keeps the volumes locked until it ends or executes another program. The
/// store's threads block all of the process's signals except those of their own faults (and
/// `SIGPROF`).
///
/// # Cancellation
/// An operation that needs no waiting, such as most creates, has taken effect when the call returns
/// it ([`Create::is_ready`]), and a drop undoes nothing. Another that is dropped before it was
/// polled or waited for does nothing. One that is dropped while a thread of the store works on it
/// (a time-out, an aborted task) has taken effect before the drop, or never does. A dropped
/// [`Create`], [`Commit`](crate::Commit) or [`SetMetadata`] therefore never overrides its caller's
/// next operation on the same key, and never survives a remove or a purge made after the drop. The
/// store does not tell whether it took effect: a caller that must know reads, or creates again. So
/// it is with a dropped [`Remove`](crate::Remove) or [`Purge`](crate::Purge). A
/// `Create` or `Commit` without effect counts as abandoned. A dropped read wastes only the I/O
/// already begun.
#[derive(Clone)]
pub struct Store(Arc<Shared>);

impl Store {
    /// Opens a store, creating it if it does not exist. Blocks until the store can serve; objects
    /// of an earlier life are recovered in the background (see [`Store::recovery`]).
    ///
    /// # Errors
    /// See [`OpenError`]; on an error, nothing has been changed.
    pub fn open(config: Config) -> Result<Store, OpenError> {
        validate(&config)?;
        validate_paths(&config)?;
        let opened = open_devices(&config)?;
        Store::start(config, opened, Arc::new(SystemClock::new()))
    }

    /// Opens a store on the caller's devices and clock: for tests and simulation. `config.volumes`
    /// only supplies the names.
    ///
    /// # Errors
    /// As for [`Store::open`].
    pub fn open_on(
        config: Config,
        devices: Vec<Arc<dyn Device>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Store, OpenError> {
        validate(&config)?;
        let volumes: Vec<RawVolume> = devices
            .into_iter()
            .map(|device| RawVolume {
                path: PathBuf::from(&device.info().name),
                device,
                fresh: false,
                declared_bytes: None,
                undo: None,
                missing: None,
            })
            .collect();
        let opened = OpenDevices { volumes, warnings: Vec::new(), allocated: None };
        Store::start(config, opened, clock)
    }

    /// Checks that [`Store::open_on`] could create a new store on devices of these sizes: that the
    /// settings are within their limits and consistent. Opens nothing and allocates no memory.
    ///
    /// # Errors
    /// Those of opening.
    pub fn check_sizes(config: &Config, device_bytes: &[u64]) -> Result<(), OpenError> {
        check_sizes(config, device_bytes)
    }

    fn start(
        config: Config,
        opened: OpenDevices,
        clock: Arc<dyn Clock>,
    ) -> Result<Store, OpenError> {
        let OpenDevices { mut volumes, warnings, allocated } = opened;
        let made: Vec<_> = volumes.iter_mut().filter_map(|volume| volume.undo.take()).collect();
        let (engine, threads) = start(config, volumes, warnings, clock, allocated)?;
        made.into_iter().for_each(UndoOnDrop::keep);
        engine.recovery.wait_done_for(engine.config.open_wait);
        Ok(Store(Arc::new(Shared::new(engine, threads))))
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.0.engine
    }

    /// Stores an object, replacing one with the same key at once and for every later reader. The
    /// bytes are copied before this returns: where the object will lie, or, if the operation must
    /// wait or the value is too long for one record (an eighth of [`Config::memory`] or half a
    /// segment), to a buffer of the operation's own. That is beside `memory`, until the operation
    /// is done or dropped: a program limits how many it begins, and streams long values
    /// ([`Store::writer`]). [`Store::create_bytes`] needs no such buffer.
    ///
    /// A key has 1 to 65,536 bytes. When the operation is done, the object is in memory; it is
    /// written to disk soon after (see [`Store::sync`]).
    ///
    /// If the object is refused (too large, not admitted, no memory in time, or no volume left),
    /// the version that it was to replace is out of date and is removed. A program that ignores
    /// errors of its cache then does not serve old versions.
    ///
    /// For an operation dropped before it is done, see [Cancellation](Store#cancellation).
    ///
    /// # Errors
    /// [`CreateError`]: the key, value or metadata is outside the limits; the object is not
    /// admitted; no memory was released within [`Config::create_wait`]; a large object could not be
    /// written; every volume is out of service; the store is closed.
    pub fn create(&self, key: &[u8], group: GroupId, value: &[u8]) -> Create {
        self.create_with(key, group, value, CreateOptions::default())
    }

    /// As [`Store::create`], with metadata and expiry.
    ///
    /// # Errors
    /// As for [`Store::create`].
    pub fn create_with(
        &self,
        key: &[u8],
        group: GroupId,
        value: &[u8],
        options: CreateOptions<'_>,
    ) -> Create {
        self.create_value(key, group, Value::Whole(value), self.value_max(), options)
    }

    /// As [`Store::create_with`], with a value in several pieces, such as those read from a
    /// network. They are joined in the memory where the object will lie, which saves a copy. Where
    /// [`Store::create`] copies to a buffer, so does this; [`Store::create_bytes`] does not.
    ///
    /// # Errors
    /// As for [`Store::create`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let mut config = damelo::Config::new(dir.path().join("cache"), "64MiB".parse()?);
    /// # config.memory = "8MiB".parse()?;
    /// # let store = damelo::Store::open(config)?;
    /// let pieces: [&[u8]; 2] = [b"a body ", b"in two pieces"];
    /// store.create_pieces(b"key", damelo::GroupId::of("site"), &pieces, Default::default()).wait()?;
    /// assert_eq!(&*store.read(b"key").wait()?.unwrap(), b"a body in two pieces");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn create_pieces(
        &self,
        key: &[u8],
        group: GroupId,
        pieces: &[&[u8]],
        options: CreateOptions<'_>,
    ) -> Create {
        self.create_value(key, group, Value::Pieces(pieces), self.value_max(), options)
    }

    /// As [`Store::create_pieces`], with pieces that can be shared: an operation that must wait, or
    /// whose value is too long for one record, holds them instead of a copy, until it is done or
    /// dropped. So the call takes no time for a long value. The pieces of a guard
    /// ([`Object`](crate::Object)) hold memory of the store for which the operation may wait.
    ///
    /// # Errors
    /// As for [`Store::create`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let mut config = damelo::Config::new(dir.path().join("cache"), "64MiB".parse()?);
    /// # config.memory = "8MiB".parse()?;
    /// # let store = damelo::Store::open(config)?;
    /// let body = bytes::Bytes::from(vec![7; 5 << 20]);
    /// store.create_bytes(b"key", damelo::GroupId::of("site"), &[body], Default::default()).wait()?;
    /// assert_eq!(store.length(b"key").wait()?, Some(5 << 20));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn create_bytes(
        &self,
        key: &[u8],
        group: GroupId,
        pieces: &[Bytes],
        options: CreateOptions<'_>,
    ) -> Create {
        self.create_value(key, group, Value::Shared(pieces), self.value_max(), options)
    }

    /// As [`Store::create_bytes`], but refuses a value that [`Store::read`] could not return.
    pub(crate) fn create_readable(
        &self,
        key: &[u8],
        group: GroupId,
        value: &Bytes,
        options: CreateOptions<'_>,
    ) -> Create {
        let max = self.value_max().min(self.engine().piece_max());
        self.create_value(key, group, Value::Shared(std::slice::from_ref(value)), max, options)
    }

    fn value_max(&self) -> u64 {
        self.engine().config.object_bytes_max.bytes()
    }

    fn create_value(
        &self,
        key: &[u8],
        group: GroupId,
        value: Value<'_>,
        max: u64,
        options: CreateOptions<'_>,
    ) -> Create {
        let engine = self.engine();
        if engine.is_closed() {
            return Create(Deferred::ready(Err(CreateError::Closed)));
        }
        if value.len() as u64 > max {
            return Create(refused(engine, key, engine.too_large(value.len() as u64, max)));
        }
        let (metadata, expires_s) = (options.metadata, expires_s(options.expires_unix_s));
        let new = NewObject { metadata, expires_s, ..NewObject::of(key, group, value) };
        Create(create_operation(engine, &new))
    }

    /// Starts a streamed create: the bytes come in pieces.
    ///
    /// # Errors
    /// The key, the metadata or the declared length is outside the limits, the object is not
    /// admitted, or no volume is in service. The version to be replaced is then removed, as by a
    /// refused [`Store::create`].
    pub fn writer(
        &self,
        key: &[u8],
        group: GroupId,
        options: WriterOptions,
    ) -> Result<Writer, CreateError> {
        Writer::new(self.engine(), key, group, options)
    }

    /// Reads an object as one piece. From memory: no system call, no allocation. From disk: one
    /// read, or several where the object lies in parts, or its metadata was replaced on disk.
    /// `Ok(None)`: a miss.
    ///
    /// # Errors
    /// [`ReadError::TooLargeForMemory`] if the object takes more than an eighth of
    /// [`Config::memory`], or than 2 GiB: use [`Store::reader`] or [`Store::read_range`].
    /// [`ReadError::MemoryFull`] if no memory was released within [`Config::memory_wait`].
    /// [`ReadError::Unanswered`] if the volume does not answer. [`ReadError::Closed`].
    #[inline]
    pub fn read(&self, key: &[u8]) -> Read {
        Read(self.engine().read_operation(key))
    }

    /// Reads bytes `range` of an object, clamped to its length. `Ok(None)`: a miss, also where some
    /// of these bytes were overwritten or damaged.
    ///
    /// # Errors
    /// As for [`Store::read`], by the length of the range.
    pub fn read_range(&self, key: &[u8], range: Range<u64>) -> ReadRange {
        let (of_memory, of_disk) = (range.clone(), range.clone());
        ReadRange(self.engine().reading_of(
            key,
            |object| ObjectRange::of_object(object, &of_memory),
            |kept| self.engine().range_operation(kept, key, of_disk),
            |engine, key| engine.read_range_blocking(key, range, None),
        ))
    }

    /// Starts a streamed read, for objects of any size. `Ok(None)`: a miss.
    ///
    /// # Errors
    /// [`ReadError::MemoryFull`], [`ReadError::Unanswered`] and [`ReadError::Closed`], as for
    /// [`Store::read`].
    pub fn reader(&self, key: &[u8]) -> OpenReader {
        OpenReader(self.engine().reading_of(
            key,
            |object| Reader::of(self.engine(), Source::Memory(object)),
            |kept| self.engine().told(kept, |large| Reader::of(self.engine(), Source::Disk(large))),
            Reader::open,
        ))
    }

    /// Group, length, metadata and expiry of an object; the value of a large object is not read.
    /// `Ok(None)`: a miss.
    ///
    /// # Errors
    /// [`ReadError::MemoryFull`], [`ReadError::Unanswered`] and [`ReadError::Closed`], as for
    /// [`Store::read`].
    pub fn lookup(&self, key: &[u8]) -> Lookup {
        Lookup(self.engine().reading_of(
            key,
            |object| ObjectInfo::of(&object),
            |kept| self.engine().told(kept, |large| large.info.clone()),
            Engine::lookup,
        ))
    }

    /// Length of an object's value in bytes. `Ok(None)`: a miss.
    ///
    /// # Errors
    /// As for [`Store::lookup`].
    pub fn length(&self, key: &[u8]) -> Length {
        Length(self.engine().reading_of(
            key,
            |object| object.len() as u64,
            |kept| self.engine().told(kept, |large| large.info.length_bytes),
            |engine, key| Ok(engine.lookup(key)?.map(|info| info.length_bytes)),
        ))
    }

    /// False if a read would certainly find nothing. No I/O. The answer is wrongly true for less
    /// than one absent key in a thousand. What lies on a volume out of service counts as not there,
    /// and it may come back with its volume; while the store recovers, so does what is not loaded
    /// yet. As for reads: a program that must be rid of an object removes it all the same, which
    /// holds for what comes back or is loaded later, too. Of a closed store it tells what was there
    /// when it was closed, though reads fail with [`ReadError::Closed`].
    pub fn may_contain(&self, key: &[u8]) -> bool {
        if self.is_forked() {
            return false;
        }
        let hash = self.engine().hash(key);
        let is_in_memory = || self.engine().cache.resident.shard(hash).contains(hash);
        // The newest decides.
        let is_on_disk = || {
            let candidates = self.engine().ordered_candidates(hash);
            candidates.first().is_some_and(|newest| {
                let space = &self.engine().space;
                space.is_in_service(space.split(newest.location).0)
            })
        };
        // What is replaced or moved meanwhile enters memory before its older record leaves the
        // index.
        is_in_memory() || is_on_disk() || is_in_memory()
    }

    /// False if the index knows no record of the object on disk: it may be in memory, or wait to be
    /// written. What lies on a volume out of service is known. While the store recovers, what is
    /// not loaded yet counts as not there. No I/O.
    /// Wrongly true as rarely as [`Store::may_contain`].
    pub fn may_be_on_disk(&self, key: &[u8]) -> bool {
        !self.is_forked() && {
            let hash = self.engine().hash(key);
            !self.engine().ordered_candidates(hash).is_empty()
        }
    }

    /// Replaces an object's metadata without rewriting the value of a large object. `Ok(false)`:
    /// the object does not exist, or was removed, purged or evicted in the meantime.
    ///
    /// Concurrent operations on the same key take precedence: if the object is stored anew with
    /// another value, it keeps the metadata stored with that value, and this fails with
    /// [`MetadataError::Superseded`]. Rarely, the same error is
    /// returned because the store itself moved a large object at that moment; the caller may try
    /// again. For an operation dropped before it is done, see
    /// [Cancellation](Store#cancellation).
    ///
    /// # Errors
    /// [`MetadataError`]: the object was stored anew meanwhile, is still on its way to disk, or is
    /// on a volume that does not answer; or it could not be stored with them, as by
    /// [`Store::create`]: the metadata are too long, no memory was released in time, every volume
    /// is out of service, or the store is closed.
    pub fn set_metadata(&self, key: &[u8], metadata: &[u8]) -> SetMetadata {
        self.renew(NewMetadata {
            key,
            metadata,
            expires_s: None,
            may_come_back: false,
            caller: None,
        })
    }

    /// As [`Store::set_metadata`], for metadata of which an older state is not wrong after a crash,
    /// as what a cache knows of a page before it validates it again. The new is what readers get at
    /// once; until it is written, a crash brings back the object with the metadata that it has on
    /// disk, where [`Store::set_metadata`] leaves nothing. Nothing is journalled, so that even what
    /// is written is found only once it has been loaded: while the store recovers from a crash, the
    /// state of the last checkpoint may be read. The metadata of a small object, which is written
    /// as a whole, is written once in twelve [flush periods](Config::flush_period), however often
    /// it is set; by [`Store::sync`], [`Store::checkpoint`] and [`Store::close`] before that.
    ///
    /// # Errors
    /// As for [`Store::set_metadata`].
    pub fn refresh_metadata(&self, key: &[u8], metadata: &[u8]) -> SetMetadata {
        self.renew(NewMetadata {
            key,
            metadata,
            expires_s: None,
            may_come_back: true,
            caller: None,
        })
    }

    /// As [`Store::set_metadata`], with a new expiry (`None`: never) in place of the object's own.
    /// A revalidated object thus need not be written again.
    ///
    /// # Errors
    /// As for [`Store::set_metadata`].
    pub fn set_metadata_with(
        &self,
        key: &[u8],
        metadata: &[u8],
        expires_unix_s: Option<u64>,
    ) -> SetMetadata {
        let expires_s = Some(expires_s(expires_unix_s));
        self.renew(NewMetadata { key, metadata, expires_s, may_come_back: false, caller: None })
    }

    fn renew(&self, new: NewMetadata<'_>) -> SetMetadata {
        if self.engine().is_closed() {
            return SetMetadata(Deferred::ready(Err(CreateError::Closed.into())));
        }
        let first = match self.engine().set_metadata_now(&new) {
            Ok(done) => return SetMetadata(Deferred::ready(done)),
            Err(seen) => seen,
        };
        let (this, expires_s) = (Arc::clone(self.engine()), new.expires_s);
        let may_come_back = new.may_come_back;
        let (key, metadata) = (new.key.to_vec(), new.metadata.to_vec());
        SetMetadata(Deferred::creating(self.engine(), move |caller| {
            let caller = Some(caller);
            let new =
                NewMetadata { key: &key, metadata: &metadata, expires_s, may_come_back, caller };
            this.set_metadata(&new, first)
        }))
    }

    /// Removes an object. `Ok(false)`: it was certainly absent. No I/O except the journal's; blocks
    /// for that with [`Durability::Synced`](crate::Durability::Synced), and for a sync if it is the
    /// first change to a store that was closed cleanly.
    ///
    /// # Errors
    /// The journal could not be written: the object is gone, but a crash may bring it back.
    pub fn remove(&self, key: &[u8]) -> Result<bool, PurgeError> {
        self.engine().remove(key)
    }

    /// Removes, purges, syncs and checkpoints as operations that can be awaited.
    pub fn awaited(&self) -> Awaited<'_> {
        Awaited(self)
    }

    /// Loves a group: its objects are evicted last, from memory and from disk. A hint holds until
    /// it is removed, or until more groups have a hint than are tracked
    /// ([`Config::groups_tracked_max`]): then the groups known longest lose theirs. What is in
    /// memory follows within a second, on a thread of the store, and later while the disk hangs;
    /// without such threads this passes over all of memory, a millisecond for a gigabyte.
    pub fn love(&self, group: GroupId) {
        self.hint(group, Hint::Loved);
    }

    /// Hates a group: its objects are evicted first. Memory follows as with `love`.
    pub fn hate(&self, group: GroupId) {
        self.hint(group, Hint::Hated);
    }

    /// Removes the hint that `love` or `hate` gave. Memory follows as with `love`.
    pub fn neutral(&self, group: GroupId) {
        self.hint(group, Hint::Neutral);
    }

    fn hint(&self, group: GroupId, hint: Hint) {
        if !self.is_forked() {
            self.engine().hint(group, hint);
        }
    }

    /// True in a child of the process that opened the store. Nothing that takes a lock may be done
    /// then: a thread that the child does not have may have held it.
    pub(crate) fn is_forked(&self) -> bool {
        self.engine().process.is_another()
    }

    /// Reads the pages of a group into memory that are not there, so that those there in all fill
    /// at most three quarters of it.
    ///
    /// # Errors
    /// [`ReadError::MemoryFull`] and [`ReadError::Closed`], as for [`Store::read`]. A page that
    /// cannot be read is skipped: the report tells what was read.
    pub fn prefetch(&self, group: GroupId) -> Prefetch {
        Prefetch(self.engine().prefetch_operation(group))
    }

    /// Purges every object of a group, in constant time.
    ///
    /// # Errors
    /// The purge is in effect, but the journal could not be written.
    pub fn purge_group(&self, group: GroupId) -> Result<(), PurgeError> {
        self.engine().purge(JournalOp::PurgeGroup { group: group.get() }, None)
    }

    /// Purges every object whose key starts with `prefix` (1 to 8,192 bytes), in constant time.
    ///
    /// # Errors
    /// As for [`Store::purge_group`], and for a prefix outside the limits.
    pub fn purge_prefix(&self, prefix: &[u8]) -> Result<(), PurgeError> {
        self.engine().purge(checked_prefix(prefix)?, None)
    }

    /// Purges everything, in constant time.
    ///
    /// # Errors
    /// As for [`Store::purge_group`].
    pub fn purge_all(&self) -> Result<(), PurgeError> {
        self.engine().purge(JournalOp::PurgeAll, None)
    }

    /// Statistics of a group; `None` if the group is not tracked.
    pub fn group_stats(&self, group: GroupId) -> Option<GroupStats> {
        let engine = self.engine();
        let stats =
            || engine.groups.stats(group, |segment, life| engine.ring.life(segment) == life);
        if self.is_forked() { None } else { stats() }
    }

    /// Sets how long objects of a group may stay only in memory before they are written to disk;
    /// zero means until their page is full. (The thesis's `setCheckpoint`.)
    pub fn set_flush_period(&self, group: GroupId, period: Duration) {
        if !self.is_forked() {
            self.engine().groups.entry(group).set_flush_period(period);
        }
    }

    /// Makes every earlier create, remove and purge durable: blocks until they would survive a loss
    /// of power.
    ///
    /// # Errors
    /// A device failed, or objects could not be written. Of those every call tells that was under
    /// way when they were dropped; if there was none, the next one. So it is with a sync that
    /// failed in the background, whose data a later one cannot make durable.
    pub fn sync(&self) -> Result<(), SyncError> {
        if self.engine().is_closed() {
            return Err(SyncError::Closed);
        }
        self.engine().sync()
    }

    /// Makes every earlier remove and purge durable, and nothing else: blocks until they would
    /// survive a loss of power, for one sync of the journal, which all share who wait for it.
    /// Objects in memory stay there. With [`Durability::None`](crate::Durability::None) removes are
    /// not written before the next checkpoint, and this does nothing for them.
    ///
    /// # Errors
    /// The device failed, and a loss of power may bring back what was removed; or the store is
    /// closed.
    ///
    /// # Example
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("store");
    /// # let mut config = damelo::Config::new(path, damelo::ByteSize::new(64 << 20));
    /// # config.memory = damelo::ByteSize::new(8 << 20);
    /// let store = damelo::Store::open(config)?;
    /// store.create(b"key", damelo::GroupId::of("group"), b"value").wait()?;
    /// store.remove(b"key")?;
    /// store.sync_removes()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sync_removes(&self) -> Result<(), SyncError> {
        if self.engine().is_closed() {
            return Err(SyncError::Closed);
        }
        self.engine().sync_removes()
    }

    /// Evicts from memory every object that is also on disk: for benchmarks, between stages.
    pub fn drop_memory(&self) {
        if self.is_forked() {
            return;
        }
        self.engine().nursery.release_open();
        self.engine().reads.assembled.clear();
        self.engine().reads.heads.clear();
        self.engine().cache.drop_all();
    }

    /// Writes an index checkpoint now, or as soon as recovery is done. Blocks until it is written.
    ///
    /// # Errors
    /// The device failed, and the earlier checkpoint stays valid; or the store is closed.
    pub fn checkpoint(&self) -> Result<(), SyncError> {
        if self.engine().is_closed() {
            return Err(SyncError::Closed);
        }
        self.engine().checkpoint()
    }

    /// Every counter and gauge.
    pub fn stats(&self) -> Stats {
        if self.is_forked() { Stats::default() } else { self.engine().stats() }
    }

    /// The progress of recovery.
    pub fn recovery(&self) -> RecoveryProgress {
        self.engine().recovery.progress()
    }

    /// Blocks until recovery is done: every object that survived is then served.
    pub fn wait_recovered(&self) {
        if !self.is_forked() {
            self.engine().recovery.wait_done();
        }
    }

    /// Lists every object on disk, by walking all segments; objects only in memory are not listed.
    /// A listing of a store that is closed meanwhile ends in [`ReadError::Closed`]; a segment that
    /// cannot be read, also because its volume does not answer, gives [`ReadError::Gone`] once, and
    /// the listing goes on behind it. A step reads a segment whole, into memory of that length
    /// beside [`Config::memory`](crate::Config::memory).
    pub fn entries(&self) -> Entries {
        Entries::new(self.engine())
    }

    /// Layout and state of the store.
    pub fn info(&self) -> StoreInfo {
        StoreInfo::of(self.engine())
    }

    /// Writes everything out, writes a checkpoint, and closes the store for every handle. Blocks
    /// until that is done.
    ///
    /// The volumes stay locked until nothing refers to the store any more: every clone of it, and
    /// every [`Writer`], [`Reader`] and [`Entries`] must be dropped before the volumes can be
    /// opened again, even by this process. Guards ([`Object`](crate::Object),
    /// [`ObjectRange`](crate::ObjectRange)) only hold memory.
    ///
    /// # Errors
    /// Objects or the checkpoint could not be written; the store is closed all the same.
    pub fn close(self) -> Result<(), SyncError> {
        self.0.close()
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size: u64 = self.engine().space.volumes.iter().map(|v| v.superblock.volume_bytes).sum();
        f.debug_struct("Store")
            .field("volumes", &self.engine().paths)
            .field("size", &ByteSize::new(size).to_string())
            .finish_non_exhaustive()
    }
}
