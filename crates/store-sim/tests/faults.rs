//! Disks that fail, one kind of fault a row: the outcome is a miss or a clear error and a counter,
//! never a wrong byte, a panic or a hang.
//! `DAMELO_SIM_SEEDS` sets how many seeds a row, `DAMELO_SIM_SEED` picks one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use damelo::format::{CheckpointHeader, JOURNAL_CELL_BYTES, Superblock};
use damelo::{Durability, GroupId, Store};
use damelo_store_sim::driver::Driver;
use damelo_store_sim::harness::{
    SEED_TIME_MAX, fail, fault_counters, guarded, replay, seeds, sweep,
};
use damelo_store_sim::model::{Demand, Model};
use damelo_store_sim::scenario::{self, driver_on, tiny_config};
use damelo_store_sim::workload::{NewObject, Op, Workload};
use damelo_store_sim::{
    CrashKind, Effect, FaultPlan, OpKind, Rule, SECTOR_BYTES, SimClock, SimDisk, SimOptions,
    SimWorld, When,
};

#[path = "faults/volumes.rs"]
mod volumes;

const READS: &[OpKind] = OpKind::READS;
const WRITES: &[OpKind] = OpKind::WRITES;
const DATA_WRITES: &[OpKind] = &[OpKind::Write];
const SYNCS: &[OpKind] = &[OpKind::Sync, OpKind::JournalSync];
const JOURNAL: &[OpKind] = &[OpKind::JournalWrite];

/// What fails, which of them, and how. `true`: already while the store is being opened.
#[rustfmt::skip]
const FAULTS: &[(&str, &[OpKind], When, Effect, bool)] = &[
    ("now and then a read fails",        READS,       When::Chance(0.05), Effect::Eio,     false),
    ("every read fails",                 READS,       When::Always,       Effect::Eio,     false),
    ("reads fail from the start",        READS,       When::Always,       Effect::Eio,     true),
    ("short reads",                      READS,       When::Chance(0.1),  Effect::Short,   false),
    ("reads with a bit turned over",     READS,       When::Chance(0.2),  Effect::Corrupt, false),
    ("now and then a write fails",       WRITES,      When::Chance(0.05), Effect::Eio,     false),
    ("every write fails",                WRITES,      When::Always,       Effect::Eio,     false),
    ("writes fail from the start",       WRITES,      When::Always,       Effect::Eio,     true),
    ("data writes fail, journal works",  DATA_WRITES, When::Always,       Effect::Eio,     false),
    ("short writes",                     DATA_WRITES, When::Chance(0.2),  Effect::Short,   false),
    ("no space, now and then",           WRITES,      When::Chance(0.1),  Effect::Enospc,  false),
    ("no space from some write on",      WRITES,      When::From(5),      Effect::Enospc,  false),
    ("syncs fail",                       SYNCS,       When::Chance(0.5),  Effect::Eio,     false),
    ("the journal cannot be written",    JOURNAL,     When::Always,       Effect::Eio,     false),
    ("the journal fails now and then",   JOURNAL,     When::Chance(0.3),  Effect::Eio,     false),
    ("everything fails now and then",    OpKind::ALL, When::Chance(0.02), Effect::Eio,     false),
    ("the device vanishes at once",      OpKind::ALL, When::Only(0),      Effect::Vanish,  false),
    ("the device vanishes later",        OpKind::ALL, When::Only(40),     Effect::Vanish,  false),
    ("the device vanishes in the open",  OpKind::ALL, When::Only(3),      Effect::Vanish,  true),
];

fn run_row(row: usize, seed: u64) -> Result<u64, String> {
    let (_, ops, when, effect, from_start) = FAULTS[row];
    let plan = FaultPlan::new(vec![Rule::new(ops, when, effect)]);
    scenario::faulty(seed, &plan, from_start)
}

#[test]
fn failing_disks_give_misses_and_errors_only() {
    let name = "failing_disks_give_misses_and_errors_only";
    for (row, (what, ..)) in FAULTS.iter().enumerate() {
        let mut fired = 0;
        for seed in seeds(4) {
            match guarded(SEED_TIME_MAX, move || run_row(row, seed)) {
                Ok(count) => fired += count,
                Err(error) => {
                    let command = replay("faults", name, seed);
                    fail(&format!("{what}, seed {seed}: {error}\nreplay: {command}"))
                }
            }
        }
        assert!(fired > 0 || FAULTS[row].4, "{what}: no fault was ever hit");
    }
}

