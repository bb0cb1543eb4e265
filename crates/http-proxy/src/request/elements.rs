//! Reads the lists in which proxies name clients: `X-Forwarded-For`, and `Forwarded` (RFC 7239 §4).
//!
//! Invariants: elements come last one first, each is read by itself, by its bytes, and what is none
//! is still an element, of a client whom nobody knows: nobody hides what a proxy adds behind what
//! they wrote. What a quoted string contains separates nothing; a line whose quotes can be read in
//! two ways has no known client at all. Pure.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::HeaderName;

/// What an element of `Forwarded` says of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hop {
    /// It has no `for`.
    WithoutClient,
    /// This one, if it is an address.
    For(Option<IpAddr>),
}

impl Hop {
    pub(super) fn client(self) -> Option<IpAddr> {
        match self {
            Hop::WithoutClient => None,
            Hop::For(address) => address,
        }
    }
}

/// The addresses of a plain list, of which nothing is quoted.
pub(super) fn addresses(
    headers: &HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = Option<IpAddr>> {
    let lines = headers.get_all(name).into_iter().rev();
    let elements = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
    elements.map(|element| address(element.trim_ascii()))
}

/// The elements of `Forwarded`.
pub(super) fn hops(headers: &HeaderMap, name: &HeaderName) -> impl Iterator<Item = Hop> {
    let lines = headers.get_all(name).into_iter().rev();
    lines.flat_map(|line| of_line(line.as_bytes()).into_iter().rev())
}

/// Parses an address with or without brackets and port. One with a zone is somebody of a link that
/// we do not know.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok().filter(|text| !text.contains('%'))?;
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    text.parse().ok().or_else(with_port).or_else(bracketed)
}

/// The elements of one line, first one first.
fn of_line(line: &[u8]) -> Vec<Hop> {
    let (mut hops, mut rest) = (Vec::new(), Some(line));
    while let Some(left) = rest {
        let Some((hop, behind)) = element(left) else { return vec![Hop::For(None)] };
        hops.push(hop);
        rest = behind;
    }
    hops
}

/// The first element of a line, and what follows its comma if it has one. `None`: a quote is where
/// none may be, or has no end.
fn element(line: &[u8]) -> Option<(Hop, Option<&[u8]>)> {
    let (mut hop, mut is_empty, mut is_sound, mut rest) = (Hop::WithoutClient, true, true, line);
    loop {
        let (pair, left) = pair(rest)?;
        match pair {
            Pair::Empty => {}
            Pair::Malformed => is_sound = false,
            Pair::Of(name, value) => {
                is_empty = false;
                if name.eq_ignore_ascii_case(b"for") {
                    // Each name occurs once (§4): of two nobody knows which counts.
                    let is_first = hop == Hop::WithoutClient;
                    hop = Hop::For(address(&value).filter(|_| is_first));
                }
            }
        }
        rest = match left.split_first() {
            Some((b';', left)) => left,
            ended => {
                let hop = if is_empty || !is_sound { Hop::For(None) } else { hop };
                return Some((hop, ended.map(|(_, left)| left)));
            }
        };
    }
}

/// What stands between two separators.
enum Pair<'l> {
    Empty,
    /// Without a name, or without a value.
    Malformed,
    /// A name and its value, without its quotes.
    Of(&'l [u8], Cow<'l, [u8]>),
}

