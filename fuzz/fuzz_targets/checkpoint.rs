//! Fuzzes the checkpoint header and its tables (behind the first 4096 bytes). Threads: none.
#![no_main]

mod common;

use common::{NONCE, raw_and_sealed};
use damelo::format::{CheckpointHeader, CheckpointTables};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    bytes.resize(bytes.len().max(4096), 0);
    raw_and_sealed(&bytes, 0..4092, 4092, |bytes| {
        let slot_bytes = 12 << 20;
        let Ok(header) = CheckpointHeader::decode(bytes, NONCE, slot_bytes) else { return };
        assert_eq!(header.encode(), bytes[..4096]);
        assert!(header.total_bytes() <= slot_bytes);
        let _ = header.shard_offset(u32::MAX);
        let tables = &bytes[4096..];
        let _ = CheckpointTables::decode(tables, &header);
        let length = tables.len().min(header.tables_bytes as usize);
        let tables_crc = crc32c::crc32c(&tables[..length]);
        let _ = CheckpointTables::decode(tables, &CheckpointHeader { tables_crc, ..header });
    });
});
