//! An object that is replaced, or whose segment is reused and that is kept elsewhere, while a
//! reader is half-way through its records: what the reader finds outdated it does not forget. What
//! is gone it forgets altogether.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod troubled;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use damelo::format::{BLOCK_BYTES, PageHeader, RecordHeader, RecordKind, StoreNonce, Superblock};
use damelo::{ByteSize, Config, CreateOptions, GroupId, ObjectInfo, Store, WriterOptions};
use troubled::{Disk, Stopped, get, put};

const KEY: &str = "site/key";
const VALUE_BYTES: usize = 100_000;
const PAGE_BYTES: u32 = 16 << 10;

fn open(disk: &Disk) -> Store {
    open_with(disk, |_| ())
}

fn open_with(disk: &Disk, change: impl FnOnce(&mut Config)) -> Store {
    let size_bytes = disk.with_bytes(<[u8]>::len) as u64;
    let mut config = Config::new("kept", ByteSize::new(size_bytes));
    config.memory = ByteSize::new(8 << 20);
    config.page = Some(ByteSize::new(PAGE_BYTES.into()));
    config.segment = Some(ByteSize::new(1 << 20));
    config.checkpoint_period = Duration::ZERO;
    change(&mut config);
    Store::open_on(config, vec![disk.device()], Arc::new(Stopped)).unwrap()
}

/// Where the first record of this kind is.
fn place_of(disk: &Disk, kind: RecordKind) -> u64 {
    disk.with_bytes(|bytes| {
        let nonce = StoreNonce::of(&Superblock::decode(bytes).unwrap().store_id);
        let is_it = |at: &usize| {
            RecordHeader::decode(&bytes[*at..], nonce).is_ok_and(|header| header.kind == kind)
        };
        (0..bytes.len()).step_by(64).find(is_it).unwrap() as u64
    })
}

/// Makes the object, which is on disk only, one that reclaim keeps.
fn make_worth_keeping(store: &Store) {
    store.love(GroupId::new(1));
    for _ in 0..4 {
        assert!(get(store, KEY).is_some());
        store.drop_memory();
    }
}

/// A store that has, on disk only, an object that is worth keeping and new metadata of it.
fn renewed(disk: &Disk) -> Store {
    let store = open(disk);
    put(&store, KEY, 1, &[7; VALUE_BYTES]);
    store.sync().unwrap();
    store.drop_memory();
    assert!(store.set_metadata(KEY.as_bytes(), b"new").wait().unwrap());
    store.sync().unwrap();
    store.drop_memory();
    make_worth_keeping(&store);
    store
}

fn read_whole(store: &Store) -> bool {
    get(store, KEY).is_some()
}

fn read_part(store: &Store) -> bool {
    store.read_range(KEY.as_bytes(), 10..20).wait().unwrap().is_some()
}

/// A reader whose read of the record there, after so many others, is held; `None` if it reads it
/// less often.
fn held_reader(
    disk: &Disk,
    store: &Store,
    at: u64,
    after: usize,
    read: fn(&Store) -> bool,
) -> Option<JoinHandle<bool>> {
    disk.hold_one(at..at + 64, after);
    let store = store.clone();
    let reader = std::thread::spawn(move || read(&store));
    while !disk.is_held() {
        if reader.is_finished() {
            return None;
        }
        std::thread::yield_now();
    }
    Some(reader)
}

/// Holds the reader's read of the new metadata that comes after so many others, until the object is
/// kept elsewhere. False if the reader reads it less often.
fn is_kept_meanwhile(read: fn(&Store) -> bool, after: usize) -> bool {
    let disk = Disk::new(32 << 20);
    let store = renewed(&disk);
    let patch = place_of(&disk, RecordKind::Patch);
    let Some(reader) = held_reader(&disk, &store, patch, after, read) else { return false };
    let mut filled = 0;
    while store.stats().reinserted_objects == 0 {
        put(&store, &format!("filler/{filled}"), 2, &[0; VALUE_BYTES]);
        filled += 1;
        assert!(filled < 2000, "{:?}", store.stats());
    }
    store.sync().unwrap();
    disk.let_go();
    assert!(reader.join().unwrap(), "it was there all the time");
    store.sync().unwrap();
    let reopened = open(&disk.copied());
    reopened.wait_recovered();
    assert_eq!(get(&reopened, KEY), Some(vec![7; VALUE_BYTES]), "after a kill");
    true
}

