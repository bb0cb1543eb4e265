//! The head of an origin's response, as far as its connection is concerned: framing, and how long the
//! connection lives. Pure.

use std::time::Duration;

use http::HeaderMap;
use http::header::{CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING};

use crate::error::FetchError;
use crate::rules::list_members;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
/// Origins close a little sooner than they say, and what we send is on its way for a while.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_secs(1);

/// Whether headers of HTTP/1.1 are as short as they must be, and say in one way only where the answer
/// ends: by one length, or by one `chunked`. hyper reads chunks whatever coding they hold, takes the
/// same length several times, and chunks beside a length, which it leaves there for those after us
/// (RFC 9112 §6.3, §11.2).
pub(super) fn check_head(headers: &HeaderMap, bytes_max: usize) -> Result<(), FetchError> {
    let (mut bytes, mut framings, mut plain) = (0, 0, true);
    for (name, value) in headers {
        // Without the status line.
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

/// For how long a connection may be used again by what its origin says in `Keep-Alive: timeout=SECONDS`.
pub(super) fn kept_for(headers: &HeaderMap) -> Option<Duration> {
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
