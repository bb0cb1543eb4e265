//! The write path. `create` checks, admits and copies an object into memory, and `nursery` keeps it
//! there with its group; `compaction` moves together what waits for long. `packer` chooses the objects of a page, `page_build` lays out its bytes,
//! and `superseded` leaves out dead objects. `flusher` writes pages and extents into segments, and
//! `publish` then enters them into the index. `segment` manages the open segments, and `reclaim`
//! reuses the oldest. `longest`: limits of length; `value`: borrowed bytes of a value; `writer`:
//! streamed objects, assembled by `in_place` in their final memory; `operation`: creates that may
//! have to wait; `metadata`: replacement of metadata; `remove`: removes and purges; `forget`:
//! what is found to be gone; `version`: replacement of one version only; `gate`: creates alongside
//! checkpoints; `sync`: writing everything out; `inline` and `inline_slot`: the flusher's work done by callers. Each module
//! states its invariants and threads.

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
