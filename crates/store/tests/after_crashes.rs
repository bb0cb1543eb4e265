//! Stores that crash again before they have done much, that crash while much goes on, and that
//! cannot read all there is when they come back: what was acknowledged holds, and they are not slow
//! to come back.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod troubled;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use damelo::check::check_volumes;
use damelo::format::{JOURNAL_CELL_BYTES, JournalRecord, Superblock};
use damelo::{ByteSize, Clock, Config, Durability, GroupId, Store, SyncError, VolumeConfig};
use troubled::{Disk, Stopped, get, put};

const SEGMENTS_FROM: u64 = 4 << 20;

fn config(disk: &Disk, change: impl FnOnce(&mut Config)) -> Config {
    let size_bytes = disk.with_bytes(<[u8]>::len) as u64;
    let mut config = Config::new("crashes", ByteSize::new(size_bytes));
    config.memory = ByteSize::new(4 << 20);
    config.page = Some(ByteSize::new(16 << 10));
    config.segment = Some(ByteSize::new(256 << 10));
    config.checkpoint_period = Duration::ZERO;
    config.seed = Some(1);
    change(&mut config);
    config
}

fn open(disk: &Disk, change: impl FnOnce(&mut Config)) -> Store {
    Store::open_on(config(disk, change), vec![disk.device()], Arc::new(Stopped)).unwrap()
}

fn open_recovered(disk: &Disk) -> Store {
    let store = open(disk, |_| ());
    store.wait_recovered();
    store
}

/// A store that is killed is not dropped: that would close it.
fn killed(store: Store, disk: &Disk) -> Disk {
    std::mem::forget(store);
    disk.copied()
}

fn keys(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|n| format!("key/{n}"))
}

/// Killed, and killed again after a life that wrote objects only, with nothing in journal or
/// checkpoint.
fn killed_twice() -> Disk {
    let first = Disk::new(24 << 20);
    let store = open_recovered(&first);
    put(&store, "first", 1, b"x");
    store.sync().unwrap();
    let second = killed(store, &first);
    let store = open_recovered(&second);
    keys(200).for_each(|key| put(&store, &key, 1, &[7; 500]));
    store.sync().unwrap();
    killed(store, &second)
}

/// Opened while none of what segments hold can be read yet.
fn recovering(disk: &Disk, durability: Durability) -> Store {
    disk.hold_reads(SEGMENTS_FROM..u64::MAX);
    let store = open(disk, |config| {
        config.open_wait = Duration::ZERO;
        config.durability = durability;
    });
    disk.wait_held();
    assert!(!store.recovery().done);
    store
}

#[test]
fn a_purge_during_the_second_recovery_in_a_row_holds() {
    for durability in [Durability::Flushed, Durability::None] {
        let disk = killed_twice();
        let store = recovering(&disk, durability);
        store.purge_all().unwrap();
        disk.let_go();
        store.wait_recovered();
        let left = keys(200).filter(|key| get(&store, key).is_some()).count();
        assert_eq!(left, 0, "{durability:?}");
    }
}

#[test]
fn removes_during_the_second_recovery_in_a_row_hold_after_a_third_crash() {
    let disk = killed_twice();
    let store = recovering(&disk, Durability::Flushed);
    // Their objects have the greatest numbers that were given.
    let last = || keys(200).skip(190);
    for key in last() {
        store.remove(key.as_bytes()).unwrap();
    }
    disk.let_go();
    store.wait_recovered();
    let there = |store: &Store| last().filter(|key| get(store, key).is_some()).count();
    assert_eq!(there(&store), 0);
    store.sync().unwrap();
    let disk = killed(store, &disk);
    let store = open_recovered(&disk);
    assert_eq!(there(&store), 0, "after the third crash");
    assert_eq!(get(&store, "key/10").unwrap(), [7; 500], "nobody removed that");
}

/// Each open writes over the mark of the one before; nothing that was acknowledged goes by that.
#[test]
fn a_store_may_crash_as_often_as_it_likes() {
    let mut disk = killed_twice();
    let rounds = if cfg!(debug_assertions) { 60 } else { 600 };
    for round in 0..rounds {
        let store = open_recovered(&disk);
        put(&store, "changing", 1, format!("round {round}").as_bytes());
        store.sync().unwrap();
        disk = killed(store, &disk);
    }
    let store = open_recovered(&disk);
    assert_eq!(get(&store, "changing").unwrap(), format!("round {}", rounds - 1).as_bytes());
    assert_eq!(get(&store, "key/1").unwrap(), [7; 500]);
    assert_eq!(store.stats().journal_errors, 0);
}

