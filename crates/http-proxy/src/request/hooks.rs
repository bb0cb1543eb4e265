//! Applies the operator's rules to requests and responses.
//!
//! Invariants: request rules run after the request is known to be well-formed and before the
//! lookup; response rules run before any decision by the response's headers. No rule makes a
//! response to an authorised request, a private one or one with `Vary: *` storable. Threads: the
//! worker's.

use std::sync::Arc;
use std::time::Duration;

use damelo::GroupId;
use http::header::{CONTENT_LENGTH, SET_COOKIE};
use http::{HeaderMap, Method, StatusCode};
use hyper::body::Body;

use crate::request::{Ask, forwarded};
use crate::rules::freshness::{Lifetime, LifetimeSource, heuristically_cacheable};
use crate::rules::parts::Part;
use crate::rules::reuse::Arrived;
use crate::rules::storing::{self, Exchange};
use crate::rules::{
    CachingConfig, NotStoredReason, Policy, RequestDirectives, ResponseDirectives, group,
};
use crate::ruleset::{self, Admission, Hint, RequestEffects, RequestView, ResponseEffects, Told};
use crate::vault::Found;
use crate::worker::{Shared, Worker};

impl Ask {
    /// The request as rule conditions see it.
    pub(crate) fn view(&self) -> RequestView<'_> {
        RequestView {
            host: self.host_asked(),
            scheme: self.asked_by,
            path_and_query: self.target.path_and_query.as_str(),
            method: &self.method,
            headers: &self.headers,
            client: self.client(),
            met: self.met.as_deref(),
        }
    }
}

impl Ask {
    /// What rules fill into the fields that they set.
    pub(crate) fn told(&self) -> Told<'_> {
        let target = &self.target;
        Told {
            client: self.client(),
            host: self.host_asked(),
            // Of a forward proxy as in the key: its URLs are of `http`, however it is reached.
            scheme: if self.peer().route.is_some() { target.scheme } else { self.scheme_asked() },
            path_and_query: target.path_and_query.as_str(),
            request_id: self.request_id(),
        }
    }
}

/// Applies the rules to a request: its headers, its key, and whether it bypasses the cache.
pub(crate) fn on_request(shared: &Shared, ask: &mut Ask) {
    let rules = &shared.config.ruleset;
    if rules.is_empty() {
        return;
    }
    let mut effects = rules.on_request(&ask.view());
    (ask.pass, ask.site, ask.answering) = (effects.pass, effects.site, effects.answering);
    ask.prefix = effects.prefix.cloned();
    if let (Some(false), Some(notes)) = (effects.log, &ask.peer.notes) {
        notes.leave_out();
    }
    if effects.edits() {
        (ask.met, ask.edited) = (Some(rules.met(&ask.view())), true);
    }
    ask.answer_edits = effects.answer_edits.take().map(Arc::new);
    if let Some(limits) = effects.limits.take() {
        ask.set_limits(limits);
    }
    if effects.wants_request_id {
        ask.make_request_id();
    }
    let mut headers = std::mem::take(&mut ask.headers);
    let changed = edit_request(&effects, &mut headers, ask.trusts, &ask.told());
    ask.headers = headers;
    if changed {
        ask.wishes = RequestDirectives::of(&ask.headers);
    }
    effects.extend_key(&ask.headers, &mut ask.target.primary);
}

/// Edits a request's headers as the rules say. True if anything may have changed. `trusts`: what
/// the client says of itself is believed.
pub(crate) fn edit_request(
    effects: &RequestEffects<'_>,
    headers: &mut HeaderMap,
    trusts: bool,
    told: &Told<'_>,
) -> bool {
    if effects.edits() {
        // Removed here, so that fields set by rules are not mistaken for the client's.
        forwarded::forget_told(headers, trusts);
    }
    effects.edit(headers, told)
}

