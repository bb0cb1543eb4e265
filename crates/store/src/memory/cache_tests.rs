//! What the cache tells the policy, the index and its own samples when it takes a run apart or
//! leaves it: each hit once, whatever becomes of the object.

use crate::sync::{Arc, lock};
use std::collections::HashMap;

use super::cache::Cache;
use super::pool::{Pool, Run};
use super::resident::Entry;
use crate::config::ResidencyPolicyKind;
use crate::format::{RecordFields, RecordHeader, RecordKind, StoreNonce};
use crate::index::{Index, LengthClass, Location};
use crate::policy::residency::{
    Arrival, Fate, Hint, Leaving, Queue, ResidencyPolicy, Usage, residency_policy,
};
use crate::sync::Mutex;
use crate::types::{GroupId, KeyHash};

const FRAME_BYTES: usize = 16 << 10;
const FRAMES: usize = 16;
/// One that `Regret` follows.
const HASH: KeyHash = KeyHash::from_raw(1 << 40);

/// How often the hits of each object were taken.
type Taken = Arc<Mutex<HashMap<u64, u32>>>;

/// Gives every object one fate, and counts.
struct Told {
    fate: Fate,
    taken: Taken,
}

impl ResidencyPolicy for Told {
    fn victim(&self, usage: &Usage, _requester: Hint) -> Option<Queue> {
        (usage.frames[Queue::Probation as usize] > 0).then_some(Queue::Probation)
    }

    fn fate(&self, _queue: Queue, _object: &Leaving) -> Fate {
        self.fate
    }

    fn take_hits(&self, _queue: Queue, object: &Leaving) {
        *lock(&self.taken).entry(object.hash).or_default() += u32::from(object.hits);
    }
}

fn header(hash: KeyHash, value_len: u64) -> RecordHeader {
    let fields = RecordFields {
        nonce: StoreNonce::of(&[1; 16]),
        kind: RecordKind::Object,
        chunked: false,
        hash: hash.get(),
        seq: 1,
        group: 1,
        expires_s: 0,
    };
    fields.header(3, 0, value_len).unwrap()
}

/// The entry of a record with this header at the start of a run.
fn entry(run: &Run, header: &RecordHeader) -> Entry {
    let bytes = header.encode();
    // SAFETY: the run is new, and only this thread knows it.
    unsafe { run.bytes_mut(0, bytes.len()) }.copy_from_slice(&bytes);
    Entry::of(run.clone(), 0)
}

/// A cache with one object in a run of its own, on disk, too, and hit once; and the index.
fn with_object(policy: Box<dyn ResidencyPolicy>, value_len: u64) -> (Cache, Arc<Index>) {
    let index = Arc::new(Index::new(64));
    let location = Location::new(5);
    let inserted = index.insert(HASH.get(), location, LengthClass::from_units(8), 0, |l| l.units());
    assert!(inserted.evicted.is_empty());
    let pool = Pool::new(FRAMES, FRAME_BYTES).unwrap();
    let cache = Cache::new(pool, policy.into(), Arc::clone(&index));
    let header = header(HASH, value_len);
    let stored = header.stored_bytes() as u32;
    let run = cache.pool.try_take(stored as usize).unwrap();
    let mut entry = entry(&run, &header);
    entry.state.set_location(location);
    entry.state.set_hits(1);
    cache.resident.shard(HASH).insert(HASH, entry);
    cache.track(run, Queue::Probation, 0..stored);
    (cache, index)
}

fn is_there(cache: &Cache) -> bool {
    cache.resident.shard(HASH).contains(HASH)
}

/// Takes all memory that can be had, one frame at a time.
fn squeeze(cache: &Cache) {
    let mut held = Vec::new();
    while let Some(run) = cache.take_frame(Hint::Neutral) {
        held.push(run);
    }
}

/// What tables take is taken from the objects at once, not from whoever comes next; what readers
/// hold stays, and is not waited for.
#[test]
fn what_tables_take_is_evicted_as_far_as_nobody_holds_it() {
    for held in [false, true] {
        let policy = Told { fate: Fate::Drop, taken: Taken::default() };
        let (cache, _) = with_object(Box::new(policy), 3_000);
        let mut guards = Vec::new();
        for n in 1.. {
            let Some(run) = cache.pool.try_take_frame() else { break };
            let hash = KeyHash::from_raw(HASH.get() + n);
            let header = header(hash, 15_000);
            cache.resident.shard(hash).insert(hash, entry(&run, &header));
            guards.extend(held.then(|| run.clone()));
            cache.track(run, Queue::Probation, 0..header.stored_bytes() as u32);
        }
        let full = cache.pool.used_bytes();
        assert!(full > (FRAMES - 1) * FRAME_BYTES);
        cache.charge_tables(FRAMES / 2 * FRAME_BYTES);
        let used = cache.pool.used_bytes();
        let at_most = if held { full } else { FRAMES / 2 * FRAME_BYTES };
        assert!(used <= at_most && used >= guards.len() * FRAME_BYTES, "{used} bytes, {held}");
        assert!(held || used >= FRAMES / 4 * FRAME_BYTES, "no more than they take: {used}");
    }
}

