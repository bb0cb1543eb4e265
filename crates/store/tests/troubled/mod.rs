//! A device in the memory of the test that can be put in trouble: that fails, reads slowly, fails
//! in some places, or holds reads until it is told to go on. Its journal is mapped memory, which
//! works whatever the rest does, unless it is told to fail, too.
//!
//! Owns the bytes, behind one mutex, and what is wrong, in atomics. Threads: any.

#![allow(dead_code, reason = "each test has its own troubles")]

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, MutexGuard, mpsc};
use std::time::Duration;

use damelo::device::{Device, DeviceInfo, DeviceStats, Io, IoBuf, IoOp, JournalArea};
use damelo::{GroupId, Store};

#[path = "../in_memory/mod.rs"]
mod in_memory;
#[allow(unused_imports, reason = "not every test stops the clock")]
pub(crate) use in_memory::Stopped;

/// Reads of a range are held, once their bytes are there, until somebody lets them go.
#[derive(Default)]
struct Gate {
    range: Range<u64>,
    held: usize,
    /// Where a single read is held, after how many that are not.
    one: Range<u64>,
    after: usize,
    holds_one: bool,
}

/// What somebody else does in the midst of an I/O.
type Act = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Troubles {
    transfers: AtomicU64,
    fails: AtomicBool,
    fails_next_write: AtomicBool,
    fails_syncs: AtomicBool,
    is_full: AtomicBool,
    fails_journal: AtomicBool,
    journal_prepared: AtomicU64,
    /// Who syncs waits here for the others: so many are still to come.
    syncs_meet: Mutex<(usize, Option<Arc<Barrier>>)>,
    unreadable: Mutex<Range<u64>>,
    unwritable: Mutex<Range<u64>>,
    panics: Mutex<Range<u64>>,
    read_delay_ms: AtomicU64,
    never_settles: AtomicBool,
    waited_to_settle: Mutex<Duration>,
    in_writes: Mutex<VecDeque<Act>>,
    gate: Mutex<Gate>,
    gate_changed: Condvar,
    hangs: AtomicBool,
    hanging: Mutex<VecDeque<Io>>,
}

/// What a device holds; it outlives a store that is closed or left.
#[derive(Clone)]
pub(crate) struct Disk {
    name: &'static str,
    bytes: Arc<Mutex<Vec<u8>>>,
    troubles: Arc<Troubles>,
}

impl Disk {
    pub(crate) fn new(size_bytes: usize) -> Disk {
        let bytes = Arc::new(Mutex::new(vec![0; size_bytes]));
        Disk { name: "troubled", bytes, troubles: Arc::default() }
    }

    /// The same under another name.
    pub(crate) fn named(self, name: &'static str) -> Disk {
        Disk { name, ..self }
    }

    /// What is left after a kill: all that was written, on a sound device.
    pub(crate) fn copied(&self) -> Disk {
        let bytes = self.bytes.lock().unwrap().clone();
        Disk { name: self.name, bytes: Arc::new(Mutex::new(bytes)), troubles: Arc::default() }
    }

    pub(crate) fn device(&self) -> Arc<dyn Device> {
        let info = DeviceInfo {
            name: self.name.to_owned(),
            size_bytes: self.bytes.lock().unwrap().len() as u64,
            block_bytes: 512,
            direct: true,
            seeks: false,
            io_engine: "memory",
        };
        Arc::new(Troubled { info, disk: self.clone() })
    }

    pub(crate) fn with_bytes<T>(&self, look: impl FnOnce(&[u8]) -> T) -> T {
        look(&self.bytes.lock().unwrap())
    }

    /// How often it was read or written, or that was tried.
    pub(crate) fn transfers(&self) -> u64 {
        self.troubles.transfers.load(Ordering::SeqCst)
    }

    /// One bit there is another from now on.
    pub(crate) fn turn_bit(&self, at: u64) {
        self.bytes.lock().unwrap()[at as usize] ^= 1;
    }

    /// Nothing can be read, written or synced from now on.
    pub(crate) fn fail(&self) {
        self.set_fails(true);
    }

