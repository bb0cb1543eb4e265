//! Queue elements: a run is named by its first place and its slot's generation.
//!
//! A run that leaves a queue from the middle leaves a stale element behind. Invariant: a queue has
//! at most two elements for each place plus a constant, so its memory is bounded. Threads: under
//! the queues' lock; slots are locked under it.

use std::collections::VecDeque;

use super::{Cache, Queues};
use crate::policy::residency::Queue;
use crate::sync::lock;

/// Elements a queue may have beyond two for each place.
const NAMES_SPARE: usize = 64;

impl Cache {
    /// Puts a run at the back of a queue. Stale elements stay until they come to the front or
    /// become too many.
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

    /// Number of elements in each queue, stale ones included.
    #[cfg(test)]
    pub(crate) fn names(&self) -> [usize; 4] {
        lock(&self.queues).waiting.each_ref().map(VecDeque::len)
    }
}
