//! Stores on several disks of which one fails at a time, over several lives.

use std::sync::Arc;
use std::time::Duration;

use damelo::{Config, Durability, GroupId, Store};

use super::{
    MIB, TINY_BYTES, blank_disks, clock, driver_on, no_violations, options, varied_config,
};
use crate::driver::{Driver, Failure, chain};
use crate::fault::{Effect, FaultPlan, OpKind, Rule, When};
use crate::model::{Demand, Model};
use crate::trace::CrashKind;
use crate::workload::{Op, Profile, Workload};
use crate::{SimDisk, SimOptions, SimWorld};

/// Lives in a row, each ended by a kill or a clean close.
const LIVES: u64 = 4;

/// Length of objects that fill the disks.
const BESIDE_BYTES: usize = 60_000;

/// What fails of a disk. Journal records are always written: without them nothing is promised.
const TROUBLES: [&[OpKind]; 5] = [
    &[OpKind::Read],
    &[OpKind::Write],
    &[OpKind::Sync],
    &[OpKind::Read, OpKind::Write],
    &[OpKind::Read, OpKind::Write, OpKind::Sync],
];

/// A life on these disks, one of which fails: from the open on, or later; for good, or for a while.
struct Life {
    number: u64,
    seed: u64,
    disk: usize,
    plan: FaultPlan,
    from_start: bool,
    heals: bool,
}

impl Life {
    fn new(number: u64, disks: usize, rng: &mut fastrand::Rng) -> Life {
        let when = match rng.u8(0..4) {
            0 => When::Chance(0.1),
            1 => When::Chance(0.5),
            _ => When::Always,
        };
        let ops = TROUBLES[rng.usize(0..TROUBLES.len())];
        let effect = [Effect::Eio, Effect::Short][rng.usize(0..2)];
        Life {
            number,
            seed: rng.u64(..),
            disk: rng.usize(0..disks),
            plan: FaultPlan::new(vec![Rule::new(ops, when, effect)]),
            from_start: rng.bool(),
            heals: rng.bool(),
        }
    }

    fn describe(&self, error: &str) -> Failure {
        let Life { number, disk, plan, from_start, heals, .. } = self;
        format!(
            "life {number}, disk {disk} {plan:?}, from start {from_start}, heals {heals}: {error}"
        )
    }

    /// Some operations on few keys, with versions that no other part of the run has.
    fn work(&self, driver: &mut Driver, part: u64) -> Result<(), Failure> {
        let crash = Profile::crash(60, u64::MAX);
        let profile = Profile { keys: 40, read_percent: 30, large_one_in: 5, ..crash };
        let before = 10_000 * self.number + 1_000 * part;
        for (version, op) in Workload::new(profile, self.seed ^ part) {
            driver.apply(before + version, &op)?;
        }
        driver.verify(true)
    }
}

/// Random operations, lives and faults. Returns how many faults were hit.
///
/// # Errors
/// A wrong answer, at any time.
pub fn one_of_several(seed: u64) -> Result<u64, Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed ^ 0x15e);
    let mut config = varied_config(rng, seed, false);
    if config.durability == Durability::None {
        config.durability = Durability::Flushed;
    }
    config.memory_wait = Duration::from_millis(300);
    config.volume_errors_max = [1, 4, 16, u32::MAX][rng.usize(0..4)];
    let count = rng.usize(2..=3);
    let mut disks = blank_disks(&mut config, count, TINY_BYTES - MIB * rng.u64(0..3));
    let options = options(rng, seed, false);
    let clock = clock(seed);
    let mut model = Model::new(Demand::Fresh, config.durability);
    let mut fired = 0;
    for number in 0..LIVES {
        let life = Life::new(number, count, rng);
        let world = SimWorld::start(&disks, &options, Arc::clone(&clock));
        (disks, model) = live(&life, &config, &world, model).map_err(|e| life.describe(&e))?;
        fired += world.sims().iter().map(|disk| disk.faults_fired()).sum::<u64>();
    }
    let world = SimWorld::start(&disks, &SimOptions::new(seed), clock);
    let mut driver = driver_on(&world, &config, model);
    driver.open()?;
    driver.verify_recovered()?;
    driver.close()?;
    Ok(fired)
}

/// Creates more than all disks hold, none of which the model knows: without the one that is out of
/// service the others take it, and the newest is there.
fn goes_on(store: &Store, disks: usize) -> Result<(), Failure> {
    // What was dropped before is told now.
    let _ = store.sync();
    let mut newest = None;
    for number in 0..disks as u64 * TINY_BYTES / BESIDE_BYTES as u64 {
        let key = format!("beside/{number}");
        // Refused where memory does not come free in time.
        let created = store.create(key.as_bytes(), GroupId::new(u64::MAX), &[7; BESIDE_BYTES]);
        newest = created.wait().ok().map(|()| key).or(newest);
    }
    let Some(key) = newest else { return Ok(()) };
    store.sync().map_err(|error| format!("without one of the disks: {}", chain(&error)))?;
    store.drop_memory();
    match store.read(key.as_bytes()).wait() {
        Ok(None) => Err(format!("without one of the disks: {key} is lost")),
        Ok(Some(_)) | Err(_) => Ok(()),
    }
}

fn live(
    life: &Life,
    config: &Config,
    world: &SimWorld,
    model: Model,
) -> Result<(Vec<SimDisk>, Model), Failure> {
    let fail = |plan: &FaultPlan| world.sims()[life.disk].set_faults(plan.clone());
    if life.from_start && life.number > 0 {
        fail(&life.plan);
    }
    let mut driver = driver_on(world, config, model.clone());
    driver.tolerant = true;
    if driver.open().is_err() {
        driver.abandon();
        return Ok((world.snapshot(), model.after_crash(world.now(), CrashKind::Kill)));
    }
    life.work(&mut driver, 0)?;
    fail(&life.plan);
    life.work(&mut driver, 1)?;
    driver.apply(0, &Op::DropMemory)?;
    life.work(&mut driver, 2)?;
    if life.heals {
        fail(&FaultPlan::none());
        life.work(&mut driver, 3)?;
    }
    if driver.store().stats().volumes_out == 1 {
        goes_on(driver.store(), world.sims().len())?;
    }
    if life.seed.is_multiple_of(3) {
        // Fails with a disk that is out of order; what follows is a crash then.
        let _ = driver.close();
    }
    let model = driver.model.after_crash(world.now(), CrashKind::Kill);
    driver.abandon();
    no_violations(world)?;
    Ok((world.snapshot(), model))
}
