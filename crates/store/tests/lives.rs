//! The table of lives: after a crash it stands for the segments that were sealed before the newest
//! checkpoint, and they stand for it where it is damaged.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod troubled;

use std::sync::Arc;
use std::time::Duration;

use damelo::format::{LifeBlock, Superblock};
use damelo::{ByteSize, Config, Store};
use troubled::{Disk, Stopped, get, put};

const BLOCK_BYTES: usize = 4096;
const OBJECTS: u32 = 400;

fn open(disk: &Disk) -> Store {
    open_with(disk, true)
}

fn open_with(disk: &Disk, background: bool) -> Store {
    let size_bytes = disk.with_bytes(<[u8]>::len) as u64;
    let mut config = Config::new("lives", ByteSize::new(size_bytes));
    config.memory = ByteSize::new(4 << 20);
    config.page = Some(ByteSize::new(16 << 10));
    config.segment = Some(ByteSize::new(256 << 10));
    config.checkpoint_period = Duration::ZERO;
    config.open_wait = Duration::ZERO;
    config.seed = Some(1);
    config.background = background;
    Store::open_on(config, vec![disk.device()], Arc::new(Stopped)).unwrap()
}

fn superblock(disk: &Disk) -> Superblock {
    disk.with_bytes(|bytes| Superblock::decode(bytes).unwrap())
}

fn value(number: u32) -> Vec<u8> {
    vec![number as u8; 5_000]
}

fn fill(store: &Store, numbers: std::ops::Range<u32>) {
    for number in numbers {
        put(store, &format!("object/{number}"), 1, &value(number));
    }
    store.sync().unwrap();
}

/// How many of the objects are there, each of them right.
fn right(store: &Store, numbers: std::ops::Range<u32>) -> usize {
    let is_right = |number: &u32| {
        let found = get(store, &format!("object/{number}"));
        found.is_some_and(|found| {
            assert!(found == value(*number), "object {number}");
            true
        })
    };
    numbers.filter(is_right).count()
}

/// Killed with most objects in segments that a checkpoint found sealed, and some that came later.
fn killed() -> Disk {
    let disk = Disk::new(24 << 20);
    let store = open(&disk);
    store.wait_recovered();
    fill(&store, 0..OBJECTS);
    store.checkpoint().unwrap();
    fill(&store, OBJECTS..OBJECTS + 20);
    // One that is killed is not dropped: that would close it.
    std::mem::forget(store);
    disk.copied()
}

/// The block of the table that is about all segments of the store.
fn table(disk: &Disk) -> Option<LifeBlock> {
    let superblock = superblock(disk);
    let at = superblock.layout().lives_offset() as usize;
    let block = disk.with_bytes(|bytes| bytes[at..at + BLOCK_BYTES].to_vec());
    LifeBlock::decode(&block, superblock.nonce(), 0, superblock.segment_count).ok()
}

#[test]
fn no_segment_that_a_checkpoint_found_sealed_is_read_before_all_is_served() {
    let disk = killed();
    let first = superblock(&disk).segments_offset;
    disk.hold_reads(first..first + 4 * superblock(&disk).segment_bytes);
    let store = open(&disk);
    store.wait_recovered();
    disk.let_go();
    assert_eq!(right(&store, 0..OBJECTS + 20), OBJECTS as usize + 20);
}

#[test]
fn a_damaged_table_costs_nothing_but_time() {
    let disk = killed();
    let whole = table(&disk).expect("a table");
    let at = superblock(&disk).layout().lives_offset();
    disk.device().write_at(at + 1024, &[0xff; 512]).unwrap();
    assert_eq!(table(&disk), None);
    let store = open(&disk);
    store.wait_recovered();
    assert_eq!(right(&store, 0..OBJECTS + 20), OBJECTS as usize + 20);
    assert_eq!(table(&disk).as_ref(), Some(&whole), "it is put right");
}

/// A segment that was begun, of which nothing reached the disk.
#[test]
fn what_the_table_has_too_soon_is_free_and_put_right() {
    let disk = killed();
    let superblock = superblock(&disk);
    let mut ahead = table(&disk).expect("a table");
    let free = ahead.entries.iter().rposition(|entry| entry.segment_seq == 0).unwrap();
    ahead.entries[free].segment_seq = u64::from(u32::MAX);
    let at = superblock.layout().lives_offset();
    disk.device().write_at(at, &ahead.encode()).unwrap();
    let store = open(&disk);
    store.wait_recovered();
    assert_eq!(right(&store, 0..OBJECTS + 20), OBJECTS as usize + 20);
    assert_eq!(table(&disk).expect("a table").entries[free].segment_seq, 0);
}

/// After a loss of power that the last change of the table did not survive, of a segment that did:
/// what lies there is given up, and a remove of it holds though a later recovery finds it again.
#[test]
fn what_a_table_left_behind_hides_does_not_come_back_once_it_was_removed() {
    let disk = Disk::new(24 << 20);
    let store = open(&disk);
    store.wait_recovered();
    fill(&store, 0..OBJECTS);
    store.checkpoint().unwrap();
    let at = superblock(&disk).layout().lives_offset();
    let behind = disk.with_bytes(|bytes| bytes[at as usize..][..BLOCK_BYTES].to_vec());
    // More than what is open has room for.
    fill(&store, OBJECTS..OBJECTS + 120);
    std::mem::forget(store);
    let disk = disk.copied();
    disk.device().write_at(at, &behind).unwrap();
    // Without threads: a checkpoint is wanted now, and would be there before the next crash.
    let store = open_with(&disk, false);
    let last = OBJECTS + 119;
    assert_eq!(right(&store, last..last + 1), 0, "the table has its segment as free");
    assert_eq!(right(&store, 0..OBJECTS), OBJECTS as usize);
    store.remove(format!("object/{last}").as_bytes()).unwrap();
    std::mem::forget(store);
    for damaged in [false, true] {
        let disk = disk.copied();
        if damaged {
            disk.device().write_at(at, &[0; 512]).unwrap();
        }
        let store = open(&disk);
        store.wait_recovered();
        assert_eq!(right(&store, last..last + 1), 0, "damaged: {damaged}");
        let hidden = right(&store, OBJECTS..last);
        assert!(!damaged || hidden > 60, "others are found again: {hidden}");
    }
}

#[test]
fn a_store_is_made_with_a_table_of_free_segments() {
    let disk = Disk::new(24 << 20);
    let store = open(&disk);
    store.wait_recovered();
    let entries = table(&disk).expect("a table").entries;
    assert_eq!(entries.len(), superblock(&disk).segment_count as usize);
    assert!(entries.iter().all(|entry| entry.segment_seq == 0));
}
