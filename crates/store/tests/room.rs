//! Room on the disk: what was removed or replaced makes room before anything that is there goes,
//! old versions do not come back by that, and pages are full.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod in_memory;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use damelo::{ByteSize, Clock, Config, CreateOptions, DiskPolicyKind, GroupId, Store};
use in_memory::{Memory, State, Stopped};

const DEVICE_BYTES: usize = 16 << 20;
/// Five records on a page.
const BYTES: usize = 3000;

fn open(state: &Arc<Mutex<State>>, change: impl FnOnce(&mut Config)) -> Store {
    let mut config = Config::new("room", ByteSize::new(DEVICE_BYTES as u64));
    config.memory = ByteSize::new(4 << 20);
    config.page = Some(ByteSize::new(16 << 10));
    config.segment = Some(ByteSize::new(512 << 10));
    config.background = false;
    config.seed = Some(1);
    change(&mut config);
    Store::open_on(config, vec![Memory::device(state)], Arc::new(Stopped)).unwrap()
}

fn create(store: &Store, key: u64, version: u8) {
    let value = vec![version; BYTES];
    store.create(&key.to_le_bytes(), GroupId::new(key % 9), &value).wait().unwrap();
}

/// Creates and removes objects that live shortly, until so many bytes were created.
fn churn(store: &Store, bytes: u64) {
    const KEYS: u64 = 300;
    for at in 0..bytes / BYTES as u64 {
        create(store, 1_000_000 + at % KEYS, 0);
        if at >= 100 {
            store.remove(&(1_000_000 + (at - 100) % KEYS).to_le_bytes()).unwrap();
        }
    }
}

/// How many of the keys are there, with that first byte.
fn there(store: &Store, keys: std::ops::Range<u64>, version: u8) -> usize {
    store.drop_memory();
    let found = keys.filter(|key| {
        let object = store.read(&key.to_le_bytes()).wait().unwrap();
        object.inspect(|object| assert_eq!(object[0], version, "{key}")).is_some()
    });
    found.count()
}

/// Each frame gets one object of a group that will never fill a page, and many that do.
#[test]
fn a_few_objects_of_small_groups_do_not_hold_all_memory() {
    let state = State::new(DEVICE_BYTES, false);
    let store = open(&state, |_| ());
    for at in 0..12_000_u64 {
        let (group, bytes) = if at % 8 == 0 { (at, 300) } else { (1, 2000) };
        store.create(&at.to_le_bytes(), GroupId::new(group), &vec![1; bytes]).wait().unwrap();
    }
    let stats = store.stats();
    assert_eq!((stats.pages_through_spare, stats.create_waits), (0, 0), "{stats:?}");
}

#[test]
fn what_is_there_stays_while_what_is_gone_takes_the_room() {
    // Apart from what goes, and one among nine that go.
    for among in [0, 9] {
        let state = State::new(DEVICE_BYTES, false);
        let store = open(&state, |_| ());
        for key in 0..700 {
            create(&store, key, 7);
            churn(&store, among * BYTES as u64);
        }
        churn(&store, 8 * DEVICE_BYTES as u64);
        store.sync().unwrap();
        let stats = store.stats();
        assert!(stats.segments_reused > 4 * stats.segments, "{stats:?}");
        assert!(stats.segments_reused_early > stats.segments, "{stats:?}");
        assert_eq!(there(&store, 0..700, 7), 700, "{among}: never read, and there was room");
        assert!(stats.write_amplification() < 1.3, "{among}: {}", stats.write_amplification());
    }
}

#[test]
fn what_is_replaced_before_it_was_read_takes_one_place_in_the_index() {
    let state = State::new(DEVICE_BYTES, false);
    let store = open(&state, |_| ());
    for version in 0..3 {
        (0..500).for_each(|key| create(&store, key, version));
        store.sync().unwrap();
        store.drop_memory();
    }
    assert_eq!(store.stats().index_objects, 500);
    assert_eq!(there(&store, 0..500, 2), 500);
}

