//! Stores on a volume whose device says nothing for a while, and then does what it was asked, or
//! fails all of it at once: the reset of a link or a controller, a path to a disk that is away.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod troubled;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use damelo::{ByteSize, Clock, Config, GroupId, MetadataError, Object, Read, ReadError, Store};
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
    open_with(disks, clock, |_| ())
}

fn open_with(disks: &[Disk], clock: &Arc<Told>, change: impl FnOnce(&mut Config)) -> Store {
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
    change(&mut config);
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

/// The outcome of a read that is polled, by whatever thread it comes.
fn outcome_of(mut read: Read) -> Result<Option<Object>, ReadError> {
    loop {
        if let Poll::Ready(outcome) = poll_once(&mut read) {
            return outcome;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn poll_once(read: &mut Read) -> Poll<Result<Option<Object>, ReadError>> {
    Pin::new(read).poll(&mut Context::from_waker(Waker::noop()))
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

/// Of these objects, on two disks, those on the second.
fn on_second(store: &Store, disks: &[Disk], count: u32) -> Vec<u32> {
    disks[1].hang(true);
    let mut on_second = Vec::new();
    for n in 0..count {
        let mut read = store.read(n.to_string().as_bytes());
        if poll(&mut read).is_pending() {
            disks[1].end_reads(1);
            assert_eq!(poll(&mut read), Poll::Ready(Some(value(n))));
            on_second.push(n);
        }
    }
    disks[1].hang(false);
    store.drop_memory();
    on_second
}

#[test]
fn reads_that_a_volume_does_not_answer_hold_up_no_reads_of_another() {
    let (disks, clock) = ([Disk::new(DISK_BYTES), Disk::new(DISK_BYTES)], Arc::default());
    let store = open(&disks, &clock);
    put_on_disk(&store, 800);
    let on_second = on_second(&store, &disks, 800);
    assert!(on_second.len() > 200 && on_second.len() < 600, "{} of 800", on_second.len());
    disks[1].hang(true);
    let mut reads = begin(&store, on_second.iter().copied());
    assert!(disks[1].hanging() < reads.len(), "they would take too much memory together");
    for n in (0..800).filter(|n| !on_second.contains(n)) {
        let mut read = store.read(n.to_string().as_bytes());
        assert_eq!(poll(&mut read), Poll::Ready(Some(value(n))));
    }
    disks[1].hang(false);
    disks[1].end_reads(disks[1].hanging());
    assert!(reads.iter_mut().all(|(n, read)| poll(read) == Poll::Ready(Some(value(*n)))));
}

fn is_unanswered<T>(read: Result<Option<T>, ReadError>) -> bool {
    matches!(read, Err(ReadError::Unanswered { waited_ms: 5_000 }))
}

#[test]
fn a_volume_that_answers_nothing_is_not_asked_until_it_does() {
    let (disks, clock) = ([Disk::new(DISK_BYTES), Disk::new(DISK_BYTES)], Arc::default());
    let store = open(&disks, &clock);
    put_on_disk(&store, 100);
    let on_second = on_second(&store, &disks, 100);
    let on_first = (0..100).find(|n| !on_second.contains(n)).unwrap();
    let (asked, other) = (on_second[0], on_second[1].to_string());
    let before = store.stats();
    disks[1].hang(true);
    let mut reads = begin(&store, [asked]);
    clock.advance(Duration::from_millis(4_999));
    reads.extend(begin(&store, [on_second[2]]));
    assert_eq!(store.stats().volumes_unanswering, 0);

    clock.advance(Duration::from_millis(1));
    let transfers = disks[1].transfers();
    for key in [asked.to_string().as_bytes(), other.as_bytes()] {
        let polled = Pin::new(&mut store.read(key)).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(read) if is_unanswered(read.clone())));
        assert!(is_unanswered(store.read(key).wait()));
        assert!(is_unanswered(store.read_range(key, 0..9).wait()));
        assert!(is_unanswered(store.reader(key).wait()));
        assert!(is_unanswered(store.lookup(key).wait()));
        assert!(store.may_contain(key));
        let set = store.set_metadata(key, b"new").wait();
        assert_eq!(set, Err(MetadataError::Unanswered { waited_ms: 5_000 }));
    }
    store.prefetch(GroupId::new(1)).wait().unwrap();
    assert_eq!((disks[1].hanging(), disks[1].transfers()), (2, transfers), "it is left alone");
    assert_eq!(get(&store, &on_first.to_string()), Some(value(on_first)));
    let (now, info) = (store.stats(), store.info());
    assert_eq!((now.volumes_unanswering, now.reads_unanswered > 10), (1, true));
    assert_eq!((now.index_objects, now.misses_io), (before.index_objects, before.misses_io));
    assert_eq!(now.journal_records, before.journal_records, "nothing is forgotten");
    let silent: Vec<_> = info.volumes.iter().map(|volume| volume.unanswering_for).collect();
    assert_eq!(silent, [None, Some(Duration::from_secs(5))]);
    assert!(info.warnings.iter().any(|text| text.contains("answered no read for 5 s")));

    disks[1].hang(false);
    disks[1].end_reads(1);
    assert_eq!(store.stats().volumes_unanswering, 0);
    assert_eq!(
        get(&store, &other),
        store.read(other.as_bytes()).wait().unwrap().map(|o| o.to_vec())
    );
    disks[1].end_reads(1);
    assert!(reads.iter_mut().all(|(n, read)| poll(read) == Poll::Ready(Some(value(*n)))));
    assert!((0..100).all(|n| get(&store, &n.to_string()) == Some(value(n))));
}

/// Also where an error is the answer, or the device's own code panics.
#[test]
fn a_volume_whose_reads_end_is_asked_however_they_end() {
    let (disk, clock) = ([Disk::new(DISK_BYTES)], Arc::default());
    let store = open(&disk, &clock);
    put_on_disk(&store, 10);
    disk[0].hang(true);
    let _read = begin(&store, [0]);
    clock.advance(Duration::from_secs(9));
    assert!(store.read(b"1").wait().is_err());
    disk[0].hang(false);
    disk[0].set_fails(true);
    disk[0].end_reads(1);
    disk[0].set_fails(false);
    assert_eq!(get(&store, "1"), Some(value(1)));

    disk[0].panic_in(0..u64::MAX);
    let theirs = store.clone();
    let reader = std::thread::spawn(move || theirs.read(b"2").wait().is_ok());
    assert!(reader.join().is_err(), "the device panics");
    disk[0].panic_in(0..0);
    clock.advance(Duration::from_secs(9));
    assert_eq!(get(&store, "3"), Some(value(3)));
}

/// Whether something of the object with a key is found in one of the ways to ask for it.
type Way<'a> = &'a dyn Fn(&[u8]) -> bool;

/// A device that is well again may have lost what it was asked before.
#[test]
fn of_a_volume_that_lost_a_read_another_is_tried() {
    let (disk, clock) = ([Disk::new(DISK_BYTES)], Arc::default());
    let store = open(&disk, &clock);
    put_on_disk(&store, 100);
    let ways: [Way<'_>; 5] = [
        &|key| matches!(store.read(key).wait(), Ok(Some(_))),
        &|key| matches!(outcome_of(store.read(key)), Ok(Some(_))),
        &|key| matches!(store.lookup(key).wait(), Ok(Some(_))),
        &|key| matches!(store.read_range(key, 0..9).wait(), Ok(Some(_))),
        &|key| matches!(store.reader(key).wait(), Ok(Some(_))),
    ];
    let mut lost = Vec::new();
    for (n, finds) in (0..).zip(ways) {
        disk[0].hang(true);
        lost.extend(begin(&store, [n]));
        disk[0].hang(false);
        clock.advance(Duration::from_millis(9_999));
        let key = (50 + n).to_string();
        assert!(!finds(key.as_bytes()), "way {n}");
        clock.advance(Duration::from_millis(1));
        assert_eq!(store.stats().volumes_unanswering, 1, "way {n}");
        assert!(finds(key.as_bytes()), "way {n}");
        assert_eq!(store.stats().volumes_unanswering, 0, "way {n}");
    }
    disk[0].end_reads(disk[0].hanging());
    assert!(lost.iter_mut().all(|(n, read)| poll(read) == Poll::Ready(Some(value(*n)))));
}

/// Whoever asks for what was lost does not wait for the read that lost it.
#[test]
fn what_was_lost_itself_is_tried_again() {
    let (disk, clock) = ([Disk::new(DISK_BYTES)], Arc::default());
    let store = open(&disk, &clock);
    put_on_disk(&store, 100);
    let ways: [Way<'_>; 5] = [
        &|key| matches!(store.read(key).wait(), Ok(Some(_))),
        &|key| matches!(outcome_of(store.read(key)), Ok(Some(_))),
        &|key| matches!(store.lookup(key).wait(), Ok(Some(_))),
        &|key| matches!(store.read_range(key, 0..9).wait(), Ok(Some(_))),
        &|key| matches!(store.reader(key).wait(), Ok(Some(_))),
    ];
    let mut lost = Vec::new();
    for (n, finds) in (0..).zip(ways) {
        disk[0].hang(true);
        lost.extend(begin(&store, [n]));
        disk[0].hang(false);
        clock.advance(Duration::from_secs(10));
        assert!(finds(n.to_string().as_bytes()), "way {n}");
        assert_eq!(store.stats().volumes_unanswering, 0, "way {n}");
    }
    disk[0].end_reads(disk[0].hanging());
    assert!(lost.iter_mut().all(|(n, read)| poll(read) == Poll::Ready(Some(value(*n)))));
}

/// What was lost holds all the memory that submitted reads may take.
#[test]
fn a_volume_is_tried_again_though_lost_reads_hold_all_room() {
    let (disk, clock) = ([Disk::new(DISK_BYTES)], Arc::default());
    let store = open(&disk, &clock);
    put_on_disk(&store, 800);
    disk[0].hang(true);
    let reads = begin(&store, 0..700);
    assert!(disk[0].hanging() < reads.len() && store.stats().reads_queued > 0, "no room is left");
    disk[0].hang(false);
    clock.advance(Duration::from_secs(10));
    assert_eq!(store.stats().volumes_unanswering, 1);
    let found = outcome_of(store.read(b"750")).unwrap();
    assert_eq!(found.map(|object| object.to_vec()), Some(value(750)));
    assert_eq!(store.stats().volumes_unanswering, 0);
    disk[0].end_reads(disk[0].hanging());
    for (n, read) in reads {
        assert_eq!(outcome_of(read).unwrap().map(|o| o.to_vec()), Some(value(n)));
    }
}

/// Once a volume answers again, only the callers of the lost reads themselves wait for these.
#[test]
fn who_waits_for_what_others_lost_goes_on_once_the_volume_answers() {
    let (disk, clock) = ([Disk::new(DISK_BYTES)], Arc::default());
    let store = open(&disk, &clock);
    put_on_disk(&store, 800);
    disk[0].hang(true);
    let mut lost = begin(&store, 0..3);
    let followers = begin(&store, [0, 1]);
    let others = store.clone();
    let follower = std::thread::spawn(move || get(&others, "2"));
    while store.stats().shared_reads < 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
    lost.extend(begin(&store, 3..700));
    let given = disk[0].hanging();
    assert!(given < 700 && store.stats().reads_queued > 0, "no room is left");
    disk[0].hang(false);
    clock.advance(Duration::from_secs(10));
    assert!(outcome_of(store.read(b"750")).unwrap().is_some());

    for (n, read) in followers {
        assert_eq!(outcome_of(read).unwrap().map(|o| o.to_vec()), Some(value(n)));
    }
    assert_eq!(follower.join().unwrap(), Some(value(2)));
    let mut lost = lost.into_iter();
    let own: Vec<_> = lost.by_ref().take(given).collect();
    for (n, read) in lost {
        assert_eq!(outcome_of(read).unwrap().map(|o| o.to_vec()), Some(value(n)), "queued");
    }
    // There is as much room as before.
    let later = (701..750).map(|n| outcome_of(store.read(n.to_string().as_bytes())).unwrap());
    assert!(later.into_iter().all(|found| found.is_some()));
    assert_eq!(disk[0].hanging(), given, "what was lost itself is still the device's");
    disk[0].end_reads(given);
    for (n, read) in own {
        assert_eq!(outcome_of(read).unwrap().map(|o| o.to_vec()), Some(value(n)));
    }
}

/// Also if it does before one was let through.
#[test]
fn who_waits_for_what_others_lost_goes_on_though_the_volume_was_not_tried_meanwhile() {
    let (disk, clock) = ([Disk::new(DISK_BYTES)], Arc::default());
    let store = open(&disk, &clock);
    put_on_disk(&store, 800);
    disk[0].hang(true);
    let mut lost = begin(&store, 0..2);
    let mut follower = begin(&store, [1]);
    lost.extend(begin(&store, 2..700));
    let given = disk[0].hanging();
    assert!(given < 700 && store.stats().reads_queued > 0, "no room is left");
    disk[0].hang(false);
    clock.advance(Duration::from_secs(5));
    assert_eq!(store.stats().volumes_unanswering, 1);
    disk[0].end_reads(1);
    let (n, follower) = follower.remove(0);
    assert_eq!(outcome_of(follower).unwrap().map(|o| o.to_vec()), Some(value(n)));
    let queued = lost.split_off(given);
    assert!(queued.into_iter().all(|(_, read)| outcome_of(read).unwrap().is_some()));
    assert_eq!(disk[0].hanging(), given - 1, "what was lost itself is still the device's");
    // There is as much room as before.
    store.drop_memory();
    disk[0].hang(true);
    lost.extend(begin(&store, 0..700));
    while disk[0].hanging() < given - 1 + given {
        // A read leaves its room once its caller has been told.
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(disk[0].hanging(), given - 1 + given);
    disk[0].hang(false);
    disk[0].end_reads(disk[0].hanging());
    for (n, read) in lost {
        assert_eq!(outcome_of(read).unwrap().map(|o| o.to_vec()), Some(value(n)));
    }
}

/// What is found of an object, as bytes that can be compared.
type Asked = Pin<Box<dyn Future<Output = Option<Vec<u8>>>>>;
type Ask = fn(&Store, u32) -> Asked;
/// What is to be found.
type Value = fn(u32) -> Vec<u8>;

fn whole(store: &Store, n: u32) -> Asked {
    let read = store.read(n.to_string().as_bytes());
    Box::pin(async { read.await.unwrap().map(|object| object.to_vec()) })
}

fn part(store: &Store, n: u32) -> Asked {
    let read = store.read_range(n.to_string().as_bytes(), 0..200_000);
    Box::pin(async { read.await.unwrap().map(|part| part.to_vec()) })
}

fn is_pending(asked: &mut Asked) -> bool {
    asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

fn found(mut asked: Asked) -> Option<Vec<u8>> {
    loop {
        let polled = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(found) = polled {
            return found;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn long_value(n: u32, bytes: usize) -> Vec<u8> {
    [n.to_le_bytes().to_vec(), vec![7; bytes - 4]].concat()
}

/// Twenty objects on disk that are too long to be submitted.
fn open_with_long_objects(disk: &[Disk], clock: &Arc<Told>) -> Store {
    let store = open_with(disk, clock, |config| config.segment = Some(ByteSize::new(1 << 20)));
    (0..20).for_each(|n| put(&store, &n.to_string(), 1, &long_value(n, 300_000)));
    store.sync().unwrap();
    store.drop_memory();
    store
}

/// Reads that hold all workers, and are lost: one more than the device is given.
fn lose_all_workers(store: &Store, disk: &Disk, ask: Ask) -> Vec<(u32, Asked)> {
    disk.hang(true);
    let mut lost: Vec<(u32, Asked)> = (0..16).map(|n| (n, ask(store, n))).collect();
    assert!(lost.iter_mut().all(|(_, asked)| is_pending(asked)));
    while disk.hanging() < 15 {
        std::thread::sleep(Duration::from_millis(1));
    }
    disk.hang(false);
    lost
}

/// What is too long to be submitted is read by workers: what was lost holds all of them.
#[test]
fn a_volume_is_tried_again_though_lost_reads_of_long_objects_hold_all_workers() {
    for (ask, bytes) in [(whole as Ask, 300_000), (part, 200_000)] {
        let (disk, clock) = ([Disk::new(DISK_BYTES)], Arc::default());
        let store = open_with_long_objects(&disk, &clock);
        // What tells where it lies is known from now on.
        assert!((0..20_u32).all(|n| store.lookup(n.to_string().as_bytes()).wait().is_ok()));
        let lost = lose_all_workers(&store, &disk[0], ask);
        clock.advance(Duration::from_secs(10));
        assert_eq!(store.stats().volumes_unanswering, 1);
        assert_eq!(found(ask(&store, 18)), Some(long_value(18, bytes)));
        assert_eq!(store.stats().volumes_unanswering, 0);
        disk[0].end_reads(disk[0].hanging());
        for (n, asked) in lost {
            assert_eq!(found(asked), Some(long_value(n, bytes)));
        }
    }
}

/// So is what tells where an object lies, in whichever way it is asked for.
#[test]
fn a_volume_is_tried_again_though_lost_reads_of_heads_hold_all_workers() {
    let lookup: Ask = |store, n| {
        let lookup = store.lookup(n.to_string().as_bytes());
        Box::pin(async { lookup.await.unwrap().map(|info| length_of(info.length_bytes)) })
    };
    let length: Ask = |store, n| {
        let length = store.length(n.to_string().as_bytes());
        Box::pin(async { length.await.unwrap().map(length_of) })
    };
    let reader: Ask = |store, n| {
        let reader = store.reader(n.to_string().as_bytes());
        Box::pin(async {
            reader.await.unwrap().map(|reader| length_of(reader.info().length_bytes))
        })
    };
    let ways: [(Ask, Value); 4] = [
        (lookup, |_| length_of(300_000)),
        (length, |_| length_of(300_000)),
        (reader, |_| length_of(300_000)),
        (part, |n| long_value(n, 200_000)),
    ];
    for (ask, value) in ways {
        let (disk, clock) = ([Disk::new(DISK_BYTES)], Arc::default());
        let store = open_with_long_objects(&disk, &clock);
        let lost = lose_all_workers(&store, &disk[0], ask);
        clock.advance(Duration::from_secs(10));
        assert_eq!(found(ask(&store, 18)), Some(value(18)));
        assert_eq!(store.stats().volumes_unanswering, 0);
        disk[0].end_reads(disk[0].hanging());
        for (n, asked) in lost {
            assert_eq!(found(asked), Some(value(n)));
        }
    }
}

fn length_of(length_bytes: u64) -> Vec<u8> {
    length_bytes.to_le_bytes().to_vec()
}

/// One of all that ask, and the next once the silence is twice as long.
#[test]
fn a_volume_that_still_hangs_is_asked_for_little() {
    let (disk, clock) = ([Disk::new(DISK_BYTES)], Arc::default());
    let store = open(&disk, &clock);
    put_on_disk(&store, 100);
    disk[0].hang(true);
    let mut reads = begin(&store, [0]);
    for seconds in 1..=80 {
        clock.advance(Duration::from_secs(1));
        if [10, 20, 40, 80].contains(&seconds) {
            reads.extend(begin(&store, [seconds]));
            // On a thread of its own.
            while disk[0].hanging() < reads.len() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if seconds >= 5 {
            assert!(is_unanswered_at(&store, seconds), "after {seconds} s");
        }
    }
    assert_eq!(disk[0].hanging(), 5);
    disk[0].hang(false);
    disk[0].end_reads(5);
    for (n, read) in reads {
        assert_eq!(outcome_of(read).unwrap().map(|o| o.to_vec()), Some(value(n)));
    }
}

fn is_unanswered_at(store: &Store, seconds: u32) -> bool {
    let waited_ms = u64::from(seconds) * 1_000;
    let is_one = |read| read == Err(ReadError::Unanswered { waited_ms });
    let read = poll_once(&mut store.read(b"99"));
    let read = matches!(read, Poll::Ready(read) if is_one(read.clone().map(|_| ())));
    read && is_one(store.read(b"98").wait().map(|_| ()))
}

/// Who waits for a read of a long object waits on a thread: not for a disk that does not answer.
#[test]
fn what_is_asked_again_and_again_of_a_volume_that_does_not_answer_leaves_nothing_behind() {
    let (disk, clock) = ([Disk::new(DISK_BYTES)], Arc::default());
    let store = open(&disk, &clock);
    put_on_disk(&store, 100);
    disk[0].hang(true);
    let _reads = begin(&store, [0]);
    clock.advance(Duration::from_secs(5));
    let used = store.stats().memory_used_bytes;
    for round in 0..100 {
        let mut reads: Vec<Read> =
            (0..100_u32).map(|n| store.read(n.to_string().as_bytes())).collect();
        let mut context = Context::from_waker(Waker::noop());
        let are_over = reads.iter_mut().all(|read| Pin::new(read).poll(&mut context).is_ready());
        assert!(are_over, "{round}");
    }
    let stats = store.stats();
    assert_eq!((disk[0].hanging(), stats.reads_queued, stats.shared_reads), (1, 0, 0));
    assert_eq!(stats.memory_used_bytes, used);
}
