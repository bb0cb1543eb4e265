//! Answers that rules give without an origin: redirects and maintenance pages.
//!
//! Invariant: a `Location` has the scheme and host that the rule states, or is a path of the same
//! host: no client input redirects elsewhere. Pure, no threads.

use std::fmt::Write as _;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use super::matching::without_port;
use crate::rules::key::is_plain_authority;

/// Longest body that a rule may have.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Placeholder for the requested host, without its port.
const HOST: &str = "{host}";
/// Placeholder for path and query as the client sent them.
const TARGET: &str = "{target}";

/// A rule's answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Respond {
    pub(crate) status: Option<StatusCode>,
    pub(crate) location: Option<Location>,
    pub(crate) body: Option<Bytes>,
    pub(crate) body_type: Option<HeaderValue>,
}

/// The target of a redirect: a URL, or a path of the same host. `{host}` and `{target}` are
/// replaced by the client's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location(String);

impl Respond {
    /// Parses a status that a rule may answer with.
    pub(crate) fn status(text: &str) -> Result<StatusCode, String> {
        let status = text.trim().parse().ok().and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.filter(|status| (200..600).contains(&status.as_u16()));
        match status {
            None => Err(format!("\"{text}\" is not a status such as 301 or 503")),
            Some(StatusCode::NOT_MODIFIED) => {
                Err("304 says something of what a client has: only the cache can know".to_owned())
            }
            Some(status) => Ok(status),
        }
    }

    /// Parses a body.
    pub(crate) fn body(text: &str) -> Result<Bytes, String> {
        if text.len() > BODY_BYTES_MAX {
            return Err(format!("{} bytes are too many: {BODY_BYTES_MAX} at most", text.len()));
        }
        Ok(Bytes::copy_from_slice(text.as_bytes()))
    }

    /// Whether the rule answers without an origin.
    pub(crate) fn answers(&self) -> bool {
        self.status.is_some()
    }

    /// Finds contradictions.
    pub(super) fn check(&self) -> Result<(), String> {
        let Some(status) = self.status else {
            let alone = [
                ("location", self.location.is_some()),
                ("body", self.body.is_some()),
                ("body_type", self.body_type.is_some()),
            ];
            return match alone.iter().find(|(_, said)| *said) {
                Some((name, _)) => Err(format!("`{name}` is for an answer: add `respond`")),
                None => Ok(()),
            };
        };
        let code = status.as_u16();
        let leads = matches!(code, 301 | 302 | 303 | 307 | 308);
        if leads && self.location.is_none() {
            return Err(format!("`respond = {code}` leads elsewhere: add `location`"));
        }
        if self.location.is_some() && !(leads || matches!(code, 201 | 300)) {
            return Err(format!(
                "`location` means nothing beside `respond = {code}`: write 301, 302, 303, 307 or 308"
            ));
        }
        if self.body.is_some() && matches!(code, 204 | 205) {
            return Err(format!("an answer {code} has no body"));
        }
        if self.body_type.is_some() && self.body.is_none() {
            return Err("`body_type` is the type of `body`: add it".to_owned());
        }
        Ok(())
    }
}

impl Location {
    /// Parses the target of a redirect.
    pub(crate) fn read(text: &str) -> Result<Location, String> {
        let rest = text.replace(HOST, "").replace(TARGET, "");
        let odd = |c: char| !c.is_ascii_graphic() || "{}<>\"\\^`|".contains(c);
        if rest.contains(odd) {
            return Err(format!(
                "\"{text}\" has characters that a URL cannot have; {HOST} and {TARGET} are all that \
                 is filled in"
            ));
        }
        let after = ["https://", "http://"].iter().find_map(|scheme| text.strip_prefix(scheme));
        let leads = match after {
            Some(rest) => {
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                let end = rest.find(TARGET).map_or(end, |at| at.min(end));
                is_authority(&rest[..end]) && !rest[end..].contains(HOST)
            }
            // A target appended to a lone slash must not form `//`, which names another host.
            None => {
                let path = text.strip_prefix('/');
                path.is_some_and(|path| !path.starts_with('/') && !path.starts_with(TARGET))
                    && !text.contains(HOST)
            }
        };
        if leads {
            Ok(Location(text.to_owned()))
        } else {
            Err(format!(
                "\"{text}\" is neither a URL such as https://{HOST}{TARGET} nor a path such as /new"
            ))
        }
    }

