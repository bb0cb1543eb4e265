//! A store without threads of its own (`Config::background`): the same calls make the same transfers,
//! nothing is lost or wrong, and callers on several threads do not wait for each other for ever.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use damelo::device::{Device, DeviceInfo, DeviceStats, Io, IoOp, JournalArea};
use damelo::{ByteSize, Clock, Config, GroupId, Store};

const DEVICE_BYTES: usize = 16 << 20;

/// Whether it was a write, where, how much, and a sum of the bytes.
type Transfer = (bool, u64, usize, u32);

struct State {
    bytes: Vec<u8>,
    log: Vec<Transfer>,
}

/// A device in memory that does everything at once and remembers it.
struct Memory {
    info: DeviceInfo,
    state: Arc<Mutex<State>>,
}

impl State {
    fn read(&mut self, offset: u64, buf: &mut [u8]) {
        buf.copy_from_slice(&self.bytes[offset as usize..][..buf.len()]);
        self.log.push((false, offset, buf.len(), crc32c::crc32c(buf)));
    }

    fn write(&mut self, offset: u64, buf: &[u8]) {
        self.bytes[offset as usize..][..buf.len()].copy_from_slice(buf);
        self.log.push((true, offset, buf.len(), crc32c::crc32c(buf)));
    }
}

impl Device for Memory {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, io: Io) {
        let mut offset = io.offset;
        for piece in &io.bufs {
            let (start, len) = (piece.as_ptr(), piece.len());
            let mut state = self.state.lock().unwrap();
            match io.op {
                IoOp::Read => {
                    // SAFETY: `IoBuf::new` promised that the memory is valid and nobody else's until
                    // `done`, which is called below.
                    let bytes = unsafe { std::slice::from_raw_parts_mut(start, len) };
                    state.read(offset, bytes);
                }
                IoOp::Write => {
                    // SAFETY: as above; nobody changes the memory before `done`.
                    let bytes = unsafe { std::slice::from_raw_parts(start, len) };
                    state.write(offset, bytes);
                }
            }
            offset += len as u64;
        }
        (io.done)(Ok(()));
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.state.lock().unwrap().read(offset, buf);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.state.lock().unwrap().write(offset, buf);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn journal(&self, offset: u64, len: u64) -> io::Result<Box<dyn JournalArea>> {
        Ok(Box::new(Journal { state: Arc::clone(&self.state), offset, len }))
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }
}

struct Journal {
    state: Arc<Mutex<State>>,
    offset: u64,
    len: u64,
}

impl JournalArea for Journal {
    fn read_all(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.len as usize];
        self.state.lock().unwrap().read(self.offset, &mut bytes);
        Ok(bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.state.lock().unwrap().write(self.offset + offset, bytes);
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

fn open(state: &Arc<Mutex<State>>, background: bool) -> Store {
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
    config.seed = Some(1);
    config.background = background;
    let device = Arc::new(Memory { info, state: Arc::clone(state) });
    Store::open_on(config, vec![device], Arc::new(Stopped)).unwrap()
}

fn empty() -> Arc<Mutex<State>> {
    Arc::new(Mutex::new(State { bytes: vec![0; DEVICE_BYTES], log: Vec::new() }))
}

fn value(key: u64, version: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(key * 1000 + version);
    // Mostly for pages, some for extents of their own, and a few in parts.
    let len = match rng.u8(0..200) {
        0 => rng.usize(300_000..500_000),
        1..12 => rng.usize(1..200_000),
        _ => rng.usize(1..9_000),
    };
    vec![rng.u8(..); len]
}

/// Creates, replaces, reads and removes, several times what the device and the journal hold; the
/// number of hits, each of which was compared with the newest version.
fn use_it(store: &Store, seed: u64, operations: u64) -> u64 {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut versions = vec![None; 600];
    let mut hits = 0;
    for operation in 0..operations {
        let number = rng.u64(0..600);
        let (key, group) = (number.to_le_bytes(), GroupId::new(number % 7));
        match rng.u8(0..10) {
            0..4 => {
                store.create(&key, group, &value(number, operation)).wait().unwrap();
                versions[number as usize] = Some(operation);
            }
            4..6 => {
                store.remove(&key).unwrap();
                versions[number as usize] = None;
            }
            _ => {
                if let Some(object) = store.read(&key).wait().unwrap() {
                    let version = versions[number as usize].expect("it was removed");
                    assert_eq!(&*object, value(number, version), "{number}");
                    hits += 1;
                }
            }
        }
    }
    hits
}

#[test]
fn the_same_calls_do_the_same() {
    let run = || {
        let state = empty();
        let store = open(&state, false);
        // Recovery reads on several threads, whose order means nothing.
        state.lock().unwrap().log.clear();
        let hits = use_it(&store, 5, 12_000);
        store.sync().unwrap();
        let resident = store.stats().resident_objects;
        store.close().unwrap();
        let log = std::mem::take(&mut state.lock().unwrap().log);
        (hits, resident, log)
    };
    let (one, other) = (run(), run());
    assert!(one.0 > 500, "{} hits", one.0);
    let written: usize = one.2.iter().filter(|(write, ..)| *write).map(|(_, _, len, _)| len).sum();
    assert!(written > 2 * DEVICE_BYTES, "the ring came round: {written}");
    assert_eq!((one.0, one.1), (other.0, other.1));
    let differs = one.2.iter().zip(&other.2).position(|(a, b)| a != b);
    assert_eq!((differs, one.2.len()), (None, other.2.len()), "the transfers are the same");
}

#[test]
fn what_was_synced_is_there_for_a_store_with_threads() {
    let state = empty();
    let store = open(&state, false);
    for key in 0..300_u64 {
        store.create(&key.to_le_bytes(), GroupId::new(key % 7), &value(key, 0)).wait().unwrap();
    }
    store.sync().unwrap();
    store.close().unwrap();
    let store = open(&state, true);
    store.wait_recovered();
    for key in 0..300_u64 {
        let object = store.read(&key.to_le_bytes()).wait().unwrap().expect("it was synced");
        assert_eq!(&*object, value(key, 0));
    }
}

#[test]
fn callers_on_several_threads_get_on() {
    let state = empty();
    let store = open(&state, false);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..1_500_u64 {
                    let key = ((thread << 32) | (n % 200)).to_le_bytes();
                    store.create(&key, GroupId::new(n % 5), &value(n, thread)).wait().unwrap();
                    match n % 97 {
                        0 => store.sync().unwrap(),
                        1 => store.purge_group(GroupId::new(n % 5)).unwrap(),
                        _ => {}
                    }
                    let _ = store.read(&key).wait().unwrap();
                }
            });
        }
    });
    store.close().unwrap();
}
