//! How much of what the disk policy would keep is written again when a segment is reused, and what of it.
//! Pure decisions.
//!
//! The disk policy says what is worth it and orders it; here is what that may cost. Threads: the one that
//! writes.

use std::time::Duration;

use super::residency::Hint;
use crate::types::GroupId;

/// Most of a segment that may be written again, in percent, whatever a policy says: the ring has to advance.
pub(crate) const REINSERT_PERCENT_LIMIT: u8 = 90;

/// What is written again of what the disk policy would keep, see [`Config::reinsert_percent_max`](crate::Config::reinsert_percent_max).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reinsertion {
    /// Everything that the disk policy finds worth it, the worthiest first (default).
    #[default]
    Worthy,
    /// Of that, what was asked for since it was written, or last kept.
    Used {
        /// At least so often, 1 to 3, as far as seen: reads from disk, and one for a stay in memory with hits.
        hits_min: u8,
    },
    /// Nothing.
    Never,
}

/// An object that the disk policy finds worth keeping.
#[derive(Debug, Clone, Copy)]
pub struct Survivor {
    /// Hash of its key: another one in every store.
    pub hash: u64,
    /// Its group.
    pub group: GroupId,
    /// What was said of its group.
    pub hint: Hint,
    /// Its count, 0 to 3: how often it was asked for since it was written or last kept, as far as seen.
    pub freq: u8,
    /// What the disk policy finds it worth.
    pub worth: u8,
    /// What it takes on disk.
    pub bytes: u64,
}

/// Decides what is written again, and how much. What it remembers is its own and bounded; it does no I/O,
/// reads no clock, and must not call the store.
pub trait ReinsertionPolicy: Send + Sync {
    /// Bytes of a segment of so many that may be written again, 90% of it at most. Asked once for each
    /// segment that is reused; `now` is the time by the store's clock, since some fixed moment. Unless it is
    /// zero, what is left of a nearly empty segment (30%) may be written again whatever it is.
    fn budget(&self, segment_bytes: u64, now: Duration) -> u64;

    /// Whether to write this one again if the budget has room for it. Asked for what the disk policy finds
    /// worth it, the worthiest first.
    fn keeps(&self, survivor: &Survivor) -> bool;
}

/// What was asked for at least so often, within a share of the segment.
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

/// The reinsertion policy of a rule, within a share of each segment, see
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
