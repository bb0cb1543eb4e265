//! With little memory and the smallest objects, lists and summaries are a good part of what a store
//! takes: at its peak, too, that is no more than was declared, and the index, by the system's
//! account. The only test here, since it weighs the process that it runs in.

#![cfg(target_os = "linux")]

mod weight;

use std::sync::atomic::{AtomicU64, Ordering};

use damelo::{ByteSize, Config, GroupId, Store};

use weight::resident_bytes;

const MEMORY_BYTES: u64 = 16 << 20;
/// What threads, the program's own pages and the allocator take once there is work: 2 to 3 MiB.
/// Summaries and lists that nobody counted took 3 to 4 more.
const BESIDES_BYTES: u64 = 3 << 20;
const VALUE: [u8; 100] = [7; 100];
const OBJECTS: u64 = 400_000;
const GROUPS: u64 = 1000;

#[test]
fn the_smallest_objects_never_take_more_than_was_declared() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(512 << 20));
    config.memory = ByteSize::new(MEMORY_BYTES);
    config.objects_max = Some(OBJECTS);
    let store = Store::open(config).unwrap();
    let (empty, peak) = (resident_bytes(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (store, peak) = (&store, &peak);
            scope.spawn(move || {
                for object in (thread..OBJECTS).step_by(2) {
                    let group = GroupId::new(object % GROUPS);
                    store.create(&object.to_le_bytes(), group, &VALUE).wait().unwrap();
                    if object % 1000 < 2 {
                        peak.fetch_max(resident_bytes(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let (taken, stats) = (peak.into_inner() - empty, store.stats());
    assert!(stats.resident_objects > 10_000, "{} in memory", stats.resident_objects);
    let most = MEMORY_BYTES / 100 * 105 + stats.index_bytes + BESIDES_BYTES;
    assert!(taken <= most, "{taken} bytes more, {most} at most");
    store.close().unwrap();
}
