//! Stores on volumes of which one fails: what is left goes on, takes what is new, and nothing that
//! was deleted is served again.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod troubled;

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use damelo::format::Superblock;
use damelo::{ByteSize, Clock, Config, CreateError, GroupId, Stats, Store, WriterOptions};
use troubled::{Disk, Stopped, get, put};

fn open(disks: &[Disk], change: impl FnOnce(&mut Config)) -> Store {
    let size_bytes = disks[0].with_bytes(<[u8]>::len) as u64;
    let mut config = Config::new("first", ByteSize::new(size_bytes));
    for path in ["second", "third"].iter().take(disks.len() - 1) {
        let mut further = config.volumes[0].clone();
        further.path = path.into();
        config.volumes.push(further);
    }
    config.memory = ByteSize::new(4 << 20);
    config.page = Some(ByteSize::new(16 << 10));
    config.segment = Some(ByteSize::new(256 << 10));
    config.volume_errors_max = 4;
    config.checkpoint_period = Duration::ZERO;
    config.seed = Some(1);
    change(&mut config);
    let devices = disks.iter().map(Disk::device).collect();
    let store = Store::open_on(config, devices, Arc::new(Stopped)).unwrap();
    store.wait_recovered();
    store
}

fn in_service(store: &Store) -> Vec<bool> {
    store.info().volumes.iter().map(|volume| volume.in_service).collect()
}

/// Where the segments of a volume lie.
fn segments(disk: &Disk) -> Range<u64> {
    disk.with_bytes(|bytes| {
        Superblock::decode_either(bytes).unwrap().segments_offset..bytes.len() as u64
    })
}

/// Puts a volume out of service, by reads of what is on it.
fn break_one(store: &Store, disks: &[Disk; 2], which: usize, keys: u32) {
    store.sync().unwrap();
    store.drop_memory();
    disks[which].fail();
    for n in 0..keys {
        let _ = store.read(format!("old/{n}").as_bytes()).wait();
    }
    assert_eq!(in_service(store), [which != 0, which != 1]);
    for (number, volume) in store.info().volumes.iter().enumerate() {
        let why = (number == which).then_some("4 I/O errors in a row, the last: out of order");
        assert_eq!(volume.out_because.as_deref(), why);
    }
}

/// Puts every volume out of service, by reads of 2,000 objects that are on them.
fn break_all(store: &Store, disks: &[Disk; 2]) {
    disks.iter().for_each(Disk::fail);
    for n in 0..2_000 {
        let _ = store.read(format!("old/{n}").as_bytes()).wait();
    }
    assert_eq!(in_service(store), [false, false]);
}

/// More replacements than the journal has room for, if no checkpoint covers them.
fn replace_many(store: &Store) {
    for n in 0..45_000_u32 {
        put(store, &format!("replaced/{}", n % 100), 2, &n.to_le_bytes());
    }
}

#[test]
fn a_store_goes_on_without_its_second_volume() {
    let disks = [Disk::new(24 << 20), Disk::new(24 << 20)];
    let store = open(&disks, |_| ());
    (0..2_000).for_each(|n| put(&store, &format!("old/{n}"), 1, &[7; 5_000]));
    break_one(&store, &disks, 1, 2_000);
    store.checkpoint().unwrap();
    replace_many(&store);
    assert_eq!(get(&store, "replaced/99").unwrap(), 44_999_u32.to_le_bytes());
    assert_eq!(store.stats().checkpoint_errors, 0);
}

#[test]
fn without_its_first_volume_it_forgets_rather_than_serve_what_was_deleted() {
    let disks = [Disk::new(24 << 20), Disk::new(24 << 20)];
    let store = open(&disks, |_| ());
    (0..2_000).for_each(|n| put(&store, &format!("old/{n}"), 1, &[7; 5_000]));
    store.checkpoint().unwrap();
    break_one(&store, &disks, 0, 2_000);
    let removed: Vec<String> = (0..2_000).step_by(7).map(|n| format!("old/{n}")).collect();
    for key in &removed {
        store.remove(key.as_bytes()).unwrap();
    }
    replace_many(&store);
    assert_eq!(get(&store, "replaced/99").unwrap(), 44_999_u32.to_le_bytes());
    // Killed, and the volume is well again: the removes are in halves of the journal that were
    // overwritten.
    std::mem::forget(store);
    let disks = disks.map(|disk| disk.copied());
    let store = open(&disks, |_| ());
    assert_eq!(removed.iter().find(|key| get(&store, key).is_some()), None);
    for n in 0..100_u32 {
        let found = get(&store, &format!("replaced/{n}"));
        let newest = (44_900 + n).to_le_bytes();
        assert!(found.is_none_or(|value| value == newest), "{n}");
    }
    put(&store, "new", 1, b"it goes on");
    store.checkpoint().unwrap();
}

