//! The settings a store is opened with: plain data, checked by `validate`. The defaults suit most
//! uses.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::policy::{AdmissionPolicy, DiskPolicy, ReinsertionPolicy, ResidencyPolicy};
use crate::types::ByteSize;

pub use crate::device::IoEngine;
pub use crate::policy::{Admission, DiskPolicyKind, Reinsertion, ResidencyPolicyKind};

/// How long an acknowledged delete or purge lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// Memory only: after a crash a deleted object, or an older version of a replaced one, may be
    /// back.
    None,
    /// Survives the death of the process (`kill -9`), not a power loss. The first change to a store
    /// that was closed cleanly waits for a sync.
    #[default]
    Flushed,
    /// Survives a power loss: each delete waits for the device.
    Synced,
}

/// What a create or read does when readers pin all memory, so that none can be freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WhenMemoryFull {
    /// Wait until a reader releases memory, at most [`Config::memory_wait`], or for a create
    /// [`Config::create_wait`]; then refuse.
    #[default]
    Wait,
    /// Refuse at once; counted as `drops{reason="memory_full"}`.
    Refuse,
}

/// Policies that the embedder supplies. Each one given replaces the policy named by
/// [`Config::residency`], [`Config::disk_policy`], [`Config::reinsertion`] or
/// [`Config::admission`]. An instance may share its state with the other policies, or with other
/// stores. None may panic: the store asks them on threads of its own too, and a panic in one that
/// completes I/O ends the process.
///
/// Example: a store that admits objects of one group only at their second create:
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
    /// Which objects survive when the ring reuses their segment.
    pub disk: Option<Arc<dyn DiskPolicy>>,
    /// Which of the surviving objects are written again.
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

/// Equal if both hold the same instances.
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
    /// Size of the file to make if it does not exist. On a device, or on a file that is
    /// overwritten, a new store occupies this much; opening is refused if there is less. An
    /// existing store keeps its size, with a warning if it differs.
    pub size: Option<ByteSize>,
}

