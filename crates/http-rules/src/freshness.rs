//! Freshness lifetime and age of responses (RFC 9111 §4.2).
//!
//! Invariants: all arithmetic saturates; after a clock has jumped back no response is younger than
//! it was on arrival (a jump of more than a minute makes it stale: `reuse`). Heuristics apply only
//! without explicit freshness.

use http::header::{AGE, DATE, EXPIRES, LAST_MODIFIED};
use http::{HeaderMap, StatusCode};

use crate::cache_control::ResponseDirectives;
use crate::config::CachingConfig;
use crate::directive::delta_seconds;
use crate::{dates, list_members};

/// Source of a lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifetimeSource {
    /// `s-maxage`, `max-age` or `Expires`.
    Explicit,
    /// A share of the time since `Last-Modified`.
    Heuristic,
    /// No source: stale at once.
    None,
}

/// A freshness lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// In seconds.
    pub seconds: u64,
    /// Its source.
    pub source: LifetimeSource,
}

impl Lifetime {
    /// Freshness lifetime (§4.2.1, §4.2.2) in a shared cache.
    pub fn of(
        status: StatusCode,
        headers: &HeaderMap,
        directives: &ResponseDirectives,
        caching: &CachingConfig,
        response_time_s: u64,
    ) -> Lifetime {
        let explicit = |seconds| Lifetime { seconds, source: LifetimeSource::Explicit };
        if let Some(seconds) = directives.s_maxage.or(directives.max_age) {
            return explicit(seconds);
        }
        let date_s = dates::header(headers, &DATE, response_time_s).unwrap_or(response_time_s);
        if headers.contains_key(EXPIRES) && !directives.targeted {
            // An invalid date, above all `0`, is in the past (§5.3).
            let expires_s = dates::header(headers, &EXPIRES, response_time_s).unwrap_or(0);
            return explicit(expires_s.saturating_sub(date_s));
        }
        let none = Lifetime { seconds: 0, source: LifetimeSource::None };
        if !(heuristically_cacheable(status) || directives.public) {
            return none;
        }
        match dates::header(headers, &LAST_MODIFIED, response_time_s) {
            Some(modified_s) if modified_s < date_s => {
                let percents =
                    (date_s - modified_s).saturating_mul(caching.heuristic_percent.into());
                let share_s = percents / 100;
                let seconds = share_s.min(caching.heuristic_lifetime_max_s);
                Lifetime { seconds, source: LifetimeSource::Heuristic }
            }
            _ => none,
        }
    }
}

