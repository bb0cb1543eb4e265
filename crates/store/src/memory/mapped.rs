//! Memory mapped from the system directly, so that freed memory returns to the system at once.
//!
//! Owns nothing. A general allocator keeps the memory that growing tables leave behind: all shards'
//! tables grow at about the same time, and the freed blocks fit no later request. With one arena
//! for each thread, and buffers of megabytes in between, this took more memory than the tables
//! themselves (docs/decisions/0016). Threads: any.

use std::alloc::{Layout, handle_alloc_error};
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator, Global};

/// Smaller allocations come from the general allocator, since mappings are whole pages: two of
/// them, less what remains where the length of an element does not divide that.
pub(super) const MAPPED_BYTES_MIN: usize = (8 << 10) - 64;
/// The smallest page size of all supported systems; mappings are aligned to it.
pub(super) const PAGE_BYTES: usize = 4 << 10;

/// Memory counts as taken only once it is touched. Miri does not support `MAP_NORESERVE`.
const MAP_FLAGS: libc::c_int =
    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | if cfg!(miri) { 0 } else { libc::MAP_NORESERVE };

/// A new mapping of zeros.
pub(super) fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a fresh private anonymous mapping aliases nothing.
    let ptr = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            MAP_FLAGS,
            -1,
            0,
        )
    };
    if ptr == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(ptr.cast()).ok_or_else(|| io::Error::other("mmap returned null"))
}

/// A new mapping of zeros in pages of the smallest size, so that only touched pages occupy memory.
/// With larger pages, where the system uses them by default, untouched parts would count too.
pub(super) fn map_small_pages(bytes: usize) -> io::Result<NonNull<u8>> {
    let start = map(bytes)?;
    // SAFETY: the mapping is new and ours.
    unsafe { use_small_pages(start.as_ptr(), bytes) };
    Ok(start)
}

/// A new mapping of zeros that the system may back with large pages, for fewer page faults.
pub(super) fn map_large_pages(bytes: usize) -> io::Result<NonNull<u8>> {
    let start = map(bytes)?;
    // SAFETY: the mapping is new and ours.
    unsafe { use_large_pages(start.as_ptr(), bytes) };
    Ok(start)
}

/// Lets the system back a part of a mapping with large pages when it is touched. Pages that are
/// present already stay as they are.
///
/// # Safety
/// Whole pages of a mapping of [`map`].
pub(super) unsafe fn use_large_pages(ptr: *mut u8, bytes: usize) {
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: by the caller. A system without large pages refuses, which is harmless.
    unsafe {
        libc::madvise(ptr.cast(), bytes, libc::MADV_HUGEPAGE);
    }
    let _ = (ptr, bytes);
}

/// Makes the system back a part of a mapping with pages of the smallest size from now on. Memory
/// that is present stays; parts of it can be returned on their own, and do not come back with their
/// neighbours.
///
/// # Safety
/// Whole pages of a mapping of [`map`].
pub(super) unsafe fn use_small_pages(ptr: *mut u8, bytes: usize) {
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: by the caller. A system without large pages refuses, which is harmless.
    unsafe {
        libc::madvise(ptr.cast(), bytes, libc::MADV_NOHUGEPAGE);
    }
    let _ = (ptr, bytes);
}

/// Ends a mapping.
///
/// # Safety
/// It was made by [`map`] with this length, and nobody uses it any more.
pub(super) unsafe fn unmap(ptr: NonNull<u8>, bytes: usize) {
    // SAFETY: by the caller. Failure would only mean that the memory stays taken.
    unsafe { libc::munmap(ptr.as_ptr().cast(), bytes) };
}

/// Returns the memory of a part of a mapping. The part stays mapped and reads as zeros afterwards.
///
/// # Safety
/// Whole pages of a mapping of [`map`], whose contents nobody wants.
#[cfg(miri)]
pub(super) unsafe fn release(ptr: *mut u8, bytes: usize) {
    // SAFETY: by the caller. Miri has no `madvise`; the write makes it report any reference left to
    // this memory.
    unsafe { std::ptr::write_bytes(ptr, 0, bytes) };
}

