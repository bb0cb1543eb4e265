//! Fuzzes the page header and the walk over its records. Threads: none.
#![no_main]

mod common;

use common::{NONCE, raw_and_repaired, seal_page};
use damelo::format::{PageHeader, RecordWalk};
use libfuzzer_sys::fuzz_target;

/// The life of the segment that the samples are of.
const LIFE: u64 = 5;

/// A walk advances, stays inside, and yields at most one error, at its end. How many records it
/// found, and whether there was none.
fn check_walk(walk: RecordWalk<'_>, bytes: &[u8], end: u32) -> (u32, bool) {
    let (mut next, mut found, mut is_sound) = (64, 0, true);
    for item in walk {
        assert!(is_sound, "an item after an error");
        match item {
            Ok((offset, header)) => {
                assert_eq!(u64::from(offset), next);
                next += header.stored_bytes();
                found += 1;
                assert!(next <= u64::from(end) && next <= bytes.len() as u64);
            }
            Err(_) => is_sound = false,
        }
    }
    assert!(!is_sound || next >= u64::from(end));
    (found, is_sound)
}

fuzz_target!(|data: &[u8]| {
    raw_and_repaired(data, seal_page, |bytes| {
        if let Ok(header) = PageHeader::decode(bytes, NONCE, 16_384) {
            assert_eq!(header.encode(), bytes[..64]);
            assert!(header.used_bytes <= 16_384);
            let (found, is_sound) = check_walk(header.records(bytes), bytes, header.used_bytes);
            assert!(!is_sound || found == header.record_count);
        }
        check_walk(RecordWalk::new(bytes, 64, u32::MAX, NONCE, LIFE), bytes, u32::MAX);
        let _ = RecordWalk::new(bytes, u32::MAX, u32::MAX, NONCE, LIFE).count();
    });
});
