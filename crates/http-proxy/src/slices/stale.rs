//! Slices that are stale: the origin is asked whether one is still right, and sends none of its
//! bytes again if it is. That counts for all slices of its version: each is freshened when it is
//! wanted. Within their windows they are served meanwhile (RFC 5861 §3), or where the origin fails
//! (§4).
//!
//! Invariants: only a strong tag says so, as it would of slices that are joined; of a resource one
//! slice at a time is validated behind answers, and none for a moment after that has failed; what
//! is known to be of an earlier version is served in neither case. Threads: the worker's; a
//! validation behind answers is a task of its own.

use std::sync::Arc;

use http::StatusCode;
use http::header::ETAG;

use crate::collapse::{Lead, Outcome, Role};
use crate::error::FetchError;
use crate::fetch::{Fetch, Stored};
use crate::request::Ask;
use crate::rules::group::Groups;
use crate::rules::parts::{self, Slices};
use crate::rules::reuse::{self, Decision};
use crate::rules::{ForwardReason, is_passing_failure, validation};
use crate::slices::arrival::{SliceResponse, ask_origin};
use crate::slices::got::{Begun, Failed, Got, How, Lack};
use crate::slices::slice::{fetch, is_usable};
use crate::vault::entry::StoredResponse;
use crate::vault::{Epoch, Found, FoundBody, Placement, Slice, Stretch, slice_key};
use crate::worker::Worker;

/// What the origin says of a slice.
pub(super) enum Said {
    /// The stored one is right, and fresh from now on.
    Confirmed(Box<Got>),
    /// It sent one, or something else.
    Else(Box<SliceResponse>),
}

/// A stale slice that may be served since another one of its version was confirmed, and is kept so.
pub(super) async fn as_confirmed(
    worker: &Worker,
    ask: &Ask,
    slice: &Slice,
    begun_ms: u64,
) -> Option<StoredResponse> {
    let (vault, target) = (&worker.shared.vault, &ask.target);
    let confirmed = vault.confirmed(&target.primary)?;
    let (stored, newer) = (&slice.response, &confirmed.response);
    let came_s = newer.policy.response_time_s();
    let complete_bytes = |response: &StoredResponse| Some(response.part?.complete_bytes);
    let is_one_version = parts::may_combine(&stored.headers, &newer.headers, came_s)
        && newer.headers.contains_key(ETAG)
        && complete_bytes(stored) == complete_bytes(newer)
        && Groups::named(&target.host, &stored.headers)
            == Groups::named(&target.host, &newer.headers);
    let is_no_news = newer.policy.response_time_ms < stored.policy.response_time_ms
        || newer.policy == stored.policy;
    if !is_one_version || is_no_news || !is_usable(worker, ask, &newer.policy, begun_ms) {
        return None;
    }
    let (headers, policy) = (newer.headers.clone(), newer.policy);
    let updated = StoredResponse { headers, policy, part: slice.part, ..stored.clone() };
    let (group, epoch) = (slice.placement.group, confirmed.epoch);
    // A purge since then has made that stale, too.
    let stamp = vault.stamp(epoch, &updated).ok()?;
    if !vault.is_untouched(&slice.key, &Placement { group, in_memory: true, stamp }) {
        return None;
    }
    let older = vault.older(stored, &updated);
    let (key, blob) = (&slice.key, &slice.blob);
    vault.update(&target.primary, key, blob, &updated, older, epoch).await.ok()?;
    Some(StoredResponse { part: stored.part, ..updated })
}

