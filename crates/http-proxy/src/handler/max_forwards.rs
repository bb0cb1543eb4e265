//! Requests that end at an intermediary: `Max-Forwards` (RFC 9110 §7.6.2) of OPTIONS, and TRACE.
//!
//! TRACE echoes the request, including the cookies and credentials that the client adds. A script
//! that makes a client send TRACE could read them, so this proxy refuses it, as most caches do.
//! Threads: the worker's.

use http::header::{ALLOW, HeaderValue, MAX_FORWARDS};
use http::{HeaderMap, Method, Request, Response, StatusCode};

use crate::answer::body::ProxyBody;
use crate::answer::{Answer, own_answer};
use crate::rules::CacheStatus;
use crate::worker::Worker;

/// Value of `Allow`: the usual methods that are forwarded. The list is not complete.
const ALLOWED: HeaderValue =
    HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

/// The answer to a request that is not forwarded, else `None`. Decrements `Max-Forwards` of a
/// forwarded OPTIONS request.
pub(super) fn answer<B>(worker: &Worker, request: &mut Request<B>) -> Option<Answer> {
    if *request.method() == Method::TRACE {
        let text = "This proxy does not show requests to anybody: TRACE is refused.";
        let status = StatusCode::METHOD_NOT_ALLOWED;
        let (mut response, status) = own_answer(worker, status, CacheStatus::own("trace"), text);
        response.headers_mut().insert(ALLOW, ALLOWED);
        return Some((response, status));
    }
    if *request.method() != Method::OPTIONS {
        return None;
    }
    if let Some(left) = hops(request.headers())?.checked_sub(1) {
        request.headers_mut().insert(MAX_FORWARDS, HeaderValue::from(left));
        return None;
    }
    let mut response = Response::new(ProxyBody::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(ALLOW, ALLOWED);
    Some((response, CacheStatus::own("max-forwards")))
}

/// The number of hops in `Max-Forwards`. `None` if the field is missing or is not a single decimal
/// number; such a field is passed on unchanged.
fn hops(headers: &HeaderMap) -> Option<u64> {
    let mut lines = headers.get_all(MAX_FORWARDS).into_iter();
    let (line, more) = (lines.next()?.to_str().ok()?, lines.next());
    let plain = !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit());
    // A number that overflows is clamped.
    (plain && more.is_none()).then(|| line.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hops_are_one_plain_number() {
        for (lines, expected) in [
            (&["0"][..], Some(0)),
            (&["007"], Some(7)),
            (&["99999999999999999999999"], Some(u64::MAX)),
            (&[], None),
            (&[""], None),
            (&["-1"], None),
            (&["+1"], None),
            (&["1, 2"], None),
            (&["1", "1"], None),
            (&["\u{e9}"], None),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                let value = HeaderValue::from_bytes(line.as_bytes()).unwrap();
                headers.append(MAX_FORWARDS, value);
            }
            assert_eq!(hops(&headers), expected, "{lines:?}");
        }
    }
}
