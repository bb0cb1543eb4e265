//! `Cache-Control` of requests and responses (RFC 9111 §5.2), and `Pragma` (§5.4).
//!
//! Invariants: directive names are case-insensitive; arguments may be tokens or quoted strings; the
//! order of lines does not matter. Doubtful input is read restrictively: a repeated lifetime counts
//! with its smallest value; an unreadable lifetime is zero; a number too large to hold is
//! [`DELTA_SECONDS_MAX`]; a line with an unclosed quote is `no-store`; and in a member with a
//! missing or wrong separator every restricting word counts and no permitting one.

use http::HeaderMap;
use http::header::{CACHE_CONTROL, HeaderName, PRAGMA};

pub use crate::directive::DELTA_SECONDS_MAX;
use crate::directive::{Argument, each_directive, field_names};

/// Argument of a request's `max-stale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxStale {
    /// Without argument: any staleness is acceptable.
    Any,
    /// At most this many seconds.
    Seconds(u64),
}

/// A request's cache directives. Reading them allocates nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    /// Store nothing of this exchange.
    pub no_store: bool,
    /// Do not serve without validation.
    pub no_cache: bool,
    /// Do not ask the origin.
    pub only_if_cached: bool,
    /// Largest acceptable age, in seconds.
    pub max_age: Option<u64>,
    /// How long the request waited for a response, which is no older to it for that.
    pub waited_ms: u64,
    /// Smallest remaining freshness, in seconds.
    pub min_fresh: Option<u64>,
    /// Staleness that may be served.
    pub max_stale: Option<MaxStale>,
    /// Staleness that may be served if the origin fails, in seconds (RFC 5861 §4).
    pub stale_if_error_s: Option<u64>,
}

impl RequestDirectives {
    /// Reads a request; `Pragma: no-cache` counts where `Cache-Control` is missing.
    pub fn of(headers: &HeaderMap) -> RequestDirectives {
        let mut parsed = RequestDirectives::default();
        if !headers.contains_key(CACHE_CONTROL) {
            let pragma = |v: &[u8]| v.trim_ascii().eq_ignore_ascii_case(b"no-cache");
            let members = crate::list_members(headers, &PRAGMA);
            parsed.no_cache = { members }.any(pragma);
            return parsed;
        }
        for line in headers.get_all(CACHE_CONTROL) {
            each_directive(line.as_bytes(), |name, argument| parsed.apply(name, argument));
        }
        parsed
    }

    /// As of a request that waited so long for a response, which is no older to it for that.
    #[must_use]
    pub fn having_waited_ms(self, waited_ms: u64) -> RequestDirectives {
        RequestDirectives { waited_ms, ..self }
    }

    fn apply(&mut self, name: &[u8], argument: Argument<'_>) {
        if argument == Argument::Unclosed || is(name, "no-store") {
            self.no_store = true;
            self.no_cache |= argument == Argument::Unclosed;
        } else if is(name, "no-cache") {
            self.no_cache = true;
        } else if is(name, "only-if-cached") {
            self.only_if_cached = true;
        } else if is(name, "max-age") {
            smallest(&mut self.max_age, argument);
        } else if is(name, "min-fresh") {
            let seconds = argument.seconds().unwrap_or(DELTA_SECONDS_MAX);
            self.min_fresh = Some(self.min_fresh.map_or(seconds, |was| was.max(seconds)));
        } else if is(name, "max-stale") {
            self.max_stale(argument);
        } else if is(name, "stale-if-error") {
            smallest(&mut self.stale_if_error_s, argument);
        }
    }

    fn max_stale(&mut self, argument: Argument<'_>) {
        let new = match argument {
            Argument::None => MaxStale::Any,
            other => MaxStale::Seconds(other.seconds().unwrap_or(0)),
        };
        self.max_stale = Some(match (self.max_stale, new) {
            (Some(MaxStale::Seconds(a)), MaxStale::Seconds(b)) => MaxStale::Seconds(a.min(b)),
            (Some(MaxStale::Seconds(a)), MaxStale::Any) => MaxStale::Seconds(a),
            (Some(MaxStale::Any) | None, new) => new,
        });
    }
}

