//! What `Store` does while its caller waits, for callers that await.
//!
//! Invariants: a change that needs no waiting has taken effect when the call returns; one that is
//! dropped takes effect before the drop, or never. Threads: any; what blocks runs on workers.

use crate::deferred::{Caller, Deferred};
use crate::durable::marks::PURGE_PREFIX_BYTES_MAX;
use crate::engine::Engine;
use crate::error::{PurgeError, SyncError};
use crate::format::JournalOp;
use crate::ops::{Purge, Remove, Syncing};
use crate::store::Store;
use crate::sync::Arc;
use crate::types::GroupId;

/// Removes, purges and syncs of a store as operations, which a task awaits without blocking its
/// thread: see [`Store::awaited`].
///
/// Each does what the method of [`Store`] with its name does. One that is dropped before it was
/// polled, and was not ready ([`Remove::is_ready`]), does nothing. What has to wait does so on the
/// threads that creates wait on.
#[derive(Debug, Clone, Copy)]
pub struct Awaited<'a>(pub(super) &'a Store);

impl Awaited<'_> {
    fn engine(&self) -> &Arc<Engine> {
        self.0.engine()
    }

    /// As [`Store::remove`]. Ready at once unless the journal is full or the remove waits for a
    /// sync of the disk.
    ///
    /// # Errors
    /// As for [`Store::remove`].
    pub fn remove(&self, key: &[u8]) -> Remove {
        let engine = self.engine();
        if engine.is_closed() || !engine.remove_blocks(key) {
            return Remove(Deferred::ready(engine.remove(key)));
        }
        let (this, key) = (Arc::clone(engine), key.to_vec());
        let work = move |caller: &Caller| this.remove_for(&key, Some(caller));
        Remove(Deferred::creating(engine, work))
    }

    /// As [`Store::purge_group`]. Ready at once unless the journal is full or the purge waits for a
    /// sync of the disk.
    ///
    /// # Errors
    /// As for [`Store::purge_group`].
    pub fn purge_group(&self, group: GroupId) -> Purge {
        self.purge(JournalOp::PurgeGroup { group: group.get() })
    }

    /// As [`Store::purge_prefix`]; ready as [`Awaited::purge_group`] is.
    ///
    /// # Errors
    /// As for [`Store::purge_prefix`].
    pub fn purge_prefix(&self, prefix: &[u8]) -> Purge {
        match checked_prefix(prefix) {
            Ok(op) => self.purge(op),
            Err(error) => Purge(Deferred::ready(Err(error))),
        }
    }

    /// As [`Store::purge_all`]; ready as [`Awaited::purge_group`] is.
    ///
    /// # Errors
    /// As for [`Store::purge_all`].
    pub fn purge_all(&self) -> Purge {
        self.purge(JournalOp::PurgeAll)
    }

    fn purge(&self, op: JournalOp) -> Purge {
        let engine = self.engine();
        if engine.is_closed() || !engine.purge_blocks() {
            return Purge(Deferred::ready(engine.purge(op, None)));
        }
        let this = Arc::clone(engine);
        Purge(Deferred::creating(engine, move |caller| this.purge(op, Some(caller))))
    }

    /// As [`Store::sync`].
    ///
    /// # Errors
    /// As for [`Store::sync`].
    ///
    /// # Example
    /// ```
    /// # async fn stored(store: &damelo::Store) -> Result<(), Box<dyn std::error::Error>> {
    /// store.create(b"key", damelo::GroupId::of("group"), b"value").await?;
    /// store.awaited().sync().await?;
    /// store.awaited().remove(b"key").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn sync(&self) -> Syncing {
        self.syncing(Engine::sync)
    }

    /// As [`Store::sync_removes`].
    ///
    /// # Errors
    /// As for [`Store::sync_removes`].
    pub fn sync_removes(&self) -> Syncing {
        self.syncing(|engine| engine.sync_removes())
    }

    /// As [`Store::checkpoint`].
    ///
    /// # Errors
    /// As for [`Store::checkpoint`].
    pub fn checkpoint(&self) -> Syncing {
        self.syncing(Engine::checkpoint)
    }

    fn syncing(
        &self,
        sync: impl FnOnce(&Arc<Engine>) -> Result<(), SyncError> + Send + 'static,
    ) -> Syncing {
        let engine = self.engine();
        if engine.is_closed() {
            return Syncing(Deferred::ready(Err(SyncError::Closed)));
        }
        // Without threads of the store's own, only this caller can write.
        if engine.is_inline() {
            return Syncing(Deferred::ready(sync(engine)));
        }
        let this = Arc::clone(engine);
        Syncing(Deferred::creating(engine, move |_| sync(&this)))
    }
}

/// The purge of a prefix, if it has a length that a mark can have.
pub(super) fn checked_prefix(prefix: &[u8]) -> Result<JournalOp, PurgeError> {
    let (length, max) = (prefix.len(), PURGE_PREFIX_BYTES_MAX);
    if prefix.is_empty() || length > max {
        return Err(PurgeError::PrefixLength { length, max });
    }
    Ok(JournalOp::PurgePrefix { prefix: prefix.to_vec() })
}
