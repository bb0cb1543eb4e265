//! Stores that are opened without a volume that is missing: what the others hold is served, new
//! objects are stored, and when the volume comes back nothing of it is served that was removed or
//! replaced meanwhile.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod troubled;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use damelo::device::{self, DeviceOpenError};
use damelo::{ByteSize, Config, GroupId, OpenError, Store, VolumeConfig};
use troubled::{Disk, Stopped, get, put};

const VOLUME_BYTES: usize = 12 << 20;
const KEYS: u32 = 900;

fn config(paths: &[PathBuf]) -> Config {
    let mut config = Config::new(&paths[0], ByteSize::new(VOLUME_BYTES as u64));
    let size = config.volumes[0].size;
    config.volumes = paths.iter().map(|path| VolumeConfig { path: path.clone(), size }).collect();
    config.memory = ByteSize::new(4 << 20);
    config.page = Some(ByteSize::new(16 << 10));
    config.segment = Some(ByteSize::new(256 << 10));
    config.checkpoint_period = Duration::ZERO;
    config.seed = Some(1);
    config.without_missing = true;
    config
}

fn with(paths: &[PathBuf], change: impl FnOnce(&mut Config)) -> Config {
    let mut config = config(paths);
    change(&mut config);
    config
}

fn open(config: Config) -> Store {
    let store = Store::open(config).unwrap();
    store.wait_recovered();
    store
}

fn open_on(disks: &[Disk]) -> Store {
    let names: Vec<PathBuf> = (0..disks.len()).map(|n| format!("disk-{n}").into()).collect();
    let devices = disks.iter().map(Disk::device).collect();
    let store = Store::open_on(config(&names), devices, Arc::new(Stopped)).unwrap();
    store.wait_recovered();
    store
}

fn key(number: u32) -> String {
    format!("old/{number}")
}

/// So many objects that each volume has some.
fn fill(store: &Store) {
    (0..KEYS).for_each(|n| put(store, &key(n), 1, &[n as u8; 20_000]));
    store.sync().unwrap();
}

fn in_service(store: &Store) -> Vec<bool> {
    store.info().volumes.iter().map(|volume| volume.in_service).collect()
}

/// The keys that are there, each with what it was filled with.
fn found(store: &Store) -> Vec<u32> {
    store.drop_memory();
    let is_there = |n: &u32| match get(store, &key(*n)) {
        Some(value) => {
            assert_eq!(value, [*n as u8; 20_000], "{n}");
            true
        }
        None => false,
    };
    (0..KEYS).filter(is_there).collect()
}

fn three_files(directory: &Path) -> Vec<PathBuf> {
    ["one", "two", "three"].map(|name| directory.join(name)).to_vec()
}

