//! The `Cache-Status` header (RFC 9211), sent with every response of this proxy.
//!
//! Invariants: `hit` and `fwd` are mutually exclusive; the output is a valid structured field
//! whatever bytes a key contains.

use std::fmt::Write as _;

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, StatusCode};

/// The header's name.
pub const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// Largest Integer of a structured field (RFC 9651 §3.3.1).
const INTEGER_MAX: i64 = 999_999_999_999_999;

/// Detail, and word in the access log, of a response given by an operator's rule.
const RESPOND: &str = "respond";

/// Why a request went to the origin (RFC 9211 §2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardReason {
    /// The cache was told not to handle it.
    Bypass,
    /// The method must be forwarded.
    Method,
    /// Nothing stored under this URI.
    UriMiss,
    /// A response is stored, but for other values of the headers in `Vary`.
    VaryMiss,
    /// A fresh response is stored, but the request asked for the origin.
    Request,
    /// The stored response is stale.
    Stale,
    /// Only a part is stored, and not the requested one.
    Partial,
}

impl ForwardReason {
    fn name(self) -> &'static str {
        match self {
            ForwardReason::Bypass => "bypass",
            ForwardReason::Method => "method",
            ForwardReason::UriMiss => "uri-miss",
            ForwardReason::VaryMiss => "vary-miss",
            ForwardReason::Request => "request",
            ForwardReason::Stale => "stale",
            ForwardReason::Partial => "partial",
        }
    }
}

/// One member of the list: the actions of this cache.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheStatus {
    /// Served without asking the origin.
    pub hit: bool,
    /// Why it was forwarded.
    pub forward: Option<ForwardReason>,
    /// The origin's status, where it differs from the client's.
    pub forward_status: Option<StatusCode>,
    /// The origin validated the stored response, which is served.
    pub validated: bool,
    /// The response is being stored.
    pub stored: bool,
    /// Waited for another request to the same resource.
    pub collapsed: bool,
    /// Seconds of freshness left; negative when stale.
    pub ttl_s: Option<i64>,
    /// A token that explains more.
    pub detail: Option<&'static str>,
    /// The resource's key, if configured to be shown.
    pub key: Option<String>,
}

impl CacheStatus {
    /// Served from the cache.
    pub fn hit(ttl_s: i64) -> CacheStatus {
        CacheStatus { hit: true, ttl_s: Some(ttl_s), ..CacheStatus::default() }
    }

    /// Forwarded to the origin.
    pub fn forwarded(reason: ForwardReason) -> CacheStatus {
        CacheStatus { forward: Some(reason), ..CacheStatus::default() }
    }

    /// Answered by the proxy itself.
    pub fn own(detail: &'static str) -> CacheStatus {
        CacheStatus { detail: Some(detail), ..CacheStatus::default() }
    }

    /// Answered by a rule of the operator's.
    pub fn responded() -> CacheStatus {
        CacheStatus::own(RESPOND)
    }

    /// One word for the access log.
    pub fn word(&self) -> &'static str {
        match self.forward {
            _ if self.hit => "hit",
            Some(_) if self.collapsed => "collapsed",
            Some(reason) if self.validated => match reason {
                ForwardReason::Request => "request-revalidated",
                _ => "revalidated",
            },
            Some(reason) => reason.name(),
            None if self.detail == Some(RESPOND) => RESPOND,
            None => "none",
        }
    }

    /// Renders the member; `cache` is the name of this cache (a token).
    pub fn render(&self, cache: &str) -> String {
        let mut text = String::with_capacity(64);
        text.push_str(cache);
        if self.hit {
            text.push_str("; hit");
        } else if let Some(reason) = self.forward {
            text.push_str("; fwd=");
            text.push_str(reason.name());
        }
        if let Some(status) = self.forward_status {
            text.push_str("; fwd-status=");
            text.push_str(status.as_str());
        }
        if self.stored {
            text.push_str("; stored");
        }
        if self.collapsed {
            text.push_str("; collapsed");
        }
        if let Some(ttl_s) = self.ttl_s {
            let ttl_s = ttl_s.clamp(-INTEGER_MAX, INTEGER_MAX);
            // Writing to a String cannot fail.
            let _ = write!(text, "; ttl={ttl_s}");
        }
        if let Some(key) = &self.key {
            text.push_str("; key=");
            push_string(&mut text, key);
        }
        if let Some(detail) = self.detail {
            text.push_str("; detail=");
            text.push_str(detail);
        }
        text
    }

    /// Appends the member to the headers of an answer, after those of caches nearer the origin.
    pub fn append_to(&self, headers: &mut HeaderMap, cache: &str) {
        if let Ok(value) = HeaderValue::try_from(self.render(cache)) {
            headers.append(CACHE_STATUS, value);
        }
    }
}

