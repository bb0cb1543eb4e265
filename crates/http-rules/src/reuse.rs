//! Whether a stored response may answer a request as it is (RFC 9111 §4, §4.2.4, §5.2.1).
//!
//! Invariants: a stale response is served only if the client, the origin or the operator permits it
//! and the response does not forbid it; the reason for a validation is told apart: the client's
//! demand ([`ForwardReason::Request`]) or age ([`ForwardReason::Stale`]). Nothing here allocates.

use http::header::{AUTHORIZATION, DATE};
use http::{HeaderMap, StatusCode};

use crate::cache_control::{MaxStale, RequestDirectives, ResponseDirectives};
use crate::cache_status::ForwardReason;
use crate::config::CachingConfig;
use crate::directive::DELTA_SECONDS_MAX;
use crate::freshness::{self, Lifetime};
use crate::{dates, personal, storing};

/// Largest backward clock adjustment that makes no response stale, as clock discipline may cause.
const CLOCK_BACK_MAX_MS: u64 = 60_000;
/// The longest time that a message can express.
const SAID_MAX_MS: u64 = DELTA_SECONDS_MAX * 1000;

/// A stored response's caching properties and its arrival time: computed when it is stored, kept
/// with it, and sufficient to decide about a hit. In milliseconds: with whole seconds a response
/// with `max-age=1` would live half a second on average, depending on when in a second it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// Freshness lifetime.
    pub lifetime_ms: u64,
    /// Age when it arrived (§4.2.3).
    pub initial_age_ms: u64,
    /// When it arrived.
    pub response_time_ms: u64,
    /// How long after its lifetime it may be served while it is validated (RFC 5861 §3).
    pub stale_while_revalidate_ms: u64,
    /// How long after its lifetime it may be served if the origin fails (RFC 5861 §4).
    pub stale_if_error_ms: u64,
    /// Validate before every use.
    pub no_cache: bool,
    /// Never serve stale: `must-revalidate`, `proxy-revalidate` or `s-maxage`, or a cookie, of the
    /// response or of its request, beside which the origin does not say that it is for all.
    pub never_stale: bool,
    /// Unchanging while fresh: a client's `max-age` does not cause a validation (RFC 8246 §2.1).
    pub immutable: bool,
    /// What was stored may be for the one user whose cookie brought it: never fresh, never served
    /// stale, and validated by its entity tag alone. A 304 leaves it so unless it gives it a
    /// lifetime, or shows that it is everybody's ([`crate::validation::shows_for_all`]).
    pub is_personal: bool,
}

/// Inputs of a [`Policy`].
#[derive(Debug, Clone, Copy)]
pub struct Arrived<'a> {
    /// Status code.
    pub status: StatusCode,
    /// Its fields; after a 304, those of both merged.
    pub headers: &'a HeaderMap,
    /// Fields of the received message, `Age` among them; after a 304, those of the 304.
    pub received: &'a HeaderMap,
    /// The cache directives of `headers`.
    pub directives: &'a ResponseDirectives,
    /// The request that brought the body had a cookie.
    pub with_cookie: bool,
    /// When the request was sent.
    pub request_time_ms: u64,
    /// When the response arrived.
    pub response_time_ms: u64,
}

impl Policy {
    /// The policy of a response.
    pub fn of(arrived: Arrived<'_>, caching: &CachingConfig) -> Policy {
        Policy::ruled(arrived, caching, false)
    }

    /// As [`Policy::of`]; `has_windows` if an operator's rule lets this response be served stale,
    /// which counts beside `s-maxage` as its own words do.
    pub fn ruled(arrived: Arrived<'_>, caching: &CachingConfig, has_windows: bool) -> Policy {
        let Arrived { status, headers, received, directives, .. } = arrived;
        let Arrived { with_cookie, request_time_ms, response_time_ms, .. } = arrived;
        let own = Lifetime::of(status, headers, directives, caching, response_time_ms / 1000);
        let (lifetime, is_personal) =
            personal::judged(with_cookie, headers, directives, caching, own);
        let (swr, sie) = (directives.stale_while_revalidate_s, directives.stale_if_error_s);
        let is_explicit = swr.is_some() || sie.is_some() || has_windows;
        let allowed_beside = caching.stale_beside_s_maxage && is_explicit;
        Policy {
            lifetime_ms: millis(lifetime.seconds),
            initial_age_ms: freshness::initial_age(received, request_time_ms, response_time_ms),
            response_time_ms,
            stale_while_revalidate_ms: millis(swr.unwrap_or(caching.stale_while_revalidate_s)),
            stale_if_error_ms: millis(sie.unwrap_or(caching.stale_if_error_s)),
            no_cache: directives.no_cache,
            never_stale: directives.must_revalidate
                || directives.proxy_revalidate
                || (directives.s_maxage.is_some() && !allowed_beside)
                || is_personal
                || (storing::may_be_for_one_user(headers, directives)
                    && !storing::lets_share_stale_cookies(lifetime, directives)),
            immutable: directives.immutable,
            is_personal,
        }
    }

