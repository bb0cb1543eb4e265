//! Opening and formatting: from a `Config` to a running engine.
//!
//! Invariants: no volume is changed before every check has passed; a volume with foreign data is
//! overwritten only with `force`, one with a store of ours only with `anew`; files created for a
//! store that fails to open are removed again. Threads: the calling one; it starts the flusher, the
//! recovery thread, the keeper, and the one that makes large pages.

mod contents;
mod devices;
mod making;
mod missing;
mod settings;

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Arc, Mutex, Padded};
use std::io;
use std::path::{Path, PathBuf};

use self::contents::{VolumeContents, inspect};
pub(crate) use self::contents::{is_zero, read_superblocks};
pub(crate) use self::devices::{OpenDevices, check_paths, open_devices};
use self::settings::enough_memory;
pub(crate) use self::settings::{validate, validate_paths};
use crate::config::{Config, VolumeConfig};
use crate::device::{Absent, Device, UndoOnDrop, bytes_anew};
use crate::durable::journal::Journal;
use crate::durable::progress::{CheckpointState, RecoveryState};
use crate::durable::recovery::Plan;
use crate::durable::replay::{JournalContents, read_journal};
use crate::durable::superblocks::{DamagedCopies, DamagedCopy, WrongCopies};
use crate::engine::{Engine, Policies, Reads};
use crate::error::OpenError;
use crate::format::{FORMAT_VERSION, SUPERBLOCK_BYTES, Superblock, UNIT_BYTES, page_stride_min};
use crate::group::Groups;
use crate::group::neighbours::Touched;
use crate::index::Index;
use crate::memory::cache::Cache;
use crate::memory::pool::Pool;
use crate::page_frames::PageFrames;
use crate::page_groups::PageGroups;
use crate::policy::residency::residency_policy;
use crate::process::{Process, SignalsBlocked};
use crate::ring::Ring;
use crate::signal::Signal;
use crate::space::Space;
use crate::types::ByteSize;
use crate::types::{Clock, SegmentLife, SystemClock};
use crate::workers::Workers;
use crate::write::nursery::Nursery;

/// Both copies of the superblock, which lie at the start of a volume.
const SUPERBLOCKS_BYTES: usize = 2 * SUPERBLOCK_BYTES;
/// At most 1/`NURSERY_SHARE` of memory holds objects that wait to be written.
const NURSERY_SHARE: u64 = 4;
const NURSERY_MAX: u64 = 64 << 20;

/// An opened volume whose contents are not known yet.
pub(crate) struct RawVolume {
    pub(crate) path: PathBuf,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) fresh: bool,
    /// Bytes of the volume that a new store uses; `None`: all.
    pub(crate) declared_bytes: Option<u64>,
    /// For a file created just now: removes it on drop, unless the store opens successfully.
    pub(crate) undo: Option<UndoOnDrop>,
    /// Why it is not there, if the store is opened without it; `device` stands in for it then.
    pub(crate) missing: Option<OpenError>,
}

impl RawVolume {
    fn missing(volume: &VolumeConfig, why: OpenError) -> RawVolume {
        let mut missing = RawVolume {
            path: volume.path.clone(),
            device: Arc::new(Absent::new(volume.path.display().to_string())),
            fresh: false,
            declared_bytes: volume.size.map(ByteSize::bytes),
            undo: None,
            missing: None,
        };
        missing.leave_out(why);
        missing
    }

    /// From now on it is missing.
    fn leave_out(&mut self, why: OpenError) {
        self.device = Arc::new(Absent::new(self.device.info().name.clone()));
        self.missing = Some(why);
    }
}

/// Checks that these are all the volumes of one store, in their order.
pub(crate) fn check_belong<'a>(
    volumes: impl ExactSizeIterator<Item = (&'a Path, &'a Superblock)>,
) -> Result<(), OpenError> {
    let named = volumes.len();
    let mut first = None;
    for (index, (path, superblock)) in volumes.enumerate() {
        let expected = usize::from(superblock.volume_count);
        if expected != named {
            return Err(OpenError::VolumeCount { path: path.into(), expected, named });
        }
        if !superblock.is_volume(index, named, first.get_or_insert(superblock)) {
            return Err(OpenError::WrongVolume { path: path.into(), index });
        }
    }
    Ok(())
}

/// Memory of a store that is to be made in place of another, taken before that one is given up.
pub(crate) struct Allocated {
    cache: Cache,
    index: Arc<Index>,
    geometry: Geometry,
}

