//! A client's conditions evaluated against a stored response (RFC 9110 §13, RFC 9111 §4.3.2).
//!
//! Invariants: the order is that of RFC 9110 §13.2.2; only GET and HEAD on a stored 200 or 206 are
//! evaluated; an invalid date, or a condition on a field that the response lacks, is ignored.
//! Nothing here allocates.

use http::header::{
    DATE, ETAG, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, LAST_MODIFIED,
};
use http::{HeaderMap, Method, StatusCode};

use crate::config::CachingConfig;
use crate::dates;

/// The result of a client's conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The method applies: answer as without conditions.
    Proceed,
    /// The client has it already: 304.
    NotModified,
    /// The condition failed: 412.
    Failed,
}

/// The fields that make a request conditional (RFC 9110 §13.1), but for `If-Range`.
static CONDITIONS: [HeaderName; 4] =
    [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE];

/// Whether a request has conditions. Most have none: one look at each name costs less than a
/// search for each field, and no date has to be read.
fn is_conditional(request: &HeaderMap) -> bool {
    request.keys().any(|name| CONDITIONS.contains(name))
}

/// True if only the origin may evaluate the request's conditions: `If-Match` and
/// `If-Unmodified-Since`, where the configuration leaves them to it.
pub fn for_origin_only(request: &HeaderMap, caching: &CachingConfig) -> bool {
    !caching.answer_precondition_failed
        && (request.contains_key(IF_MATCH) || request.contains_key(IF_UNMODIFIED_SINCE))
}

/// Evaluates the conditions of a request against a stored response that arrived at
/// `response_time_s`.
pub fn evaluate(
    method: &Method,
    request: &HeaderMap,
    status: StatusCode,
    stored: &HeaderMap,
    response_time_s: u64,
) -> Outcome {
    let evaluated = *method == Method::GET || *method == Method::HEAD;
    if !evaluated || !matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
        return Outcome::Proceed;
    }
    if !is_conditional(request) {
        return Outcome::Proceed;
    }
    let date = |map: &HeaderMap, name: &HeaderName| dates::header(map, name, response_time_s);
    if request.contains_key(IF_MATCH) {
        if !any_match(request, &IF_MATCH, stored, strongly) {
            return Outcome::Failed;
        }
    } else if let Some(limit) = date(request, &IF_UNMODIFIED_SINCE)
        && let Some(modified) = date(stored, &LAST_MODIFIED)
        && modified > limit
    {
        return Outcome::Failed;
    }
    if request.contains_key(IF_NONE_MATCH) {
        let has_it = any_match(request, &IF_NONE_MATCH, stored, weakly);
        return if has_it { Outcome::NotModified } else { Outcome::Proceed };
    }
    let Some(since) = date(request, &IF_MODIFIED_SINCE) else { return Outcome::Proceed };
    let modified =
        date(stored, &LAST_MODIFIED).or_else(|| date(stored, &DATE)).unwrap_or(response_time_s);
    if modified <= since { Outcome::NotModified } else { Outcome::Proceed }
}

/// Whether `If-Range` names the stored response, so that its parts may be sent (RFC 9110 §13.1.5).
/// True without `If-Range`; false if there are two, of which the origin might have taken the other.
pub fn range_applies(request: &HeaderMap, stored: &HeaderMap, response_time_s: u64) -> bool {
    let mut lines = request.get_all(IF_RANGE).iter();
    let Some(value) = lines.next() else { return true };
    if lines.next().is_some() {
        return false;
    }
    let value = value.as_bytes().trim_ascii();
    if value.contains(&b'"') {
        return entity_tag(stored).is_some_and(|tag| strongly(tag, value));
    }
    let date = |name| dates::header(stored, name, response_time_s);
    let (Some(modified), Some(sent)) = (date(&LAST_MODIFIED), date(&DATE)) else { return false };
    // A date is a strong validator only if a second change would have changed it (§8.8.2.2).
    dates::parse(value, response_time_s) == Some(modified) && modified < sent
}

fn any_match(
    request: &HeaderMap,
    name: &HeaderName,
    stored: &HeaderMap,
    same: fn(&[u8], &[u8]) -> bool,
) -> bool {
    let current = entity_tag(stored);
    request.get_all(name).into_iter().any(|line| {
        let line = line.as_bytes().trim_ascii();
        line == b"*" || current.is_some_and(|tag| entity_tags(line).any(|one| same(one, tag)))
    })
}

