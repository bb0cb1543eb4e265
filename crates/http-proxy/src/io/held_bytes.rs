//! What a socket still holds of what was written to it, asked also while its stream is lent to a
//! library, and how long that is waited for.
//!
//! Invariant: the answer is of use only while that stream is open; afterwards the number of its
//! descriptor may be another's. Threads: any.

#[cfg(target_os = "linux")]
use std::os::fd::{AsRawFd, RawFd};

use tokio::time::{Duration, Instant};

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
        // SAFETY: the call reads no memory of ours and fills the number that the pointer is to; of
        // a descriptor that is closed it fails.
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

/// The wait for a peer to take what its socket holds, to which nothing is added meanwhile but what
/// the end itself says.
#[derive(Debug)]
pub(crate) struct Delivery {
    least_bytes: u64,
    moved: Instant,
    patience: Duration,
}

impl Delivery {
    /// It ends when the peer takes nothing for `patience`.
    pub(crate) fn begin(now: Instant, patience: Duration) -> Delivery {
        Delivery { least_bytes: u64::MAX, moved: now, patience }
    }

    /// Whether it is over, as the peer has everything or takes nothing more.
    pub(crate) fn is_over(&mut self, held_bytes: Option<u64>, now: Instant) -> bool {
        let held_bytes = held_bytes.unwrap_or(0);
        if held_bytes < self.least_bytes {
            (self.least_bytes, self.moved) = (held_bytes, now);
        }
        held_bytes == 0 || now - self.moved >= self.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_takes_something_is_waited_for() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut delivery = Delivery::begin(begun, Duration::from_secs(10));
        for (seconds, held_bytes, is_over) in [
            (0, Some(100), false),
            (9, Some(60), false),
            // More of it is no progress.
            (18, Some(70), false),
            (19, Some(70), true),
            (20, Some(50), false),
            (21, Some(0), true),
            (21, None, true),
        ] {
            assert_eq!(delivery.is_over(held_bytes, at(seconds)), is_over, "after {seconds} s");
        }
    }
}
