//! Whole runs, each a function of a seed: what the tests and the soak program call.
//!
//! A scenario picks settings, disks, operations and crash points from its seed, and returns the
//! first wrong answer with enough words to understand it. Threads: a scenario runs on one.

use std::sync::Arc;
use std::time::Duration;

use damelo::{
    Admission, ByteSize, Config, DiskPolicyKind, Durability, IoEngine, ResidencyPolicyKind,
    WhenMemoryFull,
};

use crate::driver::{Driver, Failure, Place};
use crate::fault::{FaultPlan, OpKind};
use crate::model::{Demand, Model};
use crate::trace::{CrashKind, Ticks};
use crate::workload::{Profile, Workload};
use crate::{Completion, SimClock, SimDisk, SimOptions, SimWorld};

const MIB: u64 = 1 << 20;
/// A ring of few segments, so that it comes round within one run.
const TINY_BYTES: u64 = 8 * MIB;
/// A ring that strict runs never fill, whatever their syncs waste.
const ROOMY_BYTES: u64 = 48 * MIB;
/// The same for runs of a few dozen operations.
const CRASH_BYTES: u64 = 16 * MIB;
/// A ring of half a dozen segments.
const WRAP_BYTES: u64 = 6 * MIB;
/// Crash points tried for each run.
const CRASHES_PER_RUN: usize = 6;

/// The smallest store that works: 16 KiB pages, 256 KiB segments, 4 MiB of memory.
pub fn tiny_config(seed: u64) -> Config {
    let mut config = Config::new("sim-0", ByteSize::new(TINY_BYTES));
    config.memory = ByteSize::new(4 * MIB);
    config.objects_max = Some(4096);
    config.page = Some(ByteSize::new(16 << 10));
    config.segment = Some(ByteSize::new(256 << 10));
    config.object_max = ByteSize::new(2 * MIB);
    config.memory_wait = Duration::from_secs(5);
    config.seed = Some(seed);
    config
}

/// Periods and policies by chance. What may refuse objects comes only with `wild`.
fn varied_config(rng: &mut fastrand::Rng, seed: u64, wild: bool) -> Config {
    let mut config = tiny_config(seed);
    config.flush_period = Duration::from_millis([0, 1, 50, 5000][rng.usize(0..4)]);
    config.checkpoint_period = Duration::from_millis([0, 2, 100, 30_000][rng.usize(0..4)]);
    config.durability =
        [Durability::None, Durability::Flushed, Durability::Synced][rng.usize(0..3)];
    config.residency = ResidencyPolicyKind::ALL[rng.usize(0..4)];
    config.queue_depth = [1, 4, 64][rng.usize(0..3)];
    if wild {
        config.disk_policy = [
            DiskPolicyKind::Fbc,
            DiskPolicyKind::LfuAging,
            DiskPolicyKind::Lru,
            DiskPolicyKind::Fifo,
        ][rng.usize(0..4)];
        config.admission =
            [Admission::Always, Admission::Always, Admission::SecondHit][rng.usize(0..3)];
        config.objects_max = Some([64, 512, 4096][rng.usize(0..3)]);
        config.groups_tracked_max = [4, 65_536][rng.usize(0..2)];
        config.when_memory_full = [WhenMemoryFull::Wait, WhenMemoryFull::Refuse][rng.usize(0..2)];
    }
    config
}

fn options(rng: &mut fastrand::Rng, seed: u64, history: bool) -> SimOptions {
    SimOptions {
        completion: [Completion::Inline, Completion::Queued][rng.usize(0..2)],
        block_bytes: [512, 4096][rng.usize(0..2)],
        rotational: rng.u8(0..4) == 0,
        history,
        ..SimOptions::new(seed)
    }
}

/// Disks for `count` volumes, and a configuration that names them.
fn blank_disks(config: &mut Config, count: usize, size_bytes: u64) -> Vec<SimDisk> {
    let volume = config.volumes[0].clone();
    config.volumes = (0..count)
        .map(|i| {
            let mut volume = volume.clone();
            volume.path = format!("sim-{i}").into();
            volume.size = Some(ByteSize::new(size_bytes));
            volume
        })
        .collect();
    vec![SimDisk::blank(size_bytes); count]
}

