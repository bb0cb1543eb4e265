//! Fuzzes the segment footer (first 64 bytes) and the summary (the rest). Threads: none.
#![no_main]

mod common;

use common::{NONCE, raw_and_sealed};
use damelo::format::{SegmentFooter, decode_summary};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    raw_and_sealed(data, 0..60, 60, |bytes| {
        let entries = bytes.get(64..).unwrap_or(&[]);
        let entries = &entries[..entries.len() / 32 * 32];
        let segment_bytes = 1 << 20;
        let Ok(footer) = SegmentFooter::decode(bytes, NONCE, segment_bytes) else { return };
        assert_eq!(footer.encode()[..64], bytes[..64]);
        let _ = decode_summary(entries, &footer);
        let repaired = SegmentFooter {
            summary_crc: crc32c::crc32c(entries),
            summary_bytes: entries.len() as u32,
            entry_count: (entries.len() / 32) as u32,
            ..footer
        };
        let _ = decode_summary(entries, &repaired);
    });
});
