//! Reads from memory, and the check whether an object is dead: expired, purged or deleted.
//!
//! Invariant: a hit makes no system call and no allocation, and takes one short lock. Threads: any.

use crate::engine::Engine;
use crate::format::RecordHeader;
use crate::index::Location;
use crate::object::Object;
use crate::stats::add;
use crate::types::{GroupId, KeyHash, Sequence};

/// Why an object that is still there is nothing to readers any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death {
    Expired,
    /// By a purge mark, or by a delete that recovery has not applied yet.
    Purged,
}

/// What memory says of an object.
pub(crate) enum InMemory {
    Found(Object),
    /// It was there, but expired or purged: a miss that ends the search, and is counted.
    Dead,
    Nothing,
}

impl Engine {
    /// A hit in memory: no system call, no allocation, one short lock.
    #[inline]
    pub(crate) fn lookup_memory(&self, hash: KeyHash, key: &[u8]) -> InMemory {
        let epoch = self.marks.epoch();
        let mut guard = self.cache.resident.shard(hash);
        let shard = &mut *guard;
        let Some(entry) = shard.get_mut(hash) else { return InMemory::Nothing };
        let record = entry.record();
        let head = record.head;
        if record.key() != key || !head.is_object() {
            return InMemory::Nothing;
        }
        let expires_s = head.expires_s();
        // Marks are looked through, with a lock, only where one was set since the last time.
        let death = if entry.state.marks_epoch() == epoch {
            self.expiry(expires_s)
        } else {
            self.death(head.group(), key, head.sequence(), expires_s)
        };
        if let Some(death) = death {
            self.note_unwritten(hash, entry.state);
            shard.remove(hash);
            self.forget(hash);
            self.died(death);
            return InMemory::Dead;
        }
        let object = Object::of(&record, true);
        let came = entry.state.take_prefetched().map(|came| (came, entry.state.location()));
        entry.state.set_marks_epoch(epoch);
        if came.is_none() {
            entry.state.add_hit();
        }
        shard.hits += 1;
        shard.hit_bytes += object.len() as u64;
        if let Some((came, location)) = came {
            // The first use is what the object was prefetched for, not evidence that it will be
            // used again.
            shard.prefetch_hits += 1;
            let recent = self.cache.first_used(hash, came);
            self.note_prefetch_hit(object.group(), location, recent);
        }
        InMemory::Found(object)
    }

    /// The object in memory, for an operation that looks again at what it has found, and counted,
    /// before: this is no other read, and no sign that the object is popular. `None` also where it
    /// is dead by now.
    pub(crate) fn peek_memory(&self, hash: KeyHash, key: &[u8]) -> Option<Object> {
        let (seq, object) = {
            let shard = self.cache.resident.shard(hash);
            let entry = shard.get(hash)?;
            let record = entry.record();
            if record.key() != key {
                return None;
            }
            (record.head.sequence(), record.head.is_object().then(|| Object::of(&record, true)))
        };
        let object = object.or_else(|| self.assembled_of(hash, seq))?;
        let expires_s = object.expires_unix_s().map_or(0, |s| s as u32);
        self.death(object.group(), key, seq, expires_s).is_none().then_some(object)
    }

    /// True if memory has anything of this key. Asked by whoever found nothing in memory first and
    /// no candidate in the index then, before it says that there is nothing: what is replaced or
    /// moved enters memory before its older record leaves the index.
    pub(crate) fn came_meanwhile(&self, hash: KeyHash, key: &[u8]) -> bool {
        self.cache.resident.shard(hash).get(hash).is_some_and(|entry| entry.record().key() == key)
    }

    /// `location`: of the object, on the page with which it came.
    fn note_prefetch_hit(&self, group: GroupId, location: Option<Location>, recent: bool) {
        if let Some(state) = self.groups.get(group) {
            add(&state.prefetch_hits, 1);
        }
        if recent {
            self.neighbours.used();
            if let Some(state) = self.neighbours_at(location) {
                state.neighbours.used();
            }
        }
    }

    /// Why an object is dead; `None` if it lives. Whoever ends a read by it counts the miss: one
    /// read may come to a dead object several times.
    pub(crate) fn death(
        &self,
        group: GroupId,
        key: &[u8],
        seq: Sequence,
        expires_s: u32,
    ) -> Option<Death> {
        let purged = || self.was_deleted(group, key, seq).then_some(Death::Purged);
        self.expiry(expires_s).or_else(purged)
    }

    /// Whether the object is dead by its time. Reads the clock, and nothing else.
    fn expiry(&self, expires_s: u32) -> Option<Death> {
        let is_over = expires_s != 0 && u64::from(expires_s) <= self.clock.unix_seconds();
        is_over.then_some(Death::Expired)
    }

    /// The same of a record on disk, found by a candidate that was chosen while recovery was under
    /// way or not: what it has not applied yet counts then. It may end at any moment, after which
    /// [`Engine::is_outlived`] tells.
    pub(super) fn death_of(
        &self,
        header: &RecordHeader,
        key: &[u8],
        was_loading: bool,
    ) -> Option<Death> {
        let death = self.death(header.group(), key, header.sequence(), header.expires_s);
        let kills = || was_loading && self.recovery_kills(header.key_hash(), header.sequence());
        death.or_else(|| kills().then_some(Death::Purged))
    }

    /// Counts a miss by death.
    pub(super) fn died(&self, death: Death) {
        let counter = match death {
            Death::Expired => &self.counters.misses_expired,
            Death::Purged => &self.counters.misses_purged,
        };
        add(counter, 1);
    }

    /// Dead by a purge mark, or by a delete that recovery has not applied yet.
    pub(crate) fn was_deleted(&self, group: GroupId, key: &[u8], seq: Sequence) -> bool {
        self.marks.kills(group, key, seq)
            || (!self.recovery.is_done() && self.recovery_kills(self.hash(key), seq))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::in_memory::{Memory, State, Stopped};
    use crate::types::Clock;
    use crate::{ByteSize, Config, CreateOptions, Store};

    /// A hit looks through the marks once after each purge, whether the object expires or not.
    #[test]
    fn what_was_checked_since_the_last_purge_is_only_compared_with_the_clock() {
        let mut config = Config::new("memory", ByteSize::new(32 << 20));
        config.memory = ByteSize::new(8 << 20);
        config.background = false;
        let device = Memory::device(&State::new(32 << 20, false));
        let store = Store::open_on(config, vec![device], Arc::new(Stopped)).unwrap();
        let engine = store.engine();
        let later = Stopped.unix_seconds() + 60;
        for expires_unix_s in [None, Some(later), Some(1)] {
            let options = CreateOptions { expires_unix_s, ..CreateOptions::default() };
            store.create_with(b"key", GroupId::new(1), b"value", options).wait().unwrap();
            store.purge_group(GroupId::new(1)).unwrap();
            let hash = engine.hash(b"key");
            let epoch = engine.marks.epoch();
            // As if the mark had been found not to kill it: nobody looks at it again.
            let checked = |epoch| {
                let mut shard = engine.cache.resident.shard(hash);
                shard.get_mut(hash).unwrap().state.set_marks_epoch(epoch);
            };
            checked(epoch);
            if expires_unix_s == Some(1) {
                assert!(matches!(engine.lookup_memory(hash, b"key"), InMemory::Dead));
                continue;
            }
            let is_there = || matches!(engine.lookup_memory(hash, b"key"), InMemory::Found(_));
            assert!(is_there(), "{expires_unix_s:?}");
            checked(epoch - 1);
            assert!(!is_there(), "{expires_unix_s:?}: a mark since then is looked at");
        }
    }
}
