//! A laboratory for cache layout as well as replacement: each published design runs from traces
//! against modelled disks in virtual time, or against real ones.
//!
//! A design is a state machine that says which files, pages or blocks it touches ([`design`]); a
//! machine turns that into disk requests through a file system ([`fs`]), virtual memory ([`vm`]) or
//! neither, and plays them on disks in virtual time ([`disk`], [`machine`]), or plays the actions on
//! real ones. [`paper`] prints published tables and figures beside what comes out.

pub mod design;
pub mod disk;
pub mod fs;
mod lru;
pub mod machine;
pub mod paper;
mod request;
pub mod vm;

pub use request::{Catalogue, Op, Request};
