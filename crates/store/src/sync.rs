//! The locks, waits, channels and threads of the store, replaced by shuttle's in its schedule
//! tests.
//!
//! Owns nothing. Every lock, condition variable, channel and thread of the store comes from here
//! (except the devices' and the index's own), and so does every atomic by which one thread learns
//! of another's progress. So `RUSTFLAGS="--cfg shuttle" cargo test -p damelo --release shuttle_`
//! controls the schedule at each of them. Counters and estimates use the standard atomics: no
//! decision depends on their order. Shuttle is a dependency of tests only, hence `all(shuttle,
//! test)`.

pub(crate) use std::sync::{Arc, OnceLock, PoisonError, Weak};

#[cfg(not(all(shuttle, test)))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic, mpsc},
    thread,
};

#[cfg(all(shuttle, test))]
pub(crate) use for_shuttle::{Condvar, Mutex, MutexGuard};
#[cfg(all(shuttle, test))]
pub(crate) use shuttle::{
    sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, atomic, mpsc},
    thread,
};

/// On cache lines of its own: what many threads write, beside what they only read. Two lines, since
/// processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Locks a mutex, also after its holder panicked: the data under the store's locks is valid after
/// each step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for reading, like [`lock`].
pub(crate) fn shared<T>(locked: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    locked.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for writing, like [`lock`].
pub(crate) fn exclusive<T>(locked: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    locked.write().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread that ends before its scope does.
#[cfg(not(all(shuttle, test)))]
pub(crate) fn spawn_scoped<'scope>(
    new: thread::Builder,
    scope: &'scope thread::Scope<'scope, '_>,
    work: impl FnOnce() + Send + 'scope,
) -> std::io::Result<()> {
    new.spawn_scoped(scope, work).map(drop)
}

/// Shuttle (0.9) has no builder for scoped threads, and starting one never fails.
#[cfg(all(shuttle, test))]
pub(crate) fn spawn_scoped<'scope>(
    _new: thread::Builder,
    scope: &'scope thread::Scope<'scope, '_>,
    work: impl FnOnce() + Send + 'scope,
) -> std::io::Result<()> {
    scope.spawn(work);
    Ok(())
}

/// Shuttle's (0.9) condition variables never time out. These do: a short wait ends as soon as other
/// threads have run, a long one only when notified. A lost notification that only a long time-out
/// would recover is then a deadlock, which shuttle reports.
#[cfg(all(shuttle, test))]
mod for_shuttle {
    use std::ops::{Deref, DerefMut};
    use std::sync::{LockResult, PoisonError};
    use std::time::Duration;

    use shuttle::{sync, thread};

    /// Waits of at least this length never time out.
    const LONG: Duration = Duration::from_secs(1);

    #[derive(Default)]
    pub(crate) struct Mutex<T>(sync::Mutex<T>);

    /// Knows its mutex, so that a wait can release and retake it.
    pub(crate) struct MutexGuard<'a, T> {
        mutex: &'a Mutex<T>,
        guard: sync::MutexGuard<'a, T>,
    }

    #[derive(Default)]
    pub(crate) struct Condvar(sync::Condvar);

    pub(crate) struct WaitTimeoutResult(bool);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex(sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            let guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(MutexGuard { mutex: self, guard })
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.guard
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.guard
        }
    }

    impl WaitTimeoutResult {
        pub(crate) fn timed_out(&self) -> bool {
            self.0
        }
    }

    impl Condvar {
        pub(crate) fn wait<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
        ) -> LockResult<MutexGuard<'a, T>> {
            let MutexGuard { mutex, guard } = guard;
            let guard = self.0.wait(guard).unwrap_or_else(PoisonError::into_inner);
            Ok(MutexGuard { mutex, guard })
        }

        pub(crate) fn wait_timeout<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            most: Duration,
        ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
            if most >= LONG {
                let guard = self.wait(guard).unwrap_or_else(PoisonError::into_inner);
                return Ok((guard, WaitTimeoutResult(false)));
            }
            let mutex = guard.mutex;
            drop(guard);
            thread::yield_now();
            let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
            Ok((guard, WaitTimeoutResult(true)))
        }

        pub(crate) fn wait_timeout_while<'a, T>(
            &self,
            mut guard: MutexGuard<'a, T>,
            most: Duration,
            mut condition: impl FnMut(&mut T) -> bool,
        ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
            loop {
                if !condition(&mut guard) {
                    return Ok((guard, WaitTimeoutResult(false)));
                }
                let timeout;
                (guard, timeout) =
                    self.wait_timeout(guard, most).unwrap_or_else(PoisonError::into_inner);
                if timeout.timed_out() {
                    return Ok((guard, timeout));
                }
            }
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}
