//! Chooses the field that controls caching of a response: a targeted one (RFC 9213),
//! `Surrogate-Control`, or `Cache-Control`. Pure, no threads.

use http::HeaderMap;

use crate::cache_control::ResponseDirectives;
use crate::config::CachingConfig;
use crate::{surrogate, targeted};

impl ResponseDirectives {
    /// Reads the first targeted field that is usable, else `Surrogate-Control`, else all
    /// `Cache-Control` lines.
    pub fn of(headers: &HeaderMap, caching: &CachingConfig) -> ResponseDirectives {
        targeted::read(headers, &caching.targeted)
            .or_else(|| surrogate::read(headers, caching))
            .unwrap_or_else(|| ResponseDirectives::of_cache_control(headers))
    }
}
