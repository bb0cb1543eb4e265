//! What must hold for every request, response and moment, drawn at random.

use damelo_http_rules::cache_control::{MaxStale, RequestDirectives, ResponseDirectives};
use damelo_http_rules::negotiation::Normaliser;
use damelo_http_rules::parts::Part;
use damelo_http_rules::reuse::{self, Arrived, Decision, Failure, Policy};
use damelo_http_rules::storing::{self, Exchange};
use damelo_http_rules::{
    CacheStatus, CachingConfig, ForwardReason, cache_groups, dates, freshness, group, invalidation,
    key, preconditions, ranges, validation, vary,
};
use http::header::{
    ACCEPT_LANGUAGE, AGE, CACHE_CONTROL, DATE, EXPIRES, HeaderName, HeaderValue, LAST_MODIFIED,
    RANGE,
};
use http::{HeaderMap, Method, StatusCode};
use proptest::prelude::*;

const NOW: u64 = 1_795_000_000;
/// Somewhere in a second.
const NOW_MS: u64 = NOW * 1000 + 467;

/// A directive that means something, or nearly does.
fn directive() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "max-age",
        "s-maxage",
        "Max-Age",
        "no-cache",
        "no-store",
        "private",
        "public",
        "must-revalidate",
        "proxy-revalidate",
        "must-understand",
        "immutable",
        "stale-while-revalidate",
        "stale-if-error",
        "max-stale",
        "min-fresh",
        "only-if-cached",
        "ext",
    ]);
    let argument = prop_oneof![
        Just(String::new()),
        (0..5000_u64).prop_map(|n| format!("={n}")),
        (0..5000_u64).prop_map(|n| format!("=\"{n}\"")),
        Just("=junk".to_owned()),
        Just("=\"set-cookie, x\"".to_owned()),
        Just("=99999999999".to_owned()),
        Just(" =5".to_owned()),
    ];
    (name, argument).prop_map(|(name, argument)| format!("{name}{argument}"))
}

fn cache_control() -> impl Strategy<Value = String> {
    prop::collection::vec(directive(), 0..6).prop_map(|list| list.join(", "))
}

fn date() -> impl Strategy<Value = String> {
    prop_oneof![
        (0..200_000_u64).prop_map(|back| dates::format(NOW - 100_000 + back)),
        Just("0".to_owned()),
        Just("Thu, 01 Jan 1970 00:00:00 GMT".to_owned()),
    ]
}

fn response() -> impl Strategy<Value = HeaderMap> {
    let optional = |name: HeaderName| {
        prop::option::of(date()).prop_map(move |date| date.map(|date| (name.clone(), date)))
    };
    let age =
        prop::option::of(0..100_000_u64).prop_map(|age| age.map(|age| (AGE, age.to_string())));
    let control = cache_control().prop_map(|text| Some((CACHE_CONTROL, text)));
    (control, optional(DATE), optional(EXPIRES), optional(LAST_MODIFIED), age).prop_map(
        |(a, b, c, d, e)| {
            let lines = [a, b, c, d, e].into_iter().flatten();
            lines.map(|(name, text)| (name, HeaderValue::try_from(text).expect("valid"))).collect()
        },
    )
}

/// How long after a response came: any time, or one at the edge of a second.
fn later_ms() -> impl Strategy<Value = u64> {
    let edge = (0..10_000_u64, 0..3_u64).prop_map(|(s, more)| (s * 1000 + more).saturating_sub(1));
    prop_oneof![0..300_000_000_u64, edge]
}

fn status() -> impl Strategy<Value = StatusCode> {
    (200..600_u16).prop_map(|code| StatusCode::from_u16(code).expect("valid"))
}

fn request_of(text: &str) -> RequestDirectives {
    let mut headers = HeaderMap::new();
    headers.insert(CACHE_CONTROL, HeaderValue::from_str(text).expect("valid"));
    RequestDirectives::of(&headers)
}

fn policy_of(status: StatusCode, headers: &HeaderMap, delay_ms: u64) -> Policy {
    let caching = CachingConfig::default();
    let directives = ResponseDirectives::of(headers, &caching);
    let arrived = Arrived {
        status,
        headers,
        received: headers,
        directives: &directives,
        with_cookie: false,
        request_time_ms: NOW_MS - delay_ms,
        response_time_ms: NOW_MS,
    };
    Policy::of(arrived, &caching)
}

