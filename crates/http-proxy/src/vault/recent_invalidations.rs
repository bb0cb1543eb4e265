//! The recently invalidated resources of a stripe, or groups of the vault, by which a fill under
//! way tells whether an invalidation concerns it.
//!
//! Invariant: an invalidation of a resource is never missed. An invalidation of another resource
//! counts as one of this resource only if more than `MAX` others were invalidated during the fill,
//! however often, or if the hashes collide. So it is with groups. Threads: shared by all workers; a
//! query costs one load while nothing was invalidated.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::io::locks::lock;

/// The invalidations of one stripe, or of groups; the `MAX` resources that were invalidated last
/// are remembered individually.
#[derive(Default)]
pub(super) struct RecentInvalidations<const MAX: usize> {
    /// All invalidations so far. Written under the lock of `recent`.
    count: AtomicU64,
    recent: Mutex<Recent>,
}

#[derive(Default)]
struct Recent {
    /// The latest invalidation of each resource, the newest at the back. One of each, so that a
    /// resource that is invalidated all the time does not push out the others.
    latest: VecDeque<Invalidation>,
    /// The count of the newest that was forgotten.
    forgotten: u64,
}

struct Invalidation {
    /// Hash of the resource.
    resource: u64,
    /// The count with it.
    count: u64,
}

impl<const MAX: usize> RecentInvalidations<MAX> {
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Records an invalidation of the resource with this hash.
    pub(super) fn add(&self, resource: u64) {
        self.add_to(&mut lock(&self.recent), resource);
    }

    /// As [`RecentInvalidations::add`]; returns the new count if there was no other invalidation of
    /// the resource since the count was `count`. One step, so that none can come in between.
    pub(super) fn add_next(&self, resource: u64, count: u64) -> Option<u64> {
        let mut recent = lock(&self.recent);
        let has = self.is_among(&recent, resource, count);
        let next = self.add_to(&mut recent, resource);
        (!has).then_some(next)
    }

    /// Records several invalidations in one step; returns the new count if there was no other, of
    /// anything, since the count was `count`.
    pub(super) fn add_all_next(
        &self,
        all: impl IntoIterator<Item = u64>,
        count: u64,
    ) -> Option<u64> {
        let mut recent = lock(&self.recent);
        let is_first = self.count() == count;
        for one in all {
            self.add_to(&mut recent, one);
        }
        is_first.then(|| self.count())
    }

    fn add_to(&self, recent: &mut Recent, resource: u64) -> u64 {
        let Recent { latest, forgotten } = recent;
        if let Some(place) = latest.iter().rposition(|one| one.resource == resource) {
            latest.remove(place);
        } else if latest.len() == MAX
            && let Some(oldest) = latest.pop_front()
        {
            *forgotten = oldest.count;
        }
        // Nobody else counts meanwhile.
        let count = self.count() + 1;
        latest.push_back(Invalidation { resource, count });
        self.count.store(count, Ordering::SeqCst);
        count
    }

    /// Whether the resource was, or may have been, invalidated since the count was `count`.
    pub(super) fn has(&self, resource: u64, count: u64) -> bool {
        self.count() != count && self.is_among(&lock(&self.recent), resource, count)
    }

    /// Whether the resource was certainly invalidated since the count was `count`.
    pub(super) fn has_surely(&self, resource: u64, count: u64) -> bool {
        self.count() != count && lock(&self.recent).has(resource, count)
    }

    fn is_among(&self, recent: &Recent, resource: u64, count: u64) -> bool {
        recent.forgotten > count || recent.has(resource, count)
    }
}

impl Recent {
    fn has(&self, resource: u64, count: u64) -> bool {
        let mut since = self.latest.iter().rev().take_while(|one| one.count > count);
        since.any(|one| one.resource == resource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::vault::RECENT_MAX;

    #[test]
    fn only_what_was_meant_is_affected_until_too_much_is() {
        let invalidated = RecentInvalidations::<RECENT_MAX>::default();
        invalidated.add(7);
        let begun = invalidated.count();
        assert!(!invalidated.has(7, begun), "it was before");
        for other in 100..100 + RECENT_MAX as u64 {
            invalidated.add(other);
            assert!(!invalidated.has(7, begun) && invalidated.has(other, begun), "{other}");
        }
        assert!(invalidated.has(100, begun), "the oldest that is remembered");
        invalidated.add(1);
        assert!(invalidated.has(7, begun), "more than can be told apart");
        assert!(!invalidated.has_surely(7, begun) && invalidated.has_surely(1, begun));
        assert!(!invalidated.has(7, invalidated.count()));
    }

    /// As that of a busy form, which every POST invalidates.
    #[test]
    fn one_that_is_invalidated_all_the_time_affects_no_other() {
        let invalidated = RecentInvalidations::<RECENT_MAX>::default();
        let begun = invalidated.count();
        invalidated.add(8);
        for _ in 0..10 * RECENT_MAX {
            invalidated.add(1);
        }
        assert!(invalidated.has(1, begun) && invalidated.has_surely(1, begun));
        assert!(!invalidated.has(7, begun), "another one was not");
        assert!(invalidated.has(8, begun), "one from before is remembered");
        let later = invalidated.count();
        invalidated.add(9);
        assert!(!invalidated.has(1, later) && !invalidated.has(8, later));
    }

    #[test]
    fn ones_own_is_told_apart_from_anothers() {
        let invalidated = RecentInvalidations::<RECENT_MAX>::default();
        let begun = invalidated.count();
        invalidated.add(8);
        let own = invalidated.add_next(7, begun).expect("nobody else's");
        assert!(invalidated.has(7, begun) && !invalidated.has(7, own));
        assert_eq!(invalidated.add_next(7, begun), None, "the first is another's to the second");
        assert!(invalidated.has(7, own), "it counts as one all the same");
    }

    #[test]
    fn several_at_once_are_told_apart_from_anothers() {
        let invalidated = RecentInvalidations::<RECENT_MAX>::default();
        let begun = invalidated.count();
        let own = invalidated.add_all_next([7, 8], begun).expect("nobody else's");
        assert!(
            [7, 8].iter().all(|one| invalidated.has(*one, begun)) && !invalidated.has(9, begun)
        );
        assert!(!invalidated.has(7, own));
        assert_eq!(invalidated.add_all_next([9], begun), None, "the others came between");
        assert!(invalidated.has(9, own), "it counts all the same");
    }
}
