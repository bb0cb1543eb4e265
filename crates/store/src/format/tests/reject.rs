//! Every relation that a decoder checks, broken one at a time behind a valid checksum.
//!
//! Threads: none.

use super::samples::{self, NONCE, SEGMENT, SLOT};
use crate::format::{
    CheckpointHeader, FormatError, JournalOp, JournalRecord, JournalWalk, LayoutError, LifeBlock,
    Manifest, ManifestPart, PageHeader, PlanRequest, RecordError, RecordFields, RecordHeader,
    RecordKind, SegmentFooter, StoreNonce, SummaryEntry, Superblock, VolumeLayout,
    encode_head_into, encode_record_into,
};

/// Asserts that the superblock is refused once `change` was made.
fn refused(change: impl Fn(&mut Superblock)) {
    let mut superblock = samples::superblock();
    change(&mut superblock);
    let error = Superblock::decode(&superblock.encode()).unwrap_err();
    assert!(matches!(error, FormatError::Damaged { .. }), "{superblock:?}: {error}");
}

#[test]
fn superblock_sizes() {
    refused(|s| s.page_bytes = 2048);
    refused(|s| s.page_bytes = 2 << 20);
    refused(|s| s.page_bytes = 12_288);
    refused(|s| s.segment_bytes += 4096);
    refused(|s| s.segment_bytes = 3 * 16_384);
    refused(|s| s.segment_bytes = 2 << 30);
    refused(|s| s.segment_count = 0);
    refused(|s| s.segment_count = u32::MAX);
    refused(|s| s.volume_index = 2);
    refused(|s| s.first_segment = 1);
    refused(|s| s.index_slots = 0);
    refused(|s| s.index_slots = u64::MAX);
    // Found by fuzzing: its checkpoints would be written over the segments.
    refused(|s| s.index_slots = 1 << 21);
    refused(|s| s.object_bytes_max = 0);
    refused(|s| s.object_bytes_max = u64::MAX);
}

#[test]
fn superblock_areas() {
    refused(|s| s.journal_offset = 0);
    refused(|s| s.journal_bytes = u64::MAX - 8191);
    refused(|s| s.journal_bytes += 4096);
    refused(|s| s.checkpoint_offset += 4096);
    refused(|s| s.checkpoint_bytes += 1);
    refused(|s| s.checkpoint_bytes = 1 << 63);
    refused(|s| s.checkpoint_bytes = 0);
    refused(|s| s.segments_offset = 16 << 20);
    refused(|s| s.segments_offset += 4096);
    refused(|s| s.segments_offset = u64::MAX - (1 << 20) + 1);
    refused(|s| s.volume_bytes = (32 << 20) * 101 - 1);
    refused(|s| (s.volume_index, s.first_segment) = (1, 100));
}

#[test]
fn superblock_identity() {
    let mut block = samples::superblock().encode();
    let seal = |block: &mut [u8; 4096]| {
        let crc = crc32c::crc32c(&block[..4092]);
        block[4092..].copy_from_slice(&crc.to_le_bytes());
    };
    block[8] = 1;
    assert_eq!(Superblock::decode(&block), Err(FormatError::Checksum { what: "superblock" }));
    seal(&mut block);
    assert_eq!(Superblock::decode(&block), Err(FormatError::OtherVersion { found: 1 }));
    let zeros = [0; 4096];
    assert_eq!(Superblock::decode(&zeros), Err(FormatError::NotOurs));
    assert_eq!(Superblock::decode(&[]), Err(FormatError::Short { need: 4096, have: 0 }));
    let either = |a: &[u8; 4096], b: &[u8; 4096]| Superblock::decode_either(&[*a, *b].concat());
    let good = samples::superblock().encode();
    assert_eq!(either(&zeros, &good), Ok(samples::superblock()));
    assert_eq!(either(&good, &zeros), Ok(samples::superblock()));
    assert_eq!(either(&zeros, &block), Err(FormatError::OtherVersion { found: 1 }));
    assert_eq!(either(&zeros, &zeros), Err(FormatError::NotOurs));
    block[40] ^= 1;
    assert_eq!(either(&block, &zeros), Err(FormatError::Checksum { what: "superblock" }));
}

