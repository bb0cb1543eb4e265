//! Seeded mutations of valid bytes, for every decoder: a small fuzzer that runs with the tests.
//!
//! Each of 20,000 inputs per decoder is a valid sample that is flipped, overwritten, cut or
//! extended; half of them get a fresh checksum afterwards, so that the checks behind the checksum
//! are reached. Invariants tested: no panic; nothing is accepted whose checksum is wrong; whatever
//! is accepted encodes to the very bytes it was decoded from.
//!
//! Threads: none.

use fastrand::Rng;

use super::samples::{self, NONCE, SEGMENT, SLOT};
use crate::format::{
    CheckpointHeader, CheckpointTables, JournalRecord, JournalWalk, LifeBlock, Manifest,
    PageHeader, Patch, RecordHeader, RecordWalk, SegmentFooter, SummaryEntry, Superblock,
    decode_summary, encode_summary, verify_body, verify_chunks, verify_head,
};

const ROUNDS: usize = 20_000;

/// Numbers that break arithmetic.
const EDGES: [u64; 12] = [
    0,
    1,
    63,
    64,
    4095,
    65_537,
    1 << 20,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 40,
    u64::MAX - 63,
    u64::MAX,
];

fn mutate(rng: &mut Rng, sample: &[u8]) -> Vec<u8> {
    let mut bytes = sample.to_vec();
    for _ in 0..rng.usize(1..4) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.usize(..bytes.len());
        match rng.u8(..10) {
            0..4 => bytes[at] ^= 1 << rng.u8(..8),
            4 => bytes[at] = rng.u8(..),
            5..8 => {
                let width = [1, 2, 4, 8][rng.usize(..4)];
                let at = at / width * width;
                let edge = EDGES[rng.usize(..EDGES.len())].to_le_bytes();
                let end = bytes.len().min(at + width);
                bytes[at..end].copy_from_slice(&edge[..end - at]);
            }
            8 => bytes.truncate(at),
            _ => bytes.extend_from_within(at..),
        }
    }
    bytes
}

/// Stores at `at` the checksum of `range`, if the bytes reach that far.
fn reseal(bytes: &mut [u8], range: std::ops::Range<usize>, at: usize) {
    if let Some(crc) = bytes.get(range).map(crc32c::crc32c)
        && let Some(place) = bytes.get_mut(at..at + 4)
    {
        place.copy_from_slice(&crc.to_le_bytes());
    }
}

/// Runs `check` on mutated samples, half of which were resealed.
fn fuzz(samples: &[Vec<u8>], reseal: impl Fn(&mut [u8]), mut check: impl FnMut(&[u8])) {
    let mut rng = Rng::with_seed(0xda3e_1000);
    for round in 0..ROUNDS {
        let mut bytes = mutate(&mut rng, &samples[round % samples.len()]);
        if rng.bool() {
            reseal(&mut bytes);
        }
        check(&bytes);
    }
}

/// Whether the last four bytes of `len` are the checksum of those before.
fn sealed(bytes: &[u8], len: usize) -> bool {
    bytes[len - 4..len] == crc32c::crc32c(&bytes[..len - 4]).to_le_bytes()
}

#[test]
fn superblock() {
    // Mutating the zeros is dull: most inputs are mutated where the fields are.
    let sample = samples::superblock().encode();
    let head = sample[..136].to_vec();
    fuzz(
        &[head, sample.to_vec()],
        |_| (),
        |bytes| {
            let mut bytes = bytes.to_vec();
            if bytes.len() == 136 {
                bytes.resize(4096, 0);
                reseal(&mut bytes, 0..4092, 4092);
            }
            if let Ok(superblock) = Superblock::decode(&bytes) {
                assert!(sealed(&bytes, 4096));
                assert_eq!(superblock.encode(), bytes[..4096]);
                assert_eq!(superblock.validate(), Ok(()));
            }
            let _ = Superblock::decode_either(&bytes);
        },
    );
}

#[test]
fn checkpoint_header() {
    let sample = samples::checkpoint().encode();
    fuzz(
        &[sample[..72].to_vec(), sample.to_vec()],
        |_| (),
        |bytes| {
            let mut bytes = bytes.to_vec();
            if bytes.len() == 72 {
                bytes.resize(4096, 0);
                reseal(&mut bytes, 0..4092, 4092);
            }
            if let Ok(header) = CheckpointHeader::decode(&bytes, NONCE, SLOT) {
                assert!(sealed(&bytes, 4096));
                assert_eq!(header.encode(), bytes[..4096]);
                assert!(header.total_bytes() <= SLOT);
                let _ = header.shard_offset(u32::MAX);
                let _ = CheckpointTables::decode(&bytes, &header);
            }
        },
    );
}

#[test]
fn checkpoint_tables() {
    let header = samples::checkpoint();
    fuzz(
        &[samples::tables_bytes()],
        |_| (),
        |bytes| {
            // Any header that passes its own checksum may come with any tables.
            let tables_crc = crc32c::crc32c(bytes);
            let length = bytes.len() as u32;
            let lying = CheckpointHeader { tables_crc, tables_bytes: length, ..header };
            if let Ok(tables) = CheckpointTables::decode(bytes, &lying) {
                assert_eq!(tables.encode(lying), Ok((bytes.to_vec(), lying)));
            }
            if CheckpointTables::decode(bytes, &header).is_ok() {
                assert_eq!(crc32c::crc32c(&bytes[..66]), header.tables_crc);
            }
        },
    );
}

