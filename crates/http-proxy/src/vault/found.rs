//! The result of a lookup: a response, its body, and where it is stored. Responses assembled from
//! several objects have the same type.
//!
//! Invariant: a body leaves the store without a copy. Threads: belongs to the request that it
//! answers.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use damelo::GroupId;

use crate::error::BodyError;
use crate::purge::stamp::Stamp;
use crate::vault::entry::StoredResponse;
use crate::vault::inflight::InflightBody;
use crate::vault::sections::Sections;

/// A stored response and its body.
pub(crate) struct Found {
    /// Its key, if not the primary key.
    pub(super) variant_key: Option<Vec<u8>>,
    /// Its metadata as read.
    pub(crate) blob: Bytes,
    pub(crate) response: StoredResponse,
    pub(crate) body: FoundBody,
    pub(crate) placement: Placement,
}

impl Found {
    /// A response assembled from several stored objects; no object holds it as it is.
    pub(crate) fn assembled(
        response: StoredResponse,
        body: FoundBody,
        placement: Placement,
    ) -> Found {
        Found { variant_key: None, blob: Bytes::new(), response, body, placement }
    }

    /// The response's key, given the primary key of its resource.
    pub(crate) fn key<'a>(&'a self, primary: &'a [u8]) -> &'a [u8] {
        self.variant_key.as_deref().unwrap_or(primary)
    }

    /// Length of the whole body, also where a part of it is stored; `None` if it is unknown.
    pub(crate) fn complete_bytes(&self) -> Option<u64> {
        let stored = self.body.has_known_length().then(|| self.body.length_bytes());
        self.response.part.map(|part| part.complete_bytes).or(stored)
    }
}

/// A body assembled from stored slices and slices still to be fetched.
pub(crate) trait RangeReader: Send + Sync {
    fn complete_bytes(&self) -> u64;

    /// Continues with this range.
    fn seek(&mut self, range: Range<u64>);

    /// Returns the next piece of the range.
    fn next(&mut self) -> NextPiece<'_>;
}

/// A piece being read; `None` at the end.
pub(crate) type NextPiece<'r> =
    Pin<Box<dyn Future<Output = Result<Option<Bytes>, BodyError>> + Send + 'r>>;

/// A stored body.
pub(crate) enum FoundBody {
    Whole(Bytes),
    Large(Box<Sections>),
    /// In slices; missing ones are fetched when the reader reaches them.
    Sliced(Box<dyn RangeReader>),
    /// Being filled, by another request mostly, and read while it is written; from where its client
    /// gets what it missed, if the store loses that.
    Inflight(Arc<InflightBody>, Option<Box<dyn RangeReader>>),
    /// The body was not requested; its length.
    Length(u64),
    /// The body was not requested, and the origin did not announce its length.
    Unmeasured,
}

impl FoundBody {
    /// False for a body being filled, or not requested, whose length the origin did not announce.
    pub(crate) fn has_known_length(&self) -> bool {
        match self {
            FoundBody::Inflight(body, _) => body.length_bytes().is_some(),
            FoundBody::Unmeasured => false,
            _ => true,
        }
    }

    pub(crate) fn length_bytes(&self) -> u64 {
        match self {
            FoundBody::Whole(bytes) => bytes.len() as u64,
            FoundBody::Large(sections) => sections.length_bytes(),
            FoundBody::Sliced(slices) => slices.complete_bytes(),
            FoundBody::Inflight(body, _) => body.length_bytes().unwrap_or(0),
            FoundBody::Length(length) => *length,
            FoundBody::Unmeasured => 0,
        }
    }
}

/// Where a response is stored, and the stamp that purges are checked against.
#[derive(Debug, Clone)]
pub(crate) struct Placement {
    pub(crate) group: GroupId,
    pub(crate) in_memory: bool,
    pub(crate) stamp: Stamp,
}