#[test]
fn a_reader_of_outdated_metadata_does_not_forget_the_object() {
    for read in [read_whole, read_part] {
        let held = (0..8).take_while(|after| is_kept_meanwhile(read, *after)).count();
        assert!(held > 0, "the metadata is read");
    }
}

/// Holds the read of a record that comes after so many others; meanwhile the key is replaced by a
/// value of so many bytes. False if the reader reads it less often.
fn is_replaced_meanwhile(
    before_bytes: usize,
    kind: RecordKind,
    after: usize,
    bytes: usize,
) -> bool {
    let disk = Disk::new(64 << 20);
    let store = open(&disk);
    put(&store, KEY, 1, &vec![1; before_bytes]);
    store.sync().unwrap();
    store.drop_memory();
    let at = place_of(&disk, kind);
    let Some(reader) = held_reader(&disk, &store, at, after, read_part) else { return false };
    store.purge_group(GroupId::new(1)).unwrap();
    put(&store, KEY, 1, &vec![2; bytes]);
    store.sync().unwrap();
    store.drop_memory();
    disk.let_go();
    reader.join().unwrap();
    store.sync().unwrap();
    assert_eq!(get(&store, KEY), Some(vec![2; bytes]), "{kind:?} {after}: the new version");
    let reopened = open(&disk.copied());
    reopened.wait_recovered();
    assert_eq!(get(&reopened, KEY), Some(vec![2; bytes]), "{kind:?} {after}: after a kill");
    true
}

#[test]
fn a_reader_of_a_replaced_object_does_not_forget_the_new_one() {
    for (before, kind) in [(3 << 20, RecordKind::Manifest), (400_000, RecordKind::Object)] {
        for bytes in [500, 400_000] {
            let is_held = |after: &usize| is_replaced_meanwhile(before, kind, *after, bytes);
            assert!((0..8).take_while(is_held).count() > 0, "{kind:?} is read");
        }
    }
}

/// A long value takes its number before it is copied, and is there for readers afterwards. Readers
/// that meanwhile find that the old record cannot be read forget the old version, not the new one,
/// also after a crash.
#[test]
fn forgetting_races_with_a_create() {
    const KEYS: u32 = 16;
    const NEW_BYTES: usize = 6 << 20;
    let large = |config: &mut Config| {
        config.memory = ByteSize::new(64 << 20);
        config.segment = Some(ByteSize::new(16 << 20));
        config.volume_errors_max = 1000;
    };
    let disk = Disk::new(256 << 20);
    let store = open_with(&disk, large);
    let keys: Vec<_> = (0..KEYS).map(|n| format!("key/{n}")).collect();
    keys.iter().for_each(|key| put(&store, key, 1, b"old"));
    store.sync().unwrap();
    store.drop_memory();
    let page = place_of(&disk, RecordKind::Object);
    disk.set_unreadable(page..page + (4 << 10));
    let new = vec![2; NEW_BYTES];
    let begun = Instant::now();
    put(&store, "another", 2, &new);
    let took = begun.elapsed();
    for (key, n) in keys.iter().zip(0..) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(took * n / KEYS);
                let found = get(&store, key);
                assert!(found.is_none_or(|found| found == new));
            });
            put(&store, key, 2, &new);
        });
        assert!(get(&store, key).is_some(), "{key}");
        store.sync().unwrap();
    }
    let reopened = open_with(&disk.copied(), large);
    reopened.wait_recovered();
    let lost: Vec<_> = keys.iter().filter(|key| get(&reopened, key).is_none()).collect();
    assert!(lost.is_empty(), "{lost:?} are gone after a kill");
}

