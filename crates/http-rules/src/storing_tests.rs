//! Tables for what may be stored, and of it which fields.

use super::NotStoredReason as Not;
use super::*;
use crate::test_headers as headers;

const NOW: u64 = 784_111_777;

fn decide_for(
    method: &str,
    request: &[(&str, &str)],
    status: u16,
    response: &[(&str, &str)],
    caching: &CachingConfig,
) -> Result<(), Not> {
    let (request, response) = (headers(request), headers(response));
    let exchange = Exchange {
        method: &method.parse().unwrap(),
        request: &request,
        wishes: &RequestDirectives::of(&request),
        status: StatusCode::from_u16(status).unwrap(),
        response: &response,
        directives: &ResponseDirectives::of(&response, caching),
        response_time_s: NOW,
        with_cookie: request.contains_key("cookie"),
        selective: request.contains_key("range"),
    };
    decide(exchange, caching)
}

/// RFC 9111 §3, §3.5, §5.2.2.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn what_may_be_stored() {
    let cc = |value: &'static str| vec![("cache-control", value)];
    let fresh = ("cache-control", "max-age=60");
    let auth = &[("authorization", "Basic eDp5")][..];
    let range = &[("range", "bytes=0-1")][..];
    let part = ("content-range", "bytes 0-1/9");
    let old = dates::format(NOW - 86_400);
    let modified = ("last-modified", &*old);
    for (method, request, status, response, expected) in [
        ("GET", &[][..], 200, vec![fresh], Ok(())),
        ("HEAD", &[], 200, vec![fresh], Err(Not::Method)),
        ("POST", &[], 200, vec![fresh], Err(Not::Method)),
        ("MADE-UP", &[], 200, vec![fresh], Err(Not::Method)),
        ("GET", &[("cache-control", "no-store")], 200, vec![fresh], Err(Not::RequestNoStore)),
        ("GET", &[], 200, cc("no-store, max-age=60"), Err(Not::NoStore)),
        ("GET", &[], 200, cc("No-StOrE"), Err(Not::NoStore)),
        ("GET", &[], 200, cc("no-store, must-understand, max-age=60"), Ok(())),
        ("GET", &[], 599, cc("no-store, must-understand, max-age=60"), Err(Not::Status)),
        ("GET", &[], 599, cc("must-understand, max-age=60"), Err(Not::Status)),
        ("GET", &[], 200, cc("private, max-age=60"), Err(Not::Private)),
        ("GET", &[], 200, cc("private=\"x\", max-age=60"), Ok(())),
        ("GET", auth, 200, vec![fresh], Err(Not::Authorization)),
        ("GET", auth, 200, cc("max-age=60, public"), Ok(())),
        ("GET", auth, 200, cc("max-age=60, must-revalidate"), Ok(())),
        ("GET", auth, 200, cc("s-maxage=60"), Ok(())),
        ("GET", auth, 200, cc("max-age=60, proxy-revalidate"), Err(Not::Authorization)),
        ("GET", &[], 200, vec![fresh, ("vary", "Accept, *")], Err(Not::VaryStar)),
        ("GET", &[], 304, vec![fresh], Err(Not::Status)),
        ("GET", &[], 103, vec![fresh], Err(Not::Status)),
        ("GET", &[], 206, vec![fresh], Err(Not::Partial)),
        ("GET", &[], 206, vec![fresh, ("content-range", "bytes 0-1/9")], Err(Not::Partial)),
        ("GET", range, 206, vec![fresh, ("content-range", "bytes 0-1/9")], Ok(())),
        ("GET", range, 206, vec![fresh], Err(Not::Partial)),
        ("GET", range, 206, vec![part, modified], Ok(())),
        (
            "GET",
            range,
            206,
            vec![part, modified, ("cache-control", "no-cache")],
            Err(Not::NotCacheable),
        ),
        ("GET", range, 206, vec![part, ("etag", "x")], Err(Not::NotCacheable)),
        ("GET", range, 200, vec![fresh], Ok(())),
        ("GET", range, 416, vec![fresh], Err(Not::Status)),
        ("GET", range, 404, vec![fresh], Ok(())),
        ("GET", range, 302, vec![fresh], Ok(())),
        ("GET", range, 503, vec![fresh], Err(Not::Status)),
        ("GET", &[], 416, vec![fresh], Ok(())),
        (
            "GET",
            range,
            206,
            vec![fresh, ("content-type", "multipart/byteranges; boundary=x")],
            Err(Not::Partial),
        ),
        ("GET", &[], 302, vec![("etag", "x")], Err(Not::NotCacheable)),
        ("GET", &[], 599, vec![("etag", "x")], Err(Not::NotCacheable)),
        ("GET", &[], 302, vec![("cache-control", "public"), ("etag", "x")], Ok(())),
        ("GET", &[], 302, vec![fresh], Ok(())),
        ("GET", &[], 299, vec![fresh], Ok(())),
        ("GET", &[], 499, vec![fresh], Ok(())),
        ("GET", &[], 599, vec![fresh], Ok(())),
        ("GET", &[], 600, vec![fresh], Err(Not::Status)),
        ("GET", &[], 999, vec![fresh, ("etag", "\"x\"")], Err(Not::Status)),
        ("GET", &[], 500, vec![fresh], Ok(())),
        ("GET", &[], 599, vec![fresh], Ok(())),
        ("GET", &[], 404, cc("max-age=1"), Ok(())),
        ("GET", &[], 200, vec![], Err(Not::NeverUseful)),
        ("GET", &[], 200, cc("max-age=0"), Err(Not::NeverUseful)),
        ("GET", &[], 200, vec![("expires", "0"), ("last-modified", "then")], Ok(())),
        ("GET", &[], 200, cc("no-cache, stale-if-error=9"), Err(Not::NeverUseful)),
        ("GET", &[], 200, cc("no-cache, max-age=9"), Err(Not::NeverUseful)),
        ("GET", &[], 200, cc("max-age=0, stale-if-error=9"), Ok(())),
        ("GET", &[], 200, cc("max-age=0, stale-while-revalidate=9"), Ok(())),
        ("GET", &[], 200, vec![("etag", "\"x\"")], Ok(())),
        ("GET", &[], 200, vec![("etag", "")], Err(Not::NeverUseful)),
        ("GET", &[], 200, vec![fresh, ("set-cookie", "a=b")], Ok(())),
        ("GET", &[], 200, vec![("etag", "x"), ("set-cookie", "a=b")], Err(Not::NotCacheable)),
        ("GET", &[], 200, vec![fresh, ("pragma", "no-cache")], Ok(())),
        ("GET", &[], 200, vec![("cdn-cache-control", "no-store"), fresh], Err(Not::NoStore)),
    ] {
        let got = decide_for(method, request, status, &response, &CachingConfig::default());
        assert_eq!(got, expected, "{method} {request:?} {status} {response:?}");
    }
}

