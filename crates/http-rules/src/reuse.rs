//! Whether a stored response may answer a request as it is (RFC 9111 §4, §4.2.4, §5.2.1).
//!
//! Invariants: a stale response is served only if the client, the origin or the operator permits
//! it and the response does not forbid it; who asks for validation is told apart, the client
//! ([`Forward::Request`]) or age ([`Forward::Stale`]). Nothing here allocates.

use http::{HeaderMap, StatusCode};

use crate::cache_control::{MaxStale, RequestDirectives, ResponseDirectives};
use crate::cache_status::Forward;
use crate::config::Rules;
use crate::freshness::{self, Lifetime};

/// What a stored response says of its own use, and when it came: computed when it is stored, kept
/// with it, and all that deciding about a hit needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// Freshness lifetime.
    pub lifetime_s: u64,
    /// Age when it arrived (§4.2.3).
    pub initial_age_s: u64,
    /// When it arrived.
    pub response_time_s: u64,
    /// How long after its lifetime it may be served while it is validated (RFC 5861 §3).
    pub stale_while_revalidate_s: u64,
    /// How long after its lifetime it may be served if the origin fails (RFC 5861 §4).
    pub stale_if_error_s: u64,
    /// Validate before every use.
    pub no_cache: bool,
    /// Never serve stale: `must-revalidate`, `proxy-revalidate` or `s-maxage`.
    pub never_stale: bool,
    /// Does not change while fresh: a client's `max-age` is no reason to ask (RFC 8246 §2.1).
    pub immutable: bool,
}

/// What is to be known about a response to make its [`Policy`].
#[derive(Debug, Clone, Copy)]
pub struct Arrived<'a> {
    /// Status code.
    pub status: StatusCode,
    /// Its fields; after a 304, those of both merged.
    pub headers: &'a HeaderMap,
    /// Fields of the message that came, `Age` among them; after a 304, those of the 304.
    pub received: &'a HeaderMap,
    /// What they say of caching.
    pub directives: &'a ResponseDirectives,
    /// When the request was sent.
    pub request_time_s: u64,
    /// When the response arrived.
    pub response_time_s: u64,
}

impl Policy {
    /// The policy of a response.
    pub fn of(arrived: Arrived<'_>, rules: &Rules) -> Policy {
        let Arrived { status, headers, received, directives, request_time_s, response_time_s } =
            arrived;
        let lifetime = Lifetime::of(status, headers, directives, rules, response_time_s);
        let (swr, sie) = (directives.stale_while_revalidate_s, directives.stale_if_error_s);
        let allowed_beside = rules.stale_beside_s_maxage && (swr.is_some() || sie.is_some());
        Policy {
            lifetime_s: lifetime.seconds,
            initial_age_s: freshness::initial_age(received, request_time_s, response_time_s),
            response_time_s,
            stale_while_revalidate_s: swr.unwrap_or(rules.stale_while_revalidate_s),
            stale_if_error_s: sie.unwrap_or(rules.stale_if_error_s),
            no_cache: directives.no_cache,
            never_stale: directives.must_revalidate
                || directives.proxy_revalidate
                || (directives.s_maxage.is_some() && !allowed_beside),
            immutable: directives.immutable,
        }
    }

    /// `current_age` (§4.2.3).
    pub fn age_s(&self, now_s: u64) -> u64 {
        freshness::current_age(self.initial_age_s, self.response_time_s, now_s)
    }

    /// Seconds of freshness left; negative if stale.
    pub fn ttl_s(&self, now_s: u64) -> i64 {
        let signed = |s: u64| i64::try_from(s).unwrap_or(i64::MAX);
        signed(self.lifetime_s).saturating_sub(signed(self.age_s(now_s)))
    }

    /// Seconds past its lifetime; `None` while it is fresh.
    pub fn staleness_s(&self, now_s: u64) -> Option<u64> {
        self.age_s(now_s).checked_sub(self.lifetime_s)
    }

    /// The same, stale from now on: after a sign that the resource has changed (§4.3.5).
    pub fn made_stale(self) -> Policy {
        Policy { lifetime_s: 0, stale_while_revalidate_s: 0, ..self }
    }
}

