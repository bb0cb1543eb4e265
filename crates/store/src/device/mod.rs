//! Disk I/O: the [`Device`] trait that the engine reads and writes through, and its implementations
//! on files and block devices.
//!
//! The engine never touches a file descriptor itself, so that a simulated device (crate
//! `damelo-store-sim`) can stand in for a disk and replay crashes and faults from a seed. Threads:
//! any thread may submit; `Io::done` runs on the thread that completes the I/O.

mod absent;
mod batch;
mod file;
mod journal;
mod open;
mod open_error;
mod queue;
mod sys;
#[cfg(test)]
mod tests;
mod threads;
#[cfg(target_os = "linux")]
mod uring;

use std::fmt;
use std::io;
use std::time::Duration;

pub(crate) use absent::Absent;
pub use batch::{Deferral, submit_deferred};
pub(crate) use file::{completing, on_completion_thread};
pub use open::{IoEngine, OpenOptions, Opened, open};
pub(crate) use open::{UndoOnDrop, bytes_anew, no_device, open_undoable};
pub use open_error::DeviceOpenError;

/// Direction of an [`Io`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoOp {
    /// Fill the buffer from the device.
    Read,
    /// Write the buffer to the device.
    Write,
}

/// A raw view of memory that takes part in one I/O.
///
/// The memory is owned by the I/O's `done` closure, through its captures; see [`IoBuf::new`].
#[derive(Debug)]
pub struct IoBuf {
    ptr: *mut u8,
    len: usize,
}

// SAFETY: an IoBuf is a plain pointer whose validity, and freedom from conflicting access until
// `done` has run, is promised by the caller of `IoBuf::new`; moving it between threads is sound.
unsafe impl Send for IoBuf {}

impl IoBuf {
    /// Describes `len` bytes at `ptr`.
    ///
    /// # Safety
    /// Until the `done` closure of the [`Io`] has been called, the memory must stay valid; during a
    /// read nothing else may access it, during a write nothing may change it.
    pub unsafe fn new(ptr: *mut u8, len: usize) -> IoBuf {
        IoBuf { ptr, len }
    }

    /// Start of the memory.
    pub fn as_ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True for a buffer of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// One read or write of consecutive device bytes, from or to one or more pieces of memory.
pub struct Io {
    /// Read or write.
    pub op: IoOp,
    /// Byte offset on the device, a multiple of [`DeviceInfo::block_bytes`].
    pub offset: u64,
    /// Pieces of memory, in device order; each a multiple of the block size in address and length.
    pub bufs: Vec<IoBuf>,
    /// Called exactly once with the outcome. A short transfer is an error
    /// (`UnexpectedEof` or `WriteZero`), never a success.
    pub done: Box<dyn FnOnce(io::Result<()>) + Send>,
}

impl fmt::Debug for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Io")
            .field("op", &self.op)
            .field("offset", &self.offset)
            .field("bytes", &self.len_bytes())
            .finish_non_exhaustive()
    }
}

impl Io {
    /// Total bytes to transfer.
    pub fn len_bytes(&self) -> u64 {
        self.bufs.iter().map(|b| b.len() as u64).sum()
    }
}

/// Properties of a device.
#[derive(Debug, Clone)]
pub struct DeviceInfo {
    /// Path or other name, for messages.
    pub name: String,
    /// Usable bytes.
    pub size_bytes: u64,
    /// Alignment that offsets, lengths and addresses must have (512 or 4096; 1 if buffered).
    pub block_bytes: u32,
    /// True when the page cache is bypassed (`O_DIRECT`).
    pub direct: bool,
    /// True for a disk with seeks; requests then go through a two-way elevator.
    pub seeks: bool,
    /// What performs the I/O: `io_uring`, `threads`, `sim`.
    pub io_engine: &'static str,
}

/// Counters of one device since it was opened. Times are sums in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Reads completed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes completed.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Syncs that failed. The store counts them; a device need not.
    pub sync_errors: u64,
    /// Time that I/Os waited between submission and hand-over to the device.
    pub queue_ns: u64,
    /// Time between hand-over to the device and completion.
    pub device_ns: u64,
    /// Largest number of I/Os in flight at the device.
    pub depth_max: u32,
}

/// A byte-addressed disk. All methods may be called from any thread at once.
pub trait Device: Send + Sync + 'static {
    /// Properties that do not change while the device is open.
    fn info(&self) -> &DeviceInfo;

    /// Starts an I/O; `io.done` is called exactly once, before or after this returns. Reads are
    /// started before queued writes.
    fn submit(&self, io: Io);

    /// As [`Device::submit`], for a read that holds up others: it goes before all reads that are
    /// queued but those that came this way. By default it does not.
    fn submit_first(&self, io: Io) {
        self.submit(io);
    }

    /// Waits, for `most` at most, until `done` of every I/O submitted has returned and is dropped,
    /// with all that it holds. For those that call `done` before anyone can wait for it, nothing.
    fn settle(&self, most: Duration) {
        let _ = most;
    }

    /// Reads on the calling thread, blocking. Alignment as for [`Io`].
    ///
    /// # Errors
    /// Whatever the device reports; a short read is `UnexpectedEof`.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes on the calling thread, blocking. Alignment as for [`Io`].
    ///
    /// # Errors
    /// Whatever the device reports; a short write is `WriteZero`.
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()>;

    /// As [`Device::read_at`], but waits for no other request, not even for one that never ends:
    /// finds out whether a device that was silent does what it is asked again. As `read_at`, unless
    /// implemented.
    ///
    /// # Errors
    /// Whatever the device reports, an early end of file included.
    fn read_past(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read_at(offset, buf)
    }

    /// Makes all I/O completed so far survive a power loss.
    ///
    /// # Errors
    /// Whatever the device reports.
    fn sync(&self) -> io::Result<()>;

    /// Opens `len` bytes at `offset` as a journal area: small unaligned writes that survive the
    /// death of the process as soon as they return. `offset` and `len` are multiples of 4096.
    ///
    /// # Errors
    /// Whatever the device reports while the area is prepared.
    fn journal(&self, offset: u64, len: u64) -> io::Result<Box<dyn JournalArea>>;

    /// Counters since the device was opened.
    fn stats(&self) -> DeviceStats;
}

/// Small unaligned writes into a fixed area of a device (see [`Device::journal`]).
pub trait JournalArea: Send + Sync + 'static {
    /// Reads the whole area.
    ///
    /// # Errors
    /// Whatever the device reports.
    fn read_all(&self) -> io::Result<Vec<u8>>;

    /// Writes `bytes` at `offset` within the area. When it returns, the bytes survive the death of
    /// the process, but not yet a power loss. There is no lock: concurrent calls must use disjoint
    /// ranges, or the area holds a mixture of both.
    ///
    /// # Errors
    /// Whatever the device reports.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes ready for writes what lies around this offset, which will be written to soon. Called
    /// ahead of need, while others write, by a thread that may wait for the device. By default
    /// there is nothing to do.
    fn prepare(&self, _offset: u64) {}

    /// Makes earlier writes survive a power loss.
    ///
    /// # Errors
    /// Whatever the device reports. Of what was written before, nothing need be covered by a later
    /// sync that succeeds, unless it was written again.
    fn sync(&self) -> io::Result<()>;
}
