//! Asking the origin for one resource, and what its answer does to what is stored.
//!
//! ```text
//! fetch ─► 304 that we asked for ─► freshen, serve              (see `revalidate`)
//!      ├► 304 about another variant ─► adopt it                 (see `variants`)
//!      ├► 200 to a HEAD ─► freshen or make stale, pass on       (see `head`)
//!      ├► an error, or none ─► serve what is stale, if it may  (see `stale_if_error`)
//!      ├► storable ─► to the client and into the store at once  (see `fill`)
//!      └► else ─► pass on
//! ```
//!
//! Invariants: a client's conditions reach the origin only if nothing stored is being validated and
//! nothing is to be shared; what a 304 is about decides what it freshens. Threads: the worker's.

pub(crate) mod fill;
pub(crate) mod head;
pub(crate) mod pass;
mod range_of_fill;
mod revalidate;
mod stale_if_error;
mod variants;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use damelo::GroupId;
use http::{Method, Response, StatusCode, response};
use hyper::body::Body as _;

use crate::answer::body::{Filling, ProxyBody};
use crate::answer::{self, Answer};
use crate::collapse::sharing::{SharedFill, SharedResponse};
use crate::collapse::{Lead, Outcome};
use crate::fetch::fill::{Fill, FillLimits, Storing};
use crate::fetch::range_of_fill::Cut;
use crate::request::{Ask, hooks};
use crate::rules::parts::{self, Part};
use crate::rules::preconditions::{self, Outcome as Condition};
use crate::rules::reuse::{Arrived, Failure};
use crate::rules::storing::{self, Exchange};
use crate::rules::{
    CacheStatus, Forward, NotStoredReason, Policy, ResponseDirectives, Rules, validation,
};
use crate::ruleset::ResponseEffects;
use crate::upstream::{FetchedBody, OriginBody, Timed};
use crate::vault::entry::StoredResponse;
use crate::vault::inflight::{InflightBody, InflightReader};
use crate::vault::insertion::Insertion;
use crate::vault::{Epoch, Found, FoundBody, Variant};
use crate::worker::Worker;

/// Under which conditions the origin is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conditions {
    /// Those that validate what is stored; none if nothing is.
    Ours,
    /// As the client sent them, ranges included: the answer is for it alone.
    Clients,
}

/// Who waits for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    Client,
    /// Validation behind the back of a client that has its answer.
    Nobody,
}

/// A fetch and what it began with.
pub(crate) struct Fetch<'a> {
    pub(crate) ask: &'a Ask,
    pub(crate) found: Option<Box<Found>>,
    /// What the answer will be stored under, if that is known.
    pub(crate) key: Vec<u8>,
    pub(crate) lead: Option<Lead>,
    pub(crate) conditions: Conditions,
    pub(crate) audience: Audience,
    /// Stored variants that the origin is asked about, though none matches the request.
    pub(crate) variants: Vec<Variant>,
    pub(crate) status: CacheStatus,
    pub(crate) epoch: Epoch,
    pub(crate) request_time_s: u64,
    pub(crate) response_time_s: u64,
}