#[test]
fn a_store_is_opened_without_a_file_that_is_gone_and_with_it_when_it_is_back() {
    for gone in [vec![1], vec![2], vec![1, 2]] {
        let directory = tempfile::tempdir().unwrap();
        let paths = three_files(directory.path());
        let store = open(config(&paths));
        fill(&store);
        store.close().unwrap();
        for at in &gone {
            std::fs::rename(&paths[*at], paths[*at].with_extension("away")).unwrap();
        }
        let strict = with(&paths, |config| config.without_missing = false);
        let refused = Store::open(strict).unwrap_err();
        assert!(matches!(refused, OpenError::VolumeMissing { .. }), "{refused}");

        for must_exist in [false, true] {
            let store = open(with(&paths, |config| config.must_exist = must_exist));
            let is_in = |at| !gone.contains(&at);
            assert_eq!(in_service(&store), [true, is_in(1), is_in(2)]);
            let warnings = store.info().warnings;
            for at in &gone {
                let path = paths[*at].display().to_string();
                assert!(warnings.iter().any(|w| w.starts_with(&path)), "{warnings:?}");
                assert!(!paths[*at].exists(), "none is made in its place");
            }
            let there = found(&store).len();
            assert!(there > 100 && there < KEYS as usize, "{there}");
            store.close().unwrap();
        }

        let store = open(config(&paths));
        let left = found(&store);
        // Of those on the missing volume some are removed and some are replaced, and of the others.
        let changed = || (0..KEYS).filter(|n| n % 3 < 2);
        for n in changed() {
            match n % 3 {
                0 => store.remove(key(n).as_bytes()).map(drop).unwrap(),
                _ => put(&store, &key(n), 1, b"new"),
            }
        }
        store.sync().unwrap();
        store.checkpoint().unwrap();
        store.close().unwrap();
        for at in &gone {
            std::fs::rename(paths[*at].with_extension("away"), &paths[*at]).unwrap();
        }
        let store = open(config(&paths));
        assert_eq!(in_service(&store), [true; 3]);
        for n in 0..KEYS {
            let value = get(&store, &key(n));
            match n % 3 {
                0 => assert_eq!(value, None, "{n}"),
                1 => assert_eq!(value.as_deref(), Some(&b"new"[..]), "{n}"),
                _ => assert!(value.is_none() || left.contains(&n), "{n} was not there"),
            }
        }
        // All room is used again.
        let before = store.stats().damaged_records;
        (0..4 * KEYS).for_each(|n| put(&store, &format!("more/{n}"), 2, &[3; 20_000]));
        store.sync().unwrap();
        assert_eq!(in_service(&store), [true; 3]);
        let many = (0..4 * KEYS).filter(|n| get(&store, &format!("more/{n}")).is_some()).count();
        assert!(many * 20_000 > 2 * VOLUME_BYTES, "{many}");
        assert_eq!(store.stats().damaged_records, before);
        store.close().unwrap();
    }
}

#[test]
fn what_is_removed_while_a_volume_is_away_is_not_there_after_crashes_either() {
    for with_checkpoint in [false, true] {
        let disks = [(); 3].map(|()| Disk::new(VOLUME_BYTES));
        let store = open_on(&disks);
        fill(&store);
        store.checkpoint().unwrap();
        std::mem::forget(store);
        // Its superblock cannot be read.
        let disks = disks.map(|disk| disk.copied());
        disks[1].fail();
        let store = open_on(&disks);
        assert_eq!(in_service(&store), [true, false, true]);
        let left = found(&store);
        assert!(left.len() < KEYS as usize);
        if with_checkpoint {
            store.checkpoint().unwrap();
        }
        (0..KEYS).filter(|n| n % 2 == 0).for_each(|n| {
            store.remove(key(n).as_bytes()).unwrap();
        });
        std::mem::forget(store);
        let disks = disks.map(|disk| disk.copied());
        let store = open_on(&disks);
        assert_eq!(in_service(&store), [true; 3]);
        let now = found(&store);
        assert_eq!(now.iter().find(|n| *n % 2 == 0), None, "removed: {with_checkpoint}");
        let kept = left.iter().filter(|n| *n % 2 == 1);
        assert!(kept.clone().all(|n| now.contains(n)));
        if with_checkpoint {
            assert_eq!(now.len(), kept.count(), "it comes back emptied");
        }
    }
}

