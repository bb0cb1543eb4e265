//! One request: look it up, decide, and serve, validate or fetch.
//!
//! ```text
//! handle ─► pass    method, body or precondition that the cache leaves to the origin
//!        └► cached ─► look ─► decide ─► serve         fresh, or stale and permitted
//!                       ▲         ├──► serve, validate behind
//!                       │         └──► join ─► lead   fetch (see `fetching`)
//!                       └── follow ◄─────┘
//! ```
//!
//! Invariants: every answer carries `Cache-Status` and `Via`; no request waits for another longer
//! than `collapse_wait` in each of at most [`ROUNDS_MAX`] rounds; a body leaves the store without
//! copy. Threads: everything of one request runs on the worker that read it; only fills that need
//! the store's or origin's time run as tasks of their own, on the same worker.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use http::header::{CONTENT_TYPE, HOST, HeaderValue, REFERER, USER_AGENT, VIA};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;

use crate::answer;
use crate::answer::body::ProxyBody;
use crate::ask::{Ask, BadRequest, announces_body};
use crate::collapse::{Lead, Outcome, Role};
use crate::error::FetchError;
use crate::fetching::{Audience, Conditions, Fetching};
use crate::following::{Following, follow};
use crate::front;
use crate::handler::purge;
use crate::log::LogRecord;
use crate::observe;
use crate::passing::pass;
use crate::peer::Peer;
use crate::purge::url_of_key;
use crate::rules::reuse::{self, Decision, Failure};
use crate::rules::{CacheStatus, Forward, preconditions};
use crate::slices::{self, Course, Want};
use crate::steer;
use crate::vault::{Found, FoundBody, Looked, PRIMARY_KEY_BYTES_MAX};
use crate::worker::Worker;

/// Times a request waits for others before it goes alone.
const ROUNDS_MAX: usize = 3;

/// An answer, and what the cache did for it.
pub(crate) type Answer = (Response<ProxyBody>, CacheStatus);

/// Answers one request. Never fails: what goes wrong becomes an answer.
pub(crate) async fn handle(
    worker: &Arc<Worker>,
    request: Request<Incoming>,
    peer: Peer,
) -> Response<ProxyBody> {
    worker.counters.requests.one();
    let start = Instant::now();
    let record = begin_record(worker, &request, peer.ip, start);
    let is_head = request.method() == Method::HEAD;
    let (mut response, status) = front::answer(worker, request, peer, start).await;
    if is_head {
        response = answer::headers_only(response);
    }
    observe::answered(worker, &response, &status, start.elapsed());
    status.append_to(response.headers_mut(), &worker.shared.config.name);
    // The version that its origin spoke; towards the client it is the connection's own.
    let received = std::mem::take(response.version_mut());
    response.headers_mut().append(VIA, worker.shared.via.received(received));
    match record {
        None => response,
        Some(mut record) => {
            record.status = response.status();
            record.media_type = response.headers().get(CONTENT_TYPE).cloned();
            record.result = status.word();
            response.map(|body| body.with_record(record))
        }
    }
}

