//! A store without threads of its own (`Config::background`): the same calls make the same
//! transfers, nothing is lost or wrong, and callers on several threads do not wait for each other
//! for ever.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use damelo::{ByteSize, Clock, Config, CreateError, GroupId, Store, WhenMemoryFull};

mod in_memory;
use in_memory::{Memory, State, Stopped};

const DEVICE_BYTES: usize = 16 << 20;

fn open(state: &Arc<Mutex<State>>, background: bool) -> Store {
    let mut config = Config::new("memory", ByteSize::new(DEVICE_BYTES as u64));
    config.memory = ByteSize::new(4 << 20);
    config.seed = Some(1);
    config.background = background;
    Store::open_on(config, vec![Memory::device(state)], Arc::new(Stopped)).unwrap()
}

/// The journal is nearly full, nothing waits to be written, and nobody reads: a checkpoint makes
/// room.
#[test]
fn what_waits_for_the_journal_is_not_refused_for_want_of_memory() {
    let open = |(when, create_wait)| {
        let mut config = Config::new("memory", ByteSize::new(DEVICE_BYTES as u64));
        config.memory = ByteSize::new(4 << 20);
        config.background = false;
        (config.when_memory_full, config.create_wait) = (when, create_wait);
        let device = Memory::device(&State::new(DEVICE_BYTES, false));
        Store::open_on(config, vec![device], Arc::new(Stopped)).unwrap()
    };
    let purge = |store: &Store| store.purge_group(GroupId::new(9)).unwrap();
    let refuses = (WhenMemoryFull::Refuse, None);
    let store = open(refuses);
    let mut purges = 0;
    while store.stats().checkpoints == 0 {
        purge(&store);
        purges += 1;
    }
    // As removes would, which a create that is refused becomes.
    let waits_for_nothing_else = (WhenMemoryFull::Wait, Some(Duration::ZERO));
    for config in [refuses, waits_for_nothing_else] {
        let store = open(config);
        store.create(b"key", GroupId::new(1), b"older").wait().unwrap();
        (1..purges).for_each(|_| purge(&store));
        assert_eq!(store.create(b"key", GroupId::new(1), b"value").wait(), Ok(()), "{config:?}");
        let stats = store.stats();
        assert_eq!((stats.checkpoints, stats.drops_memory_full), (1, 0), "{config:?}");
    }
}

/// A life goes on in a half that the one before has filled, to the last record or nearly so: what
/// it writes first does not wait for a checkpoint that nobody else writes.
#[test]
fn a_journal_that_was_closed_full_makes_room_for_the_next_life() {
    let purge = |store: &Store| store.purge_group(GroupId::new(9)).unwrap();
    let store = open(&State::new(DEVICE_BYTES, false), false);
    // A half, and three quarters of the next.
    let mut until_tight = 0;
    while store.stats().checkpoints == 0 {
        purge(&store);
        until_tight += 1;
    }
    let state = State::new(DEVICE_BYTES, false);
    let store = open(&state, false);
    (0..until_tight * 8 / 7 - 8).for_each(|_| purge(&store));
    store.create(b"key", GroupId::new(1), b"value").wait().unwrap();
    store.close().unwrap();
    for more in 0..16 {
        // Nothing is written by an open after a close, nor by one that is closed after nothing.
        let state = state.lock().unwrap().copied();
        let store = open(&state, false);
        (0..more).for_each(|_| purge(&store));
        store.close().unwrap();
        let store = open(&state, false);
        assert_eq!(store.create(b"key", GroupId::new(1), b"other").wait(), Ok(()), "{more}");
        // That of the close covers the other half.
        let stats = store.stats();
        assert_eq!((stats.journal_errors, stats.checkpoints), (0, 0), "{more}");
    }
}

/// What waits to be written holds memory that comes free: a read is refused only where nothing
/// waits.
#[test]
fn a_read_is_not_refused_for_what_only_waits_to_be_written() {
    let mut config = Config::new("memory", ByteSize::new(DEVICE_BYTES as u64));
    config.memory = ByteSize::new(4 << 20);
    config.page = Some(ByteSize::new(16 << 10));
    config.background = false;
    config.when_memory_full = WhenMemoryFull::Refuse;
    let device = Memory::device(&State::new(DEVICE_BYTES, false));
    let store = Store::open_on(config, vec![device], Arc::new(Stopped)).unwrap();
    for key in 0..600_u64 {
        store.create(&key.to_le_bytes(), GroupId::new(1), &[7; 12_000]).wait().unwrap();
    }
    store.sync().unwrap();
    store.drop_memory();
    let mut held = Vec::new();
    let mut keys = 0..600_u64;
    let mut read = |held: &mut Vec<_>| {
        let key = keys.next().expect("memory is full before").to_le_bytes();
        store.read(&key).wait().map(|object| held.extend(object))
    };
    while read(&mut held).is_ok() {}
    held.truncate(held.len() - 8);
    store.create(b"waits", GroupId::new(2), &[1; 100]).wait().unwrap();
    assert!(store.stats().nursery_bytes > 0);
    while read(&mut held).is_ok() {}
    assert_eq!(store.stats().nursery_bytes, 0, "refused, though something waited");
    drop(held);
    assert!(store.read(b"waits").wait().unwrap().is_some());
}

