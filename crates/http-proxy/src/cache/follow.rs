//! Waiting for another request for the same resource, and reading its response along with it.
//!
//! Invariant: nobody follows a leader that has brought nothing within `timeouts.collapse`, nor
//! waits longer than that for the end of what it brings. Threads: the worker's.

use std::sync::Arc;

use http::header::ACCEPT_RANGES;
use http::{Method, StatusCode};
use tokio::time::{timeout, timeout_at};

use crate::answer::{self, Answer, serve_hit};
use crate::collapse::sharing::SharedFill;
use crate::collapse::{self, News, Outcome};
use crate::fetch::head;
use crate::request::Ask;
use crate::rules::reuse::{self, Decision};
use crate::rules::{ForwardReason, ranges};
use crate::slices;
use crate::worker::Worker;

/// A range that begins at most this far ahead of a fill is waited for.
const NEAR_BYTES: u64 = 8 << 20;

/// The result of waiting for a leader.
pub(crate) enum Following {
    /// The response arrives along with the leader's.
    Answered(Box<Answer>),
    /// The fill will reach the range so late that fetching a slice is faster.
    Far,
    Ended(Outcome),
    /// A change has outdated the leader's response, which will not be stored.
    Outdated,
    /// The leader has got nothing from the origin for so long that it may never.
    Silent,
    TooSlow,
}

/// Waits for a leader, for `reason`, and reads along if the leader's response also suits this
/// request.
pub(crate) async fn follow(
    worker: &Arc<Worker>,
    ask: &Ask,
    leader: &News,
    reason: ForwardReason,
) -> Following {
    let wait = worker.shared.config.timeouts.collapse;
    let _waiting = worker.shared.collapse.wait();
    match timeout_at(leader.began() + wait, collapse::news(leader)).await {
        Err(_) => return Following::Silent,
        Ok(Outcome::Filling(fill)) => {
            if worker.shared.config.caching.slice_bytes > 0 && is_far(&fill, ask) {
                return Following::Far;
            }
            match read_along(worker, ask, &fill, reason).await {
                Along::Answered(answer) => return Following::Answered(answer),
                Along::Lost => return Following::TooSlow,
                Along::NotForIt => {}
            }
            let (subject, config) = (&fill.shared, &worker.shared.config);
            if !subject.is_current(&worker.shared.vault) {
                return Following::Outdated;
            }
            if !subject.is_variant_for(&ask.headers, &config.caching) {
                return Following::Ended(Outcome::Abandoned);
            }
            if ask.method == Method::HEAD {
                // The headers come soon; the body of another variant may take long.
                return Following::TooSlow;
            }
            if is_long_and_for_one(&fill, worker, ask) {
                return Following::TooSlow;
            }
        }
        Ok(Outcome::Head(subject)) => {
            return match head::shared(worker, ask, &subject, reason) {
                Some(answer) => Following::Answered(Box::new(answer)),
                // The leader fetches another variant: a follower that wants this one leads next.
                None => Following::Ended(Outcome::Abandoned),
            };
        }
        Ok(outcome) => return Following::Ended(outcome),
    }
    match timeout(wait, collapse::outcome(leader)).await {
        Ok(outcome) => Following::Ended(outcome),
        Err(_) => Following::TooSlow,
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
    let (shared, policy) = (&worker.shared, &fill.shared.response.policy);
    let length_bytes = fill.body.length_bytes();
    let is_short = length_bytes.is_some_and(|bytes| bytes <= shared.vault.whole_body_bytes_max);
    let caching = &shared.config.caching;
    let decision = reuse::decide(&ask.wishes, policy, caching, worker.now_ms());
    !is_short && matches!(decision, Decision::Validate(_))
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
