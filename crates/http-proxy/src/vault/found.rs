//! What a lookup finds, or what is as good as found: a response, its body, and where it lies.
//!
//! Invariant: a body leaves the store without copy. Threads: belongs to the request that it answers.

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
    /// Where it lies, if not under the primary key.
    pub(super) variant_key: Option<Vec<u8>>,
    /// Its metadata as it was read.
    pub(crate) blob: Bytes,
    pub(crate) response: StoredResponse,
    pub(crate) body: FoundBody,
    pub(crate) placement: Placement,
}

impl Found {
    /// Put together of several stored objects: it lies nowhere as it is.
    pub(crate) fn assembled(
        response: StoredResponse,
        body: FoundBody,
        placement: Placement,
    ) -> Found {
        Found { variant_key: None, blob: Bytes::new(), response, body, placement }
    }

    /// Where it lies, its resource lying under `primary`.
    pub(crate) fn key<'a>(&'a self, primary: &'a [u8]) -> &'a [u8] {
        self.variant_key.as_deref().unwrap_or(primary)
    }
}

/// A body that is put together from what is stored and what is still to be fetched.
pub(crate) trait RangeReader: Send + Sync {
    fn complete_bytes(&self) -> u64;

    /// Goes on with this range.
    fn seek(&mut self, range: Range<u64>);

    /// The next piece of the range.
    fn next(&mut self) -> NextPiece<'_>;
}

/// A piece that is being read; `None` at the end.
pub(crate) type NextPiece<'r> =
    Pin<Box<dyn Future<Output = Result<Option<Bytes>, BodyError>> + Send + 'r>>;

/// A stored body.
pub(crate) enum FoundBody {
    Whole(Bytes),
    Large(Box<Sections>),
    /// In slices, which are fetched as they are needed.
    Sliced(Box<dyn RangeReader>),
    /// On its way, and read along.
    Inflight(Arc<InflightBody>),
    /// Not asked for; its length.
    Length(u64),
    /// Not asked for, and the origin did not say how long it is.
    Unmeasured,
}

impl FoundBody {
    /// Not of one that is on its way, or was not asked for, where the origin did not say.
    pub(crate) fn has_known_length(&self) -> bool {
        match self {
            FoundBody::Inflight(body) => body.length_bytes().is_some(),
            FoundBody::Unmeasured => false,
            _ => true,
        }
    }

    pub(crate) fn length_bytes(&self) -> u64 {
        match self {
            FoundBody::Whole(bytes) => bytes.len() as u64,
            FoundBody::Large(sections) => sections.length_bytes(),
            FoundBody::Sliced(slices) => slices.complete_bytes(),
            FoundBody::Inflight(body) => body.length_bytes().unwrap_or(0),
            FoundBody::Length(length) => *length,
            FoundBody::Unmeasured => 0,
        }
    }
}

/// Where a stored response lies, and what purges know it by.
#[derive(Debug, Clone)]
pub(crate) struct Placement {
    pub(crate) group: GroupId,
    pub(crate) in_memory: bool,
    pub(crate) stamp: Stamp,
}
