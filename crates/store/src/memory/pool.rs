//! Owns all memory that holds object bytes: one mapping of equal frames, handed out as runs.
//!
//! Invariants: a run is free exactly when its reference count is zero. The mapping outlives every
//! run, since each run in use holds one strong count of the pool; so a guard may outlive the store.
//! A byte range of a run is written only before it is published, and never while a reader can reach
//! it. Threads: any; the free places are behind a mutex (`places`), reference counts are atomic.

use crate::sync::atomic::{AtomicU32, Ordering, fence};
use crate::sync::{Arc, Mutex, lock};
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;
use std::time::Duration;

use super::mapped;
use crate::process::Process;
use crate::signal::Signal;

mod blocks;
mod places;
use blocks::BLOCK_BYTES;
use places::{Advice, GRAIN_BYTES, Places, WHOLE_SHARE};

/// Longest wait for a run to be released. The caller checks for memory before it takes the lock and
/// so can miss a wake-up; it checks again after this time.
const FREED_NAP: Duration = Duration::from_millis(5);

/// A run of at least this many frames consists of whole frames: the rounding is small beside it,
/// and whole frames may lie in large pages.
const WHOLE_FRAMES_MIN: usize = 8;

/// A frame is cut only if at least one part in this many of it is freed. Returning memory and
/// having it cleared again has a cost, and large pages are split for it.
const CUT_SHARE: usize = 8;

/// State of one place. The first place of a run carries the run's reference count and length. Each
/// header has a cache line of its own, since readers on several cores count references to different
/// runs concurrently.
#[repr(align(64))]
struct PlaceHeader {
    refs: AtomicU32,
    run_grains: AtomicU32,
}

pub(crate) struct Pool {
    /// The first place. The mapping may begin before it, for alignment.
    base: NonNull<u8>,
    mapping: NonNull<u8>,
    frames: usize,
    frame_bytes: usize,
    headers: Box<[PlaceHeader]>,
    state: Mutex<Places>,
    /// Where the next search for a window starts.
    window_from: AtomicU32,
    freed: Signal,
    /// Free memory stays with the process: see [`Pool::keeping`].
    keeps: bool,
    process: Process,
}

// SAFETY: the mapping is plain memory; access to it goes through `Run`, whose users keep the
// published/unpublished discipline stated at the top.
unsafe impl Send for Pool {}
// SAFETY: as above; all bookkeeping is behind a mutex or atomic.
unsafe impl Sync for Pool {}

impl Pool {
    /// Bookkeeping bytes of the pool for each place.
    pub(crate) const PLACE_BYTES: usize = size_of::<PlaceHeader>();

    /// Maps room for `frames` frames of `frame_bytes` each.
    pub(crate) fn new(frames: usize, frame_bytes: usize) -> std::io::Result<Arc<Pool>> {
        Pool::mapped_by(mapped::map_small_pages, frames, frame_bytes, false)
    }

    /// Whether parts of the mapping can become large pages: not in a small one.
    pub(crate) fn has_large_pages(&self) -> bool {
        lock(&self.state).has_blocks()
    }

    /// Makes one more part of the mapping a large page, if frames would lie there and the limit has
    /// room for it; false if not. Takes milliseconds where the system has to find and clear one;
    /// nothing else waits meanwhile.
    pub(crate) fn enlarge(&self) -> bool {
        let aside = lock(&self.state).set_aside(|advice| self.follow(advice));
        let Some(places) = aside else { return false };
        let start = self.place_ptr(places.start);
        self.follow(Advice::LargePages(places));
        // One touch brings all of a large page. Where the system has none left, it brings a small
        // one, and the others come as they are touched.
        // SAFETY: the block is within our mapping, no run uses it, and it is set aside for this
        // call.
        unsafe { start.write_volatile(0) };
        lock(&self.state).enlarged(|advice| self.follow(advice));
        true
    }

    /// A pool for simulators, counted and limited as usual. It returns no memory to the system
    /// before it is dropped, and may use large pages, since clearing returned memory would take
    /// longer than the simulation itself. It may occupy up to twice the memory counted.
    pub(crate) fn keeping(frames: usize, frame_bytes: usize) -> std::io::Result<Arc<Pool>> {
        Pool::mapped_by(mapped::map_large_pages, frames, frame_bytes, true)
    }

