//! A store is closed while its threads have work: they leave it undone, since the files are free
//! only once they have let go of them. And what is asked of it after that says that it is closed.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod tapped;
mod troubled;

use std::pin::pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use damelo::device::{Device, Io};
use damelo::{
    ByteSize, Config, CreateError, GroupId, IoEngine, OpenError, ReadError, Store, SyncError,
};
use tapped::{Tap, Tapped};
use troubled::{Disk, Stopped, put};

fn open(disks: &[Disk]) -> Store {
    open_waiting(disks, Duration::from_secs(4))
}

/// Of which creates and reads wait for memory as long as this.
fn open_waiting(disks: &[Disk], memory_wait: Duration) -> Store {
    let size_bytes = disks[0].with_bytes(<[u8]>::len) as u64;
    let mut config = Config::new("closing", ByteSize::new(size_bytes));
    config.memory = ByteSize::new(8 << 20);
    config.page = Some(ByteSize::new(16 << 10));
    config.segment = Some(ByteSize::new(1 << 20));
    config.checkpoint_period = Duration::ZERO;
    config.memory_wait = memory_wait;
    let devices = disks.iter().map(Disk::device).collect();
    Store::open_on(config, devices, Arc::new(Stopped)).unwrap()
}

/// A store with so many objects of one group, on disk only.
fn filled(disk: &Disk, objects: u32) -> Store {
    let store = open(std::slice::from_ref(disk));
    (0..objects).for_each(|n| put(&store, &format!("key/{n}"), 1, &[7; 5_000]));
    store.sync().unwrap();
    store.drop_memory();
    store
}

fn polled<T>(operation: impl Future<Output = T>) -> Poll<T> {
    pin!(operation).poll(&mut Context::from_waker(Waker::noop()))
}

/// How long it takes to close it.
fn closed(store: Store) -> Duration {
    let begun = Instant::now();
    store.close().unwrap();
    begun.elapsed()
}

#[test]
fn a_prefetch_under_way_ends_with_the_store() {
    let disk = Disk::new(32 << 20);
    let store = filled(&disk, 600);
    disk.set_read_delay_ms(10);
    assert!(polled(store.prefetch(GroupId::new(1))).is_pending());
    std::thread::sleep(Duration::from_millis(50));
    let (at_close, took) = (store.clone(), closed(store));
    let read = |store: &Store| store.stats().page_reads;
    let then = read(&at_close);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(read(&at_close), then, "pages are read for a store closed in {took:?}");
}

/// Many more than there are threads.
#[test]
fn reads_that_wait_for_a_thread_end_with_the_store() {
    const READ_MS: u64 = 20;
    let disk = Disk::new(32 << 20);
    let store = filled(&disk, 600);
    disk.set_read_delay_ms(READ_MS);
    let mut context = Context::from_waker(Waker::noop());
    let part = |n| Box::pin(store.read_range(format!("key/{n}").as_bytes(), 0..10));
    let mut reads: Vec<_> = (0..600).map(part).collect();
    for read in &mut reads {
        assert!(read.as_mut().poll(&mut context).is_pending());
    }
    let took = closed(store);
    let still =
        reads.iter_mut().map(|read| u32::from(read.as_mut().poll(&mut context).is_pending()));
    let still: u32 = still.sum();
    assert_eq!(still, 0, "are read for a store closed in {took:?}");
}

#[test]
fn volumes_that_hang_are_not_waited_for_one_after_the_other() {
    let disks: Vec<_> = (0..4).map(|_| Disk::new(32 << 20)).collect();
    let store = open(&disks);
    disks.iter().for_each(Disk::never_settle);
    store.close().unwrap();
    let is_waited_for = |disk: &&Disk| !disk.waited_to_settle().is_zero();
    assert!(disks.iter().filter(is_waited_for).count() <= 1, "no time is left for the others");
}