    /// Whether that is so.
    pub(crate) fn set_fails(&self, fails: bool) {
        self.troubles.fails.store(fails, Ordering::SeqCst);
    }

    /// One write fails.
    pub(crate) fn fail_next_write(&self) {
        self.troubles.fails_next_write.store(true, Ordering::SeqCst);
    }

    /// Whether syncs fail from now on.
    pub(crate) fn fail_syncs(&self, fail: bool) {
        self.troubles.fails_syncs.store(fail, Ordering::SeqCst);
    }

    /// Whether there is no room for anything from now on, as on a full file system.
    pub(crate) fn set_full(&self, is_full: bool) {
        self.troubles.is_full.store(is_full, Ordering::SeqCst);
    }

    /// The journal can be neither written nor synced from now on.
    pub(crate) fn fail_journal(&self) {
        self.set_journal_fails(true);
    }

    /// Whether that is so.
    pub(crate) fn set_journal_fails(&self, fails: bool) {
        self.troubles.fails_journal.store(fails, Ordering::SeqCst);
    }

    /// How often something of the journal was to be made ready for writes.
    pub(crate) fn journal_prepared(&self) -> u64 {
        self.troubles.journal_prepared.load(Ordering::SeqCst)
    }

    /// The next so many syncs wait until all of them have come.
    pub(crate) fn let_syncs_meet(&self, count: usize) {
        *self.troubles.syncs_meet.lock().unwrap() = (count, Some(Arc::new(Barrier::new(count))));
    }

    /// The next sync waits until somebody else waits for the same.
    pub(crate) fn hold_next_sync(&self) -> Arc<Barrier> {
        let barrier = Arc::new(Barrier::new(2));
        *self.troubles.syncs_meet.lock().unwrap() = (1, Some(Arc::clone(&barrier)));
        barrier
    }

    /// True while the syncs that are to wait have not all come.
    pub(crate) fn expects_syncs(&self) -> bool {
        self.troubles.syncs_meet.lock().unwrap().0 > 0
    }

    /// What of it cannot be read from now on; an empty range: all can.
    pub(crate) fn set_unreadable(&self, range: Range<u64>) {
        *self.troubles.unreadable.lock().unwrap() = range;
    }

    /// What of it cannot be written from now on.
    pub(crate) fn set_unwritable(&self, range: Range<u64>) {
        *self.troubles.unwritable.lock().unwrap() = range;
    }

    /// Reads of that range panic from now on, as code of an embedder may.
    pub(crate) fn panic_in(&self, range: Range<u64>) {
        *self.troubles.panics.lock().unwrap() = range;
    }

    pub(crate) fn set_read_delay_ms(&self, ms: u64) {
        self.troubles.read_delay_ms.store(ms, Ordering::SeqCst);
    }

    /// Done in the next submitted write that nothing is to be done in yet: its bytes are there, and
    /// it has not ended.
    pub(crate) fn do_in_write(&self, act: impl FnOnce() + Send + 'static) {
        self.troubles.in_writes.lock().unwrap().push_back(Box::new(act));
    }

    /// True while there is something that was not done yet.
    pub(crate) fn is_to_do_in_write(&self) -> bool {
        !self.troubles.in_writes.lock().unwrap().is_empty()
    }

    /// As if an I/O never ended.
    pub(crate) fn never_settle(&self) {
        self.troubles.never_settles.store(true, Ordering::SeqCst);
    }

    /// How long it was waited for in vain.
    pub(crate) fn waited_to_settle(&self) -> Duration {
        *self.troubles.waited_to_settle.lock().unwrap()
    }

    /// Reads that touch the range wait, with the bytes as they were.
    pub(crate) fn hold_reads(&self, range: Range<u64>) {
        self.troubles.gate.lock().unwrap().range = range;
    }

    /// As `hold_reads`, but only one read waits: that after `after` others.
    pub(crate) fn hold_one(&self, range: Range<u64>, after: usize) {
        let mut gate = self.troubles.gate.lock().unwrap();
        (gate.one, gate.after) = (range, after);
    }

