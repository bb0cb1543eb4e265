//! One request: look it up, decide, and serve, validate or fetch.
//!
//! ```text
//! handle ─► pass    method, range or precondition that the cache leaves to the origin
//!        └► cached ─► look ─► judge ─► serve          fresh, or stale and wanted so
//!                       ▲        └──► join ─► lead    fetch ─► 304: freshen
//!                       └── follow ◄────┘                  ├─► storable: fill
//!                                                          └─► else: pass on
//! ```
//!
//! Invariants: every answer carries `Cache-Status` and `Via`; no request waits for another longer
//! than `collapse_wait` in each of at most [`ROUNDS_MAX`] rounds; a body leaves the store without
//! copy. Threads: everything of one request runs on the worker that read it; only fills that need
//! the store's or origin's time run as tasks of their own, on the same worker.

use std::net::IpAddr;
use std::time::Instant;

use bytes::Bytes;
use http::header::{
    AGE, CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_TYPE, HeaderValue, LOCATION, VIA,
};
use http::{HeaderMap, Method, Request, Response, StatusCode, response};
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::ask::{Ask, BadRequest, announces_body};
use crate::body::{OriginBody, ProxyBody, Timed};
use crate::collapse::{self, Lead, Outcome, Role};
use crate::entry::StoredResponse;
use crate::error::FetchError;
use crate::fill::Fill;
use crate::front;
use crate::log::LogRecord;
use crate::peer::Peer;
use crate::rules::cache_control::CacheControl;
use crate::rules::cache_status::{self, CacheStatus, Forward};
use crate::rules::request::{Verdict, judge};
use crate::rules::storing::{self, NotStoredReason};
use crate::rules::{group, validation};
use crate::upstream::FetchedBody;
use crate::vault::{Epoch, Found, FoundBody, Looked, PRIMARY_KEY_BYTES_MAX};
use crate::worker::Worker;

/// Times a request waits for others before it goes alone.
const ROUNDS_MAX: usize = 3;

/// An answer, and what the cache did for it.
pub(crate) type Answer = (Response<ProxyBody>, CacheStatus);

/// Answers one request. Never fails: what goes wrong becomes an answer.
pub(crate) async fn handle(
    worker: &Worker,
    request: Request<Incoming>,
    peer: Peer,
) -> Response<ProxyBody> {
    worker.counters.requests.one();
    let record = begin_record(worker, &request, peer.ip);
    let (mut response, status) = front::answer(worker, request, peer).await;
    status.append_to(response.headers_mut(), &worker.shared.config.name);
    response.headers_mut().append(VIA, worker.shared.via.clone());
    match record {
        None => response,
        Some(mut record) => {
            record.status = response.status();
            record.result = status.word();
            response.map(|body| body.with_record(record))
        }
    }
}

