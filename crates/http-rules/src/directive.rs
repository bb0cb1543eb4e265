//! Syntax of `Cache-Control` directives: names and arguments (RFC 9111 §5.2). `cache_control` gives
//! them meaning; `surrogate` and `targeted` read fields of their own.
//!
//! Invariants: every byte of a line is visited once; a line with an unclosed quote ends with
//! [`Argument::Unclosed`]. Pure; allocates only field names. No threads.

use http::header::HeaderName;

/// Value of a delta-seconds too large to hold (RFC 9111 §1.2.2).
pub const DELTA_SECONDS_MAX: u64 = 1 << 31;

/// Adds the names in a comma-separated list; true if there is none, or one that is not a name. Some
/// words could be names and are none: one with an apostrophe is one that somebody meant to quote,
/// and `private=true` and `no-cache=1` switch the directive on as a whole.
pub(crate) fn field_names(text: &[u8], fields: &mut Vec<HeaderName>) -> bool {
    let before = fields.len();
    for name in text.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
        match HeaderName::from_bytes(name) {
            _ if name.is_empty() => {}
            Ok(name) if !is_no_field(name.as_str()) => fields.push(name),
            Ok(_) | Err(_) => return true,
        }
    }
    fields.len() == before
}

fn is_no_field(name: &str) -> bool {
    let switches = ["true", "false", "yes", "no", "on", "off"];
    name.contains('\'') || switches.contains(&name) || name.bytes().all(|b| b.is_ascii_digit())
}

/// Parses digits; `None` for anything else. Too large a number is [`DELTA_SECONDS_MAX`].
pub(crate) fn delta_seconds(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(text.iter().fold(0_u64, add).min(DELTA_SECONDS_MAX))
}

/// Argument of a directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Argument<'a> {
    None,
    Token(&'a [u8]),
    /// The raw text between the quotes, escapes included: no directive needs them resolved.
    Quoted(&'a [u8]),
    /// In a place where the grammar has none: it is ignored.
    Misplaced,
    /// A quoted string without its closing quote.
    Unclosed,
}

impl Argument<'_> {
    /// Its value in seconds, if it has one.
    pub(crate) fn seconds(self) -> Option<u64> {
        match self {
            Argument::Token(text) | Argument::Quoted(text) => delta_seconds(text),
            Argument::None | Argument::Misplaced | Argument::Unclosed => None,
        }
    }
}

/// Calls `each` with name and argument of every directive of a line. If a member continues behind
/// what the grammar allows, calls it for every word of the member, with arguments that do not
/// count.
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

/// Calls `each` with the words up to the next comma, skipping quoted strings.
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
                // Skips at least one byte, to make progress.
                rest = if word.is_empty() { &rest[1..] } else { after };
            }
        }
    }
    rest
}

/// Splits off the leading token, which may be empty (RFC 9110 §5.6.2).
fn split_token(text: &[u8]) -> (&[u8], &[u8]) {
    let is_token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
    text.split_at(text.iter().position(|b| !is_token(b)).unwrap_or(text.len()))
}

/// Splits off `=argument`; the rest usually begins with a comma.
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
