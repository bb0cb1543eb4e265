//! Operations as futures, on an executor of a few lines: no runtime is needed.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use bytes::Bytes;
use damelo::policy::{AdmissionPolicy, Newcomer};
use damelo::{ByteSize, Config, CreateOptions, Durability, GroupId, IoEngine, Store};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
        std::thread::park();
    }
}

#[test]
fn everything_can_be_awaited() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(32 << 20));
    config.memory = ByteSize::new(4 << 20);
    let store = Store::open(config).unwrap();
    block_on(async {
        for key in 0..1000_u32 {
            let bytes = vec![key as u8; 5000];
            store.create(&key.to_le_bytes(), GroupId::new(1), &bytes).await.unwrap();
        }
        store.sync().unwrap();
        store.drop_memory();
        for key in (0..1000_u32).rev() {
            let object = store.read(&key.to_le_bytes()).await.unwrap().unwrap();
            assert_eq!(&*object, vec![key as u8; 5000]);
        }
        let mut writer = store.writer(b"w", GroupId::new(2), Default::default()).unwrap();
        for _ in 0..50 {
            writer.write(&[9; 60_000]).await.unwrap();
        }
        writer.commit().await.unwrap();
        let mut reader = store.reader(b"w").await.unwrap().unwrap();
        let mut total = 0;
        while let Some(piece) = reader.next().await.unwrap() {
            assert!(piece.iter().all(|byte| *byte == 9));
            total += piece.len();
        }
        assert_eq!(total, 50 * 60_000);
        assert_eq!(store.length(b"w").await.unwrap(), Some(3_000_000));
        let report = store.prefetch(GroupId::new(1)).await.unwrap();
        assert!(report.pages > 0);
    });
}

/// Lengths on both sides of what pages, single runs, submitted reads and single records can take.
#[test]
fn pieces_come_back_as_one_however_long() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(128 << 20));
    config.memory = ByteSize::new(32 << 20);
    let store = Store::open(config).unwrap();
    let lengths = [0, 1, 30_000, 40_000, 65_536, 66_000, 200_000, 300_000, 1_000_000, 3_000_000];
    let value = |length: usize| -> Vec<u8> { (0..length).map(|at| (at % 251) as u8).collect() };
    block_on(async {
        for length in lengths {
            let whole = value(length);
            let pieces: Vec<&[u8]> = whole.chunks(9_973).collect();
            let key = length.to_le_bytes();
            let options = CreateOptions { metadata: b"head", ..CreateOptions::default() };
            store.create_pieces(&key, GroupId::new(1), &pieces, options).await.unwrap();
        }
        for on_disk in [false, true] {
            if on_disk {
                store.sync().unwrap();
                store.drop_memory();
            }
            for length in lengths {
                let object = store.read(&length.to_le_bytes()).await.unwrap().unwrap();
                assert!(*object == value(length), "{length} bytes, from disk: {on_disk}");
                assert_eq!(object.metadata(), b"head");
            }
        }
    });
}

/// Bytes, and who holds them.
struct Held {
    bytes: Vec<u8>,
    _holder: Arc<()>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A copy would take the caller's time, and memory beside what was declared.
#[test]
fn long_bytes_are_shared_until_they_are_stored() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(64 << 20));
    config.memory = ByteSize::new(8 << 20);
    let store = Store::open(config).unwrap();
    let value: Vec<u8> = (0..3_000_000).map(|at| (at % 251) as u8).collect();
    let holders = Arc::new(());
    let create = |length: usize| {
        let bytes = value[..length].to_vec();
        let bytes = Bytes::from_owner(Held { bytes, _holder: Arc::clone(&holders) });
        let pieces = [bytes.slice(..9), bytes.slice(9..)];
        store.create_bytes(b"key", GroupId::new(1), &pieces, CreateOptions::default())
    };
    let is_stored = |length: usize| {
        let mut reader = store.reader(b"key").wait().unwrap().unwrap();
        let mut stored = Vec::new();
        while let Some(piece) = reader.next().wait().unwrap() {
            stored.extend_from_slice(&piece);
        }
        stored == value[..length]
    };
    let short = create(1_000);
    assert!(short.is_ready() && Arc::strong_count(&holders) == 1, "it lies where it will stay");
    short.wait().unwrap();
    assert!(is_stored(1_000));
    for awaited in [true, false] {
        let long = create(value.len());
        assert!(!long.is_ready());
        assert_eq!(Arc::strong_count(&holders), 2, "the operation holds them");
        if awaited { block_on(long) } else { long.wait() }.unwrap();
        assert_eq!(Arc::strong_count(&holders), 1);
        assert!(is_stored(value.len()));
    }
    drop(create(value.len()));
    assert_eq!(Arc::strong_count(&holders), 1);
}

