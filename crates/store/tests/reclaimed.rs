//! What reuse of a segment reads of it: what is kept, in few reads, and of a segment that cannot be
//! read everywhere all that can be.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod troubled;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use damelo::format::{RECORD_HEADER_BYTES, Superblock};
use damelo::{ByteSize, Clock, Config, CreateOptions, GroupId, Stats, Store};
use troubled::{Disk, Stopped, get, put};

const SECTOR_BYTES: u64 = 512;
/// Two records begin in each sector that is at fault, or one, or none.
const LENGTHS: [usize; 3] = [200, 700, 3_000];

fn key(n: usize) -> String {
    format!("kept/{n}")
}

fn value(n: usize) -> Vec<u8> {
    (0..LENGTHS[n % LENGTHS.len()]).map(|at| (n * 31 + at) as u8).collect()
}

fn open(disk: &Disk, memory_bytes: u64, clock: Arc<dyn Clock>) -> Store {
    let size_bytes = disk.with_bytes(<[u8]>::len) as u64;
    let mut config = Config::new("reclaimed", ByteSize::new(size_bytes));
    config.memory = ByteSize::new(memory_bytes);
    config.page = Some(ByteSize::new(16 << 10));
    config.segment = Some(ByteSize::new(512 << 10));
    config.background = false;
    config.seed = Some(1);
    config.reinsert_percent_max = 50;
    let store = Store::open_on(config, vec![disk.device()], clock).unwrap();
    store.wait_recovered();
    store
}

/// A store with so many objects, and this much memory.
fn with_objects(disk: &Disk, memory_bytes: u64, objects: usize) -> Store {
    let store = open(disk, memory_bytes, Arc::new(Stopped));
    for n in 0..objects {
        put(&store, &key(n), 1, &value(n));
    }
    store.sync().unwrap();
    store
}

/// A store with so many objects that are worth keeping, on disk only.
fn with_kept(disk: &Disk, objects: usize) -> Store {
    let store = with_objects(disk, 8 << 20, objects);
    store.love(GroupId::new(1));
    for _ in 0..4 {
        store.drop_memory();
        assert!((0..objects).all(|n| get(&store, &key(n)) == Some(value(n))));
    }
    store.drop_memory();
    store
}

/// Fills the ring until the segment with the first objects has been used again.
fn reclaim_first(store: &Store) {
    let mut filled = 0;
    while store.stats().reinserted_objects == 0 {
        put(store, &format!("filler/{filled}"), 2, &[0; 5_000]);
        filled += 1;
        assert!(filled < 8_000, "{:?}", store.stats());
    }
    store.sync().unwrap();
}

/// Where the records of the objects lie.
fn places(disk: &Disk, objects: usize) -> Vec<Range<u64>> {
    let place = |n: usize| {
        let behind_head = [key(n).as_bytes(), &value(n)].concat();
        let finder = |bytes: &[u8]| bytes.windows(behind_head.len()).position(|w| w == behind_head);
        let at = disk.with_bytes(finder).unwrap();
        (at - RECORD_HEADER_BYTES) as u64..(at + behind_head.len()) as u64
    };
    (0..objects).map(place).collect()
}

/// The keys that are gone; what is there is what it was.
fn lost(store: &Store, objects: usize) -> Vec<usize> {
    let is_lost = |n: &usize| match get(store, &key(*n)) {
        Some(found) => {
            assert!(found == value(*n), "object {n}");
            false
        }
        None => true,
    };
    (0..objects).filter(is_lost).collect()
}

#[test]
fn what_lies_near_is_read_together() {
    let disk = Disk::new(8 << 20);
    let objects = 150;
    let store = with_kept(&disk, objects);
    let before = store.stats();
    reclaim_first(&store);
    let stats = store.stats();
    assert_eq!(stats.reinserted_objects, objects as u64);
    assert!(lost(&store, objects).is_empty());
    let reads = stats.maintenance_reads - before.maintenance_reads;
    // Some 200 KiB of records, and the summary with its footer.
    assert!((2..12).contains(&reads), "{reads} reads");
}

