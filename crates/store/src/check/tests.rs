//! One bit is flipped in every structure of a store, one after the other: each must be found.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use crate::format::{PAGE_HEADER_BYTES, PageHeader, RecordHeader, SegmentFooter, VolumeLayout};
use crate::{ByteSize, Config, GroupId, Store, WriterOptions};

const SEGMENT: usize = 256 << 10;
const PAGE: usize = 16 << 10;

/// The image of a store that was cut off while it ran, with everything in it that there can be.
fn image(dir: &Path) -> Vec<u8> {
    let path = dir.join("store");
    let mut config = Config::new(&path, ByteSize::new(16 << 20));
    config.memory = ByteSize::new(4 << 20);
    config.page = Some(ByteSize::new(PAGE as u64));
    config.segment = Some(ByteSize::new(SEGMENT as u64));
    config.checkpoint_period = Duration::ZERO;
    let store = Store::open(config).unwrap();
    let create = |key: u64, length: usize| {
        store.create(&key.to_le_bytes(), GroupId::new(key % 3), &vec![7; length]).wait().unwrap();
    };
    (0..600).for_each(|key| create(key, 1000));
    (1000..1040).for_each(|key| create(key, 20_000));
    let mut writer = store.writer(b"large", GroupId::new(1), WriterOptions::default()).unwrap();
    writer.write(&vec![9; 400_000]).wait().unwrap();
    writer.commit().wait().unwrap();
    store.sync().unwrap();
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    store.purge_prefix(b"no such key, and a long one so that it takes more than a cell").unwrap();
    store.remove(&7_u64.to_le_bytes()).unwrap();
    (600..640).for_each(|key| create(key, 1000));
    store.sync().unwrap();
    // The store may be writing a checkpoint of its own accord: not when it has two.
    let slots = |image: &[u8]| [0, 1].map(|slot| superblock(image).layout().checkpoint_slot(slot));
    let has_both = |image: &[u8]| slots(image).iter().all(|at| image[*at as usize] != 0);
    let mut image = fs::read(&path).unwrap();
    loop {
        std::thread::sleep(Duration::from_millis(10));
        let before = std::mem::replace(&mut image, fs::read(&path).unwrap());
        if has_both(&image) && before == image {
            break;
        }
    }
    store.close().unwrap();
    image
}

fn superblock(image: &[u8]) -> Superblock {
    Superblock::decode(image).unwrap()
}

fn checked(path: &PathBuf) -> CheckReport {
    check_volumes(std::slice::from_ref(path), &mut |_| {}).unwrap()
}

/// Name and bytes of each structure.
type Places = Vec<(String, std::ops::Range<usize>)>;

/// Where the structures of a segment are.
fn segment_places(image: &[u8], first: &Superblock, number: usize, places: &mut Places) {
    let at = first.segments_offset as usize + number * SEGMENT;
    let segment = &image[at..at + SEGMENT];
    let nonce = first.nonce();
    let footer_at = SEGMENT - BLOCK_BYTES as usize;
    let footer = SegmentFooter::decode(&segment[footer_at..], nonce, SEGMENT as u64);
    let kind = if footer.is_ok() { "sealed" } else { "open" };
    if let Ok(footer) = &footer {
        places.push((format!("footer {number}"), at + footer_at..at + footer_at + 64));
        let summary = at + footer.summary_offset as usize;
        places.push((format!("summary {number}"), summary..at + footer_at));
    }
    let Ok(head) = PageHeader::decode(segment, nonce, PAGE as u32) else { return };
    let extents = head.record_count == 0;
    let step = if extents { SEGMENT } else { PAGE };
    for start in (0..SEGMENT).step_by(step) {
        let Ok(page) = PageHeader::decode(&segment[start..], nonce, PAGE as u32) else { break };
        let what = if extents { "lead of extents" } else { "page header" };
        places
            .push((format!("{kind} {what} {number}"), at + start..at + start + PAGE_HEADER_BYTES));
        let mut record = start + if extents { BLOCK_BYTES as usize } else { PAGE_HEADER_BYTES };
        let end = if extents { footer_at } else { start + page.used_bytes as usize };
        while record < end
            && let Ok(header) = RecordHeader::decode(&segment[record..], nonce)
        {
            let (begin, bytes) = (at + record, header.stored_bytes() as usize);
            let what = if extents { "extent" } else { "record" };
            places.push((format!("{kind} {what} header {number}"), begin..begin + 64));
            let value = begin + header.value_range().start..begin + header.value_range().end;
            places.push((format!("{kind} {what} head {number}"), begin + 64..value.start));
            places.push((format!("{kind} {what} value {number}"), value));
            let align = if extents { BLOCK_BYTES as usize } else { 64 };
            record += bytes.next_multiple_of(align);
        }
    }
}

