//! Writing out everything created so far.
//!
//! Invariant: everything created before the call is on the devices when it returns, or the error
//! tells how much is not; of what was dropped all calls tell that were under way then, or else the
//! next one. Threads: any.

use crate::engine::Engine;
use crate::error::SyncError;
use crate::sync::Arc;

impl Engine {
    /// Writes out waiting objects, and makes the devices' contents durable.
    pub(crate) fn sync(self: &Arc<Engine>) -> Result<(), SyncError> {
        let told = self.nursery.dropped_told();
        self.recovery.wait_ring_known();
        self.drain();
        self.work_inline();
        let (dropped, reason) = self.nursery.dropped();
        for volume in self.space.volumes.iter().filter(|v| !v.is_out()) {
            self.space.sync(volume).map_err(SyncError::Io)?;
        }
        self.journal.sync().map_err(|error| SyncError::Io(self.space.of_journal(error)))?;
        if self.space.all_gone() {
            return Err(SyncError::VolumesGone { reason: self.space.why_gone() });
        }
        if dropped == told {
            return Ok(());
        }
        self.nursery.tell_dropped(dropped);
        Err(SyncError::Dropped { objects: dropped - told, reason })
    }
}
