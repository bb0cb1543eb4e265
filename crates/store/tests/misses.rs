//! A read that finds nothing is one miss, under one reason, and one that finds something one hit,
//! whichever way it went.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use damelo::{ByteSize, Clock, Config, CreateOptions, GroupId, Store};

mod in_memory;

use in_memory::{Memory, State};

const DEVICE_BYTES: usize = 32 << 20;

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

fn awaited<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
        std::thread::yield_now();
    }
}

type IsThere = fn(&Store, &[u8]) -> bool;

const READS: [(&str, IsThere); 6] = [
    ("read", |store, key| store.read(key).wait().unwrap().is_some()),
    ("awaited read", |store, key| awaited(store.read(key)).unwrap().is_some()),
    ("lookup", |store, key| store.lookup(key).wait().unwrap().is_some()),
    ("length", |store, key| store.length(key).wait().unwrap().is_some()),
    ("range", |store, key| store.read_range(key, 0..1).wait().unwrap().is_some()),
    ("reader", |store, key| store.reader(key).wait().unwrap().is_some()),
];

/// Hit ratios are made of these counters.
#[test]
fn a_read_of_what_has_died_is_one_miss() {
    for (what, is_there) in READS {
        // In a page, read whole, read by its head, in parts; the last waits to be written.
        let places = [
            (10, true),
            (10, false),
            (100_000, false),
            (400_000, false),
            (600_000, false),
            (600_000, true),
        ];
        for (bytes, in_memory) in places {
            let (clock, state) = (Hand::default(), State::new(DEVICE_BYTES, false));
            let mut config = Config::new("misses", ByteSize::new(DEVICE_BYTES as u64));
            config.memory = ByteSize::new(4 << 20);
            let device = vec![Memory::device(&state)];
            let store = Store::open_on(config, device, Arc::new(clock.clone())).unwrap();
            let value = vec![1; bytes];
            let expiring = CreateOptions { expires_unix_s: Some(100), ..CreateOptions::default() };
            // On pages of their own: what has expired is forgotten when its page is read for
            // another.
            let of_groups = [(0, CreateOptions::default()), (1, expiring)];
            for (group, options) in of_groups {
                for key in 0..if bytes > 10 { 1 } else { 40 } {
                    let id = GroupId::new(1 + u64::from(group));
                    store.create_with(&[group, key], id, &value, options).wait().unwrap();
                }
                if bytes == 10 || !in_memory {
                    store.sync().unwrap();
                }
            }
            if !in_memory {
                store.drop_memory();
            }
            store.purge_group(GroupId::new(1)).unwrap();
            clock.0.store(100, Ordering::Relaxed);
            for key in [[0, 0], [1, 0]] {
                assert!(!is_there(&store, &key), "{what}");
            }
            let stats = store.stats();
            let counted = [stats.misses_purged, stats.misses_expired, stats.misses_not_found];
            assert_eq!(counted, [1, 1, 0], "{what} of {bytes} bytes, in memory: {in_memory}");
            assert!(!is_there(&store, &[1, 0]), "{what}");
            assert_eq!(store.stats().misses_not_found, 1, "then it is forgotten");
        }
    }
}

#[test]
fn a_read_of_what_is_there_is_one_hit() {
    for (what, is_there) in READS {
        for (bytes, in_memory) in [(10, true), (10, false), (100_000, false), (400_000, false)] {
            let state = State::new(DEVICE_BYTES, false);
            let mut config = Config::new("hits", ByteSize::new(DEVICE_BYTES as u64));
            config.memory = ByteSize::new(4 << 20);
            let device = vec![Memory::device(&state)];
            let store = Store::open_on(config, device, Arc::new(Hand::default())).unwrap();
            store.create(b"key", GroupId::new(1), &vec![1; bytes]).wait().unwrap();
            store.sync().unwrap();
            if !in_memory {
                store.drop_memory();
            }
            assert!(is_there(&store, b"key"), "{what}");
            let stats = store.stats();
            let counted = [stats.hits_memory, stats.hits_disk];
            let expected = [u64::from(in_memory), u64::from(!in_memory)];
            assert_eq!(counted, expected, "{what} of {bytes} bytes, in memory: {in_memory}");
        }
    }
}

/// New metadata looks its object up, and again after each wait for an object on its way to disk.
#[test]
fn new_metadata_is_one_hit_however_long_it_waits() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(64 << 20));
    config.memory = ByteSize::new(8 << 20);
    // Nothing goes to disk before somebody waits for it.
    config.flush_period = Duration::ZERO;
    let store = Store::open(config).unwrap();
    let hits = |store: &Store| (store.stats().hits_memory, store.stats().hits_disk);
    for (key, bytes) in [("small", 100), ("of one record", 200_000), ("in parts", 3_000_000)] {
        let key = key.as_bytes();
        store.create(key, GroupId::new(1), &vec![1; bytes]).wait().unwrap();
        let before = hits(&store);
        assert_eq!(store.set_metadata(key, b"first").wait(), Ok(true));
        let after = hits(&store);
        assert_eq!(after.0 + after.1, before.0 + before.1 + 1, "{bytes} bytes on their way");

        store.sync().unwrap();
        store.drop_memory();
        let before = hits(&store);
        assert_eq!(store.set_metadata(key, b"second").wait(), Ok(true));
        assert_eq!(hits(&store), (before.0, before.1 + 1), "{bytes} bytes on disk");
    }
    assert!(store.stats().metadata_waits > 0, "none waited");
}