/// Who opens or closes such a store must not wait for it, nor take what it knows for all there is.
#[test]
fn a_recovery_that_panics_ends_with_the_volume_out_of_service() {
    let disk = killed_twice();
    disk.panic_in(SEGMENTS_FROM..u64::MAX);
    let store = open_recovered(&disk);
    assert_eq!(store.stats().volumes_out, 1);
    assert!(get(&store, "key/1").is_none());
    let refused = store.close().unwrap_err();
    assert!(matches!(refused, SyncError::VolumesGone { .. }), "{refused}");
    assert!(refused.to_string().contains("recovery panicked"), "{refused}");
    disk.panic_in(0..0);
    let store = open_recovered(&disk);
    assert_eq!(get(&store, "key/1").unwrap(), [7; 500], "nothing was lost by it");
}

/// Whichever read of its older version recovery is at, between its look at what was removed and its
/// note of what it found, too.
#[test]
fn what_is_removed_while_recovery_reads_of_it_is_gone() {
    let first = Disk::new(24 << 20);
    let store = open(&first, |config| config.durability = Durability::None);
    let mut extent = vec![7; 20_000];
    extent[..8].copy_from_slice(b"an older");
    put(&store, "key", 1, &extent);
    store.sync().unwrap();
    put(&store, "key", 1, b"newer");
    store.sync().unwrap();
    let crashed = killed(store, &first);
    let is_there = |bytes: &[u8]| bytes.windows(8).position(|window| window == b"an older");
    let block = crashed.with_bytes(is_there).expect("it was synced") as u64 & !4095;
    let mut holds = 0;
    for after in 0.. {
        let disk = crashed.copied();
        disk.hold_one(block..block + 64, after);
        let store = open(&disk, |config| config.open_wait = Duration::ZERO);
        while !disk.is_held() && !store.recovery().done {
            std::thread::yield_now();
        }
        if !disk.is_held() {
            assert_eq!(get(&store, "key").as_deref(), Some(&b"newer"[..]));
            break;
        }
        holds += 1;
        assert!(store.remove(b"key").unwrap());
        disk.let_go();
        store.wait_recovered();
        assert_eq!(get(&store, "key"), None, "removed in read {after}");
    }
    assert!(holds > 1, "it is found, and compared with the newer one");
}

/// Recovery comes to the old ones when the new ones are there.
#[test]
fn what_is_replaced_while_the_store_recovers_is_not_found_beside_it() {
    let disk = killed_twice();
    let store = recovering(&disk, Durability::Flushed);
    keys(200).for_each(|key| put(&store, &key, 1, b"new"));
    disk.let_go();
    store.wait_recovered();
    store.sync().unwrap();
    assert_eq!(store.stats().index_objects, 201, "one entry of each");
}

/// No journal tells that a version of a key was replaced: only the newer one does, which is in
/// another group, and is purged while recovery has yet to come to it, or afterwards.
#[test]
fn an_older_version_in_another_group_does_not_come_back_where_the_newer_is_purged() {
    for lengths in [(100, 100), (100, 20_000), (20_000, 100), (20_000, 20_000)] {
        let first = Disk::new(24 << 20);
        let store = open(&first, |config| config.durability = Durability::None);
        // The segment of the newer one may be older than that of the other.
        put(&store, "first", 1, b"x");
        store.sync().unwrap();
        put(&store, "key", 1, &vec![1; lengths.0]);
        store.sync().unwrap();
        put(&store, "key", 2, &vec![2; lengths.1]);
        store.sync().unwrap();
        let crashed = killed(store, &first);

        let disk = crashed.copied();
        let store = recovering(&disk, Durability::None);
        store.purge_group(GroupId::new(2)).unwrap();
        disk.let_go();
        store.wait_recovered();
        assert_eq!(get(&store, "key"), None, "{lengths:?}, purged meanwhile");

        let store = open_recovered(&crashed);
        store.purge_group(GroupId::new(2)).unwrap();
        let disk = crashed.copied();
        assert_eq!(get(&store, "key"), None, "{lengths:?}, purged afterwards");
        std::mem::forget(store);
        assert_eq!(get(&open_recovered(&disk), "key"), None, "{lengths:?}, and after a crash");
    }
}

