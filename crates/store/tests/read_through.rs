//! Reads that fetch what is not there: one fetch for all who miss at once, and nothing stored that
//! a change has overtaken.
//!
//! Threads: a store's own, and the test's.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::future::{Future, pending, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use damelo::{
    Admission, ByteSize, Config, CreateOptions, Deferral, Fetched, GroupId, Object, ReadThrough,
    ReadThroughStats, Served, Stats, Store,
};
use tempfile::TempDir;

mod held;
use held::{hold_all_memory, wait_until};

const GROUP: GroupId = GroupId::new(1);
const KEY: &[u8] = b"/site/key";

type Reads = ReadThrough<String>;
type Outcome = Result<Vec<u8>, String>;

fn open(dir: &TempDir, change: impl FnOnce(&mut Config)) -> Reads {
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(64 << 20));
    config.memory = ByteSize::new(8 << 20);
    change(&mut config);
    ReadThrough::new(Store::open(config).unwrap())
}

fn found(value: &[u8]) -> Outcome {
    Ok(value.to_vec())
}

/// The value, which must be there without a fetch.
fn kept(reads: &Reads) -> Option<Vec<u8>> {
    reads.store().read(KEY).wait().unwrap().map(|object| object.to_vec())
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A fetch of `GROUP`'s key on a thread of its own, which ends with what is sent.
fn fetching(
    reads: &Reads,
) -> (mpsc::Sender<Outcome>, thread::JoinHandle<Result<Served, Arc<String>>>) {
    let (sender, receiver) = mpsc::channel();
    let (reads, before) = (reads.clone(), reads.stats().fetches);
    let theirs = reads.clone();
    let reader =
        thread::spawn(move || theirs.read_blocking(KEY, GROUP, || receiver.recv().unwrap()));
    wait_until("the fetch begins", || reads.stats().fetches > before);
    (sender, reader)
}

fn stats_of(fetches: u64, joined: u64, failures: u64) -> ReadThroughStats {
    let mut stats = ReadThroughStats::default();
    (stats.fetches, stats.joined, stats.failures) = (fetches, joined, failures);
    stats
}

#[test]
fn a_miss_is_fetched_once_and_a_hit_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let reads = open(&dir, |_| ());
    let fetched = || {
        let metadata = b"text/plain"[..].into();
        Ok::<_, String>(Fetched {
            value: b"v1"[..].into(),
            metadata,
            expires_unix_s: Some(1 << 31),
        })
    };
    let first = reads.read_blocking(KEY, GROUP, fetched).unwrap();
    let again = || -> Outcome { panic!("it is stored") };
    let second = reads.read_blocking(KEY, GROUP, again).unwrap();
    for served in [&first, &second] {
        assert_eq!((&**served, served.metadata()), (&b"v1"[..], &b"text/plain"[..]));
        assert_eq!(served.expires_unix_s(), Some(1 << 31));
    }
    assert_eq!((first.is_fetched(), second.is_fetched()), (true, false));
    assert_eq!(second.object().map(Object::group), Some(GROUP));
    assert_eq!(reads.stats(), stats_of(1, 0, 0));
}

#[test]
fn who_misses_meanwhile_gets_the_same_outcome() {
    let dir = tempfile::tempdir().unwrap();
    let reads = open(&dir, |_| ());
    for (round, outcome) in [Err("origin is away".to_owned()), found(b"v1")].into_iter().enumerate()
    {
        let (sender, leader) = fetching(&reads);
        let followers: Vec<_> = (0..8)
            .map(|_| {
                let reads = reads.clone();
                let no = || -> Outcome { panic!("another one fetches it") };
                thread::spawn(move || reads.read_blocking(KEY, GROUP, no))
            })
            .collect();
        wait_until("all follow", || reads.stats().joined == 8 * (round as u64 + 1));
        sender.send(outcome.clone()).unwrap();
        for reader in followers.into_iter().chain([leader]) {
            let served = reader.join().unwrap().map(|served| served.to_vec());
            assert_eq!(served.map_err(|error| (*error).clone()), outcome);
        }
    }
    let stats = stats_of(2, 16, 1);
    assert_eq!(reads.stats(), stats);
}

