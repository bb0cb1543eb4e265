//! The responses that were lately not stored, for `explain`.
//!
//! A URL has one place, which it shares with the others of its hash: what is asked for all the time
//! and never stored takes one, and leaves the rest to what is asked for now and then. Threads:
//! behind the lock of the worker's counters.

use std::time::Instant;

use crate::rules::NotStoredReason;

/// Places of each worker.
const PLACES: usize = 4096;

/// A response that was not stored.
#[derive(Debug, Clone)]
pub(crate) struct NotStored {
    url_hash: u64,
    pub(crate) when: Instant,
    pub(crate) reason: NotStoredReason,
    /// The name of the rule that forbids it, if one does.
    pub(crate) rule: Option<Box<str>>,
}

/// The latest of each place.
#[derive(Debug, Default)]
pub(crate) struct NotStoredLately {
    /// None before the first.
    places: Vec<Option<NotStored>>,
}

impl NotStoredLately {
    pub(crate) fn remember(
        &mut self,
        url_hash: u64,
        when: Instant,
        (reason, rule): (NotStoredReason, Option<&str>),
    ) {
        self.places.resize(PLACES, None);
        let rule = rule.map(Box::from);
        self.places[place(url_hash)] = Some(NotStored { url_hash, when, reason, rule });
    }

    /// The latest of a URL, unless that of another has taken its place.
    pub(crate) fn of(&self, url_hash: u64) -> Option<&NotStored> {
        let there = self.places.get(place(url_hash))?.as_ref()?;
        (there.url_hash == url_hash).then_some(there)
    }
}

fn place(url_hash: u64) -> usize {
    (url_hash % PLACES as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_of_a_url_is_remembered_whatever_is_not_stored_beside_it() {
        let (mut lately, now) = (NotStoredLately::default(), Instant::now());
        assert!(lately.of(7).is_none());
        lately.remember(7, now, (NotStoredReason::Private, None));
        for _ in 0..2 * PLACES {
            lately.remember(8, now, (NotStoredReason::NoStore, None));
        }
        assert_eq!(lately.of(7).map(|one| one.reason), Some(NotStoredReason::Private));
        lately.remember(7, now, (NotStoredReason::Rule, Some("pictures")));
        assert_eq!(lately.of(7).and_then(|one| one.rule.as_deref()), Some("pictures"));
        lately.remember(7 + PLACES as u64, now, (NotStoredReason::NoStore, None));
        assert!(lately.of(7).is_none(), "its place is another's");
    }
}
