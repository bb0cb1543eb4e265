//! How what was read stands with the purges and with its groups.
//!
//! Invariant: whatever is served from the store passed here, whether it was read whole or in part.
//! Threads: as the vault.

use bytes::Bytes;
use damelo::GroupId;

use super::{Placement, Vault, decode};
use crate::metrics::Counters;
use crate::purge::marks::{Standing, Subject};
use crate::purge::{url_hash, url_of_key};
use crate::vault::entry::Entry;

impl Vault {
    /// What metadata that was read under a key stands for, as the purges and its groups leave it; its
    /// group, and whether it was in memory, are its `place`.
    pub(super) async fn judge(
        &self,
        key: &[u8],
        blob: &Bytes,
        place: (GroupId, bool),
        counters: &Counters,
    ) -> Option<(Entry, Placement)> {
        let Some((mut entry, stamp)) = decode(blob) else {
            counters.damaged_entries.one();
            return None;
        };
        let placement = Placement { group: place.0, in_memory: place.1, stamp };
        match self.standing(key, &placement) {
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

    /// Whether no purge covers what lies so, or will.
    pub(crate) fn is_untouched(&self, key: &[u8], placement: &Placement) -> bool {
        self.standing(key, placement) == Standing::Untouched
    }

    /// How an entry stands with the purges.
    pub(super) fn standing(&self, key: &[u8], placement: &Placement) -> Standing {
        if self.ledger.is_clear(placement.stamp.moment) {
            return Standing::Untouched;
        }
        let (stamp, url) = (&placement.stamp, url_of_key(key));
        let group = placement.group.get();
        self.ledger.judge(&Subject { stamp, url, url_hash: url_hash(url), group })
    }
}
