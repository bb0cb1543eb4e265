//! What a rule answers by itself: a redirect, a page for maintenance.
//!
//! Invariants: neither cache nor origin is asked, whatever the method; orders to purge go before; nothing
//! that a rule says is taken for the beginning of a tunnel. Threads: the worker's.

use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderMap, Method, StatusCode};

use crate::answer::body::ProxyBody;
use crate::answer::{self, Answer, own_answer};
use crate::request::{Ask, BadRequest, hooks};
use crate::rules::CacheStatus;
use crate::ruleset::Respond;
use crate::worker::Worker;

/// The answer of the rule that gives one to this request. `extended`: it asks for a tunnel on its stream of
/// HTTP/2, which any 2xx would open (RFC 8441 §5).
pub(super) fn answer(worker: &Worker, ask: &Ask, extended: bool) -> Option<Answer> {
    let respond = worker.shared.config.ruleset.answer(ask.answering?);
    let purges = ask.method.as_str() == "PURGE" && worker.shared.config.purge_method;
    let status = respond.status.filter(|_| !purges && ask.method != Method::CONNECT)?;
    if extended && status.is_success() {
        let text = "A rule answers this, and opens no tunnel.";
        let status = StatusCode::NOT_IMPLEMENTED;
        return Some(own_answer(worker, status, CacheStatus::responded(), text));
    }
    let location = match &respond.location {
        None => None,
        Some(location) => {
            let found = location.of(&ask.target.client_host, &ask.target.path_and_query);
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

/// What the rule says, or the status in words, with its type.
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
