//! How long a connection gets new requests.
//!
//! A busy connection would otherwise be used for as long as both sides live: of an origin behind
//! several addresses those that were added later would get nothing, and one that a name no longer
//! has all. Pure, no threads.

use std::time::{Duration, Instant};

/// The age of a connection, and the age at which it gets no further requests.
#[derive(Debug, Clone, Copy)]
pub(in crate::upstream) struct Age {
    since: Instant,
    max: Duration,
}

impl Age {
    /// Of a connection that is opened now. Up to a tenth less than `max`, by chance: those that
    /// were opened together are not replaced together.
    pub(in crate::upstream) fn begin(max: Duration) -> Age {
        let less = (max / 10).mul_f64(fastrand::f64());
        Age { since: Instant::now(), max: max.saturating_sub(less) }
    }

    pub(in crate::upstream) fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_a_little_before_the_longest_at_various_times() {
        let max = Duration::from_secs(1000);
        let begun = Instant::now();
        let mut ends = Vec::new();
        for _ in 0..100 {
            let age = Age::begin(max);
            let over_after = |seconds: u64| age.is_over(age.since + Duration::from_secs(seconds));
            assert!(!over_after(899) && over_after(1000) && !age.is_over(begun));
            ends.push((899..=1000).find(|seconds| over_after(*seconds)));
        }
        ends.sort_unstable();
        ends.dedup();
        assert!(ends.len() > 10, "{ends:?}");
        let for_ever = Age::begin(Duration::MAX);
        assert!(!for_ever.is_over(begun + max));
    }
}
