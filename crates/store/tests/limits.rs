//! What is refused, what waits, and how it is counted: once, under its reason.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use damelo::device::{Device, Io, IoOp};
use damelo::{
    ByteSize, Config, CreateError, CreateOptions, GroupId, Object, ReadError, Store, SystemClock,
    WhenMemoryFull, WriterOptions,
};
use tempfile::TempDir;

mod in_memory;
mod tapped;

use tapped::{Tap, Tapped};

/// 4 MiB of memory, of which one record takes 512 KiB at most.
fn config(dir: &TempDir) -> Config {
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(64 << 20));
    config.memory = ByteSize::new(4 << 20);
    config.object_bytes_max = ByteSize::new(2 << 20);
    // Nothing is written because its time has come.
    config.flush_period = Duration::ZERO;
    config
}

fn group() -> GroupId {
    GroupId::new(1)
}

fn create(store: &Store, key: u64, value: &[u8]) {
    store.create(&key.to_le_bytes(), group(), value).wait().unwrap();
}

/// Creates objects and holds them until they fill all memory but so many bytes.
fn hold_all_but(store: &Store, free_bytes: u64) -> Vec<Object> {
    let mut held = Vec::new();
    for key in 1_000..1_100_u64 {
        create(store, key, &[1; 100_000]);
        store.sync().unwrap();
        held.extend(store.read(&key.to_le_bytes()).wait().unwrap());
        let stats = store.stats();
        if stats.memory_bytes - stats.memory_used_bytes < free_bytes {
            break;
        }
    }
    held
}

#[test]
fn a_writer_that_is_refused_counts_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(config(&dir)).unwrap();
    let counts = || (store.stats().drops_too_large, store.stats().drops_abandoned);
    let open = |options| store.writer(b"key", group(), options);

    let metadata = vec![0; 2 << 20];
    let options = WriterOptions { metadata, ..WriterOptions::default() };
    let refused = open(options).map(drop).expect_err("before anything is written in vain");
    assert!(matches!(refused, CreateError::MetadataTooLarge { .. }), "{refused}");
    assert_eq!(counts(), (1, 0));

    let mut writer = open(WriterOptions::default()).unwrap();
    let refused = writer.write(&vec![0; 3 << 20]).wait().unwrap_err();
    assert_eq!(refused, CreateError::TooLarge { length: 3 << 20, max: 2 << 20 });
    drop(writer);
    assert_eq!(counts(), (2, 0));

    drop(open(WriterOptions::default()).unwrap());
    assert_eq!(counts(), (2, 1), "what nobody refused is abandoned");
}

#[test]
fn a_flush_period_may_be_as_long_as_time_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir);
    config.flush_period = std::time::Duration::MAX;
    let store = Store::open(config.clone()).unwrap();
    create(&store, 1, b"value");
    store.close().unwrap();
    let store = Store::open(config).unwrap();
    assert!(store.read(&1_u64.to_le_bytes()).wait().unwrap().is_some());
}

#[test]
fn a_value_and_metadata_that_fit_in_no_one_record_are_stored_in_parts() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(config(&dir)).unwrap();
    let (value, metadata) = (vec![5; 400 << 10], vec![6; 200 << 10]);
    let options = WriterOptions { metadata: metadata.clone(), ..WriterOptions::default() };
    let mut writer = store.writer(b"key", group(), options).unwrap();
    writer.write(&value).wait().unwrap();
    writer.commit().wait().unwrap();
    store.drop_memory();
    let range = store.read_range(b"key", 0..u64::MAX).wait().unwrap().expect("it is there");
    assert_eq!((&range[..], range.metadata()), (&value[..], &metadata[..]));
}

#[test]
fn the_limit_that_a_refusal_names_is_the_one_that_refuses() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir);
    config.object_bytes_max = ByteSize::new(8 << 30);
    config.segment = Some(ByteSize::new(256 << 10));
    config.page = Some(ByteSize::new(16 << 10));
    let store = Store::open(config).unwrap();
    // Beside so long a key and so much metadata so small a segment has no room to list many parts.
    let (key, metadata) = (vec![b'k'; 60 << 10], vec![b'm'; 63_000]);
    let sized = |length| {
        let metadata = metadata.clone();
        let options = WriterOptions { length: Some(length), metadata, ..WriterOptions::default() };
        store.writer(&key, group(), options).map(drop)
    };
    let Err(CreateError::TooLarge { length, max }) = sized(8 << 30) else {
        panic!("8 GiB in parts of 64 KiB were to be listed in 4 KiB");
    };
    assert_eq!(length, 8 << 30);
    assert!((1 << 20..16 << 20).contains(&max), "{max}");
    sized(max).unwrap();
    assert!(sized(max + 1).is_err());
}

