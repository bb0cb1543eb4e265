//! One I/O that fails while a store opens and recovers after a crash.

use std::sync::Arc;

use damelo::Durability;

use super::crashes::{Recorded, describe, record, record_wrapped};
use super::{MIB, apply_reopening, driver_on, no_violations};
use crate::driver::Failure;
use crate::fault::{Effect, FaultPlan, OpKind, Rule, When};
use crate::model::{Demand, Model};
use crate::trace::CrashKind;
use crate::workload::{Profile, Workload};
use crate::{SimDisk, SimOptions, SimWorld};

/// Crashes of each run, with a fault in the open after each.
const OPENS_PER_RUN: usize = 12;

/// I/Os of an open among which the fault is, of each disk. Few opens of these stores make more.
const PLACES: u64 = 40;

const DATA_WRITES: &[OpKind] = &[OpKind::Write];
const SYNCS: &[OpKind] = &[OpKind::Sync, OpKind::JournalSync];
const JOURNAL_WRITES: &[OpKind] = &[OpKind::JournalWrite];

/// What fails, once. A write is reported: what reports success and never lands is another matter.
const FAULTS: [(&[OpKind], Effect); 6] = [
    (OpKind::READS, Effect::Eio),
    (OpKind::READS, Effect::Short),
    (OpKind::READS, Effect::Corrupt),
    (DATA_WRITES, Effect::Eio),
    (SYNCS, Effect::Eio),
    (JOURNAL_WRITES, Effect::Eio),
];

/// A crash, and one failing I/O while the next life opens and recovers: what that life serves is
/// not old, nor what the life after it serves. An open that is refused has lost nothing. Returns
/// how many faults were hit.
///
/// # Errors
/// The first wrong answer, with the crash and the fault that led to it.
pub fn fault_in_open(seed: u64) -> Result<u64, Failure> {
    let rng = &mut fastrand::Rng::with_seed(seed ^ 0x0fe9);
    let recorded = match rng.u8(0..3) {
        0 => record_wrapped(seed, rng.usize(100..250), None)?,
        _ => record(seed, rng.usize(10..60))?,
    };
    // Without a journal an older version may come back, which is what is promised.
    if recorded.config.durability == Durability::None {
        return Ok(0);
    }
    let mut fired = 0;
    for _ in 0..OPENS_PER_RUN {
        let at = rng.u64(recorded.opened..=recorded.closed);
        let kind = [CrashKind::Kill, CrashKind::Power][rng.usize(0..2)];
        let image = rng.u64(..);
        let (ops, effect) = FAULTS[rng.usize(0..FAULTS.len())];
        let rule = Rule::new(ops, When::Only(rng.u64(0..PLACES)), effect);
        let plan = FaultPlan::new(vec![rule.clone()]);
        fired += beside(&recorded, at, kind, image, plan).map_err(|e| {
            let error = format!("{rule:?}: {e}");
            describe(&recorded, at, kind, image, &error)
        })?;
    }
    Ok(fired)
}

fn beside(
    recorded: &Recorded,
    at: u64,
    kind: CrashKind,
    image: u64,
    plan: FaultPlan,
) -> Result<u64, Failure> {
    let disks = recorded.world.crash_at(at, kind, image);
    let world = start(recorded, &disks, plan);
    let mut model = recorded.model.after_crash(at, kind);
    let strict = model.clone();
    model.set_demand(Demand::Fresh);
    let mut driver = driver_on(&world, &recorded.config, model);
    driver.tolerant = true;
    let opened = driver.open().is_ok();
    if opened {
        driver.verify_recovered().map_err(|e| format!("with the fault: {e}"))?;
        // Versions of this life must differ from those of the first.
        let more = Workload::new(Profile::crash(8, MIB), image);
        let more = more.map(|(version, op)| (1000 + version, op));
        apply_reopening(&mut driver, more, None).map_err(|e| format!("with the fault: {e}"))?;
    }
    let fired = world.sims().iter().map(|disk| disk.faults_fired()).sum();
    let model = match opened {
        true => driver.model.after_crash(world.now(), CrashKind::Kill),
        false => strict,
    };
    driver.abandon();
    no_violations(&world)?;
    let sound = start(recorded, &world.snapshot(), FaultPlan::none());
    verify_life(recorded, &sound, model)
        .map_err(|e| format!("after the fault (open: {opened}): {e}"))?;
    Ok(fired)
}

fn start(recorded: &Recorded, disks: &[SimDisk], faults: FaultPlan) -> SimWorld {
    let options = SimOptions { faults, ..recorded.options.clone() };
    SimWorld::start(disks, &options, Arc::clone(recorded.world.sim_clock()))
}

fn verify_life(recorded: &Recorded, world: &SimWorld, model: Model) -> Result<(), Failure> {
    let mut driver = driver_on(world, &recorded.config, model);
    driver.open()?;
    driver.verify_recovered()?;
    driver.abandon();
    no_violations(world)
}
