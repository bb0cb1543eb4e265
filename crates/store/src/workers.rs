//! A small pool of threads that do blocking work for callers who may not block (async ones).
//!
//! Threads start when first needed, at most `THREADS_MAX`, and end when the store does. A caller that
//! blocks (`wait()`) never comes here. Invariant: every job handed in runs, or its promise is dropped
//! and the waiting future reports a closed store.

use crate::sync::{Arc, Condvar, Mutex, PoisonError, thread};
use std::collections::VecDeque;

use crate::memory::pool::lock;

type Job = Box<dyn FnOnce() + Send>;

/// Reads of async callers that cannot be served by one submitted I/O are done by these.
const THREADS_MAX: usize = 16;

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
    stopped: bool,
}

#[derive(Default)]
pub(crate) struct Workers {
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl Workers {
    /// Runs `job` on a worker, or right here if no thread can be had or the store is stopping.
    pub(crate) fn run(&self, job: Job) {
        let mut state = lock(&self.shared.0);
        if state.stopped {
            drop(state);
            return job();
        }
        state.jobs.push_back(job);
        let start = state.idle < state.jobs.len() && state.threads < THREADS_MAX;
        if start {
            state.threads += 1;
            let shared = Arc::clone(&self.shared);
            let name = format!("damelo-worker-{}", state.threads);
            let spawned = thread::Builder::new().name(name).spawn(move || work(&shared));
            if spawned.is_err() {
                state.threads -= 1;
                if state.threads == 0 {
                    let job = state.jobs.pop_back();
                    drop(state);
                    if let Some(job) = job {
                        job();
                    }
                    return;
                }
            }
        }
        drop(state);
        self.shared.1.notify_one();
    }

    /// Lets the workers end once the queue is empty.
    pub(crate) fn stop(&self) {
        lock(&self.shared.0).stopped = true;
        self.shared.1.notify_all();
    }
}

fn work(shared: &(Mutex<State>, Condvar)) {
    let mut state = lock(&shared.0);
    loop {
        if let Some(job) = state.jobs.pop_front() {
            drop(state);
            job();
            state = lock(&shared.0);
        } else if state.stopped {
            state.threads -= 1;
            return;
        } else {
            state.idle += 1;
            state = shared.1.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}