/// The entity tag of a response. An empty field is none: it would be the same of all versions.
pub(crate) fn entity_tag(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(ETAG).map(|tag| tag.as_bytes().trim_ascii()).filter(|tag| !tag.is_empty())
}

/// Strong comparison (RFC 9110 §8.8.3.2).
pub(crate) fn strongly(a: &[u8], b: &[u8]) -> bool {
    a.trim_ascii() == b.trim_ascii() && is_strong(a)
}

/// Weak comparison.
pub(crate) fn weakly(a: &[u8], b: &[u8]) -> bool {
    opaque(a) == opaque(b)
}

/// Whether a tag is strong. `w/"1"` is no weak tag by the grammar, but is not meant as a strong
/// one.
pub(crate) fn is_strong(tag: &[u8]) -> bool {
    let mark = tag.trim_ascii().get(..2);
    !mark.is_some_and(|mark| mark.eq_ignore_ascii_case(b"W/"))
}

/// The tag without its weakness mark.
fn opaque(tag: &[u8]) -> &[u8] {
    let tag = tag.trim_ascii();
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// Splits a list of entity tags; commas inside quotes belong to the tag.
fn entity_tags(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let start = rest.iter().position(|b| !matches!(b, b',' | b' ' | b'\t'))?;
        rest = &rest[start..];
        let mut in_quotes = false;
        let end = rest.iter().position(|b| {
            in_quotes ^= *b == b'"';
            *b == b',' && !in_quotes
        });
        let (tag, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        Some(tag.trim_ascii_end())
    })
}

#[cfg(test)]
mod tests {
    use super::Outcome::{Failed, NotModified, Proceed};
    use super::*;
    use crate::test_headers as headers;

    const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &str = "Mon, 07 Nov 1994 08:49:37 GMT";
    const EARLIER: &str = "Sat, 05 Nov 1994 08:49:37 GMT";
    const ARRIVED: u64 = 1_000_000_000;

    fn evaluate_get(request: &[(&str, &str)], stored: &[(&str, &str)]) -> Outcome {
        let (request, stored) = (headers(request), headers(stored));
        evaluate(&Method::GET, &request, StatusCode::OK, &stored, ARRIVED)
    }

    /// RFC 9110 §13.1.1 to §13.1.4, §13.2.2.
    #[test]
    fn conditions_in_their_order() {
        let stored = &[("etag", "\"a,b\""), ("last-modified", MODIFIED)][..];
        for (request, expected) in [
            (&[][..], Proceed),
            (&[("if-none-match", "\"a,b\"")], NotModified),
            (&[("if-none-match", "W/\"a,b\"")], NotModified),
            (&[("if-none-match", "w/\"a,b\"")], Proceed),
            (&[("if-none-match", "W\"a,b\"")], Proceed),
            (&[("if-none-match", "\"x\", \"a,b\"")], NotModified),
            (&[("if-none-match", "\"a,b\", \"x\"")], NotModified),
            (&[("if-none-match", "\"x\""), ("if-none-match", "\"a,b\"")], NotModified),
            (&[("if-none-match", "*")], NotModified),
            (&[("if-none-match", "a,b")], Proceed),
            (&[("if-none-match", "\"x\""), ("if-modified-since", LATER)], Proceed),
            (&[("if-modified-since", MODIFIED)], NotModified),
            (&[("if-modified-since", LATER)], NotModified),
            (&[("if-modified-since", EARLIER)], Proceed),
            (&[("if-modified-since", "yesterday")], Proceed),
            (&[("if-match", "\"a,b\"")], Proceed),
            (&[("if-match", "\"x\"")], Failed),
            (&[("if-match", "W/\"a,b\"")], Failed),
            (&[("if-match", "*")], Proceed),
            (&[("if-match", "\"x\""), ("if-none-match", "\"a,b\"")], Failed),
            (&[("if-match", "\"a,b\""), ("if-none-match", "\"a,b\"")], NotModified),
            (&[("if-match", "\"a,b\""), ("if-unmodified-since", EARLIER)], Proceed),
            (&[("if-unmodified-since", EARLIER)], Failed),
            (&[("if-unmodified-since", MODIFIED)], Proceed),
            (&[("if-unmodified-since", "junk")], Proceed),
            (&[("if-unmodified-since", EARLIER), ("if-none-match", "\"a,b\"")], Failed),
        ] {
            assert_eq!(evaluate_get(request, stored), expected, "{request:?}");
        }
        let weak = &[("etag", "W/\"1\"")][..];
        assert_eq!(evaluate_get(&[("if-none-match", "\"1\"")], weak), NotModified);
        assert_eq!(evaluate_get(&[("if-match", "W/\"1\"")], weak), Failed);
        assert_eq!(evaluate_get(&[("if-none-match", "x")], &[("etag", "x")]), NotModified);
        assert_eq!(evaluate_get(&[("if-none-match", "x")], &[]), Proceed);
        assert_eq!(evaluate_get(&[("if-match", "\"x\"")], &[]), Failed);
        assert_eq!(evaluate_get(&[("if-unmodified-since", EARLIER)], &[]), Proceed);
    }

