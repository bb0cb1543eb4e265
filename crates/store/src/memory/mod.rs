//! The memory cache: memory straight from the system (`mapped`), page frames in it (`pool`), the
//! table of resident objects (`resident`), eviction (`cache`, by the decisions of
//! `policy::residency`), and the cost of evictions (`regret`). Each module states its invariants
//! and threads.

pub(crate) mod cache;
#[cfg(test)]
mod cache_tests;
pub(crate) mod mapped;
pub(crate) mod pool;
mod regret;
pub(crate) mod resident;
