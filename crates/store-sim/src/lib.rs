//! Crash and fault harness of the store: simulates everything that a disk may do, replayed from a
//! seed.
//!
//! In a run, the seed generates a list of operations ([`workload`]). The [`driver`] applies them to
//! a store on simulated disks ([`SimWorld`]) and reports to the [`model`] each operation's begin
//! and acknowledgement with their ticks (a tick is the number of disk events so far). Afterwards
//! the disks can produce their image at *any* past tick, after a kill or a power loss
//! ([`SimWorld::crash_at`]), and the model the answers allowed to a store opened on that image.
//! [`scenario`] combines these steps; the tests and the `soak` program only choose seeds.
//!
//! Threads: a driver runs on one thread; the store and the pump of [`SimDevice`] have their own.
//! Seeds fix operations, faults and crash points. Two seeds in five fix the whole run: the store
//! has no threads of its own, and only the driver advances time. With the other seeds the store's
//! threads run freely, and a failure may need several replays.

mod clock;
pub mod content;
mod damage;
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
pub use damage::damaged;
pub use device::{Completion, SimDevice, SimOptions};
pub use disk::{SECTOR_BYTES, SimDisk};
pub use fault::{Effect, FaultPlan, OpKind, Rule, When};
pub use trace::{CrashKind, Tick, Ticks};
pub use world::SimWorld;
