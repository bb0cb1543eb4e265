//! Bookkeeping of the pool's places: which are free, how much memory each occupies, and where a run
//! is placed.
//!
//! A place is address space for one frame. A grain is the unit in which the system provides and
//! takes back memory. A run has whole places to itself but occupies memory only for its own length,
//! rounded up to grains; so there are more places than frames that may be in use, and limits count
//! grains.
//!
//! Invariants:
//! - A place in use occupies exactly the grains of its run. A free place may still occupy grains
//!   from its last use, and is then listed in `warm`.
//! - All places together occupy no more than the limit (plus a small slack where there are large
//!   pages), unless that much is in use.
//! - Runs of whole frames are placed in large pages and in the lower half first, other runs
//!   elsewhere and in the upper half first. Large pages are split for the latter only where nothing
//!   else is left.
//! - The places of a block that is set aside are neither free nor in use. All of their memory
//!   counts as occupied; what the slack does not cover is not available.
//!
//! Pure bookkeeping: the caller carries out the advice to the system. Threads: under the owner's
//! lock.

use std::collections::VecDeque;
use std::ops::Range;

use super::blocks::Blocks;

/// Bytes of a grain, the least memory that is counted: a system page, or a part of one.
pub(super) const GRAIN_BYTES: usize = 4 << 10;
/// A run of at most one part in this many of a frame takes a whole frame. The number of places
/// suffices for the most runs of longer lengths that may be in use.
pub(super) const WHOLE_SHARE: usize = 3;
/// Most free places that one search examines.
const LOOKS_MAX: usize = 32;
/// Freed runs of more places than this are not remembered.
const LENGTHS_MAX: usize = 32;
/// Where there are large pages, occupied memory may exceed the limit by one part in this many
/// before anything is returned or split: memory is usually taken again soon.
const SLACK_SHARE: usize = 64;
/// This many free places in large pages weigh as much as one elsewhere when memory is returned.
const LARGE_SHARE: usize = 64;

/// While memory is full, a block is made large only once runs of this many times its memory have
/// been taken since the last one: other memory is returned for it, and all of it is cleared. With
/// mixed lengths blocks are taken apart again, and without a limit a quarter of all memory taken
/// was cleared for large pages that did not last.
const WAY_SHARE: usize = 32;

/// A request to the system, carried out by the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Advice {
    /// Take these grains of a place back.
    GiveBack(usize, Range<usize>),
    /// Back these places, which no run has used yet, with large pages.
    LargePages(Range<usize>),
    /// Back these places with small pages from now on.
    SmallPages(Range<usize>),
}

/// Shape of a run: its number of places, and the grains of its last place.
#[derive(Clone, Copy)]
struct Shape {
    places: usize,
    tail: usize,
}

#[derive(Debug)]
pub(super) struct Places {
    grains_per_frame: usize,
    /// One flag for each place: true = free.
    free: Vec<bool>,
    /// Grains of each place, from its start, that occupy memory.
    touched: Vec<u16>,
    touched_grains: usize,
    used_grains: usize,
    limit_grains: usize,
    /// Free places that occupy memory, in one queue for each number of grains occupied and one, the
    /// last, for places in large pages (see `kind`); the most recently freed are at the back. These
    /// places are handed out first: memory that the system took back must be cleared again, which
    /// costs more than writing it. An element is stale if its place was taken or changed its kind
    /// since.
    warm: Vec<VecDeque<u32>>,
    names: usize,
    /// First places of freed runs by their number of places, from two on; the most recently freed
    /// are at the back. An element is stale if its places were taken since.
    freed: Vec<VecDeque<u32>>,
    /// Where the next searches start: for runs of whole frames, and for other runs.
    next: [usize; 2],
    /// Which parts of the mapping lie in large pages.
    blocks: Blocks,
    enlarging: Enlarging,
    /// The block that is set aside to be made large.
    aside: Option<Range<usize>>,
}

/// When blocks are made large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Enlarging {
    /// When a run of whole frames is taken there.
    AtOnce,
    /// By a thread in the background, one after the other, while runs would lie there.
    Behind {
        /// A run of whole frames has been placed elsewhere since the last one.
        is_wanted: bool,
        /// Grains taken since free memory last made way for one.
        taken_grains: usize,
    },
}