/// A long create waits for memory that is read for as long as it waits.
#[test]
fn a_long_create_that_waits_for_memory_ends_with_the_store() {
    let disk = Disk::new(64 << 20);
    let store = filled(&disk, 2_000);
    let read = |n| store.read(format!("key/{n}").as_bytes()).wait();
    let held: Vec<_> = (0..2_000).map_while(|n| read(n).ok()).collect();
    let mut context = Context::from_waker(Waker::noop());
    let mut create = store.create(b"long", GroupId::new(2), &vec![1; 3 << 20]);
    assert!(pin!(&mut create).poll(&mut context).is_pending());
    std::thread::sleep(Duration::from_millis(100));
    assert!(pin!(&mut create).poll(&mut context).is_pending());
    let took = closed(store);
    let ended = pin!(&mut create).poll(&mut context);
    assert!(matches!(ended, Poll::Ready(Err(CreateError::Closed))), "{ended:?} after {took:?}");
    drop(held);
}

/// Guards hold all memory, and would for as long as the reads may wait.
#[test]
fn reads_that_wait_for_memory_end_with_the_store() {
    let disk = Disk::new(64 << 20);
    filled(&disk, 3_000).close().unwrap();
    let store = open_waiting(&[disk], Duration::from_secs(36_000));
    store.wait_recovered();
    let mut context = Context::from_waker(Waker::noop());
    let (mut held, mut waiting) = (Vec::new(), Vec::new());
    for n in 0..3_000 {
        waiting.push(Box::pin(store.read(format!("key/{n}").as_bytes())));
        waiting.retain_mut(|read| match read.as_mut().poll(&mut context) {
            Poll::Ready(object) => {
                held.extend(object.unwrap());
                false
            }
            Poll::Pending => true,
        });
        if waiting.len() == 20 {
            break;
        }
    }
    while store.stats().read_waits == 0 {
        std::thread::yield_now();
    }
    let took = closed(store);
    for read in &mut waiting {
        // On a busy machine all of them may have been given memory that came free for a moment.
        let outcome = read.as_mut().poll(&mut context);
        assert!(outcome.is_ready(), "it waits on, and the store is closed since {took:?}");
    }
    drop(held);
}

/// It would say that the store is still open, after the one that says how it was closed.
#[test]
fn a_closed_store_writes_no_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::new(dir.path().join("store"), ByteSize::new(64 << 20));
    let store = Store::open(config).unwrap();
    let other = store.clone();
    store.close().unwrap();
    assert!(matches!(other.checkpoint(), Err(SyncError::Closed)));
}

/// What was there is known, and what was not as well.
#[test]
fn a_closed_store_tells_what_it_may_contain() {
    let disk = Disk::new(32 << 20);
    let store = filled(&disk, 10);
    let other = store.clone();
    store.close().unwrap();
    assert!(other.may_contain(b"key/1") && !other.may_contain(b"never there"));
    assert!(matches!(other.read(b"key/1").wait(), Err(ReadError::Closed)));
}

/// Whoever lists must not take a part of a store for all of it.
#[test]
fn a_listing_breaks_off_when_the_store_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let store =
        Store::open(Config::new(dir.path().join("store"), ByteSize::new(64 << 20))).unwrap();
    for key in 0_u32..10 {
        store.create(&key.to_le_bytes(), GroupId::new(1), b"value").wait().unwrap();
    }
    store.sync().unwrap();
    let (mut begun, mut ended) = (store.entries(), store.entries());
    assert!(begun.next().unwrap().is_ok());
    assert_eq!(ended.by_ref().filter(Result::is_ok).count(), 10);
    store.close().unwrap();
    assert!(matches!(begun.next(), Some(Err(ReadError::Closed))));
    assert!(begun.next().is_none() && ended.next().is_none());
}

/// A waker that keeps a task alive, which owns the last handle.
#[derive(Default)]
struct Owner(Mutex<Option<Store>>);

impl Wake for Owner {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
    }
}