/// The index cannot tell these keys apart. Two of them are there: each is found behind the other.
#[test]
fn what_another_key_with_the_same_tag_has_is_not_read_for_it() {
    for (what, is_there) in READS {
        for bytes in [10, 100_000, 400_000, 600_000] {
            let state = State::new(DEVICE_BYTES, false);
            let mut config = Config::new("tags", ByteSize::new(DEVICE_BYTES as u64));
            config.memory = ByteSize::new(8 << 20);
            config.objects_max = Some(64);
            config.tags_alone = true;
            config.background = false;
            config.flush_period = Duration::ZERO;
            config.seed = Some(1);
            let device = vec![Memory::device(&state)];
            let store = Store::open_on(config, device, Arc::new(Hand::default())).unwrap();
            let create = |key: &[u8], byte: u8| {
                store.create(key, GroupId::new(1), &vec![byte; bytes]).wait().unwrap();
            };
            create(b"first", 1);
            store.sync().unwrap();
            let equal = (0_u64..).map(u64::to_le_bytes).filter(|key| store.may_contain(key));
            let [second, absent] = *equal.take(2).collect::<Vec<_>>() else { unreachable!() };
            // Who comes when the other is in the index already forgets it.
            assert!(store.remove(b"first").unwrap());
            create(b"first", 1);
            create(&second, 2);
            store.sync().unwrap();
            for (key, byte) in [(&b"first"[..], Some(1)), (&second, Some(2)), (&absent, None)] {
                store.drop_memory();
                assert_eq!(is_there(&store, key), byte.is_some(), "{what} of {bytes} bytes");
                let part = store.read_range(key, 7..8).wait().unwrap();
                assert_eq!(part.map(|part| part[0]), byte, "{what} of {bytes} bytes");
            }
        }
    }
}

/// Half of a page's objects have expired: reading the others tells, so that none of these takes
/// memory, is counted as prefetched, or costs a read of its own later.
#[test]
fn what_has_expired_does_not_come_into_memory_with_its_page() {
    const OBJECTS: u32 = 4_000;
    let (clock, state) = (Hand::default(), State::new(DEVICE_BYTES, false));
    let mut config = Config::new("expired", ByteSize::new(DEVICE_BYTES as u64));
    config.memory = ByteSize::new(8 << 20);
    let device = vec![Memory::device(&state)];
    let store = Store::open_on(config, device, Arc::new(clock.clone())).unwrap();
    for key in 0..OBJECTS {
        let expires_unix_s = (key % 2 == 1).then_some(100);
        let options = CreateOptions { expires_unix_s, ..CreateOptions::default() };
        store.create_with(&key.to_le_bytes(), GroupId::new(1), &[1; 100], options).wait().unwrap();
    }
    store.sync().unwrap();
    store.drop_memory();
    clock.0.store(100, Ordering::Relaxed);
    let is_there = |key: u32| store.read(&key.to_le_bytes()).wait().unwrap().is_some();
    assert!((0..OBJECTS).step_by(2).all(is_there));
    let live = u64::from(OBJECTS / 2);
    let stats = store.stats();
    assert!(stats.page_reads > 0, "or this tests nothing");
    assert!(stats.prefetched < live, "{} prefetched of {live}", stats.prefetched);
    assert_eq!([stats.resident_objects, stats.index_objects], [live, live]);
    assert!(!(1..OBJECTS).step_by(2).any(is_there));
    let after = store.stats();
    assert_eq!(after.disk_read_bytes, stats.disk_read_bytes, "they are known to be gone");
    assert_eq!(after.misses_not_found - stats.misses_not_found, live);
    assert_eq!(after.misses_expired, 0, "nobody asked while they were there");
}

/// What is asked for is there all the time; it goes to disk, from there to memory, and loses its
/// record on disk to a newer one, between the beginning of the read and its end.
#[test]
fn a_read_that_a_replacement_overtakes_finds_the_newer() {
    type Begun = fn(&Store) -> Box<dyn FnOnce() -> bool + '_>;
    let begun: [(&str, Begun); 3] = [
        ("read", |store| {
            let read = store.read(b"key");
            Box::new(move || read.wait().unwrap().is_some())
        }),
        ("lookup", |store| {
            let lookup = store.lookup(b"key");
            Box::new(move || lookup.wait().unwrap().is_some())
        }),
        ("range", |store| {
            let range = store.read_range(b"key", 0..1);
            Box::new(move || range.wait().unwrap().is_some())
        }),
    ];
    for (what, begin) in begun {
        for bytes in [10, 100_000, 400_000] {
            let state = State::new(DEVICE_BYTES, false);
            let mut config = Config::new("overtaken", ByteSize::new(DEVICE_BYTES as u64));
            config.memory = ByteSize::new(8 << 20);
            let device = vec![Memory::device(&state)];
            let store = Store::open_on(config, device, Arc::new(Hand::default())).unwrap();
            let create = || store.create(b"key", GroupId::new(1), &vec![1; bytes]).wait().unwrap();
            create();
            store.sync().unwrap();
            store.drop_memory();
            let end = begin(&store);
            create();
            assert!(end(), "{what} of {bytes} bytes");
            assert_eq!(store.stats().misses_not_found, 0, "{what} of {bytes} bytes");
        }
    }
}
