//! What is refused, what waits, and how it is counted: once, under its reason.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::time::Duration;

use damelo::{
    ByteSize, Config, CreateError, CreateOptions, GroupId, Object, ReadError, Store, WriterOptions,
};
use tempfile::TempDir;

/// 4 MiB of memory, of which one record takes 512 KiB at most.
fn config(dir: &TempDir) -> Config {
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(64 << 20));
    config.memory = ByteSize::new(4 << 20);
    config.object_max = ByteSize::new(2 << 20);
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
    let writer = open(WriterOptions { metadata, ..WriterOptions::default() }).unwrap();
    let refused = writer.commit().wait().unwrap_err();
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
    config.object_max = ByteSize::new(8 << 30);
    config.segment = Some(ByteSize::new(256 << 10));
    config.page = Some(ByteSize::new(16 << 10));
    let store = Store::open(config).unwrap();
    // So small a segment has no room to list so many parts.
    let sized = |length| {
        let options = WriterOptions { length: Some(length), ..WriterOptions::default() };
        store.writer(b"key", group(), options).map(drop)
    };
    let Err(CreateError::TooLarge { length, max }) = sized(8 << 30) else {
        panic!("8 GiB in parts of 64 KiB were to be listed in 128 KiB");
    };
    assert_eq!(length, 8 << 30);
    assert!((100 << 20..1 << 30).contains(&max), "{max}");
    sized(max).unwrap();
    assert!(sized(max + 1).is_err());
}

#[test]
fn whoever_waits_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir);
    config.memory_wait = Duration::from_millis(50);
    let store = Store::open(config).unwrap();
    let waits = || {
        let stats = store.stats();
        [stats.create_waits, stats.read_waits, stats.writer_waits, stats.metadata_waits]
    };
    create(&store, 1, &[1; 100_000]);
    assert_eq!(waits(), [0; 4]);
    assert!(store.set_metadata(&1_u64.to_le_bytes(), b"new").wait().unwrap());
    assert_eq!(waits(), [0, 0, 0, 1], "for the object to be on disk");
    store.sync().unwrap();
    store.drop_memory();

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
    assert_eq!(waits(), [1, 0, 0, 1]);
    let refused = store.read(&1_u64.to_le_bytes()).wait().map(|_| ());
    assert_eq!(refused, Err(ReadError::MemoryFull));
    let mut writer = store.writer(b"key", group(), WriterOptions::default()).unwrap();
    assert_eq!(writer.write(&[1; 100_000]).wait(), Err(CreateError::MemoryFull));
    drop(writer);
    assert_eq!(waits(), [1, 1, 1, 1]);
    assert_eq!(store.stats().drops_abandoned, 0);
}

#[test]
fn what_has_an_impossible_size_is_refused_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir);
    config.object_max = ByteSize::new(1 << 20);
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
