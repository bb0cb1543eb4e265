//! A device that a test comes between: what its tap leaves alone, the device below it does.
//!
//! Owns the tap. Threads: any.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use damelo::device::{Device, DeviceInfo, DeviceStats, Io, JournalArea};

/// What a test does at a device.
pub(crate) trait Tap: Send + Sync + 'static {
    /// An I/O is submitted; by default `disk` does it.
    fn submit(&self, disk: &dyn Device, io: Io) {
        disk.submit(io);
    }

    /// A thread is about to read, and to wait for that.
    fn before_read(&self) {}
}

/// The device `disk`, but for what `tap` does.
pub(crate) struct Tapped<T> {
    pub(crate) disk: Arc<dyn Device>,
    pub(crate) tap: T,
}

impl<T: Tap> Device for Tapped<T> {
    fn info(&self) -> &DeviceInfo {
        self.disk.info()
    }

    fn submit(&self, io: Io) {
        self.tap.submit(&*self.disk, io);
    }

    fn settle(&self, most: Duration) {
        self.disk.settle(most);
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.tap.before_read();
        self.disk.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.disk.write_at(offset, buf)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn journal(&self, offset: u64, len: u64) -> io::Result<Box<dyn JournalArea>> {
        self.disk.journal(offset, len)
    }

    fn stats(&self) -> DeviceStats {
        self.disk.stats()
    }
}
