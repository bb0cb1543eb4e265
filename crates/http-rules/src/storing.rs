//! Whether a response may be stored, and which of its fields (RFC 9111 §3).
//!
//! Invariants: [`decide`] answers `Ok` only if every condition of §3 for a shared cache holds;
//! each refusal has its own [`NotStoredReason`], to be counted and sent in `Cache-Status`.

use std::collections::HashSet;

use http::header::{
    AGE, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, COOKIE, DATE, EXPIRES,
    HeaderName, LAST_MODIFIED, SET_COOKIE, VARY,
};
use http::{HeaderMap, Method, StatusCode};

use crate::cache_control::{RequestDirectives, ResponseDirectives};
use crate::config::{CachingConfig, SetCookie};
use crate::freshness::{self, Lifetime, LifetimeSource};
use crate::preconditions::entity_tag;
use crate::surrogate::SURROGATE_CONTROL;
use crate::vary::{self, Vary};
use crate::{dates, list_members, parts, personal};

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
    /// `Vary: *` matches no later request.
    VaryStar,
    /// Not modified, interim, no status at all (over 599), or unknown with `must-understand`.
    Status,
    /// A part that cannot be stored: several ranges, or an unknown byte range.
    Partial,
    /// It sets a cookie, and the configuration does not store such responses.
    SetCookie,
    /// Nothing makes it cacheable: neither explicit freshness nor a heuristically cacheable status;
    /// or a cookie where freshness would be heuristic.
    NotCacheable,
    /// The request had a cookie, nothing says that the response is for others, too, and it has no
    /// entity tag by which the origin could tell.
    Cookie,
    /// Stale at once and without validator: storing it could never save a transfer.
    NeverUseful,
    /// Larger than the largest object this proxy stores.
    TooLarge,
    /// Its metadata exceeds the store's limit.
    HeadersTooLarge,
    /// The store refused: memory full, not admitted, closed.
    Store,
    /// The same resource was invalidated while the response was on its way.
    Invalidated,
    /// A newer response for it was stored while this one was in flight.
    Superseded,
    /// The origin ended the body early.
    Truncated,
    /// The client left too early for the rest to be worth fetching, or took it too slowly to keep
    /// what is stored open for it.
    ClientGone,
    /// A rule of the operator forbids it.
    Rule,
    /// A rule stores only from the second request on, and this is the first.
    FirstRequest,
}

impl NotStoredReason {
    /// All reasons, in the order of their counters.
    pub const ALL: [NotStoredReason; 21] = [
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
        NotStoredReason::Cookie,
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
            NotStoredReason::Cookie => "cookie",
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

    /// Whether the request alone is the reason: the refusal says nothing about what is stored.
    pub fn is_of_request(self) -> bool {
        use NotStoredReason as Not;
        matches!(self, Not::RequestNoStore | Not::Authorization | Not::Cookie)
    }
}

/// The parts of an exchange that matter for storing.
#[derive(Debug, Clone, Copy)]
pub struct Exchange<'a> {
    /// Method of the request.
    pub method: &'a Method,
    /// Fields of the request.
    pub request: &'a HeaderMap,
    /// The request's cache directives.
    pub wishes: &'a RequestDirectives,
    /// Status of the response.
    pub status: StatusCode,
    /// Fields of the response.
    pub response: &'a HeaderMap,
    /// The response's cache directives.
    pub directives: &'a ResponseDirectives,
    /// When the response arrived.
    pub response_time_s: u64,
    /// The request that brought its body had a cookie.
    pub with_cookie: bool,
    /// The request had a range or the client's own conditions: a response but a 200, a 206, or one
    /// that these have no part in, is for this request only.
    pub selective: bool,
}

/// Whether the response may be stored by a shared cache.
///
/// # Errors
/// The first reason that forbids it.
pub fn decide(exchange: Exchange<'_>, caching: &CachingConfig) -> Result<(), NotStoredReason> {
    let Exchange { method, request, wishes, status, response, directives, selective, .. } =
        exchange;
    if *method != Method::GET {
        return Err(NotStoredReason::Method);
    }
    let is_none = status.as_u16() > 599;
    if status.is_informational() || status == StatusCode::NOT_MODIFIED || is_none {
        return Err(NotStoredReason::Status);
    }
    if is_for_this_client(status) {
        return Err(NotStoredReason::Status);
    }
    if directives.must_understand && !understood(status) {
        return Err(NotStoredReason::Status);
    }
    let partial = status == StatusCode::PARTIAL_CONTENT;
    if selective && !partial && !is_whatever_was_asked(status) {
        return Err(NotStoredReason::Status);
    }
    // An unrequested part could belong to any representation.
    if partial && !(selective && parts::Part::of(response).is_some()) {
        return Err(NotStoredReason::Partial);
    }
    if wishes.no_store {
        return Err(NotStoredReason::RequestNoStore);
    }
    if directives.private {
        return Err(NotStoredReason::Private);
    }
    if request.contains_key(AUTHORIZATION) && !directives.shareable {
        return Err(NotStoredReason::Authorization);
    }
    if caching.set_cookie == SetCookie::Refuse && response.contains_key(SET_COOKIE) {
        return Err(NotStoredReason::SetCookie);
    }
    if vary::of(response) == Vary::Star {
        return Err(NotStoredReason::VaryStar);
    }
    // The last of the origin's prohibitions: an operator may overrule this one, but none above.
    // `must-understand` lifts `no-store` for a status understood here (§5.2.2.3).
    if directives.no_store && !directives.must_understand {
        return Err(NotStoredReason::NoStore);
    }
    worth_storing(exchange, caching)
}

