//! Fuzzes the record decoder and the body checks. Threads: none.
#![no_main]

mod common;

use common::{NONCE, flip_one, raw_and_sealed};
use damelo::format::{
    CHUNK_BYTES, ChunkCrcs, RecordFields, RecordHeader, encode_record_into, verify_body,
    verify_chunks, verify_head,
};
use libfuzzer_sys::fuzz_target;

/// Where things are, and that nothing reaches beyond the record.
fn check_ranges(header: &RecordHeader) {
    let (key, meta, value) = (header.key_range(), header.meta_range(), header.value_range());
    assert_eq!((header.table_range().end, key.end, meta.end), (key.start, meta.start, value.start));
    assert_eq!(key.len() as u64, u64::from(header.key_len));
    assert_eq!(meta.len() as u64, u64::from(header.meta_len));
    assert_eq!(value.len() as u64, header.value_len);
    let gap = header.stored_bytes() - value.end as u64;
    assert!(gap < 64 && header.stored_bytes() % 64 == 0);
}

/// The bytes with the checksums of their body repaired, if the record is there to its end.
fn with_body_sealed(header: &RecordHeader, bytes: &[u8]) -> Option<(RecordHeader, Vec<u8>)> {
    let mut bytes = bytes.get(..header.value_range().end)?.to_vec();
    let mut crcs = ChunkCrcs::new();
    crcs.update(&bytes[header.value_range()]);
    for (cell, crc) in bytes[header.table_range()].chunks_mut(4).zip(crcs.finish()) {
        cell.copy_from_slice(&crc.to_le_bytes());
    }
    let end = if header.chunked { header.head_bytes() as usize } else { bytes.len() };
    let header = RecordHeader { body_crc: crc32c::crc32c(&bytes[64..end]), ..*header };
    bytes[..64].copy_from_slice(&header.encode());
    Some((header, bytes))
}

/// A whole record is what its fields encode to, and a bit that turned over is noticed.
fn check_whole(header: &RecordHeader, mut bytes: Vec<u8>) {
    assert!(verify_body(header, &bytes) && verify_head(header, &bytes));
    let RecordHeader { nonce, kind, chunked, hash, seq, group, expires_s, .. } = *header;
    let fields = RecordFields { nonce, kind, chunked, hash, seq, group, expires_s };
    let (key, meta, value) =
        (&bytes[header.key_range()], &bytes[header.meta_range()], &bytes[header.value_range()]);
    let mut again = vec![0xaa; header.stored_bytes() as usize];
    let stored = encode_record_into(&mut again, &fields, key, meta, value);
    assert_eq!(stored, Ok(again.len()));
    // It gets its place in a segment after that.
    let RecordHeader { segment_seq_low, .. } = *header;
    let placed =
        RecordHeader::decode(&again, nonce).map(|new| RecordHeader { segment_seq_low, ..new });
    again[..64].copy_from_slice(&placed.expect("it has just been encoded").encode());
    assert!(again.starts_with(&bytes) && again[bytes.len()..].iter().all(|byte| *byte == 0));
    if header.chunked {
        let last = header.value_len / CHUNK_BYTES;
        let from = header.value_range().start + (last * CHUNK_BYTES) as usize;
        assert!(verify_chunks(header, &bytes, last, &bytes[from..]));
    }
    flip_one(&mut bytes[64..]);
    assert!(!verify_body(header, &bytes));
}

fuzz_target!(|data: &[u8]| {
    raw_and_sealed(data, 0..60, 60, |bytes| {
        let Ok(header) = RecordHeader::decode(bytes, NONCE) else { return };
        assert_eq!(header.encode(), bytes[..64]);
        check_ranges(&header);
        assert!(!verify_body(&header, bytes) || verify_head(&header, bytes));
        let _ = verify_chunks(&header, bytes, 0, bytes);
        let _ = verify_chunks(&header, bytes, u64::MAX, bytes);
        if let Some((header, bytes)) = with_body_sealed(&header, bytes) {
            check_whole(&header, bytes);
        }
    });
});
