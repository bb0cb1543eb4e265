//! Ranges of large resources from aligned slices: only the slices that a range touches are fetched,
//! each is stored as an object of its own, and they are sent in order as they arrive.
//!
//! ```text
//! course ─► known to come in slices ─► serve
//!        ├► not known yet ─► the leader asks for one slice (probe); followers wait for its head
//!        │                     ├─► a slice ─► serve; the followers do, too
//!        │                     ├─► the whole ─► stored whole; ranges are cut from it as it comes
//!        │                     └─► else ─► passed on as requested
//!        └► cannot be sliced, or slices are off ─► passed on as requested
//! ```
//!
//! Invariants: slices of one response share a strong validator; memory holds one slice of a
//! response and the fetched part of the next, or only the requested parts of both; a complete
//! response is assembled from slices only if at least half of it is stored, or if it was stored
//! when it began (`resuming`). Threads: the worker's.

mod arrival;
mod got;
mod missing;
mod reader;
mod resuming;
mod slice;
mod stale;
mod verdict;

use std::sync::Arc;

use http::StatusCode;

use crate::answer::{self, Answer, with_hit_status};
use crate::collapse::unsliceable::Unsliceable;
use crate::collapse::{Outcome, Role, Who};
use crate::error::FetchError;
use crate::fetch::{Conditions, Fetch};
use crate::request::{Ask, hooks};
use crate::rules::parts::{Part, Slices};
use crate::rules::ranges::{self, Spec};
use crate::rules::reuse::Failure;
use crate::rules::{CacheStatus, ForwardReason};
use crate::slices::arrival::SliceResponse;
use crate::slices::got::{Begun, Got, How, Lack};
use crate::slices::missing::{missing, must_be_there};
use crate::slices::reader::SliceReader;
use crate::vault::{Found, FoundBody, RangeReader, Stretch, slice_key};
use crate::worker::Worker;

pub(crate) use resuming::{rest_of, resumable};

/// Largest slice: it is in memory while it is fetched.
pub(crate) const SLICE_BYTES_MAX: u64 = 16 << 20;
/// Slices of one response that are looked up before it counts as a hit: bounds the time for it.
pub(crate) const LOOKED_FOR_MAX: u64 = 16 << 10;

/// The requested range, and the slices it covers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want {
    slices: Slices,
    first: u64,
    /// Last byte of the range; `u64::MAX` if the range extends to the end.
    last: u64,
}

impl Want {
    fn index(&self) -> u64 {
        self.first / self.slices.slice_bytes
    }

    /// The requested range within a slice.
    fn stretch(&self, index: u64) -> Stretch {
        Stretch::of(self.slices, index, self.first, self.last.saturating_add(1))
    }

    fn spec(&self) -> Spec {
        Spec::From { first: self.first, last: Some(self.last) }
    }
}

/// How slices serve a request that no stored response answers.
pub(crate) enum Course {
    Answered(Box<Answer>),
    /// Not at all: the request goes to the origin as it is.
    AsAsked,
    /// The whole is fetched, and the range is cut from it.
    Whole,
    /// The leader finds out whether the resource supports slices.
    Probe(Want),
}

/// The configured slices, if enabled and usable for this request.
fn slices_for(worker: &Worker, reason: ForwardReason) -> Option<Slices> {
    let caching = &worker.shared.config.caching;
    let slice_bytes = caching.slice_bytes.min(SLICE_BYTES_MAX);
    let fits =
        slice_bytes > 0 && caching.key.selects_nothing() && reason != ForwardReason::VaryMiss;
    fits.then_some(Slices { slice_bytes })
}

/// Knowledge of an origin's range support before a request is sent to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeSupport {
    /// Nothing: it may send the whole.
    Unknown,
    /// Its response to another request announced range support, or comes too late for this one.
    Told,
}

