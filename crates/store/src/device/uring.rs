//! The Linux driver: one io_uring, driven by one thread.
//!
//! Owns: the waiting requests, the ring with its registered file, and the ring thread. Invariants:
//! a request sits in exactly one of the queue, a slot (the kernel has it) or the list of those
//! whose `done` is to be called; at most `limits.depth` slots are in use, `limits.writes` of them
//! by writes; the ring is dropped only when the kernel holds no request. One read of the eventfd is
//! always in flight. Threads: any thread submits. The ring thread sleeps in the kernel, waiting for
//! a completion; a submitter wakes it through the eventfd only if `sleeping` is set. `sleeping` is
//! set under the lock together with the last check of the queue, so that no submission is missed,
//! and cleared by the submitter that wakes or by the ring thread when it wakes, whichever is first.
//! A submitter may defer the wake-up (`batch`). `done` runs on the ring thread, without any lock
//! held: a slow closure delays all I/O of the device. So does a request that the ring thread moves
//! itself, because the kernel had no thread for it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use io_uring::{IoUring, opcode, squeue, types};

use super::file::{
    AbortOnPanic, Core, Done, IoDriver, Limits, Request, abort, advance, fill_iovecs,
    mark_completion_thread, nanos, transfer,
};
use super::queue::IoQueue;
use super::{Io, IoBuf, IoOp, batch};
use crate::process::SignalsBlocked;

/// `user_data` of the read of the eventfd; all others are slot numbers.
const WAKE: u64 = u64::MAX;

/// Largest transfer of one ring entry; the kernel transfers at most 2 GiB at once.
const TRANSFER_BYTES_MAX: usize = 1 << 30;

/// Calls of `done` between two looks at the queue. Devices often complete in bursts: the whole
/// queue completes, and the device is idle until more is submitted. So all completions of a burst
/// free their slots first, requests that wait are started in them, and only then `done` is called.
const DONE_BATCH: usize = 4;

/// Retry limit: how often in a row the kernel may ask to repeat one transfer.
const RETRIES_MAX: u32 = 1000;

/// The submitters' handle of the driver.
pub(super) struct UringDriver {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    sleeping: AtomicBool,
    wake: File,
}

struct State {
    queue: IoQueue<Request>,
    stop: bool,
}

impl UringDriver {
    /// Sets up the ring and starts its thread.
    pub(super) fn start(core: Arc<Core>, limits: Limits) -> io::Result<UringDriver> {
        let queue = IoQueue::new(limits.seeks);
        let state = Mutex::new(State { queue, stop: false });
        let sleeping = AtomicBool::new(false);
        let shared = Arc::new(Shared { state, sleeping, wake: eventfd()? });
        let (ready, is_ready) = mpsc::sync_channel(1);
        let theirs = Arc::clone(&shared);
        let _program_s = SignalsBlocked::new();
        let thread = thread::Builder::new().name("damelo-ring".into()).spawn(move || {
            // The ring belongs to the thread that creates it (SINGLE_ISSUER).
            match Driver::new(core, theirs, limits) {
                Ok(mut driver) => {
                    let _ = ready.send(Ok(()));
                    driver.run();
                }
                Err(e) => {
                    let _ = ready.send(Err(e));
                }
            }
        })?;
        match is_ready.recv() {
            Ok(Ok(())) => Ok(UringDriver { shared, thread: Some(thread) }),
            Ok(Err(e)) => Err(e),
            Err(_) => Err(io::Error::other("the io_uring thread died while it started")),
        }
    }
}

impl IoDriver for UringDriver {
    fn submit(&self, request: Request) {
        let mut state = self.shared.lock();
        request.enter(&mut state.queue);
        // Still under the lock: either the ring thread sees the request when it takes the lock
        // next, or it has set `sleeping` already.
        let sleeping = self.shared.sleeping.load(Ordering::Relaxed);
        drop(state);
        if sleeping && !batch::defer(&self.shared) {
            batch::Sleeper::wake(&*self.shared);
        }
    }

