//! One GET or HEAD: lookup, decision, then serving, validating or fetching.
//!
//! ```text
//! answer ─► plan ─► serve               fresh, or stale and permitted
//!             ▲ ├─► serve, validate behind                       (see `behind`)
//!             │ └─► ask or wait ─► lead, or ask alone             (see `fetch`)
//!             │        │  └─► what is stale, or a failure         (see `stand_in`)
//!             └──── follow ─► read along, or share the outcome    (see `follow`)
//! ```
//!
//! Invariants: a request waits for others only while [`Rounds`] are left; a body leaves the store
//! without a copy. Threads: the worker that read the request.

mod behind;
mod follow;
mod stand_in;

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;

use http::Method;
use http::header::RANGE;

use crate::answer::{self, Answer, only_if_cached, serve_hit};
use crate::cache::behind::validate_behind;
use crate::cache::follow::{Next, follow};
use crate::cache::stand_in::{known_to_fail, share_failure, waited_for};
use crate::collapse::rounds::Rounds;
use crate::collapse::{Lead, Leader, Outcome, Role};
use crate::fetch::{Conditions, Fetch};
use crate::io::boxed::boxed;
use crate::request::Ask;
use crate::rules::ForwardReason;
use crate::rules::reuse::{self, Decision};
use crate::slices::{self, Course, RangeSupport, Want};
use crate::vault::{Found, FoundBody, Lookup};
use crate::worker::Worker;

/// Longer ones are no part of a key.
const RANGE_BYTES_MAX: usize = 256;

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
    /// nothing older than now, make one request, however long that takes.
    fn is_for_one(&self, worker: &Worker, ask: &Ask) -> bool {
        let caching = &worker.shared.config.caching;
        let reusable = |found: &Found| {
            let (policy, headers) = (&found.response.policy, &found.response.headers);
            let is_anew = policy.was_made_anew(headers);
            let took_ms = if is_anew { policy.initial_age_ms } else { 0 };
            let wishes = ask.wishes.having_waited_ms(took_ms);
            let decision = reuse::decide(&wishes, policy, caching, policy.response_time_ms);
            !matches!(decision, Decision::Validate(_))
        };
        // What is not even to be validated suits no request like this one.
        let missed = || self.reason != ForwardReason::Request;
        self.conditions == Conditions::Clients
            || !self.found.as_deref().map_or_else(missed, reusable)
    }

    /// The range that it asks for as it is, and nothing else, if nothing is stored: what comes is
    /// the same for all who ask for that.
    fn range_alone<'a>(&self, ask: &'a Ask) -> Option<&'a [u8]> {
        let is_it = self.conditions == Conditions::Clients
            && self.found.is_none()
            && self.reason != ForwardReason::Request
            && ask.wants_range()
            && !ask.is_conditional();
        let range = ask.headers.get(RANGE).filter(|_| is_it)?.as_bytes();
        (range.len() <= RANGE_BYTES_MAX).then_some(range)
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
    plan_since(worker, ask, u64::MAX).await
}

/// As [`plan`], for a request that has waited for others since `since_ms`.
async fn plan_since(worker: &Worker, ask: &Ask, since_ms: u64) -> Plan {
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
    let (policy, caching) = (&found.response.policy, &worker.shared.config.caching);
    let waited_ms = policy.response_time_ms.saturating_sub(since_ms);
    let wishes = ask.wishes.having_waited_ms(waited_ms);
    match reuse::decide(&wishes, policy, caching, worker.now_ms()) {
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
        Plan::Ask(question) if becomes_get(worker, ask, &question) => {
            Box::pin(missed_as_get(worker, ask)).await
        }
        Plan::Ask(question) => boxed(|| missed(worker, ask, question)).await,
    }
}

/// Answers a HEAD by what a GET finds, or brings into the store.
async fn missed_as_get(worker: &Arc<Worker>, ask: &Ask) -> Answer {
    let get = ask.get_of_head(&worker.shared.config.ruleset);
    match plan(worker, &get).await {
        Plan::Serve(found, decision) => serve_planned(worker, &get, found, decision, None),
        Plan::Ask(question) => missed(worker, &get, question).await,
        Plan::Alone => go_alone(worker, &get, ForwardReason::UriMiss).await,
    }
}

/// Whether a HEAD asks the origin by a GET, so that its response is stored: not where it would be
/// sent for nothing.
fn becomes_get(worker: &Worker, ask: &Ask, question: &Question) -> bool {
    let (collapse, wishes) = (&worker.shared.collapse, &ask.wishes);
    worker.shared.config.head_as_get
        && ask.method == Method::HEAD
        && !wishes.no_store
        && !wishes.only_if_cached
        && !ask.has_credentials()
        && !collapse.is_uncacheable(&question.key)
        && !(ask.has_cookie() && collapse.is_own_with_cookie(&question.key))
        && !collapse.is_long(&question.key)
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

/// A request that waits for another one, for this reason.
struct Behind {
    leader: Arc<Leader>,
    key: Vec<u8>,
    reason: ForwardReason,
    brings: Brings,
}

/// What the other one brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Brings {
    /// What this one would.
    Same,
    /// The whole, of which this one would ask for ranges as they are.
    Whole,
    /// The ranges that this one would ask for as they are.
    Ranges,
}

