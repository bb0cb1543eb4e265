//! What a loss of power may leave: the index lists a record that did not reach the disk, and in its
//! place lies an older one of the same key, whole, of another life of a segment. It is not served.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod troubled;

use std::sync::Arc;
use std::time::Duration;

use damelo::check::check_volumes;
use damelo::format::{RecordHeader, RecordKind, StoreNonce, Superblock};
use damelo::{ByteSize, Config, Store};
use troubled::{Disk, Stopped, get, put};

const KEY: &str = "site/key";
const SEGMENT_BYTES: usize = 1 << 20;
const SMALL_BYTES: usize = 1000;
const LARGE_BYTES: usize = 100_000;

fn open(disk: &Disk) -> Store {
    let size_bytes = disk.with_bytes(<[u8]>::len) as u64;
    let mut config = Config::new("leftovers", ByteSize::new(size_bytes));
    config.memory = ByteSize::new(8 << 20);
    config.page = Some(ByteSize::new(16 << 10));
    config.segment = Some(ByteSize::new(SEGMENT_BYTES as u64));
    config.checkpoint_period = Duration::ZERO;
    Store::open_on(config, vec![disk.device()], Arc::new(Stopped)).unwrap()
}

/// The records of `KEY` on disk and where they are, the oldest first.
fn records(bytes: &[u8]) -> Vec<(usize, RecordHeader)> {
    let nonce = StoreNonce::of(&Superblock::decode(bytes).unwrap().store_id);
    let mut found: Vec<_> = (0..bytes.len())
        .step_by(64)
        .filter_map(|at| Some((at, RecordHeader::decode(&bytes[at..], nonce).ok()?)))
        .filter(|(at, header)| {
            let key = header.key_range();
            bytes.get(at + key.start..at + key.end) == Some(KEY.as_bytes())
        })
        .collect();
    found.sort_unstable_by_key(|(_, header)| header.seq);
    found
}

/// A store that is closed, whose index lists the second of two records of `KEY`, both with values
/// of this length; the first lies in its place.
fn with_leftover(value_bytes: usize) -> Disk {
    let disk = Disk::new(32 << 20);
    let store = open(&disk);
    put(&store, KEY, 1, &vec![1; value_bytes]);
    store.sync().unwrap();
    for n in 0..2 * SEGMENT_BYTES / SMALL_BYTES {
        put(&store, &format!("small/{n}"), 1, &[0; SMALL_BYTES]);
    }
    for n in 0..2 * SEGMENT_BYTES / LARGE_BYTES {
        put(&store, &format!("large/{n}"), 1, &[0; LARGE_BYTES]);
    }
    store.sync().unwrap();
    put(&store, KEY, 1, &vec![2; value_bytes]);
    drop(store);
    let (at, leftover) = disk.with_bytes(|bytes| {
        let [(from, old), (to, new)] = records(bytes)[..] else { panic!("two records on disk") };
        assert_eq!([old.kind, new.kind], [RecordKind::Object; 2]);
        assert_ne!(old.segment_seq_low, new.segment_seq_low, "in two segments");
        (to, bytes[from..from + old.stored_bytes() as usize].to_vec())
    });
    // Devices write whole blocks.
    let (start, end) = (at - at % 512, (at + leftover.len()).next_multiple_of(512));
    let mut blocks = disk.with_bytes(|bytes| bytes[start..end].to_vec());
    blocks[at - start..][..leftover.len()].copy_from_slice(&leftover);
    disk.device().write_at(start as u64, &blocks).unwrap();
    disk
}

#[test]
fn a_leftover_in_the_place_of_a_listed_record_is_a_miss() {
    for value_bytes in [500, 50_000, 400_000] {
        let store = open(&with_leftover(value_bytes));
        assert_eq!(get(&store, KEY), None, "{value_bytes} bytes");
        assert_eq!(store.stats().damaged_records, 1);
        assert_eq!(store.stats().misses_damaged, 1);
        let there = |key: &String| get(&store, key).is_some();
        assert!((0..2 * SEGMENT_BYTES / SMALL_BYTES).all(|n| there(&format!("small/{n}"))));
        assert!((0..2 * SEGMENT_BYTES / LARGE_BYTES).all(|n| there(&format!("large/{n}"))));
        put(&store, KEY, 1, b"newer");
        assert_eq!(get(&store, KEY).as_deref(), Some(&b"newer"[..]));
    }
}

#[test]
fn a_leftover_is_not_read_in_part() {
    let store = open(&with_leftover(400_000));
    assert!(store.read_range(KEY.as_bytes(), 10..20).wait().unwrap().is_none());
    assert_eq!(store.stats().damaged_records, 1);
}

#[test]
fn a_leftover_gets_no_new_metadata() {
    let store = open(&with_leftover(400_000));
    let stored = store.set_metadata(KEY.as_bytes(), b"new").wait().unwrap();
    assert!(!stored, "there is no such object");
    assert_eq!(get(&store, KEY), None);
}

#[test]
fn a_leftover_is_not_listed() {
    for value_bytes in [500, 400_000] {
        let store = open(&with_leftover(value_bytes));
        let keys: Vec<_> = store.entries().map(|entry| entry.unwrap().key).collect();
        assert!(keys.len() > 2000 && !keys.contains(&KEY.as_bytes().to_vec()));
    }
}

#[test]
fn a_check_finds_a_leftover() {
    for value_bytes in [500, 400_000] {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, with_leftover(value_bytes).with_bytes(<[u8]>::to_vec)).unwrap();
        let report = check_volumes(&[file.path().to_path_buf()], &mut |_| {}).unwrap();
        let damaged: Vec<_> = report.segments.iter().flat_map(|segment| &segment.damaged).collect();
        assert_eq!(damaged.len(), 1, "{damaged:?}");
        assert!(damaged[0].ends_with("a record of another life of the segment"), "{damaged:?}");
    }
}