/// Faults of that test that were hit, of all seeds.
static BAD_RANGE_FIRED: AtomicU64 = AtomicU64::new(0);

#[test]
fn a_bad_range_of_the_disk_costs_only_what_lies_there() {
    sweep("faults", "a_bad_range_of_the_disk_costs_only_what_lies_there", 10, |seed| {
        let start = fastrand::Rng::with_seed(seed).u64(2 << 20..5 << 20) / 4096 * 4096;
        let rule = Rule::new(&[OpKind::Read, OpKind::Write], When::Always, Effect::Eio);
        let plan = FaultPlan::new(vec![rule.within(start..start + (300 << 10))]);
        scenario::faulty(seed, &plan, false)
            .map(|fired| _ = BAD_RANGE_FIRED.fetch_add(fired, Ordering::Relaxed))
    });
    assert!(BAD_RANGE_FIRED.load(Ordering::Relaxed) > 0, "no fault was ever hit");
}

/// Faults of that test that were hit, of all seeds.
static OPEN_FIRED: AtomicU64 = AtomicU64::new(0);

#[test]
fn an_io_that_fails_in_an_open_revives_nothing() {
    sweep("faults", "an_io_that_fails_in_an_open_revives_nothing", 20, |seed| {
        scenario::fault_in_open(seed)
            .map(|fired| _ = OPEN_FIRED.fetch_add(fired, Ordering::Relaxed))
    });
    assert!(OPEN_FIRED.load(Ordering::Relaxed) > 0, "no fault was ever hit");
}

/// Faults of that test that were hit, of all seeds.
static ONE_OF_SEVERAL_FIRED: AtomicU64 = AtomicU64::new(0);

#[test]
fn one_disk_of_several_may_fail_in_life_after_life() {
    sweep("faults", "one_disk_of_several_may_fail_in_life_after_life", 20, |seed| {
        scenario::one_of_several(seed)
            .map(|fired| _ = ONE_OF_SEVERAL_FIRED.fetch_add(fired, Ordering::Relaxed))
    });
    assert!(ONE_OF_SEVERAL_FIRED.load(Ordering::Relaxed) > 0, "no fault was ever hit");
}

#[test]
fn one_disk_of_several_may_be_away_for_whole_lives() {
    let name = "one_disk_of_several_may_be_away_for_whole_lives";
    sweep("faults", name, 30, scenario::one_away);
}

#[test]
fn what_a_recovery_did_not_see_stays_removed_without_the_next_checkpoint() {
    let name = "what_a_recovery_did_not_see_stays_removed_without_the_next_checkpoint";
    sweep("faults", name, 30, scenario::unread);
}

#[test]
fn a_journal_that_goes_round_without_checkpoints_revives_nothing() {
    let name = "a_journal_that_goes_round_without_checkpoints_revives_nothing";
    sweep("faults", name, 15, scenario::journal_rounds);
}

#[test]
fn bits_may_turn_over_anywhere() {
    sweep("faults", "bits_may_turn_over_anywhere", 60, scenario::bit_flips);
}

/// A store with `count` objects of 3,000 bytes, synced and dropped from memory.
fn filled(world: &SimWorld, count: usize) -> Result<Driver, String> {
    let mut config = tiny_config(1);
    config.durability = Durability::Synced;
    let model = Model::new(Demand::Strict, config.durability);
    let mut driver = driver_on(world, &config, model);
    driver.open()?;
    for key in 0..count {
        let object =
            NewObject { key, group: key as u64 % 5, length: 3_000, metadata: 20, expires_in: None };
        driver.apply(1 + key as u64, &Op::Create(object))?;
    }
    driver.apply(0, &Op::Sync)?;
    driver.apply(0, &Op::DropMemory)?;
    Ok(driver)
}

fn blank_world(bytes: u64) -> SimWorld {
    let options = SimOptions::new(3);
    SimWorld::start(&[SimDisk::blank(bytes)], &options, Arc::new(SimClock::new()))
}

fn watched(f: fn() -> Result<(), String>) {
    if let Err(error) = guarded(Duration::from_secs(60), f) {
        fail(&error);
    }
}

