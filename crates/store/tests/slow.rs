//! Reads that take long, and many that want the journal at once: nobody gets what is older than
//! what was acknowledged, and nobody waits for whom he holds up.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod troubled;

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use damelo::{ByteSize, Config, GroupId, Store, WhenMemoryFull};
use troubled::{Disk, Stopped, get, put};

fn open(disk: &Disk, change: impl FnOnce(&mut Config)) -> Store {
    let size_bytes = disk.with_bytes(<[u8]>::len) as u64;
    let mut config = Config::new("slow", ByteSize::new(size_bytes));
    config.memory = ByteSize::new(4 << 20);
    config.page = Some(ByteSize::new(16 << 10));
    config.segment = Some(ByteSize::new(256 << 10));
    config.seed = Some(1);
    change(&mut config);
    let store = Store::open_on(config, vec![disk.device()], Arc::new(Stopped)).unwrap();
    store.wait_recovered();
    store
}

fn version(value: u32) -> Vec<u8> {
    let mut bytes = vec![1; 9_000];
    bytes[..4].copy_from_slice(&value.to_le_bytes());
    bytes
}

/// Nobody reads: what is in the way is written, however slowly.
#[test]
fn what_waits_for_a_slow_write_is_not_refused_where_readers_would_be_a_reason() {
    let disk = Disk::new(24 << 20);
    let store = open(&disk, |config| config.when_memory_full = WhenMemoryFull::Refuse);
    let (goes_on, waits) = std::sync::mpsc::channel();
    disk.do_in_write(move || waits.recv().unwrap());
    let mut context = Context::from_waker(Waker::noop());
    let mut creates = (0..2_000_u32)
        .map(|n| Box::pin(store.create(&n.to_le_bytes(), GroupId::new(1), &[1; 5_000])));
    let mut create = loop {
        let mut create = creates.next().unwrap();
        match create.as_mut().poll(&mut context) {
            Poll::Ready(created) => created.unwrap(),
            Poll::Pending => break create,
        }
    };
    // It has looked whether it is to wait, or was refused.
    while store.stats().create_waits + store.stats().drops_memory_full == 0 {
        std::thread::yield_now();
    }
    goes_on.send(()).unwrap();
    let created = loop {
        match create.as_mut().poll(&mut context) {
            Poll::Ready(created) => break created,
            Poll::Pending => std::thread::yield_now(),
        }
    };
    assert_eq!(created, Ok(()));
}

/// The read takes as long as the ring takes to come round, and then another version of the same key
/// lies in the same place.
#[test]
fn what_a_slow_read_brings_is_not_what_others_get() {
    const KEY: &str = "a key that is looked for on the disk";
    let disk = Disk::new(8 << 20);
    let store = open(&disk, |config| config.background = false);
    let write = |value: u32| {
        put(&store, KEY, 1, &version(value));
        store.sync().unwrap();
    };
    write(1);
    let first = [KEY.as_bytes(), &version(1)[..4]].concat();
    let place = disk.with_bytes(|b| b.windows(first.len()).position(|w| w == first)).unwrap();
    let behind_key = place + KEY.len();
    let lies_there =
        |value: u32| disk.with_bytes(|bytes| bytes[behind_key..][..4] == value.to_le_bytes());
    store.drop_memory();
    disk.hold_reads(place as u64..place as u64 + 1);
    let theirs = store.clone();
    let reader = std::thread::spawn(move || get(&theirs, KEY));
    disk.wait_held();
    // Reuse reads the same place.
    disk.hold_reads(u64::MAX - 1..u64::MAX);
    let newest = (2..3_000).find(|value| {
        write(*value);
        lies_there(*value)
    });
    let newest = newest.expect("the ring comes round to the same place");
    store.drop_memory();
    disk.let_go();
    let _ = reader.join().unwrap();
    let found = get(&store, KEY);
    assert!(found.is_none_or(|value| value == version(newest)), "an older version than {newest}");
}

/// Purges fill the journal while creates are between their look at its room and their record:
/// neither waits for a checkpoint that waits for it. A race, which is seldom lost: the journal's
/// own tests hold it to the rule.
#[test]
fn creates_and_purges_side_by_side_leave_each_other_room() {
    let disk = Disk::new(64 << 20);
    let store = open(&disk, |config| {
        config.objects_max = Some(16_000);
        config.memory = ByteSize::new(16 << 20);
    });
    let rounds = if cfg!(debug_assertions) { 15_000 } else { 60_000 };
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..rounds {
                    let key = format!("{thread}/{}", n % 50);
                    store.create(key.as_bytes(), GroupId::new(thread), b"value").wait().unwrap();
                }
            });
        }
        for group in 0..2 {
            let store = &store;
            scope.spawn(move || {
                for _ in 0..rounds {
                    store.purge_group(GroupId::new(1_000 + group)).unwrap();
                }
            });
        }
    });
    let stats = store.stats();
    assert_eq!(stats.journal_errors, 0);
    assert!(stats.checkpoints > 0, "the journal was never full");
}

#[test]
fn a_listing_has_no_further_need_of_a_segment_that_it_has_read() {
    let disk = Disk::new(24 << 20);
    let store = open(&disk, |_| ());
    (0..20).for_each(|n| put(&store, &format!("{n}"), 1, &[1; 500]));
    store.sync().unwrap();
    disk.hold_one(0..24 << 20, 0);
    std::thread::scope(|scope| {
        let listing = scope.spawn(|| store.entries().filter(Result::is_ok).count());
        disk.wait_held();
        disk.set_unreadable(0..24 << 20);
        disk.let_go();
        assert_eq!(listing.join().unwrap(), 20);
    });
}

#[test]
fn an_object_with_newer_metadata_is_put_together_once_for_all_who_ask_at_once() {
    let hits = (0..100).find_map(|_| hits_of_four_at_once());
    assert_eq!(hits, Some((1, 3)), "on disk and in memory");
}

/// Its newer metadata wait to be written, so that what is read lies in no place of its own. `None`
/// if the flusher, which may still be about the sync before, has written them.
fn hits_of_four_at_once() -> Option<(u64, u64)> {
    const KEY: &str = "key";
    const READERS: u64 = 4;
    let disk = Disk::new(24 << 20);
    let store = open(&disk, |config| config.flush_period = Duration::ZERO);
    let value = vec![7; 100_000];
    put(&store, KEY, 1, &value);
    store.sync().unwrap();
    store.drop_memory();
    assert!(store.set_metadata(KEY.as_bytes(), b"newer").wait().unwrap());
    store.drop_memory();
    // Its head is in memory from now on, and what is held are reads of the value.
    assert!(store.lookup(KEY.as_bytes()).wait().unwrap().is_some());
    let before = store.stats();
    disk.hold_reads(0..u64::MAX);
    std::thread::scope(|scope| {
        let read = || assert!(get(&store, KEY).as_deref() == Some(&value[..]));
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(read)).collect();
        let shared = || store.stats().shared_reads - before.shared_reads;
        while disk.held() as u64 + shared() < READERS {
            std::thread::yield_now();
        }
        let (held, followed) = (disk.held(), shared());
        // Before anything fails: the readers are waited for.
        disk.let_go();
        assert!(held == 1 || store.stats().nursery_bytes == 0, "{held} held, {followed} wait");
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    let stats = store.stats();
    let hits = (stats.hits_disk - before.hits_disk, stats.hits_memory - before.hits_memory);
    (stats.nursery_bytes > 0).then_some(hits)
}
