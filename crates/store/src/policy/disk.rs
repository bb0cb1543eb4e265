//! Disk policies: which objects of a segment survive when the ring reuses it. Pure functions of
//! counts.
//!
//! An object's count is its two-bit frequency in the index: hits since the object was written or
//! last kept. Each read from disk counts as one hit, and so does each stay in memory with at least
//! one hit.

/// Which objects of the oldest segment are kept when the ring reuses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum DiskPolicyKind {
    /// Frequency-based cyclic: keeps objects that were hit since they were written (Maltzahn 1999,
    /// FBC).
    #[default]
    Fbc,
    /// Keeps objects whose count is at least the segment's mean; counts age (UCFS 2002 §2.4.9).
    LfuAging,
    /// Keeps objects that were hit since they were written or last kept, so in the last turn of the
    /// ring.
    Lru,
    /// Keeps nothing: a plain ring.
    Fifo,
}

impl DiskPolicyKind {
    /// All kinds, the default first.
    pub const ALL: &'static [DiskPolicyKind] =
        &[DiskPolicyKind::Fbc, DiskPolicyKind::LfuAging, DiskPolicyKind::Lru, DiskPolicyKind::Fifo];

    /// Its name where it is chosen by one.
    pub const fn name(self) -> &'static str {
        match self {
            DiskPolicyKind::Fbc => "fbc",
            DiskPolicyKind::LfuAging => "lfu-aging",
            DiskPolicyKind::Lru => "lru",
            DiskPolicyKind::Fifo => "fifo",
        }
    }
}

/// The facts about an object whose segment is about to be reused.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// Hit count, 0 to 3.
    pub freq: u8,
    /// The object's group is loved.
    pub loved: bool,
    /// The object's group is hated.
    pub hated: bool,
}

/// Decides which objects are kept; stateless.
pub trait DiskPolicy: Send + Sync {
    /// The worth of keeping an object; objects of greater worth are kept first. `None` evicts it.
    /// `mean_percent` is the segment's mean count in hundredths.
    fn worth(&self, candidate: Candidate, mean_percent: u32) -> Option<u8>;

    /// Worth of an object that [`DiskPolicy::worth`] evicts, in a segment with few live objects
    /// left. Keeping all of these takes less than a third of a segment and frees a whole one.
    fn worth_among_few(&self, candidate: Candidate) -> Option<u8> {
        (!candidate.hated).then_some(0)
    }

    /// The count that a kept object starts its next turn with.
    fn next_freq(&self, freq: u8, mean_percent: u32) -> u8;
}

/// Maltzahn 1999 §5.2: replacement goes round in a cycle and skips popular objects. Counts are
/// capped at C_max; when their mean passes A_max all are halved, so that old popularity fades.
struct Fbc {
    count_max: u8,
    average_max_percent: u32,
}

impl DiskPolicy for Fbc {
    fn worth(&self, c: Candidate, _mean_percent: u32) -> Option<u8> {
        let count = c.freq.min(self.count_max) + u8::from(c.loved);
        (count > 0 && !c.hated).then_some(count)
    }

    fn next_freq(&self, freq: u8, mean_percent: u32) -> u8 {
        let freq = freq.min(self.count_max);
        if mean_percent > self.average_max_percent { freq / 2 } else { freq.saturating_sub(1) }
    }
}

/// UCFS 2002 §2.4.9: the least frequently used objects are evicted; counts are halved each turn.
struct LfuAging;

impl DiskPolicy for LfuAging {
    fn worth(&self, c: Candidate, mean_percent: u32) -> Option<u8> {
        let above = u32::from(c.freq) * 100 >= mean_percent.max(1);
        (c.freq > 0 && above && !c.hated).then_some(c.freq)
    }

    fn next_freq(&self, freq: u8, _mean_percent: u32) -> u8 {
        freq / 2
    }
}

/// Any hit in this turn keeps an object for one more.
struct Lru;

impl DiskPolicy for Lru {
    fn worth(&self, c: Candidate, _mean_percent: u32) -> Option<u8> {
        (c.freq > 0 && !c.hated).then_some(1)
    }

    fn next_freq(&self, _freq: u8, _mean_percent: u32) -> u8 {
        0
    }
}

struct Fifo;

impl DiskPolicy for Fifo {
    fn worth(&self, _c: Candidate, _mean_percent: u32) -> Option<u8> {
        None
    }

    fn worth_among_few(&self, _c: Candidate) -> Option<u8> {
        None
    }

    fn next_freq(&self, _freq: u8, _mean_percent: u32) -> u8 {
        0
    }
}

/// The disk policy of a kind. The two limits apply to FBC only, see
/// [`Config::fbc_count_max`](crate::Config::fbc_count_max) and
/// [`Config::fbc_average_max_percent`](crate::Config::fbc_average_max_percent).
pub fn disk_policy(
    kind: DiskPolicyKind,
    fbc_count_max: u8,
    fbc_average_max_percent: u32,
) -> Box<dyn DiskPolicy> {
    match kind {
        DiskPolicyKind::Fbc => {
            Box::new(Fbc { count_max: fbc_count_max, average_max_percent: fbc_average_max_percent })
        }
        DiskPolicyKind::LfuAging => Box::new(LfuAging),
        DiskPolicyKind::Lru => Box::new(Lru),
        DiskPolicyKind::Fifo => Box::new(Fifo),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(kind: DiskPolicyKind) -> Box<dyn DiskPolicy> {
        disk_policy(kind, 3, 100)
    }

    #[test]
    fn used_objects_stay_and_unused_ones_go() {
        let used = Candidate { freq: 2, loved: false, hated: false };
        let unused = Candidate { freq: 0, ..used };
        let hated = Candidate { hated: true, ..used };
        for kind in [DiskPolicyKind::Fbc, DiskPolicyKind::LfuAging, DiskPolicyKind::Lru] {
            let policy = policy(kind);
            assert!(policy.worth(used, 100).is_some(), "{kind:?}");
            assert!(policy.worth(unused, 100).is_none(), "{kind:?}");
            assert!(policy.worth(hated, 100).is_none(), "{kind:?}");
            assert!(policy.worth_among_few(unused).is_some(), "{kind:?}");
            assert!(policy.worth_among_few(hated).is_none(), "{kind:?}");
        }
        let fifo = policy(DiskPolicyKind::Fifo);
        assert!(fifo.worth(used, 0).is_none() && fifo.worth_among_few(used).is_none());
    }

    #[test]
    fn fbc_caps_counts_and_fades_them() {
        let fbc = policy(DiskPolicyKind::Fbc);
        assert_eq!(fbc.next_freq(3, 50), 2);
        assert_eq!(fbc.next_freq(3, 150), 1);
    }
}
