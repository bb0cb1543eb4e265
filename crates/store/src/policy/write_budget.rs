//! A budget of bytes over time, for what may be written: one number, by which time it is paid for.
//!
//! Invariant: no clock of its own; over any time no more is taken than the budget for that time, a
//! window's worth, and one object. Threads: any, without locks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// So many bytes in a window of time, again and again. What is not used is saved up for one window; what is
/// taken beyond the budget, by an object larger than what is left of it, is paid back before anything more
/// is taken.
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
    /// When everything taken so far is paid for.
    paid_at_ns: AtomicU64,
}

impl WriteBudget {
    /// So many bytes in so much time.
    pub fn new(bytes: u64, window: Duration) -> WriteBudget {
        WriteBudget { bytes, window_ns: nanos(window).max(1), paid_at_ns: AtomicU64::new(0) }
    }

    /// Takes these bytes if there is anything left. `now` counts from any moment, and does not go back.
    pub fn take(&self, bytes: u64, now: Duration) -> bool {
        let now = nanos(now);
        let cost = self.cost_ns(bytes);
        let paid_at = |paid_at: u64| {
            let paid_at = paid_at.max(now);
            (self.bytes > 0 && paid_at - now < self.window_ns).then(|| paid_at.saturating_add(cost))
        };
        self.paid_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid_at).is_ok()
    }

    /// Takes these bytes whether there is anything left or not: they have been written.
    pub fn charge(&self, bytes: u64, now: Duration) {
        let now = nanos(now);
        let cost = self.cost_ns(bytes);
        let paid_at = |paid_at: u64| Some(paid_at.max(now).saturating_add(cost));
        // Never refused.
        let _ = self.paid_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid_at);
    }

    /// Time in which the budget grows by so many bytes.
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

    /// Objects of `bytes` taken when one is offered every millisecond for so long.
    fn taken(budget: &WriteBudget, bytes: u64, from: Duration, long: Duration) -> u64 {
        let offers = (0..long.as_millis() as u64).map(|ms| from + Duration::from_millis(ms));
        offers.filter(|now| budget.take(bytes, *now)).count() as u64
    }

    #[test]
    fn over_time_no_more_is_taken_than_the_budget_and_a_window() {
        let budget = WriteBudget::new(10_000, 10 * S);
        assert_eq!(taken(&budget, 100, Duration::ZERO, 2 * S), 120, "a window's worth, and 2 s");
        assert_eq!(taken(&budget, 100, 2 * S, 10 * S), 100, "1,000 a second");
        // An hour without writes saves up one window, not an hour.
        assert_eq!(taken(&budget, 100, 3600 * S, 10 * S), 200);
    }

    /// What is refused is not written, so it costs nothing.
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
