//! Holds the byte tables and limits of `docs/format.md` to the code.
//!
//! A section is what stands between `<!-- begin NAME -->` and `<!-- end NAME -->`. With
//! `DAMELO_BLESS=1` the test writes the sections instead of comparing them.
//!
//! Threads: none.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::format::fields::Field;
use crate::format::{
    self, checkpoint, journal, lives, manifest, page, patch, record, segment, superblock,
};

fn find_doc() -> PathBuf {
    let start = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut places = start.ancestors().map(|dir| dir.join("docs/format.md"));
    places.find(|path| path.is_file()).expect("docs/format.md in a parent of the crate")
}

fn table(fields: &[Field]) -> String {
    let mut text = String::from("| offset | size | field | why |\n|---:|---:|---|---|\n");
    for Field { name, offset, size, why } in fields {
        let why = why.replace('|', "\\|");
        writeln!(text, "| {offset} | {size} | `{name}` | {why} |").unwrap();
    }
    text
}

fn limits() -> String {
    let rows = [
        ("FORMAT_VERSION", u64::from(format::FORMAT_VERSION)),
        ("UNIT_BYTES", format::UNIT_BYTES),
        ("BLOCK_BYTES", format::BLOCK_BYTES),
        ("AREAS_OFFSET", format::AREAS_OFFSET),
        ("INDEX_SLOT_BYTES", format::INDEX_SLOT_BYTES),
        ("INDEX_SLOTS_MAX", format::INDEX_SLOTS_MAX),
        ("PAGE_MIN_BYTES", u64::from(format::PAGE_MIN_BYTES)),
        ("PAGE_BYTES_MAX", u64::from(format::PAGE_BYTES_MAX)),
        ("SEGMENT_BYTES_MAX", format::SEGMENT_BYTES_MAX),
        ("SEGMENTS_MIN", u64::from(format::SEGMENTS_MIN)),
        ("SEGMENTS_MAX", u64::from(format::SEGMENTS_MAX)),
        ("KEY_BYTES_MAX", u64::from(format::KEY_BYTES_MAX)),
        ("META_BYTES_MAX", u64::from(format::META_BYTES_MAX)),
        ("VALUE_BYTES_MAX", format::VALUE_BYTES_MAX),
        ("CHUNK_BYTES", format::CHUNK_BYTES),
        ("MANIFEST_PARTS_MAX", u64::from(format::MANIFEST_PARTS_MAX)),
        ("PREFIX_BYTES_MAX", format::PREFIX_BYTES_MAX as u64),
        ("MARKS_MAX", u64::from(format::MARKS_MAX)),
    ];
    let mut text = String::from("| constant | value |\n|---|---:|\n");
    for (name, value) in rows {
        writeln!(text, "| `{name}` | {value} |").unwrap();
    }
    text
}

fn sections() -> Vec<(&'static str, String)> {
    vec![
        ("limits", limits()),
        ("superblock", table(superblock::at::FIELDS)),
        ("record", table(record::at::FIELDS)),
        ("manifest-head", table(manifest::head_at::FIELDS)),
        ("manifest-part", table(manifest::part_at::FIELDS)),
        ("patch", table(patch::at::FIELDS)),
        ("page", table(page::at::FIELDS)),
        ("footer", table(segment::footer_at::FIELDS)),
        ("summary-entry", table(segment::entry_at::FIELDS)),
        ("lives", table(lives::at::FIELDS)),
        ("life-entry", table(lives::entry_at::FIELDS)),
        ("journal", table(journal::at::FIELDS)),
        ("checkpoint", table(checkpoint::at::FIELDS)),
    ]
}

/// The document with the section replaced.
fn with_section(doc: &str, name: &str, text: &str) -> String {
    let (begin, end) = (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->"));
    assert_eq!(doc.matches(&begin).count(), 1, "{begin:?} has to occur once");
    let (head, rest) = doc.split_once(&begin).unwrap();
    let (_, tail) = rest.split_once(&end).expect("the section has an end");
    format!("{head}{begin}{text}{end}{tail}")
}

#[test]
fn doc_matches_code() {
    let path = find_doc();
    let doc = std::fs::read_to_string(&path).unwrap();
    let expected =
        sections().iter().fold(doc.clone(), |doc, (name, text)| with_section(&doc, name, text));
    assert_eq!(doc.matches("<!-- begin ").count(), sections().len(), "sections of the document");
    if std::env::var_os("DAMELO_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, &expected).unwrap();
    } else {
        assert!(doc == expected, "docs/format.md is out of date: run the test with DAMELO_BLESS=1");
    }
    let version = format::FORMAT_VERSION;
    let root = path.ancestors().nth(2).unwrap();
    for (file, said) in [
        ("docs/format.md", format!("# On-disk format, version {version}\n")),
        ("CHANGELOG.md", format!("On-disk format: version {version}.")),
        ("CHANGELOG.md", format!("\n- Version {version}, described byte by byte")),
        ("README.md", format!("The disk format is version {version},")),
    ] {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        assert!(text.contains(&said), "{file} does not say {said:?}");
    }
}
