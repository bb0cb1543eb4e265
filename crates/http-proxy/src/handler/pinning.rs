//! Logins that count for a connection (NTLM, Negotiate, Kerberos): which requests have a connection
//! to the origin of their own, and how clients learn that such logins work.
//!
//! Invariants: what goes to the origin on a connection that somebody logged in on is neither answered
//! from the cache nor stored; it comes from the client's connection that the login came on. Pure, but
//! for the look at the connection that is held.

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

use crate::request::Ask;
use crate::upstream::{are_shown, are_wanted};
use crate::worker::Worker;

const PROXY_SUPPORT: HeaderName = HeaderName::from_static("proxy-support");

/// Says of a request that its connection to the origin is its client's alone, if it shows credentials
/// for a connection, or if its client has such a connection to there.
pub(super) fn settle(worker: &Worker, ask: &mut Ask) {
    let route = ask.peer().route.as_deref();
    let held = |pin| worker.fetcher.is_held(pin, ask.site, route);
    if are_shown(&ask.headers) || ask.peer().pin.as_deref().is_some_and(held) {
        ask.set_pinned();
    }
}

/// Tells a client that it may log in so: without that some do not where a proxy is between (RFC 4559
/// §6).
pub(super) fn announce(ask: &Ask, answer: &mut HeaderMap) {
    if are_wanted(answer) && ask.pin().is_some() {
        let value = HeaderValue::from_static("Session-Based-Authentication");
        answer.insert(PROXY_SUPPORT, value);
    }
}
