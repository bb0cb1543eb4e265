//! One GET or HEAD: lookup, decision, then serving, validating or fetching.
//!
//! ```text
//! answer ─► look ─► decide ─► serve         fresh, or stale and permitted
//!             ▲         ├──► serve, validate behind
//!             │         └──► join ─► lead   fetch (see `fetch`)
//!             └── follow ◄─────┘
//! ```
//!
//! Invariants: a request waits for others only while [`Rounds`] are left; a body leaves the store
//! without a copy. Threads: the worker that read the request.

mod follow;

use std::pin::pin;
use std::sync::Arc;

use http::Method;

use crate::answer::{self, Answer, only_if_cached, origin_failed, reused, serve_hit};
use crate::cache::follow::{Following, follow};
use crate::collapse::rounds::Rounds;
use crate::collapse::{Lead, News, Outcome, Role};
use crate::error::FetchError;
use crate::fetch::{Audience, Conditions, Fetch};
use crate::io::boxed::boxed;
use crate::request::Ask;
use crate::rules::reuse::{self, Decision, Failure};
use crate::rules::{CacheStatus, ForwardReason, is_passing_failure};
use crate::slices::{self, Course, RangeSupport, Want};
use crate::vault::{Found, FoundBody, Lookup};
use crate::worker::Worker;

/// The next step after a lookup.
enum Plan {
    Serve(Box<Found>, Decision),
    /// Ask the origin; other requests that miss the same `key` wait for the result.
    Ask(Question),
    /// Ask the origin; the response can be neither stored nor shared.
    Alone,
}

/// The request to the origin, and its reason.
struct Question {
    found: Option<Box<Found>>,
    key: Vec<u8>,
    reason: ForwardReason,
    conditions: Conditions,
}

impl Question {
    /// Nothing usable is stored. A range is requested as it is; otherwise the whole is fetched.
    fn missed(ask: &Ask, key: Vec<u8>, reason: ForwardReason) -> Question {
        let conditions = if ask.wants_range() { Conditions::Clients } else { Conditions::Ours };
        Question { found: None, key, reason, conditions }
    }

    /// Whether no other request would be helped by the response, nor this one by another's: a part,
    /// and what each request must ask the origin for itself, as what is stored could not be reused
    /// even on its arrival: by what it says, or what the client demands. Many who reload, and want
    /// nothing older than now, make one request.
    fn is_for_one(&self, worker: &Worker, ask: &Ask) -> bool {
        let caching = &worker.shared.config.caching;
        let reusable = |found: &Found| {
            let policy = &found.response.policy;
            let decision = reuse::decide(&ask.wishes, policy, caching, policy.response_time_ms);
            !matches!(decision, Decision::Validate(_))
        };
        // What is not even to be validated suits no request like this one.
        let missed = || self.reason != ForwardReason::Request;
        self.conditions == Conditions::Clients
            || !self.found.as_deref().map_or_else(missed, reusable)
    }

    /// Requests the whole, whatever range the client asked for.
    fn for_whole(self) -> Question {
        Question { found: None, conditions: Conditions::Ours, ..self }
    }

    fn fetching<'a>(self, worker: &'a Arc<Worker>, ask: &'a Ask, lead: Option<Lead>) -> Fetch<'a> {
        Fetch {
            conditions: self.conditions,
            lead,
            rest_of: Some(slices::rest_of),
            ..Fetch::new(worker, ask, self.found, self.key, self.reason)
        }
    }

    async fn put(self, worker: &Arc<Worker>, ask: &Ask, lead: Option<Lead>) -> Answer {
        self.fetching(worker, ask, lead).run().await
    }
}

