//! Ends reads in both of the ways that callers have: waited for on their thread, and awaited.
//!
//! Threads: the driver's, which sleeps while the store's own do what it awaits.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use super::Driver;

/// One read in this many is awaited.
const AWAITED_ONE_IN: u64 = 2;

struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Sleeper>) {
        self.0.unpark();
    }
}

/// The outcome of an operation, which every second time is awaited.
macro_rules! ended {
    ($driver:expr, $operation:expr) => {
        if $driver.awaits_next() {
            $crate::driver::ended::awaited($operation)
        } else {
            $operation.wait()
        }
    };
}
pub(super) use ended;

pub(super) fn awaited<T>(operation: impl Future<Output = T>) -> T {
    let mut operation = pin!(operation);
    let waker = Waker::from(Arc::new(Sleeper(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(outcome) = operation.as_mut().poll(&mut context) {
            return outcome;
        }
        thread::park();
    }
}

impl Driver {
    pub(super) fn awaits_next(&self) -> bool {
        self.begun.set(self.begun.get() + 1);
        self.begun.get().is_multiple_of(AWAITED_ONE_IN)
    }
}
