//! Ctrl-C and SIGTERM as a future: the first asks for a graceful end, a second ends the process at
//! once.
//!
//! Threads: [`Stop::on_signals`] must run before any other thread is started, because threads
//! inherit the blocked signals from it; one thread then waits for them.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// Added to a signal's number for the exit code of a process that it ended, as shells do.
pub(crate) const EXIT_BASE: i32 = 128;

/// Signals this soon after the first count as the first.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

#[derive(Default)]
struct State {
    stopped: bool,
    waker: Option<Waker>,
}

/// Ready once a signal has come.
#[derive(Clone, Default)]
pub(crate) struct Stop {
    state: Arc<Mutex<State>>,
}

impl Stop {
    /// Takes SIGINT and SIGTERM over from their defaults.
    pub(crate) fn on_signals() -> Result<Stop, Failure> {
        let failed = |source| Failure::io("wait for signals", source);
        let signals = block().map_err(failed)?;
        let stop = Stop::default();
        let told = stop.clone();
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                wait(&signals);
                eprintln!("damelo: finishing what is under way; once more ends at once");
                told.set();
                std::process::exit(EXIT_BASE + wait_again(&signals));
            })
            .map_err(failed)?;
        Ok(stop)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is valid at every moment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self) {
        let waker = {
            let mut state = self.state();
            state.stopped = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Future for Stop {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.stopped {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Blocks both signals in this thread and those it starts.
pub(crate) fn block() -> io::Result<libc::sigset_t> {
    // SAFETY: a sigset_t of zeros is valid memory for sigemptyset to write; all calls get pointers
    // to it that live through them.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) {
            0 => Ok(set),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Waits for one of the signals and returns its number.
pub(crate) fn wait(signals: &libc::sigset_t) -> i32 {
    let mut signal = 0;
    // SAFETY: both pointers are valid; the call fails only for an invalid set.
    unsafe { libc::sigwait(signals, &raw mut signal) };
    signal
}

/// Waits for a signal that somebody meant as a second one: shells and supervisors may send the
/// first to the process and again to its group.
fn wait_again(signals: &libc::sigset_t) -> i32 {
    let first = Instant::now();
    loop {
        let signal = wait(signals);
        if first.elapsed() > SAME_SIGNAL {
            return signal;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    struct Flag(AtomicBool);

    impl std::task::Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn stopping_wakes_who_waits() {
        let flag = Arc::new(Flag(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&flag));
        let mut context = Context::from_waker(&waker);
        let mut stop = Stop::default();
        assert!(Pin::new(&mut stop).poll(&mut context).is_pending());
        stop.clone().set();
        assert!(flag.0.load(Ordering::Relaxed));
        assert!(Pin::new(&mut stop).poll(&mut context).is_ready());
    }
}
