//! The `Cache-Status` header (RFC 9211), sent on every answer of this proxy.
//!
//! Invariants: `hit` and `fwd` exclude each other; what is written is a valid structured field.

use std::fmt::Write as _;

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, StatusCode};

/// The header's name.
pub(crate) const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// Why a request went to the origin (RFC 9211 §2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forward {
    /// The cache was told not to handle it.
    Bypass,
    /// The method must be forwarded.
    Method,
    /// Nothing stored under this URI.
    UriMiss,
    /// Something is stored, but for other values of the headers in `Vary`.
    VaryMiss,
    /// A fresh response is stored, but the request asked for the origin.
    Request,
    /// What is stored is stale.
    Stale,
}

impl Forward {
    fn name(self) -> &'static str {
        match self {
            Forward::Bypass => "bypass",
            Forward::Method => "method",
            Forward::UriMiss => "uri-miss",
            Forward::VaryMiss => "vary-miss",
            Forward::Request => "request",
            Forward::Stale => "stale",
        }
    }
}

/// One member of the list: what this cache did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CacheStatus {
    /// Served without asking the origin.
    pub(crate) hit: bool,
    /// Why it was forwarded.
    pub(crate) forward: Option<Forward>,
    /// What the origin answered, where that is not what the client gets.
    pub(crate) forward_status: Option<StatusCode>,
    /// The answer is being stored.
    pub(crate) stored: bool,
    /// Waited for another request to the same resource.
    pub(crate) collapsed: bool,
    /// Seconds of freshness left; negative when stale.
    pub(crate) ttl_s: Option<i64>,
    /// A token that explains more.
    pub(crate) detail: Option<&'static str>,
}

impl CacheStatus {
    /// Served from the cache.
    pub(crate) fn hit(ttl_s: i64) -> CacheStatus {
        CacheStatus { hit: true, ttl_s: Some(ttl_s), ..CacheStatus::default() }
    }

    /// Forwarded to the origin.
    pub(crate) fn forwarded(reason: Forward) -> CacheStatus {
        CacheStatus { forward: Some(reason), ..CacheStatus::default() }
    }

    /// Answered by the proxy itself.
    pub(crate) fn own(detail: &'static str) -> CacheStatus {
        CacheStatus { detail: Some(detail), ..CacheStatus::default() }
    }

    /// One word for the access log.
    pub(crate) fn word(&self) -> &'static str {
        match self.forward {
            _ if self.hit => "hit",
            Some(_) if self.collapsed => "collapsed",
            Some(reason) if self.forward_status == Some(StatusCode::NOT_MODIFIED) => match reason {
                Forward::Request => "request-revalidated",
                _ => "revalidated",
            },
            Some(reason) => reason.name(),
            None => "none",
        }
    }

    /// Writes the member, `cache` being the name of this cache (a token).
    pub(crate) fn render(&self, cache: &str) -> String {
        let mut text = String::with_capacity(64);
        text.push_str(cache);
        if self.hit {
            text.push_str("; hit");
        } else if let Some(reason) = self.forward {
            text.push_str("; fwd=");
            text.push_str(reason.name());
        }
        // Writing to a String cannot fail.
        if let Some(status) = self.forward_status {
            let _ = write!(text, "; fwd-status={}", status.as_u16());
        }
        if self.stored {
            text.push_str("; stored");
        }
        if self.collapsed {
            text.push_str("; collapsed");
        }
        if let Some(ttl_s) = self.ttl_s {
            let _ = write!(text, "; ttl={ttl_s}");
        }
        if let Some(detail) = self.detail {
            text.push_str("; detail=");
            text.push_str(detail);
        }
        text
    }

    /// Appends the member to the headers of an answer, after those of caches nearer the origin.
    pub(crate) fn append_to(&self, headers: &mut HeaderMap, cache: &str) {
        if let Ok(value) = HeaderValue::try_from(self.render(cache)) {
            headers.append(CACHE_STATUS, value);
        }
    }
}

/// Seconds of freshness left as RFC 9211 wants them.
pub(crate) fn ttl(lifetime_s: u64, age_s: u64) -> i64 {
    let signed = |s: u64| i64::try_from(s).unwrap_or(i64::MAX);
    signed(lifetime_s).saturating_sub(signed(age_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rendering() {
        assert_eq!(CacheStatus::hit(-3).render("damelo"), "damelo; hit; ttl=-3");
        let mut status = CacheStatus::forwarded(Forward::Stale);
        status.forward_status = Some(StatusCode::NOT_MODIFIED);
        status.stored = true;
        status.ttl_s = Some(9);
        assert_eq!(status.render("c"), "c; fwd=stale; fwd-status=304; stored; ttl=9");
        assert_eq!(status.word(), "revalidated");
        assert_eq!(CacheStatus::own("only-if-cached").render("c"), "c; detail=only-if-cached");
        assert_eq!(ttl(u64::MAX, 1), i64::MAX - 1);
        assert_eq!(ttl(1, 5), -4);
    }
}
