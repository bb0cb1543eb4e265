//! What a prefetch reads: the pages of a group that are not in memory.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::sync::Arc;

use damelo::{ByteSize, Config, GroupId, PrefetchReport, Store, SystemClock};

mod in_memory;

use in_memory::{Memory, State};

const DEVICE_BYTES: usize = 128 << 20;
const GROUP: GroupId = GroupId::new(1);

fn opened() -> Store {
    let state = State::new(DEVICE_BYTES, false);
    let mut config = Config::new("prefetch", ByteSize::new(DEVICE_BYTES as u64));
    config.memory = ByteSize::new(16 << 20);
    Store::open_on(config, vec![Memory::device(&state)], Arc::new(SystemClock::new())).unwrap()
}

fn key(group: GroupId, object: u32) -> Vec<u8> {
    format!("{} {object}", group.get()).into_bytes()
}

fn fill(store: &Store, group: GroupId, objects: u32) {
    for object in 0..objects {
        store.create(&key(group, object), group, &[1; 500]).wait().unwrap();
    }
    store.sync().unwrap();
}

/// The last page that was written may come to its place in memory a little after the `sync`.
fn drop_memory(store: &Store) {
    while store.stats().resident_objects > 0 {
        store.drop_memory();
    }
}

fn prefetched(store: &Store) -> PrefetchReport {
    let before = store.stats();
    let report = store.prefetch(GROUP).wait().unwrap();
    let after = store.stats();
    assert_eq!(after.page_reads - before.page_reads, report.pages);
    assert_eq!(after.disk_read_bytes - before.disk_read_bytes, report.bytes);
    report
}

#[test]
fn pages_in_memory_are_not_read() {
    const OBJECTS: u32 = 4_000;
    let store = opened();
    fill(&store, GROUP, OBJECTS);
    let written = prefetched(&store);
    let pages = written.pages + written.pages_in_memory;
    assert!(pages > 30 && written.pages <= 1, "what was written is in memory: {written:?}");
    drop_memory(&store);
    let all = prefetched(&store);
    assert_eq!((all.pages, all.objects, all.pages_in_memory), (pages, OBJECTS.into(), 0));
    assert!(store.read(&key(GROUP, 7)).wait().unwrap().is_some());
    let stats = store.group_stats(GROUP).unwrap();
    assert_eq!((stats.pages_known, stats.prefetched), (pages, written.objects + all.objects));
    assert_eq!((stats.page_reads, stats.prefetch_hits), (written.pages + pages, 1));
    let again = prefetched(&store);
    assert_eq!((again.pages + again.pages_in_memory, again.objects), (pages, 0));
    assert!(again.pages <= 1, "only the last, which is short, is not kept as a page");
    assert!(store.remove(&key(GROUP, 7)).unwrap());
    assert_eq!(prefetched(&store), again, "what is removed is not missed");
}

#[test]
fn pages_that_have_left_memory_are_read_again() {
    let store = opened();
    fill(&store, GROUP, 4_000);
    fill(&store, GroupId::new(2), 60_000);
    let report = prefetched(&store);
    assert!(report.pages > 30 && report.objects > 2_000, "{report:?}");
}

/// More would evict the first pages, which the next prefetch would read again, and so on.
#[test]
fn of_a_group_larger_than_memory_no_more_is_read_than_fits() {
    let store = opened();
    fill(&store, GROUP, 60_000);
    drop_memory(&store);
    let first = prefetched(&store);
    assert!(first.pages > 100, "{first:?}");
    let again = prefetched(&store);
    assert_eq!(again.pages + again.pages_in_memory, first.pages);
    assert!(again.pages <= again.objects, "a page is read for what it brings: {again:?}");
}

/// Small groups share a page: what came with it counts for the group of each object, and none
/// counts what another's requests use up.
#[test]
fn what_comes_with_a_page_of_several_groups_counts_for_its_own() {
    const OBJECTS: u64 = 8;
    let store = opened();
    for group in (1..=3).map(GroupId::new) {
        for object in 0..OBJECTS {
            store.create(&key(group, object as u32), group, &[1; 500]).wait().unwrap();
        }
    }
    store.sync().unwrap();
    drop_memory(&store);
    assert_eq!(store.prefetch(GROUP).wait().unwrap().objects, 3 * OBJECTS, "all on one page");
    let counts = |group| {
        let stats = store.group_stats(GroupId::new(group)).unwrap();
        (stats.prefetched, stats.prefetch_hits)
    };
    assert_eq!([1, 2, 3].map(counts), [(OBJECTS, 0); 3]);
    for group in [2, 3].map(GroupId::new) {
        assert!(store.read(&key(group, 0)).wait().unwrap().is_some());
    }
    assert_eq!([1, 2, 3].map(counts), [(OBJECTS, 0), (OBJECTS, 1), (OBJECTS, 1)]);
    // Read for one of them, which was not prefetched then.
    for group in 1..=3 {
        drop_memory(&store);
        let before = counts(group).0;
        assert!(store.read(&key(GroupId::new(group), 1)).wait().unwrap().is_some());
        let came = counts(group).0 - before;
        assert!(came < OBJECTS, "{came} objects of group {group}");
    }
}
