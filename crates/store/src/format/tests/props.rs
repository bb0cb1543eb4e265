//! Round trips of arbitrary values.
//!
//! Threads: none.

use proptest::prelude::*;

use super::samples::{self, NONCE};
use crate::format::{
    CHUNK_BYTES, CheckpointHeader, CheckpointTables, ChunkCrcs, JournalOp, JournalRecord,
    JournalWalk, LayoutError, Manifest, ManifestPart, PageHeader, Patch, PlanRequest, RecordFields,
    RecordHeader, RecordKind, SegmentFooter, ShardPlan, StoreNonce, SummaryEntry, Superblock,
    VolumeLayout, checkpoint_slot_bytes, decode_summary, encode_head_into, encode_record_into,
    encode_summary, settle_record, verify_body, verify_chunks, verify_head,
};
use crate::types::SegmentLife;

/// Bytes without a period, so that no chunk equals another.
fn any_bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    (0..=max, any::<u64>()).prop_map(|(len, seed)| {
        let mut rng = fastrand::Rng::with_seed(seed);
        std::iter::repeat_with(|| rng.u8(..)).take(len).collect()
    })
}

fn any_fields() -> impl Strategy<Value = RecordFields> {
    let kind = prop_oneof![Just(RecordKind::Object), Just(RecordKind::Part)];
    (any::<(u32, bool, u64, u64, u64, u32)>(), kind).prop_map(
        |((nonce, chunked, hash, seq, group, expires_s), kind)| RecordFields {
            nonce: StoreNonce(nonce),
            kind,
            chunked,
            hash,
            seq,
            group,
            expires_s,
        },
    )
}

fn any_op() -> impl Strategy<Value = JournalOp> {
    prop_oneof![
        any::<u64>().prop_map(|hash| JournalOp::DeleteKey { hash }),
        any::<u64>().prop_map(|group| JournalOp::PurgeGroup { group }),
        Just(JournalOp::PurgeAll),
        prop::collection::vec(any::<u8>(), 1..200)
            .prop_map(|prefix| JournalOp::PurgePrefix { prefix }),
        any::<u64>().prop_map(|generation| JournalOp::Epoch { generation }),
    ]
}

fn any_entry() -> impl Strategy<Value = SummaryEntry> {
    (any::<(u64, u64, u64)>(), 0_u32..1000, 2_u32..1000, 0_u8..5).prop_map(
        |((hash, group, seq), offset_units, stored_units, kind)| {
            let kind = RecordKind::from_u8(kind);
            SummaryEntry { hash, group, seq, offset_units, stored_units, kind }
        },
    )
}

fn any_request() -> impl Strategy<Value = PlanRequest> {
    let sizes = (0_u64..1 << 36, 0_u16..3, 12_u32..17, 1_u64..300);
    let tables = (1_u64..1 << 24, 1_u64..1 << 24, 0_u32..100_000);
    (sizes, tables).prop_map(|((volume_bytes, volume_index, page, pages), tables)| PlanRequest {
        volume_bytes,
        volume_index,
        page_bytes: 1 << page,
        segment_bytes: (pages + 3) << page,
        index_slots: tables.0,
        journal_bytes: tables.1,
        total_segments: tables.2,
    })
}

