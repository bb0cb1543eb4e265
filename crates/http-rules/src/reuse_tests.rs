//! Tables for what may be served, fresh and stale, and when the origin fails.

use super::*;
use crate::config::SetCookie;
use crate::test_headers as headers;

const NOW: u64 = 1_000_000_000;
const SERVE: Decision = Decision::Serve;
const STALE_OK: Decision = Decision::ServeStale;
const BEHIND: Decision = Decision::ServeAndRevalidate;
const ASKED: Decision = Decision::Validate(ForwardReason::Request);
const STALE: Decision = Decision::Validate(ForwardReason::Stale);

fn policy_of(map: &HeaderMap, caching: &CachingConfig) -> Policy {
    let directives = ResponseDirectives::of(map, caching);
    let arrived = Arrived {
        status: StatusCode::OK,
        headers: map,
        received: map,
        directives: &directives,
        with_cookie: false,
        request_time_ms: NOW,
        response_time_ms: NOW,
    };
    Policy::of(arrived, caching)
}

fn policy(text: &str, caching: &CachingConfig) -> Policy {
    policy_of(&headers(&[("cache-control", text)]), caching)
}

fn wish(text: &str) -> RequestDirectives {
    RequestDirectives::of(&headers(&[("cache-control", text)]))
}

/// RFC 9111 §4.2, §4.2.4, §5.2.1.
#[test]
fn decisions() {
    let caching = CachingConfig::default();
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
        let policy = policy(response, &caching);
        let got = decide(&wish(request), &policy, &caching, NOW + age_s * 1000);
        assert_eq!(got, expected, "{response} at {age_s}: {request}");
    }
}

/// RFC 9111 §7.3.
#[test]
fn a_cookie_with_a_lifetime_of_nothing_is_never_served_stale() {
    let caching = CachingConfig { stale_while_revalidate_s: 30, ..CachingConfig::default() };
    for (says, never_stale) in [
        ("max-age=0", true),
        ("public, max-age=0", true),
        ("max-age=0, stale-if-error=0", true),
        ("max-age=0, stale-while-revalidate=9", false),
        ("max-age=1", false),
        ("public", false),
    ] {
        let map = headers(&[("cache-control", says), ("set-cookie", "session=1")]);
        assert_eq!(policy_of(&map, &caching).never_stale, never_stale, "{says}");
        assert!(!policy(says, &caching).never_stale, "{says} without a cookie");
        // A page is no less for one user where its cookie is not stored with it.
        let stripping = CachingConfig { set_cookie: SetCookie::Strip, ..caching.clone() };
        assert_eq!(policy_of(&map, &stripping).never_stale, never_stale, "{says}, stripped");
        for left_out in ["private", "no-cache"] {
            let says = format!("{says}, {left_out}=\"set-cookie\"");
            let map = headers(&[("cache-control", &says), ("set-cookie", "session=1")]);
            assert!(!policy_of(&map, &caching).never_stale, "{says}");
        }
    }
}

/// RFC 9111 §4.2.2, §4.2.4.
#[test]
fn what_a_cookie_was_sent_for_is_never_served_unasked() {
    let caching = CachingConfig {
        stale_if_error_s: 60,
        stale_while_revalidate_s: 60,
        ..CachingConfig::default()
    };
    let of = |with_cookie, says: &str| {
        let map = headers(&[
            ("cache-control", says),
            ("etag", "\"a\""),
            ("last-modified", "Sat, 05 Nov 1994 08:49:37 GMT"),
        ]);
        let directives = ResponseDirectives::of(&map, &caching);
        let arrived = Arrived {
            status: StatusCode::OK,
            headers: &map,
            received: &map,
            directives: &directives,
            with_cookie,
            request_time_ms: NOW * 1000,
            response_time_ms: NOW * 1000,
        };
        Policy::of(arrived, &caching)
    };
    for says in ["", "max-age=0"] {
        let policy = of(true, says);
        assert!(policy.is_personal);
        for wishes in ["", "max-stale, stale-if-error=99"] {
            assert_eq!(decide(&wish(wishes), &policy, &caching, NOW * 1000), STALE, "{wishes}");
            for failure in [Failure::Disconnected, Failure::Status(StatusCode::BAD_GATEWAY)] {
                let now_ms = NOW * 1000;
                assert!(!may_serve_on_error(&wish(wishes), &policy, failure, &caching, now_ms));
            }
        }
    }
    assert_eq!(decide(&wish(""), &of(false, ""), &caching, NOW * 1000), SERVE);
    assert!(!of(false, "max-age=0").is_personal);
    assert!(!of(false, "max-age=0, must-revalidate").is_personal);
    assert!(of(true, "").made_stale().is_personal);
    assert!(!of(false, "max-age=0").allows_no_more_than(&of(true, "")));
    assert!(!of(true, "max-age=9").is_personal);
    assert!(!of(true, "public").is_personal);
}