/// RFC 9110 §15, RFC 9111 §5.2.2.3: `must-understand` is for codes that are registered.
#[test]
fn which_codes_are_understood() {
    let says = [("cache-control", "must-understand, no-store, max-age=60")];
    let ranges = [200..=208, 226..=226, 300..=303, 305..=305, 307..=308, 400..=417, 421..=426];
    let others = [428..=429, 431..=431, 451..=451, 500..=508, 510..=511];
    let registered: Vec<u16> = ranges.into_iter().chain(others).flatten().collect();
    // A part that nobody asked for is not stored whatever it says.
    for code in (200..=599).filter(|code| *code != 206) {
        // RFC 6585: these MUST NOT be stored.
        let may_be = registered.contains(&code) && ![428, 429, 431, 511].contains(&code);
        let expected = if may_be { Ok(()) } else { Err(Not::Status) };
        let got = decide_for("GET", &[], code, &says, &CachingConfig::default());
        assert_eq!(got, expected, "{code}");
    }
}

/// RFC 5861: what may be served stale is worth storing, whoever allows it.
#[test]
fn windows_of_the_configuration_make_storing_useful() {
    let stale = [("cache-control", "max-age=0")];
    let decided = |caching: &CachingConfig| decide_for("GET", &[], 200, &stale, caching);
    let mut caching = CachingConfig { stale_if_error_s: 9, ..CachingConfig::default() };
    assert_eq!(decided(&caching), Ok(()));
    (caching.stale_if_error_s, caching.stale_while_revalidate_s) = (0, 9);
    assert_eq!(decided(&caching), Ok(()));
    caching.stale_while_revalidate_s = 0;
    assert_eq!(decided(&caching), Err(Not::NeverUseful));
}

