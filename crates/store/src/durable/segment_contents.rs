//! Reading the contents of a segment on disk: from the summary that its footer vouches for, else by
//! walking its records.
//!
//! Invariants: records of other lives of the segment are ignored; nothing is changed. Used by
//! recovery, reuse of segments and the open segments. Threads: any.

use crate::engine::Engine;
use crate::format::{
    BLOCK_BYTES, FOOTER_BLOCK_BYTES, PAGE_HEADER_BYTES, PageHeader, RecordHeader, RecordWalk,
    SegmentFooter, SummaryEntry, UNIT_BYTES, decode_summary,
};
use crate::index::LengthClass;
use crate::memory::mapped::AlignedBuf;
use crate::space::SegmentId;
use crate::stats::add;
use crate::types::SegmentLife;

/// What is read of the end of a segment at first: the footer, and the summary of up to four
/// thousand objects.
const TAIL_BYTES: u64 = 128 << 10;

/// The entries of a segment: from its summary if it has one, else by walking it. `None` if it
/// cannot be read, or what it holds is of another life than the ring takes it for, as may be after
/// a loss of power.
pub(crate) fn segment_entries(engine: &Engine, segment: SegmentId) -> Option<Vec<SummaryEntry>> {
    entries_in_tail(engine, segment).or_else(|| entries_by_footer(engine, segment))
}

/// The same with one read, if the summary is not too long for that.
fn entries_in_tail(engine: &Engine, segment: SegmentId) -> Option<Vec<SummaryEntry>> {
    let start = engine.space.segment_bytes.saturating_sub(TAIL_BYTES);
    let mut tail = AlignedBuf::zeroed((engine.space.segment_bytes - start) as usize);
    engine.read_for_itself(segment, start, &mut tail).ok()?;
    let (before, block) = tail.split_at(tail.len() - FOOTER_BLOCK_BYTES);
    let is_current = |footer: &SegmentFooter| footer.life() == engine.ring.life(segment);
    let footer = footer_in(engine, segment, block).filter(is_current)?;
    summary_behind(before, start, &footer)
}

fn entries_by_footer(engine: &Engine, segment: SegmentId) -> Option<Vec<SummaryEntry>> {
    match read_footer(engine, segment) {
        Ok(Some(footer)) if footer.life() != engine.ring.life(segment) => None,
        Ok(Some(footer)) => {
            read_summary(engine, segment, &footer).or_else(|| walk_segment(engine, segment))
        }
        Ok(None) => walk_segment(engine, segment),
        Err(_) => None,
    }
}

/// The same, of a segment that was read as a whole.
pub(crate) fn entries_in(engine: &Engine, segment: SegmentId, image: &[u8]) -> Vec<SummaryEntry> {
    let (before, block) = image.split_at(image.len() - FOOTER_BLOCK_BYTES);
    let summary =
        footer_in(engine, segment, block).and_then(|footer| summary_behind(before, 0, &footer));
    summary.unwrap_or_else(|| walk_image(engine, image))
}

/// The summary in what lies before the footer, from the byte `start` of the segment.
fn summary_behind(before: &[u8], start: u64, footer: &SegmentFooter) -> Option<Vec<SummaryEntry>> {
    let skip = u64::from(footer.summary_offset).checked_sub(start)?;
    decode_summary(before.get(skip as usize..)?, footer).ok()
}

/// The summary that the footer vouches for; `None` if it cannot be read or is damaged.
pub(crate) fn read_summary(
    engine: &Engine,
    segment: SegmentId,
    footer: &SegmentFooter,
) -> Option<Vec<SummaryEntry>> {
    let start = footer.summary_block();
    let end = engine.space.segment_bytes - BLOCK_BYTES;
    let mut buf = AlignedBuf::zeroed((end - start) as usize);
    engine.read_for_itself(segment, start, &mut buf).ok()?;
    summary_behind(&buf, start, footer)
}

/// Finds the records of a segment that was still open when the store stopped.
pub(crate) fn walk_segment(engine: &Engine, segment: SegmentId) -> Option<Vec<SummaryEntry>> {
    let mut image = AlignedBuf::zeroed(engine.space.segment_bytes as usize);
    engine.read_for_itself(segment, 0, &mut image).ok()?;
    let first = PageHeader::decode(&image, engine.space.nonce, engine.space.page_bytes as u32);
    let is_other = |first: PageHeader| first.life() != engine.ring.life(segment);
    (!first.is_ok_and(is_other)).then(|| walk_image(engine, &image))
}

