//! A device over one file descriptor: checks requests, counts them, and passes them to a driver.
//!
//! Owns: the open file (and so its lock), the counters, and the driver with its threads.
//! Invariants: no misaligned or out-of-range request reaches a driver; `done` of every request is
//! called exactly once; the file stays open until the last driver thread and journal are gone.
//! Threads: any thread may call; `done` runs on a driver thread, or on the submitting thread when
//! the request is refused. Dropping the device waits for all I/O, unless a `done` closure drops it:
//! then the driver drains on its own, after the drop has returned.

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::batch::submit_deferred;
use super::open::IoEngine;
use super::queue::IoQueue;
use super::{Device, DeviceInfo, DeviceStats, Io, IoBuf, IoOp, JournalArea, journal, threads};

/// I/Os in flight at a disk with seeks: enough for it to sort by angle, few enough that the
/// elevator and the priority of reads stay effective.
const SEEKS_DEPTH: u32 = 8;

/// Most writes in flight at a device. More wait in our queue, where reads overtake them: that many
/// writes of a mebibyte keep any disk busy, and a disk that takes requests in order of arrival
/// would let a read wait for all of them.
const WRITES_DEPTH: u32 = 8;

/// Upper limit of the I/Os in flight at a device, whatever was requested.
const DEPTH_MAX: u32 = 4096;

/// First and longest wait between two looks at what is under way, when a store closes.
const SETTLE_NAP_MIN: Duration = Duration::from_micros(20);
const SETTLE_NAP_MAX: Duration = Duration::from_millis(1);

pub(super) type Done = Box<dyn FnOnce(io::Result<()>) + Send>;

/// Most pieces of memory in one system call.
pub(super) const IOV_MAX: usize = 1024;

/// State shared by drivers, journals and the device.
pub(super) struct Core {
    /// The open file; it carries the lock.
    pub(super) file: File,
    /// Path it was opened by.
    pub(super) path: PathBuf,
    /// Granularity of transfers (1 if buffered).
    pub(super) block: u64,
    /// Statistics.
    pub(super) counters: Counters,
    /// I/Os submitted whose `done` has not returned.
    pub(super) under_way: AtomicU64,
}

impl Core {
    pub(super) fn new(file: File, path: PathBuf, block: u64) -> Core {
        Core { file, path, block, counters: Counters::default(), under_way: AtomicU64::new(0) }
    }

    /// Calls `done` of an I/O, which then is no longer under way. Nothing that `done` holds is
    /// left.
    pub(super) fn complete(&self, done: Done, result: io::Result<()>) {
        done(result);
        self.under_way.fetch_sub(1, Ordering::Release);
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // Closing the file releases the lock too, but the kernel drops the ring's reference to the
        // file only some time later. If unlocking fails, that release is left.
        let _ = self.file.unlock();
    }
}

/// Limits on a driver's I/Os in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// I/Os in flight.
    pub(super) depth: u32,
    /// Writes in flight: fewer, so that a burst of writes leaves room for reads.
    pub(super) writes: u32,
    /// Use the elevator.
    pub(super) seeks: bool,
}

/// An accepted I/O in a driver.
pub(super) struct Request {
    /// The I/O, already checked.
    pub(super) io: Io,
    /// Bytes to transfer, not zero.
    pub(super) total: u64,
    /// Time of submission.
    pub(super) queued: Instant,
    /// A read that goes before others.
    pub(super) first: bool,
}

impl Request {
    /// Queues it.
    pub(super) fn enter(self, queue: &mut IoQueue<Request>) {
        let (op, offset, total) = (self.io.op, self.io.offset, self.total);
        if self.first {
            queue.push_first(offset, total, self);
        } else {
            queue.push(op, offset, total, self);
        }
    }
}

/// Performs I/O asynchronously. Dropping it completes every submitted I/O.
pub(super) trait IoDriver: Send + Sync {
    /// Starts or queues a request.
    fn submit(&self, request: Request);

    /// Starts what other threads have submitted and not announced yet; see `batch`.
    fn start_deferred(&self) {}
}

thread_local! {
    static ON_COMPLETION_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as one that runs `done` closures, which must not wait for other I/Os.
pub(super) fn mark_completion_thread() {
    ON_COMPLETION_THREAD.set(true);
}

/// Runs a `done` closure, on whatever thread the device has for that: until it returns, this is one
/// that must not wait for other I/Os, also where the device is the program's own.
pub(crate) fn completing<T>(done: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            ON_COMPLETION_THREAD.set(self.0);
        }
    }
    let _before = Before(ON_COMPLETION_THREAD.replace(true));
    done()
}