#[test]
fn hits_are_taken_once_for_each_look_and_reach_the_disk_s_count() {
    // In a log with others, most of a frame, and several frames.
    for value_len in [3_000, 16_000, 40_000] {
        for fate in [Fate::Drop, Fate::CopyTo(Queue::Protected)] {
            let taken = Taken::default();
            let policy = Told { fate, taken: Arc::clone(&taken) };
            let (cache, index) = with_object(Box::new(policy), value_len);
            squeeze(&cache);
            assert_eq!(is_there(&cache), fate != Fate::Drop, "{value_len} {fate:?}");
            assert_eq!(lock(&taken)[&HASH.get()], 1, "{value_len} {fate:?}");
            assert_eq!(index.freq(HASH.get(), Location::new(5)), Some(1), "{value_len} {fate:?}");
        }
    }
}

#[test]
fn a_run_that_is_put_back_whole_tells_the_disk_of_its_hits() {
    let lru = residency_policy(ResidencyPolicyKind::Lru, 1 << 20);
    let (cache, index) = with_object(lru, 3_000);
    squeeze(&cache);
    assert_eq!(index.freq(HASH.get(), Location::new(5)), Some(1));
}

#[test]
fn whatever_is_asked_for_after_it_left_is_regretted() {
    let policy = Told { fate: Fate::Drop, taken: Taken::default() };
    let (cache, _index) = with_object(Box::new(policy), 3_000);
    cache.drop_all();
    assert_eq!(cache.regret_percent(Hint::Neutral), 0);
    cache.arrive(Hint::Neutral, Arrival::Asked { hash: HASH.get(), bytes: 3_000 });
    assert_eq!(cache.regret_percent(Hint::Neutral), 100);
}

/// A hint that changes again and again, while no caller needs memory.
#[test]
fn names_of_runs_that_moved_to_another_queue_do_not_pile_up() {
    let (cache, _index) = with_object(residency_policy(ResidencyPolicyKind::Lru, 1 << 20), 3_000);
    for _ in 0..10_000 {
        for hint in [Hint::Loved, Hint::Neutral] {
            cache.requeue(&HashMap::from([(GroupId::new(1), hint)]));
        }
    }
    let names = cache.names();
    assert!(names.iter().all(|count| *count <= 2 * cache.pool.places() + 64), "{names:?}");
    assert!(names.iter().sum::<usize>() > 2, "the hints moved it: {names:?}");
    squeeze(&cache);
    assert!(!is_there(&cache), "its right name is still there");
}

/// Spares whole runs, and its reader is as fast as evictions: each object is hit again before it is
/// looked at.
#[derive(Default)]
struct Popular(Arc<Mutex<(Option<std::sync::Weak<Cache>>, u64)>>);

impl ResidencyPolicy for Popular {
    fn victim(&self, _usage: &Usage, _requester: Hint) -> Option<Queue> {
        let cache = {
            let mut state = lock(&self.0);
            state.1 += 1;
            assert!(state.1 < 100_000, "one eviction goes round and round");
            state.0.as_ref().and_then(std::sync::Weak::upgrade)
        };
        let mut shard = cache.as_ref()?.resident.shard(HASH);
        shard.get_mut(HASH).into_iter().for_each(|entry| entry.state.add_hit());
        Some(Queue::Probation)
    }

    fn fate(&self, _queue: Queue, _object: &Leaving) -> Fate {
        Fate::Drop
    }

    fn spares_whole_runs(&self) -> bool {
        true
    }
}

#[test]
fn an_eviction_ends_though_everything_is_hit_again_meanwhile() {
    let popular = Popular::default();
    let theirs = Arc::clone(&popular.0);
    let (cache, _index) = with_object(Box::new(popular), 3_000);
    let cache = Arc::new(cache);
    lock(&theirs).0 = Some(Arc::downgrade(&cache));
    squeeze(&cache);
    assert!(!is_there(&cache), "the memory was wanted");
    let places = cache.pool.places() as u64;
    assert!(lock(&theirs).1 > places, "it was spared as long as another may be the next");
}

/// The pool to take from, until that was done, and what was taken.
type Theft = (Option<Arc<Pool>>, Vec<Run>);

/// Takes a frame, once, when an object leaves a run: another thread has taken the memory just
/// freed.
#[derive(Default)]
struct Thief(Arc<Mutex<Theft>>);

impl ResidencyPolicy for Thief {
    fn victim(&self, _usage: &Usage, _requester: Hint) -> Option<Queue> {
        None
    }

    fn fate(&self, _queue: Queue, _object: &Leaving) -> Fate {
        Fate::Drop
    }

    fn left(&self, _queue: Queue, _object: &Leaving) {
        let mut state = lock(&self.0);
        let stolen = state.0.as_ref().and_then(Pool::try_take_frame);
        if let Some(run) = stolen {
            state.1.push(run);
            state.0 = None;
        }
    }
}

/// Only what nobody uses lies in the way, so that nobody needs to be refused.
#[test]
fn who_loses_the_room_it_made_for_a_long_run_makes_some_again() {
    let thief = Thief::default();
    let theirs = Arc::clone(&thief.0);
    let pool = Pool::new(FRAMES, FRAME_BYTES).unwrap();
    let cache = Cache::new(Arc::clone(&pool), Arc::new(thief), Arc::new(Index::new(64)));
    for hash in (1..=FRAMES as u64).map(|n| KeyHash::from_raw(n << 40)) {
        let run = pool.try_take_frame().expect("it is empty");
        let header = header(hash, 3_000);
        cache.resident.shard(hash).insert(hash, entry(&run, &header));
        cache.track(run, Queue::Probation, 0..header.stored_bytes() as u32);
    }
    lock(&theirs).0 = Some(pool);
    assert!(cache.take(4 * FRAME_BYTES, Hint::Neutral).is_some());
    assert_eq!(lock(&theirs).1.len(), 1, "another was faster once");
    lock(&theirs).1.clear();
}