async fn plan(worker: &Worker, ask: &Ask) -> Plan {
    let want_body = answer::wants_body(&ask.method);
    let vault = &worker.shared.vault;
    let looking =
        pin!(vault.lookup(&ask.target.primary, &ask.headers, want_body, &worker.counters));
    let looked = worker.relay.wait(looking).await;
    let found = match looked {
        Lookup::Unkeyable => return Plan::Alone,
        Lookup::Missed { key, reason } => return Plan::Ask(Question::missed(ask, key, reason)),
        Lookup::Found(found) => found,
    };
    let primary = &ask.target.primary;
    if !reuse::suits_credentials(found.response.status, &ask.headers) {
        let key = found.key(primary).to_vec();
        return Plan::Ask(Question::missed(ask, key, ForwardReason::Request));
    }
    if !answer::part_suffices(worker, ask, &found.response) {
        let key = found.key(primary).to_vec();
        // Kept, so that a further part can be joined with the stored one.
        let found = ask.wants_range().then_some(found);
        return Plan::Ask(Question { found, ..Question::missed(ask, key, ForwardReason::Partial) });
    }
    let caching = &worker.shared.config.caching;
    match reuse::decide(&ask.wishes, &found.response.policy, caching, worker.now_ms()) {
        // To validate what cannot be sent then would take a second request.
        Decision::Validate(_) if !answer::is_there(worker, ask, &found) => lost(ask, &found),
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

/// Serves a found response, provided that its first bytes, if streamed, can still be read.
async fn begun(worker: &Worker, ask: &Ask, mut found: Box<Found>, decision: Decision) -> Plan {
    if answer::begin(worker, ask, &mut found).await {
        return Plan::Serve(found, decision);
    }
    lost(ask, &found)
}

/// The store has evicted something of what would be sent: a miss.
fn lost(ask: &Ask, found: &Found) -> Plan {
    let key = found.key(&ask.target.primary).to_vec();
    Plan::Ask(Question::missed(ask, key, ForwardReason::UriMiss))
}

/// This future's size is reserved in every connection and moved with every request. So the code
/// that asks the origin, ten times as large as a hit, is boxed.
pub(crate) async fn answer(worker: &Arc<Worker>, ask: &Ask) -> Answer {
    match plan(worker, ask).await {
        Plan::Serve(found, decision) => serve_planned(worker, ask, found, decision, None),
        Plan::Alone => Box::pin(go_alone(worker, ask, ForwardReason::UriMiss)).await,
        Plan::Ask(question) => boxed(|| missed(worker, ask, question)).await,
    }
}

fn serve_planned(
    worker: &Arc<Worker>,
    ask: &Ask,
    found: Box<Found>,
    decision: Decision,
    collapsed: Option<ForwardReason>,
) -> Answer {
    // Nothing of an exchange for who says no-store is stored: the next one has it validated.
    if decision == Decision::ServeAndRevalidate && !ask.wishes.no_store {
        validate_behind(worker, ask, &found);
    }
    serve_hit(worker, ask, slices::resumable(worker, ask, found), collapsed)
}

/// Asks the origin, or waits for another request that does.
async fn missed(worker: &Arc<Worker>, ask: &Ask, mut question: Question) -> Answer {
    let mut support = RangeSupport::Unknown;
    let (reason_first, mut broke) = (question.reason, None);
    let mut rounds = Rounds::new(worker.shared.config.timeouts.origin_header);
    while rounds.is_one_left() {
        let (reason, conditions) = (question.reason, question.conditions);
        let mut probing = None;
        match slices::course(worker, ask, reason, conditions, support).await {
            Course::Answered(answer) => return *answer,
            Course::AsAsked => {}
            Course::Whole => question = question.for_whole(),
            Course::Probe(want) => (question, probing) = (question.for_whole(), Some(want)),
        }
        if ask.wishes.only_if_cached {
            return only_if_cached(worker);
        }
        if let Some(answer) = known_to_fail(worker, ask, &question).await {
            return answer;
        }
        if question.found.is_none()
            && ask.asks_for_changes()
            && worker.shared.collapse.is_long(&question.key)
        {
            question.conditions = Conditions::Clients;
        }
        if question.is_for_one(worker, ask) {
            return question.put(worker, ask, None).await;
        }
        let leader = match join(worker, ask, &question.key) {
            Role::Alone => return ask_alone(worker, ask, question).await,
            Role::Leader(lead) => return ask_as_leader(worker, ask, question, lead, probing).await,
            Role::Follower(leader) => leader,
        };
        // The found response may pin memory, and will be looked up again anyway.
        drop(question.found.take());
        let following = follow(worker, ask, &leader, reason).await;
        broke = None;
        let is_silent = matches!(following, Following::Silent);
        let is_over = is_silent || matches!(following, Following::Outdated);
        match heed(worker, ask, following, reason).await {
            Next::Answered(answer) => return *answer,
            Next::Far => support = RangeSupport::Told,
            Next::Again(failure) => broke = failure,
            Next::Alone => break,
        }
        if is_over {
            follow_no_more(worker, ask, &question.key, &leader);
        }
        rounds.end_one(is_silent);
        question = match plan(worker, ask).await {
            Plan::Serve(found, decision) => {
                return serve_planned(worker, ask, found, decision, Some(reason));
            }
            Plan::Ask(question) => question,
            Plan::Alone => break,
        };
    }
    match broke {
        // It failed for one after the other. If all asked now, it would have all of them at once.
        Some(error) => share_failure(worker, ask, error, waited_for(question.reason)).await,
        None => go_alone(worker, ask, reason_first).await,
    }
}

/// Of those who waited for this leader, one leads next.
fn follow_no_more(worker: &Worker, ask: &Ask, key: &[u8], leader: &Arc<News>) {
    let collapse = &worker.shared.collapse;
    match ask.method == Method::HEAD {
        true => collapse.outdate_for_head(key, leader),
        false => collapse.outdate(key, leader),
    }
}

/// What a request does next that has waited for another one.
enum Next {
    Answered(Box<Answer>),
    /// Looks again, and has its range fetched as slices.
    Far,
    /// Looks again; the leader met with this failure, which may be its own.
    Again(Option<FetchError>),
    /// Asks for itself: the response cannot be shared, or comes too late.
    Alone,
}

async fn heed(
    worker: &Arc<Worker>,
    ask: &Ask,
    following: Following,
    reason: ForwardReason,
) -> Next {
    let (said, failure) = match following {
        Following::Answered(answer) => return Next::Answered(answer),
        Following::Far => return Next::Far,
        // Of those who wait for what is outdated one leads next.
        Following::Ended(Outcome::Stored | Outcome::Sliced | Outcome::Abandoned)
        | Following::Outdated => return Next::Again(None),
        Following::Ended(Outcome::Failed(error)) => {
            let answer = share_failure(worker, ask, error, waited_for(reason)).await;
            return Next::Answered(Box::new(answer));
        }
        Following::Ended(Outcome::Broke(error)) => {
            ((Failure::Disconnected, error.name()), Some(error))
        }
        Following::Silent => {
            let error = FetchError::HeaderTimeout;
            ((Failure::Disconnected, error.name()), Some(error))
        }
        Following::Ended(Outcome::StoodIn(code)) => {
            ((Failure::Status(code), "stale-if-error"), None)
        }
        // An origin with too much to do would have all who wait at once.
        Following::Ended(Outcome::Error(error)) => {
            ((Failure::Status(error.status()), "stale-if-error"), Some(error))
        }
        // A response whose body is not stored may have headers that can be shared.
        Following::Ended(Outcome::NotStored(_) | Outcome::NotThisTime)
            if ask.method == Method::HEAD =>
        {
            return Next::Again(None);
        }
        Following::Ended(_) | Following::TooSlow => return Next::Alone,
    };
    match stand_in_too(worker, ask, said, reason).await {
        Some(answer) => Next::Answered(Box::new(answer)),
        None => Next::Again(failure),
    }
}

/// The status of a request that waited for another one, for this reason.
fn waited_for(reason: ForwardReason) -> CacheStatus {
    let mut status = CacheStatus::forwarded(reason);
    status.collapsed = true;
    status
}

/// Asks the origin for a response that cannot be shared.
async fn ask_alone(worker: &Arc<Worker>, ask: &Ask, mut question: Question) -> Answer {
    if question.found.is_none() {
        // The response will most likely not be stored, so the client's conditions save the body.
        question.conditions = Conditions::Clients;
    }
    question.put(worker, ask, None).await
}

/// Asks the origin on behalf of all waiting requests.
async fn ask_as_leader(
    worker: &Arc<Worker>,
    ask: &Ask,
    question: Question,
    lead: Lead,
    probing: Option<Want>,
) -> Answer {
    // The response would not be stored: no request should wait for it.
    if ask.wishes.no_store {
        drop(lead);
        return question.put(worker, ask, None).await;
    }
    lead_fetch(worker, ask, question, lead, probing).await
}

/// Leads or follows for the requested key.
fn join(worker: &Worker, ask: &Ask, key: &[u8]) -> Role {
    let collapse = &worker.shared.collapse;
    let is_head = ask.method == Method::HEAD;
    if ask.has_cookie() && collapse.is_own_with_cookie(key, is_head) {
        return Role::Alone;
    }
    let role = match is_head {
        true => collapse.join_for_head(key, ask.has_credentials()),
        false if ask.has_credentials() => collapse.join_with_credentials(key),
        false => collapse.join(key),
    };
    role.after_rounds(ask.rounds)
}

/// The answer, without waiting, when the origin is known to be down or out of reach: a stale
/// response, or, if its checks say so, an error. `None` if this request is one of the few that
/// probe the origin; behind a stale answer a probe runs as well.
async fn known_to_fail(worker: &Arc<Worker>, ask: &Ask, question: &Question) -> Option<Answer> {
    if worker.shared.forward.is_some() {
        return None;
    }
    let error = if worker.fetcher.is_known_down(ask.site) {
        if worker.fetcher.may_try(ask.site) {
            let stale = may_stand_in(worker, ask, question).filter(|_| !ask.wishes.no_store)?;
            validate_behind(worker, ask, stale);
        }
        FetchError::Down
    } else if worker.fetcher.is_out_of_reach(ask.site) {
        let stale = may_stand_in(worker, ask, question)?;
        // No check finds out when it is back, so whoever cannot have what is stale asks.
        if !ask.wishes.no_store {
            validate_behind(worker, ask, stale);
        }
        FetchError::Connect(None)
    } else {
        return None;
    };
    let status = CacheStatus::forwarded(question.reason);
    Some(share_failure(worker, ask, error, status).await)
}

/// What was found, if this request may have it when the origin gives no answer.
fn may_stand_in<'q>(worker: &Worker, ask: &Ask, question: &'q Question) -> Option<&'q Found> {
    let (caching, now_ms) = (&worker.shared.config.caching, worker.now_ms());
    let found = question.found.as_deref().filter(|_| question.conditions == Conditions::Ours)?;
    let (policy, failure) = (&found.response.policy, Failure::Disconnected);
    let may = failure.is_worse_than(found.response.status)
        && reuse::may_serve_on_error(&ask.wishes, policy, failure, caching, now_ms);
    may.then_some(found)
}

