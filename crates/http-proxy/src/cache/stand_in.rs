//! Answers of a request for which the origin is known to fail, or has failed another request: what
//! is stored, if it may be served then (RFC 5861 §4), or the same failure.
//!
//! Invariant: each request decides by its own wishes. Threads: the worker's.

use std::sync::Arc;

use crate::answer::{self, Answer, origin_failed, reused, serve_hit};
use crate::cache::behind::validate_behind;
use crate::cache::{Plan, Question, plan};
use crate::error::FetchError;
use crate::fetch::Conditions;
use crate::request::Ask;
use crate::rules::reuse::{self, Failure};
use crate::rules::{CacheStatus, ForwardReason};
use crate::slices;
use crate::vault::Found;
use crate::worker::Worker;

/// The status of a request that waited for another one, for this reason.
pub(super) fn waited_for(reason: ForwardReason) -> CacheStatus {
    let mut status = CacheStatus::forwarded(reason);
    status.collapsed = true;
    status
}

/// The answer, without waiting, when the origin is known to be down or out of reach: a stale
/// response, or, if its checks say so, an error. `None` if this request is one of the few that
/// probe the origin; behind a stale answer a probe runs as well.
pub(super) async fn known_to_fail(
    worker: &Arc<Worker>,
    ask: &Ask,
    question: &Question,
) -> Option<Answer> {
    if worker.shared.forward.is_some() {
        return None;
    }
    let error = if worker.fetcher.is_known_down(ask.site) {
        if worker.fetcher.may_try(ask.site) {
            let stale = may_stand_in(worker, ask, question).filter(|_| !ask.wishes.no_store)?;
            validate_behind(worker, ask, stale);
        }
        FetchError::Down
    } else if worker.fetcher.is_out_of_reach(ask.site) {
        let stale = may_stand_in(worker, ask, question)?;
        // No check finds out when it is back, so whoever cannot have what is stale asks.
        if !ask.wishes.no_store {
            validate_behind(worker, ask, stale);
        }
        FetchError::Connect(None)
    } else {
        return None;
    };
    let status = CacheStatus::forwarded(question.reason);
    Some(share_failure(worker, ask, error, status).await)
}

/// What was found, if this request may have it when the origin gives no answer.
fn may_stand_in<'q>(worker: &Worker, ask: &Ask, question: &'q Question) -> Option<&'q Found> {
    let (caching, now_ms) = (&worker.shared.config.caching, worker.now_ms());
    let found = question.found.as_deref().filter(|_| question.conditions == Conditions::Ours)?;
    let (policy, failure) = (&found.response.policy, Failure::Disconnected);
    let may = failure.is_worse_than(found.response.status)
        && reuse::may_serve_on_error(&ask.wishes, policy, failure, caching, now_ms);
    may.then_some(found)
}

/// The leader got no response, or an error: each follower may use a stale one if its own directives
/// allow.
pub(super) async fn share_failure(
    worker: &Arc<Worker>,
    ask: &Ask,
    error: FetchError,
    mut status: CacheStatus,
) -> Answer {
    let planned = plan(worker, ask).await;
    if let Plan::Serve(found, _) = planned {
        let collapsed = status.forward.filter(|_| status.collapsed);
        return serve_hit(worker, ask, slices::resumable(worker, ask, found), collapsed);
    }
    if status.collapsed {
        worker.counters.collapsed.one();
    }
    status.detail = Some(error.name());
    let failure = match error {
        FetchError::Status(code, _) => Failure::Status(code),
        _ => Failure::Disconnected,
    };
    match stand_in(worker, ask, planned, failure, status.clone()).await {
        Some(answer) => answer,
        None => origin_failed(worker, error, status),
    }
}

/// The stored response, if this request may have it as well as the leader that it waited for, for
/// `reason`: the leader met with this failure, which `detail` names.
pub(super) async fn stand_in_too(
    worker: &Arc<Worker>,
    ask: &Ask,
    (failure, detail): (Failure, &'static str),
    reason: ForwardReason,
) -> Option<Answer> {
    let mut status = waited_for(reason);
    status.detail = Some(detail);
    let planned = plan(worker, ask).await;
    let answer = stand_in(worker, ask, planned, failure, status).await?;
    worker.counters.collapsed.one();
    Some(answer)
}

/// The stored response in place of a failure that another request, or an earlier one, met with, if
/// this one may have it.
async fn stand_in(
    worker: &Arc<Worker>,
    ask: &Ask,
    planned: Plan,
    failure: Failure,
    status: CacheStatus,
) -> Option<Answer> {
    let Plan::Ask(Question { found: Some(mut found), conditions: Conditions::Ours, .. }) = planned
    else {
        return None;
    };
    let (caching, now_ms) = (&worker.shared.config.caching, worker.now_ms());
    let may = failure.is_worse_than(found.response.status)
        && reuse::may_serve_on_error(&ask.wishes, &found.response.policy, failure, caching, now_ms);
    if !may || !answer::begin(worker, ask, &mut found).await {
        return None;
    }
    worker.counters.stale_on_error.one();
    Some(reused(worker, ask, slices::resumable(worker, ask, found), status))
}
