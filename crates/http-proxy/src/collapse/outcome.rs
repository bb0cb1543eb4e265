//! How a leader's request ended, as far as its followers are concerned.
//!
//! Invariant: what is one client's own, as its permissions or its leaving, is no outcome for
//! others. Threads: made by the leader, read on every worker.

use std::sync::Arc;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

use crate::collapse::sharing::SharedResponse;
use crate::error::FetchError;
use crate::rules::{NotStoredReason, is_passing_failure, is_server_error};

/// The outcome of a leader's request.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// In the store: look again.
    Stored,
    /// The resource supports slices: look again.
    Sliced,
    /// Headers from a HEAD, which followers may share.
    Head(Arc<SharedResponse>),
    /// The response, of this status, must not be shared, by its own headers: followers and later
    /// requests go alone.
    NotStored(StatusCode),
    /// The response must not be shared, but the next one may be: the current followers go alone.
    NotThisTime,
    /// The origin gave no response; followers need not ask it again.
    Failed(FetchError),
    /// As [`Outcome::Failed`], but the leader's request may be why: followers that may have what is
    /// stored do, of the others one should lead, and who has waited for as many as it may has this
    /// failure, too.
    Broke(FetchError),
    /// It gave an error with this status, and the leader has what is stored instead: so do
    /// followers that may.
    StoodIn(StatusCode),
    /// As [`Outcome::Broke`], with an error that the origin answered with.
    Error(FetchError),
    /// The leader left before any outcome: a follower should lead.
    Abandoned,
}

impl Outcome {
    /// The outcome when the origin answers with an error of its own. What one client has earned, as
    /// a 429, is none: nobody else is told.
    pub(crate) fn of_error(status: StatusCode, headers: &HeaderMap) -> Option<Outcome> {
        let retry_after = || headers.get(RETRY_AFTER).cloned().map(Arc::new);
        let error = || Outcome::Error(FetchError::Status(status, retry_after()));
        is_server_error(status).then(error)
    }

    /// The outcome for followers when a new response is not stored. An error is temporary, and
    /// properties of the leader's request do not apply to the followers'.
    pub(crate) fn of_refusal(reason: NotStoredReason, status: StatusCode) -> Outcome {
        use NotStoredReason as Not;
        match reason {
            Not::Method
            | Not::RequestNoStore
            | Not::Authorization
            | Not::Cookie
            | Not::FirstRequest
            | Not::Invalidated
            | Not::Superseded
            | Not::Truncated
            | Not::ClientGone => Outcome::Abandoned,
            Not::Status | Not::Store => Outcome::NotThisTime,
            _ if is_passing_failure(status) => Outcome::NotThisTime,
            Not::NoStore
            | Not::Private
            | Not::VaryStar
            | Not::Partial
            | Not::SetCookie
            | Not::NotCacheable
            | Not::NeverUseful
            | Not::TooLarge
            | Not::HeadersTooLarge
            | Not::Rule => Outcome::NotStored(status),
        }
    }

    /// The outcome when there is no response. A failure caused by one client's permissions, or by
    /// its own disconnect, does not apply to the followers.
    pub(crate) fn of_failure(error: &FetchError) -> Outcome {
        match error {
            error if error.may_be_ones_own() => Outcome::Broke(error.clone()),
            error if error.is_for_all() => Outcome::Failed(error.clone()),
            _ => Outcome::Abandoned,
        }
    }
}
