//! The ring of segments: which segments are free, open, sealed or resting, the order in which they
//! are reused, and the number of each segment's current life and the stride of its pages. A life
//! lasts from opening a free segment until it is freed again.
//!
//! Invariants: a segment's number grows with every life and is never given again, whatever of the
//! life reached the disk; zero means that the segment holds nothing. Sealed segments are reused
//! oldest first. A resting segment is complete on disk like a sealed one, but has room left and is
//! the newest of its kind, so appending to it keeps the order of age. A segment is reused before
//! its turn only if most of its contents are gone and nothing outside the index refers to it; the
//! caller that then forgets the rest must keep older versions in older segments from coming back.
//!
//! Threads: the flusher changes the ring (before the flusher runs, recovery does); every thread
//! reads lives without a lock.

mod sealed;

use crate::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, lock};
use std::collections::VecDeque;

use crate::format::{BLOCK_BYTES, UNIT_BYTES, is_page_stride};
use crate::index::Location;
use crate::space::{PageAt, SegmentId, Space};
use crate::types::{SegmentLife, Sequence};

use sealed::Sealed;

/// A resting segment is sealed once this many younger lives have begun. Recovery, even after a
/// clean close, reads all segments younger than the oldest resting one, so the limit bounds the
/// time of an open.
const REST_LIVES_MAX: u64 = 16;

/// An open segment is sealed, full or not, once this many younger lives have begun: recovery after
/// a crash reads all that are younger than the oldest open one. Where hardly any extents come among
/// many pages, or the other way round, theirs would be open for turns of the ring. What that leaves
/// empty is at most one part in `OPEN_LIVES_MAX`.
const OPEN_LIVES_MAX: u64 = 64;

/// The kind of records in a segment: several to a page, or each in an extent of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentKind {
    Pages,
    Extents,
}

#[derive(Default)]
struct State {
    free: VecDeque<SegmentId>,
    sealed: Sealed,
    /// Segments that were open when the store was closed, at most one of each kind.
    resting: Vec<(SegmentKind, SegmentId)>,
    /// Segments being reused and not yet free; complete on disk like sealed ones.
    reclaimed: Vec<SegmentId>,
    /// Lives begun, and those found at open.
    lives_begun: u64,
}

pub(crate) struct Ring {
    lives: Box<[AtomicU64]>,
    /// The place of each life in their order. Unlike their numbers, which leave gaps, consecutive.
    ranks: Box<[AtomicU64]>,
    /// The sequence number at the last write to each segment, and where that began, in units.
    written: Box<[AtomicU64]>,
    written_units: Box<[AtomicU32]>,
    /// Lower bound of the sequence numbers of each segment's objects, for pruning marks.
    oldest_objects: Box<[AtomicU64]>,
    /// True if records elsewhere may refer to this segment in ways that the index does not count:
    /// parts of large objects, and values under new metadata. Also true for segments written before
    /// the store was opened, where this is unknown.
    referred: Box<[AtomicBool]>,
    /// Blocks from one page of a segment to the next, in its current life. Read without its life,
    /// so whoever reads a page there compares the page's header.
    page_strides: Box<[AtomicU16]>,
    page_bytes: u64,
    /// How often the oldest object was asked for.
    oldest_asked: AtomicU64,
    state: Mutex<State>,
}

/// A sealed segment may be reused before older ones if at most this percentage of it is still live.
/// All of that may be kept: rewriting it frees more than twice its size.
pub(crate) const SPARSE_PERCENT: u64 = 30;

/// Sealed segments of which the emptiest is looked for at each reuse; the next ones at the next.
/// With very many, a look at all of them would take longer than a write.
const LOOKED_AT_MAX: usize = 4096;

/// The largest page has 256 blocks.
fn blocks_of(bytes: u64) -> u16 {
    (bytes / BLOCK_BYTES) as u16
}

