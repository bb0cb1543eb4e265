//! Fuzzes everything that reads what an HTTP peer sends. Threads: none.
//!
//! The input is lines of `name:value`; the same headers serve as request, stored response and
//! response of the origin. Besides not panicking, what is decided must be consistent.
#![no_main]

use damelo_http_rules::cache_control::{RequestDirectives, ResponseDirectives};
use damelo_http_rules::parts::Part;
use damelo_http_rules::reuse::{self, Arrived, Decision, Policy};
use damelo_http_rules::storing::{self, Exchange};
use damelo_http_rules::{
    CacheStatus, Forward, Rules, cache_groups, group, invalidation, key, preconditions, ranges,
    validation, vary,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use libfuzzer_sys::fuzz_target;

const NOW: u64 = 1_795_000_000;

fn headers(data: &[u8]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for line in data.split(|b| *b == b'\n').take(64) {
        let Some(colon) = line.iter().position(|b| *b == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(&line[colon + 1..]);
        if let (Ok(name), Ok(value)) = (name, value) {
            map.append(name, value);
        }
    }
    map
}

fn store_and_reuse(map: &HeaderMap, rules: &Rules) {
    let directives = ResponseDirectives::of(map, rules);
    let wishes = RequestDirectives::of(map);
    let exchange = Exchange {
        method: &Method::GET,
        request: map,
        wishes: &wishes,
        status: StatusCode::OK,
        response: map,
        directives: &directives,
        response_time_s: NOW,
        selective: false,
    };
    if storing::decide(exchange, rules).is_ok() {
        assert!(!directives.private && !wishes.no_store);
    }
    let arrived = Arrived {
        status: StatusCode::OK,
        headers: map,
        received: map,
        directives: &directives,
        request_time_s: NOW,
        response_time_s: NOW,
    };
    let policy = Policy::of(arrived, rules);
    let stale = policy.staleness_s(NOW).is_some();
    if reuse::decide(&wishes, &policy, rules, NOW) == Decision::Serve {
        assert!(!stale);
    }
    let stored = storing::stored_headers(map, &directives, rules, NOW);
    assert!(validation::merge(&stored, map, rules, NOW).contains_key("date"));
}

fuzz_target!(|data: &[u8]| {
    let rules = Rules::default();
    let map = headers(data);
    store_and_reuse(&map, &rules);
    let _ = preconditions::evaluate(&Method::GET, &map, StatusCode::OK, &map, NOW);
    let _ = preconditions::range_applies(&map, &map, NOW);
    for length in [0, 1, 1000] {
        match ranges::answer(&Method::GET, &map, length, 8) {
            ranges::Answer::One(range) => assert!(range.start < range.end && range.end <= length),
            ranges::Answer::Several(ranges) => {
                assert!(ranges.iter().map(|r| r.end - r.start).sum::<u64>() <= length);
            }
            ranges::Answer::Whole | ranges::Answer::Unsatisfiable => {}
        }
    }
    if let Some(part) = Part::of(&map) {
        assert!(part.start < part.end && part.end <= part.complete_bytes);
    }
    let _ = validation::updated_by_304(&map, &[&map, &map]);
    let _ = validation::head_effect(StatusCode::OK, &map, 1, StatusCode::OK, &map);
    let _ = cache_groups::invalidated(&Method::POST, StatusCode::OK, &map);
    let _ = group::Groups::of("h", "h", "/a", &map, &map);
    let text = String::from_utf8_lossy(data);
    let base = invalidation::Base { scheme: "http", hosts: ["h", ""], path_and_query: "/a?b" };
    let _ = invalidation::named(base, &map).count();
    if let Some(path) = invalidation::resolve(base, &text) {
        assert!(path.starts_with('/'));
    }
    let _ = key::KeyRules { sort_query: true, ..Default::default() }.primary("http", "h", &text);
    if let vary::Vary::Names(names) = vary::of(&map) {
        vary::secondary_key(&names, &map, &rules, &mut Vec::new());
    }
    let shown =
        CacheStatus { key: Some(text.into_owned()), ..CacheStatus::forwarded(Forward::Stale) };
    assert!(sfv::Parser::new(&shown.render("c")).parse::<sfv::List>().is_ok());
});
