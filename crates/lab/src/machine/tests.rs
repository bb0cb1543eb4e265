//! Virtual time of small plans, worked out by hand, and the speed of a run.

use super::*;
use crate::design::{Design, Outcome};
use crate::disk::DriveCache;
use crate::disk::{MechanicalParams, SeekPoints, Zone};
use crate::request::{Catalogue, Op, Request};

/// A drive on which everything takes round numbers: one revolution in 10 ms, 100 sectors a track,
/// one surface, seeks of 5 ms whatever the distance, nothing else.
fn plain_drive() -> Drive {
    Drive::Mechanical(MechanicalParams {
        name: "plain".to_owned(),
        about: "for tests".to_owned(),
        source: "none".to_owned(),
        revolution_ns: 10_000_000,
        heads: 1,
        zones: vec![Zone { cylinders: 1_000_000, sectors_per_track: 100 }],
        seek: SeekPoints { single_us: 5_000, average_us: 5_000, full_us: 5_000 },
        write_settle_us: 0,
        head_switch_us: 0,
        controller_us: 0,
        bus_bytes_per_us: 1_000_000_000,
        cache: DriveCache { segment_bytes: 0, segments: 0, write_back: false, write_bytes: None },
    })
}

/// Does what it was told for each key.
struct Fixed(Vec<Vec<Action>>);

impl Design for Fixed {
    fn request(&mut self, request: &Request, _: &Catalogue, out: &mut Vec<Action>) -> Outcome {
        out.extend(&self.0[request.key as usize]);
        Outcome::Hit
    }
}

fn block(direction: Direction, sector: u64, wait: bool) -> Action {
    let kind = Kind::Data;
    Action::Block { direction, kind, offset: sector * 512, bytes: 5_120, wait }
}

fn requests(count: u64, every_us: u64) -> Vec<Request> {
    let request = |key| Request {
        time_us: key * every_us,
        client: 0,
        key,
        size_bytes: 1,
        host: 0,
        op: Op::Read,
    };
    (0..count).map(request).collect()
}

fn play(actions: Vec<Vec<Action>>, every_us: u64, options: RunOptions) -> Report {
    let requests = requests(actions.len() as u64, every_us);
    let mut machine = Machine::new(&MachineConfig::new(plain_drive()));
    let names = Catalogue::new();
    run(&mut Fixed(actions), &mut machine, &requests, &names, options).expect("fits")
}

/// Sectors 0 to 9 pass in the first millisecond; 50 to 59 from 5 to 6 ms; 0 to 9 again from 10.
#[test]
fn one_client_waits_for_the_rotation() {
    let read = |sector| vec![block(Direction::Read, sector, true)];
    let report = play(vec![read(0), read(50), read(0)], 0, RunOptions::default());
    assert_eq!(report.elapsed_ns, 11_000_000);
    assert_eq!(report.responses.bins()[1], 1, "1 ms");
    assert_eq!(report.responses.bins()[5], 2, "5 ms each");
    assert_eq!(report.io.requests(Direction::Read, Kind::Data), 3);
    assert_eq!(report.memory_hits, 0);
}

/// A write that nobody waits for delays the read behind it, not the request.
#[test]
fn background_writes_occupy_the_disk() {
    let write = vec![block(Direction::Write, 0, false)];
    let read = vec![block(Direction::Read, 5, true)];
    let report = play(vec![write, read], 0, RunOptions::default());
    // The write ends at 1 ms; sector 5 comes again at 10.5 ms and ten sectors are past at 11.5.
    assert_eq!(report.elapsed_ns, 11_500_000);
    assert_eq!(report.responses.bins()[0], 1);
    assert_eq!((report.memory_hits, report.hits), (1, 2));
}

/// Two clients: both reads are at the disk at once; the second is done 10 sectors after the first.
#[test]
fn clients_share_the_disk() {
    let read = |sector| vec![block(Direction::Read, sector, true)];
    let options = RunOptions { clients: 2, ..RunOptions::default() };
    let report = play(vec![read(0), read(10)], 0, options);
    assert_eq!(report.elapsed_ns, 2_000_000);
}