/// RFC 9111 §4.2, §5.2.1, RFC 5861: every limit but a client's `max-age`, which counts as `Age`
/// does, is met to the millisecond, wherever in a second the response came.
#[test]
fn decisions_within_a_second() {
    let caching = CachingConfig::default();
    for (response, age_ms, request, expected) in [
        ("max-age=1", 0, "", SERVE),
        ("max-age=1", 999, "", SERVE),
        ("max-age=1", 1000, "", STALE),
        ("max-age=0", 0, "", STALE),
        ("max-age=1, stale-while-revalidate=1", 1000, "", BEHIND),
        ("max-age=1, stale-while-revalidate=1", 1999, "", BEHIND),
        ("max-age=1, stale-while-revalidate=1", 2000, "", STALE),
        ("max-age=60", 999, "max-age=0", SERVE),
        ("max-age=60", 1000, "max-age=0", ASKED),
        ("max-age=60", 1999, "max-age=1", SERVE),
        ("max-age=60", 2000, "max-age=1", ASKED),
        ("max-age=2", 1000, "min-fresh=1", SERVE),
        ("max-age=2", 1001, "min-fresh=1", ASKED),
        ("max-age=1", 2000, "max-stale=1", STALE_OK),
        ("max-age=1", 2001, "max-stale=1", STALE),
    ] {
        for moment_ms in [0, 1, 500, 999] {
            let mut policy = policy(response, &caching);
            policy.response_time_ms += moment_ms;
            let now_ms = NOW + moment_ms + age_ms;
            let got = decide(&wish(request), &policy, &caching, now_ms);
            assert_eq!(got, expected, "{response} at {age_ms} ms: {request}");
        }
    }
    let policy = policy("max-age=1, stale-if-error=1", &caching);
    let unavailable = Failure::Status(StatusCode::SERVICE_UNAVAILABLE);
    let stands_in =
        |at_ms| may_serve_on_error(&wish(""), &policy, unavailable, &caching, NOW + at_ms);
    assert_eq!([1000, 1999, 2000].map(stands_in), [true, true, false]);
}

/// RFC 9211 §2.7, RFC 9111 §5.1: what is said in whole seconds.
#[test]
fn seconds_that_are_said() {
    let policy = policy("max-age=2", &CachingConfig::default());
    for (at_ms, age_s, ttl_s) in [
        (0, 0, 2),
        (1, 0, 2),
        (999, 0, 2),
        (1000, 1, 1),
        (1999, 1, 1),
        (2000, 2, 0),
        (2001, 2, 0),
        (2999, 2, 0),
        (3000, 3, -1),
    ] {
        let got = (policy.age_s(NOW + at_ms), policy.ttl_s(NOW + at_ms));
        assert_eq!(got, (age_s, ttl_s), "{at_ms}");
    }
    let forever = Policy { lifetime_ms: u64::MAX, ..policy };
    assert!(forever.ttl_s(NOW) > 0 && forever.made_stale().ttl_s(u64::MAX) < 0);
}

