//! What the process around a store does to it: it forks, and it gets signals.
//!
//! A child of `fork` has the store's memory, its volumes and its lock, and none of its threads. For
//! the child the store is closed: nothing of it may come into the parent's journal, and nobody
//! would ever answer it. Signals are the program's: the store's threads take none, so that the
//! handlers run where the program expects them. Owns a counter of forks. Threads: any; the counter
//! is changed where there is only one, in a child. Miri knows neither forks nor masks of signals:
//! nothing is done under it.

use std::sync::Once;
// Not of `sync`: no schedule of threads has anything to do with it.
use std::sync::atomic::{AtomicU64, Ordering};

/// How often the process was forked off, counted from the first store that its ancestors opened.
static FORKS: AtomicU64 = AtomicU64::new(0);

extern "C" fn in_child() {
    // All that is allowed here: another thread may have held any lock.
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The process, as far as a fork makes it another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u64);

impl Process {
    /// This one.
    pub(crate) fn current() -> Process {
        static WATCHED: Once = Once::new();
        WATCHED.call_once(|| {
            if cfg!(miri) {
                return;
            }
            // SAFETY: the handler is a function of this program and touches nothing but an atomic.
            // Without memory for it no fork is noticed, and the documents forbid the use in a child
            // all the same.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// True in a child that was forked off since.
    #[inline]
    pub(crate) fn is_another(self) -> bool {
        FORKS.load(Ordering::Relaxed) != self.0
    }
}

/// While it lives, this thread takes no signals, and threads that it starts never do.
pub(crate) struct SignalsBlocked {
    /// What this thread blocked before; `None` under Miri.
    before: Option<libc::sigset_t>,
}

/// Faults of the thread that gets them; and the clock of profilers, which want to see every thread.
const TAKEN: [libc::c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGPROF,
];

impl SignalsBlocked {
    pub(crate) fn new() -> SignalsBlocked {
        if cfg!(miri) {
            return SignalsBlocked { before: None };
        }
        let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        let mut blocked = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: both sets are ours; each is filled before it is read, since none of these calls
        // can fail with valid pointers and signal numbers.
        unsafe {
            libc::sigfillset(blocked.as_mut_ptr());
            for signal in TAKEN {
                libc::sigdelset(blocked.as_mut_ptr(), signal);
            }
            libc::sigemptyset(before.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, blocked.as_ptr(), before.as_mut_ptr());
            SignalsBlocked { before: Some(before.assume_init()) }
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        let Some(before) = &self.before else { return };
        // SAFETY: the set is the one that this thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
    }
}
