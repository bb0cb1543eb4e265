//! The way of bytes to disk: `nursery` (objects wait with their group), `packer` (which go into one
//! page), `page_build` (its bytes), `superseded` (what need not go), `flusher` (pages and extents into
//! segments), `publish` (then into the index), `segment` (the open ones), `reclaim` (reuse of the
//! oldest), `longest` (limits of length), `writer` (streamed objects), `in_place` (their bytes, where they
//! will stay), `operation` (creates that may have to wait), `metadata` (its replacement), `remove`
//! (removes and purges), `version` (what may be replaced by one caller only), `gate` (creates beside
//! checkpoints), `sync` (all of it, now), `inline` (the flusher's work done by callers).

pub(crate) mod create;
pub(crate) mod flusher;
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