/// Length of a response's content for the rules' conditions. A HEAD's response has no body: its
/// length is the one announced for a GET's, if any. A part is as long as the whole that it is of:
/// rules hold for resources, however much of one was asked for.
pub(crate) fn length_bytes(
    ask: &Ask,
    status: StatusCode,
    headers: &HeaderMap,
    body: &impl Body,
) -> Option<u64> {
    match status {
        StatusCode::PARTIAL_CONTENT => Part::of(headers).map(|part| part.complete_bytes),
        _ if ask.method == Method::HEAD => announced_length(headers),
        _ => body.size_hint().exact(),
    }
}

/// The length of a GET's body, if the origin announced it.
pub(crate) fn announced_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Applies the rules to a response's headers, and returns their other effects.
pub(crate) fn on_response<'s>(
    shared: &'s Shared,
    ask: &Ask,
    status: StatusCode,
    headers: &mut HeaderMap,
    length_bytes: Option<u64>,
) -> ResponseEffects<'s> {
    let rules = &shared.config.ruleset;
    if rules.is_empty() {
        return ResponseEffects::default();
    }
    let view = ruleset::response_view(status, headers, length_bytes);
    let effects = rules.on_response(&ask.view(), &view);
    effects.edit(headers);
    effects
}

/// Whether a response of this status is kept by a rule's lifetime that says nothing of statuses:
/// the cacheable ones and redirects, which are as much about the resource.
fn is_of_resource(status: StatusCode) -> bool {
    use StatusCode as Status;
    let redirects = [Status::FOUND, Status::SEE_OTHER, Status::TEMPORARY_REDIRECT];
    heuristically_cacheable(status) || redirects.contains(&status)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl ResponseEffects<'_> {
    /// The lifetime that a response of this status has by rule. An error that a client's own fields
    /// may have caused for all (a 400 for one that is too long) has none, unless the rule means
    /// errors.
    pub(crate) fn ttl_for(&self, status: StatusCode) -> Option<Duration> {
        let meant = self.names_status || self.store == Some(true) || is_of_resource(status);
        self.ttl.filter(|_| meant)
    }

    /// Whether it may be served stale by rule.
    fn has_windows(&self) -> bool {
        let windows = [self.stale_while_revalidate, self.stale_if_error];
        windows.iter().flatten().any(|window| !window.is_zero())
    }

    /// The policy of a response as the rules have it. Who gives it a lifetime says that it is for
    /// all.
    pub(crate) fn policy(&self, arrived: Arrived<'_>, caching: &CachingConfig) -> Policy {
        let ttl = self.ttl_for(arrived.status);
        let with_cookie = arrived.with_cookie && ttl.is_none_or(|ttl| ttl.is_zero());
        let arrived = Arrived { with_cookie, ..arrived };
        let mut policy = Policy::ruled(arrived, caching, self.has_windows());
        self.adjust(&mut policy, ttl, arrived.headers, arrived.directives);
        policy
    }

    /// Adjusts a response's lifetime and staleness limits as the rules say. What sets a cookie and
    /// has a lifetime of nothing by rule is for validation only, whatever windows the configuration
    /// has.
    fn adjust(
        &self,
        policy: &mut Policy,
        ttl: Option<Duration>,
        headers: &HeaderMap,
        directives: &ResponseDirectives,
    ) {
        if let Some(window) = self.stale_while_revalidate {
            policy.stale_while_revalidate_ms = millis(window);
        }
        if let Some(window) = self.stale_if_error {
            policy.stale_if_error_ms = millis(window);
        }
        if let Some(ttl) = ttl {
            policy.lifetime_ms = policy.initial_age_ms.saturating_add(millis(ttl));
            policy.no_cache = false;
            policy.never_stale |=
                ttl.is_zero() && storing::may_be_for_one_user(headers, directives);
        }
    }

    /// Whether a response may be stored, by its own headers and by the rules.
    pub(crate) fn admit(
        &self,
        exchange: Exchange<'_>,
        caching: &CachingConfig,
    ) -> Result<(), NotStoredReason> {
        let decision = storing::decide(exchange, caching);
        let Exchange { status, response, directives, response_time_s, .. } = exchange;
        let lasts = self.ttl_for(status).is_some_and(|ttl| !ttl.is_zero());
        let prolonged = lasts || self.has_windows();
        if decision.is_ok() && prolonged && response.contains_key(SET_COOKIE) {
            // Such a response is kept only for validation, which shares no cookie; a lifetime added
            // by rules would.
            let own = Lifetime::of(status, response, directives, caching, response_time_s);
            let says = own.source == LifetimeSource::Explicit && own.seconds > 0;
            if !(says && !directives.no_cache || self.store == Some(true)) {
                return Err(NotStoredReason::SetCookie);
            }
        }
        self.overrule(decision, status, response)
    }

    /// Overrules, if the rules say so, the decision that the response's own headers led to.
    fn overrule(
        &self,
        decision: Result<(), NotStoredReason>,
        status: StatusCode,
        response: &HeaderMap,
    ) -> Result<(), NotStoredReason> {
        if self.store == Some(false) {
            return Err(NotStoredReason::Rule);
        }
        let forced = self.store == Some(true);
        // A response without cache directives that sets a cookie is most likely for one user.
        let for_one = response.contains_key(SET_COOKIE);
        let ttl = self.ttl_for(status).filter(|_| !for_one);
        let useful = !for_one && self.has_windows();
        match decision {
            // Never fresh by its own headers, but a rule lets it be served.
            Err(NotStoredReason::NeverUseful) if useful => Ok(()),
            Err(NotStoredReason::NotCacheable | NotStoredReason::NeverUseful)
                if forced || ttl.is_some() =>
            {
                Ok(())
            }
            Err(NotStoredReason::Cookie) if forced || ttl.is_some_and(|ttl| !ttl.is_zero()) => {
                Ok(())
            }
            Err(NotStoredReason::NoStore) if forced => Ok(()),
            other => other,
        }
    }

    /// Whether a response not stored yet may be: a rule may refuse the first request for it.
    pub(crate) fn admit_new(&self, shared: &Shared, ask: &Ask) -> Result<(), NotStoredReason> {
        let waits = self.admission == Some(Admission::SecondHit);
        if waits && !shared.seen.before(GroupId::of(&ask.target.primary).get()) {
            return Err(NotStoredReason::FirstRequest);
        }
        Ok(())
    }
}