    /// `current_age` (§4.2.3). It is unknown after the clock was put back. It then exceeds the
    /// lifetime by the largest expressible time (§1.2.2), too old for any limit, so that the
    /// response is validated and gets a time of the new clock.
    pub fn age_ms(&self, now_ms: u64) -> u64 {
        if self.response_time_ms > now_ms.saturating_add(CLOCK_BACK_MAX_MS) {
            return self.lifetime_ms.saturating_add(SAID_MAX_MS);
        }
        freshness::current_age(self.initial_age_ms, self.response_time_ms, now_ms)
    }

    /// `current_age` in whole seconds, as `Age` states it.
    pub fn age_s(&self, now_ms: u64) -> u64 {
        self.age_ms(now_ms) / 1000
    }

    /// Remaining freshness in seconds, rounded up; positive exactly while the response is fresh.
    pub fn ttl_s(&self, now_ms: u64) -> i64 {
        let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        let left_ms = signed(self.lifetime_ms).saturating_sub(signed(self.age_ms(now_ms)));
        left_ms.div_euclid(1000) + i64::from(left_ms.rem_euclid(1000) > 0)
    }

    /// Milliseconds past its lifetime; `None` while it is fresh.
    pub fn staleness_ms(&self, now_ms: u64) -> Option<u64> {
        self.age_ms(now_ms).checked_sub(self.lifetime_ms)
    }

    /// Whether it is never fresh: every use is validated first.
    pub fn is_always_validated(&self) -> bool {
        self.no_cache || self.lifetime_ms == 0
    }

    /// Whether it lets be served nothing that a newer policy of the same response does not: it may
    /// come back in place of that.
    pub fn allows_no_more_than(&self, newer: &Policy) -> bool {
        let fresh_until_ms = |policy: &Policy| {
            let end_ms = policy.response_time_ms.saturating_add(policy.lifetime_ms);
            end_ms.saturating_sub(policy.initial_age_ms)
        };
        let (end_ms, newer_ms) = (fresh_until_ms(self), fresh_until_ms(newer));
        let is_no_later = |beyond_ms: fn(&Policy) -> u64| {
            end_ms.saturating_add(beyond_ms(self)) <= newer_ms.saturating_add(beyond_ms(newer))
        };
        is_no_later(|_| 0)
            && is_no_later(|policy| policy.stale_while_revalidate_ms)
            && is_no_later(|policy| policy.stale_if_error_ms)
            && (self.no_cache || !newer.no_cache)
            && (self.never_stale || !newer.never_stale)
            && (!self.immutable || newer.immutable)
            && (self.is_personal || !newer.is_personal)
    }

    /// Whether it was made for the request that brought it, by its `Date`: its age on arrival is
    /// the time that it took.
    pub fn was_made_anew(&self, headers: &HeaderMap) -> bool {
        let date_s = dates::header(headers, &DATE, self.response_time_s());
        date_s.is_some_and(|date_s| date_s.saturating_add(1) >= self.response_time_s())
    }

    /// How many seconds old it was on arrival if that was as long as its lifetime by its `Date`
    /// alone: no `Age` tells of a cache where it was. The origin's clock may be slow.
    pub fn outlived_by_date_s(&self, received: &HeaderMap, request_time_ms: u64) -> Option<u64> {
        let told_ms =
            freshness::corrected_age_value(received, request_time_ms, self.response_time_ms);
        let is_by_date = told_ms < self.lifetime_ms && self.lifetime_ms <= self.initial_age_ms;
        is_by_date.then_some(self.initial_age_ms / 1000)
    }

    /// Time of arrival in whole seconds, as HTTP dates are.
    pub fn response_time_s(&self) -> u64 {
        self.response_time_ms / 1000
    }

    /// A copy that is stale from now on: the resource seems to have changed (§4.3.5).
    pub fn made_stale(self) -> Policy {
        Policy { lifetime_ms: 0, stale_while_revalidate_ms: 0, ..self }
    }
}

fn millis(seconds: u64) -> u64 {
    seconds.saturating_mul(1000)
}

/// What to do with a stored response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Serve it: it is fresh.
    Serve,
    /// Serve it though it is stale: the client said `max-stale`.
    ServeStale,
    /// Serve it though it is stale, and validate it in the background (`stale-while-revalidate`).
    ServeAndRevalidate,
    /// Ask the origin first, for this reason.
    Validate(ForwardReason),
}

