//! Fuzzes what is decided of a message by its header. Threads: none.
//!
//! The input is lines of `name:value`, first a request's; after an empty line follow those of a
//! response, and after another those of a newer response to the same request. Besides not
//! panicking, what is decided must be consistent.
#![no_main]

use damelo_http_rules::cache_control::{MaxStale, RequestDirectives, ResponseDirectives};
use damelo_http_rules::negotiation::Normaliser;
use damelo_http_rules::parts::{self, Part};
use damelo_http_rules::preconditions::{self, Outcome};
use damelo_http_rules::reuse::{self, Arrived, Decision, Failure, Policy};
use damelo_http_rules::storing::{self, Exchange};
use damelo_http_rules::{
    CacheStatus, CachingConfig, ForwardReason, cache_groups, group, invalidation, ranges, trailers,
    validation, vary,
};
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use libfuzzer_sys::fuzz_target;

const NOW: u64 = 1_795_000_000;

/// The lines up to an empty one.
fn headers<'a>(lines: impl Iterator<Item = &'a [u8]>) -> HeaderMap {
    let mut map = HeaderMap::new();
    for line in lines.take_while(|line| !line.is_empty()).take(64) {
        let Some(colon) = line.iter().position(|b| *b == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            map.append(name, value);
        }
    }
    map
}

fn storable(request: &HeaderMap, response: &HeaderMap, caching: &CachingConfig) -> bool {
    let exchange = Exchange {
        method: &Method::GET,
        request,
        wishes: &RequestDirectives::of(request),
        status: StatusCode::OK,
        response,
        directives: &ResponseDirectives::of(response, caching),
        response_time_s: NOW,
        with_cookie: false,
        selective: false,
    };
    storing::decide(exchange, caching).is_ok()
}

/// What forbids to store does so, whatever else is said; but for `no-store` beside
/// `must-understand`.
fn store(request: &HeaderMap, response: &HeaderMap, caching: &CachingConfig) {
    let with = |map: &HeaderMap, directive: &'static str| {
        let mut more = map.clone();
        more.append(CACHE_CONTROL, HeaderValue::from_static(directive));
        more
    };
    let directives = ResponseDirectives::of(response, caching);
    if storable(request, response, caching) {
        let wishes = RequestDirectives::of(request);
        assert!(!directives.private && !wishes.no_store);
        assert!(!directives.no_store || directives.must_understand);
        assert!(!request.contains_key(AUTHORIZATION) || directives.shareable);
    }
    assert!(!storable(&with(request, "no-store"), response, caching));
    // Fields that go before it may overrule `Cache-Control`.
    if !directives.targeted {
        assert!(!storable(request, &with(response, "private"), caching));
        let no_store = with(response, "no-store");
        assert!(!storable(request, &no_store, caching) || directives.must_understand);
    }
    let mut authorised = request.clone();
    authorised.insert(AUTHORIZATION, HeaderValue::from_static("Basic eDp5"));
    assert!(!storable(&authorised, response, caching) || directives.shareable);
}

/// Nothing is served past what the client, the response or the operator allows.
fn serve(wishes: &RequestDirectives, policy: &Policy, caching: &CachingConfig, now_ms: u64) {
    let millis = |seconds: u64| seconds.saturating_mul(1000);
    let stale_ms = policy.staleness_ms(now_ms);
    match reuse::decide(wishes, policy, caching, now_ms) {
        Decision::Serve => assert!(stale_ms.is_none()),
        Decision::ServeStale => {
            assert!(!policy.never_stale && !policy.no_cache && wishes.min_fresh.is_none());
            match wishes.max_stale.expect("the client tolerates it") {
                MaxStale::Any => assert!(stale_ms.is_some()),
                MaxStale::Seconds(max_s) => assert!(stale_ms.is_some_and(|ms| ms <= millis(max_s))),
            }
        }
        Decision::ServeAndRevalidate => {
            assert!(!policy.never_stale && !policy.no_cache && wishes.max_age.is_none());
            assert!(stale_ms.is_some_and(|ms| ms < policy.stale_while_revalidate_ms));
        }
        Decision::Validate(_) => {}
    }
    if reuse::decide(wishes, policy, caching, now_ms) != Decision::Validate(ForwardReason::Request)
    {
        assert!(!wishes.no_cache);
        let fresh = stale_ms.is_none();
        let young = wishes.max_age.is_none_or(|max_s| policy.age_s(now_ms) <= max_s);
        assert!(young || (policy.immutable && fresh));
    }
    for (failure, limit_s) in [
        (Failure::Disconnected, caching.disconnected_stale_max_s),
        (Failure::Status(StatusCode::BAD_GATEWAY), 0),
    ] {
        if !reuse::may_serve_on_error(wishes, policy, failure, caching, now_ms) {
            continue;
        }
        assert!(!wishes.no_cache && !policy.no_cache);
        if let Some(stale_ms) = stale_ms {
            let asked_ms = millis(wishes.stale_if_error_s.unwrap_or(0));
            let limit_ms = policy.stale_if_error_ms.max(asked_ms).max(millis(limit_s));
            assert!(!policy.never_stale && stale_ms < limit_ms);
        }
    }
}

