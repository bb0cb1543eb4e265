//! Who waits for room is served in order of arrival: what is large gets in beside small objects
//! that are created as fast as there is room for one.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use damelo::device::{Device, DeviceInfo, DeviceStats, Io, IoOp, JournalArea};
use damelo::{ByteSize, Config, CreateError, GroupId, Store, SystemClock, WriterOptions};

mod in_memory;

const DEVICE_BYTES: usize = 128 << 20;
/// The nursery takes 4 MiB of this.
const MEMORY_BYTES: u64 = 16 << 20;
/// The longest single record takes half of the nursery.
const LARGE_BYTES: usize = 2_000_000;
/// More writes than what there is at first takes to be written.
const WRITES: usize = 40;

/// A device that does writes one by one, when the test says so.
struct Slow {
    device: Arc<dyn Device>,
    held: Mutex<Option<VecDeque<Io>>>,
}

impl Slow {
    /// Does the write that waits longest; false if there is none.
    fn do_one(&self) -> bool {
        let next = self.held.lock().unwrap().as_mut().unwrap().pop_front();
        next.map(|io| self.device.submit(io)).is_some()
    }

    fn let_go(&self) {
        let held = self.held.lock().unwrap().take();
        held.into_iter().flatten().for_each(|io| self.device.submit(io));
    }
}

impl Device for Slow {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    fn submit(&self, io: Io) {
        let mut held = self.held.lock().unwrap();
        match &mut *held {
            Some(held) if io.op == IoOp::Write => held.push_back(io),
            _ => {
                drop(held);
                self.device.submit(io);
            }
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.device.write_at(offset, buf)
    }

    fn sync(&self) -> io::Result<()> {
        self.device.sync()
    }

    fn journal(&self, offset: u64, len: u64) -> io::Result<Box<dyn JournalArea>> {
        self.device.journal(offset, len)
    }

    fn stats(&self) -> DeviceStats {
        self.device.stats()
    }
}

fn opened(create_wait: Option<Duration>) -> (Arc<Store>, Arc<Slow>) {
    let mut config = Config::new("in turn", ByteSize::new(DEVICE_BYTES as u64));
    config.memory = ByteSize::new(MEMORY_BYTES);
    config.segment = Some(ByteSize::new(8 << 20));
    config.memory_wait = Duration::from_secs(600);
    config.create_wait = create_wait;
    config.flush_period = Duration::ZERO;
    config.seed = Some(1);
    let device = in_memory::Memory::device(&in_memory::State::new(DEVICE_BYTES, false));
    let slow = Arc::new(Slow { device, held: Mutex::default() });
    let devices: Vec<Arc<dyn Device>> = vec![slow.clone()];
    let store = Store::open_on(config, devices, Arc::new(SystemClock::new())).unwrap();
    store.wait_recovered();
    (Arc::new(store), slow)
}

/// Creates small objects until there is no room for one.
fn fill(store: &Store, next: &mut u64) {
    loop {
        let before = store.stats().creates;
        // What is not done at once is never begun.
        drop(store.create(&next.to_le_bytes(), GroupId::new(1), &[1; 1000]));
        if store.stats().creates == before {
            return;
        }
        *next += 1;
    }
}

/// Whether this is done by the time at which so many writes are, though there are always small
/// objects for whatever room comes free.
fn gets_in(large: fn(&Store) -> Result<(), CreateError>) -> bool {
    let (store, slow) = opened(None);
    *slow.held.lock().unwrap() = Some(VecDeque::new());
    let mut next = 0;
    fill(&store, &mut next);
    let theirs = Arc::clone(&store);
    let creating = thread::spawn(move || large(&theirs));
    while store.stats().create_waits + store.stats().writer_waits == 0 {
        thread::yield_now();
    }
    let mut written = 0;
    while !creating.is_finished() && written < WRITES {
        fill(&store, &mut next);
        match slow.do_one() {
            true => written += 1,
            false => thread::sleep(Duration::from_millis(1)),
        }
    }
    // It may be the last write that makes room for it.
    let got_in = written < WRITES;
    slow.let_go();
    assert_eq!(creating.join().unwrap(), Ok(()));
    got_in
}

#[test]
fn creates_alone_need_not_wait_for_a_disk_that_does_not_keep_up() {
    let (store, slow) = opened(Some(Duration::ZERO));
    *slow.held.lock().unwrap() = Some(VecDeque::new());
    fill(&store, &mut 0);
    let group = GroupId::new(2);
    assert_eq!(store.create(b"key", group, &[1; 1000]).wait(), Err(CreateError::MemoryFull));
    let mut writer = store.writer(b"long", group, WriterOptions::default()).unwrap();
    let written = writer.write(&vec![2; LARGE_BYTES + (1 << 20)]).wait();
    assert_eq!(written, Err(CreateError::MemoryFull));
    slow.let_go();
}

#[test]
fn a_large_create_gets_in_beside_small_ones() {
    let value =
        |store: &Store| store.create(b"large", GroupId::new(2), &vec![2; LARGE_BYTES]).wait();
    assert!(gets_in(value));
}

#[test]
fn a_part_of_a_stream_gets_in_beside_small_creates() {
    assert!(gets_in(|store| {
        let mut writer = store.writer(b"long", GroupId::new(2), WriterOptions::default())?;
        writer.write(&vec![2; LARGE_BYTES + (1 << 20)]).wait()
    }));
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Unpark>) {
        self.0.unpark();
    }
}

#[test]
fn an_awaited_part_of_a_stream_gets_in_beside_small_creates() {
    assert!(gets_in(|store| {
        let mut writer = store.writer(b"long", GroupId::new(2), WriterOptions::default())?;
        let bytes = vec![2; LARGE_BYTES + (1 << 20)];
        let mut write = pin!(writer.write(&bytes));
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        loop {
            match write.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(written) => return written,
                Poll::Pending => thread::park(),
            }
        }
    }));
}
