//! Counts of values by size: exact below 64, then in 32 steps for each doubling, so that a quantile
//! is at most 3.2% too high. Pure.

const EXACT: u64 = 64;
const STEPS_BITS: u32 = 5;
const STEPS: usize = 1 << STEPS_BITS;

/// A histogram of 64-bit values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    max: u64,
}

impl Histogram {
    /// Counts a value.
    pub fn add(&mut self, value: u64) {
        let bucket = bucket(value);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.count += 1;
        self.max = self.max.max(value);
    }

    /// Values counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The greatest value, exact; 0 if nothing was counted.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Values at most `value`, exact below 64.
    #[must_use]
    pub fn at_most(&self, value: u64) -> u64 {
        self.counts.iter().take(bucket(value) + 1).sum()
    }

    /// The greatest value of the bucket in which the quantile lies, or of all if that is less;
    /// `None` if nothing was counted.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let wanted = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Some(upper_end(bucket).min(self.max));
            }
        }
        None
    }

    /// The buckets that hold something: greatest value of the bucket, and count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(bucket, count)| (upper_end(bucket), *count))
    }
}

fn bucket(value: u64) -> usize {
    if value < EXACT {
        return value as usize;
    }
    let octave = value.ilog2() - EXACT.ilog2();
    let step = (value >> (value.ilog2() - STEPS_BITS)) as usize & (STEPS - 1);
    EXACT as usize + octave as usize * STEPS + step
}

fn upper_end(bucket: usize) -> u64 {
    let Some(above) = bucket.checked_sub(EXACT as usize) else { return bucket as u64 };
    let octave = (above / STEPS) as u32 + EXACT.ilog2();
    let step = (above % STEPS) as u64;
    let width = 1u64 << (octave - STEPS_BITS);
    (1u64 << octave) + step * width + (width - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket(value in any::<u64>()) {
            let end = upper_end(bucket(value));
            prop_assert!(end >= value);
            prop_assert!(end - value <= value / 32);
        }

        #[test]
        fn quantiles_are_those_of_the_sorted_values(mut values in prop::collection::vec(0u64..100_000, 1..300), share in 0.0f64..=1.0) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|value| histogram.add(*value));
            values.sort_unstable();
            let at = ((values.len() as f64 * share).ceil() as usize).clamp(1, values.len()) - 1;
            let found = histogram.quantile(share).expect("not empty");
            prop_assert!(found >= values[at] && found - values[at] <= values[at] / 32);
            prop_assert!(found <= *values.last().expect("not empty"));
        }
    }

    #[test]
    fn an_empty_histogram_has_no_quantiles() {
        assert_eq!(Histogram::default().quantile(0.5), None);
        assert_eq!(Histogram::default().at_most(5), 0);
    }
}