#[test]
fn another_store() {
    let other = StoreNonce(NONCE.0 ^ 1);
    let found = NONCE.0;
    let page = PageHeader::decode(&samples::page(), other, 4096);
    assert_eq!(page, Err(FormatError::OtherStore { found }));
    assert_eq!(
        RecordHeader::decode(&samples::object(), other),
        Err(RecordError::OtherStore { found })
    );
    let footer = samples::footer().encode();
    assert_eq!(
        SegmentFooter::decode(&footer, other, SEGMENT),
        Err(FormatError::OtherStore { found })
    );
    let checkpoint = samples::checkpoint().encode();
    let checkpoint = CheckpointHeader::decode(&checkpoint, other, SLOT);
    assert_eq!(checkpoint, Err(FormatError::OtherStore { found }));
    assert_eq!(JournalWalk::half(&samples::journal_bytes(), other).count(), 0);
    assert_eq!(StoreNonce::of(&samples::superblock().store_id), NONCE);
}

#[test]
fn record_headers() {
    let header = RecordHeader::decode(&samples::object(), NONCE).unwrap();
    let refused = |header: RecordHeader| {
        let error = RecordHeader::decode(&header.encode(), NONCE).unwrap_err();
        assert!(matches!(error, RecordError::Invalid { .. }), "{header:?}: {error}");
    };
    refused(RecordHeader { meta_len: (1 << 20) + 1, ..header });
    refused(RecordHeader { value_len: (1 << 40) + 1, ..header });
    refused(RecordHeader { kind: RecordKind::Part, ..header });
    refused(RecordHeader { kind: RecordKind::Patch, ..header });
    refused(RecordHeader { kind: RecordKind::Patch, chunked: true, value_len: 16, ..header });
    refused(RecordHeader { kind: RecordKind::Manifest, value_len: 15, ..header });
    refused(RecordHeader { kind: RecordKind::Manifest, value_len: 16 + 25, ..header });
    assert!(header.expired(1_800_000_000) && !header.expired(1_799_999_999));
    assert!(!RecordHeader { expires_s: 0, ..header }.expired(u64::MAX));
}

#[test]
fn record_raw_bytes() {
    for (at, byte) in [(8, 0), (8, 5), (8, 0xff), (9, 0), (9, 5), (56, 0)] {
        let mut bytes = samples::object();
        bytes[at] = byte;
        if at == 56 {
            bytes[56..60].fill(0);
        }
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        let error = RecordHeader::decode(&bytes, NONCE).unwrap_err();
        assert!(matches!(error, RecordError::Invalid { .. }), "byte {at} = {byte}: {error}");
    }
}

#[test]
fn unwritable_records() {
    let fields = samples::fields(RecordKind::Object, 1);
    let mut buf = vec![0; 2 << 20];
    let invalid = |result| matches!(result, Err(RecordError::Invalid { .. }));
    let long = vec![0; (1 << 20) + 1];
    assert!(invalid(encode_record_into(&mut buf, &fields, b"", b"", b"")));
    assert!(invalid(encode_record_into(&mut buf, &fields, &long[..65_537], b"", b"")));
    assert!(invalid(encode_record_into(&mut buf, &fields, b"k", &long, b"")));
    assert!(invalid(encode_head_into(&mut buf, &fields, b"k", b"", 0, &[])));
    let part = RecordFields { kind: RecordKind::Part, ..fields };
    assert!(invalid(encode_head_into(&mut buf, &part, b"k", b"", 65_537, &[1])));
    assert!(encode_head_into(&mut buf, &part, b"k", b"", 65_537, &[1, 2]).is_ok());
    let short = encode_record_into(&mut buf[..127], &fields, b"k", b"", b"");
    assert_eq!(short, Err(RecordError::Short { need: 128, have: 127 }));
}

