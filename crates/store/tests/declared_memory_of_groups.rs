//! What a store with many small groups takes more than when it was empty is what was declared for
//! it, and the index, by the system's account. The only test here, since it weighs the process that
//! it runs in.

#![cfg(target_os = "linux")]

mod weight;

use damelo::{ByteSize, Config, GroupId, Store};

use weight::resident_bytes;

const MEMORY_BYTES: u64 = 64 << 20;
const VALUE: [u8; 200] = [7; 200];
const OBJECTS: u64 = 200_000;
/// More than are remembered, few objects in each.
const GROUPS: u64 = 50_000;

#[test]
fn many_small_groups_take_no_more_than_was_declared() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(512 << 20));
    config.memory = ByteSize::new(MEMORY_BYTES);
    let store = Store::open(config).unwrap();
    let empty = resident_bytes();
    for object in 0..OBJECTS {
        let group = GroupId::new(object % GROUPS);
        store.create(&object.to_le_bytes(), group, &VALUE).wait().unwrap();
    }
    store.sync().unwrap();
    let (taken, stats) = (resident_bytes() - empty, store.stats());
    assert!(stats.resident_objects > 30_000, "{} in memory", stats.resident_objects);
    let most = MEMORY_BYTES / 100 * 105 + stats.index_bytes;
    assert!(taken <= most, "{taken} bytes more, {most} at most");
    store.close().unwrap();
}
