//! Fuzzes the segment footer (first 64 bytes) and the summary (the rest). Threads: none.
#![no_main]

mod common;

use common::{NONCE, raw_and_sealed};
use damelo::format::{SegmentFooter, decode_summary, encode_summary};
use libfuzzer_sys::fuzz_target;

const SEGMENT_BYTES: u64 = 1 << 20;

/// Entries that are accepted encode to the same bytes, and none reaches into the summary.
fn check_summary(bytes: &[u8], footer: &SegmentFooter) {
    let Ok(entries) = decode_summary(bytes, footer) else { return };
    assert_eq!(entries.len(), footer.entry_count as usize);
    assert_eq!(encode_summary(&entries), bytes[..footer.summary_bytes as usize]);
    for entry in &entries {
        let end = u64::from(entry.offset_units) + u64::from(entry.stored_units);
        assert!(end * 64 <= u64::from(footer.summary_offset));
    }
}

fuzz_target!(|data: &[u8]| {
    raw_and_sealed(data, 0..60, 60, |bytes| {
        let entries = bytes.get(64..).unwrap_or(&[]);
        if let Ok(footer) = SegmentFooter::decode(bytes, NONCE, SEGMENT_BYTES) {
            assert_eq!(footer.encode()[..64], bytes[..64]);
            let summary_end = u64::from(footer.summary_offset) + u64::from(footer.summary_bytes);
            assert_eq!(summary_end, SEGMENT_BYTES - 4096);
            assert!(footer.summary_block() <= u64::from(footer.summary_offset));
            check_summary(entries, &footer);
        }
        // Whatever the footer, a summary that fits one.
        let entries = &entries[..entries.len() / 32 * 32];
        let length = entries.len() as u32;
        check_summary(
            entries,
            &SegmentFooter {
                nonce: NONCE,
                segment_id: 3,
                entry_count: length / 32,
                segment_seq: 5,
                summary_offset: (SEGMENT_BYTES as u32 - 4096).saturating_sub(length),
                summary_bytes: length,
                summary_crc: crc32c::crc32c(entries),
                group_run_count: 0,
                object_bytes: 0,
                page_stride_bytes: 4096,
            },
        );
    });
});
