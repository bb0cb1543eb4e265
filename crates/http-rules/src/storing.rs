//! Whether a response may be stored, and which of its fields (RFC 9111 §3).
//!
//! Invariants: [`decide`] answers `Ok` only if every condition of §3 for a shared cache holds;
//! each refusal has its own [`NotStoredReason`], to be counted and sent in `Cache-Status`.

use http::header::{
    AGE, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, DATE, ETAG, EXPIRES, HeaderName,
    LAST_MODIFIED, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SET_COOKIE, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE, VARY,
};
use http::{HeaderMap, Method, StatusCode};

use crate::cache_control::{RequestDirectives, ResponseDirectives};
use crate::config::{CachingConfig, SetCookie};
use crate::freshness::{self, Lifetime, LifetimeSource};
use crate::vary::{self, Vary};
use crate::{dates, list_members, parts};

/// Why a response was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotStoredReason {
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
    /// Not modified, interim, or unknown with `must-understand`.
    Status,
    /// A part that cannot be kept: several ranges, or nothing that says which bytes these are.
    Partial,
    /// It sets a cookie, and the configuration keeps those out.
    SetCookie,
    /// Nothing makes it cacheable: no explicit freshness and no heuristically cacheable status, or a
    /// cookie beside what would be a guess.
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
    /// Another answer about it was stored while this one was on its way.
    Superseded,
    /// The origin broke off.
    Truncated,
    /// The client left too early for the rest to be worth fetching.
    ClientGone,
    /// A rule of the operator says so.
    Rule,
    /// A rule stores at the second request, and this is the first.
    FirstRequest,
}

impl NotStoredReason {
    /// All reasons, in the order of their counters.
    pub const ALL: [NotStoredReason; 20] = [
        NotStoredReason::Method,
        NotStoredReason::RequestNoStore,
        NotStoredReason::NoStore,
        NotStoredReason::Private,
        NotStoredReason::Authorization,
        NotStoredReason::VaryStar,
        NotStoredReason::Status,
        NotStoredReason::Partial,
        NotStoredReason::SetCookie,
        NotStoredReason::NotCacheable,
        NotStoredReason::NeverUseful,
        NotStoredReason::TooLarge,
        NotStoredReason::HeadersTooLarge,
        NotStoredReason::Store,
        NotStoredReason::Invalidated,
        NotStoredReason::Superseded,
        NotStoredReason::Truncated,
        NotStoredReason::ClientGone,
        NotStoredReason::Rule,
        NotStoredReason::FirstRequest,
    ];

    /// Its name in `Cache-Status: detail=` and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            NotStoredReason::Method => "method",
            NotStoredReason::RequestNoStore => "request-no-store",
            NotStoredReason::NoStore => "no-store",
            NotStoredReason::Private => "private",
            NotStoredReason::Authorization => "authorization",
            NotStoredReason::VaryStar => "vary-star",
            NotStoredReason::Status => "status",
            NotStoredReason::Partial => "partial",
            NotStoredReason::SetCookie => "set-cookie",
            NotStoredReason::NotCacheable => "not-cacheable",
            NotStoredReason::NeverUseful => "no-validator",
            NotStoredReason::TooLarge => "too-large",
            NotStoredReason::HeadersTooLarge => "headers-too-large",
            NotStoredReason::Store => "store",
            NotStoredReason::Invalidated => "invalidated",
            NotStoredReason::Superseded => "superseded",
            NotStoredReason::Truncated => "truncated",
            NotStoredReason::ClientGone => "client-gone",
            NotStoredReason::Rule => "rule",
            NotStoredReason::FirstRequest => "first-request",
        }
    }
}

/// A request and the response to it, as far as storing is concerned.
#[derive(Debug, Clone, Copy)]
pub struct Exchange<'a> {
    /// Method of the request.
    pub method: &'a Method,
    /// Fields of the request.
    pub request: &'a HeaderMap,
    /// What they say of caching.
    pub wishes: &'a RequestDirectives,
    /// Status of the response.
    pub status: StatusCode,
    /// Fields of the response.
    pub response: &'a HeaderMap,
    /// What they say of caching.
    pub directives: &'a ResponseDirectives,
    /// When the response arrived.
    pub response_time_s: u64,
    /// The origin was asked for a range or under the client's own conditions: any answer but a 200
    /// or 206 is for this request alone.
    pub selective: bool,
}

