//! A body, stored or being filled, that goes on in slices from the origin, where the store has let
//! go of the rest while it was sent.
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
use crate::vault::entry::StoredResponse;
use crate::vault::sections::Sections;
use crate::vault::{Found, FoundBody, NextPiece, RangeReader};
use crate::worker::Worker;

/// Lets a found body go on in slices if the store loses the rest of it, where slices can be had for
/// this request.
pub(crate) fn resumable(worker: &Arc<Worker>, ask: &Ask, mut found: Box<Found>) -> Box<Found> {
    if !matches!(found.body, FoundBody::Large(_) | FoundBody::Inflight(_, None)) {
        return found;
    }
    let Some(rest) = slices_of(worker, ask, &found.response, found.body.length_bytes()) else {
        return found;
    };
    let body = std::mem::replace(&mut found.body, FoundBody::Unmeasured);
    found.body = match body {
        FoundBody::Large(stored) => {
            FoundBody::Sliced(Box::new(Resuming { stored, rest, range: 0..0, lost: false }))
        }
        FoundBody::Inflight(body, _) => FoundBody::Inflight(body, Some(Box::new(rest))),
        other => other,
    };
    found
}

/// The source of what is lost of a response of this length while it is filled, if there is one for
/// this request.
pub(crate) fn rest_of(
    worker: &Arc<Worker>,
    ask: &Ask,
    response: &StoredResponse,
    length_bytes: u64,
) -> Option<Box<dyn RangeReader>> {
    Some(Box::new(slices_of(worker, ask, response, length_bytes)?))
}

/// The reader of slices that are of the same version as a response, if there can be any.
fn slices_of(
    worker: &Arc<Worker>,
    ask: &Ask,
    response: &StoredResponse,
    length_bytes: u64,
) -> Option<Rest> {
    let slices = slices_for(worker, ForwardReason::UriMiss)?;
    let plain = response.status == StatusCode::OK
        && response.part.is_none()
        && vary::of(&response.headers) == Vary::Nothing
        // What fits in a slice is none: it would be stored as the whole.
        && length_bytes > slices.slice_bytes;
    if !plain || may_be_for_one(ask) || ask.wishes.only_if_cached {
        return None;
    }
    let slices = SliceReader::of_version(worker, ask, slices, response, length_bytes)?;
    Some(Rest { worker: worker.clone(), slices, is_counted: false })
}

/// Reads what was lost; counts the body that needs it.
struct Rest {
    worker: Arc<Worker>,
    slices: SliceReader,
    is_counted: bool,
}

impl RangeReader for Rest {
    fn complete_bytes(&self) -> u64 {
        self.slices.complete_bytes()
    }

    fn seek(&mut self, range: Range<u64>) {
        self.slices.seek(range);
    }

    fn next(&mut self) -> NextPiece<'_> {
        if !std::mem::replace(&mut self.is_counted, true) {
            self.worker.counters.resumed.one();
        }
        self.slices.next()
    }
}

/// Reads the stored body as long as it is there.
struct Resuming {
    stored: Box<Sections>,
    rest: Rest,
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
        }
        // Each time anew: a range of several may begin behind what was lost.
        self.rest.seek(self.range.start..self.range.end.min(self.complete_bytes()));
        let piece = self.rest.next().await?;
        self.range.start += piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Ok(piece)
    }
}
