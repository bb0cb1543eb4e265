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

pub mod check;
mod config;
pub mod device;
mod durable;
mod engine;
mod entries;
mod error;
pub mod format;
mod group;
mod hints;
pub mod index;
mod memory;
mod object;
mod open;
mod ops;
mod page_groups;
pub mod policy;
mod read;
mod ring;
#[cfg(all(shuttle, test))]
mod schedule_tests;
// The device of the tests beside the crate calls it by its name.
#[cfg(all(shuttle, test))]
extern crate self as damelo;
mod signal;
mod space;
mod stats;
mod store;
mod sync;
mod types;
mod workers;
mod write;

pub use config::{
    Admission, Config, DiskPolicyKind, Durability, IoEngine, OwnPolicies, Reinsertion,
    ResidencyPolicyKind, VolumeConfig, WhenMemoryFull,
};
pub use device::{Deferral, submit_deferred};
pub use durable::recovery::RecoveryProgress;
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