/// Asks the origin, or waits for another request that does.
async fn missed(worker: &Arc<Worker>, ask: &Ask, mut question: Question) -> Answer {
    let (reason_first, since_ms) = (question.reason, worker.now_ms());
    let (mut reason, mut support, mut broke) = (reason_first, RangeSupport::Unknown, None);
    let mut rounds = Rounds::new(ask.origin_header(&worker.shared.config));
    while rounds.is_one_left() {
        let behind = match ask_or_wait(worker, ask, question, support).await {
            ControlFlow::Break(answer) => return answer,
            ControlFlow::Continue(behind) => behind,
        };
        let next = follow(worker, ask, &behind, rounds.silent_until()).await;
        let is_silent = matches!(next, Next::Silent(_));
        broke = None;
        match next {
            Next::Answered(answer) => return *answer,
            Next::Far => support = RangeSupport::Told,
            Next::Again(failure) => broke = failure,
            Next::Silent(failure) => broke = Some(failure),
            Next::Alone => break,
        }
        rounds.end_one(is_silent);
        question = match plan_since(worker, ask, since_ms).await {
            Plan::Serve(found, decision) => {
                return serve_planned(worker, ask, found, decision, Some(behind.reason));
            }
            Plan::Ask(question) => question,
            Plan::Alone => break,
        };
        reason = question.reason;
    }
    match broke {
        // It failed for one after the other. If all asked now, it would have all of them at once.
        Some(error) => share_failure(worker, ask, error, waited_for(reason)).await,
        None => go_alone(worker, ask, reason_first).await,
    }
}

/// The answer, by asking the origin mostly, unless another request asks it.
async fn ask_or_wait(
    worker: &Arc<Worker>,
    ask: &Ask,
    mut question: Question,
    support: RangeSupport,
) -> ControlFlow<Answer, Behind> {
    let (collapse, reason) = (&worker.shared.collapse, question.reason);
    let mut probing = None;
    match slices::course(worker, ask, reason, question.conditions, support).await {
        Course::Answered(answer) => return ControlFlow::Break(*answer),
        Course::AsAsked => {}
        Course::Whole => question = question.for_whole(),
        Course::Probe(want) => (question, probing) = (question.for_whole(), Some(want)),
    }
    if ask.wishes.only_if_cached {
        return ControlFlow::Break(only_if_cached(worker));
    }
    if let Some(answer) = known_to_fail(worker, ask, &question).await {
        return ControlFlow::Break(answer);
    }
    if question.found.is_none() && ask.asks_for_changes() && collapse.is_long(&question.key) {
        question.conditions = Conditions::Clients;
    }
    if let Some(range) = question.range_alone(ask) {
        return range_alone(worker, ask, question, range, support).await;
    }
    if question.is_for_one(worker, ask) {
        return ControlFlow::Break(question.put(worker, ask, None).await);
    }
    let answer = match collapse.join(&question.key, ask.who()).after_repeats(ask.via_repeats) {
        Role::Alone => ask_alone(worker, ask, question).await,
        Role::Leader(lead) => ask_as_leader(worker, ask, question, lead, probing).await,
        // The found response may pin memory, and will be looked up again anyway.
        Role::Follower(leader) => {
            let (key, brings) = (question.key, Brings::Same);
            return ControlFlow::Continue(Behind { leader, key, reason, brings });
        }
    };
    ControlFlow::Break(answer)
}

/// Asks for a range as it is, unless another request asks for the same, or for the whole. Who has
/// found that the whole comes too late for it does not wait for that again.
async fn range_alone(
    worker: &Arc<Worker>,
    ask: &Ask,
    question: Question,
    range: &[u8],
    support: RangeSupport,
) -> ControlFlow<Answer, Behind> {
    let (collapse, reason) = (&worker.shared.collapse, question.reason);
    let along = support == RangeSupport::Unknown;
    let (role, key) = collapse.join_range((&question.key, range), ask.who(), along);
    let lead = match role.after_repeats(ask.via_repeats) {
        Role::Follower(leader) => {
            let brings = if key == question.key { Brings::Whole } else { Brings::Ranges };
            return ControlFlow::Continue(Behind { leader, key, reason, brings });
        }
        // The response would not be stored: no request should wait for it.
        Role::Leader(lead) => Some(lead).filter(|_| !ask.wishes.no_store),
        Role::Alone => None,
    };
    ControlFlow::Break(question.put(worker, ask, lead).await)
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
