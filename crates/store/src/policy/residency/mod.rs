//! Residency policies: which objects stay in memory. Pure decisions on counts: no I/O, no clock.
//!
//! Memory is a set of runs (page frames, logs of single objects, large objects), each in one queue.
//! To free memory, the policy names a queue, and the oldest run of that queue is evicted: the
//! policy decides for each object in it whether to copy it elsewhere or drop it.

mod balance;
mod density;
mod nibbles;
mod sketch;

use density::HitDensity;

/// Which objects stay in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ResidencyPolicyKind {
    /// Keeps the objects with the most recent requests per byte of memory, and the most recently
    /// used ones, in shares that adapt to the workload (default).
    #[default]
    HitDensity,
    /// Scan-resistant queues over page frames, after S3-FIFO.
    S3Fifo,
    /// LRU over runs of memory, not single objects: a run with no hit since it came in or was last
    /// examined is evicted, oldest first; any other goes to the back of the queue. The first
    /// request for an object that came with the page of another is no hit: the page was read for
    /// that.
    Lru,
    /// FIFO with a second chance: an object that was hit since it was last examined is copied to
    /// the back of the queue. Of three hits or more one counts for the next time as well.
    Clock,
}

impl ResidencyPolicyKind {
    /// All kinds, the default first.
    pub const ALL: &'static [ResidencyPolicyKind] = &[
        ResidencyPolicyKind::HitDensity,
        ResidencyPolicyKind::S3Fifo,
        ResidencyPolicyKind::Lru,
        ResidencyPolicyKind::Clock,
    ];

    /// Its name where it is chosen by one.
    pub const fn name(self) -> &'static str {
        match self {
            ResidencyPolicyKind::HitDensity => "hit-density",
            ResidencyPolicyKind::S3Fifo => "s3-fifo",
            ResidencyPolicyKind::Lru => "lru",
            ResidencyPolicyKind::Clock => "clock",
        }
    }
}

/// The caller's hint for a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hint {
    /// Evict first.
    Hated,
    /// No hint given.
    #[default]
    Neutral,
    /// Keep as long as anything else can be evicted.
    Loved,
}

/// The queues in which runs wait for eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Objects of hated groups.
    Hated = 0,
    /// Objects seen once: S3-FIFO's small queue.
    Probation = 1,
    /// Objects seen again: S3-FIFO's main queue.
    Protected = 2,
    /// Objects of loved groups.
    Loved = 3,
}

impl Queue {
    /// The hint of the groups whose objects wait in this queue.
    pub(crate) fn hint(self) -> Hint {
        match self {
            Queue::Hated => Hint::Hated,
            Queue::Probation | Queue::Protected => Hint::Neutral,
            Queue::Loved => Hint::Loved,
        }
    }
}

/// All queues.
pub const QUEUES: [Queue; 4] = [Queue::Hated, Queue::Probation, Queue::Protected, Queue::Loved];

/// Frames in each queue, by `Queue as usize`, and in total.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// Frames in each queue.
    pub frames: [usize; 4],
    /// Frames in total, free ones included.
    pub total: usize,
}

/// The fate of an object whose run is evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The object leaves memory.
    Drop,
    /// The object is copied to that queue.
    CopyTo(Queue),
}

/// How an object comes into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Just written.
    Written,
    /// Came along with the page of a requested object.
    WithPage,
    /// Requested, and read from disk by itself.
    Asked {
        /// Hash of the object's key.
        hash: u64,
        /// Bytes that the object takes.
        bytes: u32,
    },
    /// Was in memory already, and its group's hint has changed.
    Hinted,
}

/// An object whose run is examined for eviction.
#[derive(Debug, Clone, Copy)]
pub struct Leaving {
    /// Hash of the object's key.
    pub hash: u64,
    /// Bytes that the object takes.
    pub bytes: u32,
    /// Hits since the object came in or was last examined.
    pub hits: u8,
    /// The value of [`ResidencyPolicy::epoch`] at that time.
    pub epoch: u8,
}

/// Decides residency. A policy may keep bounded state of its own beyond queues and hit counts.
pub trait ResidencyPolicy: Send + Sync {
    /// The queue in which an arriving object is placed.
    fn arrive(&self, hint: Hint, arrival: Arrival) -> Queue {
        match (hint, arrival) {
            (Hint::Hated, _) => Queue::Hated,
            (Hint::Loved, _) => Queue::Loved,
            (Hint::Neutral, Arrival::Hinted) => Queue::Protected,
            (Hint::Neutral, _) => Queue::Probation,
        }
    }

