//! One version of an object: what was seen of it, and whether it still is what readers get.
//!
//! Invariants: a version is known by its sequence number, which no other record has. Where memory does not
//! show it, it is taken for the newest only if the index says exactly what it said before the version was
//! read: nothing of the key can have come or gone without a trace there. Doubt means "no".
//! Threads: any.

use crate::engine::Engine;
use crate::index::Location;
use crate::memory::resident::Entry;

/// A version that was the newest when it was looked at.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) seq: u64,
    /// Where its record lies; `None` if it waits to be written, or that was not looked for.
    pub(crate) place: Option<Location>,
    family: Family,
}

/// What the index had for a key: locations and the lives of their segments, in an order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Family(Vec<(Location, u64)>);

impl Version {
    /// For as long as memory shows it.
    pub(crate) fn in_memory(seq: u64) -> Version {
        Version { seq, place: None, family: Family::default() }
    }
}

impl Engine {
    /// To be asked before the key is looked up.
    pub(crate) fn family(&self, hash: u64) -> Family {
        let life = |location| self.ring.seq(self.space.split(location).0);
        let live = self.ordered_candidates(hash).into_iter();
        let mut all: Vec<_> = live.map(|c| (c.location, life(c.location))).collect();
        all.sort_unstable();
        Family(all)
    }

    /// The version with that number, which was found after `family` was asked. Where it lies is read off
    /// memory or, if it is not there any more, off the records themselves.
    pub(crate) fn version(&self, hash: u64, seq: u64, family: Family) -> Version {
        let resident = {
            let shard = self.cache.resident.shard(hash);
            shard.map.get(&hash).filter(|entry| entry.seq == seq).map(|entry| entry.location)
        };
        let is_it = |location: &Location| {
            self.header_at(*location).is_some_and(|h| h.hash == hash && h.seq == seq)
        };
        let place = match resident {
            Some(place) => place,
            None => family.0.iter().map(|(location, _)| *location).find(is_it),
        };
        Version { seq, place, family }
    }

    /// True if readers get that version, or would if nothing killed it. To be asked with the shard of the
    /// resident table locked.
    pub(crate) fn is_newest_version(
        &self,
        hash: u64,
        version: &Version,
        resident: Option<&Entry>,
    ) -> bool {
        if let Some(entry) = resident {
            return entry.seq == version.seq;
        }
        let listed = |place| version.family.0.iter().any(|(location, _)| *location == place);
        version.place.is_some_and(listed) && self.family(hash) == version.family
    }
}
