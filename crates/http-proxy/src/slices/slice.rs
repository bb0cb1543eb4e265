//! One slice of a resource: from the store, from another request's fetch, or from the origin.
//!
//! Invariants: of concurrent requests that miss a slice, or find it stale, one asks for it, and all
//! read it as it arrives; a fetched slice goes into the store even if its clients leave; a slice
//! that spans its whole resource is stored as the complete response. Threads: the worker's; a fill
//! is a task of its worker.

use std::sync::Arc;

use http::header::{CONTENT_RANGE, HeaderValue, IF_NONE_MATCH, RANGE};
use http::{HeaderMap, Method, Response, StatusCode};
use hyper::body::Body as _;
use tokio::time::timeout_at;

use crate::answer;
use crate::collapse::rounds::Rounds;
use crate::collapse::sharing::{SharedFill, SharedResponse};
use crate::collapse::unsliceable::Unsliceable;
use crate::collapse::{Lead, Leader, News, Outcome, Role, Who};
use crate::error::{BodyError, FetchError};
use crate::fetch::fill::{Fill, FillLimits, Storing};
use crate::fetch::{Sent, note_age};
use crate::request::{Ask, hooks};
use crate::rules::group::Groups;
use crate::rules::parts::{self, Part, Slices};
use crate::rules::reuse::{self, Arrived, Decision};
use crate::rules::storing::{self, Exchange};
use crate::rules::vary::{self, Vary};
use crate::rules::{ForwardReason, NotStoredReason, Policy, ResponseDirectives, validation};
use crate::ruleset::Hint;
use crate::slices::stale::{self, Said};
use crate::upstream::{FetchedBody, OriginBody, Timed};
use crate::vault::entry::StoredResponse;
use crate::vault::insertion::Insertion;
use crate::vault::{FoundBody, Placement, Slice, Stretch, slice_key};
use crate::worker::Worker;

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
}

/// Why a slice is not to be had.
#[derive(Debug)]
pub(crate) enum Lack {
    /// It is not stored, and the origin may not be asked for it, or the store did not take it.
    NotStored,
    /// The origin answered, but with no such slice.
    NoSlice,
    /// The origin gave no answer, to this request or to another that this one followed.
    Failed { error: FetchError, followed: bool },
}

impl Lack {
    /// Why an answer breaks off that had begun before.
    pub(crate) fn breaks_off(&self) -> BodyError {
        match self {
            Lack::NotStored => BodyError::Store,
            Lack::Failed { error, .. } if error.status() == StatusCode::GATEWAY_TIMEOUT => {
                BodyError::Idle
            }
            Lack::NoSlice | Lack::Failed { .. } => BodyError::Broken,
        }
    }
}

/// The origin's response to a request for a slice.
pub(crate) struct SliceResponse {
    pub(crate) slices: Slices,
    pub(crate) index: u64,
    pub(crate) sent: Sent,
    pub(crate) response: Response<FetchedBody>,
}

