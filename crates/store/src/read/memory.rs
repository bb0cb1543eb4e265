//! Reads from memory, and the check whether an object is dead: expired, purged or deleted.
//!
//! Invariant: a hit makes no system call and no allocation, and takes one short lock. Threads: any.

use crate::engine::Engine;
use crate::object::Object;
use crate::stats::add;
use crate::types::{KeyHash, Sequence};

impl Engine {
    /// A hit in memory: no system call, no allocation, one short lock.
    #[inline]
    pub(crate) fn lookup_memory(&self, hash: KeyHash, key: &[u8]) -> Option<Object> {
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
            // The first use is what the object was prefetched for, not evidence that it will be
            // used again.
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
    pub(crate) fn is_dead(&self, group: u64, key: &[u8], seq: Sequence, expires_s: u32) -> bool {
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
    pub(crate) fn was_deleted(&self, group: u64, key: &[u8], seq: Sequence) -> bool {
        self.marks.kills(group, key, seq)
            || (!self.recovery.is_done() && self.recovery_kills(self.hash(key), seq))
    }
}
