//! Owns all memory that holds object bytes: one mapping of equal frames, handed out as runs.
//!
//! Invariants: a run is free exactly when its reference count is zero; the mapping outlives every
//! run (each run in use holds one strong count of the pool), so a guard may outlive the store.
//! A byte range of a run is written only before it is published and never while anyone can read
//! it. Threads: any; the free list is behind a mutex, reference counts are atomic.

use crate::sync::atomic::{AtomicU32, Ordering, fence};
use crate::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::time::Duration;

use super::mapped;
use crate::signal::Signal;

/// Locks a mutex; a holder that panicked left data that is valid by construction.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// State of one frame. The first frame of a run carries the run's count and length. On a cache line
/// of its own: readers on several cores count references to different runs all the time.
#[repr(align(64))]
struct FrameHeader {
    refs: AtomicU32,
    run_frames: AtomicU32,
}

#[derive(Debug, Default)]
struct FreeState {
    /// One flag a frame: true = free.
    free: Vec<bool>,
    free_count: usize,
    /// Frames that have been handed out before and so occupy memory.
    touched: Vec<bool>,
    touched_count: usize,
    /// All free frames that occupy memory, the latest last: handed out first, so that memory is touched
    /// no wider than needed. May name frames that have been taken since; `free` decides.
    warm: VecDeque<u32>,
    /// Where the next search starts.
    next: usize,
    /// Frames that may be in use at once; lowered as tables grow.
    limit: usize,
}

/// Places at which [`FreeState::warm_run`] looks.
const WARM_LOOKS_MAX: usize = 32;

pub(crate) struct Pool {
    base: NonNull<u8>,
    frame_bytes: usize,
    headers: Box<[FrameHeader]>,
    state: Mutex<FreeState>,
    freed: Signal,
}

// SAFETY: the mapping is plain memory; access to it goes through `Run`, whose users keep the
// published/unpublished discipline stated at the top.
unsafe impl Send for Pool {}
// SAFETY: as above; all bookkeeping is behind a mutex or atomic.
unsafe impl Sync for Pool {}

impl Pool {
    /// Maps `frames` frames of `frame_bytes` each.
    pub(crate) fn new(frames: usize, frame_bytes: usize) -> std::io::Result<Arc<Pool>> {
        assert!(frames > 0 && frame_bytes.is_multiple_of(4096), "pool geometry");
        let base = mapped::map(frames * frame_bytes)?;
        let headers = (0..frames)
            .map(|_| FrameHeader { refs: AtomicU32::new(0), run_frames: AtomicU32::new(0) })
            .collect();
        let state = FreeState {
            free: vec![true; frames],
            free_count: frames,
            touched: vec![false; frames],
            touched_count: 0,
            warm: VecDeque::new(),
            next: 0,
            limit: frames,
        };
        Ok(Arc::new(Pool {
            base,
            frame_bytes,
            headers,
            state: Mutex::new(state),
            freed: Signal::default(),
        }))
    }

    pub(crate) fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    pub(crate) fn frames(&self) -> usize {
        self.headers.len()
    }

    /// Frames in use now.
    pub(crate) fn used(&self) -> usize {
        self.headers.len() - lock(&self.state).free_count
    }

    /// Frames that could still be taken without freeing any.
    pub(crate) fn available(&self) -> usize {
        let state = lock(&self.state);
        state.limit.saturating_sub(self.headers.len() - state.free_count)
    }

    /// Lowers or raises the number of frames that may be in use, returning memory beyond it.
    pub(crate) fn set_limit(&self, frames: usize) {
        let mut state = lock(&self.state);
        state.limit = frames.clamp(1, self.headers.len());
        self.trim(&mut state);
    }

    /// Gives free but touched frames back to the system while more are touched than allowed, those
    /// first that have been free for longest.
    fn trim(&self, state: &mut FreeState) {
        while state.touched_count > state.limit
            && let Some(index) = state.warm.pop_front()
        {
            let index = index as usize;
            if state.is_warm(index) {
                // SAFETY: a free frame of our own mapping, in which nobody has anything any more.
                unsafe { mapped::release(self.frame_ptr(index), self.frame_bytes) };
                state.touched[index] = false;
                state.touched_count -= 1;
            }
        }
    }

