//! Ctrl-C and SIGTERM as a future: the first requests a graceful end; a second, or the expiry of
//! the time limit, ends the process at once. SIGHUP and SIGUSR1 are passed on.
//!
//! Invariants: whoever asks for the end is heard, whatever SIGHUP or SIGUSR1 have begun: a file of
//! settings may be on a mount that hangs. What one of these asked for is done after the last time
//! that it came, but not once for each time; that it panicked once does not keep it from being done
//! again.
//!
//! Threads: [`Stop::on_signals`] must run before any other thread is started, because threads
//! inherit the blocked signals from it. One thread then waits for signals, one does what SIGHUP and
//! SIGUSR1 ask for, and one waits for the time limit. The latter is started in advance: at the end
//! the system may refuse a new thread, and it must not wait for anything that other threads wait
//! for.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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
}

/// What is done on SIGHUP and SIGUSR1, by the signal's number.
type Handler = Box<dyn FnMut(i32) + Send>;

/// SIGHUP and SIGUSR1 between the thread that waits for them and the one that does what they ask
/// for.
#[derive(Default)]
struct Others {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// `None` before there is one, and while it does something.
    handler: Option<Handler>,
    /// Signals that came since they were last begun, or before there was a handler: each once.
    signals: BTreeSet<i32>,
    /// Nothing more is to be done.
    ended: bool,
}

impl Waiting {
    /// What is to be done now, and by whom, who is given back after it.
    fn next(&mut self) -> Option<(i32, Handler)> {
        let signal = *self.signals.first()?;
        let handler = self.handler.take()?;
        self.signals.remove(&signal);
        Some((signal, handler))
    }
}

impl Others {
    fn came(&self, signal: i32) {
        self.lock().signals.insert(signal);
        self.changed.notify_one();
    }

    fn handle(&self, handler: Handler) {
        self.lock().handler = Some(handler);
        self.changed.notify_one();
    }

    fn end(&self) {
        let mut waiting = self.lock();
        waiting.ended = true;
        let handler = waiting.handler.take();
        drop(waiting);
        // Not under the lock: what it holds may take long to end.
        drop(handler);
        self.changed.notify_one();
    }

    /// Does what the signals ask for until the end. No lock is held meanwhile.
    fn serve(&self) {
        let mut waiting = self.lock();
        while !waiting.ended {
            let Some((signal, mut handler)) = waiting.next() else {
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(waiting);
            // What a panic leaves behind is the handler's own. It has been printed.
            if catch_unwind(AssertUnwindSafe(|| handler(signal))).is_err() {
                say(format_args!(
                    "damelo: what signal {signal} asks for was not done to its end, for a bug; \
                     signals count as before"
                ));
            }
            waiting = self.lock();
            if !waiting.ended {
                waiting.handler = Some(handler);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // The state is valid at every moment.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ready once a signal has come.
#[derive(Clone, Default)]
pub(crate) struct Stop {
    state: Arc<Mutex<State>>,
    others: Arc<Others>,
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
        spawn("damelo-deadline", Box::new(move || end_late(&begun)))?;
        let others = stop.others.clone();
        spawn("damelo-orders", Box::new(move || others.serve()))?;
        let told = stop.clone();
        let wait = move || {
            told.wait_for_end(&all);
            // It waits as long as the process lives.
            let _ = begin.send(*told.timeout.lock().unwrap_or_else(PoisonError::into_inner));
            told.set();
            say(format_args!("damelo: finishing what is under way; once more ends at once"));
            std::process::exit(EXIT_BASE + wait_again(&ends));
        };
        spawn("damelo-signals", Box::new(wait))?;
        Ok(stop)
    }

    /// From now on the end may take so long.
    pub(crate) fn set_timeout(&self, timeout: Duration) {
        *self.timeout.lock().unwrap_or_else(PoisonError::into_inner) = timeout;
    }

    /// From now on SIGHUP and SIGUSR1 call `handler`, on a thread of their own, and so do those
    /// that came before: whoever sent one may have changed what was read already.
    pub(crate) fn handle_others(&self, handler: impl FnMut(i32) + Send + 'static) {
        self.others.handle(Box::new(handler));
    }

    /// No call of [`Stop::handle_others`] begins any more. One may be under way still, which is not
    /// waited for: nothing says that it ends.
    pub(crate) fn ignore_others(&self) {
        self.others.end();
    }

    fn wait_for_end(&self, signals: &libc::sigset_t) {
        loop {
            let signal = wait(signals);
            if ENDING.contains(&signal) {
                return;
            }
            self.others.came(signal);
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

    /// A thread that does what the signals ask for, until the end.
    fn serving(stop: &Stop) -> thread::JoinHandle<()> {
        let others = stop.others.clone();
        thread::spawn(move || others.serve())
    }

    #[test]
    fn what_comes_before_there_is_a_handler_waits_for_it() {
        let stop = Stop::default();
        for early in [libc::SIGHUP, libc::SIGUSR1, libc::SIGHUP] {
            stop.others.came(early);
        }
        let thread = serving(&stop);
        let (told, came) = channel();
        stop.handle_others(move |signal| told.send(signal).unwrap());
        assert_eq!([(); 2].map(|()| came.recv().unwrap()), [libc::SIGHUP, libc::SIGUSR1]);
        stop.others.came(libc::SIGUSR1);
        assert_eq!(came.recv(), Ok(libc::SIGUSR1), "each of the first came once");
        stop.ignore_others();
        thread.join().unwrap();
        assert!(came.recv().is_err(), "the handler is gone");
    }

    #[test]
    fn a_handler_that_panics_is_called_for_the_next_signal() {
        let stop = Stop::default();
        let thread = serving(&stop);
        let (told, came) = channel();
        stop.handle_others(move |signal| {
            told.send(signal).unwrap();
            assert_ne!(signal, libc::SIGHUP, "this panic is part of the test");
        });
        for signal in [libc::SIGHUP, libc::SIGUSR1, libc::SIGHUP, libc::SIGUSR1] {
            stop.others.came(signal);
            assert_eq!(came.recv(), Ok(signal));
        }
        stop.ignore_others();
        thread.join().unwrap();
    }

    #[test]
    fn a_handler_that_does_not_end_holds_up_nobody_and_is_called_once_more_for_all_that_came() {
        let stop = Stop::default();
        let thread = serving(&stop);
        let ((told, came), (go_on, wait)) = (channel(), channel::<()>());
        stop.handle_others(move |signal| {
            told.send(signal).unwrap();
            let _ = wait.recv();
        });
        stop.others.came(libc::SIGHUP);
        assert_eq!(came.recv(), Ok(libc::SIGHUP));
        // It is under way. Who waits for signals goes on.
        for _ in 0..3 {
            stop.others.came(libc::SIGHUP);
        }
        go_on.send(()).unwrap();
        assert_eq!(came.recv(), Ok(libc::SIGHUP));
        stop.others.came(libc::SIGUSR1);
        stop.ignore_others();
        drop(go_on);
        thread.join().unwrap();
        assert!(came.recv().is_err(), "neither for the others nor after the end");
    }
}
