//! What survives the process: deletes and purges (`marks`, `journal`), the index (`checkpoint`), and
//! how a store comes back (`recovery`, from what `segment_contents` reads). `progress` says how far both are.

pub(crate) mod checkpoint;
pub(crate) mod journal;
pub(crate) mod marks;
pub(crate) mod progress;
pub(crate) mod recovery;
pub(crate) mod segment_contents;