    fn frame_ptr(&self, index: usize) -> *mut u8 {
        debug_assert!(index < self.headers.len());
        // SAFETY: index is within the mapping, checked by every caller against `headers.len()`.
        unsafe { self.base.as_ptr().add(index * self.frame_bytes) }
    }

    /// Takes a run of consecutive frames, or `None` if no such run is free.
    pub(crate) fn try_take(self: &Arc<Pool>, frames: usize) -> Option<Run> {
        let mut state = lock(&self.state);
        let used = self.headers.len() - state.free_count;
        if frames == 0 || used + frames > state.limit {
            return None;
        }
        let first = match state.warm_run(frames) {
            Some(first) => first,
            None => {
                let first = find_run(&state, frames)?;
                state.next = first + frames;
                first
            }
        };
        for index in first..first + frames {
            state.free[index] = false;
            if !state.touched[index] {
                state.touched[index] = true;
                state.touched_count += 1;
            }
        }
        state.free_count -= frames;
        if state.touched_count > state.limit {
            self.trim(&mut state);
        }
        drop(state);
        Some(self.claim(first, frames))
    }

    fn claim(self: &Arc<Pool>, first: usize, frames: usize) -> Run {
        let header = &self.headers[first];
        header.run_frames.store(frames as u32, Ordering::Relaxed);
        let before = header.refs.swap(1, Ordering::Relaxed);
        assert_eq!(before, 0, "a free frame must not be referenced");
        // The run holds one strong count, given back in `Pool::release`.
        let raw = Arc::into_raw(Arc::clone(self));
        // SAFETY: `Arc::into_raw` never returns null.
        Run { pool: unsafe { NonNull::new_unchecked(raw.cast_mut()) }, first: first as u32 }
    }

    /// Start of a window of `frames` frames whose runs could all be freed, preferring windows that
    /// need little freeing. `freeable` tells of the run that starts at a frame.
    pub(crate) fn window(
        &self,
        frames: usize,
        mut freeable: impl FnMut(usize) -> bool,
    ) -> Option<std::ops::Range<usize>> {
        let free = lock(&self.state).free.clone();
        let mut start = 0;
        let mut index = 0;
        while index < free.len() {
            let length = if free[index] {
                1
            } else {
                let run = self.headers[index].run_frames.load(Ordering::Relaxed).max(1) as usize;
                if !freeable(index) {
                    start = index + run;
                }
                run
            };
            index += length;
            if index >= start + frames {
                return Some(start..index);
            }
        }
        None
    }

    fn release(&self, first: usize) {
        let frames = self.headers[first].run_frames.load(Ordering::Relaxed) as usize;
        let mut state = lock(&self.state);
        for index in first..first + frames {
            state.free[index] = true;
            state.warm.push_back(index as u32);
        }
        state.free_count += frames;
        if state.warm.len() > 2 * state.free.len() {
            state.rebuild_warm();
        }
        if state.touched_count > state.limit {
            self.trim(&mut state);
        }
        drop(state);
        self.freed.notify_all();
    }

    /// Waits until some run is released, at most `timeout`.
    pub(crate) fn wait_freed(&self, timeout: Duration) {
        let state = lock(&self.state);
        // The caller looked before the lock was taken, so a wake-up can be missed: wake now and then.
        let nap = timeout.min(Duration::from_millis(5));
        drop(self.freed.wait_for(state, nap));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let bytes = self.headers.len() * self.frame_bytes;
        // SAFETY: mapped with this length, and no run is left, since each holds a strong count of the pool.
        unsafe { mapped::unmap(self.base, bytes) };
    }
}

impl FreeState {
    fn is_warm(&self, index: usize) -> bool {
        self.free[index] && self.touched[index]
    }

    /// Start of a run of free frames that occupy memory already, among those that came free last: pages
    /// that the system took back must be cleared by it, which costs more than what is written to them.
    fn warm_run(&mut self, frames: usize) -> Option<usize> {
        while self.warm.back().is_some_and(|&index| !self.is_warm(index as usize)) {
            self.warm.pop_back();
        }
        let ends = self.warm.iter().rev().take(WARM_LOOKS_MAX);
        let starts = ends.filter_map(|&end| (end as usize + 1).checked_sub(frames));
        starts.into_iter().find(|&first| (first..first + frames).all(|i| self.is_warm(i)))
    }