fn store_and_reuse(
    request: &HeaderMap,
    response: &HeaderMap,
    newer: &HeaderMap,
    caching: &CachingConfig,
) {
    store(request, response, caching);
    let directives = ResponseDirectives::of(response, caching);
    let wishes = RequestDirectives::of(request);
    let arrived = Arrived {
        status: StatusCode::OK,
        headers: response,
        received: response,
        directives: &directives,
        with_cookie: false,
        request_time_ms: NOW * 1000,
        response_time_ms: NOW * 1000,
    };
    let policy = Policy::of(arrived, caching);
    // It only gets older. The edges of what it may be served for are moments like any other.
    let end_ms = (NOW * 1000).saturating_add(policy.lifetime_ms);
    let windows = [policy.stale_while_revalidate_ms, policy.stale_if_error_ms];
    let edges = windows.map(|window_ms| end_ms.saturating_add(window_ms));
    let mut moments = vec![0, NOW * 1000 - 60_001, NOW * 1000, NOW * 1000 + 1, u64::MAX];
    for edge in edges.into_iter().chain([end_ms]) {
        let edge = edge.saturating_sub(policy.initial_age_ms);
        moments.extend([edge.saturating_sub(1), edge, edge.saturating_add(1)]);
    }
    for now_ms in moments {
        serve(&wishes, &policy, caching, now_ms);
        serve(&wishes, &policy.made_stale(), caching, now_ms);
        assert!(policy.made_stale().staleness_ms(now_ms) >= policy.staleness_ms(now_ms));
    }
    for (now_ms, later_ms) in [(NOW * 1000, NOW * 1000 + 1), (NOW * 1000 + 1, u64::MAX)] {
        assert!(policy.age_s(now_ms) <= policy.age_s(later_ms));
        assert!(policy.ttl_s(now_ms) >= policy.ttl_s(later_ms));
        assert!(policy.staleness_ms(now_ms) <= policy.staleness_ms(later_ms));
    }
    let stored = storing::stored_headers(response, &directives, caching, NOW);
    assert!(!stored.contains_key("connection") && !stored.contains_key(TRANSFER_ENCODING));
    // What is stored is for whom and for as long as what was received, and is stored as it is
    // again.
    assert_eq!(vary::of(&stored), vary::of(response));
    let said = ResponseDirectives::of(&stored, caching);
    assert_eq!(said, directives);
    assert_eq!(storing::stored_headers(&stored, &said, caching, NOW), stored);
    let merged = validation::merge(&stored, newer, caching, NOW);
    assert!(merged.contains_key("date"));
    assert_eq!(merged.get(CONTENT_LENGTH), stored.get(CONTENT_LENGTH));
}

/// Conditions made of a stored response are met by that very response.
fn validate(request: &HeaderMap, response: &HeaderMap) {
    let method = Method::GET;
    let _ = preconditions::evaluate(&method, request, StatusCode::OK, response, NOW);
    let _ = preconditions::range_applies(request, response, NOW);
    let mut plain = request.clone();
    validation::remove_conditions(&mut plain);
    assert!(!preconditions::for_origin_only(&plain, &CachingConfig::default()));
    let outcome = preconditions::evaluate(&method, &plain, StatusCode::OK, response, NOW);
    assert_eq!(outcome, Outcome::Proceed);
    let mut conditional = plain;
    validation::make_conditional(&mut conditional, response);
    let outcome = preconditions::evaluate(&method, &conditional, StatusCode::OK, response, NOW);
    assert_ne!(outcome, Outcome::Failed);
    let mut kept = response.clone();
    validation::headers_for_304(&mut kept);
    assert!(kept.keys().all(|name| response.contains_key(name)));
}

fn answer_ranges(request: &HeaderMap, response: &HeaderMap) {
    for length in [0, 1, 1000, u64::MAX] {
        match ranges::answer(&Method::GET, request, length, 8) {
            ranges::Answer::One(range) => {
                assert!(range.start < range.end && range.end <= length);
                let said = ranges::content_range(&range, length);
                let part = Part::of(&HeaderMap::from_iter([(http::header::CONTENT_RANGE, said)]));
                let part = part.expect("what we write we read");
                assert_eq!((part.start..part.end, part.complete_bytes), (range, length));
            }
            ranges::Answer::Several(ranges) => {
                assert!((2..=8).contains(&ranges.len()));
                // No byte is sent twice.
                for (at, a) in ranges.iter().enumerate() {
                    assert!(a.start < a.end && a.end <= length);
                    assert!(ranges[..at].iter().all(|b| a.end < b.start || b.end < a.start));
                }
                let frame = ranges::Multipart::new(response, &ranges, length, 7);
                let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
                let heads: usize = frame.heads.iter().map(Vec::len).sum();
                let framed = u128::from(bytes) + (heads + frame.tail.len()) as u128;
                assert!(framed > u128::from(u64::MAX) || framed == u128::from(frame.length_bytes));
            }
            ranges::Answer::Whole | ranges::Answer::Unsatisfiable => {}
        }
    }
}

