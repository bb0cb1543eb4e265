//! Dispatch of one request, from its headers to its answer.
//!
//! ```text
//! handle ─► dispatch ─► `screen`
//!                          │
//!                          ├► CONNECT admitted by the forward proxy  `connect`: a tunnel
//!                          ├► TRACE, OPTIONS with no hops left       `max_forwards`
//!                          ├► a rule that answers by itself          `respond`
//!                          └► route ─┬► PURGE, if enabled            `purge`
//!                                    ├► CONNECT to a reverse proxy   501
//!                                    ├► Upgrade                      `upgrade`: a tunnel
//!                                    ├► requests past the cache      `fetch::pass`
//!                                    └► all other GET and HEAD       `cache`
//! ```
//!
//! Invariants: a request reaches the cache or an origin only after it has passed `screen`; every
//! answer from here carries `Cache-Status` and `Via`, and every answer to what reached `respond` or
//! `route` has the rules' edits of answers (`delivery`). Threads: a request is handled on the
//! worker that read it. Fills and tunnels run as separate tasks on the same worker.

// CONNECT, to a tunnel.
mod connect;
// What rules do to the answer in the end.
mod delivery;
// Requests that end here: OPTIONS, TRACE.
mod max_forwards;
// Logins that count for a connection.
mod pinning;
// Orders to purge, by method or by the admin listener.
pub(crate) mod purge;
// What such a method says.
pub(crate) mod purge_method;
// Counters of a request, and its line in the log.
pub(crate) mod record;
// What a rule answers.
mod respond;
// Refusals of requests.
pub(crate) mod screen;
// Two byte streams joined.
mod tunnel;
// Upgrades, to a tunnel.
pub(crate) mod upgrade;

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{
    CONNECTION, CONTENT_LENGTH, DATE, HeaderValue, PROXY_AUTHENTICATE, UPGRADE, VIA,
};
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use hyper::ext::Protocol;

use crate::answer::body::ProxyBody;
use crate::answer::{self, Answer, only_if_cached, own_answer};
use crate::cache;
use crate::client::Peer;
use crate::error::Refusal;
use crate::fetch::pass::pass;
use crate::forward::NotAdmitted;
use crate::handler::delivery::Delivery;
use crate::handler::record::{Unanswered, UserUnchecked};
use crate::handler::upgrade::Upgrade;
use crate::request::{Ask, announces_body};
use crate::rules::{CacheStatus, ForwardReason, dates, invalidation, preconditions};
use crate::ruleset::SiteId;
use crate::upstream::ClientUpload;
use crate::vault::PRIMARY_KEY_BYTES_MAX;
use crate::worker::Worker;

/// Answers one request. Never fails: an error becomes an answer.
pub(crate) async fn handle(
    worker: &Arc<Worker>,
    request: Request<Incoming>,
    mut peer: Peer,
) -> Response<ProxyBody> {
    worker.counters.requests.one();
    worker.counters.asked_by(request.version());
    let start = Instant::now();
    let mut record = record::begin(worker, &request, &peer, start);
    peer.notes = record.as_ref().map(|record| record.notes.clone());
    let unanswered = Unanswered::new(&worker.counters);
    let is_head = request.method() == Method::HEAD;
    let may_tunnel = request.method() == Method::CONNECT && request.version() < Version::HTTP_2;
    let linger = lingers(worker, &request);
    let request = request.map(|body| ClientUpload::new(body, linger));
    let (mut response, mut status) = dispatch(worker, request, peer, start).await;
    let delivery = response.extensions_mut().remove::<Arc<Delivery>>();
    if is_head {
        response = answer::headers_only(response);
    } else if let Some(error) = response.body_mut().begins_broken().await {
        // Nothing was sent yet: otherwise the connection would be closed without any answer.
        (response, status) = answer::broken(worker, status, error);
    }
    if may_tunnel && ends_connection(response.status()) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if let Some(delivery) = &delivery {
        delivery.edit(&worker.shared, &mut response, status.word());
    }
    if let (Some(record), Some(delivery)) = (&mut record, delivery) {
        record.request_id.clone_from(&delivery.request_id);
    }
    let source = record::answered(worker, response.status(), &status, start.elapsed());
    status.append_to(response.headers_mut(), &worker.shared.config.name);
    // `Via` names the HTTP version that the origin spoke. The version towards the client is that
    // of the client's connection.
    let received = std::mem::take(response.version_mut());
    response.headers_mut().append(VIA, worker.shared.via.received(received));
    // Not left to hyper: once the system's clock was set back, the `Date` that hyper adds stands
    // still until the clock is again where it was.
    response.headers_mut().entry(DATE).or_insert_with(|| dates::value(worker.now_s()));
    let response = response.map(|body| body.with_source(source));
    unanswered.end();
    record::follow(worker, record, &status, response)
}

/// How long what a client still sends is read where nobody wants it: on streams of HTTP/2 that are
/// no tunnels. HTTP/1 leaves that to the end of the connection.
fn lingers<B>(worker: &Worker, request: &Request<B>) -> Option<Duration> {
    let is_stream = request.version() == Version::HTTP_2 && request.method() != Method::CONNECT;
    is_stream.then_some(worker.shared.config.timeouts.client_header)
}

/// Whether this answer to a CONNECT of HTTP/1 ends the connection. Its client may already have sent
/// what somebody else wants to go through the tunnel, which must not be read as requests. After a
/// 407 it is harmless, since they need credentials, and clients come back on the same connection.
fn ends_connection(status: StatusCode) -> bool {
    !status.is_success() && status != StatusCode::PROXY_AUTHENTICATION_REQUIRED
}

