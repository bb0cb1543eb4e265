//! The memory cache: page frames (`pool`), the table of resident objects (`resident`), eviction
//! (`cache`, by the decisions of `policy::residency`), and the cost of evictions (`regret`).

pub(crate) mod cache;
#[cfg(test)]
mod cache_tests;
pub(crate) mod mapped;
pub(crate) mod pool;
mod regret;
pub(crate) mod resident;