#[test]
fn a_journal_that_fails_is_said_to_be_on_the_first_volume() {
    let disks = ["one", "two"].map(|name| Disk::new(24 << 20).named(name));
    let store = open(&disks, |_| ());
    put(&store, "old", 1, b"value");
    put(&store, "other", 2, b"value");
    disks[0].fail_journal();
    let says_where = |error: &dyn Error| {
        let cause = error.source().unwrap().to_string();
        assert_eq!(cause, "one: no journal works");
    };
    says_where(&store.remove(b"old").unwrap_err());
    says_where(&store.purge_group(GroupId::new(2)).unwrap_err());
    says_where(&store.sync().unwrap_err());
    assert!(store.stats().journal_errors >= 2);
}

/// A sparse file on a full file system, say. Room may come again.
#[test]
fn the_last_volume_stays_in_service_without_room_for_what_is_new() {
    let disk = [Disk::new(24 << 20)];
    let store = open(&disk, |_| ());
    (0..500).for_each(|n| put(&store, &format!("old/{n}"), 1, &[7; 5_000]));
    store.sync().unwrap();
    disk[0].set_full(true);
    for n in 0..50 {
        put(&store, &format!("lost/{n}"), 1, &[8; 5_000]);
        assert!(store.sync().is_err());
    }
    assert_eq!(in_service(&store), [true]);
    assert_eq!(store.stats().drops_write_error, 50);
    store.drop_memory();
    for n in 0..500 {
        assert_eq!(get(&store, &format!("old/{n}")).as_deref(), Some(&[7; 5_000][..]), "{n}");
    }
    disk[0].set_full(false);
    put(&store, "new", 1, b"there is room again");
    store.sync().unwrap();
    store.drop_memory();
    assert_eq!(get(&store, "new").as_deref(), Some(&b"there is room again"[..]));
}

#[test]
fn of_two_volumes_without_room_one_stays_in_service() {
    let disks = [Disk::new(24 << 20), Disk::new(24 << 20)];
    let store = open(&disks, |_| ());
    disks.iter().for_each(|disk| disk.set_full(true));
    for n in 0..50 {
        put(&store, &format!("lost/{n}"), 1, &[8; 5_000]);
        assert!(store.sync().is_err());
    }
    assert_eq!(in_service(&store).into_iter().filter(|is_in| *is_in).count(), 1);
}

/// However many of its segments are free, and tried first.
#[test]
fn a_volume_that_has_room_takes_what_one_without_cannot() {
    for errors_max in [16, 200] {
        let disks = [Disk::new(24 << 20), Disk::new(24 << 20)];
        let store = open(&disks, |config| config.volume_errors_max = errors_max);
        // All segments were used once, and few are free.
        (0..12_000).for_each(|n| put(&store, &format!("old/{n}"), 1, &[7; 5_000]));
        store.sync().unwrap();
        assert!(store.stats().segments_reused > 0);
        disks[0].set_full(true);
        for n in 0..300 {
            put(&store, &format!("new/{n}"), 1, &[8; 5_000]);
            let _ = store.sync();
        }
        store.drop_memory();
        let found = |n: &usize| get(&store, &format!("new/{n}")).is_some();
        // The first may have gone to the segment that was open on the full one.
        assert!((0..300).filter(found).count() >= 299, "{errors_max}");
        assert!(store.stats().drops_write_error <= 1, "{errors_max}");
    }
}

