//! Responses made from stored ones: the whole, one or several parts, 304, 412 and 416.
//!
//! Invariants: the client's conditions are evaluated before its ranges (RFC 9110 §13.2.2); every
//! response from the store carries `Age`; bytes leave the store without a copy. Threads: the
//! worker's.

use std::ops::Range;
use std::pin::pin;

use bytes::Bytes;
use http::header::{
    AGE, CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, EXPIRES,
    HeaderName, LAST_MODIFIED, RANGE, VARY,
};
use http::{HeaderMap, Response, StatusCode};

use crate::answer::body::{Piece, ProxyBody};
use crate::answer::reader::Reader;
use crate::answer::{number, text, with_headers};
use crate::request::Ask;
use crate::rules::parts;
use crate::rules::preconditions::{self, Outcome};
use crate::rules::ranges::{self, Answer, Multipart};
use crate::rules::validation;
use crate::vault::entry::StoredResponse;
use crate::vault::inflight::InflightReader;
use crate::vault::{Found, FoundBody};
use crate::worker::Worker;

/// The part of the representation that the request gets, after evaluating `If-Range`.
fn wanted(worker: &Worker, ask: &Ask, stored: &StoredResponse, length_bytes: u64) -> Answer {
    // Nearly every request: nothing else has to be looked for.
    if !ask.headers.contains_key(RANGE) {
        return Answer::Whole;
    }
    let whole_or_part = stored.status == StatusCode::OK || stored.part.is_some();
    let arrived_s = stored.policy.response_time_s();
    if !whole_or_part || !preconditions::range_applies(&ask.headers, &stored.headers, arrived_s) {
        return Answer::Whole;
    }
    let ranges_max = worker.shared.config.caching.ranges_max;
    ranges::answer(&ask.method, &ask.headers, length_bytes, ranges_max)
}

/// Whether a stored part holds everything that the request asks for.
pub(crate) fn part_suffices(worker: &Worker, ask: &Ask, stored: &StoredResponse) -> bool {
    let Some(part) = stored.part else { return true };
    match wanted(worker, ask, stored, part.complete_bytes) {
        Answer::One(range) => part.locate(&range).is_some(),
        Answer::Several(ranges) => ranges.iter().all(|range| part.locate(range).is_some()),
        Answer::Unsatisfiable => true,
        Answer::Whole => false,
    }
}

/// Reads the first piece of a streamed response before its headers are sent. False: the store has
/// evicted it, or what comes after it, since the lookup (a validation may have taken seconds),
/// which counts as a miss.
pub(crate) async fn begin(worker: &Worker, ask: &Ask, found: &mut Found) -> bool {
    let Some(streamed) = streamed(worker, ask, found) else { return true };
    match &mut found.body {
        FoundBody::Large(sections) => {
            let is_read = {
                let reading = pin!(sections.read_first(streamed.first));
                worker.relay.wait(reading).await.is_ok()
            };
            is_read && sections.has(streamed.all)
        }
        FoundBody::Inflight(body, _) => {
            let reading = pin!(body.can_be_read(streamed.first.start));
            worker.relay.wait(reading).await
        }
        _ => true,
    }
}

/// Whether the store has, as far as it knows without I/O, what it would stream to this request.
pub(crate) fn is_there(worker: &Worker, ask: &Ask, found: &Found) -> bool {
    let FoundBody::Large(sections) = &found.body else { return true };
    streamed(worker, ask, found).is_none_or(|streamed| sections.has(streamed.all))
}

/// What a response streams of a stored body.
struct Streamed {
    /// The range that it begins with.
    first: Range<u64>,
    /// From the first byte of any range to the last one.
    all: Range<u64>,
}

