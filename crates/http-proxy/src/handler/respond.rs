//! Answers that a rule gives by itself, such as a redirect or a maintenance page.
//!
//! Invariants: neither cache nor origin is asked, whatever the method; purge requests take
//! precedence over the rule; no such answer opens a tunnel. Threads: the worker's.

use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderMap, Method, StatusCode};

use crate::answer::body::ProxyBody;
use crate::answer::{self, Answer, own_answer};
use crate::request::{Ask, BadRequest, hooks};
use crate::rules::CacheStatus;
use crate::ruleset::Respond;
use crate::worker::Worker;

/// The answer of the rule that answers this request, if any. `extended`: the request is an extended
/// CONNECT of HTTP/2, for which any 2xx would open a tunnel (RFC 8441 §5).
pub(super) fn answer(worker: &Worker, ask: &Ask, extended: bool) -> Option<Answer> {
    let respond = worker.shared.config.ruleset.answer(ask.answering?);
    let purges = worker.shared.config.purge.takes(&ask.method);
    let status = respond.status.filter(|_| !purges && ask.method != Method::CONNECT)?;
    if extended && status.is_success() {
        let text = "A rule answers this, and opens no tunnel.";
        let status = StatusCode::NOT_IMPLEMENTED;
        return Some(own_answer(worker, status, CacheStatus::responded(), text));
    }
    let location = match &respond.location {
        None => None,
        Some(location) => {
            let path = ask.target.path_and_query.as_str();
            let found = location.of(ask.host_asked(), path);
            let Some(found) = found else {
                return Some(answer::refuse(worker, BadRequest::MissingHost));
            };
            Some(found)
        }
    };
    worker.counters.responded.one();
    let (mut headers, body) = body(respond, status);
    headers.extend(location.map(|location| (LOCATION, location)));
    hooks::on_response(&worker.shared, ask, status, &mut headers, body.length().exact());
    Some((answer::with_headers(status, headers, body), CacheStatus::responded()))
}

/// The rule's body, or the status in words, with its content type.
fn body(respond: &Respond, status: StatusCode) -> (HeaderMap, ProxyBody) {
    if matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT) {
        return (HeaderMap::new(), ProxyBody::empty());
    }
    let words = status.canonical_reason().unwrap_or_default();
    let (parts, body) = answer::text(status, words).into_parts();
    let mut headers = parts.headers;
    let Some(said) = &respond.body else { return (headers, body) };
    if let Some(body_type) = &respond.body_type {
        headers.insert(CONTENT_TYPE, body_type.clone());
    }
    (headers, ProxyBody::whole(said.clone()))
}
