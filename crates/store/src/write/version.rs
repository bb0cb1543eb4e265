//! One version of an object, and the check whether it is still the newest.
//!
//! Invariants: a version is identified by its sequence number, which no other record has. If it is
//! not in memory, it counts as the newest only if the index has exactly the same entries as before
//! the version was read: then no version of the key can have come or gone in between. In doubt the
//! answer is "no". Threads: any.

use crate::engine::Engine;
use crate::index::Location;
use crate::memory::resident::Found;
use crate::types::{KeyHash, SegmentLife, Sequence};

/// A version that was the newest when it was read.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) seq: Sequence,
    /// The location of its record; `None` if the record waits to be written, or its location was
    /// not looked up.
    pub(crate) place: Option<Location>,
    family: Family,
}

/// The index entries of a key: locations and the lives of their segments, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Family(Vec<(Location, SegmentLife)>);

impl Version {
    /// A version in memory, valid as long as it stays there.
    pub(crate) fn in_memory(seq: Sequence) -> Version {
        Version { seq, place: None, family: Family::default() }
    }
}

impl Engine {
    /// The current index entries of a key. Called before the key is looked up.
    pub(crate) fn family(&self, hash: KeyHash) -> Family {
        let life = |location| self.ring.life(self.space.split(location).0);
        let live = self.ordered_candidates(hash).into_iter();
        let mut all: Vec<_> = live.map(|c| (c.location, life(c.location))).collect();
        all.sort_unstable();
        Family(all)
    }

    /// The version with number `seq`, which was found after `family` was taken. Its location comes
    /// from the resident table or, if it is no longer there, from the records themselves.
    pub(crate) fn version(&self, hash: KeyHash, seq: Sequence, family: Family) -> Version {
        let resident = {
            let shard = self.cache.resident.shard(hash);
            let entry = shard.get(hash).filter(|entry| entry.record().head.sequence() == seq);
            entry.map(|entry| entry.state.location())
        };
        let is_it = |location: &Location| {
            self.header_at(*location).is_some_and(|h| h.key_hash() == hash && h.sequence() == seq)
        };
        let place = match resident {
            Some(place) => place,
            None => family.0.iter().map(|(location, _)| *location).find(is_it),
        };
        Version { seq, place, family }
    }

    /// True if readers get this version, or would if no mark killed it. Called with the shard of
    /// the resident table locked.
    pub(crate) fn is_newest_version(
        &self,
        hash: KeyHash,
        version: &Version,
        resident: Option<&Found<'_>>,
    ) -> bool {
        if let Some(entry) = resident {
            return entry.record().head.sequence() == version.seq;
        }
        let listed = |place| version.family.0.iter().any(|(location, _)| *location == place);
        version.place.is_some_and(listed) && self.family(hash) == version.family
    }
}