/// What the response streams of the stored body, if it is streamed.
fn streamed(worker: &Worker, ask: &Ask, found: &Found) -> Option<Streamed> {
    let (body, stored) = (&found.body, &found.response);
    if !matches!(body, FoundBody::Large(_) | FoundBody::Inflight(..)) {
        return None;
    }
    let (method, headers) = (&ask.method, &ask.headers);
    let arrived_s = stored.policy.response_time_s();
    let outcome =
        preconditions::evaluate(method, headers, stored.status, &stored.headers, arrived_s);
    if outcome != Outcome::Proceed {
        return None;
    }
    let (length_bytes, start) = match stored.part {
        Some(part) => (part.complete_bytes, part.start),
        None => (body.length_bytes(), 0),
    };
    let (first, all) = match wanted(worker, ask, stored, length_bytes) {
        Answer::Whole => (start..u64::MAX, start..u64::MAX),
        Answer::One(range) => (range.clone(), range),
        Answer::Several(ranges) => {
            let end = ranges.iter().map(|range| range.end).max()?;
            (ranges.first()?.clone(), ranges.iter().map(|range| range.start).min()?..end)
        }
        Answer::Unsatisfiable => return None,
    };
    let within =
        |range: Range<u64>| range.start.saturating_sub(start)..range.end.saturating_sub(start);
    Some(Streamed { first: within(first), all: within(all) })
}

/// Makes a response to this request from a stored one.
pub(crate) fn from_store(
    worker: &Worker,
    ask: &Ask,
    mut found: Box<Found>,
    age_s: u64,
) -> Response<ProxyBody> {
    let stored = &found.response;
    let arrived_s = stored.policy.response_time_s();
    let outcome = preconditions::evaluate(
        &ask.method,
        &ask.headers,
        stored.status,
        &stored.headers,
        arrived_s,
    );
    let complete_bytes = stored.part.map_or(found.body.length_bytes(), |part| part.complete_bytes);
    let wanted = wanted(worker, ask, stored, complete_bytes);
    found.response.headers.insert(AGE, number(age_s));
    let version = found.response.version;
    let mut response = match (outcome, wanted) {
        (Outcome::NotModified, _) => not_modified(worker, found.response.headers),
        (Outcome::Failed, _) => precondition_failed(worker, &found.response.headers),
        (Outcome::Proceed, Answer::Whole) => whole(found),
        (Outcome::Proceed, Answer::Unsatisfiable) => {
            unsatisfiable(worker, &found.response.headers, complete_bytes)
        }
        (Outcome::Proceed, Answer::One(range)) => one_part(found, range, complete_bytes),
        (Outcome::Proceed, Answer::Several(ranges)) => {
            several_parts(found, &ranges, complete_bytes)
        }
    };
    *response.version_mut() = version;
    response
}

/// 304 with the headers of the representation that the client has.
pub(crate) fn not_modified(worker: &Worker, mut headers: HeaderMap) -> Response<ProxyBody> {
    worker.counters.client_not_modified.one();
    validation::headers_for_304(&mut headers);
    with_headers(StatusCode::NOT_MODIFIED, headers, ProxyBody::empty())
}

/// 412, with the validators of the stored response.
pub(crate) fn precondition_failed(worker: &Worker, stored: &HeaderMap) -> Response<ProxyBody> {
    worker.counters.client_preconditions_failed.one();
    let words = "The resource is another one than the request's condition allows.";
    refused(worker, StatusCode::PRECONDITION_FAILED, words, stored)
}

/// 416, with the length and the validators of the stored response.
fn unsatisfiable(worker: &Worker, stored: &HeaderMap, complete_bytes: u64) -> Response<ProxyBody> {
    let words = "Nothing of the resource lies within the ranges asked for.";
    let mut response = refused(worker, StatusCode::RANGE_NOT_SATISFIABLE, words, stored);
    response.headers_mut().insert(CONTENT_RANGE, ranges::unsatisfied(complete_bytes));
    response
}

