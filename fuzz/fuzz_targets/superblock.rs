//! Fuzzes the superblock decoder; what it accepts has to encode to the same bytes. Threads: none.
#![no_main]

mod common;

use common::raw_and_sealed;
use damelo::format::Superblock;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // Short inputs stand for the fields, so that the fuzzer need not find 4096 bytes.
    let mut bytes = data.to_vec();
    bytes.resize(bytes.len().max(8192), 0);
    raw_and_sealed(&bytes, 0..4092, 4092, |bytes| {
        if let Ok(superblock) = Superblock::decode(bytes) {
            assert_eq!(superblock.encode(), bytes[..4096]);
        }
        let _ = Superblock::decode_either(bytes);
    });
});
