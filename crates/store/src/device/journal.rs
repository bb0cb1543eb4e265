//! A journal area: a part of the device's file that is written in small pieces through the page
//! cache, so that writes survive the death of the process without a system call.
//!
//! Owns: a buffered descriptor of the same file, opened anew, and the mapping of the area. Linux
//! tells a write-back that failed once for each open file: a sync of the volume would else hear in
//! the journal's place that a delete was lost. Invariants: while a journal is open, the area is
//! accessed only through this descriptor and the rest of the file only through the device's
//! `O_DIRECT` descriptor, so that page cache and direct I/O never disagree. Blocks are allocated
//! before mapping, and only pages that are resident and locked are stored to (see `memory`), so a
//! store to the mapping meets neither a hole nor a read error (either would raise SIGBUS); other
//! processes must not truncate the file. A
//! file system that does not overwrite in place could still run out of room at such a store, and
//! one that has shut down for an error could refuse it, both with a signal; there, and wherever
//! mapping or locking fails, `pwrite` is used: it costs a system call, fails with an error, and
//! survives the death of the process equally well.
//!
//! Threads: any thread writes, without a lock. Concurrent writes must use disjoint ranges;
//! overlapping ones leave a mixture of both in the area and affect nothing else, since no Rust
//! reference to the mapping ever exists and reads go through the descriptor. After a failed `sync`
//! the kernel takes the data for written, and may drop it where no mapping holds the pages: it has
//! to be written again before the next `sync` counts.

mod memory;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use self::memory::Memory;
use super::JournalArea;
use super::file::{Core, short};
use super::{IoOp, sys};

/// Granularity of areas.
const ALIGN: u64 = 4096;

/// Bytes read or written at once while an area is prepared.
const CHUNK: u64 = 1 << 20;

/// One block of an area in this many may be unreadable: if there are more, the fault is not theirs.
const BAD_PART: u64 = 16;
/// What a block is filled with that could not be read. Zeros would be where the records end.
const NO_RECORD: u8 = 0xff;

/// A journal area on a file; see the module.
pub(super) struct FileJournal {
    file: File,
    /// Keeps the device's file, and so its lock, as long as the journal can write.
    _core: Arc<Core>,
    offset: u64,
    len: u64,
    memory: Option<Memory>,
}