#[test]
fn a_leader_that_goes_passes_the_fetch_on() {
    let dir = tempfile::tempdir().unwrap();
    let reads = open(&dir, |_| ());
    let mut leader = Box::pin(reads.read(KEY, GROUP, pending::<Outcome>));
    assert!(poll_once(leader.as_mut()).is_pending());
    let mut follower = pin!(reads.read(KEY, GROUP, || ready(found(b"v1"))));
    assert!(poll_once(follower.as_mut()).is_pending());
    drop(leader);
    let Poll::Ready(served) = poll_once(follower) else { panic!("it leads now") };
    assert_eq!(&*served.unwrap(), b"v1");
    assert_eq!(reads.stats().joined, 1);

    let panics = || -> Outcome { panic!("as a fetch may") };
    let other = b"/site/other";
    let outcome = catch_unwind(AssertUnwindSafe(|| reads.read_blocking(other, GROUP, panics)));
    assert!(outcome.is_err());
    assert_eq!(&*reads.read_blocking(other, GROUP, || found(b"v2")).unwrap(), b"v2");
}

#[test]
fn who_waits_counts_once_however_many_leaders_go() {
    let dir = tempfile::tempdir().unwrap();
    let reads = open(&dir, |_| ());
    let never = || Box::pin(reads.read(KEY, GROUP, pending::<Outcome>));
    let (mut first, mut second) = (never(), never());
    let mut last = pin!(reads.read(KEY, GROUP, || ready(found(b"v1"))));
    assert!(poll_once(first.as_mut()).is_pending());
    assert!(poll_once(second.as_mut()).is_pending() && poll_once(last.as_mut()).is_pending());
    drop(first);
    // The second leads now, and the last waits again.
    assert!(poll_once(second.as_mut()).is_pending() && poll_once(last.as_mut()).is_pending());
    drop(second);
    assert!(poll_once(last).is_ready());
    assert_eq!(reads.stats().joined, 2);
}

#[test]
fn a_read_may_move_to_another_thread() {
    fn sendable<T: Send>(read: T) -> T {
        read
    }
    let dir = tempfile::tempdir().unwrap();
    let reads = open(&dir, |_| ());
    let read = pin!(sendable(reads.read(KEY, GROUP, || ready(found(b"v1")))));
    assert!(poll_once(read).is_ready());
}

