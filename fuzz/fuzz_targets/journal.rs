//! Fuzzes the journal decoder and the walk over a half. Threads: none.
#![no_main]

mod common;

use common::{NONCE, raw_and_sealed};
use damelo::format::{JournalRecord, JournalWalk};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    raw_and_sealed(data, 4..32, 0, |bytes| {
        if let Ok((record, length)) = JournalRecord::decode(bytes, NONCE) {
            let mut again = Vec::new();
            assert_eq!(record.encode_into(NONCE, &mut again), Ok(()));
            assert_eq!(again, bytes[..length]);
        }
        let mut walk = JournalWalk::half(bytes, NONCE);
        let _ = walk.by_ref().count();
        assert!(walk.offset() <= bytes.len());
    });
});
