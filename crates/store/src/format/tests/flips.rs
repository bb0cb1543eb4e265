//! Every single-bit error of every structure is detected.
//!
//! Threads: none.

use super::samples::{self, NONCE, SEGMENT, SLOT};
use crate::format::{
    CheckpointHeader, CheckpointTables, JournalRecord, JournalWalk, LifeBlock, PageHeader,
    RecordHeader, RecordKind, RecordWalk, SegmentFooter, Superblock, decode_summary, verify_body,
    verify_chunks, verify_head,
};

/// Asserts that `detects` is false for the bytes and true once any one bit of them is flipped.
fn every_flip(bytes: &[u8], detects: impl Fn(&[u8]) -> bool) {
    let mut bytes = bytes.to_vec();
    assert!(!detects(&bytes), "the sample itself is refused");
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(detects(&bytes), "flip of bit {} of byte {}", bit % 8, bit / 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn superblock() {
    every_flip(&samples::superblock().encode(), |bytes| Superblock::decode(bytes).is_err());
}

#[test]
fn checkpoint() {
    let header = samples::checkpoint();
    every_flip(&header.encode(), |bytes| CheckpointHeader::decode(bytes, NONCE, SLOT).is_err());
    let tables = samples::tables_bytes();
    every_flip(&tables, |bytes| CheckpointTables::decode(bytes, &header).is_err());
}

#[test]
fn record_headers() {
    let records =
        [samples::object(), samples::part(), samples::manifest_record(), samples::patch()];
    for record in records {
        every_flip(&record[..64], |bytes| RecordHeader::decode(bytes, NONCE).is_err());
    }
}

#[test]
fn record_bodies() {
    for record in [samples::object(), samples::manifest_record(), samples::patch()] {
        let header = RecordHeader::decode(&record, NONCE).unwrap();
        let end = header.value_range().end;
        every_flip(&record[64..end], |body| {
            !verify_body(&header, &[&record[..64], body].concat())
                || !verify_head(&header, &[&record[..64], body].concat())
        });
    }
}

#[test]
fn chunked_bodies() {
    let record = samples::record(&samples::fields(RecordKind::Part, 1), b"meta", &[7; 300]);
    let header = RecordHeader::decode(&record, NONCE).unwrap();
    let value = header.value_range();
    every_flip(&record[64..value.end], |body| {
        !verify_body(&header, &[&record[..64], body].concat())
    });
    every_flip(&record[64..value.start], |head| {
        !verify_head(&header, &[&record[..64], head].concat())
    });
    every_flip(&record[value], |bytes| !verify_chunks(&header, &record, 0, bytes));
}

#[test]
fn page() {
    every_flip(&samples::page()[..64], |bytes| PageHeader::decode(bytes, NONCE, 4096).is_err());
}

#[test]
fn record_walk() {
    let record = samples::object();
    every_flip(&record[..64], |header| {
        let page = [&record, header, &record[64..]].concat();
        let end = page.len() as u32;
        let items: Vec<_> = RecordWalk::new(&page, 0, end, NONCE, samples::LIFE).collect();
        items.len() == 2 && items[0].is_ok() && items[1].is_err()
    });
}

#[test]
fn segment() {
    let footer = samples::footer();
    every_flip(&footer.encode()[..64], |bytes| {
        SegmentFooter::decode(bytes, NONCE, SEGMENT).is_err()
    });
    every_flip(&samples::summary_bytes(), |bytes| decode_summary(bytes, &footer).is_err());
}

#[test]
fn lives() {
    let block = samples::lives().encode();
    every_flip(&block, |bytes| LifeBlock::decode(bytes, NONCE, 408, 2).is_err());
}

#[test]
fn journal() {
    let mut at = 0;
    let bytes = samples::journal_bytes();
    for record in samples::journal() {
        let cells = &bytes[at..at + record.encoded_len()];
        every_flip(cells, |bytes| JournalRecord::decode(bytes, NONCE).is_err());
        at += cells.len();
    }
    every_flip(&bytes, |bytes| JournalWalk::half(bytes, NONCE).count() < 5);
}