fn begin_record(worker: &Worker, request: &Request<Incoming>, client: IpAddr) -> Option<LogRecord> {
    let log = worker.shared.log.clone()?;
    Some(LogRecord {
        log,
        counters: worker.counters.clone(),
        start: Instant::now(),
        start_unix_s: worker.now_s(),
        client,
        method: request.method().clone(),
        target: request.uri().to_string(),
        status: StatusCode::OK,
        result: "none",
        body_bytes: 0,
    })
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

/// An answer of the proxy itself.
pub(crate) fn own_answer(
    worker: &Worker,
    status: StatusCode,
    cache: CacheStatus,
    text: &str,
) -> Answer {
    worker.counters.own_errors.one();
    let body = ProxyBody::whole(Bytes::from(format!("{} {text}\n", status.as_str())));
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    (response, cache)
}

pub(crate) fn origin_failed(worker: &Worker, error: FetchError, mut status: CacheStatus) -> Answer {
    status.detail = Some(error.name());
    let text = format!("{error} (at {}).", worker.shared.origin.authority);
    own_answer(worker, error.status(), status, &text)
}

fn only_if_cached(worker: &Worker) -> Answer {
    let text = "Only a cached answer was wanted, and there is none that may be used.";
    own_answer(worker, StatusCode::GATEWAY_TIMEOUT, CacheStatus::own("only-if-cached"), text)
}

/// Answers a request that is in order.
pub(crate) async fn route(worker: &Worker, ask: &Ask, body: Incoming) -> Answer {
    if ask.method == Method::CONNECT {
        let text = "This proxy stands before one origin and opens no tunnels.";
        let status = CacheStatus::own("connect");
        return own_answer(worker, StatusCode::NOT_IMPLEMENTED, status, text);
    }
    if ask.method != Method::GET && ask.method != Method::HEAD {
        return pass(worker, ask, body, CacheStatus::forwarded(Forward::Method)).await;
    }
    let past_us = if announces_body(&ask.headers) {
        Some("request-body")
    } else if validation::beyond_us(&ask.headers) {
        Some("range-or-precondition")
    } else if ask.target.primary.len() > PRIMARY_KEY_BYTES_MAX {
        Some("long-target")
    } else {
        None
    };
    match past_us {
        None => cached(worker, ask).await,
        Some(_) if ask.cache_control.only_if_cached => only_if_cached(worker),
        Some(detail) => {
            let mut status = CacheStatus::forwarded(Forward::Bypass);
            status.detail = Some(detail);
            pass(worker, ask, body, status).await
        }
    }
}

/// Forwards a request that the cache has no part in, but for what it invalidates.
async fn pass(worker: &Worker, ask: &Ask, body: Incoming, mut status: CacheStatus) -> Answer {
    let body = OriginBody::stream(body, worker.idle_limit());
    match worker.fetcher.send(ask.forward(&worker.shared, body)).await {
        Err(error) => origin_failed(worker, error, status),
        Ok(response) => {
            let (parts, body) = response.into_parts();
            if !ask.method.is_safe() && (parts.status.is_success() || parts.status.is_redirection())
            {
                invalidate(worker, ask, &parts.headers);
            }
            status.forward_status = Some(parts.status);
            (pass_on(worker, parts, body), status)
        }
    }
}

/// RFC 9111 §4.4: an unsafe method that succeeded changes the resource and those it names.
fn invalidate(worker: &Worker, ask: &Ask, response: &HeaderMap) {
    let named = [LOCATION, CONTENT_LOCATION];
    let named = named.iter().filter_map(|name| response.get(name));
    let keys = named.filter_map(|uri| ask.key_of_named(uri, worker.shared.origin.scheme));
    for key in keys.chain([ask.target.primary.clone()]) {
        worker.counters.invalidations.one();
        worker.shared.vault.invalidate(&key);
    }
}

/// The origin's response as it is, less what belonged to its connection.
pub(crate) fn pass_on(
    worker: &Worker,
    mut parts: response::Parts,
    body: FetchedBody,
) -> Response<ProxyBody> {
    storing::remove_hop_by_hop(&mut parts.headers);
    let body = ProxyBody::passing(body, worker.idle_limit());
    with_headers(parts.status, parts.headers, body)
}

fn with_headers(status: StatusCode, headers: HeaderMap, body: ProxyBody) -> Response<ProxyBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// What a lookup leads to.
enum Plan {
    Serve(Box<Found>),
    /// Ask the origin; `key` is what others who miss the same would wait for.
    Ask {
        found: Option<Box<Found>>,
        key: Vec<u8>,
        reason: Forward,
    },
    /// Ask the origin, nothing can be stored or shared.
    Alone,
}

async fn plan(worker: &Worker, ask: &Ask) -> Plan {
    let want_body = ask.method == Method::GET;
    let vault = &worker.shared.vault;
    let looked = vault.look(&ask.target.primary, &ask.headers, want_body, &worker.counters).await;
    match looked {
        Looked::Unkeyable => Plan::Alone,
        Looked::Missed { key, reason } => Plan::Ask { found: None, key, reason },
        Looked::Found(found) => match verdict(worker, ask, &found.response) {
            Verdict::Serve => Plan::Serve(found),
            Verdict::Validate(reason) => {
                let key = found.key.clone();
                Plan::Ask { found: Some(found), key, reason }
            }
        },
    }
}

fn verdict(worker: &Worker, ask: &Ask, stored: &StoredResponse) -> Verdict {
    let ignored = CacheControl::default();
    let obey = worker.shared.config.obey_request_directives;
    let wishes = if obey { &ask.cache_control } else { &ignored };
    judge(wishes, &stored.policy, stored.age_s(worker.now_s()))
}

async fn cached(worker: &Worker, ask: &Ask) -> Answer {
    let mut collapsed = false;
    for _ in 0..ROUNDS_MAX {
        let (found, key, reason) = match plan(worker, ask).await {
            Plan::Serve(found) => return serve_hit(worker, ask, *found, collapsed),
            Plan::Ask { found, key, reason } => (found, key, reason),
            Plan::Alone => break,
        };
        if ask.cache_control.only_if_cached {
            return only_if_cached(worker);
        }
        // A HEAD brings nothing others could use; whoever demands the origin shall have it.
        if ask.method == Method::HEAD || reason == Forward::Request {
            return fetch(worker, ask, found, reason, None).await;
        }
        match worker.shared.collapse.join(&key) {
            Role::Alone => return fetch(worker, ask, found, reason, None).await,
            Role::Leader(lead) => return lead_fetch(worker, ask, found, &key, reason, lead).await,
            Role::Follower(leader) => {
                // What was found may pin memory, and is looked up again anyway.
                drop(found);
                let wait = worker.shared.config.collapse_wait;
                match timeout(wait, collapse::outcome(leader)).await {
                    Ok(Outcome::Stored | Outcome::Abandoned) => collapsed = true,
                    Ok(Outcome::Failed(error)) => {
                        let mut status = CacheStatus::forwarded(reason);
                        status.collapsed = true;
                        return origin_failed(worker, error, status);
                    }
                    Ok(Outcome::NotStored | Outcome::Pending) | Err(_) => break,
                }
            }
        }
    }
    go_alone(worker, ask).await
}

/// Neither leads nor follows.
async fn go_alone(worker: &Worker, ask: &Ask) -> Answer {
    match plan(worker, ask).await {
        Plan::Serve(found) => serve_hit(worker, ask, *found, true),
        _ if ask.cache_control.only_if_cached => only_if_cached(worker),
        Plan::Ask { found, reason, .. } => fetch(worker, ask, found, reason, None).await,
        Plan::Alone => fetch(worker, ask, None, Forward::Bypass, None).await,
    }
}

async fn lead_fetch(
    worker: &Worker,
    ask: &Ask,
    found: Option<Box<Found>>,
    key: &[u8],
    reason: Forward,
    lead: Lead,
) -> Answer {
    // Another leader may have finished between our lookup and our lead.
    if worker.shared.vault.may_contain(key) {
        match plan(worker, ask).await {
            Plan::Serve(found) => {
                lead.end(Outcome::Stored);
                return serve_hit(worker, ask, *found, true);
            }
            Plan::Ask { found, reason, .. } => {
                return fetch(worker, ask, found, reason, Some(lead)).await;
            }
            Plan::Alone => {}
        }
    }
    fetch(worker, ask, found, reason, Some(lead)).await
}

/// An answer from the store that the origin was not asked for by this request.
fn serve_hit(worker: &Worker, ask: &Ask, found: Found, collapsed: bool) -> Answer {
    let age_s = found.response.age_s(worker.now_s());
    let ttl_s = cache_status::ttl(found.response.policy.lifetime_s, age_s);
    let mut status = CacheStatus::hit(ttl_s);
    if collapsed {
        worker.counters.collapsed.one();
        status = CacheStatus::forwarded(Forward::UriMiss);
        status.collapsed = true;
        status.ttl_s = Some(ttl_s);
    } else {
        worker.counters.hits.one();
    }
    (serve_found(worker, ask, found, age_s), status)
}

/// A stored response as an answer: 304 if the client has it already.
fn serve_found(worker: &Worker, ask: &Ask, found: Found, age_s: u64) -> Response<ProxyBody> {
    let status = found.response.status;
    let mut headers = found.response.headers;
    let not_modified = validation::not_modified(&ask.headers, status, &headers);
    headers.insert(AGE, HeaderValue::from(age_s));
    if not_modified {
        worker.counters.client_not_modified.one();
        validation::headers_for_304(&mut headers);
        return with_headers(StatusCode::NOT_MODIFIED, headers, ProxyBody::empty());
    }
    if status != StatusCode::NO_CONTENT {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(found.body.length_bytes()));
    }
    let body = match found.body {
        FoundBody::Whole(bytes) => ProxyBody::whole(bytes),
        FoundBody::Large(reader) => ProxyBody::streamed(*reader),
        FoundBody::Length(_) => ProxyBody::empty(),
    };
    with_headers(status, headers, body)
}

