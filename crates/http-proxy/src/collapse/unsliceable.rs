//! Resources that cannot be fetched in slices: discovered once, remembered for a while.
//!
//! Invariant: bounded memory; after a collision, or after [`NOTE_MINUTES`] or
//! [`COOKIE_NOTE_MINUTES`], the origin is merely asked again. Threads: any.

use crate::collapse::key_notes::KeyNotes;

/// Number of slots for notes.
const SLOTS: usize = 4096;
/// Lifetime of a note: origins change.
const NOTE_MINUTES: u64 = 10;
/// Lifetime of a note on what cookies bring, at most: all who have one go without slices that one
/// of them could bring.
const COOKIE_NOTE_MINUTES: u64 = 2;
const MINUTES_MASK: u64 = 0x3fff_ffff;

/// Why slices of a resource are not requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsliceable {
    /// Its origin answers a range request with the whole: it is fetched once, and all ranges are
    /// cut from it.
    NoRanges,
    /// Its slices cannot be stored or joined: ranges are requested as clients send them.
    AsAsked,
    /// The same for requests with a cookie alone: the slices that they bring may be for who sent
    /// it. Those that are stored are for them, too.
    AsAskedWithCookie,
}

/// The notes.
#[derive(Debug)]
pub(crate) struct Notes {
    /// 30 bits of the minute in which each note expires, 2 of its kind.
    notes: KeyNotes,
}

impl Notes {
    pub(crate) fn new() -> Notes {
        Notes { notes: KeyNotes::new(SLOTS) }
    }

    /// The note on a resource, if there is a valid one for a request with or without a cookie.
    pub(crate) fn of(&self, primary: &[u8], with_cookie: bool, now_s: u64) -> Option<Unsliceable> {
        let note = self.notes.of(primary).get();
        let counts = u64::from(note >> 2) > now_s / 60;
        match note & 3 {
            1 if counts => Some(Unsliceable::NoRanges),
            2 if counts => Some(Unsliceable::AsAsked),
            3 if counts && with_cookie => Some(Unsliceable::AsAskedWithCookie),
            _ => None,
        }
    }

    pub(crate) fn note(&self, primary: &[u8], what: Unsliceable, now_s: u64) {
        let (kind, minutes) = match what {
            Unsliceable::NoRanges => (1, NOTE_MINUTES),
            Unsliceable::AsAsked => (2, NOTE_MINUTES),
            Unsliceable::AsAskedWithCookie => (3, COOKIE_NOTE_MINUTES),
        };
        let end = (now_s / 60 + minutes) & MINUTES_MASK;
        self.notes.of(primary).set((end as u32) << 2 | kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_count_for_a_while() {
        let notes = Notes::new();
        assert_eq!(notes.of(b"a", false, 6000), None);
        notes.note(b"a", Unsliceable::NoRanges, 6000);
        assert_eq!(notes.of(b"a", false, 6599), Some(Unsliceable::NoRanges));
        assert_eq!(notes.of(b"b", false, 6000), None);
        assert_eq!(notes.of(b"a", false, 6600), None);
        notes.note(b"a", Unsliceable::AsAsked, 6600);
        assert_eq!(notes.of(b"a", false, 6600), Some(Unsliceable::AsAsked));
        notes.note(b"a", Unsliceable::AsAskedWithCookie, 6600);
        assert_eq!(notes.of(b"a", true, 6719), Some(Unsliceable::AsAskedWithCookie));
        assert_eq!(notes.of(b"a", true, 6720), None);
        assert_eq!(notes.of(b"a", false, 6600), None);
    }
}
