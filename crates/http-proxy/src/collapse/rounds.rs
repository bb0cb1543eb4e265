//! How often, and for how long, a request waits for others.
//!
//! Invariant: it waits at most [`ROUNDS_MAX`] times for leaders that the origin answers, or that
//! fail; where those wait in vain, for as long as it would wait for the origin itself. Threads: the
//! worker's.

use std::time::Duration;

use tokio::time::Instant;

/// Times a request waits for others before it asks the origin itself, or has their failure.
const ROUNDS_MAX: usize = 3;

/// What is left of them.
pub(crate) struct Rounds {
    left: usize,
    silent_until: Instant,
}

impl Rounds {
    /// `silence_max` is how long a request waits for a silent origin.
    pub(crate) fn new(silence_max: Duration) -> Rounds {
        Rounds { left: ROUNDS_MAX, silent_until: Instant::now() + silence_max }
    }

    /// Until when it waits for an origin that says nothing.
    pub(crate) fn silent_until(&self) -> Instant {
        self.silent_until
    }

    pub(crate) fn is_one_left(&self) -> bool {
        self.left > 0
    }

    /// Ends a round. One in which the origin `was_silent` does not count while there is time: if
    /// all who wait then asked, an origin that hangs would have all of them at once.
    pub(crate) fn end_one(&mut self, was_silent: bool) {
        self.left = match was_silent {
            true if Instant::now() < self.silent_until => self.left,
            true => 0,
            false => self.left.saturating_sub(1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_is_waited_for_by_time_and_answers_by_number() {
        let mut rounds = Rounds::new(Duration::from_secs(60));
        for _ in 0..5 {
            rounds.end_one(true);
        }
        rounds.end_one(false);
        rounds.end_one(false);
        assert!(rounds.is_one_left());
        rounds.end_one(false);
        assert!(!rounds.is_one_left());
        let mut rounds = Rounds::new(Duration::from_secs(60));
        tokio::time::advance(Duration::from_secs(60)).await;
        rounds.end_one(true);
        assert!(!rounds.is_one_left());
    }
}
