//! Fuzzes a block of the table of lives; the seed is its beginning. Threads: none.
#![no_main]

mod common;

use common::NONCE;
use damelo::format::{BLOCK, LIVES_PER_BLOCK, LifeBlock};
use libfuzzer_sys::fuzz_target;

/// What is accepted encodes to the same bytes, and has as many segments as were asked for.
fn check(block: &[u8], segments: u32) {
    let Ok(found) = LifeBlock::decode(block, NONCE, 408, segments) else { return };
    assert_eq!(found.entries.len(), segments as usize);
    assert_eq!(found.encode()[..], block[..BLOCK]);
}

fuzz_target!(|data: &[u8]| {
    let mut block = [0; BLOCK];
    let length = data.len().min(BLOCK);
    block[..length].copy_from_slice(&data[..length]);
    for segments in [2, LIVES_PER_BLOCK] {
        check(data, segments);
        check(&block, segments);
        let crc = crc32c::crc32c(&block[4..]);
        let mut sealed = block;
        sealed[..4].copy_from_slice(&crc.to_le_bytes());
        check(&sealed, segments);
    }
});
