//! What operations return: values that can be awaited on any executor, or waited for.
//!
//! An operation that needs no waiting is ready when it is returned and allocates nothing. Otherwise
//! `.wait()` does the work on the calling thread, and polling hands it to the store's own threads.
//! Nothing is done for an operation that is dropped before it is waited for or polled, except
//! where the operation says so.

use crate::sync::{Arc, Mutex, lock};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::engine::Engine;
use crate::workers::Lane;

/// A value that another thread will put in.
pub(crate) struct OneShot<T> {
    slot: Mutex<(Option<T>, Option<Waker>)>,
}

impl<T> OneShot<T> {
    pub(crate) fn new() -> Arc<OneShot<T>> {
        Arc::new(OneShot { slot: Mutex::new((None, None)) })
    }

    pub(crate) fn put(&self, value: T) {
        let waker = {
            let mut slot = lock(&self.slot);
            slot.0 = Some(value);
            slot.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<T> {
        let mut slot = lock(&self.slot);
        match slot.0.take() {
            Some(value) => Poll::Ready(value),
            None => {
                slot.1 = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

type Work<'a, T> = Box<dyn FnOnce() -> T + Send + 'a>;
/// Starts the work so that it puts its outcome into the promise later.
type Start<T> = Box<dyn FnOnce(Arc<OneShot<T>>) + Send>;

enum State<'a, T> {
    Ready(T),
    /// Blocking work, run inline by `wait` and by a worker when polled.
    Blocking(Arc<Engine>, Lane, Work<'a, T>),
    /// As above, with a way to start it that occupies no thread.
    Startable(Work<'a, T>, Start<T>),
    Waiting(Arc<OneShot<T>>),
    Taken,
}

/// The engine of every operation type.
pub(crate) struct Deferred<'a, T>(State<'a, T>);

impl<'a, T: Send + 'static> Deferred<'a, T> {
    #[inline]
    pub(crate) fn ready(value: T) -> Deferred<'a, T> {
        Deferred(State::Ready(value))
    }

    pub(crate) fn blocking(
        engine: &Arc<Engine>,
        work: impl FnOnce() -> T + Send + 'a,
    ) -> Deferred<'a, T> {
        Deferred(State::Blocking(Arc::clone(engine), Lane::Soon, Box::new(work)))
    }

    /// As `blocking`, for a create: many that wait must not keep reads from being done.
    pub(crate) fn creating(
        engine: &Arc<Engine>,
        work: impl FnOnce() -> T + Send + 'a,
    ) -> Deferred<'a, T> {
        Deferred(State::Blocking(Arc::clone(engine), Lane::Creates, Box::new(work)))
    }

    pub(crate) fn startable(
        work: impl FnOnce() -> T + Send + 'a,
        start: impl FnOnce(Arc<OneShot<T>>) + Send + 'static,
    ) -> Deferred<'a, T> {
        Deferred(State::Startable(Box::new(work), Box::new(start)))
    }

    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.0, State::Ready(_))
    }

    #[inline]
    pub(crate) fn wait(self) -> T {
        match self.0 {
            State::Ready(value) => value,
            State::Blocking(_, _, work) | State::Startable(work, _) => work(),
            State::Waiting(_) | State::Taken => panic!("an operation is waited for once, unpolled"),
        }
    }
}

impl<T: Send + 'static> Deferred<'static, T> {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        loop {
            match std::mem::replace(&mut self.0, State::Taken) {
                State::Ready(value) => return Poll::Ready(value),
                State::Blocking(engine, lane, work) => {
                    let promise = OneShot::new();
                    let theirs = Arc::clone(&promise);
                    engine.workers.run(lane, Box::new(move || theirs.put(work())));
                    self.0 = State::Waiting(promise);
                }
                State::Startable(_, start) => {
                    let promise = OneShot::new();
                    start(Arc::clone(&promise));
                    self.0 = State::Waiting(promise);
                }
                State::Waiting(promise) => {
                    let polled = promise.poll(cx);
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

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident -> $output:ty;)*) => {$(
        $(#[$doc])*
        #[must_use = "await it, or call wait()"]
        pub struct $name(pub(crate) Deferred<'static, $output>);

        impl $name {
            /// True if the outcome is there already: nothing is left to do or to wait for. Of a read: what
            /// is in memory, or certainly nowhere.
            #[inline]
            pub fn is_ready(&self) -> bool {
                self.0.is_ready()
            }

            /// Does it on this thread and returns the outcome.
            #[inline]
            pub fn wait(self) -> $output {
                self.0.wait()
            }
        }

        // Nothing inside is ever pinned: the parts are boxed.
        impl Unpin for $name {}

        impl Future for $name {
            type Output = $output;

            fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<$output> {
                self.0.poll(cx)
            }
        }
    )*};
}

use crate::error::{CreateError, ReadError};
use crate::object::{Object, ObjectInfo, ObjectRange};
use crate::read::prefetch::PrefetchReport;
use crate::read::stream::Reader;

operations! {
    /// A read of a whole object; see `Store::read`.
    Read -> Result<Option<Object>, ReadError>;
    /// A read of a part of an object; see `Store::read_range`.
    ReadRange -> Result<Option<ObjectRange>, ReadError>;
    /// The start of a streamed read; see `Store::reader`.
    OpenReader -> Result<Option<Reader>, ReadError>;
    /// A look at an object without its value; see `Store::lookup`.
    Lookup -> Result<Option<ObjectInfo>, ReadError>;
    /// The length of an object; see `Store::length`.
    Length -> Result<Option<u64>, ReadError>;
    /// The creation of an object; see `Store::create`.
    Create -> Result<(), CreateError>;
    /// The end of a streamed creation; see `Writer::commit`.
    Commit -> Result<(), CreateError>;
    /// New metadata for an object; see `Store::set_metadata`.
    SetMetadata -> Result<bool, CreateError>;
    /// Bringing a group into memory; see `Store::prefetch`.
    Prefetch -> Result<PrefetchReport, ReadError>;
}
