//! Every design on small hand-made traces with exact counts, and on random ones against an auditor.

use super::*;
use crate::disk::{Direction, Drive};
use crate::machine::{Kind, Machine, MachineConfig, Report, RunOptions, run};
use crate::request::Op;

mod audit;
mod bodiless;
mod full;
mod hints;
mod sizes;
mod streamed;

fn read(key: u64, size_bytes: u64) -> Request {
    Request { time_us: 0, client: 0, key, size_bytes, host: 0, op: Op::Read }
}

fn delete(key: u64) -> Request {
    Request { op: Op::Delete, ..read(key, 0) }
}

/// A cache of 16 MiB, of which no design has parts that it would have no room for.
fn small() -> DesignOptions {
    DesignOptions {
        cache_bytes: 16 << 20,
        memory_bytes: 512 << 10,
        page_bytes: 32 << 10,
        ..DesignOptions::default()
    }
}

fn config() -> MachineConfig {
    MachineConfig::new(Drive::named("atlas-10k").expect("known"))
}

fn run_named(name: &str, options: &DesignOptions, requests: &[Request]) -> Report {
    let names = Catalogue::new();
    let inputs = DesignInputs { options, requests: requests.into(), drive: &config().drive };
    let mut design = (find(name).expect("registered").make)(&inputs);
    let mut machine = Machine::new(&config());
    run(&mut *design, &mut machine, requests, &names, RunOptions::default()).expect("fits")
}

/// Requests as (direction, kind, count) of those that are not zero.
fn io(report: &Report) -> Vec<(Direction, Kind, u64)> {
    let mut found = Vec::new();
    for direction in [Direction::Read, Direction::Write] {
        for kind in crate::machine::KINDS {
            let count = report.io.requests(direction, kind);
            if count > 0 {
                found.push((direction, kind, count));
            }
        }
    }
    found
}

use Direction::{Read as R, Write as W};

/// One trace for most: object 1 of 3,000 bytes missed, hit, object 2 of 20,000 bytes missed, hit,
/// object 1 deleted. Everything fits in memory, so no data is read.
fn small_trace() -> Vec<Request> {
    vec![read(1, 3_000), read(1, 3_000), read(2, 20_000), read(2, 20_000), delete(1)]
}

/// Directories are made before counting, and are in memory. Creates: file 0 goes to directory 0/0,
/// file 1 to 1/0. Each create writes inode and directory and waits; the remove writes both again: 3
/// and 3. The two directories are in groups of their own, and files go where their directory is, so
/// inodes lie in two blocks: that of the removed file has just been written, the other is written
/// late: 1 more. Maps of the two groups: 2. Data: 20,000 bytes are 2 blocks, in one request at
/// once, and a tail of 4 fragments, written late; 3,000 bytes are a tail that is deleted before it
/// is written.
#[test]
fn squid_on_the_small_trace() {
    let report = run_named("squid", &DesignOptions::default(), &small_trace());
    assert_eq!((report.hits, report.memory_hits), (2, 2));
    let expected = [
        (W, Kind::Data, 2),
        (W, Kind::Inode, 4),
        (W, Kind::Directory, 3),
        (W, Kind::Allocation, 2),
    ];
    assert_eq!(io(&report), expected);
    assert_eq!(report.io.bytes(W, Kind::Data), 20 << 10);
    assert_eq!(report.fact("objects"), 1);
}

/// SquidM: object 1 is a segment of 4 KB at 0, on page 0; object 2 a file. The page is written at
/// the end (it is dirty; deleting changes no page). No page is read: it was never on disk. The
/// file's create writes inode and directory and waits; its inode, with size and time of access, and
/// the group's map go late; its data is two blocks at once and a tail.
#[test]
fn squidm_and_its_kin_on_the_small_trace() {
    for name in ["squidm", "squidml", "squidmla"] {
        let report = run_named(name, &DesignOptions::default(), &small_trace());
        assert_eq!((report.hits, report.memory_hits), (2, 2), "{name}");
        let expected = [
            (W, Kind::Data, 2),
            (W, Kind::Inode, 2),
            (W, Kind::Directory, 1),
            (W, Kind::Allocation, 1),
            (W, Kind::Page, 1),
        ];
        assert_eq!(io(&report), expected, "{name}");
        assert_eq!(report.io.bytes(W, Kind::Data), 20 << 10, "{name}");
        assert_eq!(report.fact("mapped_bytes"), if name == "squidmla" { 8_192 } else { 4_096 });
    }
}

