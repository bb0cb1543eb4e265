//! Conditional requests, in both directions (RFC 9111 §4.3, RFC 9110 §13).
//!
//! Invariants: `If-None-Match` silences `If-Modified-Since`; comparison towards clients is weak;
//! a 304 of the origin never changes what describes the stored bytes, and is not merged when its
//! strong validator names other bytes.

use http::header::{
    CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE,
    LAST_MODIFIED, RANGE,
};
use http::{HeaderMap, StatusCode};

use super::dates;
use super::storing;

/// Preconditions and ranges that only the origin can answer yet: the request goes past the cache.
pub(crate) fn beyond_us(request: &HeaderMap) -> bool {
    [RANGE, IF_RANGE, IF_MATCH, IF_UNMODIFIED_SINCE].iter().any(|name| request.contains_key(name))
}

/// Whether the stored response may be answered with 304 to this client.
pub(crate) fn not_modified(request: &HeaderMap, status: StatusCode, stored: &HeaderMap) -> bool {
    if status != StatusCode::OK {
        return false;
    }
    if request.contains_key(IF_NONE_MATCH) {
        return none_match(request, stored);
    }
    let (Some(since), Some(modified)) =
        (dates::header(request, &IF_MODIFIED_SINCE), dates::header(stored, &LAST_MODIFIED))
    else {
        return false;
    };
    modified <= since
}

fn none_match(request: &HeaderMap, stored: &HeaderMap) -> bool {
    let wanted = stored.get(ETAG).map(|tag| opaque(tag.as_bytes()));
    request.get_all(IF_NONE_MATCH).into_iter().any(|line| {
        let line = line.as_bytes().trim_ascii();
        line == b"*" || entity_tags(line).any(|tag| Some(opaque(tag)) == wanted)
    })
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

/// Replaces the client's preconditions by those that validate `stored` (§4.3.1). False: the stored
/// response has no validator, and the request is unconditional.
pub(crate) fn make_conditional(request: &mut HeaderMap, stored: &HeaderMap) -> bool {
    remove_preconditions(request);
    let pairs = [(ETAG, IF_NONE_MATCH), (LAST_MODIFIED, IF_MODIFIED_SINCE)];
    for (validator, precondition) in pairs {
        if let Some(value) = stored.get(&validator) {
            request.insert(precondition, value.clone());
        }
    }
    request.contains_key(IF_NONE_MATCH) || request.contains_key(IF_MODIFIED_SINCE)
}

/// Takes off what would let the origin answer with something that cannot be stored. The client's
/// own copy is compared with the answer afterwards.
pub(crate) fn remove_preconditions(request: &mut HeaderMap) {
    request.remove(IF_NONE_MATCH);
    request.remove(IF_MODIFIED_SINCE);
}

/// Describe the stored bytes, and stay as they are (§3.2).
const UNCHANGED_BY_304: [HeaderName; 4] =
    [CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_TYPE, CONTENT_RANGE];

/// The stored headers with those of a 304 merged in (§3.2, §4.3.4); `None` if the 304 speaks of
/// other bytes than those stored.
pub(crate) fn merge_304(
    stored: &HeaderMap,
    response: &HeaderMap,
    response_time_s: u64,
) -> Option<HeaderMap> {
    if let (Some(new), Some(old)) = (response.get(ETAG), stored.get(ETAG))
        && opaque(new.as_bytes()) != opaque(old.as_bytes())
    {
        return None;
    }
    let news = storing::stored_headers(response, response_time_s);
    let mut merged = stored.clone();
    for name in news.keys() {
        if UNCHANGED_BY_304.contains(name) {
            continue;
        }
        merged.remove(name);
        for value in news.get_all(name) {
            merged.append(name.clone(), value.clone());
        }
    }
    // The merged Cache-Control may newly name fields that may not be kept.
    Some(storing::stored_headers(&merged, response_time_s))
}

/// Takes off what describes a body, for a 304 to the client (RFC 9110 §15.4.5).
pub(crate) fn headers_for_304(headers: &mut HeaderMap) {
    let describes_body =
        [CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_TYPE, CONTENT_RANGE, CONTENT_LANGUAGE];
    for name in describes_body {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            let name: HeaderName = name.parse().unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    #[test]
    fn client_preconditions() {
        let modified = "Sun, 06 Nov 1994 08:49:37 GMT";
        let later = "Mon, 07 Nov 1994 08:49:37 GMT";
        let earlier = "Sat, 05 Nov 1994 08:49:37 GMT";
        let stored = headers(&[("etag", "\"a,b\""), ("last-modified", modified)]);
        for (request, expected) in [
            (vec![], false),
            (vec![("if-none-match", "\"a,b\"")], true),
            (vec![("if-none-match", "W/\"a,b\"")], true),
            (vec![("if-none-match", "\"x\", \"a,b\"")], true),
            (vec![("if-none-match", "\"x\""), ("if-none-match", "\"a,b\"")], true),
            (vec![("if-none-match", "*")], true),
            (vec![("if-none-match", "a,b")], false),
            (vec![("if-none-match", "\"x\""), ("if-modified-since", later)], false),
            (vec![("if-modified-since", modified)], true),
            (vec![("if-modified-since", later)], true),
            (vec![("if-modified-since", earlier)], false),
            (vec![("if-modified-since", "yesterday")], false),
        ] {
            let request = headers(&request);
            assert_eq!(not_modified(&request, StatusCode::OK, &stored), expected, "{request:?}");
            assert!(!not_modified(&request, StatusCode::NOT_FOUND, &stored));
        }
        let weak = headers(&[("etag", "W/\"1\"")]);
        let request = headers(&[("if-none-match", "\"1\"")]);
        assert!(not_modified(&request, StatusCode::OK, &weak));
        assert!(!not_modified(&headers(&[("if-none-match", "x")]), StatusCode::OK, &headers(&[])));
    }

    #[test]
    fn origin_preconditions_replace_those_of_the_client() {
        let mut request = headers(&[("if-none-match", "\"client\"")]);
        assert!(make_conditional(&mut request, &headers(&[("etag", "\"ours\"")])));
        assert_eq!(request[IF_NONE_MATCH], "\"ours\"");
        assert!(!make_conditional(&mut request, &headers(&[])));
        assert!(request.is_empty());
    }

    #[test]
    fn merging() {
        let stored = headers(&[
            ("etag", "\"1\""),
            ("content-type", "text/css"),
            ("x-old", "kept"),
            ("x-two", "a"),
            ("x-two", "b"),
            ("cache-control", "max-age=1"),
        ]);
        let response = headers(&[
            ("etag", "\"1\""),
            ("content-type", "text/plain"),
            ("content-length", "0"),
            ("x-two", "c"),
            ("cache-control", "max-age=9"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("age", "4"),
        ]);
        let merged = merge_304(&stored, &response, 784_111_777).unwrap();
        let all: Vec<_> = merged.get_all("x-two").iter().collect();
        assert_eq!(all, ["c"]);
        assert_eq!(merged["content-type"], "text/css");
        assert_eq!(merged["x-old"], "kept");
        assert_eq!(merged["cache-control"], "max-age=9");
        assert!(merged.contains_key("date"));
        for name in ["age", "x-hop", "content-length"] {
            assert!(!merged.contains_key(name), "{name}");
        }
        assert!(merge_304(&stored, &headers(&[("etag", "\"2\"")]), 0).is_none());
        assert!(merge_304(&stored, &headers(&[]), 0).is_some());
    }
}
