//! The origin's responses, passed on without hop-by-hop fields. Threads: the worker's.

use http::header::{AGE, CONTENT_LENGTH, CONTENT_RANGE, TRAILER};
use http::{Extensions, HeaderMap, Response, response};
use hyper::ext::ReasonPhrase;

use crate::answer::body::ProxyBody;
use crate::answer::with_headers;
use crate::request::Ask;
use crate::rules::storing;
use crate::upstream::Timed;

/// The origin's response as it is, including its reason phrase, without hop-by-hop fields.
pub(crate) fn pass_on(ask: &Ask, mut parts: response::Parts, body: Timed) -> Response<ProxyBody> {
    remove_hop_by_hop(ask, &mut parts.headers);
    let mut extensions = std::mem::take(&mut parts.extensions);
    let body = ProxyBody::timed(body);
    let mut response = with_headers(parts.status, parts.headers, body);
    keep_reason(&mut extensions, &mut response);
    *response.version_mut() = parts.version;
    response
}

/// Gives the answer the reason phrase with which the origin's response came, if it is not the
/// status' own.
pub(crate) fn keep_reason(received: &mut Extensions, response: &mut Response<ProxyBody>) {
    if let Some(reason) = received.remove::<ReasonPhrase>() {
        response.extensions_mut().insert(reason);
    }
}

/// Removes hop-by-hop fields from a response that is passed through. Announcements of trailers stay
/// if trailers can follow.
pub(crate) fn remove_hop_by_hop(ask: &Ask, headers: &mut HeaderMap) {
    let mut announced = Vec::new();
    if headers.contains_key(TRAILER) && ask.gets_trailers(headers) {
        announced.extend(headers.get_all(TRAILER).iter().cloned());
    }
    storing::remove_hop_by_hop(headers);
    for line in announced {
        headers.append(TRAILER, line);
    }
}

/// The fields of an origin's response for the client that caused it, including those not stored,
/// without the fields that are generated anew for a part or for the age.
pub(crate) fn own_fields(received: &HeaderMap) -> HeaderMap {
    let mut headers = received.clone();
    storing::remove_hop_by_hop(&mut headers);
    for name in [AGE, CONTENT_LENGTH, CONTENT_RANGE] {
        headers.remove(name);
    }
    headers
}