fn first_places(image: &[u8], first: &Superblock) -> Places {
    let layout: VolumeLayout = first.layout();
    let block = BLOCK_BYTES as usize;
    let mut places: Places = vec![
        ("superblock, first".to_owned(), 0..block),
        ("superblock, second".to_owned(), block..2 * block),
    ];
    for (copy, half) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let (at, bytes) = layout.journal_half(copy, half);
        let half_bytes = &image[at as usize..(at + bytes) as usize];
        let mut walk = JournalWalk::half(half_bytes, first.nonce());
        let mut start = 0;
        while walk.next().is_some() {
            let record = at as usize + start..at as usize + walk.offset();
            places.push((format!("journal record {half}"), record));
            start = walk.offset();
        }
    }
    for slot in 0..2 {
        let at = layout.checkpoint_slot(slot) as usize;
        let header = CheckpointHeader::decode(&image[at..], first.nonce(), layout.checkpoint_bytes);
        let header = header.unwrap();
        let shards = at + header.shard_offset(0).unwrap() as usize;
        places.push((format!("checkpoint header {slot}"), at..at + block));
        let tables = at + header.tables_offset() as usize;
        let tables = tables..tables + header.tables_bytes as usize;
        places.push((format!("checkpoint tables {slot}"), tables));
        places.push((
            format!("checkpoint shard {slot}"),
            shards..shards + header.shard_bytes as usize,
        ));
    }
    places
}

#[test]
fn a_flipped_bit_in_any_structure_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    let first = superblock(&image);
    let copy = dir.path().join("copy");
    fs::write(&copy, &image).unwrap();
    let report = checked(&copy);
    assert_eq!((report.damaged_total, &report.damaged), (0, &Vec::new()), "{report:?}");
    let mut places = first_places(&image, &first);
    (0..first.segment_count as usize)
        .for_each(|number| segment_places(&image, &first, number, &mut places));
    for wanted in [
        "journal record",
        "checkpoint shard",
        "footer",
        "summary",
        "sealed page header",
        "sealed record value",
        "sealed extent value",
        "sealed lead",
        "open page header",
        "open record header",
        "open lead",
        "open extent header",
    ] {
        assert!(places.iter().any(|(name, _)| name.starts_with(wanted)), "no {wanted}");
    }
    let file = fs::File::options().write(true).open(&copy).unwrap();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut seen = std::collections::HashMap::<String, u32>::new();
    rng.shuffle(&mut places);
    for (name, bytes) in places.into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
        // A few of each kind, at their ends and somewhere between.
        let kind = name.trim_end_matches(char::is_numeric).to_owned();
        let times = seen.entry(kind).or_default();
        *times += 1;
        if *times > 3 {
            continue;
        }
        for at in [bytes.start, rng.usize(bytes.clone()), bytes.end - 1] {
            let flipped = image[at] ^ 1 << rng.u8(0..8);
            file.write_all_at(&[flipped], at as u64).unwrap();
            let report = checked(&copy);
            let by_place =
                report.segments.iter().map(|segment| segment.damaged.len()).sum::<usize>()
                    + report.damaged.len();
            assert!(report.damaged_total > 0 && by_place > 0, "{name}: bit at {at} was not found");
            file.write_all_at(&image[at..=at], at as u64).unwrap();
        }
    }
}

#[test]
fn a_damaged_table_of_lives_of_a_closed_store_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    Store::open(Config::new(&path, ByteSize::new(64 << 20))).unwrap().close().unwrap();
    assert_eq!(checked(&path).damaged_total, 0);
    let at = superblock(&fs::read(&path).unwrap()).layout().lives_offset();
    fs::File::options().write(true).open(&path).unwrap().write_all_at(&[1], at + 700).unwrap();
    let report = checked(&path);
    assert_eq!(report.damaged_total, 1);
    assert!(report.damaged[0].contains("table of lives, from segment 0"), "{report:?}");
}

#[test]
fn what_another_store_left_on_a_device_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let old = image(dir.path());
    let path = dir.path().join("device");
    let mut random = vec![0; 16 << 20];
    fastrand::Rng::with_seed(3).fill(&mut random);
    for left in [old, random] {
        fs::write(&path, left).unwrap();
        let mut config = Config::new(&path, ByteSize::new(16 << 20));
        config.volumes[0].size = None;
        config.anew = true;
        config.memory = ByteSize::new(4 << 20);
        config.page = Some(ByteSize::new(PAGE as u64));
        config.segment = Some(ByteSize::new(SEGMENT as u64));
        let store = Store::open(config).unwrap();
        store.create(b"key", GroupId::new(1), b"value").wait().unwrap();
        store.close().unwrap();
        let report = checked(&path);
        assert_eq!(report.damaged_total, 0, "{:?}", report.damaged);
        assert_eq!(report.segments.iter().map(|s| s.records).sum::<u64>(), 1);
    }
}

#[test]
fn another_version_of_the_format_is_named_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    drop(Store::open(Config::new(&path, ByteSize::new(64 << 20))).unwrap());
    let mut image = fs::read(&path).unwrap();
    for copy in image[..2 * BLOCK_BYTES as usize].chunks_exact_mut(BLOCK_BYTES as usize) {
        copy[8] += 1;
        let crc_at = copy.len() - 4;
        let crc = crc32c::crc32c(&copy[..crc_at]);
        copy[crc_at..].copy_from_slice(&crc.to_le_bytes());
    }
    fs::write(&path, image).unwrap();
    let error = check_volumes(&[path], &mut |_| {}).unwrap_err();
    let OpenError::Version { found, expected, .. } = error else { panic!("{error}") };
    assert_eq!((found, expected), (FORMAT_VERSION + 1, FORMAT_VERSION));
}
