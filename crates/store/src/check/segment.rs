//! One segment: its footer and summary, page headers, records.
//!
//! Invariant: a footer of zeros means that a segment is open, or was never opened; from its opening
//! on, a segment's last block holds either zeros or its footer. One thread.

use super::{COMPLAINTS_MAX, SegmentReport, SegmentState};
use crate::device::Device;
use crate::format::{
    BLOCK_BYTES, FormatError, PAGE_HEADER_BYTES, PageHeader, RecordError, RecordHeader, RecordWalk,
    SegmentFooter, StoreNonce, SummaryEntry, Superblock, UNIT_BYTES, decode_summary, verify_record,
};
use crate::memory::mapped::AlignedBuf;
use crate::types::SegmentLife;

pub(super) fn check_segment(
    device: &dyn Device,
    superblock: &Superblock,
    local: u32,
) -> SegmentReport {
    let mut report = SegmentReport {
        id: superblock.first_segment + local,
        state: SegmentState::Free,
        seq: 0,
        records: 0,
        record_bytes: 0,
        damaged_records: 0,
        damaged: Vec::new(),
    };
    let mut image = AlignedBuf::zeroed(superblock.segment_bytes as usize);
    let at = superblock.segments_offset + u64::from(local) * superblock.segment_bytes;
    if let Err(error) = device.read_at(at, &mut image) {
        return spoil(report, format!("cannot be read: {error}"));
    }
    let nonce = superblock.nonce();
    let block = &image[image.len() - BLOCK_BYTES as usize..];
    match SegmentFooter::decode(block, nonce, superblock.segment_bytes) {
        Ok(footer) => check_sealed(&image, &footer, superblock, report),
        Err(error) => {
            check_open(&image, superblock, &mut report);
            let was_footer = is_damaged_footer(block, &error, &report, nonce);
            if was_footer { spoil(report, format!("footer: {error}")) } else { report }
        }
    }
}

/// Whether a last block that does not decode as a footer was one.
fn is_damaged_footer(
    block: &[u8],
    error: &FormatError,
    report: &SegmentReport,
    nonce: StoreNonce,
) -> bool {
    if block.iter().all(|byte| *byte == 0) {
        return false;
    }
    let was_opened = report.state != SegmentState::Free;
    let is_others = matches!(error, FormatError::OtherStore { .. });
    was_opened || (!is_others && SegmentFooter::is_like(block, nonce))
}

/// Reports the whole segment as damaged.
fn spoil(mut report: SegmentReport, text: String) -> SegmentReport {
    report.state = SegmentState::Damaged;
    report.damaged.insert(0, text);
    report
}

fn complain(report: &mut SegmentReport, text: String) {
    report.damaged_records += 1;
    if report.damaged.len() < COMPLAINTS_MAX {
        report.damaged.push(text);
    }
}

/// Checks a record of the segment's life in the report.
fn check_record(image: &[u8], at: usize, nonce: StoreNonce, report: &mut SegmentReport) {
    let bytes = &image[at.min(image.len())..];
    match RecordHeader::decode(bytes, nonce) {
        Ok(header) if !header.is_of(SegmentLife::from_raw(report.seq)) => {
            complain(report, format!("record at {at}: {}", RecordError::OtherLife));
        }
        Ok(header)
            if header.stored_bytes() <= bytes.len() as u64 && verify_record(&header, bytes) =>
        {
            report.records += 1;
            report.record_bytes += header.stored_bytes();
        }
        Ok(_) => complain(report, format!("record at {at}: checksum of its body is wrong")),
        Err(error) => complain(report, format!("record at {at}: {error}")),
    }
}

fn check_sealed(
    image: &[u8],
    footer: &SegmentFooter,
    superblock: &Superblock,
    mut report: SegmentReport,
) -> SegmentReport {
    report.state = SegmentState::Sealed;
    report.seq = footer.segment_seq;
    if footer.segment_id != report.id {
        return spoil(report, format!("footer: of segment {}", footer.segment_id));
    }
    match decode_summary(&image[footer.summary_offset as usize..], footer) {
        Ok(entries) => {
            check_headers(image, footer, superblock, &entries, &mut report);
            for entry in entries.iter().filter(|entry| entry.kind.is_some()) {
                check_record(image, offset_of(entry), superblock.nonce(), &mut report);
            }
            report
        }
        Err(error) => spoil(report, format!("summary: {error}")),
    }
}

fn offset_of(entry: &SummaryEntry) -> usize {
    entry.offset_units as usize * UNIT_BYTES as usize
}

