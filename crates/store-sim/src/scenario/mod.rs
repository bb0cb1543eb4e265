//! Whole runs, each a function of a seed, for the tests and the soak program.
//!
//! A scenario picks settings, disks, operations and crash points from its seed, and returns the
//! first wrong answer with a description. Threads: a scenario runs on one.

mod away;
mod crashes;
mod damage;
mod failing_opens;
mod odd;
mod one_of_several;
mod rounds;
mod unread;

use std::sync::Arc;
use std::time::Duration;

use damelo::{
    Admission, ByteSize, Config, DiskPolicyKind, Durability, IoEngine, Reinsertion,
    ResidencyPolicyKind, WhenMemoryFull,
};

pub use self::away::one_away;
pub use self::crashes::{
    Recorded, crash, crash_everywhere, crash_in_format, crash_often, crash_reopened, crash_wrapped,
    record, recover, replay_exactly,
};
pub use self::damage::{bit_flips, faulty};
pub use self::failing_opens::fault_in_open;
pub use self::odd::{crash_odd, model_odd};
pub use self::one_of_several::one_of_several;
pub use self::rounds::journal_rounds;
pub use self::unread::unread;
use crate::driver::{Driver, Failure, Place};
use crate::model::{Demand, Model};
use crate::trace::Ticks;
use crate::workload::{Op, Profile, Workload, is_even};
use crate::{Completion, SimClock, SimDisk, SimOptions, SimWorld};

const MIB: u64 = 1 << 20;
/// A ring of few segments, so that it wraps within one run.
const TINY_BYTES: u64 = 8 * MIB;
/// A ring that strict runs never fill, whatever their syncs waste.
const ROOMY_BYTES: u64 = 48 * MIB;

/// The smallest store that works: 16 KiB pages (32 for the seeds with objects of one length), 256
/// KiB segments, 4 MiB of memory.
pub fn tiny_config(seed: u64) -> Config {
    let mut config = Config::new("sim-0", ByteSize::new(TINY_BYTES));
    config.memory = ByteSize::new(4 * MIB);
    config.objects_max = Some(4096);
    config.page = Some(ByteSize::new(if is_even(seed) { 32 << 10 } else { 16 << 10 }));
    config.segment = Some(ByteSize::new(256 << 10));
    config.object_bytes_max = ByteSize::new(2 * MIB);
    config.memory_wait = Duration::from_secs(5);
    config.seed = Some(seed);
    config
}

/// Two seeds in five run a store without threads of its own, on a still clock and devices that
/// complete I/O at once: such a run is exactly repeatable, and so is its failure. The other seeds
/// keep the store's threads, since some defects appear only with their scheduling.
fn is_alone(seed: u64) -> bool {
    seed % 5 >= 3
}

fn clock(seed: u64) -> Arc<SimClock> {
    Arc::new(if is_alone(seed) { SimClock::still() } else { SimClock::new() })
}

/// Random periods and policies. Policies that may refuse objects are used only with `wild`.
fn varied_config(rng: &mut fastrand::Rng, seed: u64, wild: bool) -> Config {
    let mut config = tiny_config(seed);
    config.background = !is_alone(seed);
    // Half of the runs have tag collisions now and then, as on the largest volumes.
    config.tags_alone = seed.is_multiple_of(2);
    config.flush_period = Duration::from_millis([0, 1, 50, 5000][rng.usize(0..4)]);
    config.checkpoint_period = Duration::from_millis([0, 2, 100, 30_000][rng.usize(0..4)]);
    config.durability =
        [Durability::None, Durability::Flushed, Durability::Synced][rng.usize(0..3)];
    config.residency = ResidencyPolicyKind::ALL[rng.usize(..ResidencyPolicyKind::ALL.len())];
    config.queue_depth = [1, 4, 64][rng.usize(0..3)];
    if wild {
        config.disk_policy = DiskPolicyKind::ALL[rng.usize(..DiskPolicyKind::ALL.len())];
        config.admission = [
            Admission::Always,
            Admission::SecondHit,
            Admission::SizeMax { bytes: 20_000 },
            Admission::Probability { percent: 70 },
        ][rng.usize(0..4)];
        let used = Reinsertion::Used { hits_min: 2 };
        config.reinsertion =
            [Reinsertion::Worthy, Reinsertion::Worthy, used, Reinsertion::Never][rng.usize(0..4)];
        config.objects_max = Some([64, 512, 4096][rng.usize(0..3)]);
        config.groups_tracked_max = [4, 65_536][rng.usize(0..2)];
        config.when_memory_full = [WhenMemoryFull::Wait, WhenMemoryFull::Refuse][rng.usize(0..2)];
    }
    config
}