/// RFC 5861 §3: the window is exact.
#[test]
fn stale_while_revalidate() {
    let caching = CachingConfig::default();
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
        let policy = policy(response, &caching);
        let got = decide(&wish(request), &policy, &caching, NOW + age_s * 1000);
        assert_eq!(got, expected, "{response} at {age_s}: {request}");
    }
    let mut caching = CachingConfig { stale_beside_s_maxage: true, ..CachingConfig::default() };
    let shared = policy("s-maxage=60, stale-while-revalidate=30", &caching);
    assert_eq!(decide(&wish(""), &shared, &caching, NOW + 70_000), BEHIND);
    caching.stale_while_revalidate_s = 20;
    assert_eq!(decide(&wish(""), &policy("max-age=60", &caching), &caching, NOW + 70_000), BEHIND);
    let silent = policy("s-maxage=60", &caching);
    assert_eq!(decide(&wish(""), &silent, &caching, NOW + 70_000), STALE);
}

/// RFC 5861 §4, RFC 9111 §4.2.4.
#[test]
fn stale_in_place_of_errors() {
    use Failure::{Disconnected, Status};
    const UNAVAILABLE: Failure = Status(StatusCode::SERVICE_UNAVAILABLE);
    let caching = CachingConfig { disconnected_stale_max_s: 100, ..CachingConfig::default() };
    let no_status = Status(StatusCode::from_u16(600).unwrap());
    for (response, age_s, request, failure, expected) in [
        ("max-age=60", 70, "", Disconnected, true),
        ("max-age=60", 159, "", Disconnected, true),
        ("max-age=60", 160, "", Disconnected, false),
        ("max-age=60", 70, "", UNAVAILABLE, false),
        ("max-age=60, stale-if-error=30", 89, "", UNAVAILABLE, true),
        ("max-age=60, stale-if-error=30", 90, "", UNAVAILABLE, false),
        ("max-age=60, stale-if-error=300", 300, "", Disconnected, true),
        ("max-age=60, stale-if-error=30", 70, "", Status(StatusCode::NOT_FOUND), false),
        ("max-age=60, stale-if-error=30", 70, "", no_status, true),
        ("max-age=60", 70, "", no_status, false),
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
        let policy = policy(response, &caching);
        let got =
            may_serve_on_error(&wish(request), &policy, failure, &caching, NOW + age_s * 1000);
        assert_eq!(got, expected, "{response} at {age_s}: {request} {failure:?}");
    }
}

/// RFC 9110 §15.6, RFC 5861 §4: which codes are failures.
#[test]
fn what_no_request_could_help_is_a_failure() {
    let caching = CachingConfig { stale_if_error_s: 30, ..CachingConfig::default() };
    let policy = policy("max-age=60", &caching);
    for code in 200..=599 {
        let failure = Failure::Status(StatusCode::from_u16(code).unwrap());
        let stands_in =
            |at_ms| may_serve_on_error(&wish(""), &policy, failure, &caching, NOW + at_ms);
        let fails = code >= 500 && ![501, 505, 506, 510, 511].contains(&code);
        assert_eq!([0, 89_999, 90_000].map(stands_in), [fails, fails, false], "{code}");
    }
}

/// RFC 9111 §5.2.2.10: what lets stale answers count beside `s-maxage`, and what not.
#[test]
fn a_window_of_its_own_counts_beside_s_maxage() {
    let caching = CachingConfig {
        stale_beside_s_maxage: true,
        stale_if_error_s: 30,
        ..CachingConfig::default()
    };
    for (says, never_stale) in [
        ("s-maxage=60", true),
        ("s-maxage=60, stale-if-error=9", false),
        ("s-maxage=60, stale-while-revalidate=9", false),
        ("s-maxage=60, stale-if-error=9, must-revalidate", true),
        ("s-maxage=60, stale-if-error=9, proxy-revalidate", true),
    ] {
        assert_eq!(policy(says, &caching).never_stale, never_stale, "{says}");
    }
}

