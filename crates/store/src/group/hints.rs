//! Hints of groups on their way to what is in memory.
//!
//! To move a group's objects to the queue that fits its hint all of memory is looked at: a millisecond with
//! a gigabyte. So a hint that comes alone is applied at once, and those that follow close upon it are
//! gathered and applied together; what comes into memory meanwhile is queued by its group's hint anyway.
//! Invariant: of one group the last hint wins. Threads: any; the flusher applies what was gathered.

use crate::sync::{Mutex, lock};
use std::collections::HashMap;
use std::time::Duration;

use crate::policy::residency::Hint;

/// Time between two looks at memory for the sake of callers. The flusher's are as frequent.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

#[derive(Default)]
struct State {
    waiting: HashMap<u64, Hint>,
    applied: Option<Duration>,
}

#[derive(Default)]
pub(crate) struct PendingHints(Mutex<State>);

impl PendingHints {
    /// Adds a hint; what is to be applied now, if anything.
    pub(crate) fn add(
        &self,
        group: u64,
        hint: Hint,
        now: Duration,
        pause: Duration,
    ) -> HashMap<u64, Hint> {
        let mut state = lock(&self.0);
        state.waiting.insert(group, hint);
        if state.applied.is_some_and(|then| now.saturating_sub(then) < pause) {
            return HashMap::new();
        }
        state.applied = Some(now);
        std::mem::take(&mut state.waiting)
    }

    /// What was gathered since anything was applied.
    pub(crate) fn take(&self) -> HashMap<u64, Hint> {
        std::mem::take(&mut lock(&self.0).waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_that_comes_alone_is_applied_at_once_and_others_together() {
        let pending = PendingHints::default();
        let at = |ms| Duration::from_millis(ms);
        let add = |group, hint, ms| pending.add(group, hint, at(ms), PAUSE);
        assert_eq!(add(1, Hint::Loved, 0), HashMap::from([(1, Hint::Loved)]));
        assert!(add(2, Hint::Loved, 5).is_empty());
        assert!(add(2, Hint::Hated, 19).is_empty());
        let together = HashMap::from([(2, Hint::Hated), (3, Hint::Loved)]);
        assert_eq!(add(3, Hint::Loved, 20), together, "the last word of each");
        assert!(add(4, Hint::Loved, 39).is_empty());
        assert_eq!(pending.add(5, Hint::Loved, at(39), Duration::ZERO).len(), 2, "no pause");
    }
}