/// All of a segment is worth it.
#[test]
fn no_more_is_kept_than_its_share_of_the_segment() {
    let disk = Disk::new(8 << 20);
    let store = with_kept(&disk, 300);
    reclaim_first(&store);
    let kept = store.stats().reinserted_bytes;
    assert!((250_000..=256 << 10).contains(&kept), "{kept} bytes");
}

/// A clock of which only the time of day moves, when it is told to.
struct Told(AtomicU64);

impl Clock for Told {
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn unix_seconds(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Of the objects in a segment some were worth more than the others until they expired, or were
/// purged by prefix, which only their records tell.
#[test]
fn what_is_dead_takes_nothing_of_the_share_of_what_lives() {
    let objects = 110;
    for expires in [true, false] {
        let (disk, clock) = (Disk::new(8 << 20), Arc::new(Told(AtomicU64::new(1_000))));
        let store = open(&disk, 8 << 20, Arc::clone(&clock) as Arc<dyn Clock>);
        let dies =
            CreateOptions { expires_unix_s: expires.then_some(1_100), ..CreateOptions::default() };
        let dead = |n: usize| format!("dead/{n}");
        for n in 0..objects {
            let (key, value) = (dead(n), value(n));
            store.create_with(key.as_bytes(), GroupId::new(1), &value, dies).wait().unwrap();
            put(&store, &self::key(n), 3, &value);
        }
        store.sync().unwrap();
        store.love(GroupId::new(1));
        for _ in 0..4 {
            store.drop_memory();
            // More than once, or it might be chance that they were read along with others.
            for _ in 0..3 {
                assert!((0..objects).all(|n| get(&store, &dead(n)).is_some()));
                assert!((0..objects).all(|n| get(&store, &key(n)).is_some()));
            }
        }
        store.drop_memory();
        match expires {
            true => clock.0.store(1_200, Ordering::Relaxed),
            false => store.purge_prefix(b"dead/").unwrap(),
        }
        reclaim_first(&store);
        assert_eq!(store.stats().reinserted_objects, objects as u64);
        assert!(lost(&store, objects).is_empty());
    }
}

/// Fills the ring until segments were reused; how many reads that took but those of each.
fn reads_of_reuse(store: &Store, is_enough: impl Fn(&Stats) -> bool) -> u64 {
    let before = store.stats();
    let mut filled = 0;
    while !is_enough(&store.stats()) {
        put(store, &format!("filler/{filled}"), 2, &[0; 5_000]);
        filled += 1;
        assert!(filled < 8_000, "{:?}", store.stats());
    }
    store.sync().unwrap();
    let after = store.stats();
    let of_each = 2 * (after.segments_reused - before.segments_reused);
    after.maintenance_reads - before.maintenance_reads - of_each
}

/// Their group, and when they were created, are in the summary of the segment.
#[test]
fn what_was_purged_with_its_group_is_not_read() {
    let disk = Disk::new(8 << 20);
    let store = with_kept(&disk, 150);
    store.purge_group(GroupId::new(1)).unwrap();
    assert_eq!(reads_of_reuse(&store, |stats| stats.segments_reused > 0), 0);
    assert_eq!(store.stats().reinserted_objects, 0);
}

/// The worthiest objects live and leave little room, which the others have in turn: all dead.
#[test]
fn a_segment_is_not_read_a_few_objects_at_a_time() {
    let (disk, clock) = (Disk::new(8 << 20), Arc::new(Told(AtomicU64::new(1_000))));
    let store = open(&disk, 8 << 20, Arc::clone(&clock) as Arc<dyn Clock>);
    let dies = CreateOptions { expires_unix_s: Some(1_100), ..CreateOptions::default() };
    let (worthiest, others) = (185, 400);
    let dead = |n: usize| format!("dead/{n}");
    (0..worthiest).for_each(|n| put(&store, &key(n), 1, &value(n)));
    for n in 0..others {
        store.create_with(dead(n).as_bytes(), GroupId::new(3), &[7; 200], dies).wait().unwrap();
    }
    store.sync().unwrap();
    store.love(GroupId::new(1));
    for _ in 0..4 {
        store.drop_memory();
        for _ in 0..3 {
            assert!((0..worthiest).all(|n| get(&store, &key(n)).is_some()));
            assert!((0..others).all(|n| get(&store, &dead(n)).is_some()));
        }
    }
    store.drop_memory();
    clock.0.store(1_200, Ordering::Relaxed);
    let reads = reads_of_reuse(&store, |stats| stats.reinserted_objects > 0);
    let stats = store.stats();
    assert_eq!(stats.reinserted_objects, worthiest as u64);
    assert!(((256 << 10) - 16_000..256 << 10).contains(&stats.reinserted_bytes), "{stats:?}");
    assert!(reads < 10, "{reads} reads");
}

/// They never left memory, so that the index knows of no hit.
#[test]
fn what_is_used_in_memory_is_kept_and_not_read_for_it() {
    let disk = Disk::new(8 << 20);
    let store = with_objects(&disk, 64 << 20, 150);
    let used = || (0..150).filter(|n| n % 3 > 0);
    assert!(used().all(|n| get(&store, &key(n)) == Some(value(n))));
    let before = store.stats();
    assert_eq!(before.hits_disk, 0);
    reclaim_first(&store);
    let stats = store.stats();
    assert_eq!(stats.reinserted_objects, 100);
    let reads = stats.maintenance_reads - before.maintenance_reads;
    let of_each = "the summary with its footer, and the block whose header is erased";
    assert_eq!(reads, 2 * stats.segments_reused, "{of_each}");
}

/// What lies in it is gone with its life, and is not taken for damage in the next one.
#[test]
fn a_segment_whose_contents_cannot_be_read_is_forgotten_as_a_whole() {
    let (disk, objects) = (Disk::new(8 << 20), 60);
    let store = with_objects(&disk, 8 << 20, objects);
    let superblock = disk.with_bytes(|bytes| Superblock::decode_either(bytes).unwrap());
    let end = superblock.segments_offset + superblock.segment_bytes;
    disk.set_unreadable(end - SECTOR_BYTES..end);
    let mut filled = 0;
    while store.stats().segments_reused < 4 {
        put(&store, &format!("filler/{filled}"), 2, &[0; 3_000]);
        filled += 1;
    }
    store.sync().unwrap();
    store.drop_memory();
    assert_eq!(lost(&store, objects).len(), objects);
    let stats = store.stats();
    assert_eq!((stats.misses_damaged, stats.damaged_records), (0, 0));
    assert_eq!(stats.misses_not_found, objects as u64);
    assert!(stats.evicted_ring >= objects as u64);
}

/// What lies on it is lost and nothing else; and one sector does not take the volume out of
/// service, though many objects are near it.
#[test]
fn a_sector_that_cannot_be_read_costs_what_lies_on_it() {
    let objects = 60;
    let mut lost_ever = 0;
    for nth in (0..objects).step_by(8) {
        let disk = Disk::new(8 << 20);
        let store = with_kept(&disk, objects);
        let places = places(&disk, objects);
        let sector = places[nth].start / SECTOR_BYTES * SECTOR_BYTES;
        let sector = sector..sector + SECTOR_BYTES;
        disk.set_unreadable(sector.clone());
        reclaim_first(&store);
        disk.set_unreadable(0..0);
        let on_it = |n: &usize| places[*n].start < sector.end && sector.start < places[*n].end;
        let lost = lost(&store, objects);
        assert!(lost.iter().all(on_it), "{lost:?} lost by {sector:?}");
        assert!(lost.contains(&nth));
        lost_ever += lost.len();
        assert!(store.info().volumes.iter().all(|volume| volume.in_service), "{sector:?}");
    }
    assert!(lost_ever > objects / 8, "two records share a sector");
}
