//! The operator's choices about the rules: plain data, with defaults as in the RFCs.
//!
//! No threads, no invariants beyond those of the fields.

use http::header::HeaderName;

use crate::key::KeyRules;
use crate::negotiation::Normaliser;

/// What happens to a response with `Set-Cookie` that may otherwise be stored (RFC 9111 §7.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetCookie {
    /// Stored with the cookie, as the RFC allows: an origin that means one user says `private`.
    #[default]
    Store,
    /// Stored without the field; the client that caused the fetch still gets it.
    Strip,
    /// Not stored.
    Refuse,
}

/// Configuration of the rules of caching. Start from [`CachingConfig::default`] and change fields.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CachingConfig {
    /// Fields that take precedence over `Cache-Control`, in this order (RFC 9213). Default
    /// `CDN-Cache-Control`.
    pub targeted: Vec<HeaderName>,
    /// Obey `Surrogate-Control`, after `targeted` and before `Cache-Control`. Correct only for a
    /// cache that acts as the origin's surrogate. Default true.
    pub surrogate: bool,
    /// Obey `no-cache`, `max-age`, `min-fresh`, `max-stale` and `stale-if-error` of requests.
    /// Default true. `no-store` and `only-if-cached` are obeyed always.
    pub obey_request_directives: bool,
    /// Share of the time since `Last-Modified` that counts as fresh, in percent. Default 10.
    pub heuristic_percent: u8,
    /// Longest heuristic lifetime, in seconds. Default 24 hours.
    pub heuristic_lifetime_max_s: u64,
    /// Default [`SetCookie::Store`].
    pub set_cookie: SetCookie,
    /// `stale-while-revalidate` of responses that state none, in seconds. Default 0.
    pub stale_while_revalidate_s: u64,
    /// `stale-if-error` of responses that state none, in seconds. Default 0.
    pub stale_if_error_s: u64,
    /// Staleness served while the origin is unreachable, in seconds; responses that forbid stale
    /// use are never served stale (RFC 9111 §4.2.4). Default 24 hours.
    pub disconnected_stale_max_s: u64,
    /// Let an explicit `stale-while-revalidate` or `stale-if-error` count beside `s-maxage`, which
    /// by RFC 9111 §5.2.2.10 forbids stale answers. Default false.
    pub stale_beside_s_maxage: bool,
    /// Evaluate `If-Match` and `If-Unmodified-Since` against a fresh stored response, and answer
    /// 412 without asking the origin; otherwise such requests go to the origin. Default true.
    pub answer_precondition_failed: bool,
    /// How `Accept-Encoding` is compared. Default [`Normaliser::Equivalent`].
    pub accept_encoding: Normaliser,
    /// How `Accept-Language` is compared. Default [`Normaliser::Equivalent`].
    pub accept_language: Normaliser,
    /// Variants stored per resource; a new one replaces the one that was not used for longest.
    /// Default 32.
    pub variants_max: usize,
    /// Ranges answered in one response; a request for more gets the whole. Default 16.
    pub ranges_max: usize,
    /// Length of the aligned slices in which ranges of large resources are fetched and stored, in
    /// bytes; 0 fetches a range as the client requests it. Default 0.
    pub slice_bytes: u64,
    /// What the key of a resource is made of.
    pub key: KeyRules,
    /// Send the key of the resource in `Cache-Status`. Default false.
    pub show_key: bool,
}

impl Default for CachingConfig {
    fn default() -> CachingConfig {
        CachingConfig {
            targeted: vec![HeaderName::from_static("cdn-cache-control")],
            surrogate: true,
            obey_request_directives: true,
            heuristic_percent: 10,
            heuristic_lifetime_max_s: 24 * 3600,
            set_cookie: SetCookie::Store,
            stale_while_revalidate_s: 0,
            stale_if_error_s: 0,
            disconnected_stale_max_s: 24 * 3600,
            stale_beside_s_maxage: false,
            answer_precondition_failed: true,
            accept_encoding: Normaliser::Equivalent,
            accept_language: Normaliser::Equivalent,
            variants_max: 32,
            ranges_max: 16,
            slice_bytes: 1 << 20,
            key: KeyRules::default(),
            show_key: false,
        }
    }
}
