//! Off-line verification of every byte of a store that carries a checksum.
//!
//! Data that does not decode is reported as damage in two cases: it begins like a structure of this
//! store except for a few bits, or it lies where only zeros or such a structure may be. Areas that
//! were never written, were cleared, or hold data of a former life are not damage. A write cut off
//! by a power loss cannot be told from damage. The check opens the volumes without starting an
//! engine and changes nothing; `segment` checks one segment. One thread.

mod segment;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::device::{Device, OpenOptions};
use crate::error::OpenError;
use crate::format::{
    BLOCK_BYTES, CheckpointHeader, CheckpointTables, FORMAT_VERSION, FormatError,
    JOURNAL_CELL_BYTES, JOURNAL_PARTS, JournalRecord, JournalWalk, LIVES_PER_BLOCK, LifeBlock,
    SUPERBLOCK_BYTES, StoreNonce, Superblock,
};
use crate::memory::mapped::AlignedBuf;
use crate::open::{all_there, check_belong, check_paths, is_zero, not_cut, read_superblocks};

/// Progress of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckProgress {
    /// Bytes verified.
    pub done_bytes: u64,
    /// Bytes to verify.
    pub total_bytes: u64,
}

/// State of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentState {
    /// Holds nothing.
    Free,
    /// Full, with a valid footer.
    Sealed,
    /// Was being filled when the store stopped.
    Open,
    /// The footer, the summary or the first header differs from what was written.
    Damaged,
}

/// Findings in one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentReport {
    /// Segment number, counted over all volumes.
    pub id: u32,
    /// State of the segment.
    pub state: SegmentState,
    /// Sequence number of the segment's current life; zero if free.
    pub seq: u64,
    /// Undamaged records: objects, including replaced and deleted ones, and parts of objects.
    pub records: u64,
    /// Bytes of these records.
    pub record_bytes: u64,
    /// Records and page headers whose checksum is wrong.
    pub damaged_records: u64,
    /// Descriptions of the damage, at most sixteen.
    pub damaged: Vec<String>,
}

/// Findings of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Every segment, in order.
    pub segments: Vec<SegmentReport>,
    /// Valid superblock copies of all volumes (two each).
    pub superblocks_ok: u32,
    /// Expected number of superblock copies.
    pub superblocks_total: u32,
    /// Description of the newest valid checkpoint.
    pub checkpoint: String,
    /// Records in the journal.
    pub journal_records: u64,
    /// Damaged records, page headers, footers, summaries, journal records, checkpoints, blocks of
    /// the tables of lives and superblock copies.
    pub damaged_total: u64,
    /// Descriptions of the damage outside of segments, at most sixteen.
    pub damaged: Vec<String>,
}

impl CheckReport {
    fn complain(&mut self, text: String) {
        self.damaged_total += 1;
        if self.damaged.len() < COMPLAINTS_MAX {
            self.damaged.push(text);
        }
    }
}

const COMPLAINTS_MAX: usize = 16;

/// Verifies a closed store. `paths` are its volumes, in order.
///
/// # Errors
/// A volume cannot be opened (it may be in use), holds no store, or is shorter than it was made, so
/// that no store can be opened on it; or the paths are not all volumes of one store in their order.
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
        damaged: Vec::new(),
    };
    check_paths(&paths.iter().map(PathBuf::as_path).collect::<Vec<_>>(), true)?;
    let (mut devices, mut found) = (Vec::new(), Vec::new());
    for path in paths {
        let options = OpenOptions { writes: false, ..OpenOptions::new(path) };
        let device = crate::device::open(&options)?.device;
        found.push((path.as_path(), check_superblocks(path, device.as_ref(), &mut report)?));
        devices.push((path, device));
    }
    if found.iter().all(|(_, superblock)| superblock.is_none()) {
        return Err(OpenError::Missing { path: paths.first().cloned().unwrap_or_default() });
    }
    let all = devices.into_iter().zip(all_there(found)?);
    let volumes: Vec<_> = all.map(|((path, device), of)| (path, device, of)).collect();
    check_belong(volumes.iter().map(|(path, _, superblock)| (path.as_path(), superblock)))?;
    for (path, device, superblock) in &volumes {
        not_cut(path, device.as_ref(), superblock)?;
    }
    let total_bytes =
        volumes.iter().map(|(_, _, s)| u64::from(s.segment_count) * s.segment_bytes).sum();
    let (mut done_bytes, mut is_closed) = (0, false);
    for (path, device, superblock) in &volumes {
        if superblock.journal_bytes > 0 {
            is_closed = check_first_areas(path, device, superblock, &mut report);
        }
        // A crash may tear a block, which the next open puts right.
        if is_closed {
            check_lives(path, device.as_ref(), superblock, &mut report);
        }
        for local in 0..superblock.segment_count {
            let segment = segment::check_segment(device.as_ref(), superblock, local);
            report.damaged_total +=
                segment.damaged_records + u64::from(segment.state == SegmentState::Damaged);
            report.segments.push(segment);
            done_bytes += superblock.segment_bytes;
            progress(CheckProgress { done_bytes, total_bytes });
        }
    }
    Ok(report)
}