/// What is refused because of what is stored, of which it has age and validators.
fn refused(
    worker: &Worker,
    status: StatusCode,
    words: &str,
    stored: &HeaderMap,
) -> Response<ProxyBody> {
    const KEPT: [HeaderName; 7] = [AGE, CONTENT_LOCATION, DATE, ETAG, EXPIRES, LAST_MODIFIED, VARY];
    worker.counters.own_errors.one();
    let mut response = text(status, words);
    for name in KEPT {
        if let Some(value) = stored.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

fn whole(found: Box<Found>) -> Response<ProxyBody> {
    let Found { response: StoredResponse { status, mut headers, .. }, body, .. } = *found;
    let length_bytes = body.length_bytes();
    if status != StatusCode::NO_CONTENT && body.has_known_length() {
        headers.insert(CONTENT_LENGTH, number(length_bytes));
    }
    let body = match body {
        FoundBody::Whole(bytes) => ProxyBody::whole(bytes),
        FoundBody::Inflight(inflight, rest) => {
            ProxyBody::inflight(InflightReader::new(inflight, rest))
        }
        FoundBody::Length(_) | FoundBody::Unmeasured => ProxyBody::empty(),
        streamed => ProxyBody::streamed(reader_of(streamed), vec![Piece::Stored(0..length_bytes)]),
    };
    with_headers(status, headers, body)
}

fn one_part(found: Box<Found>, range: Range<u64>, complete_bytes: u64) -> Response<ProxyBody> {
    let Found { response, body, .. } = *found;
    let (part, mut headers) = (response.part, response.headers);
    parts::remove_digests(&mut headers);
    headers.insert(CONTENT_RANGE, ranges::content_range(&range, complete_bytes));
    headers.insert(CONTENT_LENGTH, number(range.end - range.start));
    let start = part.map_or(0, |part| part.start);
    // `wanted` admits only ranges that the part holds.
    let held = range.start.saturating_sub(start)..range.end.saturating_sub(start);
    let body = match body {
        FoundBody::Whole(bytes) => ProxyBody::whole(slice(&bytes, &held)),
        FoundBody::Length(_) | FoundBody::Unmeasured => ProxyBody::empty(),
        streamed => ProxyBody::streamed(reader_of(streamed), vec![Piece::Stored(held)]),
    };
    with_headers(StatusCode::PARTIAL_CONTENT, headers, body)
}

fn several_parts(
    found: Box<Found>,
    ranges: &[Range<u64>],
    complete_bytes: u64,
) -> Response<ProxyBody> {
    let Found { response, body, .. } = *found;
    let (part, mut headers) = (response.part, response.headers);
    let frame = Multipart::new(&headers, ranges, complete_bytes, fastrand::u64(..));
    parts::remove_digests(&mut headers);
    headers.insert(CONTENT_TYPE, frame.content_type);
    headers.insert(CONTENT_LENGTH, number(frame.length_bytes));
    // Each part has its own.
    headers.remove(CONTENT_RANGE);
    let start = part.map_or(0, |part| part.start);
    let mut pieces = Vec::with_capacity(ranges.len() * 2 + 1);
    for (head, range) in frame.heads.into_iter().zip(ranges) {
        pieces.push(Piece::Bytes(head.into()));
        let held = range.start.saturating_sub(start)..range.end.saturating_sub(start);
        pieces.push(match &body {
            FoundBody::Whole(bytes) => Piece::Bytes(slice(bytes, &held)),
            _ => Piece::Stored(held),
        });
    }
    pieces.push(Piece::Bytes(frame.tail.into()));
    let body = ProxyBody::streamed(reader_of(body), pieces);
    with_headers(StatusCode::PARTIAL_CONTENT, headers, body)
}

/// The source of a body that is not in one piece.
fn reader_of(body: FoundBody) -> Option<Reader> {
    match body {
        FoundBody::Large(sections) => Some(Reader::Sections(*sections)),
        FoundBody::Sliced(slices) => Some(Reader::Slices(slices)),
        FoundBody::Inflight(inflight, rest) => {
            Some(Reader::Inflight(InflightReader::new(inflight, rest)))
        }
        FoundBody::Whole(_) | FoundBody::Length(_) | FoundBody::Unmeasured => None,
    }
}

/// A range of stored bytes, without a copy.
fn slice(bytes: &Bytes, range: &Range<u64>) -> Bytes {
    let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    bytes.slice(at(range.start)..at(range.end))
}
