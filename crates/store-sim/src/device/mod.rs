//! A simulated disk in memory that fails, tears, loses and delays I/O by plan.
//!
//! Owns the contents as the store sees them (`view`), the trace from which any crash image is
//! made, the fault plan and the queue of I/Os in flight. Invariants: `Io::done` is called exactly
//! once and never under the lock; a failed read leaves garbage in the buffer; a buffer handed over
//! for writing must not change until `done` (checked by checksum). What the store does wrong as a
//! user of the device is collected in [`SimDevice::violations`].
//!
//! Threads: any may submit. With [`Completion::Queued`] one pump thread completes.

mod shared;
#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use damelo::device::{Device, DeviceInfo, DeviceStats, Io, IoOp, JournalArea};

use self::shared::{Pending, Shared, State, checksum, errno, gather};
use crate::disk::SimDisk;
use crate::fault::{FaultPlan, OpKind};
use crate::trace::{CrashKind, Tick, Ticks, Trace};

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
    pub seeks: bool,
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
            seeks: false,
            history: true,
            faults: FaultPlan::none(),
        }
    }
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
            seeks: options.seeks,
            io_engine: "sim",
        };
        let state = State {
            view: disk.bytes().to_vec(),
            trace: Trace::new(disk.shared()),
            queue: Vec::new(),
            rng: fastrand::Rng::with_seed(options.seed),
            faults: options.faults,
            stats: DeviceStats::default(),
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

    /// Flips bits of the disk's current contents, under a running store.
    pub fn flip_bits(&self, range: Range<u64>, count: u32) -> Vec<u64> {
        let mut state = self.shared.lock();
        let state = &mut *state;
        let offsets: Vec<u64> = (0..count).map(|_| state.rng.u64(range.clone())).collect();
        for &offset in &offsets {
            state.view[offset as usize] ^= 1 << state.rng.u8(0..8);
        }
        offsets
    }

    /// What the user of this device did that it must not do.
    pub fn violations(&self) -> Vec<String> {
        self.shared.lock().violations.clone()
    }

    /// How many I/Os wait to be completed.
    pub fn in_flight(&self) -> usize {
        self.shared.lock().queue.len()
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