/// What could not be read while the store recovered can be read after the next crash.
#[test]
fn what_a_recovery_could_not_read_does_not_come_back_in_place_of_what_is_newer() {
    let disk = Disk::new(24 << 20);
    let store = open_recovered(&disk);
    keys(200).for_each(|key| put(&store, &key, 1, b"old"));
    store.sync().unwrap();
    let disk = killed(store, &disk);
    disk.set_unreadable(SEGMENTS_FROM..u64::MAX);
    let store = open(&disk, |config| config.volume_errors_max = 1000);
    store.wait_recovered();
    disk.set_unreadable(0..0);
    store.remove(b"key/1").unwrap();
    put(&store, "key/2", 1, b"new");
    let disk = killed(store, &disk);
    let store = open_recovered(&disk);
    assert_eq!(get(&store, "key/1"), None);
    assert_ne!(get(&store, "key/2").as_deref(), Some(&b"old"[..]));
}

/// Both halves of the journal are overwritten by then, and only the checkpoint knows of them. What
/// they were for is in its index, as nobody has asked for it.
#[test]
fn purges_hold_that_only_a_checkpoint_knows() {
    let disk = Disk::new(24 << 20);
    let store = open_recovered(&disk);
    let kinds = ["all", "group", "prefix", "kept"];
    let put_ten = |kind: &str, group| {
        keys(10).for_each(|key| put(&store, &(kind.to_owned() + &key), group, b"x"))
    };
    put_ten("all", 1);
    store.sync().unwrap();
    store.purge_all().unwrap();
    (2..).zip(&kinds[1..]).for_each(|(group, kind)| put_ten(kind, group));
    store.sync().unwrap();
    store.purge_group(GroupId::new(2)).unwrap();
    store.purge_prefix(b"prefix").unwrap();
    // Each leaves a record, more of them than there is room for.
    (0..45_000).for_each(|_| put(&store, "replaced", 9, b"x"));
    store.checkpoint().unwrap();
    let store = open_recovered(&killed(store, &disk));
    let left = kinds
        .map(|kind| keys(10).filter(|key| get(&store, &(kind.to_owned() + key)).is_some()).count());
    assert_eq!(left, [0, 0, 0, 10], "{kinds:?}");
}

/// A half of the journal was overwritten since a checkpoint covers it. Without that one, the one
/// before is no help: its index has what was removed.
#[test]
fn a_checkpoint_older_than_the_journal_demands_is_not_believed() {
    let disk = Disk::new(24 << 20);
    let store = open(&disk, |config| {
        config.volume_errors_max = u32::MAX;
        config.background = false;
    });
    store.wait_recovered();
    let layout = disk.with_bytes(|bytes| Superblock::decode(bytes).unwrap());
    let slot = |number| layout.checkpoint_offset + number * layout.checkpoint_bytes;
    let no_checkpoint = |not: bool| disk.set_unwritable(if not { slot(0)..slot(2) } else { 0..0 });
    let half = layout.journal_bytes / 4 / JOURNAL_CELL_BYTES as u64;
    let fill_half = || (0..half).for_each(|_| put(&store, "replaced", 9, b"x"));
    keys(20).for_each(|key| put(&store, &key, 1, b"x"));
    store.checkpoint().unwrap();
    no_checkpoint(true);
    keys(20).for_each(|key| assert!(store.remove(key.as_bytes()).unwrap()));
    fill_half();
    no_checkpoint(false);
    store.checkpoint().unwrap();
    no_checkpoint(true);
    fill_half();
    let disk = killed(store, &disk);
    for lost in [slot(0), slot(1)] {
        let disk = disk.copied();
        disk.device().write_at(lost, &[0; 4096]).unwrap();
        let store = open_recovered(&disk);
        assert_eq!(keys(20).find(|key| get(&store, key).is_some()), None);
    }
}

/// Goes on when it is told to.
#[derive(Default)]
struct Advancing(AtomicU64);