/// True on a thread that runs `done` closures of a file or block device, and within those of any
/// other.
pub(crate) fn on_completion_thread() -> bool {
    ON_COMPLETION_THREAD.get()
}

/// Aborts the process if the thread unwinds through this guard: a dead driver thread would leave
/// I/Os that never complete, with the kernel still writing to their memory.
pub(super) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            abort(format_args!("a device I/O thread panicked (completion closures must not)"));
        }
    }
}

/// Aborts the process, with a message if standard error accepts it.
pub(super) fn abort(why: fmt::Arguments<'_>) -> ! {
    let _ = writeln!(io::stderr(), "damelo: {why}: abort");
    std::process::abort();
}

/// Counters behind [`DeviceStats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
    read_errors: AtomicU64,
    write_errors: AtomicU64,
    queue_ns: AtomicU64,
    device_ns: AtomicU64,
    at_device: AtomicU32,
    depth_max: AtomicU32,
}

impl Counters {
    /// Counts an I/O handed over to the device.
    pub(super) fn started(&self, queued_ns: u64) {
        let depth = self.at_device.fetch_add(1, Relaxed) + 1;
        if depth > self.depth_max.load(Relaxed) {
            self.depth_max.fetch_max(depth, Relaxed);
        }
        if queued_ns > 0 {
            self.queue_ns.fetch_add(queued_ns, Relaxed);
        }
    }

    /// Counts an I/O that the device has completed.
    pub(super) fn finished(&self, op: IoOp, bytes: u64, device_ns: u64, ok: bool) {
        self.at_device.fetch_sub(1, Relaxed);
        self.device_ns.fetch_add(device_ns, Relaxed);
        match (op, ok) {
            (IoOp::Read, true) => {
                self.reads.fetch_add(1, Relaxed);
                self.read_bytes.fetch_add(bytes, Relaxed);
            }
            (IoOp::Write, true) => {
                self.writes.fetch_add(1, Relaxed);
                self.write_bytes.fetch_add(bytes, Relaxed);
            }
            _ => self.failed(op),
        }
    }

    fn failed(&self, op: IoOp) {
        match op {
            IoOp::Read => self.read_errors.fetch_add(1, Relaxed),
            IoOp::Write => self.write_errors.fetch_add(1, Relaxed),
        };
    }

    fn snapshot(&self) -> DeviceStats {
        DeviceStats {
            reads: self.reads.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            writes: self.writes.load(Relaxed),
            write_bytes: self.write_bytes.load(Relaxed),
            read_errors: self.read_errors.load(Relaxed),
            write_errors: self.write_errors.load(Relaxed),
            sync_errors: 0,
            queue_ns: self.queue_ns.load(Relaxed),
            device_ns: self.device_ns.load(Relaxed),
            depth_max: self.depth_max.load(Relaxed),
        }
    }
}

/// Nanoseconds from `from` to `to`; 0 if the clock went back.
pub(super) fn nanos(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
}

/// A [`Device`] on a file or block device.
pub(super) struct FileDevice {
    info: DeviceInfo,
    core: Arc<Core>,
    driver: Box<dyn IoDriver>,
}

impl FileDevice {
    /// Starts a driver on an open, locked file. `info.io_engine` is filled in here. The second part
    /// of the result says why `Auto` did not choose io_uring.
    pub(super) fn start(
        file: File,
        path: PathBuf,
        mut info: DeviceInfo,
        choice: IoEngine,
        queue_depth: u32,
    ) -> io::Result<(FileDevice, Option<io::Error>)> {
        let block = u64::from(info.block_bytes.max(1));
        let core = Arc::new(Core::new(file, path, block));
        let cap = if info.seeks { SEEKS_DEPTH } else { DEPTH_MAX };
        let depth = queue_depth.clamp(1, cap);
        let writes = (depth - depth / 4).clamp(1, WRITES_DEPTH);
        let limits = Limits { depth, writes, seeks: info.seeks };
        let (driver, refused) = match choice {
            IoEngine::Threads => (None, None),
            IoEngine::IoUring => (Some(start_uring(&core, limits)?), None),
            IoEngine::Auto => match start_uring(&core, limits) {
                Ok(driver) => (Some(driver), None),
                Err(e) => (None, Some(e)),
            },
        };
        let driver = match driver {
            Some(driver) => {
                info.io_engine = "io_uring";
                driver
            }
            None => {
                info.io_engine = "threads";
                Box::new(threads::ThreadsDriver::start(Arc::clone(&core), limits)?)
            }
        };
        Ok((FileDevice { info, core, driver }, refused))
    }