/// SquidL puts two objects of a host into one directory, Squid into two: after the caches are
/// emptied, reading both costs Squid two directories' lookups more (block of 1st level, inode of
/// 2nd, block of 2nd; the first level's inodes and root are shared or not by the numbers).
#[test]
fn squidl_keeps_a_host_together() {
    let requests: Vec<Request> =
        (0..40).map(|i| read(i % 20, 3_000)).chain([read(0, 3_000)]).collect();
    let run_cold = |name: &str| {
        let inputs = DesignInputs {
            options: &DesignOptions::default(),
            requests: (&requests).into(),
            drive: &config().drive,
        };
        let mut design = (find(name).expect("registered").make)(&inputs);
        let mut machine = Machine::new(&config());
        let options = RunOptions { warmup: 20, cold_start: true, ..RunOptions::default() };
        let names = Catalogue::new();
        run(&mut *design, &mut machine, &requests, &names, options).expect("fits")
    };
    let (squid, squidl) = (run_cold("squid"), run_cold("squidl"));
    // One host: root's block, the first level's inode and block, the second level's block: 3
    // blocks.
    assert_eq!(squidl.io.requests(R, Kind::Directory), 3);
    // 20 files in 16 first-level directories and 20 second-level ones: root's block, 16 and 20.
    assert_eq!(squid.io.requests(R, Kind::Directory), 1 + 16 + 20);
    assert!(squid.io.requests(R, Kind::Inode) > squidl.io.requests(R, Kind::Inode));
}

/// SquidL puts both objects of the host into one directory, so that inodes, directory entries and
/// the map are each in one block: two creates and a remove write inode and directory and wait, and
/// the remove, being last, leaves the inodes clean. The map is written late.
#[test]
fn squidl_on_the_small_trace() {
    let report = run_named("squidl", &DesignOptions::default(), &small_trace());
    assert_eq!((report.hits, report.memory_hits), (2, 2));
    let expected = [
        (W, Kind::Data, 2),
        (W, Kind::Inode, 3),
        (W, Kind::Directory, 3),
        (W, Kind::Allocation, 1),
    ];
    assert_eq!(io(&report), expected);
    assert_eq!(report.io.bytes(W, Kind::Data), 20 << 10);
}

/// CERN makes a directory for the host, and for each miss a lock (one fragment, gone before it is
/// written), the object, and the metadata (made once, then overwritten).
///
/// Nothing was made before, so the map of group 0 and its block of inodes are read, once. Waited
/// for: makes of the directory, two locks, two objects and the metadata, removes of two locks and
/// an object: 9 inodes and 9 directories. Late: the block of inodes, which all are in group 0,
/// changed by the last write of metadata, and the map. Data: of 20,000 bytes 2 blocks at once;
/// late, the tail of 4 fragments and the metadata's 4, which were made a lock and an object earlier
/// and lie in another block. The 3,000 bytes are deleted before they are written.
#[test]
fn cern_on_the_small_trace() {
    let report = run_named("cern", &DesignOptions::default(), &small_trace());
    assert_eq!((report.hits, report.memory_hits), (2, 2));
    let expected = [
        (R, Kind::Inode, 1),
        (R, Kind::Allocation, 1),
        (W, Kind::Data, 1 + 2),
        (W, Kind::Inode, 9 + 1),
        (W, Kind::Directory, 9),
        (W, Kind::Allocation, 1),
    ];
    assert_eq!(io(&report), expected);
    assert_eq!(report.io.bytes(W, Kind::Data), (20 << 10) + (4 << 10));
    assert_eq!(report.io.bytes(R, Kind::Inode), 8 << 10);
    assert_eq!((report.fact("objects"), report.fact("directories")), (1, 1));
}

