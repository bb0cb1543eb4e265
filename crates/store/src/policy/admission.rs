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
#[non_exhaustive]
pub enum Admission {
    /// Every object (default).
    #[default]
    Always,
    /// An object that was offered before. About one key is remembered for each sixteen objects that
    /// the index has room for, 65,536 at least and 16 million at most, and no more than a 32nd of
    /// the memory holds.
    SecondHit,
    /// Every object until the budget is spent, then none until time has paid for the bytes written:
    /// of values, and of the keys, metadata and headers beside them. Objects kept when a segment is
    /// reused count too, and so does what came of a stream that was given up; room that pages leave
    /// empty does not. A store that was just opened has a full budget. See
    /// [`Admission::write_rate`] for one in bytes per second.
    WriteBudget {
        /// Bytes in each window.
        bytes: u64,
        /// The time over which they are averaged, not zero: what is not used in one adds up to no
        /// more than one. With a day, as the endurance of flash is given in, all of its bytes may
        /// be written at once.
        window: Duration,
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

const PLACES_MIN: usize = 1 << 16;
const PLACES_MAX: usize = 1 << 24;
/// Objects of the store to each slot that remembers a key.
const OBJECTS_PER_PLACE: u64 = 16;
/// At most one part in this many of the memory remembers keys.
const MEMORY_SHARE: u64 = 32;

impl Admission {
    /// A write budget of `bytes_per_second`, averaged over ten seconds.
    #[must_use]
    pub const fn write_rate(bytes_per_second: u64) -> Admission {
        let window = Duration::from_secs(10);
        Admission::WriteBudget { bytes: bytes_per_second.saturating_mul(window.as_secs()), window }
    }
}

/// The key hashes seen before: a table of 32-bit fingerprints with one slot for each hash. A key
/// whose slot another key took counts as new again. The table is allocated at its first use, and
/// takes 256 KiB if nothing else is said.
///
/// ```
/// let seen = damelo::policy::Seen::default();
/// assert!(!seen.before(17));
/// assert!(seen.before(17));
/// ```
#[derive(Debug)]
pub struct Seen {
    places: OnceLock<Box<[AtomicU32]>>,
    count: usize,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen::for_store(0, 0)
    }
}

impl Seen {
    /// For a store of `objects` objects and `memory_bytes` of memory: one slot for 16 objects, as
    /// far as that takes no more than a 32nd of the memory, and at least 65,536 slots (256 KiB).
    pub fn for_store(objects: u64, memory_bytes: u64) -> Seen {
        let wanted = (objects / OBJECTS_PER_PLACE).next_power_of_two();
        let affordable = memory_bytes / MEMORY_SHARE / size_of::<AtomicU32>() as u64;
        // The greatest power of two that is.
        let affordable = 1 << affordable.max(1).ilog2();
        let count = wanted.min(affordable) as usize;
        Seen { places: OnceLock::new(), count: count.clamp(PLACES_MIN, PLACES_MAX) }
    }

    /// Returns whether this hash was seen before, and records it.
    pub fn before(&self, hash: u64) -> bool {
        let new = || (0..self.count).map(|_| AtomicU32::new(0)).collect();
        let places = self.places.get_or_init(new);
        // 0 marks an empty slot.
        let print = (hash >> 32) as u32 | 1;
        places[hash as usize % places.len()].swap(print, Ordering::Relaxed) == print
    }

