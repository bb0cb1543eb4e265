//! Who waits for room is served in order of arrival: what is large gets in beside small objects
//! that are created as fast as there is room for one.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use damelo::device::{Device, Io, IoOp};
use damelo::{ByteSize, Config, CreateError, GroupId, Store, SystemClock, WriterOptions};

mod in_memory;
mod tapped;

use tapped::{Tap, Tapped};

const DEVICE_BYTES: usize = 128 << 20;
/// The nursery takes 4 MiB of this.
const MEMORY_BYTES: u64 = 16 << 20;
/// The longest single record takes half of the nursery.
const LARGE_BYTES: usize = 2_000_000;
/// More writes than what there is at first takes to be written.
const WRITES: usize = 40;

/// A device that does writes one by one, when the test says so.
type Slow = Tapped<HeldWrites>;

#[derive(Default)]
struct HeldWrites(Mutex<Option<VecDeque<Io>>>);

impl Slow {
    fn hold(&self) {
        *self.tap.0.lock().unwrap() = Some(VecDeque::new());
    }

    /// Does the write that waits longest; false if there is none.
    fn do_one(&self) -> bool {
        let next = self.tap.0.lock().unwrap().as_mut().unwrap().pop_front();
        next.map(|io| self.disk.submit(io)).is_some()
    }

    fn let_go(&self) {
        let held = self.tap.0.lock().unwrap().take();
        held.into_iter().flatten().for_each(|io| self.disk.submit(io));
    }
}

impl Tap for HeldWrites {
    fn submit(&self, disk: &dyn Device, io: Io) {
        match &mut *self.0.lock().unwrap() {
            Some(held) if io.op == IoOp::Write => return held.push_back(io),
            _ => {}
        }
        disk.submit(io);
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
    let disk = in_memory::Memory::device(&in_memory::State::new(DEVICE_BYTES, false));
    let slow = Arc::new(Slow { disk, tap: HeldWrites::default() });
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
    slow.hold();
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
    slow.hold();
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
