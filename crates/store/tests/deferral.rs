//! A thread that puts its submissions off gets everything done all the same: whatever it waits for
//! goes to the disk first.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use damelo::{
    ByteSize, Config, CreateOptions, Deferral, GroupId, IoEngine, Read, Store, WriterOptions,
    submit_deferred,
};
use tempfile::TempDir;

const OBJECTS: u64 = 2_000;
const LENGTH_BYTES: usize = 8_000;

fn name(key: u64) -> Vec<u8> {
    key.to_le_bytes().to_vec()
}

fn value(key: u64) -> Vec<u8> {
    vec![key as u8; LENGTH_BYTES]
}

/// A store that holds twice what fits in its memory, in so many groups.
fn filled(dir: &TempDir, engine: IoEngine, groups: u64) -> Store {
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(64 << 20));
    config.memory = ByteSize::new(8 << 20);
    config.io_engine = engine;
    let store = Store::open(config).expect("a store");
    for key in 0..OBJECTS {
        store.create(&name(key), GroupId::new(key % groups), &value(key)).wait().expect("created");
    }
    store.sync().expect("synced");
    store
}

#[test]
fn whoever_waits_does_not_wait_for_itself() {
    for engine in [IoEngine::Auto, IoEngine::Threads] {
        let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let store = filled(&dir, engine, 16);
        let _deferral = Deferral::begin(|| {});
        for key in 0..OBJECTS {
            let object = store.read(&name(key)).wait().expect("read").expect("there");
            assert_eq!(&*object, value(key));
            let part = store.read_range(&name(key), 10..20).wait().expect("read");
            assert_eq!(&*part.expect("there"), &value(key)[10..20]);
        }
        let options = WriterOptions::default();
        let mut writer = store.writer(b"large", GroupId::new(1), options).expect("a writer");
        for _ in 0..64 {
            writer.write(&[7; 100_000]).wait().expect("written");
        }
        writer.commit().wait().expect("committed");
        store.set_metadata(&name(1), b"new").wait().expect("set");
        let options = CreateOptions::default();
        store.create_with(&name(1), GroupId::new(1), &value(2), options).wait().expect("created");
        let fetched = store.prefetch(GroupId::new(3)).wait().expect("fetched");
        assert!(fetched.pages > 1, "{fetched:?}");
        assert!(store.remove(&name(4)).expect("removed"));
        store.sync().expect("synced");
        let mut reader = store.reader(b"large").wait().expect("opened").expect("there");
        let mut length = 0;
        while let Some(chunk) = reader.next().wait().expect("read") {
            length += chunk.len();
        }
        assert_eq!(length, 6_400_000);
        store.close().expect("closed");
    }
}

