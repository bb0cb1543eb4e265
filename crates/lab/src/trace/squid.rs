//! Squid's native `access.log`:
//! `time elapsed client code/status bytes method URL user hierarchy/peer type`, separated by
//! blanks.
//!
//! Older versions have no type; `log_mime_hdrs` appends two bracketed fields, and a `logformat` of
//! one's own may append others. A URL with blanks in it (`uri_whitespace allow`) makes more fields,
//! too: it is then all that stands between method and the last three, if those are user, hierarchy
//! and type; else it ends before the user, whom the first thing that looks like hierarchy and peer
//! follows. Pure.

use super::fields::{self, TimeUnit};
use super::record::{Parsed, ParsedName, Span};
use crate::error::BadRecord;

const FIELDS: usize = 10;

pub(crate) fn parse(line: &[u8], unit: Option<TimeUnit>) -> Result<Parsed, BadRecord> {
    // Without the headers that log_mime_hdrs appends; a URL may not hold `[` unescaped after a
    // blank.
    let end = memchr::memmem::find(line, b" [").unwrap_or(line.len());
    let fields: Fields<'_> = Fields::of(&line[..end]);
    if fields.count < FIELDS - 1 {
        let (expected, found) = ("10 (9 in old logs)", fields.count);
        return Err(BadRecord::FieldCount { expected, found });
    }
    let [time, _elapsed, client, result, size, method, url, _user, hierarchy] = fields.first;
    let url = match fields.count {
        FIELDS if is_hierarchy(hierarchy) => url,
        FIELDS.. => with_blanks(&line[..end], url, fields.count),
        _ => url,
    };
    if url.is_empty() {
        return Err(BadRecord::Empty { field: "URL" });
    }
    let Some(slash) = memchr::memchr(b'/', result) else {
        return Err(BadRecord::value("result", result, "a code and a status as in TCP_MISS/200"));
    };
    let client = if client == b"-" { &client[..0] } else { client };
    Ok(Parsed {
        time_us: fields::time_us(time, unit)?,
        client: Span::of(line, client),
        method: Span::of(line, method),
        status: fields::status(&result[slash + 1..])?,
        cache_result: Span::of(line, &result[..slash]),
        size_bytes: fields::size_bytes(size)?,
        object: ParsedName::Text(Span::of(line, url)),
    })
}

struct Fields<'a> {
    first: [&'a [u8]; 9],
    count: usize,
}