impl FileJournal {
    /// Prepares `len` bytes at `offset` of a device of `size` bytes.
    pub(super) fn open(
        core: &Arc<Core>,
        size: u64,
        offset: u64,
        len: u64,
    ) -> io::Result<FileJournal> {
        if len == 0 || !offset.is_multiple_of(ALIGN) || !len.is_multiple_of(ALIGN) {
            let text = format!("journal area of {len} bytes at {offset}: not multiples of {ALIGN}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if offset.checked_add(len).is_none_or(|end| end > size) {
            return Err(short(IoOp::Read));
        }
        let file = sys::reopen(&core.file, &core.path)?;
        let is_mapped = sys::stores_never_fail(&file);
        // Of a longer area, pieces are settled when they are locked.
        settle(&file, offset, len, is_mapped && memory::is_whole(len))?;
        let memory = if is_mapped { Memory::of(&file, offset..offset + len) } else { None };
        Ok(FileJournal { file, _core: Arc::clone(core), offset, len, memory })
    }

    /// True if writes go to mapped memory.
    #[cfg(test)]
    pub(super) fn is_mapped(&self) -> bool {
        self.memory.is_some()
    }

    #[cfg(test)]
    pub(super) fn locked_pieces(&self) -> Option<Vec<u64>> {
        self.memory.as_ref().and_then(Memory::locked)
    }

    /// As if the system locked no more.
    #[cfg(test)]
    pub(super) fn refuse_locks(&self) {
        self.memory.as_ref().inspect(|memory| memory.refuse());
    }

    #[cfg(test)]
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Continues with `pwrite`, as if mapping had failed.
    #[cfg(test)]
    pub(super) fn unmap(&mut self) {
        self.memory = None;
    }
}

/// Reads the whole area, to check that it is readable. On a file it also writes the same bytes
/// back, to allocate blocks (a new or sparse file may have none), and if it is to be mapped: ext4
/// keeps with a page that was written, not with one that was read, where its blocks lie. Where it
/// is nearly full it would otherwise look them up for a store, and once it has shut down it cannot.
/// An interruption leaves the contents unchanged.
fn settle(file: &File, offset: u64, len: u64, is_mapped: bool) -> io::Result<()> {
    // Checked first: cached pages can make an unwritten range look like data.
    let allocate = sys::has_holes(file, offset, len)?;
    let writes = allocate || (is_mapped && file.metadata()?.is_file());
    let bad = read_through(file, offset, len, writes)?;
    if allocate || bad > 0 {
        file.sync_data()?;
    }
    Ok(())
}

/// Reads an area, and writes the same bytes back if `writes`. Few blocks that cannot be read, and
/// that can in the other half of the area, which is a copy, are overwritten by what is no record:
/// the disk replaces them, and what they held is written again from the copy. Returns how many; of
/// others, nothing is overwritten.
fn read_through(file: &impl FileExt, offset: u64, len: u64, writes: bool) -> io::Result<usize> {
    let mut chunk = vec![0; len.min(CHUNK) as usize];
    let mut bad: Vec<u64> = Vec::new();
    for at in (0..len).step_by(CHUNK as usize) {
        let chunk = &mut chunk[..(len - at).min(CHUNK) as usize];
        let whole = file.read_exact_at(chunk, offset + at);
        let piece = if whole.is_ok() { chunk.len() } else { ALIGN as usize };
        for (number, bytes) in chunk.chunks_mut(piece).enumerate() {
            let at = at + (number * piece) as u64;
            let read = if whole.is_ok() { Ok(()) } else { file.read_exact_at(bytes, offset + at) };
            match read {
                Ok(()) if writes => file.write_all_at(bytes, offset + at)?,
                Ok(()) => (),
                Err(error) => {
                    let lacks_copy =
                        at.checked_sub(len / 2).is_some_and(|copy| bad.contains(&copy));
                    let is_cut = error.kind() == io::ErrorKind::UnexpectedEof;
                    if is_cut || lacks_copy || bad.len() as u64 >= len / ALIGN / BAD_PART {
                        return Err(error);
                    }
                    bad.push(at);
                }
            }
        }
    }
    for at in &bad {
        file.write_all_at(&[NO_RECORD; ALIGN as usize], offset + at)?;
    }
    Ok(bad.len())
}

impl JournalArea for FileJournal {
    fn read_all(&self) -> io::Result<Vec<u8>> {
        let len = usize::try_from(self.len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut all = vec![0; len];
        // The mapping's pages are those of the page cache, so this read sees every earlier write.
        self.file.read_exact_at(&mut all, self.offset)?;
        Ok(all)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > self.len) {
            let text = format!("{} bytes at {offset} of a journal of {}", bytes.len(), self.len);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        match &self.memory {
            Some(memory) => memory.write(&self.file, offset, bytes),
            None => self.file.write_all_at(bytes, self.offset + offset),
        }
    }

    fn prepare(&self, offset: u64) {
        if let Some(memory) = self.memory.as_ref().filter(|_| offset < self.len) {
            memory.prepare(&self.file, offset);
        }
    }

    fn sync(&self) -> io::Result<()> {
        // Includes pages dirtied through the mapping, since they are pages of this file.
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::ops::Range;

    use super::*;

    /// A file of which some bytes cannot be read until they are written.
    struct Failing {
        bytes: RefCell<Vec<u8>>,
        bad: RefCell<Vec<Range<u64>>>,
        writes: RefCell<Vec<Range<u64>>>,
    }

    impl Failing {
        fn new(len: u64, bad: &[Range<u64>]) -> Failing {
            Failing {
                bytes: RefCell::new((0..len).map(|at| (at / ALIGN) as u8).collect()),
                bad: RefCell::new(bad.to_vec()),
                writes: RefCell::default(),
            }
        }
    }

    impl FileExt for Failing {
        fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
            let end = at + buf.len() as u64;
            if self.bad.borrow().iter().any(|bad| bad.start < end && at < bad.end) {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            buf.copy_from_slice(&self.bytes.borrow()[at as usize..end as usize]);
            Ok(buf.len())
        }

        fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize> {
            let end = at + buf.len() as u64;
            self.bad.borrow_mut().retain(|bad| bad.start < at || bad.end > end);
            self.bytes.borrow_mut()[at as usize..end as usize].copy_from_slice(buf);
            self.writes.borrow_mut().push(at..end);
            Ok(buf.len())
        }
    }

    #[test]
    fn few_blocks_that_cannot_be_read_are_written_anew_and_all_others_stay() {
        let len = 2 * CHUNK + 4 * ALIGN;
        for writes in [false, true] {
            let bad = [5 * ALIGN..5 * ALIGN + 512, CHUNK + 9..CHUNK + 99];
            let file = Failing::new(ALIGN + len, &bad);
            let sound = file.bytes.borrow().clone();
            assert_eq!(read_through(&file, ALIGN, len, writes).unwrap(), 2);
            assert!(file.bad.borrow().is_empty(), "each can be read");
            for (at, (is, was)) in file.bytes.borrow().iter().zip(&sound).enumerate() {
                let block = at as u64 / ALIGN;
                let was_bad = block == 5 || block == CHUNK / ALIGN;
                assert_eq!(*is, if was_bad { NO_RECORD } else { *was }, "block {block}");
            }
            if !writes {
                assert_eq!(file.writes.borrow().len(), 2, "nothing else is written");
            }
        }
    }

    #[test]
    fn an_area_that_cannot_be_read_is_an_error_and_left_alone() {
        let blocks = |numbers: &[u64]| -> Vec<Range<u64>> {
            numbers.iter().map(|n| n * ALIGN..n * ALIGN + 1).collect()
        };
        // The least that a store has: 64 blocks, of which 32 are the copy of the others.
        let len = 64 * ALIGN;
        let all: Vec<u64> = (0..64).collect();
        for bad in [&all[..], &all[..5], &[7, 39], &[0, 32]] {
            let file = Failing::new(len, &blocks(bad));
            let error = read_through(&file, 0, len, false).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EIO), "{bad:?}");
            assert!(file.writes.borrow().is_empty(), "{bad:?}");
        }
        let file = Failing::new(len, &blocks(&[7, 40, 63]));
        assert_eq!(read_through(&file, 0, len, false).unwrap(), 3, "each has a copy");
    }
}
