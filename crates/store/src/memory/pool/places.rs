//! Which places of the pool's mapping are free, how much of each occupies memory, and where a run goes.
//!
//! A place is room for one frame; a grain is what the system gives and takes back. A run has whole places
//! to itself, but occupies memory only for what it was taken for, up to the end of a grain: there are more
//! places than frames that may be in use at once, and what is counted and limited are grains.
//!
//! Invariants: a place in use occupies as many grains as its run has there; a free one may occupy some
//! from its last use, and is then named in `warm`; all together never occupy more than the limit, unless
//! so much is in use. Pure bookkeeping: memory is given back by the caller. Threads: the owner's lock.

use std::collections::VecDeque;
use std::ops::Range;

/// What a system page has, or a part of one: the least memory that is counted.
pub(super) const GRAIN_BYTES: usize = 4 << 10;
/// Free places that are looked at for one that fits.
const LOOKS_MAX: usize = 32;
/// Runs of more places are not found again as such.
const LENGTHS_MAX: usize = 32;

/// How many places a run takes, and how many grains of the last one.
#[derive(Clone, Copy)]
struct Shape {
    places: usize,
    tail: usize,
}

#[derive(Debug)]
pub(super) struct Places {
    grains_per_frame: usize,
    /// One flag a place: true = free.
    free: Vec<bool>,
    /// Grains of each place, from its start, that occupy memory.
    touched: Vec<u16>,
    touched_grains: usize,
    used_grains: usize,
    limit_grains: usize,
    /// Free places that occupy memory, by how many grains they do; the latest last. They are handed out
    /// first: what the system took back it must clear, which costs more than to write it. May name
    /// places that have been taken since.
    warm: Vec<VecDeque<u32>>,
    names: usize,
    /// First places of runs that came free, by how many places they had, from two; the latest last. May name
    /// what has been taken since.
    freed: Vec<VecDeque<u32>>,
    /// Where the next search starts.
    next: usize,
}

