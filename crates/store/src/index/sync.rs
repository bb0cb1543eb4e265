//! The atomics and the mutex of the index, replaced by loom's in its model check.
//!
//! Owns nothing. All state in `index/` that threads share uses these types, so that
//! `RUSTFLAGS="--cfg loom" cargo test -p damelo --release --lib loom_` sees every access. Loom is a
//! dependency of tests only, hence `all(loom, test)`. In shuttle's tests of the store the index
//! keeps the standard atomics: each index operation is one step there.

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

/// Loom (0.7) remembers only the last access of each atomic. When a thread reads an atomic before
/// it writes it, loom forgets that another thread read it before, and does not try the other order:
/// it reduced most tests here to a single interleaving. So each access is preceded by an access of
/// `STEP`; all of these depend on each other, which makes loom try all orders. They are relaxed and
/// order nothing else.
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
