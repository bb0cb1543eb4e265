//! Errors, one enum per family of operations. Each message says what to do; each error keeps its
//! cause.

use std::io;
use std::path::PathBuf;

use crate::types::ByteSize;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A file or device could not be opened or made.
    #[error(transparent)]
    Device(#[from] crate::device::DeviceOpenError),
    /// A setting is outside its limits.
    #[error("{setting} is {value}: {limit}")]
    Setting {
        /// Name of the setting.
        setting: &'static str,
        /// The value given.
        value: String,
        /// The allowed values.
        limit: String,
    },
    /// The volume is too small.
    #[error("{path}: {size:#} is too small: {reason}")]
    TooSmall {
        /// Volume.
        path: PathBuf,
        /// Its size.
        size: ByteSize,
        /// The smallest size that would do.
        reason: String,
    },
    /// An existing file or device is smaller than the size declared for a new store.
    #[error(
        "{path} has {found:#}, less than the {declared:#} that were declared; declare at most what it has"
    )]
    SmallerThanDeclared {
        /// Volume.
        path: PathBuf,
        /// Its actual size.
        found: ByteSize,
        /// The declared value.
        declared: ByteSize,
    },
    /// The volume holds data that is not a Damelo store.
    #[error("{path} holds data that is not a Damelo store; use force to overwrite it")]
    NotOurs {
        /// Volume.
        path: PathBuf,
    },
    /// The store was made by another version of the format.
    #[error(
        "{path} has format version {found}, this program reads {expected}; format it anew with force"
    )]
    Version {
        /// Volume.
        path: PathBuf,
        /// Version on the volume.
        found: u32,
        /// Version that this program reads.
        expected: u32,
    },
    /// Both copies of the superblock are damaged.
    #[error("{path}: both superblock copies are damaged ({reason}); format it anew with force")]
    Damaged {
        /// Volume.
        path: PathBuf,
        /// The damage found.
        reason: String,
    },
    /// A declared value contradicts the store's.
    #[error(
        "{path}: {setting} was declared as {declared}, the store has {found}; leave it out or format anew"
    )]
    Contradicts {
        /// Volume.
        path: PathBuf,
        /// Name of the setting.
        setting: &'static str,
        /// The declared value.
        declared: String,
        /// The store's value.
        found: String,
    },
    /// The file or device is shorter than the store that was created on it.
    #[error(
        "{path} has {has:#} of the store's {of:#}: what was cut off is lost; make the store anew, with \
         `damelo format --force`, or remove it"
    )]
    Cut {
        /// Volume.
        path: PathBuf,
        /// The size found.
        has: ByteSize,
        /// The size that the store was created with.
        of: ByteSize,
    },
    /// The volumes do not belong together.
    #[error("{path} is not volume {index} of this store; give all volumes in their order")]
    WrongVolume {
        /// Volume.
        path: PathBuf,
        /// Its position in the list of volumes.
        index: usize,
    },
    /// The number of volumes named differs from the number that the store has.
    #[error(
        "{path} is of a store made of {expected} volume(s), and {named} were named; a store keeps the volumes that it \
         was made of: give all of them and no others, in their order"
    )]
    VolumeCount {
        /// A volume of the store.
        path: PathBuf,
        /// Number of volumes of the store.
        expected: usize,
        /// Number of volumes named.
        named: usize,
    },
    /// One of several volumes is missing, or holds nothing of the store.
    #[error(
        "{path} is missing or holds nothing of the store, and another volume of it is there: bring it back, open the \
         store without it (any but the first: `without_missing`, of commands `--without-missing`), or make a new store \
         of all of them (`damelo format --force`)"
    )]
    VolumeMissing {
        /// The volume.
        path: PathBuf,
    },
    /// A volume was named twice.
    #[error("{path} is named twice; give each volume once")]
    NamedTwice {
        /// The volume.
        path: PathBuf,
    },
    /// The volume does not hold a store.
    #[error("{path} does not hold a store; make one first")]
    Missing {
        /// Volume.
        path: PathBuf,
    },
    /// The device failed while the store was being opened.
    #[error("{path}: {doing} failed")]
    Io {
        /// Volume.
        path: PathBuf,
        /// The step that failed.
        doing: &'static str,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The memory budget could not be mapped, or a thread could not be started.
    #[error("cannot get memory or threads for the store")]
    System(#[source] io::Error),
}

/// Why an object was not created.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CreateError {
    /// The key is empty or too long.
    #[error("a key of {length} bytes: keys have 1 to {max} bytes")]
    KeyLength {
        /// Its length in bytes.
        length: usize,
        /// Longest key.
        max: usize,
    },
    /// The value is larger than the store accepts.
    #[error("an object of {length} bytes: this store accepts at most {max} bytes")]
    TooLarge {
        /// Its length in bytes.
        length: u64,
        /// Largest object.
        max: u64,
    },
    /// The value is larger than an object may be on volumes of this size.
    #[error(
        "an object of {length} bytes: this store's volumes are too small for more than {max} bytes, \
         half of what they hold; make a larger store for it"
    )]
    TooLargeForVolumes {
        /// Its length in bytes.
        length: u64,
        /// Largest object that these volumes accept.
        max: u64,
    },
    /// The ring reused the segments of a streamed object's first parts before its last parts were
    /// written.
    #[error(
        "the start of the object was overwritten by what was written meanwhile ({length} bytes in all); \
         write less at once, or make a larger store"
    )]
    Overwritten {
        /// Its length in bytes.
        length: u64,
    },
    /// An earlier write of the streamed object failed, or was dropped before it was done.
    #[error(
        "an earlier write of the object failed or was cancelled, so that nobody knows how much of it was taken; \
         begin the object anew"
    )]
    Torn,
    /// The metadata is too large.
    #[error("metadata of {length} bytes: at most {max} bytes are kept")]
    MetadataTooLarge {
        /// Its length in bytes.
        length: usize,
        /// Longest metadata.
        max: usize,
    },
    /// Readers hold all memory, or it is full of objects that wait to be written, and none was
    /// released in time ([`Config::create_wait`](crate::Config::create_wait)).
    #[error(
        "no memory came free in time: readers hold it, each guard on a small object its whole page, or \
         it waits to be written to a disk that does not keep up; release guards, raise `memory` or \
         `create_wait` (by default `memory_wait`), or create more slowly"
    )]
    MemoryFull,
    /// What was to be replaced has been stored anew in the meantime. Seen within the store only:
    /// callers get [`MetadataError::Superseded`].
    #[doc(hidden)]
    #[error("the object was stored anew meanwhile")]
    Superseded,
    /// The admission policy refused the object.
    #[error("not admitted: {rule}")]
    NotAdmitted {
        /// Name of the rule that refused it.
        rule: &'static str,
    },
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
    /// Every volume is out of service.
    #[error("no volume is in service: {reason}")]
    VolumesGone {
        /// Each volume, and why it is out of service.
        reason: String,
    },
    /// A part of a streamed object could not be written.
    #[error("a part of the object could not be written: {reason}")]
    Write {
        /// The device's error.
        reason: String,
    },
}