/// Chooses the course for a request that no stored response answers.
pub(crate) async fn course(
    worker: &Arc<Worker>,
    ask: &Ask,
    reason: ForwardReason,
    conditions: Conditions,
    support: RangeSupport,
) -> Course {
    let Some(slices) = slices_for(worker, reason) else { return Course::AsAsked };
    if conditions != Conditions::Clients {
        // Nothing is stored of it but slices, or no more besides than a part.
        let apart = matches!(reason, ForwardReason::UriMiss | ForwardReason::Partial);
        if !apart || ask.wants_range() || !worker.shared.vault.has_slices(&ask.target.primary) {
            return Course::AsAsked;
        }
        return match Box::pin(whole(worker, ask, slices, reason)).await {
            Some(answer) => Course::Answered(Box::new(answer)),
            None => Course::AsAsked,
        };
    }
    let Some(want) = want(ask, slices) else { return Course::AsAsked };
    let (shared, primary) = (&worker.shared, &ask.target.primary);
    if shared.collapse.is_uncacheable(primary) {
        return Course::AsAsked;
    }
    let noted = || shared.collapse.unsliceable.of(primary, ask.has_cookie(), worker.now_s());
    let with_cookie = noted() == Some(Unsliceable::AsAskedWithCookie);
    let needs = if with_cookie || may_be_for_one(ask) { Needs::Stored } else { Needs::Any };
    // A slice could hardly be stored, so the origin would be asked twice.
    let is_refused = || !ask.wishes.only_if_cached && ask.is_refused_as_first(shared);
    if !shared.vault.has_slices(primary) && (needs == Needs::Stored || is_refused()) {
        return Course::AsAsked;
    }
    if with_cookie || noted().is_none() {
        let probing = support == RangeSupport::Unknown
            && reason != ForwardReason::Request
            && !shared.vault.has_slices(primary);
        if probing && !ask.wishes.only_if_cached {
            return Course::Probe(want);
        }
        match Box::pin(serve(worker, ask, reason, want, needs)).await {
            Ok(answer) => return Course::Answered(Box::new(answer)),
            // It would be asked in vain once more.
            Err(Lack::Failed { error, followed, reason: of_stale }) => {
                let forwarded = CacheStatus::forwarded(of_stale.unwrap_or(reason));
                let status = CacheStatus { collapsed: followed, ..forwarded };
                return Course::Answered(Box::new(failed(worker, error, status)));
            }
            Err(Lack::NotStored | Lack::NoSlice | Lack::Refused(_)) => {}
        }
    }
    match noted() {
        Some(Unsliceable::NoRanges) if reason != ForwardReason::Request => Course::Whole,
        _ => Course::AsAsked,
    }
}

/// Which slices a request may be answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    Any,
    /// Stored ones: what it would bring could hardly be kept.
    Stored,
}

/// Whether the responses to this request can most likely not be stored, so that slices not stored
/// yet must not be promised.
fn may_be_for_one(ask: &Ask) -> bool {
    ask.has_credentials() || ask.wishes.no_store
}

/// The request's range, if it has exactly one.
fn want(ask: &Ask, slices: Slices) -> Option<Want> {
    if !ask.wants_range() {
        return None;
    }
    let [Spec::From { first, last }] = ranges::parse(&ask.headers)?[..] else { return None };
    Some(Want { slices, first, last: last.unwrap_or(u64::MAX) })
}

/// The answer where the origin gave none to a request for a slice.
fn failed(worker: &Worker, error: FetchError, status: CacheStatus) -> Answer {
    if status.collapsed {
        worker.counters.collapsed.one();
    }
    answer::origin_failed(worker, error, status)
}

async fn serve(
    worker: &Arc<Worker>,
    ask: &Ask,
    reason: ForwardReason,
    want: Want,
    needs: Needs,
) -> Result<Answer, Lack> {
    let (stretch, begun) = (want.stretch(want.index()), Begun::at(worker.now_ms()));
    let first = match needs {
        Needs::Stored => slice::without_asking(worker, ask, stretch, begun).await,
        Needs::Any => Some(slice::get(worker, ask, stretch, begun).await?),
    };
    let first = first.ok_or(Lack::NotStored)?;
    answer_with(worker, ask, reason, want, first, needs).await
}

/// The response that begins in this slice; if it cannot, and the origin has not failed, the range
/// must be requested as it is.
async fn answer_with(
    worker: &Arc<Worker>,
    ask: &Ask,
    reason: ForwardReason,
    want: Want,
    mut first: Got,
    needs: Needs,
) -> Result<Answer, Lack> {
    let mut status = status_of(first.how, reason);
    let own = first.own.take();
    let surely = needs == Needs::Stored || must_be_there(worker, ask, &first.response);
    let mut found = match first.response.part {
        Some(part) if want.last.min(part.complete_bytes - 1) >= part.end => {
            let end = want.last.min(part.complete_bytes - 1);
            let more = want.index() + 1..end / want.slices.slice_bytes + 1;
            // What another is still bringing may not be kept for who has a cookie.
            let is_of_store = status.hit || surely || first.how.failed().is_some();
            let asked_for = match is_of_store {
                true => missing(worker, ask, (want.slices, more.clone()), &first, surely).await,
                false => None,
            };
            if let Some((_, lacking)) = asked_for {
                if surely {
                    return Err(Lack::NotStored);
                }
                if first.how.failed().is_some() {
                    return Err(failure_of(worker, ask, first.how));
                }
                status = CacheStatus::forwarded(lacking);
            }
            let asked_for = asked_for.map(|(index, _)| index);
            several(worker, ask, want, first, more.end - more.start, asked_for).await?
        }
        _ => Found::assembled(first.response, first.body, first.placement),
    };
    if !answer::part_suffices(worker, ask, &found.response) {
        return Err(Lack::NoSlice);
    }
    found.response.headers = own.unwrap_or(found.response.headers);
    Ok(counted(worker, ask, found, status))
}