    fn start_deferred(&self) {
        batch::Sleeper::wake(&*self.shared);
    }
}

impl Drop for UringDriver {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.ring();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            // If the ring thread panics the process aborts, so there is no error to handle.
            let _ = thread.join();
        }
        // Otherwise a `done` closure dropped the last reference: the ring thread cannot join
        // itself, and ends once everything has drained.
    }
}

impl batch::Sleeper for Shared {
    fn wake(&self) {
        // The ring thread may have woken since the submitter checked, on its own or for another
        // submitter.
        if self.sleeping.swap(false, Ordering::Relaxed) {
            self.ring();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while holding the lock, and a panic on the ring thread aborts.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // Fails only when the counter is full, and then the ring thread has been woken anyway.
        let _ = (&self.wake).write_all(&1u64.to_ne_bytes());
    }
}

/// A slot for one request in the kernel.
#[derive(Default)]
struct Slot {
    request: Option<Request>,
    iovecs: Vec<libc::iovec>,
    progress: u64,
    retries: u32,
    started: Option<Instant>,
}

/// The ring thread's state. Field order matters: the ring is dropped before the memory it uses.
struct Driver {
    ring: IoUring,
    core: Arc<Core>,
    shared: Arc<Shared>,
    limits: Limits,
    slots: Vec<Slot>,
    free: Vec<u32>,
    writing: u32,
    /// Slots to hand to the kernel (again).
    start: Vec<u32>,
    /// Requests whose slots are free again and whose `done` is to be called, oldest first.
    ended: VecDeque<(Done, io::Result<()>)>,
    wake_count: Box<u64>,
    wake_armed: bool,
}

impl Driver {
    fn new(core: Arc<Core>, shared: Arc<Shared>, limits: Limits) -> io::Result<Driver> {
        // One more entry for the eventfd, so that a full round always fits.
        let ring = build_ring((limits.depth + 1).next_power_of_two())?;
        ring.submitter().register_files(&[core.file.as_raw_fd(), shared.wake.as_raw_fd()])?;
        probe(&ring)?;
        let mut driver = Driver {
            ring,
            core,
            shared,
            limits,
            slots: (0..limits.depth).map(|_| Slot::default()).collect(),
            free: (0..limits.depth).rev().collect(),
            writing: 0,
            start: Vec::with_capacity(limits.depth as usize),
            ended: VecDeque::with_capacity(limits.depth as usize),
            wake_count: Box::new(0),
            wake_armed: false,
        };
        driver.arm_wake();
        Ok(driver)
    }

    fn run(&mut self) {
        let _bomb = AbortOnPanic;
        mark_completion_thread();
        while !self.fetch() {
            self.start_all();
            self.enter();
            self.call_done();
            self.reap();
        }
        self.disarm_wake();
        // Dropping the ring releases the file too, but later. This call cannot fail while a file is
        // registered; if it did, the drop would remain.
        let _ = self.ring.submitter().unregister_files();
    }

    /// Moves requests that may start from the queue into slots. If there is room for more and
    /// nothing else to do, marks the ring thread as sleeping, so that submitters wake it. True when
    /// the driver was told to stop and is empty.
    fn fetch(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        let now = Instant::now();
        while let Some(slot) = self.free.last().copied() {
            let Some(request) = state.queue.pop(self.writing < self.limits.writes) else { break };
            self.free.pop();
            self.writing += u32::from(request.io.op == IoOp::Write);
            self.core.counters.started(nanos(request.queued, now));
            let place = &mut self.slots[slot as usize];
            place.progress = 0;
            place.retries = 0;
            place.started = Some(now);
            place.request = Some(request);
            self.start.push(slot);
        }
        let idle = self.free.len() == self.slots.len();
        let quiet = self.ended.is_empty();
        let finished = state.stop && idle && quiet && state.queue.is_empty();
        // Without a free slot a submission changes nothing, so only completions wake the thread.
        self.shared.sleeping.store(quiet && !self.free.is_empty(), Ordering::Relaxed);
        drop(state);
        finished
    }

