//! Writing out everything created so far.
//!
//! Invariant: everything created before the call is on the devices when it returns, or the error
//! tells how much is not. Threads: any.

use crate::engine::Engine;
use crate::error::SyncError;
use crate::sync::Arc;

impl Engine {
    /// Writes out waiting objects, and makes the devices' contents durable.
    pub(crate) fn sync(self: &Arc<Engine>) -> Result<(), SyncError> {
        self.recovery.wait_ring_known();
        self.drain();
        self.work_inline();
        let dropped = self.nursery.take_dropped();
        for volume in self.space.volumes.iter().filter(|v| !v.is_out()) {
            volume.sync().map_err(SyncError::Io)?;
        }
        self.journal.sync().map_err(SyncError::Io)?;
        if self.space.all_gone() {
            return Err(SyncError::VolumesGone { reason: self.space.why_gone() });
        }
        if dropped > 0 {
            let reason = self.space.take_write_error();
            let reason = reason.unwrap_or_else(|| "no segment was to be had".to_owned());
            return Err(SyncError::Dropped { objects: dropped, reason });
        }
        Ok(())
    }
}