/// Why an object's metadata were not replaced.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetadataError {
    /// The object whose metadata is to be replaced was not written to disk in time.
    #[error(
        "the object is still on its way to disk after {waited_ms} ms: try again, or `sync` first"
    )]
    StillWriting {
        /// How long the call waited, in milliseconds.
        waited_ms: u64,
    },
    /// The volume of the object whose metadata is to be replaced does not answer; see
    /// [`ReadError::Unanswered`].
    #[error("the volume of the object has answered no read for {waited_ms} ms: ask again later")]
    Unanswered {
        /// How long it has not answered, in milliseconds.
        waited_ms: u64,
    },
    /// The object whose metadata was to be replaced has been stored anew in the meantime.
    #[error("the object was stored anew meanwhile: its new metadata stays")]
    Superseded,
    /// The object could not be stored with them.
    #[error(transparent)]
    Create(CreateError),
}

impl From<CreateError> for MetadataError {
    fn from(error: CreateError) -> MetadataError {
        match error {
            CreateError::Superseded => MetadataError::Superseded,
            error => MetadataError::Create(error),
        }
    }
}

/// Why a read returned neither an object nor a miss.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// Readers hold all memory and released none in time.
    #[error(
        "no memory came free: readers hold the whole budget, each guard on a small object its whole page; \
         raise `memory` or release guards"
    )]
    MemoryFull,
    /// The object is too large to be read into memory in one piece.
    #[error("the object has {length} bytes, a read in one piece takes at most {max}; use a reader")]
    TooLargeForMemory {
        /// Its length in bytes.
        length: u64,
        /// Largest object that can be read in one piece.
        max: u64,
    },
    /// The volume that the object lies on has answered no read for so long
    /// ([`Config::answer_wait`](crate::Config::answer_wait)) that it is not asked.
    #[error(
        "the volume of the object has answered no read for {waited_ms} ms: the object may be there once its device \
         is well; get it elsewhere, or ask again later"
    )]
    Unanswered {
        /// How long it has not answered, in milliseconds.
        waited_ms: u64,
    },
    /// The object was replaced, evicted or damaged while it was being streamed.
    #[error("the rest of the object is gone: it was evicted or damaged while being read")]
    Gone,
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}

/// Why a delete or purge was not acknowledged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PurgeError {
    /// The journal could not be written: the objects are gone, but a crash may bring them back.
    #[error("the delete is in effect but could not be made durable")]
    Journal(#[source] io::Error),
    /// The prefix is empty or too long.
    #[error("a prefix of {length} bytes: prefixes have 1 to {max} bytes; use purge_all for all")]
    PrefixLength {
        /// Its length in bytes.
        length: usize,
        /// Longest prefix.
        max: usize,
    },
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}

/// Why a sync, checkpoint or close did not get everything safely to disk.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// The device failed.
    #[error("the device failed while syncing")]
    Io(#[source] io::Error),
    /// Objects could not be written and were dropped.
    #[error("{objects} objects could not be written and were dropped: {reason}")]
    Dropped {
        /// Number of objects dropped since the last sync.
        objects: u64,
        /// Why the last of them could not be: the volume that failed, and its error.
        reason: String,
    },
    /// Every volume is out of service.
    #[error("no volume is in service: {reason}")]
    VolumesGone {
        /// Each volume, and why it is out of service.
        reason: String,
    },
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}
