//! What survives the process: deletes and purges (`marks`, `journal`), the index (`checkpoint`), and
//! how a store comes back (`recovery`).

pub(crate) mod checkpoint;
pub(crate) mod journal;
pub(crate) mod marks;
pub(crate) mod recovery;