/// Numbers and keys are in no directory: all lie in one, and `host-path` has one group.
#[test]
fn objects_without_urls_are_of_one_directory() {
    let requests = [0, 1, 2].map(|key| read(key, 5_000));
    for objects in [["1001", "1002", "1003"], ["user:1", "user:2", "user:3"]] {
        let mut names = Catalogue::new();
        names.push_host(b"");
        for name in objects {
            names.push_url(name.as_bytes());
        }
        let options = DesignOptions::default();
        let inputs = DesignInputs {
            options: &options,
            requests: (&requests).into(),
            drive: &config().drive,
        };
        let mut cern = (find("cern").expect("registered").make)(&inputs);
        let mut machine = Machine::new(&config());
        let run = run(&mut *cern, &mut machine, &requests, &names, RunOptions::default());
        assert_eq!(run.expect("fits").fact("directories"), 1);
        let mut grouper = Grouper::new(GroupRule::HostPath, (&requests).into());
        let groups = requests.map(|request| grouper.group(&request, &names));
        assert_eq!(groups, [groups[0]; 3]);
    }
}

/// A file of two pages, LRU: 8 KB objects 1, 2 fill it; 1 is hit; 3 replaces 2; 2 is missed and
/// replaces 1. Nothing is read: whole pages are overwritten. Two dirty pages are written at the
/// end.
#[test]
fn mmap_lru_replaces_the_least_recently_used() {
    let options = DesignOptions { cache_bytes: 16 << 10, ..DesignOptions::default() };
    let keys = [1, 2, 1, 3, 1, 2];
    let requests: Vec<Request> = keys.iter().map(|&k| read(k, 8_192)).collect();
    let report = run_named("mmap-lru", &options, &requests);
    assert_eq!(report.hits, 2);
    assert_eq!(io(&report), [(W, Kind::Page, 1)], "both pages in one request");
    assert_eq!(report.io.bytes(W, Kind::Page), 16 << 10);
}

/// FBC with C_max 2: 1 has two references when 3 comes, so it is passed over and 2 is replaced; the
/// pointer wraps, passes 1 again, and 2 replaces 3.
#[test]
fn mmap_fbc_passes_over_the_popular() {
    let options =
        DesignOptions { cache_bytes: 16 << 10, fbc_count_max: 2, ..DesignOptions::default() };
    let keys = [1, 2, 1, 3, 1, 2, 1];
    let requests: Vec<Request> = keys.iter().map(|&k| read(k, 8_192)).collect();
    let report = run_named("mmap-fbc", &options, &requests);
    assert_eq!(report.hits, 3);
    assert_eq!(report.fact("skipped"), 2);
    // Whole pages are overwritten, never read; both are dirty at the end, side by side.
    assert_eq!(io(&report), [(W, Kind::Page, 1)]);
    assert_eq!(report.io.bytes(W, Kind::Page), 16 << 10);
}

/// FBC with A_max 2 and C_max 2, two segments. The third reference of 1 makes the counts 3 and 2,
/// more than 2 on average: they become 2 and 1, rounded up. So 3 passes over 1 and replaces 2;
/// rounded down, or never aged, it would have replaced 1. Then 1 is hit (3 and 1, an average of
/// just 2: no aging), and 2 passes over 1 and replaces 3.
#[test]
fn mmap_fbc_ages_counts_rounding_up() {
    let options = DesignOptions {
        cache_bytes: 16 << 10,
        fbc_count_max: 2,
        fbc_average_max: 2,
        ..DesignOptions::default()
    };
    let keys = [1, 2, 2, 1, 1, 3, 1, 2];
    let requests: Vec<Request> = keys.iter().map(|&k| read(k, 8_192)).collect();
    let report = run_named("mmap-fbc", &options, &requests);
    assert_eq!((report.hits, report.fact("skipped")), (4, 2));
}

/// Future: of 1 (3 references), 2 (2), 3 (2) and 4 (1), a file of one page takes 1; 3's life (the
/// last two requests) does not overlap 1's, so it shares the page; 2's does; 4 is not kept.
#[test]
fn mmap_future_shares_what_does_not_overlap() {
    let options = DesignOptions { cache_bytes: 8 << 10, ..DesignOptions::default() };
    let keys = [1, 2, 1, 2, 4, 1, 3, 3];
    let requests: Vec<Request> = keys.iter().map(|&k| read(k, 8_192)).collect();
    let report = run_named("mmap-future", &options, &requests);
    assert_eq!(report.hits, 3, "1 twice, 3 once");
    assert_eq!(report.fact("placed"), 2);
    assert_eq!(io(&report), [(W, Kind::Page, 1)], "the one page, at the end");
    assert_eq!(report.io.bytes(W, Kind::Page), 8 << 10);
}

