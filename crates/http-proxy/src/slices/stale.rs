//! Slices that are stale: the origin is asked whether one is still right, and sends none of its
//! bytes again if it is. That counts for all slices of its version: each is freshened when it is
//! wanted.
//!
//! Invariant: only a strong tag says so, as it would of slices that are joined. Threads: the
//! worker's.

use std::sync::Arc;

use http::StatusCode;
use http::header::ETAG;

use crate::error::FetchError;
use crate::fetch::{Fetch, Stored};
use crate::request::Ask;
use crate::rules::group::Groups;
use crate::rules::parts::{self, Slices};
use crate::rules::reuse::{self, Decision};
use crate::rules::{ForwardReason, is_passing_failure, validation};
use crate::slices::slice::{Got, How, SliceResponse, ask_origin, is_usable};
use crate::vault::entry::StoredResponse;
use crate::vault::{Found, FoundBody, Placement, Slice};
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
    let is_older = newer.policy.response_time_ms < stored.policy.response_time_ms;
    if !is_one_version || is_older || !is_usable(worker, ask, &newer.policy, begun_ms) {
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
    stale: Option<Slice>,
) -> Result<Said, FetchError> {
    let is_comparable = |slice: &Slice| {
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
    stale: Slice,
) -> Option<Got> {
    let (vault, target) = (&worker.shared.vault, &ask.target);
    let news = asked.response.headers();
    let Slice { response, bytes, placement, key, blob, part } = stale;
    if validation::updated_by_304(news, &[&response.headers]).is_empty() {
        return None;
    }
    let sent = asked.sent;
    let fetching =
        Fetch { sent, ..Fetch::new(worker, ask, None, key.clone(), ForwardReason::Stale) };
    let lying = StoredResponse { part, ..response.clone() };
    let length_bytes = part.map(|part| part.complete_bytes);
    let stored = Stored { key: &key, blob: &blob, response: &lying, length_bytes };
    let freshened = fetching.merged(&stored, news);
    // Of which groups a slice is a member is settled when it is stored.
    let named = |headers| Groups::named(&target.host, headers);
    if named(&freshened.response.headers) != named(&lying.headers) {
        return None;
    }
    let found = Found::assembled(response, FoundBody::Whole(bytes), placement);
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
    Some(Got { response: merged, body, placement, how, own })
}
