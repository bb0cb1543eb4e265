//! What of replacements the journal has to be told, and what a crash leaves where it was not.

use std::mem::ManuallyDrop;
use std::sync::Mutex;
use std::time::Duration;

use super::*;
use crate::format::JournalOp;
use crate::in_memory::{Memory, State, Stopped};
use crate::write::value::Value;
use crate::{ByteSize, Config, Store};

const DEVICE_BYTES: usize = 32 << 20;
const KEY: &[u8] = b"key";
const GROUP: GroupId = GroupId::new(1);

/// A store whose flusher works when the test says so. Never closed: it crashes.
struct Bench {
    state: Arc<Mutex<State>>,
    store: ManuallyDrop<Store>,
}

impl Bench {
    fn on(state: Arc<Mutex<State>>) -> Bench {
        let mut config = Config::new("memory", ByteSize::new(DEVICE_BYTES as u64));
        config.memory = ByteSize::new(8 << 20);
        config.page = Some(ByteSize::new(16 << 10));
        config.segment = Some(ByteSize::new(1 << 20));
        config.flush_period = Duration::ZERO;
        config.checkpoint_period = Duration::ZERO;
        config.background = false;
        config.seed = Some(1);
        let store =
            Store::open_on(config, vec![Memory::device(&state)], Arc::new(Stopped)).unwrap();
        store.wait_recovered();
        Bench { state, store: ManuallyDrop::new(store) }
    }

    /// With version 1 of the key on disk.
    fn new() -> Bench {
        let bench = Bench::on(State::new(DEVICE_BYTES, false));
        bench.create(1);
        bench.store.sync().unwrap();
        bench
    }

    /// The same, with a record in the journal: the first would make the next sync a checkpoint,
    /// which waits.
    fn with_journal() -> Bench {
        let bench = Bench::new();
        bench.create(1);
        bench.store.sync().unwrap();
        bench
    }

    fn create(&self, version: u16) {
        self.store.create(KEY, GROUP, &value(version)).wait().unwrap();
    }

    /// A create that is about to be seen when something else is done.
    fn create_late(&self, version: u16, meanwhile: impl FnOnce()) {
        let engine = self.store.engine();
        let value = value(version);
        let new = NewObject::of(KEY, GROUP, Value::Whole(&value));
        let (hash, fields) = (engine.hash(KEY), fields_of(engine, &new, engine.hash(KEY), false));
        let stored = header_of(&fields, &new).stored_bytes() as usize;
        let (run, offset) = engine.room_for_small(stored).unwrap();
        let room = RecordRoom { run, offset, is_extent: false, chunked: false };
        let staged = engine.stage(&new, hash, room, |run, fields, header| {
            // SAFETY: the range was reserved for this.
            encode(unsafe { run.bytes_mut(offset, stored) }, fields, &new, header);
            meanwhile();
        });
        assert!(staged.is_ok());
    }

    fn there(&self) -> Option<u16> {
        version(&self.store)
    }

    fn journalled(&self) -> u64 {
        self.store.stats().journal_records
    }

    /// The version that is there after a crash now.
    fn after_crash(&self) -> Option<u16> {
        version(&Bench::on(self.state.lock().unwrap().copied()).store)
    }
}

fn version(store: &Store) -> Option<u16> {
    let found = store.read(KEY).wait().unwrap();
    found.map(|object| u16::from_le_bytes([object[0], object[1]]))
}

fn value(version: u16) -> Vec<u8> {
    version.to_le_bytes().repeat(450)
}

#[test]
fn what_is_replaced_again_and_again_is_journalled_once_each_time_it_is_written() {
    let bench = Bench::new();
    let before = bench.journalled();
    for version in 2..1002 {
        bench.create(version);
    }
    assert_eq!(bench.journalled() - before, 1);
    assert_eq!(bench.after_crash(), None, "what is on disk was replaced");
    bench.store.sync().unwrap();
    assert_eq!(bench.after_crash(), Some(1001));
    for version in 1002..2002 {
        bench.create(version);
    }
    assert_eq!(bench.journalled() - before, 2);
    assert_eq!(bench.after_crash(), None);
}