/// Sizes change within 8 KB and beyond: what is known ahead must not make it worse than knowing
/// nothing, where there is room for all. 1 is hit when its size is that of the time before, twice;
/// 2 was large in between, and at the end.
#[test]
fn mmap_future_keeps_what_changes() {
    let sizes = [100, 100, 5_000, 5_000, 100, 700, 9_000, 700, 700, 9_000];
    let keys = [1, 1, 1, 1, 1, 2, 2, 2, 2, 2];
    let requests: Vec<Request> = keys.iter().zip(sizes).map(|(&k, s)| read(k, s)).collect();
    for name in ["mmap-future", "mmap-infinite", "mmap-lru"] {
        let report = run_named(name, &DesignOptions::default(), &requests);
        assert_eq!((report.hits, report.refused), (3, 2), "{name}");
    }
}

/// Without a limit everything but large objects is kept: one segment of 512 bytes, whose page is
/// written at the end.
#[test]
fn mmap_infinite_keeps_small_objects() {
    let requests = [read(1, 9_000), read(1, 9_000), read(2, 100), read(2, 100)];
    let report = run_named("mmap-infinite", &DesignOptions::default(), &requests);
    assert_eq!((report.hits, report.refused), (1, 2));
    assert_eq!(io(&report), [(W, Kind::Page, 1)]);
    assert_eq!(report.io.bytes(W, Kind::Page), 8 << 10);
}

/// CFS, blocks of 1 KB: object 1 takes blocks 0 to 2, object 2 blocks 3 to 22. Deleting costs
/// nothing. At the end 23 dirty blocks go in one request (the cache does not know that 3 are dead).
#[test]
fn cfs_on_the_small_trace() {
    let report = run_named("cfs", &DesignOptions::default(), &small_trace());
    assert_eq!((report.hits, report.memory_hits), (2, 2));
    assert_eq!(io(&report), [(W, Kind::Data, 1)]);
    assert_eq!(report.io.bytes(W, Kind::Data), 23 << 10);
}

/// Raw, compacting: 1 (3 blocks), 2 (20 blocks), delete 1, read 2: of the 64 blocks on each side
/// more than half are free, but no 20 free blocks lie before it; 3 (3 blocks) is stored at 0, is
/// deleted, and a read of an object at 23 moves it to 0.
#[test]
fn cfs_compacts_on_read() {
    let mut design = Cfs::design(CfsOptions {
        buffered: false,
        compact: true,
        device_bytes: 1 << 20,
        ..CfsOptions::default()
    });
    let requests = [
        read(1, 3_000),
        read(2, 20_000),
        delete(1),
        read(2, 20_000),
        read(3, 3_000),
        read(4, 3_000),
        delete(3),
        read(4, 3_000),
    ];
    let mut machine = Machine::new(&config());
    let names = Catalogue::new();
    let report =
        run(&mut *design, &mut machine, &requests, &names, RunOptions::default()).expect("fits");
    // Four creates, one move; two reads.
    assert_eq!(io(&report), [(R, Kind::Data, 2), (W, Kind::Data, 5)]);
    assert_eq!(report.fact("moved"), 1);
}

/// Dámelo, one group, pages of 16 KB, a pool of two: objects of 8,000 bytes two to a page. 1 to 6
/// fill three pages; page 0 is put out when page 2 is opened (one write). Reading 1 puts page 1 out
/// (second write) and reads page 0; reading 2 is in memory; at the end page 2 is written, page 0 is
/// clean. Deletes of 1 and 2 cost nothing.
#[test]
fn damelo_moves_pages() {
    let options = DesignOptions {
        page_bytes: 16 << 10,
        memory_bytes: 32 << 10,
        grouping: GroupRule::None,
        ..DesignOptions::default()
    };
    let mut requests: Vec<Request> = (1..=6).map(|k| read(k, 8_000)).collect();
    requests.extend([read(1, 8_000), read(2, 8_000), delete(1), delete(2)]);
    let report = run_named("damelo", &options, &requests);
    assert_eq!((report.hits, report.memory_hits), (2, 1));
    assert_eq!(io(&report), [(R, Kind::Data, 1), (W, Kind::Data, 3)]);
    assert_eq!(report.io.bytes(W, Kind::Data), 3 * (16 << 10));
}

