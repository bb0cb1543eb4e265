//! Requests that end at an intermediary: `Max-Forwards` (RFC 9110 §7.6.2) of OPTIONS, and TRACE.
//!
//! TRACE sends back what came in, and so shows to whoever can make a client send it the cookies and
//! credentials that the client adds: like most caches this one refuses it. Threads: the worker's.

use http::header::{ALLOW, HeaderValue, MAX_FORWARDS};
use http::{HeaderMap, Method, Request, Response, StatusCode};

use crate::answer::body::ProxyBody;
use crate::answer::{Answer, own_answer};
use crate::rules::CacheStatus;
use crate::worker::Worker;

/// Methods that go on from here; others may, too.
const ALLOWED: HeaderValue =
    HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

/// The answer to a request that goes no further; one that does has a hop fewer before it.
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

/// How many hops a request may still go; none if it does not say so in one plain number, which is
/// then passed on as it is.
fn hops(headers: &HeaderMap) -> Option<u64> {
    let mut lines = headers.get_all(MAX_FORWARDS).into_iter();
    let (line, more) = (lines.next()?.to_str().ok()?, lines.next());
    let plain = !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit());
    // More than can be counted is as many as can.
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
