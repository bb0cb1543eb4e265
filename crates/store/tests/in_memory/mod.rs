//! A device in the memory of the test, for stores whose I/O is to be watched or kept away from the
//! operating system, and a clock that stands still.
//!
//! Owns the bytes and the log of transfers, both behind one mutex. Threads: any.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use damelo::Clock;
use damelo::device::{Device, DeviceInfo, DeviceStats, Io, IoOp, JournalArea};

/// Whether it was a write, where, how much, and a sum of the bytes.
pub(crate) type Transfer = (bool, u64, usize, u32);

/// What the device holds; it outlives a store that is closed.
pub(crate) struct State {
    bytes: Vec<u8>,
    /// What was transferred, of a device that is watched.
    log: Option<Vec<Transfer>>,
    fails: bool,
}

/// A device in memory that does everything at once.
pub(crate) struct Memory {
    info: DeviceInfo,
    state: Arc<Mutex<State>>,
}

impl State {
    /// An empty device.
    pub(crate) fn new(size_bytes: usize, watched: bool) -> Arc<Mutex<State>> {
        let log = watched.then(Vec::new);
        Arc::new(Mutex::new(State { bytes: vec![0; size_bytes], log, fails: false }))
    }

    /// Another device with what this one holds now: what is left after a crash, where nothing that
    /// was written is lost.
    #[allow(dead_code, reason = "not every test crashes")]
    pub(crate) fn copied(&self) -> Arc<Mutex<State>> {
        Arc::new(Mutex::new(State { bytes: self.bytes.clone(), log: None, fails: false }))
    }

    /// From now on what is submitted to be written is not.
    #[allow(dead_code, reason = "not every test breaks it")]
    pub(crate) fn fail_writes(&mut self) {
        self.fails = true;
    }

    /// The transfers since this was last asked.
    #[allow(dead_code, reason = "not every test watches")]
    pub(crate) fn take_log(&mut self) -> Vec<Transfer> {
        self.log.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn read(&mut self, offset: u64, buf: &mut [u8]) {
        buf.copy_from_slice(&self.bytes[offset as usize..][..buf.len()]);
        self.note(false, offset, buf);
    }

    fn write(&mut self, offset: u64, buf: &[u8]) {
        self.bytes[offset as usize..][..buf.len()].copy_from_slice(buf);
        self.note(true, offset, buf);
    }

    fn note(&mut self, write: bool, offset: u64, bytes: &[u8]) {
        if let Some(log) = &mut self.log {
            log.push((write, offset, bytes.len(), crc32c::crc32c(bytes)));
        }
    }
}

impl Memory {
    pub(crate) fn device(state: &Arc<Mutex<State>>) -> Arc<dyn Device> {
        let info = DeviceInfo {
            name: "memory".to_owned(),
            size_bytes: state.lock().unwrap().bytes.len() as u64,
            block_bytes: 512,
            direct: true,
            seeks: false,
            io_engine: "memory",
        };
        Arc::new(Memory { info, state: Arc::clone(state) })
    }
}

impl Device for Memory {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, io: Io) {
        if io.op == IoOp::Write && self.state.lock().unwrap().fails {
            return (io.done)(Err(io::Error::other("it is broken")));
        }
        let mut offset = io.offset;
        for piece in &io.bufs {
            let (start, len) = (piece.as_ptr(), piece.len());
            let mut state = self.state.lock().unwrap();
            match io.op {
                IoOp::Read => {
                    // SAFETY: `IoBuf::new` promised that the memory is valid and nobody else's
                    // until `done`, which is called below.
                    let bytes = unsafe { std::slice::from_raw_parts_mut(start, len) };
                    state.read(offset, bytes);
                }
                IoOp::Write => {
                    // SAFETY: as above; nobody changes the memory before `done`.
                    let bytes = unsafe { std::slice::from_raw_parts(start, len) };
                    state.write(offset, bytes);
                }
            }
            offset += len as u64;
        }
        (io.done)(Ok(()));
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.state.lock().unwrap().read(offset, buf);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.state.lock().unwrap().write(offset, buf);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn journal(&self, offset: u64, len: u64) -> io::Result<Box<dyn JournalArea>> {
        Ok(Box::new(Journal { state: Arc::clone(&self.state), offset, len }))
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }
}

struct Journal {
    state: Arc<Mutex<State>>,
    offset: u64,
    len: u64,
}

impl JournalArea for Journal {
    fn read_all(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.len as usize];
        self.state.lock().unwrap().read(self.offset, &mut bytes);
        Ok(bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.state.lock().unwrap().write(self.offset + offset, bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Always the same second.
#[allow(dead_code, reason = "not every test stops the clock")]
pub(crate) struct Stopped;

impl Clock for Stopped {
    fn unix_seconds(&self) -> u64 {
        1_700_000_000
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}
