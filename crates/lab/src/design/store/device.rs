//! A device in memory that remembers what it was asked for.
//!
//! Invariants: a transfer is in the log before it is acknowledged; transfers are logged in whole
//! sectors. Threads: any; the log and the sectors are each under a lock, never both at once.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use damelo::device::{Device, DeviceInfo, DeviceStats, Io, IoOp, JournalArea};

use super::TraceClock;
use super::sectors::Sectors;
use crate::disk::{Direction, Drive, SECTOR_BYTES};
use crate::machine::Kind;

/// One read or write of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) direction: Direction,
    pub(super) kind: Kind,
    pub(super) offset: u64,
    pub(super) bytes: u32,
}

struct Shared {
    drive: Drive,
    clock: Arc<TraceClock>,
    sectors: Mutex<Sectors>,
    transfers: Mutex<Vec<Transfer>>,
}

/// The device.
pub(super) struct Recorder {
    info: DeviceInfo,
    shared: Arc<Shared>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn note(&self, direction: Direction, kind: Kind, offset: u64, bytes: u64) {
        let start = offset / SECTOR_BYTES * SECTOR_BYTES;
        let end = (offset + bytes).next_multiple_of(SECTOR_BYTES);
        let bytes = (end - start) as u32;
        if direction == Direction::Read {
            self.clock.spend(self.drive.mean_read_ns(end - start));
        }
        lock(&self.transfers).push(Transfer { direction, kind, offset: start, bytes });
    }

    fn read(&self, kind: Kind, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        lock(&self.sectors).read(offset, buf)?;
        self.note(Direction::Read, kind, offset, buf.len() as u64);
        Ok(())
    }

    fn write(&self, kind: Kind, offset: u64, buf: &[u8]) -> io::Result<()> {
        lock(&self.sectors).write(offset, buf)?;
        self.note(Direction::Write, kind, offset, buf.len() as u64);
        Ok(())
    }

    fn transfer(&self, io: &Io) -> io::Result<()> {
        let mut sectors = lock(&self.sectors);
        let mut offset = io.offset;
        for buf in &io.bufs {
            let (start, len) = (buf.as_ptr(), buf.len());
            match io.op {
                IoOp::Read => {
                    // SAFETY: the submitter promised (`IoBuf::new`) that the memory is valid and
                    // its own until `done` has run, which is later; nobody else has a reference to
                    // it.
                    let bytes = unsafe { std::slice::from_raw_parts_mut(start, len) };
                    sectors.read(offset, bytes)?;
                }
                IoOp::Write => {
                    // SAFETY: as above; nobody changes the memory before `done`.
                    let bytes = unsafe { std::slice::from_raw_parts(start, len) };
                    sectors.write(offset, bytes)?;
                }
            }
            offset += len as u64;
        }
        drop(sectors);
        let direction = match io.op {
            IoOp::Read => Direction::Read,
            IoOp::Write => Direction::Write,
        };
        self.note(direction, Kind::Data, io.offset, io.len_bytes());
        Ok(())
    }
}

impl Recorder {
    /// A device of zeros.
    pub(super) fn new(size_bytes: u64, drive: &Drive, clock: Arc<TraceClock>) -> Recorder {
        let info = DeviceInfo {
            name: "lab".to_owned(),
            size_bytes,
            block_bytes: 512,
            direct: true,
            seeks: matches!(drive, Drive::Mechanical(_)),
            io_engine: "lab",
        };
        let shared = Shared {
            drive: drive.clone(),
            clock,
            sectors: Mutex::new(Sectors::new(size_bytes)),
            transfers: Mutex::default(),
        };
        Recorder { info, shared: Arc::new(shared) }
    }

    /// Appends what was done since the last time.
    pub(super) fn drain_into(&self, out: &mut Vec<Transfer>) {
        out.append(&mut lock(&self.shared.transfers));
    }
}

impl Device for Recorder {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, io: Io) {
        let result = self.shared.transfer(&io);
        (io.done)(result);
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.shared.read(Kind::Data, offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.shared.write(Kind::Data, offset, buf)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn journal(&self, offset: u64, len: u64) -> io::Result<Box<dyn JournalArea>> {
        Ok(Box::new(Journal { shared: Arc::clone(&self.shared), offset, len }))
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }
}

struct Journal {
    shared: Arc<Shared>,
    offset: u64,
    len: u64,
}

impl JournalArea for Journal {
    fn read_all(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.len as usize];
        self.shared.read(Kind::Table, self.offset, &mut bytes)?;
        Ok(bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if offset + bytes.len() as u64 > self.len {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.shared.write(Kind::Table, self.offset + offset, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