/// Asks the origin for a slice that is not stored, or is stored and stale.
pub(super) async fn ask_about(
    worker: &Arc<Worker>,
    ask: &Ask,
    slices: Slices,
    index: u64,
    stale: Option<&Slice>,
) -> Result<Said, FetchError> {
    let is_comparable = |slice: &&Slice| {
        let (headers, came_s) = (&slice.response.headers, slice.response.policy.response_time_s());
        parts::may_combine(headers, headers, came_s)
    };
    if let Some(stale) = stale.filter(is_comparable)
        && let Some(tag) = stale.response.headers.get(ETAG).cloned()
    {
        let asked = ask_origin(worker, ask, slices, index, Some(&tag)).await?;
        let status = asked.response.status();
        if status != StatusCode::NOT_MODIFIED {
            if !is_passing_failure(status) {
                let (vault, came) = (&worker.shared.vault, asked.response.headers());
                vault.forget_confirmed_but(&ask.target.primary, came);
            }
            return Ok(Said::Else(Box::new(asked)));
        }
        if let Some(got) = freshened(worker, ask, &asked, stale).await {
            return Ok(Said::Confirmed(Box::new(got)));
        }
    }
    let asked = ask_origin(worker, ask, slices, index, None).await?;
    Ok(Said::Else(Box::new(asked)))
}

/// The slice updated by a 304; `None` if that says nothing about it, or it is gone.
async fn freshened(
    worker: &Arc<Worker>,
    ask: &Ask,
    asked: &SliceResponse,
    stale: &Slice,
) -> Option<Got> {
    let (vault, target) = (&worker.shared.vault, &ask.target);
    let news = asked.response.headers();
    let Slice { response, bytes, placement, key, blob, part } = stale;
    let part = *part;
    if validation::updated_by_304(news, &[&response.headers]).is_empty() {
        return None;
    }
    let sent = asked.sent;
    let fetching =
        Fetch { sent, ..Fetch::new(worker, ask, None, key.clone(), ForwardReason::Stale) };
    let lying = StoredResponse { part, ..response.clone() };
    let length_bytes = part.map(|part| part.complete_bytes);
    let stored = Stored { key, blob, response: &lying, length_bytes };
    let freshened = fetching.merged(&stored, news);
    // Of which groups a slice is a member is settled when it is stored.
    let named = |headers| Groups::named(&target.host, headers);
    if named(&freshened.response.headers) != named(&lying.headers) {
        return None;
    }
    let body = FoundBody::Whole(bytes.clone());
    let found = Found::assembled(response.clone(), body, placement.clone());
    if !vault.still_stands(&target.primary, &found, sent.epoch) {
        return None;
    }
    let Found { response, body, placement, .. } = found;
    let kept = fetching.keep_freshened(stored, &freshened).await;
    let merged = StoredResponse { part: response.part, ..freshened.response.clone() };
    let own = freshened.with_own_cookies(news);
    if kept.is_ok() {
        vault.note_confirmed(&target.primary, sent.epoch, freshened.response);
    }
    worker.counters.revalidated.one();
    let caching = &worker.shared.config.caching;
    let reason = match reuse::decide(&ask.wishes, &lying.policy, caching, sent.request_time_ms) {
        Decision::Validate(reason) => reason,
        _ => ForwardReason::Stale,
    };
    let how = How::Validated { reason, kept: kept.is_ok() };
    Some(Got { response: merged, body, placement, how, own, coming: None })
}

/// Whether a stale slice may be served where the origin has failed in this way.
pub(super) fn may_stand_in(
    worker: &Worker,
    ask: &Ask,
    stored: &StoredResponse,
    begun: Begun<'_>,
    failed: Failed,
) -> bool {
    let (caching, failure) = (&worker.shared.config.caching, failed.failure);
    let may =
        |now_ms| reuse::may_serve_on_error(&ask.wishes, &stored.policy, failure, caching, now_ms);
    failure.is_worse_than(stored.status)
        && begun.suits(stored)
        && !is_superseded(worker, ask, stored)
        && [begun.at_ms, worker.now_ms()].into_iter().any(may)
}

/// Why the origin is known to fail without being asked, if it is.
pub(super) fn known_failure(worker: &Worker, ask: &Ask) -> Option<FetchError> {
    let fetcher = &worker.fetcher;
    if worker.shared.forward.is_some() {
        None
    } else if fetcher.is_known_down(ask.site) {
        Some(FetchError::Down)
    } else {
        fetcher.is_out_of_reach(ask.site).then_some(FetchError::Connect(None))
    }
}

