//! Connection-based logins (NTLM, Negotiate, Kerberos): which requests are pinned to an origin
//! connection of their own, and how clients learn that the proxy supports these logins.
//!
//! Invariants: a pinned request is neither answered from the cache nor stored; an origin connection
//! that carries a login serves only the client connection on which the login arrived. Threads: the
//! worker's; the only state read is the fetcher's table of held connections.

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

use crate::request::Ask;
use crate::upstream::{are_shown, are_wanted};
use crate::worker::Worker;

const PROXY_SUPPORT: HeaderName = HeaderName::from_static("proxy-support");

/// Pins a request to an origin connection of its client's own if it carries connection-based
/// credentials, or if its client already holds such a connection to this origin.
pub(super) fn settle(worker: &Worker, ask: &mut Ask) {
    let route = ask.peer().route.as_deref();
    let held = |pin| worker.fetcher.is_held(pin, ask.site, route);
    if are_shown(&ask.headers) || ask.peer().pin.as_deref().is_some_and(held) {
        ask.set_pinned();
    }
}

/// Tells a client that connection-based login works through this proxy: without this field some
/// clients do not try it through a proxy (RFC 4559 §6).
pub(super) fn announce(ask: &Ask, answer: &mut HeaderMap) {
    if are_wanted(answer) && ask.pin().is_some() {
        let value = HeaderValue::from_static("Session-Based-Authentication");
        answer.insert(PROXY_SUPPORT, value);
    }
}
