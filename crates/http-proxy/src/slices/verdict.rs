//! What a response to a request for a slice is, and the form in which it is stored.
//!
//! Invariant: the whole is taken in place of a slice only where an answer has begun with the very
//! version that it is of. Threads: the worker's.

use http::header::CONTENT_RANGE;
use http::{HeaderMap, Method, StatusCode};
use hyper::body::Body as _;

use crate::answer;
use crate::collapse::unsliceable::Unsliceable;
use crate::fetch::fill::FillLimits;
use crate::fetch::note_age;
use crate::request::{Ask, hooks};
use crate::rules::group::Groups;
use crate::rules::parts::{self, Part};
use crate::rules::reuse::Arrived;
use crate::rules::storing::{self, Exchange};
use crate::rules::vary::{self, Vary};
use crate::rules::{NotStoredReason, ResponseDirectives};
use crate::ruleset::{Hint, ResponseEffects};
use crate::slices::arrival::SliceResponse;
use crate::vault::entry::StoredResponse;
use crate::worker::Worker;

/// The version of a resource that an answer has begun with.
#[derive(Debug)]
pub(crate) struct Version {
    headers: HeaderMap,
    /// When these came.
    came_s: u64,
    pub(super) complete_bytes: u64,
}

impl Version {
    /// That of a response of this length; `None` if others could not be compared with it.
    pub(super) fn of(response: &StoredResponse, complete_bytes: u64) -> Option<Version> {
        let (headers, came_s) = (&response.headers, response.policy.response_time_s());
        let is_comparable = parts::may_combine(headers, headers, came_s);
        is_comparable.then(|| Version { headers: headers.clone(), came_s, complete_bytes })
    }

    /// Whether a response with these fields, for all of this length, is of it.
    pub(super) fn is_of(&self, headers: &HeaderMap, complete_bytes: u64) -> bool {
        complete_bytes == self.complete_bytes
            && parts::may_combine(&self.headers, headers, self.came_s)
    }
}

/// What a response is.
pub(super) enum Verdict {
    /// A slice, or the whole in its place, to be stored.
    Slice(Box<Judged>),
    /// A sign that its resource cannot be had in slices.
    Unsliceable(Unsliceable),
    /// It says nothing about slices of its resource.
    NotAboutSlices,
}

/// The response to be stored, its fields for the client that asked, and where it lies.
pub(super) struct Judged {
    pub(super) stored: StoredResponse,
    pub(super) own: HeaderMap,
    pub(super) groups: Groups,
    /// The hint that a rule gives its group.
    pub(super) hint: Option<Hint>,
}

/// Judges a response, for an answer that has begun with this version, if it has.
pub(super) fn judge(
    worker: &Worker,
    ask: &Ask,
    asked: &SliceResponse,
    version: Option<&Version>,
) -> Verdict {
    let (shared, response) = (&worker.shared, &asked.response);
    let caching = &shared.config.caching;
    match (response.status(), version) {
        (StatusCode::PARTIAL_CONTENT, _) | (StatusCode::OK, Some(_)) => {}
        (StatusCode::OK, None) => return Verdict::Unsliceable(Unsliceable::NoRanges),
        _ => return Verdict::NotAboutSlices,
    }
    let mut headers = response.headers().clone();
    let complete_bytes = hooks::length_bytes(ask, response.status(), &headers, response.body());
    let effects = hooks::on_response(shared, ask, response.status(), &mut headers, complete_bytes);
    let part = match stored_part(worker, asked, &headers, version) {
        Ok(part) => part,
        Err(verdict) => return verdict,
    };
    let directives = ResponseDirectives::of(&headers, caching);
    if let Err(reason) = admit(worker, ask, asked, &effects, (&headers, &directives)) {
        return match unsliced_by(reason) {
            Some(_) if response.status() == StatusCode::OK => {
                Verdict::Unsliceable(Unsliceable::NoRanges)
            }
            Some(what) => Verdict::Unsliceable(what),
            None => Verdict::NotAboutSlices,
        };
    }
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
    let own = answer::own_fields(&headers);
    Verdict::Slice(Box::new(Judged { stored, own, groups, hint: effects.hint }))
}

/// The part of its resource that a response brings, if it can be stored in place of the slice that
/// was asked for; all of it, if that is no longer, or is of the version wanted.
fn stored_part(
    worker: &Worker,
    asked: &SliceResponse,
    headers: &HeaderMap,
    version: Option<&Version>,
) -> Result<Part, Verdict> {
    let length_bytes = asked.response.body().size_hint().exact();
    let is_part = asked.response.status() == StatusCode::PARTIAL_CONTENT;
    let (part, otherwise) = if is_part {
        let is_slice = |part: &Part| {
            asked.slices.is_slice(asked.index, part) && length_bytes == Some(part.length_bytes())
        };
        (Part::of(headers).filter(is_slice), Unsliceable::AsAsked)
    } else {
        let is_wanted = |length: &u64| version.is_some_and(|one| one.is_of(headers, *length));
        let whole = |complete_bytes| Part { start: 0, end: complete_bytes, complete_bytes };
        (length_bytes.filter(is_wanted).map(whole), Unsliceable::NoRanges)
    };
    // One range of what is longer than the cache would push out all else, and its own beginning.
    let limits = FillLimits::of(&worker.shared.config, &worker.shared.vault);
    let is_short = |part: &Part| {
        part.complete_bytes <= limits.sliced_bytes_max
            && part.length_bytes() <= limits.body_bytes_max
    };
    match (part.filter(is_short), vary::of(headers)) {
        (Some(part), Vary::Nothing) => Ok(part),
        _ => Err(Verdict::Unsliceable(otherwise)),
    }
}

/// Whether a response with these fields and directives may be stored.
fn admit(
    worker: &Worker,
    ask: &Ask,
    asked: &SliceResponse,
    effects: &ResponseEffects<'_>,
    (headers, directives): (&HeaderMap, &ResponseDirectives),
) -> Result<(), NotStoredReason> {
    let shared = &worker.shared;
    let exchange = Exchange {
        method: &Method::GET,
        request: &ask.headers,
        wishes: &ask.wishes,
        status: asked.response.status(),
        response: headers,
        directives,
        response_time_s: asked.sent.response_time_ms / 1000,
        with_cookie: ask.has_cookie(),
        selective: true,
    };
    effects.admit(exchange, &shared.config.caching)?;
    // What is stored of it already is renewed in any case, and so is the rest of it brought.
    if shared.vault.has_slices(&ask.target.primary) {
        return Ok(());
    }
    ask.admit_new(shared, effects)
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
