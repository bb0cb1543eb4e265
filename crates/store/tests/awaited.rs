//! Many reads awaited at once: as many as have room go to the disk, the others wait for these
//! without a thread, and those that are dropped meanwhile never begin.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod tapped;
mod troubled;

use std::collections::VecDeque;
use std::future::Future;
use std::ops::{Deref, Range};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use damelo::device::{Device, Io, IoOp};
use damelo::{ByteSize, Config, GroupId, Read, ReadError, ReadRange, Store};
use tapped::{Tap, Tapped};
use troubled::{Disk, Stopped};

const MEMORY_BYTES: u64 = 8 << 20;
const OBJECTS: u32 = 400;

/// A device on which reads are done one by one, when the test says so.
type Slow = Tapped<Submitted>;

/// Submitted reads; `None`: they are done at once.
#[derive(Default)]
struct Submitted(Mutex<Option<VecDeque<Io>>>);

impl Slow {
    /// From now on reads are done when the test says so.
    fn hold(&self) {
        *self.tap.0.lock().unwrap() = Some(VecDeque::new());
    }

    /// Does the read that waits longest; false if there is none.
    fn do_one(&self) -> bool {
        let next = self.tap.0.lock().unwrap().as_mut().unwrap().pop_front();
        next.map(|io| self.disk.submit(io)).is_some()
    }

    fn submitted(&self) -> usize {
        self.tap.0.lock().unwrap().as_ref().unwrap().len()
    }
}

impl Tap for Submitted {
    fn submit(&self, disk: &dyn Device, io: Io) {
        match (&mut *self.0.lock().unwrap(), io.op) {
            (Some(submitted), IoOp::Read) => return submitted.push_back(io),
            (_, IoOp::Read | IoOp::Write) => {}
        }
        disk.submit(io);
    }

    fn before_read(&self) {
        assert!(self.0.lock().unwrap().is_none(), "a thread reads and waits");
    }
}

fn value(key: u32) -> Vec<u8> {
    vec![key as u8; 24_000]
}

fn poll<F, T>(read: &mut F) -> Poll<Option<Vec<u8>>>
where
    F: Future<Output = Result<Option<T>, ReadError>> + Unpin,
    T: Deref<Target = [u8]>,
{
    let polled = Pin::new(read).poll(&mut Context::from_waker(Waker::noop()));
    polled.map(|found| found.unwrap().map(|bytes| bytes.to_vec()))
}

/// A store whose objects are on disk only, and too long for pages: each is read by itself.
fn filled(disk: &Disk) -> (Store, Arc<Slow>) {
    let objects = (0..OBJECTS).map(|key| (key, value(key)));
    let (store, slow) = filled_with(disk, objects);
    slow.hold();
    (store, slow)
}

fn filled_with(disk: &Disk, objects: impl Iterator<Item = (u32, Vec<u8>)>) -> (Store, Arc<Slow>) {
    let mut config = Config::new("awaited", ByteSize::new(64 << 20));
    config.memory = ByteSize::new(MEMORY_BYTES);
    config.background = false;
    config.seed = Some(1);
    let open = |device| {
        let store = Store::open_on(config.clone(), vec![device], Arc::new(Stopped)).unwrap();
        store.wait_recovered();
        store
    };
    let store = open(disk.device());
    for (key, value) in objects {
        let group = GroupId::new(u64::from(key));
        store.create(&key.to_le_bytes(), group, &value).wait().unwrap();
    }
    store.sync().unwrap();
    store.close().unwrap();
    let slow = Arc::new(Slow { disk: disk.device(), tap: Submitted::default() });
    (open(slow.clone()), slow)
}

#[test]
fn reads_begin_as_others_end_and_dropped_ones_never() {
    let disk = Disk::new(64 << 20);
    let (store, slow) = filled(&disk);
    let mut reads = Vec::new();
    for key in 0..OBJECTS {
        let mut read = store.read(&key.to_le_bytes());
        assert!(poll(&mut read).is_pending(), "{key}");
        reads.push((key, read));
    }
    let at_once = slow.submitted();
    let most = (MEMORY_BYTES / 8) as usize / value(0).len();
    assert!((5..=most).contains(&at_once), "{at_once} in an eighth of the memory");
    let queued = OBJECTS as usize - at_once;
    assert_eq!(store.stats().reads_queued, queued as u64);
    reads.retain(|(key, _)| (*key as usize) < at_once || key % 2 == 0);
    let wanted = reads.len();
    let mut done = 0;
    while slow.do_one() {
        done += 1;
        assert_eq!(slow.submitted(), at_once.min(wanted - done), "after {done}");
    }
    assert_eq!(done, wanted);
    for (key, mut read) in reads {
        assert_eq!(poll(&mut read), Poll::Ready(Some(value(key))), "{key}");
    }
}