/// A driver for a store on the disks of a world.
pub fn driver_on(world: &SimWorld, config: &Config, model: Model) -> Driver {
    let place = Place::Devices(world.devices(), world.clock());
    Driver::new(config.clone(), place, Arc::clone(world.ticks()), model)
        .with_clock(Arc::clone(world.sim_clock()))
}

fn apply_all(driver: &mut Driver, workload: Workload) -> Result<(), Failure> {
    for (version, op) in workload {
        driver.apply(version, &op)?;
    }
    Ok(())
}

fn no_violations(world: &SimWorld) -> Result<(), Failure> {
    match world.violations() {
        list if list.is_empty() => Ok(()),
        list => Err(format!("the store misused its device: {}", list.join("; "))),
    }
}

/// Random operations on a ring that comes round many times, with all policies: nothing wrong is
/// ever answered, though much is forgotten.
///
/// # Errors
/// The first wrong answer.
pub fn model_wild(seed: u64) -> Result<(), Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed);
    let mut config = varied_config(rng, seed, true);
    let count = rng.usize(1..=3);
    let disks = blank_disks(&mut config, count, TINY_BYTES);
    let options = options(rng, seed, false);
    let world = SimWorld::start(&disks, &options, Arc::new(SimClock::new()));
    let model = Model::new(Demand::Fresh, config.durability);
    let mut driver = driver_on(&world, &config, model).with_long_keys(true);
    driver.open()?;
    apply_all(&mut driver, Workload::new(Profile::wild(700), seed))?;
    driver.verify(true)?;
    driver.close()?;
    driver.open()?;
    driver.verify_recovered()?;
    driver.close()?;
    no_violations(&world)
}

/// Random operations with room for everything: nothing is forgotten, even over clean closes.
///
/// # Errors
/// The first wrong answer.
pub fn model_strict(seed: u64) -> Result<(), Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed);
    let mut config = varied_config(rng, seed, false);
    let count = rng.usize(1..=2);
    let disks = blank_disks(&mut config, count, ROOMY_BYTES);
    let options = options(rng, seed, false);
    let world = SimWorld::start(&disks, &options, Arc::new(SimClock::new()));
    let model = Model::new(Demand::Strict, config.durability);
    let mut driver = driver_on(&world, &config, model).with_long_keys(true);
    driver.open()?;
    apply_all(&mut driver, Workload::new(Profile::modest(300, 6 * MIB), seed))?;
    driver.verify(true)?;
    driver.close()?;
    driver.open()?;
    driver.verify_recovered()?;
    driver.close()?;
    no_violations(&world)
}

/// The same as [`model_wild`] on a real file.
///
/// # Errors
/// The first wrong answer.
pub fn model_file(seed: u64, engine: IoEngine) -> Result<(), Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed);
    let directory = tempfile::tempdir().map_err(|e| e.to_string())?;
    let mut config = varied_config(rng, seed, true);
    config.volumes[0].path = directory.path().join("volume");
    config.engine = engine;
    config.direct = rng.bool();
    let model = Model::new(Demand::Fresh, config.durability);
    let ticks = Arc::new(Ticks::default());
    let mut driver = Driver::new(config, Place::Files, ticks, model).with_long_keys(true);
    driver.open()?;
    apply_all(&mut driver, Workload::new(Profile::wild(500), seed))?;
    driver.verify(true)?;
    driver.close()?;
    driver.open()?;
    driver.verify_recovered()?;
    driver.close()
}

/// A run of a few operations with all history of its disks, to be crashed at any tick.
pub struct Recorded {
    /// Settings of the store.
    pub config: Config,
    /// Behaviour of its disks.
    pub options: SimOptions,
    /// The machine.
    pub world: SimWorld,
    /// What was acknowledged when.
    pub model: Model,
    /// Tick at which the first open had returned.
    pub opened: u64,
    /// Tick at which close had returned.
    pub closed: u64,
}

/// Records a run, ending with a clean close.
///
/// # Errors
/// A wrong answer even before any crash.
pub fn record(seed: u64, ops: usize) -> Result<Recorded, Failure> {
    record_on(seed, Demand::Strict, CRASH_BYTES, Profile::crash(ops, 2 * MIB))
}

