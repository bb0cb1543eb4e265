//! Pages lie as far apart as the objects of a segment fill them: what that saves, and that all is
//! found again by whatever way back.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::sync::{Arc, Mutex};

use damelo::{ByteSize, Config, GroupId, Store, SystemClock};

mod in_memory;

use in_memory::{Memory, State};

const DEVICE_BYTES: usize = 128 << 20;
const GROUP: GroupId = GroupId::new(1);
/// Three of these take 49 KiB, and the whole of a page of 64 KiB.
const EVEN_BYTES: usize = 16 << 10;

type Disk = Arc<Mutex<State>>;

fn config() -> Config {
    let mut config = Config::new("strides", ByteSize::new(DEVICE_BYTES as u64));
    config.memory = ByteSize::new(8 << 20);
    config.segment = Some(ByteSize::new(2 << 20));
    config.seed = Some(1);
    config
}

fn opened(disk: &Disk) -> Store {
    let store =
        Store::open_on(config(), vec![Memory::device(disk)], Arc::new(SystemClock::new())).unwrap();
    store.wait_recovered();
    store
}

/// What lies under a number: bytes that no other number has.
fn value(number: u32, bytes: usize) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(bytes).collect()
}

fn fill(store: &Store, numbers: std::ops::Range<u32>, bytes: usize) {
    for number in numbers {
        let key = format!("object {number}");
        store.create(key.as_bytes(), GROUP, &value(number, bytes)).wait().unwrap();
    }
    store.sync().unwrap();
}

/// How many of these are there, each of them right.
fn right(store: &Store, numbers: std::ops::Range<u32>, bytes: usize) -> usize {
    let found = numbers.filter(|number| {
        let key = format!("object {number}");
        let found = store.read(key.as_bytes()).wait().unwrap();
        if let Some(object) = &found {
            assert!(object[..] == value(*number, bytes), "{key}");
        }
        found.is_some()
    });
    found.count()
}

/// Bytes written for each byte of these objects.
fn written_for(store: &Store, numbers: std::ops::Range<u32>, bytes: usize) -> f64 {
    let before = store.stats().written_bytes;
    let created = numbers.len() * bytes;
    fill(store, numbers, bytes);
    (store.stats().written_bytes - before) as f64 / created as f64
}

#[test]
fn objects_of_one_length_leave_little_of_their_pages_empty() {
    let store = opened(&State::new(DEVICE_BYTES, false));
    let first = written_for(&store, 0..120, EVEN_BYTES);
    assert!(first > 1.25, "the first segment has whole pages: {first}");
    let later = written_for(&store, 120..3_000, EVEN_BYTES);
    assert!(later < 1.10, "three take 52 KiB: {later}");
    let mixed = |number: u32| 300 + number as usize * 7919 % 15_000;
    for number in 0..2_000 {
        let value = value(number, mixed(number));
        store.create(format!("mixed {number}").as_bytes(), GROUP, &value).wait().unwrap();
    }
    store.sync().unwrap();
    let before = store.stats();
    for number in 2_000..3_000 {
        let value = value(number, mixed(number));
        store.create(format!("mixed {number}").as_bytes(), GROUP, &value).wait().unwrap();
    }
    store.sync().unwrap();
    let after = store.stats();
    let pages = after.pages_written - before.pages_written;
    let bytes = after.written_object_bytes - before.written_object_bytes;
    assert!(bytes / pages > 60 << 10, "whole pages for mixed lengths: {}", bytes / pages);
}

#[test]
fn in_memory_they_take_what_they_take_on_disk() {
    let disk = State::new(DEVICE_BYTES, false);
    let store = opened(&disk);
    let share = |store: &Store| {
        let stats = store.stats();
        stats.resident_objects as f64 * EVEN_BYTES as f64 / stats.memory_used_bytes as f64
    };
    // Pages of 64 KiB would hold 0.75 of what they take. How many frames are between two uses when
    // this looks is up to the threads.
    fill(&store, 0..2_000, EVEN_BYTES);
    assert!(share(&store) > 0.85, "as written: {}", share(&store));
    assert_eq!(right(&store, 0..2_000, EVEN_BYTES), 2_000);
    assert!(share(&store) > 0.85, "as read: {}", share(&store));
}

