//! Conversion of a request to the HTTP version of its connection.
//!
//! Invariant: a request survives a conversion to HTTP/2 and back, announcements of trailers aside.
//! Pure; no threads.

use http::header::{CONNECTION, EXPECT, HOST, TE, TRAILER, TRANSFER_ENCODING};
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Uri, Version};
use hyper::body::Body as _;

use crate::upstream::OriginBody;

/// Converts a request to HTTP/2: `Host` becomes `:authority` (RFC 9113 §8.3.1).
pub(super) fn as_http2(mut request: Request<OriginBody>, scheme: Scheme) -> Request<OriginBody> {
    // The library does not tell whether the origin says 100.
    if let Some(expectation) = request.body().expectation() {
        expectation.met();
    }
    request.headers_mut().remove(EXPECT);
    // HTTP/2 forbids connection-specific fields (§8.2.2).
    request.headers_mut().remove(TRANSFER_ENCODING);
    request.headers_mut().remove(CONNECTION);
    let host = request.headers_mut().remove(HOST);
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(scheme);
    let authority = host.as_ref().and_then(|host| Authority::try_from(host.as_bytes()).ok());
    parts.authority = Some(authority.unwrap_or(Authority::from_static("localhost")));
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    *request.version_mut() = Version::HTTP_2;
    request
}

/// Prepares a request for HTTP/1.1. Converts it back if it was made for an HTTP/2 connection that
/// did not take it.
pub(super) fn as_http1(mut request: Request<OriginBody>) -> Request<OriginBody> {
    // Some servers merge trailers into headers. Of what is not announced here, hyper sends nothing
    // to servers of HTTP/1.1.
    request.headers_mut().remove(TRAILER);
    if !request.body().is_end_stream() && request.body().size_hint().exact().is_none() {
        // Without this header hyper omits the body of a GET if its length is unknown.
        request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    match request.body().expectation() {
        Some(expectation) if expectation.is_open() => {
            request.headers_mut().insert(EXPECT, HeaderValue::from_static("100-continue"));
        }
        _ => drop(request.headers_mut().remove(EXPECT)),
    }
    if request.headers().contains_key(TE) {
        // `TE` is hop-by-hop, so `Connection` must list it (RFC 9110 §10.1.4).
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("te"));
    }
    if request.version() != Version::HTTP_2 {
        return request;
    }
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = None;
    let authority = parts.authority.take();
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    if let Some(Ok(host)) = authority.map(|host| HeaderValue::try_from(host.as_str())) {
        request.headers_mut().insert(HOST, host);
    }
    *request.version_mut() = Version::HTTP_11;
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_the_way_to_http2_and_back() {
        let mut request = Request::new(OriginBody::Empty);
        *request.uri_mut() = Uri::from_static("/a?b");
        request.headers_mut().insert(HOST, HeaderValue::from_static("x.test:81"));
        let request = as_http2(request, Scheme::HTTP);
        assert_eq!(request.uri(), "http://x.test:81/a?b");
        assert!(!request.headers().contains_key(HOST));
        let request = as_http1(request);
        assert_eq!(request.uri(), "/a?b");
        assert_eq!(request.headers()[HOST], "x.test:81");
        assert_eq!(request.version(), Version::HTTP_11);
    }
}