#[test]
fn followers_are_woken() {
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, SeqCst);
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let reads = open(&dir, |_| ());
    let (sender, leader) = fetching(&reads);
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut follower = pin!(reads.read(KEY, GROUP, pending::<Outcome>));
    assert!(follower.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    {
        let mut gone = Box::pin(reads.read(KEY, GROUP, pending::<Outcome>));
        assert!(gone.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    drop(waker);
    assert_eq!(Arc::strong_count(&woken), 2, "one that has gone leaves no waker");
    sender.send(found(b"v1")).unwrap();
    leader.join().unwrap().unwrap();
    wait_until("woken", || woken.0.load(SeqCst));
    assert!(poll_once(follower).is_ready());
}

#[test]
fn what_a_change_overtakes_is_not_stored() {
    type Change = fn(&Reads);
    let changes: [(&str, Change, Option<&[u8]>); 6] = [
        ("remove", |reads| assert!(!reads.remove(KEY).unwrap()), None),
        ("group", |reads| reads.purge_group(GROUP).unwrap(), None),
        ("prefix", |reads| reads.purge_prefix(b"/site").unwrap(), None),
        ("all", |reads| reads.purge_all().unwrap(), None),
        (
            "create",
            |reads| {
                let made = reads.create_with(KEY, GROUP, b"v2", CreateOptions::default());
                made.wait().unwrap();
            },
            Some(b"v2"),
        ),
        (
            "others",
            |reads| {
                reads.remove(b"/site").unwrap();
                reads.purge_group(GroupId::new(2)).unwrap();
                reads.purge_prefix(b"/other").unwrap();
            },
            Some(b"v1"),
        ),
    ];
    for (name, change, left) in changes {
        let dir = tempfile::tempdir().unwrap();
        let reads = open(&dir, |_| ());
        let (sender, leader) = fetching(&reads);
        change(&reads);
        // Who asks after the change does not get what was fetched before it.
        if left.is_none() {
            let newer = reads.read_blocking(KEY, GROUP, || found(b"v2")).unwrap();
            assert_eq!(
                (&*newer, kept(&reads).as_deref()),
                (&b"v2"[..], Some(&b"v2"[..])),
                "{name}"
            );
        }
        sender.send(found(b"v1")).unwrap();
        assert_eq!(&*leader.join().unwrap().unwrap(), b"v1", "{name}");
        assert_eq!(kept(&reads).as_deref(), left.or(Some(b"v2")), "{name}");
        let overtaken = u64::from(name != "others");
        let stats = reads.stats();
        assert_eq!((stats.overtaken, stats.not_stored), (overtaken, overtaken), "{name}");
    }
}

#[test]
fn what_the_store_refuses_is_passed_on() {
    let dir = tempfile::tempdir().unwrap();
    let reads = open(&dir, |config| config.object_bytes_max = ByteSize::new(1 << 10));
    for _ in 0..2 {
        let served = reads.read_blocking(KEY, GROUP, || found(&[1; 2 << 10])).unwrap();
        assert_eq!((served.len(), served.is_fetched()), (2 << 10, true));
    }
    assert_eq!((reads.stats().fetches, reads.stats().not_stored), (2, 2));

    let second = open(&dir, |config| {
        config.volumes[0].path = dir.path().join("second");
        config.admission = Admission::SecondHit;
    });
    let fetched: Vec<_> = (0..3)
        .map(|_| second.read_blocking(KEY, GROUP, || found(b"v1")).unwrap().is_fetched())
        .collect();
    assert_eq!(fetched, [true, true, false]);

    second.store().clone().close().unwrap();
    assert_eq!(&*second.read_blocking(KEY, GROUP, || found(b"v2")).unwrap(), b"v2", "closed");
}

/// Written, they would be fetched again all the same.
#[test]
fn what_no_read_could_return_is_not_written() {
    const LONGEST: usize = 2 << 20;
    let dir = tempfile::tempdir().unwrap();
    let reads = open(&dir, |config| config.memory = ByteSize::new(8 * LONGEST as u64));
    let store = reads.store();
    let is_fetched = |length: usize| {
        let served = reads.read_blocking(KEY, GROUP, || found(&vec![1; length])).unwrap();
        assert_eq!(served.len(), if served.is_fetched() { length } else { LONGEST });
        served.is_fetched()
    };
    assert_eq!([is_fetched(LONGEST), is_fetched(LONGEST)], [true, false]);
    store.sync().unwrap();
    store.drop_memory();
    assert!(!is_fetched(LONGEST), "it is read from disk");
    reads.remove(KEY).unwrap();

    let before = store.stats();
    assert_eq!([is_fetched(LONGEST + 1), is_fetched(LONGEST + 1)], [true, true]);
    store.sync().unwrap();
    let after = store.stats();
    let written = |stats: &Stats| (stats.creates, stats.written_object_bytes);
    assert_eq!(written(&after), written(&before));
    assert_eq!((after.drops_too_large, reads.stats().not_stored), (2, 2));

    let fetch_beside_older = || {
        store.create(KEY, GROUP, b"older").wait().unwrap();
        found(&[1; LONGEST + 1])
    };
    assert!(reads.read_blocking(KEY, GROUP, fetch_beside_older).unwrap().is_fetched());
    assert_eq!(kept(&reads), None, "the older version is out of date");
}

#[test]
fn a_create_that_waits_for_memory_is_overtaken_too() {
    let dir = tempfile::tempdir().unwrap();
    let reads = open(&dir, |config| config.memory_wait = Duration::from_secs(600));
    let store = reads.store();
    let guards = hold_all_memory(store);
    let (sender, leader) = fetching(&reads);
    let before = store.stats().create_waits;
    sender.send(found(&[1; 100_000])).unwrap();
    wait_until("it waits", || store.stats().create_waits > before);
    reads.remove(KEY).unwrap();
    assert_eq!(leader.join().unwrap().unwrap().len(), 100_000);
    drop(guards);
    assert_eq!(kept(&reads), None);
    assert_eq!(reads.stats().not_stored, 1);
}

/// The origin has versions; each is announced by a remove. Nobody is served a version older than
/// the newest announced when the read began.
#[test]
fn no_read_goes_behind_an_acknowledged_change() {
    let dir = tempfile::tempdir().unwrap();
    let reads = open(&dir, |_| ());
    let (origin, announced, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let barrier = Barrier::new(5);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                barrier.wait();
                while !stop.load(SeqCst) {
                    let least = announced.load(SeqCst);
                    let fetch = || {
                        let version = origin.load(SeqCst);
                        thread::yield_now();
                        found(&version.to_le_bytes())
                    };
                    let served = reads.read_blocking(KEY, GROUP, fetch).unwrap();
                    let version = u64::from_le_bytes(served[..].try_into().unwrap());
                    assert!(version >= least, "{version}, announced: {least}");
                }
            });
        }
        barrier.wait();
        for version in 1..=5_000 {
            origin.store(version, SeqCst);
            match version % 3 {
                0 => assert!(reads.remove(KEY).is_ok()),
                1 => reads.purge_group(GROUP).unwrap(),
                _ => reads.purge_prefix(b"/site/").unwrap(),
            }
            announced.store(version, SeqCst);
            // What is fetched in peace is stored, and announced as outdated by the next.
            if version % 16 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        stop.store(true, SeqCst);
    });
    let stats = reads.stats();
    assert!(stats.fetches > stats.not_stored && stats.overtaken > 0, "{stats:?}");
}

