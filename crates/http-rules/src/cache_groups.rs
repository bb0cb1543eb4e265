//! Groups that an origin names (RFC 9875): `Cache-Groups`, and `Cache-Group-Invalidation`.
//!
//! Both are structured Lists of Strings. Invariants: a field that is not a List is ignored as a
//! whole, a member that is not a String individually; names are compared bytewise, and only within
//! one origin, which the caller ensures.

use http::header::HeaderName;
use http::{HeaderMap, Method, StatusCode};
use sfv::{BareItem, List, ListEntry, Parser};

use crate::invalidation::invalidates;

/// Names the groups that a response belongs to.
pub const CACHE_GROUPS: HeaderName = HeaderName::from_static("cache-groups");
/// Names the groups that a change invalidates.
pub const CACHE_GROUP_INVALIDATION: HeaderName =
    HeaderName::from_static("cache-group-invalidation");

/// Groups that one response is in; the RFC asks for at least 32 (§2.1).
pub const GROUPS_MAX: usize = 64;

/// The groups of a response, in the order named, at most [`GROUPS_MAX`].
pub fn of(response: &HeaderMap) -> Vec<String> {
    let mut names = read(response, &CACHE_GROUPS);
    names.truncate(GROUPS_MAX);
    names
}

/// Whether a response names more groups than it can be in. It must not be stored: it would survive
/// the invalidation of the others.
pub fn are_too_many(response: &HeaderMap) -> bool {
    read(response, &CACHE_GROUPS).len() > GROUPS_MAX
}

/// All groups that a response to this method invalidates (§3): none if the method is safe or the
/// response an error. Leaving one out would keep what the origin has declared outdated.
pub fn invalidated(method: &Method, status: StatusCode, response: &HeaderMap) -> Vec<String> {
    if !invalidates(method, status) {
        return Vec::new();
    }
    read(response, &CACHE_GROUP_INVALIDATION)
}

fn read(headers: &HeaderMap, name: &HeaderName) -> Vec<String> {
    if !headers.contains_key(name) {
        return Vec::new();
    }
    let Ok(list) = Parser::new(&crate::joined(headers, name)).parse::<List>() else {
        return Vec::new();
    };
    let names = list.into_iter().filter_map(|member| match member {
        ListEntry::Item(item) => match item.bare_item {
            BareItem::String(text) => Some(text.as_str().to_owned()),
            _ => None,
        },
        ListEntry::InnerList(_) => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_headers as headers;

    /// RFC 9875 §2.
    #[test]
    fn groups_of_a_response() {
        for (lines, expected) in [
            (&["\"a\", \"b c\""][..], &["a", "b c"][..]),
            (&["\"a\"", "\"B\";x=1"], &["a", "B"]),
            (&["\"q\\\"q\""], &["q\"q"]),
            (&["\"a\", token, 5, (\"in\"), \"b\""], &["a", "b"]),
            (&["\"a"], &[]),
            (&["\"a\","], &[]),
            (&[""], &[]),
            (&[], &[]),
        ] {
            let pairs: Vec<_> = lines.iter().map(|line| ("cache-groups", *line)).collect();
            assert_eq!(of(&headers(&pairs)), expected, "{lines:?}");
        }
        let many = vec!["\"g\""; GROUPS_MAX + 9].join(",");
        let response = headers(&[("cache-groups", &many)]);
        assert_eq!(of(&response).len(), GROUPS_MAX);
        assert!(are_too_many(&response));
        let most = vec!["\"g\""; GROUPS_MAX].join(",");
        assert!(!are_too_many(&headers(&[("cache-groups", &most)])));
    }

    /// RFC 9875 §3.
    #[test]
    fn groups_that_a_change_invalidates() {
        let response = headers(&[("cache-group-invalidation", "\"a\", \"b\"")]);
        let of = |method: Method, status| {
            invalidated(&method, StatusCode::from_u16(status).unwrap(), &response)
        };
        assert_eq!(of(Method::POST, 200), ["a", "b"]);
        assert!(of(Method::GET, 200).is_empty(), "safe methods invalidate nothing");
        assert!(of(Method::POST, 500).is_empty());
        let many = vec!["\"g\""; 500].join(",");
        let response = headers(&[("cache-group-invalidation", &many)]);
        assert_eq!(invalidated(&Method::POST, StatusCode::OK, &response).len(), 500);
    }
}