/// The list of its parts waits in memory when one of them is found to be gone: the list goes, too,
/// and does not come to the disk.
#[test]
fn what_waits_to_be_written_is_forgotten_with_its_value() {
    let disk = Disk::new(32 << 20);
    let store = open(&disk);
    let value = vec![7; 800_000];
    let mut writer =
        store.writer(KEY.as_bytes(), GroupId::new(1), WriterOptions::default()).unwrap();
    writer.write(&value).wait().unwrap();
    writer.commit().wait().unwrap();
    store.drop_memory();
    let part = place_of(&disk, RecordKind::Part);
    disk.set_unreadable(part..part + 512);
    assert_eq!(get(&store, KEY), None);
    assert_eq!(store.stats().misses_not_found, 0, "it was known");
    assert_eq!(get(&store, KEY), None);
    assert_eq!(store.stats().misses_not_found, 1, "nothing is left of it");
    disk.set_unreadable(0..0);
    store.sync().unwrap();
    assert_eq!(get(&store, KEY), None);
    let reopened = open(&disk.copied());
    reopened.wait_recovered();
    assert_eq!(get(&reopened, KEY), None, "after a kill");
}

const LONG_BYTES: usize = 400_000;

/// Bytes of which each part tells where it is.
fn long_value() -> Vec<u8> {
    (0..LONG_BYTES as u32 / 4).flat_map(u32::to_le_bytes).collect()
}

/// A store that has a long object worth keeping on disk only, and where its record is.
fn with_long_object(disk: &Disk) -> (Store, u64) {
    let store = open_with(disk, |config| {
        config.segment = Some(ByteSize::new(2 << 20));
        config.reinsert_percent_max = 50;
    });
    put(&store, KEY, 1, &long_value());
    store.sync().unwrap();
    store.drop_memory();
    make_worth_keeping(&store);
    (store, place_of(disk, RecordKind::Object))
}

/// The life of the segment that has its first extent at this place; `None` while it is erased.
fn life_of_first(disk: &Disk, at: u64) -> Option<u64> {
    disk.with_bytes(|bytes| {
        let nonce = StoreNonce::of(&Superblock::decode(bytes).unwrap().store_id);
        let lead = &bytes[(at - BLOCK_BYTES) as usize..];
        PageHeader::decode(lead, nonce, PAGE_BYTES).ok().map(|header| header.segment_seq)
    })
}

/// In a page, in an extent, and in an extent with newer metadata.
#[test]
fn what_is_kept_has_the_group_the_metadata_and_the_expiry_that_it_had() {
    let expires = |seconds: u64| Some(1_700_000_000 + seconds);
    for (bytes, is_renewed) in [(3_000, false), (VALUE_BYTES, false), (VALUE_BYTES, true)] {
        let disk = Disk::new(32 << 20);
        let store = open(&disk);
        let options = CreateOptions { metadata: b"first", expires_unix_s: expires(1_000) };
        let create = store.create_with(KEY.as_bytes(), GroupId::new(1), &vec![7; bytes], options);
        create.wait().unwrap();
        store.sync().unwrap();
        store.drop_memory();
        if is_renewed {
            let renew = store.set_metadata_with(KEY.as_bytes(), b"second", expires(2_000));
            assert!(renew.wait().unwrap());
            store.sync().unwrap();
            store.drop_memory();
        }
        make_worth_keeping(&store);
        let before = store.lookup(KEY.as_bytes()).wait().unwrap().unwrap();
        let expected = expires(if is_renewed { 2_000 } else { 1_000 });
        assert_eq!((before.group, before.expires_unix_s), (GroupId::new(1), expected));
        let mut filled = 0;
        while store.stats().reinserted_objects == 0 {
            put(&store, &format!("filler/{filled}"), 2, &[0; VALUE_BYTES]);
            put(&store, &format!("small/{filled}"), 2, &[0; 5_000]);
            filled += 1;
            assert!(filled < 2000, "{:?}", store.stats());
        }
        for from_disk in [false, true] {
            if from_disk {
                store.sync().unwrap();
                store.drop_memory();
            }
            let after = store.lookup(KEY.as_bytes()).wait().unwrap().unwrap();
            let beside = |info: &ObjectInfo| {
                (info.group, info.length_bytes, info.metadata.clone(), info.expires_unix_s)
            };
            let case = format!("{bytes} bytes, renewed: {is_renewed}, from disk: {from_disk}");
            assert_eq!(beside(&after), beside(&before), "{case}");
        }
    }
}