/// What to do with a stored response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Serve it: it is fresh.
    Serve,
    /// Serve it though it is stale: the client said `max-stale`.
    ServeStale,
    /// Serve it though it is stale, and validate it behind (`stale-while-revalidate`).
    ServeAndRevalidate,
    /// Ask the origin first, for this reason.
    Validate(Forward),
}

/// Decides for one request on one stored response.
pub fn decide(request: &RequestDirectives, policy: &Policy, rules: &Rules, now_s: u64) -> Decision {
    let wishes = wishes(request, rules);
    let age_s = policy.age_s(now_s);
    let fresh = policy.lifetime_s > age_s;
    let too_old = wishes.max_age.is_some_and(|max| age_s > max);
    if wishes.no_cache || (too_old && !(policy.immutable && fresh)) {
        return Decision::Validate(Forward::Request);
    }
    if policy.no_cache {
        return Decision::Validate(Forward::Stale);
    }
    if fresh {
        let left_s = policy.lifetime_s - age_s;
        return match wishes.min_fresh {
            Some(wanted_s) if left_s < wanted_s => Decision::Validate(Forward::Request),
            _ => Decision::Serve,
        };
    }
    if policy.never_stale || wishes.min_fresh.is_some() {
        return Decision::Validate(Forward::Stale);
    }
    let staleness_s = age_s - policy.lifetime_s;
    let tolerated = match wishes.max_stale {
        Some(MaxStale::Any) => true,
        Some(MaxStale::Seconds(max)) => staleness_s <= max,
        None => false,
    };
    if tolerated {
        return Decision::ServeStale;
    }
    // A client that says `max-age` and no `max-stale` does not want a stale response (§5.2.1.1).
    if staleness_s < policy.stale_while_revalidate_s && wishes.max_age.is_none() {
        return Decision::ServeAndRevalidate;
    }
    Decision::Validate(Forward::Stale)
}

/// What went wrong when the origin was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No response: refused, timed out, closed.
    Disconnected,
    /// A response with this status.
    Status(StatusCode),
}

/// Whether a stored response may be served in place of a failure (§4.2.4, §4.3.3, RFC 5861 §4).
///
/// A client's `max-age` and `min-fresh` were obeyed when the origin was asked; that it cannot say
/// anything newer is no reason to answer nothing, and `Age` tells what came. Package managers and
/// browsers that reload say `max-age=0` every time. `no-cache` does mean: not without validation.
pub fn may_serve_on_error(
    request: &RequestDirectives,
    policy: &Policy,
    failure: Failure,
    rules: &Rules,
    now_s: u64,
) -> bool {
    let disconnected = match failure {
        Failure::Disconnected => true,
        Failure::Status(status) if matches!(status.as_u16(), 500 | 502 | 503 | 504) => false,
        Failure::Status(_) => return false,
    };
    let wishes = wishes(request, rules);
    if wishes.no_cache || policy.no_cache {
        return false;
    }
    let stale_if_error_s = wishes.stale_if_error_s.unwrap_or(0).max(policy.stale_if_error_s);
    match policy.staleness_s(now_s) {
        // Fresh: only the client wanted the origin asked.
        None => disconnected || stale_if_error_s > 0,
        Some(_) if policy.never_stale => false,
        Some(staleness_s) => {
            staleness_s < stale_if_error_s
                || (disconnected && staleness_s < rules.disconnected_stale_max_s)
        }
    }
}

