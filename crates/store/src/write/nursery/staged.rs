//! What waits in the nursery, and what the flusher reports of it.
//!
//! Invariant: an object lies, complete, in the run that its `Staged` holds. Threads: an object is
//! one thread's, or lies under the nursery's lock.

use std::time::Duration;

use crate::memory::pool::Run;
use crate::memory::resident::{FoundMut, Record};
use crate::sync::mpsc::Sender;
use crate::types::{GroupId, SegmentLife};

/// An object that waits.
pub(crate) struct Staged {
    pub(crate) run: Run,
    pub(crate) offset: u32,
    pub(crate) stored_bytes: u32,
    /// The object was kept from a reused segment.
    pub(crate) reinserted: bool,
    /// Initial frequency in the index.
    pub(crate) freq: u8,
    /// The index has an older state of the object until this one is written.
    pub(crate) beside_older: bool,
    /// It waits longer than others of its group, and is not written with them.
    pub(crate) may_wait: bool,
    pub(crate) due: Due,
    /// The round in which it came, modulo 2^32; a new round begins at each drain. Set by the
    /// nursery.
    pub(crate) round: u32,
    /// Value of `handed_in` when it came, or was moved; set by the nursery when it comes.
    pub(crate) came_at: u64,
}

// With small objects there are many of them.
const _: () = assert!(size_of::<Staged>() <= 48);

impl Staged {
    /// The object's record, which says what is not repeated here.
    pub(crate) fn record(&self) -> Record<'_> {
        Record::at(&self.run, self.offset)
    }

    /// Whether this is what an entry of the resident table shows.
    pub(crate) fn is_entry(&self, entry: &FoundMut<'_>) -> bool {
        entry.is_at(self.run.first(), self.offset)
    }
}

/// Time on the monotonic clock, in nanoseconds, at which an object is written even if it fills no
/// page, or, for an extent, even if it is alone in the write.
#[derive(Clone, Copy)]
pub(crate) struct Due(u64);

impl Due {
    /// The object waits as long as it may.
    pub(crate) const NEVER: Due = Due(u64::MAX);

    pub(crate) fn at(time: Duration) -> Due {
        Due(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(super) fn time(self) -> Option<Duration> {
        (self.0 != u64::MAX).then(|| Duration::from_nanos(self.0))
    }
}

/// A record too large for a page: written from where it lies.
pub(crate) struct StagedExtent {
    pub(crate) staged: Staged,
    /// For a part of a streamed object: sends the writer the part's location.
    pub(crate) part: Option<PartSender>,
    pub(crate) group: GroupId,
}

pub(crate) type PartSender = Sender<Result<(crate::index::Location, SegmentLife), String>>;

/// Objects that the flusher is done with.
#[derive(Default)]
pub(crate) struct Finished {
    pub(super) objects: u64,
    pub(super) bytes: u64,
    /// Bytes of those that may wait.
    pub(super) may_wait_bytes: u64,
    /// Objects by round, usually one or two rounds.
    pub(super) rounds: Vec<(u32, u64)>,
}

impl Finished {
    pub(crate) fn add(&mut self, staged: &Staged) {
        self.objects += 1;
        self.bytes += u64::from(staged.stored_bytes);
        self.may_wait_bytes += if staged.may_wait { u64::from(staged.stored_bytes) } else { 0 };
        match self.rounds.iter_mut().find(|(round, _)| *round == staged.round) {
            Some((_, count)) => *count += 1,
            None => self.rounds.push((staged.round, 1)),
        }
    }

    pub(crate) fn of<'a>(all: impl IntoIterator<Item = &'a Staged>) -> Finished {
        let mut done = Finished::default();
        all.into_iter().for_each(|staged| done.add(staged));
        done
    }

    pub(crate) fn objects(&self) -> u64 {
        self.objects
    }
}
