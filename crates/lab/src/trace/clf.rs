//! Common log (`host ident user [time] "request" status bytes`) and combined log, which adds
//! `"referer" "agent"`.
//!
//! Apache writes both with the site that was asked in front, with its port
//! (`www.site.example:443 host ...`, its `vhost_combined`) or without (`%v`): the same path on two
//! sites is two objects.
//!
//! Squid writes both with a last field of its own, result and hierarchy (`TCP_MISS:HIER_DIRECT`).
//!
//! The request ends at the first quote after which a status follows, because servers of the
//! nineties wrote quotes in URLs as they came. `-` for bytes means none.
//!
//! Servers of today escape what could end a field: Apache writes a quote as `\"`, a backslash as
//! `\\`, what is not printable as `\n` or `\xhh`; nginx writes `\x22`, `\x5C`, `\x0A`. Both are
//! read back, so that a URL is the same object whoever logged it. Where a backslash begins none of
//! these, nobody has escaped anything, and all of them are the URL's own. Pure.

use super::fields;
use super::record::{Parsed, ParsedName, Span};
use crate::error::BadRecord;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Nothing follows the size.
    Common,
    /// Two quoted fields follow, and maybe more.
    Combined,
}

pub(crate) fn parse(line: &[u8], tail: Tail) -> Result<Parsed, BadRecord> {
    let (first, rest) = split(line, b" ").ok_or(BadRecord::Empty { field: "ident" })?;
    let (who, rest) =
        split(rest, b" [").ok_or(BadRecord::Unclosed { field: "user", closing: "` [`" })?;
    let (site, client) = site_and_client(first, who);
    let (time, rest) =
        split(rest, b"] \"").ok_or(BadRecord::Unclosed { field: "time", closing: "`] \"`" })?;
    let request_end = request_end(rest)
        .ok_or(BadRecord::Unclosed { field: "request", closing: "a quote and a status" })?;
    let (request, rest) = (&rest[..request_end], &rest[request_end + 2..]);
    let (status, rest) = split(rest, b" ").unwrap_or((rest, &rest[..0]));
    let (size, rest) = split(rest, b" ").unwrap_or((rest, &rest[rest.len()..]));
    let (rest, cache_result) = take_squids_result(rest);
    check_tail(rest, tail)?;
    let (method, url) = method_and_url(request)?;
    let client = if client == b"-" { &client[..0] } else { client };
    Ok(Parsed {
        time_us: fields::clf_time_us(time)?,
        client: Span::of(line, client),
        method: Span::of(line, method),
        status: fields::status(status)?,
        cache_result: Span::of(line, cache_result),
        size_bytes: if size == b"-" { 0 } else { fields::size_bytes(size)? },
        object: match site {
            Some(site) if url.first() == Some(&b'/') => {
                ParsedName::OnSite { site: Span::of(line, site), path: Span::of(line, url) }
            }
            _ if memchr::memchr(b'\\', url).is_some() => ParsedName::Escaped(Span::of(line, url)),
            _ => ParsedName::Text(Span::of(line, url)),
        },
    })
}

/// The site, with its port if that is there, if the line begins with one, and the client. `who` is
/// what stands before the time: ident and user, with the client before them if there is a site. The
/// address of a client may end as a port does (`2001:db8::80`) and the name of a user may have
/// blanks, but then `who` begins with the `-` of ident. A site without a port is a name, not an
/// address, as proxies may be logged in front of a client, and ident is behind the client.
fn site_and_client<'a>(first: &'a [u8], who: &'a [u8]) -> (Option<&'a [u8]>, &'a [u8]) {
    let mut fields = who.split(|byte| *byte == b' ');
    let (Some(client), Some(ident), Some(_)) = (fields.next(), fields.next(), fields.next()) else {
        return (None, first);
    };
    let is_site = has_port(first) || (is_host_name(first) && ident == b"-");
    match is_site && client != b"-" {
        true => (Some(first), client),
        false => (None, first),
    }
}

/// An address with colons has them in brackets, if there is a port behind it.
fn has_port(first: &[u8]) -> bool {
    let Some(colon) = memchr::memrchr(b':', first) else { return false };
    let (site, port) = (&first[..colon], &first[colon + 1..]);
    let is_one = memchr::memchr(b':', site).is_none() || site.last() == Some(&b']');
    let is_number = (1..=5).contains(&port.len()) && port.iter().all(u8::is_ascii_digit);
    is_number && is_one && !site.is_empty()
}