/// Gets at least this stretch of a slice, for an answer that began at `begun_ms`.
pub(crate) async fn get(
    worker: &Arc<Worker>,
    ask: &Ask,
    stretch: Stretch,
    begun_ms: u64,
) -> Result<Got, Lack> {
    let Stretch { slices, index, .. } = stretch;
    let shared = &worker.shared;
    let primary = &ask.target.primary;
    if let Some(got) = stored(worker, ask, stretch, How::Stored, begun_ms).await {
        return Ok(got);
    }
    if ask.wishes.only_if_cached {
        return Err(Lack::NotStored);
    }
    let key = slice_key(primary, slices, index);
    let mut broke = None;
    let mut rounds = Rounds::new(ask.origin_header(&shared.config));
    while rounds.is_one_left() {
        if shared.collapse.unsliceable.of(primary, ask.has_cookie(), worker.now_s()).is_some() {
            return Err(Lack::NoSlice);
        }
        match shared.collapse.join(&key, Who::default()).after_repeats(ask.via_repeats) {
            Role::Alone => {
                broke = None;
                break;
            }
            Role::Leader(lead) => {
                // Another leader may have finished between this request's lookup and its lead.
                let stale = match held(worker, ask, stretch, How::Followed, begun_ms).await {
                    Held::Usable(got) => {
                        lead.end(Outcome::Stored);
                        return Ok(*got);
                    }
                    Held::Stale(slice) => Some(*slice),
                    Held::Nothing => None,
                };
                return fetch(worker, ask, slices, index, (Some(lead), stale)).await;
            }
            Role::Follower(leader) => match follow(worker, ask, stretch, &leader, begun_ms).await {
                Followed::Got(got) => return Ok(*got),
                Followed::Gone(lack) => return Err(lack),
                Followed::Again(error) => {
                    broke = error;
                    rounds.end_one(false);
                }
                Followed::Outdated => {
                    shared.collapse.outdate(&key, &leader);
                    broke = None;
                    rounds.end_one(false);
                }
                Followed::Silent => {
                    shared.collapse.outdate(&key, &leader);
                    broke = Some(FetchError::HeaderTimeout);
                    rounds.end_one(true);
                }
                Followed::TooSlow => {
                    broke = None;
                    break;
                }
            },
        }
    }
    if let Some(error) = broke {
        return Err(Lack::Failed { error, followed: true });
    }
    fetch(worker, ask, slices, index, (None, None)).await
}

/// What the store has of a stretch of a slice.
enum Held {
    Usable(Box<Got>),
    /// It may not be served without validation.
    Stale(Box<Slice>),
    Nothing,
}

async fn held(worker: &Worker, ask: &Ask, stretch: Stretch, how: How, begun_ms: u64) -> Held {
    let vault = &worker.shared.vault;
    let Some(mut slice) = vault.slice(&ask.target.primary, stretch, &worker.counters).await else {
        return Held::Nothing;
    };
    if !is_usable(worker, ask, &slice.response.policy, begun_ms) {
        match stale::as_confirmed(worker, ask, &slice, begun_ms).await {
            Some(response) => slice.response = response,
            None => return Held::Stale(Box::new(slice)),
        }
    }
    let Slice { response, bytes, placement, .. } = slice;
    let body = FoundBody::Whole(bytes);
    Held::Usable(Box::new(Got { response, body, placement, how, own: None }))
}

/// At least this stretch of a slice from the store, if it may be served without validation.
pub(crate) async fn stored(
    worker: &Worker,
    ask: &Ask,
    stretch: Stretch,
    how: How,
    begun_ms: u64,
) -> Option<Got> {
    match held(worker, ask, stretch, how, begun_ms).await {
        Held::Usable(got) => Some(*got),
        Held::Stale(_) | Held::Nothing => None,
    }
}

/// Whether a stored slice may be part of an answer that began at `begun_ms`: as with a body in one
/// piece, what could be served then still can while it is sent.
pub(super) fn is_usable(worker: &Worker, ask: &Ask, policy: &Policy, begun_ms: u64) -> bool {
    let caching = &worker.shared.config.caching;
    [begun_ms, worker.now_ms()].into_iter().any(|now_ms| {
        let decision = reuse::decide(&ask.wishes, policy, caching, now_ms);
        matches!(decision, Decision::Serve | Decision::ServeStale)
    })
}

/// The result of waiting for another request's fetch of a slice.
enum Followed {
    Got(Box<Got>),
    /// The slice is not to be had.
    Gone(Lack),
    /// With how the other failed, if its request may be why.
    Again(Option<FetchError>),
    /// A change has outdated what the other one fetches.
    Outdated,
    /// The other one has got nothing from the origin for so long that it may never.
    Silent,
    TooSlow,
}

