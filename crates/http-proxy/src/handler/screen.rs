//! Validation of a request before its meaning is considered.
//!
//! hyper has already refused malformed HTTP (400: conflicting or invalid lengths, folded lines,
//! bare CR, NUL, transfer codings of which the last is not chunked; 431: too many or too long
//! fields). This file checks the configured limits and refuses messages that two recipients could
//! interpret differently. Invariant: a request that passes has at most one `Host`, of harmless
//! characters, that agrees with the target; at most one `Content-Length`; no transfer coding but
//! one `chunked`; and no hop-by-hop field that `Connection` names, except `Upgrade` and `TE`. What
//! a proxy before this one says of its client is there, or the request does not pass. Threads: any;
//! pure functions.

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderName,
    HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, Method, Request, StatusCode, Version};

use hyper::body::Body;

use crate::config::tables::Limits;
use crate::error::{Refusal, last_refusal, refusal};
use crate::request::{announces_body, forwarded};
use crate::rules::key::{is_plain_authority, normal_host};
use crate::rules::list_members;

/// Checks a request and removes the fields that `Connection` names.
pub(crate) fn screen<B: Body>(request: &mut Request<B>, limits: &Limits) -> Result<(), Refusal> {
    let uri = request.uri();
    let target_bytes = uri.path_and_query().map_or(0, |path| path.as_str().len())
        + uri.authority().map_or(0, |authority| authority.as_str().len());
    if target_bytes > limits.uri_bytes_max {
        let text = "The request target is longer than this proxy takes.";
        return Err(refusal(StatusCode::URI_TOO_LONG, "uri-too-long", text));
    }
    if request.headers().len() > limits.header_lines_max {
        let text = "The request has more header lines than this proxy takes.";
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Err(refusal(status, "too-many-fields", text));
    }
    if request.version() == Version::HTTP_2 {
        values(request.headers())?;
        one_length(request.headers_mut());
    }
    host(request)?;
    if *request.method() == Method::CONNECT
        && request.version() < Version::HTTP_2
        && announces_body(request.headers())
    {
        return Err(CONNECT_BODY);
    }
    if !request.body().is_end_stream() {
        coding(request.headers())?;
    }
    let headers = request.headers_mut();
    if headers.contains_key(CONNECTION) {
        connection(headers)?;
    }
    if headers.get_all(EXPECT).iter().any(|e| !e.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
        let text = "The only expectation that can be met is 100-continue.";
        return Err(refusal(StatusCode::EXPECTATION_FAILED, "expectation", text));
    }
    Ok(())
}

const BAD_HOST: Refusal = refusal(
    StatusCode::BAD_REQUEST,
    "bad-host",
    "The request needs exactly one Host, without odd characters, that agrees with its target.",
);

const NO_HOST: Refusal = refusal(
    StatusCode::BAD_REQUEST,
    "bad-host",
    "A request of HTTP/1.1 needs a Host, also where its target names one.",
);

const USER_IN_TARGET: Refusal = refusal(
    StatusCode::BAD_REQUEST,
    "bad-target",
    "User names in URLs are not taken: send them as Authorization.",
);

const BAD_SCHEME: Refusal = refusal(
    StatusCode::BAD_REQUEST,
    "bad-target",
    "What this proxy serves is named by http or https.",
);

const CONNECT_BODY: Refusal = last_refusal(
    StatusCode::BAD_REQUEST,
    "connect-body",
    "A CONNECT request has no body: what follows it goes through the tunnel.",
);

/// Whether a body says that it is too long. What does not say its length is counted as it comes.
/// Not part of [`screen`], so that rules see both refusals.
pub(crate) fn upload_is_too_large(body: &impl Body, bytes_max: Option<u64>) -> bool {
    bytes_max.is_some_and(|max| body.size_hint().lower() > max)
}

pub(crate) const UPLOAD_TOO_LARGE: Refusal = refusal(
    StatusCode::PAYLOAD_TOO_LARGE,
    "upload-too-large",
    "The request's body is longer than this proxy takes.",
);

const BAD_VALUE: Refusal = refusal(
    StatusCode::BAD_REQUEST,
    "bad-field",
    "A field's value must not begin or end with a space or a tab.",
);

/// Refuses what is malformed in HTTP/2 (RFC 9113 §8.2.1) and what HTTP/1.1 strips: rules would see
/// another value than the origin does.
fn values(headers: &HeaderMap) -> Result<(), Refusal> {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let padded = |value: &HeaderValue| {
        is_space(value.as_bytes().first()) || is_space(value.as_bytes().last())
    };
    if headers.values().any(padded) { Err(BAD_VALUE) } else { Ok(()) }
}

/// Joins several `Content-Length` lines into one, as hyper does for HTTP/1.1. The HTTP/2 library
/// has refused lengths that differ but lets equal ones through, and an origin of HTTP/1.1 may take
/// them for an attempt at smuggling (RFC 9112 §6.3) or send them on to one that does.
fn one_length(headers: &mut HeaderMap) {
    let mut lengths = headers.get_all(CONTENT_LENGTH).into_iter();
    if let (Some(first), Some(_)) = (lengths.next().cloned(), lengths.next()) {
        headers.insert(CONTENT_LENGTH, first);
    }
}