/// The leader got no response, or an error: each follower may use a stale one if its own directives
/// allow.
async fn share_failure(
    worker: &Arc<Worker>,
    ask: &Ask,
    error: FetchError,
    mut status: CacheStatus,
) -> Answer {
    let planned = plan(worker, ask).await;
    if let Plan::Serve(found, _) = planned {
        let collapsed = status.forward.filter(|_| status.collapsed);
        return serve_hit(worker, ask, slices::resumable(worker, ask, found), collapsed);
    }
    if status.collapsed {
        worker.counters.collapsed.one();
    }
    status.detail = Some(error.name());
    let failure = match error {
        FetchError::Status(code, _) => Failure::Status(code),
        _ => Failure::Disconnected,
    };
    match stand_in(worker, ask, planned, failure, status.clone()).await {
        Some(answer) => answer,
        None => origin_failed(worker, error, status),
    }
}

/// The stored response, if this request may have it as well as the leader that it waited for, for
/// `reason`: the leader met with this failure, which `detail` names.
async fn stand_in_too(
    worker: &Arc<Worker>,
    ask: &Ask,
    (failure, detail): (Failure, &'static str),
    reason: ForwardReason,
) -> Option<Answer> {
    let mut status = waited_for(reason);
    status.detail = Some(detail);
    let planned = plan(worker, ask).await;
    let answer = stand_in(worker, ask, planned, failure, status).await?;
    worker.counters.collapsed.one();
    Some(answer)
}

/// The stored response in place of a failure that another request, or an earlier one, met with, if
/// this one may have it.
async fn stand_in(
    worker: &Arc<Worker>,
    ask: &Ask,
    planned: Plan,
    failure: Failure,
    status: CacheStatus,
) -> Option<Answer> {
    let Plan::Ask(Question { found: Some(mut found), conditions: Conditions::Ours, .. }) = planned
    else {
        return None;
    };
    let (caching, now_ms) = (&worker.shared.config.caching, worker.now_ms());
    let may = failure.is_worse_than(found.response.status)
        && reuse::may_serve_on_error(&ask.wishes, &found.response.policy, failure, caching, now_ms);
    if !may || !answer::begin(worker, ask, &mut found).await {
        return None;
    }
    worker.counters.stale_on_error.one();
    Some(reused(worker, ask, slices::resumable(worker, ask, found), status))
}

/// Validates a stored response while its client is served (RFC 5861 §3), unless another request
/// already does, or one for it has just failed, or the origin is out of reach and was tried just
/// now: an origin in trouble would be asked anew as soon as it has failed.
fn validate_behind(worker: &Arc<Worker>, ask: &Ask, stale: &Found) {
    let key = stale.key(&ask.target.primary);
    if worker.shared.collapse.unvalidated.of(key).is_on() {
        return;
    }
    let Role::Leader(lead) = worker.shared.collapse.lead_or_follow(key) else { return };
    // The trial of an origin whose checks fail, too, is claimed when the request is sent.
    let (is_forward, fetcher) = (worker.shared.forward.is_some(), &worker.fetcher);
    if !is_forward
        && !fetcher.is_known_down(ask.site)
        && fetcher.is_out_of_reach(ask.site)
        && !fetcher.take_trial(ask.site)
    {
        return;
    }
    let ask = ask.for_nobody(&worker.shared.config.ruleset);
    let (worker, key) = (worker.clone(), key.to_vec());
    let served_since_ms = stale.response.policy.response_time_ms;
    tokio::spawn(async move { validate(&worker, &ask, key, lead, served_since_ms).await });
}

/// `served_since_ms`: when the response that the client is served came, or was last validated.
async fn validate(worker: &Arc<Worker>, ask: &Ask, key: Vec<u8>, lead: Lead, served_since_ms: u64) {
    let vault = &worker.shared.vault;
    let pause = worker.shared.collapse.unvalidated.of(&key);
    // Looked up without its body, which may be large and is not needed.
    let looked = vault.lookup(&ask.target.primary, &ask.headers, false, &worker.counters).await;
    let found = match looked {
        Lookup::Found(found) => Some(found),
        Lookup::Missed { .. } | Lookup::Unkeyable => None,
    };
    let is_newer = |found: &Found| found.response.policy.response_time_ms > served_since_ms;
    if found.as_deref().is_some_and(is_newer) {
        // Another leader finished between the lookup for the client and this lead.
        return lead.end(Outcome::Stored);
    }
    worker.counters.validated_behind.one();
    let fetching = Fetch {
        lead: Some(lead),
        audience: Audience::Nobody,
        ..Fetch::new(worker, ask, found, key, ForwardReason::Stale)
    };
    let (_, status) = fetching.run().await;
    // What is not stored for its own sake is no failure, and may be the asking client's doing.
    if !status.stored && status.forward_status.is_none_or(is_passing_failure) {
        pause.begin();
    }
}

/// Neither leads nor follows; `reason` is why the request waited before, if it did.
async fn go_alone(worker: &Arc<Worker>, ask: &Ask, reason: ForwardReason) -> Answer {
    match plan(worker, ask).await {
        Plan::Serve(found, _) => {
            serve_hit(worker, ask, slices::resumable(worker, ask, found), Some(reason))
        }
        _ if ask.wishes.only_if_cached => only_if_cached(worker),
        Plan::Ask(question) => question.put(worker, ask, None).await,
        Plan::Alone => {
            let mut question = Question::missed(ask, Vec::new(), ForwardReason::Bypass);
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
    // Another leader may have finished between this request's lookup and its lead.
    if worker.shared.vault.may_contain(&question.key) {
        match plan(worker, ask).await {
            Plan::Serve(found, _) => {
                lead.end(Outcome::Stored);
                let found = slices::resumable(worker, ask, found);
                return serve_hit(worker, ask, found, Some(question.reason));
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
        None => fetching.run().await,
    }
}