/// Whether another version than a stored slice's has come since that was right.
pub(super) fn is_superseded(worker: &Worker, ask: &Ask, stored: &StoredResponse) -> bool {
    worker.shared.vault.confirmed(&ask.target.primary).is_some_and(|confirmed| {
        let newer = &confirmed.response;
        let came_s = newer.policy.response_time_s();
        newer.policy.response_time_ms >= stored.policy.response_time_ms
            && !parts::may_combine(&stored.headers, &newer.headers, came_s)
    })
}

/// Remembers that the slice that came in place of a stale one is of another version, if it is:
/// others of the stale one's are not served for what they say themselves any more.
pub(super) fn note_successor(
    worker: &Worker,
    ask: &Ask,
    stale: &StoredResponse,
    came: &StoredResponse,
    epoch: Epoch,
) {
    let came_s = came.policy.response_time_s();
    if came.part.is_some() && !parts::may_combine(&stale.headers, &came.headers, came_s) {
        worker.shared.vault.note_confirmed(&ask.target.primary, epoch, came.clone());
    }
}

/// As [`validate_behind`], where the origin is known to fail: only if it may be tried now.
pub(super) fn try_behind(
    worker: &Arc<Worker>,
    ask: &Ask,
    stretch: Stretch,
    stale: &StoredResponse,
) {
    let fetcher = &worker.fetcher;
    if !fetcher.is_known_down(ask.site) || fetcher.may_try(ask.site) {
        validate_behind(worker, ask, stretch, stale);
    }
}

/// In the keys that validations behind answers lead under, in place of the number of a slice: no
/// resource has so many.
const ALL: u64 = u64::MAX;

/// Validates a stale slice while its client is served, unless another request already asks about
/// it, or another slice of its resource is being validated so, or that has just failed, or the
/// origin is out of reach and was tried just now.
pub(super) fn validate_behind(
    worker: &Arc<Worker>,
    ask: &Ask,
    Stretch { slices, index, .. }: Stretch,
    stale: &StoredResponse,
) {
    let (collapse, primary) = (&worker.shared.collapse, &ask.target.primary);
    let of_all = slice_key(primary, slices, ALL);
    // Nothing of an exchange for who says no-store is stored: the next one has it validated.
    if ask.wishes.no_store || collapse.unvalidated.of(&of_all).is_on() {
        return;
    }
    let Role::Leader(only) = collapse.lead_or_follow(&of_all) else { return };
    let Role::Leader(lead) = collapse.lead_or_follow(&slice_key(primary, slices, index)) else {
        return;
    };
    if worker.shared.forward.is_none() && !worker.fetcher.may_validate_behind(ask.site) {
        return;
    }
    let ask = ask.for_nobody(&worker.shared.config.ruleset);
    let (worker, served_since_ms) = (worker.clone(), stale.policy.response_time_ms);
    tokio::spawn(async move {
        if !validate(&worker, &ask, (slices, index), lead, served_since_ms).await {
            worker.shared.collapse.unvalidated.of(&of_all).begin();
        }
        only.end(Outcome::Abandoned);
    });
}

/// False if the origin has failed. `served_since_ms`: when the slice that the client is served
/// came, or was last validated.
async fn validate(
    worker: &Arc<Worker>,
    ask: &Ask,
    (slices, index): (Slices, u64),
    lead: Lead,
    served_since_ms: u64,
) -> bool {
    let (vault, primary) = (&worker.shared.vault, &ask.target.primary);
    let stretch = Stretch::whole(slices, index).all_needed();
    let Some(slice) = vault.slice(primary, stretch, &worker.counters).await else { return true };
    if slice.response.policy.response_time_ms > served_since_ms {
        // Another leader finished between the lookup for the client and this lead.
        lead.end(Outcome::Stored);
        return true;
    }
    worker.counters.validated_behind.one();
    // Of no version, so that the whole is not fetched for nobody.
    match fetch(worker, ask, (slices, index), None, Some(lead), Some(&slice)).await {
        Ok(_) | Err(Lack::NotStored) => true,
        Err(Lack::NoSlice) => {
            // It is something else now, or is gone; unless it is so for who asked.
            if !ask.has_credentials() {
                vault.forget_slices(primary);
            }
            true
        }
        Err(Lack::Refused(_) | Lack::Failed { .. }) => false,
    }
}
