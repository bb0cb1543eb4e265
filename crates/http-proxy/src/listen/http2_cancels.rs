//! Requests of one HTTP/2 connection that its client cancels before their answers begin.
//!
//! Each may have cost a request to the origin, and a stream that was reset counts no more among
//! those that a connection may have at once. So nothing else would bound what a client has begun
//! and given up (CVE-2023-44487, "rapid reset"). Invariants: a request counts once, when it is
//! dropped without an answer; so many may be cancelled at once as the limit says, and then as many
//! in each second as it allows. Threads: the connection's worker; a lock for those that count.

use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

use crate::config::tables::Limits;
use crate::io::locks::lock;

/// What the client of one connection has cancelled.
#[derive(Debug)]
pub(super) struct Cancels {
    /// `None`: there is no limit.
    debt: Option<Mutex<Debt>>,
    exceeded: Notify,
}

/// Cancelled requests as time that has yet to pass for them.
#[derive(Debug)]
struct Debt {
    paid_at: Instant,
    each: Duration,
    most: Duration,
}

impl Debt {
    /// A debt of so many requests at most, of which so many a second are paid for.
    fn new(cancels_max: u32, a_second: u32, now: Instant) -> Debt {
        let each = Duration::from_secs(1) / a_second.max(1);
        Debt { paid_at: now, each, most: each.saturating_mul(cancels_max) }
    }

    /// Adds a request; whether that is one too many.
    fn add(&mut self, now: Instant) -> bool {
        self.paid_at = self.paid_at.max(now) + self.each;
        self.paid_at - now > self.most
    }
}

impl Cancels {
    /// `is_limited`: the client is not a proxy whose connections are those of many.
    pub(super) fn new(limits: &Limits, is_limited: bool) -> Arc<Cancels> {
        let (max, a_second) = (limits.http2_cancels_max, limits.http2_cancels_second_max);
        let is_limited = is_limited && max > 0;
        let debt = is_limited.then(|| Mutex::new(Debt::new(max, a_second, Instant::now())));
        Arc::new(Cancels { debt, exceeded: Notify::new() })
    }

    /// Begins a request.
    pub(super) fn begin(self: &Arc<Cancels>) -> Unanswered {
        Unanswered(self.debt.is_some().then(|| Arc::clone(self)))
    }

    /// Ready once the client has cancelled too many.
    pub(super) async fn exceeded(&self) {
        self.exceeded.notified().await;
    }

    fn count(&self, now: Instant) {
        if self.debt.as_ref().is_some_and(|debt| lock(debt).add(now)) {
            self.exceeded.notify_one();
        }
    }
}

/// A request without an answer: dropped, it counts as cancelled.
#[derive(Debug)]
pub(super) struct Unanswered(Option<Arc<Cancels>>);

impl Unanswered {
    /// Its answer begins.
    pub(super) fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(cancels) = self.0.take() {
            cancels.count(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_the_limit_at_once_and_then_so_many_a_second() {
        let start = Instant::now();
        let mut debt = Debt::new(100, 10, start);
        assert!((0..100).all(|_| !debt.add(start)));
        let later = start + Duration::from_secs(1);
        assert!((0..10).all(|_| !debt.add(later)), "these were paid for");
        assert!(debt.add(later), "one too many");
        let much_later = start + Duration::from_secs(3600);
        assert!((0..100).all(|_| !debt.add(much_later)), "time does not save up for more");
        assert!(debt.add(much_later));
    }

    #[test]
    fn only_what_has_no_answer_counts() {
        let limits = Limits { http2_cancels_max: 1, ..Limits::default() };
        for (is_limited, is_answered, exceeded) in
            [(true, false, true), (true, true, false), (false, false, false)]
        {
            let cancels = Cancels::new(&limits, is_limited);
            for _ in 0..2 {
                let request = cancels.begin();
                if is_answered {
                    request.answered();
                }
            }
            let seen = is_ready(cancels.exceeded());
            assert_eq!(seen, exceeded, "{is_limited} {is_answered}");
        }
        let none = Limits { http2_cancels_max: 0, ..Limits::default() };
        let cancels = Cancels::new(&none, true);
        drop((cancels.begin(), cancels.begin()));
        assert!(!is_ready(cancels.exceeded()), "0 is no limit");
    }

    /// Whether a future is ready at once.
    fn is_ready(future: impl Future<Output = ()>) -> bool {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        std::pin::pin!(future).poll(&mut context).is_ready()
    }
}
