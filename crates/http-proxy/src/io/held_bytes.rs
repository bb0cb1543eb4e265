//! What a socket still holds of what was written to it, asked also while its stream is lent to a
//! library.
//!
//! Invariant: the answer is of use only while that stream is open; afterwards the number of its
//! descriptor may be another's. Threads: any.

#[cfg(target_os = "linux")]
use std::os::fd::{AsRawFd, RawFd};

/// Names a socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeldBytes {
    #[cfg(target_os = "linux")]
    descriptor: RawFd,
}

#[cfg(target_os = "linux")]
impl HeldBytes {
    pub(crate) fn of(socket: &impl AsRawFd) -> HeldBytes {
        HeldBytes { descriptor: socket.as_raw_fd() }
    }

    /// Bytes written that the peer has not acknowledged, as the system reports it.
    pub(crate) fn now(self) -> Option<u64> {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the call reads no memory of ours and fills the number that the pointer is to; of a
        // descriptor that is closed it fails.
        let asked = unsafe { libc::ioctl(self.descriptor, libc::TIOCOUTQ, &raw mut bytes) };
        (asked == 0).then_some(bytes).and_then(|bytes| u64::try_from(bytes).ok())
    }
}

/// Other systems do not report this uniformly.
#[cfg(not(target_os = "linux"))]
impl HeldBytes {
    pub(crate) fn of<S>(_: &S) -> HeldBytes {
        HeldBytes {}
    }

    pub(crate) fn now(self) -> Option<u64> {
        None
    }
}
