//! Objects of sizes that no cache has room for: -1 as 64 bits without a sign, and half of that.

use super::*;

const HUGE: [u64; 3] = [1 << 40, 1 << 63, u64::MAX];

/// They are refused, what was stored of them goes, and nothing else changes.
#[test]
fn what_is_larger_than_any_cache_is_refused_by_every_design() {
    use Outcome::{Refused, Stored};
    let options = small();
    for (entry, huge) in REGISTRY.iter().flat_map(|entry| HUGE.map(|huge| (entry, huge))) {
        let write = Request { op: Op::Write, ..read(1, huge) };
        let small = read(1, 5_000);
        let requests = [small, read(1, huge), small, write, read(2, huge), small];
        let inputs = DesignInputs {
            options: &options,
            requests: (&requests).into(),
            drive: &config().drive,
        };
        let mut design = (entry.make)(&inputs);
        let (mut out, names) = (Vec::new(), Catalogue::new());
        design.prepare(&mut out);
        let outcomes = requests.map(|request| design.request(&request, &names, &mut out));
        let expected = [Stored, Refused, Stored, Refused, Refused, Stored];
        assert_eq!(outcomes, expected, "{} of {huge}", entry.name);
    }
}

/// A run over them ends, also where a changed size counts for nothing and the huge one is a hit.
#[test]
fn a_run_over_them_counts_as_far_as_numbers_go() {
    let requests = [read(1, 5_000), read(1, u64::MAX), read(1, u64::MAX), read(2, u64::MAX)];
    for (entry, changes) in REGISTRY
        .iter()
        .flat_map(|entry| [Changes::Replace, Changes::Ignore].map(|changes| (entry, changes)))
    {
        let options = DesignOptions { changes, ..small() };
        let report = run_named(entry.name, &options, &requests);
        assert_eq!((report.requests, report.read_bytes), (4, u64::MAX), "{}", entry.name);
        assert!(report.refused > 0, "{}", entry.name);
    }
}

/// An object of a quarter of the memory is more than the store reads at once: it is streamed, from
/// memory while it is there and then from disk, and stored once. A deleted one is stored again.
#[test]
fn store_reads_in_pieces_what_is_too_long_for_its_memory() {
    let options =
        DesignOptions { cache_bytes: 64 << 20, memory_bytes: 16 << 20, ..DesignOptions::default() };
    let long = read(1, 4 << 20);
    let changed = read(1, (4 << 20) + 1);
    let report =
        run_named("store", &options, &[long, long, long, delete(1), long, changed, changed]);
    assert_eq!((report.hits, report.refused), (3, 0));
    let read_bytes = report.io.bytes_of(R);
    assert!((8 << 20..13 << 20).contains(&read_bytes), "{read_bytes}");
    let written_bytes = report.io.bytes_of(W);
    assert!((12 << 20..14 << 20).contains(&written_bytes), "{written_bytes}");
}

/// 1,000 objects of 8,000 bytes, twice what memory holds, then each in a version of a byte more:
/// 2,000 are stored, and no old version is read from disk before it is replaced, though half of
/// them are no longer in memory. Then all 1,000 again as they are now: hits, and those that are not
/// in memory are read.
#[test]
fn store_replaces_what_changed_without_reading_it() {
    let options =
        DesignOptions { cache_bytes: 64 << 20, memory_bytes: 4 << 20, ..DesignOptions::default() };
    let version = |bytes| (0..1_000).map(move |key| read(key, bytes));
    let mut requests: Vec<Request> = version(8_000).chain(version(8_001)).collect();
    let report = run_named("store", &options, &requests);
    assert_eq!((report.hits, report.fact("objects")), (0, 1_000));
    assert_eq!((report.fact("object_reads"), report.fact("page_reads")), (0, 0));
    requests.extend(version(8_001));
    let report = run_named("store", &options, &requests);
    assert_eq!(report.hits, 1_000);
    assert!(report.fact("object_reads") + report.fact("page_reads") > 0, "4 MiB do not hold 8 MB");
}

/// What the store has dropped, or was told to drop, is a miss whatever size it had: object 0 of
/// 3,000 bytes is deleted and stored as it was; of 2,000 objects of 8 KB an 8 MiB store keeps fewer
/// than half, so that object 1, first of them, is stored again with its own size, hit, and stored
/// with another.
#[test]
fn store_misses_what_it_dropped_whatever_size_it_had() {
    let options =
        DesignOptions { cache_bytes: 8 << 20, memory_bytes: 4 << 20, ..DesignOptions::default() };
    let deleted = [read(0, 3_000), delete(0), read(0, 3_000)];
    let many = (1..2_001).map(|key| read(key, 8_000));
    let again = [read(1, 8_000), read(1, 8_000), read(1, 8_001)];
    let requests: Vec<Request> = deleted.into_iter().chain(many).chain(again).collect();
    let report = run_named("store", &options, &requests);
    assert_eq!((report.hits, report.refused), (1, 0));
    assert!(report.fact("objects") < 1_000, "{} objects", report.fact("objects"));
}

/// Of a file of three chunks two were put out by others; deleted, it leaves nothing behind.
#[test]
fn afs_deletes_what_is_left_of_a_file() {
    let chunk = 256 << 10;
    let options = DesignOptions { cache_bytes: 4 * chunk, ..small() };
    let requests = [read(1, 3 * chunk), read(2, 3 * chunk), delete(1)];
    let report = run_named("afs", &options, &requests);
    assert_eq!((report.fact("chunks"), report.fact("held_bytes")), (3, 3 * chunk));
    let before = run_named("afs", &options, &requests[..2]);
    assert_eq!(before.fact("chunks"), 4, "one of the first file is there until then");
}

/// A file that is as large as the cache is kept in chunks; a byte more, and none of them is.
#[test]
fn afs_keeps_no_part_of_a_file_that_is_larger_than_the_cache() {
    let options = DesignOptions { cache_bytes: 1 << 20, ..DesignOptions::default() };
    let of = |bytes| run_named("afs", &options, &[read(1, 5_000), read(2, bytes), read(1, 5_000)]);
    let (whole, more) = (of(1 << 20), of((1 << 20) + 1));
    assert_eq!((whole.hits, whole.refused, whole.fact("chunk_numbers")), (0, 0, 5));
    assert_eq!((more.hits, more.refused, more.fact("chunk_numbers")), (1, 1, 1));
}
