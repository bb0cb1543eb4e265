//! What is stored at all: the admission policies, and what they remember.
//!
//! Invariants: no I/O, no clock of their own, no locks. Threads: any; a lost update of two creates at once
//! lets one object in, or refuses one, that would not have been.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::residency::Hint;
use super::write_budget::WriteBudget;
use crate::types::GroupId;

/// Which new objects are written to disk at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Admission {
    /// Every object (default).
    #[default]
    Always,
    /// An object that somebody wanted to create once before, as far as 65,536 keys are remembered.
    SecondHit,
    /// Every object until this many bytes a second have been written, then none until they are paid for.
    /// What is kept when a segment is reused counts, too.
    WriteBudget {
        /// Bytes per second, averaged over ten seconds.
        bytes_per_second: u64,
    },
    /// Objects up to this size, and streams that do not say theirs.
    SizeMax {
        /// Length of the value in bytes.
        bytes: u64,
    },
    /// An object by chance, another time it is created again: what is wanted often comes in.
    Probability {
        /// How many of a hundred.
        percent: u8,
    },
}

const PLACES: usize = 1 << 16;
/// Window over which a write budget is averaged.
const BUDGET_WINDOW: Duration = Duration::from_secs(10);

/// Which keys were seen before, by their hashes: a table of fingerprints, one place for each. A key that
/// another one pushed out counts as new once more. It takes no memory before it is asked, and 256 KiB from
/// then on.
///
/// ```
/// let seen = damelo::policy::Seen::default();
/// assert!(!seen.before(17));
/// assert!(seen.before(17));
/// ```
#[derive(Debug, Default)]
pub struct Seen {
    places: OnceLock<Box<[AtomicU32]>>,
}

impl Seen {
    /// Whether this was seen before; from now on it was.
    pub fn before(&self, hash: u64) -> bool {
        let places = self.places.get_or_init(|| (0..PLACES).map(|_| AtomicU32::new(0)).collect());
        // 0 is an empty place.
        let print = (hash >> 32) as u32 | 1;
        places[hash as usize % PLACES].swap(print, Ordering::Relaxed) == print
    }
}

/// An object that somebody wants to store.
#[derive(Debug, Clone, Copy)]
pub struct Newcomer<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Hash of its key: another one in every store.
    pub hash: u64,
    /// Its group.
    pub group: GroupId,
    /// What was said of its group.
    pub hint: Hint,
    /// Length of its value; `None` for a stream that has not said it.
    pub bytes: Option<u64>,
    /// Time by the store's clock, since some fixed moment.
    pub now: Duration,
}

