//! A client's request as the cache sees it: what it names, what it demands, how it goes on.
//!
//! Invariant: the key is made from all that the origin is asked and told of scheme, host and target
//! (`naming`), and from nothing else that a client may choose freely. No threads.

pub(crate) mod forwarded;
pub(crate) mod grouping;
pub(crate) mod hooks;
pub(crate) mod naming;

use std::sync::Arc;

use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, HeaderValue, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, RANGE, TE, TRANSFER_ENCODING, VIA,
};
use http::{HeaderMap, Method, Request, Uri, Version};

use crate::client::Peer;
use crate::request::naming::Naming;
use crate::rules::invalidation::{self, Base};
use crate::rules::key::KeyRules;
use crate::rules::{RequestDirectives, list_members, storing, trailers, validation, vary};
use crate::ruleset::{Answering, PrefixChange, SiteId};
use crate::upstream::{OriginBody, Pin, Pinned};
use crate::vault::Target;
use crate::worker::Shared;

/// Times our own name may stand in `Via` before a request counts as going round in a circle.
const VIA_REPEATS_MAX: usize = 8;

/// What only proxies write.
const PROXYS: [HeaderName; 3] =
    [VIA, HeaderName::from_static("x-forwarded-for"), HeaderName::from_static("forwarded")];

const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");

/// A request without its body.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) target: Target,
    pub(crate) wishes: RequestDirectives,
    /// A rule sends it past the cache.
    pub(crate) pass: bool,
    /// Who answers it.
    pub(crate) site: SiteId,
    /// A rule answers it.
    pub(crate) answering: Option<Answering>,
    /// What becomes of its path towards the origin.
    pub(crate) prefix: Option<Arc<PrefixChange>>,
    /// The scheme by which the client asked, whatever the origin is told.
    asked_by: &'static str,
    /// Which rules it met, if they edited its headers.
    pub(crate) met: Option<Box<[bool]>>,
    /// In which the client asked.
    version: Version,
    peer: Peer,
    /// Another proxy says that it sent it.
    through_proxy: bool,
    /// Its connection to the origin is no other client's; see [`Ask::bind`].
    pinned: Option<Pinned>,
}