impl Places {
    /// Places for `frames` frames of `grains_per_frame` grains each.
    pub(super) fn new(frames: usize, grains_per_frame: usize) -> Places {
        // A run of just over a third of a frame has a place of its own and leaves nearly two thirds
        // of it unused, so three places for each frame suffice.
        let places = frames * grains_per_frame.min(WHOLE_SHARE);
        Places {
            grains_per_frame,
            free: vec![true; places],
            touched: vec![0; places],
            touched_grains: 0,
            used_grains: 0,
            limit_grains: frames * grains_per_frame,
            warm: vec![VecDeque::new(); grains_per_frame + 2],
            names: 0,
            freed: vec![VecDeque::new(); LENGTHS_MAX + 1],
            next: [0, places / 2],
            blocks: Blocks::new(places, grains_per_frame * GRAIN_BYTES),
            enlarging: Enlarging::AtOnce,
            aside: None,
        }
    }

    /// As [`Places::new`], where blocks are made large by [`Places::set_aside`] and
    /// [`Places::enlarged`] alone.
    pub(super) fn enlarged_behind(frames: usize, grains_per_frame: usize) -> Places {
        let enlarging = Enlarging::Behind { is_wanted: false, taken_grains: 0 };
        Places { enlarging, ..Places::new(frames, grains_per_frame) }
    }

    /// Number of blocks backed by large pages.
    pub(super) fn large_blocks(&self) -> usize {
        self.blocks.large()
    }

    /// Sets the grains of a place that occupy memory.
    fn set_touched(&mut self, place: usize, grains: usize, advise: &mut impl FnMut(Advice)) {
        let there = usize::from(self.touched[place]);
        if there == grains {
            return;
        }
        if let Some(places) = self.blocks.made_small(place) {
            places.clone().filter(|&other| other != place).for_each(|other| self.name(other));
            advise(Advice::SmallPages(places));
        }
        if there > grains {
            advise(Advice::GiveBack(place, grains..there));
        }
        self.touched_grains = self.touched_grains + grains - there;
        self.touched[place] = grains as u16;
        if there == 0 || grains == 0 {
            self.blocks.occupied(place, there == 0);
        }
    }

    /// Backs the blocks that a run of whole frames touches with large pages, as far as the blocks
    /// are unused and the limit has room for them.
    fn enlarge(&mut self, run: Range<usize>, advise: &mut impl FnMut(Advice)) {
        for place in run.clone() {
            let Some(places) = self.blocks.fresh_around(place) else { continue };
            if self.touched_grains + places.len() * self.grains_per_frame > self.limit_grains {
                return;
            }
            self.blocks.made_large(place);
            self.touched_grains += places.len() * self.grains_per_frame;
            // In reverse, since the last one listed is taken first: neighbours are handed out
            // together.
            for place in places.clone().rev() {
                self.touched[place] = self.grains_per_frame as u16;
                if !run.contains(&place) {
                    self.name(place);
                }
            }
            advise(Advice::LargePages(places));
        }
    }

    /// Sets a block aside that is to be made large, if runs of whole frames would lie there and the
    /// limit has room for it; free memory makes way. The caller makes it large, touches it, and
    /// calls [`Places::enlarged`].
    pub(super) fn set_aside(&mut self, mut advise: impl FnMut(Advice)) -> Option<Range<usize>> {
        let (grains, most) =
            (self.blocks.places_each() * self.grains_per_frame, self.limit_grains + self.slack());
        let Enlarging::Behind { is_wanted: true, taken_grains } = &mut self.enlarging else {
            return None;
        };
        if self.aside.is_some() || self.used_grains + grains > most {
            return None;
        }
        let places = self.blocks.first_fresh()?;
        if self.touched_grains + grains > most {
            if *taken_grains < WAY_SHARE * grains {
                return None;
            }
            *taken_grains = 0;
            self.trim_to(most - grains, &mut advise);
        }
        if self.touched_grains + grains > most {
            return None;
        }
        self.blocks.made_large(places.start);
        self.touched_grains += grains;
        for place in places.clone() {
            self.touched[place] = self.grains_per_frame as u16;
            self.free[place] = false;
        }
        self.aside = Some(places.clone());
        Some(places)
    }

    /// The block that was set aside is large: its places are free.
    pub(super) fn enlarged(&mut self, mut advise: impl FnMut(Advice)) {
        let places = self.aside.take().expect("a block was set aside");
        // In reverse, since the last one listed is taken first: neighbours are handed out together.
        for place in places.rev() {
            self.free[place] = true;
            self.name(place);
        }
        if let Enlarging::Behind { is_wanted, .. } = &mut self.enlarging {
            *is_wanted = false;
        }
        // The limit may have become lower meanwhile.
        self.trim(&mut advise);
    }