impl<'a> Fetch<'a> {
    pub(crate) fn new(
        worker: &Worker,
        ask: &'a Ask,
        found: Option<Box<Found>>,
        key: Vec<u8>,
        reason: Forward,
    ) -> Fetch<'a> {
        Fetch {
            ask,
            found,
            key,
            lead: None,
            conditions: Conditions::Ours,
            audience: Audience::Client,
            variants: Vec::new(),
            status: CacheStatus::forwarded(reason),
            epoch: worker.shared.vault.epoch(&ask.target.primary),
            request_time_s: worker.now_s(),
            response_time_s: 0,
        }
    }

    /// Asks the origin.
    pub(crate) async fn run(mut self, worker: &Worker) -> Answer {
        let mut request = self.ask.forward(&worker.shared, OriginBody::Empty);
        let headers = request.headers_mut();
        let conditional = match (&self.found, self.conditions) {
            (_, Conditions::Clients) => false,
            (Some(found), Conditions::Ours) => {
                validation::make_conditional(headers, &found.response.headers)
            }
            (None, Conditions::Ours) => self.ask_about_variants(worker, headers).await,
        };
        let response = match worker.fetcher.send(request).await {
            Ok(response) => response,
            Err(error) => return Box::pin(self.failed(worker, error)).await,
        };
        self.response_time_s = worker.now_s();
        let status = response.status();
        if conditional && status == StatusCode::NOT_MODIFIED {
            if self.found.is_none() {
                return Box::pin(self.adopt(worker, &response)).await;
            }
            return match self.freshened(worker, &response) {
                Some(merged) => Box::pin(self.serve_freshened(worker, merged)).await,
                None => Box::pin(self.fetch_again(worker)).await,
            };
        }
        let failure = Failure::Status(status);
        if self.found.is_some()
            && let Some(answer) = Box::pin(self.stand_in(worker, failure, "stale-if-error")).await
        {
            return answer;
        }
        if self.ask.method == Method::HEAD {
            Box::pin(self.learn_from_head(worker, &response)).await;
        }
        self.received(worker, response).await
    }

    pub(crate) fn rules<'w>(&self, worker: &'w Worker) -> &'w Rules {
        &worker.shared.config.rules
    }

    pub(crate) fn end_lead(&mut self, outcome: Outcome) {
        if let Some(lead) = self.lead.take() {
            lead.end(outcome);
        }
    }

    /// What a response comes to with these headers, now or merged from an earlier one.
    pub(crate) fn policy(
        &self,
        worker: &Worker,
        status: StatusCode,
        headers: &http::HeaderMap,
        received: &http::HeaderMap,
    ) -> Policy {
        let rules = self.rules(worker);
        let directives = ResponseDirectives::of(headers, rules);
        let arrived = Arrived {
            status,
            headers,
            received,
            directives: &directives,
            request_time_s: self.request_time_s,
            response_time_s: self.response_time_s,
        };
        Policy::of(arrived, rules)
    }

    /// Says what became of an answer that was to be stored; `otherwise` goes to those who wait if it
    /// was not.
    pub(crate) fn settle(
        &mut self,
        worker: &Worker,
        kept: Result<(), NotStoredReason>,
        otherwise: Outcome,
    ) {
        match kept {
            Ok(()) => {
                self.status.stored = true;
                self.end_lead(Outcome::Stored);
            }
            Err(reason) => {
                worker.counters.not_stored(reason, &self.ask.target.primary);
                self.status.detail = Some(reason.name());
                self.end_lead(otherwise);
            }
        }
    }

    /// The 304 was about bytes we do not have: forget ours and ask without conditions.
    pub(crate) async fn fetch_again(mut self, worker: &Worker) -> Answer {
        if let Some(found) = self.found.take() {
            worker.shared.vault.forget(found.key(&self.ask.target.primary));
        }
        let mut request = self.ask.forward(&worker.shared, OriginBody::Empty);
        validation::remove_conditions(request.headers_mut());
        self.request_time_s = worker.now_s();
        match worker.fetcher.send(request).await {
            Ok(response) => {
                self.response_time_s = worker.now_s();
                self.received(worker, response).await
            }
            Err(error) => self.failed(worker, error).await,
        }
    }

    /// A full response: into the store if it may, and to the client in any case.
    pub(crate) async fn received(
        mut self,
        worker: &Worker,
        response: Response<FetchedBody>,
    ) -> Answer {
        let (mut parts, body) = response.into_parts();
        let length_bytes = body.size_hint().exact();
        let (status, headers) = (parts.status, &mut parts.headers);
        let effects = hooks::on_response(&worker.shared, self.ask, status, headers, length_bytes);
        self.status.forward_status = Some(parts.status);
        let timed = Timed::new(body, worker.idle_limit());
        match self.insert(worker, &parts, &timed, &effects).await {
            Ok((insertion, policy)) => {
                self.status.stored = true;
                self.status.ttl_s = Some(policy.ttl_s(worker.now_s()));
                self.fill(worker, parts, timed, insertion, policy).await
            }
            Err(reason) => {
                worker.counters.not_stored(reason, &self.ask.target.primary);
                if self.status.detail.is_none() && !self.status.stored {
                    self.status.detail = Some(reason.name());
                }
                self.forget_outdated(worker, parts.status);
                if self.ask.method == Method::HEAD {
                    return self.head_received(worker, parts, timed, &effects);
                }
                // Whoever waits for it is the second who asks.
                let first = reason == NotStoredReason::FirstRequest;
                self.end_lead(if first { Outcome::Abandoned } else { Outcome::NotStored });
                let mut headers = parts.headers;
                answer::remove_hop_by_hop(self.ask, &mut headers);
                let body = ProxyBody::timed(timed);
                let mut response = answer::with_headers(parts.status, headers, body);
                *response.version_mut() = parts.version;
                (response, self.status)
            }
        }
    }

    /// A full answer that is not stored replaces what was stored all the same; an error does not,
    /// nor does what only the client's own conditions brought about.
    fn forget_outdated(&self, worker: &Worker, status: StatusCode) {
        let Some(found) = &self.found else { return };
        let full = self.ask.method == Method::GET && self.conditions == Conditions::Ours;
        if full && !status.is_server_error() {
            worker.shared.vault.forget(found.key(&self.ask.target.primary));
        }
    }

    /// What decides whether the answer may be stored, were it one to a request by `method`.
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
            response_time_s: self.response_time_s,
            selective: self.conditions == Conditions::Clients && self.ask.is_selective(),
        }
    }

    async fn insert(
        &self,
        worker: &Worker,
        parts: &response::Parts,
        body: &Timed,
        effects: &ResponseEffects<'_>,
    ) -> Result<(Box<Insertion>, Policy), NotStoredReason> {
        let (ask, rules) = (self.ask, self.rules(worker));
        let directives = ResponseDirectives::of(&parts.headers, rules);
        let exchange = self.exchange(&ask.method, parts, &directives);
        effects.admit(storing::decide(exchange, rules), &parts.headers)?;
        if self.found.is_none() {
            effects.admit_new(&worker.shared, ask)?;
        }
        let length = body.size_hint().exact();
        if length
            .is_some_and(|length| length > FillLimits::of(&worker.shared.config).body_bytes_max)
        {
            return Err(NotStoredReason::TooLarge);
        }
        let mut policy = self.policy(worker, parts.status, &parts.headers, &parts.headers);
        effects.adjust(&mut policy);
        let stored = self.to_store(rules, parts, &directives, policy);
        let announced = Part::of(&parts.headers).filter(|_| exchange.selective);
        let announced = announced.map(|part| part.length_bytes());
        if announced.is_some() && length.is_some() && announced != length {
            return Err(NotStoredReason::Partial);
        }
        let target = &ask.target;
        let groups = effects.groups_of(&worker.shared.config, ask, &parts.headers);
        let vault = &worker.shared.vault;
        let older = self.older_part(&stored);
        let begun = vault.begin(target, self.epoch, &ask.headers, stored, length, &groups).await;
        let mut insertion = begun?;
        hooks::on_store(worker, GroupId::of(&groups.home), effects.hint);
        insertion.expect(announced);
        if let Some((older, bytes)) = older {
            insertion.join_with(older, bytes);
        }
        Ok((insertion, policy))
    }

    pub(crate) fn to_store(
        &self,
        rules: &Rules,
        parts: &response::Parts,
        directives: &ResponseDirectives,
        policy: Policy,
    ) -> StoredResponse {
        let mut headers =
            storing::stored_headers(&parts.headers, directives, rules, self.response_time_s);
        let mut part = None;
        if parts.status == StatusCode::PARTIAL_CONTENT {
            part = Part::of(&parts.headers);
            headers.remove(http::header::CONTENT_RANGE);
        }
        let mut stored = StoredResponse::new(parts.status, parts.version, policy, headers);
        // All of it is no part.
        if part.is_some_and(|part| part.is_whole()) {
            stored.status = StatusCode::OK;
        } else {
            stored.part = part;
        }
        stored
    }

    /// The stored part that a new one continues (RFC 9111 §3.4), if it is small enough to join.
    fn older_part(&self, new: &StoredResponse) -> Option<(Part, Bytes)> {
        let found = self.found.as_ref()?;
        let (older, newer) = (found.response.part?, new.part?);
        let same = parts::may_combine(&found.response.headers, &new.headers, self.response_time_s);
        match &found.body {
            FoundBody::Whole(bytes) if same && older.joined(&newer).is_some() => {
                Some((older, bytes.clone()))
            }
            _ => None,
        }
    }

    /// Stores the answer and gives it to the client; with 304 or 412 if the client wants no body.
    async fn fill(
        mut self,
        worker: &Worker,
        parts: response::Parts,
        mut body: Timed,
        mut insertion: Box<Insertion>,
        policy: Policy,
    ) -> Answer {
        let condition = self.condition(&parts);
        let wanted = condition == Condition::Proceed && self.audience == Audience::Client;
        if let Some(lead) = &mut self.lead {
            lead.leads_also(&insertion.key);
        }
        worker.shared.collapse.remember(&self.key, true);
        let cut = self.conditions == Conditions::Ours && self.ask.wants_range();
        if cut && wanted && parts.status == StatusCode::OK {
            match Box::pin(self.fill_and_cut(worker, &parts, body, insertion, policy)).await {
                Cut::Answered(answer) => return answer,
                Cut::Not(fetching, timed, kept) => {
                    (self, body, insertion) = (*fetching, timed, kept)
                }
            }
        }
        let whole = match body.size_hint().exact() {
            Some(length_bytes) => body.take_whole(length_bytes).await,
            None => None,
        };
        let body = match whole {
            Some(bytes) => {
                drop(body);
                self.store_whole(worker, insertion, bytes.clone()).await;
                ProxyBody::whole(bytes)
            }
            None => self.stream(worker, &parts, body, insertion, policy, wanted).await,
        };
        let mut headers = parts.headers;
        answer::remove_hop_by_hop(self.ask, &mut headers);
        let mut response = match condition {
            Condition::NotModified => answer::not_modified(worker, headers),
            Condition::Failed => answer::precondition_failed(worker, &headers),
            Condition::Proceed => answer::with_headers(parts.status, headers, body),
        };
        *response.version_mut() = parts.version;
        (response, self.status)
    }

    /// Stores a small body that came with its headers, which needs no task of its own and leaves in one
    /// write with the answer's headers.
    pub(crate) async fn store_whole(
        &mut self,
        worker: &Worker,
        insertion: Box<Insertion>,
        bytes: Bytes,
    ) {
        let primary = self.ask.target.primary.clone();
        let storing = Storing::new(worker, primary, insertion, self.lead.take());
        let mut storing = Box::pin(storing.store_whole(bytes));
        if !is_done_at_once(storing.as_mut()).await {
            // The store makes room first: that goes on without the client, too.
            let alive = worker.alive.clone();
            let rest = tokio::spawn(async move {
                storing.await;
                drop(alive);
            });
            let _ = rest.await;
        }
    }

    /// Starts a fill that goes on by itself; the body for its client.
    async fn stream(
        &mut self,
        worker: &Worker,
        parts: &response::Parts,
        body: Timed,
        insertion: Box<Insertion>,
        policy: Policy,
        wanted: bool,
    ) -> ProxyBody {
        let length_bytes = body.size_hint().exact();
        let group = insertion.group;
        let herald = self.lead.as_ref().map(Lead::herald);
        let store = worker.shared.vault.store();
        let inflight =
            herald.as_ref().map(|_| InflightBody::new(store, insertion.key.clone(), length_bytes));
        let primary = self.ask.target.primary.clone();
        let storing = Storing::new(worker, primary, insertion, self.lead.take());
        let (fill, chunks) = Fill::new(storing, body, inflight.clone(), wanted);
        let mut filling = Box::pin(fill.run());
        let mut reader = None;
        if !is_done_at_once(filling.as_mut()).await {
            if let (Some(herald), Some(body)) = (herald, inflight) {
                let response = self.shared_response(worker, parts, policy);
                let (epoch, request) = (self.epoch, self.ask.headers.clone());
                let key = body.key().to_vec();
                let shared = SharedResponse { key, group, epoch, response, length_bytes, request };
                reader = wanted.then(|| InflightReader::new(body.clone()));
                herald.filling(SharedFill { shared, body });
            }
            let alive = worker.alive.clone();
            tokio::spawn(async move {
                filling.await;
                drop(alive);
            });
        }
        ProxyBody::filling(Filling::new(chunks, reader))
    }

    /// What the client's conditions come to, if the origin was not to evaluate them.
    pub(crate) fn condition(&self, parts: &response::Parts) -> Condition {
        let (method, request) = (&self.ask.method, &self.ask.headers);
        let (status, headers) = (parts.status, &parts.headers);
        match self.conditions {
            Conditions::Clients => Condition::Proceed,
            Conditions::Ours => {
                preconditions::evaluate(method, request, status, headers, self.response_time_s)
            }
        }
    }

    /// The response as those get it who read along.
    pub(crate) fn shared_response(
        &self,
        worker: &Worker,
        parts: &response::Parts,
        policy: Policy,
    ) -> StoredResponse {
        let rules = self.rules(worker);
        let directives = ResponseDirectives::of(&parts.headers, rules);
        self.to_store(rules, parts, &directives, policy)
    }
}

/// Goes as far as it can go without waiting; true if that is the end.
async fn is_done_at_once(mut work: Pin<&mut impl Future<Output = ()>>) -> bool {
    poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_ready())).await
}
