//! Since when a volume has left every read unanswered. A device that hangs (a link, a controller, a
//! server that is being reset for minutes) says nothing, not even that it fails: who asks it waits,
//! and what it waits with is held.
//!
//! Now and then one read is let through all the same: the device may be well again and have lost
//! what it was asked before. Each may be lost in turn, with the thread that waits for it: so the
//! next one goes once the silence is twice as long, and an hour of it costs ten.
//!
//! Owns two moments for each volume. Invariant: once any read is over, the first is not there any
//! more. Threads: any; relaxed, since it decides at most about a read more or less.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Default)]
pub(super) struct Answers {
    /// When a read was given to the device first since one ended, in nanoseconds and one more; zero
    /// for none. It is not counted how many are under way: what hangs answers none of those that
    /// follow either.
    asked_ns: AtomicU64,
    /// For how long it had been silent when a read was let through last, in nanoseconds; zero if
    /// none was in this silence.
    probed_ns: AtomicU64,
}

impl Answers {
    /// A read is about to be given to the device.
    pub(super) fn ask(&self, now: impl FnOnce() -> Duration) {
        if self.asked_ns.load(Ordering::Relaxed) == 0 {
            self.asked_ns.store(now().as_nanos() as u64 + 1, Ordering::Relaxed);
        }
    }

    /// A read is over. True if that ends a silence of `most` or more: those from before may be
    /// lost, whether or not one was let through. `most` of zero: there are no silences.
    pub(super) fn end(&self, most: Duration, now: impl FnOnce() -> Duration) -> bool {
        // Only looked at while nothing is noted: others write there too.
        if self.asked_ns.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // Of several that end together one ends the silence.
        let asked_ns = self.asked_ns.swap(0, Ordering::Relaxed);
        // As a rule there is nothing to write.
        if self.probed_ns.load(Ordering::Relaxed) != 0 {
            self.probed_ns.store(0, Ordering::Relaxed);
        }
        !most.is_zero() && silence(asked_ns, now).is_some_and(|silent| silent >= most)
    }

    /// Whether a read may be let through in this silence, which counts as one from `most` on.
    pub(super) fn is_probe_due(&self, most: Duration, silent: Duration) -> bool {
        is_due(self.probed_ns.load(Ordering::Relaxed), most, silent)
    }

    /// The same, for one read of all that ask.
    pub(super) fn probe(&self, most: Duration, silent: Duration) -> Option<Taken> {
        let (before_ns, now_ns) =
            (self.probed_ns.load(Ordering::Relaxed), silent.as_nanos() as u64);
        let relaxed = Ordering::Relaxed;
        let is_it = is_due(before_ns, most, silent)
            && self.probed_ns.compare_exchange(before_ns, now_ns, relaxed, relaxed).is_ok();
        is_it.then_some(Taken { before_ns, now_ns })
    }

    /// The read that was let through is over, or was not given to the device: then another may be.
    pub(super) fn give_back(&self, taken: &Taken) {
        let (now, before) = (taken.now_ns, taken.before_ns);
        // Once a read is over, this is another silence, or none.
        let _ = self.probed_ns.compare_exchange(now, before, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// For how long none was answered, if that is `most` or more.
    pub(super) fn silent_for(
        &self,
        most: Duration,
        now: impl FnOnce() -> Duration,
    ) -> Option<Duration> {
        silence(self.asked_ns.load(Ordering::Relaxed), now).filter(|silent| *silent >= most)
    }
}

/// The turn of the one read that is let through.
#[derive(Debug)]
pub(super) struct Taken {
    before_ns: u64,
    now_ns: u64,
}

/// For how long none was answered by now; `None`: none is waited for.
fn silence(asked_ns: u64, now: impl FnOnce() -> Duration) -> Option<Duration> {
    let since = Duration::from_nanos(asked_ns.checked_sub(1)?);
    Some(now().saturating_sub(since))
}

fn is_due(probed_ns: u64, most: Duration, silent: Duration) -> bool {
    silent >= 2 * most.max(Duration::from_nanos(probed_ns))
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
        assert!(answers.end(second * 5, || second * 15), "though none was let through");
        assert_eq!(silent(99), None);
        assert!(!answers.end(second * 5, || second * 99), "none is waited for");
        answers.ask(|| Duration::ZERO);
        assert_eq!(silent(4), None);
        assert_eq!(silent(5), Some(second * 5), "also where time begins");
        assert!(!answers.end(second * 5, || second * 4), "too short");
        answers.ask(|| Duration::ZERO);
        assert!(!answers.end(Duration::ZERO, || second * 4), "it is not to be looked at");
    }

    #[test]
    fn one_read_is_let_through_each_time_that_the_silence_has_doubled() {
        let (answers, second) = (Answers::default(), Duration::from_secs(1));
        let let_through = || -> Vec<u32> {
            let probe = |silent: &u32| answers.probe(second * 5, second * *silent).is_some();
            (5..90).filter(probe).collect()
        };
        answers.ask(|| second);
        assert!(!answers.is_probe_due(second * 5, second * 9));
        assert!(answers.is_probe_due(second * 5, second * 10));
        assert_eq!(let_through(), [10, 20, 40, 80]);
        assert!(answers.probe(second * 5, second * 80).is_none(), "one of all that ask");
        let end = || answers.end(second * 5, || second * 90);
        assert!(end() && !end(), "once for each silence");
        answers.ask(|| second);
        assert_eq!(let_through(), [10, 20, 40, 80], "another silence");
    }

    #[test]
    fn a_read_that_was_let_through_and_did_not_go_leaves_its_turn_to_another() {
        let (answers, second) = (Answers::default(), Duration::from_secs(1));
        let probe = |silent: u32| answers.probe(second * 5, second * silent);
        answers.ask(|| second);
        let taken = probe(10).unwrap();
        assert!(probe(11).is_none());
        answers.give_back(&taken);
        let taken = probe(11).expect("nobody went");
        answers.end(second * 5, || second * 12);
        answers.ask(|| second);
        let other = probe(12).unwrap();
        answers.give_back(&taken);
        assert!(probe(13).is_none(), "that was another silence");
        answers.give_back(&other);
        assert!(probe(13).is_some());
    }
}
