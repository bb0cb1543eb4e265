//! Off-line verification: every byte of a store that carries a checksum.
//!
//! Opens the volumes without starting an engine and changes nothing. One thread.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::device::{Device, OpenOptions};
use crate::error::OpenError;
use crate::format::{
    BLOCK_BYTES, CheckpointHeader, CheckpointTables, FormatError, PAGE_HEADER_BYTES, PageHeader,
    RecordHeader, RecordWalk, SegmentFooter, StoreNonce, Superblock, decode_summary,
};
use crate::memory::mapped::AlignedBuf;
use crate::read::verify_record;

/// How far a check has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckProgress {
    /// Bytes verified.
    pub done_bytes: u64,
    /// Bytes to verify.
    pub total_bytes: u64,
}

/// What a segment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentState {
    /// Holds nothing.
    Free,
    /// Full, with a valid footer.
    Sealed,
    /// Was being filled when the store stopped.
    Open,
    /// Has a footer or summary that is not what was written.
    Damaged,
}

/// What was found in one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentReport {
    /// Number, counted over all volumes.
    pub id: u32,
    /// What it is.
    pub state: SegmentState,
    /// Its life's sequence number; zero if free.
    pub seq: u64,
    /// Undamaged records.
    pub objects: u64,
    /// Bytes of these records.
    pub object_bytes: u64,
    /// Records whose checksum is wrong.
    pub damaged_records: u64,
    /// What is wrong, in words, at most sixteen.
    pub damaged: Vec<String>,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckReport {
    /// Every segment, in order.
    pub segments: Vec<SegmentReport>,
    /// Valid superblock copies of all volumes (two each).
    pub superblocks_ok: u32,
    /// Superblock copies there should be.
    pub superblocks_total: u32,
    /// The newest valid checkpoint, in words.
    pub checkpoint: String,
    /// Records in the journal.
    pub journal_records: u64,
    /// Damaged records, footers, summaries, checkpoints and superblock copies.
    pub damaged_total: u64,
}

const COMPLAINTS_MAX: usize = 16;