    fn start_all(&mut self) {
        while let Some(slot) = self.start.pop() {
            let entry = self.entry(slot);
            self.push(&entry);
        }
        if !self.wake_armed {
            self.arm_wake();
        }
    }

    /// Builds the ring entry for the remaining part of a request.
    fn entry(&mut self, slot: u32) -> squeue::Entry {
        let place = &mut self.slots[slot as usize];
        let Some(request) = &place.request else {
            unreachable!("a slot in the start list has a request");
        };
        let file = types::Fixed(0);
        let at = request.io.offset + place.progress;
        let op = request.io.op;
        let entry = if let [one] = request.io.bufs.as_slice() {
            single(op, one, place.progress, at)
        } else {
            fill_iovecs(&request.io.bufs, place.progress, &mut place.iovecs);
            // At most IOV_MAX, so it fits. The vector stays untouched until the completion.
            let (iov, count) = (place.iovecs.as_ptr(), place.iovecs.len() as u32);
            match op {
                IoOp::Read => opcode::Readv::new(file, iov, count).offset(at).build(),
                IoOp::Write => opcode::Writev::new(file, iov, count).offset(at).build(),
            }
        };
        entry.user_data(u64::from(slot))
    }

    fn push(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: the entry's memory belongs to a request in a slot, to the slot's iovecs, or
            // to `wake_count`; all stay in place until the completion has been seen.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return;
            }
            // The ring has room for all entries that can exist, so this does not happen; if it did,
            // submitting the entries present would make room.
            check_enter(self.ring.submit());
        }
    }

    fn arm_wake(&mut self) {
        let to = ptr::from_mut(&mut *self.wake_count).cast::<u8>();
        let entry = opcode::Read::new(types::Fixed(1), to, 8).build().user_data(WAKE);
        self.push(&entry);
        self.wake_armed = true;
    }

    /// Lets the last read of the eventfd complete, so that the kernel holds no pointer of ours.
    fn disarm_wake(&mut self) {
        while self.wake_armed {
            self.shared.ring();
            self.enter();
            self.reap();
        }
    }

    /// Submits all new entries and, if there is nothing else to do, waits for a completion; at most
    /// one system call.
    fn enter(&mut self) {
        if self.ended.is_empty() && self.ring.completion().is_empty() {
            check_enter(self.ring.submit_and_wait(1));
        } else if !self.ring.submission().is_empty() {
            check_enter(self.ring.submit());
        }
        self.shared.sleeping.store(false, Ordering::Relaxed);
    }

    /// Calls `done` of some of the requests that ended; the others follow once requests that came
    /// meanwhile have been started.
    fn call_done(&mut self) {
        for _ in 0..DONE_BATCH {
            let Some((done, result)) = self.ended.pop_front() else { return };
            self.core.complete(done, result);
        }
    }

    /// Handles all completions that are there.
    fn reap(&mut self) {
        let now = Instant::now();
        loop {
            let next = self.ring.completion().next();
            let Some(completion) = next else { return };
            if completion.user_data() == WAKE {
                self.wake_armed = false;
            } else {
                // All other ids are slot numbers, which are u32.
                self.progress(completion.user_data() as u32, completion.result(), now);
            }
        }
    }

    /// Handles one completion: the request is done, or its remaining part is started.
    fn progress(&mut self, slot: u32, result: i32, now: Instant) {
        let place = &mut self.slots[slot as usize];
        let Some(request) = &place.request else {
            unreachable!("the kernel completed a slot that is not in use");
        };
        let outcome = match u64::try_from(result) {
            Ok(moved) => {
                let op = request.io.op;
                match advance(op, moved, &mut place.progress, request.total, self.core.block) {
                    Ok(false) => None,
                    Ok(true) => Some(Ok(())),
                    Err(e) => Some(Err(e)),
                }
            }
            // The kernel could start no thread for what it cannot move at once: such threads count
            // as the program's where these are limited. All of it is moved here, again if need be.
            Err(_) if -result == libc::ECANCELED => {
                let Io { op, offset, bufs, .. } = &request.io;
                let iovecs = &mut place.iovecs;
                Some(transfer(&self.core, *op, *offset, bufs, request.total, iovecs))
            }
            Err(_) => {
                place.retries += 1;
                let again = matches!(-result, libc::EINTR | libc::EAGAIN);
                let error = || Err(io::Error::from_raw_os_error(-result));
                if again && place.retries < RETRIES_MAX { None } else { Some(error()) }
            }
        };
        match outcome {
            None => self.start.push(slot),
            Some(result) => self.finish(slot, result, now),
        }
    }

    fn finish(&mut self, slot: u32, result: io::Result<()>, now: Instant) {
        let place = &mut self.slots[slot as usize];
        let spent = place.started.map_or(0, |started| nanos(started, now));
        let Some(Request { io, total, .. }) = place.request.take() else { return };
        self.free.push(slot);
        self.writing -= u32::from(io.op == IoOp::Write);
        self.core.counters.finished(io.op, total, spent, result.is_ok());
        self.ended.push_back((io.done, result));
    }
}