    /// RFC 9110 §13.2.1.
    #[test]
    fn other_methods_and_errors_are_not_evaluated() {
        let request = headers(&[("if-none-match", "*"), ("if-match", "\"x\"")]);
        let stored = headers(&[("etag", "\"1\"")]);
        for (method, status) in [(Method::POST, 200), (Method::GET, 404), (Method::GET, 302)] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(evaluate(&method, &request, status, &stored, ARRIVED), Proceed);
        }
        let status = StatusCode::PARTIAL_CONTENT;
        assert_eq!(evaluate(&Method::HEAD, &request, status, &stored, ARRIVED), Failed);
    }

    /// RFC 9111 §4.3.2: without `Last-Modified` the `Date`, or the time of arrival, takes its
    /// place.
    #[test]
    fn dates_stand_in_for_last_modified() {
        let since = [("if-modified-since", MODIFIED)];
        assert_eq!(evaluate_get(&since, &[("date", MODIFIED)]), NotModified);
        assert_eq!(evaluate_get(&since, &[("date", LATER)]), Proceed);
        assert_eq!(evaluate_get(&since, &[]), Proceed);
        let arrived = dates::format(ARRIVED);
        assert_eq!(evaluate_get(&[("if-modified-since", &arrived)], &[]), NotModified);
    }

    /// RFC 9110 §13.1.5.
    #[test]
    fn if_range_compares_strongly() {
        let dated = [("last-modified", MODIFIED), ("date", LATER)];
        for (value, stored, expected) in [
            ("\"1\"", &[("etag", "\"1\"")][..], true),
            ("\"1\"", &[("etag", "\"2\"")], false),
            ("W/\"1\"", &[("etag", "W/\"1\"")], false),
            ("w/\"1\"", &[("etag", "w/\"1\"")], false),
            (" \"1\" ", &[("etag", " \"1\" ")], true),
            (&format!(" {MODIFIED} "), &dated, true),
            ("\"1\"", &[], false),
            (MODIFIED, &dated, true),
            (EARLIER, &dated, false),
            (LATER, &dated, false),
            (MODIFIED, &[("last-modified", MODIFIED), ("date", MODIFIED)], false),
            ("junk", &dated, false),
        ] {
            let request = headers(&[("if-range", value)]);
            assert_eq!(range_applies(&request, &headers(stored), ARRIVED), expected, "{value}");
        }
        assert!(range_applies(&headers(&[]), &headers(&[]), ARRIVED));
        let twice = headers(&[("if-range", "\"1\""), ("if-range", "\"2\"")]);
        assert!(!range_applies(&twice, &headers(&[("etag", "\"1\"")]), ARRIVED));
    }

    #[test]
    fn what_is_left_to_the_origin() {
        let asks = headers(&[("if-match", "\"x\"")]);
        let leaves =
            CachingConfig { answer_precondition_failed: false, ..CachingConfig::default() };
        assert!(
            for_origin_only(&asks, &leaves) && !for_origin_only(&asks, &CachingConfig::default())
        );
        assert!(for_origin_only(&headers(&[("if-unmodified-since", EARLIER)]), &leaves));
        for name in ["if-none-match", "if-modified-since", "if-range"] {
            assert!(!for_origin_only(&headers(&[(name, EARLIER)]), &leaves), "{name}");
        }
    }
}