/// The thread that completes the read calls the waker, and only it could complete what a close
/// waits for.
#[test]
fn a_store_whose_last_handle_a_waker_drops_is_closed() {
    for engine in [IoEngine::Threads, IoEngine::Auto] {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::new(dir.path().join("store"), ByteSize::new(64 << 20));
        (config.memory, config.io_engine) = (ByteSize::new(8 << 20), engine);
        (config.flush_period, config.checkpoint_period) =
            (Duration::from_secs(3_600), Duration::ZERO);
        let store = Store::open(config.clone()).unwrap();
        (0..200).for_each(|n| put(&store, &format!("key/{n}"), 1, &[7; 50_000]));
        store.sync().unwrap();
        store.drop_memory();
        put(&store, "last", 2, b"value");

        let owner = Arc::new(Owner::default());
        let waker = Waker::from(Arc::clone(&owner));
        let read_of = |n| Box::pin(store.read(format!("key/{n}").as_bytes()));
        let mut reads = (0..200).map(read_of).collect::<Vec<_>>().into_iter();
        *owner.0.lock().unwrap() = Some(store);
        // One that is over before anybody waits for it has no waker.
        let mut context = Context::from_waker(&waker);
        let waits = reads
            .find_map(|mut read| read.as_mut().poll(&mut context).is_pending().then_some(read));
        assert!(waits.is_some(), "{engine:?}: none waited");
        // The others have not begun, and hold the store.
        drop(reads);

        let begun = Instant::now();
        let store = loop {
            match Store::open(config.clone()) {
                Ok(store) => break store,
                Err(OpenError::Device(error)) if begun.elapsed() > Duration::from_secs(60) => {
                    panic!("{engine:?}: it is not closed: {error}")
                }
                Err(OpenError::Device(_)) => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => panic!("{engine:?}: {error}"),
            }
        };
        let last = store.read(b"last").wait().unwrap();
        assert_eq!(last.as_deref(), Some(&b"value"[..]), "{engine:?}: what a close writes");
    }
}

/// Hands all I/O to a thread of its own, which completes it.
struct Apart(Sender<Io>);

impl Tap for Apart {
    fn submit(&self, _disk: &dyn Device, io: Io) {
        self.0.send(io).unwrap();
    }
}

/// The same with a device of the program's, of whose threads the store knows nothing.
#[test]
fn a_store_whose_last_handle_is_dropped_on_a_device_s_own_thread_is_closed() {
    let disk = Disk::new(32 << 20);
    filled(&disk, 600).close().unwrap();
    let (submit, submitted) = channel::<Io>();
    let device = Arc::new(Tapped { disk: disk.device(), tap: Apart(submit) });
    let (below, is_there) = (disk.device(), Arc::downgrade(&device));
    let gate = Arc::new(Mutex::new(()));
    let opens = Arc::clone(&gate);
    std::thread::spawn(move || {
        for io in submitted {
            let _open = opens.lock().unwrap();
            below.submit(io);
        }
    });
    let mut config = Config::new("closing", ByteSize::new(32 << 20));
    config.memory = ByteSize::new(8 << 20);
    config.checkpoint_period = Duration::ZERO;
    config.flush_period = Duration::from_secs(3_600);
    let store = Store::open_on(config, vec![device], Arc::new(Stopped)).unwrap();
    store.wait_recovered();
    put(&store, "last", 2, b"value");
    let owner = Arc::new(Owner::default());
    let waker = Waker::from(Arc::clone(&owner));
    let mut context = Context::from_waker(&waker);
    let shut = gate.lock().unwrap();
    let mut read = Box::pin(store.read(b"key/1"));
    assert!(read.as_mut().poll(&mut context).is_pending());
    *owner.0.lock().unwrap() = Some(store);
    drop(shut);
    let begun = Instant::now();
    while is_there.strong_count() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is not closed");
        std::thread::sleep(Duration::from_millis(5));
    }
    let store = open(&[disk]);
    let last = store.read(b"last").wait().unwrap();
    assert_eq!(last.as_deref(), Some(&b"value"[..]), "what a close writes");
}
