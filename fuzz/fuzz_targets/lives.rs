//! Fuzzes a block of the table of lives; the seed is its beginning. Threads: none.
#![no_main]

mod common;

use common::{NONCE, raw_and_sealed};
use damelo::format::{BLOCK, LIVES_PER_BLOCK, LifeBlock};
use libfuzzer_sys::fuzz_target;

/// What is accepted encodes to the same bytes, and has as many segments as were asked for.
fn check(block: &[u8]) {
    for segments in [2, LIVES_PER_BLOCK] {
        let Ok(found) = LifeBlock::decode(block, NONCE, 408, segments) else { continue };
        assert_eq!(found.entries.len(), segments as usize);
        assert_eq!(found.encode()[..], block[..BLOCK]);
    }
}

fuzz_target!(|data: &[u8]| {
    check(data);
    let mut block = data.to_vec();
    block.resize(BLOCK, 0);
    raw_and_sealed(&block, 0..BLOCK - 4, BLOCK - 4, check);
});
