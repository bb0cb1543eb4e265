//! The lab: requests from traces or generators, run against replacement policies and cache designs.
//!
//! A [`Request`] names its object, host and client by dense ids; the [`Catalogue`] of the trace
//! turns ids back into names.

mod error;
mod histogram;
mod ids;
pub mod output;
pub mod policy;
mod request;
pub mod sim;
mod stack_distance;
pub mod trace;
pub mod workload;

pub use error::{BadRecord, Place, SimError, TraceError};
pub use histogram::Histogram;
pub use request::{Catalogue, Op, Request};
pub use stack_distance::StackDistance;
