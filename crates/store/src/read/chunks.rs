//! One read of a long record: which blocks hold the wanted bytes, and what came of reading them.
//!
//! Owns nothing. Invariant: bytes come out only if the checksums of their chunks say so, and the
//! segment was in the same life after the read as when the extent was found. Threads: any.

use crate::sync::Arc;
use std::ops::Range;
use std::time::Duration;

use super::heads::Head;
use super::lost::{Lost, NotRead};
use crate::device::IoOp;
use crate::engine::Engine;
use crate::format::{CHUNK_BYTES, RecordHeader, verify_chunks};
use crate::index::Location;
use crate::memory::pool::Run;
use crate::space::SegmentId;
use crate::stats::add;
use crate::types::SegmentLife;

/// A chunked record, and the part of the value it holds.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub(super) segment: SegmentId,
    pub(super) life: SegmentLife,
    pub(super) location: Location,
    pub(super) start: u64,
    pub(super) len: u64,
    /// Low half of the record's sequence number.
    pub(super) record_seq: u32,
}

/// The blocks of an extent that hold some of its chunks, and what is wanted of them.
pub(super) struct Chunks {
    extent: Extent,
    head: Arc<Head>,
    /// Where the blocks begin in the extent's segment, in bytes.
    offset: u64,
    /// Bytes of the blocks.
    pub(super) len: usize,
    first_chunk: u64,
    /// Where the chunks lie in the blocks.
    chunks: Range<usize>,
    /// Where the bytes that are wanted lie in the blocks.
    wanted: Range<usize>,
}

/// Verified bytes of an object, in a run.
pub(crate) struct Piece {
    pub(super) run: Run,
    pub(super) start: usize,
    pub(super) len: usize,
}

impl Extent {
    /// Whether its segment was reused since it was found.
    pub(super) fn is_overwritten(&self, engine: &Engine) -> bool {
        engine.ring.life(self.segment) != self.life
    }

    /// Whether this is its record's header.
    pub(super) fn is_headed_by(&self, header: &RecordHeader) -> bool {
        let is_it = header.sequence().low_half() == self.record_seq;
        header.chunked && is_it && header.value_len == self.len
    }
}

impl Chunks {
    /// What is to be read from the start of a range of the object to its end or that of the extent,
    /// which has this head.
    pub(super) fn of(
        engine: &Engine,
        extent: Extent,
        head: Arc<Head>,
        range: &Range<u64>,
    ) -> Chunks {
        let from = range.start - extent.start;
        let to = (range.end - extent.start).min(extent.len);
        let first_chunk = from / CHUNK_BYTES;
        let chunk_start = first_chunk * CHUNK_BYTES;
        let chunk_end = to.next_multiple_of(CHUNK_BYTES).min(extent.len);
        let value = head.header.value_range().start as u64;
        let at = engine.space.split(extent.location).1 + value + chunk_start;
        let block = engine.space.block();
        let offset = at - at % block;
        let end = (at + (chunk_end - chunk_start)).next_multiple_of(block);
        let len = (end.min(engine.space.segment_bytes) - offset) as usize;
        let skip = (at - offset) as usize;
        let chunks = skip..skip + (chunk_end - chunk_start) as usize;
        let start = skip + (from - chunk_start) as usize;
        let wanted = start..start + (to - from) as usize;
        Chunks { extent, head, offset, len, first_chunk, chunks, wanted }
    }

    pub(super) fn segment(&self) -> SegmentId {
        self.extent.segment
    }

    /// Bytes to verify once they are read.
    pub(super) fn verified_bytes(&self) -> usize {
        self.chunks.len()
    }

    /// Reads on the calling thread; `waited` as for `take_waiting`.
    pub(super) fn read(self, engine: &Engine, waited: &mut Duration) -> Result<Piece, NotRead> {
        let _turn = engine.ask(self.extent.segment)?;
        self.read_asked(engine, waited)
    }

    /// As `read`, for a caller that has asked whether the volume answers.
    pub(super) fn read_asked(
        self,
        engine: &Engine,
        waited: &mut Duration,
    ) -> Result<Piece, NotRead> {
        let run = engine.take_more_for_read(self.len, waited)?;
        // SAFETY: the run is fresh and known to this thread only.
        let buf = unsafe { run.bytes_mut(0, self.len) };
        let outcome = engine.space.read(self.extent.segment, self.offset, buf);
        Ok(self.accept(engine, run, outcome.is_ok())?)
    }

    /// Submits the read, into a fresh run; `done` is called on the I/O thread.
    pub(super) fn submit(
        self,
        engine: &Arc<Engine>,
        run: Run,
        done: impl FnOnce(Result<Piece, Lost>) + Send + 'static,
    ) {
        let (segment, offset) = (self.extent.segment, self.offset);
        let pieces = vec![(run.clone(), self.len)];
        let this = Arc::clone(engine);
        engine.space.submit(IoOp::Read, segment, offset, pieces, move |outcome| {
            done(self.accept(&this, run, outcome.is_ok()));
        });
    }

    /// Counts the read, which ended now, and verifies what it brought.
    fn accept(self, engine: &Engine, run: Run, is_read: bool) -> Result<Piece, Lost> {
        engine.count_read(&engine.counters.range_reads, self.len as u64);
        if self.extent.is_overwritten(engine) {
            return Err(Lost::Overwritten);
        }
        if !is_read {
            return Err(engine.not_read(self.extent.segment));
        }
        let head = &self.head;
        let chunks = run.bytes(self.chunks.start, self.chunks.len());
        if !verify_chunks(&head.header, &head.bytes, self.first_chunk, chunks) {
            add(&engine.counters.damaged_records, 1);
            return Err(Lost::Damaged);
        }
        Ok(Piece { run, start: self.wanted.start, len: self.wanted.len() })
    }
}