/// Two clients, four reads side by side: the time of the run is shared out to the blocks of the
/// series, so that their mean is the run's time for an operation, half of what a client waits.
#[test]
fn a_series_of_operations_shares_out_the_time_of_the_run() {
    let read = |sector| vec![block(Direction::Read, sector, true)];
    let options = RunOptions { clients: 2, series_every: 2, ..RunOptions::default() };
    let report = play(vec![read(0), read(10), read(20), read(30)], 0, options);
    assert_eq!(report.elapsed_ns, 4_000_000);
    assert_eq!(report.series_operation_ms, [1.0, 1.0], "a millisecond for each ten sectors");
    assert_eq!(report.series_ms, [1.5, 2.0], "the second waits for the first");
    let alone = RunOptions { clients: 1, ..options };
    let report = play(vec![read(0), read(10), read(20), read(30)], 0, alone);
    assert_eq!(report.series_operation_ms, report.series_ms, "one client waits all the time");
}

/// At the trace's pace the second request begins at 20 ms, when sector 0 comes by again.
#[test]
fn requests_keep_the_pace_of_the_trace() {
    let read = |sector| vec![block(Direction::Read, sector, true)];
    let options = RunOptions { pace: Pace::Trace, ..RunOptions::default() };
    let report = play(vec![read(0), read(0)], 20_000, options);
    assert_eq!(report.elapsed_ns, 21_000_000);
    assert_eq!((report.responses.bins()[1], report.responses.mean_ms()), (2, 1.0), "1 ms each");
}

/// The second request comes after half a millisecond, waits for the only client as long, and has
/// its sector at 6 ms: 5.5 ms after it came, as if there were two clients and it had waited for the
/// disk. Not at the trace's pace it comes when the client asks: 5 ms.
#[test]
fn waiting_for_a_client_counts_at_the_pace_of_the_trace() {
    let mean_ms = |options| {
        let read = |sector| vec![block(Direction::Read, sector, true)];
        let report = play(vec![read(0), read(50)], 500, options);
        assert_eq!(report.elapsed_ns, 6_000_000);
        report.responses.mean_ms()
    };
    let paced = RunOptions { pace: Pace::Trace, ..RunOptions::default() };
    assert_eq!(mean_ms(paced), (1.0 + 5.5) / 2.0);
    assert_eq!(mean_ms(RunOptions { clients: 2, ..paced }), (1.0 + 5.5) / 2.0);
    assert_eq!(mean_ms(RunOptions::default()), (1.0 + 5.0) / 2.0);
}

/// Times that nanoseconds do not count would come round to an early one.
#[test]
fn a_time_beyond_virtual_time_is_an_error_at_the_pace_of_the_trace() {
    let play = |time_us, pace| {
        let read = vec![block(Direction::Read, 0, true)];
        let mut requests = requests(2, 0);
        requests[1].time_us = time_us;
        let mut machine = Machine::new(&MachineConfig::new(plain_drive()));
        let options = RunOptions { pace, ..RunOptions::default() };
        let names = Catalogue::new();
        run(&mut Fixed(vec![read.clone(), read]), &mut machine, &requests, &names, options)
    };
    for time_us in [20_000_000_000_000_000, u64::MAX] {
        let error = play(time_us, Pace::Trace).expect_err("too late").to_string();
        assert!(error.contains("request 2 comes") && error.contains("as fast as"), "{error}");
        assert!(play(time_us, Pace::AsFastAsPossible).is_ok());
    }
    let century_us = 3_155_760_000_000_000;
    let report = play(century_us, Pace::Trace).expect("within virtual time");
    assert!(report.elapsed_ns > century_us * 1_000);
}

/// Counting begins after one request; computing takes 3 ms of each.
#[test]
fn warm_up_is_not_counted() {
    let read = |sector| vec![block(Direction::Read, sector, true)];
    let options = RunOptions { warmup: 1, compute_us: 3_000, ..RunOptions::default() };
    // The first ends at 1 + 3 ms; the second reads sectors 40 to 49 by 5 ms and ends at 8.
    let report = play(vec![read(0), read(40)], 0, options);
    assert_eq!((report.requests, report.elapsed_ns), (1, 4_000_000));
    assert_eq!(report.disks[2].reads, 1);
}