async fn follow(
    worker: &Worker,
    ask: &Ask,
    stretch: Stretch,
    leader: &Leader,
    begun_ms: u64,
) -> Followed {
    let shared = &worker.shared;
    let _waiting = shared.collapse.wait();
    let until = leader.began() + shared.config.timeouts.collapse;
    let outcome = match timeout_at(until, leader.news()).await {
        Err(_) => return Followed::Silent,
        Ok(News::Ended(outcome)) => outcome,
        Ok(News::Filling(fill)) => {
            let (vault, caching) = (&shared.vault, &shared.config.caching);
            let found = fill.shared.stands_for(
                (&ask.headers, &ask.wishes),
                vault,
                caching,
                worker.now_ms(),
            );
            return match found.then(|| fill.found()) {
                Some(found) => Followed::Got(Box::new(Got {
                    response: found.response,
                    body: found.body,
                    placement: found.placement,
                    how: How::Followed,
                    own: None,
                })),
                None if !fill.shared.is_current(vault) => Followed::Outdated,
                None => Followed::TooSlow,
            };
        }
    };
    match outcome {
        Outcome::Stored => match stored(worker, ask, stretch, How::Followed, begun_ms).await {
            Some(got) => Followed::Got(Box::new(got)),
            None => Followed::Again(None),
        },
        Outcome::Abandoned => Followed::Again(None),
        Outcome::Broke(error) | Outcome::Error(error) => Followed::Again(Some(error)),
        Outcome::Failed(error) => Followed::Gone(Lack::Failed { error, followed: true }),
        _ => Followed::Gone(Lack::NoSlice),
    }
}

/// Fetches a slice, or has a stale one validated.
async fn fetch(
    worker: &Arc<Worker>,
    ask: &Ask,
    slices: Slices,
    index: u64,
    (mut lead, stale): (Option<Lead>, Option<Slice>),
) -> Result<Got, Lack> {
    let asked = match stale::ask_about(worker, ask, slices, index, stale).await {
        Ok(Said::Confirmed(got)) => {
            if let Some(lead) = lead {
                lead.end(Outcome::Stored);
            }
            return Ok(*got);
        }
        Ok(Said::Else(asked)) => *asked,
        Err(error) => {
            if let Some(lead) = lead {
                lead.end(Outcome::of_failure(&error));
            }
            return Err(Lack::Failed { error, followed: false });
        }
    };
    begin(worker, ask, asked, |_| lead.take()).await.map_err(|asked| {
        let (primary, status) = (&ask.target.primary, asked.response.status());
        if let Some(lead) = lead
            && let Some(error) = Outcome::of_error(status, asked.response.headers())
        {
            lead.end(error);
        }
        let noted =
            worker.shared.collapse.unsliceable.of(primary, ask.has_cookie(), worker.now_s());
        match status == StatusCode::PARTIAL_CONTENT && noted.is_none() {
            true => Lack::NotStored,
            false => Lack::NoSlice,
        }
    })
}

/// Asks the origin for a slice, or, if it is one with this tag, whether it still has it.
pub(crate) async fn ask_origin(
    worker: &Worker,
    ask: &Ask,
    slices: Slices,
    index: u64,
    tag: Option<&HeaderValue>,
) -> Result<SliceResponse, FetchError> {
    let sent = Sent::now(worker, &ask.target.primary);
    let (first, last) = slices.bounds(index);
    let ranged = |body| {
        let mut request = ask.to_origin_request(&worker.shared, body);
        validation::remove_conditions(request.headers_mut());
        if let Ok(range) = HeaderValue::try_from(format!("bytes={first}-{last}")) {
            request.headers_mut().insert(RANGE, range);
        }
        // It is looked at before the range (RFC 9110 §13.2.2).
        if let Some(tag) = tag {
            request.headers_mut().insert(IF_NONE_MATCH, tag.clone());
        }
        request
    };
    let response = worker.fetcher.send(ranged(OriginBody::Empty), &ranged).await?;
    if response.status() == StatusCode::NOT_MODIFIED && tag.is_none() {
        return Err(FetchError::Unasked);
    }
    let sent = Sent { response_time_ms: worker.now_ms(), ..sent };
    Ok(SliceResponse { slices, index, sent, response })
}