/// Waking a thread takes longer than all that these do.
#[test]
fn what_is_small_and_in_memory_needs_no_other_thread() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(32 << 20));
    config.memory = ByteSize::new(4 << 20);
    let store = Store::open(config).unwrap();
    block_on(store.create(b"a", GroupId::new(1), &[1; 3000])).unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    for round in 0..100_u8 {
        let set = pin!(store.set_metadata(b"a", &[round])).as_mut().poll(&mut cx);
        assert!(matches!(set, Poll::Ready(Ok(true))), "{round}: {set:?}");
        let found = pin!(store.lookup(b"a")).as_mut().poll(&mut cx);
        let Poll::Ready(Ok(Some(info))) = found else { panic!("{round}: {found:?}") };
        assert_eq!(
            (info.metadata.to_vec(), info.length_bytes, info.resident),
            (vec![round], 3000, true)
        );
    }
}

/// It is told of bytes in the thread that ends the commit.
struct Panics;

impl AdmissionPolicy for Panics {
    fn admit(&self, _new: &Newcomer<'_>) -> Result<(), &'static str> {
        Ok(())
    }

    fn written_beside(&self, _bytes: u64, _now: Duration) {
        panic!("a policy of the test's own");
    }
}

/// More often than there are threads.
#[test]
fn a_policy_that_panics_in_a_thread_of_the_store_panics_in_who_waits() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(64 << 20));
    config.memory = ByteSize::new(8 << 20);
    config.own_policies.admission = Some(Arc::new(Panics));
    let store = Store::open(config).unwrap();
    for round in 0..20_u8 {
        let commit = async {
            let mut writer = store.writer(b"key", GroupId::new(1), Default::default()).unwrap();
            writer.write(&vec![round; 2 << 20]).await.unwrap();
            writer.commit().await
        };
        let panicked = catch_unwind(AssertUnwindSafe(|| block_on(commit)));
        assert!(panicked.is_err(), "{round}: {panicked:?}");
    }
    assert_eq!(block_on(store.length(b"other")), Ok(None), "the threads do other things");
}

/// One read of the newer metadata, which lie apart, one of the head of the older record, and one of
/// the value.
#[test]
fn an_object_with_newer_metadata_is_read_without_reading_anything_twice() {
    for engine in [IoEngine::Threads, IoEngine::Auto] {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::new(dir.path().join("store"), ByteSize::new(64 << 20));
        (config.memory, config.io_engine) = (ByteSize::new(8 << 20), engine);
        let store = Store::open(config).unwrap();
        let bytes = vec![7; 200_000];
        store.create(b"a", GroupId::new(1), &bytes).wait().unwrap();
        store.sync().unwrap();
        assert!(store.set_metadata(b"a", b"new").wait().unwrap());
        store.sync().unwrap();
        for awaited in [false, true] {
            store.drop_memory();
            let before = store.stats();
            let read = store.read(b"a");
            let object = if awaited { block_on(read) } else { read.wait() }.unwrap().unwrap();
            assert!(object[..] == bytes && object.metadata() == b"new");
            let after = store.stats();
            let newer = after.object_reads + after.page_reads;
            let newer = newer - before.object_reads - before.page_reads;
            let ranges = after.range_reads - before.range_reads;
            assert_eq!((newer, ranges), (1, 2), "awaited: {awaited}");
        }
    }
}

#[test]
fn an_object_stays_in_memory_while_its_new_metadata_wait_and_after() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(64 << 20));
    (config.memory, config.flush_period) = (ByteSize::new(8 << 20), Duration::from_secs(3600));
    let store = Store::open(config).unwrap();
    let bytes = vec![7; 200_000];
    store.create(b"a", GroupId::new(1), &bytes).wait().unwrap();
    store.sync().unwrap();
    let reads = || {
        let stats = store.stats();
        stats.object_reads + stats.page_reads + stats.range_reads
    };
    let check = |new: &[u8]| {
        let object = block_on(store.read(b"a")).unwrap().unwrap();
        assert!(object[..] == bytes && object.metadata() == new);
    };
    for new in [&b"one"[..], b"two"] {
        // A checkpoint, which is written when the store likes, does not let them wait.
        loop {
            let written = store.stats().pages_written;
            assert!(store.set_metadata(b"a", new).wait().unwrap());
            let before = reads();
            for _ in 0..5 {
                check(new);
            }
            if store.stats().pages_written == written {
                assert!(reads() - before <= 2, "of the head and the value, once");
                break;
            }
        }
        let before = reads();
        let range = store.read_range(b"a", 5..10).wait().unwrap().unwrap();
        assert_eq!((&*range, reads()), (&bytes[5..10], before));
    }
    let before = reads();
    store.sync().unwrap();
    check(b"two");
    assert_eq!(reads(), before, "it is in memory once they are written, too");
    store.remove(b"a").unwrap();
    assert!(store.read(b"a").wait().unwrap().is_none());
}