/// Decides what is stored at all. What it remembers is its own and bounded; it does no I/O, reads no clock,
/// and must not call the store.
pub trait AdmissionPolicy: Send + Sync {
    /// Whether to store it. The error names the rule that refuses it: the caller is told, and the store
    /// counts it. Asked once for each create and each writer, by any thread.
    fn admit(&self, new: &Newcomer<'_>) -> Result<(), &'static str>;

    /// So many bytes are written that no [`AdmissionPolicy::admit`] has named: objects that were kept when
    /// their segment was reused, and streams that did not say their length.
    fn written_beside(&self, _bytes: u64, _now: Duration) {}
}

struct Always;

impl AdmissionPolicy for Always {
    fn admit(&self, _new: &Newcomer<'_>) -> Result<(), &'static str> {
        Ok(())
    }
}

#[derive(Default)]
struct SecondHit(Seen);

impl AdmissionPolicy for SecondHit {
    fn admit(&self, new: &Newcomer<'_>) -> Result<(), &'static str> {
        if self.0.before(new.hash) { Ok(()) } else { Err("second_hit: first seen now") }
    }
}

struct WithinBudget(WriteBudget);

impl AdmissionPolicy for WithinBudget {
    fn admit(&self, new: &Newcomer<'_>) -> Result<(), &'static str> {
        let taken = self.0.take(new.bytes.unwrap_or(0), new.now);
        if taken { Ok(()) } else { Err("write_budget: spent for now") }
    }

    fn written_beside(&self, bytes: u64, now: Duration) {
        self.0.charge(bytes, now);
    }
}

struct SizeMax(u64);

impl AdmissionPolicy for SizeMax {
    fn admit(&self, new: &Newcomer<'_>) -> Result<(), &'static str> {
        let fits = new.bytes.is_none_or(|bytes| bytes <= self.0);
        if fits { Ok(()) } else { Err("size_max: larger than that") }
    }
}

/// Every question is another draw, so that what is created again and again comes in in the end.
struct Probability {
    percent: u8,
    seed: u64,
    draws: AtomicU64,
}

impl AdmissionPolicy for Probability {
    fn admit(&self, new: &Newcomer<'_>) -> Result<(), &'static str> {
        let draw = self.draws.fetch_add(1, Ordering::Relaxed);
        let seed = self.seed ^ new.hash;
        let number = twox_hash::XxHash3_64::oneshot_with_seed(seed, &draw.to_le_bytes());
        let drawn = number % 100 < u64::from(self.percent);
        if drawn { Ok(()) } else { Err("probability: not drawn this time") }
    }
}

/// The admission policy that a rule names; `seed` decides what is left to chance.
pub fn admission_policy(rule: Admission, seed: u64) -> Box<dyn AdmissionPolicy> {
    match rule {
        Admission::Always => Box::new(Always),
        Admission::SecondHit => Box::<SecondHit>::default(),
        Admission::WriteBudget { bytes_per_second } => {
            let bytes = bytes_per_second.saturating_mul(BUDGET_WINDOW.as_secs());
            Box::new(WithinBudget(WriteBudget::new(bytes, BUDGET_WINDOW)))
        }
        Admission::SizeMax { bytes } => Box::new(SizeMax(bytes)),
        Admission::Probability { percent } => {
            Box::new(Probability { percent, seed, draws: AtomicU64::new(0) })
        }
    }
}

/// The admission policy of a rule if it refuses anything.
pub(crate) fn unless_always(rule: Admission, seed: u64) -> Option<Arc<dyn AdmissionPolicy>> {
    (rule != Admission::Always).then(|| admission_policy(rule, seed).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newcomer(hash: u64, bytes: Option<u64>, now: Duration) -> Newcomer<'static> {
        let group = GroupId::new(1);
        Newcomer { key: b"key", hash, group, hint: Hint::Neutral, bytes, now }
    }

    fn admits(policy: &dyn AdmissionPolicy, hash: u64, bytes: Option<u64>) -> bool {
        policy.admit(&newcomer(hash, bytes, Duration::ZERO)).is_ok()
    }

    #[test]
    fn the_second_time_is_known_and_nothing_else() {
        let seen = Seen::default();
        assert!(seen.places.get().is_none(), "nothing before it is needed");
        assert_eq!((seen.before(1), seen.before(1), seen.before(1)), (false, true, true));
        // Two keys must meet in place and fingerprint to be taken for each other.
        let mut random = fastrand::Rng::with_seed(1);
        let others = (0..10 * PLACES).filter(|_| seen.before(random.u64(..))).count();
        assert!(others < 100, "{others}");
    }

    #[test]
    fn every_rule_admits_what_it_says() {
        let policy = |rule| admission_policy(rule, 7);
        assert!(admits(&*policy(Admission::Always), 1, Some(u64::MAX)));
        let second = policy(Admission::SecondHit);
        assert!(!admits(&*second, 1, None) && admits(&*second, 1, None));
        let small = policy(Admission::SizeMax { bytes: 10 });
        assert!(admits(&*small, 1, Some(10)) && !admits(&*small, 1, Some(11)));
        assert!(admits(&*small, 1, None), "nobody knows yet");
        for (percent, expected) in [(0, 0..=0), (25, 2300..=2700), (100, 10_000..=10_000)] {
            let policy = policy(Admission::Probability { percent });
            let admitted = (0..10_000).filter(|_| admits(&*policy, 1, None)).count();
            assert!(expected.contains(&admitted), "{percent}%: {admitted}");
        }
    }

    /// What is written beside counts; a stream of unknown length costs when its length is known.
    #[test]
    fn a_write_budget_counts_everything_that_is_written() {
        let policy = admission_policy(Admission::WriteBudget { bytes_per_second: 100 }, 7);
        assert!(admits(&*policy, 1, Some(900)) && admits(&*policy, 2, None));
        policy.written_beside(100, Duration::ZERO);
        assert!(!admits(&*policy, 3, None));
        let later = newcomer(3, Some(1), Duration::from_secs(1));
        assert!(policy.admit(&later).is_ok());
    }
}