#[test]
fn a_checkpoint_between_replacements_brings_nothing_back() {
    let bench = Bench::new();
    bench.create(2);
    bench.create(3);
    bench.store.checkpoint().unwrap();
    bench.create(4);
    bench.create(5);
    assert_eq!(bench.after_crash(), None);
    bench.store.sync().unwrap();
    assert_eq!(bench.after_crash(), Some(5));
}

#[test]
fn what_is_removed_after_replacements_is_journalled() {
    let bench = Bench::new();
    (2..10).for_each(|version| bench.create(version));
    let before = bench.journalled();
    assert!(bench.store.remove(KEY).unwrap());
    assert_eq!(bench.journalled() - before, 1);
    bench.create(10);
    assert_eq!(bench.after_crash(), None);
    bench.store.sync().unwrap();
    assert_eq!(bench.after_crash(), Some(10));
}

/// Others created something meanwhile, so that numbers were given between this one's and the next.
#[test]
fn what_is_created_beside_much_else_is_journalled_once() {
    let bench = Bench::new();
    let before = bench.journalled();
    for version in 2..10 {
        bench.create_late(version, || {
            bench.store.create(&version.to_le_bytes(), GROUP, b"another").wait().unwrap();
        });
    }
    assert_eq!(bench.journalled() - before, 1);
    assert_eq!(bench.after_crash(), None, "what is on disk was replaced");
}

/// What was created meanwhile was written, and has left memory, before this was to be seen.
#[test]
fn a_create_that_came_late_is_what_a_crash_leaves() {
    let bench = Bench::with_journal();
    let meanwhile = || {
        bench.create(3);
        bench.store.sync().unwrap();
        bench.store.drop_memory();
    };
    bench.create_late(2, meanwhile);
    assert_eq!(bench.there(), Some(2));
    assert_eq!(bench.after_crash(), None, "all that is on disk was replaced");
    bench.create(4);
    assert_eq!(bench.after_crash(), None, "all that is on disk was replaced");
    bench.create_late(2, meanwhile);
    bench.store.sync().unwrap();
    assert_eq!(bench.after_crash(), Some(2));
}

#[test]
fn a_create_that_came_later_than_a_remove_is_what_a_crash_leaves() {
    let bench = Bench::with_journal();
    bench.create_late(2, || assert!(bench.store.remove(KEY).unwrap()));
    assert_eq!(bench.there(), Some(2));
    bench.store.sync().unwrap();
    assert_eq!(bench.after_crash(), Some(2));
}

/// What waits for a checkpoint is what the journal has to be told.
#[test]
fn what_nothing_is_known_of_needs_no_room_in_the_journal() {
    let bench = Bench::new();
    let engine = bench.store.engine();
    let mark = JournalOp::PurgeGroup { group: 99 };
    while engine.journal.has_room() {
        engine.journal_append(mark.clone(), engine.new_seq()).unwrap();
    }
    let before = bench.store.stats();
    let create = |key: &[u8]| engine.create_now(&NewObject::of(key, GROUP, Value::Whole(b"new")));
    assert!(matches!(create(KEY), Err(CreateBlocked::MustWait)));
    for number in 0..100_u64 {
        assert!(create(&number.to_le_bytes()).is_ok(), "{number}");
        assert!(!bench.store.remove(format!("unknown {number}").as_bytes()).unwrap());
    }
    assert!(matches!(create(&7_u64.to_le_bytes()), Err(CreateBlocked::MustWait)), "it is known");
    let stats = bench.store.stats();
    assert_eq!(
        (stats.checkpoints, stats.journal_records),
        (before.checkpoints, before.journal_records)
    );
    assert!(bench.store.remove(KEY).unwrap(), "after a checkpoint");
    assert_eq!(bench.store.stats().checkpoints, before.checkpoints + 1);
    assert!(create(KEY).is_ok());
}