#[test]
fn record() {
    let records =
        [samples::object(), samples::part(), samples::manifest_record(), samples::patch()];
    fuzz(
        &records,
        |bytes| reseal(bytes, 0..60, 60),
        |bytes| {
            let Ok(header) = RecordHeader::decode(bytes, NONCE) else { return };
            assert!(sealed(bytes, 64));
            assert_eq!(header.encode(), bytes[..64]);
            assert!(header.stored_bytes() as usize >= header.value_range().end);
            assert!(header.key_range().end == header.meta_range().start);
            let whole = verify_body(&header, bytes);
            assert!(!whole || verify_head(&header, bytes));
            assert!(!whole || header.value_range().end <= bytes.len());
            let _ = verify_chunks(&header, bytes, 0, bytes);
            let _ = verify_chunks(&header, bytes, u64::MAX, bytes);
        },
    );
}

#[test]
fn page_walk() {
    let page = samples::page();
    let used = 64 + page[64..].chunks(64).rposition(|unit| unit.iter().any(|b| *b != 0)).unwrap();
    let mut walked = 0;
    fuzz(
        &[page[..64 * (used + 1).min(64)].to_vec(), page.clone()],
        |bytes| {
            reseal(bytes, 0..60, 60);
            reseal(bytes, 64..124, 124);
        },
        |bytes| {
            if let Ok(header) = PageHeader::decode(bytes, NONCE, 4096) {
                assert!(sealed(bytes, 64));
                assert_eq!(header.encode(), bytes[..64]);
                check_walk(header.records(bytes), bytes, header.used_bytes);
                walked += 1;
            }
            let end = u32::MAX;
            check_walk(RecordWalk::new(bytes, 64, end, NONCE, samples::LIFE), bytes, end);
            let _ = RecordWalk::new(bytes, end, end, NONCE, samples::LIFE).count();
        },
    );
    assert!(walked > ROUNDS / 4);
}

/// Asserts that a walk ends, advances, stays inside, and yields at most one error, at the end.
fn check_walk(walk: RecordWalk<'_>, bytes: &[u8], end: u32) {
    let mut next = 64;
    let mut failed = false;
    for item in walk {
        assert!(!failed, "an item after an error");
        match item {
            Ok((offset, header)) => {
                assert_eq!(u64::from(offset), next);
                next += header.stored_bytes();
                assert!(next <= u64::from(end) && next <= bytes.len() as u64);
            }
            Err(_) => failed = true,
        }
    }
}

#[test]
fn footer() {
    let sample = samples::footer().encode()[..64].to_vec();
    fuzz(
        &[sample],
        |bytes| reseal(bytes, 0..60, 60),
        |bytes| {
            if let Ok(footer) = SegmentFooter::decode(bytes, NONCE, SEGMENT) {
                assert!(sealed(bytes, 64));
                assert_eq!(footer.encode()[..64], bytes[..64]);
                let _ = decode_summary(bytes, &footer);
            }
        },
    );
}

#[test]
fn lives() {
    fuzz(
        &[samples::lives().encode().to_vec()],
        |bytes| reseal(bytes, 0..4092, 4092),
        |bytes| {
            if let Ok(block) = LifeBlock::decode(bytes, NONCE, 408, 2) {
                assert_eq!(block.encode(), bytes[..4096]);
            }
        },
    );
}

#[test]
fn summary() {
    let footer = samples::footer();
    fuzz(
        &[samples::summary_bytes()],
        |_| (),
        |bytes| {
            let crc = crc32c::crc32c(bytes);
            let lying = SegmentFooter {
                summary_crc: crc,
                summary_bytes: bytes.len() as u32,
                entry_count: (bytes.len() / 32) as u32,
                ..footer
            };
            if let Ok(entries) = decode_summary(bytes, &lying) {
                assert_eq!(encode_summary(&entries), bytes);
                let end = |entry: &SummaryEntry| entry.offset_units + entry.stored_units;
                assert!(entries.iter().all(|entry| end(entry) * 64 <= footer.summary_offset));
            }
            if decode_summary(bytes, &footer).is_ok() {
                assert_eq!(crc32c::crc32c(&bytes[..64]), footer.summary_crc);
            }
        },
    );
}

#[test]
fn journal() {
    fuzz(
        &[samples::journal_bytes(), samples::journal_bytes()[96..].to_vec()],
        |bytes| reseal(bytes, 4..32, 0),
        |bytes| {
            if let Ok((record, length)) = JournalRecord::decode(bytes, NONCE) {
                assert_eq!(crc32c::crc32c(&bytes[4..32]).to_le_bytes(), bytes[..4]);
                let mut again = Vec::new();
                record.encode_into(NONCE, &mut again).unwrap();
                assert_eq!(again, bytes[..length]);
            }
            let mut walk = JournalWalk::half(bytes, NONCE);
            let records = walk.by_ref().count();
            assert!(records * 32 <= walk.offset() && walk.offset() <= bytes.len());
            assert!(walk.offset() == bytes.len() || walk.ended_by().is_some());
        },
    );
}

#[test]
fn manifest_and_patch() {
    fuzz(
        &[samples::manifest().encode().unwrap()],
        |_| (),
        |bytes| {
            if let Ok(manifest) = Manifest::decode(bytes, SEGMENT) {
                assert_eq!(manifest.encode().unwrap(), bytes);
            }
            if let Ok(patch) = Patch::decode(bytes) {
                assert_eq!(patch.encode(), bytes);
            }
        },
    );
}