fn begin_record(
    worker: &Worker,
    request: &Request<Incoming>,
    client: IpAddr,
    start: Instant,
) -> Option<LogRecord> {
    let log = worker.shared.log.clone()?;
    Some(LogRecord {
        log,
        format: worker.shared.config.log_format,
        counters: worker.counters.clone(),
        start,
        start_unix_ms: worker.shared.config.clock.unix_millis(),
        client,
        method: request.method().clone(),
        version: request.version(),
        host: request.headers().get(HOST).cloned(),
        target: request.uri().to_string(),
        referer: request.headers().get(REFERER).cloned(),
        user_agent: request.headers().get(USER_AGENT).cloned(),
        status: StatusCode::OK,
        media_type: None,
        origin: match (&worker.shared.forward, request.uri().authority()) {
            (Some(_), Some(asked)) => asked.to_string(),
            _ => worker.shared.origin.authority.clone(),
        },
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
    (answer::text(status, text), cache)
}

pub(crate) fn origin_failed(worker: &Worker, error: FetchError, mut status: CacheStatus) -> Answer {
    status.detail = Some(error.name());
    let text = match worker.shared.forward {
        Some(_) => format!("{error}."),
        None => format!("{error} (at {}).", worker.shared.origin.authority),
    };
    own_answer(worker, error.status(), status, &text)
}

fn only_if_cached(worker: &Worker) -> Answer {
    let text = "Only a cached answer was wanted, and there is none that may be used.";
    own_answer(worker, StatusCode::GATEWAY_TIMEOUT, CacheStatus::own("only-if-cached"), text)
}

/// Answers a request that is in order.
pub(crate) async fn route(worker: &Arc<Worker>, ask: &Ask, body: Incoming) -> Answer {
    if ask.method.as_str() == "PURGE" && worker.shared.config.purge_method {
        return purge_by_method(worker, ask).await;
    }
    if ask.method == Method::CONNECT {
        let text = "This proxy stands before one origin and opens no tunnels.";
        let status = CacheStatus::own("connect");
        return own_answer(worker, StatusCode::NOT_IMPLEMENTED, status, text);
    }
    if ask.method != Method::GET && ask.method != Method::HEAD {
        let status = CacheStatus::forwarded(Forward::Method);
        return Box::pin(pass(worker, ask, body, status)).await;
    }
    let past_us = if ask.pass {
        Some("rule")
    } else if announces_body(&ask.headers) {
        Some("request-body")
    } else if preconditions::for_origin_only(&ask.headers, &worker.shared.config.rules) {
        Some("precondition")
    } else if ask.target.primary.len() > PRIMARY_KEY_BYTES_MAX {
        Some("long-target")
    } else {
        None
    };
    match past_us {
        None => cached(worker, ask).await,
        Some(_) if ask.wishes.only_if_cached => only_if_cached(worker),
        Some(detail) => {
            let mut status = CacheStatus::forwarded(Forward::Bypass);
            status.detail = Some(detail);
            Box::pin(pass(worker, ask, body, status)).await
        }
    }
}

/// The method PURGE: of the URL as this request would be stored under.
async fn purge_by_method(worker: &Worker, ask: &Ask) -> Answer {
    let shared = &worker.shared;
    let (networks, token) = (&shared.config.purge_from, shared.config.purge_token.as_deref());
    let url = String::from_utf8_lossy(url_of_key(&ask.target.primary)).into_owned();
    let ordered = purge::authorize(ask.peer().ip, &ask.headers, networks, token)
        .and_then(|()| purge::order_of_method(&url, &ask.headers));
    let done = match ordered {
        Ok((what, soft)) => purge::carry_out(shared, what, soft).await,
        Err(failure) => Err(failure),
    };
    match done {
        Ok(done) => {
            worker.counters.purges.one();
            let mut response = Response::new(ProxyBody::whole(format!("{done}\n").into()));
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
            (response, CacheStatus::own("purge"))
        }
        Err(failure) => {
            let status = CacheStatus::own("purge-refused");
            own_answer(worker, failure.status(), status, &failure.to_string())
        }
    }
}

/// What a lookup leads to.
enum Plan {
    Serve(Box<Found>, Decision),
    /// Ask the origin; `key` is what others who miss the same would wait for.
    Ask(Question),
    /// Ask the origin, nothing can be stored or shared.
    Alone,
}

/// What the origin is to be asked, and why.
struct Question {
    found: Option<Box<Found>>,
    key: Vec<u8>,
    reason: Forward,
    conditions: Conditions,
}

impl Question {
    /// Nothing usable is stored. A range is asked for as it is; everything else is fetched whole.
    fn missed(ask: &Ask, key: Vec<u8>, reason: Forward) -> Question {
        let conditions = if ask.wants_range() { Conditions::Clients } else { Conditions::Ours };
        Question { found: None, key, reason, conditions }
    }

    /// The whole is wanted, for whatever part of it.
    fn for_whole(self) -> Question {
        Question { found: None, conditions: Conditions::Ours, ..self }
    }

    fn fetching<'a>(self, worker: &Worker, ask: &'a Ask, lead: Option<Lead>) -> Fetching<'a> {
        let mut fetching = Fetching::new(worker, ask, self.found, self.key, self.reason);
        fetching.conditions = self.conditions;
        fetching.lead = lead;
        fetching
    }

    async fn put(self, worker: &Worker, ask: &Ask, lead: Option<Lead>) -> Answer {
        self.fetching(worker, ask, lead).run(worker).await
    }
}

