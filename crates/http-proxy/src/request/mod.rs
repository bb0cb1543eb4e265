//! A client's request as the cache sees it: its key, its directives, and the origin's request.
//!
//! Invariant: the key is made from all that the origin receives of scheme, host and target
//! (`naming`), and from nothing else that a client may choose freely. The `Host` that the origin
//! gets is its own or that of the key. No threads.

mod admission;
mod elements;
pub(crate) mod forwarded;
pub(crate) mod grouping;
pub(crate) mod hooks;
pub(crate) mod naming;
mod written;

pub(crate) use written::Written;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderName, HeaderValue,
    IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, PRAGMA, RANGE, TE,
    TRAILER, TRANSFER_ENCODING, VIA,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, StatusCode, Uri, Version};

use crate::client::Peer;
use crate::collapse::Who;
use crate::config::ProxyConfig;
use crate::request::admission::FirstOrNot;
use crate::request::forwarded::ClientGiven;
use crate::request::naming::Naming;
use crate::rules::invalidation::{self, Base};
use crate::rules::{RequestDirectives, list_members, storing, trailers, validation, vary};
use crate::ruleset::{AnswerEdits, Answering, OwnLimits, PrefixChange, Ruleset, SiteId};
use crate::upstream::{OriginBody, Pin, Pinned};
use crate::vault::Target;
use crate::worker::Shared;

/// Times that our own name may occur in `Via` before a request counts as looping.
const VIA_REPEATS_MAX: usize = 8;

/// Fields that only proxies write.
static PROXYS: [HeaderName; 3] =
    [VIA, HeaderName::from_static("x-forwarded-for"), HeaderName::from_static("forwarded")];

/// Fields that are added to most requests to origins: `Host`, `Via`, three or four of the client,
/// and two conditions.
const ADDED: usize = 8;

const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");

/// A request without its body.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) target: Target,
    pub(crate) wishes: RequestDirectives,
    /// A rule makes it bypass the cache.
    pub(crate) pass: bool,
    /// The site that answers it.
    pub(crate) site: SiteId,
    /// The rule that answers it, if one does.
    pub(crate) answering: Option<Answering>,
    /// Change of its path towards the origin.
    pub(crate) prefix: Option<Arc<PrefixChange>>,
    /// The scheme that the client used, whatever the origin is told.
    asked_by: &'static str,
    /// The scheme in the target of a request of HTTP/1, if the client wrote a whole URL.
    pub(crate) scheme_written: Option<&'static str>,
    /// What its connection says of the client, and of what that asked for, is believed.
    trusts: bool,
    /// What few requests have, boxed to keep this small.
    given: Option<Box<Given>>,
    /// Rules that the client's request matched, if this one differs from it in what they look at.
    pub(crate) met: Option<Box<[bool]>>,
    /// Edits of its answer by the rules.
    pub(crate) answer_edits: Option<Arc<AnswerEdits>>,
    /// Rules edited its headers.
    pub(crate) edited: bool,
    /// Times that it was here, or at another cache of our name, by its `Via`.
    pub(crate) via_repeats: usize,
    /// HTTP version of the client's request.
    version: Version,
    peer: Peer,
    /// Another proxy claims to have sent it.
    through_proxy: bool,
    /// Its connection to the origin is dedicated to its client; see [`Ask::set_pinned`].
    pinned: Option<Pinned>,
    first_or_not: FirstOrNot,
    /// It is the GET that is made of its client's HEAD: nobody waits for the body.
    pub(crate) is_of_head: bool,
}

/// What a trusted proxy states, and what is made where it states nothing.
#[derive(Debug, Clone, Default)]
struct Given {
    /// The host that the client asked that proxy for, in lower case.
    host: Option<Box<str>>,
    client: ClientGiven,
    /// The id of the request, if a rule asks for one.
    request_id: Option<Box<str>>,
    /// What rules have in place of the configuration's limits.
    limits: Option<Arc<OwnLimits>>,
}

/// Why a request cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadRequest {
    MissingHost,
    BadTarget,
    Loop,
}