/// What a fetch began with.
struct Fetching<'a> {
    ask: &'a Ask,
    found: Option<Box<Found>>,
    lead: Option<Lead>,
    status: CacheStatus,
    epoch: Epoch,
    request_time_s: u64,
    response_time_s: u64,
}

/// Asks the origin, conditionally if something is stored.
async fn fetch(
    worker: &Worker,
    ask: &Ask,
    found: Option<Box<Found>>,
    reason: Forward,
    lead: Option<Lead>,
) -> Answer {
    let epoch = worker.shared.vault.epoch(&ask.target.primary);
    let mut fetching = Fetching {
        ask,
        found,
        lead,
        status: CacheStatus::forwarded(reason),
        epoch,
        request_time_s: worker.now_s(),
        response_time_s: 0,
    };
    let mut request = ask.forward(&worker.shared, OriginBody::Empty);
    let conditional = match &fetching.found {
        Some(found) => validation::make_conditional(request.headers_mut(), &found.response.headers),
        None => {
            validation::remove_preconditions(request.headers_mut());
            false
        }
    };
    let response = match worker.fetcher.send(request).await {
        Ok(response) => response,
        Err(error) => return fetching.failed(worker, error),
    };
    fetching.response_time_s = worker.now_s();
    if !conditional || response.status() != StatusCode::NOT_MODIFIED {
        return fetching.received(worker, response).await;
    }
    match fetching.freshened(&response) {
        Some(merged) => fetching.serve_freshened(worker, merged).await,
        None => fetching.fetch_again(worker).await,
    }
}

