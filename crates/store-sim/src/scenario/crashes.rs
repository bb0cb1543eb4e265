//! Runs that are recorded, crashed at some or every tick, and recovered from.

use std::sync::Arc;

use damelo::{Config, Durability};

use super::{
    MIB, apply_all, apply_reopening, blank_disks, clock, driver_on, no_violations, options,
    varied_config,
};
use crate::driver::{Driver, Failure};
use crate::model::{Demand, Model};
use crate::trace::CrashKind;
use crate::workload::{Op, Profile, Workload};
use crate::{SimOptions, SimWorld};

/// A ring that strict runs never fill, for runs of a few dozen operations.
const CRASH_BYTES: u64 = 16 * MIB;

/// A ring of half a dozen segments.
const WRAP_BYTES: u64 = 6 * MIB;

/// Crashes in a row.
const LIVES: u64 = 8;

/// Crash points tried for each run.
const CRASHES_PER_RUN: usize = 6;

/// A run of a few operations with the full history of its disks, to be crashed at any tick.
pub struct Recorded {
    /// Settings of the store.
    pub config: Config,
    /// Behaviour of its disks.
    pub options: SimOptions,
    /// The machine.
    pub world: SimWorld,
    /// The acknowledgements and their ticks.
    pub model: Model,
    /// Number of operations after which the store was closed and reopened, if any.
    pub reopened_every: Option<u64>,
    /// Tick at which the first open had returned.
    pub opened: u64,
    /// Tick at which close had returned.
    pub closed: u64,
}

/// Records a run, ending with a clean close.
///
/// # Errors
/// A wrong answer before any crash.
pub fn record(seed: u64, ops: usize) -> Result<Recorded, Failure> {
    record_on(seed, Demand::Strict, CRASH_BYTES, Profile::crash(ops, 2 * MIB), None)
}

fn record_on(
    seed: u64,
    demand: Demand,
    disk_bytes: u64,
    profile: Profile,
    reopened_every: Option<u64>,
) -> Result<Recorded, Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed);
    let mut config = varied_config(rng, seed, false);
    let count = rng.usize(1..=2);
    let disks = blank_disks(&mut config, count, disk_bytes);
    let options = options(rng, seed, true);
    let world = SimWorld::start(&disks, &options, clock(seed));
    let model = Model::new(demand, config.durability);
    let mut driver = driver_on(&world, &config, model);
    driver.open()?;
    let opened = world.now();
    apply_reopening(&mut driver, Workload::new(profile, seed), reopened_every)?;
    driver.close()?;
    no_violations(&world)?;
    let (model, closed) = (driver.model.clone(), world.now());
    drop(driver);
    Ok(Recorded { config, options, world, model, reopened_every, opened, closed })
}

/// A run without threads of the store's own is repeatable: the same events, the same bytes.
///
/// # Errors
/// The first difference between the two runs, or a wrong answer.
pub fn replay_exactly(seed: u64) -> Result<(), Failure> {
    let run = || record(5 * seed + 3, 60);
    let (one, other) = (run()?, run()?);
    let ticks = |run: &Recorded| (run.opened, run.closed);
    if ticks(&one) != ticks(&other) {
        return Err(format!("disk events {:?}, then {:?}", ticks(&one), ticks(&other)));
    }
    // At a moment in the middle, too, with what is lost there by chance.
    let middle = (one.opened + one.closed) / 2;
    let images = |run: &Recorded| run.world.crash_at(middle, CrashKind::Power, seed);
    if images(&one) != images(&other) || one.world.snapshot() != other.world.snapshot() {
        return Err("other bytes on the disks".to_owned());
    }
    Ok(())
}

/// Opens the store on the image of a crash, and checks everything.
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

/// A crash at some ticks of a run, operations after it, and a second crash, perhaps during
/// recovery.
///
/// # Errors
/// The first wrong answer, with the crash that led to it.
pub fn crash(seed: u64) -> Result<(), Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed ^ 0xc4a5);
    let recorded = record(seed, rng.usize(6..50))?;
    crash_somewhere(&recorded, rng)
}

/// The same on a ring so small that it has wrapped before the crash: objects removed, replaced or
/// purged must not come back from a segment that was released but not overwritten yet.
///
/// # Errors
/// The first wrong answer, with the crash that led to it.
pub fn crash_wrapped(seed: u64) -> Result<(), Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed ^ 0x4a9);
    let ops = rng.usize(100..350);
    crash_on_small_ring(seed, ops, None, rng)
}

