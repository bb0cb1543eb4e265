//! A whole store under chosen schedules: creates, reads with guards, eviction, removal, sync and
//! close, with flusher, keeper and recovery as threads of their own and each transfer done by one
//! more.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::io;
use std::sync::Mutex as PlainMutex;

use super::{explore, lock};
use crate::device::{Device, DeviceInfo, DeviceStats, Io, JournalArea};
use crate::in_memory::{Memory, State, Stopped};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, thread};
use crate::{ByteSize, Config, GroupId, Object, ReadThrough, Store};

const DEVICE_BYTES: usize = 6 << 20;

/// The device: others go on before and after a transfer, never in the midst of one, so that the
/// lock of the memory below is a plain one.
struct Scheduled(Arc<dyn Device>);

type Bytes = Arc<PlainMutex<State>>;

impl Device for Scheduled {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    fn submit(&self, io: Io) {
        let memory = Arc::clone(&self.0);
        thread::spawn(move || memory.submit(io));
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        thread::yield_now();
        let outcome = self.0.read_at(offset, buf);
        thread::yield_now();
        outcome
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        thread::yield_now();
        self.0.write_at(offset, buf)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn journal(&self, offset: u64, len: u64) -> io::Result<Box<dyn JournalArea>> {
        self.0.journal(offset, len)
    }

