//! Stores that recover without seeing all that is on their disks, and go on: reads fail for the
//! time of one open, or the index is too small. Then the newest checkpoint is damaged, and the disk
//! can be read again. What was removed or replaced meanwhile stays so, though the store did not
//! know of it. Threads: a run is on one.

use std::sync::Arc;
use std::time::Duration;

use damelo::format::{CheckpointHeader, Superblock};
use damelo::{Config, Durability};

use super::{MIB, blank_disks, clock, driver_on, no_violations, options, varied_config};
use crate::driver::{Driver, Failure};
use crate::fault::{Effect, FaultPlan, OpKind, Rule, When};
use crate::model::{Demand, Model};
use crate::trace::CrashKind;
use crate::workload::{NewObject, Op, Profile, Workload};
use crate::{SimDisk, SimOptions, SimWorld};

/// A ring that these runs do not fill.
const DISK_BYTES: u64 = 24 * MIB;
const KEYS: usize = 90;

/// Operations, with versions that no other part of the run has.
fn work(driver: &mut Driver, part: u64, rng: &mut fastrand::Rng) -> Result<(), Failure> {
    let profile = Profile { keys: KEYS, ..Profile::crash(rng.usize(20..120), 4 * MIB) };
    for (version, op) in Workload::new(profile, rng.u64(..)) {
        match op {
            // Else hardly anything would be left to come back.
            Op::PurgeAll | Op::PurgeGroup(_) | Op::PurgePrefix(_) => {}
            // Where the newer cannot be read, the older may be back.
            Op::SetMetadata { .. } => {}
            op => driver.apply(1_000 * part + version, &op)?,
        }
    }
    Ok(())
}

/// Ends a life as a kill does.
fn kill(world: &SimWorld, mut driver: Driver) -> Result<(Vec<SimDisk>, Model), Failure> {
    let model = driver.model.after_crash(world.now(), CrashKind::Kill);
    let disks = world.snapshot();
    driver.abandon();
    no_violations(world)?;
    Ok((disks, model))
}

/// The life in which all is written.
fn fill(world: &SimWorld, config: &Config, rng: &mut fastrand::Rng) -> Result<Driver, Failure> {
    let mut driver = driver_on(world, config, Model::new(Demand::Fresh, config.durability));
    driver.open()?;
    work(&mut driver, 1, rng)?;
    if rng.u8(0..4) > 0 {
        driver.apply(0, &Op::Checkpoint)?;
    }
    work(&mut driver, 2, rng)?;
    driver.apply(0, &Op::Sync)?;
    Ok(driver)
}

/// The life that does not know all of it.
fn go_on(
    world: &SimWorld,
    config: &Config,
    model: Model,
    rng: &mut fastrand::Rng,
) -> Result<Driver, Failure> {
    let mut driver = driver_on(world, config, model);
    driver.tolerant = true;
    let superblock = Superblock::decode(world.snapshot()[0].bytes()).map_err(|e| e.to_string())?;
    let segments = superblock.segments_offset..DISK_BYTES;
    let when = [When::Always, When::Chance(0.5), When::Chance(0.0)][rng.usize(0..3)];
    let unread = Rule::new(&[OpKind::Read], when, Effect::Eio).within(segments);
    world.set_faults(&FaultPlan::new(vec![unread]));
    driver.open()?;
    driver.store().wait_recovered();
    world.set_faults(&FaultPlan::none());
    if rng.bool() {
        work(&mut driver, 3, rng)?;
    }
    for _ in 0..rng.usize(1..=2) {
        driver.apply(0, &Op::Checkpoint)?;
    }
    for key in 0..KEYS {
        match rng.u8(0..3) {
            0 => {}
            1 => driver.apply(0, &Op::Remove(key))?,
            _ => {
                let (group, length) = (rng.u64(0..4), rng.u64(0..20_000));
                let object = NewObject { key, group, length, metadata: 0, expires_in: None };
                driver.apply(8_000 + key as u64, &Op::Create(object))?;
            }
        }
    }
    if rng.u8(0..3) == 0 {
        driver.close()?;
        driver.open()?;
        work(&mut driver, 9, rng)?;
    }
    Ok(driver)
}

/// Damages the headers of the newest checkpoints.
pub(super) fn damage_checkpoints(disk: &mut SimDisk, most: usize, rng: &mut fastrand::Rng) {
    let Ok(superblock) = Superblock::decode(disk.bytes()) else { return };
    let layout = superblock.layout();
    let mut slots: Vec<_> = (0..2)
        .filter_map(|slot| {
            let at = layout.checkpoint_slot(slot);
            let bytes = disk.bytes().get(at as usize..)?;
            let nonce = superblock.nonce();
            let header = CheckpointHeader::decode(bytes, nonce, layout.checkpoint_bytes).ok()?;
            Some((std::cmp::Reverse(header.generation), at))
        })
        .collect();
    slots.sort_unstable();
    for (_, at) in slots.into_iter().take(most) {
        disk.scribble(at..at + 512, rng);
    }
}

/// A store that does not know all that is on its disk, and loses its newest checkpoint.
///
/// # Errors
/// Something that was removed or replaced came back, or another wrong answer.
pub fn unread(seed: u64) -> Result<(), Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed ^ 0x0bad);
    let mut config = varied_config(rng, seed, false);
    if config.durability == Durability::None {
        config.durability = Durability::Flushed;
    }
    config.checkpoint_period = Duration::ZERO;
    config.volume_errors_max = u32::MAX;
    config.memory_wait = Duration::from_millis(300);
    if rng.u8(0..3) == 0 {
        config.objects_max = Some(64);
    }
    let disks = blank_disks(&mut config, 1, DISK_BYTES);
    let options = options(rng, seed, false);
    let clock = clock(seed);
    let world = SimWorld::start(&disks, &options, Arc::clone(&clock));
    let driver = fill(&world, &config, rng).map_err(|e| format!("when all is written: {e}"))?;
    let (disks, model) = kill(&world, driver)?;
    let world = SimWorld::start(&disks, &options, Arc::clone(&clock));
    let driver = go_on(&world, &config, model, rng).map_err(|e| format!("when unread: {e}"))?;
    let (mut disks, model) = kill(&world, driver)?;
    damage_checkpoints(&mut disks[0], rng.usize(1..=2), rng);
    let world = SimWorld::start(&disks, &SimOptions::new(seed), clock);
    let mut driver = driver_on(&world, &config, model);
    driver.open()?;
    driver.verify_recovered().map_err(|e| format!("without the checkpoint: {e}"))?;
    driver.close()
}