/// Memory for two pages, which hold a group each.
fn two_groups(grouping: GroupRule) -> DameloOptions {
    DameloOptions {
        page_bytes: 16 << 10,
        pool_bytes: 32 << 10,
        groups: 2,
        grouping,
        ..DameloOptions::default()
    }
}

/// Of two groups the second is hated: its page leaves although it was used last.
#[test]
fn damelo_lets_hated_groups_go_first() {
    let options = two_groups(GroupRule::SizeClass);
    let mut design = Damelo::new(options, Requests::NONE, Changes::Replace);
    design.hate(1);
    // 8,000 bytes: class 13, group 1; 5,000 bytes: 13 as well; 3,000: class 12, group 0.
    let requests = [read(1, 3_000), read(2, 8_000), read(3, 8_000), read(4, 8_000), read(1, 3_000)];
    let mut machine = Machine::new(&config());
    let names = Catalogue::new();
    let report =
        run(&mut design, &mut machine, &requests, &names, RunOptions::default()).expect("fits");
    // Page of 2 and 3 is put out for that of 4; the loved page stays and is hit.
    assert_eq!((report.hits, report.memory_hits), (1, 1));
    assert_eq!(report.fact("page_reads"), 0);
}

/// Figure 2 with five groups: 1 in the middle, 2 above, 3 below, and so on.
#[test]
fn damelo_places_groups_from_the_centre_out() {
    let options = DameloOptions {
        placement: Placement::CentreOut,
        groups: 5,
        page_bytes: 16 << 10,
        disk_bytes: 5 * 10 * (16 << 10),
        ..DameloOptions::default()
    };
    let damelo = Damelo::new(options, Requests::NONE, Changes::Replace);
    let regions: Vec<u64> = (0..5).map(|g| damelo.region_for_tests(g)).collect();
    assert_eq!(regions, [2, 3, 1, 4, 0]);
}

/// Each group has a place of its own, for even numbers of groups as for odd ones.
#[test]
fn damelo_places_no_two_groups_together() {
    for placement in [Placement::CentreOut, Placement::InOrder] {
        for groups in 1..=33 {
            let options = DameloOptions {
                placement,
                groups,
                page_bytes: 16 << 10,
                disk_bytes: u64::from(groups) * 3 * (16 << 10),
                ..DameloOptions::default()
            };
            let damelo = Damelo::new(options, Requests::NONE, Changes::Replace);
            let mut regions: Vec<u64> = (0..groups).map(|g| damelo.region_for_tests(g)).collect();
            regions.sort_unstable();
            assert!(regions.into_iter().eq(0..u64::from(groups)), "{placement:?}, {groups} groups");
        }
    }
}

/// UCFS, 64 KB of memory: hot 19,660 bytes, medium 26,214, cold 9,831 and 9,831; files of 4,000
/// bytes with their headers. Medium holds 6, each half of cold 2; the 11th file makes the older
/// half three, which leave in one cluster of 16 KB (a fourth would fit, but is not in that half),
/// and so does every third file from then on: 10 clusters for 40 files.
///
/// Asking for files 0 to 3 then: 0 is read with 1 and 2, which are hits in memory; 3 is read with 4
/// and 5. Two reads, four files prefetched, two of them hit. The first read pushes two more files
/// into the older half, where two are: four leave in one cluster.
#[test]
fn ucfs_writes_and_reads_clusters_of_files() {
    let options = DesignOptions {
        page_bytes: 16 << 10,
        memory_bytes: 64 << 10,
        cache_bytes: 64 << 20,
        ..DesignOptions::default()
    };
    let mut requests: Vec<Request> = (0..40).map(|k| read(k, 3_850)).collect();
    let report = run_named("ucfs", &options, &requests);
    assert_eq!(report.io.requests(W, Kind::Data), 10);
    assert_eq!(report.io.bytes(W, Kind::Data), 10 * (16 << 10));
    assert_eq!(report.io.requests(R, Kind::Data), 0);
    requests.extend((0..4).map(|k| read(k, 3_850)));
    let report = run_named("ucfs", &options, &requests);
    assert_eq!((report.hits, report.memory_hits), (4, 2));
    assert_eq!(report.io.requests(R, Kind::Data), 2);
    assert_eq!(report.io.requests(W, Kind::Data), 11);
    assert_eq!((report.fact("prefetched"), report.fact("prefetch_hits")), (4, 2));
}

