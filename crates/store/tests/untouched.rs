//! A store that was closed cleanly and is only read then: nothing is written to it, and every
//! change still is.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod troubled;

use std::sync::Arc;
use std::time::Duration;

use damelo::{ByteSize, Config, Durability, GroupId, Store};
use troubled::{Disk, Stopped, get, put};

const OBJECTS: u32 = 3_000;

fn open(disk: &Disk, durability: Durability, background: bool) -> Store {
    let size_bytes = disk.with_bytes(<[u8]>::len) as u64;
    let mut config = Config::new("untouched", ByteSize::new(size_bytes));
    config.memory = ByteSize::new(4 << 20);
    config.page = Some(ByteSize::new(16 << 10));
    config.segment = Some(ByteSize::new(256 << 10));
    config.checkpoint_period = Duration::ZERO;
    config.durability = durability;
    config.background = background;
    config.seed = Some(1);
    let store = Store::open_on(config, vec![disk.device()], Arc::new(Stopped)).unwrap();
    store.wait_recovered();
    store
}

type Change<'a> = &'a dyn Fn(&Store);

fn key(number: u32) -> String {
    format!("key/{number}")
}

/// A store that was closed after so many removes that its journal has turned.
fn closed(durability: Durability) -> Disk {
    let disk = Disk::new(24 << 20);
    let store = open(&disk, durability, false);
    (0..OBJECTS).for_each(|number| put(&store, &key(number), 1, &[number as u8; 500]));
    (10..OBJECTS).for_each(|number| assert!(store.remove(key(number).as_bytes()).unwrap()));
    store.close().unwrap();
    disk
}

fn there(store: &Store) -> Vec<u32> {
    (0..20).filter(|number| get(store, &key(*number)).is_some()).collect()
}

#[test]
fn a_store_that_is_only_read_is_left_as_it_was() {
    let disk = closed(Durability::Flushed);
    let before = disk.with_bytes(<[u8]>::to_vec);
    for background in [false, true, true] {
        let store = open(&disk, Durability::Flushed, background);
        assert_eq!(there(&store), (0..10).collect::<Vec<_>>());
        store.sync().unwrap();
        store.close().unwrap();
        let is_same = disk.with_bytes(|after| after == before);
        assert!(is_same, "background: {background}");
    }
}

/// Killed, too, it is as after a close: nothing was to be lost.
#[test]
fn a_store_that_was_only_read_need_not_be_closed() {
    let disk = closed(Durability::Flushed);
    let store = open(&disk, Durability::Flushed, true);
    assert_eq!(there(&store).len(), 10);
    std::mem::forget(store);
    let disk = disk.copied();
    let before = disk.with_bytes(<[u8]>::to_vec);
    let store = open(&disk, Durability::Flushed, true);
    assert_eq!(there(&store).len(), 10);
    drop(store);
    assert!(disk.with_bytes(|after| after == before));
}

/// What no segment was written for, and with `None` no journal.
#[test]
fn a_change_in_memory_alone_outlives_a_close() {
    let remove = |store: &Store| assert!(store.remove(key(3).as_bytes()).unwrap());
    let purge = |store: &Store| store.purge_group(GroupId::new(1)).unwrap();
    let replace = |store: &Store| {
        put(store, &key(3), 1, &[1; 10]);
        assert!(store.remove(key(3).as_bytes()).unwrap());
    };
    let changes: [(Change<'_>, usize); 3] = [(&remove, 9), (&purge, 0), (&replace, 9)];
    for durability in [Durability::None, Durability::Flushed] {
        for (number, (change, left)) in changes.iter().enumerate() {
            let disk = closed(durability);
            let store = open(&disk, durability, true);
            change(&store);
            store.close().unwrap();
            let store = open(&disk, durability, true);
            assert_eq!(there(&store).len(), *left, "change {number}, {durability:?}");
        }
    }
}

/// Each crash is one of a store in use, whatever the close before said, as soon as it is written
/// to.
#[test]
fn what_is_created_after_a_clean_close_survives_crashes() {
    let mut disk = closed(Durability::Flushed);
    for round in 0..5_u8 {
        open(&disk, Durability::Flushed, true).close().unwrap();
        let store = open(&disk, Durability::Flushed, true);
        put(&store, "new", 1, &[round; 700]);
        store.sync().unwrap();
        std::mem::forget(store);
        disk = disk.copied();
        let store = open(&disk, Durability::Flushed, true);
        assert_eq!(get(&store, "new").unwrap(), [round; 700]);
        assert_eq!(there(&store).len(), 10);
        store.close().unwrap();
    }
}

/// What is damaged is found by a thread that does not wait: it is not written down, and the close
/// does.
#[test]
fn what_is_found_damaged_is_not_written_down_at_once() {
    let disk = closed(Durability::Flushed);
    let store = open(&disk, Durability::Flushed, true);
    let all = disk.with_bytes(<[u8]>::to_vec);
    let at = all.windows(500).position(|value| value == [3; 500]).unwrap();
    disk.turn_bit(at as u64);
    let before = disk.with_bytes(<[u8]>::to_vec);
    assert_eq!(there(&store).len(), 9);
    assert!(disk.with_bytes(|after| after == before));
    store.close().unwrap();
    assert!(disk.with_bytes(|after| after != before), "the index does not know it any more");
    assert_eq!(there(&open(&disk, Durability::Flushed, true)).len(), 9);
}

#[test]
fn a_journal_is_made_ready_for_more_once_it_is_written_to() {
    let disk = closed(Durability::Flushed).copied();
    let store = open(&disk, Durability::Flushed, true);
    assert_eq!(there(&store), (0..10).collect::<Vec<_>>());
    assert_eq!(disk.journal_prepared(), 0);
    assert!(store.remove(b"key/0").unwrap());
    while disk.journal_prepared() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
}
