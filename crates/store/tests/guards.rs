//! Guards against everything that could take their memory away: eviction, packing, the ring that
//! comes round, the end of the store. Written for Miri, which sees what a machine forgives
//! (CONTRIBUTING.md has the command); on a machine it is the same with more of everything.
//!
//! Threads: each test's own, and those of the store.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use damelo::{ByteSize, Config, CreateError, GroupId, Object, ReadError, Store, WriterOptions};

mod in_memory;
use in_memory::{Memory, State, Stopped};

/// Little enough that the ring comes round and memory is full, also within Miri's patience.
const DEVICE_BYTES: usize = if cfg!(miri) { 6 << 20 } else { 12 << 20 };
const OPERATIONS: u64 = if cfg!(miri) { 20 } else { 6_000 };
const THREADS: u64 = 2;
const KEYS: u64 = if cfg!(miri) { 12 } else { 300 };

fn open(state: &Arc<Mutex<State>>) -> Store {
    let mut config = Config::new("memory", ByteSize::new(DEVICE_BYTES as u64));
    config.memory = ByteSize::new(4 << 20);
    config.page = Some(ByteSize::new(16 << 10));
    config.segment = Some(ByteSize::new(256 << 10));
    config.objects_max = Some(4096);
    config.seed = Some(1);
    config.flush_period = Duration::from_millis(20);
    Store::open_on(config, vec![Memory::device(state)], Arc::new(Stopped)).unwrap()
}

/// The key in front, then one byte over and over: another object's bytes, or a mixture, show.
fn value(key: u64, length: usize) -> Vec<u8> {
    let mut value = vec![key as u8 ^ (length as u8); length.max(8)];
    value[..8].copy_from_slice(&key.to_le_bytes());
    value
}

fn check(key: u64, bytes: &[u8]) {
    assert_eq!(bytes, value(key, bytes.len()), "key {key}");
}

fn length(rng: &mut fastrand::Rng) -> usize {
    match rng.u8(0..20) {
        0 if !cfg!(miri) => rng.usize(100_000..200_000),
        0..4 => rng.usize(9_000..if cfg!(miri) { 16_000 } else { 40_000 }),
        _ => rng.usize(8..9_000),
    }
}

/// A refusal for want of memory is an answer, and so is that the other thread has pushed the parts
/// of a large object out of so small a ring; anything else is not.
fn created(result: Result<(), CreateError>) {
    use CreateError::{MemoryFull, Overwritten};
    assert!(matches!(result, Ok(()) | Err(MemoryFull | Overwritten { .. })), "{result:?}");
}

fn read(store: &Store, key: u64) -> Option<Object> {
    match store.read(&key.to_le_bytes()).wait() {
        Ok(object) => object,
        Err(ReadError::MemoryFull) => None,
        Err(error) => panic!("{error}"),
    }
}

/// One thread's mixture; guards are held for a while, checked again and let go.
fn mixture(store: &Store, seed: u64) -> Vec<(u64, Object)> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut held: Vec<(u64, Object)> = Vec::new();
    for _ in 0..OPERATIONS {
        let key = rng.u64(0..KEYS);
        let (name, group) = (key.to_le_bytes(), GroupId::new(key % 3));
        match rng.u8(0..40) {
            0..16 => created(store.create(&name, group, &value(key, length(&mut rng))).wait()),
            16 => drop(store.remove(&name).unwrap()),
            17 => drop(store.set_metadata(&name, b"other").wait()),
            18 => drop(store.prefetch(group).wait()),
            19 => part_by_part(store, key),
            20 => streamed(store, key, group, length(&mut rng)),
            21 => store.drop_memory(),
            22 if rng.u8(0..10) == 0 => store.purge_group(group).unwrap(),
            _ => {
                if let Some(object) = read(store, key) {
                    check(key, &object);
                    held.push((key, object));
                }
            }
        }
        if held.len() > 6 {
            let (key, object) = held.swap_remove(rng.usize(0..held.len()));
            check(key, &object);
        }
    }
    held
}

fn streamed(store: &Store, key: u64, group: GroupId, length: usize) {
    let value = value(key, length);
    let Ok(mut writer) = store.writer(&key.to_le_bytes(), group, WriterOptions::default()) else {
        return;
    };
    let written = value.chunks(5_000).try_for_each(|piece| writer.write(piece).wait());
    // Now and then the writer is abandoned.
    if written.is_ok() && !length.is_multiple_of(4) {
        created(writer.commit().wait());
    }
}

fn part_by_part(store: &Store, key: u64) {
    let range = store.read_range(&key.to_le_bytes(), 3..7_000).wait();
    if let Ok(Some(range)) = range {
        let whole = value(key, range.object_length_bytes() as usize);
        assert_eq!(range[..], whole[3..whole.len().min(7_000)]);
    }
    if let Ok(Some(mut reader)) = store.reader(&key.to_le_bytes()).wait() {
        let mut all = Vec::new();
        while let Ok(Some(piece)) = reader.next().wait() {
            all.extend_from_slice(&piece);
        }
        let whole = value(key, reader.info().length_bytes as usize);
        assert!(whole.starts_with(&all), "key {key}");
    }
}

#[test]
fn guards_keep_their_bytes_whatever_happens() {
    let state = State::new(DEVICE_BYTES, false);
    let store = open(&state);
    let held: Vec<(u64, Object)> = std::thread::scope(|scope| {
        let store = &store;
        let threads: Vec<_> =
            (0..THREADS).map(|seed| scope.spawn(move || mixture(store, seed))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(!held.is_empty());
    if !cfg!(miri) {
        let written = store.stats().written_bytes;
        assert!(written > 2 * DEVICE_BYTES as u64, "the ring came round: {written}");
    }
    store.close().unwrap();
    for (key, object) in &held {
        check(*key, object);
    }
    let all: Vec<(u64, Bytes)> = held.into_iter().map(|(key, o)| (key, o.into())).collect();
    for (key, bytes) in all {
        check(key, &bytes);
        check(key, &bytes.slice(..));
    }
}

/// A store with an object under each key, all of them synced.
fn filled() -> (Arc<Mutex<State>>, Store) {
    let state = State::new(DEVICE_BYTES, false);
    let store = open(&state);
    for key in 0..KEYS {
        let bytes = value(key, 3_000 + 100 * (key as usize % 50));
        store.create(&key.to_le_bytes(), GroupId::new(key % 3), &bytes).wait().unwrap();
    }
    store.sync().unwrap();
    (state, store)
}

#[test]
fn a_store_that_comes_back_reads_what_it_wrote() {
    let (state, store) = filled();
    store.close().unwrap();
    let store = open(&state);
    store.wait_recovered();
    let hits = (0..KEYS).filter(|&key| read(&store, key).inspect(|o| check(key, o)).is_some());
    assert_eq!(hits.count() as u64, KEYS);
    store.close().unwrap();
}

#[test]
fn a_store_that_crashed_finds_what_it_had_synced() {
    let (state, store) = filled();
    assert!(store.remove(&1_u64.to_le_bytes()).unwrap());
    // Without a close: what the journal and the segments say.
    let crashed = state.lock().unwrap().copied();
    drop(store);
    let store = open(&crashed);
    store.wait_recovered();
    for key in 0..KEYS {
        let found = read(&store, key).inspect(|object| check(key, object));
        assert_eq!(found.is_some(), key != 1, "key {key}");
    }
}
