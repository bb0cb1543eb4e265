//! One volume: its device, what it has failed, and whether it is in service.
//!
//! Invariant: a volume that went out of service stays out. Threads: any.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::answers::Answers;
use crate::device::{Device, IoOp};
use crate::format::Superblock;
use crate::sync::{Mutex, lock};
use crate::sync_errors::SyncErrors;

/// An error counts as an event of its own if it comes at least this long after the last that did.
const EVENT_TIME: Duration = Duration::from_secs(1);

pub(crate) struct Volume {
    pub(crate) path: PathBuf,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) superblock: Superblock,
    pub(super) answers: Answers,
    /// Of reads and of writes each: those of the one do not hide that the other fails.
    pub(super) read_events: ErrorEvents,
    pub(super) write_events: ErrorEvents,
    pub(super) errors_in_row: AtomicU32,
    /// Of writes alone, which those beside the segments do not end.
    pub(super) write_errors_in_row: AtomicU32,
    pub(super) sync_errors_in_row: AtomicU32,
    pub(crate) sync_errors: SyncErrors,
    pub(super) out_of_service: AtomicBool,
    /// Why it went out of service.
    pub(super) out_because: OnceLock<String>,
    /// It was not there when the store was opened.
    pub(crate) is_missing: bool,
}

/// Events that failed I/Os.
#[derive(Default)]
pub(super) struct ErrorEvents {
    count: AtomicU32,
    /// When the last of them did. Held by who counts one.
    last: Mutex<Duration>,
}

impl ErrorEvents {
    pub(super) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether an error is of no event that counted, and counts: its I/O began after the last of
    /// them, when there had been as many as `known`, or failed long after it.
    pub(super) fn is_another(&self, known: u32, now: Duration) -> bool {
        let mut last = lock(&self.last);
        let events = self.count();
        if events != known && now.saturating_sub(*last) < EVENT_TIME {
            return false;
        }
        *last = now;
        self.count.store(events.wrapping_add(1), Ordering::Relaxed);
        true
    }
}

impl Volume {
    /// Prefixes an error of this volume's device with the volume's path.
    pub(crate) fn named(&self, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
    }

    /// Writes outside the segments.
    pub(crate) fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.device.write_at(offset, bytes).map_err(|error| self.named(error))
    }

    pub(crate) fn is_out(&self) -> bool {
        self.out_of_service.load(Ordering::Acquire)
    }

    /// Why it is out of service, once it is.
    pub(crate) fn out_because(&self) -> Option<&str> {
        self.is_out().then(|| self.out_because.get().map_or("", String::as_str))
    }

    pub(super) fn take_out(&self, why: String) {
        // The first reason stays.
        let _ = self.out_because.set(why);
        self.out_of_service.store(true, Ordering::Release);
    }

    pub(super) fn out_error(&self) -> io::Error {
        io::Error::other(format!("out of service: {}", self.out_because().unwrap_or_default()))
    }

    pub(super) fn usable(&self) -> io::Result<()> {
        if self.is_out() { Err(self.named(self.out_error())) } else { Ok(()) }
    }

    pub(super) fn error_events(&self, op: IoOp) -> &ErrorEvents {
        match op {
            IoOp::Read => &self.read_events,
            IoOp::Write => &self.write_events,
        }
    }

    pub(super) fn note(&self, outcome: &io::Result<()>, errors_max: u32) {
        let Err(error) = outcome else {
            if self.errors_in_row.load(Ordering::Relaxed) > 0 {
                self.errors_in_row.store(0, Ordering::Relaxed);
            }
            return;
        };
        let errors = self.errors_in_row.fetch_add(1, Ordering::Relaxed) + 1;
        if errors >= errors_max && !self.is_out() {
            self.take_out(format!("{errors} I/O errors in a row, the last: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_at_once_is_one_event() {
        let (events, second) = (ErrorEvents::default(), Duration::from_secs(1));
        let counted = std::thread::scope(|scope| {
            let is_another = || events.is_another(0, second * 9);
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(is_another)).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).filter(|is| *is).count()
        });
        assert_eq!(counted, 1);
        assert!(events.is_another(1, second * 9), "it began after the other had failed");
        assert!(!events.is_another(0, second * 9));
        assert!(events.is_another(0, second * 10), "it failed long after");
    }
}
