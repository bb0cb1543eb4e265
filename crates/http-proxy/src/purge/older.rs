//! Marks of URLs, tags and groups that have become old: of each the key and the generation of its
//! latest purge, nothing else.
//!
//! Invariants: in the order of the keys, each once; a mark never covers less than before, so two
//! of one key become the later. Pure, no threads.

use bytes::BufMut;

use super::marks::{oldest_part, take_u32, take_u64};

/// Most marks kept: 2 MiB.
const OLDER_MAX: usize = 131_072;
/// One in so many is given up at once: as few as that does not cost too often.
const GIVEN_UP_PART: usize = 16;

/// The key of an old mark, in which its kind and its hash are mixed, and its generation.
pub(super) type Old = (u64, u64);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Older(Vec<Old>);

impl Older {
    /// The generation of a key's mark; 0 for none.
    pub(super) fn get(&self, key: u64) -> u64 {
        let at = self.0.binary_search_by_key(&key, |old| old.0);
        at.ok().and_then(|at| self.0.get(at)).map_or(0, |old| old.1)
    }

    /// The generation of the newest mark; 0 if there is none.
    pub(super) fn newest(&self) -> u64 {
        self.generations().max().unwrap_or(0)
    }

    /// Takes marks in. Of more than [`OLDER_MAX`] then, it gives up and returns the oldest.
    #[must_use]
    pub(super) fn take_in(&mut self, marks: impl Iterator<Item = Old>) -> Vec<Old> {
        self.0.extend(marks);
        // Of one key the later generation comes first, and stays. What was there is in order: a
        // stable sort finds that, and merges.
        self.0.sort_by_key(|(key, generation)| (*key, u64::MAX - generation));
        self.0.dedup_by_key(|old| old.0);
        let mut given_up = Vec::new();
        while self.0.len() > OLDER_MAX {
            let limit = oldest_part(self.generations(), GIVEN_UP_PART);
            given_up.extend(self.0.extract_if(.., |(_, generation)| *generation <= limit));
        }
        given_up
    }

    fn generations(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|old| old.1)
    }

    pub(super) fn clear(&mut self) {
        self.0 = Vec::new();
    }

    pub(super) fn encode_into(&self, bytes: &mut Vec<u8>) {
        bytes.put_u32_le(self.0.len() as u32);
        for (key, generation) in &self.0 {
            bytes.put_u64_le(*key);
            bytes.put_u64_le(*generation);
        }
    }

    /// Decodes the output of [`Older::encode_into`]; `None` for any other bytes.
    pub(super) fn decode(bytes: &mut &[u8]) -> Option<Older> {
        let count = take_u32(bytes)? as usize;
        let marks: Option<Vec<Old>> = (count <= OLDER_MAX)
            .then_some(0..count)?
            .map(|_| Some((take_u64(bytes)?, take_u64(bytes)?)))
            .collect();
        let older = Older(marks?);
        older.0.is_sorted_by(|one, next| one.0 < next.0).then_some(older)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_of_two_marks_stays_and_the_oldest_go() {
        let mut older = Older::default();
        assert!(older.take_in([(7, 3), (1, 9), (7, 5)].into_iter()).is_empty());
        assert!(older.take_in([(7, 4), (2, 6)].into_iter()).is_empty());
        assert_eq!([1, 2, 3, 7].map(|key| older.get(key)), [9, 6, 0, 5]);
        assert_eq!(older.newest(), 9);
        let many = (0..OLDER_MAX as u64).map(|key| (key + 100, key + 100));
        let gone = older.take_in(many);
        assert!(gone.contains(&(7, 5)) && gone.contains(&(100, 100)), "the oldest");
        assert!(gone.len() <= OLDER_MAX / GIVEN_UP_PART + 1, "{}", gone.len());
        assert_eq!(older.get(OLDER_MAX as u64 + 99), OLDER_MAX as u64 + 99);
        let mut bytes = Vec::new();
        older.encode_into(&mut bytes);
        assert_eq!(Older::decode(&mut bytes.as_slice()), Some(older));
    }
}
