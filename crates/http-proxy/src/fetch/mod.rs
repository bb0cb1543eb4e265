//! Fetches one resource from the origin, and updates the store by the response.
//!
//! ```text
//! fetch ─► 304 that we asked for ─► freshen, serve              (see `freshen`)
//!      ├► 304 about another variant ─► adopt it                 (see `variants`)
//!      ├► 200 to a HEAD ─► freshen or make stale, pass on       (see `head`)
//!      ├► an error, or none ─► serve what is stale, if it may  (see `stale_if_error`)
//!      ├► storable ─► to the client and into the store at once  (see `store`)
//!      └► else ─► pass on
//! ```
//!
//! Invariants: a client's conditions reach the origin only if no stored response is being validated
//! and the response is not to be shared; the response identified by a 304 is the one it freshens.
//! Threads: the worker's.

pub(crate) mod fill;
mod freshen;
pub(crate) mod head;
pub(crate) mod pass;
mod range_of_fill;
mod stale_if_error;
mod store;
mod variants;

use std::iter::once;
use std::sync::Arc;

use http::header::RANGE;
use http::{HeaderMap, Method, Request, Response, StatusCode, response};

use crate::answer::body::ProxyBody;
use crate::answer::{self, Answer};
use crate::collapse::{Lead, Outcome, Who};
use crate::error::FetchError;
use crate::request::{Ask, hooks};
use crate::rules::preconditions::{self, Outcome as Condition};
use crate::rules::reuse::{Arrived, Failure};
use crate::rules::storing::Exchange;
use crate::rules::{
    CacheStatus, CachingConfig, ForwardReason, NotStoredReason, ResponseDirectives,
    is_passing_failure, validation,
};
use crate::ruleset::ResponseEffects;
use crate::upstream::{FetchedBody, OriginBody, Timed};
use crate::vault::entry::StoredResponse;
use crate::vault::{Epoch, Found, RangeReader, Variant};
use crate::worker::Worker;

pub(crate) use freshen::Stored;

/// The conditions of the request to the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conditions {
    /// Those that validate the stored response, if there is one.
    Ours,
    /// The client's, ranges included: the response is for this client only.
    Clients,
}

/// The party that waits for the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    Client,
    /// Nobody: a background validation, whose client already has its response.
    Nobody,
}

/// The source of the rest of a response of this length, if there can be any.
pub(crate) type RestOf =
    fn(&Arc<Worker>, &Ask, &StoredResponse, u64) -> Option<Box<dyn RangeReader>>;

/// A request that was sent to the origin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// The state of the resource before.
    pub(crate) epoch: Epoch,
    pub(crate) request_time_ms: u64,
    /// When its response came, once it has.
    pub(crate) response_time_ms: u64,
}

impl Sent {
    /// One that is about to be sent.
    pub(crate) fn now(worker: &Worker, primary: &[u8]) -> Sent {
        let epoch = worker.shared.vault.epoch(primary);
        Sent { epoch, request_time_ms: worker.now_ms(), response_time_ms: 0 }
    }
}

/// Counts what came stale for its `Date` alone, with these fields, in answer to a request of this
/// time, and tells of its origin; not where its lifetime is a rule's, which begins with its age.
pub(crate) fn note_age(
    worker: &Worker,
    ask: &Ask,
    stored: &StoredResponse,
    (received, request_time_ms): (&HeaderMap, u64),
    effects: &ResponseEffects<'_>,
) {
    if effects.ttl_for(stored.status).is_some() {
        return;
    }
    if let Some(age_s) = stored.policy.outlived_by_date_s(received, request_time_ms) {
        worker.counters.stale_on_arrival.one();
        if worker.shared.forward.is_none() {
            worker.fetcher.tell_of_clock(ask.site, age_s);
        }
    }
}

/// A fetch and its inputs.
pub(crate) struct Fetch<'a> {
    pub(crate) worker: &'a Arc<Worker>,
    pub(crate) ask: &'a Ask,
    pub(crate) found: Option<Box<Found>>,
    /// The key that the response will be stored under, if known.
    pub(crate) key: Vec<u8>,
    pub(crate) lead: Option<Lead>,
    pub(crate) conditions: Conditions,
    pub(crate) audience: Audience,
    /// Where a client goes on that the fill has left behind, if the store loses what it has yet to
    /// get.
    pub(crate) rest_of: Option<RestOf>,
    /// Stored variants that the origin is asked about, none of which matches the request.
    pub(crate) variants: Vec<Variant>,
    pub(crate) status: CacheStatus,
    pub(crate) sent: Sent,
}

