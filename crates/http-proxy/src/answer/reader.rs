//! The source of a streamed response: a stored body in sections, consecutive slices, or a fill in
//! progress.
//!
//! Invariant: one piece at a time. Threads: as the body that it feeds.

use std::ops::Range;

use bytes::Bytes;

use crate::error::BodyError;
use crate::vault::RangeReader;
use crate::vault::inflight::InflightReader;
use crate::vault::sections::Sections;

pub(crate) enum Reader {
    Sections(Sections),
    Slices(Box<dyn RangeReader>),
    Inflight(InflightReader),
}

impl Reader {
    /// Continues with this range of the source.
    pub(crate) fn seek(&mut self, range: Range<u64>) {
        match self {
            Reader::Sections(sections) => sections.seek(range),
            Reader::Slices(slices) => slices.seek(range),
            Reader::Inflight(inflight) => inflight.seek(range),
        }
    }

    /// Returns the next piece, which may go beyond the range; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        match self {
            Reader::Sections(sections) => sections.next().await.map_err(|_| BodyError::Store),
            Reader::Slices(slices) => slices.next().await,
            Reader::Inflight(inflight) => inflight.next().await,
        }
    }
}