/// Checks the headers of the pages in which records begin. A segment of extents has one header,
/// before all records.
fn check_headers(
    image: &[u8],
    footer: &SegmentFooter,
    superblock: &Superblock,
    entries: &[SummaryEntry],
    report: &mut SegmentReport,
) {
    let first = entries.iter().map(offset_of).min().unwrap_or(image.len());
    let mut pages = vec![0];
    let stride = footer.page_stride_bytes as usize;
    if first < BLOCK_BYTES as usize {
        pages = entries.iter().map(|e| offset_of(e) / stride).collect();
        pages.sort_unstable();
        pages.dedup();
    }
    for page in pages {
        let at = page * stride;
        match PageHeader::decode(&image[at..], superblock.nonce(), superblock.page_bytes) {
            Ok(header) => {
                let life = header.segment_seq == footer.segment_seq;
                if !life || header.page_index as usize != page {
                    complain(report, format!("page {page}: another page, or of another life"));
                } else if header.stride_bytes != footer.page_stride_bytes {
                    complain(report, format!("page {page}: another stride than the footer's"));
                }
            }
            // An empty segment need not have one.
            Err(_) if entries.is_empty() => {}
            Err(error) => complain(report, format!("page {page}: {error}")),
        }
    }
}

fn check_open(image: &[u8], superblock: &Superblock, report: &mut SegmentReport) {
    let (nonce, page_bytes) = (superblock.nonce(), superblock.page_bytes);
    let decode = |page| PageHeader::decode(page, nonce, page_bytes);
    let first = decode(image);
    if let Ok(lead) = &first
        && lead.record_count == 0
    {
        return check_open_extents(image, lead, nonce, report);
    }
    // All pages of a life have one stride; without the first, those of the usual one are found.
    let stride = first.as_ref().map_or(page_bytes, |header| header.stride_bytes);
    let pages = || image.chunks_exact(stride as usize);
    // Pages of former lives have smaller numbers.
    let newest = pages().filter_map(|page| decode(page).ok()).map(|h| h.segment_seq).max();
    if let Some(newest) = newest {
        report.state = SegmentState::Open;
        report.seq = newest;
    }
    for (index, page) in pages().enumerate() {
        match decode(page) {
            Ok(header) if newest == Some(header.segment_seq) => {
                check_page(image, index, page, &header, report);
            }
            Ok(_) => {}
            // Never written, or extents of a former life.
            Err(_) if !PageHeader::is_like(page, nonce) => {}
            Err(error) if index == 0 => {
                // It may have been the header of a segment of extents, whose records cannot be
                // found then.
                report.state = SegmentState::Damaged;
                report.damaged.push(format!("first header: {error}"));
            }
            Err(error) => complain(report, format!("page {index}: {error}")),
        }
    }
}

fn check_page(
    image: &[u8],
    index: usize,
    page: &[u8],
    header: &PageHeader,
    report: &mut SegmentReport,
) {
    let start = index * page.len();
    let (first, end) = (PAGE_HEADER_BYTES as u32, header.used_bytes);
    for record in RecordWalk::new(page, first, end, header.nonce, header.segment_seq) {
        match record {
            Ok((offset, _)) => check_record(image, start + offset as usize, header.nonce, report),
            Err(error) => complain(report, format!("page {index}: {error}")),
        }
    }
}

/// Walks extents up to the first block where no record of this life begins. After a damaged header
/// the walk continues with the next valid one.
fn check_open_extents(
    image: &[u8],
    lead: &PageHeader,
    nonce: StoreNonce,
    report: &mut SegmentReport,
) {
    report.state = SegmentState::Open;
    report.seq = lead.segment_seq;
    let block = BLOCK_BYTES as usize;
    let is_current = |at: usize| {
        RecordHeader::decode(&image[at..], nonce).ok().filter(|header| header.is_of(lead.life()))
    };
    let mut at = block;
    while at < image.len() {
        if let Some(header) = is_current(at) {
            check_record(image, at, nonce, report);
            at += header.stored_bytes().next_multiple_of(BLOCK_BYTES) as usize;
            continue;
        }
        match RecordHeader::decode(&image[at..], nonce) {
            Err(error) if RecordHeader::is_like(&image[at..], nonce) => {
                complain(report, format!("record at {at}: {error}"));
            }
            _ => return,
        }
        at = (at + block..image.len())
            .step_by(block)
            .find(|at| is_current(*at).is_some())
            .unwrap_or(image.len());
    }
}