/// Whether a response of this status is the same without a range and conditions, which count only
/// where there would be a 200 without them (RFC 9110 §13.2.1, §14.2).
fn is_whatever_was_asked(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::OK
            | StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
            | StatusCode::NOT_FOUND
            | StatusCode::GONE
    )
}

/// Whether a response of this status is about the request, its client or the network that it came
/// through, and never stored, whatever it says (RFC 6585 §3 to §6).
fn is_for_this_client(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::PRECONDITION_REQUIRED
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            | StatusCode::NETWORK_AUTHENTICATION_REQUIRED
    )
}

/// Whether the response to a POST may be stored as one to GET, provided that it represents the
/// target and [`decide`] agrees: a 200 with explicit freshness (RFC 9110 §9.3.3).
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

/// The reason not to store what others would lose by it: the response varies on a field in which
/// this request says who its user is.
pub fn varies_by_user(varies: &Vary, request: &HeaderMap) -> Option<NotStoredReason> {
    let Vary::Names(names) = varies else { return None };
    let fields =
        [(COOKIE, NotStoredReason::Cookie), (AUTHORIZATION, NotStoredReason::Authorization)];
    let said = |name: &HeaderName| names.contains(name) && request.contains_key(name);
    fields.into_iter().find_map(|(name, reason)| said(&name).then_some(reason))
}

/// The last two conditions: something makes the response cacheable (§3), and storing it can save a
/// transfer.
fn worth_storing(exchange: Exchange<'_>, caching: &CachingConfig) -> Result<(), NotStoredReason> {
    let Exchange { status, response, directives, response_time_s, with_cookie, .. } = exchange;
    let own = Lifetime::of(status, response, directives, caching, response_time_s);
    let (lifetime, is_personal) = personal::judged(with_cookie, response, directives, caching, own);
    // A part without a lifetime would be written in vain: each would be validated each time.
    let lasts =
        status != StatusCode::PARTIAL_CONTENT || (lifetime.seconds > 0 && !directives.no_cache);
    let stated = lifetime.source == LifetimeSource::Explicit || directives.public;
    let cacheable = stated || freshness::heuristically_cacheable(status);
    if !cacheable
        || (response.contains_key(SET_COOKIE) && !lets_share_cookies(lifetime, directives))
    {
        return Err(NotStoredReason::NotCacheable);
    }
    if is_personal && (!lasts || entity_tag(response).is_none()) {
        return Err(NotStoredReason::Cookie);
    }
    if !stated && !lasts {
        return Err(NotStoredReason::NotCacheable);
    }
    let stale_s = directives.stale_while_revalidate_s.unwrap_or(caching.stale_while_revalidate_s)
        | directives.stale_if_error_s.unwrap_or(caching.stale_if_error_s);
    let validator = entity_tag(response).is_some() || response.contains_key(LAST_MODIFIED);
    let usable = (lifetime.seconds > 0 || stale_s > 0) && !directives.no_cache && !is_personal;
    if usable || validator { Ok(()) } else { Err(NotStoredReason::NeverUseful) }
}

/// Whether the origin explicitly allows sharing a response with a cookie (§7.3). A heuristic could
/// give one user's cookie, or page, to others.
pub(crate) fn lets_share_cookies(lifetime: Lifetime, directives: &ResponseDirectives) -> bool {
    lifetime.source == LifetimeSource::Explicit || directives.public
}

/// Whether a cookie of the response is a sign that the page, too, is for one user. That it is not
/// stored with it changes nothing; that the origin names the cookie as what is not shared does.
pub fn may_be_for_one_user(response: &HeaderMap, directives: &ResponseDirectives) -> bool {
    let mut left_out = directives.private_fields.iter().chain(&directives.no_cache_fields);
    response.contains_key(SET_COOKIE) && !left_out.any(|name| *name == SET_COOKIE)
}