fn storable(status: StatusCode, request: &str, response: &HeaderMap) -> bool {
    let mut headers = HeaderMap::new();
    headers.insert(CACHE_CONTROL, HeaderValue::from_str(request).expect("valid"));
    let caching = CachingConfig::default();
    let exchange = Exchange {
        method: &Method::GET,
        request: &headers,
        wishes: &RequestDirectives::of(&headers),
        status,
        response,
        directives: &ResponseDirectives::of(response, &caching),
        response_time_s: NOW,
        with_cookie: false,
        selective: false,
    };
    storing::decide(exchange, &caching).is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// RFC 9111 §4.2.4: whatever a response and a request say, none is served past what one of them
    /// allows, nor at all where the response forbids it.
    #[test]
    fn nothing_is_served_staler_than_allowed(
        status in status(), headers in response(), wish in cache_control(),
        delay_ms in 0..100_000_u64, later_ms in later_ms(),
    ) {
        let (policy, request) = (policy_of(status, &headers, delay_ms), request_of(&wish));
        let now_ms = NOW_MS + later_ms;
        let age_ms = policy.age_ms(now_ms);
        let decision = reuse::decide(&request, &policy, &CachingConfig::default(), now_ms);
        if matches!(decision, Decision::Validate(_)) {
            return Ok(());
        }
        prop_assert!(!policy.no_cache && !request.no_cache);
        if let Some(max) = request.max_age {
            prop_assert!(age_ms / 1000 <= max || (policy.immutable && age_ms < policy.lifetime_ms));
        }
        if age_ms < policy.lifetime_ms {
            prop_assert_eq!(decision, Decision::Serve);
            let left_ms = policy.lifetime_ms - age_ms;
            prop_assert!(request.min_fresh.is_none_or(|min| left_ms >= min * 1000));
            return Ok(());
        }
        prop_assert!(!policy.never_stale);
        let staleness_ms = age_ms - policy.lifetime_ms;
        match decision {
            Decision::ServeStale => match request.max_stale {
                Some(MaxStale::Seconds(max)) => prop_assert!(staleness_ms <= max * 1000),
                other => prop_assert_eq!(other, Some(MaxStale::Any)),
            },
            other => {
                prop_assert_eq!(other, Decision::ServeAndRevalidate);
                prop_assert!(staleness_ms < policy.stale_while_revalidate_ms);
            }
        }
    }

    /// RFC 5861 §4, RFC 9111 §4.2.4: the same when the origin fails.
    #[test]
    fn failures_do_not_lift_prohibitions(
        status in status(), headers in response(), wish in cache_control(),
        code in status(), later_ms in later_ms(),
    ) {
        let (policy, request) = (policy_of(status, &headers, 0), request_of(&wish));
        let (caching, now_ms) = (CachingConfig::default(), NOW_MS + later_ms);
        for failure in [Failure::Disconnected, Failure::Status(code)] {
            if !reuse::may_serve_on_error(&request, &policy, failure, &caching, now_ms) {
                continue;
            }
            prop_assert!(!policy.no_cache && !request.no_cache);
            prop_assert!(failure == Failure::Disconnected || code.is_server_error());
            if let Some(staleness_ms) = policy.staleness_ms(now_ms) {
                let asked_ms = request.stale_if_error_s.unwrap_or(0) * 1000;
                let allowed_ms = policy.stale_if_error_ms.max(asked_ms);
                let limit_ms = match failure {
                    Failure::Disconnected => allowed_ms.max(caching.disconnected_stale_max_s * 1000),
                    Failure::Status(_) => allowed_ms,
                };
                prop_assert!(!policy.never_stale && staleness_ms < limit_ms);
            }
        }
    }

    /// RFC 9111 §5.2.1.5, §5.2.2.5, §5.2.2.7.
    #[test]
    fn a_prohibition_never_leads_to_storing(
        status in status(), headers in response(), wish in cache_control(), which in 0..3_usize,
    ) {
        let more = ["no-store", "private", "must-understand, no-store, private"][which];
        let mut restricted = headers.clone();
        restricted.append(CACHE_CONTROL, HeaderValue::from_static(more));
        if storable(status, &wish, &restricted) {
            // `must-understand` is there to lift `no-store`, and nothing else lifts anything.
            let said = ResponseDirectives::of(&restricted, &CachingConfig::default());
            prop_assert!(which == 0 && said.must_understand);
        }
        let forbidding = format!("{wish}, no-store");
        prop_assert!(!storable(status, &forbidding, &headers));
    }

    /// RFC 9111 §4.2.1: a further lifetime never makes a response fresh for longer.
    #[test]
    fn conflicting_lifetimes_only_shorten(headers in response(), seconds in 0..5000_u64) {
        let caching = CachingConfig::default();
        let said = ResponseDirectives::of(&headers, &caching);
        let mut more = headers.clone();
        let line = format!("max-age={seconds}, s-maxage={seconds}");
        more.append(CACHE_CONTROL, HeaderValue::try_from(line).unwrap());
        let lifetime = |directives: &ResponseDirectives, map: &HeaderMap| {
            freshness::Lifetime::of(StatusCode::OK, map, directives, &caching, NOW).seconds
        };
        if said.s_maxage.is_some() {
            let longer = ResponseDirectives::of(&more, &caching);
            prop_assert!(lifetime(&longer, &more) <= lifetime(&said, &headers));
        }
    }

    /// RFC 9111 §4.2.3: age grows with time, and never by more than the time that passed.
    #[test]
    fn age_is_monotone(headers in response(), delay_ms in 0..100_000_u64, a in 0..1_000_000_u64,
        b in 0..1_000_000_u64,
    ) {
        let policy = policy_of(StatusCode::OK, &headers, delay_ms);
        let (earlier, later) = (NOW_MS + a.min(b), NOW_MS + a.max(b));
        prop_assert!(policy.age_ms(earlier) <= policy.age_ms(later));
        prop_assert_eq!(policy.age_ms(later) - policy.age_ms(earlier), later - earlier);
        prop_assert!(policy.age_ms(NOW_MS - a) >= delay_ms, "a clock that jumped back");
        prop_assert_eq!(policy.staleness_ms(later).is_some(), policy.ttl_s(later) <= 0);
    }

    /// RFC 9111 §4: nobody knows how old a response is that came later than it is now.
    #[test]
    fn a_clock_put_back_makes_nothing_fresh(
        status in status(), headers in response(), wish in cache_control(), delay_ms in 0..100_000_u64,
        back_ms in 60_001..NOW_MS,
    ) {
        let (policy, request) = (policy_of(status, &headers, delay_ms), request_of(&wish));
        let now_ms = policy.response_time_ms - back_ms;
        let decision = reuse::decide(&request, &policy, &CachingConfig::default(), now_ms);
        let stale_for_ever = match request.max_stale {
            Some(MaxStale::Any) => true,
            // Some 68 years.
            Some(MaxStale::Seconds(max)) => max >= 1 << 31,
            None => false,
        };
        prop_assert!(
            matches!(decision, Decision::Validate(_))
                || (decision == Decision::ServeStale && stale_for_ever)
        );
        prop_assert!(policy.ttl_s(now_ms) <= 0);
        let validated = Policy { response_time_ms: now_ms, ..policy };
        prop_assert!(validated.age_ms(now_ms) == policy.initial_age_ms);
    }

    /// RFC 9111 §4.2.3, §4.2.1: wherever in a second a response was made, asked for and looked at,
    /// what an origin made on demand is fresh for as long as it said, counted from when it was made
    /// at the earliest, and is served so for all of that but the time that it took to come.
    #[test]
    fn lifetimes_are_kept_to_the_millisecond(
        asked_ms in NOW_MS..NOW_MS + 3000, made_ms in 0..400_u64, came_ms in 0..400_u64,
        max_age_s in 0..5_u64, age_s in prop::option::of(0..3_u64), later_ms in 0..9000_u64,
    ) {
        let made_at_ms = asked_ms + made_ms;
        let came_at_ms = made_at_ms + came_ms;
        let mut headers = HeaderMap::new();
        headers.insert(DATE, dates::value(made_at_ms / 1000));
        headers.insert(CACHE_CONTROL, HeaderValue::try_from(format!("max-age={max_age_s}")).unwrap());
        if let Some(age_s) = age_s {
            headers.insert(AGE, age_s.into());
        }
        let caching = CachingConfig::default();
        let arrived = Arrived {
            status: StatusCode::OK,
            headers: &headers,
            received: &headers,
            directives: &ResponseDirectives::of(&headers, &caching),
            with_cookie: false,
            request_time_ms: asked_ms,
            response_time_ms: came_at_ms,
        };
        let policy = Policy::of(arrived, &caching);
        let now_ms = came_at_ms + later_ms;
        let fresh = policy.staleness_ms(now_ms).is_none();
        let age_before_ms = age_s.unwrap_or(0) * 1000;
        let since_made_ms = now_ms - made_at_ms + age_before_ms;
        let since_asked_ms = now_ms - asked_ms + age_before_ms;
        prop_assert!(!fresh || since_made_ms < max_age_s * 1000, "never for longer");
        prop_assert_eq!(fresh, since_asked_ms < max_age_s * 1000, "nor for less");
        prop_assert!(policy.age_s(now_ms) * 1000 >= (since_made_ms / 1000) * 1000);
    }

    /// RFC 9110 §14: pieces lie within the whole, do not touch, and hold what was asked for.
    #[test]
    fn ranges_are_within_and_apart(
        specs in prop::collection::vec((0..40_u64, prop::option::of(0..40_u64), any::<bool>()), 1..8),
        length in 0..32_u64,
    ) {
        let text: Vec<String> = specs.iter().map(|(first, more, suffix)| match (suffix, more) {
            (true, _) => format!("-{first}"),
            (false, Some(more)) => format!("{first}-{}", first + more),
            (false, None) => format!("{first}-"),
        }).collect();
        let mut request = HeaderMap::new();
        let value = HeaderValue::try_from(format!("bytes={}", text.join(","))).unwrap();
        request.insert(RANGE, value);
        let wanted: Vec<bool> = (0..length).map(|byte| specs.iter().any(|(first, more, suffix)| {
            if *suffix { byte >= length.saturating_sub(*first) }
            else { byte >= *first && more.is_none_or(|more| byte <= first + more) }
        })).collect();
        let pieces = match ranges::answer(&Method::GET, &request, length, 8) {
            ranges::Answer::Whole => return Ok(()),
            ranges::Answer::Unsatisfiable => Vec::new(),
            ranges::Answer::One(range) => vec![range],
            ranges::Answer::Several(ranges) => ranges,
        };
        let mut sent = vec![0; length as usize];
        for piece in &pieces {
            prop_assert!(piece.start < piece.end && piece.end <= length);
            for byte in piece.clone() { sent[byte as usize] += 1; }
        }
        for (byte, wanted) in wanted.iter().enumerate() {
            prop_assert_eq!(sent[byte], usize::from(*wanted), "byte {}", byte);
        }
    }

    /// RFC 9111 §4.1: the key of a variant does not depend on spacing, and tells values apart.
    #[test]
    fn variant_keys(values in prop::collection::vec("[a-z]{1,3}", 1..4), other in "[a-z]{1,9}") {
        let caching = CachingConfig::default();
        let name = HeaderName::from_static("accept");
        let key = |text: String| {
            let mut headers = HeaderMap::new();
            headers.insert(name.clone(), HeaderValue::try_from(text).unwrap());
            let mut key = Vec::new();
            vary::secondary_key(std::slice::from_ref(&name), &headers, &caching, &mut key);
            key
        };
        prop_assert_eq!(key(values.join(",")), key(values.join(" ,  ")));
        if values.join(",") != other {
            prop_assert_ne!(key(values.join(",")), key(other));
        }
    }

    /// RFC 9111 §4.1: whatever classes there are, a request that was reduced to one is of that one,
    /// and is not reduced further.
    #[test]
    fn what_is_reduced_is_of_the_same_class(
        classes in prop::sample::subsequence(vec!["en", "de", "en-GB", "en-US", "de-AT"], 1..5)
            .prop_shuffle(),
        members in prop::collection::vec((
            prop::sample::select(vec!["en", "EN-gb", "en-US", "de", "de-AT-1996", "fr", "*", ";"]),
            prop::sample::select(vec!["", ";q=0", ";q=0.5", ";q=1"]),
        ), 0..6),
    ) {
        let mut caching = CachingConfig::default();
        let classes = classes.into_iter().map(str::to_owned).collect();
        caching.accept_language = Normaliser::BestOf(classes);
        let text: Vec<String> = members.iter().map(|(name, q)| format!("{name}{q}")).collect();
        let mut request = HeaderMap::new();
        request.insert(ACCEPT_LANGUAGE, HeaderValue::try_from(text.join(", ")).unwrap());
        let key = |request: &HeaderMap| {
            let mut key = Vec::new();
            vary::secondary_key(&[ACCEPT_LANGUAGE], request, &caching, &mut key);
            key
        };
        let mut reduced = request.clone();
        vary::reduce_request(&mut reduced, &caching);
        prop_assert_eq!(key(&reduced), key(&request));
        let mut twice = reduced.clone();
        vary::reduce_request(&mut twice, &caching);
        prop_assert_eq!(twice, reduced);
    }

    /// RFC 9211 §2, RFC 9651: what is written of any key and time says the same when it is read.
    #[test]
    fn cache_status_is_read_as_it_was_meant(key in any::<String>(), ttl in any::<i64>()) {
        let status = CacheStatus { key: Some(key.clone()), ..CacheStatus::hit(ttl) };
        let list: sfv::List = sfv::Parser::new(&status.render("damelo")).parse().unwrap();
        let [sfv::ListEntry::Item(item)] = &list[..] else { panic!("one member") };
        let plain: String =
            key.chars().map(|c| if matches!(c, ' '..='~') { c } else { '?' }).collect();
        prop_assert_eq!(item.params.get("key").unwrap().as_string().unwrap().as_str(), plain);
        let read = i64::from(item.params.get("ttl").unwrap().as_integer().unwrap());
        prop_assert!(read == ttl || (read.signum() == ttl.signum() && read.abs() < ttl.saturating_abs()));
    }

    /// No bytes a peer may send make anything panic, and what is written can be read.
    #[test]
    fn any_bytes_are_survived(
        names in prop::collection::vec(prop::sample::select(vec![
            "cache-control", "cdn-cache-control", "pragma", "age", "date", "expires",
            "last-modified", "etag", "vary", "content-range", "content-type", "range", "if-range",
            "if-match", "if-none-match", "if-modified-since", "cache-groups", "location",
            "cache-group-invalidation", "connection", "surrogate-key", "referer", "cookie",
            "accept-encoding", "content-length",
        ]), 0..8),
        values in prop::collection::vec(
            prop::collection::vec(prop::sample::select(
                b"max-age=0123\",\\ \t=private;*/W\x80\xffGMT:bytes-".to_vec()), 0..40), 8),
    ) {
        let mut headers = HeaderMap::new();
        for (name, value) in names.iter().zip(&values) {
            headers.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        survive(&headers, &String::from_utf8_lossy(&values[0]));
    }
}

/// Runs everything that reads a peer's bytes.
fn survive(headers: &HeaderMap, text: &str) {
    let caching = CachingConfig::default();
    let said = ResponseDirectives::of(headers, &caching);
    let _ = RequestDirectives::of(headers);
    let _ = policy_of(StatusCode::OK, headers, 1);
    let stored = storing::stored_headers(headers, &said, &caching, NOW);
    assert!(dates::header(&stored, &DATE, NOW).is_some(), "a stored response has a date");
    let _ = preconditions::evaluate(&Method::GET, headers, StatusCode::OK, headers, NOW);
    let _ = preconditions::range_applies(headers, headers, NOW);
    let _ = ranges::answer(&Method::GET, headers, 100, 4);
    let _ = Part::of(headers);
    let _ = validation::merge(headers, headers, &caching, NOW);
    let _ = validation::updated_by_304(headers, &[headers, headers]);
    let compared = validation::Compared {
        status: StatusCode::OK,
        headers,
        length_bytes: Some(1),
        is_personal: false,
        was_asked_about: true,
        is_for_sender: false,
    };
    let _ = validation::head_effect(compared, StatusCode::OK, headers);
    let _ = cache_groups::invalidated(&Method::POST, StatusCode::OK, headers);
    let _ = group::Groups::named("h", headers);
    let _ = group::Groups::by_page("h", "h", "/a", headers, headers);
    let base = invalidation::Base {
        origins: [("http", "h"), ("http", ""), ("", "")],
        path_and_query: text,
    };
    let _ = invalidation::named(base, headers).count();
    let _ = key::KeyRules { sort_query: true, ..Default::default() }.primary("http", "h", text);
    let _ = key::normal_host(text, "https");
    if let vary::Vary::Names(names) = vary::of(headers) {
        vary::secondary_key(&names, headers, &caching, &mut Vec::new());
    }
    let status =
        CacheStatus { key: Some(text.to_owned()), ..CacheStatus::forwarded(ForwardReason::Stale) };
    assert!(sfv::Parser::new(&status.render("damelo")).parse::<sfv::List>().is_ok());
}
