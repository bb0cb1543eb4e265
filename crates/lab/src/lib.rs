//! The lab: requests from traces or generators, run against replacement policies and cache designs.
//!
//! A [`Request`] names its object, host and client by dense ids; the [`Catalogue`] of the trace
//! turns ids back into names.

mod request;

pub use request::{Catalogue, Op, Request};