/// What memory depends on: segments, and bytes of each, bytes of a page, slots of the index.
type Geometry = (u32, u64, u32, u64);

fn geometry_of(superblocks: &[Superblock]) -> Geometry {
    let first = &superblocks[0];
    let segments = superblocks.iter().map(|superblock| superblock.segment_count).sum();
    (segments, first.segment_bytes, first.page_bytes, first.index_slots)
}

/// Checks that the volumes are not in use and are large enough, and takes the memory for the store,
/// before any file is emptied.
fn check_anew(config: &Config) -> Result<Allocated, OpenError> {
    let mut found = Vec::new();
    for volume in &config.volumes {
        let declared_bytes = volume.size.map(ByteSize::bytes);
        let bytes = bytes_anew(&volume.path, declared_bytes)?;
        found.push((volume.path.as_path(), bytes, declared_bytes));
    }
    let planned = making::plan(config, &found, &SystemClock::new())?;
    enough_memory(config, u64::from(planned[0].page_bytes))?;
    let (cache, index) = new_cache(config, &planned)?;
    Ok(Allocated { cache, index, geometry: geometry_of(&planned) })
}

/// Checks that a store could be made of devices of these sizes.
pub(crate) fn check_sizes(config: &Config, device_bytes: &[u64]) -> Result<(), OpenError> {
    validate(config)?;
    let named: Vec<&Path> = config.volumes.iter().map(|volume| volume.path.as_path()).collect();
    check_paths(&named, false)?;
    // Devices may be more than have names.
    let paths: Vec<PathBuf> = (0..device_bytes.len())
        .map(|n| named.get(n).map_or_else(|| format!("volume {n}").into(), PathBuf::from))
        .collect();
    let found: Vec<_> = paths
        .iter()
        .zip(device_bytes)
        .map(|(path, bytes)| (path.as_path(), *bytes, None))
        .collect();
    let planned = making::plan(config, &found, &SystemClock::new())?;
    planned.first().map_or(Ok(()), |first| enough_memory(config, u64::from(first.page_bytes)))
}

fn new_index(first: &Superblock) -> Result<Index, OpenError> {
    Index::try_new(first.index_slots).ok_or_else(|| {
        let bytes = ByteSize::new(first.index_slots.saturating_mul(8));
        let text = format!("no {bytes} for an index of {} objects", first.index_slots);
        OpenError::System(io::Error::new(io::ErrorKind::OutOfMemory, text))
    })
}

/// The store on the volumes.
struct StoreFound {
    superblocks: Vec<Superblock>,
    damaged: Vec<DamagedCopy>,
    /// It is yet to be made.
    created: bool,
}

/// Finds the store on the volumes, or plans a new one.
fn find_store(
    config: &Config,
    volumes: &mut [RawVolume],
    clock: &dyn Clock,
) -> Result<StoreFound, OpenError> {
    let plan_new = |volumes: &mut [RawVolume]| {
        if let Some(why) = volumes.iter_mut().find_map(|volume| volume.missing.take()) {
            return Err(why);
        }
        let superblocks = making::plan_on(config, volumes, clock)?;
        Ok(StoreFound { superblocks, damaged: Vec::new(), created: true })
    };
    if config.anew {
        return plan_new(volumes);
    }
    let lets_go = missing::may_be_left_out(config);
    let (mut found, mut damaged) = (Vec::new(), Vec::new());
    for (number, volume) in volumes.iter_mut().enumerate() {
        let ours = match our_superblock(config, volume) {
            Err(error) if lets_go && number > 0 && missing::is_gone(&error) => {
                volume.leave_out(error);
                None
            }
            ours => ours?,
        };
        found.push(ours.map(|(superblock, wrong)| {
            damaged.extend(DamagedCopy::all_of(number, wrong));
            *superblock
        }));
    }
    if found.iter().all(Option::is_none) {
        if config.must_exist {
            return Err(OpenError::Missing { path: volumes[0].path.clone() });
        }
        return plan_new(volumes);
    }
    let superblocks = if let (true, Some(first)) = (lets_go, &found[0]) {
        for (volume, _) in volumes.iter_mut().zip(&found).filter(|(_, found)| found.is_none()) {
            if volume.missing.is_none() {
                volume.leave_out(OpenError::VolumeMissing { path: volume.path.clone() });
            }
        }
        missing::completed(volumes, first, &found)
    } else {
        let paths = volumes.iter().map(|volume| volume.path.as_path());
        all_there(paths.zip(found).collect())?
    };
    check_belong(volumes.iter().map(|volume| volume.path.as_path()).zip(&superblocks))?;
    let there = volumes.iter().zip(&superblocks).filter(|(volume, _)| volume.missing.is_none());
    for (volume, superblock) in there {
        contradictions(config, volume, superblock)?;
    }
    Ok(StoreFound { superblocks, damaged, created: false })
}

