//! Which keys were deleted, and when, until recovery has applied that to the index.
//!
//! Owns a table of the journal's deletes, which may be millions, and one of those made since. The
//! first is never copied, and both are freed once recovery is over. Invariant: what is noted kills
//! until then whatever is older. Threads: the holder of the engine's lock.

use std::collections::HashMap;

use crate::sync::Arc;
use crate::types::{KeyHash, Sequence};

/// The newest delete of each key.
pub(crate) type Latest = HashMap<KeyHash, Sequence>;

#[derive(Default)]
pub(crate) struct Deletes {
    of_journal: Arc<Latest>,
    meanwhile: Latest,
    /// The index has all of them.
    ended: bool,
}

impl Deletes {
    pub(super) fn of_journal(of_journal: Latest) -> Deletes {
        Deletes { of_journal: Arc::new(of_journal), ..Deletes::default() }
    }

    /// The journal's, which stay the same.
    pub(super) fn journal(&self) -> Arc<Latest> {
        Arc::clone(&self.of_journal)
    }

    /// Keys deleted since.
    pub(super) fn meanwhile(&self) -> Vec<KeyHash> {
        self.meanwhile.keys().copied().collect()
    }

    pub(super) fn note(&mut self, hash: KeyHash, seq: Sequence) {
        // Who found recovery under way may come late, and tells the index itself.
        if !self.ended {
            note(&mut self.meanwhile, hash, seq);
        }
    }

    pub(super) fn kills(&self, hash: KeyHash, seq: Sequence) -> bool {
        let kills = |deletes: &Latest| deletes.get(&hash).is_some_and(|before| seq < *before);
        kills(&self.of_journal) || kills(&self.meanwhile)
    }

    pub(super) fn end(&mut self) {
        *self = Deletes { ended: true, ..Deletes::default() };
    }
}

pub(super) fn note(deletes: &mut Latest, hash: KeyHash, seq: Sequence) {
    let before = deletes.entry(hash).or_default();
    *before = seq.max(*before);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delete_kills_what_is_older_until_the_index_has_it() {
        let (hash, other) = (KeyHash::from_raw(1), KeyHash::from_raw(2));
        let seq = Sequence::from_raw;
        let mut deletes = Deletes::of_journal(Latest::from([(hash, seq(10))]));
        deletes.note(other, seq(20));
        deletes.note(other, seq(19));
        deletes.note(hash, seq(5));
        let kills = |deletes: &Deletes| {
            [(hash, 9), (hash, 10), (other, 19), (other, 20)]
                .map(|(hash, at)| deletes.kills(hash, seq(at)))
        };
        assert_eq!(kills(&deletes), [true, false, true, false]);
        assert_eq!(deletes.journal().len(), 1);
        let mut meanwhile = deletes.meanwhile();
        meanwhile.sort_unstable();
        assert_eq!(meanwhile, [hash, other]);
        deletes.end();
        deletes.note(hash, seq(30));
        assert_eq!(kills(&deletes), [false; 4]);
        assert!(deletes.journal().is_empty() && deletes.meanwhile().is_empty(), "they are freed");
    }
}