    fn mapped_by(
        map: fn(usize) -> std::io::Result<NonNull<u8>>,
        frames: usize,
        frame_bytes: usize,
        keeps: bool,
    ) -> std::io::Result<Arc<Pool>> {
        assert!(frames > 0 && frame_bytes.is_multiple_of(GRAIN_BYTES), "pool geometry");
        let places_of = if keeps { Places::new } else { Places::enlarged_behind };
        let places = places_of(frames, frame_bytes / GRAIN_BYTES);
        // Large pages begin at a multiple of their length. Memory beyond the places is never
        // touched.
        let mapping = map(places.count() * frame_bytes + BLOCK_BYTES)?;
        let before = mapping.as_ptr().align_offset(BLOCK_BYTES);
        // SAFETY: `before` is less than a block, so the result is within the mapping.
        let base = unsafe { mapping.add(if before < BLOCK_BYTES { before } else { 0 }) };
        let headers = (0..places.count())
            .map(|_| PlaceHeader { refs: AtomicU32::new(0), run_grains: AtomicU32::new(0) })
            .collect();
        Ok(Arc::new(Pool {
            base,
            mapping,
            frames,
            frame_bytes,
            headers,
            state: Mutex::new(places),
            window_from: AtomicU32::new(0),
            freed: Signal::default(),
            keeps,
            process: Process::current(),
        }))
    }

    pub(crate) fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// Frames that fit in the configured memory.
    pub(crate) fn frames(&self) -> usize {
        self.frames
    }

    /// Places of the mapping: an upper bound of every [`Run::first`].
    pub(crate) fn places(&self) -> usize {
        self.headers.len()
    }

    /// Bytes in use now.
    pub(crate) fn used_bytes(&self) -> usize {
        lock(&self.state).used_grains() * GRAIN_BYTES
    }

    /// Bytes that the system was asked to keep in large pages.
    pub(crate) fn large_page_bytes(&self) -> usize {
        lock(&self.state).large_blocks() * BLOCK_BYTES
    }

    /// Bytes by which the memory that frames occupy may exceed the limit for a while.
    pub(crate) fn slack_bytes(&self) -> usize {
        lock(&self.state).slack() * GRAIN_BYTES
    }

    /// Bytes that can be taken without an eviction.
    pub(crate) fn available_bytes(&self) -> usize {
        lock(&self.state).available_grains() * GRAIN_BYTES
    }

    /// Sets how many frames' worth of memory may be in use; memory beyond it is returned.
    pub(crate) fn set_limit(&self, frames: usize) {
        let grains = frames.clamp(1, self.frames) * self.grains_per_frame();
        lock(&self.state).set_limit(grains, |advice| self.follow(advice));
    }

    /// Carries out the advice of `places`, which names only memory outside runs, or of a new run.
    fn follow(&self, advice: Advice) {
        if self.keeps {
            return;
        }
        let part =
            |places: Range<usize>| (self.place_ptr(places.start), places.len() * self.frame_bytes);
        match advice {
            Advice::GiveBack(place, grains) => {
                let bytes = grains.len() * GRAIN_BYTES;
                // SAFETY: no run uses this part any more, and it is within one frame of our own
                // mapping.
                unsafe {
                    mapped::release(self.place_ptr(place).add(grains.start * GRAIN_BYTES), bytes)
                };
            }
            Advice::LargePages(places) => {
                let (start, bytes) = part(places);
                // SAFETY: whole pages of our own mapping.
                unsafe { mapped::use_large_pages(start, bytes) };
            }
            Advice::SmallPages(places) => {
                let (start, bytes) = part(places);
                // SAFETY: whole pages of our own mapping.
                unsafe { mapped::use_small_pages(start, bytes) };
            }
        }
    }

    fn grains_per_frame(&self) -> usize {
        self.frame_bytes / GRAIN_BYTES
    }

    /// Grains that a run for this many bytes occupies. Up to a third of a frame a run takes a whole
    /// frame: such runs are short-lived or shared by several objects, and leave a frame that any
    /// other run can reuse.
    fn grains_for(&self, bytes: usize) -> usize {
        if bytes <= self.frame_bytes / WHOLE_SHARE {
            return self.grains_per_frame();
        }
        if bytes >= WHOLE_FRAMES_MIN * self.frame_bytes {
            return bytes.div_ceil(self.frame_bytes) * self.grains_per_frame();
        }
        bytes.div_ceil(GRAIN_BYTES)
    }

