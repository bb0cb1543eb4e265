//! The operator's page for errors that the proxy answers itself: a file, read at start and reload.
//!
//! Invariants: what is in memory is bounded; names are replaced only when it is sent, so that a
//! page of any size costs one allocation an answer. No threads.

use std::io::Read as _;
use std::path::Path;

use bytes::Bytes;
use http::StatusCode;

use crate::error::ProxyError;

/// Longest page. It is sent for each failed request, when there are many of them.
const PAGE_BYTES_MAX: u64 = 64 << 10;

/// A page of HTML with places for the status and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ErrorPage {
    text: String,
}

impl ErrorPage {
    /// Reads the page; `None` if none is configured. Blocks for the file.
    ///
    /// # Errors
    /// The file cannot be read, is empty, too long, or no UTF-8.
    pub(crate) fn load(path: Option<&Path>) -> Result<Option<ErrorPage>, ProxyError> {
        let Some(path) = path else { return Ok(None) };
        let bad = |reason: String| ProxyError::ErrorPage { path: path.to_owned(), reason };
        let file = std::fs::File::open(path).map_err(|e| bad(e.to_string()))?;
        let mut bytes = Vec::new();
        file.take(PAGE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| bad(e.to_string()))?;
        match bytes.len() as u64 {
            0 => return Err(bad("it is empty".to_owned())),
            length if length > PAGE_BYTES_MAX => {
                return Err(bad(format!("it is longer than {} KiB", PAGE_BYTES_MAX >> 10)));
            }
            _ => {}
        }
        let text = String::from_utf8(bytes).map_err(|_| bad("it is not UTF-8".to_owned()))?;
        Ok(Some(ErrorPage { text }))
    }

    /// Whether answers with this status have the page: those that say that an origin failed, and
    /// the 504 to `only-if-cached`, for which none was asked.
    pub(crate) fn is_for(status: StatusCode) -> bool {
        let failures =
            [StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT];
        failures.contains(&status)
    }

    /// The page for a status. Braces around anything but the two names stay: styles have them.
    pub(crate) fn render(&self, status: StatusCode) -> Bytes {
        let mut page = String::with_capacity(self.text.len() + 64);
        let mut rest = &*self.text;
        while let Some(at) = rest.find('{') {
            let (before, from) = rest.split_at(at);
            page.push_str(before);
            rest = if let Some(behind) = from.strip_prefix("{status}") {
                page.push_str(status.as_str());
                behind
            } else if let Some(behind) = from.strip_prefix("{reason}") {
                page.push_str(status.canonical_reason().unwrap_or_default());
                behind
            } else {
                page.push('{');
                &from[1..]
            };
        }
        page.push_str(rest);
        page.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_and_other_braces_stay() {
        let page = |text: &str| ErrorPage { text: text.to_owned() };
        for (text, expected) in [
            ("<h1>{status} {reason}</h1>", "<h1>502 Bad Gateway</h1>"),
            ("h1 {color: red} {{status}", "h1 {color: red} {502"),
            ("{status{reason}{", "{statusBad Gateway{"),
            ("plain", "plain"),
        ] {
            assert_eq!(page(text).render(StatusCode::BAD_GATEWAY), expected);
        }
    }

    #[test]
    fn pages_that_cannot_be_sent_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("page.html");
        let load = || ErrorPage::load(Some(&path));
        assert!(load().is_err(), "no file");
        let full = vec![b'a'; PAGE_BYTES_MAX as usize];
        let long = vec![b'a'; full.len() + 1];
        for (bytes, good) in [(&b""[..], false), (&[0xff], false), (&full, true), (&long, false)] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(load().is_ok(), good, "{} bytes", bytes.len());
        }
        assert_eq!(ErrorPage::load(None).unwrap(), None);
    }
}
