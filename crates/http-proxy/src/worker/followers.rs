//! Tells when every worker uses the newest settings, so that a reload is over when it says so.
//!
//! Invariant: a worker that has ended holds up no reload, nor does one for longer than
//! [`FOLLOW_MAX`]. Threads: workers report, whoever reloads waits; the lock is held for a store.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::io::locks::lock;

/// Longest wait for workers: their event loops never block for so long.
const FOLLOW_MAX: Duration = Duration::from_secs(5);

/// The workers of a proxy.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    /// What each uses; `None` once it has ended.
    using: Mutex<Vec<Option<u64>>>,
    changed: Condvar,
}

/// One worker, which has ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Follower {
    all: Arc<Followers>,
    index: usize,
}

impl Followers {
    /// Counts one more worker, which uses no settings yet.
    pub(crate) fn join(self: &Arc<Followers>) -> Follower {
        let mut using = lock(&self.using);
        using.push(Some(0));
        Follower { all: self.clone(), index: using.len() - 1 }
    }

    /// Waits until every worker uses the settings with this number, or newer ones. False if one
    /// did not within [`FOLLOW_MAX`].
    #[must_use]
    pub(crate) fn wait_for(&self, number: u64) -> bool {
        let behind =
            |using: &mut Vec<Option<u64>>| using.iter().flatten().any(|using| *using < number);
        // If a thread panicked while it held the lock, there is nobody to wait for.
        let waited = self.changed.wait_timeout_while(lock(&self.using), FOLLOW_MAX, behind);
        waited.is_ok_and(|(_, wait)| !wait.timed_out())
    }
}

impl Follower {
    /// Reports that requests from now on use the settings with this number.
    pub(crate) fn uses(&self, number: u64) {
        self.set(Some(number));
    }

    fn set(&self, using: Option<u64>) {
        lock(&self.all.using)[self.index] = using;
        self.all.changed.notify_all();
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_waits_for_all_who_have_not_ended() {
        let all = Arc::new(Followers::default());
        let [first, second, third] = [(); 3].map(|()| all.join());
        first.uses(2);
        drop(second);
        let waiting = std::thread::spawn({
            let all = all.clone();
            move || all.wait_for(2)
        });
        third.uses(1);
        assert!(!waiting.is_finished());
        third.uses(3);
        assert!(waiting.join().unwrap());
    }
}