fn value(key: u64, version: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(key * 1000 + version);
    // Mostly for pages, some for extents of their own, and a few in parts.
    let len = match rng.u8(0..200) {
        0 => rng.usize(300_000..500_000),
        1..12 => rng.usize(1..200_000),
        _ => rng.usize(1..9_000),
    };
    vec![rng.u8(..); len]
}

/// Creates, replaces, reads and removes, several times what the device and the journal hold; the
/// number of hits, each of which was compared with the newest version.
fn use_it(store: &Store, seed: u64, operations: u64) -> u64 {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut versions = vec![None; 600];
    let mut hits = 0;
    for operation in 0..operations {
        let number = rng.u64(0..600);
        let (key, group) = (number.to_le_bytes(), GroupId::new(number % 7));
        match rng.u8(0..10) {
            0..4 => {
                // Whole or in pieces, which are not copied to wait with.
                let value = value(number, operation);
                let (one, other) = value.split_at(value.len() / 3);
                let pieces = [one, other, b""];
                let created = match operation % 2 {
                    0 => store.create(&key, group, &value),
                    _ => store.create_pieces(&key, group, &pieces, Default::default()),
                };
                created.wait().unwrap();
                versions[number as usize] = Some(operation);
            }
            4..6 => {
                store.remove(&key).unwrap();
                versions[number as usize] = None;
            }
            _ => {
                if let Some(object) = store.read(&key).wait().unwrap() {
                    let version = versions[number as usize].expect("it was removed");
                    assert_eq!(&*object, value(number, version), "{number}");
                    hits += 1;
                }
            }
        }
    }
    hits
}

#[test]
fn the_same_calls_do_the_same() {
    let run = || {
        let state = State::new(DEVICE_BYTES, true);
        let store = open(&state, false);
        // Recovery reads on several threads, whose order means nothing.
        state.lock().unwrap().take_log();
        let hits = use_it(&store, 5, 12_000);
        store.sync().unwrap();
        let resident = store.stats().resident_objects;
        store.close().unwrap();
        let log = state.lock().unwrap().take_log();
        (hits, resident, log)
    };
    let (one, other) = (run(), run());
    assert!(one.0 > 500, "{} hits", one.0);
    let written: usize = one.2.iter().filter(|(write, ..)| *write).map(|(_, _, len, _)| len).sum();
    assert!(written > 2 * DEVICE_BYTES, "the ring came round: {written}");
    assert_eq!((one.0, one.1), (other.0, other.1));
    let differs = one.2.iter().zip(&other.2).position(|(a, b)| a != b);
    assert_eq!((differs, one.2.len()), (None, other.2.len()), "the transfers are the same");
}

#[test]
fn what_was_synced_is_there_for_a_store_with_threads() {
    let state = State::new(DEVICE_BYTES, false);
    let store = open(&state, false);
    for key in 0..300_u64 {
        store.create(&key.to_le_bytes(), GroupId::new(key % 7), &value(key, 0)).wait().unwrap();
    }
    store.sync().unwrap();
    store.close().unwrap();
    let store = open(&state, true);
    store.wait_recovered();
    for key in 0..300_u64 {
        let object = store.read(&key.to_le_bytes()).wait().unwrap().expect("it was synced");
        assert_eq!(&*object, value(key, 0));
    }
}

/// When half of the journal is full it wants a checkpoint. One that the caller asks for just then
/// must not begin another while it brings to disk what waits.
#[test]
fn a_checkpoint_does_not_wait_for_itself() {
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let store = open(&State::new(DEVICE_BYTES, false), false);
        // Each but the first replaces an object, which takes a record.
        let mut journaled = 0;
        while journaled < 5_000 {
            store.create(b"key", GroupId::new(1), b"...").wait().unwrap();
            journaled = store.stats().journal_records;
            store.checkpoint().unwrap();
        }
        sender.send(journaled).unwrap();
    });
    assert!(ended.recv_timeout(Duration::from_secs(60)).is_ok());
}

#[test]
fn callers_on_several_threads_get_on() {
    let state = State::new(DEVICE_BYTES, false);
    let store = open(&state, false);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..1_500_u64 {
                    let key = ((thread << 32) | (n % 200)).to_le_bytes();
                    let created = store.create(&key, GroupId::new(n % 5), &value(n, thread)).wait();
                    // Large ones of four threads may push each other out of so small a ring.
                    let pushed_out = matches!(created, Err(CreateError::Overwritten { .. }));
                    assert!(created.is_ok() || pushed_out, "{created:?}");
                    match n % 97 {
                        0 => store.sync().unwrap(),
                        1 => store.purge_group(GroupId::new(n % 5)).unwrap(),
                        _ => {}
                    }
                    let _ = store.read(&key).wait().unwrap();
                }
            });
        }
    });
    store.close().unwrap();
}