/// What of a request's wishes is obeyed.
fn wishes(request: &RequestDirectives, rules: &Rules) -> RequestDirectives {
    if rules.obey_request_directives {
        return *request;
    }
    RequestDirectives {
        no_store: request.no_store,
        only_if_cached: request.only_if_cached,
        ..RequestDirectives::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_headers as headers;

    const NOW: u64 = 1_000_000;
    const SERVE: Decision = Decision::Serve;
    const STALE_OK: Decision = Decision::ServeStale;
    const BEHIND: Decision = Decision::ServeAndRevalidate;
    const ASKED: Decision = Decision::Validate(Forward::Request);
    const STALE: Decision = Decision::Validate(Forward::Stale);

    fn policy(text: &str, rules: &Rules) -> Policy {
        let map = headers(&[("cache-control", text)]);
        let directives = ResponseDirectives::of(&map, rules);
        let arrived = Arrived {
            status: StatusCode::OK,
            headers: &map,
            received: &map,
            directives: &directives,
            request_time_s: NOW,
            response_time_s: NOW,
        };
        Policy::of(arrived, rules)
    }

    fn wish(text: &str) -> RequestDirectives {
        RequestDirectives::of(&headers(&[("cache-control", text)]))
    }

    /// RFC 9111 §4.2, §4.2.4, §5.2.1.
    #[test]
    fn decisions() {
        let rules = Rules::default();
        for (response, age_s, request, expected) in [
            ("max-age=60", 0, "", SERVE),
            ("max-age=60", 59, "", SERVE),
            ("max-age=60", 60, "", STALE),
            ("max-age=0", 0, "", STALE),
            ("max-age=60", 10, "no-cache", ASKED),
            ("max-age=60", 10, "max-age=10", SERVE),
            ("max-age=60", 11, "max-age=10", ASKED),
            ("max-age=60", 1, "max-age=0", ASKED),
            ("max-age=60", 1, "max-age=junk", ASKED),
            ("max-age=60", 10, "no-store", SERVE),
            ("max-age=60, immutable", 1, "max-age=0", SERVE),
            ("max-age=60, immutable", 1, "no-cache", ASKED),
            ("max-age=60, immutable", 60, "max-age=0", ASKED),
            ("max-age=60", 10, "min-fresh=50", SERVE),
            ("max-age=60", 11, "min-fresh=50", ASKED),
            ("max-age=60", 70, "min-fresh=1, max-stale", STALE),
            ("max-age=60", 70, "max-stale", STALE_OK),
            ("max-age=60", 70, "max-stale=10", STALE_OK),
            ("max-age=60", 71, "max-stale=10", STALE),
            ("max-age=60, must-revalidate", 59, "", SERVE),
            ("max-age=60, must-revalidate", 70, "max-stale", STALE),
            ("max-age=60, proxy-revalidate", 70, "max-stale", STALE),
            ("s-maxage=60", 70, "max-stale", STALE),
            ("no-cache, max-age=60", 1, "max-stale", STALE),
            ("no-cache=\"x\", max-age=60", 1, "", SERVE),
            ("max-age=60", 70, "max-stale, max-age=30", ASKED),
            ("max-age=60", 70, "max-stale, max-age=80", STALE_OK),
        ] {
            let policy = policy(response, &rules);
            let got = decide(&wish(request), &policy, &rules, NOW + age_s);
            assert_eq!(got, expected, "{response} at {age_s}: {request}");
        }
    }

    /// RFC 5861 §3: the window is exact.
    #[test]
    fn stale_while_revalidate() {
        let rules = Rules::default();
        for (response, age_s, request, expected) in [
            ("max-age=60, stale-while-revalidate=30", 59, "", SERVE),
            ("max-age=60, stale-while-revalidate=30", 60, "", BEHIND),
            ("max-age=60, stale-while-revalidate=30", 89, "", BEHIND),
            ("max-age=60, stale-while-revalidate=30", 90, "", STALE),
            ("max-age=60, stale-while-revalidate=30", 70, "max-stale=20", STALE_OK),
            ("max-age=60, stale-while-revalidate=30", 70, "no-cache", ASKED),
            ("max-age=60, stale-while-revalidate=30", 70, "max-age=80", STALE),
            ("max-age=60, stale-while-revalidate=30, must-revalidate", 70, "", STALE),
            ("s-maxage=60, stale-while-revalidate=30", 70, "", STALE),
            ("max-age=60, stale-while-revalidate=30, no-cache", 70, "", STALE),
        ] {
            let policy = policy(response, &rules);
            let got = decide(&wish(request), &policy, &rules, NOW + age_s);
            assert_eq!(got, expected, "{response} at {age_s}: {request}");
        }
        let mut rules = Rules { stale_beside_s_maxage: true, ..Rules::default() };
        let shared = policy("s-maxage=60, stale-while-revalidate=30", &rules);
        assert_eq!(decide(&wish(""), &shared, &rules, NOW + 70), BEHIND);
        rules.stale_while_revalidate_s = 20;
        assert_eq!(decide(&wish(""), &policy("max-age=60", &rules), &rules, NOW + 70), BEHIND);
        let silent = policy("s-maxage=60", &rules);
        assert_eq!(decide(&wish(""), &silent, &rules, NOW + 70), STALE);
    }

    /// RFC 5861 §4, RFC 9111 §4.2.4.
    #[test]
    fn stale_in_place_of_errors() {
        use Failure::{Disconnected, Status};
        const UNAVAILABLE: Failure = Status(StatusCode::SERVICE_UNAVAILABLE);
        let rules = Rules { disconnected_stale_max_s: 100, ..Rules::default() };
        for (response, age_s, request, failure, expected) in [
            ("max-age=60", 70, "", Disconnected, true),
            ("max-age=60", 159, "", Disconnected, true),
            ("max-age=60", 160, "", Disconnected, false),
            ("max-age=60", 70, "", UNAVAILABLE, false),
            ("max-age=60, stale-if-error=30", 89, "", UNAVAILABLE, true),
            ("max-age=60, stale-if-error=30", 90, "", UNAVAILABLE, false),
            ("max-age=60, stale-if-error=300", 300, "", Disconnected, true),
            ("max-age=60, stale-if-error=30", 70, "", Status(StatusCode::NOT_FOUND), false),
            ("max-age=60", 70, "stale-if-error=30", UNAVAILABLE, true),
            ("max-age=60, must-revalidate, stale-if-error=30", 70, "", Disconnected, false),
            ("max-age=60, proxy-revalidate", 70, "", Disconnected, false),
            ("s-maxage=60", 70, "", Disconnected, false),
            ("no-cache, max-age=60", 10, "", Disconnected, false),
            ("max-age=60", 70, "no-cache", Disconnected, false),
            ("max-age=60", 70, "max-age=10", Disconnected, true),
            ("max-age=60", 10, "max-age=0", Disconnected, true),
            ("max-age=60", 10, "max-age=0, no-cache", Disconnected, false),
            ("max-age=60", 160, "max-age=0", Disconnected, false),
            ("max-age=60", 10, "max-age=0", UNAVAILABLE, false),
            ("max-age=60, stale-if-error=30", 10, "max-age=0", UNAVAILABLE, true),
            ("max-age=60, stale-if-error=30", 89, "max-age=0", UNAVAILABLE, true),
            ("max-age=60, stale-if-error=30", 90, "max-age=0", UNAVAILABLE, false),
            ("max-age=60, must-revalidate", 10, "min-fresh=55", Disconnected, true),
            ("max-age=60, must-revalidate", 60, "max-age=0", Disconnected, false),
            ("max-age=60, must-revalidate", 10, "", Disconnected, true),
        ] {
            let policy = policy(response, &rules);
            let got = may_serve_on_error(&wish(request), &policy, failure, &rules, NOW + age_s);
            assert_eq!(got, expected, "{response} at {age_s}: {request} {failure:?}");
        }
    }

    #[test]
    fn clients_may_be_kept_from_forcing_validation() {
        let rules = Rules { obey_request_directives: false, ..Rules::default() };
        let policy = policy("max-age=60", &rules);
        assert_eq!(decide(&wish("no-cache, max-age=0"), &policy, &rules, NOW + 10), SERVE);
        assert_eq!(decide(&wish("max-stale"), &policy, &rules, NOW + 70), STALE);
    }

    #[test]
    fn time_left() {
        let policy = policy("max-age=60", &Rules::default());
        assert_eq!((policy.ttl_s(NOW + 10), policy.staleness_s(NOW + 10)), (50, None));
        assert_eq!((policy.ttl_s(NOW + 70), policy.staleness_s(NOW + 70)), (-10, Some(10)));
        assert_eq!(policy.made_stale().staleness_s(NOW), Some(0));
    }
}