impl Clock for Advancing {
    fn unix_seconds(&self) -> u64 {
        1_700_000_000
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

/// While a checkpoint waits for what is to be written before it, an object is created, written and
/// removed, and the journal begins its other half. The checkpoint has the object neither in its
/// index nor among what is older than it: the half with the remove may not be overwritten yet.
#[test]
fn a_checkpoint_covers_no_remove_of_what_is_newer_than_it() {
    let (disk, clock) = (Disk::new(24 << 20), Arc::new(Advancing::default()));
    let config = config(&disk, |config| config.background = false);
    let store =
        Store::open_on(config, vec![disk.device()], Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
    store.wait_recovered();
    let layout = disk.with_bytes(|bytes| Superblock::decode(bytes).unwrap());
    let half = layout.journal_bytes / 4 / JOURNAL_CELL_BYTES as u64;
    let fill_half = move |store: &Store| {
        (0..half).for_each(|_| store.purge_group(GroupId::new(9)).unwrap());
    };
    put(&store, "waits", 1, b"x");
    let theirs = store.clone();
    disk.do_in_write(move || {
        put(&theirs, "newer", 2, b"x");
        // So that it is written now.
        clock.0.store(60, Ordering::Relaxed);
    });
    let theirs = store.clone();
    disk.do_in_write(move || {
        assert!(theirs.remove(b"newer").unwrap());
        fill_half(&theirs);
    });
    store.checkpoint().unwrap();
    assert!(!disk.is_to_do_in_write(), "both came between");
    fill_half(&store);
    let store = open_recovered(&killed(store, &disk));
    assert_eq!(get(&store, "newer"), None);
    assert!(get(&store, "waits").is_some());
}

/// What could not be read is gone, and stays so where a checkpoint that does not know it any more
/// is lost: a remove after that had nothing to remove.
#[test]
fn what_could_not_be_read_is_not_there_again_without_the_checkpoint_since() {
    let disk = Disk::new(24 << 20);
    let store = open_recovered(&disk);
    put(&store, "key", 1, b"x");
    store.checkpoint().unwrap();
    store.drop_memory();
    disk.set_unreadable(SEGMENTS_FROM..u64::MAX);
    assert_eq!(get(&store, "key"), None);
    disk.set_unreadable(0..0);
    store.checkpoint().unwrap();
    assert!(!store.remove(b"key").unwrap());
    let disk = killed(store, &disk);
    let layout = disk.with_bytes(|bytes| Superblock::decode(bytes).unwrap());
    for slot in 0..2 {
        let disk = disk.copied();
        let lost = layout.checkpoint_offset + slot * layout.checkpoint_bytes;
        disk.device().write_at(lost, &[0; 4096]).unwrap();
        assert_eq!(get(&open_recovered(&disk), "key"), None, "without slot {slot}");
    }
}

/// A reused segment whose marks cannot be erased is found again after a crash, with what was
/// forgotten with it.
#[test]
fn what_was_forgotten_with_a_segment_that_could_not_be_erased_does_not_come_back() {
    let disk = Disk::new(12 << 20);
    let store = open(&disk, |config| config.volume_errors_max = u32::MAX);
    let mut filled = 0;
    let mut fill = |store: &Store, objects: u32| {
        for _ in 0..objects {
            put(store, &format!("filler/{filled}"), 2, &[7; 5_000]);
            filled += 1;
        }
        store.sync().unwrap();
        store.drop_memory();
    };
    put(&store, "key", 1, b"the first version");
    // Else it may wait until the segment begins that is open then: it is to be one that is sealed.
    store.sync().unwrap();
    fill(&store, 200);
    let end = disk.with_bytes(|bytes| {
        let layout = Superblock::decode(bytes).unwrap();
        let is_it = |part: &[u8]| part == b"the first version";
        let at = bytes.windows(17).position(is_it).unwrap() as u64 - layout.segments_offset;
        layout.segments_offset + (at / layout.segment_bytes + 1) * layout.segment_bytes
    });
    disk.set_unwritable(end - 4096..end);
    while store.may_contain(b"key") {
        fill(&store, 20);
        assert!(store.stats().creates < 50_000, "the ring comes round");
    }
    put(&store, "key", 1, b"the second version");
    let disk = killed(store, &disk);
    assert_eq!(get(&open_recovered(&disk), "key"), None, "the second was not written yet");
}

/// While segments are reused all the time, a checkpoint does not take one that is just being reused
/// for one that is not whole yet: recovery would look at the whole ring.
#[test]
fn a_checkpoint_beside_reuse_spares_the_next_recovery_the_ring() {
    let disk = Disk::new(24 << 20);
    let store = open_recovered(&disk);
    let mut next = 0_u64;
    let mut fill = |count: u64| {
        for _ in 0..count {
            next += 1;
            put(&store, &format!("key/{next}"), next % 5, &[7; 4000]);
        }
    };
    fill(8_000);
    store.sync().unwrap();
    let segments = store.stats().segments;
    // A segment is being reused for some time.
    disk.set_read_delay_ms(2);
    let stop = AtomicBool::new(false);
    let mut most = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                fill(20);
            }
        });
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(20));
            store.checkpoint().unwrap();
            let left = open(&disk.copied(), |config| config.background = false);
            most = most.max(left.recovery().segments_wanted);
            std::mem::forget(left);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(store.stats().segments_reused > 0);
    assert!(most < segments / 2, "{most} of {segments} segments are looked at");
}

