//! Fuzzes what is decided of a message by its header. Threads: none.
//!
//! The input is lines of `name:value`, first a request's; after an empty line follow those of a
//! response, and after another those of a newer response to the same request. Besides not
//! panicking, what is decided must be consistent.
#![no_main]

use damelo_http_rules::cache_control::{RequestDirectives, ResponseDirectives};
use damelo_http_rules::parts::{self, Part};
use damelo_http_rules::preconditions::{self, Outcome};
use damelo_http_rules::reuse::{self, Arrived, Decision, Policy};
use damelo_http_rules::storing::{self, Exchange};
use damelo_http_rules::{
    CacheStatus, CachingConfig, ForwardReason, cache_groups, group, invalidation, ranges, trailers,
    validation, vary,
};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
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

fn store_and_reuse(
    request: &HeaderMap,
    response: &HeaderMap,
    newer: &HeaderMap,
    caching: &CachingConfig,
) {
    let directives = ResponseDirectives::of(response, caching);
    let wishes = RequestDirectives::of(request);
    let exchange = Exchange {
        method: &Method::GET,
        request,
        wishes: &wishes,
        status: StatusCode::OK,
        response,
        directives: &directives,
        response_time_s: NOW,
        selective: false,
    };
    if storing::decide(exchange, caching).is_ok() {
        assert!(!directives.private && !directives.no_store && !wishes.no_store);
    }
    let arrived = Arrived {
        status: StatusCode::OK,
        headers: response,
        received: response,
        directives: &directives,
        request_time_ms: NOW * 1000,
        response_time_ms: NOW * 1000,
    };
    let policy = Policy::of(arrived, caching);
    // It only gets older.
    for (now_ms, later_ms) in [(NOW * 1000, NOW * 1000 + 1), (NOW * 1000 + 1, u64::MAX)] {
        assert!(policy.age_s(now_ms) <= policy.age_s(later_ms));
        assert!(policy.ttl_s(now_ms) >= policy.ttl_s(later_ms));
        if policy.staleness_ms(now_ms).is_some() && !policy.never_stale {
            assert!(policy.staleness_ms(later_ms).is_some());
        }
        let decision = reuse::decide(&wishes, &policy, caching, now_ms);
        if decision == Decision::Serve {
            assert!(policy.staleness_ms(now_ms).is_none());
        }
        let _ = reuse::decide(&wishes, &policy.made_stale(), caching, now_ms);
    }
    let stored = storing::stored_headers(response, &directives, caching, NOW);
    assert!(!stored.contains_key("connection") && !stored.contains_key(TRANSFER_ENCODING));
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
    let _ = validation::head_effect(StatusCode::OK, &newer, 1, StatusCode::OK, &response);
    let _ = cache_groups::invalidated(&Method::POST, StatusCode::OK, &response);
    let _ = group::Groups::named("h", &response);
    let _ = group::Groups::by_page("h", "h", "/a", &request, &response);
    let origins = [("http", "h"), ("https", "h"), ("", "")];
    let base = invalidation::Base { origins, path_and_query: "/a?b" };
    assert!(invalidation::named(base, &response).all(|path| path.starts_with('/')));
    let _ = invalidation::represents_target(base, &response);
    if let vary::Vary::Names(names) = vary::of(&response) {
        assert!(
            (1..=vary::VARY_NAMES_MAX).contains(&names.len())
                && names.is_sorted_by_key(|name| name.as_str())
        );
        let mut keys = [Vec::new(), Vec::new()];
        vary::secondary_key(&names, &request, &caching, &mut keys[0]);
        // Asked for as what it stands for, it is the same variant.
        let mut reduced = request.clone();
        vary::reduce_request(&mut reduced, &caching);
        vary::secondary_key(&names, &reduced, &caching, &mut keys[1]);
        assert_eq!(keys[0], keys[1]);
    }
    let mut sifted = newer;
    trailers::sift(&mut sifted);
    assert!(!sifted.contains_key(CONTENT_LENGTH));
    let text = String::from_utf8_lossy(data);
    let shown = CacheStatus {
        key: Some(text.into_owned()),
        ..CacheStatus::forwarded(ForwardReason::Stale)
    };
    assert!(sfv::Parser::new(&shown.render("c")).parse::<sfv::List>().is_ok());
});
