//! Reads and writes of the space, on the calling thread or submitted.
//!
//! Owns nothing but what the devices have. Invariants: each outcome is counted, and each read that
//! is over ends a silence, however it ended. Threads: any; what is submitted ends on an I/O thread.

use std::io;
use std::sync::Arc;

use super::{SegmentId, Space, Spot, Volume};
use crate::device::{Io, IoBuf, IoOp, completing};
use crate::memory::mapped::AlignedBuf;
use crate::memory::pool::Run;

/// What the device has: dropped once that is over, whatever came of it.
struct SubmittedIo {
    space: Arc<Space>,
    volume: usize,
    op: IoOp,
    /// Events that had failed such I/Os of the volume by then.
    events: u32,
}

impl SubmittedIo {
    fn volume(&self) -> &Volume {
        &self.space.volumes[self.volume]
    }

    fn noted(self, outcome: io::Result<()>) -> io::Result<()> {
        self.space.noted(self.op, self.volume(), self.events, outcome)
    }
}

impl Drop for SubmittedIo {
    fn drop(&mut self) {
        if self.op == IoOp::Read {
            self.space.read_ended(self.volume());
        }
    }
}

/// The same of a read on the calling thread, which may panic (a device of the embedder may).
struct Asking<'a>(&'a Space, &'a Volume);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.read_ended(self.1);
    }
}

impl Space {
    /// Reads synchronously on the calling thread.
    pub(crate) fn read(&self, segment: SegmentId, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let spot = self.spot(segment, offset);
        spot.volume.usable()?;
        let events = spot.volume.error_events(IoOp::Read).count();
        let is_silent = self.silent_for(spot.volume).is_some();
        spot.volume.answers.ask(|| self.clock.monotonic());
        let asking = Asking(self, spot.volume);
        // What was asked before may be lost, and hold all places in the device's queue.
        let outcome = match is_silent {
            true => spot.volume.device.read_past(spot.offset, buf),
            false => spot.volume.device.read_at(spot.offset, buf),
        };
        drop(asking);
        self.noted(IoOp::Read, spot.volume, events, outcome)
    }

    /// Writes synchronously on the calling thread.
    pub(crate) fn write(&self, segment: SegmentId, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.assert_touched();
        let spot = self.spot(segment, offset);
        spot.volume.usable()?;
        let events = spot.volume.error_events(IoOp::Write).count();
        let outcome = spot.volume.device.write_at(spot.offset, buf);
        self.noted(IoOp::Write, spot.volume, events, outcome)
    }

    /// Starts a read or write of the leading bytes of each run of `pieces`, which are kept alive
    /// until `done` is called, and no longer: it may be what tells others that their memory is
    /// free.
    pub(crate) fn submit(
        self: &Arc<Space>,
        op: IoOp,
        segment: SegmentId,
        offset: u64,
        pieces: Vec<(Run, usize)>,
        done: impl FnOnce(io::Result<()>) + Send + 'static,
    ) {
        let spot = self.spot(segment, offset);
        // SAFETY: the closure keeps the runs alive until it is called, when the I/O is over; the
        // caller reserved the bytes (reads) or has finished writing them (writes).
        let bufs = pieces.iter().map(|(run, len)| unsafe { part_of(run, 0, *len) }).collect();
        self.start(op, &spot, bufs, move |outcome| {
            drop(pieces);
            done(outcome);
        });
    }

    /// Starts a write of the leading bytes of each run, but with its share of `leads`, some blocks,
    /// in the place of as many of the run's first bytes.
    pub(crate) fn submit_led(
        self: &Arc<Space>,
        segment: SegmentId,
        offset: u64,
        leads: AlignedBuf,
        pieces: Vec<(Run, usize)>,
        done: impl FnOnce(io::Result<()>) + Send + 'static,
    ) {
        let spot = self.spot(segment, offset);
        let lead_bytes = leads.len() / pieces.len();
        let mut bufs = Vec::with_capacity(2 * pieces.len());
        for (lead, (run, len)) in leads.chunks_exact(lead_bytes).zip(&pieces) {
            // SAFETY: the closure keeps the leads and the runs alive until it is called, when the
            // write is over, and no thread changes them; moving a buffer does not move its memory.
            unsafe {
                bufs.push(IoBuf::new(lead.as_ptr().cast_mut(), lead_bytes));
                if *len > lead_bytes {
                    bufs.push(part_of(run, lead_bytes, *len - lead_bytes));
                }
            }
        }
        self.start(IoOp::Write, &spot, bufs, move |outcome| {
            drop((pieces, leads));
            done(outcome);
        });
    }