impl Ask {
    pub(crate) fn new<B>(
        request: Request<B>,
        peer: Peer,
        shared: &Shared,
    ) -> Result<(Ask, B), BadRequest> {
        let (parts, body) = request.into_parts();
        let client_host = client_host(&parts.uri, &parts.headers, parts.version)?;
        let names_proxys = parts.headers.keys().any(|name| PROXYS.contains(name));
        let name = &shared.config.name;
        let via_repeats = if names_proxys { via_repeats(&parts.headers, name) } else { 0 };
        if via_repeats >= VIA_REPEATS_MAX {
            return Err(BadRequest::Loop);
        }
        let naming = Naming::of(shared);
        let asked_by = naming.scheme_asked(&peer, &parts.headers);
        let scheme_written = scheme_written(&parts.uri, parts.version);
        let host_given = naming.host_given(&peer, &parts.headers);
        let host_given = host_given.map(|host| host.to_ascii_lowercase().into_boxed_str());
        let (scheme, host) = naming.of_request(&peer, &parts.headers, &client_host);
        let path_and_query = path_and_query(&parts.uri, &parts.method)?;
        let fields = &shared.config.forwarded;
        let trusts = fields.trusts(peer.ip);
        let through_proxy = trusts || names_proxys;
        let asked = (asked_by, host_given.as_deref().unwrap_or(&client_host));
        let name = (scheme, host.as_str());
        let primary = naming::primary_key(&shared.config, asked, name, path_and_query.as_str());
        let client = forwarded::client_given(fields, peer.ip, &parts.headers);
        let is_given = host_given.is_some() || client != ClientGiven::Peer;
        let given = Given { host: host_given, client, ..Given::default() };
        let given = is_given.then(|| Box::new(given));
        let wishes = RequestDirectives::of(&parts.headers);
        let target = Target { primary, scheme, host, client_host, path_and_query };
        let (method, mut headers, version) = (parts.method, parts.headers, parts.version);
        if headers.contains_key(TE) {
            settle_te(&mut headers);
        }
        let mut ask = Ask {
            method,
            headers,
            target,
            wishes,
            pass: false,
            site: SiteId::MAIN,
            answering: None,
            prefix: None,
            asked_by,
            scheme_written,
            trusts,
            given,
            met: None,
            answer_edits: None,
            edited: false,
            via_repeats,
            version,
            peer,
            through_proxy,
            pinned: None,
            first_or_not: FirstOrNot::default(),
            is_of_head: false,
        };
        hooks::on_request(shared, &mut ask);
        Ok((ask, body))
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Whether it uses a connection to the origin dedicated to its client.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned.is_some()
    }

    /// The client's dedicated connection to the origin, if it may have one. Not where another proxy
    /// sends many clients' requests on one connection.
    pub(crate) fn pin(&self) -> Option<&Arc<Pin>> {
        self.peer.pin.as_ref().filter(|_| !self.through_proxy)
    }

    /// Dedicates its origin connection to the client, and keeps its response out of the cache: the
    /// origin identifies the user by the connection.
    pub(crate) fn set_pinned(&mut self) {
        self.pinned = Some(Pinned(self.pin().cloned()));
    }

    /// True if a response may be private to this client (RFC 9111 §3.5).
    pub(crate) fn has_credentials(&self) -> bool {
        self.headers.contains_key(AUTHORIZATION)
    }

    /// Whether the response may be the page of the one user that a cookie names.
    pub(crate) fn has_cookie(&self) -> bool {
        self.headers.contains_key(COOKIE)
    }

    /// The requests that this one may share a response with.
    pub(crate) fn who(&self) -> Who {
        Who {
            is_head: self.method == Method::HEAD,
            with_credentials: self.has_credentials(),
            with_cookie: self.has_cookie(),
        }
    }

    /// Whether the client receives trailers of a response with these headers: over HTTP/2, or with
    /// chunked coding if it announced that it accepts them.
    pub(crate) fn gets_trailers(&self, answer: &HeaderMap) -> bool {
        let in_chunks = || self.version == Version::HTTP_11 && !answer.contains_key(CONTENT_LENGTH);
        self.version == Version::HTTP_2 || (self.headers.contains_key(TE) && in_chunks())
    }

