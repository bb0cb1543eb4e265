//! What a store is opened with. Plain data with defaults that suit most; checked by `validate`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::policy::{AdmissionPolicy, DiskPolicy, ReinsertionPolicy, ResidencyPolicy};
use crate::types::ByteSize;

pub use crate::policy::{Admission, DiskPolicyKind, Reinsertion, ResidencyPolicyKind};

/// How long an acknowledged delete or purge lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Memory only: after a crash a deleted object, or an older version of a replaced one, may be back.
    None,
    /// Survives the death of the process (`kill -9`), not a loss of power.
    #[default]
    Flushed,
    /// Survives a loss of power: each delete waits for the device.
    Synced,
}

/// Which engine moves bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IoEngine {
    /// `io_uring` where the system permits it, else threads.
    #[default]
    Auto,
    /// `io_uring` or an error.
    IoUring,
    /// A pool of threads with `pread` and `pwrite`.
    Threads,
}

/// What a create or read does when no memory can be freed because readers hold it all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenMemoryFull {
    /// Wait until a reader lets go (at most [`Config::memory_wait`], then refuse).
    #[default]
    Wait,
    /// Refuse at once, counted under `drops{reason="memory_full"}`.
    Refuse,
}

/// Policies of the caller's own. What is given takes the place of what [`Config::residency`],
/// [`Config::disk_policy`], [`Config::reinsertion`] and [`Config::admission`] name; it may share what it
/// remembers with the others, or with other stores.
///
/// A store that never stores objects of one group for the first time they are wanted:
///
/// ```
/// use std::sync::Arc;
/// use damelo::policy::{AdmissionPolicy, Newcomer, Seen};
/// use damelo::{ByteSize, Config, CreateError, GroupId, Store};
///
/// struct SecondTimeFor { group: GroupId, seen: Seen }
///
/// impl AdmissionPolicy for SecondTimeFor {
///     fn admit(&self, new: &Newcomer<'_>) -> Result<(), &'static str> {
///         let known = new.group != self.group || self.seen.before(new.hash);
///         if known { Ok(()) } else { Err("first time") }
///     }
/// }
///
/// # let dir = tempfile::tempdir()?;
/// let searches = GroupId::of("search");
/// let mut config = Config::new(dir.path().join("cache"), "64MiB".parse()?);
/// config.memory = "8MiB".parse()?;
/// let policy = SecondTimeFor { group: searches, seen: Seen::default() };
/// config.own_policies.admission = Some(Arc::new(policy));
/// let store = Store::open(config)?;
/// let refused = CreateError::NotAdmitted { rule: "first time" };
/// assert_eq!(store.create(b"?q=x", searches, b"...").wait(), Err(refused));
/// assert_eq!(store.create(b"?q=x", searches, b"...").wait(), Ok(()));
/// assert_eq!(store.create(b"/logo.png", GroupId::of("images"), b"...").wait(), Ok(()));
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct OwnPolicies {
    /// Which objects stay in memory.
    pub residency: Option<Arc<dyn ResidencyPolicy>>,
    /// Which objects survive a turn of the ring.
    pub disk: Option<Arc<dyn DiskPolicy>>,
    /// What is written again of what survives.
    pub reinsertion: Option<Arc<dyn ReinsertionPolicy>>,
    /// Which objects are written to disk.
    pub admission: Option<Arc<dyn AdmissionPolicy>>,
}

impl fmt::Debug for OwnPolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnPolicies")
            .field("residency", &self.residency.is_some())
            .field("disk", &self.disk.is_some())
            .field("reinsertion", &self.reinsertion.is_some())
            .field("admission", &self.admission.is_some())
            .finish()
    }
}

/// The same if they are the same objects.
impl PartialEq for OwnPolicies {
    fn eq(&self, other: &OwnPolicies) -> bool {
        fn same<T: ?Sized>(a: &Option<Arc<T>>, b: &Option<Arc<T>>) -> bool {
            match (a, b) {
                (Some(a), Some(b)) => std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b)),
                (None, None) => true,
                _ => false,
            }
        }
        same(&self.residency, &other.residency)
            && same(&self.disk, &other.disk)
            && same(&self.reinsertion, &other.reinsertion)
            && same(&self.admission, &other.admission)
    }
}

/// One file or block device of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeConfig {
    /// File or block device.
    pub path: PathBuf,
    /// Size to make it if it does not exist yet. Of a device, or a file that is overwritten, a new store
    /// takes this much, and is refused if there is less; a store that exists keeps the size that it
    /// has, with a warning.
    pub size: Option<ByteSize>,
}

