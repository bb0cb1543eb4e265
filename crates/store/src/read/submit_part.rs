//! Parts of long objects as operations: one submitted I/O, with no thread waiting for it, where the
//! head is at hand.
//!
//! Owns nothing. A part that needs more than one I/O, or lies in more than one chunk, is read on a
//! worker thread: to verify more would keep the I/O thread from others. Threads: as in `submit`.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::chunks::{Chunks, Piece};
use super::large::LargeObject;
use super::lost::{Lost, or_lost};
use super::operation::Reading;
use super::range::KeptHead;
use super::under_way::Room;
use crate::deferred::{Deferred, OneShot};
use crate::engine::Engine;
use crate::error::ReadError;
use crate::format::CHUNK_BYTES;
use crate::object::ObjectRange;
use crate::policy::residency::Hint;
use crate::space::{SegmentId, Turn};
use crate::stats::add;
use crate::workers::Lane;

type Outcome<T> = Result<T, ReadError>;
type Promise<T> = Arc<OneShot<Outcome<T>>>;
type OutcomeOf<T> = Box<dyn FnOnce(Result<Piece, Lost>) -> Option<Outcome<T>> + Send>;
type Work<T> = Box<dyn FnOnce() -> Outcome<T> + Send>;

/// What an awaited read of a part asks for, and who is told.
struct AwaitedPart<T> {
    large: Arc<LargeObject>,
    /// Within the object, and not empty.
    range: Range<u64>,
    promise: Promise<T>,
    /// What the caller gets of it. `None`: a worker thread is to read it.
    outcome: OutcomeOf<T>,
    on_worker: Work<T>,
}

impl Engine {
    /// Reads a range of an object that was found on disk.
    pub(crate) fn range_operation(
        self: &Arc<Engine>,
        kept: KeptHead,
        key: &[u8],
        range: Range<u64>,
    ) -> Reading<ObjectRange> {
        let clamped = kept.large.clamped(&range);
        if clamped.is_empty() {
            return self.told(kept, |large| large.range_of_nothing(clamped.start));
        }
        let (this, key) = (Arc::clone(self), Arc::<[u8]>::from(key));
        let look = move |found| match this.is_closed() {
            true => Err(ReadError::Closed),
            false => this.read_range_blocking(&key, range, found),
        };
        let (this, found, again) = (Arc::clone(self), kept.clone(), look.clone());
        let blocking = move || {
            found.note_use(&this);
            look(Some(found.large))
        };
        let this = Arc::clone(self);
        Deferred::startable(blocking, move |promise| {
            let (engine, large) = (Arc::clone(&this), Arc::clone(&kept.large));
            let offset = clamped.start;
            let outcome = move |piece| match piece {
                Ok(piece) => {
                    kept.note_use(&engine);
                    add(&engine.counters.hits_disk, 1);
                    Some(Ok(Some(kept.large.range_of(offset, piece))))
                }
                // It may have been kept elsewhere.
                Err(Lost::Overwritten) => None,
                Err(lost) => {
                    engine.missed(lost);
                    Some(Ok(None))
                }
            };
            let (outcome, on_worker) = (Box::new(outcome), Box::new(move || again(None)));
            this.submit_part(
                AwaitedPart { large, range: clamped, promise, outcome, on_worker },
                None,
            );
        })
    }

    /// Reads a piece of an object, in one of its extents.
    pub(super) fn piece_operation(
        self: &Arc<Engine>,
        large: &Arc<LargeObject>,
        range: Range<u64>,
    ) -> Deferred<Outcome<Bytes>> {
        let (this, found, within) = (Arc::clone(self), Arc::clone(large), range.clone());
        let blocking = move || {
            if this.is_closed() {
                return Err(ReadError::Closed);
            }
            let mut waited = Duration::ZERO;
            let piece = or_lost(found.read_piece(&this, within.clone(), &mut waited))?;
            let piece = piece.map_err(|_| ReadError::Gone)?;
            Ok(Bytes::from(found.range_of(within.start, piece)))
        };
        let (this, large, again) = (Arc::clone(self), Arc::clone(large), blocking.clone());
        Deferred::startable(blocking, move |promise| {
            let (found, offset) = (Arc::clone(&large), range.start);
            let outcome = move |piece: Result<Piece, Lost>| {
                let bytes = |piece| Bytes::from(found.range_of(offset, piece));
                Some(piece.map(bytes).map_err(|_| ReadError::Gone))
            };
            let (outcome, on_worker) = (Box::new(outcome), Box::new(again));
            this.submit_part(AwaitedPart { large, range, promise, outcome, on_worker }, None);
        })
    }

