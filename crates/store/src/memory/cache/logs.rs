//! Logs: frames that single objects are copied into, one after the other; each queue has its own.
//!
//! Invariants: space in a log is reserved under the queue's lock for one record, whose header is
//! written at once, since a log's records are found by their headers; the rest is written before
//! the record is published. A full log goes to its queue like any other run. Threads: any.

use super::Cache;
use crate::format::{RECORD_HEADER_BYTES, UNIT_BYTES};
use crate::memory::pool::Run;
use crate::policy::residency::{Hint, QUEUES, Queue};
use crate::sync::lock;

/// Most logs open at once for each queue. With a single log, half an object's length is lost at the
/// end of each frame on average.
const OPEN_LOGS_MAX: usize = 8;
/// A small memory cannot afford many half-filled frames.
const FRAMES_PER_OPEN_LOG: usize = 256;

/// Logs open at once for each queue in a memory of this many frames.
pub(super) fn open_logs_max(frames: usize) -> usize {
    (frames / FRAMES_PER_OPEN_LOG).clamp(1, OPEN_LOGS_MAX)
}

/// A run that is being filled.
pub(super) struct OpenLog {
    pub(super) run: Run,
    used: usize,
}

impl Cache {
    /// Closes all open logs, for when only they hold memory. True if there were any.
    pub(super) fn close_some_log(&self) -> bool {
        let mut any = false;
        for queue in QUEUES {
            let logs = std::mem::take(&mut *lock(&self.logs[queue as usize]));
            for log in logs {
                self.close_log(log, queue);
                any = true;
            }
        }
        any
    }

    /// Closes a log and frees its unused end. With objects of equal length much may be unused:
    /// three of 16 KiB with their headers fill three quarters of 64 KiB.
    fn close_log(&self, log: OpenLog, queue: Queue) {
        self.pool.shorten(&log.run, log.used);
        self.enqueue(log.run, queue, 0..log.used as u32);
    }

    /// Copies a record into the log of `queue`. `None` if there is no memory for it.
    pub(crate) fn append(
        &self,
        queue: Queue,
        record: &[u8],
        may_evict: bool,
    ) -> Option<(Run, u32)> {
        let size = record.len().next_multiple_of(UNIT_BYTES as usize);
        if size > self.pool.frame_bytes() {
            return None;
        }
        if may_evict {
            // Only new objects advance the clock, not copies.
            self.regret.filled(size);
        }
        if let Some(placed) = self.place(queue, size, record) {
            return Some(placed);
        }
        let hint = if queue == Queue::Loved { Hint::Loved } else { Hint::Neutral };
        let fresh = if may_evict { self.take_frame(hint) } else { self.pool.try_take_frame() }?;
        let full = {
            let mut logs = lock(&self.logs[queue as usize]);
            logs.push(OpenLog { run: fresh, used: 0 });
            let most = self.open_logs_max;
            let fullest = logs.iter().enumerate().max_by_key(|(_, log)| log.used).map(|(at, _)| at);
            fullest.filter(|_| logs.len() > most).map(|at| logs.swap_remove(at))
        };
        if let Some(full) = full {
            self.close_log(full, queue);
        }
        self.place(queue, size, record)
    }

    /// Puts a record into the fullest open log that has room for it.
    fn place(&self, queue: Queue, size: usize, record: &[u8]) -> Option<(Run, u32)> {
        let frame_bytes = self.pool.frame_bytes();
        let (header, rest) = record.split_at(RECORD_HEADER_BYTES);
        let (run, offset) = {
            let mut logs = lock(&self.logs[queue as usize]);
            let fitting = logs.iter_mut().filter(|log| frame_bytes - log.used >= size);
            let log = fitting.max_by_key(|log| log.used)?;
            let offset = log.used;
            log.used += size;
            // SAFETY: `offset .. offset + size` is reserved for this call only, and no other thread
            // knows of it while the log is locked.
            unsafe { log.run.bytes_mut(offset, header.len()) }.copy_from_slice(header);
            (log.run.clone(), offset)
        };
        // SAFETY: as above; a thread that finds the record by its header reads nothing else of it
        // before the caller publishes it.
        unsafe { run.bytes_mut(offset + header.len(), rest.len()) }.copy_from_slice(rest);
        Some((run, offset as u32))
    }
}
