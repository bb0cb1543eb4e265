//! What new metadata costs where an older state of it may come back after a crash, and where the
//! object is in memory.

use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::format::{RecordKind, SummaryEntry};
use crate::in_memory::{Memory, State};
use crate::index::Location;
use crate::sync::Arc;
use crate::{ByteSize, Clock, Config, CreateOptions, GroupId, MetadataError, Object, Stats, Store};

const DEVICE_BYTES: usize = 32 << 20;
const SMALL: usize = 4_000;
const LARGE: usize = 100_000;

/// A clock that the test sets, in milliseconds.
#[derive(Default)]
struct Set(AtomicU64);

impl Clock for Set {
    fn unix_seconds(&self) -> u64 {
        1_700_000_000 + self.0.load(Ordering::Relaxed) / 1000
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// A store without threads, whose flusher looks when the test says so.
struct Bench {
    state: Arc<Mutex<State>>,
    clock: Arc<Set>,
    store: Store,
}

impl Bench {
    fn new() -> Bench {
        Bench::on(State::new(DEVICE_BYTES, false))
    }

    fn on(state: Arc<Mutex<State>>) -> Bench {
        Bench::with(state, |_| ())
    }

    fn with(state: Arc<Mutex<State>>, change: impl FnOnce(&mut Config)) -> Bench {
        let mut config = Config::new("memory", ByteSize::new(DEVICE_BYTES as u64));
        config.memory = ByteSize::new(8 << 20);
        config.page = Some(ByteSize::new(16 << 10));
        config.segment = Some(ByteSize::new(1 << 20));
        config.flush_period = Duration::from_secs(5);
        config.background = false;
        config.seed = Some(1);
        change(&mut config);
        let clock = Arc::new(Set::default());
        let store = Store::open_on(config, vec![Memory::device(&state)], Arc::<Set>::clone(&clock))
            .unwrap();
        store.wait_recovered();
        Bench { state, clock, store }
    }

    /// What a crash now leaves, opened.
    fn crashed(&self) -> Bench {
        Bench::on(self.state.lock().unwrap().copied())
    }

    fn pass(&self, time_ms: u64) {
        self.clock.0.fetch_add(time_ms, Ordering::Relaxed);
        self.store.engine().work_inline();
    }

    /// An object on disk.
    fn make(&self, key: &str, bytes: usize) {
        let options = CreateOptions { metadata: b"old", expires_unix_s: None };
        let value = vec![key.len() as u8; bytes];
        self.store.create_with(key.as_bytes(), GroupId::new(1), &value, options).wait().unwrap();
        self.store.sync().unwrap();
    }

    fn refresh(&self, key: &str, metadata: &[u8]) {
        assert!(self.store.refresh_metadata(key.as_bytes(), metadata).wait().unwrap());
    }

    fn read(&self, key: &str) -> Option<Object> {
        self.store.read(key.as_bytes()).wait().unwrap()
    }

    /// The object's metadata.
    fn metadata(&self, key: &str) -> Option<Vec<u8>> {
        let object = self.read(key)?;
        assert!(object.iter().all(|byte| *byte == key.len() as u8));
        Some(object.metadata().to_vec())
    }

    fn stats(&self) -> Stats {
        self.store.stats()
    }
}

fn disk_reads(stats: &Stats) -> u64 {
    stats.object_reads + stats.page_reads + stats.range_reads + stats.maintenance_reads
}

#[test]
fn a_small_object_is_written_once_in_a_while_however_often_it_is_refreshed() {
    let bench = Bench::new();
    bench.make("key", SMALL);
    let before = bench.stats();
    for n in 0..100_u32 {
        bench.refresh("key", &n.to_le_bytes());
        // Others of its group come, and are written in their time.
        bench.store.create(&n.to_le_bytes(), GroupId::new(1), &[1; 10]).wait().unwrap();
        assert_eq!(bench.metadata("key"), Some(n.to_le_bytes().to_vec()));
        bench.pass(1000);
    }
    let after = bench.stats();
    let written = after.written_object_bytes - before.written_object_bytes;
    assert!(written > SMALL as u64, "it does not wait for ever");
    assert!(written < 2 * SMALL as u64 + 100 * 192, "{written}");
    assert_eq!(after.journal_records, before.journal_records);
    assert_eq!(after.replaced - before.replaced, 100);
    let n = bench.crashed();
    let metadata = n.metadata("key").expect("an older state");
    assert!(u32::from_le_bytes(metadata.try_into().unwrap()) > 50);
    bench.store.close().unwrap();
}

#[test]
fn an_older_state_is_there_after_a_crash_and_the_newest_once_it_is_written() {
    for bytes in [SMALL, LARGE] {
        let bench = Bench::new();
        bench.make("key", bytes);
        bench.refresh("key", b"new");
        assert_eq!(bench.metadata("key").unwrap(), b"new");
        assert_eq!(bench.crashed().metadata("key").unwrap(), b"old");
        // A checkpoint writes it, and forgets what the index had before.
        bench.store.checkpoint().unwrap();
        assert_eq!(bench.crashed().metadata("key").unwrap(), b"new");
        bench.refresh("key", b"newer");
        assert_eq!(bench.crashed().metadata("key").unwrap(), b"new");
        bench.store.sync().unwrap();
        bench.store.drop_memory();
        assert_eq!(bench.metadata("key").unwrap(), b"newer");
        assert_eq!(bench.crashed().metadata("key").unwrap(), b"newer");
        bench.refresh("key", b"last");
        bench.store.close().unwrap();
        assert_eq!(Bench::on(bench.state).metadata("key").unwrap(), b"last");
    }
}

#[test]
fn what_is_gone_stays_gone_though_an_older_state_was_left_in_the_index() {
    for (bytes, crashes) in [(SMALL, false), (SMALL, true), (LARGE, false), (LARGE, true)] {
        let bench = Bench::new();
        for key in ["removed", "purged", "replaced", "twice"] {
            bench.make(key, bytes);
            bench.refresh(key, b"new");
        }
        bench.store.sync().unwrap();
        for key in ["removed", "purged", "replaced", "twice"] {
            bench.refresh(key, b"newer");
        }
        bench.store.remove(b"removed").unwrap();
        bench.store.purge_prefix(b"purge").unwrap();
        bench.store.create(b"replaced", GroupId::new(1), &[1; 5]).wait().unwrap();
        bench.store.refresh_metadata(b"twice", b"newest").wait().unwrap();
        bench.store.remove(b"twice").unwrap();
        let bench = if crashes { bench.crashed() } else { bench };
        for key in ["removed", "purged", "twice"] {
            assert_eq!(bench.metadata(key), None, "{key}");
        }
        let replaced = bench.read("replaced");
        assert_eq!(replaced.map(|object| object.len()), (!crashes).then_some(5));
        bench.store.sync().unwrap();
        bench.store.drop_memory();
        for key in ["removed", "purged", "twice"] {
            assert_eq!(bench.metadata(key), None, "{key}");
        }
        bench.store.close().unwrap();
    }
}

/// A read may find the older state while the record with the newer is still to be replayed.
#[test]
fn what_was_read_before_the_newer_was_replayed_leaves_memory() {
    let bench = Bench::new();
    bench.make("key", SMALL);
    let object = bench.read("key").unwrap();
    let engine = bench.store.engine();
    let hash = engine.hash(b"key");
    let held = || engine.cache.resident.shard(hash).get(hash).and_then(|it| it.state.location());
    let older = held().expect("it is in memory, and on disk");
    let newer = SummaryEntry {
        hash: hash.get(),
        group: 1,
        seq: object.seq.get() + 1,
        offset_units: 64,
        stored_units: 64,
        kind: Some(RecordKind::Object),
    };
    engine.insert_replayed(&newer, Location::new(older.units() + 64));
    assert_eq!(held(), None);
    assert_eq!(engine.index.candidates(hash.get()).len(), 1);
}

/// Its segment is written to no more: nothing but the index knows the older state.
#[test]
fn an_older_state_is_no_object_of_its_own() {
    let bench = Bench::new();
    bench.make("key", SMALL);
    let objects = bench.stats().index_objects;
    for n in 0..5_u8 {
        bench.refresh("key", &[n]);
        bench.store.sync().unwrap();
        assert_eq!(bench.stats().index_objects, objects);
    }
    // It expires while it waits.
    let at = Some(1_700_000_010);
    assert!(bench.store.set_metadata_with(b"key", b"5", at).wait().unwrap());
    bench.store.sync().unwrap();
    bench.refresh("key", b"6");
    assert_eq!(bench.stats().index_objects, objects);
    bench.pass(100_000);
    assert_eq!(bench.stats().index_objects, objects - 1);
    assert_eq!(bench.metadata("key"), None);
    bench.store.close().unwrap();
}

/// What is replaced while it waits is let go of long before what waits is written.
#[test]
fn what_is_refreshed_often_takes_no_more_memory_than_twice_its_length_and_some() {
    let bench = Bench::new();
    for n in 0..50_u32 {
        bench.make(&format!("{n}"), SMALL);
    }
    let before = bench.stats();
    for round in 0..30_u32 {
        for n in 0..50_u32 {
            bench.refresh(&format!("{n}"), &round.to_le_bytes());
        }
        bench.pass(1000);
        assert!(bench.store.engine().nursery.bytes() < 1 << 20);
    }
    assert_eq!(bench.stats().pages_written, before.pages_written);
    bench.store.close().unwrap();
}

#[test]
fn a_large_object_in_memory_stays_there_with_its_new_metadata() {
    let bench = Bench::new();
    for key in ["a", "to", "the"] {
        bench.make(key, LARGE);
    }
    let before = bench.stats();
    for n in 0..200_u8 {
        for key in ["a", "to", "the"] {
            match n % 2 {
                0 => bench.refresh(key, &[n]),
                _ => assert!(bench.store.set_metadata(key.as_bytes(), &[n]).wait().unwrap()),
            }
            let object = bench.read(key).unwrap();
            assert!(object.from_memory());
            assert_eq!(
                (object.metadata(), &*object),
                (&[n][..], &vec![key.len() as u8; LARGE][..])
            );
        }
        bench.pass(500);
        assert_eq!(bench.metadata("a").unwrap(), [n]);
    }
    let after = bench.stats();
    assert_eq!(disk_reads(&after) - disk_reads(&before), 0);
    assert!(after.written_object_bytes - before.written_object_bytes < LARGE as u64);
    let more = after.memory_used_bytes.saturating_sub(before.memory_used_bytes);
    assert!(more < 6 * LARGE as u64, "what is replaced makes room: {more}");
    bench.store.drop_memory();
    assert_eq!(bench.metadata("to").unwrap(), [199]);
    bench.store.close().unwrap();
}

/// The older state is what the index has, and a read of it could be submitted at once.
#[test]
fn an_awaited_read_gets_new_metadata_also_of_what_is_not_in_memory() {
    for refreshes in [false, true] {
        let bench = Bench::new();
        bench.make("key", LARGE);
        bench.store.drop_memory();
        match refreshes {
            true => bench.refresh("key", b"new"),
            false => assert!(bench.store.set_metadata(b"key", b"new").wait().unwrap()),
        }
        bench.store.drop_memory();
        let mut read = pin!(bench.store.read(b"key"));
        let object = loop {
            match read.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(object) => break object.unwrap().unwrap(),
                Poll::Pending => std::thread::yield_now(),
            }
        };
        assert_eq!((object.metadata(), object.len()), (&b"new"[..], LARGE));
        bench.store.close().unwrap();
    }
}

/// A value of a third of a page is longer than that with its metadata, and then an extent.
#[test]
fn what_is_counted_as_dead_is_not_moved_again_and_again() {
    let bench = Bench::new();
    let bytes = bench.store.engine().page_record_max() as usize - 100;
    bench.make("key", bytes);
    bench.store.create(b"other", GroupId::new(1), &[1; 10]).wait().unwrap();
    for n in 0..1_000_u32 {
        bench.refresh("key", &n.to_le_bytes().repeat(100));
        bench.pass(1);
    }
    let before = bench.stats().nursery_moved_bytes;
    (0..10).for_each(|_| bench.pass(0));
    assert_eq!(bench.stats().nursery_moved_bytes, before);
    bench.store.close().unwrap();
}

/// Both saw the object in memory when they began, and neither its value nor its place was kept.
#[test]
fn of_two_that_set_the_metadata_of_a_large_object_at_once_none_is_refused() {
    let bench = Bench::new();
    bench.make("key", LARGE);
    let mut n = 0;
    let mut both = |expires_unix_s| {
        n += 2;
        let (one, other) = ([n], [n + 1]);
        let first = bench.store.set_metadata_with(b"key", &one, expires_unix_s);
        let second = bench.store.set_metadata(b"key", &other);
        assert!(first.wait().unwrap() && second.wait().unwrap());
        assert_eq!(bench.metadata("key").unwrap(), other);
    };
    // What is replaced first is the object itself, then a patch that waits.
    (0..2).for_each(|_| both(None));
    both(Some(1_800_000_000));
    // And one that is on disk.
    bench.store.sync().unwrap();
    both(None);
    bench.store.sync().unwrap();
    both(Some(1_900_000_000));
    // An object that is new is another.
    bench.store.sync().unwrap();
    let late = bench.store.set_metadata(b"key", b"late");
    bench.make("key", LARGE);
    assert!(matches!(late.wait(), Err(MetadataError::Superseded)));
    assert_eq!(bench.metadata("key").unwrap(), b"old");
    bench.store.close().unwrap();
}

/// It is a create by its waits, all of them.
#[test]
fn new_metadata_waits_for_the_object_s_write_as_long_as_creates() {
    let at_once = Err(MetadataError::StillWriting { waited_ms: 0 });
    for (reads_s, creates_s, expected) in [(600, 0, at_once), (0, 600, Ok(true))] {
        let bench = Bench::with(State::new(DEVICE_BYTES, false), |config| {
            config.memory_wait = Duration::from_secs(reads_s);
            config.create_wait = Some(Duration::from_secs(creates_s));
        });
        bench.store.create(b"key", GroupId::new(1), &[7; LARGE]).wait().unwrap();
        assert_eq!(bench.store.set_metadata(b"key", b"new").wait(), expected);
    }
}
