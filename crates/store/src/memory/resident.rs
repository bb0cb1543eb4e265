//! The table of objects in memory: key hash to a record in a run.
//!
//! Invariants: an entry's bytes are published and stay unchanged while it holds its `Run`; there is
//! at most one entry for each hash (a second key with the same 64-bit hash replaces the first,
//! which is then a miss). Threads: any; each shard has its own mutex, held for one look-up and
//! never during I/O.

use crate::sync::{Mutex, MutexGuard, lock};
use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;

use super::mapped::Mapped;
use super::pool::Run;
use crate::format::{RecordHeader, RecordKind};
use crate::index::Location;
use crate::types::{KeyHash, Sequence};

/// Memory of an entry outside its table: its hash in its run's list, which grows by doubling.
const LISTED_BYTES: usize = 12;
/// A table with capacity for more than this many times its entries is shrunk.
const SLACK: usize = 4;
/// Tables with a smaller capacity are not shrunk.
const ROOM_MIN: usize = 64;
const SHARDS: usize = 256;

/// A published record in a run.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) run: Run,
    /// Where the record starts in the run.
    pub(crate) offset: u32,
    /// Where its key starts in the run.
    pub(crate) body: u32,
    pub(crate) key_len: u32,
    pub(crate) meta_len: u32,
    pub(crate) value_len: u32,
    pub(crate) stored_bytes: u32,
    pub(crate) expires_s: u32,
    /// False for a manifest or patch, which only says where the object is.
    pub(crate) is_object: bool,
    pub(crate) group: u64,
    pub(crate) seq: Sequence,
    /// The record's location on disk; `None` while it waits in the nursery.
    pub(crate) location: Option<Location>,
    /// Hits since the residency policy last looked, saturating.
    pub(crate) hits: u8,
    /// The policy's epoch at that time.
    pub(crate) epoch: u8,
    /// Came along with a page and has not been requested yet.
    pub(crate) prefetched: bool,
    /// When it came, if it came with a page: [`Cache::now`](super::cache::Cache::now).
    pub(crate) came: u32,
    /// Purge marks up to this epoch have been checked.
    pub(crate) marks_epoch: u32,
}

impl Entry {
    /// The entry of a record at `offset` of `run`.
    pub(crate) fn of(run: Run, offset: usize, header: &RecordHeader) -> Entry {
        Entry {
            run,
            offset: offset as u32,
            body: (offset + header.key_range().start) as u32,
            key_len: header.key_len,
            meta_len: header.meta_len,
            value_len: header.value_len as u32,
            stored_bytes: header.stored_bytes() as u32,
            expires_s: header.expires_s,
            is_object: header.kind == RecordKind::Object,
            group: header.group,
            seq: header.sequence(),
            location: None,
            hits: 0,
            epoch: 0,
            prefetched: false,
            came: 0,
            marks_epoch: 0,
        }
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.run.bytes(self.body as usize, self.key_len as usize)
    }

    pub(crate) fn record(&self) -> &[u8] {
        self.run.bytes(self.offset as usize, self.stored_bytes as usize)
    }

    /// True if this entry is the record at `offset` of the run that starts at frame `first`.
    pub(crate) fn is_at(&self, first: u32, offset: u32) -> bool {
        self.run.first() == first && self.offset == offset
    }
}

/// Keys are hashes already.
#[derive(Default)]
pub(crate) struct PassThrough(u64);

impl Hasher for PassThrough {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only key hashes, which are one `u64`")
    }

    fn write_u64(&mut self, value: u64) {
        // hashbrown takes its tag from the top bits and the bucket from the low ones.
        self.0 = value;
    }
}

/// Allocated in separate mappings, so that a table that has grown leaves no unusable memory behind.
pub(crate) type EntryMap = HashMap<KeyHash, Entry, BuildHasherDefault<PassThrough>, Mapped>;

/// One shard's entries and the counters that are kept under its lock.
#[derive(Default)]
pub(crate) struct ShardState {
    pub(crate) map: EntryMap,
    pub(crate) hits: u64,
    pub(crate) hit_bytes: u64,
    pub(crate) prefetch_hits: u64,
}

#[repr(align(128))]
struct Shard(Mutex<ShardState>);

pub(crate) struct Resident {
    shards: Box<[Shard]>,
}

impl Resident {
    pub(crate) fn new() -> Resident {
        Resident { shards: (0..SHARDS).map(|_| Shard(Mutex::default())).collect() }
    }

    #[inline]
    pub(crate) fn shard(&self, hash: KeyHash) -> MutexGuard<'_, ShardState> {
        // Bits 40..48: the index takes its shard from the top, hashbrown its bucket from the bottom.
        lock(&self.shards[(hash.get() >> 40) as usize % SHARDS].0)
    }

    /// Shrinks oversized tables. Returns the number of objects, and the bytes that the tables take.
    pub(crate) fn settle(&self) -> (usize, usize) {
        let (mut objects, mut bytes) = (0, 0);
        self.for_each_shard(|shard| {
            let entries = shard.map.len();
            if shard.map.capacity() > (SLACK * entries).max(ROOM_MIN) {
                shard.map.shrink_to(2 * entries);
            }
            objects += entries;
            bytes += shard.map.allocation_size() + entries * LISTED_BYTES;
        });
        (objects, bytes)
    }

    /// Visits every shard in turn.
    pub(crate) fn for_each_shard(&self, mut visit: impl FnMut(&mut ShardState)) {
        for shard in &self.shards {
            visit(&mut lock(&shard.0));
        }
    }
}
