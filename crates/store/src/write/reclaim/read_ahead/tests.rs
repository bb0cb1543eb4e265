//! What is under way at once, and what comes of reads that end in any order, fail, or are not
//! waited for any more.
//!
//! Owns a device that keeps reads until the test ends them. Threads: the test's.

use std::io;

use super::{AHEAD_BYTES_MAX, ON_FLASH, ReadAhead};
use crate::device::{Device, DeviceInfo, DeviceStats, Io, IoOp, JournalArea};
use crate::durable::segment_contents::segment_entries;
use crate::engine::Engine;
use crate::format::{RecordHeader, RecordKind, SummaryEntry, verify_record};
use crate::in_memory::{Memory, State, Stopped};
use crate::policy::residency::Hint;
use crate::space::SegmentId;
use crate::sync::{Arc, Mutex, lock};
use crate::types::KeyHash;
use crate::write::reclaim::{Keeper, location_of};
use crate::{ByteSize, Config, GroupId, Store};

const DEVICE_BYTES: usize = 16 << 20;
const OBJECTS: u32 = 500;
const BYTES: usize = 3_000;

/// Keeps the reads that are submitted while there is a list for them.
struct Keeping {
    memory: Arc<dyn Device>,
    kept: Arc<Mutex<Option<Vec<Io>>>>,
}

impl Device for Keeping {
    fn info(&self) -> &DeviceInfo {
        self.memory.info()
    }

    fn submit(&self, io: Io) {
        match lock(&self.kept).as_mut() {
            Some(kept) if io.op == IoOp::Read => kept.push(io),
            _ => self.memory.submit(io),
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.memory.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.memory.write_at(offset, buf)
    }

    fn sync(&self) -> io::Result<()> {
        self.memory.sync()
    }

    fn journal(&self, offset: u64, len: u64) -> io::Result<Box<dyn JournalArea>> {
        self.memory.journal(offset, len)
    }

    fn stats(&self) -> DeviceStats {
        self.memory.stats()
    }
}

fn bytes_of(io: &Io) -> u64 {
    io.bufs.iter().map(|buf| buf.len() as u64).sum()
}

/// A segment full of objects, none of them in memory.
struct Full {
    store: Store,
    memory: Arc<dyn Device>,
    kept: Arc<Mutex<Option<Vec<Io>>>>,
    segment: SegmentId,
    keepers: Vec<Keeper>,
}

impl Full {
    fn new() -> Full {
        let mut config = Config::new("memory", ByteSize::new(DEVICE_BYTES as u64));
        config.memory = ByteSize::new(4 << 20);
        config.page = Some(ByteSize::new(16 << 10));
        config.segment = Some(ByteSize::new(2 << 20));
        config.background = false;
        config.seed = Some(1);
        let memory = Memory::device(&State::new(DEVICE_BYTES, false));
        let kept = Arc::default();
        let device = Arc::new(Keeping { memory: Arc::clone(&memory), kept: Arc::clone(&kept) });
        let store = Store::open_on(config, vec![device], Arc::new(Stopped)).expect("a store");
        for key in 0..OBJECTS {
            let created = store.create(&key.to_le_bytes(), GroupId::new(1), &[key as u8; BYTES]);
            created.wait().expect("an object");
        }
        store.sync().expect("all are written");
        store.drop_memory();
        let (segment, keepers) = keepers(store.engine());
        Full { store, memory, kept, segment, keepers }
    }

    fn ahead(&self) -> ReadAhead<'_> {
        ReadAhead::new(self.store.engine(), self.segment, &self.keepers)
    }

    /// The reads that are kept when the first object is wanted; those that follow are not kept.
    fn begun(&self, ahead: &mut ReadAhead<'_>) -> Vec<Io> {
        *lock(&self.kept) = Some(Vec::new());
        ahead.begin_windows(&self.keepers[0]);
        lock(&self.kept).take().expect("a list")
    }