    fn stats(&self) -> DeviceStats {
        self.0.stats()
    }
}

fn open(bytes: &Bytes) -> Store {
    let mut config = Config::new("memory", ByteSize::new(DEVICE_BYTES as u64));
    config.memory = ByteSize::new(4 << 20);
    config.page = Some(ByteSize::new(16 << 10));
    config.segment = Some(ByteSize::new(256 << 10));
    config.objects_max = Some(64);
    config.groups_tracked_max = 16;
    config.seed = Some(1);
    let device = Arc::new(Scheduled(Memory::device(bytes)));
    Store::open_on(config, vec![device], Arc::new(Stopped)).unwrap()
}

/// A version that every word of the value tells, so that a mixture of two shows.
fn value(version: u64, bytes: usize) -> Vec<u8> {
    version.to_le_bytes().repeat(bytes / 8)
}

fn version_of(object: &[u8]) -> u64 {
    let (words, rest) = object.as_chunks::<8>();
    assert!(rest.is_empty() && words.iter().all(|word| *word == words[0]), "one version's bytes");
    u64::from_le_bytes(words[0])
}

fn read(store: &Store, key: &[u8]) -> Option<Object> {
    store.read(key).wait().unwrap()
}

/// Versions of one key that a reader sees do not go back, and a guard keeps its own.
fn watch(store: &Store, key: &[u8], newest: &Mutex<u64>) {
    let (mut last, mut held) = (0, Vec::new());
    for _ in 0..4 {
        let least = *lock(newest);
        if let Some(object) = read(store, key) {
            let version = version_of(&object);
            assert!(version >= last.max(least), "{version} after {last}, created: {least}");
            last = version;
            held.push((version, object));
        }
    }
    for (version, object) in held {
        assert_eq!(version_of(&object), version);
    }
}

#[test]
fn shuttle_readers_never_see_an_older_version() {
    explore(300, || {
        let bytes = State::new(DEVICE_BYTES, false);
        let store = Arc::new(open(&bytes));
        let newest = Arc::new(Mutex::new(0));
        let writer = {
            let (store, newest) = (Arc::clone(&store), Arc::clone(&newest));
            thread::spawn(move || {
                for version in 1..5 {
                    store.create(b"key", GroupId::new(1), &value(version, 800)).wait().unwrap();
                    *lock(&newest) = version;
                    match version {
                        2 => store.sync().unwrap(),
                        3 => store.drop_memory(),
                        _ => {}
                    }
                }
            })
        };
        let reader = {
            let (store, newest) = (Arc::clone(&store), Arc::clone(&newest));
            thread::spawn(move || watch(&store, b"key", &newest))
        };
        watch(&store, b"key", &newest);
        writer.join().unwrap();
        reader.join().unwrap();
        store.drop_memory();
        assert_eq!(read(&store, b"key").map(|object| version_of(&object)), Some(4));
        let store = Arc::into_inner(store).expect("the threads have ended");
        store.close().unwrap();
        let store = open(&bytes);
        store.wait_recovered();
        assert_eq!(read(&store, b"key").map(|object| version_of(&object)), Some(4));
        store.close().unwrap();
    });
}

#[test]
fn shuttle_memory_that_is_full_is_taken_from_nobody_who_reads() {
    explore(100, || {
        let bytes = State::new(DEVICE_BYTES, false);
        let store = Arc::new(open(&bytes));
        let threads: Vec<_> = (0..2_u64)
            .map(|id| {
                let store = Arc::clone(&store);
                thread::spawn(move || {
                    let mut held = None;
                    for n in 0..14_u64 {
                        let (key, version) = ([id as u8, n as u8 % 6], id * 100 + n);
                        store
                            .create(&key, GroupId::new(id), &value(version, 240_000))
                            .wait()
                            .unwrap();
                        if n == 8 {
                            store.remove(&[id as u8, 1]).unwrap();
                            assert!(read(&store, &[id as u8, 1]).is_none(), "it was removed");
                        }
                        if let Some(object) = read(&store, &[1 - id as u8, n as u8 % 5]) {
                            assert_eq!(version_of(&object) / 100, 1 - id, "the other's value");
                            held = Some((version_of(&object), object));
                        }
                    }
                    if let Some((version, object)) = held {
                        assert_eq!(version_of(&object), version);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        Arc::into_inner(store).expect("the threads have ended").close().unwrap();
    });
}

/// Another thread's create, remove or purge stands, whenever it comes between, and after the store
/// was closed and opened.
#[test]
fn shuttle_new_metadata_undoes_nothing() {
    let others: [fn(&Store); 4] = [
        |store| store.create(b"key", GroupId::new(1), &value(2, 800)).wait().unwrap(),
        |store| {
            store.remove(b"key").unwrap();
        },
        |store| store.purge_group(GroupId::new(1)).unwrap(),
        |store| {
            store.purge_prefix(b"k").unwrap();
            store.create(b"key", GroupId::new(1), &value(2, 800)).wait().unwrap();
        },
    ];
    for (other, left) in others.into_iter().zip([Some(2), None, None, Some(2)]) {
        explore(100, move || {
            let bytes = State::new(DEVICE_BYTES, false);
            let store = Arc::new(open(&bytes));
            store.create(b"key", GroupId::new(1), &value(1, 800)).wait().unwrap();
            let setters: Vec<_> = (0..2)
                .map(|setter| {
                    let store = Arc::clone(&store);
                    thread::spawn(move || {
                        if setter == 0 {
                            store.sync().unwrap();
                            store.drop_memory();
                        }
                        match store.set_metadata(b"key", b"new").wait() {
                            Ok(_) | Err(crate::MetadataError::Superseded) => {}
                            Err(error) => panic!("{error}"),
                        }
                    })
                })
                .collect();
            other(&store);
            let seen = |store: &Store| read(store, b"key").map(|object| version_of(&object));
            assert_eq!(seen(&store), left);
            setters.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(seen(&store), left);
            Arc::into_inner(store).expect("the threads have ended").close().unwrap();
            let store = open(&bytes);
            store.wait_recovered();
            assert_eq!(seen(&store), left);
            store.close().unwrap();
        });
    }
}

/// What was deleted before a crash is found by nobody, whenever a read begins and however long its
/// I/O takes.
#[test]
fn shuttle_what_was_deleted_is_not_read_while_a_crash_is_recovered_from() {
    explore(100, || {
        let bytes = State::new(DEVICE_BYTES, false);
        let store = open(&bytes);
        store.create(b"key", GroupId::new(1), &value(1, 800)).wait().unwrap();
        store.sync().unwrap();
        store.checkpoint().unwrap();
        store.remove(b"key").unwrap();
        let left = bytes.lock().unwrap().copied();
        store.close().unwrap();
        let crashed = Arc::new(open(&left));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let crashed = Arc::clone(&crashed);
                thread::spawn(move || {
                    for _ in 0..3 {
                        assert!(read(&crashed, b"key").is_none(), "it was deleted");
                    }
                })
            })
            .collect();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        crashed.wait_recovered();
        Arc::into_inner(crashed).expect("the threads have ended").close().unwrap();
    });
}

/// Damages this value on the device.
fn damage(bytes: &Bytes, value: &[u8]) {
    let device = Memory::device(bytes);
    let mut all = vec![0; DEVICE_BYTES];
    device.read_at(0, &mut all).unwrap();
    let at = all.windows(value.len()).position(|there| there == value).unwrap();
    device.write_at(at as u64, &[0xff; 8]).unwrap();
}

/// A reader forgets the old version, which is damaged, while a new one is created: that is there
/// after a crash too.
#[test]
fn shuttle_what_is_created_is_not_forgotten_with_what_is_damaged() {
    explore(100, || {
        let bytes = State::new(DEVICE_BYTES, false);
        let store = Arc::new(open(&bytes));
        store.create(b"key", GroupId::new(1), &value(1, 800)).wait().unwrap();
        store.sync().unwrap();
        store.drop_memory();
        damage(&bytes, &value(1, 800));
        let reader = {
            let store = Arc::clone(&store);
            thread::spawn(move || read(&store, b"key").map(|object| version_of(&object)))
        };
        store.create(b"key", GroupId::new(1), &value(2, 800)).wait().unwrap();
        assert_ne!(reader.join().unwrap(), Some(1));
        store.sync().unwrap();
        let seen = |store: &Store| read(store, b"key").map(|object| version_of(&object));
        assert_eq!(seen(&store), Some(2));
        // Its lock is a plain one: it must not be held while others go on.
        let left = bytes.lock().unwrap().copied();
        let crashed = open(&left);
        crashed.wait_recovered();
        assert_eq!(seen(&crashed), Some(2), "after a crash");
        crashed.close().unwrap();
        Arc::into_inner(store).expect("the reader has ended").close().unwrap();
    });
}

/// Readers that fetch what is not there while the origin changes: none is served a version older
/// than the newest announced when its read began.
#[test]
fn shuttle_no_fetch_goes_behind_a_change() {
    explore(150, || {
        let bytes = State::new(DEVICE_BYTES, false);
        let reads = ReadThrough::<()>::new(open(&bytes));
        let group = GroupId::new(1);
        let versions = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (reads, versions) = (reads.clone(), Arc::clone(&versions));
                thread::spawn(move || {
                    let [origin, announced] = &*versions;
                    for _ in 0..3 {
                        let least = announced.load(Ordering::SeqCst);
                        let fetch = || Ok(value(origin.load(Ordering::SeqCst), 64));
                        let served = reads.read_blocking(b"key", group, fetch).unwrap();
                        let version = version_of(&served);
                        assert!(version >= least, "{version}, announced: {least}");
                    }
                })
            })
            .collect();
        let [origin, announced] = &*versions;
        for version in 1..=3 {
            origin.store(version, Ordering::SeqCst);
            if version == 2 {
                reads.remove(b"key").unwrap();
            } else {
                reads.purge_group(group).unwrap();
            }
            announced.store(version, Ordering::SeqCst);
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        reads.store().clone().close().unwrap();
    });
}
