//! The atomics and the mutex the index is built on, swapped for loom's in its model check.
//!
//! Owns nothing. Everything in `index/` that is shared between threads goes through here, so
//! that `RUSTFLAGS="--cfg loom" cargo test -p damelo --release loom_` sees every access. Loom is
//! a dependency of tests only, hence `all(loom, test)`. In shuttle's tests of the store around it the
//! index keeps its atomics: each of its operations is one step there.

#[cfg(not(any(all(loom, test), all(shuttle, test))))]
pub(super) use std::hint::spin_loop;
#[cfg(not(all(loom, test)))]
pub(super) use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(not(all(loom, test)))]
pub(super) use crate::sync::{Mutex, MutexGuard};
#[cfg(all(shuttle, test))]
pub(super) use shuttle::thread::yield_now as spin_loop;

#[cfg(all(loom, test))]
pub(super) use for_loom::AtomicU64;
#[cfg(all(loom, test))]
pub(super) use loom::sync::{Mutex, MutexGuard, atomic::Ordering};
#[cfg(all(loom, test))]
pub(super) use loom::thread::yield_now as spin_loop;

/// Loom (0.7) remembers of each atomic the last access only. A thread that reads one before it
/// writes it hides that another read it before, and loom will not try the other order: it took
/// most tests here for a single interleaving. So each access is preceded by one of `STEP`, which
/// depends on each other and makes loom try all orders. Being relaxed, it orders nothing else.
#[cfg(all(loom, test))]
mod for_loom {
    use loom::sync::atomic::{self, Ordering};

    loom::lazy_static! {
        static ref STEP: atomic::AtomicU64 = atomic::AtomicU64::new(0);
    }

    fn step() {
        STEP.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::index) struct AtomicU64(atomic::AtomicU64);

    impl AtomicU64 {
        pub(in crate::index) fn new(value: u64) -> AtomicU64 {
            AtomicU64(atomic::AtomicU64::new(value))
        }

        pub(in crate::index) fn load(&self, order: Ordering) -> u64 {
            step();
            self.0.load(order)
        }

        pub(in crate::index) fn store(&self, value: u64, order: Ordering) {
            step();
            self.0.store(value, order);
        }

        pub(in crate::index) fn swap(&self, value: u64, order: Ordering) -> u64 {
            step();
            self.0.swap(value, order)
        }

        pub(in crate::index) fn compare_exchange(
            &self,
            current: u64,
            new: u64,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            step();
            self.0.compare_exchange(current, new, success, failure)
        }
    }
}