/// A file of 600 KB is three chunks (256, 256 and 88 KB): three files for AFS. Each is made with an
/// inode and a directory entry that are waited for, its full blocks of 8 KB go to disk at once in
/// requests of 64 KB: 4, 4 and 2. The first two have more than 12 blocks, hence an indirect block
/// each, behind their data and so not side by side, written late as is the map: 3. So are the
/// inodes, which lie in one block, and what was written into the file of items, made before: its
/// first block.
#[test]
fn afs_makes_a_file_for_each_chunk() {
    let options = DesignOptions { cache_bytes: 64 << 20, ..DesignOptions::default() };
    let report = run_named("afs", &options, &[read(1, 600 << 10), read(1, 600 << 10)]);
    assert_eq!((report.hits, report.memory_hits, report.fact("chunks")), (1, 1, 3));
    let expected = [
        (W, Kind::Data, 10 + 1),
        (W, Kind::Inode, 3 + 1),
        (W, Kind::Directory, 3),
        (W, Kind::Allocation, 3),
    ];
    assert_eq!(io(&report), expected);
    assert_eq!(report.io.bytes(W, Kind::Data), (600 + 8) << 10);
}

/// The same file is one run of Hades, 75 blocks at the start of a proxy file of 64 MB that was made
/// before: no name, inode or map is needed, data goes to disk at once in requests of 64 KB (4, 4
/// and 2). Late: the proxy file's inode. Its indirect blocks are in memory and stay as they are.
#[test]
fn hades_writes_a_run_into_a_proxy_file() {
    let options = DesignOptions { cache_bytes: 64 << 20, ..DesignOptions::default() };
    let report = run_named("hades", &options, &[read(1, 600 << 10), read(1, 600 << 10)]);
    assert_eq!((report.hits, report.memory_hits, report.fact("runs")), (1, 1, 1));
    let expected = [(W, Kind::Data, 10), (W, Kind::Inode, 1)];
    assert_eq!(io(&report), expected);
    assert_eq!(report.io.bytes(W, Kind::Data), 600 << 10);
}

/// The shipped engine: object 1 (3,000 bytes) and object 2 (20,000 bytes) wait in memory, are hit
/// there, and go to the device on shutdown; the delete is in both copies of the journal, which
/// lies in mapped memory: two blocks of the system's buffers, written at the end. A new segment's
/// life is noted in the table of lives (4 KiB) and its footer cleared (4 KiB), then what is used of
/// the page goes there (20 KiB). Since a
/// delete is in the journal, a sync ends with a checkpoint: its old head is cleared (4 KiB), the
/// index (128 KiB), the segments' table (4 KiB) and the new head (4 KiB) are written.
#[test]
fn store_on_the_small_trace() {
    let options = DesignOptions { cache_bytes: 16 << 20, ..DesignOptions::default() };
    let report = run_named("store", &options, &small_trace());
    assert_eq!((report.hits, report.memory_hits), (2, 2));
    assert_eq!(report.io.requests_of(R), 0);
    assert_eq!((report.io.requests(W, Kind::Table), report.io.bytes(W, Kind::Table)), (2, 2 << 10));
    assert_eq!(
        (report.io.requests(W, Kind::Data), report.io.bytes(W, Kind::Data)),
        (3 + 4, (28 + 140) << 10)
    );
    assert_eq!(report.fact("objects"), 1);
}