/// As of a sparse file on a full file system: what lies before the segments has its room since the
/// store was made. What was stored before can be read, and is, and all segments of the other volume
/// are in use.
#[test]
fn a_volume_whose_segments_cannot_be_written_goes_however_much_else_succeeds() {
    // The latter is more than there are segments to try for one write.
    for (which, errors_max) in [(0, 32), (1, 32), (0, 400), (1, 400)] {
        let disks = [Disk::new(24 << 20), Disk::new(24 << 20)];
        let store = open(&disks, |config| config.volume_errors_max = errors_max);
        (0..12_000).for_each(|n| put(&store, &format!("old/{n}"), 1, &[7; 5_000]));
        store.sync().unwrap();
        disks[which].set_unwritable(segments(&disks[which]));
        for n in 0..3_000 {
            put(&store, &format!("new/{n}"), 1, &[8; 5_000]);
            if n % 4 == 3 {
                let _ = store.sync();
            }
            let _ = get(&store, &format!("old/{}", 11_999 - n));
        }
        let case = format!("volume {which}, at {errors_max} errors");
        assert_eq!(in_service(&store), [which != 0, which != 1], "{case}");
        let volumes = store.info().volumes;
        let why = format!("{errors_max} writes in a row failed, the last: cannot be written");
        assert_eq!(volumes[which].out_because.as_deref(), Some(&*why), "{case}");
        store.drop_memory();
        let lost = (2_900..3_000).filter(|n| get(&store, &format!("new/{n}")).is_none()).count();
        assert_eq!(lost, 0, "{case}");
    }
}

/// A bad area may have more segments in a row than errors take a volume out: each is tried, with
/// its place in the table of lives, which can be written.
#[test]
fn the_only_volume_stays_where_a_part_of_its_segments_cannot_be_written() {
    let disk = [Disk::new(24 << 20)];
    let store = open(&disk, |config| config.volume_errors_max = 16);
    (0..1_000).for_each(|n| put(&store, &format!("old/{n}"), 1, &[7; 5_000]));
    store.sync().unwrap();
    let bad = (12 << 20)..segments(&disk[0]).end;
    disk[0].set_unwritable(bad);
    for n in 0..2_000 {
        let _ = store.create(format!("new/{n}").as_bytes(), GroupId::new(1), &[8; 5_000]).wait();
        let _ = store.sync();
    }
    assert!(store.stats().drops_write_error > 16);
    assert_eq!(in_service(&store), [true]);
    store.drop_memory();
    assert!((0..1_000).all(|n| get(&store, &format!("old/{n}")).is_some()), "they can be read");
}

/// Each I/O there might take as long as the device takes to give up.
#[test]
fn a_volume_out_of_service_is_left_alone() {
    for which in [0, 1] {
        let disks = [Disk::new(24 << 20), Disk::new(24 << 20)];
        let store = open(&disks, |_| ());
        let keys = || (0..2_000).map(|n| format!("old/{n}"));
        keys().for_each(|key| put(&store, &key, 1, &[7; 5_000]));
        // Not of all, so that some are still looked for there.
        break_one(&store, &disks, which, 200);
        let before = disks[which].transfers();
        let large = vec![7; 1 << 20];
        for round in 0..20 {
            keys().for_each(|key| _ = get(&store, &key));
            let _ = store.read_range(b"old/1", 0..10).wait();
            (0..200).for_each(|n| put(&store, &format!("new/{round}/{n}"), 2, &[8; 5_000]));
            put(&store, "large", 3, &large);
            assert!(store.set_metadata(b"large", b"new").wait().unwrap());
            store.sync().unwrap();
            store.drop_memory();
        }
        let _ = store.checkpoint();
        assert!(store.stats().segments_reused > 10, "without volume {which}");
        assert_eq!(disks[which].transfers(), before, "without volume {which}");
    }
}