proptest! {
    #[test]
    fn records(
        fields in any_fields(),
        key in any_bytes(300).prop_filter("no key", |key| !key.is_empty()),
        meta in any_bytes(300),
        value in prop_oneof![4 => any_bytes(2000), 1 => any_bytes(200_000)],
    ) {
        let mut buf = vec![0xee; value.len() + 2000];
        let stored = encode_record_into(&mut buf, &fields, &key, &meta, &value).unwrap();
        let header = RecordHeader::decode(&buf, fields.nonce).unwrap();
        prop_assert_eq!(header.stored_bytes(), stored as u64);
        prop_assert!(stored.is_multiple_of(64) && stored - header.value_range().end < 64);
        prop_assert_eq!(&buf[header.key_range()], &key[..]);
        prop_assert_eq!(&buf[header.meta_range()], &meta[..]);
        prop_assert_eq!(&buf[header.value_range()], &value[..]);
        prop_assert!(buf[header.value_range().end..stored].iter().all(|byte| *byte == 0));
        prop_assert!(buf[stored..].iter().all(|byte| *byte == 0xee));
        prop_assert!(verify_body(&header, &buf[..stored]));
        let kept = (header.hash, header.seq, header.group, header.expires_s);
        prop_assert_eq!(kept, (fields.hash, fields.seq, fields.group, fields.expires_s));
        let again = encode_record_into(&mut buf[..stored - 1], &fields, &key, &meta, &value);
        prop_assert!(again.is_err());
    }

    #[test]
    fn chunks(
        value in any_bytes(300_000),
        pieces in prop::collection::vec(1..100_000_usize, 1..9),
    ) {
        let fields = samples::fields(RecordKind::Part, 1);
        let record = samples::record(&fields, b"", &value);
        let header = RecordHeader::decode(&record, NONCE).unwrap();
        let (mut crcs, mut rest) = (ChunkCrcs::new(), &value[..]);
        for piece in pieces.iter().cycle() {
            let (now, later) = rest.split_at(rest.len().min(*piece));
            crcs.update(now);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        let mut head = vec![0; record.len()];
        let len = value.len() as u64;
        let written = encode_head_into(&mut head, &fields, b"key", b"", len, &crcs.finish());
        prop_assert_eq!(written, Ok(header.value_range().start));
        settle_record(&mut head, NONCE, SegmentLife::from_raw(samples::LIFE));
        let head = &head[..header.value_range().start];
        prop_assert_eq!(head, &record[..head.len()]);
        prop_assert!(verify_head(&header, head));
        for first in 0..header.chunk_count() {
            let start = (first * CHUNK_BYTES) as usize;
            let end = value.len().min(start + CHUNK_BYTES as usize);
            prop_assert!(verify_chunks(&header, head, first, &value[start..end]));
            prop_assert!(verify_chunks(&header, head, first, &value[start..]));
            // Nothing to verify is no error, so the one-byte cases say nothing.
            if end - start > 1 {
                prop_assert!(!verify_chunks(&header, head, first + 1, &value[start..end]));
                prop_assert!(!verify_chunks(&header, head, first, &value[start..end - 1]));
            }
        }
    }

    #[test]
    fn header_arithmetic_never_overflows(
        lens in any::<(u32, u32, u64)>(),
        chunked in any::<bool>(),
    ) {
        let record = samples::object();
        let header = RecordHeader::decode(&record, NONCE).unwrap();
        let (key_len, meta_len, value_len) = lens;
        let header = RecordHeader { key_len, meta_len, value_len, chunked, ..header };
        prop_assert!(header.stored_bytes().is_multiple_of(64));
        prop_assert!(!verify_body(&header, &record) || header.stored_bytes() <= 128);
    }

    #[test]
    fn pages(count in 1_usize..20, numbers in any::<(u64, u32, u64)>()) {
        let mut record = samples::object();
        settle_record(&mut record, NONCE, SegmentLife::from_raw(numbers.0));
        let mut page = vec![0; 64];
        page.extend(record.repeat(count));
        let header = PageHeader {
            nonce: NONCE,
            segment_seq: numbers.0,
            page_index: numbers.1,
            record_count: count as u32,
            used_bytes: page.len() as u32,
            stride_bytes: 4096,
            primary_group: numbers.2,
        };
        page[..64].copy_from_slice(&header.encode());
        page.resize(4096, 0);
        prop_assert_eq!(PageHeader::decode(&page, NONCE, 4096), Ok(header));
        let offsets: Vec<u32> = header.records(&page).map(|item| item.unwrap().0).collect();
        let expected: Vec<u32> = (0..count as u32).map(|at| 64 + at * 128).collect();
        prop_assert_eq!(offsets, expected);
    }

    #[test]
    fn segments(entries in prop::collection::vec(any_entry(), 0..50), id in any::<u32>()) {
        let bytes = encode_summary(&entries);
        let footer = SegmentFooter {
            segment_id: id,
            entry_count: entries.len() as u32,
            summary_offset: (samples::SEGMENT - 4096) as u32 - bytes.len() as u32,
            summary_bytes: bytes.len() as u32,
            summary_crc: crc32c::crc32c(&bytes),
            group_run_count: 0,
            ..samples::footer()
        };
        let decoded = SegmentFooter::decode(&footer.encode(), NONCE, samples::SEGMENT);
        prop_assert_eq!(decoded, Ok(footer));
        prop_assert_eq!(decode_summary(&bytes, &footer), Ok(entries));
        prop_assert!(footer.summary_block().is_multiple_of(4096));
    }

    #[test]
    fn journals(
        ops in prop::collection::vec((any_op(), any::<u64>()), 0..20),
        epoch in any::<u32>(),
    ) {
        let record = |(op, seq)| JournalRecord { op, epoch, seq };
        let records: Vec<JournalRecord> = ops.into_iter().map(record).collect();
        let mut bytes = Vec::new();
        for record in &records {
            record.encode_into(NONCE, &mut bytes).unwrap();
        }
        let written = bytes.len();
        // What a former life of the half left behind the end.
        let old = JournalRecord { op: JournalOp::PurgeAll, epoch: epoch ^ 1, seq: 1 };
        old.encode_into(NONCE, &mut bytes).unwrap();
        let mut walk = JournalWalk::half(&bytes, NONCE);
        let decoded: Vec<JournalRecord> = walk.by_ref().take(records.len().max(1)).collect();
        if !records.is_empty() {
            prop_assert_eq!(decoded, records);
            prop_assert_eq!((walk.next(), walk.offset()), (None, written));
            prop_assert_eq!(walk.epoch(), Some(epoch));
        }
    }

    #[test]
    fn checkpoints(
        segments in prop::collection::vec(any::<(u64, u16)>(), 0..50),
        ops in prop::collection::vec((any_op(), any::<u32>()), 0..20),
        index_slots in 1_u64..1 << 20,
        clean in any::<bool>(),
        location_bits in 1..=38_u8,
    ) {
        let marks: Vec<_> =
            ops.into_iter().map(|(op, epoch)| JournalRecord { op, epoch, seq: 1 }).collect();
        let (segment_seqs, page_stride_blocks): (Vec<u64>, Vec<u16>) = segments.into_iter().unzip();
        let plan = ShardPlan::of(index_slots);
        let shard_crcs = (0..plan.shard_count).collect();
        let slot = checkpoint_slot_bytes(index_slots, segment_seqs.len() as u32);
        let base = CheckpointHeader {
            index_slots,
            shard_bytes: plan.shard_bytes,
            clean,
            location_bits,
            ..samples::checkpoint()
        };
        let tables = CheckpointTables { segment_seqs, page_stride_blocks, marks, shard_crcs };
        let (bytes, header) = tables.encode(base).unwrap();
        prop_assert_eq!(CheckpointHeader::decode(&header.encode(), NONCE, slot), Ok(header));
        prop_assert_eq!(CheckpointTables::decode(&bytes, &header), Ok(tables));
        let last = header.shard_offset(plan.shard_count - 1).unwrap();
        prop_assert_eq!(last + u64::from(plan.shard_bytes), header.total_bytes());
        prop_assert_eq!(header.shard_offset(plan.shard_count), None);
    }

    #[test]
    fn manifests(
        parts in prop::collection::vec((1_u64.., any::<u32>(), 0_u32..99, 1_u32..9999), 1..99),
    ) {
        let part = |(segment_seq, segment_id, block, value_len)| ManifestPart {
            segment_seq,
            segment_id,
            offset_units: block * 64,
            value_len,
            part_seq: value_len ^ segment_id,
        };
        let parts: Vec<ManifestPart> = parts.into_iter().map(part).collect();
        let total_len = parts.iter().map(|part| u64::from(part.value_len)).sum();
        let manifest = Manifest { total_len, parts };
        let bytes = manifest.encode().unwrap();
        prop_assert_eq!(bytes.len(), Manifest::encoded_len(manifest.parts.len()));
        prop_assert_eq!(Manifest::decode(&bytes, samples::SEGMENT), Ok(manifest));
    }

    #[test]
    fn patches(base_units in any::<u64>(), base_seq in any::<u64>()) {
        let patch = Patch { base_units, base_seq };
        prop_assert_eq!(Patch::decode(&patch.encode()), Ok(patch));
    }

    #[test]
    fn layouts(request in any_request()) {
        match VolumeLayout::plan(&request) {
            Ok(layout) => {
                let superblock = superblock_of(&request, &layout);
                prop_assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock));
                prop_assert_eq!(superblock.layout(), layout);
                let last = layout.segment_offset(layout.segment_count - 1).unwrap();
                let spare = request.volume_bytes - last - request.segment_bytes;
                prop_assert!(spare < request.segment_bytes);
                prop_assert_eq!(layout.segment_offset(layout.segment_count), None);
            }
            Err(LayoutError::TooSmall { minimum_bytes, volume_bytes }) => {
                prop_assert!(minimum_bytes > volume_bytes);
                let volume_bytes = minimum_bytes;
                let layout = VolumeLayout::plan(&PlanRequest { volume_bytes, ..request }).unwrap();
                prop_assert_eq!(layout.segment_count, 4);
                let volume_bytes = minimum_bytes - 1;
                let smaller = VolumeLayout::plan(&PlanRequest { volume_bytes, ..request });
                let error = Err(LayoutError::TooSmall { minimum_bytes, volume_bytes });
                prop_assert_eq!(smaller, error);
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn layouts_of_anything(
        sizes in any::<(u64, u16, u32, u64)>(),
        tables in any::<(u64, u64, u32)>(),
        shrink in (0_u32..64, 0_u32..64, 0_u32..64),
    ) {
        let request = PlanRequest {
            volume_bytes: sizes.0,
            volume_index: sizes.1 % 2,
            page_bytes: 4096 << (sizes.2 % 10),
            segment_bytes: (sizes.3 >> shrink.0) & !4095,
            index_slots: tables.0 >> shrink.1,
            journal_bytes: tables.1 >> shrink.2,
            total_segments: tables.2 >> (shrink.0 / 2),
        };
        if let Ok(layout) = VolumeLayout::plan(&request) {
            prop_assert_eq!(superblock_of(&request, &layout).validate(), Ok(()));
        }
    }
}

fn superblock_of(request: &PlanRequest, layout: &VolumeLayout) -> Superblock {
    Superblock {
        page_bytes: request.page_bytes,
        segment_bytes: request.segment_bytes,
        segment_count: layout.segment_count,
        volume_index: request.volume_index,
        volume_count: request.volume_index + 1,
        first_segment: u32::from(request.volume_index) * 1000,
        volume_bytes: request.volume_bytes,
        index_slots: request.index_slots,
        journal_offset: layout.journal_offset,
        journal_bytes: layout.journal_bytes,
        checkpoint_offset: layout.checkpoint_offset,
        checkpoint_bytes: layout.checkpoint_bytes,
        segments_offset: layout.segments_offset,
        ..samples::superblock()
    }
}