/// What cannot be read is damage like any other.
fn read_or_complain(
    path: &Path,
    device: &dyn Device,
    at: u64,
    len: u64,
    what: &str,
    report: &mut CheckReport,
) -> Option<AlignedBuf> {
    let mut buf = AlignedBuf::zeroed(len as usize);
    match device.read_at(at, &mut buf) {
        Ok(()) => Some(buf),
        Err(error) => {
            report.complain(format!("{}: {what}: {error}", path.display()));
            None
        }
    }
}

/// The superblock of a volume; `None` if there is nothing in its place.
fn check_superblocks(
    path: &Path,
    device: &dyn Device,
    report: &mut CheckReport,
) -> Result<Option<Superblock>, OpenError> {
    if device.info().size_bytes < 2 * BLOCK_BYTES {
        return Err(OpenError::NotOurs { path: path.to_owned() });
    }
    let (both, mut unread) = read_superblocks(device);
    if unread.iter().all(Option::is_none) && is_zero(&both) {
        return Ok(None);
    }
    let mut good = None;
    let mut last = FormatError::NotOurs;
    for (number, copy) in both.chunks_exact(SUPERBLOCK_BYTES).enumerate() {
        let of = || format!("{}: {} superblock", path.display(), ["first", "second"][number % 2]);
        match (&unread[number], Superblock::decode(copy)) {
            (Some(error), _) => report.complain(format!("{} cannot be read: {error}", of())),
            (None, Ok(superblock)) => {
                report.superblocks_ok += 1;
                good = Some(superblock);
            }
            (None, Err(error)) => {
                report.complain(format!("{}: {error}", of()));
                last = error;
            }
        }
    }
    if good.is_none()
        && let Some(source) = unread.iter_mut().find_map(Option::take)
    {
        let (path, doing) = (path.to_owned(), "reading the superblock");
        return Err(OpenError::Io { path, doing, source });
    }
    good.map(Some).ok_or_else(|| match last {
        FormatError::NotOurs => OpenError::NotOurs { path: path.to_owned() },
        FormatError::OtherVersion { found } => {
            OpenError::Version { path: path.to_owned(), found, expected: FORMAT_VERSION }
        }
        error => OpenError::Damaged { path: path.to_owned(), reason: error.to_string() },
    })
}

/// Journal and checkpoints. True if the store was closed, and not written to since.
fn check_first_areas(
    path: &Path,
    device: &Arc<dyn Device>,
    superblock: &Superblock,
    report: &mut CheckReport,
) -> bool {
    let half_bytes = superblock.journal_bytes / JOURNAL_PARTS;
    let parts: Vec<Option<AlignedBuf>> = (0..JOURNAL_PARTS)
        .map(|part| superblock.journal_offset + part * half_bytes)
        .map(|at| read_or_complain(path, device.as_ref(), at, half_bytes, "journal", report))
        .collect();
    if let [first0, first1, second0, second1] = &parts[..] {
        check_journal_half(0, [first0, second0], superblock.nonce(), report);
        check_journal_half(1, [first1, second1], superblock.nonce(), report);
    }
    let mut newest: Option<CheckpointHeader> = None;
    for slot in 0..2 {
        let found = check_checkpoint(path, device.as_ref(), superblock, slot, report);
        newest = newest.into_iter().chain(found).max_by_key(|header| header.generation);
    }
    if let Some(header) = newest {
        let how = if header.clean { "clean" } else { "while running" };
        report.checkpoint = format!("generation {}, taken {how}", header.generation);
    }
    newest.is_some_and(|header| header.clean)
}

