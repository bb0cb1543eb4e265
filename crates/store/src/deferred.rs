//! Outcomes that are ready at once or come later: the implementation of every operation type.
//!
//! An operation that needs no waiting is ready when it is made, which allocates nothing. Otherwise
//! `wait` does the work on the calling thread, and polling hands it to the store's own threads.
//! Invariants: work is done at most once, and never if the operation is dropped before. An
//! operation that is dropped while a thread works on it is abandoned: work that changes the store
//! checks for that under the lock that makes the change visible, so it takes effect before the drop
//! or never. A waker that panics harms nobody else. Threads: any.

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex, lock};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Instant;

use crate::engine::Engine;
use crate::workers::Lane;

/// The caller that waits for an operation: since when, and whether it still does. Once the caller
/// is gone the operation must not take effect: it would come after the caller's later operations.
#[derive(Clone)]
pub(crate) struct Caller {
    gone: Arc<AtomicBool>,
    since: Instant,
}

impl Caller {
    fn new() -> Caller {
        Caller { gone: Arc::default(), since: Instant::now() }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// When the caller began to wait, including the wait for a thread.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// The same caller, with the time waited so far discounted.
    pub(crate) fn waiting_anew(self) -> Caller {
        Caller { since: Instant::now(), ..self }
    }
}

/// A promise: a value that another thread supplies.
pub(crate) struct OneShot<T> {
    caller: Caller,
    /// The work, until a thread begins it or the caller is gone: what it holds (a copy of a value
    /// to be created) is not kept for a caller who is gone, however long the queue is.
    queued: Mutex<Option<Work<T>>>,
    slot: Mutex<(Option<thread::Result<T>>, Option<Waker>)>,
}

impl<T> OneShot<T> {
    pub(crate) fn new() -> Arc<OneShot<T>> {
        OneShot::of(None)
    }

    fn of(queued: Option<Work<T>>) -> Arc<OneShot<T>> {
        Arc::new(OneShot {
            caller: Caller::new(),
            queued: Mutex::new(queued),
            slot: Mutex::new((None, None)),
        })
    }

    /// Does the work that waits, unless the caller is gone.
    fn work(&self) {
        let queued = lock(&self.queued).take();
        if let Some(work) = queued {
            self.put_outcome_of(|| work(&self.caller));
        }
    }

    pub(crate) fn put(&self, value: T) {
        self.end(Ok(value));
    }

    /// Runs the work and supplies its outcome. If the work panics (a policy of the embedder may),
    /// the waiter resumes the panic: it would otherwise wait for ever.
    pub(crate) fn put_outcome_of(&self, work: impl FnOnce() -> T) {
        // Unwind-safe: state that the work leaves unfinished is behind the store's own locks, which
        // may be taken again.
        self.end(catch_unwind(AssertUnwindSafe(work)));
    }

    /// Begins what supplies the outcome later, unless the caller is gone. If that panics, the
    /// waiter resumes the panic.
    pub(crate) fn begin(&self, start: impl FnOnce()) {
        if self.caller.is_gone() {
            return;
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(start)) {
            self.end(Err(panic));
        }
    }

    fn end(&self, value: thread::Result<T>) {
        let waker = {
            let mut slot = lock(&self.slot);
            slot.0 = Some(value);
            slot.1.take()
        };
        waker.into_iter().for_each(wake);
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<T> {
        let mut slot = lock(&self.slot);
        match slot.0.take() {
            Some(Ok(value)) => Poll::Ready(value),
            Some(Err(panic)) => {
                drop(slot);
                resume_unwind(panic)
            }
            None => {
                let before = slot.1.replace(cx.waker().clone());
                // What a waker keeps alive is the program's, and is dropped without the lock.
                drop(slot);
                drop(before);
                Poll::Pending
            }
        }
    }
}

/// Wakes. A waker that panics has spoken to the panic hook, and ends neither this thread, which may
/// complete the I/O of others, nor what is still to be done here.
pub(crate) fn wake(waker: Waker) {
    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
}

/// The caller's side of a promise. Dropping it before the value has come abandons the operation.
struct Awaited<T>(Arc<OneShot<T>>);

impl<T> Drop for Awaited<T> {
    fn drop(&mut self) {
        self.0.caller.gone.store(true, Ordering::SeqCst);
        // Dropped without the lock: the work may hold much.
        let queued = lock(&self.0.queued).take();
        drop(queued);
        // Nor is the caller's task kept alive until the I/O is done.
        let waker = lock(&self.0.slot).1.take();
        drop(waker);
    }
}

type Work<T> = Box<dyn FnOnce(&Caller) -> T + Send>;
/// Starts the work, which supplies its outcome to the promise later.
type Start<T> = Box<dyn FnOnce(Arc<OneShot<T>>) + Send>;
/// Does what work is there.
type Job = Box<dyn FnOnce() + Send>;
/// Hands the job to a thread, or tells the outcome without any work.
type HandIn<T> = Box<dyn FnOnce(Job) -> Option<T> + Send>;

enum State<T> {
    Ready(T),
    /// Blocking work, run inline by `wait` and by a worker when polled.
    Blocking(Arc<Engine>, Lane, Work<T>),
    /// As `Blocking`, with a choice of the thread.
    HandedIn(Work<T>, HandIn<T>),
    /// As `Blocking`, with a way to start it that occupies no thread.
    Startable(Work<T>, Start<T>),
    Waiting(Awaited<T>),
    Taken,
}

/// The state machine behind every operation type.
pub(crate) struct Deferred<T>(State<T>);

impl<T: Send + 'static> Deferred<T> {
    #[inline]
    pub(crate) fn ready(value: T) -> Deferred<T> {
        Deferred(State::Ready(value))
    }