/// A process may die, or lose a block to a loss of power, between the two copies of a record.
#[test]
fn a_journal_record_of_which_one_copy_is_missing_is_no_damage() {
    for copy in [0, 1] {
        let first = Disk::new(24 << 20);
        let store = open_recovered(&first);
        keys(20).for_each(|key| put(&store, &key, 1, &[7; 500]));
        store.sync().unwrap();
        keys(10).for_each(|key| assert!(store.remove(key.as_bytes()).unwrap()));
        let disk = killed(store, &first);
        take_last_journal_record(&disk, copy);
        let store = open_recovered(&disk);
        assert_eq!(store.stats().damaged_records, 0);
        keys(12).for_each(|key| _ = store.remove(key.as_bytes()).unwrap());
        store.close().unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, disk.with_bytes(<[u8]>::to_vec)).unwrap();
        let report = check_volumes(&[file.path().to_path_buf()], &mut |_| {}).unwrap();
        assert_eq!((report.damaged_total, report.damaged), (0, vec![]), "copy {copy}");
    }
}

/// Damage to records that a checkpoint covers takes nothing: it knows what they deleted. Damage to
/// those since may have deleted anything older.
#[test]
fn damage_to_the_journal_is_of_no_account_where_a_checkpoint_covers_it() {
    for covers in [true, false] {
        let first = Disk::new(24 << 20);
        let store = open_recovered(&first);
        keys(20).for_each(|key| put(&store, &key, 1, &[7; 500]));
        store.sync().unwrap();
        assert!(store.remove(b"key/0").unwrap());
        let damaged = [0, 1].map(|copy| last_journal_record(&first, copy).1);
        assert!(store.remove(b"key/1").unwrap());
        if covers {
            store.checkpoint().unwrap();
        }
        let disk = killed(store, &first);
        damaged.iter().for_each(|at| (0..4).for_each(|byte| disk.turn_bit(at + byte)));
        let store = open_recovered(&disk);
        let left = keys(20).filter(|key| get(&store, key).is_some()).count();
        assert_eq!((left, store.stats().damaged_records), if covers { (18, 0) } else { (0, 1) });
    }
}

/// Removes that wait for room are written behind newer ones.
#[test]
fn an_older_remove_that_comes_later_in_the_journal_takes_nothing_from_a_newer_one() {
    let disk = Disk::new(16 << 20);
    let store = open_recovered(&disk);
    put(&store, "key", 1, b"value");
    store.sync().unwrap();
    assert!(store.remove(b"key").unwrap());
    let disk = killed(store, &disk);
    (0..2).for_each(|copy| repeat_last_journal_record(&disk, copy, 1));
    let store = open_recovered(&disk);
    assert_eq!(get(&store, "key"), None);
    assert_eq!(store.stats().damaged_records, 0);
}

/// With another sequence number.
fn repeat_last_journal_record(disk: &Disk, copy: u64, seq: u64) {
    let (superblock, last) = last_journal_record(disk, copy);
    let sector = last - last % 512;
    let mut bytes = disk.with_bytes(|bytes| bytes[sector as usize..][..1024].to_vec());
    let at = (last - sector) as usize;
    let (record, length) = JournalRecord::decode(&bytes[at..], superblock.nonce()).unwrap();
    let mut encoded = Vec::new();
    JournalRecord { seq, ..record }.encode_into(superblock.nonce(), &mut encoded).unwrap();
    bytes[at + length..][..length].copy_from_slice(&encoded);
    disk.device().write_at(sector, &bytes).unwrap();
}

