//! Ranges of large resources from aligned slices: only the slices that a range touches are fetched,
//! and each is stored by itself (if `Rules::slice_bytes` says so).
//!
//! Invariants: slices of one answer share a strong validator; anything unexpected (no 206, `Vary`, a
//! slice that may not be stored) ends in `None`, and the range is asked for as the client sent it;
//! at most [`SLICES_MAX`] slices are in memory for one answer; of several who miss a slice at once one
//! asks for it. Threads: as `serve`.

use bytes::{Bytes, BytesMut};
use damelo::GroupId;
use http::header::{CONTENT_RANGE, HeaderValue, RANGE};
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use tokio::time::timeout;

use crate::answer;
use crate::ask::Ask;
use crate::body::{OriginBody, Timed};
use crate::collapse::{self, Outcome, Role};
use crate::entry::StoredResponse;
use crate::rules::parts::{self, Part, Slices};
use crate::rules::ranges::{self, Spec};
use crate::rules::reuse::{self, Arrived, Decision};
use crate::rules::storing::{self, Exchange};
use crate::rules::vary::{self, Vary};
use crate::rules::{CacheStatus, Forward, Policy, ResponseDirectives, validation};
use crate::serve::{Answer, with_hit_status};
use crate::steer;
use crate::upstream::FetchedBody;
use crate::vault::{Epoch, Found, FoundBody, Slice, slice_key};
use crate::worker::Worker;

/// Slices put together for one answer; longer ranges are asked for as they are.
const SLICES_MAX: u64 = 16;
/// Largest slice: it is in memory while it is fetched.
const SLICE_BYTES_MAX: u64 = 16 << 20;

/// Answers a range from slices; `None` if that is not configured, not possible or did not work.
pub(crate) async fn serve(worker: &Worker, ask: &Ask, reason: Forward) -> Option<Answer> {
    let rules = &worker.shared.config.rules;
    let slices = Slices { slice_bytes: rules.slice_bytes.min(SLICE_BYTES_MAX) };
    if slices.slice_bytes == 0 || !ask.wants_range() || !rules.key.selects_nothing() {
        return None;
    }
    let [Spec::From { first, last: Some(last) }] = ranges::parse(&ask.headers)?[..] else {
        return None;
    };
    let primary = &ask.target.primary;
    if worker.shared.collapse.is_uncacheable(primary) {
        return None;
    }
    let mut status = CacheStatus { hit: true, ..CacheStatus::default() };
    let mut wanted = slices.covering(first, first, SLICES_MAX)?;
    let mut have: Vec<Slice> = Vec::new();
    while let Some(index) = wanted.next() {
        let slice = match stored_slice(worker, ask, slices, index).await {
            Some(slice) => slice,
            None if ask.wishes.only_if_cached => return None,
            None => {
                let (slice, followed) = fetch_once(worker, ask, slices, index).await?;
                if status.hit {
                    status = CacheStatus::forwarded(reason);
                }
                if followed {
                    status.collapsed = true;
                } else {
                    status.forward_status = Some(StatusCode::PARTIAL_CONTENT);
                    status.stored = true;
                }
                slice
            }
        };
        if have.is_empty() {
            // Only now is it known where the resource ends, and so how many slices are needed.
            let end = slice.response.part?.complete_bytes.checked_sub(1)?;
            wanted = slices.covering(first, last.min(end), SLICES_MAX)?;
            wanted.next();
        }
        have.push(slice);
    }
    let Some(found) = joined(have) else {
        // The resource has changed between them: all are fetched anew next time.
        worker.shared.vault.forget_slices(primary);
        return None;
    };
    if !answer::part_suffices(worker, ask, &found.response) {
        return None;
    }
    if status.collapsed {
        worker.counters.collapsed.one();
    }
    if status.hit {
        worker.counters.hits.one();
        steer::on_hit(worker, ask, &found);
    }
    Some(with_hit_status(worker, ask, found, status))
}

/// A slice from the store, if it may be served as it is.
async fn stored_slice(worker: &Worker, ask: &Ask, slices: Slices, index: u64) -> Option<Slice> {
    let vault = &worker.shared.vault;
    let slice = vault.slice(&ask.target.primary, slices, index, &worker.counters).await?;
    let rules = &worker.shared.config.rules;
    match reuse::decide(&ask.wishes, &slice.response.policy, rules, worker.now_s()) {
        Decision::Serve | Decision::ServeStale => Some(slice),
        Decision::ServeAndRevalidate | Decision::Validate(_) => None,
    }
}

/// A slice that the store lacks. Of all who want it at once one asks the origin; true for the others,
/// who find it stored then. If it cannot be had, nobody gets it: they ask as their clients did.
async fn fetch_once(
    worker: &Worker,
    ask: &Ask,
    slices: Slices,
    index: u64,
) -> Option<(Slice, bool)> {
    let shared = &worker.shared;
    let key = slice_key(&ask.target.primary, slices, index);
    match shared.collapse.join(&key) {
        Role::Alone => {}
        Role::Leader(lead) => {
            // Another leader may have finished between our lookup and our lead.
            if shared.vault.may_contain(&key)
                && let Some(slice) = stored_slice(worker, ask, slices, index).await
            {
                lead.end(Outcome::Stored);
                return Some((slice, true));
            }
            let slice = fetch_slice(worker, ask, slices, index).await?;
            lead.end(Outcome::Stored);
            return Some((slice, false));
        }
        Role::Follower(leader) => {
            let _waiting = shared.collapse.wait();
            let outcome = collapse::outcome(&leader);
            match timeout(shared.config.collapse_wait, outcome).await {
                Ok(Outcome::Stored) => {
                    if let Some(slice) = stored_slice(worker, ask, slices, index).await {
                        return Some((slice, true));
                    }
                }
                Ok(_) => return None,
                Err(_) => {}
            }
        }
    }
    Some((fetch_slice(worker, ask, slices, index).await?, false))
}