/// Opens these disks and demands only genuine values; returns misses counted by the model's keys.
fn reopen_damaged(world: &SimWorld, disks: &[SimDisk], model: &Model) -> Result<Driver, String> {
    let clock = Arc::clone(world.sim_clock());
    let world = SimWorld::start(disks, &SimOptions::new(4), clock);
    let mut model = model.after_crash(u64::MAX - 1, CrashKind::Kill);
    model.set_demand(Demand::Genuine);
    let mut driver = driver_on(&world, &tiny_config(1), model);
    driver.tolerant = true;
    driver.open()?;
    driver.verify_recovered()?;
    Ok(driver)
}

fn present(driver: &Driver) -> usize {
    let found =
        |key: &damelo_store_sim::model::Key| matches!(driver.store().read(key).wait(), Ok(Some(_)));
    driver.model.keys().iter().filter(|key| found(key)).count()
}

#[test]
fn either_superblock_copy_may_be_garbage_and_both_are_refused_clearly() {
    watched(|| {
        let world = blank_world(8 << 20);
        let mut driver = filled(&world, 100)?;
        driver.close()?;
        let rng = &mut fastrand::Rng::with_seed(1);
        for copy in 0..2_u64 {
            let mut disks = world.snapshot();
            disks[0].scribble(copy * 4096..copy * 4096 + 4096, rng);
            let driver = reopen_damaged(&world, &disks, &driver.model)?;
            if present(&driver) != 100 {
                return Err(format!("copy {copy} garbage: {} of 100 there", present(&driver)));
            }
            let told = driver.store().stats().damaged_superblocks;
            if told != 1 {
                return Err(format!("copy {copy} garbage: {told} told"));
            }
        }
        let mut disks = world.snapshot();
        disks[0].scribble(0..8192, rng);
        match reopen_damaged(&world, &disks, &driver.model) {
            Err(error) if error.starts_with("open:") => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err("a store whose superblocks are both garbage was opened".into()),
        }
    });
}

/// The cells of the journal's first copy that hold something, and how far behind each lies the same
/// one of the second.
fn journal_cells(disk: &SimDisk) -> (Vec<usize>, usize) {
    let superblock = Superblock::decode(disk.bytes()).expect("a superblock");
    let (start, copy) = (superblock.journal_offset as usize, superblock.journal_bytes as usize / 2);
    let cells = (start..start + copy).step_by(JOURNAL_CELL_BYTES);
    let held = |at: &usize| disk.bytes()[*at..*at + JOURNAL_CELL_BYTES].iter().any(|b| *b != 0);
    (cells.filter(held).collect(), copy)
}

/// Which of the first 50 objects are there when these disks are opened.
fn survivors(disks: &[SimDisk]) -> Result<(Vec<bool>, u64), String> {
    let world = SimWorld::start(disks, &SimOptions::new(4), Arc::new(SimClock::new()));
    let mut driver =
        driver_on(&world, &tiny_config(1), Model::new(Demand::Genuine, Durability::Synced));
    driver.open()?;
    // Until then a read may miss what the store has.
    driver.store().wait_recovered();
    let keys = (0..50).map(|index| Workload::key(index, false));
    let there = keys.map(|key| matches!(driver.store().read(&key).wait(), Ok(Some(_)))).collect();
    let damaged = driver.store().stats().damaged_records;
    driver.abandon();
    Ok((there, damaged))
}

/// After a crash the journal alone knows what was deleted since the last checkpoint.
#[test]
fn a_damaged_journal_revives_nothing() {
    watched(|| {
        let world = blank_world(8 << 20);
        let mut driver = filled(&world, 50)?;
        driver.apply(1000, &Op::Checkpoint)?;
        for key in 0..25 {
            driver.apply(2000 + key as u64, &Op::Remove(key))?;
        }
        let disks = world.snapshot();
        driver.abandon();
        let (cells, copy) = journal_cells(&disks[0]);
        let whole: Vec<bool> = (0..50).map(|key| key >= 25).collect();
        if cells.len() < 25 || survivors(&disks)? != (whole.clone(), 0) {
            return Err(format!("{} cells, {:?}", cells.len(), survivors(&disks)));
        }
        let rng = &mut fastrand::Rng::with_seed(5);
        let one = |cell: usize| cell..cell + JOURNAL_CELL_BYTES;
        let (last, first) = (cells[cells.len() - 1], cells[0]);
        let several = [last - JOURNAL_CELL_BYTES..last + JOURNAL_CELL_BYTES, first..last + 4096];
        // Damage to one copy is put right, and told where it is the first.
        for part in cells.iter().copied().map(one).chain(several) {
            for (shift, told) in [(0, true), (copy, false)] {
                let mut disks = disks.clone();
                disks[0].scribble((part.start + shift) as u64..(part.end + shift) as u64, rng);
                let (there, damaged) = survivors(&disks)?;
                if there != whole || (damaged > 0) != told {
                    return Err(format!("{part:?} of a copy: {there:?}, {damaged} damaged"));
                }
            }
        }
        // Of what neither copy has nobody knows what it deleted.
        let (all, but_last) = (first..last + 4096, &cells[..cells.len() - 1]);
        for part in but_last.iter().copied().map(one).chain(std::iter::once(all)) {
            let mut disks = disks.clone();
            for shift in [0, copy] {
                disks[0].scribble((part.start + shift) as u64..(part.end + shift) as u64, rng);
            }
            let (there, told) = survivors(&disks)?;
            if there[..25].contains(&true) || told == 0 {
                return Err(format!("{part:?} is garbage: {there:?}, {told} told"));
            }
        }
        Ok(())
    });
}