/// Begins to store and read an arriving slice. Returns the response itself if it is no slice, and
/// remembers that if it says something about the resource. `lead_for` supplies the lead for the
/// slice, and is told whether the slice spans the whole resource.
pub(crate) async fn begin(
    worker: &Worker,
    ask: &Ask,
    asked: SliceResponse,
    lead_for: impl FnOnce(bool) -> Option<Lead>,
) -> Result<Got, SliceResponse> {
    let unsliced = &worker.shared.collapse.unsliceable;
    let Judged { stored, own, groups, hint } = match judge(worker, ask, &asked) {
        Ok(judged) => judged,
        Err(what) => {
            if let Some(what) = what {
                unsliced.note(&ask.target.primary, what, worker.now_s());
            }
            return Err(asked);
        }
    };
    worker.shared.vault.forget_confirmed_but(&ask.target.primary, &stored.headers);
    let Ok(insertion) = insert(worker, ask, &asked, stored.clone(), &groups).await else {
        return Err(asked);
    };
    hooks::on_store(worker, insertion.group, hint);
    let placement = insertion.placement();
    let length_bytes = asked.response.body().size_hint().exact();
    let inflight = worker.inflight(insertion.key.clone(), length_bytes);
    let lead = lead_for(stored.part.is_none());
    if let Some(lead) = &lead {
        let shared = SharedResponse::of(&insertion, length_bytes, &ask.headers);
        lead.herald().filling(SharedFill { shared, body: inflight.clone() });
    }
    let version = asked.response.version();
    let timed = Timed::of_response(
        asked.response.into_body(),
        ask.body_idle(&worker.shared.config),
        version,
    );
    let storing = Storing::new(worker, ask.target.primary.clone(), insertion, lead);
    let fill = Fill::without_client(storing, timed, inflight.clone());
    worker.spawn(fill.run());
    let body = FoundBody::Inflight(inflight, None);
    Ok(Got { response: stored, body, placement, how: How::Fetched, own: Some(own) })
}

async fn insert(
    worker: &Worker,
    ask: &Ask,
    asked: &SliceResponse,
    stored: StoredResponse,
    groups: &Groups,
) -> Result<Box<Insertion>, NotStoredReason> {
    let (vault, target, epoch) = (&worker.shared.vault, &ask.target, asked.sent.epoch);
    let length_bytes = asked.response.body().size_hint().exact();
    let mut insertion = match stored.part {
        Some(_) => {
            vault.begin_slice(target, epoch, asked.slices, asked.index, stored, groups).await?
        }
        None => vault.begin(target, epoch, &ask.headers, stored, length_bytes, groups).await?,
    };
    insertion.expect(length_bytes);
    Ok(insertion)
}

/// The response to be stored, its fields for the client that asked, and where it lies.
struct Judged {
    stored: StoredResponse,
    own: HeaderMap,
    groups: Groups,
    /// The hint that a rule gives its group.
    hint: Option<Hint>,
}

