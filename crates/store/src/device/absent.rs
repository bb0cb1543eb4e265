//! A stand-in for a device that is not there: every request of it fails.
//!
//! Owns no device. Threads: any.

use std::io;

use super::{Device, DeviceInfo, DeviceStats, Io, JournalArea};

/// A device that is missing.
pub(crate) struct Absent {
    info: DeviceInfo,
}

impl Absent {
    pub(crate) fn new(name: String) -> Absent {
        let info = DeviceInfo {
            name,
            size_bytes: 0,
            block_bytes: 1,
            direct: false,
            seeks: false,
            io_engine: "none",
        };
        Absent { info }
    }
}

fn gone<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::NotFound, "the volume is missing"))
}

impl Device for Absent {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, io: Io) {
        (io.done)(gone());
    }

    fn read_at(&self, _offset: u64, _buf: &mut [u8]) -> io::Result<()> {
        gone()
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> io::Result<()> {
        gone()
    }

    fn sync(&self) -> io::Result<()> {
        gone()
    }

    fn journal(&self, _offset: u64, _len: u64) -> io::Result<Box<dyn JournalArea>> {
        gone()
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }
}
