//! Hints of groups that are not applied to the objects in memory yet.
//!
//! Moving a group's objects to the queue of its hint takes a pass over all of memory: a millisecond
//! for a gigabyte. So no caller does it where the store has threads of its own: hints are gathered,
//! and the flusher applies them together at its next tick, unless the last pass was just now and
//! took long. Objects that come in meanwhile are queued by their group's hint anyway. Invariant:
//! the last hint of a group wins. Threads: any; one at a time applies hints. Where the store has no
//! threads, no tick would come: callers apply their hints themselves.

use crate::sync::{Mutex, lock};
use std::collections::HashMap;
use std::time::Duration;

use crate::policy::residency::Hint;
use crate::types::GroupId;

/// Between two passes over memory lies this many times as long as the first took.
const PAUSE_SHARE: u32 = 8;

#[derive(Default)]
struct State {
    waiting: HashMap<GroupId, Hint>,
    /// No pass is made before.
    next: Duration,
}

#[derive(Default)]
pub(crate) struct PendingHints {
    state: Mutex<State>,
    /// Held during a pass, and locked first: a later one must not overtake it.
    passing: Mutex<()>,
}

impl PendingHints {
    /// Adds a hint.
    pub(crate) fn add(&self, group: GroupId, hint: Hint) {
        lock(&self.state).waiting.insert(group, hint);
    }

    /// Applies the hints gathered since the last pass, if there are any and it is time for another.
    pub(crate) fn apply(
        &self,
        now: impl Fn() -> Duration,
        pass: impl FnOnce(&HashMap<GroupId, Hint>),
    ) {
        let passing = lock(&self.passing);
        let mut state = lock(&self.state);
        if state.waiting.is_empty() {
            return;
        }
        let begun = now();
        if begun < state.next {
            return;
        }
        let hints = std::mem::take(&mut state.waiting);
        drop(state);
        pass(&hints);
        let end = now();
        let pause = end.saturating_sub(begun).saturating_mul(PAUSE_SHARE);
        lock(&self.state).next = end.saturating_add(pause);
        drop(passing);
    }

    /// As `apply`, however long the last pass took: for a caller that nobody comes after.
    pub(crate) fn apply_now(&self, pass: impl FnOnce(&HashMap<GroupId, Hint>)) {
        let passing = lock(&self.passing);
        let hints = std::mem::take(&mut lock(&self.state).waiting);
        if !hints.is_empty() {
            pass(&hints);
        }
        drop(passing);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn hints_are_applied_together_and_the_longer_that_takes_the_more_seldom() {
        let (pending, now) = (PendingHints::default(), Cell::new(Duration::ZERO));
        let id = GroupId::new;
        let at = |ms| now.set(Duration::from_millis(ms));
        let apply = |took_ms| {
            let applied = Cell::new(HashMap::new());
            let pass = |hints: &HashMap<GroupId, Hint>| {
                applied.set(hints.clone());
                now.set(now.get() + Duration::from_millis(took_ms));
            };
            pending.apply(|| now.get(), pass);
            applied.into_inner()
        };
        assert!(apply(1).is_empty());
        pending.add(id(1), Hint::Loved);
        pending.add(id(2), Hint::Loved);
        pending.add(id(2), Hint::Hated);
        let together = HashMap::from([(id(1), Hint::Loved), (id(2), Hint::Hated)]);
        assert_eq!(apply(10), together, "the last word of each");
        assert!(apply(10).is_empty(), "once");
        pending.add(id(3), Hint::Loved);
        at(89);
        assert!(apply(10).is_empty(), "the last pass took 10 ms, and ended at 10");
        at(90);
        assert_eq!(apply(0), HashMap::from([(id(3), Hint::Loved)]));
        pending.add(id(4), Hint::Loved);
        assert_eq!(apply(0).len(), 1, "it took no time");
    }

    /// The later one would end first, and the earlier hint win.
    #[test]
    fn one_pass_does_not_overtake_another() {
        let pending = PendingHints::default();
        let (hint, last) = (|hint| pending.add(GroupId::new(1), hint), Mutex::new(None));
        let note = |hints: &HashMap<GroupId, Hint>| *lock(&last) = hints.values().next().copied();
        let (begun, begins) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            hint(Hint::Loved);
            scope.spawn(|| {
                pending.apply_now(|hints| {
                    begun.send(()).unwrap();
                    // Time for the other, if it does not wait.
                    std::thread::sleep(Duration::from_millis(50));
                    note(hints);
                });
            });
            begins.recv().unwrap();
            hint(Hint::Hated);
            pending.apply(|| Duration::ZERO, note);
        });
        assert_eq!(*lock(&last), Some(Hint::Hated));
    }
}