/// RFC 9110 §9.3.3.
#[test]
fn answers_to_post_with_explicit_freshness_stand_for_get() {
    let caching = CachingConfig::default();
    let old = ("last-modified", "Sun, 06 Nov 1994 08:00:00 GMT");
    for (method, status, response, expected) in [
        (Method::POST, 200, ("cache-control", "max-age=60"), true),
        (Method::POST, 200, ("cdn-cache-control", "s-maxage=60"), true),
        (Method::POST, 200, ("expires", "Sun, 06 Nov 1994 09:49:37 GMT"), true),
        (Method::POST, 200, ("cache-control", "public"), false),
        (Method::POST, 200, old, false),
        (Method::POST, 201, ("cache-control", "max-age=60"), false),
        (Method::POST, 404, ("cache-control", "max-age=60"), false),
        (Method::PUT, 200, ("cache-control", "max-age=60"), false),
        (Method::GET, 200, ("cache-control", "max-age=60"), false),
    ] {
        let (status, map) = (StatusCode::from_u16(status).unwrap(), headers(&[response]));
        let got = post_stands_for_get(&method, status, &map, &caching, NOW);
        assert_eq!(got, expected, "{method} {status} {response:?}");
    }
}

/// RFC 9111 §3.5: what is not in its defined form restricts and lets nobody share.
#[test]
fn only_what_is_well_formed_lets_answers_to_authorization_be_shared() {
    let auth = [("authorization", "Basic eDp5")];
    for (field, value, expected) in [
        ("cache-control", "max-age=60, foo must-revalidate", Err(Not::Authorization)),
        ("cache-control", "max-age=60, foo;must-revalidate", Err(Not::Authorization)),
        ("cache-control", "max-age=60, must-revalidate=0", Err(Not::Authorization)),
        ("cache-control", "max-age=60, foo;public", Err(Not::Authorization)),
        ("cache-control", "max-age=60, must-revalidate=0, Must-Revalidate", Ok(())),
        ("cache-control", "stale-if-error=9, s-maxage=junk", Err(Not::Authorization)),
        ("cache-control", "stale-if-error=9, foo s-maxage=60", Err(Not::Authorization)),
        ("cache-control", "S-MaxAge=\"60\"", Ok(())),
        ("cdn-cache-control", "max-age=60, must-revalidate", Ok(())),
        ("cdn-cache-control", "max-age=60, must-revalidate=?0", Err(Not::Authorization)),
        ("cdn-cache-control", "max-age=60, public", Ok(())),
        ("cdn-cache-control", "max-age=60, public=?0", Err(Not::Authorization)),
        ("cdn-cache-control", "s-maxage=60", Ok(())),
        ("cdn-cache-control", "stale-if-error=9, s-maxage=-1", Err(Not::Authorization)),
        ("cdn-cache-control", "stale-if-error=9, s-maxage=\"60\"", Err(Not::Authorization)),
        ("surrogate-control", "max-age=60", Err(Not::Authorization)),
    ] {
        let got = decide_for("GET", &auth, 200, &[(field, value)], &CachingConfig::default());
        assert_eq!(got, expected, "{field}: {value}");
    }
}

