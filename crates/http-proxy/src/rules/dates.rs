//! HTTP dates (RFC 9110 §5.6.7) as seconds since 1970. No clock is read here.
//!
//! All three formats are read; only IMF-fixdate is written. What is not a date is `None`.

use std::time::{Duration, UNIX_EPOCH};

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};

/// Latest second that can be written as an HTTP date: the end of the year 9999.
const DATE_MAX_S: u64 = 253_402_300_799;

/// Reads an HTTP date.
pub(crate) fn parse(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let time = httpdate::parse_http_date(text.trim()).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// The first line of header `name` as a date.
pub(crate) fn header(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    parse(headers.get(name)?.as_bytes())
}

/// Writes an HTTP date.
pub(crate) fn format(unix_s: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(unix_s.min(DATE_MAX_S)))
}

/// Writes an HTTP date as a header value.
pub(crate) fn value(unix_s: u64) -> HeaderValue {
    // A formatted date is visible ASCII; the fallback cannot be reached.
    HeaderValue::try_from(format(unix_s)).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_formats_and_nothing_else() {
        for (text, expected) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(784_111_777)),
            ("Sun Nov  6 08:49:37 1994", Some(784_111_777)),
            ("0", None),
            ("-1", None),
            ("", None),
            ("tomorrow", None),
            ("Sun, 06 Nov 1994 08:49:37", None),
            ("Sun, 36 Nov 1994 08:49:37 GMT", None),
        ] {
            assert_eq!(parse(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(format(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(format(u64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
    }
}