/// As `damelo ls` does while a disk is not mounted.
#[test]
fn who_only_looks_without_a_volume_leaves_what_it_holds() {
    for crashes in [false, true] {
        let disks = [(); 3].map(|()| Disk::new(VOLUME_BYTES));
        let store = open_on(&disks);
        fill(&store);
        // In parts, of which one volume alone has not all.
        store.create(b"long", GroupId::new(2), &[7; 3 << 20]).wait().unwrap();
        let has_long = |store: &Store| store.reader(b"long").wait().unwrap().is_some();
        store.checkpoint().unwrap();
        // What only segments and journal tell of.
        put(&store, "late", 1, b"value");
        store.remove(key(0).as_bytes()).unwrap();
        store.sync().unwrap();
        if crashes {
            std::mem::forget(store)
        } else {
            store.close().unwrap()
        }
        let disks = disks.map(|disk| disk.copied());
        disks[1].fail();
        for _ in 0..2 {
            let store = open_on(&disks);
            assert_eq!(in_service(&store), [true, false, true]);
            assert!(found(&store).len() < KEYS as usize - 1 && !has_long(&store));
            // The keeper has looked several times whether a checkpoint is due.
            std::thread::sleep(Duration::from_millis(100));
            let stats = store.stats();
            assert_eq!((stats.checkpoints, stats.checkpoint_errors), (0, 0), "{crashes}");
            store.close().unwrap();
        }
        let disks = disks.map(|disk| disk.copied());
        let store = open_on(&disks);
        assert_eq!(in_service(&store), [true; 3]);
        assert_eq!(found(&store), (1..KEYS).collect::<Vec<_>>(), "{crashes}");
        assert!(has_long(&store) && get(&store, "late").is_some());
        store.close().unwrap();
        // The first change gives it up.
        disks[1].fail();
        let store = open_on(&disks);
        put(&store, "new", 1, b"value");
        store.close().unwrap();
        let disks = disks.map(|disk| disk.copied());
        let store = open_on(&disks);
        assert!(found(&store).len() < KEYS as usize - 1);
        assert_eq!(get(&store, "new").as_deref(), Some(&b"value"[..]));
    }
}

#[test]
fn the_first_volume_is_never_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let paths = three_files(directory.path());
    open(config(&paths)).close().unwrap();
    std::fs::remove_file(&paths[0]).unwrap();
    for must_exist in [false, true] {
        let refused =
            Store::open(with(&paths, |config| config.must_exist = must_exist)).unwrap_err();
        let is_it = matches!(&refused, OpenError::VolumeMissing { path } if *path == paths[0]);
        assert!(is_it, "{refused}");
    }
    assert!(!paths[0].exists());
}

#[test]
fn a_new_store_is_not_made_without_one_of_its_volumes() {
    let disks = [(); 2].map(|()| Disk::new(VOLUME_BYTES));
    disks[1].fail();
    let names = ["one".into(), "two".into()];
    let devices = disks.iter().map(Disk::device).collect();
    let refused = Store::open_on(config(&names), devices, Arc::new(Stopped)).unwrap_err();
    assert!(matches!(refused, OpenError::Io { .. }), "{refused}");
}

/// Somebody should look at these: they are there.
#[test]
fn a_volume_that_is_in_use_or_holds_something_else_is_no_missing_one() {
    let directory = tempfile::tempdir().unwrap();
    let paths = three_files(directory.path());
    open(config(&paths)).close().unwrap();
    let refused = |paths: &[PathBuf]| Store::open(config(paths)).unwrap_err();

    let held = device::open(&device::OpenOptions::new(&paths[1])).unwrap();
    let error = refused(&paths);
    let is_it = matches!(error, OpenError::Device(DeviceOpenError::Locked { .. }));
    assert!(is_it, "{error}");
    drop(held);

    let swapped = [paths[0].clone(), paths[2].clone(), paths[1].clone()];
    let error = refused(&swapped);
    assert!(matches!(error, OpenError::WrongVolume { .. }), "{error}");
    let error = refused(&paths[..2]);
    assert!(matches!(error, OpenError::VolumeCount { .. }), "{error}");

    std::fs::write(&paths[1], vec![b'x'; VOLUME_BYTES]).unwrap();
    let error = refused(&paths);
    assert!(matches!(error, OpenError::NotOurs { .. }), "{error}");
    let error = Store::open(with(&paths, |config| config.force = true)).unwrap_err();
    assert!(matches!(error, OpenError::VolumeMissing { .. }), "{error}");

    // Zeros hold nothing, as a disk that was put in place of one that died.
    std::fs::write(&paths[1], vec![0; VOLUME_BYTES]).unwrap();
    let store = open(config(&paths));
    assert_eq!(in_service(&store), [true, false, true]);
    store.create(b"new", GroupId::new(1), b"value").wait().unwrap();
    store.close().unwrap();
    assert!(std::fs::read(&paths[1]).unwrap().iter().all(|byte| *byte == 0), "it stays so");
}
