//! Ctrl-C and SIGTERM as a future: the first requests a graceful end; a second, or the expiry of
//! the time limit, ends the process at once. SIGHUP and SIGUSR1 are passed on each time they
//! arrive.
//!
//! Threads: [`Stop::on_signals`] must run before any other thread is started, because threads
//! inherit the blocked signals from it. One thread then waits for signals, and one for the time
//! limit. The latter is started in advance: at the end the system may refuse a new thread, and it
//! must not wait for anything that other threads wait for.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use damelo_http_proxy::say;

use crate::failure::Failure;

/// Added to a signal's number for the exit code of a process that it ended, as shells do.
pub(crate) const EXIT_BASE: i32 = 128;

/// Exit code of a process that did not end in time.
const EXIT_TOO_LATE: i32 = 4;

/// Signals this soon after the first count as the first.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

#[derive(Default)]
struct State {
    stopped: bool,
    waker: Option<Waker>,
    on_other: Option<Handler>,
    /// SIGHUP and SIGUSR1 that came before there was a handler, each once.
    early: BTreeSet<i32>,
}

/// What is done on SIGHUP and SIGUSR1, by the signal's number.
type Handler = Box<dyn FnMut(i32) + Send>;

/// Ready once a signal has come.
#[derive(Clone, Default)]
pub(crate) struct Stop {
    state: Arc<Mutex<State>>,
    /// What the end may take. Apart, as a handler of the other signals may set it.
    timeout: Arc<Mutex<Duration>>,
}

impl Stop {
    /// Takes SIGINT, SIGTERM, SIGHUP and SIGUSR1 over from their defaults. The last two wait for
    /// [`Stop::handle_others`]. From the first of the others on the process has so much time.
    pub(crate) fn on_signals(timeout: Duration) -> Result<Stop, Failure> {
        let failed = |source| Failure::io("wait for signals", source);
        let ends = block().map_err(failed)?;
        let all = block_these(&ALL).map_err(failed)?;
        let stop = Stop::default();
        stop.set_timeout(timeout);
        let (begin, begun) = channel();
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.to_owned()).spawn(body).map_err(failed)
        };
        spawn("deadline", Box::new(move || end_late(&begun)))?;
        let told = stop.clone();
        let wait = move || {
            told.wait_for_end(&all);
            // It waits as long as the process lives.
            let _ = begin.send(*told.timeout.lock().unwrap_or_else(PoisonError::into_inner));
            told.set();
            say(format_args!("damelo: finishing what is under way; once more ends at once"));
            std::process::exit(EXIT_BASE + wait_again(&ends));
        };
        spawn("signals", Box::new(wait))?;
        Ok(stop)
    }

    /// From now on the end may take so long.
    pub(crate) fn set_timeout(&self, timeout: Duration) {
        *self.timeout.lock().unwrap_or_else(PoisonError::into_inner) = timeout;
    }

    /// From now on SIGHUP and SIGUSR1 call `handler`, on the signal thread. It is called here for
    /// those that came before: whoever sent one may have changed what was read already.
    pub(crate) fn handle_others(&self, mut handler: impl FnMut(i32) + Send + 'static) {
        let mut state = self.state();
        std::mem::take(&mut state.early).into_iter().for_each(&mut handler);
        state.on_other = Some(Box::new(handler));
    }

    /// Ends the calls of [`Stop::handle_others`]; none is under way any more.
    pub(crate) fn ignore_others(&self) {
        self.state().on_other = None;
    }

    fn wait_for_end(&self, signals: &libc::sigset_t) {
        loop {
            let signal = wait(signals);
            if ENDING.contains(&signal) {
                return;
            }
            self.other(signal);
        }
    }

    fn other(&self, signal: i32) {
        let mut state = self.state();
        match &mut state.on_other {
            Some(handler) => handler(signal),
            None => drop(state.early.insert(signal)),
        }
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

/// Beyond `ulimit -f` a write is an error, as on a full disk: by default it ends the process
/// without a word.
pub(crate) fn ignore_file_size() {
    // SAFETY: no handler is installed, and SIGXFSZ is a signal that can be ignored: the call cannot
    // fail.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Signals that ask for the end.
const ENDING: [i32; 2] = [libc::SIGINT, libc::SIGTERM];
const ALL: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1];

/// Blocks SIGINT and SIGTERM in this thread and those it starts.
pub(crate) fn block() -> io::Result<libc::sigset_t> {
    block_these(&ENDING)
}

fn block_these(signals: &[i32]) -> io::Result<libc::sigset_t> {
    // SAFETY: a sigset_t of zeros is valid memory for sigemptyset to write; all calls get pointers
    // to it that live through them.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
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

/// Ends the process by a signal that [`wait`] returned, as if nobody had waited: a shell that runs
/// a loop ends the loop, too, when a command died by Ctrl-C.
pub(crate) fn end_by(signal: i32) -> ! {
    // SAFETY: all calls get a valid signal, or a pointer to a set that lives through them.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::signal(signal, libc::SIG_DFL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::raise(signal);
    }
    std::process::exit(EXIT_BASE + signal)
}

/// Ends the process when the time is up that comes by the channel, whatever it waits for: a disk
/// that hangs, most likely.
fn end_late(begun: &Receiver<Duration>) {
    let Ok(timeout) = begun.recv() else { return };
    thread::sleep(timeout);
    say(format_args!("damelo: not done after {} s: ending as after a crash", timeout.as_secs()));
    std::process::exit(EXIT_TOO_LATE);
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

    #[test]
    fn what_comes_before_there_is_a_handler_waits_for_it() {
        let stop = Stop::default();
        for early in [libc::SIGHUP, libc::SIGUSR1, libc::SIGHUP] {
            stop.other(early);
        }
        let (told, came) = channel();
        stop.handle_others(move |signal| told.send(signal).unwrap());
        let mut early: Vec<i32> = came.try_iter().collect();
        early.sort_unstable();
        assert_eq!(early, [libc::SIGHUP, libc::SIGUSR1], "each once");
        stop.other(libc::SIGHUP);
        assert_eq!(came.try_iter().collect::<Vec<_>>(), [libc::SIGHUP]);
    }
}