/// Why what stands in is not served: not all of it is there, and the origin will not bring it.
fn failure_of(worker: &Worker, ask: &Ask, how: How) -> Lack {
    let How::StoodIn { reason, failed, followed } = how else { return Lack::NotStored };
    match (stale::known_failure(worker, ask), failed.failure) {
        (Some(error), _) => Lack::Failed { error, followed, reason: Some(reason) },
        (None, Failure::Status(status)) => Lack::Refused(status),
        (None, _) => Lack::NotStored,
    }
}

/// Serves several slices, `more` of them after the first, or one of which only a part is there yet.
/// Those before the one that the origin is `asked_for`, if that is known, are stored.
async fn several(
    worker: &Arc<Worker>,
    ask: &Ask,
    want: Want,
    first: Got,
    more: u64,
    asked_for: Option<u64>,
) -> Result<Found, Lack> {
    let reader = SliceReader::new(worker, ask, want.slices, want.index(), &first);
    if reader.is_none() && more == 0 {
        // A beginning of the only slice that is wanted; its rest could be of another version.
        let stretch = want.stretch(want.index()).all_needed();
        let all = slice::get(worker, ask, stretch, Begun::at(worker.now_ms())).await?;
        return Ok(Found::assembled(all.response, all.body, all.placement));
    }
    let Some(mut reader) = reader else {
        let (unsliced, now_s) = (&worker.shared.collapse.unsliceable, worker.now_s());
        unsliced.note(&ask.target.primary, Unsliceable::AsAsked, now_s);
        return Err(Lack::NoSlice);
    };
    // Before the response begins it is found out whether the second of two is of the same version,
    // and the first that comes behind stored ones, which may be old; of others while it is sent.
    let second = want.index() + 1;
    if let Some(index) = asked_for.or((more == 1).then_some(second)) {
        let got = slice::get(worker, ask, want.stretch(index), reader.begun()).await?;
        if !reader.accepts(&got) {
            return Err(Lack::NoSlice);
        }
        // The whole in its place holds those before it, too.
        if index == second || got.response.part.is_none() {
            reader.keep(index, &got);
        }
    }
    let mut response = first.response;
    let complete_bytes = reader.complete_bytes();
    response.part = Some(Part { start: 0, end: complete_bytes, complete_bytes });
    Ok(Found::assembled(response, FoundBody::Sliced(Box::new(reader)), first.placement))
}

/// A complete response, if at least half of it is stored as slices; to a HEAD, if all of it is.
async fn whole(
    worker: &Arc<Worker>,
    ask: &Ask,
    slices: Slices,
    reason: ForwardReason,
) -> Option<Answer> {
    let vault = &worker.shared.vault;
    let primary = &ask.target.primary;
    let (has_body, begun) = (answer::wants_body(&ask.method), Begun::at(worker.now_ms()));
    let stretch = match has_body {
        true => Stretch::whole(slices, 0),
        false => Stretch::of(slices, 0, 0, 1),
    };
    let first = slice::without_asking(worker, ask, stretch, begun).await?;
    let count = first.response.part?.complete_bytes.div_ceil(slices.slice_bytes);
    if count > LOOKED_FOR_MAX {
        return None;
    }
    let generation = vault.slices_generation(primary).await?;
    let there = |index: &u64| vault.may_have_slice(primary, slices, generation, *index);
    let known = (0..count).filter(there).count() as u64;
    if known * 2 < count {
        return None;
    }
    let surely = must_be_there(worker, ask, &first.response);
    let asked_for = missing(worker, ask, (slices, 0..count), &first, surely).await;
    let status = match asked_for {
        None => status_of(first.how, reason),
        // A HEAD has no use for the slices that are missing.
        Some(_) if !has_body || surely || first.how.failed().is_some() => return None,
        Some((_, lacking)) => CacheStatus::forwarded(lacking),
    };
    let mut reader = SliceReader::new(worker, ask, slices, 0, &first)?;
    // The client asked for no range: its response must not break off because slices were outdated.
    if let Some((index, _)) = asked_for {
        let stretch = Stretch::whole(slices, index);
        let got = slice::get(worker, ask, stretch, reader.begun()).await.ok()?;
        if !reader.accepts(&got) {
            return None;
        }
        if got.response.part.is_none() {
            reader.keep(index, &got);
        }
    }
    let mut response = first.response;
    (response.part, response.status) = (None, StatusCode::OK);
    let body = match has_body {
        true => FoundBody::Sliced(Box::new(reader)),
        false => FoundBody::Length(reader.complete_bytes()),
    };
    let found = Found::assembled(response, body, first.placement);
    Some(counted(worker, ask, found, status))
}