#[test]
fn pages() {
    let header = samples::page_header();
    let refused = |header: PageHeader| {
        let error = PageHeader::decode(&header.encode(), NONCE, 4096).unwrap_err();
        assert!(matches!(error, FormatError::Damaged { .. }), "{header:?}: {error}");
    };
    refused(PageHeader { used_bytes: 0, ..header });
    refused(PageHeader { used_bytes: 191, ..header });
    refused(PageHeader { used_bytes: 4160, ..header });
    refused(PageHeader { stride_bytes: 0, ..header });
    refused(PageHeader { stride_bytes: 8192, ..header });
    refused(PageHeader { record_count: 2, ..header });
    refused(PageHeader { record_count: u32::MAX, ..header });
    refused(PageHeader { record_count: 0, ..header });
    let empty = PageHeader { record_count: 0, used_bytes: 64, ..header };
    assert_eq!(PageHeader::decode(&empty.encode(), NONCE, 4096), Ok(empty));
    assert_eq!(empty.records(&empty.encode()).count(), 0);
    let full = PageHeader { record_count: 31, used_bytes: 4096 - 64, ..header };
    assert_eq!(PageHeader::decode(&full.encode(), NONCE, 4096), Ok(full));
}

#[test]
fn page_strides() {
    let page = 16_384;
    let decoded = |stride_bytes: u32, used_bytes: u32| {
        let header = PageHeader { stride_bytes, used_bytes, ..samples::page_header() };
        PageHeader::decode(&header.encode(), NONCE, page).map(|_| ())
    };
    assert_eq!(decoded(16_384, 16_384), Ok(()));
    assert_eq!(decoded(12_288, 12_288), Ok(()));
    let used = FormatError::Damaged { what: "used bytes of a page" };
    assert_eq!(decoded(12_288, 12_352), Err(used), "it would reach into the next page");
    for stride_bytes in [8192, 12_288 + 64, 20_480, u32::MAX] {
        let stride = FormatError::Damaged { what: "stride of a page" };
        assert_eq!(decoded(stride_bytes, 192), Err(stride), "{stride_bytes}");
    }
}

#[test]
fn page_record_count() {
    let page = samples::page();
    let header = PageHeader::decode(&page, NONCE, 4096).unwrap();
    assert_eq!(header.records(&page).filter(Result::is_ok).count(), 4);
    let lying = PageHeader { record_count: 3, ..header };
    let last = lying.records(&page).last().unwrap();
    assert_eq!(last, Err(RecordError::Count { expected: 3, found: 4 }));
    let long = PageHeader { used_bytes: header.used_bytes + 64, ..header };
    assert_eq!(long.records(&page).last(), Some(Err(RecordError::NotARecord)));
    let short = PageHeader { used_bytes: header.used_bytes - 64, ..header };
    let last = short.records(&page).last();
    assert_eq!(last, Some(Err(RecordError::Short { need: 128, have: 64 })));
}

#[test]
fn tables_of_lives() {
    let block = samples::lives().encode();
    let decode = |first, segments| LifeBlock::decode(&block, NONCE, first, segments);
    assert_eq!(decode(408, 2), Ok(samples::lives()));
    // A volume that ends sooner has no entries behind its last segment.
    assert!(matches!(decode(408, 1), Err(FormatError::Damaged { .. })));
    assert!(matches!(decode(0, 2), Err(FormatError::Damaged { .. })));
    assert_eq!(decode(408, 408).map(|block| block.entries.len()), Ok(408));
    let full = LifeBlock { entries: vec![samples::lives().entries[1]; 408], ..samples::lives() };
    assert_eq!(LifeBlock::decode(&full.encode(), NONCE, 408, 408), Ok(full));
}