/// What an earlier store left does not come back, though the new one has the same numbers from the
/// same seed; and nobody reads its segments to find that out.
#[test]
fn a_store_made_anew_is_empty_and_looks_at_no_segment() {
    let state = State::new(DEVICE_BYTES, true);
    let store = open(&state, false);
    for key in 0..50_u64 {
        store.create(&key.to_le_bytes(), GroupId::new(1), &value(key, 1)).wait().unwrap();
    }
    let segments = store.info().segments as usize;
    drop(store);
    state.lock().unwrap().take_log();
    let mut config = Config::new("memory", ByteSize::new(DEVICE_BYTES as u64));
    (config.memory, config.seed) = (ByteSize::new(4 << 20), Some(1));
    (config.background, config.anew) = (false, true);
    let store = Store::open_on(config, vec![Memory::device(&state)], Arc::new(Stopped)).unwrap();
    let reads = state.lock().unwrap().take_log().iter().filter(|transfer| !transfer.0).count();
    assert!(reads < segments, "{reads} reads, {segments} segments");
    assert!((0..50_u64).all(|key| store.read(&key.to_le_bytes()).wait().unwrap().is_none()));
    assert_eq!(store.stats().index_objects, 0);
}

/// Without a device the same is said as with one.
#[test]
fn settings_are_judged_without_a_device_as_with_one() {
    let judge = |change: fn(&mut Config)| {
        let mut config = Config::new("memory", ByteSize::new(DEVICE_BYTES as u64));
        (config.memory, config.anew) = (ByteSize::new(4 << 20), true);
        change(&mut config);
        let said = |result: Result<(), damelo::OpenError>| result.err().map(|e| e.to_string());
        let before = said(Store::check_sizes(&config, &[DEVICE_BYTES as u64]));
        let device = Memory::device(&State::new(DEVICE_BYTES, false));
        let opened = Store::open_on(config, vec![device], Arc::new(Stopped));
        assert_eq!(before, said(opened.map(drop)));
        before.is_none()
    };
    let fine: [fn(&mut Config); 2] = [|_| (), |c| c.page = Some(ByteSize::new(128 << 10))];
    assert!(fine.into_iter().all(judge));
    let wrong: [fn(&mut Config); 6] = [
        |c| c.memory = ByteSize::new(1 << 20),
        |c| c.page = Some(ByteSize::new(1 << 20)),
        |c| c.segment = Some(ByteSize::new(3 << 20)),
        |c| {
            c.page = Some(ByteSize::new(256 << 10));
            c.segment = Some(ByteSize::new(256 << 10));
        },
        |c| c.segment = Some(ByteSize::new(64 << 20)),
        |c| c.objects_max = Some(1 << 40),
    ];
    assert!(!wrong.into_iter().any(judge));
}

/// Replaces the objects of a few keys again and again; bytes of records written, and written in
/// all.
fn replace_often(keys: u64, length: usize, replacements: u64) -> (u64, u64) {
    let store = open(&State::new(DEVICE_BYTES, false), false);
    let mut rng = fastrand::Rng::with_seed(3);
    for _ in 0..replacements {
        let key = rng.u64(0..keys).to_le_bytes();
        store.create(&key, GroupId::new(1), &vec![rng.u8(..); length]).wait().unwrap();
    }
    store.sync().unwrap();
    let stats = store.stats();
    assert!(stats.drops_superseded * 2 > replacements, "most are replaced while they wait");
    (stats.written_object_bytes, stats.written_bytes)
}

#[test]
fn what_is_replaced_while_it_waits_takes_no_room_in_pages() {
    let (records, all) = replace_often(150, 500, 50_000);
    assert!(all * 100 < records * 150, "{all} bytes written for {records} of records");
}

#[test]
fn large_objects_that_are_replaced_while_they_wait_are_not_written() {
    let replacements = 400;
    let (records, _) = replace_often(1, 40 << 10, replacements);
    assert!(records < replacements * (40 << 10) / 2, "{records} bytes of records");
}

/// A clock by which all takes long.
#[derive(Default)]
struct Running(AtomicU64);

impl Clock for Running {
    fn unix_seconds(&self) -> u64 {
        1_700_000_000
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// Nobody would apply it later.
#[test]
fn a_hint_that_follows_another_reaches_what_is_in_memory_at_once() {
    let mut config = Config::new("memory", ByteSize::new(DEVICE_BYTES as u64));
    config.memory = ByteSize::new(4 << 20);
    config.background = false;
    let device = Memory::device(&State::new(DEVICE_BYTES, false));
    let store = Store::open_on(config, vec![device], Arc::new(Running::default())).unwrap();
    let groups = [1, 2, 3].map(GroupId::new);
    for group in groups {
        store.create(&group.get().to_le_bytes(), group, &[7; 200_000]).wait().unwrap();
    }
    store.sync().unwrap();
    let loved = || store.stats().queue_frames[3];
    let mut before = loved();
    for group in groups {
        store.love(group);
        assert!(loved() > before, "{group:?}");
        before = loved();
    }
}