/// RFC 9111 §7.3.
#[test]
fn cookies_by_configuration() {
    let response = &[("cache-control", "max-age=60"), ("set-cookie", "a=b")];
    let refusing = CachingConfig { set_cookie: SetCookie::Refuse, ..CachingConfig::default() };
    assert_eq!(decide_for("GET", &[], 200, response, &refusing), Err(Not::SetCookie));
    let stripping = CachingConfig { set_cookie: SetCookie::Strip, ..CachingConfig::default() };
    assert_eq!(decide_for("GET", &[], 200, response, &stripping), Ok(()));
    let map = headers(response);
    let directives = ResponseDirectives::of(&map, &stripping);
    assert!(!stored_headers(&map, &directives, &stripping, NOW).contains_key(SET_COOKIE));
    let storing = CachingConfig::default();
    assert!(stored_headers(&map, &directives, &storing, NOW).contains_key(SET_COOKIE));
}

/// Where the origin does not say that a page with a cookie is for all, no configuration guesses so.
#[test]
fn cookies_are_not_stored_by_a_guess() {
    let old = ("last-modified", "Sun, 06 Nov 1994 08:00:00 GMT");
    let cookie = ("set-cookie", "session=1");
    for set_cookie in [SetCookie::Store, SetCookie::Strip] {
        let caching = CachingConfig { set_cookie, ..CachingConfig::default() };
        let decided = |response: &[(&str, &str)]| decide_for("GET", &[], 200, response, &caching);
        assert_eq!(decided(&[old]), Ok(()));
        assert_eq!(decided(&[old, cookie]), Err(Not::NotCacheable));
        assert_eq!(decided(&[old, cookie, ("cache-control", "no-cache")]), Err(Not::NotCacheable));
        assert_eq!(decided(&[old, cookie, ("cache-control", "max-age=9")]), Ok(()));
        assert_eq!(decided(&[old, cookie, ("cache-control", "public")]), Ok(()));
        assert_eq!(decided(&[old, cookie, ("expires", "Sun, 06 Nov 1994 09:49:37 GMT")]), Ok(()));
    }
}

/// RFC 9111 §4.2.2, §4.2.4: what may be for who sent a cookie is kept for validation, and only
/// where the validator tells one user's page from another's.
#[test]
fn what_a_cookie_was_sent_for_is_kept_by_its_tag_alone() {
    let caching = CachingConfig { stale_if_error_s: 60, ..CachingConfig::default() };
    let old = ("last-modified", "Sun, 06 Nov 1994 08:00:00 GMT");
    let (tag, weak) = (("etag", "\"a\""), ("etag", "W/\"a\""));
    let cc = |value: &'static str| ("cache-control", value);
    let image = ("content-type", "image/png");
    let cookie = &[("cookie", "a=b")][..];
    let refused = Err(Not::Cookie);
    for (response, expected) in [
        (vec![], refused),
        (vec![old], refused),
        (vec![old, cc("no-cache")], refused),
        (vec![old, cc("max-age=0")], refused),
        (vec![tag], Ok(())),
        (vec![weak, old], Ok(())),
        (vec![tag, cc("max-age=0, must-revalidate")], Ok(())),
        (vec![cc("max-age=9")], Ok(())),
        (vec![old, cc("public")], Ok(())),
        (vec![old, image], Ok(())),
        (vec![old, ("vary", "Cookie")], Ok(())),
    ] {
        assert_eq!(decide_for("GET", cookie, 200, &response, &caching), expected, "{response:?}");
        assert_eq!(decide_for("GET", &[], 200, &response, &caching), Ok(()), "{response:?}");
    }
    assert_eq!(decide_for("GET", cookie, 302, &[tag], &caching), Err(Not::NotCacheable));
    let ranged = &[("cookie", "a=b"), ("range", "bytes=0-1")][..];
    let part = [("content-range", "bytes 0-1/9"), old, tag];
    assert_eq!(decide_for("GET", ranged, 206, &part, &caching), refused, "no lifetime");
}

