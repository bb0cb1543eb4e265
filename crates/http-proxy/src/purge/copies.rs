//! The snapshot and the delta in the store: four reserved keys, of which two are in use.
//!
//! A write puts a new delta, and from time to time a new snapshot with an empty delta, under the
//! keys that are not in use, waits until they are durable, and then removes what they replace,
//! durably. Only then is the write done. So at any moment there is a snapshot with a delta that
//! names it:
//!
//! - a crash before the first wait ended leaves the old pair, and perhaps the new one;
//! - a crash after it leaves the new pair, and perhaps the old one;
//! - a write that is done has left no other pair. If the store loses one of the two later, nothing
//!   is found, rather than something older.
//!
//! Of several pairs the newest is taken. A purge that was not acknowledged may so be in effect.
//!
//! Snapshots: when the purges since the last one have outgrown a delta of the shortest length, and
//! their writes have come to as many bytes as a snapshot has; when the last one is in danger
//! ([`Copies::is_in_danger`]); and with the first write of a process.
//!
//! Invariant: [`Written`] names the pair in use. Threads: any; whoever writes holds `Written`.

use std::sync::RwLock;

use damelo::{CreateError, GroupId, PurgeError, Store, SyncError};

use super::marks::Marks;
use super::saved::{Changes, Delta, Known, Reach, Snapshot};
use crate::io::locks;

/// Prefix of the snapshots' keys, followed by 0 or 1; no URL begins with it.
const SNAPSHOT_KEY: &[u8] = b"\0damelo-proxy/purges/";
/// The same for deltas.
const DELTA_KEY: &[u8] = b"\0damelo-proxy/purges/since/";
/// A snapshot is written again after 1/`REWRITE_DIVISOR` of the log was reused, or as many objects
/// as are that share of the index were pushed out of it.
const REWRITE_DIVISOR: u64 = 4;
/// The store gives an object that is longer than this part of a page its own blocks on disk. One
/// that is shorter lies in a page, which takes the room of a whole one when it must be durable at
/// once.
const PAGE_SHARE: u64 = 3;

/// Why something was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
    #[error(transparent)]
    Create(#[from] CreateError),
    #[error(transparent)]
    Sync(#[from] SyncError),
    #[error(transparent)]
    Remove(#[from] PurgeError),
}

/// What a store has let go of since it was opened, to make room, and how much it holds. The log
/// and a full index let go of old objects before new ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turns {
    pub(crate) segments_reused: u64,
    pub(crate) segments: u64,
    pub(crate) index_evictions: u64,
    pub(crate) index_slots: u64,
}

impl Turns {
    /// True if what was written `then` may soon be among the oldest.
    fn are_far_from(&self, then: &Turns) -> bool {
        let is_far = |now: u64, then: u64, of: u64| now.saturating_sub(then) > of / REWRITE_DIVISOR;
        is_far(self.segments_reused, then.segments_reused, self.segments)
            || is_far(self.index_evictions, then.index_evictions, self.index_slots)
    }
}

/// What is wanted of a store.
pub(crate) trait Shelf {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>>;
    fn put(&self, key: &[u8], bytes: &[u8]) -> Result<(), CopyError>;
    fn remove(&self, key: &[u8]) -> Result<(), CopyError>;
    /// Makes durable what was put and removed.
    fn sync(&self) -> Result<(), CopyError>;
    /// False if a restart would certainly lose the object. No I/O.
    fn may_have(&self, key: &[u8]) -> bool;
    fn turns(&self) -> Turns;
    /// Length of the shortest objects that are written by themselves.
    fn least_bytes(&self) -> usize;
}

impl Shelf for Store {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        // As a stream: with little memory a snapshot is not read in one piece.
        let mut reader = self.reader(key).wait().ok()??;
        let mut bytes = Vec::new();
        while let Some(chunk) = reader.next().wait().ok()? {
            bytes.extend_from_slice(&chunk);
        }
        Some(bytes)
    }

    fn put(&self, key: &[u8], bytes: &[u8]) -> Result<(), CopyError> {
        Ok(self.create(key, group(), bytes).wait()?)
    }

    fn remove(&self, key: &[u8]) -> Result<(), CopyError> {
        Store::remove(self, key)?;
        Ok(())
    }

    fn sync(&self) -> Result<(), CopyError> {
        Ok(Store::sync(self)?)
    }

    fn may_have(&self, key: &[u8]) -> bool {
        self.may_be_on_disk(key)
    }

    fn turns(&self) -> Turns {
        let stats = self.stats();
        Turns {
            segments_reused: stats.segments_reused,
            segments: stats.segments,
            index_evictions: stats.evicted_index_full,
            index_slots: stats.index_slots,
        }
    }

    fn least_bytes(&self) -> usize {
        (self.info().page_bytes / PAGE_SHARE) as usize
    }
}

/// The group of all copies.
pub(crate) fn group() -> GroupId {
    GroupId::of(SNAPSHOT_KEY)
}

/// The snapshot in use.
#[derive(Debug, Clone, Copy)]
struct Base {
    number: u64,
    generation: u64,
    bytes: usize,
    /// When it was written.
    turns: Turns,
    /// Bytes of the deltas written since.
    deltas_bytes: usize,
}

/// What lies in the store.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// The last purge that is durable.
    pub(crate) generation: u64,
    /// `None` before the first write.
    base: Option<Base>,
    /// Keys in use: 0 or 1.
    snapshot_slot: u8,
    delta_slot: u8,
    /// There may be a snapshot under the key that is not in use.
    has_stale_snapshot: bool,
}

/// What a write is going to put.
struct Planned {
    generation: u64,
    delta: Vec<u8>,
    /// A new snapshot, how it is named, and the purges that it makes part of it.
    snapshot: Option<(Vec<u8>, u64, Reach)>,
}