    pub(crate) fn is_held(&self) -> bool {
        self.troubles.gate.lock().unwrap().held > 0
    }

    /// How many reads are held.
    pub(crate) fn held(&self) -> usize {
        self.troubles.gate.lock().unwrap().held
    }

    /// Waits until a read is held.
    pub(crate) fn wait_held(&self) {
        let mut gate = self.troubles.gate.lock().unwrap();
        while gate.held == 0 {
            gate = self.troubles.gate_changed.wait(gate).unwrap();
        }
    }

    /// Lets go of what is held, and holds no more.
    pub(crate) fn let_go(&self) {
        let mut gate = self.troubles.gate.lock().unwrap();
        (gate.range, gate.one, gate.holds_one) = (0..0, 0..0, false);
        drop(gate);
        self.troubles.gate_changed.notify_all();
    }

    /// Whether reads that begin from now on stay under way; no thread waits for those submitted.
    pub(crate) fn hang(&self, hangs: bool) {
        self.troubles.hangs.store(hangs, Ordering::SeqCst);
    }

    /// How many reads are under way.
    pub(crate) fn hanging(&self) -> usize {
        self.troubles.hanging.lock().unwrap().len()
    }

    /// Ends so many reads that are under way, the first ones, as the device is now.
    pub(crate) fn end_reads(&self, count: usize) {
        for _ in 0..count {
            let io = self.troubles.hanging.lock().unwrap().pop_front();
            self.transfer(io.unwrap());
        }
    }

    fn check(&self) -> io::Result<()> {
        match self.troubles.fails.load(Ordering::SeqCst) {
            true => Err(io::Error::other("out of order")),
            false => Ok(()),
        }
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.troubles.transfers.fetch_add(1, Ordering::SeqCst);
        self.check()?;
        let end = offset + buf.len() as u64;
        let touches = |range: &Range<u64>| offset < range.end && range.start < end;
        if touches(&self.troubles.unreadable.lock().unwrap()) {
            return Err(io::Error::other("cannot be read"));
        }
        let panics = touches(&self.troubles.panics.lock().unwrap());
        assert!(!panics, "a device that panics");
        let delay_ms = self.troubles.read_delay_ms.load(Ordering::SeqCst);
        if delay_ms > 0 {
            std::thread::sleep(Duration::from_millis(delay_ms));
        }
        buf.copy_from_slice(&self.bytes.lock().unwrap()[offset as usize..][..buf.len()]);
        let mut gate = self.troubles.gate.lock().unwrap();
        if touches(&gate.one) {
            if gate.after == 0 {
                (gate.one, gate.holds_one) = (0..0, true);
                self.hold(gate, |gate| gate.holds_one);
                return Ok(());
            }
            gate.after -= 1;
        }
        self.hold(gate, |gate| touches(&gate.range));
        Ok(())
    }

    fn hold(&self, mut gate: MutexGuard<'_, Gate>, is_closed: impl Fn(&Gate) -> bool) {
        while is_closed(&gate) {
            gate.held += 1;
            self.troubles.gate_changed.notify_all();
            gate = self.troubles.gate_changed.wait(gate).unwrap();
            gate.held -= 1;
        }
    }

    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.troubles.transfers.fetch_add(1, Ordering::SeqCst);
        self.check()?;
        if self.troubles.fails_next_write.swap(false, Ordering::SeqCst) {
            return Err(io::Error::other("one write fails"));
        }
        if self.troubles.is_full.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let end = offset + buf.len() as u64;
        let unwritable = self.troubles.unwritable.lock().unwrap();
        if offset < unwritable.end && unwritable.start < end {
            return Err(io::Error::other("cannot be written"));
        }
        drop(unwritable);
        self.put(offset, buf);
        Ok(())
    }

    fn transfer(&self, io: Io) {
        let mut offset = io.offset;
        let mut outcome = Ok(());
        for piece in &io.bufs {
            let (start, len) = (piece.as_ptr(), piece.len());
            let done = match io.op {
                IoOp::Read => {
                    // SAFETY: `IoBuf::new` promised that the memory is valid and nobody else's
                    // until `done`, which is called below.
                    let bytes = unsafe { std::slice::from_raw_parts_mut(start, len) };
                    self.read(offset, bytes)
                }
                IoOp::Write => {
                    // SAFETY: as above; nobody changes the memory before `done`.
                    let bytes = unsafe { std::slice::from_raw_parts(start, len) };
                    self.write(offset, bytes)
                }
            };
            outcome = outcome.and(done);
            offset += len as u64;
        }
        if io.op == IoOp::Write {
            let act = self.troubles.in_writes.lock().unwrap().pop_front();
            act.into_iter().for_each(|act| act());
        }
        (io.done)(outcome);
    }

    fn put(&self, offset: u64, buf: &[u8]) {
        self.bytes.lock().unwrap()[offset as usize..][..buf.len()].copy_from_slice(buf);
    }
}