fn host<B>(request: &mut Request<B>) -> Result<(), Refusal> {
    let mut hosts = request.headers().get_all(HOST).into_iter();
    let (host, more) = (hosts.next(), hosts.next());
    if more.is_some() || host.is_some_and(|host| !is_plain_authority(host.as_bytes())) {
        return Err(BAD_HOST);
    }
    let Some(authority) = request.uri().authority() else {
        return Ok(());
    };
    match request.uri().scheme_str() {
        Some("http" | "https") => {}
        None if *request.method() == Method::CONNECT => {}
        _ => return Err(BAD_SCHEME),
    }
    if host.is_none() && request.version() == Version::HTTP_11 {
        return Err(NO_HOST);
    }
    if authority.as_str().contains('@') {
        return Err(USER_IN_TARGET);
    }
    if !is_plain_authority(authority.as_str().as_bytes()) {
        return Err(BAD_HOST);
    }
    let scheme = request.uri().scheme_str().unwrap_or_default();
    let agrees = host.is_none_or(|host| {
        host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes())
            || host.to_str().is_ok_and(|host| {
                normal_host(host, scheme) == normal_host(authority.as_str(), scheme)
            })
    });
    // HTTP/2: malformed (RFC 9113 §8.3.1). HTTP/1.1: the target wins (RFC 9112 §3.2.2).
    if !agrees && request.version() == Version::HTTP_2 {
        return Err(BAD_HOST);
    }
    if request.method() == Method::CONNECT {
        return Ok(());
    }
    // Never fails: every URI authority is a valid field value.
    let value = HeaderValue::try_from(authority.as_str()).map_err(|_| BAD_HOST)?;
    request.headers_mut().insert(HOST, value);
    Ok(())
}

/// Joins the `Cookie` lines that HTTP/2 lets a client split (RFC 9113 §8.2.3) into one. Variants,
/// keys, rules and HTTP/1.1 origins expect a single line.
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    let repeats_a_name = headers.len() > headers.keys_len();
    if !repeats_a_name || headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let crumbs: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    // Never fails: valid values joined by a valid separator are a valid value.
    if let Ok(joined) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

const BAD_CODING: Refusal =
    last_refusal(StatusCode::BAD_REQUEST, "bad-coding", "A Transfer-Encoding says chunked, once.");
const UNKNOWN_CODING: Refusal = last_refusal(
    StatusCode::NOT_IMPLEMENTED,
    "unknown-coding",
    "This proxy knows no transfer coding but chunked.",
);

/// Refuses transfer codings other than one `chunked`. hyper decodes chunks if `chunked` comes last,
/// but no coding before it (RFC 9112 §6.1): the still encoded bytes would be forwarded and stored
/// as if they were the content.
fn coding(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut lines = headers.get_all(TRANSFER_ENCODING).into_iter();
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    let only = lines.next().is_none_or(|line| is_chunked(line.as_bytes()));
    if only && lines.next().is_none() {
        return Ok(());
    }
    let known = list_members(headers, &TRANSFER_ENCODING).all(is_chunked);
    Err(if known { BAD_CODING } else { UNKNOWN_CODING })
}

/// End-to-end fields, which `Connection` must not name (RFC 9110 §7.6.1). Dropping one would change
/// the meaning of the message for later recipients.
const FOR_ALL: [HeaderName; 5] =
    [HOST, CONTENT_LENGTH, TRANSFER_ENCODING, AUTHORIZATION, CACHE_CONTROL];