/// Bytes that differ from place to place.
fn long_value(length: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(length);
    (0..length).map(|_| rng.u8(..)).collect()
}

#[test]
fn an_object_of_more_than_half_of_the_volumes_is_refused_before_it_pushes_out_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir);
    config.object_bytes_max = ByteSize::new(8 << 30);
    let store = Store::open(config).unwrap();
    (0..100).for_each(|key| create(&store, key, &[7; 10_000]));
    store.sync().unwrap();
    let max = store.info().object_bytes_max;
    assert!((20 << 20..32 << 20).contains(&max), "{max} of 64 MiB");
    let too_large = |length| CreateError::TooLargeForVolumes { length, max };
    let sized = |length| {
        let options = WriterOptions { length: Some(length), ..WriterOptions::default() };
        store.writer(b"k", group(), options)
    };

    assert_eq!(sized(max + 1).map(drop), Err(too_large(max + 1)));
    let value = long_value(max + 1);
    assert_eq!(store.create(b"k", group(), &value).wait(), Err(too_large(max + 1)));
    let mut writer = store.writer(b"k", group(), WriterOptions::default()).unwrap();
    let refused = value.chunks(1 << 20).try_for_each(|piece| writer.write(piece).wait());
    assert_eq!(refused, Err(too_large(max + 1)));
    drop(writer);
    assert_eq!((store.stats().drops_too_large, store.stats().drops_abandoned), (3, 0));
    let value = &value[..max as usize];
    let mut writer = sized(max).unwrap();
    value.chunks(1 << 20).for_each(|piece| writer.write(piece).wait().unwrap());
    writer.commit().wait().unwrap();
    store.sync().unwrap();
    store.drop_memory();
    for key in 0..100_u64 {
        assert!(store.read(&key.to_le_bytes()).wait().unwrap().is_some(), "{key} was pushed out");
    }
    let mut reader = store.reader(b"k").wait().unwrap().expect("it was stored");
    let mut read = Vec::new();
    while let Some(piece) = reader.next().wait().unwrap() {
        read.extend_from_slice(&piece);
    }
    assert!(read == value, "other bytes came out");
}

#[test]
fn the_largest_object_is_there_when_it_was_stored_however_few_the_segments() {
    for (size, segment) in [(9 << 20, 1 << 20), (16 << 20, 1 << 20), (12 << 20, 256 << 10)] {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(&dir);
        config.volumes[0].size = Some(ByteSize::new(size));
        config.segment = Some(ByteSize::new(segment));
        config.page = Some(ByteSize::new(16 << 10));
        config.object_bytes_max = ByteSize::new(8 << 30);
        let store = Store::open(config).unwrap();
        let value = long_value(store.info().object_bytes_max);
        for round in 0..9_u64 {
            // Segments of both kinds are open, and the object begins anywhere in one.
            create(&store, round, &[7; 1000]);
            create(&store, 100 + round, &vec![7; 30_000 * round as usize]);
            let mut writer = store.writer(b"k", group(), WriterOptions::default()).unwrap();
            value.chunks(1 << 20).for_each(|piece| writer.write(piece).wait().unwrap());
            writer.commit().wait().unwrap();
            store.drop_memory();
            let last = value.len() as u64 - 1;
            for at in [0, last / 2, last] {
                let byte = store.read_range(b"k", at..at + 1).wait().unwrap();
                let byte = byte.unwrap_or_else(|| panic!("{size}: gone in round {round}"));
                assert_eq!(byte[0], value[at as usize]);
            }
        }
    }
}

#[test]
fn an_object_whose_start_was_overwritten_while_it_came_in_is_not_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir);
    config.object_bytes_max = ByteSize::new(8 << 30);
    let store = Store::open(config).unwrap();
    let mut writer = store.writer(b"k", group(), WriterOptions::default()).unwrap();
    writer.write(&long_value(4 << 20)).wait().unwrap();
    (0..900).for_each(|key| create(&store, key, &[7; 100_000]));
    let length = 4 << 20;
    assert_eq!(writer.commit().wait(), Err(CreateError::Overwritten { length }));
    let stats = store.stats();
    assert_eq!((stats.drops_overwritten, stats.drops_abandoned), (1, 0));
    assert!(store.read_range(b"k", 0..1).wait().unwrap().is_none());
}