/// The first pair of a line, and the rest, which begins with its separator. `None` as for
/// [`element`].
fn pair(line: &[u8]) -> Option<(Pair<'_>, &[u8])> {
    let is_end = |byte: &u8| matches!(byte, b',' | b';');
    let end = line.iter().position(|byte| is_end(byte) || matches!(byte, b'=' | b'"'));
    let (name, rest) = line.split_at(end.unwrap_or(line.len()));
    let name = name.trim_ascii_start();
    let value = match rest.split_first() {
        Some((b'"', _)) => return None,
        Some((b'=', value)) => value,
        _ if name.is_empty() => return Some((Pair::Empty, rest)),
        _ => return Some((Pair::Malformed, rest)),
    };
    let (value, rest) = match value.strip_prefix(b"\"") {
        Some(quoted) => {
            let (value, rest) = unquoted(quoted)?;
            let rest = rest.trim_ascii_start();
            // Else the quote did not end the value.
            rest.first().is_none_or(is_end).then_some((Cow::Owned(value), rest))?
        }
        None => {
            let (value, rest) =
                value.split_at(value.iter().position(is_end).unwrap_or(value.len()));
            let is_plain = !value.contains(&b'"');
            is_plain.then_some((Cow::Borrowed(value.trim_ascii_end()), rest))?
        }
    };
    let is_name = !name.is_empty() && HeaderName::from_bytes(name).is_ok();
    Some((if is_name { Pair::Of(name, value) } else { Pair::Malformed }, rest))
}

/// The content of a quoted string (RFC 9110 §5.6.4) whose first quote is gone, and what follows it.
fn unquoted(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (mut content, mut bytes) = (Vec::new(), text.iter());
    loop {
        match bytes.next()? {
            b'"' => return Some((content, bytes.as_slice())),
            b'\\' => content.push(*bytes.next()?),
            byte => content.push(*byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The clients of a line: `-` where an element names none, `?` where nobody knows it.
    fn read(line: &[u8]) -> String {
        let hops = of_line(line);
        let words = hops.iter().map(|hop| match hop {
            Hop::WithoutClient => "-".to_owned(),
            Hop::For(None) => "?".to_owned(),
            Hop::For(Some(address)) => address.to_string(),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn elements_are_read_as_they_were_meant() {
        for (line, expected) in [
            ("for=192.0.2.1", "192.0.2.1"),
            ("For=192.0.2.1;proto=http;by=203.0.113.43", "192.0.2.1"),
            ("for=192.0.2.1, for=198.51.100.17", "192.0.2.1 198.51.100.17"),
            ("for=192.0.2.1 ;\tproto=http ,for=192.0.2.2", "192.0.2.1 192.0.2.2"),
            ("FOR=\"[2001:db8::17]:4711\"", "2001:db8::17"),
            ("for=[2001:db8::17]", "2001:db8::17"),
            ("for=192.0.2.1:80", "192.0.2.1"),
            ("for=\"192\\.0.2.1\"", "192.0.2.1"),
            ("proto=https, ;for=192.0.2.1;", "- 192.0.2.1"),
            // What is quoted separates nothing.
            ("host=\"a,b;for=10.0.0.1\";for=192.0.2.1", "192.0.2.1"),
            ("host=\"a\\\", for=10.0.0.1\"", "-"),
            ("host=\"\", for=\"192.0.2.1\"", "- 192.0.2.1"),
            // An element that is none hides no other.
            ("for=unknown, for=192.0.2.1", "? 192.0.2.1"),
            ("for=_gazonk, nonsense, =x, for=192.0.2.1", "? ? ? 192.0.2.1"),
            ("for=192.0.2.1;for=192.0.2.1", "?"),
            ("for=192.0.2.1;secure", "?"),
            ("for =192.0.2.1, for= 192.0.2.1, x for=192.0.2.1", "? ? ?"),
            ("for=192.0.2.1=, for=", "? ?"),
            ("for=\"[fe80::1%1]:80\"", "?"),
            (", for=192.0.2.1,", "? 192.0.2.1 ?"),
            ("", "?"),
            // Where a quoted string ends is anybody's guess.
            ("for=\"192.0.2.1", "?"),
            ("for=192.0.2.1, for=\"10.0.0.1\"x", "?"),
            ("for=\"10.0.0.1, for=192.0.2.1;host=\"a\"", "?"),
            ("\"for=10.0.0.1\", for=192.0.2.1", "?"),
            ("for=a\"b, for=192.0.2.1", "?"),
            ("for=192.0.2.1;host=\"a\\", "?"),
        ] {
            assert_eq!(read(line.as_bytes()), expected, "{line}");
        }
        assert_eq!(read(b"for=\xff, for=\"\xe9\", \xff=a, for=192.0.2.1"), "? ? ? 192.0.2.1");
    }
}
