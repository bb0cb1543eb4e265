//! Waiting for a future by parking the thread. Threads: the one that waits; any wakes it.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};

use crate::device::submit_deferred;
use crate::sync::Arc;
use crate::sync::thread::{self, Thread};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
        submit_deferred();
        thread::park();
    }
}
