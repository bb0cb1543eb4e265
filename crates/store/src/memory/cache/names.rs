//! The names by which queues know their runs: a place, and which of the runs that were tracked there is meant.
//!
//! A run that leaves a queue from the midst leaves its name there. Invariant: a queue has at most two names for
//! each place and some, so that what it takes does not grow with what happens. Threads: whoever holds the
//! queues' lock; slots are locked under it.

use std::collections::VecDeque;

use super::{Cache, Queues};
use crate::policy::residency::Queue;
use crate::sync::lock;

/// A queue may have so many names beyond two for each place.
const NAMES_SPARE: usize = 64;

impl Cache {
    /// Puts a run at the end of a queue. Old names lie there until they come to the front, or are too many.
    pub(super) fn line_up(&self, queues: &mut Queues, queue: Queue, first: u32, generation: u32) {
        let waiting = &mut queues.waiting[queue as usize];
        if waiting.len() >= 2 * self.pool.places() + NAMES_SPARE {
            self.clear_old_names(waiting);
        }
        waiting.push_back((first, generation));
    }

    pub(super) fn clear_old_names(&self, waiting: &mut VecDeque<(u32, u32)>) {
        waiting.retain(|(first, generation)| {
            let slot = lock(&self.slots[*first as usize]);
            slot.run.is_some() && slot.generation == *generation
        });
    }

    /// Names in each queue, right or old.
    #[cfg(test)]
    pub(crate) fn names(&self) -> [usize; 4] {
        lock(&self.queues).waiting.each_ref().map(VecDeque::len)
    }
}
