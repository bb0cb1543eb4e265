//! Fuzzes the parsers of single values against simpler ones that say the same. Threads: none.
//!
//! The first byte of the input says what the rest is: a date, a `Range`, directives, a URL's tail,
//! a host.
#![no_main]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use damelo_http_rules::cache_control::{RequestDirectives, ResponseDirectives};
use damelo_http_rules::key::{KeyRules, QueryRule, is_plain_authority, normal_host};
use damelo_http_rules::ranges::{self, Spec};
use damelo_http_rules::{CachingConfig, dates, invalidation};
use http::header::{CACHE_CONTROL, RANGE};
use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;

/// Monday, 2026-11-16 12:26:40.
const NOW: u64 = 1_794_832_000;

fn one(name: HeaderName, value: &[u8]) -> Option<HeaderMap> {
    let value = HeaderValue::from_bytes(value).ok()?;
    Some(HeaderMap::from_iter([(name, value)]))
}

/// What httpdate reads is read as the same second; it knows no weekday that is not the right one,
/// no case and no leap second, and another century for two digits.
fn date(text: &[u8]) {
    let read = dates::parse(text, NOW);
    if let Some(unix_s) = read {
        let written = dates::format(unix_s);
        assert_eq!(dates::parse(written.as_bytes(), NOW), Some(unix_s), "{written}");
    }
    // It takes any white space off the ends, which may not stand in a field.
    if HeaderValue::from_bytes(text).is_err() {
        return;
    }
    let Ok(text) = std::str::from_utf8(text) else { return };
    let theirs: Option<SystemTime> = httpdate::parse_http_date(text.trim_ascii()).ok();
    let theirs = theirs.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map(|d| d.as_secs());
    let two_digits = text.contains('-');
    if let (Some(theirs), false) = (theirs, two_digits) {
        assert_eq!(read, Some(theirs), "{text}");
        assert!(UNIX_EPOCH.checked_add(Duration::from_secs(theirs)).is_some());
    }
}

/// Each byte of a short whole is in the answer if a range asks for it, and in no more.
fn range(text: &[u8]) {
    const LENGTH: u64 = 40;
    let Some(headers) = one(RANGE, text) else { return };
    let Some(specs) = ranges::parse(&headers) else { return };
    let wanted = |byte: u64| {
        specs.iter().any(|spec| match *spec {
            Spec::From { first, last } => first <= byte && last.is_none_or(|last| byte <= last),
            Spec::Suffix { length } => LENGTH - byte <= length,
        })
    };
    let sent = match ranges::answer(&http::Method::GET, &headers, LENGTH, usize::MAX) {
        ranges::Answer::One(range) => vec![range],
        ranges::Answer::Several(ranges) => ranges,
        ranges::Answer::Unsatisfiable => Vec::new(),
        ranges::Answer::Whole => panic!("no more ranges than bytes"),
    };
    for byte in 0..LENGTH {
        let times = sent.iter().filter(|range| range.contains(&byte)).count();
        assert_eq!(times, usize::from(wanted(byte)), "byte {byte}");
    }
}

/// Another line of directives never allows what one alone forbids.
fn directives(text: &[u8]) {
    let Some(alone) = one(CACHE_CONTROL, text) else { return };
    let caching = CachingConfig::default();
    let mut both = alone.clone();
    both.append(CACHE_CONTROL, HeaderValue::from_static("no-store, max-age=5"));
    let (a, b) =
        (ResponseDirectives::of(&alone, &caching), ResponseDirectives::of(&both, &caching));
    assert!(b.no_store && b.no_cache >= a.no_cache && b.private >= a.private);
    assert!(b.must_revalidate >= a.must_revalidate && b.proxy_revalidate >= a.proxy_revalidate);
    assert!(
        b.max_age.is_some_and(|seconds| seconds <= 5 && a.max_age.is_none_or(|a| seconds <= a))
    );
    let (a, b) = (RequestDirectives::of(&alone), RequestDirectives::of(&both));
    assert!(b.no_store && b.no_cache >= a.no_cache && b.only_if_cached >= a.only_if_cached);
    assert!(b.max_age.is_some_and(|seconds| seconds <= 5));
}

/// What a key keeps of a URL's tail, it keeps when asked again, and nothing that was not there.
fn tail(text: &str) {
    let listed = || vec!["utm_*".to_owned(), "a".to_owned()];
    for query in
        [QueryRule::All, QueryRule::None, QueryRule::Except(listed()), QueryRule::Only(listed())]
    {
        for sort_query in [false, true] {
            let rules = KeyRules { query: query.clone(), sort_query, ..KeyRules::default() };
            let kept = rules.path_and_query(text);
            assert_eq!(rules.path_and_query(&kept), kept, "{rules:?}");
            assert!(kept.len() <= text.len());
        }
    }
    let origins = [("http", "h:8080"), ("https", "example.org"), ("", "")];
    let base = invalidation::Base { origins, path_and_query: "/a/b/c?q=1" };
    if let Some(path) = invalidation::resolve(base, text) {
        assert!(path.starts_with('/') && !path.contains('#') && !path.contains(' '));
        let only_path = path.split('?').next().unwrap_or_default();
        assert!(only_path.split('/').all(|segment| segment != "." && segment != ".."), "{path}");
    }
    let _ = invalidation::host_of(text);
}

/// A host that counts as another one counts as that.
fn host(text: &str) {
    // No name has two colons in a row, but addresses of IPv6, which have brackets.
    let name = text.rsplit(']').next().unwrap_or_default();
    let odd = ["::", ".:"].iter().any(|twice| name.trim_end_matches(':').contains(twice));
    let is_host = is_plain_authority(text.as_bytes());
    if !is_host || text.parse::<http::uri::Authority>().is_err() || odd {
        return;
    }
    for scheme in ["http", "https"] {
        let normal = normal_host(text, scheme);
        assert_eq!(normal, normal.to_ascii_lowercase());
        assert_eq!(normal_host(&text.to_ascii_uppercase(), scheme), normal);
        assert_eq!(normal_host(&normal, scheme), normal, "{text}");
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((what, rest)) = data.split_first() else { return };
    match what {
        b'd' => date(rest),
        b'r' => range(rest),
        b'c' => directives(rest),
        b't' => tail(&String::from_utf8_lossy(rest)),
        b'h' => host(&String::from_utf8_lossy(rest)),
        _ => {}
    }
});