/// Everything a store is opened with. Start from [`Config::new`] and change fields.
///
/// ```no_run
/// use damelo::{ByteSize, Config, Store};
/// let mut config = Config::new("/var/cache/damelo.store", ByteSize::new(20 << 30));
/// config.memory = ByteSize::new(512 << 20);
/// let store = Store::open(config)?;
/// # Ok::<(), damelo::OpenError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// Volumes, in order. The first also holds journal and checkpoints.
    pub volumes: Vec<VolumeConfig>,
    /// Memory for data: nursery, frames, hot objects. Default 256 MiB, at least 4 MiB and 16 pages, at
    /// most 16 TiB.
    pub memory: ByteSize,
    /// Objects the index has room for, fixed when the volume is made. Default: one for each
    /// 4 KiB of disk, on less than 4 GiB one for each KiB up to a million; at most one for each 128 bytes, and room for 64 at least. Costs 8 bytes of memory each.
    /// When it is full a new object takes the place of the oldest of those that share its two buckets of
    /// eight slots, not of the oldest of all; counted as `evictions{reason="index_full"}`.
    pub objects_max: Option<u64>,
    /// Page size for a new store: a power of two, 16 KiB to 1 MiB. Default 64 KiB.
    /// `None` takes what the store has.
    pub page: Option<ByteSize>,
    /// Segment size for a new store: a power of two, 256 KiB to 64 MiB. Default 16 MiB, less on
    /// small volumes.
    pub segment: Option<ByteSize>,
    /// Largest object accepted. Default 8 GiB; in any case at most about half of the volumes, see
    /// [`StoreInfo::object_bytes_max`](crate::StoreInfo::object_bytes_max).
    pub object_max: ByteSize,
    /// Overwrite a device or file that holds something else.
    pub force: bool,
    /// Make a new store even where there is one: what the volumes hold is lost, a store of ours too, and a
    /// file gets the size that is declared. Goes without `force`.
    pub anew: bool,
    /// Refuse to make a store that does not exist.
    pub must_exist: bool,
    /// Which engine moves bytes.
    pub engine: IoEngine,
    /// Bypass the page cache where the file system can. Default true.
    pub direct: bool,
    /// I/Os at the device at once, 1 to 4,096. Default 64; a disk with seeks gets at most 8.
    pub queue_depth: u32,
    /// How long acknowledged deletes and purges last.
    pub durability: Durability,
    /// What happens when readers hold all memory.
    pub when_memory_full: WhenMemoryFull,
    /// Longest wait for memory before a create or read is refused. Default 10 s.
    pub memory_wait: Duration,
    /// Which objects stay in memory.
    pub residency: ResidencyPolicyKind,
    /// Which objects survive a turn of the ring.
    pub disk_policy: DiskPolicyKind,
    /// FBC: hits counted per object at most (C_max). Default 3, the most the index can hold.
    pub fbc_count_max: u8,
    /// FBC: mean count above which all counts are halved, in hundredths (A_max). Default 100.
    pub fbc_average_max_percent: u32,
    /// Share of a reused segment that may be written again, in percent. Default 20. What is left of a nearly empty
    /// segment is kept whatever the share is, unless it is zero.
    pub reinsert_percent_max: u8,
    /// What is written again of what survives.
    pub reinsertion: Reinsertion,
    /// Which objects are written to disk.
    pub admission: Admission,
    /// Time between index checkpoints. Zero: only at close. Default 30 s.
    pub checkpoint_period: Duration,
    /// Time after which a created object is on its way to disk even if its page is not full.
    /// Zero: never. Default 5 s. `Store::set_flush_period` sets it for one group.
    pub flush_period: Duration,
    /// Groups whose pages and hints are remembered in memory at once, in a twelfth of
    /// `memory` at most, 400 bytes each. Default 65,536, at most 2^32. Hints and flush periods beyond are
    /// forgotten, those of the groups that were known first.
    pub groups_tracked_max: usize,
    /// Consecutive errors after which a volume is taken out of service. Default 16.
    pub volume_errors_max: u32,
    /// How long `Store::open` waits for recovery, so that a small store is complete when it returns;
    /// a larger one goes on loading while it serves. Default 100 ms.
    pub open_wait: Duration,
    /// Policies of the caller's own in place of those named above.
    pub own_policies: OwnPolicies,
    /// Seed for everything random; `None` takes one from the system.
    pub seed: Option<u64>,
    /// Whether the index tells keys apart by tags of 15 bits alone, as on volumes of more than 8 TiB, and not by
    /// bits that locations leave as well. Default false. For simulators: keys that look alike are rare otherwise.
    pub tags_alone: bool,
    /// Whether the store has threads of its own. Default true. Without them recovery ends before `open`
    /// returns, whoever creates or syncs writes what is due, and no timer runs: the same calls on one
    /// thread do the same on the device. For simulators; a store in service would make callers wait. Memory
    /// that comes free stays with the process, so that up to twice `memory` may be occupied.
    pub background: bool,
}

impl Config {
    /// A store on one volume with the defaults for everything else.
    pub fn new(path: impl AsRef<Path>, size: ByteSize) -> Config {
        Config {
            volumes: vec![VolumeConfig { path: path.as_ref().to_owned(), size: Some(size) }],
            memory: ByteSize::new(256 << 20),
            objects_max: None,
            page: None,
            segment: None,
            object_max: ByteSize::new(8 << 30),
            force: false,
            anew: false,
            must_exist: false,
            engine: IoEngine::Auto,
            direct: true,
            queue_depth: 64,
            durability: Durability::Flushed,
            when_memory_full: WhenMemoryFull::Wait,
            memory_wait: Duration::from_secs(10),
            residency: ResidencyPolicyKind::HitDensity,
            disk_policy: DiskPolicyKind::Fbc,
            fbc_count_max: 3,
            fbc_average_max_percent: 100,
            reinsert_percent_max: 20,
            reinsertion: Reinsertion::Worthy,
            admission: Admission::Always,
            checkpoint_period: Duration::from_secs(30),
            flush_period: Duration::from_secs(5),
            groups_tracked_max: 65_536,
            volume_errors_max: 16,
            open_wait: Duration::from_millis(100),
            own_policies: OwnPolicies::default(),
            seed: None,
            tags_alone: false,
            background: true,
        }
    }

    /// An existing store: no size is declared and nothing is made.
    pub fn existing(path: impl AsRef<Path>) -> Config {
        let mut config = Config::new(path, ByteSize::new(0));
        config.volumes[0].size = None;
        config.must_exist = true;
        config
    }
}