/// Nothing of its bytes can be read, however much of it is still in memory.
#[test]
fn a_long_object_on_a_volume_out_of_service_is_not_there() {
    let disks = [Disk::new(64 << 20), Disk::new(64 << 20)];
    let store = open(&disks, |config| {
        config.memory = ByteSize::new(32 << 20);
        config.segment = Some(ByteSize::new(4 << 20));
    });
    (0..2_000).for_each(|n| put(&store, &format!("old/{n}"), 1, &[7; 5_000]));
    let long = || (0..40).map(|n| format!("long/{n}").into_bytes());
    for key in long() {
        store.create(&key, GroupId::new(2), &[9; 700_000]).wait().unwrap();
    }
    store.sync().unwrap();
    store.drop_memory();
    let has_range = |key: &Vec<u8>| store.read_range(key, 9..19).wait().unwrap().is_some();
    assert!(long().all(|key| has_range(&key)), "and of each the head is in memory now");
    disks[1].fail();
    (0..2_000).for_each(|n| _ = get(&store, &format!("old/{n}")));
    assert_eq!(in_service(&store), [true, false]);
    let before = store.stats().misses_io;
    let there: Vec<_> = long().filter(|key| store.lookup(key).wait().unwrap().is_some()).collect();
    assert!(!there.is_empty() && there.len() < 40, "{} are on the sound volume", there.len());
    assert_eq!(store.stats().misses_io - before, 40 - there.len() as u64);
    assert!(there.iter().all(has_range));
    assert!(long().all(|key| store.may_contain(&key) == there.contains(&key)));
}

/// Nothing is wrong with it: all but what the errors were of is there once the volume is well.
#[test]
fn what_is_asked_for_of_a_volume_out_of_service_is_not_forgotten() {
    for which in [0, 1] {
        let disks = [Disk::new(24 << 20), Disk::new(24 << 20)];
        let store = open(&disks, |config| config.memory = ByteSize::new(16 << 20));
        let keys = || (0..2_000).map(|n| format!("old/{n}"));
        keys().for_each(|key| put(&store, &key, 1, &[7; 5_000]));
        let long = vec![9; 700_000];
        (0..4).for_each(|n| put(&store, &format!("long/{n}"), 2, &long));
        break_one(&store, &disks, which, 2_000);
        let before = store.stats();
        let mut missing = 0;
        for _ in 0..3 {
            let missed = keys().filter(|key| get(&store, key).is_none()).count();
            assert!(missed > 500 && missed < 1_500, "{missed} of volume {which}");
            let longs = (0..4).map(|n| format!("long/{n}"));
            let parts = longs.map(|key| store.read_range(key.as_bytes(), 0..9).wait().unwrap());
            missing += missed + parts.filter(Option::is_none).count();
        }
        let now = store.stats();
        // But for what the errors were of, which is not looked for.
        let forgotten = now.misses_not_found - before.misses_not_found;
        assert!(forgotten <= 3 * 4, "{forgotten} of volume {which}");
        let failed = now.misses_io - before.misses_io;
        assert_eq!(failed + forgotten, missing as u64, "volume {which}");
        assert_eq!(now.index_objects, before.index_objects, "volume {which}");
        assert_eq!(now.journal_records, before.journal_records, "volume {which}");
        assert!(keys().all(|key| store.may_contain(key.as_bytes()) == get(&store, &key).is_some()));
        // Killed, and the volume is well again.
        std::mem::forget(store);
        let store = open(&disks.map(|disk| disk.copied()), |_| ());
        let gone = keys().filter(|key| get(&store, key).is_none()).count();
        assert!(gone <= 4, "{gone} of volume {which}");
        let has_long = |n| store.lookup(format!("long/{n}").as_bytes()).wait().unwrap().is_some();
        assert!((0..4).all(has_long), "volume {which}");
    }
}

/// What replaces it is journalled, so that it does not come back with its volume.
#[test]
fn what_is_replaced_while_its_volume_is_out_of_service_stays_so() {
    let disks = [Disk::new(24 << 20), Disk::new(24 << 20)];
    let store = open(&disks, |_| ());
    let keys = || (0..2_000).map(|n| format!("old/{n}"));
    keys().for_each(|key| put(&store, &key, 1, &[7; 5_000]));
    break_one(&store, &disks, 1, 2_000);
    keys().for_each(|key| _ = get(&store, &key));
    keys().step_by(2).for_each(|key| put(&store, &key, 1, b"new"));
    keys().skip(1).step_by(4).for_each(|key| _ = store.remove(key.as_bytes()).unwrap());
    // Killed, and the volume is well again.
    std::mem::forget(store);
    let store = open(&disks.map(|disk| disk.copied()), |_| ());
    for (n, key) in keys().enumerate() {
        match (n % 4, get(&store, &key)) {
            (0 | 2, found) => assert!(found.is_none_or(|value| value == b"new"), "{key}"),
            (1, found) => assert_eq!(found, None, "{key}"),
            (_, found) => assert!(found.is_none_or(|value| value == [7; 5_000]), "{key}"),
        }
    }
}