/// Verifies a closed store. `paths` are its volumes, in order.
///
/// # Errors
/// A volume cannot be opened (it may be in use), or holds no store; these are not all volumes of one
/// store in their order.
pub fn check_volumes(
    paths: &[PathBuf],
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport, OpenError> {
    let mut report = CheckReport {
        segments: Vec::new(),
        superblocks_ok: 0,
        superblocks_total: 2 * paths.len() as u32,
        checkpoint: "none".to_owned(),
        journal_records: 0,
        damaged_total: 0,
    };
    let mut volumes = Vec::new();
    for path in paths {
        if !path.exists() {
            return Err(OpenError::Missing { path: path.clone() });
        }
        let device = crate::device::open(&OpenOptions::new(path))?.device;
        let superblock = check_superblocks(path, device.as_ref(), &mut report)?;
        volumes.push((path, device, superblock));
    }
    for (index, (path, _, superblock)) in volumes.iter().enumerate() {
        if !superblock.is_volume(index, paths.len(), &volumes[0].2) {
            return Err(OpenError::WrongVolume { path: (*path).clone(), index });
        }
    }
    let total_bytes =
        volumes.iter().map(|(_, _, s)| u64::from(s.segment_count) * s.segment_bytes).sum();
    let mut done_bytes = 0;
    for (path, device, superblock) in &volumes {
        if superblock.journal_bytes > 0 {
            check_first_areas(path, device, superblock, &mut report)?;
        }
        for local in 0..superblock.segment_count {
            let segment = check_segment(device.as_ref(), superblock, local);
            report.damaged_total +=
                segment.damaged_records + u64::from(segment.state == SegmentState::Damaged);
            report.segments.push(segment);
            done_bytes += superblock.segment_bytes;
            progress(CheckProgress { done_bytes, total_bytes });
        }
    }
    Ok(report)
}

fn read(
    path: &Path,
    device: &dyn Device,
    at: u64,
    len: u64,
    doing: &'static str,
) -> Result<AlignedBuf, OpenError> {
    let mut buf = AlignedBuf::zeroed(len as usize);
    device.read_at(at, &mut buf).map_err(|source| OpenError::Io {
        path: path.to_owned(),
        doing,
        source,
    })?;
    Ok(buf)
}

fn check_superblocks(
    path: &Path,
    device: &dyn Device,
    report: &mut CheckReport,
) -> Result<Superblock, OpenError> {
    if device.info().size_bytes < 2 * BLOCK_BYTES {
        return Err(OpenError::NotOurs { path: path.to_owned() });
    }
    let both = read(path, device, 0, 2 * BLOCK_BYTES, "reading the superblock")?;
    let mut good = None;
    let mut last = FormatError::NotOurs;
    for copy in both.chunks_exact(BLOCK_BYTES as usize) {
        match Superblock::decode(copy) {
            Ok(superblock) => {
                report.superblocks_ok += 1;
                good = Some(superblock);
            }
            Err(error) => {
                report.damaged_total += 1;
                last = error;
            }
        }
    }
    good.ok_or_else(|| match last {
        FormatError::NotOurs => OpenError::NotOurs { path: path.to_owned() },
        error => OpenError::Damaged { path: path.to_owned(), reason: error.to_string() },
    })
}

fn check_first_areas(
    path: &Path,
    device: &Arc<dyn Device>,
    superblock: &Superblock,
    report: &mut CheckReport,
) -> Result<(), OpenError> {
    let nonce = superblock.nonce();
    let area = read(
        path,
        device.as_ref(),
        superblock.journal_offset,
        superblock.journal_bytes,
        "reading the journal",
    )?;
    for half in area.chunks_exact((superblock.journal_bytes / 2) as usize) {
        report.journal_records += crate::format::JournalWalk::half(half, nonce).count() as u64;
    }
    let layout = superblock.layout();
    let mut newest: Option<CheckpointHeader> = None;
    for slot in 0..2 {
        let at = layout.checkpoint_slot(slot);
        let block = read(path, device.as_ref(), at, BLOCK_BYTES, "reading a checkpoint")?;
        let Ok(header) = CheckpointHeader::decode(&block, nonce, layout.checkpoint_bytes) else {
            continue;
        };
        let len = u64::from(header.tables_bytes).next_multiple_of(BLOCK_BYTES);
        let tables =
            read(path, device.as_ref(), at + header.tables_offset(), len, "reading a checkpoint")?;
        let Ok(tables) = CheckpointTables::decode(&tables, &header) else {
            report.damaged_total += 1;
            continue;
        };
        for number in 0..header.shard_count {
            let Some(offset) = header.shard_offset(number) else { continue };
            let shard = read(
                path,
                device.as_ref(),
                at + offset,
                u64::from(header.shard_bytes),
                "reading a checkpoint",
            )?;
            if tables.shard_crcs.get(number as usize) != Some(&crc32c::crc32c(&shard)) {
                report.damaged_total += 1;
            }
        }
        if newest.is_none_or(|n| n.generation < header.generation) {
            newest = Some(header);
        }
    }
    if let Some(header) = newest {
        let how = if header.clean { "clean" } else { "while running" };
        report.checkpoint = format!("generation {}, taken {how}", header.generation);
    }
    Ok(())
}

fn check_segment(device: &dyn Device, superblock: &Superblock, local: u32) -> SegmentReport {
    let mut report = SegmentReport {
        id: superblock.first_segment + local,
        state: SegmentState::Free,
        seq: 0,
        objects: 0,
        object_bytes: 0,
        damaged_records: 0,
        damaged: Vec::new(),
    };
    let mut image = AlignedBuf::zeroed(superblock.segment_bytes as usize);
    let at = superblock.segments_offset + u64::from(local) * superblock.segment_bytes;
    if let Err(error) = device.read_at(at, &mut image) {
        report.state = SegmentState::Damaged;
        report.damaged.push(format!("cannot be read: {error}"));
        return report;
    }
    let nonce = superblock.nonce();
    let footer_at = image.len() - BLOCK_BYTES as usize;
    match SegmentFooter::decode(&image[footer_at..], nonce, superblock.segment_bytes) {
        Ok(footer) => check_sealed(&image, &footer, nonce, &mut report),
        Err(_) => check_open(&image, superblock, &mut report),
    }
    report
}

fn complain(report: &mut SegmentReport, text: String) {
    report.damaged_records += 1;
    if report.damaged.len() < COMPLAINTS_MAX {
        report.damaged.push(text);
    }
}

fn check_record(image: &[u8], at: usize, nonce: StoreNonce, report: &mut SegmentReport) {
    let bytes = &image[at.min(image.len())..];
    match RecordHeader::decode(bytes, nonce) {
        Ok(header)
            if header.stored_bytes() <= bytes.len() as u64 && verify_record(&header, bytes) =>
        {
            report.objects += 1;
            report.object_bytes += header.stored_bytes();
        }
        Ok(_) => complain(report, format!("record at {at}: checksum of its body is wrong")),
        Err(error) => complain(report, format!("record at {at}: {error}")),
    }
}

fn check_sealed(
    image: &[u8],
    footer: &SegmentFooter,
    nonce: StoreNonce,
    report: &mut SegmentReport,
) {
    report.state = SegmentState::Sealed;
    report.seq = footer.segment_seq;
    match decode_summary(&image[footer.summary_offset as usize..], footer) {
        Ok(entries) => {
            for entry in entries {
                check_record(image, entry.offset_units as usize * 64, nonce, report);
            }
        }
        Err(error) => {
            report.state = SegmentState::Damaged;
            report.damaged.push(format!("summary: {error}"));
        }
    }
}

fn check_open(image: &[u8], superblock: &Superblock, report: &mut SegmentReport) {
    let (nonce, page_bytes) = (superblock.nonce(), superblock.page_bytes);
    let Ok(first) = PageHeader::decode(image, nonce, page_bytes) else { return };
    report.state = SegmentState::Open;
    report.seq = first.segment_seq;
    if first.record_count == 0 {
        let mut at = BLOCK_BYTES as usize;
        while let Ok(header) = RecordHeader::decode(&image[at.min(image.len())..], nonce) {
            if header.seq < first.primary_group {
                break;
            }
            check_record(image, at, nonce, report);
            at += header.stored_bytes().next_multiple_of(BLOCK_BYTES) as usize;
        }
        return;
    }
    for (index, page) in image.chunks_exact(page_bytes as usize).enumerate() {
        let Ok(header) = PageHeader::decode(page, nonce, page_bytes) else { continue };
        if header.segment_seq != first.segment_seq {
            continue;
        }
        let walk = RecordWalk::new(page, PAGE_HEADER_BYTES as u32, header.used_bytes, nonce);
        for record in walk {
            match record {
                Ok((offset, _)) => {
                    check_record(
                        image,
                        index * page_bytes as usize + offset as usize,
                        nonce,
                        report,
                    );
                }
                Err(error) => complain(report, format!("page {index}: {error}")),
            }
        }
    }
}