async fn plan(worker: &Worker, ask: &Ask) -> Plan {
    let want_body = answer::wants_body(&ask.method);
    let vault = &worker.shared.vault;
    let looking = pin!(vault.look(&ask.target.primary, &ask.headers, want_body, &worker.counters));
    let looked = worker.relay.wait(looking).await;
    let found = match looked {
        Looked::Unkeyable => return Plan::Alone,
        Looked::Missed { key, reason } => return Plan::Ask(Question::missed(ask, key, reason)),
        Looked::Found(found) => found,
    };
    let primary = &ask.target.primary;
    if !answer::part_suffices(worker, ask, &found.response) {
        let key = found.key(primary).to_vec();
        // Kept, so that a further part can be joined with it.
        let found = ask.wants_range().then_some(found);
        return Plan::Ask(Question { found, ..Question::missed(ask, key, Forward::Partial) });
    }
    let rules = &worker.shared.config.rules;
    match reuse::decide(&ask.wishes, &found.response.policy, rules, worker.now_s()) {
        Decision::Validate(reason) => {
            let (key, conditions) = (found.key(primary).to_vec(), Conditions::Ours);
            Plan::Ask(Question { found: Some(found), key, reason, conditions })
        }
        decision if matches!(found.body, FoundBody::Large(_)) => {
            Box::pin(begun(worker, ask, found, decision)).await
        }
        decision => Plan::Serve(found, decision),
    }
}

/// Serves what is large if it is still there when it is begun with.
async fn begun(worker: &Worker, ask: &Ask, mut found: Box<Found>, decision: Decision) -> Plan {
    if answer::begin(worker, ask, &mut found).await {
        return Plan::Serve(found, decision);
    }
    let key = found.key(&ask.target.primary).to_vec();
    Plan::Ask(Question::missed(ask, key, Forward::UriMiss))
}

/// Every connection has room for what this awaits, and every request moves it: all that asks the
/// origin, which is ten times as much as a hit, is boxed.
async fn cached(worker: &Arc<Worker>, ask: &Ask) -> Answer {
    match plan(worker, ask).await {
        Plan::Serve(found, decision) => serve_planned(worker, ask, found, decision, false),
        Plan::Alone => Box::pin(go_alone(worker, ask)).await,
        Plan::Ask(question) => Box::pin(missed(worker, ask, question)).await,
    }
}

fn serve_planned(
    worker: &Arc<Worker>,
    ask: &Ask,
    found: Box<Found>,
    decision: Decision,
    collapsed: bool,
) -> Answer {
    if decision == Decision::ServeAndRevalidate {
        validate_behind(worker, ask, found.key(&ask.target.primary));
    }
    serve_hit(worker, ask, *found, collapsed)
}

/// Asks the origin, or waits for somebody who does.
async fn missed(worker: &Arc<Worker>, ask: &Ask, mut question: Question) -> Answer {
    let mut in_slices = false;
    for _ in 0..ROUNDS_MAX {
        let (reason, conditions) = (question.reason, question.conditions);
        let mut probing = None;
        match slices::course(worker, ask, reason, conditions, in_slices).await {
            Course::Answered(answer) => return *answer,
            Course::AsAsked => {}
            Course::Whole => question = question.for_whole(),
            Course::Probe(want) => (question, probing) = (question.for_whole(), Some(want)),
        }
        if ask.wishes.only_if_cached {
            return only_if_cached(worker);
        }
        // A part brings nothing others could use; whoever demands the origin shall have it.
        if question.reason == Forward::Request || question.conditions == Conditions::Clients {
            return question.put(worker, ask, None).await;
        }
        let (collapse, is_head) = (&worker.shared.collapse, ask.method == Method::HEAD);
        let role = match is_head {
            true => collapse.join_for_head(&question.key),
            false => collapse.join(&question.key),
        };
        match role {
            Role::Alone => {
                if question.found.is_none() {
                    // Nothing will be stored, most likely: the client's conditions save the body.
                    question.conditions = Conditions::Clients;
                }
                return question.put(worker, ask, None).await;
            }
            Role::Leader(lead) => return lead_fetch(worker, ask, question, lead, probing).await,
            Role::Follower(leader) => {
                // What was found may pin memory, and is looked up again anyway.
                drop(question.found.take());
                match follow(worker, ask, &leader).await {
                    Following::Answered(answer) => return *answer,
                    Following::Far => in_slices = true,
                    Following::Ended(Outcome::Stored | Outcome::Sliced | Outcome::Abandoned) => {}
                    Following::Ended(Outcome::Failed(error)) => {
                        return share_failure(worker, ask, error, question.reason).await;
                    }
                    // A body that is not stored may have headers that can be shared.
                    Following::Ended(Outcome::NotStored) if is_head => {}
                    Following::Ended(_) | Following::TooSlow => break,
                }
            }
        }
        question = match plan(worker, ask).await {
            Plan::Serve(found, decision) => {
                return serve_planned(worker, ask, found, decision, true);
            }
            Plan::Ask(question) => question,
            Plan::Alone => break,
        };
    }
    go_alone(worker, ask).await
}

