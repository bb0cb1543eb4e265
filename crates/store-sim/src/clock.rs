//! A clock whose wall time stands still until it is set, and may be set backwards.
//!
//! Invariant: monotonic time never goes back. It follows real time, so that the store's bounded
//! waits end; a still clock moves only when told to, for stores without threads of their own, which
//! have no such waits. Threads: any; all state is atomic.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use damelo::Clock;

/// Wall time at which simulations start: a day in 2024.
const UNIX_START_S: u64 = 1_720_000_000;

/// Settable clock for simulations.
#[derive(Debug)]
pub struct SimClock {
    unix_s: AtomicU64,
    virtual_ns: AtomicU64,
    /// `None` for a still clock, which ignores real time.
    start: Option<Instant>,
}

impl SimClock {
    /// A clock at a fixed day.
    pub fn new() -> SimClock {
        SimClock {
            unix_s: AtomicU64::new(UNIX_START_S),
            virtual_ns: AtomicU64::new(0),
            start: Some(Instant::now()),
        }
    }

    /// A still clock: its monotonic time moves only by [`SimClock::advance`], so that the same
    /// calls on one thread see the same times.
    pub fn still() -> SimClock {
        SimClock { start: None, ..SimClock::new() }
    }

    /// Whether the clock moves only when told to.
    pub fn is_still(&self) -> bool {
        self.start.is_none()
    }

    /// Sets wall time; earlier than now is allowed.
    pub fn set_unix_seconds(&self, seconds: u64) {
        self.unix_s.store(seconds, Ordering::SeqCst);
    }

    /// Moves wall time by `seconds`, in either direction, and returns it.
    pub fn jump(&self, seconds: i64) -> u64 {
        let moved = self.unix_seconds().saturating_add_signed(seconds);
        self.set_unix_seconds(moved);
        moved
    }

    /// Moves monotonic time forward.
    pub fn advance(&self, by: Duration) {
        self.virtual_ns.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Default for SimClock {
    fn default() -> SimClock {
        SimClock::new()
    }
}

impl Clock for SimClock {
    fn unix_seconds(&self) -> u64 {
        self.unix_s.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        let real = self.start.map_or(Duration::ZERO, |start| start.elapsed());
        real + Duration::from_nanos(self.virtual_ns.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_jumps_and_monotonic_time_does_not_go_back() {
        let clock = SimClock::new();
        let (wall, mono) = (clock.unix_seconds(), clock.monotonic());
        assert_eq!(clock.jump(-1000), wall - 1000);
        clock.advance(Duration::from_secs(5));
        assert_eq!(clock.unix_seconds(), wall - 1000);
        assert!(clock.monotonic() >= mono + Duration::from_secs(5));
        let still = SimClock::still();
        still.advance(Duration::from_secs(5));
        assert_eq!(still.monotonic(), Duration::from_secs(5));
    }
}
