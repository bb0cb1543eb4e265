//! A slice that was got, for which answer, and why one is not to be had.
//!
//! Invariant: what an answer has begun with holds to its end: its time, its version, and that the
//! origin has failed it. No threads.

use http::{HeaderMap, StatusCode};

use crate::error::{BodyError, FetchError};
use crate::rules::ForwardReason;
use crate::rules::reuse::Failure;
use crate::slices::verdict::Version;
use crate::vault::entry::StoredResponse;
use crate::vault::inflight::Coming;
use crate::vault::{FoundBody, Placement, Slice};

/// Where a slice came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Stored,
    /// Another request fetched it.
    Followed,
    Fetched,
    /// The origin was asked for this reason whether it is still right, and is kept so, unless it
    /// may not be.
    Validated {
        reason: ForwardReason,
        kept: bool,
    },
    /// It stands in though it is stale: the origin, to be asked for this reason, has failed this
    /// request, or another one that this one followed.
    StoodIn {
        reason: ForwardReason,
        failed: Failed,
        followed: bool,
    },
}

impl How {
    /// How the origin has failed, if this stands in for that.
    pub(super) fn failed(self) -> Option<Failed> {
        match self {
            How::StoodIn { failed, .. } => Some(failed),
            _ => None,
        }
    }
}

/// How the origin has failed, and the name of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) failure: Failure,
    pub(crate) detail: &'static str,
}

impl Failed {
    pub(super) fn by(error: &FetchError) -> Failed {
        match error {
            FetchError::Status(status, _) => Failed::by_answer(*status),
            _ => Failed { failure: Failure::Disconnected, detail: error.name() },
        }
    }

    pub(super) fn by_answer(status: StatusCode) -> Failed {
        Failed { failure: Failure::Status(status), detail: "stale-if-error" }
    }
}

/// The answer that a slice is got for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun<'a> {
    /// When it began.
    pub(crate) at_ms: u64,
    /// What it has begun with, if it has.
    pub(crate) version: Option<&'a Version>,
    /// How the origin has failed it before, so that it is not asked again about what may stand in.
    pub(crate) failed: Option<Failed>,
}

impl Begun<'_> {
    /// One that has nothing yet.
    pub(crate) fn at(at_ms: u64) -> Begun<'static> {
        Begun { at_ms, version: None, failed: None }
    }

    /// Whether a slice is of the version that it has begun with, if it has.
    pub(super) fn suits(&self, response: &StoredResponse) -> bool {
        let complete_bytes = response.part.map(|part| part.complete_bytes);
        let is_of = |version: &Version| {
            complete_bytes.is_some_and(|complete| version.is_of(&response.headers, complete))
        };
        self.version.is_none_or(is_of)
    }
}

/// A slice, complete or still arriving, or the requested part of it.
pub(crate) struct Got {
    /// Its part is the range held; without a part, it is the whole resource.
    pub(crate) response: StoredResponse,
    pub(crate) body: FoundBody,
    pub(crate) placement: Placement,
    pub(crate) how: How,
    /// Fields for the request that fetched it, some of which may be for no other.
    pub(crate) own: Option<HeaderMap>,
    /// Of the whole in place of a slice, which is fetched for its readers alone.
    #[expect(dead_code, reason = "it counts as a reader as long as this lives")]
    pub(crate) coming: Option<Coming>,
}

impl Got {
    /// One that is stored.
    pub(super) fn stored(slice: Slice, how: How) -> Got {
        let Slice { response, bytes, placement, .. } = slice;
        Got { response, body: FoundBody::Whole(bytes), placement, how, own: None, coming: None }
    }
}

/// Why a slice is not to be had.
#[derive(Debug)]
pub(crate) enum Lack {
    /// It is not stored, and the origin may not be asked for it, or the store did not take it.
    NotStored,
    /// The origin answered, but with no such slice.
    NoSlice,
    /// The origin answered that the request has failed this time.
    Refused(StatusCode),
    /// The origin gave no answer, to this request or to another that this one followed. It was
    /// asked for this reason, if not because nothing is stored.
    Failed { error: FetchError, followed: bool, reason: Option<ForwardReason> },
}

impl Lack {
    /// Why an answer breaks off that had begun before.
    pub(crate) fn breaks_off(&self) -> BodyError {
        match self {
            Lack::NotStored => BodyError::Store,
            Lack::Failed { error, .. } if error.status() == StatusCode::GATEWAY_TIMEOUT => {
                BodyError::Idle
            }
            Lack::NoSlice | Lack::Refused(_) | Lack::Failed { .. } => BodyError::Broken,
        }
    }

    pub(super) fn of_failure(error: FetchError, followed: bool) -> Lack {
        Lack::Failed { error, followed, reason: None }
    }

    /// How the origin has failed, if that is why, and whether it failed another request.
    pub(super) fn failed(&self) -> Option<(Failed, bool)> {
        match self {
            Lack::Refused(status) => Some((Failed::by_answer(*status), false)),
            Lack::Failed { error, followed, .. }
                if error.is_for_all() || error.may_be_ones_own() =>
            {
                Some((Failed::by(error), *followed))
            }
            Lack::NotStored | Lack::NoSlice | Lack::Failed { .. } => None,
        }
    }

    /// The same where something stale is stored that could not be served, for this reason.
    pub(super) fn beside_stale(self, reason: ForwardReason) -> Lack {
        match self {
            Lack::Failed { error, followed, .. } => {
                Lack::Failed { error, followed, reason: Some(reason) }
            }
            other => other,
        }
    }
}
