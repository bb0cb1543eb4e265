//! The requests that a paper is measured with: the trace given, or the generator `gen:web` in
//! proportions like those of the papers' proxies, declared as synthetic wherever it is used.
//!
//! Invariant: the same options give the same requests. Threads: one user.

use super::{PaperError, PaperOptions, Trace};
use crate::request::{Catalogue, Request};
use crate::trace::{ReadOptions, Trace as Source, load};

/// Requests made anew, and their names.
pub(super) struct Made {
    name: String,
    requests: Vec<Request>,
    names: Catalogue,
}

/// A host for so many requests, and pages of each.
const REQUESTS_PER_HOST: usize = 40;
const HOSTS_MIN: usize = 8;
const PAGES_PER_HOST: usize = 24;
/// Maltzahn §2.2 has 0.64 to 0.83 for proxies.
const SLOPE: f64 = 0.8;

/// The name that stands for a synthetic workload of so many requests.
fn generator(requests: usize, seed: u64) -> String {
    let hosts = (requests / REQUESTS_PER_HOST).max(HOSTS_MIN);
    let pages = hosts * PAGES_PER_HOST;
    format!("gen:web?seed={seed}&requests={requests}&hosts={hosts}&pages={pages}&alpha={SLOPE}")
}

/// The trace given or, kept in `made`, a synthetic workload of `count` requests at full scale.
pub(super) fn requests<'t>(
    options: &PaperOptions<'t>,
    count: usize,
    made: &'t mut Option<Made>,
) -> Result<Trace<'t>, PaperError> {
    if let Some(trace) = options.trace {
        return Ok(trace);
    }
    made_by(generator((count / options.scale_down as usize).max(1), options.seed), made)
}

/// What a generator makes, kept in `made`.
pub(super) fn made_by(name: String, made: &mut Option<Made>) -> Result<Trace<'_>, PaperError> {
    let mut source = Source::open(&name, &ReadOptions::default())?;
    let (requests, names) = load(&mut source, |_| ())?;
    let made = made.insert(Made { name, requests, names });
    Ok(Trace { name: &made.name, requests: &made.requests, names: &made.names })
}

/// Squid's directories of the second level, 256 in each of the first in the papers.
const SECOND_LEVEL: u64 = 256;
const SECOND_LEVEL_MIN: u64 = 4;

/// So many of Squid's directories as go with memory that was scaled down from the paper's: the
/// blocks of all 4,096 take 16 or 32 MiB alone.
pub(super) fn second_level(memory_bytes: u64, paper_memory_bytes: u64) -> u32 {
    let scaled =
        u128::from(SECOND_LEVEL) * u128::from(memory_bytes) / u128::from(paper_memory_bytes);
    let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
    1 << scaled.clamp(SECOND_LEVEL_MIN, SECOND_LEVEL).ilog2()
}

/// An error if there are too few requests to measure anything.
pub(super) fn check_length(trace: &Trace<'_>, needed: usize) -> Result<(), PaperError> {
    match trace.requests.len() {
        requests if requests < needed => Err(PaperError::TraceTooShort { requests, needed }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::second_level;

    /// A power of two, never more than the papers' own.
    #[test]
    fn directories_of_squid_go_with_memory() {
        for (memory_mb, wanted) in
            [(512, 256), (511, 128), (64, 32), (70, 32), (8, 4), (1, 4), (4096, 256)]
        {
            assert_eq!(second_level(memory_mb << 20, 512 << 20), wanted);
        }
    }
}