#[test]
fn whoever_waits_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir);
    config.memory_wait = Duration::from_secs(600);
    let waits = |store: &Store| {
        let stats = store.stats();
        [stats.create_waits, stats.read_waits, stats.writer_waits, stats.metadata_waits]
    };
    let store = Store::open(config.clone()).unwrap();
    create(&store, 1, &[1; 100_000]);
    assert_eq!(waits(&store), [0; 4]);
    assert!(store.set_metadata(&1_u64.to_le_bytes(), b"new").wait().unwrap());
    assert_eq!(waits(&store), [0, 0, 0, 1], "for the object to be on disk");
    store.close().unwrap();

    config.memory_wait = Duration::from_millis(50);
    let store = Store::open(config).unwrap();
    store.wait_recovered();
    let waits = || waits(&store);

    let mut held = hold_all_but(&store, 3 * (64 << 10));
    // The rest.
    let mut key = 2_000;
    while waits()[0] == 0 {
        let made = store.create(&u64::to_le_bytes(key), group(), &[1; 100_000]).wait();
        if made.is_ok() {
            store.sync().unwrap();
            held.extend(store.read(&key.to_le_bytes()).wait().unwrap());
        }
        key += 1;
    }
    assert_eq!(waits(), [1, 0, 0, 0]);
    let refused = store.read(&1_u64.to_le_bytes()).wait().map(|_| ());
    assert_eq!(refused, Err(ReadError::MemoryFull));
    let mut writer = store.writer(b"key", group(), WriterOptions::default()).unwrap();
    assert_eq!(writer.write(&[1; 100_000]).wait(), Err(CreateError::MemoryFull));
    drop(writer);
    assert_eq!(waits(), [1, 1, 1, 0]);
    assert_eq!(store.stats().drops_abandoned, 0);
}

#[test]
fn what_has_an_impossible_size_is_refused_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir);
    config.object_bytes_max = ByteSize::new(1 << 20);
    let store = Store::open(config).unwrap();
    let group = group();
    let (long, large) = (vec![b'k'; (64 << 10) + 1], vec![0; 2 << 20]);
    let with_metadata = || CreateOptions { metadata: &large, ..CreateOptions::default() };
    let refused = |outcome: Result<(), CreateError>| outcome.unwrap_err();
    refused(store.create(b"", group, b"v").wait());
    refused(store.create(&long, group, b"v").wait());
    refused(store.create(b"k", group, &large).wait());
    refused(store.create_with(b"k", group, b"v", with_metadata()).wait());
    refused(store.writer(&long, group, WriterOptions::default()).map(drop));
    assert_eq!(store.stats().drops_too_large, 5);
    store.create(&long[1..], group, b"v").wait().unwrap();
    store.sync().unwrap();
    let stats = store.stats();
    assert_eq!((stats.drops_too_large, stats.creates), (5, 1));
    let writes: u64 = stats.write_latency.iter().map(|(_, count)| count).sum();
    assert!(writes > 0, "a write took no time that was seen");
}

#[test]
fn a_create_that_needs_memory_which_waits_to_be_written_gets_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir);
    config.memory_wait = Duration::from_secs(2);
    let store = Store::open(config).unwrap();
    // All but the memory of two such objects is held by readers.
    let held = hold_all_but(&store, 6 * (64 << 10));
    (0..10).for_each(|key| create(&store, key, &[1; 100_000]));
    drop(held);
}

/// What is said of it is what it takes.
#[test]
fn a_guard_says_how_much_memory_it_pins() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir);
    config.page = Some(ByteSize::new(64 << 10));
    let store = Store::open(config).unwrap();
    for (length, pinned) in [(100, 64 << 10), (100_000, 100_000)] {
        store.create(b"key", group(), &vec![1; length]).wait().unwrap();
        let object = store.read(b"key").wait().unwrap().unwrap();
        assert!((pinned..=2 * pinned).contains(&object.pinned_bytes()), "{length} bytes");
    }
}

