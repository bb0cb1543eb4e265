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
//! Start at [`Store`]. `ARCHITECTURE.md` lists the modules, `docs/format.md` describes the bytes on
//! disk.

#![warn(missing_debug_implementations)]

// A module uses only modules above it in this list, as in the table of `ARCHITECTURE.md`.

// The parts that the engine is built from.

// The store's process: forks and signals.
mod process;
// Locks, channels and threads of `std`, replaced by shuttle's in the schedule tests.
mod sync;
// Ids, sizes, clocks.
mod types;
// The format of every byte on disk. Public for tools and tests that read or damage volumes, and for
// fuzz targets.
pub mod format;
// The trait `Device`. Public for programs that supply their own device, such as `store-sim`.
pub mod device;
// Every error.
mod error;
// Policies for residency in memory, survival on disk, and admission; pure. Public for simulators
// and for programs with policies of their own.
pub mod policy;
// The configuration of a store.
mod config;
// From key hash to locations on disk, 8 bytes per object. Public because it is useful by itself:
// the table knows nothing of stores.
pub mod index;
// Every counter and gauge.
mod stats;
// How long an operation has waited for memory.
mod waiting;
// A condition variable that costs nothing while nobody waits.
mod signal;
// Whether the store is at rest, and how long its threads sleep.
mod rest;
// Frames and runs, the resident table, eviction.
mod memory;
// The guards that reads return.
mod object;
// Syncs of a volume that failed, and whether callers were told.
mod sync_errors;
// All volumes as one address space of segments.
mod space;
// The state of each segment (free, open, sealed, …) and the order of reuse.
mod ring;
// The main group of each page on disk.
mod page_groups;
// Where in memory the frame of a page on disk lies.
mod page_frames;
// Per-group state: pages, hints, counters.
mod group;
// Threads that do blocking work for async callers.
mod workers;

// The operations of a store.

// `Engine`, the struct that owns all parts of an open store.
mod engine;
// Outcomes that are ready at once or come later.
mod deferred;
// Durable state: journal, purge marks, checkpoints, recovery.
mod durable;
// The read path: memory, index, disk; ranges, streams, groups.
mod read;
// The operation types, which callers await or wait for.
mod ops;
// The write path: create, nursery, pages, segments, reuse.
mod write;

// The public handle, and opening a store.

// Opening and formatting: from a `Config` to a running engine.
mod open;
// Verifying a store that no process has open. Public for `damelo check`.
pub mod check;
// Listing the objects of a store.
mod entries;
// The public handle.
mod store;
// A store together with the fetches for what it does not have.
mod read_through;

#[cfg(test)]
#[path = "../tests/in_memory/mod.rs"]
mod in_memory;
#[cfg(all(shuttle, test))]
mod schedule_tests;
// The simulated device, which lies beside the crate, imports this crate by its name.
#[cfg(test)]
extern crate self as damelo;

pub use config::{
    Admission, Config, DiskPolicyKind, Durability, IoEngine, OwnPolicies, Reinsertion,
    ResidencyPolicyKind, VolumeConfig, WhenMemoryFull,
};
pub use device::{Deferral, submit_deferred};
pub use durable::progress::RecoveryProgress;
pub use entries::{Entries, Entry};
pub use error::{CreateError, MetadataError, OpenError, PurgeError, ReadError, SyncError};
pub use group::GroupStats;
pub use object::{Object, ObjectInfo, ObjectRange};
pub use ops::{
    Commit, Create, Length, Lookup, OpenReader, Prefetch, Purge, Read, ReadRange, Remove,
    SetMetadata, Syncing,
};
pub use policy::Hint;
pub use read::prefetch::PrefetchReport;
pub use read::stream::{NextChunk, Reader};
pub use read_through::{Fetched, ReadThrough, ReadThroughStats, Served};
pub use stats::{Latency, Metric, MetricKind, Stats};
pub use store::{Awaited, CreateOptions, Store, StoreInfo, VolumeInfo};
pub use types::{ByteSize, Clock, GroupId, ParseByteSizeError, SystemClock};
pub use write::writer::{Write, Writer, WriterOptions};

// The example in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