/// The superblock of a volume, with what is wrong with each copy of it; `None` where one is to be
/// made.
fn our_superblock(
    config: &Config,
    volume: &RawVolume,
) -> Result<Option<(Box<Superblock>, WrongCopies)>, OpenError> {
    let path = volume.path.clone();
    if volume.missing.is_some() {
        return Ok(None);
    }
    match inspect(volume)? {
        VolumeContents::Ours(superblock, wrong) => Ok(Some((superblock, wrong))),
        VolumeContents::Nothing => Ok(None),
        VolumeContents::Other | VolumeContents::Version(_) | VolumeContents::Damaged(_)
            if config.force =>
        {
            Ok(None)
        }
        VolumeContents::Other => Err(OpenError::NotOurs { path }),
        VolumeContents::Version(found) => {
            Err(OpenError::Version { path, found, expected: FORMAT_VERSION })
        }
        VolumeContents::Damaged(reason) => Err(OpenError::Damaged { path, reason }),
    }
}

/// The superblocks, if every volume has one. Consent to overwrite other data is none to lose the
/// store that the other volumes hold.
pub(crate) fn all_there(
    found: Vec<(&Path, Option<Superblock>)>,
) -> Result<Vec<Superblock>, OpenError> {
    let named = found.len();
    for (path, superblock) in &found {
        let of = superblock.map_or(named, |superblock| superblock.volume_count.into());
        if of != named {
            let path = (*path).into();
            return Err(OpenError::VolumeCount { path, expected: of, named });
        }
    }
    let missing = |path: &Path| OpenError::VolumeMissing { path: path.into() };
    found.into_iter().map(|(path, superblock)| superblock.ok_or_else(|| missing(path))).collect()
}

fn contradictions(
    config: &Config,
    volume: &RawVolume,
    found: &Superblock,
) -> Result<(), OpenError> {
    let check = |setting, declared: Option<u64>, found: u64| match declared {
        Some(declared) if declared != found => Err(OpenError::Contradicts {
            path: volume.path.clone(),
            setting,
            declared: ByteSize::new(declared).to_string(),
            found: ByteSize::new(found).to_string(),
        }),
        _ => Ok(()),
    };
    check("page", config.page.map(ByteSize::bytes), u64::from(found.page_bytes))?;
    check("segment", config.segment.map(ByteSize::bytes), found.segment_bytes)?;
    not_cut(&volume.path, volume.device.as_ref(), found)
}

/// A volume that is shorter than it was made holds a store that nobody can open any more.
pub(crate) fn not_cut(
    path: &Path,
    device: &dyn Device,
    found: &Superblock,
) -> Result<(), OpenError> {
    let (has, of) = (device.info().size_bytes, found.volume_bytes);
    if of <= has {
        return Ok(());
    }
    Err(OpenError::Cut { path: path.into(), has: ByteSize::new(has), of: ByteSize::new(of) })
}

/// Warning for an existing store whose size differs from the declared one: the store keeps its own.
fn other_size(volume: &RawVolume, found: &Superblock) -> Option<String> {
    let declared = volume.declared_bytes?;
    let differs = making::whole_blocks(declared) != found.volume_bytes;
    differs.then(|| {
        let (has, declared) = (ByteSize::new(found.volume_bytes), ByteSize::new(declared));
        format!(
            "{}: the store has {has:#}, not the {declared:#} that were declared; format it anew to change that",
            volume.path.display()
        )
    })
}

/// The same for its index.
fn other_index(config: &Config, found: &Superblock) -> Option<String> {
    let declared = config.objects_max?;
    let differs = making::slots_for(declared) != found.index_slots;
    differs.then(|| {
        let has = found.index_slots;
        format!(
            "the store has an index for {has} objects, not the {declared} that were declared; format it anew to change that"
        )
    })
}