    /// The queue to evict a run from, for a requester with this hint.
    fn victim(&self, usage: &Usage, requester: Hint) -> Option<Queue>;

    /// The fate of an object in a run of `queue`. Has no side effects: it may be called more than
    /// once.
    fn fate(&self, queue: Queue, object: &Leaving) -> Fate;

    /// The object's fate has been carried out: its hits are handed over to the policy. Called once
    /// each time the object's run is examined.
    fn take_hits(&self, _queue: Queue, _object: &Leaving) {}

    /// An object of that queue has left memory, after [`ResidencyPolicy::take_hits`].
    fn left(&self, _queue: Queue, _object: &Leaving) {}

    /// The hit count that an object restarts with after staying in `queue` with `hits`.
    fn hits_after(&self, _queue: Queue, hits: u8) -> u8 {
        hits.saturating_sub(2).min(1)
    }

    /// A run of `queue` was examined: its size, and how many of its bytes stay.
    fn looked_at(&self, _queue: Queue, _bytes: usize, _kept_bytes: usize) {}

    /// An object that came along with a page is requested for the first time.
    fn first_used(&self, _hash: u64) {}

    /// A new object was written. Called in addition to `arrive` for its run.
    fn written(&self, _hash: u64) {}

    /// An object that was not in memory is requested, and its page is read for it.
    fn read_with_page(&self, _hash: u64) {}

    /// Reports the number of objects in memory. Called periodically on a background thread, so that
    /// long work belongs here.
    fn settle(&self, _objects: usize) {}

    /// Reports the number of distinct keys requested so far. Called only on policies made by
    /// [`residency_policy_growing`], whose tables grow with it.
    fn keys_known(&self, _keys: usize) {}

    /// Stamp for objects that come in or stay now; wraps.
    fn epoch(&self) -> u8 {
        0
    }

    /// Memory that the policy's own state takes, in bytes.
    fn bytes(&self) -> usize {
        0
    }

    /// True if a run with any hit goes to the back of its queue whole, instead of object by object.
    fn spares_whole_runs(&self) -> bool {
        false
    }
}

/// Lower bound of the frames of unloved objects beside loved ones (1 in 256, at least 2), so that
/// reads of unloved objects always find memory.
const UNLOVED_SHARE_MIN: usize = 256;
const UNLOVED_FRAMES_MIN: usize = 2;
/// S3-FIFO: one part in this many of the unloved memory is probation's (Yang et al. 2023: 10%).
const PROBATION_SHARE: usize = 10;

/// Chooses the queue to evict from: hated first, then probation or protected, then loved.
/// `probation_is_over` says that probation exceeds its share.
pub(super) fn probation_or_protected(
    usage: &Usage,
    requester: Hint,
    probation_is_over: bool,
) -> Option<Queue> {
    let [_, probation, protected, _] = usage.frames;
    let unloved = if protected == 0 || (probation > 0 && probation_is_over) {
        Queue::Probation
    } else {
        Queue::Protected
    };
    unloved_victim(usage, requester, unloved)
}

fn loved_aware(usage: &Usage, unloved: Queue) -> Option<Queue> {
    let [hated, probation, protected, loved] = usage.frames;
    if hated > 0 {
        return Some(Queue::Hated);
    }
    let floor = (usage.total / UNLOVED_SHARE_MIN).max(UNLOVED_FRAMES_MIN);
    if probation + protected > floor || (loved == 0 && probation + protected > 0) {
        return Some(unloved);
    }
    (loved > 0).then_some(Queue::Loved)
}

fn unloved_victim(usage: &Usage, requester: Hint, unloved: Queue) -> Option<Queue> {
    let some_unloved = usage.frames[1] + usage.frames[2] > 0;
    if requester != Hint::Loved && usage.frames[0] == 0 && some_unloved {
        return Some(unloved);
    }
    loved_aware(usage, unloved)
}

struct S3Fifo;

impl ResidencyPolicy for S3Fifo {
    fn victim(&self, usage: &Usage, requester: Hint) -> Option<Queue> {
        let [_, probation, protected, _] = usage.frames;
        let is_over = probation * PROBATION_SHARE > probation + protected;
        probation_or_protected(usage, requester, is_over)
    }

