//! The store's residency policies (`damelo::policy`), driven by the code that ships, with single
//! objects for runs: the policy names a queue, its oldest object leaves, and the policy says
//! whether it is copied on.
//!
//! Differences to the engine: there memory is freed by frames, of a frame at most a share is copied
//! on, and of so many frames for one object nothing; here each object is judged alone, and of so
//! many objects none stays. Groups are neutral, and nothing but the policy remembers that an object
//! was seen before. What it remembers takes a share of memory in the engine. Here it counts alike
//! in half of that, and where that is more than eleven bytes for each key of the trace, with fewer
//! counters: a trace may have few keys, and its cache be as large as somebody likes.
//!
//! Where sizes are ignored, an object is a page here: in memory of as many bytes as there are
//! objects, what the policies go by, from the length of their tables to when they look what worked,
//! would be that of a cache of nearly nothing.

use damelo::ResidencyPolicyKind;
use damelo::policy::{
    Arrival, Fate, Hint, Leaving, QUEUES, ResidencyPolicy, Usage, residency_policy_growing,
};

use super::arrivals::Arrivals;
use super::lists::Nodes;
use super::registry::CAPACITY_BYTES_MAX;
use super::{Policy, Step};

/// Bytes of an object where its size is ignored.
const OBJECT_BYTES: u64 = 4 << 10;

pub(crate) struct StoreMemory {
    nodes: Nodes<()>,
    queues: [Arrivals; 4],
    capacity_bytes: u64,
    /// Bytes for each that a step has.
    scale: u64,
    policy: Box<dyn ResidencyPolicy>,
    /// Asked for so far.
    keys: usize,
}

/// For one that comes, each object may be kept so often; then whatever is looked at goes. No policy
/// keeps one more often but the one that finds out what is worth it: at first all is, and with
/// objects of few bytes it would look at millions before it knew better.
const TURNS_MAX: u64 = 2;

/// What the engine keeps of each object in memory: hits, and the policy's stamp.
fn packed(hits: u8, epoch: u8) -> u32 {
    u32::from(epoch) << 8 | u32::from(hits)
}

fn unpacked(count: u32) -> (u8, u8) {
    (count as u8, (count >> 8) as u8)
}

