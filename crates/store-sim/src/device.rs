//! A disk in memory that fails, tears, forgets and dawdles by plan.
//!
//! Owns the contents as the store sees them (`view`), the trace from which any crash image is
//! made, the fault plan and the queue of I/Os in flight. Invariants: `Io::done` is called exactly
//! once and never under the lock; a failed read leaves garbage in the buffer; a buffer handed over
//! for writing must not change until `done` (checked by checksum). What the store does wrong as a
//! user of the device is collected in [`SimDevice::violations`].
//!
//! Threads: any may submit. With [`Completion::Queued`] one pump thread completes.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use damelo::device::{Device, DeviceInfo, DeviceStats, Io, IoBuf, IoOp, JournalArea};

use crate::disk::{SECTOR_BYTES, SimDisk};
use crate::fault::{Effect, FaultPlan, OpKind};
use crate::trace::{CrashKind, Tick, Ticks, Trace};

/// Past this many written bytes a device without history writes its cache back.
const CACHE_BYTES_MAX: u64 = 32 << 20;
/// Virtual time of one I/O, besides its bytes.
const LATENCY_BASE_NS: u64 = 80_000;
/// Virtual time per byte, in nanoseconds: 1 GB/s.
const LATENCY_BYTE_NS: u64 = 1;
/// How long the pump lets I/Os gather so that there is something to reorder.
const GATHER: Duration = Duration::from_micros(30);

/// When submitted I/Os complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// Before `submit` returns.
    Inline,
    /// On a pump thread, in an order chosen by the seed among those in flight.
    Queued,
    /// When the test calls [`SimDevice::pump`].
    Manual,
}

/// How a [`SimDevice`] behaves.
#[derive(Debug, Clone)]
pub struct SimOptions {
    /// Seed of everything random in it.
    pub seed: u64,
    /// When I/Os complete.
    pub completion: Completion,
    /// Alignment it demands: 512 or 4096.
    pub block_bytes: u32,
    /// Claim to be a disk with seeks.
    pub rotational: bool,
    /// Keep all history, so that images of every past tick can be made.
    pub history: bool,
    /// Faults from the start.
    pub faults: FaultPlan,
}

impl SimOptions {
    /// A sound device with history.
    pub fn new(seed: u64) -> SimOptions {
        SimOptions {
            seed,
            completion: Completion::Inline,
            block_bytes: 512,
            rotational: false,
            history: true,
            faults: FaultPlan::none(),
        }
    }
}

struct Pending {
    io: Io,
    begin: Tick,
    checksum: u64,
}

struct State {
    view: Vec<u8>,
    trace: Trace,
    queue: Vec<Pending>,
    rng: fastrand::Rng,
    faults: FaultPlan,
    stats: DeviceStats,
    journals: Vec<Range<u64>>,
    violations: Vec<String>,
    vanished: bool,
    stopping: bool,
}

struct Shared {
    info: DeviceInfo,
    ticks: Arc<Ticks>,
    completion: Completion,
    history: bool,
    state: Mutex<State>,
    wake: Condvar,
}

/// A simulated disk.
pub struct SimDevice {
    shared: Arc<Shared>,
    pump: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl std::fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimDevice({})", self.shared.info.name)
    }
}

impl SimDevice {
    /// Opens a disk. `ticks` is shared by all disks that crash together.
    pub fn open(name: &str, disk: &SimDisk, options: SimOptions, ticks: Arc<Ticks>) -> SimDevice {
        let info = DeviceInfo {
            name: name.to_owned(),
            size_bytes: disk.size_bytes(),
            block_bytes: options.block_bytes,
            direct: true,
            rotational: options.rotational,
            engine: "sim",
        };
        let state = State {
            view: disk.bytes().to_vec(),
            trace: Trace::new(disk.shared()),
            queue: Vec::new(),
            rng: fastrand::Rng::with_seed(options.seed),
            faults: options.faults,
            stats: DeviceStats::default(),
            journals: Vec::new(),
            violations: Vec::new(),
            vanished: false,
            stopping: false,
        };
        let shared = Arc::new(Shared {
            info,
            ticks,
            completion: options.completion,
            history: options.history,
            state: Mutex::new(state),
            wake: Condvar::new(),
        });
        let pump = (options.completion == Completion::Queued).then(|| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.pump_until_stopped())
        });
        SimDevice { shared, pump: Mutex::new(pump) }
    }

    /// Replaces the fault plan.
    pub fn set_faults(&self, faults: FaultPlan) {
        self.shared.lock().faults = faults;
    }

    /// How many I/Os the current plan has hit.
    pub fn faults_fired(&self) -> u64 {
        self.shared.lock().faults.fired()
    }

    /// What the disk holds as long as nothing crashes.
    pub fn snapshot(&self) -> SimDisk {
        SimDisk::from_bytes(self.shared.lock().view.clone())
    }

    /// What a crash just before `at` leaves. Without history only the present can be asked for.
    pub fn crash_at(&self, at: Tick, kind: CrashKind, seed: u64) -> SimDisk {
        self.shared.lock().trace.image_at(at, kind, seed)
    }

    /// Turns over bits in what is on the disk now, under a running store.
    pub fn flip_bits(&self, range: Range<u64>, count: u32) -> Vec<u64> {
        let mut state = self.shared.lock();
        let state = &mut *state;
        let offsets: Vec<u64> = (0..count).map(|_| state.rng.u64(range.clone())).collect();
        for &offset in &offsets {
            state.view[offset as usize] ^= 1 << state.rng.u8(0..8);
        }
        offsets
    }

    /// Areas that were opened as journals.
    pub fn journal_ranges(&self) -> Vec<Range<u64>> {
        self.shared.lock().journals.clone()
    }

    /// What the user of this device did that it must not do.
    pub fn violations(&self) -> Vec<String> {
        self.shared.lock().violations.clone()
    }

    /// Completes up to `count` waiting I/Os, in seeded order; returns how many there were.
    pub fn pump(&self, count: usize) -> usize {
        (0..count).take_while(|_| self.shared.complete_one()).count()
    }
}