struct Troubled {
    info: DeviceInfo,
    disk: Disk,
}

impl Device for Troubled {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, io: Io) {
        let troubles = &self.disk.troubles;
        match io.op == IoOp::Read && troubles.hangs.load(Ordering::SeqCst) {
            true => troubles.hanging.lock().unwrap().push_back(io),
            false => self.disk.transfer(io),
        }
    }

    fn settle(&self, most: Duration) {
        if self.disk.troubles.never_settles.load(Ordering::SeqCst) {
            *self.disk.troubles.waited_to_settle.lock().unwrap() += most;
            std::thread::sleep(most);
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if !self.disk.troubles.hangs.load(Ordering::SeqCst) {
            return self.disk.read(offset, buf);
        }
        let (sender, receiver) = mpsc::channel();
        // SAFETY: nobody else has the memory until the read has ended, which is waited for.
        let bufs = vec![unsafe { IoBuf::new(buf.as_mut_ptr(), buf.len()) }];
        let done = Box::new(move |outcome| drop(sender.send(outcome)));
        self.submit(Io { op: IoOp::Read, offset, bufs, done });
        receiver.recv().unwrap()
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.disk.write(offset, buf)
    }

    fn sync(&self) -> io::Result<()> {
        let others = {
            let mut meeting = self.disk.troubles.syncs_meet.lock().unwrap();
            let waits = meeting.0 > 0;
            meeting.0 = meeting.0.saturating_sub(1);
            meeting.1.clone().filter(|_| waits)
        };
        if let Some(others) = others {
            others.wait();
        }
        if self.disk.troubles.fails_syncs.load(Ordering::SeqCst) {
            return Err(io::Error::other("no sync works"));
        }
        self.disk.check()
    }

    fn journal(&self, offset: u64, len: u64) -> io::Result<Box<dyn JournalArea>> {
        Ok(Box::new(Journal { disk: self.disk.clone(), offset, len }))
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }
}

struct Journal {
    disk: Disk,
    offset: u64,
    len: u64,
}

impl Journal {
    fn check(&self) -> io::Result<()> {
        match self.disk.troubles.fails_journal.load(Ordering::SeqCst) {
            true => Err(io::Error::other("no journal works")),
            false => Ok(()),
        }
    }
}

impl JournalArea for Journal {
    fn read_all(&self) -> io::Result<Vec<u8>> {
        let (start, len) = (self.offset as usize, self.len as usize);
        Ok(self.disk.with_bytes(|bytes| bytes[start..][..len].to_vec()))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check()?;
        self.disk.put(self.offset + offset, bytes);
        Ok(())
    }

    fn prepare(&self, _offset: u64) {
        self.disk.troubles.journal_prepared.fetch_add(1, Ordering::SeqCst);
    }

    fn sync(&self) -> io::Result<()> {
        self.check()
    }
}

/// Creates, synchronously.
pub(crate) fn put(store: &Store, key: &str, group: u64, value: &[u8]) {
    store.create(key.as_bytes(), GroupId::new(group), value).wait().unwrap();
}

/// What is there of it.
pub(crate) fn get(store: &Store, key: &str) -> Option<Vec<u8>> {
    store.read(key.as_bytes()).wait().unwrap().map(|object| object.to_vec())
}