/// A segment that was open on the volume is not filled further.
#[test]
fn what_is_new_is_not_written_where_each_write_fails() {
    for keys in [1_700, 2_500, 3_300] {
        let disks = [Disk::new(64 << 20), Disk::new(64 << 20)];
        let store = open(&disks, |config| {
            config.memory = ByteSize::new(32 << 20);
            config.segment = Some(ByteSize::new(4 << 20));
            config.background = false;
        });
        (0..keys).for_each(|n| put(&store, &format!("old/{n}"), 1, &[7; 4_000]));
        break_one(&store, &disks, 1, keys);
        for n in 0..2_000 {
            put(&store, &format!("new/{n}"), 2, &[8; 4_000]);
            if n % 100 == 99 {
                store.sync().unwrap();
            }
        }
        let lost = (0..2_000).filter(|n| get(&store, &format!("new/{n}")).is_none()).count();
        assert_eq!(lost, 0, "after {keys} keys");
    }
}

/// Segments that were free on the volume that failed are free for ever.
#[test]
fn a_full_ring_goes_on_though_the_volume_that_failed_had_room() {
    for which in [0, 1] {
        let disks = [Disk::new(24 << 20), Disk::new(24 << 20)];
        let store = open(&disks, |_| ());
        (0..200).for_each(|n| put(&store, &format!("old/{n}"), 1, &[7; 5_000]));
        break_one(&store, &disks, which, 200);
        // More than twice what fits on the other.
        (0..10_000).for_each(|n| put(&store, &format!("new/{n}"), 2, &[8; 5_000]));
        store.sync().unwrap();
        store.drop_memory();
        let lost = (8_000..10_000).filter(|n| get(&store, &format!("new/{n}")).is_none()).count();
        assert_eq!((lost, store.stats().drops_write_error), (0, 0), "without volume {which}");
    }
}

/// Wherever the writes have got to when one fails: the next to be written to may be the other.
#[test]
fn the_volume_that_fails_is_the_one_that_goes() {
    for (which, keys) in [0, 1].iter().flat_map(|which| (1..8).map(|n| (*which, 25 * n))) {
        let disks = [Disk::new(24 << 20), Disk::new(24 << 20)];
        let store = open(&disks, |config| {
            config.volume_errors_max = 1;
            config.background = false;
        });
        (0..keys).for_each(|n| put(&store, &format!("old/{n}"), 1, &[7; 5_000]));
        store.sync().unwrap();
        disks[which].fail_next_write();
        let mut n = 0;
        while store.stats().volumes_out == 0 {
            put(&store, &format!("new/{n}"), 2, &[8; 5_000]);
            let _ = store.sync();
            n += 1;
            assert!(n < 1_000, "no write fails");
        }
        assert_eq!(in_service(&store), [which != 0, which != 1], "after {keys} keys");
    }
}

#[test]
fn errors_with_successes_between_them_do_not_add_up() {
    let disks = [Disk::new(24 << 20)];
    let store = open(&disks, |config| {
        config.volume_errors_max = 2;
        config.background = false;
    });
    for n in 0..20 {
        put(&store, &format!("before/{n}"), 1, &[7; 5_000]);
        store.sync().unwrap();
        disks[0].fail_next_write();
        put(&store, &format!("failed/{n}"), 1, &[7; 5_000]);
        // Where it was the beginning of a segment that failed, another is begun.
        let _ = store.sync();
    }
    let dropped = store.stats().drops_write_error;
    assert!(in_service(&store) == [true] && dropped > 10, "{dropped} dropped");
}