fn record_on(
    seed: u64,
    demand: Demand,
    disk_bytes: u64,
    profile: Profile,
) -> Result<Recorded, Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed);
    let mut config = varied_config(rng, seed, false);
    let count = rng.usize(1..=2);
    let disks = blank_disks(&mut config, count, disk_bytes);
    let options = options(rng, seed, true);
    let world = SimWorld::start(&disks, &options, Arc::new(SimClock::new()));
    let model = Model::new(demand, config.durability);
    let mut driver = driver_on(&world, &config, model);
    driver.open()?;
    let opened = world.now();
    apply_all(&mut driver, Workload::new(profile, seed))?;
    driver.close()?;
    no_violations(&world)?;
    let (model, closed) = (driver.model.clone(), world.now());
    drop(driver);
    Ok(Recorded { config, options, world, model, opened, closed })
}

/// Opens what a crash left, and checks everything.
///
/// # Errors
/// A store that does not open, or the first wrong answer.
pub fn recover(
    recorded: &Recorded,
    at: u64,
    kind: CrashKind,
    seed: u64,
) -> Result<(SimWorld, Driver), Failure> {
    let disks = recorded.world.crash_at(at, kind, seed);
    let clock = Arc::clone(recorded.world.sim_clock());
    let world = SimWorld::start(&disks, &recorded.options, clock);
    let model = recorded.model.after_crash(at, kind);
    let mut driver = driver_on(&world, &recorded.config, model);
    driver.open()?;
    driver.verify_recovered()?;
    Ok((world, driver))
}

/// A crash at some ticks of a run, operations after it, and a second crash, perhaps during recovery.
///
/// # Errors
/// The first wrong answer, with the crash that led to it.
pub fn crash(seed: u64) -> Result<(), Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed ^ 0xc4a5);
    let recorded = record(seed, rng.usize(6..50))?;
    crash_somewhere(&recorded, rng)
}

/// The same on a ring so small that it has come round before the crash: what was removed, replaced
/// or purged must not come back from a segment that was given up but not overwritten yet.
///
/// # Errors
/// The first wrong answer, with the crash that led to it.
pub fn crash_wrapped(seed: u64) -> Result<(), Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed ^ 0x4a9);
    let profile = Profile {
        keys: 60,
        large_one_in: 5,
        read_percent: 20,
        ..Profile::crash(rng.usize(100..350), u64::MAX)
    };
    let recorded = record_on(seed, Demand::Fresh, WRAP_BYTES, profile)?;
    if recorded.config.durability == Durability::None {
        // Without a journal an older version may come back after a crash, which is what is promised.
        return Ok(());
    }
    crash_somewhere(&recorded, rng)
}

fn crash_somewhere(recorded: &Recorded, rng: &mut fastrand::Rng) -> Result<(), Failure> {
    for _ in 0..CRASHES_PER_RUN {
        let at = rng.u64(recorded.opened..=recorded.closed);
        let kind = [CrashKind::Kill, CrashKind::Power][rng.usize(0..2)];
        let image_seed = rng.u64(..);
        crash_twice(recorded, at, kind, image_seed)
            .map_err(|e| describe(recorded, at, kind, image_seed, &e))?;
    }
    Ok(())
}

fn describe(recorded: &Recorded, at: u64, kind: CrashKind, image: u64, error: &str) -> Failure {
    let Recorded { config, options, opened, closed, .. } = recorded;
    let recent = recent_events(&recorded.model, at);
    format!(
        "{kind:?} before tick {at} of {opened}..{closed} (image {image:#x}), durability {:?}, \
         flush {:?}, checkpoint {:?}, {} volumes, {:?}: {error}\n  last events:\n{recent}",
        config.durability,
        config.flush_period,
        config.checkpoint_period,
        config.volumes.len(),
        options.completion,
    )
}

/// The last operations begun before a tick, the latest first.
fn recent_events(model: &Model, at: u64) -> String {
    let recent: Vec<String> = model
        .events()
        .iter()
        .filter(|e| e.begin <= at)
        .rev()
        .take(12)
        .map(|e| format!("    {}..{} {:?} {:?}", e.begin, e.ack, e.outcome, brief(e)))
        .collect();
    recent.join("\n")
}

