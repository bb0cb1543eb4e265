//! Admission policies: which new objects are stored, and the state these policies keep.
//!
//! Invariants: no I/O, no clock of their own, no locks. Threads: any. Two creates at once may lose
//! an update, and so admit or refuse one object wrongly.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::residency::Hint;
use super::write_budget::WriteBudget;
use crate::types::GroupId;

/// Which new objects are written to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Admission {
    /// Every object (default).
    #[default]
    Always,
    /// An object that was offered before; the last 65,536 keys or so are remembered.
    SecondHit,
    /// Every object until the budget is spent, then none until time has paid for the bytes written:
    /// of values, and of the keys, metadata and headers beside them. Objects kept when a segment is
    /// reused count too, and so does what came of a stream that was given up; room that pages leave
    /// empty does not. A store that was just opened has a full budget.
    WriteBudget {
        /// Bytes per second, averaged over ten seconds.
        bytes_per_second: u64,
    },
    /// Objects up to this size, and streams that do not declare their length.
    SizeMax {
        /// Length of the value in bytes.
        bytes: u64,
    },
    /// Each create is admitted with this probability, drawn anew each time: an object that is
    /// created often is admitted in the end.
    Probability {
        /// Probability in percent.
        percent: u8,
    },
}

const PLACES: usize = 1 << 16;
/// Window over which a write budget is averaged.
const BUDGET_WINDOW: Duration = Duration::from_secs(10);

/// The key hashes seen before: a table of 32-bit fingerprints with one slot for each hash. A key
/// whose slot another key took counts as new again. The table is allocated at its first use and
/// takes 256 KiB.
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
    /// Returns whether this hash was seen before, and records it.
    pub fn before(&self, hash: u64) -> bool {
        let places = self.places.get_or_init(|| (0..PLACES).map(|_| AtomicU32::new(0)).collect());
        // 0 marks an empty slot.
        let print = (hash >> 32) as u32 | 1;
        places[hash as usize % PLACES].swap(print, Ordering::Relaxed) == print
    }
}

/// An object offered for storing.
#[derive(Debug, Clone, Copy)]
pub struct Newcomer<'a> {
    /// The object's key.
    pub key: &'a [u8],
    /// Hash of the key; differs between stores.
    pub hash: u64,
    /// The object's group.
    pub group: GroupId,
    /// The caller's hint for the group.
    pub hint: Hint,
    /// Length of the value; `None` for a stream that has not declared it.
    pub bytes: Option<u64>,
    /// The store's clock, counted from some fixed moment.
    pub now: Duration,
}

/// Decides which objects are stored. A policy may keep bounded state of its own; it does no I/O,
/// reads no clock, and must not call the store.
pub trait AdmissionPolicy: Send + Sync {
    /// Whether to store the object. Called once for each create and each writer, on any thread.
    ///
    /// # Errors
    /// The name of the rule that refuses it; the caller receives the name, and the store counts it.
    fn admit(&self, new: &Newcomer<'_>) -> Result<(), &'static str>;

    /// Reports bytes written that no [`AdmissionPolicy::admit`] call declared: objects kept when
    /// their segment was reused, and streams that did not declare their length, committed or not.
    fn written_beside(&self, _bytes: u64, _now: Duration) {}

    /// Reports what the records of an object that was admitted have beside its value: header, key,
    /// metadata and checksums, and of one in parts their list.
    fn written_with(&self, _bytes: u64, _now: Duration) {}
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

    fn written_with(&self, bytes: u64, now: Duration) {
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

/// Each create is a new draw, so an object that is created again and again is admitted in the end.
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

/// The admission policy that a rule names; `seed` seeds the random draws.
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

/// The admission policy of a rule, or `None` for `Always`.
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
        // Two keys are mistaken for each other only if both slot and fingerprint agree.
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

    /// Bytes written beside count; a stream of unknown length is charged once its length is known.
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