#[test]
fn reads_of_one_object_that_wait_share_what_the_first_of_them_brings() {
    let disk = Disk::new(64 << 20);
    let (store, slow) = filled(&disk);
    let mut reads: Vec<(u32, Read)> = (0..OBJECTS)
        .map(|at| at.min(100))
        .map(|key| (key, store.read(&key.to_le_bytes())))
        .collect();
    for (key, read) in &mut reads {
        assert!(poll(read).is_pending(), "{key}");
    }
    let mut done = 0;
    while slow.do_one() {
        done += 1;
    }
    assert_eq!(done, 101);
    for (key, mut read) in reads {
        assert_eq!(poll(&mut read), Poll::Ready(Some(value(key))), "{key}");
    }
}

#[test]
fn who_waits_for_the_read_of_another_and_is_dropped_reads_nothing() {
    let disk = Disk::new(64 << 20);
    let (store, slow) = filled(&disk);
    let key = 7_u32;
    let mut reads: Vec<Read> = (0..10).map(|_| store.read(&key.to_le_bytes())).collect();
    for read in &mut reads {
        assert!(poll(read).is_pending());
    }
    assert_eq!((slow.submitted(), store.stats().shared_reads), (1, 9));
    reads.truncate(2);
    assert!(slow.do_one());
    for read in &mut reads {
        assert_eq!(poll(read), Poll::Ready(Some(value(key))));
    }
    let stats = store.stats();
    assert_eq!((stats.hits_disk, stats.hits_memory), (1, 1));
}

/// Closes the store while reads wait: they say so, but those that are on their way.
fn close_under<F, T>(store: Store, slow: &Slow, mut reads: Vec<F>)
where
    F: Future<Output = Result<Option<T>, ReadError>> + Unpin,
    T: std::fmt::Debug,
{
    store.close().unwrap();
    while slow.do_one() {}
    let is_closed = |read: &mut F| {
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(read).poll(&mut cx) {
            Poll::Ready(Err(ReadError::Closed)) => true,
            Poll::Ready(Ok(Some(_))) => false,
            other => panic!("{other:?}"),
        }
    };
    let closed = reads.iter_mut().map(is_closed).filter(|is_closed| *is_closed).count();
    assert!(closed > OBJECTS as usize / 2);
}

#[test]
fn reads_that_wait_when_the_store_closes_say_so() {
    let disk = Disk::new(64 << 20);
    let (store, slow) = filled(&disk);
    let mut reads: Vec<Read> = (0..OBJECTS).map(|key| store.read(&key.to_le_bytes())).collect();
    for read in &mut reads {
        assert!(poll(read).is_pending());
    }
    close_under(store, &slow, reads);
}

const LONG: u32 = 40;
const LONG_BYTES: u64 = 600_000;

fn long_value(key: u32) -> Vec<u8> {
    (0..LONG_BYTES).map(|at| (u64::from(key) + at / 1000) as u8).collect()
}

/// A store with long objects on disk, of which the heads are in memory.
fn with_heads(disk: &Disk) -> (Store, Arc<Slow>) {
    let (store, slow) = filled_with(disk, (0..LONG).map(|key| (key, long_value(key))));
    for key in 0..LONG {
        assert_eq!(store.length(&key.to_le_bytes()).wait(), Ok(Some(LONG_BYTES)));
    }
    slow.hold();
    (store, slow)
}

fn part(at: u32) -> (u32, Range<u64>) {
    // Within a chunk: longer ones are for a thread.
    let start = u64::from(at % 9) * 65_536 + u64::from(at) * 150;
    (at % LONG, start..start + 5000)
}

fn expected(key: u32, range: &Range<u64>) -> Poll<Option<Vec<u8>>> {
    Poll::Ready(Some(long_value(key)[range.start as usize..range.end as usize].to_vec()))
}