/// Whether the response may be stored by a shared cache.
pub fn decide(exchange: Exchange<'_>, caching: &CachingConfig) -> Result<(), NotStoredReason> {
    let Exchange { method, request, wishes, status, response, directives, selective, .. } =
        exchange;
    if *method != Method::GET {
        return Err(NotStoredReason::Method);
    }
    if status.is_informational() || status == StatusCode::NOT_MODIFIED {
        return Err(NotStoredReason::Status);
    }
    if directives.must_understand && !understood(status) {
        return Err(NotStoredReason::Status);
    }
    let partial = status == StatusCode::PARTIAL_CONTENT;
    if selective && !partial && status != StatusCode::OK {
        return Err(NotStoredReason::Status);
    }
    // A part that nobody asked for could be a part of anything.
    if partial && !(selective && parts::Part::of(response).is_some()) {
        return Err(NotStoredReason::Partial);
    }
    if wishes.no_store {
        return Err(NotStoredReason::RequestNoStore);
    }
    if directives.private {
        return Err(NotStoredReason::Private);
    }
    if request.contains_key(AUTHORIZATION) && !shareable(directives) {
        return Err(NotStoredReason::Authorization);
    }
    if caching.set_cookie == SetCookie::Refuse && response.contains_key(SET_COOKIE) {
        return Err(NotStoredReason::SetCookie);
    }
    if vary::of(response) == Vary::Star {
        return Err(NotStoredReason::VaryStar);
    }
    // Last of what the origin forbids: an operator may overrule this, and nothing above.
    // `must-understand` lifts `no-store` for a status we understand (§5.2.2.3).
    if directives.no_store && !directives.must_understand {
        return Err(NotStoredReason::NoStore);
    }
    worth_storing(exchange, caching)
}

/// Whether the answer to a POST may stand for one to GET, if it represents the target and
/// [`decide`] agrees: a 200 with a lifetime of its own (RFC 9110 §9.3.3).
pub fn post_stands_for_get(
    method: &Method,
    status: StatusCode,
    response: &HeaderMap,
    caching: &CachingConfig,
    response_time_s: u64,
) -> bool {
    if *method != Method::POST || status != StatusCode::OK {
        return false;
    }
    let directives = ResponseDirectives::of(response, caching);
    let lifetime = Lifetime::of(status, response, &directives, caching, response_time_s);
    lifetime.source == LifetimeSource::Explicit
}

/// The last two conditions: something makes it cacheable (§3), and keeping it can save something.
fn worth_storing(exchange: Exchange<'_>, caching: &CachingConfig) -> Result<(), NotStoredReason> {
    let Exchange { status, response, directives, response_time_s, .. } = exchange;
    let lifetime = Lifetime::of(status, response, directives, caching, response_time_s);
    let cacheable = lifetime.source == LifetimeSource::Explicit
        || directives.public
        || freshness::heuristically_cacheable(status);
    if !cacheable
        || (response.contains_key(SET_COOKIE) && !lets_share_cookies(lifetime, directives))
    {
        return Err(NotStoredReason::NotCacheable);
    }
    let stale_s = directives.stale_while_revalidate_s.unwrap_or(caching.stale_while_revalidate_s)
        | directives.stale_if_error_s.unwrap_or(caching.stale_if_error_s);
    let validator = response.contains_key(ETAG) || response.contains_key(LAST_MODIFIED);
    let usable = (lifetime.seconds > 0 || stale_s > 0) && !directives.no_cache;
    if usable || validator { Ok(()) } else { Err(NotStoredReason::NeverUseful) }
}

/// Whether the origin said itself that what sets a cookie may be shared (§7.3). A guess would hand one
/// user's cookie, or page, to the others.
pub(crate) fn lets_share_cookies(lifetime: Lifetime, directives: &ResponseDirectives) -> bool {
    lifetime.source == LifetimeSource::Explicit || directives.public
}

/// Directives that let a shared cache keep the answer to an authorised request (§3.5).
fn shareable(directives: &ResponseDirectives) -> bool {
    directives.public || directives.must_revalidate || directives.s_maxage.is_some()
}

/// Final status codes whose caching rules are known here: the registered ones.
fn understood(status: StatusCode) -> bool {
    matches!(status.as_u16(),
        200..=208 | 226 | 300..=303 | 305 | 307 | 308 | 400..=417 | 421..=426 | 428 | 429 | 431
        | 451 | 500..=508 | 510 | 511)
}

/// The fields to store: those of the message less what belongs to the connection, to this hop, or
/// to one user (§3.1). `Date` is added where it is missing or unreadable (RFC 9110 §6.6.1).
pub fn stored_headers(
    response: &HeaderMap,
    directives: &ResponseDirectives,
    caching: &CachingConfig,
    response_time_s: u64,
) -> HeaderMap {
    let mut stored = response.clone();
    remove_hop_by_hop(&mut stored);
    // Both are made anew when the response is served.
    for name in [AGE, CONTENT_LENGTH] {
        stored.remove(name);
    }
    if caching.set_cookie == SetCookie::Strip {
        stored.remove(SET_COOKIE);
    }
    // Fields of `no-cache="..."` may not be sent again without validation: not storing them obeys.
    for name in directives.private_fields.iter().chain(&directives.no_cache_fields) {
        if !KEPT_ALWAYS.contains(name) {
            stored.remove(name);
        }
    }
    if dates::header(&stored, &DATE, response_time_s).is_none() {
        stored.insert(DATE, dates::value(response_time_s));
    }
    stored
}

/// Without these a stored response could be taken for fresher, or for another, than it is.
const KEPT_ALWAYS: [HeaderName; 4] = [CACHE_CONTROL, EXPIRES, DATE, VARY];

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
pub fn remove_hop_by_hop(headers: &mut HeaderMap) {
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
#[path = "storing_tests.rs"]
mod tests;