/// What was there is out of date, and whoever passes over the error must not get it.
#[test]
fn a_refused_create_removes_what_it_was_to_replace() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir);
    config.memory_wait = Duration::from_millis(50);
    let store = Store::open(config).unwrap();
    let large = vec![1; 3 << 20];
    let known = |length| WriterOptions { length, ..WriterOptions::default() };
    type Refusal<'a> = (&'a str, Box<dyn Fn() -> Result<(), CreateError> + 'a>);
    let mut refusals: Vec<Refusal> = vec![
        ("value", Box::new(|| store.create(b"k", group(), &large).wait())),
        (
            "metadata",
            Box::new(|| {
                let options = CreateOptions { metadata: &large, ..CreateOptions::default() };
                store.create_with(b"k", group(), b"v", options).wait()
            }),
        ),
        (
            "declared length",
            Box::new(|| store.writer(b"k", group(), known(Some(3 << 20))).map(drop)),
        ),
        (
            "metadata of a writer",
            Box::new(|| {
                let mut writer = store.writer(b"k", group(), known(None))?;
                writer.set_metadata(large.clone());
                writer.commit().wait()
            }),
        ),
        (
            "torn",
            Box::new(|| {
                let mut writer = store.writer(b"k", group(), known(None))?;
                assert!(writer.write(&large).wait().is_err());
                writer.commit().wait()
            }),
        ),
    ];
    for (what, refusal) in refusals.drain(..) {
        for on_disk in [false, true] {
            store.create(b"k", group(), b"old").wait().unwrap();
            if on_disk {
                store.sync().unwrap();
                store.drop_memory();
            }
            refusal().unwrap_err();
            assert!(store.read(b"k").wait().unwrap().is_none(), "{what}, on disk: {on_disk}");
        }
    }
    store.create(b"k", group(), b"old").wait().unwrap();
    let mut writer = store.writer(b"k", group(), known(None)).unwrap();
    writer.write(&large).wait().unwrap_err();
    drop(writer);
    assert!(store.read(b"k").wait().unwrap().is_none(), "a refused write, and no commit");
    store.create(b"k", group(), b"old").wait().unwrap();
    assert!(store.set_metadata(b"k", &large).wait().is_err());
    assert_eq!(&*store.read(b"k").wait().unwrap().unwrap(), b"old", "nothing replaces it");

    let mut held = hold_all_but(&store, 3 * (64 << 10));
    let refused = (2_000_u64..).find_map(|key| {
        store.create(b"k", group(), &[1; 100_000]).wait().err().or_else(|| {
            let object = store.read(b"k").wait().unwrap();
            held.extend(object);
            store.sync().unwrap();
            (key > 2_200).then_some(CreateError::Closed)
        })
    });
    assert_eq!(refused, Some(CreateError::MemoryFull));
    assert!(store.read(b"k").wait().unwrap().is_none(), "no memory");
}

/// A whole part each would be far more than there is.
#[test]
fn writers_of_unknown_length_take_little_memory_at_first() {
    many_slow_writers(None);
}

/// All of their length would be, too.
#[test]
fn many_slow_writers_of_known_length_take_little_memory_at_first() {
    many_slow_writers(Some(400_001));
}

fn many_slow_writers(length: Option<u64>) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(config(&dir)).unwrap();
    let mut writers = Vec::new();
    for key in 0..24_u8 {
        let options = WriterOptions { length, ..WriterOptions::default() };
        let mut writer = store.writer(&[key], group(), options).unwrap();
        writer.write(b"x").wait().unwrap();
        writers.push(writer);
    }
    create(&store, 1, &[1; 100_000]);
    // They grow as what is written does.
    let value = long_value(400_000);
    let mut one = writers.pop().unwrap();
    value.chunks(10_007).for_each(|piece| one.write(piece).wait().unwrap());
    one.commit().wait().unwrap();
    let object = store.read(&[23]).wait().unwrap().unwrap();
    assert!(object[0] == b'x' && object[1..] == value[..], "other bytes came out");
    for writer in writers {
        writer.commit().wait().unwrap();
    }
    assert_eq!(&*store.read(&[0]).wait().unwrap().unwrap(), b"x");
}

#[test]
fn a_writer_is_refused_at_once_where_a_create_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir);
    config.when_memory_full = WhenMemoryFull::Refuse;
    config.memory_wait = Duration::from_secs(600);
    let store = Store::open(config).unwrap();
    let mut held = hold_all_but(&store, 3 * (64 << 10));
    for key in 2_000..2_100_u64 {
        if store.create(&key.to_le_bytes(), group(), &[1; 100_000]).wait().is_ok() {
            store.sync().unwrap();
            held.extend(store.read(&key.to_le_bytes()).wait().unwrap());
        }
    }
    // Now and then a writer finds room where a create as long found none.
    let mut writers = Vec::new();
    let is_refused = |key: u64| {
        let begun = Instant::now();
        let mut writer =
            store.writer(&key.to_le_bytes(), group(), WriterOptions::default()).unwrap();
        let written = writer.write(&[1; 100_000]).wait();
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
        writers.push(writer);
        written == Err(CreateError::MemoryFull)
    };
    assert!((0..10).any(is_refused));
}

