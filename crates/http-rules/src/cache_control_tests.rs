//! Tables for the parsing of `Cache-Control`.

use super::*;
use crate::config::CachingConfig;
use http::HeaderValue;

fn lines(lines: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(CACHE_CONTROL, HeaderValue::from_bytes(line.as_bytes()).unwrap());
    }
    headers
}

fn response(text: &[&str]) -> ResponseDirectives {
    ResponseDirectives::of(&lines(text), &CachingConfig::default())
}

fn request(text: &[&str]) -> RequestDirectives {
    RequestDirectives::of(&lines(text))
}

/// RFC 9111 §1.2.2, §4.2.1, §5.2.
#[test]
fn lifetimes_take_the_safe_side() {
    for (text, max_age) in [
        ("max-age=60", Some(60)),
        ("MAX-AGE=60", Some(60)),
        ("max-age=\"60\"", Some(60)),
        ("max-age=0060", Some(60)),
        ("max-age=60, max-age=30", Some(30)),
        ("max-age=30, max-age=60", Some(30)),
        ("max-age=", Some(0)),
        ("max-age", Some(0)),
        ("max-age=-1", Some(0)),
        ("max-age=1.5", Some(0)),
        ("max-age=60.0", Some(0)),
        ("max-age=60s", Some(0)),
        ("max-age=s60", Some(0)),
        ("max-age='60'", Some(0)),
        ("max-age= 60", Some(0)),
        ("max-age =60", Some(0)),
        ("max-age=60 s", Some(0)),
        ("max-age=\"60\"s", Some(0)),
        ("max-age=\"6\\0\"", Some(0)),
        ("public max-age=60", Some(0)),
        ("max-age=60 ,public", Some(60)),
        ("max-age=2147483647", Some(2_147_483_647)),
        ("max-age=2147483648", Some(DELTA_SECONDS_MAX)),
        ("max-age=99999999999999999999999999", Some(DELTA_SECONDS_MAX)),
        ("xmax-age=60", None),
        ("max-age;60", Some(0)),
        ("max-age=60;", Some(0)),
        ("max-age=60 private", Some(0)),
        ("max-age=60;max-age=90, max-age=70", Some(0)),
        ("foo=\"max-age=60\" bar", None),
        ("ext=\"max-age=60\"", None),
        ("ext=\"a\\\", max-age=60\"", None),
        ("ext='max-age=60'", None),
        ("ext=\"\\\\\", max-age=60", Some(60)),
        (",, ,max-age=5,,", Some(5)),
        ("foo, max-age=5, bar=baz", Some(5)),
    ] {
        assert_eq!(response(&[text]).max_age, max_age, "{text}");
    }
    assert_eq!(response(&["max-age=60", "max-age=1"]).max_age, Some(1), "two lines");
}

/// RFC 9111 §5.2.2.
#[test]
fn lines_and_quoted_lists_add_up() {
    let cc = response(&["public, private=\"Set-Cookie, X-A\"", "no-cache=foo,S-MaxAge=7"]);
    assert!(cc.public && !cc.private && !cc.no_cache && !cc.no_store);
    assert_eq!(cc.private_fields, ["set-cookie", "x-a"]);
    assert_eq!(cc.no_cache_fields, ["foo"]);
    assert_eq!(cc.s_maxage, Some(7));
    assert!(response(&["private=\"\""]).private, "an empty list is unqualified");
    assert!(response(&["private=\"a b\""]).private, "not a list of names");
    assert!(response(&["private='set-cookie'"]).private, "names that are not quoted");
    for switch in ["true", "True", "false", "\"true\"", "yes", "1", "0"] {
        assert!(response(&[&format!("private={switch}")]).private, "{switch}");
        assert!(response(&[&format!("max-age=60, no-cache={switch}")]).no_cache, "{switch}");
    }
    assert!(response(&["no-cache='set-cookie, x'"]).no_cache, "names that are not quoted");
    let cc = response(&["private=\",, a ,, b,\""]);
    assert!(!cc.private && cc.private_fields == ["a", "b"], "empty members mean nothing");
    assert!(response(&["private=\"a, b c\""]).private, "one of them is no name");
    assert!(response(&["no-store=1"]).no_store);
    assert!(response(&["max-age=\"5, public"]).no_store, "unclosed quote");
    assert!(response(&["a=\"x\"garbage, no-store"]).no_store);
    assert!(!response(&["no-stores, xno-store, \"no-store\""]).no_store);
}

#[test]
fn a_missing_comma_restricts_and_never_permits() {
    let cc = response(&["public immutable must-understand no-store private max-age=9"]);
    assert!(cc.no_store && cc.private);
    assert!(!cc.public && !cc.immutable && !cc.must_understand);
    assert_eq!(cc.max_age, Some(0));
    assert!(!response(&["public=1"]).public);
}