/// Follow-up actions of a hit. After a hit from disk: sets the group's hint by the rules, which the
/// store forgets when closed; and for a document prefetches the objects of its group, which will be
/// requested next. After any hit: counts a use, unless a rule sets the group's hint.
pub(crate) fn on_hit(worker: &Worker, ask: &Ask, found: &Found) {
    let config = &worker.shared.config;
    let (hints, from_disk) = (&worker.shared.vault.group_hints, !found.placement.in_memory);
    let (response, group) = (&found.response, found.placement.group);
    if !from_disk && !hints.is_on() {
        return;
    }
    let length_bytes = found.body.length_bytes();
    let rule = if !config.ruleset.sets_hints() {
        None
    } else {
        let (status, length_bytes) = (response.status, found.complete_bytes());
        let view = ruleset::response_view(status, &response.headers, length_bytes);
        config.ruleset.on_response(&ask.view(), &view).hint
    };
    match rule {
        Some(hint) if from_disk => hints.ruled(group, hint, worker.shared.vault.store()),
        Some(_) => {}
        None => {
            let used = (group, found.key(&ask.target.primary));
            let vault = &worker.shared.vault;
            vault.count_use(&worker.counters, &worker.alive, used, length_bytes);
        }
    }
    if from_disk && config.groups.prefetch && group::is_document(&response.headers) {
        prefetch(worker, group);
    }
}

fn prefetch(worker: &Worker, group: GroupId) {
    worker.counters.pages_prefetched.one();
    // If it fails, each object only costs a read.
    worker.spawn(worker.shared.vault.store().prefetch(group).into_future());
}