/// Verifies each block of a volume's table of lives.
fn check_lives(
    path: &Path,
    device: &dyn Device,
    superblock: &Superblock,
    report: &mut CheckReport,
) {
    for number in 0..superblock.segment_count.div_ceil(LIVES_PER_BLOCK) {
        let (at, before, segments) = superblock.layout().lives_block(number);
        let first = superblock.first_segment + before;
        let what = "table of lives";
        let Some(block) = read_or_complain(path, device, at, BLOCK_BYTES, what, report) else {
            continue;
        };
        if let Err(error) = LifeBlock::decode(&block, superblock.nonce(), first, segments) {
            let path = path.display();
            report.complain(format!("{path}: table of lives, from segment {first}: {error}"));
        }
    }
}

/// Counts the records of a half up to its end, and checks every cell of both copies. Cells after
/// the end hold zeros, or records of a former life, whose prefixes may be any bytes.
fn check_journal_half(
    number: u32,
    copies: [&Option<AlignedBuf>; 2],
    nonce: StoreNonce,
    report: &mut CheckReport,
) {
    let copies = copies.map(Option::as_deref);
    let count =
        |copy: Option<&[u8]>| copy.map_or(0, |copy| JournalWalk::half(copy, nonce).count() as u64);
    let counts = copies.map(count);
    let most = counts[0].max(counts[1]);
    report.journal_records += most;
    for (copy, (half, count)) in copies.into_iter().zip(counts).enumerate() {
        let Some(half) = half else { continue };
        let complaints = report.damaged_total;
        check_journal_cells(half, nonce, report, &format!("half {number}, copy {copy}"));
        // A death of the process leaves the last record in the first copy only.
        if count + 1 < most && report.damaged_total == complaints {
            let of = format!("journal half {number}, copy {copy}");
            report.complain(format!("{of}: {count} of the {most} records that the other has"));
        }
    }
}

fn check_journal_cells(half: &[u8], nonce: StoreNonce, report: &mut CheckReport, place: &str) {
    let mut at = 0;
    while let Some(rest) = half.get(at..).filter(|rest| rest.len() >= JOURNAL_CELL_BYTES) {
        match JournalRecord::decode(rest, nonce) {
            Ok((_, length)) => at += length,
            Err(error) => {
                if JournalRecord::is_like(rest, nonce) {
                    report.complain(format!("journal record at {at} of {place}: {error}"));
                }
                at += JOURNAL_CELL_BYTES;
            }
        }
    }
}

/// The header of the checkpoint in a slot, if there is one.
fn check_checkpoint(
    path: &Path,
    device: &dyn Device,
    superblock: &Superblock,
    slot: usize,
    report: &mut CheckReport,
) -> Option<CheckpointHeader> {
    let layout = superblock.layout();
    let at = layout.checkpoint_slot(slot);
    let what = format!("checkpoint slot {slot}");
    let read =
        |at, len, report: &mut CheckReport| read_or_complain(path, device, at, len, &what, report);
    let block = read(at, BLOCK_BYTES, report)?;
    // Cleared when the store was made, and before each checkpoint is written.
    if block.iter().all(|byte| *byte == 0) {
        return None;
    }
    let header = match CheckpointHeader::decode(&block, superblock.nonce(), layout.checkpoint_bytes)
    {
        Ok(header) => header,
        Err(error) => {
            report.complain(format!("header of checkpoint slot {slot}: {error}"));
            return None;
        }
    };
    let tables_bytes = u64::from(header.tables_bytes).next_multiple_of(BLOCK_BYTES);
    let tables = match CheckpointTables::decode(
        &read(at + header.tables_offset(), tables_bytes, report)?,
        &header,
    ) {
        Ok(tables) => tables,
        Err(error) => {
            report.complain(format!("tables of checkpoint slot {slot}: {error}"));
            return None;
        }
    };
    for number in 0..header.shard_count {
        let Some(offset) = header.shard_offset(number) else { continue };
        let bytes = u64::from(header.shard_bytes);
        let Some(shard) = read(at + offset, bytes, report) else { continue };
        if tables.shard_crcs.get(number as usize) != Some(&crc32c::crc32c(&shard)) {
            report.complain(format!("shard {number} of checkpoint slot {slot}: wrong checksum"));
        }
    }
    Some(header)
}

#[cfg(test)]
mod tests;