impl<'a> Fields<'a> {
    fn of(line: &'a [u8]) -> Fields<'a> {
        let mut fields = Fields { first: [&line[..0]; 9], count: 0 };
        let parts = line.split(|byte| is_blank(*byte)).filter(|part| !part.is_empty());
        for part in parts {
            if let Some(field) = fields.first.get_mut(fields.count) {
                *field = part;
            }
            fields.count += 1;
        }
        fields
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// `HIER_DIRECT/1.2.3.4`, `NONE/-`: a code in capitals, and a peer.
fn is_hierarchy(field: &[u8]) -> bool {
    let Some(slash) = memchr::memchr(b'/', field) else { return false };
    let (code, peer) = (&field[..slash], &field[slash + 1..]);
    let may_be = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
    code.first().is_some_and(u8::is_ascii_uppercase) && code.iter().all(may_be) && !peer.is_empty()
}

/// A URL of which `url` is what stands before its first blank, in a line of so many fields.
fn with_blanks<'a>(line: &'a [u8], url: &'a [u8], count: usize) -> &'a [u8] {
    let at = |part: &[u8]| part.as_ptr() as usize - line.as_ptr() as usize;
    let start = at(url);
    let parts = || line[start..].split(|byte| is_blank(*byte)).filter(|part| !part.is_empty());
    if count > FIELDS && parts().nth_back(1).is_some_and(is_hierarchy) {
        return before_last_three(line, url);
    }
    let mut user = url;
    for (n, part) in parts().enumerate() {
        if n > 1 && is_hierarchy(part) {
            return line[start..at(user)].trim_ascii_end();
        }
        user = part;
    }
    if count > FIELDS { before_last_three(line, url) } else { url }
}

/// From where the URL starts to before the third blank from the end.
fn before_last_three<'a>(line: &'a [u8], url: &'a [u8]) -> &'a [u8] {
    let start = url.as_ptr() as usize - line.as_ptr() as usize;
    let mut end = line.len();
    for _ in 0..3 {
        end =
            line[..end].trim_ascii_end().iter().rposition(|byte| is_blank(*byte)).unwrap_or(start);
    }
    line[start..end.max(start)].trim_ascii_end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::record::{ObjectName, Record};

    fn record(line: &str) -> Record<'_> {
        parse(line.as_bytes(), None).expect(line).record(line.as_bytes())
    }

    #[test]
    fn the_native_form_is_read() {
        let r = record(
            "982799997.123    456 10.0.0.1 TCP_REFRESH_HIT/304 234 GET http://a.example/x - DIRECT/1.2.3.4 text/html",
        );
        assert_eq!(r.time_us, 982_799_997_123_000);
        assert_eq!((r.client, r.cache_result), (&b"10.0.0.1"[..], &b"TCP_REFRESH_HIT"[..]));
        assert_eq!((r.status, r.size_bytes, r.method), (304, 234, &b"GET"[..]));
        assert_eq!(r.object, ObjectName::Text(b"http://a.example/x"));
    }

    #[test]
    fn blanks_in_urls_old_logs_and_headers_are_understood() {
        let spaced = record("1.0 1 c TCP_MISS/200 5 GET http://a/x y  z - DIRECT/b text/html");
        assert_eq!(spaced.object, ObjectName::Text(b"http://a/x y  z"));
        let old = record("1.0 1 c TCP_MISS/200 5 GET http://a/x - DIRECT/b");
        assert_eq!(old.object, ObjectName::Text(b"http://a/x"));
        let mime = record(
            "1.0 1 c TCP_MISS/200 5 GET http://a/x - DIRECT/b text/html [A: b\\r\\n] [C: d]",
        );
        assert_eq!(mime.object, ObjectName::Text(b"http://a/x"));
        assert_eq!(record("1.0 1 c NONE/000 0 NONE error:x - HIER_NONE/- -").status, 0);
    }

    /// As with a `logformat` of one's own, and with a blank in an old log: the hierarchy tells
    /// where the URL ends.
    #[test]
    fn fields_behind_the_type_are_no_part_of_the_url() {
        let url = |end: &str| {
            let line = format!("1.0 1 c TCP_MISS/200 5 GET {end}");
            let ObjectName::Text(url) = record(&line).object else { panic!("a name") };
            String::from_utf8_lossy(url).into_owned()
        };
        for behind in ["-", "\"Mozilla/5.0 (X11; Linux) KHTML/4\"", "a b c"] {
            let direct = format!("http://a/x - HIER_DIRECT/1.2.3.4 text/html {behind}");
            assert_eq!(url(&direct), "http://a/x", "{behind}");
            let spaced = format!("http://a/x  y u NONE/- text/html {behind}");
            assert_eq!(url(&spaced), "http://a/x  y", "{behind}");
        }
        assert_eq!(url("http://a/x y - DIRECT/b"), "http://a/x y");
        assert_eq!(url("http://a/X Y Z/W - NONE/- text/html"), "http://a/X Y Z/W");
        assert_eq!(url("http://a/x - weird text/html"), "http://a/x");
        assert_eq!(url("http://a/x y - weird text/html"), "http://a/x y");
    }

    #[test]
    fn bad_lines_say_what_is_wrong() {
        for (line, reason) in [
            ("1.0 1 c TCP_MISS/200 5 GET", "6 fields where 10 (9 in old logs) are expected"),
            (
                "1.0 1 c TCP_MISS 5 GET http://a/ - DIRECT/b text/html",
                "result is `TCP_MISS`, not a code and a status as in TCP_MISS/200",
            ),
            (
                "1.0 1 c TCP_MISS/200 - GET http://a/ - DIRECT/b text/html",
                "size is `-`, not a number of bytes",
            ),
        ] {
            assert_eq!(parse(line.as_bytes(), None).expect_err(line).to_string(), reason);
        }
    }
}
