//! Residency: which objects stay in memory. Pure decisions on counts; no I/O, no clock, no locks.
//!
//! Memory is a set of runs (page frames, logs of single objects, large objects), each in one
//! queue. When memory is wanted, the policy names a queue; that queue's oldest run gives up its
//! memory, and the policy says for each object of it whether to copy it on.

use crate::config::ResidencyPolicyKind;

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

/// Decides residency. Implementations are stateless; all state is in the queues and hit counts.
pub trait ResidencyPolicy: Send + Sync {
    /// Queue of a new arrival; `seen_before` = it was read from disk earlier in its life.
    fn arrive(&self, hint: Hint, seen_before: bool) -> Queue {
        match hint {
            Hint::Hated => Queue::Hated,
            Hint::Loved => Queue::Loved,
            Hint::Neutral if seen_before => Queue::Protected,
            Hint::Neutral => Queue::Probation,
        }
    }

    /// Queue that gives up a run for a requester with this hint.
    fn victim(&self, usage: &Usage, requester: Hint) -> Option<Queue>;

    /// Fate of an object with `hits` since it was last looked at.
    fn fate(&self, queue: Queue, hits: u8) -> Fate;

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
        let small_is_over = probation * PROBATION_SHARE > probation + protected;
        let unloved = if protected == 0 || (probation > 0 && small_is_over) {
            Queue::Probation
        } else {
            Queue::Protected
        };
        unloved_victim(usage, requester, unloved)
    }

    fn fate(&self, queue: Queue, hits: u8) -> Fate {
        match queue {
            Queue::Hated => Fate::Drop,
            _ if hits == 0 => Fate::Drop,
            Queue::Probation => Fate::CopyTo(Queue::Protected),
            other => Fate::CopyTo(other),
        }
    }
}

struct Clock;

impl ResidencyPolicy for Clock {
    fn arrive(&self, hint: Hint, _seen_before: bool) -> Queue {
        match hint {
            Hint::Hated => Queue::Hated,
            Hint::Loved => Queue::Loved,
            Hint::Neutral => Queue::Probation,
        }
    }

    fn victim(&self, usage: &Usage, requester: Hint) -> Option<Queue> {
        unloved_victim(usage, requester, Queue::Probation)
    }

    fn fate(&self, queue: Queue, hits: u8) -> Fate {
        if hits == 0 || queue == Queue::Hated { Fate::Drop } else { Fate::CopyTo(queue) }
    }
}

struct Lru;

impl ResidencyPolicy for Lru {
    fn arrive(&self, hint: Hint, seen_before: bool) -> Queue {
        Clock.arrive(hint, seen_before)
    }

    fn victim(&self, usage: &Usage, requester: Hint) -> Option<Queue> {
        Clock.victim(usage, requester)
    }

    fn fate(&self, _queue: Queue, _hits: u8) -> Fate {
        Fate::Drop
    }

    fn spares_whole_runs(&self) -> bool {
        true
    }
}

/// The residency policy of a kind.
pub fn residency_policy(kind: ResidencyPolicyKind) -> Box<dyn ResidencyPolicy> {
    match kind {
        ResidencyPolicyKind::S3Fifo => Box::new(S3Fifo),
        ResidencyPolicyKind::Lru => Box::new(Lru),
        ResidencyPolicyKind::Clock => Box::new(Clock),
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
        for kind in
            [ResidencyPolicyKind::S3Fifo, ResidencyPolicyKind::Lru, ResidencyPolicyKind::Clock]
        {
            let policy = residency_policy(kind);
            assert_eq!(policy.victim(&usage([1, 5, 0, 90]), Hint::Loved), Some(Queue::Hated));
            assert_eq!(policy.victim(&usage([0, 5, 0, 90]), Hint::Loved), Some(Queue::Probation));
            assert_eq!(policy.victim(&usage([0, 0, 0, 90]), Hint::Neutral), Some(Queue::Loved));
            assert_eq!(policy.victim(&usage([0, 1, 0, 90]), Hint::Neutral), Some(Queue::Probation));
            assert_eq!(policy.victim(&usage([0, 0, 0, 0]), Hint::Neutral), None);
        }
    }

    #[test]
    fn s3_fifo_promotes_what_was_hit_and_squeezes_probation_first() {
        let policy = residency_policy(ResidencyPolicyKind::S3Fifo);
        assert_eq!(policy.fate(Queue::Probation, 1), Fate::CopyTo(Queue::Protected));
        assert_eq!(policy.fate(Queue::Probation, 0), Fate::Drop);
        assert_eq!(policy.fate(Queue::Protected, 0), Fate::Drop);
        assert_eq!(policy.victim(&usage([0, 20, 80, 0]), Hint::Neutral), Some(Queue::Probation));
        assert_eq!(policy.victim(&usage([0, 5, 95, 0]), Hint::Neutral), Some(Queue::Protected));
    }
}