/// Status codes cacheable without explicit freshness (RFC 9110 §15.1).
pub fn heuristically_cacheable(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// `corrected_initial_age` (§4.2.3): the response's age on arrival, in milliseconds.
///
/// `Date` has a resolution of one second. If its second had not ended when the request was sent,
/// the response may have been generated after that, and the transfer time is the better estimate of
/// its age; §4.2.3 allows using `corrected_age_value` alone. Any earlier `Date` counts from the
/// beginning of its second.
pub fn initial_age(headers: &HeaderMap, request_time_ms: u64, response_time_ms: u64) -> u64 {
    let date_s = dates::header(headers, &DATE, response_time_ms / 1000);
    let apparent_age = match date_s.map(|date_s| date_s.saturating_mul(1000)) {
        Some(date_ms) if date_ms.saturating_add(1000) <= request_time_ms => {
            response_time_ms.saturating_sub(date_ms)
        }
        _ => 0,
    };
    apparent_age.max(corrected_age_value(headers, request_time_ms, response_time_ms))
}

/// `corrected_age_value` (§4.2.3), in milliseconds: by `Age` and the time on the way.
pub(crate) fn corrected_age_value(
    headers: &HeaderMap,
    request_time_ms: u64,
    response_time_ms: u64,
) -> u64 {
    let response_delay = response_time_ms.saturating_sub(request_time_ms);
    age_value(headers).saturating_mul(1000).saturating_add(response_delay)
}

/// The first member of `Age` over all its lines, in seconds; zero if it is not a number (§5.1).
fn age_value(headers: &HeaderMap) -> u64 {
    list_members(headers, &AGE).next().and_then(delta_seconds).unwrap_or(0)
}

/// `current_age` (§4.2.3), in milliseconds.
pub fn current_age(initial_age_ms: u64, response_time_ms: u64, now_ms: u64) -> u64 {
    initial_age_ms.saturating_add(now_ms.saturating_sub(response_time_ms))
}

#[cfg(test)]
mod tests {
    use super::LifetimeSource::{Explicit, Heuristic, None as Nothing};
    use super::*;
    use crate::test_headers as headers;

    const NOW: u64 = 784_111_777;

    /// RFC 9111 §4.2.1, §4.2.2, §5.3.
    #[test]
    fn lifetimes() {
        let at = |offset: i64| dates::format(NOW.wrapping_add_signed(offset));
        let (plus60, minus1000, long_ago) = (at(60), at(-1000), at(-100_000_000));
        let (now, minus30) = (at(0), at(-30));
        for (status, lines, expected) in [
            (200, vec![("cache-control", "max-age=10, s-maxage=5")], (5, Explicit)),
            (200, vec![("cache-control", "max-age=10"), ("expires", &*plus60)], (10, Explicit)),
            (200, vec![("cache-control", "max-age=10"), ("expires", "0")], (10, Explicit)),
            (200, vec![("cdn-cache-control", "foo"), ("expires", &*plus60)], (0, Nothing)),
            (200, vec![("expires", &*plus60), ("date", &*now)], (60, Explicit)),
            (200, vec![("expires", &*plus60), ("date", &*minus30)], (90, Explicit)),
            (200, vec![("expires", &*now), ("date", &*plus60)], (0, Explicit)),
            (200, vec![("expires", &*plus60)], (60, Explicit)),
            (200, vec![("expires", &*plus60), ("expires", &*now)], (0, Explicit)),
            (200, vec![("expires", "0"), ("last-modified", &*long_ago)], (0, Explicit)),
            (200, vec![("expires", &*minus1000), ("date", &*now)], (0, Explicit)),
            (200, vec![("last-modified", &*minus1000), ("date", &*now)], (100, Heuristic)),
            (200, vec![("last-modified", &*minus30), ("date", &*now)], (3, Heuristic)),
            (200, vec![("last-modified", &*now), ("date", &*now)], (0, Nothing)),
            (200, vec![("last-modified", &*long_ago)], (86_400, Heuristic)),
            (200, vec![("last-modified", &*plus60), ("date", &*now)], (0, Nothing)),
            (302, vec![("last-modified", &*minus1000)], (0, Nothing)),
            (
                302,
                vec![("last-modified", &*minus1000), ("cache-control", "public")],
                (100, Heuristic),
            ),
            (302, vec![("cache-control", "max-age=9")], (9, Explicit)),
            (599, vec![("cache-control", "max-age=9")], (9, Explicit)),
            (
                200,
                vec![("cache-control", "max-age=x"), ("last-modified", &*long_ago)],
                (0, Explicit),
            ),
            (200, vec![], (0, Nothing)),
        ] {
            let map = headers(&lines);
            let caching = CachingConfig::default();
            let directives = ResponseDirectives::of(&map, &caching);
            let status = StatusCode::from_u16(status).unwrap();
            let got = Lifetime::of(status, &map, &directives, &caching, NOW);
            assert_eq!((got.seconds, got.source), expected, "{status} {lines:?}");
        }
        let (map, none) =
            (headers(&[("last-modified", &minus1000)]), ResponseDirectives::default());
        for (heuristic_percent, heuristic_lifetime_max_s, expected) in
            [(0, 900, 0), (50, 900, 500), (255, 9000, 2550), (50, 7, 7)]
        {
            let caching = CachingConfig {
                heuristic_percent,
                heuristic_lifetime_max_s,
                ..CachingConfig::default()
            };
            let got = Lifetime::of(StatusCode::OK, &map, &none, &caching, NOW);
            assert_eq!(got.seconds, expected, "{heuristic_percent}%");
        }
    }

    /// RFC 9110 §15.1, RFC 9111 §4.2.2.
    #[test]
    fn which_codes_may_be_guessed_about() {
        let guessed = [200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501];
        for code in 200..=599 {
            let status = StatusCode::from_u16(code).unwrap();
            assert_eq!(heuristically_cacheable(status), guessed.contains(&code), "{code}");
        }
    }

    /// RFC 9111 §4.2.3, §5.1.
    #[test]
    fn ages() {
        let date = dates::format(NOW - 30);
        let future = dates::format(NOW + 30);
        for (lines, delay, expected) in [
            (vec![], 0, 0),
            (vec![], 7, 7),
            (vec![("date", &*date)], 0, 30),
            (vec![("date", &*future)], 0, 0),
            (vec![("date", "junk")], 0, 0),
            (vec![("date", &*date), ("age", "100")], 7, 107),
            (vec![("date", &*date), ("age", "2")], 7, 30),
            (vec![("age", "5, 500")], 0, 5),
            (vec![("age", "500, 5")], 0, 500),
            (vec![("age", "5"), ("age", "500")], 0, 5),
            (vec![("age", ", 500")], 0, 500),
            (vec![("age", "-5")], 0, 0),
            (vec![("age", "old")], 0, 0),
            (vec![("age", "5.0")], 0, 0),
            (vec![("age", "5;x=1")], 0, 0),
            (vec![("age", "2147483648")], 0, 1 << 31),
            (vec![("age", "99999999999999999999")], 0, 1 << 31),
        ] {
            let (request_time_ms, response_time_ms) = ((NOW - delay) * 1000, NOW * 1000);
            let got = initial_age(&headers(&lines), request_time_ms, response_time_ms);
            assert_eq!(got, expected * 1000, "{lines:?}");
        }
        assert_eq!(current_age(5, NOW, NOW + 10), 15);
        assert_eq!(current_age(5, NOW, NOW - 10), 5, "clock jumped back");
        assert_eq!(current_age(u64::MAX, 0, NOW), u64::MAX);
    }

    /// RFC 9111 §4.2.3: a response that was made while it was asked for is as old as it took to
    /// come, wherever in a second that was; what is older counts from the beginning of its `Date`.
    #[test]
    fn ages_within_a_second() {
        const NOW_MS: u64 = NOW * 1000;
        for (request_ms, response_ms, date, age, expected_ms) in [
            (NOW_MS, NOW_MS, NOW, None, 0),
            (NOW_MS + 700, NOW_MS + 705, NOW, None, 5),
            (NOW_MS + 990, NOW_MS + 1040, NOW, None, 50),
            (NOW_MS + 990, NOW_MS + 1040, NOW + 1, None, 50),
            (NOW_MS + 999, NOW_MS + 2500, NOW, None, 1501),
            (NOW_MS + 1000, NOW_MS + 1001, NOW, None, 1001),
            (NOW_MS + 1700, NOW_MS + 1705, NOW, None, 1705),
            (NOW_MS + 700, NOW_MS + 705, NOW, Some("0"), 5),
            (NOW_MS + 700, NOW_MS + 705, NOW, Some("1"), 1005),
            (NOW_MS + 1700, NOW_MS + 1705, NOW, Some("1"), 1705),
            (NOW_MS + 1700, NOW_MS + 1705, NOW, Some("2"), 2005),
            (NOW_MS + 700, NOW_MS + 600, NOW, None, 0),
        ] {
            let date = dates::format(date);
            let mut lines = vec![("date", &*date)];
            lines.extend(age.map(|age| ("age", age)));
            let got = initial_age(&headers(&lines), request_ms, response_ms);
            assert_eq!(got, expected_ms, "{request_ms} {response_ms} {lines:?}");
        }
    }
}