/// Written again it would have a checksum that fits.
#[test]
fn what_is_damaged_on_disk_is_not_kept() {
    for bytes in [3_000, VALUE_BYTES] {
        let disk = Disk::new(32 << 20);
        let store = open(&disk);
        put(&store, KEY, 1, &vec![7; bytes]);
        store.sync().unwrap();
        store.drop_memory();
        make_worth_keeping(&store);
        disk.turn_bit(place_of(&disk, RecordKind::Object) + 2_000);
        let mut filled = 0;
        while store.stats().segments_reused < 40 {
            put(&store, &format!("filler/{filled}"), 2, &[0; VALUE_BYTES]);
            put(&store, &format!("small/{filled}"), 2, &[0; 5_000]);
            filled += 1;
            assert!(filled < 2000, "{:?}", store.stats());
        }
        assert_eq!(get(&store, KEY), None, "{bytes} bytes");
    }
}

/// Its head may be read in one life of the segment and its value in none, or in the next.
#[test]
fn a_part_of_an_object_that_is_kept_elsewhere_meanwhile_is_found() {
    let value = long_value();
    let (from, to) = (200_000, 200_100);
    for held_at in [0, from] {
        for lives in [1, 2] {
            let disk = Disk::new(32 << 20);
            let (store, at) = with_long_object(&disk);
            disk.hold_one(at + held_at..at + held_at + 64, 0);
            let theirs = store.clone();
            let reader = std::thread::spawn(move || {
                theirs.read_range(KEY.as_bytes(), from..to).wait().unwrap()
            });
            disk.wait_held();
            let (before, mut filled) = (life_of_first(&disk, at).unwrap(), 0);
            let is_reused = |store: &Store| match lives {
                1 => store.stats().reinserted_objects > 0 && store.stats().segments_reused > 0,
                // The object itself may come to lie in the same place again.
                _ => life_of_first(&disk, at).is_some_and(|life| life != before),
            };
            while !is_reused(&store) {
                put(&store, &format!("filler/{filled}"), 2, &[0; VALUE_BYTES]);
                filled += 1;
                assert!(filled < 2000, "{:?}", store.stats());
            }
            store.sync().unwrap();
            assert!(store.stats().reinserted_objects > 0);
            disk.let_go();
            let part = reader.join().unwrap();
            let case = format!("held at {held_at}, in life {lives}");
            let part = part.unwrap_or_else(|| panic!("{case}: it was there all the time"));
            assert_eq!(part[..], value[from as usize..to as usize], "{case}");
            assert_eq!(store.stats().damaged_records, 0, "{case}");
        }
    }
}

/// What the device cannot read is not damage, be it a head or a value.
#[test]
fn a_part_that_cannot_be_read_is_counted_as_such() {
    for unreadable_at in [0, 200_000] {
        let disk = Disk::new(32 << 20);
        let (store, at) = with_long_object(&disk);
        disk.set_unreadable(at + unreadable_at..at + unreadable_at + 64);
        let read = |from| store.read_range(KEY.as_bytes(), from..from + 10).wait().unwrap();
        assert!(read(unreadable_at).is_none());
        let stats = store.stats();
        assert_eq!((stats.misses_io, stats.misses_damaged), (1, 0), "at {unreadable_at}");
        assert_eq!(stats.damaged_records, 0, "at {unreadable_at}");
        // A head is needed for every part, a piece of the value for itself.
        assert_eq!(read(300_000).is_some(), unreadable_at > 0);
        assert_eq!(store.stats().misses_not_found, u64::from(unreadable_at == 0));
        assert_eq!(store.stats().misses_collision, 0);
    }
}
