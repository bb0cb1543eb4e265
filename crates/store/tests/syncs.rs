//! What a sync says when something that was created could not be written: nobody who waited for it
//! is told that it is there.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod troubled;

use std::sync::Arc;

use damelo::{ByteSize, Config, Store, SyncError};
use troubled::{Disk, Stopped, get, put};

fn open(disk: &Disk) -> Store {
    let mut config = Config::new("syncs", ByteSize::new(8 << 20));
    config.memory = ByteSize::new(4 << 20);
    config.background = false;
    config.seed = Some(1);
    let store = Store::open_on(config, vec![disk.device()], Arc::new(Stopped)).unwrap();
    store.wait_recovered();
    // Where it was the beginning of a segment that failed, another would be begun.
    put(&store, "before", 1, &[6; 5_000]);
    store.sync().unwrap();
    store
}

/// How many objects it says are lost, and why.
fn dropped(outcome: Result<(), SyncError>) -> (u64, String) {
    match outcome {
        Err(SyncError::Dropped { objects, reason }) => (objects, reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sync_that_fails_otherwise_leaves_it_to_the_next_to_say_what_was_dropped() {
    let disk = Disk::new(8 << 20);
    let store = open(&disk);
    put(&store, "lost", 1, &[7; 5_000]);
    disk.fail_next_write();
    disk.fail_syncs(true);
    assert!(matches!(store.sync(), Err(SyncError::Io(_))));
    disk.fail_syncs(false);
    let (objects, reason) = dropped(store.sync());
    assert_eq!(objects, 1);
    assert!(reason.contains("one write fails"), "{reason}");
    store.sync().unwrap();
    put(&store, "kept", 1, &[8; 5_000]);
    store.sync().unwrap();
    assert_eq!((get(&store, "lost"), get(&store, "kept")), (None, Some(vec![8; 5_000])));
}

#[test]
fn all_that_sync_at_once_are_told_what_was_dropped() {
    let disk = Disk::new(8 << 20);
    let store = open(&disk);
    put(&store, "lost", 1, &[7; 5_000]);
    disk.fail_next_write();
    disk.let_syncs_meet(3);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| dropped(store.sync()))).collect();
        for thread in threads {
            let (objects, reason) = thread.join().unwrap();
            assert_eq!(objects, 1);
            assert!(reason.contains("one write fails"), "{reason}");
        }
    });
    store.sync().unwrap();
}

/// One sync takes longer than two others, of which the second has nothing to tell.
#[test]
fn a_sync_that_ends_last_still_says_why() {
    let disk = Disk::new(8 << 20);
    let store = open(&disk);
    put(&store, "lost", 1, &[7; 5_000]);
    disk.fail_next_write();
    let others = disk.hold_next_sync();
    std::thread::scope(|scope| {
        let last = scope.spawn(|| dropped(store.sync()));
        while disk.expects_syncs() {
            std::thread::yield_now();
        }
        assert_eq!(dropped(store.sync()).0, 1);
        store.sync().unwrap();
        others.wait();
        let (objects, reason) = last.join().unwrap();
        assert_eq!(objects, 1);
        assert!(reason.contains("one write fails"), "{reason}");
    });
}

/// A checkpoint, or the keeper, heard that what was written is lost. A device says so once.
#[test]
fn of_a_sync_that_failed_for_others_the_next_one_tells_once() {
    let disk = Disk::new(8 << 20);
    let store = open(&disk);
    put(&store, "key", 1, &[7; 5_000]);
    disk.fail_syncs(true);
    store.checkpoint().unwrap_err();
    disk.fail_syncs(false);
    disk.let_syncs_meet(3);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| store.sync())).collect();
        for thread in threads {
            let told = thread.join().unwrap();
            let is_why = |error: &std::io::Error| error.to_string() == "troubled: no sync works";
            assert!(matches!(&told, Err(SyncError::Io(error)) if is_why(error)), "{told:?}");
        }
    });
    store.sync().unwrap();
    let devices = store.stats().devices;
    assert_eq!(devices[0].sync_errors, 1);
    disk.fail_syncs(true);
    store.sync().unwrap_err();
    disk.fail_syncs(false);
    store.sync().unwrap();
    store.close().unwrap();
}

#[test]
fn a_close_tells_of_a_sync_that_failed_before() {
    let disk = Disk::new(8 << 20);
    let store = open(&disk);
    put(&store, "key", 1, &[7; 5_000]);
    disk.fail_syncs(true);
    store.checkpoint().unwrap_err();
    disk.fail_syncs(false);
    assert!(matches!(store.close(), Err(SyncError::Io(_))));
}