/// Decides for one request on one stored response.
pub fn decide(
    request: &RequestDirectives,
    policy: &Policy,
    caching: &CachingConfig,
    now_ms: u64,
) -> Decision {
    let wishes = wishes(request, caching);
    let age_ms = policy.age_ms(now_ms);
    let fresh = policy.lifetime_ms > age_ms;
    // A client's `max-age` is compared in whole seconds, as `Age` is. Compared more finely, a
    // response to `max-age=0` would be too old on arrival, also for all followers waiting for it.
    let age_for_it_ms = age_ms.saturating_sub(wishes.waited_ms);
    let too_old = wishes.max_age.is_some_and(|max| age_for_it_ms / 1000 > max);
    if wishes.no_cache || (too_old && !(policy.immutable && fresh)) {
        return Decision::Validate(ForwardReason::Request);
    }
    if policy.no_cache {
        return Decision::Validate(ForwardReason::Stale);
    }
    if fresh {
        let left_ms = policy.lifetime_ms - age_ms;
        return match wishes.min_fresh {
            Some(wanted_s) if left_ms < millis(wanted_s) => {
                Decision::Validate(ForwardReason::Request)
            }
            _ => Decision::Serve,
        };
    }
    if policy.never_stale || wishes.min_fresh.is_some() {
        return Decision::Validate(ForwardReason::Stale);
    }
    let staleness_ms = age_ms - policy.lifetime_ms;
    let tolerated = match wishes.max_stale {
        Some(MaxStale::Any) => true,
        Some(MaxStale::Seconds(max)) => staleness_ms <= millis(max),
        None => false,
    };
    if tolerated {
        return Decision::ServeStale;
    }
    // A client with `max-age` and without `max-stale` does not accept a stale response (§5.2.1.1).
    if staleness_ms < policy.stale_while_revalidate_ms && wishes.max_age.is_none() {
        return Decision::ServeAndRevalidate;
    }
    Decision::Validate(ForwardReason::Stale)
}

/// Whether a stored response with this status may answer a request with these fields at all: a 401
/// says that credentials are wanted, and is no answer to a request that has some (RFC 9110
/// §15.5.2).
pub fn suits_credentials(status: StatusCode, request: &HeaderMap) -> bool {
    status != StatusCode::UNAUTHORIZED || !request.contains_key(AUTHORIZATION)
}

/// What went wrong when the origin was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No response: refused, timed out, closed.
    Disconnected,
    /// A response with this status.
    Status(StatusCode),
}

impl Failure {
    /// Whether a stored response with this status is better than the failure: of two errors the
    /// newer one is.
    pub fn is_worse_than(self, stored: StatusCode) -> bool {
        self == Failure::Disconnected || !is_of_server(stored)
    }
}

/// Whether it is an error that something stale may hide. RFC 5861 §4 names four; a status that is
/// not known counts as a 500 (RFC 9110 §15), as the 520 to 530 of some networks before origins, and
/// so does what is no status. Not those that say of the request that it will not be answered.
fn is_of_server(status: StatusCode) -> bool {
    status.as_u16() >= 500 && !matches!(status.as_u16(), 501 | 505 | 506 | 510 | 511)
}

/// Whether a stored response may be served in place of a failure (§4.2.4, §4.3.3, RFC 5861 §4).
///
/// A client's `max-age` and `min-fresh` were honoured by asking the origin. If the origin has no
/// newer response, a stale one is better than none, and `Age` discloses it: package managers and
/// reloading browsers always send `max-age=0`. `no-cache`, however, forbids any use without
/// validation.
pub fn may_serve_on_error(
    request: &RequestDirectives,
    policy: &Policy,
    failure: Failure,
    caching: &CachingConfig,
    now_ms: u64,
) -> bool {
    let disconnected = match failure {
        Failure::Disconnected => true,
        Failure::Status(status) if is_of_server(status) => false,
        Failure::Status(_) => return false,
    };
    let wishes = wishes(request, caching);
    if wishes.no_cache || policy.no_cache {
        return false;
    }
    let asked_ms = millis(wishes.stale_if_error_s.unwrap_or(0));
    let stale_if_error_ms = asked_ms.max(policy.stale_if_error_ms);
    match policy.staleness_ms(now_ms) {
        // It is fresh: only the client demanded the request to the origin.
        None => disconnected || stale_if_error_ms > 0,
        Some(_) if policy.never_stale => false,
        Some(staleness_ms) => {
            staleness_ms < stale_if_error_ms
                || (disconnected && staleness_ms < millis(caching.disconnected_stale_max_s))
        }
    }
}

/// The request directives that the configuration obeys.
fn wishes(request: &RequestDirectives, caching: &CachingConfig) -> RequestDirectives {
    if caching.obey_request_directives {
        return *request;
    }
    RequestDirectives {
        no_store: request.no_store,
        only_if_cached: request.only_if_cached,
        ..RequestDirectives::default()
    }
}

#[cfg(test)]
#[path = "reuse_tests.rs"]
mod tests;