    /// `reserved`: what a read has that waited for room.
    fn submit_part<T: Send + 'static>(
        self: &Arc<Engine>,
        asked: AwaitedPart<T>,
        reserved: Option<Room>,
    ) {
        if self.is_closed() {
            return asked.promise.put(Err(ReadError::Closed));
        }
        let chunks = asked.large.chunks_at_hand(self, &asked.range);
        let is_short = |bytes: usize| bytes as u64 <= CHUNK_BYTES;
        let chunks = chunks.filter(|chunks| is_short(chunks.verified_bytes()));
        // Before it is left to a worker, too: all of them may wait for what is lost.
        let first = asked.large.segment_at(asked.range.start);
        let turn = match first.map_or(Ok(None), |segment| self.ask(segment)) {
            Ok(turn) => turn,
            Err(error) => return asked.promise.put(Err(error)),
        };
        let chunks = match (chunks, turn) {
            (Some(chunks), None) => chunks,
            (Some(chunks), Some(turn)) => return self.probe_with_part(asked, chunks, turn),
            (None, None) => return self.part_on_worker(asked.promise, asked.on_worker),
            (None, Some(turn)) => return self.part_apart(asked.promise, asked.on_worker, turn),
        };
        let segment = chunks.segment();
        let Some(room) = self.room_to_submit(segment, chunks.len, reserved) else {
            return self.part_when_room(segment, chunks.len, asked);
        };
        let Some(run) = self.cache.take(chunks.len, Hint::Neutral) else {
            return self.part_on_worker(asked.promise, asked.on_worker);
        };
        let this = Arc::clone(self);
        chunks.submit(self, run, move |piece| {
            match (asked.outcome)(piece) {
                Some(outcome) => asked.promise.put(outcome),
                None => this.part_on_worker(asked.promise, asked.on_worker),
            }
            drop(room);
        });
    }

    /// Reads a part on a thread of its own, for the same reasons as `probe`.
    fn probe_with_part<T: Send + 'static>(
        self: &Arc<Engine>,
        asked: AwaitedPart<T>,
        chunks: Chunks,
        turn: Turn,
    ) {
        let this = Arc::clone(self);
        let job = move || {
            let promise = Arc::clone(&asked.promise);
            promise.begin(|| {
                if this.is_closed() {
                    return promise.put(Err(ReadError::Closed));
                }
                let mut waited = Duration::ZERO;
                let piece = or_lost(chunks.read_asked(&this, &mut waited));
                drop(turn);
                match piece.map(asked.outcome) {
                    Ok(Some(outcome)) => promise.put(outcome),
                    Ok(None) => this.part_on_worker(asked.promise, asked.on_worker),
                    Err(error) => promise.put(Err(error)),
                }
            });
        };
        self.workers.run_apart(Box::new(job));
    }

    /// As `submit_part`, from the beginning, once there is memory for a read of `bytes` of a
    /// segment.
    fn part_when_room<T: Send + 'static>(
        self: &Arc<Engine>,
        segment: SegmentId,
        bytes: usize,
        asked: AwaitedPart<T>,
    ) {
        add(&self.counters.reads_queued, 1);
        let this = Arc::clone(self);
        self.under_way_with(segment).wait(self.cache.pool.run_bytes_for(bytes), move |room| {
            let promise = Arc::clone(&asked.promise);
            promise.begin(|| this.submit_part(asked, Some(room)));
        });
    }

    /// As `part_on_worker`, for the same reasons as `probe`. The read takes the turn again itself.
    fn part_apart<T: Send + 'static>(&self, promise: Promise<T>, work: Work<T>, turn: Turn) {
        let job = move || {
            drop(turn);
            promise.begin(|| promise.put(work()));
        };
        self.workers.run_apart(Box::new(job));
    }

    fn part_on_worker<T: Send + 'static>(&self, promise: Promise<T>, work: Work<T>) {
        // The workers of a closed store are gone, and this may be the I/O thread: a read here would
        // wait for itself.
        if self.is_closed() {
            return promise.put(Err(ReadError::Closed));
        }
        self.workers.run(Lane::Soon, Box::new(move || promise.begin(|| promise.put(work()))));
    }
}
