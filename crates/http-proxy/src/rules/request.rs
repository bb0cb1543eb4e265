//! Whether a stored response may answer a request as it is (RFC 9111 §4, §4.2.4, §5.2.1).
//!
//! Invariants: a stale response is served only if the client asked for it with `max-stale` and the
//! response does not forbid it. Who asks for validation is told apart: the client
//! ([`Verdict::Validate`] with `Request`) or age (`Stale`).

use super::cache_control::{CacheControl, MaxStale};
use super::cache_status::Forward;

/// What a stored response says of its own use, computed once when it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Policy {
    /// Freshness lifetime.
    pub(crate) lifetime_s: u64,
    /// Validate before every use.
    pub(crate) no_cache: bool,
    /// Never serve stale: `must-revalidate`, `proxy-revalidate` or `s-maxage`.
    pub(crate) never_stale: bool,
}

impl Policy {
    /// The policy of a response with this lifetime.
    pub(crate) fn new(lifetime_s: u64, cache_control: &CacheControl) -> Policy {
        Policy {
            lifetime_s,
            no_cache: cache_control.no_cache,
            never_stale: cache_control.must_revalidate
                || cache_control.proxy_revalidate
                || cache_control.s_maxage.is_some(),
        }
    }
}

/// What to do with a stored response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Serve it as it is.
    Serve,
    /// Ask the origin first, for this reason.
    Validate(Forward),
}

/// Decides for one request on one stored response of the given age.
pub(crate) fn judge(request: &CacheControl, policy: &Policy, age_s: u64) -> Verdict {
    if request.no_cache || request.max_age.is_some_and(|max| age_s > max) {
        return Verdict::Validate(Forward::Request);
    }
    if policy.no_cache {
        return Verdict::Validate(Forward::Stale);
    }
    if policy.lifetime_s > age_s {
        let left_s = policy.lifetime_s - age_s;
        return match request.min_fresh {
            Some(wanted_s) if left_s < wanted_s => Verdict::Validate(Forward::Request),
            _ => Verdict::Serve,
        };
    }
    let staleness_s = age_s - policy.lifetime_s;
    let tolerated = match request.max_stale {
        Some(MaxStale::Any) => true,
        Some(MaxStale::Seconds(max)) => staleness_s <= max,
        None => false,
    };
    if tolerated && !policy.never_stale && request.min_fresh.is_none() {
        Verdict::Serve
    } else {
        Verdict::Validate(Forward::Stale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue, header::CACHE_CONTROL};

    fn parse(text: &str) -> CacheControl {
        let mut headers = HeaderMap::new();
        headers.insert(CACHE_CONTROL, HeaderValue::from_str(text).unwrap());
        CacheControl::of_request(&headers)
    }

    #[test]
    fn verdicts() {
        const SERVE: Verdict = Verdict::Serve;
        const ASKED: Verdict = Verdict::Validate(Forward::Request);
        const STALE: Verdict = Verdict::Validate(Forward::Stale);
        for (response, age_s, request, expected) in [
            ("max-age=60", 59, "", SERVE),
            ("max-age=60", 60, "", STALE),
            ("max-age=60", 10, "no-cache", ASKED),
            ("max-age=60", 10, "max-age=10", SERVE),
            ("max-age=60", 11, "max-age=10", ASKED),
            ("max-age=60", 1, "max-age=0", ASKED),
            ("max-age=60", 1, "max-age=junk", ASKED),
            ("max-age=60", 10, "min-fresh=50", SERVE),
            ("max-age=60", 11, "min-fresh=50", ASKED),
            ("max-age=60", 70, "max-stale", SERVE),
            ("max-age=60", 70, "max-stale=10", SERVE),
            ("max-age=60", 71, "max-stale=10", STALE),
            ("max-age=60, must-revalidate", 70, "max-stale", STALE),
            ("max-age=60, proxy-revalidate", 70, "max-stale", STALE),
            ("s-maxage=60", 70, "max-stale", STALE),
            ("no-cache, max-age=60", 1, "max-stale", STALE),
            ("max-age=60", 70, "max-stale, max-age=30", ASKED),
        ] {
            let cc = parse(response);
            let lifetime_s = cc.s_maxage.or(cc.max_age).unwrap();
            let got = judge(&parse(request), &Policy::new(lifetime_s, &cc), age_s);
            assert_eq!(got, expected, "{response} at {age_s}: {request}");
        }
    }
}
