//! The open segments: one takes pages, one takes extents. Placing the next batch, sealing, and
//! continuing a segment of an earlier life of the store.
//!
//! Invariants: offsets within a segment only grow; a segment always has room left for the summary
//! of its records; a footer is written only after everything else in its segment, while the flusher
//! continues with the next one, and is erased on disk before anything is added behind the records
//! that it vouches for. Threads: the flusher; I/O threads also start and complete footer writes.

use crate::sync::atomic::Ordering;
use crate::sync::{Arc, Mutex, lock};
use std::io;

use super::reclaim::reclaim_one;
use crate::durable::segment_contents::{read_footer, read_summary, walk_to_go_on};
use crate::engine::Engine;
use crate::format::{
    BLOCK_BYTES, FOOTER_BLOCK_BYTES, PAGE_HEADER_BYTES, PageHeader, SUMMARY_ENTRY_BYTES,
    SegmentFooter, SummaryEntry, UNIT_BYTES, encode_summary_to,
};
use crate::memory::mapped::{AlignedBuf, Mapped, MappedVec};
use crate::ring::SegmentKind;
use crate::space::{SegmentId, is_want_of_room};
use crate::stats::add;
use crate::types::{SegmentLife, Sequence};

/// Limit on the free segments that are tried in a row where there is no room for them. The next are
/// tried by who comes next.
const ROOMLESS_MAX: usize = 16;

pub(crate) struct OpenSegment {
    pub(crate) id: SegmentId,
    pub(crate) life: SegmentLife,
    pub(crate) cursor: u64,
    /// Bytes from one page to the next.
    pub(crate) page_stride: u64,
    /// Mapped rather than allocated: it grows to megabytes, which go back to the system when the
    /// segment is full.
    pub(crate) entries: MappedVec<SummaryEntry>,
    object_bytes: u64,
    /// The store is being closed: the sealed segment rests, and the next open continues it.
    rests: bool,
    pub(crate) writes: Arc<SegmentWrites>,
}

/// What a segment is to have room for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted {
    /// A page that is used up to here.
    Page { stride_min: u64 },
    /// An extent of this length.
    Extent { bytes: u64 },
}

impl Wanted {
    pub(crate) fn kind(self) -> SegmentKind {
        match self {
            Wanted::Page { .. } => SegmentKind::Pages,
            Wanted::Extent { .. } => SegmentKind::Extents,
        }
    }
}

/// The writes of one segment in flight, and the segment itself once it is full: the last write
/// seals it.
#[derive(Default)]
pub(crate) struct SegmentWrites(Mutex<(usize, Option<OpenSegment>)>);

impl SegmentWrites {
    pub(crate) fn begin(&self) {
        lock(&self.0).0 += 1;
    }

    /// Notes the end of a write; the last write of a full segment seals it.
    pub(crate) fn end(&self, engine: &Arc<Engine>) {
        let full = {
            let mut state = lock(&self.0);
            state.0 -= 1;
            if state.0 == 0 { state.1.take() } else { None }
        };
        if let Some(open) = full {
            seal(engine, &open);
        }
    }
}

/// Seals a full segment once its last write is over. The segment counts as a write in flight until
/// its footer is written, so that `wait_writes(0)` waits for that too.
pub(crate) fn close_segment(engine: &Arc<Engine>, open: OpenSegment) {
    engine.writes_begin();
    let writes = Arc::clone(&open.writes);
    let idle = {
        let mut state = lock(&writes.0);
        if state.0 == 0 {
            Some(open)
        } else {
            state.1 = Some(open);
            None
        }
    };
    if let Some(open) = idle {
        seal(engine, &open);
    }
}

/// Seals a segment that is open when the store is closed, so that the next open can continue it.
pub(crate) fn rest_segment(engine: &Arc<Engine>, mut open: OpenSegment) {
    open.rests = engine.ring.may_rest(open.id);
    close_segment(engine, open);
}

impl OpenSegment {
    fn new(id: SegmentId, life: SegmentLife, cursor: u64, page_stride: u64) -> OpenSegment {
        OpenSegment {
            id,
            life,
            cursor,
            page_stride,
            entries: MappedVec::new_in(Mapped),
            object_bytes: 0,
            rests: false,
            writes: Arc::default(),
        }
    }

    /// Bytes left for data if `more` entries are added.
    pub(crate) fn room(&self, segment_bytes: u64, more: usize) -> u64 {
        let summary = ((self.entries.len() + more) * SUMMARY_ENTRY_BYTES) as u64;
        let tail = summary.next_multiple_of(BLOCK_BYTES) + FOOTER_BLOCK_BYTES as u64;
        segment_bytes.saturating_sub(self.cursor).saturating_sub(tail)
    }

