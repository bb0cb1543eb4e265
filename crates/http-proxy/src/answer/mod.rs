//! Responses to clients: the proxy's own, stored ones (`stored`), and passed-through ones.
//!
//! Invariant: every response carries a record of the cache's part in it. Threads: the worker that
//! read the request.

pub(crate) mod body;
mod hit;
mod passed_on;
mod reader;
mod stored;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Method, Response, StatusCode};
use hyper::body::Body as _;

use crate::answer::body::ProxyBody;
use crate::error::{BodyError, FetchError};
use crate::error_page::ErrorPage;
use crate::request::BadRequest;
use crate::rules::CacheStatus;
use crate::worker::Worker;

pub(crate) use hit::{reused, serve_hit, with_hit_status};
pub(crate) use passed_on::{keep_reason, own_fields, pass_on, remove_hop_by_hop};
pub(crate) use stored::{
    begin, from_store, is_there, not_modified, part_suffices, precondition_failed,
};

/// A response, and the cache's part in it.
pub(crate) type Answer = (Response<ProxyBody>, CacheStatus);

/// An answer with these headers.
pub(crate) fn with_headers(
    status: StatusCode,
    headers: HeaderMap,
    body: ProxyBody,
) -> Response<ProxyBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// A number as a header's value. One allocation, where the library's own conversion takes two.
pub(crate) fn number(value: u64) -> HeaderValue {
    let mut digits = itoa::Buffer::new();
    HeaderValue::from_str(digits.format(value)).expect("digits may stand in a header")
}

/// Strips the body for a HEAD: over HTTP/2 no lower layer does that.
pub(crate) fn headers_only(mut response: Response<ProxyBody>) -> Response<ProxyBody> {
    if response.body().is_end_stream() {
        return response;
    }
    if let Some(length_bytes) = response.body().size_hint().exact() {
        let length = response.headers_mut().entry(CONTENT_LENGTH);
        length.or_insert_with(|| number(length_bytes));
    }
    response.map(|_| ProxyBody::empty())
}

/// A short text of the proxy's own.
pub(crate) fn text(status: StatusCode, text: &str) -> Response<ProxyBody> {
    let body = ProxyBody::whole(Bytes::from(format!("{} {text}\n", status.as_str())));
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

/// True if the response to this method has a body.
pub(crate) fn wants_body(method: &Method) -> bool {
    *method == Method::GET
}

pub(crate) fn refuse(worker: &Worker, bad: BadRequest) -> Answer {
    let (status, detail, text) = match bad {
        BadRequest::MissingHost => {
            (StatusCode::BAD_REQUEST, "bad-host", "The request needs exactly one Host header.")
        }
        BadRequest::BadTarget => {
            (StatusCode::BAD_REQUEST, "bad-target", "The request target must begin with a slash.")
        }
        BadRequest::Loop => (
            StatusCode::LOOP_DETECTED,
            "loop",
            "The request has passed this cache too often: its origin leads back to it.",
        ),
    };
    own_answer(worker, status, CacheStatus::own(detail), text)
}

/// A response of the proxy itself: the operator's page, if there is one and an origin failed, else
/// the text.
pub(crate) fn own_answer(
    worker: &Worker,
    status: StatusCode,
    cache: CacheStatus,
    text: &str,
) -> Answer {
    let (mut response, cache) = own_text(worker, status, cache, text);
    let page = worker.shared.error_page.as_ref().filter(|_| ErrorPage::is_for(status));
    if let Some(page) = page {
        *response.body_mut() = ProxyBody::whole(page.render(status));
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, html);
    }
    (response, cache)
}

/// A response of the proxy itself, for a program that reads the text.
pub(crate) fn own_text(
    worker: &Worker,
    status: StatusCode,
    cache: CacheStatus,
    text: &str,
) -> Answer {
    worker.counters.own_errors.one();
    (self::text(status, text), cache)
}

pub(crate) fn origin_failed(worker: &Worker, error: FetchError, mut status: CacheStatus) -> Answer {
    status.detail = Some(error.name());
    // Which origin it is, is for standard error and the log: its address is nothing for clients.
    let mut answer = own_answer(worker, error.status(), status, &format!("{error}."));
    if let FetchError::Status(_, Some(retry_after)) = error {
        answer.0.headers_mut().insert(RETRY_AFTER, HeaderValue::clone(&retry_after));
    }
    answer
}

/// The answer in place of one whose body broke off before its first byte.
pub(crate) fn broken(worker: &Worker, status: CacheStatus, error: BodyError) -> Answer {
    let (forward, collapsed) = (status.forward, status.collapsed);
    let own = CacheStatus::own(FetchError::Broken.name());
    let status = CacheStatus { forward, collapsed, ..own };
    let text = format!("The body could not be had: {error}.");
    own_answer(worker, StatusCode::BAD_GATEWAY, status, &text)
}

pub(crate) fn only_if_cached(worker: &Worker) -> Answer {
    let text = "Only a cached answer was wanted, and there is none that may be used.";
    own_answer(worker, StatusCode::GATEWAY_TIMEOUT, CacheStatus::own("only-if-cached"), text)
}
