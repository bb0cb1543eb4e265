//! Stores on a volume whose device says nothing for a while, and then does what it was asked, or
//! fails all of it at once: the reset of a link or a controller, a path to a disk that is away.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod troubled;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use damelo::{ByteSize, Clock, Config, Read, Store};
use troubled::{Disk, get, put};

/// A clock that is told what time it is.
#[derive(Default)]
struct Told(AtomicU64);

impl Told {
    fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Clock for Told {
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn unix_seconds(&self) -> u64 {
        1_700_000_000
    }
}

const DISK_BYTES: usize = 24 << 20;

fn open(disks: &[Disk], clock: &Arc<Told>) -> Store {
    let mut config = Config::new("first", ByteSize::new(DISK_BYTES as u64));
    for _ in &disks[1..] {
        config.volumes.push(config.volumes[0].clone());
    }
    config.memory = ByteSize::new(16 << 20);
    config.page = Some(ByteSize::new(16 << 10));
    config.segment = Some(ByteSize::new(256 << 10));
    config.volume_errors_max = 4;
    config.checkpoint_period = Duration::ZERO;
    config.seed = Some(1);
    let devices = disks.iter().map(Disk::device).collect();
    let clock = Arc::clone(clock);
    let store = Store::open_on(config, devices, clock).unwrap();
    store.wait_recovered();
    store
}

/// Too long for a page, so that each is read by itself.
fn value(n: u32) -> Vec<u8> {
    let mut bytes = vec![7; 9_000];
    bytes[..4].copy_from_slice(&n.to_le_bytes());
    bytes
}

/// Objects that are on disk and not in memory.
fn put_on_disk(store: &Store, count: u32) {
    (0..count).for_each(|n| put(store, &n.to_string(), 1, &value(n)));
    store.sync().unwrap();
    store.drop_memory();
}

fn poll(read: &mut Read) -> Poll<Option<Vec<u8>>> {
    let read = Pin::new(read).poll(&mut Context::from_waker(Waker::noop()));
    read.map(|found| found.unwrap().map(|object| object.to_vec()))
}

/// Reads that are under way.
fn begin(store: &Store, keys: impl IntoIterator<Item = u32>) -> Vec<(u32, Read)> {
    let begin = |n: u32| {
        let mut read = store.read(n.to_string().as_bytes());
        assert!(poll(&mut read).is_pending(), "{n}");
        (n, read)
    };
    keys.into_iter().map(begin).collect()
}

fn is_in_service(store: &Store) -> bool {
    store.info().volumes[0].in_service
}

/// A link that is reset fails all that is under way, and is well again.
#[test]
fn what_fails_at_once_counts_as_one_error() {
    let (disk, clock) = ([Disk::new(DISK_BYTES)], Arc::default());
    let store = open(&disk, &clock);
    put_on_disk(&store, 200);
    disk[0].hang(true);
    let mut reads = begin(&store, 0..64);
    assert_eq!(disk[0].hanging(), 64);
    disk[0].set_fails(true);
    disk[0].end_reads(64);
    assert!(reads.iter_mut().all(|(_, read)| poll(read) == Poll::Ready(None)));
    assert!(is_in_service(&store));
    disk[0].set_fails(false);
    disk[0].hang(false);
    assert!((64..200).all(|n| get(&store, &n.to_string()) == Some(value(n))));
}

#[test]
fn what_fails_one_after_the_other_takes_the_volume_out_however_much_is_under_way() {
    let (disk, clock) = ([Disk::new(DISK_BYTES)], Arc::default());
    let store = open(&disk, &clock);
    put_on_disk(&store, 200);
    disk[0].hang(true);
    let _reads = begin(&store, 0..64);
    disk[0].set_fails(true);
    // A path that gives up one by one.
    for _ in 0..3 {
        disk[0].end_reads(1);
        clock.advance(Duration::from_secs(1));
    }
    assert!(is_in_service(&store));
    disk[0].end_reads(1);
    assert!(!is_in_service(&store));

    let disk = [Disk::new(DISK_BYTES)];
    let store = open(&disk, &clock);
    put_on_disk(&store, 200);
    disk[0].set_fails(true);
    // Each is asked for after the one before has failed.
    (0..3).for_each(|n| assert_eq!(get(&store, &n.to_string()), None));
    assert!(is_in_service(&store));
    assert_eq!(get(&store, "3"), None);
    assert!(!is_in_service(&store));
}
