//! Whether a response may be stored, and which of its headers (RFC 9111 §3).
//!
//! Invariants: [`decide`] answers `Ok` only if every condition of §3 for a shared cache holds;
//! each refusal has its own [`NotStoredReason`], counted and sent in `Cache-Status`. `Set-Cookie`
//! does not by itself prevent storing, as the RFC has it: origins say `private` where they mean it.

use http::header::{
    AGE, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, DATE, ETAG, EXPIRES, HeaderName,
    LAST_MODIFIED, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use http::{HeaderMap, Method, StatusCode};

use super::cache_control::CacheControl;
use super::cache_status::CACHE_STATUS;
use super::freshness::{self, LifetimeSource};
use super::vary::{self, Vary};
use super::{dates, list_members};

/// Why a response was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotStoredReason {
    /// The method is not GET.
    Method,
    /// The request said `no-store`.
    RequestNoStore,
    /// The response said `no-store`, or its `Cache-Control` could not be read.
    NoStore,
    /// The response is for one user.
    Private,
    /// The request carried `Authorization` and the response does not allow sharing.
    Authorization,
    /// `Vary: *` matches no other request.
    VaryStar,
    /// Partial, not modified, interim, or unknown with `must-understand`.
    Status,
    /// Nothing makes it cacheable: no explicit freshness and no heuristically cacheable status.
    NotCacheable,
    /// Stale at once and without validator: storing it could never save anything.
    NeverUseful,
    /// Larger than the largest object this proxy stores.
    TooLarge,
    /// Its headers do not fit beside an object.
    HeadersTooLarge,
    /// The store refused: memory full, not admitted, closed.
    Store,
    /// The same resource was invalidated while the response was on its way.
    Invalidated,
    /// The origin broke off.
    Truncated,
    /// The client left too early for the rest to be worth fetching.
    ClientGone,
    /// A rule of the operator says so.
    Rule,
}

impl NotStoredReason {
    /// All reasons, in the order of their counters.
    pub(crate) const ALL: [NotStoredReason; 16] = [
        NotStoredReason::Method,
        NotStoredReason::RequestNoStore,
        NotStoredReason::NoStore,
        NotStoredReason::Private,
        NotStoredReason::Authorization,
        NotStoredReason::VaryStar,
        NotStoredReason::Status,
        NotStoredReason::NotCacheable,
        NotStoredReason::NeverUseful,
        NotStoredReason::TooLarge,
        NotStoredReason::HeadersTooLarge,
        NotStoredReason::Store,
        NotStoredReason::Invalidated,
        NotStoredReason::Truncated,
        NotStoredReason::ClientGone,
        NotStoredReason::Rule,
    ];

    /// Its name in `Cache-Status: detail=` and in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            NotStoredReason::Method => "method",
            NotStoredReason::RequestNoStore => "request-no-store",
            NotStoredReason::NoStore => "no-store",
            NotStoredReason::Private => "private",
            NotStoredReason::Authorization => "authorization",
            NotStoredReason::VaryStar => "vary-star",
            NotStoredReason::Status => "status",
            NotStoredReason::NotCacheable => "not-cacheable",
            NotStoredReason::NeverUseful => "no-validator",
            NotStoredReason::TooLarge => "too-large",
            NotStoredReason::HeadersTooLarge => "headers-too-large",
            NotStoredReason::Store => "store",
            NotStoredReason::Invalidated => "invalidated",
            NotStoredReason::Truncated => "truncated",
            NotStoredReason::ClientGone => "client-gone",
            NotStoredReason::Rule => "rule",
        }
    }
}

/// Whether the response to this request may be stored by a shared cache.
pub(crate) fn decide(
    method: &Method,
    request: &HeaderMap,
    status: StatusCode,
    response: &HeaderMap,
    response_time_s: u64,
) -> Result<(), NotStoredReason> {
    let cache_control = CacheControl::of(response);
    let (lifetime_s, source) =
        freshness::lifetime(status, response, &cache_control, response_time_s);
    if *method != Method::GET {
        return Err(NotStoredReason::Method);
    }
    if !understood(status) {
        return Err(NotStoredReason::Status);
    }
    if CacheControl::of_request(request).no_store {
        return Err(NotStoredReason::RequestNoStore);
    }
    // `must-understand` lifts `no-store` for a status we understand (§5.2.2.3).
    if cache_control.no_store && !cache_control.must_understand {
        return Err(NotStoredReason::NoStore);
    }
    if cache_control.private {
        return Err(NotStoredReason::Private);
    }
    if request.contains_key(AUTHORIZATION) && !shareable(&cache_control) {
        return Err(NotStoredReason::Authorization);
    }
    if vary::of(response) == Vary::Star {
        return Err(NotStoredReason::VaryStar);
    }
    let cacheable = source == LifetimeSource::Explicit
        || cache_control.public
        || freshness::heuristically_cacheable(status);
    if !cacheable {
        return Err(NotStoredReason::NotCacheable);
    }
    let validator = response.contains_key(ETAG) || response.contains_key(LAST_MODIFIED);
    if (lifetime_s == 0 || cache_control.no_cache) && !validator {
        return Err(NotStoredReason::NeverUseful);
    }
    Ok(())
}

/// Directives that let a shared cache keep the answer to an authorised request (§3.5).
fn shareable(cache_control: &CacheControl) -> bool {
    cache_control.public || cache_control.must_revalidate || cache_control.s_maxage.is_some()
}

/// Final status codes whose caching rules this proxy knows. Parts (206) are not stored yet.
fn understood(status: StatusCode) -> bool {
    matches!(status.as_u16(),
        200..=205 | 300..=303 | 305 | 307 | 308 | 400..=417 | 421..=426 | 428 | 429 | 431 | 451
        | 500..=508 | 511)
}

