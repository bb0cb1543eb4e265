//! Parsing of `Cache-Control` (RFC 9111 §5.2), requests and responses alike.
//!
//! Invariants: directive names are case-insensitive; arguments may be tokens or quoted strings;
//! the order of lines does not matter. The safe side is taken everywhere: a repeated number counts
//! with its smallest value (for `min-fresh` the largest), an unreadable lifetime is zero, a number
//! too large to hold is [`DELTA_SECONDS_MAX`], and a line whose quotes do not close is `no-store`.

use http::HeaderMap;
use http::header::{CACHE_CONTROL, PRAGMA};

/// What a delta-seconds too large to hold counts as (RFC 9111 §1.2.2).
pub(crate) const DELTA_SECONDS_MAX: u64 = 1 << 31;

/// Argument of a request's `max-stale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MaxStale {
    /// Without argument: any staleness will do.
    Any,
    /// At most this many seconds.
    Seconds(u64),
}

/// Every directive this cache acts on. Unknown ones are ignored (RFC 9111 §5.2.3).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CacheControl {
    pub(crate) no_store: bool,
    /// Unqualified `no-cache`.
    pub(crate) no_cache: bool,
    /// Field names of `no-cache="..."`, lower case.
    pub(crate) no_cache_fields: Vec<String>,
    /// Unqualified `private`.
    pub(crate) private: bool,
    /// Field names of `private="..."`, lower case.
    pub(crate) private_fields: Vec<String>,
    pub(crate) public: bool,
    pub(crate) must_revalidate: bool,
    pub(crate) proxy_revalidate: bool,
    pub(crate) must_understand: bool,
    pub(crate) only_if_cached: bool,
    pub(crate) max_age: Option<u64>,
    pub(crate) s_maxage: Option<u64>,
    pub(crate) min_fresh: Option<u64>,
    pub(crate) max_stale: Option<MaxStale>,
}

impl CacheControl {
    /// Reads all `Cache-Control` lines.
    pub(crate) fn of(headers: &HeaderMap) -> CacheControl {
        let mut parsed = CacheControl::default();
        for line in headers.get_all(CACHE_CONTROL) {
            parsed.read_line(line.as_bytes());
        }
        parsed
    }

    /// Reads a request's lines; `Pragma: no-cache` counts where `Cache-Control` is missing (§5.4).
    pub(crate) fn of_request(headers: &HeaderMap) -> CacheControl {
        let mut parsed = CacheControl::of(headers);
        if !headers.contains_key(CACHE_CONTROL) {
            let pragma = |v: &[u8]| v.trim_ascii().eq_ignore_ascii_case(b"no-cache");
            parsed.no_cache = headers.get_all(PRAGMA).into_iter().any(|v| pragma(v.as_bytes()));
        }
        parsed
    }

    fn read_line(&mut self, line: &[u8]) {
        let mut rest = line;
        while let Some((name, argument, after)) = next_directive(rest) {
            match argument {
                Argument::Unclosed => self.no_store = true,
                Argument::None => self.apply(name, None),
                Argument::Some(text) => self.apply(name, Some(text.as_slice())),
            }
            rest = after;
        }
    }

    fn apply(&mut self, name: &[u8], argument: Option<&[u8]>) {
        let Ok(name) = std::str::from_utf8(name) else { return };
        match name.to_ascii_lowercase().as_str() {
            "no-store" => self.no_store = true,
            "no-cache" => {
                self.no_cache |= qualify(argument, &mut self.no_cache_fields);
            }
            "private" => {
                self.private |= qualify(argument, &mut self.private_fields);
            }
            "public" => self.public = true,
            "must-revalidate" => self.must_revalidate = true,
            "proxy-revalidate" => self.proxy_revalidate = true,
            "must-understand" => self.must_understand = true,
            "only-if-cached" => self.only_if_cached = true,
            "max-age" => smallest(&mut self.max_age, argument),
            "s-maxage" => smallest(&mut self.s_maxage, argument),
            "min-fresh" => {
                let seconds = argument.and_then(delta_seconds).unwrap_or(DELTA_SECONDS_MAX);
                self.min_fresh = Some(self.min_fresh.map_or(seconds, |was| was.max(seconds)));
            }
            "max-stale" => self.max_stale(argument),
            _ => {}
        }
    }

    fn max_stale(&mut self, argument: Option<&[u8]>) {
        let new = match argument.map(delta_seconds) {
            None => MaxStale::Any,
            Some(Some(seconds)) => MaxStale::Seconds(seconds),
            Some(None) => MaxStale::Seconds(0),
        };
        self.max_stale = Some(match (self.max_stale, new) {
            (Some(MaxStale::Seconds(a)), MaxStale::Seconds(b)) => MaxStale::Seconds(a.min(b)),
            (Some(MaxStale::Seconds(a)), MaxStale::Any) => MaxStale::Seconds(a),
            (Some(MaxStale::Any) | None, new) => new,
        });
    }
}

/// A lifetime that cannot be read is no lifetime: the response counts as stale (§4.2.1).
fn smallest(slot: &mut Option<u64>, argument: Option<&[u8]>) {
    let seconds = argument.and_then(delta_seconds).unwrap_or(0);
    *slot = Some(slot.map_or(seconds, |was| was.min(seconds)));
}