    /// Whether this fits in, with `more` entries.
    pub(crate) fn has_room(&self, engine: &Engine, wanted: Wanted, more: usize) -> bool {
        let bytes = match wanted {
            Wanted::Page { stride_min } if stride_min > self.page_stride => return false,
            Wanted::Page { .. } => self.page_stride,
            Wanted::Extent { bytes } => bytes,
        };
        self.room(engine.space.segment_bytes, more) >= bytes
    }

    pub(crate) fn note(&mut self, entry: SummaryEntry) {
        self.object_bytes += u64::from(entry.stored_units) * 64;
        self.entries.push(entry);
    }
}

/// Reclaims segments until two are free, or none can be.
fn free_two(engine: &Arc<Engine>) {
    while engine.ring.usable_free(&engine.space, 2) < 2 {
        if reclaim_one(engine) {
            continue;
        }
        if engine.ring.usable_free(&engine.space, 1) > 0 || engine.writes_in_flight() == 0 {
            break;
        }
        // On a tiny volume, all other segments may be waiting to be sealed.
        engine.wait_writes(0);
    }
}

/// Writes what makes a segment an open one: no footer of the former life, and what this kind begins
/// with, of which the length is returned.
fn begin(engine: &Engine, id: SegmentId, life: SegmentLife, kind: SegmentKind) -> io::Result<u64> {
    engine.leave_clean();
    // First, so that a crash finds the segment among those to look at.
    engine.note_life(id, life)?;
    // Then the footer: from now on the segment counts as open.
    let zero = AlignedBuf::zeroed(FOOTER_BLOCK_BYTES);
    let at = engine.space.segment_bytes - FOOTER_BLOCK_BYTES as u64;
    engine.space.write(id, at, &zero)?;
    match kind {
        SegmentKind::Pages => Ok(0),
        SegmentKind::Extents => write_lead(engine, id, life),
    }
}

/// Begins a new life of a free segment, first reclaiming segments if fewer than two are free.
pub(crate) fn open_segment(
    engine: &Arc<Engine>,
    kind: SegmentKind,
    page_stride: u64,
) -> Result<OpenSegment, io::Error> {
    let (mut failed, mut roomless) = (None, 0);
    // Each segment may fail once; after that, none is left to try.
    for _ in 0..=engine.ring.segments() {
        free_two(engine);
        // A lower bound of the numbers that this segment will hold, except for a create that has
        // its number and is not in the nursery yet.
        let next_seq = Sequence::from_raw(engine.next_seq.load(Ordering::SeqCst));
        let oldest = engine.nursery.oldest_seq().map_or(next_seq, |waiting| waiting.min(next_seq));
        let number = || SegmentLife::begun_at(engine.new_seq());
        let Some((id, life)) = engine.ring.open_free(&engine.space, page_stride, number) else {
            break;
        };
        engine.ring.note_oldest(id, oldest);
        match begin(engine, id, life, kind) {
            Ok(cursor) => {
                add(&engine.counters.written_bytes, FOOTER_BLOCK_BYTES as u64 + cursor);
                return Ok(OpenSegment::new(id, life, cursor, page_stride));
            }
            Err(error) => {
                engine.ring.free(id);
                // Of several volumes one without room goes out, and another takes what it cannot.
                let is_last = engine.space.in_service() <= 1;
                roomless += usize::from(is_last && is_want_of_room(&error));
                failed = Some(error);
                if roomless == ROOMLESS_MAX {
                    break;
                }
            }
        }
    }
    let none =
        || io::Error::other("no segment can be written: volumes out of service or all in use");
    Err(failed.unwrap_or_else(none))
}

/// Continues the segment that was open when the store was closed or crashed, if it has room for
/// this in `entries` records.
pub(crate) fn continue_segment(
    engine: &Arc<Engine>,
    wanted: Wanted,
    entries: usize,
) -> Option<OpenSegment> {
    let (id, life) = engine.ring.take_resting(wanted.kind())?;
    let open = resume(engine, id, life, wanted.kind())
        .filter(|open| open.has_room(engine, wanted, entries))
        .filter(|_| clear_footer(engine, id).is_ok());
    match &open {
        Some(_) => add(&engine.counters.segments_continued, 1),
        // Its records are in the index; it is reused with segments of its age.
        None => engine.ring.reseal(id),
    }
    open
}