/// The warm-up's write ends at 1 ms, and only then counting begins: the read waits for the rest of
/// the turn, from sector 10 to 5 (9.5 ms), and for its ten sectors, and not for the write. At the
/// trace's pace it comes half a millisecond later than the trace says, and so does what follows. Of
/// two clients the second has the read, once the disk is idle.
#[test]
fn what_the_warm_up_left_to_write_is_not_counted() {
    let actions = vec![
        vec![block(Direction::Write, 0, false)],
        vec![block(Direction::Read, 5, true)],
        vec![block(Direction::Read, 5, true)],
    ];
    let warm = RunOptions { warmup: 1, ..RunOptions::default() };
    let paced = RunOptions { pace: Pace::Trace, ..warm };
    for options in [warm, paced, RunOptions { clients: 2, ..warm }] {
        let report = play(actions[..2].to_vec(), 500, options);
        assert_eq!((report.disks[2].writes, report.disks[2].reads), (0, 1), "{options:?}");
        assert_eq!(report.io.total(), 1, "{options:?}");
        assert_eq!(report.elapsed_ns, 10_500_000, "{options:?}");
        assert_eq!(report.responses.mean_ms(), 10.5, "{options:?}");
    }
    // The third comes 0.5 ms after the second, which has its sectors at 10.5 ms, and has the same a
    // turn later.
    let report = play(actions, 500, paced);
    assert_eq!(report.responses.mean_ms(), (10.5 + 20.0) / 2.0);
}

#[test]
fn what_is_beyond_the_drive_is_an_error() {
    let mut machine = Machine::new(&MachineConfig::new(plain_drive()));
    let mut plan = Plan::default();
    let size_bytes = plain_drive().size_bytes();
    let far = Action::WriteMapped { offset: size_bytes, bytes: 1 };
    let error = machine.lower(&[far], &mut plan).expect_err("beyond");
    assert!(error.to_string().contains("use a larger drive"), "{error}");
}

/// A page of the mapped file, the one before it and a file: on one disk the head goes from one to
/// the other, on two each stays where it is.
#[test]
fn a_mapped_file_shares_the_arm_of_the_disk_that_it_lies_on() {
    let Drive::Mechanical(mut params) = plain_drive() else { panic!("it turns") };
    params.zones[0].cylinders = 10_000;
    let drive = Drive::Mechanical(params);
    let files = FfsParams { group_bytes: 1 << 20, inodes_per_group: 64, ..FfsParams::ufs_8k() };
    let mut busy_ns = Vec::new();
    for mapped_on in [MappedOn::OwnDisk, MappedOn::FilesDisk { bytes: 64 << 10 }] {
        let config = MachineConfig { files, mapped_on, ..MachineConfig::new(drive.clone()) };
        let mut machine = Machine::new(&config);
        let map = |offset| Action::WriteMapped { offset, bytes: 8 << 10 };
        let mut plan = Plan::default();
        machine.lower(&[map(0)], &mut plan).expect("fits");
        machine.lower(&[Action::Create { dir: 0, file: 0, bytes: 512 }], &mut plan).expect("fits");
        machine.sync(&mut plan);
        let disk_of = |kind| plan.steps.iter().find(|s| s.kind == kind).map(|s| (s.disk, s.sector));
        let (page, data) = (disk_of(Kind::Page), disk_of(Kind::Data));
        let begins = drive.size_bytes() / 512 - 128;
        match mapped_on {
            MappedOn::OwnDisk => assert_eq!(page, Some((DISK_MAPPED, 0))),
            MappedOn::FilesDisk { .. } => assert_eq!(page, Some((DISK_FILES, begins))),
        }
        assert!(data.is_some_and(|(disk, sector)| disk == DISK_FILES && sector < begins));
        let beyond = machine.lower(&[map(64 << 10)], &mut plan);
        assert_eq!(beyond.is_err(), mapped_on != MappedOn::OwnDisk, "{beyond:?}");
        let actions = vec![vec![map(0)], vec![Action::Create { dir: 0, file: 0, bytes: 512 }]];
        let mut machine = Machine::new(&config);
        let names = Catalogue::new();
        let options = RunOptions::default();
        let report = run(&mut Fixed(actions), &mut machine, &requests(2, 0), &names, options);
        busy_ns.push(report.expect("fits").disks.map(|disk| disk.write_ns > 0));
    }
    assert_eq!(busy_ns, [[true, true, false], [true, false, false]]);
}

