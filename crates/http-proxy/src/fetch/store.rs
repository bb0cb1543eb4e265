//! Stores an origin's response: decides its form, and passes it to the client and into the store at
//! the same time.
//!
//! Invariant: a response that must not be stored is refused before any of it is written. Threads:
//! the worker's; a fill that does not end at once continues as a task of its own.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use damelo::GroupId;
use http::{StatusCode, response};
use hyper::body::Body as _;

use crate::answer::Answer;
use crate::answer::body::{Filling, ProxyBody};
use crate::collapse::Lead;
use crate::collapse::sharing::{SharedFill, SharedResponse};
use crate::fetch::fill::{Fill, FillLimits, Storing};
use crate::fetch::range_of_fill::Cut;
use crate::fetch::{Audience, Conditions, Fetch};
use crate::io::boxed::boxed;
use crate::request::hooks;
use crate::rules::parts::{self, Part};
use crate::rules::preconditions::Outcome as Condition;
use crate::rules::{CachingConfig, NotStoredReason, Policy, ResponseDirectives, storing};
use crate::ruleset::ResponseEffects;
use crate::upstream::Timed;
use crate::vault::entry::StoredResponse;
use crate::vault::inflight::InflightReader;
use crate::vault::insertion::Insertion;
use crate::vault::{FoundBody, RangeReader};
use crate::worker::Worker;

impl Fetch<'_> {
    pub(super) async fn insert(
        &self,
        worker: &Worker,
        parts: &response::Parts,
        body: &Timed,
        effects: &ResponseEffects<'_>,
    ) -> Result<(Box<Insertion>, Policy), NotStoredReason> {
        let (ask, caching) = (self.ask, self.caching(worker));
        let directives = ResponseDirectives::of(&parts.headers, caching);
        let exchange = self.exchange(&ask.method, parts, &directives);
        effects.admit(exchange, caching)?;
        if self.found.is_none() {
            effects.admit_new(&worker.shared, ask)?;
        }
        let length = body.size_hint().exact();
        let limits = FillLimits::of(&worker.shared.config, &worker.shared.vault);
        if length.is_some_and(|length| length > limits.body_bytes_max) {
            return Err(NotStoredReason::TooLarge);
        }
        let headers = &parts.headers;
        let mut policy = self.policy(&directives, caching, parts.status, headers, headers);
        effects.adjust(&mut policy, headers, &directives);
        let stored = self.to_store(caching, parts, &directives, policy);
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
        caching: &CachingConfig,
        parts: &response::Parts,
        directives: &ResponseDirectives,
        policy: Policy,
    ) -> StoredResponse {
        let mut headers =
            storing::stored_headers(&parts.headers, directives, caching, self.response_time_s());
        let mut part = None;
        if parts.status == StatusCode::PARTIAL_CONTENT {
            part = Part::of(&parts.headers);
            headers.remove(http::header::CONTENT_RANGE);
        }
        let mut stored = StoredResponse::new(parts.status, parts.version, policy, headers);
        // A part that spans the whole is not stored as a part.
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
        let same =
            parts::may_combine(&found.response.headers, &new.headers, self.response_time_s());
        match &found.body {
            FoundBody::Whole(bytes) if same && older.joined(&newer).is_some() => {
                Some((older, bytes.clone()))
            }
            _ => None,
        }
    }

    /// Stores the response and passes it to the client; answers 304 or 412 if the client's
    /// conditions ask for that.
    pub(super) async fn fill(
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
        self.remember_cacheable(worker);
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
        self.concluded(worker, condition, parts, body)
    }

    /// Stores a small body that arrived with its headers. It needs no task of its own, and is sent
    /// in one write with the headers.
    pub(crate) async fn store_whole(
        &mut self,
        worker: &Worker,
        insertion: Box<Insertion>,
        bytes: Bytes,
    ) {
        let primary = self.ask.target.primary.clone();
        let storing = Storing::new(worker, primary, insertion, self.lead.take());
        let mut storing = boxed(|| storing.store_whole(bytes));
        if !is_done_at_once(storing.as_mut()).await {
            // The store first makes room, which continues even if the client leaves.
            let alive = worker.alive.clone();
            let rest = tokio::spawn(async move {
                storing.await;
                drop(alive);
            });
            let _ = rest.await;
        }
    }

    /// Starts a fill as a task of its own; returns the body for its client.
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
        let inflight =
            herald.as_ref().map(|_| worker.inflight(insertion.key.clone(), length_bytes));
        let primary = self.ask.target.primary.clone();
        let storing = Storing::new(worker, primary, insertion, self.lead.take());
        let (fill, chunks) = Fill::new(storing, body, inflight.clone(), wanted);
        let mut filling = Box::pin(fill.run());
        let mut reader = None;
        if !is_done_at_once(filling.as_mut()).await {
            if let (Some(herald), Some(body)) = (herald, inflight) {
                let response = self.shared_response(worker, parts, policy);
                let rest = self.rest_of(&response, length_bytes);
                let (epoch, request) = (self.epoch, self.ask.headers.clone());
                let key = body.key().to_vec();
                let shared = SharedResponse { key, group, epoch, response, length_bytes, request };
                reader = wanted.then(|| InflightReader::in_reserve(body.clone(), rest));
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

    /// Where the client gets the rest of this response if the fill is past it and the store loses
    /// it.
    pub(super) fn rest_of(
        &self,
        response: &StoredResponse,
        length_bytes: Option<u64>,
    ) -> Option<Box<dyn RangeReader>> {
        let resume = self.resume?;
        (resume.rest_of)(resume.worker, self.ask, response, length_bytes?)
    }

    /// The response as concurrent readers get it.
    pub(crate) fn shared_response(
        &self,
        worker: &Worker,
        parts: &response::Parts,
        policy: Policy,
    ) -> StoredResponse {
        let caching = self.caching(worker);
        let directives = ResponseDirectives::of(&parts.headers, caching);
        self.to_store(caching, parts, &directives, policy)
    }
}

/// Polls once; true if the work is done.
async fn is_done_at_once(mut work: Pin<&mut impl Future<Output = ()>>) -> bool {
    poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_ready())).await
}
