//! Which parts of the pool's mapping are backed by the system's large pages.
//!
//! A block is the part of the mapping that one large page backs. A device transfers physically
//! contiguous memory at once, and other memory piece by piece; frames in small pages are never
//! contiguous (docs/decisions/0019). A block that occupies no memory can be made large as a whole;
//! all of it then occupies memory and counts. It becomes small when a part of it is returned or
//! taken on its own, and stays so until it occupies no memory.
//!
//! Invariants: all of a large block occupies memory; no part of a fresh one does. Pure bookkeeping:
//! the caller carries out the requests to the system. Threads: under the owner's lock.

use std::ops::Range;

/// Bytes of a large page on most systems that have them. On a system with another length, large
/// pages bring no gain.
pub(super) const BLOCK_BYTES: usize = 2 << 20;
/// With fewer blocks than this, large pages are not used: in a small memory they would count too
/// many unused bytes.
const BLOCKS_MIN: usize = 16;
/// Each block that differs from its neighbours is a separate mapping to the system, which allows a
/// process 65,530 by default. Memory beyond this many blocks stays in small pages.
const BLOCKS_MAX: usize = 16 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Fresh,
    Small,
    Large,
}

/// The blocks of a mapping; empty for a small one.
#[derive(Debug)]
pub(super) struct Blocks {
    places_each: usize,
    states: Vec<State>,
    /// For each block, the number of its places that occupy memory.
    occupied: Vec<u16>,
    large: usize,
}

impl Blocks {
    /// Blocks for `places` places of `frame_bytes` each, the first at the start of a block.
    pub(super) fn new(places: usize, frame_bytes: usize) -> Blocks {
        let places_each = BLOCK_BYTES / frame_bytes.min(BLOCK_BYTES);
        let is_dealt = places_each > 1 && BLOCK_BYTES.is_multiple_of(frame_bytes);
        let count = if is_dealt { places / places_each } else { 0 };
        let count = if count < BLOCKS_MIN { 0 } else { count.min(BLOCKS_MAX) };
        let (states, occupied) = (vec![State::Fresh; count], vec![0; count]);
        Blocks { places_each, states, occupied, large: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// Number of blocks backed by large pages.
    pub(super) fn large(&self) -> usize {
        self.large
    }

    fn state(&self, place: usize) -> State {
        self.states.get(place / self.places_each).copied().unwrap_or(State::Small)
    }

    pub(super) fn is_large(&self, place: usize) -> bool {
        self.state(place) == State::Large
    }

    /// Places of each block.
    pub(super) fn places_each(&self) -> usize {
        self.places_each
    }

    /// The places of the first block of which none occupies memory.
    pub(super) fn first_fresh(&self) -> Option<Range<usize>> {
        let index = self.states.iter().position(|state| *state == State::Fresh)?;
        Some(index * self.places_each..(index + 1) * self.places_each)
    }

    /// The places of the block around `place`, if none of them occupies memory.
    pub(super) fn fresh_around(&self, place: usize) -> Option<Range<usize>> {
        let index = place / self.places_each;
        (self.state(place) == State::Fresh)
            .then(|| index * self.places_each..(index + 1) * self.places_each)
    }

    /// The block of a place has been made large.
    pub(super) fn made_large(&mut self, place: usize) {
        let index = place / self.places_each;
        self.states[index] = State::Large;
        self.occupied[index] = self.places_each as u16;
        self.large += 1;
    }

    /// A place starts or stops occupying memory.
    pub(super) fn occupied(&mut self, place: usize, is_occupied: bool) {
        let index = place / self.places_each;
        let Some(count) = self.occupied.get_mut(index) else { return };
        *count = if is_occupied { *count + 1 } else { *count - 1 };
        if *count == 0 {
            self.states[index] = State::Fresh;
        }
    }

    /// A place's memory changes on its own, so its block becomes small. Returns the places of the
    /// block if it was large.
    pub(super) fn made_small(&mut self, place: usize) -> Option<Range<usize>> {
        let index = place / self.places_each;
        let state = self.states.get_mut(index)?;
        let was_large = std::mem::replace(state, State::Small) == State::Large;
        self.large -= usize::from(was_large);
        was_large.then(|| index * self.places_each..(index + 1) * self.places_each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: usize = BLOCK_BYTES / 4;

    #[test]
    fn a_block_is_large_until_a_part_of_it_changes_and_can_be_again_when_nothing_is_left() {
        let mut blocks = Blocks::new(64, FRAME);
        assert_eq!(blocks.fresh_around(6), Some(4..8));
        blocks.made_large(6);
        assert!(blocks.is_large(4) && !blocks.is_large(8));
        assert_eq!((blocks.fresh_around(5), blocks.large()), (None, 1));
        assert_eq!(blocks.made_small(7), Some(4..8));
        assert_eq!((blocks.made_small(7), blocks.fresh_around(7), blocks.large()), (None, None, 0));
        (4..8).for_each(|place| blocks.occupied(place, false));
        assert_eq!(blocks.fresh_around(7), Some(4..8));
        assert_eq!((blocks.made_small(9), blocks.fresh_around(9)), (None, None));
        blocks.occupied(9, true);
        blocks.occupied(9, false);
        assert_eq!(blocks.fresh_around(9), Some(8..12));
    }

    #[test]
    fn a_small_mapping_has_none_and_what_is_behind_the_last_is_small() {
        let mut blocks = Blocks::new(63, FRAME);
        assert!(blocks.is_empty() && blocks.fresh_around(3).is_none());
        assert_eq!(blocks.made_small(3), None);
        let blocks = Blocks::new(66, FRAME);
        assert!(blocks.fresh_around(63).is_some() && blocks.fresh_around(64).is_none());
        assert!(Blocks::new(1 << 10, 48 << 10).is_empty(), "blocks begin with a frame");
    }
}