/// RFC 9111 §3.1, RFC 9110 §6.6.1, §7.6.1.
#[test]
fn connection_and_qualified_fields_are_not_stored() {
    let response = headers(&[
        ("connection", "X-Hop, close"),
        ("x-hop", "1"),
        ("keep-alive", "5"),
        ("transfer-encoding", "chunked"),
        ("proxy-authenticate", "Basic"),
        ("proxy-authentication-info", "x"),
        ("proxy-connection", "close"),
        ("te", "trailers"),
        ("trailer", "x-t"),
        ("upgrade", "h2c"),
        ("age", "5"),
        ("content-length", "9"),
        ("cache-control", "private=\"set-cookie\", no-cache=\"X-Once, date\", max-age=5"),
        ("set-cookie", "a=b"),
        ("x-once", "1"),
        ("etag", "\"e\""),
        ("strict-transport-security", "max-age=1"),
        ("content-security-policy", "x"),
        ("cache-status", "inner; hit"),
        ("x-unheard-of", "1"),
    ]);
    let caching = CachingConfig::default();
    let directives = ResponseDirectives::of(&response, &caching);
    let stored = stored_headers(&response, &directives, &caching, NOW);
    let mut names: Vec<_> = stored.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    let known = ["cache-control", "cache-status", "content-security-policy", "date", "etag"];
    assert_eq!(names[..5], known);
    assert_eq!(names[5..], ["strict-transport-security", "x-unheard-of"]);
    assert_eq!(stored[DATE], "Sun, 06 Nov 1994 08:49:37 GMT");
}

/// RFC 9111 §4.1, §4.2: what says to whom and for how long a response may be served stays with it,
/// whatever else the response says.
#[test]
fn what_says_for_whom_and_how_long_is_always_stored() {
    let says = [
        ("cache-control", "max-age=5, must-revalidate"),
        ("cache-control", "private=\"cache-control, expires, date, vary, surrogate-control\""),
        ("cache-control", "no-cache=\"cdn-cache-control, x-mine\""),
        ("cdn-cache-control", "Not a dictionary"),
        ("surrogate-control", "content=\"ESI/1.0\""),
        ("expires", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("date", "Sun, 06 Nov 1994 08:00:00 GMT"),
        ("vary", "cookie"),
        ("vary", "x-other"),
        ("x-mine", "1"),
    ];
    let hop = [
        ("connection", "cache-control, Expires, date, vary, x-mine"),
        ("connection", "cdn-cache-control, surrogate-control"),
    ];
    for lines in [&says[..], &[&says[..], &hop].concat()] {
        let response = headers(lines);
        let caching = CachingConfig::default();
        let directives = ResponseDirectives::of(&response, &caching);
        let stored = stored_headers(&response, &directives, &caching, NOW);
        let kept = "cache-control cdn-cache-control date expires surrogate-control vary";
        for name in kept.split(' ') {
            let all = |map: &HeaderMap| map.get_all(name).iter().cloned().collect::<Vec<_>>();
            assert_eq!(all(&stored), all(&response), "{name} {lines:?}");
        }
        assert!(!stored.contains_key("x-mine") && !stored.contains_key(CONNECTION));
    }
}

#[test]
fn every_reason_has_its_own_name_and_place() {
    for (index, reason) in Not::ALL.iter().enumerate() {
        assert_eq!(*reason as usize, index);
        let same = Not::ALL.iter().filter(|other| other.name() == reason.name());
        assert_eq!(same.count(), 1, "{reason:?}");
    }
}

/// RFC 9110 §7.6.1.
#[test]
fn a_copy_without_what_is_of_the_connection_is_in_order() {
    let lines = [
        ("connection", "close, X-Hop,b:d"),
        ("host", "h"),
        ("accept", "a"),
        ("x-hop", "1"),
        ("x-many", "1"),
        ("te", "trailers"),
        ("keep-alive", "5"),
        ("accept-language", "en"),
        ("x-many", "2"),
        ("connection", "cookie"),
        ("cookie", "c"),
        ("upgrade", "h2c"),
        ("x-last", "z"),
    ];
    let given = headers(&lines);
    let copy = without_hop_by_hop(&given, 3, |name| name != "host");
    let kept: Vec<_> =
        copy.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    let expected = [
        ("accept", "a"),
        ("x-many", "1"),
        ("x-many", "2"),
        ("accept-language", "en"),
        ("x-last", "z"),
    ];
    assert_eq!(kept, expected);
    let mut removed = given.clone();
    remove_hop_by_hop(&mut removed);
    assert_eq!(without_hop_by_hop(&given, 0, |_| true), removed);
}
