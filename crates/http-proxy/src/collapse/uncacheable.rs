//! Resources whose responses cannot be shared: requests for them do not wait for each other.
//!
//! A note ends, as resources change: one on an error, a redirect or a missing page soon, since it
//! is often asked for until it is there; others when nobody has asked for them for a while. The
//! next request leads then, and finds out anew. Invariant: bounded memory; a collision only forgets
//! a note. Threads: any.

use http::StatusCode;
use tokio::time::Instant;

use crate::collapse::key_notes::KeyNotes;

/// As many as scanners that ask for what is not there seldom overwrite all of in [`LONG_MS`].
const SLOTS: usize = 1 << 16;
/// How long a note lasts on what is no success.
const SHORT_MS: u32 = 5000;
/// How long a note lasts that nobody needs.
const LONG_MS: u32 = 120_000;

/// The notes.
#[derive(Debug)]
pub(super) struct Uncacheable {
    /// The millisecond in which each note ends.
    ends: KeyNotes,
    begun: Instant,
}

impl Uncacheable {
    pub(super) fn new() -> Uncacheable {
        Uncacheable { ends: KeyNotes::new(SLOTS), begun: Instant::now() }
    }

    /// Whether there is a note. If it is a long one, this renews it.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        let end_ms = self.ends.of(key).get();
        if end_ms == 0 {
            return false;
        }
        // Of one that ended more is left, as what is below zero is a large number.
        let left_ms = end_ms.wrapping_sub(self.now_ms());
        if (SHORT_MS + 1..=LONG_MS / 2).contains(&left_ms) {
            self.note_for(key, LONG_MS);
        }
        (1..=LONG_MS).contains(&left_ms)
    }

    /// Notes that a response with this status could not be shared.
    pub(super) fn note(&self, key: &[u8], status: StatusCode) {
        self.note_for(key, if status.is_success() { LONG_MS } else { SHORT_MS });
    }

    pub(super) fn forget(&self, key: &[u8]) {
        let end = self.ends.of(key);
        if end.get() != 0 {
            end.set(0);
        }
    }

    fn note_for(&self, key: &[u8], ms: u32) {
        self.ends.of(key).set(self.now_ms().wrapping_add(ms).max(1));
    }

    fn now_ms(&self) -> u32 {
        self.begun.elapsed().as_millis() as u32
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn wait(ms: u32) {
        tokio::time::advance(Duration::from_millis(ms.into())).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_soon_be_there_is_looked_at_anew_soon() {
        for status in [301, 302, 404, 410] {
            let notes = Uncacheable::new();
            notes.note(b"k", StatusCode::from_u16(status).unwrap());
            assert!(!notes.has(b"other"));
            wait(SHORT_MS - 1).await;
            assert!(notes.has(b"k"), "{status}");
            wait(1).await;
            assert!(!notes.has(b"k"), "{status}: asking for it does not make it last");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn other_notes_last_while_they_are_needed() {
        let notes = Uncacheable::new();
        notes.note(b"k", StatusCode::OK);
        for _ in 0..10 {
            wait(LONG_MS / 2).await;
            assert!(notes.has(b"k"));
        }
        wait(LONG_MS).await;
        assert!(!notes.has(b"k"));
        notes.note(b"k", StatusCode::OK);
        notes.forget(b"k");
        assert!(!notes.has(b"k"));
    }
}
