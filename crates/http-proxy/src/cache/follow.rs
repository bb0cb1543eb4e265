//! Waiting for another request for the same resource, and reading its response along with it.
//!
//! Invariant: a leader that has brought nothing yet is followed for as long as the origin may be
//! silent, by who may have what is stale for `timeouts.collapse`; nobody waits longer than that for
//! the end of what it brings. Threads: the worker's.

use std::ops::ControlFlow;
use std::sync::Arc;

use http::header::ACCEPT_RANGES;
use http::{Method, StatusCode};
use tokio::time::{Instant, timeout, timeout_at};

use crate::answer::{self, Answer, serve_hit};
use crate::cache::stand_in::{share_failure, stand_in_too, waited_for};
use crate::cache::{Behind, Brings};
use crate::collapse::sharing::SharedFill;
use crate::collapse::unsliceable::Unsliceable;
use crate::collapse::{News, Outcome};
use crate::error::FetchError;
use crate::fetch::head;
use crate::request::Ask;
use crate::rules::reuse::{self, Decision, Failure};
use crate::rules::{ForwardReason, ranges};
use crate::slices;
use crate::worker::Worker;

/// A range that begins at most this far ahead of a fill is waited for.
const NEAR_BYTES: u64 = 8 << 20;
/// The same for ranges that would be asked for as they are: no more comes of that than the ranges.
/// An origin of 10 Mbit/s sends as much in a second.
const SOON_BYTES: u64 = 1 << 20;

/// What a request does next that has waited for another one.
pub(super) enum Next {
    Answered(Box<Answer>),
    /// Looks again, and has its range fetched as slices, or as it is: the fill would reach it
    /// later.
    Far,
    /// Looks again; the leader met with this failure, which may be its own.
    Again(Option<FetchError>),
    /// Looks again; the leader has got nothing from the origin for so long that it may never.
    Silent(FetchError),
    /// Asks for itself: the response cannot be shared, or comes too late.
    Alone,
}

/// Waits for a leader, and reads along if its response also suits this request, or does as the
/// leader's outcome says. A silent origin is waited for until `silent_until`.
pub(super) async fn follow(
    worker: &Arc<Worker>,
    ask: &Ask,
    behind: &Behind,
    silent_until: Instant,
) -> Next {
    let reason = behind.reason;
    let outcome = match wait(worker, ask, behind, silent_until).await {
        ControlFlow::Break(next) => return next,
        ControlFlow::Continue(outcome) => outcome,
    };
    let (said, next) = match outcome {
        Some(Outcome::Stored | Outcome::Sliced | Outcome::Abandoned) => return Next::Again(None),
        Some(Outcome::Failed(error)) => {
            let answer = share_failure(worker, ask, error, waited_for(reason)).await;
            return Next::Answered(Box::new(answer));
        }
        Some(Outcome::Broke(error)) => {
            ((Failure::Disconnected, error.name()), Next::Again(Some(error)))
        }
        None => {
            let error = FetchError::HeaderTimeout;
            ((Failure::Disconnected, error.name()), Next::Silent(error))
        }
        Some(Outcome::StoodIn(code)) => {
            ((Failure::Status(code), "stale-if-error"), Next::Again(None))
        }
        // An origin with too much to do would have all who wait at once.
        Some(Outcome::Error(error)) => {
            ((Failure::Status(error.status()), "stale-if-error"), Next::Again(Some(error)))
        }
        // A response whose body is not stored may have headers that can be shared.
        Some(Outcome::NotStored(_) | Outcome::NotThisTime) if ask.method == Method::HEAD => {
            return Next::Again(None);
        }
        Some(Outcome::NotStored(_) | Outcome::NotThisTime | Outcome::Head(_)) => {
            return Next::Alone;
        }
    };
    if let Some(answer) = stand_in_too(worker, ask, said, reason).await {
        return Next::Answered(Box::new(answer));
    }
    if matches!(next, Next::Silent(_)) {
        worker.shared.collapse.outdate(&behind.key, &behind.leader);
    }
    next
}

