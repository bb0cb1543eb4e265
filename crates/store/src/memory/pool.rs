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
        // SAFETY: the block is within our mapping, no run uses it, and it is set aside for this call.
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

    /// Cuts a run of one frame to the `used` bytes and frees the rest for other runs. Does nothing
    /// where the rest is too small to be worth a system call.
    pub(crate) fn shorten(&self, run: &Run, used: usize) {
        let from = run.len_bytes() / GRAIN_BYTES;
        let to = used.div_ceil(GRAIN_BYTES).max(1);
        if from > self.grains_per_frame() || (from - to) * CUT_SHARE < self.grains_per_frame() {
            return;
        }
        let first = run.first as usize;
        lock(&self.state).shorten(first, from, to, |advice| self.follow(advice));
        self.headers[first].run_grains.store(to as u32, Ordering::Relaxed);
        self.freed.notify_all();
    }

    fn release(&self, first: usize) {
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
mod tests {
    use super::*;

    const FRAME: usize = 4096;

    #[test]
    fn runs_are_contiguous_and_come_back() {
        let pool = Pool::new(8, FRAME).unwrap();
        let a = pool.try_take(3 * FRAME).unwrap();
        let b = pool.try_take(5 * FRAME).unwrap();
        assert!(pool.try_take_frame().is_none());
        assert_eq!((a.len_bytes(), b.len_bytes()), (3 * FRAME, 5 * FRAME));
        let again = a.clone();
        drop(a);
        assert!(pool.try_take_frame().is_none(), "a clone keeps the run");
        drop(again);
        assert!(pool.try_take(3 * FRAME).is_some());
        assert_eq!(pool.used_bytes(), 5 * FRAME);
    }

    #[test]
    fn a_run_over_a_third_of_a_frame_is_as_long_as_it_must_be() {
        let pool = Pool::new(5, 16 * FRAME).unwrap();
        let lengths = [1, 16 * FRAME / 3, 6 * FRAME, 8 * FRAME + 1, 16 * FRAME, 16 * FRAME + 1];
        let runs = lengths.map(|bytes| pool.try_take(bytes).unwrap());
        let grains = runs.each_ref().map(|run| run.len_bytes() / FRAME);
        assert_eq!(grains, [16, 16, 6, 9, 16, 17]);
        assert_eq!(pool.used_bytes(), 80 * FRAME);
        let pool = Pool::new(10, 16 * FRAME).unwrap();
        let run = pool.try_take(8 * 16 * FRAME + 1).unwrap();
        assert_eq!(run.len_bytes(), 9 * 16 * FRAME, "whole frames of many");
    }

    #[test]
    fn what_is_cut_off_a_run_is_others_to_take() {
        let pool = Pool::new(2, 16 * FRAME).unwrap();
        let (cut, whole) = (pool.try_take_frame().unwrap(), pool.try_take_frame().unwrap());
        pool.shorten(&whole, 14 * FRAME + 1);
        assert_eq!(whole.len_bytes(), 16 * FRAME, "one grain is not worth it");
        // SAFETY: freshly taken, nobody else knows it.
        unsafe { cut.bytes_mut(0, 16 * FRAME) }.fill(7);
        pool.shorten(&cut, 9 * FRAME + 1);
        assert_eq!((cut.len_bytes(), pool.available_bytes()), (10 * FRAME, 6 * FRAME));
        assert!(cut.bytes(0, 10 * FRAME).iter().all(|&byte| byte == 7));
        let other = pool.try_take(6 * FRAME).unwrap();
        assert_eq!(pool.used_bytes(), 32 * FRAME);
        drop((cut, whole, other));
        assert_eq!(pool.used_bytes(), 0);
        assert!(pool.try_take_frame().is_some() && pool.try_take(2 * 16 * FRAME).is_some());
    }

    /// Large pages are the system's business: what is in memory and what is counted stays the same.
    #[test]
    fn what_is_in_memory_stays_when_large_pages_are_taken_apart() {
        let frames = 12 * BLOCK_BYTES / (16 * FRAME);
        let pool = Pool::new(if cfg!(miri) { 4 } else { frames }, 16 * FRAME).unwrap();
        let mut rng = fastrand::Rng::with_seed(3);
        let mut held: Vec<(Run, u8)> = Vec::new();
        for step in 0..if cfg!(miri) { 20 } else { 3_000 } {
            let bytes = if rng.u8(..8) == 0 { rng.usize(1..40 * FRAME) } else { 16 * FRAME };
            match pool.try_take(bytes) {
                Some(run) => {
                    // SAFETY: freshly taken, nobody else knows it.
                    unsafe { run.bytes_mut(0, bytes) }.fill(step as u8);
                    held.push((run, step as u8));
                }
                None => drop(held.swap_remove(rng.usize(..held.len()))),
            }
            pool.enlarge();
            if step % 50 == 0 {
                let is_whole = |(run, byte): &(Run, u8)| run.bytes(0, 1) == [*byte];
                assert!(held.iter().all(is_whole));
            }
        }
        let used: usize = held.iter().map(|(run, _)| run.len_bytes()).sum();
        assert_eq!(pool.used_bytes(), used);
        let large = pool.large_page_bytes() / BLOCK_BYTES;
        assert!(cfg!(miri) || large >= 8, "{large} of 12 are left, for one run in eight");
        pool.set_limit(1);
        drop(held);
        assert_eq!(pool.large_page_bytes(), 0, "one frame is left");
    }

    /// Where runs lie and what is counted is the same; only what the system gets back is not.
    #[test]
    fn a_pool_that_keeps_memory_takes_the_same_places() {
        for seed in 0..if cfg!(miri) { 2 } else { 20 } {
            let mut rng = fastrand::Rng::with_seed(seed);
            let pools = [Pool::new(12, 4 * FRAME).unwrap(), Pool::keeping(12, 4 * FRAME).unwrap()];
            let mut held: Vec<[Run; 2]> = Vec::new();
            for step in 0..300 {
                if rng.bool() && !held.is_empty() {
                    held.swap_remove(rng.usize(..held.len()));
                } else {
                    let bytes = rng.usize(1..10 * FRAME);
                    let [Some(plain), Some(kept)] =
                        pools.each_ref().map(|pool| pool.try_take(bytes))
                    else {
                        held.pop();
                        continue;
                    };
                    assert_eq!(
                        (plain.first(), plain.len_bytes()),
                        (kept.first(), kept.len_bytes())
                    );
                    // SAFETY: freshly taken, nobody else knows it.
                    unsafe { kept.bytes_mut(0, bytes) }.fill(step as u8);
                    held.push([plain, kept]);
                }
                assert_eq!(pools[0].used_bytes(), pools[1].used_bytes());
            }
        }
    }

    #[test]
    fn bytes_outlive_the_pool_handle() {
        let pool = Pool::new(2, FRAME).unwrap();
        let run = pool.try_take_frame().unwrap();
        // SAFETY: freshly taken, nobody else knows it.
        unsafe { run.bytes_mut(0, 5) }.copy_from_slice(b"hello");
        drop(pool);
        assert_eq!(run.bytes(0, 5), b"hello");
    }

    #[test]
    fn a_lower_limit_refuses_and_a_window_skips_what_is_held() {
        let pool = Pool::new(8, FRAME).unwrap();
        pool.set_limit(2);
        let held = pool.try_take(2 * FRAME).unwrap();
        assert!(pool.try_take_frame().is_none());
        pool.set_limit(8);
        let window = pool.window(4 * FRAME, |first| first != held.first() as usize).unwrap();
        assert!(window.start >= 2);
        let next = pool.window(2 * FRAME, |_| true).unwrap();
        assert_eq!(next.start, window.end, "another part makes room each time");
    }
}
