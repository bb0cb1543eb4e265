//! Policy-only simulation: a trace is read once, its objects are numbered, and any number of caches
//! see the same requests in batches, on as many threads as wanted.

mod feed;
mod future;
mod run;
mod size;
#[cfg(test)]
mod tests;

pub use feed::Scan;
pub use run::{CacheResult, Interval, Progress, SimOptions, SimReport, Warmup, simulate};
pub use size::{AUTO_SHARES, SizeSpec};
