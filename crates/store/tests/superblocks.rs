//! One of the two copies of a superblock is damaged: it is told, and written again from the other
//! with the first write, so that the loss of that one, too, does not lose the store.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod troubled;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use damelo::check::check_volumes;
use damelo::{ByteSize, Config, Store, VolumeConfig};
use troubled::{Disk, Stopped, get, put};

const COPY_BYTES: usize = 4096;

fn small(path: impl AsRef<Path>, bytes: u64) -> Config {
    let mut config = Config::new(path, ByteSize::new(bytes));
    config.memory = ByteSize::new(4 << 20);
    config.page = Some(ByteSize::new(16 << 10));
    config.segment = Some(ByteSize::new(256 << 10));
    config
}

fn open(paths: &[PathBuf]) -> Store {
    let mut config = small(&paths[0], 8 << 20);
    let size = config.volumes[0].size;
    config.volumes = paths.iter().map(|path| VolumeConfig { path: path.clone(), size }).collect();
    let store = Store::open(config).unwrap();
    store.wait_recovered();
    store
}

fn warnings_of_superblocks(store: &Store) -> Vec<String> {
    let warnings = store.info().warnings;
    warnings.into_iter().filter(|warning| warning.contains("superblock")).collect()
}

fn scribble(path: &Path, copy: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[copy * COPY_BYTES..][..COPY_BYTES].fill(0xa5);
    std::fs::write(path, bytes).unwrap();
}

/// Both copies.
fn head(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()[..2 * COPY_BYTES].to_vec()
}

fn damage(paths: &[PathBuf]) -> u64 {
    check_volumes(paths, &mut |_| {}).unwrap().damaged_total
}

/// A store of these volumes with one object, of which a copy of a superblock was damaged then.
fn damaged(paths: &[PathBuf], volume: usize, copy: usize) -> Vec<u8> {
    let store = open(paths);
    put(&store, "a", 1, &[7; 900]);
    store.close().unwrap();
    let sound = head(&paths[volume]);
    scribble(&paths[volume], copy);
    assert_eq!(damage(paths), 1);
    sound
}

fn told(store: &Store, path: &Path, copy: usize) {
    let warnings = warnings_of_superblocks(store);
    let (path, which) = (path.display().to_string(), ["first copy", "second copy"][copy]);
    let is_told = matches!(&warnings[..], [one] if one.starts_with(&path) && one.contains(which));
    assert!(is_told, "{warnings:?}");
    assert_eq!(store.stats().damaged_superblocks, 1);
}

#[test]
fn a_damaged_copy_is_told_and_written_again_by_the_first_write() {
    for copy in 0..2 {
        let dir = tempfile::tempdir().unwrap();
        let paths = [dir.path().join("cache")];
        let sound = damaged(&paths, 0, copy);
        let before = std::fs::read(&paths[0]).unwrap();
        for _ in 0..2 {
            let store = open(&paths);
            assert_eq!(get(&store, "a").unwrap(), [7; 900]);
            told(&store, &paths[0], copy);
            store.close().unwrap();
            assert!(std::fs::read(&paths[0]).unwrap() == before, "who only reads changes nothing");
        }
        let store = open(&paths);
        put(&store, "b", 1, &[8; 900]);
        store.close().unwrap();
        assert!(head(&paths[0]) == sound, "copy {copy}");
        assert_eq!(damage(&paths), 0);

        scribble(&paths[0], 1 - copy);
        let store = open(&paths);
        assert_eq!(get(&store, "a").unwrap(), [7; 900]);
        assert_eq!(get(&store, "b").unwrap(), [8; 900]);
        told(&store, &paths[0], 1 - copy);
    }
}

/// The open of several volumes writes in any case.
#[test]
fn each_volume_has_copies_of_its_own() {
    for (volume, copy) in [(0, 1), (1, 0), (1, 1)] {
        let dir = tempfile::tempdir().unwrap();
        let paths = [dir.path().join("first"), dir.path().join("second")];
        let sound = damaged(&paths, volume, copy);
        let store = open(&paths);
        told(&store, &paths[volume], copy);
        assert_eq!(get(&store, "a").unwrap(), [7; 900]);
        store.close().unwrap();
        assert!(head(&paths[volume]) == sound, "volume {volume}, copy {copy}");
        assert_eq!(damage(&paths), 0);
    }
}

fn open_on(disk: &Disk) -> Store {
    let size_bytes = disk.with_bytes(<[u8]>::len) as u64;
    let mut config = small("superblocks", size_bytes);
    config.volume_errors_max = 1;
    let store = Store::open_on(config, vec![disk.device()], Arc::new(Stopped)).unwrap();
    store.wait_recovered();
    store
}

/// An open after a crash writes in any case.
#[test]
fn after_a_crash_the_open_writes_it_again() {
    let disk = Disk::new(8 << 20);
    let store = open_on(&disk);
    put(&store, "a", 1, &[7; 900]);
    store.sync().unwrap();
    std::mem::forget(store);
    let disk = disk.copied();
    let head = |disk: &Disk| disk.with_bytes(|bytes| bytes[..2 * COPY_BYTES].to_vec());
    let sound = head(&disk);
    disk.turn_bit(100);
    let store = open_on(&disk);
    assert_eq!(warnings_of_superblocks(&store).len(), 1);
    assert!(head(&disk) == sound);
    std::mem::forget(store);
    let store = open_on(&disk.copied());
    assert_eq!(get(&store, "a").unwrap(), [7; 900]);
    assert_eq!(warnings_of_superblocks(&store), [""; 0]);
}

/// A block that takes no writes is no reason to do without the store; the next open tells it again.
#[test]
fn a_copy_that_cannot_be_written_costs_nothing_else() {
    let disk = Disk::new(8 << 20);
    let store = open_on(&disk);
    put(&store, "a", 1, &[7; 900]);
    store.close().unwrap();
    let second = COPY_BYTES as u64..2 * COPY_BYTES as u64;
    disk.turn_bit(second.start + 100);
    disk.set_unwritable(second);
    for round in 0..3 {
        let store = open_on(&disk);
        assert_eq!(warnings_of_superblocks(&store).len(), 1, "round {round}");
        put(&store, "b", 1, &[round; 900]);
        assert_eq!(get(&store, "a").unwrap(), [7; 900]);
        assert!(store.info().volumes[0].in_service, "round {round}");
        store.close().unwrap();
    }
}