fn join_parts(response: &HeaderMap, newer: &HeaderMap) {
    let (Some(older), Some(newer_part)) = (Part::of(response), Part::of(newer)) else { return };
    for part in [older, newer_part] {
        assert!(part.start < part.end && part.end <= part.complete_bytes);
        assert_eq!(part.locate(&(part.start..part.end)), Some(0..part.length_bytes()));
    }
    if let Some(both) = older.joined(&newer_part) {
        assert!(
            both.length_bytes() <= older.length_bytes().saturating_add(newer_part.length_bytes())
        );
        assert!(both.locate(&(older.start..older.end)).is_some());
        assert!(both.locate(&(newer_part.start..newer_part.end)).is_some());
    }
    if parts::may_combine(response, newer, NOW) {
        assert!(parts::may_combine(newer, response, NOW));
    }
}

fuzz_target!(|data: &[u8]| {
    let caching = CachingConfig::default();
    let mut lines = data.split(|b| *b == b'\n');
    let [request, response, newer] = [(); 3].map(|()| headers(&mut lines));
    store_and_reuse(&request, &response, &newer, &caching);
    validate(&request, &response);
    answer_ranges(&request, &response);
    join_parts(&response, &newer);
    for at in validation::updated_by_304(&newer, &[&response, &response]) {
        assert!(at < 2);
    }
    let compared = validation::Compared {
        status: StatusCode::OK,
        headers: &newer,
        length_bytes: Some(1),
        is_personal: false,
        was_asked_about: newer.contains_key("etag"),
        is_for_sender: newer.contains_key("set-cookie"),
    };
    let _ = validation::head_effect(compared, StatusCode::OK, &response);
    let _ = cache_groups::invalidated(&Method::POST, StatusCode::OK, &response);
    let _ = group::Groups::named("h", &response);
    let _ = group::Groups::by_page("h", "h", "/a", &request, &response);
    let origins = [("http", "h"), ("https", "h"), ("", "")];
    let base = invalidation::Base { origins, path_and_query: "/a?b" };
    assert!(invalidation::named(base, &response).all(|path| path.starts_with('/')));
    let _ = invalidation::represents_target(base, &response);
    select(&request, &response, &caching);
    select(&request, &response, &reducing());
    let mut sifted = newer;
    trailers::sift(&mut sifted);
    assert!(!sifted.contains_key(CONTENT_LENGTH));
    show(&String::from_utf8_lossy(data), data.len() as i64 - 8);
});

/// What is written of any key and any time is one member of a List, and says what was meant.
fn show(key: &str, ttl: i64) {
    let status = CacheStatus {
        key: Some(key.to_owned()),
        ttl_s: Some(ttl.saturating_mul(i64::MAX >> 10)),
        ..CacheStatus::forwarded(ForwardReason::Stale)
    };
    let list = sfv::Parser::new(&status.render("c")).parse::<sfv::List>();
    let list = list.expect("a structured field");
    let [sfv::ListEntry::Item(item)] = &list[..] else { panic!("one member") };
    let read = item.params.get("key").and_then(|key| key.as_string()).map(|key| key.as_str());
    let plain: String = key.chars().map(|c| if matches!(c, ' '..='~') { c } else { '?' }).collect();
    assert_eq!(read, Some(&*plain));
    let sign = item.params.get("ttl").and_then(|ttl| ttl.as_integer()).map(i64::from);
    assert_eq!(sign.map(i64::signum), Some(ttl.signum()));
}

/// A configuration that reduces requests and has headers and cookies in keys.
fn reducing() -> CachingConfig {
    let best = |names: &[&str]| Normaliser::BestOf(names.iter().map(|n| (*n).to_owned()).collect());
    let mut caching = CachingConfig::default();
    caching.accept_encoding = best(&["br", "gzip"]);
    caching.accept_language = best(&["en", "en-GB", "de"]);
    caching.key.headers = vec![HeaderName::from_static("accept-language")];
    caching.key.cookies = vec!["a".to_owned()];
    caching
}

/// Which variant a request is for.
fn select(request: &HeaderMap, response: &HeaderMap, caching: &CachingConfig) {
    if let vary::Vary::Names(names) = vary::of(response) {
        assert!(
            (1..=vary::VARY_NAMES_MAX).contains(&names.len())
                && names.is_sorted_by_key(|name| name.as_str())
        );
        let mut keys = [Vec::new(), Vec::new()];
        vary::secondary_key(&names, request, caching, &mut keys[0]);
        // Asked for as what it stands for, it is the same variant.
        let mut reduced = request.clone();
        vary::reduce_request(&mut reduced, caching);
        vary::secondary_key(&names, &reduced, caching, &mut keys[1]);
        assert_eq!(keys[0], keys[1]);
        let mut twice = reduced.clone();
        vary::reduce_request(&mut twice, caching);
        assert_eq!(twice, reduced);
    }
}
