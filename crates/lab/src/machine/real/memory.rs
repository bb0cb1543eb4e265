//! Memory for real I/O: a mapped file, and a buffer at an address that direct I/O accepts.
//!
//! Invariants: every access to a mapping is checked to lie within it; the mapping lives as long as
//! its owner. Threads: one user.

use std::fs::File;
use std::io;

use super::DIRECT_BYTES;

/// A memory-mapped file.
pub(super) struct Mapping {
    start: *mut u8,
    len: usize,
}

impl Mapping {
    pub(super) fn new(file: &File, len: usize) -> io::Result<Mapping> {
        use std::os::fd::AsRawFd;
        let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at a place the system chooses; it touches no memory of ours.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), len, access, shared, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { start: start.cast(), len })
    }

    fn check(&self, offset: u64, bytes: u32) -> io::Result<usize> {
        let end = offset.checked_add(u64::from(bytes)).filter(|&end| end <= self.len as u64);
        end.map(|_| offset as usize).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let offset = self.check(offset, buf.len() as u32)?;
        // SAFETY: the range is within the mapping, which lives as long as `self`, and nobody
        // else writes the file, which this machine made.
        unsafe {
            std::ptr::copy_nonoverlapping(self.start.add(offset), buf.as_mut_ptr(), buf.len())
        };
        Ok(())
    }

    pub(super) fn write(&mut self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let offset = self.check(offset, buf.len() as u32)?;
        // SAFETY: as for `read`, and `&mut self` keeps readers of the mapping away.
        unsafe { std::ptr::copy_nonoverlapping(buf.as_ptr(), self.start.add(offset), buf.len()) };
        Ok(())
    }

    pub(super) fn flush(&self) -> io::Result<()> {
        // SAFETY: the whole mapping, which lives as long as `self`.
        match unsafe { libc::msync(self.start.cast(), self.len, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` and nobody can use it after this.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

/// A buffer at an address that direct I/O accepts.
#[derive(Default)]
pub(super) struct Aligned {
    bytes: Vec<u8>,
}

impl Aligned {
    pub(super) fn slice(&mut self, len: usize) -> &mut [u8] {
        let align = DIRECT_BYTES as usize;
        if self.bytes.len() < len + align {
            self.bytes.resize(len + align, 0xa5);
        }
        let start = self.bytes.as_ptr().align_offset(align);
        &mut self.bytes[start..start + len]
    }
}