/// A device behind the page cache that loses what it is given may fail nothing but syncs.
#[test]
fn a_volume_that_cannot_be_synced_goes_and_checkpoints_go_on() {
    for which in [0, 1] {
        let disks = [Disk::new(24 << 20), Disk::new(24 << 20)];
        let store = open(&disks, |_| ());
        disks[which].fail_syncs(true);
        for n in 1..=4 {
            assert_eq!(in_service(&store), [true; 2]);
            (0..200).for_each(|key| put(&store, &format!("{n}/{key}"), 1, &[7; 5_000]));
            store.sync().unwrap_err();
            if n == 4 {
                break;
            }
            // Writes and reads between them succeed, on both.
            store.drop_memory();
            assert!((0..200).all(|key| get(&store, &format!("{n}/{key}")).is_some()));
        }
        assert_eq!(in_service(&store), [which != 0, which != 1]);
        let why = store.info().volumes[which].out_because.clone();
        assert_eq!(why.as_deref(), Some("4 syncs in a row failed, the last: no sync works"));
        (0..200).for_each(|key| put(&store, &format!("new/{key}"), 1, &[8; 5_000]));
        store.sync().unwrap();
        // The first has the checkpoints.
        assert_eq!(store.checkpoint().is_ok(), which != 0);
        store.drop_memory();
        assert!((0..200).all(|key| get(&store, &format!("new/{key}")).is_some()));
    }
}

/// What it has can be read, which is more than nothing.
#[test]
fn the_last_volume_stays_though_it_cannot_be_synced() {
    let disks = [Disk::new(24 << 20), Disk::new(24 << 20)];
    let store = open(&disks, |_| ());
    disks.iter().for_each(|disk| disk.fail_syncs(true));
    for _ in 0..20 {
        put(&store, "key", 1, &[7; 5_000]);
        store.sync().unwrap_err();
    }
    assert_eq!(in_service(&store).iter().filter(|in_service| **in_service).count(), 1);
    put(&store, "key", 1, &[8; 5_000]);
    store.sync().unwrap_err();
    store.drop_memory();
    assert_eq!(get(&store, "key").unwrap(), [8; 5_000]);
    disks.iter().for_each(|disk| disk.fail_syncs(false));
    store.sync().unwrap();
}

#[test]
fn syncs_that_fail_with_others_between_them_do_not_add_up() {
    let disks = [Disk::new(24 << 20), Disk::new(24 << 20)];
    let store = open(&disks, |_| ());
    for _ in 0..5 {
        disks[1].fail_syncs(true);
        (0..3).for_each(|_| drop(store.sync().unwrap_err()));
        disks[1].fail_syncs(false);
        store.sync().unwrap();
    }
    assert_eq!(in_service(&store), [true; 2]);
}

#[test]
fn a_checkpoint_that_fails_says_on_which_volume() {
    for which in [0, 1] {
        let disks = ["one disk", "another"].map(|name| Disk::new(24 << 20).named(name));
        let store = open(&disks, |config| config.volume_errors_max = u32::MAX);
        put(&store, "key", 1, b"value");
        disks[which].fail();
        let errors = [store.checkpoint().unwrap_err(), store.sync().unwrap_err()];
        for error in errors {
            let why = error.source().unwrap().to_string();
            assert_eq!(why, format!("{}: out of order", ["one disk", "another"][which]));
        }
    }
}

/// A clock by which a period is over at each look.
#[derive(Default)]
struct Hurrying(AtomicU64);

impl Clock for Hurrying {
    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.fetch_add(60, Ordering::Relaxed))
    }

    fn unix_seconds(&self) -> u64 {
        1_700_000_000
    }
}

/// What was written before must not wait for the next write.
#[test]
fn a_checkpoint_that_failed_is_written_once_it_can_be() {
    let disk = Disk::new(16 << 20);
    let mut config = Config::new("one", ByteSize::new(16 << 20));
    config.memory = ByteSize::new(4 << 20);
    config.checkpoint_period = Duration::from_secs(30);
    let clock = Arc::new(Hurrying::default());
    let store = Store::open_on(config, vec![disk.device()], clock).unwrap();
    store.wait_recovered();
    let eventually = |is_so: &dyn Fn(Stats) -> bool| {
        let begun = Instant::now();
        while !is_so(store.stats()) {
            assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", store.stats());
            std::thread::yield_now();
        }
    };
    disk.fail_syncs(true);
    put(&store, "key", 1, b"value");
    eventually(&|stats| stats.written_object_bytes > 0);
    let failed = store.stats().checkpoint_errors;
    eventually(&|stats| stats.checkpoint_errors > failed);
    disk.fail_syncs(false);
    let before = store.stats().checkpoints;
    eventually(&|stats| stats.checkpoints > before);
    let idle = store.stats();
    assert_eq!(idle.creates, 1, "nothing else was written");
}

