//! What is asked of a part of an object, or of its metadata, does not read the rest, however the
//! object is stored.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::sync::Arc;

use damelo::{ByteSize, Config, GroupId, Store, SystemClock, WriterOptions};

mod in_memory;

use in_memory::{Memory, State};

const DEVICE_BYTES: usize = 96 << 20;
const KEY: &[u8] = b"large";

fn byte_at(offset: usize) -> u8 {
    (offset / 1000) as u8
}

/// A store with an object in parts, none of which is in memory.
fn store_with(length: usize, memory: u64, patched: bool) -> Store {
    let state = State::new(DEVICE_BYTES, false);
    let mut config = Config::new("in_part", ByteSize::new(DEVICE_BYTES as u64));
    config.memory = ByteSize::new(memory);
    // Parts of 64 KiB, so that there are many.
    config.segment = Some(ByteSize::new(256 << 10));
    config.page = Some(ByteSize::new(16 << 10));
    let device = vec![Memory::device(&state)];
    let store = Store::open_on(config, device, Arc::new(SystemClock::new())).unwrap();
    let value: Vec<u8> = (0..length).map(byte_at).collect();
    let mut writer = store.writer(KEY, GroupId::new(1), WriterOptions::default()).unwrap();
    value.chunks(100_000).for_each(|piece| writer.write(piece).wait().unwrap());
    writer.commit().wait().unwrap();
    store.sync().unwrap();
    if patched {
        assert!(store.set_metadata(KEY, b"new").wait().unwrap());
        store.sync().unwrap();
    }
    store.drop_memory();
    store
}

fn bytes_read(store: &Store, work: impl FnOnce()) -> u64 {
    let before = store.stats().disk_read_bytes;
    work();
    let read = store.stats().disk_read_bytes - before;
    store.drop_memory();
    read
}

/// It could be held in memory, and need not be for this.
#[test]
fn a_part_of_an_object_in_parts_is_read_without_the_rest() {
    for patched in [false, true] {
        let length = 3 << 20;
        let store = store_with(length, 64 << 20, patched);
        let at = length / 2;
        let asked = [
            ("lookup", bytes_read(&store, || drop(store.lookup(KEY).wait().unwrap().unwrap()))),
            ("length", bytes_read(&store, || assert!(store.length(KEY).wait().unwrap().is_some()))),
            (
                "new metadata",
                bytes_read(&store, || assert!(store.set_metadata(KEY, b"m").wait().unwrap())),
            ),
            (
                "range",
                bytes_read(&store, || {
                    let range = store.read_range(KEY, at as u64..at as u64 + 10).wait().unwrap();
                    assert_eq!(range.unwrap()[0], byte_at(at));
                }),
            ),
            (
                "reader",
                bytes_read(&store, || {
                    let mut reader = store.reader(KEY).wait().unwrap().unwrap();
                    reader.select(at as u64..at as u64 + 10);
                    assert_eq!(reader.next().wait().unwrap().unwrap()[0], byte_at(at));
                }),
            ),
        ];
        for (what, bytes) in asked {
            assert!(bytes < 100_000, "{what} read {bytes} bytes, patched: {patched}");
        }
        let whole = store.read(KEY).wait().unwrap().unwrap();
        assert!(whole.iter().enumerate().all(|(at, byte)| *byte == byte_at(at)));
    }
}

/// The list of parts is found as the object, and tells where its parts lie: it is not looked at
/// once more for that. It is longer than what is read at first of any record.
#[test]
fn the_list_of_parts_is_not_read_over_and_over() {
    // The list, the head of a part, and the bytes. Newer metadata is one read more, and so is the
    // rest of a list that it leads to.
    for (patched, reads_max) in [(false, 3), (true, 5)] {
        let store = store_with(30 << 20, 4 << 20, patched);
        let reads = |store: &Store| {
            let stats = store.stats();
            stats.object_reads + stats.page_reads + stats.range_reads
        };
        let before = reads(&store);
        let range = store.read_range(KEY, 1..2).wait().unwrap().unwrap();
        assert_eq!(range[0], byte_at(1));
        let made = reads(&store) - before;
        assert!(made <= reads_max, "{made} reads, patched: {patched}");
    }
}

/// What tells where the bytes lie and verifies them stays in memory, for the next part.
#[test]
fn of_each_further_part_the_bytes_alone_are_read() {
    for patched in [false, true] {
        let store = store_with(3 << 20, 64 << 20, patched);
        let reads = |store: &Store| {
            let stats = store.stats();
            stats.object_reads + stats.page_reads + stats.range_reads
        };
        let read_at = |at: u64| {
            let before = reads(&store);
            let range = store.read_range(KEY, at..at + 1).wait().unwrap().unwrap();
            assert_eq!(range[0], byte_at(at as usize));
            reads(&store) - before
        };
        let (first, second) = (read_at(1_000_000), read_at(1_000_001));
        assert!(first >= 3 && second == 1, "{first} reads, then {second}, patched: {patched}");
        assert_eq!(read_at(2_000_000), 2, "another part has a head of its own");
        let before = reads(&store);
        assert_eq!(store.length(KEY).wait().unwrap(), Some(3 << 20));
        assert_eq!(reads(&store), before, "nothing is read for its length");

        store.create(KEY, GroupId::new(1), b"short").wait().unwrap();
        store.sync().unwrap();
        store.drop_memory();
        let whole = store.read(KEY).wait().unwrap().unwrap();
        assert_eq!(&whole[..], b"short", "no head of an older version counts");
    }
}
