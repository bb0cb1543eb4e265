//! A stored body that goes on in slices from the origin, where the store has let go of the rest
//! while it was sent.
//!
//! The place on disk of what a slow client reads may be needed for newer objects. Invariants: the
//! rest has the same strong validator as the beginning, or the body breaks off; the origin is asked
//! for nothing that can be read. Threads: as the body that it feeds.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;

use crate::error::BodyError;
use crate::request::Ask;
use crate::rules::ForwardReason;
use crate::rules::vary::{self, Vary};
use crate::slices::reader::SliceReader;
use crate::slices::{may_be_for_one, slices_for};
use crate::vault::sections::Sections;
use crate::vault::{Found, FoundBody, NextPiece, RangeReader};
use crate::worker::Worker;

/// Lets a found body go on in slices if the store loses the rest of it, where slices can be had for
/// this request.
pub(crate) fn resumable(worker: &Arc<Worker>, ask: &Ask, mut found: Box<Found>) -> Box<Found> {
    if !matches!(found.body, FoundBody::Large(_)) {
        return found;
    }
    let Some(rest) = rest_of(worker, ask, &found) else { return found };
    let body = std::mem::replace(&mut found.body, FoundBody::Unmeasured);
    found.body = match body {
        FoundBody::Large(stored) => {
            let worker = worker.clone();
            FoundBody::Sliced(Box::new(Resuming { worker, stored, rest, range: 0..0, lost: false }))
        }
        other => other,
    };
    found
}

/// The reader of slices that are of the same version as what was found, if there can be any.
fn rest_of(worker: &Arc<Worker>, ask: &Ask, found: &Found) -> Option<SliceReader> {
    let slices = slices_for(worker, ForwardReason::UriMiss)?;
    let (response, length_bytes) = (&found.response, found.body.length_bytes());
    let plain = response.status == StatusCode::OK
        && response.part.is_none()
        && vary::of(&response.headers) == Vary::Nothing
        // What fits in a slice is none: it would be stored as the whole.
        && length_bytes > slices.slice_bytes;
    if !plain || may_be_for_one(ask) || ask.wishes.only_if_cached {
        return None;
    }
    SliceReader::of_version(worker, ask, slices, response, length_bytes)
}

/// Reads the stored body as long as it is there.
struct Resuming {
    worker: Arc<Worker>,
    stored: Box<Sections>,
    rest: SliceReader,
    /// What is left to read.
    range: Range<u64>,
    /// The store has lost some of it.
    lost: bool,
}

impl RangeReader for Resuming {
    fn complete_bytes(&self) -> u64 {
        self.stored.length_bytes()
    }

    fn seek(&mut self, range: Range<u64>) {
        self.stored.seek(range.clone());
        self.range = range;
    }

    fn next(&mut self) -> NextPiece<'_> {
        Box::pin(self.next_piece())
    }
}

impl Resuming {
    async fn next_piece(&mut self) -> Result<Option<Bytes>, BodyError> {
        if !self.lost {
            match self.stored.next().await {
                Ok(piece) => {
                    self.range.start += piece.as_ref().map_or(0, |piece| piece.len() as u64);
                    return Ok(piece);
                }
                Err(_) => self.lost = true,
            }
            self.worker.counters.resumed.one();
        }
        // Each time anew: a range of several may begin behind what was lost.
        self.rest.seek(self.range.start..self.range.end.min(self.complete_bytes()));
        let piece = self.rest.next().await?;
        self.range.start += piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Ok(piece)
    }
}
