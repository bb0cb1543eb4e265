//! Memory: frames (`pool`), what is resident in them (`resident`), who gets them (`cache`, by the
//! decisions of `policy::residency`), and what others lose by it (`regret`).

pub(crate) mod cache;
#[cfg(test)]
mod cache_tests;
pub(crate) mod mapped;
pub(crate) mod pool;
mod regret;
pub(crate) mod resident;
