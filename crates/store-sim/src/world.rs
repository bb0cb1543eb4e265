//! All disks and the clock of one simulated machine, which crash at the same moment. Threads: any.

use std::sync::Arc;

use damelo::Clock;
use damelo::device::Device;

use crate::clock::SimClock;
use crate::device::{SimDevice, SimOptions};
use crate::disk::SimDisk;
use crate::fault::FaultPlan;
use crate::trace::{CrashKind, Tick, Ticks};

/// A machine: disks that share one count of events, and a clock.
#[derive(Debug)]
pub struct SimWorld {
    ticks: Arc<Ticks>,
    devices: Vec<Arc<SimDevice>>,
    clock: Arc<SimClock>,
}

impl SimWorld {
    /// Starts the machine with these disks in it, all behaving as `options` say.
    pub fn start(disks: &[SimDisk], options: &SimOptions, clock: Arc<SimClock>) -> SimWorld {
        let ticks = Arc::new(Ticks::default());
        let devices = disks.iter().enumerate().map(|(index, disk)| {
            let own = SimOptions { seed: options.seed ^ index as u64, ..options.clone() };
            Arc::new(SimDevice::open(&format!("sim-{index}"), disk, own, Arc::clone(&ticks)))
        });
        SimWorld { devices: devices.collect(), ticks, clock }
    }

    /// The disks, as devices for a store.
    pub fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.devices.iter().map(|d| Arc::clone(d) as Arc<dyn Device>).collect()
    }

    /// The disks, for a test to control.
    pub fn sims(&self) -> &[Arc<SimDevice>] {
        &self.devices
    }

    /// The clock, for a store.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock) as Arc<dyn Clock>
    }

    /// The clock, for a test to control.
    pub fn sim_clock(&self) -> &Arc<SimClock> {
        &self.clock
    }

    /// The moment now.
    pub fn now(&self) -> Tick {
        self.ticks.now()
    }

    /// The counter of moments.
    pub fn ticks(&self) -> &Arc<Ticks> {
        &self.ticks
    }

    /// Gives every disk a fault plan of its own copy.
    pub fn set_faults(&self, plan: &FaultPlan) {
        self.devices.iter().for_each(|d| d.set_faults(plan.clone()));
    }

    /// The disks after a crash just before `at`.
    pub fn crash_at(&self, at: Tick, kind: CrashKind, seed: u64) -> Vec<SimDisk> {
        let images = self.devices.iter().enumerate();
        images.map(|(i, d)| d.crash_at(at, kind, seed.wrapping_add(i as u64))).collect()
    }

    /// The disks after a crash now.
    pub fn crash(&self, kind: CrashKind, seed: u64) -> Vec<SimDisk> {
        self.crash_at(self.now(), kind, seed)
    }

    /// The disks as they are, nothing lost.
    pub fn snapshot(&self) -> Vec<SimDisk> {
        self.devices.iter().map(|d| d.snapshot()).collect()
    }

    /// Violations of the device's contract by the store.
    pub fn violations(&self) -> Vec<String> {
        self.devices.iter().flat_map(|d| d.violations()).collect()
    }
}
