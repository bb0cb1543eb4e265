//! Slices of which little is wanted: read in part from disk, whole where they are wanted often.

use std::ops::Range;

use crate::ranges::{noise_in_parts, sliced_by};
use crate::support::{Origin, Proxy, eventually};

/// Short enough for one record: the store's memory is 8 MiB.
const SLICE: usize = 512 << 10;
const SLICES: usize = 48;
const LENGTH: usize = SLICES * SLICE - 100_000;

/// A proxy that has all slices of a resource on disk, and none in memory, which holds a third of
/// them.
fn on_disk(seed: u64) -> (Origin, Proxy, Vec<u8>) {
    let (body, origin) = noise_in_parts(seed, LENGTH);
    let proxy = sliced_by(&origin, SLICE as u64);
    eventually("all slices are stored", || {
        let answer = proxy.get_with("/", "Range: bytes=0-");
        assert!(answer.body == body);
        answer.cache().contains("; hit")
    });
    proxy.store.sync().expect("synced");
    proxy.store.drop_memory();
    // What tells the slices' generation is in memory from now on.
    ask(&proxy, &body, LENGTH - 10..LENGTH);
    (origin, proxy, body)
}

/// Asks for a range that must be a hit; returns what was read of the disk for it.
fn ask(proxy: &Proxy, body: &[u8], range: Range<usize>) -> u64 {
    let before = proxy.store.stats().disk_read_bytes;
    let (first, last) = (range.start, range.end - 1);
    let answer = proxy.get_with("/", &format!("Range: bytes={first}-{last}"));
    assert!(answer.cache().contains("; hit"), "{}", answer.cache());
    assert_eq!(answer.header("content-range"), format!("bytes {first}-{last}/{LENGTH}"));
    assert!(answer.status() == 206 && answer.complete && answer.body == body[range]);
    proxy.store.stats().disk_read_bytes - before
}

#[test]
fn of_slices_on_disk_little_more_is_read_than_is_wanted() {
    let (origin, proxy, body) = on_disk(21);
    let asked = origin.count();
    for slice in 0..SLICES - 1 {
        let start = slice * SLICE + slice * 10_007;
        let read = ask(&proxy, &body, start..start + 20_000);
        assert!(read <= 160 << 10, "{read} bytes of slice {slice}");
    }
    // The end of one and the beginning of the next.
    let read = ask(&proxy, &body, 6 * SLICE - 9_000..6 * SLICE + 11_000);
    assert!((1..=320 << 10).contains(&read), "{read} bytes of two slices");
    let read = ask(&proxy, &body, LENGTH - 10..LENGTH);
    assert!(read <= 160 << 10, "{read} bytes of the last slice");
    // All of many, and a little of the first and the last.
    let read = ask(&proxy, &body, 9 * SLICE - 500..11 * SLICE + 500);
    assert!(
        read <= (2 * SLICE as u64) + (160 << 10),
        "{read} bytes of four slices, two of them whole"
    );
    let beyond = proxy.get_with("/", &format!("Range: bytes={LENGTH}-{}", LENGTH + 5));
    assert_eq!(beyond.status(), 416);
    assert_eq!(origin.count(), asked);
}

#[test]
fn a_slice_that_is_wanted_often_is_read_whole_and_stays_in_memory() {
    let (_origin, proxy, body) = on_disk(22);
    let at = |turn: usize| 5 * SLICE + turn * 16_000..5 * SLICE + turn * 16_000 + 1_000;
    let reads: Vec<u64> = (0..30).map(|turn| ask(&proxy, &body, at(turn))).collect();
    let whole = reads.iter().position(|read| *read >= SLICE as u64).expect("it is read whole once");
    assert!(whole >= 4, "not before its parts have cost as much: {reads:?}");
    assert!(reads[..whole].iter().all(|read| *read > 0), "from disk until then: {reads:?}");
    assert!(reads[whole + 1..].iter().all(|read| *read == 0), "from memory then: {reads:?}");
    let sum: u64 = reads.iter().sum();
    assert!(sum <= 2 * SLICE as u64 + (16 << 10), "twice the slice at most, not {sum} bytes");
}

#[test]
fn half_of_a_slice_brings_all_of_it() {
    let (_origin, proxy, body) = on_disk(23);
    let read = ask(&proxy, &body, 3 * SLICE..3 * SLICE + SLICE / 2);
    assert!(read >= SLICE as u64, "{read}");
    assert_eq!(ask(&proxy, &body, 3 * SLICE + 400_000..3 * SLICE + 400_100), 0);
}

#[test]
fn a_part_of_a_slice_is_purged_as_the_slice_is() {
    let (origin, proxy, body) = on_disk(24);
    ask(&proxy, &body, 2 * SLICE..2 * SLICE + 100);
    let asked = origin.count();
    proxy.pass_seconds(100);
    let answer = proxy.get_with("/", &format!("Range: bytes={}-{}", 2 * SLICE, 2 * SLICE + 99));
    assert!(answer.cache().contains("fwd="), "stale: {}", answer.cache());
    assert!(origin.count() > asked && answer.body == body[2 * SLICE..2 * SLICE + 100]);
    proxy.ask_with_body("POST", "/", "", b"x");
    let answer = proxy.get_with("/", &format!("Range: bytes={}-{}", 3 * SLICE, 3 * SLICE + 99));
    assert!(answer.cache().contains("fwd="), "invalidated: {}", answer.cache());
}