    /// Refuses requests that the device would answer with an unclear error.
    fn check(&self, op: IoOp, offset: u64, bufs: &[IoBuf], total: u64) -> io::Result<()> {
        let block = self.core.block;
        let misaligned = |what: &str, value: u64| {
            let text = format!(
                "{}: {what} {value} is not a multiple of the block size {block} (O_DIRECT)",
                self.info.name
            );
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        };
        if block > 1 {
            if !offset.is_multiple_of(block) {
                return misaligned("offset", offset);
            }
            for b in bufs.iter().filter(|b| !b.is_empty()) {
                if !(b.len() as u64).is_multiple_of(block) {
                    return misaligned("buffer length", b.len() as u64);
                }
                if !(b.as_ptr() as u64).is_multiple_of(block) {
                    return misaligned("buffer address", b.as_ptr() as u64);
                }
            }
        }
        match offset.checked_add(total) {
            Some(end) if end <= self.info.size_bytes => Ok(()),
            _ => Err(short(op)),
        }
    }

    /// Queues the I/O, or ends it if it cannot be done.
    fn accept(&self, io: Io, first: bool) {
        let total = io.len_bytes();
        match self.check(io.op, io.offset, &io.bufs, total) {
            Ok(()) if total == 0 => (io.done)(Ok(())),
            Ok(()) => {
                self.core.under_way.fetch_add(1, Relaxed);
                self.driver.submit(Request { io, total, queued: Instant::now(), first });
            }
            Err(e) => {
                self.core.counters.failed(io.op);
                (io.done)(Err(e));
            }
        }
    }

    fn blocking(&self, op: IoOp, offset: u64, buf: IoBuf) -> io::Result<()> {
        let total = buf.len() as u64;
        let bufs = [buf];
        let counters = &self.core.counters;
        self.check(op, offset, &bufs, total).inspect_err(|_| counters.failed(op))?;
        if total == 0 {
            return Ok(());
        }
        counters.started(0);
        let started = Instant::now();
        let result = transfer(&self.core, op, offset, &bufs, total, &mut Vec::new());
        counters.finished(op, total, nanos(started, Instant::now()), result.is_ok());
        result
    }

    /// A blocking read that goes through the queue.
    fn read_queued(&self, offset: u64, buf: IoBuf) -> io::Result<()> {
        let (send, receive) = mpsc::sync_channel(1);
        let done = Box::new(move |result| {
            // The receiver waits below until this has happened, so the channel is open.
            let _ = send.send(result);
        });
        self.submit(Io { op: IoOp::Read, offset, bufs: vec![buf], done });
        submit_deferred();
        match receive.recv() {
            Ok(result) => result,
            // The closure was dropped without a call, which no driver does; the state of the
            // memory is then unknown.
            Err(_) => std::process::abort(),
        }
    }
}

impl Device for FileDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, io: Io) {
        self.accept(io, false);
    }

    fn submit_first(&self, io: Io) {
        let first = io.op == IoOp::Read;
        self.accept(io, first);
    }

    fn settle(&self, most: Duration) {
        // Another thread may have deferred its requests, and wait for this one.
        self.driver.start_deferred();
        let (start, mut nap) = (Instant::now(), SETTLE_NAP_MIN);
        let is_busy = || self.core.under_way.load(Ordering::Acquire) > 0;
        // A thread that runs `done` would wait for itself.
        while !on_completion_thread() && is_busy() && start.elapsed() < most {
            thread::sleep(nap);
            nap = (nap * 2).min(SETTLE_NAP_MAX);
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        // SAFETY: the buffer is borrowed exclusively until this function returns, and both ways
        // below return only after the transfer is over.
        let piece = unsafe { IoBuf::new(buf.as_mut_ptr(), buf.len()) };
        if self.info.seeks && !on_completion_thread() {
            return self.read_queued(offset, piece);
        }
        self.blocking(IoOp::Read, offset, piece)
    }

    fn read_past(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        // SAFETY: the buffer is borrowed exclusively until this function returns, which is after
        // the transfer.
        let piece = unsafe { IoBuf::new(buf.as_mut_ptr(), buf.len()) };
        self.blocking(IoOp::Read, offset, piece)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        // SAFETY: the buffer is borrowed until this function returns, which is after the transfer;
        // a write only reads the memory.
        let piece = unsafe { IoBuf::new(buf.as_ptr().cast_mut(), buf.len()) };
        self.blocking(IoOp::Write, offset, piece)
    }

    fn sync(&self) -> io::Result<()> {
        self.core.file.sync_data()
    }

    fn journal(&self, offset: u64, len: u64) -> io::Result<Box<dyn JournalArea>> {
        let size = self.info.size_bytes;
        Ok(Box::new(journal::FileJournal::open(&self.core, size, offset, len)?))
    }

    fn stats(&self) -> DeviceStats {
        self.core.counters.snapshot()
    }
}