    /// Builds the request for the origin: end-to-end headers, our `Via`, and the client's identity.
    pub(crate) fn to_origin_request(
        &self,
        shared: &Shared,
        body: OriginBody,
    ) -> Request<OriginBody> {
        let headers = self.origin_headers(shared, matches!(body, OriginBody::Stream(_)));
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        let target = &self.target.path_and_query;
        let renamed = self.prefix.as_ref().and_then(|prefix| prefix.to_origin(target.as_str()));
        *request.uri_mut() = match renamed {
            None => Uri::from(target.clone()),
            // A target that parsed once parses again with its prefix changed.
            Some(renamed) => renamed.parse().unwrap_or(Uri::from_static("/")),
        };
        *request.headers_mut() = headers;
        if self.site != SiteId::MAIN {
            request.extensions_mut().insert(self.site);
        }
        if let Some(prefix) = &self.prefix {
            request.extensions_mut().insert(prefix.clone());
        }
        if let Some(pinned) = &self.pinned {
            request.extensions_mut().insert(pinned.clone());
        }
        if let Some(route) = &self.peer.route {
            request.extensions_mut().insert(route.clone());
        }
        if let Some(limits) = self.limits() {
            request.extensions_mut().insert(limits.clone());
        }
        if let Some(notes) = &self.peer.notes {
            request.extensions_mut().insert(notes.clone());
        }
        if let Some(sender) = self.peer.interim.clone() {
            // Only HTTP/1.1 origins send interim responses.
            let via = shared.via.received(Version::HTTP_11);
            let expectation = request.body().expectation();
            hyper::ext::on_informational(&mut request, move |interim| {
                if interim.status() == StatusCode::CONTINUE
                    && let Some(expectation) = &expectation
                {
                    expectation.met();
                }
                sender.push(interim.status(), interim.headers(), via.as_bytes());
            });
        }
        request
    }

    /// The fields for the origin, written once: the client's without those that end here, then
    /// ours.
    fn origin_headers(&self, shared: &Shared, has_body: bool) -> HeaderMap {
        let trusts = self.trusts;
        let stays = |name: &HeaderName| {
            // If rules edited the headers, what was told was forgotten before.
            *name != EXPECT
                && *name != HOST
                && (self.edited || !forwarded::is_forgotten(name, trusts))
        };
        let mut headers = storing::without_hop_by_hop(&self.headers, ADDED, stays);
        if self.headers.contains_key(TE) {
            headers.insert(TE, TRAILERS);
        }
        // Servers of HTTP/2 drop trailers that were not announced, Go's among them.
        if has_body {
            for line in self.headers.get_all(TRAILER) {
                headers.append(TRAILER, line.clone());
            }
        }
        vary::reduce_request(&mut headers, &shared.config.caching);
        let host = self.host_told();
        let site = shared.sites.get(self.site);
        let preserved = host.clone().filter(|_| site.keeps_host(shared.config.preserve_host));
        headers.insert(HOST, preserved.unwrap_or_else(|| site.host_header.clone()));
        let (peer, version, target) = (&self.peer, self.version, &self.target);
        let received = forwarded::Received { peer, version, target, host };
        forwarded::add(&mut headers, &shared.config, &shared.via, received);
        headers
    }

    /// The client's host as the origin is told it, in `Host` and elsewhere: that of the key, so
    /// that nothing depends on how the client that filled the cache spelt it, nor on a `Host`
    /// beside what a trusted proxy states. `None` if the client named none.
    fn host_told(&self) -> Option<HeaderValue> {
        let is_named = self.host_given().is_some() || !self.target.client_host.is_empty();
        is_named.then(|| HeaderValue::try_from(&self.target.host).ok()).flatten()
    }

    /// The host that the client asked for, with the port if it said one: of a trusted proxy, if one
    /// states it.
    pub(crate) fn host_asked(&self) -> &str {
        self.host_given().unwrap_or(&self.target.client_host)
    }

    /// The host that a trusted proxy was asked for, if that states one.
    fn host_given(&self) -> Option<&str> {
        self.given.as_ref()?.host.as_deref()
    }