/// All memory hits, and nothing to write but the journal, which is mapped memory: only checkpoints
/// touch the device.
#[test]
fn purges_go_on_where_no_checkpoint_can_be_written() {
    for (which, count) in [(0, 1), (0, 2), (1, 2)] {
        let disks: Vec<Disk> = (0..count).map(|_| Disk::new(24 << 20)).collect();
        let store = open(&disks, |_| ());
        (0..200).for_each(|n| put(&store, &format!("old/{n}"), 1, &[7; 5_000]));
        store.checkpoint().unwrap();
        disks[which].fail();
        for group in 2..45_000 {
            store.purge_group(GroupId::new(group)).unwrap();
        }
        store.purge_group(GroupId::new(1)).unwrap();
        assert_eq!(store.stats().journal_errors, 0);
        // Killed, and the device is well again.
        std::mem::forget(store);
        let disks: Vec<Disk> = disks.iter().map(Disk::copied).collect();
        let store = open(&disks, |_| ());
        assert_eq!((0..200).find(|n| get(&store, &format!("old/{n}")).is_some()), None);
        put(&store, "new", 1, b"it goes on");
        store.checkpoint().unwrap();
    }
}

/// Nobody tries again for the caller.
#[test]
fn purges_go_on_where_no_checkpoint_can_be_written_and_the_store_has_no_threads() {
    let disk = Disk::new(24 << 20);
    let store = open(std::slice::from_ref(&disk), |config| {
        config.background = false;
        config.volume_errors_max = 3;
    });
    put(&store, "old", 1, b"value");
    store.checkpoint().unwrap();
    disk.fail_syncs(true);
    (0..1_000).for_each(|_| store.purge_prefix(&[b'x'; 8_000]).unwrap());
    assert!(store.remove(b"old").unwrap());
    assert_eq!((store.stats().journal_errors, store.stats().checkpoint_errors >= 3), (0, true));
    std::mem::forget(store);
    let store = open(&[disk.copied()], |_| ());
    assert_eq!(get(&store, "old"), None);
}

/// However many turns the journal took without one.
#[test]
fn once_a_checkpoint_is_complete_again_nothing_is_forgotten_for_those_that_failed() {
    for closes in [true, false] {
        let disk = Disk::new(48 << 20);
        let store = open(std::slice::from_ref(&disk), |_| ());
        (0..20).for_each(|n| put(&store, &format!("old/{n}"), 1, &[7; 5_000]));
        store.checkpoint().unwrap();
        disk.fail_syncs(true);
        (0..3).for_each(|_| replace_many(&store));
        store.remove(b"old/0").unwrap();
        disk.fail_syncs(false);
        // One of these tells of those that failed, unless what runs behind has told before.
        let _ = store.sync();
        store.checkpoint().unwrap();
        let _ = store.sync();
        match closes {
            true => store.close().unwrap(),
            false => {
                // Killed.
                std::mem::forget(store);
            }
        }
        let store = open(&[disk.copied()], |_| ());
        assert_eq!(get(&store, "old/0"), None);
        assert_eq!((1..20).find(|n| get(&store, &format!("old/{n}")).is_none()), None);
    }
}

/// The journal of a life that goes on behind some checkpoints, none of which has what it
/// overwrites.
#[test]
fn what_is_removed_after_an_open_stays_so_where_no_checkpoint_can_be_written() {
    let disk = Disk::new(48 << 20);
    let store = open(std::slice::from_ref(&disk), |_| ());
    (0..20).for_each(|n| put(&store, &format!("old/{n}"), 1, &[7; 5_000]));
    (0..5).for_each(|_| store.checkpoint().unwrap());
    store.close().unwrap();
    let store = open(std::slice::from_ref(&disk), |_| ());
    // The first change after a clean close needs a sync.
    put(&store, "new", 1, b"x");
    store.sync().unwrap();
    disk.fail_syncs(true);
    (0..20).for_each(|n| assert!(store.remove(format!("old/{n}").as_bytes()).unwrap()));
    replace_many(&store);
    assert_eq!(store.stats().journal_errors, 0);
    // Killed, and the device is well again.
    std::mem::forget(store);
    let store = open(&[disk.copied()], |_| ());
    assert_eq!((0..20).find(|n| get(&store, &format!("old/{n}")).is_some()), None);
}

