//! Fuzzes the journal decoder, the walk over a half, and the mending of a bit. Threads: none.
#![no_main]

mod common;

use common::{NONCE, flip_one, raw_and_repaired, seal};
use damelo::format::{JOURNAL_CELL_BYTES, JournalRecord, JournalWalk};
use libfuzzer_sys::fuzz_target;

/// Repairs the checksum of each record, and of the prefix of each that has one.
fn seal_all(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(record) = bytes.get_mut(at..).filter(|rest| rest.len() >= JOURNAL_CELL_BYTES) {
        let prefix_bytes = usize::from(u16::from_le_bytes([record[10], record[11]]));
        let prefix = record.get(JOURNAL_CELL_BYTES..JOURNAL_CELL_BYTES + prefix_bytes);
        if let Some(crc) = prefix.filter(|prefix| !prefix.is_empty()).map(crc32c::crc32c) {
            record[16..24].copy_from_slice(&u64::from(crc).to_le_bytes());
        }
        seal(record, 4..32, 0);
        at += JOURNAL_CELL_BYTES + prefix_bytes.next_multiple_of(JOURNAL_CELL_BYTES);
    }
}

fn check_record(record: &JournalRecord, bytes: &[u8]) {
    assert_eq!(record.encoded_len(), bytes.len());
    let mut again = Vec::new();
    assert_eq!(record.encode_into(NONCE, &mut again), Ok(()));
    assert_eq!(again, bytes);
    // A bit of the first cell that turned over is found.
    flip_one(&mut again[..JOURNAL_CELL_BYTES]);
    assert!(JournalRecord::decode(&again, NONCE).is_err());
    assert_eq!(JournalRecord::mend(&again, NONCE), Some((record.clone(), bytes.len())));
}

fn check_walk(mut walk: JournalWalk<'_>, bytes: &[u8], any_epoch: bool) {
    let mut at = 0;
    while let Some(record) = walk.next() {
        assert!(any_epoch || walk.epoch() == Some(record.epoch));
        check_record(&record, &bytes[at..walk.offset()]);
        at = walk.offset();
    }
    assert_eq!(at, walk.offset());
    assert!(at == bytes.len() || walk.ended_by().is_some());
    assert_eq!(walk.next(), None);
}

fuzz_target!(|data: &[u8]| {
    raw_and_repaired(data, seal_all, |bytes| {
        check_walk(JournalWalk::half(bytes, NONCE), bytes, false);
        check_walk(JournalWalk::marks(bytes, NONCE), bytes, true);
        if let Some((record, length)) = JournalRecord::mend(bytes, NONCE) {
            assert_eq!(record.encoded_len(), length);
            assert!(length <= bytes.len());
        }
        let _ = JournalRecord::is_like(bytes, NONCE);
    });
});