#[test]
fn a_miss_is_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    let reads = open(&dir, |_| ());
    reads.read_blocking(KEY, GROUP, || found(b"v1")).unwrap();
    assert_eq!(reads.store().stats().misses_not_found, 1);
}

/// What is on the disk cannot be read for want of memory: it is fetched then, not asked for again.
#[test]
fn who_has_waited_for_memory_in_vain_fetches() {
    let dir = tempfile::tempdir().unwrap();
    let reads = open(&dir, |config| config.memory_wait = Duration::from_millis(50));
    let store = reads.store();
    store.create(KEY, GROUP, &[1; 100_000]).wait().unwrap();
    store.sync().unwrap();
    store.drop_memory();
    let _guards = hold_all_memory(store);
    let before = store.stats();
    let served = reads.read_blocking(KEY, GROUP, || found(&[2; 100_000])).unwrap();
    assert!(served.is_fetched());
    let stats = store.stats();
    assert_eq!(stats.reads_refused - before.reads_refused, 1);
}

/// The look that follows a miss reads another key's record from the disk, on which the thread waits
/// in a way of its own.
#[test]
fn a_thread_that_submits_later_does_not_wait_for_itself() {
    let dir = tempfile::tempdir().unwrap();
    let reads = open(&dir, |config| {
        config.objects_max = Some(64);
        config.tags_alone = true;
    });
    let store = reads.store();
    store.create(b"another", GROUP, &[1; 30_000]).wait().unwrap();
    store.sync().unwrap();
    store.drop_memory();
    let equal = (0_u64..).map(u64::to_le_bytes).find(|key| store.may_contain(key)).unwrap();
    let (done, is_done) = mpsc::channel();
    let theirs = reads.clone();
    thread::spawn(move || {
        let _deferral = Deferral::begin(|| ());
        let served = theirs.read_blocking(&equal, GROUP, || found(b"v1")).unwrap();
        done.send(served.is_fetched()).unwrap();
    });
    assert_eq!(is_done.recv_timeout(Duration::from_secs(30)), Ok(true));
}
