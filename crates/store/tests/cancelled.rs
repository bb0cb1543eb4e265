//! Operations that are dropped while a thread works for them: they have taken effect before the
//! drop, or never do. What the caller does afterwards comes after them.
//!
//! Threads: a store's own, and the test's.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use damelo::{ByteSize, Config, CreateError, GroupId, Store, Writer};
use tempfile::TempDir;

mod held;
use held::{ended, hold_all_memory, wait_until};

const GROUP: GroupId = GroupId::new(1);
const KEY: &[u8] = b"key";
/// More than one record takes with this memory: it goes through a thread that writes parts.
const LARGE_BYTES: usize = 3 << 20;

fn open(dir: &TempDir, change: impl FnOnce(&mut Config)) -> Store {
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(64 << 20));
    config.memory = ByteSize::new(8 << 20);
    change(&mut config);
    Store::open(config).unwrap()
}

/// Begins the operation on a thread of the store's, and drops it after so many turns of an empty
/// loop, unless it is done by then.
fn begin_and_drop(mut operation: impl Future + Unpin, turns: u32) {
    let mut cx = Context::from_waker(Waker::noop());
    if Pin::new(&mut operation).poll(&mut cx).is_pending() {
        (0..turns).for_each(|_| std::hint::spin_loop());
    }
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn length(store: &Store) -> Option<u64> {
    store.length(KEY).wait().unwrap()
}

fn dropped_before(store: &Store, what: &str, begin: impl Fn(&Store, u32)) {
    for round in 0..30_u32 {
        let turns = [0, 10, 1_000, 30_000, 300_000, 1_000_000][round as usize % 6];
        let before = ended(store);
        begin(store, turns);
        let (newer, left) = match round % 3 {
            0 => {
                store.create(KEY, GROUP, b"v2").wait().unwrap();
                (1, Some(2))
            }
            1 => {
                store.remove(KEY).unwrap();
                (0, None)
            }
            _ => {
                store.purge_all().unwrap();
                (0, None)
            }
        };
        wait_until("the dropped one ends", || ended(store) > before + newer);
        assert_eq!(length(store), left, "{what}, round {round}");
    }
    let last = length(store);
    store.clone().close().unwrap();
    assert_eq!(last, None);
}

#[test]
fn a_create_that_is_dropped_does_not_come_after_what_is_done_next() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir, |_| {});
    let value = vec![1; LARGE_BYTES];
    dropped_before(&store, "create", |store, turns| {
        begin_and_drop(store.create(KEY, GROUP, &value), turns);
    });
    drop(store);
    let store = open(&dir, |_| {});
    store.wait_recovered();
    assert_eq!(length(&store), None, "nor after the next open");
}

#[test]
fn a_commit_that_is_dropped_does_not_come_after_what_is_done_next() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir, |_| {});
    let value = vec![1; LARGE_BYTES];
    dropped_before(&store, "commit", |store, turns| {
        let mut writer = store.writer(KEY, GROUP, Default::default()).unwrap();
        writer.write(&value).wait().unwrap();
        begin_and_drop(writer.commit(), turns);
    });
}

/// It waits until the object is on disk, and then another's metadata is newer than its own.
#[test]
fn new_metadata_that_is_dropped_does_not_come_after_what_is_set_next() {
    let dir = tempfile::tempdir().unwrap();
    // Nothing is written because its time has come.
    let store = open(&dir, |config| config.flush_period = Duration::ZERO);
    for round in 0..10_u8 {
        store.create(KEY, GROUP, &[round; 300_000]).wait().unwrap();
        let waits = store.stats().metadata_waits;
        begin_and_drop(store.set_metadata(KEY, b"dropped"), u32::from(round) * 1_000);
        assert!(store.set_metadata(KEY, b"newer").wait().unwrap());
        // Time for the first one to follow, if it did.
        std::thread::sleep(Duration::from_millis(100));
        let info = store.lookup(KEY).wait().unwrap().unwrap();
        assert_eq!(&*info.metadata, b"newer", "round {round}");
        assert!(store.stats().metadata_waits > waits, "nothing was waited for");
    }
}

/// Guards hold all memory, and creates that nobody waits for any more do not wait either.
#[test]
fn dropped_creates_that_waited_for_memory_are_gone_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir, |config| config.memory_wait = Duration::from_secs(600));
    let guards = hold_all_memory(&store);
    let wanted = store.stats().drops_abandoned + 300;
    for key in 0..300_u16 {
        let mut create = store.create(&key.to_le_bytes(), GROUP, &[1; 100_000]);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut create).poll(&mut cx).is_pending(), "{key}");
    }
    wait_until("all of them are given up", || store.stats().drops_abandoned >= wanted);
    drop(guards);
    store.sync().unwrap();
    assert_eq!(store.stats().drops_abandoned, wanted);
}

