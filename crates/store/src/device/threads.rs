//! The portable driver: a pool of threads, each performing one request at a time with `pread` and
//! `pwrite`.
//!
//! Owns: the waiting requests and the threads. Invariants: at most `limits.depth` requests are in
//! flight, at most `limits.writes` of them writes; each request taken from the queue is completed
//! by the thread that took it; on drop all requests complete, including those that `done` closures
//! submit meanwhile. Threads: any thread submits; `done` runs on a pool thread, without any lock
//! held.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::IoOp;
use super::file::{
    AbortOnPanic, Core, Done, IoDriver, Limits, Request, mark_completion_thread, nanos, transfer,
};
use super::queue::IoQueue;
use crate::process::SignalsBlocked;

/// Threads of one device, unless its queue depth is smaller.
const THREADS: u32 = 16;

/// The pool.
pub(super) struct ThreadsDriver {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    core: Arc<Core>,
    limits: Limits,
    state: Mutex<State>,
    work: Condvar,
}

struct State {
    queue: IoQueue<Request>,
    idle: u32,
    writing: u32,
    stop: bool,
}

impl ThreadsDriver {
    /// Starts the threads.
    pub(super) fn start(core: Arc<Core>, limits: Limits) -> io::Result<ThreadsDriver> {
        let queue = IoQueue::new(limits.seeks);
        let state = Mutex::new(State { queue, idle: 0, writing: 0, stop: false });
        let count = limits.depth.min(THREADS);
        // With fewer threads than slots, each thread is a slot.
        let limits =
            Limits { depth: count, writes: limits.writes.min((count * 3).div_ceil(4)), ..limits };
        let shared = Arc::new(Shared { core, limits, state, work: Condvar::new() });
        let mut pool = ThreadsDriver { shared, threads: Vec::new() };
        for n in 0..count {
            let shared = Arc::clone(&pool.shared);
            let _program_s = SignalsBlocked::new();
            let builder = thread::Builder::new().name(format!("damelo-io-{n}"));
            pool.threads.push(builder.spawn(move || shared.work())?);
        }
        Ok(pool)
    }
}

impl IoDriver for ThreadsDriver {
    fn submit(&self, request: Request) {
        let mut state = self.shared.lock();
        request.enter(&mut state.queue);
        let wake = state.idle > 0;
        drop(state);
        if wake {
            self.shared.work.notify_one();
        }
    }
}

impl Drop for ThreadsDriver {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.work.notify_all();
        let me = thread::current().id();
        for handle in self.threads.drain(..) {
            // A `done` closure that drops the last reference runs on a pool thread, which cannot
            // join itself; that thread ends after the drop, as do the others that are not joined.
            if handle.thread().id() != me {
                // A driver thread that panics aborts the process, so there is no error to see.
                let _ = handle.join();
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while holding the lock, and a panic on a pool thread aborts.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let _bomb = AbortOnPanic;
        mark_completion_thread();
        let mut iovecs = Vec::new();
        while let Some(request) = self.next() {
            let writes = request.io.op == IoOp::Write;
            let (done, result) = self.run(request, &mut iovecs);
            if writes {
                // Released before `done`, which may block. This thread takes its next request only
                // after `done`; an idle thread may use the slot meanwhile.
                let mut state = self.lock();
                state.writing -= 1;
                if state.idle > 0 && !state.queue.is_empty() {
                    self.work.notify_one();
                }
            }
            self.core.complete(done, result);
        }
        // Other threads may wait for a write slot that is no longer needed.
        self.work.notify_all();
    }

    /// Waits for a request; `None` when there will be no more.
    fn next(&self) -> Option<Request> {
        let mut state = self.lock();
        loop {
            let may_write = state.writing < self.limits.writes;
            if let Some(request) = state.queue.pop(may_write) {
                state.writing += u32::from(request.io.op == IoOp::Write);
                return Some(request);
            }
            if state.stop && state.queue.is_empty() {
                return None;
            }
            state.idle += 1;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    fn run(&self, request: Request, iovecs: &mut Vec<libc::iovec>) -> (Done, io::Result<()>) {
        let Request { io, total, queued, .. } = request;
        let started = Instant::now();
        self.core.counters.started(nanos(queued, started));
        let result = transfer(&self.core, io.op, io.offset, &io.bufs, total, iovecs);
        let spent = nanos(started, Instant::now());
        self.core.counters.finished(io.op, total, spent, result.is_ok());
        (io.done, result)
    }
}