/// Waits for a leader's outcome: `None` if it gets nothing from the origin. Breaks off with what is
/// next as soon as that is clear.
async fn wait(
    worker: &Arc<Worker>,
    ask: &Ask,
    behind: &Behind,
    silent_until: Instant,
) -> ControlFlow<Next, Option<Outcome>> {
    let Behind { leader, key, reason, brings } = behind;
    let (shared, abandoned) = (&worker.shared, ControlFlow::Continue(Some(Outcome::Abandoned)));
    let limit = shared.config.timeouts.collapse;
    let _waiting = shared.collapse.wait();
    let mut news = timeout_at(leader.began() + limit, leader.news()).await;
    if news.is_err() {
        let silent = (Failure::Disconnected, FetchError::HeaderTimeout.name());
        if let Some(answer) = stand_in_too(worker, ask, silent, *reason).await {
            return ControlFlow::Break(Next::Answered(Box::new(answer)));
        }
        // Were the origin asked again, it would have one request more for each such time.
        news = timeout_at(silent_until, leader.news()).await;
    }
    let fill = match news {
        Err(_) => return ControlFlow::Continue(None),
        Ok(News::Ended(Outcome::Head(subject))) => {
            return match head::shared(worker, ask, &subject, *reason) {
                Some(answer) => ControlFlow::Break(Next::Answered(Box::new(answer))),
                // The leader fetches another variant: a follower that wants this one leads next.
                None => abandoned,
            };
        }
        Ok(News::Ended(outcome)) => return ControlFlow::Continue(Some(outcome)),
        Ok(News::Filling(fill)) => fill,
    };
    let is_late = match brings {
        Brings::Same => shared.config.caching.slice_bytes > 0 && is_far(&fill, ask),
        Brings::Whole => comes_late(&fill, worker, ask),
        Brings::Ranges => false,
    };
    if is_late {
        return ControlFlow::Break(Next::Far);
    }
    match read_along(worker, ask, &fill, *reason).await {
        Along::Answered(answer) => return ControlFlow::Break(Next::Answered(answer)),
        Along::Lost => return ControlFlow::Break(Next::Alone),
        Along::NotForIt => {}
    }
    if !fill.shared.is_current(&shared.vault) {
        // It will not be stored. Of those who wait for it one leads next.
        shared.collapse.outdate(key, leader);
        return abandoned;
    }
    if !fill.shared.is_variant_for(&ask.headers, &shared.config.caching) {
        return abandoned;
    }
    // To a HEAD the origin's headers come soon, as do ranges from where there are some; another
    // response may take long.
    let has_ranges = fill.shared.response.status == StatusCode::PARTIAL_CONTENT;
    let is_alone = ask.method == Method::HEAD
        || is_long_and_for_one(&fill, worker, ask)
        || (*brings == Brings::Ranges && has_ranges && !is_short(&fill, worker));
    if is_alone {
        return ControlFlow::Break(Next::Alone);
    }
    match timeout(limit, leader.outcome()).await {
        Ok(outcome) => ControlFlow::Continue(Some(outcome)),
        Err(_) => ControlFlow::Break(Next::Alone),
    }
}

/// Whether a follower reads a fill along.
enum Along {
    Answered(Box<Answer>),
    /// The store has already lost what it would read first.
    Lost,
    NotForIt,
}

async fn read_along(
    worker: &Arc<Worker>,
    ask: &Ask,
    fill: &SharedFill,
    reason: ForwardReason,
) -> Along {
    // Its client may leave before this one's first bytes have been read.
    let _coming = fill.body.await_reader();
    if !is_for(fill, worker, ask) {
        return Along::NotForIt;
    }
    let mut found = slices::resumable(worker, ask, Box::new(fill.found()));
    // The origin can still be asked instead, but not once the headers are sent.
    if !answer::begin(worker, ask, &mut found).await {
        return Along::Lost;
    }
    worker.counters.read_along.one();
    Along::Answered(Box::new(serve_hit(worker, ask, found, Some(reason))))
}