/// The copies of a ledger.
pub(crate) struct Copies<S> {
    shelf: S,
    least_bytes: usize,
}

fn key(prefix: &[u8], slot: u8) -> Vec<u8> {
    [prefix, &[b'0' + slot]].concat()
}

impl<S: Shelf> Copies<S> {
    pub(crate) fn new(shelf: S) -> Copies<S> {
        let least_bytes = shelf.least_bytes();
        Copies { shelf, least_bytes }
    }

    /// The newest marks of which all is there. One pair suffices even while others may still be
    /// found: those are either older, or of purges that were not acknowledged, since these wait for
    /// the removal of the older pair.
    pub(crate) fn find(&self) -> Option<(Marks, Written)> {
        let read = |prefix, slot| self.shelf.get(&key(prefix, slot));
        let snapshots =
            [0, 1].map(|slot| read(SNAPSHOT_KEY, slot).and_then(|b| Snapshot::decode(&b)));
        let deltas = [0, 1].map(|slot| read(DELTA_KEY, slot).and_then(|b| Delta::decode(&b)));
        let mut newest: Option<(Marks, Written)> = None;
        let mut consider = |marks: Marks, snapshot_slot, delta_slot| {
            let is_newer =
                |(known, _): &(Marks, Written)| marks.now().generation > known.now().generation;
            if newest.as_ref().is_none_or(is_newer) {
                let written = Written { snapshot_slot, delta_slot, ..Written::default() };
                newest = Some((marks, written));
            }
        };
        for (snapshot_slot, snapshot) in (0..).zip(&snapshots) {
            let Some(snapshot) = snapshot else { continue };
            if snapshot.number.is_none() {
                consider(snapshot.marks.clone(), snapshot_slot, 0);
            }
            for (delta_slot, delta) in (0..).zip(&deltas) {
                if let Some(marks) = delta.as_ref().and_then(|d| snapshot.continued(d)) {
                    consider(marks, snapshot_slot, delta_slot);
                }
            }
        }
        newest
    }

    /// True if the pair in use should be written again: before the log comes round to the snapshot
    /// or a full index pushes it out, and when the store has lost one of the two. That alone would
    /// not do: a crash may come before it is noticed. The delta is never older than the snapshot.
    pub(crate) fn is_in_danger(&self, written: &Written) -> bool {
        let Some(base) = &written.base else { return false };
        self.shelf.turns().are_far_from(&base.turns)
            || !self.shelf.may_have(&key(SNAPSHOT_KEY, written.snapshot_slot))
            || !self.shelf.may_have(&key(DELTA_KEY, written.delta_slot))
    }

    /// Writes the marks as they are now, and waits until they are durable.
    pub(crate) fn write(
        &self,
        known: &RwLock<Known>,
        written: &mut Written,
    ) -> Result<(), CopyError> {
        let planned = self.plan(&locks::read(known), written);
        let delta_slot = 1 - written.delta_slot;
        let mut snapshot_slot = written.snapshot_slot;
        if let Some((bytes, ..)) = &planned.snapshot {
            written.has_stale_snapshot = true;
            snapshot_slot = 1 - snapshot_slot;
            self.shelf.put(&key(SNAPSHOT_KEY, snapshot_slot), bytes)?;
        }
        self.shelf.put(&key(DELTA_KEY, delta_slot), &planned.delta)?;
        self.shelf.sync()?;
        // Before the removals, which may fail: the next write must not replace what is in use.
        (written.snapshot_slot, written.delta_slot) = (snapshot_slot, delta_slot);
        if let Some((bytes, number, reach)) = planned.snapshot {
            locks::write(known).changes.forget_up_to(reach);
            written.base = Some(Base {
                number,
                generation: planned.generation,
                bytes: bytes.len(),
                turns: self.shelf.turns(),
                deltas_bytes: 0,
            });
        } else if let Some(base) = &mut written.base {
            base.deltas_bytes += planned.delta.len();
        }
        self.shelf.remove(&key(DELTA_KEY, 1 - delta_slot))?;
        if written.has_stale_snapshot {
            self.shelf.remove(&key(SNAPSHOT_KEY, 1 - snapshot_slot))?;
        }
        // Without this, a loss of power could bring back what was removed.
        self.shelf.sync()?;
        written.has_stale_snapshot = false;
        written.generation = planned.generation;
        Ok(())
    }

    fn plan(&self, known: &Known, written: &Written) -> Planned {
        let generation = known.marks.now().generation;
        let base = written.base.as_ref().filter(|_| !self.is_in_danger(written));
        if let Some(delta) = base.and_then(|base| self.delta(base, &known.changes)) {
            return Planned { generation, delta, snapshot: None };
        }
        let number = fastrand::u64(..);
        let snapshot = Snapshot::encode(number, &known.marks, self.least_bytes);
        let delta = Delta::encode(number, &Changes::after(generation), self.least_bytes);
        Planned { generation, delta, snapshot: Some((snapshot, number, known.changes.reach())) }
    }

    /// The purges since the snapshot; `None` if they are not known, or if a new snapshot is due.
    fn delta(&self, base: &Base, changes: &Changes) -> Option<Vec<u8>> {
        if changes.since() != base.generation {
            return None;
        }
        let delta = Delta::encode(base.number, changes, self.least_bytes);
        // Deltas that grow without an end would cost more than snapshots, and snapshots more than
        // deltas: with equal shares, their sum is at most twice what it could be.
        let is_cheap = base.deltas_bytes + delta.len() <= base.bytes;
        (delta.len() == self.least_bytes || is_cheap).then_some(delta)
    }
}

#[cfg(test)]
#[path = "copies_tests.rs"]
mod tests;
