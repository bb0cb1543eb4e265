//! A store of several disks of which one, never the first, is away for whole lives, and is back
//! with all that it had: blank in its place, or dead. Lives end by a close, a kill or a loss of
//! power, and newest checkpoints are damaged in between. Threads: a run is on one.

use std::sync::Arc;
use std::time::Duration;

use damelo::{Config, Durability};

use super::unread::damage_checkpoints;
use super::{
    MIB, TINY_BYTES, blank_disks, clock, driver_on, no_violations, options, varied_config,
};
use crate::driver::{Driver, Failure};
use crate::fault::{Effect, FaultPlan, OpKind, Rule, When};
use crate::model::{Demand, Model};
use crate::trace::CrashKind;
use crate::workload::{Op, Profile, Workload};
use crate::{SimDisk, SimOptions, SimWorld};

const LIVES: u64 = 7;

/// Operations, with versions that no other part of the run has.
fn work(driver: &mut Driver, part: u64, rng: &mut fastrand::Rng) -> Result<(), Failure> {
    let profile = Profile { keys: 60, ..Profile::crash(rng.usize(5..90), u64::MAX) };
    for (version, op) in Workload::new(profile, rng.u64(..)) {
        match op {
            // Refreshed metadata may be lost with the disk that has them, and the older be back.
            Op::SetMetadata { .. } => {}
            Op::PurgeAll if rng.u8(0..4) > 0 => {}
            op => driver.apply(1_000 * part + version, &op)?,
        }
        if rng.u8(0..40) == 0 {
            driver.apply(0, &Op::Checkpoint)?;
        }
    }
    driver.verify(true)
}

/// The disks as this life finds them, in which one may be away.
fn world(
    disks: &[SimDisk],
    away: Option<usize>,
    options: &SimOptions,
    clock: &Arc<crate::SimClock>,
    rng: &mut fastrand::Rng,
) -> SimWorld {
    let mut disks = disks.to_vec();
    let is_dead = rng.bool();
    if let Some(at) = away.filter(|_| !is_dead) {
        disks[at] = SimDisk::blank(disks[at].size_bytes());
    }
    let world = SimWorld::start(&disks, options, Arc::clone(clock));
    if let Some(at) = away.filter(|_| is_dead) {
        let rule = Rule::new(OpKind::ALL, When::Always, Effect::Eio);
        world.sims()[at].set_faults(FaultPlan::new(vec![rule]));
    }
    world
}

/// One life; returns what is left on the disks, without the one that is away.
fn live(
    config: &Config,
    world: &SimWorld,
    model: &Model,
    number: u64,
    rng: &mut fastrand::Rng,
) -> Result<(Vec<SimDisk>, Model), Failure> {
    let mut driver = driver_on(world, config, model.clone());
    driver.open()?;
    if rng.u8(0..4) > 0 {
        driver.verify_recovered()?;
    }
    work(&mut driver, 2 * number, rng)?;
    if rng.bool() {
        driver.apply(0, &Op::DropMemory)?;
        work(&mut driver, 2 * number + 1, rng)?;
    }
    let kind = if rng.u8(0..3) == 0 { CrashKind::Power } else { CrashKind::Kill };
    if rng.bool() {
        driver.close()?;
    }
    let model = driver.model.after_crash(world.now(), kind);
    let disks = world.crash(kind, rng.u64(..));
    driver.abandon();
    no_violations(world)?;
    Ok((disks, model))
}

/// Lives with and without one of the disks.
///
/// # Errors
/// Something that was removed or replaced came back, or another wrong answer.
pub fn one_away(seed: u64) -> Result<(), Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed ^ 0xa3a1);
    let mut config = varied_config(rng, seed, false);
    if config.durability == Durability::None {
        config.durability = Durability::Flushed;
    }
    config.memory_wait = Duration::from_millis(300);
    config.without_missing = true;
    let count = rng.usize(2..=3);
    let mut disks = blank_disks(&mut config, count, TINY_BYTES - MIB * rng.u64(0..3));
    let options = options(rng, seed, true);
    let clock = clock(seed);
    let mut model = Model::new(Demand::Fresh, config.durability);
    for number in 0..LIVES {
        let may_go = number > 0 && number + 1 < LIVES && rng.bool();
        let away = may_go.then(|| rng.usize(1..count));
        let world = world(&disks, away, &options, &clock, rng);
        let (left, after) = live(&config, &world, &model, number, rng)
            .map_err(|e| format!("life {number}, away {away:?}, {:?}: {e}", config.durability))?;
        for (at, disk) in left.into_iter().enumerate() {
            if away != Some(at) {
                disks[at] = disk;
            }
        }
        model = after;
        if rng.u8(0..3) == 0 {
            damage_checkpoints(&mut disks[0], rng.usize(1..=2), rng);
        }
    }
    Ok(())
}