/// A name of letters, digits, dots and hyphens that does not end in a number, as addresses do.
fn is_host_name(first: &[u8]) -> bool {
    let is_of_names = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_".contains(byte);
    let last = first.rsplit(|byte| *byte == b'.').find(|label| !label.is_empty());
    first.iter().all(is_of_names) && last.is_some_and(|label| label[0].is_ascii_alphabetic())
}

/// Appends the beginning of a site's URLs. Which scheme was asked by, only the port tells.
pub(crate) fn push_site(url: &mut Vec<u8>, site: &[u8]) {
    let (scheme, site) = match (site.strip_suffix(b":443"), site.strip_suffix(b":80")) {
        (Some(name), _) => (&b"https://"[..], name),
        (_, Some(name)) => (&b"http://"[..], name),
        _ => (&b"http://"[..], site),
    };
    url.extend_from_slice(scheme);
    url.extend_from_slice(site);
}

/// Appends a URL with what stands for itself only by an escape.
pub(crate) fn push_unescaped(to: &mut Vec<u8>, url: &[u8]) {
    let start = to.len();
    let mut rest = url;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let Some((byte, length)) = escaped_byte(&rest[at + 1..]) else {
            to.truncate(start);
            to.extend_from_slice(url);
            return;
        };
        to.extend_from_slice(&rest[..at]);
        to.push(byte);
        rest = &rest[at + 1 + length..];
    }
    to.extend_from_slice(rest);
}

/// What is meant by what follows a backslash, and how long that is.
fn escaped_byte(text: &[u8]) -> Option<(u8, usize)> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    Some(match text {
        [byte @ (b'"' | b'\\'), ..] => (*byte, 1),
        [b'b', ..] => (0x08, 1),
        [b'n', ..] => (b'\n', 1),
        [b'r', ..] => (b'\r', 1),
        [b't', ..] => (b'\t', 1),
        [b'v', ..] => (0x0b, 1),
        [b'x', high, low, ..] => ((digit(high)? << 4) | digit(low)?, 3),
        _ => return None,
    })
}

/// What stands before and after a separator.
fn split<'a>(text: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = memchr::memmem::find(text, separator)?;
    Some((&text[..at], &text[at + separator.len()..]))
}

/// A quote, a blank, and three digits or `-`. Servers that escape quotes in requests say so by a
/// backslash; where every quote has one, the backslash is the request's own.
fn request_end(text: &[u8]) -> Option<usize> {
    let is_end = |at: &usize| {
        let after = &text[at + 2..];
        after.starts_with(b"- ") || (after.len() >= 3 && after[..3].iter().all(u8::is_ascii_digit))
    };
    let ends = || memchr::memmem::find_iter(text, b"\" ").filter(is_end);
    let is_escaped =
        |at: usize| text[..at].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1;
    ends().find(|at| !is_escaped(*at)).or_else(|| ends().next())
}

/// What stands before Squid's last field, and the result in it; empty if there is none.
fn take_squids_result(rest: &[u8]) -> (&[u8], &[u8]) {
    let none = (rest, &rest[..0]);
    let text = rest.trim_ascii_end();
    let start = memchr::memrchr(b' ', text).map_or(0, |at| at + 1);
    let Some(colon) = memchr::memchr(b':', &text[start..]) else { return none };
    let (result, hierarchy) = (&text[start..start + colon], &text[start + colon + 1..]);
    let is_code = |text: &[u8]| {
        let code = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
        text.first().is_some_and(u8::is_ascii_uppercase) && text.iter().all(code)
    };
    match is_code(result) && is_code(hierarchy) {
        true => (&text[..start], result),
        false => none,
    }
}

fn check_tail(rest: &[u8], tail: Tail) -> Result<(), BadRecord> {
    let quoted = memchr::memchr_iter(b'"', rest).count() / 2;
    match tail {
        Tail::Common if !rest.trim_ascii().is_empty() => {
            Err(BadRecord::FieldCount { expected: "7 (common log)", found: 7 + quoted.max(1) })
        }
        Tail::Combined if quoted < 2 => {
            Err(BadRecord::FieldCount { expected: "9 (combined log)", found: 7 + quoted })
        }
        _ => Ok(()),
    }
}

/// How TLS begins, escaped or not: somebody spoke it where HTTP is spoken, and asked nothing that
/// the server could read.
const TLS_HELLO: [&[u8]; 2] = [br"\x16\x03", &[0x16, 0x03]];

