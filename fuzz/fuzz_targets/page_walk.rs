//! Fuzzes the page header and the walk over its records. Threads: none.
#![no_main]

mod common;

use common::{NONCE, raw_and_sealed};
use damelo::format::{PageHeader, RecordWalk};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    raw_and_sealed(data, 0..60, 60, |bytes| {
        raw_and_sealed(bytes, 64..124, 124, |bytes| {
            if let Ok(header) = PageHeader::decode(bytes, NONCE, 16_384) {
                assert_eq!(header.encode(), bytes[..64]);
                let _ = header.records(bytes).count();
            }
            let _ = RecordWalk::new(bytes, 64, u32::MAX, NONCE).count();
        });
    });
});