/// Builds the engine on open volumes, with the memory that was taken for it, if it was, and starts
/// its threads.
pub(crate) fn start(
    config: Config,
    mut raw: Vec<RawVolume>,
    mut warnings: Vec<String>,
    clock: Arc<dyn Clock>,
    allocated: Option<Allocated>,
) -> Result<(Arc<Engine>, Threads), OpenError> {
    validate(&config)?;
    let StoreFound { superblocks, damaged, created } =
        find_store(&config, &mut raw, clock.as_ref())?;
    let there = raw.iter().zip(&superblocks).filter(|(volume, _)| volume.missing.is_none());
    warnings.extend(there.filter_map(|(v, s)| other_size(v, s)));
    warnings.extend(other_index(&config, &superblocks[0]));
    let paths: Vec<PathBuf> = raw.iter().map(|v| v.path.clone()).collect();
    warnings.extend(damaged.iter().map(|copy| copy.warning(&paths)));
    let first = superblocks[0];
    enough_memory(&config, u64::from(first.page_bytes))?;
    let (cache, index) = match allocated.filter(|a| a.geometry == geometry_of(&superblocks)) {
        Some(Allocated { cache, index, .. }) => (cache, index),
        None => new_cache(&config, &superblocks)?,
    };
    if created {
        making::write(&raw, &superblocks)?;
    }
    let missing: Vec<_> = raw.iter_mut().map(|volume| volume.missing.take()).collect();
    let volumes = raw
        .into_iter()
        .zip(superblocks)
        .map(|(volume, superblock)| (volume.path, volume.device, superblock))
        .collect();
    let limits = (config.volume_errors_max, config.answer_wait);
    let mut space = Space::new(volumes, limits, Arc::clone(&clock));
    for (number, why) in missing.into_iter().enumerate() {
        why.into_iter().for_each(|why| space.leave_out(number, &why));
    }
    let space = Arc::new(space);
    let (journal, contents) = open_journal(&config, &space, &first, &paths)?;
    let generation = contents.requires.map_or(0, |r| r.generation);
    let hash_seed = first.hash_seed;
    let engine = Arc::new(assemble(Parts {
        config,
        clock,
        space,
        cache,
        index,
        journal,
        generation,
        hash_seed,
        created,
        damaged,
        warnings,
        paths,
    }));
    engine.watch_silences();
    let plan = engine.prepare_recovery(&contents);
    let _ = engine.counted(engine.journal.repair(&contents.repairs));
    if plan.follows_crash() {
        let _ = engine.counted(engine.journal.mark_open(engine.new_seq(), plan.lost_halves()));
        engine.damaged_superblocks.mend(&engine.space);
    }
    let threads = Threads::start(&engine, plan).map_err(OpenError::System)?;
    Ok((engine, threads))
}

/// The parts of an engine that are not created empty.
struct Parts {
    config: Config,
    clock: Arc<dyn Clock>,
    space: Arc<Space>,
    cache: Cache,
    index: Arc<Index>,
    journal: Journal,
    /// Generations of checkpoints up to this one are taken.
    generation: u64,
    hash_seed: u64,
    created: bool,
    damaged: Vec<DamagedCopy>,
    warnings: Vec<String>,
    paths: Vec<PathBuf>,
}

fn assemble(parts: Parts) -> Engine {
    let Parts {
        config,
        clock,
        space,
        cache,
        index,
        journal,
        generation,
        hash_seed,
        created,
        damaged,
        warnings,
        paths,
    } = parts;
    let (page_bytes, frames) = (space.page_bytes, cache.pool.frames());
    let pages_per_segment = space.segment_bytes / page_stride_min(page_bytes);
    let nursery_bytes = (config.memory.bytes() / NURSERY_SHARE).min(NURSERY_MAX);
    Engine {
        clock,
        ring: Ring::new(space.segments, page_bytes),
        nursery: Nursery::new(nursery_bytes, config.flush_period),
        inline: Default::default(),
        gate: Default::default(),
        groups: Groups::new(config.groups_tracked_max, config.memory.bytes()),
        hints: Default::default(),
        page_groups: PageGroups::new(space.segments, pages_per_segment),
        page_frames: PageFrames::new(frames, pages_per_segment),
        marks: Default::default(),
        journal,
        counters: Default::default(),
        damaged_superblocks: DamagedCopies::new(damaged),
        reads: Reads::new(frames as u64 * page_bytes, space.volumes.len()),
        neighbours: Default::default(),
        touched: Touched::new(frames),
        policies: Policies::new(&config, hash_seed, index.slots()),
        recovery: RecoveryState::default(),
        checkpoints: CheckpointState::new(generation),
        workers: Workers::default(),
        hash_seed,
        // The number before is no life's.
        next_seq: Padded(AtomicU64::new(SegmentLife::MISSING.get() + 1)),
        deletes: Default::default(),
        purge_lock: Default::default(),
        summary_entries: Default::default(),
        writers_held_bytes: Default::default(),
        writes_in_flight: Mutex::new(0),
        writes_done: Signal::default(),
        rest: Default::default(),
        closed: AtomicBool::new(false),
        process: Process::current(),
        warnings,
        created,
        paths,
        cache,
        index,
        space,
        config,
    }
}

