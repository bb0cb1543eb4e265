//! The hard purges of single URLs that were made lately, for `explain`: they remove what is stored,
//! and leave no mark.
//!
//! Invariant: at most [`REMEMBERED_MAX`] are remembered, the latest. Threads: any.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::io::locks::lock;

/// Purges remembered.
const REMEMBERED_MAX: usize = 1024;

/// Hash of the URL, and when it was purged, in seconds since 1970.
#[derive(Debug, Default)]
pub(crate) struct RecentPurges(Mutex<VecDeque<(u64, u64)>>);

impl RecentPurges {
    pub(crate) fn remember(&self, url_hash: u64, now_unix_s: u64) {
        let mut purges = lock(&self.0);
        purges.truncate(REMEMBERED_MAX - 1);
        purges.push_front((url_hash, now_unix_s));
    }

    /// When a URL was purged, the latest first.
    pub(crate) fn of(&self, url_hash: u64) -> Vec<u64> {
        let purges = lock(&self.0);
        purges.iter().filter(|(purged, _)| *purged == url_hash).map(|(_, when)| *when).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_purges_are_remembered() {
        let purges = RecentPurges::default();
        for now in 0..REMEMBERED_MAX as u64 {
            purges.remember(now % 2, now);
        }
        assert_eq!((purges.of(0).len(), purges.of(1)[0]), (REMEMBERED_MAX / 2, 1023));
        purges.remember(2, 1024);
        assert_eq!((purges.of(2), purges.of(0).last()), (vec![1024], Some(&2)));
    }
}