    /// Bytes that a run for this many bytes occupies.
    pub(crate) fn run_bytes_for(&self, bytes: usize) -> usize {
        self.grains_for(bytes) * GRAIN_BYTES
    }

    fn place_ptr(&self, place: usize) -> *mut u8 {
        debug_assert!(place < self.headers.len());
        // SAFETY: the place is within the mapping, checked by every caller against `headers.len()`.
        unsafe { self.base.as_ptr().add(place * self.frame_bytes) }
    }

    /// Takes a run for `bytes`, or `None` if there is no room for it.
    pub(crate) fn try_take(self: &Arc<Pool>, bytes: usize) -> Option<Run> {
        let grains = self.grains_for(bytes);
        let first = lock(&self.state).take(grains, |advice| self.follow(advice))?;
        Some(self.claim(first, grains))
    }

    /// Takes a run of one frame, or `None` if there is no room for it.
    pub(crate) fn try_take_frame(self: &Arc<Pool>) -> Option<Run> {
        self.try_take(self.frame_bytes)
    }

    fn claim(self: &Arc<Pool>, first: usize, grains: usize) -> Run {
        let header = &self.headers[first];
        header.run_grains.store(grains as u32, Ordering::Relaxed);
        let before = header.refs.swap(1, Ordering::Relaxed);
        assert_eq!(before, 0, "a free place must not be referenced");
        // The run holds one strong count, given back in `Pool::release`.
        let raw = Arc::into_raw(Arc::clone(self));
        // SAFETY: `Arc::into_raw` never returns null.
        Run { pool: unsafe { NonNull::new_unchecked(raw.cast_mut()) }, first: first as u32 }
    }

    /// A window of places, long enough for a run of `bytes`, whose runs can all be evicted;
    /// `freeable` is asked for each run by its first place. The search continues where the last one
    /// ended, so that the windows take turns and the longest undisturbed memory is freed next.
    pub(crate) fn window(
        &self,
        bytes: usize,
        mut freeable: impl FnMut(usize) -> bool,
    ) -> Option<Range<usize>> {
        let places = self.grains_for(bytes).div_ceil(self.grains_per_frame());
        let free = lock(&self.state).free().to_vec();
        let (from, all) = (self.window_from.load(Ordering::Relaxed) as usize, free.len());
        let found = self.window_within(places, &free, from..all, &mut freeable).or_else(|| {
            let to = (from + places).min(all);
            self.window_within(places, &free, 0..to, &mut freeable)
        })?;
        self.window_from.store(found.end as u32, Ordering::Relaxed);
        Some(found)
    }

    fn window_within(
        &self,
        places: usize,
        free: &[bool],
        within: Range<usize>,
        freeable: &mut impl FnMut(usize) -> bool,
    ) -> Option<Range<usize>> {
        let mut start = within.start;
        let mut index = within.start;
        while index < within.end {
            let length = if free[index] {
                1
            } else {
                let grains = self.headers[index].run_grains.load(Ordering::Relaxed) as usize;
                let run = grains.div_ceil(self.grains_per_frame()).max(1);
                if !freeable(index) {
                    start = index + run;
                }
                run
            };
            index += length;
            if index >= start + places {
                return Some(start..index);
            }
        }
        None
    }

    /// Bytes of a run of at most one frame of which the first `used` are needed: all of the frame
    /// where the rest is not worth what a cut frame costs.
    pub(crate) fn part_of_frame(&self, used: usize) -> usize {
        let part = used.div_ceil(GRAIN_BYTES).max(1) * GRAIN_BYTES;
        let rest = self.frame_bytes.saturating_sub(part);
        if rest * CUT_SHARE < self.frame_bytes { self.frame_bytes } else { part }
    }

    /// Cuts a run of one frame to the `used` bytes and frees the rest for other runs, if that is
    /// worth a system call.
    pub(crate) fn shorten(&self, run: &Run, used: usize) {
        let from = run.len_bytes() / GRAIN_BYTES;
        let to = self.part_of_frame(used) / GRAIN_BYTES;
        if from > self.grains_per_frame() || to >= from {
            return;
        }
        let first = run.first as usize;
        lock(&self.state).shorten(first, from, to, |advice| self.follow(advice));
        self.headers[first].run_grains.store(to as u32, Ordering::Relaxed);
        self.freed.notify_all();
    }

