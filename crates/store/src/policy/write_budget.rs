//! A budget of bytes over time, for limiting writes. The only state is the time by which all bytes
//! taken so far are paid for.
//!
//! Invariants: no clock of its own; over any period the bytes taken never exceed the budget of that
//! period plus one window's budget plus one object. Threads: any, without locks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Allows a number of bytes for each window of time. Unused budget accumulates up to one window's
/// worth. An object larger than the remaining budget is taken, and its excess is paid back before
/// anything else is taken.
///
/// ```
/// use std::time::Duration;
/// let day = Duration::from_secs(86_400);
/// let budget = damelo::policy::WriteBudget::new(1000, day);
/// assert!(budget.take(600, Duration::ZERO) && budget.take(600, Duration::ZERO));
/// assert!(!budget.take(1, Duration::ZERO), "200 too much");
/// assert!(!budget.take(1, day / 10) && budget.take(1, day / 4));
/// ```
#[derive(Debug)]
pub struct WriteBudget {
    bytes: u64,
    window_ns: u64,
    /// The time at which all bytes taken so far are paid for.
    paid_at_ns: AtomicU64,
}

impl WriteBudget {
    /// A budget of `bytes` for each `window`.
    pub fn new(bytes: u64, window: Duration) -> WriteBudget {
        WriteBudget { bytes, window_ns: nanos(window).max(1), paid_at_ns: AtomicU64::new(0) }
    }

    /// Takes these bytes and returns true if any budget is left. `now` counts from any fixed
    /// moment, and never decreases.
    pub fn take(&self, bytes: u64, now: Duration) -> bool {
        let now = nanos(now);
        let cost = self.cost_ns(bytes);
        let paid_at = |paid_at: u64| {
            let paid_at = paid_at.max(now);
            (self.bytes > 0 && paid_at - now < self.window_ns).then(|| paid_at.saturating_add(cost))
        };
        self.paid_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid_at).is_ok()
    }

    /// Charges bytes that have been written already, whether any budget is left or not.
    pub fn charge(&self, bytes: u64, now: Duration) {
        let now = nanos(now);
        let cost = self.cost_ns(bytes);
        let paid_at = |paid_at: u64| Some(paid_at.max(now).saturating_add(cost));
        // The update never fails: the closure always returns `Some`.
        let _ = self.paid_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid_at);
    }

    /// Time in which the budget grows by `bytes`.
    fn cost_ns(&self, bytes: u64) -> u64 {
        let cost = u128::from(bytes) * u128::from(self.window_ns);
        u64::try_from(cost.div_ceil(u128::from(self.bytes.max(1)))).unwrap_or(u64::MAX)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    /// Counts the objects of `bytes` taken when one is offered every millisecond for `long`.
    fn taken(budget: &WriteBudget, bytes: u64, from: Duration, long: Duration) -> u64 {
        let offers = (0..long.as_millis() as u64).map(|ms| from + Duration::from_millis(ms));
        offers.filter(|now| budget.take(bytes, *now)).count() as u64
    }

    #[test]
    fn over_time_no_more_is_taken_than_the_budget_and_a_window() {
        let budget = WriteBudget::new(10_000, 10 * S);
        assert_eq!(taken(&budget, 100, Duration::ZERO, 2 * S), 120, "a window's worth, and 2 s");
        assert_eq!(taken(&budget, 100, 2 * S, 10 * S), 100, "1,000 a second");
        // An hour without writes accumulates one window's budget, not an hour's.
        assert_eq!(taken(&budget, 100, 3600 * S, 10 * S), 200);
    }

    /// A refused object is not written, so it costs nothing.
    #[test]
    fn what_is_refused_costs_nothing() {
        let budget = WriteBudget::new(1000, S);
        assert!(budget.take(1000, S));
        for _ in 0..1000 {
            assert!(!budget.take(1 << 30, S));
        }
        assert!(budget.take(10, S + S / 10));
    }

    #[test]
    fn an_object_larger_than_the_budget_is_paid_back() {
        let budget = WriteBudget::new(1000, S);
        assert!(budget.take(10_000, S));
        assert!(!budget.take(1, 9 * S) && budget.take(1, 11 * S));
        budget.charge(5000, 11 * S);
        assert!(!budget.take(1, 14 * S) && budget.take(1, 16 * S));
    }

    #[test]
    fn nothing_is_taken_of_nothing_and_nothing_overflows() {
        assert!(!WriteBudget::new(0, S).take(0, S));
        let budget = WriteBudget::new(1, S);
        assert!(budget.take(u64::MAX, Duration::MAX));
        budget.charge(u64::MAX, Duration::ZERO);
        assert!(!budget.take(1, S));
        assert!(WriteBudget::new(u64::MAX, Duration::ZERO).take(u64::MAX, S));
    }
}