    /// Whether there are blocks that can be made large.
    pub(super) fn has_blocks(&self) -> bool {
        !self.blocks.is_empty()
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
        let aside = self.aside.as_ref().map_or(0, |places| places.len() * self.grains_per_frame);
        let held_back = aside.saturating_sub(self.slack());
        self.limit_grains.saturating_sub(self.used_grains + held_back)
    }

    /// Sets the limit and returns memory beyond it.
    pub(super) fn set_limit(&mut self, grains: usize, mut advise: impl FnMut(Advice)) {
        self.limit_grains = grains;
        self.trim(&mut advise);
    }

    /// Takes consecutive places for `grains`; returns the first, or `None` if there is no room.
    pub(super) fn take(&mut self, grains: usize, mut advise: impl FnMut(Advice)) -> Option<usize> {
        if grains == 0 || grains > self.available_grains() {
            return None;
        }
        let places = grains.div_ceil(self.grains_per_frame);
        let shape = Shape { places, tail: grains - (places - 1) * self.grains_per_frame };
        let first = self.warm_run(shape, grains).or_else(|| self.any_run(shape))?;
        let (mut run, is_whole) = (first..first + places, shape.tail == self.grains_per_frame);
        match &mut self.enlarging {
            Enlarging::AtOnce if is_whole => self.enlarge(run, &mut advise),
            Enlarging::AtOnce => {}
            Enlarging::Behind { is_wanted, taken_grains } => {
                *is_wanted |= is_whole && run.any(|place| !self.blocks.is_large(place));
                *taken_grains = taken_grains.saturating_add(grains);
            }
        }
        for place in first..first + places {
            let is_last = place + 1 == first + places;
            let wanted = if is_last { shape.tail } else { self.grains_per_frame };
            self.set_touched(place, wanted, &mut advise);
            self.free[place] = false;
        }
        self.used_grains += grains;
        self.trim(&mut advise);
        Some(first)
    }

    /// Frees a run.
    pub(super) fn release(&mut self, first: usize, grains: usize, mut advise: impl FnMut(Advice)) {
        let places = grains.div_ceil(self.grains_per_frame);
        if let Some(freed) = self.freed.get_mut(places).filter(|_| places > 1) {
            if freed.len() == self.free.len() / places {
                freed.pop_front();
            }
            freed.push_back(first as u32);
        }
        for place in first..first + places {
            self.free[place] = true;
            self.name(place);
        }
        self.used_grains -= grains;
        if self.names > 2 * self.free.len() {
            self.name_anew();
        }
        self.trim(&mut advise);
    }

    /// Cuts a run of one place from `from` grains to `to`.
    pub(super) fn shorten(
        &mut self,
        first: usize,
        from: usize,
        to: usize,
        mut advise: impl FnMut(Advice),
    ) {
        assert!(0 < to && to <= from && from <= self.grains_per_frame, "a run of one place");
        self.set_touched(first, to, &mut advise);
        self.used_grains -= from - to;
    }

    /// The kind of places in large pages.
    fn large(&self) -> usize {
        self.grains_per_frame + 1
    }

    /// A place's kind: the number of grains that occupy memory, or `large()` in a large page.
    fn kind(&self, place: usize) -> usize {
        if self.blocks.is_large(place) { self.large() } else { usize::from(self.touched[place]) }
    }

    /// Lists a place in `warm` if it is free and occupies memory.
    fn name(&mut self, place: usize) {
        let kind = self.kind(place);
        if self.free[place] && kind > 0 {
            self.warm[kind].push_back(place as u32);
            self.names += 1;
        }
    }

    fn is_whole(&self, place: usize) -> bool {
        self.free[place] && usize::from(self.touched[place]) == self.grains_per_frame
    }