/// The newer version's segment is reused first, and nothing of it kept.
#[test]
fn an_older_version_in_an_older_segment_does_not_come_back() {
    let state = State::new(DEVICE_BYTES, false);
    let plain = |config: &mut Config| config.disk_policy = DiskPolicyKind::Fifo;
    let store = open(&state, plain);
    (0..900).for_each(|key| create(&store, key, 1));
    store.sync().unwrap();
    store.drop_memory();
    // The newer versions lie among what goes, but not before it was written.
    for key in 0..100 {
        create(&store, key, 2);
        (0..10).for_each(|n| create(&store, 10_000 + 10 * key + n, 0));
    }
    store.sync().unwrap();
    (10_000..11_000_u64).for_each(|key| assert!(store.remove(&key.to_le_bytes()).unwrap()));
    store.drop_memory();
    // What stays, until the emptiest must go.
    (2000..4200).for_each(|key| create(&store, key, 3));
    assert!(store.stats().segments_reused_early > 4, "{:?}", store.stats());
    let newer = there(&store, 0..100, 2);
    assert!(newer < 50, "{newer}: their segments were reused");
    assert!(there(&store, 200..900, 1) > 600);
    // As after a crash: nothing was closed.
    std::mem::forget(store);
    let store = open(&state, plain);
    store.wait_recovered();
    assert!(there(&store, 0..100, 2) <= newer);
}

/// Nothing is replaced or removed, which would have what is dead left out for another reason.
#[test]
fn pages_are_full_where_half_of_the_objects_expire_before_they_are_written() {
    let state = State::new(DEVICE_BYTES, false);
    let store = open(&state, |_| ());
    for at in 0..4000_u64 {
        let expires_unix_s = (at % 2 == 0).then_some(1_700_000_000);
        let options = CreateOptions { expires_unix_s, ..Default::default() };
        store
            .create_with(&at.to_le_bytes(), GroupId::new(at % 9), &[1; BYTES], options)
            .wait()
            .unwrap();
    }
    store.sync().unwrap();
    let stats = store.stats();
    assert_eq!(stats.drops_superseded, 2000, "{stats:?}");
    assert!(stats.write_amplification() < 1.3, "{}", stats.write_amplification());
}

/// Each group's worth is over half a page, so that no two of them go on one.
#[test]
fn groups_of_alike_size_fill_their_pages() {
    let state = State::new(DEVICE_BYTES, false);
    let store = open(&state, |_| ());
    for at in 0..4000_u64 {
        let value = vec![1; 1500];
        store.create(&at.to_le_bytes(), GroupId::new(at % 90), &value).wait().unwrap();
    }
    store.sync().unwrap();
    let stats = store.stats();
    assert!(stats.write_amplification() < 1.15, "{}", stats.write_amplification());
}

#[test]
fn a_full_index_on_an_empty_disk_is_told_of_and_so_is_what_to_set() {
    let told = |objects_max, bytes: usize| {
        let state = State::new(DEVICE_BYTES, false);
        let store = open(&state, |config| config.objects_max = Some(objects_max));
        for at in 0..4000_u64 {
            store.create(&at.to_le_bytes(), GroupId::new(1), &vec![1; bytes]).wait().unwrap();
        }
        store.sync().unwrap();
        store.info().warnings
    };
    let warnings = told(1000, 100);
    assert!(warnings.len() == 1 && warnings[0].contains("--objects"), "{warnings:?}");
    assert!(told(10_000, 100).is_empty(), "it has room");
    assert!(told(2500, 4000).is_empty(), "the disk is as full as the index");
}

/// The time is what it is set to.
#[derive(Clone, Default)]
struct Hand(Arc<AtomicU64>);

impl Clock for Hand {
    fn unix_seconds(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.unix_seconds())
    }
}