    fn fate(&self, queue: Queue, object: &Leaving) -> Fate {
        match queue {
            Queue::Hated => Fate::Drop,
            _ if object.hits == 0 => Fate::Drop,
            Queue::Probation => Fate::CopyTo(Queue::Protected),
            other => Fate::CopyTo(other),
        }
    }
}

struct ClockPolicy;

impl ResidencyPolicy for ClockPolicy {
    fn arrive(&self, hint: Hint, _arrival: Arrival) -> Queue {
        match hint {
            Hint::Hated => Queue::Hated,
            Hint::Loved => Queue::Loved,
            Hint::Neutral => Queue::Probation,
        }
    }

    fn victim(&self, usage: &Usage, requester: Hint) -> Option<Queue> {
        unloved_victim(usage, requester, Queue::Probation)
    }

    fn fate(&self, queue: Queue, object: &Leaving) -> Fate {
        if object.hits == 0 || queue == Queue::Hated { Fate::Drop } else { Fate::CopyTo(queue) }
    }
}

struct Lru;

impl ResidencyPolicy for Lru {
    fn arrive(&self, hint: Hint, arrival: Arrival) -> Queue {
        ClockPolicy.arrive(hint, arrival)
    }

    fn victim(&self, usage: &Usage, requester: Hint) -> Option<Queue> {
        ClockPolicy.victim(usage, requester)
    }

    fn fate(&self, _queue: Queue, _object: &Leaving) -> Fate {
        Fate::Drop
    }

    fn spares_whole_runs(&self) -> bool {
        true
    }
}

/// The residency policy of a kind, for this much memory.
pub fn residency_policy(kind: ResidencyPolicyKind, memory_bytes: u64) -> Box<dyn ResidencyPolicy> {
    match kind {
        ResidencyPolicyKind::HitDensity => Box::new(HitDensity::new(memory_bytes)),
        ResidencyPolicyKind::S3Fifo => Box::new(S3Fifo),
        ResidencyPolicyKind::Lru => Box::new(Lru),
        ResidencyPolicyKind::Clock => Box::new(ClockPolicy),
    }
}

/// The residency policy for a caller that reports the number of keys
/// ([`ResidencyPolicy::keys_known`]). Its tables take at most eleven bytes per key, or 256 KiB,
/// where that is less than in [`residency_policy`]. Its decisions are the same while the tables
/// have the same size, and nearly the same otherwise.
pub fn residency_policy_growing(
    kind: ResidencyPolicyKind,
    memory_bytes: u64,
) -> Box<dyn ResidencyPolicy> {
    match kind {
        ResidencyPolicyKind::HitDensity => Box::new(HitDensity::growing(memory_bytes)),
        other => residency_policy(other, memory_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(frames: [usize; 4]) -> Usage {
        Usage { frames, total: frames.iter().sum() }
    }

    #[test]
    fn hated_goes_first_and_loved_last() {
        for &kind in ResidencyPolicyKind::ALL {
            let policy = residency_policy(kind, 1 << 20);
            assert_eq!(policy.victim(&usage([1, 5, 0, 90]), Hint::Loved), Some(Queue::Hated));
            assert_eq!(policy.victim(&usage([0, 5, 0, 90]), Hint::Loved), Some(Queue::Probation));
            assert_eq!(policy.victim(&usage([0, 0, 0, 90]), Hint::Neutral), Some(Queue::Loved));
            assert_eq!(policy.victim(&usage([0, 1, 0, 90]), Hint::Neutral), Some(Queue::Probation));
            assert_eq!(policy.victim(&usage([0, 0, 0, 0]), Hint::Neutral), None);
        }
    }

    #[test]
    fn s3_fifo_promotes_what_was_hit_and_squeezes_probation_first() {
        let policy = residency_policy(ResidencyPolicyKind::S3Fifo, 1 << 20);
        let with = |hits| Leaving { hash: 1, bytes: 64, hits, epoch: 0 };
        assert_eq!(policy.fate(Queue::Probation, &with(1)), Fate::CopyTo(Queue::Protected));
        assert_eq!(policy.fate(Queue::Probation, &with(0)), Fate::Drop);
        assert_eq!(policy.fate(Queue::Protected, &with(0)), Fate::Drop);
        assert_eq!(policy.victim(&usage([0, 20, 80, 0]), Hint::Neutral), Some(Queue::Probation));
        assert_eq!(policy.victim(&usage([0, 5, 95, 0]), Hint::Neutral), Some(Queue::Protected));
    }
}
