//! The command's allocator: mimalloc for what is small, the system's for what is large.
//!
//! A miss of the proxy makes and drops some fifty allocations, several too long for the fast lists
//! of the system's allocator. The lab's tables grow to hundreds of megabytes, which the system
//! moves without a copy, and without the room that mimalloc leaves (docs/decisions/0021).
//! Invariant: the length of an allocation alone decides whose it is. Threads: any, and one that
//! gives free memory back to the operating system where a program runs for long.

use std::alloc::{GlobalAlloc, Layout, System};
use std::time::{Duration, Instant};
use std::{io, thread};

use libmimalloc_sys::mi_malloc;
use mimalloc::MiMalloc;

/// From this length on an allocation is the system's. Buffers of a miss are shorter, but for those
/// of large bodies, of which a slow client may hold one for long: mimalloc would keep the pages of
/// all that came beside it. With a limit of a megabyte, the lab's small tables took half as much
/// again.
const LARGE_BYTES: usize = 32 << 10;

/// Every block of mimalloc's has this alignment. A request that names one goes a longer way, and
/// for some lengths gets a longer block.
const ALIGNED: usize = 8;

/// How often memory that is free is given back.
const GIVE_BACK_INTERVAL: Duration = Duration::from_secs(10);
/// How often it is looked whether that should be sooner.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// By how much the process may grow before it is.
const GROWTH_BYTES_MAX: u64 = 32 << 20;

pub(crate) struct Allocator;

/// Starts the thread that gives memory back as long as the process lives.
pub(crate) fn give_back_from_now_on() -> io::Result<()> {
    let body = || {
        let mut interval = GIVE_BACK_INTERVAL;
        loop {
            let (began, before) = (Instant::now(), resident_bytes());
            let mut has_grown = false;
            while began.elapsed() < interval && !has_grown {
                thread::sleep(LOOK_INTERVAL);
                has_grown = resident_bytes() > before + GROWTH_BYTES_MAX;
            }
            give_back();
            // What made it grow may be free soon.
            interval = if has_grown { LOOK_INTERVAL } else { GIVE_BACK_INTERVAL };
        }
    };
    thread::Builder::new().name("damelo-alloc".to_owned()).spawn(body).map(drop)
}

/// Gives the free memory of the system's allocator back to the operating system. glibc maps what is
/// large only until the first such block is freed; from then on it keeps blocks of that length, and
/// returns them when nothing lies behind them any more: after two hundred downloads at once 200 MiB
/// of free buffers stayed. Other C libraries give it back themselves.
fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: touches free memory only, under the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Bytes of this process that are in memory; 0 where the system does not say.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    // SAFETY: asks for a number.
    pages * u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0)
}

fn is_large(bytes: usize) -> bool {
    bytes >= LARGE_BYTES
}

// SAFETY: each call is passed on, as it is, to an allocator that keeps this contract; which one
// depends on the length alone, so that memory goes back to where it came from.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller; memory of `mi_malloc` goes back through `MiMalloc` like any other.
        unsafe {
            match (is_large(layout.size()), layout.align() <= ALIGNED) {
                (true, _) => System.alloc(layout),
                (false, true) => mi_malloc(layout.size()).cast(),
                (false, false) => MiMalloc.alloc(layout),
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller.
        unsafe {
            match is_large(layout.size()) {
                true => System.alloc_zeroed(layout),
                false => MiMalloc.alloc_zeroed(layout),
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: by the caller.
        unsafe {
            match is_large(layout.size()) {
                true => System.dealloc(ptr, layout),
                false => MiMalloc.dealloc(ptr, layout),
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        match (is_large(layout.size()), is_large(bytes)) {
            // SAFETY: by the caller.
            (false, false) => return unsafe { MiMalloc.realloc(ptr, layout, bytes) },
            // SAFETY: by the caller.
            (true, true) => return unsafe { System.realloc(ptr, layout, bytes) },
            _ => {}
        }
        // SAFETY: the caller asks for a valid length with this alignment.
        let moved = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
        // SAFETY: a length of 0 is excluded by the caller.
        let to = unsafe { self.alloc(moved) };
        if !to.is_null() {
            // SAFETY: both are as long as that, and one of them is new. The old one is given back
            // only after it was copied.
            unsafe {
                to.copy_from_nonoverlapping(ptr, layout.size().min(bytes));
                self.dealloc(ptr, layout);
            }
        }
        to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_as_asked_for() {
        for (bytes, align) in (1..2_000).flat_map(|bytes| [1, 2, 4, 8, 16, 64].map(|a| (bytes, a)))
        {
            let layout = Layout::from_size_align(bytes, align).unwrap();
            // SAFETY: not empty, and given back with the same layout.
            let at = unsafe { Allocator.alloc(layout) };
            assert!(!at.is_null() && at.addr().is_multiple_of(align), "{bytes} bytes by {align}");
            // SAFETY: as above.
            unsafe { Allocator.dealloc(at, layout) };
        }
    }

    /// Blocks that stay lie between those that are freed, as after many fills at once.
    #[cfg(target_env = "gnu")]
    #[test]
    fn what_is_free_is_given_back() {
        const BLOCK_BYTES: usize = 144 << 10;
        // The first of that length is mapped, and freeing it has the others come from the heap.
        drop(vec![1_u8; 2 * BLOCK_BYTES]);
        let mut blocks: Vec<Vec<u8>> = (0..800).map(|_| vec![1; BLOCK_BYTES]).collect();
        let mut number = 0;
        blocks.retain(|_| {
            number += 1;
            number % 8 == 0
        });
        let before = resident_bytes();
        give_back();
        let freed = before.saturating_sub(resident_bytes());
        assert!(freed > 60 << 20, "{freed} of {} bytes", 700 * BLOCK_BYTES);
        assert!(blocks.iter().flatten().all(|&byte| byte == 1));
    }

    #[test]
    fn what_grows_and_shrinks_across_the_limit_keeps_its_bytes() {
        // The tests' own allocator is this one.
        let mut bytes: Vec<u8> = Vec::with_capacity(1);
        for length in [1, 100, LARGE_BYTES - 1, LARGE_BYTES, 3 * LARGE_BYTES] {
            bytes.reserve_exact(length - bytes.len());
            bytes.extend((bytes.len()..length).map(|at| at as u8));
        }
        for length in [2 * LARGE_BYTES, LARGE_BYTES, LARGE_BYTES - 1, 10] {
            bytes.truncate(length);
            bytes.shrink_to_fit();
            assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == at as u8), "{length}");
        }
        assert!(vec![0_u8; 2 * LARGE_BYTES].iter().all(|&byte| byte == 0));
    }
}
