//! The write path. Owns nothing; each module states its invariants and threads.
//!
//! On the way of an object to disk:
//! - `create` checks, admits and copies it into memory; `operation`: creates that may have to wait.
//!   `value`: borrowed bytes of a value; `longest`: limits of length. `writer`: streamed objects,
//!   assembled by `in_place` in their final memory.
//! - `nursery` keeps it there with its group; `compaction` moves together what waits for long.
//! - `flusher` writes pages and extents into segments. `packer` chooses the objects of a page,
//!   `superseded` leaves out dead ones, `page_build` lays out its bytes.
//! - `segment` manages the open segments; `publish` enters what is written into the index.
//! - `reclaim` reuses the oldest segment.
//!
//! Beside that way: `metadata` replaces metadata; `remove`: removes and purges; `forget`: what is
//! found to be gone; `version`: replacement of one version only; `gate`: creates alongside
//! checkpoints; `sync`: writing everything out; `inline` and `inline_slot`: the flusher's work done
//! by callers.

mod compaction;
pub(crate) mod create;
pub(crate) mod flusher;
mod forget;
pub(crate) mod gate;
mod in_place;
pub(crate) mod inline;
pub(crate) mod inline_slot;
pub(crate) mod longest;
pub(crate) mod metadata;
pub(crate) mod nursery;
pub(crate) mod operation;
pub(crate) mod packer;
mod page_build;
mod publish;
pub(crate) mod reclaim;
mod remove;
pub(crate) mod segment;
mod superseded;
mod sync;
pub(crate) mod value;
pub(crate) mod version;
pub(crate) mod writer;
