//! Memory: frames (`pool`), what is resident in them (`resident`), who gets them (`cache`, with the
//! decisions in `policy`).

pub(crate) mod cache;
pub(crate) mod policy;
pub(crate) mod pool;
pub(crate) mod resident;