/// As `walk_segment`, for a segment of this `life` that is to be appended to. `None` if a later
/// walk might take leftovers for records of its own, such as extents behind one that never reached
/// the disk.
pub(crate) fn walk_to_go_on(
    engine: &Engine,
    segment: SegmentId,
    life: SegmentLife,
) -> Option<Vec<SummaryEntry>> {
    let mut image = AlignedBuf::zeroed(engine.space.segment_bytes as usize);
    engine.read_for_itself(segment, 0, &mut image).ok()?;
    let nonce = engine.space.nonce;
    let first = PageHeader::decode(&image, nonce, engine.space.page_bytes as u32).ok()?;
    let entries = walk_image(engine, &image);
    let last = entries.last()?;
    let end = u64::from(last.offset_units + last.stored_units) * UNIT_BYTES;
    let mut behind = image.get(end.next_multiple_of(BLOCK_BYTES) as usize..)?;
    let is_of_this_life = |record: RecordHeader| record.is_of(life);
    while first.record_count == 0 && behind.len() >= BLOCK_BYTES as usize {
        if RecordHeader::decode(behind, nonce).is_ok_and(is_of_this_life) {
            return None;
        }
        behind = &behind[BLOCK_BYTES as usize..];
    }
    (first.life() == life).then_some(entries)
}

fn walk_image(engine: &Engine, image: &[u8]) -> Vec<SummaryEntry> {
    let page_bytes = engine.space.page_bytes as usize;
    let nonce = engine.space.nonce;
    let mut entries = Vec::new();
    let Ok(first) = PageHeader::decode(image, nonce, page_bytes as u32) else {
        return entries;
    };
    if first.record_count == 0 {
        walk_extents(engine, image, first.life(), &mut entries);
        return entries;
    }
    let stride = first.stride_bytes as usize;
    for (index, page) in image.chunks_exact(stride).enumerate() {
        let Ok(header) = PageHeader::decode(page, nonce, page_bytes as u32) else { continue };
        if header.segment_seq != first.segment_seq {
            continue;
        }
        let end = header.used_bytes.min(first.stride_bytes);
        let walk = RecordWalk::new(page, PAGE_HEADER_BYTES as u32, end, nonce, header.segment_seq);
        for (offset, record) in walk.map_while(Result::ok) {
            let at = index * stride + offset as usize;
            entries.push(entry_of(at, &record));
        }
    }
    entries
}

/// Extents follow each other at block boundaries, up to the first of another life.
fn walk_extents(engine: &Engine, image: &[u8], life: SegmentLife, entries: &mut Vec<SummaryEntry>) {
    let mut at = BLOCK_BYTES as usize;
    while let Some(rest) = image.get(at..) {
        let Ok(record) = RecordHeader::decode(rest, engine.space.nonce) else { break };
        let stored = record.stored_bytes();
        if !record.is_of(life) || stored > rest.len() as u64 {
            break;
        }
        entries.push(entry_of(at, &record));
        at += stored.next_multiple_of(BLOCK_BYTES) as usize;
    }
}

fn entry_of(at: usize, record: &RecordHeader) -> SummaryEntry {
    SummaryEntry {
        hash: record.hash,
        group: record.group,
        seq: record.seq,
        offset_units: (at as u64 / UNIT_BYTES) as u32,
        stored_units: (record.stored_bytes() / UNIT_BYTES) as u32,
        kind: Some(record.kind),
    }
}

/// The footer of a segment, if it has a valid one.
pub(crate) fn read_footer(
    engine: &Engine,
    segment: SegmentId,
) -> std::io::Result<Option<SegmentFooter>> {
    read_footer_into(engine, segment, &mut AlignedBuf::zeroed(FOOTER_BLOCK_BYTES))
}

/// The same with a buffer of the caller's, an aligned one of `FOOTER_BLOCK_BYTES`.
pub(crate) fn read_footer_into(
    engine: &Engine,
    segment: SegmentId,
    block: &mut [u8],
) -> std::io::Result<Option<SegmentFooter>> {
    let at = engine.space.segment_bytes - FOOTER_BLOCK_BYTES as u64;
    engine.read_for_itself(segment, at, block)?;
    Ok(footer_in(engine, segment, block))
}

/// The footer in the last block of a segment, if it is a valid one.
fn footer_in(engine: &Engine, segment: SegmentId, block: &[u8]) -> Option<SegmentFooter> {
    let footer = SegmentFooter::decode(block, engine.space.nonce, engine.space.segment_bytes);
    footer.ok().filter(|footer| footer.segment_id == segment.0)
}

impl Engine {
    /// A read that is for no reader, and counts as maintenance.
    pub(crate) fn read_for_itself(
        &self,
        segment: SegmentId,
        offset: u64,
        buf: &mut [u8],
    ) -> std::io::Result<()> {
        add(&self.counters.maintenance_reads, 1);
        self.space.read(segment, offset, buf)
    }

    /// Length class of a summary entry.
    pub(crate) fn class_of(entry: &SummaryEntry) -> LengthClass {
        LengthClass::from_units(u64::from(entry.stored_units))
    }
}
