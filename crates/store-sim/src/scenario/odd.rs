//! Loads and stores of odd shapes, which the other scenarios hardly reach: the smallest stores and
//! objects as large as they take, one group or hundreds, volumes of unequal size, and mostly
//! streams that are given up, new metadata, or objects that expire soon. Threads: a run is on one.

use std::sync::Arc;

use damelo::{ByteSize, Config, Durability};

use super::{MIB, apply_all, clock, driver_on, live, no_violations, options, varied_config};
use crate::driver::Failure;
use crate::model::{Demand, Model};
use crate::trace::CrashKind;
use crate::workload::{Favours, Profile, Workload};
use crate::{SimDisk, SimOptions, SimWorld};

/// Crashes of each run.
const CRASHES: usize = 3;

/// A store on one to four volumes of any size from the smallest on.
fn odd_store(rng: &mut fastrand::Rng, seed: u64) -> (Config, Vec<SimDisk>) {
    let wild = rng.bool();
    let mut config = varied_config(rng, seed, wild);
    config.object_bytes_max = ByteSize::new(16 * MIB);
    config.reinsert_percent_max = [0, 20, 90][rng.usize(0..3)];
    let volume = config.volumes[0].clone();
    let mut disks = Vec::new();
    config.volumes.clear();
    for number in 0..rng.usize(1..=4) {
        // The first has journal and checkpoints.
        let least = if number == 0 { 6 * MIB } else { 3 * MIB / 2 };
        let bytes = least + rng.u64(0..4 * MIB) / 4096 * 4096;
        let mut volume = volume.clone();
        volume.path = format!("sim-{number}").into();
        volume.size = Some(ByteSize::new(bytes));
        config.volumes.push(volume);
        disks.push(SimDisk::blank(bytes));
    }
    (config, disks)
}

fn odd_load(rng: &mut fastrand::Rng, ops: usize) -> Profile {
    const ALL: [Favours; 4] =
        [Favours::Nothing, Favours::Streams, Favours::Metadata, Favours::Expiry];
    Profile {
        keys: [8, 40, 300][rng.usize(0..3)],
        groups: [1, 2, 300][rng.usize(0..3)],
        length_max: [600, 70_000, 400_000, 4 * MIB][rng.usize(0..4)],
        large_one_in: [1, 3, 1_000][rng.usize(0..3)],
        read_percent: [10, 40, 70][rng.usize(0..3)],
        favours: ALL[rng.usize(0..ALL.len())],
        ..Profile::wild(ops)
    }
}

/// A load of an odd shape on an odd store: no answer is ever wrong.
///
/// # Errors
/// The first wrong answer.
pub fn model_odd(seed: u64) -> Result<(), Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed ^ 0x0dd);
    let (config, disks) = odd_store(rng, seed);
    let profile = odd_load(rng, 400);
    let described = |e: Failure| format!("{:?}: {e}", (sizes(&config), &profile));
    let world = SimWorld::start(&disks, &options(rng, seed, false), clock(seed));
    let model = Model::new(Demand::Fresh, config.durability);
    let mut driver = driver_on(&world, &config, model).with_long_keys(true);
    live(&mut driver, Workload::new(profile.clone(), seed)).map_err(described)?;
    no_violations(&world)
}

/// The same with a crash at some ticks.
///
/// # Errors
/// The first wrong answer, with the crash that led to it.
pub fn crash_odd(seed: u64) -> Result<(), Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed ^ 0x0ddc);
    let (config, disks) = odd_store(rng, seed);
    let profile = Profile { hold: false, reopen: false, ..odd_load(rng, 150) };
    let settings = options(rng, seed, true);
    let world = SimWorld::start(&disks, &settings, clock(seed));
    let model = Model::new(Demand::Fresh, config.durability);
    let mut driver = driver_on(&world, &config, model).with_long_keys(true);
    driver.open()?;
    let opened = world.now();
    apply_all(&mut driver, Workload::new(profile.clone(), seed))?;
    driver.close()?;
    let (model, closed) = (driver.model.clone(), world.now());
    drop(driver);
    no_violations(&world)?;
    // Without a journal an older version may come back, which is what is promised.
    let crashes = if config.durability == Durability::None { 0 } else { CRASHES };
    for _ in 0..crashes {
        let at = rng.u64(opened..=closed);
        let kind = [CrashKind::Kill, CrashKind::Power][rng.usize(0..2)];
        let disks = world.crash_at(at, kind, rng.u64(..));
        recovered(&config, &disks, &settings, &world, model.after_crash(at, kind)).map_err(
            |e| {
                let shape = (sizes(&config), &profile);
                format!("{kind:?} before tick {at} of {opened}..{closed}, {shape:?}: {e}")
            },
        )?;
    }
    Ok(())
}

fn recovered(
    config: &Config,
    disks: &[SimDisk],
    settings: &SimOptions,
    before: &SimWorld,
    model: Model,
) -> Result<(), Failure> {
    let world = SimWorld::start(disks, settings, Arc::clone(before.sim_clock()));
    let mut driver = driver_on(&world, config, model).with_long_keys(true);
    driver.open()?;
    driver.verify_recovered()?;
    driver.close()?;
    no_violations(&world)
}

fn sizes(config: &Config) -> Vec<u64> {
    config.volumes.iter().filter_map(|volume| volume.size.map(ByteSize::bytes)).collect()
}
