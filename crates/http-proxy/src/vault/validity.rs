//! Checks a stored response against the purges and its groups.
//!
//! Invariant: every response served from the store has passed this check, whether it was read whole
//! or in part. Threads: as the vault.

use bytes::Bytes;
use damelo::GroupId;

use super::decoded::{Lately, decode_again, note_untouched};
use super::{Epoch, Found, Placement, Vault};
use crate::metrics::Counters;
use crate::purge::marks::{Standing, Subject};
use crate::purge::stamp::Moment;
use crate::purge::{url_hash, url_of_key};
use crate::vault::entry::Entry;

impl Vault {
    /// Decodes metadata read under a key and applies purges and group sentinels to it. `place` is
    /// its group, and whether it was in memory.
    pub(super) async fn judge(
        &self,
        key: &[u8],
        blob: &Bytes,
        place: (GroupId, bool),
        counters: &Counters,
    ) -> Option<(Entry, Placement)> {
        let Some(Lately { mut entry, stamp, untouched }) = decode_again(key, blob) else {
            counters.damaged_entries.one();
            return None;
        };
        let placement = Placement { group: place.0, in_memory: place.1, stamp };
        let is_untouched = untouched.is_some_and(|(group, newest)| {
            group == placement.group && self.ledger.is_newest(newest)
        });
        match self.standing_unless(is_untouched, key, &placement) {
            Standing::Untouched => {}
            Standing::Stale { since_unix_s } => entry.end_freshness(since_unix_s),
            Standing::Gone => {
                counters.purged_misses.one();
                return None;
            }
        }
        if let Entry::Response(response) = &entry
            && !self.all_groups_stand(&response.groups).await
        {
            return None;
        }
        Some((entry, placement))
    }

    /// Whether no purge covers a response with this placement.
    pub(crate) fn is_untouched(&self, key: &[u8], placement: &Placement) -> bool {
        self.standing(key, placement) == Standing::Untouched
    }

    /// Whether a hard purge covers a response with this placement.
    pub(crate) fn is_gone(&self, key: &[u8], placement: &Placement) -> bool {
        self.standing(key, placement) == Standing::Gone
    }

    /// Whether a response of these groups, fetched since `epoch`, may not be stored any more: its
    /// resource or a group has changed since, or a hard purge covers it.
    pub(crate) fn is_outdated(
        &self,
        key: &[u8],
        epoch: Epoch,
        groups: &[GroupId],
        placement: &Placement,
    ) -> bool {
        !self.is_current_in(epoch, groups.iter().copied()) || self.is_gone(key, placement)
    }

    /// Whether a response may still be served that was found before `epoch`: as far as is known, no
    /// change of its resource or its groups, and no hard purge, has taken it since.
    pub(crate) fn still_stands(&self, primary: &[u8], found: &Found, epoch: Epoch) -> bool {
        let placement = &found.placement;
        let mut groups = found.response.groups_with(placement.group);
        !self.stripe_of(epoch.resource).invalidated.has_surely(epoch.resource, epoch.count)
            && !groups.any(|group| self.invalidated_groups.has_surely(group.get(), epoch.groups))
            && !self.is_gone(found.key(primary), placement)
    }

    /// How a response stands with the purges.
    pub(super) fn standing(&self, key: &[u8], placement: &Placement) -> Standing {
        if self.ledger.is_clear(placement.stamp.moment) {
            return Standing::Untouched;
        }
        self.judged(key, placement).0
    }

    /// The same of a hit. After a purge all that is older is to be judged, and again with each hit
    /// until the next purge: so what was found to be untouched is noted, `is_known` then.
    fn standing_unless(&self, is_known: bool, key: &[u8], placement: &Placement) -> Standing {
        if is_known || self.ledger.is_clear(placement.stamp.moment) {
            return Standing::Untouched;
        }
        let (standing, newest) = self.judged(key, placement);
        if standing == Standing::Untouched {
            note_untouched(key, placement, newest);
        }
        standing
    }

    fn judged(&self, key: &[u8], placement: &Placement) -> (Standing, Moment) {
        let (stamp, url) = (&placement.stamp, url_of_key(key));
        let group = placement.group.get();
        self.ledger.judge(&Subject { stamp, url, url_hash: url_hash(url), group })
    }
}
