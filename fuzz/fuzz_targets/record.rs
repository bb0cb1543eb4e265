//! Fuzzes the record decoder and the body checks. Threads: none.
#![no_main]

mod common;

use common::{NONCE, raw_and_sealed};
use damelo::format::{RecordHeader, verify_body, verify_chunks, verify_head};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    raw_and_sealed(data, 0..60, 60, |bytes| {
        if let Ok(header) = RecordHeader::decode(bytes, NONCE) {
            assert_eq!(header.encode(), bytes[..64]);
            assert!(header.value_range().end as u64 <= header.stored_bytes());
            let _ = verify_body(&header, bytes);
            let _ = verify_head(&header, bytes);
            let _ = verify_chunks(&header, bytes, 0, bytes);
            let _ = verify_chunks(&header, bytes, u64::MAX, bytes);
        }
    });
});