#[test]
fn what_expires_while_it_waits_is_not_written() {
    let state = State::new(DEVICE_BYTES, false);
    let clock = Hand::default();
    clock.0.store(1_700_000_000, Ordering::Relaxed);
    let store = {
        let mut config = Config::new("room", ByteSize::new(DEVICE_BYTES as u64));
        config.memory = ByteSize::new(4 << 20);
        config.background = false;
        Store::open_on(config, vec![Memory::device(&state)], Arc::new(clock.clone())).unwrap()
    };
    let lasting = |seconds: u64| CreateOptions {
        expires_unix_s: Some(1_700_000_000 + seconds),
        ..CreateOptions::default()
    };
    let group = GroupId::new(1);
    for (key, bytes, seconds) in
        [(b"a", 3000, 2), (b"b", 3000, 20), (b"c", 90_000, 2), (b"d", 90_000, 20)]
    {
        store.create_with(key, group, &vec![1; bytes], lasting(seconds)).wait().unwrap();
    }
    clock.0.fetch_add(3, Ordering::Relaxed);
    store.sync().unwrap();
    let stats = store.stats();
    assert_eq!((stats.index_objects, stats.drops_superseded), (2, 2), "{stats:?}");
    assert!(stats.written_object_bytes < 100_000, "{stats:?}");
    let is_there = |key: &[u8]| store.read(key).wait().unwrap().is_some();
    assert_eq!([b"a", b"b", b"c", b"d"].map(|key| is_there(key)), [false, true, false, true]);
}

#[test]
fn what_has_expired_is_not_kept_though_it_is_loved() {
    let state = State::new(DEVICE_BYTES, false);
    let clock = Hand::default();
    clock.0.store(1_700_000_000, Ordering::Relaxed);
    let mut config = Config::new("room", ByteSize::new(DEVICE_BYTES as u64));
    config.memory = ByteSize::new(4 << 20);
    config.segment = Some(ByteSize::new(512 << 10));
    config.background = false;
    config.reinsert_percent_max = 50;
    let device = Memory::device(&state);
    let store = Store::open_on(config, vec![device], Arc::new(clock.clone())).unwrap();
    let loved = GroupId::new(100);
    store.love(loved);
    for key in 0..40_u64 {
        // Half of them stay.
        let expires_unix_s = Some(1_700_000_010 + key % 2 * 1_000);
        let options = CreateOptions { expires_unix_s, ..Default::default() };
        store.create_with(&key.to_le_bytes(), loved, &[1; BYTES], options).wait().unwrap();
    }
    store.sync().unwrap();
    clock.0.fetch_add(20, Ordering::Relaxed);
    let mut filled = 1_000;
    while store.stats().reinserted_objects == 0 {
        create(&store, filled, 0);
        filled += 1;
        assert!(filled < 20_000, "{:?}", store.stats());
    }
    assert_eq!(store.stats().reinserted_objects, 20);
}

/// A list of parts is small, and lies in a segment of which all else is soon replaced.
#[test]
fn an_object_in_parts_stays_while_its_parts_are_there() {
    let state = State::new(24 << 20, false);
    let store = open(&state, |config| {
        config.volumes[0].size = Some(ByteSize::new(24 << 20));
        config.segment = Some(ByteSize::new(256 << 10));
    });
    (0..2_500).for_each(|key| create(&store, key, 1));
    let hot = |keys: std::ops::Range<u64>| keys.for_each(|n| create(&store, 1_000_000 + n, 2));
    hot(0..250);
    store.create(b"in parts", GroupId::new(1), &vec![9; 1 << 20]).wait().unwrap();
    for round in 0..40 {
        hot(250 * (round % 2)..250 * (round % 2) + 250);
        store.sync().unwrap();
        store.drop_memory();
        let found = store.lookup(b"in parts").wait().unwrap();
        assert_eq!(found.map(|info| info.length_bytes), Some(1 << 20), "round {round}");
    }
    assert!(store.stats().segments_reused_early > 10, "{}", store.stats().segments_reused_early);
}

#[test]
fn a_group_is_written_when_its_own_time_has_come() {
    let (state, clock) = (State::new(DEVICE_BYTES, false), Hand::default());
    let store = {
        let mut config = Config::new("room", ByteSize::new(DEVICE_BYTES as u64));
        config.memory = ByteSize::new(4 << 20);
        config.flush_period = Duration::ZERO;
        Store::open_on(config, vec![Memory::device(&state)], Arc::new(clock.clone())).unwrap()
    };
    store.set_flush_period(GroupId::new(1), Duration::from_secs(2));
    for group in [1_u64, 2] {
        store.create(&group.to_le_bytes(), GroupId::new(group), b"x").wait().unwrap();
    }
    clock.0.store(2, Ordering::Relaxed);
    // By a thread of the store, at its next look.
    while store.stats().index_objects == 0 {
        std::thread::yield_now();
    }
    assert_eq!(store.stats().index_objects, 1, "the other's never comes");
}