/// Adds the field names of a qualified directive; true if it turns out to be unqualified.
fn qualify(argument: Option<&[u8]>, fields: &mut Vec<String>) -> bool {
    let before = fields.len();
    for name in argument.unwrap_or_default().split(|byte| *byte == b',') {
        match std::str::from_utf8(name.trim_ascii()) {
            Ok("") => {}
            Ok(name) => fields.push(name.to_ascii_lowercase()),
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

enum Argument {
    None,
    Some(Vec<u8>),
    /// A quoted string without its closing quote.
    Unclosed,
}

/// Splits off the first directive: its name, its argument and what follows the comma.
fn next_directive(line: &[u8]) -> Option<(&[u8], Argument, &[u8])> {
    let start = line.iter().position(|b| !matches!(b, b',' | b' ' | b'\t'))?;
    let line = &line[start..];
    let name_end = line.iter().position(|b| matches!(b, b'=' | b',')).unwrap_or(line.len());
    let name = line[..name_end].trim_ascii();
    if line.get(name_end) != Some(&b'=') {
        return Some((name, Argument::None, &line[name_end..]));
    }
    let value = &line[name_end + 1..];
    if value.first() == Some(&b'"') {
        let (argument, after) = quoted(&value[1..]);
        let comma = after.iter().position(|b| *b == b',').unwrap_or(after.len());
        return Some((name, argument, &after[comma..]));
    }
    let end = value.iter().position(|b| *b == b',').unwrap_or(value.len());
    Some((name, Argument::Some(value[..end].trim_ascii_end().to_vec()), &value[end..]))
}

/// Reads a quoted string after its opening quote; returns it without escapes, and what follows.
fn quoted(text: &[u8]) -> (Argument, &[u8]) {
    let mut value = Vec::new();
    let mut index = 0;
    while let Some(&byte) = text.get(index) {
        match byte {
            b'"' => return (Argument::Some(value), &text[index + 1..]),
            b'\\' => {
                index += 1;
                value.extend(text.get(index));
            }
            _ => value.push(byte),
        }
        index += 1;
    }
    (Argument::Unclosed, &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn parse(lines: &[&str]) -> CacheControl {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(CACHE_CONTROL, HeaderValue::from_str(line).unwrap());
        }
        CacheControl::of(&headers)
    }

    #[test]
    fn lifetimes_take_the_safe_side() {
        for (text, max_age) in [
            ("max-age=60", Some(60)),
            ("MAX-AGE=60", Some(60)),
            ("max-age=\"60\"", Some(60)),
            ("max-age=0060", Some(60)),
            ("max-age=60, max-age=30", Some(30)),
            ("max-age=30, max-age=60", Some(30)),
            ("max-age=", Some(0)),
            ("max-age", Some(0)),
            ("max-age=-1", Some(0)),
            ("max-age=1.5", Some(0)),
            ("max-age=60s", Some(0)),
            ("max-age= 60", Some(0)),
            ("max-age=60 ,public", Some(60)),
            ("max-age=2147483648", Some(DELTA_SECONDS_MAX)),
            ("max-age=99999999999999999999999999", Some(DELTA_SECONDS_MAX)),
            ("xmax-age=60", None),
            ("ext=\"max-age=60\"", None),
            ("ext=\"a\\\", max-age=60\"", None),
            (",, ,max-age=5,,", Some(5)),
        ] {
            assert_eq!(parse(&[text]).max_age, max_age, "{text}");
        }
    }

    #[test]
    fn lines_and_quoted_lists_add_up() {
        let cc = parse(&["public, private=\"Set-Cookie, X-A\"", "no-cache=foo,S-MaxAge=7"]);
        assert!(cc.public && !cc.private && !cc.no_cache && !cc.no_store);
        assert_eq!(cc.private_fields, ["set-cookie", "x-a"]);
        assert_eq!(cc.no_cache_fields, ["foo"]);
        assert_eq!(cc.s_maxage, Some(7));
        assert!(parse(&["private=\"\""]).private, "an empty list is unqualified");
        assert!(parse(&["no-store=1"]).no_store);
        assert!(parse(&["max-age=\"5, public"]).no_store, "unclosed quote");
        assert!(parse(&["a=\"x\"garbage, no-store"]).no_store);
    }

    #[test]
    fn request_directives() {
        assert_eq!(parse(&["max-stale"]).max_stale, Some(MaxStale::Any));
        assert_eq!(parse(&["max-stale=5"]).max_stale, Some(MaxStale::Seconds(5)));
        assert_eq!(parse(&["max-stale=x"]).max_stale, Some(MaxStale::Seconds(0)));
        assert_eq!(parse(&["max-stale, max-stale=9"]).max_stale, Some(MaxStale::Seconds(9)));
        assert_eq!(parse(&["min-fresh=5, min-fresh=9"]).min_fresh, Some(9));
        assert_eq!(parse(&["min-fresh=soon"]).min_fresh, Some(DELTA_SECONDS_MAX));
        assert!(parse(&["only-if-cached"]).only_if_cached);
        let mut headers = HeaderMap::new();
        headers.insert(PRAGMA, HeaderValue::from_static("No-Cache"));
        assert!(CacheControl::of_request(&headers).no_cache);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=1"));
        assert!(!CacheControl::of_request(&headers).no_cache, "Cache-Control goes first");
    }

    #[test]
    fn any_bytes_are_survived() {
        let mut random = fastrand::Rng::with_seed(7);
        let alphabet = b"max-age=0123\",\\ \t=private\x80\xff";
        for _ in 0..20_000 {
            let line: Vec<u8> =
                (0..random.usize(..40)).map(|_| alphabet[random.usize(..alphabet.len())]).collect();
            CacheControl::default().read_line(&line);
        }
    }
}
