//! Fuzzes the checkpoint header (the fields are the first 72 bytes) and its tables (the rest).
//! Threads: none.
#![no_main]

mod common;

use common::{NONCE, raw_and_sealed};
use damelo::format::{CheckpointHeader, CheckpointTables, ShardPlan};
use libfuzzer_sys::fuzz_target;

const SLOT_BYTES: u64 = 12 << 20;
const FIELDS_BYTES: usize = 72;

fn check_header(header: &CheckpointHeader) {
    assert!(header.total_bytes() <= SLOT_BYTES);
    let last = header.shard_count.checked_sub(1).and_then(|last| header.shard_offset(last));
    if let Some(last) = last {
        assert_eq!(last + u64::from(header.shard_bytes), header.total_bytes());
        assert!(last >= header.tables_offset() + u64::from(header.tables_bytes));
    }
    assert_eq!(header.shard_offset(header.shard_count), None);
    assert!(ShardPlan::of(header.index_slots).total_bytes() >= header.index_slots * 8);
}

/// Tables that are accepted encode to the same bytes and the same header.
fn check_tables(tables: &[u8], header: &CheckpointHeader) {
    let Ok(decoded) = CheckpointTables::decode(tables, header) else { return };
    let (again, header_again) = decoded.encode(*header).expect("what was decoded");
    assert_eq!((again.as_slice(), header_again), (&tables[..again.len()], *header));
}

fuzz_target!(|data: &[u8]| {
    let (fields, tables) = data.split_at(data.len().min(FIELDS_BYTES));
    let mut block = vec![0; 4096];
    block[..fields.len()].copy_from_slice(fields);
    raw_and_sealed(&block, 0..4092, 4092, |block| {
        let Ok(header) = CheckpointHeader::decode(block, NONCE, SLOT_BYTES) else { return };
        assert_eq!(header.encode(), block);
        check_header(&header);
        check_tables(tables, &header);
        let length = tables.len().min(header.tables_bytes as usize);
        let tables_crc = crc32c::crc32c(&tables[..length]);
        check_tables(tables, &CheckpointHeader { tables_crc, ..header });
    });
});