/// The entry for a request with one buffer.
fn single(op: IoOp, buf: &IoBuf, skip: u64, at: u64) -> squeue::Entry {
    let file = types::Fixed(0);
    // `skip` is less than the length of the buffer; bytes beyond one entry's limit go in another
    // round.
    let start = buf.as_ptr().wrapping_add(skip as usize);
    let len = (buf.len() - skip as usize).min(TRANSFER_BYTES_MAX) as u32;
    match op {
        IoOp::Read => opcode::Read::new(file, start, len).offset(at).build(),
        IoOp::Write => opcode::Write::new(file, start, len).offset(at).build(),
    }
}

/// A ring with the cheapest flags that this kernel supports.
fn build_ring(entries: u32) -> io::Result<IoUring> {
    let mut best = IoUring::builder();
    best.setup_single_issuer().setup_defer_taskrun().setup_coop_taskrun();
    // Kernels before 6.1 refuse unknown flags.
    best.build(entries).or_else(|e| match e.raw_os_error() {
        Some(libc::EINVAL) => IoUring::new(entries),
        _ => Err(e),
    })
}

/// Refuses kernels (before 5.6) that lack the operations used here, and systems where a ring can be
/// made but not used, for instance because of system call filters.
fn probe(ring: &IoUring) -> io::Result<()> {
    // SAFETY: nothing is submitted or waited for, and no argument is given.
    unsafe { ring.submitter().enter::<libc::sigset_t>(0, 0, 0, None)? };
    let mut known = io_uring::Probe::new();
    ring.submitter().register_probe(&mut known)?;
    let needed =
        [opcode::Read::CODE, opcode::Write::CODE, opcode::Readv::CODE, opcode::Writev::CODE];
    match needed.iter().all(|code| known.is_supported(*code)) {
        true => Ok(()),
        false => {
            Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel's io_uring is too old"))
        }
    }
}

/// Ignores transient errors of entering the ring. With any other error the process cannot go on,
/// because the kernel holds memory of requests that could never complete.
fn check_enter(result: io::Result<usize>) {
    let Err(e) = result else { return };
    if !matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ETIME)) {
        abort(format_args!("io_uring_enter failed: {e}"));
    }
}

fn eventfd() -> io::Result<File> {
    // SAFETY: a system call without pointers; the descriptor it returns is new and ours.
    unsafe {
        match libc::eventfd(0, libc::EFD_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(File::from_raw_fd(fd)),
        }
    }
}