/// Lives of a few operations with clean closes between them, each of which goes on in the segments
/// of the one before: on a large ring nothing is forgotten, on a small one nothing comes back.
///
/// # Errors
/// The first wrong answer, with the crash that led to it.
pub fn crash_reopened(seed: u64) -> Result<(), Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed ^ 0x0fe2);
    let every = Some(rng.u64(1..12));
    if rng.bool() {
        let profile = Profile::crash(rng.usize(12..90), 2 * MIB);
        let recorded = record_on(seed, Demand::Strict, CRASH_BYTES, profile, every)?;
        return crash_somewhere(&recorded, rng);
    }
    let ops = rng.usize(60..200);
    crash_on_small_ring(seed, ops, every, rng)
}

/// Many lives in a row of few operations on few keys, each ended by a crash: what one of them left
/// on disk unseen must not come to light in a later one.
///
/// # Errors
/// The first wrong answer, with the crash that led to it.
pub fn crash_often(seed: u64) -> Result<(), Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed ^ 0x07e1);
    let length_max = [600, 6_000, 25_000, 300_000][rng.usize(0..4)];
    let short = |rng: &mut fastrand::Rng| {
        let crash = Profile::crash(rng.usize(1..9), MIB);
        Profile { keys: 4, groups: 1, length_max, large_one_in: 3, ..crash }
    };
    let mut recorded = record_on(seed, Demand::Strict, CRASH_BYTES, short(rng), None)?;
    for life in 1..=LIVES {
        let at = rng.u64(recorded.opened..=recorded.closed);
        let kind = [CrashKind::Kill, CrashKind::Power][rng.usize(0..2)];
        let image_seed = rng.u64(..);
        let (world, mut driver) = recover(&recorded, at, kind, image_seed).map_err(|e| {
            format!("life {life}: {}", describe(&recorded, at, kind, image_seed, &e))
        })?;
        let more = Workload::new(short(rng), image_seed);
        let more = more.map(|(version, op)| (1000 * life + version, op));
        let sync = rng.bool().then_some((1000 * life, Op::Sync));
        apply_reopening(&mut driver, more.chain(sync), None)
            .map_err(|e| format!("life {life}: {e}"))?;
        recorded = crashed_next(&recorded, world, driver)?;
    }
    Ok(())
}

/// The record of a life that followed a crash; it is not closed.
fn crashed_next(
    before: &Recorded,
    world: SimWorld,
    mut driver: Driver,
) -> Result<Recorded, Failure> {
    let (model, closed) = (driver.model.clone(), world.now());
    driver.abandon();
    no_violations(&world)?;
    let (config, options) = (before.config.clone(), before.options.clone());
    let reopened_every = before.reopened_every;
    Ok(Recorded { config, options, world, model, reopened_every, opened: 0, closed })
}

/// Records a run on a ring so small that it wraps.
pub(super) fn record_wrapped(
    seed: u64,
    ops: usize,
    reopened_every: Option<u64>,
) -> Result<Recorded, Failure> {
    let crash = Profile::crash(ops, u64::MAX);
    let profile = Profile { keys: 60, large_one_in: 5, read_percent: 20, ..crash };
    record_on(seed, Demand::Fresh, WRAP_BYTES, profile, reopened_every)
}

fn crash_on_small_ring(
    seed: u64,
    ops: usize,
    reopened_every: Option<u64>,
    rng: &mut fastrand::Rng,
) -> Result<(), Failure> {
    let recorded = record_wrapped(seed, ops, reopened_every)?;
    // Without a journal an older version may come back after a crash, which is what is promised.
    match recorded.config.durability {
        Durability::None => Ok(()),
        _ => crash_somewhere(&recorded, rng),
    }
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

pub(super) fn describe(
    recorded: &Recorded,
    at: u64,
    kind: CrashKind,
    image: u64,
    error: &str,
) -> Failure {
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
    let more = more.map(|(version, op)| (1000 + version, op));
    apply_reopening(&mut driver, more, recorded.reopened_every)
        .map_err(|e| format!("second life: {e}"))?;
    let second = crashed_next(recorded, world, driver)?;
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
/// with a clear error and can be made anew.
///
/// # Errors
/// A store that cannot even be made anew, or that does not work.
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
        config.anew = true;
        driver = driver_on(&world, &config, model);
        driver.open().map_err(|e| format!("even anew: {e}"))?;
    }
    apply_all(&mut driver, Workload::new(Profile::crash(5, MIB), seed))?;
    driver.verify(true)?;
    driver.close()
}