/// Pages that were built for the segment before may lie farther apart than their memory is long.
#[test]
fn lengths_may_change_at_any_time() {
    let store = opened(&State::new(DEVICE_BYTES, false));
    let bytes = |turn: u32| [EVEN_BYTES, 5_000, 20_000][turn as usize % 3];
    for turn in 0..12 {
        fill(&store, turn * 300..(turn + 1) * 300, bytes(turn));
    }
    for turn in 0..12 {
        store.drop_memory();
        let numbers = turn * 300..(turn + 1) * 300;
        assert_eq!(right(&store, numbers, bytes(turn)), 300, "turn {turn}");
    }
    assert_eq!(store.stats().damaged_records, 0);
}

#[test]
fn they_are_found_after_a_close_and_after_a_crash() {
    let disk = State::new(DEVICE_BYTES, false);
    let store = opened(&disk);
    fill(&store, 0..2_000, EVEN_BYTES);
    assert_eq!(right(&store, 0..2_000, EVEN_BYTES), 2_000);
    let crashed = disk.lock().unwrap().copied();
    drop(store);
    std::mem::forget(opened(&crashed));
    for disk in [&disk, &crashed] {
        let store = opened(disk);
        assert_eq!(right(&store, 0..2_000, EVEN_BYTES), 2_000);
        assert_eq!(store.stats().damaged_records, 0);
    }
}

#[test]
fn a_page_read_brings_what_its_segment_says() {
    let store = opened(&State::new(DEVICE_BYTES, false));
    fill(&store, 0..240, EVEN_BYTES);
    // The last page may come to its place in memory a little after the `sync`.
    while store.stats().resident_objects > 0 {
        store.drop_memory();
    }
    let report = store.prefetch(GROUP).wait().unwrap();
    assert_eq!((report.objects, report.pages), (240, 80));
    // The pages of the first segment lie 64 KiB apart, the others 52.
    assert!(report.bytes < 80 * (58 << 10), "{report:?}");
    let before = store.stats().disk_read_bytes;
    assert_eq!(right(&store, 0..240, EVEN_BYTES), 240);
    assert_eq!(store.stats().disk_read_bytes, before);
}

#[test]
fn a_segment_that_is_continued_keeps_its_stride() {
    let disk = State::new(DEVICE_BYTES, false);
    fill(&opened(&disk), 0..330, EVEN_BYTES);
    for life in 0..10 {
        let store = opened(&disk);
        let numbers = 330 + life * 10..340 + life * 10;
        // The first after an open may be larger than what the segment was laid out for.
        let bytes = if life % 2 == 0 { EVEN_BYTES } else { 5_000 };
        fill(&store, numbers.clone(), bytes);
        assert_eq!(store.stats().segments_continued, 1, "life {life}");
        assert_eq!(right(&store, numbers, bytes), 10);
        assert_eq!(right(&store, 0..330, EVEN_BYTES), 330);
    }
}

#[test]
fn a_small_object_that_a_sync_waits_for_costs_a_block() {
    let store = opened(&State::new(DEVICE_BYTES, false));
    fill(&store, 0..1, 100);
    let before = store.stats();
    (1..21).for_each(|number| fill(&store, number..number + 1, 100));
    let after = store.stats();
    assert_eq!(after.pages_written - before.pages_written, 20);
    assert_eq!(after.written_bytes - before.written_bytes, 20 * 4096);
    while store.stats().resident_objects > 0 {
        store.drop_memory();
    }
    assert_eq!(right(&store, 0..21, 100), 21);
}
