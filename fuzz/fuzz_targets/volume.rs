//! Fuzzes a whole volume: bytes are changed in a store that was closed or killed, with their
//! checksums repaired if the input wants it, and the store is opened, read, written to, and opened
//! again. It refuses with an error, or each answer is a value that its key once had, or none.
//!
//! The input: a byte for which volume, then edits of 4 bytes and more: which of the units that are
//! not zero (u16), a place within it and whether to repair (u8), how many bytes follow (u8).
//! Threads: none, the store has none of its own.
#![no_main]

mod common;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use common::seal;
use damelo::format::{CheckpointHeader, StoreNonce, Superblock};
use damelo::{ByteSize, Config, CreateOptions, GroupId, OpenError, Store};
use damelo_store_sim::{SimClock, SimDisk, SimOptions, SimWorld};
use libfuzzer_sys::fuzz_target;

const VOLUME_BYTES: u64 = 8 << 20;
const SEGMENT_BYTES: usize = 256 << 10;
const UNIT: usize = 64;
const KEYS: u64 = 24;
const EDITS_MAX: usize = 16;

fn config() -> Config {
    let mut config = Config::new("sim-0", ByteSize::new(VOLUME_BYTES));
    config.memory = ByteSize::new(4 << 20);
    config.objects_max = Some(1024);
    config.page = Some(ByteSize::new(16 << 10));
    config.segment = Some(ByteSize::new(SEGMENT_BYTES as u64));
    config.object_bytes_max = ByteSize::new(1 << 20);
    config.seed = Some(1);
    config.background = false;
    config
}

/// Small ones for pages, some with a chunk table, one in parts.
fn value(key: u64, version: u64) -> Vec<u8> {
    let len = match key {
        0 => 600_000,
        1..3 => 100_000,
        _ => 50 * key + version,
    };
    vec![(key * 4 + version) as u8; len as usize]
}

struct Image {
    bytes: Vec<u8>,
    superblock: Superblock,
    /// Units that hold something.
    used: Vec<usize>,
}

fn image(world: &SimWorld) -> Image {
    let bytes = world.snapshot()[0].bytes().to_vec();
    let superblock = Superblock::decode_either(&bytes).expect("it was formatted");
    let in_use = |unit: &usize| bytes[unit * UNIT..][..UNIT].iter().any(|byte| *byte != 0);
    let used = (0..bytes.len() / UNIT).filter(in_use).collect();
    Image { bytes, superblock, used }
}

fn world(disk: SimDisk) -> SimWorld {
    let options = SimOptions { history: false, ..SimOptions::new(1) };
    SimWorld::start(&[disk], &options, Arc::new(SimClock::new()))
}

fn open(world: &SimWorld) -> Result<Store, OpenError> {
    Store::open_on(config(), world.devices(), world.clock())
}

fn fill(store: &Store, version: u64, keys: Range<u64>) {
    for key in keys {
        let options = CreateOptions { metadata: b"m", ..CreateOptions::default() };
        let group = GroupId::new(key % 5);
        // Without room, or on damaged ground, it may be refused.
        let _ = store.create_with(&key.to_le_bytes(), group, &value(key, version), options).wait();
    }
}

/// A store as a kill left it, and the same closed.
fn images() -> &'static [Image; 2] {
    static IMAGES: OnceLock<[Image; 2]> = OnceLock::new();
    IMAGES.get_or_init(|| {
        let world = world(SimDisk::blank(VOLUME_BYTES));
        let store = open(&world).expect("a new store");
        fill(&store, 0, 0..KEYS);
        store.checkpoint().expect("sound");
        fill(&store, 1, 0..KEYS);
        store.set_metadata(&5_u64.to_le_bytes(), b"new").wait().expect("sound");
        store.remove(&6_u64.to_le_bytes()).expect("sound");
        store.purge_group(GroupId::new(3)).expect("sound");
        store.purge_prefix(&7_u64.to_le_bytes()).expect("sound");
        store.sync().expect("sound");
        let killed = image(&world);
        store.close().expect("sound");
        [killed, image(&world)]
    })
}

