//! Durable state. `journal` and `marks`: deletes and purges; `checkpoint`: the index; `replay`: the
//! journal of an earlier life; `deletes`: those of it; `recovery`: restoring a store after open;
//! `lives` and `lives_at_open`: the life of each segment; `segment_contents`: the records of a
//! segment on disk;
//! `superblocks`: a damaged copy is written again; `progress`: the state of recovery and
//! checkpoints. Each module states its invariants and threads.

pub(crate) mod checkpoint;
pub(crate) mod deletes;
pub(crate) mod journal;
pub(crate) mod lives;
mod lives_at_open;
pub(crate) mod marks;
pub(crate) mod progress;
pub(crate) mod recovery;
pub(crate) mod replay;
pub(crate) mod segment_contents;
pub(crate) mod superblocks;
