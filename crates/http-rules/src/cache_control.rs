//! `Cache-Control` of requests and responses (RFC 9111 §5.2), and `Pragma` (§5.4).
//!
//! Invariants: directive names are case-insensitive; arguments may be tokens or quoted strings;
//! the order of lines does not matter. The safe side is taken everywhere: a repeated lifetime
//! counts with its smallest value, an unreadable one is zero, a number too large to hold is
//! [`DELTA_SECONDS_MAX`], a line whose quotes do not close is `no-store`, and where a comma is
//! missing, or something else stands in its place, every word counts if it restricts and none if it
//! permits.

use http::HeaderMap;
use http::header::{CACHE_CONTROL, HeaderName, PRAGMA};

use crate::config::CachingConfig;
use crate::{surrogate, targeted};

/// What a delta-seconds too large to hold counts as (RFC 9111 §1.2.2).
pub const DELTA_SECONDS_MAX: u64 = 1 << 31;

/// Argument of a request's `max-stale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxStale {
    /// Without argument: any staleness will do.
    Any,
    /// At most this many seconds.
    Seconds(u64),
}

/// What a request says of caching. Reading it allocates nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    /// Store nothing of this exchange.
    pub no_store: bool,
    /// Do not serve without validation.
    pub no_cache: bool,
    /// Do not ask the origin.
    pub only_if_cached: bool,
    /// Oldest age wanted, in seconds.
    pub max_age: Option<u64>,
    /// Freshness that must be left, in seconds.
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

/// What a response says of caching. Unknown directives are ignored (RFC 9111 §5.2.3).
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
    /// May be stored though something else would forbid it.
    pub public: bool,
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
    /// From a field for caches like this one, in whose favour `Cache-Control` and `Expires` are
    /// ignored (RFC 9213 §2.2).
    pub targeted: bool,
}

impl ResponseDirectives {
    /// Reads the first targeted field that is usable, else `Surrogate-Control`, else all
    /// `Cache-Control` lines.
    pub fn of(headers: &HeaderMap, caching: &CachingConfig) -> ResponseDirectives {
        let special = targeted::read(headers, &caching.targeted);
        special.or_else(|| surrogate::read(headers, caching)).unwrap_or_else(|| {
            let mut parsed = ResponseDirectives::default();
            for line in headers.get_all(CACHE_CONTROL) {
                each_directive(line.as_bytes(), |name, argument| parsed.apply(name, argument));
            }
            parsed
        })
    }

    pub(crate) fn apply(&mut self, name: &[u8], argument: Argument<'_>) {
        // What permits counts only as it is defined, without argument.
        let plain = argument == Argument::None;
        if argument == Argument::Unclosed || is(name, "no-store") {
            self.no_store = true;
        } else if is(name, "no-cache") {
            self.no_cache |= qualify(argument, &mut self.no_cache_fields);
        } else if is(name, "private") {
            self.private |= qualify(argument, &mut self.private_fields);
        } else if is(name, "must-revalidate") {
            self.must_revalidate = true;
        } else if is(name, "proxy-revalidate") {
            self.proxy_revalidate = true;
        } else if is(name, "public") {
            self.public |= plain;
        } else if is(name, "must-understand") {
            self.must_understand |= plain;
        } else if is(name, "immutable") {
            self.immutable |= plain;
        } else if is(name, "max-age") {
            smallest(&mut self.max_age, argument);
        } else if is(name, "s-maxage") {
            smallest(&mut self.s_maxage, argument);
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

/// A lifetime that cannot be read is none: the response counts as stale (§4.2.1).
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

/// Adds the names in a comma-separated list; true if there is none, or one that is not a name.
pub(crate) fn field_names(text: &[u8], fields: &mut Vec<HeaderName>) -> bool {
    let before = fields.len();
    for name in text.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
        match HeaderName::from_bytes(name) {
            _ if name.is_empty() => {}
            Ok(name) => fields.push(name),
            Err(_) => return true,
        }
    }
    fields.len() == before
}

/// Digits only; anything else is `None`. Too large counts as [`DELTA_SECONDS_MAX`].
pub(crate) fn delta_seconds(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(text.iter().fold(0_u64, add).min(DELTA_SECONDS_MAX))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Argument<'a> {
    None,
    Token(&'a [u8]),
    /// What stands between the quotes, escapes and all: no directive needs them.
    Quoted(&'a [u8]),
    /// Not where the grammar has it: nothing that it says counts.
    Misplaced,
    /// A quoted string without its closing quote.
    Unclosed,
}

impl Argument<'_> {
    fn seconds(self) -> Option<u64> {
        match self {
            Argument::Token(text) | Argument::Quoted(text) => delta_seconds(text),
            Argument::None | Argument::Misplaced | Argument::Unclosed => None,
        }
    }
}

/// Calls `each` with name and argument of every directive of a line. Where a member goes on behind what
/// the grammar has in it, every word of it is called, and none has an argument that counts.
pub(crate) fn each_directive<'a>(line: &'a [u8], mut each: impl FnMut(&'a [u8], Argument<'a>)) {
    let mut rest = line;
    loop {
        let Some(start) = rest.iter().position(|b| !matches!(b, b',' | b' ' | b'\t')) else {
            return;
        };
        let (name, after) = split_token(&rest[start..]);
        let (argument, after) = split_argument(after);
        rest = after.trim_ascii_start();
        if matches!(rest.first(), None | Some(b',')) {
            each(name, argument);
            continue;
        }
        each(name, Argument::Misplaced);
        rest = each_word(rest, &mut each);
    }
}

/// Calls `each` with the words up to the next comma; what is quoted is no word.
fn each_word<'a>(member: &'a [u8], each: &mut impl FnMut(&'a [u8], Argument<'a>)) -> &'a [u8] {
    let mut rest = member;
    while let Some(byte) = rest.first() {
        match byte {
            b',' => break,
            b'"' => match closing_quote(&rest[1..]) {
                Some(end) => rest = &rest[end + 2..],
                None => {
                    each(b"", Argument::Unclosed);
                    return &[];
                }
            },
            _ => {
                let (word, after) = split_token(rest);
                each(word, Argument::Misplaced);
                // Past at least one byte, whatever it is.
                rest = if word.is_empty() { &rest[1..] } else { after };
            }
        }
    }
    rest
}

/// Splits the token off that a text begins with; it may be empty (RFC 9110 §5.6.2).
fn split_token(text: &[u8]) -> (&[u8], &[u8]) {
    let is_token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
    text.split_at(text.iter().position(|b| !is_token(b)).unwrap_or(text.len()))
}

/// Splits `=argument` off; what is returned begins after it, most likely with a comma.
fn split_argument(text: &[u8]) -> (Argument<'_>, &[u8]) {
    let Some((b'=', value)) = text.split_first() else { return (Argument::None, text) };
    if value.first() != Some(&b'"') {
        let (token, after) = split_token(value);
        return (Argument::Token(token), after);
    }
    match closing_quote(&value[1..]) {
        Some(end) => (Argument::Quoted(&value[1..=end]), &value[end + 2..]),
        None => (Argument::Unclosed, &[]),
    }
}

/// Index of the quote that ends a quoted string.
pub(crate) fn closing_quote(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    text.iter().position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    })
}

#[cfg(test)]
#[path = "cache_control_tests.rs"]
mod tests;