fn options(rng: &mut fastrand::Rng, seed: u64, history: bool) -> SimOptions {
    let completion = [Completion::Inline, Completion::Queued][rng.usize(0..2)];
    SimOptions {
        completion: if is_alone(seed) { Completion::Inline } else { completion },
        block_bytes: [512, 4096][rng.usize(0..2)],
        seeks: rng.u8(0..4) == 0,
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

/// The same, with a clean close and another open after each `every` of them, if given.
fn apply_reopening(
    driver: &mut Driver,
    ops: impl Iterator<Item = (u64, Op)>,
    every: Option<u64>,
) -> Result<(), Failure> {
    for (version, op) in ops {
        driver.apply(version, &op)?;
        if every.is_some_and(|every| version.is_multiple_of(every)) {
            driver.apply(version, &Op::Reopen)?;
        }
    }
    Ok(())
}

/// A life of a store: the operations, a look at everything, and another after a clean close.
fn live(driver: &mut Driver, workload: Workload) -> Result<(), Failure> {
    driver.open()?;
    apply_all(driver, workload)?;
    driver.verify(true)?;
    found_sound(driver)?;
    driver.close()?;
    driver.open()?;
    driver.verify_recovered()?;
    found_sound(driver)?;
    driver.close()
}

/// What a store on sound disks takes for damaged is its own mistake, though the model allows the
/// miss.
fn found_sound(driver: &Driver) -> Result<(), Failure> {
    match driver.store().stats().damaged_records {
        0 => Ok(()),
        count => Err(format!("{count} records count as damaged on sound disks")),
    }
}

/// One run on up to `disks_max` simulated disks of this size.
fn model_run(
    seed: u64,
    (disks_max, disk_bytes): (usize, u64),
    demand: Demand,
    profile: Profile,
) -> Result<(), Failure> {
    shaped_run(seed, (disks_max, disk_bytes), demand, profile, |_| ())
}

/// The same of a store of another shape.
fn shaped_run(
    seed: u64,
    (disks_max, disk_bytes): (usize, u64),
    demand: Demand,
    profile: Profile,
    shape: impl FnOnce(&mut Config),
) -> Result<(), Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed);
    let mut config = varied_config(rng, seed, matches!(demand, Demand::Fresh));
    shape(&mut config);
    let count = rng.usize(1..=disks_max);
    let disks = blank_disks(&mut config, count, disk_bytes);
    let options = options(rng, seed, false);
    let world = SimWorld::start(&disks, &options, clock(seed));
    let model = Model::new(demand, config.durability);
    let mut driver = driver_on(&world, &config, model).with_long_keys(true);
    live(&mut driver, Workload::new(profile, seed))?;
    no_violations(&world)
}

fn no_violations(world: &SimWorld) -> Result<(), Failure> {
    match world.violations() {
        list if list.is_empty() => Ok(()),
        list => Err(format!("the store misused its device: {}", list.join("; "))),
    }
}

/// Random operations on a ring that wraps many times, with all policies: no answer is ever wrong,
/// though much is forgotten.
///
/// # Errors
/// The first wrong answer.
pub fn model_wild(seed: u64) -> Result<(), Failure> {
    model_run(seed, (3, TINY_BYTES), Demand::Fresh, Profile::wild(700))
}

/// As [`model_wild`], of long objects that are read in parts. They lie in parts of an eighth of a
/// mebibyte, or in extents of up to half of one.
///
/// # Errors
/// The first wrong answer.
pub fn model_parts(seed: u64) -> Result<(), Failure> {
    let is_in_extents = (seed / 2).is_multiple_of(2);
    let profile = Profile { keys: if is_in_extents { 4 } else { 16 }, ..Profile::parts(600) };
    let segment = if is_in_extents { MIB } else { MIB / 4 };
    let shape = |config: &mut Config| config.segment = Some(ByteSize::new(segment));
    shaped_run(seed, (1, 10 * MIB), Demand::Fresh, profile, shape)
}

/// Random operations with room for everything: nothing is forgotten, even over clean closes.
///
/// # Errors
/// The first wrong answer.
pub fn model_strict(seed: u64) -> Result<(), Failure> {
    model_run(seed, (2, ROOMY_BYTES), Demand::Strict, Profile::modest(300, 6 * MIB))
}

/// The same as [`model_wild`] on a real file, with long objects that are read in parts for every
/// other seed.
///
/// # Errors
/// The first wrong answer.
pub fn model_file(seed: u64, engine: IoEngine) -> Result<(), Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed);
    let directory = tempfile::tempdir().map_err(|e| e.to_string())?;
    let mut config = varied_config(rng, seed, true);
    // The devices have threads in any case.
    config.background = true;
    config.volumes[0].path = directory.path().join("volume");
    config.io_engine = engine;
    config.direct = rng.bool();
    let model = Model::new(Demand::Fresh, config.durability);
    let ticks = Arc::new(Ticks::default());
    let mut driver = Driver::new(config, Place::Files, ticks, model).with_long_keys(true);
    let profile = if seed.is_multiple_of(2) { Profile::parts(400) } else { Profile::wild(500) };
    live(&mut driver, Workload::new(profile, seed))
}
