//! Hints of groups that are not applied to the objects in memory yet.
//!
//! Moving a group's objects to the queue of its hint takes a pass over all of memory: a millisecond
//! for a gigabyte. So a single hint is applied at once, and hints that follow shortly are gathered
//! and applied together; objects that come in meanwhile are queued by their group's hint anyway.
//! Invariant: the last hint of a group wins. Threads: any; the flusher applies gathered hints.

use crate::sync::{Mutex, lock};
use std::collections::HashMap;
use std::time::Duration;

use crate::policy::residency::Hint;
use crate::types::GroupId;

/// Least time between two passes over memory by callers. The flusher's passes are as frequent.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

#[derive(Default)]
struct State {
    waiting: HashMap<GroupId, Hint>,
    applied: Option<Duration>,
}

#[derive(Default)]
pub(crate) struct PendingHints(Mutex<State>);

impl PendingHints {
    /// Adds a hint; returns the hints to apply now, if any.
    pub(crate) fn add(
        &self,
        group: GroupId,
        hint: Hint,
        now: Duration,
        pause: Duration,
    ) -> HashMap<GroupId, Hint> {
        let mut state = lock(&self.0);
        state.waiting.insert(group, hint);
        if state.applied.is_some_and(|then| now.saturating_sub(then) < pause) {
            return HashMap::new();
        }
        state.applied = Some(now);
        std::mem::take(&mut state.waiting)
    }

    /// Takes the hints gathered since the last application.
    pub(crate) fn take(&self) -> HashMap<GroupId, Hint> {
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
        let id = GroupId::new;
        let add = |group, hint, ms| pending.add(id(group), hint, at(ms), PAUSE);
        assert_eq!(add(1, Hint::Loved, 0), HashMap::from([(id(1), Hint::Loved)]));
        assert!(add(2, Hint::Loved, 5).is_empty());
        assert!(add(2, Hint::Hated, 19).is_empty());
        let together = HashMap::from([(id(2), Hint::Hated), (id(3), Hint::Loved)]);
        assert_eq!(add(3, Hint::Loved, 20), together, "the last word of each");
        assert!(add(4, Hint::Loved, 39).is_empty());
        assert_eq!(pending.add(id(5), Hint::Loved, at(39), Duration::ZERO).len(), 2, "no pause");
    }
}
