//! What is stored at all: the admission rules, and what they remember.
//!
//! Invariant: no I/O, no clock of its own. Threads: any, without locks; lost updates of two creates at
//! once let one object in, or refuse one, that would not have been.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::config::Admission;

const PLACES: usize = 1 << 16;
/// Window over which a write budget is averaged.
const BUDGET_WINDOW: Duration = Duration::from_secs(10);

/// Which keys were seen before, by their hashes: a table of fingerprints, one place for each. A key that
/// another one pushed out counts as new once more. It takes no memory before it is asked, and 256 KiB from
/// then on.
///
/// ```
/// let seen = damelo::policy::Seen::default();
/// assert!(!seen.before(17));
/// assert!(seen.before(17));
/// ```
#[derive(Debug, Default)]
pub struct Seen {
    places: OnceLock<Box<[AtomicU32]>>,
}

impl Seen {
    /// Whether this was seen before; from now on it was.
    pub fn before(&self, hash: u64) -> bool {
        let places = self.places.get_or_init(|| (0..PLACES).map(|_| AtomicU32::new(0)).collect());
        // 0 is an empty place.
        let print = (hash >> 32) as u32 | 1;
        places[hash as usize % PLACES].swap(print, Ordering::Relaxed) == print
    }
}

/// What the rule of a store remembers: refused keys, and recent bytes.
#[derive(Default)]
pub(crate) struct AdmissionState {
    seen: Seen,
    window_start_ms: AtomicU64,
    window_bytes: AtomicU64,
}

impl AdmissionState {
    pub(crate) fn admits(
        &self,
        rule: Admission,
        hash: u64,
        bytes: u64,
        now: Duration,
    ) -> Result<(), &'static str> {
        match rule {
            Admission::Always => Ok(()),
            Admission::SecondHit if self.seen.before(hash) => Ok(()),
            Admission::SecondHit => Err("second_hit: first seen now"),
            Admission::WriteBudget { bytes_per_second } => {
                let budget = bytes_per_second.saturating_mul(BUDGET_WINDOW.as_secs());
                if self.written_in_window(bytes, now) <= budget {
                    Ok(())
                } else {
                    Err("write_budget: spent for now")
                }
            }
        }
    }

    /// Bytes of the window that `now` is in, these included.
    fn written_in_window(&self, bytes: u64, now: Duration) -> u64 {
        let now_ms = now.as_millis() as u64;
        let start = self.window_start_ms.load(Ordering::Relaxed);
        if now_ms.saturating_sub(start) >= BUDGET_WINDOW.as_millis() as u64 {
            self.window_start_ms.store(now_ms, Ordering::Relaxed);
            self.window_bytes.store(0, Ordering::Relaxed);
        }
        self.window_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_time_is_known_and_nothing_else() {
        let seen = Seen::default();
        assert!(seen.places.get().is_none(), "nothing before it is needed");
        assert_eq!((seen.before(1), seen.before(1), seen.before(1)), (false, true, true));
        // Two keys must meet in place and fingerprint to be taken for each other.
        let mut random = fastrand::Rng::with_seed(1);
        let others = (0..10 * PLACES).filter(|_| seen.before(random.u64(..))).count();
        assert!(others < 100, "{others}");
    }
}
