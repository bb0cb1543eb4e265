//! A life of a segment may leave records on disk of which the next open sees nothing: they lie
//! behind a first block that did not get there. The lives after it must not take them for theirs.
//!
//! Threads: one at a time, and the stores'.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use damelo::{Config, Durability, GroupId, Stats, Store};
use damelo_store_sim::scenario::tiny_config;
use damelo_store_sim::{Completion, CrashKind, SimClock, SimDisk, SimOptions, SimWorld};

const GROUP: GroupId = GroupId::new(1);
const KEY: &[u8] = b"key";
const DISK_BYTES: u64 = 8 << 20;
const PAGE_VALUE_BYTES: usize = 3_000;
const EXTENT_VALUE_BYTES: usize = 20_000;
/// Images of a crash, which differ in what of the unsynced writes they hold.
const IMAGES: u64 = 40;

fn config() -> Config {
    let mut config = tiny_config(1);
    config.durability = Durability::Synced;
    config.checkpoint_period = Duration::ZERO;
    config.flush_period = Duration::from_millis(1);
    config
}

fn world(disks: &[SimDisk], completion: Completion) -> SimWorld {
    let options = SimOptions { completion, ..SimOptions::new(3) };
    SimWorld::start(disks, &options, Arc::new(SimClock::new()))
}

fn open(world: &SimWorld) -> Store {
    let store = Store::open_on(config(), world.devices(), world.clock()).unwrap();
    store.wait_recovered();
    store
}

fn put(store: &Store, key: &[u8], byte: u8, bytes: usize) {
    store.create(key, GROUP, &vec![byte; bytes]).wait().unwrap();
}

fn get(store: &Store) -> Option<u8> {
    store.read(KEY).wait().unwrap().map(|object| object[0])
}

fn wait_until(store: &Store, is_so: impl Fn(&Stats) -> bool) {
    let begun = Instant::now();
    while !is_so(&store.stats()) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", store.stats());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What a store did about the key after an open that did not find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    Replaced,
    Removed,
}

/// In an image of a crash that took the key: it is replaced or removed, synced, and the process
/// dies. Returns whether the key was gone; it must not come back as it was.
fn does_not_come_back(image: &[SimDisk], then: Then, bytes: usize, seed: u64) -> bool {
    let second = world(image, Completion::Inline);
    let store = open(&second);
    let was_gone = get(&store).is_none();
    if was_gone {
        let expected = match then {
            Then::Replaced => {
                put(&store, KEY, 2, bytes);
                Some(2)
            }
            Then::Removed => {
                assert!(!store.remove(KEY).unwrap());
                put(&store, b"other", 2, bytes);
                None
            }
        };
        store.sync().unwrap();
        let third = world(&second.crash(CrashKind::Kill, seed), Completion::Inline);
        let reopened = open(&third);
        assert_eq!(get(&reopened), expected, "{then:?}, {bytes} bytes, image {seed}");
        std::mem::forget(reopened);
    }
    std::mem::forget(store);
    was_gone
}

#[test]
fn what_a_loss_of_power_hid_does_not_come_back() {
    for bytes in [PAGE_VALUE_BYTES, EXTENT_VALUE_BYTES] {
        let first = world(&[SimDisk::blank(DISK_BYTES)], Completion::Inline);
        let store = open(&first);
        let written = |count| {
            wait_until(&store, |stats| {
                stats.extents_written + stats.pages_written == count && stats.nursery_bytes == 0
            });
        };
        put(&store, b"filler", 9, bytes);
        written(1);
        put(&store, KEY, 1, bytes);
        written(2);
        let at = first.now();
        std::mem::forget(store);
        for then in [Then::Replaced, Then::Removed] {
            let images = (0..IMAGES).map(|seed| (seed, first.crash_at(at, CrashKind::Power, seed)));
            let gone = images
                .filter(|(seed, image)| does_not_come_back(image, then, bytes, *seed))
                .count();
            assert!(gone > 4, "{gone} of {IMAGES} images lack the key");
        }
    }
}

#[test]
fn what_a_write_in_flight_hid_does_not_come_back() {
    let first = world(&[SimDisk::blank(DISK_BYTES)], Completion::Manual);
    let store = open(&first);
    put(&store, b"filler", 9, PAGE_VALUE_BYTES);
    wait_until(&store, |stats| stats.pages_written == 1);
    put(&store, KEY, 1, PAGE_VALUE_BYTES);
    let sim = &first.sims()[0];
    wait_until(&store, |_| sim.in_flight() == 2);
    assert_eq!(sim.pump(1), 1);
    let at = first.now();
    let images: Vec<_> =
        (0..IMAGES).map(|seed| first.crash_at(at, CrashKind::Kill, seed)).collect();
    // Closing it would wait for a write that nobody completes.
    std::mem::forget((store, first));
    let gone = (0..IMAGES)
        .zip(&images)
        .filter(|(seed, image)| does_not_come_back(image, Then::Replaced, PAGE_VALUE_BYTES, *seed))
        .count();
    assert!(gone > 4, "{gone} of {IMAGES} images lack the key");
}