/// As no checkpoint makes room in the journal, each waits ten seconds for one; two side by side.
#[test]
fn what_the_journal_has_no_room_for_is_gone_all_the_same() {
    let disks = [Disk::new(24 << 20), Disk::new(24 << 20)];
    let store = open(&disks, |config| {
        config.volume_errors_max = u32::MAX;
        config.memory_wait = Duration::ZERO;
    });
    put(&store, "removed", 1, b"old");
    put(&store, "purged", 2, b"old");
    disks[1].fail();
    let prefix = vec![b'x'; 8_000];
    let mut replacements = (0..100).map(|_| {
        store.purge_prefix(&prefix).unwrap();
        store.create(b"replaced", GroupId::new(1), b"new").wait()
    });
    assert!(replacements.any(|replaced| replaced.is_err()), "the journal is full");
    std::thread::scope(|scope| {
        scope.spawn(|| store.remove(b"removed").unwrap_err());
        scope.spawn(|| store.purge_group(GroupId::new(2)).unwrap_err());
    });
    for key in ["replaced", "removed", "purged"] {
        assert_eq!(get(&store, key), None, "{key}");
    }
    assert_eq!(store.stats().journal_errors, 3);
}

/// A caller that ignores the error of its cache must not be served what it meant to replace.
#[test]
fn without_any_volume_what_is_replaced_is_not_served_from_memory_any_more() {
    let disks = [Disk::new(24 << 20), Disk::new(24 << 20)];
    let store = open(&disks, |_| ());
    (0..2_000).for_each(|n| put(&store, &format!("old/{n}"), 1, &[7; 5_000]));
    store.sync().unwrap();
    let in_memory = |key: &str| get(&store, key).is_some();
    let mut resident = vec!["new/0", "new/1", "new/2"];
    resident.iter().for_each(|key| put(&store, key, 2, b"first"));
    break_all(&store, &disks);
    let warnings = store.info().warnings;
    let is_why = |text: &&String| text.contains("4 I/O errors in a row, the last: ");
    assert_eq!(warnings.iter().filter(is_why).count(), 2, "{warnings:?}");
    resident.retain(|key| in_memory(key));
    assert!(resident.len() > 1, "what is in memory is served without volumes");
    let refused = store.create(resident[0].as_bytes(), GroupId::new(2), b"second").wait();
    assert!(matches!(refused, Err(CreateError::VolumesGone { .. })), "{refused:?}");
    assert!(!in_memory(resident[0]), "it is out of date");
    let refused = store.writer(resident[1].as_bytes(), GroupId::new(2), Default::default()).err();
    assert!(matches!(refused, Some(CreateError::VolumesGone { .. })), "{refused:?}");
    assert!(!in_memory(resident[1]), "it is out of date");
}

/// It is not their length that is wrong with large objects, nor would a larger store help.
#[test]
fn without_any_volume_no_object_is_too_large() {
    let disks = [Disk::new(24 << 20), Disk::new(24 << 20)];
    let store = open(&disks, |_| ());
    (0..2_000).for_each(|n| put(&store, &format!("old/{n}"), 1, &[7; 5_000]));
    store.sync().unwrap();
    store.drop_memory();
    let begin = |key: &str| store.writer(key.as_bytes(), GroupId::new(2), Default::default());
    let (mut writing, written) = (begin("writing").unwrap(), begin("written").unwrap());
    writing.write(&[1; 1_000]).wait().unwrap();
    break_all(&store, &disks);
    let declared = WriterOptions { length: Some(1 << 40), ..Default::default() };
    let refused = [
        store.create(b"whole", GroupId::new(2), &[1; 10 << 20]).wait().unwrap_err(),
        store.writer(b"declared", GroupId::new(2), declared).map(drop).unwrap_err(),
        begin("begun").map(drop).unwrap_err(),
        writing.write(&[1; 10 << 20]).wait().unwrap_err(),
        written.commit().wait().unwrap_err(),
    ];
    for error in &refused {
        assert!(matches!(error, CreateError::VolumesGone { .. }), "{error}");
    }
    let stats = store.stats();
    assert_eq!((stats.drops_too_large, stats.drops_write_error), (0, refused.len() as u64));
}