    /// Blocking work, among jobs of this kind. What must not take effect once it is abandoned, or
    /// takes long, asks whether the caller is gone.
    pub(crate) fn blocking_in(
        lane: Lane,
        engine: &Arc<Engine>,
        work: impl FnOnce(&Caller) -> T + Send + 'static,
    ) -> Deferred<T> {
        Deferred(State::Blocking(Arc::clone(engine), lane, Box::new(work)))
    }

    /// As `blocking_in`, for a create: many waiting creates must not keep reads from running.
    pub(crate) fn creating(
        engine: &Arc<Engine>,
        work: impl FnOnce(&Caller) -> T + Send + 'static,
    ) -> Deferred<T> {
        Deferred::blocking_in(Lane::Creates, engine, work)
    }

    /// As `blocking_in`, for a streamed create.
    pub(crate) fn writing(
        engine: &Arc<Engine>,
        work: impl FnOnce(&Caller) -> T + Send + 'static,
    ) -> Deferred<T> {
        Deferred::blocking_in(Lane::Writers, engine, work)
    }

    /// As `blocking_in`; `hand_in` chooses the thread once the operation is polled. It may tell the
    /// outcome instead.
    pub(crate) fn blocking_by(
        work: impl FnOnce() -> T + Send + 'static,
        hand_in: impl FnOnce(Job) -> Option<T> + Send + 'static,
    ) -> Deferred<T> {
        Deferred(State::HandedIn(Box::new(|_| work()), Box::new(hand_in)))
    }

    pub(crate) fn startable(
        work: impl FnOnce() -> T + Send + 'static,
        start: impl FnOnce(Arc<OneShot<T>>) + Send + 'static,
    ) -> Deferred<T> {
        Deferred(State::Startable(Box::new(|_| work()), Box::new(start)))
    }

    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.0, State::Ready(_))
    }

    #[inline]
    pub(crate) fn wait(self) -> T {
        match self.0 {
            State::Ready(value) => value,
            State::Blocking(_, _, work) | State::HandedIn(work, _) | State::Startable(work, _) => {
                work(&Caller::new())
            }
            State::Waiting(_) | State::Taken => panic!("an operation is waited for once, unpolled"),
        }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        loop {
            match std::mem::replace(&mut self.0, State::Taken) {
                State::Ready(value) => return Poll::Ready(value),
                State::Blocking(engine, lane, work) => {
                    let promise = OneShot::of(Some(work));
                    let theirs = Arc::clone(&promise);
                    engine.workers.run(lane, Box::new(move || theirs.work()));
                    self.0 = State::Waiting(Awaited(promise));
                }
                State::HandedIn(work, hand_in) => {
                    let promise = OneShot::of(Some(work));
                    let theirs = Arc::clone(&promise);
                    if let Some(value) = hand_in(Box::new(move || theirs.work())) {
                        return Poll::Ready(value);
                    }
                    self.0 = State::Waiting(Awaited(promise));
                }
                State::Startable(_, start) => {
                    let promise = OneShot::new();
                    start(Arc::clone(&promise));
                    self.0 = State::Waiting(Awaited(promise));
                }
                State::Waiting(promise) => {
                    let polled = promise.0.poll(cx);
                    if polled.is_pending() {
                        self.0 = State::Waiting(promise);
                    }
                    return polled;
                }
                State::Taken => panic!("an operation is not polled again after it is done"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All workers may be busy for long.
    #[test]
    fn what_is_handed_in_and_dropped_holds_nothing_and_is_not_done() {
        let (held, queue) = (Arc::new(()), Arc::new(Mutex::new(Vec::<Job>::new())));
        let hand_in = || {
            let (held, queue) = (Arc::clone(&held), Arc::clone(&queue));
            let hand_in = move |job| {
                lock(&queue).push(job);
                None
            };
            Deferred::blocking_by(move || Arc::strong_count(&held), hand_in)
        };
        let mut cx = Context::from_waker(Waker::noop());
        let (mut kept, mut left) = (hand_in(), hand_in());
        assert!(kept.poll(&mut cx).is_pending() && left.poll(&mut cx).is_pending());
        assert_eq!(Arc::strong_count(&held), 3);
        drop(left);
        assert_eq!(Arc::strong_count(&held), 2, "only the job is left of it");
        let jobs = std::mem::take(&mut *lock(&queue));
        jobs.into_iter().for_each(|job| job());
        assert_eq!((kept.poll(&mut cx), Arc::strong_count(&held)), (Poll::Ready(2), 1));
    }

    #[test]
    fn what_is_told_instead_of_handed_in_is_ready_and_work_that_is_waited_for_is_not_handed_in() {
        let of = || Deferred::blocking_by(|| "done", |_| Some("told"));
        assert_eq!(of().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready("told"));
        assert_eq!(of().wait(), "done");
    }
}