/// A clock is set back by a minute at most while it is corrected.
#[test]
fn a_clock_may_go_back_a_minute() {
    let policy = policy("max-age=60", &CachingConfig::default());
    let policy = Policy { initial_age_ms: 5, ..policy };
    assert_eq!([0, 1, 60_000].map(|back_ms| policy.age_ms(NOW - back_ms)), [5, 5, 5]);
    assert_eq!(policy.age_ms(NOW - 60_001), 60_000 + SAID_MAX_MS);
}

#[test]
fn clients_may_be_kept_from_forcing_validation() {
    let caching = CachingConfig { obey_request_directives: false, ..CachingConfig::default() };
    let policy = policy("max-age=60", &caching);
    assert_eq!(decide(&wish("no-cache, max-age=0"), &policy, &caching, NOW + 10), SERVE);
    assert_eq!(decide(&wish("max-stale"), &policy, &caching, NOW + 70_000), STALE);
}

/// What an older state of a response would let be served after a newer one is known.
#[test]
fn what_an_older_policy_may_come_back_in_place_of() {
    let caching = CachingConfig::default();
    for (older, newer, after_s, expected) in [
        ("max-age=60", "max-age=60", 0, true),
        ("max-age=60", "max-age=60", 10, true),
        ("max-age=60", "max-age=50", 10, true),
        ("max-age=60", "max-age=49", 10, false),
        ("max-age=60", "max-age=600, no-cache", 10, false),
        ("no-cache", "no-cache", 10, true),
        ("no-cache", "max-age=60", 10, true),
        ("max-age=60", "max-age=60, must-revalidate", 10, false),
        ("max-age=60, must-revalidate", "max-age=60", 10, true),
        ("max-age=60, immutable", "max-age=60", 10, false),
        ("max-age=60, stale-while-revalidate=60", "max-age=60", 10, false),
        ("max-age=60, stale-while-revalidate=60", "max-age=60", 60, true),
        ("max-age=60, stale-if-error=60", "max-age=70, stale-if-error=39", 10, false),
    ] {
        let (older, newer) = (policy(older, &caching), policy(newer, &caching));
        let response_time_ms = NOW + after_s * 1000;
        let newer = Policy { response_time_ms, ..newer };
        assert_eq!(older.allows_no_more_than(&newer), expected, "{older:?}, {newer:?}");
    }
}

#[test]
fn time_left() {
    let policy = policy("max-age=60", &CachingConfig::default());
    assert_eq!((policy.ttl_s(NOW + 10_000), policy.staleness_ms(NOW + 10_000)), (50, None));
    assert_eq!(
        (policy.ttl_s(NOW + 70_000), policy.staleness_ms(NOW + 70_000)),
        (-10, Some(10_000))
    );
    assert_eq!(policy.made_stale().staleness_ms(NOW), Some(0));
    let window = Policy { stale_while_revalidate_ms: 5, ..policy };
    let decided = decide(&wish(""), &window.made_stale(), &CachingConfig::default(), NOW);
    assert_eq!(decided, STALE, "what has changed is not served while it is asked about");
}

/// RFC 9111 §4.2.3: a slow clock makes what it dates old on arrival. A cache on the way says so by
/// `Age`, and what has no lifetime is none the worse for it.
#[test]
fn what_its_date_alone_makes_stale_on_arrival() {
    let now_s = NOW / 1000;
    let date = crate::dates::format(now_s - 300);
    for (says, age, outlived) in [
        ("max-age=60", "0", Some(300)),
        ("max-age=300", "0", Some(300)),
        ("max-age=301", "0", None),
        ("max-age=60", "59", Some(300)),
        ("max-age=60", "300", None),
        ("max-age=0", "0", None),
        ("no-cache", "0", None),
    ] {
        let map = headers(&[("cache-control", says), ("age", age), ("date", &date)]);
        let policy = policy_of(&map, &CachingConfig::default());
        assert_eq!(policy.outlived_by_date_s(&map, NOW), outlived, "{says}, age {age}");
    }
    let map = headers(&[("cache-control", "max-age=60")]);
    assert_eq!(policy_of(&map, &CachingConfig::default()).outlived_by_date_s(&map, NOW), None);
}
