//! Since when a volume has left every read unanswered. A device that hangs (a link, a controller, a
//! server that is being reset for minutes) says nothing, not even that it fails: who asks it waits,
//! and what it waits with is held.
//!
//! Owns one moment for each volume. Invariant: once the read that has noted it is over, it is not
//! there any more. Threads: any; relaxed, since it decides at most about a read more or less.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Default)]
pub(super) struct Answers {
    /// When a read was given to the device first since one ended, in nanoseconds and one more; zero
    /// for none. It is not counted how many are under way: what hangs answers none of those that
    /// follow either.
    asked_ns: AtomicU64,
}

impl Answers {
    /// A read is about to be given to the device.
    pub(super) fn ask(&self, now: impl FnOnce() -> Duration) {
        if self.asked_ns.load(Ordering::Relaxed) == 0 {
            self.asked_ns.store(now().as_nanos() as u64 + 1, Ordering::Relaxed);
        }
    }

    /// A read is over.
    pub(super) fn end(&self) {
        // Only looked at while nothing is noted: others write there too.
        if self.asked_ns.load(Ordering::Relaxed) != 0 {
            self.asked_ns.store(0, Ordering::Relaxed);
        }
    }

    /// For how long none was answered, if that is `most` or more.
    pub(super) fn silent_for(
        &self,
        most: Duration,
        now: impl FnOnce() -> Duration,
    ) -> Option<Duration> {
        match self.asked_ns.load(Ordering::Relaxed) {
            0 => None,
            asked_ns => {
                let silent = now().saturating_sub(Duration::from_nanos(asked_ns - 1));
                Some(silent).filter(|silent| *silent >= most)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_silent_from_its_first_read_that_waits_until_one_is_answered() {
        let (answers, second) = (Answers::default(), Duration::from_secs(1));
        let silent = |now: u32| answers.silent_for(second * 5, || second * now);
        assert_eq!(silent(100), None, "nobody asks");
        answers.ask(|| second * 10);
        answers.ask(|| second * 14);
        assert_eq!(silent(14), None);
        assert_eq!(silent(15), Some(second * 5));
        answers.end();
        assert_eq!(silent(99), None);
        answers.end();
        answers.ask(|| Duration::ZERO);
        assert_eq!(silent(4), None);
        assert_eq!(silent(5), Some(second * 5), "also where time begins");
    }
}
