//! What designs do when they are full, and at times: exact counts on hand-made traces.

use super::*;
use crate::requests::Requests;

const HOUR_US: u64 = 3_600_000_000;

fn at(time_us: u64, request: Request) -> Request {
    Request { time_us, ..request }
}

/// One group of four pages of 16 KiB, the last of which is for checkpoints; memory for two.
fn damelo_of_four_pages() -> DesignOptions {
    DesignOptions {
        page_bytes: 16 << 10,
        memory_bytes: 32 << 10,
        cache_bytes: 64 << 10,
        grouping: GroupRule::None,
        damelo: DameloOptions { groups: 1, ..DameloOptions::default() },
        ..DesignOptions::default()
    }
}

/// Objects of 8,000 bytes, two on a page: six fill pages 0 to 2, of which 0 is written out for 2.
/// The seventh finds no page and none with room: the oldest, 0, loses 1 and 2, and comes back
/// without being read, for which 1 is written out. When 3 and 4 are deleted, all of page 1 is free.
/// 8 lies with 7, 9 takes page 1: 2 is written out for it, and it is read, since the disk has it.
/// At the end 0 and 1 are written.
#[test]
fn damelo_uses_pages_of_a_full_group_again() {
    let options = damelo_of_four_pages();
    let mut requests: Vec<Request> = (1..=7).map(|key| read(key, 8_000)).collect();
    let report = run_named("damelo", &options, &requests);
    assert_eq!((report.fact("pages_lost"), report.fact("objects")), (1, 5));
    assert_eq!(io(&report), [(W, Kind::Data, 2 + 2)]);
    requests.extend([delete(3), delete(4), read(8, 8_000), read(9, 8_000)]);
    let report = run_named("damelo", &options, &requests);
    assert_eq!((report.fact("pages_lost"), report.fact("objects")), (1, 5));
    assert_eq!(report.fact("page_reads"), 1);
    assert_eq!(io(&report), [(R, Kind::Data, 1), (W, Kind::Data, 3 + 2)]);
    // Nothing was lost but 1 and 2: the rest hits, 5 and 6 with the one more read of page 2.
    requests.extend([5, 6, 7, 8, 9].map(|key| read(key, 8_000)));
    let report = run_named("damelo", &options, &requests);
    assert_eq!((report.hits, report.fact("pages_lost")), (5, 1));
    requests.truncate(11);
    requests.push(read(1, 8_000));
    assert_eq!(run_named("damelo", &options, &requests).hits, 0, "1 is gone");
}

/// A checkpoint every 60 s: one at the first use of the group, for one object (24 bytes, a sector);
/// none while 21 more come; one at 60 s for 22 objects (528 bytes, two sectors); one more at 120 s,
/// not before.
#[test]
fn damelo_writes_checkpoints_when_they_are_due() {
    let mut options = damelo_of_four_pages();
    options.damelo.checkpoint_s = 60;
    let second = |s: u64, request| at(s * 1_000_000, request);
    let mut requests = vec![second(0, read(1, 100))];
    requests.extend((2..=22).map(|key| second(1, read(key, 100))));
    requests.push(at(59_999_999, read(1, 100)));
    let tables = |requests: &[Request]| {
        let report = run_named("damelo", &options, requests);
        (report.io.requests(W, Kind::Table), report.io.bytes(W, Kind::Table))
    };
    assert_eq!(tables(&requests), (1, 512));
    requests.extend([second(60, read(1, 100)), at(119_999_999, read(1, 100))]);
    assert_eq!(tables(&requests), (2, 512 + 1_024));
    requests.push(second(120, read(1, 100)));
    assert_eq!(tables(&requests), (3, 512 + 1_024 + 1_024));
}

/// Each file is at least 111 bytes, and 24 in the table that is written at the end: of 40,000 files
/// in 4 MiB the tables would be a quarter of the disk, and not a hundredth. Those of the least used
/// clusters go, and all that is saved ends where the disk does.
#[test]
fn ucfs_keeps_no_more_files_than_its_tables_have_room_for() {
    let options = ucfs_small(4 << 20);
    let requests: Vec<Request> = (0..40_000).map(|key| read(key, 20)).collect();
    let inputs =
        DesignInputs { options: &options, requests: (&requests).into(), drive: &config().drive };
    let mut design = (find("ucfs").expect("registered").make)(&inputs);
    let (names, mut actions) = (Catalogue::new(), Vec::new());
    requests.iter().for_each(|request| {
        design.request(request, &names, &mut actions);
    });
    design.finish(&mut actions);
    let end = |action: &Action| match action {
        Action::Block { offset, bytes, .. } => offset + u64::from(*bytes),
        other => panic!("{other:?}"),
    };
    let last = actions.iter().map(end).max().expect("some");
    assert!(last <= options.cache_bytes, "{last}");
}

