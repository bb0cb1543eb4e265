//! The rules of HTTP caching (RFC 9110, 9111, 9211, 9875) as pure functions.
//!
//! Invariants: nothing here opens a socket, reads a clock, draws a random number or touches the
//! store; times come in as seconds since 1970. Nothing panics on any bytes a peer may send: what
//! cannot be understood falls to the side that stores less and validates more. No threads.

pub(crate) mod cache_control;
pub(crate) mod cache_status;
pub(crate) mod dates;
pub(crate) mod freshness;
pub(crate) mod group;
pub(crate) mod request;
pub(crate) mod storing;
pub(crate) mod validation;
pub(crate) mod vary;

use http::HeaderMap;
use http::header::HeaderName;

/// The members of a comma-separated list header over all its lines, trimmed, empty ones left out.
pub(crate) fn list_members<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a [u8]> {
    headers
        .get_all(name)
        .into_iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|member| !member.is_empty())
}