/// The headers to store: those of the message less what belongs to the connection, to this hop,
/// or to one user (§3.1). `Date` is added where it is missing (RFC 9110 §6.6.1).
pub(crate) fn stored_headers(response: &HeaderMap, response_time_s: u64) -> HeaderMap {
    let cache_control = CacheControl::of(response);
    let mut stored = response.clone();
    remove_hop_by_hop(&mut stored);
    for name in [AGE, CONTENT_LENGTH, CACHE_STATUS] {
        stored.remove(name);
    }
    // Fields of `no-cache="..."` may not be sent again without validation: not storing them obeys.
    for name in cache_control.private_fields.iter().chain(&cache_control.no_cache_fields) {
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes())
            && !KEPT_ALWAYS.contains(&name)
        {
            stored.remove(name);
        }
    }
    if dates::header(&stored, &DATE).is_none() {
        stored.insert(DATE, dates::value(response_time_s));
    }
    stored
}

/// Without these a stored response could be taken for fresher than it is.
const KEPT_ALWAYS: [HeaderName; 4] = [CACHE_CONTROL, EXPIRES, DATE, http::header::VARY];

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const PROXY_AUTHENTICATION_INFO: HeaderName = HeaderName::from_static("proxy-authentication-info");

/// Fields of one connection (RFC 9110 §7.6.1), whoever sent them.
const HOP_BY_HOP: [HeaderName; 10] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHENTICATION_INFO,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Removes what belongs to one connection: the known fields and those `Connection` names.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = list_members(headers, &CONNECTION)
            .filter_map(|name| HeaderName::from_bytes(name).ok())
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::NotStoredReason as Not;
    use super::*;
    use http::HeaderValue;

    const NOW: u64 = 784_111_777;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            let name: HeaderName = name.parse().unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    #[test]
    fn what_may_be_stored() {
        let auth = &[("authorization", "Basic x")][..];
        let fresh = ("cache-control", "max-age=60");
        let cc = |text: &'static str| vec![("cache-control", text)];
        for (method, request, status, response, expected) in [
            ("GET", &[][..], 200, vec![fresh], Ok(())),
            ("GET", &[], 200, vec![fresh, ("set-cookie", "a=b")], Ok(())),
            ("GET", &[], 200, vec![("etag", "\"x\"")], Ok(())),
            ("GET", &[], 200, vec![], Err(Not::NeverUseful)),
            ("GET", &[], 200, cc("no-cache, max-age=60"), Err(Not::NeverUseful)),
            ("GET", &[], 200, vec![("etag", "x"), ("cache-control", "no-cache")], Ok(())),
            ("HEAD", &[], 200, vec![fresh], Err(Not::Method)),
            ("POST", &[], 200, vec![fresh], Err(Not::Method)),
            ("GET", &[("cache-control", "no-store")], 200, vec![fresh], Err(Not::RequestNoStore)),
            ("GET", &[], 200, cc("No-Store, max-age=60"), Err(Not::NoStore)),
            ("GET", &[], 200, cc("no-store, must-understand, max-age=60"), Ok(())),
            ("GET", &[], 299, cc("must-understand, max-age=60"), Err(Not::Status)),
            ("GET", &[], 200, cc("private, max-age=60"), Err(Not::Private)),
            ("GET", &[], 200, cc("private=\"x\", max-age=60"), Ok(())),
            ("GET", auth, 200, vec![fresh], Err(Not::Authorization)),
            ("GET", auth, 200, cc("max-age=60, public"), Ok(())),
            ("GET", auth, 200, cc("max-age=60, must-revalidate"), Ok(())),
            ("GET", auth, 200, cc("s-maxage=60"), Ok(())),
            ("GET", auth, 200, cc("max-age=60, proxy-revalidate"), Err(Not::Authorization)),
            ("GET", &[], 200, vec![fresh, ("vary", "Accept, *")], Err(Not::VaryStar)),
            ("GET", &[], 206, vec![fresh], Err(Not::Status)),
            ("GET", &[], 304, vec![fresh], Err(Not::Status)),
            ("GET", &[], 302, vec![("etag", "x")], Err(Not::NotCacheable)),
            ("GET", &[], 302, vec![fresh], Ok(())),
            ("GET", &[], 500, vec![fresh], Ok(())),
            ("GET", &[], 404, cc("max-age=1"), Ok(())),
        ] {
            let got = decide(
                &method.parse().unwrap(),
                &headers(request),
                StatusCode::from_u16(status).unwrap(),
                &headers(&response),
                NOW,
            );
            assert_eq!(got, expected, "{method} {request:?} {status} {response:?}");
        }
    }

    #[test]
    fn connection_and_qualified_fields_are_not_stored() {
        let stored = stored_headers(
            &headers(&[
                ("connection", "X-Hop, close"),
                ("x-hop", "1"),
                ("keep-alive", "5"),
                ("transfer-encoding", "chunked"),
                ("proxy-authenticate", "Basic"),
                ("age", "5"),
                ("content-length", "9"),
                ("cache-control", "private=\"set-cookie\", no-cache=\"X-Once, date\", max-age=5"),
                ("set-cookie", "a=b"),
                ("x-once", "1"),
                ("etag", "\"e\""),
            ]),
            NOW,
        );
        let mut names: Vec<_> = stored.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["cache-control", "date", "etag"]);
        assert_eq!(stored[DATE], "Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn every_reason_has_its_own_name_and_place() {
        for (index, reason) in Not::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index);
            let same = Not::ALL.iter().filter(|other| other.name() == reason.name());
            assert_eq!(same.count(), 1, "{reason:?}");
        }
    }
}