fn take_last_journal_record(disk: &Disk, copy: u64) {
    let last = last_journal_record(disk, copy).1;
    let sector = last - last % 512;
    let mut bytes = disk.with_bytes(|bytes| bytes[sector as usize..][..512].to_vec());
    bytes[(last - sector) as usize..][..JOURNAL_CELL_BYTES].fill(0);
    disk.device().write_at(sector, &bytes).unwrap();
}

/// Where the last record of a copy is, of a journal that has not turned yet.
fn last_journal_record(disk: &Disk, copy: u64) -> (Superblock, u64) {
    let superblock = disk.with_bytes(|bytes| Superblock::decode(bytes).unwrap());
    let copy_bytes = superblock.journal_bytes / 2;
    let written = |at: &u64| disk.with_bytes(|bytes| bytes[*at as usize..][..32] != [0; 32]);
    let begin = superblock.journal_offset + copy * copy_bytes;
    let cells = (begin..begin + copy_bytes).step_by(JOURNAL_CELL_BYTES);
    (superblock, cells.filter(written).max().unwrap())
}

/// It cannot be noted that the store is in use: after a crash the next open would take it for
/// closed cleanly, and give the numbers of this life again. Of several volumes the open notes it,
/// of one the first change.
#[test]
fn a_store_whose_use_cannot_be_noted_writes_nothing() {
    let both = [Disk::new(16 << 20), Disk::new(16 << 20)];
    let open = |disks: &[Disk]| {
        let mut config = Config::new("first", ByteSize::new(16 << 20));
        for _ in 1..disks.len() {
            let second = VolumeConfig { path: "second".into(), ..config.volumes[0].clone() };
            config.volumes.push(second);
        }
        config.memory = ByteSize::new(8 << 20);
        config.segment = Some(ByteSize::new(1 << 20));
        config.page = Some(ByteSize::new(16 << 10));
        config.checkpoint_period = Duration::ZERO;
        let devices = disks.iter().map(Disk::device).collect();
        let store = Store::open_on(config, devices, Arc::new(Stopped)).unwrap();
        store.wait_recovered();
        store
    };
    for disks in [&[Disk::new(16 << 20)][..], &both] {
        let store = open(disks);
        put(&store, "first", 1, &[1; 100_000]);
        store.close().unwrap();
        let (is_one, store) = match disks {
            [one] => {
                let store = open(disks);
                one.fail_next_write();
                (true, store)
            }
            several => {
                several[0].fail_next_write();
                (false, open(disks))
            }
        };
        let out = store.stats().volumes_out as usize;
        assert_eq!(out, if is_one { 0 } else { disks.len() });
        let segments = |disks: &[Disk]| -> Vec<Vec<u8>> {
            let of =
                |disk: &Disk| disk.with_bytes(|bytes| bytes[SEGMENTS_FROM as usize..].to_vec());
            disks.iter().map(of).collect()
        };
        let before = segments(disks);
        let _ = store.create(b"key", GroupId::new(1), &[1; 100_000]).wait();
        let refused = store.sync().unwrap_err().to_string();
        assert!(refused.contains("in use could not be noted"), "names the cause: {refused}");
        assert!(store.info().warnings.iter().any(|w| w.contains("could not be noted")));
        assert_eq!(store.stats().volumes_out as usize, disks.len());
        assert!(before == segments(disks), "nothing is written");
    }
}

