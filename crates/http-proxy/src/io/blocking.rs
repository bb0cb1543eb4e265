//! Threads for calls that block and must not hold up an event loop.
//!
//! One thread is there from the start and takes what comes while it has nothing to do; further ones
//! are started as they are needed, and end when nothing waits. Where the system starts none (a
//! limit of the user, `pids.max` of a container), calls wait for those that are there, so that
//! names are still found and purges still made, only later. The pool of tokio's event loop cannot
//! serve for this: without a thread it panics, and keeps the call for a thread that may never come.
//!
//! Lookups of names have threads of their own: they are as many as clients ask for, and take long
//! where name servers do not answer, while purges wait for nothing. Invariants: every call is made
//! unless the process ends before; at most `THREADS_MAX` threads of each kind are there beside the
//! first. Threads: any may call; no lock is held during a call.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use crate::io::locks::lock;

/// A name server that does not answer holds up a thread for each name, for half a minute or so.
pub(crate) const THREADS_MAX: usize = 512;

static LOOKUPS: Pool = Pool::new();
static OTHERS: Pool = Pool::new();

/// Starts the first thread of each kind; later calls do nothing.
pub(crate) fn prepare() -> io::Result<()> {
    LOOKUPS.prepare()?;
    OTHERS.prepare()
}

/// Makes a call that may block, and waits for no name server.
pub(crate) fn run(call: impl FnOnce() + Send + 'static) {
    OTHERS.run(Box::new(call), start);
}

/// Looks up a name.
pub(crate) fn look_up(call: impl FnOnce() + Send + 'static) {
    LOOKUPS.run(Box::new(call), start);
}

type Call = Box<dyn FnOnce() + Send>;

struct Pool {
    state: Mutex<State>,
    /// For the first thread: there is a call for it.
    wake: Condvar,
}

struct State {
    waiting: VecDeque<Call>,
    /// The first thread was started.
    prepared: bool,
    /// It has nothing to do, and no call was left to it.
    idle: bool,
    /// Threads beside it.
    threads: usize,
}

impl Pool {
    const fn new() -> Pool {
        let state = State { waiting: VecDeque::new(), prepared: false, idle: false, threads: 0 };
        Pool { state: Mutex::new(state), wake: Condvar::new() }
    }

    fn prepare(&'static self) -> io::Result<()> {
        let mut state = lock(&self.state);
        if !state.prepared {
            start(Box::new(|| self.serve()))?;
            state.prepared = true;
        }
        Ok(())
    }

    fn run(&'static self, call: Call, start: impl FnOnce(Call) -> io::Result<()>) {
        let mut state = lock(&self.state);
        state.waiting.push_back(call);
        if state.idle {
            state.idle = false;
            self.wake.notify_one();
        } else if state.threads < THREADS_MAX {
            state.threads += 1;
            drop(state);
            if start(Box::new(|| self.help())).is_err() {
                lock(&self.state).threads -= 1;
            }
        }
    }

    /// The first thread.
    fn serve(&self) {
        loop {
            let mut state = lock(&self.state);
            let call = loop {
                if let Some(call) = state.waiting.pop_front() {
                    break call;
                }
                state.idle = true;
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            state.idle = false;
            drop(state);
            make(call);
        }
    }

    /// One of the others.
    fn help(&self) {
        loop {
            let mut state = lock(&self.state);
            let Some(call) = state.waiting.pop_front() else {
                state.threads -= 1;
                return;
            };
            drop(state);
            make(call);
        }
    }
}

/// A panic is told by its hook, and ends the call, not the thread.
fn make(call: Call) {
    let _ = catch_unwind(AssertUnwindSafe(call));
}

fn start(body: Call) -> io::Result<()> {
    thread::Builder::new().name("damelo-blocking".to_owned()).spawn(body).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn calls_are_made_although_no_further_thread_can_be_started() {
        let pool: &Pool = Box::leak(Box::new(Pool::new()));
        pool.prepare().unwrap();
        let none = |_| Err(io::ErrorKind::WouldBlock.into());
        let ((told, made), (end, ended)) = (channel(), channel::<()>());
        let tell = |number| {
            let told = told.clone();
            Box::new(move || told.send(number).unwrap())
        };
        pool.run(Box::new(move || ended.recv().unwrap()), none);
        for number in 0..3 {
            pool.run(tell(number), none);
        }
        pool.run(Box::new(|| panic!("of a test")), none);
        pool.run(tell(3), none);
        end.send(()).unwrap();
        assert_eq!(made.iter().take(4).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn calls_that_wait_for_each_other_have_threads_of_their_own() {
        let pool: &Pool = Box::leak(Box::new(Pool::new()));
        let (told, made) = channel();
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..4).map(|_| channel::<()>()).unzip();
        for (number, wait) in receivers.into_iter().enumerate() {
            let told = told.clone();
            let call = move || {
                wait.recv().unwrap();
                told.send(number).unwrap();
            };
            pool.run(Box::new(call), start);
        }
        for (number, send) in senders.iter().enumerate().rev() {
            send.send(()).unwrap();
            assert_eq!(made.recv().unwrap(), number);
        }
    }
}