    /// Its client, IPv4 as such: the peer, or who that says if it is believed; `None` where it says
    /// two things.
    pub(crate) fn client(&self) -> Option<IpAddr> {
        let given = self.given.as_ref().map(|given| given.client);
        given.unwrap_or_default().address(self.peer.ip)
    }

    /// Its id, if rules ask for one.
    pub(crate) fn request_id(&self) -> Option<&str> {
        self.given.as_ref()?.request_id.as_deref()
    }

    /// What rules have in place of the configuration's limits, if they have any.
    fn limits(&self) -> Option<&Arc<OwnLimits>> {
        self.given.as_ref()?.limits.as_ref()
    }

    /// Takes what rules have in place of the configuration's limits.
    fn set_limits(&mut self, limits: Arc<OwnLimits>) {
        self.given.get_or_insert_default().limits = Some(limits);
    }

    /// Whether its client waits to be told that its body is wanted. Over HTTP/2 nobody tells it.
    pub(crate) fn expects_100(&self) -> bool {
        self.version == Version::HTTP_11 && self.headers.contains_key(EXPECT)
    }

    /// Longest silence within a body.
    pub(crate) fn body_idle(&self, config: &ProxyConfig) -> Duration {
        let own = self.limits().and_then(|limits| limits.body_idle);
        own.unwrap_or(config.timeouts.body_idle)
    }

    /// Longest time from the end of the request to the origin's headers.
    pub(crate) fn origin_header(&self, config: &ProxyConfig) -> Duration {
        let own = self.limits().and_then(|limits| limits.origin_header);
        own.unwrap_or(config.timeouts.origin_header)
    }

    /// Longest body that it may have; `None`: any.
    pub(crate) fn upload_bytes_max(&self, config: &ProxyConfig) -> Option<u64> {
        let own = self.limits().and_then(|limits| limits.upload_bytes_max);
        own.unwrap_or(config.limits.upload_bytes_max)
    }

    /// Gives it an id.
    fn make_request_id(&mut self) {
        let id = forwarded::request_id(&self.headers, self.trusts);
        self.given.get_or_insert_default().request_id = Some(id);
    }

    /// The scheme that the client used, whatever the origin is told.
    pub(crate) fn scheme_asked(&self) -> &'static str {
        self.asked_by
    }

    /// The requested URI under the names that the client and the origin (scheme and host) use for
    /// it.
    pub(crate) fn base<'a>(&'a self, origin: (&'a str, &'a str)) -> Base<'a> {
        let Target { scheme, host, client_host, path_and_query, .. } = &self.target;
        let path_and_query = path_and_query.as_str();
        Base { origins: [(scheme, host), (scheme, client_host), origin], path_and_query }
    }

    /// True if the client wants parts of the resource.
    pub(crate) fn wants_range(&self) -> bool {
        self.method == Method::GET && self.headers.contains_key(RANGE)
    }

    /// True if the request, sent unchanged, may be answered with 304.
    pub(crate) fn asks_for_changes(&self) -> bool {
        [IF_NONE_MATCH, IF_MODIFIED_SINCE].iter().any(|name| self.headers.contains_key(name))
    }

    /// True if the request, sent unchanged, may yield a response valid for its client only.
    pub(crate) fn is_selective(&self) -> bool {
        [RANGE, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_MATCH, IF_UNMODIFIED_SINCE]
            .iter()
            .any(|name| self.headers.contains_key(name))
    }

    /// True if the request has conditions that come before its range.
    pub(crate) fn is_conditional(&self) -> bool {
        [IF_RANGE, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_MATCH, IF_UNMODIFIED_SINCE]
            .iter()
            .any(|name| self.headers.contains_key(name))
    }

    /// The same request, to be changed: it keeps matching the rules that it matches now.
    fn with_met(&self, rules: &Ruleset) -> Ask {
        let mut ask = self.clone();
        if ask.met.is_none() && !rules.is_empty() {
            ask.met = Some(rules.met(&self.view()));
        }
        ask
    }

    /// The method that the origin may take it for.
    pub(crate) fn acting_method(&self) -> Method {
        invalidation::acting_method(&self.method, &self.headers)
    }

    /// The same request as a GET.
    pub(crate) fn as_get(&self, rules: &Ruleset) -> Ask {
        Ask { method: Method::GET, ..self.with_met(rules) }
    }

    /// The GET whose response answers this HEAD as well, to which ranges are nothing (RFC 9110
    /// §14.2). It matches the rules that a GET would.
    pub(crate) fn get_of_head(&self, rules: &Ruleset) -> Ask {
        let as_get = Ask { method: Method::GET, is_of_head: true, ..self.clone() };
        let mut ask = as_get.with_met(rules);
        for name in [RANGE, IF_RANGE] {
            ask.headers.remove(name);
        }
        ask
    }

    /// The same request without its client's conditions, ranges and wishes: for a background
    /// validation. A cache before the origin would obey the wishes: by `only-if-cached` it
    /// would ask nobody. A HEAD's matches the rules that a GET would.
    pub(crate) fn for_nobody(&self, rules: &Ruleset) -> Ask {
        let mut ask = Ask { method: Method::GET, ..self.clone() }.with_met(rules);
        validation::remove_conditions(&mut ask.headers);
        for name in [TE, CACHE_CONTROL, PRAGMA] {
            ask.headers.remove(name);
        }
        ask.wishes = RequestDirectives::default();
        // The line in the log is about what its client got.
        (ask.peer.interim, ask.peer.notes) = (None, None);
        ask
    }

    /// The same request for slices that the client's response is assembled from.
    pub(crate) fn for_slices(&self, rules: &Ruleset) -> Ask {
        let mut ask = self.with_met(rules);
        validation::remove_conditions(&mut ask.headers);
        ask.peer.interim = None;
        ask
    }
}