/// Writes a structured String (RFC 9651 §4.1.6); bytes it cannot hold become question marks.
fn push_string(text: &mut String, value: &str) {
    text.push('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            ' '..='~' => text.push(c),
            _ => text.push('?'),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rendering() {
        assert_eq!(CacheStatus::hit(-3).render("damelo"), "damelo; hit; ttl=-3");
        let mut status = CacheStatus::forwarded(ForwardReason::Stale);
        status.forward_status = Some(StatusCode::NOT_MODIFIED);
        assert_eq!(status.word(), "stale", "a 304 that goes on to the client");
        status.validated = true;
        status.stored = true;
        status.ttl_s = Some(9);
        assert_eq!(status.render("c"), "c; fwd=stale; fwd-status=304; stored; ttl=9");
        assert_eq!(status.word(), "revalidated");
        assert_eq!(CacheStatus::own("only-if-cached").render("c"), "c; detail=only-if-cached");
    }

    /// RFC 9211 §2.1 to §2.8.
    #[test]
    fn every_parameter_has_its_place() {
        let all = CacheStatus {
            hit: false,
            forward: Some(ForwardReason::Request),
            forward_status: Some(StatusCode::OK),
            validated: true,
            stored: true,
            collapsed: true,
            ttl_s: Some(7),
            detail: Some("d"),
            key: Some("k".to_owned()),
        };
        let expected =
            "c; fwd=request; fwd-status=200; stored; collapsed; ttl=7; key=\"k\"; detail=d";
        assert_eq!(all.render("c"), expected);
        let mut headers = HeaderMap::new();
        headers.insert(CACHE_STATUS, HeaderValue::from_static("inner; hit"));
        CacheStatus::hit(1).append_to(&mut headers, "outer");
        let lines: Vec<_> = headers.get_all(CACHE_STATUS).iter().collect();
        assert_eq!(lines, ["inner; hit", "outer; hit; ttl=1"], "nearest the origin first");
    }

    #[test]
    fn words_of_the_access_log() {
        use ForwardReason::{Bypass, Method, Partial, Request, Stale, UriMiss, VaryMiss};
        let names = ["bypass", "method", "uri-miss", "vary-miss", "request", "stale", "partial"];
        let reasons = [Bypass, Method, UriMiss, VaryMiss, Request, Stale, Partial];
        for (reason, name) in reasons.into_iter().zip(names) {
            let plain = CacheStatus::forwarded(reason);
            assert_eq!(plain.word(), name);
            assert_eq!(plain.render("c"), format!("c; fwd={name}"));
            let validated = CacheStatus { validated: true, ..plain.clone() };
            let expected = if reason == Request { "request-revalidated" } else { "revalidated" };
            assert_eq!(validated.word(), expected);
            let collapsed = CacheStatus { collapsed: true, ..validated.clone() };
            assert_eq!(collapsed.word(), "collapsed");
            // A hit and a reason to ask exclude each other.
            let hit = CacheStatus { hit: true, ..collapsed };
            assert_eq!((hit.word(), &*hit.render("c")), ("hit", "c; hit; collapsed"));
        }
        assert_eq!(CacheStatus::responded().word(), "respond");
        assert_eq!(CacheStatus::own("loop").word(), "none");
    }

    /// RFC 9211 §2: one member of a structured List, its parameters of the right types.
    #[test]
    fn what_is_written_is_a_structured_field() {
        let status = CacheStatus {
            key: Some("http://h/a\"b\\c\u{e9} \n~\u{7f}".to_owned()),
            collapsed: true,
            detail: Some("x-y"),
            ..CacheStatus::forwarded(ForwardReason::VaryMiss)
        };
        let text = status.render("damelo");
        assert!(text.contains(r#"; key="http://h/a\"b\\c? ?~?"; detail=x-y"#), "{text}");
        assert!(sfv::Parser::new(&text).parse::<sfv::List>().is_ok(), "{text}");
        for ttl_s in [i64::MIN, -INTEGER_MAX, 0, INTEGER_MAX, i64::MAX] {
            let text = CacheStatus::hit(ttl_s).render("damelo");
            assert!(sfv::Parser::new(&text).parse::<sfv::List>().is_ok(), "{text}");
        }
    }
}
