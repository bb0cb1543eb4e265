//! Resources whose validation has just failed, and is not tried again at once.
//!
//! Invariant: bounded memory; a collision only ends a pause early. Threads: any.

use tokio::time::Instant;

use crate::collapse::key_notes::{KeyNotes, Note};

const SLOTS: usize = 4096;
const PAUSE_MS: u32 = 1000;

/// The pauses.
#[derive(Debug)]
pub(crate) struct Pauses {
    /// The millisecond in which each pause ends.
    ends: KeyNotes,
    begun: Instant,
}

impl Pauses {
    pub(crate) fn new() -> Pauses {
        Pauses { ends: KeyNotes::new(SLOTS), begun: Instant::now() }
    }

    pub(crate) fn of(&self, key: &[u8]) -> Pause<'_> {
        Pause { all: self, end: self.ends.of(key) }
    }

    fn now_ms(&self) -> u32 {
        self.begun.elapsed().as_millis() as u32
    }
}

/// The pause of one resource, which may be on.
#[derive(Clone, Copy)]
pub(crate) struct Pause<'p> {
    all: &'p Pauses,
    end: Note<'p>,
}

impl Pause<'_> {
    pub(crate) fn begin(self) {
        self.end.set(self.all.now_ms().wrapping_add(PAUSE_MS));
    }

    pub(crate) fn is_on(self) -> bool {
        let end_ms = self.end.get();
        // Of one that ended more is left, as what is below zero is a large number.
        let left_ms = end_ms.wrapping_sub(self.all.now_ms());
        end_ms != 0 && (1..=PAUSE_MS).contains(&left_ms)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_a_second_long_and_for_one_key() {
        let pauses = Pauses::new();
        assert!(!pauses.of(b"a").is_on());
        pauses.of(b"a").begin();
        tokio::time::advance(Duration::from_millis(999)).await;
        assert!(pauses.of(b"a").is_on() && !pauses.of(b"b").is_on());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!pauses.of(b"a").is_on());
    }
}