/// A record of what is replaced must be on the disk before the create is acknowledged.
#[test]
fn what_waits_for_a_sync_of_the_disk_is_not_done_in_the_call() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(32 << 20));
    config.memory = ByteSize::new(4 << 20);
    config.object_bytes_max = ByteSize::new(1 << 20);
    config.durability = Durability::Synced;
    let store = Store::open(config).unwrap();
    store.wait_recovered();
    let group = GroupId::new(1);
    let value_of = |key: &[u8]| store.read(key).wait().unwrap().map(|object| object.to_vec());
    let create = |key: &[u8]| store.create(key, group, b"value");
    let first = create(b"key");
    assert!(first.is_ready(), "nothing is replaced");
    first.wait().unwrap();

    let replaces = store.create(b"key", group, b"newer");
    assert!(!replaces.is_ready());
    assert_eq!(value_of(b"key").unwrap(), b"value");
    block_on(replaces).unwrap();
    assert_eq!(value_of(b"key").unwrap(), b"newer");

    let renews = store.set_metadata(b"key", b"metadata");
    assert!(!renews.is_ready());
    assert!(block_on(renews).unwrap());
    assert_eq!(&*store.lookup(b"key").wait().unwrap().unwrap().metadata, b"metadata");

    let mut writer = store.writer(b"key", group, Default::default()).unwrap();
    writer.write(b"newest").wait().unwrap();
    let commit = writer.commit();
    assert!(!commit.is_ready());
    block_on(commit).unwrap();
    assert_eq!(value_of(b"key").unwrap(), b"newest");

    let refused = store.create(b"key", group, &vec![1; 2 << 20]);
    assert!(!refused.is_ready(), "what it was to replace is removed");
    assert!(block_on(refused).is_err());
    assert_eq!(value_of(b"key"), None);

    create(b"key").wait().unwrap();
    let mut writer = store.writer(b"key", group, Default::default()).unwrap();
    writer.set_metadata(vec![1; 2 << 20]);
    let refused = writer.commit();
    assert!(!refused.is_ready());
    assert!(block_on(refused).is_err());
    assert_eq!(value_of(b"key"), None);
    assert!(store.create(b"other", group, &vec![1; 2 << 20]).is_ready(), "nothing is there");
}

/// Tells that it was called, and panics.
struct Panicking(mpsc::SyncSender<()>);

impl Wake for Panicking {
    fn wake(self: Arc<Self>) {
        // The test may have heard enough.
        let _ = self.0.send(());
        panic!("a waker of the test's own");
    }
}

/// It is called by the thread that completes all I/O of the volume.
#[test]
fn a_waker_that_panics_harms_nobody_else() {
    for engine in [IoEngine::Threads, IoEngine::Auto] {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::new(dir.path().join("store"), ByteSize::new(64 << 20));
        (config.memory, config.io_engine) = (ByteSize::new(8 << 20), engine);
        let store = Store::open(config).unwrap();
        let key = |n: u32| n.to_le_bytes();
        for n in 0..100 {
            store.create(&key(n), GroupId::new(1), &[7; 50_000]).wait().unwrap();
        }
        store.sync().unwrap();
        store.drop_memory();
        let (called, calls) = mpsc::sync_channel(100);
        let waker = Waker::from(Arc::new(Panicking(called)));
        let mut reads: Vec<_> = (0..50).map(|n| Box::pin(store.read(&key(n)))).collect();
        let mut cx = Context::from_waker(&waker);
        reads.retain_mut(|read| read.as_mut().poll(&mut cx).is_pending());
        assert!(!reads.is_empty(), "{engine:?}: none waited");
        calls.recv().unwrap();
        for read in reads {
            assert_eq!(block_on(read).unwrap().unwrap().len(), 50_000, "{engine:?}");
        }
        for n in 50..100 {
            assert_eq!(block_on(store.read(&key(n))).unwrap().unwrap().len(), 50_000, "{engine:?}");
        }
        store.close().unwrap();
    }
}