impl<'a> Fetch<'a> {
    pub(crate) fn new(
        worker: &'a Arc<Worker>,
        ask: &'a Ask,
        found: Option<Box<Found>>,
        key: Vec<u8>,
        reason: ForwardReason,
    ) -> Fetch<'a> {
        Fetch {
            worker,
            ask,
            found,
            key,
            lead: None,
            conditions: Conditions::Ours,
            audience: Audience::Client,
            rest_of: None,
            variants: Vec::new(),
            status: CacheStatus::forwarded(reason),
            sent: Sent::now(worker, &ask.target.primary),
        }
    }

    /// Asks the origin.
    pub(crate) async fn run(mut self) -> Answer {
        let worker = self.worker;
        if self.found.is_none() && self.conditions == Conditions::Ours {
            self.find_variants().await;
        }
        let (request, conditional) = self.request(OriginBody::Empty);
        let again = |body| self.request(body).0;
        let response = match worker.fetcher.send(request, &again).await {
            Ok(response) => response,
            Err(error) => return Box::pin(self.failed(error)).await,
        };
        self.sent.response_time_ms = worker.now_ms();
        let asks_for_changes =
            self.conditions == Conditions::Clients && self.ask.asks_for_changes();
        match response.status() {
            StatusCode::NOT_MODIFIED if conditional => Box::pin(self.validated(&response)).await,
            StatusCode::NOT_MODIFIED if !asks_for_changes => {
                Box::pin(self.failed(FetchError::Unasked)).await
            }
            // Its client would take the part for the whole.
            StatusCode::PARTIAL_CONTENT
                if !self.request(OriginBody::Empty).0.headers().contains_key(RANGE) =>
            {
                Box::pin(self.failed(FetchError::Unasked)).await
            }
            status => {
                if let Some(answer) = Box::pin(self.stand_in_for(status)).await {
                    return answer;
                }
                if self.ask.method == Method::HEAD {
                    Box::pin(self.learn_from_head(&response, conditional)).await;
                }
                self.received(response).await
            }
        }
    }

    /// What is stored, if it may replace an answer of this status.
    async fn stand_in_for(&mut self, status: StatusCode) -> Option<Answer> {
        self.found.as_ref()?;
        self.stand_in(Failure::Status(status), "stale-if-error").await
    }

    /// The request to the origin, and whether it has conditions of ours in place of the client's.
    fn request(&self, body: OriginBody) -> (Request<OriginBody>, bool) {
        let mut request = self.ask.to_origin_request(&self.worker.shared, body);
        let headers = request.headers_mut();
        let conditional = match (&self.found, self.conditions) {
            (_, Conditions::Clients) => false,
            // The pages of all users may be of the same date: only a tag tells them apart.
            (Some(found), Conditions::Ours) if found.response.policy.is_personal => {
                validation::make_conditional_on_any(headers, once(&found.response.headers))
            }
            (Some(found), Conditions::Ours) => {
                validation::make_conditional(headers, &found.response.headers)
            }
            (None, Conditions::Ours) => {
                let variants = self.variants.iter().map(|variant| &variant.response.headers);
                validation::make_conditional_on_any(headers, variants)
            }
        };
        (request, conditional)
    }

    pub(crate) fn caching(&self) -> &'a CachingConfig {
        &self.worker.shared.config.caching
    }

    pub(crate) fn end_lead(&mut self, outcome: Outcome) {
        if let Some(lead) = self.lead.take() {
            lead.end(outcome);
        }
    }

    /// In whole seconds, as HTTP dates are.
    pub(crate) fn response_time_s(&self) -> u64 {
        self.sent.response_time_ms / 1000
    }

    /// A response with these headers and their directives, new or merged with a stored one's.
    pub(crate) fn arrived<'x>(
        &self,
        directives: &'x ResponseDirectives,
        status: StatusCode,
        headers: &'x HeaderMap,
        received: &'x HeaderMap,
    ) -> Arrived<'x> {
        Arrived {
            status,
            headers,
            received,
            directives,
            with_cookie: self.ask.has_cookie(),
            request_time_ms: self.sent.request_time_ms,
            response_time_ms: self.sent.response_time_ms,
        }
    }

    /// Publishes the result of a validation. If the response could not be kept, followers may lead:
    /// the result says nothing about responses to unconditional requests.
    pub(crate) fn settle(&mut self, kept: Result<(), NotStoredReason>) {
        match kept {
            Ok(()) => {
                self.status.stored = true;
                self.remember_shared();
                self.end_lead(Outcome::Stored);
            }
            Err(reason) => {
                self.worker.counters.not_stored(reason, &self.ask.target.primary);
                self.status.detail = Some(reason.name());
                self.remember_own(reason, StatusCode::OK);
                self.end_lead(Outcome::Abandoned);
            }
        }
    }

    /// Lets GETs collapse again, in case they did not before.
    fn remember_shared(&self) {
        let who = Who { is_head: false, ..self.ask.who() };
        self.worker.shared.collapse.remember_shared(&self.key, who);
    }

    /// As [`note_age`], of what this request brought.
    pub(super) fn note_age(
        &self,
        stored: &StoredResponse,
        received: &HeaderMap,
        effects: &ResponseEffects<'_>,
    ) {
        note_age(self.worker, self.ask, stored, (received, self.sent.request_time_ms), effects);
    }

    /// Lets requests with a cookie collapse again where a response that came without one is by its
    /// own fields for them, too.
    fn share_with_cookies(&self, parts: &response::Parts, effects: &ResponseEffects<'_>) {
        let (collapse, caching) = (&self.worker.shared.collapse, self.caching());
        let with_cookie = Who { with_cookie: true, ..Who::default() };
        if self.ask.has_cookie() || !collapse.is_own_with_cookie(&self.key) {
            return;
        }
        let directives = ResponseDirectives::of(&parts.headers, caching);
        let arrived = self.arrived(&directives, parts.status, &parts.headers, &parts.headers);
        if !effects.policy(Arrived { with_cookie: true, ..arrived }, caching).is_personal {
            collapse.remember_shared(&self.key, with_cookie);
        }
    }

    /// Lets requests with credentials, or with a cookie, not wait for each other where that keeps a
    /// response from others.
    fn remember_own(&self, reason: NotStoredReason, status: StatusCode) {
        if self.lead.is_some() {
            let collapse = &self.worker.shared.collapse;
            collapse.remember_own(&self.key, self.ask.who(), reason, status);
        }
    }

    /// Tells followers that a response is not stored. If one was stored before, the next request
    /// finds out whether that is permanent.
    fn end_unstored(&mut self, reason: NotStoredReason, parts: &response::Parts) {
        self.remember_own(reason, parts.status);
        let error = Outcome::of_error(parts.status, &parts.headers);
        let outcome = error.filter(|_| reason != NotStoredReason::Store);
        let refusal = || Outcome::of_refusal(reason, parts.status);
        self.end_lead(match outcome.unwrap_or_else(refusal) {
            Outcome::NotStored(_) if self.found.is_some() => Outcome::Abandoned,
            outcome => outcome,
        });
    }

    /// What is stored is lost, or too little: removes it, and asks without conditions.
    pub(crate) async fn fetch_anew(mut self) -> Answer {
        if let Some(found) = self.found.take() {
            self.worker.shared.vault.forget(found.key(&self.ask.target.primary));
        }
        self.fetch_again().await
    }

    /// The 304 concerned bytes that are not stored: asks without conditions. What is stored gives
    /// way to what comes, and may stand in if nothing does.
    pub(crate) async fn fetch_again(mut self) -> Answer {
        let worker = self.worker;
        let unconditional = |body| {
            let mut request = self.ask.to_origin_request(&worker.shared, body);
            validation::remove_conditions(request.headers_mut());
            request
        };
        // What has changed by now is in the answer to this request.
        self.sent = Sent::now(worker, &self.ask.target.primary);
        let request = unconditional(OriginBody::Empty);
        let unasked = [StatusCode::NOT_MODIFIED, StatusCode::PARTIAL_CONTENT];
        match worker.fetcher.send(request, &unconditional).await {
            Ok(response) if unasked.contains(&response.status()) => {
                self.failed(FetchError::Unasked).await
            }
            Ok(response) => {
                self.sent.response_time_ms = worker.now_ms();
                if let Some(answer) = self.stand_in_for(response.status()).await {
                    return answer;
                }
                self.received(response).await
            }
            Err(error) => self.failed(error).await,
        }
    }

    /// A full response: stored if allowed, and passed to the client in any case.
    pub(crate) async fn received(mut self, response: Response<FetchedBody>) -> Answer {
        let worker = self.worker;
        let (mut parts, body) = response.into_parts();
        let length_bytes = hooks::length_bytes(self.ask, parts.status, &parts.headers, &body);
        let (status, headers) = (parts.status, &mut parts.headers);
        let effects = hooks::on_response(&worker.shared, self.ask, status, headers, length_bytes);
        self.status.forward_status = Some(parts.status);
        let mut timed =
            Timed::of_response(body, self.ask.body_idle(&worker.shared.config), parts.version);
        if timed.begins_broken().await {
            // Nothing was sent yet: the client need not see it break.
            return Box::pin(self.failed(FetchError::Broken)).await;
        }
        match self.insert(&parts, &timed, &effects).await {
            Ok(insertion) => {
                self.status.stored = true;
                self.status.ttl_s = Some(insertion.response.policy.ttl_s(worker.now_ms()));
                self.share_with_cookies(&parts, &effects);
                self.note_age(&insertion.response, &parts.headers, &effects);
                self.fill(parts, timed, insertion).await
            }
            Err(reason) => {
                let key = &self.ask.target.primary;
                worker.counters.not_stored_by(reason, key, effects.store_by);
                if self.status.detail.is_none() && !self.status.stored {
                    self.status.detail = Some(reason.name());
                }
                self.forget_outdated(reason, parts.status);
                if self.ask.method == Method::HEAD {
                    return self.head_received(parts, timed, &effects);
                }
                self.end_unstored(reason, &parts);
                let condition = self.condition(&parts);
                self.concluded(condition, parts, ProxyBody::timed(timed))
            }
        }
    }

    /// A full response invalidates the stored one even if it is not stored itself. A failure that
    /// passes does not: without a validator the next request would cost an origin with too much to
    /// do more than this one. Nor does a response caused by the client's own conditions, or one
    /// that is not stored for what this request says: else each client with credentials, or a
    /// cookie, would take from all others what is stored. What is not fresh any more goes for what
    /// such a client gets, too: it may have changed for all, and would be served stale.
    fn forget_outdated(&self, reason: NotStoredReason, status: StatusCode) {
        use NotStoredReason as Not;
        let worker = self.worker;
        let Some(found) = &self.found else { return };
        let full = self.ask.method == Method::GET && self.conditions == Conditions::Ours;
        let is_fresh = found.response.policy.staleness_ms(worker.now_ms()).is_none();
        let is_kept = matches!(reason, Not::RequestNoStore | Not::Authorization)
            || (is_fresh && self.may_be_for_sender(reason));
        if full && !is_kept && !is_passing_failure(status) {
            worker.shared.vault.forget(found.key(&self.ask.target.primary));
        }
    }

    /// Whether what is not stored for this reason may be for who sent this request, and another one
    /// for all others. An origin that knows its users marks what is theirs as private.
    pub(super) fn may_be_for_sender(&self, reason: NotStoredReason) -> bool {
        use NotStoredReason as Not;
        let names_user = self.ask.has_cookie() || self.ask.has_credentials();
        let marks = [Not::Private, Not::NoStore, Not::SetCookie, Not::NotCacheable, Not::VaryStar];
        reason.is_of_request() || (names_user && marks.contains(&reason))
    }

    /// Whether what is stored is fresh, and for all: what may be for who sent a cookie takes it
    /// from nobody.
    pub(super) fn found_for_all(&self) -> bool {
        let now_ms = self.worker.now_ms();
        self.found.as_ref().is_some_and(|found| {
            let policy = &found.response.policy;
            !policy.is_personal && policy.staleness_ms(now_ms).is_none()
        })
    }

    /// The exchange that decides whether the response may be stored, as if the method were
    /// `method`.
    pub(crate) fn exchange<'x>(
        &'x self,
        method: &'x Method,
        parts: &'x response::Parts,
        directives: &'x ResponseDirectives,
    ) -> Exchange<'x> {
        Exchange {
            method,
            request: &self.ask.headers,
            wishes: &self.ask.wishes,
            status: parts.status,
            response: &parts.headers,
            directives,
            response_time_s: self.response_time_s(),
            with_cookie: self.ask.has_cookie(),
            selective: self.conditions == Conditions::Clients && self.ask.is_selective(),
        }
    }

    /// The origin's response, or the result of the client's conditions on it.
    pub(crate) fn concluded(
        self,
        condition: Condition,
        mut parts: response::Parts,
        body: ProxyBody,
    ) -> Answer {
        let worker = self.worker;
        let mut headers = parts.headers;
        answer::remove_hop_by_hop(self.ask, &mut headers);
        let mut response = match condition {
            Condition::NotModified => answer::not_modified(worker, headers),
            Condition::Failed => answer::precondition_failed(worker, &headers),
            Condition::Proceed => answer::with_headers(parts.status, headers, body),
        };
        // Hits would not have it.
        if condition == Condition::Proceed && !self.status.stored {
            answer::keep_reason(&mut parts.extensions, &mut response);
        }
        *response.version_mut() = parts.version;
        (response, self.status)
    }

    /// The result of the client's conditions, if the origin was not to evaluate them.
    pub(crate) fn condition(&self, parts: &response::Parts) -> Condition {
        let (method, request) = (&self.ask.method, &self.ask.headers);
        let (status, headers) = (parts.status, &parts.headers);
        match self.conditions {
            Conditions::Clients => Condition::Proceed,
            Conditions::Ours => {
                preconditions::evaluate(method, request, status, headers, self.response_time_s())
            }
        }
    }
}
