//! A journal that goes round and round, life after life, of some of which no sync works, so that no
//! checkpoint is complete: nothing that was deleted comes back, and once a checkpoint is complete
//! again nothing is forgotten. Threads: a run is on one.

use std::sync::Arc;
use std::time::Duration;

use damelo::{Config, Durability};

use super::{MIB, blank_disks, clock, driver_on, no_violations, options, varied_config};
use crate::driver::{Driver, Failure};
use crate::fault::{Effect, FaultPlan, OpKind, Rule, When};
use crate::model::{Demand, Model};
use crate::trace::CrashKind;
use crate::workload::{Op, Profile, Workload};
use crate::{SimDisk, SimOptions, SimWorld};

const LIVES: u64 = 5;
/// A ring that these runs do not fill.
const DISK_BYTES: u64 = 24 * MIB;
/// A prefix that no key has. A half of the smallest journal has room for seven purges of it.
const PREFIX: [u8; 8_000] = [b'z'; 8_000];

/// One life of the store; returns what is left on its disks.
fn live(
    config: &Config,
    world: &SimWorld,
    model: &mut Model,
    (number, seed): (u64, u64),
) -> Result<Vec<SimDisk>, Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed);
    let mut driver = driver_on(world, config, model.clone());
    driver.open()?;
    driver.verify_recovered()?;
    let no_sync = Rule::new(&[OpKind::Sync], When::Always, Effect::Eio);
    let fails = rng.bool();
    let heals = rng.bool();
    work(&mut driver, number, rng)?;
    // More of them than turns of the journal.
    for _ in 0..rng.usize(0..5) {
        driver.apply(0, &Op::Checkpoint)?;
    }
    if fails {
        driver.tolerant = true;
        world.set_faults(&FaultPlan::new(vec![no_sync]));
        work(&mut driver, number + 100, rng)?;
    }
    let closes = rng.bool();
    if fails && heals {
        world.set_faults(&FaultPlan::none());
        driver.store().checkpoint().map_err(|e| format!("on a sound disk: {e}"))?;
    } else if fails {
        // Where no checkpoint is complete, all may be forgotten.
        driver.model.set_demand(Demand::Fresh);
    }
    if closes {
        let _ = driver.close();
    }
    *model = driver.model.after_crash(world.now(), CrashKind::Kill);
    let disks = world.snapshot();
    driver.abandon();
    no_violations(world)?;
    Ok(disks)
}

/// Some operations, with versions that no other part of the run has, and some turns of the journal.
fn work(driver: &mut Driver, part: u64, rng: &mut fastrand::Rng) -> Result<(), Failure> {
    let profile = Profile { hold: false, ..Profile::crash(rng.usize(1..25), MIB / 2) };
    for (version, op) in Workload::new(profile, rng.u64(..)) {
        if !matches!(op, Op::PurgeAll) {
            driver.apply(1_000 * part + version, &op)?;
        }
        if rng.u8(0..4) == 0 {
            for _ in 0..rng.usize(1..12) {
                driver.store().purge_prefix(&PREFIX).map_err(|e| e.to_string())?;
            }
        }
    }
    driver.verify(true)
}

/// Lives of a store whose journal goes round.
///
/// # Errors
/// The first wrong answer.
pub fn journal_rounds(seed: u64) -> Result<(), Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed ^ 0x707);
    let mut config = varied_config(rng, seed, false);
    if config.durability == Durability::None {
        config.durability = Durability::Flushed;
    }
    config.memory_wait = Duration::from_millis(300);
    config.volume_errors_max = rng.u32(1..4);
    let mut disks = blank_disks(&mut config, 1, DISK_BYTES);
    let options = options(rng, seed, false);
    let clock = clock(seed);
    let mut model = Model::new(Demand::Strict, config.durability);
    for number in 0..LIVES {
        let world = SimWorld::start(&disks, &options, Arc::clone(&clock));
        disks = live(&config, &world, &mut model, (number, rng.u64(..)))
            .map_err(|e| format!("life {number}, {:?}: {e}", config.durability))?;
    }
    let world = SimWorld::start(&disks, &SimOptions::new(seed), clock);
    let mut driver = driver_on(&world, &config, model);
    driver.open()?;
    driver.verify_recovered()?;
    driver.close()
}