    /// The redirect's target for a client's host and path; `None` if the host is needed and the
    /// client sent none.
    pub(crate) fn of(&self, host: &str, path_and_query: &str) -> Option<HeaderValue> {
        let host = without_port(host);
        if host.is_empty() && self.0.contains(HOST) {
            return None;
        }
        // `OPTIONS *` concerns the host.
        let target = if path_and_query.starts_with('/') { path_and_query } else { "/" };
        let filled = self.0.replace(HOST, host).replace(TARGET, &escaped(target));
        HeaderValue::try_from(filled).ok()
    }
}

/// Whether text is a plain authority, or the client's host with or without a port.
fn is_authority(text: &str) -> bool {
    let plain = match text.strip_prefix(HOST) {
        Some("") => return true,
        Some(port) => return port.strip_prefix(':').is_some_and(is_port),
        None => text,
    };
    !plain.is_empty() && !plain.starts_with(':') && is_plain_authority(plain.as_bytes())
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.parse::<u16>().is_ok()
}

/// Percent-encodes raw UTF-8 bytes, which clients send and `Location` must not contain.
pub(super) fn escaped(target: &str) -> String {
    let mut text = String::with_capacity(target.len());
    for byte in target.bytes() {
        if byte.is_ascii_graphic() {
            text.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_lead_where_the_rule_says() {
        for (text, host, target, expected) in [
            ("https://{host}{target}", "a.test:80", "/b?c", Some("https://a.test/b?c")),
            ("https://{host}:8443{target}", "[::1]:80", "/", Some("https://[::1]:8443/")),
            ("https://www.a.test{target}", "a.test", "//evil", Some("https://www.a.test//evil")),
            ("https://www.a.test/new", "a.test", "/b?c", Some("https://www.a.test/new")),
            ("https://www.a.test?from={target}", "a", "/b", Some("https://www.a.test?from=/b")),
            ("/new{target}", "a.test", "/b", Some("/new/b")),
            ("/new", "a.test", "/b", Some("/new")),
            ("/", "a.test", "/b", Some("/")),
            ("https://{host}{target}", "a", "/\u{e9} ", Some("https://a/%C3%A9%20")),
            ("https://{host}{target}", "a", "*", Some("https://a/")),
            ("https://{host}{target}", "", "/", None),
            ("/new{target}", "", "/b", Some("/new/b")),
        ] {
            let location = Location::read(text).unwrap();
            let got = location.of(host, target);
            assert_eq!(got.as_ref().map(|v| v.to_str().unwrap()), expected, "{text} {target}");
        }
    }

    #[test]
    fn what_a_client_could_lead_elsewhere_is_refused() {
        for text in [
            "",
            "{target}",
            "/{target}",
            "//b.test/",
            "b.test/",
            "//{host}/",
            "/{host}",
            "https://",
            "https:///b",
            "https://{target}",
            "https://:80{target}",
            "https://{host}.b.test{target}",
            "https://{host}@b.test/",
            "https://{host}:{target}",
            "https://a.test/{host}",
            "https://a.test@b.test/",
            "ftp://a.test/",
            "https://a.test/{path}",
            "https://a.test/ b",
            "https://a.test\\{target}",
            "javascript:alert(1)",
        ] {
            assert!(Location::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn statuses_that_can_be_answered() {
        for text in ["200", "301", "451", "599"] {
            assert_eq!(Respond::status(text).unwrap().as_str(), text);
        }
        for text in ["100", "199", "304", "600", "x", "", "-1"] {
            assert!(Respond::status(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let answer = |status: u16, location: &str, body: &str, body_type: &str| Respond {
            status: (status > 0).then(|| StatusCode::from_u16(status).unwrap()),
            location: (!location.is_empty()).then(|| Location::read(location).unwrap()),
            body: (!body.is_empty()).then(|| Respond::body(body).unwrap()),
            body_type: (!body_type.is_empty()).then(|| body_type.parse().unwrap()),
        };
        for (status, location, body, body_type, good) in [
            (0, "", "", "", true),
            (301, "/new", "", "", true),
            (503, "", "closed", "", true),
            (503, "", "<p>closed", "text/html", true),
            (201, "/new", "", "", true),
            (204, "", "", "", true),
            (0, "/new", "", "", false),
            (0, "", "closed", "", false),
            (0, "", "", "text/html", false),
            (301, "", "", "", false),
            (200, "/new", "", "", false),
            (204, "", "closed", "", false),
            (503, "", "", "text/html", false),
        ] {
            let checked = answer(status, location, body, body_type).check();
            assert_eq!(checked.is_ok(), good, "{status} {location} {body}: {checked:?}");
        }
        assert!(Respond::body(&"x".repeat(BODY_BYTES_MAX + 1)).is_err());
    }
}
