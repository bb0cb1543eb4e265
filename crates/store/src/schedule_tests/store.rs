//! A whole store under chosen schedules: creates, reads with guards, eviction, removal, sync and close,
//! with flusher, keeper and recovery as threads of their own and each transfer done by one more.

use std::sync::Mutex as PlainMutex;

use super::{explore, lock};
use crate::device::{Device, DeviceInfo, DeviceStats, Io, IoOp, JournalArea};
use crate::sync::{Arc, Mutex, thread};
use crate::{ByteSize, Clock, Config, GroupId, Object, Store};

use std::io;
use std::time::Duration;

const DEVICE_BYTES: usize = 6 << 20;

/// The device. Nothing is scheduled while its bytes are locked, so the lock is a plain one.
struct Memory {
    info: DeviceInfo,
    bytes: Bytes,
}

type Bytes = Arc<PlainMutex<Vec<u8>>>;

struct Journal {
    bytes: Bytes,
    offset: u64,
    len: u64,
}

fn copy_out(bytes: &Bytes, offset: u64, buf: &mut [u8]) {
    let bytes = bytes.lock().unwrap();
    buf.copy_from_slice(&bytes[offset as usize..][..buf.len()]);
}

fn copy_in(bytes: &Bytes, offset: u64, buf: &[u8]) {
    bytes.lock().unwrap()[offset as usize..][..buf.len()].copy_from_slice(buf);
}

impl Device for Memory {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, io: Io) {
        let bytes = Arc::clone(&self.bytes);
        thread::spawn(move || {
            let mut offset = io.offset;
            for piece in &io.bufs {
                let (start, len) = (piece.as_ptr(), piece.len());
                // SAFETY: `IoBuf::new` promised that the memory is valid and nobody else's until `done`
                // is called, below.
                match io.op {
                    IoOp::Read => copy_out(&bytes, offset, unsafe {
                        std::slice::from_raw_parts_mut(start, len)
                    }),
                    // SAFETY: as above.
                    IoOp::Write => {
                        copy_in(&bytes, offset, unsafe { std::slice::from_raw_parts(start, len) });
                    }
                }
                offset += len as u64;
            }
            (io.done)(Ok(()));
        });
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        thread::yield_now();
        copy_out(&self.bytes, offset, buf);
        thread::yield_now();
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        thread::yield_now();
        copy_in(&self.bytes, offset, buf);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn journal(&self, offset: u64, len: u64) -> io::Result<Box<dyn JournalArea>> {
        Ok(Box::new(Journal { bytes: Arc::clone(&self.bytes), offset, len }))
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }
}

impl JournalArea for Journal {
    fn read_all(&self) -> io::Result<Vec<u8>> {
        let mut all = vec![0; self.len as usize];
        copy_out(&self.bytes, self.offset, &mut all);
        Ok(all)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        copy_in(&self.bytes, self.offset + offset, bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

struct Stopped;

impl Clock for Stopped {
    fn unix_seconds(&self) -> u64 {
        1_700_000_000
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

fn open(bytes: &Bytes) -> Store {
    let info = DeviceInfo {
        name: "memory".to_owned(),
        size_bytes: DEVICE_BYTES as u64,
        block_bytes: 512,
        direct: true,
        rotational: false,
        engine: "memory",
    };
    let mut config = Config::new("memory", ByteSize::new(DEVICE_BYTES as u64));
    config.memory = ByteSize::new(4 << 20);
    config.page = Some(ByteSize::new(16 << 10));
    config.segment = Some(ByteSize::new(256 << 10));
    config.objects_max = Some(64);
    config.groups_tracked_max = 16;
    config.seed = Some(1);
    let device = Arc::new(Memory { info, bytes: Arc::clone(bytes) });
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
        let bytes: Bytes = Arc::new(PlainMutex::new(vec![0; DEVICE_BYTES]));
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
        let bytes: Bytes = Arc::new(PlainMutex::new(vec![0; DEVICE_BYTES]));
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