/// Judges a response: the form in which it will be stored, or else the reason why its resource
/// cannot be sliced.
fn judge(worker: &Worker, ask: &Ask, asked: &SliceResponse) -> Result<Judged, Option<Unsliceable>> {
    let (shared, response) = (&worker.shared, &asked.response);
    let caching = &shared.config.caching;
    match response.status() {
        StatusCode::PARTIAL_CONTENT => {}
        StatusCode::OK => return Err(Some(Unsliceable::NoRanges)),
        _ => return Err(None),
    }
    let mut headers = response.headers().clone();
    let length_bytes = response.body().size_hint().exact();
    let complete_bytes = hooks::length_bytes(ask, response.status(), &headers, response.body());
    let effects = hooks::on_response(shared, ask, response.status(), &mut headers, complete_bytes);
    let part = Part::of(&headers).filter(|part| {
        asked.slices.is_slice(asked.index, part) && length_bytes == Some(part.length_bytes())
    });
    let (Some(part), Vary::Nothing) = (part, vary::of(&headers)) else {
        return Err(Some(Unsliceable::AsAsked));
    };
    // One range of what is longer than the cache would push out all else, and its own beginning.
    let limits = FillLimits::of(&shared.config, &shared.vault);
    let is_long = part.complete_bytes > limits.sliced_bytes_max;
    if is_long || part.length_bytes() > limits.body_bytes_max {
        return Err(Some(Unsliceable::AsAsked));
    }
    let directives = ResponseDirectives::of(&headers, caching);
    let exchange = Exchange {
        method: &Method::GET,
        request: &ask.headers,
        wishes: &ask.wishes,
        status: response.status(),
        response: &headers,
        directives: &directives,
        response_time_s: asked.sent.response_time_ms / 1000,
        with_cookie: ask.has_cookie(),
        selective: true,
    };
    let mut admitted = effects.admit(exchange, caching);
    // What is stored of it already is renewed in any case, and so is the rest of it brought.
    if !shared.vault.has_slices(&ask.target.primary) {
        admitted = admitted.and_then(|()| ask.admit_new(shared, &effects));
    }
    admitted.map_err(unsliced_by)?;
    let status = if part.is_whole() { StatusCode::OK } else { response.status() };
    let arrived = Arrived {
        status,
        headers: &headers,
        received: &headers,
        directives: &directives,
        with_cookie: ask.has_cookie(),
        request_time_ms: asked.sent.request_time_ms,
        response_time_ms: asked.sent.response_time_ms,
    };
    let policy = effects.policy(arrived, caching);
    let groups = effects.groups_of(&shared.config, ask, &headers);
    let mut kept =
        storing::stored_headers(&headers, &directives, caching, asked.sent.response_time_ms / 1000);
    kept.remove(CONTENT_RANGE);
    let mut stored = StoredResponse::new(status, response.version(), policy, kept);
    if !part.is_whole() {
        parts::remove_digests(&mut stored.headers);
        stored.part = Some(part);
    }
    note_age(worker, ask, &stored, (&headers, asked.sent.request_time_ms), &effects);
    Ok(Judged { stored, own: answer::own_fields(&headers), groups, hint: effects.hint })
}

/// Whether a slice of what this one is of could most likely not be kept if this request brought it:
/// it may be for who sent its cookie.
pub(crate) fn may_be_for_sender(worker: &Worker, ask: &Ask, stored: &StoredResponse) -> bool {
    if !ask.has_cookie() {
        return false;
    }
    let (shared, mut headers) = (&worker.shared, stored.headers.clone());
    let complete_bytes = stored.part.map(|part| part.complete_bytes);
    let effects = hooks::on_response(shared, ask, stored.status, &mut headers, complete_bytes);
    let caching = &shared.config.caching;
    let now_ms = worker.now_ms();
    let arrived = Arrived {
        status: stored.status,
        headers: &headers,
        received: &headers,
        directives: &ResponseDirectives::of(&headers, caching),
        with_cookie: true,
        request_time_ms: now_ms,
        response_time_ms: now_ms,
    };
    effects.policy(arrived, caching).is_personal
}

/// The reason why a resource cannot be sliced, from the refusal to store a slice of it; `None` if
/// the request caused the refusal.
fn unsliced_by(reason: NotStoredReason) -> Option<Unsliceable> {
    match reason {
        NotStoredReason::Cookie => Some(Unsliceable::AsAskedWithCookie),
        NotStoredReason::FirstRequest => None,
        _ if reason.is_of_request() => None,
        _ => Some(Unsliceable::AsAsked),
    }
}