impl Drop for SimDevice {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.wake.notify_all();
        let pump = self.pump.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = pump
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
        while self.shared.complete_one() {}
    }
}

fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

/// Mixes the bytes of a buffer, so that a change during the write is noticed.
fn checksum(bufs: &[IoBuf]) -> u64 {
    gather(bufs).chunks(8).fold(0, |sum: u64, word| {
        let mut eight = [0; 8];
        eight[..word.len()].copy_from_slice(word);
        (sum.rotate_left(5) ^ u64::from_le_bytes(eight)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

fn gather(bufs: &[IoBuf]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(bufs.iter().map(IoBuf::len).sum());
    for buf in bufs {
        // SAFETY: the submitter promised (`IoBuf::new`) that the memory stays valid and, for a
        // write, unchanged until `done` has run; we are called before that.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(buf.as_ptr(), buf.len()) });
    }
    bytes
}

fn scatter(bufs: &[IoBuf], mut bytes: &[u8]) {
    for buf in bufs {
        let (piece, rest) = bytes.split_at(buf.len());
        // SAFETY: the submitter of a read promised exclusive, valid memory of this length until
        // `done` has run; `piece` is a buffer of our own and cannot overlap it.
        unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), buf.as_ptr(), piece.len()) };
        bytes = rest;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pump_until_stopped(&self) {
        loop {
            let mut state = self.lock();
            while state.queue.is_empty() && !state.stopping {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.stopping {
                return;
            }
            if state.queue.len() < 3 {
                drop(self.wake.wait_timeout(state, GATHER));
            } else {
                drop(state);
            }
            self.complete_one();
        }
    }

    /// Completes one I/O in flight; false when there is none.
    fn complete_one(&self) -> bool {
        let (pending, result) = {
            let mut state = self.lock();
            if state.queue.is_empty() {
                return false;
            }
            let count = state.queue.len();
            let index = state.rng.usize(0..count);
            let pending = state.queue.swap_remove(index);
            let result = self.execute(&mut state, &pending);
            (pending, result)
        };
        (pending.io.done)(result);
        true
    }

    fn execute(&self, state: &mut State, pending: &Pending) -> io::Result<()> {
        let io = &pending.io;
        match io.op {
            IoOp::Read => {
                let mut bytes = vec![0; io.len_bytes() as usize];
                let result = self.read(state, OpKind::Read, io.offset, &mut bytes);
                scatter(&io.bufs, &bytes);
                result
            }
            IoOp::Write => {
                if checksum(&io.bufs) != pending.checksum {
                    state.violations.push(format!("buffer changed in flight at {}", io.offset));
                }
                self.write(state, OpKind::Write, pending.begin, io.offset, &gather(&io.bufs))
            }
        }
    }

    /// Fills `bytes`, with garbage if it fails.
    fn read(&self, state: &mut State, op: OpKind, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let range = offset..offset + bytes.len() as u64;
        let effect = state.effect(op, range.clone());
        bytes.copy_from_slice(&state.view[range.start as usize..range.end as usize]);
        state.show_in_flight(offset, bytes);
        state.stats.reads += 1;
        state.stats.read_bytes += bytes.len() as u64;
        state.stats.device_ns += LATENCY_BASE_NS + bytes.len() as u64 * LATENCY_BYTE_NS;
        let error = match effect {
            None | Some(Effect::Lost) => return Ok(()),
            Some(Effect::Corrupt) => {
                let index = state.rng.usize(0..bytes.len());
                bytes[index] ^= 1 << state.rng.u8(0..8);
                return Ok(());
            }
            Some(Effect::Short) => io::Error::from(io::ErrorKind::UnexpectedEof),
            Some(Effect::Vanish) => errno(libc::ENXIO),
            Some(Effect::Eio | Effect::Enospc) => errno(libc::EIO),
        };
        let cut = state.rng.usize(0..=bytes.len());
        state.rng.fill(&mut bytes[cut..]);
        state.stats.read_errors += 1;
        Err(error)
    }

    /// Ends the write that began at `begin`.
    fn write(
        &self,
        state: &mut State,
        op: OpKind,
        begin: Tick,
        offset: u64,
        bytes: &[u8],
    ) -> io::Result<()> {
        let effect = state.effect(op, offset..offset + bytes.len() as u64);
        let sectors = (bytes.len() as u64 / SECTOR_BYTES) as usize;
        let (landed, result) = match effect {
            None | Some(Effect::Corrupt) => (bytes.len(), Ok(())),
            Some(Effect::Lost) => (0, Ok(())),
            Some(Effect::Vanish) => (0, Err(errno(libc::ENXIO))),
            Some(effect) => {
                let landed = state.rng.usize(0..=sectors) * SECTOR_BYTES as usize;
                let error = match effect {
                    Effect::Short => io::Error::from(io::ErrorKind::WriteZero),
                    Effect::Enospc => errno(libc::ENOSPC),
                    _ => errno(libc::EIO),
                };
                (landed, Err(error))
            }
        };
        state.view[offset as usize..offset as usize + landed].copy_from_slice(&bytes[..landed]);
        state.trace.end_write(begin, self.ticks.take(), landed);
        state.stats.writes += 1;
        state.stats.write_bytes += bytes.len() as u64;
        state.stats.write_errors += u64::from(result.is_err());
        state.stats.device_ns += LATENCY_BASE_NS + bytes.len() as u64 * LATENCY_BYTE_NS;
        if !self.history && state.trace.volatile_bytes() > CACHE_BYTES_MAX {
            state.trace.compact(self.ticks.now());
        }
        result
    }

    fn begin_write(&self, state: &mut State, offset: u64, bytes: &[u8], journal: bool) -> Tick {
        let begin = self.ticks.take();
        state.trace.begin_write(begin, offset, bytes, journal);
        begin
    }

    fn sync(&self, op: OpKind, journal: Option<Range<u64>>) -> io::Result<()> {
        let mut state = self.lock();
        let range = journal.clone().unwrap_or(0..self.info.size_bytes);
        match state.effect(op, range) {
            None | Some(Effect::Corrupt) => {}
            Some(Effect::Lost) => return Ok(()),
            Some(Effect::Vanish) => return Err(errno(libc::ENXIO)),
            Some(Effect::Enospc) => return Err(errno(libc::ENOSPC)),
            Some(Effect::Eio | Effect::Short) => return Err(errno(libc::EIO)),
        }
        let begin = self.ticks.take();
        state.trace.sync(begin, self.ticks.take(), journal);
        if !self.history && op == OpKind::Sync {
            state.trace.compact(self.ticks.now());
        }
        Ok(())
    }

    /// Why the request is refused outright, if it is.
    fn refusal(&self, offset: u64, lengths: &[(usize, usize)]) -> Option<String> {
        let block = u64::from(self.info.block_bytes);
        let total: u64 = lengths.iter().map(|&(_, len)| len as u64).sum();
        let misaligned = |x: u64| !x.is_multiple_of(block);
        if misaligned(offset) {
            return Some(format!("offset {offset} is not a multiple of {block}"));
        }
        if offset.checked_add(total).is_none_or(|end| end > self.info.size_bytes) {
            return Some(format!("{total} bytes at {offset} are beyond the end"));
        }
        let (address, len) =
            *lengths.iter().find(|&&(a, l)| misaligned(a as u64) || misaligned(l as u64))?;
        Some(format!("buffer {address:#x}+{len} at {offset} is not aligned to {block}"))
    }
}

impl State {
    fn effect(&mut self, op: OpKind, range: Range<u64>) -> Option<Effect> {
        if self.vanished {
            return Some(Effect::Vanish);
        }
        let effect = self.faults.decide(op, range, &mut self.rng);
        self.vanished = effect == Some(Effect::Vanish);
        effect
    }

    /// Sectors that a write in flight covers may already show.
    fn show_in_flight(&mut self, offset: u64, bytes: &mut [u8]) {
        let end = offset + bytes.len() as u64;
        for index in 0..self.queue.len() {
            let io = &self.queue[index].io;
            let io_end = io.offset + io.len_bytes();
            if io.op == IoOp::Read || io_end <= offset || end <= io.offset {
                continue;
            }
            let data = gather(&io.bufs);
            let from = io.offset;
            let mut at = offset.max(from);
            while at < end.min(io_end) {
                let stop = ((at / SECTOR_BYTES + 1) * SECTOR_BYTES).min(end).min(io_end);
                if self.rng.bool() {
                    bytes[(at - offset) as usize..(stop - offset) as usize]
                        .copy_from_slice(&data[(at - from) as usize..(stop - from) as usize]);
                }
                at = stop;
            }
        }
    }

    fn note_overlap(&mut self, io: &Io) {
        let end = io.offset + io.len_bytes();
        let overlap = self.queue.iter().find(|p| {
            p.io.op == IoOp::Write
                && p.io.offset < end
                && io.offset < p.io.offset + p.io.len_bytes()
        });
        if io.op == IoOp::Write
            && let Some(other) = overlap
        {
            let text = format!("writes at {} and {} overlap in flight", other.io.offset, io.offset);
            self.violations.push(text);
        }
    }
}

impl Device for SimDevice {
    fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    fn submit(&self, io: Io) {
        let shared = &self.shared;
        let lengths: Vec<_> = io.bufs.iter().map(|b| (b.as_ptr() as usize, b.len())).collect();
        if let Some(text) = shared.refusal(io.offset, &lengths) {
            shared.lock().violations.push(text);
            return (io.done)(Err(errno(libc::EINVAL)));
        }
        let mut state = shared.lock();
        state.note_overlap(&io);
        let (mut begin, mut sum) = (0, 0);
        if io.op == IoOp::Write {
            begin = shared.begin_write(&mut state, io.offset, &gather(&io.bufs), false);
            sum = checksum(&io.bufs);
        }
        let pending = Pending { io, begin, checksum: sum };
        if shared.completion == Completion::Inline || state.stopping {
            let result = shared.execute(&mut state, &pending);
            drop(state);
            return (pending.io.done)(result);
        }
        state.queue.push(pending);
        state.stats.depth_max = state.stats.depth_max.max(state.queue.len() as u32);
        drop(state);
        shared.wake.notify_one();
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if let Some(text) = self.shared.refusal(offset, &[(buf.as_ptr() as usize, buf.len())]) {
            self.shared.lock().violations.push(text);
            return Err(errno(libc::EINVAL));
        }
        self.shared.read(&mut self.shared.lock(), OpKind::Read, offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        if let Some(text) = self.shared.refusal(offset, &[(buf.as_ptr() as usize, buf.len())]) {
            self.shared.lock().violations.push(text);
            return Err(errno(libc::EINVAL));
        }
        let mut state = self.shared.lock();
        let begin = self.shared.begin_write(&mut state, offset, buf, false);
        self.shared.write(&mut state, OpKind::Write, begin, offset, buf)
    }

    fn sync(&self) -> io::Result<()> {
        self.shared.sync(OpKind::Sync, None)
    }

    fn journal(&self, offset: u64, len: u64) -> io::Result<Box<dyn JournalArea>> {
        let mut state = self.shared.lock();
        if !offset.is_multiple_of(4096) || !len.is_multiple_of(4096) {
            state.violations.push(format!("journal {offset}+{len} is not aligned to 4096"));
            return Err(errno(libc::EINVAL));
        }
        let range = offset..offset + len;
        if !state.journals.contains(&range) {
            state.journals.push(range.clone());
        }
        Ok(Box::new(SimJournal { shared: Arc::clone(&self.shared), range }))
    }

    fn stats(&self) -> DeviceStats {
        self.shared.lock().stats.clone()
    }
}

/// A journal area of a [`SimDevice`].
struct SimJournal {
    shared: Arc<Shared>,
    range: Range<u64>,
}

impl JournalArea for SimJournal {
    fn read_all(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; (self.range.end - self.range.start) as usize];
        let state = &mut self.shared.lock();
        self.shared.read(state, OpKind::JournalRead, self.range.start, &mut bytes)?;
        Ok(bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.shared.lock();
        let start = self.range.start + offset;
        if start + bytes.len() as u64 > self.range.end {
            state.violations.push(format!("journal write {offset}+{} beyond end", bytes.len()));
            return Err(errno(libc::EINVAL));
        }
        let begin = self.shared.begin_write(&mut state, start, bytes, true);
        self.shared.write(&mut state, OpKind::JournalWrite, begin, start, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.shared.sync(OpKind::JournalSync, Some(self.range.clone()))
    }
}

#[cfg(test)]
#[path = "device_tests.rs"]
mod tests;