/// The system says once that it could not write the record, to whoever removed the object, and
/// takes it for written from then on.
#[test]
fn a_sync_after_one_that_failed_covers_what_that_one_did_not() {
    watched(|| {
        let world = blank_world(8 << 20);
        let mut driver = filled(&world, 50)?;
        driver.apply(1000, &Op::Checkpoint)?;
        let once = Rule::new(&[OpKind::JournalSync], When::Only(0), Effect::Eio);
        world.set_faults(&FaultPlan::new(vec![once]));
        if driver.store().remove(&Workload::key(0, false)).is_ok() {
            return Err("the sync of its record failed".into());
        }
        driver.store().sync().map_err(|e| e.to_string())?;
        let images = (0..20).map(|seed| world.crash(CrashKind::Power, seed));
        let images: Vec<_> = images.collect();
        driver.abandon();
        for (seed, disks) in images.iter().enumerate() {
            let (there, _) = survivors(disks)?;
            if there[0] || there[1..].contains(&false) {
                return Err(format!("image {seed}: {there:?}"));
            }
        }
        Ok(())
    });
}

/// What is lost with a half of the journal is lost once, and not again at every crash.
#[test]
fn a_lost_half_of_the_journal_costs_only_what_is_older() {
    watched(|| {
        let world = blank_world(8 << 20);
        let mut driver = filled(&world, 50)?;
        driver.apply(2000, &Op::Remove(0))?;
        let mut disks = world.snapshot();
        driver.abandon();
        let (cells, copy) = journal_cells(&disks[0]);
        for shift in [0, copy] {
            let (start, end) = (cells[0] + shift, cells[cells.len() - 1] + shift + 4096);
            disks[0].scribble(start as u64..end as u64, &mut fastrand::Rng::with_seed(8));
        }
        for open in 0..4 {
            let world = SimWorld::start(&disks, &SimOptions::new(4), Arc::new(SimClock::new()));
            let model = Model::new(Demand::Genuine, Durability::Synced);
            let mut driver = driver_on(&world, &tiny_config(1), model);
            driver.open()?;
            // Until then a read may miss what the store has.
            driver.store().wait_recovered();
            let mut older = (0..50).map(|index| Workload::key(index, false));
            if older.any(|key| matches!(driver.store().read(&key).wait(), Ok(Some(_)))) {
                return Err(format!("open {open}: something older is there"));
            }
            let newer = driver.store().read(b"newer").wait().map_err(|e| e.to_string())?;
            if newer.is_some() != (open > 0) {
                return Err(format!("open {open}: newer is there: {}", newer.is_some()));
            }
            drop(newer);
            let created = driver.store().create(b"newer", GroupId::new(1), b"value").wait();
            created.map_err(|e| e.to_string())?;
            driver.store().sync().map_err(|e| e.to_string())?;
            disks = world.snapshot();
            driver.abandon();
        }
        Ok(())
    });
}