    /// Those whose records cannot be had; what there is of the others is whole.
    fn lost(&self, ahead: &mut ReadAhead<'_>) -> usize {
        let is_lost = |keeper: &&Keeper| {
            let Some(record) = ahead.record(keeper) else { return true };
            let nonce = self.store.engine().space.nonce;
            let header = RecordHeader::decode(record, nonce).expect("a record");
            assert_eq!(header.key_hash(), keeper.entry.key_hash());
            assert!(verify_record(&header, record), "a whole one");
            false
        };
        self.keepers.iter().filter(is_lost).count()
    }

    fn reads(&self) -> u64 {
        self.store.stats().maintenance_reads
    }
}

/// All that the segment of the first object holds, as if all of it were to be kept.
fn keepers(engine: &Arc<Engine>) -> (SegmentId, Vec<Keeper>) {
    let hash: KeyHash = engine.hash(&0_u32.to_le_bytes());
    let candidates = engine.index.candidates(hash.get());
    let (segment, _) = engine.space.split(candidates.iter().next().expect("the first").location);
    let keeper = |entry: SummaryEntry| {
        let location = location_of(engine, segment, &entry);
        let hint = Hint::Neutral;
        Keeper { entry, location, known_at: location, hint, worth: 1, freq: 1 }
    };
    let entries = segment_entries(engine, segment).expect("it can be read");
    let mut keepers: Vec<Keeper> = entries.into_iter().map(keeper).collect();
    keepers.sort_unstable_by_key(|keeper| keeper.entry.offset_units);
    assert!(keepers.iter().all(|keeper| keeper.entry.kind == Some(RecordKind::Object)));
    (segment, keepers)
}

#[test]
fn several_are_under_way_and_take_no_more_than_they_may() {
    let full = Full::new();
    let mut ahead = full.ahead();
    let begun = full.begun(&mut ahead);
    let lengths: Vec<u64> = begun.iter().map(bytes_of).collect();
    let all: u64 = lengths.iter().sum();
    assert!(lengths.iter().all(|bytes| *bytes <= ON_FLASH.window_bytes), "{lengths:?}");
    assert!((AHEAD_BYTES_MAX / 2..=AHEAD_BYTES_MAX).contains(&all), "{lengths:?}");
    let before = full.reads();
    // The last first.
    begun.into_iter().rev().for_each(|io| full.memory.submit(io));
    assert_eq!(full.lost(&mut ahead), 0);
    let more = full.reads() - before;
    assert!(more < lengths.len() as u64, "{more} reads for the rest of the segment");
}

/// One read of several objects fails, then each of them is read by itself.
#[test]
fn a_read_that_fails_among_others_costs_nothing_that_can_be_read() {
    let full = Full::new();
    let mut ahead = full.ahead();
    for (number, io) in full.begun(&mut ahead).into_iter().enumerate() {
        match number {
            1 => (io.done)(Err(io::Error::other("not now"))),
            _ => full.memory.submit(io),
        }
    }
    assert_eq!(full.lost(&mut ahead), 0);
}

/// The volume goes out of service while they are under way: none is tried again.
#[test]
fn reads_under_way_on_a_volume_that_fails_all_end() {
    let full = Full::new();
    let mut ahead = full.ahead();
    let begun = full.begun(&mut ahead);
    full.store.engine().space.take_out("it has failed");
    // In one of them the device has brought the bytes before.
    for (number, io) in begun.into_iter().enumerate() {
        match number {
            0 => full.memory.submit(io),
            _ => (io.done)(Err(io::Error::other("it has failed"))),
        }
    }
    let lost = full.lost(&mut ahead);
    assert!(lost > 0 && lost < full.keepers.len(), "{lost} of {}", full.keepers.len());
}

/// Their memory is theirs until they end.
#[test]
fn reads_that_nobody_waits_for_any_more_end_as_well() {
    let full = Full::new();
    let mut ahead = full.ahead();
    let begun = full.begun(&mut ahead);
    drop(ahead);
    begun.into_iter().for_each(|io| full.memory.submit(io));
    assert_eq!(full.lost(&mut full.ahead()), 0);
}