/// Follow-up actions of an insertion into a group; `rule` is the hint by the rules.
pub(crate) fn on_store(worker: &Worker, group: GroupId, rule: Option<Hint>) {
    let vault = &worker.shared.vault;
    match rule {
        Some(hint) => vault.group_hints.ruled(group, hint, vault.store()),
        None => vault.count_store(&worker.counters, &worker.alive, group),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_not_stored_by_a_ttl_alone() {
        let mut cookie = HeaderMap::new();
        cookie.insert(SET_COOKIE, http::HeaderValue::from_static("session=1"));
        let mut effects = ResponseEffects::default();
        effects.ttl = Some(Duration::from_secs(9));
        let refused = Err(NotStoredReason::NeverUseful);
        assert_eq!(effects.overrule(refused, StatusCode::OK, &cookie), refused);
        assert_eq!(
            effects.overrule(Ok(()), StatusCode::OK, &cookie),
            Ok(()),
            "the origin's own words count"
        );
        effects.store = Some(true);
        assert_eq!(effects.overrule(refused, StatusCode::OK, &cookie), Ok(()));
    }

    #[test]
    fn a_cookie_is_not_prolonged_by_rules_alone() {
        let (seconds, caching) = (Some(Duration::from_secs(9)), CachingConfig::default());
        for (cache_control, ttl, window, store, stored) in [
            ("", seconds, None, None, false),
            ("", None, seconds, None, false),
            ("", seconds, None, Some(true), true),
            ("max-age=0", seconds, None, None, false),
            ("no-cache, max-age=5", seconds, None, None, false),
            ("max-age=5", seconds, seconds, None, true),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(SET_COOKIE, http::HeaderValue::from_static("session=1"));
            headers.insert(http::header::ETAG, http::HeaderValue::from_static("\"a\""));
            let value = http::HeaderValue::from_static(cache_control);
            headers.insert(http::header::CACHE_CONTROL, value);
            let mut effects = ResponseEffects::default();
            (effects.ttl, effects.stale_if_error, effects.store) = (ttl, window, store);
            let exchange = Exchange {
                method: &http::Method::GET,
                request: &HeaderMap::new(),
                wishes: &RequestDirectives::default(),
                status: StatusCode::OK,
                response: &headers,
                directives: &ResponseDirectives::of(&headers, &caching),
                response_time_s: 0,
                with_cookie: false,
                selective: false,
            };
            let admitted = effects.admit(exchange, &caching);
            assert_eq!(admitted.is_ok(), stored, "{cache_control:?} {ttl:?} {store:?}");
        }
    }

    #[test]
    fn what_a_rule_may_overrule() {
        use NotStoredReason as Not;
        let effects = |ttl, store| {
            let mut effects = ResponseEffects::default();
            (effects.ttl, effects.store) = (ttl, store);
            effects
        };
        let ttl = Some(Duration::from_secs(9));
        for (ttl, store, decision, expected) in [
            (None, None, Ok(()), Ok(())),
            (None, Some(false), Ok(()), Err(Not::Rule)),
            (ttl, None, Err(Not::NeverUseful), Ok(())),
            (ttl, None, Err(Not::NotCacheable), Ok(())),
            (ttl, None, Err(Not::NoStore), Err(Not::NoStore)),
            (None, Some(true), Err(Not::NoStore), Ok(())),
            (None, None, Err(Not::Cookie), Err(Not::Cookie)),
            (Some(Duration::ZERO), None, Err(Not::Cookie), Err(Not::Cookie)),
            (ttl, None, Err(Not::Cookie), Ok(())),
            (None, Some(true), Err(Not::Cookie), Ok(())),
            (ttl, Some(true), Err(Not::Private), Err(Not::Private)),
            (ttl, Some(true), Err(Not::Authorization), Err(Not::Authorization)),
            (ttl, Some(true), Err(Not::VaryStar), Err(Not::VaryStar)),
            (ttl, Some(true), Err(Not::RequestNoStore), Err(Not::RequestNoStore)),
        ] {
            let none = HeaderMap::new();
            assert_eq!(
                effects(ttl, store).overrule(decision, StatusCode::OK, &none),
                expected,
                "{ttl:?} {store:?}"
            );
        }
    }
}
