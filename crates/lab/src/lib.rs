//! A laboratory for cache replacement and layout: requests from traces or generators, run against
//! replacement policies alone, or against whole published designs on modelled disks in virtual
//! time.
//!
//! A [`Request`] names its object, host and client by dense ids; the [`Catalogue`] of the trace
//! turns ids back into names. [`sim`] runs policies without layout. A design is a state machine
//! that says which files, pages or blocks it touches ([`design`]); a machine turns that into disk
//! requests through a file system ([`fs`]), virtual memory ([`vm`]) or neither, and plays them on
//! disks in virtual time ([`disk`], [`machine`]), or plays the actions on real ones. [`paper`]
//! prints published tables and figures beside what comes out.

mod cpu_prefetch;
pub mod design;
pub mod disk;
mod error;
pub mod fs;
mod histogram;
mod ids;
mod linked;
mod lru;
pub mod machine;
mod name_hint;
mod new_file;
mod number_index;
pub mod output;
pub mod paper;
pub mod policy;
mod request;
mod requests;
pub mod sim;
mod stack_distance;
pub mod system;
pub mod trace;
pub mod vm;
pub mod workload;

pub use error::{BadRecord, Place, SimError, TraceError, shown};
pub use histogram::Histogram;
pub use new_file::NewFile;
pub use request::{Catalogue, Op, Request};
pub use requests::{Pass, Requests};
pub use stack_distance::StackDistance;