/// Objects larger than half a page are extents, at multiples of 4 KiB: 100,000 bytes and the
/// record's head are 100 KiB on disk, of which ten fit in a write of 1 MiB. The segment's life
/// in the table, its footer and its lead page come first.
#[test]
fn store_writes_extents_together() {
    let options = DesignOptions { cache_bytes: 64 << 20, ..DesignOptions::default() };
    let requests: Vec<Request> = (0..10).map(|key| read(key, 100_000)).collect();
    let report = run_named("store", &options, &requests);
    assert_eq!(report.fact("extents_written"), 10);
    assert_eq!(report.io.requests(W, Kind::Data), 3 + 1);
    assert_eq!(report.io.bytes(W, Kind::Data), 3 * (4 << 10) + 10 * (100 << 10));
}

/// Objects that are kept when their segment is reused are read together where they lie together.
#[test]
fn store_keeps_objects_with_few_reads() {
    let options = DesignOptions {
        cache_bytes: 32 << 20,
        memory_bytes: 4 << 20,
        store: StoreOptions { segment_bytes: Some(4 << 20), ..StoreOptions::default() },
        ..DesignOptions::default()
    };
    // A tenth is asked for again and again, the rest once.
    let popular = |n: u64| read(n / 2 % 600, 8_000);
    let requests: Vec<Request> =
        (0..12_000).map(|n| if n % 2 == 0 { popular(n) } else { read(1_000 + n, 8_000) }).collect();
    let report = run_named("store", &options, &requests);
    let (kept, reads) = (report.fact("reinserted_objects"), report.fact("maintenance_reads"));
    let segments = report.fact("segments_reused");
    assert!(kept > 20 * segments && segments > 5, "{kept} kept of {segments} segments");
    assert!(reads < kept / 4, "{reads} reads for {kept} objects");
}

/// Objects of twice the memory: what is not in memory any more is read from the device.
#[test]
fn store_reads_back_what_left_memory() {
    let options =
        DesignOptions { cache_bytes: 64 << 20, memory_bytes: 4 << 20, ..DesignOptions::default() };
    let once: Vec<Request> = (0..1_000).map(|key| read(key, 8_000)).collect();
    let requests: Vec<Request> = once.iter().chain(&once).copied().collect();
    let report = run_named("store", &options, &requests);
    assert_eq!(report.hits, 1_000);
    assert!(report.memory_hits < 1_000, "4 MiB do not hold 8 MB");
    assert!(report.io.requests(R, Kind::Data) >= report.hits - report.memory_hits);
}

/// With too little room a design says so, or keeps nothing; it never gives up in the middle.
#[test]
fn every_size_is_refused_or_runs() {
    for entry in &REGISTRY {
        for cache_bytes in [0, 1 << 10, 100 << 10, 8 << 20] {
            for memory_bytes in [0, 100 << 10, 128 << 20] {
                let base = DesignOptions { cache_bytes, memory_bytes, ..DesignOptions::default() };
                let Ok(options) = DesignSpec::plain(entry).options(&base) else { continue };
                let report = run_named(entry.name, &options, &small_trace());
                assert_eq!(report.requests, 5, "{} with {cache_bytes}", entry.name);
            }
        }
        let enough = DesignOptions { cache_bytes: 1 << 30, ..DesignOptions::default() };
        assert!(DesignSpec::plain(entry).options(&enough).is_ok(), "{}", entry.name);
    }
}

/// The same for every design with every parameter, and every two of them, at their least and
/// greatest.
#[test]
fn every_extreme_of_parameters_is_refused_or_runs() {
    let requests: Vec<Request> =
        small_trace().into_iter().chain((3..9).map(|key| read(key, key * 250_000))).collect();
    for entry in &REGISTRY {
        let values = |p: &Parameter| {
            let words = p.values.extremes().into_iter().map(|value| format!("{}={value}", p.name));
            words.map(|word| word.to_lowercase()).collect::<Vec<_>>()
        };
        let all: Vec<Vec<String>> = entry.parameters.iter().map(values).collect();
        let mut names = vec![entry.name.to_owned()];
        for (at, some) in all.iter().enumerate() {
            for one in some {
                names.push(format!("{}:{one}", entry.name));
                let others = all[at + 1..].iter().flatten();
                names.extend(others.map(|other| format!("{}:{one}:{other}", entry.name)));
            }
        }
        let pages = if entry.has_pages { &[16 << 10, 1 << 20][..] } else { &[64 << 10] };
        for name in names {
            let spec = DesignSpec::parse(&name).expect("within the ranges that are listed");
            for &page_bytes in pages {
                for cache_bytes in [1_u64 << 20, 9 << 20, 200 << 20] {
                    let base = DesignOptions {
                        cache_bytes,
                        page_bytes,
                        memory_bytes: 16 << 20,
                        ..DesignOptions::default()
                    };
                    let Ok(options) = spec.options(&base) else { continue };
                    let report = run_named(entry.name, &options, &requests);
                    assert_eq!(report.requests, 11, "{name} with {cache_bytes}");
                }
            }
        }
    }
}