    /// A run of free places that occupy memory already, if possible exactly as much as wanted.
    /// Otherwise, a run of several places may have more or less memory in its last place, and so
    /// may a run of one place when memory is short.
    fn warm_run(&mut self, shape: Shape, grains: usize) -> Option<usize> {
        let (full, large) = (self.grains_per_frame, self.large());
        let is_full = shape.tail == full;
        let mut found = if is_full { self.look(shape, large) } else { None };
        found = found.or_else(|| self.look(shape, shape.tail));
        let occupied_then = self.touched_grains + grains;
        if found.is_none() && !is_full && shape.places > 1 {
            found = self.freed_run(shape.places).or_else(|| self.look(shape, full));
        } else if found.is_none() && shape.places == 1 && occupied_then > self.limit_grains {
            let mut others = (shape.tail + 1..=full).chain((1..shape.tail).rev());
            found = others.find_map(|kind| self.look(shape, kind));
        }
        if found.is_none() && !is_full && occupied_then > self.limit_grains + self.slack() {
            found = self.look(shape, large);
        }
        found
    }

    /// The same among runs whose last place is of kind `last`, the most recently freed first.
    fn look(&mut self, shape: Shape, last: usize) -> Option<usize> {
        let is_last = |places: &Places, end| places.free[end] && places.kind(end) == last;
        while let Some(&place) = self.warm[last].back()
            && !is_last(self, place as usize)
        {
            self.warm[last].pop_back();
            self.names -= 1;
        }
        let ends = self.warm[last].iter().rev().take(LOOKS_MAX).map(|&place| place as usize);
        let fits = |end: usize| {
            let first = (end + 1).checked_sub(shape.places)?;
            let whole = (first..end).all(|place| self.is_whole(place));
            (whole && is_last(self, end)).then_some(first)
        };
        ends.into_iter().find_map(fits)
    }

    /// A freed run of this many places, whatever its last place occupies, outside large pages.
    fn freed_run(&mut self, places: usize) -> Option<usize> {
        for _ in 0..LOOKS_MAX {
            let first = self.freed.get_mut(places)?.pop_back()? as usize;
            let last = first + places - 1;
            let is_there = self.free[last] && !self.blocks.is_large(last);
            if is_there && (first..last).all(|place| self.is_whole(place)) {
                return Some(first);
            }
        }
        None
    }

    fn any_run(&mut self, shape: Shape) -> Option<usize> {
        let (total, places) = (self.free.len(), shape.places);
        let is_odd = shape.tail < self.grains_per_frame;
        let search = |from: usize, to: usize, in_large: bool| {
            let mut length = 0;
            for place in from..to {
                let fits = self.free[place] && (in_large || !self.blocks.is_large(place));
                length = if fits { length + 1 } else { 0 };
                if length == places {
                    return Some(place + 1 - places);
                }
            }
            None
        };
        let next = self.next[usize::from(is_odd)].min(total);
        let around = |in_large| {
            let to = (next + places).min(total);
            search(next, total, in_large).or_else(|| search(0, to, in_large))
        };
        let first = if is_odd { around(false).or_else(|| around(true)) } else { around(true) }?;
        self.next[usize::from(is_odd)] = first + places;
        Some(first)
    }

    /// Grains by which the occupied memory may exceed the limit for a while.
    pub(super) fn slack(&self) -> usize {
        if self.blocks.is_empty() { 0 } else { self.limit_grains / SLACK_SHARE }
    }

    /// Returns memory of free places while the occupied memory exceeds the limit: from the kind
    /// with the most free places, those that have been free for longest first.
    fn trim(&mut self, advise: &mut impl FnMut(Advice)) {
        self.trim_to(self.limit_grains + self.slack(), advise);
    }

    /// The same while it exceeds `grains`.
    fn trim_to(&mut self, grains: usize, advise: &mut impl FnMut(Advice)) {
        while self.touched_grains > grains {
            // Free places in large pages have their share of this, too. Otherwise the memory of
            // other runs would be returned each time, just before it is taken again.
            let share = |kind: usize| if kind == self.large() { LARGE_SHARE } else { 1 };
            let most = (0..=self.large()).max_by_key(|&kind| self.warm[kind].len() / share(kind));
            let kind = most.expect("there are kinds");
            let Some(place) = self.warm[kind].pop_front().map(|place| place as usize) else {
                return;
            };
            self.names -= 1;
            if self.free[place] && self.kind(place) == kind {
                self.set_touched(place, 0, advise);
            }
        }
    }

    /// Removes stale and duplicate elements from `warm`.
    fn name_anew(&mut self) {
        self.warm.iter_mut().for_each(VecDeque::clear);
        self.names = 0;
        (0..self.free.len()).for_each(|place| self.name(place));
    }
}

#[cfg(test)]
mod tests;