fn brief(event: &crate::model::Event) -> String {
    use crate::model::{Change, show};
    match &event.change {
        Change::Create { key, state, .. } => {
            format!("create {} version {} ({} bytes)", show(key), state.version, state.length)
        }
        Change::SetMetadata { key, version, .. } => format!("metadata {} {version}", show(key)),
        Change::Remove { key } => format!("remove {}", show(key)),
        Change::PurgePrefix(prefix) => format!("purge prefix {}", show(prefix)),
        other => format!("{other:?}"),
    }
}

fn crash_twice(recorded: &Recorded, at: u64, kind: CrashKind, seed: u64) -> Result<(), Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed);
    let (world, mut driver) = recover(recorded, at, kind, seed)?;
    // Versions of the second life must differ from those of the first.
    let more = Workload::new(Profile::crash(rng.usize(0..12), MIB), seed);
    for (version, op) in more {
        driver.apply(1000 + version, &op).map_err(|e| format!("second life: {e}"))?;
    }
    let second = Recorded {
        config: recorded.config.clone(),
        options: recorded.options.clone(),
        model: driver.model.clone(),
        opened: 0,
        closed: world.now(),
        world,
    };
    driver.abandon();
    no_violations(&second.world)?;
    let at = rng.u64(0..=second.closed);
    let kind = [CrashKind::Kill, CrashKind::Power][rng.usize(0..2)];
    let (world, mut driver) = recover(&second, at, kind, rng.u64(..)).map_err(|e| {
        let recent = recent_events(&second.model, at);
        format!("{kind:?} of the second life before tick {at}, after\n{recent}\n  {e}")
    })?;
    driver.close()?;
    no_violations(&world)
}

/// A crash at *every* tick of a short run, both kinds.
///
/// # Errors
/// The first wrong answer.
pub fn crash_everywhere(seed: u64) -> Result<(), Failure> {
    let recorded = record(seed, 14)?;
    for at in recorded.opened..=recorded.closed {
        for kind in [CrashKind::Kill, CrashKind::Power] {
            let (_, mut driver) = recover(&recorded, at, kind, seed ^ at)
                .map_err(|e| describe(&recorded, at, kind, seed ^ at, &e))?;
            driver.abandon();
        }
    }
    Ok(())
}

/// A crash at every tick of the first open: what is left opens as an empty store, or is refused
/// with a clear error and opens by force.
///
/// # Errors
/// A store that cannot be opened even by force, or that does not work.
pub fn crash_in_format(seed: u64) -> Result<(), Failure> {
    let recorded = record(seed, 0)?;
    for at in 0..=recorded.opened {
        for kind in [CrashKind::Kill, CrashKind::Power] {
            format_again(&recorded, at, kind, seed)
                .map_err(|e| describe(&recorded, at, kind, seed, &e))?;
        }
    }
    Ok(())
}

fn format_again(recorded: &Recorded, at: u64, kind: CrashKind, seed: u64) -> Result<(), Failure> {
    let disks = recorded.world.crash_at(at, kind, seed);
    let clock = Arc::clone(recorded.world.sim_clock());
    let world = SimWorld::start(&disks, &recorded.options, clock);
    let mut config = recorded.config.clone();
    let model = Model::new(Demand::Strict, config.durability);
    let mut driver = driver_on(&world, &config, model.clone());
    if driver.open().is_err() {
        config.force = true;
        driver = driver_on(&world, &config, model);
        driver.open().map_err(|e| format!("even by force: {e}"))?;
    }
    apply_all(&mut driver, Workload::new(Profile::crash(5, MIB), seed))?;
    driver.verify(true)?;
    driver.close()
}

/// Bits that turn over on disks at rest, anywhere: every answer is a genuine value of its key, and
/// what went missing is counted.
///
/// # Errors
/// A foreign byte, a panic, or a loss that no counter tells of.
pub fn bit_flips(seed: u64) -> Result<(), Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed ^ 0xb17);
    let recorded = record(seed, rng.usize(10..60))?;
    for _ in 0..4 {
        let kind = [CrashKind::Kill, CrashKind::Power][rng.usize(0..2)];
        let at =
            if rng.bool() { recorded.closed } else { rng.u64(recorded.opened..=recorded.closed) };
        let mut disks = recorded.world.crash_at(at, kind, rng.u64(..));
        let flipped = damage(&mut disks, rng);
        open_damaged(&recorded, &disks, at, kind)
            .map_err(|e| describe(&recorded, at, kind, 0, &format!("{e}\n  damage: {flipped}")))?;
    }
    Ok(())
}