/// Keys are small numbers here, hashes in the engine.
fn hash_of(key: u32) -> u64 {
    let mixed = (u64::from(key) + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// Lists are numbered from 1, the store's queues from 0.
fn list_id(queue: damelo::policy::Queue) -> u8 {
    queue as u8 + 1
}

impl StoreMemory {
    pub(crate) fn new(capacity_bytes: u64, kind: ResidencyPolicyKind) -> StoreMemory {
        StoreMemory {
            nodes: Nodes::default(),
            queues: QUEUES.map(|queue| Arrivals::new(list_id(queue))),
            capacity_bytes,
            scale: 1,
            policy: residency_policy_growing(kind, capacity_bytes),
            keys: 0,
        }
    }

    /// A cache for so many objects, each of which has one byte in its steps.
    pub(crate) fn of_objects(capacity: u64, kind: ResidencyPolicyKind) -> StoreMemory {
        let capacity_bytes = capacity.saturating_mul(OBJECT_BYTES).min(CAPACITY_BYTES_MAX);
        StoreMemory { scale: OBJECT_BYTES, ..StoreMemory::new(capacity_bytes, kind) }
    }

    fn bytes(&self) -> u64 {
        self.queues.iter().map(Arrivals::bytes).sum()
    }

    fn usage(&self) -> Usage {
        let mut usage = Usage { total: self.capacity_bytes as usize, ..Usage::default() };
        for (frames, queue) in usage.frames.iter_mut().zip(&self.queues) {
            *frames = queue.bytes() as usize;
        }
        usage
    }

    /// Takes one object from the queue that the policy names; as long as there is some `sparing`
    /// left, it may go on in another.
    fn evict(&mut self, sparing: &mut u64) {
        let named = self.policy.victim(&self.usage(), Hint::Neutral);
        let filled = || QUEUES.into_iter().find(|queue| self.queues[*queue as usize].len() > 0);
        let Some(from) = named.or_else(filled) else { return };
        let Some(key) = self.queues[from as usize].pop(&mut self.nodes) else { return };
        let (hits, epoch) = unpacked(self.nodes.count(key));
        if self.policy.spares_whole_runs() && hits > 0 {
            self.nodes.set_count(key, 0);
            self.queues[from as usize].push(&mut self.nodes, key);
            return;
        }
        let size_bytes = self.nodes.size(key);
        let bytes = size_bytes.min(u64::from(u32::MAX)) as u32;
        let leaving = Leaving { hash: hash_of(key), bytes, hits, epoch };
        let may_keep = *sparing > 0;
        *sparing = sparing.saturating_sub(1);
        let fate = if may_keep { self.policy.fate(from, &leaving) } else { Fate::Drop };
        let kept_bytes = if fate == Fate::Drop { 0 } else { size_bytes as usize };
        self.policy.take_hits(from, &leaving);
        if may_keep {
            self.policy.looked_at(from, size_bytes as usize, kept_bytes);
        }
        if let Fate::CopyTo(to) = fate {
            let stays_with = packed(self.policy.hits_after(from, hits), self.policy.epoch());
            self.nodes.set_count(key, stays_with);
            self.queues[to as usize].push(&mut self.nodes, key);
        } else {
            self.policy.left(from, &leaving);
        }
    }
}

impl Policy for StoreMemory {
    fn get(&mut self, step: &Step) -> bool {
        let key = step.key;
        if self.nodes.queue(key) != 0 {
            let (hits, epoch) = unpacked(self.nodes.count(key));
            self.nodes.set_count(key, packed(hits.saturating_add(1), epoch));
            return true;
        }
        let size_bytes = step.size_bytes.saturating_mul(self.scale);
        if size_bytes > self.capacity_bytes {
            return false;
        }
        let mut sparing = TURNS_MAX * self.objects();
        while self.bytes() > self.capacity_bytes - size_bytes {
            self.evict(&mut sparing);
        }
        if key as usize >= self.keys {
            self.keys = key as usize + 1;
            self.policy.keys_known(self.keys);
        }
        self.nodes.reach(key);
        self.nodes.set_size(key, size_bytes);
        self.nodes.set_count(key, packed(0, self.policy.epoch()));
        self.policy.settle(self.objects() as usize);
        let bytes = size_bytes.min(u64::from(u32::MAX)) as u32;
        let asked = Arrival::Asked { hash: hash_of(key), bytes };
        let queue = self.policy.arrive(Hint::Neutral, asked);
        self.queues[queue as usize].push(&mut self.nodes, key);
        false
    }

    fn delete(&mut self, key: u32) {
        if let Some(at) = self.nodes.queue(key).checked_sub(1) {
            self.queues[usize::from(at)].remove(&mut self.nodes, key);
        }
    }

    fn used_bytes(&self) -> u64 {
        self.bytes() / self.scale
    }

    fn objects(&self) -> u64 {
        self.queues.iter().map(Arrivals::len).sum()
    }

    #[inline]
    fn fetch(&self, key: u32) {
        self.nodes.fetch(key);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::policy::NEVER;

    /// Worked out on paper. Three objects fit; 0 is hit; 3 needs room. Each policy keeps 0 and lets
    /// 1 go, the oldest without a hit.
    #[test]
    fn what_was_hit_stays() {
        for &kind in ResidencyPolicyKind::ALL {
            let mut cache = StoreMemory::new(3, kind);
            // By density: it has found out that a single use of a byte is too little, and two are
            // enough, 2% for each 64 KiB that stayed, from 1e-9 to 1.4.
            let protected = damelo::policy::Queue::Protected;
            (0..1_065).for_each(|_| cache.policy.looked_at(protected, 1 << 16, 1 << 16));
            let mut hit = |key| cache.get(&Step::get(key, 1, NEVER));
            let found = [0, 1, 2, 0, 3, 0, 2, 1].map(&mut hit);
            let expected = [false, false, false, true, false, true, true, false];
            assert_eq!(found, expected, "{kind:?}");
            assert_eq!((cache.objects(), cache.used_bytes()), (3, 3));
        }
    }

    /// As if each object had that size: what is decided, and what is there, but for the unit.
    #[test]
    fn objects_without_sizes_are_pages() {
        for &kind in ResidencyPolicyKind::ALL {
            let mut without = StoreMemory::of_objects(1_000, kind);
            let mut with = StoreMemory::new(1_000 * OBJECT_BYTES, kind);
            for key in by_popularity(30_000) {
                let hit = without.get(&Step::get(key, 1, NEVER));
                assert_eq!(hit, with.get(&Step::get(key, OBJECT_BYTES, NEVER)));
            }
            assert_eq!(without.objects(), with.objects());
            assert_eq!(without.used_bytes(), without.objects());
        }
        let mut vast = StoreMemory::of_objects(u64::MAX, ResidencyPolicyKind::HitDensity);
        assert_eq!([7, 7].map(|key| vast.get(&Step::get(key, 1, NEVER))), [false, true]);
    }

    /// Keeps whatever it is asked about, as often as it is asked.
    struct KeepsAll(AtomicUsize);

    impl ResidencyPolicy for KeepsAll {
        fn victim(&self, _usage: &Usage, _requester: Hint) -> Option<damelo::policy::Queue> {
            None
        }

        fn fate(&self, queue: damelo::policy::Queue, _object: &Leaving) -> Fate {
            assert!(self.0.fetch_add(1, Ordering::Relaxed) < 100, "asked without an end");
            Fate::CopyTo(queue)
        }
    }

    /// Three objects fit; each is kept twice, then the first goes, whatever the policy says.
    #[test]
    fn room_is_found_even_if_all_is_to_be_kept() {
        let mut cache = StoreMemory::new(3, ResidencyPolicyKind::Lru);
        cache.policy = Box::new(KeepsAll(AtomicUsize::new(0)));
        let found = [0, 1, 2, 3, 1, 2, 0].map(|key| cache.get(&Step::get(key, 1, NEVER)));
        assert_eq!(found, [false, false, false, false, true, true, false]);
    }

    /// Requests for objects asked for before that memory of so many bytes does not have: what would
    /// be read from disk.
    fn misses(kind: ResidencyPolicyKind, capacity_bytes: u64, requests: &[u32]) -> usize {
        const OBJECT_BYTES: u64 = 8192;
        let mut cache = StoreMemory::new(capacity_bytes, kind);
        let mut is_miss = |key: &&u32| !cache.get(&Step::get(**key, OBJECT_BYTES, NEVER));
        let misses = requests.iter().filter(|key| is_miss(key)).count();
        misses - requests.iter().collect::<HashSet<_>>().len()
    }

    /// New objects, and old ones the more often the later they were asked for: how often they were
    /// says nothing.
    fn by_recency(count: usize) -> Vec<u32> {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut asked: Vec<u32> = Vec::with_capacity(count);
        let mut next = 0;
        for _ in 0..count {
            // Distances from 1 to all that came before, each power of two as likely as another.
            let distance = f64::from(u16::MAX).powf(rng.f64()) as usize;
            let again = (rng.f64() < 0.7).then(|| asked.len().checked_sub(distance)).flatten();
            asked.push(again.map_or(next, |at| asked[at]));
            next += u32::from(again.is_none());
        }
        asked
    }

    /// Some objects always more often than others: when they were asked for last says little.
    fn by_popularity(count: usize) -> Vec<u32> {
        const OBJECTS: f64 = 20_000.0;
        let mut rng = fastrand::Rng::with_seed(7);
        // Zipf with exponent 0.8, by the inverse of its integral.
        let rank = |u: f64| (1.0 + u * (OBJECTS.powf(0.2) - 1.0)).powf(5.0);
        (0..count).map(|_| rank(rng.f64()) as u32).collect()
    }

    /// Whatever it takes here, it decides as in service; and there is no cache that its tables are
    /// too large for.
    #[test]
    fn the_default_decides_as_in_service_and_takes_any_capacity() {
        let (kind, capacity_bytes) = (ResidencyPolicyKind::HitDensity, 24 << 20);
        let [mut here, mut service] = [(); 2].map(|()| StoreMemory::new(capacity_bytes, kind));
        service.policy = damelo::policy::residency_policy(kind, capacity_bytes);
        for key in by_popularity(60_000).into_iter().chain(by_recency(60_000)) {
            let step = Step::get(key, 2_048 + u64::from(key % 7) * 2_000, NEVER);
            assert_eq!(here.get(&step), service.get(&step));
        }
        assert_eq!((here.objects(), here.used_bytes()), (service.objects(), service.used_bytes()));
        let mut vast = StoreMemory::new(100 << 40, kind);
        let found = [1, 2, 1].map(|key| vast.get(&Step::get(key, 1 << 40, NEVER)));
        assert_eq!(found, [false, false, true]);
        assert!(vast.policy.bytes() < 1 << 20, "{}", vast.policy.bytes());
    }

    #[test]
    fn by_default_recency_is_served_nearly_as_by_lru_and_popularity_better() {
        use ResidencyPolicyKind::{HitDensity, Lru, S3Fifo};
        // From a 30th of what is asked for to a third, where the share has little to learn from.
        for (capacity_bytes, percent) in [(5 << 20, 112), (16 << 20, 118), (48 << 20, 142)] {
            let requests = by_recency(60_000);
            let [ours, lru] = [HitDensity, Lru].map(|k| misses(k, capacity_bytes, &requests));
            assert!(ours * 100 <= lru * percent, "recency, {capacity_bytes}: {ours}, LRU {lru}");
            let requests = by_popularity(120_000);
            let [ours, lru, s3] =
                [HitDensity, Lru, S3Fifo].map(|k| misses(k, capacity_bytes, &requests));
            assert!(ours * 100 <= lru * 94, "popularity, {capacity_bytes}: {ours}, LRU {lru}");
            assert!(ours * 100 <= s3 * 106, "popularity, {capacity_bytes}: {ours}, S3-FIFO {s3}");
        }
    }
}