/// All settings a store is opened with. Start from [`Config::new`] and change fields.
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
    /// Volumes, in order. The first also holds the journal and the checkpoints.
    pub volumes: Vec<VolumeConfig>,
    /// Memory for object data: the nursery, page frames and hot objects, with the tables of what is
    /// in memory. Default 256 MiB; at least 4 MiB and 16 pages, at most 16 TiB. The index is beside
    /// it, and where the journal is mapped, its pages: up to 7 MiB, by the room in the index.
    pub memory: ByteSize,
    /// Objects the index has room for, fixed when the volume is made. Default: one for each 4 KiB
    /// of disk; below 4 GiB one for each KiB, up to a million. Bounds: at most one for each 128
    /// bytes of disk, and at least 64. Each costs 8 bytes of memory.
    ///
    /// Each key has two buckets of eight slots. When both are full, a new object evicts the oldest
    /// object in these two buckets, not the oldest of the store; counted as
    /// `evictions{reason="index_full"}`.
    pub objects_max: Option<u64>,
    /// Page size for a new store: a power of two, 16 KiB to 1 MiB. Default 64 KiB. `None` takes the
    /// existing store's size.
    pub page: Option<ByteSize>,
    /// Segment size for a new store: a power of two, 256 KiB to 64 MiB. Default 16 MiB, less on
    /// small volumes.
    pub segment: Option<ByteSize>,
    /// Largest object accepted, 1 byte to 1 TiB. Default 8 GiB; never more than about half of the
    /// volumes, see [`StoreInfo::object_bytes_max`](crate::StoreInfo::object_bytes_max).
    pub object_bytes_max: ByteSize,
    /// Overwrite a device or file that holds other data. It holds none if its first 4 MiB and its
    /// last MiB are zeros: nothing else is looked at. What was a store of another version of the
    /// format, or has lost both of its superblocks, is other data. A store that this version reads,
    /// also one of which a volume is missing, stays: see `anew`.
    pub force: bool,
    /// Make a new store even where one exists. All data on the volumes is lost, an existing store
    /// included, and a file gets the declared size. Does not need `force`.
    pub anew: bool,
    /// Fail if the store does not exist, instead of making it.
    pub must_exist: bool,
    /// Open a store of several volumes though some are missing, all but the first, which has the
    /// journal: a disk died, or is not mounted. Missing is what does not exist, holds nothing, or
    /// of which the superblock cannot be read for an error of the device; not what is in use, may
    /// not be opened, or holds something else. The objects on it are misses, and it counts as out
    /// of service ([`VolumeInfo::out_because`](crate::VolumeInfo::out_because), and a warning).
    /// When it comes back its room is used again, and nothing is served that had been removed or
    /// replaced meanwhile. Once something was changed without it, a checkpoint is written, and then
    /// nothing that it holds is served any more; an open that only reads leaves that as it is.
    /// Default false. No effect with `force` or `anew`.
    ///
    /// ```no_run
    /// use damelo::{Config, Store, VolumeConfig};
    /// let mut config = Config::existing("/disk1/cache.store");
    /// config.volumes.push(VolumeConfig { path: "/disk2/cache.store".into(), size: None });
    /// config.without_missing = true;
    /// let store = Store::open(config)?;
    /// store.info().warnings.iter().for_each(|warning| eprintln!("{warning}"));
    /// # Ok::<(), damelo::OpenError>(())
    /// ```
    pub without_missing: bool,
    /// What performs disk I/O.
    pub io_engine: IoEngine,
    /// Bypass the system's page cache where the file system supports it. Default true.
    pub direct: bool,
    /// Whether the disks have seeks: then few I/Os are in flight, in the order of their places, and
    /// more is read at once. `None`, the default, takes what the system says of each, but for
    /// virtual disks, which say so without knowing and are taken for flash.
    pub seeks: Option<bool>,
    /// I/Os in flight at the device, 1 to 4,096. Default 64; at most 8 on a rotating disk, and 16
    /// where threads do the I/O.
    pub queue_depth: u32,
    /// How long acknowledged deletes and purges last.
    pub durability: Durability,
    /// What to do when readers pin all memory.
    pub when_memory_full: WhenMemoryFull,
    /// Longest wait for memory before a create or read is refused. Default 10 s.
    pub memory_wait: Duration,
    /// Longest wait for memory of a create, a writer or new metadata; `memory_wait` then bounds
    /// reads alone. `None`, the default: as long as `memory_wait`. With a short wait the store
    /// refuses what is created faster than the disk can write it; with zero it refuses at once
    /// whatever finds no room ([`CreateError::MemoryFull`](crate::CreateError::MemoryFull)). One
    /// wait is not bounded by this: where the journal is full until a checkpoint is written, a
    /// create that has to note there that an older version is gone waits up to 10 s, as removes do.
    pub create_wait: Option<Duration>,
    /// Which objects stay in memory.
    pub residency: ResidencyPolicyKind,
    /// Which objects survive when the ring reuses their segment.
    pub disk_policy: DiskPolicyKind,
    /// FBC: the cap on an object's hit count (C_max). Default 3, the most the index can hold.
    pub fbc_count_max: u8,
    /// FBC: mean hit count above which all counts are halved (A_max), in hundredths. Default 100.
    pub fbc_average_max_percent: u32,
    /// Largest share of a reused segment that is written again, in percent. Default 20: where use
    /// is as uneven as on the web (Zipf, 0.8), a store of 512 MiB then writes 1.22 bytes for each
    /// byte created, one of 64 MiB 1.30. The live objects of a nearly empty segment are kept
    /// whatever this share is, unless it is zero.
    pub reinsert_percent_max: u8,
    /// Which of the surviving objects are written again.
    pub reinsertion: Reinsertion,
    /// Which objects are written to disk.
    pub admission: Admission,
    /// Least time between checkpoints of the index. While less is written than four times what a
    /// checkpoint takes, up to sixty times that. Zero: a checkpoint only at close. Default 30 s.
    pub checkpoint_period: Duration,
    /// Time after which a created object is written to disk even if its page is not full. Zero:
    /// never. Default 5 s. `Store::set_flush_period` sets it for one group. What has waited for
    /// half of it goes along with what is due, and all if that is little: pages are fuller so.
    pub flush_period: Duration,
    /// Groups whose pages, hints and flush periods are remembered in memory, 400 bytes each; they
    /// take at most a twelfth of `memory`, and lists of their pages a 64th. Default 65,536, at most
    /// 2^32. Beyond the limit the hints and flush periods of the groups known for longest are
    /// forgotten.
    pub groups_tracked_max: usize,
    /// Consecutive errors of reads and writes after which a volume is taken out of service, or of
    /// writes alone or syncs, unless it is the last one in service. Default 16.
    pub volume_errors_max: u32,
    /// A volume that has answered no read for this long gets no more of them until it answers one
    /// ([`ReadError::Unanswered`](crate::ReadError::Unanswered)): its device hangs, and who asked
    /// it would wait for that. One read is let through once the silence is twice as long, and each
    /// time that it has doubled: the device may be well and have lost the others. Default 5 s;
    /// zero: it is asked all the same.
    pub answer_wait: Duration,
    /// How long `Store::open` waits for recovery, so that a small store has all its objects when
    /// `open` returns. A larger store serves while recovery goes on. Default 100 ms.
    pub open_wait: Duration,
    /// The embedder's own policies, in place of those named above.
    pub own_policies: OwnPolicies,
    /// Seed of all random decisions; `None` takes one from the system. For tests and benchmarks:
    /// all stores made with one seed have one identity, so that after a crash one that was made
    /// anew may take what is left of the one before for its own.
    pub seed: Option<u64>,
    /// For simulators: the index tells keys apart by their 15-bit tags alone, as on volumes of more
    /// than 8 TiB, without the bits that locations leave free. Default false. Otherwise tag
    /// collisions are too rare to exercise.
    pub tags_alone: bool,
    /// Whether the store has threads of its own. Default true. False is for simulators: recovery
    /// ends before `open` returns, the caller of a create or sync performs the writes that are due,
    /// and no timer runs, so that the same calls on one thread cause the same I/O. In service this
    /// would make callers wait. Freed memory also stays with the process, so that up to twice
    /// `memory` may be occupied.
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
            object_bytes_max: ByteSize::new(8 << 30),
            force: false,
            anew: false,
            must_exist: false,
            without_missing: false,
            io_engine: IoEngine::Auto,
            direct: true,
            seeks: None,
            queue_depth: 64,
            durability: Durability::Flushed,
            when_memory_full: WhenMemoryFull::Wait,
            memory_wait: Duration::from_secs(10),
            create_wait: None,
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
            answer_wait: Duration::from_secs(5),
            open_wait: Duration::from_millis(100),
            own_policies: OwnPolicies::default(),
            seed: None,
            tags_alone: false,
            background: true,
        }
    }

    /// Longest wait of a create or a writer.
    pub(crate) fn creates_wait(&self) -> Duration {
        self.create_wait.unwrap_or(self.memory_wait)
    }

    /// An existing store: no size is declared, and opening fails if the store is missing.
    pub fn existing(path: impl AsRef<Path>) -> Config {
        let mut config = Config::new(path, ByteSize::new(0));
        config.volumes[0].size = None;
        config.must_exist = true;
        config
    }
}