    fn release(&self, first: usize) {
        if self.process.is_another() {
            // A child's copy of the pool hands out nothing any more, and its lock may be one that a
            // thread held at the fork.
            return;
        }
        let grains = self.headers[first].run_grains.load(Ordering::Relaxed) as usize;
        lock(&self.state).release(first, grains, |advice| self.follow(advice));
        self.freed.notify_all();
    }

    /// Waits until a run is released, at most `FREED_NAP`.
    pub(crate) fn wait_freed(&self) {
        let state = lock(&self.state);
        drop(self.freed.wait_for(state, FREED_NAP));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let bytes = self.headers.len() * self.frame_bytes + BLOCK_BYTES;
        // SAFETY: mapped with this length, and no run is left, since each holds a strong count of
        // the pool.
        unsafe { mapped::unmap(self.mapping, bytes) };
    }
}

/// A counted reference to a run of frames.
pub(crate) struct Run {
    pool: NonNull<Pool>,
    first: u32,
}

// SAFETY: a Run is a counted reference; the count is atomic and the pool is Sync.
unsafe impl Send for Run {}
// SAFETY: as above; shared access only reads published bytes.
unsafe impl Sync for Run {}

impl Run {
    fn pool(&self) -> &Pool {
        // SAFETY: this run's strong count keeps the pool alive until the last reference is gone.
        unsafe { self.pool.as_ref() }
    }

    fn header(&self) -> &PlaceHeader {
        &self.pool().headers[self.first as usize]
    }

    /// Gives the reference away, to be had again from [`Run::from_first`].
    pub(super) fn into_first(self) -> u32 {
        ManuallyDrop::new(self).first
    }

    /// The run of this pool that starts at `first`.
    ///
    /// # Safety
    /// A reference to the run was given away by [`Run::into_first`], and the run returned here is
    /// dropped at most once for it.
    #[inline]
    pub(super) unsafe fn from_first(pool: &Arc<Pool>, first: u32) -> Run {
        // SAFETY: a pointer to what an `Arc` holds is never null.
        Run { pool: unsafe { NonNull::new_unchecked(Arc::as_ptr(pool).cast_mut()) }, first }
    }

    /// Number of the run's first place: the run's identity while it is in use.
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.header().run_grains.load(Ordering::Relaxed) as usize * GRAIN_BYTES
    }

    /// References to the run, the caller's included.
    pub(crate) fn refs(&self) -> u32 {
        self.header().refs.load(Ordering::Acquire)
    }

    /// Start of the run's memory, for unpublished writes and I/O.
    pub(crate) fn ptr(&self) -> *mut u8 {
        self.pool().place_ptr(self.first as usize)
    }

    /// Published bytes `offset .. offset + len`.
    ///
    /// # Panics
    /// If the range is outside the run.
    #[inline]
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        let total = self.len_bytes();
        assert!(offset <= total && len <= total - offset, "range outside the run");
        // SAFETY: in bounds, and published bytes are never written while the run is referenced.
        unsafe { std::slice::from_raw_parts(self.ptr().add(offset), len) }
    }

    /// Unpublished bytes to fill.
    ///
    /// # Safety
    /// The caller has reserved the range: nobody else reads or writes it meanwhile.
    #[expect(clippy::mut_from_ref, reason = "ranges are handed out by reservation, not by borrow")]
    pub(crate) unsafe fn bytes_mut(&self, offset: usize, len: usize) -> &mut [u8] {
        let total = self.len_bytes();
        assert!(offset <= total && len <= total - offset, "range outside the run");
        // SAFETY: in bounds; exclusive by the caller's reservation.
        unsafe { std::slice::from_raw_parts_mut(self.ptr().add(offset), len) }
    }
}

impl Clone for Run {
    #[inline]
    fn clone(&self) -> Run {
        let before = self.header().refs.fetch_add(1, Ordering::Relaxed);
        assert!(before > 0 && before < u32::MAX / 2, "reference count out of range");
        Run { pool: self.pool, first: self.first }
    }
}

impl Drop for Run {
    #[inline]
    fn drop(&mut self) {
        if self.header().refs.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            self.pool().release(self.first as usize);
            // SAFETY: gives back the strong count that `claim` took for this run.
            drop(unsafe { Arc::from_raw(self.pool.as_ptr().cast_const()) });
        }
    }
}

#[cfg(test)]
mod tests;