/// Allocates the index and the cache's pages.
fn new_cache(
    config: &Config,
    superblocks: &[Superblock],
) -> Result<(Cache, Arc<Index>), OpenError> {
    let first = &superblocks[0];
    let segments = superblocks.iter().map(|superblock| superblock.segment_count).sum();
    let segment_units = first.segment_bytes / UNIT_BYTES;
    let mut index = new_index(first)?.counting(segments, segment_units);
    if !config.tags_alone {
        index = index.with_locations_below(u64::from(segments) * segment_units);
    }
    let index = Arc::new(index);
    let frames = (config.memory.bytes() / u64::from(first.page_bytes)) as usize;
    let new_pool = if config.background { Pool::new } else { Pool::keeping };
    let pool = new_pool(frames, first.page_bytes as usize).map_err(OpenError::System)?;
    let own = config.own_policies.residency.clone();
    let residency =
        own.unwrap_or_else(|| residency_policy(config.residency, config.memory.bytes()).into());
    Ok((Cache::new(pool, residency, Arc::clone(&index)), index))
}

fn open_journal(
    config: &Config,
    space: &Space,
    first: &Superblock,
    paths: &[PathBuf],
) -> Result<(Journal, JournalContents), OpenError> {
    let io = |doing| {
        let path = paths[0].clone();
        move |source| OpenError::Io { path, doing, source }
    };
    let area = space.volumes[0]
        .device
        .journal(first.journal_offset, first.journal_bytes)
        .map_err(io("opening the journal"))?;
    let contents = read_journal(area.as_ref(), first.journal_bytes, first.nonce())
        .map_err(io("reading the journal"))?;
    let journal =
        Journal::new(Some(area), first.journal_bytes, first.nonce(), config.durability, &contents);
    Ok((journal, contents))
}

/// The store's own threads, joined at close.
#[derive(Default)]
pub(crate) struct Threads {
    flusher: Option<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
}

impl Threads {
    fn start(engine: &Arc<Engine>, plan: Plan) -> io::Result<Threads> {
        let mut threads = Threads::default();
        if !engine.config.background {
            engine.recover(plan);
            engine.start_inline();
            return Ok(threads);
        }
        if let Err(error) = threads.start_all(engine, plan) {
            // Those that have started would hold the engine, and so the volumes, for ever.
            if !threads.others.is_empty() {
                engine.recovery.wait_done();
            }
            threads.end(engine);
            return Err(error);
        }
        Ok(threads)
    }

    /// Starts them all, the one that recovers first; on an error some have started.
    fn start_all(&mut self, engine: &Arc<Engine>, plan: Plan) -> io::Result<()> {
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            let _program_s = SignalsBlocked::new();
            thread::Builder::new().name(format!("damelo-{name}")).spawn(body)
        };
        let this = Arc::clone(engine);
        self.others.push(spawn("recovery", Box::new(move || this.recover(plan)))?);
        let this = Arc::clone(engine);
        self.flusher = Some(spawn(
            "flusher",
            Box::new(move || crate::write::flusher::Flusher::new(&this).run(&this)),
        )?);
        let this = Arc::clone(engine);
        self.others.push(spawn("keeper", Box::new(move || this.keep()))?);
        if engine.cache.pool.has_large_pages() {
            let this = Arc::clone(engine);
            self.others.push(spawn("memory", Box::new(move || this.enlarge()))?);
        }
        Ok(())
    }

    /// Closes the engine, which has recovered, to all operations, and ends its threads.
    pub(crate) fn end(&mut self, engine: &Engine) {
        engine.closed.store(true, Ordering::Release);
        engine.nursery.stop();
        self.join_flusher();
        engine.end_inline();
        engine.rest.stop();
        self.join_others();
    }

    fn join_flusher(&mut self) {
        if let Some(flusher) = self.flusher.take() {
            // The panic hook has reported any panic there; close goes on.
            let _ = flusher.join();
        }
    }

    fn join_others(&mut self) {
        for thread in self.others.drain(..) {
            let _ = thread.join();
        }
    }
}