/// Drops the fields that `Connection` names before any decision uses them. A cache that keyed by a
/// field that the origin never saw would store one client's answer as another's.
fn connection(headers: &mut HeaderMap) -> Result<(), Refusal> {
    let plain = |value: &HeaderValue| {
        [&b"keep-alive"[..], b"close", b"upgrade"]
            .iter()
            .any(|option| value.as_bytes().eq_ignore_ascii_case(option))
    };
    if headers.get_all(CONNECTION).iter().all(plain) {
        return Ok(());
    }
    let named: Vec<HeaderName> = list_members(headers, &CONNECTION)
        .filter_map(|name| HeaderName::from_bytes(name).ok())
        .collect();
    for name in named {
        // A client can make a proxy pass this on. Left in place, the field would go to the origin
        // although its sender says that it must not; taken off, rules would see another client than
        // the log does, or none. Nobody who means well names one.
        if FOR_ALL.contains(&name) || forwarded::is_told(&name) {
            let text = "Connection names a field that is not the connection's.";
            return Err(refusal(StatusCode::BAD_REQUEST, "bad-connection", text));
        }
        // Later steps still read these three.
        if ![UPGRADE, TE, CONNECTION].contains(&name) {
            headers.remove(name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(version: Version, target: &str, headers: &[(&str, &str)]) -> Request<String> {
        let mut request = Request::builder().uri(target).version(version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body("content".to_owned()).unwrap()
    }

    #[test]
    fn what_is_refused_and_how() {
        let long = format!("/{}", "x".repeat(40_000));
        let many: Vec<_> = (0..101).map(|_| ("x", "y")).collect();
        for (version, target, headers, status) in [
            (Version::HTTP_11, "/", &[("host", "a")][..], 0),
            (Version::HTTP_11, long.as_str(), &[("host", "a")], 414),
            (Version::HTTP_11, "/", &many, 431),
            (Version::HTTP_11, "/", &[("host", "a"), ("host", "a")], 400),
            (Version::HTTP_11, "/", &[("host", "a/b")], 400),
            (Version::HTTP_11, "/", &[("host", "user@a")], 400),
            (Version::HTTP_11, "/", &[("host", "a b")], 400),
            (Version::HTTP_11, "/", &[("host", "a:x")], 400),
            (Version::HTTP_11, "/", &[("host", "staff.test,x")], 400),
            (Version::HTTP_11, "/", &[("host", "a;for=10.0.0.1")], 400),
            (Version::HTTP_11, "http://a,b/", &[("host", "a")], 400),
            (Version::HTTP_2, "http://a;b/", &[], 400),
            (Version::HTTP_11, "/", &[("host", "[::1]")], 0),
            (Version::HTTP_11, "/", &[("host", "[::1]:80")], 0),
            (Version::HTTP_11, "http://a/", &[("host", "b")], 0),
            (Version::HTTP_11, "http://a/", &[], 400),
            (Version::HTTP_10, "http://a/", &[], 0),
            (Version::HTTP_2, "http://a/", &[], 0),
            (Version::HTTP_11, "http://u:p@a/", &[("host", "a")], 400),
            (Version::HTTP_11, "HTTPS://a/", &[("host", "a")], 0),
            (Version::HTTP_11, "ftp://a/", &[("host", "a")], 400),
            (Version::HTTP_11, "a:80", &[("host", "a")], 400),
            (Version::HTTP_2, "http://a/", &[("host", "b")], 400),
            (Version::HTTP_2, "http://a/", &[("host", "A")], 0),
            (Version::HTTP_2, "http://a/", &[("host", "a:80")], 0),
            (Version::HTTP_2, "https://a/", &[("host", "a:80")], 400),
            (Version::HTTP_2, "http://a/", &[("x-role", " admin")], 400),
            (Version::HTTP_2, "http://a/", &[("x-role", "admin\t")], 400),
            (Version::HTTP_2, "http://a/", &[("x-role", "ad min"), ("y", "")], 0),
            (Version::HTTP_11, "/", &[("host", "a:99999")], 400),
            (Version::HTTP_11, "/", &[("host", "a:0")], 400),
            (Version::HTTP_11, "/", &[("host", "a:")], 0),
            (Version::HTTP_11, "/", &[("host", "a"), ("connection", "x, host")], 400),
            (Version::HTTP_11, "/", &[("host", "a"), ("connection", "Content-Length")], 400),
            (Version::HTTP_11, "/", &[("host", "a"), ("connection", "X-Forwarded-For")], 400),
            (Version::HTTP_11, "/", &[("host", "a"), ("connection", "close, forwarded")], 400),
            (Version::HTTP_11, "/", &[("host", "a"), ("connection", "x-real-ip, close")], 400),
            (Version::HTTP_11, "/", &[("host", "a"), ("connection", "X-Forwarded-Proto")], 400),
            (Version::HTTP_11, "/", &[("host", "a"), ("connection", "X-Forwarded-Host")], 400),
            (Version::HTTP_11, "/", &[("host", "a"), ("connection", "X-Request-ID")], 400),
            (Version::HTTP_11, "/", &[("host", "a"), ("connection", "X-Requested-With")], 0),
            (Version::HTTP_11, "/", &[("host", "a"), ("transfer-encoding", "Chunked")], 0),
            (Version::HTTP_11, "/", &[("host", "a"), ("transfer-encoding", "gzip, chunked")], 501),
            (
                Version::HTTP_11,
                "/",
                &[("host", "a"), ("transfer-encoding", "chunked, chunked")],
                400,
            ),
            (Version::HTTP_11, "/", &[("host", "a"), ("expect", "100-Continue")], 0),
            (Version::HTTP_11, "/", &[("host", "a"), ("expect", "a-miracle")], 417),
        ] {
            let mut request = request(version, target, headers);
            let got = screen(&mut request, &Limits::default());
            assert_eq!(
                got.map_err(|r| r.status.as_u16()).err().unwrap_or(0),
                status,
                "{headers:?}"
            );
        }
    }

    #[test]
    fn the_target_goes_before_host_and_named_fields_go() {
        let headers = [("host", "b"), ("connection", "close, X-Mine"), ("x-mine", "1")];
        let mut request = request(Version::HTTP_11, "http://a:81/", &headers);
        screen(&mut request, &Limits::default()).unwrap();
        assert_eq!(request.headers()[HOST], "a:81");
        assert!(!request.headers().contains_key("x-mine"));
    }
}