fn status_of(how: How, reason: ForwardReason) -> CacheStatus {
    let forwarded = CacheStatus::forwarded(reason);
    match how {
        How::Stored => CacheStatus { hit: true, ..CacheStatus::default() },
        How::Followed => CacheStatus { collapsed: true, ..forwarded },
        How::Fetched => {
            let forward_status = Some(StatusCode::PARTIAL_CONTENT);
            CacheStatus { forward_status, stored: true, ..forwarded }
        }
        How::Validated { reason, kept } => {
            let forward_status = Some(StatusCode::NOT_MODIFIED);
            let forwarded = CacheStatus::forwarded(reason);
            CacheStatus { forward_status, validated: true, stored: kept, ..forwarded }
        }
        How::StoodIn { reason, failed, followed } => {
            let forward_status = match failed.failure {
                Failure::Status(status) if !followed => Some(status),
                _ => None,
            };
            let forwarded = CacheStatus::forwarded(reason);
            let detail = Some(failed.detail);
            CacheStatus { forward_status, detail, collapsed: followed, ..forwarded }
        }
    }
}

fn counted(worker: &Worker, ask: &Ask, found: Found, status: CacheStatus) -> Answer {
    if status.collapsed {
        worker.counters.collapsed.one();
    }
    // Nothing but a failure, in which stale slices stand in, is told of here.
    let stands_in = status.detail.is_some();
    if stands_in {
        worker.counters.stale_on_error.one();
    }
    if status.hit || stands_in {
        hooks::on_hit(worker, ask, &found);
    }
    with_hit_status(worker, ask, Box::new(found), status)
}

/// Fetches the first requested slice, on behalf of all requests that wait to learn whether the
/// resource can be sliced.
pub(crate) async fn probe(
    worker: &Arc<Worker>,
    mut fetching: Fetch<'_>,
    reason: ForwardReason,
    want: Want,
) -> Answer {
    let (ask, slices, index) = (fetching.ask, want.slices, want.index());
    let asked = match arrival::ask_origin(worker, ask, slices, index, None).await {
        Ok(asked) => asked,
        Err(error) => return fetching.failed(error).await,
    };
    fetching.sent = asked.sent;
    let collapse = &worker.shared.collapse;
    let lead = &mut fetching.lead;
    let begun = arrival::begin(worker, ask, asked, None, |is_whole| {
        let lead = lead.take()?;
        if is_whole {
            return Some(lead);
        }
        let key = slice_key(&ask.target.primary, slices, index);
        let of_slice = match collapse.join(&key, Who::default()) {
            Role::Leader(of_slice) => Some(of_slice),
            Role::Follower(_) | Role::Alone => None,
        };
        lead.end(Outcome::Sliced);
        of_slice
    });
    let asked = match begun.await {
        Ok(got) => match answer_with(worker, ask, reason, want, got, Needs::Any).await {
            Ok(answer) => return answer,
            Err(Lack::Failed { error, .. }) => return fetching.failed(error).await,
            Err(Lack::NotStored | Lack::NoSlice | Lack::Refused(_)) => {
                fetching.end_lead(Outcome::Abandoned);
                fetching.conditions = Conditions::Clients;
                return fetching.run().await;
            }
        },
        Err(asked) => asked,
    };
    if asked.response.status() == StatusCode::OK {
        return fetching.received(asked.response).await;
    }
    let error = Outcome::of_error(asked.response.status(), asked.response.headers());
    fetching.end_lead(error.unwrap_or(Outcome::Abandoned));
    fetching.conditions = Conditions::Clients;
    // Conditions, without which it was asked for, come before the range (RFC 9110 §13.2.2, §14.2):
    // the client may want no part at all, and by `If-Range` with an older version the answer is the
    // whole, however short that is now.
    let is_answer = match asked.response.status() {
        StatusCode::PARTIAL_CONTENT => !ask.is_conditional() && is_part_wanted(&want, &asked),
        StatusCode::RANGE_NOT_SATISFIABLE => !ask.is_conditional(),
        _ => true,
    };
    if !is_answer {
        drop(asked);
        return fetching.run().await;
    }
    fetching.received(asked.response).await
}

/// Whether the received part happens to be exactly the client's range.
fn is_part_wanted(want: &Want, asked: &SliceResponse) -> bool {
    let Some(part) = Part::of(asked.response.headers()) else { return false };
    want.spec().within(part.complete_bytes) == (part.start..part.end)
}
