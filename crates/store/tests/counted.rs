//! What a device did is what the store says that it had it do.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::time::Duration;

use damelo::{ByteSize, Config, GroupId, Store};

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