impl Ring {
    pub(crate) fn new(segments: u32, page_bytes: u64) -> Ring {
        let zeros = || (0..segments).map(|_| AtomicU64::new(0)).collect();
        Ring {
            lives: zeros(),
            ranks: zeros(),
            written: zeros(),
            written_units: (0..segments).map(|_| AtomicU32::new(0)).collect(),
            oldest_objects: zeros(),
            referred: (0..segments).map(|_| AtomicBool::new(false)).collect(),
            page_strides: (0..segments).map(|_| AtomicU16::new(blocks_of(page_bytes))).collect(),
            page_bytes,
            oldest_asked: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// Memory of the tables, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.lives.len() * 43
    }

    pub(crate) fn segments(&self) -> u32 {
        self.lives.len() as u32
    }

    #[inline]
    pub(crate) fn life(&self, segment: SegmentId) -> SegmentLife {
        SegmentLife::from_raw(self.lives[segment.0 as usize].load(Ordering::Acquire))
    }

    /// Bytes from one page of the segment to the next: a page's, or less.
    #[inline]
    pub(crate) fn page_stride(&self, segment: SegmentId) -> u64 {
        let blocks = self.page_strides[segment.0 as usize].load(Ordering::Acquire);
        u64::from(blocks) * BLOCK_BYTES
    }

    /// The page of the segment that has the byte at `offset`.
    pub(crate) fn page_with(&self, segment: SegmentId, offset: u64) -> PageAt {
        PageAt::with(segment, offset, self.page_stride(segment))
    }

    /// Notes the stride of a segment's pages, as its life begins or is found on disk. One that no
    /// page has is taken for a page.
    pub(crate) fn set_page_stride(&self, segment: SegmentId, stride_bytes: u64) {
        let possible = is_page_stride(stride_bytes, self.page_bytes);
        let stride_bytes = if possible { stride_bytes } else { self.page_bytes };
        self.page_strides[segment.0 as usize].store(blocks_of(stride_bytes), Ordering::Release);
    }

    /// Restores the state found at open: each segment's life. Free segments are taken from the
    /// volumes in turn, so that writes go to all volumes in parallel.
    pub(crate) fn restore(&self, lives: &[SegmentLife], space: &Space) {
        let mut state = lock(&self.state);
        let mut sealed: Vec<(SegmentLife, SegmentId)> = Vec::new();
        let mut free: Vec<(u32, SegmentId)> = Vec::new();
        for (segment, life) in lives.iter().enumerate() {
            self.lives[segment].store(life.get(), Ordering::Release);
            self.referred[segment].store(!life.is_none(), Ordering::Relaxed);
            let id = SegmentId(segment as u32);
            if life.is_none() {
                let volume = space.spot(id, 0).volume;
                free.push((id.0 - volume.superblock.first_segment, id));
            } else {
                sealed.push((*life, id));
            }
        }
        sealed.sort_unstable();
        free.sort_unstable();
        state.sealed.extend(sealed.iter().map(|(_, id)| *id));
        state.free = free.iter().map(|(_, id)| *id).collect();
        for (_, id) in &sealed {
            self.begin_rank(&mut state, *id);
        }
    }

    fn begin_rank(&self, state: &mut State, segment: SegmentId) {
        state.lives_begun += 1;
        self.ranks[segment.0 as usize].store(state.lives_begun, Ordering::Release);
    }

    /// Notes that the newest records of a segment have about this number, and where they begin.
    pub(crate) fn note_written(&self, segment: SegmentId, newest: Sequence, begin_bytes: u64) {
        let (at, units) = (segment.0 as usize, begin_bytes / UNIT_BYTES);
        self.written[at].store(newest.get(), Ordering::Relaxed);
        self.written_units[at].store(units as u32, Ordering::Relaxed);
    }

    fn is_near(&self, state: &State, segment: SegmentId) -> bool {
        self.begun_since(state, segment) < REST_LIVES_MAX
    }

    /// How many younger lives have begun.
    fn begun_since(&self, state: &State, segment: SegmentId) -> u64 {
        state.lives_begun - self.ranks[segment.0 as usize].load(Ordering::Acquire)
    }

    /// True if an open segment has been open for so long that it is to be sealed.
    pub(crate) fn is_passed(&self, segment: SegmentId) -> bool {
        self.begun_since(&lock(&self.state), segment) >= OPEN_LIVES_MAX
    }

    /// Takes a free segment of a volume in service and begins a new life of it. `number` gives a
    /// number that is greater than those of all lives before, also of those that left nothing on
    /// disk: else what they left unseen would be taken for records of this life.
    pub(crate) fn open_free(
        &self,
        space: &Space,
        page_stride: u64,
        number: impl FnOnce() -> SegmentLife,
    ) -> Option<(SegmentId, SegmentLife)> {
        let mut state = lock(&self.state);
        let usable = |id: &SegmentId| !space.spot(*id, 0).volume.is_out();
        let at = state.free.iter().position(usable)?;
        let segment = state.free.remove(at)?;
        // With the lock held, so that whoever looks for open segments then sees this one.
        let life = number();
        self.begin_rank(&mut state, segment);
        self.set_page_stride(segment, page_stride);
        self.lives[segment.0 as usize].store(life.get(), Ordering::Release);
        self.referred[segment.0 as usize].store(false, Ordering::Relaxed);
        let resting = std::mem::take(&mut state.resting);
        let (rests, passed) = resting.into_iter().partition(|(_, id)| self.is_near(&state, *id));
        state.resting = rests;
        state.sealed.extend(passed.into_iter().map(|(_, id): (SegmentKind, SegmentId)| id));
        Some((segment, life))
    }

    /// True if the next open may append to this segment.
    pub(crate) fn may_rest(&self, segment: SegmentId) -> bool {
        self.is_near(&lock(&self.state), segment)
    }

    pub(crate) fn seal(&self, segment: SegmentId, oldest_object: Sequence) {
        self.oldest_objects[segment.0 as usize].store(oldest_object.get(), Ordering::Relaxed);
        lock(&self.state).sealed.push(segment);
    }

    /// Takes the next segment to be reused, which stays readable until `free` is called. It may be
    /// a resting one if that is the oldest.
    pub(crate) fn take_oldest(&self, space: &Space) -> Option<SegmentId> {
        let mut state = lock(&self.state);
        let usable = |id: &SegmentId| !space.spot(*id, 0).volume.is_out();
        let sealed = state.sealed.iter().find(|(_, id)| usable(id));
        let until = sealed.map(|(_, id)| self.life(id));
        let is_oldest = |id| until.is_none_or(|until| self.life(id) < until);
        let resting = state.resting.iter().position(|(_, id)| usable(id) && is_oldest(*id));
        let taken = match resting {
            Some(at) => state.resting.swap_remove(at).1,
            None => state.sealed.take(sealed?.0)?,
        };
        state.reclaimed.push(taken);
        Some(taken)
    }

    /// Takes the emptiest of the sealed segments looked at, if hardly any of it is live, though
    /// older ones are sealed. `held` gives the bytes of a segment that the index knows. `None` if
    /// the oldest segment is as empty.
    pub(crate) fn take_sparse(
        &self,
        space: &Space,
        held: impl Fn(SegmentId) -> u64,
    ) -> Option<SegmentId> {
        let mut state = lock(&self.state);
        let usable = |id: &SegmentId| {
            !space.spot(*id, 0).volume.is_out()
                && !self.referred[id.0 as usize].load(Ordering::Relaxed)
        };
        let most = space.segment_bytes * SPARSE_PERCENT / 100;
        let sealed = state.sealed.next_places(LOOKED_AT_MAX).filter(|(_, id)| usable(id));
        // Ties go to the oldest segment.
        let (at, bytes) = sealed.map(|(at, id)| (at, held(id))).min_by_key(|(_, bytes)| *bytes)?;
        if at == 0 || bytes > most {
            return None;
        }
        let taken = state.sealed.take(at)?;
        state.reclaimed.push(taken);
        Some(taken)
    }

    /// Notes that the segment holds records that the index does not count, so that it is not reused
    /// before its turn.
    pub(crate) fn refer(&self, segment: SegmentId) {
        self.referred[segment.0 as usize].store(true, Ordering::Relaxed);
    }

    /// Makes a sealed segment rest: the next records of its kind are appended to it.
    pub(crate) fn rest(&self, kind: SegmentKind, segment: SegmentId) {
        let mut state = lock(&self.state);
        state.sealed.take_segment(segment);
        state.resting.push((kind, segment));
    }

    /// The stride of the pages of the resting segment of pages, if there is one.
    pub(crate) fn resting_page_stride(&self) -> Option<u64> {
        let state = lock(&self.state);
        let resting = state.resting.iter().find(|(kind, _)| *kind == SegmentKind::Pages)?;
        Some(self.page_stride(resting.1))
    }

    /// Takes the resting segment of a kind, and its life. It is open from now on.
    pub(crate) fn take_resting(&self, kind: SegmentKind) -> Option<(SegmentId, SegmentLife)> {
        let mut state = lock(&self.state);
        let at = state.resting.iter().position(|(rests, _)| *rests == kind)?;
        let (_, segment) = state.resting.swap_remove(at);
        Some((segment, self.life(segment)))
    }

    /// Seals a resting segment that cannot be appended to after all.
    pub(crate) fn reseal(&self, segment: SegmentId) {
        lock(&self.state).sealed.push(segment);
    }

    pub(crate) fn free(&self, segment: SegmentId) {
        self.lives[segment.0 as usize].store(SegmentLife::NONE.get(), Ordering::Release);
        self.ranks[segment.0 as usize].store(0, Ordering::Release);
        let mut state = lock(&self.state);
        state.reclaimed.retain(|reclaimed| *reclaimed != segment);
        state.free.push_back(segment);
    }

    pub(crate) fn free_count(&self) -> usize {
        lock(&self.state).free.len()
    }

    /// How many free segments can be opened, those of volumes in service: counted up to `most`.
    pub(crate) fn usable_free(&self, space: &Space, most: usize) -> usize {
        let state = lock(&self.state);
        let usable = |id: &&SegmentId| !space.spot(**id, 0).volume.is_out();
        state.free.iter().filter(usable).take(most).count()
    }

    /// The strides of all segments' pages, in blocks.
    pub(crate) fn page_stride_blocks(&self) -> Vec<u16> {
        self.page_strides.iter().map(|blocks| blocks.load(Ordering::Acquire)).collect()
    }

    pub(crate) fn lives(&self) -> Vec<SegmentLife> {
        let lives = self.lives.iter().map(|life| life.load(Ordering::Acquire));
        lives.map(SegmentLife::from_raw).collect()
    }

    /// Lower bound of the sequence numbers of all objects on disk, to be asked at each reuse of a
    /// segment; zero while it is not known. `None` at most reuses where there are many segments:
    /// all of them are looked at.
    pub(crate) fn oldest_object(&self) -> Option<Sequence> {
        let asked = self.oldest_asked.fetch_add(1, Ordering::Relaxed);
        let every = u64::from(self.segments()) / LOOKED_AT_MAX as u64 + 1;
        asked.is_multiple_of(every).then(|| self.oldest_object_now())
    }

    fn oldest_object_now(&self) -> Sequence {
        let held = self
            .lives
            .iter()
            .zip(&self.oldest_objects)
            .filter(|(s, _)| s.load(Ordering::Relaxed) != 0);
        let oldest = held.map(|(_, oldest)| oldest.load(Ordering::Relaxed)).min();
        Sequence::from_raw(oldest.unwrap_or(0))
    }

    /// The oldest life whose segment is neither free nor complete on disk, if any.
    pub(crate) fn oldest_unsealed(&self) -> Option<SegmentLife> {
        let state = lock(&self.state);
        let mut open = self.lives();
        let sealed = state.sealed.iter().map(|(_, id)| id);
        for whole in sealed.chain(state.reclaimed.iter().copied()) {
            open[whole.0 as usize] = SegmentLife::NONE;
        }
        open.into_iter().filter(|life| !life.is_none()).min()
    }

    pub(crate) fn note_oldest(&self, segment: SegmentId, oldest: Sequence) {
        self.oldest_objects[segment.0 as usize].store(oldest.get(), Ordering::Relaxed);
    }

    /// Order in which locations were written: a greater position is newer. Zero for a location
    /// outside the store.
    pub(crate) fn position(&self, space: &Space, location: Location) -> u128 {
        let (segment, offset) = space.split(location);
        if !space.holds(segment) {
            return 0;
        }
        (u128::from(self.life(segment).get()) << 64) | u128::from(offset)
    }

    /// Age of a location; greater is older. By the lives of segments, so that of two records of a
    /// kind the later one is younger.
    pub(crate) fn age(&self, space: &Space, location: Location) -> u64 {
        let (segment, offset) = space.split(location);
        if !space.holds(segment) {
            return u64::MAX;
        }
        let rank = self.ranks[segment.0 as usize].load(Ordering::Acquire);
        u64::MAX - ((rank << 26) | (offset >> 6).min((1 << 26) - 1))
    }

    /// Age of a location, for choosing which of different objects goes; greater is older. It is
    /// that of the number which a record there would have if its segment had been filled evenly.
    /// With hardly any extents among many pages, their segment is open for long, and by its life
    /// each of them would be the oldest of all as soon as it is written.
    pub(crate) fn age_of_writing(&self, space: &Space, location: Location) -> u64 {
        let (segment, offset) = space.split(location);
        if !space.holds(segment) {
            return u64::MAX;
        }
        let at = segment.0 as usize;
        let begun = self.life(segment).get();
        let span = self.written[at].load(Ordering::Relaxed).saturating_sub(begun);
        let filled = u64::from(self.written_units[at].load(Ordering::Relaxed)).max(1);
        let before = (offset / UNIT_BYTES).min(filled);
        let since = u128::from(span) * u128::from(before) / u128::from(filled);
        u64::MAX - begun.saturating_add(since as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_many_segments_all_are_looked_at_once_for_many_reuses() {
        let asked = |segments, times: u64| {
            let ring = Ring::new(segments, 64 << 10);
            (0..times).filter(|_| ring.oldest_object().is_some()).count()
        };
        assert_eq!(asked(1000, 100), 100);
        assert_eq!(asked(100 * LOOKED_AT_MAX as u32, 1010), 10);
    }
}