#[test]
fn footers_and_entries() {
    let footer = samples::footer();
    let refused = |footer: SegmentFooter| {
        let error = SegmentFooter::decode(&footer.encode(), NONCE, SEGMENT).unwrap_err();
        assert!(matches!(error, FormatError::Damaged { .. }), "{footer:?}: {error}");
    };
    refused(SegmentFooter { entry_count: 3, ..footer });
    refused(SegmentFooter { entry_count: u32::MAX, ..footer });
    refused(SegmentFooter { summary_offset: footer.summary_offset + 32, ..footer });
    refused(SegmentFooter { group_run_count: 3, ..footer });
    refused(SegmentFooter { object_bytes: u64::MAX, ..footer });
    refused(SegmentFooter { segment_seq: 0, ..footer });
    for page_stride_bytes in [0, 64, 4160, 2 << 20] {
        refused(SegmentFooter { page_stride_bytes, ..footer });
    }
    assert!(SegmentFooter::decode(&footer.encode(), NONCE, 4095).is_err());
    let entry = samples::summary()[0];
    let limit = u64::from(footer.summary_offset);
    let refused = |entry: SummaryEntry| {
        assert!(SummaryEntry::decode(&entry.encode(), limit).is_err(), "{entry:?}");
    };
    refused(SummaryEntry { offset_units: u32::MAX, ..entry });
    refused(SummaryEntry { stored_units: u32::MAX, ..entry });
    refused(SummaryEntry { stored_units: 1, ..entry });
    let skipped = SummaryEntry { kind: None, stored_units: 0, ..entry };
    assert_eq!(SummaryEntry::decode(&skipped.encode(), limit), Ok(skipped));
}

#[test]
fn journals() {
    let record = |op| JournalRecord { op, epoch: 1, seq: 1 };
    let mut out = Vec::new();
    for len in [0, 65_536] {
        let long = record(JournalOp::PurgePrefix { prefix: vec![0; len] });
        assert!(long.encode_into(NONCE, &mut out).is_err());
        assert!(out.is_empty());
    }
    let longest = record(JournalOp::PurgePrefix { prefix: vec![1; 65_535] });
    longest.encode_into(NONCE, &mut out).unwrap();
    assert_eq!(JournalRecord::decode(&out, NONCE), Ok((longest, 65_536 + 32)));
    // A prefix whose cells did not all reach the disk.
    assert!(JournalRecord::decode(&out[..65_536], NONCE).is_err());
    for (at, byte) in [(8, 0), (8, 6), (9, 1), (10, 1)] {
        let mut cell = samples::journal_bytes()[..32].to_vec();
        cell[at] = byte;
        let crc = crc32c::crc32c(&cell[4..]);
        cell[..4].copy_from_slice(&crc.to_le_bytes());
        let error = JournalRecord::decode(&cell, NONCE).unwrap_err();
        assert!(matches!(error, FormatError::Damaged { .. }), "byte {at} = {byte}: {error}");
    }
}

#[test]
fn checkpoints() {
    let header = samples::checkpoint();
    let refused = |header: CheckpointHeader| {
        let error = CheckpointHeader::decode(&header.encode(), NONCE, SLOT).unwrap_err();
        assert!(matches!(error, FormatError::Damaged { .. }), "{header:?}: {error}");
    };
    refused(CheckpointHeader { tables_bytes: header.tables_bytes + 1, ..header });
    refused(CheckpointHeader { segment_count: u32::MAX, ..header });
    refused(CheckpointHeader { shard_bytes: 0, ..header });
    refused(CheckpointHeader { shard_bytes: 4097, ..header });
    refused(CheckpointHeader { shard_bytes: 1 << 30, ..header });
    refused(CheckpointHeader { index_slots: 0, ..header });
    refused(CheckpointHeader { location_bits: 0, ..header });
    refused(CheckpointHeader { location_bits: 39, ..header });
    refused(CheckpointHeader { index_slots: 513, ..header });
    refused(CheckpointHeader { index_slots: u64::MAX, ..header });
    let tables_bytes = |marks: u32| 3 * (8 + 2) + marks * 32 + 4;
    let with_marks = |mark_count| {
        let tables_bytes = tables_bytes(mark_count);
        CheckpointHeader { mark_count, tables_bytes, ..header }
    };
    refused(with_marks(65_537));
    let most = with_marks(65_536);
    assert_eq!(CheckpointHeader::decode(&most.encode(), NONCE, SLOT), Ok(most));
    let exact = header.total_bytes();
    assert!(CheckpointHeader::decode(&header.encode(), NONCE, exact).is_ok());
    assert!(CheckpointHeader::decode(&header.encode(), NONCE, exact - 1).is_err());
}