/// Repairs whatever checksum covers the header that the unit at `at` may be.
fn repair(bytes: &mut [u8], superblock: &Superblock, at: usize) {
    let layout = superblock.layout();
    let (journal, segments) = (layout.journal_offset as usize, layout.segments_offset as usize);
    let checkpoints = layout.checkpoint_offset as usize;
    if at < 8192 {
        let copy = at / 4096 * 4096;
        seal(bytes, copy..copy + 4092, copy + 4092);
    } else if (journal..checkpoints).contains(&at) {
        for cell in [at, at + 32] {
            seal(bytes, cell + 4..cell + 32, cell);
        }
    } else if (checkpoints..segments).contains(&at) {
        repair_checkpoint(bytes, superblock, at);
    } else if at >= segments {
        let segment = segments + (at - segments) / SEGMENT_BYTES * SEGMENT_BYTES;
        repair_segment(bytes, segment, at);
    }
}

/// The tables' checksum and the header's.
fn repair_checkpoint(bytes: &mut [u8], superblock: &Superblock, at: usize) {
    let slot_bytes = superblock.checkpoint_bytes;
    let start = superblock.checkpoint_offset as usize;
    let slot = start + (at - start) / slot_bytes as usize * slot_bytes as usize;
    seal(bytes, slot..slot + 4092, slot + 4092);
    let nonce: StoreNonce = superblock.nonce();
    let Ok(header) = CheckpointHeader::decode(&bytes[slot..], nonce, slot_bytes) else { return };
    let tables = slot + 4096..slot + 4096 + header.tables_bytes as usize;
    let Some(tables_crc) = bytes.get(tables).map(crc32c::crc32c) else { return };
    let header = CheckpointHeader { tables_crc, ..header };
    bytes[slot..slot + 4096].copy_from_slice(&header.encode());
}

/// A header in this unit (footers, pages and records have their checksum at the same place), or the
/// summary that it is part of.
fn repair_segment(bytes: &mut [u8], segment: usize, at: usize) {
    if matches!(&bytes[at..at + 4], b"DELO" | b"PAGE" | b"FOOT") {
        return seal(bytes, at..at + 60, at + 60);
    }
    let footer = segment + SEGMENT_BYTES - 4096;
    let field = |at: usize| {
        let field: [u8; 4] = bytes[footer + at..footer + at + 4].try_into().unwrap_or_default();
        u32::from_le_bytes(field) as usize
    };
    let summary = segment.saturating_add(field(24));
    let summary = summary..summary.saturating_add(field(28)).min(footer);
    if summary.contains(&at) {
        seal(bytes, summary, footer + 32);
        seal(bytes, footer..footer + 60, footer + 60);
    }
}

fn edited(image: &Image, mut edits: &[u8]) -> Vec<u8> {
    let mut bytes = image.bytes.clone();
    for _ in 0..EDITS_MAX {
        let Some(([low, high, place, count], rest)) = edits.split_first_chunk::<4>() else { break };
        let (new, rest) = rest.split_at(rest.len().min(usize::from(*count)));
        edits = rest;
        let unit = usize::from(u16::from_le_bytes([*low, *high])) % image.used.len();
        let at = image.used[unit] * UNIT;
        let from = at + usize::from(place % UNIT as u8);
        let end = bytes.len().min(from + new.len());
        bytes[from..end].copy_from_slice(&new[..end - from]);
        if place & 0x80 == 0 {
            repair(&mut bytes, &image.superblock, at);
        }
    }
    bytes
}

/// Every answer is a value that the key once had.
fn check(store: &Store, versions: u64) {
    for key in 0..KEYS {
        let read = store.read(&key.to_le_bytes()).wait();
        if let Ok(Some(object)) = read {
            let genuine = (0..versions).any(|version| *object == *value(key, version));
            assert!(genuine, "{} bytes that key {key} never had", object.len());
            assert_eq!(object.key(), key.to_le_bytes());
        }
        let _ = store.lookup(&key.to_le_bytes()).wait();
    }
    let _ = store.entries().count();
}

fuzz_target!(|data: &[u8]| {
    let Some((which, edits)) = data.split_first() else { return };
    let image = &images()[usize::from(which & 1)];
    let world = world(SimDisk::from_bytes(edited(image, edits)));
    for life in 0..2 {
        let Ok(store) = open(&world) else { return };
        check(&store, 2 + life);
        // The large ones take time and say nothing new.
        fill(&store, 2 + life, 3..KEYS);
        check(&store, 3 + life);
        let _ = store.close();
    }
    assert_eq!(world.violations(), Vec::<String>::new());
});
