//! The simulated disk's handling of an I/O: contents, faults, the trace, and the order of
//! completions.
//!
//! Threads: those of the device; everything that changes is in [`State`], behind one lock.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use damelo::device::{DeviceInfo, DeviceStats, Io, IoBuf, IoOp};

use super::Completion;
use crate::disk::SECTOR_BYTES;
use crate::fault::{Effect, FaultPlan, OpKind};
use crate::trace::{Tick, Ticks, Trace};

/// Past this many written bytes a device without history writes its cache back.
const CACHE_BYTES_MAX: u64 = 32 << 20;
/// Virtual time of one I/O, besides its bytes.
const LATENCY_BASE_NS: u64 = 80_000;
/// Virtual time per byte, in nanoseconds: 1 GB/s.
const LATENCY_BYTE_NS: u64 = 1;
/// Time for which the pump lets I/Os gather, so that there is something to reorder.
const GATHER: Duration = Duration::from_micros(30);

pub(super) struct Pending {
    pub(super) io: Io,
    pub(super) begin: Tick,
    pub(super) checksum: u64,
}

pub(super) struct State {
    pub(super) view: Vec<u8>,
    pub(super) trace: Trace,
    pub(super) queue: Vec<Pending>,
    pub(super) rng: fastrand::Rng,
    pub(super) faults: FaultPlan,
    pub(super) stats: DeviceStats,
    pub(super) violations: Vec<String>,
    pub(super) vanished: bool,
    pub(super) stopping: bool,
}

pub(super) struct Shared {
    pub(super) info: DeviceInfo,
    pub(super) ticks: Arc<Ticks>,
    pub(super) completion: Completion,
    pub(super) history: bool,
    pub(super) state: Mutex<State>,
    pub(super) wake: Condvar,
}

pub(super) fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

/// Mixes the bytes of a buffer, so that a change during the write is noticed.
pub(super) fn checksum(bufs: &[IoBuf]) -> u64 {
    gather(bufs).chunks(8).fold(0, |sum: u64, word| {
        let mut eight = [0; 8];
        eight[..word.len()].copy_from_slice(word);
        (sum.rotate_left(5) ^ u64::from_le_bytes(eight)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

pub(super) fn gather(bufs: &[IoBuf]) -> Vec<u8> {
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
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn pump_until_stopped(&self) {
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
    pub(super) fn complete_one(&self) -> bool {
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

    pub(super) fn execute(&self, state: &mut State, pending: &Pending) -> io::Result<()> {
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
    pub(super) fn read(
        &self,
        state: &mut State,
        op: OpKind,
        offset: u64,
        bytes: &mut [u8],
    ) -> io::Result<()> {
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
    pub(super) fn write(
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

    pub(super) fn begin_write(
        &self,
        state: &mut State,
        offset: u64,
        bytes: &[u8],
        journal: bool,
    ) -> Tick {
        let begin = self.ticks.take();
        state.trace.begin_write(begin, offset, bytes, journal);
        begin
    }

    pub(super) fn sync(&self, op: OpKind, journal: Option<Range<u64>>) -> io::Result<()> {
        let mut state = self.lock();
        let range = journal.clone().unwrap_or(0..self.info.size_bytes);
        let failure = match state.effect(op, range) {
            None | Some(Effect::Corrupt) => None,
            Some(Effect::Lost) => return Ok(()),
            Some(Effect::Vanish) => return Err(errno(libc::ENXIO)),
            Some(Effect::Enospc) => Some(errno(libc::ENOSPC)),
            Some(Effect::Eio | Effect::Short) => Some(errno(libc::EIO)),
        };
        if let Some(error) = failure {
            state.trace.sync_failed(self.ticks.take(), journal.as_ref());
            return Err(error);
        }
        let begin = self.ticks.take();
        state.trace.sync(begin, self.ticks.take(), journal);
        if !self.history && op == OpKind::Sync {
            state.trace.compact(self.ticks.now());
        }
        Ok(())
    }

    /// Why the request is refused outright, if it is.
    pub(super) fn refusal(&self, offset: u64, lengths: &[(usize, usize)]) -> Option<String> {
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

    pub(super) fn note_overlap(&mut self, io: &Io) {
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
