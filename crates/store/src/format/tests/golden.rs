//! Golden bytes: the format as hex, so that a change of it cannot go unnoticed.
//!
//! The constants were computed from the byte tables by an independent program, not by the codecs.
//! Whoever has to change one changes the format and needs a new `FORMAT_VERSION`.
//!
//! Threads: none.

use super::samples;
use crate::format::{LifeBlock, PageHeader, RecordHeader, SegmentFooter, Superblock};

/// The superblock up to its zeros.
const SUPERBLOCK: &str = "\
    44414d454c4f0001050000000040000000000002000000006400000000000200\
    0000000000000000000102030405060708090a0b0c0d0e0f0000000001000000\
    0000100000000000887766554433221100000100000000000000100000000000\
    00001100000000000000c0000000000000000002000000000000004000000000\
    00f1536500000000";

/// The last four bytes of the superblock.
const SUPERBLOCK_CRC: &str = "b06f58a1";

/// A plain object with an expiry.
const OBJECT: &str = "\
    44454c4f00010203010102000500000001000000946818360600000000000000\
    08070605040302010900000000000000070000000000000000d2496b85d42e3f\
    6b65796d76616c75652100000000000000000000000000000000000000000000\
    0000000000000000000000000000000000000000000000000000000000000000";

/// A part, hence with a chunk table.
const PART: &str = "\
    44454c4f0001020303020200050000000000000000bf27710600000000000000\
    08070605040302010a000000000000000700000000000000000000006c012bf7\
    19dedcf26b657976616c75652100000000000000000000000000000000000000\
    0000000000000000000000000000000000000000000000000000000000000000";

/// A patch with its value.
const PATCH: &str = "\
    44454c4f00010203040002000500000003000000f6ce86421000000000000000\
    08070605040302010c00000000000000070000000000000000000000b9aba81a\
    6b65796e65773412000000000000090000000000000000000000000000000000\
    0000000000000000000000000000000000000000000000000000000000000000";

/// The value of a manifest of two parts.
const MANIFEST: &str = "\
    7511010000000000020000000000010005000000000000000300000040000000\
    7011010000000000060000000000000004000000800000000500000000000000";

/// A page header.
const PAGE: &str = "\
    504147450001020305000000000000000300000001000000c000000000100000\
    07000000000000000000000000000000000000000000000000000000f284da12";

/// Two summary entries.
const SUMMARY: &str = "\
    0807060504030201070000000000000009000000000000000100000002000001\
    181716151413121107000000000000000a000000000000004000000002010003";

/// A segment footer.
const FOOTER: &str = "\
    464f4f540001020303000000020000000500000000000000c0ef0f0040000000\
    ead091a701000000004100000000000000100000000000000000000052e9a728";

/// The table of lives of a free segment and one that is not, up to its zeros.
const LIVES: &str = "\
    0001020398010000000000000000000000000000000005000000000000000301";

/// Its last four bytes.
const LIVES_CRC: &str = "595dc1bc";

/// One journal record of each kind, the prefix with its payload cells.
const JOURNAL: &str = "\
    1705dfe800010203010000000400000008070605040302011400000000000000\
    8f16201500010203020000000400000007000000000000001500000000000000\
    709fd7a100010203030000000400000000000000000000001600000000000000\
    07dd5202000102030400220004000000d56af017000000001700000000000000\
    68747470733a2f2f6578616d706c652e6f72672f612f6c6f6e672f7072656669\
    782f000000000000000000000000000000000000000000000000000000000000\
    4d97e5d000010203050000000400000003000000000000001800000000000000";

/// The tables region of a checkpoint.
const TABLES: &str = "\
    0000000000000000050000000000000006000000000000000100020003018f16\
    201500010203020000000400000007000000000000001500000000000000efbe\
    adde";

/// A checkpoint header up to its zeros.
const CHECKPOINT: &str = "\
    434b505400010203030000000000000019000000000000000600000000000000\
    00020000000000000100000000100000030000000100000015e8278142000000\
    010e";

/// The last four bytes of the checkpoint header.
const CHECKPOINT_CRC: &str = "5c4a8077";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

/// Asserts that a 4096-byte block is a head, zeros and a checksum.
fn assert_block(block: &[u8; 4096], head: &str, crc: &str) {
    let used = head.len() / 2;
    assert_eq!(hex(&block[..used]), head);
    assert!(block[used..4092].iter().all(|byte| *byte == 0));
    assert_eq!(hex(&block[4092..]), crc);
}

#[test]
fn blocks_are_golden() {
    assert_block(&samples::superblock().encode(), SUPERBLOCK, SUPERBLOCK_CRC);
    assert_block(&samples::checkpoint().encode(), CHECKPOINT, CHECKPOINT_CRC);
    assert_eq!(hex(&samples::tables_bytes()), TABLES);
}

#[test]
fn records_are_golden() {
    assert_eq!(hex(&samples::object()), OBJECT);
    assert_eq!(hex(&samples::part()), PART);
    assert_eq!(hex(&samples::patch()), PATCH);
    assert_eq!(hex(&samples::manifest().encode().unwrap()), MANIFEST);
}

#[test]
fn segments_are_golden() {
    assert_eq!(hex(&samples::page_header().encode()), PAGE);
    assert_eq!(hex(&samples::summary_bytes()), SUMMARY);
    let block = samples::footer().encode();
    assert_eq!(hex(&block[..64]), FOOTER);
    assert!(block[64..].iter().all(|byte| *byte == 0));
}

#[test]
fn lives_are_golden() {
    let block = samples::lives().encode();
    assert_eq!(hex(&block[..32]), LIVES);
    assert!(block[32..4092].iter().all(|byte| *byte == 0));
    assert_eq!(hex(&block[4092..]), LIVES_CRC);
}

#[test]
fn journal_is_golden() {
    assert_eq!(hex(&samples::journal_bytes()), JOURNAL);
}

#[test]
fn golden_bytes_decode() {
    let mut block = unhex(SUPERBLOCK);
    block.resize(4092, 0);
    block.extend(unhex(SUPERBLOCK_CRC));
    assert_eq!(Superblock::decode(&block), Ok(samples::superblock()));
    let header = RecordHeader::decode(&unhex(OBJECT), samples::NONCE).unwrap();
    assert_eq!((header.seq, header.group, header.expires_s), (9, 7, 1_800_000_000));
    let page = PageHeader::decode(&unhex(PAGE), samples::NONCE, 4096);
    assert_eq!(page, Ok(samples::page_header()));
    let footer = SegmentFooter::decode(&unhex(FOOTER), samples::NONCE, 1 << 20);
    assert_eq!(footer, Ok(samples::footer()));
    let mut block = unhex(LIVES);
    block.resize(4092, 0);
    block.extend(unhex(LIVES_CRC));
    assert_eq!(LifeBlock::decode(&block, samples::NONCE, 408, 2), Ok(samples::lives()));
}