/// A device that keeps writes to itself once it is told to, until it is let go.
type Stuck = Tapped<HeldWrites>;

#[derive(Default)]
struct HeldWrites(Mutex<Option<Vec<Io>>>);

impl Stuck {
    fn let_go(&self) {
        let held = self.tap.0.lock().unwrap().take();
        held.into_iter().flatten().for_each(|io| self.disk.submit(io));
    }
}

impl Tap for HeldWrites {
    fn submit(&self, disk: &dyn Device, io: Io) {
        match &mut *self.0.lock().unwrap() {
            Some(held) if io.op == IoOp::Write => return held.push(io),
            _ => {}
        }
        disk.submit(io);
    }
}

#[test]
fn the_end_of_a_streamed_object_waits_no_longer_than_configured() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir);
    config.memory_wait = Duration::from_millis(100);
    let disk = in_memory::Memory::device(&in_memory::State::new(64 << 20, false));
    let stuck = Arc::new(Stuck { disk, tap: HeldWrites::default() });
    let store = Store::open_on(config, vec![Arc::clone(&stuck) as _], Arc::new(SystemClock::new()))
        .unwrap();
    *stuck.tap.0.lock().unwrap() = Some(Vec::new());
    // Two parts, the second is sent at commit.
    let mut writer = store.writer(b"key", group(), WriterOptions::default()).unwrap();
    writer.write(&[1; 900 << 10]).wait().unwrap();
    let full = |key: u64| store.create(&key.to_le_bytes(), group(), &[1; 100_000]).wait().is_err();
    (0..100).find(|key| full(*key)).expect("the nursery has no end");
    let (sender, ended) = std::sync::mpsc::channel();
    let committing = std::thread::spawn(move || sender.send(writer.commit().wait()));
    let outcome = ended.recv_timeout(Duration::from_secs(60));
    stuck.let_go();
    assert_eq!(outcome, Ok(Err(CreateError::MemoryFull)));
    committing.join().unwrap().unwrap();
}

/// Nobody keeps what was read: all have memory sooner or later, though not all at once.
#[test]
fn many_ranges_over_several_parts_are_read_one_after_the_other_rather_than_refused() {
    const THREADS: u64 = 24;
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir);
    config.memory = ByteSize::new(8 << 20);
    config.segment = Some(ByteSize::new(512 << 10));
    config.memory_wait = Duration::from_secs(30);
    let store = Store::open(config).unwrap();
    let length = (1_u64 << 20) - 40_000;
    for key in 0..THREADS {
        let mut writer = store.writer(&key.to_le_bytes(), group(), Default::default()).unwrap();
        writer.write(&vec![key as u8; length as usize]).wait().unwrap();
        writer.commit().wait().unwrap();
    }
    store.sync().unwrap();
    store.drop_memory();
    let barrier = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, barrier) = (&store, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for key in (thread..thread + 4).map(|key| key % THREADS) {
                    let part = store.read_range(&key.to_le_bytes(), 10..length).wait().unwrap();
                    let part = part.expect("it is there");
                    assert_eq!(part.len() as u64, length - 10);
                    assert!(part.iter().all(|byte| *byte == key as u8));
                }
            });
        }
    });
    assert_eq!(store.stats().reads_refused, 0);
    store.close().unwrap();
}

#[test]
fn what_is_to_expire_after_2106_expires_in_2106() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(config(&dir)).unwrap();
    let last = u64::from(u32::MAX);
    for (told, kept) in [(last - 1, last - 1), (last, last), (last + 1, last), (u64::MAX, last)] {
        let options = CreateOptions { expires_unix_s: Some(told), ..CreateOptions::default() };
        store.create_with(b"k", group(), b"v", options).wait().unwrap();
        let info = store.lookup(b"k").wait().unwrap().unwrap();
        assert_eq!(info.expires_unix_s, Some(kept));
    }
}