/// Answers a request of any kind. `start`: when it was read. The answer has what rules do to it in
/// the end as an extension.
async fn dispatch(
    worker: &Arc<Worker>,
    mut request: Request<ClientUpload>,
    mut peer: Peer,
    start: Instant,
) -> Answer {
    let protocols = &worker.shared.config.upgrades;
    upgrade::read_extended_connect(&mut request, protocols);
    if request.version() == Version::HTTP_2 {
        screen::join_cookies(request.headers_mut());
    }
    if let Err(refusal) = screen::screen(&mut request, &worker.shared.config.limits) {
        let (mut response, status) = refuse(worker, refusal);
        response.extensions_mut().insert(UserUnchecked);
        return (response, status);
    }
    if let Some(forward) = &worker.shared.forward {
        let limit = worker.shared.config.timeouts.connect;
        match forward.admit(&worker.counters, &mut request, peer.ip, limit).await {
            Err(NotAdmitted::Refused(refusal)) => return refuse(worker, refusal),
            Err(NotAdmitted::Unreached(error)) => {
                let status = CacheStatus::own(error.name());
                return own_answer(worker, error.status(), status, &format!("{error}."));
            }
            Ok(route) if request.method() == Method::CONNECT => {
                return Box::pin(connect::open(worker, request, &peer, route)).await;
            }
            Ok(route) => peer.route = Some(route),
        }
    }
    if let Some(answer) = max_forwards::answer(worker, &mut request) {
        return answer;
    }
    let extended = request.extensions().get::<Protocol>().is_some();
    let leaves = extended || request.headers().contains_key(UPGRADE);
    // Boxed: rare, and each connection would have room for it.
    let upgrade = if leaves { Upgrade::take(&mut request, protocols).map(Box::new) } else { None };
    match Ask::new(request, peer, &worker.shared) {
        Ok((mut ask, body)) => {
            pinning::settle(worker, &mut ask);
            let (mut response, mut status) = match respond::answer(worker, &ask, extended) {
                Some(answer) => answer,
                None => route(worker, &ask, body, upgrade).await,
            };
            pinning::announce(&ask, response.headers_mut());
            if let Some(delivery) = Delivery::of(&worker.shared, &ask) {
                response.extensions_mut().insert(delivery);
            }
            record::asked(worker, &ask, &status, start);
            if ask.site != SiteId::MAIN {
                response.extensions_mut().insert(ask.site);
            }
            if worker.shared.config.caching.show_key {
                let key = String::from_utf8_lossy(&ask.target.primary);
                status.key = Some(key.into_owned());
            }
            (response, status)
        }
        Err(bad) => answer::refuse(worker, bad),
    }
}

/// Answers a well-formed request that no rule has answered.
async fn route(
    worker: &Arc<Worker>,
    ask: &Ask,
    body: ClientUpload,
    upgrade: Option<Box<Upgrade>>,
) -> Answer {
    if screen::upload_is_too_large(&body, ask.upload_bytes_max(&worker.shared.config)) {
        return refuse(worker, screen::UPLOAD_TOO_LARGE);
    }
    if worker.shared.config.purge.takes(&ask.method) {
        return purge::answer(worker, ask).await;
    }
    if ask.method == Method::CONNECT {
        let text = "This proxy stands before one origin and opens no tunnels.";
        let status = CacheStatus::own("connect");
        return own_answer(worker, StatusCode::NOT_IMPLEMENTED, status, text);
    }
    match upgrade {
        Some(_) if ask.wishes.only_if_cached => return only_if_cached(worker),
        Some(upgrade) => return Box::pin(upgrade.pass(worker, ask)).await,
        None => {}
    }
    if ask.method != Method::GET && ask.method != Method::HEAD {
        let status = CacheStatus::forwarded(ForwardReason::Method);
        return Box::pin(pass(worker, ask, body, status)).await;
    }
    let past_us = if ask.pass {
        Some("rule")
    } else if ask.is_pinned() {
        Some("connection-auth")
    } else if has_body(ask, &body) {
        Some("request-body")
    } else if invalidation::overrides_method(&ask.headers) {
        Some("method-override")
    } else if preconditions::for_origin_only(&ask.headers, &worker.shared.config.caching) {
        Some("precondition")
    } else if ask.target.primary.len() > PRIMARY_KEY_BYTES_MAX {
        Some("long-target")
    } else {
        None
    };
    match past_us {
        None => cache::answer(worker, ask).await,
        Some(_) if ask.wishes.only_if_cached => only_if_cached(worker),
        Some(detail) => {
            let mut status = CacheStatus::forwarded(ForwardReason::Bypass);
            status.detail = Some(detail);
            Box::pin(pass(worker, ask, body, status)).await
        }
    }
}

/// Whether the request has a body. One of HTTP/2 need not announce it: its stream just goes on
/// behind the headers.
fn has_body(ask: &Ask, body: &ClientUpload) -> bool {
    let goes_on = !ask.headers.contains_key(CONTENT_LENGTH) && !body.is_end_stream();
    announces_body(&ask.headers) || goes_on
}

fn refuse(worker: &Worker, refusal: Refusal) -> Answer {
    let status = CacheStatus::own(refusal.detail);
    let (mut response, status) = own_answer(worker, refusal.status, status, refusal.text);
    if refusal.status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        let challenge = HeaderValue::from_static("Basic realm=\"damelo\", charset=\"UTF-8\"");
        response.headers_mut().insert(PROXY_AUTHENTICATE, challenge);
    }
    if refusal.last {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    (response, status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer_bytes<F>(_: impl Fn(&'static Arc<Worker>, Request<Incoming>, Peer) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_idle_connection_keeps_no_room_for_a_miss() {
        assert!(answer_bytes(handle) <= 5 << 10, "{} bytes", answer_bytes(handle));
    }
}
