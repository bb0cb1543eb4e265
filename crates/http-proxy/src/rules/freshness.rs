//! How long a response stays fresh and how old it is (RFC 9111 §4.2).
//!
//! Invariants: all arithmetic saturates; a clock that jumped back makes nothing younger than it
//! was when it arrived. Heuristics apply only where nothing explicit was said.

use http::header::{AGE, DATE, EXPIRES, LAST_MODIFIED};
use http::{HeaderMap, StatusCode};

use super::cache_control::{CacheControl, delta_seconds};
use super::dates;

/// Share of the time since `Last-Modified` that counts as fresh, as a divisor.
const HEURISTIC_DIVISOR: u64 = 10;
/// Longest lifetime a heuristic may give.
const HEURISTIC_LIFETIME_MAX_S: u64 = 24 * 3600;

/// Where a lifetime came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LifetimeSource {
    /// `s-maxage`, `max-age` or `Expires`.
    Explicit,
    /// A tenth of the time since `Last-Modified`.
    Heuristic,
    /// Nothing says how long: stale at once.
    None,
}

/// Freshness lifetime (§4.2.1, §4.2.2) in seconds.
pub(crate) fn lifetime(
    status: StatusCode,
    headers: &HeaderMap,
    cache_control: &CacheControl,
    response_time_s: u64,
) -> (u64, LifetimeSource) {
    if let Some(seconds) = cache_control.s_maxage.or(cache_control.max_age) {
        return (seconds, LifetimeSource::Explicit);
    }
    let date = dates::header(headers, &DATE).unwrap_or(response_time_s);
    if headers.contains_key(EXPIRES) {
        // An unreadable date, `0` above all, is in the past (§5.3).
        let expires = dates::header(headers, &EXPIRES).unwrap_or(0);
        return (expires.saturating_sub(date), LifetimeSource::Explicit);
    }
    if !(heuristically_cacheable(status) || cache_control.public) {
        return (0, LifetimeSource::None);
    }
    match dates::header(headers, &LAST_MODIFIED) {
        Some(modified) if modified < date => {
            let seconds = (date - modified) / HEURISTIC_DIVISOR;
            (seconds.min(HEURISTIC_LIFETIME_MAX_S), LifetimeSource::Heuristic)
        }
        _ => (0, LifetimeSource::None),
    }
}

/// Status codes cacheable without explicit freshness (RFC 9110 §15.1), less 206.
pub(crate) fn heuristically_cacheable(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// `corrected_initial_age` (§4.2.3): how old the response was when it had arrived.
pub(crate) fn initial_age(headers: &HeaderMap, request_time_s: u64, response_time_s: u64) -> u64 {
    let date = dates::header(headers, &DATE).unwrap_or(response_time_s);
    let apparent_age = response_time_s.saturating_sub(date);
    let response_delay = response_time_s.saturating_sub(request_time_s);
    apparent_age.max(age_value(headers).saturating_add(response_delay))
}

/// The first member of the first `Age` line; zero if it is not a number (§5.1).
fn age_value(headers: &HeaderMap) -> u64 {
    let Some(value) = headers.get(AGE) else { return 0 };
    let first = value.as_bytes().split(|b| *b == b',').next().unwrap_or_default();
    delta_seconds(first.trim_ascii()).unwrap_or(0)
}

/// `current_age` (§4.2.3).
pub(crate) fn current_age(initial_age_s: u64, response_time_s: u64, now_s: u64) -> u64 {
    initial_age_s.saturating_add(now_s.saturating_sub(response_time_s))
}

#[cfg(test)]
mod tests {
    use super::LifetimeSource::{Explicit, Heuristic, None as Nothing};
    use super::*;
    use http::{HeaderName, HeaderValue};

    const NOW: u64 = 784_111_777;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(n, v)| (n.parse::<HeaderName>().unwrap(), HeaderValue::from_str(v).unwrap()))
            .collect()
    }

    #[test]
    fn lifetimes() {
        let at = |offset: i64| dates::format(NOW.wrapping_add_signed(offset));
        let (plus60, minus1000, long_ago) = (at(60), at(-1000), at(-100_000_000));
        let now = at(0);
        for (status, lines, expected) in [
            (200, vec![("cache-control", "max-age=10, s-maxage=5")], (5, Explicit)),
            (200, vec![("cache-control", "max-age=10"), ("expires", &*plus60)], (10, Explicit)),
            (200, vec![("expires", &*plus60), ("date", &*now)], (60, Explicit)),
            (200, vec![("expires", &*plus60)], (60, Explicit)),
            (200, vec![("expires", "0"), ("last-modified", &*long_ago)], (0, Explicit)),
            (200, vec![("expires", &*minus1000), ("date", &*now)], (0, Explicit)),
            (200, vec![("last-modified", &*minus1000), ("date", &*now)], (100, Heuristic)),
            (200, vec![("last-modified", &*long_ago)], (86_400, Heuristic)),
            (200, vec![("last-modified", &*plus60), ("date", &*now)], (0, Nothing)),
            (302, vec![("last-modified", &*minus1000)], (0, Nothing)),
            (
                302,
                vec![("last-modified", &*minus1000), ("cache-control", "public")],
                (100, Heuristic),
            ),
            (302, vec![("cache-control", "max-age=9")], (9, Explicit)),
            (
                200,
                vec![("cache-control", "max-age=x"), ("last-modified", &*long_ago)],
                (0, Explicit),
            ),
            (200, vec![], (0, Nothing)),
        ] {
            let map = headers(&lines);
            let status = StatusCode::from_u16(status).unwrap();
            let got = lifetime(status, &map, &CacheControl::of(&map), NOW);
            assert_eq!(got, expected, "{status} {lines:?}");
        }
    }

    #[test]
    fn ages() {
        let date = dates::format(NOW - 30);
        for (lines, delay, expected) in [
            (vec![], 0, 0),
            (vec![], 7, 7),
            (vec![("date", &*date)], 0, 30),
            (vec![("date", &*date), ("age", "100")], 7, 107),
            (vec![("date", &*date), ("age", "2")], 7, 30),
            (vec![("age", "5, 500")], 0, 5),
            (vec![("age", "-5")], 0, 0),
            (vec![("age", "old")], 0, 0),
            (vec![("age", "99999999999999999999")], 0, 1 << 31),
        ] {
            assert_eq!(initial_age(&headers(&lines), NOW - delay, NOW), expected, "{lines:?}");
        }
        assert_eq!(current_age(5, NOW, NOW + 10), 15);
        assert_eq!(current_age(5, NOW, NOW - 10), 5, "clock jumped back");
        assert_eq!(current_age(u64::MAX, 0, NOW), u64::MAX);
    }
}
