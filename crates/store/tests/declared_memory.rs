//! A store that is filled takes the memory that was declared and the index more than an empty one,
//! within 5%, by the system's account. The only test here, since it weighs the process
//! that it runs in.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod weight;

use damelo::{ByteSize, Config, GroupId, Store};

use weight::resident_bytes;

const MEMORY_BYTES: u64 = 32 << 20;
/// Small ones, so that the tables of what is in memory take as much of it as they may.
const VALUE: [u8; 64] = [7; 64];
const OBJECTS: u32 = 400_000;
const OBJECTS_PER_GROUP: u32 = 256;

fn fill(store: &Store, objects: std::ops::Range<u32>) {
    for object in objects {
        let group = GroupId::new(u64::from(object / OBJECTS_PER_GROUP));
        store.create(&object.to_le_bytes(), group, &VALUE).wait().unwrap();
    }
}

#[test]
fn many_small_objects_take_no_more_than_was_declared() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(512 << 20));
    config.memory = ByteSize::new(MEMORY_BYTES);
    config.objects_max = Some(u64::from(OBJECTS) * 10 / 9);
    let store = Store::open(config).unwrap();
    let empty = resident_bytes();
    std::thread::scope(|scope| {
        scope.spawn(|| fill(&store, 0..OBJECTS / 2));
        scope.spawn(|| fill(&store, OBJECTS / 2..OBJECTS));
    });
    store.sync().unwrap();
    let taken = resident_bytes() - empty;
    let stats = store.stats();
    assert!(stats.resident_objects > 30_000, "the tables are large: {}", stats.resident_objects);
    let most = MEMORY_BYTES / 100 * 105 + stats.index_bytes;
    assert!(taken <= most, "{taken} bytes more, {most} at most");
    store.close().unwrap();
}