/// A cache of 16 cacheblocks and a byte: an object of as many bytes would need 17. Nothing goes for
/// what cannot be kept.
#[test]
fn hades_refuses_what_needs_more_cacheblocks_than_there_are() {
    let options = DesignOptions { cache_bytes: (64 << 10) + 1, ..DesignOptions::default() };
    let requests = [read(1, 4_096), read(2, (64 << 10) + 1), read(1, 4_096)];
    let report = run_named("hades", &options, &requests);
    assert_eq!((report.hits, report.refused), (1, 1));
    assert_eq!(report.fact("evicted_local"), 0);
}

/// One page, C_max 2. 1 and 2 (4 KB each) fill it; 1 goes, and its segment is cut for 3 and 4 (2 KB
/// each). 2 was asked for twice, as was no other of its class: for 5 (4 KB) it is replaced,
/// wherever the pointer stands, since what lay before it in the class is no object any more.
#[test]
fn mmap_fbc_replaces_an_object_where_one_of_its_class_is_left() {
    let options =
        DesignOptions { cache_bytes: 8 << 10, fbc_count_max: 2, ..DesignOptions::default() };
    let requests = [
        read(1, 4_000),
        read(2, 4_000),
        read(2, 4_000),
        delete(1),
        read(3, 2_000),
        read(4, 2_000),
        read(5, 4_000),
        read(5, 4_000),
    ];
    let report = run_named("mmap-fbc", &options, &requests);
    assert_eq!((report.hits, report.refused), (2, 0));
}

/// The memory of `ucfs_writes_and_reads_clusters_of_files`: from the 11th file of 4,000 bytes (with
/// its header) on, three leave for a cluster of 16 KB with every third file.
fn ucfs_small(cache_bytes: u64) -> DesignOptions {
    DesignOptions {
        page_bytes: 16 << 10,
        memory_bytes: 64 << 10,
        cache_bytes,
        ..DesignOptions::default()
    }
}

/// Of 130 KiB, memory that is saved and tables leave three clusters. They hold files 0 to 8. For 9
/// to 11 the least used goes: all were used once, when they were written, so the first, with 0 to
/// 2; for 12 to 14 that of 3 to 5, not the one that was just written. On disk remain 6 to 14, in
/// memory the last 8.
#[test]
fn ucfs_gives_up_the_oldest_of_clusters_used_equally() {
    let options = ucfs_small(130 << 10);
    let requests: Vec<Request> = (0..23).map(|key| read(key, 3_850)).collect();
    let report = run_named("ucfs", &options, &requests);
    assert_eq!((report.fact("clusters_used"), report.fact("files")), (3, 9 + 8));
    assert_eq!(io(&report), [(W, Kind::Data, 5), (W, Kind::Table, 1)]);
    for key in 0..15 {
        let report = run_named("ucfs", &options, &[&requests[..], &[read(key, 3_850)]].concat());
        assert_eq!(report.hits, u64::from(key >= 6), "file {key}");
        assert_eq!(report.io.requests(R, Kind::Data), u64::from(key >= 6), "file {key}");
    }
}

/// Ten clusters written at 0 s. File 0 is read a microsecond later: its cluster is used, and two
/// more files leave memory, so an eleventh is written. After 115 hours none is older than that; a
/// microsecond later nine are, and 27 files are nowhere else; another, and so are the other two.
#[test]
fn ucfs_drops_what_nobody_used_for_longer_than_115_hours() {
    let options = ucfs_small(64 << 20);
    let mut requests: Vec<Request> = (0..40).map(|key| read(key, 3_850)).collect();
    requests.push(at(1, read(0, 3_850)));
    let facts = |requests: &[Request]| {
        let report = run_named("ucfs", &options, requests);
        (report.fact("clusters_used"), report.fact("files"))
    };
    assert_eq!(facts(&requests), (11, 40));
    let now = |time_us| at(time_us, delete(1_000));
    requests.push(now(115 * HOUR_US));
    assert_eq!(facts(&requests), (11, 40));
    requests.push(now(115 * HOUR_US + 1));
    assert_eq!(facts(&requests), (2, 40 - 27));
    requests.push(now(115 * HOUR_US + 2));
    let (clusters, _) = facts(&requests);
    assert_eq!(clusters, 0);
}