impl Places {
    /// Places for `frames` frames of so many grains.
    pub(super) fn new(frames: usize, grains_per_frame: usize) -> Places {
        // A run that is over half a frame is as long as it must be: of two places it may leave nearly one.
        let places = if grains_per_frame == 1 { frames } else { 2 * frames };
        Places {
            grains_per_frame,
            free: vec![true; places],
            touched: vec![0; places],
            touched_grains: 0,
            used_grains: 0,
            limit_grains: frames * grains_per_frame,
            warm: vec![VecDeque::new(); grains_per_frame + 1],
            names: 0,
            freed: vec![VecDeque::new(); LENGTHS_MAX + 1],
            next: 0,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.free.len()
    }

    pub(super) fn free(&self) -> &[bool] {
        &self.free
    }

    pub(super) fn used_grains(&self) -> usize {
        self.used_grains
    }

    pub(super) fn available_grains(&self) -> usize {
        self.limit_grains.saturating_sub(self.used_grains)
    }

    /// Sets how much may be in use, and gives back what is over it.
    pub(super) fn set_limit(
        &mut self,
        grains: usize,
        mut give_back: impl FnMut(usize, Range<usize>),
    ) {
        self.limit_grains = grains;
        self.trim(&mut give_back);
    }

    /// Takes consecutive places for so many grains; the first, or `None` if there is no such room.
    /// `give_back` is told place and grains of what the system gets back.
    pub(super) fn take(
        &mut self,
        grains: usize,
        mut give_back: impl FnMut(usize, Range<usize>),
    ) -> Option<usize> {
        if grains == 0 || grains > self.available_grains() {
            return None;
        }
        let places = grains.div_ceil(self.grains_per_frame);
        let shape = Shape { places, tail: grains - (places - 1) * self.grains_per_frame };
        let first = self.warm_run(shape, grains).or_else(|| self.any_run(places))?;
        for place in first..first + places {
            let is_last = place + 1 == first + places;
            let wanted = if is_last { shape.tail } else { self.grains_per_frame };
            let there = usize::from(self.touched[place]);
            if there > wanted {
                give_back(place, wanted..there);
            }
            self.touched_grains = self.touched_grains + wanted - there;
            self.touched[place] = wanted as u16;
            self.free[place] = false;
        }
        self.used_grains += grains;
        self.trim(&mut give_back);
        Some(first)
    }

    /// A run has come free.
    pub(super) fn release(
        &mut self,
        first: usize,
        grains: usize,
        mut give_back: impl FnMut(usize, Range<usize>),
    ) {
        let places = grains.div_ceil(self.grains_per_frame);
        if let Some(freed) = self.freed.get_mut(places).filter(|_| places > 1) {
            if freed.len() == self.free.len() / places {
                freed.pop_front();
            }
            freed.push_back(first as u32);
        }
        for place in first..first + places {
            self.free[place] = true;
            self.warm[usize::from(self.touched[place])].push_back(place as u32);
            self.names += 1;
        }
        self.used_grains -= grains;
        if self.names > 2 * self.free.len() {
            self.name_anew();
        }
        self.trim(&mut give_back);
    }

    fn is_warm(&self, place: usize, grains: usize) -> bool {
        self.free[place] && usize::from(self.touched[place]) == grains
    }

    /// A run of free places that occupy memory already: as much as is wanted if possible. Otherwise several
    /// places are taken with more or less in the last, and so is one place where memory is short.
    fn warm_run(&mut self, shape: Shape, grains: usize) -> Option<usize> {
        let full = self.grains_per_frame;
        if let Some(first) = self.look(shape, shape.tail) {
            return Some(first);
        }
        if shape.places > 1 {
            return self.freed_run(shape.places).or_else(|| self.look(shape, full));
        }
        if self.touched_grains + grains <= self.limit_grains {
            return None;
        }
        (shape.tail + 1..=full).chain((1..shape.tail).rev()).find_map(|k| self.look(shape, k))
    }

    /// The same among those whose last place occupies so many grains, the latest first.
    fn look(&mut self, shape: Shape, last: usize) -> Option<usize> {
        while let Some(&place) = self.warm[last].back()
            && !self.is_warm(place as usize, last)
        {
            self.warm[last].pop_back();
            self.names -= 1;
        }
        let ends = self.warm[last].iter().rev().take(LOOKS_MAX).map(|&place| place as usize);
        let full = self.grains_per_frame;
        let fits = |end: usize| {
            let first = (end + 1).checked_sub(shape.places)?;
            let whole = (first..end).all(|place| self.is_warm(place, full));
            (whole && self.is_warm(end, last)).then_some(first)
        };
        ends.into_iter().find_map(fits)
    }

    /// What a run of as many places left, whatever its last one occupies.
    fn freed_run(&mut self, places: usize) -> Option<usize> {
        for _ in 0..LOOKS_MAX {
            let first = self.freed.get_mut(places)?.pop_back()? as usize;
            let (whole, last) = (first..first + places - 1, first + places - 1);
            if whole.into_iter().all(|place| self.is_warm(place, self.grains_per_frame))
                && self.free[last]
            {
                return Some(first);
            }
        }
        None
    }

    fn any_run(&mut self, places: usize) -> Option<usize> {
        let total = self.free.len();
        let search = |from: usize, to: usize| {
            let mut length = 0;
            for place in from..to {
                length = if self.free[place] { length + 1 } else { 0 };
                if length == places {
                    return Some(place + 1 - places);
                }
            }
            None
        };
        let next = self.next.min(total);
        let first = search(next, total).or_else(|| search(0, (next + places).min(total)))?;
        self.next = first + places;
        Some(first)
    }

    /// Gives back what free places occupy while all occupy more than allowed, those first that have been
    /// free for longest, of the kind of which there are most.
    fn trim(&mut self, give_back: &mut impl FnMut(usize, Range<usize>)) {
        while self.touched_grains > self.limit_grains {
            let Some(most) = self.warm.iter_mut().max_by_key(|names| names.len()) else { return };
            let Some(place) = most.pop_front() else { return };
            self.names -= 1;
            let place = place as usize;
            let there = usize::from(self.touched[place]);
            if self.free[place] && there > 0 {
                give_back(place, 0..there);
                self.touched[place] = 0;
                self.touched_grains -= there;
            }
        }
    }

    /// Drops stale and double names.
    fn name_anew(&mut self) {
        self.warm.iter_mut().for_each(VecDeque::clear);
        for place in (0..self.free.len()).filter(|&place| self.free[place]) {
            if self.touched[place] > 0 {
                self.warm[usize::from(self.touched[place])].push_back(place as u32);
            }
        }
        self.names = self.warm.iter().map(VecDeque::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(place: usize, grains: Range<usize>) {
        panic!("grains {grains:?} of place {place} were given back");
    }

    /// Random takes and releases, with a map of who has what as oracle.
    #[test]
    fn runs_never_overlap_and_what_is_occupied_stays_within_the_limit() {
        for seed in 0..50 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (frames, per_frame) = (rng.usize(2..40), 1 << rng.usize(0..5));
            let mut places = Places::new(frames, per_frame);
            let mut occupied = vec![0; places.count()];
            let mut held: Vec<(usize, usize)> = Vec::new();
            for _ in 0..400 {
                let given = std::cell::RefCell::new(Vec::new());
                let give_back = |place: usize, grains: Range<usize>| {
                    given.borrow_mut().push((place, grains));
                };
                let mut taken = None;
                match rng.u8(0..5) {
                    0..3 => {
                        let grains = rng.usize(1..=3 * per_frame);
                        taken = places.take(grains, give_back).map(|first| (first, grains));
                    }
                    3 if !held.is_empty() => {
                        let (first, grains) = held.swap_remove(rng.usize(..held.len()));
                        places.release(first, grains, give_back);
                    }
                    _ => places.set_limit(rng.usize(1..=frames * per_frame), give_back),
                }
                for (place, grains) in given.into_inner() {
                    let in_use = held.iter().any(|&(first, length)| {
                        (first..first + length.div_ceil(per_frame)).contains(&place)
                    });
                    assert!(!in_use, "seed {seed}: {place} is in use");
                    assert_eq!(occupied[place], grains.end, "seed {seed}: up to its end");
                    occupied[place] = grains.start;
                }
                if let Some((first, grains)) = taken {
                    let end = first + grains.div_ceil(per_frame);
                    let meets = held.iter().any(|&(other, length)| {
                        first < other + length.div_ceil(per_frame) && other < end
                    });
                    assert!(!meets && end <= places.count(), "seed {seed}");
                    for (at, cell) in occupied[first..end].iter_mut().enumerate() {
                        *cell = (grains - at * per_frame).min(per_frame);
                    }
                    held.push((first, grains));
                }
                let used: usize = held.iter().map(|(_, grains)| grains).sum();
                let all: usize = occupied.iter().sum();
                assert_eq!((places.used_grains(), places.touched_grains), (used, all));
                assert!(all <= places.limit_grains.max(used), "seed {seed}: {all} grains");
            }
        }
    }

    #[test]
    fn what_occupies_memory_is_taken_again_as_it_is() {
        let mut places = Places::new(64, 16);
        places.set_limit(16 * 16, nothing);
        let shapes = [48, 17, 9, 16, 35];
        let mut held = shapes.map(|grains| places.take(grains, nothing).unwrap());
        let touched = places.touched_grains;
        for which in [0, 3, 2, 1, 2, 0, 4, 1, 3] {
            places.release(held[which], shapes[which], nothing);
            held[which] = places.take(shapes[which], nothing).unwrap();
        }
        assert_eq!(places.touched_grains, touched);
        // The same number of places serves another length.
        places.release(held[4], 35, nothing);
        held[4] = places.take(38, nothing).unwrap();
        assert_eq!(places.touched_grains, touched + 3);
        // What a longer run left serves shorter ones, too.
        places.release(held[0], 48, nothing);
        places.take(16, nothing).unwrap();
        places.take(32, nothing).unwrap();
        assert_eq!(places.touched_grains, touched + 3);
    }

    #[test]
    fn where_memory_is_short_one_place_is_taken_with_more_or_less_than_is_wanted() {
        let mut places = Places::new(2, 16);
        let (a, b) = (places.take(16, nothing).unwrap(), places.take(16, nothing).unwrap());
        places.release(a, 16, nothing);
        let mut given = Vec::new();
        assert_eq!(places.take(9, |place, grains| given.push((place, grains))), Some(a));
        assert_eq!(given, [(a, 9..16)]);
        places.release(b, 16, nothing);
        assert_eq!(places.take(16, nothing), Some(b));
        assert_eq!(places.take(8, nothing), None, "seven grains are left");
    }

    #[test]
    fn what_has_been_free_for_longest_is_given_back_first() {
        let mut places = Places::new(8, 16);
        let (old, new) = (places.take(16, nothing).unwrap(), places.take(16, nothing).unwrap());
        places.release(old, 16, nothing);
        places.release(new, 16, nothing);
        let mut given = Vec::new();
        places.set_limit(16, |place, grains| given.push((place, grains)));
        assert_eq!(given, [(old, 0..16)]);
    }
}
