//! One table over the wire: a response, a pause, a second request, and whether it may, or ought to,
//! be answered from the cache. By topic, in the order of RFC 9111.

use std::sync::Arc;

use crate::support::{Origin, Proxy, date, reply};

/// What the second request gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Second {
    /// From the cache.
    Hit,
    /// From the origin.
    Miss,
}
use Second::{Hit, Miss};

/// Status and headers of every answer; seconds that pass; headers of the second request; outcome.
type Case = (u16, String, u64, &'static str, Second);

fn case(
    status: u16,
    headers: impl Into<String>,
    pause_s: u64,
    second: &'static str,
    expected: Second,
) -> Case {
    (status, headers.into(), pause_s, second, expected)
}

fn check(topic: &str, cases: Vec<Case>) {
    let cases = Arc::new(cases);
    let answers = cases.clone();
    let origin = Origin::start(move |request| {
        let index: usize = request.path()[1..].parse().expect("an index");
        let (status, headers, ..) = &answers[index];
        reply(*status, headers, if matches!(status, 204 | 304) { "" } else { "body" })
    });
    for (index, (status, headers, pause_s, second, expected)) in cases.iter().enumerate() {
        // A clock of its own for each case.
        let proxy = Proxy::start(&origin);
        let path = format!("/{index}");
        let first = proxy.get(&path);
        assert_eq!(first.status(), *status);
        proxy.pass_seconds(*pause_s);
        let again = proxy.get_with(&path, second);
        let got = if again.cache().contains("damelo; hit") { Hit } else { Miss };
        let case = format!("{topic}: {status} {headers:?} after {pause_s} s, {second:?}");
        assert_eq!(got, *expected, "{case}: {}", again.cache());
        assert_eq!(again.status(), *status, "{case}");
        assert_eq!(again.has("age"), got == Hit || headers.contains("Age:"), "{case}");
    }
}

fn control(value: &str) -> String {
    format!("Cache-Control: {value}")
}

#[test]
fn freshness_by_cache_control() {
    let mut cases = Vec::new();
    for (value, expected) in [
        ("max-age=3600", Hit),
        ("max-age=0", Miss),
        ("max-age=2147483647", Hit),
        ("max-age=2147483648", Hit),
        ("max-age=99999999999", Hit),
        ("MaX-aGe=3600", Hit),
        ("max-age=\"3600\"", Hit),
        ("max-age='3600'", Miss),
        ("max-age=003600", Hit),
        ("max-age=-3600", Miss),
        ("max-age=3600.0", Miss),
        ("max-age=3600a", Miss),
        ("max-age=a3600", Miss),
        ("max-age= 3600", Miss),
        ("max-age =3600", Miss),
        ("foobar, max-age=3600", Hit),
        ("foobar=\"max-age=3600\", max-age=1", Miss),
        ("foobar=\"max-age=1\", max-age=3600", Hit),
        ("s-maxage=3600", Hit),
        ("s-maxage=1, max-age=3600", Miss),
        ("s-maxage=3600, max-age=1", Hit),
        ("max-age=3600, no-store", Miss),
        ("max-age=3600, NO-STORE", Miss),
        ("max-age=3600, no-cache", Miss),
        ("max-age=3600, private", Miss),
        ("max-age=3600, must-revalidate", Hit),
        ("max-age=1, must-revalidate", Miss),
        ("max-age=1, immutable", Miss),
        ("max-age=3600, no-store, must-understand", Hit),
    ] {
        cases.push(case(200, control(value), 10, "", expected));
    }
    cases.push(case(200, format!("{}\nAge: 7200", control("max-age=3600")), 0, "", Miss));
    cases.push(case(200, format!("{}\nDate: {}", control("max-age=60"), date(-90)), 0, "", Miss));
    check("Cache-Control", cases);
}

#[test]
fn freshness_by_expires() {
    let with = |expires: String| format!("Date: {}\nExpires: {expires}", date(0));
    let far = "18 Aug 2050 02:01:18";
    let mut cases = vec![
        case(200, with(date(3600)), 10, "", Hit),
        case(200, with(date(5)), 10, "", Miss),
        case(200, with(date(-3600)), 0, "", Miss),
        case(200, with("0".to_owned()), 0, "", Miss),
        case(200, format!("{}\nAge: 7200", with(date(3600))), 0, "", Miss),
        case(200, format!("{}\n{}", with("0".to_owned()), control("max-age=60")), 0, "", Hit),
        case(200, format!("{}\n{}", with(date(3600)), control("max-age=0")), 0, "", Miss),
        case(200, format!("Expires: {}\nDate: {}", date(60), date(3600)), 0, "", Miss),
    ];
    for (expires, expected) in [
        (format!("Thu, {far} GMT"), Hit),
        (format!("THU, {far} GMT"), Hit),
        (format!("Thu, {} GMT", far.replace("Aug", "AUG")), Hit),
        (format!("Thu, {far} gMT"), Hit),
        ("Thursday, 18-Aug-50 02:01:18 GMT".to_owned(), Hit),
        ("Thu Aug 18 02:01:18 2050".to_owned(), Hit),
        (format!("Thu, {far} UTC"), Miss),
        (format!("Thu, {far} AEST"), Miss),
        (format!("Thu, {far}"), Miss),
        (format!("Thu {far} GMT"), Miss),
        (format!("Thu, {} GMT", far.replace(' ', "  ")), Miss),
        ("Thu, 18 Aug 50 02:01:18 GMT".to_owned(), Miss),
        ("Thu, 18 Aug 2050 2:01:18 GMT".to_owned(), Miss),
        ("Thu, 18 Aug 2050 02.01.18 GMT".to_owned(), Miss),
        ("Thu, 45 Aug 2050 02:01:18 GMT".to_owned(), Miss),
        (format!("Thu, {far} GMT\nExpires: {}", date(-60)), Miss),
    ] {
        cases.push(case(200, with(expires), 0, "", expected));
    }
    check("Expires", cases);
}

#[test]
fn ages_are_read_strictly() {
    let mut cases = Vec::new();
    for (age, expected) in [
        ("0", Hit),
        ("7200", Miss),
        ("2147483647", Miss),
        ("2147483648", Miss),
        ("99999999999999999999", Miss),
        ("abc", Hit),
        ("-7200", Hit),
        ("7200.0", Hit),
        ("0, 7200", Hit),
        ("7200, 0", Miss),
        ("0\nAge: 7200", Hit),
        ("7200\nAge: 0", Miss),
    ] {
        cases.push(case(200, format!("{}\nAge: {age}", control("max-age=3600")), 0, "", expected));
    }
    check("Age", cases);
}

#[test]
fn codes_with_and_without_explicit_freshness() {
    let mut cases = Vec::new();
    for status in [
        200, 201, 202, 203, 204, 299, 300, 301, 302, 303, 307, 308, 400, 403, 404, 405, 410, 414,
        451, 499, 500, 501, 502, 503, 504, 599,
    ] {
        cases.push(case(status, control("max-age=60"), 10, "", Hit));
        cases.push(case(status, control("max-age=1"), 10, "", Miss));
        let guessed = [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501].contains(&status);
        let modified = format!("Last-Modified: {}", date(-86_400));
        cases.push(case(status, modified.clone(), 60, "", if guessed { Hit } else { Miss }));
        let public = format!("{modified}\n{}", control("public"));
        cases.push(case(status, public, 60, "", Hit));
        cases.push(case(status, modified, 86_400, "", Miss));
    }
    check("status codes", cases);
}

#[test]
fn requests_that_ask_for_more_or_less() {
    let fresh = || control("max-age=3600");
    let mut cases = Vec::new();
    for (second, expected) in [
        ("Cache-Control: max-age=0", Miss),
        ("Cache-Control: max-age=5", Miss),
        ("Cache-Control: max-age=600", Hit),
        ("Cache-Control: no-cache", Miss),
        ("Cache-Control: min-fresh=60", Hit),
        ("Cache-Control: min-fresh=3595", Miss),
        ("Cache-Control: only-if-cached", Hit),
        ("Pragma: no-cache", Miss),
        ("Pragma: foo", Hit),
        ("Cache-Control: max-stale=5", Hit),
    ] {
        cases.push(case(200, fresh(), 10, second, expected));
    }
    cases.push(case(200, control("max-age=5"), 10, "Cache-Control: max-stale=1000", Hit));
    cases.push(case(200, control("max-age=5"), 100, "Cache-Control: max-stale=10", Miss));
    cases.push(case(200, format!("{}\nPragma: no-cache", fresh()), 10, "", Hit));
    check("requests", cases);
}

#[test]
fn vary_in_every_shape() {
    let mut cases = Vec::new();
    for (vary, second, expected) in [
        ("Foo", "", Hit),
        ("Foo", "Foo: 1", Miss),
        ("foo, FOO", "", Hit),
        ("Bar", "Foo: 1", Hit),
        ("*", "", Miss),
        ("*, *", "", Miss),
        (", *", "", Miss),
        ("*\nVary: *", "", Miss),
        ("Foo, *", "", Miss),
        ("*, Foo", "", Miss),
        ("Foo\nVary: *", "", Miss),
        ("", "", Hit),
        ("Foo,,Bar", "", Hit),
        ("Host", "", Hit),
    ] {
        let headers = format!("{}\nVary: {vary}", control("max-age=60"));
        cases.push(case(200, headers, 1, second, expected));
    }
    check("Vary", cases);
}