/// The leader got no response: what is stale may do, for each by its own wishes.
async fn share_failure(
    worker: &Arc<Worker>,
    ask: &Ask,
    error: FetchError,
    reason: Forward,
) -> Answer {
    let mut status = CacheStatus::forwarded(reason);
    status.collapsed = true;
    let (rules, now_s) = (&worker.shared.config.rules, worker.now_s());
    match plan(worker, ask).await {
        Plan::Serve(found, _) => return serve_hit(worker, ask, *found, true),
        Plan::Ask(Question { found: Some(mut found), conditions: Conditions::Ours, .. }) => {
            let (policy, failure) = (&found.response.policy, Failure::Disconnected);
            if reuse::may_serve_on_error(&ask.wishes, policy, failure, rules, now_s)
                && answer::begin(worker, ask, &mut found).await
            {
                worker.counters.stale_on_error.one();
                status.detail = Some(error.name());
                return reused(worker, ask, *found, status);
            }
        }
        _ => {}
    }
    origin_failed(worker, error, status)
}

/// Validates what is stored while its client is served (RFC 5861 §3), unless somebody does already.
fn validate_behind(worker: &Arc<Worker>, ask: &Ask, key: &[u8]) {
    let Role::Leader(lead) = worker.shared.collapse.join(key) else { return };
    worker.counters.validated_behind.one();
    let (worker, ask, key) = (worker.clone(), ask.for_nobody(), key.to_vec());
    tokio::spawn(async move {
        let vault = &worker.shared.vault;
        let primary = &ask.target.primary;
        // Without its body, which may be large and is not needed.
        let looked = vault.look(primary, &ask.headers, false, &worker.counters).await;
        let found = match looked {
            Looked::Found(found) => Some(found),
            Looked::Missed { .. } | Looked::Unkeyable => None,
        };
        let mut fetching = Fetching::new(&worker, &ask, found, key, Forward::Stale);
        fetching.lead = Some(lead);
        fetching.audience = Audience::Nobody;
        drop(fetching.run(&worker).await);
    });
}

/// Neither leads nor follows.
async fn go_alone(worker: &Worker, ask: &Ask) -> Answer {
    match plan(worker, ask).await {
        Plan::Serve(found, _) => serve_hit(worker, ask, *found, true),
        _ if ask.wishes.only_if_cached => only_if_cached(worker),
        Plan::Ask(question) => question.put(worker, ask, None).await,
        Plan::Alone => {
            let mut question = Question::missed(ask, Vec::new(), Forward::Bypass);
            question.conditions = Conditions::Clients;
            question.put(worker, ask, None).await
        }
    }
}

async fn lead_fetch(
    worker: &Arc<Worker>,
    ask: &Ask,
    mut question: Question,
    lead: Lead,
    probing: Option<Want>,
) -> Answer {
    // Another leader may have finished between our lookup and our lead.
    if worker.shared.vault.may_contain(&question.key) {
        match plan(worker, ask).await {
            Plan::Serve(found, _) => {
                lead.end(Outcome::Stored);
                return serve_hit(worker, ask, *found, true);
            }
            Plan::Ask(newer) if newer.conditions == Conditions::Clients => {
                question = newer.for_whole();
            }
            Plan::Ask(newer) => return newer.put(worker, ask, Some(lead)).await,
            Plan::Alone => {}
        }
    }
    let reason = question.reason;
    let fetching = question.fetching(worker, ask, Some(lead));
    match probing {
        Some(want) => slices::probe(worker, fetching, reason, want).await,
        None => fetching.run(worker).await,
    }
}

/// An answer from the store that the origin was not asked for by this request.
pub(crate) fn serve_hit(worker: &Worker, ask: &Ask, found: Found, collapsed: bool) -> Answer {
    let mut status = CacheStatus { hit: true, ..CacheStatus::default() };
    if collapsed {
        worker.counters.collapsed.one();
        status = CacheStatus::forwarded(Forward::UriMiss);
        status.collapsed = true;
    } else {
        worker.counters.hits.one();
    }
    reused(worker, ask, found, status)
}

/// An answer whose body was stored before this request came, whether or not the origin was asked.
pub(crate) fn reused(worker: &Worker, ask: &Ask, found: Found, status: CacheStatus) -> Answer {
    steer::on_hit(worker, ask, &found);
    with_hit_status(worker, ask, found, status)
}

/// An answer from the store, with the time it has left.
pub(crate) fn with_hit_status(
    worker: &Worker,
    ask: &Ask,
    found: Found,
    mut status: CacheStatus,
) -> Answer {
    let now_s = worker.now_s();
    let policy = found.response.policy;
    status.ttl_s = Some(policy.ttl_s(now_s));
    (answer::from_store(worker, ask, found, policy.age_s(now_s)), status)
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