    /// Starts a write of memory outside the pool.
    pub(crate) fn submit_write(
        self: &Arc<Space>,
        segment: SegmentId,
        offset: u64,
        buf: AlignedBuf,
        done: impl FnOnce(io::Result<()>) + Send + 'static,
    ) {
        let spot = self.spot(segment, offset);
        let done = move |outcome, _written| done(outcome);
        if let Some(io) = self.io_outside(IoOp::Write, &spot, buf, done) {
            spot.volume.device.submit(io);
        }
    }

    /// Starts a read into memory outside the pool, which `done` gets back. Writes wait for it: it
    /// goes before other reads.
    pub(crate) fn submit_read_first(
        self: &Arc<Space>,
        segment: SegmentId,
        offset: u64,
        buf: AlignedBuf,
        done: impl FnOnce(io::Result<()>, AlignedBuf) + Send + 'static,
    ) {
        let spot = self.spot(segment, offset);
        if let Some(io) = self.io_outside(IoOp::Read, &spot, buf, done) {
            spot.volume.device.submit_first(io);
        }
    }

    /// As `noted_io`, of memory outside the pool, which `done` gets back.
    fn io_outside(
        self: &Arc<Space>,
        op: IoOp,
        spot: &Spot<'_>,
        mut buf: AlignedBuf,
        done: impl FnOnce(io::Result<()>, AlignedBuf) + Send + 'static,
    ) -> Option<Io> {
        // SAFETY: the closure keeps the memory of `buf` alive until the I/O is done, and no other
        // thread uses it until then; moving the buffer does not move that memory.
        let piece = unsafe { IoBuf::new(buf.as_mut_ptr(), buf.len()) };
        self.noted_io(op, spot, vec![piece], move |outcome| done(outcome, buf))
    }

    fn start(
        self: &Arc<Space>,
        op: IoOp,
        spot: &Spot<'_>,
        bufs: Vec<IoBuf>,
        done: impl FnOnce(io::Result<()>) + Send + 'static,
    ) {
        if let Some(io) = self.noted_io(op, spot, bufs, done) {
            spot.volume.device.submit(io);
        }
    }

    /// An I/O whose outcome is counted; `None`, and it has ended, if the volume is out of service.
    fn noted_io(
        self: &Arc<Space>,
        op: IoOp,
        spot: &Spot<'_>,
        bufs: Vec<IoBuf>,
        done: impl FnOnce(io::Result<()>) + Send + 'static,
    ) -> Option<Io> {
        if op == IoOp::Write {
            self.assert_touched();
        }
        if let Err(error) = spot.volume.usable() {
            done(Err(error));
            return None;
        }
        if op == IoOp::Read {
            spot.volume.answers.ask(|| self.clock.monotonic());
        }
        let volume = spot.volume.superblock.volume_index as usize;
        let events = spot.volume.error_events(op).count();
        let asked = SubmittedIo { space: Arc::clone(self), volume, op, events };
        let done = Box::new(move |outcome: io::Result<()>| {
            completing(|| done(asked.noted(outcome)));
        });
        Some(Io { op, offset: spot.offset, bufs, done })
    }
}

/// The bytes `from..from + len` of a run.
///
/// # Safety
/// As for [`IoBuf::new`].
unsafe fn part_of(run: &Run, from: usize, len: usize) -> IoBuf {
    assert!(from + len <= run.len_bytes(), "I/O beyond its run");
    // SAFETY: the bytes lie in the run; the rest by the caller.
    unsafe { IoBuf::new(run.ptr().add(from), len) }
}
