//! Reads from memory, and the check whether an object is dead: expired, purged or deleted.
//!
//! Invariant: a hit makes no system call and no allocation, and takes one short lock. Threads: any.

use crate::engine::Engine;
use crate::object::Object;
use crate::stats::add;
use crate::types::{GroupId, KeyHash, Sequence};

impl Engine {
    /// A hit in memory: no system call, no allocation, one short lock.
    #[inline]
    pub(crate) fn lookup_memory(&self, hash: KeyHash, key: &[u8]) -> Option<Object> {
        let epoch = self.marks.epoch();
        let mut guard = self.cache.resident.shard(hash);
        let shard = &mut *guard;
        let entry = shard.get_mut(hash)?;
        let record = entry.record();
        let head = record.head;
        if record.key() != key || !head.is_object() {
            return None;
        }
        let expires_s = head.expires_s();
        let unsure = entry.state.marks_epoch() != epoch || expires_s != 0;
        if unsure && self.is_dead(head.group(), key, head.sequence(), expires_s) {
            shard.remove(hash);
            self.forget(hash);
            return None;
        }
        let object = Object::of(&record, true);
        let came = entry.state.take_prefetched();
        entry.state.set_marks_epoch(epoch);
        if came.is_none() {
            entry.state.add_hit();
        }
        shard.hits += 1;
        shard.hit_bytes += object.len() as u64;
        if let Some(came) = came {
            // The first use is what the object was prefetched for, not evidence that it will be
            // used again.
            shard.prefetch_hits += 1;
            let recent = self.cache.first_used(hash, came);
            self.note_prefetch_hit(object.group(), recent);
        }
        Some(object)
    }

    fn note_prefetch_hit(&self, group: GroupId, recent: bool) {
        if let Some(state) = self.groups.get(group) {
            add(&state.prefetch_hits, 1);
            if recent {
                state.neighbours.used();
                self.neighbours.used();
            }
        }
    }

    /// Dead by expiry, by a purge mark, or by a delete that recovery has not applied yet.
    pub(crate) fn is_dead(
        &self,
        group: GroupId,
        key: &[u8],
        seq: Sequence,
        expires_s: u32,
    ) -> bool {
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
    pub(crate) fn was_deleted(&self, group: GroupId, key: &[u8], seq: Sequence) -> bool {
        self.marks.kills(group, key, seq)
            || (!self.recovery.is_done() && self.recovery_kills(self.hash(key), seq))
    }
}
