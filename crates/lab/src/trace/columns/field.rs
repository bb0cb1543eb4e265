//! One field of a line, with quotes around it or without (RFC 4180). Pure.

use crate::error::BadRecord;

/// What stands between two delimiters, without quotes around it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) text: &'a [u8],
    /// There are quotes in it, each twice.
    pub(super) is_doubled: bool,
}

/// The first field of what is left of a line, and what follows its delimiter.
#[inline]
pub(super) fn take_field(
    rest: &[u8],
    delimiter: u8,
) -> Result<(Field<'_>, Option<&[u8]>), BadRecord> {
    // Where a line is one object, a quote is part of it.
    if delimiter != b'\n'
        && let Some(inner) = rest.strip_prefix(b"\"")
    {
        return take_quoted(inner, delimiter);
    }
    let (text, after) = match memchr::memchr(delimiter, rest) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    Ok((Field { text, is_doubled: false }, after))
}

/// The rest of a field that begins with a quote: it may hold delimiters, and quotes that stand
/// twice (RFC 4180), and ends with the quote that stands alone. Nothing but blanks comes between
/// that and the delimiter.
fn take_quoted(inner: &[u8], delimiter: u8) -> Result<(Field<'_>, Option<&[u8]>), BadRecord> {
    let unclosed =
        BadRecord::Unclosed { field: "a column in quotes", closing: "a quote at the column's end" };
    let mut is_doubled = false;
    let mut quotes = memchr::memchr_iter(b'"', inner);
    while let Some(end) = quotes.next() {
        let after = &inner[end + 1..];
        if after.first() == Some(&b'"') {
            is_doubled = true;
            quotes.next();
            continue;
        }
        let field = Field { text: &inner[..end], is_doubled };
        let blank = |byte: &&u8| **byte != delimiter && matches!(byte, b' ' | b'\t');
        let blanks = after.iter().take_while(blank).count();
        return match after[blanks..].split_first() {
            None => Ok((field, None)),
            Some((byte, after)) if *byte == delimiter => Ok((field, Some(after))),
            Some(_) => Err(unclosed),
        };
    }
    Err(unclosed)
}

/// Appends text in which quotes stand twice as it was before.
pub(crate) fn push_undoubled(to: &mut Vec<u8>, text: &[u8]) {
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'"', rest) {
        to.extend_from_slice(&rest[..=at]);
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    to.extend_from_slice(rest);
}