/// Asks the origin for one slice and stores it.
async fn fetch_slice(worker: &Worker, ask: &Ask, slices: Slices, index: u64) -> Option<Slice> {
    let epoch = worker.shared.vault.epoch(&ask.target.primary);
    let request_time_s = worker.now_s();
    let mut request = ask.forward(&worker.shared, OriginBody::Empty);
    validation::remove_conditions(request.headers_mut());
    let (first, last) = slices.bounds(index);
    let range = HeaderValue::try_from(format!("bytes={first}-{last}")).ok()?;
    request.headers_mut().insert(RANGE, range);
    let response = worker.fetcher.send(request).await.ok()?;
    let times = (request_time_s, worker.now_s());
    let understood = response.status().is_success();
    let slice = take_slice(worker, ask, (slices, index), times, epoch, response).await;
    if slice.is_none() && understood {
        // It cannot be sliced: the next range of this resource is not asked for twice.
        worker.shared.collapse.remember(&ask.target.primary, false);
    }
    slice
}

async fn take_slice(
    worker: &Worker,
    ask: &Ask,
    (slices, index): (Slices, u64),
    (request_time_s, response_time_s): (u64, u64),
    epoch: Epoch,
    response: Response<FetchedBody>,
) -> Option<Slice> {
    let (mut head, body) = response.into_parts();
    let length_bytes = body.size_hint().exact();
    let (status, headers) = (head.status, &mut head.headers);
    let effects = steer::on_response(&worker.shared, ask, status, headers, length_bytes);
    let rules = &worker.shared.config.rules;
    let directives = ResponseDirectives::of(&head.headers, rules);
    let part = Part::of(&head.headers).filter(|part| slices.is_slice(index, part))?;
    let exchange = Exchange {
        method: &Method::GET,
        request: &ask.headers,
        wishes: &ask.wishes,
        status: head.status,
        response: &head.headers,
        directives: &directives,
        response_time_s,
        selective: true,
    };
    let partial = head.status == StatusCode::PARTIAL_CONTENT;
    if !partial || vary::of(&head.headers) != Vary::Nothing {
        return None;
    }
    effects.admit(storing::decide(exchange, rules), &head.headers).ok()?;
    let arrived = Arrived {
        status: head.status,
        headers: &head.headers,
        received: &head.headers,
        directives: &directives,
        request_time_s,
        response_time_s,
    };
    let mut policy = Policy::of(arrived, rules);
    effects.adjust(&mut policy);
    let mut headers = storing::stored_headers(&head.headers, &directives, rules, response_time_s);
    headers.remove(CONTENT_RANGE);
    let mut stored = StoredResponse::new(head.status, head.version, policy, headers);
    stored.part = Some(part);
    let timed = Timed::new(body, worker.idle_limit());
    let bytes = collect(timed, part.length_bytes()).await?;
    let target = &ask.target;
    let groups = effects.groups_of(&worker.shared.config, ask, &head.headers);
    let slice = (slices, index);
    let vault = &worker.shared.vault;
    let kept = match effects.admit_new(&worker.shared, ask) {
        Ok(()) => vault.store_slice(target, epoch, slice, stored.clone(), &groups, &bytes).await,
        first => first,
    };
    match kept {
        Ok(()) => worker.counters.stored.one(),
        Err(reason) => worker.counters.not_stored(reason, &target.primary),
    }
    let lies = vault.lies_now(GroupId::of(&groups.home), epoch, &stored)?;
    Some(Slice { response: stored, bytes, lies })
}

/// A body of exactly this length; `None` if it is another.
async fn collect(mut body: Timed, length_bytes: u64) -> Option<Bytes> {
    let length = usize::try_from(length_bytes).ok()?;
    let mut bytes = BytesMut::with_capacity(length);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.ok()?.into_data() else { continue };
        if data.len() > length - bytes.len() {
            return None;
        }
        bytes.extend_from_slice(&data);
    }
    (bytes.len() == length).then(|| bytes.freeze())
}

/// Slices that follow each other as one part; `None` if they are of different versions. The oldest
/// lends its headers, so that none is taken for fresher than it is.
fn joined(have: Vec<Slice>) -> Option<Found> {
    let oldest = have.iter().max_by_key(|slice| {
        let policy = &slice.response.policy;
        // Who was older at the same moment is older at every moment.
        i128::from(policy.initial_age_s) - i128::from(policy.response_time_s)
    })?;
    let (mut response, lies) = (oldest.response.clone(), oldest.lies.clone());
    let arrived_s = response.policy.response_time_s;
    let mut part = have.first()?.response.part?;
    let mut all = BytesMut::new();
    for Slice { response: stored, bytes, .. } in &have {
        if have.len() > 1 && !parts::may_combine(&response.headers, &stored.headers, arrived_s) {
            return None;
        }
        part = part.joined(&stored.part?)?;
        if have.len() > 1 {
            all.extend_from_slice(bytes);
        }
    }
    response.part = Some(part);
    let body = match <[Slice; 1]>::try_from(have) {
        Ok([slice]) => slice.bytes,
        Err(_) => all.freeze(),
    };
    Some(Found::assembled(response, FoundBody::Whole(body), lies))
}