#[cfg(target_os = "linux")]
fn start_uring(core: &Arc<Core>, limits: Limits) -> io::Result<Box<dyn IoDriver>> {
    Ok(Box::new(super::uring::UringDriver::start(Arc::clone(core), limits)?))
}

#[cfg(not(target_os = "linux"))]
fn start_uring(_core: &Arc<Core>, _limits: Limits) -> io::Result<Box<dyn IoDriver>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "io_uring exists on Linux only"))
}

/// The error for a transfer that ended early.
pub(super) fn short(op: IoOp) -> io::Error {
    match op {
        IoOp::Read => {
            io::Error::new(io::ErrorKind::UnexpectedEof, "read beyond the end of the device")
        }
        IoOp::Write => {
            io::Error::new(io::ErrorKind::WriteZero, "write beyond the end of the device")
        }
    }
}

/// Adds `moved` bytes to `progress`; true when `total` is reached. A direct transfer that stops off
/// a block boundary has reached the end of the file and cannot be continued.
pub(super) fn advance(
    op: IoOp,
    moved: u64,
    progress: &mut u64,
    total: u64,
    block: u64,
) -> io::Result<bool> {
    *progress += moved;
    if moved == 0 || (*progress < total && !moved.is_multiple_of(block)) {
        return Err(short(op));
    }
    Ok(*progress >= total)
}

/// Describes the part of `bufs` after `skip` bytes, in at most [`IOV_MAX`] pieces.
pub(super) fn fill_iovecs(bufs: &[IoBuf], mut skip: u64, out: &mut Vec<libc::iovec>) {
    out.clear();
    for b in bufs {
        let len = b.len() as u64;
        if skip >= len {
            skip -= len;
            continue;
        }
        if out.len() == IOV_MAX {
            break;
        }
        // `skip` is below a length that is a usize, so it fits and stays within the buffer.
        let at = skip as usize;
        let base = b.as_ptr().wrapping_add(at).cast();
        out.push(libc::iovec { iov_base: base, iov_len: b.len() - at });
        skip = 0;
    }
}

/// Transfers all of `bufs` on the calling thread.
pub(super) fn transfer(
    core: &Core,
    op: IoOp,
    offset: u64,
    bufs: &[IoBuf],
    total: u64,
    iovecs: &mut Vec<libc::iovec>,
) -> io::Result<()> {
    let mut progress = 0;
    loop {
        fill_iovecs(bufs, progress, iovecs);
        match transfer_once(core, op, offset + progress, iovecs) {
            Ok(moved) => {
                if advance(op, moved, &mut progress, total, core.block)? {
                    return Ok(());
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

fn transfer_once(core: &Core, op: IoOp, offset: u64, iov: &[libc::iovec]) -> io::Result<u64> {
    let fd = core.file.as_raw_fd();
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let at = libc::off_t::try_from(offset).map_err(invalid)?;
    let count = libc::c_int::try_from(iov.len()).map_err(invalid)?;
    // SAFETY: the descriptor is open, and every iovec describes memory that the creator of its
    // IoBuf promised to keep valid (and, for a read, unshared) until the I/O is reported done.
    let moved = unsafe {
        match (op, iov) {
            (IoOp::Read, [one]) => libc::pread(fd, one.iov_base, one.iov_len, at),
            (IoOp::Read, _) => libc::preadv(fd, iov.as_ptr(), count, at),
            (IoOp::Write, [one]) => libc::pwrite(fd, one.iov_base, one.iov_len, at),
            (IoOp::Write, _) => libc::pwritev(fd, iov.as_ptr(), count, at),
        }
    };
    u64::try_from(moved).map_err(|_| io::Error::last_os_error())
}