/// Reduces `TE` to what is forwarded to the origin, so that nothing else enters a key.
fn settle_te(headers: &mut HeaderMap) {
    if trailers::taken_by(headers) {
        headers.insert(TE, TRAILERS);
    } else {
        headers.remove(TE);
    }
}

/// True if the request announces a body.
pub(crate) fn announces_body(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING)
        || headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0")
}

/// The host that the client requested, lower case; empty for HTTP/1.0 without one.
fn client_host(uri: &Uri, headers: &HeaderMap, version: Version) -> Result<String, BadRequest> {
    if let Some(authority) = uri.authority() {
        return Ok(authority.as_str().to_ascii_lowercase());
    }
    let mut hosts = headers.get_all(HOST).into_iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => {
            let host = host.to_str().map_err(|_| BadRequest::MissingHost)?;
            Ok(host.to_ascii_lowercase())
        }
        (None, _) if version < Version::HTTP_11 => Ok(String::new()),
        _ => Err(BadRequest::MissingHost),
    }
}

/// The scheme of a whole URL in a request line. Over HTTP/2 every request names one, which says no
/// more than how the connection speaks.
fn scheme_written(uri: &Uri, version: Version) -> Option<&'static str> {
    let scheme = uri.scheme_str().filter(|_| version < Version::HTTP_2)?;
    Some(if scheme.eq_ignore_ascii_case("https") { "https" } else { "http" })
}

/// The path and query that the client asked for.
fn path_and_query(uri: &Uri, method: &Method) -> Result<PathAndQuery, BadRequest> {
    let Some(target) = uri.path_and_query() else { return Ok(PathAndQuery::from_static("/")) };
    match target.as_str() {
        text if text.starts_with('/') => Ok(target.clone()),
        // Only `OPTIONS *` may lack the leading slash.
        "*" if *method == Method::OPTIONS => Ok(target.clone()),
        // Formatting the whole URI would add the slash.
        text if text.starts_with('?') => {
            PathAndQuery::try_from(format!("/{text}")).map_err(|_| BadRequest::BadTarget)
        }
        _ => Err(BadRequest::BadTarget),
    }
}

/// Times that our own name occurs in `Via`.
fn via_repeats(headers: &HeaderMap, name: &str) -> usize {
    let ours = |member: &&[u8]| {
        member.split(|b| *b == b' ').nth(1).is_some_and(|by| by == name.as_bytes())
    };
    list_members(headers, &VIA).filter(ours).count()
}