/// A response's cache directives. Unknown directives are ignored (RFC 9111 §5.2.3).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponseDirectives {
    /// Do not store.
    pub no_store: bool,
    /// Unqualified `no-cache`: validate before each use.
    pub no_cache: bool,
    /// Field names of `no-cache="..."`.
    pub no_cache_fields: Vec<HeaderName>,
    /// Unqualified `private`: not for a shared cache.
    pub private: bool,
    /// Field names of `private="..."`.
    pub private_fields: Vec<HeaderName>,
    /// May be stored even if another rule would forbid it.
    pub public: bool,
    /// One of `public`, `must-revalidate` and `s-maxage` is there in its defined form, so that the
    /// answer to an authorised request may be shared (§3.5). In another form the latter two only
    /// restrict.
    pub shareable: bool,
    /// Never serve stale.
    pub must_revalidate: bool,
    /// Never serve stale from a shared cache.
    pub proxy_revalidate: bool,
    /// Store only if the status code is understood.
    pub must_understand: bool,
    /// Does not change while fresh (RFC 8246).
    pub immutable: bool,
    /// Lifetime in seconds.
    pub max_age: Option<u64>,
    /// Lifetime in shared caches, in seconds.
    pub s_maxage: Option<u64>,
    /// Staleness that may be served while validating, in seconds (RFC 5861 §3).
    pub stale_while_revalidate_s: Option<u64>,
    /// Staleness that may be served if the origin fails, in seconds (RFC 5861 §4).
    pub stale_if_error_s: Option<u64>,
    /// Read from a field targeted at caches like this one, which replaces `Cache-Control` and
    /// `Expires` (RFC 9213 §2.2).
    pub targeted: bool,
}

impl ResponseDirectives {
    /// Reads all `Cache-Control` lines.
    pub(crate) fn of_cache_control(headers: &HeaderMap) -> ResponseDirectives {
        let mut parsed = ResponseDirectives::default();
        for line in headers.get_all(CACHE_CONTROL) {
            each_directive(line.as_bytes(), |name, argument| parsed.apply(name, argument));
        }
        parsed
    }

    pub(crate) fn apply(&mut self, name: &[u8], argument: Argument<'_>) {
        // A permitting directive counts only in its defined form, without argument.
        let plain = argument == Argument::None;
        if argument == Argument::Unclosed || is(name, "no-store") {
            self.no_store = true;
        } else if is(name, "no-cache") {
            self.no_cache |= qualify(argument, &mut self.no_cache_fields);
        } else if is(name, "private") {
            self.private |= qualify(argument, &mut self.private_fields);
        } else if is(name, "must-revalidate") {
            self.must_revalidate = true;
            self.shareable |= plain;
        } else if is(name, "proxy-revalidate") {
            self.proxy_revalidate = true;
        } else if is(name, "public") {
            self.public |= plain;
            self.shareable |= plain;
        } else if is(name, "must-understand") {
            self.must_understand |= plain;
        } else if is(name, "immutable") {
            self.immutable |= plain;
        } else if is(name, "max-age") {
            smallest(&mut self.max_age, argument);
        } else if is(name, "s-maxage") {
            smallest(&mut self.s_maxage, argument);
            self.shareable |= argument.seconds().is_some();
        } else if is(name, "stale-while-revalidate") {
            smallest(&mut self.stale_while_revalidate_s, argument);
        } else if is(name, "stale-if-error") {
            smallest(&mut self.stale_if_error_s, argument);
        }
    }
}

fn is(name: &[u8], directive: &str) -> bool {
    name.eq_ignore_ascii_case(directive.as_bytes())
}

/// An unreadable lifetime counts as zero: the response is stale (§4.2.1).
fn smallest(slot: &mut Option<u64>, argument: Argument<'_>) {
    let seconds = argument.seconds().unwrap_or(0);
    *slot = Some(slot.map_or(seconds, |was| was.min(seconds)));
}

/// Adds the field names of a qualified directive; true if it turns out to be unqualified.
fn qualify(argument: Argument<'_>, fields: &mut Vec<HeaderName>) -> bool {
    let text = match argument {
        Argument::Token(text) | Argument::Quoted(text) => text,
        Argument::None | Argument::Misplaced | Argument::Unclosed => return true,
    };
    field_names(text, fields)
}

#[cfg(test)]
#[path = "cache_control_tests.rs"]
mod tests;