    /// Memory that it takes now, in bytes.
    pub fn bytes(&self) -> usize {
        self.places.get().map_or(0, |places| size_of_val(&**places))
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
    /// The metadata that it comes with.
    pub metadata: &'a [u8],
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

    /// Memory that the policy's own state takes, in bytes; it counts as the store's.
    fn bytes(&self) -> usize {
        0
    }
}

struct Always;

impl AdmissionPolicy for Always {
    fn admit(&self, _new: &Newcomer<'_>) -> Result<(), &'static str> {
        Ok(())
    }
}

struct SecondHit(Seen);

impl AdmissionPolicy for SecondHit {
    fn admit(&self, new: &Newcomer<'_>) -> Result<(), &'static str> {
        if self.0.before(new.hash) { Ok(()) } else { Err("second_hit: first seen now") }
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
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

/// The admission policy that a rule names, for a store whose index has `index_slots` and whose
/// memory for data has `memory_bytes`; `seed` seeds the random draws.
pub fn admission_policy(
    rule: Admission,
    seed: u64,
    index_slots: u64,
    memory_bytes: u64,
) -> Box<dyn AdmissionPolicy> {
    match rule {
        Admission::Always => Box::new(Always),
        Admission::SecondHit => Box::new(SecondHit(Seen::for_store(index_slots, memory_bytes))),
        Admission::WriteBudget { bytes, window } => {
            Box::new(WithinBudget(WriteBudget::new(bytes, window)))
        }
        Admission::SizeMax { bytes } => Box::new(SizeMax(bytes)),
        Admission::Probability { percent } => {
            Box::new(Probability { percent, seed, draws: AtomicU64::new(0) })
        }
    }
}

/// As `admission_policy`, or `None` for `Always`.
pub(crate) fn unless_always(
    rule: Admission,
    seed: u64,
    index_slots: u64,
    memory_bytes: u64,
) -> Option<Arc<dyn AdmissionPolicy>> {
    let is_asked = rule != Admission::Always;
    is_asked.then(|| admission_policy(rule, seed, index_slots, memory_bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newcomer(hash: u64, bytes: Option<u64>, now: Duration) -> Newcomer<'static> {
        let group = GroupId::new(1);
        Newcomer { key: b"key", hash, group, hint: Hint::Neutral, bytes, metadata: b"", now }
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
        let others = (0..10 * PLACES_MIN).filter(|_| seen.before(random.u64(..))).count();
        assert!(others < 100, "{others}");
    }

    #[test]
    fn a_large_store_remembers_more_keys_as_far_as_its_memory_goes() {
        let count = |objects, memory_bytes| Seen::for_store(objects, memory_bytes).count;
        assert_eq!(Seen::default().count, 1 << 16);
        assert_eq!(count(1 << 10, 1 << 30), 1 << 16);
        assert_eq!(count(5 << 20, 1 << 30), 1 << 19, "one for sixteen, rounded up");
        assert_eq!(count(1 << 30, 64 << 30), 1 << 24);
        assert_eq!(count(1 << 30, 100 << 20), 1 << 19, "2 MiB, where a 32nd is more than 3");
        assert_eq!(count(1 << 30, 1 << 20), 1 << 16);
        let seen = Seen::for_store(1 << 21, 1 << 30);
        assert_eq!(seen.bytes(), 0);
        let mut random = fastrand::Rng::with_seed(1);
        let keys: Vec<u64> = (0..1 << 15).map(|_| random.u64(..)).collect();
        assert!(!keys.iter().any(|key| seen.before(*key)));
        let known = keys.iter().filter(|key| seen.before(**key)).count();
        assert!(known > keys.len() * 3 / 4, "{known} of {}", keys.len());
        assert_eq!(seen.bytes(), 4 << 17);
    }

    #[test]
    fn every_rule_admits_what_it_says() {
        let policy = |rule| admission_policy(rule, 7, 0, 0);
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
        let policy = admission_policy(Admission::write_rate(100), 7, 0, 0);
        assert!(admits(&*policy, 1, Some(900)) && admits(&*policy, 2, None));
        policy.written_beside(100, Duration::ZERO);
        assert!(!admits(&*policy, 3, None));
        let later = newcomer(3, Some(1), Duration::from_secs(1));
        assert!(policy.admit(&later).is_ok());
    }

    #[test]
    fn a_write_budget_may_be_one_of_a_day() {
        let day = Duration::from_secs(24 * 3600);
        let policy =
            admission_policy(Admission::WriteBudget { bytes: 200 << 30, window: day }, 7, 0, 0);
        let admits = |bytes, now| policy.admit(&newcomer(1, Some(bytes), now)).is_ok();
        assert!((0..200).all(|_| admits(1 << 30, Duration::ZERO)), "all of it at once");
        assert!(!admits(1, Duration::ZERO));
        assert!(admits(25 << 30, day / 8) && !admits(1, day / 8), "an eighth is back");
    }
}