/// Where the first piece of the newest checkpoint's index lies.
fn checkpoint_piece(disk: &SimDisk) -> std::ops::Range<usize> {
    let superblock = Superblock::decode(disk.bytes()).expect("a superblock");
    let layout = superblock.layout();
    let header = |slot: usize| {
        let at = layout.checkpoint_slot(slot) as usize;
        let header = CheckpointHeader::decode(
            &disk.bytes()[at..],
            superblock.nonce(),
            layout.checkpoint_bytes,
        );
        header.ok().map(|header| (header.generation, at, header))
    };
    let newest =
        [header(0), header(1)].into_iter().flatten().max_by_key(|(generation, ..)| *generation);
    let (_, at, header) = newest.expect("a checkpoint");
    let start = at + header.shard_offset(0).expect("a piece") as usize;
    start..start + header.shard_bytes as usize
}

#[test]
fn a_bit_of_a_checkpoint_costs_no_object() {
    watched(|| {
        let world = blank_world(8 << 20);
        let mut driver = filled(&world, 50)?;
        driver.close()?;
        let disks = world.snapshot();
        let rng = &mut fastrand::Rng::with_seed(6);
        for _ in 0..20 {
            let mut disks = disks.clone();
            let at = rng.usize(checkpoint_piece(&disks[0]));
            disks[0].bytes_mut()[at] ^= 1 << rng.u8(0..8);
            let (there, damaged) = survivors(&disks)?;
            if there.contains(&false) || damaged != 1 {
                return Err(format!("{there:?}, {damaged} damaged"));
            }
        }
        // What cannot be put right is counted, and nothing wrong is served.
        let mut disks = disks.clone();
        let piece = checkpoint_piece(&disks[0]);
        disks[0].scribble(piece.start as u64..piece.end as u64, rng);
        let (_, damaged) = survivors(&disks)?;
        (damaged > 0).then_some(()).ok_or_else(|| "damage is counted".into())
    });
}

#[test]
fn live_bits_that_turn_over_under_a_running_store_are_misses_and_counted() {
    watched(|| {
        let world = blank_world(8 << 20);
        let mut driver = filled(&world, 150)?;
        driver.model.set_demand(Demand::Fresh);
        let before = fault_counters(driver.store());
        for range in world.snapshot()[0].used_ranges(4096) {
            // Only past the fixed areas: those are read at open.
            let range = range.start.max(1 << 20)..range.end;
            if range.start < range.end {
                world.sims()[0].flip_bits(range.clone(), ((range.end - range.start) / 2048) as u32);
            }
        }
        driver.verify(true)?;
        let lost = 150 - present(&driver);
        if lost == 0 || fault_counters(driver.store()) <= before {
            return Err(format!("{lost} of 150 lost, counters {before} and no more"));
        }
        Ok(())
    });
}

#[test]
fn a_torn_segment_costs_only_itself() {
    watched(|| {
        let world = blank_world(8 << 20);
        let mut driver = filled(&world, 150)?;
        driver.apply(1000, &Op::Checkpoint)?;
        let used = world.snapshot()[0].used_ranges(4096);
        let last = used.last().ok_or("nothing on disk")?.clone();
        let mut disks = world.snapshot();
        let middle = (last.start + last.end) / 2 / 4096 * 4096;
        disks[0].bytes_mut()[middle as usize..last.end as usize].fill(0);
        let reopened = reopen_damaged(&world, &disks, &driver.model)?;
        let left = present(&reopened);
        driver.abandon();
        if left == 0 || left == 150 {
            return Err(format!("{left} of 150 objects left"));
        }
        Ok(())
    });
}

#[test]
fn a_clock_that_jumps_back_neither_hangs_nor_revives() {
    watched(|| {
        let world = blank_world(8 << 20);
        let mut driver = filled(&world, 20)?;
        for (i, jump) in [-1_000_000, 50, 3_000_000, -2_999_000, i64::MIN / 4].iter().enumerate() {
            driver.apply(2000, &Op::Jump(*jump))?;
            let key = 50 + i;
            let object =
                NewObject { key, group: 1, length: 500, metadata: 0, expires_in: Some(100) };
            driver.apply(100 + i as u64, &Op::Create(object))?;
            driver.apply(2000, &Op::Sync)?;
            driver.verify(true)?;
        }
        driver.apply(2000, &Op::Reopen)?;
        driver.verify(true)?;
        driver.close()
    });
}

/// A value that no other key has, all through.
fn stamped(key: u64) -> Vec<u8> {
    key.to_le_bytes().repeat(375)
}

