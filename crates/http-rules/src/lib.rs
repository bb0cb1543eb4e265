//! The rules of HTTP caching as pure functions (RFC 9110, 9111, 5861, 8246, 9211, 9213, 9875).
//!
//! Invariants: nothing here opens a socket, reads a clock, draws a random number or knows a store;
//! times are passed in as seconds since 1970, configuration as [`CachingConfig`]. No bytes from a
//! peer cause a panic: input that cannot be understood leads to storing less and validating more.
//! Every decision comes with its reason. No threads.
//!
//! ```text
//! request ─► key, vary       which stored response could answer
//!         └► reuse           serve, serve and validate behind, or ask: with the reason
//! stored  ─► preconditions   200, 304 or 412
//!         └► ranges          whole, 206 (one or several parts) or 416
//! origin  ─► validation      what a 304 or the answer to a HEAD changes
//!         ├► storing         whether to store, and which fields
//!         ├► freshness       lifetime and age: kept with the response as its `Policy`
//!         └► invalidation    what a changed resource takes with it
//! ```
//!
//! A response's fields are interpreted once, when it is stored: [`reuse::Policy`] holds the few
//! numbers and flags that a hit needs, and deciding about a hit allocates nothing.

pub mod cache_control;
pub mod cache_groups;
pub mod cache_status;
pub mod config;
pub mod dates;
mod directive;
pub mod freshness;
pub mod group;
pub mod invalidation;
pub mod key;
pub mod negotiation;
pub mod parts;
mod personal;
mod precedence;
pub mod preconditions;
pub mod ranges;
pub mod reuse;
pub mod storing;
pub mod surrogate;
mod targeted;
pub mod trailers;
pub mod validation;
pub mod vary;

pub use cache_control::{RequestDirectives, ResponseDirectives};
pub use cache_status::{CacheStatus, ForwardReason};
pub use config::{CachingConfig, SetCookie};
pub use reuse::Policy;
pub use storing::NotStoredReason;

use http::header::HeaderName;
use http::{HeaderMap, StatusCode};

/// Whether a response is an error of its server: by a 5xx, or by a number over 599, which is no
/// status and counts as one (RFC 9110 §15).
pub fn is_server_error(status: StatusCode) -> bool {
    status.as_u16() >= 500
}

/// Whether a response says nothing of its resource, only that the request failed this time: an
/// error of the server, or that the request took too long (408), came too early (425) or was one of
/// too many (429).
pub fn is_passing_failure(status: StatusCode) -> bool {
    is_server_error(status) || matches!(status.as_u16(), 408 | 425 | 429)
}

/// The members of a comma-separated list header over all its lines, trimmed, without empty ones.
/// For lists of tokens only: a comma in a quoted string would split it.
pub fn list_members<'a>(
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

/// All lines of a field as one, joined as RFC 9110 §5.3 says.
pub(crate) fn joined(headers: &HeaderMap, name: &HeaderName) -> Vec<u8> {
    let lines: Vec<&[u8]> = headers.get_all(name).iter().map(|line| line.as_bytes()).collect();
    lines.join(&b", "[..])
}

#[cfg(test)]
pub(crate) fn test_headers(lines: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in lines {
        let name: HeaderName = name.parse().expect("a name");
        map.append(name, http::HeaderValue::from_str(value).expect("a value"));
    }
    map
}