/// `GET /x HTTP/1.0`; HTTP/0.9 has no version, and some servers logged no method.
fn method_and_url(request: &[u8]) -> Result<(&[u8], &[u8]), BadRecord> {
    let request = request.trim_ascii();
    if request.is_empty() || request == b"-" || TLS_HELLO.iter().any(|b| request.starts_with(b)) {
        return Err(BadRecord::NoRequest);
    }
    let Some((method, rest)) = split(request, b" ") else {
        return Ok((&request[..0], request));
    };
    let rest = rest.trim_ascii_start();
    let url = match memchr::memmem::rfind(rest, b" HTTP/") {
        Some(at) => rest[..at].trim_ascii_end(),
        None => rest,
    };
    if url.is_empty() || url.starts_with(b"HTTP/") {
        return Err(BadRecord::Empty { field: "URL of the request" });
    }
    Ok((method, url))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::record::{ObjectName, Record};

    fn record(line: &str, tail: Tail) -> Record<'_> {
        parse(line.as_bytes(), tail).expect(line).record(line.as_bytes())
    }

    #[test]
    fn common_and_combined_logs_are_read() {
        let line = "in24.inetnebr.com - - [01/Aug/1995:00:00:01 -0400] \"GET /shuttle/x.txt HTTP/1.0\" 200 1839";
        let r = record(line, Tail::Common);
        assert_eq!(r.time_us, 807_249_601_000_000);
        assert_eq!((r.client, r.method), (&b"in24.inetnebr.com"[..], &b"GET"[..]));
        assert_eq!((r.status, r.size_bytes), (200, 1839));
        assert_eq!(r.object, ObjectName::Text(b"/shuttle/x.txt"));
        let line = format!("{line} \"http://ref/\" \"Agent (x; \\\"y\\\")\"");
        assert_eq!(record(&line, Tail::Combined).size_bytes, 1839);
    }

    #[test]
    fn a_site_in_front_is_no_client() {
        let rest = "[01/Aug/1995:00:00:01 -0400] \"GET /a HTTP/1.0\" 200 5 \"-\" \"A\"";
        let parsed = |who: &str| {
            let line = format!("{who} {rest}");
            let parsed = parse(line.as_bytes(), Tail::Combined).expect(who);
            let site = match parsed.object {
                ParsedName::OnSite { site, .. } => site.in_line(line.as_bytes()).to_vec(),
                _ => Vec::new(),
            };
            let client = parsed.client.in_line(line.as_bytes()).to_vec();
            [client, site].map(|text| String::from_utf8(text).expect("ASCII"))
        };
        for (who, client, site) in [
            ("a.example:443 10.0.0.1 - -", "10.0.0.1", "a.example:443"),
            ("a.example:443 2001:db8::1 - John Doe", "2001:db8::1", "a.example:443"),
            ("[::1]:8080 10.0.0.1 - u", "10.0.0.1", "[::1]:8080"),
            ("2001:db8::80 - -", "2001:db8::80", ""),
            ("2001:db8::80 - John Doe", "2001:db8::80", ""),
            ("10.0.0.1 ident u", "10.0.0.1", ""),
            ("a.example:https 10.0.0.1 - -", "a.example:https", ""),
            ("a.example 10.0.0.1 - -", "10.0.0.1", "a.example"),
            ("a.example. c.example - John Doe", "c.example", "a.example."),
            ("localhost 2001:db8::1 - u", "2001:db8::1", "localhost"),
            ("c.example - John Doe", "c.example", ""),
            ("c.example ident John Doe", "c.example", ""),
            ("10.0.0.9 10.0.0.1 - -", "10.0.0.9", ""),
            ("2001:db8::9 10.0.0.1 - -", "2001:db8::9", ""),
            ("- 10.0.0.1 - -", "", ""),
        ] {
            assert_eq!(parsed(who), [client, site], "{who}");
        }
    }

    /// Else a client could choose the status and the size that are read of it.
    #[test]
    fn an_escaped_quote_does_not_end_the_request() {
        let line = r#"c - - [01/Aug/1995:00:00:01 -0400] "GET /a\" 200 5 HTTP/1.0" 404 7 "-" "-""#;
        let r = record(line, Tail::Combined);
        assert_eq!((r.status, r.size_bytes), (404, 7));
        let line = r#"c - - [01/Aug/1995:00:00:01 -0400] "GET /a\" 200 5"#;
        assert_eq!(record(line, Tail::Common).size_bytes, 5);
    }

    #[test]
    fn escapes_of_apache_and_nginx_are_read_back() {
        for (logged, url) in [
            (r#"/say\"hi\""#, r#"/say"hi""#),
            (r"/say\x22hi\x22", r#"/say"hi""#),
            (r"/a\\b\\", r"/a\b\"),
            (r"/a\x5Cb\x5c", r"/a\b\"),
            (r"/\\x22", r"/\x22"),
            (r"/\t\x09\n\r\v\b", "/\t\t\n\r\x0b\x08"),
            (r"/\xc3\xA9", "/\u{e9}"),
            // Of servers that escape nothing.
            (r"\windows\temp", r"\windows\temp"),
            (r"/\x2", r"/\x2"),
            (r"/\x22\", r"/\x22\"),
            (r"/\xg0", r"/\xg0"),
        ] {
            let mut unescaped = b"before".to_vec();
            push_unescaped(&mut unescaped, logged.as_bytes());
            assert_eq!(String::from_utf8_lossy(&unescaped[6..]), url, "{logged}");
        }
    }

    #[test]
    fn squids_own_field_is_its_result() {
        let line = "c - - [01/Aug/1995:00:00:01 -0400] \"GET http://a/ HTTP/1.1\" 200 5";
        let squids = format!("{line} TCP_MEM_HIT:HIER_NONE");
        let r = record(&squids, Tail::Common);
        assert_eq!((r.size_bytes, r.cache_result), (5, &b"TCP_MEM_HIT"[..]));
        let squids = format!("{line} \"-\" \"A/1:X\" TCP_MISS:DIRECT");
        assert_eq!(record(&squids, Tail::Combined).cache_result, b"TCP_MISS");
        assert!(parse(squids.as_bytes(), Tail::Common).is_err());
        assert_eq!(record(&format!("{line} \"-\" \"A B:X\""), Tail::Combined).cache_result, b"");
        for other in ["TCP_MISS", "tcp:none", ":X", "A:", "TCP_MISS:NONE TCP_MISS:NONE"] {
            let line = format!("{line} {other}");
            assert!(parse(line.as_bytes(), Tail::Common).is_err(), "{other}");
        }
    }

    #[test]
    fn odd_requests_of_real_logs_are_understood() {
        let url = |request: &str| {
            let line = format!("h - u [01/Aug/1995:00:00:01 -0400] \"{request}\" 304 -");
            let record = record(&line, Tail::Common);
            assert_eq!(record.size_bytes, 0);
            let ObjectName::Text(url) = record.object else { panic!("a name") };
            String::from_utf8_lossy(url).into_owned()
        };
        assert_eq!(url("GET /old"), "/old");
        assert_eq!(url("GET /a b.gif HTTP/1.0"), "/a b.gif");
        assert_eq!(url("GET /say\"hi\".html HTTP/1.0"), "/say\"hi\".html");
        assert_eq!(url("/bare"), "/bare");
        assert_eq!(url("GET http://h/x HTTP/1.1"), "http://h/x");
    }

    #[test]
    fn bad_lines_say_what_is_wrong() {
        let at = "h - - [01/Aug/1995:00:00:01 -0400]";
        for (line, reason) in [
            ("h - - \"GET / HTTP/1.0\" 200 5".to_owned(), "user does not end: ` [` is missing"),
            (format!("{at} GET / 200 5"), "time does not end: `] \"` is missing"),
            (
                format!("{at} \"GET / 200 5"),
                "request does not end: a quote and a status is missing",
            ),
            (format!("{at} \"-\" 408 -"), "nothing was asked"),
            (format!(r#"{at} "\x16\x03\x01\x02\x00\x01" 400 226"#), "nothing was asked"),
            (format!("{at} \"\x16\x03\x01 x\" 400 226"), "nothing was asked"),
            (format!("{at} \"GET / HTTP/1.0\" 200 x"), "size is `x`, not a number of bytes"),
            (
                format!("{at} \"GET / HTTP/1.0\" 200 5 \"r\" \"a\""),
                "9 fields where 7 (common log) are expected",
            ),
        ] {
            assert_eq!(parse(line.as_bytes(), Tail::Common).expect_err(&line).to_string(), reason);
        }
    }
}
