//! The parts of an origin's response head that concern its connection: framing, size, and lifetime
//! of the connection. Invariant: a response whose end is ambiguous is refused. Pure; no threads.

use std::time::Duration;

use http::header::{CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING};
use http::{HeaderMap, Response, StatusCode};

use crate::error::FetchError;
use crate::rules::list_members;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
/// Subtracted from the announced lifetime: origins close a little early, and requests take time to
/// arrive.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_secs(1);

/// Checks that HTTP/1.1 headers are within the size limit and frame the body in at most one way: by
/// one length or by one `chunked`. hyper is more lenient (RFC 9112 §6.3, §11.2): it accepts
/// `chunked` combined with other codings, repeated equal lengths, and `chunked` beside a length,
/// which it leaves in the headers for later recipients.
pub(crate) fn check_head(headers: &HeaderMap, bytes_max: usize) -> Result<(), FetchError> {
    let (mut bytes, mut framings, mut plain) = (0, 0, true);
    for (name, value) in headers {
        // The status line is not counted.
        bytes += name.as_str().len() + value.len() + 4;
        if *name == CONTENT_LENGTH {
            framings += 1;
            plain &= value.as_bytes().iter().all(u8::is_ascii_digit);
        } else if *name == TRANSFER_ENCODING {
            framings += 1;
            plain &= value.as_bytes().eq_ignore_ascii_case(b"chunked");
        }
    }
    if bytes > bytes_max {
        return Err(FetchError::HeadersTooLarge);
    }
    if framings > 1 || !plain { Err(FetchError::Framing) } else { Ok(()) }
}

/// Whether a response has a body by its fields, or would have had one if it had not been for a
/// HEAD.
pub(super) fn announces_body(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING)
        || headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0")
}

/// Takes the length off a response that has no content whatever it says (RFC 9110 §8.6, §15.3.5).
/// Clients of HTTP/2 would wait for content of that length, and reset the stream for its end.
pub(super) fn without_false_length<B>(mut response: Response<B>) -> Response<B> {
    if response.status() == StatusCode::NO_CONTENT {
        response.headers_mut().remove(CONTENT_LENGTH);
    }
    response
}

/// How long an idle connection may be reused, by its origin's `Keep-Alive: timeout=SECONDS`.
pub(crate) fn kept_for(headers: &HeaderMap) -> Option<Duration> {
    let name = KEEP_ALIVE;
    let parameters = list_members(headers, &name).filter_map(|member| {
        let (name, value) = std::str::from_utf8(member).ok()?.split_once('=')?;
        name.trim().eq_ignore_ascii_case("timeout").then(|| value.trim().trim_matches('"'))
    });
    let seconds = parameters.filter_map(|value| value.parse().ok()).min()?;
    let said = Duration::from_secs(seconds);
    Some(said.saturating_sub(KEEP_ALIVE_MARGIN).max(said / 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn how_long_a_connection_is_kept() {
        for (said, millis) in [
            ("timeout=5", Some(4000)),
            ("Timeout=5, max=100", Some(4000)),
            ("max=100, timeout=\"2\"", Some(1000)),
            ("timeout=1", Some(500)),
            ("timeout=0", Some(0)),
            ("max=100", None),
            ("timeout=soon", None),
            ("5", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(KEEP_ALIVE, HeaderValue::from_static(said));
            assert_eq!(kept_for(&headers), millis.map(Duration::from_millis), "{said}");
        }
        assert_eq!(kept_for(&HeaderMap::new()), None);
    }
}