impl Fetching<'_> {
    fn failed(mut self, worker: &Worker, error: FetchError) -> Answer {
        if let Some(lead) = self.lead.take() {
            lead.end(Outcome::Failed(error));
        }
        origin_failed(worker, error, self.status)
    }

    fn end_lead(&mut self, outcome: Outcome) {
        if let Some(lead) = self.lead.take() {
            lead.end(outcome);
        }
    }

    /// The stored response brought up to date by a 304; `None` if the 304 means another one.
    fn freshened(&self, response: &Response<FetchedBody>) -> Option<StoredResponse> {
        let stored = &self.found.as_ref()?.response;
        let headers =
            validation::merge_304(&stored.headers, response.headers(), self.response_time_s)?;
        let mut merged = StoredResponse::new(
            stored.status,
            headers,
            response.headers(),
            self.request_time_s,
            self.response_time_s,
        );
        merged.apart = stored.apart;
        Some(merged)
    }

    /// After a 304: the stored body with the merged headers.
    async fn serve_freshened(mut self, worker: &Worker, merged: StoredResponse) -> Answer {
        let Some(mut found) = self.found.take() else { return self.fetch_again(worker).await };
        worker.counters.revalidated.one();
        let stored = self.keep_freshened(worker, &found, &merged).await;
        match stored {
            Ok(()) => {
                self.status.stored = true;
                self.end_lead(Outcome::Stored);
            }
            Err(reason) => {
                worker.counters.not_stored(reason);
                self.status.detail = Some(reason.name());
                self.end_lead(Outcome::NotStored);
            }
        }
        let age_s = merged.age_s(worker.now_s());
        self.status.forward_status = Some(StatusCode::NOT_MODIFIED);
        self.status.ttl_s = Some(cache_status::ttl(merged.policy.lifetime_s, age_s));
        found.response = merged;
        (serve_found(worker, self.ask, *found, age_s), self.status)
    }

    async fn keep_freshened(
        &self,
        worker: &Worker,
        found: &Found,
        merged: &StoredResponse,
    ) -> Result<(), NotStoredReason> {
        let vault = &worker.shared.vault;
        // A HEAD's 304 freshens what a GET stored (RFC 9111 §4.3.5).
        storing::decide(
            &Method::GET,
            &self.ask.headers,
            merged.status,
            &merged.headers,
            self.response_time_s,
        )
        .inspect_err(|reason| {
            // What only this request forbids does not touch what is stored.
            if !matches!(reason, NotStoredReason::RequestNoStore | NotStoredReason::Authorization) {
                vault.forget(&found.key);
            }
        })?;
        let metadata = merged.encode().ok_or(NotStoredReason::HeadersTooLarge)?;
        let kept = vault.update(&self.ask.target.primary, found, &metadata, self.epoch).await;
        if kept { Ok(()) } else { Err(NotStoredReason::Invalidated) }
    }

    /// The 304 was about bytes we do not have: forget ours and ask without conditions.
    async fn fetch_again(mut self, worker: &Worker) -> Answer {
        if let Some(found) = self.found.take() {
            worker.shared.vault.forget(&found.key);
        }
        let mut request = self.ask.forward(&worker.shared, OriginBody::Empty);
        validation::remove_preconditions(request.headers_mut());
        self.request_time_s = worker.now_s();
        match worker.fetcher.send(request).await {
            Ok(response) => {
                self.response_time_s = worker.now_s();
                self.received(worker, response).await
            }
            Err(error) => self.failed(worker, error),
        }
    }

    /// A full response: into the store if it may, and to the client in any case.
    async fn received(mut self, worker: &Worker, response: Response<FetchedBody>) -> Answer {
        let (parts, body) = response.into_parts();
        self.status.forward_status = Some(parts.status);
        let stored = StoredResponse::new(
            parts.status,
            storing::stored_headers(&parts.headers, self.response_time_s),
            &parts.headers,
            self.request_time_s,
            self.response_time_s,
        );
        let timed = Timed::new(body, worker.idle_limit());
        match self.deposit(worker, &parts, &stored, &timed).await {
            Ok(deposit) => {
                let age_s = stored.age_s(worker.now_s());
                self.status.stored = true;
                self.status.ttl_s = Some(cache_status::ttl(stored.policy.lifetime_s, age_s));
                self.fill(worker, parts, &stored, timed, deposit)
            }
            Err(reason) => {
                worker.counters.not_stored(reason);
                self.status.detail = Some(reason.name());
                self.forget_outdated(worker, parts.status);
                self.end_lead(Outcome::NotStored);
                let mut headers = parts.headers;
                storing::remove_hop_by_hop(&mut headers);
                let body = ProxyBody::timed(timed);
                (with_headers(parts.status, headers, body), self.status)
            }
        }
    }

    /// A full answer that is not stored replaces what was stored all the same; an error does not.
    fn forget_outdated(&self, worker: &Worker, status: StatusCode) {
        let Some(found) = &self.found else { return };
        if self.ask.method == Method::GET && !status.is_server_error() {
            worker.shared.vault.forget(&found.key);
        }
    }

    async fn deposit(
        &self,
        worker: &Worker,
        parts: &response::Parts,
        stored: &StoredResponse,
        body: &Timed,
    ) -> Result<crate::vault::Deposit, NotStoredReason> {
        use hyper::body::Body as _;
        let ask = self.ask;
        storing::decide(
            &ask.method,
            &ask.headers,
            parts.status,
            &parts.headers,
            self.response_time_s,
        )?;
        let length = body.size_hint().exact();
        if length.is_some_and(|length| length > worker.fill_limits().body_bytes_max) {
            return Err(NotStoredReason::TooLarge);
        }
        let target = &ask.target;
        let group = group::of(
            &target.host,
            &target.client_host,
            &target.path_and_query,
            &ask.headers,
            &parts.headers,
        );
        let vault = &worker.shared.vault;
        vault.begin(target, self.epoch, &ask.headers, stored, length, group).await
    }

    /// Starts the fill and answers from it; with 304 if the client has these bytes already.
    fn fill(
        mut self,
        worker: &Worker,
        parts: response::Parts,
        stored: &StoredResponse,
        body: Timed,
        deposit: crate::vault::Deposit,
    ) -> Answer {
        let not_modified =
            validation::not_modified(&self.ask.headers, parts.status, &stored.headers);
        let (mut fill, chunks) = Fill::new(
            worker.shared.vault.clone(),
            worker.counters.clone(),
            self.ask.target.primary.clone(),
            worker.fill_limits(),
            body,
            deposit,
            !not_modified,
        );
        fill.lead = self.lead.take();
        let alive = worker.alive.clone();
        tokio::spawn(async move {
            fill.run().await;
            drop(alive);
        });
        let mut headers = parts.headers;
        storing::remove_hop_by_hop(&mut headers);
        if not_modified {
            worker.counters.client_not_modified.one();
            validation::headers_for_304(&mut headers);
            let response = with_headers(StatusCode::NOT_MODIFIED, headers, ProxyBody::empty());
            return (response, self.status);
        }
        (with_headers(parts.status, headers, ProxyBody::filling(chunks)), self.status)
    }
}
