//! Residency: which objects stay in memory. Pure decisions on counts; no I/O, no clock, no locks.
//!
//! Memory is a set of runs (page frames, logs of single objects, large objects), each in one
//! queue. When memory is wanted, the policy names a queue; that queue's oldest run gives up its
//! memory, and the policy says for each object of it whether to copy it on.

mod balance;
mod density;
mod nibbles;
mod sketch;

use density::HitDensity;

/// Which objects stay in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResidencyPolicyKind {
    /// What is asked for most often for the memory it takes, lately, and what was asked for last, in shares
    /// that follow the use (default).
    #[default]
    HitDensity,
    /// Scan-resistant queues over page frames, after S3-FIFO.
    S3Fifo,
    /// What was not used goes first, oldest first: what was used since it came into memory, or since it was last
    /// looked at, gets another turn. LRU by runs of memory, not by single objects.
    Lru,
    /// First in, first out with a second chance.
    Clock,
}

impl ResidencyPolicyKind {
    /// All of them, the default first.
    pub const ALL: [ResidencyPolicyKind; 4] = [
        ResidencyPolicyKind::HitDensity,
        ResidencyPolicyKind::S3Fifo,
        ResidencyPolicyKind::Lru,
        ResidencyPolicyKind::Clock,
    ];
}

/// What the caller said of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hint {
    /// Let go first.
    Hated,
    /// Nothing said.
    #[default]
    Neutral,
    /// Keep as long as anything else can go.
    Loved,
}

/// The queues that runs wait in.
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
    /// What was said of the groups whose objects wait here.
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

/// Frames in each queue, by `Queue as usize`, and in all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// By queue.
    pub frames: [usize; 4],
    /// In all, those that hold nothing among them.
    pub total: usize,
}

/// What happens to an object whose run gives up its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is forgotten.
    Drop,
    /// It moves on to that queue.
    CopyTo(Queue),
}

/// How objects come into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Just written.
    Written,
    /// With the page of another that was asked for.
    WithPage,
    /// Asked for and read from disk by itself.
    Asked {
        /// Of its key.
        hash: u64,
        /// What it takes.
        bytes: u32,
    },
    /// In memory already, and what is said of its group has changed.
    Hinted,
}

/// An object whose run gives up its memory.
#[derive(Debug, Clone, Copy)]
pub struct Leaving {
    /// Of its key.
    pub hash: u64,
    /// What it takes.
    pub bytes: u32,
    /// Hits since it came or was last looked at.
    pub hits: u8,
    /// What [`ResidencyPolicy::epoch`] was then.
    pub epoch: u8,
}

/// Decides residency. What it remembers beyond queues and hit counts is its own and bounded.
pub trait ResidencyPolicy: Send + Sync {
    /// Queue of what comes.
    fn arrive(&self, hint: Hint, arrival: Arrival) -> Queue {
        match (hint, arrival) {
            (Hint::Hated, _) => Queue::Hated,
            (Hint::Loved, _) => Queue::Loved,
            (Hint::Neutral, Arrival::Hinted) => Queue::Protected,
            (Hint::Neutral, _) => Queue::Probation,
        }
    }

    /// Queue that gives up a run for a requester with this hint.
    fn victim(&self, usage: &Usage, requester: Hint) -> Option<Queue>;

    /// Fate of an object in a run of `queue`. Changes nothing: it may be asked more than once.
    fn fate(&self, queue: Queue, object: &Leaving) -> Fate;

    /// An object's fate has been carried out: from now on its hits are the policy's to remember. Told
    /// once whenever its run was looked at.
    fn take_hits(&self, _queue: Queue, _object: &Leaving) {}

    /// An object of that queue has left memory, after its hits were taken.
    fn left(&self, _queue: Queue, _object: &Leaving) {}

    /// Hits that an object goes on with that stayed in `queue` with so many.
    fn hits_after(&self, _queue: Queue, hits: u8) -> u8 {
        hits.saturating_sub(2).min(1)
    }

    /// A run of `queue` with so many bytes was looked at, and so many of them stay.
    fn looked_at(&self, _queue: Queue, _bytes: usize, _kept_bytes: usize) {}

    /// What came in with a page was asked for, for the first time.
    fn first_used(&self, _hash: u64) {}

    /// An object came by being written, for the first time. Told beside the `arrive` of its run.
    fn written(&self, _hash: u64) {}

    /// What was not in memory was asked for, and came with its page.
    fn read_with_page(&self, _hash: u64) {}

    /// So many objects are in memory. Told from time to time by a thread that nobody waits for: the
    /// moment for work that takes long.
    fn settle(&self, _objects: usize) {}

    /// So many keys were asked for so far. Told only to one of [`residency_policy_growing`], whose tables have room for
    /// them then.
    fn keys_known(&self, _keys: usize) {}

    /// Stamp for objects that come or stay now; wraps.
    fn epoch(&self) -> u8 {
        0
    }

    /// Memory that the policy itself takes.
    fn bytes(&self) -> usize {
        0
    }

    /// True if a run with any hit is put back whole instead of being taken apart.
    fn spares_whole_runs(&self) -> bool {
        false
    }
}

/// Unloved frames are never squeezed below this share by loved groups (1 in 256, at least 2), so
/// that reads of unloved objects always have somewhere to go.
const UNLOVED_SHARE_MIN: usize = 256;
const UNLOVED_FRAMES_MIN: usize = 2;
/// S3-FIFO: share of unloved memory that probation may keep (Yang et al. 2023: 10%).
const PROBATION_SHARE: usize = 10;

/// The choice between probation, which has more than its share or not, and protected, loved and hated
/// objects apart.
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

struct Clock;

impl ResidencyPolicy for Clock {
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
        Clock.arrive(hint, arrival)
    }

    fn victim(&self, usage: &Usage, requester: Hint) -> Option<Queue> {
        Clock.victim(usage, requester)
    }

    fn fate(&self, _queue: Queue, _object: &Leaving) -> Fate {
        Fate::Drop
    }

    fn spares_whole_runs(&self) -> bool {
        true
    }
}

/// The residency policy of a kind, for so much memory.
pub fn residency_policy(kind: ResidencyPolicyKind, memory_bytes: u64) -> Box<dyn ResidencyPolicy> {
    match kind {
        ResidencyPolicyKind::HitDensity => Box::new(HitDensity::new(memory_bytes)),
        ResidencyPolicyKind::S3Fifo => Box::new(S3Fifo),
        ResidencyPolicyKind::Lru => Box::new(Lru),
        ResidencyPolicyKind::Clock => Box::new(Clock),
    }
}

/// The same for who knows how many keys there are, and tells ([`ResidencyPolicy::keys_known`]): what the policy remembers
/// takes at most eleven bytes for each of them, or a quarter of a mebibyte, where that is less than its share of the memory. It decides
/// alike while that is no less, and else nearly.
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
        for kind in ResidencyPolicyKind::ALL {
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