/// Of 18 TB the files take 256 GiB: the arm does not cross the drive for what is mapped.
#[test]
fn a_mapped_file_lies_right_behind_the_files_of_a_large_drive() {
    let drive = Drive::named("hdd-18tb").expect("known");
    let mapped_on = MappedOn::FilesDisk { bytes: 1 << 30 };
    let mut machine = Machine::new(&MachineConfig { mapped_on, ..MachineConfig::new(drive) });
    let mut plan = Plan::default();
    let map = Action::WriteMapped { offset: 0, bytes: 8 << 10 };
    machine.lower(&[map], &mut plan).expect("fits");
    machine.sync(&mut plan);
    assert_eq!(plan.steps.first().map(|step| step.sector), Some(FILES_BYTES_MAX / 512));
}

/// What was mapped comes from the disk again once caches are dropped.
#[test]
fn dropping_caches_drops_mapped_pages() {
    let mut machine = Machine::new(&MachineConfig::new(plain_drive()));
    let mut plan = Plan::default();
    let page = |machine: &mut Machine, plan: &mut Plan| {
        plan.clear();
        machine.lower(&[Action::ReadMapped { offset: 0, bytes: 100 }], plan).expect("fits");
        plan.steps.len()
    };
    machine.lower(&[Action::WriteMapped { offset: 0, bytes: 8 << 10 }], &mut plan).expect("fits");
    assert_eq!(page(&mut machine, &mut plan), 0, "in memory");
    machine.drop_caches(&mut plan);
    assert_eq!(page(&mut machine, &mut plan), 1);
}

/// 199 sectors: the last block of 1 KiB has one of them, the last page of 8 KiB seven. The block is
/// as long as there is room; a page that is written would end beyond.
#[test]
fn the_end_of_a_drive_need_not_be_that_of_a_block() {
    let Drive::Mechanical(mut params) = plain_drive() else { panic!("it turns") };
    params.zones = vec![
        Zone { cylinders: 99, sectors_per_track: 2 },
        Zone { cylinders: 1, sectors_per_track: 1 },
    ];
    let files = FfsParams { group_bytes: 64 << 10, inodes_per_group: 16, ..FfsParams::ufs_8k() };
    let drive = Drive::Mechanical(params);
    let mut machine = Machine::new(&MachineConfig { files, ..MachineConfig::new(drive) });
    let mut plan = Plan::default();
    let last = 198 * SECTOR_BYTES;
    let (direction, kind) = (Direction::Write, Kind::Data);
    let buffered = Action::Buffered { direction, kind, offset: last, bytes: 512 };
    machine.lower(&[buffered], &mut plan).expect("on the drive");
    machine.sync(&mut plan);
    let ends = plan.steps.iter().map(|step| (step.sector, step.sectors)).collect::<Vec<_>>();
    assert_eq!(ends, [(198, 1)]);
    let mapped = Action::WriteMapped { offset: last, bytes: 512 };
    let error = machine.lower(&[mapped], &mut plan).expect_err("half a page").to_string();
    assert!(error.contains("the design wants 106496; use a larger drive"), "{error}");
}

/// Eight blocks of memory, all of them dirty: what is read of one object comes with one request,
/// and what had to go for it with another.
#[test]
fn neighbours_are_read_together_where_dirty_blocks_must_go() {
    let buffered = BufferedParams::linux_2_2(8 << 10);
    let mut machine =
        Machine::new(&MachineConfig { buffered, ..MachineConfig::new(plain_drive()) });
    let mut plan = Plan::default();
    let kind = Kind::Data;
    let dirty =
        Action::Buffered { direction: Direction::Write, kind, offset: 16 << 10, bytes: 8192 };
    let read = Action::Buffered { direction: Direction::Read, kind, offset: 0, bytes: 4096 };
    machine.lower(&[dirty, read], &mut plan).expect("on the drive");
    let step = |step: &Step| (step.direction, step.sector, step.sectors, step.wait);
    let steps: Vec<_> = plan.steps.iter().map(step).collect();
    assert_eq!(steps, [(Direction::Read, 0, 8, true), (Direction::Write, 32, 8, false)]);
}
