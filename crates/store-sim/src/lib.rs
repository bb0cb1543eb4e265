//! Crash and fault harness of the store: everything a disk may do to it, replayed from a seed.
//!
//! A run is: a seed makes a list of operations ([`workload`]); the [`driver`] applies them to a
//! store on simulated disks ([`SimWorld`]) and tells the [`model`] what was begun and what was
//! acknowledged, each with the tick (number of disk events so far); afterwards the disks can be
//! asked for their image at *any* tick of the past, after a kill or a loss of power
//! ([`SimWorld::crash_at`]), and the model for what a store opened on that image may answer.
//! [`scenario`] strings these together; the tests and the `soak` program only choose seeds.
//!
//! Threads: a driver runs on one thread; the store and the pump of [`SimDevice`] have their own.
//! Seeds fix operations, faults and crash points. Of two seeds in five they fix everything: the store has no
//! threads of its own there, and time stands still but for the driver. With the others the store's threads
//! run freely, and what failed may need several replays.

mod clock;
pub mod content;
mod device;
mod disk;
pub mod driver;
mod fault;
pub mod harness;
pub mod model;
pub mod scenario;
mod trace;
pub mod workload;
mod world;

pub use clock::SimClock;
pub use device::{Completion, SimDevice, SimOptions};
pub use disk::{SECTOR_BYTES, SimDisk};
pub use fault::{Effect, FaultPlan, OpKind, Rule, When};
pub use trace::{CrashKind, Tick, Ticks};
pub use world::SimWorld;