/// A store that is never idle forgets purge marks once the ring has come round past what they were
/// for, and what was purged stays so even if only memory still has it.
#[test]
fn marks_of_purges_do_not_pile_up_in_a_busy_store() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir);
    config.volumes[0].size = Some(ByteSize::new(16 << 20));
    config.memory = ByteSize::new(8 << 20);
    config.flush_period = Duration::from_secs(1);
    let store = Store::open(config).unwrap();
    let loved = GroupId::of("loved");
    store.love(loved);
    store.create(b"kept in memory", loved, &[1; 2_000]).wait().unwrap();
    store.sync().unwrap();
    store.purge_group(loved).unwrap();
    let mut most = 0;
    for key in 0..24_000_u64 {
        create(&store, key, &[2; 4_000]);
        if key % 20 == 0 {
            store.purge_group(GroupId::new(1_000 + key)).unwrap();
            store.purge_prefix(format!("prefix {key}").as_bytes()).unwrap();
        }
        most = most.max(store.stats().purge_marks);
    }
    let stats = store.stats();
    assert!(stats.written_bytes > 5 * (16 << 20), "the ring came round: {}", stats.written_bytes);
    // A turn takes about 4,000 objects, hence 400 marks.
    assert!(most < 1_200, "{most} of {} marks", stats.purges);
    assert!(store.read(b"kept in memory").wait().unwrap().is_none(), "it was purged");
    let there = (23_500..24_000_u64)
        .filter(|key| store.read(&key.to_le_bytes()).wait().unwrap().is_some())
        .count();
    assert_eq!(there, 500, "nothing else was");
    store.close().unwrap();
}

#[test]
fn what_cannot_be_written_names_the_volume() {
    let dir = tempfile::tempdir().unwrap();
    let state = in_memory::State::new(64 << 20, false);
    let volume = in_memory::Memory::device(&state);
    let store = Store::open_on(config(&dir), vec![volume], Arc::new(SystemClock::new())).unwrap();
    state.lock().unwrap().fail_writes();
    create(&store, 1, &[1; 1000]);
    let error = store.sync().unwrap_err().to_string();
    let told = "1 objects could not be written and were dropped: memory: it is broken";
    assert_eq!(error, told);
    let mut writer = store.writer(b"parts", group(), WriterOptions::default()).unwrap();
    let written = writer.write(&[2; 1_500_000]).wait();
    let error = written.and_then(|()| writer.commit().wait()).unwrap_err().to_string();
    assert!(error.contains(": memory: "), "{error}");
}

/// Each crash costs what was not written yet, and no segment.
#[test]
fn a_store_that_crashes_often_forgets_nothing_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = in_memory::State::new(28 << 20, false);
    let open = |state: &Arc<Mutex<in_memory::State>>| {
        let mut config = config(&dir);
        config.segment = Some(ByteSize::new(512 << 10));
        let volume = in_memory::Memory::device(state);
        let store = Store::open_on(config, vec![volume], Arc::new(SystemClock::new())).unwrap();
        store.wait_recovered();
        store
    };
    let store = open(&state);
    (0..1_500_u64).for_each(|key| create(&store, key, &[1; 8_000]));
    store.close().unwrap();
    let mut continued = 0;
    for life in 0..60_u64 {
        let store = open(&state);
        create(&store, 10_000 + life, &[2; 1_000]);
        if life % 4 == 0 {
            create(&store, 20_000 + life, &[3; 40_000]);
        }
        store.sync().unwrap();
        continued += store.stats().segments_continued;
        let crashed = state.lock().unwrap().copied();
        drop(store);
        state = crashed;
    }
    let store = open(&state);
    let there = |key: u64| store.read(&key.to_le_bytes()).wait().unwrap().is_some();
    assert_eq!((0..1_500).filter(|key| there(*key)).count(), 1_500, "went on {continued} times");
    assert_eq!((10_000..10_060).filter(|key| there(*key)).count(), 60);
    assert_eq!((0..60).filter(|life| there(20_000 + life)).count(), 15);
    assert!(continued >= 60, "{continued}");
}

/// How long a record is, the index knows to a fiftieth: what is longer than what may be read in
/// one piece by that alone is read all the same.
#[test]
fn what_was_accepted_whole_can_be_read_whole() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(256 << 20));
    config.memory = ByteSize::new(64 << 20);
    config.page = Some(ByteSize::new(16 << 10));
    config.segment = Some(ByteSize::new(16 << 20));
    let store = Store::open(config).unwrap();
    for below in (1..8).map(|step| step * 16_000) {
        let value = vec![7; (8 << 20) - below];
        store.create(b"key", group(), &value).wait().unwrap();
        store.sync().unwrap();
        store.drop_memory();
        let found = store.read(b"key").wait().map(|found| found.map(|object| object.len()));
        assert_eq!(found, Ok(Some(value.len())));
    }
}
