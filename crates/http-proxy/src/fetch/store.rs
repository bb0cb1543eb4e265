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
use http::header::{CONTENT_RANGE, CONTENT_TYPE, IF_RANGE, SET_COOKIE};
use http::{HeaderMap, StatusCode, response};
use hyper::body::Body as _;

use crate::answer::Answer;
use crate::answer::body::{Filling, ProxyBody};
use crate::collapse::sharing::{SharedFill, SharedResponse};
use crate::fetch::fill::{Fill, FillLimits, Storing};
use crate::fetch::{Audience, Conditions, Fetch};
use crate::io::boxed::boxed;
use crate::request::hooks;
use crate::rules::parts::{self, Part};
use crate::rules::preconditions::Outcome as Condition;
use crate::rules::{CachingConfig, NotStoredReason, ResponseDirectives, storing, validation};
use crate::ruleset::ResponseEffects;
use crate::upstream::Timed;
use crate::vault::entry::StoredResponse;
use crate::vault::inflight::InflightReader;
use crate::vault::insertion::Insertion;
use crate::vault::{FoundBody, RangeReader};

/// A stored part that a new one is joined with.
struct Older {
    part: Part,
    bytes: Bytes,
    headers: HeaderMap,
}

impl Fetch<'_> {
    pub(super) async fn insert(
        &self,
        parts: &response::Parts,
        body: &Timed,
        effects: &ResponseEffects<'_>,
    ) -> Result<Box<Insertion>, NotStoredReason> {
        let worker = self.worker;
        let (ask, caching) = (self.ask, self.caching());
        let directives = ResponseDirectives::of(&parts.headers, caching);
        let exchange = self.exchange(&ask.method, parts, &directives);
        effects.admit(exchange, caching)?;
        if self.found.is_none() {
            ask.admit_new(&worker.shared, effects)?;
        }
        let length = body.size_hint().exact();
        let limits = FillLimits::of(&worker.shared.config, &worker.shared.vault);
        if length.is_some_and(|length| length > limits.body_bytes_max) {
            return Err(NotStoredReason::TooLarge);
        }
        let announced = Part::of(&parts.headers).filter(|_| exchange.selective);
        let announced = announced.map(|part| part.length_bytes());
        if announced.is_some() && length.is_some() && announced != length {
            return Err(NotStoredReason::Partial);
        }
        let older = self.older_part(parts);
        if older.is_none() && self.may_lack_fields(parts) {
            return Err(NotStoredReason::Partial);
        }
        let merged = older.as_ref().map(|older| self.continued(caching, older, &parts.headers));
        let headers = merged.as_ref().unwrap_or(&parts.headers);
        let directives = match &merged {
            Some(merged) => ResponseDirectives::of(merged, caching),
            None => directives,
        };
        let stored = self.to_store(parts, headers, &directives, effects);
        let (vault, target) = (&worker.shared.vault, &ask.target);
        let is_personal = stored.policy.is_personal;
        if is_personal && (self.found_for_all() || vault.has_slices_for_all(&target.primary).await)
        {
            return Err(NotStoredReason::Cookie);
        }
        let groups = effects.groups_of(&worker.shared.config, ask, headers);
        let begun =
            vault.begin(target, self.sent.epoch, &ask.headers, stored, length, &groups).await;
        let mut insertion = begun?;
        hooks::on_store(worker, GroupId::of(&groups.home), effects.hint);
        insertion.expect(announced);
        if let Some(older) = older {
            insertion.join_with(older.part, older.bytes);
        }
        Ok(insertion)
    }

    /// The response as it is stored, with these headers and their directives.
    pub(crate) fn to_store(
        &self,
        parts: &response::Parts,
        headers: &HeaderMap,
        directives: &ResponseDirectives,
        effects: &ResponseEffects<'_>,
    ) -> StoredResponse {
        let caching = self.caching();
        let arrived = self.arrived(directives, parts.status, headers, &parts.headers);
        let policy = effects.policy(arrived, caching);
        let mut headers =
            storing::stored_headers(headers, directives, caching, self.response_time_s());
        let part = part_of(parts);
        if parts.status == StatusCode::PARTIAL_CONTENT {
            headers.remove(CONTENT_RANGE);
        }
        let mut stored = StoredResponse::new(parts.status, parts.version, policy, headers);
        // A part that spans the whole is not stored as a part.
        if part.is_some_and(|part| part.is_whole()) {
            stored.status = StatusCode::OK;
        } else if part.is_some() {
            parts::remove_digests(&mut stored.headers);
            stored.part = part;
        }
        stored
    }

    /// The stored part that a new one continues (RFC 9111 §3.4), if the two are small enough to be
    /// joined: all that is joined is written, in one piece, each time that something comes to it.
    /// One that spans the whole has but its fields of the older one.
    fn older_part(&self, new: &response::Parts) -> Option<Older> {
        let found = self.found.as_ref()?;
        let (part, headers) = (found.response.part?, &found.response.headers);
        let joined = part.joined(&part_of(new)?)?;
        let is_small = joined.length_bytes() <= self.worker.shared.vault.whole_body_bytes_max;
        let same = parts::may_combine(headers, &new.headers, self.response_time_s());
        match &found.body {
            FoundBody::Whole(bytes) if same && is_small => {
                Some(Older { part, bytes: bytes.clone(), headers: headers.clone() })
            }
            _ => None,
        }
    }

    /// Whether it is a part that the origin may have sent without fields that the client has: those
    /// of the representation need not come in answer to `If-Range` (RFC 9110 §15.3.7), also where
    /// that spans the whole.
    fn may_lack_fields(&self, new: &response::Parts) -> bool {
        self.ask.headers.contains_key(IF_RANGE)
            && part_of(new).is_some()
            && !new.headers.contains_key(CONTENT_TYPE)
    }

    /// The fields of a part that continues a stored one: its own, and those of the stored one that
    /// did not come again (RFC 9111 §3.4).
    fn continued(&self, caching: &CachingConfig, older: &Older, news: &HeaderMap) -> HeaderMap {
        let mut headers = validation::merge(&older.headers, news, caching, self.response_time_s());
        if !news.contains_key(SET_COOKIE) {
            headers.remove(SET_COOKIE);
        }
        headers
    }

    /// Stores the response and passes it to the client; answers 304 or 412 if the client's
    /// conditions ask for that.
    pub(super) async fn fill(
        mut self,
        parts: response::Parts,
        mut body: Timed,
        insertion: Box<Insertion>,
    ) -> Answer {
        let condition = self.condition(&parts);
        let is_for_client = self.audience == Audience::Client && !self.ask.is_of_head;
        let wanted = condition == Condition::Proceed && is_for_client;
        // Who wants the whole is not helped by a part.
        if let Some(lead) = self.lead.as_mut().filter(|_| insertion.response.part.is_none()) {
            lead.leads_also(&insertion.key);
        }
        self.remember_shared();
        if wanted {
            self.worker.shared.collapse.forget_long(&self.key);
        }
        let cut = self.conditions == Conditions::Ours && self.ask.wants_range();
        let length_bytes = body.size_hint().exact();
        if let Some(length_bytes) = length_bytes.filter(|_| cut && wanted)
            && parts.status == StatusCode::OK
        {
            let cutting = self.fill_and_cut(&parts, body, length_bytes, insertion);
            return Box::pin(cutting).await;
        }
        let whole = match length_bytes {
            Some(length_bytes) => body.take_whole(length_bytes).await,
            None => None,
        };
        let body = match whole {
            Some(bytes) => {
                drop(body);
                self.store_whole(insertion, bytes.clone()).await;
                ProxyBody::whole(bytes)
            }
            None => self.stream(body, insertion, wanted).await,
        };
        self.concluded(condition, parts, body)
    }

    /// Stores a small body that arrived with its headers. It needs no task of its own, and is sent
    /// in one write with the headers.
    pub(crate) async fn store_whole(&mut self, insertion: Box<Insertion>, bytes: Bytes) {
        let worker = self.worker;
        let primary = self.ask.target.primary.clone();
        let storing = Storing::new(worker, primary, insertion, self.lead.take());
        let mut storing = boxed(|| storing.store_whole(bytes));
        if !is_done_at_once(storing.as_mut()).await {
            // The store first makes room, which continues even if the client leaves.
            let _ = worker.spawn(storing).await;
        }
    }

    /// Starts a fill as a task of its own; returns the body for its client.
    async fn stream(&mut self, body: Timed, insertion: Box<Insertion>, wanted: bool) -> ProxyBody {
        let worker = self.worker;
        let length_bytes = body.size_hint().exact();
        let followed = self.lead.as_ref().map(|lead| {
            let shared = SharedResponse::of(&insertion, length_bytes, &self.ask.headers);
            let body = worker.inflight(insertion.key.clone(), length_bytes);
            (lead.herald(), SharedFill { shared, body })
        });
        let inflight = followed.as_ref().map(|(_, fill)| fill.body.clone());
        let primary = self.ask.target.primary.clone();
        let storing = Storing::new(worker, primary, insertion, self.lead.take());
        let (fill, chunks) = Fill::new(storing, body, inflight, wanted);
        let is_answered = !wanted && self.audience == Audience::Client;
        let fill = if is_answered { fill.for_others() } else { fill };
        let mut filling = Box::pin(fill.run());
        let mut reader = None;
        if !is_done_at_once(filling.as_mut()).await {
            if let Some((herald, fill)) = followed {
                let rest = self.rest_of(&fill.shared.response, length_bytes);
                reader = wanted.then(|| InflightReader::in_reserve(fill.body.clone(), rest));
                herald.filling(fill);
            }
            worker.spawn(filling);
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
        (self.rest_of?)(self.worker, self.ask, response, length_bytes?)
    }
}

/// The part that a 206 brings.
fn part_of(parts: &response::Parts) -> Option<Part> {
    Part::of(&parts.headers).filter(|_| parts.status == StatusCode::PARTIAL_CONTENT)
}

/// Polls once; true if the work is done.
async fn is_done_at_once(mut work: Pin<&mut impl Future<Output = ()>>) -> bool {
    poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_ready())).await
}