/// A restart before every third request but the first: once in five. In memory are three files of
/// 4,000 bytes; the tables are 24 bytes for each and 6 for each of 4,050 clusters (64 MiB less a
/// hundredth, a cluster, and memory): 36,372 bytes, 72 sectors, which are written and read at once.
/// At the end there are five files: 44,420 bytes, 87 sectors. What was in memory still is.
#[test]
fn ucfs_restores_what_it_saved() {
    let mut options = ucfs_small(64 << 20);
    options.ucfs.restart_every = 3;
    let mut requests: Vec<Request> = (0..5).map(|key| read(key, 3_850)).collect();
    requests.push(read(0, 3_850));
    let report = run_named("ucfs", &options, &requests);
    assert_eq!((report.hits, report.memory_hits, report.fact("restarts")), (1, 1, 1));
    assert_eq!(io(&report), [(R, Kind::Table, 1), (W, Kind::Table, 2)]);
    assert_eq!(report.io.bytes(R, Kind::Table), 72 * 512);
    assert_eq!(report.io.bytes(W, Kind::Table), (72 + 87) * 512);
    options.ucfs.restart_every = 0;
    let report = run_named("ucfs", &options, &requests);
    assert_eq!((report.memory_hits, report.fact("restarts")), (1, 0));
    assert_eq!(io(&report), [(W, Kind::Table, 1)]);
}

/// What is larger than all of the device is refused before anything of it is written: what is
/// written is the small object, twice, and tables. It was there, and is not any more: its contents
/// are others now.
#[test]
fn store_writes_nothing_of_what_it_cannot_hold() {
    let options =
        DesignOptions { cache_bytes: 8 << 20, memory_bytes: 4 << 20, ..DesignOptions::default() };
    let large = read(1, 9 << 20);
    let requests = [read(1, 3_000), large, large, read(1, 3_000), read(1, 3_000)];
    let report = run_named("store", &options, &requests);
    assert_eq!((report.hits, report.refused, report.fact("objects")), (1, 2, 1));
    assert!(report.io.bytes_of(W) < 1 << 20, "{} bytes", report.io.bytes_of(W));
}

/// A proxy file of three cacheblocks; every second host is far away (host 0), the other is not
/// (host 1). 1 (far), 2, 3 fill it. 4 puts out 2, though 1 is older; 1 hits; 2 puts out 3; 5 (far)
/// puts out 4; 6 (far) puts out 2; for 7 (far) none near is left, and the oldest of all goes: 1. 5
/// hits then.
#[test]
fn hades_keeps_what_is_far_away() {
    let options = DesignOptions {
        cache_bytes: 12 << 10,
        hades: HadesOptions { remote_host_every: 2, ..HadesOptions::default() },
        ..DesignOptions::default()
    };
    let far = |key| read(key, 4_096);
    let near = |key| Request { host: 1, ..read(key, 4_096) };
    let mut requests = vec![far(1), near(2), near(3), near(4), far(1), near(2), far(5), far(6)];
    let facts = |requests: &[Request]| {
        let report = run_named("hades", &options, requests);
        (report.hits, report.fact("evicted_local"), report.fact("evicted_remote"))
    };
    assert_eq!(facts(&requests), (1, 4, 0));
    requests.extend([far(7), far(5), far(6)]);
    assert_eq!(facts(&requests), (3, 4, 1));
    requests.push(far(1));
    assert_eq!(facts(&requests), (3, 4, 2), "1 had gone, and 7 goes for it");
}

/// What is far away takes longer to fetch, by as much as is asked for, so that it pays to keep it.
#[test]
fn hades_waits_longer_for_what_is_far_away() {
    let with = |remote_us| {
        let hades = HadesOptions { remote_host_every: 2, remote_us, ..HadesOptions::default() };
        let options = DesignOptions { cache_bytes: 1 << 20, hades, ..DesignOptions::default() };
        let near = Request { host: 1, ..read(2, 4_096) };
        run_named("hades", &options, &[read(1, 4_096), read(1, 4_096), near]).elapsed_ns
    };
    let more_ns = with(70_000) - with(0);
    assert!((50_000_000..=90_000_000).contains(&more_ns), "one of three: {more_ns} ns");
}

/// A proxy file of three cacheblocks, and six files: the fourth puts out the first, and so on. What
/// the first four, the warm-up, put out is not among what is counted.
#[test]
fn facts_are_counted_from_the_end_of_the_warm_up() {
    let options = DesignOptions { cache_bytes: 12 << 10, ..DesignOptions::default() };
    let (config, names) = (config(), Catalogue::new());
    let inputs = DesignInputs { options: &options, requests: Requests::NONE, drive: &config.drive };
    let mut design = (find("hades").expect("registered").make)(&inputs);
    let requests: Vec<Request> = (1..=6).map(|key| read(key, 4_096)).collect();
    let options = RunOptions { warmup: 4, ..RunOptions::default() };
    let mut machine = Machine::new(&config);
    let report = run(&mut *design, &mut machine, &requests, &names, options).expect("fits");
    assert_eq!((report.fact("evicted_local"), report.fact_counted("evicted_local")), (3, 2));
}
