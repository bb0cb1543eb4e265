//! A condition variable whose notification costs one load when no thread waits.
//!
//! The standard one makes a system call for every notification, and most of ours have no waiter.
//! Invariant: waiting and notifying threads test and change the awaited state under the same mutex,
//! so a waiter is counted before a notification can miss it. A thread submits its deferred I/O
//! before it waits. Threads: any.

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Condvar, MutexGuard, PoisonError};
use std::time::Duration;

use crate::device::submit_deferred;

#[derive(Default)]
pub(crate) struct Signal {
    condvar: Condvar,
    waiters: AtomicUsize,
}

impl Signal {
    /// Releases the lock until notified; the caller must test the state again afterwards.
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        submit_deferred();
        self.waiters.fetch_add(1, Ordering::Relaxed);
        let guard = self.condvar.wait(guard).unwrap_or_else(PoisonError::into_inner);
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// As `wait`, for `most` at most; true if notified before that.
    pub(crate) fn wait_for<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        most: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        submit_deferred();
        self.waiters.fetch_add(1, Ordering::Relaxed);
        let (guard, timeout) =
            self.condvar.wait_timeout(guard, most).unwrap_or_else(PoisonError::into_inner);
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        (guard, !timeout.timed_out())
    }

    /// Wakes one waiter. The state must have been changed under the waiters' mutex before.
    pub(crate) fn notify_one(&self) {
        if self.waiters.load(Ordering::Relaxed) > 0 {
            self.condvar.notify_one();
        }
    }

    /// Wakes all waiters. The state must have been changed under the waiters' mutex before.
    pub(crate) fn notify_all(&self) {
        if self.waiters.load(Ordering::Relaxed) > 0 {
            self.condvar.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::sync::{Arc, Mutex, thread};

    use super::*;
    use crate::sync::lock;

    #[test]
    fn no_notification_is_missed() {
        let shared = Arc::new((Mutex::new(0_u32), Signal::default()));
        let theirs = Arc::clone(&shared);
        let rounds = 2_000;
        let other = thread::spawn(move || {
            for round in 0..rounds {
                let mut state = lock(&theirs.0);
                while *state != 2 * round + 1 {
                    state = theirs.1.wait(state);
                }
                *state += 1;
                drop(state);
                theirs.1.notify_all();
            }
        });
        for round in 0..rounds {
            let mut state = lock(&shared.0);
            *state += 1;
            drop(state);
            shared.1.notify_one();
            let mut state = lock(&shared.0);
            while *state != 2 * round + 2 {
                state = shared.1.wait(state);
            }
        }
        other.join().unwrap();
    }

    #[test]
    fn a_wait_that_nobody_ends_times_out() {
        let (mutex, signal) = (Mutex::new(()), Signal::default());
        let (_guard, notified) = signal.wait_for(lock(&mutex), Duration::from_millis(1));
        assert!(!notified);
        assert_eq!(signal.waiters.load(Ordering::Relaxed), 0);
    }
}
