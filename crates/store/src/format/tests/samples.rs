//! One valid value of every structure.
//!
//! Threads: none; pure functions.

use crate::format::{
    CheckpointHeader, CheckpointTables, JournalOp, JournalRecord, LifeBlock, LifeEntry, Manifest,
    ManifestPart, PageHeader, Patch, RecordFields, RecordKind, SegmentFooter, StoreNonce,
    SummaryEntry, Superblock, encode_record_into, encode_summary, settle_record,
};
use crate::types::SegmentLife;

/// The nonce of the sample store.
pub(super) const NONCE: StoreNonce = StoreNonce(0x0302_0100);
/// The life of the sample segment.
pub(super) const LIFE: u64 = 5;
/// The hash of the sample key.
pub(super) const HASH: u64 = 0x0102_0304_0506_0708;
/// The segment size that the sample footer belongs to.
pub(super) const SEGMENT: u64 = 1 << 20;
/// The slot size that the sample checkpoint fits into.
pub(super) const SLOT: u64 = 12 << 20;

pub(super) fn superblock() -> Superblock {
    Superblock {
        page_bytes: 16_384,
        segment_bytes: 32 << 20,
        segment_count: 100,
        volume_index: 0,
        volume_count: 2,
        first_segment: 0,
        store_id: std::array::from_fn(|at| at as u8),
        volume_bytes: 4 << 30,
        index_slots: 1 << 20,
        hash_seed: 0x1122_3344_5566_7788,
        journal_offset: 65_536,
        journal_bytes: 1 << 20,
        checkpoint_offset: 65_536 + (1 << 20),
        checkpoint_bytes: SLOT,
        segments_offset: 32 << 20,
        object_bytes_max: 1 << 30,
        created_unix_s: 1_700_000_000,
    }
}

pub(super) fn fields(kind: RecordKind, seq: u64) -> RecordFields {
    RecordFields { nonce: NONCE, kind, chunked: false, hash: HASH, seq, group: 7, expires_s: 0 }
}

/// A record as it is stored.
pub(super) fn record(fields: &RecordFields, meta: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xaa; value.len() + 8192];
    let stored = encode_record_into(&mut bytes, fields, b"key", meta, value).unwrap();
    bytes.truncate(stored);
    let kind = settle_record(&mut bytes, NONCE, SegmentLife::from_raw(LIFE));
    assert_eq!(kind, Some(fields.kind));
    bytes
}

pub(super) fn object() -> Vec<u8> {
    let expires_s = 1_800_000_000;
    record(&RecordFields { expires_s, ..fields(RecordKind::Object, 9) }, b"m", b"value!")
}

pub(super) fn part() -> Vec<u8> {
    record(&fields(RecordKind::Part, 10), b"", b"value!")
}

pub(super) fn manifest_record() -> Vec<u8> {
    record(&fields(RecordKind::Manifest, 11), b"", &manifest().encode().unwrap())
}

pub(super) fn patch() -> Vec<u8> {
    let value = Patch { base_units: 0x1234, base_seq: 9 }.encode();
    record(&fields(RecordKind::Patch, 12), b"new", &value)
}

pub(super) fn manifest() -> Manifest {
    let part = |segment_seq, segment_id, offset_units, value_len| ManifestPart {
        segment_seq,
        segment_id,
        offset_units,
        value_len,
        part_seq: 0,
    };
    Manifest { total_len: 70_005, parts: vec![part(5, 3, 64, 70_000), part(6, 4, 128, 5)] }
}

pub(super) fn page_header() -> PageHeader {
    PageHeader {
        nonce: NONCE,
        segment_seq: LIFE,
        page_index: 3,
        record_count: 1,
        used_bytes: 192,
        stride_bytes: 4096,
        primary_group: 7,
    }
}

/// A page of 4096 bytes with a record of each kind that pages hold.
pub(super) fn page() -> Vec<u8> {
    let records = [object(), manifest_record(), patch(), object()];
    let mut page = vec![0; 64];
    page.extend(records.concat());
    let header = PageHeader {
        record_count: records.len() as u32,
        used_bytes: page.len() as u32,
        ..page_header()
    };
    page[..64].copy_from_slice(&header.encode());
    page.resize(4096, 0);
    page
}

pub(super) fn summary() -> Vec<SummaryEntry> {
    let entry = |hash, seq, offset_units, stored_units, kind| SummaryEntry {
        hash,
        group: 7,
        seq,
        offset_units,
        stored_units,
        kind: Some(kind),
    };
    vec![
        entry(HASH, 9, 1, 2, RecordKind::Object),
        entry(0x1112_1314_1516_1718, 10, 64, 0x0102, RecordKind::Part),
    ]
}

pub(super) fn summary_bytes() -> Vec<u8> {
    encode_summary(&summary())
}

pub(super) fn footer() -> SegmentFooter {
    SegmentFooter {
        nonce: NONCE,
        segment_id: 3,
        entry_count: 2,
        segment_seq: 5,
        summary_offset: (SEGMENT - 4096 - 64) as u32,
        summary_bytes: 64,
        summary_crc: crc32c::crc32c(&summary_bytes()),
        group_run_count: 1,
        object_bytes: 128 + 0x102 * 64,
        page_stride_bytes: 4096,
    }
}

pub(super) fn journal() -> Vec<JournalRecord> {
    let prefix = b"https://example.org/a/long/prefix/".to_vec();
    let ops = [
        JournalOp::DeleteKey { hash: HASH },
        JournalOp::PurgeGroup { group: 7 },
        JournalOp::PurgeAll,
        JournalOp::PurgePrefix { prefix },
        JournalOp::Epoch { generation: 3 },
    ];
    ops.into_iter().zip(20..).map(|(op, seq)| JournalRecord { op, epoch: 4, seq }).collect()
}

pub(super) fn journal_bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in journal() {
        record.encode_into(NONCE, &mut bytes).unwrap();
    }
    bytes
}

/// Two segments, of which the first is free.
pub(super) fn lives() -> LifeBlock {
    let entry = LifeEntry { segment_seq: LIFE, page_stride_blocks: 0x0103 };
    LifeBlock { nonce: NONCE, first_segment: 408, entries: vec![LifeEntry::default(), entry] }
}

pub(super) fn tables() -> CheckpointTables {
    CheckpointTables {
        segment_seqs: vec![0, 5, 6],
        page_stride_blocks: vec![1, 2, 0x0103],
        marks: vec![journal()[1].clone()],
        shard_crcs: vec![0xdead_beef],
    }
}

pub(super) fn tables_bytes() -> Vec<u8> {
    tables().encode(checkpoint_base()).unwrap().0
}

pub(super) fn checkpoint() -> CheckpointHeader {
    tables().encode(checkpoint_base()).unwrap().1
}

/// A checkpoint header whose tables are still to be filled in.
fn checkpoint_base() -> CheckpointHeader {
    CheckpointHeader {
        nonce: NONCE,
        generation: 3,
        seq_next: 25,
        ring_seq: 6,
        index_slots: 512,
        shard_count: 0,
        shard_bytes: 4096,
        segment_count: 0,
        mark_count: 0,
        tables_crc: 0,
        tables_bytes: 0,
        clean: true,
        location_bits: 14,
    }
}
