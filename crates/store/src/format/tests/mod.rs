//! Tests of the format.
//!
//! - `samples` one valid value of every structure, shared by the others
//! - `golden`  bytes that must never change
//! - `flips`   every single-bit error is detected
//! - `reject`  every relation that a decoder checks, broken one at a time
//! - `props`   round trips of arbitrary values
//! - `mutate`  seeded mutations: no panic, nothing accepted that would not be written
//! - `docs`    the byte tables of `docs/format.md`
//! - `seeds`   what the fuzz targets start from
//!
//! Threads: none.

mod docs;
mod flips;
mod golden;
mod mutate;
mod props;
mod reject;
mod samples;
mod seeds;