/// Why a request cannot be served at all.
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
        if goes_round(&parts.headers, &shared.config.name) {
            return Err(BadRequest::Loop);
        }
        let naming = Naming::of(shared);
        let asked_by = naming.scheme_asked(&peer, &parts.headers);
        let (scheme, host) = naming.of_request(&peer, &parts.headers, &client_host);
        let path_and_query = match parts.uri.path_and_query() {
            Some(target) if target.as_str().starts_with('/') => target.as_str().to_owned(),
            // `OPTIONS *`, and nothing else that does not begin with a slash.
            Some(target) if target == "*" => "*".to_owned(),
            None => "/".to_owned(),
            // Written out by itself it would have the slash already.
            Some(target) if target.as_str().starts_with('?') => format!("/{}", target.as_str()),
            Some(_) => return Err(BadRequest::BadTarget),
        };
        let through_proxy = shared.config.transport.forwarded.trust_client
            || PROXYS.iter().any(|name| parts.headers.contains_key(name));
        let keys = &shared.config.caching.key;
        let primary = keys.primary(scheme, &host, &path_and_query);
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
            met: None,
            version,
            peer,
            through_proxy,
            pinned: None,
        };
        hooks::on_request(shared, &mut ask);
        Ok((ask, body))
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Whether it goes on a connection to the origin that is its client's alone.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned.is_some()
    }

    /// The client's own connection to the origin, if it may have one. Not where another proxy sends
    /// the requests of many clients on one connection.
    pub(crate) fn pin(&self) -> Option<&Arc<Pin>> {
        self.peer.pin.as_ref().filter(|_| !self.through_proxy)
    }

    /// Lets nobody else have the connection that it goes to the origin on, nor the cache its answer: the
    /// origin takes it for a user's by its connection.
    pub(crate) fn set_pinned(&mut self) {
        self.pinned = Some(Pinned(self.pin().cloned()));
    }

    /// True if an answer may be for who asks alone (RFC 9111 §3.5).
    pub(crate) fn has_credentials(&self) -> bool {
        self.headers.contains_key(AUTHORIZATION)
    }

    /// Whether the client gets what follows the body of an answer with these headers: in HTTP/2, or
    /// in chunks if it says that it wants it.
    pub(crate) fn gets_trailers(&self, answer: &HeaderMap) -> bool {
        let in_chunks = || self.version == Version::HTTP_11 && !answer.contains_key(CONTENT_LENGTH);
        self.version == Version::HTTP_2 || (self.headers.contains_key(TE) && in_chunks())
    }

    /// The same request for the origin: end-to-end headers, our `Via`, whose request it is.
    pub(crate) fn to_origin_request(
        &self,
        shared: &Shared,
        body: OriginBody,
    ) -> Request<OriginBody> {
        let mut headers = self.headers.clone();
        storing::remove_hop_by_hop(&mut headers);
        if self.headers.contains_key(TE) {
            headers.insert(TE, TRAILERS);
        }
        vary::reduce_request(&mut headers, &shared.config.caching);
        headers.remove(EXPECT);
        let host = headers.remove(HOST);
        if shared.config.preserve_host
            && !self.target.client_host.is_empty()
            && let Ok(value) = HeaderValue::try_from(&self.target.client_host)
        {
            headers.insert(HOST, value);
        } else {
            headers.insert(HOST, shared.sites.get(self.site).host_header.clone());
        }
        // Where rules edited them, before that.
        if self.met.is_none() && !shared.config.transport.forwarded.trust_client {
            forwarded::forget_told(&mut headers);
        }
        let (peer, version, target) = (&self.peer, self.version, &self.target);
        let received = forwarded::Received { peer, version, target, host };
        forwarded::add(&mut headers, &shared.config, &shared.via, received);
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        let target = &self.target.path_and_query;
        let renamed = self.prefix.as_ref().and_then(|prefix| prefix.to_origin(target));
        // A target that parsed once parses again, and so does one with another beginning.
        *request.uri_mut() =
            renamed.as_ref().unwrap_or(target).parse().unwrap_or(Uri::from_static("/"));
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
        if let Some(sender) = self.peer.interim.clone() {
            // Interim answers come from origins of HTTP/1.1 only.
            let via = shared.via.received(Version::HTTP_11);
            hyper::ext::on_informational(&mut request, move |interim| {
                sender.push(interim.status(), interim.headers(), via.as_bytes());
            });
        }
        request
    }

    /// Keys of the URIs of the same origin that a response to this request names.
    pub(crate) fn keys_of_named(
        &self,
        response: &HeaderMap,
        keys: &KeyRules,
        origin: (&str, &str),
    ) -> Vec<Vec<u8>> {
        let Target { scheme, host, .. } = &self.target;
        let paths = invalidation::named(self.base(origin), response);
        paths.map(|path| keys.primary(scheme, host, &path)).collect()
    }

    /// What the request was for: as the client calls it, and as the origin does, by its scheme and host.
    pub(crate) fn base<'a>(&'a self, origin: (&'a str, &'a str)) -> Base<'a> {
        let Target { scheme, host, client_host, path_and_query, .. } = &self.target;
        Base { origins: [(scheme, host), (scheme, client_host), origin], path_and_query }
    }

    /// True if the client wants parts of the resource.
    pub(crate) fn wants_range(&self) -> bool {
        self.method == Method::GET && self.headers.contains_key(RANGE)
    }

    /// True if the request, sent as it is, may be answered 304.
    pub(crate) fn asks_for_changes(&self) -> bool {
        [IF_NONE_MATCH, IF_MODIFIED_SINCE].iter().any(|name| self.headers.contains_key(name))
    }

    /// True if the request, sent as it is, may bring an answer that is for its client alone.
    pub(crate) fn is_selective(&self) -> bool {
        [RANGE, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_MATCH, IF_UNMODIFIED_SINCE]
            .iter()
            .any(|name| self.headers.contains_key(name))
    }

    /// The same as a GET.
    pub(crate) fn as_get(&self) -> Ask {
        Ask { method: Method::GET, ..self.clone() }
    }

    /// The same request without what only its client wants: for a validation that nobody waits for.
    pub(crate) fn for_nobody(&self) -> Ask {
        let mut ask = self.as_get();
        validation::remove_conditions(&mut ask.headers);
        ask.headers.remove(TE);
        ask.wishes = RequestDirectives::default();
        ask.peer.interim = None;
        ask
    }

    /// The same request for slices that its client's answer is put together from.
    pub(crate) fn for_slices(&self) -> Ask {
        let mut ask = self.clone();
        validation::remove_conditions(&mut ask.headers);
        ask.peer.interim = None;
        ask
    }
}

/// Leaves of `TE` what goes on to the origin, so that nothing is keyed by the rest.
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

/// The host the client asked, lower case; empty for HTTP/1.0 without one.
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

fn goes_round(headers: &HeaderMap, name: &str) -> bool {
    let ours = |member: &&[u8]| {
        member.split(|b| *b == b' ').nth(1).is_some_and(|by| by == name.as_bytes())
    };
    list_members(headers, &VIA).filter(ours).count() >= VIA_REPEATS_MAX
}