#[test]
fn what_restricts_counts_wherever_it_stands() {
    for member in ["private", "no-store", "no-cache", "must-revalidate"] {
        for text in [
            "X;",
            "X ;",
            "X; foo",
            "X;foo",
            ";X",
            "foo;X",
            "foo; X",
            "foo=1;X",
            "foo=1; X",
            "foo X",
            "foo=1 X",
            "foo=\"1\";X",
            "foo=\"1\" X",
            "X/foo",
            "foo/X",
            "foo=/X",
            "foo==X",
            "foo= X",
            "\"foo\" X",
            "[X]",
            "X foo=\"1\"",
            "max-age=60;X, max-age=60",
        ] {
            let cc = response(&[&text.replace('X', member)]);
            let found = [cc.private, cc.no_store, cc.no_cache, cc.must_revalidate];
            assert!(found.contains(&true), "{text} {member}");
        }
        let text =
            format!("public, max-age=60, foo=\"{member}\", \"{member}\", x{member}, {member}x");
        let cc = response(&[&text]);
        let found = [cc.private, cc.no_store, cc.no_cache, cc.must_revalidate];
        assert!(!found.contains(&true), "{text}");
    }
    assert!(response(&["private=\"set-cookie\";foo"]).private, "no longer a list of names");
    assert!(response(&["foo;\"x, max-age=60"]).no_store, "unclosed quote");
    assert!(!response(&["public;, max-age=60"]).public);
    assert!(request(&["max-age=60;no-store"]).no_store);
    assert!(request(&["no-cache;"]).no_cache);
    assert!(request(&["foo;only-if-cached"]).only_if_cached);
}

/// RFC 5861, RFC 8246, RFC 9111 §5.2.2.3.
#[test]
fn extensions_are_read() {
    let cc = response(&["stale-while-revalidate=30, stale-if-error=\"60\", Immutable"]);
    assert_eq!((cc.stale_while_revalidate_s, cc.stale_if_error_s), (Some(30), Some(60)));
    assert!(cc.immutable);
    assert_eq!(response(&["stale-while-revalidate"]).stale_while_revalidate_s, Some(0));
    for text in ["stale-if-error=9", "stale-if-error=9, stale-if-error=60"] {
        assert_eq!(request(&[text]).stale_if_error_s, Some(9), "{text}");
        assert_eq!(response(&[text]).stale_if_error_s, Some(9), "{text}");
    }
    let twice = response(&["stale-while-revalidate=9", "stale-while-revalidate=60"]);
    assert_eq!(twice.stale_while_revalidate_s, Some(9));
    for text in ["stale-if-error", "foo stale-if-error=9", "stale-if-error=9;"] {
        assert_eq!(request(&[text]).stale_if_error_s, Some(0), "{text}");
        assert_eq!(response(&[text]).stale_if_error_s, Some(0), "{text}");
    }
}

/// RFC 9111 §5.2.1, §5.4.
#[test]
fn request_directives() {
    assert_eq!(request(&["max-stale"]).max_stale, Some(MaxStale::Any));
    assert_eq!(request(&["max-stale=5"]).max_stale, Some(MaxStale::Seconds(5)));
    assert_eq!(request(&["max-stale=x"]).max_stale, Some(MaxStale::Seconds(0)));
    for text in ["max-stale, max-stale=9", "max-stale=9, max-stale", "max-stale=9, max-stale=99"] {
        assert_eq!(request(&[text]).max_stale, Some(MaxStale::Seconds(9)), "{text}");
    }
    for text in ["foo max-stale", "max-stale;", "max-stale=5 foo", "max-stale, max-stale="] {
        assert_eq!(request(&[text]).max_stale, Some(MaxStale::Seconds(0)), "{text}");
    }
    assert_eq!(request(&["min-fresh=9, min-fresh=5"]).min_fresh, Some(9));
    assert_eq!(request(&["max-age=9, max-age=5"]).max_age, Some(5));
    assert_eq!(request(&["min-fresh=5, min-fresh=9"]).min_fresh, Some(9));
    assert_eq!(request(&["min-fresh=soon"]).min_fresh, Some(DELTA_SECONDS_MAX));
    assert_eq!(request(&["max-age=soon"]).max_age, Some(0));
    assert!(request(&["only-if-cached"]).only_if_cached);
    assert!(request(&["no-cache=\"x\""]).no_cache);
    let unclosed = request(&["foo=\"max-stale"]);
    assert!(unclosed.no_cache && unclosed.no_store && unclosed.max_stale.is_none());
}

#[test]
fn pragma_counts_only_alone() {
    let mut headers = HeaderMap::new();
    headers.insert(PRAGMA, HeaderValue::from_static("x, No-Cache"));
    assert!(RequestDirectives::of(&headers).no_cache);
    let response = ResponseDirectives::of(&headers, &CachingConfig::default());
    assert_eq!(response, ResponseDirectives::default(), "means nothing in a response");
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=1"));
    assert!(!RequestDirectives::of(&headers).no_cache, "Cache-Control goes first");
}
