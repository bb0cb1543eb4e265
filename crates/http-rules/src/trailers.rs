//! Trailer fields (RFC 9110 §6.5): which clients accept them, and which may be passed on.
//!
//! Invariant: fields that control framing, routing, caching or interpretation of a message count
//! only before its body; as trailers they are dropped, never merged (§6.5.1). Pure.

use http::HeaderMap;
use http::header::{
    AGE, AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_LOCATION,
    CONTENT_RANGE, CONTENT_TYPE, COOKIE, DATE, EXPECT, EXPIRES, HOST, HeaderName, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LOCATION, MAX_FORWARDS,
    PRAGMA, RANGE, RETRY_AFTER, SET_COOKIE, TE, VARY, WARNING, WWW_AUTHENTICATE,
};

use crate::cache_groups::{CACHE_GROUP_INVALIDATION, CACHE_GROUPS};
use crate::list_members;
use crate::storing::remove_hop_by_hop;
use crate::surrogate::SURROGATE_CONTROL;

/// Fields that are dangerous or too late as trailers.
const NEVER_BEHIND: [HeaderName; 31] = [
    AGE,
    AUTHORIZATION,
    CACHE_CONTROL,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_LOCATION,
    CONTENT_RANGE,
    CONTENT_TYPE,
    COOKIE,
    DATE,
    EXPECT,
    EXPIRES,
    HOST,
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_RANGE,
    IF_UNMODIFIED_SINCE,
    LOCATION,
    MAX_FORWARDS,
    PRAGMA,
    RANGE,
    RETRY_AFTER,
    SET_COOKIE,
    VARY,
    WARNING,
    WWW_AUTHENTICATE,
    CACHE_GROUPS,
    CACHE_GROUP_INVALIDATION,
    HeaderName::from_static("cdn-cache-control"),
    SURROGATE_CONTROL,
];

/// Whether the sender of this request accepts trailers (§10.1.4).
pub fn taken_by(request: &HeaderMap) -> bool {
    list_members(request, &TE).any(|member| member.eq_ignore_ascii_case(b"trailers"))
}

/// Removes fields that may not be passed on as trailers.
pub fn sift(trailers: &mut HeaderMap) {
    remove_hop_by_hop(trailers);
    for name in &NEVER_BEHIND {
        trailers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_headers;

    #[test]
    fn who_takes_trailers() {
        for (lines, takes) in [
            (&[("te", "trailers")][..], true),
            (&[("te", "gzip, Trailers")], true),
            (&[("te", "deflate"), ("te", "trailers")], true),
            (&[("te", "gzip")], false),
            (&[("te", "trailers;q=0.5")], false),
            (&[], false),
        ] {
            assert_eq!(taken_by(&test_headers(lines)), takes, "{lines:?}");
        }
    }

    #[test]
    fn what_may_follow_a_body() {
        let mut trailers = test_headers(&[
            ("server-timing", "db;dur=1"),
            ("content-digest", "sha-256=:x:"),
            ("etag", "\"1\""),
            ("x-mine", "1"),
            ("connection", "x-mine"),
            ("transfer-encoding", "chunked"),
            ("trailer", "x"),
            ("proxy-authorization", "Basic x"),
        ]);
        let never = "age authorization cache-control cache-group-invalidation cache-groups \
            cdn-cache-control content-encoding content-length content-location content-range \
            content-type cookie date expect expires host if-match if-modified-since if-none-match \
            if-range if-unmodified-since location max-forwards pragma range retry-after set-cookie \
            surrogate-control vary warning www-authenticate";
        for name in never.split_whitespace() {
            trailers.extend(test_headers(&[(name, "x")]));
        }
        sift(&mut trailers);
        let left: Vec<_> = trailers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["server-timing", "content-digest", "etag"]);
    }
}