/// Small objects fill one segment after the other, and now and then there is a large one: neither
/// is a crash recovered from by reading all since the first of those, nor are marks kept for them.
#[test]
fn a_segment_that_fills_slowly_does_not_make_recovery_read_the_whole_ring() {
    let disk = Disk::new(64 << 20);
    let store = open(&disk, |config| config.background = false);
    put(&store, "large", 1, &[0; 8_000]);
    store.sync().unwrap();
    (2..9).for_each(|group| store.purge_group(GroupId::new(group)).unwrap());
    let segments = store.stats().segments;
    let mut large = 0;
    for number in 0.. {
        put(&store, &format!("small/{number}"), 1, &[7; 5_000]);
        if number % 1_500 == 0 {
            put(&store, &format!("large/{large}"), 1, &[large as u8; 8_000]);
            store.sync().unwrap();
            large += 1;
        }
        if store.stats().segments_sealed > 3 * segments {
            break;
        }
    }
    assert_eq!(store.stats().purge_marks, 1, "one for what is older than all on disk");
    store.checkpoint().unwrap();
    let disk = killed(store, &disk);
    let store = open_recovered(&disk);
    let read = store.stats().recovery_segments_wanted;
    assert!(read <= 66, "{read} of {segments}");
    let there = |number: &u32| {
        let found = get(&store, &format!("large/{number}"));
        found.is_some_and(|found| {
            assert!(found == [*number as u8; 8_000], "large/{number}");
            true
        })
    };
    // About as many as came during the last turn of the ring.
    let left = (0..large).filter(there).count() as u64;
    assert!(left >= segments * 50 / 1_500 - 2, "{left} of {large}");
}

/// The first try comes while the object is on its way to disk. Nothing of it is known to the store
/// then, and its record is there.
#[test]
fn what_was_removed_on_its_way_to_disk_is_gone_once_a_second_try_succeeds() {
    type Change = fn(&Store) -> bool;
    let removes: Change = |store| store.remove(b"key").is_ok();
    let purges: Change =
        |store| store.purge_group(GroupId::new(1)).is_ok() || get(store, "key").is_some();
    let creates: Change = |store| {
        put(store, "key", 1, b"newer");
        true
    };
    for (first, second) in [(removes, removes), (removes, creates), (purges, removes)] {
        let disk = Disk::new(24 << 20);
        let store = open(&disk, |config| config.flush_period = Duration::ZERO);
        store.wait_recovered();
        put(&store, "key", 1, b"older");
        let (said, says) = std::sync::mpsc::channel();
        let (theirs, its) = (store.clone(), disk.clone());
        disk.do_in_write(move || {
            its.set_journal_fails(true);
            said.send(first(&theirs)).unwrap();
            its.set_journal_fails(false);
        });
        store.sync().unwrap();
        assert_eq!(says.recv(), Ok(false), "the journal fails");
        assert!(second(&store), "it works again");
        let store = open_recovered(&killed(store, &disk));
        assert_eq!(get(&store, "key"), None);
    }
}

/// The index cannot tell two keys apart: who removes the one has the other forgotten. That one is
/// gone, too, when it is removed later, though nothing was known of it by then, and the checkpoint
/// that said so is lost.
#[test]
fn what_was_forgotten_with_another_key_is_not_there_again_without_the_checkpoint_since() {
    let disk = Disk::new(12 << 20);
    let open = |disk: &Disk| {
        let store = open(disk, |config| {
            config.objects_max = Some(64);
            config.tags_alone = true;
            config.background = false;
        });
        store.wait_recovered();
        store
    };
    let store = open(&disk);
    put(&store, "one", 1, b"value");
    store.sync().unwrap();
    let alike = |name: &String| store.may_contain(name.as_bytes());
    let other = (0..).map(|n| format!("other {n}")).find(alike).unwrap();
    assert!(store.remove(b"one").unwrap());
    store.sync().unwrap();
    store.checkpoint().unwrap();
    // None is written between that one and the next.
    store.sync().unwrap();

    put(&store, &other, 1, b"old");
    put(&store, "kept", 1, b"value");
    store.sync().unwrap();
    assert!(store.remove(b"one").unwrap(), "for all that is known it is there");
    store.drop_memory();
    assert!(get(&store, &other).is_none(), "it went along");
    store.checkpoint().unwrap();
    assert!(!store.remove(other.as_bytes()).unwrap(), "nothing is known of it");

    let disk = killed(store, &disk);
    let layout = disk.with_bytes(|bytes| Superblock::decode(bytes).unwrap());
    for slot in 0..2 {
        let disk = disk.copied();
        let lost = layout.checkpoint_offset + slot * layout.checkpoint_bytes;
        disk.device().write_at(lost, &[0; 4096]).unwrap();
        let store = open(&disk);
        assert_eq!(get(&store, &other), None, "without slot {slot}");
        assert!(get(&store, "kept").is_some());
    }
}
