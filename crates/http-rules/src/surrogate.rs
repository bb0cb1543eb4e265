//! `Surrogate-Control`: an origin's directives for its surrogates (Edge Architecture Specification,
//! W3C Note of 4 August 2001, §2.2 and §2.3).
//!
//! Invariants: a directive with targets (`;name`) counts only if [`NAME`] is among them; a field
//! without an applicable directive is ignored; doubtful lifetimes are read restrictively, as those
//! of `Cache-Control`. No threads.

use http::HeaderMap;
use http::header::HeaderName;

use crate::cache_control::ResponseDirectives;
use crate::config::CachingConfig;
use crate::directive::{Argument, closing_quote};

/// Name of this cache in `Surrogate-Capability`, and in directives targeted at it.
pub const NAME: &str = "damelo";
/// `Surrogate-Capability` in this cache's requests.
pub const CAPABILITY: &str = "damelo=\"Surrogate/1.0\"";

pub(crate) const SURROGATE_CONTROL: HeaderName = HeaderName::from_static("surrogate-control");

/// The field's directives for this cache, if any.
pub(crate) fn read(headers: &HeaderMap, caching: &CachingConfig) -> Option<ResponseDirectives> {
    if !caching.surrogate || !headers.contains_key(SURROGATE_CONTROL) {
        return None;
    }
    let mut parsed = ResponseDirectives { targeted: true, ..ResponseDirectives::default() };
    let mut counts = false;
    for line in headers.get_all(SURROGATE_CONTROL) {
        each_directive(line.as_bytes(), |name, argument| {
            if let Some((name, argument)) = for_us(name, argument) {
                counts |= understood(name);
                parsed.apply(name, argument);
            }
        });
    }
    counts.then_some(parsed)
}

/// Calls `each` with name and argument of every directive of a line. Names include the targets,
/// whose semicolons `Cache-Control` does not have.
fn each_directive<'a>(line: &'a [u8], mut each: impl FnMut(&'a [u8], Argument<'a>)) {
    let mut rest = line;
    loop {
        let Some(start) = rest.iter().position(|b| !matches!(b, b',' | b' ' | b'\t')) else {
            return;
        };
        rest = &rest[start..];
        let name_end = rest.iter().position(|b| matches!(b, b'=' | b',')).unwrap_or(rest.len());
        let (name, after) = rest.split_at(name_end);
        let (argument, after) = split_argument(after);
        rest = after;
        let tidy = name.trim_ascii_end();
        let spaced = tidy.len() < name.len() && argument != Argument::None;
        if !spaced && !tidy.iter().any(u8::is_ascii_whitespace) {
            each(tidy, argument);
            continue;
        }
        let broken = if argument == Argument::Unclosed { argument } else { Argument::Misplaced };
        tidy.split(u8::is_ascii_whitespace).for_each(|word| each(word, broken));
    }
}

/// Splits off `=argument`; the rest usually begins with a comma.
fn split_argument(text: &[u8]) -> (Argument<'_>, &[u8]) {
    let Some((b'=', value)) = text.split_first().map(|(byte, value)| (*byte, value)) else {
        return (Argument::None, text);
    };
    if value.first() != Some(&b'"') {
        let end = value.iter().position(|b| *b == b',').unwrap_or(value.len());
        return (Argument::Token(value[..end].trim_ascii_end()), &value[end..]);
    }
    let Some(end) = closing_quote(&value[1..]) else { return (Argument::Unclosed, &[]) };
    let (quoted, after) = (&value[1..=end], &value[end + 2..]);
    let comma = after.iter().position(|b| *b == b',').unwrap_or(after.len());
    let tail_is_blank = after[..comma].trim_ascii().is_empty();
    let argument = if tail_is_blank { Argument::Quoted(quoted) } else { Argument::Misplaced };
    (argument, &after[comma..])
}

/// Whether a directive concerns caching; `content` does not.
fn understood(name: &[u8]) -> bool {
    [&b"max-age"[..], b"no-store"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// A directive without its targets, and its lifetime without the extension after `+`, which only
/// permits; `None` if it is targeted at others.
fn for_us<'a>(name: &'a [u8], argument: Argument<'a>) -> Option<(&'a [u8], Argument<'a>)> {
    let (name, argument, targets) = match argument {
        Argument::Token(value) => {
            let (value, targets) = split_at(value, b';');
            (name, Argument::Token(split_at(value, b'+').0.trim_ascii_end()), targets)
        }
        Argument::None => {
            let (name, targets) = split_at(name, b';');
            (name.trim_ascii_end(), Argument::None, targets)
        }
        other => (name, other, &b""[..]),
    };
    let mut targets = targets.split(|byte| *byte == b';').map(<[u8]>::trim_ascii).peekable();
    let for_all = targets.peek().is_none_or(|first| first.is_empty());
    let ours = for_all || targets.any(|target| target == NAME.as_bytes());
    ours.then_some((name, argument))
}

/// The text before and after the first `mark`.
fn split_at(text: &[u8], mark: u8) -> (&[u8], &[u8]) {
    let mut parts = text.splitn(2, |byte| *byte == mark);
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_headers as headers;

    #[test]
    fn surrogate_control_goes_before_cache_control() {
        for (value, max_age, no_store) in [
            ("max-age=60", Some(60), false),
            ("MaX-AgE=60", Some(60), false),
            ("content=\"ESI/1.0\", max-age=60", Some(60), false),
            ("max-age=60+600", Some(60), false),
            ("max-age=60;damelo", Some(60), false),
            ("max-age=60;other;damelo", Some(60), false),
            ("max-age=60+600;damelo", Some(60), false),
            ("max-age=60;other, no-store;damelo", None, true),
            ("max-age=60, max-age=30", Some(30), false),
            ("no-store", None, true),
            ("max-age=-1", Some(0), false),
            ("max-age", Some(0), false),
            ("max-age= 60", Some(0), false),
            ("max-age =60", Some(0), false),
            ("foo max-age=60", Some(0), false),
            ("foo no-store", None, true),
            ("max-age=60 +600", Some(60), false),
            ("max-age=60 ; damelo", Some(60), false),
            ("no-store ; other; damelo", None, true),
            ("no-store; other", Some(5), true),
            ("max-age=\"60\"", Some(60), false),
            ("max-age=\"60\" ,foo", Some(60), false),
            ("max-age=\"60\"0", Some(0), false),
            ("max-age=\"60", None, true),
            ("max-age foo=\"60", None, true),
            ("max-age=60;other", Some(5), true),
            ("no-store;other", Some(5), true),
            ("content=\"ESI/1.0\"", Some(5), true),
            ("foo", Some(5), true),
            ("", Some(5), true),
        ] {
            let lines = [("surrogate-control", value), ("cache-control", "max-age=5, no-store")];
            let got = ResponseDirectives::of(&headers(&lines), &CachingConfig::default());
            assert_eq!((got.max_age, got.no_store), (max_age, no_store), "{value}");
            let off = CachingConfig { surrogate: false, ..CachingConfig::default() };
            assert!(!ResponseDirectives::of(&headers(&lines), &off).targeted, "{value}");
        }
        let both = [("surrogate-control", "no-store"), ("cdn-cache-control", "max-age=7")];
        let got = ResponseDirectives::of(&headers(&both), &CachingConfig::default());
        assert_eq!((got.max_age, got.no_store), (Some(7), false), "RFC 9213 goes first");
    }

    #[test]
    fn what_is_announced_is_what_is_listened_to() {
        assert!(CAPABILITY.starts_with(NAME));
    }
}
