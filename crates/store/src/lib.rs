//! Damelo: a crash-safe, co-locating object store on raw disk, for data that can always be fetched
//! again.
//!
//! ```
//! use damelo::{ByteSize, Config, GroupId, Store};
//!
//! # let dir = tempfile::tempdir()?;
//! let mut config = Config::new(dir.path().join("cache"), "64MiB".parse()?);
//! config.memory = "8MiB".parse()?;
//! let store = Store::open(config)?;
//! store.create(b"/logo.png", GroupId::of("example.org"), b"...").wait()?;
//! let object = store.read(b"/logo.png").wait()?.expect("it was just created");
//! assert_eq!(&*object, b"...");
//! store.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Start at [`Store`]. What lies where is told by `ARCHITECTURE.md`, the bytes on disk by
//! `docs/format.md`.

// What programs hold, and how a store comes to be. Modules use only those below them here and before them in
// the table of `ARCHITECTURE.md`.

// The public handle.
mod store;
// Listing what a store holds.
mod entries;
// Verifying a store that nobody has open. Public for `damelo check`.
pub mod check;
// From a `Config` to a running engine.
mod open;

// What a store does.

// The way of bytes to disk: create, nursery, pages, segments, reuse.
mod write;
// What operations return: to be awaited or waited for.
mod ops;
// Reads: memory, index, disk; parts, streams, groups.
mod read;
// What survives the process: journal, purge marks, checkpoints, recovery.
mod durable;
// Outcomes that are there at once or come later.
mod deferred;
// The struct in which all parts meet.
mod engine;

// What it is made from.

// Threads for the blocking work of those who may not block.
mod workers;
// What is remembered of groups.
mod group;
// Which group each page on disk mostly holds.
mod page_groups;
// Which segments are free, open, sealed.
mod ring;
// All volumes as one space of segments.
mod space;
// Guards that reads return.
mod object;
// Frames, runs, what is resident in them, who gets them.
mod memory;
// A condition variable that costs nothing while nobody waits.
mod signal;
// Every counter.
mod stats;
// From hash to places on disk, 8 bytes an object. Public since it is of use by itself: a table that promises what
// its documentation says and knows nothing of stores.
pub mod index;
// What a store is opened with.
mod config;
// What stays in memory, survives on disk, is admitted: pure. Public for simulators and policies of others.
pub mod policy;
// Every error.
mod error;
// The trait `Device`. Public for who brings a device of its own, as `store-sim` does.
pub mod device;
// Every byte on disk. Public for tools and tests that read or damage volumes, and for fuzz targets.
pub mod format;
// Ids, sizes, clocks.
mod types;
// Locks, channels and threads, or those of the schedule tests.
mod sync;
// What the process around a store does to it: forks and signals.
mod process;

#[cfg(all(shuttle, test))]
mod schedule_tests;
// The device of the tests beside the crate calls it by its name.
#[cfg(all(shuttle, test))]
extern crate self as damelo;

pub use config::{
    Admission, Config, DiskPolicyKind, Durability, IoEngine, OwnPolicies, Reinsertion,
    ResidencyPolicyKind, VolumeConfig, WhenMemoryFull,
};
pub use device::{Deferral, submit_deferred};
pub use durable::progress::RecoveryProgress;
pub use entries::{Entries, Entry};
pub use error::{CreateError, OpenError, PurgeError, ReadError, SyncError};
pub use group::GroupStats;
pub use object::{Object, ObjectInfo, ObjectRange};
pub use ops::{Commit, Create, Length, Lookup, OpenReader, Prefetch, Read, ReadRange, SetMetadata};
pub use policy::Hint;
pub use read::prefetch::PrefetchReport;
pub use read::stream::{NextChunk, Reader};
pub use stats::{Latency, Metric, MetricKind, Stats};
pub use store::{CreateOptions, Store, StoreInfo, VolumeInfo};
pub use types::{ByteSize, Clock, GroupId, ParseByteSizeError, SystemClock};
pub use write::writer::{Write, Writer, WriterOptions};

// The example in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
