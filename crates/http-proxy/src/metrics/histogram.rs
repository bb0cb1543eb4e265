//! A histogram of durations with fixed buckets: two per power of two of microseconds.
//!
//! Threads: written by one worker, read by the admin listener; all accesses are relaxed, so a
//! concurrent snapshot may be off by one between buckets and sum.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Powers of two of microseconds: the last bucket ends at 2^27 us, some two minutes.
const OCTAVES: usize = 27;
const BUCKETS: usize = OCTAVES * 2;
/// Buckets below 2^4 us are shown as one: no response is that fast.
const SHOWN_FROM: usize = 8;

/// Durations, counted by size.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: std::array::from_fn(|_| AtomicU64::new(0)), sum_us: AtomicU64::new(0) }
    }
}

/// Counts at one moment, consistent with each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    buckets: [u64; BUCKETS],
    sum_us: u64,
}

impl Default for Snapshot {
    fn default() -> Snapshot {
        Snapshot { buckets: [0; BUCKETS], sum_us: 0 }
    }
}

fn bucket_of(us: u64) -> usize {
    let us = us.max(1);
    let octave = us.ilog2() as usize;
    let half = if octave == 0 { 0 } else { (us >> (octave - 1)) as usize & 1 };
    (octave * 2 + half).min(BUCKETS - 1)
}

/// Exclusive upper bound of a bucket, in microseconds.
fn end_us(bucket: usize) -> u64 {
    let start = 1_u64 << (bucket / 2);
    if bucket.is_multiple_of(2) { (start + start / 2).max(start + 1) } else { start * 2 }
}

impl Histogram {
    pub(crate) fn record(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(us)].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// Adds the counts to `snapshot`.
    pub(crate) fn add_to(&self, snapshot: &mut Snapshot) {
        for (sum, bucket) in snapshot.buckets.iter_mut().zip(&self.buckets) {
            *sum += bucket.load(Ordering::Relaxed);
        }
        snapshot.sum_us = snapshot.sum_us.wrapping_add(self.sum_us.load(Ordering::Relaxed));
    }
}

impl Snapshot {
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// An upper bound of the given quantile, in microseconds; `None` if nothing was counted.
    pub(crate) fn quantile_us(&self, share: f64) -> Option<u64> {
        let count = self.count();
        let wanted = ((count as f64 * share).ceil() as u64).clamp(1, count.max(1));
        let mut sum = 0;
        for (bucket, one) in self.buckets.iter().enumerate() {
            sum += one;
            if sum >= wanted && count > 0 {
                return Some(end_us(bucket));
            }
        }
        None
    }

    /// Counts since `earlier`.
    #[cfg(test)]
    fn since(&self, earlier: &Snapshot) -> Snapshot {
        let buckets = std::array::from_fn(|i| self.buckets[i].saturating_sub(earlier.buckets[i]));
        Snapshot { buckets, sum_us: self.sum_us.wrapping_sub(earlier.sum_us) }
    }

    /// Non-empty buckets: end in microseconds and count.
    pub(crate) fn bars(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = self.buckets.iter().enumerate();
        all.filter(|(_, count)| **count > 0).map(|(bucket, count)| (end_us(bucket), *count))
    }

    /// The lines of an OpenMetrics histogram, without its head.
    pub(crate) fn render(&self, name: &str, label: &str, text: &mut String) {
        let mut sum = 0;
        // Writing to a String cannot fail.
        for (bucket, count) in self.buckets.iter().enumerate() {
            sum += count;
            if bucket + 1 >= SHOWN_FROM && bucket + 1 < BUCKETS {
                let end = end_us(bucket) as f64 / 1e6;
                let _ = writeln!(text, "{name}_bucket{{{label},le=\"{end}\"}} {sum}");
            }
        }
        let seconds = self.sum_us as f64 / 1e6;
        let _ = writeln!(text, "{name}_bucket{{{label},le=\"+Inf\"}} {sum}");
        let _ = writeln!(text, "{name}_count{{{label}}} {sum}\n{name}_sum{{{label}}} {seconds}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_within_its_bucket() {
        let mut random = fastrand::Rng::with_seed(3);
        for us in (0..5000).chain((0..5000).map(|_| random.u64(..1 << 26))) {
            let bucket = bucket_of(us);
            assert!(us < end_us(bucket), "{us}");
            assert!(bucket == 0 || us >= end_us(bucket - 1) || us < 4, "{us}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_bound_the_sorted_times() {
        let histogram = Histogram::default();
        let mut random = fastrand::Rng::with_seed(4);
        let mut times: Vec<u64> = (0..1000).map(|_| 1 << random.u64(4..20)).collect();
        for time in &times {
            histogram.record(Duration::from_micros(*time));
        }
        times.sort_unstable();
        let mut snapshot = Snapshot::default();
        assert_eq!(snapshot.quantile_us(0.5), None);
        histogram.add_to(&mut snapshot);
        for share in [0.0, 0.5, 0.9, 0.99, 1.0] {
            let exact = times[((1000.0 * share) as usize).saturating_sub(1)];
            let bound = snapshot.quantile_us(share).unwrap();
            assert!(exact < bound && bound <= exact * 2, "{share}: {exact} {bound}");
        }
        let more = histogram;
        more.record(Duration::from_millis(1));
        let mut later = Snapshot::default();
        more.add_to(&mut later);
        assert_eq!(later.since(&snapshot).bars().collect::<Vec<_>>(), [(1024, 1)]);
    }
}
