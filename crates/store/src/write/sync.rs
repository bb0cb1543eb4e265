//! Writing out everything created so far.
//!
//! Invariant: everything created before the call is on the devices when it returns, or the error
//! tells how much is not; of what was dropped, and of syncs that failed for others, all calls tell
//! that were under way then, or else the next one. Threads: any.

use std::io;

use crate::engine::Engine;
use crate::error::SyncError;
use crate::sync::Arc;

impl Engine {
    /// Writes out waiting objects, and makes the devices' contents durable.
    pub(crate) fn sync(self: &Arc<Engine>) -> Result<(), SyncError> {
        let told = self.nursery.dropped_told();
        let errors_told: Vec<u64> =
            self.space.volumes.iter().map(|volume| volume.sync_errors.told()).collect();
        self.recovery.wait_ring_known();
        self.drain();
        self.work_inline();
        let (dropped, reason) = self.nursery.dropped();
        self.sync_volumes(&errors_told).map_err(SyncError::Io)?;
        self.sync_removes()?;
        if self.space.all_gone() {
            return Err(SyncError::VolumesGone { reason: self.space.why_gone() });
        }
        if dropped == told {
            return Ok(());
        }
        self.nursery.tell_dropped(dropped);
        Err(SyncError::Dropped { objects: dropped - told, reason })
    }

    /// Writes a checkpoint, once recovery is done.
    pub(crate) fn checkpoint(self: &Arc<Engine>) -> Result<(), SyncError> {
        self.recovery.wait_done();
        self.write_checkpoint(false).map_err(SyncError::Io)
    }

    /// Makes the removes and purges so far durable.
    pub(crate) fn sync_removes(&self) -> Result<(), SyncError> {
        self.journal.sync().map_err(|error| SyncError::Io(self.space.of_journal(error)))
    }

    /// Syncs each volume. An error is also what failed for others, beyond what had been told of
    /// each volume: it gave up what is promised here.
    fn sync_volumes(&self, errors_told: &[u64]) -> io::Result<()> {
        let mut in_service = self.space.volumes.iter().filter(|volume| !volume.is_out());
        let synced = in_service.try_for_each(|volume| self.space.sync(volume));
        let mut before = Ok(());
        for (volume, told) in self.space.volumes.iter().zip(errors_told) {
            let tell = volume.sync_errors.tell_since(*told);
            before = before.and(tell.map_err(|error| volume.named(error)));
        }
        synced.and(before)
    }
}