/// A minimum at which the segment table takes a block more than it does for an empty volume.
#[test]
fn minimum_volume_counts_its_own_segment_table() {
    let request = PlanRequest {
        volume_bytes: 0,
        volume_index: 0,
        page_bytes: 4096,
        segment_bytes: 16_384,
        index_slots: 512,
        journal_bytes: 32 << 20,
        total_segments: 0,
    };
    let plan = |volume_bytes| VolumeLayout::plan(&PlanRequest { volume_bytes, ..request });
    let Err(LayoutError::TooSmall { minimum_bytes, .. }) = plan(0) else { panic!("it fits") };
    assert_eq!(plan(minimum_bytes).map(|layout| layout.segment_count), Ok(4));
    assert!(plan(minimum_bytes - 1).is_err());
}

#[test]
fn layout_sizes() {
    let good = PlanRequest {
        volume_bytes: 1 << 40,
        volume_index: 0,
        page_bytes: 16_384,
        segment_bytes: 32 << 20,
        index_slots: 1 << 20,
        journal_bytes: 1 << 20,
        total_segments: 0,
    };
    assert!(VolumeLayout::plan(&good).is_ok());
    let error = |request| VolumeLayout::plan(&request).unwrap_err();
    let page = error(PlanRequest { page_bytes: 100, ..good });
    assert_eq!(page, LayoutError::PageSize { page_bytes: 100 });
    let segment = error(PlanRequest { segment_bytes: 0, ..good });
    assert_eq!(segment, LayoutError::SegmentSize { segment_bytes: 0 });
    let slots = error(PlanRequest { index_slots: 0, ..good });
    assert_eq!(slots, LayoutError::IndexSlots { index_slots: 0 });
    for journal_bytes in [0, u64::MAX, 1 << 51] {
        let journal = error(PlanRequest { journal_bytes, ..good });
        assert_eq!(journal, LayoutError::JournalSize { journal_bytes });
    }
    let many = error(PlanRequest { volume_bytes: u64::MAX, ..good });
    assert!(matches!(many, LayoutError::TooManySegments { .. }));
}

#[test]
fn manifests() {
    let good = samples::manifest();
    let refused = |change: &dyn Fn(&mut ManifestPart)| {
        let mut manifest = good.clone();
        change(&mut manifest.parts[0]);
        manifest.total_len = manifest.parts.iter().map(|p| u64::from(p.value_len)).sum();
        let decoded = manifest.encode().and_then(|bytes| Manifest::decode(&bytes, SEGMENT));
        assert!(matches!(decoded, Err(FormatError::Damaged { .. })), "{manifest:?}");
    };
    refused(&|part| part.value_len = 0);
    refused(&|part| part.value_len = SEGMENT as u32);
    refused(&|part| part.offset_units = 65);
    refused(&|part| part.offset_units = u32::MAX - 63);
    refused(&|part| part.segment_seq = 0);
    assert!(Manifest { total_len: 1, ..good.clone() }.encode().is_err());
    assert!(Manifest { total_len: 0, parts: vec![] }.encode().is_err());
    let bytes = good.encode().unwrap();
    for at in [8, 12] {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        assert!(Manifest::decode(&bytes, SEGMENT).is_err(), "byte {at}");
    }
}
