//! Holds what the fuzz targets start from (`fuzz/seeds`) to the code: the samples, as bytes.
//!
//! With `DAMELO_BLESS=1` the test writes the files instead of comparing them.
//!
//! Threads: none.

use std::path::Path;

use super::samples::{self, NONCE, SEGMENT};
use crate::format::{FOOTER_BLOCK_BYTES, RecordFields, RecordKind, SUPERBLOCK_BYTES, Superblock};

/// Target, name and bytes of each seed; of whole blocks what is not zero.
fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let superblock = samples::superblock();
    let second = Superblock {
        volume_index: 1,
        first_segment: 100,
        journal_bytes: 0,
        checkpoint_offset: superblock.journal_offset,
        checkpoint_bytes: 0,
        ..superblock
    };
    let both = [&superblock.encode()[..SUPERBLOCK_BYTES - 4], &second.encode()[..136]].concat();
    let chunked = RecordFields { chunked: true, ..samples::fields(RecordKind::Object, 13) };
    let chunked = samples::record(&chunked, b"m", &[7; 300]);
    let footer: [u8; FOOTER_BLOCK_BYTES] = samples::footer().encode();
    let checkpoint = [&samples::checkpoint().encode()[..72], &samples::tables_bytes()].concat();
    let journal = samples::journal_bytes();
    let page = samples::page();
    let used = page.iter().rposition(|byte| *byte != 0).map_or(0, |last| (last / 64 + 1) * 64);
    vec![
        ("superblock", "first", superblock.encode()[..136].to_vec()),
        ("superblock", "second", second.encode()[..136].to_vec()),
        ("superblock", "both", both),
        ("record", "object", samples::object()),
        ("record", "part", samples::part()),
        ("record", "manifest", samples::manifest_record()),
        ("record", "patch", samples::patch()),
        ("record", "chunked", chunked),
        ("page_walk", "page", page[..used].to_vec()),
        ("summary", "segment", [&footer[..64], &samples::summary_bytes()].concat()),
        ("lives", "two", samples::lives().encode()[..32].to_vec()),
        ("journal", "half", journal.clone()),
        ("journal", "prefix", journal[96..192].to_vec()),
        ("checkpoint", "clean", checkpoint),
        ("manifest", "two_parts", samples::manifest().encode().unwrap()),
        ("manifest", "patch", samples::patch()[67..83].to_vec()),
        ("mend", "object", [&7_u32.to_le_bytes(), samples::object().as_slice()].concat()),
    ]
}

#[test]
fn the_fuzz_targets_start_from_the_samples() {
    assert_eq!((NONCE.0, SEGMENT), (0x0302_0100, 1 << 20), "what the targets say, too");
    let start = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut places = start.ancestors().map(|dir| dir.join("fuzz/seeds"));
    let place = places.find(|path| path.is_dir()).expect("fuzz/seeds in a parent of the crate");
    for (target, name, bytes) in seeds() {
        let path = place.join(target).join(name);
        if std::env::var_os("DAMELO_BLESS").is_some() {
            std::fs::create_dir_all(place.join(target)).expect("a directory of seeds");
            std::fs::write(&path, &bytes).expect("a seed");
        }
        let found = std::fs::read(&path).unwrap_or_default();
        assert!(found == bytes, "{target}/{name} is not the sample: see CONTRIBUTING.md");
    }
}