/// Damages a disk where it was ever written; returns in words what was done.
fn damage(disks: &mut [SimDisk], rng: &mut fastrand::Rng) -> String {
    let disk = rng.usize(0..disks.len());
    let used = disks[disk].used_ranges(4096);
    if used.is_empty() {
        return "none".to_owned();
    }
    let mut said = Vec::new();
    for _ in 0..[1, 2, 20][rng.usize(0..3)] {
        let range = used[rng.usize(0..used.len())].clone();
        if rng.u8(0..8) == 0 {
            let start = rng.u64(range.start..range.end) / 512 * 512;
            let end = (start + 512 * rng.u64(1..64)).min(range.end);
            disks[disk].scribble(start..end, rng);
            said.push(format!("{start}..{end} scribbled"));
        } else {
            said.push(format!("{:?}", disks[disk].flip_bits(range, rng.u32(1..4), rng)));
        }
    }
    format!("disk {disk}: {}", said.join(", "))
}

fn open_damaged(
    recorded: &Recorded,
    disks: &[SimDisk],
    at: u64,
    kind: CrashKind,
) -> Result<(), Failure> {
    let clock = Arc::clone(recorded.world.sim_clock());
    let world = SimWorld::start(disks, &recorded.options, clock);
    let mut model = recorded.model.after_crash(at, kind);
    model.set_demand(Demand::Genuine);
    let mut driver = driver_on(&world, &recorded.config, model);
    driver.tolerant = true;
    // Both superblocks may be hit: a clear error is right then.
    if driver.open().is_err() {
        return Ok(());
    }
    driver.verify_recovered()?;
    apply_all(&mut driver, Workload::new(Profile::crash(10, MIB), at ^ 77))?;
    driver.verify(true)?;
    driver.close()?;
    no_violations(&world)
}

/// Random operations on disks that fail by plan, then a reopen on sound disks.
///
/// # Errors
/// A wrong answer, at any time.
pub fn faulty(seed: u64, plan: &FaultPlan, from_start: bool) -> Result<u64, Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed ^ 0xfa);
    let mut config = varied_config(rng, seed, false);
    config.memory_wait = Duration::from_millis(300);
    let count = rng.usize(1..=2);
    let disks = blank_disks(&mut config, count, TINY_BYTES);
    let mut options = options(rng, seed, false);
    if from_start {
        options.faults = plan.clone();
    }
    let world = SimWorld::start(&disks, &options, Arc::new(SimClock::new()));
    let model = Model::new(Demand::Fresh, config.durability);
    let mut driver = driver_on(&world, &config, model);
    driver.tolerant = true;
    if driver.open().is_err() && from_start {
        return Ok(0);
    }
    let profile = Profile { hold: true, ..Profile::crash(60, u64::MAX) };
    apply_all(&mut driver, Workload::new(profile.clone(), seed))?;
    world.set_faults(plan);
    for (version, op) in Workload::new(Profile { read_percent: 40, ops: 200, ..profile }, !seed) {
        driver.apply(1000 + version, &op).map_err(|e| format!("with faults: {e}"))?;
    }
    driver.verify(true).map_err(|e| format!("with faults: {e}"))?;
    let counted = crate::harness::fault_counters(driver.store());
    let fired: u64 = world.sims().iter().map(|d| d.faults_fired()).sum();
    if fired > 0 && counted == 0.0 {
        return Err(format!("{fired} faults and not one counter tells of them"));
    }
    let mut model = driver.model.after_crash(world.now(), CrashKind::Kill);
    let disks = world.snapshot();
    driver.abandon();
    no_violations(&world)?;
    // Without a journal, or with one that could not be written, nothing is promised for later: if the
    // object that replaced another could not be written either, the older one is back.
    if plan.mentions(OpKind::JournalWrite) || config.durability == Durability::None {
        model.set_demand(Demand::Genuine);
    }
    let sound = SimOptions { faults: FaultPlan::none(), ..options };
    let world = SimWorld::start(&disks, &sound, Arc::clone(world.sim_clock()));
    let mut driver = driver_on(&world, &config, model);
    let described = |e: Failure| format!("after the faults, {:?}: {e}", config.durability);
    driver.open().map_err(described)?;
    driver.verify_recovered().map_err(described)?;
    Ok(fired)
}