/// Beyond the ends that are listed nothing is taken.
#[test]
fn ranges_of_parameters_are_what_the_lists_say() {
    for parameter in REGISTRY.iter().flat_map(|entry| entry.parameters) {
        let set = |value: &str| (parameter.set)(&mut DesignOptions::default(), value);
        for value in parameter.values.extremes() {
            assert_eq!(set(&value.to_lowercase()), Ok(()), "{}", parameter.name);
        }
        let Values::Range(least, most) = parameter.values else { continue };
        let size = |text: &str| text.parse::<::damelo::ByteSize>().map(|size| size.bytes());
        let bytes =
            |text: &str| text.parse::<u64>().unwrap_or_else(|_| size(text).expect("a size"));
        let beyond = [bytes(least) / 2, bytes(most) * 2];
        for value in beyond.into_iter().filter(|value| *value != bytes(least)) {
            assert!(set(&format!("{value}")).is_err(), "{}={value}", parameter.name);
            assert!(set(&format!("{value}b")).is_err(), "{}={value}b", parameter.name);
        }
    }
}

#[test]
fn a_chunk_of_hades_has_at_least_a_cacheblock() {
    let spec = DesignSpec::parse("hades:chunk=4kib:cacheblock=8kib").expect("each is a size");
    let why = spec.options(&DesignOptions::default()).expect_err("larger").to_string();
    assert!(why.contains("cacheblock=8KiB, chunk=4KiB"), "{why}");
}

/// The hint goes through the trait that all designs are used by, whatever the group's number.
#[test]
fn every_group_of_damelo_can_be_loved() {
    let options = two_groups(GroupRule::Given);
    let page = |key, host| Request { host, ..read(key, 16_000) };
    let page_reads = |loved: Option<u64>| {
        let mut damelo = Damelo::new(options, Requests::NONE, Changes::Replace);
        let design: &mut dyn Design = &mut damelo;
        // Two groups: 2 is the first of them, as for requests.
        [2, 1].into_iter().for_each(|group| design.hate(group));
        loved.into_iter().for_each(|group| design.love(group));
        let requests = [page(2, 0), page(1, 1), page(3, 0), page(1, 1)];
        let mut machine = Machine::new(&config());
        let names = Catalogue::new();
        let report =
            run(design, &mut machine, &requests, &names, RunOptions::default()).expect("fits");
        report.fact("page_reads")
    };
    assert_eq!(page_reads(None), 1, "of hated pages the last used leaves first");
    assert_eq!(page_reads(Some(1)), 0, "the loved one stays");
    assert_eq!(page_reads(Some(3)), 0, "two groups: 3 is the other one, as for requests");
}

/// Small files lie side by side in the map of chunks, and those of a changed file are not mixed up.
#[test]
fn afs_numbers_chunks_one_file_after_the_other() {
    let options = DesignOptions { cache_bytes: 64 << 20, ..DesignOptions::default() };
    let sizes = [(1, 100 << 10), (2, 600 << 10), (1, 100 << 10), (1, 300 << 10), (1, 300 << 10)];
    let requests: Vec<Request> = sizes.map(|(key, bytes)| read(key, bytes)).to_vec();
    let report = run_named("afs", &options, &[&requests[..], &[delete(1), requests[4]]].concat());
    assert_eq!((report.hits, report.fact("chunks")), (2, 2 + 3));
    // One chunk, three, two more since two do not fit in one's place.
    assert_eq!(report.fact("chunk_numbers"), 1 + 3 + 2);
    assert_eq!(report.fact("held_bytes"), (300 + 600) << 10);
}