#[test]
fn parts_of_long_objects_begin_as_others_end_and_dropped_ones_never() {
    let disk = Disk::new(64 << 20);
    let (store, slow) = with_heads(&disk);
    let ask =
        |(key, range): &(u32, Range<u64>)| store.read_range(&key.to_le_bytes(), range.clone());
    let mut reads: Vec<((u32, Range<u64>), ReadRange)> =
        (0..OBJECTS).map(part).map(|part| (part.clone(), ask(&part))).collect();
    assert_eq!(slow.submitted(), 0, "what is not polled is not begun");
    for (part, read) in &mut reads {
        assert!(poll(read).is_pending(), "{part:?}");
    }
    let at_once = slow.submitted();
    assert!(
        (3..=(MEMORY_BYTES / 8 / 65_536) as usize).contains(&at_once),
        "{at_once} of 64 KiB each"
    );
    assert_eq!(store.stats().reads_queued, u64::from(OBJECTS) - at_once as u64);
    let mut number = 0;
    reads.retain(|_| {
        number += 1;
        number <= at_once || number % 2 == 0
    });
    // What is read holds memory until its caller lets go of it.
    let wanted = reads.len();
    let mut done = 0;
    while slow.do_one() {
        done += 1;
        reads.retain_mut(|((key, range), read)| match poll(read) {
            Poll::Pending => true,
            ready => {
                assert_eq!(ready, expected(*key, range), "{range:?} of {key}");
                false
            }
        });
        assert_eq!(reads.len(), wanted - done);
    }
    assert!(reads.is_empty());
    let stats = store.stats();
    assert_eq!(stats.range_reads - u64::from(LONG), done as u64);
}

#[test]
fn a_reader_goes_on_without_a_thread_that_waits() {
    let disk = Disk::new(64 << 20);
    let (store, slow) = with_heads(&disk);
    let mut reader = store.reader(&7_u32.to_le_bytes()).wait().unwrap().unwrap();
    let mut bytes = Vec::new();
    for start in (0..=LONG_BYTES).step_by(65_536) {
        reader.select(start..start + 65_536);
        let mut piece = reader.next();
        let polled = match poll(&mut piece) {
            Poll::Pending => {
                assert!(slow.do_one());
                poll(&mut piece)
            }
            ready @ Poll::Ready(_) => ready,
        };
        let Poll::Ready(piece) = polled else { panic!("the read was done") };
        match piece {
            Some(piece) => bytes.extend(piece),
            None => panic!("it is not at its end"),
        }
    }
    assert!(bytes == long_value(7));
}

#[test]
fn parts_that_wait_when_the_store_closes_say_so() {
    let disk = Disk::new(64 << 20);
    let (store, slow) = with_heads(&disk);
    let mut reads: Vec<ReadRange> = (0..OBJECTS)
        .map(part)
        .map(|(key, range)| store.read_range(&key.to_le_bytes(), range))
        .collect();
    for read in &mut reads {
        assert!(poll(read).is_pending());
    }
    close_under(store, &slow, reads);
}

#[test]
fn a_part_that_is_first_polled_after_the_close_is_not_read() {
    let disk = Disk::new(64 << 20);
    let (store, slow) = with_heads(&disk);
    let mut read = store.read_range(&7_u32.to_le_bytes(), 5..9);
    store.close().unwrap();
    let polled = Pin::new(&mut read).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Err(ReadError::Closed))), "{polled:?}");
    assert_eq!(slow.submitted(), 0);
}

/// A task that gave up is not kept alive until its I/O is done.
#[test]
fn a_dropped_read_leaves_no_waker_behind() {
    struct Task;
    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }
    let disk = Disk::new(64 << 20);
    let (store, slow) = filled(&disk);
    let task = Arc::new(Task);
    let waker = Waker::from(Arc::clone(&task));
    let mut read = store.read(&1_u32.to_le_bytes());
    assert!(Pin::new(&mut read).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    assert_eq!(Arc::strong_count(&task), 2, "the read would wake it");
    drop(read);
    assert_eq!(Arc::strong_count(&task), 1);
    assert!(slow.do_one() && !slow.do_one(), "the I/O is not done yet");
}
