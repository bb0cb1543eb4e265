//! Whether the store is at rest, so that its threads may sleep long.
//!
//! While the store is used, flusher, keeper and the thread behind large pages look for work at
//! short intervals. A program whose cache is idle should not be woken a hundred times a second for
//! it: after [`LOOKS`] looks of the flusher between which nothing stirred, all of them sleep for
//! [`REST`], and the next operation that takes memory, or writes, wakes them. Hits in memory stir
//! nothing.
//!
//! Invariant: a thread decides how long to sleep under the lock that whoever wakes it takes, so no
//! wake-up is missed. Threads: any stirs; the flusher counts looks.

use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Condvar, Mutex, Padded, PoisonError, lock};
use std::time::Duration;

/// Looks of the flusher, 20 ms apart, at a store that nobody stirs before it is at rest.
const LOOKS: u32 = 10;
/// Longest sleep at rest: the keeper still sees that the period of checkpoints is over.
pub(crate) const REST: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(crate) struct Rest {
    /// Looks since the last stir, at most `LOOKS`. Every operation reads it, so it has its line.
    looks: Padded<AtomicU32>,
    stopped: Mutex<bool>,
    wake: Condvar,
}

impl Rest {
    /// Notes that the store is used. True if it was at rest: the caller wakes the flusher, the
    /// others are awake. Costs one load while the store is used.
    #[inline]
    pub(crate) fn stir(&self) -> bool {
        let stirred = self.looks.load(Ordering::Relaxed) == 0;
        !stirred && self.looks.swap(0, Ordering::SeqCst) == LOOKS && self.wake_all()
    }

    #[cold]
    fn wake_all(&self) -> bool {
        drop(lock(&self.stopped));
        self.wake.notify_all();
        true
    }

    /// The flusher has looked, and found its own work done or not.
    pub(crate) fn looked(&self, is_idle: bool) {
        let looks = self.looks.load(Ordering::Relaxed);
        let next = if is_idle { (looks + 1).min(LOOKS) } else { 0 };
        // Fails if the store was stirred meanwhile, which counts for more.
        let _ = self.looks.compare_exchange(looks, next, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// How long a thread that would sleep for `nap` may sleep now. To be asked under the lock that
    /// is taken to wake it.
    pub(crate) fn nap(&self, nap: Duration) -> Duration {
        if self.looks.load(Ordering::SeqCst) == LOOKS { nap.max(REST) } else { nap }
    }

    /// Sleeps for `nap`, or longer at rest; true once [`Rest::stop`] was called.
    pub(crate) fn sleep(&self, nap: Duration) -> bool {
        let stopped = lock(&self.stopped);
        if *stopped {
            return true;
        }
        let nap = self.nap(nap);
        *self.wake.wait_timeout(stopped, nap).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Ends all sleep.
    pub(crate) fn stop(&self) {
        *lock(&self.stopped) = true;
        self.wake.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAP: Duration = Duration::from_millis(20);

    fn rested() -> Rest {
        let rest = Rest::default();
        (0..LOOKS).for_each(|_| rest.looked(true));
        rest
    }

    #[test]
    fn naps_grow_after_some_looks_at_nothing_and_shrink_at_the_first_stir() {
        let rest = Rest::default();
        for _ in 0..LOOKS {
            assert_eq!(rest.nap(NAP), NAP);
            assert!(!rest.stir(), "nobody is to be woken before");
            rest.looked(true);
        }
        assert_eq!(rest.nap(NAP), NAP, "each stir begins the count again");
        let rest = rested();
        assert_eq!(rest.nap(NAP), REST);
        assert!(rest.stir(), "the flusher is to be woken");
        assert!(!rest.stir(), "once");
        assert_eq!(rest.nap(NAP), NAP);
    }

    #[test]
    fn work_of_the_flusher_is_no_rest() {
        let rest = rested();
        rest.looked(false);
        assert_eq!(rest.nap(NAP), NAP);
    }

    /// With a rest of hours this would hang if stirs did not wake.
    #[test]
    fn a_sleeper_is_woken_by_the_first_stir_and_by_the_end() {
        let rest = rested();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| rest.sleep(Duration::from_secs(36_000)));
            while !sleeper.is_finished() {
                (0..LOOKS).for_each(|_| rest.looked(true));
                rest.stir();
                std::thread::yield_now();
            }
            assert!(!sleeper.join().unwrap());
        });
        rest.stop();
        assert!(rest.sleep(Duration::from_secs(36_000)));
    }
}