    /// Drops stale and double names.
    fn rebuild_warm(&mut self) {
        self.warm = (0..self.free.len()).filter(|&i| self.is_warm(i)).map(|i| i as u32).collect();
    }
}

fn find_run(state: &FreeState, frames: usize) -> Option<usize> {
    let total = state.free.len();
    let search = |from: usize, to: usize| {
        let mut length = 0;
        for index in from..to {
            length = if state.free[index] { length + 1 } else { 0 };
            if length == frames {
                return Some(index + 1 - frames);
            }
        }
        None
    };
    let next = state.next.min(total);
    search(next, total).or_else(|| search(0, (next + frames).min(total)))
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

    fn header(&self) -> &FrameHeader {
        &self.pool().headers[self.first as usize]
    }

    /// Number of its first frame: its identity while it is in use.
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.header().run_frames.load(Ordering::Relaxed) as usize * self.pool().frame_bytes
    }

    /// References to it, the caller's included.
    pub(crate) fn refs(&self) -> u32 {
        self.header().refs.load(Ordering::Acquire)
    }

    /// Start of its memory, for unpublished writes and I/O.
    pub(crate) fn ptr(&self) -> *mut u8 {
        self.pool().frame_ptr(self.first as usize)
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

    #[test]
    fn runs_are_contiguous_and_come_back() {
        let pool = Pool::new(8, 4096).unwrap();
        let a = pool.try_take(3).unwrap();
        let b = pool.try_take(5).unwrap();
        assert!(pool.try_take(1).is_none());
        assert_eq!((a.len_bytes(), b.len_bytes()), (3 * 4096, 5 * 4096));
        let again = a.clone();
        drop(a);
        assert!(pool.try_take(1).is_none(), "a clone keeps the run");
        drop(again);
        assert!(pool.try_take(3).is_some());
        assert_eq!(pool.used(), 5);
    }

    #[test]
    fn what_occupies_memory_is_taken_again_rather_than_other_frames() {
        let pool = Pool::new(64, 4096).unwrap();
        pool.set_limit(16);
        let mut runs = [3, 5, 2, 1].map(|frames| pool.try_take(frames));
        for which in [0, 3, 2, 1, 2, 0, 1, 3] {
            let frames = runs[which].take().unwrap().len_bytes() / 4096;
            runs[which] = pool.try_take(frames);
        }
        assert_eq!(lock(&pool.state).touched_count, 3 + 5 + 2 + 1);
        // What several left behind serves fewer, too.
        let [three, five, ..] = &mut runs;
        drop((three.take(), five.take()));
        let small = [pool.try_take(2), pool.try_take(2), pool.try_take(3)];
        assert!(small.iter().all(Option::is_some));
        assert_eq!(lock(&pool.state).touched_count, 3 + 5 + 2 + 1);
    }

    #[test]
    fn what_has_been_free_for_longest_is_given_back_first() {
        let pool = Pool::new(8, 4096).unwrap();
        let (old, new) = (pool.try_take(2).unwrap(), pool.try_take(2).unwrap());
        let (old_at, new_at) = (old.first() as usize, new.first() as usize);
        drop(old);
        drop(new);
        pool.set_limit(2);
        let touched = lock(&pool.state).touched.clone();
        assert_eq!((touched[old_at], touched[new_at]), (false, true));
    }

    #[test]
    fn bytes_outlive_the_pool_handle() {
        let pool = Pool::new(2, 4096).unwrap();
        let run = pool.try_take(1).unwrap();
        // SAFETY: freshly taken, nobody else knows it.
        unsafe { run.bytes_mut(0, 5) }.copy_from_slice(b"hello");
        drop(pool);
        assert_eq!(run.bytes(0, 5), b"hello");
    }

    #[test]
    fn a_lower_limit_refuses_and_a_window_skips_what_is_held() {
        let pool = Pool::new(8, 4096).unwrap();
        pool.set_limit(2);
        let held = pool.try_take(2).unwrap();
        assert!(pool.try_take(1).is_none());
        pool.set_limit(8);
        let window = pool.window(4, |first| first != held.first() as usize).unwrap();
        assert!(window.start >= 2);
    }
}
