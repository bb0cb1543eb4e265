//! Logs: frames that single objects are copied into, one after the other; each queue has its own.
//!
//! Invariants: space in a log is reserved under the queue's lock for one record, which is written
//! before it is published; a full log goes to its queue like any other run. Threads: any.

use super::Cache;
use crate::format::UNIT_BYTES;
use crate::memory::pool::Run;
use crate::policy::residency::{Hint, QUEUES, Queue};
use crate::sync::lock;
use crate::types::KeyHash;

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
    hashes: Vec<KeyHash>,
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
        self.enqueue(log.run, queue, log.hashes);
    }

    /// Copies a record into the log of `queue`. `None` if there is no memory for it.
    pub(crate) fn append(
        &self,
        queue: Queue,
        hash: KeyHash,
        record: &[u8],
        may_evict: bool,
    ) -> Option<(Run, usize)> {
        let size = record.len().next_multiple_of(UNIT_BYTES as usize);
        if size > self.pool.frame_bytes() {
            return None;
        }
        if may_evict {
            // Only new objects advance the clock, not copies.
            self.regret.filled(size);
        }
        if let Some(placed) = self.place(queue, size, hash, record) {
            return Some(placed);
        }
        let hint = if queue == Queue::Loved { Hint::Loved } else { Hint::Neutral };
        let fresh = if may_evict { self.take_frame(hint) } else { self.pool.try_take_frame() }?;
        let full = {
            let mut logs = lock(&self.logs[queue as usize]);
            logs.push(OpenLog { run: fresh, used: 0, hashes: Vec::new() });
            let most = self.open_logs_max;
            let fullest = logs.iter().enumerate().max_by_key(|(_, log)| log.used).map(|(at, _)| at);
            fullest.filter(|_| logs.len() > most).map(|at| logs.swap_remove(at))
        };
        if let Some(full) = full {
            self.close_log(full, queue);
        }
        self.place(queue, size, hash, record)
    }

    /// Puts a record into the fullest open log that has room for it.
    fn place(
        &self,
        queue: Queue,
        size: usize,
        hash: KeyHash,
        record: &[u8],
    ) -> Option<(Run, usize)> {
        let frame_bytes = self.pool.frame_bytes();
        let (run, offset) = {
            let mut logs = lock(&self.logs[queue as usize]);
            let fitting = logs.iter_mut().filter(|log| frame_bytes - log.used >= size);
            let log = fitting.max_by_key(|log| log.used)?;
            let offset = log.used;
            log.used += size;
            log.hashes.push(hash);
            (log.run.clone(), offset)
        };
        // SAFETY: `offset .. offset + size` was reserved above for this call only, and no reader
        // reaches it before the caller publishes it.
        unsafe { run.bytes_mut(offset, record.len()) }.copy_from_slice(record);
        Some((run, offset))
    }
}