/// Whether a response with a cookie may be served without validation once it is stale. Where the
/// origin gives it a lifetime of nothing and no window, only a window of the configuration or of a
/// client would hand it to others.
pub(crate) fn lets_share_stale_cookies(
    lifetime: Lifetime,
    directives: &ResponseDirectives,
) -> bool {
    let windows = [directives.stale_while_revalidate_s, directives.stale_if_error_s];
    lifetime.source != LifetimeSource::Explicit
        || lifetime.seconds > 0
        || windows.into_iter().flatten().any(|window_s| window_s > 0)
}

/// Final status codes whose caching rules are known here: the registered ones.
fn understood(status: StatusCode) -> bool {
    matches!(status.as_u16(),
        200..=208 | 226 | 300..=303 | 305 | 307 | 308 | 400..=417 | 421..=426 | 428 | 429 | 431
        | 451 | 500..=508 | 510 | 511)
}

/// The fields to store: the message's, without those of the connection, of this hop, or of one user
/// (§3.1). `Date` is added if missing or unreadable (RFC 9110 §6.6.1).
pub fn stored_headers(
    response: &HeaderMap,
    directives: &ResponseDirectives,
    caching: &CachingConfig,
    response_time_s: u64,
) -> HeaderMap {
    let mut stored = response.clone();
    let is_kept = |name: &HeaderName| kept_always(caching).any(|kept| kept == name);
    // `Connection` must not name what is kept (RFC 9110 §7.6.1), but could.
    remove_of_connection(&mut stored, is_kept);
    // Both are generated anew when the response is served.
    for name in [AGE, CONTENT_LENGTH] {
        stored.remove(name);
    }
    if caching.set_cookie == SetCookie::Strip {
        stored.remove(SET_COOKIE);
    }
    // Fields of `no-cache="..."` must not be reused without validation, so they are not stored.
    for name in directives.private_fields.iter().chain(&directives.no_cache_fields) {
        if !is_kept(name) {
            stored.remove(name);
        }
    }
    if dates::header(&stored, &DATE, response_time_s).is_none() {
        stored.insert(DATE, dates::value(response_time_s));
    }
    stored
}

/// Without these, or the targeted fields of the configuration, a stored response could appear
/// fresher than it is, or match other requests: neither a directive nor `Connection` takes them
/// off.
static KEPT_ALWAYS: [HeaderName; 5] = [CACHE_CONTROL, EXPIRES, DATE, VARY, SURROGATE_CONTROL];

fn kept_always(caching: &CachingConfig) -> impl Iterator<Item = &HeaderName> {
    KEPT_ALWAYS.iter().chain(&caching.targeted)
}

/// Whether a field belongs to one connection by its name, whoever sent it (RFC 9110 §7.6.1). Asked
/// of every field of a message: told by length and letters, not by ten comparisons of names.
pub(crate) fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authentication-info"
            | "proxy-authorization"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// Removes what belongs to one connection: the known fields and those `Connection` names.
pub fn remove_hop_by_hop(headers: &mut HeaderMap) {
    remove_of_connection(headers, |_| false);
}

/// A copy without what belongs to one connection, and with room for so many more fields. Of the
/// rest it has what `stays`, in the order of the original.
pub fn without_hop_by_hop(
    headers: &HeaderMap,
    room: usize,
    stays: impl Fn(&HeaderName) -> bool,
) -> HeaderMap {
    let named = named_by_connection(headers);
    let is_left_out = |name| is_hop_by_hop(name) || named.contains(name) || !stays(name);
    let mut copy = HeaderMap::with_capacity(headers.keys_len() + room);
    for (name, value) in headers.iter().filter(|(name, _)| !is_left_out(name)) {
        copy.append(name, value.clone());
    }
    copy
}

/// The fields of a message that its `Connection` names: it may name thousands more.
fn named_by_connection(headers: &HeaderMap) -> HashSet<HeaderName> {
    if !headers.contains_key(CONNECTION) {
        return HashSet::new();
    }
    let names = list_members(headers, &CONNECTION);
    let names = names.filter_map(|name| HeaderName::from_bytes(name).ok());
    names.filter(|name| headers.contains_key(name)).collect()
}

/// The same, but for what is kept though `Connection` names it.
fn remove_of_connection(headers: &mut HeaderMap, is_kept: impl Fn(&HeaderName) -> bool) {
    for name in named_by_connection(headers) {
        if !is_kept(&name) {
            headers.remove(name);
        }
    }
    // Most messages have none of these: comparing their few names takes less time than looking for
    // every field.
    while let Some(name) = headers.keys().find(|name| is_hop_by_hop(name)).cloned() {
        headers.remove(name);
    }
}

#[cfg(test)]
#[path = "storing_tests.rs"]
mod tests;
