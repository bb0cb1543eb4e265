//! What a run counted.
//!
//! Invariant: the sums over kinds equal what the disks served, once everything is written. Threads:
//! plain data.

use super::KINDS;
use crate::disk::{Direction, DiskCounts};
use crate::histogram::Histogram;

/// Requests to disks and their bytes, by direction and kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoCounts {
    requests: [[u64; KINDS.len()]; 2],
    bytes: [[u64; KINDS.len()]; 2],
}

impl IoCounts {
    pub(crate) fn add(&mut self, direction: Direction, kind: super::Kind, bytes: u64) {
        self.requests[direction as usize][kind.index()] += 1;
        self.bytes[direction as usize][kind.index()] += bytes;
    }

    /// Requests of a direction and kind.
    pub fn requests(&self, direction: Direction, kind: super::Kind) -> u64 {
        self.requests[direction as usize][kind.index()]
    }

    /// Bytes of a direction and kind.
    pub fn bytes(&self, direction: Direction, kind: super::Kind) -> u64 {
        self.bytes[direction as usize][kind.index()]
    }

    /// All requests of a direction.
    pub fn requests_of(&self, direction: Direction) -> u64 {
        self.requests[direction as usize].iter().sum()
    }

    /// All bytes of a direction.
    pub fn bytes_of(&self, direction: Direction) -> u64 {
        self.bytes[direction as usize].iter().sum()
    }

    /// All requests.
    pub fn total(&self) -> u64 {
        self.requests_of(Direction::Read) + self.requests_of(Direction::Write)
    }
}

/// Response times in bins of a millisecond, of which the last holds everything longer, and finer by
/// microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseTimes {
    bins: Vec<u64>,
    fine_us: Histogram,
    count: u64,
    sum_ns: u128,
    max_ns: u64,
}

impl Default for ResponseTimes {
    fn default() -> ResponseTimes {
        ResponseTimes {
            bins: vec![0; 101],
            fine_us: Histogram::default(),
            count: 0,
            sum_ns: 0,
            max_ns: 0,
        }
    }
}

impl ResponseTimes {
    pub(crate) fn add(&mut self, ns: u64) {
        let bin = (ns / 1_000_000).min(self.bins.len() as u64 - 1);
        self.bins[bin as usize] += 1;
        self.fine_us.add(ns / 1_000);
        self.count += 1;
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Counts by millisecond.
    pub fn bins(&self) -> &[u64] {
        &self.bins
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Share of responses in milliseconds `from` up to but not including `to`, in percent.
    pub fn percent_between(&self, from: usize, to: usize) -> f64 {
        let to = if to >= self.bins.len() { self.bins.len() } else { to };
        let inside: u64 = self.bins[from.min(to)..to].iter().sum();
        if self.count == 0 { 0.0 } else { inside as f64 * 100.0 / self.count as f64 }
    }

    /// Share of responses within a time, in percent; up to 3.2% of the time longer ones are among
    /// them.
    pub fn percent_within_us(&self, us: u64) -> f64 {
        let count = self.count.max(1) as f64;
        self.fine_us.at_most(us) as f64 * 100.0 / count
    }

    /// The time that a share of the responses took at most, in milliseconds, up to 3.2% too high; 0
    /// of nothing.
    pub fn quantile_ms(&self, share: f64) -> f64 {
        self.fine_us.quantile(share).unwrap_or(0) as f64 / 1e3
    }

    /// Mean in milliseconds; 0 of nothing.
    pub fn mean_ms(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_ns as f64 / self.count as f64 / 1e6 }
    }

    /// Longest, in milliseconds.
    pub fn max_ms(&self) -> f64 {
        self.max_ns as f64 / 1e6
    }
}

/// Equal parts into which a drive is divided for [`Report::map`].
pub const MAP_PARTS: usize = 256;

/// What one run of one design did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// Requests measured.
    pub requests: u64,
    /// Requests that read.
    pub reads: u64,
    /// Reads answered by the cache.
    pub hits: u64,
    /// Hits that waited for no disk read.
    pub memory_hits: u64,
    /// Requests whose objects the design would not keep.
    pub refused: u64,
    /// Requests without a body of their own for what was not stored: left out, and not among
    /// `requests`.
    pub bodiless_requests: u64,
    /// Bytes asked for.
    pub read_bytes: u64,
    /// Bytes of hits.
    pub hit_bytes: u64,
    /// Requests to disks.
    pub io: IoCounts,
    /// What each disk did, in the order files, mapped, raw.
    pub disks: [DiskCounts; 3],
    /// Virtual time until the last client was done.
    pub elapsed_ns: u64,
    /// Virtual time until the disks were idle.
    pub drained_ns: u64,
    /// Response times of all requests.
    pub responses: ResponseTimes,
    /// Response times of hits.
    pub hit_responses: ResponseTimes,
    /// Response times of requests that stored something.
    pub store_responses: ResponseTimes,
    /// Bytes moved in each part of the drives, from the outermost in, by direction.
    pub map: [Vec<u64>; 2],
    /// Mean response of each block of requests (see `RunOptions::series_every`), in milliseconds.
    pub series_ms: Vec<f64>,
    /// Virtual time from the end of the block before to the end of each, divided by its requests.
    /// With one client that is never idle the same as `series_ms`; several wait at the same time,
    /// and each response then counts in full there.
    pub series_operation_ms: Vec<f64>,
    /// The design's own counters, since it was made.
    pub facts: Vec<(&'static str, u64)>,
    /// The same when counting began.
    pub facts_before: Vec<(&'static str, u64)>,
}

impl Report {
    /// Hits in percent of reads.
    pub fn hit_percent(&self) -> f64 {
        percent(self.hits, self.reads)
    }

    /// Memory hits in percent of hits, as UCFS table 4 has them.
    pub fn memory_hit_percent(&self) -> f64 {
        percent(self.memory_hits, self.hits)
    }

    /// Time the disks were busy reading or writing.
    pub fn disk_ns(&self, direction: Direction) -> u64 {
        let of = |c: &DiskCounts| match direction {
            Direction::Read => c.read_ns,
            Direction::Write => c.write_ns,
        };
        self.disks.iter().map(of).sum()
    }

    /// Time the disks were busy.
    pub fn disk_total_ns(&self) -> u64 {
        self.disk_ns(Direction::Read) + self.disk_ns(Direction::Write)
    }

    /// Writes that no surface saw, since a later one of the same sectors came while they waited in
    /// a drive's memory. They are among [`Report::io`].
    pub fn absorbed(&self) -> u64 {
        self.disks.iter().map(|disk| disk.absorbed).sum()
    }

    /// One of the design's counters; 0 if it has none of that name.
    pub fn fact(&self, name: &str) -> u64 {
        value(&self.facts, name)
    }

    /// What one of the design's counters grew by while the run counted, without the warm-up. Of a
    /// counter that only grows: a level, as of files held, has no such number.
    pub fn fact_counted(&self, name: &str) -> u64 {
        self.fact(name).saturating_sub(value(&self.facts_before, name))
    }
}

fn value(facts: &[(&'static str, u64)], name: &str) -> u64 {
    facts.iter().find(|(n, _)| *n == name).map_or(0, |(_, value)| *value)
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}
