//! What a device did is what the store says that it had it do.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::sync::Arc;
use std::time::Duration;

use damelo::{ByteSize, Config, GroupId, Store};

mod in_memory;
use in_memory::{Memory, State, Stopped};

fn open(dir: &tempfile::TempDir) -> Store {
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(64 << 20));
    config.memory = ByteSize::new(8 << 20);
    config.segment = Some(ByteSize::new(1 << 20));
    config.checkpoint_period = Duration::ZERO;
    config.seed = Some(1);
    let store = Store::open(config).unwrap();
    store.wait_recovered();
    store
}

fn key(n: u64) -> Vec<u8> {
    n.to_le_bytes().to_vec()
}

fn create(store: &Store, n: u64) {
    let bytes = if n.is_multiple_of(50) { 2_000_000 } else { n * 7_919 % 30_000 };
    store.create(&key(n), GroupId::new(n % 20), &vec![1; bytes as usize]).wait().unwrap();
}

/// Reads that the device did, and those that the store counted by unit.
fn reads(store: &Store) -> (u64, u64) {
    let stats = store.stats();
    let by_unit =
        [stats.object_reads, stats.page_reads, stats.range_reads, stats.maintenance_reads];
    (stats.devices.iter().map(|device| device.reads).sum(), by_unit.iter().sum())
}

fn check(store: &Store, what: &str, act: impl FnOnce()) {
    let (did, counted) = reads(store);
    act();
    store.sync().unwrap();
    let (did_now, counted_now) = reads(store);
    assert_eq!(counted_now - counted, did_now - did, "{what}");
}

#[test]
fn each_read_of_the_device_counts_under_a_unit() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    // Twice round the ring, so that segments are reused.
    check(&store, "creates", || (0..3_000).for_each(|n| create(&store, n)));
    assert!(store.stats().segments_reused > 0);
    store.drop_memory();
    check(&store, "reads", || {
        for n in 2_000..3_000 {
            let _too_large_perhaps = store.read(&key(n)).wait();
            store.read_range(&key(n), 10..20).wait().unwrap();
        }
    });
    store.drop_memory();
    check(&store, "new metadata", || {
        for n in 2_000..3_000 {
            store.set_metadata(&key(n), b"new").wait().unwrap();
        }
    });
    check(&store, "a listing", || assert!(store.entries().count() > 100));
    store.drop_memory();
    check(&store, "prefetches", || {
        for group in 0..20 {
            store.prefetch(GroupId::new(group)).wait().unwrap();
        }
    });
}

/// On a device that notes each write, those to the journal too.
#[test]
fn each_byte_that_is_written_counts_as_segment_checkpoint_or_journal() {
    let state = State::new(32 << 20, true);
    let written = || -> u64 {
        let log = state.lock().unwrap().take_log();
        log.iter().filter(|(is_write, ..)| *is_write).map(|(.., bytes, _)| *bytes as u64).sum()
    };
    let mut config = Config::new("memory", ByteSize::new(32 << 20));
    config.memory = ByteSize::new(8 << 20);
    config.segment = Some(ByteSize::new(1 << 20));
    config.checkpoint_period = Duration::ZERO;
    config.seed = Some(1);
    let store = Store::open_on(config, vec![Memory::device(&state)], Arc::new(Stopped)).unwrap();
    store.wait_recovered();
    let _made = written();
    let before = store.stats();
    let counted = || {
        let now = store.stats();
        let by_kind = |stats: &damelo::Stats| {
            [stats.written_bytes, stats.checkpoint_bytes, stats.journal_bytes]
        };
        let (now, before) = (by_kind(&now), by_kind(&before));
        [0, 1, 2].map(|kind| now[kind] - before[kind])
    };
    let mut did = 0;
    let mut check = |what: &str| {
        did += written();
        assert_eq!(counted().iter().sum::<u64>(), did, "{what}: {:?}", counted());
    };
    // More than once round the ring.
    (0..1_500).for_each(|n| create(&store, n));
    store.sync().unwrap();
    check("creates");
    (0..1_500).for_each(|n| assert!(store.remove(&key(n)).is_ok()));
    store.purge_prefix(&[7; 300]).unwrap();
    check("removes and a purge");
    store.checkpoint().unwrap();
    check("a checkpoint");
    let [segments, checkpoints, journal] = counted();
    assert!(segments > 20 << 20 && checkpoints > 200_000 && journal > 32_000, "{:?}", counted());
    let stats = store.stats();
    let all = (stats.written_bytes + stats.checkpoint_bytes + stats.journal_bytes) as f64;
    let amplification = all / stats.written_object_bytes as f64;
    assert!((stats.write_amplification() - amplification).abs() < 1e-9);
    store.close().unwrap();
}
