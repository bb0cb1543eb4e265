//! Latencies of operations: one histogram a thread, merged at the end of a stage. Nanoseconds,
//! three significant digits; the maximum and the mean are exact.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Latencies of one thread, or of several merged.
#[derive(Clone)]
pub(crate) struct Latencies {
    histogram: Histogram<u64>,
    sum_ns: u64,
    max_ns: u64,
}

/// Summary of a stage's latencies, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LatencySummary {
    /// Mean.
    pub(crate) mean_us: f64,
    /// Median.
    pub(crate) p50_us: f64,
    /// 99th percentile.
    pub(crate) p99_us: f64,
    /// Longest of all.
    pub(crate) max_us: f64,
}

impl Latencies {
    /// An empty histogram, sized for latencies up to a minute, so that recording never allocates.
    pub(crate) fn new() -> Latencies {
        const MINUTE_NS: u64 = 60_000_000_000;
        let histogram = Histogram::new_with_max(MINUTE_NS, 3);
        // Fails only for invalid bounds; these are constants.
        Latencies { histogram: histogram.expect("constant bounds"), sum_ns: 0, max_ns: 0 }
    }

    /// Counts one operation. A latency above one minute counts as a minute, except in mean and
    /// maximum.
    pub(crate) fn record(&mut self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(ns);
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds another thread's latencies.
    pub(crate) fn merge(&mut self, other: &Latencies) {
        // Fails only if the other's values do not fit; both have the same bounds.
        self.histogram.add(&other.histogram).expect("same bounds");
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// A quantile (0.999 for p99.9) in microseconds.
    pub(crate) fn quantile_us(&self, quantile: f64) -> f64 {
        self.histogram.value_at_quantile(quantile).min(self.max_ns) as f64 / 1e3
    }

    /// Mean, percentiles and maximum; zeros if nothing was recorded.
    pub(crate) fn summary(&self) -> LatencySummary {
        let us = |ns: u64| ns as f64 / 1e3;
        LatencySummary {
            mean_us: self.sum_ns as f64 / 1e3 / self.histogram.len().max(1) as f64,
            p50_us: us(self.histogram.value_at_quantile(0.50).min(self.max_ns)),
            p99_us: us(self.histogram.value_at_quantile(0.99).min(self.max_ns)),
            max_us: us(self.max_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_latencies_keep_mean_and_maximum() {
        let (mut a, mut b) = (Latencies::new(), Latencies::new());
        (0..99).for_each(|_| a.record(Duration::from_micros(10)));
        b.record(Duration::from_micros(1010));
        a.merge(&b);
        let summary = a.summary();
        assert_eq!((summary.mean_us, summary.max_us), (20.0, 1010.0));
        assert!((9.9..10.1).contains(&summary.p50_us) && summary.p99_us < 10.1, "{summary:?}");
        assert_eq!(Latencies::new().summary(), LatencySummary::default());
    }
}
