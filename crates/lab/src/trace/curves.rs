//! Curves of a trace, for charts: what `stat` says in single numbers, over ranks, distances and
//! sizes. Pure.

use crate::histogram::Histogram;

/// Points of a curve, in order of x.
type Points = Vec<(f64, f64)>;

/// What a trace is like beyond single numbers. Each has some points for a doubling of x at most,
/// however long the trace is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TraceCurves {
    /// Rank of an object by how often it is asked for, from 1, and how often that is: eight ranks
    /// for each doubling, and the last.
    pub popularity: Vec<(f64, f64)>,
    /// Of all that is asked for again: percent with at most so many different objects since. Powers
    /// of two, up to 3.2% too much counted from 64 on.
    pub reuse_distance: Vec<(f64, f64)>,
    /// Percent of the objects that have at most so many bytes, as the figures of
    /// [`TraceStat`](super::TraceStat).
    pub object_bytes: Vec<(f64, f64)>,
}

impl TraceCurves {
    /// `counts` from the greatest on.
    pub(super) fn of(counts: &[u32], reuse: &Histogram, sizes: &Histogram) -> TraceCurves {
        TraceCurves {
            popularity: popularity(counts),
            reuse_distance: within(reuse),
            object_bytes: within(sizes),
        }
    }
}

/// Steps for each doubling of the rank.
const STEPS: f64 = 8.0;

/// What was only deleted has no place among what is asked for.
fn popularity(counts: &[u32]) -> Points {
    let asked = &counts[..counts.partition_point(|count| *count > 0)];
    let mut ranks: Vec<usize> = (0..)
        .map(|step| 2f64.powf(f64::from(step) / STEPS).round() as usize)
        .take_while(|rank| *rank <= asked.len())
        .collect();
    ranks.extend((!asked.is_empty()).then_some(asked.len()));
    ranks.dedup();
    ranks.into_iter().map(|rank| (rank as f64, f64::from(asked[rank - 1]))).collect()
}

/// Percent of what was counted that is at most each power of two, up to the first that all are.
fn within(counted: &Histogram) -> Points {
    let percent = |at: u64| counted.at_most(at) as f64 * 100.0 / counted.count() as f64;
    let mut points = Points::new();
    for at in (0..u64::BITS).map(|power| 1_u64 << power) {
        if counted.count() == 0 {
            break;
        }
        points.push((at as f64, percent(at)));
        if at >= counted.max() {
            break;
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four objects, one of which was never asked for; distances 0, 3 and 9; sizes 1 and 100.
    #[test]
    fn curves_of_a_small_trace_are_exact() {
        let of = |values: &[u64]| {
            let mut histogram = Histogram::default();
            values.iter().for_each(|value| histogram.add(*value));
            histogram
        };
        let curves = TraceCurves::of(&[7, 2, 2, 0], &of(&[0, 3, 9]), &of(&[1, 100]));
        assert_eq!(curves.popularity, [(1.0, 7.0), (2.0, 2.0), (3.0, 2.0)]);
        let third = 100.0 / 3.0;
        let shares = [third, third, 2.0 * third, 2.0 * third, 100.0];
        assert_eq!(curves.reuse_distance.len(), shares.len());
        for ((at, percent), (power, share)) in curves.reuse_distance.iter().zip((0..).zip(shares)) {
            assert_eq!(*at, f64::from(1 << power));
            assert!((percent - share).abs() < 1e-9, "{at}: {percent}");
        }
        assert_eq!(curves.object_bytes.first(), Some(&(1.0, 50.0)));
        assert_eq!(curves.object_bytes.last(), Some(&(128.0, 100.0)));
    }

    #[test]
    fn nothing_has_no_points() {
        let none = Histogram::default();
        assert_eq!(TraceCurves::of(&[], &none, &none), TraceCurves::default());
    }

    /// Ranks come closer than the steps at first, and are each there once; the last is there too.
    #[test]
    fn ranks_are_in_order_and_few() {
        let ranks: Vec<f64> = popularity(&vec![1; 1_000]).iter().map(|point| point.0).collect();
        assert!(ranks.windows(2).all(|pair| pair[0] < pair[1]), "{ranks:?}");
        assert!(ranks.len() < 85 && ranks.last() == Some(&1_000.0), "{ranks:?}");
    }
}