/// The store's threads wait for memory with other creates: what a dropped one would have created is
/// not kept until its turn comes.
#[test]
fn a_create_that_is_dropped_before_its_turn_leaves_nothing_in_the_queue() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir, |config| config.memory_wait = Duration::from_secs(600));
    let guards = hold_all_memory(&store);
    let mut cx = Context::from_waker(Waker::noop());
    let mut create = |key: u16| {
        let mut create = store.create(&key.to_le_bytes(), GROUP, &[1; 100_000]);
        assert!(Pin::new(&mut create).poll(&mut cx).is_pending(), "{key}");
        create
    };
    // More than there are threads.
    let waiting: Vec<_> = (0..32).map(&mut create).collect();
    for key in 32..64 {
        let before = store.stats().drops_abandoned;
        drop(create(key));
        assert_eq!(store.stats().drops_abandoned, before + 1, "{key}");
    }
    drop(guards);
    drop(waiting);
}

/// As documented at `Store`: what is ready has taken effect, what is not does nothing unless it is
/// polled or waited for, and a create without effect counts as abandoned.
#[test]
fn an_unpolled_create_has_taken_effect_if_it_is_ready_and_counts_as_abandoned_if_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir, |_| {});
    let small = store.create(KEY, GROUP, b"value");
    assert!(small.is_ready());
    drop(small);
    assert_eq!((length(&store), store.stats().drops_abandoned), (Some(5), 0));

    let large = store.create(KEY, GROUP, &[1; LARGE_BYTES]);
    assert!(!large.is_ready());
    drop(large);
    assert_eq!((length(&store), store.stats().drops_abandoned), (Some(5), 1));

    let guards = hold_all_memory(&store);
    let before = store.stats().drops_abandoned;
    let waiting = store.create(b"other", GROUP, &[1; 100_000]);
    assert!(!waiting.is_ready());
    drop(waiting);
    assert_eq!(store.stats().drops_abandoned, before + 1);
    drop(guards);
    assert_eq!(store.length(b"other").wait().unwrap(), None);
}

/// What a failed or dropped write took is part of no object.
#[test]
fn a_writer_is_not_committed_after_a_write_that_failed_or_was_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir, |config| config.object_bytes_max = ByteSize::new(4 << 20));
    let torn = |mut writer: Writer, too_large: u64, abandoned: u64| {
        assert_eq!(writer.write(b"again").wait(), Err(CreateError::Torn));
        assert_eq!(writer.commit().wait(), Err(CreateError::Torn));
        let stats = store.stats();
        assert_eq!((stats.drops_too_large, stats.drops_abandoned), (too_large, abandoned));
        assert_eq!(length(&store), None);
    };
    let open = || store.writer(KEY, GROUP, Default::default()).unwrap();

    let mut writer = open();
    writer.write(&[1; 2 << 20]).wait().unwrap();
    let refused = writer.write(&[1; 3 << 20]).wait();
    assert!(matches!(refused, Err(CreateError::TooLarge { .. })), "{refused:?}");
    torn(writer, 1, 0);

    let store = &store;
    let mut writer = open();
    // More than memory takes at once.
    let mut cx = Context::from_waker(Waker::noop());
    let value = vec![2; 4 << 20];
    let guards = hold_all_memory(store);
    let abandoned = store.stats().drops_abandoned;
    assert!(Pin::new(&mut writer.write(&value)).poll(&mut cx).is_pending());
    drop(guards);
    torn(writer, 1, abandoned + 1);

    let mut writer = open();
    drop(writer.write(&value));
    writer.write(b"whole").wait().unwrap();
    writer.commit().wait().unwrap();
    assert_eq!(length(store), Some(5), "what was never begun is no harm");
}

/// As if it had been refused at once: who gives up then, and drops the writer, means the same.
#[test]
fn a_write_that_is_refused_removes_the_version_that_the_writer_was_to_replace() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir, |config| config.object_bytes_max = ByteSize::new(4 << 20));
    let replace = |awaited: bool, bytes: usize| {
        store.create(KEY, GROUP, b"older").wait().unwrap();
        let mut writer = store.writer(KEY, GROUP, Default::default()).unwrap();
        let value = vec![1; bytes];
        let mut write = writer.write(&value);
        if !awaited {
            return write.wait();
        }
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(&mut write).poll(&mut cx) {
            std::task::Poll::Ready(taken) => taken,
            std::task::Poll::Pending => panic!("it is refused by its length alone"),
        }
    };
    for awaited in [false, true] {
        let refused = replace(awaited, 5 << 20);
        assert!(matches!(refused, Err(CreateError::TooLarge { .. })), "{refused:?}");
        assert_eq!(length(&store), None, "awaited: {awaited}");
        assert_eq!(replace(awaited, 1000), Ok(()));
        assert_eq!(length(&store), Some(5), "a writer that is only dropped leaves it");
    }
}