/// The state of a resting segment: from its summary if it was sealed, else from a walk of its
/// records.
fn resume(
    engine: &Engine,
    id: SegmentId,
    life: SegmentLife,
    kind: SegmentKind,
) -> Option<OpenSegment> {
    if engine.space.spot(id, 0).volume.is_out() {
        return None;
    }
    let entries = match read_footer(engine, id).ok()? {
        Some(footer) if footer.life() == life => read_summary(engine, id, &footer)?,
        Some(_) => return None,
        None => walk_to_go_on(engine, id, life)?,
    };
    let page_stride = engine.ring.page_stride(id);
    let unit = match kind {
        SegmentKind::Pages => page_stride,
        SegmentKind::Extents => BLOCK_BYTES,
    };
    let end = |e: &SummaryEntry| u64::from(e.offset_units + e.stored_units) * UNIT_BYTES;
    let cursor = entries.iter().map(end).max()?.next_multiple_of(unit);
    let mut open = OpenSegment::new(id, life, cursor, page_stride);
    entries.into_iter().for_each(|entry| open.note(entry));
    Some(open)
}

/// Erases a footer, durably: a footer that came back after a loss of power would hide the records
/// added, and a second continuation would overwrite those of the first.
fn clear_footer(engine: &Engine, id: SegmentId) -> io::Result<()> {
    engine.leave_clean();
    let zero = AlignedBuf::zeroed(FOOTER_BLOCK_BYTES);
    engine.space.write(id, engine.space.segment_bytes - FOOTER_BLOCK_BYTES as u64, &zero)?;
    add(&engine.counters.written_bytes, FOOTER_BLOCK_BYTES as u64);
    engine.space.sync_at(id)
}

/// Writes the leading block of a segment of extents: the header of an empty page, which tells
/// recovery the segment's life and kind before its first extent is there.
fn write_lead(engine: &Engine, id: SegmentId, life: SegmentLife) -> io::Result<u64> {
    let header = PageHeader {
        nonce: engine.space.nonce,
        segment_seq: life.get(),
        page_index: 0,
        record_count: 0,
        used_bytes: PAGE_HEADER_BYTES as u32,
        stride_bytes: engine.space.page_bytes as u32,
        primary_group: 0,
    };
    let mut block = AlignedBuf::zeroed(BLOCK_BYTES as usize);
    block[..PAGE_HEADER_BYTES].copy_from_slice(&header.encode());
    engine.space.write(id, 0, &block)?;
    Ok(BLOCK_BYTES)
}

/// Starts the write of summary and footer; its completion ends a write in flight. If it fails, the
/// segment's objects may be lost after a crash.
fn seal(engine: &Arc<Engine>, open: &OpenSegment) {
    let segment_bytes = engine.space.segment_bytes;
    let end = segment_bytes - FOOTER_BLOCK_BYTES as u64;
    let summary_bytes = (open.entries.len() * SUMMARY_ENTRY_BYTES) as u64;
    let mut footer = SegmentFooter {
        nonce: engine.space.nonce,
        segment_id: open.id.0,
        entry_count: open.entries.len() as u32,
        segment_seq: open.life.get(),
        summary_offset: (end - summary_bytes) as u32,
        summary_bytes: summary_bytes as u32,
        summary_crc: 0,
        group_run_count: 0,
        object_bytes: open.object_bytes,
        page_stride_bytes: open.page_stride as u32,
    };
    let block_start = footer.summary_block();
    let mut tail = AlignedBuf::zeroed((segment_bytes - block_start) as usize);
    let summary_at = (end - summary_bytes - block_start) as usize;
    let summary = &mut tail[summary_at..summary_at + summary_bytes as usize];
    encode_summary_to(&open.entries, summary);
    footer.summary_crc = crc32c::crc32c(summary);
    let footer_at = (end - block_start) as usize;
    tail[footer_at..].copy_from_slice(&footer.encode());
    add(&engine.counters.written_bytes, tail.len() as u64);
    let oldest = open.entries.iter().map(SummaryEntry::sequence).min().unwrap_or(Sequence::MAX);
    let (id, rests, this) = (open.id, open.rests, Arc::clone(engine));
    // The volume counts an error; the segment then looks open to recovery, which walks it.
    engine.space.submit_write(id, block_start, tail, move |_outcome| {
        if rests {
            // Not sealed in the ring, so that recovery from the last checkpoint begins here.
            this.ring.note_oldest(id, oldest);
        } else {
            this.ring.seal(id, oldest);
        }
        add(&this.counters.segments_sealed, 1);
        this.writes_end();
    });
}
