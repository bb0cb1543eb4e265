//! The sealed segments, in the order in which they are reused.
//!
//! One that is taken out of turn leaves a gap, since to close it would move all that came later.
//! Invariant: at most half of the places are gaps. Threads: the holder of the ring's lock.

use std::collections::VecDeque;

use crate::space::SegmentId;

/// No segment has this number.
const GAP: SegmentId = SegmentId(u32::MAX);

#[derive(Default)]
pub(super) struct Sealed {
    places: VecDeque<SegmentId>,
    gaps: usize,
    /// Where the next look for a nearly empty one begins.
    look_at: usize,
}

impl Sealed {
    pub(super) fn push(&mut self, segment: SegmentId) {
        self.places.push_back(segment);
    }

    /// The segments with their places, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, SegmentId)> {
        self.places.iter().copied().enumerate().filter(|(_, id)| *id != GAP)
    }

    /// The next `most` places, or all if there are fewer; the oldest of them first. The following
    /// look goes on behind them.
    pub(super) fn next_places(&mut self, most: usize) -> impl Iterator<Item = (usize, SegmentId)> {
        let all = self.places.len();
        let begin = if self.look_at < all && all > most { self.look_at } else { 0 };
        let end = all.min(begin.saturating_add(most));
        self.look_at = end;
        let places = self.places.range(begin..end).copied();
        places.enumerate().map(move |(n, id)| (begin + n, id)).filter(|(_, id)| *id != GAP)
    }

    /// Takes the segment at this place.
    pub(super) fn take(&mut self, at: usize) -> Option<SegmentId> {
        let segment = std::mem::replace(self.places.get_mut(at)?, GAP);
        self.gaps += usize::from(segment != GAP);
        while self.places.front() == Some(&GAP) {
            self.places.pop_front();
            self.gaps -= 1;
            self.look_at = self.look_at.saturating_sub(1);
        }
        if 2 * self.gaps > self.places.len() {
            self.places.retain(|id| *id != GAP);
            (self.gaps, self.look_at) = (0, 0);
        }
        (segment != GAP).then_some(segment)
    }

    /// Takes this segment, if it is here.
    pub(super) fn take_segment(&mut self, segment: SegmentId) {
        let at = self.places.iter().position(|id| *id == segment);
        if let Some(at) = at {
            self.take(at);
        }
    }
}

impl Extend<SegmentId> for Sealed {
    fn extend<I: IntoIterator<Item = SegmentId>>(&mut self, segments: I) {
        self.places.extend(segments);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(segments: u32) -> Sealed {
        let mut sealed = Sealed::default();
        sealed.extend((0..segments).map(SegmentId));
        sealed
    }

    fn ids(sealed: &Sealed) -> Vec<u32> {
        sealed.iter().map(|(_, id)| id.0).collect()
    }

    #[test]
    fn what_is_taken_out_of_turn_leaves_the_others_in_order() {
        let mut sealed = sealed(10);
        assert_eq!(sealed.take(3), Some(SegmentId(3)));
        assert_eq!(sealed.take(3), None);
        sealed.take_segment(SegmentId(5));
        sealed.take_segment(SegmentId(77));
        assert_eq!(ids(&sealed), [0, 1, 2, 4, 6, 7, 8, 9]);
        sealed.push(SegmentId(3));
        for segment in [0, 1, 2, 4] {
            let (at, _) = sealed.iter().next().unwrap();
            assert_eq!(sealed.take(at), Some(SegmentId(segment)));
        }
        assert_eq!(ids(&sealed), [6, 7, 8, 9, 3]);
        assert_eq!((sealed.places.len(), sealed.gaps), (5, 0), "gaps at the front are gone");
    }

    #[test]
    fn gaps_are_closed_once_they_are_most_of_it() {
        let mut sealed = sealed(1000);
        for segment in 1..999 {
            sealed.take_segment(SegmentId(segment));
            assert!(2 * sealed.gaps <= sealed.places.len());
        }
        assert_eq!(ids(&sealed), [0, 999]);
    }

    #[test]
    fn looks_go_round_and_each_is_short() {
        let mut sealed = sealed(10);
        let mut look =
            |most| -> Vec<u32> { sealed.next_places(most).map(|(_, id)| id.0).collect() };
        assert_eq!(look(4), [0, 1, 2, 3]);
        assert_eq!(look(4), [4, 5, 6, 7]);
        assert_eq!(look(4), [8, 9]);
        assert_eq!(look(4), [0, 1, 2, 3]);
        assert_eq!(look(10).len(), 10, "where all are few, all are looked at");
        assert_eq!(look(10).len(), 10);
    }
}