/// Whether this request may read the response along as if it were stored and fresh: all of it, or a
/// range that the fill will reach.
fn is_for(fill: &SharedFill, worker: &Worker, ask: &Ask) -> bool {
    let (shared, response) = (&worker.shared, &fill.shared.response);
    let cut = fill.body.length_bytes().is_some() && response.status == StatusCode::OK;
    let (asked, caching) = ((&ask.headers, &ask.wishes), &shared.config.caching);
    response.part.is_none()
        && fill.body.is_open()
        && (cut || !ask.wants_range())
        && fill.shared.stands_for(asked, &shared.vault, caching, worker.now_ms())
}

/// Whether nothing is gained by waiting for the end of the fill: this request must have validated
/// what comes, and its body may take long.
fn is_long_and_for_one(fill: &SharedFill, worker: &Worker, ask: &Ask) -> bool {
    let (caching, policy) = (&worker.shared.config.caching, &fill.shared.response.policy);
    let decision = reuse::decide(&ask.wishes, policy, caching, worker.now_ms());
    !is_short(fill, worker) && matches!(decision, Decision::Validate(_))
}

/// Whether the end of the fill is near from its beginning.
fn is_short(fill: &SharedFill, worker: &Worker) -> bool {
    let length_bytes = fill.body.length_bytes();
    length_bytes.is_some_and(|bytes| bytes <= worker.shared.vault.whole_body_bytes_max)
}

/// Whether the range is so far ahead of the fill that the origin, which supports ranges, should be
/// asked for it instead.
fn is_far(fill: &SharedFill, ask: &Ask) -> bool {
    if !ask.wants_range() {
        return false;
    }
    let ranged = fill.shared.response.headers.get(ACCEPT_RANGES);
    let specs = ranges::parse(&ask.headers).unwrap_or_default();
    let length_bytes = fill.body.length_bytes().unwrap_or(u64::MAX);
    let begins = specs.iter().map(|spec| spec.within(length_bytes).start).min().unwrap_or(0);
    ranged.is_some_and(|unit| unit.as_bytes().eq_ignore_ascii_case(b"bytes"))
        && begins > fill.body.shown_bytes().saturating_add(NEAR_BYTES)
}

/// Whether the fill of the whole brings any of the ranges, which could be asked for as they are, so
/// late that they should be: they cannot be cut from what has no length before its end. Not where
/// the origin has no ranges, but would send the whole again.
fn comes_late(fill: &SharedFill, worker: &Worker, ask: &Ask) -> bool {
    if is_without_ranges(fill, worker, ask) {
        return false;
    }
    let Some(length_bytes) = fill.body.length_bytes() else { return true };
    let specs = ranges::parse(&ask.headers).unwrap_or_default();
    let begins = specs.iter().map(|spec| spec.within(length_bytes));
    let begins = begins.filter(|range| !range.is_empty()).map(|range| range.start).max();
    let near = fill.body.shown_bytes().saturating_add(SOON_BYTES);
    begins.is_some_and(|start| start > near)
}

/// Whether the origin has said, or shown, that it has no ranges of this.
fn is_without_ranges(fill: &SharedFill, worker: &Worker, ask: &Ask) -> bool {
    let unsliceable = &worker.shared.collapse.unsliceable;
    let noted = unsliceable.of(&ask.target.primary, ask.has_cookie(), worker.now_s());
    let units = fill.shared.response.headers.get(ACCEPT_RANGES);
    noted == Some(Unsliceable::NoRanges)
        || units.is_some_and(|units| units.as_bytes().eq_ignore_ascii_case(b"none"))
}