/// The second read follows the first, which nobody has handed over.
#[test]
fn whoever_follows_its_own_read_does_not_wait_for_itself() {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let store = filled(&dir, IoEngine::Auto, OBJECTS);
    let _deferral = Deferral::begin(|| {});
    let mut context = Context::from_waker(Waker::noop());
    let mut followed = 0;
    for key in 0..OBJECTS {
        let mut first = Box::pin(store.read(&name(key)));
        if first.as_mut().poll(&mut context).is_pending() {
            followed += 1;
            let second = store.read(&name(key)).wait().expect("read");
            assert_eq!(&*second.expect("there"), value(key));
        }
    }
    assert!(followed > OBJECTS / 10, "{followed} reads of the disk: not what is tested here");
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls what has not come yet, checks what comes, and returns how many are still to come.
fn poll_all(reads: &mut [(u64, Option<Read>)], context: &mut Context<'_>) -> usize {
    for (key, slot) in reads.iter_mut() {
        let Some(read) = slot else { continue };
        if let Poll::Ready(object) = Pin::new(read).poll(context) {
            assert_eq!(&*object.expect("read").expect("there"), value(*key));
            *slot = None;
        }
    }
    reads.iter().filter(|(_, read)| read.is_some()).count()
}

/// Threads do not defer: a store that may not use io_uring has nothing to test here.
fn hands_over_each_read(store: &Store) -> bool {
    let without = store.info().warnings.iter().any(|warning| warning.contains("io_uring"));
    if without {
        println!("skipped: io_uring is not available");
    }
    without
}

#[test]
fn reads_of_one_turn_go_together() {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let store = filled(&dir, IoEngine::Auto, OBJECTS);
    if hands_over_each_read(&store) {
        return;
    }
    let announced = Rc::new(Cell::new(0_u64));
    let count = Rc::clone(&announced);
    let _deferral = Deferral::begin(move || count.set(count.get() + 1));
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let before = store.stats().object_reads;
    for turn in 0..OBJECTS / 10 {
        // Neighbours on disk are far apart in time: single objects are read, not pages.
        let keys = (10 * turn..10 * turn + 10).map(|place| place * 1_237 % OBJECTS);
        let mut reads: Vec<_> = keys.map(|key| (key, Some(store.read(&name(key))))).collect();
        while poll_all(&mut reads, &mut context) > 0 {
            submit_deferred();
            thread::park();
        }
    }
    let reads = store.stats().object_reads - before;
    assert!(reads >= OBJECTS / 4, "{reads} reads of the disk: not what is tested here");
    assert!(announced.get() > 0, "nothing was put off");
    assert!(announced.get() <= reads / 2, "{} turns for {reads} reads", announced.get());
}

#[test]
fn neighbours_asked_for_in_one_turn_are_one_read_of_their_page() {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let store = filled(&dir, IoEngine::Auto, 16);
    if hands_over_each_read(&store) {
        return;
    }
    let group = GroupId::new(OBJECTS);
    store.love(group);
    for key in OBJECTS..OBJECTS + 8 {
        store.create(&name(key), group, &value(key)).wait().expect("created");
    }
    store.sync().expect("synced");
    store.drop_memory();
    let _deferral = Deferral::begin(|| {});
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let before = store.stats();
    let mut reads: Vec<_> =
        (OBJECTS..OBJECTS + 8).map(|key| (key, Some(store.read(&name(key))))).collect();
    assert_eq!(poll_all(&mut reads, &mut context), 8, "nothing has been handed over");
    submit_deferred();
    while poll_all(&mut reads, &mut context) > 0 {
        submit_deferred();
        thread::park();
    }
    let after = store.stats();
    let pages = after.page_reads - before.page_reads;
    let alone = after.object_reads - before.object_reads;
    let shared = after.shared_reads - before.shared_reads;
    // Eight of 8,000 bytes lie on two pages, which they may share with other groups.
    assert!(pages >= 1 && pages + alone <= 3, "{pages} pages and {alone} objects read");
    assert!(shared >= 5, "{shared} of eight waited for another's read");
}

/// Whether there is something to wait for shows before anything is begun; a part knows its object.
#[test]
fn what_is_in_memory_or_nowhere_is_ready() {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let store = filled(&dir, IoEngine::Auto, 16);
    store.drop_memory();
    let before = store.stats().disk_read_bytes;
    assert!(!store.read(&name(21)).is_ready());
    assert_eq!(store.stats().disk_read_bytes, before, "what is dropped unpolled is not begun");
    let part = store.read_range(&name(21), 5..9).wait().expect("read").expect("there");
    assert_eq!((part.group(), part.offset()), (GroupId::new(21 % 16), 5));
    // Small ones are read whole.
    for key in [&name(21)[..], b"nothing"] {
        assert!(store.read(key).is_ready() && store.lookup(key).is_ready(), "{key:?}");
        assert!(store.length(key).is_ready() && store.reader(key).is_ready(), "{key:?}");
        assert!(store.read_range(key, 1..2).is_ready(), "{key:?}");
    }
    assert_eq!(store.length(&name(21)).wait(), Ok(Some(LENGTH_BYTES as u64)));
    let large = vec![7; 600_000];
    store.create(b"large", GroupId::new(77), &large).wait().expect("created");
    store.sync().expect("synced");
    assert!(store.read(b"large").is_ready());
    store.drop_memory();
    let part = store.read_range(b"large", 300_000..300_009).wait().expect("read").expect("there");
    assert_eq!((part.group(), &*part), (GroupId::new(77), &large[..9]));
    assert!(!store.read(b"large").is_ready(), "a part does not stay");
    assert!(!store.read_range(b"large", 1..2).is_ready());
    assert!(
        store.reader(b"large").is_ready() && store.lookup(b"large").is_ready(),
        "its head does"
    );
    assert_eq!(store.length(b"large").wait(), Ok(Some(large.len() as u64)));
}
