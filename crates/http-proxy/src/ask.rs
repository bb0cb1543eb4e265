//! A client's request as the cache sees it: what it names, what it demands, how it goes on.
//!
//! Invariants: the key is made from what the origin will be asked, so that no header a client may
//! choose freely (its `Host`, unless that is passed on) makes a key. No threads.

use http::header::{CONTENT_LENGTH, EXPECT, HOST, HeaderValue, TRANSFER_ENCODING, VIA};
use http::{HeaderMap, Method, Request, Uri, Version};

use crate::body::OriginBody;
use crate::forwarded;
use crate::peer::Peer;
use crate::rules::cache_control::CacheControl;
use crate::rules::{list_members, storing};
use crate::vault::Target;
use crate::worker::Shared;

/// Times our own name may stand in `Via` before a request counts as going round in a circle.
const VIA_REPEATS_MAX: usize = 8;

/// A request without its body.
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) target: Target,
    pub(crate) cache_control: CacheControl,
    peer: Peer,
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
        let host = if shared.config.preserve_host && !client_host.is_empty() {
            client_host.clone()
        } else {
            shared.origin.authority.clone()
        };
        let path_and_query = match parts.uri.path_and_query() {
            Some(target) if target.as_str().starts_with('/') => target.as_str().to_owned(),
            // `OPTIONS *`, and nothing else that does not begin with a slash.
            Some(target) if target == "*" => "*".to_owned(),
            None => "/".to_owned(),
            Some(target) if target.as_str().starts_with('?') => format!("/{target}"),
            Some(_) => return Err(BadRequest::BadTarget),
        };
        let primary = primary_key(shared.origin.scheme, &host, &path_and_query);
        let cache_control = CacheControl::of_request(&parts.headers);
        let target = Target { primary, host, client_host, path_and_query };
        let ask = Ask { method: parts.method, headers: parts.headers, target, cache_control, peer };
        Ok((ask, body))
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The same request for the origin: end-to-end headers, our `Via`, whose request it is.
    pub(crate) fn forward(&self, shared: &Shared, body: OriginBody) -> Request<OriginBody> {
        let mut headers = self.headers.clone();
        storing::remove_hop_by_hop(&mut headers);
        headers.remove(EXPECT);
        let host = headers.remove(HOST);
        if shared.config.preserve_host
            && let Ok(value) = HeaderValue::try_from(&self.target.host)
        {
            headers.insert(HOST, value);
        } else {
            headers.insert(HOST, shared.origin.host_header.clone());
        }
        forwarded::add(&mut headers, shared, &self.peer, host);
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        // A target that parsed once parses again.
        *request.uri_mut() = self.target.path_and_query.parse().unwrap_or(Uri::from_static("/"));
        *request.headers_mut() = headers;
        if let Some(route) = &self.peer.route {
            request.extensions_mut().insert(route.clone());
        }
        request
    }

    /// Key of another URI named by a response to this request, if it is of the same origin.
    pub(crate) fn key_of_named(&self, reference: &HeaderValue, scheme: &str) -> Option<Vec<u8>> {
        let text = reference.to_str().ok()?.trim();
        if let Ok(uri) = text.parse::<Uri>()
            && let Some(authority) = uri.authority()
        {
            let named = authority.as_str();
            let ours = [&self.target.host, &self.target.client_host];
            if !ours.iter().any(|host| host.eq_ignore_ascii_case(named)) {
                return None;
            }
            let path = uri.path_and_query().map_or("/", |path| path.as_str());
            return Some(primary_key(scheme, &self.target.host, path));
        }
        let text = text.split('#').next().unwrap_or_default();
        if text.starts_with("//") || text.contains("://") || text.is_empty() {
            return None;
        }
        if text.starts_with('/') {
            return Some(primary_key(scheme, &self.target.host, text));
        }
        let base = self.target.path_and_query.split('?').next().unwrap_or_default();
        let folder = &base[..=base.rfind('/')?];
        Some(primary_key(scheme, &self.target.host, &format!("{folder}{text}")))
    }
}

/// True if the request announces a body.
pub(crate) fn announces_body(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING)
        || headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0")
}

fn primary_key(scheme: &str, host: &str, path_and_query: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(scheme.len() + 3 + host.len() + path_and_query.len());
    for part in [scheme, "://", host, path_and_query] {
        key.extend_from_slice(part.as_bytes());
    }
    key
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