/// Returns the memory of a part of a mapping. The part stays mapped and reads as zeros afterwards.
///
/// # Safety
/// Whole pages of a mapping of [`map`], whose contents nobody wants.
#[cfg(not(miri))]
pub(super) unsafe fn release(ptr: *mut u8, bytes: usize) {
    // SAFETY: by the caller. Failure only means that the memory stays resident.
    unsafe { libc::madvise(ptr.cast(), bytes, libc::MADV_DONTNEED) };
}

/// An allocator that maps each large allocation separately, and takes small ones from the general
/// allocator.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mapped;

/// A list that grows large and is dropped: its memory returns to the system.
pub(crate) type MappedVec<T> = allocator_api2::vec::Vec<T, Mapped>;

fn is_mapped(layout: Layout) -> bool {
    layout.size() >= MAPPED_BYTES_MIN && layout.align() <= PAGE_BYTES
}

// SAFETY: each allocation is new, stays until it is deallocated, and has the requested layout. The
// layout alone decides between the two sources, so a deallocation reaches the right one. `Mapped`
// has no state, so its copies are the same allocator.
unsafe impl Allocator for Mapped {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if !is_mapped(layout) {
            return Global.allocate(layout);
        }
        let start = map(layout.size()).map_err(|_| AllocError)?;
        Ok(NonNull::slice_from_raw_parts(start, layout.size()))
    }

    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        if is_mapped(layout) {
            // SAFETY: `allocate` has mapped it, since the layout is the same, and it is given up.
            unsafe { unmap(ptr, layout.size()) };
        } else {
            // SAFETY: for the same reason it came from there.
            unsafe { Global.deallocate(ptr, layout) };
        }
    }
}

/// Memory aligned for direct I/O, for the few transfers that do not go through the pool.
pub(crate) struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its memory, as a `Vec<u8>` does.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// `len` zero bytes, aligned to 4096. If the system has no memory the process ends, as with any
    /// failed allocation.
    pub(crate) fn zeroed(len: usize) -> AlignedBuf {
        let start = map(mapped_bytes(len)).unwrap_or_else(|_| {
            handle_alloc_error(
                Layout::from_size_align(len, PAGE_BYTES).unwrap_or(Layout::new::<u8>()),
            )
        });
        AlignedBuf { start, len }
    }
}

/// Mappings cannot be empty.
fn mapped_bytes(len: usize) -> usize {
    len.max(1).next_multiple_of(PAGE_BYTES)
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: mapped by `zeroed` with this length; the owner is gone.
        unsafe { unmap(self.start, mapped_bytes(self.len)) };
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes are mapped, were initialised to zeros, and belong to this buffer.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_every_size_hold_what_was_put_there() {
        let mut held = Vec::new();
        for size in [1, 100, MAPPED_BYTES_MIN - 1, MAPPED_BYTES_MIN, MAPPED_BYTES_MIN + 1, 1 << 20]
        {
            let layout = Layout::from_size_align(size, 16).unwrap();
            let ptr = Mapped.allocate(layout).unwrap().cast::<u8>();
            // SAFETY: it was just allocated with this size.
            unsafe { std::ptr::write_bytes(ptr.as_ptr(), size as u8, size) };
            held.push((ptr, layout));
        }
        for (ptr, layout) in held {
            // SAFETY: allocated above, written to its end, and not given back yet.
            let bytes = unsafe { std::slice::from_raw_parts(ptr.as_ptr(), layout.size()) };
            assert!(bytes.iter().all(|byte| *byte == layout.size() as u8));
            // SAFETY: allocated above with this layout, and not used after.
            unsafe { Mapped.deallocate(ptr, layout) };
        }
    }
}
