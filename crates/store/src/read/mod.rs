//! Reads: memory first (`Engine::lookup_memory`), then the index and one disk read (`disk`), of the
//! object or of its page (`page_choice`, from what `neighbours` tell), shared with other callers (`flight`), so many at once (`under_way`). Parts of large objects
//! come by `range` and `stream`; whole groups by `prefetch`.

pub(crate) mod disk;
pub(crate) mod flight;
pub(crate) mod neighbours;
pub(crate) mod page;
pub(crate) mod page_choice;
pub(crate) mod prefetch;
pub(crate) mod range;
pub(crate) mod stream;
mod submit;
pub(crate) mod under_way;

use std::sync::Arc;

use self::disk::Indirect;
use crate::engine::Engine;
use crate::error::ReadError;
use crate::format::{RecordHeader, verify_body, verify_chunks, verify_head};
use crate::object::Object;
use crate::ops::{Deferred, OneShot};
use crate::stats::add;
use crate::workers::Lane;

/// True if a whole record is undamaged.
pub(crate) fn verify_record(header: &RecordHeader, record: &[u8]) -> bool {
    if !header.chunked {
        return verify_body(header, record);
    }
    let head = header.head_bytes() as usize;
    let value = header.value_range();
    match (record.get(..head), record.get(value)) {
        (Some(head), Some(value)) => {
            verify_head(header, head) && verify_chunks(header, head, 0, value)
        }
        _ => false,
    }
}

impl Engine {
    /// A hit in memory: no system call, no allocation, one short lock.
    #[inline]
    pub(crate) fn lookup_memory(&self, hash: u64, key: &[u8]) -> Option<Object> {
        let epoch = self.marks.epoch();
        let mut guard = self.cache.resident.shard(hash);
        let shard = &mut *guard;
        let entry = shard.map.get_mut(&hash)?;
        if entry.key() != key || !entry.is_object {
            return None;
        }
        if entry.marks_epoch != epoch || entry.expires_s != 0 {
            if self.is_dead(entry.group, key, entry.seq, entry.expires_s) {
                shard.map.remove(&hash);
                self.forget(hash);
                return None;
            }
            entry.marks_epoch = epoch;
        }
        shard.hits += 1;
        shard.hit_bytes += u64::from(entry.value_len);
        if entry.prefetched {
            // Its first use is what it came in for, not a sign that it will be used again.
            entry.prefetched = false;
            shard.prefetch_hits += 1;
            let recent = self.cache.first_used(hash, entry.came);
            self.note_prefetch_hit(entry.group, recent);
        } else {
            entry.hits = entry.hits.saturating_add(1);
        }
        Some(Object::of(entry, true))
    }

    fn note_prefetch_hit(&self, group: u64, recent: bool) {
        if let Some(state) = self.groups.get(group) {
            add(&state.prefetch_hits, 1);
            if recent {
                state.neighbours.used();
                self.neighbours.used();
            }
        }
    }

    /// Dead by expiry, by a purge mark, or by a delete that recovery has not applied yet.
    pub(crate) fn is_dead(&self, group: u64, key: &[u8], seq: u64, expires_s: u32) -> bool {
        let expired = expires_s != 0 && u64::from(expires_s) <= self.clock.unix_seconds();
        if expired {
            add(&self.counters.misses_expired, 1);
            return true;
        }
        let purged = self.was_deleted(group, key, seq);
        if purged {
            add(&self.counters.misses_purged, 1);
        }
        purged
    }

    /// Dead by a purge mark, or by a delete that recovery has not applied yet.
    pub(crate) fn was_deleted(&self, group: u64, key: &[u8], seq: u64) -> bool {
        self.marks.kills(group, key, seq)
            || (!self.recovery.is_done() && self.recovery_kills(self.hash(key), seq))
    }

    /// A read as an operation: ready if it is in memory or certainly nowhere.
    pub(crate) fn read_operation(
        self: &Arc<Engine>,
        key: &[u8],
    ) -> Deferred<'static, Result<Option<Object>, ReadError>> {
        if self.is_closed() {
            return Deferred::ready(Err(ReadError::Closed));
        }
        let hash = self.hash(key);
        if let Some(object) = self.lookup_memory(hash, key) {
            return Deferred::ready(Ok(Some(object)));
        }
        if self.index.candidates(hash).is_empty()
            && !matches!(self.indirect_in_memory(hash, key), Indirect::Found(..))
        {
            add(&self.counters.misses_not_found, 1);
            return Deferred::ready(Ok(None));
        }
        let key: Arc<[u8]> = Arc::from(key);
        let (this, wanted) = (Arc::clone(self), Arc::clone(&key));
        let (other, submitted) = (Arc::clone(self), key);
        Deferred::startable(
            move || this.read_blocking(hash, &wanted),
            move |promise| other.read_submitted(hash, submitted, promise),
        )
    }

    /// Starts an asynchronous read: one submitted I/O in the common case, a worker otherwise.
    fn read_submitted(
        self: &Arc<Engine>,
        hash: u64,
        key: Arc<[u8]>,
        promise: Arc<OneShot<Result<Option<Object>, ReadError>>>,
    ) {
        let engine = Arc::clone(self);
        let (wanted, theirs) = (Arc::clone(&key), Arc::clone(&promise));
        let fallback = move || {
            let this = Arc::clone(&engine);
            engine.workers.run(
                Lane::Soon,
                Box::new(move || {
                    let outcome = this.lookup_memory(hash, &wanted).map_or_else(
                        || this.read_blocking(hash, &wanted),
                        |object| Ok(Some(object)),
                    );
                    theirs.put(outcome);
                }),
            );
        };
        self.submit_object_read(hash, key, promise, fallback);
    }
}
