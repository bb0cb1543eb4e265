//! Keeps a number of futures in flight from one thread, without a runtime: each has a slot and a
//! waker that marks the slot and wakes the thread. Works for any future; submissions to the disk
//! that the futures make are deferred and batched.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use damelo::{Deferral, submit_deferred};

/// Slots whose future was woken.
struct Ready {
    slots: Mutex<VecDeque<usize>>,
    /// The thread that runs the futures. Waking it costs a system call only while it waits: one for
    /// each read would be counted against the store.
    runner: Thread,
}

impl Ready {
    fn push(&self, slot: usize) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).push_back(slot);
        self.runner.unpark();
    }

    fn try_pop(&self) -> Option<usize> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn pop(&self) -> usize {
        if let Some(slot) = self.try_pop() {
            return slot;
        }
        submit_deferred();
        loop {
            match self.try_pop() {
                Some(slot) => return slot,
                None => thread::park(),
            }
        }
    }
}

struct SlotWaker {
    slot: usize,
    ready: Arc<Ready>,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.ready.push(self.slot);
    }
}

/// Runs the futures that `next` returns, `depth` at once, until it returns `None` and all have
/// ended. Each result is passed to `done`.
pub(crate) fn run<F: Future>(
    depth: usize,
    mut next: impl FnMut() -> Option<F>,
    mut done: impl FnMut(F::Output),
) {
    let ready = Arc::new(Ready { slots: Mutex::default(), runner: thread::current() });
    // Disk requests of all ready futures are submitted together, just before this thread waits.
    let _deferral = Deferral::begin(|| {});
    let wakers: Vec<Waker> = (0..depth)
        .map(|slot| Waker::from(Arc::new(SlotWaker { slot, ready: Arc::clone(&ready) })))
        .collect();
    let mut slots: Vec<Option<Pin<Box<F>>>> = (0..depth).map(|_| next().map(Box::pin)).collect();
    let mut under_way = slots.iter().flatten().count();
    (0..under_way).for_each(|slot| ready.push(slot));
    while under_way > 0 {
        let slot = ready.pop();
        // A future may be woken after it has ended. Its slot is then empty or holds another future:
        // a spurious poll is harmless.
        while let Some(future) = &mut slots[slot] {
            match future.as_mut().poll(&mut Context::from_waker(&wakers[slot])) {
                Poll::Pending => break,
                Poll::Ready(output) => {
                    done(output);
                    slots[slot] = next().map(Box::pin);
                    under_way -= usize::from(slots[slot].is_none());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A future that ends at its second poll and is woken from another thread.
    struct Later(Option<u32>, bool);

    impl Future for Later {
        type Output = u32;

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u32> {
            if self.1 {
                return Poll::Ready(self.0.take().unwrap());
            }
            self.1 = true;
            let waker = context.waker().clone();
            std::thread::spawn(move || waker.wake());
            Poll::Pending
        }
    }

    #[test]
    fn every_future_ends_once_and_no_more_run_than_asked_for() {
        let mut numbers = 0..100_u32;
        let mut seen = Vec::new();
        run(7, || numbers.next().map(|n| Later(Some(n), n % 3 == 0)), |n| seen.push(n));
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..100));
        run(4, || None::<Later>, |_| unreachable!());
    }
}