/// A program may go on with a writer that was refused, and another store the object meanwhile.
#[test]
fn a_refused_writer_that_is_used_further_removes_nothing_newer() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir, |config| config.object_bytes_max = ByteSize::new(4 << 20));
    store.create(KEY, GROUP, b"older").wait().unwrap();
    let mut writer = store.writer(KEY, GROUP, Default::default()).unwrap();
    let refused = writer.write(&[1; 5 << 20]).wait();
    assert!(matches!(refused, Err(CreateError::TooLarge { .. })), "{refused:?}");
    store.create(KEY, GROUP, b"newer one").wait().unwrap();
    assert_eq!(writer.write(b"again").wait(), Err(CreateError::Torn));
    assert_eq!(writer.commit().wait(), Err(CreateError::Torn));
    assert_eq!(length(&store), Some(9));
}

/// More creates than threads that wait for them: none of them waits for a turn besides.
#[test]
fn no_awaited_create_waits_longer_than_memory_wait() {
    let dir = tempfile::tempdir().unwrap();
    let wait = Duration::from_secs(3);
    let store = open(&dir, |config| config.memory_wait = wait);
    let mut cx = Context::from_waker(Waker::noop());
    let _guards = hold_all_memory(&store);
    let refused = store.stats().drops_memory_full;
    let begun = Instant::now();
    let mut creates: Vec<_> =
        (0..100_u8).map(|key| (store.create(&[key; 3], GROUP, &[1; 100_000]), false)).collect();
    let mut left = creates.len();
    while left > 0 {
        for (create, done) in creates.iter_mut().filter(|(_, done)| !done) {
            if let Poll::Ready(outcome) = Pin::new(create).poll(&mut cx) {
                assert_eq!(outcome, Err(CreateError::MemoryFull));
                assert!(begun.elapsed() >= wait, "refused too early");
                (*done, left) = (true, left - 1);
            }
        }
        // One after the other in groups of eight they would take thirteen times as long.
        assert!(begun.elapsed() < 8 * wait, "{left} of 100 wait longer than they were told");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(store.stats().drops_memory_full, refused + 100);
}

/// Reads that wait for memory occupy the store's threads, and others wait for these.
#[test]
fn reads_that_are_dropped_before_a_thread_takes_them_are_not_done() {
    const READS: u32 = 30;
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir, |config| config.memory_wait = Duration::from_secs(600));
    let key = |n: u32| format!("object {n}").into_bytes();
    for n in 0..3 * READS {
        store.create(&key(n), GROUP, &[1; 100_000]).wait().unwrap();
    }
    store.sync().unwrap();
    store.drop_memory();
    let guards = hold_all_memory(&store);
    let before = store.stats();
    let begin = |n: u32| {
        let mut read = Box::pin(store.read(&key(n)));
        assert!(poll_once(read.as_mut()).is_pending(), "{n}");
        read
    };
    let mut wanted: Vec<_> = (0..READS).map(begin).collect();
    wait_until("threads wait", || store.stats().read_waits >= before.read_waits + 10);
    let dropped: Vec<_> = (READS..2 * READS).map(begin).collect();
    wanted.extend((2 * READS..3 * READS).map(begin));
    drop(dropped);
    drop(guards);
    for read in &mut wanted {
        let mut found = None;
        wait_until("it is read", || match poll_once(read.as_mut()) {
            Poll::Ready(outcome) => {
                found = outcome.unwrap();
                true
            }
            Poll::Pending => false,
        });
        assert_eq!(found.map(|object| object.len()), Some(100_000));
    }
    store.clone().close().unwrap();
    assert_eq!(store.stats().hits_disk - before.hits_disk, u64::from(2 * READS));
}

#[test]
fn a_prefetch_that_is_dropped_ends_at_its_next_page() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir, |config| config.memory_wait = Duration::from_secs(600));
    for n in 0..1_000_u32 {
        store.create(&n.to_be_bytes(), GroupId::new(7), &[1; 4_000]).wait().unwrap();
    }
    store.sync().unwrap();
    store.drop_memory();
    let guards = hold_all_memory(&store);
    let before = store.stats();
    let mut prefetch = Box::pin(store.prefetch(GroupId::new(7)));
    assert!(poll_once(prefetch.as_mut()).is_pending());
    wait_until("it waits", || store.stats().read_waits > before.read_waits);
    drop((prefetch, guards));
    wait_until("it goes on", || store.stats().page_reads > before.page_reads);
    // Time for it to read more, if it did.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(store.stats().page_reads, before.page_reads + 1);
}