/// Creates objects of a group that nobody asks for until the ring has come round.
fn come_round(store: &Store, segments: u64) -> Result<(), String> {
    for key in 1_000..20_000_u64 {
        if store.stats().segments_reused >= segments {
            return Ok(());
        }
        let created = store.create(&key.to_le_bytes(), GroupId::new(2), &stamped(key)).wait();
        created.map_err(|error| error.to_string())?;
    }
    Err("the ring did not come round".into())
}

/// The superblock lies there twice.
#[test]
fn a_superblock_that_cannot_be_read_is_no_loss_while_the_other_can() {
    let world = blank_world(8 << 20);
    let open = |world: &SimWorld| {
        let mut config = tiny_config(1);
        config.background = false;
        Store::open_on(config, world.devices(), world.clock())
    };
    let store = open(&world).expect("blank");
    store.create(b"/a", GroupId::new(1), &stamped(7)).wait().expect("there is room");
    store.close().expect("nothing fails");
    let disks = world.snapshot();
    for (bad, opens) in [(0..512, true), (4096..8192, true), (0..8192, false)] {
        let world = SimWorld::start(&disks, &SimOptions::new(1), Arc::new(SimClock::new()));
        let rule = Rule::new(&[OpKind::Read], When::Always, Effect::Eio);
        world.sims()[0].set_faults(FaultPlan::new(vec![rule.within(bad.clone())]));
        match open(&world) {
            Ok(store) => {
                assert!(opens, "opened on nothing: {bad:?}");
                assert_eq!(store.stats().damaged_superblocks, 1, "{bad:?}");
                let object = store.read(b"/a").wait().expect("it is elsewhere");
                assert_eq!(object.as_deref(), Some(&stamped(7)[..]), "{bad:?}");
                store.close().expect("nothing else fails");
            }
            Err(error) => {
                assert!(!opens, "{bad:?}: {error}");
                let left = world.snapshot();
                assert!(left[0].bytes() == disks[0].bytes(), "an error changes nothing");
            }
        }
        assert!(world.sims()[0].faults_fired() > 0, "{bad:?} was not read");
    }
}

/// What is kept of a segment is read together. `bad` of the sectors there, counted from that in the
/// middle of the object that lies in the middle, cannot be read. Returns how many objects that
/// cost.
fn kept_beside_bad_sectors(bad: u64) -> Result<usize, String> {
    const KEPT: u64 = 70;
    let world = blank_world(8 << 20);
    let mut config = tiny_config(1);
    config.background = false;
    config.reinsert_percent_max = 90;
    config.volume_errors_max = 6;
    let store =
        Store::open_on(config, world.devices(), world.clock()).map_err(|e| e.to_string())?;
    store.love(GroupId::new(1));
    for key in 0..KEPT {
        let created = store.create(&key.to_le_bytes(), GroupId::new(1), &stamped(key)).wait();
        created.map_err(|error| error.to_string())?;
    }
    store.sync().map_err(|error| error.to_string())?;
    store.drop_memory();
    let disks = world.snapshot();
    let middle = stamped(KEPT / 2);
    let found = disks[0].bytes().windows(middle.len()).position(|bytes| bytes == middle);
    let sector = (found.ok_or("not on disk")? as u64 + 1500) / SECTOR_BYTES * SECTOR_BYTES;
    let rule = Rule::new(&[OpKind::Read], When::Always, Effect::Eio);
    let range = sector..sector + bad * SECTOR_BYTES;
    world.sims()[0].set_faults(FaultPlan::new(vec![rule.within(range)]));
    come_round(&store, 2)?;
    if world.sims()[0].faults_fired() == 0 {
        return Err("the sector was never read".into());
    }
    if store.info().volumes.iter().any(|volume| !volume.in_service) {
        return Err("one bad place took the volume out of service".into());
    }
    let mut lost = 0;
    for key in 0..KEPT {
        match store.read(&key.to_le_bytes()).wait().map_err(|error| error.to_string())? {
            Some(object) if *object == stamped(key)[..] => {}
            Some(_) => return Err(format!("{key}: other bytes")),
            None => lost += 1,
        }
    }
    Ok(lost)
}

#[test]
fn a_bad_sector_among_what_is_kept_costs_the_object_on_it() {
    watched(|| match kept_beside_bad_sectors(1)? {
        1 => Ok(()),
        lost => Err(format!("{lost} objects lost")),
    });
    // The end of one object and the beginning of the next.
    watched(|| match kept_beside_bad_sectors(6)? {
        2 => Ok(()),
        lost => Err(format!("{lost} objects lost")),
    });
}
