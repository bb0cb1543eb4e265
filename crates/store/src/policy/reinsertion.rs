//! Reinsertion: which surviving objects of a reused segment are written again, and how many bytes
//! that may take. Pure decisions.
//!
//! The disk policy chooses and orders the survivors; this policy limits the cost. Threads: the
//! flusher.

use std::time::Duration;

use super::residency::Hint;
use crate::types::GroupId;

/// Upper limit on the share of a segment that is written again, in percent, whatever a policy
/// returns: the ring must advance.
pub(crate) const REINSERT_PERCENT_LIMIT: u8 = 90;

/// Which survivors of the disk policy are written again, see
/// [`Config::reinsert_percent_max`](crate::Config::reinsert_percent_max).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Reinsertion {
    /// Every survivor, in order of worth (default).
    #[default]
    Worthy,
    /// Survivors with a minimum number of hits since they were written or last kept.
    Used {
        /// Hits needed, 1 to 3. Each read from disk counts as one, and so does a stay in memory
        /// with any hit.
        hits_min: u8,
    },
    /// Nothing.
    Never,
}

/// An object that the disk policy would keep.
#[derive(Debug, Clone, Copy)]
pub struct Survivor {
    /// Hash of the object's key; differs between stores.
    pub hash: u64,
    /// The object's group.
    pub group: GroupId,
    /// The caller's hint for the group.
    pub hint: Hint,
    /// Hit count, 0 to 3, since the object was written or last kept; see [`Reinsertion::Used`].
    pub freq: u8,
    /// The worth that the disk policy gave.
    pub worth: u8,
    /// Bytes that the object takes on disk.
    pub bytes: u64,
}

/// Decides which objects are written again, and how many. A policy may keep bounded state of its
/// own; it does no I/O, reads no clock, and must not call the store.
pub trait ReinsertionPolicy: Send + Sync {
    /// Bytes of a segment of `segment_bytes` that may be written again; the store caps it at 90%.
    /// Called once for each reused segment; `now` is the store's clock, counted from some fixed
    /// moment. Unless the budget is zero, the live objects of a nearly empty segment (up to 30%)
    /// may be written again in any case.
    fn budget(&self, segment_bytes: u64, now: Duration) -> u64;

    /// Whether to write this object again if the budget has room for it. Called for survivors of
    /// the disk policy only, in order of worth.
    fn keeps(&self, survivor: &Survivor) -> bool;
}

/// Keeps objects with at least `hits_min` hits, up to a share of the segment.
struct Share {
    percent: u8,
    hits_min: u8,
}

impl ReinsertionPolicy for Share {
    fn budget(&self, segment_bytes: u64, _now: Duration) -> u64 {
        segment_bytes * u64::from(self.percent) / 100
    }

    fn keeps(&self, survivor: &Survivor) -> bool {
        survivor.freq >= self.hits_min
    }
}

/// The reinsertion policy of a rule, limited to a share of each segment, see
/// [`Config::reinsert_percent_max`](crate::Config::reinsert_percent_max).
pub fn reinsertion_policy(
    rule: Reinsertion,
    reinsert_percent_max: u8,
) -> Box<dyn ReinsertionPolicy> {
    let (percent, hits_min) = match rule {
        Reinsertion::Worthy => (reinsert_percent_max, 0),
        Reinsertion::Used { hits_min } => (reinsert_percent_max, hits_min),
        Reinsertion::Never => (0, 0),
    };
    Box::new(Share { percent: percent.min(REINSERT_PERCENT_LIMIT), hits_min })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_a_share_and_hits_decide_if_asked_to() {
        let (group, hint) = (GroupId::new(0), Hint::Neutral);
        let unused = Survivor { hash: 1, group, hint, freq: 0, worth: 1, bytes: 100 };
        let twice = Survivor { freq: 2, ..unused };
        for (rule, budget, kept) in [
            (Reinsertion::Worthy, 200, [true, true]),
            (Reinsertion::Used { hits_min: 2 }, 200, [false, true]),
            (Reinsertion::Used { hits_min: 3 }, 200, [false, false]),
        ] {
            let policy = reinsertion_policy(rule, 20);
            assert_eq!(policy.budget(1000, Duration::ZERO), budget);
            assert_eq!([unused, twice].map(|survivor| policy.keeps(&survivor)), kept);
        }
        let never = reinsertion_policy(Reinsertion::Never, 20);
        assert_eq!(never.budget(1000, Duration::ZERO), 0);
    }
}
