//! An index that is too small: what was written last stays, whatever segment it lies in, after a
//! crash as well.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod troubled;

use std::sync::Arc;
use std::time::Duration;

use damelo::{ByteSize, Config, Store};
use troubled::{Disk, Stopped, get, put};

fn open(disk: &Disk) -> Store {
    let size_bytes = disk.with_bytes(<[u8]>::len) as u64;
    let mut config = Config::new("full", ByteSize::new(size_bytes));
    config.memory = ByteSize::new(4 << 20);
    config.objects_max = Some(2048);
    config.page = Some(ByteSize::new(16 << 10));
    config.segment = Some(ByteSize::new(256 << 10));
    config.checkpoint_period = Duration::ZERO;
    config.seed = Some(1);
    let store = Store::open_on(config, vec![disk.device()], Arc::new(Stopped)).unwrap();
    store.wait_recovered();
    store
}

fn fill(store: &Store, numbers: std::ops::Range<u32>) {
    for number in numbers {
        put(store, &format!("small/{number}"), u64::from(number), &[7; 100]);
    }
    store.sync().unwrap();
}

/// Long ones have a segment of their own, which few of them do not fill: it was begun long before
/// the pages that were written last.
#[test]
fn what_was_just_written_is_not_pushed_out_though_its_segment_is_old() {
    let long = vec![1; 20_000];
    let disk = Disk::new(16 << 20);
    let store = open(&disk);
    put(&store, "long", 1, &long);
    store.sync().unwrap();
    assert!(store.may_be_on_disk(b"long"));
    fill(&store, 0..10_000);
    assert!(!store.may_be_on_disk(b"long"), "it is older than all that the index has room for");
    put(&store, "new", 1, &long);
    store.sync().unwrap();
    store.checkpoint().unwrap();
    fill(&store, 10_000..10_500);
    store.drop_memory();
    assert!(store.stats().evicted_index_full > 5_000);
    assert!(get(&store, "new").unwrap() == long);
    // Not dropped: that would close it.
    std::mem::forget(store);
    let store = open(&disk.copied());
    assert!(get(&store, "new").unwrap() == long, "after a crash");
    fill(&store, 10_500..10_700);
    store.drop_memory();
    assert!(get(&store, "new").unwrap() == long, "after a crash, and more objects");
}
