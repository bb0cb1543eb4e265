//! A read that memory answers allocates nothing. Counts what the process's allocator is asked for,
//! so that it is the only test here; other threads are not counted.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use damelo::{ByteSize, Config, GroupId, ReadThrough, Store};

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

fn count() {
    // A thread that ends has no counter any more.
    let _ = ASKED.try_with(|asked| asked.set(asked.get() + 1));
}

// SAFETY: everything is the system's allocator's; a counter is added, which allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(ptr, layout, size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const OBJECTS: u64 = 500;

/// Reads everything; what this thread asked the allocator for meanwhile.
fn asked_by_reads(store: &Store) -> u64 {
    let before = ASKED.get();
    for key in 0..OBJECTS {
        let object = store.read(&key.to_le_bytes()).wait().unwrap().expect("it is in memory");
        assert_eq!(object.len(), 1 + key as usize * 20);
    }
    ASKED.get() - before
}

/// The same, through a handle that would fetch.
fn asked_by_reads_through(store: &Store) -> u64 {
    let through = ReadThrough::<()>::new(store.clone());
    let before = ASKED.get();
    for key in 0..OBJECTS {
        let fetch = || Err::<Vec<u8>, ()>(());
        through.read_blocking(&key.to_le_bytes(), GroupId::new(1), fetch).unwrap();
    }
    ASKED.get() - before
}

#[test]
fn a_hit_in_memory_allocates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(64 << 20));
    config.memory = ByteSize::new(32 << 20);
    let store = Store::open(config).unwrap();
    for key in 0..OBJECTS {
        let value = vec![7; 1 + key as usize * 20];
        store.create(&key.to_le_bytes(), GroupId::new(key % 7), &value).wait().unwrap();
    }
    assert_eq!(asked_by_reads(&store), 0, "where nothing is on disk yet");
    store.sync().unwrap();
    let reads = store.stats().object_reads + store.stats().page_reads;
    assert_eq!(asked_by_reads(&store), 0, "from page frames");
    assert_eq!(store.stats().object_reads + store.stats().page_reads, reads, "all were hits");
    assert_eq!(asked_by_reads_through(&store), 0, "with a fetch at hand");
    assert_eq!(store.stats().hits_memory, 3 * OBJECTS);
}
