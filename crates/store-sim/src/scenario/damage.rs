//! Disks that fail by plan, and bits that flip at rest.

use std::sync::Arc;
use std::time::Duration;

use damelo::Durability;

use super::crashes::{Recorded, describe, record};
use super::{
    MIB, TINY_BYTES, apply_all, blank_disks, clock, driver_on, no_violations, options,
    varied_config,
};
use crate::driver::Failure;
use crate::fault::{FaultPlan, OpKind};
use crate::model::{Demand, Model};
use crate::trace::CrashKind;
use crate::workload::{Profile, Workload};
use crate::{SimDisk, SimOptions, SimWorld};

/// Bits that flip anywhere on disks at rest: every answer is a genuine value of its key, and lost
/// objects are counted.
///
/// # Errors
/// A foreign byte, a panic, or a loss that no counter reports.
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

/// Damages a disk in a range that was ever written; returns a description.
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
    let world = SimWorld::start(&disks, &options, clock(seed));
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
    // Without a journal, or with one that could not be written, nothing is promised for later: if
    // the object that replaced another could not be written either, the older one is back.
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
